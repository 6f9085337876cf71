/* SPDX-License-Identifier: MIT */
/* Products with every stored form on a Vulkan device against sums in float64 of what
 * base/weight_format.c decodes: for one token and for two, for weights that are aligned to wide
 * loads and for those that are not, with the same bits. */
#include "backend/vulkan/vk_internal.h"
#include "test.h"
#include "vulkan_forms.h"
#include "vulkan_open.h"
#include "vulkan_product.h"

#define N_ROWS 21u
#define N_COLS 768u /* of tiles of 512 one and a half */
#define N_TOKENS 2u
#define BUFFER_BYTES (4u << 20)

static void check_values(const product *p, const float *y)
{
    float row[N_COLS];
    for (uint32_t r = 0; r < N_ROWS; r++) {
        product_decode(p, r, row);
        for (uint32_t t = 0; t < N_TOKENS; t++) {
            const product_sum expected = product_expect(p, row, t);
            const double got = y[t * N_ROWS + r];
            const double slack = 4 * 0x1p-23 * sqrt(N_COLS) * expected.absolutes;
            CHECK_MSG(fabs(got - expected.sum) <= slack,
                      "form %d, %u bits: row %u, token %u is %.9g, expected %.9g +- %.2g",
                      (int)p->shape.kind, p->shape.bits, r, t, got, expected.sum, slack);
        }
    }
}

static void check_form(mf_backend *be, mf_buffer buffer, const mf_weight_shape *form)
{
    static float x[N_TOKENS * N_COLS];
    product p = {.x = x, .n_tokens = N_TOKENS, .y_at = 32768, .weights_at = 65536};
    /* GGUF's and FP8's values may lie anywhere */
    const bool is_bytes = form->kind == MF_WEIGHT_FP8_BLOCK ? false : form->kind >= MF_WEIGHT_MXFP4;
    const uint64_t skews[] = {0, 4, is_bytes ? 1 : 8};
    float whole[N_TOKENS * N_ROWS], y[N_TOKENS * N_ROWS];
    product_make(&p, form, N_ROWS, N_COLS);
    product_multiply(be, buffer, &p, 0, N_TOKENS, whole);
    check_values(&p, whole);
    for (uint32_t i = 0; i < sizeof skews / sizeof *skews; i++) {
        for (uint32_t n = 1; n <= N_TOKENS; n++) {
            product_multiply(be, buffer, &p, skews[i], n, y);
            CHECK_MSG(memcmp(y, whole, n * N_ROWS * sizeof *y) == 0,
                      "form %d, %u bits: other bits %u bytes from alignment, %u tokens",
                      (int)form->kind, form->bits, (unsigned)skews[i], n);
        }
    }
    product_free(&p);
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

enum { MOST_TOKENS = 9, ROWS = 37, HIDDEN = 256, OUT_AT = 3 << 16, ACT_AT = OUT_AT + (1 << 14) };

/* A weight of random bytes at *at of the buffer. */
static mf_weight put_weight(mf_backend *be, mf_buffer buffer, const mf_weight_shape *form,
                            uint32_t n_rows, uint32_t n_cols, uint64_t *at)
{
    uint64_t random = *at;
    mf_weight w = {.shape = *form};
    w.shape.n_rows = n_rows;
    w.shape.n_cols = n_cols;
    for (uint32_t i = 0; i < mf_weight_format_of(&w.shape)->n_arrays; i++) {
        const uint64_t n = mf_weight_array_bytes(&w.shape, i);
        unsigned char *bytes = malloc(n);
        REQUIRE(bytes != NULL && *at + n <= BUFFER_BYTES);
        product_fill(&w.shape, i, bytes, &random);
        w.arrays[i] = (mf_span){buffer, *at};
        be->ops->write(be, w.arrays[i], bytes, n);
        *at += (n + 63) / 64 * 64;
        free(bytes);
    }
    return w;
}

/* The results of the operation for n tokens from the first one on; without y what they take is
 * reserved. */
static void record_tokens(mf_backend *be, mf_buffer buffer, mf_op *op, uint32_t n_cols,
                          uint32_t first, uint32_t n, float *y)
{
    static const uint32_t in_order[MOST_TOKENS] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    mf_error error = {0};
    const mf_span x = {buffer, (uint64_t)first * n_cols * sizeof(float)}, out = {buffer, OUT_AT};
    op->n_rows = n;
    if (op->kind == MF_OP_MATMUL) {
        op->u.matmul.x = x;
        op->u.matmul.y[0] = out;
    } else {
        mf_expert_item *item = (mf_expert_item *)op->u.experts.items;
        item->x_rows = in_order;
        item->n_rows = n;
        op->u.experts.x = x;
        op->u.experts.out = out;
        op->u.experts.act = (mf_span){buffer, ACT_AT};
    }
    if (y == NULL) {
        REQUIRE_OK(mf_backend_reserve(be, op, &error), &error);
        return;
    }
    be->ops->record(be, op);
    REQUIRE_OK(mf_backend_read(be, out, y, (uint64_t)n * ROWS * sizeof *y, &error), &error);
}

/* Up to so many tokens, of a product and of an expert: bits are those of each token alone. */
static void check_tokens(mf_backend *be, mf_buffer buffer, const mf_weight_shape *form,
                         uint32_t n_cols, bool is_expert, uint32_t most)
{
    static float x[MOST_TOKENS * 4160], alone[MOST_TOKENS * ROWS], y[MOST_TOKENS * ROWS];
    uint64_t random = n_cols, at = ACT_AT + (1 << 15);
    mf_expert_item item = {.expert = 0};
    mf_op op = {.kind = is_expert ? MF_OP_EXPERTS : MF_OP_MATMUL};
    REQUIRE(n_cols <= 4160 && most <= MOST_TOKENS && most * n_cols * sizeof *x <= OUT_AT);
    if (is_expert) {
        item.gate = put_weight(be, buffer, form, HIDDEN, n_cols, &at);
        item.up = put_weight(be, buffer, form, HIDDEN, n_cols, &at);
        item.down = put_weight(be, buffer, form, ROWS, HIDDEN, &at);
        op.u.experts.items = &item;
        op.u.experts.n_items = 1;
    } else {
        op.u.matmul.n = 1;
        op.u.matmul.weight[0] = put_weight(be, buffer, form, ROWS, n_cols, &at);
    }
    for (uint32_t i = 0; i < most * n_cols; i++)
        x[i] = (float)(test_random(&random) % 2001) / 1000.0f - 1.0f;
    be->ops->write(be, (mf_span){buffer, 0}, x, most * n_cols * sizeof *x);
    record_tokens(be, buffer, &op, n_cols, 0, most, NULL);
    for (uint32_t t = 0; t < most; t++)
        record_tokens(be, buffer, &op, n_cols, t, 1, alone + t * ROWS);
    for (uint32_t n = 2; n <= most; n++) {
        record_tokens(be, buffer, &op, n_cols, 0, n, y);
        CHECK_MSG(memcmp(y, alone, n * ROWS * sizeof *y) == 0,
                  "form %d, %u bits, %u columns, expert %d: other bits for %u tokens",
                  (int)form->kind, form->bits, n_cols, is_expert, n);
    }
}

/* The way-th of all kinds is for everything, or tiles of a row come one after another. */
static void take_way(mf_backend *be, uint32_t way, bool is_narrow)
{
    mf_vk_tuning *t = &((mf_vk_backend *)be)->tuning;
    mf_vk_way *const kinds[] = {t->ways, t->affine_ways, t->block_ways, t->long_ways};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (uint32_t i = 1; i < MF_VK_N_WAYS; i++)
            kinds[k][i].n_needed = i <= way ? 0 : UINT64_MAX;
    t->narrow_way.n_needed = is_narrow ? 0 : UINT64_MAX;
}

/* However a token's product is cut, its bits are the same. Rows of which side by side some lanes
 * have nothing of the last tiles. */
static void check_ways(mf_backend *be, mf_buffer buffer, const mf_weight_shape *form,
                       uint32_t n_cols)
{
    static float x[2560], want[ROWS], y[ROWS];
    uint64_t random = n_cols, at = ACT_AT + (1 << 15);
    const mf_vk_tuning as_it_is = ((mf_vk_backend *)be)->tuning;
    mf_op op = {.kind = MF_OP_MATMUL, .u.matmul.n = 1};
    op.u.matmul.weight[0] = put_weight(be, buffer, form, ROWS, n_cols, &at);
    for (uint32_t i = 0; i < n_cols; i++)
        x[i] = (float)(test_random(&random) % 2001) / 1000.0f - 1.0f;
    be->ops->write(be, (mf_span){buffer, 0}, x, n_cols * sizeof *x);
    for (uint32_t way = 0; way <= MF_VK_N_WAYS; way++) { /* the last: narrow */
        take_way(be, way, way == MF_VK_N_WAYS);
        record_tokens(be, buffer, &op, n_cols, 0, 1, NULL);
        record_tokens(be, buffer, &op, n_cols, 0, 1, way == 0 ? want : y);
        for (uint32_t r = 0; r < ROWS && way != 0; r++)
            CHECK_MSG(y[r] == want[r], "form %d, %u columns: row %u is %a by way %u, not %a",
                      (int)form->kind, n_cols, r, (double)y[r], way, (double)want[r]);
    }
    ((mf_vk_backend *)be)->tuning = as_it_is;
}

static bool has_ways(const mf_weight_shape *form)
{
    return (form->kind == MF_WEIGHT_AFFINE && form->bits == 4 && form->group == 64) ||
           form->kind == MF_WEIGHT_GGUF_Q4_K ||
           (form->kind == MF_WEIGHT_GGUF_Q8_0 && !vulkan_is_short());
}

/* Each number of tokens has shaders, which take software seconds. */
static void check_form_of_tokens(mf_backend *be, mf_buffer buffer, const mf_weight_shape *form)
{
    static const uint32_t n_cols[] = {1088, 4160, 64, 576, 2560, 4096};
    const bool is_short = vulkan_is_short();
    if (has_ways(form)) {
        check_ways(be, buffer, form, 1536);
        check_ways(be, buffer, form, 2560);
    }
    if (!is_short || form->kind == MF_WEIGHT_MXFP4) /* with a table of levels */
        check_tokens(be, buffer, form, 1024, true, is_short ? 2 : MOST_TOKENS);
    if (form->kind != MF_WEIGHT_AFFINE || form->bits != 4 || form->group != 64)
        return;
    for (size_t i = 0; i < (is_short ? 2 : sizeof n_cols / sizeof *n_cols); i++)
        for (int is_expert = 0; is_expert < 2; is_expert++)
            check_tokens(be, buffer, form, n_cols[i], is_expert != 0, MOST_TOKENS);
}

/* test_vulkan_products [PART OF]: every OF-th form, from the PART-th on; several may run side by
 * side. */
int main(int argc, char **argv)
{
    mf_error error = {0};
    mf_buffer buffer = {0};
    const long part = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
    const long n_parts = argc == 3 ? strtol(argv[2], NULL, 10) : 1;
    REQUIRE(part >= 0 && part < n_parts);
    mf_backend *be = vulkan_open(NULL);
    if (be == NULL)
        return TEST_SKIPPED;
    REQUIRE_OK(be->ops->buffer_create(be, BUFFER_BYTES, MF_USE_DEVICE, "weights", &buffer, &error),
               &error);
    for (size_t f = (size_t)part; f < N_VULKAN_FORMS; f += (size_t)n_parts) {
        const mf_weight_shape *form = &vulkan_forms[f];
        if (!vulkan_is_short() || is_representative(form))
            check_form(be, buffer, form);
        check_form_of_tokens(be, buffer, form);
    }
    be->ops->destroy(be);
    return test_result();
}
