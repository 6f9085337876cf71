/* SPDX-License-Identifier: MIT */
/*
 * Dispatches whose workgroups wait for each other (grid.glsl). So all of them have to be there at
 * once: they are dispatched with as many as the device surely runs (mf_vk_device.n_resident, where
 * 0 says that nobody knows), and a workgroup that waits in vain gives up after a while and says so.
 * What they hand each other lies beside the number of the dispatch, so that nothing has to be
 * cleared: numbers do not come again before the memory is cleared.
 */
#ifndef MF_BACKEND_VULKAN_VK_GRID_H
#define MF_BACKEND_VULKAN_VK_GRID_H

#include "backend/vulkan/vk_internal.h"

#define MF_VK_GRID_THREADS 512u /* of a workgroup; it has 32 KiB of shared memory at most */

/* Room for what workgroups hand each other. */
mf_status mf_vk_grid_reserve(mf_vk_backend *be, uint64_t n_values, mf_error *error);
/* Where shaders find it, and the word that says that one of them gave up. */
uint64_t mf_vk_grid_values(const mf_vk_backend *be);
uint64_t mf_vk_grid_fault(const mf_vk_backend *be);
/* The number of the operation's dispatch. */
uint32_t mf_vk_grid_next(mf_vk_backend *be, const mf_op *op);
void mf_vk_grid_dispatch(mf_vk_backend *be, const mf_vk_kernel *kernel, const void *push,
                         uint32_t push_bytes);

/* As places.glsl's Near; false: the weight's arrays are not near each other, or not aligned. */
typedef struct mf_vk_near {
    uint64_t values;
    int32_t scales, biases; /* units of 4 bytes from the values */
} mf_vk_near;
bool mf_vk_put_near(const mf_vk_backend *be, const mf_weight *w, mf_vk_near *out);

/* Products that a row's layer begins and ends with, in one dispatch (row_products.glsl). */
typedef struct mf_vk_row_products {
    mf_vk_near first[MF_MAX_MATMULS], last;
} mf_vk_row_products;
/* False: the weights do not lie so that the shader can read them. */
bool mf_vk_put_row_products(const mf_vk_backend *be, const mf_matmul_params *in,
                            const mf_matmul_params *out, mf_vk_row_products *products);
/* Of all first products. */
uint32_t mf_vk_in_rows(const mf_matmul_params *in);
/* Rows that a team of 16 has of them in a workgroup's part: of MF_VK_TEAM_ROWS and fewer, by
 * steps, those that are least for the workgroup with the most. */
#define MF_VK_TEAM_ROWS 12u
uint32_t mf_vk_team_rows(const mf_vk_backend *be, const mf_matmul_params *in, uint32_t step);
/* What they read. */
void mf_vk_count_row_products(mf_vk_backend *be, const mf_matmul_params *in,
                              const mf_matmul_params *out);

/* Whether it is a power of two between these. */
static inline bool mf_vk_is_power(uint32_t n, uint32_t least, uint32_t most)
{
    return n >= least && n <= most && (n & (n - 1)) == 0;
}

/* Whether all subgroups have 32 invocations. */
static inline bool mf_vk_has_whole_subgroups(const mf_vk_backend *be)
{
    return be->device.info.least_subgroup == 32 && be->device.info.most_subgroup == 32;
}

/* Whether it is an affine weight of these bits and sizes, otherwise like another. */
bool mf_vk_is_affine(const mf_weight *w, uint32_t bits, const mf_weight *like, uint32_t n_rows,
                     uint32_t n_cols);

#endif
