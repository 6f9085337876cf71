// SPDX-License-Identifier: MIT
// 32 columns of formats whose scales lie in the blocks, or beside 32 codes: their bytes as they lie, at
// any alignment, by whole words around them. Nothing is computed of them before they are used. A value
// is scale * (code - ZERO) + bias, or scale * level of the code.
// The words that hold n_words * 4 bytes from p on, and no word more: the last may come twice.
void fetch_words(inout Chunk c, uint to, uint64_t p, uint n_words)
{
    Words from = Words(p & ~uint64_t(3));
    [[unroll]] for (uint i = 0; i < n_words; i++)
        c.words[to + i] = from.v[i];
    c.words[to + n_words] = from.v[(uint(p) & 3) != 0 ? n_words : n_words - 1];
}

// Word i of what fetch_words put there: `shift` is 8 times the bytes from a word's beginning.
uint word_at(Chunk c, uint at, uint i, uint shift)
{
    return uint((uint64_t(c.words[at + i + 1]) << 32 | uint64_t(c.words[at + i])) >> shift);
}

uint load_u16(uint64_t p)
{
    return IS_WIDE != 0 ? uint(Halves(p).v[0]) : u16_at(p, 0);
}

// Shifts of codes, of high bits, of scales; a part's number.
uint shifts_of(uint64_t codes, uint64_t high, uint64_t head, uint part)
{
    return (uint(codes) & 3) * 8 | (uint(high) & 3) * 8 << 5 | (uint(head) & 3) * 8 << 10 | part << 15;
}

#define SHIFTS(c) (c).words[BLOCK_WORDS - 1]
#define CODE_SHIFT(c) (SHIFTS(c) & 31)
#define HIGH_SHIFT(c) (SHIFTS(c) >> 5 & 31)
#define HEAD_SHIFT(c) (SHIFTS(c) >> 10 & 31)
#define PART(c) (SHIFTS(c) >> 15)

Chunk fetch_small(uint64_t p)
{
    Chunk c;
    const uint64_t high = p + (IS_MIN_IN_BLOCK ? 4 : 2), codes = high + (IS_SMALL5 ? 4 : 0);
    fetch_words(c, 0, codes, CODE_WORDS - 1);
    if (IS_SMALL5)
        fetch_words(c, HIGH_AT, high, 1);
    c.scale = load_u16(p);
    c.bias = IS_MIN_IN_BLOCK ? load_u16(p + 2) : 0;
    SHIFTS(c) = shifts_of(codes, high, 0, 0);
    return c;
}

// The part of 32 of Q4_K and Q5_K: two parts share 32 bytes of codes, all eight 32 of fifth bits.
Chunk fetch_k(uint64_t p, uint part)
{
    Chunk c;
    const uint64_t codes = p + (HAS_HIGH ? 48 : 16) + part / 2 * 32;
    fetch_words(c, 0, codes, 8);
    if (HAS_HIGH)
        fetch_words(c, HIGH_AT, p + 16, 8);
    fetch_words(c, HEAD_AT, p, 4);
    c.scale = c.bias = 0;
    SHIFTS(c) = shifts_of(codes, p, p, part);
    return c;
}

// Of Q6_K: two parts share 32 bytes of codes, four 32 of high bits; each 16 columns have a scale.
Chunk fetch_q6_k(uint64_t p, uint part)
{
    Chunk c;
    const uint64_t codes = p + part / 4 * 64 + part % 2 * 32, high = p + 128 + part / 4 * 32;
    fetch_words(c, 0, codes, 8);
    fetch_words(c, HIGH_AT, high, 8);
    c.scale = load_u16(p + 208);
    c.bias = load_u16(p + 192 + part * 2);
    SHIFTS(c) = shifts_of(codes, high, 0, part);
    return c;
}

Chunk fetch_iq4_xs(uint64_t p, uint part)
{
    Chunk c;
    const uint64_t codes = p + 8 + part * 16;
    fetch_words(c, 0, codes, 4);
    fetch_words(c, HEAD_AT, p, 2);
    c.scale = c.bias = 0;
    SHIFTS(c) = shifts_of(codes, 0, p, part);
    return c;
}

// Codes, and one byte that is a scale.
Chunk fetch_mx(uint64_t codes, uint64_t scale)
{
    Chunk c;
    fetch_words(c, 0, codes, 4);
    c.scale = byte_at(scale, 0);
    c.bias = 0;
    SHIFTS(c) = shifts_of(codes, 0, 0, 0);
    return c;
}

Chunk fetch_block(Weight w, uint row, uint col, uint n_cols)
{
    const uint64_t small = uint64_t(row) * (n_cols / 32) + col / 32;
    const uint64_t large = uint64_t(row) * (n_cols / 256) + col / 256;
    const uint part = col / 32 % 8;
    switch (KIND) {
    case KIND_Q4_K:
        return fetch_k(w.values + large * 144, part);
    case KIND_Q5_K:
        return fetch_k(w.values + large * 176, part);
    case KIND_Q6_K:
        return fetch_q6_k(w.values + large * 210, part);
    case KIND_IQ4_XS:
        return fetch_iq4_xs(w.values + large * 136, part);
    case KIND_GGUF_MXFP4:
        return fetch_mx(w.values + small * 17 + 1, w.values + small * 17);
    case KIND_MXFP4:
        return fetch_mx(w.values + small * 16, w.scales + small);
    case KIND_Q8_0:
        return fetch_small(w.values + small * 34);
    default:
        return fetch_small(w.values + small * ((IS_MIN_IN_BLOCK ? 4 : 2) + (IS_SMALL5 ? 4 : 0) + 16));
    }
}

// The codes of values 4j .. 4j + 3, a byte each.
uint codes_at(Chunk c, uint j)
{
    const uint shift = CODE_SHIFT(c), part = PART(c), low = 0x0f0f0f0fu;
    if (KIND == KIND_Q8_0)
        return word_at(c, 0, j, shift) ^ 0x80808080u;
    if (IS_K) {
        uint codes = word_at(c, 0, j, shift) >> (part % 2 * 4) & low;
        if (HAS_HIGH)
            codes |= (word_at(c, HIGH_AT, j, HIGH_SHIFT(c)) >> part & 0x01010101u) << 4;
        return codes;
    }
    if (KIND == KIND_Q6_K) {
        const uint high = word_at(c, HIGH_AT, j, HIGH_SHIFT(c)) >> (part % 4 * 2) & 0x03030303u;
        return (word_at(c, 0, j, shift) >> (part % 4 / 2 * 4) & low) | high << 4;
    }
    if (KIND == KIND_MXFP4) { // two that are neighbours share a byte
        const uint four = word_at(c, 0, j / 2, shift) >> (j % 2 * 16);
        return (four & 15) | (four & 0xf0) << 4 | (four & 0xf00) << 8 | (four & 0xf000) << 12;
    }
    uint codes = word_at(c, 0, j % 4, shift) >> (j / 4 * 4) & low;
    if (IS_SMALL5) {
        const uint fifth = word_at(c, HIGH_AT, 0, HIGH_SHIFT(c)) >> (4 * j);
        codes |= (fifth & 1) << 4 | (fifth & 2) << 11 | (fifth & 4) << 18 | (fifth & 8) << 25;
    }
    return codes;
}

float level_of(uint code)
{
    if (KIND == KIND_MXFP4 || KIND == KIND_GGUF_MXFP4)
        return e2m1(code);
    return float(int(iq4_level(code)) - 128);
}

// Codes stay where they lie in a word's halves: in x a power of two undoes that.
const float POWER = HAS_LEVELS || !IS_BLOCK ? 1.0 : 256.0;
#define QUAD_FACTORS vec4(1.0, 1.0 / POWER, 1.0, 1.0 / POWER)
#define QUAD_POWERS vec4(1.0, POWER, 1.0, POWER)
const float ZERO = KIND == KIND_Q4_0 ? 8.0
                   : KIND == KIND_Q5_0 ? 16.0
                   : KIND == KIND_Q8_0 ? 128.0
                   : KIND == KIND_Q6_K ? 32.0
                                       : 0.0;

// Values 4j .. 4j + 3 without the block's scale, times QUAD_POWERS.
vec4 block_quad(Chunk c, uint j)
{
    const uint codes = codes_at(c, j);
    if (HAS_LEVELS)
        return vec4(level_of(codes & 255), level_of(codes >> 8 & 255), level_of(codes >> 16 & 255),
                    level_of(codes >> 24));
    const uvec4 q = uvec4(codes, codes, codes >> 16, codes >> 16) & uvec4(0xff, 0xff00, 0xff, 0xff00);
    // the last bits of 2^23 and more, which goes again with the zero
    vec4 v = uintBitsToFloat(q | 0x4b000000u) - (8388608.0 + ZERO * QUAD_POWERS);
    if (KIND == KIND_Q6_K)
        v *= float(int8_of(c.bias >> (j / 4 * 8) & 255));
    return v;
}

// The scale and the bias of a value. Six bits each of Q4_K and Q5_K: four parts' in the low bits of a
// word each, four parts' spread over three.
vec2 block_line(Chunk c)
{
    const uint part = PART(c), shift = HEAD_SHIFT(c);
    if (IS_K) {
        const uint by = part % 4 * 8, d = word_at(c, HEAD_AT, 0, shift);
        const uint low = word_at(c, HEAD_AT, 1, shift) >> by;
        const uint middle = word_at(c, HEAD_AT, 2, shift) >> by;
        const uint high = word_at(c, HEAD_AT, 3, shift) >> by;
        uint scale = low & 63, minimum = middle & 63;
        if (part >= 4) {
            scale = (high & 15) | (low >> 6 & 3) << 4;
            minimum = (high >> 4 & 15) | (middle >> 6 & 3) << 4;
        }
        return vec2(float(scale) * half_to_float(d & 0xffffu),
                    -(float(minimum) * half_to_float(d >> 16)));
    }
    if (KIND == KIND_IQ4_XS) {
        const uint d = word_at(c, HEAD_AT, 0, shift), lows = word_at(c, HEAD_AT, 1, shift);
        const uint scale = (lows >> (part * 4) & 15) | (d >> (16 + part * 2) & 3) << 4;
        return vec2(half_to_float(d & 0xffffu) * float(int(scale) - 32), 0.0);
    }
    if (KIND == KIND_MXFP4 || KIND == KIND_GGUF_MXFP4)
        return vec2(e8m0(c.scale), 0.0);
    return vec2(half_to_float(c.scale), half_to_float(c.bias));
}
