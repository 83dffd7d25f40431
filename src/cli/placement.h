/* Shows which parts of a model are on which device: as a short table, or as JSON. */
#ifndef RF_CLI_PLACEMENT_H
#define RF_CLI_PLACEMENT_H

#include "cli.h"
#include "base/json.h"

#include <rocmforge/infer.h>

/* A few lines: device, budgets and context; ranges of layers with their bytes; what spilled, and what that costs per
 * token. */
void placement_show(FILE *to, const struct rf_engine_info *info);
/* The same as a member "placement". notice: the text of rf_engine_notice. */
void placement_json(struct rf_json *json, const struct rf_engine_info *info, const char *notice);

#endif
