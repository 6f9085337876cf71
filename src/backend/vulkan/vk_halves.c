/* SPDX-License-Identifier: MIT */
/* Activations in float16, for matrix units. */
#include "backend/vulkan/vk_product.h"

#include <string.h>

#define THREADS 256u
#define PADDED 64u /* columns of a step of matmul_units.comp */
#define MOST_BYTES ((uint64_t)64 << 20)
#define MOST_ROWS 32768u
#define LEAST_ROWS 256u

/* What matmul_units.comp asks for: its subgroups are of 32, and with attention_units.comp it takes
 * up to 45 KiB of shared memory. */
bool mf_vk_has_units(const mf_vulkan_device *info)
{
    if (!info->has_f16 || info->subgroup_size != 32 || info->least_subgroup != 32 ||
        info->most_subgroup != 32 || info->shared_bytes < 46080)
        return false;
    for (uint32_t i = 0; i < info->n_matrices; i++) {
        const mf_vulkan_matrix *m = &info->matrices[i];
        if (m->m == 16 && m->n == 16 && m->k == 16 && strcmp(m->input, "f16") == 0 &&
            strcmp(m->sum, "f32") == 0)
            return true;
    }
    return false;
}

uint32_t mf_vk_halves_padded(uint32_t n_cols)
{
    return mf_vk_groups(n_cols, PADDED) * PADDED;
}

uint32_t mf_vk_halves_rows(uint32_t n_cols)
{
    const uint64_t n = MOST_BYTES / ((uint64_t)mf_vk_halves_padded(n_cols) * 2);
    return n > MOST_ROWS ? MOST_ROWS : n < LEAST_ROWS ? LEAST_ROWS : (uint32_t)n;
}

uint64_t mf_vk_halves_bytes(uint32_t n_rows, uint32_t n_cols)
{
    return (uint64_t)n_rows * (mf_vk_halves_padded(n_cols) * 2 + 4) + 512;
}

mf_status mf_vk_halves_reserve(mf_vk_backend *be, mf_error *error)
{
    return mf_vk_prepare_shader(be, MF_VK_SHADER_to_half, THREADS, error);
}

mf_vk_halves mf_vk_halves_take(mf_vk_backend *be, uint32_t n_rows, uint32_t n_cols)
{
    mf_vk_halves h = {0, 0, n_cols, mf_vk_halves_padded(n_cols)};
    h.x = mf_vk_scratch(be, (uint64_t)n_rows * h.n_padded * 2);
    h.scales = mf_vk_scratch(be, (uint64_t)n_rows * 4);
    return h;
}

void mf_vk_halves_fill(mf_vk_backend *be, const mf_vk_halves *to, uint64_t x, uint32_t x_stride,
                       uint64_t rows, uint32_t n_rows)
{
    const mf_vk_kernel kernel = {MF_VK_SHADER_to_half, 1, {THREADS}};
    for (uint32_t i = 0, n; i < n_rows; i += n) {
        n = n_rows - i < MOST_ROWS ? n_rows - i : MOST_ROWS;
        const struct {
            uint64_t x, rows, result, scales;
            uint32_t n_cols, n_padded, x_stride, unused;
        } push = {rows != 0 ? x : x + (uint64_t)i * x_stride * sizeof(float),
                  rows != 0 ? rows + i * sizeof(uint32_t) : 0,
                  to->x + (uint64_t)i * to->n_padded * 2,
                  to->scales + i * sizeof(float),
                  to->n_cols,
                  to->n_padded,
                  x_stride,
                  0};
        mf_vk_dispatch(be, &kernel, &push, sizeof push, (const uint32_t[]){n, 1, 1});
    }
}
