/* Several processes on the same simulated devices: a mapped file with a slot per process.
 *
 * A slot belongs to the process that holds an F_SETLK lock on its byte of the file, which the kernel drops however
 * that process ends, and which a forked child does not inherit: a dead process's slot is recognised by its missing
 * lock, and its memory comes back (after late=, if set). Byte 0 is the lock under which anyone reads sums or writes.
 * Threads of one process are kept apart by the driver's lock. */
#include "sim/sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOTS 1024
#define MAGIC UINT64_C(0x3150485344534652) /* changes with the layout */

struct slot {
    uint64_t taken;
    int64_t dead_since_ns; /* 0: not known to be dead */
    uint64_t used[SIM_MAX_DEVICES], reported[SIM_MAX_DEVICES];
};
struct table {
    uint64_t magic;
    uint64_t highest; /* slots that were ever taken */
    struct slot slots[SLOTS];
};

static struct table *table;
static int file = -1, mine = -1;

static int range(int command, short type, off_t byte) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    do result = fcntl(file, command, &lock);
    while (result != 0 && errno == EINTR);
    if (command == F_GETLK) return lock.l_type == F_UNLCK ? 0 : 1;
    return result;
}

bool sim_shared_open(const char *path, char *why, size_t size) {
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    struct stat status;
    if (file < 0 || range(F_SETLKW, F_WRLCK, 0) != 0 || fstat(file, &status) != 0) {
        snprintf(why, size, "shared=%s: %s", path, strerror(errno));
        return false;
    }
    bool fresh = status.st_size == 0;
    if ((!fresh && (size_t)status.st_size != sizeof(struct table)) ||
        (fresh && ftruncate(file, (off_t)sizeof(struct table)) != 0)) {
        snprintf(why, size, "shared=%s: not a file of this simulated driver", path);
        return false;
    }
    void *mapped = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        snprintf(why, size, "shared=%s: %s", path, strerror(errno));
        return false;
    }
    table = mapped;
    if (fresh) table->magic = MAGIC;
    if (table->magic != MAGIC) {
        snprintf(why, size, "shared=%s: made by another version", path);
        return false;
    }
    /* A free slot or, if there is none, one whose owner is dead. */
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < SLOTS && mine < 0; i++)
            if ((pass || !table->slots[i].taken) && range(F_SETLK, F_WRLCK, 1 + i) == 0) mine = i;
    if (mine >= 0) {
        table->slots[mine] = (struct slot){.taken = 1};
        if ((uint64_t)mine >= table->highest) table->highest = (uint64_t)mine + 1;
    }
    range(F_SETLK, F_UNLCK, 0);
    if (mine < 0) snprintf(why, size, "shared=%s: all %d slots are taken", path, SLOTS);
    return mine >= 0;
}

void sim_shared_lock(void) {
    if (table) range(F_SETLKW, F_WRLCK, 0);
}

void sim_shared_unlock(void) {
    if (table) range(F_SETLK, F_UNLCK, 0);
}

void sim_shared_publish(int device, uint64_t used, uint64_t reported) {
    if (!table) return;
    table->slots[mine].used[device] = used;
    table->slots[mine].reported[device] = reported;
}

void sim_shared_others(int device, int64_t late_ns, uint64_t *used, uint64_t *reported) {
    if (!table) return;
    for (int i = 0; i < (int)table->highest; i++) {
        struct slot *slot = &table->slots[i];
        if (i == mine || !slot->taken) continue;
        if (range(F_GETLK, F_WRLCK, 1 + i) == 0) {
            if (!slot->dead_since_ns) slot->dead_since_ns = sim_now_ns();
            if (sim_now_ns() >= slot->dead_since_ns + late_ns)
                *slot = (struct slot){0};
            else
                *reported += slot->used[device];
            continue;
        }
        *used += slot->used[device];
        *reported += slot->reported[device];
    }
}
