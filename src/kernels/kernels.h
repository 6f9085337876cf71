/* SPDX-License-Identifier: MIT */
/*
 * The op table of the CPU: every kernel's contract, one implementation per instruction set. Kernels
 * run on one thread, keep no state, allocate nothing, and never fail. All activations are float32
 * and accumulated in float32, or exactly as integers: a tier may multiply affine weights by
 * activations in fixed point, of 23 bits in each group of 64 columns.
 *
 * The same bits: within one tier, an output element depends on its own inputs alone. A kernel that
 * takes a range of rows or a number of tokens gives bit for bit what it gives for each row and each
 * token alone, so a caller may cut work as it likes.
 *
 * Error bound: against the scalar tier evaluated in float64, |y - ref| <= 4 * eps * sqrt(n) * sum
 * |a_i b_i| for dot products of n terms; in fixed point add 2^-23 of a group's largest activation
 * for each |weight| of the group (64 columns in affine weights, 256 in formats of blocks), or,
 * where that is more, of a quarter of what the magnitudes of 16 columns come to (blocks, AVX-512).
 * Activations that are not finite give outputs that are not. Elementwise kernels 4 ulp, those with
 * exp 1e-6 relative.
 *
 * Alignment: float operands 4 bytes, weights and scales none at all (they are read in place from
 * files). Lengths: any.
 */
#ifndef MF_KERNELS_KERNELS_H
#define MF_KERNELS_KERNELS_H

#include "base/cache_rows.h"
#include "base/cpu.h"
#include "base/weight_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A weight matrix [n_rows, n_cols], row-major, read in place: of any format of
 * base/weight_format.h. A format that a tier has no kernels for is decoded row by row, as the table
 * says.
 *
 * Affine: a row is a little-endian bit stream, value i in bits [i * bits, (i + 1) * bits), so a row
 * has n_cols * bits / 8 bytes (whole 32-bit words); scales and biases are [n_rows, n_cols / group]
 * of float_type. n_cols is a multiple of group. bits is 2, 3, 4, 5, 6 or 8; group 32, 64 or 128.
 *
 * FP8 in blocks: one e4m3 byte a value (base/fp8.h), [n_rows, n_cols]; scales are float32, [ceil of
 * n_rows / k, ceil of n_cols / 128], and w[r, i] = value[r, i] * scales[r / k, i / 128], k being
 * 128 or scale_rows. float_type is MF_F32, bits 8, group 128. Any n_rows and n_cols. Rows of a
 * larger matrix are one too if the first is a multiple of k. A NaN among a row's values makes its
 * outputs NaN, of which bits is left open.
 */
typedef struct mf_matrix {
    mf_weight_shape shape;
    union {
        const unsigned char *arrays[MF_MAX_WEIGHT_ARRAYS];
        struct {
            const unsigned char *data;
            const unsigned char *scales; /* of formats that have them in an array of their own */
            const unsigned char *biases; /* or whatever is the third array */
        };
    };
} mf_matrix;

/* Positions of one step of an online softmax, counted from 0, and of one page of a cache. */
#define MF_ATTENTION_TILE 32

/* Positions whose part of a softmax is summed by itself, counted from 0: a long context is cut
 * there and its parts joined in their order, whoever computed them. */
#define MF_ATTENTION_SEGMENT 512u
/* Queries of one call at most. */
#define MF_ATTENTION_QUERIES 64u

/* How large a part of a softmax is: its largest score, and the sum of its weights relative to it.
 */
typedef struct mf_attention_sum {
    float max, sum;
} mf_attention_sum;

/* One segment's part of the attention of n_rows consecutive rows of a sequence, of n_heads heads
 * that share a key head, over the cached keys and values, rows of base/cache_rows.h. Position p is
 * row p % MF_ATTENTION_TILE of page p / MF_ATTENTION_TILE. Query i is head i % n_heads of row i /
 * n_heads; row r attends to the positions first_seen .. n_kv + r - 1, first_seen being 0 without a
 * window, and else as mf_attention_first says. One row may come with several key heads, each with
 * n_heads: query i is then of key head i / n_heads, and its head the i-th. */
typedef struct mf_attention_args {
    const float *q; /* row r, head h: [head_dim] at q + r * q_row + h * head_dim */
    size_t q_row;   /* floats */
    const unsigned char *const *pages; /* those that the positions lie in */
    size_t k_offset, v_offset;         /* bytes from a page to its first position's key and value */
    size_t kv_row_bytes;               /* from one position to the next */
    size_t scales_at;                  /* mf_attention_scales_at of key head 0 */
    mf_dtype cache_type;               /* MF_F32, MF_BF16 or MF_Q8 */
    uint32_t n_rows, n_kv_heads, n_heads; /* their product: 1 to MF_ATTENTION_QUERIES */
    uint32_t begin, end; /* the positions at hand; begin is a multiple of the tile */
    uint32_t n_kv;       /* of row 0; at least 1 */
    uint32_t window;     /* 0: none */
    bool window_is_chunk;
    uint32_t head_dim; /* any; at most 1024 */
    float scale;
    mf_attention_sum *sums; /* [queries]; max -infinity and sum 0 of those that see nothing */
    float *out;             /* [queries, head_dim]: sum_p exp(score_p - max) v_p */
    float *scratch;         /* 2 * MF_ATTENTION_TILE * head_dim floats */
} mf_attention_args;

/* The first position that the last of n is to see. */
static inline uint32_t mf_attention_first(uint32_t window, bool is_chunk, uint32_t n)
{
    if (window == 0)
        return 0;
    if (is_chunk)
        return (n - 1) / window * window;
    return n > window ? n - window : 0;
}

/* 8 bits: from key head g's values to its scales. */
static inline size_t mf_attention_scales_at(const mf_attention_args *a, uint32_t g)
{
    return a->scales_at + g * (2 * (size_t)mf_cache_blocks(a->head_dim)) - (size_t)g * a->head_dim;
}

/* Key head g of several by itself. */
static inline mf_attention_args mf_attention_of_head(const mf_attention_args *a, uint32_t g)
{
    mf_attention_args one = *a;
    const size_t i = (size_t)g * a->n_heads, at = mf_cache_head_at(a->cache_type, g, a->head_dim);
    one.n_kv_heads = 1;
    one.q += i * a->head_dim;
    one.k_offset += at;
    one.v_offset += at;
    one.scales_at = mf_attention_scales_at(a, g);
    one.sums += i;
    one.out += i * a->head_dim;
    return one;
}

/* Multi-head latent attention (arXiv 2405.04434, the up-projections absorbed): heads of one token
 * over the cached latents of its sequence, in pages as above. A position holds n_latent values and
 * then n_rot rotated ones, as one head of base/cache_rows.h; its key is all of them, its value the
 * first n_latent.
 */
#define MF_LATENT_HEADS 64
typedef struct mf_latent_args {
    const float *q;     /* head h: [n_latent] at q + h * q_stride */
    const float *q_rot; /* head h: [n_rot] at q_rot + h * q_rot_stride */
    const unsigned char *const *pages;
    size_t offset;                 /* bytes from a page to its [tile, n_latent + n_rot] */
    float *out;                    /* head h: [n_latent] at out + h * out_stride; not q */
    float *scratch;                /* MF_LATENT_TILE * (n_latent + n_rot) floats */
    size_t q_stride, q_rot_stride; /* floats */
    size_t out_stride;
    mf_dtype cache_type; /* MF_F32, MF_BF16 or MF_Q8 */
    uint32_t n_kv;       /* positions 0 .. n_kv - 1 are attended; at least 1 */
    uint32_t n_heads;    /* at most MF_LATENT_HEADS */
    uint32_t n_latent, n_rot;
    float scale;
} mf_latent_args;

#define MF_LATENT_TILE MF_ATTENTION_TILE

/* The gated delta rule of one value head over n_tokens consecutive tokens. */
typedef struct mf_delta_args {
    const float *from;  /* the state before the first token, [key_dim, value_dim] */
    float *state;       /* the state after the last token; may be `from`, not overlap it in part */
    const float *q;     /* token t at q + t * qk_stride, [key_dim]; already normalised and scaled */
    const float *k;     /* likewise */
    const float *v;     /* token t at v + t * v_stride, [value_dim] */
    const float *decay; /* token t at decay + t * gate_stride: the factor exp(g), in (0, 1] */
    const float *beta;  /* likewise */
    float *out;         /* token t at out + t * out_stride, [value_dim] */
    size_t qk_stride, v_stride, gate_stride, out_stride; /* floats */
    uint32_t key_dim, value_dim, n_tokens;
} mf_delta_args;

typedef struct mf_kernels {
    mf_cpu_tier tier;

    /* Bytes of scratch that matmul needs for up to n_tokens (at least 1) tokens of this matrix, on
     * each thread. */
    size_t (*matmul_scratch_bytes)(const mf_matrix *w, uint32_t n_tokens);
    /* y[t * y_stride + r - row0] = sum_i w[r, i] * x[t * x_stride + i], rows row0 <= r < row1,
     * tokens 0 <= t < n_tokens. Best with row0 and row1 - row0 multiples of 16. scratch: 64-byte
     * aligned. */
    void (*matmul)(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                   size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch);
    /* Some matrices are multiplied by tokens in a form of their own, which is best made once for
     * all threads: its bytes a token; 0: this matrix has none. Of matrices of as many columns those
     * with as many bytes a token have the same form. */
    size_t (*token_bytes)(const mf_matrix *w);
    /* That form of one token. Where token_bytes is never above 0, this and the next are NULL. */
    void (*prepare_token)(const mf_matrix *w, const float *x, void *out);
    /* matmul by prepared tokens, token_bytes apart: the same bits. */
    void (*matmul_prepared)(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                            uint32_t n_tokens, float *y, size_t y_stride, void *scratch);
    /* out[i] = w[row, i], rounded once: for affine, fma(q, scale, bias); for FP8 value * scale. */
    void (*dequant_row)(const mf_matrix *w, uint32_t row, float *out);

    /* out = x * (mean(x^2) + eps)^-1/2 * weight; out may be x. weight may be NULL (all ones). */
    void (*rmsnorm)(const float *x, const float *weight, float eps, uint32_t n, float *out);
    /* out = rmsnorm(x) * weight * silu(z); out may be x. */
    void (*rmsnorm_gated)(const float *x, const float *z, const float *weight, float eps,
                          uint32_t n, float *out);
    /* out = x / sqrt(sum(x^2) + eps) * scale; out may be x. (l2 normalisation of the delta rule's q
     * and k) */
    void (*l2norm)(const float *x, float eps, float scale, uint32_t n, float *out);

    /* out = silu(gate) * up; out may be either. silu(x) = x / (1 + exp(-x)) */
    void (*swiglu)(const float *gate, const float *up, uint32_t n, float *out);
    /* out = g * sigmoid(alpha g) * (u + 1), with g = min(gate, limit) and u = up between -limit and
     * limit; out may be either (gpt-oss) */
    void (*swiglu_clamped)(const float *gate, const float *up, float limit, float alpha, uint32_t n,
                           float *out);
    /* x *= sigmoid(gate) */
    void (*sigmoid_mul)(float *x, const float *gate, uint32_t n);
    /* y += a * x (fma) */
    void (*axpy)(float *y, const float *x, float a, uint32_t n);
    /* out = a + b; out may be either */
    void (*add)(const float *a, const float *b, uint32_t n, float *out);

    /* Rotates pairs (i, i + n_rot / 2), i < n_rot / 2, of x by the angles whose cosines and sines
     * are given (half-split pairing). */
    void (*rope)(float *x, const float *cos, const float *sin, uint32_t n_rot);

    /* A part of out = sum_p softmax_p(scale * q . k_p) v_p, by online softmax over tiles of a fixed
     * number of positions counted from 0. A query's part does not depend on the others. */
    void (*attention)(const mf_attention_args *args);

    /* out[h] = sum_p softmax_p(scale * (q[h] . latent_p + q_rot[h] . rot_p)) latent_p, by online
     * softmax over tiles of MF_LATENT_TILE positions counted from 0. A head's result does not
     * depend on the others. */
    void (*latent_attention)(const mf_latent_args *args);

    /* Depthwise causal convolution of width `width` and SiLU over n_channels channels, one token:
     * c = sum_{j < width-1} state[j * state_stride + ch] * w[ch * width + j] + x[ch] * w[ch * width
     * + width-1]; out = silu(c); then the state shifts by one and takes x as its newest row. state:
     * [width - 1] rows of state_stride floats, oldest first. w is float32. out may be x. */
    void (*conv1d_silu)(const float *x, const float *w, float *state, size_t state_stride,
                        uint32_t n_channels, uint32_t width, float *out);

    /* Per token: state *= decay; d = (v - state^T k) * beta; state += k d^T; out = state^T q. */
    void (*delta_rule)(const mf_delta_args *args);

    /* softmax in place over n values (max-subtracted). */
    void (*softmax)(float *x, uint32_t n);

    /* Sum of n bytes read as fast as memory gives them (n a multiple of 256, aligned to 64): for
     * the DRAM measurement. */
    uint64_t (*read_bytes)(const unsigned char *p, size_t n);
    /* Runs n_iterations of independent float32 multiply-adds on registers and returns how many were
     * done: for the peak. */
    uint64_t (*fma_peak)(uint64_t n_iterations, float *sink);
} mf_kernels;

/* The table of a tier, MF_CPU_BEST: of the best that this CPU and this build have; NULL if they
 * lack it. Static storage. */
const mf_kernels *mf_kernels_get(mf_cpu_tier tier);

/* Bytes of one row's packed values. */
static inline size_t mf_matrix_row_bytes(const mf_matrix *w)
{
    return (size_t)mf_weight_array_row_bytes(&w->shape, MF_WEIGHT_VALUES);
}

/* The scales of a row of a matrix of FP8 blocks, float32 at any address. */
static inline const unsigned char *mf_matrix_fp8_scales(const mf_matrix *w, uint32_t row)
{
    return w->scales + row / mf_weight_array_step(&w->shape, MF_WEIGHT_SCALES) *
                           (size_t)mf_weight_array_row_bytes(&w->shape, MF_WEIGHT_SCALES);
}

#endif
