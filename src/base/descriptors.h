/* Opening files without ever taking descriptor 0, 1 or 2.
 *
 * A program may run with its standard input, output or error closed. The kernel then gives the next open one of these
 * numbers, and whatever reads standard input or prints reads and writes that file. Every open in the library goes
 * through this file (tools/check_layers.py refuses others), so no lease, model, pipe or other file of the library is
 * on one of the three. A program should reserve them before it opens anything; the command, its workers, the probe's
 * helper and test executables do.
 *
 * This depends on nothing else in the library, so the command and the test harness compile it too. */
#ifndef RF_BASE_DESCRIPTORS_H
#define RF_BASE_DESCRIPTORS_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* For a program's main: opens each of 0, 1 and 2 that is closed, in the mode in which it is not used, so that reading
 * standard input and writing output or errors still fail with EBADF. Child processes inherit them. False: one could
 * not be opened, errno says why. */
bool rf_reserve_standard_fds(void);

/* Holds those of 0 to 2 that are closed while foreign code runs that may open files, such as a driver that starts.
 * They are closed again by the second function, which leaves errno alone. */
struct rf_held_fds {
    int fds[3], count;
};
void rf_hold_standard_fds(struct rf_held_fds *held);
void rf_release_standard_fds(const struct rf_held_fds *held);

/* Like the calls of the same name, with descriptors above 2. They close on exec if flags say so; rf_opendir and
 * rf_fopen_new always do. rf_fopen_new makes a file, or empties it, to write. */
int rf_open(const char *path, int flags, mode_t mode);
int rf_openat(int folder, const char *path, int flags, mode_t mode);
int rf_pipe(int ends[2], int flags);
int rf_memfd(const char *name, unsigned flags);
DIR *rf_opendir(const char *path);
FILE *rf_fopen_new(const char *path);

#endif
