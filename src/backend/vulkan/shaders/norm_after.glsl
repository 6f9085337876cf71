// SPDX-License-Identifier: MIT
// A row that a workgroup has made, normed: an invocation keeps the first of its values.
const uint KEPT = 8;
float kept[KEPT];

// Values first .. of the row, gl_WorkGroupSize.x apart; those kept are in `kept`.
void norm_row(Floats x, Floats weight, Floats result, uint n_cols, float eps)
{
    const uint first = gl_LocalInvocationID.x, step = gl_WorkGroupSize.x;
    float weights[KEPT], sum = 0.0;
    [[unroll]] for (uint i = 0; i < KEPT; i++) {
        const uint col = first + i * step;
        weights[i] = 0.0;
        if (col < n_cols) {
            weights[i] = weight.v[col];
            sum += kept[i] * kept[i];
        }
    }
    for (uint col = first + KEPT * step; col < n_cols; col += step)
        sum += x.v[col] * x.v[col];
    const float scale = inversesqrt(workgroup_sum(sum) / float(n_cols) + eps);
    [[unroll]] for (uint i = 0; i < KEPT; i++) {
        const uint col = first + i * step;
        if (col < n_cols)
            result.v[col] = kept[i] * scale * weights[i];
    }
    for (uint col = first + KEPT * step; col < n_cols; col += step)
        result.v[col] = x.v[col] * scale * weight.v[col];
}
