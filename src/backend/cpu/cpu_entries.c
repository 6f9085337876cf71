/* SPDX-License-Identifier: MIT */
/*
 * Attention to a window of positions and to entries that stand for runs of earlier ones. What a row
 * sees is gathered side by side, in an order that depends on its position alone: the window, the
 * entries, and a row for the sinks. The kernel is that of latent attention with one rotated value,
 * which is 1 in that last row alone, whose values are 0: so that a head's query, there its sink
 * over the scale, makes the sink its score.
 */
#include "backend/cpu/cpu_internal.h"

#include "base/cache_rows.h"

#include <string.h>

/* Heads of a task at least. */
#define MIN_HEADS 4u
/* Entries that are scored as a task. */
#define SCORES_A_TASK 64u

typedef struct entry_job {
    mf_cpu_backend *be;
    const mf_op *op;
    uint32_t first, n;         /* rows that are held */
    uint32_t n_heads, per_row; /* of a task, tasks of a row */
} entry_job;

/* A row, and what it sees. */
typedef struct seen {
    uint32_t row, held; /* of the operation; among those that are held */
    const mf_sequence *seq;
    uint64_t position;
    uint32_t n_window, n_entries; /* it sees n_chosen of these */
    uint32_t n_chosen;
} seen;

static seen seen_by(const entry_job *job, uint32_t held)
{
    const mf_entry_attention_params *p = &job->op->u.entry_attention;
    const uint32_t row = job->first + held, batch_row = job->op->first_row + row;
    const mf_sequence *seq = mf_cpu_sequence_of(job->be, batch_row);
    seen s = {.row = row, .held = held, .seq = seq};
    s.position = mf_cpu_position_of(seq, batch_row);
    s.n_window = s.position < p->window ? (uint32_t)s.position + 1 : p->window;
    s.n_entries = p->rate != 0 ? (uint32_t)((s.position + 1) / p->rate) : 0;
    const bool is_chosen = p->index.n_most != 0 && s.n_entries > p->index.n_most;
    s.n_chosen = is_chosen ? p->index.n_most : s.n_entries;
    return s;
}

/* Entry i of what begins at an offset of the sequence's pages, rows of so many bytes. */
static const unsigned char *entry_at(const entry_job *job, const seen *s, uint32_t i,
                                     uint64_t offset, size_t row_bytes)
{
    const uint32_t rate = job->op->u.entry_attention.rate;
    const uint64_t last = (uint64_t)(i + 1) * rate - 1;
    const uint64_t row = rate < MF_PAGE_TOKENS ? last % MF_PAGE_TOKENS / rate : 0;
    return mf_cpu_pages_of(job->be, s->seq, false)[last / MF_PAGE_TOKENS] + offset +
           row * row_bytes;
}

static float *scores_of(const entry_job *job, const seen *s)
{
    const mf_entry_attention_params *p = &job->op->u.entry_attention;
    return mf_cpu_floats(job->be, p->index.scores) + (size_t)s->held * 2 * p->n_entries;
}

static uint32_t score_tasks(const mf_entry_attention_params *p)
{
    return (p->n_entries + SCORES_A_TASK - 1) / SCORES_A_TASK;
}

static void run_scores(void *ctx, uint32_t task, uint32_t thread)
{
    (void)thread;
    const entry_job *job = ctx;
    const mf_entry_attention_params *p = &job->op->u.entry_attention;
    const mf_index_params *x = &p->index;
    const seen s = seen_by(job, task / score_tasks(p));
    const size_t row_bytes = x->dim * mf_dtype_bytes(p->cache_type);
    const float *q = mf_cpu_floats(job->be, x->q) + (size_t)s.row * x->n_heads * x->dim;
    const float *weights = mf_cpu_floats(job->be, x->weights) + (size_t)s.row * x->n_heads;
    const uint32_t first = task % score_tasks(p) * SCORES_A_TASK;
    for (uint32_t i = first;
         s.n_chosen < s.n_entries && i < s.n_entries && i < first + SCORES_A_TASK; i++)
        scores_of(job, &s)[i] = mf_cpu_index_score(
            x, q, weights, entry_at(job, &s, i, x->page_offset, row_bytes), p->cache_type);
}

/* Copies a cached row to what is gathered, with what stands behind it. */
static unsigned char *take_row(const mf_entry_attention_params *p, unsigned char *to,
                               const unsigned char *from, float behind)
{
    const size_t each = mf_dtype_bytes(p->cache_type);
    if (from != NULL)
        memcpy(to, from, p->dim * each);
    else
        memset(to, 0, p->dim * each);
    mf_cache_store(to + p->dim * each, &behind, 1, 1, 1, p->cache_type);
    return to + (p->dim + 1) * each;
}

static size_t gathered_bytes(const mf_entry_attention_params *p)
{
    return mf_entry_rows(p->window, p->n_entries, p->index.n_most) * (p->dim + 1) *
           mf_dtype_bytes(p->cache_type);
}

static unsigned char *gathered_of(const entry_job *job, const seen *s)
{
    const mf_entry_attention_params *p = &job->op->u.entry_attention;
    return mf_cpu_bytes(job->be, p->gathered) + s->held * gathered_bytes(p);
}

static void run_gather(void *ctx, uint32_t held, uint32_t thread)
{
    (void)thread;
    const entry_job *job = ctx;
    const mf_entry_attention_params *p = &job->op->u.entry_attention;
    const seen s = seen_by(job, held);
    const size_t row_bytes = p->dim * mf_dtype_bytes(p->cache_type);
    const unsigned char *const *pages = mf_cpu_pages_of(job->be, s.seq, true);
    unsigned char *to = gathered_of(job, &s);
    uint32_t *chosen = NULL;
    for (uint64_t at = s.position + 1 - s.n_window; at <= s.position; at++)
        to = take_row(p, to,
                      pages[at / MF_PAGE_TOKENS] + p->page_offset + at % MF_PAGE_TOKENS * row_bytes,
                      0.0f);
    if (s.n_chosen < s.n_entries) {
        float *scores = scores_of(job, &s), *scratch = scores + p->n_entries;
        chosen = (uint32_t *)(void *)scratch;
        mf_cpu_choose_most(scores, s.n_entries, s.n_chosen, scratch, chosen);
    }
    for (uint32_t i = 0; i < s.n_chosen; i++)
        to = take_row(p, to,
                      entry_at(job, &s, chosen != NULL ? chosen[i] : i, p->entry_offset, row_bytes),
                      0.0f);
    (void)take_row(p, to, NULL, 1.0f);
}

size_t mf_cpu_entry_scratch(const mf_entry_attention_params *p)
{
    const size_t n = (size_t)mf_entry_rows(p->window, p->n_entries, p->index.n_most);
    return MF_LATENT_TILE * sizeof(float) * (p->dim + 1) + n / MF_PAGE_TOKENS * sizeof(void *);
}

static void run_attention(void *ctx, uint32_t task, uint32_t thread)
{
    const entry_job *job = ctx;
    const mf_cpu_backend *be = job->be;
    const mf_entry_attention_params *p = &job->op->u.entry_attention;
    const seen s = seen_by(job, task / job->per_row);
    const uint32_t h = task % job->per_row * job->n_heads, n_kv = s.n_window + s.n_chosen + 1;
    const uint32_t n_heads = p->n_heads - h < job->n_heads ? p->n_heads - h : job->n_heads;
    const size_t at = ((size_t)s.row * p->n_heads + h) * p->dim;
    const size_t page_bytes = (size_t)MF_PAGE_TOKENS * (p->dim + 1) * mf_dtype_bytes(p->cache_type);
    float *scratch = mf_cpu_scratch(be, thread);
    const unsigned char **pages =
        (const unsigned char **)(void *)(scratch + (size_t)MF_LATENT_TILE * (p->dim + 1));
    float sinks[MF_LATENT_HEADS];
    for (uint32_t i = 0; i < mf_pages_of(n_kv); i++)
        pages[i] = gathered_of(job, &s) + i * page_bytes;
    for (uint32_t i = 0; i < n_heads; i++)
        sinks[i] = mf_cpu_floats(be, p->sinks)[h + i] / p->scale;
    const mf_latent_args args = {.q = mf_cpu_floats(be, p->q) + at,
                                 .q_rot = sinks,
                                 .pages = pages,
                                 .out = mf_cpu_floats(be, p->out) + at,
                                 .scratch = scratch,
                                 .q_stride = p->dim,
                                 .q_rot_stride = 1,
                                 .out_stride = p->dim,
                                 .cache_type = p->cache_type,
                                 .n_kv = n_kv,
                                 .n_heads = n_heads,
                                 .n_latent = p->dim,
                                 .n_rot = 1,
                                 .scale = p->scale};
    be->kernels->latent_attention(&args);
}

void mf_cpu_entry_attention(mf_cpu_backend *be, const mf_op *op)
{
    const mf_entry_attention_params *p = &op->u.entry_attention;
    const mf_cpu_cache cache = {p->page_offset, 1, p->dim, p->cache_type, true};
    const bool has_index = p->index.n_most != 0 && p->n_entries > p->index.n_most;
    entry_job job = {.be = be, .op = op};
    mf_cpu_append(be, op, p->kv, &cache);
    for (; job.first < op->n_rows; job.first += job.n) {
        const uint32_t left = op->n_rows - job.first;
        job.n = left < p->n_at_once ? left : p->n_at_once;
        job.n_heads = MF_LATENT_HEADS;
        while (job.n_heads > MIN_HEADS &&
               job.n * ((p->n_heads + job.n_heads - 1) / job.n_heads) < 2 * be->n_threads)
            job.n_heads /= 2;
        job.per_row = (p->n_heads + job.n_heads - 1) / job.n_heads;
        if (has_index)
            mf_thread_pool_run(be->pool, job.n * score_tasks(p), run_scores, &job);
        mf_thread_pool_run(be->pool, job.n, run_gather, &job);
        mf_thread_pool_run(be->pool, job.n * job.per_row, run_attention, &job);
    }
}
