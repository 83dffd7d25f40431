/* ROCmForge: statuses, call sites, logging, options and the runtime object.
 *
 * Glossary (the core objects of the library, see also gpu.h)
 *   runtime   owns the log, the options, the host budget, the thread pool and the CPU's description; the GPU layer
 *             keeps the probe's result and the devices on it
 *   device    one GPU, opened once per runtime and shared by reference count
 *   budget    how many bytes this user's processes may together take of one GPU
 *   lease     this process's recorded share of the budget: promised and held bytes
 *   floor     free memory that must stay free for all other users of the GPU
 *   ledger    every live allocation of a device, with its call site
 *   buffer    device memory; a view is a part of a buffer
 *   queue     an ordered stream of work on a device
 *   lost      a device whose driver reported a fatal error; it makes no further driver call
 *   abandoned memory that could not be given back safely (a lost device, a stuck queue)
 *
 * Conventions: every function returns rf_status, 0 is success; results come through out-parameters, which are
 * untouched on failure. Parameter structs are zero for defaults and are read during the call only. Strings passed in
 * are copied. rf_x_destroy(&x) accepts a pointer to NULL and leaves NULL.
 *
 * struct_size: a struct that you give the library to read or to fill begins with its size.
 * RF_PARAMS declares one, sets the size and zeroes the rest: always begin there. New versions
 * of the library add fields at the end of such structs and move none, so that a program and
 * a library of different versions work together:
 *   - an older program's struct is smaller: fields that it does not have take their defaults
 *   - a newer program's struct is larger: it is accepted as long as the bytes that this
 *     library does not know are zero, else refused with RF_E_INVALID, in one line that says which
 *   - a struct that the library fills is written up to your struct_size and never beyond it;
 *     what this library does not know is zeroed; struct_size stays as it was
 *   - a struct_size that is 0, or that was never the size of the struct, is RF_E_INVALID
 * The comment on a struct without struct_size says whether it may change. A struct marked "Frozen" never changes. A
 * struct that only the library makes, and that it shows by a pointer, may grow at its end: read it where it is, and
 * do not keep arrays of it. */
#ifndef ROCMFORGE_BASE_H
#define ROCMFORGE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RF_API __attribute__((visibility("default")))
#define RF_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define RF_API
#define RF_PRINTF(fmt, first)
#endif

#define RF_VERSION_MAJOR 0
#define RF_VERSION_MINOR 1
#define RF_VERSION_PATCH 0

/* "0.1.0"; static. */
RF_API const char *rf_version(void);

typedef enum rf_status {
    RF_OK = 0,
    RF_E_INVALID,       /* an argument is wrong: NULL, zero, out of range, wrong device */
    RF_E_SYNTAX,        /* a spec, option or file could not be parsed */
    RF_E_HANDLE,        /* checked mode: the handle is foreign or was destroyed */
    RF_E_NO_MEMORY,     /* host memory is short, or the host budget refused */
    RF_E_BUDGET,        /* the GPU budget or the floor refused */
    RF_E_DEVICE_MEMORY, /* the driver itself is out of memory */
    RF_E_TIMEOUT,       /* the deadline passed; the work may still finish */
    RF_E_BUSY,          /* another process or thread holds it; trying again may succeed */
    RF_E_DEVICE_LOST,   /* a fatal error happened earlier or now; only a new process helps */
    RF_E_NO_DRIVER,     /* no usable driver library */
    RF_E_NO_DEVICE,     /* there is a driver, but no device, or not the one asked for */
    RF_E_DRIVER,        /* the driver answered with an error that is not fatal */
    RF_E_UNSUPPORTED,   /* not offered by this driver, device or build */
    RF_E_NOT_FOUND,     /* no such kernel, option, file */
    RF_E_CORRUPT,       /* a guard band was overwritten, or logits are not numbers */
    RF_E_IO,            /* a file or pipe failed */
    RF_E_CLOSED,        /* the device behind the handle was closed */
    RF_E_CANCELLED,     /* the caller asked for it to stop */
    RF_STATUS_COUNT
} rf_status;

/* The status's name, such as "RF_E_BUDGET"; "RF_E_?" for a number that is no status. The text is static. */
RF_API const char *rf_status_name(rf_status status);

/* One line on why the last failing call on this thread failed: what was asked, which limit or rule refused it, and
 * what to change. Never NULL; empty before the first failure. Valid until the next failing call on this thread. */
RF_API const char *rf_error_text(void);

/* Every timeout is in nanoseconds. RF_TIMEOUT_DEFAULT stands for the option RF_TIMEOUT_MS; 0 asks once and does not
 * wait. There is no infinite timeout. */
#define RF_TIMEOUT_DEFAULT ((int64_t)-1)
#define RF_MS(n) ((int64_t)(n) * INT64_C(1000000))

/* Where an allocation was made. Captured by the RF_SITE macro; static strings only. Frozen. */
struct rf_site {
    const char *file;
    const char *function;
    int line;
};
#ifdef __cplusplus
#define RF_SITE (rf_site{__FILE__, __func__, __LINE__})
#define RF_PARAMS(type, name)                                                                                        \
    type name = {};                                                                                                  \
    name.struct_size = sizeof(type)
#else
#define RF_SITE ((struct rf_site){__FILE__, __func__, __LINE__})
#define RF_PARAMS(type, name) type name = {.struct_size = sizeof(type)}
#endif

enum rf_log_level { RF_LOG_NONE, RF_LOG_ERROR, RF_LOG_WARN, RF_LOG_INFO, RF_LOG_DEBUG };

/* It is called from any thread, never concurrently for one runtime, and never while the call that logs holds a lock
 * that a public function needs. line is one line without a newline, borrowed for the call. */
typedef void (*rf_log_fn)(void *user, enum rf_log_level level, const char *line);

/* what: in words ("compiling kernels for this GPU, the first time only"), valid during the call. */
typedef void (*rf_progress_fn)(void *user, const char *what, uint64_t done, uint64_t total);

struct rf_runtime;

struct rf_runtime_params {
    size_t struct_size;
    rf_log_fn log; /* NULL: the library is silent */
    void *log_user;
    /* "NAME=VALUE" strings that override the environment, terminated by NULL; or NULL. The names are those of the
     * options table, such as "RF_BUDGET". */
    const char *const *options;
    /* Told how far something is that takes seconds; NULL: nobody is. Called a few times a second, and once more with
     * done equal to total, on the thread whose call takes the time, and not at all for what is quick. */
    rf_progress_fn progress;
    void *progress_user;
};

/* It may be called from any thread and loads no driver. params may be NULL. RF_E_SYNTAX names the malformed option.
 */
RF_API rf_status rf_runtime_create(const struct rf_runtime_params *params, struct rf_runtime **out);

/* Closes what is still open (reporting it as leaked), by the default deadline. No other
 * thread may be using the runtime or anything made from it. */
RF_API void rf_runtime_destroy(struct rf_runtime **runtime);

/* One row of the options table. Static. May grow at its end. */
struct rf_option {
    const char *name;          /* also the environment variable */
    const char *default_value; /* as text */
    const char *help;
};
RF_API size_t rf_option_count(void);
RF_API const struct rf_option *rf_option_at(size_t index); /* NULL past the end */

/* The value in force, as text; NULL for an unknown name. Valid as long as the runtime. */
RF_API const char *rf_runtime_option(const struct rf_runtime *runtime, const char *name);

/* Parses "12GiB", "1.5G", "4096", "100MB" (KB/MB/GB are decimal, KiB/MiB/GiB and K/M/G
 * binary). */
RF_API rf_status rf_parse_bytes(const char *text, uint64_t *bytes);

/* Writes a size such as "1.5 GiB" into text; returns text. */
RF_API const char *rf_format_bytes(uint64_t bytes, char *text, size_t size);

/* How many threads of this process can run at once: the CPUs that the calling thread may run on, or fewer where a
 * control group's quota of CPU time comes to less (rounded up). At least 1. Threads: any; reads a few small files. */
RF_API unsigned rf_usable_cores(void);

#ifdef __cplusplus
}
#endif
#endif
