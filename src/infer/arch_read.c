/* From a file's metadata to hyperparameters, for every row of the table of architectures.
 *
 * A file that could be opened is well-formed. Here every value that a graph would be built from is checked for
 * plausibility, and every tensor for presence, type and shape, so that building cannot fail because of the file.
 * Anything that would change the result and is not supported (experts, other rotations, sizes that differ between
 * layers) is refused by name, not ignored. Must not: read the data of tensors, except the rotation's few factors. */
#include "infer/arch.h"

#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "base/utf8.h"
#include "cpu/ref_cache.h"

static rf_status read_common(const struct rf_gguf *gguf, struct rf_hparams *h);
static rf_status check_weights(const struct rf_gguf *gguf, struct rf_hparams *h);

enum { SHOWN_BYTES = 64 };
/* Text from a file, made fit for a one-line error message. */
static const char *shown(const char *from, size_t bytes, char *text, size_t size) {
    size_t length = RF_MIN(bytes, size - 1);
    /* Do not cut in the middle of a character. */
    if (length < bytes) length -= rf_utf8_unfinished(from, length);
    for (size_t i = 0; i < length; i++) text[i] = (unsigned char)from[i] < 0x20 || from[i] == 0x7f ? '?' : from[i];
    text[length] = 0;
    return text;
}

static rf_status unknown_arch(const struct rf_gguf *gguf, struct rf_gguf_string name) {
    char list[256] = "", text[SHOWN_BYTES];
    size_t used = 0;
    for (size_t i = 0; i < rf_arch_table_count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", rf_arch_table[i].name);
    return rf_fail(RF_E_UNSUPPORTED, "%s: the architecture \"%s\" is not supported; these are: %s",
                   rf_gguf_path(gguf), shown(name.text, name.bytes, text, sizeof text), list);
}

/* Reads general.name, if there is one, as one line. */
static void read_name(const struct rf_gguf *gguf, char name[128]) {
    const struct rf_gguf_value *value = rf_gguf_find(gguf, "general.name");
    name[0] = 0;
    if (value && value->type == RF_GGUF_STRING) shown(value->string.text, value->string.bytes, name, 128);
}

rf_status rf_arch_read(const struct rf_gguf *gguf, struct rf_hparams *hparams) {
    struct rf_gguf_string name;
    struct rf_hparams read = {0};
    if (!gguf || !hparams) return rf_fail(RF_E_INVALID, "rf_arch_read: gguf or hparams is NULL");
    rf_status status = rf_gguf_get_string(gguf, "general.architecture", &name);
    if (status) return status;
    for (size_t i = 0; i < rf_arch_table_count; i++)
        if (rf_gguf_string_is(name, rf_arch_table[i].name)) read.arch = &rf_arch_table[i];
    if (!read.arch) return unknown_arch(gguf, name);
    read_name(gguf, read.name);
    read.rope_halves = read.arch->rope_halves;
    read.qk_norm = read.arch->qk_norm;
    status = read_common(gguf, &read);
    if (!status) status = check_weights(gguf, &read);
    if (status) return status;
    *hparams = read;
    return RF_OK;
}

/* ---- metadata ---- */

/* Keeps the first failure; later calls do nothing. */
struct reader {
    const struct rf_gguf *gguf;
    const struct rf_hparams *hparams;
    rf_status status;
};
enum { KEY_BYTES = 128 };

static const char *key_of(const struct reader *reader, const char *name, char key[KEY_BYTES]) {
    snprintf(key, KEY_BYTES, "%s.%s", reader->hparams->arch->name, name);
    return key;
}
static bool has(const struct reader *reader, const char *name) {
    char key[KEY_BYTES];
    return rf_gguf_find(reader->gguf, key_of(reader, name, key)) != NULL;
}

static void check_range(struct reader *reader, const char *key, uint64_t value, uint64_t least, uint64_t most) {
    if (reader->status || (value >= least && value <= most)) return;
    reader->status =
        rf_fail(RF_E_SYNTAX, "%s: the key \"%s\" is %llu, it must be from %llu to %llu", rf_gguf_path(reader->gguf),
                key, (unsigned long long)value, (unsigned long long)least, (unsigned long long)most);
}

/* A required key with a value of at least 1. */
static void need_u32(struct reader *reader, const char *name, uint32_t *out, uint32_t most) {
    char key[KEY_BYTES];
    if (reader->status) return;
    reader->status = rf_gguf_get_u32(reader->gguf, key_of(reader, name, key), out);
    check_range(reader, key, *out, 1, most);
}
/* Leaves *out as it is if the file does not have the key. */
static void want_u32(struct reader *reader, const char *name, uint32_t *out, uint32_t least, uint32_t most) {
    char key[KEY_BYTES];
    if (reader->status || !has(reader, name)) return;
    reader->status = rf_gguf_get_u32(reader->gguf, key_of(reader, name, key), out);
    check_range(reader, key, *out, least, most);
}
static void want_f64(struct reader *reader, const char *name, double *out, double least, double most) {
    char key[KEY_BYTES];
    if (reader->status || !has(reader, name)) return;
    reader->status = rf_gguf_get_f64(reader->gguf, key_of(reader, name, key), out);
    if (reader->status || (*out >= least && *out <= most)) return; /* false for a NaN */
    reader->status = rf_fail(RF_E_SYNTAX, "%s: the key \"%s\" is %g, it must be from %g to %g",
                             rf_gguf_path(reader->gguf), key, *out, least, most);
}

/* One number, or one for each layer; these must all be equal. */
static void need_each(struct reader *reader, const char *name, uint32_t *out, uint32_t most) {
    char key[KEY_BYTES];
    struct rf_gguf_array array;
    if (reader->status) return;
    const struct rf_gguf_value *value = rf_gguf_find(reader->gguf, key_of(reader, name, key));
    if (!value || value->type != RF_GGUF_ARRAY) {
        need_u32(reader, name, out, most);
        return;
    }
    const char *path = rf_gguf_path(reader->gguf);
    reader->status = rf_gguf_get_int_array(reader->gguf, key, &array);
    if (reader->status) return;
    if (array.count != reader->hparams->layers) {
        reader->status = rf_fail(RF_E_SYNTAX, "%s: the key \"%s\" has %llu numbers for %u layers", path, key,
                                 (unsigned long long)array.count, reader->hparams->layers);
        return;
    }
    int64_t first = rf_gguf_array_int(&array, 0);
    check_range(reader, key, (uint64_t)first, 1, most);
    if (reader->status) return;
    for (uint64_t i = 1; i < array.count; i++)
        if (rf_gguf_array_int(&array, i) != first) {
            reader->status =
                rf_fail(RF_E_UNSUPPORTED,
                        "%s: the key \"%s\" is %lld in layer 0 and %lld in layer %llu: layers of "
                        "different sizes are not supported",
                        path, key, (long long)first, (long long)rf_gguf_array_int(&array, i), (unsigned long long)i);
            return;
        }
    *out = (uint32_t)first;
}

/* Refuses a key which says that the model computes something no graph here does. */
static void refuse(struct reader *reader, const char *name, const char *why) {
    char key[KEY_BYTES];
    if (reader->status) return;
    const struct rf_gguf_value *value = rf_gguf_find(reader->gguf, key_of(reader, name, key));
    if (!value) return;
    bool zero = (value->type == RF_GGUF_F32 || value->type == RF_GGUF_F64)      ? value->f == 0
                : value->type == RF_GGUF_BOOL                                   ? !value->b
                : value->type == RF_GGUF_ARRAY || value->type == RF_GGUF_STRING ? false
                                                                                : value->u == 0;
    if (!zero)
        reader->status = rf_fail(RF_E_UNSUPPORTED, "%s: the key \"%s\" asks for %s, which %s is not offered with",
                                 rf_gguf_path(reader->gguf), key, why, reader->hparams->arch->name);
}

static void read_attention(struct reader *reader, struct rf_hparams *h) {
    char key[KEY_BYTES];
    double epsilon = 0;
    const char *path = rf_gguf_path(reader->gguf);
    need_each(reader, "attention.head_count", &h->heads, 1 << 16);
    h->kv_heads = h->heads;
    if (has(reader, "attention.head_count_kv")) need_each(reader, "attention.head_count_kv", &h->kv_heads, 1 << 16);
    if (reader->status) return;
    if (h->heads % h->kv_heads) {
        reader->status = rf_fail(RF_E_SYNTAX, "%s: the key \"%s\" is %u: it must divide the %u heads", path,
                                 key_of(reader, "attention.head_count_kv", key), h->kv_heads, h->heads);
        return;
    }
    if (!has(reader, "attention.key_length") && h->width % h->heads) {
        reader->status = rf_fail(RF_E_SYNTAX, "%s: the key \"%s\" is %u: it must divide the width, %u", path,
                                 key_of(reader, "attention.head_count", key), h->heads, h->width);
        return;
    }
    h->head_width = h->width / h->heads;
    want_u32(reader, "attention.key_length", &h->head_width, 1, 1 << 16);
    h->value_width = h->head_width;
    want_u32(reader, "attention.value_length", &h->value_width, 1, 1 << 16);
    if (!reader->status && (h->head_width % 8 || h->head_width > 2 * RF_ROPE_PAIRS_MAX))
        reader->status =
            rf_fail(RF_E_UNSUPPORTED, "%s: heads of %u (\"%s\"): multiples of 8 up to %d are supported", path,
                    h->head_width, key_of(reader, "attention.key_length", key), 2 * RF_ROPE_PAIRS_MAX);
    if (!reader->status && h->value_width != h->head_width)
        reader->status =
            rf_fail(RF_E_UNSUPPORTED, "%s: the key \"%s\" is %u, but keys have %u: they must be of one size", path,
                    key_of(reader, "attention.value_length", key), h->value_width, h->head_width);
    if (!reader->status && !has(reader, "attention.layer_norm_rms_epsilon"))
        reader->status = rf_gguf_get_f64(reader->gguf, key_of(reader, "attention.layer_norm_rms_epsilon", key),
                                         &epsilon); /* reports that the key is missing */
    want_f64(reader, "attention.layer_norm_rms_epsilon", &epsilon, 0, 1);
    h->norm_epsilon = (float)epsilon;
}

/* Scaling of positions: none, by a factor, or with YaRN. */
static void read_scaling(struct reader *reader, struct rf_hparams *h) {
    static const char type_key[] = "rope.scaling.type";
    char key[KEY_BYTES], text[SHOWN_BYTES];
    struct rf_gguf_string type = {"linear", 6};
    double factor = 0, attention = 1, yarn_attention = 1;
    bool yarn = false;
    if (!reader->status && has(reader, type_key))
        reader->status = rf_gguf_get_string(reader->gguf, key_of(reader, type_key, key), &type);
    want_f64(reader, "rope.scale_linear", &factor, 0, 1e6);
    want_f64(reader, "rope.scaling.factor", &factor, 0, 1e6);
    want_f64(reader, "rope.scaling.attn_factor", &attention, 1e-6, 1e6);
    if (reader->status) return;
    h->rope_scale = factor > 0 ? 1 / factor : 1;
    h->rope_original_context = h->trained_context;
    want_u32(reader, "rope.scaling.original_context_length", &h->rope_original_context, 0, INT32_MAX);
    if (!h->rope_original_context) h->rope_original_context = h->trained_context;
    if (rf_gguf_string_is(type, "yarn")) {
        yarn = true;
    } else if (rf_gguf_string_is(type, "none")) {
        h->rope_scale = 1;
    } else if (!rf_gguf_string_is(type, "linear")) {
        reader->status =
            rf_fail(RF_E_UNSUPPORTED, "%s: the key \"%s\" is \"%s\": none, linear and yarn are supported",
                    rf_gguf_path(reader->gguf), key, shown(type.text, type.bytes, text, sizeof text));
        return;
    }
    refuse(reader, "rope.scaling.yarn_log_multiplier", "YaRN with a multiplier of its own");
    h->rope_extension = yarn ? 1 : 0;
    if (yarn) want_f64(reader, "rope.scaling.yarn_ext_factor", &h->rope_extension, 0, 1e6);
    h->rope_beta_fast = 32;
    h->rope_beta_slow = 1;
    want_f64(reader, "rope.scaling.yarn_beta_fast", &h->rope_beta_fast, 1e-6, 1e6);
    want_f64(reader, "rope.scaling.yarn_beta_slow", &h->rope_beta_slow, 1e-6, 1e6);
    want_f64(reader, "rope.scaling.yarn_attn_factor", &yarn_attention, 1e-6, 1e6);
    h->rope_attention = attention * yarn_attention;
}

static void read_rotation(struct reader *reader, struct rf_hparams *h) {
    char key[KEY_BYTES];
    h->rotated = h->head_width;
    h->rope_base = 10000;
    want_u32(reader, "rope.dimension_count", &h->rotated, 2, h->head_width);
    if (!reader->status && h->rotated % 2)
        reader->status = rf_fail(RF_E_SYNTAX, "%s: the key \"%s\" is %u, it must be even", rf_gguf_path(reader->gguf),
                                 key_of(reader, "rope.dimension_count", key), h->rotated);
    want_f64(reader, "rope.freq_base", &h->rope_base, 1e-3, 1e30);
    read_scaling(reader, h);
}

/* Reads what all architectures have in common, from "ARCH.key". The rotation's steps are computed in
 * check_weights, because the file's factors are a tensor. */
static rf_status read_common(const struct rf_gguf *gguf, struct rf_hparams *h) {
    struct reader reader = {.gguf = gguf, .hparams = h};
    char key[KEY_BYTES];
    need_u32(&reader, "block_count", &h->layers, 1 << 16);
    need_u32(&reader, "embedding_length", &h->width, 1 << 24);
    need_u32(&reader, "context_length", &h->trained_context, INT32_MAX);
    need_each(&reader, "feed_forward_length", &h->feed_forward, 1 << 28);
    refuse(&reader, "expert_count", "a mixture of experts");
    refuse(&reader, "expert_used_count", "a mixture of experts");
    refuse(&reader, "attention.clamp_kqv", "clamped queries, keys and values");
    refuse(&reader, "use_parallel_residual", "attention beside the feed-forward");
    read_attention(&reader, h);
    read_rotation(&reader, h);
    /* Within the sliding window, attention to the window is attention to everything: the model's context ends
     * there. */
    uint32_t window = 0;
    want_u32(&reader, "attention.sliding_window", &window, 0, INT32_MAX);
    if (window) h->trained_context = RF_MIN(h->trained_context, window);
    if (reader.status) return reader.status;
    const struct rf_gguf_tensor *table = rf_gguf_find_tensor(gguf, "token_embd.weight");
    uint64_t rows = table && table->rank == 2 ? table->shape[0] : 0;
    if (!table)
        return rf_fail(RF_E_NOT_FOUND, "%s: has no tensor \"token_embd.weight\": it is not a complete model",
                       rf_gguf_path(gguf));
    if (!rows || rows > INT32_MAX)
        return rf_fail(RF_E_SYNTAX, "%s: the tensor \"token_embd.weight\" is no matrix of 1 to %d rows",
                       rf_gguf_path(gguf), INT32_MAX);
    h->vocabulary = (uint32_t)rows;
    want_u32(&reader, "vocab_size", &h->vocabulary, 1, INT32_MAX);
    if (!reader.status && h->vocabulary != rows)
        return rf_fail(RF_E_SYNTAX, "%s: the key \"%s\" is %u, but the tensor \"token_embd.weight\" has %llu rows",
                       rf_gguf_path(gguf), key_of(&reader, "vocab_size", key), h->vocabulary,
                       (unsigned long long)rows);
    return reader.status;
}

/* ---- weights ---- */

static const struct rf_weight common_weights[] = {
    {"token_embd.weight", RF_EXTENT_VOCABULARY, RF_EXTENT_WIDTH, .layer = false},
    {"output_norm.weight", RF_EXTENT_WIDTH, RF_EXTENT_NONE, .layer = false},
    {"output.weight", RF_EXTENT_VOCABULARY, RF_EXTENT_WIDTH, .optional = true},
    {"rope_freqs.weight", RF_EXTENT_PAIRS, RF_EXTENT_NONE, .optional = true},
    {"attn_norm.weight", RF_EXTENT_WIDTH, RF_EXTENT_NONE, .layer = true},
    {"attn_q.weight", RF_EXTENT_QUERIES, RF_EXTENT_WIDTH, .layer = true},
    {"attn_k.weight", RF_EXTENT_KEYS, RF_EXTENT_WIDTH, .layer = true},
    {"attn_v.weight", RF_EXTENT_KEYS, RF_EXTENT_WIDTH, .layer = true},
    {"attn_output.weight", RF_EXTENT_WIDTH, RF_EXTENT_QUERIES, .layer = true},
    {"ffn_norm.weight", RF_EXTENT_WIDTH, RF_EXTENT_NONE, .layer = true},
    {"ffn_gate.weight", RF_EXTENT_FEED_FORWARD, RF_EXTENT_WIDTH, .layer = true},
    {"ffn_up.weight", RF_EXTENT_FEED_FORWARD, RF_EXTENT_WIDTH, .layer = true},
    {"ffn_down.weight", RF_EXTENT_WIDTH, RF_EXTENT_FEED_FORWARD, .layer = true},
};

static uint64_t extent(const struct rf_hparams *h, enum rf_extent which) {
    switch (which) {
    case RF_EXTENT_WIDTH: return h->width;
    case RF_EXTENT_QUERIES: return (uint64_t)h->heads * h->head_width;
    case RF_EXTENT_KEYS: return (uint64_t)h->kv_heads * h->head_width;
    case RF_EXTENT_HEAD: return h->head_width;
    case RF_EXTENT_FEED_FORWARD: return h->feed_forward;
    case RF_EXTENT_VOCABULARY: return h->vocabulary;
    case RF_EXTENT_PAIRS: return h->rotated / 2;
    case RF_EXTENT_NONE: break;
    }
    return 1;
}

static bool is_weight_type(enum rf_dtype dtype) {
    return dtype == RF_F32 || dtype == RF_F16 || dtype == RF_BF16 || rf_dtype_block(dtype) > 1;
}

static void shape_text(const struct rf_gguf_tensor *tensor, char *text, size_t size) {
    size_t used = 0;
    for (int i = 0; i < tensor->rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%llu", i ? " x " : "",
                                 (unsigned long long)tensor->shape[i]);
}

static rf_status check_tensor(const struct rf_gguf *gguf, const struct rf_hparams *h, const struct rf_weight *weight,
                              const char *name) {
    const struct rf_gguf_tensor *tensor = rf_gguf_find_tensor(gguf, name);
    const char *path = rf_gguf_path(gguf);
    bool vector = weight->columns == RF_EXTENT_NONE;
    uint64_t rows = extent(h, weight->rows), columns = extent(h, weight->columns);
    char shape[128];
    if (!tensor && weight->optional) return RF_OK;
    if (!tensor)
        return rf_fail(RF_E_NOT_FOUND, "%s: has no tensor \"%s\": it is not a complete %s model", path, name,
                       h->arch->name);
    if (vector ? tensor->dtype != RF_F32 : !is_weight_type(tensor->dtype))
        return rf_fail(RF_E_UNSUPPORTED, "%s: the tensor \"%s\" is %s, it must be %s", path, name,
                       rf_dtype_name(tensor->dtype), vector ? "f32" : "a type of weights");
    /* Writers may leave out dimensions of 1: a matrix of one row may be stored as a vector. */
    uint64_t last = tensor->shape[tensor->rank - 1];
    bool fits = vector ? tensor->elements == rows && last == rows
                       : tensor->elements / columns == rows && tensor->elements % columns == 0 && last == columns;
    if (fits && tensor->rank <= 2) return RF_OK;
    shape_text(tensor, shape, sizeof shape);
    if (vector)
        return rf_fail(RF_E_SYNTAX, "%s: the tensor \"%s\" is %s, by the metadata it must be %llu", path, name, shape,
                       (unsigned long long)rows);
    return rf_fail(RF_E_SYNTAX, "%s: the tensor \"%s\" is %s, by the metadata it must be %llu x %llu", path, name,
                   shape, (unsigned long long)rows, (unsigned long long)columns);
}

static rf_status check_list(const struct rf_gguf *gguf, const struct rf_hparams *h, const struct rf_weight *weights,
                            size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint32_t times = weights[i].layer ? h->layers : 1;
        for (uint32_t layer = 0; layer < times; layer++) {
            char name[KEY_BYTES];
            snprintf(name, sizeof name, "blk.%u.%s", layer, weights[i].name);
            rf_status status = check_tensor(gguf, h, &weights[i], weights[i].layer ? name : weights[i].name);
            if (status) return status;
        }
    }
    return RF_OK;
}

/* The part of the name after "blk.N." if the model has layer N, which is then *group; otherwise the name itself, and
 * the group of the embedding or the output. */
static const char *after_layer(const struct rf_hparams *h, const char *name, int *group) {
    uint32_t number = 0;
    const char *at = name + 4;
    *group = strncmp(name, "token_embd.", 11) ? rf_group_output(h) : RF_GROUP_EMBEDDING;
    if (strncmp(name, "blk.", 4) || *at < '0' || *at > '9' || (*at == '0' && at[1] != '.')) return name;
    for (; *at >= '0' && *at <= '9' && number < 1 << 20; at++) number = 10 * number + (uint32_t)(*at - '0');
    if (*at != '.' || number >= h->layers) return name;
    *group = RF_GROUP_LAYER + (int)number;
    return at + 1;
}
int rf_arch_group(const struct rf_hparams *hparams, const char *weight) {
    int group;
    after_layer(hparams, weight, &group);
    return group;
}
static bool listed(const struct rf_weight *weights, size_t count, const char *name, bool layer) {
    for (size_t i = 0; i < count; i++)
        if (weights[i].layer == layer && !strcmp(weights[i].name, name)) return true;
    return false;
}

/* Checks presence, type and shape of the weights that every decoder has and of those in the architecture's row. A
 * tensor of the file that is in neither list is refused, because the model would need something that is not
 * computed. Sets tied_output, rope_steps and rope_magnitude. */
static rf_status check_weights(const struct rf_gguf *gguf, struct rf_hparams *h) {
    const struct rf_weight *more = h->arch->weights;
    size_t count = h->arch->weight_count;
    rf_status status = check_list(gguf, h, common_weights, RF_COUNT(common_weights));
    if (!status) status = check_list(gguf, h, more, count);
    if (status) return status;
    for (size_t i = 0; i < rf_gguf_tensor_count(gguf); i++) {
        int group;
        char text[SHOWN_BYTES];
        const char *whole = rf_gguf_tensor_at(gguf, i)->name, *name = after_layer(h, whole, &group);
        bool layer = group >= RF_GROUP_LAYER && group < rf_group_output(h);
        if (!listed(common_weights, RF_COUNT(common_weights), name, layer) && !listed(more, count, name, layer))
            return rf_fail(RF_E_UNSUPPORTED,
                           "%s: the tensor \"%s\" is none that %s of %u layers has: a variant that is not supported",
                           rf_gguf_path(gguf), shown(whole, strlen(whole), text, sizeof text), h->arch->name,
                           h->layers);
    }
    h->tied_output = rf_gguf_find_tensor(gguf, "output.weight") == NULL;
    return rf_arch_rope_steps(gguf, h, h->rope_steps, &h->rope_magnitude);
}

/* ---- rotation ---- */

rf_status rf_arch_rope_steps(const struct rf_gguf *gguf, const struct rf_hparams *h, uint64_t *steps,
                             float *magnitude) {
    float factors[RF_ROPE_PAIRS_MAX];
    const struct rf_gguf_tensor *tensor = rf_gguf_find_tensor(gguf, "rope_freqs.weight");
    struct rf_rope_params params = {.rotated = h->rotated,
                                    .base = h->rope_base,
                                    .scale = h->rope_scale,
                                    .extension = h->rope_extension,
                                    .attention = h->rope_attention,
                                    .beta_fast = h->rope_beta_fast,
                                    .beta_slow = h->rope_beta_slow,
                                    .original_context = h->rope_original_context};
    if (tensor) {
        rf_status status = rf_gguf_read(gguf, tensor, 0, factors, h->rotated / 2 * sizeof *factors);
        if (status) return status;
        for (uint32_t i = 0; i < h->rotated / 2; i++)
            if (!(factors[i] > 0 && isfinite(factors[i])))
                return rf_fail(RF_E_SYNTAX, "%s: the tensor \"rope_freqs.weight\" has %g at %u: it must be above 0",
                               rf_gguf_path(gguf), (double)factors[i], i);
        params.factors = factors;
    }
    if (!rf_rope_steps(&params, steps, magnitude))
        return rf_fail(RF_E_SYNTAX,
                       "%s: the keys \"%s.rope.*\" make no rotation: base %g, scale %g, %u of %u elements",
                       rf_gguf_path(gguf), h->arch->name, h->rope_base, h->rope_scale, h->rotated, h->head_width);
    return RF_OK;
}
