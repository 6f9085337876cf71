/* SPDX-License-Identifier: MIT */
/* Attention by tiles of queries that share their keys (attention.comp): what the operations that
 * end in it hand to it. */
#ifndef MF_BACKEND_VULKAN_VK_ATTENTION_H
#define MF_BACKEND_VULKAN_VK_ATTENTION_H

#include "backend/vulkan/vk_internal.h"

#define MF_VK_TILE_THREADS 256u
#define MF_VK_FEW_QUERIES 8u     /* of a tile, where no sequence has more for a key head */
#define MF_VK_ENOUGH_GROUPS 256u /* that keep a device busy */

/* Any of the operations. */
typedef struct mf_vk_attention {
    const mf_op *op;
    mf_span q, q_rot, out, fresh[2]; /* rows to be appended; id 0: none */
    uint64_t page_offset[2];
    uint32_t n_heads, n_kv_heads, key_dim, value_dim, width;
    uint32_t q_rot_row, q_rot_head, window;
    uint32_t ahead; /* as mf_vk_tuning has it */
    mf_dtype cache_type;
    float scale;
    bool is_latent, is_software, is_in_window_pages;
    bool is_gathered; /* what is attended to lies in pages of one row's own, that row included */
} mf_vk_attention;

/* As the shader's Tile. */
typedef struct mf_vk_tile {
    uint32_t first_row, position, first_query, n_queries;
    uint64_t pages;
} mf_vk_tile;

/* As the shader's push constants. */
typedef struct mf_vk_tile_push {
    uint64_t q, q_rot, out, sums, ends, tiles, k_offset, v_offset, fresh_k, fresh_v;
    uint32_t n_heads, n_kv_heads, key_dim, value_dim, q_rot_row, q_rot_head;
    uint32_t window, first_block, n_blocks;
    float scale;
} mf_vk_tile_push;

/* Which of the kernels. */
typedef struct mf_vk_tile_variant {
    uint32_t n_queries; /* of a tile */
    bool is_aligned;
} mf_vk_tile_variant;

/* Of MF_OP_ATTENTION and MF_OP_LATENT_ATTENTION. */
mf_vk_attention mf_vk_attention_of(const mf_vk_backend *be, const mf_op *op);
/* Whether a tile of these dims fits the device. */
bool mf_vk_tile_supports(const mf_vk_backend *be, const mf_vk_attention *a);
/* are_few: there are few tiles, so that small ones keep more of the device busy; is_aligned: all
 * lies where 16 bytes can be read at once. */
mf_vk_tile_variant mf_vk_tile_choose(const mf_vk_backend *be, const mf_vk_attention *a,
                                     bool are_few, bool is_aligned);
mf_vk_kernel mf_vk_tile_kernel(const mf_vk_attention *a, const mf_vk_tile_variant *v);
/* What appends rows to pages, and all variants. */
mf_status mf_vk_tile_prepare(mf_vk_backend *be, const mf_vk_attention *a, mf_error *error);
/* All but tiles, and where sums go. */
mf_vk_tile_push mf_vk_tile_push_of(const mf_vk_backend *be, const mf_vk_attention *a);
/* What tiles that are cut into blocks need beside. */
mf_status mf_vk_split_prepare(mf_vk_backend *be, const mf_vk_attention *a, mf_error *error);
/* All tiles of the operation, of one key head, that push names: each row sees n_positions from 0
 * on, or, n_positions 0, these are not the same for all. */
void mf_vk_tiles_attend(mf_vk_backend *be, const mf_vk_attention *a, const mf_vk_kernel *kernel,
                        mf_vk_tile_push *push, uint32_t n_tiles, uint32_t n_positions);
/* The rows of `fresh` go into the pages of their sequences: of the attention it asks for those,
 * page_offset, width, cache_type and is_in_window_pages; of 8 bits for the heads, too. */
mf_status mf_vk_append_prepare(mf_vk_backend *be, const mf_vk_attention *a, mf_error *error);
void mf_vk_attention_append(mf_vk_backend *be, const mf_vk_attention *a);

/* A row alone of one sequence, as attention_one.comp attends to it: blocks of MF_VK_BLOCK positions
 * from first_block on, n_queries of the heads that share a key head at a time. */
#define MF_VK_BLOCK 64u       /* positions, as in attention.glsl */
#define MF_VK_ONE_GROUPS 132u /* workgroups that a large device has at once */
typedef struct mf_vk_one {
    uint64_t pages; /* addresses of all of the sequence's, or of its window's */
    uint32_t position, window, first_block, n_blocks, n_queries;
} mf_vk_one;

/* A row alone of one sequence over all that it sees, and that everything lies where 16 bytes can be
 * read at once; but for n_queries. */
bool mf_vk_row_of(const mf_vk_backend *be, const mf_vk_attention *a, mf_vk_one *out);

/* As attention_merge.comp's push constants. */
typedef struct mf_vk_merge_push {
    uint64_t out, sums, ends, sinks, kept_before, kept, sequences;
    uint32_t n_sequences, first_row, n_heads, value_dim, window, first_block, n_blocks, n_positions;
} mf_vk_merge_push;

/* Whether so many blocks of the operation can be merged at once; where such a row's blocks put
 * what they come to; and what merges them, once they have. */
bool mf_vk_can_split(const mf_vk_backend *be, const mf_vk_attention *a, uint32_t n_blocks);
mf_vk_merge_push mf_vk_row_split(mf_vk_backend *be, const mf_vk_attention *a, const mf_vk_one *o);
void mf_vk_merge(mf_vk_backend *be, const mf_vk_attention *a, const mf_vk_merge_push *join);

/* Whether it has rows of such an operation at all; whether it has that of the batch at hand, with
 * no more workgroups than these; the most blocks that it has with them. */
bool mf_vk_one_supports(const mf_vk_backend *be, const mf_op *op);
bool mf_vk_one_of(const mf_vk_backend *be, const mf_op *op, uint32_t most_groups, mf_vk_one *out);
uint32_t mf_vk_one_blocks(const mf_op *op, uint32_t most_groups);

/* vk_op_attend_row.c: the most blocks that it has of such an operation. */
uint32_t mf_vk_attend_row_blocks(const mf_op *attend);

/* vk_op_latent_row.c: likewise of a row of latents. */
uint32_t mf_vk_latent_row_blocks(const mf_vk_backend *be, const mf_op *attend);

/* vk_seen.c: attention of rows to what is gathered for each of them, the entries that it sees
 * or those that an indexer chooses of them, and then a window's rows. Positions are entries that
 * stand for one. */
typedef struct mf_vk_seen {
    mf_vk_attention attend; /* is_gathered */
    mf_index_params index;  /* n_most 0: there is none, all entries are seen */
    mf_span to;             /* [n_at_once, n_pages] */
    uint64_t page_offset, entry_offset;
    uint32_t window, rate, n_at_once;
    uint32_t n_pages; /* of a row */
    uint32_t n_room;  /* entries that a row sees at most: scores are [n_at_once, 2, n_room] */
} mf_vk_seen;

bool mf_vk_seen_supports(const mf_vk_backend *be, const mf_vk_seen *s);
mf_status mf_vk_seen_reserve(mf_vk_backend *be, const mf_vk_seen *s, mf_error *error);
/* Whether a row of the operation sees more entries than the indexer chooses. */
bool mf_vk_seen_chooses(const mf_vk_backend *be, const mf_vk_seen *s);
/* What is to be appended has been: this waits for it. */
void mf_vk_seen_record(mf_vk_backend *be, const mf_vk_seen *s);

#endif
