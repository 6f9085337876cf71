/* SPDX-License-Identifier: MIT */
/* The operations of latent attention and of grouped routers in float64, from their contracts in
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

void reference_route(scene *s)
{
    uint32_t n = s->op.u.route.n_experts, k = s->op.u.route.k, picks[1024];
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
        double divisor = s->op.u.route.normalise ? kept + s->op.u.route.eps : 1.0;
        for (uint32_t j = 0; j < k; j++) {
            scene_expect_id(s, s->op.u.route.ids, (size_t)r * k + j, (int32_t)picks[j]);
            expect_relative(s, s->op.u.route.weights, (size_t)r * k + j,
                            t->score[picks[j]] / divisor * s->op.u.route.scale);
        }
    }
    free(t);
}

/* --------------------------------------------------------------------------- latent attention */

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
    for (uint32_t q = 0; q < s->op.u.rope.n_sequences; q++) {
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
    uint32_t n_cols = w->weight.n_cols, n_out = w->transposed ? n_cols : w->n_rows;
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
    size_t n = (size_t)w->n_rows + w->weight.n_cols;
    double *row = new_doubles(n), *sums = new_doubles(n), *sizes = new_doubles(n);
    for (uint32_t h = 0; h < s->op.u.head_matmul.n_heads; h++)
        head_product(s, h, row, sums, sizes);
    free(row);
    free(sums);
    free(sizes);
}

static uint32_t round_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t kept = bits >> 16, rest = bits & 0xffff;
    return kept + (rest > 0x8000 || (rest == 0x8000 && kept % 2 == 1));
}

/* Value i of the cached row of position p: of the cache, or of the batch as it will be cached. */
static double cached(const scene *s, const mf_sequence *seq, uint64_t p, uint32_t i)
{
    size_t width = (size_t)s->op.u.latent_attention.n_latent + s->op.u.latent_attention.n_rot;
    bool is_f32 = s->op.u.latent_attention.cache_type == MF_F32;
    uint32_t bits;
    float value;
    if (p >= seq->position) {
        size_t row = (size_t)(seq->first_row + p - seq->position);
        value = floats(s, s->op.u.latent_attention.kv)[row * width + i];
        if (is_f32)
            return value;
        bits = round_to_bf16(value) << 16;
    } else if (is_f32) {
        return floats(s, seq->state[0])[p * width + i];
    } else {
        uint16_t half;
        memcpy(&half, (const uint16_t *)scene_at(s, seq->state[0]) + p * width + i, sizeof half);
        bits = (uint32_t)half << 16;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void attend(scene *s, const mf_sequence *seq, uint32_t row, uint32_t h)
{
    uint32_t n_latent = s->op.u.latent_attention.n_latent, n_rot = s->op.u.latent_attention.n_rot;
    size_t batch_row = seq->first_row + row, n = (size_t)seq->position + row + 1;
    size_t at = (batch_row * s->op.u.latent_attention.n_heads + h) * n_latent;
    const float *q = floats(s, s->op.u.latent_attention.q) + at;
    const float *q_rot = floats(s, s->op.u.latent_attention.q_rot) +
                         batch_row * s->op.u.latent_attention.q_rot_row +
                         (size_t)h * s->op.u.latent_attention.q_rot_head;
    double *p = new_doubles(n), largest = -INFINITY, sum = 0.0, size = 0.0;
    for (size_t t = 0; t < n; t++) {
        double magnitude = 0.0;
        for (uint32_t i = 0; i < n_latent + n_rot; i++) {
            double term = i < n_latent ? q[i] : q_rot[i - n_latent];
            term *= cached(s, seq, t, i) * s->op.u.latent_attention.scale;
            p[t] += term;
            magnitude += fabs(term);
        }
        largest = fmax(largest, p[t]);
        size = fmax(size, magnitude);
    }
    for (size_t t = 0; t < n; t++)
        sum += p[t] = exp(p[t] - largest);
    for (uint32_t i = 0; i < n_latent; i++) {
        double out = 0.0, magnitude = 0.0;
        for (size_t t = 0; t < n; t++) {
            double term = p[t] / sum * cached(s, seq, t, i);
            out += term;
            magnitude += fabs(term);
        }
        double slack = 2.0 * (RELATIVE + sum_slack(n_latent + n_rot, size)) + sum_slack(n, 1.0);
        scene_expect(s, s->op.u.latent_attention.out, at + i, out, slack * magnitude + TINY);
    }
    free(p);
}

/* The row that is appended: floats, or pairs of bfloat16 (widths are even). */
static void expect_appended(scene *s, const mf_sequence *seq, uint32_t row)
{
    size_t width = (size_t)s->op.u.latent_attention.n_latent + s->op.u.latent_attention.n_rot;
    size_t from = (size_t)(seq->first_row + row) * width,
           to = (size_t)(seq->position + row) * width;
    const float *kv = floats(s, s->op.u.latent_attention.kv) + from;
    for (size_t i = 0; i < width; i++) {
        if (s->op.u.latent_attention.cache_type == MF_F32)
            scene_expect(s, seq->state[0], to + i, kv[i], 0.0);
        else if (i % 2 == 0)
            scene_expect_id(s, seq->state[0], (to + i) / 2,
                            (int32_t)(round_to_bf16(kv[i]) | round_to_bf16(kv[i + 1]) << 16));
    }
}

void reference_latent_attention(scene *s)
{
    for (uint32_t q = 0; q < s->op.u.latent_attention.n_sequences; q++) {
        const mf_sequence *seq = &s->sequences[q];
        for (uint32_t r = 0; r < seq->n_rows; r++) {
            for (uint32_t h = 0; h < s->op.u.latent_attention.n_heads; h++)
                attend(s, seq, r, h);
            expect_appended(s, seq, r);
        }
    }
}
