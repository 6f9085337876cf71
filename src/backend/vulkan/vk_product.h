/* SPDX-License-Identifier: MIT */
/* Products of weights and rows of activations: what operations hand to the shaders of it. */
#ifndef MF_BACKEND_VULKAN_VK_PRODUCT_H
#define MF_BACKEND_VULKAN_VK_PRODUCT_H

#include "backend/vulkan/vk_internal.h"

/* As Job of jobs.glsl: y[t, o] = weight[first_row + o] . x[row t], and of pairs
 * silu(weight x) * (up x). */
typedef struct mf_vk_job {
    mf_vk_weight weight, up; /* up: of pairs */
    uint64_t x, y;
    uint64_t rows; /* of x, uint32_t; 0: one after another */
    uint32_t first_row, n_rows;
    uint32_t n_tokens, x_stride, y_stride; /* strides in floats */
    uint32_t unused;
} mf_vk_job;

/* Jobs of one form and number of columns that are dispatched together. */
typedef struct mf_vk_product {
    const mf_weight_shape *shape; /* n_rows are the jobs' */
    bool is_pair;
    uint32_t n_jobs;
    /* Fills in the i-th; asked for in order, from 0 on, and perhaps once more. */
    void (*job)(void *ctx, uint32_t i, mf_vk_job *out);
    void *ctx;
} mf_vk_product;

/* Whether jobs with these weights can be dispatched together. */
bool mf_vk_same_form(const mf_weight_shape *a, const mf_weight_shape *b);
/* Whether weights of this form can be multiplied. */
bool mf_vk_product_supports(const mf_weight_shape *shape);
/* The pipelines for jobs of up to n_tokens, n_rows of all jobs together; and the bytes that the
 * jobs take of the parameters' ring. */
mf_status mf_vk_product_reserve(mf_vk_backend *be, const mf_weight_shape *shape, bool is_pair,
                                uint32_t n_tokens, uint64_t n_rows, mf_error *error);
uint64_t mf_vk_product_bytes(uint32_t n_jobs);
void mf_vk_product_record(mf_vk_backend *be, const mf_vk_product *product);

#endif
