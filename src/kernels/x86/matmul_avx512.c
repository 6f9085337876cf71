/* SPDX-License-Identifier: MIT */
/*
 * Affine weights in float32 times one to four tokens, floats times any number of them, four at a
 * time, AVX-512; and the choice between this and the panels of gemm_avx512.c. Lanes are positions
 * along the row, one accumulator an output, summed in the order of the columns.
 *
 * Bound by memory, so the order of the reads matters. Rows go four together, as a set. Long rows:
 * one from each quarter of the range, each a stream of its own that the hardware prefetcher can
 * follow. Rows of a few cache lines: four neighbours, so that all is one stream, prefetched by
 * several sets; scales and biases, a few a row, are then expanded for several sets at once.
 */
#include "base/checked.h"
#include "kernels/x86/avx2.h"
#include "kernels/x86/avx512.h"
#include "kernels/x86/bf16_amx.h"
#include "kernels/x86/blocks_avx2.h"
#include "kernels/x86/blocks_avx512.h"
#include "kernels/x86/decode_avx512.h"
#include "kernels/x86/fixed_avx512.h"
#include "kernels/x86/folded_amx.h"
#include "kernels/x86/fp8_amx.h"
#include "kernels/x86/fp8_avx512.h"
#include "kernels/x86/fp8_rows.h"
#include "kernels/x86/gemm_avx512.h"
#include "kernels/x86/scaled_amx.h"

enum {
    MAX_ROWS = 4,
    MAX_TOKENS = MF_GEMM_MIN_TOKENS_AVX512 - 1,
    LANES = 16,
    AHEAD_BYTES = 512,        /* how far ahead of a long row's stream is prefetched */
    SHORT_ROW_BYTES = 256,    /* rows up to this are short */
    SHORT_AHEAD_BYTES = 2048, /* how far ahead of the stream of short rows is prefetched */
    SHORT_SETS = 4            /* sets of short rows whose scales are expanded together */
};

/* What a call's rows have in common. */
typedef struct matvec {
    const mf_matrix *w;
    const float *x; /* in lane order; of floats, as they are */
    size_t x_stride;
    float *groups; /* [2, groups_floats()]: scales, biases of the rows in work */
    uint32_t row1;
} matvec;

/* Floats that the scales, or the biases, of the rows in work take. */
static size_t groups_floats(uint32_t n_groups)
{
    return (size_t)MAX_ROWS * SHORT_SETS * mf_round_up(n_groups, LANES);
}

/* What a tier has of its own. */
typedef struct tier {
    mf_fixed_kernels fixed, blocks;
    mf_fixed_kernels folded, scaled;      /* of blocks with integer scales, with a float for 32
                                             columns; none: as other blocks */
    bool (*is_fixed)(const mf_matrix *w); /* whether it goes to `fixed` */
    bool has_vbmi;                        /* FP8 in blocks needs it */
    bool has_bf16_tiles;                  /* BF16 weights take them, and FP8 in blocks */
} tier;

static bool is_any_fixed(const mf_matrix *w)
{
    return mf_is_fixed(w);
}

static bool is_narrow_fixed(const mf_matrix *w)
{
    return mf_is_fixed_narrow(w);
}

#define FIXED(suffix)                                                                       \
    {                                                                                       \
        mf_fixed_prepare_avx512, mf_fixed_matmul_##suffix, mf_fixed_scratch_bytes_##suffix, \
            mf_token_bytes_x86                                                              \
    }
#define BLOCKS(suffix)                                                                           \
    {                                                                                            \
        mf_blocks_prepare_##suffix, mf_blocks_matmul_##suffix, mf_blocks_scratch_bytes_##suffix, \
            mf_token_bytes_x86                                                                   \
    }
#define FOLDED                                                                    \
    {                                                                             \
        mf_folded_prepare_amx, mf_folded_matmul_amx, mf_folded_scratch_bytes_amx, \
            mf_folded_token_bytes                                                 \
    }
#define SCALED                                                                    \
    {                                                                             \
        mf_scaled_prepare_amx, mf_scaled_matmul_amx, mf_scaled_scratch_bytes_amx, \
            mf_scaled_token_bytes                                                 \
    }

static const tier bw = {
    .fixed = FIXED(avx512_bw), .blocks = BLOCKS(avx2), .is_fixed = is_narrow_fixed};
static const tier vnni = {
    .fixed = FIXED(avx512_vnni), .blocks = BLOCKS(avx512_vnni), .is_fixed = is_any_fixed};
static const tier vbmi = {
    .fixed = FIXED(avx512), .blocks = BLOCKS(avx512), .is_fixed = is_any_fixed, .has_vbmi = true};
static const tier amx = {.fixed = FIXED(avx512_amx),
                         .blocks = BLOCKS(avx512),
                         .folded = FOLDED,
                         .scaled = SCALED,
                         .is_fixed = is_any_fixed,
                         .has_vbmi = true};
static const tier amx_bf16 = {.fixed = FIXED(avx512_amx),
                              .blocks = BLOCKS(avx512),
                              .folded = FOLDED,
                              .scaled = SCALED,
                              .is_fixed = is_any_fixed,
                              .has_vbmi = true,
                              .has_bf16_tiles = true};

/* How a matrix is multiplied by prepared tokens; NULL if it is not. */
static const mf_fixed_kernels *prepared_kernels(const tier *t, const mf_matrix *w)
{
    if (t->folded.matmul != NULL && mf_is_folded(w))
        return &t->folded;
    if (t->scaled.matmul != NULL && mf_is_scaled(w))
        return &t->scaled;
    if (mf_is_blocks(w))
        return &t->blocks;
    return t->is_fixed(w) ? &t->fixed : NULL;
}

/* Whether AVX2's product takes it. */
static bool is_left_to_avx2(const tier *t, const mf_matrix *w)
{
    return !mf_has_x86_kernels(w) || (w->shape.kind == MF_WEIGHT_FP8_BLOCK && !t->has_vbmi);
}

static bool is_for_bf16_tiles(const tier *t, const mf_matrix *w)
{
    return t->has_bf16_tiles && w->shape.kind == MF_WEIGHT_FLOAT && w->shape.float_type == MF_BF16;
}

static bool is_for_fp8_tiles(const tier *t, const mf_matrix *w)
{
    return t->has_bf16_tiles && w->shape.kind == MF_WEIGHT_FP8_BLOCK;
}

static size_t scratch_bytes(const tier *t, const mf_matrix *w, uint32_t n_tokens)
{
    const mf_matrix values = mf_is_fp8_rows(w) ? mf_fp8_values(w) : *w;
    const mf_fixed_kernels *prepared = prepared_kernels(t, &values);
    w = &values;
    if (prepared != NULL)
        return mf_fixed_plain_scratch_bytes(prepared, w, n_tokens);
    if (is_left_to_avx2(t, w))
        return mf_matmul_scratch_bytes_avx2(w, n_tokens);
    if (is_for_fp8_tiles(t, w))
        return mf_fp8_scratch_bytes_amx(w, n_tokens);
    if (w->shape.kind == MF_WEIGHT_FP8_BLOCK)
        return mf_fp8_scratch_bytes_avx512(w, n_tokens);
    if (is_for_bf16_tiles(t, w))
        return mf_bf16_scratch_bytes_amx(w, n_tokens);
    if (w->shape.kind == MF_WEIGHT_FLOAT)
        return 0;
    size_t n_floats = 2 * groups_floats(w->shape.n_cols / w->shape.group);
    if (mf_bits_reordered_avx512(w->shape.bits))
        n_floats += (size_t)(n_tokens < MAX_TOKENS ? n_tokens : MAX_TOKENS) * w->shape.n_cols;
    size_t n_bytes = mf_round_up(n_floats * sizeof(float) + 64, 64);
    size_t gemm_bytes = 0;
    if (n_tokens >= MF_GEMM_MIN_TOKENS_AVX512)
        gemm_bytes = mf_gemm_scratch_bytes_avx512(w, n_tokens);
    return n_bytes > gemm_bytes ? n_bytes : gemm_bytes;
}

MF_INLINE void prefetch(const unsigned char *p, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i += 64)
        _mm_prefetch((const char *)p + i, _MM_HINT_T0);
}

/*
 * n consecutive scales or biases as float32, and a prefetch of those after them. Whole vectors are
 * stored: what a masked store wrote could not be forwarded to the loads that follow at once.
 */
MF_INLINE void expand_groups(const unsigned char *values, mf_dtype type, size_t first, size_t n,
                             float *out)
{
    size_t value_bytes = type == MF_F32 ? 4 : 2;
    const unsigned char *p = values + first * value_bytes;
    for (size_t i = 0; i < n; i += LANES)
        _mm512_store_ps(out + i,
                        mf_load_float_avx512(p + i * value_bytes, type, mf_tail_avx512(n, i)));
    _mm_prefetch((const char *)p + n * value_bytes, _MM_HINT_T0);
}

/* Scales and biases of n_runs runs of n_rows rows, the runs' first rows `step` apart. Each run
 * begins at a whole vector. */
MF_INLINE void expand_runs(const matvec *m, uint32_t row, uint32_t step, uint32_t n_runs,
                           uint32_t n_rows)
{
    const mf_matrix *w = m->w;
    size_t n_groups = w->shape.n_cols / w->shape.group, n = n_rows * n_groups;
    float *scales = m->groups, *biases = scales + groups_floats((uint32_t)n_groups);
    for (uint32_t r = 0; r < n_runs; r++) {
        size_t first = (row + r * step) * n_groups, at = r * mf_round_up(n, LANES);
        expand_groups(w->scales, w->shape.float_type, first, n, scales + at);
        expand_groups(w->biases, w->shape.float_type, first, n, biases + at);
    }
}

/* Rows row, row + step, ...; their scales are the place'th set of those expanded. */
typedef struct row_set {
    uint32_t row, step, place;
} row_set;

/* A set of n_rows rows by n_tokens tokens; both counts are constants. The scales of short rows lie
 * row after row, those of others at a whole vector each. */
MF_INLINE void multiply_affine(uint32_t bits, uint32_t width, uint32_t n_rows, uint32_t n_tokens,
                               bool is_short, const matvec *m, row_set set, float *y,
                               size_t y_stride)
{
    const mf_matrix *w = m->w;
    uint32_t n_groups = w->shape.n_cols / w->shape.group;
    size_t row_bytes = (size_t)w->shape.n_cols * bits / 8;
    size_t group_bytes = (size_t)width * bits / 8;
    const unsigned char *p = w->data + set.row * row_bytes;
    size_t apart = set.step * row_bytes;
    size_t groups_apart = is_short ? n_groups : mf_round_up(n_groups, LANES);
    size_t ahead = is_short ? SHORT_AHEAD_BYTES : AHEAD_BYTES;
    const float *scales = m->groups + (size_t)set.place * n_rows * n_groups;
    const float *biases = scales + groups_floats(n_groups);
    __m512 acc[MAX_ROWS][MAX_TOKENS];
    for (uint32_t r = 0; r < MAX_ROWS; r++)
        for (uint32_t t = 0; t < MAX_TOKENS; t++)
            acc[r][t] = _mm512_setzero_ps();
    const float *x = m->x;
    for (uint32_t g = 0; g < n_groups; g++) {
        mf_group_avx512 group[MAX_ROWS];
        MF_UNROLL(4)
        for (uint32_t r = 0; r < n_rows; r++) {
            size_t at = r * groups_apart + g;
            group[r] = mf_group_load_avx512(bits, scales + at, biases + at);
            prefetch(p + r * apart + ahead, group_bytes);
        }
#pragma GCC unroll 4 /* not MF_UNROLL: the width need not be a constant */
        for (uint32_t i = 0; i < width; i += 32, p += 4 * bits, x += 32) {
            MF_UNROLL(4)
            for (uint32_t r = 0; r < n_rows; r++) {
                __m512i q[2];
                mf_unpack_avx512(bits, p + r * apart, q);
                MF_UNROLL(2)
                for (uint32_t v = 0; v < 2; v++) {
                    __m512 weights = mf_weights_avx512(bits, q[v], &group[r]);
                    MF_UNROLL(4)
                    for (uint32_t t = 0; t < n_tokens; t++)
                        acc[r][t] = _mm512_fmadd_ps(
                            weights, _mm512_loadu_ps(x + t * m->x_stride + v * LANES), acc[r][t]);
                }
            }
        }
    }
    for (uint32_t t = 0; t < n_tokens; t++) {
        __m128 sums = mf_sum4_avx512(acc[0][t], acc[1][t], acc[2][t], acc[3][t]);
        float out[MAX_ROWS];
        _mm_storeu_ps(out, sums);
        for (uint32_t r = 0; r < n_rows; r++)
            y[t * y_stride + r * set.step] = out[r];
    }
}

/* n_sets sets of `together` rows from row0 on: neighbours if they are short. */
MF_INLINE void affine_sets(uint32_t bits, uint32_t width, uint32_t together, uint32_t n_tokens,
                           bool is_short, const matvec *m, uint32_t row0, uint32_t n_sets, float *y,
                           size_t y_stride)
{
    for (uint32_t i = 0; i < n_sets; i++) {
        uint32_t row = is_short ? i * together : i, step = is_short ? 1 : n_sets;
        row_set set = {row0 + row, step, is_short ? i % SHORT_SETS : 0};
        if (!is_short)
            expand_runs(m, row0 + row, step, together, 1);
        else if (set.place == 0)
            expand_runs(m, row0 + row, 0, 1,
                        together * (n_sets - i < SHORT_SETS ? n_sets - i : SHORT_SETS));
        multiply_affine(bits, width, together, n_tokens, is_short, m, set, y + row, y_stride);
    }
}

/* Rows row0 .. row1 - 1 by n_tokens (a constant) tokens. The common group gets code of its own. */
MF_INLINE void affine_rows(uint32_t bits, uint32_t n_tokens, const matvec *m, uint32_t row0,
                           float *y, size_t y_stride)
{
    uint32_t together = n_tokens == 1 ? 4 : 2, width = m->w->shape.group;
    uint32_t n_sets = (m->row1 - row0) / together;
    bool is_short = mf_matrix_row_bytes(m->w) <= SHORT_ROW_BYTES;
    if (is_short && width == 64)
        affine_sets(bits, 64, together, n_tokens, true, m, row0, n_sets, y, y_stride);
    else if (is_short)
        affine_sets(bits, width, together, n_tokens, true, m, row0, n_sets, y, y_stride);
    else if (width == 64)
        affine_sets(bits, 64, together, n_tokens, false, m, row0, n_sets, y, y_stride);
    else
        affine_sets(bits, width, together, n_tokens, false, m, row0, n_sets, y, y_stride);
    for (uint32_t row = row0 + together * n_sets; row < m->row1; row++) {
        expand_runs(m, row, 0, 1, 1);
        multiply_affine(bits, width, 1, n_tokens, false, m, (row_set){row, 0, 0}, y + (row - row0),
                        y_stride);
    }
}

MF_INLINE void affine_tokens(uint32_t bits, uint32_t n_tokens, const matvec *m, uint32_t row0,
                             float *y, size_t y_stride)
{
    switch (n_tokens) {
    case 1:
        affine_rows(bits, 1, m, row0, y, y_stride);
        break;
    case 2:
        affine_rows(bits, 2, m, row0, y, y_stride);
        break;
    case 3:
        affine_rows(bits, 3, m, row0, y, y_stride);
        break;
    default:
        affine_rows(bits, 4, m, row0, y, y_stride);
        break;
    }
}

/* Copies of the tokens in the lane order of the weights. */
MF_INLINE void order_tokens(uint32_t bits, const float *x, size_t x_stride, uint32_t n_tokens,
                            uint32_t n_cols, float *out)
{
    for (uint32_t t = 0; t < n_tokens; t++, x += x_stride) {
        for (uint32_t i = 0; i < n_cols; i += 32, out += 32) {
            __m512 v[2] = {_mm512_loadu_ps(x + i), _mm512_loadu_ps(x + i + LANES)};
            mf_order_avx512(bits, v);
            _mm512_storeu_ps(out, v[0]);
            _mm512_storeu_ps(out + LANES, v[1]);
        }
    }
}

static void matvec_affine(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                          size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                          float *scratch)
{
    matvec m = {.w = w, .x = x, .x_stride = x_stride, .groups = scratch, .row1 = row1};
    if (mf_bits_reordered_avx512(w->shape.bits)) {
        float *ordered = scratch + 2 * groups_floats(w->shape.n_cols / w->shape.group);
        if (w->shape.bits == 4)
            order_tokens(4, x, x_stride, n_tokens, w->shape.n_cols, ordered);
        else
            order_tokens(2, x, x_stride, n_tokens, w->shape.n_cols, ordered);
        m.x = ordered;
        m.x_stride = w->shape.n_cols;
    }
    switch (w->shape.bits) {
    case 2:
        affine_tokens(2, n_tokens, &m, row0, y, y_stride);
        break;
    case 3:
        affine_tokens(3, n_tokens, &m, row0, y, y_stride);
        break;
    case 4:
        affine_tokens(4, n_tokens, &m, row0, y, y_stride);
        break;
    case 5:
        affine_tokens(5, n_tokens, &m, row0, y, y_stride);
        break;
    case 6:
        affine_tokens(6, n_tokens, &m, row0, y, y_stride);
        break;
    default:
        affine_tokens(8, n_tokens, &m, row0, y, y_stride);
        break;
    }
}

/* 16 columns of n_rows rows of floats, `apart` bytes from each other, by n_tokens tokens. */
MF_INLINE void add_floats(mf_dtype type, uint32_t n_rows, uint32_t n_tokens, const unsigned char *p,
                          size_t apart, __mmask16 mask, const float *x, size_t x_stride,
                          __m512 acc[MAX_ROWS][MAX_TOKENS])
{
    __m512 token[MAX_TOKENS];
    MF_UNROLL(4)
    for (uint32_t t = 0; t < n_tokens; t++)
        token[t] = _mm512_maskz_loadu_ps(mask, x + t * x_stride);
    MF_UNROLL(4)
    for (uint32_t r = 0; r < n_rows; r++) {
        const unsigned char *at = p + r * apart;
        _mm_prefetch((const char *)at + AHEAD_BYTES, _MM_HINT_T0);
        __m512 weights = mf_load_float_avx512(at, type, mask);
        MF_UNROLL(4)
        for (uint32_t t = 0; t < n_tokens; t++)
            acc[r][t] = _mm512_fmadd_ps(weights, token[t], acc[r][t]);
    }
}

/* Rows row, row + step, ... of floats (n_rows of them) by n_tokens tokens; both counts are
 * constants. */
MF_INLINE void multiply_float(mf_dtype type, uint32_t n_rows, uint32_t n_tokens, const matvec *m,
                              uint32_t row, uint32_t step, float *y, size_t y_stride)
{
    const size_t row_bytes = mf_matrix_row_bytes(m->w), value_bytes = type == MF_F32 ? 4 : 2;
    const unsigned char *p = m->w->data + row * row_bytes;
    const size_t apart = step * row_bytes;
    const uint32_t n_cols = m->w->shape.n_cols;
    __m512 acc[MAX_ROWS][MAX_TOKENS];
    for (uint32_t r = 0; r < MAX_ROWS; r++)
        for (uint32_t t = 0; t < MAX_TOKENS; t++)
            acc[r][t] = _mm512_setzero_ps();
    uint32_t i = 0;
    for (; i + LANES <= n_cols; i += LANES)
        add_floats(type, n_rows, n_tokens, p + i * value_bytes, apart, 0xffff, m->x + i,
                   m->x_stride, acc);
    if (i < n_cols)
        add_floats(type, n_rows, n_tokens, p + i * value_bytes, apart, mf_tail_avx512(n_cols, i),
                   m->x + i, m->x_stride, acc);
    for (uint32_t t = 0; t < n_tokens; t++) {
        float out[MAX_ROWS];
        _mm_storeu_ps(out, mf_sum4_avx512(acc[0][t], acc[1][t], acc[2][t], acc[3][t]));
        for (uint32_t r = 0; r < n_rows; r++)
            y[t * y_stride + r * step] = out[r];
    }
}

/* n_rows (a constant) rows by any number of tokens, some at a time. */
MF_INLINE void float_set(mf_dtype type, uint32_t n_rows, const matvec *m, uint32_t row,
                         uint32_t step, uint32_t n_tokens, float *y, size_t y_stride)
{
    matvec some = *m;
    for (uint32_t t = 0; t < n_tokens;
         t += MAX_TOKENS, some.x += MAX_TOKENS * m->x_stride, y += MAX_TOKENS * y_stride) {
        switch (n_tokens - t) {
        case 1:
            multiply_float(type, n_rows, 1, &some, row, step, y, y_stride);
            break;
        case 2:
            multiply_float(type, n_rows, 2, &some, row, step, y, y_stride);
            break;
        case 3:
            multiply_float(type, n_rows, 3, &some, row, step, y, y_stride);
            break;
        default:
            multiply_float(type, n_rows, 4, &some, row, step, y, y_stride);
            break;
        }
    }
}

MF_INLINE void float_rows(mf_dtype type, uint32_t n_tokens, const matvec *m, uint32_t row0,
                          float *y, size_t y_stride)
{
    uint32_t n_sets = (m->row1 - row0) / 4;
    for (uint32_t i = 0; i < n_sets; i++)
        float_set(type, 4, m, row0 + i, n_sets, n_tokens, y + i, y_stride);
    for (uint32_t row = row0 + 4 * n_sets; row < m->row1; row++)
        float_set(type, 1, m, row, 0, n_tokens, y + (row - row0), y_stride);
}

static void matvec_float(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                         size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride)
{
    const uint32_t most = mf_tokens_together_avx512(w->shape.n_cols);
    for (uint32_t t = 0, n; t < n_tokens; t += n, y += n * y_stride) {
        const matvec m = {.w = w, .x = x + t * x_stride, .x_stride = x_stride, .row1 = row1};
        n = n_tokens - t < most ? n_tokens - t : most;
        if (w->shape.float_type == MF_F32)
            float_rows(MF_F32, n, &m, row0, y, y_stride);
        else if (w->shape.float_type == MF_F16)
            float_rows(MF_F16, n, &m, row0, y, y_stride);
        else
            float_rows(MF_BF16, n, &m, row0, y, y_stride);
    }
}

static void matmul(const tier *t, const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                   size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    if (mf_is_fp8_rows(w)) {
        const mf_matrix values = mf_fp8_values(w);
        matmul(t, &values, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
        mf_fp8_scale_rows(w, row0, row1, n_tokens, y, y_stride);
        return;
    }
    if (row0 >= row1 || n_tokens == 0)
        return;
    const mf_fixed_kernels *prepared = prepared_kernels(t, w);
    if (prepared != NULL) {
        mf_fixed_plain_matmul(prepared, w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
    } else if (is_left_to_avx2(t, w)) {
        mf_matmul_avx2(w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
    } else if (is_for_fp8_tiles(t, w)) {
        mf_fp8_matmul_amx(w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
    } else if (w->shape.kind == MF_WEIGHT_FP8_BLOCK) {
        mf_fp8_matmul_avx512(w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
    } else if (is_for_bf16_tiles(t, w)) {
        mf_bf16_matmul_amx(w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
    } else if (w->shape.kind == MF_WEIGHT_FLOAT) {
        matvec_float(w, row0, row1, x, x_stride, n_tokens, y, y_stride);
    } else if (n_tokens >= MF_GEMM_MIN_TOKENS_AVX512) {
        mf_gemm_avx512(w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
    } else {
        matvec_affine(w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
    }
}

static void matmul_prepared(const tier *t, const mf_matrix *w, uint32_t row0, uint32_t row1,
                            const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                            void *scratch)
{
    if (row0 < row1 && n_tokens > 0)
        prepared_kernels(t, w)->matmul(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

/* ------------------------------------------------------------------------------ F, BW, DQ, VL */

size_t mf_matmul_scratch_bytes_avx512_bw(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(&bw, w, n_tokens);
}

void mf_matmul_avx512_bw(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                         size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                         void *scratch)
{
    matmul(&bw, w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}

void mf_prepare_token_avx512_bw(const mf_matrix *w, const float *x, void *out)
{
    prepared_kernels(&bw, w)->prepare(w, x, out);
}

void mf_matmul_prepared_avx512_bw(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                  const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                  void *scratch)
{
    matmul_prepared(&bw, w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

/* ------------------------------------------------------------------------------ and VNNI */

size_t mf_matmul_scratch_bytes_avx512_vnni(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(&vnni, w, n_tokens);
}

void mf_matmul_avx512_vnni(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                           size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                           void *scratch)
{
    matmul(&vnni, w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}

void mf_prepare_token_avx512_vnni(const mf_matrix *w, const float *x, void *out)
{
    prepared_kernels(&vnni, w)->prepare(w, x, out);
}

void mf_matmul_prepared_avx512_vnni(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                    const void *tokens, uint32_t n_tokens, float *y,
                                    size_t y_stride, void *scratch)
{
    matmul_prepared(&vnni, w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

/* ------------------------------------------------------------------------------ and VBMI */

size_t mf_matmul_scratch_bytes_avx512(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(&vbmi, w, n_tokens);
}

void mf_matmul_avx512(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                      size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    matmul(&vbmi, w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}

void mf_prepare_token_avx512(const mf_matrix *w, const float *x, void *out)
{
    prepared_kernels(&vbmi, w)->prepare(w, x, out);
}

void mf_matmul_prepared_avx512(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                               uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    matmul_prepared(&vbmi, w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

/* ------------------------------------------------------------------------------ and tiles */

size_t mf_matmul_scratch_bytes_avx512_amx(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(&amx, w, n_tokens);
}

void mf_matmul_avx512_amx(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                          size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                          void *scratch)
{
    matmul(&amx, w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}

size_t mf_token_bytes_avx512_amx(const mf_matrix *w)
{
    const mf_fixed_kernels *prepared = prepared_kernels(&amx, w);
    return prepared != NULL ? prepared->token_bytes(w) : 0;
}

void mf_prepare_token_avx512_amx(const mf_matrix *w, const float *x, void *out)
{
    prepared_kernels(&amx, w)->prepare(w, x, out);
}

void mf_matmul_prepared_avx512_amx(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                   const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                   void *scratch)
{
    matmul_prepared(&amx, w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

/* ------------------------------------------------------------------------------ of bfloat16, too
 */

size_t mf_matmul_scratch_bytes_avx512_amx_bf16(const mf_matrix *w, uint32_t n_tokens)
{
    return scratch_bytes(&amx_bf16, w, n_tokens);
}

void mf_matmul_avx512_amx_bf16(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                               size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride,
                               void *scratch)
{
    matmul(&amx_bf16, w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}
