/* SPDX-License-Identifier: MIT */
/*
 * The stream of backend.h: the order of everything that goes through it, tickets, several threads,
 * a device that is lost, memory out of the host's reach. On the CPU, which does all at once, and on
 * the strict backend, which does nothing before it must; with the argument "vulkan" on a GPU, which
 * begins when it likes.
 */
#include "base/status.h"
#include "stream_rows.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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
typedef struct handed {
    mf_backend *be;
    mf_span row;
} handed;

static void *write_row(void *ctx)
{
    const handed *h = ctx;
    float values[N_COLS], got[N_COLS];
    mf_error error = {0};
    fill(values, N_COLS, 5.0f);
    h->be->ops->write(h->be, h->row, values, ROW_BYTES);
    mf_status status = mf_backend_read(h->be, h->row, got, ROW_BYTES, &error);
    return status == MF_OK && memcmp(got, values, ROW_BYTES) == 0 ? ctx : NULL;
}

static void check_handed_on(place on)
{
    mf_backend *be = open_backend(on, NULL);
    handed h = {be, {new_buffer(be, MF_USE_DEVICE, 4 * ROW_BYTES), 0}};
    const mf_span second = mf_span_at(h.row, ROW_BYTES);
    float values[N_COLS], got[N_COLS];
    mf_error error = {0};
    pthread_t thread;
    fill(values, N_COLS, 3.0f);
    be->ops->write(be, h.row, values, ROW_BYTES);
    be->ops->copy(be, second, h.row, ROW_BYTES);
    REQUIRE(pthread_create(&thread, NULL, write_row, &h) == 0);
    void *is_right = NULL;
    (void)pthread_join(thread, &is_right);
    CHECK(is_right != NULL);
    REQUIRE_OK(mf_backend_read(be, second, got, ROW_BYTES, &error), &error);
    CHECK(memcmp(got, values, ROW_BYTES) == 0);
    be->ops->destroy(be);
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

static void check_all(place on)
{
    check_tickets(on);
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
        check_all(ON_VULKAN);
        return test_result();
    }
    check_all(ON_CPU);
    check_all(ON_STRICT);
    check_late();
    check_lost();
    check_guards();
    check_devices();
    check_unsupported();
    return test_result();
}
