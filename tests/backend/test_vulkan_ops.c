/* SPDX-License-Identifier: MIT */
/* The op list on a Vulkan device: every operation that has shaders against float64, the same bits
 * for any cut of the batch. */
#include "op_list.h"
#include "test.h"
#include "vulkan_open.h"

/* Times what float32 on one core may be off by: sums in another order, and exp and division that
 * need not be rounded as the CPU's are. */
#define SLACK_FACTOR 2.0

int main(void)
{
    static const uint32_t skews[] = {0, 4};
    mf_backend *be = vulkan_open(NULL);
    scene *s = scene_new();
    if (be == NULL)
        return TEST_SKIPPED;
    REQUIRE(s != NULL);
    for (uint32_t i = 0; i < 2; i++) {
        const list_options o = {.label = be->ops->device_name(be),
                                .slack_factor = SLACK_FACTOR,
                                .skew = skews[i],
                                .is_unfinished = true};
        uint32_t n = op_list_run(be, s, &o);
        fprintf(stderr, "%s, weights %u bytes from alignment: %u of %u cases have no shaders\n",
                o.label, skews[i], n, (uint32_t)n_op_cases);
    }
    be->ops->destroy(be);
    scene_free(s);
    return test_result();
}
