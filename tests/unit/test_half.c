/* SPDX-License-Identifier: MIT */
/* Every 16-bit pattern against the formats' definitions in double arithmetic. */
#include "base/half.h"
#include "test.h"

/* sign * 1.mantissa * 2^(exponent - bias), computed without bit tricks. */
static double decode(uint32_t bits, int n_exponent, int n_mantissa)
{
    int bias = (1 << (n_exponent - 1)) - 1;
    int exponent = (int)(bits >> n_mantissa) & ((1 << n_exponent) - 1);
    double mantissa = (double)(bits & ((1u << n_mantissa) - 1)) / (double)(1u << n_mantissa);
    double sign = bits >> (n_exponent + n_mantissa) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << n_exponent) - 1)
        return mantissa == 0.0 ? sign * (double)INFINITY : (double)NAN;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias);
    return sign * ldexp(1.0 + mantissa, exponent - bias);
}

static bool same(double got, double expected)
{
    if (isnan(expected))
        return isnan(got);
    return got == expected && !signbit(got) == !signbit(expected);
}

static void test_decode_all(void)
{
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        CHECK_MSG(same((double)mf_f32_from_f16((uint16_t)bits), decode(bits, 5, 10)),
                  "binary16 %04x gives %a", bits, (double)mf_f32_from_f16((uint16_t)bits));
        CHECK_MSG(same((double)mf_f32_from_bf16((uint16_t)bits), decode(bits, 8, 7)),
                  "bfloat16 %04x gives %a", bits, (double)mf_f32_from_bf16((uint16_t)bits));
    }
}

static void test_bf16_round_trip(void)
{
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        float value = mf_f32_from_bf16((uint16_t)bits);
        uint16_t back = mf_bf16_from_f32(value);
        if (isnan(value))
            CHECK_MSG(isnan(mf_f32_from_bf16(back)), "NaN %04x became %04x", bits, back);
        else
            CHECK_MSG(back == bits, "%04x became %04x", bits, back);
    }
}

/* Nearest, ties to the even mantissa: against both neighbours, in exact arithmetic. */
static void test_bf16_rounding(void)
{
    uint64_t seed = 1;
    for (int i = 0; i < 200000; i++) {
        uint32_t bits = (uint32_t)(test_random(&seed) >> 32);
        if (i % 4 == 0)
            bits = (bits & 0xffff0000u) | 0x8000u; /* an exact tie */
        if ((bits & 0x7fffffffu) >= 0x7f7f0000u)
            continue; /* the largest finite value has infinity above it */
        double value = (double)mf_f32_from_bits(bits);
        uint16_t got = mf_bf16_from_f32(mf_f32_from_bits(bits));
        uint16_t toward_zero = (uint16_t)(bits >> 16), away = (uint16_t)(toward_zero + 1);
        double below = fabs(value - (double)mf_f32_from_bf16(toward_zero));
        double above = fabs((double)mf_f32_from_bf16(away) - value);
        uint16_t expected = below < above ? toward_zero : away;
        if (below == above)
            expected = toward_zero % 2 == 0 ? toward_zero : away;
        CHECK_MSG(got == expected, "%08x became %04x, expected %04x", bits, got, expected);
    }
    CHECK(mf_bf16_from_f32(mf_f32_from_bits(0x7f7fffffu)) == 0x7f80u); /* FLT_MAX rounds up */
    CHECK(isnan(mf_f32_from_bf16(mf_bf16_from_f32(mf_f32_from_bits(0x7f800001u)))));
}

int main(void)
{
    test_decode_all();
    test_bf16_round_trip();
    test_bf16_rounding();
    return test_result();
}
