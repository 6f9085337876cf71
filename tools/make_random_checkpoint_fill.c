/* SPDX-License-Identifier: MIT */
/*
 * The contents: a counter-based generator (the finaliser of splitmix64 over key + counter), and
 * what each kind of tensor makes of its bits. No state: any byte of any tensor can be had alone.
 */
#include "make_random_checkpoint.h"

#include <math.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

static uint64_t word_at(uint64_t key, uint64_t i)
{
    return mix(key + i * 0x9e3779b97f4a7c15U);
}

uint64_t mf_rc_key(uint64_t seed, const char *name)
{
    uint64_t hash = 0xcbf29ce484222325U;
    for (const char *p = name; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 0x100000001b3U;
    return mix(mix(seed + 0x9e3779b97f4a7c15U) ^ hash);
}

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits += 0x7fff + ((bits >> 16) & 1);
    return (uint16_t)(bits >> 16);
}

static uint16_t to_f16(float x)
{
    uint32_t bits; /* what weights and their scales are: none is too large */
    memcpy(&bits, &x, sizeof bits);
    const uint32_t rounded = bits + 0xfff + ((bits >> 13) & 1), sign = bits >> 16 & 0x8000;
    const int32_t exponent = (int32_t)(rounded >> 23 & 0xff) - 112;
    if (exponent <= 0) /* subnormal: multiples of 2^-24 */
        return (uint16_t)(sign | (uint32_t)(fabsf(x) * 16777216.0f + 0.5f));
    return (uint16_t)(sign | (uint32_t)exponent << 10 | (rounded >> 13 & 0x3ff));
}

static float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Lane i of the key's stream of 16-bit numbers. */
static uint32_t lane16(uint64_t key, uint64_t i)
{
    return (uint32_t)(word_at(key, i >> 2) >> ((i & 3) * 16)) & 0xffff;
}

/* Within a quarter of the mean, so that neighbouring groups differ. */
static uint16_t scale_at(const mf_rc_part *part, uint32_t lane)
{
    return to_bf16(part->a * (0.75f + (float)lane * (0.5f / 65536.0f)));
}

/* The middle of the code range maps to about 0: weights have mean 0, off by at most 1%. */
static uint16_t bias_at(const mf_rc_part *part, uint32_t lane, uint32_t lane2)
{
    float middle = (float)((1u << part->bits) - 1) * 0.5f;
    float off = 0.99f + (float)lane2 * (0.02f / 65536.0f);
    return to_bf16(-from_bf16(scale_at(part, lane)) * middle * off);
}

/* Uniform in [0, 1). */
static double unit_at(uint64_t key, uint64_t i)
{
    return (double)(word_at(key, i) >> 11) * 0x1p-53;
}

/* A = exp(A_log) in [0.1, 1]: with dt in [0.001, 0.1] the decay exp(-A dt) runs from 0.9 to 0.9999.
 */
static float a_log_at(uint64_t key, uint64_t i)
{
    return (float)(unit_at(key, i) * log(10.0) - log(10.0));
}

static float dt_bias_at(uint64_t key, uint64_t i)
{
    double dt = 0.001 * pow(100.0, unit_at(key, i));
    return (float)log(expm1(dt));
}

static uint16_t element16(const mf_rc_part *part, uint64_t i, uint32_t lane)
{
    switch (part->kind) {
    case MF_RC_SCALES:
        return scale_at(part, lane);
    case MF_RC_BIASES:
        return bias_at(part, lane, lane16(~part->key, i));
    case MF_RC_NORM:
        return to_bf16(part->a + (float)((int)(lane % 33) - 16) / 128.0f);
    case MF_RC_A_LOG_BF16:
        return to_bf16(a_log_at(part->key, i));
    case MF_RC_DT_BIAS:
        return to_bf16(dt_bias_at(part->key, i));
    case MF_RC_UNIFORM_F16: /* of the same values, which f16 has but for the smallest */
        return to_f16(from_bf16(to_bf16(part->a * ((float)lane * (2.0f / 65535.0f) - 1.0f))));
    default:
        return to_bf16(part->a * ((float)lane * (2.0f / 65535.0f) - 1.0f));
    }
}

static void fill16(const mf_rc_part *part, uint64_t first, unsigned char *dst, size_t count)
{
    uint64_t word = word_at(part->key, first >> 2);
    for (size_t n = 0; n < count; n++) {
        uint64_t i = first + n;
        if ((i & 3) == 0)
            word = word_at(part->key, i >> 2);
        uint16_t value = element16(part, i, (uint32_t)(word >> ((i & 3) * 16)) & 0xffff);
        memcpy(dst + 2 * n, &value, 2);
    }
}

/* The widened kind has the values of its BF16 twin. */
static float element32(const mf_rc_part *part, uint64_t i)
{
    mf_rc_part twin = *part;
    if (part->kind == MF_RC_NORM_F32 || part->kind == MF_RC_DT_BIAS_F32) {
        twin.kind = part->kind == MF_RC_NORM_F32 ? MF_RC_NORM : MF_RC_DT_BIAS;
        return from_bf16(element16(&twin, i, lane16(part->key, i)));
    }
    if (part->kind == MF_RC_DECAY_F32)
        return -expf(a_log_at(part->key, i));
    if (part->kind == MF_RC_UNIFORM_F32)
        return from_bf16(element16(part, i, lane16(part->key, i)));
    if (part->kind == MF_RC_E4M3_SCALES)
        return part->a * (0.75f + (float)lane16(part->key, i) * (0.5f / 65536.0f));
    float value = a_log_at(part->key, i);
    return part->bits == 16 ? from_bf16(to_bf16(value)) : value; /* widened from a BF16 original */
}

/* Eight e4m3 numbers: a sign, and 0x38 (1.0) to 0x57 (15). */
static uint64_t fp8_word(uint64_t random)
{
    return (random & 0x8080808080808080U) | (0x3838383838383838U + (random & 0x1f1f1f1f1f1f1f1fU));
}

/* Of a row of so many numbers below `below`: equally far apart, so that none is there twice. */
static uint64_t table_at(const mf_rc_part *part, uint64_t i)
{
    const uint64_t n = (uint64_t)part->a, below = part->bits, row = i / n;
    return (word_at(part->key, row) % below + i % n * (below / n)) % below;
}

static void put16(unsigned char *to, uint16_t x)
{
    to[0] = (unsigned char)x;
    to[1] = (unsigned char)(x >> 8);
}

/* Random bytes, then the scale: within a quarter of the mean. Codes without a minimum are not as
 * often below zero as above it; a scale of either sign makes up for it, or products of such
 * matrices have one direction whatever the token, and every token the same experts. */
static void fill_block_of(const mf_rc_part *part, uint64_t i, unsigned char *dst)
{
    const mf_rc_block_type *b = part->block;
    const uint64_t n_words = (b->n_bytes + 7) / 8;
    for (uint64_t w = 0; w < n_words; w++) {
        const uint64_t word = word_at(part->key, i * n_words + w);
        memcpy(dst + 8 * w, &word, w + 1 < n_words ? 8 : b->n_bytes - 8 * w);
    }
    const float scale = part->a * (0.75f + (float)lane16(~part->key, i) * (0.5f / 65536.0f));
    const uint16_t sign = (uint16_t)(word_at(~part->key, i) >> 48 & 0x8000);
    switch (b->scales) {
    case MF_RC_SCALE_E8M0:
        dst[b->scale_at] = (unsigned char)(127 + (int)lroundf(log2f(part->a)));
        break;
    case MF_RC_SCALE_E4M3: /* 0.75 to 1.375, by eighths and sixteenths */
        for (uint32_t k = 0; k < 4; k++)
            dst[b->scale_at + k] = (unsigned char)(0x34 + (dst[b->scale_at + k] & 7));
        break;
    case MF_RC_SCALE_NIBBLES:
        for (uint32_t k = 0; k < 4; k++) {
            unsigned char *high = dst + b->scale_at + 2 * k + 1;
            *high = (unsigned char)((*high & 15) | ((to_f16(scale) | sign) >> (4 * k) & 15) << 4);
        }
        break;
    case MF_RC_SCALE_F16:
        put16(dst + b->scale_at, (uint16_t)(to_f16(scale) | (b->minimum != 0.0f ? 0 : sign)));
        if (b->minimum != 0.0f)
            put16(dst + b->scale_at + 2, to_f16(scale * b->minimum));
        break;
    }
}

static size_t element_bytes(const mf_rc_part *part)
{
    switch (part->kind) {
    case MF_RC_BLOCKS:
        return part->block->n_bytes;
    case MF_RC_NORM_F32:
    case MF_RC_DT_BIAS_F32:
    case MF_RC_DECAY_F32:
    case MF_RC_TABLE_I32:
        return 4;
    case MF_RC_CODES:
    case MF_RC_E4M3:
    case MF_RC_E8M0:
    case MF_RC_TABLE:
        return 8;
    case MF_RC_A_LOG_F32:
    case MF_RC_UNIFORM_F32:
    case MF_RC_E4M3_SCALES:
        return 4;
    default:
        return 2;
    }
}

static void fill_elements(const mf_rc_part *part, uint64_t first, unsigned char *dst, size_t count)
{
    if (part->kind == MF_RC_BLOCKS) {
        for (size_t n = 0; n < count; n++)
            fill_block_of(part, first + n, dst + n * part->block->n_bytes);
    } else if (part->kind == MF_RC_TABLE_I32) {
        for (size_t n = 0; n < count; n++) {
            const uint32_t value = (uint32_t)table_at(part, first + n);
            memcpy(dst + 4 * n, &value, 4);
        }
    } else if (element_bytes(part) == 8) {
        for (size_t n = 0; n < count; n++) {
            uint64_t word = word_at(part->key, first + n);
            if (part->kind == MF_RC_E4M3)
                word = fp8_word(word);
            else if (part->kind == MF_RC_E8M0)
                word = part->bits * 0x0101010101010101U;
            else if (part->kind == MF_RC_TABLE)
                word = table_at(part, first + n);
            memcpy(dst + 8 * n, &word, 8);
        }
    } else if (element_bytes(part) == 4) {
        for (size_t n = 0; n < count; n++) {
            float value = element32(part, first + n);
            memcpy(dst + 4 * n, &value, 4);
        }
    } else {
        fill16(part, first, dst, count);
    }
}

void mf_rc_fill(const mf_rc_part *part, uint64_t offset, void *dst, size_t n_bytes)
{
    unsigned char *to = dst;
    size_t size = element_bytes(part);
    unsigned char element[256]; /* the largest block */
    size_t skip = (size_t)(offset % size);
    if (skip) { /* a buffer that begins in the middle of an element */
        size_t take = size - skip < n_bytes ? size - skip : n_bytes;
        fill_elements(part, offset / size, element, 1);
        memcpy(to, element + skip, take);
        to += take;
        offset += take;
        n_bytes -= take;
    }
    size_t whole = n_bytes / size;
    fill_elements(part, offset / size, to, whole);
    if (n_bytes % size) {
        fill_elements(part, offset / size + whole, element, 1);
        memcpy(to + whole * size, element, n_bytes % size);
    }
}
