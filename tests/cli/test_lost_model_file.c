/* SIGBUS: of a model file that was cut it is one line and an exit status, any other is whose it was before. */
#include "run_testing.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/cli/lost_model_file.h"
#include "gguf/gguf.h"

enum { GONE = 66, EARLIER = 7, EARLIER_PLAIN = 8, WENT_ON = 9, FAILED = 10 };

static void *volatile elsewhere;

static void earlier(int number, siginfo_t *info, void *context) {
    (void)context;
    _exit(number == SIGBUS && info->si_addr == elsewhere ? EARLIER : FAILED);
}
static void earlier_plain(int number) {
    _exit(number == SIGBUS ? EARLIER_PLAIN : FAILED);
}

/* A page of a file that has none. */
static void *page_of_nothing(const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) _exit(FAILED);
    return page;
}

enum touch { MODEL, BY_THREADS, ELSEWHERE, AFTER_CLOSING, SENT };
enum had { DEFAULT, IGNORED, HANDLER, PLAIN_HANDLER };

/* Threads that read the same byte at once, as those of a run on the CPU do. */
struct readers {
    pthread_barrier_t all_there;
    const volatile unsigned char *byte;
};
static void *read_byte(void *user) {
    struct readers *readers = user;
    pthread_barrier_wait(&readers->all_there);
    (void)*readers->byte;
    return NULL;
}
static void read_by_threads(const volatile unsigned char *byte) {
    enum { THREADS = 8 };
    struct readers readers = {.byte = byte};
    pthread_t threads[THREADS];
    pthread_barrier_init(&readers.all_there, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, read_byte, &readers)) _exit(FAILED);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

/* In a child, whose file the model is. */
static void child(const char *model, const char *other, enum touch touch, enum had had) {
    struct sigaction action = {.sa_flags = had == HANDLER ? SA_SIGINFO : 0};
    if (had == HANDLER)
        action.sa_sigaction = earlier;
    else
        action.sa_handler = had == PLAIN_HANDLER ? earlier_plain : had == IGNORED ? SIG_IGN : SIG_DFL;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    sigaction(SIGBUS, &action, NULL);
    catch_lost_model_file("the first line\n", FAILED);
    catch_lost_model_file("gone\n", GONE); /* what was said last holds, and nobody is his own predecessor */
    struct rf_gguf *gguf = NULL;
    if (rf_gguf_open(model, &gguf)) _exit(FAILED);
    const struct rf_gguf_tensor *tensor = rf_gguf_tensor_at(gguf, rf_gguf_tensor_count(gguf) - 1);
    const volatile unsigned char *last = (const unsigned char *)tensor->data + tensor->bytes - 1;
    elsewhere = page_of_nothing(other);
    if (truncate(model, 0)) _exit(FAILED);
    if (touch == AFTER_CLOSING) {
        rf_gguf_close(&gguf);
        int file = open(other, O_RDONLY | O_CLOEXEC);
        void *page = (void *)((uintptr_t)last & ~(uintptr_t)4095); /* another's map, where the model's was */
        if (mmap(page, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) != page) _exit(FAILED);
        elsewhere = (void *)(uintptr_t)last;
    }
    if (touch == BY_THREADS) read_by_threads(last);
    if (touch == MODEL || touch == AFTER_CLOSING) (void)*last;
    if (touch == ELSEWHERE) (void)*(const volatile unsigned char *)elsewhere;
    if (touch == SENT) raise(SIGBUS);
    _exit(WENT_ON);
}

/* The child's status, and what it said. */
static int run_child(enum touch touch, enum had had, char text[64]) {
    char model[512], other[512];
    int ends[2];
    size_t bytes;
    snprintf(model, sizeof model, "%s/model.gguf", command_folder());
    unsigned char *whole = read_bytes(model, &bytes);
    snprintf(model, sizeof model, "%s/cut-later.gguf", command_folder());
    write_bytes(model, whole, bytes);
    free(whole);
    snprintf(other, sizeof other, "%s/nothing", command_folder());
    RF_ASSERT(pipe(ends) == 0);
    pid_t pid = fork();
    RF_ASSERT(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        child(model, other, touch, had);
    }
    close(ends[1]);
    ssize_t count, total = 0;
    while ((count = read(ends[0], text + total, (size_t)(63 - total))) > 0) total += count;
    text[total] = 0;
    close(ends[0]);
    int status = 0;
    RF_ASSERT(waitpid(pid, &status, 0) == pid);
    return status;
}

RF_TEST(lost_model_file, a_model_file_is_one_line) {
    char text[64];
    static const enum had all[] = {DEFAULT, IGNORED, HANDLER, PLAIN_HANDLER};
    for (size_t i = 0; i < RF_COUNT(all); i++) {
        int status = run_child(MODEL, all[i], text);
        RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == GONE);
        RF_EXPECT_TEXT(text, "gone\n");
    }
}

RF_TEST(lost_model_file, threads_that_read_it_say_so_once) {
    char text[64];
    for (int round = 0; round < 20; round++) {
        int status = run_child(BY_THREADS, DEFAULT, text);
        RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == GONE);
        RF_EXPECT_TEXT(text, "gone\n");
    }
}

RF_TEST(lost_model_file, anything_else_is_whose_it_was) {
    static const struct {
        enum touch touch;
        enum had had;
        int exit_code; /* 0: killed by the signal */
    } all[] = {{ELSEWHERE, DEFAULT, 0},
               {ELSEWHERE, IGNORED, 0},
               {ELSEWHERE, HANDLER, EARLIER},
               {ELSEWHERE, PLAIN_HANDLER, EARLIER_PLAIN},
               {AFTER_CLOSING, DEFAULT, 0},
               {AFTER_CLOSING, HANDLER, EARLIER},
               {SENT, DEFAULT, 0},
               {SENT, IGNORED, WENT_ON},
               {SENT, PLAIN_HANDLER, EARLIER_PLAIN}};
    for (size_t i = 0; i < RF_COUNT(all); i++) {
        RF_TRACE("case %zu", i);
        char text[64];
        int status = run_child(all[i].touch, all[i].had, text);
        RF_EXPECT_TEXT(text, "");
        if (all[i].exit_code) {
            RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == all[i].exit_code);
        } else {
            RF_EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
        }
    }
}
