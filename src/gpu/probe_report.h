/* The probe's wire format: what a helper says about one driver, as lines of text.
 *
 *     rocmforge-probe 1
 *     step=loading the driver        any number; what was under way if nothing follows
 *     begin
 *     driver=hip                     then fixed keys in a fixed order, each exactly once
 *     ...
 *     device=0                       one block per device
 *     ...
 *     end
 *
 * Values are printable ASCII; every other byte, and '%', is written %XX. Numbers are decimal
 * without leading zeros. The reader accepts exactly what the writer can write. */
#ifndef RF_GPU_PROBE_REPORT_H
#define RF_GPU_PROBE_REPORT_H

#include "gpu/driver.h"
#include "gpu/probe.h"

#define RF_PROBE_REPORT_MAX_BYTES ((size_t)256 * 1024) /* of any report: 64 devices with the longest fields fit */
#define RF_PROBE_HEADER "rocmforge-probe 1\n"

/* The raw figures, as the driver gave them, not yet judged. Strings are always terminated. */
struct rf_probe_device {
    int ordinal; /* the driver's own */
    char name[128], arch[32], uuid[48], pci[32];
    uint64_t total_bytes, free_bytes, granularity_bytes;
    int integrated, display; /* display: enum rf_tristate */
    int wave_size, compute_units, max_threads_per_block, max_shared_bytes_per_block;
    char fault[160]; /* what went wrong while asking; empty if nothing did */
};

enum rf_probe_simulated {
    RF_PROBE_NOT_SIMULATED,
    RF_PROBE_SIMULATED,        /* each process has devices of its own */
    RF_PROBE_SIMULATED_SHARED, /* processes share the devices: RFSIM has shared= */
};

struct rf_probe_report {
    enum rf_driver_kind kind;
    enum rf_probe_simulated simulated;
    char library[512]; /* absolute path of what was loaded; empty if nothing was */
    char label[64];
    rf_status status;
    char reason[512]; /* empty with RF_OK */
    int count;
    struct rf_probe_device devices[RF_MAX_DEVICES];
};

/* Writes header-less text from "begin" to "end". Returns the length, 0 if it does not fit. */
size_t rf_probe_report_write(const struct rf_probe_report *report, char *text, size_t size);
/* One "step=" line, newline included; cut where it is too long. Returns the length. */
size_t rf_probe_step_write(const char *step, char *text, size_t size);

/* text need not be terminated. RF_E_SYNTAX names the line; *report is untouched then. */
rf_status rf_probe_report_parse(const char *text, size_t length, struct rf_probe_report *report);
/* Whether the text ends as a whole report does; it says nothing about the text before the end. */
bool rf_probe_report_complete(const char *text, size_t length);
/* Gives the last step of an unfinished report; empty if there was none that makes sense. Returns whether the header
 * was right. */
bool rf_probe_last_step(const char *text, size_t length, char *step, size_t size);

/* Whether a device's figures make sense; if not, it gives one line on what does not. */
bool rf_probe_device_plausible(enum rf_driver_kind kind, const struct rf_probe_device *device, char *why,
                               size_t size);

#endif
