/* The report of `rocmforge selftest`: plain text that its owner can read through and send, and the same as JSON.
 *
 * It must hold nothing private: no name of user or host, no path of the user's, no environment, no UUID or PCI
 * address, no processes. What the library says about a failure may quote such things, so every text goes through
 * selftest_scrub. */
#include "selftest.h"
#include "base/json.h"

#include <ctype.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ---- what must not be there ---- */

static bool is_word_byte(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* Replaces each 'what' that is not part of a longer word. */
static void replace_word(char *text, size_t size, const char *what, const char *with) {
    size_t length = strlen(what), with_length = strlen(with);
    if (length < 2) return;
    for (char *at = text; (at = strstr(at, what));) {
        bool whole = (at == text || !is_word_byte(at[-1])) && !is_word_byte(at[length]);
        size_t rest = strlen(at + length) + 1, used = (size_t)(at - text);
        if (!whole) {
            at++;
            continue;
        }
        if (used + with_length + rest > size) rest = size > used + with_length ? size - used - with_length : 0;
        if (!rest) { /* no room: cut here */
            *at = 0;
            return;
        }
        memmove(at + with_length, at + length, rest);
        memcpy(at, with, with_length);
        text[size - 1] = 0;
        at += with_length;
    }
}

/* Folders of the system, the same on every machine: which library was taken is worth knowing. */
static bool is_system_path(const char *path) {
    static const char *const folders[] = {"/opt/", "/usr/", "/lib/", "/lib64/", "/sys/", "/dev/", "/proc/", "/etc/"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        if (!strncmp(path, folders[i], strlen(folders[i]))) return !strstr(path, "/../");
    return false;
}

/* Replaces paths. A path begins with a slash that follows no letter or digit ("GB/s" is none), or with "~/". It ends
 * at the quote if it is quoted, else at a space, a bracket or another mark. Of a path outside the system's folders
 * only the file's name is kept. The text does not grow. */
static void replace_paths(char *text) {
    static const char hidden[] = "…/";
    const size_t hidden_length = sizeof hidden - 1;
    char *to = text, previous = ' ';
    for (const char *at = text; *at;) {
        const char *slash = at + (*at == '~');
        bool begins = *slash == '/' && !is_word_byte(previous) && previous != '.' && slash[1] > ' ';
        if (!begins) {
            previous = *at;
            *to++ = *at++;
            continue;
        }
        const char quote[] = {previous, 0};
        size_t length = strcspn(at, strchr("'\"`", previous) ? quote : " \t'\"`()[]<>,;:");
        size_t name = is_system_path(at) ? 0 : length;
        while (name > 0 && at[name - 1] != '/') name--;
        previous = '/';
        if (name >= hidden_length) {
            memcpy(to, hidden, hidden_length);
            to += hidden_length;
        }
        memmove(to, at + name, length - name);
        to += length - name;
        at += length;
    }
    *to = 0;
}

/* "pid 4711" becomes "pid N". */
static void replace_pids(char *text) {
    static const char *const words[] = {"pid ", "process "};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        for (char *at = text; (at = strstr(at, words[i]));) {
            at += strlen(words[i]);
            size_t digits = strspn(at, "0123456789");
            if (!digits) continue;
            *at = 'N';
            memmove(at + 1, at + digits, strlen(at + digits) + 1);
        }
}

void selftest_scrub(struct rf_runtime *runtime, char *text, size_t size) {
    char host[256] = "";
    const struct passwd *user = getpwuid(geteuid());
    const char *const names[] = {getenv("USER"), getenv("LOGNAME"), user ? user->pw_name : NULL};
    const char *const homes[] = {getenv("HOME"), user ? user->pw_dir : NULL};
    for (int i = 0; runtime && i < rf_device_count(runtime); i++) {
        RF_PARAMS(struct rf_device_info, info);
        if (rf_device_info_at(runtime, i, &info)) continue;
        replace_word(text, size, info.uuid, "UUID");
        replace_word(text, size, info.pci, "PCI");
    }
    for (size_t i = 0; i < sizeof homes / sizeof homes[0]; i++)
        if (homes[i] && strlen(homes[i]) > 1) replace_word(text, size, homes[i], "~");
    replace_paths(text);
    replace_pids(text);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i]) replace_word(text, size, names[i], "USER");
    if (gethostname(host, sizeof host - 1) == 0) {
        replace_word(text, size, host, "HOST");
        host[strcspn(host, ".")] = 0;
        replace_word(text, size, host, "HOST");
    }
}

/* ---- the facts ---- */

static const char *target_after(const char *target, size_t *kernels) {
    const char *next = NULL; /* the targets in the order of the alphabet */
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
        const char *one = rf_builtin_kernel_at(i)->target;
        if (strcmp(one, target) > 0 && (!next || strcmp(one, next) < 0)) next = one;
    }
    *kernels = 0;
    for (size_t i = 0; next && i < rf_builtin_kernel_count(); i++)
        *kernels += !strcmp(rf_builtin_kernel_at(i)->target, next);
    return next;
}

static void line(FILE *to, const char *name, const char *format, ...) RF_PRINTF(3, 4);
static void line(FILE *to, const char *name, const char *format, ...) {
    va_list arguments;
    fprintf(to, "%-14s ", name);
    va_start(arguments, format);
    vfprintf(to, format, arguments);
    va_end(arguments);
    fputc('\n', to);
}

/* The versions of the GPUs' kernel modules, where they have one. */
static void report_kernel_drivers(FILE *to, const struct selftest_findings *findings) {
    static const char *const modules[] = {"amdgpu", "nvidia"};
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        char path[512], version[64] = "";
        snprintf(path, sizeof path, "%s/module/%s/version", rf_runtime_option(findings->runtime, "RF_SYSFS"),
                 modules[i]);
        FILE *file = fopen(path, "re");
        if (!file) continue;
        if (fgets(version, sizeof version, file)) version[strcspn(version, "\n")] = 0;
        line(to, "kernel driver", "%s %s", modules[i], version);
        fclose(file);
    }
}

void selftest_report_head(FILE *to, const struct selftest_findings *findings) {
    struct utsname system;
    size_t kernels;
    fprintf(to, "ROCmForge selftest\n\n");
    line(to, "version", "%s", rf_version());
    for (const char *target = ""; (target = target_after(target, &kernels));)
        line(to, "built for", "%s, %zu kernels", target, kernels);
    if (uname(&system) == 0) line(to, "system", "%s %s %s", system.sysname, system.release, system.machine);
    report_kernel_drivers(to, findings);
    line(to, "CPU threads", "%u", rf_usable_cores());
    line(to, "form", "%s", findings->quick ? "--quick" : "whole");
    fflush(to);
}

void selftest_report_device(FILE *to, const struct selftest_findings *findings, int device) {
    RF_PARAMS(struct rf_device_info, info);
    fputc('\n', to);
    if (device < 0 || rf_device_info_at(findings->runtime, device, &info)) return;
    line(to, "GPU", "%s%s", info.name, info.simulated ? " (a test instrument, not hardware)" : "");
    line(to, "architecture", "%s, %d compute units, wave %d, %s", info.arch, info.compute_units, info.wave_size,
         info.integrated ? "integrated" : "discrete");
    line(to, "driver", "%s", info.driver);
    line(to, "kernels", "%s", info.kernel_target[0] ? info.kernel_target : "none for this GPU");
    line(to, "memory", "%s", cli_bytes(info.total_bytes));
    line(to, "display", "%s", info.display == RF_YES ? "attached" : info.display == RF_NO ? "none" : "unknown");
}

static const char *item_name(const struct selftest_result *result) {
    return result->item ? result->item->name : "probe";
}

void selftest_report_result(FILE *to, const struct selftest_result *result) {
    line(to, item_name(result), "%-7s %6.2f s  %s", selftest_mark_name(result->mark), result->seconds, result->text);
    fflush(to);
}

void selftest_report_end(FILE *to, const struct selftest_findings *findings) {
    fprintf(to, "\n%zu ok, %zu failed, %zu skipped in %.1f s%s\n", findings->ok, findings->failed, findings->skipped,
            findings->seconds, findings->interrupted ? "; interrupted" : "");
}

/* ---- JSON ---- */

static void json_device(struct rf_json *json, const struct rf_device_info *info) {
    rf_json_open_object(json, NULL);
    rf_json_int(json, "index", info->index);
    rf_json_text(json, "name", info->name);
    rf_json_text(json, "arch", info->arch);
    rf_json_text(json, "driver", info->driver);
    rf_json_text(json, "kernel_target", info->kernel_target);
    rf_json_bool(json, "simulated", info->simulated);
    rf_json_bool(json, "usable", info->usable);
    rf_json_uint(json, "total", info->total_bytes);
    rf_json_close(json);
}

void selftest_json(FILE *to, const struct selftest_findings *findings) {
    struct rf_json json;
    struct utsname system;
    size_t kernels;
    rf_json_begin_file(&json, to, RF_JSON_LINES);
    rf_json_open_object(&json, NULL);
    rf_json_text(&json, "version", rf_version());
    rf_json_open_array(&json, "targets");
    for (const char *target = ""; (target = target_after(target, &kernels));) rf_json_text(&json, NULL, target);
    rf_json_close(&json);
    rf_json_text(&json, "system", uname(&system) == 0 ? system.release : NULL);
    rf_json_bool(&json, "quick", findings->quick);
    rf_json_open_array(&json, "devices");
    for (int i = 0; i < rf_device_count(findings->runtime); i++) {
        RF_PARAMS(struct rf_device_info, info);
        if (!rf_device_info_at(findings->runtime, i, &info)) json_device(&json, &info);
    }
    rf_json_close(&json);
    rf_json_open_array(&json, "items");
    for (size_t i = 0; i < findings->count; i++) {
        const struct selftest_result *result = &findings->results[i];
        rf_json_open_object(&json, NULL);
        rf_json_text(&json, "item", item_name(result));
        if (result->device < 0)
            rf_json_null(&json, "device");
        else
            rf_json_int(&json, "device", result->device);
        rf_json_text(&json, "result", result->mark == SELFTEST_FAILED ? "failed" : selftest_mark_name(result->mark));
        rf_json_fixed(&json, "seconds", result->seconds, 3);
        rf_json_text(&json, "text", result->text);
        rf_json_close(&json);
    }
    rf_json_close(&json);
    rf_json_uint(&json, "ok", findings->ok);
    rf_json_uint(&json, "failed", findings->failed);
    rf_json_uint(&json, "skipped", findings->skipped);
    rf_json_bool(&json, "interrupted", findings->interrupted);
    rf_json_fixed(&json, "seconds", findings->seconds, 3);
    rf_json_end(&json);
}
