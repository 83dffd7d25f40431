/* A job as the worker sees it: its channel, its output, its signs of life and its closing message; see worker.h.
 *
 * The mutex guards the channel: whole frames are sent, whichever thread sends them. A process that a driver forked
 * from the worker has a copy of all this and must not send anything. */
#include "cli.h"
#include "wire.h"
#include "worker_impl.h"
#include "base/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PART_BYTES = 1 << 20, AT_BYTES = 256 };

static pid_t worker_pid; /* 0: this process is no worker */
static int channel = -1; /* -1: there is none, or it was taken by cli_worker_channel */
static FILE *output;
static struct wire_out out;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Moved up, out of reach of a driver that writes to or closes the first few descriptors. */
static int take_channel(void) {
    static const int least[] = {200, 64, WORKER_FD + 1};
    int type = 0, moved = -1;
    socklen_t size = sizeof type;
    if (getsockopt(WORKER_FD, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return -1;
    for (size_t i = 0; i < sizeof least / sizeof least[0] && moved < 0; i++)
        moved = fcntl(WORKER_FD, F_DUPFD_CLOEXEC, least[i]);
    if (moved < 0) {
        fcntl(WORKER_FD, F_SETFD, FD_CLOEXEC);
        return WORKER_FD;
    }
    close(WORKER_FD);
    return moved;
}

bool cli_worker_enter(void) {
    const char *mark = getenv(WORKER_MARK);
    if (!mark) return true;
    long command = strtol(mark, NULL, 10);
    if (command < 0 || (channel = take_channel()) < 0) return true; /* somebody set the variable by hand */
    int error = rf_keeper_split((pid_t)command);
    int32_t number = error ? -error : (int32_t)getpid();
    if (send(channel, &number, sizeof number, MSG_NOSIGNAL) != sizeof number || error) return false;
    worker_pid = getpid();
    return true;
}

bool cli_is_worker(void) {
    return worker_pid != 0;
}

int cli_worker_channel(void) {
    int taken = channel;
    channel = -1;
    return taken;
}

static bool may_send(void) {
    return channel >= 0 && getpid() == worker_pid;
}

/* ---- frames ---- */

/* With the mutex held. */
static void begin(enum wire_kind kind) {
    static bool greeted;
    if (!greeted) wire_send_hello(channel, &out);
    greeted = true;
    wire_begin(&out, kind);
}

/* For fopencookie: 0 says that nothing was written. If the command is gone, so is soon this process. */
static ssize_t write_output(void *unused, const char *bytes, size_t count) {
    (void)unused;
    bool sent = true;
    if (!may_send()) return (ssize_t)count;
    for (size_t at = 0; at < count && sent; at += PART_BYTES) {
        pthread_mutex_lock(&mutex);
        begin(WIRE_OUTPUT);
        wire_put(&out, bytes + at, count - at < PART_BYTES ? count - at : PART_BYTES);
        sent = wire_send(channel, &out);
        pthread_mutex_unlock(&mutex);
    }
    return sent ? (ssize_t)count : 0;
}

FILE *cli_out(void) {
    if (channel < 0) return stdout;
    if (!output) {
        output = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_output});
        if (output) setvbuf(output, NULL, _IOLBF, BUFSIZ);
    }
    return output ? output : stderr; /* no memory: then there are other failures to report */
}

void cli_at(enum cli_work work, const char *format, ...) {
    char text[AT_BYTES];
    va_list arguments;
    if (!may_send()) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&mutex);
    begin(WIRE_AT);
    wire_put_u32(&out, work);
    wire_put_text(&out, text);
    wire_send(channel, &out); /* a command that is gone ends this process */
    pthread_mutex_unlock(&mutex);
}

bool cli_worker_tell_error(const char *text) {
    if (!may_send()) return false;
    if (output) fflush(output);
    pthread_mutex_lock(&mutex);
    begin(WIRE_ERROR);
    wire_put_text(&out, text);
    wire_send(channel, &out); /* if the driver closed the channel, the command says so, and one line is enough */
    pthread_mutex_unlock(&mutex);
    return true;
}

int cli_worker_finish(int exit_code) {
    if (!may_send()) return exit_code;
    if (output && fflush(output) != 0) exit_code = CLI_FAILED;
    pthread_mutex_lock(&mutex);
    begin(WIRE_FINISHED);
    wire_put_u32(&out, (uint32_t)exit_code);
    wire_send(channel, &out);
    wire_out_finish(&out);
    close(channel);
    channel = -1;
    pthread_mutex_unlock(&mutex);
    return exit_code;
}
