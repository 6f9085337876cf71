// SPDX-License-Identifier: MIT
// Columns 4i .. 4i + 3 of a row; zeros beyond its end. IS_ALIGNED is a constant of the shader's.
vec4 load_quad(uint64_t row, uint i, uint n_cols)
{
    vec4 v = vec4(0.0);
    if (IS_ALIGNED != 0) {
        if (4 * i < n_cols)
            v = Floats4(row).v[i];
    } else {
        [[unroll]] for (uint e = 0; e < 4; e++)
            if (4 * i + e < n_cols)
                v[e] = Floats(row).v[4 * i + e];
    }
    return v;
}

void store_quad(uint64_t row, uint i, uint n_cols, vec4 v)
{
    if (IS_ALIGNED != 0) {
        if (4 * i < n_cols)
            Floats4(row).v[i] = v;
    } else {
        [[unroll]] for (uint e = 0; e < 4; e++)
            if (4 * i + e < n_cols)
                Floats(row).v[4 * i + e] = v[e];
    }
}
