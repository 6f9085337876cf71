/* SPDX-License-Identifier: MIT */
/* Tasks by their homes: each once, and where the middle of its rows lies in interleaved memory. */
#include "backend/cpu/cpu_internal.h"
#include "test.h"

#include <sched.h>

#define MAX_TASKS 4096u

static mf_cpu_backend *open_backend(uint32_t n_threads, uint32_t n_nodes)
{
    static mf_numa_nodes nodes;
    mf_backend *be = NULL;
    mf_error error = {0};
    nodes = (mf_numa_nodes){.n = n_nodes};
    for (uint32_t i = 0; i < n_nodes; i++) {
        nodes.node[i].n_cpus = 1;
        REQUIRE(sched_getaffinity(0, sizeof nodes.node[i].cpus,
                                  (cpu_set_t *)(void *)nodes.node[i].cpus) == 0);
    }
    const mf_backend_options options = {.n_threads = n_threads, .nodes = &nodes};
    REQUIRE_OK(mf_cpu_backend_create(&options, &be, &error), &error);
    return (mf_cpu_backend *)be;
}

/* Some float32 matrices at these bytes: nothing reads them. */
static mf_cpu_product product_at(uint64_t at, uint32_t n_rows, uint32_t n_cols)
{
    mf_cpu_product p = {.n_rows = n_rows, .n_tokens = 1};
    p.w.shape = (mf_weight_shape){
        .kind = MF_WEIGHT_FLOAT, .float_type = MF_F32, .n_rows = n_rows, .n_cols = n_cols};
    p.w.arrays[0] = (const unsigned char *)(uintptr_t)at;
    return p;
}

/* The home of a task, worked out from the row that it begins with. */
static uint32_t home_of(const mf_cpu_product_tasks *t, uint32_t task)
{
    const uint32_t j = mf_cpu_product_of_task(t, task), rows = t->block_rows[j];
    const mf_cpu_product *p = &t->products[j];
    const uint64_t row_bytes = (uint64_t)p->w.shape.n_cols * sizeof(float);
    const uint64_t middle = (task - t->first_task[j]) * (uint64_t)rows * row_bytes +
                            rows * row_bytes / 2 + (uintptr_t)p->w.arrays[0];
    return (uint32_t)(middle / MF_NUMA_UNIT % t->be->n_homes);
}

static void check_sorted(const mf_cpu_product_tasks *t, uint32_t first)
{
    static uint16_t order[MAX_TASKS];
    bool is_there[MAX_TASKS] = {false};
    uint32_t end[MF_NUMA_MAX_NODES] = {0}, n_at_home = 0;
    const uint32_t n = t->first_task[t->n];
    REQUIRE(first + n <= MAX_TASKS);
    mf_cpu_sort_tasks(t, first, order, end);
    CHECK_U64(end[t->be->n_homes - 1], first + n);
    for (uint32_t i = first, home = 0; i < first + n; i++) {
        while (i >= end[home])
            home++;
        const uint32_t task = order[i] - first;
        REQUIRE(task < n);
        CHECK(!is_there[task]);
        is_there[task] = true;
        n_at_home += home_of(t, task) == home;
    }
    CHECK_U64(n_at_home, n);
}

int main(void)
{
    static const uint64_t base = UINT64_C(1) << 40;
    for (uint32_t n_nodes = 2; n_nodes <= 5; n_nodes++) {
        mf_cpu_backend *be = open_backend(8, n_nodes);
        CHECK_U64(be->n_homes, n_nodes);
        /* of several units, of a part of one, across the border of two, of few rows */
        const mf_cpu_product products[] = {product_at(base, 4096, 1024),
                                           product_at(base + 4096, 300, 256),
                                           product_at(base + 3 * MF_NUMA_UNIT - 8192, 1000, 512),
                                           product_at(base + 7 * MF_NUMA_UNIT, 3, 2048)};
        for (uint32_t n = 1; n <= 4; n++) {
            mf_cpu_product_tasks tasks;
            mf_cpu_cut_products(be, products + 4 - n, n, &tasks);
            check_sorted(&tasks, 0);
            check_sorted(&tasks, 17);
        }
        be->base.ops->destroy(&be->base);
    }
    mf_cpu_backend *be = open_backend(2, 3); /* fewer threads than nodes: there is one home */
    CHECK_U64(be->n_homes, 1);
    be->base.ops->destroy(&be->base);
    return test_result();
}
