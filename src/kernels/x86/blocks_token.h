/* SPDX-License-Identifier: MIT */
/*
 * Formats of blocks (GGUF's types, MXFP4, NVFP4) times activations in fixed point: what the x86
 * tiers share. As for affine weights (fixed_token.h) a token's activations become integers of up to
 * 23 bits with a unit for each span of 256 columns or for each 64 of them, and products of integers
 * are exact. Their sums over a few columns of one scale are rounded to float32, multiplied by unit
 * and scale and added, each of the lanes for itself, in the order of the columns: so neither the
 * other rows nor the other tokens of a call show in the bits.
 *
 * A row is cut into spans; of formats with blocks of fewer columns its last one may be short, and
 * is copied to where zeros follow.
 */
#ifndef MF_KERNELS_BLOCKS_TOKEN_H
#define MF_KERNELS_BLOCKS_TOKEN_H

#include "base/checked.h"
#include "base/half.h"
#include "kernels/kernels.h"

#include <string.h>

enum {
    MF_SPAN = 256,          /* columns that are taken together */
    MF_SPAN_BYTES_MAX = 288 /* of a span's values in any of the formats */
};

/* A span of a prepared token. */
typedef struct mf_blocks_span {
    /* The activations as integers, as each tier lays them out. */
    union {
        struct {
            signed char digits[3][4][64]; /* the lowest digit first; of each 16 columns four */
            int32_t offsets[16];          /* -128 times the sums of 16 integers */
            int32_t small_offsets[16];    /* -8 times the same */
        } bytes;
        struct {
            int32_t sums[4][8]; /* of the integers that a lane of sums stands for */
            union {
                float totals[4][8];  /* the same */
                int32_t highs[4][8]; /* by the highest digit alone, which sums are without */
                float units[4][8];   /* of the lanes, where blocks have units of their own */
            };
            union {
                signed char digits[4][2][3][32]; /* of two times 32 columns the halves */
                int16_t words[4][2][2][2][16];   /* of those the even and the odd ones: the lowest
                                                    digit, and what is above it */
            };
        } pairs;
        signed char chunks[8][3][32]; /* 32 columns at once, the lowest digit first */
    };
    float sums[16];  /* of 16 integers each, or activations */
    float units[16]; /* of 16 columns each, or of the span the first */
} mf_blocks_span;

/* Tokens of a group, the same span of each. */
typedef struct group_tokens {
    const unsigned char *tokens; /* token_bytes apart */
    size_t token_bytes;
    uint32_t n;
    const unsigned char *turned; /* as the tier lays them out once more, some together, */
    size_t turned_bytes;         /* so far apart, and their spans */
    size_t turned_span_bytes;
    bool begins; /* sums are zero, whatever they hold */
    /* Spans of rows that come after these, to be fetched while these are multiplied. */
    const unsigned char *next;
    size_t next_row_bytes, next_span_bytes;
} group_tokens;

/* Fetches what comes after spans row0 .. row1 - 1. */
static inline void mf_blocks_fetch(const group_tokens *x, uint32_t row0, uint32_t row1)
{
    for (uint32_t r = row0; r < row1; r++)
        for (size_t at = 0; at < x->next_span_bytes; at += 64)
            __builtin_prefetch(x->next + r * x->next_row_bytes + at);
}

/* What `kind`, a constant, has: something added to each of 16 columns. */
static inline bool mf_blocks_has_min(mf_weight_kind kind)
{
    return kind == MF_WEIGHT_GGUF_Q4_1 || kind == MF_WEIGHT_GGUF_Q5_1 ||
           kind == MF_WEIGHT_GGUF_Q2_K || kind == MF_WEIGHT_GGUF_Q4_K ||
           kind == MF_WEIGHT_GGUF_Q5_K;
}

/* NVFP4 with its scales apart. */
static inline bool mf_blocks_is_nvfp4(mf_weight_kind kind)
{
    return kind == MF_WEIGHT_NVFP4 || kind == MF_WEIGHT_NVFP4_DIVIDED ||
           kind == MF_WEIGHT_NVFP4_PLAIN;
}

/* GGUF's types of less than 4 bits that are looked up in codebooks or ternary: blocks of 256, which
 * x86/blocks_grids.h takes apart. */
static inline bool mf_blocks_has_grid(mf_weight_kind kind)
{
    switch (kind) {
    case MF_WEIGHT_GGUF_IQ1_S:
    case MF_WEIGHT_GGUF_IQ1_M:
    case MF_WEIGHT_GGUF_IQ2_XXS:
    case MF_WEIGHT_GGUF_IQ2_XS:
    case MF_WEIGHT_GGUF_IQ2_S:
    case MF_WEIGHT_GGUF_IQ3_XXS:
    case MF_WEIGHT_GGUF_IQ3_S:
    case MF_WEIGHT_GGUF_TQ1_0:
    case MF_WEIGHT_GGUF_TQ2_0:
        return true;
    default:
        return false;
    }
}

/* What stands for all of those where a kind is a constant: the rows say which one it is. */
#define MF_BLOCKS_GRID MF_WEIGHT_GGUF_IQ2_XXS

/* Whether a scale is for 16 columns, not 32. */
static inline bool mf_blocks_has_sixteens(mf_weight_kind kind)
{
    return kind == MF_WEIGHT_GGUF_Q2_K || kind == MF_WEIGHT_GGUF_Q3_K ||
           kind == MF_WEIGHT_GGUF_Q6_K || kind == MF_WEIGHT_GGUF_IQ1_M ||
           kind == MF_WEIGHT_GGUF_IQ2_XS || kind == MF_WEIGHT_GGUF_IQ2_S ||
           kind == MF_WEIGHT_GGUF_NVFP4 || mf_blocks_is_nvfp4(kind);
}

/* Whether a lane's 16 columns are of each eight of a block of 32 four, which is how nibbles of half
 * or of two blocks come with the fewest moves; else they are neighbours. To tiers whose lanes are
 * columns (blocks_dot_avx512.h) tokens have a form of their own for it. */
static inline bool mf_blocks_is_woven(mf_weight_kind kind)
{
    return kind == MF_WEIGHT_GGUF_Q4_0 || kind == MF_WEIGHT_GGUF_IQ4_NL ||
           kind == MF_WEIGHT_GGUF_IQ4_XS || kind == MF_WEIGHT_GGUF_MXFP4 ||
           kind == MF_WEIGHT_GGUF_Q4_K || kind == MF_WEIGHT_GGUF_Q5_K;
}

/* Woven ones whose blocks lie in 16 bytes each, or two in 32, with nothing between: their lanes go
 * crossed (blocks_dot_avx512.h), which loads alone all but bring about. A form of its own, too. */
static inline bool mf_blocks_is_crossed(mf_weight_kind kind)
{
    return kind == MF_WEIGHT_GGUF_IQ4_XS || kind == MF_WEIGHT_GGUF_Q4_K ||
           kind == MF_WEIGHT_GGUF_Q5_K;
}

/* Whether two neighbouring columns share a byte, and scales lie apart. A lane's 16 columns are
 * neighbours, their bytes in an order of their own (blocks_pairs_avx512.h), a form of its own. */
static inline bool mf_blocks_is_paired(mf_weight_kind kind)
{
    return kind == MF_WEIGHT_MXFP4 || kind == MF_WEIGHT_INT4 || mf_blocks_is_nvfp4(kind);
}

/* Whether a weight takes more than 6 bits before its scale. To the tier whose products of bytes are
 * added in 16 bits (blocks_avx2.c) the activations have smaller digits for it, in a form of their
 * own; and one for scales of 16 columns. */
static inline bool mf_blocks_is_wide(mf_weight_kind kind)
{
    return kind == MF_WEIGHT_GGUF_Q8_0 || kind == MF_WEIGHT_INT8 || kind == MF_WEIGHT_GGUF_IQ4_NL ||
           kind == MF_WEIGHT_GGUF_IQ4_XS || mf_blocks_has_grid(kind);
}

/* Whether the tiers multiply it so: those of ARM have no codebooks. */
static inline bool mf_is_blocks(const mf_matrix *w)
{
    switch (w->shape.kind) {
    case MF_WEIGHT_MXFP4:
    case MF_WEIGHT_NVFP4:
    case MF_WEIGHT_NVFP4_DIVIDED:
    case MF_WEIGHT_NVFP4_PLAIN:
    case MF_WEIGHT_INT4:
    case MF_WEIGHT_INT8:
    case MF_WEIGHT_GGUF_Q4_0:
    case MF_WEIGHT_GGUF_Q4_1:
    case MF_WEIGHT_GGUF_Q5_0:
    case MF_WEIGHT_GGUF_Q5_1:
    case MF_WEIGHT_GGUF_Q8_0:
    case MF_WEIGHT_GGUF_Q2_K:
    case MF_WEIGHT_GGUF_Q3_K:
    case MF_WEIGHT_GGUF_Q4_K:
    case MF_WEIGHT_GGUF_Q5_K:
    case MF_WEIGHT_GGUF_Q6_K:
    case MF_WEIGHT_GGUF_IQ4_NL:
    case MF_WEIGHT_GGUF_IQ4_XS:
    case MF_WEIGHT_GGUF_MXFP4:
    case MF_WEIGHT_GGUF_NVFP4:
        return true;
    default:
#if defined(__x86_64__)
        return mf_blocks_has_grid(w->shape.kind);
#else
        return false;
#endif
    }
}

/* Bytes of a span of `kind`, a constant; NVFP4 is all of its forms. */
static inline uint32_t mf_blocks_span_bytes(mf_weight_kind kind)
{
    switch (kind) {
    case MF_WEIGHT_INT8:
        return 256;
    case MF_WEIGHT_GGUF_Q4_1:
        return 160;
    case MF_WEIGHT_GGUF_Q5_0:
    case MF_WEIGHT_GGUF_Q5_K:
        return 176;
    case MF_WEIGHT_GGUF_Q5_1:
        return 192;
    case MF_WEIGHT_GGUF_Q8_0:
        return 272;
    case MF_WEIGHT_GGUF_Q2_K:
        return 84;
    case MF_WEIGHT_GGUF_Q3_K:
        return 110;
    case MF_WEIGHT_GGUF_Q6_K:
        return 210;
    case MF_WEIGHT_GGUF_IQ4_XS:
    case MF_WEIGHT_GGUF_MXFP4:
        return 136;
    case MF_WEIGHT_GGUF_Q4_0:
    case MF_WEIGHT_GGUF_Q4_K:
    case MF_WEIGHT_GGUF_IQ4_NL:
    case MF_WEIGHT_GGUF_NVFP4:
        return 144;
    default: /* MXFP4, NVFP4, INT4; about as many of codebooks */
        return 128;
    }
}

static inline uint32_t mf_blocks_spans(const mf_matrix *w)
{
    return (w->shape.n_cols + MF_SPAN - 1) / MF_SPAN;
}

/* The forms are told apart by it. */
static inline size_t mf_blocks_token_bytes(const mf_matrix *w)
{
    return mf_blocks_spans(w) * sizeof(mf_blocks_span) +
           (mf_blocks_is_woven(w->shape.kind) ? 64 : 0) +
           (mf_blocks_is_crossed(w->shape.kind) ? 128 : 0) +
           (mf_blocks_is_paired(w->shape.kind) ? 256 : 0) +
           (mf_blocks_is_wide(w->shape.kind) ? 512 : 0) +
           (mf_blocks_has_sixteens(w->shape.kind) ? 1024 : 0);
}

/* Where rows lie. */
typedef struct mf_blocks_rows {
    const unsigned char *values, *scales; /* scales: NULL where they lie in the blocks */
    size_t row_bytes, scale_row_bytes;
    uint32_t span_bytes, scale_span_bytes;
    uint32_t n_spans;                      /* whole ones */
    uint32_t last_bytes, last_scale_bytes; /* of the one that is not, 0: there is none */
    mf_weight_kind kind;
    float factor;        /* of all weights */
    mf_dtype scale_type; /* of integers, with the columns of a scale */
    uint32_t scale_cols;
} mf_blocks_rows;

static inline mf_blocks_rows mf_blocks_rows_of(const mf_matrix *w)
{
    const mf_weight_array *a = mf_weight_format_of(&w->shape)->arrays;
    const bool has_scales = mf_weight_format_of(&w->shape)->n_arrays > 1;
    mf_blocks_rows r = {.values = w->data,
                        .kind = w->shape.kind,
                        .factor = 1.0f,
                        .scale_type = w->shape.float_type,
                        .scale_cols = w->shape.group};
    const uint32_t last = w->shape.n_cols % MF_SPAN;
    r.n_spans = w->shape.n_cols / MF_SPAN;
    r.row_bytes = mf_matrix_row_bytes(w);
    r.span_bytes = MF_SPAN / a[0].cols * a[0].n_bytes;
    r.last_bytes = last / a[0].cols * a[0].n_bytes;
    if (has_scales) {
        r.scales = w->scales;
        r.scale_row_bytes = (size_t)mf_weight_array_row_bytes(&w->shape, MF_WEIGHT_SCALES);
        const uint32_t cols = a[1].cols == MF_OF_GROUP ? w->shape.group : a[1].cols;
        const uint32_t n_bytes =
            a[1].n_bytes + a[1].n_floats * (uint32_t)mf_dtype_bytes(w->shape.float_type);
        r.scale_span_bytes = MF_SPAN / cols * n_bytes;
        r.last_scale_bytes = last / cols * n_bytes;
    }
    if (w->shape.kind == MF_WEIGHT_NVFP4 || w->shape.kind == MF_WEIGHT_NVFP4_DIVIDED)
        memcpy(&r.factor, w->biases, sizeof r.factor);
    if (w->shape.kind == MF_WEIGHT_NVFP4_DIVIDED)
        r.factor = 1.0f / r.factor;
    return r;
}

/* The eight scales of a span's integers, one for 32 columns each. */
static inline void mf_blocks_scales(const mf_blocks_rows *r, const unsigned char *scales,
                                    float out[8])
{
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t at = i * 32 / r->scale_cols;
        uint16_t half;
        if (r->scale_type == MF_F32) {
            memcpy(&out[i], scales + 4 * (size_t)at, sizeof *out);
            continue;
        }
        memcpy(&half, scales + 2 * (size_t)at, sizeof half);
        out[i] = r->scale_type == MF_BF16 ? mf_f32_from_bf16(half) : mf_f32_from_f16(half);
    }
}

/* A row's last span that is short, with zeros after it. */
typedef struct mf_blocks_last {
    unsigned char values[MF_SPAN_BYTES_MAX], scales[MF_SPAN / 8];
} mf_blocks_last;

static inline void mf_blocks_copy_last(const mf_blocks_rows *r, uint32_t row, mf_blocks_last *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->values, r->values + row * r->row_bytes + (size_t)r->n_spans * r->span_bytes,
           r->last_bytes);
    if (r->scales != NULL)
        memcpy(out->scales,
               r->scales + row * r->scale_row_bytes + (size_t)r->n_spans * r->scale_span_bytes,
               r->last_scale_bytes);
}

#endif
