/* SPDX-License-Identifier: MIT */
/*
 * Uploads ahead of the stream on a Vulkan device, with a queue for copies and without: everything
 * called afterwards finds the bytes, and with a queue only submissions that use them begin after
 * them. Where the device has one queue alone, it is taken for two (mf_vk_hooks): what is told to
 * the driver is the same.
 */
#include "backend/vulkan/vk_internal.h"
#include "test.h"
#include "vulkan_open.h"

#define N_ROWS 16u
#define N_COLS 64u
#define ROW_BYTES ((uint64_t)N_COLS * sizeof(float))
#define N_SOURCES 64u

static mf_vk_api driver;
static uint64_t n_waits, last_wait, n_submissions;

static VkResult see_submission(VkQueue queue, uint32_t n, const VkSubmitInfo2 *info, VkFence fence)
{
    n_submissions++;
    for (uint32_t i = 0; i < info->waitSemaphoreInfoCount; i++) {
        n_waits++;
        last_wait = info->pWaitSemaphoreInfos[i].value;
    }
    return driver.QueueSubmit2(queue, n, info, fence);
}

static void stand_between(void *ctx, mf_vk_api *api)
{
    (void)ctx;
    driver = *api;
    api->QueueSubmit2 = see_submission;
}

typedef struct play {
    mf_backend *be;
    mf_buffer device, staging, more;
    float *sources; /* [N_SOURCES] rows */
    mf_ticket source_until[N_SOURCES];
    mf_ticket row_until[N_ROWS]; /* of what used the row last */
    float rows[N_ROWS][N_COLS];  /* as they are when all is done */
    uint64_t random;
} play;

static void play_open(play *p, bool has_queue)
{
    const mf_vk_hooks hooks = {
        .loaded = stand_between, .has_own_memory = true, .has_copy_queue = has_queue};
    const mf_backend_options options = {.device = vulkan_test_device()};
    const mf_op add = {.kind = MF_OP_ADD, .n_rows = N_ROWS, .u.add = {.n_cols = N_COLS}};
    mf_error error = {0};
    *p = (play){.random = 99};
    REQUIRE_OK(mf_vk_backend_create(&options, &hooks, &p->be, &error), &error);
    const mf_backend_ops *ops = p->be->ops;
    REQUIRE_OK(
        ops->buffer_create(p->be, N_ROWS * ROW_BYTES, MF_USE_DEVICE, "rows", &p->device, &error),
        &error);
    REQUIRE_OK(
        ops->buffer_create(p->be, (uint64_t)6 << 20, MF_USE_DEVICE, "more", &p->more, &error),
        &error);
    REQUIRE_OK(ops->buffer_create(p->be, (uint64_t)6 << 20, MF_USE_STAGING, "sources", &p->staging,
                                  &error),
               &error);
    p->sources = (float *)(void *)ops->buffer_host(p->be, p->staging);
    REQUIRE_OK(mf_backend_reserve(p->be, &add, &error), &error);
    CHECK(ops->buffer_host(p->be, p->device) == NULL);
    ops->write(p->be, (mf_span){p->device, 0}, p->rows, sizeof p->rows);
}

static uint32_t pick(play *p, uint32_t n)
{
    return (uint32_t)(test_random(&p->random) >> 33) % n;
}

static mf_span row(const play *p, uint32_t i)
{
    return (mf_span){p->device, i * ROW_BYTES};
}

/* A source that nothing reads any more, with new values. */
static uint32_t new_source(play *p, uint32_t i)
{
    mf_error error = {0};
    REQUIRE_OK(p->be->ops->wait_for(p->be, p->source_until[i], &error), &error);
    for (uint32_t c = 0; c < N_COLS; c++)
        p->sources[i * N_COLS + c] = (float)pick(p, 1000);
    return i;
}

/* One to three rows at once. What used them is waited for; uploads to them need not be. */
static void upload_rows(play *p)
{
    mf_upload uploads[3];
    uint32_t sources[3];
    const uint32_t n = 1 + pick(p, 3), first = pick(p, N_ROWS - 2);
    mf_error error = {0};
    for (uint32_t i = 0; i < n; i++) {
        sources[i] = new_source(p, 3 * pick(p, N_SOURCES / 3) + i);
        REQUIRE_OK(p->be->ops->wait_for(p->be, p->row_until[first + i], &error), &error);
        const float *from = p->sources + sources[i] * N_COLS;
        uploads[i] = (mf_upload){row(p, first + i), from, ROW_BYTES};
        memcpy(p->rows[first + i], from, ROW_BYTES);
    }
    const mf_ticket ticket = mf_backend_upload_ahead(p->be, uploads, n);
    for (uint32_t i = 0; i < n; i++)
        p->source_until[sources[i]] = ticket;
}

static void add_rows(play *p)
{
    const uint32_t a = pick(p, N_ROWS), b = pick(p, N_ROWS);
    const mf_op op = {.kind = MF_OP_ADD,
                      .n_rows = 1,
                      .u.add = {.x = row(p, a), .y = row(p, b), .n_cols = N_COLS}};
    if (a == b)
        return;
    p->be->ops->record(p->be, &op);
    for (uint32_t c = 0; c < N_COLS; c++)
        p->rows[a][c] += p->rows[b][c];
    p->row_until[a] = p->row_until[b] = p->be->ops->mark(p->be);
}

static void copy_row(play *p)
{
    const uint32_t a = pick(p, N_ROWS), b = pick(p, N_ROWS);
    if (a == b)
        return;
    p->be->ops->copy(p->be, row(p, a), row(p, b), ROW_BYTES);
    memcpy(p->rows[a], p->rows[b], ROW_BYTES);
    p->row_until[a] = p->row_until[b] = p->be->ops->mark(p->be);
}

static void write_row(play *p)
{
    const uint32_t a = pick(p, N_ROWS);
    for (uint32_t c = 0; c < N_COLS; c++)
        p->rows[a][c] = (float)pick(p, 1000);
    p->be->ops->write(p->be, row(p, a), p->rows[a], ROW_BYTES);
    p->row_until[a] = p->be->ops->mark(p->be);
}

static void check_row(play *p)
{
    const uint32_t a = pick(p, N_ROWS);
    float got[N_COLS];
    mf_error error = {0};
    REQUIRE_OK(mf_backend_read(p->be, row(p, a), got, ROW_BYTES, &error), &error);
    CHECK_BYTES(got, p->rows[a], ROW_BYTES);
}

static void check_random_calls(bool has_queue)
{
    play p;
    play_open(&p, has_queue);
    n_waits = 0;
    for (int i = 0; i < 3000; i++) {
        switch (pick(&p, 8)) {
        case 0:
            copy_row(&p);
            break;
        case 1:
            write_row(&p);
            break;
        case 2:
        case 3:
            add_rows(&p);
            break;
        case 4:
            check_row(&p);
            break;
        default:
            upload_rows(&p);
        }
        for (uint32_t r = 0; r < N_ROWS; r++) /* float32 counts on */
            if (p.rows[r][0] > 1e6f) {
                memset(p.rows[r], 0, ROW_BYTES);
                p.be->ops->write(p.be, row(&p, r), p.rows[r], ROW_BYTES);
                p.row_until[r] = p.be->ops->mark(p.be);
            }
    }
    for (int i = 0; i < 40; i++)
        check_row(&p);
    const bool has_one = ((mf_vk_backend *)p.be)->ahead.queue != VK_NULL_HANDLE; /* of its own */
    CHECK(has_one || !has_queue);
    CHECK_MSG((n_waits > 100) == has_one, "%llu submissions waited", (unsigned long long)n_waits);
    for (uint32_t i = 0; i < N_SOURCES; i++)
        CHECK(p.be->ops->wait_for(p.be, p.source_until[i], NULL) == MF_OK &&
              p.be->ops->done(p.be, p.source_until[i]));
    p.be->ops->destroy(p.be);
}

static void record_add(play *p, uint32_t a, uint32_t b)
{
    const mf_op op = {.kind = MF_OP_ADD,
                      .n_rows = 1,
                      .u.add = {.x = row(p, a), .y = row(p, b), .n_cols = N_COLS}};
    p->be->ops->record(p->be, &op);
}

/* Who waits for which: seen by the driver. */
static void check_who_waits(void)
{
    play p;
    mf_error error = {0};
    play_open(&p, true);
    mf_vk_backend *be = (mf_vk_backend *)p.be;
    REQUIRE_OK(mf_backend_finish(p.be, &error), &error);
    n_waits = n_submissions = 0;
    const mf_upload small = {row(&p, 0), p.sources, ROW_BYTES};
    const mf_upload large = {{p.more, 0}, p.sources, (uint64_t)4 << 20};
    const mf_upload other = {{p.more, (uint64_t)5 << 20}, p.sources, ROW_BYTES};
    /* a large one begins by itself, a small one with what is submitted next */
    const mf_ticket first = mf_backend_upload_ahead(p.be, &large, 1);
    CHECK_U64(n_submissions, 1);
    const mf_ticket second = mf_backend_upload_ahead(p.be, &small, 1);
    CHECK_U64(n_submissions, 1);
    CHECK(first < second);
    /* other rows wait for nothing */
    record_add(&p, 2, 3);
    REQUIRE_OK(mf_backend_finish(p.be, &error), &error);
    CHECK(n_submissions == 3 && n_waits == 0);
    /* what was recorded before does not wait for what the next one needs */
    record_add(&p, 4, 5);
    be->ahead.retired = 0; /* as if it were still under way */
    record_add(&p, 1, 0);
    REQUIRE_OK(mf_backend_finish(p.be, &error), &error);
    CHECK_U64(n_waits, 1);
    CHECK_U64(last_wait, second & ~MF_VK_AHEAD_BIT);
    /* once is enough, also for the ones before */
    p.be->ops->copy(p.be, row(&p, 6), (mf_span){p.more, 0}, ROW_BYTES);
    record_add(&p, 1, 0);
    REQUIRE_OK(mf_backend_finish(p.be, &error), &error);
    CHECK_U64(n_waits, 1);
    /* more than can be kept: then for what was forgotten, whatever is used */
    for (uint32_t i = 0; i <= MF_VK_AHEAD_PENDING + 1; i++) {
        (void)mf_backend_upload_ahead(p.be, i % 2 == 0 ? &small : &other, 1);
        mf_vk_ahead_submit(be);
    }
    CHECK_U64(be->ahead.n_pending, MF_VK_AHEAD_PENDING);
    record_add(&p, 8, 9);
    REQUIRE_OK(mf_backend_finish(p.be, &error), &error);
    CHECK_U64(n_waits, 2);
    record_add(&p, 1, 0);
    REQUIRE_OK(mf_backend_finish(p.be, &error), &error);
    CHECK_U64(n_waits, 3);
    CHECK(be->ahead.n_pending <= 1);
    REQUIRE_OK(p.be->ops->wait_for(p.be, first, &error), &error);
    REQUIRE_OK(p.be->ops->wait_for(p.be, be->ahead.submitted | MF_VK_AHEAD_BIT, &error), &error);
    p.be->ops->destroy(p.be);
}

int main(void)
{
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    check_random_calls(true);
    check_random_calls(false);
    check_who_waits();
    return test_result();
}
