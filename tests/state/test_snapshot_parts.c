/* SPDX-License-Identifier: MIT */
/*
 * Parts in bulk: whoever does them and however many, the bytes are those of one part after another;
 * reading finds the first damaged part and every truncation.
 */
#include "failing_alloc.h"
#include "state/snapshot_parts.h"
#include "test.h"

enum { N_PARTS = 60, LARGEST = 700000, MOST_THREADS = 7 };

typedef struct fixture {
    mf_allocator allocator;
    mf_snapshot_head head;
    mf_snapshot_parts parts;
    unsigned char *state;
    unsigned char *expected; /* the parts written one by one */
    size_t n_state;
} fixture;

/* From nothing to several hundred KiB, no two after each other alike: more than 16 MiB in all. */
static size_t size_of(uint32_t i)
{
    return i % 7 == 3 ? 0 : (i * 104729u) % LARGEST;
}

static void list_parts(fixture *f, unsigned char *state)
{
    f->parts.n_parts = 0;
    f->parts.n_bytes = 0;
    for (uint32_t i = 0; i < N_PARTS; i++) {
        mf_snapshot_parts_add(&f->parts, i + 2, state, size_of(i));
        state += size_of(i);
    }
}

static void write_one_by_one(const fixture *f, unsigned char *to)
{
    mf_buffer_sink sink;
    mf_error error = {0};
    mf_buffer_sink_init(&sink, to, f->parts.n_bytes);
    for (uint32_t i = 0; i < N_PARTS; i++) {
        const mf_snapshot_part *p = &f->parts.list[i];
        REQUIRE_OK(
            mf_snapshot_write_part(&sink.sink, &f->head, p->number, p->bytes, p->n_bytes, &error),
            &error);
    }
    CHECK_U64(sink.n_left, 0);
}

static void set_up(fixture *f)
{
    mf_error error = {0};
    f->allocator = mf_allocator_default();
    f->head = (mf_snapshot_head){.n_parts = N_PARTS + 2, .checksum = 99};
    REQUIRE_OK(mf_snapshot_parts_init(&f->parts, &f->allocator, N_PARTS, &error), &error);
    for (uint32_t i = 0; i < N_PARTS; i++)
        f->n_state += size_of(i);
    f->state = malloc(f->n_state);
    REQUIRE(f->state != NULL);
    for (size_t i = 0; i < f->n_state; i++)
        f->state[i] = (unsigned char)(i * 2654435761u >> 11);
    list_parts(f, f->state);
    CHECK_U64(f->parts.n_bytes, f->n_state + 8 * N_PARTS);
    f->expected = malloc(f->parts.n_bytes);
    REQUIRE(f->expected != NULL);
    write_one_by_one(f, f->expected);
}

static void tear_down(fixture *f)
{
    mf_snapshot_parts_free(&f->parts, &f->allocator);
    free(f->state);
    free(f->expected);
}

/* A stream that is not memory: bytes go through the buffer's own functions. */
static mf_byte_sink *as_stream_out(mf_buffer_sink *s)
{
    s->sink.reserve = NULL;
    return &s->sink;
}

static mf_byte_source *as_stream_in(mf_buffer_source *s)
{
    s->source.reserve = NULL;
    return &s->source;
}

static void test_writing(fixture *f)
{
    unsigned char *got = malloc(f->parts.n_bytes);
    REQUIRE(got != NULL);
    for (uint32_t n = 1; n <= MOST_THREADS; n++) {
        for (int is_stream = 0; is_stream < 2; is_stream++) {
            mf_buffer_sink sink;
            mf_error error = {0};
            const mf_snapshot_crew crew = {&f->allocator, n};
            memset(got, 0, f->parts.n_bytes);
            mf_buffer_sink_init(&sink, got, f->parts.n_bytes);
            mf_byte_sink *to = is_stream ? as_stream_out(&sink) : &sink.sink;
            REQUIRE_OK(mf_snapshot_write_parts(to, &f->head, &f->parts, &crew, &error), &error);
            CHECK_U64(sink.n_left, 0);
            CHECK(memcmp(got, f->expected, f->parts.n_bytes) == 0);
        }
    }
    free(got);
}

static mf_status read_bytes(fixture *f, size_t n_bytes, uint32_t n_threads, bool is_stream,
                            mf_error *error)
{
    mf_buffer_source source;
    const mf_snapshot_crew crew = {&f->allocator, n_threads};
    mf_buffer_source_init(&source, f->expected, n_bytes);
    mf_byte_source *from = is_stream ? as_stream_in(&source) : &source.source;
    return mf_snapshot_read_parts(from, &f->head, &f->parts, &crew, error);
}

static void test_reading(fixture *f)
{
    unsigned char *got = malloc(f->n_state);
    REQUIRE(got != NULL);
    list_parts(f, got);
    for (uint32_t n = 1; n <= MOST_THREADS; n++) {
        for (int is_stream = 0; is_stream < 2; is_stream++) {
            mf_error error = {0};
            memset(got, 0, f->n_state);
            REQUIRE_OK(read_bytes(f, f->parts.n_bytes, n, is_stream, &error), &error);
            CHECK(memcmp(got, f->state, f->n_state) == 0);
        }
    }
    mf_error error = {0};
    CHECK_STATUS(read_bytes(f, f->parts.n_bytes - 1, 4, false, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "truncated");
    list_parts(f, f->state);
    free(got);
}

/* A changed bit in parts 20 and 41, of the bytes and of the checksum: the first is named. */
static void test_damage(fixture *f)
{
    unsigned char *first = f->expected + f->parts.list[20].offset + 5;
    unsigned char *second = f->expected + f->parts.list[42].offset - 1;
    *first ^= 4;
    *second ^= 128;
    for (uint32_t n = 1; n <= MOST_THREADS; n++) {
        for (int is_stream = 0; is_stream < 2; is_stream++) {
            mf_error error = {0};
            CHECK_STATUS(read_bytes(f, f->parts.n_bytes, n, is_stream, &error), MF_ERR_FORMAT);
            CHECK_CONTAINS(error.message, "part 22 of 62 is damaged");
        }
    }
    *first ^= 4;
    mf_error error = {0};
    CHECK_STATUS(read_bytes(f, f->parts.n_bytes, 3, false, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "part 43 of 62 is damaged");
    *second ^= 128;
}

/* Each allocation failing in turn: said, and what was taken given back. */
static void test_no_memory(fixture *f)
{
    failing counts = {0};
    const mf_allocator whole = f->allocator;
    unsigned char *got = malloc(f->parts.n_bytes);
    REQUIRE(got != NULL);
    f->allocator = failing_allocator(&counts);
    mf_status status = MF_ERR_NO_MEMORY;
    for (uint64_t at = 1; status == MF_ERR_NO_MEMORY && at < 10; at++) {
        mf_buffer_sink sink;
        mf_error error = {0};
        const mf_snapshot_crew crew = {&f->allocator, 4};
        counts.n_calls = 0;
        counts.fail_at = at;
        mf_buffer_sink_init(&sink, got, f->parts.n_bytes);
        status = mf_snapshot_write_parts(&sink.sink, &f->head, &f->parts, &crew, &error);
        CHECK(status == MF_OK ? at > 1 : error.message[0] != '\0');
        CHECK(counts.n_live == 0);
    }
    CHECK_STATUS(status, MF_OK);
    mf_error error = {0};
    mf_snapshot_parts none;
    counts.n_calls = 0;
    counts.fail_at = 1;
    CHECK_STATUS(mf_snapshot_parts_init(&none, &f->allocator, 3, &error), MF_ERR_NO_MEMORY);
    mf_snapshot_parts_free(&none, &f->allocator);
    f->allocator = whole;
    free(got);
}

int main(void)
{
    fixture f = {0};
    set_up(&f);
    test_writing(&f);
    test_reading(&f);
    test_damage(&f);
    test_no_memory(&f);
    tear_down(&f);
    return test_result();
}
