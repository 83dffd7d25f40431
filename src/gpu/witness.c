/* A second source for a GPU's memory figures: the kernel's files (AMD) or NVML (NVIDIA). It is needed because a
 * driver's own figure can ignore the memory of graphics clients and needs a context.
 *
 * Invariants
 *   1. Creating a witness fails only for lack of memory; a question without a source gets RF_E_UNSUPPORTED or
 *      RF_UNKNOWN.
 *   2. Asking for memory costs a few microseconds: the files stay open and are read in place.
 *   3. Numbers are checked: a file that holds something else is no source.
 * None of these is asserted: 1 follows from every return statement, 2 is about time, and 3 is about data from
 * outside, which is refused and never asserted (tests/budget/test_witness.c). This file must not create a GPU
 * context, write anything, or follow a malformed PCI address. */
#include "gpu/witness_impl.h"
#include "base/descriptors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 768
#define INIT_PID_NAMESPACE UINT64_C(0xeffffffc) /* fixed by the kernel */
#define CLIENTS_MAX 64

enum figure { VRAM_TOTAL, VRAM_USED, GTT_TOTAL, GTT_USED, FIGURES };
static const char *const figure_files[FIGURES] = {"mem_info_vram_total", "mem_info_vram_used", "mem_info_gtt_total",
                                                  "mem_info_gtt_used"};

struct rf_witness {
    enum rf_driver_kind kind;
    char sysfs[PATH_BYTES / 2];
    char pci[32];            /* "0000:03:00.0" or empty */
    char device[PATH_BYTES]; /* the GPU's folder in sysfs; empty: not found */
    char kfd_gpu[24];        /* "vram_" and KFD's number for this GPU; empty: not found */
    pthread_mutex_t mutex;   /* guards fds, which are reopened when a file was replaced */
    int fds[FIGURES];        /* -1: not there */
    atomic_bool integrated;  /* as in the last question: if true, GTT is its memory too */
    struct rf_nvml *nvml;    /* or NULL */
};

static bool open_figure(struct rf_witness *witness, enum figure figure);
static rf_status read_figure(struct rf_witness *witness, enum figure figure, uint64_t *value);
static void find_device(struct rf_witness *witness);
static void find_kfd(struct rf_witness *witness);
static rf_status kfd_process(struct rf_witness *witness, uint64_t *bytes);
static bool normal_pci(const char *text, char *pci, size_t size);

/* Restores the error text after a failure that the caller will not see. */
static bool quietly(rf_status status, const struct rf_saved_error *saved) {
    if (status) rf_error_restore(saved);
    return status == RF_OK;
}

rf_status rf_witness_create_with(enum rf_driver_kind kind, const char *sysfs, const char *nvml_library,
                                 const char *pci, const char *uuid, struct rf_witness **out) {
    if (!out) return rf_fail(RF_E_INVALID, "rf_witness_create: out is NULL");
    if (!sysfs || !sysfs[0]) sysfs = "/sys";
    struct rf_witness *witness = calloc(1, sizeof *witness);
    if (!witness || strlen(sysfs) >= sizeof witness->sysfs) {
        rf_status status = witness ? RF_E_INVALID : RF_E_NO_MEMORY;
        free(witness);
        return rf_fail(status, "rf_witness_create: %s", status == RF_E_INVALID ? "sysfs is too long" : "no memory");
    }
    struct rf_saved_error saved;
    rf_error_save(&saved);
    witness->kind = kind;
    memcpy(witness->sysfs, sysfs, strlen(sysfs) + 1);
    pthread_mutex_init(&witness->mutex, NULL);
    if (!normal_pci(pci ? pci : "", witness->pci, sizeof witness->pci)) witness->pci[0] = 0;
    find_device(witness);
    for (enum figure i = 0; i < FIGURES; i++) {
        witness->fds[i] = -1;
        if (kind == RF_DRIVER_HIP) open_figure(witness, i);
    }
    if (kind == RF_DRIVER_HIP)
        find_kfd(witness);
    else if (!quietly(rf_nvml_open(nvml_library, uuid ? uuid : "", witness->pci, &witness->nvml), &saved))
        witness->nvml = NULL;
    rf_error_restore(&saved);
    *out = witness;
    return RF_OK;
}

rf_status rf_witness_create(enum rf_driver_kind kind, const char *sysfs, const char *pci, const char *uuid,
                            struct rf_witness **out) {
    return rf_witness_create_with(kind, sysfs, NULL, pci, uuid, out);
}

void rf_witness_destroy(struct rf_witness **witness) {
    if (!witness || !*witness) return;
    for (enum figure i = 0; i < FIGURES; i++)
        if ((*witness)->fds[i] >= 0) close((*witness)->fds[i]);
    rf_nvml_close(&(*witness)->nvml);
    pthread_mutex_destroy(&(*witness)->mutex);
    free(*witness);
    *witness = NULL;
}

const char *rf_witness_name(const struct rf_witness *witness) {
    if (!witness) return "none";
    return witness->nvml ? "nvml" : witness->fds[VRAM_TOTAL] >= 0 ? "sysfs" : "none";
}

rf_status rf_witness_memory(struct rf_witness *witness, bool integrated, uint64_t *free_bytes,
                            uint64_t *total_bytes) {
    if (!witness || !free_bytes || !total_bytes)
        return rf_fail(RF_E_INVALID, "rf_witness_memory: an argument is NULL");
    if (witness->nvml) return rf_nvml_memory(witness->nvml, free_bytes, total_bytes);
    atomic_store(&witness->integrated, integrated);
    uint64_t figures[FIGURES] = {0};
    rf_status status = RF_OK;
    pthread_mutex_lock(&witness->mutex);
    for (enum figure i = 0; i < (integrated ? FIGURES : GTT_TOTAL) && !status; i++)
        status = read_figure(witness, i, &figures[i]);
    pthread_mutex_unlock(&witness->mutex);
    if (status) return status;
    /* The used figure may be read a moment after the total changed: the result is never more than the total. */
    uint64_t total, spare;
    if (rf_add_overflows(figures[VRAM_TOTAL], figures[GTT_TOTAL], &total))
        return rf_fail(RF_E_UNSUPPORTED, "%s: the memory figures make no sense", witness->device);
    spare = rf_sub_saturate(figures[VRAM_TOTAL], figures[VRAM_USED]) +
            rf_sub_saturate(figures[GTT_TOTAL], figures[GTT_USED]);
    *free_bytes = spare;
    *total_bytes = total;
    return RF_OK;
}

/* KFD and DRM may both count the same buffers: the larger figure is the safer one. */
rf_status rf_witness_process(struct rf_witness *witness, uint64_t *bytes) {
    if (!witness || !bytes) return rf_fail(RF_E_INVALID, "rf_witness_process: an argument is NULL");
    if (witness->nvml) return rf_nvml_process(witness->nvml, bytes);
    struct rf_saved_error saved;
    uint64_t by_clients = 0, by_kfd = 0;
    bool gtt = atomic_load(&witness->integrated);
    rf_error_save(&saved);
    bool clients = witness->kind == RF_DRIVER_HIP && witness->pci[0] &&
                   quietly(rf_witness_fdinfo("/proc/self/fdinfo", witness->pci, gtt, &by_clients), &saved);
    bool kfd = quietly(kfd_process(witness, &by_kfd), &saved);
    if (!clients && !kfd)
        return rf_fail(RF_E_UNSUPPORTED, "neither DRM, KFD nor NVML says what this process holds on the GPU");
    *bytes = RF_MAX(by_clients, by_kfd);
    return RF_OK;
}

/* ---- display ---- */

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static bool connector_is_lit(const char *card, const char *connector) {
    char path[PATH_BYTES + 600], text[32];
    snprintf(path, sizeof path, "%s/%s/status", card, connector);
    if (rf_read_text(path, text, sizeof text) || strcmp(text, "connected") != 0) return false;
    snprintf(path, sizeof path, "%s/%s/enabled", card, connector);
    return !rf_read_text(path, text, sizeof text) && strcmp(text, "enabled") == 0;
}

/* DEVICE/drm/cardN/cardN-CONNECTOR; a card without connectors drives nothing. */
static enum rf_tristate drm_display(const struct rf_witness *witness) {
    char folder[PATH_BYTES + 8], card[PATH_BYTES + 280];
    enum rf_tristate answer = RF_UNKNOWN;
    if (!witness->device[0]) return RF_UNKNOWN;
    snprintf(folder, sizeof folder, "%s/drm", witness->device);
    DIR *cards = rf_opendir(folder);
    if (!cards) return RF_UNKNOWN;
    for (struct dirent *entry; answer != RF_YES && (entry = readdir(cards));) {
        if (!starts_with(entry->d_name, "card")) continue;
        snprintf(card, sizeof card, "%s/%s", folder, entry->d_name);
        DIR *connectors = rf_opendir(card);
        if (!connectors) continue;
        answer = RF_NO;
        for (struct dirent *inside; answer != RF_YES && (inside = readdir(connectors));)
            if (starts_with(inside->d_name, "card") && strchr(inside->d_name, '-') &&
                connector_is_lit(card, inside->d_name))
                answer = RF_YES;
        closedir(connectors);
    }
    closedir(cards);
    return answer;
}

enum rf_tristate rf_witness_display(struct rf_witness *witness) {
    if (!witness) return RF_UNKNOWN;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    enum rf_tristate answer = witness->nvml ? rf_nvml_display(witness->nvml) : RF_UNKNOWN;
    if (answer != RF_YES) { /* a lit connector settles it */
        enum rf_tristate by_drm = drm_display(witness);
        if (answer == RF_UNKNOWN || by_drm == RF_YES) answer = by_drm;
    }
    rf_error_restore(&saved);
    return answer;
}

/* ---- memory figures ---- */

static bool open_figure(struct rf_witness *witness, enum figure figure) {
    char path[PATH_BYTES + 32];
    if (!witness->device[0]) return false;
    snprintf(path, sizeof path, "%s/%s", witness->device, figure_files[figure]);
    int fd = rf_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return false;
    if (witness->fds[figure] >= 0) close(witness->fds[figure]);
    witness->fds[figure] = fd;
    return true;
}

/* A tree made for a test replaces its files; sysfs never does. */
static rf_status read_figure(struct rf_witness *witness, enum figure figure, uint64_t *value) {
    char text[32];
    struct stat file;
    int fd = witness->fds[figure];
    if (fd >= 0 && fstat(fd, &file) == 0 && file.st_nlink == 0 && open_figure(witness, figure))
        fd = witness->fds[figure];
    if (fd < 0)
        return rf_fail(RF_E_UNSUPPORTED, "the kernel has no %s for the GPU at %s", figure_files[figure],
                       witness->pci[0] ? witness->pci : "an unknown PCI address");
    ssize_t length;
    do length = pread(fd, text, sizeof text - 1, 0);
    while (length < 0 && errno == EINTR);
    if (length < 0)
        return rf_fail(RF_E_IO, "reading %s/%s failed: %s", witness->device, figure_files[figure], strerror(errno));
    uint64_t number = 0;
    ssize_t at = 0;
    bool bad = false;
    for (; at < length && text[at] >= '0' && text[at] <= '9'; at++)
        bad |= rf_mul_overflows(number, 10, &number) || rf_add_overflows(number, (uint64_t)(text[at] - '0'), &number);
    ssize_t end = at;
    while (end < length && (text[end] == ' ' || text[end] == '\n')) end++;
    if (bad || !at || end < length)
        return rf_fail(RF_E_UNSUPPORTED, "%s/%s holds no number", witness->device, figure_files[figure]);
    *value = number;
    return RF_OK;
}

/* ---- finding the GPU ---- */

/* "DOMAIN:BUS:DEVICE.FUNCTION" in hexadecimal of either case, as sysfs spells it. */
static bool normal_pci(const char *text, char *pci, size_t size) {
    static const char after[4] = {':', ':', '.', 0};
    unsigned long parts[4];
    const char *at = text;
    for (int i = 0; i < 4; i++) {
        char *end;
        if (!((*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'f') || (*at >= 'A' && *at <= 'F'))) return false;
        parts[i] = strtoul(at, &end, 16);
        if (end - at > 8 || *end != after[i]) return false;
        at = end + 1;
    }
    if (parts[1] > 0xff || parts[2] > 0x1f || parts[3] > 7) return false;
    return snprintf(pci, size, "%04lx:%02lx:%02lx.%lx", parts[0], parts[1], parts[2], parts[3]) < (int)size;
}

/* Finds the GPU by its address; without an address, it takes the only AMD GPU if there is just one. */
static void find_device(struct rf_witness *witness) {
    char path[PATH_BYTES + 320];
    struct stat file;
    if (witness->pci[0]) {
        snprintf(path, sizeof path, "%s/bus/pci/devices/%s", witness->sysfs, witness->pci);
        if (stat(path, &file) == 0) memcpy(witness->device, path, strlen(path) + 1);
        return;
    }
    if (witness->kind != RF_DRIVER_HIP) return;
    snprintf(path, sizeof path, "%s/class/drm", witness->sysfs);
    DIR *cards = rf_opendir(path);
    int found = 0;
    for (struct dirent *entry; cards && (entry = readdir(cards));) {
        if (!starts_with(entry->d_name, "card") || strchr(entry->d_name, '-')) continue;
        snprintf(path, sizeof path, "%s/class/drm/%s/device/%s", witness->sysfs, entry->d_name,
                 figure_files[VRAM_TOTAL]);
        if (stat(path, &file) < 0) continue;
        path[strlen(path) - strlen(figure_files[VRAM_TOTAL]) - 1] = 0;
        if (++found == 1 && strlen(path) < sizeof witness->device) memcpy(witness->device, path, strlen(path) + 1);
    }
    if (cards) closedir(cards);
    if (found != 1) witness->device[0] = 0;
}

static bool property(const char *text, const char *name, uint64_t *value) {
    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        size_t length = strlen(name);
        if (strncmp(line, name, length) == 0 && line[length] == ' ') {
            *value = strtoull(line + length + 1, NULL, 10);
            return true;
        }
    }
    return false;
}

/* KFD numbers GPUs by a hash; its topology says which address each has. */
static void find_kfd(struct rf_witness *witness) {
    char path[PATH_BYTES + 320], text[4096], at[32];
    if (!witness->pci[0]) return;
    snprintf(path, sizeof path, "%s/class/kfd/kfd/topology/nodes", witness->sysfs);
    DIR *nodes = rf_opendir(path);
    for (struct dirent *entry; nodes && (entry = readdir(nodes));) {
        uint64_t gpu, location, domain = 0;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/class/kfd/kfd/topology/nodes/%s/gpu_id", witness->sysfs, entry->d_name);
        if (rf_read_u64(path, &gpu) || !gpu) continue;
        snprintf(path, sizeof path, "%s/class/kfd/kfd/topology/nodes/%s/properties", witness->sysfs, entry->d_name);
        if (rf_read_text(path, text, sizeof text) || !property(text, "location_id", &location)) continue;
        property(text, "domain", &domain);
        snprintf(at, sizeof at, "%04x:%02x:%02x.%x", (unsigned)domain, (unsigned)(location >> 8 & 0xff),
                 (unsigned)(location >> 3 & 0x1f), (unsigned)(location & 7));
        if (strcmp(at, witness->pci) == 0)
            snprintf(witness->kfd_gpu, sizeof witness->kfd_gpu, "vram_%u", (unsigned)gpu);
    }
    if (nodes) closedir(nodes);
}

/* ---- this process ---- */

/* KFD names processes by their pid in the first namespace, so inside another namespace the same number is another
 * process. A tree made for a test does not have this problem. */
static rf_status kfd_process(struct rf_witness *witness, uint64_t *bytes) {
    char path[PATH_BYTES];
    struct stat space;
    if (witness->kind != RF_DRIVER_HIP || !witness->kfd_gpu[0])
        return rf_fail(RF_E_UNSUPPORTED, "KFD does not know this GPU");
    if (strcmp(witness->sysfs, "/sys") == 0 &&
        (stat("/proc/self/ns/pid", &space) < 0 || (uint64_t)space.st_ino != INIT_PID_NAMESPACE))
        return rf_fail(RF_E_UNSUPPORTED, "this process's pid is not the one KFD knows");
    snprintf(path, sizeof path, "%s/class/kfd/kfd/proc/%d/%s", witness->sysfs, (int)getpid(), witness->kfd_gpu);
    return rf_read_u64(path, bytes);
}

/* One client's figures; several descriptors of one client show the same. */
struct client {
    uint64_t id, vram, vram_total, gtt, gtt_total;
    bool is_drm, has_id, has_vram, has_vram_total, has_gtt, has_gtt_total;
};

/* "drm-memory-vram:\t1234 KiB" */
static bool bytes_of(const char *value, uint64_t *bytes) {
    char *end;
    uint64_t unit = 1;
    if (*value < '0' || *value > '9') return false;
    *bytes = strtoull(value, &end, 10);
    while (*end == ' ') end++;
    if (starts_with(end, "KiB"))
        unit = UINT64_C(1) << 10;
    else if (starts_with(end, "MiB"))
        unit = UINT64_C(1) << 20;
    else if (starts_with(end, "GiB"))
        unit = UINT64_C(1) << 30;
    return !rf_mul_overflows(*bytes, unit, bytes);
}

/* False: the client belongs to another GPU. */
static bool parse_client(char *text, const char *pci, struct client *client) {
    memset(client, 0, sizeof *client);
    for (char *line = text, *next; line; line = next) {
        char device[32];
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        char *value = strchr(line, ':');
        if (!starts_with(line, "drm-") || !value) continue;
        *value++ = 0;
        while (*value == ' ' || *value == '\t') value++;
        if (strcmp(line, "drm-driver") == 0)
            client->is_drm = true;
        else if (strcmp(line, "drm-pdev") == 0 && pci[0] &&
                 (!normal_pci(value, device, sizeof device) || strcmp(device, pci) != 0))
            return false;
        else if (strcmp(line, "drm-client-id") == 0)
            client->has_id = bytes_of(value, &client->id);
        else if (strcmp(line, "drm-memory-vram") == 0)
            client->has_vram = bytes_of(value, &client->vram);
        else if (strcmp(line, "drm-total-vram") == 0)
            client->has_vram_total = bytes_of(value, &client->vram_total);
        else if (strcmp(line, "drm-memory-gtt") == 0)
            client->has_gtt = bytes_of(value, &client->gtt);
        else if (strcmp(line, "drm-total-gtt") == 0)
            client->has_gtt_total = bytes_of(value, &client->gtt_total);
    }
    return client->is_drm;
}

rf_status rf_witness_fdinfo(const char *folder, const char *pci, bool gtt, uint64_t *bytes) {
    uint64_t seen[CLIENTS_MAX], sum = 0;
    size_t clients = 0;
    bool told = false;
    DIR *files = rf_opendir(folder);
    if (!files) return rf_fail(RF_E_UNSUPPORTED, "%s cannot be read: %s", folder, strerror(errno));
    for (struct dirent *entry; (entry = readdir(files));) {
        char path[PATH_BYTES], text[4096];
        struct client client;
        if (entry->d_name[0] == '.' ||
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
            continue;
        if (rf_read_text(path, text, sizeof text) || !parse_client(text, pci, &client)) continue;
        bool known = false;
        for (size_t i = 0; client.has_id && i < clients; i++) known |= seen[i] == client.id;
        if (known) continue;
        if (client.has_id && clients < CLIENTS_MAX) seen[clients++] = client.id;
        told |= client.has_vram || client.has_vram_total;
        sum += client.has_vram ? client.vram : client.vram_total;
        if (gtt) sum += client.has_gtt ? client.gtt : client.gtt_total;
    }
    closedir(files);
    if (!told) return rf_fail(RF_E_UNSUPPORTED, "%s shows no DRM client with memory figures for this GPU", folder);
    *bytes = sum;
    return RF_OK;
}
