/* A model file of which a part cannot be read any more.
 *
 * Layers on the CPU read the mapped file. Where its pages are gone, because somebody shortened it or its disk fails,
 * the kernel says so by SIGBUS only: one line instead of a crash. Any other SIGBUS, of a driver's own mapping say, is
 * whose it was before. In the handler only what a handler may call is called. */
#include "lost_model_file.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rocmforge/model.h>

static char gone_line[640];
static int gone_exit_code;
/* Once: a handler that came later passes on to this one, and must not be its predecessor too. */
static bool installed;
static struct sigaction before;

static void on_bus_error(int number, siginfo_t *info, void *context) {
    bool fault = info->si_code > 0, gone = info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR;
    if (gone && rf_gguf_mapped(info->si_addr)) {
        ssize_t ignored = write(STDERR_FILENO, gone_line, strlen(gone_line));
        (void)ignored;
        _exit(gone_exit_code);
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else if (fault || before.sa_handler == SIG_DFL) { /* nobody can ignore a fault */
        signal(number, SIG_DFL);
        if (!fault) raise(number); /* a fault happens again by itself, and shows as what it is */
    }
}

void catch_lost_model_file(const char *line, int exit_code) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    snprintf(gone_line, sizeof gone_line, "%s", line);
    gone_exit_code = exit_code;
    if (installed || sigaction(SIGBUS, NULL, &before)) return;
    installed = sigaction(SIGBUS, &action, NULL) == 0;
}
