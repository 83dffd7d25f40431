/* The caller's side of the probe: it spawns a helper per driver and listens until a deadline. Nothing of the helpers
 * is ever left: no process, no descriptor, no signal.
 *
 * Invariants (that no helper and no descriptor is left is asserted at the end of rf_probe_run; the rest says which
 * calls are made, and how, and tests/probe/test_probe_host.c checks that from outside):
 *   - no driver library is opened here
 *   - every wait is a poll bounded by the deadline; waitid and waitpid get WNOHANG
 *   - only the helpers' own pids are waited for; SIGCHLD's disposition is not read. In a program that ignores SIGCHLD
 *     or reaps every child the exit status is lost, and the reason then says less
 *   - a helper's process group is killed only while the helper is known to be ours: alive, or
 *     dead and not yet reaped
 * Thread-safe: all state is in the caller's frame. The environment is read, as by any spawn. */
#include "gpu/probe.h"

#include "gpu/locate.h"
#include "gpu/probe_report.h"
#include "gpu/target.h"
#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MAX_ASKED = 2, REPORT_FD = 3, POLL_MS = 20, END_MS = 5000, REAP_MS = 10000, FIRST_SPARE_FD = REPORT_FD + 1 };

enum life { LIFE_RUNNING, LIFE_ENDED, LIFE_FOREIGN /* reaped by other code */ };

/* One driver to ask, and the helper that asks it. */
struct asked {
    enum rf_driver_kind kind;
    const char *option; /* for RF_DRIVER */
    const char *label;  /* for reasons */
    char library[512];  /* overrides the option; empty: the option's */
    pid_t pid;          /* 0: never spawned or gone */
    int fd;             /* -1: closed */
    bool settled;       /* nothing more can be learnt */
    enum life life;
    int exit_kind, exit_value; /* CLD_EXITED with a code, CLD_KILLED or CLD_DUMPED with a signal */
    bool end_of_pipe, flooded, timed_out;
    char *text;
    size_t length;
    /* the outcome */
    rf_status status;
    char reason[640];
    struct rf_probe_report *report; /* if status is RF_OK */
};

static int choose_drivers(const struct rf_options *options, struct asked *asked, struct rf_probe_result *result);
static bool find_helper(const struct rf_options *options, char *helper, size_t size, struct rf_probe_result *result);
static void start(struct asked *asked, const char *helper, const struct rf_options *options);
static void listen_until(struct asked *asked, int count, int64_t deadline_ns);
static void finish_all(struct asked *asked, int count);
static void judge(struct asked *asked, const char *helper, int64_t timeout_ms);
static void merge(struct asked *asked, int count, struct rf_probe_result *result);

void rf_probe_run(const struct rf_options *options, struct rf_probe_result *result) {
    struct asked asked[MAX_ASKED];
    struct rf_saved_error error; /* probing never fails, so the thread's error text stays */
    char helper[1024];
    memset(result, 0, sizeof *result);
    memset(asked, 0, sizeof asked);
    rf_error_save(&error);

    int64_t timeout_ms = rf_options_int(options, "RF_PROBE_TIMEOUT_MS");
    int64_t deadline_ns = rf_deadline_after(timeout_ms * 1000000);
    int count = choose_drivers(options, asked, result);
    if (count > 0 && find_helper(options, helper, sizeof helper, result)) {
        for (int i = 0; i < count; i++) start(&asked[i], helper, options);
        listen_until(asked, count, deadline_ns);
        finish_all(asked, count);
        for (int i = 0; i < count; i++) rf_assert(asked[i].settled && asked[i].pid == 0 && asked[i].fd == -1);
        for (int i = 0; i < count; i++) judge(&asked[i], helper, timeout_ms);
        merge(asked, count, result);
        for (int i = 0; i < count; i++) {
            free(asked[i].text);
            free(asked[i].report);
        }
    }
    rf_error_restore(&error);
}

/* ---- before: which drivers to ask, and with which helper ---- */

static void refuse(struct rf_probe_result *result, const char *format, ...) RF_PRINTF(2, 3);
static void refuse(struct rf_probe_result *result, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(result->reason, sizeof result->reason, format, arguments);
    va_end(arguments);
    result->status = RF_E_NO_DRIVER;
}

static void add(struct asked *asked, int *count, enum rf_driver_kind kind, const char *option, const char *label) {
    asked[*count] = (struct asked){.kind = kind, .option = option, .label = label, .fd = -1};
    (*count)++;
}

static int choose_drivers(const struct rf_options *options, struct asked *asked, struct rf_probe_result *result) {
    const char *driver = rf_options_get(options, "RF_DRIVER"), *library = rf_options_get(options, "RF_HIP_LIBRARY");
    int count = 0;
    if (!driver) driver = "auto";
    if (strcmp(driver, "none") == 0) refuse(result, "RF_DRIVER=none: no GPU driver is to be used");
    if (strcmp(driver, "auto") == 0 || strcmp(driver, "hip") == 0) add(asked, &count, RF_DRIVER_HIP, "hip", "HIP");
    if (strcmp(driver, "auto") == 0 || strcmp(driver, "cuda") == 0)
        add(asked, &count, RF_DRIVER_CUDA, "cuda", "CUDA");
    if (strcmp(driver, "sim") == 0) {
        /* The path is found here, because the helper may be installed in another folder than the library. */
        add(asked, &count, RF_DRIVER_HIP, "sim", "simulated");
        if (!(library && library[0]) &&
            rf_locate_simulated_driver(asked[0].library, sizeof asked[0].library) != RF_OK) {
            refuse(result, "simulated driver: %s; set RF_HIP_LIBRARY", rf_error_text());
            return 0;
        }
    }
    return count;
}

static bool find_helper(const struct rf_options *options, char *helper, size_t size, struct rf_probe_result *result) {
    const char *wanted = rf_options_get(options, "RF_PROBE_HELPER");
    struct stat info;
    if (wanted && wanted[0]) {
        snprintf(helper, size, "%s", wanted);
    } else if (rf_locate_probe_helper(helper, size) != RF_OK) {
        refuse(result, "the probe's helper is missing: %s; set RF_PROBE_HELPER", rf_error_text());
        return false;
    }
    if (stat(helper, &info) == 0 && S_ISREG(info.st_mode) && access(helper, X_OK) == 0) return true;
    bool there = stat(helper, &info) == 0;
    refuse(result, "the probe's helper %s %s; reinstall, or set RF_PROBE_HELPER", helper,
           there ? "cannot be executed" : "is missing");
    return false;
}

/* ---- spawning ---- */

/* Opens a pipe with ends that do not collide with the descriptors that the child gets. */
static bool open_pipe(int ends[2]) {
    int low[2];
    if (rf_pipe(low, O_CLOEXEC) != 0) return false;
    for (int i = 0; i < 2; i++) ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, FIRST_SPARE_FD);
    close(low[0]); /* does not fail, so errno stays */
    close(low[1]);
    if (ends[0] >= 0 && ends[1] >= 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0) return true;
    int error = errno;
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0) close(ends[i]);
    errno = error;
    return false;
}

static int prepare(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes, int pipe_fd) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    int error = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    if (!error) error = posix_spawn_file_actions_addopen(actions, 1, "/dev/null", O_WRONLY, 0);
    if (!error) error = posix_spawn_file_actions_addopen(actions, 2, "/dev/null", O_WRONLY, 0);
    if (!error) error = posix_spawn_file_actions_adddup2(actions, pipe_fd, REPORT_FD);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    /* A driver must not get the program's other descriptors. */
    if (!error) error = posix_spawn_file_actions_addclosefrom_np(actions, REPORT_FD + 1);
#endif
    if (!error)
        error = posix_spawnattr_setflags(attributes,
                                         POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (!error) error = posix_spawnattr_setpgroup(attributes, 0);
    if (!error) error = posix_spawnattr_setsigmask(attributes, &none);
    if (!error) error = posix_spawnattr_setsigdefault(attributes, &all);
    return error;
}

/* The options that the helper reads. They are passed as arguments, because those in force here may differ from the
 * environment. */
static const char *const passed_options[] = {"RF_DRIVER", "RF_HIP_LIBRARY",  "RF_CUDA_LIBRARY", "RF_PROBE_TIMEOUT_MS",
                                             "RF_SYSFS",  "RF_NVML_LIBRARY", "RF_DEV"};

static void free_arguments(char **arguments) {
    for (size_t i = 1; i <= RF_COUNT(passed_options); i++) free(arguments[i]);
}

static bool make_arguments(const struct asked *asked, const char *helper, const struct rf_options *options,
                           char **arguments) {
    memset(arguments, 0, (RF_COUNT(passed_options) + 2) * sizeof *arguments);
    arguments[0] = (char *)(uintptr_t)helper; /* not written to: posix_spawn's prototype is older than const */
    for (size_t i = 0; i < RF_COUNT(passed_options); i++) {
        const char *name = passed_options[i], *value = rf_options_get(options, name);
        if (strcmp(name, "RF_DRIVER") == 0) value = asked->option;
        if (strcmp(name, "RF_HIP_LIBRARY") == 0 && asked->library[0]) value = asked->library;
        if (asprintf(&arguments[i + 1], "%s=%s", name, value ? value : "") < 0) {
            arguments[i + 1] = NULL;
            free_arguments(arguments);
            return false;
        }
    }
    return true;
}

static void fail_to_start(struct asked *asked, const char *what, int error) {
    char text[128];
    asked->settled = true;
    asked->status = RF_E_NO_DRIVER;
    snprintf(asked->reason, sizeof asked->reason, "%s driver: %s: %s", asked->label, what,
             strerror_r(error, text, sizeof text));
}

static void start(struct asked *asked, const char *helper, const struct rf_options *options) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char *arguments[RF_COUNT(passed_options) + 2];
    int ends[2] = {-1, -1};
    asked->text = malloc(RF_PROBE_REPORT_MAX_BYTES);
    if (!asked->text || !make_arguments(asked, helper, options, arguments)) {
        fail_to_start(asked, "no memory to start the probe's helper", ENOMEM);
        return;
    }
    if (!open_pipe(ends)) {
        fail_to_start(asked, "no pipe for the probe's helper", errno);
        free_arguments(arguments);
        return;
    }
    int error = posix_spawn_file_actions_init(&actions);
    if (!error) {
        error = posix_spawnattr_init(&attributes);
        if (!error) {
            error = prepare(&actions, &attributes, ends[1]);
            if (!error) error = posix_spawn(&asked->pid, helper, &actions, &attributes, arguments, environ);
            posix_spawnattr_destroy(&attributes);
        }
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    free_arguments(arguments);
    if (error) {
        close(ends[0]);
        asked->pid = 0;
        fail_to_start(asked, "the probe's helper cannot be started", error);
        return;
    }
    asked->fd = ends[0];
}

/* ---- listening ---- */

static void drain(struct asked *asked) {
    while (asked->fd >= 0 && !asked->end_of_pipe && !asked->flooded) {
        char spare;
        size_t room = RF_PROBE_REPORT_MAX_BYTES - asked->length;
        ssize_t got = read(asked->fd, room ? asked->text + asked->length : &spare, room ? room : 1);
        if (got > 0 && !room) asked->flooded = true;
        if (got > 0 && room) asked->length += (size_t)got;
        if (got == 0) asked->end_of_pipe = true;
        if (got < 0 && errno != EINTR) {
            if (errno != EAGAIN) asked->end_of_pipe = true;
            return;
        }
    }
}

/* Checks whether the helper ended, and leaves it for finish_all() to reap. */
static void look_at_life(struct asked *asked) {
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (asked->life != LIFE_RUNNING) return;
    if (waitid(P_PID, (id_t)asked->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
        if (errno == ECHILD) asked->life = LIFE_FOREIGN;
    } else if (info.si_pid == asked->pid) {
        asked->life = LIFE_ENDED;
        asked->exit_kind = info.si_code;
        asked->exit_value = info.si_status;
    }
}

/* A whole report settles a helper, whatever it does after that. The end of the pipe without a report does not: how
 * the helper ends tells more about the reason. The end of the helper settles it, even where a process that it left
 * behind keeps the pipe open. */
static void look_at(struct asked *asked) {
    look_at_life(asked); /* this comes first: all that it wrote before its end is then in the pipe */
    drain(asked);
    asked->settled =
        asked->flooded || asked->life != LIFE_RUNNING || rf_probe_report_complete(asked->text, asked->length);
}

static void listen_until(struct asked *asked, int count, int64_t deadline_ns) {
    while (true) {
        struct pollfd waiting[MAX_ASKED];
        nfds_t waiting_count = 0;
        bool all_settled = true, ending = false;
        for (int i = 0; i < count; i++) {
            if (!asked[i].settled) look_at(&asked[i]);
            if (asked[i].settled) continue;
            all_settled = false;
            ending = ending || asked[i].end_of_pipe;
            if (!asked[i].end_of_pipe)
                waiting[waiting_count++] = (struct pollfd){.fd = asked[i].fd, .events = POLLIN};
        }
        int64_t left_ns = deadline_ns - rf_now_ns();
        if (all_settled) return;
        if (left_ns <= 0) break;
        int64_t wait_ms = RF_MIN(left_ns / 1000000 + 1, ending ? 1 : POLL_MS);
        (void)poll(waiting, waiting_count, (int)wait_ms); /* an error or a signal means: look again */
    }
    for (int i = 0; i < count; i++) {
        asked[i].timed_out = !asked[i].settled;
        asked[i].settled = true;
    }
}

/* ---- ending ---- */

/* Waits until the helper has ended, or the time has come. */
static void await_end(struct asked *asked, int64_t until_ns) {
    for (look_at_life(asked); asked->life == LIFE_RUNNING && rf_now_ns() < until_ns; look_at_life(asked))
        rf_sleep_ns(500000);
}

/* Ends the helpers that are left, and reaps them. On SIGTERM a helper kills all that its driver started, then ends.
 * That takes no time, or a little on an overloaded machine. A helper that does not end is killed with its process
 * group. A process that hangs inside the kernel dies later or never, and is left until this program ends. */
static void finish_all(struct asked *asked, int count) {
    int64_t end_ns = rf_deadline_after((int64_t)END_MS * 1000000);
    int64_t give_up_ns = rf_deadline_after((int64_t)REAP_MS * 1000000);
    for (int i = 0; i < count; i++) {
        if (asked[i].fd >= 0) close(asked[i].fd);
        asked[i].fd = -1;
        if (asked[i].pid <= 0) continue;
        look_at_life(&asked[i]);
        if (asked[i].life == LIFE_RUNNING) kill(asked[i].pid, SIGTERM);
    }
    for (int i = 0; i < count; i++) {
        if (asked[i].pid <= 0) continue;
        await_end(&asked[i], end_ns);
        rf_assert(asked[i].pid > 1); /* -1 would mean every process */
        if (asked[i].life != LIFE_FOREIGN) kill(-asked[i].pid, SIGKILL);
    }
    for (int i = 0; i < count; i++) {
        while (asked[i].pid > 0) {
            pid_t reaped = waitpid(asked[i].pid, NULL, WNOHANG);
            if (reaped == asked[i].pid || (reaped < 0 && errno != EINTR) || rf_now_ns() >= give_up_ns)
                asked[i].pid = 0;
            else
                rf_sleep_ns(500000);
        }
    }
}

/* ---- judging ---- */

static const char *signal_name(int number) {
    switch (number) {
    case SIGSEGV: return "SIGSEGV";
    case SIGABRT: return "SIGABRT";
    case SIGBUS: return "SIGBUS";
    case SIGILL: return "SIGILL";
    case SIGFPE: return "SIGFPE";
    case SIGTRAP: return "SIGTRAP";
    case SIGKILL: return "SIGKILL";
    case SIGALRM: return "SIGALRM";
    case SIGTERM: return "SIGTERM";
    default: return "a signal";
    }
}

/* Says why there is no report: what the helper was doing, and how it ended. */
static void explain(struct asked *asked, const char *helper, int64_t timeout_ms) {
    char step[160], during[200] = "", how[160];
    bool spoke = rf_probe_last_step(asked->text, asked->length, step, sizeof step);
    if (step[0]) snprintf(during, sizeof during, " while %s", step);
    asked->status = RF_E_DRIVER;
    if (asked->flooded) {
        snprintf(how, sizeof how, "wrote more than %zu KiB that are no report", RF_PROBE_REPORT_MAX_BYTES / 1024);
    } else if (asked->timed_out && asked->end_of_pipe) {
        asked->status = RF_E_TIMEOUT;
        snprintf(how, sizeof how, "closed its report unfinished and hung for %lld ms (RF_PROBE_TIMEOUT_MS)",
                 (long long)timeout_ms);
    } else if (asked->timed_out) {
        asked->status = RF_E_TIMEOUT;
        snprintf(how, sizeof how, "gave no answer within %lld ms (RF_PROBE_TIMEOUT_MS)", (long long)timeout_ms);
    } else if (asked->life == LIFE_FOREIGN) {
        snprintf(how, sizeof how, "ended without a report, how is unknown since this program reaps all its children");
    } else if (asked->exit_kind == CLD_EXITED) {
        snprintf(how, sizeof how, "exited with code %d without a report", asked->exit_value);
    } else {
        snprintf(how, sizeof how, "crashed with %s (%d)", signal_name(asked->exit_value), asked->exit_value);
    }
    /* A helper that did not even write the header is the wrong program or never got to the driver. */
    if (spoke)
        snprintf(asked->reason, sizeof asked->reason, "%s driver: the probe %s%s", asked->label, how, during);
    else
        snprintf(asked->reason, sizeof asked->reason,
                 "%s driver: the probe's helper %.300s %s; is it rocmforge-probe?", asked->label, helper, how);
}

static void judge(struct asked *asked, const char *helper, int64_t timeout_ms) {
    if (asked->reason[0]) return; /* never started */
    if (asked->flooded || !rf_probe_report_complete(asked->text, asked->length)) {
        explain(asked, helper, timeout_ms);
        return;
    }
    struct rf_probe_report *report = calloc(1, sizeof *report);
    rf_status parsed = report ? rf_probe_report_parse(asked->text, asked->length, report)
                              : rf_fail(RF_E_NO_MEMORY, "no memory to read it");
    if (parsed == RF_OK && report->kind != asked->kind) parsed = rf_fail(RF_E_SYNTAX, "it is about another driver");
    if (parsed != RF_OK) {
        asked->status = RF_E_DRIVER;
        snprintf(asked->reason, sizeof asked->reason, "%s driver: the probe's report is malformed: %.400s",
                 asked->label, rf_error_text());
    } else if (report->status != RF_OK) {
        asked->status = report->status;
        snprintf(asked->reason, sizeof asked->reason, "%s", report->reason);
    } else if (strcmp(asked->option, "sim") == 0 && !report->simulated) {
        /* A test that asked for a simulated GPU must not run on a real one. */
        asked->status = RF_E_NO_DRIVER;
        snprintf(asked->reason, sizeof asked->reason, "simulated driver: %s is not one; change RF_HIP_LIBRARY",
                 report->library);
    } else {
        asked->report = report;
        return;
    }
    free(report);
}

/* ---- the result ---- */

static void add_reason(struct rf_probe_result *result, const char *reason) {
    size_t length = strlen(result->reason);
    snprintf(result->reason + length, sizeof result->reason - length, "%s%s", length ? "; " : "", reason);
}

/* A GPU that a driver shows as several devices has one uuid; leases need a different one for each device. */
static void make_unique(const struct rf_probe_result *result, int ordinal, char *uuid, size_t size) {
    for (int i = 0; i < result->count; i++) {
        if (strcmp(result->devices[i].uuid, uuid) != 0) continue;
        char changed[64];
        snprintf(changed, sizeof changed, "%.40s-%d", uuid, ordinal);
        snprintf(uuid, size, "%.47s", changed);
        return;
    }
}

/* The copy is for people and JSON: bytes of the driver's text that are not printable become '?'. */
static void copy_printable(char *to, size_t size, const char *from) {
    size_t i = 0;
    for (; from[i] && i + 1 < size; i++) to[i] = from[i] >= 0x20 && from[i] <= 0x7e ? from[i] : '?';
    to[i] = 0;
}

static void add_device(const struct asked *asked, const struct rf_probe_device *device,
                       struct rf_probe_result *result) {
    const struct rf_probe_report *report = asked->report;
    char refusal[512];
    if (result->count >= RF_MAX_DEVICES) return;
    struct rf_device_info *info = &result->devices[result->count];
    info->struct_size = sizeof *info;
    info->index = result->count;
    copy_printable(info->name, sizeof info->name, device->name);
    copy_printable(info->arch, sizeof info->arch, device->arch);
    copy_printable(info->uuid, sizeof info->uuid, device->uuid);
    make_unique(result, device->ordinal, info->uuid, sizeof info->uuid);
    copy_printable(info->pci, sizeof info->pci, device->pci);
    copy_printable(info->driver, sizeof info->driver, report->label);
    info->vendor = report->kind == RF_DRIVER_CUDA ? RF_VENDOR_NVIDIA : RF_VENDOR_AMD;
    info->simulated = report->simulated != RF_PROBE_NOT_SIMULATED;
    info->integrated = device->integrated;
    info->display = (enum rf_tristate)device->display;
    info->total_bytes = device->total_bytes;
    info->free_bytes = device->free_bytes;
    info->granularity_bytes = device->granularity_bytes;
    info->wave_size = device->wave_size;
    info->compute_units = device->compute_units;
    info->max_threads_per_block = device->max_threads_per_block;
    info->max_shared_bytes_per_block = device->max_shared_bytes_per_block;
    result->source[result->count].kind = (int)report->kind;
    result->source[result->count].ordinal = device->ordinal;
    result->source[result->count].own = report->simulated == RF_PROBE_SIMULATED;
    snprintf(result->source[result->count].library, sizeof result->source[0].library, "%s", report->library);

    info->usable = rf_probe_device_plausible(report->kind, device, info->reason, sizeof info->reason);
    if (info->usable &&
        rf_target_best_builtin(info->arch, info->kernel_target, sizeof info->kernel_target) != RF_OK) {
        info->usable = false;
        snprintf(info->reason, sizeof info->reason, "%s", rf_error_text());
    }
    if (!info->usable) {
        copy_printable(info->reason, sizeof info->reason, info->reason);
        snprintf(refusal, sizeof refusal, "device %d (%s): %s", info->index, info->name, info->reason);
        add_reason(result, refusal);
    }
    result->count++;
}

/* The worse the status, the higher the number; a driver that is merely absent matters least. */
static int gravity(rf_status status) {
    return status == RF_E_NO_DRIVER ? 1 : status == RF_E_NO_DEVICE ? 2 : status == RF_E_DRIVER ? 3 : 4;
}

static void merge(struct asked *asked, int count, struct rf_probe_result *result) {
    rf_status worst = RF_OK;
    bool usable = false;
    for (int i = 0; i < count; i++)
        for (int d = 0; asked[i].report && d < asked[i].report->count; d++)
            add_device(&asked[i], &asked[i].report->devices[d], result);
    for (int d = 0; d < result->count; d++) usable = usable || result->devices[d].usable;
    for (int i = 0; i < count; i++) {
        if (asked[i].report) continue;
        if (worst == RF_OK || gravity(asked[i].status) > gravity(worst)) worst = asked[i].status;
        /* Where there is a usable GPU, the absence of the other vendor's driver is not worth a reason, but its crash
         * is. */
        if (!usable || gravity(asked[i].status) > gravity(RF_E_NO_DEVICE)) add_reason(result, asked[i].reason);
    }
    if (usable) {
        result->status = RF_OK;
    } else {
        result->status = worst != RF_OK && result->count == 0 ? worst : RF_E_NO_DEVICE;
    }
}
