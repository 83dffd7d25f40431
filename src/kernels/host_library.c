/* The exported end of a library of host-compiled kernels (see host_abi.h).
 *
 * Linked once into each such library. The kernels' rows come from the linker section of their
 * wave size. The services are set once, before any kernel runs; the lane is the thread's own. */
#include "kernels/host_abi.h"

extern __attribute__((visibility("hidden"))) const struct rfk_services *rfk_services;
extern __attribute__((visibility("hidden"))) _Thread_local struct rfk_lane rfk_lane_now;
extern __attribute__((visibility("hidden"))) const struct rfk_kernel __start_rfk_rows_32[], __stop_rfk_rows_32[];
extern __attribute__((visibility("hidden"))) const struct rfk_kernel __start_rfk_rows_64[], __stop_rfk_rows_64[];

const struct rfk_services *rfk_services;
_Thread_local struct rfk_lane rfk_lane_now;

static void bind_services(const struct rfk_services *services) {
    rfk_services = services;
}
static void set_lane(const struct rfk_lane *lane) {
    rfk_lane_now = *lane;
}

static struct rfk_table tables[2] = {
    {.abi = RFK_ABI, .wave = 32, .kernels = __start_rfk_rows_32, .bind = bind_services, .set_lane = set_lane},
    {.abi = RFK_ABI, .wave = 64, .kernels = __start_rfk_rows_64, .bind = bind_services, .set_lane = set_lane},
};

/* The counts are differences of addresses, which C does not take for constants. */
__attribute__((constructor)) static void count_rows(void) {
    tables[0].count = (uint32_t)(__stop_rfk_rows_32 - __start_rfk_rows_32);
    tables[1].count = (uint32_t)(__stop_rfk_rows_64 - __start_rfk_rows_64);
}

__attribute__((visibility("default"))) const struct rfk_table *rfk_table(int wave);
const struct rfk_table *rfk_table(int wave) {
    return wave == 32 ? &tables[0] : wave == 64 ? &tables[1] : NULL;
}
