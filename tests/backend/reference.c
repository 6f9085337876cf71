/* SPDX-License-Identifier: MIT */
/*
 * Every operation in float64, plainly, from its contract in backend.h, with the error that float32
 * may make: for a sum of n products 4 eps sqrt(n) sum |a b|, for exp and norms a few parts in a
 * million, carried through what comes after.
 */
#include "reference.h"

#include <string.h>

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double silu(double x)
{
    return x * sigmoid(x);
}

/* ----------------------------------------------------------------------------------- weights */

static double decode_f16(uint32_t bits)
{
    double sign = bits >> 15 != 0 ? -1.0 : 1.0;
    int exponent = (int)(bits >> 10 & 31);
    double fraction = bits & 1023;
    return sign * (exponent == 0 ? ldexp(fraction, -24) : ldexp(1024.0 + fraction, exponent - 25));
}

double reference_decode(const unsigned char *at, mf_dtype type, size_t i)
{
    uint32_t bits = 0;
    memcpy(&bits, at + i * mf_dtype_bytes(type), mf_dtype_bytes(type));
    if (type == MF_F16)
        return decode_f16(bits);
    if (type == MF_BF16)
        bits <<= 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double decode_e4m3(uint32_t bits)
{
    double sign = bits >> 7 != 0 ? -1.0 : 1.0;
    int exponent = (int)(bits >> 3 & 15);
    double fraction = bits & 7;
    return sign * (exponent == 0 ? ldexp(fraction, -9) : ldexp(8.0 + fraction, exponent - 10));
}

static double decode_e2m1(uint32_t bits)
{
    static const double sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return bits >> 3 != 0 ? -sizes[bits & 7] : sizes[bits & 7];
}

/* q * scale + bias; *size: of both together, as their sum is rounded after them. */
static double affine_value(const scene *s, const mf_weight *w, uint32_t row, uint32_t i,
                           double *size)
{
    const mf_weight_shape *f = &w->shape;
    const unsigned char *data = scene_at(s, w->data);
    size_t first = ((size_t)row * f->n_cols + i) * f->bits;
    uint32_t q = 0;
    for (uint32_t b = 0; b < f->bits; b++)
        q |= (data[(first + b) / 8] >> (first + b) % 8 & 1u) << b;
    size_t group = (size_t)row * (f->n_cols / f->group) + i / f->group;
    double scaled = q * reference_decode(scene_at(s, w->scales), f->float_type, group);
    double bias = reference_decode(scene_at(s, w->biases), f->float_type, group);
    *size = fabs(scaled) + fabs(bias);
    return scaled + bias;
}

/* What is not affine. */
static double block_value(const scene *s, const mf_weight *w, uint32_t row, uint32_t i)
{
    const size_t n = w->shape.n_cols, at = row * n + i;
    const unsigned char *data = scene_at(s, w->data);
    const unsigned char *block;
    switch (w->shape.kind) {
    case MF_WEIGHT_FP8_BLOCK:
        return decode_e4m3(data[at]) * reference_decode(scene_at(s, w->scales), MF_F32,
                                                        row / 128 * ((n + 127) / 128) + i / 128);
    case MF_WEIGHT_GGUF_Q8_0:
        block = data + at / 32 * 34;
        return reference_decode(block, MF_F16, 0) * (signed char)block[2 + i % 32];
    default:
        block = scene_at(s, w->scales);
        return decode_e2m1(data[at / 2] >> (4 * (i % 2)) & 15u) * decode_e4m3(block[at / 16]) *
               reference_decode(scene_at(s, w->biases), MF_F32, 0);
    }
}

void reference_weight_row(const scene *s, const mf_weight *w, uint32_t row, double *out,
                          double *size)
{
    for (uint32_t i = 0; i < w->shape.n_cols; i++) {
        double at = 0.0; /* floats are exact */
        if (w->shape.kind == MF_WEIGHT_FLOAT) {
            out[i] = reference_decode(scene_at(s, w->data), w->shape.float_type,
                                      (size_t)row * w->shape.n_cols + i);
        } else if (w->shape.kind == MF_WEIGHT_AFFINE) {
            out[i] = affine_value(s, w, row, i, &at);
        } else {
            out[i] = block_value(s, w, row, i);
            at = fabs(out[i]);
        }
        if (size != NULL)
            size[i] = at;
    }
}

static double dot(const double *w, const float *x, uint32_t n, double *magnitude)
{
    double sum = 0.0;
    *magnitude = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        sum += w[i] * x[i];
        *magnitude += fabs(w[i] * x[i]);
    }
    return sum;
}

static void ref_embed(scene *s)
{
    const mf_weight *w = &s->op.u.embed.weight;
    double *row = new_doubles(w->shape.n_cols), *size = new_doubles(w->shape.n_cols);
    for (uint32_t r = 0; r < s->op.n_rows; r++) {
        reference_weight_row(s, w, (uint32_t)s->op.u.embed.tokens[r], row, size);
        for (uint32_t i = 0; i < w->shape.n_cols; i++)
            scene_expect(s, s->op.u.embed.out, (size_t)r * w->shape.n_cols + i, row[i],
                         FLT_EPSILON * size[i]);
    }
    free(row);
    free(size);
}

static void ref_matmul(scene *s)
{
    const float *x = floats(s, s->op.u.matmul.x);
    for (uint32_t j = 0; j < s->op.u.matmul.n; j++) {
        const mf_weight *w = &s->op.u.matmul.weight[j];
        double *row = new_doubles(w->shape.n_cols), magnitude;
        for (uint32_t o = 0; o < w->shape.n_rows; o++) {
            reference_weight_row(s, w, o, row, NULL);
            for (uint32_t r = 0; r < s->op.n_rows; r++) {
                double y = dot(row, x + (size_t)r * w->shape.n_cols, w->shape.n_cols, &magnitude);
                scene_expect(s, s->op.u.matmul.y[j], (size_t)r * w->shape.n_rows + o, y,
                             sum_slack(w->shape.n_cols, magnitude));
            }
        }
        free(row);
    }
}

/* -------------------------------------------------------------------------------- row by row */

static void ref_copy_rows(scene *s)
{
    uint32_t n = s->op.u.copy_rows.n_cols;
    for (uint32_t r = 0; r < s->op.n_rows; r++) {
        const float *x = floats(s, s->op.u.copy_rows.x) + (size_t)s->op.u.copy_rows.rows[r] * n;
        for (uint32_t i = 0; i < n; i++)
            scene_expect(s, s->op.u.copy_rows.out, (size_t)r * n + i, x[i], 0.0);
    }
}

static void ref_finite(scene *s)
{
    const mf_finite_params *p = &s->op.u.finite;
    const uint32_t n = p->n_cols, n_blocks = (n + 1023) / 1024;
    for (uint32_t r = 0; r < s->op.n_rows; r++) {
        const float *x = floats(s, p->x) + (size_t)r * n;
        for (uint32_t block = 0; block < n_blocks; block++) {
            float want = -INFINITY;
            bool is_finite = true;
            for (uint32_t i = block * 1024; i < (block + 1) * 1024 && i < n; i++) {
                is_finite = is_finite && isfinite(x[i]);
                want = x[i] > want ? x[i] : want;
            }
            if (is_finite)
                scene_expect(s, p->out, (size_t)r * n_blocks + block, want, 0.0);
            else
                scene_expect_id(s, p->out, (size_t)r * n_blocks + block, 0x7FC00000);
        }
        for (uint32_t i = 0; i < n && p->copy.buffer.id != 0; i++) {
            int32_t bits;
            memcpy(&bits, &x[i], sizeof bits);
            scene_expect_id(s, p->copy, (size_t)r * n + i, bits);
        }
    }
}

static double inverse_rms(const float *x, uint32_t n, double eps)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return 1.0 / sqrt(sum / n + eps);
}

/* A row less its mean, at `at` of out; close to 0 the mean's rounding counts, elsewhere that of a
 * long row's squares. */
static void ref_centred(scene *s, const float *x, size_t at)
{
    const mf_rmsnorm_params *p = &s->op.u.rmsnorm;
    const float *weight = floats(s, p->weight);
    double mean = 0.0, squares = 0.0, largest = 0.0;
    for (uint32_t i = 0; i < p->n_cols; i++)
        mean += (double)x[i] / p->n_cols;
    for (uint32_t i = 0; i < p->n_cols; i++) {
        squares += (x[i] - mean) * (x[i] - mean) / p->n_cols;
        largest = fmax(largest, fabs((double)x[i]));
    }
    const double norm = 1.0 / sqrt(squares + (double)p->eps);
    for (uint32_t i = 0; i < p->n_cols; i++) {
        const double want = (x[i] - mean) * norm * weight[i];
        scene_expect(s, p->out, at + i, want,
                     1e-6 * largest * norm * fabs((double)weight[i]) + RELATIVE * fabs(want));
    }
}

static void ref_rmsnorm(scene *s)
{
    uint32_t n = s->op.u.rmsnorm.n_cols;
    size_t stride = s->op.u.rmsnorm.stride != 0 ? s->op.u.rmsnorm.stride : n;
    const float *weight = floats(s, s->op.u.rmsnorm.weight);
    for (uint32_t r = 0; r < s->op.n_rows; r++) {
        const float *x = floats(s, s->op.u.rmsnorm.x) + r * stride;
        double norm = inverse_rms(x, n, s->op.u.rmsnorm.eps);
        if (s->op.u.rmsnorm.is_centred) {
            ref_centred(s, x, r * stride);
            continue;
        }
        for (uint32_t i = 0; i < n; i++)
            expect_relative(s, s->op.u.rmsnorm.out, r * stride + i, x[i] * norm * weight[i]);
    }
}

static void ref_rmsnorm_gated(scene *s)
{
    uint32_t n = s->op.u.rmsnorm_gated.head_dim;
    const float *weight = floats(s, s->op.u.rmsnorm_gated.weight);
    for (uint32_t r = 0; r < s->op.n_rows * s->op.u.rmsnorm_gated.n_heads; r++) {
        const float *x = floats(s, s->op.u.rmsnorm_gated.x) + (size_t)r * n;
        const float *z = floats(s, s->op.u.rmsnorm_gated.z) + (size_t)r * n;
        double norm = inverse_rms(x, n, s->op.u.rmsnorm_gated.eps);
        for (uint32_t i = 0; i < n; i++)
            expect_relative(s, s->op.u.rmsnorm_gated.x, (size_t)r * n + i,
                            x[i] * norm * weight[i] * silu(z[i]));
    }
}

/* Of the rows that are expected at x. */
static void ref_norm_after(scene *s, const mf_norm_after *norm, mf_span x, uint32_t n)
{
    const size_t first = x.offset / 4;
    if (norm->weight.buffer.id == 0)
        return;
    const float *weight = floats(s, norm->weight);
    for (uint32_t r = 0; r < s->op.n_rows; r++) {
        const double *row = s->want + first + (size_t)r * n, *slack = s->slack + first + r * n;
        double squares = 0.0, carried = 0.0;
        for (uint32_t i = 0; i < n; i++) {
            squares += row[i] * row[i];
            carried += fabs(row[i]) * slack[i];
        }
        const double mean = squares / n + norm->eps, scale = 1.0 / sqrt(mean);
        for (uint32_t i = 0; i < n; i++)
            scene_expect(s, norm->out, (size_t)r * n + i, row[i] * scale * weight[i],
                         fabs(scale * weight[i]) *
                                 (slack[i] + fabs(row[i]) * (carried / n / mean + RELATIVE)) +
                             TINY);
    }
}

static void ref_add(scene *s)
{
    const mf_add_params *p = &s->op.u.add;
    const float *x = floats(s, p->x), *y = floats(s, p->y);
    const size_t n_y = p->y_is_one_row ? p->n_cols : SIZE_MAX;
    for (size_t i = 0; i < (size_t)s->op.n_rows * p->n_cols; i++)
        scene_expect(s, p->x, i, (float)(x[i] + y[i % n_y]), 0.0);
    ref_norm_after(s, &p->norm, p->x, p->n_cols);
}

static void ref_elementwise(scene *s)
{
    const mf_op *op = &s->op;
    if (op->kind == MF_OP_SIGMOID_MUL) {
        const float *x = floats(s, op->u.sigmoid_mul.x), *gate = floats(s, op->u.sigmoid_mul.gate);
        for (size_t i = 0; i < (size_t)op->n_rows * op->u.sigmoid_mul.n_cols; i++)
            expect_relative(s, op->u.sigmoid_mul.x, i, x[i] * sigmoid(gate[i]));
    } else {
        const float *gate = floats(s, op->u.swiglu.gate), *up = floats(s, op->u.swiglu.up);
        for (size_t i = 0; i < (size_t)op->n_rows * op->u.swiglu.n_cols; i++)
            expect_relative(s, op->u.swiglu.out, i, silu(gate[i]) * up[i]);
    }
}

/* --------------------------------------------------------------------------------- sequences */

static void ref_rope_head(scene *s, size_t at, uint64_t position)
{
    uint32_t n = s->op.u.head_norm_rope.head_dim, half = s->op.u.head_norm_rope.n_rot / 2;
    mf_span span = s->op.u.head_norm_rope.x;
    const float *x = floats(s, span) + at, *weight = floats(s, s->op.u.head_norm_rope.weight);
    const float *cosine = floats(s, s->op.u.head_norm_rope.cos) + position * half;
    const float *sine = floats(s, s->op.u.head_norm_rope.sin) + position * half;
    double norm = inverse_rms(x, n, s->op.u.head_norm_rope.eps);
    for (uint32_t i = 0; i < half; i++) {
        double a = x[i] * norm * weight[i], b = x[i + half] * norm * weight[i + half];
        double slack = RELATIVE * (fabs(a) + fabs(b)) + TINY;
        scene_expect(s, span, at + i, a * cosine[i] - b * sine[i], slack);
        scene_expect(s, span, at + i + half, b * cosine[i] + a * sine[i], slack);
    }
    for (uint32_t i = 2 * half; i < n; i++)
        expect_relative(s, span, at + i, x[i] * norm * weight[i]);
}

static void ref_head_norm_rope(scene *s)
{
    uint32_t n_heads = s->op.u.head_norm_rope.n_heads, dim = s->op.u.head_norm_rope.head_dim;
    for (uint32_t q = 0; q < s->n_sequences; q++) {
        const mf_sequence *seq = &s->sequences[q];
        for (uint32_t r = 0; r < seq->n_rows; r++) {
            for (uint32_t h = 0; h < n_heads; h++)
                ref_rope_head(s, ((size_t)(seq->first_row + r) * n_heads + h) * dim,
                              seq->position + r);
        }
    }
}

/* The input j steps after the state's oldest. */
static double conv_input(const scene *s, const mf_sequence *seq, uint32_t j, uint32_t channel)
{
    uint32_t n = s->op.u.conv1d_silu.n_channels, kept = s->op.u.conv1d_silu.width - 1;
    if (j < kept)
        return seq->state[0].buffer.id == 0 ? 0.0f
                                            : floats(s, seq->state[0])[(size_t)j * n + channel];
    return floats(s, s->op.u.conv1d_silu.x)[(size_t)(seq->first_row + j - kept) * n + channel];
}

static void ref_conv_channel(scene *s, const mf_sequence *seq, uint32_t channel)
{
    uint32_t n = s->op.u.conv1d_silu.n_channels, width = s->op.u.conv1d_silu.width;
    const float *w = floats(s, s->op.u.conv1d_silu.weight) + (size_t)channel * width;
    for (uint32_t r = 0; r < seq->n_rows; r++) {
        double c = 0.0, magnitude = 0.0;
        for (uint32_t j = 0; j < width; j++) {
            double term = w[j] * conv_input(s, seq, r + j, channel);
            c += term;
            magnitude += fabs(term);
        }
        scene_expect(s, s->op.u.conv1d_silu.out, (size_t)(seq->first_row + r) * n + channel,
                     silu(c), 1.1 * sum_slack(width, magnitude) + RELATIVE * fabs(silu(c)));
    }
    for (uint32_t j = 0; j + 1 < width; j++)
        scene_expect(s, seq->state[1], (size_t)j * n + channel,
                     conv_input(s, seq, seq->n_rows + j, channel), 0.0);
}

static void ref_conv1d_silu(scene *s)
{
    for (uint32_t q = 0; q < s->n_sequences; q++) {
        for (uint32_t c = 0; c < s->op.u.conv1d_silu.n_channels; c++)
            ref_conv_channel(s, &s->sequences[q], c);
    }
}

static void l2_normalise(const float *x, uint32_t n, double eps, double scale, double *out)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    for (uint32_t i = 0; i < n; i++)
        out[i] = x[i] / sqrt(sum + eps) * scale;
}

typedef struct delta_head {
    const mf_sequence *seq;
    uint32_t head;
    double *state, *q, *k, *decay;
    double largest; /* of what has gone into the state */
} delta_head;

/* Of a row's head; of one of its keys, or of all (UINT32_MAX). */
static double ref_decay(const scene *s, size_t gate, uint32_t head, uint32_t key)
{
    const mf_gated_delta_params *p = &s->op.u.gated_delta;
    const bool is_keyed = key != UINT32_MAX;
    double a = floats(s, p->a)[is_keyed ? gate * p->key_dim + key : gate];
    a += floats(s, p->dt_bias)[is_keyed ? (size_t)head * p->key_dim + key : head];
    const double softplus = a > 30.0 ? a : log1p(exp(a));
    return exp(-exp(floats(s, p->a_log)[head]) * softplus);
}

static void ref_delta_token(scene *s, delta_head *d, uint32_t row)
{
    uint32_t key_dim = s->op.u.gated_delta.key_dim, value_dim = s->op.u.gated_delta.value_dim;
    uint32_t k_heads = s->op.u.gated_delta.n_k_heads, v_heads = s->op.u.gated_delta.n_v_heads;
    size_t key_floats = (size_t)k_heads * key_dim, gate = (size_t)row * v_heads + d->head;
    const bool is_keyed = s->op.u.gated_delta.has_key_decays;
    const float *qkv =
        floats(s, s->op.u.gated_delta.qkv) + row * (2 * key_floats + (size_t)v_heads * value_dim);
    const float *v = qkv + 2 * key_floats + (size_t)d->head * value_dim, *k = qkv + key_floats;
    if (is_keyed) {
        qkv = floats(s, s->op.u.gated_delta.qkv) + row * key_floats;
        k = floats(s, s->op.u.gated_delta.k) + row * key_floats;
        v = floats(s, s->op.u.gated_delta.v) + gate * value_dim;
    }
    const uint32_t k_head =
        s->op.u.gated_delta.is_tiled ? d->head % k_heads : d->head / (v_heads / k_heads);
    size_t k_at = (size_t)k_head * key_dim;
    double eps = s->op.u.gated_delta.eps;
    l2_normalise(qkv + k_at, key_dim, eps, 1.0 / sqrt(key_dim), d->q);
    l2_normalise(k + k_at, key_dim, eps, 1.0, d->k);
    for (uint32_t i = 0; i < key_dim; i++)
        d->decay[i] = ref_decay(s, gate, d->head, is_keyed ? i : UINT32_MAX);
    double beta = sigmoid(floats(s, s->op.u.gated_delta.b)[gate]);
    for (uint32_t j = 0; j < value_dim; j++) {
        double *column = d->state + j, held = 0.0, out = 0.0;
        d->largest = fmax(d->largest, fabs(v[j]));
        for (uint32_t i = 0; i < key_dim; i++) {
            column[i * value_dim] *= d->decay[i];
            held += column[i * value_dim] * d->k[i];
        }
        double change = (v[j] - held) * beta;
        for (uint32_t i = 0; i < key_dim; i++) {
            column[i * value_dim] += d->k[i] * change;
            out += column[i * value_dim] * d->q[i];
        }
        scene_expect(s, s->op.u.gated_delta.out, ((size_t)row * v_heads + d->head) * value_dim + j,
                     out, 1e-5 * d->largest);
    }
}

static void ref_gated_delta(scene *s)
{
    uint32_t key_dim = s->op.u.gated_delta.key_dim, v_heads = s->op.u.gated_delta.n_v_heads;
    size_t n = (size_t)key_dim * s->op.u.gated_delta.value_dim;
    delta_head d = {.state = new_doubles(n),
                    .q = new_doubles(key_dim),
                    .k = new_doubles(key_dim),
                    .decay = new_doubles(key_dim)};
    for (uint32_t i = 0; i < s->n_sequences * v_heads; i++) {
        d.seq = &s->sequences[i / v_heads];
        d.head = i % v_heads;
        d.largest = 0.0;
        const float *before = floats(s, d.seq->state[0]) + d.head * n;
        for (size_t j = 0; j < n; j++) {
            d.state[j] = d.seq->state[0].buffer.id == 0 ? 0.0f : before[j];
            d.largest = fmax(d.largest, fabs(d.state[j]));
        }
        for (uint32_t r = 0; r < d.seq->n_rows; r++)
            ref_delta_token(s, &d, d.seq->first_row + r);
        for (size_t j = 0; j < n; j++)
            scene_expect(s, d.seq->state[1], d.head * n + j, d.state[j], 1e-5 * d.largest);
    }
    free(d.state);
    free(d.q);
    free(d.k);
    free(d.decay);
}

/* ----------------------------------------------------------------------------------- experts */

static const mf_expert_steps *steps_of(const scene *s)
{
    return s->op.kind == MF_OP_EXPERTS ? &s->op.u.experts.steps : &s->op.u.routed.steps;
}

static double bias_of(const scene *s, mf_span bias, uint32_t expert, uint32_t n, uint32_t row)
{
    return bias.buffer.id != 0 ? floats(s, bias)[(size_t)expert * n + row] : 0.0;
}

/* One element of a product with its bias, and its error. */
static double ref_expert_product(const scene *s, const mf_weight *w, uint32_t row, const float *x,
                                 double *slack)
{
    const uint32_t n = w->shape.n_cols;
    double *values = new_doubles(n), magnitude;
    reference_weight_row(s, w, row, values, NULL);
    const double sum = dot(values, x, n, &magnitude);
    *slack = sum_slack(n, magnitude);
    free(values);
    return sum;
}

/* What comes of the gate before it is multiplied by up; its slope is never above 1.1. */
static double ref_gated(const mf_expert_steps *steps, double gate)
{
    if (!steps->is_clamped)
        return silu(gate);
    const double g = fmin(gate, (double)steps->limit);
    return g / (1.0 + exp(-(double)steps->alpha * g));
}

static double ref_up(const mf_expert_steps *steps, double up)
{
    const double limit = steps->limit;
    return steps->is_clamped ? fmax(-limit, fmin(up, limit)) + 1.0 : up;
}

/* silu(gate x) * (up x), or what the steps make of it, with its error. */
static void ref_expert_hidden(const scene *s, const mf_expert_item *item, const float *x,
                              double *hidden, double *slack)
{
    const mf_expert_steps *steps = steps_of(s);
    const uint32_t n_rows = item->gate.shape.n_rows, step = steps->is_paired ? 2 : 1;
    const mf_weight *w = steps->is_paired ? &item->gate : &item->up;
    const mf_span up_bias = steps->is_paired ? steps->gate_bias : steps->up_bias;
    for (uint32_t i = 0; i < item->down.shape.n_cols; i++) {
        const uint32_t up_row = steps->is_paired ? 2 * i + 1 : i;
        double gate_slack, up_slack;
        double gate = ref_expert_product(s, &item->gate, step * i, x, &gate_slack);
        double up = ref_expert_product(s, w, up_row, x, &up_slack);
        gate += bias_of(s, steps->gate_bias, item->expert, n_rows, step * i);
        up += bias_of(s, up_bias, item->expert, w->shape.n_rows, up_row);
        gate_slack += RELATIVE * fabs(gate);
        up_slack += RELATIVE * fabs(up);
        const double gated = ref_gated(steps, gate), other = ref_up(steps, up);
        hidden[i] = gated * other;
        slack[i] =
            1.1 * gate_slack * fabs(other) + fabs(gated) * up_slack + RELATIVE * fabs(hidden[i]);
    }
}

/* Row `row` of out, of the x given. */
static void ref_expert_row(scene *s, const mf_expert_item *item, const float *x, mf_span out,
                           size_t row)
{
    uint32_t n = item->down.shape.n_rows, n_hidden = item->down.shape.n_cols;
    double *hidden = new_doubles(n_hidden), *slack = new_doubles(n_hidden);
    double *weights = new_doubles(n_hidden);
    ref_expert_hidden(s, item, x, hidden, slack);
    for (uint32_t o = 0; o < n; o++) {
        double sum = 0.0, magnitude = 0.0, carried = 0.0;
        reference_weight_row(s, &item->down, o, weights, NULL);
        for (uint32_t i = 0; i < n_hidden; i++) {
            sum += weights[i] * hidden[i];
            magnitude += fabs(weights[i] * hidden[i]);
            carried += fabs(weights[i]) * slack[i];
        }
        sum += bias_of(s, steps_of(s)->down_bias, item->expert, n, o);
        scene_expect(s, out, row * n + o, sum,
                     carried + sum_slack(n_hidden, magnitude) + RELATIVE * fabs(sum));
    }
    free(hidden);
    free(slack);
    free(weights);
}

static void ref_experts(scene *s)
{
    const mf_experts_params *p = &s->op.u.experts;
    for (uint32_t j = 0; j < p->n_items; j++) {
        const mf_expert_item *item = &s->items[j];
        for (uint32_t r = 0; r < item->n_rows; r++)
            ref_expert_row(s, item,
                           floats(s, p->x) + (size_t)item->x_rows[r] * item->gate.shape.n_cols,
                           p->out, item->out_row + r);
    }
}

/* A matrix of expert e. */
static mf_weight ref_routed_weight(const scene *s, const mf_weight *w, uint32_t e)
{
    const mf_routed_experts_params *p = &s->op.u.routed;
    uint32_t slot;
    memcpy(&slot, (unsigned char *)scene_at(s, p->slot) + (size_t)4 * e, sizeof slot);
    mf_weight of = *w;
    for (uint32_t i = 0; i < mf_weight_format_of(&w->shape)->n_arrays; i++) {
        const bool is_apart = w->arrays[i].offset < p->slots.offset ||
                              w->arrays[i].offset >= p->slots.offset + p->n_slots * p->slot_bytes;
        of.arrays[i].offset +=
            is_apart ? e * mf_weight_array_bytes(&w->shape, i) : slot * p->slot_bytes;
    }
    return of;
}

static void ref_routed(scene *s)
{
    const mf_routed_experts_params *p = &s->op.u.routed;
    const int32_t *ids = scene_at(s, p->ids);
    for (uint32_t i = 0; i < s->op.n_rows * p->k; i++) {
        const uint32_t e = (uint32_t)ids[i];
        const mf_expert_item item = {.gate = ref_routed_weight(s, &p->gate, e),
                                     .up = ref_routed_weight(s, &p->up, e),
                                     .down = ref_routed_weight(s, &p->down, e),
                                     .expert = e};
        ref_expert_row(s, &item, floats(s, p->x) + (size_t)(i / p->k) * p->gate.shape.n_cols,
                       p->out, i);
    }
}

static void ref_combine(scene *s)
{
    uint32_t n = s->op.u.combine.n_cols, k = s->op.u.combine.k;
    const float *experts = floats(s, s->op.u.combine.experts);
    for (uint32_t r = 0; r < s->op.n_rows; r++) {
        bool has_shared = s->op.u.combine.shared.buffer.id != 0;
        bool has_gate = s->op.u.combine.shared_gate.buffer.id != 0;
        double gate = has_gate ? sigmoid(floats(s, s->op.u.combine.shared_gate)[r]) : 1.0;
        for (uint32_t i = 0; i < n; i++) {
            size_t at = (size_t)r * n + i;
            double x = floats(s, s->op.u.combine.x)[at];
            double sum = has_shared ? gate * floats(s, s->op.u.combine.shared)[at] : 0.0;
            double size = fabs(x) + fabs(sum);
            for (uint32_t j = 0; j < k; j++) {
                double term = floats(s, s->op.u.combine.weights)[(size_t)r * k + j];
                const size_t pick = (size_t)r * k + j;
                const uint32_t *place = s->op.u.combine.place;
                term *= experts[(place != NULL ? place[pick] : pick) * n + i];
                sum += term;
                size += fabs(term);
            }
            scene_expect(s, s->op.u.combine.x, at, x + sum, sum_slack(k + 2, size));
        }
    }
    ref_norm_after(s, &s->op.u.combine.norm, s->op.u.combine.x, n);
}

void scene_reference(scene *s)
{
    static void (*const references[])(scene *) = {
        [MF_OP_EMBED] = ref_embed,
        [MF_OP_COPY_ROWS] = ref_copy_rows,
        [MF_OP_FINITE] = ref_finite,
        [MF_OP_RMSNORM] = ref_rmsnorm,
        [MF_OP_RMSNORM_GATED] = ref_rmsnorm_gated,
        [MF_OP_MATMUL] = ref_matmul,
        [MF_OP_HEAD_NORM_ROPE] = ref_head_norm_rope,
        [MF_OP_ATTENTION] = reference_attention,
        [MF_OP_SIGMOID_MUL] = ref_elementwise,
        [MF_OP_CONV1D_SILU] = ref_conv1d_silu,
        [MF_OP_GATED_DELTA] = ref_gated_delta,
        [MF_OP_ADD] = ref_add,
        [MF_OP_SWIGLU] = ref_elementwise,
        [MF_OP_ROUTE] = reference_route,
        [MF_OP_EXPERTS] = ref_experts,
        [MF_OP_ROUTED_EXPERTS] = ref_routed,
        [MF_OP_COMBINE] = ref_combine,
        [MF_OP_ROPE] = reference_rope,
        [MF_OP_HEAD_MATMUL] = reference_head_matmul,
        [MF_OP_LATENT_ATTENTION] = reference_latent_attention,
        [MF_OP_COMPRESS] = reference_compress,
        [MF_OP_ENTRY_ATTENTION] = reference_entry_attention,
        [MF_OP_STREAMS_IN] = reference_streams_in,
        [MF_OP_STREAMS_OUT] = reference_streams_out,
    };
    references[s->op.kind](s);
}
