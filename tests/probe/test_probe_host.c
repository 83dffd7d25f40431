/* The probe inside a host program: its helper, its threads, its descriptors, its children and
 * its signals. */
#include "probe_testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../scratch.h"

/* ---- helpers that are none ---- */

static char *write_script(const char *body) {
    static char path[SCRATCH_BYTES];
    int fd = scratch_file(path, "probe-script");
    RF_ASSERT(fd >= 0);
    FILE *file = fdopen(fd, "w");
    fprintf(file, "#!/bin/sh\n%s\n", body);
    RF_ASSERT(fchmod(fd, 0700) == 0);
    fclose(file);
    return path;
}

static struct rf_probe_result *probe_by(const char *helper, int timeout_ms) {
    char option[512], timeout[64];
    snprintf(option, sizeof option, "RF_PROBE_HELPER=%s", helper);
    snprintf(timeout, sizeof timeout, "RF_PROBE_TIMEOUT_MS=%d", timeout_ms);
    struct rf_probe_result *result = PROBE(option, timeout);
    RF_NOTE("%s", result->reason);
    return result;
}

enum { LONG_MS = 64000, SHORT_MS = 250 };
#define SHORT "RF_PROBE_TIMEOUT_MS=250"

static void check_helper(const char *helper, int timeout_ms, rf_status status, const char *reason) {
    struct rf_probe_result *result = probe_by(helper, timeout_ms);
    while (timeout_ms < 16000 && !strstr(result->reason, reason)) { /* it may not have got so far */
        free(result);
        result = probe_by(helper, timeout_ms *= 4);
    }
    RF_EXPECT(result->status == status);
    RF_ASSERT_INT(result->count, 0);
    RF_ASSERT_CONTAINS(result->reason, reason);
    free(result);
    RF_ASSERT(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

static void check_script(const char *body, int timeout_ms, rf_status status, const char *reason) {
    const char *script = write_script(body);
    check_helper(script, timeout_ms, status, reason);
    unlink(script);
}

RF_TEST(helper, missing) {
    struct rf_probe_result *result = probe_by("/nonexistent/rocmforge-probe", LONG_MS);
    RF_EXPECT_TEXT(result->reason, "the probe's helper /nonexistent/rocmforge-probe is missing; reinstall, or set "
                                   "RF_PROBE_HELPER"); /* and nobody tried to start it */
    free(result);
    check_helper("/nonexistent/rocmforge-probe", LONG_MS, RF_E_NO_DRIVER,
                 "the probe's helper /nonexistent/rocmforge-probe is missing");
}
RF_TEST(helper, not_executable) {
    check_helper("/etc/passwd", LONG_MS, RF_E_NO_DRIVER, "the probe's helper /etc/passwd cannot be executed");
}
RF_TEST(helper, a_folder) {
    check_helper("/tmp", LONG_MS, RF_E_NO_DRIVER, "the probe's helper /tmp cannot be executed");
}
RF_TEST(helper, executable_nonsense) {
    char path[SCRATCH_BYTES];
    int fd = scratch_file(path, "probe-nonsense");
    RF_ASSERT(fd >= 0 &&
              write(fd,
                    "\x7f"
                    "ELFnot really",
                    14) == 14 &&
              fchmod(fd, 0700) == 0);
    close(fd);
    check_helper(path, LONG_MS, RF_E_NO_DRIVER, "helper cannot be started");
    unlink(path);
}
RF_TEST(helper, true_program) {
    check_helper("/bin/true", LONG_MS, RF_E_DRIVER,
                 "helper /bin/true exited with code 0 without a report; is it rocmforge-probe?");
}
RF_TEST(helper, false_program) {
    check_helper("/bin/false", LONG_MS, RF_E_DRIVER, "helper /bin/false exited with code 1 without a report");
}
static int64_t cpu_ns(void) {
    struct timespec now;
    RF_ASSERT(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Whoever waits for a helper sleeps meanwhile. */
RF_TEST(helper, sleeps) {
    int64_t began = rf_now_ns(), busy = cpu_ns();
    check_script("sleep 1000", SHORT_MS, RF_E_TIMEOUT, "gave no answer within");
    began = rf_now_ns() - began;
    busy = cpu_ns() - busy;
    RF_NOTE("busy for %lld of %lld us", (long long)(busy / 1000), (long long)(began / 1000));
    RF_EXPECT(busy < began / 20);
}
RF_TEST(helper, closes_and_sleeps) {
    check_script("exec 3>&-; sleep 1000", SHORT_MS, RF_E_TIMEOUT, "closed its report unfinished and hung");
}
RF_TEST(helper, ignores_signals) {
    check_script("trap '' TERM INT HUP ALRM; while :; do :; done", SHORT_MS, RF_E_TIMEOUT, "gave no answer");
}
RF_TEST(helper, floods) {
    check_script("cat /dev/zero >&3", LONG_MS, RF_E_DRIVER, "wrote more than 256 KiB");
}
RF_TEST(helper, garbage_with_an_end) {
    check_script("printf 'garbage\\nend\\n' >&3; sleep 1000", LONG_MS, RF_E_DRIVER, "report is malformed: line 1");
}
RF_TEST(helper, leaves_a_child_with_the_pipe) {
    check_script("sleep 1000 & exit 3", LONG_MS, RF_E_DRIVER, "exited with code 3");
}

static const char *const honest_report =
    "cat >&3 <<'X'\nrocmforge-probe 1\nbegin\ndriver=%s\nsimulated=0\nlibrary=/x.so\nlabel=HIP "
    "6.3\nstatus=0\nreason=\n"
    "devices=1\ndevice=0\nname=Card\narch=%s\nuuid=GPU-1\npci=\ntotal_bytes=1000\nfree_bytes=%s\n"
    "granularity_bytes=4096\nintegrated=0\ndisplay=2\nwave_size=32\ncompute_units=4\nmax_threads_per_block=1024\n"
    "max_shared_bytes_per_block=65536\nfault=\nend\nX\n";

static struct rf_probe_result *probe_report(const char *free_bytes) {
    char body[1024];
    snprintf(body, sizeof body, honest_report, "hip", built_arch("gfx"), free_bytes);
    const char *script = write_script(body);
    struct rf_probe_result *result = probe_by(script, LONG_MS);
    unlink(script);
    return result;
}
RF_TEST(helper, report_is_believed) {
    struct rf_probe_result *result = probe_report("1000");
    RF_ASSERT_TEXT(result->reason, "");
    RF_ASSERT(result->devices[0].usable && result->devices[0].display == RF_YES);
    RF_ASSERT_INT(result->devices[0].free_bytes, 1000);
    free(result);
}
RF_TEST(helper, more_free_than_total) {
    struct rf_probe_result *result = probe_report("1001");
    RF_ASSERT_INT(result->count, 1);
    RF_ASSERT(!result->devices[0].usable);
    RF_ASSERT_CONTAINS(result->reason, "more memory free (1001 bytes) than in total (1000)");
    free(result);
}
RF_TEST(helper, report_about_another_driver) {
    char body[1024];
    snprintf(body, sizeof body, honest_report, "cuda", "sm_80", "1");
    const char *script = write_script(body);
    check_helper(script, LONG_MS, RF_E_DRIVER, "malformed: it is about another driver");
    unlink(script);
}

/* ---- the host's descriptors, threads, children, signals ---- */

static int count_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    RF_ASSERT(folder != NULL);
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

RF_TEST(host, no_descriptor_left) {
    const char *const drivers[] = {"GOOD", "INIT_SEGV", "MISSING_SYMBOL", "COUNT_ZERO"};
    int before = count_descriptors();
    for (size_t i = 0; i < RF_COUNT(drivers); i++) {
        char option[512];
        snprintf(option, sizeof option, "RF_HIP_LIBRARY=" DRIVER_FOLDER "/hostile-%s.so", drivers[i]);
        free(PROBE(option));
        RF_ASSERT_INT(count_descriptors(), before);
    }
    free(PROBE("RF_HIP_LIBRARY=" HOSTILE("INIT_HANG"), SHORT));
    RF_ASSERT_INT(count_descriptors(), before);
}

/* The helper gets nothing of ours but its pipe, and works for a host without standard ones. */
RF_TEST(host, helper_inherits_nothing) {
    char path[SCRATCH_BYTES], body[512], line[256] = "";
    int fd = scratch_file(path, "probe-fds");
    RF_ASSERT(fd >= 0);
    for (int i = 0; i < 30; i++) RF_ASSERT(dup(fd) >= 0); /* without close-on-exec */
    snprintf(body, sizeof body, "ls -l /proc/$$/fd | grep -c rf-probe-fds > %s", path);
    check_script(body, LONG_MS, RF_E_DRIVER, "without a report");
    FILE *file = fopen(path, "r");
    RF_ASSERT(file && fgets(line, sizeof line, file));
    fclose(file);
    unlink(path);
    RF_ASSERT_TEXT(line, "0\n");
}

RF_TEST(host, without_standard_descriptors) {
    pid_t child = fork();
    RF_ASSERT(child >= 0);
    if (child == 0) {
        setenv("HOSTILE_ARCH", "gfx1100", 1);
        for (int fd = 0; fd < 10; fd++) close(fd);
        struct rf_probe_result *result = PROBE("RF_HIP_LIBRARY=" HOSTILE("GOOD"));
        _exit(result->count == 1 ? 41 : 1);
    }
    int status = 0;
    RF_ASSERT_INT(waitpid(child, &status, 0), child);
    RF_ASSERT(WIFEXITED(status));
    RF_ASSERT_INT(WEXITSTATUS(status), 41);
}

static void *probe_in_thread(void *arch) {
    (void)arch;
    for (int round = 0; round < 4; round++) {
        struct rf_probe_result *result = PROBE("RF_HIP_LIBRARY=" HOSTILE("GOOD"));
        RF_EXPECT(result->count == 1 && result->devices[0].usable && result->reason[0] == 0);
        free(result);
        result = PROBE("RF_HIP_LIBRARY=" HOSTILE("INIT_SEGV"));
        RF_EXPECT(result->count == 0 && strstr(result->reason, "SIGSEGV"));
        free(result);
    }
    return NULL;
}

RF_TEST(host, sixteen_threads, .timeout_ms = 1200000) {
    pthread_t threads[16];
    setenv("HOSTILE_ARCH", built_arch("gfx"), 1);
    int before = count_descriptors();
    for (size_t i = 0; i < RF_COUNT(threads); i++)
        RF_ASSERT_INT(pthread_create(&threads[i], NULL, probe_in_thread, NULL), 0);
    for (size_t i = 0; i < RF_COUNT(threads); i++) pthread_join(threads[i], NULL);
    RF_ASSERT_INT(count_descriptors(), before);
    RF_ASSERT(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

RF_TEST(host, error_text_untouched) {
    rf_fail(RF_E_INVALID, "something earlier");
    free(PROBE("RF_HIP_LIBRARY=" HOSTILE("INIT_SEGV")));
    RF_ASSERT_TEXT(rf_error_text(), "something earlier");
}

RF_TEST(host, ignores_sigchld) {
    setenv("HOSTILE_ARCH", built_arch("gfx"), 1);
    signal(SIGCHLD, SIG_IGN);
    struct rf_probe_result *result = PROBE("RF_HIP_LIBRARY=" HOSTILE("GOOD"));
    RF_ASSERT_INT(result->count, 1);
    RF_ASSERT(result->devices[0].usable);
    free(result);
    result = PROBE("RF_HIP_LIBRARY=" HOSTILE("INIT_SEGV"));
    RF_ASSERT_INT(result->status, RF_E_DRIVER);
    RF_ASSERT_CONTAINS(result->reason, "this program reaps all its children");
    free(result);
    result = PROBE("RF_HIP_LIBRARY=" HOSTILE("INIT_HANG"), SHORT);
    RF_ASSERT_INT(result->status, RF_E_TIMEOUT);
    free(result);
    RF_ASSERT(signal(SIGCHLD, SIG_DFL) == SIG_IGN); /* as the host had it */
}

static void reap_everything(int number) {
    int saved = errno;
    (void)number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
    errno = saved;
}

RF_TEST(host, reaps_everything) {
    setenv("HOSTILE_ARCH", built_arch("gfx"), 1);
    struct sigaction action = {.sa_handler = reap_everything}; /* without SA_RESTART: calls are interrupted */
    RF_ASSERT_INT(sigaction(SIGCHLD, &action, NULL), 0);
    for (int i = 0; i < 10; i++) {
        struct rf_probe_result *result = PROBE("RF_HIP_LIBRARY=" HOSTILE("GOOD"));
        RF_ASSERT_INT(result->count, 1);
        free(result);
        result = PROBE("RF_HIP_LIBRARY=" HOSTILE("INIT_ABORT"));
        RF_ASSERT_INT(result->status, RF_E_DRIVER);
        free(result);
    }
    signal(SIGCHLD, SIG_DFL);
}

/* A host's own child that ended is still the host's to reap, and a running one runs on. */
RF_TEST(host, own_children_untouched) {
    pid_t ended = fork();
    if (ended == 0) _exit(23);
    pid_t running = fork();
    if (running == 0)
        while (1) pause();
    free(PROBE("RF_HIP_LIBRARY=" HOSTILE("INIT_SEGV")));
    free(PROBE("RF_HIP_LIBRARY=" HOSTILE("INIT_HANG"), SHORT));
    int status = 0;
    RF_ASSERT_INT(waitpid(running, &status, WNOHANG), 0);
    kill(running, SIGKILL);
    RF_ASSERT_INT(waitpid(running, &status, 0), running);
    RF_ASSERT_INT(waitpid(ended, &status, 0), ended);
    RF_ASSERT(WIFEXITED(status));
    RF_ASSERT_INT(WEXITSTATUS(status), 23);
}

/* A host that blocks and ignores signals does not hand that on. */
RF_TEST(host, blocked_signals) {
    sigset_t all;
    sigfillset(&all);
    RF_ASSERT_INT(pthread_sigmask(SIG_BLOCK, &all, NULL), 0);
    signal(SIGTERM, SIG_IGN);
    struct rf_probe_result *result = PROBE("RF_HIP_LIBRARY=" HOSTILE("KILL_GROUP"));
    RF_ASSERT_CONTAINS(result->reason, "SIGTERM");
    free(result);
}

/* Malformed options in the environment that the host overruled do not reach the helper. */
RF_TEST(host, overruled_environment) {
    setenv("HOSTILE_ARCH", built_arch("gfx"), 1);
    setenv("RF_TIMEOUT_MS", "nonsense", 1);
    setenv("RF_HIP_LIBRARY", "/nonexistent", 1);
    struct rf_probe_result *result = PROBE("RF_HIP_LIBRARY=" HOSTILE("GOOD"), "RF_TIMEOUT_MS=1000");
    RF_ASSERT_TEXT(result->reason, "");
    RF_ASSERT_INT(result->count, 1);
    free(result);
}

/* A host that dies takes the helper with it. */
RF_TEST(host, death_of_the_host) {
    char pids[SCRATCH_BYTES];
    int fd = scratch_file(pids, "probe-pids");
    RF_ASSERT(fd >= 0);
    close(fd);
    setenv("HOSTILE_PIDS", pids, 1);
    pid_t host = fork();
    RF_ASSERT(host >= 0);
    if (host == 0) {
        free(PROBE("RF_HIP_LIBRARY=" HOSTILE("INIT_HANG")));
        _exit(0);
    }
    long helper = 0;
    for (int i = 0; !helper && i < 8000; i++) {
        FILE *file = fopen(pids, "r");
        if (!file || fscanf(file, "%ld", &helper) != 1) helper = 0;
        if (file) fclose(file);
        rf_sleep_ns(5000000);
    }
    RF_ASSERT(helper > 0);
    kill(host, SIGKILL);
    RF_ASSERT_INT(waitpid(host, NULL, 0), host);
    for (int i = 0; !is_dead(helper); i++) {
        if (i > 12000) RF_FAIL("the helper %ld outlived its host", helper);
        rf_sleep_ns(5000000);
    }
    unlink(pids);
}
