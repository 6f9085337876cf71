/* SPDX-License-Identifier: MIT */
/* Where the experts lie on disk. */
#ifndef MF_EXPERTS_EXPERT_MAP_H
#define MF_EXPERTS_EXPERT_MAP_H

#include "base/status.h"
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
    /* Where experts of a layer differ in form: the form of each, and its bytes by form, of which
     * n_bytes is the most. NULL otherwise. */
    const uint8_t *form_of;
    const uint64_t *form_bytes;
} mf_expert_part;

static inline uint64_t mf_expert_part_bytes(const mf_expert_part *part, uint64_t expert)
{
    return part->form_of != NULL ? part->form_bytes[part->form_of[expert]] : part->n_bytes;
}

/* What is read of an expert that has to be made first, at most. */
#define MF_MAX_STORED_PARTS 12 /* four arrays of three matrices */

/* An expert's parts, of what was read: both by their number, parts without bytes NULL or anything.
 */
typedef mf_status (*mf_expert_make_fn)(const void *ctx, uint32_t layer,
                                       const unsigned char *const *stored,
                                       unsigned char *const *parts, mf_error *error);

/* Parts of the same expert that are adjacent in a file are read by one request. */
typedef struct mf_expert_map {
    uint32_t n_layers;
    uint32_t n_experts;
    uint32_t n_parts;
    const mf_expert_part *parts; /* [n_layers][n_parts] */
    /* Of layers whose experts are not stored as slots have them: what is read of each,
     * [n_layers][MF_MAX_STORED_PARTS]; then parts have sizes alone. Without bytes where a layer's
     * are as they are stored, NULL where all are. */
    const mf_expert_part *stored;
    mf_expert_make_fn make;
    const void *make_ctx;
} mf_expert_map;

/* Forms that experts of a layer have, at most. */
#define MF_MAP_FORMS 8
/* Which of its layer's forms an expert has: 0 where they do not differ. */
static inline uint32_t mf_expert_map_form(const mf_expert_map *map, uint32_t layer, uint32_t expert)
{
    const mf_expert_part *parts = map->parts + (size_t)layer * map->n_parts;
    uint32_t p = 0;
    while (p < map->n_parts && parts[p].form_of == NULL)
        p++;
    return p < map->n_parts ? parts[p].form_of[expert] : 0;
}

static inline bool mf_expert_is_made(const mf_expert_map *map, uint32_t layer)
{
    return map->stored != NULL && map->stored[(size_t)layer * MF_MAX_STORED_PARTS].n_bytes != 0;
}

/* What is read of a layer's experts. */
static inline const mf_expert_part *mf_expert_stored_parts(const mf_expert_map *map, uint32_t layer,
                                                           uint32_t *n)
{
    const bool is_made = mf_expert_is_made(map, layer);
    *n = is_made ? MF_MAX_STORED_PARTS : map->n_parts;
    return is_made ? map->stored + (size_t)layer * MF_MAX_STORED_PARTS
                   : map->parts + (size_t)layer * map->n_parts;
}

#endif
