// SPDX-License-Identifier: MIT
// 32 columns of formats whose scales lie in the blocks, or beside 32 codes: their bytes as they lie, at
// any alignment, by whole words around them. Nothing is computed of them before they are used. A value
// is scale * (code - ZERO) + bias, or scale * level of the code.
shared float block_levels[16];

// As chunks.glsl has it; invocations' numbers are below 16 for some of each.
void begin_chunks(uint id, uint zero)
{
    code_base = 0x4b000000u + zero;
    if (!HAS_LEVELS)
        return;
    if (id < 16)
        block_levels[id] = IS_E2M1 ? e2m1(id) : float(int(iq4_level(id)) - 128);
    barrier();
}

// The words that hold n_words * 4 bytes from p on, and no word more: the last may come twice.
void fetch_words(inout Chunk c, uint to, uint64_t p, uint n_words)
{
    Words from = Words(p & ~uint64_t(3));
    [[unroll]] for (uint i = 0; i < n_words; i++)
        c.words[to + i] = from.v[i];
    c.words[to + n_words] = from.v[(uint(p) & 3) != 0 ? n_words : n_words - 1];
}

// Where p is aligned to them.
void fetch_fours(inout Chunk c, uint to, uint64_t p, uint n_fours)
{
    [[unroll]] for (uint i = 0; i < n_fours; i++) {
        const uvec4 v = Words4(p).v[i];
        [[unroll]] for (uint e = 0; e < 4; e++)
            c.words[to + i * 4 + e] = v[e];
    }
}

void fetch_twos(inout Chunk c, uint to, uint64_t p, uint n_twos)
{
    [[unroll]] for (uint i = 0; i < n_twos; i++) {
        const uvec2 v = Words2(p).v[i];
        c.words[to + i * 2] = v.x;
        c.words[to + i * 2 + 1] = v.y;
    }
}

// Word i of what has been put there: `shift` is 8 times the bytes from a word's beginning, up to 32.
uint word_at(Chunk c, uint at, uint i, uint shift)
{
    if (IS_EVEN)
        return c.words[at + i];
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

// A block with all that belongs to it.
Chunk fetch_small(uint64_t p)
{
    Chunk c;
    const uint skew = uint(p) & 3;
    const bool is_last_needed = SMALL_SKEW == 2 ? SMALL_BYTES % 4 == 2 : SMALL_BYTES % 4 == 1;
    Words from = Words(p & ~uint64_t(3));
    [[unroll]] for (uint i = 0; i + 1 < CODE_WORDS; i++)
        c.words[i] = from.v[i];
    c.words[CODE_WORDS - 1] = from.v[is_last_needed ? CODE_WORDS - 1 : (skew + SMALL_BYTES - 1) / 4];
    c.scale = c.bias = 0;
    SHIFTS(c) = skew * 8;
    return c;
}

// Word i of a small block's bytes from `from` on.
uint small_word(Chunk c, uint from, uint i)
{
    const uint at = from / 4, rest = from % 4 * 8, shift = CODE_SHIFT(c);
    if (rest + SMALL_SKEW * 8 <= 32)
        return word_at(c, at, i, shift + rest);
    return word_at(c, at, i, shift) >> rest | word_at(c, at, i + 1, shift) << (32 - rest);
}

// The part of 32 of Q4_K and Q5_K: two parts share 32 bytes of codes, all eight 32 of fifth bits.
Chunk fetch_k(uint64_t p, uint part)
{
    Chunk c;
    const uint64_t codes = p + (HAS_HIGH ? 48 : 16) + part / 2 * 32;
    if (IS_EVEN) {
        fetch_fours(c, 0, codes, 2);
        if (HAS_HIGH)
            fetch_fours(c, HIGH_AT, p + 16, 2);
        fetch_fours(c, HEAD_AT, p, 1);
    } else {
        fetch_words(c, 0, codes, 8);
        if (HAS_HIGH)
            fetch_words(c, HIGH_AT, p + 16, 8);
        fetch_words(c, HEAD_AT, p, 4);
    }
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
    if (IS_EVEN) {
        fetch_twos(c, 0, codes, 2);
        fetch_twos(c, HEAD_AT, p, 1);
    } else {
        fetch_words(c, 0, codes, 4);
        fetch_words(c, HEAD_AT, p, 2);
    }
    c.scale = c.bias = 0;
    SHIFTS(c) = shifts_of(codes, 0, p, part);
    return c;
}

// Codes, and one byte that is a scale.
Chunk fetch_mxfp4(uint64_t codes, uint64_t scale)
{
    Chunk c;
    if (IS_EVEN)
        fetch_fours(c, 0, codes, 1);
    else
        fetch_words(c, 0, codes, 4);
    c.scale = byte_at(scale, 0);
    c.bias = 0;
    SHIFTS(c) = shifts_of(codes, 0, 0, 0);
    return c;
}

// Bytes of a row, and of its scales where they are an array.
uint block_row_bytes(uint n_cols)
{
    return n_cols / BLOCK_COLS * BLOCK_BYTES;
}

uint block_scale_row_bytes(uint n_cols)
{
    return KIND == KIND_MXFP4 ? n_cols / 32 : 0;
}

// Where a row begins; where the block of a column does, from there.
Weight block_row(Weight w, uint row, uint n_cols)
{
    return Weight(w.values + uint64_t(row) * block_row_bytes(n_cols),
                  w.scales + uint64_t(row) * block_scale_row_bytes(n_cols), 0);
}

Weight block_of(Weight row, uint col)
{
    return Weight(row.values + col / BLOCK_COLS * BLOCK_BYTES,
                  row.scales + (KIND == KIND_MXFP4 ? col / 32 : 0), 0);
}

// The 32 columns from `col` on of the block that they lie in.
Chunk fetch_block(Weight block, uint col)
{
    const uint part = col / 32 % 8;
    if (IS_K)
        return fetch_k(block.values, part);
    if (KIND == KIND_Q6_K)
        return fetch_q6_k(block.values, part);
    if (KIND == KIND_IQ4_XS)
        return fetch_iq4_xs(block.values, part);
    if (KIND == KIND_MXFP4)
        return fetch_mxfp4(block.values, block.scales);
    return fetch_small(block.values);
}

// The codes of values 4j .. 4j + 3, a byte each.
uint codes_at(Chunk c, uint j)
{
    const uint shift = CODE_SHIFT(c), part = PART(c), low = 0x0f0f0f0fu;
    if (KIND == KIND_Q8_0)
        return small_word(c, SMALL_HEAD, j) ^ 0x80808080u;
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
    if (KIND == KIND_IQ4_XS)
        return word_at(c, 0, j % 4, shift) >> (j / 4 * 4) & low;
    uint codes = small_word(c, SMALL_HEAD, j % 4) >> (j / 4 * 4) & low;
    if (IS_SMALL5) {
        const uint fifth = small_word(c, FIFTH_AT, 0) >> (4 * j);
        codes |= (fifth & 1) << 4 | (fifth & 2) << 11 | (fifth & 4) << 18 | (fifth & 8) << 25;
    }
    return codes;
}

// The same with what else their bytes have: block_quad masks it.
uint four_at(Chunk c, uint j)
{
    if (IS_SMALL4)
        return small_word(c, SMALL_HEAD, j % 4);
    if (KIND == KIND_Q4_K)
        return word_at(c, 0, j, CODE_SHIFT(c)) >> (PART(c) % 2 * 4);
    return codes_at(c, j);
}

// Codes stay where they lie in a word's halves, those of half a byte of small blocks where they lie in
// the byte, too: in x a power of two undoes that.
const float POWER = HAS_LEVELS || !IS_BLOCK ? 1.0 : 256.0;
#define HALF_POWER(j) (IS_SMALL4 && (j) >= 4 ? 16.0 : 1.0)
#define QUAD_POWERS(j) (vec4(1.0, POWER, 1.0, POWER) * HALF_POWER(j))
#define QUAD_FACTORS(j) (vec4(1.0, 1.0 / POWER, 1.0, 1.0 / POWER) / HALF_POWER(j))
const float ZERO = KIND == KIND_Q4_0 ? 8.0
                   : KIND == KIND_Q5_0 ? 16.0
                   : KIND == KIND_Q8_0 ? 128.0
                   : KIND == KIND_Q6_K ? 32.0
                                       : 0.0;

// Values 4j .. 4j + 3 without the block's scale, times QUAD_POWERS.
vec4 block_quad(Chunk c, uint j)
{
    const uint codes = four_at(c, j);
    if (HAS_LEVELS)
        return vec4(block_levels[codes & 255], block_levels[codes >> 8 & 255],
                    block_levels[codes >> 16 & 255], block_levels[codes >> 24]);
    const uint mask = IS_SMALL4 ? 15 << (j / 4 * 4) : KIND == KIND_Q4_K ? 15 : 255;
    const uvec4 q = uvec4(codes, codes, codes >> 16, codes >> 16) &
                    uvec4(mask, mask << 8, mask, mask << 8);
    // the last bits of 2^23 and more, which goes again with the zero
    vec4 v = uintBitsToFloat(q | code_base) - (8388608.0 + ZERO * QUAD_POWERS(j));
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
        const bool is_late = part >= 4;
        const uint scale = mix(low & 63, (high & 15) | (low >> 6 & 3) << 4, is_late);
        const uint minimum = mix(middle & 63, (high >> 4 & 15) | (middle >> 6 & 3) << 4, is_late);
        return vec2(float(scale) * half_to_float(d & 0xffffu),
                    -(float(minimum) * half_to_float(d >> 16)));
    }
    if (KIND == KIND_IQ4_XS) {
        const uint d = word_at(c, HEAD_AT, 0, shift), lows = word_at(c, HEAD_AT, 1, shift);
        const uint scale = (lows >> (part * 4) & 15) | (d >> (16 + part * 2) & 3) << 4;
        return vec2(half_to_float(d & 0xffffu) * float(int(scale) - 32), 0.0);
    }
    if (KIND == KIND_MXFP4)
        return vec2(e8m0(c.scale), 0.0);
    if (KIND == KIND_Q6_K)
        return vec2(half_to_float(c.scale), 0.0);
    const uint head = small_word(c, 0, 0);
    if (KIND == KIND_GGUF_MXFP4)
        return vec2(e8m0(head & 255), 0.0);
    return vec2(half_to_float(head & 0xffffu), IS_MIN_IN_BLOCK ? half_to_float(head >> 16) : 0.0);
}
