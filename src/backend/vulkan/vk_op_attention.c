/* SPDX-License-Identifier: MIT */
/*
 * Attention over paged caches, of keys and values or of latents. First the rows go into the pages;
 * then a workgroup has a tile of queries that share their keys. Where there are too few tiles to
 * keep a device busy, the context is cut into blocks of positions that workgroups have to
 * themselves, and another dispatch merges them; as blocks are merged in one order and by exact
 * factors everywhere (attention.glsl), both ways give the same bits.
 */
#include "backend/vulkan/vk_attention.h"

#include "base/cache_rows.h"

#define APPEND_THREADS 128u
#define MERGE_THREADS 128u /* as many as attention_merge.comp has blocks at a time */
#define BLOCK MF_VK_BLOCK
#define MANY 64u /* at most, otherwise */
#define MOST_VALUES (4 * MF_VK_TILE_THREADS)
#define MOST_SUMS 16u                   /* of four values, that an invocation keeps */
#define SPLIT_BYTES ((uint64_t)8 << 20) /* of blocks that are to be merged, at most */
#define SPLIT_BLOCKS 64u                /* of the longest operation, in as many bytes or less */
#define LOG2_E 1.44269504f
/* Of attention_one.comp: heads of a workgroup, up to. */
#define ONE_QUERIES 4u
#define ONE_DIM 256u
#define CHUNK (UINT32_C(1) << 31) /* the bit of a window that says what it is */
/* Of attention_units.comp. */
#define UNITS_QUERIES 64u
#define UNITS_DIMS 256u /* at most, whole 64 */

/* The rows that the operation has of a sequence. */
typedef struct run {
    uint32_t first_row, n_rows, position;
    uint64_t pages;
} run;

/* As attention_one.comp's. */
typedef struct one_push {
    uint64_t q, sinks, out, sums, ends, pages, k_offset, v_offset, fresh_k, fresh_v;
    uint32_t position, window, first_block, n_blocks;
    float scale;
    uint32_t unused;
} one_push;

static mf_vk_attention of_attention(const mf_op *op)
{
    const mf_attention_params *p = &op->u.attention;
    return (mf_vk_attention){.op = op,
                             .q = p->q,
                             .q_rot = p->sinks,
                             .out = p->out,
                             .fresh = {p->k, p->v},
                             .page_offset = {p->page_offset[0], p->page_offset[1]},
                             .n_heads = p->n_heads,
                             .n_kv_heads = p->n_kv_heads,
                             .key_dim = p->head_dim,
                             .value_dim = p->head_dim,
                             .width = p->n_kv_heads * p->head_dim,
                             .window = p->window | (p->window_is_chunk ? CHUNK : 0),
                             .is_in_window_pages = p->is_in_window_pages,
                             .cache_type = p->cache_type,
                             .scale = p->scale};
}

static mf_vk_attention of_latent_attention(const mf_op *op)
{
    const mf_latent_attention_params *p = &op->u.latent_attention;
    return (mf_vk_attention){.op = op,
                             .q = p->q,
                             .q_rot = p->q_rot,
                             .out = p->out,
                             .fresh = {p->kv},
                             .page_offset = {p->page_offset, p->page_offset},
                             .n_heads = p->n_heads,
                             .n_kv_heads = 1,
                             .key_dim = p->n_latent + p->n_rot,
                             .value_dim = p->n_latent,
                             .width = p->n_latent + p->n_rot,
                             .q_rot_row = p->q_rot_row,
                             .q_rot_head = p->q_rot_head,
                             .cache_type = p->cache_type,
                             .scale = p->scale,
                             .is_latent = true};
}

mf_vk_attention mf_vk_attention_of(const mf_vk_backend *be, const mf_op *op)
{
    mf_vk_attention a = op->kind == MF_OP_ATTENTION ? of_attention(op) : of_latent_attention(op);
    a.is_software = be->device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    a.ahead = be->tuning.attention_ahead;
    return a;
}

/* ---------------------------------------------------------------------------------- kernels -- */

static uint32_t dim_lanes(const mf_vk_attention *a)
{
    uint32_t n = 1;
    while (4 * n < a->value_dim)
        n *= 2;
    return n;
}

static uint32_t sums_each(const mf_vk_attention *a, uint32_t n_queries)
{
    const uint32_t n_groups = MF_VK_TILE_THREADS / dim_lanes(a);
    return n_queries > n_groups ? n_queries / n_groups : 1;
}

/* Shared memory of a tile. */
static uint32_t tile_bytes(uint32_t n_queries)
{
    const uint32_t powers = n_queries * (BLOCK / 4 + 1), slices = (n_queries + BLOCK) * 9;
    return (powers > slices ? powers : slices) * 16 + n_queries * 6 * 4;
}

bool mf_vk_tile_supports(const mf_vk_backend *be, const mf_vk_attention *a)
{
    return a->value_dim != 0 && a->value_dim <= MOST_VALUES &&
           tile_bytes(MF_VK_FEW_QUERIES) <= be->device.info.shared_bytes;
}

/* Queries of a tile where there are many. */
static uint32_t many(const mf_vk_backend *be, const mf_vk_attention *a)
{
    uint32_t n = MANY;
    while (n > MF_VK_FEW_QUERIES &&
           (sums_each(a, n) > MOST_SUMS || tile_bytes(n) > be->device.info.shared_bytes))
        n /= 2;
    return n;
}

static bool has_whole_loads(const mf_vk_attention *a)
{
    return a->key_dim % 4 == 0 && a->value_dim % 4 == 0;
}

/* Dims that allow loads of 16 bytes almost always lie where they can be: elsewhere one kernel does
 * for all. */
mf_vk_tile_variant mf_vk_tile_choose(const mf_vk_backend *be, const mf_vk_attention *a,
                                     bool are_few, bool is_aligned)
{
    const bool is_odd = has_whole_loads(a) && !is_aligned;
    return (mf_vk_tile_variant){are_few || is_odd ? MF_VK_FEW_QUERIES : many(be, a),
                                has_whole_loads(a) && is_aligned};
}

static mf_vk_shader tile_shader(const mf_vk_attention *a)
{
    if (a->cache_type == MF_Q8)
        return a->is_latent ? MF_VK_SHADER_attention_latent_q8 : MF_VK_SHADER_attention_q8;
    return a->is_latent ? MF_VK_SHADER_attention_latent : MF_VK_SHADER_attention;
}

/* Few queries wait for memory, so that much of it is on its way at once; many have no registers for
 * that. A processor does not wait so, and takes long to compile it; where 16 bytes cannot be read
 * at once it is not worth the shader's size. */
mf_vk_kernel mf_vk_tile_kernel(const mf_vk_attention *a, const mf_vk_tile_variant *v)
{
    const bool are_few = v->n_queries == MF_VK_FEW_QUERIES;
    const bool is_deep = are_few && v->is_aligned && !a->is_software;
    const bool is_q8 = a->cache_type == MF_Q8;
    const bool is_fresh = are_few && !a->is_gathered && !is_q8;
    const uint32_t n_slices = mf_vk_groups(a->key_dim, 32);
    const uint32_t deep = a->ahead * (a->cache_type == MF_BF16 ? 2 : 1);
    const uint32_t n_sums = sums_each(a, v->n_queries);
    return (mf_vk_kernel){tile_shader(a),
                          12,
                          {MF_VK_TILE_THREADS, is_q8 ? MF_F32 : (uint32_t)a->cache_type,
                           v->is_aligned, is_fresh, v->n_queries, are_few ? 2 : 4,
                           are_few ? 2 : (v->n_queries + 15) / 16, dim_lanes(a), n_sums,
                           n_sums < 4 ? n_sums : 4,
                           !is_deep          ? 1
                           : n_slices < deep ? n_slices
                                             : deep,
                           is_deep ? 4 * deep : 8}};
}

static uint32_t per_key_head(const mf_vk_attention *a)
{
    return a->n_heads / a->n_kv_heads;
}

/* Columns of keys that attention_one.comp has in shared memory at a time; 0: there is none. */
static uint32_t one_slice(const mf_vk_backend *be, const mf_vk_attention *a)
{
    for (uint32_t slice = 128; slice >= 32; slice /= 2) {
        const uint32_t keys = BLOCK * (slice / 4 + 1);
        const uint32_t queries = ONE_QUERIES * (a->key_dim + BLOCK) / 4;
        if (a->key_dim % slice == 0 && (keys + queries) * 16 <= be->device.info.shared_bytes)
            return slice;
    }
    return 0;
}

static mf_vk_kernel one_kernel(const mf_vk_backend *be, const mf_vk_attention *a,
                               uint32_t n_queries)
{
    return (mf_vk_kernel){MF_VK_SHADER_attention_one,
                          7,
                          {MF_VK_TILE_THREADS, (uint32_t)a->cache_type, a->key_dim, a->n_kv_heads,
                           per_key_head(a), n_queries, one_slice(be, a)}};
}

static bool has_one_kernel(const mf_vk_backend *be, const mf_vk_attention *a)
{
    return !a->is_latent && a->cache_type != MF_Q8 && a->key_dim <= ONE_DIM &&
           one_slice(be, a) != 0;
}

static mf_status reserve_one(mf_vk_backend *be, const mf_vk_attention *a, mf_error *error)
{
    for (uint32_t n = 1; n <= ONE_QUERIES && n <= per_key_head(a) && has_one_kernel(be, a);
         n *= 2) {
        const mf_vk_kernel kernel = one_kernel(be, a, n);
        MF_TRY(mf_vk_prepare(be, &kernel, error));
    }
    return MF_OK;
}

/* Whether it takes the rows that are appended from where they come. */
static bool reads_fresh(const mf_vk_kernel *kernel)
{
    return kernel->constants[3] != 0;
}

static mf_vk_kernel append_kernel(const mf_vk_attention *a)
{
    const bool is_q8 = a->cache_type == MF_Q8;
    return (mf_vk_kernel){a->cache_type == MF_F32 ? MF_VK_SHADER_cache_append
                          : is_q8                 ? MF_VK_SHADER_cache_append_q8
                                                  : MF_VK_SHADER_cache_append_bf16,
                          1,
                          {APPEND_THREADS}};
}

mf_status mf_vk_append_prepare(mf_vk_backend *be, const mf_vk_attention *a, mf_error *error)
{
    const mf_vk_kernel append = append_kernel(a);
    return mf_vk_prepare(be, &append, error);
}

mf_status mf_vk_tile_prepare(mf_vk_backend *be, const mf_vk_attention *a, mf_error *error)
{
    MF_TRY(mf_vk_append_prepare(be, a, error));
    for (uint32_t i = 0; i < 4; i++) {
        const mf_vk_tile_variant v = mf_vk_tile_choose(be, a, (i & 1) != 0, (i & 2) != 0);
        const mf_vk_kernel kernel = mf_vk_tile_kernel(a, &v);
        MF_TRY(mf_vk_prepare(be, &kernel, error));
    }
    return MF_OK;
}

static mf_vk_kernel merge_kernel(void)
{
    return (mf_vk_kernel){MF_VK_SHADER_attention_merge, 1, {MERGE_THREADS}};
}

static uint32_t units_bytes(uint32_t slice)
{
    return BLOCK * (slice / 4 + 2) * 8 + UNITS_QUERIES * (BLOCK / 4 + 1) * 16;
}

/* Of rows that are long: the same for all of them, whatever is with them in the operation. */
static mf_vk_kernel units_kernel(const mf_vk_backend *be, const mf_vk_attention *a, bool is_aligned)
{
    const bool is_wide = a->key_dim % 128 == 0 && be->device.info.shared_bytes >= units_bytes(128);
    return (mf_vk_kernel){
        be->device.info.has_units ? MF_VK_SHADER_attention_units : MF_VK_SHADER_attention_plain,
        5,
        {MF_VK_TILE_THREADS, (uint32_t)a->cache_type, is_aligned, a->key_dim, is_wide ? 128 : 64}};
}

static bool has_units_kernel(const mf_vk_backend *be, const mf_vk_attention *a)
{
    return be->is_mixed && !a->is_latent && a->key_dim % 64 == 0 && a->key_dim <= UNITS_DIMS &&
           be->device.info.least_subgroup >= 4 && be->device.info.shared_bytes >= units_bytes(64);
}

/* What an indexer keeps of positions: its keys. */
static mf_vk_attention of_index_keys(const mf_op *op)
{
    const mf_index_params *x = &op->u.latent_attention.index;
    return (mf_vk_attention){.op = op,
                             .fresh = {x->k},
                             .page_offset = {x->page_offset},
                             .width = x->dim,
                             .cache_type = x->cache_type};
}

/* The positions that an indexer chooses are gathered; rows that see no more than it would choose
 * are attended to as they lie, with the same bits. */
static mf_vk_seen of_chosen(const mf_vk_attention *a)
{
    const mf_latent_attention_params *p = &a->op->u.latent_attention;
    mf_vk_seen s = {.attend = *a,
                    .index = p->index,
                    .to = p->index.gathered,
                    .entry_offset = p->page_offset,
                    .rate = 1,
                    .n_at_once = p->n_at_once,
                    .n_pages = mf_pages_of(p->index.n_most),
                    .n_room = p->n_positions};
    s.attend.page_offset[0] = s.attend.page_offset[1] = 0;
    s.attend.is_gathered = true;
    return s;
}

static bool has_index(const mf_vk_attention *a)
{
    return a->is_latent && a->op->u.latent_attention.index.n_most != 0;
}

static bool supports(const mf_vk_backend *be, const mf_op *op)
{
    const mf_vk_attention a = mf_vk_attention_of(be, op);
    const mf_vk_seen chosen = has_index(&a) ? of_chosen(&a) : (mf_vk_seen){0};
    if (has_index(&a) && !mf_vk_seen_supports(be, &chosen))
        return false;
    return (a.cache_type == MF_F32 || a.cache_type == MF_BF16 || a.cache_type == MF_Q8) &&
           a.n_kv_heads != 0 && mf_vk_tile_supports(be, &a);
}

static uint64_t split_bytes(const mf_vk_attention *a, uint64_t n_blocks)
{
    return (uint64_t)a->op->n_rows * a->n_heads * (a->value_dim + 2) * n_blocks * sizeof(float);
}

mf_status mf_vk_split_prepare(mf_vk_backend *be, const mf_vk_attention *a, mf_error *error)
{
    const mf_vk_kernel merge = merge_kernel();
    const uint64_t split = split_bytes(a, SPLIT_BLOCKS);
    const uint64_t kept = (uint64_t)a->op->n_rows * a->n_heads * 4 * sizeof(float);
    MF_TRY(mf_vk_prepare(be, &merge, error));
    return mf_vk_ring_need(be, MF_VK_RING_SCRATCH,
                           (split < SPLIT_BYTES ? split : SPLIT_BYTES) + kept, error);
}

static mf_status reserve_chosen(mf_vk_backend *be, const mf_vk_attention *a, mf_error *error)
{
    const mf_vk_attention of_keys = of_index_keys(a->op);
    const mf_vk_kernel append = append_kernel(&of_keys);
    const mf_vk_seen s = of_chosen(a);
    MF_TRY(mf_vk_prepare(be, &append, error));
    return mf_vk_seen_reserve(be, &s, error);
}

static mf_status reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_vk_attention a = mf_vk_attention_of(be, op);
    const uint64_t n_tiles =
        (uint64_t)op->n_rows * (a.n_heads / a.n_kv_heads / MF_VK_FEW_QUERIES + 1);
    MF_TRY(mf_vk_tile_prepare(be, &a, error));
    MF_TRY(mf_vk_split_prepare(be, &a, error));
    MF_TRY(reserve_one(be, &a, error)); /* it may come with a row alone */
    if (has_index(&a))
        MF_TRY(reserve_chosen(be, &a, error));
    for (uint32_t i = 0; i < 2 && has_units_kernel(be, &a); i++) {
        const mf_vk_kernel kernel = units_kernel(be, &a, i != 0);
        MF_TRY(mf_vk_prepare(be, &kernel, error));
    }
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS, n_tiles * sizeof(mf_vk_tile), error);
}

/* ------------------------------------------------------------------------------------ tiles -- */

static const mf_span *pages_of(const mf_vk_attention *a, const mf_sequence *seq)
{
    return a->is_in_window_pages ? seq->window_pages : seq->pages;
}

static uint64_t pages_address(const mf_vk_backend *be, const mf_vk_attention *a,
                              const mf_sequence *seq)
{
    const mf_vk_batches *b = &be->batches;
    return mf_vk_batch_address(be) + 2 * b->n_sequences * sizeof(mf_vk_sequence) +
           (uint64_t)(pages_of(a, seq) - b->pages) * sizeof(uint64_t);
}

static uint64_t sequences_address(const mf_vk_backend *be, const mf_vk_attention *a)
{
    return a->is_in_window_pages ? mf_vk_batch_window_address(be) : mf_vk_batch_address(be);
}

static bool run_of(const mf_vk_backend *be, const mf_vk_attention *a, uint32_t i, run *out)
{
    const mf_sequence *seq = &be->batches.sequences[i];
    const uint32_t op_first = a->op->first_row, op_end = op_first + a->op->n_rows;
    const uint32_t seq_end = seq->first_row + seq->n_rows;
    const uint32_t first = seq->first_row > op_first ? seq->first_row : op_first;
    const uint32_t end = seq_end < op_end ? seq_end : op_end;
    if (first >= end)
        return false;
    *out = (run){.first_row = first - op_first,
                 .n_rows = end - first,
                 .position = (uint32_t)seq->position + first - seq->first_row,
                 .pages = pages_address(be, a, seq)};
    return true;
}

/* What the operation's runs come to. */
typedef struct survey {
    uint32_t most_queries;          /* of a run, for a key head */
    uint32_t first_block, n_blocks; /* of all runs */
} survey;

/* As attention.glsl. */
static uint32_t first_seen(uint32_t window, uint32_t position)
{
    const uint32_t n = window & ~CHUNK;
    if (n != window)
        return position / n * n;
    return n != 0 && position >= n ? position + 1 - n : 0;
}

static survey survey_runs(const mf_vk_backend *be, const mf_vk_attention *a)
{
    const uint32_t per_key = a->n_heads / a->n_kv_heads;
    survey s = {0, UINT32_MAX, 0};
    uint32_t end = 0;
    for (uint32_t i = 0; i < be->batches.n_sequences; i++) {
        run r;
        if (!run_of(be, a, i, &r))
            continue;
        const uint32_t n = r.n_rows * per_key, last = (r.position + r.n_rows - 1) / BLOCK;
        const uint32_t first = first_seen(a->window, r.position) / BLOCK;
        s.most_queries = n > s.most_queries ? n : s.most_queries;
        s.first_block = first < s.first_block ? first : s.first_block;
        end = last + 1 > end ? last + 1 : end;
    }
    s.n_blocks = end > s.first_block ? end - s.first_block : 0;
    return s;
}

/* Tiles into `tiles` (NULL: they are counted), those of a run's last rows first: they take longest.
 */
static uint32_t list_tiles(const mf_vk_backend *be, const mf_vk_attention *a, uint32_t n_queries,
                           mf_vk_tile *tiles)
{
    const uint32_t per_key = a->n_heads / a->n_kv_heads;
    uint32_t n = 0;
    for (uint32_t i = 0; i < be->batches.n_sequences; i++) {
        run r;
        if (!run_of(be, a, i, &r))
            continue;
        const uint32_t n_all = r.n_rows * per_key, n_tiles = mf_vk_groups(n_all, n_queries);
        for (uint32_t j = n_tiles; j-- > 0 && tiles != NULL;) {
            const uint32_t left = n_all - j * n_queries;
            tiles[n + n_tiles - 1 - j] = (mf_vk_tile){r.first_row, r.position, j * n_queries,
                                                      left < n_queries ? left : n_queries, r.pages};
        }
        n += n_tiles;
    }
    return n;
}

/* Whether everything lies where 16 bytes can be read at once. */
static bool is_aligned(const mf_vk_backend *be, const mf_vk_attention *a)
{
    const mf_vk_batches *b = &be->batches;
    uint64_t bits = mf_vk_address(be, a->q) | mf_vk_address(be, a->out) | a->page_offset[0] |
                    a->page_offset[1] | mf_vk_address(be, a->fresh[0]) |
                    mf_vk_address(be, a->fresh[1]);
    if (a->is_latent)
        bits |= mf_vk_address(be, a->q_rot) | (a->q_rot_row | a->q_rot_head) * (uint64_t)4;
    for (uint32_t i = 0; i < b->n_sequences; i++) {
        const mf_sequence *seq = &b->sequences[i];
        const uint32_t n = mf_pages_of(seq->position + seq->n_rows);
        for (uint32_t p = 0; p < n; p++)
            bits |= mf_vk_address(be, pages_of(a, seq)[p]);
    }
    return bits % 16 == 0;
}

/* ------------------------------------------------------------------------------- dispatches -- */

void mf_vk_attention_append(mf_vk_backend *be, const mf_vk_attention *a)
{
    const mf_vk_kernel kernel = append_kernel(a);
    const struct {
        uint64_t x[2], page_offset[2], sequences;
        uint32_t n_sequences, first_row, width, dim;
    } push = {{mf_vk_address(be, a->fresh[0]), mf_vk_address(be, a->fresh[1])},
              {a->page_offset[0], a->page_offset[1]},
              sequences_address(be, a),
              be->batches.n_sequences,
              a->op->first_row,
              a->width,
              a->key_dim};
    const uint32_t n = a->fresh[1].buffer.id != 0 ? 2 : 1;
    const uint32_t n_each = a->cache_type == MF_Q8 /* invocations of a row */
                                ? a->n_kv_heads * (uint32_t)mf_cache_blocks(a->key_dim)
                                : a->width;
    mf_vk_dispatch(be, &kernel, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(n_each, APPEND_THREADS), a->op->n_rows, n});
}

mf_vk_tile_push mf_vk_tile_push_of(const mf_vk_backend *be, const mf_vk_attention *a)
{
    return (mf_vk_tile_push){.q = mf_vk_address(be, a->q),
                             .q_rot = mf_vk_address(be, a->q_rot),
                             .out = mf_vk_address(be, a->out),
                             .fresh_k = mf_vk_address(be, a->fresh[0]),
                             .fresh_v = mf_vk_address(be, a->fresh[a->is_latent ? 0 : 1]),
                             .k_offset = a->page_offset[0],
                             .v_offset = a->page_offset[1],
                             .n_heads = a->n_heads,
                             .n_kv_heads = a->n_kv_heads,
                             .key_dim = a->key_dim,
                             .value_dim = a->value_dim,
                             .q_rot_row = a->q_rot_row,
                             .q_rot_head = a->q_rot_head,
                             .window = a->window,
                             .scale = a->scale * LOG2_E};
}

/* Where the blocks' sums go, and the push of what merges them. */
static mf_vk_merge_push begin_split(mf_vk_backend *be, const mf_vk_attention *a, uint32_t most)
{
    const uint64_t n = (uint64_t)a->op->n_rows * a->n_heads, kept = 2 * n * sizeof(float);
    mf_vk_merge_push join = {.out = mf_vk_address(be, a->out),
                             .sinks = a->is_latent ? 0 : mf_vk_address(be, a->q_rot),
                             .sequences = sequences_address(be, a),
                             .n_sequences = be->batches.n_sequences,
                             .first_row = a->op->first_row,
                             .n_heads = a->n_heads,
                             .value_dim = a->value_dim,
                             .window = a->window};
    join.sums = mf_vk_scratch(be, n * most * a->value_dim * sizeof(float));
    join.ends = mf_vk_scratch(be, n * most * 2 * sizeof(float));
    join.kept_before = mf_vk_scratch(be, kept);
    join.kept = mf_vk_scratch(be, kept);
    return join;
}

/* Blocks that there is room for at a time. */
static uint32_t most_blocks(const mf_vk_backend *be, const mf_vk_attention *a, const survey *s)
{
    const uint64_t room = be->rings[MF_VK_RING_SCRATCH].most_needed;
    const uint64_t n_fit = (room < SPLIT_BYTES ? room : SPLIT_BYTES) / split_bytes(a, 1);
    return n_fit < s->n_blocks ? (uint32_t)n_fit : s->n_blocks;
}

/* The next round's blocks, from the `at`-th of the survey on. */
static void next_blocks(mf_vk_merge_push *join, const survey *s, uint32_t at, uint32_t most)
{
    const uint64_t kept_before = join->kept_before;
    join->kept_before = join->kept;
    join->kept = kept_before;
    join->first_block = s->first_block + at;
    join->n_blocks = s->n_blocks - at < most ? s->n_blocks - at : most;
}

void mf_vk_merge(mf_vk_backend *be, const mf_vk_attention *a, const mf_vk_merge_push *join)
{
    const mf_vk_kernel kernel = merge_kernel();
    mf_vk_step(be);
    mf_vk_dispatch(
        be, &kernel, join, sizeof *join,
        (const uint32_t[]){a->n_heads, a->op->n_rows, mf_vk_groups(a->value_dim, MERGE_THREADS)});
}

/* Block by block in other workgroups, as many blocks at a time as there is room for. n_positions:
 * that each row has; 0: those of its sequence. */
static void attend_split(mf_vk_backend *be, const mf_vk_attention *a, const mf_vk_kernel *kernel,
                         const survey *s, mf_vk_tile_push *push, uint32_t n_tiles,
                         uint32_t n_positions)
{
    const uint32_t most = most_blocks(be, a, s);
    mf_vk_merge_push join = begin_split(be, a, most);
    join.n_positions = n_positions;
    push->sums = join.sums;
    push->ends = join.ends;
    for (uint32_t at = 0; at < s->n_blocks; at += most) {
        next_blocks(&join, s, at, most);
        push->first_block = join.first_block;
        push->n_blocks = join.n_blocks;
        if (at != 0)
            mf_vk_step(be);
        mf_vk_dispatch(be, kernel, push, sizeof *push,
                       (const uint32_t[]){n_tiles, a->n_kv_heads, push->n_blocks});
        mf_vk_merge(be, a, &join);
    }
}

/* A workgroup's x is a tile, its y a key head. *at: where the push constants, which are these, say
 * that the tiles are. */
static void dispatch_tiles(mf_vk_backend *be, const mf_vk_kernel *kernel, const void *push,
                           uint32_t push_bytes, uint64_t *at, const uint32_t n[2])
{
    for (uint32_t first = 0, n_now; first < n[0]; first += n_now) {
        n_now = n[0] - first < MF_VK_MOST_GROUPS ? n[0] - first : MF_VK_MOST_GROUPS;
        mf_vk_dispatch(be, kernel, push, push_bytes, (const uint32_t[]){n_now, n[1], 1});
        *at += n_now * sizeof(mf_vk_tile);
    }
}

static one_push one_push_of(const mf_vk_backend *be, const mf_vk_attention *a, const mf_vk_one *o)
{
    return (one_push){.q = mf_vk_address(be, a->q),
                      .sinks = mf_vk_address(be, a->q_rot),
                      .out = mf_vk_address(be, a->out),
                      .pages = o->pages,
                      .k_offset = a->page_offset[0],
                      .v_offset = a->page_offset[1],
                      .fresh_k = mf_vk_address(be, a->fresh[0]),
                      .fresh_v = mf_vk_address(be, a->fresh[1]),
                      .position = o->position,
                      .window = a->window,
                      .first_block = o->first_block,
                      .scale = a->scale * LOG2_E};
}

static uint32_t one_groups(const mf_vk_attention *a, uint32_t n_blocks, uint32_t n_queries)
{
    return mf_vk_groups(per_key_head(a), n_queries) * a->n_kv_heads * n_blocks;
}

/* Heads of a workgroup: as few as leave no more workgroups than run at once. */
static uint32_t one_queries(const mf_vk_attention *a, uint32_t n_blocks)
{
    uint32_t n = 1;
    while (2 * n <= ONE_QUERIES && 2 * n <= per_key_head(a) &&
           one_groups(a, n_blocks, n) > MF_VK_ONE_GROUPS)
        n *= 2;
    return n;
}

mf_vk_merge_push mf_vk_row_split(mf_vk_backend *be, const mf_vk_attention *a, const mf_vk_one *o)
{
    const survey s = {.first_block = o->first_block, .n_blocks = o->n_blocks};
    mf_vk_merge_push join = begin_split(be, a, o->n_blocks);
    next_blocks(&join, &s, 0, o->n_blocks);
    join.n_positions = o->position + 1;
    return join;
}

/* One row of one sequence, and no more blocks than there is room for. */
static void attend_one(mf_vk_backend *be, const mf_vk_attention *a, const mf_vk_one *o)
{
    const mf_vk_kernel kernel = one_kernel(be, a, o->n_queries);
    const uint32_t groups[] = {mf_vk_groups(per_key_head(a), o->n_queries), a->n_kv_heads,
                               o->n_blocks};
    one_push push = one_push_of(be, a, o);
    if (o->n_blocks == 1) {
        mf_vk_dispatch(be, &kernel, &push, sizeof push, groups);
        return;
    }
    const mf_vk_merge_push join = mf_vk_row_split(be, a, o);
    push.sums = join.sums;
    push.ends = join.ends;
    push.n_blocks = o->n_blocks;
    mf_vk_dispatch(be, &kernel, &push, sizeof push, groups);
    mf_vk_merge(be, a, &join);
}

static void attend_units(mf_vk_backend *be, const mf_vk_attention *a)
{
    const mf_vk_kernel kernel = units_kernel(be, a, is_aligned(be, a));
    const uint32_t n_tiles = list_tiles(be, a, UNITS_QUERIES, NULL);
    struct {
        uint64_t q, sinks, out, tiles, k_offset, v_offset;
        uint32_t n_heads, n_kv_heads, window;
        float scale;
    } push = {mf_vk_address(be, a->q),
              mf_vk_address(be, a->q_rot),
              mf_vk_address(be, a->out),
              0,
              a->page_offset[0],
              a->page_offset[1],
              a->n_heads,
              a->n_kv_heads,
              a->window,
              a->scale * LOG2_E};
    mf_vk_tile *tiles = mf_vk_parameters(be, n_tiles * sizeof *tiles, &push.tiles);
    if (tiles == NULL)
        return;
    (void)list_tiles(be, a, UNITS_QUERIES, tiles);
    mf_vk_attention_append(be, a);
    mf_vk_step(be);
    dispatch_tiles(be, &kernel, &push, sizeof push, &push.tiles,
                   (const uint32_t[]){n_tiles, a->n_kv_heads});
}

bool mf_vk_can_split(const mf_vk_backend *be, const mf_vk_attention *a, uint32_t n_blocks)
{
    return split_bytes(a, n_blocks) <= SPLIT_BYTES &&
           split_bytes(a, n_blocks) <= be->rings[MF_VK_RING_SCRATCH].most_needed;
}

bool mf_vk_row_of(const mf_vk_backend *be, const mf_vk_attention *a, mf_vk_one *out)
{
    const survey s = survey_runs(be, a);
    run r;
    if (a->op->n_rows != 1 || be->batches.n_sequences != 1 || s.n_blocks == 0 ||
        !is_aligned(be, a) || !run_of(be, a, 0, &r))
        return false;
    *out = (mf_vk_one){r.pages, r.position, a->window, s.first_block, s.n_blocks, 0};
    return true;
}

/* attention_one.comp reads keys as often as there are workgroups for them: not where they are many.
 */
static bool takes_one(const mf_vk_backend *be, const mf_vk_attention *a, uint32_t most_groups,
                      mf_vk_one *out)
{
    if (!has_one_kernel(be, a) || !mf_vk_row_of(be, a, out))
        return false;
    out->n_queries = one_queries(a, out->n_blocks);
    return one_groups(a, out->n_blocks, out->n_queries) <= most_groups;
}

bool mf_vk_one_of(const mf_vk_backend *be, const mf_op *op, uint32_t most_groups, mf_vk_one *out)
{
    const mf_vk_attention a = mf_vk_attention_of(be, op);
    return takes_one(be, &a, most_groups, out);
}

bool mf_vk_one_supports(const mf_vk_backend *be, const mf_op *op)
{
    const mf_vk_attention a = mf_vk_attention_of(be, op);
    return op->n_rows == 1 && has_one_kernel(be, &a);
}

uint32_t mf_vk_one_blocks(const mf_op *op, uint32_t most_groups)
{
    const mf_vk_attention a = of_attention(op);
    return most_groups / one_groups(&a, 1, one_queries(&a, UINT16_MAX));
}

/* Whether that was all that is to be done. */
static bool record_chosen(mf_vk_backend *be, const mf_vk_attention *a)
{
    const mf_vk_attention keys = of_index_keys(a->op);
    const mf_vk_seen s = of_chosen(a);
    mf_vk_attention_append(be, &keys);
    if (!mf_vk_seen_chooses(be, &s))
        return false;
    mf_vk_attention_append(be, a);
    mf_vk_seen_record(be, &s);
    return true;
}

void mf_vk_tiles_attend(mf_vk_backend *be, const mf_vk_attention *a, const mf_vk_kernel *kernel,
                        mf_vk_tile_push *push, uint32_t n_tiles, uint32_t n_positions)
{
    const survey s = {.n_blocks = mf_vk_groups(n_positions, BLOCK)};
    if (s.n_blocks > 1 && n_tiles < MF_VK_ENOUGH_GROUPS && mf_vk_can_split(be, a, 1))
        attend_split(be, a, kernel, &s, push, n_tiles, n_positions);
    else
        dispatch_tiles(be, kernel, push, sizeof *push, &push->tiles,
                       (const uint32_t[]){n_tiles, 1});
}

static void record(mf_vk_backend *be, const mf_op *op)
{
    const mf_vk_attention a = mf_vk_attention_of(be, op);
    if (has_index(&a) && record_chosen(be, &a))
        return;
    if (op->is_long && has_units_kernel(be, &a)) {
        attend_units(be, &a);
        return;
    }
    mf_vk_one one;
    if (takes_one(be, &a, MF_VK_ONE_GROUPS, &one) && mf_vk_can_split(be, &a, one.n_blocks)) {
        mf_vk_attention_append(be, &a);
        attend_one(be, &a, &one);
        return;
    }
    const survey s = survey_runs(be, &a);
    const uint64_t n_small =
        (uint64_t)list_tiles(be, &a, MF_VK_FEW_QUERIES, NULL) * a.n_kv_heads * s.n_blocks;
    const bool are_few = s.most_queries <= MF_VK_FEW_QUERIES || n_small <= 2 * MF_VK_ENOUGH_GROUPS;
    const mf_vk_tile_variant v = mf_vk_tile_choose(be, &a, are_few, is_aligned(be, &a));
    const uint32_t n_tiles = list_tiles(be, &a, v.n_queries, NULL);
    mf_vk_tile_push push = mf_vk_tile_push_of(be, &a);
    mf_vk_tile *tiles = mf_vk_parameters(be, n_tiles * sizeof *tiles, &push.tiles);
    if (tiles == NULL)
        return;
    (void)list_tiles(be, &a, v.n_queries, tiles);
    const bool is_split = s.n_blocks > 1 && n_tiles * a.n_kv_heads < MF_VK_ENOUGH_GROUPS &&
                          mf_vk_can_split(be, &a, 1);
    const mf_vk_kernel kernel = mf_vk_tile_kernel(&a, &v);
    mf_vk_attention_append(be, &a);
    if (!reads_fresh(&kernel))
        mf_vk_step(be);
    if (is_split) {
        attend_split(be, &a, &kernel, &s, &push, n_tiles, 0);
        return;
    }
    dispatch_tiles(be, &kernel, &push, sizeof push, &push.tiles,
                   (const uint32_t[]){n_tiles, a.n_kv_heads});
}

const mf_vk_op mf_vk_op_attention = {supports, reserve, record};
const mf_vk_op mf_vk_op_latent_attention = {supports, reserve, record};
