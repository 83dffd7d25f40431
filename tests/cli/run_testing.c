#include "run_testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../sanitizer_noise.h"

char command_output[1 << 20], command_errors[1 << 20];
size_t command_output_bytes;

static void make_models(void) {
    static struct script script;
    static const struct spec spec = {"none",     "llama",       .layers = 1,        .width = 32,
                                     .heads = 2, .kv_heads = 1, .feed_forward = 32, .vocabulary = 40};
    script_begin(&script, false);
    script_say(&script, script_byte('?'), ANSWER, 2);
    script_write(&script, scratch_path("model.gguf"));
    script_begin(&script, true);
    script_add(&script, "<|im_start|>", RF_TOKEN_CONTROL);
    int32_t end = script_add(&script, "<|im_end|>", RF_TOKEN_CONTROL);
    script_say(&script, script_byte('\n'), "yes", end);
    script_write(&script, scratch_path("chat.gguf"));
    script_say(&script, script_byte('\n'), "de", script_byte('d'));
    script.next[script_byte('?')] = script_byte('d');
    script_write(&script, scratch_path("endless.gguf"));
    infer_model(&spec, "none.gguf");
    write_bytes(scratch_path("text.gguf"), "no model, but a text that is long enough to be looked at", 56);
    size_t bytes;
    unsigned char *whole = read_bytes(scratch_path("model.gguf"), &bytes);
    write_bytes(scratch_path("cut.gguf"), whole, bytes / 2);
    free(whole);
}

const char *command_folder(void) {
    static char path[256];
    if (path[0]) return path;
    snprintf(path, sizeof path, "%s", scratch_path("x"));
    *strrchr(path, '/') = 0;
    make_models();
    return path;
}

static size_t read_all(FILE *file, char *to, size_t size) {
    RF_ASSERT(file != NULL);
    size_t bytes = fread(to, 1, size - 1, file);
    to[bytes] = 0;
    return bytes;
}

int command_run(const char *environment, const char *arguments) {
    char command[4096];
    snprintf(command, sizeof command, "cd %s && exec 2>errors && env -u RF_DRIVER -u RF_BUDGET -u RFSIM %s '%s' %s",
             command_folder(), environment, ROCMFORGE, arguments);
    FILE *pipe = popen(command, "r");
    command_output_bytes = read_all(pipe, command_output, sizeof command_output);
    int status = pclose(pipe);
    FILE *errors = fopen(scratch_path("errors"), "r");
    read_all(errors, command_errors, sizeof command_errors);
    drop_sanitizer_noise(command_errors);
    fclose(errors);
    RF_ASSERT(WIFEXITED(status));
    return WEXITSTATUS(status);
}

void command_expect(const char *environment, const char *arguments, const char *text) {
    RF_TRACE("rocmforge %s", arguments);
    RF_EXPECT_INT(command_run(environment, arguments), 0);
    RF_EXPECT_TEXT(command_output, text);
}

void command_expect_one_line(const char *environment, const char *arguments, int code, const char *part) {
    RF_TRACE("rocmforge %s", arguments);
    RF_EXPECT_INT(command_run(environment, arguments), code);
    RF_EXPECT_TEXT(command_output, "");
    const char *end = strchr(command_errors, '\n');
    if (!end || end[1] || strncmp(command_errors, "rocmforge: ", 11) != 0)
        RF_FAIL("not one line: %s", command_errors);
    RF_EXPECT_CONTAINS(command_errors, part);
}

/* The first process whose working folder or arguments are ours; 0: none. */
static int find_process(void) {
    DIR *all = opendir("/proc");
    int found = 0;
    RF_ASSERT(all != NULL);
    for (struct dirent *entry; !found && (entry = readdir(all));) {
        char path[300], text[4096];
        int pid = atoi(entry->d_name);
        if (pid <= 0 || pid == getpid()) continue;
        snprintf(path, sizeof path, "/proc/%d/cwd", pid);
        ssize_t length = readlink(path, text, sizeof text - 1);
        text[length > 0 ? length : 0] = 0;
        if (!strcmp(text, command_folder())) found = pid;
        snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) continue;
        length = read(file, text, sizeof text);
        close(file);
        if (length > 0 && memmem(text, (size_t)length, command_folder(), strlen(command_folder()))) found = pid;
    }
    closedir(all);
    return found;
}

void command_expect_nothing_left(void) {
    int pid = 0;
    for (int i = 0; i < 6000 && (pid = find_process()); i++) nanosleep(&(struct timespec){0, 10000000}, NULL);
    RF_EXPECT_INT(pid, 0);
}

/* ---- one that is spoken to ---- */

struct process process_start(const char *const *arguments) {
    struct process process = {0};
    int in[2], out[2];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    RF_ASSERT(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    RF_ASSERT_INT(
        posix_spawn(&process.pid, ROCMFORGE, &actions, &attributes, (char *const *)(uintptr_t)arguments, environ), 0);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    process.in = in[1];
    process.out = out[0];
    return process;
}

bool process_hear_some(struct process *process, int timeout_ms) {
    struct pollfd polled = {.fd = process->out, .events = POLLIN};
    char byte = 0;
    if (poll(&polled, 1, timeout_ms) <= 0) return false;
    if (read(process->out, &byte, 1) != 1) RF_FAIL("it ended");
    process->line_ended = byte == '\n';
    return true;
}

size_t process_hear(struct process *process, size_t count) {
    size_t heard = 0;
    process->line_ended = false;
    for (; count ? heard < count : !process->line_ended; heard++) process_hear_some(process, -1);
    return heard;
}

static pid_t child_of(pid_t parent) {
    char path[64];
    int pid = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%d", &pid) != 1) pid = 0;
    if (file) fclose(file);
    if (!pid) RF_SKIP("this kernel does not tell a process's children");
    return pid;
}

pid_t process_worker(const struct process *process) {
    return child_of(child_of(process->pid)); /* the keeper stands between the two */
}

int process_end(struct process *process) {
    int status = -1;
    close(process->in);
    close(process->out);
    RF_ASSERT_INT(waitpid(process->pid, &status, 0), process->pid);
    return status;
}
