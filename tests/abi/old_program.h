/* A program as somebody wrote it for 0.1.0: compiled against the headers of that release (the folder 0.1.0), linked
 * with the library of today. test_old_program.c runs it; a check that fails ends it with a line and status 1.
 *
 * What it checks: that each struct of 0.1.0 is read and filled as it was then, and that nothing is written beyond it.
 */
#ifndef OLD_PROGRAM_H
#define OLD_PROGRAM_H

#include <rocmforge/ops.h>
#include <rocmforge/rocmforge.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                             \
    do {                                                                                                             \
        if (!(condition)) {                                                                                          \
            fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", __FILE__, __LINE__, #condition,                  \
                    rf_error_text());                                                                                \
            exit(1);                                                                                                 \
        }                                                                                                            \
    } while (0)
#define OK(call) CHECK((call) == RF_OK)

/* A struct that the library fills, with bytes behind it that it must leave alone. */
enum { GUARD = 0xa5 };
#define GUARDED(type, name)                                                                                          \
    struct {                                                                                                         \
        type it;                                                                                                     \
        unsigned char guard[128];                                                                                    \
    } name;                                                                                                          \
    memset(&name, GUARD, sizeof name);                                                                               \
    memset(&name.it, 0, sizeof name.it)
#define SIZED(type, name)                                                                                            \
    GUARDED(type, name);                                                                                             \
    name.it.struct_size = sizeof name.it
#define UNTOUCHED(name)                                                                                              \
    for (size_t guard_ = 0; guard_ < sizeof name.guard; guard_++) CHECK(name.guard[guard_] == GUARD)
/* Filled, with its size as it was and nothing behind it written. */
#define FILLED(name)                                                                                                 \
    CHECK(name.it.struct_size == sizeof name.it);                                                                    \
    UNTOUCHED(name)

extern struct rf_runtime *runtime;
struct rf_device *open_device(void); /* the best GPU, by choice and parameters */

void use_devices(void);
void use_memory(void);
void use_queues(void);
void use_graphs(void);
void use_model(const char *path);
void use_engine(const char *path, const char *device);

#endif
