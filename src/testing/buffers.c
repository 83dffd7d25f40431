/* Assertions about device memory. It is read back in pieces on the caller's queue, so a buffer of any size is checked
 * with little host memory and with the queue's deadline on each piece. */
#include "testing_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES ((uint64_t)1 << 20)
#define CELLS 64

/* How many bytes differ, where the first one is, and how many differ per cell. */
struct findings {
    uint64_t over, first, cell_over[CELLS];
    unsigned char first_byte;
};

static void look(const unsigned char *piece, uint64_t offset, uint64_t bytes, uint64_t total, unsigned char value,
                 struct findings *found) {
    uint64_t cells = total < CELLS ? total : CELLS;
    for (uint64_t i = 0; i < bytes; i++) {
        if (piece[i] == value) continue;
        if (found->over++ == 0) {
            found->first = offset + i;
            found->first_byte = piece[i];
        }
        /* in double, because offset times cells may exceed 64 bits */
        found->cell_over[(size_t)((double)(offset + i) / (double)total * (double)cells)]++;
    }
}

void rf_test_buffer_bytes(const char *file, int line, bool fatal, const char *what, struct rf_queue *queue,
                          struct rf_buffer *buffer, unsigned char value) {
    uint64_t total = buffer ? rf_buffer_bytes(buffer) : 0;
    struct findings found = {0};
    unsigned char *piece = malloc(PIECE_BYTES);
    rf_status status = piece ? RF_OK : RF_E_NO_MEMORY;
    for (uint64_t at = 0; at < total && !status; at += PIECE_BYTES) {
        uint64_t bytes = total - at < PIECE_BYTES ? total - at : PIECE_BYTES;
        status = rf_copy_from_device_safe(queue, piece, buffer, at, bytes);
        if (!status) look(piece, at, bytes, total, value, &found);
    }
    free(piece);
    if (status || !buffer) {
        rf_test_fail(file, line, fatal, "%s could not be read back\n  gave     %s: %s", what,
                     buffer ? rf_status_name(status) : "RF_E_INVALID", buffer ? rf_error_text() : "it is NULL");
        return;
    }
    if (found.over == 0) return;
    char picture[CELLS + 1];
    uint64_t cells = total < CELLS ? total : CELLS;
    for (uint64_t i = 0; i < cells; i++) {
        uint64_t over = found.cell_over[i];
        picture[i] = over == 0 ? ' ' : over >= total / cells ? '#' : over * 4 >= total / cells ? 'x' : '.';
    }
    picture[cells] = 0;
    char expected[32];
    snprintf(expected, sizeof expected, value ? "0x%02x everywhere" : "zero", value);
    rf_test_fail(file, line, fatal,
                 "%s is not %s: %" PRIu64 " of %" PRIu64 " bytes differ\n"
                 "  first at byte %" PRIu64 ": is 0x%02x\n  where    |%s| a cell is %" PRIu64 " bytes",
                 what, expected, found.over, total, found.first, found.first_byte, picture, total / cells);
}

void rf_test_buffer(const char *file, int line, bool fatal, const char *what, struct rf_queue *queue,
                    struct rf_buffer *buffer, enum rf_dtype dtype, const void *expected, size_t count,
                    struct rf_compare how) {
    size_t bytes;
    if (__builtin_mul_overflow(count, rf_dtype_bytes(dtype), &bytes)) bytes = SIZE_MAX;
    if (!buffer || bytes > rf_buffer_bytes(buffer)) {
        rf_test_fail(file, line, fatal, "%s: %zu values of %s do not fit its %" PRIu64 " bytes", what, count,
                     rf_dtype_name(dtype), buffer ? rf_buffer_bytes(buffer) : 0);
        return;
    }
    /* Allocated before any assertion, and freed by hand, because a failing assertion leaves by longjmp. */
    void *actual = malloc(bytes ? bytes : 1);
    rf_status status = actual ? RF_OK : RF_E_NO_MEMORY;
    if (!status && bytes) status = rf_copy_from_device_safe(queue, actual, buffer, 0, bytes);
    bool good = !status;
    if (status)
        rf_test_fail(file, line, false, "%s could not be read back\n  gave     %s: %s", what, rf_status_name(status),
                     actual ? rf_error_text() : "no host memory");
    else
        good = rf_test_array_agrees(file, line, what, dtype, actual, expected, count, how);
    free(actual);
    if (fatal && !good) rf_test_leave();
}
