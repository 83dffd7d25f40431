/* What tests needed in earlier runs: time and GPU memory, and whether they failed. It is one file per user:
 * $XDG_CACHE_HOME/rocmforge/tests.history, else ~/.cache/rocmforge/tests.history.
 *
 * One line per test, the newest last: program, test, microseconds, bytes, failed (0 or 1), separated by tabs. The
 * program is known by its base name, so that several build folders share the file. Invariants: at most ENTRIES_MAX
 * lines (asserted); the file is written as a whole and renamed into place; a line that makes no sense is dropped
 * (both are about files, which tests/testing/test_runner.c reads). The history only guides (order, guesses,
 * --rerun-failed): a verdict must not depend on it. */
#include "runner_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES_MAX ((size_t)50000)
#define BYTES_MAX ((off_t)32 << 20)

struct entry {
    char *key; /* "program<tab>test"; owned */
    int64_t elapsed_us;
    uint64_t bytes;
    bool failed, dropped;
};

struct book {
    struct entry *entries;
    size_t count, capacity;
    size_t *slots; /* entry number + 1; 0: empty */
    size_t slot_count;
};

static uint64_t hash(const char *text) {
    uint64_t value = UINT64_C(1469598103934665603);
    for (; *text; text++) value = (value ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return value;
}

static size_t *find_slot(struct book *book, const char *key) {
    size_t at = hash(key) % book->slot_count;
    while (book->slots[at] && strcmp(book->entries[book->slots[at] - 1].key, key) != 0)
        at = (at + 1) % book->slot_count;
    return &book->slots[at];
}

static struct entry *find(struct book *book, const char *key) {
    size_t *slot = find_slot(book, key);
    return *slot ? &book->entries[*slot - 1] : NULL;
}

/* A later entry replaces an earlier one and moves to the end. */
static struct entry *put(struct book *book, const char *key) {
    size_t *slot = find_slot(book, key);
    if (*slot) book->entries[*slot - 1].dropped = true;
    if (book->count == book->capacity) {
        book->capacity = book->capacity ? 2 * book->capacity : 256;
        book->entries = rf_test_grow(book->entries, book->capacity * sizeof *book->entries);
    }
    book->entries[book->count] = (struct entry){.key = rf_test_copy(key)};
    *slot = ++book->count;
    return &book->entries[book->count - 1];
}

static void make_key(const struct rf_test_job *job, char *key, size_t size) {
    snprintf(key, size, "%.200s\t%.255s", rf_test_job_program(job), job->name);
}

static bool file_path(char *path, size_t size, bool make_folder) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[3800];
    if (cache && cache[0] == '/')
        snprintf(folder, sizeof folder, "%s", cache);
    else if (home && home[0] == '/')
        snprintf(folder, sizeof folder, "%s/.cache", home);
    else
        return false;
    if (make_folder) mkdir(folder, 0700);
    size_t used = strlen(folder);
    snprintf(folder + used, sizeof folder - used, "/rocmforge");
    if (make_folder) mkdir(folder, 0700);
    return (size_t)snprintf(path, size, "%s/tests.history", folder) < size;
}

static void take_line(struct book *book, char *line) {
    char *fields[5];
    int count = 0;
    for (char *at = line; at && count < 5; count++) {
        fields[count] = at;
        at = strchr(at, '\t');
        if (at) *at++ = 0;
    }
    if (count != 5 || !fields[0][0] || !fields[1][0]) return;
    char *end_us, *end_bytes, key[512];
    long long elapsed_us = strtoll(fields[2], &end_us, 10);
    unsigned long long bytes = strtoull(fields[3], &end_bytes, 10);
    if (*end_us || *end_bytes || end_us == fields[2] || end_bytes == fields[3] || elapsed_us < 0 ||
        elapsed_us > INT64_C(86400000000) || bytes > UINT64_C(1) << 48)
        return;
    if (strcmp(fields[4], "0") != 0 && strcmp(fields[4], "1") != 0) return;
    snprintf(key, sizeof key, "%.200s\t%.255s", fields[0], fields[1]);
    struct entry *entry = put(book, key);
    entry->elapsed_us = elapsed_us;
    entry->bytes = bytes;
    entry->failed = fields[4][0] == '1';
}

static void book_read(struct book *book, size_t room) {
    char path[4096];
    struct stat info;
    char *text = NULL;
    ssize_t length = 0, count = 0;
    int fd = file_path(path, sizeof path, false) ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size < BYTES_MAX) {
        text = rf_test_grow(NULL, (size_t)info.st_size + 1);
        while (length < info.st_size && (count = read(fd, text + length, (size_t)(info.st_size - length))) > 0)
            length += count;
        text[length] = 0;
    }
    if (fd >= 0) close(fd);
    size_t lines = room;
    for (ssize_t i = 0; i < length; i++) lines += text[i] == '\n';
    *book = (struct book){.slot_count = 2 * lines + 64};
    book->slots = rf_test_grow(NULL, book->slot_count * sizeof *book->slots);
    memset(book->slots, 0, book->slot_count * sizeof *book->slots);
    char *end;
    for (char *line = text; line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        take_line(book, line);
    }
    free(text);
}

static void book_finish(struct book *book) {
    for (size_t i = 0; i < book->count; i++) free(book->entries[i].key);
    free(book->entries);
    free(book->slots);
}

void rf_test_history_apply(struct rf_test_plan *plan, bool rerun_failed) {
    struct book book;
    book_read(&book, 0);
    size_t kept = 0;
    for (size_t i = 0; i < plan->count; i++) {
        struct rf_test_job *job = &plan->jobs[i];
        char key[512];
        make_key(job, key, sizeof key);
        const struct entry *entry = find(&book, key);
        if (entry) {
            job->usual_ns = entry->elapsed_us * 1000;
            job->usual_bytes = entry->bytes;
        }
        if (rerun_failed && !(entry && entry->failed)) {
            free(job->name);
            free(job->group);
            free(job->file);
            continue;
        }
        struct rf_test_job moved = *job;
        plan->jobs[kept++] = moved;
    }
    plan->count = kept;
    book_finish(&book);
}

void rf_test_history_save(const struct rf_test_plan *plan) {
    char path[4096], temporary[4200];
    if (!file_path(path, sizeof path, true)) return;
    struct book book;
    book_read(&book, plan->count);
    for (size_t i = 0; i < plan->count; i++) {
        const struct rf_test_job *job = &plan->jobs[i];
        if (job->passes + job->failures == 0) continue;
        char key[512];
        make_key(job, key, sizeof key);
        const struct entry *old = find(&book, key);
        /* If this run measured no memory figure, the old one stays. */
        uint64_t bytes = job->peak_bytes ? job->peak_bytes : old ? old->bytes : 0;
        struct entry *entry = put(&book, key);
        entry->elapsed_us = job->elapsed_ns / 1000;
        entry->bytes = bytes;
        entry->failed = job->failures != 0;
    }
    snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    size_t live = 0, written = 0;
    for (size_t i = 0; i < book.count; i++) live += !book.entries[i].dropped;
    for (size_t i = 0; file && i < book.count; i++) {
        const struct entry *entry = &book.entries[i];
        if (entry->dropped || live-- > ENTRIES_MAX) continue;
        written++;
        fprintf(file, "%s\t%lld\t%llu\t%d\n", entry->key, (long long)entry->elapsed_us,
                (unsigned long long)entry->bytes, entry->failed);
    }
    rf_assert(written <= ENTRIES_MAX);
    bool good = file && !ferror(file);
    if (file) good = fclose(file) == 0 && good;
    if (!good || rename(temporary, path) != 0) unlink(temporary);
    book_finish(&book);
}
