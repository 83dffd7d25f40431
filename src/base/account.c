/* Memory that is charged to an account (see base.h). */
#include "base/base.h"

#include <stdlib.h>

rf_status rf_account_resize(struct rf_account *account, void **memory, uint64_t old_bytes, uint64_t new_bytes,
                            const char *what) {
    rf_status status = new_bytes > old_bytes ? rf_account_charge(account, new_bytes - old_bytes) : RF_OK;
    if (status) return rf_fail_within(status, "%s", what);
    void *moved = new_bytes > SIZE_MAX ? NULL : realloc(*memory, (size_t)new_bytes);
    if (!moved) {
        rf_account_release(account, rf_sub_saturate(new_bytes, old_bytes));
        return rf_fail(RF_E_NO_MEMORY, "%s: no host memory for %llu bytes", what, (unsigned long long)new_bytes);
    }
    rf_account_release(account, rf_sub_saturate(old_bytes, new_bytes));
    *memory = moved;
    return RF_OK;
}
