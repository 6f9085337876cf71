// SPDX-License-Identifier: MIT
// Attention of a row to a block of positions, whose keys and values are on their way before any is used. Whoever
// includes this has TYPE, of the cache, HEAD, N_KEYS and QUERIES; THREADS; SLICE, columns of keys in shared memory, of
// which THREADS are those of PAGE keys or fewer; SLICE4, HEAD4 and STRIDE, the distance of keys there, in vec4s;
// N_VALUES, positions of which an invocation has a column's values; places in shared memory: KEY_QUAD, BLOCK * STRIDE
// vec4s, QUERY_QUAD, QUERIES * HEAD4, POWER_QUAD, QUERIES * BLOCK / 4.
const uint LOADS = BLOCK * SLICE4 / THREADS, N_SLICES = HEAD / SLICE; // LOADS: of a slice
const uint N_LOADS = LOADS * N_SLICES;
const uint WIDTH = N_KEYS * HEAD, BYTES = TYPE == F32 ? 4 : 2;

uvec4 keys_ahead[N_LOADS];
uint values_ahead[N_VALUES];

vec4 unpacked(uvec4 x)
{
    if (TYPE == F32)
        return uintBitsToFloat(x);
    return uintBitsToFloat(uvec4(x.x << 16, x.x & 0xffff0000u, x.y << 16, x.y & 0xffff0000u));
}

// As it will be read from the cache.
float kept(float x)
{
    return TYPE == F32 ? x : uintBitsToFloat(bfloat_of(x) << 16);
}

uvec4 load_quad(uint64_t at)
{
    if (TYPE == F32)
        return floatBitsToUint(Floats4(at).v[0]);
    return uvec4(Words2(at).v[0], 0, 0);
}

uint load_value(uint64_t at)
{
    return TYPE == F32 ? Words(at).v[0] : uint(Halves(at).v[0]) << 16;
}

// A value that is as it will be read.
void store_value(uint64_t row, uint col, float v)
{
    if (TYPE == F32)
        Floats(row).v[col] = v;
    else
        Halves(row).v[col] = uint16_t(floatBitsToUint(v) >> 16);
}

// Of the block, from its two pages: all, as nobody looks at what positions that are not seen score.
void load_keys(uint64_t first, uint64_t last, uint t)
{
    const uint ROWS = THREADS / SLICE4; // at once
    const uint at = t / SLICE4 * (WIDTH * BYTES) + t % SLICE4 * (4 * BYTES);
    [[unroll]] for (uint i = 0; i < N_LOADS; i++) {
        const uint64_t page = (i % LOADS * ROWS < PAGE ? first : last) + at;
        keys_ahead[i] =
            load_quad(page + i % LOADS * ROWS % PAGE * (WIDTH * BYTES) + i / LOADS * (SLICE * BYTES));
    }
}

// From position `from` of the block on, a multiple of N_VALUES: those before `limit`; of others zeros.
void load_values(uint64_t first, uint64_t last, uint from, uint limit, uint col)
{
    const uint64_t at = from % PAGE * (WIDTH * BYTES) + col * BYTES + (from < PAGE ? first : last);
    [[unroll]] for (uint i = 0; i < N_VALUES; i++) {
        const uint64_t page = i < PAGE ? at : at - first + last;
        values_ahead[i] = 0;
        if (from + i < limit)
            values_ahead[i] = load_value(page + i % PAGE * (WIDTH * BYTES));
    }
}

// The score of a query and a key; every invocation comes here. fresh_k: a quad of the row that is
// appended, of whoever has the quad's number; it is position `fresh` of the block.
float score(uint t, uint query, uint key, vec4 fresh_k, uint fresh)
{
    float sum = 0.0;
    [[dont_unroll]] for (uint s = 0; s < N_SLICES; s++) { // code that runs once takes long to fetch
        barrier();
        [[unroll]] for (uint r = 0; r < N_SLICES; r++)
            if (r == s)
                [[unroll]] for (uint i = 0; i < LOADS; i++) {
                    const uint k = i * (THREADS / SLICE4) + t / SLICE4;
                    if (k != fresh)
                        KEY_QUAD(k * STRIDE + t % SLICE4) = unpacked(keys_ahead[r * LOADS + i]);
                }
        if (fresh < BLOCK && t / SLICE4 == s)
            KEY_QUAD(fresh * STRIDE + t % SLICE4) = fresh_k;
        barrier();
        if (query < QUERIES)
            [[dont_unroll]] for (uint d = 0; d < SLICE4; d += 8)
                [[unroll]] for (uint e = 0; e < 8; e++) {
                    const vec4 x = QUERY_QUAD(query * HEAD4 + s * SLICE4 + d + e);
                    const vec4 k = KEY_QUAD(key * STRIDE + d + e);
                    sum = fma(x.x, k.x, sum);
                    sum = fma(x.y, k.y, sum);
                    sum = fma(x.z, k.z, sum);
                    sum = fma(x.w, k.w, sum);
                }
    }
    return sum;
}

float most_of(uint query)
{
    vec4 most = POWER_QUAD(query * BLOCK / 4);
    [[unroll]] for (uint i = 1; i < BLOCK / 4; i++)
        most = max(most, POWER_QUAD(query * BLOCK / 4 + i));
    return ceil(max(max(most.x, most.y), max(most.z, most.w)));
}

float sum_of(uint query)
{
    float sums[4];
    [[unroll]] for (uint l = 0; l < 4; l++) {
        sums[l] = 0.0;
        [[unroll]] for (uint i = 0; i < BLOCK / 16; i++) {
            const vec4 x = POWER_QUAD(query * BLOCK / 4 + l * BLOCK / 16 + i);
            sums[l] += (x.x + x.y) + (x.z + x.w);
        }
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

shared float block_mosts[QUERIES]; // of each query's scores

// What a query's key weighs, whose score is x; every invocation comes here, and all see all then.
void weigh_keys(uint query, uint key, float x)
{
    const uint at = query * BLOCK + key;
    float most = 0.0;
    if (query < QUERIES)
        POWER_QUAD(at / 4)[at % 4] = x;
    barrier();
    if (query < QUERIES)
        most = most_of(query);
    barrier();
    if (query < QUERIES) {
        POWER_QUAD(at / 4)[at % 4] = weight_of(x, most);
        if (key == 0)
            block_mosts[query] = most;
    }
    barrier();
}
