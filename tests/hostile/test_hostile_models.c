/* Structured mutants of model files (gguf_mutate.h) on the CPU with a small host budget: each is refused with one
 * line, or it is a model whose logits are finite. None crashes, hangs, leaks or asks for much memory.
 *
 * The mutants run in child processes, some hundred in each, so that the parent knows which one a crash or a hang
 * belongs to, and goes on behind it. */
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../infer/infer_testing.h"
#include "../refused_memory.h"
#include "cpu/quant.h"
#include "gguf_mutate.h"
#include "hostile_testing.h"

enum { BATCH = 200, TOKENS = 3, SILENT_S = 300 };
/* A single request may take all of the budget, and not much more. */
#define HOST_BUDGET "RF_HOST_BUDGET=48MiB"
#define REQUEST_MAX ((size_t)64 << 20)
#define PEAK_MAX_KIB (512L * 1024) /* as in test_damage.c: a sanitizer keeps freed memory for a while */

/* ---- the models ---- */

struct subject {
    const char *label;
    int mutants; /* in the short form */
};
static const struct subject subjects[] = {
    {"oracle", 2500}, {"words", 2500}, {"chat", 2500}, {"bundled", 150}, /* larger: 3.7 MiB each */
};

/* Written to this process's folder if it is made here. */
static const char *model_path(const struct subject *subject) {
    static struct script script;
    const char *path = scratch_path("whole.gguf");
    if (!strcmp(subject->label, "oracle")) return TEST_DATA "/oracle/llama-q4_0.gguf";
    if (!strcmp(subject->label, "bundled")) return BUNDLED_MODEL;
    if (!strcmp(subject->label, "words")) { /* llama's tokenizer: scores, bytes, types */
        script_begin(&script, false);
        script_say(&script, script_byte('?'), "Grün!", 2);
    } else { /* gpt2's: merges, a pre-tokenizer, and a chat's tokens and template */
        script_begin(&script, true);
        script.merges[0] = "a b";
        script.merges[1] = "ab c";
        script.pre = "llama-bpe";
        script.chat_template = "{% for m in messages %}<|im_start|>{{ m }}<|im_end|>{% endfor %}";
        script_add(&script, "ab", RF_TOKEN_NORMAL);
        script_add(&script, "abc", RF_TOKEN_NORMAL);
        script_add(&script, "<|im_start|>", RF_TOKEN_CONTROL);
        int32_t end = script_add(&script, "<|im_end|>", RF_TOKEN_CONTROL);
        script_say(&script, script_byte('\n'), "yes", end);
    }
    script_write(&script, path);
    return path;
}

/* ---- one mutant, in a child process ---- */

/* What the child tells its parent. */
struct shared {
    _Atomic uint64_t seed;          /* of the mutant that is being tried */
    _Atomic int refused, ran, wild; /* wild: of those that ran, with garbage as weights */
    char why[1024];
};

static const char *say(struct shared *shared, const char *format, ...) RF_PRINTF(2, 3);
static const char *say(struct shared *shared, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(shared->why, sizeof shared->why, format, args);
    va_end(args);
    return shared->why;
}

static bool take_text(void *user, const char *text, size_t bytes) {
    *(size_t *)user += bytes + (text ? 0 : 1);
    return true;
}

/* Text to ids and back, a conversation, and a few tokens of an answer. A failure is fine if it has a reason. */
static rf_status use_text(struct rf_engine *engine, struct rf_session *session) {
    static const char text[] = "a abc <s>\n\xc3\xbc\xff <|im_start|>!";
    const struct rf_tokenizer *tokenizer = rf_engine_tokenizer(engine);
    const struct rf_chat_message message = {.role = RF_CHAT_USER, .text = text};
    int32_t *ids = NULL;
    size_t count = 0, generated = 0;
    RF_PARAMS(struct rf_generate_params, params);
    RF_PARAMS(struct rf_generate_result, result);
    params.max_tokens = TOKENS;
    params.text = take_text;
    params.user = &generated;
    rf_status status = rf_session_generate(session, &params, &result);
    if (status || !tokenizer) return status;
    status = rf_tokenizer_encode(tokenizer, text, sizeof text - 1, NULL, &ids, &count);
    char *back = NULL;
    size_t bytes = 0;
    if (!status) status = rf_tokenizer_decode(tokenizer, ids, count, NULL, &back, &bytes);
    rf_text_destroy(&back);
    rf_token_ids_destroy(&ids);
    if (status) return status;
    status = rf_chat_encode(engine, rf_engine_chat_format(engine), &message, 1, &ids, &count);
    rf_token_ids_destroy(&ids);
    return rf_engine_chat_format(engine) == RF_CHAT_NONE ? RF_OK : status;
}

/* What a file can be refused for. */
static const char FILES_FAULT[] = {
    RF_E_SYNTAX, RF_E_UNSUPPORTED, RF_E_NOT_FOUND, RF_E_NO_MEMORY, RF_E_INVALID, RF_E_BUDGET, 0};

static bool is_one_line(const char *text) {
    return *text && !strpbrk(text, "\n\r\x1b") && strlen(text) < 1000;
}

/* Whether the weights are garbage: what another type, an offset or an alignment makes of them can be anything, NaN
 * included, and then so can the logits. Sound weights are far below the bound. */
static bool has_wild_weights(const char *path) {
    struct rf_gguf *gguf = NULL;
    bool wild = false;
    float some[256];
    if (rf_gguf_open(path, &gguf)) return false;
    for (size_t t = 0; t < rf_gguf_tensor_count(gguf) && !wild; t++) {
        const struct rf_gguf_tensor *tensor = rf_gguf_tensor_at(gguf, t);
        size_t block = rf_dtype_block(tensor->dtype), block_bytes = rf_dtype_block_bytes(tensor->dtype);
        if (block > RF_COUNT(some) || tensor->dtype == RF_I32) continue; /* not a weight's type */
        for (uint64_t i = 0; i < tensor->elements / block && !wild; i++) {
            rf_dequantize_row(tensor->dtype, (const unsigned char *)tensor->data + i * block_bytes, some, block);
            for (size_t k = 0; k < block; k++) wild = wild || !(fabsf(some[k]) < 1e4f);
        }
    }
    rf_gguf_close(&gguf);
    return wild;
}

/* NULL: as it must be. */
static const char *try_mutant(struct rf_runtime *runtime, const char *path, struct shared *shared) {
    RF_PARAMS(struct rf_engine_params, params);
    RF_PARAMS(struct rf_engine_info, info);
    struct rf_engine *engine = NULL;
    struct rf_session *session = NULL;
    float *logits = NULL;
    const char *wrong = NULL;
    int32_t tokens[TOKENS];
    params.runtime = runtime;
    params.model = path;
    params.device = "cpu";
    params.threads = 1;
    params.context = 64;
    rf_status status = rf_engine_open(&params, &engine);
    if (status && engine) return "an engine in spite of a failure";
    if (!status) status = rf_engine_get_info(engine, &info);
    if (!status) status = rf_session_create(engine, &session);
    if (!status && !(logits = malloc((size_t)TOKENS * info.vocabulary * sizeof *logits))) wrong = "no memory";
    if (!status && !wrong) {
        for (int i = 0; i < TOKENS; i++) tokens[i] = (int32_t)((uint32_t)i % info.vocabulary);
        status = rf_session_eval(session, tokens, TOKENS, true, logits);
    }
    for (size_t i = 0; !status && !wrong && i < (size_t)TOKENS * info.vocabulary; i++)
        if (!isfinite(logits[i])) {
            atomic_fetch_add(&shared->wild, 1);
            if (!has_wild_weights(path)) wrong = say(shared, "logit %zu is %g", i, (double)logits[i]);
            break;
        }
    if (!status && !wrong) status = use_text(engine, session);
    if (status && !is_one_line(rf_error_text()))
        wrong = say(shared, "%s, but its reason is not one line: %s", rf_status_name(status), rf_error_text());
    /* Sampling refuses logits that are not numbers. */
    if (status && !strchr(FILES_FAULT, (int)status) && !(status == RF_E_CORRUPT && has_wild_weights(path)))
        wrong = say(shared, "%s: %s", rf_status_name(status), rf_error_text());
    atomic_fetch_add(status ? &shared->refused : &shared->ran, 1);
    free(logits);
    rf_session_destroy(&session);
    if (rf_engine_close(&engine) != RF_OK && !wrong) wrong = "the engine is not closed";
    return wrong;
}

extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static void child(const unsigned char *bytes, size_t size, const char *path, uint64_t first, uint64_t count,
                  struct shared *shared) {
    static const char *const options[] = {HOST_BUDGET, "RF_DRIVER=none", NULL};
    RF_PARAMS(struct rf_runtime_params, params);
    struct rf_runtime *runtime = NULL;
    struct blob mutant = {0};
    struct gguf_mutation mutation;
    const char *wrong = NULL;
    params.options = options;
    if (rf_runtime_create(&params, &runtime)) wrong = say(shared, "no runtime: %s", rf_error_text());
    for (uint64_t i = 0; i < count && !wrong; i++) {
        atomic_store(&shared->seed, first + i);
        mutant.used = 0;
        gguf_mutate(bytes, size, first + i, &mutant, &mutation);
        write_bytes(path, mutant.data, mutant.used);
        atomic_store(&largest_request, 0);
        wrong = try_mutant(runtime, path, shared);
        size_t largest = atomic_load(&largest_request);
        if (!wrong && largest > REQUEST_MAX) wrong = say(shared, "%zu bytes were asked for at once", largest);
    }
    blob_free(&mutant);
    rf_runtime_destroy(&runtime);
    struct rusage usage;
    if (!wrong && __lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check()) wrong = "memory is leaked";
    if (!wrong && getrusage(RUSAGE_SELF, &usage) == 0 && usage.ru_maxrss > PEAK_MAX_KIB)
        wrong = say(shared, "these mutants took %ld KiB", usage.ru_maxrss);
    if (wrong && wrong != shared->why) say(shared, "%s", wrong);
    _exit(wrong != NULL);
}

/* ---- in the parent ---- */

/* Waits for the child's end; a mutant that takes SILENT_S is a hang. */
static int await_child(pid_t pid, struct shared *shared) {
    uint64_t seed = atomic_load(&shared->seed);
    int64_t since = hostile_now_ms();
    for (int status;;) {
        pid_t ended = waitpid(pid, &status, WNOHANG);
        RF_ASSERT(ended >= 0);
        if (ended == pid) return status;
        if (atomic_load(&shared->seed) != seed) {
            seed = atomic_load(&shared->seed);
            since = hostile_now_ms();
        } else if (hostile_now_ms() - since > SILENT_S * 1000) {
            say(shared, "it hangs");
            kill(pid, SIGKILL);
        }
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
}

static void report(const struct subject *subject, const unsigned char *bytes, size_t size, int status,
                   struct shared *shared) {
    uint64_t seed = atomic_load(&shared->seed);
    struct blob mutant = {0};
    struct gguf_mutation mutation;
    char changes[GGUF_MUTATIONS_MAX * (GGUF_MUTATION_TEXT + 8)] = "";
    gguf_mutate(bytes, size, seed, &mutant, &mutation);
    blob_free(&mutant);
    for (int i = 0; i < mutation.count; i++) {
        strcat(changes, "\n  ");
        strcat(changes, mutation.text[i]);
    }
    if (WIFSIGNALED(status) && !shared->why[0]) say(shared, "it died of SIG%s", sigabbrev_np(WTERMSIG(status)));
    if (!shared->why[0]) say(shared, "it ended with status %d", WEXITSTATUS(status));
    rf_test_fail(__FILE__, __LINE__, false,
                 "mutant %llu of %s: %s%s\n  again: %s 'hostile_models.one/%s' --seed %llu --show-output",
                 (unsigned long long)seed, subject->label, shared->why, changes, hostile_program(), subject->label,
                 (unsigned long long)seed);
}

#define TALLY "%d mutants were refused, %d are models, %d of them with garbage as weights"
/* Tries the mutants of 'count' seeds from 'first' on, to the end even where some are wrong. */
static void try_mutants(const struct subject *subject, uint64_t first, uint64_t count, int tally[3]) {
    size_t size;
    unsigned char *bytes = read_bytes(model_path(subject), &size);
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_path("mutant.gguf"));
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    RF_ASSERT(shared != MAP_FAILED);
    int failures = 0;
    for (uint64_t end = first + count; first != end && failures < 20;) {
        uint64_t some = RF_MIN(end - first, (uint64_t)BATCH);
        shared->why[0] = 0;
        atomic_store(&shared->seed, first);
        pid_t pid = fork();
        RF_ASSERT(pid >= 0);
        if (!pid) child(bytes, size, path, first, some, shared);
        int status = await_child(pid, shared);
        first = status ? atomic_load(&shared->seed) + 1 : first + some;
        if (status) report(subject, bytes, size, status, shared), failures++;
    }
    tally[0] += atomic_load(&shared->refused);
    tally[1] += atomic_load(&shared->ran);
    tally[2] += atomic_load(&shared->wild);
    munmap(shared, sizeof *shared);
    free(bytes);
}

/* The mutant of the seed itself: what a failure names. */
RF_TEST_LABELLED_CASES(hostile_models, one, struct subject, subjects, .timeout_ms = 600000) {
    int tally[3] = {0};
    try_mutants(c, rf_test_seed(), 1, tally);
    RF_NOTE("seed %llu: %s", (unsigned long long)rf_test_seed(), tally[1] ? "a model" : "refused");
}

RF_TEST_LABELLED_CASES(hostile_models, short_form, struct subject, subjects, .timeout_ms = 600000) {
    int tally[3] = {0};
    try_mutants(c, rf_test_seed() * 1000003, (uint64_t)c->mutants, tally);
    RF_NOTE(TALLY, tally[0], tally[1], tally[2]);
    RF_EXPECT(tally[0] > c->mutants / 4 && tally[1] > c->mutants / 20);
}

RF_TEST_LABELLED_CASES(hostile_models, long_form, struct subject, subjects, .tags = "slow,hostile",
                       .timeout_ms = HOSTILE_LONG_MS) {
    int tally[3] = {0};
    int64_t end = hostile_now_ms() + hostile_seconds() * 1000 / (int64_t)RF_COUNT(subjects);
    for (uint64_t first = rf_test_seed() * 1000003; hostile_now_ms() < end; first += 1000)
        try_mutants(c, first, 1000, tally);
    RF_NOTE(TALLY, tally[0], tally[1], tally[2]);
}
