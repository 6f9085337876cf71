/* SPDX-License-Identifier: MIT */
/* A product on a Vulkan device with a weight of random bytes in any stored form. */
#ifndef MF_TEST_VULKAN_PRODUCT_H
#define MF_TEST_VULKAN_PRODUCT_H

#include "backend/backend.h"
#include "base/weight_format.h"
#include "test.h"

/* Bytes that are numbers of ordinary size in every form, and none that is no number. */
static inline void product_fill(const mf_weight_shape *s, uint32_t array, unsigned char *bytes,
                                uint64_t *random)
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

/* x stands at the buffer's beginning. */
typedef struct product {
    mf_weight_shape shape;
    unsigned char *bytes[MF_MAX_WEIGHT_ARRAYS];
    float *x; /* [n_tokens][n_cols] */
    uint32_t n_tokens;
    uint64_t y_at, weights_at; /* of the buffer */
    bool is_long;
} product;

/* The weight's bytes and x are made; p->x has room for them. */
static inline void product_make(product *p, const mf_weight_shape *form, uint32_t n_rows,
                                uint32_t n_cols)
{
    uint64_t random = 7 + (uint64_t)form->kind * 31 + form->bits;
    p->shape = *form;
    p->shape.n_rows = n_rows;
    p->shape.n_cols = n_cols;
    for (uint32_t i = 0; i < mf_weight_format_of(form)->n_arrays; i++) {
        p->bytes[i] = malloc(mf_weight_array_bytes(&p->shape, i));
        REQUIRE(p->bytes[i] != NULL);
        product_fill(&p->shape, i, p->bytes[i], &random);
    }
    for (uint32_t i = 0; i < p->n_tokens * n_cols; i++)
        p->x[i] = (float)(test_random(&random) % 2001) / 1000.0f - 1.0f;
}

static inline void product_free(product *p)
{
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++) {
        free(p->bytes[i]);
        p->bytes[i] = NULL;
    }
}

/* y of its first n_tokens tokens, the weights put `skew` bytes past alignment. */
static inline void product_multiply(mf_backend *be, mf_buffer buffer, const product *p,
                                    uint64_t skew, uint32_t n_tokens, float *y)
{
    mf_error error = {0};
    mf_op op = {.kind = MF_OP_MATMUL, .n_rows = n_tokens, .is_long = p->is_long};
    uint64_t at = p->weights_at;
    op.u.matmul.n = 1;
    op.u.matmul.weight[0].shape = p->shape;
    for (uint32_t i = 0; i < mf_weight_format_of(&p->shape)->n_arrays; i++) {
        const uint64_t n = mf_weight_array_bytes(&p->shape, i);
        op.u.matmul.weight[0].arrays[i] = (mf_span){buffer, at + skew};
        be->ops->write(be, op.u.matmul.weight[0].arrays[i], p->bytes[i], n);
        at += (n + skew + 63) / 64 * 64;
    }
    op.u.matmul.x = (mf_span){buffer, 0};
    op.u.matmul.y[0] = (mf_span){buffer, p->y_at};
    be->ops->write(be, op.u.matmul.x, p->x, (uint64_t)p->n_tokens * p->shape.n_cols * sizeof *p->x);
    REQUIRE_OK(mf_backend_reserve(be, &op, &error), &error);
    be->ops->record(be, &op);
    REQUIRE_OK(mf_backend_read(be, op.u.matmul.y[0], y,
                               (uint64_t)n_tokens * p->shape.n_rows * sizeof *y, &error),
               &error);
}

/* What is expected of a token's row, and how large its terms are. */
typedef struct product_sum {
    double sum, absolutes, squares;
} product_sum;

static inline product_sum product_expect(const product *p, const float *row, uint32_t token)
{
    const float *x = p->x + (uint64_t)token * p->shape.n_cols;
    product_sum s = {0};
    for (uint32_t i = 0; i < p->shape.n_cols; i++) {
        const double term = (double)row[i] * x[i];
        s.sum += term;
        s.absolutes += fabs(term);
        s.squares += term * term;
    }
    return s;
}

/* As the form's format decodes it. */
static inline void product_decode(const product *p, uint32_t row, float *values)
{
    mf_weight_format_of(&p->shape)->decode_row(&p->shape, (const unsigned char *const *)p->bytes,
                                               row, values);
}

#endif
