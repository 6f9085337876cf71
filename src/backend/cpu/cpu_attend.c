/* SPDX-License-Identifier: MIT */
/*
 * Attention over cached keys and values. A task has the heads of one key head for a block of rows,
 * so that what is read of the cache serves them all; of sequences with a row each it has all key
 * heads, as far as there are tasks enough: their keys lie side by side. A context is cut into
 * segments of a fixed length, whose parts are joined in their order: by the task itself, or, where
 * there are fewer tasks than keep the threads busy, each segment is a task of its own and the parts
 * wait for each other, as many as there is room for at a time. Both give the same bits.
 */
#include "backend/cpu/cpu_internal.h"

#include "base/cache_rows.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static_assert(MF_ATTENTION_SEGMENT % MF_ATTENTION_TILE == 0, "a segment is whole tiles");

typedef struct attend_job {
    mf_cpu_backend *be;
    const mf_op *op;
    uint32_t n_task_kv;                  /* key heads of a task; if there are several, */
    uint32_t n_task_heads, n_head_parts; /* with all their heads; else so many, in so many tasks */
    uint32_t n_block_rows, n_blocks, n_parts;
    uint32_t first_segment, n_segments; /* at hand; n_segments 0: a task does its own */
    bool is_last;                       /* these are the last segments */
} attend_job;

/* Consecutive rows of a sequence, and heads that share a key head; or one row, and those of
 * several. */
typedef struct block {
    const mf_sequence *seq;
    uint32_t row, n_rows;                        /* of the operation */
    uint32_t n_kv;                               /* of the first row */
    uint32_t head, n_heads, kv_head, n_kv_heads; /* n_heads of each key head */
} block;

/* Of each row. */
static uint32_t heads_of(const block *b)
{
    return b->n_kv_heads * b->n_heads;
}

static uint32_t queries_of(const attend_job *job)
{
    return job->n_block_rows * job->n_task_kv * job->n_task_heads;
}

/* Bytes of the queries of a task: values, and what they are relative to. */
static size_t part_floats(const attend_job *job)
{
    return (size_t)queries_of(job) * job->op->u.attention.head_dim;
}

static size_t part_bytes(const attend_job *job)
{
    return part_floats(job) * sizeof(float) + queries_of(job) * sizeof(mf_attention_sum);
}

/* The rows that the operation has of a sequence. */
static uint32_t rows_of(const mf_op *op, const mf_sequence *seq, uint32_t *first)
{
    const uint32_t op_end = op->first_row + op->n_rows, seq_end = seq->first_row + seq->n_rows;
    const uint32_t from = seq->first_row > op->first_row ? seq->first_row : op->first_row;
    const uint32_t end = seq_end < op_end ? seq_end : op_end;
    *first = from;
    return end > from ? end - from : 0;
}

static uint32_t blocks_of(const attend_job *job, uint32_t n_rows)
{
    return n_rows == 0 ? 0 : (n_rows - 1) / job->n_block_rows + 1;
}

static block block_of(const attend_job *job, uint32_t index)
{
    const mf_attention_params *p = &job->op->u.attention;
    const uint32_t group = p->n_heads / p->n_kv_heads, part = index % job->n_parts;
    block b = {.kv_head = part / job->n_head_parts * job->n_task_kv};
    const uint32_t at = part % job->n_head_parts * job->n_task_heads;
    b.head = b.kv_head * group + at;
    b.n_heads = group - at < job->n_task_heads ? group - at : job->n_task_heads;
    b.n_kv_heads =
        p->n_kv_heads - b.kv_head < job->n_task_kv ? p->n_kv_heads - b.kv_head : job->n_task_kv;
    index /= job->n_parts;
    for (uint32_t i = 0; i < job->be->n_sequences; i++) {
        uint32_t first;
        b.seq = &job->be->sequences[i];
        const uint32_t n_rows = rows_of(job->op, b.seq, &first), n = blocks_of(job, n_rows);
        if (index < n) {
            const uint32_t done = index * job->n_block_rows, left = n_rows - done;
            b.row = first - job->op->first_row + done;
            b.n_rows = left < job->n_block_rows ? left : job->n_block_rows;
            b.n_kv = (uint32_t)(b.seq->position + first - b.seq->first_row) + done + 1;
            break;
        }
        index -= n;
    }
    return b;
}

static void attend_segment(const attend_job *job, const block *b, uint32_t segment, float *out,
                           mf_attention_sum *sums, float *scratch)
{
    const mf_cpu_backend *be = job->be;
    const mf_attention_params *p = &job->op->u.attention;
    const size_t kv_at = mf_cache_head_at(p->cache_type, b->kv_head, p->head_dim);
    const size_t q_row = (size_t)p->n_heads * p->head_dim;
    const mf_attention_args args = {
        .q = mf_cpu_floats(be, p->q) + b->row * q_row + (size_t)b->head * p->head_dim,
        .q_row = q_row,
        .pages = mf_cpu_pages_of(be, b->seq, p->is_in_window_pages),
        .k_offset = (size_t)p->page_offset[0] + kv_at,
        .v_offset = (size_t)p->page_offset[1] + kv_at,
        .kv_row_bytes = (size_t)mf_cache_row_bytes(p->cache_type, p->n_kv_heads, p->head_dim),
        .scales_at = mf_cache_scales_at(p->n_kv_heads, b->kv_head, p->head_dim),
        .cache_type = p->cache_type,
        .n_rows = b->n_rows,
        .n_kv_heads = b->n_kv_heads,
        .n_heads = b->n_heads,
        .begin = segment * MF_ATTENTION_SEGMENT,
        .end = (segment + 1) * MF_ATTENTION_SEGMENT,
        .n_kv = b->n_kv,
        .window = p->window,
        .window_is_chunk = p->window_is_chunk,
        .head_dim = p->head_dim,
        .scale = p->scale,
        .sums = sums,
        .out = out,
        .scratch = scratch,
    };
    be->kernels->attention(&args);
}

static bool is_empty(const mf_attention_sum *s)
{
    return s->max == -INFINITY && s->sum == 0;
}

/* to, relative to *s, takes up the next part of the same softmax. */
static void join(float *to, mf_attention_sum *s, const float *part, const mf_attention_sum *more,
                 uint32_t n)
{
    if (is_empty(more))
        return;
    if (is_empty(s)) {
        memcpy(to, part, n * sizeof *to);
        *s = *more;
        return;
    }
    const float max = s->max > more->max ? s->max : more->max;
    const float shrink = expf(s->max - max), weight = expf(more->max - max);
    for (uint32_t i = 0; i < n; i++)
        to[i] = to[i] * shrink + part[i] * weight;
    s->sum = s->sum * shrink + more->sum * weight;
    s->max = max;
}

static float *output(const attend_job *job, const block *b, uint32_t query)
{
    const mf_attention_params *p = &job->op->u.attention;
    const uint32_t n = heads_of(b);
    const size_t row = b->row + query / n, head = b->head + query % n;
    return mf_cpu_floats(job->be, p->out) + (row * p->n_heads + head) * p->head_dim;
}

/* The sink joins last, and a query's sums become means. */
static void finish(const attend_job *job, const block *b, uint32_t query, const mf_attention_sum *s)
{
    const mf_attention_params *p = &job->op->u.attention;
    const float *sinks = p->sinks.buffer.id != 0 ? mf_cpu_floats(job->be, p->sinks) : NULL;
    float *out = output(job, b, query), sum = s->sum;
    if (sinks != NULL) /* infinite: the sink takes all, and 0 is left */
        sum += expf(sinks[b->head + query % heads_of(b)] - s->max);
    for (uint32_t d = 0; d < p->head_dim; d++)
        out[d] /= sum;
}

static void segments_of(const attend_job *job, const block *b, uint32_t *first, uint32_t *end)
{
    const mf_attention_params *p = &job->op->u.attention;
    *first = mf_attention_first(p->window, p->window_is_chunk, b->n_kv) / MF_ATTENTION_SEGMENT;
    *end = (b->n_kv + b->n_rows - 2) / MF_ATTENTION_SEGMENT + 1;
}

/* All of a block. Longest rows first, so that the threads end together. */
static void run_block(void *ctx, uint32_t task, uint32_t thread)
{
    const attend_job *job = ctx;
    const block b = block_of(job, job->n_blocks * job->n_parts - 1 - task);
    const uint32_t dim = job->op->u.attention.head_dim, n_queries = b.n_rows * heads_of(&b);
    float *part = mf_cpu_scratch(job->be, thread);
    mf_attention_sum sums[MF_ATTENTION_QUERIES], more[MF_ATTENTION_QUERIES];
    uint32_t segment, end;
    for (uint32_t i = 0; i < MF_ATTENTION_QUERIES; i++)
        sums[i] = (mf_attention_sum){-INFINITY, 0};
    for (segments_of(job, &b, &segment, &end); segment < end; segment++) {
        attend_segment(job, &b, segment, part, more, part + (size_t)MF_ATTENTION_QUERIES * dim);
        for (uint32_t i = 0; i < n_queries; i++)
            join(output(job, &b, i), &sums[i], part + (size_t)i * dim, &more[i], dim);
    }
    for (uint32_t i = 0; i < n_queries; i++)
        finish(job, &b, i, &sums[i]);
}

/* Where a part waits: [1 + segments at hand][blocks][parts]; the first are the sums so far. */
static float *waiting(const attend_job *job, uint32_t segment, uint32_t index,
                      mf_attention_sum **sums)
{
    const size_t at = (size_t)segment * job->n_blocks * job->n_parts + index;
    float *values = (float *)(void *)(job->be->parts + at * part_bytes(job));
    *sums = (mf_attention_sum *)(void *)(values + part_floats(job));
    return values;
}

static void run_segment(void *ctx, uint32_t task, uint32_t thread)
{
    const attend_job *job = ctx;
    const uint32_t n = job->n_blocks * job->n_parts;
    const block b = block_of(job, task % n);
    mf_attention_sum *sums;
    float *out = waiting(job, 1 + task / n, task % n, &sums);
    attend_segment(job, &b, job->first_segment + task / n, out, sums,
                   mf_cpu_scratch(job->be, thread));
}

/* The parts at hand of one query; those of the last segments end it. */
static void run_join(void *ctx, uint32_t task, uint32_t thread)
{
    (void)thread;
    const attend_job *job = ctx;
    const uint32_t index = task / queries_of(job), query = task % queries_of(job);
    const uint32_t dim = job->op->u.attention.head_dim;
    const block b = block_of(job, index);
    mf_attention_sum *sums, *more;
    if (query >= b.n_rows * heads_of(&b))
        return;
    (void)waiting(job, 0, index, &sums);
    mf_attention_sum sum = sums[query]; /* its neighbours are other threads' */
    for (uint32_t s = 0; s < job->n_segments; s++) {
        const float *part = waiting(job, 1 + s, index, &more);
        join(output(job, &b, query), &sum, part + (size_t)query * dim, &more[query], dim);
    }
    if (job->is_last)
        finish(job, &b, query, &sum);
    sums[query] = sum;
}

/* The segments that any row sees. */
static uint32_t all_segments(const attend_job *job, uint32_t *first)
{
    uint32_t most = 0;
    *first = UINT32_MAX;
    for (uint32_t i = 0; i < job->n_blocks; i++) {
        const block b = block_of(job, i * job->n_parts);
        uint32_t from, end;
        segments_of(job, &b, &from, &end);
        *first = from < *first ? from : *first;
        most = end > most ? end : most;
    }
    return most - *first;
}

/* n segments, as many at a time as there is room for. */
static void run_split(attend_job *job, uint32_t n_segments, uint32_t n_at_once)
{
    const uint32_t n = job->n_blocks * job->n_parts;
    mf_attention_sum *sums;
    for (uint32_t i = 0; i < n; i++) {
        (void)waiting(job, 0, i, &sums);
        for (uint32_t q = 0; q < queries_of(job); q++)
            sums[q] = (mf_attention_sum){-INFINITY, 0};
    }
    for (uint32_t left = n_segments; left != 0; left -= job->n_segments) {
        job->n_segments = left < n_at_once ? left : n_at_once;
        job->is_last = job->n_segments == left;
        mf_thread_pool_run(job->be->pool, n * job->n_segments, run_segment, job);
        mf_thread_pool_run(job->be->pool, n * queries_of(job), run_join, job);
        job->first_segment += job->n_segments;
    }
}

/* Tasks of n_kv key heads at most, of each n_heads at most. */
static void cut(attend_job *job, uint32_t n_kv, uint32_t n_heads)
{
    const mf_attention_params *p = &job->op->u.attention;
    const uint32_t group = p->n_heads / p->n_kv_heads;
    job->n_task_kv = n_kv;
    job->n_task_heads = n_heads;
    job->n_head_parts = (group + n_heads - 1) / n_heads;
    job->n_parts = (p->n_kv_heads + n_kv - 1) / n_kv * job->n_head_parts;
}

static uint32_t between(uint32_t least, uint32_t n, uint32_t most)
{
    n = n < most ? n : most;
    return n > least ? n : least;
}

/* Rows of a block, key heads and heads of a task: as many as may be. */
static void cut_least(attend_job *job)
{
    const mf_attention_params *p = &job->op->u.attention;
    const uint32_t group = p->n_heads / p->n_kv_heads;
    const uint32_t n_heads = between(1, group, MF_ATTENTION_QUERIES);
    const uint32_t room = MF_ATTENTION_QUERIES / n_heads;
    uint32_t n_most = 1, first;
    for (uint32_t i = 0; i < job->be->n_sequences; i++) {
        const uint32_t n = rows_of(job->op, &job->be->sequences[i], &first);
        n_most = n > n_most ? n : n_most;
    }
    job->n_block_rows = between(1, room, n_most);
    cut(job, n_most > 1 ? 1 : between(1, room, p->n_kv_heads), n_heads);
}

/* Smaller tasks. */
static void cut_more(attend_job *job)
{
    if (job->n_task_kv > 1)
        cut(job, (job->n_task_kv + 1) / 2, job->n_task_heads);
    else
        cut(job, 1, (job->n_task_heads + 1) / 2);
}

size_t mf_cpu_attend_scratch(const mf_op *op)
{
    return (MF_ATTENTION_QUERIES + 2 * (size_t)MF_ATTENTION_TILE) * op->u.attention.head_dim *
           sizeof(float);
}

void mf_cpu_attend(mf_cpu_backend *be, const mf_op *op)
{
    const uint32_t enough = 2 * be->n_threads;
    attend_job job = {.be = be, .op = op};
    if (op->n_rows == 0)
        return;
    cut_least(&job);
    for (uint32_t i = 0; i < be->n_sequences; i++) {
        uint32_t first;
        job.n_blocks += blocks_of(&job, rows_of(op, &be->sequences[i], &first));
    }
    const uint32_t n_segments = all_segments(&job, &job.first_segment);
    while (job.n_task_kv * job.n_task_heads > 1 &&
           (uint64_t)job.n_blocks * job.n_parts * n_segments < enough)
        cut_more(&job);
    const uint32_t n = job.n_blocks * job.n_parts;
    const size_t each = n * part_bytes(&job), n_at_once = each != 0 ? be->parts_bytes / each : 0;
    if (n >= enough || n_segments < 2 || n_at_once < 3)
        mf_thread_pool_run(be->pool, n, run_block, &job);
    else
        run_split(&job, n_segments, (uint32_t)n_at_once - 1);
}
