/* SPDX-License-Identifier: MIT */
/*
 * The pool of state units: the limit holds for both kinds together whatever order they come and go
 * in, memory that one kind left behind goes to the other, and units in use keep their bytes.
 */
#include "failing_alloc.h"
#include "test.h"

#include "backend/cpu/cpu_backend.h"
#include "session/state_pool.h"

#include <unistd.h>

enum { PAGE = 40000, RECURRENT = 300000, LIMIT = 24 << 20, KEPT_OF = 50, MOST = 2000 };

typedef struct fixture {
    mf_backend *backend;
    mf_state_pool pool;
    mf_unit pages[MOST], recurrent[MOST];
    uint32_t n_pages, n_recurrent;
    /* Of one unit: in the fixture, since sanitizers hold back what is freed. */
    unsigned char bytes[PAGE > RECURRENT ? PAGE : RECURRENT];
} fixture;

static void set_up(fixture *f, const mf_allocator *a)
{
    mf_error error = {0};
    const mf_backend_options options = {.allocator = *a, .n_threads = 1};
    memset(f, 0, sizeof *f);
    REQUIRE_OK(mf_cpu_backend_create(&options, &f->backend, &error), &error);
    const uint64_t sizes[] = {
        [MF_UNIT_PAGE] = PAGE, [MF_UNIT_WINDOW] = 0, [MF_UNIT_RECURRENT] = RECURRENT};
    mf_state_pool_init(&f->pool, a, f->backend, sizes, LIMIT);
}

static void tear_down(fixture *f)
{
    mf_state_pool_free(&f->pool);
    f->backend->ops->destroy(f->backend);
}

static void fill_unit(fixture *f, mf_unit_kind kind, mf_unit unit, int value)
{
    const uint64_t size = f->pool.kinds[kind].unit_bytes;
    memset(f->bytes, value, size);
    f->backend->ops->write(f->backend, mf_unit_span(&f->pool, kind, unit), f->bytes, size);
}

/* As many units as the limit allows, each filled with a byte of its own. */
static uint32_t take_all(fixture *f, mf_unit_kind kind, mf_unit *units)
{
    mf_error error = {0};
    for (uint32_t n = 0; n < MOST; n++) {
        mf_status status = mf_unit_take(&f->pool, kind, &units[n], &error);
        CHECK(f->pool.touched_bytes <= LIMIT);
        if (status != MF_OK) {
            CHECK_STATUS(status, MF_ERR_BUDGET);
            return n;
        }
        fill_unit(f, kind, units[n], (int)(n % 251 + 1));
    }
    return MOST;
}

static bool is_intact(fixture *f, mf_unit_kind kind, mf_unit unit, uint32_t n)
{
    const uint64_t size = f->pool.kinds[kind].unit_bytes;
    mf_error error = {0};
    bool is_same = true;
    REQUIRE_OK(
        mf_backend_read(f->backend, mf_unit_span(&f->pool, kind, unit), f->bytes, size, &error),
        &error);
    for (uint64_t i = 0; i < size && is_same; i++)
        is_same = f->bytes[i] == n % 251 + 1;
    return is_same;
}

/* All pages, of which every 50th stays; then recurrent states. */
static uint32_t fill_both(fixture *f)
{
    uint32_t n_kept = 0;
    f->n_pages = take_all(f, MF_UNIT_PAGE, f->pages);
    CHECK_U64(f->n_pages, LIMIT / PAGE);
    for (uint32_t i = 0; i < f->n_pages; i++) {
        n_kept += i % KEPT_OF == 0;
        if (i % KEPT_OF != 0)
            mf_unit_drop(&f->pool, MF_UNIT_PAGE, f->pages[i]);
    }
    f->n_recurrent = take_all(f, MF_UNIT_RECURRENT, f->recurrent);
    return n_kept;
}

static void check_and_drop(fixture *f)
{
    for (uint32_t i = 0; i < f->n_pages; i += KEPT_OF) {
        CHECK_MSG(is_intact(f, MF_UNIT_PAGE, f->pages[i], i), "page %u was written over", i);
        mf_unit_drop(&f->pool, MF_UNIT_PAGE, f->pages[i]);
    }
    for (uint32_t i = 0; i < f->n_recurrent; i++) {
        CHECK_MSG(is_intact(f, MF_UNIT_RECURRENT, f->recurrent[i], i), "state %u was written over",
                  i);
        mf_unit_drop(&f->pool, MF_UNIT_RECURRENT, f->recurrent[i]);
    }
}

static uint64_t resident_bytes(void)
{
    unsigned long n_all = 0, n_resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    REQUIRE(file != NULL && fscanf(file, "%lu %lu", &n_all, &n_resident) == 2);
    fclose(file);
    return (uint64_t)n_resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What pages left behind between others that stay goes to the recurrent states, and back. */
static void test_kinds_in_turn(fixture *f)
{
    const mf_allocator a = mf_allocator_default();
    set_up(f, &a);
    const uint64_t before = resident_bytes();
    for (int round = 0; round < 3; round++) {
        uint32_t n_kept = fill_both(f);
        CHECK_U64(f->n_recurrent, (LIMIT - (uint64_t)n_kept * PAGE) / RECURRENT);
        /* the shadow of the sanitizers is an eighth more */
        CHECK(resident_bytes() < before + LIMIT + LIMIT / 4);
        check_and_drop(f);
    }
    CHECK_U64(f->pool.kinds[MF_UNIT_PAGE].n_used + f->pool.kinds[MF_UNIT_RECURRENT].n_used, 0);
    tear_down(f);
}

/* The caller's memory cannot be given back by halves: the limit holds, and that is said. */
static void test_own_allocator(fixture *f)
{
    failing counts = {0};
    const mf_allocator a = failing_allocator(&counts);
    set_up(f, &a);
    (void)fill_both(f);
    CHECK(f->n_recurrent < LIMIT / RECURRENT);
    check_and_drop(f);
    CHECK_U64(take_all(f, MF_UNIT_RECURRENT, f->recurrent), LIMIT / RECURRENT);
    for (uint32_t i = 0; i < LIMIT / RECURRENT; i++)
        mf_unit_drop(&f->pool, MF_UNIT_RECURRENT, f->recurrent[i]);
    tear_down(f);
    CHECK(counts.n_live == 0 && counts.n_wrong_sizes == 0 && counts.n_overrun == 0);
}

int main(void)
{
    static fixture f;
    test_kinds_in_turn(&f);
    test_own_allocator(&f);
    return test_result();
}
