/* no_more processes|threads PROGRAM ARGUMENT…: runs a program to which the kernel gives no further process, or no
 * further process and no further thread, as at RLIMIT_NPROC. That limit itself does not count for root. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define FLAGS BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, (what))
#define IS(number, ...) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), __VA_ARGS__

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    uint32_t thread = strcmp(argv[1], "threads") == 0 ? SECCOMP_RET_ERRNO | EAGAIN : SECCOMP_RET_ALLOW;
    struct sock_filter filter[] = {
        NUMBER,
        IS(__NR_clone3,
           RETURN(SECCOMP_RET_ERRNO | ENOSYS)), /* the C library then uses clone, whose flags are visible */
#ifdef __NR_fork
        IS(__NR_fork, RETURN(SECCOMP_RET_ERRNO | EAGAIN)),
        IS(__NR_vfork, RETURN(SECCOMP_RET_ERRNO | EAGAIN)),
#endif
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone, 1, 0),
        RETURN(SECCOMP_RET_ALLOW),
        FLAGS,
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0),
        RETURN(SECCOMP_RET_ERRNO | EAGAIN),
        RETURN(thread),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("no_more");
        return 77;
    }
    execv(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
