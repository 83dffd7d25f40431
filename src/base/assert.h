/* Checks of the library's own invariants, compiled in by the Meson option 'checks'.
 *
 *   rf_assert(condition)       level 1: a few comparisons, cheap enough to leave on
 *   rf_assert_slow(condition)  level 2: may walk a whole structure
 *   rf_assert_valid(v, o)      level 2: validator v (bool v(o, const char **why)) accepts object o
 *
 * A check that fails prints "file:line: function: condition" and a note on standard error, and aborts. It means a
 * defect of the library: whatever comes from outside (a caller's argument, a file, a driver's answer) is refused with
 * a status and never asserted.
 *
 * At level 0, the default, the conditions are compiled but not evaluated, validators do not exist (put them inside
 * "#if RF_CHECKS >= 2"), and the library contains none of this: tools/check_layers.py --library checks that.
 *
 * This header needs nothing else of the library: the simulated driver and the test harness use it too. */
#ifndef RF_BASE_ASSERT_H
#define RF_BASE_ASSERT_H

#include <stdbool.h>

#ifndef RF_CHECKS
#define RF_CHECKS 0
#endif

/* Stands before a small static function that only conditions of rf_assert call. It avoids the compiler's warning
 * where these conditions are not evaluated. */
#define RF_FOR_CHECKS __attribute__((unused)) static

/* Defined in assert.c. note: what a validator found, or NULL. */
_Noreturn void rf_assert_failed(const char *file, int line, const char *function, const char *condition,
                                const char *note);

#define RF_ASSERT_ALWAYS(condition)                                                                                  \
    ((condition) ? (void)0 : rf_assert_failed(__FILE__, __LINE__, __func__, #condition, (const char *)0))
#define RF_ASSERT_NEVER(condition) ((void)sizeof(!(condition)))

#if RF_CHECKS >= 1
#define rf_assert(condition) RF_ASSERT_ALWAYS(condition)
#else
#define rf_assert(condition) RF_ASSERT_NEVER(condition)
#endif

#if RF_CHECKS >= 2
#define rf_assert_slow(condition) RF_ASSERT_ALWAYS(condition)
#define rf_assert_valid(validator, object)                                                                           \
    do {                                                                                                             \
        const char *rf_assert_why = "";                                                                              \
        if (!validator((object), &rf_assert_why))                                                                    \
            rf_assert_failed(__FILE__, __LINE__, __func__, #validator "(" #object ")", rf_assert_why);               \
    } while (0)
/* Used in a validator: unless the condition holds, it returns false and sets *why to the invariant that does not
 * hold. */
#define RF_INVALID_UNLESS(condition, what)                                                                           \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            *why = (what);                                                                                           \
            return false;                                                                                            \
        }                                                                                                            \
    } while (0)
#else
#define rf_assert_slow(condition) RF_ASSERT_NEVER(condition)
#define rf_assert_valid(validator, object) ((void)sizeof(object))
#endif

#endif
