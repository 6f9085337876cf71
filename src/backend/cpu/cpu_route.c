/* SPDX-License-Identifier: MIT */
/* The router's choice: scores, groups, and the experts of each row. */
#include "backend/cpu/cpu_internal.h"

#include <math.h>
#include <string.h>

/* A row takes microseconds: few are not worth a dispatch. */
#define ROWS_PER_TASK 16u

/* The n_best largest in falling order; among equals the lower index comes first. NaN never wins
 * over a number. */
static void best_of(const float *values, uint32_t n, uint32_t n_best, int32_t *ids, float *best)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < n; i++) {
        float value = values[i] == values[i] ? values[i] : -INFINITY;
        if (held == n_best && value <= best[n_best - 1])
            continue;
        uint32_t at = held < n_best ? held++ : n_best - 1;
        for (; at > 0 && value > best[at - 1]; at--) {
            best[at] = best[at - 1];
            ids[at] = ids[at - 1];
        }
        best[at] = value;
        ids[at] = (int32_t)i;
    }
}

static float group_rank(const float *choice, uint32_t n, mf_group_rule rule)
{
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (choice[i] > first) {
            second = first;
            first = choice[i];
        } else if (choice[i] > second) {
            second = choice[i];
        }
    }
    return rule == MF_GROUP_MAX || n == 1 ? first : first + second;
}

/* Takes the groups outside of the best out of the choice. */
static void limit_groups(const mf_op *op, float *score, float *choice)
{
    uint32_t n_groups = op->u.route.n_groups, k_groups = op->u.route.k_groups;
    uint32_t n = op->u.route.n_experts / n_groups;
    mf_group_rule rule = op->u.route.group_rule;
    float rank[MF_MAX_GROUPS] = {0}, best[MF_MAX_GROUPS];
    int32_t ids[MF_MAX_GROUPS];
    bool is_kept[MF_MAX_GROUPS] = {false};
    for (uint32_t g = 0; g < n_groups; g++)
        rank[g] = group_rank(choice + (size_t)g * n, n, rule);
    best_of(rank, n_groups, k_groups, ids, best);
    for (uint32_t j = 0; j < k_groups; j++)
        is_kept[ids[j]] = true;
    for (uint32_t g = 0; g < n_groups; g++) {
        for (uint32_t i = g * n; !is_kept[g] && i < (g + 1) * n; i++) {
            choice[i] = rule == MF_GROUP_MAX ? 0.0f : -INFINITY;
            if (rule == MF_GROUP_MAX)
                score[i] = 0.0f;
        }
    }
}

static void score_row(const mf_cpu_backend *be, const mf_op *op, float *score)
{
    if (op->u.route.score == MF_SCORE_SOFTMAX) {
        be->kernels->softmax(score, op->u.route.n_experts);
        return;
    }
    for (uint32_t i = 0; i < op->u.route.n_experts; i++) {
        if (op->u.route.score == MF_SCORE_SIGMOID)
            score[i] = 1.0f / (1.0f + expf(-score[i]));
        else /* of more than 20 the softplus is the value itself, as published */
            score[i] = sqrtf(score[i] > 20.0f ? score[i] : log1pf(expf(score[i])));
    }
}

/* The experts that the row's token names. */
static void look_up(const mf_cpu_backend *be, const mf_route_params *p, uint32_t row, int32_t *ids)
{
    const int32_t *table = (const int32_t *)(const void *)mf_cpu_bytes(be, p->table);
    memcpy(ids, table + (size_t)p->tokens[row] * p->n_table, p->k * sizeof *ids);
}

/* The k of largest choice, which is scratch as the weights are. */
static void choose_row(const mf_cpu_backend *be, const mf_op *op, float *score, float *choice,
                       int32_t *ids, float *weights)
{
    const uint32_t n = op->u.route.n_experts, k = op->u.route.k;
    const float *bias =
        op->u.route.bias.buffer.id != 0 ? mf_cpu_floats(be, op->u.route.bias) : NULL;
    for (uint32_t i = 0; i < n; i++)
        choice[i] = bias != NULL ? score[i] + bias[i] : score[i];
    if (op->u.route.n_groups > 1)
        limit_groups(op, score, choice);
    best_of(choice, n, k, ids, weights);
}

static void route_row(const mf_cpu_backend *be, const mf_op *op, uint32_t row, float *choice)
{
    uint32_t n = op->u.route.n_experts, k = op->u.route.k;
    float *score = mf_cpu_floats(be, op->u.route.logits) + (size_t)row * n;
    float *weights = mf_cpu_floats(be, op->u.route.weights) + (size_t)row * k;
    int32_t *ids = (int32_t *)(void *)mf_cpu_bytes(be, op->u.route.ids) + (size_t)row * k;
    score_row(be, op, score);
    if (op->u.route.table.buffer.id != 0)
        look_up(be, &op->u.route, row, ids);
    else
        choose_row(be, op, score, choice, ids, weights);
    float sum = 0.0f;
    for (uint32_t j = 0; j < k; j++) {
        weights[j] = score[ids[j]];
        sum += weights[j];
    }
    float divisor = op->u.route.normalise ? sum + op->u.route.eps : 1.0f;
    for (uint32_t j = 0; j < k; j++)
        weights[j] = weights[j] / divisor * op->u.route.scale;
}

typedef struct route_job {
    const mf_cpu_backend *be;
    const mf_op *op;
} route_job;

static void run_rows(void *ctx, uint32_t task, uint32_t thread)
{
    const route_job *job = ctx;
    uint32_t row = task * ROWS_PER_TASK, end = row + ROWS_PER_TASK;
    end = end < job->op->n_rows ? end : job->op->n_rows;
    for (; row < end; row++)
        route_row(job->be, job->op, row, mf_cpu_scratch(job->be, thread));
}

/* Rows whose experts all have a slot. */
static void count_found(const mf_cpu_backend *be, const mf_op *op)
{
    const mf_route_params *p = &op->u.route;
    const int32_t *ids = (const int32_t *)(const void *)mf_cpu_bytes(be, p->ids);
    const uint32_t *slot = (const uint32_t *)(const void *)mf_cpu_bytes(be, p->slot);
    uint32_t *found = (uint32_t *)(void *)mf_cpu_bytes(be, p->found);
    for (uint32_t row = 0; row < op->n_rows; row++) {
        bool has_all = true;
        for (uint32_t j = 0; j < p->k; j++)
            has_all &= slot[ids[(size_t)row * p->k + j]] != MF_NO_SLOT;
        found[1] += has_all;
    }
    found[0] |= found[1] == p->n_to_find;
}

void mf_cpu_route(mf_cpu_backend *be, const mf_op *op)
{
    route_job job = {be, op};
    uint32_t n_tasks = (op->n_rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
    if (n_tasks == 1)
        run_rows(&job, 0, 0);
    else
        mf_thread_pool_run(be->pool, n_tasks, run_rows, &job);
    if (op->u.route.found.buffer.id != 0)
        count_found(be, op);
}
