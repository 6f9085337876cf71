/* SPDX-License-Identifier: MIT */
/* The operations around latent attention and grouped routers in float64, from their contracts in
 * backend.h. */
#include "reference.h"

#include <string.h>

/* ------------------------------------------------------------------------------------ routing */

typedef struct routing {
    double score[1024], choice[1024];
    bool taken[1024];
} routing;

static double group_rank(const double *choice, uint32_t n, mf_group_rule rule)
{
    double best = -INFINITY, pair = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        best = fmax(best, choice[i]);
        for (uint32_t j = 0; j < i; j++)
            pair = fmax(pair, choice[i] + choice[j]);
    }
    return rule == MF_GROUP_MAX || n == 1 ? best : pair;
}

/* A group stays if fewer than k_groups are better, or equal and before it. */
static void limit_groups(const mf_op *op, routing *t)
{
    uint32_t n_groups = op->u.route.n_groups, n = op->u.route.n_experts / n_groups;
    double rank[MF_MAX_GROUPS];
    for (uint32_t g = 0; g < n_groups; g++)
        rank[g] = group_rank(t->choice + (size_t)g * n, n, op->u.route.group_rule);
    for (uint32_t g = 0; g < n_groups; g++) {
        uint32_t n_before = 0;
        for (uint32_t o = 0; o < n_groups; o++)
            n_before += rank[o] > rank[g] || (rank[o] == rank[g] && o < g);
        for (uint32_t i = g * n; n_before >= op->u.route.k_groups && i < (g + 1) * n; i++) {
            bool is_max = op->u.route.group_rule == MF_GROUP_MAX;
            t->choice[i] = is_max ? 0.0 : -INFINITY;
            t->score[i] = is_max ? 0.0 : t->score[i];
        }
    }
}

static void score(const scene *s, uint32_t row, routing *t)
{
    uint32_t n = s->op.u.route.n_experts;
    const float *logits = floats(s, s->op.u.route.logits) + (size_t)row * n;
    bool has_bias = s->op.u.route.bias.buffer.id != 0;
    double sum = 0.0;
    memset(t, 0, sizeof *t);
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)logits[i]);
    for (uint32_t i = 0; i < n; i++) {
        t->score[i] = s->op.u.route.score == MF_SCORE_SIGMOID ? 1.0 / (1.0 + exp(-logits[i]))
                                                              : exp((double)logits[i]) / sum;
        t->choice[i] = t->score[i] + (has_bias ? floats(s, s->op.u.route.bias)[i] : 0.0);
    }
    if (s->op.u.route.n_groups > 1)
        limit_groups(&s->op, t);
}

static bool all_have_slots(const scene *s, const uint32_t *picks, uint32_t n)
{
    const uint32_t *slot = scene_at(s, s->op.u.route.slot);
    for (uint32_t i = 0; i < n; i++)
        if (slot[picks[i]] == MF_NO_SLOT)
            return false;
    return true;
}

void reference_route(scene *s)
{
    uint32_t n = s->op.u.route.n_experts, k = s->op.u.route.k, picks[1024], n_found = 0;
    const bool finds = s->op.u.route.found.buffer.id != 0;
    routing *t = calloc(1, sizeof *t);
    if (t == NULL)
        abort();
    for (uint32_t r = 0; r < s->op.n_rows; r++) {
        double kept = 0.0;
        score(s, r, t);
        for (uint32_t j = 0; j < k; j++) {
            uint32_t best = n;
            for (uint32_t i = 0; i < n; i++) {
                if (!t->taken[i] && (best == n || t->choice[i] > t->choice[best]))
                    best = i;
            }
            t->taken[best] = true;
            picks[j] = best;
            kept += t->score[best];
        }
        n_found += finds && all_have_slots(s, picks, k);
        double divisor = s->op.u.route.normalise ? kept + s->op.u.route.eps : 1.0;
        for (uint32_t j = 0; j < k; j++) {
            scene_expect_id(s, s->op.u.route.ids, (size_t)r * k + j, (int32_t)picks[j]);
            expect_relative(s, s->op.u.route.weights, (size_t)r * k + j,
                            t->score[picks[j]] / divisor * s->op.u.route.scale);
        }
    }
    if (finds) {
        scene_expect_id(s, s->op.u.route.found, 0, n_found == s->op.n_rows);
        scene_expect_id(s, s->op.u.route.found, 1, (int32_t)n_found);
    }
    free(t);
}

/* --------------------------------------------------------------------------- heads */

static void rotate(scene *s, size_t at, uint64_t position)
{
    uint32_t half = s->op.u.rope.n_rot / 2;
    mf_span span = s->op.u.rope.x;
    const float *x = floats(s, span) + at;
    for (uint32_t i = 0; i < half; i++) {
        double cosine = floats(s, s->op.u.rope.cos)[position * half + i];
        double sine = floats(s, s->op.u.rope.sin)[position * half + i];
        uint32_t first = s->op.u.rope.interleaved ? 2 * i : i;
        uint32_t second = s->op.u.rope.interleaved ? 2 * i + 1 : i + half;
        double a = x[first], b = x[second], slack = RELATIVE * (fabs(a) + fabs(b)) + TINY;
        scene_expect(s, span, at + first, a * cosine - b * sine, slack);
        scene_expect(s, span, at + second, b * cosine + a * sine, slack);
    }
}

void reference_rope(scene *s)
{
    for (uint32_t q = 0; q < s->n_sequences; q++) {
        const mf_sequence *seq = &s->sequences[q];
        for (uint32_t r = 0; r < seq->n_rows; r++) {
            for (uint32_t h = 0; h < s->op.u.rope.n_heads; h++)
                rotate(s,
                       (size_t)(seq->first_row + r) * s->op.u.rope.row_stride +
                           (size_t)h * s->op.u.rope.head_stride,
                       seq->position + r);
        }
    }
}

/* One head's matrix times x, or its transpose, as sums over the stored rows. */
static void head_product(scene *s, uint32_t h, double *row, double *sums, double *sizes)
{
    const mf_head_weight *w = &s->op.u.head_matmul.w;
    uint32_t n_cols = w->weight.shape.n_cols, n_out = w->transposed ? n_cols : w->n_rows;
    uint32_t n_in = w->transposed ? w->n_rows : n_cols;
    for (uint32_t r = 0; r < s->op.n_rows; r++) {
        const float *x = floats(s, s->op.u.head_matmul.x) + (size_t)r * s->op.u.head_matmul.x_row +
                         h * s->op.u.head_matmul.x_head;
        memset(sums, 0, n_out * sizeof *sums);
        memset(sizes, 0, n_out * sizeof *sizes);
        for (uint32_t i = 0; i < w->n_rows; i++) {
            reference_weight_row(s, &w->weight, h * w->head_rows + w->first_row + i, row, NULL);
            for (uint32_t j = 0; j < n_cols; j++) {
                uint32_t to = w->transposed ? j : i;
                double term = row[j] * x[w->transposed ? i : j];
                sums[to] += term;
                sizes[to] += fabs(term);
            }
        }
        size_t at = (size_t)r * s->op.u.head_matmul.y_row + h * s->op.u.head_matmul.y_head;
        for (uint32_t i = 0; i < n_out; i++)
            scene_expect(s, s->op.u.head_matmul.y, at + i, sums[i], sum_slack(n_in, sizes[i]));
    }
}

void reference_head_matmul(scene *s)
{
    const mf_head_weight *w = &s->op.u.head_matmul.w;
    size_t n = (size_t)w->n_rows + w->weight.shape.n_cols;
    double *row = new_doubles(n), *sums = new_doubles(n), *sizes = new_doubles(n);
    for (uint32_t h = 0; h < s->op.u.head_matmul.n_heads; h++)
        head_product(s, h, row, sums, sizes);
    free(row);
    free(sums);
    free(sizes);
}
