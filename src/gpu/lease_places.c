/* Where the leases of a user on a GPU are, so that all of them meet.
 *
 * A user's processes start with different environments: before a login there is no /run/user/UID, a service has no
 * XDG_RUNTIME_DIR or a /tmp of its own, a logout removes /run/user/UID and, by default, what the user has in
 * /dev/shm. Another user can make a folder of any name in /dev/shm and /tmp, and can fill them. No single folder is
 * therefore the same for all processes at all times. So there are several places:
 *
 *   $XDG_RUNTIME_DIR/rocmforge, /run/user/UID/rocmforge      where the folder above is this user's
 *   /dev/shm/rocmforge-UID, /tmp/rocmforge-UID               where the folder above is safe to share
 *   the same two with ".RANDOM" behind                       where the plain name is not a private folder of ours
 *
 * A lease is written into the lease file of every place that can be used, and a decision counts the leases in all of
 * them, each once. The rules that make all leases meet:
 *
 *   1. Who decides holds the locks of all files that can be used, taken in the order of device and inode.
 *   2. When they are locked, all places are looked at once more. If there is a new one, everything is unlocked, and
 *      it begins anew with the new one among them. So a file that appeared between the look and the lock is not
 *      missed, and two processes that start at once in different places end with the same locks.
 *   3. The lease is written into all of these files before they are unlocked. So whoever decides later and has one
 *      file in common sees it. Each later lock (at every allocation from the driver) looks at the places again, and
 *      writes the lease, with its promise and what it holds, into files that are new or were replaced.
 *   4. A file that vanished or was replaced (another device or inode at its path) goes on being locked and read until
 *      no other process has a lease in it.
 *   5. A process that opens a lease also asks /proc which lease files of this GPU the user's other processes have
 *      open, and joins those: vanished ones, and those in places that only the other process can see. It looks when
 *      its own files are open, so that of two processes that start at once at least one sees the other: if the first
 *      to look misses the second, the second has opened its files since, and looks later. If its files have a live
 *      lease, it asks for that process alone: any two leases have a file in common, and whoever has a lease has all
 *      those files open. Otherwise it asks for all processes, which takes some milliseconds. (/proc/locks would name
 *      fewer, but while it is read the kernel stops all file locks of the machine: for a second, on a loaded one.)
 *
 * A folder that is named (RF_LEASE_DIR) is used instead of all of these. That splits the budget on purpose: tests
 * with a GPU that is not real keep apart that way, and containers with a folder in common meet.
 *
 * Two leases can miss each other only if they have no file in common and /proc does not connect them either: all
 * places of the first were removed by this user or root, or are in a container of their own, and the two are in
 * different pid namespaces, or differ in their group ids, or one of them is not dumpable. They meet at the first's
 * next allocation, if they have a place in common then.
 *
 * Another user who is not root cannot read or write a lease, since a folder is used only if it is ours and closed to
 * others (checked through the descriptor that is used). They cannot remove or rename our folders, as the folder
 * above is either ours or root's and has the sticky bit if others can write to it. They cannot keep us out by taking
 * the name: a squatted name gets a random ending, which is found by reading the folder above, and only folders of
 * our own count there. They cannot split us by taking the name away again: the folder with the random ending stays in
 * use as long as it exists. What they can do is to fill a file system. A place without room for the file is passed
 * over; where no place is left, opening fails. A file that is there already keeps its blocks.
 *
 * Versions before this file wrote a lease into the first place of the list only. They read and write the same
 * layout, so they see us in whichever place they use, and we see them. (One in a folder of XDG_RUNTIME_DIR that this
 * process does not have in its environment is found by rule 5.)
 *
 * Must not: wait for a lock without a deadline; follow a symbolic link; trust a folder that another user could write
 * to. */
#include "gpu/lease_impl.h"
#include "base/descriptors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_PATH_BYTES 3072
#define RANDOM_FOLDERS_MAX 4 /* of one folder above; the first ones by name are used */
#define RANDOM_NAMES_TRIED 16

/* One search through all places. */
struct search {
    struct rf_lease_places *places;
    bool thorough;  /* reads the folders above too */
    bool processes; /* and asks /proc; the tables that the places have are locked */
    bool added;     /* a table was found that the places did not have */
    rf_status status;
    struct rf_saved_error why; /* of status: what was wrong with the first place that failed */
};

static void search_all(struct search *search);
static void search_processes(struct search *search);
static bool has_tables(const struct rf_lease_places *places);
static void file_name(const char *uuid, char *name, size_t size);
static rf_status find_lent(const char *part_id, const char *uuid, struct rf_lease_table **table);

/* The id of a part of a memfd ends with the lender's descriptor of it: PID-SLOT-GENERATION-fdNUMBER. A generation may
 * begin with the same two letters. */
static bool names_descriptor(const char *part_id) {
    int dashes = 0;
    for (const char *at = part_id; *at; at++)
        if (*at == '-' && ++dashes == 3) return !strncmp(at, "-fd", 3);
    return false;
}

/* ---- the tables together ---- */

rf_status rf_lease_places_open(const struct rf_lease_params *params, bool create, const char *part_id,
                               struct rf_lease_places **out) {
    struct rf_lease_places *places = calloc(1, sizeof *places);
    if (!places) return rf_fail(RF_E_NO_MEMORY, "no memory for the lease tables");
    places->registry = rf_lease_registry_get();
    places->create = create;
    places->dir = params->dir ? strdup(params->dir) : NULL;
    places->root = strdup(params->root ? params->root : "");
    file_name(params->uuid, places->name, sizeof places->name);
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&places->mutex, &recursive);
    pthread_mutexattr_destroy(&recursive);
    rf_status status = RF_OK;
    if (!places->registry || !places->root || (params->dir && !places->dir))
        status = rf_fail(RF_E_NO_MEMORY, "no memory for the lease tables");
    else if (part_id && names_descriptor(part_id))
        status = find_lent(part_id, params->uuid, &places->table[0]);
    else if (!part_id && params->own)
        status = rf_lease_table_acquire_own(params->uuid, create, &places->table[0]);
    places->fixed = places->table[0] != NULL;
    if (!status && !places->fixed) {
        struct search search = {.places = places, .thorough = true};
        search_all(&search);
        if (!create && !has_tables(places)) search_processes(&search); /* else when they are locked */
        bool usable = false;
        for (int i = 0; i < RF_LEASE_PLACES_MAX; i++) usable |= places->table[i] && (!create || !places->away[i]);
        /* A place that cannot be used matters only if there is no other. That this process ran out of descriptors or
         * memory matters always: the place that it could not open may be the one where the others are. */
        if (search.status && (!usable || search.status != RF_E_IO) &&
            (create || places->dir || search.status != RF_E_IO)) {
            rf_error_restore(&search.why);
            status = search.status;
        } else if (!usable) {
            status = rf_fail(RF_E_NOT_FOUND, "nobody has leased this GPU");
        }
    }
    if (status) {
        rf_lease_places_close(&places);
        return status;
    }
    *out = places;
    return RF_OK;
}

void rf_lease_places_close(struct rf_lease_places **pointer) {
    struct rf_lease_places *places = *pointer;
    *pointer = NULL;
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++)
        if (places->table[i]) rf_lease_table_release(places->table[i]);
    pthread_mutex_destroy(&places->mutex);
    free(places->dir);
    free(places->root);
    free(places);
}

static bool comes_before(const struct rf_lease_table *one, const struct rf_lease_table *other) {
    return one->device != other->device ? one->device < other->device : one->inode < other->inode;
}

static void unlock_tables(struct rf_lease_places *places) {
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++) {
        if (places->locked[i]) rf_lease_table_unlock(places->table[i]);
        places->locked[i] = false;
    }
}

/* The first table that is not done, in the order that all processes lock in; -1: all are done. */
static int next_in_order(const struct rf_lease_places *places, const bool done[RF_LEASE_PLACES_MAX]) {
    int next = -1;
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++)
        if (places->table[i] && !done[i] && (next < 0 || comes_before(places->table[i], places->table[next])))
            next = i;
    return next;
}

static rf_status lock_tables(struct rf_lease_places *places, int64_t deadline_ns) {
    for (int next; (next = next_in_order(places, places->locked)) >= 0;) {
        rf_status status = rf_lease_table_lock(places->table[next], deadline_ns);
        if (status) {
            unlock_tables(places);
            return status;
        }
        places->locked[next] = true;
    }
    return RF_OK;
}

rf_status rf_lease_places_lock(struct rf_lease_places *places, int64_t deadline_ns) {
    if (!rf_mutex_lock_until(&places->mutex, deadline_ns))
        return rf_fail(RF_E_BUSY, "another thread of this process (%d) kept the lease's lock past the deadline",
                       rf_lease_registry_pid(places->registry));
    if (places->depth++) return RF_OK;
    for (;;) {
        rf_status status = lock_tables(places, deadline_ns);
        if (!status) {
            struct search search = {.places = places, .thorough = !places->searched, .processes = !places->searched};
            struct rf_saved_error saved;
            if (places->fixed) return RF_OK;
            rf_error_save(&saved);
            search_all(&search);
            rf_error_restore(&saved);
            if (!search.added) {
                places->searched = true;
                return RF_OK;
            }
            unlock_tables(places);
            if (rf_now_ns() < deadline_ns) continue;
            status = rf_fail(RF_E_BUSY, "lease files appear faster than they can be locked; try again");
        }
        places->depth--;
        pthread_mutex_unlock(&places->mutex);
        return status;
    }
}

void rf_lease_places_unlock(struct rf_lease_places *places) {
    rf_assert(places->depth > 0);
    if (--places->depth == 0) unlock_tables(places);
    pthread_mutex_unlock(&places->mutex);
}

void rf_lease_places_drop(struct rf_lease_places *places, int number) {
    rf_assert(places->depth > 0 && places->table[number]);
    if (places->locked[number]) rf_lease_table_unlock(places->table[number]);
    rf_lease_table_release(places->table[number]);
    places->table[number] = NULL;
    places->away[number] = places->locked[number] = false;
}

bool rf_lease_places_take_turn(struct rf_lease_places *places, int *holder) {
    bool taken[RF_LEASE_PLACES_MAX] = {false};
    for (int next; (next = next_in_order(places, taken)) >= 0;) {
        taken[next] = rf_lease_table_take_turn(places->table[next], holder);
        if (taken[next]) continue;
        for (int i = 0; i < RF_LEASE_PLACES_MAX; i++)
            if (taken[i]) rf_lease_table_end_turn(places->table[i]);
        return false;
    }
    return true;
}

void rf_lease_places_end_turn(struct rf_lease_places *places) {
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++)
        if (places->table[i]) rf_lease_table_end_turn(places->table[i]);
}

/* ---- one place ---- */

rf_status rf_lease_place_status(int error) {
    if (error == EMFILE || error == ENFILE) return RF_E_BUSY;
    return error == ENOMEM ? RF_E_NO_MEMORY : RF_E_IO;
}

/* Tries one folder: it is made if asked for, then verified through the descriptor that is used. foreign: there is
 * something of this name that is not a private folder of ours. */
static rf_status open_folder(const char *path, bool create, int *fd, bool *foreign) {
    struct stat folder;
    *foreign = false;
    if (create && mkdir(path, 0700) < 0 && errno != EEXIST)
        return rf_fail(rf_lease_place_status(errno), "making the lease folder %s failed: %s", path, strerror(errno));
    int opened = rf_open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (opened < 0) {
        *foreign = errno == ELOOP || errno == ENOTDIR || errno == EACCES;
        return rf_fail(
            errno == ENOENT ? RF_E_NOT_FOUND : rf_lease_place_status(errno), "opening the lease folder %s failed: %s",
            path, errno == ELOOP || errno == ENOTDIR ? "it is not a folder, or a symbolic link" : strerror(errno));
    }
    rf_status status = RF_OK;
    if (fstat(opened, &folder) < 0)
        status = rf_fail(RF_E_IO, "looking at the lease folder %s failed: %s", path, strerror(errno));
    else if (folder.st_uid != geteuid())
        status = rf_fail(RF_E_IO, "the lease folder %s belongs to user %u, not to %u; remove it", path,
                         (unsigned)folder.st_uid, (unsigned)geteuid());
    else if (folder.st_mode & 077)
        status = rf_fail(RF_E_IO, "the lease folder %s is open to other users; chmod 700 %s", path, path);
    if (status) {
        *foreign = true;
        close(opened);
        return status;
    }
    *fd = opened;
    return RF_OK;
}

/* Opens the table in a folder. A table without room for its slots is no use: touching its map would be a SIGBUS. */
static rf_status open_place(const char *folder_path, const char *name, bool create, struct rf_lease_table **out,
                            bool *foreign) {
    char path[FOLDER_PATH_BYTES + 160];
    int folder = -1;
    rf_status status = open_folder(folder_path, create, &folder, foreign);
    if (status) return status;
    snprintf(path, sizeof path, "%s/%s", folder_path, name);
    struct rf_lease_table *table;
    status = rf_lease_table_open(folder, name, path, create, &table);
    close(folder);
    if (status) return status;
    status = rf_lease_table_make_room(table);
    if (status)
        rf_lease_table_release(table);
    else
        *out = table;
    return status;
}

rf_status rf_lease_table_acquire(const char *dir, const char *uuid, bool create, struct rf_lease_table **out) {
    char name[160];
    bool foreign;
    file_name(uuid, name, sizeof name);
    return open_place(dir, name, create, out, &foreign);
}

/* ---- the search ---- */

static void note_failure(struct search *search, rf_status status) {
    if (status == RF_E_NOT_FOUND && !search->places->create) return;
    /* That this process ran out of something is more important than what is wrong with a place. */
    if (search->status && (search->status != RF_E_IO || status == RF_E_IO)) return;
    search->status = status;
    rf_error_save(&search->why);
}

/* Takes a table over, with its reference. */
static void add_table(struct search *search, struct rf_lease_table *table, bool away) {
    struct rf_lease_places *places = search->places;
    int free_number = -1;
    for (int i = RF_LEASE_PLACES_MAX - 1; i >= 0; i--) {
        if (!places->table[i]) free_number = i;
        if (places->table[i] != table) continue;
        if (!away) places->away[i] = false;
        free_number = -1;
        break;
    }
    if (free_number < 0) { /* it is here already, or there is no room */
        rf_lease_table_release(table);
        return;
    }
    places->table[free_number] = table;
    places->away[free_number] = away;
    search->added = true;
}

/* False: there is something of this name that is not ours. */
static bool search_folder(struct search *search, const char *folder) {
    struct rf_lease_places *places = search->places;
    char path[FOLDER_PATH_BYTES + 160];
    snprintf(path, sizeof path, "%s/%s", folder, places->name);
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++)
        if (places->table[i] && !places->away[i] && !strcmp(rf_lease_table_path(places->table[i]), path)) return true;
    struct rf_lease_table *table;
    bool foreign;
    rf_status status = open_place(folder, places->name, places->create, &table, &foreign);
    if (status)
        note_failure(search, status);
    else
        add_table(search, table, false);
    return !foreign;
}

/* Whether nobody else can move what is ours in this folder. */
static bool safe_to_share(const char *path) {
    struct stat folder;
    return stat(path, &folder) == 0 && S_ISDIR(folder.st_mode) &&
           (folder.st_uid == 0 || folder.st_uid == geteuid()) &&
           (!(folder.st_mode & 022) || (folder.st_mode & S_ISVTX));
}

static int by_text(const void *one, const void *other) {
    return strcmp(one, other);
}

/* The folders NAME.RANDOM of ours in a folder that all users share. If there is none, one is made where the plain
 * name is not ours. */
static void search_random(struct search *search, const char *above, const char *name, bool needed) {
    char found[RANDOM_FOLDERS_MAX + 1][64], path[FOLDER_PATH_BYTES];
    size_t count = 0, length = strlen(name);
    DIR *folder = rf_opendir(above);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        struct stat file;
        if (strncmp(entry->d_name, name, length) != 0 || entry->d_name[length] != '.' ||
            strlen(entry->d_name) >= sizeof found[0] ||
            fstatat(dirfd(folder), entry->d_name, &file, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(file.st_mode) ||
            file.st_uid != geteuid() || (file.st_mode & 077))
            continue;
        snprintf(found[count++], sizeof found[0], "%.63s", entry->d_name);
        qsort(found, count, sizeof found[0], by_text);
        count = RF_MIN(count, (size_t)RANDOM_FOLDERS_MAX);
    }
    if (folder) closedir(folder);
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s", above, found[i]);
        search_folder(search, path);
    }
    if (count || !needed || !search->places->create) return;
    for (int tries = 0; tries < RANDOM_NAMES_TRIED; tries++) {
        snprintf(path, sizeof path, "%s/%s.%016llx", above, name, (unsigned long long)rf_lease_draw());
        if (mkdir(path, 0700) == 0) {
            search_folder(search, path);
            return;
        }
        if (errno != EEXIST) break;
    }
    note_failure(search, rf_fail(rf_lease_place_status(errno), "making the lease folder %s failed: %s", path,
                                 strerror(errno)));
}

static void search_shared(struct search *search, const char *above) {
    char path[FOLDER_PATH_BYTES - 128], folder[FOLDER_PATH_BYTES], name[32];
    if (snprintf(path, sizeof path, "%s%s", search->places->root, above) >= (int)sizeof path || !safe_to_share(path))
        return;
    snprintf(name, sizeof name, "rocmforge-%u", (unsigned)geteuid());
    snprintf(folder, sizeof folder, "%s/%s", path, name);
    bool plain = search_folder(search, folder);
    if (!plain || search->thorough) search_random(search, path, name, !plain);
}

static bool owned_folder(const char *path) {
    struct stat folder;
    return stat(path, &folder) == 0 && S_ISDIR(folder.st_mode) && folder.st_uid == geteuid();
}

/* A runtime folder that belongs to another user (as after sudo) is passed over. */
static void search_runtime(struct search *search, const char *runtime) {
    char path[FOLDER_PATH_BYTES];
    if (runtime[0] == '/' && owned_folder(runtime) &&
        snprintf(path, sizeof path, "%s/rocmforge", runtime) < (int)sizeof path)
        search_folder(search, path);
}

/* Whether a lease file at this path, as a link in /proc shows it, is one of ours: in one of the usual folders, or in
 * the one folder that these places are. */
static bool is_lease_path(const struct rf_lease_places *places, char *target) {
    static const char deleted[] = " (deleted)";
    size_t length = strlen(target), extra = sizeof deleted - 1;
    if (length > extra && !strcmp(target + length - extra, deleted)) target[length - extra] = 0;
    char *name = strrchr(target, '/');
    if (!name || strcmp(name + 1, places->name) != 0) return false;
    *name = 0;
    if (places->dir) return !strcmp(target, places->dir);
    const char *folder = strrchr(target, '/');
    char shared[32];
    int used = snprintf(shared, sizeof shared, "/rocmforge-%u", (unsigned)geteuid());
    return folder && (!strcmp(folder, "/rocmforge") ||
                      (!strncmp(folder, shared, (size_t)used) && (!folder[used] || folder[used] == '.')));
}

static bool has_file(const struct rf_lease_places *places, const struct stat *file) {
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++) {
        const struct rf_lease_table *table = places->table[i];
        if (table && table->inode == file->st_ino && table->device == file->st_dev) return true;
    }
    return false;
}

/* The lease files that one process has open. Returns whether one of the places' files is among them. */
static bool search_process(struct search *search, int pid) {
    char path[64], target[PATH_MAX];
    struct stat process;
    snprintf(path, sizeof path, "/proc/%d", pid);
    if (stat(path, &process) < 0 || process.st_uid != geteuid())
        return false; /* root could look at those of others too */
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *files = rf_opendir(path);
    bool common = false;
    for (struct dirent *file; files && (file = readdir(files));) {
        ssize_t length = readlinkat(dirfd(files), file->d_name, target, sizeof target - 1);
        if (length <= 0) continue;
        target[length] = 0;
        struct stat found;
        if (!is_lease_path(search->places, target) || fstatat(dirfd(files), file->d_name, &found, 0) < 0) continue;
        if (has_file(search->places, &found)) {
            common = true;
            continue;
        }
        struct rf_lease_table *table;
        snprintf(path, sizeof path, "/proc/%d/fd/%.20s", pid, file->d_name);
        if (rf_lease_table_open_link(path, &table)) continue;
        if (rf_lease_table_make_room(table))
            rf_lease_table_release(table);
        else
            add_table(search, table, true);
    }
    if (files) closedir(files);
    return common;
}

static bool has_tables(const struct rf_lease_places *places) {
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++)
        if (places->table[i]) return true;
    return false;
}

/* Asks for one process that has a lease in these tables, which are locked. False: no such process could be asked. */
static bool search_owner(struct search *search) {
    struct rf_lease_places *places = search->places;
    bool live[RF_LEASE_SLOTS];
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++) {
        struct rf_lease_table *table = places->locked[i] ? places->table[i] : NULL;
        if (!table || rf_lease_table_refresh(table, live)) continue;
        for (uint32_t slot = 0; slot < RF_LEASE_SLOTS; slot++) {
            if (!live[slot] || rf_lease_slot_is_mine(table, rf_lease_table_slot(table, slot))) continue;
            int pid = rf_lease_slot_pid(table, slot);
            if (pid > 0 && search_process(search, pid)) return true;
        }
    }
    return false;
}

/* Rule 5. What /proc does not show is no failure. */
static void search_processes(struct search *search) {
    if (search_owner(search)) return;
    DIR *processes = rf_opendir("/proc");
    int own = rf_lease_registry_pid(search->places->registry);
    for (struct dirent *process; processes && (process = readdir(processes));) {
        int pid = atoi(process->d_name);
        if (pid > 0 && pid != own) search_process(search, pid);
    }
    if (processes) closedir(processes);
}

static void search_all(struct search *search) {
    struct rf_lease_places *places = search->places;
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++)
        if (places->table[i]) places->away[i] = !rf_lease_table_in_place(places->table[i]);
    if (places->dir && (!places->dir[0] || strlen(places->dir) >= FOLDER_PATH_BYTES)) {
        note_failure(search,
                     rf_fail(RF_E_INVALID, "the lease folder's name is %s", places->dir[0] ? "too long" : "empty"));
        return;
    }
    if (places->dir) {
        search_folder(search, places->dir);
    } else {
        const char *runtime = getenv("XDG_RUNTIME_DIR");
        char usual[FOLDER_PATH_BYTES];
        if (runtime) search_runtime(search, runtime);
        if (snprintf(usual, sizeof usual, "%s/run/user/%u", places->root, (unsigned)geteuid()) < (int)sizeof usual)
            search_runtime(search, usual);
        search_shared(search, "/dev/shm");
        search_shared(search, "/tmp");
    }
    if (search->processes) search_processes(search);
}

/* ---- names ---- */

static rf_status find_lent(const char *part_id, const char *uuid, struct rf_lease_table **table) {
    int pid, fd, end = 0;
    unsigned slot;
    unsigned long long generation;
    if (sscanf(part_id, "%d-%u-%16llx-fd%d%n", &pid, &slot, &generation, &fd, &end) != 4 || part_id[end])
        return rf_fail(RF_E_NOT_FOUND, "part=%s names no lease table", part_id);
    return rf_lease_table_acquire_lent(pid, fd, uuid, table);
}

/* Writes "gpu-UUID.v1". Characters that a file name should not hold are replaced, and a hash then keeps two names
 * apart that differ only in these. Another layout gets another file, because neither version could read the other's.
 */
static void file_name(const char *uuid, char *name, size_t size) {
    char clean[80];
    size_t used = 0;
    bool exact = true;
    uint32_t hash = 2166136261u;
    for (const char *at = uuid; *at; at++) {
        char c = *at;
        bool fits = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
        hash = (hash ^ (unsigned char)c) * 16777619u;
        exact = exact && fits && used + 1 < sizeof clean;
        if (used + 1 < sizeof clean) clean[used++] = fits ? c : '_';
    }
    clean[used] = 0;
    if (exact)
        snprintf(name, size, "gpu-%s.v%d", clean, RF_LEASE_LAYOUT);
    else
        snprintf(name, size, "gpu-%s-%08x.v%d", clean, hash, RF_LEASE_LAYOUT);
}
