/* main of the budget's tests, and the processes they start: a puppet that obeys commands, and
 * stress workers that do as they like until they are killed. */
#include "helpers.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc > 1 &&
        (strcmp(argv[1], "--puppet") == 0 || strcmp(argv[1], "--stress") == 0 || strcmp(argv[1], "--observe") == 0))
        _exit(worker_main(argc, argv)); /* leases open, as a crash would leave them */
    return rf_test_main(argc, argv);
}

static void set_used(struct fake_gpu *gpu, uint32_t me, struct rf_lease *lease, uint64_t bytes) {
    if (bytes >= atomic_load(&gpu->used[me])) {
        atomic_store(&gpu->used[me], bytes);
        rf_lease_set_held(lease, bytes);
    } else {
        rf_lease_set_held(lease, bytes);
        atomic_store(&gpu->used[me], bytes);
    }
}

static rf_status open_lease(const char *dir, struct fake_gpu *gpu, const char *text, int64_t timeout_ns,
                            struct rf_lease **lease, struct rf_lease_terms *terms) {
    struct rf_lease_params params = {.live_free = fake_gpu_free, .user = gpu, .timeout_ns = timeout_ns};
    params.total_bytes = atomic_load(&gpu->total);
    lease_where(dir, &params);
    rf_status status = rf_budget_parse(text, &params.spec);
    return status ? status : rf_lease_open(&params, lease, terms);
}

/* Waits, as a forked child of a dead process would, for the test to be over. */
static pid_t fork_lingerer(void) {
    pid_t child = fork();
    if (child) return child;
    char byte;
    close(STDIN_FILENO);
    close(STDOUT_FILENO);
    while (read(LEASH_FD, &byte, 1) < 0 && errno == EINTR) {
    }
    _exit(0);
}

/* ---- the puppet ---- */

static void answer(rf_status status, const struct rf_lease_terms *terms) {
    if (status)
        printf("%s %s\n", rf_status_name(status), rf_error_text());
    else if (terms)
        printf("ok promised=%llu limit=%llu floor=%llu free0=%llu others=%d others_promised=%llu others_held=%llu "
               "largest=%d\n",
               (unsigned long long)terms->promised_bytes, (unsigned long long)terms->limit_bytes,
               (unsigned long long)terms->floor_bytes, (unsigned long long)terms->free0_bytes, terms->others,
               (unsigned long long)terms->others_promised_bytes, (unsigned long long)terms->others_held_bytes,
               terms->largest_pid);
    else
        printf("ok\n");
    fflush(stdout);
}

/* A forked child tries everything that could alter its parent's lease. */
static void misuse_in_child(struct rf_lease *lease) {
    struct rf_budget_spec spec = {0};
    char text[128];
    pid_t child = fork();
    if (child == 0) {
        int wrong = 0;
        wrong += rf_lease_lock(lease, rf_deadline_after(0)) != RF_E_INVALID;
        wrong += !strstr(rf_error_text(), "forked child");
        wrong += rf_lease_renew(lease, &spec, NULL) != RF_E_INVALID;
        wrong += rf_lease_lend(lease, 1, text, sizeof text) != RF_E_INVALID;
        wrong += rf_lease_reclaim(lease, "part=1-1-1:1", NULL) != RF_E_INVALID;
        rf_lease_unlock(lease);
        rf_lease_set_held(lease, 987654);
        rf_lease_close(&lease);
        wrong += lease != NULL;
        _exit(wrong);
    }
    int code = -1;
    waitpid(child, &code, 0);
    printf("ok wrong=%d\n", WIFEXITED(code) ? WEXITSTATUS(code) : -1);
    fflush(stdout);
}

static int puppet_main(const char *dir, struct fake_gpu *gpu, uint32_t me, char **argv) {
    char line[512];
    struct rf_lease *lease = NULL;
    struct rf_lease_terms terms = {0};
    setvbuf(stdin, NULL, _IONBF, 0); /* exec must not lose what was read ahead */
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        char *argument = strchr(line, ' ');
        if (argument) *argument++ = 0;
        uint64_t number = argument ? strtoull(argument, NULL, 10) : 0;
        if (strcmp(line, "open") == 0) {
            rf_status status = open_lease(dir, gpu, argument, PATIENCE_NS, &lease, &terms);
            answer(status, &terms);
        } else if (strcmp(line, "renew") == 0) {
            struct rf_budget_spec spec;
            rf_status status = rf_budget_parse(argument, &spec);
            if (!status) status = rf_lease_renew(lease, &spec, &terms);
            answer(status, &terms);
        } else if (strcmp(line, "hold") == 0) {
            set_used(gpu, me, lease, number);
            answer(RF_OK, NULL);
        } else if (strcmp(line, "lock") == 0) {
            answer(rf_lease_lock(lease, rf_deadline_after(argument ? RF_MS(number) : PATIENCE_NS)), NULL);
        } else if (strcmp(line, "unlock") == 0) {
            rf_lease_unlock(lease);
            answer(RF_OK, NULL);
        } else if (strcmp(line, "lend") == 0) {
            char spec[128];
            rf_status status = rf_lease_lend(lease, number, spec, sizeof spec);
            if (status)
                answer(status, NULL);
            else
                printf("ok %s\n", spec), fflush(stdout);
        } else if (strcmp(line, "reclaim") == 0) {
            uint64_t bytes = 0;
            rf_status status = rf_lease_reclaim(lease, argument, &bytes);
            if (status)
                answer(status, NULL);
            else
                printf("ok bytes=%llu\n", (unsigned long long)bytes), fflush(stdout);
        } else if (strcmp(line, "close") == 0) {
            set_used(gpu, me, lease, 0);
            rf_lease_close(&lease);
            answer(RF_OK, NULL);
        } else if (strcmp(line, "linger") == 0) {
            printf("ok %d\n", (int)fork_lingerer());
            fflush(stdout);
        } else if (strcmp(line, "misuse") == 0) {
            misuse_in_child(lease);
        } else if (strcmp(line, "reopen-in-child") == 0) { /* a forked child may have a lease of its own */
            pid_t child = fork();
            if (child == 0) {
                struct rf_lease *own = NULL;
                rf_status status = open_lease(dir, gpu, argument, PATIENCE_NS, &own, &terms);
                answer(status, &terms);
                rf_lease_close(&own);
                _exit(0);
            }
            waitpid(child, NULL, 0);
        } else if (strcmp(line, "drop-locks") == 0) { /* foreign code opens and closes the table's file */
            close(open(argument, O_RDWR | O_CLOEXEC));
            answer(RF_OK, NULL);
        } else if (strcmp(line, "become") == 0) { /* another user; /proc shows this process to that user's others */
            bool done = setgroups(0, NULL) == 0 && setgid((gid_t)number) == 0 && setuid((uid_t)number) == 0 &&
                        prctl(PR_SET_DUMPABLE, 1) == 0;
            printf(done ? "ok\n" : "failed\n");
            fflush(stdout);
        } else if (strcmp(line, "try") == 0) { /* "CALL PATH": tells what the system says to it */
            char *path = argument ? strchr(argument, ' ') : NULL;
            if (!path) return 2;
            *path++ = 0;
            errno = 0;
            int result = -1;
            if (!strcmp(argument, "mkdir")) result = mkdir(path, 0777);
            if (!strcmp(argument, "mkdir700")) result = mkdir(path, 0700);
            if (!strcmp(argument, "rmdir")) result = rmdir(path);
            if (!strcmp(argument, "list")) result = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (!strcmp(argument, "write")) result = open(path, O_RDWR | O_CLOEXEC);
            if (!strcmp(argument, "rename")) {
                char other[600];
                snprintf(other, sizeof other, "%.500s-moved", path);
                result = rename(path, other);
            }
            printf("ok %s\n", result < 0 ? strerror(errno) : "done");
            fflush(stdout);
        } else if (strcmp(line, "exec") == 0) {
            execv("/proc/self/exe", argv);
        } else if (strcmp(line, "leave") == 0) {
            break;
        } else {
            printf("what\n");
            fflush(stdout);
        }
    }
    return 0;
}

/* ---- the stress worker ---- */

#define USERS_MAX 400 /* parts are lent until so many processes have been */
#define FAULT(gpu) atomic_store(&(gpu)->fault, __LINE__)

static void start_part(const char *dir, const char *gpu_path, const char *spec, uint64_t seed) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
    const char *arguments[] = {"test_budget", "--stress", dir, gpu_path, spec, text, NULL};
    spawn_self(arguments, -1, -1, LEASH_FD);
}

/* On a loaded machine a lock may come too late, which is no fault: nothing was done. */
static bool locks(struct fake_gpu *gpu, struct rf_lease *lease) {
    rf_status status = rf_lease_lock(lease, rf_deadline_after(PATIENCE_NS));
    if (status && status != RF_E_BUSY) FAULT(gpu);
    return !status;
}

static int stress_main(const char *dir, const char *gpu_path, struct fake_gpu *gpu, uint32_t me, const char *text,
                       uint64_t seed) {
    struct rf_random random = {seed * UINT64_C(0x9e3779b97f4a7c15) + 1};
    struct rf_lease *lease = NULL;
    struct rf_lease_terms terms = {0};
    char lent[128] = "";
    uint64_t used = 0, lent_bytes = 0;
    int lingerers = 0;
    bool part = strncmp(text, "part=", 5) == 0;
    while (!atomic_load(&gpu->stop)) {
        rf_sleep_ns((int64_t)rf_random_below(&random, 20) * 1000000);
        uint64_t dice = rf_random_below(&random, 100);
        if (!lease) {
            rf_status status = open_lease(dir, gpu, text, PATIENCE_NS, &lease, &terms);
            if (part && (status == RF_E_NOT_FOUND || status == RF_E_BUSY)) {
                atomic_fetch_add(&gpu->refused_busy, 1);
                return 0; /* the lender was killed, or took it back and lent it anew */
            }
            if (part && status == RF_E_INVALID && atomic_load(&gpu->damaging)) return 0;
            if (status == RF_E_BUSY) continue; /* as many as the table takes; or the lock came too late */
            if (status) {
                FAULT(gpu);
                return 1;
            }
            atomic_fetch_add(part ? &gpu->attached : &gpu->opened, 1);
            if (terms.promised_bytes > terms.limit_bytes) FAULT(gpu);
        } else if (dice < 50) { /* allocate or free, as the device layer does */
            if (!locks(gpu, lease)) continue;
            uint64_t most = rf_sub_saturate(terms.promised_bytes, lent_bytes);
            used = most ? rf_random_below(&random, most + 1) : 0;
            set_used(gpu, me, lease, used);
            rf_lease_unlock(lease);
        } else if (dice < 60) {
            struct rf_budget_spec spec = {.has_percent = true, .percent = 1 + (double)rf_random_below(&random, 70)};
            rf_status status = rf_lease_renew(lease, &spec, &terms);
            if (status && status != RF_E_BUSY) FAULT(gpu);
        } else if (dice < 75 && !lent_bytes && atomic_load(&gpu->users) < USERS_MAX) {
            uint64_t left = rf_sub_saturate(terms.promised_bytes, used);
            if (!left) continue;
            lent_bytes = 1 + rf_random_below(&random, left);
            rf_status status = rf_lease_lend(lease, lent_bytes, lent, sizeof lent);
            if ((status == RF_E_UNSUPPORTED && part) || status == RF_E_BUSY)
                lent_bytes = 0;
            else if (status)
                FAULT(gpu);
            else {
                atomic_fetch_add(&gpu->lent, 1);
                start_part(dir, gpu_path, lent, rf_random_next(&random));
            }
        } else if (dice < 80 && lent_bytes) {
            uint64_t bytes = 0;
            rf_status status = rf_lease_reclaim(lease, lent, &bytes);
            if (status && status != RF_E_BUSY) FAULT(gpu);
            if (!status) {
                if (bytes != lent_bytes) FAULT(gpu);
                lent_bytes = 0;
            }
        } else if (dice < 83 && lingerers < 2) {
            lingerers++;
            fork_lingerer();
        } else if (dice < 86) {
            /* With the lock held the file has been repaired: a store to one that was cut would be a SIGBUS. */
            if (!locks(gpu, lease)) continue;
            set_used(gpu, me, lease, used = 0);
            rf_lease_unlock(lease);
            rf_lease_close(&lease);
            lent_bytes = 0;
            if (part) return 0;
        }
    }
    return 0;
}

int worker_main(int argc, char **argv) {
    if (argc < 4) return 2;
    const char *dir = argv[2];
    struct fake_gpu *gpu = fake_gpu_map(argv[3], false);
    if (!gpu) return 2;
    if (strcmp(argv[1], "--observe") == 0)
        return argc < 6 ? 2 : observer_main(gpu, strtoull(argv[2], NULL, 10), argv + 4);
    uint32_t me = atomic_fetch_add(&gpu->users, 1);
    if (me >= GPU_USERS) return 2;
    atomic_store(&gpu->pid[me], (int32_t)getpid());
    if (strcmp(argv[1], "--puppet") == 0) return puppet_main(dir, gpu, me, argv);
    return argc < 6 ? 2 : stress_main(dir, argv[3], gpu, me, argv[4], strtoull(argv[5], NULL, 10));
}
