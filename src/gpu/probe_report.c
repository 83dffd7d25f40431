/* The probe's wire format: writer, strict reader, and the judgement of what was read.
 *
 * Invariants: the reader never reads past length, never leaves a string unterminated, and fails as a whole on the
 * first thing that is not as the writer writes it. (This is not asserted, since that would need a second parser;
 * tests/fuzz/fuzz_probe_report.c writes the parsed report again and compares.) Everything read comes from a process
 * that a foreign library may have corrupted. */
#include "gpu/probe_report.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- fields: one table drives writer and reader ---- */

enum field_type { FIELD_TEXT, FIELD_INT, FIELD_U64 };

struct field {
    const char *key;
    enum field_type type;
    size_t offset, size;
};

#define DEVICE_FIELD(key, type, member)                                                                              \
    {key, type, offsetof(struct rf_probe_device, member), sizeof((struct rf_probe_device *)0)->member}

static const struct field device_fields[] = {
    DEVICE_FIELD("device", FIELD_INT, ordinal),
    DEVICE_FIELD("name", FIELD_TEXT, name),
    DEVICE_FIELD("arch", FIELD_TEXT, arch),
    DEVICE_FIELD("uuid", FIELD_TEXT, uuid),
    DEVICE_FIELD("pci", FIELD_TEXT, pci),
    DEVICE_FIELD("total_bytes", FIELD_U64, total_bytes),
    DEVICE_FIELD("free_bytes", FIELD_U64, free_bytes),
    DEVICE_FIELD("granularity_bytes", FIELD_U64, granularity_bytes),
    DEVICE_FIELD("integrated", FIELD_INT, integrated),
    DEVICE_FIELD("display", FIELD_INT, display),
    DEVICE_FIELD("wave_size", FIELD_INT, wave_size),
    DEVICE_FIELD("compute_units", FIELD_INT, compute_units),
    DEVICE_FIELD("max_threads_per_block", FIELD_INT, max_threads_per_block),
    DEVICE_FIELD("max_shared_bytes_per_block", FIELD_INT, max_shared_bytes_per_block),
    DEVICE_FIELD("fault", FIELD_TEXT, fault),
};

/* ---- writing ---- */

struct sink {
    char *text;
    size_t length, size;
    bool full;
};

static void put(struct sink *sink, const char *text, size_t length) {
    if (sink->full || length > sink->size - sink->length) {
        sink->full = true;
        return;
    }
    memcpy(sink->text + sink->length, text, length);
    sink->length += length;
}

static bool is_plain(unsigned char c) {
    return c >= 0x20 && c <= 0x7e && c != '%';
}

static void put_text(struct sink *sink, const char *key, const char *value) {
    put(sink, key, strlen(key));
    put(sink, "=", 1);
    for (; *value; value++) {
        unsigned char c = (unsigned char)*value;
        char escaped[4];
        if (!is_plain(c)) snprintf(escaped, sizeof escaped, "%%%02X", c);
        put(sink, is_plain(c) ? value : escaped, is_plain(c) ? 1 : 3);
    }
    put(sink, "\n", 1);
}

static void put_number(struct sink *sink, const char *key, bool negative, uint64_t magnitude) {
    char digits[24];
    snprintf(digits, sizeof digits, "%s%" PRIu64, negative ? "-" : "", magnitude);
    put_text(sink, key, digits);
}

static void put_int(struct sink *sink, const char *key, int value) {
    put_number(sink, key, value < 0, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

size_t rf_probe_report_write(const struct rf_probe_report *report, char *text, size_t size) {
    struct sink sink = {text, 0, size, false};
    if (report->count < 0 || report->count > RF_MAX_DEVICES) return 0;
    put(&sink, "begin\n", 6);
    put_text(&sink, "driver", report->kind == RF_DRIVER_CUDA ? "cuda" : "hip");
    put_int(&sink, "simulated", (int)report->simulated);
    put_text(&sink, "library", report->library);
    put_text(&sink, "label", report->label);
    put_int(&sink, "status", (int)report->status);
    put_text(&sink, "reason", report->reason);
    put_int(&sink, "devices", report->count);
    for (int i = 0; i < report->count; i++) {
        const char *device = (const char *)&report->devices[i];
        for (size_t f = 0; f < RF_COUNT(device_fields); f++) {
            const struct field *field = &device_fields[f];
            const char *at = device + field->offset;
            if (field->type == FIELD_TEXT) put_text(&sink, field->key, at);
            if (field->type == FIELD_INT) put_int(&sink, field->key, *(const int *)(const void *)at);
            if (field->type == FIELD_U64) put_number(&sink, field->key, false, *(const uint64_t *)(const void *)at);
        }
    }
    put(&sink, "end\n", 4);
    return sink.full ? 0 : sink.length;
}

size_t rf_probe_step_write(const char *step, char *text, size_t size) {
    char cut[160];
    snprintf(cut, sizeof cut, "%s", step);
    struct sink sink = {text, 0, size, false};
    put_text(&sink, "step", cut);
    return sink.full ? 0 : sink.length;
}

/* ---- reading ---- */

struct cursor {
    const char *at, *end;
    int line; /* of the line taken last, from 1 */
};

static rf_status malformed(const struct cursor *cursor, const char *what, const char *key) {
    return rf_fail(RF_E_SYNTAX, "line %d: %s%s%s", cursor->line, what, key ? " " : "", key ? key : "");
}

/* Takes the next line without its newline; false at the end, or if the line has no newline. */
static bool take_line(struct cursor *cursor, const char **line, size_t *length) {
    size_t left = (size_t)(cursor->end - cursor->at);
    const char *newline = left ? memchr(cursor->at, '\n', left) : NULL;
    cursor->line++;
    rf_assert(cursor->at <= cursor->end);
    if (!newline) return false;
    *line = cursor->at;
    *length = (size_t)(newline - cursor->at);
    cursor->at = newline + 1;
    return true;
}

static bool take_word(struct cursor *cursor, const char *word) {
    const char *line;
    size_t length;
    return take_line(cursor, &line, &length) && length == strlen(word) && memcmp(line, word, length) == 0;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes only what put_text writes: plain bytes as they are, all others except NUL escaped. */
static bool decode(const char *value, size_t length, char *text, size_t size) {
    size_t used = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)value[i];
        if (c == '%') {
            if (length - i < 3 || hex_digit(value[i + 1]) < 0 || hex_digit(value[i + 2]) < 0) return false;
            c = (unsigned char)(hex_digit(value[i + 1]) * 16 + hex_digit(value[i + 2]));
            if (c == 0 || is_plain(c)) return false;
            i += 2;
        } else if (!is_plain(c)) {
            return false;
        }
        if (used + 1 >= size) return false;
        text[used++] = (char)c;
    }
    rf_assert(used < size);
    text[used] = 0;
    return true;
}

static bool parse_u64(const char *value, size_t length, uint64_t *number) {
    uint64_t sum = 0;
    if (length == 0 || (value[0] == '0' && length > 1)) return false;
    for (size_t i = 0; i < length; i++) {
        if (value[i] < '0' || value[i] > '9') return false;
        if (rf_mul_overflows(sum, 10, &sum) || rf_add_overflows(sum, (uint64_t)(value[i] - '0'), &sum)) return false;
    }
    *number = sum;
    return true;
}

static bool parse_int(const char *value, size_t length, int *number) {
    bool negative = length && value[0] == '-';
    uint64_t magnitude;
    if (!parse_u64(value + negative, length - negative, &magnitude)) return false;
    if (magnitude > (uint64_t)INT_MAX + negative || (negative && magnitude == 0)) return false;
    *number = negative ? (int)-(int64_t)magnitude : (int)magnitude;
    return true;
}

static rf_status take_field(struct cursor *cursor, const char *key, enum field_type type, void *to, size_t size) {
    const char *line;
    size_t length, key_length = strlen(key);
    if (!take_line(cursor, &line, &length) || length <= key_length || memcmp(line, key, key_length) != 0 ||
        line[key_length] != '=')
        return malformed(cursor, "expected", key);
    const char *value = line + key_length + 1;
    size_t value_length = length - key_length - 1;
    bool good = type == FIELD_TEXT  ? decode(value, value_length, to, size)
                : type == FIELD_INT ? parse_int(value, value_length, to)
                                    : parse_u64(value, value_length, to);
    return good ? RF_OK : malformed(cursor, "not a value for", key);
}

static rf_status parse_body(struct cursor *cursor, struct rf_probe_report *report) {
    char driver[8];
    int simulated = 0, status = 0;
    const struct {
        const char *key;
        enum field_type type;
        void *to;
        size_t size;
    } fields[] = {
        {"driver", FIELD_TEXT, driver, sizeof driver},
        {"simulated", FIELD_INT, &simulated, 0},
        {"library", FIELD_TEXT, report->library, sizeof report->library},
        {"label", FIELD_TEXT, report->label, sizeof report->label},
        {"status", FIELD_INT, &status, 0},
        {"reason", FIELD_TEXT, report->reason, sizeof report->reason},
        {"devices", FIELD_INT, &report->count, 0},
    };
    for (size_t i = 0; i < RF_COUNT(fields); i++) {
        rf_status taken = take_field(cursor, fields[i].key, fields[i].type, fields[i].to, fields[i].size);
        if (taken != RF_OK) return taken;
    }
    if (strcmp(driver, "hip") != 0 && strcmp(driver, "cuda") != 0) return malformed(cursor, "no such driver", driver);
    if (simulated < RF_PROBE_NOT_SIMULATED || simulated > RF_PROBE_SIMULATED_SHARED)
        return malformed(cursor, "not a value for", "simulated");
    if (status != RF_OK && status != RF_E_NO_DRIVER && status != RF_E_NO_DEVICE && status != RF_E_DRIVER)
        return malformed(cursor, "not a value for", "status");
    if (report->count < 0 || report->count > RF_MAX_DEVICES) return malformed(cursor, "not a value for", "devices");
    if ((status == RF_OK) != (report->count > 0) || (status == RF_OK) != (report->reason[0] == 0))
        return malformed(cursor, "status, reason and devices contradict each other", NULL);
    if (status == RF_OK && report->library[0] != '/') return malformed(cursor, "not a value for", "library");
    report->kind = strcmp(driver, "cuda") == 0 ? RF_DRIVER_CUDA : RF_DRIVER_HIP;
    report->simulated = (enum rf_probe_simulated)simulated;
    report->status = (rf_status)status;

    for (int i = 0; i < report->count; i++) {
        struct rf_probe_device *device = &report->devices[i];
        for (size_t f = 0; f < RF_COUNT(device_fields); f++) {
            const struct field *field = &device_fields[f];
            rf_status taken =
                take_field(cursor, field->key, field->type, (char *)device + field->offset, field->size);
            if (taken != RF_OK) return taken;
        }
        if (device->ordinal != i) return malformed(cursor, "devices out of order", NULL);
        if (device->integrated != 0 && device->integrated != 1)
            return malformed(cursor, "not a value for", "integrated");
        if (device->display < RF_UNKNOWN || device->display > RF_YES)
            return malformed(cursor, "not a value for", "display");
    }
    return RF_OK;
}

rf_status rf_probe_report_parse(const char *text, size_t length, struct rf_probe_report *report) {
    struct cursor cursor = {text, text + length, 0};
    const char *line;
    size_t line_length, header = strlen(RF_PROBE_HEADER);
    if (length < header || memcmp(text, RF_PROBE_HEADER, header) != 0)
        return rf_fail(RF_E_SYNTAX, "line 1: not the header of a probe's report");
    cursor.at += header;
    cursor.line = 1;
    while (true) {
        char step[160];
        if (!take_line(&cursor, &line, &line_length)) return malformed(&cursor, "expected a step or begin", NULL);
        if (line_length == 5 && memcmp(line, "begin", 5) == 0) break;
        if (line_length < 5 || memcmp(line, "step=", 5) != 0 || !decode(line + 5, line_length - 5, step, sizeof step))
            return malformed(&cursor, "expected a step or begin", NULL);
    }
    struct rf_probe_report *parsed = calloc(1, sizeof *parsed); /* too large for a small thread's stack */
    if (!parsed) return rf_fail(RF_E_NO_MEMORY, "no memory for a probe's report");
    rf_status status = parse_body(&cursor, parsed);
    if (status == RF_OK && !take_word(&cursor, "end")) status = malformed(&cursor, "expected end", NULL);
    if (status == RF_OK && cursor.at != cursor.end) status = malformed(&cursor, "something follows the end", NULL);
    if (status == RF_OK) *report = *parsed;
    free(parsed);
    return status;
}

bool rf_probe_report_complete(const char *text, size_t length) {
    return length >= 5 && memcmp(text + length - 5, "\nend\n", 5) == 0;
}

bool rf_probe_last_step(const char *text, size_t length, char *step, size_t size) {
    struct cursor cursor = {text, text + length, 0};
    const char *line;
    size_t line_length, header = strlen(RF_PROBE_HEADER);
    step[0] = 0;
    if (length < header || memcmp(text, RF_PROBE_HEADER, header) != 0) return false;
    cursor.at += header;
    while (take_line(&cursor, &line, &line_length)) {
        char decoded[160];
        if (line_length < 5 || memcmp(line, "step=", 5) != 0) break;
        if (decode(line + 5, line_length - 5, decoded, sizeof decoded)) snprintf(step, size, "%s", decoded);
    }
    return true;
}

/* ---- judging ---- */

static bool all_in(const char *text, const char *allowed) {
    return text[strspn(text, allowed)] == 0;
}

/* Of HIP's drivers only the simulated one says "sm_90" (driver_hip.c). */
static bool is_arch(enum rf_driver_kind kind, const char *arch) {
    size_t length = strlen(arch);
    if (kind == RF_DRIVER_CUDA || strncmp(arch, "sm_", 3) == 0)
        return strncmp(arch, "sm_", 3) == 0 && length >= 5 && length <= 7 && all_in(arch + 3, "0123456789");
    return strncmp(arch, "gfx", 3) == 0 && length >= 6 && length <= 8 && all_in(arch + 3, "0123456789abcdef");
}

static bool is_pci(const char *pci) {
    unsigned domain, bus, slot, function;
    char again[32];
    if (sscanf(pci, "%8x:%2x:%2x.%1x", &domain, &bus, &slot, &function) != 4) return false;
    snprintf(again, sizeof again, "%04x:%02x:%02x.%x", domain, bus, slot, function);
    return strcmp(pci, again) == 0;
}

static bool has_control(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return true;
    return false;
}

bool rf_probe_device_plausible(enum rf_driver_kind kind, const struct rf_probe_device *device, char *why,
                               size_t size) {
    static const uint64_t most_bytes = UINT64_C(1) << 50; /* a pebibyte on one GPU is a mistake */
    const char *uuid_chars = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_.:";
    why[0] = 0;
    if (device->fault[0])
        snprintf(why, size, "%s", device->fault);
    else if (!device->name[0] || has_control(device->name))
        snprintf(why, size, "the driver gives it a name that is no text");
    else if (!is_arch(kind, device->arch))
        snprintf(why, size, "the driver does not tell its architecture");
    else if (!device->uuid[0] || !all_in(device->uuid, uuid_chars))
        snprintf(why, size, "the driver gives it an impossible identity");
    else if (device->pci[0] && !is_pci(device->pci))
        snprintf(why, size, "the driver gives it an impossible PCI address");
    else if (device->total_bytes == 0 || device->total_bytes > most_bytes)
        snprintf(why, size, "the driver says it has %" PRIu64 " bytes of memory", device->total_bytes);
    else if (device->free_bytes > device->total_bytes)
        snprintf(why, size, "it has more memory free (%" PRIu64 " bytes) than in total (%" PRIu64 ")",
                 device->free_bytes, device->total_bytes);
    else if (device->granularity_bytes == 0 || device->granularity_bytes > most_bytes)
        snprintf(why, size, "the driver says it allocates in steps of %" PRIu64 " bytes", device->granularity_bytes);
    else if (device->wave_size != 32 && device->wave_size != 64)
        snprintf(why, size, "the driver says its waves have %d threads", device->wave_size);
    else if (device->compute_units < 1 || device->compute_units > 65536)
        snprintf(why, size, "the driver says it has %d compute units", device->compute_units);
    else if (device->max_threads_per_block < device->wave_size || device->max_threads_per_block > 65536)
        snprintf(why, size, "the driver says a block has at most %d threads", device->max_threads_per_block);
    else if (device->max_shared_bytes_per_block < 1024 || device->max_shared_bytes_per_block > 1 << 26)
        snprintf(why, size, "the driver says a block has at most %d bytes of shared memory",
                 device->max_shared_bytes_per_block);
    return why[0] == 0;
}
