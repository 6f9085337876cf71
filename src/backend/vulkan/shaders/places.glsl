// SPDX-License-Identifier: MIT
// Where weights lie that workgroups of one dispatch have row by row (chunks.glsl before it).
// A weight whose other arrays are so many units of 4 bytes from its values.
struct Near {
    uint64_t values;
    int scales, biases;
};

Weight weight_of(Near w)
{
    return Weight(w.values, w.values + int64_t(w.scales) * 4, w.values + int64_t(w.biases) * 4);
}

Weight moved(Weight w, uint64_t to)
{
    return Weight(w.values + to, w.scales + to, w.biases + to);
}

Weight row_after(Weight w, uint n, uint n_cols)
{
    return Weight(w.values + n * row_bytes(n_cols), w.scales + n * scale_row_bytes(n_cols),
                  w.biases + n * scale_row_bytes(n_cols));
}

void next_row(inout Weight w, uint n_cols)
{
    w.values += row_bytes(n_cols);
    w.scales += scale_row_bytes(n_cols);
    w.biases += scale_row_bytes(n_cols);
}
