/* SPDX-License-Identifier: MIT */
/* Where the experts lie on disk. */
#ifndef MF_EXPERTS_EXPERT_MAP_H
#define MF_EXPERTS_EXPERT_MAP_H

#include "base/weight_format.h"

/* An expert's parts are the arrays of its matrices: part MF_MAX_WEIGHT_ARRAYS * j + i is array i of
 * matrix j. */
#define MF_EXPERT_MATRICES 3 /* gate, up, down */
#define MF_MAX_EXPERT_PARTS (MF_EXPERT_MATRICES * MF_MAX_WEIGHT_ARRAYS)

/* One part of every expert of a layer: expert e lies at offset + e * stride, or, where each expert
 * has tensors of its own, at the e-th entry of each_file/each_offset (both owned by the map's
 * creator, n_experts long; NULL otherwise). */
typedef struct mf_expert_part {
    uint32_t file; /* as mf_io_add_file numbered it */
    uint64_t offset;
    uint64_t stride;
    uint64_t n_bytes;
    const uint32_t *each_file;
    const uint64_t *each_offset;
} mf_expert_part;

/* Parts of the same expert that are adjacent in a file are read by one request. */
typedef struct mf_expert_map {
    uint32_t n_layers;
    uint32_t n_experts;
    uint32_t n_parts;
    const mf_expert_part *parts; /* [n_layers][n_parts] */
} mf_expert_map;

#endif
