/* A session's tokens, KV cache and logits in a file.
 *
 * The file is a header, the tokens, the logits of the last token if the session has them, and for each layer keys and
 * then values: of each head the rows of all tokens, as the cache has them. A checksum of everything before it ends
 * the file. Numbers are little-endian. Nothing in it depends on where the layers or their caches are, or on pages, so
 * a session that was saved on a GPU can be loaded on the CPU.
 *
 * A file is trusted only as a whole: it is read once to compare the checksum, and only then does the session change.
 * It is read a second time for its contents; if these are others by then, or the device fails, the session is left
 * empty. A file is written beside its name and renamed when it is complete.
 *
 * The gate is held for each piece of a cache alone: a step of the ladder does not wait for a disk. */
#include "infer/engine_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptors.h"

enum { VERSION = 1, SAMPLE_BYTES = 256 };

struct header {
    char magic[16];
    uint32_t version, kv, layers, kv_heads, head_width, vocabulary, length, has_logits;
    uint64_t model; /* a fingerprint */
    uint64_t bytes; /* of the file */
};
static const char magic[16] = {'R', 'O', 'C', 'm', 'F', 'o', 'r', 'g', 'e', ' ', 'c', 'a', 'c', 'h', 'e', '\n'};

/* ---- checksums ---- */

/* Each word changes the sum by a function that can be undone: two files that differ in one word have other sums. */
static uint64_t add_to_sum(uint64_t sum, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (; bytes; at += RF_MIN(bytes, sizeof sum), bytes -= RF_MIN(bytes, sizeof sum)) {
        uint64_t word = 0;
        memcpy(&word, at, RF_MIN(bytes, sizeof word));
        sum = (sum ^ word) * UINT64_C(0x9fb21c651e98df25);
        sum ^= sum >> 32;
    }
    return sum;
}

/* Of the names, types and shapes of all tensors, and of some bytes from the middle of each. */
static rf_status fingerprint(const struct rf_gguf *gguf, uint64_t *out) {
    uint64_t sum = 0;
    for (size_t i = 0; i < rf_gguf_tensor_count(gguf); i++) {
        const struct rf_gguf_tensor *tensor = rf_gguf_tensor_at(gguf, i);
        unsigned char some[SAMPLE_BYTES];
        size_t bytes = RF_MIN(tensor->bytes, sizeof some);
        uint64_t facts[] = {(uint64_t)tensor->dtype, (uint64_t)tensor->rank, tensor->elements, tensor->bytes};
        RF_TRY(rf_gguf_read(gguf, tensor, (tensor->bytes - bytes) / 2, some, bytes));
        sum = add_to_sum(sum, tensor->name, strlen(tensor->name));
        sum = add_to_sum(sum, facts, sizeof facts);
        sum = add_to_sum(sum, tensor->shape, (size_t)tensor->rank * sizeof *tensor->shape);
        sum = add_to_sum(sum, some, bytes);
    }
    *out = sum;
    return RF_OK;
}

/* ---- sizes ---- */

static uint64_t row_bytes(const struct rf_engine *engine) {
    return engine->hparams.head_width / rf_dtype_block(engine->kv_dtype) * rf_dtype_block_bytes(engine->kv_dtype);
}
static rf_status make_header(const struct rf_engine *engine, uint32_t length, bool has_logits,
                             struct header *header) {
    const struct rf_hparams *hparams = &engine->hparams;
    *header = (struct header){.version = VERSION,
                              .kv = (uint32_t)engine->kv,
                              .layers = hparams->layers,
                              .kv_heads = hparams->kv_heads,
                              .head_width = hparams->head_width,
                              .vocabulary = hparams->vocabulary,
                              .length = length,
                              .has_logits = has_logits};
    memcpy(header->magic, magic, sizeof magic);
    header->bytes = sizeof *header + length * sizeof(int32_t) +
                    (has_logits ? (uint64_t)hparams->vocabulary * sizeof(float) : 0) +
                    2 * (uint64_t)hparams->layers * hparams->kv_heads * length * row_bytes(engine) + sizeof(uint64_t);
    return fingerprint(engine->gguf, &header->model);
}

/* ---- the file ---- */

struct file {
    const char *path;
    int fd;
    bool writes;
    uint64_t sum;
};

/* Reads or writes all of it, and counts it into the sum. */
static rf_status pass(struct file *file, void *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        char *at = (char *)data + done;
        ssize_t count = file->writes ? write(file->fd, at, bytes - done) : read(file->fd, at, bytes - done);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return rf_fail_errno(file->writes ? "writing" : "reading", file->path, errno);
        if (count == 0)
            return rf_fail(file->writes ? RF_E_IO : RF_E_CORRUPT,
                           "%s ends too early: it was cut, or is being written", file->path);
        done += (size_t)count;
    }
    file->sum = add_to_sum(file->sum, data, bytes);
    return RF_OK;
}

/* ---- a cache's rows ---- */

struct rows {
    uint32_t layer, head, first, count; /* first: within one page */
    bool values;
};
/* Between the session's cache and host memory. */
static rf_status move_rows(struct rf_session *session, const struct rows *rows, void *host, bool to_cache) {
    struct rf_engine *engine = session->engine;
    uint64_t row = row_bytes(engine),
             page = (uint64_t)session->slot * engine->table_width + rows->first / RF_PAGE_ROWS;
    uint64_t bytes = rows->count * row,
             at = ((page * engine->hparams.kv_heads + rows->head) * RF_PAGE_ROWS + rows->first % RF_PAGE_ROWS) * row;
    rf_status status = RF_OK;
    rf_ladder_enter_quietly(engine);
    const struct rf_layer_cache *cache = &engine->caches[rows->layer];
    char *there = cache->pinned ? rf_pinned_data(cache->pinned) : cache->host;
    if (rows->values) at += rf_engine_layer_cache_bytes(engine) / 2;
    if (there) {
        memcpy(to_cache ? there + at : host, to_cache ? host : there + at, bytes);
    } else {
        if (!session->queue) status = rf_queue_create(engine->device, NULL, &session->queue);
        if (!status && to_cache) status = rf_copy_to_device_safe(session->queue, cache->buffer, at, host, bytes);
        if (!status && !to_cache) status = rf_copy_from_device_safe(session->queue, host, cache->buffer, at, bytes);
    }
    rf_ladder_leave(engine);
    return status;
}

/* All rows of the first 'length' tokens, through 'piece', which holds RF_PAGE_ROWS of them. use: not only the sum of
 * a file that is read. */
static rf_status pass_rows(struct rf_session *session, struct file *file, uint32_t length, void *piece, bool use) {
    const struct rf_hparams *hparams = &session->engine->hparams;
    uint64_t row = row_bytes(session->engine);
    for (uint32_t i = 0; i < 2 * hparams->layers * hparams->kv_heads; i++) {
        struct rows rows = {
            .layer = i / hparams->kv_heads / 2, .head = i % hparams->kv_heads, .values = i / hparams->kv_heads % 2};
        for (; rows.first < length; rows.first += rows.count) {
            rows.count = RF_MIN(length - rows.first, (uint32_t)RF_PAGE_ROWS);
            if (file->writes) RF_TRY(move_rows(session, &rows, piece, false));
            RF_TRY(pass(file, piece, rows.count * row));
            if (use && !file->writes) RF_TRY(move_rows(session, &rows, piece, true));
        }
    }
    return RF_OK;
}

/* ---- saving ---- */

static rf_status write_all(struct rf_session *session, struct file *file, struct header *header, void *piece) {
    RF_TRY(pass(file, header, sizeof *header));
    RF_TRY(pass(file, session->tokens, header->length * sizeof *session->tokens));
    if (header->has_logits) RF_TRY(pass(file, session->host_logits, header->vocabulary * sizeof(float)));
    RF_TRY(pass_rows(session, file, header->length, piece, true));
    uint64_t sum = file->sum;
    RF_TRY(pass(file, &sum, sizeof sum));
    return fsync(file->fd) ? rf_fail_errno("writing", file->path, errno) : RF_OK;
}

/* Writes a file beside the path and gives it its name at the end. */
static rf_status write_beside(struct rf_session *session, const char *path, struct header *header, void *piece) {
    size_t size = strlen(path) + 32;
    char *beside = malloc(size);
    if (!beside) return rf_fail(RF_E_NO_MEMORY, "no memory for the name of %s", path);
    snprintf(beside, size, "%s.%ld.new", path, (long)getpid());
    struct file file = {.path = beside, .writes = true};
    /* What was said is in it: for its owner alone. */
    file.fd = rf_open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    rf_status status = file.fd < 0 ? rf_fail_errno("making", beside, errno) : RF_OK;
    if (!status) {
        status = write_all(session, &file, header, piece);
        if (close(file.fd) && !status) status = rf_fail_errno("writing", beside, errno);
        if (!status && rename(beside, path)) status = rf_fail_errno("renaming to", path, errno);
        if (status) unlink(beside);
    }
    free(beside);
    return status;
}

/* What both need: nothing under way, and room for a page's rows of a head. */
static rf_status begin(struct rf_session *session, const char *path, const char *function, void **piece) {
    *piece = NULL;
    if (!session || !path || !*path) return rf_fail(RF_E_INVALID, "%s: no session, or no path", function);
    RF_TRY(rf_ahead_settle(session));
    return rf_host_alloc(&session->engine->runtime->host, RF_PAGE_ROWS * row_bytes(session->engine),
                         "a part of a session's cache", piece);
}
static void end(struct rf_session *session, void *piece) {
    rf_host_free(&session->engine->runtime->host, piece, RF_PAGE_ROWS * row_bytes(session->engine));
}

rf_status rf_session_save(struct rf_session *session, const char *path) {
    void *piece;
    struct header header;
    rf_status status = begin(session, path, "rf_session_save", &piece);
    if (status) return status;
    rf_ladder_enter_quietly(session->engine);
    status = rf_session_keep_logits(session);
    bool has_logits = !status && session->has_host_logits;
    rf_ladder_leave(session->engine);
    if (!status) status = make_header(session->engine, session->length, has_logits, &header);
    if (!status) status = write_beside(session, path, &header, piece);
    end(session, piece);
    return status;
}

/* ---- loading ---- */

static rf_status check_header(const struct rf_session *session, const char *path, const struct header *found,
                              uint64_t bytes) {
    const struct rf_engine *engine = session->engine;
    struct header own;
    if (memcmp(found->magic, magic, sizeof magic))
        return rf_fail(RF_E_CORRUPT, "%s is no saved session: it begins with other bytes", path);
    if (found->version != VERSION)
        return rf_fail(RF_E_UNSUPPORTED, "%s has version %u of saved sessions, this library knows %d: save it anew",
                       path, found->version, VERSION);
    if (found->length > engine->context)
        return rf_fail(RF_E_INVALID, "%s holds %u tokens, the context %u: open the engine with a larger context",
                       path, found->length, engine->context);
    RF_TRY(make_header(engine, found->length, found->has_logits != 0, &own));
    if (found->model != own.model || found->layers != own.layers || found->kv_heads != own.kv_heads ||
        found->head_width != own.head_width || found->vocabulary != own.vocabulary)
        return rf_fail(RF_E_INVALID, "%s was saved with another model", path);
    if (found->kv != own.kv)
        return rf_fail(RF_E_INVALID, "%s was saved with another type of KV cache: open the engine with that one",
                       path);
    if (found->has_logits > 1 || found->bytes != own.bytes || bytes != own.bytes)
        return rf_fail(RF_E_CORRUPT, "%s has %llu bytes instead of %llu: it is damaged", path,
                       (unsigned long long)bytes, (unsigned long long)own.bytes);
    return RF_OK;
}

/* Goes through the file behind its header; tokens and logits have room for the file's. use: the caches change. */
static rf_status read_all(struct rf_session *session, struct file *file, const struct header *header, int32_t *tokens,
                          float *logits, void *piece, bool use) {
    uint64_t sum, stored;
    if (lseek(file->fd, sizeof *header, SEEK_SET) < 0) return rf_fail_errno("reading", file->path, errno);
    file->sum = add_to_sum(0, header, sizeof *header);
    RF_TRY(pass(file, tokens, header->length * sizeof *tokens));
    if (header->has_logits) RF_TRY(pass(file, logits, header->vocabulary * sizeof *logits));
    RF_TRY(pass_rows(session, file, header->length, piece, use));
    sum = file->sum;
    RF_TRY(pass(file, &stored, sizeof stored));
    bool good = sum == stored;
    for (uint32_t i = 0; i < header->length; i++) good = good && (uint32_t)tokens[i] < header->vocabulary;
    return good ? RF_OK : rf_fail(RF_E_CORRUPT, "%s is damaged: its checksum is wrong", file->path);
}

static rf_status load(struct rf_session *session, struct file *file, void *piece) {
    struct rf_engine *engine = session->engine;
    struct rf_host_budget *host = &engine->runtime->host;
    struct stat facts;
    struct header header;
    if (fstat(file->fd, &facts)) return rf_fail_errno("reading", file->path, errno);
    if (!S_ISREG(facts.st_mode) || (uint64_t)facts.st_size < sizeof header)
        return rf_fail(RF_E_CORRUPT, "%s is no saved session: %s", file->path,
                       S_ISREG(facts.st_mode) ? "it is too short" : "it is no file");
    RF_TRY(pass(file, &header, sizeof header));
    RF_TRY(check_header(session, file->path, &header, (uint64_t)facts.st_size));
    uint64_t bytes = header.length * sizeof(int32_t) + header.vocabulary * sizeof(float);
    void *room = NULL;
    RF_TRY(rf_host_alloc(host, bytes, "a saved session's tokens", &room));
    float *logits = room;
    int32_t *tokens = (int32_t *)(void *)(logits + header.vocabulary);
    rf_status status = read_all(session, file, &header, tokens, logits, piece, false);
    if (!status && header.has_logits) status = rf_session_make_rows(session);
    if (!status) {
        rf_ladder_enter_quietly(engine);
        rf_session_forget_logits(session);
        rf_ladder_leave(engine);
        session->length = 0;
        status = read_all(session, file, &header, tokens, logits, piece, true);
        /* The next run is on another queue. */
        if (!status && session->queue) status = rf_queue_wait(session->queue, RF_TIMEOUT_DEFAULT);
    }
    if (!status) {
        memcpy(session->tokens, tokens, header.length * sizeof *tokens);
        session->length = header.length;
        rf_ladder_enter_quietly(engine);
        if (header.has_logits) memcpy(session->host_logits, logits, header.vocabulary * sizeof *logits);
        session->has_host_logits = header.has_logits != 0;
        rf_ladder_leave(engine);
    }
    rf_host_free(host, room, bytes);
    return status;
}

rf_status rf_session_load(struct rf_session *session, const char *path) {
    void *piece;
    rf_status status = begin(session, path, "rf_session_load", &piece);
    if (status) return status;
    struct file file = {.path = path, .fd = rf_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0)};
    status = file.fd < 0 ? rf_fail_errno("opening", path, errno) : load(session, &file, piece);
    if (file.fd >= 0) close(file.fd);
    end(session, piece);
    return status;
}
