/* Arguments of argmax and of the sampler, for kernels, launchers and references alike, and the sizes that they share:
 * everything but pointers. Strides are in elements.
 *
 * The kernels cut a row of values into chunks, one for each block. Which chunk size a row gets follows from the shape
 * alone. The members under "set by the launcher" say how; the references do not read them. */
#ifndef RF_KERNELS_SAMPLING_ARGS_H
#define RF_KERNELS_SAMPLING_ARGS_H

#ifndef RF_KERNELS_KERNEL_H
#include <stdint.h>
#endif

enum {
    RF_SAMPLING_ROWS_MAX = 65535,
    RF_SAMPLING_COLUMNS_MAX = 1 << 22,
    RF_SAMPLING_THREADS = 256,        /* of every block */
    RF_SAMPLING_CHUNKS_MAX = 1024,    /* of a row */
    RF_SAMPLING_CHUNK_MAX = 4096,     /* elements of a chunk of the sampler; argmax has no such limit */
    RF_SAMPLING_BINS = 1024,          /* of a histogram */
    RF_ADVANCE_SLOTS_MAX = 1 << 20,   /* of a row of a ring */
    RF_SAMPLING_Y_MAX = (1 << 30) - 1 /* the largest distance of a logit from the best (cpu/ref_sampling.h) */
};

/* argmax: out[r] (i32) = the index of the largest of values[r][0 .. columns), f32. Of equal values the first one
 * counts. A NaN is never the largest; a row of NaN alone gives -1. */
struct rf_argmax_args {
    uint64_t rows, columns;
    uint64_t row_stride;
    /* Set by the launcher. */
    uint64_t best_row;      /* stride between the rows of the bests that the first kernel leaves for the second */
    uint32_t chunk, chunks; /* elements of a chunk; chunks of a row */
};

/* sample: out[r] (i32) = a token drawn from logits[r][0 .. columns), f32, or -1 if there is no candidate.
 * window[r][0 .. window_count) holds the tokens (i32) that penalties apply to; those that are no column are ignored.
 * biases[r][0 .. bias_count) are added to logits; no token occurs twice among them. allowed[r] has a bit for each
 * column, the lowest of a word first: without it the column is no candidate. random is u64 [rows][2]: seed and
 * counter. cpu/ref_sampling.h defines every step to the bit. */
struct rf_sample_bias {
    int32_t token; /* one that is no column is ignored */
    float value;
};
struct rf_sample_args {
    uint64_t rows;
    uint64_t row_stride, window_stride;
    uint64_t bias_stride, allowed_stride; /* of rows, in biases and in words of 32 bits */
    uint64_t least_weight;                /* min_p of 2^40 */
    uint64_t row_bytes;                   /* set by the launcher: the workspace of a row */
    uint32_t columns, window_count, bias_count;
    /* The settings as the numbers of the definition: rf_sampling_resolve sets these and least_weight. */
    uint32_t top_k;  /* 0: all */
    uint32_t top_p;  /* of 2^32; 0: all */
    uint32_t draw;   /* y is multiplied with draw / 2^24 for the draw */
    uint32_t greedy; /* 1: the best (with the penalty), as argmax; random is not read */
    float scale;     /* log2(e) / temperature */
    float penalty, inverse;
    float presence, frequency;
    uint32_t strict; /* 1: a NaN or +inf among the logits gives -1, and so do logits that are all -inf */
    /* Set by the launcher. */
    uint32_t chunk, chunks; /* elements of a chunk; chunks of a row */
    uint32_t stage;         /* of sample_refine: 1 to 4 */
};

/* The settings of one row, as rf_sampling_resolve gives them, where they are read on the device: they take the place
 * of those in the arguments, so that a recording can be run with others. A step that the arguments turn off (top_k,
 * top_p, the window, biases) stays off, and `greedy` is of the arguments alone. */
struct rf_sample_settings {
    uint64_t least_weight;
    uint32_t window_count, bias_count; /* at most those of the arguments */
    uint32_t top_k, top_p, draw;
    float scale, penalty, inverse, presence, frequency;
};

/* advance: after a token was drawn for each row, the inputs of the next one, in place. With n = lengths[r]:
 *   ring[r][n % slots] = {n, drawn[r]}; tokens[r] = drawn[r]; positions[r] and lengths[r] one more;
 *   random[r][1], the counter, one more;
 *   window[r][n % count] = drawn[r], where count is settings[r].window_count, but at most window_columns; 0: no
 * change. So the window holds the last `count` tokens, in whatever order, if n is a token's position and the places
 * of those that were never drawn hold -1. random and window may be left out. */
struct rf_advance_args {
    uint64_t rows;
    uint64_t window_stride;
    uint32_t window_columns;
    uint32_t slots; /* of a row of the ring */
};

struct rf_sample_histogram {
    uint64_t weight[RF_SAMPLING_BINS];
    uint32_t count[RF_SAMPLING_BINS];
};
/* The histograms of a row: the one of all candidates, then the two finer ones of top-k and the two of top-p. */
enum {
    RF_SAMPLE_ALL,
    RF_SAMPLE_TOP_K_2,
    RF_SAMPLE_TOP_K_3,
    RF_SAMPLE_TOP_P_2,
    RF_SAMPLE_TOP_P_3,
    RF_SAMPLE_HISTOGRAMS
};
/* The sampler's workspace of a row. The row's values follow it: their keys first, then their y; u32 [columns]. */
struct rf_sample_space {
    uint64_t state[6][4]; /* of each stage: prefix of the cut, target, weight, nothing */
    struct rf_sample_settings settings;
    uint64_t best[RF_SAMPLING_CHUNKS_MAX];
    uint64_t sum[RF_SAMPLING_CHUNKS_MAX];
    uint32_t at_cut[RF_SAMPLING_CHUNKS_MAX];
    struct rf_sample_histogram histogram[RF_SAMPLE_HISTOGRAMS];
};

#endif
