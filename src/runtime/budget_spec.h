/* How a budget is written, for GPUs and for the host, and how much of a given amount it allows. */
#ifndef RF_RUNTIME_BUDGET_SPEC_H
#define RF_RUNTIME_BUDGET_SPEC_H

#include "base/base.h"

/* "70%", "12GiB", "keep=2GiB", "keep=30%", several with commas (the smallest limit wins), and
 * "part=ID:BYTES" as written by rf_lease_lend. */
struct rf_budget_spec {
    bool has_percent, has_cap, has_keep, has_keep_percent, has_part;
    double percent, keep_percent; /* 0 < percent <= 100; 0 <= keep_percent < 100 */
    uint64_t cap_bytes, keep_bytes;
    char part_id[64];
    uint64_t part_bytes;
};
rf_status rf_budget_parse(const char *text,
                          struct rf_budget_spec *spec); /* RF_E_SYNTAX: its text says where, and what is allowed */
/* limit: how many bytes of base may be taken. floor: how many bytes must stay free, which is the figure of keep= if
 * given, else the smaller of base - limit and 30% of base. */
void rf_budget_eval(const struct rf_budget_spec *spec, uint64_t base, uint64_t *limit, uint64_t *floor_bytes);

#endif
