/* SPDX-License-Identifier: MIT */
/* Attention in float64, over caches of float32 and bfloat16, from its contracts in backend.h. */
#include "reference.h"

/* What a sequence holds, [positions, width], and the rows of the batch that are appended to it. */
typedef struct ref_cache {
    const mf_sequence *seq;
    mf_span held, fresh;
    size_t width;
    mf_dtype type;
} ref_cache;

/* One query head. Its keys begin at column k_at of a cache, its values at column v_at. */
typedef struct ref_head {
    ref_cache keys, values;
    size_t k_at, v_at;
    uint32_t key_dim, value_dim;
    const double *q; /* [key_dim] */
    double scale;
    mf_span out;
    size_t out_at;
    size_t first; /* position that is attended */
    double sink;  /* -infinity: none */
} ref_head;

/* Value i of the row of position p, as it is cached or will be. */
static double cached(const scene *s, const ref_cache *c, uint64_t p, size_t i)
{
    const mf_sequence *seq = c->seq;
    if (p < seq->position)
        return reference_decode(scene_at(s, c->held), c->type,
                                scene_cache_row(s, seq, p) * c->width + i);
    size_t row = (size_t)(seq->first_row + p - seq->position);
    float value = floats(s, c->fresh)[row * c->width + i];
    if (c->type == MF_F32)
        return value;
    uint16_t half = (uint16_t)reference_bf16(value);
    return reference_decode((const unsigned char *)&half, MF_BF16, 0);
}

/* The row that the batch's row appends: floats, or pairs of bfloat16 (widths are even then). */
static void expect_appended(scene *s, const ref_cache *c, uint32_t row)
{
    const float *fresh = floats(s, c->fresh) + (size_t)(c->seq->first_row + row) * c->width;
    size_t to = scene_cache_row(s, c->seq, c->seq->position + row) * c->width;
    for (size_t i = 0; i < c->width; i++) {
        if (c->type == MF_F32)
            scene_expect(s, c->held, to + i, fresh[i], 0.0);
        else if (i % 2 == 0)
            scene_expect_id(
                s, c->held, (to + i) / 2,
                (int32_t)(reference_bf16(fresh[i]) | reference_bf16(fresh[i + 1]) << 16));
    }
}

/* Over positions a->first .. n - 1, and the sink. */
static void attend(scene *s, const ref_head *a, size_t n)
{
    double *p = new_doubles(n), largest = a->sink, sum = 0.0, size = 0.0;
    for (size_t t = a->first; t < n; t++) {
        double magnitude = 0.0;
        for (uint32_t i = 0; i < a->key_dim; i++) {
            double term = a->q[i] * cached(s, &a->keys, t, a->k_at + i) * a->scale;
            p[t] += term;
            magnitude += fabs(term);
        }
        largest = fmax(largest, p[t]);
        size = fmax(size, magnitude);
    }
    for (size_t t = a->first; t < n; t++)
        sum += p[t] = exp(p[t] - largest);
    sum += exp(a->sink - largest);
    for (uint32_t i = 0; i < a->value_dim; i++) {
        double out = 0.0, magnitude = 0.0;
        for (size_t t = a->first; t < n; t++) {
            double term = p[t] / sum * cached(s, &a->values, t, a->v_at + i);
            out += term;
            magnitude += fabs(term);
        }
        double slack = 2.0 * (RELATIVE + sum_slack(a->key_dim, size)) + sum_slack(n, 1.0);
        scene_expect(s, a->out, a->out_at + i, out, slack * magnitude + TINY);
    }
    free(p);
}

/* ---------------------------------------------------------------------------------- softmax */

static void attend_row(scene *s, ref_head *a, const mf_sequence *seq, uint32_t row)
{
    uint32_t dim = s->op.u.attention.head_dim, n_heads = s->op.u.attention.n_heads;
    uint32_t heads_of_key = n_heads / s->op.u.attention.n_kv_heads;
    double *q = new_doubles(dim);
    a->q = q;
    for (uint32_t h = 0; h < n_heads; h++) {
        a->k_at = a->v_at = (size_t)(h / heads_of_key) * dim;
        a->out_at = ((size_t)(seq->first_row + row) * n_heads + h) * dim;
        for (uint32_t i = 0; i < dim; i++)
            q[i] = floats(s, s->op.u.attention.q)[a->out_at + i];
        const size_t n = (size_t)seq->position + row + 1, window = s->op.u.attention.window;
        a->first = window != 0 && window < n ? n - window : 0;
        if (s->op.u.attention.window_is_chunk && window != 0)
            a->first = (n - 1) / window * window;
        if (s->op.u.attention.sinks.buffer.id != 0)
            a->sink = floats(s, s->op.u.attention.sinks)[h];
        attend(s, a, n);
    }
    free(q);
}

void reference_attention(scene *s)
{
    uint32_t dim = s->op.u.attention.head_dim;
    size_t width = (size_t)s->op.u.attention.n_kv_heads * dim;
    mf_dtype type = s->op.u.attention.cache_type;
    for (uint32_t i = 0; i < s->n_sequences; i++) {
        const mf_sequence *seq = &s->sequences[i];
        ref_head a = {.keys = {seq, seq->state[0], s->op.u.attention.k, width, type},
                      .values = {seq, seq->state[1], s->op.u.attention.v, width, type},
                      .key_dim = dim,
                      .value_dim = dim,
                      .scale = s->op.u.attention.scale,
                      .sink = -INFINITY,
                      .out = s->op.u.attention.out};
        for (uint32_t r = 0; r < seq->n_rows; r++) {
            attend_row(s, &a, seq, r);
            expect_appended(s, &a.keys, r);
            expect_appended(s, &a.values, r);
        }
    }
}

/* ----------------------------------------------------------------------------------- latent */

static void attend_latent_row(scene *s, ref_head *a, const mf_sequence *seq, uint32_t row)
{
    uint32_t n_latent = s->op.u.latent_attention.n_latent;
    size_t batch_row = seq->first_row + row;
    double *q = new_doubles(a->key_dim);
    a->q = q;
    for (uint32_t h = 0; h < s->op.u.latent_attention.n_heads; h++) {
        const float *q_rot = floats(s, s->op.u.latent_attention.q_rot) +
                             batch_row * s->op.u.latent_attention.q_rot_row +
                             (size_t)h * s->op.u.latent_attention.q_rot_head;
        a->out_at = (batch_row * s->op.u.latent_attention.n_heads + h) * n_latent;
        for (uint32_t i = 0; i < a->key_dim; i++)
            q[i] = i < n_latent ? floats(s, s->op.u.latent_attention.q)[a->out_at + i]
                                : q_rot[i - n_latent];
        attend(s, a, (size_t)seq->position + row + 1);
    }
    free(q);
}

void reference_latent_attention(scene *s)
{
    uint32_t n_latent = s->op.u.latent_attention.n_latent;
    uint32_t width = n_latent + s->op.u.latent_attention.n_rot;
    mf_dtype type = s->op.u.latent_attention.cache_type;
    if (s->op.u.latent_attention.index.n_most != 0) {
        reference_chosen_attention(s);
        return;
    }
    for (uint32_t i = 0; i < s->n_sequences; i++) {
        const mf_sequence *seq = &s->sequences[i];
        const ref_cache rows = {seq, seq->state[0], s->op.u.latent_attention.kv, width, type};
        ref_head a = {.keys = rows,
                      .values = rows,
                      .key_dim = width,
                      .value_dim = n_latent,
                      .scale = s->op.u.latent_attention.scale,
                      .sink = -INFINITY,
                      .out = s->op.u.latent_attention.out};
        for (uint32_t r = 0; r < seq->n_rows; r++) {
            attend_latent_row(s, &a, seq, r);
            expect_appended(s, &rows, r);
        }
    }
}
