/* The inside of the runner: everything that happens outside the process of a test.
 *
 *   child             a process with its record, its output, its deadline and what it left behind
 *   orphans           finds the processes that a child left behind
 *   plan              which tests of which executables run, in which order
 *   history           what tests needed in earlier runs, and which failed last
 *   admission         the runner's share of the GPU, and which test may start now
 *   health            whether the GPU still works, found out by a separate process
 *   runner            runs a plan in isolated processes
 *   run_in_process    runs a plan in this process, or a sequence of tests in a child
 *   run_in_one_child  runs the tests of each executable in one child process
 *   run_command       runs any command under the same lock and deadline
 *   pollution         finds out why a test failed in company
 *   report            the report for people; progress: the live line; report_junit, report_json: files for programs
 *   settings          the options
 *   main              what the executables call
 *
 * Must use only public headers, besides base/json.h and base/utf8.h, and must not call a driver: the helper process
 * of the library probes GPUs, and children use them. */
#ifndef RF_RUNNER_IMPL_H
#define RF_RUNNER_IMPL_H

#include "testing_impl.h"

#include <signal.h>

#include <rocmforge/gpu.h>

/* ---- child.c ---- */

/* Keeps the beginning and the end of a stream of any length. */
struct rf_test_capture {
    char *head, *tail; /* owned; the tail is a ring */
    size_t head_length, tail_length, tail_at;
    uint64_t total;
};
void rf_test_capture_add(struct rf_test_capture *capture, const char *data, size_t length);
/* The stored bytes in order, owned by the caller; *left_out bytes are missing at *gap_at. */
void rf_test_capture_text(const struct rf_test_capture *capture, char **text, size_t *length, size_t *gap_at,
                          uint64_t *left_out);

#define RF_TEST_RECORD_FD 198
#define RF_TEST_KEY_BYTES 192

struct rf_test_child {
    pid_t pid;
    int pid_fd, record_fd, output_fd; /* -1: none */
    char *record;                     /* owned, ended by zero */
    size_t record_length, record_capacity, record_limit;
    struct rf_test_capture output;
    void (*on_output)(void *user, const char *data, size_t length); /* may be NULL */
    void *user;
    int64_t started_ns, deadline_ns, asked_ns, ended_ns;
    int64_t left_killed_ns; /* when what it left behind was first sent SIGKILL; 0: not yet */
    bool timed_out, killed; /* past its deadline it got SIGTERM, then SIGKILL */
    bool leader_ended;      /* its process has ended; what it left behind is being examined */
    bool ended;
    int wait_status;             /* once ended */
    char key[RF_TEST_KEY_BYTES]; /* RF_TEST_KEY in its environment */
    char left_behind[160];       /* processes that outlived it; empty if none */
    char undead[160];            /* those of them that did not die in time after SIGKILL; empty if none */
};

struct rf_test_spawn {
    char *const *argv;
    const char *const *environment; /* "NAME=VALUE" in addition to our environment, ended by NULL; or NULL */
    int64_t timeout_ns;
    size_t record_limit; /* 0: 1 MiB */
    bool is_command;     /* a command that is not a test: keeps our input, output and errors, and has no record */
    void (*on_output)(void *user, const char *data, size_t length);
    void *user;
};
/* Starts argv[0] in its own process group and, unless is_command, with empty input, captured output and the pipe of
 * the record at RF_TEST_RECORD_FD. Returns 0, or an errno. */
int rf_test_child_start(struct rf_test_child *child, const struct rf_test_spawn *spawn);
/* Waits up to wait_ns until any of the children writes something or ends, then looks after each: reads what it wrote,
 * ends it past its deadline, reaps it. */
void rf_test_children_serve(struct rf_test_child *const *children, size_t count, int64_t wait_ns);
/* Ends it if it still runs, with its whole group and what it left behind. */
void rf_test_child_finish(struct rf_test_child *child);

/* ---- orphans.c ---- */

/* From here on orphaned descendants become children of this process, so that they can be found. */
void rf_test_orphans_begin(void);
void rf_test_orphans_end(void);
/* The next value of RF_TEST_KEY: the key of this runner, then a number. */
void rf_test_orphans_key(char key[RF_TEST_KEY_BYTES]);
/* How many live processes the child left behind, with their names in text; dead ones are reaped. end: sends them
 * SIGKILL, which they outlive for a moment, so look until there are none. -1: none, but a process is still ending and
 * may leave one, so look again. *works: one of them does not sleep, see below, or is ending. */
int rf_test_orphans_of(const struct rf_test_child *child, bool end, char *text, size_t size, bool *works);
/* Whether a thread of the process is running, waits for a processor or for a disk. A process that is about to end
 * does one of these, however long a busy machine takes over it; one that sleeps will not end by itself. */
bool rf_test_process_works(pid_t pid);
/* "left a process behind: …" and what became of it; size: at least 480. */
void rf_test_child_describe_left(const struct rf_test_child *child, char *text, size_t size);

/* ---- settings.c ---- */

struct rf_test_settings {
    const char **patterns; /* of test names; none: all tests */
    size_t pattern_count;
    const char **tags, **skip_tags;
    size_t tag_count, skip_tag_count;
    const char **executables;
    size_t executable_count;
    char **command; /* the command after "--", ended by NULL; NULL: none. Borrowed from argv */
    int jobs, gpu_jobs;
    long repeat; /* rounds, >= 1 */
    int slowest; /* -1: five if the run took more than 5 s */
    double timeout_scale;
    int64_t timeout_ms;  /* of a command after "--"; 0: ten minutes */
    int64_t gpu_wait_ms; /* how long to wait for the GPU's turn */
    uint64_t seed, shuffle_seed;
    bool shuffle, until_fail, fail_fast, rerun_failed, no_rerun, fail_alloc, gpu_only;
    bool in_process, show_output, quiet, verbose, debug, list, machine;
    const char *check;            /* value of RF_CHECK; NULL: leave it */
    const char *junit, *json;     /* NULL: none */
    const char *run_one, *before; /* a test, and a file with the names of those to run first */
    const char *run_list;         /* a file of tests to run in this process */
    const char *health;           /* the device to probe */
    const char *program;          /* as it was called */
    int record_fd;                /* -1: none */
};
enum rf_test_parsed { RF_TEST_RUN, RF_TEST_HELP, RF_TEST_WRONG };
/* executables: positional arguments are executables, not patterns. Prints what is wrong. */
enum rf_test_parsed rf_test_settings_parse(struct rf_test_settings *settings, int argc, char **argv,
                                           bool executables);
void rf_test_settings_finish(struct rf_test_settings *settings);
extern const char rf_test_option_help[];

/* ---- plan.c ---- */

enum rf_test_label {
    RF_TEST_PLAIN,
    RF_TEST_FAILS,        /* alone, too */
    RF_TEST_FAILS_SHARED, /* only in company */
    RF_TEST_FLAKY,
    RF_TEST_NOT_RUN,
};

struct rf_test_job {
    const char *executable;     /* owned by the plan; NULL: this process's own tests */
    const struct rf_test *test; /* own tests only */
    char *name, *group, *file;  /* owned; group and file may be empty */
    int line;
    int timeout_ms;
    bool gpu, serial;
    uint64_t memory_bytes;
    const char *skip_tag; /* the tag because of which it is skipped; borrowed from the settings; else NULL */

    /* from the history; 0: unknown */
    int64_t usual_ns;
    uint64_t usual_bytes;

    /* the results */
    enum rf_test_verdict verdict; /* of the worst round */
    enum rf_test_label label;
    unsigned long passes, failures, skips; /* over the rounds */
    int64_t elapsed_ns;                    /* the longest round */
    uint64_t peak_bytes;                   /* seen */
    char *message, *output;                /* owned; of the first failure, or why it was skipped; may be NULL */
    char *verdict_text;                    /* owned; what the reruns showed; may be NULL */
    bool in_company;                       /* when it first failed, others ran beside or before it */
    size_t *company;                       /* owned; those others, by number in the plan */
    size_t company_count;
    uint64_t failed_seed;
};

struct rf_test_plan {
    struct rf_test_job *jobs;
    size_t count, capacity;
    char **executables; /* owned */
    size_t executable_count;
};
void rf_test_plan_own(struct rf_test_plan *plan, const struct rf_test_settings *settings);
/* Lists the tests of an executable by running it. 0: done; 1: it did not list its tests; 2: its tests cannot be run
 * as they are. Otherwise *trouble says why (owned by the caller). */
int rf_test_plan_executable(struct rf_test_plan *plan, const struct rf_test_settings *settings, const char *path,
                            char **trouble);
/* The name that occurs twice in one executable, or NULL. */
const struct rf_test_job *rf_test_plan_duplicate(const struct rf_test_plan *plan);
void rf_test_plan_shuffle(struct rf_test_plan *plan, uint64_t seed);
void rf_test_plan_finish(struct rf_test_plan *plan);
/* Writes the list of this executable's tests, for people or (machine) as a record. */
void rf_test_list(const struct rf_test_settings *settings, FILE *to);
/* "suite.name" of an executable, or the executable's base name. */
const char *rf_test_job_program(const struct rf_test_job *job);

/* ---- history.c ---- */

/* Fills usual_ns and usual_bytes, and with rerun_failed drops the jobs that did not fail last time. A file that
 * cannot be read or makes no sense counts as empty. */
void rf_test_history_apply(struct rf_test_plan *plan, bool rerun_failed);
/* Saves the results of this run. If that does not work, it is not a failure. */
void rf_test_history_save(const struct rf_test_plan *plan);

/* ---- admission.c ---- */

struct rf_test_gate {
    struct rf_runtime *runtime; /* NULL: no test wants a GPU */
    bool gpu;                   /* there is a usable GPU */
    int device;
    struct rf_device_info info;
    struct rf_share *share; /* NULL: not taken (yet) */
    uint64_t share_bytes, lent_bytes, reserve_bytes, driver_bytes;
    int64_t asked_ns; /* when waiting for the turn began; 0: not asked */
    int64_t next_ask_ns;
    bool said_waiting, without_share;
    bool lost;     /* the device is gone: start no GPU test */
    char why[512]; /* why it is lost or not available */
};
/* What the gate lent to one running test. */
struct rf_test_part {
    uint64_t bytes; /* lent; 0: none */
    char spec[128]; /* for RF_BUDGET */
};
/* Probes if the plan wants a GPU. Returns 0, or the exit code after a line that says why. */
int rf_test_gate_open(struct rf_test_gate *gate, const struct rf_test_settings *settings,
                      const struct rf_test_plan *plan);
/* The same for a command that is not a test. */
int rf_test_gate_open_for_command(struct rf_test_gate *gate, const struct rf_test_settings *settings);
void rf_test_gate_close(struct rf_test_gate *gate);
/* Asks for the GPU's turn without waiting. True: we have it, or it is not needed. */
bool rf_test_gate_turn(struct rf_test_gate *gate, const struct rf_test_settings *settings);
/* Whether this GPU job can have its memory now; if so, *part is lent to it. alone: no other GPU job runs. */
enum rf_test_admission { RF_TEST_ADMITTED, RF_TEST_LATER, RF_TEST_NEVER };
enum rf_test_admission rf_test_gate_lend(struct rf_test_gate *gate, const struct rf_test_settings *settings,
                                         const struct rf_test_job *job, bool alone, struct rf_test_part *part);
void rf_test_gate_reclaim(struct rf_test_gate *gate, struct rf_test_part *part);
/* What the processes of this user hold on the GPU now; 0 if that is not known. pid: only that process. */
uint64_t rf_test_gate_held(struct rf_test_gate *gate, pid_t pid);

/* ---- health.c ---- */

struct rf_test_health {
    bool good;
    uint64_t free_bytes;   /* free before it opened the device */
    uint64_t driver_bytes; /* what the driver took by itself */
    char why[400];         /* why it is not good */
};
/* In the child: opens the device, computes a little, compares, and writes what it found to the record. Returns the
 * exit code. */
int rf_test_health_here(const char *device, int record_fd);
/* Runs such a child and looks after the others meanwhile. budget: "RF_BUDGET=…" or NULL. */
void rf_test_health_probe(int device, const char *budget, struct rf_test_child *const *others, size_t other_count,
                          struct rf_test_health *health);
/* Free memory as the kernel reports it now; 0: unknown. */
uint64_t rf_test_free_bytes(int device);
/* Waits, with a limit, until this many bytes are free again. False, with *now, if they are not. */
bool rf_test_wait_for_memory(int device, uint64_t wanted_bytes, uint64_t *now);

/* ---- report.c, progress.c, report_junit.c, report_json.c ---- */

struct rf_test_tally {
    unsigned long passed, failed, skipped;
};

struct rf_test_result {
    enum rf_test_verdict verdict;
    const char *message; /* lines; may be empty */
    int64_t elapsed_ns;
    uint64_t seed;
    const struct rf_test_capture *output; /* NULL: not captured */
};
void rf_test_report_start(const struct rf_test_settings *settings, const struct rf_test_plan *plan);
/* Counts the result, stores it in the job, and reports it. */
void rf_test_report(const struct rf_test_settings *settings, struct rf_test_job *job,
                    const struct rf_test_result *result, struct rf_test_tally *tally);
void rf_test_report_trouble(const char *what, const char *message, struct rf_test_tally *tally);
/* rf_test_folder for the runner: NULL, with errno, if it cannot be made. */
const char *rf_test_try_folder(void);
/* Removes the folders of rf_test_folder whose owners were killed. */
void rf_test_sweep_folders(void);
/* A remark on standard error that is not a verdict. */
void rf_test_remark(const char *format, ...) RF_PRINTF(1, 2);
/* The verdicts of reruns, the slowest tests, the closing line. */
void rf_test_report_end(const struct rf_test_settings *settings, const struct rf_test_plan *plan, int64_t elapsed_ns,
                        const struct rf_test_tally *tally);
const char *rf_test_label_name(enum rf_test_label label);

/* Shows what a test prints as it prints it, line by line, each with a prefix. */
struct rf_test_stream {
    const char *prefix;
    char line[1024];
    size_t length;
};
void rf_test_stream_add(struct rf_test_stream *stream, const char *data, size_t length);
void rf_test_stream_end(struct rf_test_stream *stream);

struct rf_test_running {
    const char *name;
    int64_t started_ns;
};
void rf_test_progress_begin(const struct rf_test_settings *settings, const struct rf_test_plan *plan);
void rf_test_progress_draw(const struct rf_test_running *running, size_t running_count, size_t done,
                           const struct rf_test_tally *tally, int64_t left_ns, uint64_t gpu_bytes);
/* Clears the line before anything else is printed; it is drawn again later. Does nothing if there is no terminal. */
void rf_test_progress_clear(void);
bool rf_test_progress_shown(void);
void rf_test_progress_end(void);

/* A report file. A temporary file next to its place is made at once, so that an unwritable folder is noticed early;
 * it is renamed into place as a whole. */
struct rf_test_report_file {
    const char *path;
    char *temporary; /* owned; NULL: written in place */
    FILE *file;
};
/* False: it cannot be written, errno says why. */
bool rf_test_report_open(struct rf_test_report_file *report, const char *path);
bool rf_test_report_commit(struct rf_test_report_file *report);
void rf_test_report_drop(struct rf_test_report_file *report);
void rf_test_write_junit(FILE *to, const struct rf_test_plan *plan, int64_t elapsed_ns);
void rf_test_write_json(FILE *to, const struct rf_test_settings *settings, const struct rf_test_plan *plan,
                        const struct rf_test_tally *tally, int64_t elapsed_ns);

/* ---- runner.c, run_in_process.c, run_in_one_child.c, run_command.c, pollution.c ---- */

/* Set by SIGINT and SIGTERM while a plan runs. */
extern volatile sig_atomic_t rf_test_interrupted;

void rf_test_run_plan(const struct rf_test_settings *settings, struct rf_test_plan *plan, struct rf_test_gate *gate,
                      struct rf_test_tally *tally);
void rf_test_run_in_process(const struct rf_test_settings *settings, struct rf_test_plan *plan,
                            struct rf_test_gate *gate, struct rf_test_tally *tally);
/* The tests of each executable in one process of its own. */
void rf_test_run_in_one_child(const struct rf_test_settings *settings, struct rf_test_plan *plan,
                              struct rf_test_gate *gate, struct rf_test_tally *tally);
/* In its child: runs the tests in the file, one per line: a name, a tab and a seed. Returns the exit code. */
int rf_test_run_list(const char *path, int record_fd);
/* In a child: runs the tests named in the file 'before', then this one; returns its verdict. */
enum rf_test_verdict rf_test_run_sequence(const char *before, const struct rf_test *test, int record_fd);

/* The result of one isolated run of a job. */
struct rf_test_attempt {
    enum rf_test_verdict verdict;
    char *message; /* owned */
    bool clean;    /* ended by itself, left nothing behind, reported no leak */
    int64_t elapsed_ns;
};
/* The arguments and environment of a job's process: at most 16 of argv and 12 of environment, whose text is in
 * 'text'. */
struct rf_test_command {
    char *argv[16];
    const char *environment[12];
    char text[4096];
};
void rf_test_command_make(struct rf_test_command *command, const struct rf_test_settings *settings,
                          const struct rf_test_gate *gate, const struct rf_test_job *job, uint64_t seed,
                          const struct rf_test_part *part, const char *before, const char *fail_alloc);
/* Judges by the record of the process and by how it ended. */
void rf_test_judge(struct rf_test_child *child, int timeout_ms, struct rf_test_attempt *attempt,
                   uint64_t *peak_bytes);

/* Reruns the tests that failed in company and labels them. */
void rf_test_explain(const struct rf_test_settings *settings, struct rf_test_plan *plan, struct rf_test_gate *gate);

/* Runs settings->command; returns the exit code to pass on. */
int rf_test_run_command(const struct rf_test_settings *settings);

#endif
