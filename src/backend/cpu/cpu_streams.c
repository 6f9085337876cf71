/* SPDX-License-Identifier: MIT */
/* Hyper-connections: several streams are mixed into a block's input, and its result into them. */
#include "backend/cpu/cpu_internal.h"

#include <math.h>

#define LANES 8u
/* Columns that are mixed at a time. */
#define COLUMNS 64u

/* 1 / sqrt(mean of the squares + eps) */
static float inverse_root(const float *x, size_t n, float eps)
{
    double sums[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t j = 0; j < LANES; j++)
            sums[j] += (double)x[i + j] * (double)x[i + j];
    for (; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (uint32_t j = 0; j < LANES; j++)
        sum += sums[j];
    return (float)(1.0 / sqrt(sum / (double)n + (double)eps));
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* n lines of n, a line's values `step` apart, each by its sum. */
static void divide_lines(float *comb, uint32_t n, uint32_t line, uint32_t step, float eps)
{
    for (uint32_t i = 0; i < n; i++) {
        float *of = comb + i * line, sum = 0;
        for (uint32_t j = 0; j < n; j++)
            sum += of[j * step];
        for (uint32_t j = 0; j < n; j++)
            of[j * step] /= sum + eps;
    }
}

/* Of logits [n, n] of rows; in place. */
static void make_comb(const mf_streams_in_params *p, float *comb)
{
    const uint32_t n = p->n_streams;
    for (uint32_t i = 0; i < n; i++) {
        float *row = comb + (size_t)i * n, largest = row[0], sum = 0;
        for (uint32_t j = 1; j < n; j++)
            largest = row[j] > largest ? row[j] : largest;
        for (uint32_t j = 0; j < n; j++) {
            row[j] = expf(row[j] - largest);
            sum += row[j];
        }
        for (uint32_t j = 0; j < n; j++)
            row[j] = row[j] / sum + p->eps;
    }
    divide_lines(comb, n, 1, n, p->eps);
    for (uint32_t i = 1; i < p->n_iterations; i++) {
        divide_lines(comb, n, n, 1, p->eps);
        divide_lines(comb, n, 1, n, p->eps);
    }
}

/* post and comb of m, which is [n + n * n] from there on. */
static void make_gates(const mf_cpu_backend *be, const mf_streams_in_params *p, const float *m,
                       float root, float *gates)
{
    const uint32_t n = p->n_streams;
    const float *base = mf_cpu_floats(be, p->base) + n, *scale = mf_cpu_floats(be, p->scale);
    for (uint32_t i = 0; i < n; i++)
        gates[i] = 2.0f * sigmoid(m[i] * root * scale[1] + base[i]);
    for (uint32_t i = n; i < n + n * n; i++)
        gates[i] = m[i] * root * scale[2] + base[i];
    make_comb(p, gates + n);
}

static void in_row(mf_cpu_backend *be, const mf_op *op, uint32_t row)
{
    const mf_streams_in_params *p = &op->u.streams_in;
    const uint32_t n = p->n_streams, n_cols = p->n_cols, n_mixes = p->is_last ? n : (2 + n) * n;
    const float *streams = mf_cpu_floats(be, p->streams) + (size_t)row * n * n_cols;
    const float *m = mf_cpu_floats(be, p->mixes) + (size_t)row * n_mixes;
    const float *base = mf_cpu_floats(be, p->base), scale = *mf_cpu_floats(be, p->scale);
    float *out = mf_cpu_floats(be, p->out) + (size_t)row * n_cols;
    const float root = inverse_root(streams, (size_t)n * n_cols, p->norm_eps);
    for (uint32_t i = 0; i < n; i++) {
        const float pre = sigmoid(m[i] * root * scale + base[i]) + p->eps;
        for (uint32_t c = 0; c < n_cols; c++)
            out[c] = (i == 0 ? 0.0f : out[c]) + pre * streams[(size_t)i * n_cols + c];
    }
    if (!p->is_last)
        make_gates(be, p, m + n, root, mf_cpu_floats(be, p->gates) + (size_t)row * (n + n * n));
    if (p->norm.weight.buffer.id != 0)
        be->kernels->rmsnorm(out, mf_cpu_floats(be, p->norm.weight), p->norm.eps, n_cols,
                             mf_cpu_floats(be, p->norm.out) + (size_t)row * n_cols);
}

void mf_cpu_streams_in(mf_cpu_backend *be, const mf_op *op)
{
    const mf_streams_in_params *p = &op->u.streams_in;
    mf_cpu_for_rows(be, op, 2 * p->n_streams * p->n_cols, in_row);
}

/* Columns c .. c + n_now - 1 of all streams of a row. */
static void mix_columns(const mf_streams_out_params *p, const float *gates, float *streams,
                        const float *y, float *mean, uint32_t n_now)
{
    const uint32_t n = p->n_streams;
    float mixed[MF_MAX_STREAMS][COLUMNS];
    for (uint32_t j = 0; j < n; j++) {
        for (uint32_t c = 0; c < n_now; c++)
            mixed[j][c] = gates[j] * y[c];
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t c = 0; c < n_now; c++)
                mixed[j][c] += gates[n + i * n + j] * streams[(size_t)i * p->n_cols + c];
    }
    for (uint32_t c = 0; c < n_now; c++) {
        float sum = 0;
        for (uint32_t j = 0; j < n; j++) {
            streams[(size_t)j * p->n_cols + c] = mixed[j][c];
            sum += mixed[j][c];
        }
        mean[c] = sum / (float)n;
    }
}

static void out_row(mf_cpu_backend *be, const mf_op *op, uint32_t row)
{
    const mf_streams_out_params *p = &op->u.streams_out;
    const uint32_t n = p->n_streams;
    const float *gates = mf_cpu_floats(be, p->gates) + (size_t)row * (n + n * n);
    const float *y = mf_cpu_floats(be, p->y) + (size_t)row * p->n_cols;
    float *streams = mf_cpu_floats(be, p->streams) + (size_t)row * n * p->n_cols;
    float *mean = mf_cpu_floats(be, p->mean) + (size_t)row * p->n_cols;
    for (uint32_t c = 0; c < p->n_cols; c += COLUMNS) {
        const uint32_t left = p->n_cols - c;
        mix_columns(p, gates, streams + c, y + c, mean + c, left < COLUMNS ? left : COLUMNS);
    }
}

void mf_cpu_streams_out(mf_cpu_backend *be, const mf_op *op)
{
    const mf_streams_out_params *p = &op->u.streams_out;
    mf_cpu_for_rows(be, op, 2 * p->n_streams * p->n_cols, out_row);
}
