/* SPDX-License-Identifier: MIT */
/* Products of long runs in mixed precision, by matrix units or without, with stored forms against
 * sums in float64 of what base/weight_format.c decodes, within what float16 allows; and the same
 * bits whether loads are wide, and for any number of tokens, in every size of tiles. */
#include "backend/vulkan/vk_internal.h"
#include "test.h"
#include "vulkan_forms.h"
#include "vulkan_open.h"
#include "vulkan_product.h"

#define N_ROWS 72u
#define N_COLS 768u
#define N_TOKENS 128u /* eight tiles of 16, the most that a workgroup has */
#define WEIGHTS_AT ((uint64_t)1 << 19)

/* Weights and activations are rounded to float16, once each. */
static void check_values(const product *p, const float *y)
{
    float row[N_COLS];
    for (uint32_t r = 0; r < N_ROWS; r++) {
        product_decode(p, r, row);
        for (uint32_t t = 0; t < N_TOKENS; t++) {
            const product_sum expected = product_expect(p, row, t);
            const double got = y[t * N_ROWS + r], slack = 8 * 0x1p-11 * sqrt(expected.squares);
            CHECK_MSG(fabs(got - expected.sum) <= slack,
                      "form %d, %u bits: row %u, token %u is %.9g, expected %.9g +- %.2g",
                      (int)p->shape.kind, p->shape.bits, r, t, got, expected.sum, slack);
        }
    }
}

static void check_form(mf_backend *be, mf_buffer buffer, const mf_weight_shape *form)
{
    static float x[N_TOKENS * N_COLS], whole[N_TOKENS * N_ROWS], y[N_TOKENS * N_ROWS];
    product p = {.x = x,
                 .n_tokens = N_TOKENS,
                 .y_at = WEIGHTS_AT - (1 << 16),
                 .weights_at = WEIGHTS_AT,
                 .is_long = true};
    /* tiles of a workgroup: 1, then parts of 1, 2, 4 and 5, 8, where there are matrix units */
    static const uint32_t counts[] = {1, 15, 20, 64, 77, N_TOKENS};
    product_make(&p, form, N_ROWS, N_COLS);
    product_multiply(be, buffer, &p, 0, N_TOKENS, whole);
    check_values(&p, whole);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const uint32_t n = counts[i];
        for (uint64_t skew = 0; skew <= 4; skew += 4) {
            product_multiply(be, buffer, &p, skew, n, y);
            CHECK_MSG(memcmp(y, whole, n * N_ROWS * sizeof *y) == 0,
                      "form %d, %u bits: other bits %u bytes from alignment, %u tokens",
                      (int)form->kind, form->bits, (unsigned)skew, n);
        }
    }
    product_free(&p);
}

/* Those that are read in another way than others: see test_vulkan_products. */
static bool is_representative(const mf_weight_shape *form)
{
    switch (form->kind) {
    case MF_WEIGHT_AFFINE:
        return form->bits == 4 && form->group == 64;
    case MF_WEIGHT_GGUF_Q4_0:
    case MF_WEIGHT_GGUF_Q4_K:
    case MF_WEIGHT_GGUF_MXFP4:
        return true;
    default:
        return false;
    }
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : NULL; /* one form's number: by hand */
    mf_error error = {0};
    mf_buffer buffer = {0};
    mf_backend *be = vulkan_open_with(NULL, MF_PRECISION_MIXED);
    if (be == NULL)
        return TEST_SKIPPED;
    ((mf_vk_backend *)be)->tuning.unit_groups = 1; /* large tiles for few rows, too */
    REQUIRE_OK(be->ops->buffer_create(be, 1 << 20, MF_USE_DEVICE, "weights", &buffer, &error),
               &error);
    for (size_t i = 0; i < N_VULKAN_FORMS; i++)
        if (kind != NULL ? atoi(kind) == (int)vulkan_forms[i].kind
                         : !vulkan_is_short() || is_representative(&vulkan_forms[i]))
            check_form(be, buffer, &vulkan_forms[i]);
    be->ops->destroy(be);
    return test_result();
}
