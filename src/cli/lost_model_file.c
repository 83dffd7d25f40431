/* A model file that shrinks, or whose disk fails, while it is mapped: one line instead of a crash.
 *
 * Layers on the CPU read the mapped file. If its pages are gone, the kernel says so only by SIGBUS. The handler here
 * prints one line and ends the process. Any other SIGBUS, of a driver's own mapping for example, goes to the handler
 * that was installed before. The handler calls only functions that are safe in a signal handler. Threads that read
 * the file side by side all come here: the first one prints the line and ends the process, the others wait for that.
 */
#include "lost_model_file.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rocmforge/model.h>

static char lost_line[640];
static int lost_exit_code;
/* Installed only once: a handler that was installed later calls this one, which must not call that one in turn. */
static bool installed;
static struct sigaction before;
static atomic_flag ending = ATOMIC_FLAG_INIT;

static void on_bus_error(int number, siginfo_t *info, void *context) {
    bool fault = info->si_code > 0, gone = info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR;
    if (gone && rf_gguf_mapped(info->si_addr)) {
        while (atomic_flag_test_and_set(&ending)) pause();
        ssize_t ignored = write(STDERR_FILENO, lost_line, strlen(lost_line));
        (void)ignored;
        _exit(lost_exit_code);
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else if (fault || before.sa_handler == SIG_DFL) { /* a fault cannot be ignored */
        signal(number, SIG_DFL);
        if (!fault)
            raise(number); /* a fault repeats by itself when the handler returns, and then has its usual effect */
    }
}

void catch_lost_model_file(const char *line, int exit_code) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    snprintf(lost_line, sizeof lost_line, "%s", line);
    lost_exit_code = exit_code;
    if (installed || sigaction(SIGBUS, NULL, &before)) return;
    installed = sigaction(SIGBUS, &action, NULL) == 0;
}
