#version 460
// SPDX-License-Identifier: MIT
// The streams of a residual mixed into a block's input, and the gates by which its result goes back
// (mf_streams_in_params has the mathematics); a workgroup has one row. An invocation keeps to its
// columns, so that it can read what it has written when the result is to be normed.
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "reduce.glsl"

layout(push_constant, scalar) uniform Push {
    Floats streams, mixes, base, scale, result;
    uint64_t gates;               // Floats; 0: there is only pre
    uint64_t weight, normed_at;   // Floats, of a norm of the result; 0: none
    uint n_streams, n_cols, n_iterations;
    float eps, norm_eps, after_eps;
} p;

const uint MOST = 8; // MF_MAX_STREAMS

shared float pre[MOST];
shared float comb[MOST * MOST], lines[MOST];

// The n sums of lines whose values are `step` apart and which begin `line` apart; each value by its
// line's.
void divide_lines(uint n, uint line, uint step, uint t)
{
    barrier();
    if (t < n) {
        precise float sum = 0.0;
        for (uint j = 0; j < n; j++)
            sum += comb[t * line + j * step];
        lines[t] = sum + p.eps;
    }
    barrier();
    if (t < n * n)
        comb[t] /= lines[line == 1 ? t % n : t / n];
}

// Of the logits in comb.
void make_comb(uint n, uint t)
{
    barrier();
    if (t < n) {
        float largest = comb[t * n];
        precise float sum = 0.0;
        for (uint j = 1; j < n; j++)
            largest = max(largest, comb[t * n + j]);
        for (uint j = 0; j < n; j++) {
            comb[t * n + j] = exp(comb[t * n + j] - largest);
            sum += comb[t * n + j];
        }
        for (uint j = 0; j < n; j++)
            comb[t * n + j] = comb[t * n + j] / sum + p.eps;
    }
    divide_lines(n, 1, n, t);
    for (uint i = 1; i < p.n_iterations; i++) {
        divide_lines(n, n, 1, t);
        divide_lines(n, 1, n, t);
    }
}

void make_gates(uint row, Floats mixes, float root, uint t)
{
    const uint n = p.n_streams;
    Floats gates = Floats(p.gates + uint64_t(row) * (n + n * n) * 4);
    if (t < n)
        gates.v[t] = 2.0 * sigmoid(mixes.v[n + t] * root * p.scale.v[1] + p.base.v[n + t]);
    if (t < n * n)
        comb[t] = mixes.v[2 * n + t] * root * p.scale.v[2] + p.base.v[2 * n + t];
    make_comb(n, t);
    if (t < n * n)
        gates.v[n + t] = comb[t];
}

void norm_result(Floats result, uint row, uint t)
{
    Floats weight = Floats(p.weight), to = Floats(p.normed_at + uint64_t(row) * p.n_cols * 4);
    precise float sum = 0.0;
    for (uint c = t; c < p.n_cols; c += gl_WorkGroupSize.x)
        sum += result.v[c] * result.v[c];
    precise float mean = workgroup_sum(sum) / float(p.n_cols) + p.after_eps;
    const float factor = inversesqrt(mean);
    for (uint c = t; c < p.n_cols; c += gl_WorkGroupSize.x)
        to.v[c] = result.v[c] * factor * weight.v[c];
}

void main()
{
    const uint row = gl_WorkGroupID.y, t = gl_LocalInvocationID.x, n = p.n_streams;
    const uint n_all = n * p.n_cols, n_mixes = p.gates != 0 ? (2 + n) * n : n;
    Floats streams = Floats(uint64_t(p.streams) + uint64_t(row) * n_all * 4);
    Floats mixes = Floats(uint64_t(p.mixes) + uint64_t(row) * n_mixes * 4);
    Floats result = Floats(uint64_t(p.result) + uint64_t(row) * p.n_cols * 4);
    precise float sum = 0.0;
    for (uint i = t; i < n_all; i += gl_WorkGroupSize.x)
        sum += streams.v[i] * streams.v[i];
    precise float mean = workgroup_sum(sum) / float(n_all) + p.norm_eps;
    const float root = inversesqrt(mean);
    if (t < n)
        pre[t] = sigmoid(mixes.v[t] * root * p.scale.v[0] + p.base.v[t]) + p.eps;
    barrier();
    for (uint c = t; c < p.n_cols; c += gl_WorkGroupSize.x) {
        precise float mixed = 0.0;
        for (uint i = 0; i < n; i++)
            mixed += pre[i] * streams.v[i * p.n_cols + c];
        result.v[c] = mixed;
    }
    if (p.gates != 0)
        make_gates(row, mixes, root, t);
    if (p.weight != 0)
        norm_result(result, row, t);
}
