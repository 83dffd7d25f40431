/* For tests of validators: each builds a valid structure, breaks one thing of it, and expects the validator to say
 * what. They need a build with checks (meson setup -Dchecks=2) and skip elsewhere. */
#ifndef CHECKS_TESTING_H
#define CHECKS_TESTING_H

#include "base/assert.h"
#include <rocmforge/test.h>

/* NULL: valid. Else what the validator says. */
#if RF_CHECKS >= 2
#define NEED_CHECKS() ((void)0)
#define WHY_INVALID(validator, object)                                                                               \
    __extension__({                                                                                                  \
        const char *why_invalid = "no reason";                                                                       \
        validator((object), &why_invalid) ? NULL : why_invalid;                                                      \
    })
#else
#define NEED_CHECKS() RF_SKIP("needs a build with all checks: meson setup build-checks -Dchecks=2")
#define WHY_INVALID(validator, object) ((void)(object), (const char *)NULL)
#endif

#define EXPECT_VALID(validator, object)                                                                              \
    do {                                                                                                             \
        const char *expect_valid = WHY_INVALID(validator, object);                                                   \
        if (expect_valid) RF_FAIL("%s: %s", #validator, expect_valid);                                               \
    } while (0)
#define EXPECT_INVALID(validator, object, text)                                                                      \
    do {                                                                                                             \
        const char *expect_invalid = WHY_INVALID(validator, object);                                                 \
        RF_ASSERT_CONTAINS(expect_invalid ? expect_invalid : "(it found nothing)", text);                            \
    } while (0)
/* Puts a value in a place of the structure, expects the validator to find it, and puts the old one back. */
#define PLANT(validator, object, place, value, text)                                                                 \
    do {                                                                                                             \
        __typeof__(place) plant_saved = (place);                                                                     \
        (place) = (value);                                                                                           \
        const char *plant_found = WHY_INVALID(validator, object);                                                    \
        (place) = plant_saved;                                                                                       \
        RF_ASSERT_CONTAINS(plant_found ? plant_found : "(it found nothing)", text);                                  \
        EXPECT_VALID(validator, object);                                                                             \
    } while (0)

#endif
