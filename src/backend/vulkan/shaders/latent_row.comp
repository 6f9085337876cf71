#version 460
// SPDX-License-Identifier: MIT
// Attention of one row of one sequence over latents, as attention.comp has it and with its bits: a workgroup has a
// block of positions (z) and a few heads (x). All of the block's keys are on their way before any is used. What is
// rotated of the queries is rotated here, and the row that the operation appends is normed and rotated, with the bits
// of rmsnorm.comp and rope.comp; of those that have its block, the one with the first heads writes it to its page.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "attention.glsl"
#include "rotate.glsl"

layout(constant_id = 1) const uint TYPE = F32; // of the cache
layout(constant_id = 2) const uint LATENT = 512;
layout(constant_id = 3) const uint ROT = 64;    // behind it; both together are whole SLICEs
layout(constant_id = 4) const uint QUERIES = 4; // heads of a workgroup: 1 or an even number, up to 8
layout(constant_id = 5) const uint EPS = 0;     // a float's bits
layout(constant_id = 6) const uint IS_INTERLEAVED = 0;

layout(push_constant, scalar) uniform Push {
    uint64_t q, q_rot;     // of the heads: latents, and what is rotated, q_rot_head floats apart
    uint64_t kv, norm;     // the row as it comes, and its norm's weights
    uint64_t cosine, sine; // of the row's position; 0: nothing is rotated
    Floats result;
    Floats sums, ends; // of n_blocks: as attention.comp's
    Addresses pages;
    uint64_t page_offset;
    uint n_heads, q_rot_head, position, n_blocks; // n_blocks 0: there is one
    float scale;                                  // and log2(e)
    uint zero; // 0, which no compiler knows: it unrolls loops that it knows the end of
} p;

const uint THREADS = 512;
const uint HEAD = LATENT + ROT, N_KEYS = 1, LATENT4 = LATENT / 4, ROT4 = ROT / 4;
const uint SLICE = 64, SLICE4 = SLICE / 4, HEAD4 = HEAD / 4, STRIDE = SLICE4 + 1;
const uint N_VALUES = 16; // on their way; a divisor of PAGE
const uint SQUARES = (LATENT4 + 31) / 32 * 32;
const uint EACH = QUERIES > 1 ? 2 : 1; // scores of an invocation, of a key

shared vec4 keys[BLOCK * STRIDE];
shared vec4 queries[QUERIES * HEAD4];
shared vec4 powers[QUERIES * BLOCK / 4];
shared float block_sums[QUERIES];
shared vec4 fresh_row[HEAD4]; // as it will be read from the cache
shared float squares[SQUARES];
shared float norm_parts[THREADS];
#include "norm.glsl"
#define QUADS LATENT4
#include "norm_quads.glsl"

#define KEY_QUAD(i) keys[i]
#define QUERY_QUAD(i) queries[i]
#define POWER_QUAD(i) powers[i]
#include "attention_block.glsl"

// Quad i of ROT columns.
vec4 rotated_quad(uint64_t row, uint i)
{
    const uint half4 = ROT4 / 2, pair = IS_INTERLEAVED != 0 ? 2 * i : 4 * (i % half4);
    vec4 x = Floats4(row).v[i], other = x.yxwz;
    if (p.cosine == 0)
        return x;
    if (IS_INTERLEAVED == 0)
        other = Floats4(row).v[i < half4 ? i + half4 : i - half4];
    [[unroll]] for (uint e = 0; e < 4; e++) {
        const uint at = pair + (IS_INTERLEAVED != 0 ? e / 2 : e);
        const bool is_second = IS_INTERLEAVED != 0 ? e % 2 != 0 : i >= half4;
        const float sine = Floats(p.sine).v[at];
        x[e] = rotated(x[e], other[e], Floats(p.cosine).v[at], is_second ? -sine : sine);
    }
    return x;
}

void load_queries(uint first_head, uint t)
{
    for (uint i = t; i < QUERIES * HEAD4; i += THREADS) {
        const uint head = first_head + i / HEAD4, quad = i % HEAD4;
        vec4 x = vec4(0.0);
        if (head < p.n_heads)
            x = quad < LATENT4 ? Floats4(p.q).v[head * LATENT4 + quad]
                               : rotated_quad(p.q_rot + head * (p.q_rot_head * 4), quad - LATENT4);
        queries[i] = x;
    }
}

// The row that is appended, to fresh_row, of which a quad is an invocation's; every invocation comes here.
vec4 make_fresh(uint t)
{
    vec4 x = vec4(0.0), weight = vec4(0.0);
    if (t < LATENT4) {
        x = Floats4(p.kv).v[t];
        weight = Floats4(p.norm).v[t];
    }
    if (t < SQUARES)
        squares[t] = squared(x);
    barrier();
    const float scale = scale_of_row(uintBitsToFloat(EPS), lane_number());
    if (t < LATENT4)
        x = normed(x, scale, weight);
    else if (t < HEAD4)
        x = rotated_quad(p.kv + LATENT * 4, t - LATENT4);
    [[unroll]] for (uint e = 0; e < 4; e++)
        x[e] = kept(x[e]);
    if (t < HEAD4)
        fresh_row[t] = x;
    return x;
}

void append(uint64_t page, uint t, vec4 x)
{
    const uint64_t row = page + p.position % PAGE * (WIDTH * BYTES);
    if (t < HEAD4)
        [[unroll]] for (uint e = 0; e < 4; e++)
            store_value(row, 4 * t + e, x[e]);
}

// Scores of EACH queries and a key, those from `query` on; every invocation comes here. Code that runs once takes long
// to fetch: there is one of it for all slices.
void score_each(uint t, uint query, uint key, uint fresh, out float sums[EACH])
{
    [[unroll]] for (uint i = 0; i < EACH; i++)
        sums[i] = 0.0;
    [[dont_unroll]] for (uint s = 0; s < N_SLICES + p.zero; s++) {
        barrier();
        [[unroll]] for (uint r = 0; r < N_SLICES; r++)
            if (r == s)
                [[unroll]] for (uint i = 0; i < LOADS; i++)
                    keys[(i * (THREADS / SLICE4) + t / SLICE4) * STRIDE + t % SLICE4] =
                        unpacked(keys_ahead[r * LOADS + i]);
        if (fresh < BLOCK && t / SLICE4 == fresh % (THREADS / SLICE4)) // after what it has put there itself
            keys[fresh * STRIDE + t % SLICE4] = fresh_row[s * SLICE4 + t % SLICE4];
        barrier();
        if (query < QUERIES)
            [[dont_unroll]] for (uint d = p.zero; d < SLICE4; d += 8)
                [[unroll]] for (uint e = 0; e < 8; e++) {
                    const vec4 k = keys[key * STRIDE + d + e];
                    [[unroll]] for (uint i = 0; i < EACH; i++) {
                        const vec4 x = queries[(query + i) * HEAD4 + s * SLICE4 + d + e];
                        sums[i] = fma(x.x, k.x, sums[i]);
                        sums[i] = fma(x.y, k.y, sums[i]);
                        sums[i] = fma(x.z, k.z, sums[i]);
                        sums[i] = fma(x.w, k.w, sums[i]);
                    }
                }
    }
}

void put(uint head, uint block, uint t, float value, float most, float total)
{
    const uint at = head * p.n_blocks + block;
    if (p.n_blocks == 0) {
        p.result.v[head * LATENT + t] = value * last_factor(most, total, NOTHING);
        return;
    }
    p.sums.v[at * LATENT + t] = value;
    if (t == 0) {
        p.ends.v[2 * at] = most;
        p.ends.v[2 * at + 1] = total;
    }
}

void main()
{
    const uint t = gl_LocalInvocationID.x, key = t % BLOCK, query = t / BLOCK * EACH;
    const uint first_head = gl_WorkGroupID.x * QUERIES, base = gl_WorkGroupID.z * BLOCK;
    const uint n_keys = min(p.position + 1 - base, BLOCK), fresh = p.position - base;
    const uint limit = t < LATENT ? min(n_keys, fresh) : 0;
    const uint64_t first = p.pages.v[base / PAGE] + p.page_offset;
    const uint64_t last = n_keys > PAGE ? p.pages.v[base / PAGE + 1] + p.page_offset : first;
    load_keys(first, last, t);
    load_queries(first_head, t);
    if (fresh < BLOCK) {
        const vec4 x = make_fresh(t);
        if (gl_WorkGroupID.x == 0)
            append(fresh < PAGE ? first : last, t, x);
    }
    float scores[EACH];
    score_each(t, query, key, fresh, scores);
    load_values(first, last, 0, limit, t);
    if (query < QUERIES)
        [[unroll]] for (uint i = 0; i < EACH; i++) {
            const uint at = (query + i) * BLOCK + key;
            powers[at / 4][at % 4] = base + key <= p.position ? scores[i] * p.scale : NOTHING;
        }
    barrier();
    const uint mine = t / BLOCK; // a query's
    const float x = mine < QUERIES ? powers[t / 4][t % 4] : 0.0;
    weigh_keys(mine, key, x);
    if (t < QUERIES)
        block_sums[t] = sum_of(t);
    float sums[QUERIES];
    [[unroll]] for (uint i = 0; i < QUERIES; i++)
        sums[i] = 0.0;
    [[dont_unroll]] for (uint k = 0; k < BLOCK + p.zero; k += N_VALUES) {
        const uint next = k + N_VALUES;
        const uint64_t from = next % PAGE * (WIDTH * BYTES) + t * BYTES + (next < PAGE ? first : last);
        [[unroll]] for (uint j = 0; j < N_VALUES; j += 4) {
            vec4 v;
            [[unroll]] for (uint e = 0; e < 4; e++) {
                v[e] = uintBitsToFloat(values_ahead[j + e]);
                values_ahead[j + e] = 0;
                if (next + j + e < limit)
                    values_ahead[j + e] = load_value(from + (j + e) * (WIDTH * BYTES));
            }
            [[unroll]] for (uint i = 0; i < QUERIES; i++) {
                const vec4 w = powers[(i * BLOCK + k + j) / 4];
                [[unroll]] for (uint e = 0; e < 4; e++)
                    sums[i] = fma(w[e], v[e], sums[i]);
            }
        }
    }
    barrier();
    if (t >= LATENT)
        return;
    if (fresh < BLOCK) // the last one; so far it was zeros
        [[unroll]] for (uint i = 0; i < QUERIES; i++)
            sums[i] = fma(powers[(i * BLOCK + fresh) / 4][fresh % 4], fresh_row[t / 4][t % 4], sums[i]);
    [[unroll]] for (uint i = 0; i < QUERIES; i++)
        if (first_head + i < p.n_heads)
            put(first_head + i, gl_WorkGroupID.z, t, sums[i], block_mosts[i], block_sums[i]);
}
