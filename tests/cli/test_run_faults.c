/* run with a GPU that is lost, hangs, or takes its process down at some point: the answer is complete all the same.
 *
 * What was said before the fault is what the undisturbed run says, and what follows is what the CPU says behind those
 * tokens, to the byte. For that a random model has a vocabulary in which every token is another character: the text
 * tells the tokens, and the notice how many of them came from the GPU. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run_testing.h"

/* A sanitizer would turn a crash into an exit, and write pages about it. */
#define PLAIN_CRASHES "ASAN_OPTIONS=handle_segv=0 TSAN_OPTIONS=handle_segv=0 "
#define PROMPT "tell"
enum { VOCABULARY = 96, TOKENS = 40 };

/* Printable characters but the space, then two of two bytes. */
static void spell(int32_t token, char text[4]) {
    static const char *const wide[] = {"é", "ß"};
    int letters = '~' - '!' + 1;
    if (token < letters)
        snprintf(text, 4, "%c", '!' + token);
    else
        snprintf(text, 4, "%s", wide[token - letters]);
}

static void add_letters(struct rf_gguf_writer *writer) {
    static char spelt[VOCABULARY][4];
    struct rf_gguf_string texts[VOCABULARY];
    float scores[VOCABULARY] = {0};
    static const char *const ids[] = {"bos", "eos", "unknown"};
    for (int32_t i = 0; i < VOCABULARY; i++) {
        spell(i, spelt[i]);
        texts[i] = (struct rf_gguf_string){spelt[i], strlen(spelt[i])};
    }
    rf_gguf_write_string(writer, "tokenizer.ggml.model", "llama");
    rf_gguf_write_strings(writer, "tokenizer.ggml.tokens", texts, VOCABULARY);
    rf_gguf_write_array(writer, "tokenizer.ggml.scores", RF_GGUF_F32, scores, VOCABULARY);
    for (size_t i = 0; i < RF_COUNT(ids); i++) { /* there are none */
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ids[i]);
        rf_gguf_write_u32(writer, key, UINT32_MAX);
    }
    rf_gguf_write_bool(writer, "tokenizer.ggml.add_bos_token", false);
    rf_gguf_write_bool(writer, "tokenizer.ggml.add_space_prefix", false);
}

static const struct spec letters = {"letters",          "llama",       .layers = 2,        .width = 64,
                                    .heads = 2,         .kv_heads = 1, .feed_forward = 64, .vocabulary = VOCABULARY,
                                    .more = add_letters};
#define LETTERS                                                                                                      \
    "run -m letters.gguf -p " PROMPT " -n 40 --temp 1.5 --top-k 0 --top-p 1 --min-p 0 --seed 5 --ctx 64 --threads "  \
    "2 "

/* ---- what must come out ---- */

/* Launches of these, counted when the engine was open and when the answer was there. */
static const char *const entries[] = {"hipGraphLaunch", "hipModuleLaunchKernel"};
struct launches {
    uint64_t opened, done;
};

struct expected {
    struct infer infer; /* on the CPU */
    struct rf_session *session;
    int32_t prompt[sizeof PROMPT];
    size_t prompt_count;
    char gpu_text[512];
    int32_t gpu_tokens[TOKENS];
    size_t gpu_count, starts[TOKENS + 1];           /* of the tokens, in the text */
    struct launches launches[2][RF_COUNT(entries)]; /* with replay, and without */
};

static const struct rf_sample_params sampling = {
    .struct_size = sizeof sampling, .temperature = 1.5f, .top_p = 1, .penalty_window = 64, .seed = 5};

static bool keep_token(void *user, int32_t token) {
    struct expected *expected = user;
    char text[4];
    spell(token, text);
    if (expected->gpu_count == TOKENS) return false;
    expected->gpu_tokens[expected->gpu_count++] = token;
    strcat(expected->gpu_text, text);
    expected->starts[expected->gpu_count] = strlen(expected->gpu_text);
    return true;
}

static void count_launches(struct launches *launches, bool done) {
    for (size_t i = 0; i < RF_COUNT(entries); i++)
        *(done ? &launches[i].done : &launches[i].opened) = gpu_sim_entry_calls(entries[i]);
}

/* The undisturbed answer, and in how many launches it comes. */
static void ask_gpu(struct expected *expected, const char *path, bool no_replay) {
    const struct where gpu = {.label = "gpu", .rfsim = "", .no_replay = no_replay};
    RF_PARAMS(struct rf_generate_params, params);
    RF_PARAMS(struct rf_generate_result, result);
    struct infer infer;
    struct launches before[RF_COUNT(entries)], *launches = expected->launches[no_replay];
    count_launches(before, false);
    infer_open(&infer, &gpu, &(struct rf_engine_params){.model = path, .context = 64});
    struct rf_session *session = infer_session(&infer);
    count_launches(launches, false);
    params.sampling = &sampling;
    params.max_tokens = TOKENS;
    params.token = keep_token;
    params.user = expected;
    expected->gpu_count = 0;
    expected->gpu_text[0] = 0;
    RF_ASSERT_OK(rf_session_eval(session, expected->prompt, expected->prompt_count, false, NULL));
    RF_ASSERT_OK(rf_session_generate(session, &params, &result));
    RF_ASSERT_UINT(expected->gpu_count, TOKENS);
    count_launches(launches, true);
    for (size_t i = 0; i < RF_COUNT(entries); i++) {
        launches[i].opened -= before[i].opened;
        launches[i].done -= before[i].opened;
    }
    rf_session_destroy(&session);
    infer_close(&infer);
}

static void expected_begin(struct expected *expected) {
    static const struct where cpu = {.label = "cpu"};
    int32_t *ids = NULL;
    *expected = (struct expected){0};
    command_folder();
    const char *path = infer_model(&letters, "letters.gguf");
    infer_open(&expected->infer, &cpu, &(struct rf_engine_params){.model = path, .context = 64});
    expected->session = infer_session(&expected->infer);
    const struct rf_tokenizer *tokenizer = rf_engine_tokenizer(expected->infer.engine);
    RF_ASSERT_OK(rf_tokenizer_encode(tokenizer, PROMPT, strlen(PROMPT), NULL, &ids, &expected->prompt_count));
    RF_ASSERT_UINT(expected->prompt_count, strlen(PROMPT));
    memcpy(expected->prompt, ids, expected->prompt_count * sizeof *ids);
    rf_token_ids_destroy(&ids);
    for (int no_replay = 0; no_replay < 2; no_replay++) {
        ask_gpu(expected, path, no_replay);
        RF_ASSERT_INT(command_run("RF_DRIVER=sim", no_replay ? LETTERS "--device gpu --no-replay" : LETTERS), 0);
        RF_ASSERT_TEXT(command_errors, "");
        command_output[command_output_bytes - 1] = 0; /* the newline */
        RF_ASSERT_TEXT(command_output, expected->gpu_text);
    }
}
static void expected_end(struct expected *expected) {
    rf_session_destroy(&expected->session);
    infer_close(&expected->infer);
}

static bool hear(void *user, const char *text, size_t bytes) {
    strncat(user, text, bytes);
    return true;
}

/* So many tokens by the GPU, and what the CPU says behind them. */
static void expected_text(struct expected *expected, size_t from_gpu, char text[512]) {
    struct rf_session *session = expected->session;
    RF_PARAMS(struct rf_generate_params, params);
    RF_PARAMS(struct rf_generate_result, result);
    int32_t all[sizeof PROMPT + TOKENS];
    size_t count = expected->prompt_count;
    params.sampling = &sampling;
    params.max_tokens = TOKENS;
    params.text = hear;
    params.user = text;
    params.said = expected->gpu_tokens;
    params.said_count = from_gpu;
    params.said_bytes = expected->starts[from_gpu];
    memcpy(all, expected->prompt, count * sizeof *all);
    memcpy(all + count, expected->gpu_tokens, from_gpu * sizeof *all);
    snprintf(text, 512, "%.*s", (int)params.said_bytes, expected->gpu_text);
    RF_ASSERT_OK(rf_session_rewind(session, 0));
    RF_ASSERT_OK(rf_session_eval(session, all, count + from_gpu, false, NULL));
    RF_ASSERT_OK(rf_session_generate(session, &params, &result));
}

/* ---- faults at random launches ---- */

static const char *const kinds[] = {"hang",       "loss",     "abort", "work/hang", "work/loss",
                                    "work/abort", "work/719", "crash", "exit/3"};

struct tally {
    int runs, lost, unopened, behind, unharmed;
    size_t tokens_by_gpu;
};

static void run_with_fault(struct expected *expected, uint64_t seed, struct tally *tally) {
    char environment[256], text[512];
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15);
    random ^= random >> 29;
    random *= UINT64_C(0xbf58476d1ce4e5b9);
    random ^= random >> 32;
    const char *kind = kinds[seed % RF_COUNT(kinds)];
    bool no_replay = random & 1, anywhere = (random >> 1) % 16 == 0; /* while it is opened, too */
    size_t entry = no_replay || (random >> 5) & 1;
    const struct launches *launches = &expected->launches[no_replay][entry];
    uint64_t opened = anywhere ? 0 : launches->opened;
    unsigned long long nth = opened + 1 + (random >> 6) % (launches->done - opened);
    snprintf(environment, sizeof environment, PLAIN_CRASHES "RF_DRIVER=sim %sRFSIM=fault=%s:%llu:%s",
             strstr(kind, "hang") ? "RF_TIMEOUT_MS=2000 " : "", entries[entry], nth, kind);
    RF_TRACE("seed %llu: %s", (unsigned long long)seed, environment);
    RF_EXPECT_INT(command_run(environment, no_replay ? LETTERS "--no-replay" : LETTERS), 0);
    size_t from_gpu = TOKENS;
    const char *notice = command_errors;
    tally->runs++;
    if (*notice) { /* one line, and nothing else */
        RF_EXPECT(!strncmp(notice, "rocmforge: note: the GPU ", 25));
        RF_EXPECT(strchr(notice, '\n') == notice + strlen(notice) - 1);
        unsigned tokens = 0;
        bool behind = strstr(notice, "was lost after the last answer") != NULL;
        bool lost = sscanf(notice, "rocmforge: note: the GPU was lost after %u token", &tokens) == 1;
        tally->behind += behind;
        tally->unopened += strstr(notice, "cannot be used") != NULL;
        tally->lost += !behind && strstr(notice, "was lost") != NULL;
        if (!behind) {
            RF_EXPECT_CONTAINS(notice, "; continuing on the CPU: ");
            from_gpu = lost ? tokens : 0;
        }
    } else {
        tally->unharmed++;
    }
    RF_ASSERT(from_gpu <= TOKENS);
    tally->tokens_by_gpu += from_gpu;
    expected_text(expected, from_gpu, text);
    RF_EXPECT_UINT(command_output_bytes, strlen(text) + 1);
    command_output[command_output_bytes ? command_output_bytes - 1 : 0] = 0;
    RF_EXPECT_TEXT(command_output, text);
}

static void run_many(uint64_t first, int count) {
    struct expected expected;
    struct tally tally = {0};
    gpu_need_simulated("");
    expected_begin(&expected);
    for (int i = 0; i < count; i++) run_with_fault(&expected, first + (uint64_t)i, &tally);
    expected_end(&expected);
    RF_NOTE("%d runs: %d lost in the answer, %d before it, %d behind it, %d not reached by the fault; %.1f of %d "
            "tokens by the GPU",
            tally.runs, tally.lost, tally.unopened, tally.behind, tally.unharmed,
            (double)tally.tokens_by_gpu / tally.runs, TOKENS);
    RF_EXPECT(tally.lost >= count * 2 / 3);
    RF_EXPECT(tally.unharmed <= count / 10);
    command_expect_nothing_left();
}
RF_TEST(run_faults, twelve_runs, .timeout_ms = 1500000, .tags = "heavy") {
    run_many(1, 12);
}
RF_TEST(run_faults, two_hundred_runs, .timeout_ms = 1800000, .tags = "slow") {
    run_many(1000, 200);
}

/* ---- at chosen points ---- */

/* Lost at each token in turn: characters of several bytes, and what might be the beginning of a stop text, lie across
 * the seam. */
RF_TEST(run_faults, every_seam_of_a_text, .timeout_ms = 600000) {
    gpu_need_simulated("");
    for (int nth = 1; nth <= 10; nth++) {
        char environment[128];
        snprintf(environment, sizeof environment, "RF_DRIVER=sim RFSIM=fault=hipGraphLaunch:%d:%s", nth,
                 nth % 3 == 0   ? "abort"
                 : nth % 3 == 1 ? "loss"
                                : "work/exit");
        RF_TRACE("%s", environment);
        command_expect(environment, "run -m model.gguf -p '?' --temp 0 --stop ' 🌎' -n 13", ANSWER "\n");
        RF_EXPECT_CONTAINS(command_errors, "; continuing on the CPU: ");
    }
    /* The context's end is where it was. */
    char whole[256];
    RF_ASSERT_INT(command_run("RF_DRIVER=sim", "run -m endless.gguf -p '?' --ctx 40"), 0);
    RF_ASSERT(command_output_bytes > 35);
    snprintf(whole, sizeof whole, "%.255s", command_output);
    command_expect("RF_DRIVER=sim RFSIM=fault=hipGraphLaunch:20:work/abort", "run -m endless.gguf -p '?' --ctx 40",
                   whole);
    RF_EXPECT_CONTAINS(command_errors, "; continuing on the CPU: ");
}

/* No place for the GPU's leases: the folder is no folder, a full file system, a read-only one. */
RF_TEST(run_faults, without_a_place_for_leases, .timeout_ms = 600000) {
    char folder[512], environment[600];
    gpu_need_simulated("");
    snprintf(folder, sizeof folder, "%s/leases", command_folder());
    FILE *file = fopen(folder, "w");
    RF_ASSERT(file != NULL && fclose(file) == 0);
    snprintf(environment, sizeof environment, "RF_DRIVER=sim RF_LEASE_DIR=%s", folder);
    for (int i = 0; i < 3; i++) {
        RF_TRACE("%s", ((const char *const[]){"a file", "a full file system", "a read-only file system"})[i]);
        command_expect(environment, "run -m model.gguf -p '?'", ANSWER "\n");
        RF_EXPECT_CONTAINS(command_errors, "rocmforge: note: the GPU cannot be used; continuing on the CPU: ");
        RF_EXPECT_CONTAINS(command_errors, folder);
        RF_EXPECT(strchr(command_errors, '\n') == command_errors + strlen(command_errors) - 1); /* one line */
        command_expect_one_line(environment, "run -m model.gguf -p '?' --device gpu", 1, folder);
        if (i == 2) break;
        if (i == 0) {
            RF_ASSERT(unlink(folder) == 0 && mkdir(folder, 0700) == 0);
            if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) < 0 ||
                mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                RF_SKIP("no mount namespace of its own: %s", strerror(errno));
        }
        unsigned long flags = i ? MS_REMOUNT | MS_RDONLY : 0;
        if (mount("none", folder, "tmpfs", flags, i ? "size=1m,mode=700" : "size=64k,mode=700") < 0)
            RF_SKIP("no tmpfs at %s: %s", folder, strerror(errno));
    }
    RF_EXPECT_INT(umount2(folder, MNT_DETACH), 0); /* so that the folder can be removed */
}

RF_TEST(run_faults, while_it_is_opened, .timeout_ms = 600000) {
    static const char *const settings[] = {
        "RFSIM=fault=hipModuleLoadData:1:crash", "RFSIM=fault=hipMalloc:1:abort",
        "RFSIM=fault=hipModuleLaunchKernel:1:719",
        "RF_TIMEOUT_MS=300 RF_PROBE_TIMEOUT_MS=5000 RFSIM=fault=hipModuleLoadData:1:hang"};
    gpu_need_simulated("");
    for (size_t i = 0; i < RF_COUNT(settings); i++) {
        char environment[256];
        snprintf(environment, sizeof environment, PLAIN_CRASHES "RF_DRIVER=sim %s", settings[i]);
        RF_TRACE("%s", environment);
        command_expect(environment, "run -m model.gguf -p '?'", ANSWER "\n");
        RF_EXPECT_CONTAINS(command_errors, "rocmforge: note: the GPU cannot be used; continuing on the CPU: ");
        command_expect_one_line(environment, "run -m missing.gguf -p '?'", 2, "missing.gguf");
        /* Whoever asked for a GPU gets one or none. */
        if (i < 3)
            command_expect_one_line(environment, "run -m model.gguf -p '?' --device gpu", 1, "rocmforge: run: ");
    }
    command_expect_nothing_left();
}

/* What is wrong with the input is so wherever it runs. */
RF_TEST(run_faults, bad_input_is_no_loss, .timeout_ms = 600000) {
    static const struct {
        const char *arguments;
        int code;
        const char *part;
    } bad[] = {{"-m missing.gguf -p '?'", 2, "missing.gguf"},
               {"-m text.gguf -p '?'", 2, "text.gguf"},
               {"-m cut.gguf -p '?'", 2, "cut.gguf"},
               {"-m none.gguf -p '?'", 1, "no vocabulary"},
               {"-m model.gguf -p 'a text of more than eight tokens' --ctx 8", 1, "the context holds 8"},
               {"-m model.gguf --chat </dev/null", 1, "--format"},
               {"-m chat.gguf --chat --format chatml -p 'hello to you' --ctx 20 </dev/null", 1, "context"},
               {"-m model.gguf -p '?' --budget lots", 2, "lots"}};
    gpu_need_simulated("");
    for (size_t i = 0; i < RF_COUNT(bad); i++)
        for (int gpu = 0; gpu < 2; gpu++) {
            char arguments[256];
            snprintf(arguments, sizeof arguments, "run %s%s", gpu ? "--device gpu " : "", bad[i].arguments);
            command_expect_one_line("RF_DRIVER=sim", arguments, bad[i].code, bad[i].part);
        }
    if (access("/dev/full", W_OK) == 0) {
        command_expect_one_line("RF_DRIVER=sim", "run -m model.gguf -p '?' >/dev/full", 1, "standard output");
        command_expect_one_line(
            "RF_DRIVER=none",
            "run -m chat.gguf --device cpu --chat --format chatml >/dev/full <<'END'\nhi\nmore\nEND", 1,
            "standard output");
    }
    /* Output that nobody takes any more ends the command without a word. */
    for (int gpu = 0; gpu < 2; gpu++) {
        command_run(gpu ? "RF_DRIVER=sim" : "RF_DRIVER=none",
                    "run -m endless.gguf -p '?' --ctx 60000 | head -c 5; echo >&2");
        RF_EXPECT_TEXT(command_output, "deded");
        RF_EXPECT_TEXT(command_errors, "\n");
    }
    command_expect_nothing_left();
}

/* ---- a terminal, and a file that goes away ---- */

/* A terminal that nobody looks at; what was written to it since the last call. */
static int terminal = -1, terminal_other = -1;
static const char *terminal_path(void) {
    if (terminal < 0) {
        terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
        if (terminal < 0 || grantpt(terminal) || unlockpt(terminal)) RF_SKIP("this machine gives no terminal");
        terminal_other = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
        RF_ASSERT(terminal_other >= 0);
    }
    return ptsname(terminal);
}
static const char *terminal_text(void) {
    static char text[16384];
    size_t used = 0;
    for (ssize_t count; (count = read(terminal, text + used, sizeof text - 1 - used)) > 0;) used += (size_t)count;
    text[used] = 0;
    return text;
}
static int count_parts(const char *text, const char *part) {
    int count = 0;
    for (; (text = strstr(text, part)); text++) count++;
    return count;
}

/* The placement is shown once, before the answer; none comes into its middle when the CPU goes on. */
RF_TEST(run_faults, a_terminal_gets_one_placement, .timeout_ms = 600000) {
    char arguments[128];
    gpu_need_simulated("");
    snprintf(arguments, sizeof arguments, "run -m model.gguf -p '?' --temp 0 2>%s", terminal_path());
    command_expect("RF_DRIVER=sim", arguments, ANSWER "\n");
    RF_EXPECT_INT(count_parts(terminal_text(), " weights "), 1);
    command_expect("RF_DRIVER=sim RFSIM=fault=hipGraphLaunch:3:abort", arguments, ANSWER "\n");
    const char *text = terminal_text();
    RF_EXPECT_CONTAINS(text, "; continuing on the CPU: ");
    RF_EXPECT_INT(count_parts(text, " weights "), 1);
    /* Lost before there is an answer: then the table that was not shown yet is. */
    command_expect("RF_DRIVER=sim RFSIM=fault=hipMalloc:1:abort", arguments, ANSWER "\n");
    RF_EXPECT_INT(count_parts(terminal_text(), " weights "), 1);
    /* Who asked for it gets it. */
    snprintf(arguments, sizeof arguments, "run -m model.gguf -p '?' --temp 0 --stats");
    command_expect("RF_DRIVER=sim RFSIM=fault=hipGraphLaunch:3:abort", arguments, ANSWER "\n");
    RF_EXPECT_INT(count_parts(command_errors, " weights "), 2);
    close(terminal);
    close(terminal_other);
}

/* How far the loading is stands on a terminal, where it takes a while, and nowhere else. */
RF_TEST(run_faults, a_terminal_shows_how_far_loading_is, .timeout_ms = 600000) {
    static const char slow[] = "RF_DRIVER=sim RFSIM=delay=3/60000us";
    char arguments[256];
    gpu_need_simulated("");
    command_folder();
    infer_model(&letters, "letters.gguf");
    command_expect(slow, "logits -m letters.gguf --tokens 1 --out /dev/null", "");
    RF_EXPECT_TEXT(command_errors, "");
    snprintf(arguments, sizeof arguments, "logits -m letters.gguf --tokens 1 --out /dev/null 2>%s", terminal_path());
    command_expect(slow, arguments, "");
    RF_EXPECT_CONTAINS(terminal_text(), "\rloading ");
    close(terminal);
    close(terminal_other);
}

/* A file that is shortened while a layer on the CPU reads it: no process could go on, so one line says so. */
RF_TEST(run_faults, the_file_is_cut, .timeout_ms = 600000) {
    char model[512], errors[512];
    static const char *const places[] = {"gpu", "auto", "cpu"};
    gpu_need_simulated("");
    snprintf(errors, sizeof errors, "%s/cut-errors", command_folder());
    setenv("RF_DRIVER", "sim", 1);
    setenv("RFSIM", "", 1);
    for (size_t i = 0; i < RF_COUNT(places); i++) {
        RF_TRACE("--device %s", places[i]);
        snprintf(model, sizeof model, "%s", infer_model(&letters, "letters.gguf"));
        const char *arguments[] = {"rocmforge", "run",     "-m",    model,   "-p",           PROMPT,
                                   "--device",  places[i], "--ctx", "60000", "--gpu-layers", i < 2 ? "1" : "0",
                                   NULL};
        int kept = dup(STDERR_FILENO), file = open(errors, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        RF_ASSERT(kept >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
        struct process process = process_start(arguments);
        RF_ASSERT(dup2(kept, STDERR_FILENO) >= 0);
        close(kept);
        close(file);
        process_hear(&process, 10);
        RF_ASSERT_INT(truncate(model, 4096), 0);
        char ignored[4096];
        while (read(process.out, ignored, sizeof ignored) > 0) continue;
        int status = process_end(&process);
        RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        size_t bytes;
        unsigned char *all = read_bytes(errors, &bytes);
        char text[2048], *line = text;
        snprintf(text, sizeof text, "%.*s", (int)bytes, (const char *)all);
        if (i < 2) { /* what was said when it was opened */
            RF_EXPECT(!strncmp(text, "rocmforge: note: 1 of 2 layers run on the CPU", 45));
            line = strchr(text, '\n');
            line = line ? line + 1 : text;
        }
        RF_EXPECT(*line && strchr(line, '\n') == line + strlen(line) - 1);
        RF_EXPECT_CONTAINS(line, "shortened");
        RF_EXPECT_CONTAINS(line, model);
        free(all);
    }
    command_expect_nothing_left();
}

/* ---- conversations, and processes that are killed ---- */

RF_TEST(run_faults, a_chat_goes_on, .timeout_ms = 600000) {
    gpu_need_simulated("");
    command_expect("RF_DRIVER=sim RFSIM=fault=hipGraphLaunch:5:abort",
                   "run -m chat.gguf --chat <<'END'\nhi\nand more\nonce more\nEND", "yes\nyes\nyes\n");
    const char *notice = strstr(command_errors, "rocmforge: note: the GPU was lost");
    RF_ASSERT(notice != NULL);
    RF_EXPECT(!strstr(notice + 1, "rocmforge: note: "));
}

static struct process start_chat(char model[512], const char *name, const char *rfsim) {
    snprintf(model, 512, "%s/%s", command_folder(), name);
    setenv("RF_DRIVER", "sim", 1);
    setenv("RFSIM", rfsim, 1);
    const char *arguments[] = {"rocmforge", "run", "-m", model, "--chat", "--ctx", "60000", NULL};
    return process_start(arguments);
}

RF_TEST(run_faults, a_worker_is_killed, .timeout_ms = 600000) {
    char model[512];
    gpu_need_simulated("");
    /* Between two answers, */
    struct process process = start_chat(model, "chat.gguf", "");
    RF_ASSERT_INT(write(process.in, "hi\n", 3), 3);
    RF_EXPECT_UINT(process_hear(&process, 0), 4);
    char link[64], input[64] = "";
    snprintf(link, sizeof link, "/proc/%d/fd/0", (int)process_worker(&process));
    RF_EXPECT(readlink(link, input, sizeof input - 1) > 0);
    RF_EXPECT_TEXT(input, "/dev/null"); /* the lines are the command's */
    RF_ASSERT_INT(kill(process_worker(&process), SIGKILL), 0);
    for (int i = 0; i < 2; i++) {
        RF_ASSERT_INT(write(process.in, "more\n", 5), 5);
        RF_EXPECT_UINT(process_hear(&process, 0), 4);
    }
    RF_EXPECT_INT(process_end(&process), 0);
    /* and during one: it goes on, and can be stopped as before. */
    process = start_chat(model, "endless.gguf", "");
    RF_ASSERT_INT(write(process.in, "hi\n", 3), 3);
    process_hear(&process, 10);
    RF_ASSERT_INT(kill(process_worker(&process), SIGKILL), 0);
    process_hear(&process, 2000);
    RF_ASSERT_INT(kill(-process.pid, SIGINT), 0);
    process_hear(&process, 0);
    RF_ASSERT_INT(write(process.in, "hi\n", 3), 3);
    process_hear(&process, 10);
    RF_ASSERT_INT(kill(-process.pid, SIGINT), 0);
    process_hear(&process, 0);
    RF_EXPECT_INT(process_end(&process), 0);
    command_expect_nothing_left();
}

/* Long before it is known that the worker hangs, Ctrl-C again and again is heard, and the chat goes on. */
RF_TEST(run_faults, a_worker_that_hangs_is_interrupted, .timeout_ms = 600000) {
    char model[512];
    int times = 0;
    gpu_need_simulated("");
    setenv("RF_TIMEOUT_MS", "600000", 1);
    struct process process = start_chat(model, "endless.gguf", "fault=hipGraphLaunch:1:hang");
    /* A first token comes before that launch; where Ctrl-C comes before it too, the next answer meets it. */
    for (int round = 0; round < 20 && times < 2; round++) {
        RF_ASSERT_INT(write(process.in, "hi\n", 3), 3);
        process_hear(&process, 1);
        rf_sleep_ns(RF_MS(300) * (round + 1)); /* longer, where the launch was not reached */
        for (times = 0; !process.line_ended; times++) {
            RF_ASSERT_INT(kill(-process.pid, SIGINT), 0);
            while (process_hear_some(&process, 3000) && !process.line_ended) continue;
        }
    }
    RF_EXPECT(times > 1);
    RF_ASSERT_INT(write(process.in, "hi\n", 3), 3);
    process_hear(&process, 100);
    RF_ASSERT_INT(kill(-process.pid, SIGINT), 0);
    process_hear(&process, 0);
    RF_EXPECT_INT(process_end(&process), 0);
    command_expect_nothing_left();
}

RF_TEST(run_faults, the_command_is_killed, .timeout_ms = 600000) {
    char model[512];
    gpu_need_simulated("");
    struct process process = start_chat(model, "endless.gguf", "");
    RF_ASSERT_INT(write(process.in, "hi\n", 3), 3);
    process_hear(&process, 10);
    RF_ASSERT_INT(kill(process.pid, SIGKILL), 0);
    int status = process_end(&process);
    RF_EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    command_expect_nothing_left();
}
