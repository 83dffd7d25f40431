/* Host memory: limit, the pinned quarter, the live floor, refusals that can be acted on. */
#include "helpers.h"
#include "runtime/host_budget.h"

#include <pthread.h>

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

/* 10 GiB available of 16. */
static void meminfo(const char *root, uint64_t available_kib) {
    char text[256];
    snprintf(text, sizeof text, "MemTotal:       16777216 kB\nMemFree:         100 kB\nMemAvailable:   %llu kB\n",
             (unsigned long long)available_kib);
    write_file(root, "proc/meminfo", text);
}

static void begin(char *root, size_t size, struct rf_host_budget *budget, const char *spec) {
    make_folder(root, size);
    meminfo(root, 10 << 20);
    RF_ASSERT_OK(rf_host_budget_init(budget, spec, root));
}

RF_TEST(host_budget, limit_and_pinned_quarter) {
    char root[64];
    struct rf_host_budget budget;
    begin(root, sizeof root, &budget, "60%");
    RF_ASSERT_INT(budget.limit_bytes, 10 * GIB / 10 * 6);
    RF_ASSERT_INT(budget.pinned_limit_bytes, budget.limit_bytes / 4);
    RF_ASSERT_INT(rf_host_room(&budget, false), budget.limit_bytes);
    RF_ASSERT_INT(rf_host_room(&budget, true), budget.pinned_limit_bytes);
    RF_ASSERT_OK(rf_host_charge(&budget, budget.pinned_limit_bytes, true));
    RF_ASSERT_STATUS(rf_host_charge(&budget, 1, true), RF_E_NO_MEMORY);
    RF_ASSERT_CONTAINS(rf_error_text(), "pinned");
    RF_ASSERT_CONTAINS(rf_error_text(), "a quarter");
    RF_ASSERT_CONTAINS(rf_error_text(), "RF_HOST_BUDGET");
    RF_ASSERT_INT(rf_host_room(&budget, true), 0);
    RF_ASSERT_OK(rf_host_charge(&budget, budget.limit_bytes - budget.used_bytes, false));
    RF_ASSERT_STATUS(rf_host_charge(&budget, 1, false), RF_E_NO_MEMORY);
    RF_ASSERT_CONTAINS(rf_error_text(), "1 B of host memory refused");
    RF_ASSERT_CONTAINS(rf_error_text(), "6 GiB");
    RF_ASSERT_CONTAINS(rf_error_text(), "60%");
    RF_ASSERT_CONTAINS(rf_error_text(), "10 GiB");
    RF_ASSERT_STATUS(rf_host_charge(&budget, UINT64_MAX, false), RF_E_NO_MEMORY);
    RF_ASSERT_INT(budget.used_bytes, budget.limit_bytes);
    rf_host_release(&budget, budget.pinned_limit_bytes, true);
    RF_ASSERT_INT(rf_host_room(&budget, true), budget.pinned_limit_bytes);
    RF_ASSERT_OK(rf_host_charge(&budget, 0, true));
    rf_host_budget_finish(&budget);
    remove_folder(root);
}

RF_TEST(host_budget, a_large_charge_looks_at_the_host_now) {
    char root[64];
    struct rf_host_budget budget;
    begin(root, sizeof root, &budget, "60%");
    meminfo(root, 4 << 20); /* something else took 6 GiB; 3 must stay free */
    RF_ASSERT_STATUS(rf_host_charge(&budget, 2 * GIB, false), RF_E_NO_MEMORY);
    RF_ASSERT_CONTAINS(rf_error_text(), "4 GiB of 16 GiB are available now");
    RF_ASSERT_CONTAINS(rf_error_text(), "3 GiB must stay free");
    RF_ASSERT_INT(budget.used_bytes, 0);
    RF_ASSERT_OK(rf_host_charge(&budget, GIB, false));
    RF_ASSERT_INT(rf_host_room(&budget, false), GIB); /* by a figure that does not know of the first */
    remove_folder(root);                              /* no figure: the limit alone */
    RF_ASSERT_OK(rf_host_charge(&budget, 5 * GIB, false));
    RF_ASSERT_STATUS(rf_host_charge(&budget, 1, false), RF_E_NO_MEMORY);
    rf_host_budget_finish(&budget);
}

RF_TEST(host_budget, specs) {
    char root[64];
    struct rf_host_budget budget;
    begin(root, sizeof root, &budget, "keep=7GiB");
    RF_ASSERT_INT(budget.limit_bytes, 3 * GIB);
    RF_ASSERT_INT(budget.floor_bytes, 7 * GIB);
    rf_host_budget_finish(&budget);
    RF_ASSERT_STATUS(rf_host_budget_init(&budget, "x", root), RF_E_SYNTAX);
    RF_ASSERT_CONTAINS(rf_error_text(), "host");
    RF_ASSERT_STATUS(rf_host_budget_init(&budget, "part=1-2-3:4", root), RF_E_SYNTAX);
    RF_ASSERT_STATUS(rf_host_budget_init(&budget, NULL, root), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_host_charge(NULL, 1, false), RF_E_INVALID);
    RF_ASSERT(rf_host_budget_init(&budget, "60%", "/nonexistent") != RF_OK);
    remove_folder(root);
    /* The real host. */
    RF_ASSERT_OK(rf_host_budget_init(&budget, "60%", NULL));
    RF_ASSERT(budget.limit_bytes > 0 && budget.limit_bytes < budget.total_bytes);
    rf_host_budget_finish(&budget);
}

static void *charge_and_release(void *user) {
    struct rf_host_budget *budget = user;
    for (int i = 0; i < 5000; i++) {
        bool pinned = i & 1;
        if (rf_host_charge(budget, MIB, pinned) == RF_OK) rf_host_release(budget, MIB, pinned);
        RF_ASSERT(rf_host_room(budget, pinned) <= 4 * MIB);
    }
    return NULL;
}

RF_TEST(host_budget, threads) {
    char root[64];
    struct rf_host_budget budget;
    pthread_t threads[8];
    begin(root, sizeof root, &budget, "4MiB");
    for (int i = 0; i < 8; i++) RF_ASSERT(pthread_create(&threads[i], NULL, charge_and_release, &budget) == 0);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    RF_ASSERT_INT(budget.used_bytes, 0);
    RF_ASSERT_INT(budget.pinned_bytes, 0);
    rf_host_budget_finish(&budget);
    remove_folder(root);
}
