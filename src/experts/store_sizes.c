/* SPDX-License-Identifier: MIT */
/* Which sizes of slots experts have, for those who simulate the store. */
#include "experts/store_impl.h"

#include <string.h>

const mf_slot_sizes *mf_expert_store_sizes(const mf_expert_store *store, uint32_t n_layers,
                                           uint8_t *of, uint64_t n_bytes[MF_SLOT_SIZES])
{
    uint64_t n_experts[MF_SLOT_SIZES] = {0};
    memset(n_bytes, 0, MF_SLOT_SIZES * sizeof *n_bytes);
    for (uint32_t layer = 0; layer < n_layers; layer++)
        for (uint32_t expert = 0; expert < store->map.n_experts; expert++) {
            const uint32_t key = mf_expert_key(store, layer, expert);
            const uint8_t size = store->key_size[key];
            mf_expert_plan plan = {0};
            (void)mf_expert_plan_make(&store->map, layer, expert, &plan);
            of[key] = size;
            n_experts[size]++;
            n_bytes[size] += plan.n_bytes;
        }
    for (uint32_t i = 0; i < store->sizes.n; i++)
        n_bytes[i] = n_experts[i] == 0 ? 0 : n_bytes[i] / n_experts[i];
    return &store->sizes;
}
