/* What a test may ask the simulated driver, by dlsym on librfsim-hip.so or by linking with it. None of these counts
 * as a driver call, none blocks, all are safe from any thread. */
#ifndef RFSIM_H
#define RFSIM_H

#include <stddef.h>
#include <stdint.h>

struct rfsim_stats {
    size_t struct_size;     /* set by the caller */
    uint64_t calls;         /* driver calls so far */
    uint64_t traps;         /* calls of banned entry points */
    uint64_t faults;        /* injected faults that were delivered */
    uint64_t launches;      /* kernels that ran */
    uint64_t blocks;        /* blocks that ran */
    uint64_t copied_bytes;  /* bytes of copies and fills that ran */
    uint64_t device_bytes;  /* device memory held now, as asked, all devices */
    uint64_t charged_bytes; /* the same, rounded to the granularity, contexts not included */
    uint64_t pinned_bytes;  /* pinned host memory held now */
    uint64_t device_count;  /* live device allocations */
    uint64_t pinned_count;  /* live pinned allocations */
    uint64_t streams;       /* live streams, and destroyed ones with work left; default streams too */
    uint64_t events;        /* live events */
    uint64_t modules;       /* live modules */
    uint64_t graphs;        /* live graphs and executable graphs, and destroyed ones that still run */
    uint64_t least_free;    /* the least that was free right after an allocation; UINT64_MAX: there was none */
};

#define RFSIM_EXPORT __attribute__((visibility("default")))

RFSIM_EXPORT const char *rfsim_version(void); /* a loader recognises the simulated driver by this symbol */
RFSIM_EXPORT int
rfsim_shared(void); /* 1: the devices' memory is shared with other processes (shared=); 0: it is not */
RFSIM_EXPORT void rfsim_stats(struct rfsim_stats *stats);
RFSIM_EXPORT uint64_t rfsim_call_count(void);
RFSIM_EXPORT uint64_t rfsim_entry_count(const char *entry); /* calls of "hipMalloc"; UINT64_MAX: no such entry */
RFSIM_EXPORT uint64_t rfsim_trap_count(void);
RFSIM_EXPORT const char *rfsim_last_trap(void);                  /* the entry last trapped; "" if none */
RFSIM_EXPORT const char *rfsim_last_message(void);               /* why something failed; "" if nothing did */
RFSIM_EXPORT void rfsim_set_desktop(int device, uint64_t bytes); /* from now on others hold this much */
RFSIM_EXPORT void rfsim_release_hangs(void); /* ends injected hangs; the work or call then continues */

#endif
