/* Reads small files as text: those of sysfs, procfs and control groups. It must not block, because a path given by an
 * option may name a pipe. */
#include "base/base.h"
#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

rf_status rf_fail_errno(const char *verb, const char *path, int error) {
    rf_status status = error == ENOENT || error == ENOTDIR ? RF_E_NOT_FOUND : RF_E_IO;
    return rf_fail(status, "%s %s failed: %s", verb, path, strerror(error));
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

rf_status rf_read_text(const char *path, char *text, size_t size) {
    if (!path || !text || size == 0) return rf_fail(RF_E_INVALID, "rf_read_text needs a path and a buffer");
    int fd = rf_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return rf_fail_errno("opening", path, errno);
    /* Reads into memory of our own first, so that text stays untouched if a later read fails. */
    char *content = malloc(size);
    rf_status status = content ? RF_OK : rf_fail(RF_E_NO_MEMORY, "no memory for the %zu bytes of %s", size, path);
    size_t length = 0;
    while (status == RF_OK && length < size - 1) {
        ssize_t count = read(fd, content + length, size - 1 - length);
        if (count == 0) break;
        if (count > 0)
            length += (size_t)count;
        else if (errno != EINTR)
            status = rf_fail_errno("reading", path, errno);
    }
    close(fd);
    if (status == RF_OK) {
        while (length > 0 && is_space(content[length - 1])) length--;
        if (length > 0) memcpy(text, content, length);
        text[length] = 0;
    }
    free(content);
    return status;
}

rf_status rf_read_u64(const char *path, uint64_t *value) {
    char text[64];
    rf_status status = rf_read_text(path, text, sizeof text);
    if (status != RF_OK) return status;
    char *end = text;
    errno = 0;
    unsigned long long number = text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
    if (end == text || *end || errno)
        return rf_fail(RF_E_SYNTAX, "%s holds \"%.40s\", not a number of up to 64 bits", path, text);
    *value = number;
    return RF_OK;
}
