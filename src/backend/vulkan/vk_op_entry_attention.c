/* SPDX-License-Identifier: MIT */
/*
 * Attention to entries and a window (DeepSeek-V4). What a row attends to is gathered side by side,
 * the row's own key last. Then its heads are queries of one more sequence, whose pages lie in what
 * is gathered and whose last position is that key: the kernels of vk_attention.h do the rest, and a
 * head's sink is theirs as well.
 */
#include "backend/vulkan/vk_attention.h"

#define GATHER_THREADS 256u

/* The sequence that holds the row of the operation, and its position. */
static const mf_sequence *holder_of(const mf_vk_backend *be, const mf_op *op, uint32_t row,
                                    uint32_t *position)
{
    const mf_sequence *seq = be->batches.sequences;
    const uint32_t at = op->first_row + row;
    while (at - seq->first_row >= seq->n_rows)
        seq++;
    *position = (uint32_t)seq->position + at - seq->first_row;
    return seq;
}

static uint32_t n_keys_of(const mf_entry_attention_params *p, uint32_t position)
{
    const uint32_t n_window = position < p->window ? position + 1 : p->window;
    return n_window + (p->rate != 0 ? (position + 1) / p->rate : 0);
}

static mf_vk_attention of_entry_attention(const mf_vk_backend *be, const mf_op *op)
{
    const mf_entry_attention_params *p = &op->u.entry_attention;
    return (mf_vk_attention){.op = op,
                             .q = p->q,
                             .q_rot = p->sinks,
                             .out = p->out,
                             .fresh = {p->kv, p->kv},
                             .n_heads = p->n_heads,
                             .n_kv_heads = 1,
                             .key_dim = p->dim,
                             .value_dim = p->dim,
                             .width = p->dim,
                             .cache_type = p->cache_type,
                             .scale = p->scale,
                             .is_software =
                                 be->device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU,
                             .ahead = be->tuning.attention_ahead};
}

static mf_vk_kernel gather_kernel(const mf_vk_attention *a)
{
    return (mf_vk_kernel){a->cache_type == MF_F32 ? MF_VK_SHADER_gather_entries
                                                  : MF_VK_SHADER_gather_entries_bf16,
                          1,
                          {GATHER_THREADS}};
}

static bool entry_supports(const mf_vk_backend *be, const mf_op *op)
{
    const mf_vk_attention a = of_entry_attention(be, op);
    return op->u.entry_attention.index.n_most == 0 && /* there is no shader of it yet */
           (a.cache_type == MF_F32 || a.cache_type == MF_BF16) && a.value_dim != 0 &&
           a.value_dim <= MF_VK_MOST_VALUES &&
           mf_vk_tile_bytes(MF_VK_FEW_QUERIES) <= be->device.info.shared_bytes;
}

/* Pages that one row gathers. */
static uint32_t gathered_pages(const mf_entry_attention_params *p)
{
    return (uint32_t)(mf_entry_rows(p->window, p->n_entries, 0) / MF_PAGE_TOKENS);
}

static uint64_t gathered_page_bytes(const mf_entry_attention_params *p)
{
    return (uint64_t)MF_PAGE_TOKENS * p->dim * mf_dtype_bytes(p->cache_type);
}

static mf_status entry_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_entry_attention_params *p = &op->u.entry_attention;
    const mf_vk_attention a = of_entry_attention(be, op);
    const mf_vk_kernel gather = gather_kernel(&a);
    const uint64_t n_tiles = (uint64_t)op->n_rows * mf_vk_groups(a.n_heads, MF_VK_FEW_QUERIES);
    MF_TRY(mf_vk_tile_prepare(be, &a, error));
    MF_TRY(mf_vk_prepare(be, &gather, error));
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS,
                           n_tiles * sizeof(mf_vk_tile) +
                               (uint64_t)p->n_at_once * gathered_pages(p) * sizeof(uint64_t) +
                               (uint64_t)op->n_rows * 64, /* each time's begins on its own */
                           error);
}

/* The pages of all rows that are gathered at a time; they are the same each time. */
static uint64_t list_gathered(mf_vk_backend *be, const mf_entry_attention_params *p)
{
    const uint32_t n = p->n_at_once * gathered_pages(p);
    uint64_t address = 0, *pages = mf_vk_parameters(be, n * sizeof *pages, &address);
    for (uint32_t i = 0; i < n && pages != NULL; i++)
        pages[i] = mf_vk_address(be, p->gathered) + i * gathered_page_bytes(p);
    return address;
}

static void gather(mf_vk_backend *be, const mf_vk_attention *a, uint32_t first, uint32_t n_rows)
{
    const mf_entry_attention_params *p = &a->op->u.entry_attention;
    const mf_vk_kernel kernel = gather_kernel(a);
    const struct {
        uint64_t to, stride, sequences, windows, page_offset, entry_offset;
        uint32_t n_sequences, first_row, dim, window, rate, unused;
    } push = {mf_vk_address(be, p->gathered),
              gathered_pages(p) * gathered_page_bytes(p),
              mf_vk_batch_address(be),
              mf_vk_batch_window_address(be),
              p->page_offset,
              p->entry_offset,
              be->batches.n_sequences,
              a->op->first_row + first,
              p->dim,
              p->window,
              p->rate,
              0};
    const uint64_t n = (uint64_t)gathered_pages(p) * MF_PAGE_TOKENS * p->dim;
    const uint32_t n_groups = mf_vk_groups(n, GATHER_THREADS);
    mf_vk_dispatch(be, &kernel, &push, sizeof push,
                   (const uint32_t[]){n_groups < 256 ? n_groups : 256, n_rows, 1});
}

/* Tiles of rows first .. first + n_rows - 1, whose heads are n_queries of a tile at most. */
static void attend_gathered(mf_vk_backend *be, const mf_vk_attention *a,
                            const mf_vk_tile_variant *v, uint64_t pages, uint32_t first,
                            uint32_t n_rows)
{
    const mf_entry_attention_params *p = &a->op->u.entry_attention;
    const mf_vk_kernel kernel = mf_vk_tile_kernel(a, v);
    const uint32_t n_each = mf_vk_groups(a->n_heads, v->n_queries);
    mf_vk_tile_push push = mf_vk_tile_push_of(be, a);
    mf_vk_tile *tiles =
        mf_vk_parameters(be, (uint64_t)n_rows * n_each * sizeof *tiles, &push.tiles);
    if (tiles == NULL)
        return;
    for (uint32_t i = 0; i < n_rows * n_each; i++) {
        const uint32_t row = i / n_each, query = i % n_each * v->n_queries;
        const uint32_t left = a->n_heads - query;
        uint32_t position;
        (void)holder_of(be, a->op, first + row, &position);
        tiles[i] = (mf_vk_tile){first + row, n_keys_of(p, position) - 1, query,
                                left < v->n_queries ? left : v->n_queries,
                                pages + (uint64_t)row * gathered_pages(p) * sizeof(uint64_t)};
    }
    mf_vk_dispatch(be, &kernel, &push, sizeof push, (const uint32_t[]){n_rows * n_each, 1, 1});
}

static void entry_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_entry_attention_params *p = &op->u.entry_attention;
    const mf_vk_attention a = of_entry_attention(be, op);
    mf_vk_attention own = a; /* what is appended: one array, into the window's pages */
    own.fresh[1] = (mf_span){{0}, 0};
    own.page_offset[0] = p->page_offset;
    own.is_in_window_pages = true;
    const uint64_t bits = mf_vk_address(be, p->q) | mf_vk_address(be, p->out) |
                          mf_vk_address(be, p->kv) | mf_vk_address(be, p->gathered);
    const bool are_few = (uint64_t)op->n_rows * mf_vk_groups(a.n_heads, MF_VK_FEW_QUERIES) <=
                         2 * MF_VK_ENOUGH_GROUPS;
    const mf_vk_tile_variant v = mf_vk_tile_choose(be, &a, are_few, bits % 16 == 0);
    const uint64_t pages = list_gathered(be, p);
    mf_vk_attention_append(be, &own);
    for (uint32_t first = 0; first < op->n_rows; first += p->n_at_once) {
        const uint32_t left = op->n_rows - first;
        const uint32_t n_rows = left < p->n_at_once ? left : p->n_at_once;
        mf_vk_step(be); /* what is gathered next takes the place of what was read */
        gather(be, &a, first, n_rows);
        mf_vk_step(be);
        attend_gathered(be, &a, &v, pages, first, n_rows);
    }
}

const mf_vk_op mf_vk_op_entry_attention = {entry_supports, entry_reserve, entry_record};
