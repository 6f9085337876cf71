// SPDX-License-Identifier: MIT
// The scale of a row's norm, as norm.glsl has it, for a workgroup of any size. Whoever includes this has norm.glsl,
// QUADS, and `squares`: squared() of each quad and zeros up to a multiple of 32, which all see.
float scale_of_row(float eps, uint id)
{
    float s[8];
    [[unroll]] for (uint k = 0; k < 8; k++) {
        precise float even = 0.0;
        [[unroll]] for (uint i = 0; i < (QUADS + 255) / 256; i++)
            if (i * 256 + 32 * k < QUADS)
                even += squares[i * 256 + 32 * k + id % 32];
        s[k] = even;
    }
    float v = s[0] + s[4];
    v += s[2] + s[6];
    float w = s[1] + s[5];
    w += s[3] + s[7];
    v += w;
    return norm_scale(sum_of_run(v, 32, id), 4 * QUADS, eps);
}
