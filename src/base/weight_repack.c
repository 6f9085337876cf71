/* SPDX-License-Identifier: MIT */
/* Repacking: values word by word, then scales and zeros. Layouts: AutoGPTQ and GPTQModel (qweight,
 * qzeros), AutoAWQ (the "gemm" order), compressed-tensors (pack-quantized, int-quantized), GGUF's
 * NVFP4. */
#include "base/weight_repack.h"

#include "base/half.h"

#include <string.h>

static const char *const names[MF_PACKINGS] = {
    [MF_PACKING_GPTQ] = "gptq",
    [MF_PACKING_GPTQ_V2] = "gptq_v2",
    [MF_PACKING_AWQ] = "awq",
    [MF_PACKING_ROWS] = "pack-quantized",
    [MF_PACKING_BYTES] = "int-quantized",
    [MF_PACKING_TURNED] = "transposed",
    [MF_PACKING_BLOCKS] = "nvfp4",
};

const char *mf_packing_name(mf_packing packing)
{
    return names[packing];
}

mf_packing mf_packing_named(const char *name)
{
    for (int i = MF_PACKING_NONE + 1; i < MF_PACKINGS; i++)
        if (strcmp(names[i], name) == 0)
            return (mf_packing)i;
    return MF_PACKING_NONE;
}

static bool is_gptq(const mf_repack *r)
{
    return r->packing == MF_PACKING_GPTQ || r->packing == MF_PACKING_GPTQ_V2;
}

/* Whether scales are [groups, rows]. */
static bool is_by_column(const mf_repack *r)
{
    return is_gptq(r) || r->packing == MF_PACKING_AWQ;
}

/* -------------------------------------------------------------------------------- shapes -- */

/* Bits that the packing has, in words that are filled. */
static bool has_bits(const mf_repack *r)
{
    const uint32_t n_rows = r->shape.n_rows, n_cols = r->shape.n_cols;
    switch (r->packing) {
    case MF_PACKING_GPTQ:
    case MF_PACKING_GPTQ_V2:
        return (r->bits == 2 || r->bits == 3 || r->bits == 4 || r->bits == 8) &&
               (uint64_t)n_cols * r->bits % 32 == 0 && (uint64_t)n_rows * r->bits % 32 == 0;
    case MF_PACKING_AWQ:
        return r->bits == 4 && n_rows % 8 == 0;
    case MF_PACKING_ROWS:
        return r->bits >= 2 && r->bits <= 8 && r->bits != 7;
    case MF_PACKING_BYTES:
        return r->bits == 8;
    default:
        return false;
    }
}

bool mf_repack_choose(mf_repack *r)
{
    const uint32_t n_cols = r->shape.n_cols;
    if (!has_bits(r) || n_cols == 0 || r->n_groups == 0 || n_cols % r->n_groups != 0)
        return false;
    const uint32_t stored = n_cols / r->n_groups;
    /* a scale of more columns is repeated */
    const uint32_t group = stored % 128 == 0 ? 128 : stored % 64 == 0 ? 64 : 32;
    if (r->n_groups == 1)
        r->has_index = false; /* all columns are of the one */
    if (stored % 32 != 0 || (r->has_index && stored != group) || r->n_groups > UINT16_MAX)
        return false;
    const bool is_middle = !r->has_zeros && (r->bits == 4 || r->bits == 8);
    r->shape.kind = r->has_index   ? MF_WEIGHT_AFFINE_INDEXED
                    : !is_middle   ? MF_WEIGHT_AFFINE
                    : r->bits == 4 ? MF_WEIGHT_INT4
                                   : MF_WEIGHT_INT8;
    r->shape.float_type = r->has_index || !is_middle ? MF_F32 : r->scale_type;
    r->shape.bits = r->bits;
    r->shape.group = group;
    return true;
}

static uint64_t block_row_bytes(const mf_repack *r)
{
    mf_weight_shape stored = r->shape;
    if (stored.kind == MF_WEIGHT_NVFP4)
        stored.kind = MF_WEIGHT_GGUF_NVFP4;
    return mf_weight_array_row_bytes(&stored, MF_WEIGHT_VALUES);
}

static mf_packed_array values_of(const mf_repack *r)
{
    const uint64_t n_rows = r->shape.n_rows, n_cols = r->shape.n_cols, bits = r->bits;
    switch (r->packing) {
    case MF_PACKING_AWQ:
        return (mf_packed_array){n_cols, n_rows / 8, 4};
    case MF_PACKING_ROWS:
        return (mf_packed_array){n_rows, (n_cols * bits + 31) / 32, 4};
    case MF_PACKING_BYTES:
        return (mf_packed_array){n_rows, n_cols, 1};
    case MF_PACKING_TURNED:
        return (mf_packed_array){n_cols, r->n_stored_rows,
                                 (uint32_t)mf_dtype_bytes(r->shape.float_type)};
    case MF_PACKING_BLOCKS:
        return (mf_packed_array){n_rows, block_row_bytes(r), 1};
    default:
        return (mf_packed_array){n_cols * bits / 32, n_rows, 4};
    }
}

static mf_packed_array zeros_of(const mf_repack *r)
{
    const uint64_t n_rows = r->shape.n_rows, words = (n_rows * r->bits + 31) / 32;
    switch (r->packing) {
    case MF_PACKING_ROWS:
        return (mf_packed_array){words, r->n_groups, 4};
    case MF_PACKING_BYTES:
        return (mf_packed_array){n_rows, r->n_groups, 1};
    default:
        return (mf_packed_array){r->n_groups, words, 4};
    }
}

mf_packed_array mf_repack_stored(const mf_repack *r, uint32_t array)
{
    const uint64_t n_rows = r->shape.n_rows, n_groups = r->n_groups;
    const uint32_t width = (uint32_t)mf_dtype_bytes(r->scale_type);
    if (array == MF_PACKED_VALUES)
        return values_of(r);
    if (r->packing == MF_PACKING_BLOCKS && array == MF_PACKED_SCALES && n_groups != 0)
        return (mf_packed_array){0, 1, sizeof(float)};
    if (r->packing == MF_PACKING_TURNED || r->packing == MF_PACKING_BLOCKS)
        return (mf_packed_array){0};
    if (array == MF_PACKED_SCALES)
        return is_by_column(r) ? (mf_packed_array){n_groups, n_rows, width}
                               : (mf_packed_array){n_rows, n_groups, width};
    if (array == MF_PACKED_ZEROS && r->has_zeros)
        return zeros_of(r);
    if (array == MF_PACKED_INDEX && r->has_index)
        return (mf_packed_array){0, r->shape.n_cols, 4};
    return (mf_packed_array){0};
}

uint64_t mf_repack_stored_bytes(const mf_repack *r, uint32_t array)
{
    const mf_packed_array a = mf_repack_stored(r, array);
    return (a.n_rows == 0 ? 1 : a.n_rows) * a.n_cols * a.n_bytes;
}

/* -------------------------------------------------------------------------------- values -- */

static uint32_t word_at(const unsigned char *p, uint64_t i)
{
    uint32_t word;
    memcpy(&word, p + 4 * i, sizeof word);
    return word;
}

#define TILE 16u

/* [words, rows] to [rows, words]. */
static void turn_words(const unsigned char *from, uint32_t n_words, uint32_t n_rows,
                       uint32_t first_row, uint32_t end_row, unsigned char *to)
{
    for (uint32_t w0 = 0; w0 < n_words; w0 += TILE) {
        const uint32_t w1 = n_words - w0 < TILE ? n_words : w0 + TILE;
        for (uint32_t row = first_row; row < end_row; row++)
            for (uint32_t w = w0; w < w1; w++)
                memcpy(to + 4 * ((uint64_t)row * n_words + w),
                       from + 4 * ((uint64_t)w * n_rows + row), 4);
    }
}

#define SQUARE 8u

/* SQUARE columns of SQUARE rows of 16 bits, through registers. */
static inline void turn_square(const unsigned char *from, uint64_t from_step, unsigned char *to,
                               uint64_t to_step)
{
    uint16_t a[SQUARE][SQUARE], b[SQUARE][SQUARE];
    for (uint32_t i = 0; i < SQUARE; i++)
        memcpy(a[i], from + i * from_step, sizeof a[i]);
    for (uint32_t i = 0; i < SQUARE; i++)
        for (uint32_t j = 0; j < SQUARE; j++)
            b[j][i] = a[i][j];
    for (uint32_t i = 0; i < SQUARE; i++)
        memcpy(to + i * to_step, b[i], sizeof b[i]);
}

/* What is not a whole square, and floats of 32 bits: one by one. */
static void turn_singly(const mf_repack *r, const unsigned char *from, const uint32_t columns[2],
                        const uint32_t rows[2], unsigned char *to)
{
    const size_t width = mf_dtype_bytes(r->shape.float_type);
    for (uint32_t row = rows[0]; row < rows[1]; row++)
        for (uint32_t c = columns[0]; c < columns[1]; c++)
            memcpy(to + ((uint64_t)row * r->shape.n_cols + c) * width,
                   from + ((uint64_t)c * r->n_stored_rows + r->first_row + row) * width, width);
}

/* So many rows at a time are written from their beginning to their end: of 4, 8, 16 and 64 rows at
 * once these took the least time. */
static void turn_floats(const mf_repack *r, const unsigned char *from, uint32_t first_row,
                        uint32_t end_row, unsigned char *to)
{
    const uint32_t n_cols = r->shape.n_cols;
    const size_t width = mf_dtype_bytes(r->shape.float_type);
    const uint64_t from_step = r->n_stored_rows * width, to_step = n_cols * width;
    for (uint32_t row = first_row; row < end_row; row += SQUARE) {
        const uint32_t rows[2] = {row, end_row - row < SQUARE ? end_row : row + SQUARE};
        uint32_t c = 0;
        for (; width == 2 && rows[1] - row == SQUARE && c + SQUARE <= n_cols; c += SQUARE)
            turn_square(from + c * from_step + (r->first_row + row) * width, from_step,
                        to + row * to_step + c * width, to_step);
        turn_singly(r, from, (const uint32_t[]){c, n_cols}, rows, to);
    }
}

/* Which row of its eight a word's nibble is of, the lowest first. */
static const uint32_t awq_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};

#define WORDS_AT_ONCE 4u /* 16 bytes: eight of them stay in registers */

/* Swaps what of a's words lies `shift` bits above b's. */
static inline void swap_bits(uint32_t *a, uint32_t *b, uint32_t shift, uint32_t mask)
{
    for (uint32_t i = 0; i < WORDS_AT_ONCE; i++) {
        const uint32_t t = (a[i] >> shift ^ b[i]) & mask;
        b[i] ^= t;
        a[i] ^= t << shift;
    }
}

/* Of each of the words, eight columns of eight rows: afterwards word i has row i's columns. Halves
 * are swapped, then quarters, then neighbours. */
static void turn_nibbles(uint32_t words[8][WORDS_AT_ONCE])
{
    for (uint32_t i = 0; i < 4; i++)
        swap_bits(words[i], words[i + 4], 16, 0x0000ffff);
    for (uint32_t i = 0; i < 4; i++)
        swap_bits(words[i / 2 * 4 + i % 2], words[i / 2 * 4 + i % 2 + 2], 8, 0x00ff00ff);
    for (uint32_t i = 0; i < 8; i += 2)
        swap_bits(words[i], words[i + 1], 4, 0x0f0f0f0f);
}

/* Eight columns of n words of rows from the first word on. */
static void turn_awq_block(const mf_repack *r, const unsigned char *from, uint32_t column,
                           uint32_t first_word, uint32_t n, unsigned char *to)
{
    const uint64_t n_words = r->shape.n_rows / 8, row_bytes = r->shape.n_cols / 2;
    uint32_t words[8][WORDS_AT_ONCE] = {{0}};
    for (uint32_t i = 0; i < 8; i++)
        memcpy(words[i], from + 4 * ((column + i) * n_words + first_word), 4 * (size_t)n);
    turn_nibbles(words);
    for (uint32_t w = 0; w < n; w++)
        for (uint32_t i = 0; i < 8; i++) {
            const uint64_t row = 8 * (uint64_t)(first_word + w) + awq_order[i];
            memcpy(to + row * row_bytes + column / 2, &words[i][w], 4);
        }
}

static void turn_awq(const mf_repack *r, const unsigned char *from, uint32_t first_row,
                     uint32_t end_row, unsigned char *to)
{
    for (uint32_t word = first_row / 8; word < end_row / 8; word += WORDS_AT_ONCE) {
        const uint32_t left = end_row / 8 - word;
        for (uint32_t column = 0; column < r->shape.n_cols; column += 8)
            turn_awq_block(r, from, column, word, left < WORDS_AT_ONCE ? left : WORDS_AT_ONCE, to);
    }
}

static void make_values(const mf_repack *r, const unsigned char *from, uint32_t first_row,
                        uint32_t end_row, unsigned char *to)
{
    const uint64_t row_bytes = mf_weight_array_row_bytes(&r->shape, MF_WEIGHT_VALUES);
    const uint64_t first = first_row * row_bytes, n = (end_row - first_row) * row_bytes;
    switch (r->packing) {
    case MF_PACKING_AWQ:
        turn_awq(r, from, first_row, end_row, to);
        break;
    case MF_PACKING_ROWS: /* columns are whole groups of 32, so that rows are filled */
        memcpy(to + first, from + first, n);
        break;
    case MF_PACKING_BYTES:
        for (uint64_t i = first; i < first + n; i++)
            to[i] = from[i] ^ 0x80;
        break;
    default:
        turn_words(from, r->shape.n_cols * r->bits / 32, r->shape.n_rows, first_row, end_row, to);
        break;
    }
}

/* -------------------------------------------------------------------------------- scales -- */

static float float_at(const unsigned char *p, mf_dtype type, uint64_t i)
{
    uint16_t half;
    float value;
    if (type == MF_F32) {
        memcpy(&value, p + 4 * i, sizeof value);
        return value;
    }
    memcpy(&half, p + 2 * i, sizeof half);
    return type == MF_BF16 ? mf_f32_from_bf16(half) : mf_f32_from_f16(half);
}

/* Value i of a bit stream whose words are `step` apart; *add is added to each word. */
static uint32_t stream_at(const unsigned char *p, uint64_t step, uint32_t bits, uint32_t i,
                          uint32_t add)
{
    const uint64_t bit = (uint64_t)i * bits;
    const uint32_t shift = bit & 31;
    uint64_t value = (uint32_t)(word_at(p, bit / 32 * step) + add);
    if (shift + bits > 32)
        value |= (uint64_t)word_at(p, (bit / 32 + 1) * step) << 32;
    return (uint32_t)(value >> shift) & ((1u << bits) - 1);
}

static uint32_t zero_at(const mf_repack *r, const unsigned char *zeros, uint32_t row,
                        uint32_t group)
{
    static const uint32_t ones[9] = {[2] = 0x55555555, [4] = 0x11111111, [8] = 0x01010101};
    static const uint32_t at[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* of a row in awq_order */
    const uint64_t n_words = ((uint64_t)r->shape.n_rows * r->bits + 31) / 32;
    if (!r->has_zeros)
        return 1u << (r->bits - 1);
    switch (r->packing) {
    case MF_PACKING_BYTES:
        return zeros[(uint64_t)row * r->n_groups + group] ^ 0x80u;
    case MF_PACKING_ROWS:
        return stream_at(zeros + 4 * (uint64_t)group, r->n_groups, r->bits, row, 0);
    case MF_PACKING_AWQ:
        return word_at(zeros, group * n_words + row / 8) >> 4 * at[row % 8] & 15;
    case MF_PACKING_GPTQ: /* words were taken from, with what they borrow, and are added to so; but
                             for 3 bits, of which some go from word to word, each zero was */
        if (r->bits == 3)
            return (stream_at(zeros + 4 * group * n_words, 1, 3, row, 0) + 1) & 7;
        return stream_at(zeros + 4 * group * n_words, 1, r->bits, row, ones[r->bits]);
    default:
        return stream_at(zeros + 4 * group * n_words, 1, r->bits, row, 0);
    }
}

/* The scales of a row, each as often as its columns are groups of the format. */
static void make_row(const mf_repack *r, const unsigned char *const stored[MF_PACKED_ARRAYS],
                     uint32_t row, unsigned char *const made[MF_MAX_WEIGHT_ARRAYS])
{
    const mf_weight_shape *s = &r->shape;
    const uint32_t n = s->n_cols / s->group, repeated = n / r->n_groups;
    const size_t width = mf_dtype_bytes(r->scale_type);
    const uint64_t step = is_by_column(r) ? s->n_rows : 1;
    const uint64_t first = is_by_column(r) ? row : (uint64_t)row * r->n_groups;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t to = (uint64_t)row * n + i, at = first + i / repeated * step;
        if (s->kind == MF_WEIGHT_INT4 || s->kind == MF_WEIGHT_INT8) {
            memcpy(made[MF_WEIGHT_SCALES] + to * width, stored[MF_PACKED_SCALES] + at * width,
                   width);
            continue;
        }
        const float scale = float_at(stored[MF_PACKED_SCALES], r->scale_type, at);
        /* exact but for scales of float32: an integer of 8 bits by 11 bits */
        const float bias = -(float)zero_at(r, stored[MF_PACKED_ZEROS], row, i / repeated) * scale;
        if (s->kind == MF_WEIGHT_AFFINE_INDEXED) {
            memcpy(made[MF_WEIGHT_SCALES] + 8 * to, &scale, 4);
            memcpy(made[MF_WEIGHT_SCALES] + 8 * to + 4, &bias, 4);
        } else {
            memcpy(made[MF_WEIGHT_SCALES] + 4 * to, &scale, 4);
            memcpy(made[MF_WEIGHT_BIASES] + 4 * to, &bias, 4);
        }
    }
}

/* The group of each column, in 16 bits. Where compressed-tensors has none, it says -1. */
static bool make_index(const mf_repack *r, const unsigned char *index, unsigned char *to)
{
    bool is_none = false;
    for (uint32_t i = 0; i < r->shape.n_cols && r->packing == MF_PACKING_ROWS; i++)
        is_none = is_none || word_at(index, i) == UINT32_MAX;
    for (uint32_t i = 0; i < r->shape.n_cols; i++) {
        const uint32_t group = is_none ? i / r->shape.group : word_at(index, i);
        const uint16_t kept = (uint16_t)group;
        if (group >= r->n_groups)
            return false;
        memcpy(to + 2 * (size_t)i, &kept, sizeof kept);
    }
    return true;
}

/* -------------------------------------------------------------------------------- blocks -- */

#define NVFP4_BLOCK 64u /* columns: 4 scales, then for each 16 the first 8 low, the others high */

/* Of 8 bytes the nibbles below, of neighbours in a byte. */
static uint32_t join_nibbles(uint64_t x)
{
    x &= 0x0f0f0f0f0f0f0f0full;
    x = (x | x >> 4) & 0x00ff00ff00ff00ffull;
    x = (x | x >> 8) & 0x0000ffff0000ffffull;
    return (uint32_t)(x | x >> 16);
}

/* Scales have no sign; what is no number is 0. */
static unsigned char plain_scale(unsigned char scale)
{
    scale &= 0x7f;
    return scale == 0x7f ? 0 : scale;
}

static void part_nvfp4(const unsigned char *from, uint64_t n_blocks, unsigned char *values,
                       unsigned char *scales)
{
    for (uint64_t block = 0; block < n_blocks; block++, from += 4 + NVFP4_BLOCK / 2)
        for (uint32_t i = 0; i < 4; i++, values += 8) {
            uint64_t stored;
            memcpy(&stored, from + 4 + 8 * (size_t)i, sizeof stored);
            const uint32_t parted[2] = {join_nibbles(stored), join_nibbles(stored >> 4)};
            memcpy(values, parted, sizeof parted);
            *scales++ = plain_scale(from[i]);
        }
}

static void make_blocks(const mf_repack *r, const unsigned char *const stored[MF_PACKED_ARRAYS],
                        uint32_t first_row, uint32_t n_rows,
                        unsigned char *const made[MF_MAX_WEIGHT_ARRAYS])
{
    const uint64_t row_bytes = block_row_bytes(r), n_blocks = r->shape.n_cols / NVFP4_BLOCK;
    const unsigned char *from = stored[MF_PACKED_VALUES] + first_row * row_bytes;
    if (r->shape.kind != MF_WEIGHT_NVFP4) {
        memcpy(made[MF_WEIGHT_VALUES] + first_row * row_bytes, from, n_rows * row_bytes);
        return;
    }
    part_nvfp4(from, n_rows * n_blocks, made[MF_WEIGHT_VALUES] + first_row * n_blocks * 32,
               made[MF_WEIGHT_SCALES] + first_row * n_blocks * 4);
    if (r->n_groups != 0 && first_row == 0)
        memcpy(made[MF_WEIGHT_BIASES], stored[MF_PACKED_SCALES], sizeof(float));
}

bool mf_repack_rows(const mf_repack *r, const unsigned char *const stored[MF_PACKED_ARRAYS],
                    uint32_t first_row, uint32_t n_rows,
                    unsigned char *const made[MF_MAX_WEIGHT_ARRAYS])
{
    const uint32_t end_row = first_row + n_rows;
    if (r->packing == MF_PACKING_TURNED) {
        turn_floats(r, stored[MF_PACKED_VALUES], first_row, end_row, made[MF_WEIGHT_VALUES]);
        return true;
    }
    if (r->packing == MF_PACKING_BLOCKS) {
        make_blocks(r, stored, first_row, n_rows, made);
        return true;
    }
    make_values(r, stored[MF_PACKED_VALUES], first_row, end_row, made[MF_WEIGHT_VALUES]);
    for (uint32_t row = first_row; row < end_row; row++)
        make_row(r, stored, row, made);
    if (!r->has_index || first_row != 0)
        return true;
    return make_index(r, stored[MF_PACKED_INDEX], made[MF_WEIGHT_BIASES]);
}
