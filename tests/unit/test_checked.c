/* SPDX-License-Identifier: MIT */
/* Checked arithmetic at its edges. */
#include "base/checked.h"
#include "test.h"

static void test_size(void)
{
    size_t out = 42;
    CHECK(!mf_add_size(SIZE_MAX, 1, &out));
    CHECK(!mf_mul_size(SIZE_MAX / 2 + 1, 2, &out));
    CHECK_U64(out, 42);
    CHECK(mf_add_size(SIZE_MAX - 1, 1, &out));
    CHECK_U64(out, SIZE_MAX);
    CHECK(mf_mul_size(SIZE_MAX / 2, 2, &out));
    CHECK_U64(out, SIZE_MAX - 1);
    CHECK(mf_mul_size(SIZE_MAX, 0, &out));
    CHECK_U64(out, 0);
}

static void test_u64(void)
{
    uint64_t out = 42;
    CHECK(!mf_add_u64(UINT64_MAX, UINT64_MAX, &out));
    CHECK(!mf_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
    CHECK_U64(out, 42);
    CHECK(mf_add_u64(UINT64_MAX, 0, &out));
    CHECK_U64(out, UINT64_MAX);
    CHECK(mf_mul_u64(UINT32_MAX, UINT32_MAX, &out));
    CHECK_U64(out, UINT64_C(18446744065119617025));
}

static void test_round_up(void)
{
    CHECK_U64(mf_round_up(0, 4096), 0);
    CHECK_U64(mf_round_up(1, 4096), 4096);
    CHECK_U64(mf_round_up(4096, 4096), 4096);
    CHECK_U64(mf_round_up(4097, 4096), 8192);
    CHECK_U64(mf_round_up(7, 1), 7);
}

int main(void)
{
    test_size();
    test_u64();
    test_round_up();
    return test_result();
}
