/* Lists the leases on a GPU, for a program that wants to show them. Opens no device. */
#include "gpu/device_impl.h"

struct survey {
    bool (*visit)(void *user, const struct rf_lease_info *lease);
    void *user;
};

static bool pass_on(void *user, const struct rf_lease_entry *entry) {
    const struct survey *survey = user;
    struct rf_lease_info lease = {.pid = entry->pid,
                                  .promised_bytes = entry->promised_bytes,
                                  .held_bytes = entry->held_bytes,
                                  .part = entry->part,
                                  .mine = entry->mine};
    return survey->visit(survey->user, &lease);
}

rf_status rf_device_leases(struct rf_runtime *runtime, int index,
                           bool (*visit)(void *user, const struct rf_lease_info *lease), void *user) {
    if (!visit) return rf_fail(RF_E_INVALID, "rf_device_leases needs a function to call");
    RF_PARAMS(struct rf_device_info, info);
    rf_status status = rf_device_info_at(runtime, index, &info);
    if (status != RF_OK) return status;
    struct survey survey = {visit, user};
    struct rf_lease_params place;
    rf_lease_place(runtime, index, &info, &place);
    return rf_lease_survey(&place, pass_on, &survey);
}
