// SPDX-License-Identifier: MIT
// A row that a workgroup has made, normed: an invocation keeps the first of its quads.
const uint KEPT = 2;
vec4 kept[KEPT];

// Quads first .. of the row, gl_WorkGroupSize.x apart; those kept are in `kept`, zeros beyond the end.
void norm_row(uint64_t x, uint64_t weight, uint64_t result, uint n_cols, float eps, uint first)
{
    const uint step = gl_WorkGroupSize.x, n = (n_cols + 3) / 4;
    vec4 weights[KEPT];
    precise float sum = 0.0;
    [[unroll]] for (uint i = 0; i < KEPT; i++) {
        weights[i] = load_quad(weight, first + i * step, n_cols);
        sum += squared(kept[i]);
    }
    for (uint i = first + KEPT * step; i < n; i += step)
        sum += squared(load_quad(x, i, n_cols));
    const float scale = norm_scale(sum_of_lanes(sum, first), n_cols, eps);
    [[unroll]] for (uint i = 0; i < KEPT; i++)
        store_quad(result, first + i * step, n_cols, normed(kept[i], scale, weights[i]));
    for (uint i = first + KEPT * step; i < n; i += step)
        store_quad(result, i, n_cols,
                   normed(load_quad(x, i, n_cols), scale, load_quad(weight, i, n_cols)));
}
