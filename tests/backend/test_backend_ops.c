/* SPDX-License-Identifier: MIT */
/*
 * The op list over the backend interface: every operation against float64, the same bits for any
 * number of threads and any cut of the batch, and the corners of the contracts. Here on the CPU's
 * backend, in every tier that the machine has.
 */
#include "kernels/kernels.h"
#include "op_list.h"
#include "strict_backend.h"
#include "test.h"

#include <sched.h>

#define MAX_THREADS 3u

/* ----------------------------------------------------------------------------------- the CPU */

/* The same bits as the CPU gave, from memory out of reach, later and in another order. */
static void run_strict(scene *s, scene_wants *wants, unsigned char **same)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        mf_error error = {0};
        mf_backend *be = NULL;
        strict_options strict = {.seed = seed};
        const mf_backend_options options = {.n_threads = 2};
        REQUIRE_OK(strict_backend_open(&strict, &options, &be, &error), &error);
        char label[64];
        snprintf(label, sizeof label, "strict %s, seed %u", be->ops->device_name(be),
                 (unsigned)seed);
        const list_options o = {
            .label = label, .slack_factor = 1.0, .skew = 1, .same = same, .wants = wants};
        (void)op_list_run(be, s, &o);
        op_corners_run(be);
        strict_stats stats;
        strict_backend_stats(be, &stats);
        CHECK(stats.n_overtakes > 0 && stats.n_executed > 1000);
        be->ops->destroy(be);
    }
}

/* This machine as two nodes, whose rows and threads are shared out to what is one in truth. */
static const mf_numa_nodes *make_nodes(void)
{
    static mf_numa_nodes nodes = {.n = 2};
    for (uint32_t i = 0; i < nodes.n; i++)
        REQUIRE(sched_getaffinity(0, sizeof nodes.node[i].cpus,
                                  (cpu_set_t *)(void *)nodes.node[i].cpus) == 0);
    nodes.node[0].n_cpus = nodes.node[1].n_cpus = 1;
    return &nodes;
}

/* The same bits from rows that have homes. */
static void run_at_home(scene *s, uint32_t tier, scene_wants *wants, unsigned char **same)
{
    mf_error error = {0};
    mf_backend *be = NULL;
    const mf_backend_options options = {
        .n_threads = MAX_THREADS, .cpu_tier = tier, .nodes = make_nodes()};
    REQUIRE_OK(mf_backend_open(&options, &be, &error), &error);
    const list_options o = {.label = "two nodes",
                            .slack_factor = 1.0,
                            .skew = 1,
                            .same = same,
                            .wants = wants,
                            .has_homes = true};
    (void)op_list_run(be, s, &o);
    op_corners_run(be);
    be->ops->destroy(be);
}

static void run_cpu_tier(scene *s, uint32_t tier, scene_wants *wants)
{
    unsigned char **same = calloc(n_op_cases, sizeof *same);
    REQUIRE(same != NULL);
    for (uint32_t n_threads = 1; n_threads <= MAX_THREADS; n_threads++) {
        char label[64];
        mf_error error = {0};
        mf_backend *be = NULL;
        const mf_backend_options options = {.n_threads = n_threads, .cpu_tier = tier};
        REQUIRE_OK(mf_backend_open(&options, &be, &error), &error);
        snprintf(label, sizeof label, "%s %s, %u threads", be->ops->name, be->ops->device_name(be),
                 n_threads);
        const list_options o = {
            .label = label, .slack_factor = 1.0, .skew = 1, .same = same, .wants = wants};
        (void)op_list_run(be, s, &o);
        op_corners_run(be);
        be->ops->destroy(be);
    }
    run_at_home(s, tier, wants, same);
    if ((uint32_t)mf_kernels_get(MF_CPU_BEST)->tier == tier)
        run_strict(s, wants, same);
    for (size_t i = 0; i < n_op_cases; i++)
        free(same[i]);
    free((void *)same);
}

int main(void)
{
    scene *s = scene_new();
    scene_wants *wants = calloc(n_op_cases, sizeof *wants); /* the same for all tiers */
    REQUIRE(s != NULL && wants != NULL);
    for (uint32_t tier = MF_CPU_SCALAR; tier < MF_CPU_END; tier++) {
        if (mf_kernels_get(tier) != NULL)
            run_cpu_tier(s, tier, wants);
    }
    for (size_t i = 0; i < n_op_cases; i++)
        scene_free_wants(&wants[i]);
    free(wants);
    scene_free(s);
    return test_result();
}
