/* SPDX-License-Identifier: MIT */
/* Products of long runs in mixed precision, by matrix units or without, with stored forms against
 * sums in float64 of what base/weight_format.c decodes, within what float16 allows; and the same
 * bits whether loads are wide, and for any number of tokens, in every size of tiles. */
#include "backend/vulkan/vk_internal.h"
#include "test.h"
#include "vulkan_forms.h"
#include "vulkan_open.h"

#define N_ROWS 72u
#define N_COLS 768u
#define N_TOKENS 128u /* eight tiles of 16, the most that a workgroup has */
#define WEIGHTS_AT ((uint64_t)1 << 19)

/* Bytes that are numbers of ordinary size in every form, and none that is no number. */
static void fill(const mf_weight_shape *s, uint32_t array, unsigned char *bytes, uint64_t *random)
{
    const bool is_block = s->kind == MF_WEIGHT_GGUF_MXFP4;
    const bool is_mx = s->kind == MF_WEIGHT_MXFP4 || s->kind == MF_WEIGHT_MXFP8;
    const uint64_t n = mf_weight_array_bytes(s, array);
    for (uint64_t i = 0; i < n; i++) {
        const unsigned char r = (unsigned char)(test_random(random) >> 40);
        bytes[i] = i % 2 == 0 ? r & 0xfe : (r & 0x83) | 0x3c;
        if ((is_mx && array == MF_WEIGHT_SCALES) || (is_block && i % 17 == 0))
            bytes[i] = 0x7c | (r & 3); /* 2^-3 .. 1 */
    }
}

typedef struct problem {
    mf_weight_shape shape;
    unsigned char *bytes[MF_MAX_WEIGHT_ARRAYS];
    float x[N_TOKENS * N_COLS];
    float whole[N_TOKENS * N_ROWS];
} problem;

static void multiply(mf_backend *be, mf_buffer buffer, const problem *p, uint64_t skew,
                     uint32_t n_tokens, float *y)
{
    mf_error error = {0};
    mf_op op = {.kind = MF_OP_MATMUL, .n_rows = n_tokens, .is_long = true};
    uint64_t at = WEIGHTS_AT;
    op.u.matmul.n = 1;
    op.u.matmul.weight[0].shape = p->shape;
    for (uint32_t i = 0; i < mf_weight_format_of(&p->shape)->n_arrays; i++) {
        const uint64_t n = mf_weight_array_bytes(&p->shape, i);
        op.u.matmul.weight[0].arrays[i] = (mf_span){buffer, at + skew};
        be->ops->write(be, op.u.matmul.weight[0].arrays[i], p->bytes[i], n);
        at += (n + skew + 63) / 64 * 64;
    }
    op.u.matmul.x = (mf_span){buffer, 0};
    op.u.matmul.y[0] = (mf_span){buffer, WEIGHTS_AT - (1 << 16)};
    be->ops->write(be, op.u.matmul.x, p->x, sizeof p->x);
    REQUIRE_OK(mf_backend_reserve(be, &op, &error), &error);
    be->ops->record(be, &op);
    REQUIRE_OK(mf_backend_read(be, op.u.matmul.y[0], y, n_tokens * N_ROWS * sizeof *y, &error),
               &error);
}

/* Weights and activations are rounded to float16, once each. */
static void check_values(const problem *p)
{
    float row[N_COLS];
    for (uint32_t r = 0; r < N_ROWS; r++) {
        mf_weight_format_of(&p->shape)->decode_row(&p->shape,
                                                   (const unsigned char *const *)p->bytes, r, row);
        for (uint32_t t = 0; t < N_TOKENS; t++) {
            double sum = 0.0, size = 0.0;
            for (uint32_t i = 0; i < N_COLS; i++) {
                const double product = (double)row[i] * p->x[t * N_COLS + i];
                sum += product;
                size += product * product;
            }
            const double got = p->whole[t * N_ROWS + r], slack = 8 * 0x1p-11 * sqrt(size);
            CHECK_MSG(fabs(got - sum) <= slack,
                      "form %d, %u bits: row %u, token %u is %.9g, expected %.9g +- %.2g",
                      (int)p->shape.kind, p->shape.bits, r, t, got, sum, slack);
        }
    }
}

static void check_form(mf_backend *be, mf_buffer buffer, const mf_weight_shape *form)
{
    static problem p;
    /* tiles of a workgroup: 1, then parts of 1, 2, 4 and 5, 8, where there are matrix units */
    static const uint32_t counts[] = {1, 15, 20, 64, 77, N_TOKENS};
    static float y[N_TOKENS * N_ROWS];
    uint64_t random = 7 + (uint64_t)form->kind * 31 + form->bits;
    p.shape = *form;
    p.shape.n_rows = N_ROWS;
    p.shape.n_cols = N_COLS;
    for (uint32_t i = 0; i < mf_weight_format_of(form)->n_arrays; i++) {
        p.bytes[i] = malloc(mf_weight_array_bytes(&p.shape, i));
        REQUIRE(p.bytes[i] != NULL);
        fill(&p.shape, i, p.bytes[i], &random);
    }
    for (uint32_t i = 0; i < N_TOKENS * N_COLS; i++)
        p.x[i] = (float)(test_random(&random) % 2001) / 1000.0f - 1.0f;
    multiply(be, buffer, &p, 0, N_TOKENS, p.whole);
    check_values(&p);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const uint32_t n = counts[i];
        for (uint64_t skew = 0; skew <= 4; skew += 4) {
            multiply(be, buffer, &p, skew, n, y);
            CHECK_MSG(memcmp(y, p.whole, n * N_ROWS * sizeof *y) == 0,
                      "form %d, %u bits: other bits %u bytes from alignment, %u tokens",
                      (int)form->kind, form->bits, (unsigned)skew, n);
        }
    }
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++) {
        free(p.bytes[i]);
        p.bytes[i] = NULL;
    }
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
