// SPDX-License-Identifier: MIT
// What the shaders of attention share.
//
// Positions go in blocks of BLOCK, counted from 0. A block alone gives a maximum m, rounded up to a
// whole number, the sum of 2^(score - m) and the sum of the values so weighted. Blocks are then
// merged in their order. All factors between them are powers of two, so that merging is one exact
// product and one rounded sum, and the same bits come out whichever shader merges, for any tile.
const uint BLOCK = 64, PAGE = 32;

const float LOG2_E = 1.44269504;
const float NOTHING = -3.0e38; // the maximum of no scores

// The first position that the row at `position` sees; the highest bit of window: it is a chunk.
uint first_seen(uint window, uint position)
{
    const uint n = window & 0x7fffffffu;
    if (window != n)
        return position / n * n;
    return n != 0 && position >= n ? position + 1 - n : 0;
}

// 2^x for whole x <= 0
float power(float x)
{
    return x < -126.0 ? 0.0 : uintBitsToFloat(uint(int(x) + 127) << 23);
}

// What a score weighs beside the highest of its block; NaN is one, too, and makes NaN of what is weighed.
float weight_of(float x, float most)
{
    return x <= NOTHING ? 0.0 : exp2(x - most);
}

// What the accumulated values are multiplied by at last, with a sink (in powers of two; NOTHING:
// none) as one more score.
float last_factor(float most, float sum, float sink)
{
    const float m = max(most, ceil(sink));
    const float factor = power(most - m);
    sum = sum * factor + weight_of(sink, m);
    return factor / sum;
}
