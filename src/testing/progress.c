/* One live line at the bottom of a terminal: how far the run is, which tests run, how long it will take, and how much
 * GPU memory is in use. Not shown if the output is not a terminal.
 *
 * Invariant: the line is cleared before anything else is printed (by whoever prints: report.c); it never wraps
 * (asserted by its width, which is exact for ASCII: names of tests are C identifiers). */
#include "runner_impl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REDRAW_NS INT64_C(100000000)

static struct {
    bool on, drawn;
    int64_t next_ns;
    size_t total;
} line;

void rf_test_progress_begin(const struct rf_test_settings *settings, const struct rf_test_plan *plan) {
    const char *term = getenv("TERM");
    line.on = isatty(1) && !settings->quiet && !settings->in_process && term && strcmp(term, "dumb") != 0;
    line.drawn = false;
    line.next_ns = 0;
    line.total = plan->count * (size_t)settings->repeat;
}

bool rf_test_progress_shown(void) {
    return line.on;
}

static size_t terminal_width(void) {
    struct winsize size;
    return ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

void rf_test_progress_draw(const struct rf_test_running *running, size_t running_count, size_t done,
                           const struct rf_test_tally *tally, int64_t left_ns, uint64_t gpu_bytes) {
    int64_t now = rf_test_now_ns();
    if (!line.on || now < line.next_ns) return;
    line.next_ns = now + REDRAW_NS;
    char text[512], bytes[32];
    size_t used = (size_t)snprintf(text, sizeof text, "[%zu/%zu]", done, line.total);
    if (tally->failed) used += (size_t)snprintf(text + used, sizeof text - used, " %lu failed", tally->failed);
    if (left_ns > 0 && used < sizeof text)
        used += (size_t)snprintf(text + used, sizeof text - used, ", about %lld:%02lld left",
                                 (long long)(left_ns / 60000000000), (long long)(left_ns / 1000000000 % 60));
    if (gpu_bytes && used < sizeof text)
        used += (size_t)snprintf(text + used, sizeof text - used, ", GPU %s",
                                 rf_format_bytes(gpu_bytes, bytes, sizeof bytes));
    for (size_t i = 0; i < running_count && used < sizeof text - 1; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.80s %.0f s", i ? ", " : " | ", running[i].name,
                                 (double)(now - running[i].started_ns) / 1e9);
    }
    size_t width = terminal_width() - 1;
    if (width > sizeof text - 1) width = sizeof text - 1;
    rf_assert(width < terminal_width() || width == sizeof text - 1);
    printf("\r\x1b[K%.*s", (int)width, text);
    fflush(stdout);
    line.drawn = true;
}

void rf_test_progress_clear(void) {
    if (!line.drawn) return;
    fputs("\r\x1b[K", stdout);
    fflush(stdout);
    line.drawn = false;
    line.next_ns = 0;
}

void rf_test_progress_end(void) {
    rf_test_progress_clear();
    line.on = false;
}
