/* Files of a chat: see run.h. What is read is bounded; what is written is complete or not there. */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/utf8.h"

enum { FILE_BYTES_MAX = CONVERSATION_BYTES_MAX };

char *run_read_file(FILE *file, size_t *bytes, const char **why) {
    size_t capacity = 1 << 16, count = 0;
    struct stat about;
    *why = strerror(EISDIR);
    if (fstat(fileno(file), &about) == 0 && S_ISDIR(about.st_mode)) return NULL;
    char *text = malloc(capacity);
    while (text) {
        count += fread(text + count, 1, capacity - count - 1, file);
        if (count < capacity - 1 || count > FILE_BYTES_MAX) break;
        char *grown = realloc(text, capacity *= 2);
        if (!grown) free(text);
        text = grown;
    }
    *why = !text                    ? "there is no memory for it"
           : ferror(file)           ? strerror(errno)
           : count > FILE_BYTES_MAX ? "it is larger than 16 MiB"
                                    : NULL;
    if (*why) {
        free(text);
        return NULL;
    }
    text[count] = 0;
    *bytes = count;
    return text;
}

static bool write_all(int file, const char *text, size_t bytes) {
    while (bytes) {
        ssize_t count = write(file, text, bytes);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return false;
        text += count;
        bytes -= (size_t)count;
    }
    return true;
}

bool run_replace_file(const char *path, const char *text, size_t bytes, char why[CONVERSATION_WHY_BYTES]) {
    char temporary[4096];
    struct stat about;
    int length = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path), error = ENAMETOOLONG, file = -1;
    if (length > 0 && (size_t)length < sizeof temporary) {
        /* A device or a folder is not replaced. */
        bool other = stat(path, &about) == 0 && !S_ISREG(about.st_mode);
        if (other)
            error = S_ISDIR(about.st_mode) ? EISDIR : EINVAL;
        else if ((file = mkostemp(temporary, O_CLOEXEC)) < 0) /* mode 0600 */
            error = errno;
    }
    if (file >= 0) {
        bool good = write_all(file, text, bytes) && fsync(file) == 0;
        error = good ? 0 : errno;
        if (close(file) != 0 && !error) error = errno;
        if (!error && rename(temporary, path) != 0) error = errno;
        if (error) unlink(temporary);
    }
    if (error) snprintf(why, CONVERSATION_WHY_BYTES, "%.300s: it cannot be written: %s", path, strerror(error));
    return !error;
}

size_t run_first_bad_byte(const char *text, size_t bytes) {
    size_t at = 0;
    for (size_t taken; at < bytes; at += taken)
        if (rf_utf8_decode(text + at, bytes - at, &taken) == RF_CODE_INVALID) break;
    return at;
}
