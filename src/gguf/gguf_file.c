/* GGUF files: opening, mapping, finding the parts of a split model, reading by offset.
 *
 * Invariants: a part owns its path, its descriptor and, if mapped, its map. Whatever fails, everything
 * that was opened is given back (rf_gguf_close asserts what a part owns; the leak checks of the tests see what is
 * left over). Files are opened for reading only and without waiting (a FIFO
 * of that name does not hang us).
 *
 * A split model is NAME-00001-of-00003.gguf and so on. Each part is a complete GGUF file with the keys
 * split.no (from 0), split.count and split.tensors.count; the model's own keys are in the first part. */
#include "gguf/gguf_impl.h"
#include "base/descriptors.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPLIT_SUFFIX_BYTES 20 /* "-00001-of-00003.gguf" */

static rf_status map_part(struct rf_gguf *gguf, size_t index, const char *path);
static rf_status check_split(const struct rf_gguf *gguf, size_t named_parts);
static bool parse_split_name(const char *path, uint32_t *number, uint32_t *count);
static char *part_path(const char *path, uint32_t number, uint32_t count);

static rf_status create(size_t part_count, const struct rf_account *from, struct rf_gguf **out) {
    struct rf_account account = rf_account_open(from);
    rf_status status = rf_account_charge(&account, sizeof **out + part_count * sizeof *(*out)->parts);
    if (status) return rf_fail_within(status, "a model file");
    struct rf_gguf *gguf = calloc(1, sizeof *gguf);
    if (gguf) gguf->parts = calloc(part_count, sizeof *gguf->parts);
    if (!gguf || !gguf->parts) {
        free(gguf);
        rf_account_close(&account);
        return rf_fail(RF_E_NO_MEMORY, "no host memory to open a model file");
    }
    gguf->account = account;
    *out = gguf;
    return RF_OK;
}

rf_status rf_gguf_open(const char *path, struct rf_gguf **out) {
    return rf_gguf_open_charged(path, NULL, out);
}

rf_status rf_gguf_open_charged(const char *path, const struct rf_account *account, struct rf_gguf **out) {
    if (!path || !out) return rf_fail(RF_E_INVALID, "rf_gguf_open: path or out is NULL");
    uint32_t number = 0, named_parts = 0;
    bool named = parse_split_name(path, &number, &named_parts);
    struct rf_gguf *gguf = NULL;
    rf_status status = create(named ? named_parts : 1, account, &gguf);
    if (status) return status;
    if (!named) {
        status = map_part(gguf, 0, path);
        if (!status) status = gguf_parse(gguf, 0);
    }
    for (uint32_t i = 0; named && i < named_parts && !status; i++) {
        char *beside = part_path(path, i + 1, named_parts);
        if (!beside) {
            status = rf_fail(RF_E_NO_MEMORY, "no host memory to open %s", path);
            break;
        }
        status = map_part(gguf, i, beside);
        if (status == RF_E_NOT_FOUND && i + 1 != number)
            rf_fail_within(status, "part %u of %u of this model must lie beside the others", i + 1, named_parts);
        if (!status) status = gguf_parse(gguf, i);
        free(beside);
    }
    if (!status) status = check_split(gguf, named ? named_parts : 1);
    if (!status) status = gguf_index_tensors(gguf);
    if (status)
        rf_gguf_close(&gguf);
    else
        *out = gguf;
    return status;
}

rf_status rf_gguf_open_memory(const void *bytes, size_t size, const char *name, struct rf_gguf **out) {
    if (!bytes || !out) return rf_fail(RF_E_INVALID, "rf_gguf_open_memory: bytes or out is NULL");
    struct rf_gguf *gguf = NULL;
    rf_status status = create(1, NULL, &gguf);
    if (status) return status;
    gguf->part_count = 1;
    gguf->parts[0] =
        (struct gguf_part){.path = strdup(name ? name : "memory"), .descriptor = -1, .bytes = bytes, .size = size};
    if (!gguf->parts[0].path) status = rf_fail(RF_E_NO_MEMORY, "no host memory to open a model");
    if (!status) status = gguf_parse(gguf, 0);
    if (!status) status = check_split(gguf, 1);
    if (!status) status = gguf_index_tensors(gguf);
    if (status)
        rf_gguf_close(&gguf);
    else
        *out = gguf;
    return status;
}

void rf_gguf_close(struct rf_gguf **pointer) {
    if (!pointer || !*pointer) return;
    struct rf_gguf *gguf = *pointer;
    for (size_t i = 0; i < gguf->part_count; i++) {
        struct gguf_part *part = &gguf->parts[i];
        rf_assert(!part->mapped || (part->path && part->bytes && part->size && part->descriptor >= 0));
        if (part->mapped) {
            gguf_map_remove(part->bytes);
            munmap((void *)part->bytes, (size_t)part->size);
        }
        if (part->descriptor >= 0) close(part->descriptor);
        free(part->values.items);
        free(part->values.sorted);
        free(part->path);
    }
    while (gguf->names) {
        struct gguf_names *next = gguf->names->next;
        free(gguf->names);
        gguf->names = next;
    }
    free(gguf->tensors_sorted);
    free(gguf->tensors);
    free(gguf->parts);
    rf_account_close(&gguf->account);
    free(gguf);
    *pointer = NULL;
}

const char *rf_gguf_path(const struct rf_gguf *gguf) {
    return gguf->parts[0].path;
}

/* ---- one file ---- */

static rf_status io_failed(const char *path, const char *doing) {
    int error = errno;
    return rf_fail(error == ENOENT || error == ENOTDIR ? RF_E_NOT_FOUND : RF_E_IO, "%s: %s: %s", path, doing,
                   strerror(error));
}

/* Opens and maps a file. After a failure rf_gguf_close gives back what was opened. */
static rf_status map_part(struct rf_gguf *gguf, size_t index, const char *path) {
    struct gguf_part *part = &gguf->parts[index];
    struct stat info;
    *part = (struct gguf_part){.path = strdup(path), .descriptor = -1};
    gguf->part_count = index + 1;
    if (!part->path) return rf_fail(RF_E_NO_MEMORY, "no host memory to open %s", path);
    part->descriptor = rf_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (part->descriptor < 0) return io_failed(path, "cannot be opened");
    if (fstat(part->descriptor, &info) != 0) return io_failed(path, "cannot be examined");
    if (!S_ISREG(info.st_mode))
        return rf_fail(RF_E_IO, "%s: is %s, not a file: name a GGUF file", path,
                       S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    if (info.st_size <= 0) return rf_fail(RF_E_SYNTAX, "%s: is empty: copy or download it again", path);
    if ((uint64_t)info.st_size > SIZE_MAX / 2)
        return rf_fail(RF_E_UNSUPPORTED, "%s: is larger than this machine's address space", path);
    void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, part->descriptor, 0);
    if (map == MAP_FAILED) return io_failed(path, "cannot be mapped");
    /* Only a hint: if the kernel keeps files in large pages, weights on the CPU are read up to a fifth faster. */
    madvise(map, (size_t)info.st_size, MADV_HUGEPAGE);
    part->bytes = map;
    part->size = (uint64_t)info.st_size;
    part->mapped = true;
    part->modified = info.st_mtim;
    if (!gguf_map_add(map, part->size)) return rf_fail(RF_E_NO_MEMORY, "no host memory to open %s", path);
    return RF_OK;
}

rf_status rf_gguf_unchanged(const struct rf_gguf *gguf) {
    for (size_t i = 0; i < gguf->part_count; i++) {
        const struct gguf_part *part = &gguf->parts[i];
        struct stat info;
        if (part->descriptor < 0) continue;
        if (fstat(part->descriptor, &info) != 0) return io_failed(part->path, "cannot be examined");
        if ((uint64_t)info.st_size != part->size || info.st_mtim.tv_sec != part->modified.tv_sec ||
            info.st_mtim.tv_nsec != part->modified.tv_nsec)
            return rf_fail(RF_E_IO, "%s: was changed while it was open: restore it and open it again", part->path);
    }
    return RF_OK;
}

rf_status rf_gguf_read(const struct rf_gguf *gguf, const struct rf_gguf_tensor *tensor, uint64_t offset, void *to,
                       size_t bytes) {
    if (!gguf || !tensor || (!to && bytes)) return rf_fail(RF_E_INVALID, "rf_gguf_read: NULL");
    const struct gguf_part *part = &gguf->parts[tensor->file];
    if (!rf_range_fits(offset, bytes, tensor->bytes))
        return rf_fail(RF_E_INVALID, "rf_gguf_read: %zu bytes from %llu of \"%s\", which has %llu", bytes,
                       (unsigned long long)offset, tensor->name, (unsigned long long)tensor->bytes);
    if (part->descriptor < 0) {
        if (bytes) memcpy(to, (const unsigned char *)tensor->data + offset, bytes);
        return RF_OK;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t got =
            pread(part->descriptor, (char *)to + done, bytes - done, (off_t)(tensor->offset + offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return io_failed(part->path, "cannot be read");
        if (got == 0)
            return rf_fail(RF_E_IO, "%s: ends inside the tensor \"%s\": it was shortened while it was open",
                           part->path, tensor->name);
        done += (size_t)got;
    }
    return RF_OK;
}

/* ---- split models ---- */

static bool parse_digits(const char *text, uint32_t *out) {
    uint32_t value = 0;
    for (int i = 0; i < 5; i++) {
        if (!isdigit((unsigned char)text[i])) return false;
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    *out = value;
    return true;
}

/* NAME-00002-of-00003.gguf gives 2 and 3. */
static bool parse_split_name(const char *path, uint32_t *number, uint32_t *count) {
    size_t length = strlen(path);
    if (length <= SPLIT_SUFFIX_BYTES) return false;
    const char *suffix = path + length - SPLIT_SUFFIX_BYTES;
    return suffix[0] == '-' && parse_digits(suffix + 1, number) && memcmp(suffix + 6, "-of-", 4) == 0 &&
           parse_digits(suffix + 10, count) && strcmp(suffix + 15, ".gguf") == 0 && *number >= 1 && *number <= *count;
}

static char *part_path(const char *path, uint32_t number, uint32_t count) {
    size_t length = strlen(path);
    char *other = malloc(length + 1);
    if (!other) return NULL;
    memcpy(other, path, length - SPLIT_SUFFIX_BYTES);
    snprintf(other + length - SPLIT_SUFFIX_BYTES, SPLIT_SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf", number % 100000,
             count % 100000);
    return other;
}

/* Reads one of the split keys; RF_E_NOT_FOUND if the part does not have it. */
static rf_status split_key(const struct gguf_part *part, const char *key, uint64_t *out) {
    const struct rf_gguf_value *value = gguf_find_value(&part->values, key);
    if (!value)
        return rf_fail(RF_E_NOT_FOUND, "%s: has no key \"%s\", which every part of a split model must have",
                       part->path, key);
    if (!gguf_value_u64(value, out))
        return rf_fail(RF_E_SYNTAX, "%s: the key \"%s\" is %s instead of a whole number from 0", part->path, key,
                       value->type == RF_GGUF_ARRAY || value->type == RF_GGUF_STRING ? rf_gguf_type_name(value->type)
                                                                                     : "a negative or broken number");
    return RF_OK;
}

/* Checks the parts against their names and each other. named_parts: the number in the file's name; 1 if it has none.
 */
static rf_status check_split(const struct rf_gguf *gguf, size_t named_parts) {
    for (size_t i = 0; i < named_parts; i++) {
        const struct gguf_part *part = &gguf->parts[i];
        uint64_t count = 1, number = 0, tensors = 0;
        rf_status status = split_key(part, "split.count", &count);
        if (status == RF_E_NOT_FOUND && named_parts == 1) return RF_OK; /* not split, the usual case */
        /* Some tools write this into a model of one file. */
        if (!status && count == 0 && named_parts == 1) return RF_OK;
        if (!status && count != named_parts && named_parts == 1 && part->descriptor < 0)
            return rf_fail(RF_E_SYNTAX,
                           "%s: is one of the %llu parts of a split model, which must be opened as files", part->path,
                           (unsigned long long)count);
        if (!status && count != named_parts)
            return rf_fail(RF_E_SYNTAX,
                           "%s: is one of %llu parts (split.count), but its name says %zu: name the parts "
                           "NAME-00001-of-%05llu.gguf and so on, in one folder",
                           part->path, (unsigned long long)count, named_parts, (unsigned long long)count);
        if (!status) status = split_key(part, "split.no", &number);
        if (!status && number != i)
            return rf_fail(RF_E_SYNTAX, "%s: is part %llu (split.no, from 0), but its name says part %zu: rename it",
                           part->path, (unsigned long long)number, i);
        if (!status) status = split_key(part, "split.tensors.count", &tensors);
        if (!status && tensors != gguf->tensor_count)
            return rf_fail(RF_E_SYNTAX,
                           "%s: says that the model has %llu tensors (split.tensors.count), but its %zu parts hold "
                           "%zu: they do not belong together",
                           part->path, (unsigned long long)tensors, named_parts, gguf->tensor_count);
        if (status == RF_E_NOT_FOUND) return RF_E_SYNTAX; /* the file is there, it is malformed */
        if (status) return status;
    }
    return RF_OK;
}
