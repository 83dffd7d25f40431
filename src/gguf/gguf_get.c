/* Looking things up in an open GGUF object. gguf.h says what each does. */
#include "gguf/gguf_impl.h"

#include <float.h>
#include <math.h>

const char *rf_gguf_type_name(enum rf_gguf_type type) {
    static const char *const names[RF_GGUF_TYPE_COUNT] = {
        [RF_GGUF_U8] = "u8",         [RF_GGUF_I8] = "i8",       [RF_GGUF_U16] = "u16", [RF_GGUF_I16] = "i16",
        [RF_GGUF_U32] = "u32",       [RF_GGUF_I32] = "i32",     [RF_GGUF_F32] = "f32", [RF_GGUF_BOOL] = "bool",
        [RF_GGUF_STRING] = "string", [RF_GGUF_ARRAY] = "array", [RF_GGUF_U64] = "u64", [RF_GGUF_I64] = "i64",
        [RF_GGUF_F64] = "f64",
    };
    return (unsigned)type < RF_GGUF_TYPE_COUNT ? names[type] : "?";
}

const char *gguf_array_type_name(enum rf_gguf_type elements) {
    static const char *const names[RF_GGUF_TYPE_COUNT] = {
        [RF_GGUF_U8] = "array of u8",       [RF_GGUF_I8] = "array of i8",     [RF_GGUF_U16] = "array of u16",
        [RF_GGUF_I16] = "array of i16",     [RF_GGUF_U32] = "array of u32",   [RF_GGUF_I32] = "array of i32",
        [RF_GGUF_F32] = "array of f32",     [RF_GGUF_BOOL] = "array of bool", [RF_GGUF_STRING] = "array of string",
        [RF_GGUF_ARRAY] = "array of array", [RF_GGUF_U64] = "array of u64",   [RF_GGUF_I64] = "array of i64",
        [RF_GGUF_F64] = "array of f64",
    };
    return (unsigned)elements < RF_GGUF_TYPE_COUNT ? names[elements] : "array of ?";
}

static bool is_unsigned(enum rf_gguf_type type) {
    return type == RF_GGUF_U8 || type == RF_GGUF_U16 || type == RF_GGUF_U32 || type == RF_GGUF_U64;
}
static bool is_signed(enum rf_gguf_type type) {
    return type == RF_GGUF_I8 || type == RF_GGUF_I16 || type == RF_GGUF_I32 || type == RF_GGUF_I64;
}
static bool is_float(enum rf_gguf_type type) {
    return type == RF_GGUF_F32 || type == RF_GGUF_F64;
}

bool gguf_value_u64(const struct rf_gguf_value *value, uint64_t *out) {
    if (is_unsigned(value->type)) {
        *out = value->u;
        return true;
    }
    if (!is_signed(value->type) || value->i < 0) return false;
    *out = (uint64_t)value->i;
    return true;
}

size_t rf_gguf_value_count(const struct rf_gguf *gguf) {
    return gguf->parts[0].values.count;
}

const struct rf_gguf_value *rf_gguf_value_at(const struct rf_gguf *gguf, size_t index) {
    const struct gguf_values *values = &gguf->parts[0].values;
    return index < values->count ? &values->items[index] : NULL;
}

const struct rf_gguf_value *rf_gguf_find(const struct rf_gguf *gguf, const char *key) {
    return gguf_find_value(&gguf->parts[0].values, key);
}

size_t rf_gguf_tensor_count(const struct rf_gguf *gguf) {
    return gguf->tensor_count;
}

const struct rf_gguf_tensor *rf_gguf_tensor_at(const struct rf_gguf *gguf, size_t index) {
    return index < gguf->tensor_count ? &gguf->tensors[index] : NULL;
}

/* ---- by key, with a type ---- */

static rf_status find(const struct rf_gguf *gguf, const char *key, const struct rf_gguf_value **out) {
    *out = rf_gguf_find(gguf, key);
    return *out ? RF_OK
                : rf_fail(RF_E_NOT_FOUND, "%s: has no key \"%.200s\": it is not a complete model", rf_gguf_path(gguf),
                          key);
}

static rf_status wrong_type(const struct rf_gguf *gguf, const struct rf_gguf_value *value, const char *wanted) {
    if (value->type == RF_GGUF_ARRAY)
        return rf_fail(RF_E_SYNTAX, "%s: the key \"%.200s\" must be of type %s, but is of type %s",
                       rf_gguf_path(gguf), value->key, wanted, gguf_array_type_name(value->array.type));
    return rf_fail(RF_E_SYNTAX, "%s: the key \"%.200s\" must be of type %s, but is of type %s", rf_gguf_path(gguf),
                   value->key, wanted, rf_gguf_type_name(value->type));
}

static rf_status out_of_range(const struct rf_gguf *gguf, const struct rf_gguf_value *value, const char *wanted) {
    if (is_unsigned(value->type))
        return rf_fail(RF_E_SYNTAX, "%s: the key \"%.200s\" is %llu (%s), which does not fit %s", rf_gguf_path(gguf),
                       value->key, (unsigned long long)value->u, rf_gguf_type_name(value->type), wanted);
    return rf_fail(RF_E_SYNTAX, "%s: the key \"%.200s\" is %lld (%s), which does not fit %s", rf_gguf_path(gguf),
                   value->key, (long long)value->i, rf_gguf_type_name(value->type), wanted);
}

static rf_status get_unsigned(const struct rf_gguf *gguf, const char *key, uint64_t most, const char *wanted,
                              uint64_t *out) {
    const struct rf_gguf_value *value;
    uint64_t number;
    rf_status status = find(gguf, key, &value);
    if (status) return status;
    if (!is_unsigned(value->type) && !is_signed(value->type)) return wrong_type(gguf, value, wanted);
    if (!gguf_value_u64(value, &number) || number > most) return out_of_range(gguf, value, wanted);
    *out = number;
    return RF_OK;
}

rf_status rf_gguf_get_u32(const struct rf_gguf *gguf, const char *key, uint32_t *out) {
    uint64_t number = 0;
    rf_status status = get_unsigned(gguf, key, UINT32_MAX, "u32", &number);
    if (!status) *out = (uint32_t)number;
    return status;
}

rf_status rf_gguf_get_u64(const struct rf_gguf *gguf, const char *key, uint64_t *out) {
    return get_unsigned(gguf, key, UINT64_MAX, "u64", out);
}

rf_status rf_gguf_get_i64(const struct rf_gguf *gguf, const char *key, int64_t *out) {
    const struct rf_gguf_value *value;
    rf_status status = find(gguf, key, &value);
    if (status) return status;
    if (is_unsigned(value->type) && value->u > INT64_MAX) return out_of_range(gguf, value, "i64");
    if (!is_unsigned(value->type) && !is_signed(value->type)) return wrong_type(gguf, value, "i64");
    *out = is_signed(value->type) ? value->i : (int64_t)value->u;
    return RF_OK;
}

rf_status rf_gguf_get_f64(const struct rf_gguf *gguf, const char *key, double *out) {
    const struct rf_gguf_value *value;
    rf_status status = find(gguf, key, &value);
    if (status) return status;
    if (!is_float(value->type)) return wrong_type(gguf, value, "f64");
    *out = value->f;
    return RF_OK;
}

rf_status rf_gguf_get_f32(const struct rf_gguf *gguf, const char *key, float *out) {
    const struct rf_gguf_value *value;
    rf_status status = find(gguf, key, &value);
    if (status) return status;
    if (!is_float(value->type)) return wrong_type(gguf, value, "f32");
    if (isfinite(value->f) && fabs(value->f) > (double)FLT_MAX)
        return rf_fail(RF_E_SYNTAX, "%s: the key \"%.200s\" is %g (f64), which does not fit f32", rf_gguf_path(gguf),
                       key, value->f);
    *out = (float)value->f;
    return RF_OK;
}

rf_status rf_gguf_get_bool(const struct rf_gguf *gguf, const char *key, bool *out) {
    const struct rf_gguf_value *value;
    rf_status status = find(gguf, key, &value);
    if (status) return status;
    if (value->type != RF_GGUF_BOOL) return wrong_type(gguf, value, "bool");
    *out = value->b;
    return RF_OK;
}

rf_status rf_gguf_get_string(const struct rf_gguf *gguf, const char *key, struct rf_gguf_string *out) {
    const struct rf_gguf_value *value;
    rf_status status = find(gguf, key, &value);
    if (status) return status;
    if (value->type != RF_GGUF_STRING) return wrong_type(gguf, value, "string");
    *out = value->string;
    return RF_OK;
}

/* ---- arrays ---- */

rf_status rf_gguf_get_array(const struct rf_gguf *gguf, const char *key, enum rf_gguf_type elements,
                            struct rf_gguf_array *out) {
    const struct rf_gguf_value *value;
    if ((unsigned)elements >= RF_GGUF_TYPE_COUNT)
        return rf_fail(RF_E_INVALID, "rf_gguf_get_array: %d is no type", (int)elements);
    rf_status status = find(gguf, key, &value);
    if (status) return status;
    if (value->type != RF_GGUF_ARRAY || value->array.type != elements)
        return wrong_type(gguf, value, gguf_array_type_name(elements));
    *out = value->array;
    return RF_OK;
}

rf_status rf_gguf_get_int_array(const struct rf_gguf *gguf, const char *key, struct rf_gguf_array *out) {
    const struct rf_gguf_value *value;
    rf_status status = find(gguf, key, &value);
    if (status) return status;
    if (value->type != RF_GGUF_ARRAY || (!is_unsigned(value->array.type) && !is_signed(value->array.type)))
        return wrong_type(gguf, value, "array of integers");
    *out = value->array;
    return RF_OK;
}

rf_status rf_gguf_get_float_array(const struct rf_gguf *gguf, const char *key, struct rf_gguf_array *out) {
    const struct rf_gguf_value *value;
    rf_status status = find(gguf, key, &value);
    if (status) return status;
    if (value->type != RF_GGUF_ARRAY || !is_float(value->array.type))
        return wrong_type(gguf, value, "array of floats");
    *out = value->array;
    return RF_OK;
}

bool rf_gguf_string_is(struct rf_gguf_string string, const char *text) {
    size_t length = strlen(text);
    return string.bytes == length && (length == 0 || memcmp(string.text, text, length) == 0);
}

int64_t rf_gguf_array_int(const struct rf_gguf_array *array, uint64_t index) {
    size_t bytes = gguf_type_bytes(array->type);
    if (index >= array->count || !bytes || is_float(array->type)) return 0;
    struct rf_gguf_value value = gguf_decode(array->type, array->data + index * bytes);
    if (array->type == RF_GGUF_BOOL) return value.b;
    if (is_signed(array->type)) return value.i;
    return value.u > INT64_MAX ? INT64_MAX : (int64_t)value.u;
}

double rf_gguf_array_float(const struct rf_gguf_array *array, uint64_t index) {
    if (index >= array->count || !is_float(array->type)) return 0;
    return gguf_decode(array->type, array->data + index * gguf_type_bytes(array->type)).f;
}

bool rf_gguf_array_next_string(const struct rf_gguf_array *array, struct rf_gguf_cursor *cursor,
                               struct rf_gguf_string *out) {
    uint64_t length;
    if (array->type != RF_GGUF_STRING || cursor->index >= array->count) return false;
    if (!rf_range_fits(cursor->at, sizeof length, array->bytes)) return false;
    memcpy(&length, array->data + cursor->at, sizeof length);
    uint64_t start = cursor->at + sizeof length;
    if (length > array->bytes - start) return false;
    *out = (struct rf_gguf_string){(const char *)array->data + start, (size_t)length};
    cursor->at = start + length;
    cursor->index++;
    return true;
}
