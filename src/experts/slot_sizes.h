/* SPDX-License-Identifier: MIT */
/*
 * The sizes of slots. Where experts of some layers take more bytes than those of others (GGUF's
 * mixed recipes), or those of a layer that are used most (convert --hot-bits), a pool of slots for
 * the largest would waste the difference. So a pool has slots of several sizes, each size in the
 * share that its experts have of all, and mixed: of the first n slots the shares are nearly the
 * same for every n, until a size has as many as experts. Experts that are larger than others of
 * their layer are so because they are used more: each counts as several. With as many slots as
 * there are experts each expert finds one of its size. Arithmetic only; nothing here is changed by
 * use.
 */
#ifndef MF_EXPERTS_SLOT_SIZES_H
#define MF_EXPERTS_SLOT_SIZES_H

#include "experts/expert_map.h"

#include <stdbool.h>

#define MF_SLOT_SIZES 8

typedef struct mf_slot_sizes {
    uint32_t n;       /* sizes; 0: there are no experts */
    uint32_t n_first; /* so many slots come first that are of the largest size, at least 1 */
    uint64_t bytes[MF_SLOT_SIZES];     /* falling; multiples of 4096 */
    uint64_t n_experts[MF_SLOT_SIZES]; /* whose slots have this size */
    uint64_t n_hot[MF_SLOT_SIZES];     /* of these, larger than others of their layers */
} mf_slot_sizes;

/* What a hot expert counts as. */
#define MF_SLOT_HOT_WEIGHT 8u

/* The experts of a layer by their form: bytes of a slot for any of these, and how many there are.
 */
typedef struct mf_slot_forms {
    uint64_t bytes[MF_MAP_FORMS];
    uint32_t n_experts[MF_MAP_FORMS];
} mf_slot_forms;

/* Where reads land in slots, or with `anywhere` where they may be uploaded to as well. False: the
 * map overflows, or a slot would be too large. */
bool mf_slot_forms_of(const mf_expert_map *map, uint32_t layer, bool anywhere, mf_slot_forms *out);
/* Bytes of a slot for any expert of the layer, as mf_expert_slot_bytes has it, or with `anywhere`
 * as mf_expert_slot_bytes_anywhere. 0: see there. */
uint64_t mf_slot_layer_bytes(const mf_expert_map *map, uint32_t layer, bool anywhere);
/* The sizes for a map. Experts that differ by little, or by no more than the alignment of
 * reads, share one. n is 0 where a layer's is. */
void mf_slot_sizes_of(const mf_expert_map *map, bool anywhere, uint32_t n_first,
                      mf_slot_sizes *out);
/* Slots of one size. */
static inline mf_slot_sizes mf_slot_sizes_even(uint64_t slot_bytes)
{
    return (mf_slot_sizes){.n = 1, .n_first = 1, .bytes = {slot_bytes}, .n_experts = {1}};
}
/* The number of the least size that has room for so many bytes; 0 where none has. */
uint32_t mf_slot_sizes_find(const mf_slot_sizes *sizes, uint64_t n_bytes);

/* The slots in their order; all zero but sizes: before the first. */
typedef struct mf_slot_order {
    const mf_slot_sizes *sizes; /* borrowed */
    uint64_t n, n_of[MF_SLOT_SIZES];
} mf_slot_order;

/* The number of the next slot's size. */
uint32_t mf_slot_order_next(mf_slot_order *order);
/* What the first n slots take; UINT64_MAX: it overflows. */
uint64_t mf_slot_sizes_bytes(const mf_slot_sizes *sizes, uint64_t n_slots);
/* How many slots, the first `most` at most, fit into n_bytes where each takes more_each beside its
 * own bytes. */
uint64_t mf_slot_sizes_fit(const mf_slot_sizes *sizes, uint64_t n_bytes, uint64_t more_each,
                           uint64_t most);
/* The mean over all experts, rounded up. */
uint64_t mf_slot_sizes_mean(const mf_slot_sizes *sizes);

#endif
