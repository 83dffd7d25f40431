/* A kernel library for the simulated driver in which one kernel is wrong: softmax_f32 writes nothing. The driver is
 * given this library before the right one (kernels=), and takes the first kernel of a name. */
#include "../../src/kernels/host_abi.h"

static void do_nothing(void **args) {
    (void)args;
}
static void bind(const struct rfk_services *services) {
    (void)services;
}
static void set_lane(const struct rfk_lane *lane) {
    (void)lane;
}

static const uint32_t arg_bytes[] = {8, 8, 8, 8};
static const struct rfk_kernel kernels[] = {{"softmax_f32", do_nothing, 4, arg_bytes, 1024}};
static const struct rfk_table tables[] = {{RFK_ABI, 32, kernels, 1, bind, set_lane},
                                          {RFK_ABI, 64, kernels, 1, bind, set_lane}};

__attribute__((visibility("default"))) const struct rfk_table *rfk_table(int wave);
const struct rfk_table *rfk_table(int wave) {
    return wave == 32 ? &tables[0] : wave == 64 ? &tables[1] : NULL;
}
