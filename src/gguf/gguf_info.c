/* The public view of a model file: <rocmforge/model.h>. Shows values as text that is safe to print, and says how much
 * memory the parts of a model need.
 *
 * Invariant: a text is one line of printable, valid UTF-8, whatever the file holds. This is not asserted,
 * because the function that decides it would check itself: tests/gguf/gguf_property.c looks for one line, and
 * info.json_is_json (tests/gguf/test_info.c) reads the text with a JSON parser. */
#include "gguf/gguf_impl.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

#define ELLIPSIS "\xe2\x80\xa6"

static void fill_metadata(const struct rf_gguf_value *value, struct rf_gguf_metadata *out);

/* ---- values as text ---- */

/* A line of bounded length. A piece that does not fit as a whole is left out, and `full` is set. */
struct line {
    char *text;
    size_t used, most; /* most: bytes of text, without the final zero */
    size_t reserve;    /* of these, bytes kept for the end of the line */
    bool full;
};
#define LINE(array) ((struct line){.text = (array), .most = sizeof(array) - 1, .reserve = 4})

static bool line_add(struct line *line, const char *piece, size_t bytes) {
    if (line->full || bytes > line->most - line->reserve - line->used) {
        line->full = true;
        return false;
    }
    memcpy(line->text + line->used, piece, bytes);
    line->used += bytes;
    line->text[line->used] = 0;
    return true;
}

/* Ends a line: an ellipsis if something was left out, then the last bytes. */
static void line_end(struct line *line, const char *ending) {
    bool cut = line->full;
    line->full = false;
    line->reserve = 0;
    if (cut) line_add(line, ELLIPSIS, strlen(ELLIPSIS));
    line_add(line, ending, strlen(ending));
}

/* Bytes of the valid UTF-8 character that begins here; 0: none does, or it must not be printed as it is (a control
 * character, or U+2028 and U+2029, which end lines). */
static size_t printable_bytes(const char *text, size_t left) {
    size_t taken;
    uint32_t code = rf_utf8_decode(text, left, &taken);
    bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
    return control || code == 0x2028 || code == 0x2029 || code == RF_CODE_INVALID ? 0 : taken;
}

static void line_add_string(struct line *line, struct rf_gguf_string string) {
    for (size_t i = 0; i < string.bytes && !line->full;) {
        const char *at = string.text + i;
        size_t bytes = printable_bytes(at, string.bytes - i);
        char escape[8];
        if (bytes) {
            line_add(line, at, bytes);
            i += bytes;
            continue;
        }
        if (*at == '\n' || *at == '\t' || *at == '\r')
            snprintf(escape, sizeof escape, "\\%c", *at == '\n' ? 'n' : *at == '\t' ? 't' : 'r');
        else
            snprintf(escape, sizeof escape, "\\x%02x", (unsigned char)*at);
        line_add(line, escape, strlen(escape));
        i++;
    }
}

static void line_add_plain(struct line *line, const struct rf_gguf_value *value) {
    char text[40];
    switch (value->type) {
    case RF_GGUF_I8:
    case RF_GGUF_I16:
    case RF_GGUF_I32:
    case RF_GGUF_I64: snprintf(text, sizeof text, "%lld", (long long)value->i); break;
    case RF_GGUF_F32: snprintf(text, sizeof text, "%.7g", value->f); break;
    case RF_GGUF_F64: snprintf(text, sizeof text, "%.15g", value->f); break;
    case RF_GGUF_BOOL: snprintf(text, sizeof text, "%s", value->b ? "true" : "false"); break;
    default: snprintf(text, sizeof text, "%llu", (unsigned long long)value->u); break;
    }
    line_add(line, text, strlen(text));
}

/* Shows the first few elements. */
static void line_add_array(struct line *line, const struct rf_gguf_array *array) {
    struct rf_gguf_cursor cursor = {0};
    line_add(line, "[", 1);
    for (uint64_t i = 0; i < array->count && !line->full; i++) {
        char text[64];
        struct line piece = LINE(text);
        struct rf_gguf_string string;
        if (i) line_add(&piece, ", ", 2);
        if (i == 8) {
            line_add(line, text, piece.used);
            line->full = true;
        } else if (array->type == RF_GGUF_STRING) {
            if (!rf_gguf_array_next_string(array, &cursor, &string)) break;
            line_add(&piece, "\"", 1);
            line_add_string(&piece, string);
            line_end(&piece, "\"");
            line_add(line, text, piece.used);
        } else if (array->type == RF_GGUF_ARRAY) {
            line_add(&piece, "[" ELLIPSIS "]", strlen("[" ELLIPSIS "]"));
            line_add(line, text, piece.used);
        } else {
            struct rf_gguf_value item = gguf_decode(array->type, array->data + i * gguf_type_bytes(array->type));
            line_add_plain(&piece, &item);
            line_add(line, text, piece.used);
        }
    }
    line_end(line, "]");
}

/* Copies the text of a key, shortened; nothing if the key is absent or not a string. */
static void copy_text(const struct rf_gguf *gguf, const char *key, struct line line) {
    const struct rf_gguf_value *value = rf_gguf_find(gguf, key);
    if (!value || value->type != RF_GGUF_STRING) return;
    line_add_string(&line, value->string);
    line_end(&line, "");
}

/* ---- the file as a whole ---- */

rf_status rf_gguf_get_info(const struct rf_gguf *gguf, struct rf_gguf_info *info) {
    if (!gguf) return rf_fail(RF_E_INVALID, "rf_gguf_get_info: gguf is NULL");
    rf_status status = RF_RESULT_CHECK(struct rf_gguf_info, info, "rf_gguf_get_info");
    if (status) return status;
    struct rf_gguf_info filled = {
        .version = gguf->parts[0].version,
        .alignment_bytes = gguf->parts[0].alignment,
        .file_count = gguf->part_count,
        .metadata_count = rf_gguf_value_count(gguf),
        .tensor_count = gguf->tensor_count,
        .tied_output = !rf_gguf_find_tensor(gguf, "output.weight") && rf_gguf_find_tensor(gguf, "token_embd.weight"),
    };
    for (size_t i = 0; i < gguf->part_count; i++) filled.file_bytes += gguf->parts[i].size;
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        filled.tensor_bytes += gguf->tensors[i].bytes;
        filled.parameter_count += gguf->tensors[i].elements;
    }
    copy_text(gguf, "general.architecture", LINE(filled.architecture));
    copy_text(gguf, "general.name", LINE(filled.name));
    RF_RESULT_WRITE(struct rf_gguf_info, info, &filled);
    return RF_OK;
}

/* ---- metadata ---- */

rf_status rf_gguf_metadata_at(const struct rf_gguf *gguf, uint64_t index, struct rf_gguf_metadata *value) {
    if (!gguf) return rf_fail(RF_E_INVALID, "rf_gguf_metadata_at: gguf is NULL");
    rf_status status = RF_RESULT_CHECK(struct rf_gguf_metadata, value, "rf_gguf_metadata_at");
    if (status) return status;
    if (index >= rf_gguf_value_count(gguf))
        return rf_fail(RF_E_INVALID, "rf_gguf_metadata_at: index %llu of %zu", (unsigned long long)index,
                       rf_gguf_value_count(gguf));
    fill_metadata(rf_gguf_value_at(gguf, (size_t)index), value);
    return RF_OK;
}

rf_status rf_gguf_metadata_find(const struct rf_gguf *gguf, const char *key, struct rf_gguf_metadata *value) {
    if (!gguf || !key) return rf_fail(RF_E_INVALID, "rf_gguf_metadata_find: gguf or key is NULL");
    rf_status status = RF_RESULT_CHECK(struct rf_gguf_metadata, value, "rf_gguf_metadata_find");
    if (status) return status;
    const struct rf_gguf_value *found = rf_gguf_find(gguf, key);
    if (!found) return rf_fail(RF_E_NOT_FOUND, "%s: has no key \"%.200s\"", rf_gguf_path(gguf), key);
    fill_metadata(found, value);
    return RF_OK;
}

rf_status rf_gguf_metadata_element(const struct rf_gguf *gguf, const char *key, uint64_t element,
                                   struct rf_gguf_metadata *value) {
    if (!gguf || !key) return rf_fail(RF_E_INVALID, "rf_gguf_metadata_element: gguf or key is NULL");
    rf_status status = RF_RESULT_CHECK(struct rf_gguf_metadata, value, "rf_gguf_metadata_element");
    if (status) return status;
    const struct rf_gguf_value *found = rf_gguf_find(gguf, key);
    if (!found) return rf_fail(RF_E_NOT_FOUND, "%s: has no key \"%.200s\"", rf_gguf_path(gguf), key);
    if (found->type != RF_GGUF_ARRAY || element >= found->array.count)
        return rf_fail(RF_E_INVALID, "%s: the key \"%.200s\" has no element %llu", rf_gguf_path(gguf), key,
                       (unsigned long long)element);
    const struct rf_gguf_array *array = &found->array;
    struct rf_gguf_value item = {.type = array->type};
    if (array->type == RF_GGUF_ARRAY)
        return rf_fail(RF_E_UNSUPPORTED, "%s: the key \"%.200s\" holds arrays in an array", rf_gguf_path(gguf), key);
    if (array->type == RF_GGUF_STRING) {
        struct rf_gguf_cursor cursor = {0};
        while (cursor.index <= element)
            if (!rf_gguf_array_next_string(array, &cursor, &item.string))
                return rf_fail(RF_E_IO, "%s: was changed while it was open", rf_gguf_path(gguf));
    } else {
        item = gguf_decode(array->type, array->data + element * gguf_type_bytes(array->type));
    }
    item.key = found->key;
    fill_metadata(&item, value);
    return RF_OK;
}

static void fill_metadata(const struct rf_gguf_value *value, struct rf_gguf_metadata *out) {
    struct rf_gguf_metadata filled = {.key = value->key, .type = value->type};
    filled.type_name =
        value->type == RF_GGUF_ARRAY ? gguf_array_type_name(value->array.type) : rf_gguf_type_name(value->type);
    switch (value->type) {
    case RF_GGUF_U8:
    case RF_GGUF_U16:
    case RF_GGUF_U32:
    case RF_GGUF_U64: filled.uint_value = value->u; break;
    case RF_GGUF_I8:
    case RF_GGUF_I16:
    case RF_GGUF_I32:
    case RF_GGUF_I64: filled.int_value = value->i; break;
    case RF_GGUF_F32:
    case RF_GGUF_F64: filled.float_value = value->f; break;
    case RF_GGUF_BOOL: filled.bool_value = value->b; break;
    case RF_GGUF_STRING:
        filled.text = value->string.text;
        filled.text_bytes = value->string.bytes;
        break;
    case RF_GGUF_ARRAY:
        filled.element_type = value->array.type;
        filled.element_count = value->array.count;
        break;
    case RF_GGUF_TYPE_COUNT: break;
    }
    struct line line = LINE(filled.shown);
    if (value->type == RF_GGUF_ARRAY)
        line_add_array(&line, &value->array);
    else if (value->type == RF_GGUF_STRING)
        line_add_string(&line, value->string);
    else
        line_add_plain(&line, value);
    if (value->type != RF_GGUF_ARRAY) line_end(&line, "");
    RF_RESULT_WRITE(struct rf_gguf_metadata, out, &filled);
}

/* ---- tensors and parts ---- */

rf_status rf_gguf_tensor_info_at(const struct rf_gguf *gguf, uint64_t index, struct rf_gguf_tensor_info *info) {
    if (!gguf) return rf_fail(RF_E_INVALID, "rf_gguf_tensor_info_at: gguf is NULL");
    rf_status status = RF_RESULT_CHECK(struct rf_gguf_tensor_info, info, "rf_gguf_tensor_info_at");
    if (status) return status;
    if (index >= gguf->tensor_count)
        return rf_fail(RF_E_INVALID, "rf_gguf_tensor_info_at: index %llu of %zu", (unsigned long long)index,
                       gguf->tensor_count);
    const struct rf_gguf_tensor *tensor = &gguf->tensors[index];
    struct rf_gguf_tensor_info filled = {
        .name = tensor->name,
        .dtype = tensor->dtype,
        .rank = tensor->rank,
        .elements = tensor->elements,
        .bytes = tensor->bytes,
        .file = tensor->file,
        .offset = tensor->offset,
    };
    memcpy(filled.shape, tensor->shape, sizeof filled.shape);
    RF_RESULT_WRITE(struct rf_gguf_tensor_info, info, &filled);
    return RF_OK;
}

/* "blk.12.…" gives 12. */
static bool layer_of(const char *name, uint32_t *layer) {
    uint64_t number = 0;
    if (strncmp(name, "blk.", 4) != 0) return false;
    const char *digit = name + 4;
    for (; *digit >= '0' && *digit <= '9'; digit++) {
        number = number * 10 + (uint64_t)(*digit - '0');
        if (number > UINT32_MAX) return false;
    }
    if (digit == name + 4 || *digit != '.') return false;
    *layer = (uint32_t)number;
    return true;
}

static struct rf_model_part part_of(const struct rf_gguf_tensor *tensor) {
    struct rf_model_part part = {
        .struct_size = sizeof part,
        .kind = RF_PART_OTHER,
        .tensor_count = 1,
        .parameter_count = tensor->elements,
        .weight_bytes = tensor->bytes,
    };
    if (layer_of(tensor->name, &part.layer))
        part.kind = RF_PART_LAYER;
    else if (strncmp(tensor->name, "token_embd", 10) == 0)
        part.kind = RF_PART_EMBEDDING;
    else if (strncmp(tensor->name, "output.", 7) == 0 || strncmp(tensor->name, "output_norm.", 12) == 0)
        part.kind = RF_PART_OUTPUT;
    return part;
}

static int compare_parts(const void *a, const void *b) {
    const struct rf_model_part *x = a, *y = b;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->layer < y->layer ? -1 : x->layer > y->layer;
}

rf_status rf_gguf_visit_parts(const struct rf_gguf *gguf, bool (*visit)(void *user, const struct rf_model_part *part),
                              void *user) {
    if (!gguf || !visit) return rf_fail(RF_E_INVALID, "rf_gguf_visit_parts: NULL");
    if (!gguf->tensor_count) return RF_OK;
    /* One entry per tensor, then equal ones are added up: layer numbers come from the file and may be any number. */
    struct rf_model_part *parts = calloc(gguf->tensor_count, sizeof *parts);
    if (!parts) return rf_fail(RF_E_NO_MEMORY, "%s: no host memory to list its parts", rf_gguf_path(gguf));
    for (size_t i = 0; i < gguf->tensor_count; i++) parts[i] = part_of(&gguf->tensors[i]);
    qsort(parts, gguf->tensor_count, sizeof *parts, compare_parts);
    for (size_t i = 0, next; i < gguf->tensor_count; i = next) {
        struct rf_model_part sum = parts[i];
        for (next = i + 1; next < gguf->tensor_count && !compare_parts(&parts[i], &parts[next]); next++) {
            sum.tensor_count++;
            sum.parameter_count += parts[next].parameter_count;
            sum.weight_bytes += parts[next].weight_bytes;
        }
        if (!visit(user, &sum)) break;
    }
    free(parts);
    return RF_OK;
}

/* ---- the key-value cache ---- */

/* "ARCHITECTURE.NAME" */
static rf_status model_key(const struct rf_gguf *gguf, const char *name, char key[160]) {
    struct rf_gguf_string architecture;
    rf_status status = rf_gguf_get_string(gguf, "general.architecture", &architecture);
    if (status) return status;
    if (architecture.bytes > 63)
        return rf_fail(RF_E_SYNTAX, "%s: its architecture's name is too long", rf_gguf_path(gguf));
    snprintf(key, 160, "%.*s.%s", (int)architecture.bytes, architecture.text, name);
    return RF_OK;
}

static rf_status model_u64(const struct rf_gguf *gguf, const char *name, uint64_t *out) {
    char key[160];
    rf_status status = model_key(gguf, name, key);
    return status ? status : rf_gguf_get_u64(gguf, key, out);
}

/* The key-value heads of all layers together. The key is one number for every layer, or an array with one each. */
static rf_status count_kv_heads(const struct rf_gguf *gguf, uint64_t layers, uint64_t *sum) {
    static const char *const names[] = {"attention.head_count_kv", "attention.head_count"};
    char key[160];
    for (size_t i = 0; i < RF_COUNT(names); i++) {
        rf_status status = model_key(gguf, names[i], key);
        if (status) return status;
        const struct rf_gguf_value *value = rf_gguf_find(gguf, key);
        struct rf_gguf_array heads;
        uint64_t each;
        if (!value) continue;
        if (value->type != RF_GGUF_ARRAY) {
            status = rf_gguf_get_u64(gguf, key, &each);
            if (status) return status;
            return rf_mul_overflows(each, layers, sum) ? rf_fail(RF_E_SYNTAX, "%s: the key \"%s\" is too large: %llu",
                                                                 rf_gguf_path(gguf), key, (unsigned long long)each)
                                                       : RF_OK;
        }
        status = rf_gguf_get_int_array(gguf, key, &heads);
        if (status) return status;
        bool fits = heads.count >= layers;
        *sum = 0;
        for (uint64_t layer = 0; layer < layers && fits; layer++) {
            int64_t count = rf_gguf_array_int(&heads, layer);
            fits = count >= 0 && !rf_add_overflows(*sum, (uint64_t)count, sum);
        }
        return fits ? RF_OK
                    : rf_fail(RF_E_SYNTAX, "%s: the key \"%s\" does not hold a head count for each of %llu layers",
                              rf_gguf_path(gguf), key, (unsigned long long)layers);
    }
    return rf_fail(RF_E_NOT_FOUND, "%s: has no key \"%s\"", rf_gguf_path(gguf), key);
}

/* Elements of a head: what the key says, else the embedding's width divided by the number of heads. */
static rf_status head_length(const struct rf_gguf *gguf, const char *name, uint64_t *out) {
    uint64_t embedding, heads;
    rf_status status = model_u64(gguf, name, out);
    if (status != RF_E_NOT_FOUND) return status;
    status = model_u64(gguf, "embedding_length", &embedding);
    if (!status) status = model_u64(gguf, "attention.head_count", &heads);
    if (status) return status;
    if (!heads) return rf_fail(RF_E_SYNTAX, "%s: its attention.head_count is 0", rf_gguf_path(gguf));
    *out = embedding / heads;
    return RF_OK;
}

rf_status rf_gguf_kv_bytes(const struct rf_gguf *gguf, uint64_t tokens, enum rf_dtype dtype, uint64_t *bytes) {
    if (!gguf || !bytes || !rf_dtype_block(dtype))
        return rf_fail(RF_E_INVALID, "rf_gguf_kv_bytes: NULL, or %d is no dtype", (int)dtype);
    uint64_t layers = 0, heads = 0, keys = 0, values = 0;
    rf_status status = model_u64(gguf, "block_count", &layers);
    if (!status) status = count_kv_heads(gguf, layers, &heads);
    if (!status) status = head_length(gguf, "attention.key_length", &keys);
    if (!status) status = head_length(gguf, "attention.value_length", &values);
    if (status) return status;
    uint64_t block = rf_dtype_block(dtype), total;
    /* Rows of quantized heads are rounded up to whole blocks. */
    bool overflow = rf_round_up_overflows(keys, block, &keys) || rf_round_up_overflows(values, block, &values) ||
                    rf_add_overflows(keys, values, &total) || rf_mul_overflows(total, heads, &total) ||
                    rf_mul_overflows(total / block, rf_dtype_block_bytes(dtype), &total) ||
                    rf_mul_overflows(total, tokens, &total);
    if (overflow)
        return rf_fail(RF_E_SYNTAX, "%s: its head counts and lengths make no sense together", rf_gguf_path(gguf));
    *bytes = total;
    return RF_OK;
}
