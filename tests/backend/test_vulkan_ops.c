/* SPDX-License-Identifier: MIT */
/* The op list on a Vulkan device: every operation that has shaders against float64, the same bits
 * for any cut of the batch. */
#include "op_list.h"
#include "test.h"
#include "vulkan_open.h"

/* Times what float32 on one core may be off by: sums in another order, and exp and division that
 * need not be rounded as the CPU's are. */
#define SLACK_FACTOR 2.0

/* Products in float16 are off by 2^-10 of each, not by 4 eps sqrt(n) of their sum; least sums are
 * of 12 terms. */
#define MIXED_FACTOR 600.0

static void run_list(scene *s, mf_precision precision)
{
    static const uint32_t skews[] = {0, 4};
    const bool is_mixed = precision == MF_PRECISION_MIXED;
    mf_backend *be = vulkan_open_with(NULL, precision);
    /* Of the time that software takes to compile shaders, those with both in one took half. */
    const char *const without = vulkan_is_short() ? "q8_0 nvfp4" : NULL;
    /* test_vulkan_products has weights of every form where they are not aligned */
    for (uint32_t i = 0; i < (vulkan_is_short() ? 1 : 2); i++) {
        const list_options o = {.label = be->ops->device_name(be),
                                .slack_factor = is_mixed ? MIXED_FACTOR : SLACK_FACTOR,
                                .skew = skews[i],
                                .is_unfinished = true,
                                .without = without,
                                .is_long = is_mixed};
        uint32_t n = op_list_run(be, s, &o);
        fprintf(stderr, "%s%s, weights %u bytes from alignment: %u of %u cases left out\n", o.label,
                is_mixed ? ", mixed" : "", skews[i], n, (uint32_t)n_op_cases);
    }
    be->ops->destroy(be);
}

/* The corners of the contracts, which take no time. */
static void run_values(void)
{
    mf_backend *be = vulkan_open(NULL);
    op_values_run(be);
    be->ops->destroy(be);
}

/* With an argument: "values", the corners alone; another, mixed alone. */
int main(int argc, char **argv)
{
    scene *s = scene_new();
    REQUIRE(s != NULL);
    if (!vulkan_is_there()) {
        scene_free(s);
        return TEST_SKIPPED;
    }
    const bool are_values_alone = argc >= 2 && strcmp(argv[1], "values") == 0;
    if (argc < 2 || are_values_alone)
        run_values();
    if (are_values_alone) {
        scene_free(s);
        return test_result();
    }
    if (argc < 2)
        run_list(s, MF_PRECISION_F32);
    if (argc >= 2 || !vulkan_is_short())
        run_list(s, MF_PRECISION_MIXED); /* without matrix units the same, at length */
    scene_free(s);
    return test_result();
}
