/* The runner without a GPU: admission, verdicts on company, what is left behind, reports, bad
 * input. Each test runs a sample executable and reads what the runner says. */
#include "runner_testing.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A folder of the test's own, history included; no GPU. */
static void enter(void) {
    make_folder();
    snprintf(environment, sizeof environment, "RF_DRIVER=none RUNNER_FOLDER='%s' XDG_CACHE_HOME='%s'", folder,
             folder);
}
#define ENTER .setup = enter, .teardown = leave

/* ---- admission ---- */

RF_TEST(runner, cpu_tests_run_side_by_side, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--jobs 2 'meet_cpu.*'"), 0);
    expect_end("2 passed, 0 failed, 0 skipped\n");
}

RF_TEST(runner, groups_exclude_each_other, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--jobs 4 --repeat 3 'grouped.*'"), 0);
    expect_end("9 passed, 0 failed, 0 skipped\n");
}

RF_TEST(runner, a_test_never_runs_beside_itself, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--jobs 4 --repeat 8 grouped.one"), 0);
    expect_end("8 passed, 0 failed, 0 skipped\n");
}

RF_TEST(runner, gpu_tests_skip_without_a_gpu, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "gpu.computes"), 0);
    expect_end("0 passed, 0 failed, 1 skipped\n");
    RF_ASSERT_CONTAINS(report, "RF_DRIVER=none");
    RF_ASSERT_INT(run(SAMPLE, "--gpu-only 'gpu.co*'"), 77);
    RF_ASSERT_INT(run(SAMPLE, "--gpu-only 'meet_cpu.*'"), 2);
}

/* ---- company ---- */

RF_TEST(runner, shortest_polluting_order, ENTER) {
    static const char *const programs[] = {SAMPLE, ROCMFORGE};
    for (int i = 0; i < 2; i++) {
        RF_TRACE("%s", programs[i]);
        RF_ASSERT_INT(run(programs[i], "%s --in-process %s --match 'order.[a-h]*'", i ? "test" : "", i ? SAMPLE : ""),
                      1);
        expect_end("5 passed, 3 failed, 0 skipped\n");
        RF_EXPECT_CONTAINS(report,
                           "order.f_needs_both_halves_absent: fails only when shared: passes alone (5 of 5), fails "
                           "after order.b_first_half, order.d_second_half\n");
        RF_EXPECT_CONTAINS(report,
                           "order.h_needs_second_half_absent: fails only when shared: passes alone (5 of 5), fails "
                           "after order.d_second_half\n");
        RF_EXPECT_CONTAINS(report, "order.g_fails_always: fails (alone, too: 2 of 2)\n");
    }
    RF_ASSERT_INT(run(SAMPLE, "'order.[a-f]*'"), 0); /* isolated, all is well */
}

RF_TEST(runner, one_process_outlives_crash_and_hang, ENTER) {
    RF_ASSERT_INT(
        run(ROCMFORGE, "test --in-process --no-rerun --match 'order.[aijk]*' --match left.nothing* %s", SAMPLE), 1);
    expect_end("3 passed, 2 failed, 0 skipped\n");
    RF_EXPECT_CONTAINS(report, "FAIL  order.i_crashes");
    RF_EXPECT_CONTAINS(report, "crash: SIGSEGV");
    RF_EXPECT_CONTAINS(report, "FAIL  order.k_hangs");
    RF_EXPECT_CONTAINS(report, "timeout: killed after");
}

RF_TEST(runner, shared_beside, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--jobs 2 beside.holder beside.meets_the_holder"), 1);
    expect_end("1 passed, 1 failed, 0 skipped\n");
    RF_EXPECT_CONTAINS(report, "beside.meets_the_holder: fails only when shared: passes alone (5 of 5), fails beside "
                               "beside.holder\n");
}

RF_TEST(runner, flaky, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--jobs 2 --repeat 3 beside.every_third_fails beside.waits"), 1);
    RF_EXPECT_CONTAINS(report, "beside.every_third_fails: flaky (");
    RF_ASSERT_INT(run(SAMPLE, "--jobs 1 --repeat 3 beside.every_third_fails"), 1);
    RF_EXPECT_CONTAINS(report, "beside.every_third_fails: flaky (1 of 3 runs failed)");
}

/* ---- rounds and choices ---- */

RF_TEST(runner, until_fail_and_fail_fast, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--jobs 1 --until-fail beside.every_third_fails order.a_innocent"), 1);
    RF_EXPECT_CONTAINS(report, "5 passed, 1 failed, 0 skipped\n");
    RF_ASSERT_INT(run(SAMPLE, "--jobs 1 --fail-fast order.g_fails_always order.h*"), 1);
    expect_end("0 passed, 1 failed, 0 skipped\n");
}

RF_TEST(runner, lists_every_test_of_an_executable, ENTER) {
    RF_ASSERT_INT(run(ROCMFORGE, "test --list --match 'order.[a-c]*' " SAMPLE), 0);
    RF_EXPECT_TEXT(report, SAMPLE " order.a_innocent\n" SAMPLE " order.b_first_half\n" SAMPLE " order.c_innocent\n");
}

/* So many failures have one cause: a bounded number is explained. In one process all but the first have company. */
RF_TEST(runner, explains_a_bounded_number, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--in-process 'many.*'"), 1);
    expect_end("0 passed, 25 failed, 0 skipped\n");
    RF_EXPECT_INT(count_in_report(": fails (alone, too: 2 of 2)\n"), 20);
    RF_EXPECT_CONTAINS(report, "note: 4 more tests that failed in company were not rerun alone\n");
}

RF_TEST(runner, shuffle_is_told_by_its_seed, ENTER) {
    char first[4096];
    RF_ASSERT_INT(run(SAMPLE, "--jobs 1 --seed 1 --shuffle 11 'order.[a-e]*' 'grouped.*'"), 0);
    char *line = strstr(report, "ok  ");
    RF_ASSERT_NOT_NULL(line);
    size_t length = 0;
    for (char *at = line; (at = strstr(at, "ok    ")); at++)
        length += (size_t)snprintf(first + length, sizeof first - length, "%.12s ", at + 6);
    RF_ASSERT_INT(run(SAMPLE, "--jobs 1 --seed 1 --shuffle 11 'order.[a-e]*' 'grouped.*'"), 0);
    char second[4096];
    length = 0;
    for (char *at = strstr(report, "ok  "); at && (at = strstr(at, "ok    ")); at++)
        length += (size_t)snprintf(second + length, sizeof second - length, "%.12s ", at + 6);
    RF_ASSERT_TEXT(first, second);
    RF_ASSERT(strncmp(first, "order.a_inno", 12) != 0 || !strstr(first, "order.a_inno order.b_firs order.c_inno"));
}

/* What the history has of a test of the sample: the bytes that it held on a GPU, and whether it failed. */
static void expect_history(const char *name, unsigned long long bytes, int failed) {
    char path[300], line[512], part[128];
    snprintf(path, sizeof path, "%s/rocmforge/tests.history", folder);
    snprintf(part, sizeof part, "\t%s\t", name);
    FILE *file = fopen(path, "r");
    RF_ASSERT_NOT_NULL(file);
    const char *found = NULL;
    while (!found && fgets(line, sizeof line, file)) found = strstr(line, part);
    fclose(file);
    if (!found) RF_FAIL("%s is not in the history", name);
    unsigned long long has_bytes;
    int has_failed;
    RF_ASSERT_INT(sscanf(found + strlen(part), "%*d %llu %d", &has_bytes, &has_failed), 2);
    RF_EXPECT_UINT(has_bytes, bytes);
    RF_EXPECT_INT(has_failed, failed);
}

RF_TEST(runner, rerun_failed, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--no-rerun 'order.[a-h]*' beside.every_third_fails"), 1);
    expect_end("8 passed, 1 failed, 0 skipped\n");
    expect_history("order.a_innocent", 0, 0);
    expect_history("order.g_fails_always", 0, 1);
    RF_ASSERT_INT(run(SAMPLE, "--no-rerun --rerun-failed"), 1);
    expect_end("0 passed, 1 failed, 0 skipped\n");
    RF_EXPECT_CONTAINS(report, "FAIL  order.g_fails_always");
    RF_ASSERT_INT(run(SAMPLE, "--rerun-failed 'grouped.*'"), 0);
    expect_end("0 passed, 0 failed, 0 skipped\n");
    /* A history that makes no sense counts as none. */
    char path[300];
    snprintf(path, sizeof path, "%s/rocmforge/tests.history", folder);
    FILE *file = fopen(path, "w");
    RF_ASSERT_NOT_NULL(file);
    for (int i = 0; i < 20000; i++) fputc(i * 7 % 256, file);
    fprintf(file,
            "\nsample_runner\torder.a_innocent\tx\ty\tz\nsample_runner\torder.c_innocent\t-5\t1\t1\n\t\t1\t1\t1\n");
    fclose(file);
    RF_ASSERT_INT(run(SAMPLE, "--rerun-failed 'order.*'"), 0);
    expect_end("0 passed, 0 failed, 0 skipped\n");
    RF_ASSERT_INT(run(SAMPLE, "'order.[a-f]*'"), 0);
}

/* ---- left behind ---- */

static int pid_in(const char *name) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    int pid = 0;
    RF_ASSERT(file && fscanf(file, "%d", &pid) == 1 && pid > 1);
    fclose(file);
    return pid;
}

RF_TEST(runner, processes_left_behind_fail_and_die, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "left.process"), 1);
    RF_EXPECT_CONTAINS(report, "left a process behind: ");
    RF_ASSERT_INT(run(SAMPLE, "left.daemon"), 1);
    RF_EXPECT_CONTAINS(report, "left a process behind: ");
    RF_EXPECT(is_gone(pid_in("daemon")));
    RF_ASSERT_INT(run(SAMPLE, "left.child_that_ends"), 0);
}

/* Keeps the last processor that this process may use busy, until killed. */
static pid_t start_busy_loop(void) {
    cpu_set_t cpus;
    RF_ASSERT(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
    size_t cpu = CPU_SETSIZE - 1;
    while (!CPU_ISSET(cpu, &cpus)) cpu--;
    char text[16];
    snprintf(text, sizeof text, "%zu", cpu);
    setenv("LOADED_CPU", text, 1);
    pid_t loop = fork();
    RF_ASSERT(loop >= 0);
    if (loop) return loop;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    sched_setaffinity(0, sizeof cpus, &cpus);
    for (volatile unsigned long i = 0;; i++) continue;
}

/* The runner says that it was killed when it is dead, not when it has been sent the signal. */
RF_TEST(runner, a_left_process_is_dead_before_the_run_ends, ENTER) {
    pid_t loop = start_busy_loop();
    int status = run(SAMPLE, "left.process_that_dies_slowly");
    bool dead = is_gone(pid_in("slow"));
    kill(loop, SIGKILL);
    waitpid(loop, NULL, 0);
    RF_EXPECT_INT(status, 1);
    RF_EXPECT_CONTAINS(report, "left a process behind: ");
    RF_EXPECT_CONTAINS(report, "it was killed\n");
    RF_EXPECT(dead);
}

RF_TEST(runner, threads_left_running_fail, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "left.thread left.busy_thread"), 1);
    expect_end("0 passed, 2 failed, 0 skipped\n");
    RF_EXPECT_INT(count_in_report("left 1 thread running"), 2);
    RF_ASSERT_INT(run(SAMPLE, "left.ten_threads"), 1);
    RF_EXPECT_CONTAINS(report, "left 10 threads running: ");
    RF_EXPECT_INT(count_in_report("', "), 7); /* eight are named */
    RF_ASSERT_INT(run(SAMPLE, "left.nothing_but_a_moment"), 0);
}

/* ---- deadlines and interrupts ---- */

RF_TEST(runner, asks_then_kills, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "ends.when_asked"), 1);
    RF_EXPECT_CONTAINS(report, "timeout: killed after");
    RF_EXPECT(!strstr(report, "did not end when asked"));
}

/* Runs these tests and interrupts the runner when one of them has made the file "began". */
static void run_and_interrupt(const char *tests) {
    char command[4096];
    snprintf(command, sizeof command,
             "%s %s --jobs 1 --no-rerun %s > '%s/out' 2>&1 & pid=$!; "
             "for i in $(seq 2500); do [ -e '%s/began' ] && break; sleep 0.02; done; kill -INT $pid; wait $pid; "
             "echo $? >> '%s/out'",
             environment, SAMPLE, tests, folder, folder, folder);
    /* A shell starts background commands with SIGINT ignored: bash -m gives them their own group. */
    FILE *script = NULL;
    char path[300];
    snprintf(path, sizeof path, "%s/script", folder);
    script = fopen(path, "w");
    RF_ASSERT_NOT_NULL(script);
    fprintf(script, "set -m\n%s\n", command);
    fclose(script);
    snprintf(command, sizeof command, "bash '%s' > /dev/null 2>&1", path);
    RF_ASSERT(system(command) != -1);
    snprintf(command, sizeof command, "'%s/out'", folder);
    RF_ASSERT_INT(run_report("", "cat", command), 0);
}

RF_TEST(runner, interrupt_stops_and_reports, ENTER) {
    run_and_interrupt("order.a_innocent stays.for_long ends.when_asked");
    RF_EXPECT_CONTAINS(report, "FAIL  interrupted\n      1 tests were running and 1 had not begun\n");
    RF_EXPECT_CONTAINS(report, "1 passed, 1 failed, 0 skipped\n1\n");
}

/* Each becomes a child of the runner only when the one before has died, so one look does not find them all. */
RF_TEST(runner, an_interrupted_test_leaves_no_descendant, ENTER) {
    run_and_interrupt("stays.with_descendants");
    RF_EXPECT_CONTAINS(report, "FAIL  interrupted\n");
    RF_EXPECT(is_gone(pid_in("descendant1")));
    RF_EXPECT(is_gone(pid_in("descendant2")));
    RF_EXPECT(is_gone(pid_in("descendant3")));
}

/* ---- reports ---- */

RF_TEST(runner, junit_and_json_are_valid, ENTER) {
    RF_ASSERT_INT(
        run(SAMPLE,
            "--junit %s/r.xml --json %s/r.json --no-rerun --seed 14 --jobs 1 prints.for_junit prints.slowly "
            "order.a_innocent gpu.computes",
            folder, folder),
        1);
    expect_end("2 passed, 1 failed, 1 skipped\n");
    char path[300];
    snprintf(path, sizeof path, "%s/check.py", folder);
    FILE *script = fopen(path, "w");
    RF_ASSERT_NOT_NULL(script);
    fprintf(script,
            "import json, os, sys\n"
            "import xml.etree.ElementTree as tree\n"
            "root = tree.parse('%s/r.xml').getroot()\n"
            "assert root.tag == 'testsuites', root.tag\n"
            "assert [root.get(k) for k in ('tests', 'failures', 'errors', 'skipped')] == ['4', '1', '0', '1']\n"
            "cases = {c.get('classname') + '.' + c.get('name'): c for c in root.iter('testcase')}\n"
            "assert len(cases) == 4, cases\n"
            "bad = next(c for n, c in cases.items() if n.endswith('prints.for_junit'))\n"
            "assert 'a <message> & \"more\"' in bad.find('failure').get('message')\n"
            "assert 'with a second line ?' in bad.find('failure').text\n"
            "assert '<&\"]]>' in bad.find('system-out').text and '\\u20ac' in bad.find('system-out').text\n"
            "assert sum(int(s.get('tests')) for s in root) == 4\n"
            "assert all(float(c.get('time')) >= 0 and c.get('file') and int(c.get('line')) for c in cases.values())\n"
            "report = json.load(open('%s/r.json', encoding='utf-8'))\n"
            "assert (report['passed'], report['failed'], report['skipped']) == (2, 1, 1)\n"
            "tests = {t['name']: t for t in report['tests']}\n"
            "assert list(report) == ['passed', 'failed', 'skipped', 'seconds', 'seed', 'rounds', 'tests']\n"
            "assert report['rounds'] == 1 and report['seed'] == 14 and report['seconds'] > 0\n"
            "assert tests['prints.for_junit']['verdict'] == 'failed'\n"
            "assert [[tests[n][k] for k in ('passes', 'failures', 'skips')] for n in ('order.a_innocent', "
            "'prints.for_junit', 'gpu.computes')] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]], tests\n"
            "assert tests['gpu.computes']['verdict'] == 'skipped' and tests['gpu.computes']['gpu'] is True\n"
            "assert not [f for f in os.listdir('%s') if f.endswith('.part')]\n",
            folder, folder, folder);
    fclose(script);
    RF_ASSERT_INT(run_report("", "python3", path), 0);
}

RF_TEST(runner, output_is_streamed_and_never_a_verdict, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--jobs 1 --show-output prints.slowly"), 0);
    expect_end("1 passed, 0 failed, 0 skipped\n");
    RF_EXPECT_CONTAINS(report, "      | first\n      | second\n");
    RF_ASSERT_INT(run(SAMPLE, "prints.a_megabyte_line"), 1);
    expect_end("0 passed, 1 failed, 0 skipped\n");
    RF_EXPECT_INT(count_in_report("\n7 passed"), 0);
    RF_EXPECT_INT(count_in_report("| 7 passed, 0 failed, 0 skipped\n"), 1);
    RF_ASSERT_INT(run(SAMPLE, "--slowest 1 prints.slowly order.a_innocent"), 0);
    RF_EXPECT_CONTAINS(report, "The slowest:\n");
}

RF_TEST(runner, debug_shows_more, ENTER) {
    RF_ASSERT_INT(run(SAMPLE, "--jobs 1 --debug tells.debug"), 0);
    RF_EXPECT_CONTAINS(report, "      | debug 1 log debug\n");
}

RF_TEST(runner, live_line_on_a_terminal_only, ENTER) {
    char path[300];
    snprintf(path, sizeof path, "%s/terminal.py", folder);
    FILE *script = fopen(path, "w");
    RF_ASSERT_NOT_NULL(script);
    fprintf(
        script,
        "import os, pty, sys\nos.environ['TERM'] = 'xterm'\nseen = b''\n"
        "def read(fd):\n"
        "    global seen\n"
        "    data = os.read(fd, 1024)\n"
        "    seen += data\n"
        "    if b'[0/1] | ' in seen:\n"
        "        open('%s/go', 'w').close()\n" /* the test ends when the line was seen */
        "    return data\n"
        "sys.exit(os.waitstatus_to_exitcode(pty.spawn(['%s', '--jobs', '1', 'beside.waits_for_a_file'], read)))\n",
        folder, SAMPLE);
    fclose(script);
    RF_ASSERT_INT(run_report(environment, "python3", path), 0);
    RF_EXPECT_CONTAINS(report, "\r\x1b[K[0/1] | ");
    RF_EXPECT_CONTAINS(report, "\x1b[K1 passed, 0 failed, 0 skipped\r\n");
    RF_ASSERT_INT(run(SAMPLE, "prints.slowly beside.waits"), 0);
    RF_EXPECT(!strchr(report, '\x1b') && !strchr(report, '\r'));
}

/* However often a test prints, the line is drawn ten times a second at most. */
RF_TEST(runner, live_line_is_drawn_in_moderation, ENTER) {
    char path[300];
    snprintf(path, sizeof path, "%s/terminal.py", folder);
    FILE *script = fopen(path, "w");
    RF_ASSERT_NOT_NULL(script);
    fprintf(script,
            "import os, pty, time\nos.environ['TERM'] = 'xterm'\nseen = b''\n"
            "def read(fd):\n"
            "    global seen\n"
            "    data = os.read(fd, 1024)\n"
            "    seen += data\n"
            "    return data\n"
            "began = time.monotonic()\n"
            "assert pty.spawn(['%s', '--jobs', '1', 'prints.line_by_line'], read) == 0\n"
            "drawn, most = seen.count(b'\\r\\x1b[K[0/1]'), 10 * (time.monotonic() - began) + 1\n"
            "print('\\nmoderate' if 1 <= drawn <= most else f'\\n{drawn} times, more than {most}')\n",
            SAMPLE);
    fclose(script);
    RF_ASSERT_INT(run_report(environment, "python3", path), 0);
    RF_EXPECT_TEXT(last_line(), "moderate\n");
}

RF_TEST(runner, ten_thousand_tests, ENTER, .timeout_ms = 1500000, .tags = "slow") {
    RF_ASSERT_INT(run(MANY, "--jobs 2"), 1);
    expect_end("9989 passed, 1 failed, 10 skipped\n");
    RF_EXPECT_CONTAINS(report, "FAIL  many.test/7777");
    RF_EXPECT_CONTAINS(report, "5000 of 10000 done, 0 failed");
    RF_EXPECT_CONTAINS(report, "skipped 10: it is a one\n");
    RF_EXPECT(strlen(report) < 4000);
}

RF_TEST(runner, ten_thousand_tests_in_one_process, ENTER, .timeout_ms = 600000) {
    RF_ASSERT_INT(run(MANY, "--in-process --no-rerun"), 1);
    expect_end("9989 passed, 1 failed, 10 skipped\n");
    RF_EXPECT(strlen(report) < 4000);
}

/* ---- any command, without a GPU ---- */

RF_TEST(any_command, exit_codes_are_passed_on, ENTER) {
    RF_EXPECT_INT(run(ROCMFORGE, "test -- true"), 0);
    RF_EXPECT_INT(run(ROCMFORGE, "test -- sh -c 'echo out; echo err >&2; exit 42'"), 42);
    RF_EXPECT_CONTAINS(report, "out\n");
    RF_EXPECT_CONTAINS(report, "err\n");
    RF_EXPECT_INT(run(ROCMFORGE, "test -- sh -c 'kill -SEGV $$'"), 128 + SIGSEGV);
    RF_EXPECT_INT(run(ROCMFORGE, "test --timeout 0.3 -- sleep 60"), 1);
    RF_EXPECT_CONTAINS(report, "timeout: killed after 0.3 s");
    RF_EXPECT_INT(run(ROCMFORGE, "test -- sh -c 'sleep 100 & true'"), 0);
    RF_EXPECT_CONTAINS(report, "left a process behind");
    RF_EXPECT_INT(run(ROCMFORGE, "test -- echo --help --list"), 0);
    RF_EXPECT_CONTAINS(report, "--help --list\n");
    RF_EXPECT_INT(run(ROCMFORGE, "test -- cat < /dev/null"), 0);
}

/* ---- bad input: one line, exit 2 ---- */

static void expect_refusal(const char *executable, const char *arguments, const char *part) {
    RF_TRACE("%s %s", executable, arguments);
    RF_ASSERT_INT(run(executable, "%s", arguments), 2);
    const char *end = strchr(report, '\n');
    if (!end || end[1]) RF_FAIL("not one line: %s", report);
    RF_EXPECT_CONTAINS(report, part);
}

RF_TEST(bad_input, is_one_line, ENTER) {
    char text[1024];
    expect_refusal(TWICE, "", "same.name exists twice");
    expect_refusal(ROCMFORGE, "test " TWICE, "same.name exists twice");
    expect_refusal(ROCMFORGE, "test " SAMPLE " " SAMPLE, "named twice");
    expect_refusal(ROCMFORGE, "test", "name at least one");
    expect_refusal(ROCMFORGE, "test --", "no command follows");
    expect_refusal(ROCMFORGE, "test /nonexistent/file", "cannot be run");
    expect_refusal(ROCMFORGE, "test /tmp", "cannot be run");
    expect_refusal(ROCMFORGE, "test /etc/passwd", "cannot be run");
    expect_refusal(ROCMFORGE, "test -- /nonexistent/file", "cannot be run");
    expect_refusal(SAMPLE, "nosuch.*", "no test matches");
    expect_refusal(SAMPLE, "--junit /nonexistent/folder/r.xml", "cannot be written");
    expect_refusal(SAMPLE, "--json /tmp", "cannot be written");
    static const char *const wrong[] = {"--jobs 0",
                                        "--jobs 99999",
                                        "--gpu-jobs 0",
                                        "--gpu-jobs x",
                                        "--repeat 0",
                                        "--shuffle x",
                                        "--slowest -1",
                                        "--check guard,",
                                        "--check nonsense",
                                        "--seed",
                                        "--timeout-scale",
                                        "--gpu-wait x",
                                        "--timeout 0",
                                        "--unknown",
                                        "--junit",
                                        "--timeout-scale nan",
                                        "--check guard,guard,guard,guard,guard"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        expect_refusal(SAMPLE, wrong[i], "--help shows the options");
    snprintf(text, sizeof text, "test --junit %s/no/r.xml %s", folder, SAMPLE);
    expect_refusal(ROCMFORGE, text, "cannot be written");
}

/* ---- folders of tests that were killed ---- */

static unsigned long long own_start(void) {
    char text[1024] = "";
    FILE *file = fopen("/proc/self/stat", "re");
    RF_ASSERT_NOT_NULL(file);
    RF_ASSERT(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    RF_ASSERT_NOT_NULL(at);
    return strtoull(at, NULL, 10);
}

/* Makes what is to be swept, or kept: "PID-START" are those of its owner. */
static void plant(char path[400], const char *kind, unsigned long long space, int pid, unsigned long long start,
                  const char *end) {
    char command[1024];
    snprintf(path, 400, "%s/tmp/rf-test-%llu-%d-%llu-%s", folder, space, pid, start, end);
    snprintf(command, sizeof command, kind, path, path);
    RF_ASSERT_INT(system(command), 0);
}
static bool is_there(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

RF_TEST(runner, folders_of_killed_tests_are_swept, ENTER) {
    static const char made[] = "mkdir -p '%s/deep' && touch '%s/deep/file'", file[] = "touch '%s' # %s";
    char dead[400], recycled[400], alive[400], elsewhere[400], plain[400], short_name[400], linked[400], link[400];
    char command[600];
    struct stat space;
    RF_ASSERT_INT(stat("/proc/self/ns/pid", &space), 0);
    snprintf(command, sizeof command, "mkdir '%s/tmp' '%s/kept'", folder, folder);
    RF_ASSERT_INT(system(command), 0);
    size_t used = strlen(environment);
    snprintf(environment + used, sizeof environment - used, " TMPDIR='%s/tmp'", folder);
    pid_t gone = fork();
    if (!gone) _exit(0);
    RF_ASSERT_INT(waitpid(gone, NULL, 0), gone);
    unsigned long long here = space.st_ino, start = own_start();
    plant(dead, made, here, (int)gone, 12345, "abcdef");
    plant(recycled, made, here, (int)getpid(), start + 1, "abcdef");
    plant(alive, made, here, (int)getpid(), start, "abcdef");
    plant(elsewhere, made, here + 1, (int)gone, 12345, "abcdef");
    plant(plain, file, here, (int)gone, 12345, "ghijkl");
    plant(short_name, made, here, (int)gone, 12345, "abc");
    snprintf(linked, sizeof linked, "%.300s/kept", folder);
    snprintf(command, sizeof command, "ln -s '%.300s/kept' '%%s' # %%s", folder);
    plant(link, command, here, (int)gone, 12345, "mnopqr");

    RF_ASSERT_INT(run(SAMPLE, "folder.fine"), 0);
    RF_EXPECT(!is_there(dead));
    RF_EXPECT(!is_there(recycled));
    RF_EXPECT(is_there(alive));
    RF_EXPECT(is_there(elsewhere));
    RF_EXPECT(is_there(plain));
    RF_EXPECT(is_there(short_name));
    RF_EXPECT(is_there(link) && is_there(linked));
    /* A test that is killed leaves its folder to the end of the run, not longer. */
    RF_ASSERT_INT(run(SAMPLE, "folder.killed"), 1);
    snprintf(command, sizeof command, "ls '%s/tmp' | wc -l", folder);
    FILE *count = popen(command, "r");
    char number[32] = "";
    RF_ASSERT_NOT_NULL(fgets(number, sizeof number, count));
    pclose(count);
    RF_EXPECT_INT(atoi(number), 5);
}
