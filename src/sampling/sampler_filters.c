/* SPDX-License-Identifier: MIT */
/* Top-k, top-p, min-p and XTC: the candidates that they leave. */
#include "sampling/sampler_random.h"
#include "sampling/sampler_scores.h"

#include <string.h>

/* A top-k up to this is found while candidates are collected. */
#define MAX_TOP_K 256u
static void sift_down(mf_candidate *heap, size_t n, size_t i)
{
    mf_candidate moved = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && mf_goes_before(heap[child + 1], heap[child]))
            child++;
        if (!mf_goes_before(heap[child], moved))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moved;
}

/*
 * What top-p or min-p drops for certain lies below, and those near the border stay, to be cut
 * exactly. Of top-p those with less than an n-th of the mass that it leaves out have no more than
 * that together, and are the last of all n; the whole mass is what *total becomes then.
 */
static float least_kept(const mf_sampler *s, const float *logits, double *total)
{
    const mf_sampler_options *o = &s->options;
    if (o->top_k != 0 || (o->top_p == 1.0f && o->min_p == 0.0f))
        return -INFINITY;
    const float highest = mf_scores_highest(s, logits);
    if (!isfinite(highest))
        return -INFINITY;
    if (o->top_p == 1.0f)
        return (float)((double)highest + log((double)o->min_p) - 1.0);
    for (size_t b = 0; b < mf_n_blocks(s); b++)
        *total += mf_scores_mass(s, logits, b, highest);
    const double rest = *total - *total * (double)o->top_p;
    return (float)((double)highest + log(rest / (double)s->n_vocab) - 1.0);
}

/* What can be drawn at all, in order of id; *highest is the best score. What is below `least` is
 * left out. */
static size_t collect(mf_sampler *s, const float *logits, float least, float *highest)
{
    const bool skips = least > -INFINITY;
    size_t n = 0;
    *highest = -INFINITY;
    for (size_t i = 0; i < s->n_vocab; i++) {
        if (skips && (i = mf_scores_skip(s, logits, i, least)) >= s->n_vocab)
            break;
        if (!mf_is_allowed(s, i))
            continue;
        float score = mf_score_of(s, i, logits[i]);
        if (!(score > -INFINITY) || score < least) /* NaN too */
            continue;
        if (score > *highest)
            *highest = score;
        s->candidates[n++] = (mf_candidate){score, (int32_t)i};
    }
    return n;
}

/* A heap of the k highest scores so far, the least of them first. */
static void keep_score(float *heap, size_t *n, size_t k, float score)
{
    size_t i = 0;
    if (*n < k) {
        for (i = (*n)++; i > 0 && heap[(i - 1) / 2] > score; i = (i - 1) / 2)
            heap[i] = heap[(i - 1) / 2];
        heap[i] = score;
        return;
    }
    for (size_t child = 1; child < k; child = 2 * i + 1) {
        child += child + 1 < k && heap[child + 1] < heap[child];
        if (heap[child] >= score)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = score;
}

/* A score that k tokens reach, -INFINITY: none is known. By bounds: each of the blocks with the
 * highest ones has a token as high as its highest. */
static float least_of_top(const mf_sampler *s, const float *logits, size_t k)
{
    float bounds[MAX_TOP_K], highest[MAX_TOP_K] = {-INFINITY};
    size_t n_bounds = 0, n = 0;
    if (!s->has_bounds || k > mf_n_blocks(s))
        return -INFINITY;
    for (size_t b = 0; b < mf_n_blocks(s); b++)
        if (n_bounds < k || s->bounds[b] > bounds[0])
            keep_score(bounds, &n_bounds, k, s->bounds[b]);
    for (size_t b = 0; b < mf_n_blocks(s); b++) {
        if (!(s->bounds[b] >= bounds[0]))
            continue;
        const float score = mf_scores_highest_of_block(s, logits, b);
        if (n < k || score > highest[0])
            keep_score(highest, &n, k, score);
    }
    return highest[0];
}

/* As collect(), but for those that top-k drops. *n_all: how many there were with those; or one more
 * than k at least, if they were more. */
static size_t collect_top(mf_sampler *s, const float *logits, float *highest, size_t *n_all)
{
    float heap[MAX_TOP_K];
    const size_t k = s->options.top_k;
    float least = least_of_top(s, logits, k);
    size_t n = 0, n_heap = 0, n_kept = 0, n_skipped = 0;
    *highest = -INFINITY;
    *n_all = 0;
    for (size_t i = 0; i < s->n_vocab; i++) {
        const size_t to = least > -INFINITY ? mf_scores_skip(s, logits, i, least) : i;
        n_skipped += to - i;
        if ((i = to) >= s->n_vocab)
            break;
        if (!mf_is_allowed(s, i))
            continue;
        const float score = mf_score_of(s, i, logits[i]);
        if (!(score > -INFINITY)) /* NaN too */
            continue;
        ++*n_all;
        if (score < least)
            continue;
        keep_score(heap, &n_heap, k, score);
        least = n_heap == k && heap[0] > least ? heap[0] : least;
        *highest = score > *highest ? score : *highest;
        s->candidates[n++] = (mf_candidate){score, (int32_t)i};
    }
    for (size_t i = 0; i < n; i++)
        if (n_heap < k || s->candidates[i].score >= heap[0])
            s->candidates[n_kept++] = s->candidates[i];
    if (n_skipped == 0 || *n_all > k)
        return n_kept;
    s->skips = s->has_bounds = false; /* whether there are more than k is to be known */
    return collect_top(s, logits, highest, n_all);
}

size_t mf_weigh(const mf_sampler *s, const mf_candidate *candidates, size_t n, float highest,
                double *weights)
{
    float scores[MF_WEIGHED];
    n = n < MF_WEIGHED ? n : MF_WEIGHED;
    for (size_t i = 0; i < n; i++)
        scores[i] = candidates[i].score;
    s->weights->of(scores, n, highest, weights);
    return n;
}

static double weight_in(mf_candidate candidate, float highest)
{
    return mf_weight_of((double)candidate.score - (double)highest);
}

static double sum_weights(const mf_sampler *s, const mf_candidate *candidates, size_t n,
                          float highest)
{
    double sum = 0.0, weights[MF_WEIGHED];
    for (size_t i = 0; i < n;) {
        const size_t n_more = mf_weigh(s, candidates + i, n - i, highest, weights);
        for (size_t k = 0; k < n_more; k++)
            sum += weights[k];
        i += n_more;
    }
    return sum;
}

/* Each keeps the best of sorted[n] as transformers does: of scores equal to the k-th all stay; a
 * token stays while those before it have less than top_p of the mass; min_p is relative to the
 * best. */
static size_t keep_top_p(const mf_candidate *sorted, size_t n, float highest, double total,
                         float top_p)
{
    double before = 0.0;
    size_t kept = 0;
    while (kept < n && (kept == 0 || before < (double)top_p * total))
        before += weight_in(sorted[kept++], highest);
    return kept;
}

/*
 * Takes candidates out of a heap in falling order until top-k or top-p is satisfied. What was taken
 * grows from the end of the array downwards, in the room that the heap gives up; it is turned round
 * at last. n_all, total: of all, with what was left out; total 0: nothing was.
 */
static size_t sort_and_cut(mf_sampler *s, size_t n, size_t n_all, float highest, double total)
{
    mf_candidate *heap = s->candidates;
    size_t n_heap = n, k = s->options.top_k;
    bool uses_p = s->options.top_p < 1.0f;
    bool uses_k = k != 0 && k < n_all;
    if (uses_p && !uses_k && total == 0.0)
        total = sum_weights(s, heap, n, highest);
    const double mass = total * (double)s->options.top_p;
    double before = 0.0;
    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i);
    while (n_heap > 0) {
        size_t n_taken = n - n_heap;
        if (uses_k && n_taken >= k && heap[0].score < heap[n_heap].score)
            break;
        if (!uses_k && uses_p && n_taken > 0 && before >= mass)
            break;
        mf_candidate best = heap[0];
        heap[0] = heap[--n_heap];
        sift_down(heap, n_heap, 0);
        heap[n_heap] = best;
        if (!uses_k && uses_p)
            before += weight_in(best, highest);
    }
    size_t n_taken = n - n_heap;
    for (size_t i = 0; i < n_taken / 2; i++) {
        mf_candidate swap = heap[n_heap + i];
        heap[n_heap + i] = heap[n - 1 - i];
        heap[n - 1 - i] = swap;
    }
    memmove(heap, heap + n_heap, n_taken * sizeof *heap);
    if (uses_k && uses_p)
        n_taken = keep_top_p(heap, n_taken, highest, sum_weights(s, heap, n_taken, highest),
                             s->options.top_p);
    return n_taken;
}

/* Keeps those whose weight is `least` or more. */
static size_t keep_heavy(const mf_sampler *s, mf_candidate *candidates, size_t n, float highest,
                         double least)
{
    double weights[MF_WEIGHED];
    size_t kept = 0;
    for (size_t i = 0; i < n;) {
        const size_t n_more = mf_weigh(s, candidates + i, n - i, highest, weights);
        for (size_t k = 0; k < n_more; k++)
            if (weights[k] >= least)
                candidates[kept++] = candidates[i + k];
        i += n_more;
    }
    return kept;
}

/* Takes out all that have at least the threshold's share but the least likely of them. */
static size_t exclude_top(const mf_sampler *s, mf_candidate *candidates, size_t n, float highest,
                          float threshold)
{
    const double least = (double)threshold * sum_weights(s, candidates, n, highest);
    double weights[MF_WEIGHED];
    size_t n_viable = 0, last = 0, kept = 0;
    for (size_t i = 0; i < n;) {
        const size_t n_more = mf_weigh(s, candidates + i, n - i, highest, weights);
        for (size_t k = 0; k < n_more; k++) {
            if (weights[k] < least)
                continue;
            if (n_viable++ == 0 || mf_goes_before(candidates[last], candidates[i + k]))
                last = i + k;
        }
        i += n_more;
    }
    if (n_viable < 2)
        return n;
    const mf_candidate boundary = candidates[last];
    for (size_t i = 0; i < n; i++)
        if (!mf_goes_before(candidates[i], boundary))
            candidates[kept++] = candidates[i];
    return kept;
}

static float highest_of(const mf_candidate *candidates, size_t n)
{
    float highest = -INFINITY;
    for (size_t i = 0; i < n; i++)
        highest = candidates[i].score > highest ? candidates[i].score : highest;
    return highest;
}

const mf_candidate *mf_filter(mf_sampler *s, const float *logits, size_t *n_kept, float *highest,
                              double *sum)
{
    const bool is_top = s->options.top_k > 0 && s->options.top_k <= MAX_TOP_K;
    double total = 0.0;
    size_t n_all = 0, n = 0;
    if (is_top)
        n = collect_top(s, logits, highest, &n_all);
    else
        n = n_all = collect(s, logits, least_kept(s, logits, &total), highest);
    if (*highest == INFINITY) { /* only those are as likely as that; they share it evenly */
        size_t kept = 0;
        for (size_t i = 0; i < n; i++)
            if (s->candidates[i].score == INFINITY)
                s->candidates[kept++] = (mf_candidate){0.0f, s->candidates[i].id};
        n = n_all = kept;
        *highest = 0.0f;
    }
    if ((s->options.top_k != 0 && s->options.top_k < n_all) || s->options.top_p < 1.0f)
        n = sort_and_cut(s, n, n_all, *highest, total);
    if (s->options.min_p > 0.0f)
        n = keep_heavy(s, s->candidates, n, *highest, (double)s->options.min_p);
    if (s->options.xtc_probability > 0.0f &&
        mf_random_next(s->random) < (double)s->options.xtc_probability) {
        n = exclude_top(s, s->candidates, n, *highest, s->options.xtc_threshold);
        *highest = highest_of(s->candidates, n);
    }
    *sum = sum_weights(s, s->candidates, n, *highest);
    *n_kept = n;
    return s->candidates;
}
