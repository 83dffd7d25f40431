/* The grammar of RFSIM; README.md has it for people.
 *
 * "key=value" settings, separated by commas, semicolons or newlines. A key may be preceded by "gpuN." to mean one
 * device; such settings win over those for all devices, in whatever order they stand. Everything unknown, malformed
 * or out of range is an error that names it: a test that misspells its scenario must not pass. */
#include "sim/sim.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    struct sim_config *config;
    char *why;
    size_t why_size;
    bool wave_set[SIM_MAX_DEVICES], name_set[SIM_MAX_DEVICES], pci_set[SIM_MAX_DEVICES];
};

static bool apply(struct parser *parser, int device, const char *key, char *value);

static bool __attribute__((format(printf, 2, 3))) fail(struct parser *parser, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(parser->why, parser->why_size, format, args);
    va_end(args);
    return false;
}

static void set_defaults(struct sim_config *config) {
    *config = (struct sim_config){.device_count = 1, .seed = 1, .pending_limit = 1024, .version = 50221153};
    for (int i = 0; i < SIM_MAX_DEVICES; i++) {
        struct sim_device_config *device = &config->devices[i];
        snprintf(device->arch, sizeof device->arch, "gfx1100");
        snprintf(device->pci, sizeof device->pci, "0000:%02x:00.0", 3 + i);
        device->vram = UINT64_C(16) << 30;
        device->context = UINT64_C(64) << 20;
        device->granularity = UINT64_C(2) << 20;
        device->graph = 1024;
    }
}

bool sim_config_parse(const char *text, struct sim_config *config, char *why, size_t size) {
    struct parser parser = {.config = config, .why = why, .why_size = size};
    set_defaults(config);
    /* First the settings for all devices, then those for one device. */
    for (int pass = 0; pass < 2; pass++) {
        char *copy = strdup(text ? text : "");
        if (!copy) return fail(&parser, "out of memory");
        char *rest = copy, *setting;
        bool good = true;
        while (good && (setting = strsep(&rest, ",;\n"))) {
            while (isspace((unsigned char)*setting)) setting++;
            size_t length = strlen(setting);
            while (length && isspace((unsigned char)setting[length - 1])) setting[--length] = 0;
            if (!length) continue;
            char *value = strchr(setting, '=');
            if (!value) {
                good = fail(&parser, "'%s' has no '='; settings are key=value, separated by commas", setting);
                break;
            }
            *value++ = 0;
            int device = -1, used = 0;
            if (sscanf(setting, "gpu%d.%n", &device, &used) == 1 && used > 0) {
                if (device < 0 || device >= SIM_MAX_DEVICES)
                    good = fail(&parser, "'%s': devices are numbered 0 to %d", setting, SIM_MAX_DEVICES - 1);
                else if (pass == 1)
                    good = apply(&parser, device, setting + used, value);
            } else if (pass == 0) {
                good = apply(&parser, -1, setting, value);
            }
        }
        free(copy);
        if (!good) return false;
    }
    for (int i = 0; i < config->device_count; i++) {
        struct sim_device_config *device = &config->devices[i];
        if (!parser.wave_set[i]) device->wave = strncmp(device->arch, "gfx9", 4) == 0 ? 64 : 32;
        if (!device->units) device->units = device->wave == 64 ? 304 : 84;
        if (!parser.name_set[i])
            snprintf(device->name, sizeof device->name, "Simulated GPU %d (%s)", i, device->arch);
        for (int k = 0; k < i; k++)
            if (strcmp(device->pci, config->devices[k].pci) == 0)
                return fail(&parser, "devices %d and %d have the same pci=%s", k, i, device->pci);
    }
    return true;
}

/* ---- values ---- */

static bool parse_u64(const char *text, uint64_t *value) {
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)*text)) return false;
    unsigned long long parsed = strtoull(text, &end, 10);
    if (errno || *end) return false;
    *value = parsed;
    return true;
}

static bool parse_bytes(const char *text, uint64_t *bytes) {
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"K", 1024},
                 {"KiB", 1024},
                 {"M", 1048576},
                 {"MiB", 1048576},
                 {"G", 1073741824},
                 {"GiB", 1073741824},
                 {"T", 1099511627776.0},
                 {"TiB", 1099511627776.0},
                 {"KB", 1e3},
                 {"MB", 1e6},
                 {"GB", 1e9},
                 {"TB", 1e12}};
    char *end;
    if (!isdigit((unsigned char)*text)) return false;
    double number = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].suffix) == 0) {
            double result = number * units[i].factor;
            if (!(result >= 0 && result < 9e18)) return false;
            *bytes = (uint64_t)result;
            return true;
        }
    return false;
}

static bool parse_flag(const char *text, bool *flag) {
    if (strcmp(text, "0") && strcmp(text, "1")) return false;
    *flag = *text == '1';
    return true;
}

static bool copy_text(char *to, size_t size, const char *from) {
    size_t length = strlen(from);
    if (!length || length >= size) return false;
    memcpy(to, from, length + 1);
    return true;
}

bool sim_arch_is_nvidia(const char *arch) {
    return strncmp(arch, "sm_", 3) == 0;
}

uint32_t sim_shared_bytes(const char *arch) {
    enum { SHARED_SM_80 = 163 << 10, SHARED_SM_90 = 227 << 10 };
    if (!sim_arch_is_nvidia(arch)) return SIM_SHARED_BYTES;
    return sim_arch_version(arch) < 90000 ? SHARED_SM_80 : SHARED_SM_90;
}

int sim_arch_version(const char *arch) {
    size_t length = strlen(arch);
    if (sim_arch_is_nvidia(arch)) {
        uint64_t number;
        if (length < 5 || length > 6 || !parse_u64(arch + 3, &number) || number < 80) return 0;
        return (int)(number / 10 * 10000 + number % 10 * 100);
    }
    if (strncmp(arch, "gfx", 3) || length < 6 || length > 7) return 0;
    for (size_t i = 3; i < length; i++)
        if (!isxdigit((unsigned char)arch[i]) || (i < length - 1 && !isdigit((unsigned char)arch[i]))) return 0;
    char digit[2] = {arch[length - 1], 0};
    int step = (int)strtol(digit, NULL, 16);
    int minor = arch[length - 2] - '0';
    int major = (int)strtol(arch + 3, NULL, 10);
    for (size_t i = 0; i < (isdigit((unsigned char)arch[length - 1]) ? 2u : 1u); i++) major /= 10;
    return major * 10000 + minor * 100 + step;
}

/* ---- settings ---- */

/* "desktop@100calls=2GiB", "desktop@500ms=1GiB", "desktop@rand/SEED/EVERY=LOW-HIGH" */
static bool apply_desktop_step(struct sim_device_config *device, const char *when, char *value) {
    unsigned long long seed, every;
    int used = 0;
    if (sscanf(when, "rand/%llu/%llu%n", &seed, &every, &used) == 2 && !when[used]) {
        char *high = strchr(value, '-');
        if (!high || !every) return false;
        *high++ = 0;
        if (!parse_bytes(value, &device->walk_low) || !parse_bytes(high, &device->walk_high) ||
            device->walk_low > device->walk_high)
            return false;
        device->walk_seed = seed;
        device->walk_every = every;
        return true;
    }
    struct sim_desktop_step step = {0};
    unsigned long long at;
    if (sscanf(when, "%llums%n", &at, &used) == 1 && used > 0 && !when[used])
        step.by_time = true;
    else if (used = 0, sscanf(when, "%llucalls%n", &at, &used) != 1 || used == 0 || when[used])
        return false;
    step.at = step.by_time ? at * 1000000 : at;
    if (!parse_bytes(value, &step.bytes) || device->step_count == SIM_MAX_STEPS) return false;
    device->steps[device->step_count++] = step;
    return true;
}

static bool apply_device(struct parser *parser, int index, const char *key, char *value, bool *known) {
    struct sim_device_config *device = &parser->config->devices[index];
    uint64_t number;
    *known = true;
    if (strcmp(key, "name") == 0)
        return parser->name_set[index] = true, copy_text(device->name, sizeof device->name, value);
    if (strcmp(key, "arch") == 0)
        return sim_arch_version(value) && copy_text(device->arch, sizeof device->arch, value);
    if (strcmp(key, "pci") == 0) {
        unsigned d, b, s, f;
        int used = 0;
        parser->pci_set[index] = true;
        return sscanf(value, "%4x:%2x:%2x.%1x%n", &d, &b, &s, &f, &used) == 4 && !value[used] &&
               copy_text(device->pci, sizeof device->pci, value);
    }
    if (strcmp(key, "wave") == 0) {
        parser->wave_set[index] = true;
        if (!parse_u64(value, &number) || (number != 32 && number != 64)) return false;
        device->wave = (int)number;
        return true;
    }
    if (strcmp(key, "units") == 0) {
        if (!parse_u64(value, &number) || number < 1 || number > 4096) return false;
        device->units = (int)number;
        return true;
    }
    if (strcmp(key, "wgp") == 0) {
        if (strcmp(value, "0") && strcmp(value, "1") && strcmp(value, "plain")) return false;
        device->wgp = *value == '0' ? SIM_WGP_NONE : *value == '1' ? SIM_WGP_BOTH : SIM_WGP_PLAIN;
        return true;
    }
    if (strcmp(key, "late") == 0) {
        if (!parse_u64(value, &number) || number > 3600000) return false;
        device->late_ns = (int64_t)number * 1000000;
        return true;
    }
    if (strcmp(key, "pace") == 0) return parse_u64(value, &device->pace_ns) && device->pace_ns <= 1000000000;
    if (strcmp(key, "vram") == 0) return parse_bytes(value, &device->vram) && device->vram > 0;
    if (strcmp(key, "desktop") == 0) return parse_bytes(value, &device->desktop);
    if (strncmp(key, "desktop@", 8) == 0) {
        char copy[128]; /* a setting for all devices is applied several times, and parsing changes the text */
        return copy_text(copy, sizeof copy, value) && apply_desktop_step(device, key + 8, copy);
    }
    if (strcmp(key, "context") == 0) return parse_bytes(value, &device->context);
    if (strcmp(key, "grows") == 0) return parse_bytes(value, &device->grows) && device->grows <= UINT32_MAX;
    if (strcmp(key, "graph") == 0) return parse_bytes(value, &device->graph) && device->graph <= UINT32_MAX;
    if (strcmp(key, "granularity") == 0) return parse_bytes(value, &device->granularity) && device->granularity > 0;
    if (strcmp(key, "integrated") == 0) return parse_flag(value, &device->integrated);
    if (strcmp(key, "display") == 0) return parse_flag(value, &device->display);
    if (strcmp(key, "claims") == 0) return parse_bytes(value, &device->claims);
    if (strcmp(key, "blind") == 0) return parse_flag(value, &device->blind);
    *known = false;
    return false;
}

static bool parse_fault_kind(struct sim_fault *fault, const char *text) {
    static const struct {
        const char *word;
        enum sim_fault_kind kind;
        int code;
    } words[] = {{"hang", SIM_FAULT_HANG, 0},
                 {"crash", SIM_FAULT_CRASH, 0},
                 {"abort", SIM_FAULT_ABORT, 0},
                 {"exit", SIM_FAULT_EXIT, 1},
                 {"loss", SIM_FAULT_LOSS, SIM_UNKNOWN}};
    uint64_t code;
    if (strncmp(text, "work/", 5) == 0) {
        fault->in_work = true;
        text += 5;
    }
    if (parse_u64(text, &code)) {
        fault->kind = SIM_FAULT_CODE;
        fault->code = (int)code;
        return code > 0 && code < 10000;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i].word);
        if (strncmp(text, words[i].word, length)) continue;
        fault->kind = words[i].kind;
        fault->code = words[i].code;
        if (!text[length]) return true;
        bool takes_code = fault->kind == SIM_FAULT_EXIT || fault->kind == SIM_FAULT_LOSS;
        if (text[length] != '/' || !takes_code || !parse_u64(text + length + 1, &code) || code >= 10000) return false;
        fault->code = (int)code;
        return fault->kind == SIM_FAULT_EXIT || code > 0;
    }
    return false;
}

/* ENTRY:N:KIND, see README.md */
static bool apply_fault(struct parser *parser, char *value) {
    struct sim_config *config = parser->config;
    char *when = strchr(value, ':');
    char *kind = when ? strchr(when + 1, ':') : NULL;
    if (!kind) return fail(parser, "fault=%s: expected ENTRY:N:KIND, such as hipMalloc:2:700", value);
    if (config->fault_count == SIM_MAX_FAULTS) return fail(parser, "more than %d faults", SIM_MAX_FAULTS);
    *when++ = 0;
    *kind++ = 0;
    struct sim_fault fault = {.entry = -2};
    if (strcmp(value, "any") == 0) fault.entry = -1;
    for (int i = 0; i < SIM_ENTRY_COUNT; i++)
        if (strcmp(value, sim_entry_names[i]) == 0) fault.entry = i;
    if (fault.entry == -2) return fail(parser, "fault=%s:...: no such entry point", value);
    unsigned long long seed, limit;
    int used = 0;
    size_t length = strlen(when);
    if (sscanf(when, "rand/%llu/%llu%n", &seed, &limit, &used) == 2 && !when[used] && limit) {
        uint64_t state = seed;
        fault.nth = 1 + sim_random(&state) % limit;
    } else {
        if (length && when[length - 1] == '+') {
            fault.onwards = true;
            when[length - 1] = 0;
        }
        if (!parse_u64(when, &fault.nth) || !fault.nth)
            return fail(parser, "fault=%s:%s:...: the call is a number from 1 (or N+, or rand/SEED/MAX)", value,
                        when);
    }
    if (!parse_fault_kind(&fault, kind))
        return fail(parser,
                    "fault=%s:...:%s: kinds are an error code, hang, crash, abort, exit[/STATUS], loss[/CODE], and "
                    "work/ before any of them",
                    value, kind);
    config->faults[config->fault_count++] = fault;
    return true;
}

static bool apply_global(struct parser *parser, const char *key, char *value, bool *known) {
    struct sim_config *config = parser->config;
    unsigned long long seed, limit;
    uint64_t number;
    int used = 0;
    *known = true;
    if (strcmp(key, "devices") == 0) {
        if (!parse_u64(value, &number) || number > SIM_MAX_DEVICES) return false;
        config->device_count = (int)number;
        return true;
    }
    if (strcmp(key, "seed") == 0) return parse_u64(value, &config->seed);
    if (strcmp(key, "shuffle") == 0) return config->shuffle = true, parse_u64(value, &config->shuffle_seed);
    if (strcmp(key, "delay") == 0) {
        if (sscanf(value, "%llu/%lluus%n", &seed, &limit, &used) != 2 || !used || value[used] || limit > 1000000)
            return false;
        config->delay_seed = seed;
        config->delay_max_ns = limit * 1000;
        return true;
    }
    if (strcmp(key, "pending") == 0) return parse_u64(value, &config->pending_limit) && config->pending_limit > 0;
    if (strcmp(key, "version") == 0) {
        if (!parse_u64(value, &number) || number > INT32_MAX) return false;
        config->version = (int)number;
        return true;
    }
    if (strcmp(key, "rounding") == 0) return parse_flag(value, &config->rounding);
    if (strcmp(key, "stale") == 0) return parse_flag(value, &config->stale);
    if (strcmp(key, "trap") == 0) {
        if (strcmp(value, "abort") && strcmp(value, "error")) return false;
        config->trap_abort = *value == 'a';
        return true;
    }
    if (strcmp(key, "shared") == 0) return copy_text(config->shared, sizeof config->shared, value);
    if (strcmp(key, "sysfs") == 0) return copy_text(config->sysfs, sizeof config->sysfs, value);
    if (strcmp(key, "kernels") == 0) return copy_text(config->kernels, sizeof config->kernels, value);
    if (strcmp(key, "report") == 0) return copy_text(config->report, sizeof config->report, value);
    *known = false;
    return false;
}

static bool apply(struct parser *parser, int device, const char *key, char *value) {
    bool known = false, good = false;
    if (device < 0 && strcmp(key, "fault") == 0) return apply_fault(parser, value);
    if (device < 0) good = apply_global(parser, key, value, &known);
    if (!known) {
        int first = device < 0 ? 0 : device, last = device < 0 ? SIM_MAX_DEVICES - 1 : device;
        for (int i = first; i <= last; i++) {
            good = apply_device(parser, i, key, value, &known);
            /* One bus address cannot be the setting of all devices. */
            if (good && device < 0 && strcmp(key, "pci") == 0) break;
            if (!good) break;
        }
    }
    if (!known) return fail(parser, "'%s' is no setting%s", key, device < 0 ? "" : " of a device");
    if (!good) return fail(parser, "%s=%s: malformed or out of range", key, value);
    return true;
}
