// SPDX-License-Identifier: MIT
// The causal convolution of one row, the shaders that have it by the way: the same bits.
// One step of it; nothing is contracted but by name.
float conv_step(float sum, float x, float w)
{
    return fma(x, w, sum);
}

// Channel `channel` of n: its weights, and its last inputs, oldest first, which are in `before`; that may be 0:
// all zero. The last place is the next one's.
void load_past(Floats weight, uint64_t before, uint n, uint channel, out float last[WIDTH], out float w[WIDTH])
{
    [[unroll]] for (uint j = 0; j + 1 < WIDTH; j++)
        last[j] = before != 0 ? Floats(before).v[j * n + channel] : 0.0;
    [[unroll]] for (uint j = 0; j < WIDTH; j++)
        w[j] = weight.v[channel * WIDTH + j];
}

// With the next input x; the last inputs go on in `after`, which may be `before`.
float convolved(float last[WIDTH], float w[WIDTH], uint64_t after, uint n, uint channel, float x)
{
    float sum = 0.0;
    last[WIDTH - 1] = x;
    [[unroll]] for (uint j = 0; j < WIDTH; j++)
        sum = conv_step(sum, last[j], w[j]);
    [[unroll]] for (uint j = 0; j + 1 < WIDTH; j++)
        Floats(after).v[j * n + channel] = last[j + 1];
    return silu(sum);
}
