/* SPDX-License-Identifier: MIT */
/* The linear-attention operations: causal convolution and the gated delta rule, both with a state
 * per sequence. */
#include "backend/cpu/cpu_internal.h"

#include <math.h>
#include <string.h>

/* Channels a task takes: a few cache lines, a multiple of every vector width. */
#define BLOCK_CHANNELS 256u

/* Keys of a head whose task makes its own q, k and gates, at most. */
#define OWN_KEYS 256u

typedef struct delta_job {
    mf_cpu_backend *be;
    const mf_op *op;
    uint32_t per_sequence; /* tasks */
} delta_job;

static float *state_after(const mf_cpu_backend *be, const mf_sequence *seq, uint64_t offset)
{
    return mf_cpu_floats(be, mf_span_at(seq->state[1], offset));
}

/* n floats of the sequence's state before the run, from `offset` bytes on: where they lie, or zeros
 * in the place of the state after it. */
static const float *state_before(const mf_cpu_backend *be, const mf_sequence *seq, uint64_t offset,
                                 size_t n)
{
    if (seq->state[0].buffer.id != 0)
        return mf_cpu_floats(be, mf_span_at(seq->state[0], offset));
    return memset(state_after(be, seq, offset), 0, n * sizeof(float));
}

static void run_conv(void *ctx, uint32_t task, uint32_t thread)
{
    (void)thread;
    const delta_job *job = ctx;
    const mf_cpu_backend *be = job->be;
    const mf_op *op = job->op;
    uint32_t n_channels = op->u.conv1d_silu.n_channels, width = op->u.conv1d_silu.width;
    const mf_sequence *seq = &be->sequences[task / job->per_sequence];
    uint32_t c0 = task % job->per_sequence * BLOCK_CHANNELS;
    uint32_t n = n_channels - c0 < BLOCK_CHANNELS ? n_channels - c0 : BLOCK_CHANNELS;
    const float *w = mf_cpu_floats(be, op->u.conv1d_silu.weight) + (size_t)c0 * width;
    const uint64_t offset = op->u.conv1d_silu.state_offset + c0 * sizeof(float);
    float *state = state_after(be, seq, offset);
    for (uint32_t j = 0; j + 1 < width; j++) {
        const uint64_t skip = (uint64_t)j * n_channels * sizeof(float);
        const float *before = state_before(be, seq, offset + skip, n);
        memmove(state + (size_t)j * n_channels, before, n * sizeof *state);
    }
    for (uint32_t r = 0; r < seq->n_rows; r++) {
        size_t at = (size_t)(seq->first_row + r) * n_channels + c0;
        be->kernels->conv1d_silu(mf_cpu_floats(be, op->u.conv1d_silu.x) + at, w, state, n_channels,
                                 n, width, mf_cpu_floats(be, op->u.conv1d_silu.out) + at);
    }
}

void mf_cpu_conv1d_silu(mf_cpu_backend *be, const mf_op *op)
{
    delta_job job = {be, op, (op->u.conv1d_silu.n_channels + BLOCK_CHANNELS - 1) / BLOCK_CHANNELS};
    mf_thread_pool_run(be->pool, job.per_sequence * be->n_sequences, run_conv, &job);
}

/* log(1 + exp(x)) without overflow. */
static float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

static float decay_of(float a_log, float a)
{
    return expf(-expf(a_log) * softplus(a));
}

static float beta_of(float b)
{
    return 1.0f / (1.0f + expf(-b));
}

/* A head's q or k, normalised, to out, which may be it. */
static void normalise(const mf_cpu_backend *be, const mf_gated_delta_params *p, bool is_query,
                      const float *x, float *out)
{
    const float scale = is_query ? 1.0f / sqrtf((float)p->key_dim) : 1.0f;
    be->kernels->l2norm(x, p->eps, scale, p->key_dim, out);
}

/* Per row: q and k normalised in place, the gates into the gather buffer as [row][decay v_heads |
 * beta v_heads]. */
static void run_gates(void *ctx, uint32_t row, uint32_t thread)
{
    (void)thread;
    const delta_job *job = ctx;
    const mf_cpu_backend *be = job->be;
    const mf_gated_delta_params *p = &job->op->u.gated_delta;
    const uint32_t k_heads = p->n_k_heads, v_heads = p->n_v_heads, key_dim = p->key_dim;
    const size_t row_floats = (size_t)2 * k_heads * key_dim + (size_t)v_heads * p->value_dim;
    float *q = mf_cpu_floats(be, p->qkv) + row * row_floats;
    float *k = q + (size_t)k_heads * key_dim;
    for (uint32_t h = 0; h < k_heads; h++) {
        normalise(be, p, true, q + h * key_dim, q + h * key_dim);
        normalise(be, p, false, k + h * key_dim, k + h * key_dim);
    }
    const float *a = mf_cpu_floats(be, p->a) + (size_t)row * v_heads;
    const float *b = mf_cpu_floats(be, p->b) + (size_t)row * v_heads;
    const float *a_log = mf_cpu_floats(be, p->a_log), *dt_bias = mf_cpu_floats(be, p->dt_bias);
    float *decay = be->gather + (size_t)row * 2 * v_heads, *beta = decay + v_heads;
    for (uint32_t h = 0; h < v_heads; h++) {
        decay[h] = decay_of(a_log[h], a[h] + dt_bias[h]);
        beta[h] = beta_of(b[h]);
    }
}

/* What a head's task makes for itself of its only row, with the bits of run_gates. */
typedef struct own_inputs {
    _Alignas(64) float q[OWN_KEYS], k[OWN_KEYS];
    float decay, beta;
} own_inputs;

static void make_own(const mf_cpu_backend *be, const mf_gated_delta_params *p, uint32_t row,
                     uint32_t h, mf_delta_args *args, own_inputs *own)
{
    const size_t at = (size_t)row * p->n_v_heads + h;
    normalise(be, p, true, args->q, own->q);
    normalise(be, p, false, args->k, own->k);
    own->decay = decay_of(mf_cpu_floats(be, p->a_log)[h],
                          mf_cpu_floats(be, p->a)[at] + mf_cpu_floats(be, p->dt_bias)[h]);
    own->beta = beta_of(mf_cpu_floats(be, p->b)[at]);
    args->q = own->q;
    args->k = own->k;
    args->decay = &own->decay;
    args->beta = &own->beta;
}

/* Decoding: the gates of few rows are not worth a run of tasks of their own. */
static bool makes_own(const delta_job *job)
{
    const mf_op *op = job->op;
    return op->n_rows == job->be->n_sequences && op->u.gated_delta.key_dim <= OWN_KEYS;
}

static void run_delta(void *ctx, uint32_t task, uint32_t thread)
{
    (void)thread;
    const delta_job *job = ctx;
    const mf_cpu_backend *be = job->be;
    const mf_op *op = job->op;
    uint32_t k_heads = op->u.gated_delta.n_k_heads, v_heads = op->u.gated_delta.n_v_heads;
    uint32_t key_dim = op->u.gated_delta.key_dim, value_dim = op->u.gated_delta.value_dim;
    const mf_sequence *seq = &be->sequences[task / v_heads];
    uint32_t h = task % v_heads;
    uint32_t kh = op->u.gated_delta.is_tiled ? h % k_heads : h / (v_heads / k_heads);
    size_t key_floats = (size_t)k_heads * key_dim,
           row_floats = 2 * key_floats + (size_t)v_heads * value_dim;
    const float *qkv = mf_cpu_floats(be, op->u.gated_delta.qkv) + seq->first_row * row_floats;
    const float *gates = be->gather + (size_t)seq->first_row * 2 * v_heads;
    size_t out_floats = (size_t)v_heads * value_dim, head_floats = (size_t)key_dim * value_dim;
    const uint64_t offset = op->u.gated_delta.state_offset + h * head_floats * sizeof(float);
    mf_delta_args args = {
        .from = state_before(be, seq, offset, head_floats),
        .state = state_after(be, seq, offset),
        .q = qkv + kh * key_dim,
        .k = qkv + key_floats + kh * key_dim,
        .v = qkv + 2 * key_floats + h * value_dim,
        .decay = gates + h,
        .beta = gates + v_heads + h,
        .out =
            mf_cpu_floats(be, op->u.gated_delta.out) + seq->first_row * out_floats + h * value_dim,
        .qk_stride = row_floats,
        .v_stride = row_floats,
        .gate_stride = (size_t)2 * v_heads,
        .out_stride = out_floats,
        .key_dim = key_dim,
        .value_dim = value_dim,
        .n_tokens = seq->n_rows,
    };
    own_inputs own;
    if (makes_own(job))
        make_own(be, &op->u.gated_delta, seq->first_row, h, &args, &own);
    be->kernels->delta_rule(&args);
}

/* Per row, in place: q and k normalised, the decays of each key and beta. */
static void run_keyed_gates(void *ctx, uint32_t row, uint32_t thread)
{
    (void)thread;
    const delta_job *job = ctx;
    const mf_cpu_backend *be = job->be;
    const mf_gated_delta_params *p = &job->op->u.gated_delta;
    const uint32_t n = p->key_dim;
    const size_t at = (size_t)row * p->n_v_heads;
    const float *a_log = mf_cpu_floats(be, p->a_log), *dt_bias = mf_cpu_floats(be, p->dt_bias);
    for (uint32_t h = 0; h < p->n_v_heads; h++) {
        float *q = mf_cpu_floats(be, p->qkv) + (at + h) * n;
        float *k = mf_cpu_floats(be, p->k) + (at + h) * n;
        float *a = mf_cpu_floats(be, p->a) + (at + h) * n, *b = mf_cpu_floats(be, p->b) + at + h;
        be->kernels->l2norm(q, p->eps, 1.0f / sqrtf((float)n), n, q);
        be->kernels->l2norm(k, p->eps, 1.0f, n, k);
        for (uint32_t i = 0; i < n; i++)
            a[i] = decay_of(a_log[h], a[i] + dt_bias[(size_t)h * n + i]);
        *b = beta_of(*b);
    }
}

/* A head's rows of one token; `out` has the foretold values first. */
typedef struct keyed_token {
    const float *q, *k, *v, *decay;
    float beta;
    float *out;
} keyed_token;

/* Columns are summed row by row, so that they go in parallel. */
static void keyed_step(const keyed_token *t, uint32_t key_dim, uint32_t value_dim,
                       const float *from, float *state)
{
    memset(t->out, 0, value_dim * sizeof *t->out);
    for (uint32_t i = 0; i < key_dim; i++)
        for (uint32_t j = 0; j < value_dim; j++) {
            const size_t at = (size_t)i * value_dim + j;
            state[at] = from[at] * t->decay[i];
            t->out[j] += state[at] * t->k[i];
        }
    float delta[MF_CPU_KEYED_VALUES];
    for (uint32_t j = 0; j < value_dim; j++) {
        delta[j] = (t->v[j] - t->out[j]) * t->beta;
        t->out[j] = 0;
    }
    for (uint32_t i = 0; i < key_dim; i++)
        for (uint32_t j = 0; j < value_dim; j++) {
            const size_t at = (size_t)i * value_dim + j;
            state[at] += t->k[i] * delta[j];
            t->out[j] += state[at] * t->q[i];
        }
}

static void run_keyed_delta(void *ctx, uint32_t task, uint32_t thread)
{
    (void)thread;
    const delta_job *job = ctx;
    const mf_cpu_backend *be = job->be;
    const mf_gated_delta_params *p = &job->op->u.gated_delta;
    const uint32_t n = p->n_v_heads, h = task % n;
    const mf_sequence *seq = &be->sequences[task / n];
    const size_t head_floats = (size_t)p->key_dim * p->value_dim;
    const uint64_t offset = p->state_offset + h * head_floats * sizeof(float);
    const float *from = state_before(be, seq, offset, head_floats);
    float *state = state_after(be, seq, offset);
    for (uint32_t r = 0; r < seq->n_rows; r++) {
        const size_t at = (size_t)(seq->first_row + r) * n + h;
        const keyed_token t = {.q = mf_cpu_floats(be, p->qkv) + at * p->key_dim,
                               .k = mf_cpu_floats(be, p->k) + at * p->key_dim,
                               .v = mf_cpu_floats(be, p->v) + at * p->value_dim,
                               .decay = mf_cpu_floats(be, p->a) + at * p->key_dim,
                               .beta = mf_cpu_floats(be, p->b)[at],
                               .out = mf_cpu_floats(be, p->out) + at * p->value_dim};
        keyed_step(&t, p->key_dim, p->value_dim, from, state);
        from = state;
    }
}

void mf_cpu_gated_delta(mf_cpu_backend *be, const mf_op *op)
{
    delta_job job = {be, op, 0};
    if (op->u.gated_delta.has_key_decays) {
        mf_thread_pool_run(be->pool, op->n_rows, run_keyed_gates, &job);
        mf_thread_pool_run(be->pool, op->u.gated_delta.n_v_heads * be->n_sequences, run_keyed_delta,
                           &job);
        return;
    }
    if (!makes_own(&job))
        mf_thread_pool_run(be->pool, op->n_rows, run_gates, &job);
    mf_thread_pool_run(be->pool, op->u.gated_delta.n_v_heads * be->n_sequences, run_delta, &job);
}
