/* SPDX-License-Identifier: MIT */
/* Every stored form is decoded on a Vulkan device as base/weight_format.c decodes it: rows of any
 * bytes, looked up by embed, at every alignment that the form's elements may have. */
#include "test.h"
#include "vulkan_forms.h"
#include "vulkan_open.h"

#define N_ROWS 37u
#define N_COLS 512u
#define N_TOKENS 9u

/* Any bytes; floats of an affine form are between -2 and 2, so that none hides the others. */
static void fill(const mf_weight_shape *s, uint32_t array, unsigned char *bytes, uint64_t *random)
{
    const uint64_t n = mf_weight_array_bytes(s, array), size = mf_dtype_bytes(s->float_type);
    for (uint64_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(test_random(random) >> 40);
    for (uint64_t i = size - 1; i < n && s->kind == MF_WEIGHT_AFFINE && array > 0; i += size)
        bytes[i] = (bytes[i] & 0x80) | 0x3f; /* f16: below 1.9375 */
    for (uint64_t i = 3; i < n && s->kind == MF_WEIGHT_AFFINE_INDEXED && array == 1; i += 4)
        bytes[i] = (bytes[i] & 0x80) | 0x3f; /* of columns any, also of groups that are not there */
}

static bool is_tiny(float x)
{
    return fabsf(x) < 0x1p-126f;
}

/* The largest value of the 32 around i. */
static float largest_near(const float *row, uint32_t i)
{
    float most = 0.0f;
    for (uint32_t j = i / 32 * 32; j < i / 32 * 32 + 32; j++)
        most = fabsf(row[j]) > most ? fabsf(row[j]) : most;
    return most;
}

/* A rounding or two may be between them, and where a product and a sum were not fused and cancel,
 * one of what is larger around it. What is no number on one side is none on the other; what is
 * below float32's normal numbers a device may flush. */
static bool is_right(const mf_weight_shape *s, const float *row, uint32_t i, float got)
{
    const bool is_sum = s->kind == MF_WEIGHT_AFFINE || s->kind == MF_WEIGHT_AFFINE_INDEXED ||
                        s->kind == MF_WEIGHT_GGUF_Q4_K || s->kind == MF_WEIGHT_GGUF_Q5_K ||
                        s->kind == MF_WEIGHT_GGUF_Q2_K || s->kind == MF_WEIGHT_GGUF_Q4_1 ||
                        s->kind == MF_WEIGHT_GGUF_Q5_1;
    const float want = row[i], size = is_sum ? largest_near(row, i) : fabsf(want);
    if (!isfinite(want))
        return !isfinite(got);
    return fabsf(got - want) <= 4e-7f * size || (is_tiny(got) && is_tiny(want));
}

static void check_row(const mf_weight_shape *s, const float *got, const float *want, uint64_t skew)
{
    uint32_t i = 0;
    while (i < N_COLS && is_right(s, want, i, got[i]))
        i++;
    CHECK_MSG(i == N_COLS, "form %d, %u bits, skew %u: value %u is %.9g, expected %.9g",
              (int)s->kind, s->bits, (unsigned)skew, i, (double)got[i % N_COLS],
              (double)want[i % N_COLS]);
}

static void check_form(mf_backend *be, mf_buffer buffer, const mf_weight_shape *s, uint64_t skew)
{
    mf_error error = {0};
    mf_op op = {.kind = MF_OP_EMBED, .n_rows = N_TOKENS, .u.embed.weight.shape = *s};
    unsigned char *bytes[MF_MAX_WEIGHT_ARRAYS] = {0};
    uint64_t at = skew, random = 99 + (uint64_t)s->kind * 7 + s->bits;
    int32_t tokens[N_TOKENS];
    float got[N_TOKENS * N_COLS], want[N_COLS];
    for (uint32_t i = 0; i < mf_weight_format_of(s)->n_arrays; i++) {
        const uint64_t n = mf_weight_array_bytes(s, i);
        bytes[i] = malloc(n);
        REQUIRE(bytes[i] != NULL);
        fill(s, i, bytes[i], &random);
        op.u.embed.weight.arrays[i] = (mf_span){buffer, at};
        be->ops->write(be, op.u.embed.weight.arrays[i], bytes[i], n);
        at += (n + 63) / 64 * 64;
    }
    for (uint32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (int32_t)(i == 0 ? N_ROWS - 1 : test_random(&random) % N_ROWS);
    op.u.embed.tokens = tokens;
    op.u.embed.out = (mf_span){buffer, (at + 63) / 64 * 64};
    REQUIRE_OK(mf_backend_reserve(be, &op, &error), &error);
    be->ops->record(be, &op);
    REQUIRE_OK(mf_backend_read(be, op.u.embed.out, got, sizeof got, &error), &error);
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        mf_weight_format_of(s)->decode_row(s, (const unsigned char *const *)bytes,
                                           (uint32_t)tokens[i], want);
        check_row(s, got + (size_t)i * N_COLS, want, skew);
    }
    for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++)
        free(bytes[i]);
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
    for (size_t i = 0; i < N_VULKAN_FORMS; i++) {
        mf_weight_shape s = vulkan_forms[i];
        s.n_rows = N_ROWS;
        s.n_cols = N_COLS;
        for (uint64_t skew = 0; skew <= 3; skew++)
            check_form(be, buffer, &s, skew);
    }
    be->ops->destroy(be);
    return test_result();
}
