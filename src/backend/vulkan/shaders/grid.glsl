// SPDX-License-Identifier: MIT
// What the workgroups of one dispatch hand each other (vk_grid.c), all of which are there at once: a value
// lies beside the number of the dispatch, in one word of 64 bits that is written and read at once. So who needs
// it asks until it is there, nobody waits for all the others, and nothing needs an order. Whoever includes this
// has GRID_PAIRS, where the values lie, GRID_EPOCH, the dispatch's number, and GRID_FAULT, the address of the
// host's word for those who asked in vain; before them grid_pairs.glsl.
const uint MOST_SPINS = 1000000;

void put(uint at, float v)
{
    atomicStore(GRID_PAIRS.v[at], uint64_t(floatBitsToUint(v)) | uint64_t(GRID_EPOCH) << 32, gl_ScopeDevice,
                gl_StorageSemanticsNone, gl_SemanticsRelaxed);
}

uint64_t look(uint at)
{
    return atomicLoad(GRID_PAIRS.v[at], gl_ScopeDevice, gl_StorageSemanticsNone, gl_SemanticsRelaxed);
}

bool is_there(uint64_t pair)
{
    return uint(pair >> 32) == GRID_EPOCH;
}

float value_of(uint64_t pair)
{
    return uintBitsToFloat(uint(pair));
}

// Whether it is to be given up after so many times; then the host is told.
bool gives_up(uint n_spins)
{
    if (n_spins == MOST_SPINS)
        Words(GRID_FAULT).v[0] = 1;
    return n_spins == MOST_SPINS;
}

float take(uint at)
{
    uint64_t v = look(at);
    [[dont_unroll]] for (uint n = 0; !is_there(v) && !gives_up(n); n++)
        v = look(at);
    return value_of(v);
}
