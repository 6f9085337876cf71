/* SPDX-License-Identifier: MIT */
/* The quantiser: group by group. Plain loops of a fixed order, so that compilers make vectors of
 * them and every machine the same bits. */
#include "quantise/quantise.h"

#include "base/half.h"

#include <math.h>
#include <string.h>

/* The largest float16. */
#define LARGEST 65504.0f

typedef struct group {
    float x[MF_QUANTISE_MAX_GROUP];      /* values */
    float weight[MF_QUANTISE_MAX_GROUP]; /* of their squared errors */
    uint32_t n;
    float least, most; /* of x */
    float n_codes;     /* the largest code */
} group;

/* A scale and a bias as they are stored, and what they cost. */
typedef struct fit {
    uint16_t scale, bias;
    double error;
} fit;

/* Sums over a group, for least squares. */
typedef struct sums {
    float w, q, qq, x, qx;
} sums;

/* The code of a value. */
static inline float code_of(float x, float bias, float inverse, float n_codes)
{
    float q = (x - bias) * inverse;
    q = q < 0.0f ? 0.0f : q;
    q = q > n_codes ? n_codes : q;
    return (float)(int32_t)(q + 0.5f);
}

static float inverse_of(float scale)
{
    return scale != 0.0f ? 1.0f / scale : 0.0f;
}

static double error_of(const group *g, float scale, float bias)
{
    const float inverse = inverse_of(scale);
    float lanes[8] = {0};
    for (uint32_t i = 0; i < g->n; i += 8) {
        for (uint32_t j = 0; j < 8; j++) {
            const float x = g->x[i + j];
            const float d = x - (code_of(x, bias, inverse, g->n_codes) * scale + bias);
            lanes[j] += d * d * g->weight[i + j];
        }
    }
    double sum = 0;
    for (uint32_t j = 0; j < 8; j++)
        sum += (double)lanes[j];
    return sum;
}

static float sum_of(const float lanes[8])
{
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
           ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

static sums sums_of(const group *g, float scale, float bias)
{
    const float inverse = inverse_of(scale);
    float w[8] = {0}, q[8] = {0}, qq[8] = {0}, x[8] = {0}, qx[8] = {0};
    for (uint32_t i = 0; i < g->n; i += 8) {
        for (uint32_t j = 0; j < 8; j++) {
            const float value = g->x[i + j], weight = g->weight[i + j];
            const float code = code_of(value, bias, inverse, g->n_codes);
            w[j] += weight;
            q[j] += weight * code;
            qq[j] += weight * code * code;
            x[j] += weight * value;
            qx[j] += weight * code * value;
        }
    }
    return (sums){sum_of(w), sum_of(q), sum_of(qq), sum_of(x), sum_of(qx)};
}

static bool fits(float value)
{
    return value >= -LARGEST && value <= LARGEST;
}

/* Keeps a scale and a bias, as stored, if they are the best so far. */
static bool offer(const group *g, float scale, float bias, fit *best)
{
    if (!fits(scale) || !fits(bias))
        return false;
    fit f = {.scale = mf_f16_from_f32(scale), .bias = mf_f16_from_f32(bias)};
    f.error = error_of(g, mf_f32_from_f16(f.scale), mf_f32_from_f16(f.bias));
    const bool is_better = f.error < best->error;
    if (is_better)
        *best = f;
    return is_better;
}

/* From a scale and a bias on: codes, then the scale and bias that suit these best, as long as it
 * gets better. */
static void refine(const group *g, float scale, float bias, uint32_t n_rounds, fit *best)
{
    for (uint32_t i = 0; i < n_rounds; i++) {
        const sums s = sums_of(g, scale, bias);
        const float det = s.w * s.qq - s.q * s.q;
        if (!(s.w > 0.0f) || !(det > 0.0f))
            return;
        scale = mf_f32_from_f16(mf_f16_from_f32((s.w * s.qx - s.q * s.x) / det));
        if (!fits(scale) || scale == 0.0f)
            return;
        bias = (s.x - scale * s.q) / s.w; /* of the scale as it is stored */
        if (!offer(g, scale, bias, best))
            return;
    }
}

/* As mlx.core.quantize chooses: the end of larger magnitude is met exactly, and zero is. */
static void offer_published(const group *g, fit *best)
{
    const bool is_low = fabsf(g->least) > fabsf(g->most);
    const float edge = is_low ? g->least : g->most;
    float scale = (g->most - g->least) / g->n_codes;
    scale = scale > 1e-7f ? scale : 1e-7f;
    scale = is_low ? scale : -scale;
    const float steps = rintf(edge / scale);
    if (steps != 0.0f)
        scale = edge / steps;
    const float bias = steps != 0.0f ? edge : 0.0f;
    (void)offer(g, scale, bias, best);
    refine(g, scale, bias, 2, best);
}

/* How much of the range is used: fewer codes gain by cutting more of it off. */
static void offer_ranges(const group *g, fit *best)
{
    static const float shares[] = {1.0f, 0.92f, 0.84f, 0.76f, 0.68f, 0.6f};
    const uint32_t n = g->n_codes <= 7.0f ? 6 : g->n_codes <= 31.0f ? 4 : 1;
    const float middle = 0.5f * (g->least + g->most), half = g->most - middle;
    for (uint32_t i = 0; i < n; i++) {
        const float bias = middle - shares[i] * half;
        const float scale = 2.0f * shares[i] * half / g->n_codes;
        (void)offer(g, scale, bias, best);
        refine(g, scale, bias, 3, best);
    }
}

/* Codes as a stream of bits, lowest first. */
static void pack(const group *g, const fit *best, uint32_t bits, unsigned char *out)
{
    const float scale = mf_f32_from_f16(best->scale), bias = mf_f32_from_f16(best->bias);
    const float inverse = inverse_of(scale);
    uint64_t held = 0;
    uint32_t n_held = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        held |= (uint64_t)code_of(g->x[i], bias, inverse, g->n_codes) << n_held;
        for (n_held += bits; n_held >= 8; n_held -= 8, held >>= 8)
            *out++ = (unsigned char)held;
    }
}

static bool take_group(const mf_quantise_job *job, uint32_t first, group *g)
{
    float sum = 0;
    g->least = g->most = job->row[first];
    for (uint32_t i = 0; i < g->n; i++) {
        const float x = job->row[first + i];
        g->x[i] = x;
        g->weight[i] = job->importance != NULL ? job->importance[first + i] : 1.0f;
        sum += g->weight[i];
        if (!fits(x))
            return false;
        g->least = x < g->least ? x : g->least;
        g->most = x > g->most ? x : g->most;
    }
    if (job->importance == NULL)
        return true;
    /* columns that nothing is known of, or that nothing comes through, count alike */
    const bool is_known = sum > 0.0f && sum < 1e30f;
    for (uint32_t i = 0; i < g->n; i++)
        g->weight[i] = is_known ? g->weight[i] * ((float)g->n / sum) + 1e-4f : 1.0f;
    return true;
}

static void put_half(unsigned char *to, uint16_t half)
{
    to[0] = (unsigned char)half;
    to[1] = (unsigned char)(half >> 8);
}

bool mf_quantise_row(const mf_quantise_form *form, const mf_quantise_job *job,
                     mf_quantise_loss *loss)
{
    group g = {.n = form->group, .n_codes = (float)((1u << form->bits) - 1)};
    for (uint32_t at = 0, i = 0; at < job->n_cols; at += form->group, i++) {
        fit best = {.error = INFINITY};
        if (!take_group(job, at, &g))
            return false;
        offer_published(&g, &best);
        offer_ranges(&g, &best);
        if (!(best.error < (double)INFINITY))
            return false;
        pack(&g, &best, form->bits, job->values + (size_t)at * form->bits / 8);
        put_half(job->scales + 2 * (size_t)i, best.scale);
        put_half(job->biases + 2 * (size_t)i, best.bias);
        loss->error += best.error;
        for (uint32_t j = 0; j < g.n; j++)
            loss->signal += (double)(g.weight[j] * g.x[j] * g.x[j]);
    }
    return true;
}
