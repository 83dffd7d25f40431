/* How it is shown what of a model is where: a short table, or JSON. */
#ifndef RF_CLI_PLACEMENT_H
#define RF_CLI_PLACEMENT_H

#include "cli.h"
#include "base/json.h"

#include <rocmforge/infer.h>

/* A few lines: device, budgets and context; ranges of layers with their bytes; what spilled, and what that costs. */
void placement_show(FILE *to, const struct rf_engine_info *info);
/* The same as the member "placement". notice: as rf_engine_notice gives it. */
void placement_json(struct rf_json *json, const struct rf_engine_info *info, const char *notice);

#endif
