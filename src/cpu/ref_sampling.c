/* The reference of sampling (see ref_sampling.h): it sorts the candidates and walks along them.
 *
 * No product of floats is added to anything here but by fmaf, so the compiler cannot fuse a multiply-add where the
 * definition has two roundings. */
#include "cpu/ref_sampling.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *rf_sampling_resolve(const struct rf_sampling *s, struct rf_sample_args *args) {
    if (!isfinite(s->temperature) || s->temperature < 0) return "the temperature must be 0 or above";
    if (!isfinite(s->top_p) || s->top_p < 0) return "top_p must be from 0 to 1";
    if (!isfinite(s->min_p) || s->min_p < 0 || s->min_p > 1) return "min_p must be from 0 to 1";
    if (!isfinite(s->penalty) || s->penalty < 0) return "the penalty must be above 0, or 0 for none";
    if (!isfinite(s->presence) || !isfinite(s->frequency)) return "presence and frequency penalties must be numbers";
    struct rf_sample_args n = *args;
    n.greedy = s->temperature == 0;
    n.top_k = s->top_k;
    n.top_p = 0;
    n.draw = 1u << 24;
    double temperature = n.greedy ? 1 : (double)s->temperature;
    n.scale = (float)(M_LOG2E / (s->temperature_last ? 1 : temperature));
    if (!isfinite(n.scale)) return "the temperature is too small for a float's inverse: use 0";
    if (s->temperature_last) n.draw = (uint32_t)fmin(4294967295.0, fmax(1, nearbyint(0x1p24 / temperature)));
    if (s->top_p > 0 && s->top_p < 1) n.top_p = (uint32_t)fmax(1, floor((double)s->top_p * 0x1p32));
    n.least_weight = (uint64_t)floor((double)s->min_p * 0x1p40);
    n.penalty = s->penalty > 0 ? s->penalty : 1;
    n.inverse = 1 / n.penalty;
    n.presence = s->presence;
    n.frequency = s->frequency;
    if (!isfinite(n.inverse)) return "the penalty is too small for a float's inverse";
    *args = n;
    return NULL;
}

struct rf_sample_settings rf_sampling_settings(const struct rf_sample_args *args) {
    return (struct rf_sample_settings){.least_weight = args->least_weight,
                                       .window_count = args->window_count,
                                       .bias_count = args->bias_count,
                                       .top_k = args->top_k,
                                       .top_p = args->top_p,
                                       .draw = args->draw,
                                       .scale = args->scale,
                                       .penalty = args->penalty,
                                       .inverse = args->inverse,
                                       .presence = args->presence,
                                       .frequency = args->frequency};
}

/* 2^-f for the fraction f, as a polynomial with alternating signs in units of 2^-31; 2^-0 and 2^-1 are exact. */
uint64_t rf_sampling_weight(uint32_t y) {
    static const uint32_t coefficients[] = {0x80000000, 0x58b90ae7, 0x1ebfaaa0, 0x71a4bb5,
                                            0x139d6cc,  0x29b919,   0x38e48};
    uint32_t octaves = y >> 24, fraction = y << 8;
    uint64_t power = coefficients[6];
    for (int k = 5; k >= 0; k--) power = coefficients[k] - (power * fraction >> 32);
    return octaves > 40 ? 0 : (power << 9) >> octaves;
}

void rf_philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    uint32_t k0 = key[0], k1 = key[1], c[4];
    memcpy(c, counter, sizeof c);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53 * c[0], b = (uint64_t)0xcd9e8d57 * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k1,
                            (uint32_t)a};
        memcpy(c, next, sizeof c);
        k0 += 0x9e3779b9;
        k1 += 0xbb67ae85;
    }
    memcpy(out, c, sizeof c);
}

uint64_t rf_sampling_random(uint64_t seed, uint64_t counter) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, out[4];
    uint32_t words[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
    rf_philox(key, words, out);
    return out[0] | (uint64_t)out[1] << 32;
}

void rf_ref_argmax(int32_t *out, const float *values, const struct rf_argmax_args *args) {
    for (size_t r = 0; r < args->rows; r++) {
        const float *row = values + r * args->row_stride;
        int32_t best = -1;
        for (size_t i = 0; i < args->columns; i++)
            if (!isnan(row[i]) && (best < 0 || row[i] > row[best])) best = (int32_t)i;
        out[r] = best;
    }
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}
static int by_index(const void *a, const void *b) {
    uint32_t x = (uint32_t)*(const uint64_t *)a, y = (uint32_t)*(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static float logit_of(uint64_t element) {
    uint32_t bits = (uint32_t)(element >> 32);
    float logit;
    memcpy(&logit, &bits, 4);
    return logit;
}
static uint64_t with_bits(float logit, size_t index) {
    uint32_t bits;
    memcpy(&bits, &logit, 4);
    return (uint64_t)bits << 32 | index;
}
static float penalized(const struct rf_sample_args *n, float logit, uint64_t times) {
    float scaled = logit > 0 ? logit * n->inverse : logit * n->penalty;
    return fmaf(-n->frequency, (float)times, scaled) - n->presence;
}
/* Puts each logit, with all that changes it, as bits into the upper half of an element of scratch and its index into
 * the lower half. rows: of this row. */
static void change_logits(const struct rf_sample_args *n, const struct rf_sample_rows *rows, uint64_t *scratch) {
    size_t count = n->columns;
    for (size_t i = 0; i < count; i++) scratch[i] = 0;
    for (size_t i = 0; i < n->window_count; i++)
        if (rows->window[i] >= 0 && (size_t)rows->window[i] < count) scratch[rows->window[i]]++;
    for (size_t i = 0; i < count; i++) {
        float logit = rows->logits[i];
        if (scratch[i]) logit = penalized(n, logit, scratch[i]);
        scratch[i] = with_bits(logit, i);
    }
    for (size_t i = 0; i < n->bias_count; i++) {
        int32_t token = rows->biases[i].token;
        if (token < 0 || (size_t)token >= count) continue;
        scratch[token] = with_bits(logit_of(scratch[token]) + rows->biases[i].value, (size_t)token);
    }
    for (size_t i = 0; i < count; i++) {
        bool allowed = !rows->allowed || (rows->allowed[i / 32] >> i % 32 & 1);
        if (!allowed || (n->strict && rows->logits[i] == -INFINITY)) scratch[i] = with_bits(NAN, i);
    }
}
static uint32_t distance(float best, float logit, float scale) {
    if (logit == best) return 0;
    float octaves = (best - logit) * scale;
    if (!(octaves < 64)) return RF_SAMPLING_Y_MAX;
    return (uint32_t)(octaves * 0x1p24f);
}

static bool are_numbers(const float *logits, size_t count) {
    bool finite = false;
    for (size_t i = 0; i < count; i++) {
        if (!(logits[i] <= FLT_MAX)) return false;
        finite |= logits[i] >= -FLT_MAX;
    }
    return finite;
}

/* Samples the token of one row. */
static int32_t sample_row(const struct rf_sample_args *n, const struct rf_sample_rows *rows, uint64_t *scratch) {
    size_t count = n->columns;
    if (n->strict && !are_numbers(rows->logits, count)) return -1;
    change_logits(n, rows, scratch);
    int64_t best = -1;
    for (size_t i = 0; i < count; i++) {
        float logit = logit_of(scratch[i]);
        if (!isnan(logit) && (best < 0 || logit > logit_of(scratch[best]))) best = (int64_t)i;
    }
    if (n->greedy || best < 0) return (int32_t)best;
    float most = logit_of(scratch[best]);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        float logit = logit_of(scratch[i]);
        if (isnan(logit) || logit == -INFINITY) continue;
        scratch[kept++] = (uint64_t)distance(most, logit, n->scale) << 32 | i;
    }
    qsort(scratch, kept, sizeof *scratch, by_value);
    if (n->top_k && n->top_k < kept) kept = n->top_k;
    uint64_t sum = 0, before = 0;
    for (size_t i = 0; i < kept; i++) sum += rf_sampling_weight((uint32_t)(scratch[i] >> 32));
    if (n->top_p && kept) {
        uint64_t enough = (sum >> 32) * n->top_p + ((sum & 0xffffffff) * n->top_p >> 32);
        size_t i = 0;
        do before += rf_sampling_weight((uint32_t)(scratch[i++] >> 32));
        while (i < kept && before < enough);
        kept = i < kept ? i : kept;
    }
    qsort(scratch, kept, sizeof *scratch, by_index);
    sum = before = 0;
    for (size_t i = 0; i < kept; i++) { /* from here on the upper half is the y that the draw uses */
        uint32_t y = (uint32_t)(scratch[i] >> 32);
        uint64_t later = (uint64_t)y * n->draw >> 24;
        bool left_out = rf_sampling_weight(y) < n->least_weight;
        if (left_out || later > RF_SAMPLING_Y_MAX) later = RF_SAMPLING_Y_MAX;
        scratch[i] = later << 32 | (uint32_t)scratch[i];
        sum += rf_sampling_weight((uint32_t)later);
    }
    uint64_t point = (uint64_t)((unsigned __int128)rf_sampling_random(rows->random[0], rows->random[1]) * sum >> 64);
    for (size_t i = 0; i < kept; i++) {
        before += rf_sampling_weight((uint32_t)(scratch[i] >> 32));
        if (before > point) return (int32_t)(uint32_t)scratch[i];
    }
    return -1; /* no candidate: all are -inf or NaN */
}

struct rf_sample_rows rf_sample_rows_from(const struct rf_sample_rows *rows, size_t first,
                                          const struct rf_sample_args *args) {
    return (struct rf_sample_rows){.logits = rows->logits + first * args->row_stride,
                                   .random = rows->random ? rows->random + 2 * first : NULL,
                                   .window = rows->window ? rows->window + first * args->window_stride : NULL,
                                   .biases = rows->biases ? rows->biases + first * args->bias_stride : NULL,
                                   .allowed = rows->allowed ? rows->allowed + first * args->allowed_stride : NULL,
                                   .settings = rows->settings ? rows->settings + first : NULL};
}

static uint32_t least_of(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}
void rf_ref_sample_rows(int32_t *out, const struct rf_sample_rows *rows, const struct rf_sample_args *args,
                        uint64_t *scratch) {
    for (size_t r = 0; r < args->rows; r++) {
        struct rf_sample_args n = *args;
        struct rf_sample_rows row = rf_sample_rows_from(rows, r, args);
        if (row.settings) {
            const struct rf_sample_settings *own = row.settings;
            n.least_weight = own->least_weight;
            n.window_count = least_of(own->window_count, n.window_count);
            n.bias_count = least_of(own->bias_count, n.bias_count);
            n.top_k = n.top_k ? own->top_k : 0;
            n.top_p = n.top_p ? own->top_p : 0;
            n.draw = own->draw;
            n.scale = own->scale;
            n.penalty = own->penalty;
            n.inverse = own->inverse;
            n.presence = own->presence;
            n.frequency = own->frequency;
        }
        out[r] = sample_row(&n, &row, scratch);
    }
}

void rf_ref_sample(int32_t *out, const float *logits, const uint64_t *random, const int32_t *window,
                   const struct rf_sample_args *args, uint64_t *scratch) {
    struct rf_sample_rows rows = {.logits = logits, .random = random, .window = window};
    rf_ref_sample_rows(out, &rows, args, scratch);
}

void rf_ref_advance(const struct rf_ref_advance *on, const struct rf_advance_args *args) {
    for (size_t r = 0; r < args->rows; r++) {
        uint32_t length = (uint32_t)on->lengths[r], count = on->window ? on->settings[r].window_count : 0;
        int32_t *slot = on->ring + 2 * (r * args->slots + length % args->slots);
        slot[0] = (int32_t)length;
        slot[1] = on->drawn[r];
        if (count > args->window_columns) count = args->window_columns;
        if (count) on->window[r * args->window_stride + length % count] = on->drawn[r];
        on->tokens[r] = on->drawn[r];
        on->positions[r] = (int32_t)((uint32_t)on->positions[r] + 1);
        on->lengths[r] = (int32_t)(length + 1);
        if (on->random) on->random[2 * r + 1]++;
    }
}
