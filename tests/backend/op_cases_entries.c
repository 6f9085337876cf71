/* SPDX-License-Identifier: MIT */
/* Scenes of what DeepSeek-V4's layers add: streams of a residual, entries for runs of positions,
 * and attention to them; and attention to the positions that an indexer chooses. */
#include "op_cases.h"

#include <math.h>

#define EPS 1e-6f

/* p: rows, streams, columns, iterations, whether it is the last, whether it is normed */
void op_build_streams_in(scene *s, const uint32_t *p)
{
    const uint32_t n = p[1], n_mixes = p[4] != 0 ? n : (2 + n) * n;
    mf_streams_in_params *d = &s->op.u.streams_in;
    s->op = (mf_op){.kind = MF_OP_STREAMS_IN, .n_rows = p[0]};
    d->streams = scene_input(s, (size_t)p[0] * n * p[2], 3.0f);
    d->mixes = scene_input(s, (size_t)p[0] * n_mixes, 6.0f);
    d->base = scene_input(s, n_mixes, 2.0f);
    d->scale = scene_input(s, p[4] != 0 ? 1 : 3, 1.5f);
    d->out = scene_output(s, (size_t)p[0] * p[2]);
    if (p[4] == 0)
        d->gates = scene_output(s, (size_t)p[0] * (n + n * n));
    d->n_streams = n;
    d->n_cols = p[2];
    d->n_iterations = p[3];
    d->eps = d->norm_eps = EPS;
    d->is_last = p[4] != 0;
    if (p[5] != 0)
        d->norm = op_build_norm_after(s, p[0], p[2]);
}

/* p: rows, streams, columns, whether the mean takes y's place */
void op_build_streams_out(scene *s, const uint32_t *p)
{
    const uint32_t n = p[1];
    mf_streams_out_params *d = &s->op.u.streams_out;
    s->op = (mf_op){.kind = MF_OP_STREAMS_OUT, .n_rows = p[0]};
    d->streams = scene_input(s, (size_t)p[0] * n * p[2], 3.0f);
    d->y = scene_input(s, (size_t)p[0] * p[2], 2.0f);
    d->gates = scene_input(s, (size_t)p[0] * (n + n * n), 1.0f);
    d->mean = p[3] != 0 ? d->y : scene_output(s, (size_t)p[0] * p[2]);
    d->n_streams = n;
    d->n_cols = p[2];
}

/* ------------------------------------------------------------------------------------- pages -- */

/* The i-th sequence's pages of n_bytes each, in reverse order, filled with poison; they are those
 * of the window as well. */
static void add_pages(scene *s, uint32_t i, size_t n_bytes)
{
    mf_sequence *seq = &s->sequences[i];
    const size_t n_pages = scene_cache_pages(seq);
    const mf_span all = scene_output(s, n_pages * n_bytes / 4);
    for (size_t p = 0; p < n_pages; p++)
        s->pages[i][p] = mf_span_at(all, (n_pages - 1 - p) * n_bytes);
    seq->pages = seq->window_pages = s->pages[i];
}

static void fill_row(scene *s, mf_span span, size_t width, mf_dtype type)
{
    for (size_t i = 0; i < width; i++) {
        if (type == MF_F32)
            ((float *)scene_at(s, span))[i] = (float)scene_random(s, 2001) / 1000.0f - 1.0f;
        else /* 0.125 .. 1.5, of either sign */
            ((uint16_t *)scene_at(s, span))[i] =
                (uint16_t)(0x3e00u + scene_random(s, 0x1c0) + (scene_random(s, 2) << 15));
    }
}

/* The rows that the sequence holds of a cache that begins at `offset` of its pages. */
static void fill_rows(scene *s, const mf_sequence *seq, uint64_t offset, size_t width,
                      mf_dtype type)
{
    for (uint64_t p = 0; p < seq->position; p++)
        fill_row(s, scene_page_row(seq, p, offset, width * mf_dtype_bytes(type)), width, type);
}

/* The entries of all runs that have ended when all rows are there. */
static void fill_entries(scene *s, const mf_sequence *seq, uint32_t rate, uint64_t offset,
                         size_t width, mf_dtype type)
{
    const uint64_t n = rate == 0 ? 0 : (seq->position + seq->n_rows) / rate;
    for (uint64_t i = 0; i < n; i++)
        fill_row(s, scene_entry(seq, i, rate, offset, width * mf_dtype_bytes(type)), width, type);
}

static size_t entries_a_page(uint32_t rate)
{
    return rate == 0 || rate > MF_PAGE_TOKENS ? 1 : MF_PAGE_TOKENS / rate;
}

/* p: rows, columns, series, rate, rotated, sequences */
void op_build_compress(scene *s, const uint32_t *p)
{
    const size_t width = (size_t)p[2] * p[1], half = p[4] / 2, n_angles = (40 + p[0]) * half;
    mf_compress_params *d = &s->op.u.compress;
    s->op = (mf_op){.kind = MF_OP_COMPRESS, .n_rows = p[0]};
    d->kv = scene_input(s, p[0] * width, 2.0f);
    d->gate = scene_input(s, p[0] * width, 4.0f);
    d->bias = scene_input(s, p[3] * width, 2.0f);
    d->norm = scene_input(s, p[1], 2.0f);
    d->cos = scene_input(s, n_angles, 1.0f);
    d->sin = scene_input(s, n_angles, 1.0f);
    d->dim = p[1];
    d->n_series = p[2];
    d->rate = p[3];
    d->n_rot = p[4];
    d->cache_type = MF_F32;
    d->gate_offset = MF_PAGE_TOKENS * width * sizeof(float);
    d->entry_offset = 2 * d->gate_offset;
    d->eps = EPS;
    scene_sequences(s, p[0], p[5]);
    for (uint32_t i = 0; i < p[5]; i++) {
        add_pages(s, i, d->entry_offset + entries_a_page(p[3]) * p[1] * sizeof(float));
        fill_rows(s, &s->sequences[i], d->kv_offset, width, MF_F32);
        fill_rows(s, &s->sequences[i], d->gate_offset, width, MF_F32);
    }
}

static void build_index(scene *s, uint32_t n_rows, uint32_t n_most, uint64_t offset)
{
    mf_entry_attention_params *d = &s->op.u.entry_attention;
    mf_index_params *x = &d->index;
    *x = (mf_index_params){.n_heads = 3, .dim = 10, .n_most = n_most, .page_offset = offset};
    x->q = scene_input(s, (size_t)n_rows * x->n_heads * x->dim, 2.0f);
    x->weights = scene_input(s, (size_t)n_rows * x->n_heads, 1.0f);
    x->scores = scene_output(s, (size_t)d->n_at_once * 2 * d->n_entries);
    scene_scratch(s, x->scores, (size_t)d->n_at_once * 2 * d->n_entries);
    x->cache_type = d->cache_type;
    x->scale = 0.3f;
}

/* p: rows, heads, columns, window, rate (0: there are no entries), sequences, bfloat16, entries
 * that an index chooses at most (0: there is none) */
void op_build_entry_attention(scene *s, const uint32_t *p)
{
    const mf_dtype type = p[6] != 0 ? MF_BF16 : MF_F32;
    const size_t each = mf_dtype_bytes(type), n_entries = entries_a_page(p[4]);
    mf_entry_attention_params *d = &s->op.u.entry_attention;
    s->op = (mf_op){.kind = MF_OP_ENTRY_ATTENTION, .n_rows = p[0]};
    d->q = scene_input(s, (size_t)p[0] * p[1] * p[2], 3.0f);
    d->kv = scene_input(s, (size_t)p[0] * p[2], 2.0f);
    d->out = scene_output(s, (size_t)p[0] * p[1] * p[2]);
    d->sinks = scene_input(s, p[1], 2.0f);
    d->n_heads = p[1];
    d->dim = p[2];
    d->window = p[3];
    d->rate = p[4];
    d->n_at_once = 3;
    d->n_entries = p[4] != 0 ? (40 + p[0]) / p[4] + 1 : 0;
    d->cache_type = type;
    d->entry_offset = MF_PAGE_TOKENS * p[2] * each;
    d->scale = 1.0f / sqrtf((float)p[2]);
    const size_t n = d->n_at_once * mf_entry_rows(d->window, d->n_entries, p[7]) * (d->dim + 1);
    d->gathered = scene_output(s, n);
    scene_scratch(s, d->gathered, n);
    const uint64_t index_offset = d->entry_offset + n_entries * p[2] * each;
    if (p[7] != 0)
        build_index(s, p[0], p[7], index_offset);
    scene_sequences(s, p[0], p[5]);
    for (uint32_t i = 0; i < p[5]; i++) {
        const mf_sequence *seq = &s->sequences[i];
        add_pages(s, i, index_offset + n_entries * d->index.dim * each);
        fill_rows(s, seq, d->page_offset, p[2], type);
        fill_entries(s, seq, p[4], d->entry_offset, p[2], type);
        if (p[7] != 0)
            fill_entries(s, seq, p[4], index_offset, d->index.dim, type);
    }
}

/* p: rows, heads, n_latent, n_rot, sequences, bfloat16, positions that are chosen, columns of the
 * indexer's keys */
void op_build_chosen_attention(scene *s, const uint32_t *p)
{
    const mf_dtype type = p[5] != 0 ? MF_BF16 : MF_F32;
    const size_t width = (size_t)p[2] + p[3], each = mf_dtype_bytes(type);
    const size_t n_gathered = mf_pages_of(p[6]) * (size_t)MF_PAGE_TOKENS * width;
    mf_latent_attention_params *d = &s->op.u.latent_attention;
    mf_index_params *x = &d->index;
    s->op = (mf_op){.kind = MF_OP_LATENT_ATTENTION, .n_rows = p[0]};
    *d = (mf_latent_attention_params){.n_heads = p[1], .n_latent = p[2], .n_rot = p[3]};
    d->q = scene_input(s, (size_t)p[0] * p[1] * p[2], 3.0f);
    d->q_rot = scene_input(s, (size_t)p[0] * p[1] * p[3], 3.0f);
    d->kv = scene_input(s, p[0] * width, 2.0f);
    d->out = scene_output(s, (size_t)p[0] * p[1] * p[2]);
    d->q_rot_row = p[1] * p[3];
    d->q_rot_head = p[3];
    d->cache_type = type;
    d->scale = 1.0f / sqrtf((float)width);
    d->n_at_once = 3;
    d->n_positions = 41 + p[0];
    *x = (mf_index_params){.n_heads = 3, .dim = p[7], .n_most = p[6], .cache_type = type};
    x->q = scene_input(s, (size_t)p[0] * x->n_heads * x->dim, 2.0f);
    x->k = scene_input(s, (size_t)p[0] * x->dim, 2.0f);
    x->weights = scene_input(s, (size_t)p[0] * x->n_heads, 1.0f);
    x->scores = scene_output(s, (size_t)d->n_at_once * 2 * d->n_positions);
    scene_scratch(s, x->scores, (size_t)d->n_at_once * 2 * d->n_positions);
    x->gathered = scene_output(s, d->n_at_once * n_gathered);
    scene_scratch(s, x->gathered, d->n_at_once * n_gathered);
    x->page_offset = MF_PAGE_TOKENS * width * each;
    x->scale = 0.3f;
    scene_sequences(s, p[0], p[4]);
    for (uint32_t i = 0; i < p[4]; i++) {
        add_pages(s, i, MF_PAGE_TOKENS * (width + x->dim) * each);
        fill_rows(s, &s->sequences[i], 0, width, type);
        fill_rows(s, &s->sequences[i], x->page_offset, x->dim, type);
    }
}
