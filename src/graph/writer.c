/* Writes text in pieces, for dumps of graphs and plans. */
#include "graph/graph_impl.h"

#include <stdio.h>

void rf_writer_print(struct rf_writer *writer, const char *format, ...) {
    /* Names are at most RF_GRAPH_NAME_MAX bytes long, and a piece has only a few of them. */
    char text[4096];
    if (writer->stopped) return;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length <= 0) return;
    size_t bytes = RF_MIN((size_t)length, sizeof text - 1);
    if (!writer->write(writer->user, text, bytes)) writer->stopped = true;
}
