/* Models made for the tests, and the plain forward pass that they are compared with. The pass shares nothing with the
 * library but the widening of weights: it reads sizes from the hparams and computes angles by itself. */
#include "arch_testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "cpu/ref_matmul.h"
#include "ops/op.h"

/* ---- making ---- */

struct maker {
    const struct spec *spec;
    struct rf_gguf_writer *writer;
    uint64_t state;
    void *data[512]; /* freed at the end */
    size_t count;
};

/* Even between -0.5 and 0.5. */
static double random_centred(uint64_t *state) {
    return (double)(rf_op_random(state) >> 11) * 0x1p-53 - 0.5;
}

static double random_normal(uint64_t *state) {
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += random_centred(state);
    return sum * sqrt(3);
}

/* Random numbers around mean, converted to a type. */
static void *random_data(struct maker *maker, enum rf_dtype dtype, uint64_t count, double mean, double deviation) {
    float *values = allocate(count, sizeof *values);
    for (uint64_t i = 0; i < count; i++) values[i] = (float)(mean + deviation * random_normal(&maker->state));
    void *data = values;
    if (dtype == RF_F16) {
        _Float16 *halves = allocate(count, sizeof *halves);
        for (uint64_t i = 0; i < count; i++) halves[i] = (_Float16)values[i];
        data = halves;
    } else if (dtype == RF_Q8_0) {
        uint8_t *blocks = allocate(count / 32, 34);
        for (uint64_t i = 0; i < count / 32; i++) rf_ref_quantize_q8_0(values + 32 * i, blocks + 34 * i);
        data = blocks;
    }
    if (data != values) free(values);
    RF_ASSERT(maker->count < RF_COUNT(maker->data));
    return maker->data[maker->count++] = data;
}

/* columns 0 means a vector of f32. */
static void add(struct maker *maker, int layer, const char *name, uint64_t rows, uint64_t columns) {
    const struct spec *spec = maker->spec;
    char whole[64];
    snprintf(whole, sizeof whole, "blk.%d.%s", layer, name);
    const char *used = layer < 0 ? name : whole;
    if (spec->no_tensor && !strcmp(used, spec->no_tensor)) return;
    bool vector = !columns, up = strstr(name, "ffn_up.weight") != NULL;
    enum rf_dtype dtype = vector ? RF_F32 : up && spec->up_dtype ? spec->up_dtype : spec->dtype;
    if (spec->halved && !strcmp(used, spec->halved)) dtype = RF_F16;
    if (spec->wider && !strcmp(used, spec->wider)) *(vector ? &rows : &columns) += 32;
    double mean = 0, deviation = vector ? 0.1 : 1 / sqrt((double)columns);
    if (strstr(name, "norm")) mean = 1;
    if (!strcmp(name, "token_embd.weight")) deviation = 1;
    if (!strcmp(name, "rope_freqs.weight")) mean = 3, deviation = 0.5;
    uint64_t shape[] = {rows, columns};
    rf_gguf_write_tensor(maker->writer, used, dtype, vector ? 1 : 2, shape,
                         random_data(maker, dtype, rows * (vector ? 1 : columns), mean, deviation));
}

static void add_layer(struct maker *maker, int layer) {
    const struct spec *spec = maker->spec;
    uint64_t head = spec->head_width ? spec->head_width : spec->width / spec->heads;
    uint64_t queries = spec->heads * head, keys = spec->kv_heads * head;
    bool qwen2 = !strcmp(spec->arch, "qwen2"), qwen3 = !strcmp(spec->arch, "qwen3");
    add(maker, layer, "attn_norm.weight", spec->width, 0);
    add(maker, layer, "attn_q.weight", queries, spec->width);
    add(maker, layer, "attn_k.weight", keys, spec->width);
    add(maker, layer, "attn_v.weight", keys, spec->width);
    add(maker, layer, "attn_output.weight", spec->width, queries);
    add(maker, layer, "ffn_norm.weight", spec->width, 0);
    add(maker, layer, "ffn_gate.weight", spec->feed_forward, spec->width);
    add(maker, layer, "ffn_up.weight", spec->feed_forward, spec->width);
    add(maker, layer, "ffn_down.weight", spec->width, spec->feed_forward);
    if (spec->biases || qwen2) {
        add(maker, layer, "attn_q.bias", queries, 0);
        add(maker, layer, "attn_k.bias", keys, 0);
        add(maker, layer, "attn_v.bias", keys, 0);
    }
    if (spec->biases) {
        add(maker, layer, "attn_output.bias", spec->width, 0);
        add(maker, layer, "ffn_gate.bias", spec->feed_forward, 0);
        add(maker, layer, "ffn_up.bias", spec->feed_forward, 0);
        add(maker, layer, "ffn_down.bias", spec->width, 0);
    }
    if (qwen3) {
        add(maker, layer, "attn_q_norm.weight", head, 0);
        add(maker, layer, "attn_k_norm.weight", head, 0);
    }
}

static bool key_named(struct maker *maker, const char *name, char key[96]) {
    const struct spec *spec = maker->spec;
    snprintf(key, 96, "%s.%s", spec->arch, name);
    if (spec->no_key && !strcmp(name, spec->no_key)) return false;
    if (spec->key_u32 && !strcmp(name, spec->key_u32)) return false; /* written at the end */
    return !(spec->key_text && !strcmp(name, spec->key_text));
}
static void key_u32(struct maker *maker, const char *name, uint32_t value) {
    char key[96];
    if (value && key_named(maker, name, key)) rf_gguf_write_u32(maker->writer, key, value);
}
static void key_f32(struct maker *maker, const char *name, float value) {
    char key[96];
    if (value != 0 && key_named(maker, name, key)) rf_gguf_write_f32(maker->writer, key, value);
}

static void add_keys(struct maker *maker) {
    const struct spec *spec = maker->spec;
    char key[96];
    rf_gguf_write_string(maker->writer, "general.architecture", spec->arch);
    rf_gguf_write_string(maker->writer, "general.name", "made for a test");
    key_u32(maker, "block_count", spec->layers);
    key_u32(maker, "embedding_length", spec->width);
    key_u32(maker, "context_length", 512);
    key_u32(maker, "feed_forward_length", spec->feed_forward);
    key_u32(maker, "attention.head_count", spec->heads);
    if (spec->kv_array) {
        uint32_t each[8];
        for (uint32_t i = 0; i < 8; i++) each[i] = spec->kv_heads;
        snprintf(key, sizeof key, "%s.attention.head_count_kv", spec->arch);
        rf_gguf_write_array(maker->writer, key, RF_GGUF_U32, each, spec->layers);
    } else {
        key_u32(maker, "attention.head_count_kv", spec->kv_heads);
    }
    key_u32(maker, "attention.key_length", spec->head_width);
    key_u32(maker, "attention.value_length", spec->head_width);
    key_u32(maker, "rope.dimension_count", spec->rotated);
    key_f32(maker, "attention.layer_norm_rms_epsilon", 1e-5f);
    key_f32(maker, "rope.freq_base", spec->rope_base);
    key_f32(maker, "rope.scaling.factor", spec->factor);
    key_f32(maker, "rope.scaling.attn_factor", spec->attention_factor);
    key_u32(maker, "rope.scaling.original_context_length", spec->original_context);
    if (spec->scaling && key_named(maker, "rope.scaling.type", key))
        rf_gguf_write_string(maker->writer, key, spec->scaling);
    if (spec->key_u32) {
        snprintf(key, sizeof key, "%s.%s", spec->arch, spec->key_u32);
        rf_gguf_write_u32(maker->writer, key, spec->u32);
    }
    if (spec->key_text) {
        snprintf(key, sizeof key, "%s.%s", spec->arch, spec->key_text);
        rf_gguf_write_string(maker->writer, key, spec->text);
    }
}

void *spec_file(const struct spec *spec, size_t *bytes) {
    struct maker maker = {.spec = spec, .state = spec->seed + 1};
    void *file = NULL;
    RF_ASSERT_OK(rf_gguf_writer_create(&maker.writer));
    add_keys(&maker);
    if (spec->more) spec->more(maker.writer);
    add(&maker, -1, "token_embd.weight", spec->vocabulary, spec->width);
    for (uint32_t layer = 0; layer < spec->layers; layer++) add_layer(&maker, (int)layer);
    add(&maker, -1, "output_norm.weight", spec->width, 0);
    if (!spec->tied) add(&maker, -1, "output.weight", spec->vocabulary, spec->width);
    if (spec->factors)
        add(&maker, -1, "rope_freqs.weight", (spec->rotated ? spec->rotated : spec->width / spec->heads) / 2, 0);
    if (spec->extra_tensor) add(&maker, -1, spec->extra_tensor, 32, 0);
    RF_ASSERT_OK(rf_gguf_writer_finish_memory(maker.writer, &file, bytes));
    rf_gguf_writer_destroy(&maker.writer);
    for (size_t i = 0; i < maker.count; i++) free(maker.data[i]);
    return file;
}

void model_make(struct model *model, const struct spec *spec) {
    size_t bytes = 0;
    *model = (struct model){.memory = spec_file(spec, &bytes)};
    RF_ASSERT_OK(rf_gguf_open_memory(model->memory, bytes, spec->label, &model->gguf));
    RF_ASSERT_OK(rf_arch_read(model->gguf, &model->hparams));
}
void model_open(struct model *model, const char *path) {
    *model = (struct model){0};
    RF_ASSERT_OK(rf_gguf_open(path, &model->gguf));
    RF_ASSERT_OK(rf_arch_read(model->gguf, &model->hparams));
}
void model_close(struct model *model) {
    rf_gguf_close(&model->gguf);
    free(model->memory);
    *model = (struct model){0};
}

/* ---- the plain forward pass ---- */

static const struct rf_gguf_tensor *tensor_of(const struct model *model, int layer, const char *name) {
    char whole[96];
    snprintf(whole, sizeof whole, "blk.%d.%s", layer, name);
    return rf_gguf_find_tensor(model->gguf, layer < 0 ? name : whole);
}
/* A tensor widened to f32; NULL if there is none. The caller frees it. */
static float *widened(const struct model *model, int layer, const char *name) {
    const struct rf_gguf_tensor *tensor = tensor_of(model, layer, name);
    if (!tensor) return NULL;
    float *values = allocate(tensor->elements, sizeof *values);
    if (tensor->dtype == RF_F32)
        memcpy(values, tensor->data, tensor->bytes);
    else
        rf_ref_dequantize(RF_F32, values, tensor->dtype, tensor->data,
                          &(struct rf_dequantize_args){tensor->elements});
    return values;
}

/* x as the CPU's products with these weights may round it. The caller frees it. */
static double *taken(const struct model *model, const struct rf_gguf_tensor *weights, const double *x,
                     uint64_t count) {
    double *values = allocate(count, sizeof *values);
    bool rounds = model->noise && (weights->dtype == RF_Q8_0 || weights->dtype == RF_Q4_0 ||
                                   weights->dtype == RF_Q4_K || weights->dtype == RF_Q6_K);
    memcpy(values, x, count * sizeof *values);
    for (uint64_t i = 0; rounds && i < count; i += RF_Q8_BLOCK) {
        double largest = 0;
        for (uint64_t e = i; e < i + RF_Q8_BLOCK; e++) largest = fmax(largest, fabs(x[e]));
        for (uint64_t e = i; e < i + RF_Q8_BLOCK; e++) values[e] += largest / 127 * random_centred(model->noise);
    }
    return values;
}

static void product(const struct model *model, int layer, const char *name, const double *from, uint32_t rows,
                    uint64_t n, uint64_t k, double *out) {
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    float *weights = widened(model, layer, text);
    RF_ASSERT(weights != NULL);
    double *x = taken(model, tensor_of(model, layer, text), from, rows * k);
    snprintf(text, sizeof text, "%s.bias", name);
    float *bias = widened(model, layer, text);
    for (uint32_t r = 0; r < rows; r++)
        for (uint64_t i = 0; i < n; i++) {
            double sum = bias ? (double)bias[i] : 0;
            for (uint64_t j = 0; j < k; j++) sum += x[r * k + j] * (double)weights[i * k + j];
            out[r * n + i] = sum;
        }
    free(weights);
    free(bias);
    free(x);
}

static void norm(const struct model *model, int layer, const char *name, const double *x, uint64_t rows,
                 uint64_t columns, double *out) {
    float *weight = widened(model, layer, name);
    RF_ASSERT(weight != NULL);
    for (uint64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (uint64_t i = 0; i < columns; i++) sum += x[r * columns + i] * x[r * columns + i];
        double scale = 1 / sqrt(sum / (double)columns + (double)model->hparams.norm_epsilon);
        for (uint64_t i = 0; i < columns; i++) out[r * columns + i] = x[r * columns + i] * scale * (double)weight[i];
    }
    free(weight);
}

/* The angle of pair i per position; YaRN as in its paper. */
static double angle_of(const struct rf_hparams *h, uint32_t pair, const float *factors) {
    double frequency = pow(h->rope_base, -2.0 * pair / h->rotated);
    if (factors) frequency /= (double)factors[pair];
    if (h->rope_extension <= 0) return frequency * h->rope_scale;
    double pairs[2], turns[2] = {h->rope_beta_fast, h->rope_beta_slow};
    for (int i = 0; i < 2; i++)
        pairs[i] = h->rotated * log(h->rope_original_context / (turns[i] * 2 * M_PI)) / (2 * log(h->rope_base));
    double low = fmax(0, floor(pairs[0])), high = fmin(h->rotated - 1, ceil(pairs[1]));
    double ramp = fmin(1, fmax(0, (pair - low) / fmax(0.001, high - low)));
    return frequency * h->rope_scale * ramp + frequency * (1 - ramp);
}

static void rotate(const struct model *model, double *x, uint32_t rows, uint32_t heads) {
    const struct rf_hparams *h = &model->hparams;
    float *factors = widened(model, -1, "rope_freqs.weight");
    double magnitude = h->rope_attention;
    if (h->rope_extension > 0) magnitude *= 1 + 0.1 * log(1 / h->rope_scale);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t head = 0; head < heads; head++)
            for (uint32_t i = 0; i < h->rotated / 2; i++) {
                double *at = x + ((uint64_t)r * heads + head) * h->head_width, angle = r * angle_of(h, i, factors);
                uint32_t first = h->rope_halves ? i : 2 * i, second = h->rope_halves ? i + h->rotated / 2 : 2 * i + 1;
                double a = at[first], b = at[second];
                at[first] = (a * cos(angle) - b * sin(angle)) * magnitude;
                at[second] = (a * sin(angle) + b * cos(angle)) * magnitude;
            }
    free(factors);
}

static void attend(const struct rf_hparams *h, const double *q, const double *k, const double *v, uint32_t rows,
                   double *out) {
    double *scores = allocate(rows, sizeof *scores);
    uint64_t width = h->head_width;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t head = 0; head < h->heads; head++) {
            uint32_t shared = head / (h->heads / h->kv_heads);
            const double *query = q + ((uint64_t)r * h->heads + head) * width;
            double *to = out + ((uint64_t)r * h->heads + head) * width, sum = 0;
            for (uint32_t j = 0; j <= r; j++) {
                const double *key = k + ((uint64_t)j * h->kv_heads + shared) * width;
                double dot = 0;
                for (uint64_t e = 0; e < width; e++) dot += query[e] * key[e];
                sum += scores[j] = exp(dot / sqrt((double)width));
            }
            for (uint64_t e = 0; e < width; e++) {
                to[e] = 0;
                for (uint32_t j = 0; j <= r; j++)
                    to[e] += scores[j] / sum * v[((uint64_t)j * h->kv_heads + shared) * width + e];
            }
        }
    free(scores);
}

static void block(const struct model *model, int layer, double *x, uint32_t rows, double **room) {
    const struct rf_hparams *h = &model->hparams;
    uint64_t queries = (uint64_t)h->heads * h->head_width, keys = (uint64_t)h->kv_heads * h->head_width;
    double *normed = room[0], *q = room[1], *k = room[2], *v = room[3], *out = room[4];
    norm(model, layer, "attn_norm.weight", x, rows, h->width, normed);
    product(model, layer, "attn_q", normed, rows, queries, h->width, q);
    product(model, layer, "attn_k", normed, rows, keys, h->width, k);
    product(model, layer, "attn_v", normed, rows, keys, h->width, v);
    if (!strcmp(h->arch->name, "qwen3")) {
        norm(model, layer, "attn_q_norm.weight", q, (uint64_t)rows * h->heads, h->head_width, q);
        norm(model, layer, "attn_k_norm.weight", k, (uint64_t)rows * h->kv_heads, h->head_width, k);
    }
    rotate(model, q, rows, h->heads);
    rotate(model, k, rows, h->kv_heads);
    attend(h, q, k, v, rows, out);
    product(model, layer, "attn_output", out, rows, h->width, queries, normed);
    for (uint64_t i = 0; i < (uint64_t)rows * h->width; i++) x[i] += normed[i];
    norm(model, layer, "ffn_norm.weight", x, rows, h->width, normed);
    product(model, layer, "ffn_gate", normed, rows, h->feed_forward, h->width, q);
    product(model, layer, "ffn_up", normed, rows, h->feed_forward, h->width, k);
    for (uint64_t i = 0; i < (uint64_t)rows * h->feed_forward; i++) q[i] = q[i] / (1 + exp(-q[i])) * k[i];
    product(model, layer, "ffn_down", q, rows, h->width, h->feed_forward, out);
    for (uint64_t i = 0; i < (uint64_t)rows * h->width; i++) x[i] += out[i];
}

void model_truth(const struct model *model, const int32_t *tokens, uint32_t count, double *logits, double *layers) {
    const struct rf_hparams *h = &model->hparams;
    uint64_t widest = RF_MAX(RF_MAX(h->width, h->feed_forward), h->heads * h->head_width);
    double *room[6];
    for (int i = 0; i < 6; i++) room[i] = allocate(count * widest, sizeof(double));
    double *x = room[5];
    float *table = widened(model, -1, "token_embd.weight");
    for (uint32_t r = 0; r < count; r++)
        for (uint32_t i = 0; i < h->width; i++)
            x[r * h->width + i] = (double)table[(uint64_t)tokens[r] * h->width + i];
    free(table);
    for (uint32_t layer = 0; layer < h->layers; layer++) {
        block(model, (int)layer, x, count, room);
        if (layers) memcpy(layers + (size_t)layer * count * h->width, x, count * h->width * sizeof *x);
    }
    norm(model, -1, "output_norm.weight", x, count, h->width, room[0]);
    product(model, -1, rf_gguf_find_tensor(model->gguf, "output.weight") ? "output" : "token_embd", room[0], count,
            h->vocabulary, h->width, logits);
    for (int i = 0; i < 6; i++) free(room[i]);
}
