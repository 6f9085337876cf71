/* SPDX-License-Identifier: MIT */
/* The quantiser: its error against that of mlx.core.quantize on the same rows (data/quantise.bin,
 * by tools/make_quantise_goldens.py), what it says of its error against what is decoded, weights of
 * columns, and rows that cannot be had; and float16, which it stores, number by number. */
#include "test.h"

#include "base/half.h"
#include "base/weight_format.h"
#include "quantise/quantise.h"

static const uint32_t all_bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};

typedef struct coded {
    unsigned char values[1024], scales[64], biases[64];
} coded;

static bool quantise(const mf_quantise_form *form, const float *row, const float *importance,
                     uint32_t n_cols, coded *out, mf_quantise_loss *loss)
{
    const mf_quantise_job job = {row, importance, n_cols, out->values, out->scales, out->biases};
    return mf_quantise_row(form, &job, loss);
}

/* The squared error of what the engine decodes. */
static double decoded_error(const mf_quantise_form *form, const float *row, const float *importance,
                            uint32_t n_cols, const coded *c)
{
    const mf_weight_shape shape = {.kind = MF_WEIGHT_AFFINE,
                                   .float_type = MF_F16,
                                   .bits = form->bits,
                                   .group = form->group,
                                   .n_rows = 1,
                                   .n_cols = n_cols};
    const unsigned char *const arrays[] = {c->values, c->scales, c->biases};
    float decoded[1024];
    double error = 0;
    REQUIRE(n_cols <= 1024 && mf_weight_shape_is_sound(&shape));
    mf_weight_format_of(&shape)->decode_row(&shape, arrays, 0, decoded);
    for (uint32_t i = 0; i < n_cols; i++) {
        const double d = (double)decoded[i] - (double)row[i];
        error += d * d * (importance != NULL ? (double)importance[i] : 1.0);
    }
    return error;
}

static void check_golden(void)
{
    uint32_t shape[2];
    FILE *f = fopen("tests/unit/data/quantise.bin", "rb");
    REQUIRE(f != NULL && fread(shape, 4, 2, f) == 2 && shape[0] <= 64 && shape[1] <= 1024);
    const size_t n = (size_t)shape[0] * shape[1];
    float *rows = malloc(n * sizeof *rows);
    double theirs[64];
    REQUIRE(rows != NULL && fread(rows, sizeof *rows, n, f) == n);
    for (size_t b = 0; b < 6; b++) {
        for (size_t g = 0; g < 3; g++) {
            const mf_quantise_form form = {all_bits[b], groups[g]};
            double sum = 0, sum_theirs = 0;
            REQUIRE(fread(theirs, sizeof *theirs, shape[0], f) == shape[0]);
            for (uint32_t r = 0; r < shape[0]; r++) {
                const float *row = rows + (size_t)r * shape[1];
                mf_quantise_loss loss = {0};
                coded c;
                REQUIRE(quantise(&form, row, NULL, shape[1], &c, &loss));
                const double error = decoded_error(&form, row, NULL, shape[1], &c);
                CHECK_MSG(error <= theirs[r] * 1.0001, "%u bits of %u, row %u: %g, theirs %g",
                          form.bits, form.group, r, error, theirs[r]);
                CHECK_MSG(fabs(loss.error - error) <= 1e-3 * error + 1e-12,
                          "row %u: says %g, is %g", r, loss.error, error);
                sum += sqrt(error);
                sum_theirs += sqrt(theirs[r]);
            }
            if (form.bits <= 4) /* and not by chance */
                CHECK_MSG(sum < 0.97 * sum_theirs, "%u bits of %u: %g of %g", form.bits, form.group,
                          sum, sum_theirs);
        }
    }
    fclose(f);
    free(rows);
}

/* A column that counts a hundred times is better off than when all count alike. */
static void check_importance(void)
{
    const mf_quantise_form form = {3, 64};
    float row[512], importance[512];
    mf_quantise_loss loss = {0};
    coded even, weighted;
    uint32_t state = 1;
    for (uint32_t i = 0; i < 512; i++) {
        row[i] = 0;
        for (int j = 0; j < 6; j++) {
            state = state * 1664525u + 1013904223u;
            row[i] += (float)(int32_t)state * 0x1p-37f;
        }
        importance[i] = i % 7 == 0 ? 100.0f : 1.0f;
    }
    REQUIRE(quantise(&form, row, NULL, 512, &even, &loss));
    REQUIRE(quantise(&form, row, importance, 512, &weighted, &loss));
    CHECK(decoded_error(&form, row, importance, 512, &weighted) <
          0.9 * decoded_error(&form, row, importance, 512, &even));
    memset(importance, 0, sizeof importance);
    REQUIRE(quantise(&form, row, importance, 512, &weighted, &loss));
    CHECK(memcmp(weighted.values, even.values, 512 * 3 / 8) == 0);
}

static void check_odd_rows(void)
{
    float row[128];
    mf_quantise_loss loss = {0};
    coded c;
    for (size_t b = 0; b < 6; b++) {
        const mf_quantise_form form = {all_bits[b], 128};
        for (uint32_t i = 0; i < 128; i++)
            row[i] = 0.0f;
        REQUIRE(quantise(&form, row, NULL, 128, &c, &loss));
        CHECK(decoded_error(&form, row, NULL, 128, &c) == 0);
        for (uint32_t i = 0; i < 128; i++)
            row[i] = -0.375f;
        REQUIRE(quantise(&form, row, NULL, 128, &c, &loss));
        CHECK(decoded_error(&form, row, NULL, 128, &c) == 0);
        for (uint32_t i = 0; i < 128; i++)
            row[i] = i % 2 == 0 ? 65504.0f : -65504.0f;
        CHECK(quantise(&form, row, NULL, 128, &c, &loss));
        row[5] = NAN;
        CHECK(!quantise(&form, row, NULL, 128, &c, &loss));
        row[5] = INFINITY;
        CHECK(!quantise(&form, row, NULL, 128, &c, &loss));
        row[5] = 70000.0f;
        CHECK(!quantise(&form, row, NULL, 128, &c, &loss));
    }
}

/* Every number there is, and what lies at, before and behind the middle of two. */
static void check_half(void)
{
    for (uint32_t h = 0; h < 0x7c00; h++) {
        const float low = mf_f32_from_f16((uint16_t)h);
        CHECK(mf_f16_from_f32(low) == h && mf_f16_from_f32(-low) == (h | 0x8000u));
        const float high = h == 0x7bff ? 65536.0f : mf_f32_from_f16((uint16_t)(h + 1));
        const float middle = low + 0.5f * (high - low);
        CHECK_MSG(mf_f16_from_f32(middle) == h + (h & 1), "half %x", h);
        CHECK_MSG(mf_f16_from_f32(nextafterf(middle, 0)) == h, "half %x", h);
        CHECK_MSG(mf_f16_from_f32(nextafterf(middle, INFINITY)) == h + 1, "half %x", h);
    }
    CHECK(mf_f16_from_f32(INFINITY) == 0x7c00 && mf_f16_from_f32(-1e30f) == 0xfc00);
    CHECK((mf_f16_from_f32(NAN) & 0x7fff) > 0x7c00 && mf_f16_from_f32(1e-30f) == 0);
}

int main(void)
{
    check_half();
    check_golden();
    check_importance();
    check_odd_rows();
    return test_result();
}
