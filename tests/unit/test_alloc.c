/* SPDX-License-Identifier: MIT */
/* Allocators, regions and arenas, on the C library and on an allocator that counts and refuses. */
#include "base/alloc.h"
#include "base/memory_limits.h"
#include "failing_alloc.h"

static bool all_zero(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static void test_choice(void)
{
    failing c = {0};
    mf_allocator given = failing_allocator(&c), none = {0};
    CHECK(mf_allocator_or_default(&given).ctx == &c);
    CHECK(mf_allocator_or_default(&none).alloc == mf_allocator_default().alloc);
    CHECK(mf_allocator_or_default(NULL).alloc == mf_allocator_default().alloc);
    mf_allocator taken = none;
    mf_error error = {0};
    REQUIRE_OK(mf_allocator_take(&given, &taken, &error), &error);
    CHECK(taken.ctx == &c);
    REQUIRE_OK(mf_allocator_take(&none, &taken, &error), &error);
    CHECK(taken.alloc == mf_allocator_default().alloc);
    REQUIRE_OK(mf_allocator_take(NULL, &taken, &error), &error);
    given.free = NULL;
    CHECK_STATUS(mf_allocator_take(&given, &taken, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "mf_allocator: free is NULL");
}

static void test_basic(void)
{
    failing c = {0};
    mf_allocator a = failing_allocator(&c);
    unsigned char *p = mf_alloc_zeroed(&a, 100);
    REQUIRE(p != NULL);
    CHECK(all_zero(p, 100));
    memset(p, 7, 100);
    p = mf_realloc(&a, p, 100, 1000);
    REQUIRE(p != NULL);
    CHECK(p[0] == 7 && p[99] == 7);
    CHECK_U64(c.live_bytes, 1000);
    mf_free(&a, p, 1000);
    mf_free(&a, NULL, 0);

    /* Size 0 is a real allocation whose sizes match on free. */
    p = mf_alloc(&a, 0);
    CHECK(p != NULL);
    p = mf_realloc(&a, p, 0, 0);
    mf_free(&a, p, 0);
    p = mf_realloc(&a, NULL, 0, 10);
    CHECK(p != NULL);
    mf_free(&a, p, 10);
    CHECK_U64(c.live_bytes, 0);

    CHECK(mf_alloc_array(&a, SIZE_MAX / 8 + 1, 16) == NULL);
    uint32_t *array = mf_alloc_array(&a, 10, sizeof *array);
    REQUIRE(array != NULL);
    CHECK(all_zero((unsigned char *)array, 10 * sizeof *array));
    mf_free(&a, array, 10 * sizeof *array);
    CHECK_U64(c.live_bytes, 0);
}

/* Blocks are given back with the size that was taken, and aligned for anything. */
static void test_blocks(void)
{
    failing c = {0};
    mf_allocator a = failing_allocator(&c);
    unsigned char *p = mf_block_alloc(&a, 100);
    REQUIRE(p != NULL);
    CHECK_U64((uintptr_t)p % _Alignof(max_align_t), 0);
    memset(p, 7, 100);
    p = mf_block_realloc(&a, p, 5000);
    REQUIRE(p != NULL);
    CHECK(p[0] == 7 && p[99] == 7);
    memset(p, 8, 5000);
    CHECK(mf_block_realloc(&a, p, SIZE_MAX - 3) == NULL);
    failing_arm(&c, 1, true);
    CHECK(mf_block_realloc(&a, p, 6000) == NULL);
    CHECK(failing_disarm(&c));
    CHECK(p[4999] == 8);
    p = mf_block_realloc(&a, p, 1);
    REQUIRE(p != NULL && p[0] == 8);
    mf_block_free(&a, p);
    mf_block_free(&a, NULL);
    p = mf_block_realloc(&a, NULL, 3);
    REQUIRE(p != NULL);
    mf_block_free(&a, p);
    CHECK(mf_block_alloc(&a, SIZE_MAX - 3) == NULL);
    failing_check_end(&c, "blocks");
}

static void check_region(const mf_allocator *a)
{
    mf_region region = {0};
    mf_error error;
    REQUIRE_OK(mf_region_create(a, 3000001, "a test", &region, &error), &error);
    CHECK(region.n_bytes >= 3000001);
    CHECK((uintptr_t)region.base % ((size_t)2 << 20) == 0);
    CHECK(all_zero(region.base, region.n_bytes));
    memset(region.base, 0xaa, region.n_bytes); /* every byte of it is ours */
    mf_region_free(a, &region);
    CHECK(region.base == NULL && region.n_bytes == 0);
    mf_region_free(a, &region);

    CHECK_STATUS(mf_region_create(a, SIZE_MAX - 5, "a test", &region, &error), MF_ERR_NO_MEMORY);
    CHECK_STATUS(mf_region_create(a, 0, "a test", &region, NULL), MF_ERR_NO_MEMORY);
    CHECK(region.base == NULL);
}

static void test_region(void)
{
    failing c = {0};
    mf_allocator fallback = mf_allocator_default(), a = failing_allocator(&c);
    check_region(&fallback);
    check_region(&a);
    CHECK_U64(c.live_bytes, 0);

    mf_region region = {0};
    failing_arm(&c, 1, true);
    CHECK_STATUS(mf_region_create(&a, 100, "a test", &region, NULL), MF_ERR_NO_MEMORY);
    CHECK(region.base == NULL);
}

/* The budget counts on pages that were never touched not being resident. */
static void test_region_is_lazy(void)
{
    mf_allocator a = mf_allocator_default();
    mf_region region;
    mf_error error;
    const size_t n_bytes = (size_t)256 << 20;
    REQUIRE_OK(mf_region_create(&a, n_bytes, "a test", &region, &error), &error);
    uint64_t before = mf_memory_resident_bytes();
    region.base[0] = 1;
    uint64_t after = mf_memory_resident_bytes();
    CHECK(before != 0 && after < before + n_bytes / 4);
    mf_region_free(&a, &region);
}

static void test_arena(void)
{
    failing c = {0};
    mf_allocator a = failing_allocator(&c);
    mf_arena arena = {0};
    mf_error error;
    REQUIRE_OK(mf_arena_create(&a, 256, "a test", &arena, &error), &error);
    unsigned char *previous_end = NULL;
    const size_t sizes[] = {1, 64, 65};
    for (size_t i = 0; i < 3; i++) {
        unsigned char *p = mf_arena_take(&arena, sizes[i]);
        REQUIRE(p != NULL);
        CHECK((uintptr_t)p % 64 == 0);
        CHECK(p >= previous_end);
        CHECK(all_zero(p, sizes[i]));
        memset(p, 0xee, sizes[i]);
        previous_end = p + sizes[i];
    }
    CHECK(mf_arena_take(&arena, 65) == NULL);
    CHECK(mf_arena_take(&arena, SIZE_MAX) == NULL);
    CHECK(c.n_calls == 1);
    mf_arena_free(&arena);
    mf_arena_free(&arena);
    CHECK_U64(c.live_bytes, 0);

    /* An arena holds what it was sized for, wherever its block begins. */
    for (size_t i = 0; i < 16; i++) {
        REQUIRE_OK(mf_arena_create(&a, 640, "a test", &arena, &error), &error);
        for (size_t k = 0; k < 10; k++)
            CHECK(mf_arena_take(&arena, 64) != NULL);
        mf_arena_free(&arena);
    }
    failing_arm(&c, 1, true);
    CHECK_STATUS(mf_arena_create(&a, 10, "a test", &arena, &error), MF_ERR_NO_MEMORY);
    CHECK_CONTAINS(error.message, "a test");
    CHECK_STATUS(mf_arena_create(&a, SIZE_MAX, "a test", &arena, NULL), MF_ERR_NO_MEMORY);
}

int main(void)
{
    test_choice();
    test_basic();
    test_blocks();
    test_region();
    test_region_is_lazy();
    test_arena();
    return test_result();
}
