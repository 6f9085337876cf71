// SPDX-License-Identifier: MIT
// A team of TEAM lanes that multiplies a row: a lane has 32 columns of each tile. Whoever includes this
// has `shared float exchange[...]`, a float for each invocation.
vec4 x[CHUNK / 4]; // of the lane, times QUAD_FACTORS
float x_sum;       // before that

// Where a column of a row that is turned lies: in each tile the first quads of all lanes, then the
// second ones, so that a team reads 256 bytes at once. A lane's columns are pieces of 32.
uint turned(uint col)
{
    return col / (TEAM * CHUNK) * (TEAM * CHUNK) + col % CHUNK / 4 * (TEAM * 4) +
           col / CHUNK % TEAM * 4 + col % 4;
}

float multiply(Chunk c)
{
    float dot = 0.0;
    [[unroll]] for (uint j = 0; j < CHUNK / 4; j++)
        dot = add_quad(dot, quad(c, j), x[j]);
    return part_of(c, dot, x_sum);
}

#ifndef TEAM_SHUFFLES // whether lanes that are d apart are of one subgroup
#define TEAM_SHUFFLES(d) ((d) < gl_SubgroupSize)
#endif

// The sum over the lanes of a team, in the same order for any size of subgroups.
float team_sum(float v, uint id)
{
    [[unroll]] for (uint d = 1; d < TEAM; d *= 2) {
        if (TEAM_SHUFFLES(d)) {
            v += subgroupShuffleXor(v, d);
        } else {
            barrier();
            exchange[id] = v;
            barrier();
            v += exchange[id ^ d];
        }
    }
    return v;
}
