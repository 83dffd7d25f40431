/* One lease file: its lock, its slots, and which of the owners recorded in it are still alive. Where the files are,
 * and that several of them hold the leases of one GPU, is lease_places.c's.
 *
 * Which owners are alive: a slot's owner holds a record lock on the slot's byte for as long as the lease lasts, and
 * the kernel drops it when the process dies, forked children or not. A process that lost its locks because other code
 * in it closed a descriptor of the file is still found by pid, start time and boot, where /proc can tell; a zombie
 * without the lock is dead.
 *
 * State outside objects: the registry of tables this process has open, because record locks
 * belong to the process and not to a runtime. It is made on first use, once per process: a
 * forked child makes its own and leaves its parent's alone.
 *
 * Must not: block without a deadline (never F_SETLKW), follow a symbolic link, close a second descriptor of a table.
 */
#include "gpu/lease_impl.h"
#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "rf-lease"
#define LAYOUT RF_LEASE_LAYOUT
#define HEADER_BYTES 4096
#define TABLE_BYTES (HEADER_BYTES + RF_LEASE_SLOTS * sizeof(struct rf_lease_slot))
#define TABLE_LOCK_BYTE 0
#define SLOT_LOCK_BYTE(index) (1 + (off_t)(index))
#define TURN_LOCK_BYTE SLOT_LOCK_BYTE(RF_LEASE_SLOTS)
#define YIELDS_BEFORE_SLEEP 8
#define SHORTEST_SLEEP_NS INT64_C(50000)
#define LONGEST_SLEEP_NS INT64_C(1000000)

/* The header is for people who look at the file; the code uses only the slots. */
struct header {
    char magic[8];
    uint32_t layout, slot_count, slot_bytes;
};

struct rf_lease_registry {
    struct rf_lease_registry *inherited; /* of the process that forked this one; kept reachable, never used */
    pthread_mutex_t mutex;               /* the list and the reference counts */
    struct rf_lease_table *tables;
    struct rf_lease_owner self;
    pid_t pid;
    _Atomic uint32_t *same_process; /* a page the kernel wipes in a forked child; NULL: ask getpid */
};

static _Atomic(struct rf_lease_registry *) current_registry;

static bool owner_lives(struct rf_lease_table *table, uint32_t index);
_Static_assert(sizeof(struct rf_lease_slot) == 192 && sizeof(struct rf_lease_owner) == 56, "the file's layout");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "atomics shared between processes must not take a lock");
static void identify_self(struct rf_lease_owner *self);
static rf_status name_holder(const struct rf_lease_table *table);
static bool inherited(const struct rf_lease_registry *registry);

/* ---- the lock ---- */

static int set_lock(int fd, short type, off_t byte) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int result;
    do result = fcntl(fd, F_SETLK, &lock);
    while (result < 0 && errno == EINTR);
    return result;
}

/* Gives the other process that has a byte locked; 0 if its pid is not visible from here, -1 if there is none. */
static int lock_holder(const struct rf_lease_table *table, off_t byte) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    if (fcntl(table->fd, F_GETLK, &lock) < 0 || lock.l_type == F_UNLCK) return -1;
    return RF_MAX((int)lock.l_pid, 0);
}

rf_status rf_lease_table_lock(struct rf_lease_table *table, int64_t deadline_ns) {
    if (!rf_mutex_lock_until(&table->mutex, deadline_ns))
        return rf_fail(RF_E_BUSY, "another thread of this process (%d) kept the lock of %s past the deadline",
                       (int)table->registry->pid, table->path);
    if (table->depth++) return RF_OK;
    int64_t sleep_ns = SHORTEST_SLEEP_NS;
    for (int tries = 0; set_lock(table->fd, F_WRLCK, TABLE_LOCK_BYTE) < 0; tries++) {
        rf_status status = RF_OK;
        int64_t now_ns = rf_now_ns();
        if (errno != EAGAIN && errno != EACCES)
            status = rf_fail(RF_E_IO, "locking %s failed: %s", table->path, strerror(errno));
        else if (now_ns >= deadline_ns)
            status = name_holder(table);
        if (status) {
            table->depth--;
            pthread_mutex_unlock(&table->mutex);
            return status;
        }
        if (tries < YIELDS_BEFORE_SLEEP) {
            sched_yield();
            continue;
        }
        rf_sleep_ns(RF_MIN(sleep_ns, deadline_ns - now_ns));
        sleep_ns = RF_MIN(2 * sleep_ns, LONGEST_SLEEP_NS);
    }
    return RF_OK;
}

void rf_lease_table_unlock(struct rf_lease_table *table) {
    rf_assert(table->depth > 0);
    if (--table->depth == 0) set_lock(table->fd, F_UNLCK, TABLE_LOCK_BYTE);
    pthread_mutex_unlock(&table->mutex);
}

bool rf_lease_table_take_turn(struct rf_lease_table *table, int *holder) {
    pthread_mutex_lock(&table->mutex);
    bool taken = !table->turn && set_lock(table->fd, F_WRLCK, TURN_LOCK_BYTE) == 0;
    if (taken)
        table->turn = true;
    else
        *holder = table->turn ? (int)table->registry->pid : RF_MAX(lock_holder(table, TURN_LOCK_BYTE), 0);
    pthread_mutex_unlock(&table->mutex);
    return taken;
}

void rf_lease_table_end_turn(struct rf_lease_table *table) {
    pthread_mutex_lock(&table->mutex);
    set_lock(table->fd, F_UNLCK, TURN_LOCK_BYTE);
    table->turn = false;
    pthread_mutex_unlock(&table->mutex);
}

/* Reads the fields of /proc/PID/stat that identify a process. False: there is no such process, or no /proc. */
static bool read_stat(const char *path, int *pid, char *state, uint64_t *start_ticks, uint64_t *stack) {
    char text[2048];
    struct rf_saved_error saved; /* it is no failure if the process is gone */
    rf_error_save(&saved);
    rf_status status = rf_read_text(path, text, sizeof text);
    rf_error_restore(&saved);
    char *at = status ? NULL : strrchr(text, ')'); /* the name in parentheses may hold anything */
    if (!at || at[1] != ' ' || !at[2]) return false;
    *pid = atoi(text);
    *state = at[2];
    at += 2; /* field 3 */
    *start_ticks = *stack = 0;
    for (int field = 3; field <= 28; field++) {
        if (field == 22) *start_ticks = strtoull(at, NULL, 10);
        if (field == 28) *stack = strtoull(at, NULL, 10);
        at = strchr(at, ' ');
        if (!at) break;
        at++;
    }
    return *start_ticks != 0;
}

/* Says which process has the table's lock, and what to do about a holder that is stopped. */
static rf_status name_holder(const struct rf_lease_table *table) {
    int pid = lock_holder(table, TABLE_LOCK_BYTE);
    if (pid <= 0)
        return rf_fail(RF_E_BUSY, "another process kept the lock of %s past the deadline; try again", table->path);
    char path[64], state = 0;
    int found;
    uint64_t start, stack;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (read_stat(path, &found, &state, &start, &stack) && (state == 'T' || state == 't'))
        return rf_fail(RF_E_BUSY,
                       "process %d holds the lock of %s and is stopped; continue it (kill -CONT %d) or end it", pid,
                       table->path, pid);
    return rf_fail(RF_E_BUSY, "process %d kept the lock of %s past the deadline; try again", pid, table->path);
}

/* ---- slots ---- */

struct rf_lease_slot *rf_lease_table_slot(const struct rf_lease_table *table, uint32_t index) {
    return (struct rf_lease_slot *)(void *)(table->map + HEADER_BYTES) + index;
}

bool rf_lease_slot_is_mine(const struct rf_lease_table *table, const struct rf_lease_slot *slot) {
    return memcmp(&slot->owner, &table->registry->self, sizeof slot->owner) == 0;
}

int rf_lease_slot_pid(const struct rf_lease_table *table, uint32_t index) {
    const struct rf_lease_owner *owner = &rf_lease_table_slot(table, index)->owner;
    if (owner->pid_namespace == table->registry->self.pid_namespace) return owner->pid;
    return RF_MAX(lock_holder(table, SLOT_LOCK_BYTE(index)), 0);
}

/* Reading a mapped page past the end of the file raises SIGBUS, and so does the first store to a hole on a full file
 * system. Therefore both the size and the blocks are checked. */
rf_status rf_lease_table_make_room(const struct rf_lease_table *table) {
    struct stat file;
    if (fstat(table->fd, &file) < 0)
        return rf_fail(RF_E_IO, "looking at %s failed: %s", table->path, strerror(errno));
    if ((uint64_t)file.st_blocks * 512 >= TABLE_BYTES && (uint64_t)file.st_size >= TABLE_BYTES) return RF_OK;
    int error = fallocate(table->fd, 0, 0, TABLE_BYTES) < 0 ? errno : 0;
    if (error == EOPNOTSUPP || error == ENOSYS) {
        error = 0;
        if ((uint64_t)file.st_size < TABLE_BYTES && ftruncate(table->fd, TABLE_BYTES) < 0) error = errno;
    }
    if (error)
        return rf_fail(RF_E_IO, "no room for the %zu bytes of %s: %s", TABLE_BYTES, table->path, strerror(error));
    return RF_OK;
}

rf_status rf_lease_table_repair(struct rf_lease_table *table) {
    rf_assert(table->depth > 0 && !inherited(table->registry));
    rf_status status = rf_lease_table_make_room(table);
    if (status) return status;
    struct header wanted = {
        .magic = MAGIC, .layout = LAYOUT, .slot_count = RF_LEASE_SLOTS, .slot_bytes = sizeof(struct rf_lease_slot)};
    if (memcmp(table->map, &wanted, sizeof wanted) != 0) memcpy(table->map, &wanted, sizeof wanted);
    return RF_OK;
}

bool rf_lease_table_in_place(const struct rf_lease_table *table) {
    struct stat at_path;
    if (table->own_uuid) return true;
    return lstat(table->path, &at_path) == 0 && at_path.st_dev == table->device && at_path.st_ino == table->inode;
}

rf_status rf_lease_table_refresh(struct rf_lease_table *table, bool live[RF_LEASE_SLOTS]) {
    rf_assert(table->depth > 0 && !inherited(table->registry));
    rf_status status = rf_lease_table_repair(table);
    if (status) return status;
    for (uint32_t i = 0; i < RF_LEASE_SLOTS; i++) {
        struct rf_lease_slot *slot = rf_lease_table_slot(table, i);
        uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
        live[i] = state == RF_LEASE_LIVE && owner_lives(table, i);
        if (state && !live[i]) atomic_store_explicit(&slot->state, 0, memory_order_release);
    }
    rf_assert_valid(rf_lease_table_is_valid, table);
    return RF_OK;
}

static bool owner_lives(struct rf_lease_table *table, uint32_t index) {
    const struct rf_lease_slot *slot = rf_lease_table_slot(table, index);
    const struct rf_lease_owner *owner = &slot->owner, *self = &table->registry->self;
    if (slot->kind < RF_LEASE_ROOT || slot->kind > RF_LEASE_LENT || !slot->generation || owner->pid <= 0)
        return false;
    if (rf_lease_slot_is_mine(table, slot)) return true;
    if (lock_holder(table, SLOT_LOCK_BYTE(index)) >= 0) return true;
    if (!self->pid_namespace || owner->pid_namespace != self->pid_namespace ||
        memcmp(owner->boot, self->boot, sizeof owner->boot) != 0)
        return false;
    char path[64], state;
    int pid;
    uint64_t start, stack;
    snprintf(path, sizeof path, "/proc/%d/stat", owner->pid);
    if (!read_stat(path, &pid, &state, &start, &stack) || state == 'Z' || state == 'X') return false;
    return start == owner->start_ticks && (stack == owner->stack || !stack || !owner->stack);
}

uint64_t rf_lease_draw(void) {
    uint64_t value = 0;
    if (getrandom(&value, sizeof value, GRND_NONBLOCK) != (ssize_t)sizeof value)
        value = (uint64_t)rf_now_ns() * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)getpid();
    return value ? value : 1;
}

/* Makes a slot whose lock this process holds its own. It counts from rf_lease_slot_publish on. */
static void take_over(struct rf_lease_table *table, uint32_t index, uint64_t generation) {
    struct rf_lease_slot *slot = rf_lease_table_slot(table, index);
    atomic_store(&slot->state, 0);
    atomic_store(&slot->held_bytes, 0);
    slot->kind = 0;
    slot->owner = table->registry->self;
    slot->generation = generation;
    slot->promised_bytes = slot->floor_bytes = slot->top_lent = 0;
    slot->parent = slot->root = slot->lent = (struct rf_lease_link){0};
    memset(slot->reserved, 0, sizeof slot->reserved);
    table->taken[index] = true;
}

/* A slot is not free while another process holds its lock, whatever the slot says: its owner may still store into it.
 * The same is true of a slot that this process has taken: the kernel would give it the lock once more. */
rf_status rf_lease_slot_claim(struct rf_lease_table *table, uint64_t generation, uint32_t *index) {
    rf_assert(table->depth > 0 && !inherited(table->registry));
    for (uint32_t i = 0; i < RF_LEASE_SLOTS; i++) {
        if (table->taken[i] || atomic_load(&rf_lease_table_slot(table, i)->state) == RF_LEASE_LIVE ||
            set_lock(table->fd, F_WRLCK, SLOT_LOCK_BYTE(i)) < 0)
            continue;
        take_over(table, i, generation);
        *index = i;
        return RF_OK;
    }
    return rf_fail(RF_E_BUSY, "all %d leases of %s are taken by live processes; end one", RF_LEASE_SLOTS,
                   table->path);
}

bool rf_lease_slot_reclaim(struct rf_lease_table *table, uint32_t index, uint64_t generation) {
    rf_assert(table->depth > 0 && !inherited(table->registry) && table->taken[index]);
    if (set_lock(table->fd, F_WRLCK, SLOT_LOCK_BYTE(index)) < 0) { /* the lock was lost, and another process has it */
        table->taken[index] = false;
        return false;
    }
    take_over(table, index, generation);
    return true;
}

void rf_lease_slot_publish(struct rf_lease_table *table, uint32_t index) {
    rf_assert(table->depth > 0 && !inherited(table->registry) &&
              rf_lease_slot_is_mine(table, rf_lease_table_slot(table, index)));
    atomic_store_explicit(&rf_lease_table_slot(table, index)->state, RF_LEASE_LIVE, memory_order_release);
}

void rf_lease_slot_give_up(struct rf_lease_table *table, uint32_t index, uint64_t generation) {
    rf_assert(!inherited(table->registry));
    struct rf_lease_slot *slot = rf_lease_table_slot(table, index);
    if (slot->generation == generation && rf_lease_slot_is_mine(table, slot))
        atomic_store_explicit(&slot->state, 0, memory_order_release);
    table->taken[index] = false;
    set_lock(table->fd, F_UNLCK, SLOT_LOCK_BYTE(index));
}

void rf_lease_slot_abandon(struct rf_lease_table *table, uint32_t index) {
    static const uint32_t free_slot = 0;
    off_t at = HEADER_BYTES + (off_t)(index * sizeof(struct rf_lease_slot));
    rf_assert(!inherited(table->registry) && offsetof(struct rf_lease_slot, state) == 0);
    /* A full file system refuses this only where the slot's page is missing, and then the slot is free already. */
    ssize_t ignored = pwrite(table->fd, &free_slot, sizeof free_slot, at);
    (void)ignored;
    table->taken[index] = false;
    set_lock(table->fd, F_UNLCK, SLOT_LOCK_BYTE(index));
}

/* ---- the registry ---- */

static bool inherited(const struct rf_lease_registry *registry) {
    if (registry->same_process) return atomic_load_explicit(registry->same_process, memory_order_relaxed) == 0;
    return getpid() != registry->pid;
}

struct rf_lease_registry *rf_lease_registry_get(void) {
    for (;;) {
        struct rf_lease_registry *found = atomic_load(&current_registry);
        if (found && !inherited(found)) return found;
        struct rf_lease_registry *made = calloc(1, sizeof *made);
        if (!made) return NULL;
        made->inherited = found;
        made->pid = getpid();
        pthread_mutex_init(&made->mutex, NULL);
        identify_self(&made->self);
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        void *guard = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (guard != MAP_FAILED && madvise(guard, page, MADV_WIPEONFORK) == 0) {
            made->same_process = guard;
            atomic_store(made->same_process, 1);
        } else if (guard != MAP_FAILED) {
            munmap(guard, page);
        }
        if (atomic_compare_exchange_strong(&current_registry, &found, made)) return made;
        if (made->same_process) munmap((void *)made->same_process, page);
        pthread_mutex_destroy(&made->mutex);
        free(made);
    }
}

bool rf_lease_registry_inherited(const struct rf_lease_registry *registry) {
    return inherited(registry);
}
int rf_lease_registry_pid(const struct rf_lease_registry *registry) {
    return (int)registry->pid;
}
const char *rf_lease_table_path(const struct rf_lease_table *table) {
    return table->path;
}

static struct rf_lease_table *find_table(const struct rf_lease_registry *registry, const struct stat *file) {
    struct rf_lease_table *table = registry->tables;
    while (table && (table->device != file->st_dev || table->inode != file->st_ino)) table = table->next;
    return table;
}

/* The registry must be locked. Takes the descriptor over, on failure too, except for RF_E_BUSY: a descriptor of a
 * table that is in use must stay open; at most one descriptor is ever kept open like this. */
static rf_status add_table(struct rf_lease_registry *registry, int fd, const char *path, const char *own_uuid,
                           struct rf_lease_table **out) {
    struct stat file;
    rf_status status = RF_OK;
    unsigned char *map = MAP_FAILED;
    struct rf_lease_table *table = calloc(1, sizeof *table + strlen(path) + 1);
    char *uuid = own_uuid ? strdup(own_uuid) : NULL;
    if (!table || (own_uuid && !uuid))
        status = rf_fail(RF_E_NO_MEMORY, "no memory for the lease table %s", path);
    else if (fstat(fd, &file) < 0)
        status = rf_fail(RF_E_IO, "looking at %s failed: %s", path, strerror(errno));
    else if (!S_ISREG(file.st_mode) || file.st_uid != geteuid() || (file.st_mode & 022))
        status = rf_fail(RF_E_IO, "%s is not a private file of this user; remove it", path);
    else if ((map = mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
        status = rf_fail(RF_E_IO, "mapping %s failed: %s", path, strerror(errno));
    else if (find_table(registry, &file)) /* an open table's file was moved here between the two looks */
        status = rf_fail(RF_E_BUSY, "%s is being replaced; try again", path);
    if (status) {
        if (status != RF_E_BUSY) close(fd);
        if (map != MAP_FAILED) munmap(map, TABLE_BYTES);
        free(uuid);
        free(table);
        return status;
    }
    if (!(file.st_mode & S_ISVTX))
        (void)fchmod(fd, S_ISVTX | 0600); /* keeps programs that clean runtime folders by age away */
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&table->mutex, &recursive);
    pthread_mutexattr_destroy(&recursive);
    table->registry = registry;
    table->references = 1;
    table->device = file.st_dev;
    table->inode = file.st_ino;
    table->fd = fd;
    table->map = map;
    table->own_uuid = uuid;
    memcpy(table->path, path, strlen(path) + 1);
    table->next = registry->tables;
    registry->tables = table;
    *out = table;
    return RF_OK;
}

static bool refer(struct rf_lease_table *found, struct rf_lease_table **out) {
    if (!found) return false;
    found->references++;
    *out = found;
    return true;
}

/* It looks before it opens the file: see invariant 4 in lease_impl.h. */
rf_status rf_lease_table_open(int folder, const char *name, const char *path, bool create,
                              struct rf_lease_table **out) {
    struct stat file;
    struct rf_lease_registry *registry = rf_lease_registry_get();
    if (!registry) return rf_fail(RF_E_NO_MEMORY, "no memory for the lease registry");
    rf_status status = RF_OK;
    pthread_mutex_lock(&registry->mutex);
    bool exists = fstatat(folder, name, &file, AT_SYMLINK_NOFOLLOW) == 0;
    if (exists && refer(find_table(registry, &file), out)) {
        /* it is open already */
    } else if (!exists && !create && errno == ENOENT) {
        status = rf_fail(RF_E_NOT_FOUND, "%s does not exist: nobody has leased this GPU", path);
    } else {
        int fd = rf_openat(folder, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (create ? O_CREAT : 0), 0600);
        if (fd < 0)
            status = rf_fail(rf_lease_place_status(errno),
                             "opening %s failed: %s; remove it if it is no file of yours", path, strerror(errno));
        else
            status = add_table(registry, fd, path, NULL, out);
    }
    pthread_mutex_unlock(&registry->mutex);
    return status;
}

rf_status rf_lease_table_open_link(const char *link, struct rf_lease_table **out) {
    struct stat file;
    struct rf_lease_registry *registry = rf_lease_registry_get();
    if (!registry) return rf_fail(RF_E_NO_MEMORY, "no memory for the lease registry");
    rf_status status = RF_OK;
    pthread_mutex_lock(&registry->mutex);
    if (stat(link, &file) < 0)
        status = rf_fail(RF_E_NOT_FOUND, "%s is gone: %s", link, strerror(errno));
    else if (!refer(find_table(registry, &file), out)) {
        /* Only a private file of ours is opened: opening another one could have effects. */
        bool safe = S_ISREG(file.st_mode) && file.st_uid == geteuid();
        int fd = safe ? rf_open(link, O_RDWR | O_CLOEXEC | O_NONBLOCK, 0) : -1;
        status = fd < 0 ? rf_fail(RF_E_NOT_FOUND, "%s is no lease file that can be opened", link)
                        : add_table(registry, fd, link, NULL, out);
    }
    pthread_mutex_unlock(&registry->mutex);
    return status;
}

/* The name of a GPU's memfd, which readlink shows with this in front. */
#define OWN_PREFIX "/memfd:rocmforge-leases-"

static rf_status make_own(struct rf_lease_registry *registry, const char *uuid, struct rf_lease_table **out) {
    char name[160], path[64];
    snprintf(name, sizeof name, "%s%.100s", &OWN_PREFIX[strlen("/memfd:")], uuid);
    int fd = rf_memfd(name, MFD_CLOEXEC);
    if (fd < 0 || fchmod(fd, 0600) < 0) {
        rf_status status = rf_fail(RF_E_IO, "no memory file for this process's leases: %s", strerror(errno));
        if (fd >= 0) close(fd);
        return status;
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)registry->pid, fd);
    return add_table(registry, fd, path, uuid, out);
}

rf_status rf_lease_table_acquire_own(const char *uuid, bool create, struct rf_lease_table **out) {
    struct rf_lease_registry *registry = rf_lease_registry_get();
    if (!registry) return rf_fail(RF_E_NO_MEMORY, "no memory for the lease registry");
    pthread_mutex_lock(&registry->mutex);
    struct rf_lease_table *found = registry->tables;
    while (found && (!found->own_uuid || strcmp(found->own_uuid, uuid) != 0)) found = found->next;
    rf_status status = RF_OK;
    if (!refer(found, out))
        status = create ? make_own(registry, uuid, out)
                        : rf_fail(RF_E_NOT_FOUND, "this process has no lease on its GPU %s", uuid);
    pthread_mutex_unlock(&registry->mutex);
    return status;
}

rf_status rf_lease_table_acquire_lent(int pid, int fd, const char *uuid, struct rf_lease_table **out) {
    char path[64], target[256], wanted[160];
    struct stat file;
    struct rf_lease_registry *registry = rf_lease_registry_get();
    if (!registry) return rf_fail(RF_E_NO_MEMORY, "no memory for the lease registry");
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    int length = snprintf(wanted, sizeof wanted, "%s%.100s ", OWN_PREFIX, uuid); /* " (deleted)" follows */
    /* The pid may be another process's by now: only a file with the right name is opened. */
    if (readlink(path, target, sizeof target) < length || memcmp(target, wanted, (size_t)length) != 0)
        return rf_fail(RF_E_NOT_FOUND, "%s is not the lease table of a GPU %s", path, uuid);
    pthread_mutex_lock(&registry->mutex);
    rf_status status = RF_OK;
    if (stat(path, &file) < 0 || !refer(find_table(registry, &file), out)) {
        int mine = rf_open(path, O_RDWR | O_CLOEXEC, 0);
        status = mine < 0 ? rf_fail(RF_E_NOT_FOUND, "opening %s failed: %s", path, strerror(errno))
                          : add_table(registry, mine, path, uuid, out);
    }
    pthread_mutex_unlock(&registry->mutex);
    return status;
}

int rf_lease_table_own_fd(const struct rf_lease_table *table) {
    return table->own_uuid ? table->fd : -1;
}

void rf_lease_table_release(struct rf_lease_table *table) {
    struct rf_lease_registry *registry = table->registry;
    if (inherited(registry)) return; /* it is the parent's; the child's copy ends with the child */
    pthread_mutex_lock(&registry->mutex);
    bool last = --table->references == 0;
    if (last) {
        struct rf_lease_table **at = &registry->tables;
        while (*at != table) at = &(*at)->next;
        *at = table->next;
        /* The file is closed under the registry's lock: no thread may open it anew and then lose its locks by this
         * close. */
        munmap(table->map, TABLE_BYTES);
        close(table->fd);
    }
    pthread_mutex_unlock(&registry->mutex);
    if (last) {
        pthread_mutex_destroy(&table->mutex);
        free(table->own_uuid);
        free(table);
    }
}

#if RF_CHECKS >= 2
bool rf_lease_table_is_valid(struct rf_lease_table *table, const char **why) {
    struct rf_lease_registry *registry = table->registry;
    struct stat file;
    RF_INVALID_UNLESS(!inherited(registry), "the table is of the process that forked this one");
    RF_INVALID_UNLESS(table->depth > 0, "the table is not locked");
    RF_INVALID_UNLESS(fstat(table->fd, &file) == 0 && file.st_dev == table->device && file.st_ino == table->inode,
                      "the descriptor is of another file");
    RF_INVALID_UNLESS((uint64_t)file.st_size >= TABLE_BYTES, "the file is shorter than its map");
    int found = 0;
    bool twice = false;
    pthread_mutex_lock(&registry->mutex);
    for (const struct rf_lease_table *other = registry->tables; other; other = other->next) {
        found += other == table;
        twice |= other != table && other->device == table->device && other->inode == table->inode;
    }
    bool referenced = table->references > 0;
    pthread_mutex_unlock(&registry->mutex);
    RF_INVALID_UNLESS(found == 1 && referenced, "the table is not in the registry, or nobody refers to it");
    RF_INVALID_UNLESS(!twice, "one file is open twice");
    struct header header;
    memcpy(&header, table->map, sizeof header);
    RF_INVALID_UNLESS(!memcmp(header.magic, MAGIC, sizeof header.magic) && header.layout == LAYOUT &&
                          header.slot_count == RF_LEASE_SLOTS && header.slot_bytes == sizeof(struct rf_lease_slot),
                      "the header is not this layout's");
    for (uint32_t i = 0; i < RF_LEASE_SLOTS; i++) {
        const struct rf_lease_slot *slot = rf_lease_table_slot(table, i);
        uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
        RF_INVALID_UNLESS(!state || state == RF_LEASE_LIVE, "a slot is neither live nor free");
        if (!state) continue;
        RF_INVALID_UNLESS(slot->kind >= RF_LEASE_ROOT && slot->kind <= RF_LEASE_LENT, "a live slot has no kind");
        RF_INVALID_UNLESS(slot->generation, "a live slot has no generation");
        RF_INVALID_UNLESS(slot->owner.pid > 0, "a live slot has no owner");
    }
    return true;
}
#endif

/* ---- who and where ---- */

static void identify_self(struct rf_lease_owner *self) {
    struct stat space;
    char state, boot[64] = "";
    int seen_pid = 0;
    struct rf_saved_error saved;
    memset(self, 0, sizeof *self); /* padding too: owners are compared as bytes */
    self->pid = (int32_t)getpid();
    self->nonce = rf_lease_draw();
    /* A /proc of another pid namespace shows other pids: then only locks can tell who is alive. */
    if (read_stat("/proc/self/stat", &seen_pid, &state, &self->start_ticks, &self->stack) && seen_pid == self->pid &&
        stat("/proc/self/ns/pid", &space) == 0)
        self->pid_namespace = (uint64_t)space.st_ino;
    rf_error_save(&saved);
    if (rf_read_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot)) boot[0] = 0;
    rf_error_restore(&saved);
    unsigned nibbles = 0;
    for (const char *at = boot; *at && nibbles < 2 * sizeof self->boot; at++) {
        int digit = *at >= '0' && *at <= '9' ? *at - '0' : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10 : -1;
        if (digit < 0) continue;
        self->boot[nibbles / 2] = (unsigned char)(self->boot[nibbles / 2] << 4 | digit);
        nibbles++;
    }
}
