/* Memory figures: what a device has, what the desktop, this process and others hold, and when freed memory is
 * reported back. All of it runs under the driver's lock; with shared= a decision is also made under the lock of the
 * shared file. */
#include "sim/sim.h"

#include <stdlib.h>

static uint64_t own_bytes(const struct sim_device *device) {
    uint64_t own = device->context ? device->config->context : 0;
    return device->allocated + own + device->config->grows * (device->allocated >> 30);
}

/* Bytes that were freed so recently that reports still count them; forgets older ones. */
static uint64_t late_bytes(struct sim_device *device) {
    int64_t now = sim_now_ns();
    uint64_t sum = 0;
    size_t kept = 0;
    for (size_t i = 0; i < device->late_count; i++)
        if (device->late[i].due_ns > now) {
            sum += device->late[i].bytes;
            device->late[kept++] = device->late[i];
        }
    device->late_count = kept;
    return sum;
}

static void figures(struct sim_device *device, struct sim_figures *out) {
    uint64_t own = own_bytes(device), late = device->late_count ? late_bytes(device) : 0;
    uint64_t others = 0, others_reported = 0;
    sim_shared_others(device->index, device->config->late_ns, &others, &others_reported);
    out->total = device->config->vram;
    out->desktop = device->desktop;
    out->used_now = device->desktop + own + others;
    out->used_reported = device->desktop + own + late + others_reported;
}

static void changed(struct sim_device *device) {
    struct sim_figures now;
    uint64_t own = own_bytes(device);
    sim_shared_publish(device->index, own, own + (device->late_count ? late_bytes(device) : 0));
    if (sim.config.sysfs[0]) {
        figures(device, &now);
        sim_sysfs_update(device, &now, own);
    }
}

void sim_account_start(void) {
    sim_desktop_tick(sim.stats.calls);
    sim_shared_lock();
    for (int i = 0; i < sim.config.device_count; i++) changed(&sim.devices[i]);
    sim_shared_unlock();
}

void sim_figures(struct sim_device *device, struct sim_figures *out) {
    sim_shared_lock();
    figures(device, out);
    sim_shared_publish(device->index, own_bytes(device), own_bytes(device) + late_bytes(device));
    sim_sysfs_update(device, out, own_bytes(device));
    sim_shared_unlock();
}

int sim_charge(struct sim_device *device, uint64_t bytes, uint64_t *charged) {
    uint64_t unit = device->config->granularity;
    if (bytes > device->config->vram) return SIM_OUT_OF_MEMORY;
    uint64_t rounded = (bytes + unit - 1) / unit * unit;
    struct sim_figures now;
    sim_shared_lock();
    figures(device, &now);
    bool fits = now.used_now <= now.total && rounded <= now.total - now.used_now;
    if (fits) {
        device->allocated += rounded;
        changed(device);
        *charged = rounded;
        uint64_t left = now.total - now.used_now - rounded;
        if (left < sim.stats.least_free) sim.stats.least_free = left;
    }
    sim_shared_unlock();
    return fits ? SIM_OK : SIM_OUT_OF_MEMORY;
}

void sim_discharge(struct sim_device *device, uint64_t charged) {
    rf_assert(charged <= device->allocated && charged % device->config->granularity == 0);
    device->allocated -= charged;
    if (device->config->late_ns) {
        if (device->late_count == device->late_capacity) {
            size_t capacity = device->late_capacity ? device->late_capacity * 2 : 16;
            struct sim_late *grown = realloc(device->late, capacity * sizeof *grown);
            if (grown) {
                device->late = grown;
                device->late_capacity = capacity;
            }
        }
        if (device->late_count < device->late_capacity)
            device->late[device->late_count++] =
                (struct sim_late){.bytes = charged, .due_ns = sim_now_ns() + device->config->late_ns};
    }
    sim_shared_lock();
    changed(device);
    sim_shared_unlock();
}

int sim_charge_context(struct sim_device *device) {
    if (device->context) return SIM_OK;
    struct sim_figures now;
    sim_shared_lock();
    figures(device, &now);
    bool fits = now.used_now <= now.total && device->config->context <= now.total - now.used_now;
    if (fits) {
        device->context = true;
        changed(device);
    }
    sim_shared_unlock();
    return fits ? SIM_OK : SIM_OUT_OF_MEMORY;
}

void sim_desktop_tick(uint64_t calls) {
    for (int i = 0; i < sim.config.device_count; i++) {
        struct sim_device *device = &sim.devices[i];
        const struct sim_device_config *config = device->config;
        uint64_t before = device->desktop;
        /* Steps apply in the order they were written. */
        while (device->next_step < config->step_count) {
            const struct sim_desktop_step *step = &config->steps[device->next_step];
            uint64_t reached = step->by_time ? (uint64_t)(sim_now_ns() - sim.start_ns) : calls;
            if (reached < step->at) break;
            device->desktop = step->bytes;
            device->next_step++;
        }
        if (config->walk_every && calls % config->walk_every == 0)
            device->desktop =
                config->walk_low + sim_random(&device->walk_state) % (config->walk_high - config->walk_low + 1);
        if (device->desktop != before) sim_set_desktop(device, device->desktop);
    }
}

void sim_set_desktop(struct sim_device *device, uint64_t bytes) {
    device->desktop = bytes;
    sim_shared_lock();
    changed(device);
    sim_shared_unlock();
}
