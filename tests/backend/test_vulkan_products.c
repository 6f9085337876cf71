/* SPDX-License-Identifier: MIT */
/* Products with every stored form on a Vulkan device against sums in float64 of what
 * base/weight_format.c decodes: for one token and for two, for weights that are aligned to wide
 * loads and for those that are not, with the same bits. */
#include "test.h"
#include "vulkan_forms.h"
#include "vulkan_open.h"

#define N_ROWS 21u
#define N_COLS 768u /* of tiles of 512 one and a half */
#define N_TOKENS 2u

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
} problem;

/* y of n_tokens tokens, the weights put `skew` bytes past alignment. */
static void multiply(mf_backend *be, mf_buffer buffer, const problem *p, uint64_t skew,
                     uint32_t n_tokens, float *y)
{
    mf_error error = {0};
    mf_op op = {.kind = MF_OP_MATMUL, .n_rows = n_tokens};
    uint64_t at = 65536;
    op.u.matmul.n = 1;
    op.u.matmul.weight[0].shape = p->shape;
    for (uint32_t i = 0; i < mf_weight_format_of(&p->shape)->n_arrays; i++) {
        const uint64_t n = mf_weight_array_bytes(&p->shape, i);
        op.u.matmul.weight[0].arrays[i] = (mf_span){buffer, at + skew};
        be->ops->write(be, op.u.matmul.weight[0].arrays[i], p->bytes[i], n);
        at += (n + skew + 63) / 64 * 64;
    }
    op.u.matmul.x = (mf_span){buffer, 0};
    op.u.matmul.y[0] = (mf_span){buffer, 32768};
    be->ops->write(be, op.u.matmul.x, p->x, sizeof p->x);
    REQUIRE_OK(mf_backend_reserve(be, &op, &error), &error);
    be->ops->record(be, &op);
    REQUIRE_OK(mf_backend_read(be, op.u.matmul.y[0], y, n_tokens * N_ROWS * sizeof *y, &error),
               &error);
}

static void check_values(const problem *p, const float *y)
{
    float row[N_COLS];
    for (uint32_t r = 0; r < N_ROWS; r++) {
        mf_weight_format_of(&p->shape)->decode_row(&p->shape,
                                                   (const unsigned char *const *)p->bytes, r, row);
        for (uint32_t t = 0; t < N_TOKENS; t++) {
            double sum = 0.0, size = 0.0;
            for (uint32_t i = 0; i < N_COLS; i++) {
                sum += (double)row[i] * p->x[t * N_COLS + i];
                size += fabs((double)row[i] * p->x[t * N_COLS + i]);
            }
            const double got = y[t * N_ROWS + r], slack = 4 * 0x1p-23 * sqrt(N_COLS) * size;
            CHECK_MSG(fabs(got - sum) <= slack,
                      "form %d, %u bits: row %u, token %u is %.9g, expected %.9g +- %.2g",
                      (int)p->shape.kind, p->shape.bits, r, t, got, sum, slack);
        }
    }
}

static void check_form(mf_backend *be, mf_buffer buffer, const mf_weight_shape *form)
{
    static problem p;
    /* GGUF's and FP8's values may lie anywhere */
    const bool is_bytes = form->kind == MF_WEIGHT_FP8_BLOCK ? false : form->kind >= MF_WEIGHT_MXFP4;
    const uint64_t skews[] = {0, 4, is_bytes ? 1 : 8};
    float whole[N_TOKENS * N_ROWS], y[N_TOKENS * N_ROWS];
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
    multiply(be, buffer, &p, 0, N_TOKENS, whole);
    check_values(&p, whole);
    for (uint32_t i = 0; i < sizeof skews / sizeof *skews; i++) {
        for (uint32_t n = 1; n <= N_TOKENS; n++) {
            multiply(be, buffer, &p, skews[i], n, y);
            CHECK_MSG(memcmp(y, whole, n * N_ROWS * sizeof *y) == 0,
                      "form %d, %u bits: other bits %u bytes from alignment, %u tokens",
                      (int)form->kind, form->bits, (unsigned)skews[i], n);
        }
    }
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++) {
        free(p.bytes[i]);
        p.bytes[i] = NULL;
    }
}

/* Of forms that are read alike one: floats of 32 bits and of 16; affine ones of bits that divide a
 * word and that do not; scales of a block of columns and rows; blocks of bytes with their scales
 * inside, of one kind and of several, and of codes in two pieces; integers with scales beside them.
 * What else differs is how a value is decoded, which test_vulkan_forms compares for all of them. */
static bool is_representative(const mf_weight_shape *form)
{
    switch (form->kind) {
    case MF_WEIGHT_FLOAT:
        return form->float_type != MF_F16;
    case MF_WEIGHT_AFFINE:
        return form->bits == 3 || (form->bits == 4 && form->group == 64);
    case MF_WEIGHT_FP8_BLOCK:
        return form->scale_rows == 0;
    case MF_WEIGHT_MXFP4:
    case MF_WEIGHT_GGUF_Q8_0:
    case MF_WEIGHT_GGUF_Q4_K:
    case MF_WEIGHT_GGUF_Q6_K:
    case MF_WEIGHT_INT4:
        return true;
    default:
        return false;
    }
}

int main(void)
{
    mf_error error = {0};
    mf_buffer buffer = {0};
    mf_backend *be = vulkan_open(NULL);
    if (be == NULL)
        return TEST_SKIPPED;
    REQUIRE_OK(be->ops->buffer_create(be, 1 << 20, MF_USE_DEVICE, "weights", &buffer, &error),
               &error);
    for (size_t i = 0; i < N_VULKAN_FORMS; i++)
        if (!vulkan_is_short() || is_representative(&vulkan_forms[i]))
            check_form(be, buffer, &vulkan_forms[i]);
    be->ops->destroy(be);
    return test_result();
}
