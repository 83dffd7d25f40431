/* What is said where this user may not open the kernel's device nodes. */
#include "gpu/device_nodes.h"
#include "probe_testing.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>

#include "../scratch.h"

#define CONTAINER "a container needs --device /dev/kfd --device /dev/dri"

static void put_node(const char *dev, const char *name, unsigned group, unsigned mode) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dev, name);
    unlink(path); /* an earlier one may not be opened either */
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    RF_ASSERT(fd >= 0);
    /* Only root can give a file to any group; others test with their own. */
    if (geteuid() == 0) RF_ASSERT(fchown(fd, 0, (gid_t)group) == 0);
    RF_ASSERT(fchmod(fd, (mode_t)mode) == 0);
    close(fd);
}

static void make_dev(char dev[SCRATCH_BYTES]) {
    char path[SCRATCH_BYTES + 8];
    scratch_folder(dev, "dev");
    /* Another user looks into it. */
    RF_ASSERT(chmod(rf_test_folder(), 0755) == 0 && chmod(dev, 0755) == 0);
    snprintf(path, sizeof path, "%s/dri", dev);
    RF_ASSERT(mkdir(path, 0755) == 0);
}

static void remove_dev(const char *dev) {
    char command[512];
    snprintf(command, sizeof command, "rm -rf %s", dev);
    RF_ASSERT(system(command) == 0);
}

/* Asks in a process without root's rights, for which every file may be opened. */
static bool usable(const char *dev, char why[512]) {
    int ends[2], status = 0;
    RF_ASSERT(pipe(ends) == 0);
    pid_t child = fork();
    RF_ASSERT(child >= 0);
    if (child == 0) {
        char text[512] = "";
        if (geteuid() == 0 &&
            (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)))
            _exit(9);
        bool may = rf_device_nodes_usable(dev, text, sizeof text);
        (void)!write(ends[1], text, strlen(text) + 1);
        _exit(may ? 0 : 1);
    }
    close(ends[1]);
    memset(why, 0, 512);
    (void)!read(ends[0], why, 511);
    close(ends[0]);
    RF_ASSERT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) < 2);
    RF_NOTE("%s", why);
    RF_ASSERT(strchr(why, '\n') == NULL);
    return WEXITSTATUS(status) == 0;
}

/* A group with a name, of which the process that asks is not a member: any but root's. */
static const struct group *some_group(void) {
    if (geteuid() != 0) return getgrgid(getegid());
    const struct group *group = getgrnam("render");
    if (!group) group = getgrnam("video");
    return group ? group : getgrnam("daemon");
}

RF_TEST(device_nodes, missing) {
    char dev[SCRATCH_BYTES], why[512], expected[512];
    make_dev(dev);
    RF_ASSERT(!usable(dev, why));
    snprintf(expected, sizeof expected,
             "%s/kfd does not exist: there is no AMD GPU, or the kernel module amdgpu is not loaded; " CONTAINER,
             dev);
    RF_ASSERT_TEXT(why, expected);
    put_node(dev, "kfd", 0, 0666);
    RF_ASSERT(!usable(dev, why));
    snprintf(expected, sizeof expected,
             "%s/dri has no renderD* node: the kernel module amdgpu is not loaded; " CONTAINER, dev);
    RF_ASSERT_TEXT(why, expected);
    put_node(dev, "dri/card0", 0, 0666);
    RF_ASSERT(!usable(dev, why));
    put_node(dev, "dri/renderD128", 0, 0666);
    RF_ASSERT(usable(dev, why));
    remove_dev(dev);
}

RF_TEST(device_nodes, of_a_group_to_join) {
    const struct group *group = some_group();
    char dev[SCRATCH_BYTES], why[512], expected[512];
    if (!group || group->gr_gid == 0) RF_SKIP("there is no group to test with");
    make_dev(dev);
    put_node(dev, "kfd", group->gr_gid, 0060);
    RF_ASSERT(!usable(dev, why));
    snprintf(expected, sizeof expected,
             "this user may not open %s/kfd, which belongs to group %s: run 'sudo usermod -aG %s $USER' and log in "
             "again; " CONTAINER " --group-add %u",
             dev, group->gr_name, group->gr_name, (unsigned)group->gr_gid);
    RF_ASSERT_TEXT(why, expected);
    put_node(dev, "kfd", group->gr_gid, 0666);
    put_node(dev, "dri/renderD129", group->gr_gid, 0060);
    put_node(dev, "dri/renderD128", group->gr_gid, 0060);
    RF_ASSERT(!usable(dev, why));
    RF_ASSERT_CONTAINS(why, "/dri/renderD128, which belongs to group");
    put_node(dev, "dri/renderD129", group->gr_gid, 0666); /* one is enough */
    RF_ASSERT(usable(dev, why));
    remove_dev(dev);
}

RF_TEST(device_nodes, of_a_group_without_use) {
    char dev[SCRATCH_BYTES], why[512];
    make_dev(dev);
    put_node(dev, "kfd", 0, 0000);
    RF_ASSERT(!usable(dev, why));
    RF_ASSERT_CONTAINS(why, "joining its group would not help");
    RF_ASSERT_CONTAINS(why, "mode 0000): install ROCm's udev rules");
    RF_ASSERT_CONTAINS(why, CONTAINER);
    if (geteuid() == 0) {
        put_node(dev, "kfd", 54321, 0660); /* as in a container that does not know the host's groups */
        RF_ASSERT(!usable(dev, why));
        RF_ASSERT_CONTAINS(why, "belongs to group 54321, a group without a name here");
        RF_ASSERT_CONTAINS(why, CONTAINER " --group-add 54321");
        RF_ASSERT(chmod(dev, 0700) == 0);
        RF_ASSERT(!usable(dev, why));
        RF_ASSERT_CONTAINS(why, "/kfd cannot be reached (Permission denied); " CONTAINER);
    }
    remove_dev(dev);
}

/* A HIP that finds no device gets the reason added; one that has its nodes does not. */
RF_TEST(device_nodes, in_the_probes_reason) {
    char dev[SCRATCH_BYTES], option[512];
    make_dev(dev);
    snprintf(option, sizeof option, "RF_DEV=%s", dev);
    struct rf_probe_result *result = PROBE("RF_HIP_LIBRARY=" HOSTILE("COUNT_ZERO"), option);
    RF_ASSERT_INT(result->status, RF_E_NO_DEVICE);
    RF_ASSERT_CONTAINS(result->reason, dev);
    RF_ASSERT_CONTAINS(
        result->reason,
        "/kfd does not exist: there is no AMD GPU, or the kernel module amdgpu is not loaded; " CONTAINER);
    free(result);
    result = PROBE("RF_HIP_LIBRARY=" HOSTILE("INIT_UNKNOWN"), option);
    RF_ASSERT_INT(result->status, RF_E_DRIVER);
    RF_ASSERT_CONTAINS(result->reason, "/kfd does not exist");
    free(result);

    put_node(dev, "kfd", 0, 0666);
    put_node(dev, "dri/renderD128", 0, 0666);
    result = PROBE("RF_HIP_LIBRARY=" HOSTILE("COUNT_ZERO"), option);
    RF_ASSERT_CONTAINS(result->reason, "finds no device");
    RF_ASSERT(strstr(result->reason, "/kfd") == NULL && strstr(result->reason, "renderD") == NULL);
    free(result);
    remove_dev(dev);
}
