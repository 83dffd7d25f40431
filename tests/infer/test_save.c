/* Sessions in files: what is loaded goes on as what was saved, on every placement and type of KV cache; damaged and
 * foreign files are refused and change nothing. */
#include "infer_testing.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "infer/engine_impl.h"

enum { VOCABULARY = 96, CONTEXT = 600, PROMPT = 530, SAID = 8 }; /* the prompt has three pages */
static const struct spec small = {"llama",    "llama",       .layers = 3,        .width = 64,
                                  .heads = 2, .kv_heads = 1, .feed_forward = 64, .vocabulary = VOCABULARY};
static const struct spec other = {"llama",    "llama",       .layers = 3,        .width = 64,
                                  .heads = 2, .kv_heads = 1, .feed_forward = 64, .vocabulary = VOCABULARY,
                                  .seed = 77};
static const struct where on_cpu = {.label = "cpu"};
static const struct rf_engine_params usual = {.context = CONTEXT, .sessions = 2};

static const char *file_path(const char *name) {
    static char path[8][400];
    static int turn;
    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", gpu_folder(), name);
    return path[turn];
}
static void open_engine(struct infer *infer, const struct where *where, const struct spec *spec,
                        struct rf_engine_params params) {
    params.model = infer_model(spec, spec == &small ? "small.gguf" : "other.gguf");
    infer_open(infer, where, &params);
}
static void fill_prompt(int32_t *tokens, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) tokens[i] = (int32_t)((i * i * 7 + i / 5 + 3) % VOCABULARY);
}
static struct rf_session *prompted(struct infer *infer, uint32_t count) {
    int32_t tokens[PROMPT];
    struct rf_session *session = infer_session(infer);
    fill_prompt(tokens, count);
    RF_ASSERT_OK(rf_session_eval(session, tokens, count, false, NULL));
    return session;
}
/* Draws from what the session has, then goes on: tokens, and the logits after the last. */
struct said {
    int32_t tokens[SAID];
    float row[VOCABULARY];
};
static struct said go_on(struct rf_session *session) {
    struct said said;
    RF_PARAMS(struct rf_sample_params, params);
    params.temperature = 1.5f;
    params.seed = 5;
    for (int i = 0; i < SAID; i++) {
        RF_ASSERT_OK(rf_session_sample(session, &params, &said.tokens[i]));
        RF_ASSERT_OK(rf_session_eval(session, &said.tokens[i], 1, false, said.row));
    }
    return said;
}

/* ---- back and forth ---- */

struct place {
    const char *label;
    struct where where;
    enum rf_kv_type kv;
};
static const struct place places[] = {{"cpu", {.label = "cpu"}, RF_KV_F16},
                                      {"cpu_q8_0", {.label = "cpu"}, RF_KV_Q8_0},
                                      {"gpu", {.label = "gpu", .rfsim = ""}, RF_KV_F16},
                                      {"gpu_f32", {.label = "gpu", .rfsim = ""}, RF_KV_F32},
                                      {"gpu_q8_0", {.label = "gpu", .rfsim = ""}, RF_KV_Q8_0},
                                      {"split", {.label = "split", .rfsim = "", .device_layers = 1}, RF_KV_F16}};
RF_TEST_LABELLED_CASES(save, goes_on_as_if_nothing_happened, struct place, places, .gpu = true,
                       .timeout_ms = 1500000) {
    struct infer infer;
    struct rf_engine_params params = usual;
    const char *path = file_path("session");
    struct stat facts;
    int32_t held[PROMPT];
    params.kv = c->kv;
    infer_need(&c->where);
    open_engine(&infer, &c->where, &small, params);
    fill_prompt(held, PROMPT);
    for (uint32_t count = 1; count <= PROMPT; count += PROMPT - 1) {
        struct rf_session *saved = prompted(&infer, count);
        RF_ASSERT_OK(rf_session_save(saved, path));
        RF_EXPECT_UINT(rf_session_length(saved), count);
        struct said first = go_on(saved);
        rf_session_destroy(&saved);
        /* Another session, in another slot, that held something else. */
        struct rf_session *beside = prompted(&infer, 3), *loaded = prompted(&infer, 300);
        struct said before = go_on(beside);
        RF_ASSERT_OK(rf_session_rewind(beside, 3));
        RF_ASSERT_OK(rf_session_load(loaded, path));
        RF_EXPECT_UINT(rf_session_length(loaded), count);
        RF_EXPECT_UINT(rf_session_common(loaded, held, PROMPT), count);
        struct said second = go_on(loaded);
        for (int i = 0; i < SAID; i++) RF_EXPECT_INT(second.tokens[i], first.tokens[i]);
        RF_EXPECT(!memcmp(first.row, second.row, sizeof first.row));
        /* The session beside it has its own cache still. */
        RF_ASSERT_OK(rf_session_eval(beside, before.tokens, SAID - 1, false, NULL));
        RF_ASSERT_OK(rf_session_eval(beside, &before.tokens[SAID - 1], 1, false, second.row));
        RF_EXPECT(error_of_floats(second.row, before.row, VOCABULARY) <= 1e-6);
        rf_session_destroy(&beside);
        rf_session_destroy(&loaded);
    }
    RF_ASSERT_INT(stat(path, &facts), 0);
    RF_EXPECT_UINT(facts.st_mode & 0777, 0600);
    infer_close(&infer);
}

/* A file that a GPU wrote is read on the CPU, and the other way round. */
RF_TEST(save, moves_between_places, .gpu = true, .timeout_ms = 1500000) {
    static const struct where gpu = {.label = "gpu", .rfsim = ""};
    const char *path = file_path("session");
    struct said first;
    gpu_need_simulated("");
    for (int turn = 0; turn < 2; turn++) {
        struct infer infer;
        open_engine(&infer, turn ? &on_cpu : &gpu, &small, usual);
        struct rf_session *session = prompted(&infer, PROMPT);
        RF_ASSERT_OK(rf_session_save(session, path));
        first = go_on(session);
        rf_session_destroy(&session);
        infer_close(&infer);
        open_engine(&infer, turn ? &gpu : &on_cpu, &small, usual);
        session = infer_session(&infer);
        RF_ASSERT_OK(rf_session_load(session, path));
        RF_EXPECT_UINT(rf_session_length(session), PROMPT);
        float row[VOCABULARY];
        RF_ASSERT_OK(rf_session_eval(session, first.tokens, SAID, false, row));
        RF_EXPECT(error_of_floats(row, first.row, VOCABULARY) <= 1e-5);
        rf_session_destroy(&session);
        infer_close(&infer);
    }
}

/* Without logits, and without tokens. */
RF_TEST(save, what_there_is) {
    struct infer infer;
    const char *path = file_path("session");
    int32_t token;
    open_engine(&infer, &on_cpu, &small, usual);
    struct rf_session *session = prompted(&infer, 20), *loaded = prompted(&infer, 5);
    RF_ASSERT_OK(rf_session_rewind(session, 10));
    RF_ASSERT_OK(rf_session_save(session, path));
    RF_ASSERT_OK(rf_session_load(loaded, path));
    RF_EXPECT_UINT(rf_session_length(loaded), 10);
    RF_EXPECT_STATUS(rf_session_sample(loaded, NULL, &token), RF_E_INVALID);
    RF_ASSERT_OK(rf_session_rewind(session, 0));
    RF_ASSERT_OK(rf_session_save(session, path)); /* in place of the old one */
    RF_ASSERT_OK(rf_session_load(loaded, path));
    RF_EXPECT_UINT(rf_session_length(loaded), 0);
    rf_session_destroy(&session);
    rf_session_destroy(&loaded);
    infer_close(&infer);
}

/* ---- refusals ---- */

struct image {
    char *bytes;
    size_t count;
};
static struct image read_image(const char *path) {
    struct stat facts;
    RF_ASSERT_INT(stat(path, &facts), 0);
    struct image image = {allocate((size_t)facts.st_size, 1), (size_t)facts.st_size};
    FILE *file = fopen(path, "rb");
    RF_ASSERT(file && fread(image.bytes, 1, image.count, file) == image.count);
    fclose(file);
    return image;
}
static void write_image(const char *path, const char *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    RF_ASSERT(file && fwrite(bytes, 1, count, file) == count);
    fclose(file);
}
/* Refused, in one line that names the file, and the session is as it was. */
static rf_status refused(struct rf_session *session, const char *path, const struct said *expected) {
    uint32_t length = rf_session_length(session);
    rf_status status = rf_session_load(session, path);
    RF_ASSERT(status != RF_OK);
    RF_EXPECT_CONTAINS(rf_error_text(), path);
    RF_EXPECT(!strchr(rf_error_text(), '\n'));
    RF_ASSERT_UINT(rf_session_length(session), length);
    struct said said = go_on(session);
    RF_ASSERT(!memcmp(&said, expected, sizeof said));
    RF_ASSERT_OK(rf_session_rewind(session, length - 1));
    int32_t last[PROMPT];
    fill_prompt(last, length);
    RF_ASSERT_OK(rf_session_eval(session, &last[length - 1], 1, false, NULL));
    return status;
}

/* Every byte of the header, and many others, changed; cut at many places; longer. */
RF_TEST(save, damaged_files_are_refused, .timeout_ms = 600000) {
    enum { HELD = 9, HEADER = 64 };
    struct infer infer;
    const char *path = file_path("session"), *damaged = file_path("damaged");
    struct rf_random random = {rf_test_seed()};
    open_engine(&infer, &on_cpu, &small, usual);
    struct rf_session *session = prompted(&infer, 40), *victim = prompted(&infer, HELD - 1);
    int32_t tokens[HELD];
    fill_prompt(tokens, HELD);
    RF_ASSERT_OK(rf_session_eval(victim, &tokens[HELD - 1], 1, false, NULL));
    struct said said = go_on(victim);
    RF_ASSERT_OK(rf_session_rewind(victim, HELD - 1));
    RF_ASSERT_OK(rf_session_eval(victim, &tokens[HELD - 1], 1, false, NULL));
    RF_ASSERT_OK(rf_session_save(session, path));
    struct image image = read_image(path);
    for (size_t i = 0; i < HEADER + 200; i++) {
        size_t at = i < HEADER ? i : HEADER + rf_random_below(&random, image.count - HEADER);
        char flip = (char)(1 << rf_random_below(&random, 8));
        RF_TRACE("byte %zu of %zu, %d", at, image.count, flip);
        image.bytes[at] = (char)(image.bytes[at] ^ flip);
        write_image(damaged, image.bytes, image.count);
        rf_status status = refused(victim, damaged, &said);
        RF_EXPECT(at < HEADER ? status == RF_E_CORRUPT || status == RF_E_INVALID || status == RF_E_UNSUPPORTED
                              : status == RF_E_CORRUPT);
        image.bytes[at] = (char)(image.bytes[at] ^ flip);
    }
    for (size_t i = 0; i < 40; i++) {
        size_t count = i < 4 ? i * 21 : i == 4 ? image.count - 1 : rf_random_below(&random, image.count);
        RF_TRACE("%zu of %zu bytes", count, image.count);
        write_image(damaged, image.bytes, count);
        RF_EXPECT_STATUS(refused(victim, damaged, &said), RF_E_CORRUPT);
    }
    char *longer = allocate(image.count + 8, 1);
    memcpy(longer, image.bytes, image.count);
    write_image(damaged, longer, image.count + 8);
    RF_EXPECT_STATUS(refused(victim, damaged, &said), RF_E_CORRUPT);
    RF_ASSERT_OK(rf_session_load(victim, path)); /* the one that is whole */
    RF_EXPECT_UINT(rf_session_length(victim), 40);
    free(longer);
    free(image.bytes);
    rf_session_destroy(&session);
    rf_session_destroy(&victim);
    infer_close(&infer);
}

/* Of another model, another type of KV cache, for a longer context; no file at all. */
RF_TEST(save, foreign_files_are_refused, .timeout_ms = 600000) {
    struct infer infer;
    const char *path = file_path("session");
    open_engine(&infer, &on_cpu, &small, usual);
    struct rf_session *session = prompted(&infer, 40);
    RF_ASSERT_OK(rf_session_save(session, path));
    RF_EXPECT_STATUS(rf_session_load(session, file_path("nothing")), RF_E_NOT_FOUND);
    RF_EXPECT_STATUS(rf_session_load(session, gpu_folder()), RF_E_CORRUPT);
    RF_EXPECT_CONTAINS(rf_error_text(), "it is no file");
    RF_EXPECT_STATUS(rf_session_load(session, ""), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_session_load(NULL, path), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_session_save(session, NULL), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_session_save(session, file_path("no/folder")), RF_E_NOT_FOUND);
    RF_EXPECT_UINT(rf_session_length(session), 40);
    rf_session_destroy(&session);
    infer_close(&infer);
    const struct {
        const struct spec *spec;
        struct rf_engine_params params;
        const char *why;
    } engines[] = {{&other, usual, "another model"},
                   {&small, {.context = CONTEXT, .sessions = 2, .kv = RF_KV_F32}, "another type of KV cache"},
                   {&small, {.context = 39, .sessions = 2}, "holds 40 tokens, the context 39"}};
    for (size_t i = 0; i < RF_COUNT(engines); i++) {
        open_engine(&infer, &on_cpu, engines[i].spec, engines[i].params);
        session = prompted(&infer, 5);
        RF_EXPECT_STATUS(rf_session_load(session, path), RF_E_INVALID);
        RF_EXPECT_CONTAINS(rf_error_text(), engines[i].why);
        RF_EXPECT_UINT(rf_session_length(session), 5);
        rf_session_destroy(&session);
        infer_close(&infer);
    }
}

/* A disk that is full: the old file stays, and nothing is left beside it. */
RF_TEST(save, a_file_that_cannot_be_written, .timeout_ms = 600000) {
    struct infer infer;
    const char *path = file_path("session");
    struct rlimit before, small_files;
    open_engine(&infer, &on_cpu, &small, usual);
    struct rf_session *session = prompted(&infer, 40);
    RF_ASSERT_OK(rf_session_save(session, path));
    struct image image = read_image(path);
    RF_ASSERT_OK(rf_session_eval(session, (int32_t[]){7}, 1, false, NULL));
    signal(SIGXFSZ, SIG_IGN);
    RF_ASSERT_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    small_files = before;
    small_files.rlim_cur = image.count / 2;
    RF_ASSERT_INT(setrlimit(RLIMIT_FSIZE, &small_files), 0);
    rf_status status = rf_session_save(session, path);
    char text[300];
    snprintf(text, sizeof text, "%s", rf_error_text());
    RF_ASSERT_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    RF_EXPECT_STATUS(status, RF_E_IO);
    RF_EXPECT_CONTAINS(text, "File too large");
    struct image after = read_image(path);
    RF_EXPECT(after.count == image.count && !memcmp(after.bytes, image.bytes, image.count));
    char beside[500];
    snprintf(beside, sizeof beside, "%s.%ld.new", path, (long)getpid());
    RF_EXPECT_INT(access(beside, F_OK), -1);
    RF_ASSERT_OK(rf_session_save(session, path));
    RF_ASSERT_OK(rf_session_load(session, path));
    RF_EXPECT_UINT(rf_session_length(session), 41);
    free(image.bytes);
    free(after.bytes);
    rf_session_destroy(&session);
    infer_close(&infer);
}

/* ---- faults ---- */

/* What a load came to, with a fault or without; the simulated driver reads RFSIM once, so each has a process. */
struct outcome {
    uint64_t copies[2]; /* to the device, before and after */
    rf_status status, again;
    uint32_t length;
    struct said first, second; /* what the saved session said, and the loaded one in the end */
};
static struct outcome load_with(const char *rfsim) {
    struct outcome outcome = {0};
    struct infer infer;
    const struct where gpu = {.label = "gpu", .rfsim = rfsim};
    const char *path = file_path("session");
    gpu_need_simulated(rfsim);
    open_engine(&infer, &gpu, &small, usual);
    struct rf_session *session = prompted(&infer, 300);
    RF_ASSERT_OK(rf_session_save(session, path));
    outcome.first = go_on(session);
    outcome.copies[0] = gpu_sim_entry_calls("hipMemcpyHtoDAsync");
    outcome.status = rf_session_load(session, path);
    outcome.copies[1] = gpu_sim_entry_calls("hipMemcpyHtoDAsync");
    outcome.length = rf_session_length(session);
    outcome.again = outcome.status ? rf_session_load(session, path) : RF_OK;
    if (!outcome.again) outcome.second = go_on(session);
    rf_session_destroy(&session);
    rf_engine_close(&infer.engine);
    rf_runtime_destroy(&infer.gpu.runtime);
    RF_EXPECT_UINT(gpu_sim_traps(), 0);
    return outcome;
}
static struct outcome load_in_child(const char *rfsim) {
    struct outcome outcome;
    int ends[2], status = 0;
    RF_ASSERT_INT(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    RF_ASSERT(child >= 0);
    if (!child) {
        struct outcome made = load_with(rfsim);
        _exit(write(ends[1], &made, sizeof made) == (ssize_t)sizeof made ? 0 : 1);
    }
    close(ends[1]);
    ssize_t got = read(ends[0], &outcome, sizeof outcome);
    close(ends[0]);
    RF_ASSERT_INT(waitpid(child, &status, 0), child);
    RF_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0 && got == (ssize_t)sizeof outcome);
    return outcome;
}
/* A copy to the device fails: the session is empty, and the next load is whole; or the device is lost. */
RF_TEST(save, a_device_that_refuses_copies, .timeout_ms = 1500000, .tags = "faults") {
    gpu_need_simulated("");
    struct outcome whole = load_in_child("");
    uint64_t copies = whole.copies[1] - whole.copies[0];
    RF_ASSERT_OK(whole.status);
    RF_ASSERT(copies >= 12); /* two pages of keys and of values, of three layers */
    RF_EXPECT(!memcmp(&whole.first, &whole.second, sizeof whole.first));
    for (uint64_t i = 0; i < copies; i += 5) {
        for (int lost = 0; lost < 2; lost++) {
            char rfsim[64];
            snprintf(rfsim, sizeof rfsim, "fault=hipMemcpyHtoDAsync:%llu:%s",
                     (unsigned long long)(whole.copies[0] + 1 + i), lost ? "719" : "1");
            RF_TRACE("%s", rfsim);
            struct outcome outcome = load_in_child(rfsim);
            RF_EXPECT_STATUS(outcome.status, lost ? RF_E_DEVICE_LOST : RF_E_DRIVER);
            RF_EXPECT_UINT(outcome.length, 0);
            RF_EXPECT_STATUS(outcome.again, lost ? RF_E_DEVICE_LOST : RF_OK);
            if (!lost) RF_EXPECT(!memcmp(&outcome.first, &outcome.second, sizeof outcome.first));
        }
    }
}
