/* SPDX-License-Identifier: MIT */
/*
 * Attention to what is gathered: for some rows of the operation at a time, what each of them
 * attends to is laid side by side, in the order of positions. Then a row's heads are queries of one
 * more sequence, whose pages lie in what is gathered: the kernels of vk_attention.h do the rest. So
 * a row that sees everything gets the same bits as from the pages themselves.
 *
 * With an indexer a row that sees more than it chooses has scores first, of which the largest are
 * found. Every sum and choice is one row's own.
 */
#include "backend/vulkan/vk_attention.h"

#include "base/cache_rows.h"

#define GATHER_THREADS 256u
#define GATHER_GROUPS 256u /* of a row, at most */
#define INDEX_THREADS 256u /* as index_scores.comp and index_choose.comp have them */
#define INDEX_KEYS 64u     /* that a workgroup of index_scores.comp has */
#define RING_STEP 256u     /* what is taken of a ring begins at a multiple of it */

/* The position of a row of the operation. */
static uint32_t position_of(const mf_vk_backend *be, const mf_op *op, uint32_t row)
{
    const mf_sequence *seq = be->batches.sequences;
    const uint32_t at = op->first_row + row;
    while (at - seq->first_row >= seq->n_rows)
        seq++;
    return (uint32_t)seq->position + at - seq->first_row;
}

static uint32_t n_entries_of(const mf_vk_seen *s, uint32_t position)
{
    return s->rate != 0 ? (position + 1) / s->rate : 0;
}

static bool is_chosen(const mf_vk_seen *s, uint32_t position)
{
    return s->index.n_most != 0 && n_entries_of(s, position) > s->index.n_most;
}

static uint32_t n_keys_of(const mf_vk_seen *s, uint32_t position)
{
    const uint32_t n_window = position < s->window ? position + 1 : s->window;
    return n_window + (is_chosen(s, position) ? s->index.n_most : n_entries_of(s, position));
}

/* ---------------------------------------------------------------------------------- kernels -- */

/* The least unit that rows are copied in. */
static uint32_t value_bytes(const mf_vk_seen *s)
{
    return s->attend.cache_type == MF_F32 ? 4 : 2;
}

static uint32_t row_bytes(const mf_vk_seen *s)
{
    return (uint32_t)mf_cache_row_bytes(s->attend.cache_type, 1, s->attend.width);
}

/* unit: bytes that are copied at once. */
static mf_vk_kernel gather_kernel(uint32_t unit)
{
    return (mf_vk_kernel){MF_VK_SHADER_gather_entries, 2, {GATHER_THREADS, unit}};
}

static mf_vk_kernel scores_kernel(const mf_vk_seen *s, bool is_aligned)
{
    return (mf_vk_kernel){s->index.cache_type == MF_F32 ? MF_VK_SHADER_index_scores
                                                        : MF_VK_SHADER_index_scores_bf16,
                          2,
                          {INDEX_THREADS, is_aligned}};
}

static mf_vk_kernel choose_kernel(void)
{
    return (mf_vk_kernel){MF_VK_SHADER_index_choose, 1, {INDEX_THREADS}};
}

/* What all addresses of a sequence's pages have in common with these bits. */
static uint64_t page_bits(const mf_vk_backend *be)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < be->batches.n_sequences; i++) {
        const mf_sequence *seq = &be->batches.sequences[i];
        for (uint32_t p = 0; p < mf_pages_of(seq->position + seq->n_rows); p++) {
            bits |= seq->pages != NULL ? mf_vk_address(be, seq->pages[p]) : 0;
            bits |= seq->window_pages != NULL ? mf_vk_address(be, seq->window_pages[p]) : 0;
        }
    }
    return bits;
}

bool mf_vk_seen_supports(const mf_vk_backend *be, const mf_vk_seen *s)
{
    const mf_vk_attention *a = &s->attend;
    const mf_dtype keys = s->index.n_most != 0 ? s->index.cache_type : MF_F32;
    const bool is_q8 = a->cache_type == MF_Q8 && s->window == 0 && a->width % 2 == 0;
    return (a->cache_type == MF_F32 || a->cache_type == MF_BF16 || is_q8) &&
           (keys == MF_F32 || keys == MF_BF16) && mf_vk_tile_supports(be, a);
}

static uint32_t rows_at_once(const mf_vk_seen *s)
{
    const uint32_t n = s->attend.op->n_rows;
    return n < s->n_at_once ? n : s->n_at_once;
}

mf_status mf_vk_seen_reserve(mf_vk_backend *be, const mf_vk_seen *s, mf_error *error)
{
    const uint32_t n_rows = s->attend.op->n_rows, units[] = {value_bytes(s), 16};
    const uint32_t n_each = mf_vk_groups(s->attend.n_heads, MF_VK_FEW_QUERIES);
    const mf_vk_kernel choose = choose_kernel();
    MF_TRY(mf_vk_tile_prepare(be, &s->attend, error));
    MF_TRY(mf_vk_split_prepare(be, &s->attend, error));
    for (uint32_t i = 0; i < 2; i++) {
        const mf_vk_kernel gather = gather_kernel(units[i]);
        const mf_vk_kernel scores = scores_kernel(s, i != 0);
        MF_TRY(mf_vk_prepare(be, &gather, error));
        if (s->index.n_most != 0)
            MF_TRY(mf_vk_prepare(be, &scores, error));
    }
    if (s->index.n_most != 0)
        MF_TRY(mf_vk_prepare(be, &choose, error));
    const uint64_t n_rounds = n_rows == 0 ? 0 : mf_vk_groups(n_rows, rows_at_once(s));
    return mf_vk_ring_need(be, MF_VK_RING_PARAMETERS,
                           (uint64_t)n_rows * n_each * sizeof(mf_vk_tile) +
                               (uint64_t)rows_at_once(s) * s->n_pages * sizeof(uint64_t) +
                               (n_rounds + 1) * RING_STEP,
                           error);
}

/* ------------------------------------------------------------------------------- dispatches -- */

/* Rows of the operation that are dealt with at a time. */
typedef struct part {
    uint32_t first, n_rows;
    uint64_t page_bits; /* of all sequences */
    uint64_t pages;     /* the list of those that are gathered */
} part;

static uint32_t most_entries(const mf_vk_backend *be, const mf_vk_seen *s, uint32_t first,
                             uint32_t n_rows)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        const uint32_t n = n_entries_of(s, position_of(be, s->attend.op, first + i));
        most = n > most ? n : most;
    }
    return most;
}

bool mf_vk_seen_chooses(const mf_vk_backend *be, const mf_vk_seen *s)
{
    return s->index.n_most != 0 && most_entries(be, s, 0, s->attend.op->n_rows) > s->index.n_most;
}

static void score(mf_vk_backend *be, const mf_vk_seen *s, const part *at, uint32_t n_entries)
{
    const mf_index_params *x = &s->index;
    const uint64_t row = (uint64_t)x->n_heads * sizeof(float);
    const struct {
        uint64_t q, weights, scores, sequences, key_offset;
        uint32_t n_sequences, first_row, n_heads, dim, rate, n_most, n_room;
        float scale;
    } push = {mf_vk_address(be, x->q) + at->first * row * x->dim,
              mf_vk_address(be, x->weights) + at->first * row,
              mf_vk_address(be, x->scores),
              mf_vk_batch_address(be),
              x->page_offset,
              be->batches.n_sequences,
              s->attend.op->first_row + at->first,
              x->n_heads,
              x->dim,
              s->rate,
              x->n_most,
              s->n_room,
              x->scale};
    const uint64_t bits = push.q | at->page_bits | push.key_offset |
                          x->dim * (uint64_t)mf_dtype_bytes(x->cache_type) |
                          x->dim * (uint64_t)sizeof(float);
    const mf_vk_kernel kernel = scores_kernel(s, bits % 16 == 0);
    mf_vk_dispatch(be, &kernel, &push, sizeof push,
                   (const uint32_t[]){mf_vk_groups(n_entries, INDEX_KEYS), at->n_rows, 1});
}

static void choose(mf_vk_backend *be, const mf_vk_seen *s, const part *at)
{
    const mf_vk_kernel kernel = choose_kernel();
    const struct {
        uint64_t scores, sequences;
        uint32_t n_sequences, first_row, rate, n_most, n_room, unused;
    } push = {mf_vk_address(be, s->index.scores),
              mf_vk_batch_address(be),
              be->batches.n_sequences,
              s->attend.op->first_row + at->first,
              s->rate,
              s->index.n_most,
              s->n_room,
              0};
    mf_vk_dispatch(be, &kernel, &push, sizeof push, (const uint32_t[]){1, at->n_rows, 1});
}

static void gather(mf_vk_backend *be, const mf_vk_seen *s, const part *at, bool has_chosen)
{
    const uint64_t page_bytes = (uint64_t)MF_PAGE_TOKENS * row_bytes(s);
    const struct {
        uint64_t to, stride, sequences, windows, page_offset, entry_offset, chosen;
        uint32_t n_sequences, first_row, row_bytes, window, rate, n_most, chosen_stride, unused;
    } push = {mf_vk_address(be, s->to),
              s->n_pages * page_bytes,
              mf_vk_batch_address(be),
              mf_vk_batch_window_address(be),
              s->page_offset,
              s->entry_offset,
              has_chosen ? mf_vk_address(be, s->index.scores) + s->n_room * sizeof(uint32_t) : 0,
              be->batches.n_sequences,
              s->attend.op->first_row + at->first,
              row_bytes(s),
              s->window,
              s->rate,
              s->index.n_most,
              2 * s->n_room,
              0};
    const uint64_t bits =
        push.to | push.page_offset | push.entry_offset | push.row_bytes | at->page_bits;
    const uint32_t unit = bits % 16 == 0 ? 16 : value_bytes(s);
    const mf_vk_kernel kernel = gather_kernel(unit);
    const uint32_t n_groups = mf_vk_groups(s->n_pages * page_bytes / unit, GATHER_THREADS);
    mf_vk_dispatch(
        be, &kernel, &push, sizeof push,
        (const uint32_t[]){n_groups < GATHER_GROUPS ? n_groups : GATHER_GROUPS, at->n_rows, 1});
}

/* The pages of all rows that are gathered at a time; they are the same each time. */
static uint64_t list_pages(mf_vk_backend *be, const mf_vk_seen *s)
{
    const uint32_t n = rows_at_once(s) * s->n_pages;
    const uint64_t page_bytes = (uint64_t)MF_PAGE_TOKENS * row_bytes(s);
    uint64_t address = 0, *pages = mf_vk_parameters(be, n * sizeof *pages, &address);
    for (uint32_t i = 0; i < n && pages != NULL; i++)
        pages[i] = mf_vk_address(be, s->to) + i * page_bytes;
    return address;
}

/* The keys that each row of the part sees, if it is all of the operation; 0: they differ. */
static uint32_t n_keys_of_all(const mf_vk_backend *be, const mf_vk_seen *s, const part *at)
{
    const mf_op *op = s->attend.op;
    const uint32_t n = n_keys_of(s, position_of(be, op, at->first));
    for (uint32_t i = 1; i < at->n_rows; i++)
        if (n_keys_of(s, position_of(be, op, at->first + i)) != n)
            return 0;
    return at->n_rows == op->n_rows ? n : 0;
}

/* The rows' heads are n_queries of a tile at most. */
static void attend(mf_vk_backend *be, const mf_vk_seen *s, const mf_vk_tile_variant *v,
                   const part *at)
{
    const mf_vk_attention *a = &s->attend;
    const mf_vk_kernel kernel = mf_vk_tile_kernel(a, v);
    const uint32_t n_each = mf_vk_groups(a->n_heads, v->n_queries), n = at->n_rows * n_each;
    mf_vk_tile_push push = mf_vk_tile_push_of(be, a);
    mf_vk_tile *tiles = mf_vk_parameters(be, n * sizeof *tiles, &push.tiles);
    if (tiles == NULL)
        return;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t row = i / n_each, query = i % n_each * v->n_queries;
        const uint32_t left = a->n_heads - query;
        const uint32_t n_keys = n_keys_of(s, position_of(be, a->op, at->first + row));
        tiles[i] = (mf_vk_tile){at->first + row, n_keys - 1, query,
                                left < v->n_queries ? left : v->n_queries,
                                at->pages + (uint64_t)row * s->n_pages * sizeof(uint64_t)};
    }
    mf_vk_tiles_attend(be, a, &kernel, &push, n, n_keys_of_all(be, s, at));
}

static void record_part(mf_vk_backend *be, const mf_vk_seen *s, const mf_vk_tile_variant *v,
                        const part *at)
{
    const uint32_t n_entries = most_entries(be, s, at->first, at->n_rows);
    const bool has_chosen = s->index.n_most != 0 && n_entries > s->index.n_most;
    mf_vk_step(be); /* what is appended is there, and what is made next takes the place of what
                       has been read */
    if (has_chosen) {
        score(be, s, at, n_entries);
        mf_vk_step(be);
        choose(be, s, at);
        mf_vk_step(be);
    }
    gather(be, s, at, has_chosen);
    mf_vk_step(be);
    attend(be, s, v, at);
}

void mf_vk_seen_record(mf_vk_backend *be, const mf_vk_seen *s)
{
    const mf_vk_attention *a = &s->attend;
    const uint32_t n_at_once = rows_at_once(s);
    const bool are_few = (uint64_t)n_at_once * mf_vk_groups(a->n_heads, MF_VK_FEW_QUERIES) <=
                         2 * MF_VK_ENOUGH_GROUPS;
    uint64_t bits = mf_vk_address(be, a->q) | mf_vk_address(be, a->out) | mf_vk_address(be, s->to);
    if (a->is_latent)
        bits |= mf_vk_address(be, a->q_rot) | (a->q_rot_row | a->q_rot_head) * (uint64_t)4;
    const mf_vk_tile_variant v = mf_vk_tile_choose(be, a, are_few, bits % 16 == 0);
    part at = {.page_bits = page_bits(be), .pages = list_pages(be, s)};
    for (; at.first < a->op->n_rows; at.first += n_at_once) {
        const uint32_t left = a->op->n_rows - at.first;
        at.n_rows = left < n_at_once ? left : n_at_once;
        record_part(be, s, &v, &at);
    }
}
