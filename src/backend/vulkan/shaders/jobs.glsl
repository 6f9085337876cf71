// SPDX-License-Identifier: MIT
// What the shaders of products are told: mf_vk_job of vk_product.h.
struct Job {
    Weight weight, up; // up: of pairs
    uint64_t x, y;
    uint64_t rows; // Words: the rows of x that are multiplied; 0: one after another
    uint64_t x_scales; // Floats: of the rows of x, where they are float16
    uint first_row, n_rows; // of the weight
    uint n_tokens, x_stride, y_stride; // strides in floats
    uint y_rows; // the rows of y, so many words after `rows`; 0: one after another
};
layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer Jobs { Job v[]; };
