/* The host budget and what the process really holds: the ledger's figure is compared with the kernel's and with the
 * C library's, chunks of prompts become as small as the budget wants, and each charge is refused once. */
#include "infer_testing.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "graph/executor.h"
#include "gguf/gguf.h"
#include "infer/engine_impl.h"
#include "runtime/host_memory.h"
#include "runtime/runtime.h"
#include "tokenizer/tokenizer.h"
#include "base/sanitizers.h"

#define SANITIZED (RF_UNDER_ASAN || RF_UNDER_TSAN)

/* ---- in front of the library's functions ---- */

/* The linker puts a __wrap_ in front of each function, for all callers but those in its own file. */
#define WRAPPED(type, name, ...)                                                                                     \
    type __real_##name(__VA_ARGS__);                                                                                 \
    type __wrap_##name(__VA_ARGS__);                                                                                 \
    type __wrap_##name(__VA_ARGS__)

static _Atomic long countdown = -1; /* charges until one is refused, 0: it is the next; below: none is */
static _Atomic long charges;        /* so far */

/* What malloc and its like hold now in allocations larger than a page, what is charged for them, and by how much the
 * first was more than the second at most. What rf_host_alloc takes and charges is in neither: those two are equal. */
static _Atomic int64_t held, charged, most_uncharged;
static _Thread_local bool exempt;

WRAPPED(rf_status, rf_host_charge, struct rf_host_budget *budget, uint64_t bytes, bool pinned) {
    atomic_fetch_add(&charges, 1);
    if (atomic_load(&countdown) >= 0 && atomic_fetch_sub(&countdown, 1) == 0)
        return rf_fail(RF_E_NO_MEMORY, "%llu bytes refused by the test", (unsigned long long)bytes);
    rf_status status = __real_rf_host_charge(budget, bytes, pinned);
    if (!status && !exempt) atomic_fetch_add(&charged, (int64_t)bytes);
    return status;
}
WRAPPED(void, rf_host_release, struct rf_host_budget *budget, uint64_t bytes, bool pinned) {
    if (!exempt) atomic_fetch_sub(&charged, (int64_t)bytes);
    __real_rf_host_release(budget, bytes, pinned);
}
WRAPPED(rf_status, rf_host_alloc, struct rf_host_budget *budget, uint64_t bytes, const char *what, void **out) {
    exempt = budget != NULL;
    rf_status status = __real_rf_host_alloc(budget, bytes, what, out);
    exempt = false;
    return status;
}
WRAPPED(void, rf_host_free, struct rf_host_budget *budget, void *memory, uint64_t bytes) {
    exempt = budget != NULL;
    __real_rf_host_free(budget, memory, bytes);
    exempt = false;
}

enum { SMALL = 4096 + 64 }; /* the C library's rounding included */

static void *count_new(void *memory) {
    size_t bytes = memory ? malloc_usable_size(memory) : 0;
    if (bytes <= SMALL || exempt) return memory;
    int64_t excess = atomic_fetch_add(&held, (int64_t)bytes) + (int64_t)bytes - atomic_load(&charged);
    int64_t most = atomic_load(&most_uncharged);
    while (excess > most && !atomic_compare_exchange_weak(&most_uncharged, &most, excess)) continue;
    return memory;
}
static void count_gone(size_t bytes) {
    if (bytes > SMALL && !exempt) atomic_fetch_sub(&held, (int64_t)bytes);
}
WRAPPED(void *, malloc, size_t bytes) {
    return count_new(__real_malloc(bytes));
}
WRAPPED(void *, calloc, size_t count, size_t bytes) {
    return count_new(__real_calloc(count, bytes));
}
WRAPPED(void *, realloc, void *memory, size_t bytes) {
    size_t before = memory ? malloc_usable_size(memory) : 0;
    void *grown = __real_realloc(memory, bytes);
    if (grown) count_gone(before);
    return count_new(grown);
}
WRAPPED(char *, strdup, const char *text) {
    return count_new(__real_strdup(text));
}
WRAPPED(void, free, void *memory) {
    if (memory) count_gone(malloc_usable_size(memory));
    __real_free(memory);
}

/* ---- models ---- */

enum { VOCABULARY = 29600 };

/* <unk>, <s>, </s>, the bytes, then words. */
static void add_vocabulary(struct rf_gguf_writer *writer, uint32_t count) {
    struct rf_gguf_string *texts = allocate(count, sizeof *texts);
    float *scores = allocate(count, sizeof *scores);
    int32_t *types = allocate(count, sizeof *types);
    char(*names)[16] = allocate(count, sizeof *names);
    for (uint32_t i = 0; i < count; i++) {
        bool byte = i >= 3 && i < 259;
        if (i < 3)
            snprintf(names[i], sizeof names[i], "<%u>", i);
        else if (byte)
            snprintf(names[i], sizeof names[i], "<0x%02X>", (i - 3) & 0xff);
        else
            snprintf(names[i], sizeof names[i], "w%u", i);
        texts[i] = (struct rf_gguf_string){names[i], strlen(names[i])};
        types[i] = i < 3 ? RF_TOKEN_CONTROL : byte ? RF_TOKEN_BYTE : RF_TOKEN_NORMAL;
    }
    rf_gguf_write_string(writer, "tokenizer.ggml.model", "llama");
    rf_gguf_write_strings(writer, "tokenizer.ggml.tokens", texts, count);
    rf_gguf_write_array(writer, "tokenizer.ggml.token_type", RF_GGUF_I32, types, count);
    rf_gguf_write_array(writer, "tokenizer.ggml.scores", RF_GGUF_F32, scores, count);
    free(texts);
    free(scores);
    free(types);
    free(names);
}
static void large_vocabulary(struct rf_gguf_writer *writer) {
    add_vocabulary(writer, VOCABULARY);
}
static void middle_vocabulary(struct rf_gguf_writer *writer) {
    add_vocabulary(writer, 5000);
}
static void small_vocabulary(struct rf_gguf_writer *writer) {
    add_vocabulary(writer, 300);
}

/* About 170 MiB, most of it embedding and output, which cost a prompt no time. */
static const struct spec large = {"large",
                                  "llama",
                                  .layers = 4,
                                  .width = 512,
                                  .heads = 8,
                                  .kv_heads = 8,
                                  .feed_forward = 1536,
                                  .vocabulary = VOCABULARY,
                                  .more = large_vocabulary,
                                  .key_u32 = "context_length",
                                  .u32 = 2304};
static const struct spec small = {"small",
                                  "llama",
                                  .layers = 2,
                                  .width = 128,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .feed_forward = 256,
                                  .vocabulary = 300,
                                  .more = small_vocabulary,
                                  .key_u32 = "context_length",
                                  .u32 = 512};

static void fill_tokens(int32_t *tokens, uint32_t count, uint32_t vocabulary) {
    for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)((i * i * 7 + i * 13 + 5) % vocabulary);
}

/* ---- a runtime with a budget ---- */

static struct rf_runtime *runtime_of(uint64_t bytes) {
    char option[64];
    struct rf_runtime *runtime = NULL;
    snprintf(option, sizeof option, "RF_HOST_BUDGET=%llu", (unsigned long long)bytes);
    RF_PARAMS(struct rf_runtime_params, params);
    params.options = (const char *[]){option, NULL};
    return rf_runtime_create(&params, &runtime) ? NULL : runtime;
}

static rf_status open_engine(struct rf_runtime *runtime, const char *model, uint32_t context, uint32_t batch,
                             uint32_t sessions, enum rf_kv_type kv, struct rf_engine **engine) {
    RF_PARAMS(struct rf_engine_params, params);
    params.runtime = runtime;
    params.model = model;
    params.device = "cpu";
    params.context = context;
    params.batch = batch;
    params.sessions = sessions;
    params.threads = 2;
    params.kv = kv;
    return rf_engine_open(&params, engine);
}

/* ---- the kernel's figure ---- */

static uint64_t rss_anon(void) {
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "RssAnon: %llu kB", &kib) == 1) break;
    if (file) fclose(file);
    return (uint64_t)kib << 10;
}

/* What a child found. It has no other way to say it: it may be killed at any moment. */
struct found {
    rf_status status;
    char error[512];
    uint64_t start_rss;               /* before there was a runtime */
    uint64_t prompt_used, prompt_rss; /* after the prompt */
    uint64_t answer_used, answer_rss; /* after some tokens */
    uint64_t most_used, most_rss;     /* as far as a second thread saw */
    uint64_t end_used, end_rss;       /* when all was destroyed */
    uint32_t length;
};

struct watch {
    struct rf_runtime *runtime;
    struct found *found;
    atomic_bool stop;
};
static void *watch(void *user) {
    struct watch *watch = user;
    while (!atomic_load(&watch->stop)) {
        uint64_t used = rf_host_used(&watch->runtime->host), rss = rss_anon();
        if (used > watch->found->most_used) watch->found->most_used = used;
        if (rss > watch->found->most_rss) watch->found->most_rss = rss;
        usleep(1000);
    }
    return NULL;
}

/* A prompt of 2,040 tokens with a host budget of 73 MiB. */
static void run_prompt(const char *model, struct found *found) {
    enum { COUNT = 2040 };
    static int32_t tokens[COUNT];
    struct rf_engine *engine = NULL;
    struct rf_session *session = NULL;
    pthread_t thread;
    found->start_rss = rss_anon();
    struct rf_runtime *runtime = runtime_of(73 * MIB);
    struct watch watching = {.runtime = runtime, .found = found};
    bool watched = runtime && !pthread_create(&thread, NULL, watch, &watching);
    fill_tokens(tokens, COUNT, VOCABULARY);
    rf_status status = watched ? open_engine(runtime, model, 2048, 0, 1, RF_KV_F16, &engine) : RF_E_INVALID;
    if (!status) status = rf_session_create(engine, &session);
    if (!status) status = rf_session_eval(session, tokens, COUNT, false, NULL);
    if (!status) {
        found->prompt_used = rf_host_used(&runtime->host);
        found->prompt_rss = rss_anon();
    }
    for (int i = 0; i < 3 && !status; i++) {
        int32_t token;
        status = rf_session_sample(session, NULL, &token);
        if (!status) status = rf_session_eval(session, &token, 1, false, NULL);
    }
    if (!status) {
        found->answer_used = rf_host_used(&runtime->host);
        found->answer_rss = rss_anon();
        found->length = rf_session_length(session);
    }
    found->status = status;
    snprintf(found->error, sizeof found->error, "%s", status ? rf_error_text() : "");
    rf_session_destroy(&session);
    rf_engine_close(&engine);
    atomic_store(&watching.stop, true);
    if (watched) pthread_join(thread, NULL);
    if (runtime) found->end_used = rf_host_used(&runtime->host);
    rf_runtime_destroy(&runtime);
    found->end_rss = rss_anon();
}

/* ---- a limit around a process ---- */

static bool write_text(const char *folder, const char *name, const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0) return false;
    bool done = write(file, text, strlen(text)) == (ssize_t)strlen(text);
    return close(file) == 0 && done;
}

/* Makes a memory group of this limit, of version 1 or 2: under the process's own or one that this lies in. In version
 * 2 a group that has processes gives its children no memory controller, and in a container the own group's path may
 * be the host's: then one further up may do. */
static bool make_group(uint64_t limit, char *folder, size_t size) {
    char line[400], number[32], parent[500];
    FILE *file = fopen("/proc/self/cgroup", "re");
    bool made = false;
    snprintf(number, sizeof number, "%llu", (unsigned long long)limit);
    while (file && !made && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':'), *own = names ? strchr(names + 1, ':') : NULL;
        if (!own) continue;
        *own++ = 0;
        bool second = !names[1];
        if (!second && strcmp(names + 1, "memory")) continue;
        int root = snprintf(parent, sizeof parent, "/sys/fs/cgroup%s", second ? "" : "/memory");
        if (strcmp(own, "/")) snprintf(parent + root, sizeof parent - (size_t)root, "%s", own);
        for (bool last = false; !made && !last;) {
            last = strlen(parent) <= (size_t)root;
            if (snprintf(folder, size, "%s/rf-test-%d", parent, (int)getpid()) < (int)size && !mkdir(folder, 0700)) {
                made = write_text(folder, second ? "memory.max" : "memory.limit_in_bytes", number);
                if (!made) rmdir(folder);
            }
            if (!last) *strrchr(parent, '/') = 0;
        }
    }
    if (file) fclose(file);
    return made;
}

enum limit { BY_GROUP, BY_ULIMIT };
static const struct bound {
    const char *label;
    enum limit by;
} bounds[] = {{"cgroup", BY_GROUP}, {"ulimit", BY_ULIMIT}};

static void expect_near(uint64_t ledger, uint64_t kernel, const char *when) {
    RF_TRACE("%s: %llu KiB by the ledger, %llu KiB by the kernel", when, (unsigned long long)ledger >> 10,
             (unsigned long long)kernel >> 10);
    RF_EXPECT(ledger <= kernel + kernel / 10 && kernel <= ledger + ledger / 10);
}

/* The figures of the budget are those of the kernel, within a tenth, in a process that may not have more than 128
 * MiB: by a memory group, in which one byte more ends the process, or by a limit of its data segments. */
RF_TEST_LABELLED_CASES(host_memory, ledger_is_what_the_kernel_says, struct bound, bounds, .timeout_ms = 600000) {
    if (SANITIZED) RF_SKIP("a sanitizer takes memory of its own");
    static const uint64_t limit = 128 * MIB;
    char group[600] = "", number[32];
    struct found found = {.status = RF_E_INVALID, .error = "the child said nothing"};
    int ends[2], how = 0;
    if (c->by == BY_GROUP && !make_group(limit, group, sizeof group)) RF_SKIP("no memory group can be made here");
    const char *path = scratch_path("large.gguf");
    pid_t maker = fork();
    if (maker == 0) { /* in a process of its own: making it takes twice its size */
        infer_model(&large, "large.gguf");
        _exit(0);
    }
    RF_ASSERT(maker > 0 && waitpid(maker, &how, 0) == maker && WIFEXITED(how) && !WEXITSTATUS(how));
    RF_ASSERT(pipe2(ends, O_CLOEXEC) == 0);
    pid_t child = fork();
    if (child == 0) {
        bool bounded;
        snprintf(number, sizeof number, "%d", (int)getpid());
        if (c->by == BY_GROUP)
            bounded = write_text(group, "cgroup.procs", number);
        else
            bounded = setrlimit(RLIMIT_DATA, &(struct rlimit){limit, limit}) == 0;
        if (bounded)
            run_prompt(path, &found);
        else
            snprintf(found.error, sizeof found.error, "the process could not be bounded: %s", strerror(errno));
        _exit(write(ends[1], &found, sizeof found) == (ssize_t)sizeof found ? 0 : 1);
    }
    close(ends[1]);
    ssize_t got = child > 0 ? read(ends[0], &found, sizeof found) : -1;
    close(ends[0]);
    RF_EXPECT(child > 0 && waitpid(child, &how, 0) == child);
    if (*group) rmdir(group);
    unlink(path);
    RF_TRACE("%s: the child's status is 0x%x", found.error, (unsigned)how);
    RF_ASSERT(WIFEXITED(how) && !WEXITSTATUS(how)); /* the kernel did not kill it */
    RF_ASSERT_INT(got, (ssize_t)sizeof found);
    RF_ASSERT_INT(found.status, RF_OK);
    RF_EXPECT_UINT(found.length, 2043);
    expect_near(found.prompt_used, found.prompt_rss, "after the prompt");
    expect_near(found.answer_used, found.answer_rss, "after the answer");
    RF_EXPECT(found.most_used <= 73 * MIB);
    RF_EXPECT(found.most_rss <= 73 * MIB + 73 * MIB / 10);
    /* What the ledger says is given back is: the system has it again. */
    RF_EXPECT_UINT(found.end_used, 0);
    RF_EXPECT(found.end_rss <= found.start_rss + MIB);
}

/* ---- the C library's figure ---- */

static uint64_t heap_bytes(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* Tables of many small allocations: their owners charge what the C library says was taken. */
RF_TEST(host_memory, tables_are_charged) {
    if (SANITIZED) RF_SKIP("a sanitizer has its own C library");
    static const struct spec spec = {"words",
                                     "llama",
                                     .layers = 2,
                                     .width = 32,
                                     .heads = 2,
                                     .kv_heads = 1,
                                     .feed_forward = 64,
                                     .vocabulary = VOCABULARY,
                                     .more = large_vocabulary};
    const char *path = infer_model(&spec, "words.gguf");
    struct rf_runtime *runtime = runtime_of(512 * MIB);
    RF_ASSERT(runtime != NULL);
    struct rf_host_budget *host = &runtime->host;
    struct rf_account account = rf_host_account(host);
    struct rf_gguf *gguf = NULL;
    struct rf_tokenizer *tokenizer = NULL;
    uint64_t before = heap_bytes();
    RF_ASSERT_OK(rf_gguf_open_charged(path, &account, &gguf));
    uint64_t file = rf_host_used(host), heap = heap_bytes() - before;
    RF_EXPECT(file > 4096 && file <= heap + heap / 10 && heap <= file + file / 10);

    before = heap_bytes();
    RF_ASSERT_OK(rf_tokenizer_from_gguf_charged(gguf, &account, &tokenizer));
    uint64_t tables = rf_host_used(host) - file;
    heap = heap_bytes() - before;
    RF_EXPECT(tables > MIB && tables <= heap + heap / 10 && heap <= tables + tables / 10);

    /* Encoding charges what it needs for a while; the ids are the caller's. */
    char *text = allocate(MIB + 1, 1);
    int32_t *ids = NULL;
    size_t count = 0;
    memset(text, 'x', MIB);
    RF_EXPECT_OK(rf_tokenizer_encode(tokenizer, text, MIB, NULL, &ids, &count));
    rf_token_ids_destroy(&ids);
    RF_EXPECT_UINT(rf_host_used(host), file + tables);
    uint64_t rest = rf_host_room(host, false) - MIB;
    RF_ASSERT_OK(rf_host_charge(host, rest, false));
    RF_EXPECT_STATUS(rf_tokenizer_encode(tokenizer, text, MIB, NULL, &ids, &count), RF_E_NO_MEMORY);
    RF_EXPECT_CONTAINS(rf_error_text(), "RF_HOST_BUDGET");
    RF_EXPECT(ids == NULL);
    rf_host_release(host, rest, false);
    RF_EXPECT_UINT(rf_host_used(host), file + tables);
    free(text);
    rf_tokenizer_destroy(&tokenizer);
    RF_EXPECT_UINT(rf_host_used(host), file);
    rf_gguf_close(&gguf);
    RF_EXPECT_UINT(rf_host_used(host), 0);

    /* Graphs and plans. The arena, which has the logits, is mapped; the scratch memory of a token is small. */
    struct rf_engine *engine = NULL;
    RF_ASSERT_OK(open_engine(runtime, path, 256, 256, 1, RF_KV_F32, &engine));
    struct rf_graph_shape shape = {.tokens = 1,
                                   .sequences = 1,
                                   .page_rows = RF_PAGE_ROWS,
                                   .page_count = engine->page_count,
                                   .table_width = engine->table_width,
                                   .longest = engine->context,
                                   .kv_dtype = engine->kv_dtype};
    struct rf_runner runners[8] = {0};
    before = heap_bytes();
    uint64_t used = rf_host_used(host), mapped = 0;
    for (size_t i = 0; i < RF_COUNT(runners); i++) {
        RF_PARAMS(struct rf_plan_info, info);
        RF_ASSERT_OK(rf_runner_create(engine, NULL, &shape, &runners[i]));
        RF_ASSERT_OK(rf_executor_plan_info(runners[i].executor, &info));
        RF_EXPECT(info.bytes_on_cpu > 64 << 10);
        mapped += rf_host_alloc_bytes(info.bytes_on_cpu);
    }
    heap = heap_bytes() - before;
    used = rf_host_used(host) - used - mapped;
    RF_EXPECT(used <= heap + heap / 10 && heap <= used + used / 10);
    for (size_t i = 0; i < RF_COUNT(runners); i++) rf_runner_destroy(&runners[i]);
    RF_ASSERT_OK(rf_engine_close(&engine));
    RF_EXPECT_UINT(rf_host_used(host), 0);
    rf_runtime_destroy(&runtime);
}

#define EXPECT_CHARGED(call)                                                                                         \
    do {                                                                                                             \
        int64_t before = atomic_load(&held) - atomic_load(&charged);                                                 \
        atomic_store(&most_uncharged, before);                                                                       \
        RF_ASSERT_OK(call);                                                                                          \
        RF_EXPECT(atomic_load(&most_uncharged) - before <= 4096); /* the C library rounds sizes up */                \
    } while (0)

/* Nothing larger than a page is taken that is not charged, at no moment: not while a file is opened, a graph is made
 * and optimized, a prompt runs or text is generated. */
RF_TEST(host_memory, never_more_than_charged) {
    if (SANITIZED) RF_SKIP("a sanitizer has its own C library");
    static const struct spec deep = {"deep",
                                     "llama",
                                     .layers = 32,
                                     .width = 64,
                                     .heads = 2,
                                     .kv_heads = 1,
                                     .feed_forward = 128,
                                     .vocabulary = 5000,
                                     .more = middle_vocabulary,
                                     .key_u32 = "context_length",
                                     .u32 = 512};
    const char *path = infer_model(&deep, "deep.gguf");
    struct rf_runtime *runtime = runtime_of(512 * MIB);
    struct rf_engine *engine = NULL;
    struct rf_session *sessions[2] = {NULL, NULL};
    int32_t tokens[200];
    RF_PARAMS(struct rf_generate_params, generate);
    RF_PARAMS(struct rf_generate_result, result);
    RF_PARAMS(struct rf_sample_params, sampling);
    RF_ASSERT(runtime != NULL);
    fill_tokens(tokens, 200, 5000);
    generate.max_tokens = 8;
    generate.ignore_end = true;
    generate.sampling = &sampling;
    sampling.temperature = 0.8F;
    sampling.top_k = 40;
    sampling.seed = 3;
    int64_t start = atomic_load(&held) - atomic_load(&charged);
    EXPECT_CHARGED(open_engine(runtime, path, 512, 128, 2, RF_KV_F16, &engine));
    for (int i = 0; i < 2; i++) {
        EXPECT_CHARGED(rf_session_create(engine, &sessions[i]));
        EXPECT_CHARGED(rf_session_eval(sessions[i], tokens, 200, false, NULL));
        EXPECT_CHARGED(rf_session_generate(sessions[i], &generate, &result));
        RF_EXPECT_UINT(result.tokens, 8);
    }
    EXPECT_CHARGED(rf_sessions_eval(sessions, tokens, 2, NULL));
    for (int i = 0; i < 2; i++) rf_session_destroy(&sessions[i]);
    RF_ASSERT_OK(rf_engine_close(&engine));
    RF_EXPECT_UINT(rf_host_used(&runtime->host), 0);
    RF_EXPECT_INT(atomic_load(&held) - atomic_load(&charged), start);
    rf_runtime_destroy(&runtime);
}

/* ---- chunks ---- */

static double error_of_rows(const float *got, const float *wanted, size_t count) {
    double error = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = (double)got[i] - (double)wanted[i];
        error += difference * difference;
        size += (double)wanted[i] * (double)wanted[i];
    }
    return error / size;
}

enum { LONG = 500 };
/* The last row's logits of a prompt, by an engine with this budget and chunk. */
static rf_status logits_of(const char *path, uint64_t budget, uint32_t batch, float *row, uint32_t *chunk,
                           uint64_t *most, char notice[640]) {
    int32_t tokens[LONG];
    struct rf_engine *engine = NULL;
    struct rf_session *session = NULL;
    struct rf_runtime *runtime = runtime_of(budget);
    RF_ASSERT(runtime != NULL);
    RF_PARAMS(struct rf_engine_info, info);
    fill_tokens(tokens, LONG, 300);
    rf_status status = open_engine(runtime, path, LONG + 12, batch, 1, RF_KV_F32, &engine);
    if (!status) {
        RF_ASSERT_OK(rf_engine_get_info(engine, &info));
        *chunk = info.batch;
        snprintf(notice, 640, "%s", rf_engine_notice(engine));
        RF_ASSERT_OK(rf_session_create(engine, &session));
        RF_EXPECT_OK(rf_session_eval(session, tokens, LONG, false, row));
        *most = rf_host_used(&runtime->host);
        RF_EXPECT(*most <= budget);
        int32_t token;
        RF_EXPECT_OK(rf_session_sample(session, NULL, &token));
        RF_EXPECT_OK(rf_session_eval(session, &token, 1, false, NULL));
        RF_EXPECT(rf_host_used(&runtime->host) <= budget);
        rf_session_destroy(&session);
        RF_ASSERT_OK(rf_engine_close(&engine));
    }
    RF_EXPECT_UINT(rf_host_used(&runtime->host), 0);
    rf_runtime_destroy(&runtime);
    return status;
}

/* The smaller the budget, the smaller the chunks, down to single tokens. The same chunk gives the same bits; another
 * gives the same logits within the tolerance of any chunks. What no chunk makes possible is refused in one line. */
RF_TEST(host_memory, chunks_follow_the_budget, .timeout_ms = 600000) {
    const char *path = infer_model(&small, "small.gguf");
    float wanted[300], row[300], same[300];
    char notice[640], none[640];
    uint32_t chunk = 0, last = 512, sizes = 0;
    uint64_t most = 0, ignored;
    RF_ASSERT_OK(logits_of(path, 512 * MIB, 0, wanted, &chunk, &most, notice));
    RF_EXPECT_UINT(chunk, 512);
    RF_EXPECT_TEXT(notice, "");
    rf_status status = RF_OK;
    for (uint64_t budget = most; !status && budget > 64 << 10; budget -= budget / 24) {
        RF_TRACE("%llu bytes", (unsigned long long)budget);
        status = logits_of(path, budget, 0, row, &chunk, &most, notice);
        if (status) break;
        RF_EXPECT(chunk <= last);
        if (chunk < 512) RF_EXPECT_CONTAINS(notice, "tokens at a time instead of 512: the host budget of");
        RF_EXPECT_DOUBLE(error_of_rows(row, wanted, 300), 0, 1e-9);
        if (chunk == last) continue;
        sizes++;
        last = chunk;
        uint32_t kept = 0;
        RF_ASSERT_OK(logits_of(path, 512 * MIB, chunk, same, &kept, &ignored, none));
        RF_EXPECT_UINT(kept, chunk);
        RF_EXPECT(!memcmp(row, same, sizeof row));
    }
    RF_EXPECT(sizes >= 5);
    RF_EXPECT(last <= 16);
    RF_EXPECT(status == RF_E_NO_MEMORY || status == RF_E_BUDGET);
    RF_EXPECT_CONTAINS(rf_error_text(), "not even single tokens can run");
    RF_EXPECT_CONTAINS(rf_error_text(), "RF_HOST_BUDGET");
    RF_EXPECT(!strchr(rf_error_text(), '\n'));
}

/* A session that finds the budget taken by the runners of another gets those that the other did not use last. */
RF_TEST(host_memory, sessions_make_room_for_each_other) {
    const char *path = infer_model(&small, "small.gguf");
    int32_t tokens[40];
    struct rf_engine *engine = NULL;
    struct rf_session *first = NULL, *second = NULL;
    struct rf_runtime *runtime = runtime_of(512 * MIB);
    RF_ASSERT(runtime != NULL);
    fill_tokens(tokens, 40, 300);
    RF_ASSERT_OK(open_engine(runtime, path, 512, 64, 2, RF_KV_F32, &engine));
    RF_ASSERT_OK(rf_session_create(engine, &first));
    RF_ASSERT_OK(rf_session_create(engine, &second));
    float wanted[300], row[300];
    RF_ASSERT_OK(rf_session_eval(second, tokens, 40, false, wanted));
    rf_session_destroy(&second);
    RF_ASSERT_OK(rf_session_create(engine, &second));
    for (int i = 0; i < 4; i++) RF_ASSERT_OK(rf_session_eval(first, tokens, 40 - (size_t)i, false, NULL));
    RF_EXPECT_UINT(first->runner_count, 4);
    uint64_t limit = runtime->host.limit_bytes;
    runtime->host.limit_bytes = rf_host_used(&runtime->host) + 4096;
    RF_EXPECT_OK(rf_session_eval(second, tokens, 40, false, row));
    RF_EXPECT_DOUBLE(error_of_rows(row, wanted, 300), 0, 1e-9);
    RF_EXPECT_UINT(first->runner_count, 1);
    RF_EXPECT(rf_host_used(&runtime->host) <= runtime->host.limit_bytes);
    /* And back, for both at once. */
    RF_EXPECT_OK(rf_sessions_eval((struct rf_session *[]){first, second}, tokens, 2, NULL));
    RF_EXPECT(rf_host_used(&runtime->host) <= runtime->host.limit_bytes);
    runtime->host.limit_bytes = limit;
    rf_session_destroy(&first);
    rf_session_destroy(&second);
    RF_ASSERT_OK(rf_engine_close(&engine));
    RF_EXPECT_UINT(rf_host_used(&runtime->host), 0);
    rf_runtime_destroy(&runtime);
}

/* ---- each charge is refused once ---- */

/* A call that may be refused memory. If it is, it fails with that and succeeds when it is made again. */
static void expect_again(rf_status status, rf_status again, int *failed) {
    if (!status) return;
    RF_EXPECT_STATUS(status, RF_E_NO_MEMORY);
    RF_EXPECT_OK(again);
    ++*failed;
}
#define TRY(call)                                                                                                    \
    do {                                                                                                             \
        rf_status tried = (call);                                                                                    \
        expect_again(tried, tried ? (call) : RF_OK, &failed);                                                        \
    } while (0)

/* Opens an engine with two sessions and uses everything that takes memory. Returns how many calls were refused. */
static int use_everything(const char *path, const float *wanted, float *row) {
    static const struct rf_chat_message message = {.role = RF_CHAT_USER, .text = "x"};
    int32_t tokens[40], token = 0, *ids = NULL;
    size_t count = 0;
    int failed = 0;
    struct rf_engine *engine = NULL;
    struct rf_session *sessions[2] = {NULL, NULL};
    RF_PARAMS(struct rf_generate_params, generate);
    RF_PARAMS(struct rf_generate_result, result);
    struct rf_runtime *runtime = runtime_of(512 * MIB);
    RF_ASSERT(runtime != NULL);
    fill_tokens(tokens, 40, 300);
    TRY(open_engine(runtime, path, 256, 16, 2, RF_KV_F32, &engine));
    for (int i = 0; i < 2; i++) TRY(rf_session_create(engine, &sessions[i]));
    TRY(rf_chat_encode(engine, RF_CHAT_LLAMA2, &message, 1, &ids, &count));
    rf_token_ids_destroy(&ids);
    for (int i = 0; i < 2; i++) {
        RF_ASSERT_UINT(rf_session_length(sessions[i]), 0);
        TRY(rf_session_eval(sessions[i], tokens + rf_session_length(sessions[i]), 40 - rf_session_length(sessions[i]),
                            false, row));
        RF_EXPECT_UINT(rf_session_length(sessions[i]), 40);
        if (wanted) RF_EXPECT_DOUBLE(error_of_rows(row, wanted, 300), 0, 1e-9);
        TRY(rf_session_sample(sessions[i], NULL, &token));
    }
    TRY(rf_sessions_eval(sessions, tokens, 2, NULL));
    RF_EXPECT_UINT(rf_session_length(sessions[1]), 41);
    generate.max_tokens = 2;
    generate.ignore_end = true;
    TRY(rf_session_generate(sessions[0], &generate, &result));
    for (int i = 0; i < 2; i++) rf_session_destroy(&sessions[i]);
    RF_ASSERT_OK(rf_engine_close(&engine));
    RF_EXPECT_UINT(rf_host_used(&runtime->host), 0);
    rf_runtime_destroy(&runtime);
    return failed;
}

RF_TEST(host_memory, each_charge_is_refused_once, .timeout_ms = 600000) {
    const char *path = infer_model(&small, "small.gguf");
    float wanted[300], row[300];
    atomic_store(&charges, 0);
    RF_ASSERT_INT(use_everything(path, NULL, wanted), 0);
    long all = atomic_load(&charges);
    int failed = 0;
    RF_EXPECT(all > 40);
    for (long n = 0; n < all; n++) {
        RF_TRACE("charge %ld of %ld is refused", n, all);
        atomic_store(&countdown, n);
        int now = use_everything(path, wanted, row);
        RF_EXPECT(atomic_load(&countdown) < 0); /* it was */
        RF_EXPECT(now <= 1);
        failed += now;
        atomic_store(&countdown, -1);
    }
    RF_EXPECT(failed > 10);
    RF_EXPECT(failed < all); /* a runner that is refused is made smaller, or when others are gone */
}
