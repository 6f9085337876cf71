/* SPDX-License-Identifier: MIT */
/* The kernels of matvec_tile.comp: for several tokens, of forms that each has shaders of its own.
 */
#include "backend/vulkan/vk_product.h"

#define TEAM 16u
#define N_TILES 3u
/* Workgroups that a large device is to have, or they have fewer rows. */
#define ENOUGH_GROUPS 96u
/* Multiprocessors of a device that does not say how many it has. */
#define RESIDENT 128u
/* Of shared memory: eight tokens' columns of a tile, their sums, a float of each invocation. */
#define TILE_BYTES (18u * 1024u)

/* As the shader's variants, by falling numbers of rows: two for five tokens and more, one for three
 * and four. */
typedef mf_vk_product_tile form_tiles[2][N_TILES]; /* of single matrices, of pairs */

#define TILE(name, ...)                              \
    {                                                \
        MF_VK_SHADER_matvec_tile_##name, __VA_ARGS__ \
    }

static const form_tiles affine4 = {
    {TILE(affine4_8x4, 256, 8, 4, 1), TILE(affine4_8x2, 128, 8, 2, 2),
     TILE(affine4_4x4, 128, 4, 4, 4)},
    {TILE(affine4_pair_8x2, 128, 8, 2, 2), TILE(affine4_pair_8x2, 128, 8, 2, 2),
     TILE(affine4_pair_4x2, 128, 4, 2, 4)}};
static const form_tiles q4_0 = {
    {TILE(q4_0_8x2, 128, 8, 2, 2), TILE(q4_0_8x2, 128, 8, 2, 2), TILE(q4_0_4x2, 128, 4, 2, 3)},
    {TILE(q4_0_pair_8x1, 128, 8, 1, 2), TILE(q4_0_pair_8x1, 128, 8, 1, 2),
     TILE(q4_0_pair_4x1, 128, 4, 1, 3)}};
static const form_tiles q4_k = {
    {TILE(q4_k_8x2, 128, 8, 2, 2), TILE(q4_k_8x2, 128, 8, 2, 2), TILE(q4_k_4x2, 128, 4, 2, 3)},
    {TILE(q4_k_pair_8x1, 128, 8, 1, 2), TILE(q4_k_pair_8x1, 128, 8, 1, 2),
     TILE(q4_k_pair_4x1, 128, 4, 1, 3)}};
static const form_tiles q8_0 = {
    {TILE(q8_0_8x2, 128, 8, 2, 2), TILE(q8_0_8x2, 128, 8, 2, 2), TILE(q8_0_4x2, 128, 4, 2, 3)},
    {TILE(q8_0_pair_8x1, 128, 8, 1, 2), TILE(q8_0_pair_8x1, 128, 8, 1, 2),
     TILE(q8_0_pair_4x1, 128, 4, 1, 3)}};

/* Of a workgroup at a time. */
static uint32_t rows_of(const mf_vk_product_tile *tile)
{
    return tile->n_threads / TEAM * tile->n_rows;
}

uint32_t mf_vk_product_tile_groups(const mf_vk_backend *be, const mf_vk_product_tile *tile,
                                   uint32_t most_rows, uint64_t n_rows)
{
    const uint32_t per_group = rows_of(tile);
    const uint32_t n_resident = be->device.n_resident != 0 ? be->device.n_resident : RESIDENT;
    const uint64_t n_at_once = (uint64_t)n_resident * tile->n_beside;
    const uint64_t n_blocks = (n_rows + per_group - 1) / per_group;
    const uint64_t n_each = n_blocks > n_at_once ? (n_blocks + n_at_once - 1) / n_at_once : 1;
    return mf_vk_groups(mf_vk_groups(most_rows, per_group), (uint32_t)n_each);
}

/* NULL: the form has none, or the device has not enough shared memory. */
static const form_tiles *tiles_of(const mf_vk_backend *be, const mf_weight_shape *shape)
{
    if (be->device.info.shared_bytes < TILE_BYTES)
        return NULL;
    switch (shape->kind) {
    case MF_WEIGHT_AFFINE:
        return shape->bits == 4 && !be->device.keeps_small ? &affine4 : NULL;
    case MF_WEIGHT_GGUF_Q4_0:
        return &q4_0;
    case MF_WEIGHT_GGUF_Q4_K:
        return &q4_k;
    case MF_WEIGHT_GGUF_Q8_0:
        return &q8_0;
    default:
        return NULL;
    }
}

const mf_vk_product_tile *mf_vk_product_tile_of(const mf_vk_backend *be, const mf_vk_product *p,
                                                uint32_t n_tokens, uint64_t n_rows)
{
    const form_tiles *all = tiles_of(be, p->shape);
    if (all == NULL || n_tokens < 3)
        return NULL;
    const mf_vk_product_tile *own = (*all)[p->is_pair];
    if (n_tokens <= 4)
        return &own[2];
    const bool is_processor = be->device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    const uint64_t n_groups = n_rows / rows_of(&own[0]) * mf_vk_groups(n_tokens, own[0].n_tokens);
    return &own[n_groups >= (is_processor ? 1 : ENOUGH_GROUPS) ? 0 : 1];
}

mf_vk_kernel mf_vk_product_tile_kernel(const mf_vk_product_tile *tile, const mf_weight_shape *shape)
{
    mf_vk_kernel k = {tile->shader, 1, {tile->n_threads}};
    mf_vk_weight_constants(shape, &k);
    return k;
}

mf_status mf_vk_product_tiles_reserve(mf_vk_backend *be, const mf_vk_product *p, uint32_t n_tokens,
                                      mf_error *error)
{
    const form_tiles *all = tiles_of(be, p->shape);
    for (uint32_t i = 0; i < N_TILES && all != NULL && n_tokens >= 3; i++) {
        const mf_vk_product_tile *tile = &(*all)[p->is_pair][i];
        const mf_vk_kernel k = mf_vk_product_tile_kernel(tile, p->shape);
        if (n_tokens > 4 || tile->n_tokens == 4)
            MF_TRY(mf_vk_prepare(be, &k, error));
    }
    return MF_OK;
}
