/* SPDX-License-Identifier: MIT */
#include "matrix_case.h"

#include "base/half.h"
#include "kernels/x86/scaled_token.h"

#include <stdlib.h>

static uint32_t float_bytes(mf_dtype type)
{
    return type == MF_F32 ? 4 : 2;
}

static double f16_value(uint32_t bits)
{
    int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
    double size = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return bits >> 15 != 0 ? -size : size;
}

double value_at(const unsigned char *p, mf_dtype type, size_t i)
{
    uint32_t word = 0;
    memcpy(&word, p + i * float_bytes(type), float_bytes(type));
    if (type == MF_F16)
        return f16_value(word);
    return (double)mf_f32_from_bits(type == MF_F32 ? word : word << 16);
}

/* From its definition, as all that follow. */
double e4m3_value(uint32_t code)
{
    int exponent = (int)(code >> 3 & 15), fraction = (int)(code & 7);
    if (exponent == 15 && fraction == 7)
        return NAN;
    double size = exponent == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, exponent - 10);
    return code >> 7 != 0 ? -size : size;
}

static double e2m1_value(uint32_t code)
{
    int exponent = (int)(code >> 1 & 3), fraction = (int)(code & 1);
    double size = exponent == 0 ? 0.5 * fraction : ldexp(2 + fraction, exponent - 2);
    return code >> 3 != 0 ? -size : size;
}

/* Value i of a bit stream, one bit after another. */
static uint32_t bits_at(const unsigned char *row, uint32_t bits, size_t i)
{
    uint32_t value = 0;
    for (uint32_t b = 0; b < bits; b++) {
        size_t at = i * bits + b;
        value |= (uint32_t)(row[at / 8] >> (at % 8) & 1) << b;
    }
    return value;
}

/* Value i of bytes of two, the first one low. */
static uint32_t half_byte(const unsigned char *p, size_t i)
{
    return bits_at(p, 4, i);
}

/* GGUF's blocks lie in 32s: values i and i + n / 2 of n share a byte. */
static uint32_t split_half(const unsigned char *p, uint32_t n, uint32_t i)
{
    return i < n / 2 ? p[i] & 15u : (uint32_t)(p[i - n / 2] >> 4);
}

/* Value i of 256: 4 bits in pairs of 32, and of each 32 a scale and a minimum of 6 bits. The lower
 * four of them fill the low 6 bits of a byte each; the upper four have 4 bits at the end and their
 * highest 2 above those of the lower. */
static double q4_k_value(const unsigned char *block, uint32_t i)
{
    const unsigned char *packed = block + 4;
    uint32_t part = i / 32, scale = packed[part % 4] % 64u, minimum = packed[4 + part % 4] % 64u;
    if (part >= 4) {
        scale = packed[8 + part % 4] % 16u + packed[part % 4] / 64u * 16u;
        minimum = packed[8 + part % 4] / 16u + packed[4 + part % 4] / 64u * 16u;
    }
    uint32_t q = split_half(block + 16 + i / 64 * 32, 64, i % 64);
    return value_at(block, MF_F16, 0) * scale * q - value_at(block, MF_F16, 1) * minimum;
}

/* Value i of 256: in each half, 4 bits of value i share a byte with those of i + 64, 2 more with
 * those of i + 32, i + 64 and i + 96. */
static double q6_k_value(const unsigned char *block, uint32_t i)
{
    uint32_t low = split_half(block + i / 128 * 64, 128, i % 128);
    uint32_t high = bits_at(block + 128 + i / 128 * 32 + i % 32, 2, i % 128 / 32);
    int scale = (signed char)block[192 + i / 16];
    return value_at(block + 208, MF_F16, 0) * scale * ((int)(high * 16 + low) - 32);
}

static double iq4_xs_value(const unsigned char *block, uint32_t i)
{
    static const int levels[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
    uint32_t low = half_byte(block + 4, i / 32), high = bits_at(block + 2, 2, i / 32);
    uint32_t q = split_half(block + 8 + i / 32 * 16, 32, i % 32);
    return value_at(block, MF_F16, 0) * ((int)(high * 16 + low) - 32) * levels[q];
}

/* As the table decodes it: data/formats.bin says what that has to be. */
static double block_value(mf_weight_kind kind, const unsigned char *row, uint32_t i)
{
    const mf_weight_format *f = &mf_weight_formats[kind];
    const uint32_t cols = f->arrays[0].cols;
    float values[256];
    REQUIRE(cols <= 256);
    f->decode_block(row + (size_t)(i / cols) * f->arrays[0].n_bytes, values);
    return (double)values[i % cols];
}

static double gguf_value(mf_weight_kind kind, const unsigned char *row, uint32_t i)
{
    switch (kind) {
    case MF_WEIGHT_GGUF_Q8_0:
        row += (size_t)(i / 32) * 34;
        return value_at(row, MF_F16, 0) * (signed char)row[2 + i % 32];
    case MF_WEIGHT_GGUF_Q4_K:
        return q4_k_value(row + (size_t)(i / 256) * 144, i % 256);
    case MF_WEIGHT_GGUF_Q6_K:
        return q6_k_value(row + (size_t)(i / 256) * 210, i % 256);
    case MF_WEIGHT_GGUF_IQ4_XS:
        return iq4_xs_value(row + (size_t)(i / 256) * 136, i % 256);
    case MF_WEIGHT_GGUF_MXFP4:
        row += (size_t)(i / 32) * 17;
        return ldexp(e2m1_value(split_half(row + 1, 32, i % 32)), row[0] - 127);
    default:
        return block_value(kind, row, i);
    }
}

/* But for the factor. */
static double nvfp4_value(const mf_matrix *w, const unsigned char *p, uint32_t row, uint32_t col)
{
    return e2m1_value(half_byte(p, col)) *
           e4m3_value(w->scales[(size_t)(w->shape.n_cols / 16) * row + col / 16]);
}

static double weight_of(const mf_matrix *w, uint32_t row, uint32_t col)
{
    const mf_weight_shape *s = &w->shape;
    const unsigned char *p = w->data + mf_weight_array_bytes(s, 0) / s->n_rows * row;
    size_t groups = 0, n = s->n_cols;
    switch (s->kind) {
    case MF_WEIGHT_FLOAT:
        return value_at(p, s->float_type, col);
    case MF_WEIGHT_AFFINE:
        groups = n / s->group * row + col / s->group;
        return bits_at(p, s->bits, col) * value_at(w->scales, s->float_type, groups) +
               value_at(w->biases, s->float_type, groups);
    case MF_WEIGHT_FP8_BLOCK:
        groups = (n + 127) / 128 * (row / (s->scale_rows == 0 ? 128 : s->scale_rows)) + col / 128;
        return e4m3_value(p[col]) * value_at(w->scales, MF_F32, groups);
    case MF_WEIGHT_MXFP4:
        return ldexp(e2m1_value(half_byte(p, col)), w->scales[n / 32 * row + col / 32] - 127);
    case MF_WEIGHT_MXFP8:
        return ldexp(e4m3_value(p[col]), w->scales[n / 32 * row + col / 32] - 127);
    case MF_WEIGHT_AFFINE_INDEXED:
        groups = (size_t)w->biases[2 * (size_t)col] + 256 * (size_t)w->biases[2 * (size_t)col + 1];
        groups = groups < n / s->group ? groups : n / s->group - 1;
        groups = 2 * (n / s->group * row + groups);
        return bits_at(p, s->bits, col) * value_at(w->scales, MF_F32, groups) +
               value_at(w->scales, MF_F32, groups + 1);
    case MF_WEIGHT_NVFP4:
        return nvfp4_value(w, p, row, col) * value_at(w->biases, MF_F32, 0);
    case MF_WEIGHT_NVFP4_DIVIDED: /* by the nearest float of one over it */
        return nvfp4_value(w, p, row, col) * (double)(float)(1.0 / value_at(w->biases, MF_F32, 0));
    case MF_WEIGHT_NVFP4_PLAIN:
        return nvfp4_value(w, p, row, col);
    case MF_WEIGHT_INT4:
    case MF_WEIGHT_INT8:
        groups = n / s->group * row + col / s->group;
        return ((double)bits_at(p, mf_weight_bits(s), col) -
                (s->kind == MF_WEIGHT_INT4 ? 8 : 128)) *
               value_at(w->scales, s->float_type, groups);
    case MF_WEIGHT_FP8_CHANNEL:
        return e4m3_value(p[col]) * value_at(w->scales, MF_F32, row);
    case MF_WEIGHT_FP8_TENSOR:
        return e4m3_value(p[col]) * value_at(w->scales, MF_F32, 0);
    default:
        return gguf_value(s->kind, p, col);
    }
}

/* A finite number of the type, small enough that sums stay finite. */
static void put_float(uint64_t *state, unsigned char *p, mf_dtype type, size_t i)
{
    float x = next_float(state);
    uint32_t word = mf_bits_from_f32(x);
    if (type == MF_BF16)
        word = mf_bf16_from_f32(x);
    if (type == MF_F16) /* exponent field 1 to 16 */
        word = (uint32_t)(next_random(state) & 0x83ffu) | (uint32_t)(1 + next_random(state) % 16)
                                                              << 10;
    memcpy(p + i * float_bytes(type), &word, float_bytes(type));
}

/* Bytes of any value, but no NaN as e4m3. */
static void fill_codes(uint64_t *state, const guarded *g, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char code = (unsigned char)next_random(state);
        g->p[i] = (code & 0x7f) == 0x7f ? 0x80 : code;
    }
}

static void fill_floats(uint64_t *state, const guarded *g, size_t n_bytes, mf_dtype type)
{
    for (size_t i = 0; i < n_bytes / float_bytes(type); i++)
        put_float(state, g->p, type, i);
}

/* Scales of very different sizes. */
static void fill_fp8_scales(uint64_t *state, const guarded *g, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes / 4; i++) {
        float scale = ldexpf(1.0f + fabsf(next_float(state)), (int)(next_random(state) % 24) - 20);
        memcpy(g->p + 4 * i, &scale, sizeof scale);
    }
}

/* Numbers of columns' groups, and one that is no group. */
static void fill_index(uint64_t *state, const guarded *g, size_t n_cols, uint32_t group)
{
    for (size_t i = 0; i < n_cols; i++) {
        const uint32_t n = (uint32_t)(next_random(state) % (n_cols / group));
        g->p[2 * i] = (unsigned char)n;
        g->p[2 * i + 1] = (unsigned char)(i == n_cols / 2 ? 255 : n >> 8);
    }
}

/* The floats inside of blocks: n of them at `at` of each. */
static void fill_block_floats(uint64_t *state, const guarded *g, size_t n_bytes, size_t block,
                              size_t at, size_t n)
{
    for (size_t i = 0; i < n_bytes; i += block)
        for (size_t j = 0; j < n; j++)
            put_float(state, g->p + i + at, MF_F16, j);
}

/* e8m0 codes of ordinary size, and now and then the smallest. */
static void fill_exponents(uint64_t *state, const guarded *g, size_t n_bytes, size_t block)
{
    for (size_t i = 0; i < n_bytes; i += block) {
        uint64_t r = next_random(state);
        g->p[i] = (unsigned char)(r % 16 == 0 ? r >> 8 & 1 : 110 + (r >> 8) % 30);
    }
}

/* The scales inside of blocks, float16 but for the formats that have exponents or codes. */
static void fill_block_scales(uint64_t *state, mf_weight_kind kind, const guarded *g,
                              size_t n_bytes)
{
    static const struct {
        uint8_t at, n;
    } halves[MF_WEIGHT_KINDS] = {
        [MF_WEIGHT_GGUF_Q4_0] = {0, 1},    [MF_WEIGHT_GGUF_Q4_1] = {0, 2},
        [MF_WEIGHT_GGUF_Q5_0] = {0, 1},    [MF_WEIGHT_GGUF_Q5_1] = {0, 2},
        [MF_WEIGHT_GGUF_Q8_0] = {0, 1},    [MF_WEIGHT_GGUF_Q2_K] = {80, 2},
        [MF_WEIGHT_GGUF_Q3_K] = {108, 1},  [MF_WEIGHT_GGUF_Q4_K] = {0, 2},
        [MF_WEIGHT_GGUF_Q5_K] = {0, 2},    [MF_WEIGHT_GGUF_Q6_K] = {208, 1},
        [MF_WEIGHT_GGUF_IQ1_S] = {0, 1},   [MF_WEIGHT_GGUF_IQ2_XXS] = {0, 1},
        [MF_WEIGHT_GGUF_IQ2_XS] = {0, 1},  [MF_WEIGHT_GGUF_IQ2_S] = {0, 1},
        [MF_WEIGHT_GGUF_IQ3_XXS] = {0, 1}, [MF_WEIGHT_GGUF_IQ3_S] = {0, 1},
        [MF_WEIGHT_GGUF_IQ4_NL] = {0, 1},  [MF_WEIGHT_GGUF_IQ4_XS] = {0, 1},
        [MF_WEIGHT_GGUF_TQ1_0] = {52, 1},  [MF_WEIGHT_GGUF_TQ2_0] = {64, 1},
    };
    const size_t block = mf_weight_formats[kind].arrays[0].n_bytes;
    if (kind == MF_WEIGHT_GGUF_MXFP4)
        fill_exponents(state, g, n_bytes, block);
    else if (kind == MF_WEIGHT_GGUF_IQ1_M) /* the exponent's highest bit: no infinity */
        for (size_t i = 0; i < n_bytes; i += block)
            g->p[i + 55] &= 0xbf;
    else
        fill_block_floats(state, g, n_bytes, block, halves[kind].at, halves[kind].n);
}

static void fill_scales(uint64_t *state, matrix_case *c)
{
    const mf_weight_shape *s = &c->w.shape;
    const guarded *g = c->arrays;
    size_t n[MF_MAX_WEIGHT_ARRAYS];
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++)
        n[i] = (size_t)mf_weight_array_bytes(s, i);
    switch (s->kind) {
    case MF_WEIGHT_FLOAT:
        fill_floats(state, &g[0], n[0], s->float_type);
        break;
    case MF_WEIGHT_AFFINE:
        fill_floats(state, &g[1], n[1], s->float_type);
        fill_floats(state, &g[2], n[2], s->float_type);
        break;
    case MF_WEIGHT_INT4:
    case MF_WEIGHT_INT8:
        fill_floats(state, &g[1], n[1], s->float_type);
        break;
    case MF_WEIGHT_NVFP4_PLAIN:
        break;
    case MF_WEIGHT_AFFINE_INDEXED:
        fill_floats(state, &g[1], n[1], MF_F32);
        fill_index(state, &g[2], s->n_cols, s->group);
        break;
    case MF_WEIGHT_FP8_CHANNEL:
    case MF_WEIGHT_FP8_TENSOR:
    case MF_WEIGHT_FP8_BLOCK:
        fill_fp8_scales(state, &g[1], n[1]);
        break;
    case MF_WEIGHT_MXFP4:
    case MF_WEIGHT_MXFP8:
        fill_exponents(state, &g[1], n[1], 1);
        break;
    case MF_WEIGHT_NVFP4_DIVIDED:
        fill_fp8_scales(state, &g[2], n[2]);
        break;
    case MF_WEIGHT_NVFP4:
        fill_floats(state, &g[2], n[2], MF_F32);
        break;
    default:
        fill_block_scales(state, s->kind, &g[0], n[0]);
        break;
    }
}

mf_weight_shape affine_shape(uint32_t bits, uint32_t group, mf_dtype type)
{
    return (mf_weight_shape){
        .kind = MF_WEIGHT_AFFINE, .float_type = type, .bits = bits, .group = group};
}

mf_weight_shape float_shape(mf_dtype type)
{
    return (mf_weight_shape){.kind = MF_WEIGHT_FLOAT, .float_type = type};
}

mf_weight_shape fp8_shape(uint32_t scale_rows)
{
    return (mf_weight_shape){.kind = MF_WEIGHT_FP8_BLOCK,
                             .float_type = MF_F32,
                             .bits = 8,
                             .group = 128,
                             .scale_rows = scale_rows};
}

/* Codes of random bytes, or all of them `code`, and random scales. */
static matrix_case case_of(uint64_t *state, mf_weight_shape shape, uint32_t n_rows, uint32_t n_cols,
                           const unsigned char *code)
{
    matrix_case c = {.w = {.shape = shape}};
    c.w.shape.n_rows = n_rows;
    c.w.shape.n_cols = n_cols;
    for (uint32_t i = 0; i < mf_weight_format_of(&shape)->n_arrays; i++) {
        size_t n_bytes = (size_t)mf_weight_array_bytes(&c.w.shape, i);
        c.arrays[i] = guarded_alloc(n_bytes);
        fill_codes(state, &c.arrays[i], n_bytes);
        if (code != NULL && i == 0)
            memset(c.arrays[i].p, *code, n_bytes);
        c.w.arrays[i] = c.arrays[i].p;
    }
    fill_scales(state, &c);
    c.values = malloc((size_t)n_rows * n_cols * sizeof *c.values);
    REQUIRE(c.values != NULL);
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t i = 0; i < n_cols; i++)
            c.values[(size_t)r * n_cols + i] = weight_of(&c.w, r, i);
    return c;
}

matrix_case make_case(uint64_t *state, mf_weight_shape shape, uint32_t n_rows, uint32_t n_cols)
{
    return case_of(state, shape, n_rows, n_cols, NULL);
}

matrix_case make_even_case(uint64_t *state, mf_weight_shape shape, uint32_t n_rows, uint32_t n_cols,
                           unsigned char code)
{
    return case_of(state, shape, n_rows, n_cols, &code);
}

void free_case(matrix_case *c)
{
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++)
        if (c->arrays[i].p != NULL)
            guarded_free(&c->arrays[i]);
    free(c->values);
}

static bool has_lane_units(mf_cpu_tier tier)
{
    return tier == MF_CPU_AVX512 || tier == MF_CPU_AVX512_VNNI || tier == MF_CPU_AVX512_AMX ||
           tier == MF_CPU_AVX512_AMX_BF16;
}

/* Whether the tier's activations beside such weights have 21 bits, of each 32 columns: those by
 * instructions whose products of bytes have 16. */
static bool has_small_digits(mf_cpu_tier tier, mf_weight_kind kind)
{
    if (tier != MF_CPU_AVX2 && tier != MF_CPU_AVX512_BW)
        return false;
    switch (kind) {
    case MF_WEIGHT_INT8:
    case MF_WEIGHT_GGUF_Q8_0:
    case MF_WEIGHT_GGUF_IQ4_NL:
    case MF_WEIGHT_GGUF_IQ4_XS:
        return true;
    default:
        return (kind >= MF_WEIGHT_GGUF_IQ1_S && kind <= MF_WEIGHT_GGUF_IQ3_S) ||
               kind == MF_WEIGHT_GGUF_TQ1_0 || kind == MF_WEIGHT_GGUF_TQ2_0;
    }
}

/* Whether tiles multiply it with a float for the scale of 32 columns. */
static bool is_scaled(const mf_kernels *k, const mf_matrix *w)
{
    return (k->tier == MF_CPU_AVX512_AMX || k->tier == MF_CPU_AVX512_AMX_BF16) && mf_is_scaled(w);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* A quarter of the `most` largest magnitudes of 32 activations, or of the n that are left: which 16
 * are a lane's is the form's own matter. */
static double lane_reach(const float *x, uint32_t n, uint32_t most)
{
    double sizes[32] = {0.0}, sum = 0.0;
    for (uint32_t i = 0; i < 32 && i < n; i++)
        sizes[i] = fabs((double)x[i]);
    qsort(sizes, 32, sizeof *sizes, by_size);
    for (uint32_t i = 0; i < most; i++)
        sum += sizes[i];
    return sum / 4.0;
}

double fixed_point_bound(const mf_kernels *k, const matrix_case *c, const float *x, uint32_t row)
{
    const bool has_lanes = c->w.shape.kind != MF_WEIGHT_AFFINE && has_lane_units(k->tier);
    const bool is_small = has_small_digits(k->tier, c->w.shape.kind);
    const bool by_tiles = is_scaled(k, &c->w);
    const uint32_t together = by_tiles ? 32 : 16;
    const bool is_short = by_tiles && mf_scaled_shift(c->w.shape.kind) == 3;
    const double half_unit = is_small ? 0x1p-21 : is_short ? 0x1p-22 : 0x1p-23;
    const uint32_t n = c->w.shape.n_cols;
    const uint32_t group = is_small ? 32 : c->w.shape.kind == MF_WEIGHT_AFFINE ? 64 : 256;
    const double *w = c->values + (size_t)row * n;
    double bound = 0.0;
    if (k->token_bytes(&c->w) == 0)
        return 0.0;
    for (uint32_t g = 0; g < n; g += group) {
        double largest = 0.0, size = 0.0;
        for (uint32_t i = g; i < g + group && i < n; i++) {
            largest = fmax(largest, fabs((double)x[i]));
            size += fabs(w[i]);
            if (has_lanes && i % 32 == 0)
                largest = fmax(largest, lane_reach(x + i, n - i, together));
        }
        bound += largest * size * half_unit;
    }
    return bound;
}

/* The stated bound: 4 eps sqrt(n) sum |a b|; the weight itself is rounded once, which its part |q
 * s| + |b| may exceed. */
void check_outputs(const mf_kernels *k, const matrix_case *c, const float *x, uint32_t n_tokens,
                   const float *y)
{
    uint32_t n = c->w.shape.n_cols;
    for (uint32_t t = 0; t < n_tokens; t++) {
        for (uint32_t r = 0; r < c->w.shape.n_rows; r++) {
            double sum = 0.0, size = 0.0;
            for (uint32_t i = 0; i < n; i++) {
                double product = c->values[(size_t)r * n + i] * (double)x[(size_t)t * n + i];
                sum += product;
                size += fabs(product);
            }
            double bound = 4 * 0x1p-23 * sqrt((double)n) * size + 1e-30;
            if (c->w.shape.kind != MF_WEIGHT_AFFINE) /* even the random ones' keep within it */
                bound += fixed_point_bound(k, c, x + (size_t)t * n, r);
            double got = (double)y[(size_t)t * c->w.shape.n_rows + r];
            CHECK_MSG(
                fabs(got - sum) <= bound,
                "%s: kind %d, %u bits, group %u, type %d, [%u, %u], token %u of %u, row %u: %g, "
                "expected %g",
                mf_cpu_tier_name(k->tier), c->w.shape.kind, c->w.shape.bits, c->w.shape.group,
                c->w.shape.float_type, c->w.shape.n_rows, n, t, n_tokens, r, got, sum);
        }
    }
}

void make_one_nan(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (isnan(values[i]))
            values[i] = NAN;
}

void *scratch_for(const mf_kernels *k, const mf_matrix *w, uint32_t n_tokens)
{
    size_t n_bytes = (k->matmul_scratch_bytes(w, n_tokens) + 127) & ~(size_t)63;
    void *scratch = aligned_alloc(64, n_bytes);
    REQUIRE(scratch != NULL);
    memset(scratch, 0xff, n_bytes); /* NaN, should anything be read before it is written */
    return scratch;
}

/* All tokens and rows at once, then in pieces: the same bits. */
void check_case(const mf_kernels *k, uint64_t *state, const matrix_case *c)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 70};
    enum { MAX_TOKENS = 70 };
    uint32_t n_rows = c->w.shape.n_rows, n_cols = c->w.shape.n_cols;
    guarded xs;
    const float *x = random_floats(state, &xs, (size_t)MAX_TOKENS * n_cols);
    float *alone = malloc((size_t)MAX_TOKENS * n_rows * sizeof *alone);
    float *y = malloc((size_t)MAX_TOKENS * n_rows * sizeof *y);
    REQUIRE(alone != NULL && y != NULL);
    void *scratch = scratch_for(k, &c->w, MAX_TOKENS);
    for (uint32_t t = 0; t < MAX_TOKENS; t++)
        k->matmul(&c->w, 0, n_rows, x + (size_t)t * n_cols, n_cols, 1, alone + (size_t)t * n_rows,
                  n_rows, scratch);
    check_outputs(k, c, x, 9, alone);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint32_t n = counts[i], cut = (uint32_t)(next_random(state) % (n_rows + 1));
        const float *last = x + (size_t)(MAX_TOKENS - n) * n_cols; /* ends at the guard page */
        memset(y, 0xff, (size_t)MAX_TOKENS * n_rows * sizeof *y);
        k->matmul(&c->w, 0, cut, last, n_cols, n, y, n_rows, scratch);
        k->matmul(&c->w, cut, n_rows, last, n_cols, n, y + cut, n_rows, scratch);
        CHECK_MSG(memcmp(y, alone + (size_t)(MAX_TOKENS - n) * n_rows,
                         (size_t)n * n_rows * sizeof *y) == 0,
                  "%s: kind %d, %u bits, group %u, type %d, [%u, %u]: %u tokens cut at row %u "
                  "differ from each alone",
                  mf_cpu_tier_name(k->tier), c->w.shape.kind, c->w.shape.bits, c->w.shape.group,
                  c->w.shape.float_type, n_rows, n_cols, n, cut);
    }
    free(scratch);
    free(y);
    free(alone);
    guarded_free(&xs);
}

void check_rows(const mf_kernels *k, const matrix_case *c)
{
    guarded g = guarded_alloc(c->w.shape.n_cols * sizeof(float));
    float *row = (float *)(void *)g.p;
    for (uint32_t r = 0; r < c->w.shape.n_rows; r++) {
        k->dequant_row(&c->w, r, row);
        for (uint32_t i = 0; i < c->w.shape.n_cols; i++) {
            double expected = c->values[(size_t)r * c->w.shape.n_cols + i];
            /* rounded once: half a unit in the last place, of a sum that float64 rounds too */
            CHECK(fabs((double)row[i] - expected) <= 0x1.0001p-24 * fabs(expected) + 1e-44);
        }
    }
    guarded_free(&g);
}

void check_prepared(const mf_kernels *k, uint64_t *state, const matrix_case *c)
{
    enum { TOKENS = 40 };
    uint32_t n_rows = c->w.shape.n_rows, n_cols = c->w.shape.n_cols;
    size_t token_bytes = k->token_bytes(&c->w);
    if (token_bytes == 0)
        return;
    guarded xs, prepared = guarded_alloc(token_bytes * TOKENS);
    const float *x = random_floats(state, &xs, (size_t)TOKENS * n_cols);
    float *y = malloc(sizeof *y * TOKENS * n_rows), *z = malloc(sizeof *z * TOKENS * n_rows);
    REQUIRE(y != NULL && z != NULL);
    void *scratch = scratch_for(k, &c->w, TOKENS);
    for (uint32_t t = 0; t < TOKENS; t++)
        k->prepare_token(&c->w, x + (size_t)t * n_cols, prepared.p + t * token_bytes);
    k->matmul(&c->w, 0, n_rows, x, n_cols, TOKENS, y, n_rows, scratch);
    k->matmul_prepared(&c->w, 0, n_rows, prepared.p, TOKENS, z, n_rows, scratch);
    CHECK_BYTES(z, y, sizeof *y * TOKENS * n_rows);
    free(scratch);
    free(y);
    free(z);
    guarded_free(&prepared);
    guarded_free(&xs);
}
