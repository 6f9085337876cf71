/* SPDX-License-Identifier: MIT */
/*
 * Random work in the stream of backend.h: whatever the order of execution, nobody can tell it from
 * that of the calls. On the CPU and on the strict backend; with the argument "vulkan" on a GPU.
 */
#include "stream_rows.h"

#define N_BUFFERS 3u
#define N_READS 24u

typedef struct play {
    mf_backend *be;
    mf_buffer buffers[N_BUFFERS], staging;
    float *stage;                          /* a row for each upload under way */
    float want[N_BUFFERS][N_ROWS][N_COLS]; /* what a device that did all at once would hold */
    float got[N_READS][N_COLS], expected[N_READS][N_COLS];
    uint32_t n_reads;
    uint32_t n_taken, n_dropped; /* of what was recorded early */
    uint64_t random;
} play;

static uint32_t pick(play *p, uint32_t n)
{
    return (uint32_t)(test_random(&p->random) >> 33) % n;
}

static float small_number(play *p)
{
    return (float)pick(p, 1000) - 500.0f; /* sums of few are exact */
}

static mf_span row_of(const play *p, uint32_t buffer, uint32_t row)
{
    return (mf_span){p->buffers[buffer], row * ROW_BYTES};
}

static void do_write(play *p, uint32_t b, uint32_t row)
{
    float *to = p->want[b][row], values[N_COLS];
    for (uint32_t i = 0; i < N_COLS; i++)
        values[i] = to[i] = small_number(p);
    p->be->ops->write(p->be, row_of(p, b, row), values, ROW_BYTES);
    fill(values, N_COLS, 1e30f); /* it was taken */
}

static void do_upload(play *p, uint32_t b, uint32_t row)
{
    float *to = p->want[b][row], *values = p->stage + (size_t)pick(p, 4) * N_COLS;
    mf_error error = {0};
    for (uint32_t i = 0; i < N_COLS; i++)
        values[i] = to[i] = small_number(p);
    mf_ticket ticket = p->be->ops->upload(p->be, row_of(p, b, row), values, ROW_BYTES);
    REQUIRE_OK(p->be->ops->wait_for(p->be, ticket, &error), &error);
    fill(values, N_COLS, 1e30f);
}

static void do_add(play *p, uint32_t b, uint32_t row)
{
    uint32_t from = pick(p, N_BUFFERS), y = pick(p, N_ROWS);
    if (from == b && y == row)
        return;
    record_add(p->be, row_of(p, b, row), row_of(p, from, y), 1);
    for (uint32_t i = 0; i < N_COLS; i++)
        p->want[b][row][i] = (float)((int)(p->want[b][row][i] + p->want[from][y][i]));
}

/* Two rows that are named by an array; the array is the caller's again after record. */
static void do_copy_rows(play *p, uint32_t b, uint32_t row)
{
    uint32_t from = (b + 1) % N_BUFFERS, rows[2] = {pick(p, N_ROWS), pick(p, N_ROWS)};
    row = row + 2 <= N_ROWS ? row : N_ROWS - 2;
    const mf_op op = {
        .kind = MF_OP_COPY_ROWS,
        .n_rows = 2,
        .u.copy_rows = {
            .x = row_of(p, from, 0), .out = row_of(p, b, row), .rows = rows, .n_cols = N_COLS}};
    p->be->ops->record(p->be, &op);
    memcpy(p->want[b][row], p->want[from][rows[0]], ROW_BYTES);
    memcpy(p->want[b][row + 1], p->want[from][rows[1]], ROW_BYTES);
    rows[0] = rows[1] = UINT32_MAX;
}

static void do_copy(play *p, uint32_t b, uint32_t row)
{
    uint32_t from = (b + 2) % N_BUFFERS, y = pick(p, N_ROWS);
    p->be->ops->copy(p->be, row_of(p, b, row), row_of(p, from, y), ROW_BYTES);
    memcpy(p->want[b][row], p->want[from][y], ROW_BYTES);
}

static void do_read(play *p, uint32_t b, uint32_t row)
{
    if (p->n_reads == N_READS)
        return;
    memcpy(p->expected[p->n_reads], p->want[b][row], ROW_BYTES);
    p->be->ops->read(p->be, row_of(p, b, row), p->got[p->n_reads++], ROW_BYTES);
}

/* A few calls recorded early, that are taken up, or dropped since something else came first. A wait
 * for what was called before is nothing else. */
static void do_early(play *p, uint32_t b, uint32_t row)
{
    static void (*const steps[])(play *, uint32_t, uint32_t) = {do_write,     do_add,  do_add,
                                                                do_copy_rows, do_copy, do_read};
    const mf_backend_ops *ops = p->be->ops;
    mf_error error = {0};
    if (ops->begin_early == NULL || !ops->begin_early(p->be))
        return;
    const play before = *p;
    for (uint32_t n = 1 + pick(p, 12); n > 0; n--)
        steps[pick(p, 6)](p, pick(p, N_BUFFERS), pick(p, N_ROWS));
    const play after = *p;
    const bool is_kept = ops->end_early(p->be), is_late = pick(p, 3) == 0;
    memcpy(p->want, before.want, sizeof p->want);
    p->n_reads = before.n_reads;
    if (pick(p, 2) == 0)
        REQUIRE_OK(mf_backend_finish(p->be, &error), &error);
    if (is_late)
        do_write(p, b, row);
    const bool is_taken = ops->take_early(p->be, NULL, 0);
    CHECK(is_taken == (is_kept && !is_late));
    CHECK(!ops->take_early(p->be, NULL, 0)); /* once */
    if (is_taken) {
        memcpy(p->want, after.want, sizeof p->want);
        p->n_reads = after.n_reads;
    }
    p->n_taken += is_taken;
    p->n_dropped += is_kept && !is_taken;
}

static void settle(play *p)
{
    mf_error error = {0};
    REQUIRE_OK(mf_backend_finish(p->be, &error), &error);
    for (uint32_t i = 0; i < p->n_reads; i++)
        CHECK_MSG(memcmp(p->got[i], p->expected[i], ROW_BYTES) == 0,
                  "%s: read %u of %u holds %g, not %g", p->be->ops->name, i, p->n_reads,
                  (double)p->got[i][0], (double)p->expected[i][0]);
    p->n_reads = 0;
}

static void take_step(play *p)
{
    static void (*const steps[])(play *, uint32_t,
                                 uint32_t) = {do_write,     do_upload, do_add,  do_add,  do_add,
                                              do_copy_rows, do_copy,   do_read, do_read, do_early};
    uint32_t b = pick(p, N_BUFFERS), row = pick(p, N_ROWS);
    uint32_t n = sizeof steps / sizeof steps[0], i = pick(p, n);
    if (i == 1 && pick(p, 4) != 0)
        i = 0; /* an upload is waited for, which few should be */
    steps[i](p, b, row);
    /* sums stay small enough to be exact */
    for (uint32_t c = 0; c < N_COLS; c++)
        if (fabsf(p->want[b][row][c]) > 1e6f) {
            do_write(p, b, row);
            break;
        }
    if (p->n_reads == N_READS || pick(p, 40) == 0)
        settle(p);
}

/* Whatever the order of execution, nobody can tell it from that of the calls. */
static void check_random_work(place on, uint64_t seed)
{
    static const mf_buffer_use uses[N_BUFFERS] = {MF_USE_DEVICE, MF_USE_HOST, MF_USE_DEVICE};
    const strict_options strict = {.seed = seed, .runs_ahead = seed % 2 == 0};
    play p = {.be = open_backend(on, &strict), .random = seed};
    for (uint32_t b = 0; b < N_BUFFERS; b++) {
        p.buffers[b] = new_buffer(p.be, uses[b], N_ROWS * ROW_BYTES);
        for (uint32_t row = 0; row < N_ROWS; row++)
            do_write(&p, b, row);
    }
    p.staging = new_buffer(p.be, MF_USE_STAGING, 4 * ROW_BYTES);
    p.stage = (float *)(void *)p.be->ops->buffer_host(p.be, p.staging);
    for (uint32_t i = 0; i < 3000; i++)
        take_step(&p);
    settle(&p);
    for (uint32_t b = 0; b < N_BUFFERS; b++) {
        for (uint32_t row = 0; row < N_ROWS; row++)
            do_read(&p, b, row), p.n_reads == N_READS ? settle(&p) : (void)0;
        settle(&p);
    }
    strict_stats stats = {0};
    if (on == ON_STRICT)
        strict_backend_stats(p.be, &stats);
    CHECK(on != ON_STRICT || stats.n_overtakes > 200);
    CHECK(on == ON_CPU || (p.n_taken > 50 && p.n_dropped > 20));
    p.be->ops->destroy(p.be);
}

/* Operations that a word leaves undone, of words that change between them: one after the other in
 * one submission, under the same word and under others, and with waits at times. */
static void check_conditions(place on)
{
    enum { N_WORDS = 3, N_STEPS = 200 };
    play p = {.be = open_backend(on, NULL), .random = 7};
    const mf_backend_ops *ops = p.be->ops;
    mf_error error = {0};
    const mf_buffer words = new_buffer(p.be, MF_USE_DEVICE, N_WORDS * sizeof(uint32_t));
    uint32_t is_set[N_WORDS] = {0, 2, 1};
    float one[N_COLS], got[N_COLS];
    p.buffers[0] = new_buffer(p.be, MF_USE_DEVICE, 2 * ROW_BYTES);
    mf_op add = {.kind = MF_OP_ADD,
                 .n_rows = 1,
                 .u.add = {.x = row_of(&p, 0, 0), .y = row_of(&p, 0, 1), .n_cols = N_COLS}};
    add.when = (mf_span){words, 0};
    if (!ops->supports_op(p.be, &add)) {
        ops->destroy(p.be);
        return;
    }
    fill(one, N_COLS, 1.0f);
    do_write(&p, 0, 0);
    ops->write(p.be, row_of(&p, 0, 1), one, ROW_BYTES);
    ops->write(p.be, (mf_span){words, 0}, is_set, sizeof is_set);
    for (uint32_t i = 0; i < N_STEPS; i++) {
        const uint32_t at = pick(&p, N_WORDS + 1);
        if (at < N_WORDS && pick(&p, 3) == 0) {
            is_set[at] = pick(&p, 2);
            ops->write(p.be, (mf_span){words, at * sizeof *is_set}, &is_set[at], sizeof *is_set);
        }
        add.when = (mf_span){{at < N_WORDS ? words.id : 0}, at < N_WORDS ? at * sizeof *is_set : 0};
        ops->record(p.be, &add);
        for (uint32_t c = 0; c < N_COLS; c++)
            p.want[0][0][c] += at == N_WORDS || is_set[at] != 0 ? 1.0f : 0.0f;
        if (pick(&p, 9) == 0)
            REQUIRE_OK(mf_backend_finish(p.be, &error), &error);
    }
    REQUIRE_OK(mf_backend_read(p.be, row_of(&p, 0, 0), got, ROW_BYTES, &error), &error);
    CHECK_BYTES(got, p.want[0][0], sizeof got);
    ops->destroy(p.be);
}

int main(int argc, char **argv)
{
    const bool is_vulkan = argc > 1 && strcmp(argv[1], "vulkan") == 0;
    if (is_vulkan && !vulkan_is_there())
        return TEST_SKIPPED;
    for (uint64_t seed = 1; seed <= 3 && is_vulkan; seed++)
        check_random_work(ON_VULKAN, seed);
    for (uint64_t seed = 1; seed <= 6 && !is_vulkan; seed++)
        check_random_work(ON_STRICT, seed);
    if (!is_vulkan) {
        check_random_work(ON_CPU, 1);
        check_conditions(ON_CPU);
    }
    check_conditions(is_vulkan ? ON_VULKAN : ON_STRICT);
    return test_result();
}
