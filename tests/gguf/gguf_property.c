/* Reads everything that an open GGUF object offers, so that a sanitizer sees every byte touched. */
#include "gguf_property.h"

#include <math.h>
#include <string.h>

#include "gguf/gguf.h"

static unsigned char sum; /* of every byte read; its address is given away, so the reads stay */

static void touch(const void *bytes, uint64_t count) {
    const unsigned char *at = bytes;
    unsigned char local = 0;
    for (uint64_t i = 0; i < count; i++) local = (unsigned char)(local + at[i]);
    *(volatile unsigned char *)&sum = local;
}

static bool is_one_line(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return false;
    return true;
}

static const char *read_array(const struct rf_gguf_array *array) {
    touch(array->data, array->bytes);
    if (array->type == RF_GGUF_STRING) {
        struct rf_gguf_cursor cursor = {0};
        struct rf_gguf_string string;
        while (rf_gguf_array_next_string(array, &cursor, &string)) touch(string.text, string.bytes);
        return cursor.index == array->count && cursor.at == array->bytes ? NULL
                                                                         : "an array's strings do not end with it";
    }
    for (uint64_t i = 0; i < array->count && i < 1000; i++) {
        (void)rf_gguf_array_int(array, i);
        (void)rf_gguf_array_float(array, i);
    }
    return rf_gguf_array_int(array, array->count) == 0 ? NULL : "an element past the end";
}

/* Every getter on every key: it gives a value or a reason. */
static const char *read_values(const struct rf_gguf *gguf) {
    for (size_t i = 0; i < rf_gguf_value_count(gguf); i++) {
        const struct rf_gguf_value *value = rf_gguf_value_at(gguf, i);
        if (rf_gguf_find(gguf, value->key) != value) return "a key is not found by its name";
        uint32_t u32;
        uint64_t u64;
        int64_t i64;
        float f32;
        double f64;
        bool b;
        struct rf_gguf_string string = {NULL, 0};
        struct rf_gguf_array array = {0};
        int taken = 0;
        (void)rf_gguf_get_u32(gguf, value->key, &u32);
        taken += rf_gguf_get_u64(gguf, value->key, &u64) == RF_OK || rf_gguf_get_i64(gguf, value->key, &i64) == RF_OK;
        (void)rf_gguf_get_f32(gguf, value->key, &f32);
        taken += rf_gguf_get_f64(gguf, value->key, &f64) == RF_OK;
        taken += rf_gguf_get_bool(gguf, value->key, &b) == RF_OK;
        if (rf_gguf_get_string(gguf, value->key, &string) == RF_OK) {
            taken++;
            touch(string.text, string.bytes);
        }
        if (value->type == RF_GGUF_ARRAY) {
            if (rf_gguf_get_array(gguf, value->key, value->array.type, &array) != RF_OK) return "an array is refused";
            taken++;
            const char *wrong = read_array(&array);
            if (wrong) return wrong;
        }
        if (taken != 1) return "a value is not of exactly one type";
        RF_PARAMS(struct rf_gguf_metadata, shown);
        if (rf_gguf_metadata_at(gguf, i, &shown) != RF_OK || !is_one_line(shown.shown)) return "a value is not shown";
        for (uint64_t element = 0; element < shown.element_count && element < 3; element++) {
            RF_PARAMS(struct rf_gguf_metadata, part);
            if (rf_gguf_metadata_element(gguf, value->key, element, &part) == RF_OK && !is_one_line(part.shown))
                return "an element is not shown";
        }
    }
    return NULL;
}

static const char *read_tensors(const struct rf_gguf *gguf, size_t size) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < rf_gguf_tensor_count(gguf); i++) {
        const struct rf_gguf_tensor *tensor = rf_gguf_tensor_at(gguf, i);
        if (rf_gguf_find_tensor(gguf, tensor->name) != tensor) return "a tensor is not found by its name";
        struct rf_tensor_desc desc = {.dtype = tensor->dtype, .rank = tensor->rank};
        memcpy(desc.shape, tensor->shape, sizeof desc.shape);
        uint64_t want;
        if (rf_tensor_desc_check(&desc, &want) != RF_OK || want != tensor->bytes) return "a tensor's size is wrong";
        touch(tensor->data, tensor->bytes);
        bytes += tensor->bytes;
        unsigned char last;
        if (rf_gguf_read(gguf, tensor, tensor->bytes - 1, &last, 1) != RF_OK)
            return "a tensor's last byte is not read";
        if (rf_gguf_read(gguf, tensor, tensor->bytes, &last, 1) != RF_E_INVALID) return "a read past a tensor's end";
        RF_PARAMS(struct rf_gguf_tensor_info, info);
        if (rf_gguf_tensor_info_at(gguf, i, &info) != RF_OK) return "a tensor is not shown";
    }
    return bytes <= size ? NULL : "the tensors hold more than the file";
}

static bool add_bytes(void *user, const struct rf_model_part *part) {
    *(uint64_t *)user += part->weight_bytes;
    return true;
}

const char *gguf_reads_soundly(const void *bytes, size_t size, bool *accepted) {
    struct rf_gguf *gguf = NULL;
    rf_status status = rf_gguf_open_memory(bytes, size, "bytes", &gguf);
    if (accepted) *accepted = status == RF_OK;
    if (status) {
        if (gguf) return "an object in spite of a failure";
        if (status != RF_E_SYNTAX && status != RF_E_UNSUPPORTED) return "a refusal for another reason than the bytes";
        return strncmp(rf_error_text(), "bytes: ", 7) == 0 ? NULL : "a refusal that does not say where";
    }
    const char *wrong = read_values(gguf);
    if (!wrong) wrong = read_tensors(gguf, size);
    RF_PARAMS(struct rf_gguf_info, info);
    if (!wrong && rf_gguf_get_info(gguf, &info) != RF_OK) wrong = "no information";
    uint64_t parts = 0, kv;
    if (!wrong && (rf_gguf_visit_parts(gguf, add_bytes, &parts) != RF_OK || parts != info.tensor_bytes))
        wrong = "the parts are not the whole";
    (void)rf_gguf_kv_bytes(gguf, 1024, RF_F16, &kv);
    rf_gguf_close(&gguf);
    return wrong;
}
