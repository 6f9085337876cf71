// SPDX-License-Identifier: MIT
// A row x that a workgroup norms and keeps in shared memory for its products, and the parts of these. Whoever
// includes this has TEAM, TILE, THREADS, SPAN (tiles of x), QUADS (of x), X_LOADS (of an invocation); `memory`,
// `exchange` and `squares`; TAKEN, how many values it takes from others as its input; norm.glsl, teams.glsl, grid.glsl.
uint quad_at(uint tile, uint j, uint lane)
{
    return (tile * CHUNK / 4 + j) * TEAM + (lane ^ j);
}

// The lane's columns of what lies in memory.
void take_x(uint tile, uint lane)
{
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++)
        x[j] = memory[quad_at(tile, j, lane)];
    x_sum = sum_of_quads(x);
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++)
        x[j] *= QUAD_FACTORS(j);
}

uint quad_place(uint quad)
{
    const uint in_tile = quad % (TILE / 4);
    return quad_at(quad / (TILE / 4), in_tile % (CHUNK / 4), in_tile / (CHUNK / 4));
}

// The norm's weights go to where the row will be, and come back: before a barrier they are waited for then.
void leave_weights(vec4 weights[X_LOADS], uint id)
{
    [[unroll]] for (uint i = 0; i < X_LOADS; i++)
        if (i * THREADS + id < QUADS)
            memory[quad_place(i * THREADS + id)] = weights[i];
}

void fetch_weights(inout vec4 weights[X_LOADS], uint id)
{
    [[unroll]] for (uint i = 0; i < X_LOADS; i++)
        if (i * THREADS + id < QUADS)
            weights[i] = memory[quad_place(i * THREADS + id)];
}

void share_squares(vec4 loads[X_LOADS], uint id)
{
    [[unroll]] for (uint i = 0; i < X_LOADS; i++)
        if (i * THREADS + id < QUADS)
            squares[i * THREADS + id] = squared(loads[i]);
    barrier();
}

#include "norm_quads.glsl"

void load_x(Floats from, Floats norm, uint id, out vec4 loads[X_LOADS], out vec4 weights[X_LOADS])
{
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        const uint quad = min(i * THREADS + id, QUADS - 1);
        loads[i] = Floats4(uint64_t(from)).v[quad];
        weights[i] = Floats4(uint64_t(norm)).v[quad];
    }
}

// After its squares.
void share_x(vec4 loads[X_LOADS], vec4 weights[X_LOADS], float eps, uint id)
{
    const float scale = scale_of_row(eps, id);
    [[unroll]] for (uint i = 0; i < X_LOADS; i++)
        if (i * THREADS + id < QUADS)
            memory[quad_place(i * THREADS + id)] = normed(loads[i], scale, weights[i]);
    barrier();
}

// Values of others from the first on, TAKEN of them, become what take_x takes.
void take_row(uint first, uint id)
{
    const uint N_MINE = (TAKEN + THREADS - 1) / THREADS;
    uint64_t v[N_MINE];
    bool has_all = false;
    [[dont_unroll]] for (uint n = 0; !has_all && !gives_up(n); n++) {
        has_all = true;
        [[unroll]] for (uint i = 0; i < N_MINE; i++)
            v[i] = look(first + min(i * THREADS + id, TAKEN - 1));
        [[unroll]] for (uint i = 0; i < N_MINE; i++)
            has_all = has_all && is_there(v[i]);
    }
    [[unroll]] for (uint i = 0; i < N_MINE; i++) {
        const uint e = i * THREADS + id, col = e % TILE;
        const uint at = quad_at(e / TILE, col % CHUNK / 4, col / CHUNK);
        if (e < TAKEN)
            memory[at][col % 4] = value_of(v[i]);
    }
    barrier();
}

uint part_at(uint row, uint n_tiles, uint tile, uint lane)
{
    return (row * n_tiles + tile) * TEAM + lane;
}

void put_part(uint row, uint n_tiles, uint tile, uint lane, float v)
{
    memory[part_at(row, n_tiles, tile, 0) / 4 + lane / 4][lane % 4] = v; // TEAM is whole vectors
}
