/* SPDX-License-Identifier: MIT */
/*
 * What passes between the stream and the host while the stream goes on: a stream that hands over
 * rows and waits for what the host makes of them, again and again, in one submission after the
 * other; and that a device which waits for nothing gives up and says so.
 */
#include "backend/host_words.h"
#include "backend/vulkan/vk_internal.h"
#include "test.h"
#include "vulkan_open.h"

#include "base/clock.h"

#include <sched.h>

enum { N_COLS = 1000, N_FEW = 3, MOST_ROWS = 4 };

#define WIDTH (N_COLS + 2 * N_FEW)
#define THERE_BYTES (MOST_ROWS * (uint64_t)WIDTH * sizeof(mf_host_word))
#define BACK_BYTES (MOST_ROWS * (uint64_t)N_COLS * sizeof(mf_host_word))
#define ROW_BYTES (MOST_ROWS * N_COLS * sizeof(float))
#define ANSWER_US 5000000u

typedef struct play {
    mf_backend *be;
    mf_buffer rows, there_words, back_words;
    mf_host_word *there, *back;
    uint32_t *late;
    uint32_t number, n_rows;
    float answer[MOST_ROWS * N_COLS];
} play;

static mf_span place(const play *p, uint32_t i)
{
    return (mf_span){p->rows, i * ROW_BYTES};
}

static mf_op to_host(const play *p)
{
    return (mf_op){.kind = MF_OP_TO_HOST,
                   .n_rows = p->n_rows,
                   .u.to_host = {.arrays = {place(p, 1), place(p, 2), place(p, 0)},
                                 .n_cols = {N_FEW, N_FEW, N_COLS},
                                 .words = {p->there_words, 0},
                                 .number = p->number}};
}

static mf_op from_host(const play *p)
{
    return (mf_op){.kind = MF_OP_FROM_HOST,
                   .n_rows = p->n_rows,
                   .u.from_host = {.words = {p->back_words, 0},
                                   .late = {p->there_words, THERE_BYTES},
                                   .out = place(p, 3),
                                   .n_cols = N_COLS,
                                   .number = p->number}};
}

/* rows += what came back */
static mf_op add(const play *p)
{
    return (mf_op){.kind = MF_OP_ADD,
                   .n_rows = p->n_rows,
                   .u.add = {.x = place(p, 0), .y = place(p, 3), .n_cols = N_COLS}};
}

static mf_host_word *words(mf_backend *be, mf_buffer_use use, uint64_t n_bytes, mf_buffer *buffer)
{
    mf_error error = {0};
    REQUIRE_OK(be->ops->buffer_create(be, n_bytes, use, "words", buffer, &error), &error);
    void *host = be->ops->buffer_host(be, *buffer);
    memset(host, 0, n_bytes);
    return host;
}

static void begin(play *p, mf_backend *be)
{
    mf_error error = {0};
    float rows[MOST_ROWS * N_COLS];
    const mf_op there = to_host(p), back = from_host(p), sum = add(p);
    *p = (play){.be = be, .n_rows = MOST_ROWS};
    REQUIRE_OK(be->ops->buffer_create(be, 4 * ROW_BYTES, MF_USE_DEVICE, "rows", &p->rows, &error),
               &error);
    p->there = words(be, MF_USE_HOST, THERE_BYTES + sizeof(uint32_t), &p->there_words);
    p->back = words(be, MF_USE_SHARED, BACK_BYTES, &p->back_words);
    p->late = (uint32_t *)(void *)(p->there + MOST_ROWS * WIDTH);
    REQUIRE_OK(mf_backend_reserve(be, &there, &error), &error);
    REQUIRE_OK(mf_backend_reserve(be, &back, &error), &error);
    REQUIRE_OK(mf_backend_reserve(be, &sum, &error), &error);
    for (uint32_t i = 0; i < MOST_ROWS * N_COLS; i++)
        rows[i] = (float)(i % 97);
    for (uint32_t i = 0; i < 3; i++)
        be->ops->write(be, place(p, i), rows, ROW_BYTES);
}

/* Whether the stream's n values come; 1 more than each goes back. */
static void answer(play *p)
{
    const size_t n_few = (size_t)p->n_rows * N_FEW, n = (size_t)p->n_rows * N_COLS;
    float got[MOST_ROWS * WIDTH] = {0};
    const uint64_t end = mf_now_us() + ANSWER_US;
    size_t n_got = 0;
    while (n_got < 2 * n_few + n && mf_now_us() < end) {
        n_got +=
            mf_host_words_take(p->there + n_got, p->number, got + n_got, 2 * n_few + n - n_got);
        (void)sched_yield(); /* a device in software may want this core */
    }
    CHECK_U64(n_got, 2 * n_few + n);
    for (size_t i = 0; i < n_few; i++)
        CHECK(got[i] == (float)(i % 97) && got[n_few + i] == got[i]);
    for (size_t i = 0; i < n; i++)
        p->answer[i] = got[2 * n_few + i] + 1.0f;
    mf_host_words_put(p->back, p->number, p->answer, n);
}

/* Rows are doubled, and 1 is added, each time. */
static void check_rounds(play *p, uint32_t n_rounds)
{
    mf_error error = {0};
    float rows[MOST_ROWS * N_COLS], want[MOST_ROWS * N_COLS];
    REQUIRE_OK(mf_backend_read(p->be, place(p, 0), want, ROW_BYTES, &error), &error);
    const uint64_t began = mf_now_us();
    for (uint32_t round = 0; round < n_rounds; round++) {
        p->number++;
        p->n_rows = round % MOST_ROWS + 1;
        const mf_op there = to_host(p), back = from_host(p), sum = add(p);
        p->be->ops->record(p->be, &there);
        p->be->ops->hold(p->be);
        p->be->ops->record(p->be, &back);
        p->be->ops->record(p->be, &sum);
        p->be->ops->go(p->be);
        answer(p);
        for (uint32_t i = 0; i < p->n_rows * N_COLS; i++)
            want[i] += want[i] + 1.0f;
    }
    printf("%u rounds: %.1f us each\n", n_rounds, (double)(mf_now_us() - began) / n_rounds);
    REQUIRE_OK(mf_backend_read(p->be, place(p, 0), rows, ROW_BYTES, &error), &error);
    CHECK_BYTES((const void *)rows, (const void *)want, ROW_BYTES);
    CHECK_U64(*p->late, 0);
    CHECK(!p->be->ops->is_lost(p->be));
}

/* Nobody answers; what is asked for later comes. A GPU waits for half a minute. */
static void check_late(play *p)
{
    mf_error error = {0};
    p->number++;
    p->n_rows = 1;
    const mf_op back = from_host(p);
    p->be->ops->record(p->be, &back);
    REQUIRE_OK(mf_backend_finish(p->be, &error), &error);
    CHECK_U64(*p->late, 1);
    *p->late = 0;
    check_rounds(p, 2);
}

int main(void)
{
    const mf_vk_hooks hooks = {.n_resident = 1};
    const mf_backend_options options = {.device = vulkan_test_device()};
    mf_error error = {0};
    mf_backend *be = NULL;
    play p = {0};
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    REQUIRE_OK(mf_vk_backend_create(&options, &hooks, &be, &error), &error);
    begin(&p, be);
    check_rounds(&p, 12);
    check_late(&p);
    be->ops->destroy(be);
    return test_result();
}
