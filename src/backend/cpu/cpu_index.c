/* SPDX-License-Identifier: MIT */
/* The indexer of latent attention: which positions a row sees, and their latents side by side. */
#include "backend/cpu/cpu_internal.h"

#include "base/cache_rows.h"
#include "base/half.h"

#include <string.h>

typedef struct index_job {
    const mf_cpu_backend *be;
    const mf_latent_attention_params *p;
    const unsigned char *const *pages; /* of the sequence */
    const float *q, *weights;          /* of the row */
    uint32_t n_kv;
    float *scores; /* [n_kv] */
    const uint32_t *chosen;
    unsigned char *gathered;
} index_job;

void mf_cpu_index_append(mf_cpu_backend *be, const mf_op *op)
{
    const mf_index_params *x = &op->u.latent_attention.index;
    const mf_cpu_cache cache = {x->page_offset, 1, x->dim, x->cache_type, false};
    mf_cpu_append(be, op, x->k, &cache);
}

static float dot(const float *q, const void *k, uint32_t n, mf_dtype type)
{
    const float *floats = k;
    const uint16_t *halves = k;
    float sums[8] = {0};
    for (uint32_t i = 0; i < n; i++)
        sums[i % 8] += q[i] * (type == MF_F32 ? floats[i] : mf_f32_from_bf16(halves[i]));
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

float mf_cpu_index_score(const mf_index_params *x, const float *q, const float *weights,
                         const void *key, mf_dtype type)
{
    float score = 0;
    for (uint32_t h = 0; h < x->n_heads; h++) {
        const float s = dot(q + (size_t)h * x->dim, key, x->dim, type) * x->scale;
        score += s > 0 ? s * weights[h] : 0;
    }
    return score;
}

/* Of a page's positions. */
static void run_scores(void *ctx, uint32_t page, uint32_t thread)
{
    (void)thread;
    const index_job *job = ctx;
    const mf_index_params *x = &job->p->index;
    const uint32_t first = page * MF_PAGE_TOKENS, left = job->n_kv - first;
    const size_t row_bytes = x->dim * mf_dtype_bytes(x->cache_type);
    const unsigned char *keys = job->pages[page] + x->page_offset;
    for (uint32_t i = 0; i < (left < MF_PAGE_TOKENS ? left : MF_PAGE_TOKENS); i++)
        job->scores[first + i] =
            mf_cpu_index_score(x, job->q, job->weights, keys + i * row_bytes, x->cache_type);
}

/* The k-th largest of x[n], which is put into another order. Not finite values end it somewhere. */
static float kth_largest(float *x, uint32_t n, uint32_t k)
{
    uint32_t low = 0, high = n - 1;
    while (low < high) {
        const float pivot = x[low + (high - low) / 2];
        uint32_t i = low, j = high;
        while (i <= j) {
            while (i < high && x[i] > pivot)
                i++;
            while (j > low && x[j] < pivot)
                j--;
            if (i > j)
                break;
            const float swapped = x[i];
            x[i++] = x[j];
            x[j] = swapped;
            if (j == 0)
                break;
            j--;
        }
        if (k - 1 <= j && j < high)
            high = j;
        else if (k - 1 >= i && i > low)
            low = i;
        else
            break;
    }
    return x[k - 1];
}

/* The positions chosen, rising: all above the k-th largest score, and the first of those equal to
 * it. Always k of them. */
static void choose(const float *scores, uint32_t n, uint32_t k, float least, uint32_t *chosen)
{
    uint32_t n_above = 0, n_chosen = 0;
    for (uint32_t i = 0; i < n; i++)
        n_above += scores[i] > least;
    uint32_t n_equal = n_above < k ? k - n_above : 0;
    for (uint32_t i = 0; i < n && n_chosen < k; i++) {
        const bool is_left = n - i <= k - n_chosen; /* of scores that are not finite */
        if (scores[i] > least || is_left)
            chosen[n_chosen++] = i;
        else if (scores[i] == least && n_equal > 0) {
            chosen[n_chosen++] = i;
            n_equal--;
        }
    }
}

void mf_cpu_choose_most(const float *scores, uint32_t n, uint32_t k, float *scratch,
                        uint32_t *chosen)
{
    memcpy(scratch, scores, n * sizeof *scratch);
    const float least = kth_largest(scratch, n, k);
    choose(scores, n, k, least, chosen);
}

/* A page of the gathered. */
static void run_gather(void *ctx, uint32_t page, uint32_t thread)
{
    (void)thread;
    const index_job *job = ctx;
    const mf_latent_attention_params *p = job->p;
    const size_t row_bytes = (size_t)mf_cache_row_bytes(p->cache_type, 1, p->n_latent + p->n_rot);
    const uint32_t first = page * MF_PAGE_TOKENS, left = p->index.n_most - first;
    for (uint32_t i = 0; i < (left < MF_PAGE_TOKENS ? left : MF_PAGE_TOKENS); i++) {
        const uint32_t at = job->chosen[first + i];
        memcpy(job->gathered + (first + i) * row_bytes,
               job->pages[at / MF_PAGE_TOKENS] + p->page_offset + at % MF_PAGE_TOKENS * row_bytes,
               row_bytes);
    }
}

void mf_cpu_index_gather(mf_cpu_backend *be, const mf_op *op, uint32_t row,
                         const unsigned char **pages)
{
    const mf_latent_attention_params *p = &op->u.latent_attention;
    const mf_index_params *x = &p->index;
    const uint32_t batch_row = op->first_row + row;
    const mf_sequence *seq = mf_cpu_sequence_of(be, batch_row);
    const uint32_t n_kv = (uint32_t)mf_cpu_position_of(seq, batch_row) + 1;
    uint32_t chosen[MF_INDEX_MOST];
    index_job job = {.be = be,
                     .p = p,
                     .pages = mf_cpu_pages_of(be, seq, false),
                     .q = mf_cpu_floats(be, x->q) + (size_t)row * x->n_heads * x->dim,
                     .weights = mf_cpu_floats(be, x->weights) + (size_t)row * x->n_heads,
                     .n_kv = n_kv,
                     .scores = mf_cpu_floats(be, x->scores),
                     .chosen = chosen,
                     .gathered = mf_cpu_bytes(be, x->gathered)};
    mf_thread_pool_run(be->pool, mf_pages_of(n_kv), run_scores, &job);
    mf_cpu_choose_most(job.scores, n_kv, x->n_most, job.scores + n_kv, chosen);
    mf_thread_pool_run(be->pool, mf_pages_of(x->n_most), run_gather, &job);
    const size_t page_bytes =
        MF_PAGE_TOKENS * (size_t)mf_cache_row_bytes(p->cache_type, 1, p->n_latent + p->n_rot);
    for (uint32_t i = 0; i < mf_pages_of(x->n_most); i++)
        pages[i] = job.gathered + i * page_bytes;
}
