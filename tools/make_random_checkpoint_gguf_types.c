/* SPDX-License-Identifier: MIT */
/* The types of GGUF's tensors: where the scales of a block stand, and what its other bits come to
 * when they are random. */
#include "make_random_checkpoint.h"

#include <stdio.h>
#include <string.h>

/* rms: of a weight where d, the block's scale, is 1 and all other bits are random (as PyPI's gguf
 * reads them). Where a block has a minimum too, its scale is such a multiple of d that weights have
 * mean 0. NVFP4's four scales are near 1: the factor of the whole matrix stands beside it. */
static const mf_rc_block_type types[] = {
    {.name = "Q4_0", .number = 2, .n_values = 32, .n_bytes = 18, .rms = 4.64f},
    {.name = "Q4_1", .number = 3, .n_values = 32, .n_bytes = 20, .minimum = -7.5f, .rms = 4.62f},
    {.name = "Q5_0", .number = 6, .n_values = 32, .n_bytes = 22, .rms = 9.25f},
    {.name = "Q5_1", .number = 7, .n_values = 32, .n_bytes = 24, .minimum = -15.5f, .rms = 9.23f},
    {.name = "Q8_0", .number = 8, .n_values = 32, .n_bytes = 34, .rms = 73.9f},
    {.name = "Q2_K",
     .number = 10,
     .n_values = 256,
     .n_bytes = 84,
     .scale_at = 80,
     .minimum = 1.5f,
     .rms = 13.9f},
    {.name = "Q3_K", .number = 11, .n_values = 256, .n_bytes = 110, .scale_at = 108, .rms = 43.3f},
    {.name = "Q4_K", .number = 12, .n_values = 256, .n_bytes = 144, .minimum = 7.5f, .rms = 258.0f},
    {.name = "Q5_K",
     .number = 13,
     .n_values = 256,
     .n_bytes = 176,
     .minimum = 15.5f,
     .rms = 526.0f},
    {.name = "Q6_K",
     .number = 14,
     .n_values = 256,
     .n_bytes = 210,
     .scale_at = 208,
     .rms = 1365.0f},
    {.name = "IQ1_S", .number = 19, .n_values = 256, .n_bytes = 50, .rms = 7.19f},
    {.name = "IQ1_M",
     .number = 29,
     .n_values = 256,
     .n_bytes = 56,
     .scale_at = 48,
     .scales = MF_RC_SCALE_NIBBLES,
     .rms = 7.20f},
    {.name = "IQ2_XXS", .number = 16, .n_values = 256, .n_bytes = 66, .rms = 53.3f},
    {.name = "IQ2_XS", .number = 17, .n_values = 256, .n_bytes = 74, .rms = 55.9f},
    {.name = "IQ2_S", .number = 22, .n_values = 256, .n_bytes = 82, .rms = 56.4f},
    {.name = "IQ3_XXS", .number = 18, .n_values = 256, .n_bytes = 98, .rms = 142.0f},
    {.name = "IQ3_S", .number = 21, .n_values = 256, .n_bytes = 110, .rms = 140.0f},
    {.name = "IQ4_NL", .number = 20, .n_values = 32, .n_bytes = 18, .rms = 67.4f},
    {.name = "IQ4_XS", .number = 23, .n_values = 256, .n_bytes = 136, .rms = 1246.0f},
    {.name = "TQ1_0", .number = 34, .n_values = 256, .n_bytes = 54, .scale_at = 52, .rms = 0.818f},
    {.name = "TQ2_0", .number = 35, .n_values = 256, .n_bytes = 66, .scale_at = 64, .rms = 1.22f},
    {.name = "MXFP4",
     .number = 39,
     .n_values = 32,
     .n_bytes = 17,
     .scales = MF_RC_SCALE_E8M0,
     .rms = 2.93f},
    {.name = "NVFP4",
     .number = 40,
     .n_values = 64,
     .n_bytes = 36,
     .scales = MF_RC_SCALE_E4M3,
     .rms = 3.03f},
};

const char *mf_rc_float_type_of(const char *name)
{
    static const char *const floats[] = {"F32", "F16", "BF16"};
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
        if (strcmp(floats[i], name) == 0)
            return floats[i];
    return NULL;
}

const mf_rc_block_type *mf_rc_block_type_of(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

void mf_rc_print_types(void)
{
    printf("F32, F16, BF16");
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        printf(", %s", types[i].name);
}
