/* The storm's observer: a process that reads the lease files as bytes and takes their locks itself, with none of the
 * library's code, and looks at the GPU's memory beside them. It knows the layout and what the lock bytes mean, from
 * lease_impl.h and lease_table.c's header, and nothing of how the library decides.
 *
 * With the files locked no process can be promised or take more, so at every look must hold, over the leases whose
 * owner holds the lock of its slot:
 *   - the families' promises, or what a family holds if that is more, are within the budget
 *   - what the leases hold is within the budget
 *   - what their processes use of the GPU is within the budget */
#include "helpers.h"
#include "gpu/lease_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 2, HEADER = 4096 };

static bool set_lock(int fd, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    int result;
    do result = fcntl(fd, F_SETLKW, &lock);
    while (result < 0 && errno == EINTR);
    return result == 0;
}

/* The process that owns a slot: the one that holds its lock; 0: nobody. */
static pid_t owner(int fd, size_t slot) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 + (off_t)slot, .l_len = 1};
    if (fcntl(fd, F_GETLK, &lock) < 0 || lock.l_type == F_UNLCK) return 0;
    return lock.l_pid;
}

static void wrong(struct fake_gpu *gpu, int line, uint64_t bytes) {
    atomic_store(&gpu->observer_bytes, bytes);
    atomic_store(&gpu->observer_fault, line);
}

static void look(struct fake_gpu *gpu, int fd, uint64_t limit) {
    static struct rf_lease_slot slots[RF_LEASE_SLOTS];
    static pid_t owners[RF_LEASE_SLOTS];
    static uint64_t promised[RF_LEASE_SLOTS], held[RF_LEASE_SLOTS];
    uint64_t all_promised = 0, all_held = 0, all_used = 0;
    memset(slots, 0, sizeof slots);
    memset(held, 0, sizeof held);
    memset(promised, 0, sizeof promised);
    if (pread(fd, slots, sizeof slots, HEADER) < 0) return wrong(gpu, __LINE__, 0);
    for (size_t i = 0; i < RF_LEASE_SLOTS; i++)
        owners[i] = slots[i].state == RF_LEASE_LIVE && slots[i].kind != RF_LEASE_LENT ? owner(fd, i) : 0;
    for (size_t i = 0; i < RF_LEASE_SLOTS; i++) {
        if (!owners[i]) continue;
        size_t top = i;
        for (int depth = 0; depth < 4 && slots[top].kind == RF_LEASE_PART; depth++) {
            size_t up = top;
            for (size_t j = 0; j < RF_LEASE_SLOTS && up == top; j++)
                if (owners[j] && slots[j].generation == slots[top].parent.generation) up = j;
            for (size_t j = 0; j < RF_LEASE_SLOTS && up == top; j++)
                if (owners[j] && slots[j].generation == slots[top].root.generation) up = j;
            if (up == top) break;
            top = up;
        }
        held[top] += slots[i].held_bytes;
        all_held += slots[i].held_bytes;
        if (top == i) promised[i] = slots[i].promised_bytes;
        for (uint32_t user = 0; user < RF_MIN(atomic_load(&gpu->users), GPU_USERS); user++)
            if (atomic_load(&gpu->pid[user]) == owners[i]) all_used += atomic_load(&gpu->used[user]);
    }
    for (size_t i = 0; i < RF_LEASE_SLOTS; i++) all_promised += RF_MAX(promised[i], held[i]);
    if (all_promised > limit) wrong(gpu, __LINE__, all_promised);
    if (all_held > limit) wrong(gpu, __LINE__, all_held);
    if (all_used > limit) wrong(gpu, __LINE__, all_used);
    atomic_store(&gpu->most_promised, RF_MAX(atomic_load(&gpu->most_promised), all_promised));
    atomic_store(&gpu->most_used, RF_MAX(atomic_load(&gpu->most_used), all_used));
}

/* files: all lease files that there are; the last one is never damaged, and is the one that is read. */
int observer_main(struct fake_gpu *gpu, uint64_t limit, char **files) {
    int fds[FILES], order[FILES] = {0, 1};
    struct stat stats[FILES];
    for (int i = 0; i < FILES; i++) {
        fds[i] = open(files[i], O_RDWR | O_CLOEXEC);
        if (fds[i] < 0 || fstat(fds[i], &stats[i]) < 0) return 2;
    }
    if (stats[0].st_dev != stats[1].st_dev ? stats[1].st_dev < stats[0].st_dev : stats[1].st_ino < stats[0].st_ino)
        order[0] = 1, order[1] = 0;
    while (!atomic_load(&gpu->observer_stop) && !atomic_load(&gpu->observer_fault)) {
        if (!set_lock(fds[order[0]], F_WRLCK) || !set_lock(fds[order[1]], F_WRLCK)) return 2;
        look(gpu, fds[FILES - 1], limit);
        set_lock(fds[order[1]], F_UNLCK);
        set_lock(fds[order[0]], F_UNLCK);
        atomic_fetch_add(&gpu->observer_looks, 1);
        rf_sleep_ns(RF_MS(1));
    }
    return 0;
}
