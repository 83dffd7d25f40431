/* Whether this user may open the kernel's device nodes of AMD GPUs, and what to do where not. Without /dev/kfd or a
 * render node HIP says only that it finds no device.
 *
 * Nothing is opened here: opening /dev/kfd would make the kernel prepare the process for a GPU. So a node that exists
 * and is permitted, but that a container's device rules forbid, is not noticed. */
#include "gpu/device_nodes.h"
#include "base/descriptors.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONTAINER "a container needs --device /dev/kfd --device /dev/dri"

/* Says why a node that exists may not be opened, and how that changes. */
static void explain(const char *path, char *why, size_t size) {
    struct stat node;
    struct group group, *found = NULL;
    char text[4096];
    if (stat(path, &node) != 0) {
        snprintf(why, size, "%s cannot be reached (%s); " CONTAINER, path, strerror_r(errno, text, sizeof text));
        return;
    }
    unsigned mode = (unsigned)node.st_mode & 07777, gid = (unsigned)node.st_gid;
    if ((mode & 0060) != 0060 || gid == 0)
        snprintf(why, size,
                 "this user may not open %s, and joining its group would not help (group %u, mode %04o): install "
                 "ROCm's udev rules, which give it to group render; " CONTAINER,
                 path, gid, mode);
    else if (getgrgid_r(node.st_gid, &group, text, sizeof text, &found) == 0 && found)
        snprintf(why, size,
                 "this user may not open %s, which belongs to group %s: run 'sudo usermod -aG %s $USER' and log in "
                 "again; " CONTAINER " --group-add %u",
                 path, found->gr_name, found->gr_name, gid);
    else
        snprintf(why, size,
                 "this user may not open %s, which belongs to group %u, a group without a name here; " CONTAINER
                 " --group-add %u",
                 path, gid, gid);
}

static bool may_open(const char *path) {
    return access(path, R_OK | W_OK) == 0; /* drivers open these nodes for both */
}

/* Whether this user may open one of the render nodes; if not, says why. Nodes of other vendors' GPUs are among them:
 * one that may be opened settles it. */
static bool may_render(const char *dev, char *why, size_t size) {
    char folder[300], path[600], refused[600] = "";
    snprintf(folder, sizeof folder, "%s/dri", dev);
    DIR *nodes = rf_opendir(folder);
    bool may = false;
    for (struct dirent *node; nodes && !may && (node = readdir(nodes));) {
        if (strncmp(node->d_name, "renderD", 7) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, node->d_name);
        may = may_open(path);
        if (!may && (!refused[0] || strverscmp(path, refused) < 0)) memcpy(refused, path, sizeof path);
    }
    if (nodes) closedir(nodes);
    if (!may && refused[0])
        explain(refused, why, size);
    else if (!may)
        snprintf(why, size, "%s has no renderD* node: the kernel module amdgpu is not loaded; " CONTAINER, folder);
    return may;
}

bool rf_device_nodes_usable(const char *dev, char *why, size_t size) {
    char path[300];
    snprintf(path, sizeof path, "%s/kfd", dev);
    if (may_open(path)) return may_render(dev, why, size);
    if (errno == ENOENT || errno == ENOTDIR)
        snprintf(why, size,
                 "%s does not exist: there is no AMD GPU, or the kernel module amdgpu is not loaded; " CONTAINER,
                 path);
    else
        explain(path, why, size);
    return false;
}
