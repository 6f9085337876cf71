// SPDX-License-Identifier: MIT
// 32 values of a row of a weight, as an invocation holds them. They come in pieces of PIECE columns
// that are `step` columns apart. What is beyond the row's end is zero, or, of fetch_chunk, anything
// finite: it is to meet zeros. Nothing is computed of what is loaded until it is used, so that much
// can be on its way at once.
// Of ANY, AFFINE, FP8, FLOATS one is defined.
#ifdef LIT_WIDE
const uint IS_WIDE = LIT_WIDE;
#else
layout(constant_id = 8) const uint IS_WIDE = 0; // pieces are aligned to 16 bytes
#endif

const uint CHUNK = 32;
#ifdef FLOATS
const uint PIECE = FLOAT_TYPE == F32 ? 4 : 8;
const uint N_WORDS = 32;
#elif defined(ANY)
#include "block_kinds.glsl"
const bool IS_FP4 = KIND == KIND_NVFP4; // 32 columns lie together
const uint PIECE = IS_BLOCK || IS_FP4 ? 32 : 4;
const uint N_WORDS = 32; // of blocks fewer
#else
const uint PIECE = 32;
const uint N_WORDS = 8;
#endif
#ifdef AFFINE
const bool HAS_MIN = true; // a value has a bias besides its scale
#elif !defined(ANY)
const bool HAS_MIN = false;
#define QUAD_POWERS(j) vec4(1.0)
#endif

struct Chunk {
    uint words[N_WORDS];
    uint scale, bias; // as they lie
};

// The bits of 2^23: with a code's bits they are 2^23 and the code. Where a compiler knows them, masking a code and
// adding these takes two instructions, else one. So begin_chunks makes them of a zero that it does not know.
uint code_base;

// The two floats of 16 bits of a word.
vec2 floats_of(uint word)
{
    if (FLOAT_TYPE == BF16)
        return uintBitsToFloat(uvec2(word << 16, word & 0xffff0000u));
    return vec2(half_to_float(word & 0xffffu), half_to_float(word >> 16));
}

// Column of a chunk's values 4j .. 4j + 3, from the first one's on.
uint quad_col(uint j, uint step)
{
    return j / (PIECE / 4) * step + j % (PIECE / 4) * 4;
}

#ifdef AFFINE
uint load_bits(uint64_t array, uint64_t i)
{
    return FLOAT_TYPE == F32 ? Words(array + i * 4).v[0] : uint(Halves(array + i * 2).v[0]);
}

float float_of(uint bits)
{
    if (FLOAT_TYPE == F32)
        return uintBitsToFloat(bits);
    return FLOAT_TYPE == F16 ? half_to_float(bits) : bfloat_to_float(bits);
}

uint row_bytes(uint n_cols)
{
    return n_cols / CHUNK * (BITS * 4);
}

uint scale_row_bytes(uint n_cols)
{
    return n_cols / GROUP * (FLOAT_TYPE == F32 ? 4 : 2);
}

// Where a chunk's bytes begin.
Weight chunk_at(Weight w, uint row, uint first, uint n_cols)
{
    const uint col = first < n_cols ? first : 0; // wholly inside: groups are of 32 columns at least
    const uint64_t scale = uint64_t(row) * scale_row_bytes(n_cols) +
                           col / GROUP * (FLOAT_TYPE == F32 ? 4 : 2);
    return Weight(w.values + uint64_t(row) * row_bytes(n_cols) + col / CHUNK * (BITS * 4),
                  w.scales + scale, w.biases + scale);
}

#define HAS_PLACES true
Chunk fetch_at(Weight at, uint col)
{
    Chunk c;
    if (IS_WIDE != 0 && BITS % 4 == 0) {
        [[unroll]] for (uint i = 0; i < BITS / 4; i++) {
            const uvec4 v = Words4(at.values).v[i];
            [[unroll]] for (uint e = 0; e < 4; e++)
                c.words[i * 4 + e] = v[e];
        }
    } else {
        [[unroll]] for (uint i = 0; i < BITS; i++)
            c.words[i] = Words(at.values).v[i];
    }
    c.scale = load_bits(at.scales, 0);
    c.bias = load_bits(at.biases, 0);
    return c;
}

Chunk fetch_chunk(Weight w, uint row, uint first, uint step, uint n_cols)
{
    return fetch_at(chunk_at(w, row, first, n_cols), first);
}

Chunk load_chunk(Weight w, uint row, uint first, uint step, uint n_cols)
{
    Chunk c = fetch_chunk(w, row, first, step, n_cols);
    if (first >= n_cols)
        c.scale = c.bias = 0;
    return c;
}

#define TWO_TO(e) uintBitsToFloat(uint(127 + (e)) << 23)
const int B = int(BITS);
#define POWERS_FROM(e)                                                               \
    vec4(TWO_TO(e), TWO_TO((e) + B), BITS < 6 ? TWO_TO((e) + 2 * B) : TWO_TO(e), \
         BITS < 6 ? TWO_TO((e) + 3 * B) : TWO_TO((e) + B))
#define FACTORS_FROM(e)                                                              \
    vec4(TWO_TO(e), TWO_TO((e) - B), BITS < 6 ? TWO_TO((e) - 2 * B) : TWO_TO(e), \
         BITS < 6 ? TWO_TO((e) - 3 * B) : TWO_TO((e) - B))
#ifdef SUBNORMAL
// Values 4j .. 4j + 3, times the powers of two that QUAD_FACTORS undo, in x, but for 2^-60: where they
// lie in a word, or in its upper half, as the last bits of a float whose others are zero. That needs
// no subtraction. x below 2^39 stays finite, and nothing is rounded that is not far below 2^-66.
#define QUAD_POWERS(j) POWERS_FROM(-89)
#define QUAD_FACTORS(j) FACTORS_FROM(89)
#define DOT_FACTOR TWO_TO(60)
#else
// The same without 2^-60, where floats below the least normal one may count as zero: the bits become
// the last ones of 2^23 and more, and lose the 2^23 again.
#define QUAD_POWERS(j) POWERS_FROM(0)
#define QUAD_FACTORS(j) FACTORS_FROM(0)
#define DOT_FACTOR 1.0
#endif

vec4 quad(Chunk c, uint j)
{
    const uint word = j * 4 * BITS / 32, at = j * 4 * BITS % 32, mask = (1u << BITS) - 1;
    uint w = c.words[word] >> at;
    if (at + 4 * BITS > 32)
        w |= c.words[word + 1] << (32 - at);
    const uint next = BITS < 6 ? w : w >> (2 * BITS);
    const uint at2 = BITS < 6 ? 2 * BITS : 0;
    const uvec4 q = uvec4(w & mask, w & mask << BITS, next & mask << at2, next & mask << (at2 + BITS));
#ifdef SUBNORMAL
    return uintBitsToFloat(q);
#else
    return uintBitsToFloat(q | code_base) - 8388608.0;
#endif
}

// The chunk's part of a product: dot is of the values above, x_sum of x.
float part_of(Chunk c, float dot, float x_sum)
{
    precise float part = fma(float_of(c.scale), dot * DOT_FACTOR, float_of(c.bias) * x_sum);
    return part;
}

vec2 line_of(Chunk c)
{
    return vec2(float_of(c.scale), float_of(c.bias));
}

vec4 values_of(Chunk c, uint j, vec2 line)
{
    return fma(quad(c, j), QUAD_FACTORS(j) * line.x, vec4(line.y));
}
#endif

#ifdef FP8
Chunk fetch_chunk(Weight w, uint row, uint col, uint step, uint n_cols)
{
    Chunk c;
    const uint64_t at = w.values + uint64_t(row) * n_cols;
    if (IS_WIDE != 0) { // n_cols is a multiple of 16
        [[unroll]] for (uint i = 0; i < 2; i++) {
            uvec4 v = uvec4(0);
            if (col + i * 16 < n_cols)
                v = Words4(at + col).v[i];
            [[unroll]] for (uint e = 0; e < 4; e++)
                c.words[i * 4 + e] = v[e];
        }
    } else {
        [[unroll]] for (uint i = 0; i < 8; i++) {
            c.words[i] = 0;
            [[unroll]] for (uint e = 0; e < 4; e++)
                if (col + i * 4 + e < n_cols)
                    c.words[i] |= byte_at(at, col + i * 4 + e) << (8 * e);
        }
    }
    const uint64_t block = uint64_t(row / SCALE_ROWS) * ((n_cols + 127) / 128) + col / 128;
    c.scale = 0;
    if (col < n_cols)
        c.scale = Words(w.scales + block * 4).v[0];
    return c;
}

float value(Chunk c, uint i)
{
    return e4m3(c.words[i / 4] >> (i % 4 * 8) & 255);
}

float part_of(Chunk c, float dot, float x_sum)
{
    precise float part = uintBitsToFloat(c.scale) * dot;
    return part;
}

vec2 line_of(Chunk c)
{
    return vec2(uintBitsToFloat(c.scale), 0.0);
}
#endif

#ifdef FLOATS
uint load_half(uint64_t at, uint col, uint n_cols)
{
    return col < n_cols ? uint(Halves(at).v[col]) : 0;
}

Chunk fetch_chunk(Weight w, uint row, uint first, uint step, uint n_cols)
{
    Chunk c;
    const uint n_pieces = CHUNK / PIECE;
    const uint64_t at = w.values + uint64_t(row) * n_cols * (FLOAT_TYPE == F32 ? 4 : 2);
    [[unroll]] for (uint i = 0; i < n_pieces; i++) {
        const uint col = first + i * step;
        if (IS_WIDE != 0) { // n_cols is a multiple of PIECE
            uvec4 v = uvec4(0);
            if (col < n_cols)
                v = Words4(at + uint64_t(col) * (16 / PIECE)).v[0];
            [[unroll]] for (uint e = 0; e < 4; e++)
                c.words[i * 4 + e] = v[e];
        } else if (FLOAT_TYPE == F32) {
            [[unroll]] for (uint e = 0; e < 4; e++)
                c.words[i * 4 + e] = col + e < n_cols ? Words(at).v[col + e] : 0;
        } else {
            [[unroll]] for (uint e = 0; e < 4; e++)
                c.words[i * 4 + e] = load_half(at, col + 2 * e, n_cols) |
                                     load_half(at, col + 2 * e + 1, n_cols) << 16;
        }
    }
    return c;
}

float value(Chunk c, uint i)
{
    return FLOAT_TYPE == F32 ? uintBitsToFloat(c.words[i]) : floats_of(c.words[i / 2])[i % 2];
}
#endif

#ifdef ANY
#include "blocks.glsl"

// Those of 4 bits of which a byte has two side by side, and 16 a scale.
Chunk load_fp4(Weight w, uint row, uint col, uint n_cols)
{
    Chunk c;
    const uvec4 v = Words4(w.values + uint64_t(row) * (n_cols / 2) + col / 2).v[0];
    const uint64_t scales = w.scales + uint64_t(row) * (n_cols / 16);
    const float factor = f32_at(w.biases);
    float scale[2];
    scale[0] = e4m3(byte_at(scales, col / 16));
    scale[1] = col + 16 < n_cols ? e4m3(byte_at(scales, col / 16 + 1)) : 0.0;
    [[unroll]] for (uint i = 0; i < CHUNK; i++) {
        precise float x = e2m1(v[i / 8] >> (i % 8 * 4) & 15) * scale[i / 16];
        x *= factor;
        c.words[i] = floatBitsToUint(col + i < n_cols ? x : 0.0);
    }
    return c;
}

Chunk fetch_values(Weight w, uint row, uint first, uint step, uint n_cols)
{
    Chunk c;
    if (IS_WIDE != 0 && IS_FP4) {
        c = load_fp4(w, row, first < n_cols ? first : 0, n_cols);
        [[unroll]] for (uint i = 0; i < CHUNK; i++)
            c.words[i] = first < n_cols ? c.words[i] : 0;
        return c;
    }
    for (uint i = 0; i < CHUNK; i++) {
        const uint col = first + i / PIECE * step + i % PIECE;
        c.words[i] = 0;
        if (col < n_cols)
            c.words[i] = floatBitsToUint(weight_value(w, row, col, n_cols));
    }
    return c;
}

// Where a chunk's bytes begin, if it is of a block.
Weight chunk_at(Weight w, uint row, uint first, uint n_cols)
{
    return block_of(block_row(w, row, n_cols), first < n_cols ? first : 0);
}

uint row_bytes(uint n_cols)
{
    return block_row_bytes(n_cols);
}

uint scale_row_bytes(uint n_cols)
{
    return block_scale_row_bytes(n_cols);
}

// There, of the column that it was asked for.
#define HAS_PLACES IS_BLOCK
Chunk fetch_at(Weight at, uint col)
{
    return fetch_block(at, col);
}

Chunk fetch_chunk(Weight w, uint row, uint first, uint step, uint n_cols)
{
    if (!IS_BLOCK)
        return fetch_values(w, row, first, step, n_cols);
    return fetch_at(chunk_at(w, row, first, n_cols), first < n_cols ? first : 0);
}

vec4 quad(Chunk c, uint j)
{
    if (IS_BLOCK)
        return block_quad(c, j);
    return uintBitsToFloat(uvec4(c.words[4 * j], c.words[4 * j + 1], c.words[4 * j + 2],
                                 c.words[4 * j + 3]));
}

float part_of(Chunk c, float dot, float x_sum)
{
    if (!IS_BLOCK)
        return dot;
    const vec2 line = block_line(c);
    precise float part = line.x * dot;
    if (HAS_MIN)
        part = fma(line.x, dot, line.y * x_sum);
    return part;
}

vec2 line_of(Chunk c)
{
    return IS_BLOCK ? block_line(c) : vec2(1.0, 0.0);
}

vec4 values_of(Chunk c, uint j, vec2 line)
{
    const vec4 v = quad(c, j);
    if (!IS_BLOCK)
        return v;
    const vec4 scale = QUAD_FACTORS(j) * line.x;
    return HAS_MIN ? fma(v, scale, vec4(line.y)) : v * scale;
}
#endif

#ifdef FLOATS
float part_of(Chunk c, float dot, float x_sum)
{
    return dot;
}

vec2 line_of(Chunk c)
{
    return vec2(1.0, 0.0);
}
#endif

#ifdef ANY
void clear_beyond(inout Chunk c, uint first, uint n_cols)
{
    if (first < n_cols)
        return;
    [[unroll]] for (uint i = 0; i < N_WORDS; i++)
        c.words[i] = 0;
    c.scale = c.bias = 0;
}

Chunk load_chunk(Weight w, uint row, uint first, uint step, uint n_cols)
{
    Chunk c = fetch_chunk(w, row, first, step, n_cols);
    if (IS_BLOCK)
        clear_beyond(c, first, n_cols);
    return c;
}

// Of a row that begins at `row` (block_row).
Chunk load_of_row(Weight row, uint first, uint n_cols)
{
    const uint col = first < n_cols ? first : 0;
    Chunk c = fetch_block(block_of(row, col), col);
    clear_beyond(c, first, n_cols);
    return c;
}
#elif !defined(AFFINE)
#define QUAD_FACTORS(j) vec4(1.0)

Chunk load_chunk(Weight w, uint row, uint first, uint step, uint n_cols)
{
    return fetch_chunk(w, row, first, step, n_cols);
}

vec4 quad(Chunk c, uint j)
{
    return vec4(value(c, 4 * j), value(c, 4 * j + 1), value(c, 4 * j + 2), value(c, 4 * j + 3));
}

vec4 values_of(Chunk c, uint j, vec2 line)
{
#ifdef FLOATS
    return quad(c, j);
#else
    return quad(c, j) * line.x;
#endif
}
#endif

// Before anything is multiplied, by all invocations; zero: 0, which no compiler knows.
#ifndef ANY
void begin_chunks(uint id, uint zero)
{
    code_base = 0x4b000000u + zero;
}
#endif

// Precise: in every shader the same.
float add_quad(float dot, vec4 w, vec4 x)
{
    precise float sum = fma(w.w, x.w, fma(w.z, x.z, fma(w.y, x.y, fma(w.x, x.x, dot))));
    return sum;
}

float add_product(float dot, float w, float x)
{
    precise float sum = fma(w, x, dot);
    return sum;
}

float sum_of_quads(vec4 x[CHUNK / 4])
{
    precise float s[CHUNK / 4];
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++)
        s[j] = (x[j].x + x[j].y) + (x[j].z + x[j].w);
    precise float sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    return sum;
}

float add_part(float sum, float part)
{
    precise float result = sum + part;
    return result;
}
