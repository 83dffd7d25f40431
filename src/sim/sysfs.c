/* The kernel's files about the GPUs, as amdgpu and kfd would show them, in a folder of the test's choice.
 *
 * Figures are overwritten in place by one write of a fixed width, never truncated and never replaced: a reader that
 * keeps its file open, or reads at any moment, sees the old number or the new one. They include what the driver takes
 * for itself, and the desktop. */
#include "sim/sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[512];
static int used_file[SIM_MAX_DEVICES], own_file[SIM_MAX_DEVICES];
static uint64_t used_written[SIM_MAX_DEVICES], own_written[SIM_MAX_DEVICES];
static char process_folder[600];

static void make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
}

/* Writes a file under the root and makes its folders; true if that worked. */
static bool __attribute__((format(printf, 2, 3))) put(const char *text, const char *format, ...) {
    char path[1100];
    va_list args;
    int length = snprintf(path, sizeof path, "%s/", root);
    va_start(args, format);
    vsnprintf(path + length, sizeof path - (size_t)length, format, args);
    va_end(args);
    make_folders(path);
    /* Not truncated first, because other processes of a shared tree read it meanwhile. */
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) return false;
    size_t bytes = strlen(text);
    bool good = write(file, text, bytes) == (ssize_t)bytes && ftruncate(file, (off_t)bytes) == 0;
    close(file);
    return good;
}

static int open_figure(const char *path) {
    char copy[1100];
    snprintf(copy, sizeof copy, "%s", path);
    make_folders(copy);
    return open(copy, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
}

static void write_figure(int file, uint64_t value) {
    char text[32];
    int length = snprintf(text, sizeof text, "%-22llu\n", (unsigned long long)value);
    if (file >= 0 && pwrite(file, text, (size_t)length, 0) < 0)
        return; /* on a full disk the reader sees the old figure */
}

static unsigned gpu_id(const struct sim_device *device) {
    return 4096u + (unsigned)device->index * 257u;
}

static bool put_device(const struct sim_device *device) {
    const struct sim_device_config *config = device->config;
    const char *pci = config->pci;
    char text[1024], path[1100], target[600];
    int card = device->index;
    uint64_t gtt = UINT64_C(8) << 30;
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)config->vram);
    bool good = put(text, "bus/pci/devices/%s/mem_info_vram_total", pci);
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)gtt);
    good = good && put(text, "bus/pci/devices/%s/mem_info_gtt_total", pci);
    good = good && put("0\n", "bus/pci/devices/%s/mem_info_gtt_used", pci);
    good = good && put("0x1002\n", "bus/pci/devices/%s/vendor", pci);
    good = good && put("0x744c\n", "bus/pci/devices/%s/device", pci);
    good = good && put(config->display ? "0x030000\n" : "0x038000\n", "bus/pci/devices/%s/class", pci);
    good = good && put(config->display ? "1\n" : "0\n", "bus/pci/devices/%s/boot_vga", pci);
    good = good && put(config->display ? "connected\n" : "disconnected\n",
                       "bus/pci/devices/%s/drm/card%d/card%d-DP-1/status", pci, card, card);
    good = good && put(config->display ? "enabled\n" : "disabled\n",
                       "bus/pci/devices/%s/drm/card%d/card%d-DP-1/enabled", pci, card, card);
    if (!good) return false;
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s/drm/card%d/device", root, pci, card);
    if (symlink("../..", path) != 0 && errno != EEXIST) return false;
    snprintf(path, sizeof path, "%s/class/drm/card%d", root, card);
    make_folders(path);
    snprintf(target, sizeof target, "../../bus/pci/devices/%s/drm/card%d", pci, card);
    if (symlink(target, path) != 0 && errno != EEXIST) return false;

    int node = device->index + 1; /* node 0 is the processor */
    unsigned location = device->pci_bus << 8 | device->pci_device << 3 | device->pci_function;
    snprintf(text, sizeof text,
             "cpu_cores_count 0\nsimd_count %d\nmem_banks_count 1\nwave_front_size %d\nsimd_per_cu 2\n"
             "gfx_target_version %d\nvendor_id 4098\ndevice_id 29772\nlocation_id %u\ndomain %u\n"
             "drm_render_minor %d\nlocal_mem_size 0\n",
             config->units * 2, config->wave, sim_arch_version(config->arch), location, device->pci_domain,
             128 + card);
    good = put(text, "class/kfd/kfd/topology/nodes/%d/properties", node);
    snprintf(text, sizeof text, "%u\n", gpu_id(device));
    good = good && put(text, "class/kfd/kfd/topology/nodes/%d/gpu_id", node);
    snprintf(text, sizeof text, "%s\n", config->name);
    return good && put(text, "class/kfd/kfd/topology/nodes/%d/name", node);
}

bool sim_sysfs_open(const char *dir, char *why, size_t size) {
    snprintf(root, sizeof root, "%s", dir);
    bool good = put("cpu_cores_count 2\nsimd_count 0\ngfx_target_version 0\nlocation_id 0\ndomain 0\n",
                    "class/kfd/kfd/topology/nodes/0/properties") &&
                put("0\n", "class/kfd/kfd/topology/nodes/0/gpu_id");
    snprintf(process_folder, sizeof process_folder, "%s/class/kfd/kfd/proc/%d", root, (int)getpid());
    for (int i = 0; good && i < sim.config.device_count; i++) {
        struct sim_device *device = &sim.devices[i];
        char path[1100];
        used_written[i] = own_written[i] = UINT64_MAX;
        snprintf(path, sizeof path, "%s/bus/pci/devices/%s/mem_info_vram_used", root, device->config->pci);
        good = put_device(device) && (used_file[i] = open_figure(path)) >= 0;
        snprintf(path, sizeof path, "%s/vram_%u", process_folder, gpu_id(device));
        good = good && (own_file[i] = open_figure(path)) >= 0;
    }
    if (!good) snprintf(why, size, "sysfs=%s: cannot write there: %s", dir, strerror(errno));
    return good;
}

void sim_sysfs_update(struct sim_device *device, const struct sim_figures *figures, uint64_t own) {
    if (!root[0]) return;
    int i = device->index;
    /* With shared= another process may have written another figure in the meantime. */
    if (used_written[i] != figures->used_reported || sim.config.shared[0])
        write_figure(used_file[i], figures->used_reported);
    if (own_written[i] != own) write_figure(own_file[i], own);
    used_written[i] = figures->used_reported;
    own_written[i] = own;
}

void sim_sysfs_close(void) {
    if (!root[0] || !process_folder[0]) return;
    for (int i = 0; i < sim.config.device_count; i++) {
        char path[1100];
        snprintf(path, sizeof path, "%s/vram_%u", process_folder, gpu_id(&sim.devices[i]));
        unlink(path);
        /* The process ends, and its memory is released. */
        struct sim_figures now;
        struct sim_device *device = &sim.devices[i];
        device->allocated = 0;
        device->context = false;
        device->late_count = 0;
        sim_figures(device, &now);
    }
    rmdir(process_folder);
}
