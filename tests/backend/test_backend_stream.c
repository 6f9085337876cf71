/* SPDX-License-Identifier: MIT */
/*
 * The stream of backend.h: the order of everything that goes through it, tickets, several threads,
 * a device that is lost, memory out of the host's reach. On the CPU, which does all at once, and on
 * the strict backend, which does nothing before it must; with the argument "vulkan" on a GPU, which
 * begins when it likes.
 */
#include "base/status.h"
#include "strict_backend.h"
#include "test.h"
#include "vulkan_open.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_COLS 16u
#define ROW_BYTES ((uint64_t)N_COLS * sizeof(float))
#define N_ROWS 12u /* of each buffer */

typedef enum place { ON_CPU, ON_STRICT, ON_VULKAN } place;

static mf_backend *open_backend(place on, const strict_options *strict)
{
    mf_error error = {0};
    mf_backend *be = NULL;
    const mf_backend_options options = {.n_threads = 1,
                                        .device = on == ON_VULKAN ? vulkan_test_device() : "cpu"};
    strict_options given = strict != NULL ? *strict : (strict_options){0};
    REQUIRE_OK(on == ON_STRICT ? strict_backend_open(&given, &options, &be, &error)
                               : mf_backend_open(&options, &be, &error),
               &error);
    mf_op add = {.kind = MF_OP_ADD, .n_rows = N_ROWS, .u.add = {.n_cols = N_COLS}};
    mf_op copy = {.kind = MF_OP_COPY_ROWS, .n_rows = N_ROWS, .u.copy_rows = {.n_cols = N_COLS}};
    REQUIRE_OK(mf_backend_reserve(be, &add, &error), &error);
    REQUIRE_OK(mf_backend_reserve(be, &copy, &error), &error);
    return be;
}

static mf_buffer new_buffer(mf_backend *be, mf_buffer_use use, uint64_t n_bytes)
{
    mf_error error = {0};
    mf_buffer buffer = {0};
    REQUIRE_OK(be->ops->buffer_create(be, n_bytes, use, "rows", &buffer, &error), &error);
    return buffer;
}

static void record_add(mf_backend *be, mf_span x, mf_span y, uint32_t n_rows)
{
    const mf_op op = {
        .kind = MF_OP_ADD, .n_rows = n_rows, .u.add = {.x = x, .y = y, .n_cols = N_COLS}};
    be->ops->record(be, &op);
}

static void fill(float *values, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        values[i] = value;
}

/* ------------------------------------------------------------------------------ random work -- */

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

/* ---------------------------------------------------------------------------------- tickets -- */

static void check_tickets(place on)
{
    mf_backend *be = open_backend(on, NULL);
    mf_error error = {0};
    mf_buffer buffer = new_buffer(be, MF_USE_DEVICE, 4 * ROW_BYTES);
    const mf_span x = {buffer, 0}, y = {buffer, ROW_BYTES};
    float values[N_COLS], got[3][N_COLS];
    CHECK(be->ops->done(be, 0));
    REQUIRE_OK(be->ops->wait_for(be, 0, &error), &error);
    fill(values, N_COLS, 1.0f);
    be->ops->write(be, x, values, ROW_BYTES);
    be->ops->write(be, y, values, ROW_BYTES);
    mf_ticket tickets[3];
    for (int i = 0; i < 3; i++) {
        record_add(be, x, y, 1);
        be->ops->read(be, x, got[i], ROW_BYTES);
        tickets[i] = be->ops->mark(be);
        CHECK(i == 0 || tickets[i] >= tickets[i - 1]);
    }
    CHECK(on == ON_VULKAN ||
          be->ops->done(be, tickets[2]) == (on == ON_CPU)); /* asking makes nothing run */
    REQUIRE_OK(be->ops->wait_for(be, tickets[1], &error), &error);
    CHECK(be->ops->done(be, tickets[0]) && be->ops->done(be, tickets[1]));
    CHECK(on == ON_VULKAN ||
          be->ops->done(be, tickets[2]) == (on == ON_CPU)); /* only up to the ticket */
    CHECK(got[0][N_COLS - 1] == 2.0f && got[1][0] == 3.0f);
    CHECK(on == ON_VULKAN || (on == ON_STRICT ? isnan(got[2][0]) : got[2][0] == 4.0f));
    REQUIRE_OK(be->ops->wait_for(be, tickets[2], &error), &error);
    CHECK(got[2][0] == 4.0f);
    REQUIRE_OK(be->ops->wait_for(be, tickets[0], &error), &error); /* again, long done */
    be->ops->destroy(be);
}

/* Work that ran ahead is not done at once for those who only ask, but in the end it is. */
static void check_late(void)
{
    enum { N_WRITES = 20, N_ASKS = 10 };
    mf_backend *be = open_backend(ON_STRICT, &(strict_options){.seed = 3, .runs_ahead = true});
    mf_error error = {0};
    strict_stats stats;
    mf_buffer buffer = new_buffer(be, MF_USE_DEVICE, ROW_BYTES);
    const float values[N_COLS] = {0};
    for (int round = 0; round < 20; round++) {
        mf_ticket tickets[N_WRITES];
        for (int i = 0; i < N_WRITES; i++) {
            be->ops->write(be, (mf_span){buffer, 0}, values, ROW_BYTES);
            tickets[i] = be->ops->mark(be);
            CHECK(!be->ops->done(be, tickets[i]));
        }
        REQUIRE_OK(be->ops->wait_for(be, tickets[0], &error), &error);
        CHECK(be->ops->done(be, tickets[0]));
        strict_backend_stats(be, &stats);
        for (int i = 1; i < N_WRITES; i++) {
            bool has_run = (uint64_t)i < N_WRITES - stats.n_pending, is_done = false;
            for (int j = 0; j < N_ASKS && !is_done; j++)
                is_done = be->ops->done(be, tickets[i]);
            CHECK(is_done == has_run);
        }
        REQUIRE_OK(mf_backend_finish(be, &error), &error);
    }
    strict_backend_stats(be, &stats);
    CHECK(stats.n_late > 5);
    be->ops->destroy(be);
}

/* ---------------------------------------------------------- what goes while it is still used -- */

static void check_free_in_order(place on)
{
    mf_backend *be = open_backend(on, NULL);
    mf_error error = {0};
    float values[N_COLS], got[N_COLS], other[N_COLS];
    mf_buffer to = new_buffer(be, MF_USE_DEVICE, 2 * ROW_BYTES);
    fill(values, N_COLS, 7.0f);
    for (int i = 0; i < 20; i++) {
        mf_buffer from = new_buffer(be, MF_USE_DEVICE, ROW_BYTES);
        values[3] = (float)i;
        be->ops->write(be, (mf_span){from, 0}, values, ROW_BYTES);
        be->ops->copy(be, (mf_span){to, 0}, (mf_span){from, 0}, ROW_BYTES);
        if (i % 2 == 0)
            (void)be->ops->buffer_discard(be, (mf_span){from, 0}, ROW_BYTES);
        be->ops->buffer_free(be, from);
        mf_buffer next = new_buffer(be, MF_USE_DEVICE, ROW_BYTES); /* perhaps the same memory */
        fill(other, N_COLS, -1.0f);
        be->ops->write(be, (mf_span){next, 0}, other, ROW_BYTES);
        REQUIRE_OK(mf_backend_read(be, (mf_span){to, 0}, got, ROW_BYTES, &error), &error);
        CHECK(memcmp(got, values, ROW_BYTES) == 0);
        be->ops->buffer_free(be, next);
    }
    be->ops->destroy(be);
}

/* A row that recorded work still reads goes to another thread, which writes through the stream. */
static void *write_row(void *ctx)
{
    play *p = ctx;
    float values[N_COLS], got[N_COLS];
    mf_error error = {0};
    fill(values, N_COLS, 5.0f);
    p->be->ops->write(p->be, row_of(p, 0, 0), values, ROW_BYTES);
    mf_status status = mf_backend_read(p->be, row_of(p, 0, 0), got, ROW_BYTES, &error);
    return status == MF_OK && memcmp(got, values, ROW_BYTES) == 0 ? ctx : NULL;
}

static void check_handed_on(place on)
{
    play p = {.be = open_backend(on, NULL)};
    float values[N_COLS], got[N_COLS];
    mf_error error = {0};
    pthread_t thread;
    p.buffers[0] = new_buffer(p.be, MF_USE_DEVICE, 4 * ROW_BYTES);
    fill(values, N_COLS, 3.0f);
    p.be->ops->write(p.be, row_of(&p, 0, 0), values, ROW_BYTES);
    p.be->ops->copy(p.be, row_of(&p, 0, 1), row_of(&p, 0, 0), ROW_BYTES);
    REQUIRE(pthread_create(&thread, NULL, write_row, &p) == 0);
    void *is_right = NULL;
    (void)pthread_join(thread, &is_right);
    CHECK(is_right != NULL);
    REQUIRE_OK(mf_backend_read(p.be, row_of(&p, 0, 1), got, ROW_BYTES, &error), &error);
    CHECK(memcmp(got, values, ROW_BYTES) == 0);
    p.be->ops->destroy(p.be);
}

/* ---------------------------------------------------------------------------------- threads -- */

#define N_THREADS 4u
#define N_ROUNDS 300

typedef struct worker {
    mf_backend *be;
    mf_buffer buffer;
    uint32_t number;
    uint32_t n_wrong;
} worker;

/* Its own rows of the buffer; the first one also records, the others come and go with buffers. */
static void *work(void *ctx)
{
    worker *w = ctx;
    const mf_backend_ops *ops = w->be->ops;
    mf_error error = {0};
    const mf_span x = {w->buffer, 3 * w->number * ROW_BYTES}, y = mf_span_at(x, ROW_BYTES);
    const mf_span z = mf_span_at(y, ROW_BYTES);
    for (int i = 0; i < N_ROUNDS; i++) {
        float values[N_COLS], got[N_COLS], want = (float)(i + 1000 * (int)w->number);
        fill(values, N_COLS, want);
        mf_ticket ticket = ops->upload(w->be, x, values, ROW_BYTES);
        ops->copy(w->be, y, x, ROW_BYTES);
        if (w->number == 0)
            record_add(w->be, y, x, 1);
        ops->copy(w->be, z, y, ROW_BYTES);
        w->n_wrong += ops->wait_for(w->be, ticket, &error) != MF_OK;
        fill(values, N_COLS, -1.0f);
        w->n_wrong += mf_backend_read(w->be, z, got, ROW_BYTES, &error) != MF_OK;
        w->n_wrong += got[i % (int)N_COLS] != (w->number == 0 ? 2.0f * want : want);
        mf_buffer more = {0};
        if (i % 8 == (int)w->number) {
            w->n_wrong +=
                ops->buffer_create(w->be, 5000, MF_USE_DEVICE, "more", &more, &error) != MF_OK;
            ops->copy(w->be, (mf_span){more, 4096}, z, ROW_BYTES);
            ops->buffer_free(w->be, more);
        }
        (void)ops->done(w->be, ops->mark(w->be));
    }
    return NULL;
}

static void check_threads(place on)
{
    mf_backend *be = open_backend(on, NULL);
    mf_buffer buffer = new_buffer(be, MF_USE_DEVICE, 3 * N_THREADS * ROW_BYTES);
    worker workers[N_THREADS];
    pthread_t threads[N_THREADS];
    for (uint32_t i = 0; i < N_THREADS; i++) {
        workers[i] = (worker){be, buffer, i, 0};
        REQUIRE(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (uint32_t i = 0; i < N_THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
        CHECK_U64(workers[i].n_wrong, 0);
    }
    be->ops->destroy(be);
}

/* ----------------------------------------------------------------------- a device that fails -- */

static void check_lost(void)
{
    mf_backend *be = open_backend(ON_STRICT, &(strict_options){.lost_at_run = 2});
    mf_error error = {0};
    float values[N_COLS] = {0}, got[N_COLS];
    mf_buffer buffer = new_buffer(be, MF_USE_DEVICE, ROW_BYTES), second;
    be->ops->write(be, (mf_span){buffer, 0}, values, ROW_BYTES);
    REQUIRE_OK(mf_backend_finish(be, &error), &error);
    be->ops->read(be, (mf_span){buffer, 0}, got, ROW_BYTES);
    second = new_buffer(be, MF_USE_DEVICE, ROW_BYTES);
    be->ops->buffer_free(be, second);
    mf_ticket ticket = be->ops->mark(be);
    CHECK_STATUS(be->ops->wait_for(be, ticket, &error), MF_ERR_IO);
    CHECK_CONTAINS(error.message, "lost");
    for (int i = 0; i < 3; i++) {
        record_add(be, (mf_span){buffer, 0}, (mf_span){buffer, 0}, 1);
        be->ops->write(be, (mf_span){buffer, 0}, values, ROW_BYTES);
        CHECK(be->ops->done(be, be->ops->mark(be)));
        CHECK_STATUS(mf_backend_read(be, (mf_span){buffer, 0}, got, ROW_BYTES, &error), MF_ERR_IO);
    }
    be->ops->buffer_free(be, buffer);
    be->ops->destroy(be);
}

/* ------------------------------------------------------------------------------------ memory -- */

/* The signal that ends a child which does this. */
static int signal_of(void (*act)(mf_backend *, mf_buffer), mf_backend *be, mf_buffer buffer)
{
    fflush(NULL);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would exit */
        (void)signal(SIGABRT, SIG_DFL);
        (void)!freopen("/dev/null", "w", stderr);
        act(be, buffer);
        _exit(0);
    }
    int state = 0;
    REQUIRE(waitpid(child, &state, 0) == child);
    return WIFSIGNALED(state) ? WTERMSIG(state) : 0;
}

static void peek(mf_backend *be, mf_buffer buffer)
{
    const volatile unsigned char *bytes = strict_backend_peek(be, buffer);
    (void)bytes[17];
}

static void poke(mf_backend *be, mf_buffer buffer)
{
    volatile unsigned char *bytes = strict_backend_peek(be, buffer);
    bytes[0] = 1;
}

static void add_beyond(mf_backend *be, mf_buffer buffer)
{
    record_add(be, (mf_span){buffer, 0}, (mf_span){buffer, 0}, N_ROWS + 1);
}

static void use_unreserved(mf_backend *be, mf_buffer buffer)
{
    const mf_op op = {
        .kind = MF_OP_SWIGLU,
        .n_rows = 1,
        .u.swiglu = {.gate = {buffer, 0}, .up = {buffer, 0}, .out = {buffer, 0}, .n_cols = N_COLS}};
    be->ops->record(be, &op);
}

static void use_freed(mf_backend *be, mf_buffer buffer)
{
    be->ops->buffer_free(be, buffer);
    record_add(be, (mf_span){buffer, 0}, (mf_span){buffer, 0}, 1);
}

static void use_staging(mf_backend *be, mf_buffer buffer)
{
    mf_buffer staging = new_buffer(be, MF_USE_STAGING, N_ROWS * ROW_BYTES);
    record_add(be, (mf_span){buffer, 0}, (mf_span){staging, 0}, 1);
}

static void check_guards(void)
{
    mf_backend *be = open_backend(ON_STRICT, NULL);
    mf_error error = {0};
    float values[N_COLS], got[N_COLS];
    mf_buffer buffer = new_buffer(be, MF_USE_DEVICE, N_ROWS * ROW_BYTES);
    mf_buffer host = new_buffer(be, MF_USE_HOST, N_ROWS * ROW_BYTES);
    CHECK(be->ops->buffer_host(be, buffer) == NULL);
    CHECK_U64(signal_of(peek, be, buffer), SIGSEGV);
    fill(values, N_COLS, 2.0f);
    be->ops->write(be, (mf_span){buffer, 0}, values, ROW_BYTES);
    REQUIRE_OK(mf_backend_read(be, (mf_span){buffer, 0}, got, ROW_BYTES, &error), &error);
    CHECK(memcmp(got, values, ROW_BYTES) == 0);
    CHECK_U64(signal_of(peek, be, buffer), SIGSEGV); /* again, after work has run */
    CHECK_U64(signal_of(poke, be, buffer), SIGSEGV);
    CHECK_U64(signal_of(peek, be, host), 0);
    CHECK_U64(signal_of(poke, be, host), 0);
    CHECK_U64(signal_of(add_beyond, be, buffer), SIGABRT);
    CHECK_U64(signal_of(use_unreserved, be, buffer), SIGABRT);
    CHECK_U64(signal_of(use_freed, be, buffer), SIGABRT);
    CHECK_U64(signal_of(use_staging, be, buffer), SIGABRT);
    REQUIRE_OK(mf_backend_read(be, (mf_span){buffer, ROW_BYTES}, got, ROW_BYTES, &error), &error);
    CHECK(isnan(got[0])); /* never written */
    be->ops->destroy(be);
}

/* What the host writes through its own pointer is found by what is recorded afterwards, and what
 * operations write there is seen once they are done. */
static void check_host_buffers(place on)
{
    mf_backend *be = open_backend(on, NULL);
    mf_error error = {0};
    mf_buffer buffer = new_buffer(be, MF_USE_HOST, 2 * ROW_BYTES);
    float *host = (float *)(void *)be->ops->buffer_host(be, buffer);
    REQUIRE(host != NULL);
    fill(host, 2 * N_COLS, 4.0f);
    record_add(be, (mf_span){buffer, 0}, (mf_span){buffer, ROW_BYTES}, 1);
    REQUIRE_OK(mf_backend_finish(be, &error), &error);
    CHECK(host[0] == 8.0f && host[N_COLS] == 4.0f);
    be->ops->destroy(be);
}

/* Each use lies in exactly one memory; a limit holds, and what is freed is room again. */
static void check_memories(place on)
{
    mf_backend *be = open_backend(on, &(strict_options){.memory_bytes = 100000});
    mf_backend_memory memories[MF_MAX_MEMORIES];
    uint32_t n = be->ops->memories(be, memories), seen = 0;
    REQUIRE(n >= 1 && n <= MF_MAX_MEMORIES);
    for (uint32_t i = 0; i < n; i++) {
        CHECK((seen & memories[i].uses) == 0 && memories[i].name[0] != 0);
        seen |= memories[i].uses;
        if ((memories[i].uses & 1u << MF_USE_DEVICE) != 0 && on != ON_VULKAN)
            CHECK(memories[i].is_host == (on == ON_CPU));
        if ((memories[i].uses & 1u << MF_USE_STAGING) != 0)
            CHECK(memories[i].is_host);
    }
    CHECK_U64(seen, 2u * (1u << MF_USE_SHARED) - 1); /* the last of them */
    if (on == ON_STRICT) {
        mf_error error = {0};
        mf_buffer first = new_buffer(be, MF_USE_DEVICE, 60000), second = {0};
        (void)be->ops->memories(be, memories);
        CHECK_U64(memories[0].n_bytes, 40000);
        CHECK_STATUS(be->ops->buffer_create(be, 60000, MF_USE_DEVICE, "too much", &second, &error),
                     MF_ERR_NO_MEMORY);
        CHECK_CONTAINS(error.message, "too much");
        (void)new_buffer(be, MF_USE_STAGING, 60000); /* lies elsewhere */
        be->ops->buffer_free(be, first);
        (void)new_buffer(be, MF_USE_DEVICE, 100000);
    }
    be->ops->destroy(be);
}

typedef struct visited {
    unsigned char *bytes;
    size_t n_bytes, n_calls, fail_at;
} visited;

static mf_status look(void *ctx, const unsigned char *bytes, size_t n_bytes, mf_error *error)
{
    visited *v = ctx;
    if (++v->n_calls == v->fail_at)
        return mf_fail(error, MF_ERR_FORMAT, "seen enough");
    CHECK(n_bytes > 0 && n_bytes <= MF_VISIT_BYTES);
    memcpy(v->bytes + v->n_bytes, bytes, n_bytes);
    v->n_bytes += n_bytes;
    return MF_OK;
}

/* All bytes in order, after what was recorded before; the function's error ends it. */
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

static void check_visit(place on)
{
    enum { N = 600001, SKIP = 7 };
    mf_backend *be = open_backend(on, NULL);
    mf_error error = {0};
    mf_buffer buffer = new_buffer(be, MF_USE_DEVICE, N + SKIP);
    unsigned char *bytes = malloc(N), *got = malloc(N);
    REQUIRE(bytes != NULL && got != NULL);
    for (size_t i = 0; i < N; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    be->ops->write(be, (mf_span){buffer, SKIP}, bytes, N);
    visited v = {.bytes = got};
    REQUIRE_OK(be->ops->visit(be, (mf_span){buffer, SKIP}, N, look, &v, &error), &error);
    CHECK_U64(v.n_bytes, N);
    CHECK_BYTES(got, bytes, N);
    v = (visited){.bytes = got, .fail_at = 2};
    CHECK_STATUS(be->ops->visit(be, (mf_span){buffer, SKIP}, N, look, &v, &error), MF_ERR_FORMAT);
    CHECK_U64(v.n_calls, 2);
    v = (visited){.bytes = got};
    REQUIRE_OK(be->ops->visit(be, (mf_span){buffer, SKIP}, 0, look, &v, &error), &error);
    CHECK_U64(v.n_calls, 0);
    free(bytes);
    free(got);
    be->ops->destroy(be);
}

typedef struct produced {
    const unsigned char *bytes;
    size_t n_bytes, n_calls, fail_at;
} produced;

static mf_status make(void *ctx, unsigned char *bytes, size_t n_bytes, mf_error *error)
{
    produced *p = ctx;
    if (++p->n_calls == p->fail_at)
        return mf_fail(error, MF_ERR_FORMAT, "made enough");
    CHECK(n_bytes > 0 && n_bytes <= MF_VISIT_BYTES);
    memcpy(bytes, p->bytes + p->n_bytes, n_bytes);
    p->n_bytes += n_bytes;
    return MF_OK;
}

/* All bytes in order, after what was recorded before, and none beside them; the function's error
 * ends it. */
static void check_produce(place on)
{
    enum { N = 600001, SKIP = 7, ALL = N + 2 * SKIP };
    mf_backend *be = open_backend(on, NULL);
    mf_error error = {0};
    mf_buffer buffer = new_buffer(be, MF_USE_DEVICE, ALL), old = new_buffer(be, MF_USE_DEVICE, ALL);
    unsigned char *bytes = malloc(ALL), *got = malloc(ALL);
    REQUIRE(bytes != NULL && got != NULL);
    memset(bytes, 0x5A, ALL);
    be->ops->write(be, (mf_span){buffer, 0}, bytes, ALL);
    be->ops->copy(be, (mf_span){old, 0}, (mf_span){buffer, 0}, ALL);
    for (size_t i = 0; i < N; i++)
        bytes[SKIP + i] = (unsigned char)(i * 2654435761u >> 13);
    produced p = {.bytes = bytes + SKIP};
    REQUIRE_OK(be->ops->produce(be, (mf_span){buffer, SKIP}, N, make, &p, &error), &error);
    CHECK_U64(p.n_bytes, N);
    REQUIRE_OK(mf_backend_read(be, (mf_span){buffer, 0}, got, ALL, &error), &error);
    CHECK_BYTES(got, bytes, ALL);
    REQUIRE_OK(mf_backend_read(be, (mf_span){old, 0}, got, ALL, &error), &error);
    memset(bytes, 0x5A, ALL);
    CHECK_BYTES(got, bytes, ALL);
    p = (produced){.bytes = bytes, .fail_at = 2};
    CHECK_STATUS(be->ops->produce(be, (mf_span){buffer, SKIP}, N, make, &p, &error), MF_ERR_FORMAT);
    CHECK_U64(p.n_calls, 2);
    p = (produced){.bytes = bytes};
    REQUIRE_OK(be->ops->produce(be, (mf_span){buffer, SKIP}, 0, make, &p, &error), &error);
    CHECK_U64(p.n_calls, 0);
    free(bytes);
    free(got);
    be->ops->destroy(be);
}

static void check_devices(void)
{
    mf_error error = {0};
    mf_backend *be = NULL;
    static const char *const known[] = {"auto", "cpu", NULL};
    for (int i = 0; i < 3; i++) {
        const mf_backend_options options = {.n_threads = 1, .device = known[i]};
        REQUIRE_OK(mf_backend_open(&options, &be, &error), &error);
        CHECK_STR(be->ops->name, "cpu");
        be->ops->destroy(be);
        const uint64_t parts = mf_backend_host_bytes(known[i], 0, 0); /* of attention */
        CHECK(parts > 0 && parts <= (uint64_t)2 << 20);
        CHECK_U64(mf_backend_host_bytes(known[i], 16, 100), parts + 6400);
        CHECK_U64(mf_backend_host_bytes(known[i], 4096, 18432),
                  parts + ((uint64_t)8 << 20)); /* a bound */
    }
    const mf_backend_options options = {.n_threads = 1, .device = "abacus"};
    be = NULL;
    CHECK_STATUS(mf_backend_open(&options, &be, &error), MF_ERR_ARGUMENT);
    CHECK(be == NULL);
    CHECK_CONTAINS(error.message, "abacus");
    CHECK_CONTAINS(error.message, "auto, cpu");
}

static mf_status never_reserve(mf_backend *be, const mf_op *op, mf_error *error)
{
    (void)be;
    (void)op;
    return mf_fail(error, MF_ERR_STATE, "reserved what is not supported");
}

static bool supports_nothing(const mf_backend *be, const mf_op *op)
{
    (void)be;
    return op->kind == MF_OP_ADD;
}

static const char *poor_name(const mf_backend *be)
{
    (void)be;
    return "poor";
}

/* An operation that a device lacks is an error when room for it is asked for. */
static void check_unsupported(void)
{
    static const mf_backend_ops ops = {.name = "abacus",
                                       .device_name = poor_name,
                                       .supports_op = supports_nothing,
                                       .reserve = never_reserve};
    mf_backend be = {&ops};
    mf_error error = {0};
    const mf_op op = {.kind = MF_OP_ROUTE, .n_rows = 1};
    CHECK_STATUS(mf_backend_reserve(&be, &op, &error), MF_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "abacus");
    CHECK_CONTAINS(error.message, "route");
    for (int kind = MF_OP_EMBED; kind <= MF_OP_FROM_HOST; kind++)
        CHECK(strcmp(mf_op_name((mf_op_kind)kind), "unknown") != 0);
    CHECK_STR(mf_op_name((mf_op_kind)0), "unknown");
    CHECK_STR(mf_op_name((mf_op_kind)(MF_OP_FROM_HOST + 1)), "unknown");
}

static void check_all(place on, uint64_t n_seeds)
{
    for (uint64_t seed = 1; seed <= n_seeds; seed++)
        check_random_work(on, seed);
    check_tickets(on);
    check_conditions(on);
    check_free_in_order(on);
    check_handed_on(on);
    check_threads(on);
    check_host_buffers(on);
    check_memories(on);
    check_visit(on);
    check_produce(on);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "vulkan") == 0) {
        if (!vulkan_is_there())
            return TEST_SKIPPED;
        check_all(ON_VULKAN, 3);
        return test_result();
    }
    check_all(ON_CPU, 1);
    check_all(ON_STRICT, 6);
    check_late();
    check_lost();
    check_guards();
    check_devices();
    check_unsupported();
    return test_result();
}
