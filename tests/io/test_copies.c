/* SPDX-License-Identifier: MIT */
/*
 * Files with copies on other drives: drives of unequal speed, made of numbers, are done at the same
 * time; a drive that fails is left out and said, in the middle of reads; what no copy gives fails;
 * what is no copy is refused.
 */
#include "io_fixture.h"

#include <errno.h>

#define MIB ((uint64_t)1 << 20)
#define READ_BYTES 65536u

/* ------------------------------------------------------------- drives made of numbers -- */

typedef struct numbers {
    double bytes_per_us[8]; /* by lane */
    double free_us[8];      /* when it is done with all that it has */
    uint64_t n_bytes[8];
    double now_us;
    struct {
        double done_us;
        uint32_t request, n_bytes;
    } flights[512];
    uint32_t n;
} numbers;

static mf_status numbers_open(const mf_allocator *a, uint32_t depth, void *arg, void **state,
                              mf_error *error)
{
    (void)a, (void)depth, (void)error;
    *state = arg;
    return MF_OK;
}

static void numbers_close(void *state)
{
    (void)state;
}

static mf_status numbers_submit(void *state, const mf_io_op *ops, uint32_t n, mf_error *error)
{
    numbers *s = state;
    (void)error;
    for (uint32_t i = 0; i < n; i++) {
        double *free_us = &s->free_us[ops[i].lane];
        *free_us = (*free_us > s->now_us ? *free_us : s->now_us) +
                   ops[i].n_bytes / s->bytes_per_us[ops[i].lane];
        s->n_bytes[ops[i].lane] += ops[i].n_bytes;
        s->flights[s->n].done_us = *free_us;
        s->flights[s->n].request = ops[i].request;
        s->flights[s->n++].n_bytes = ops[i].n_bytes;
    }
    return MF_OK;
}

static mf_status numbers_collect(void *state, bool wait, mf_io_result *out, uint32_t max,
                                 uint32_t *n, mf_error *error)
{
    numbers *s = state;
    uint32_t first = 0;
    (void)wait, (void)max, (void)error;
    for (uint32_t i = 1; i < s->n; i++)
        first = s->flights[i].done_us < s->flights[first].done_us ? i : first;
    if (s->flights[first].done_us > s->now_us)
        s->now_us = s->flights[first].done_us;
    *out = (mf_io_result){s->flights[first].request, (int32_t)s->flights[first].n_bytes};
    s->flights[first] = s->flights[--s->n];
    *n = 1;
    return MF_OK;
}

static mf_status numbers_reset(void *state, mf_error *error)
{
    (void)error;
    ((numbers *)state)->n = 0;
    return MF_OK;
}

static uint64_t numbers_now(void *state)
{
    return (uint64_t)((numbers *)state)->now_us;
}

static const mf_io_engine engine_of_numbers = {.name = "numbers",
                                               .open = numbers_open,
                                               .close = numbers_close,
                                               .submit = numbers_submit,
                                               .collect = numbers_collect,
                                               .reset = numbers_reset,
                                               .now_us = numbers_now};

/* Reads n_reads pieces of the file, at most `depth` at once, each checked if it is to be. */
static uint32_t read_all(mf_io *io, uint32_t file, uint64_t n_reads, uint32_t depth,
                         const unsigned char *expected)
{
    unsigned char *room = aligned_alloc(MF_IO_ALIGN, (size_t)depth * READ_BYTES);
    uint64_t n_sent = 0, n_done = 0, file_reads = mf_io_file_bytes(io, file) / READ_BYTES;
    uint32_t n_failed = 0, free_places[256], n_free = depth;
    mf_error error = {0};
    REQUIRE(room != NULL && depth <= 256);
    for (uint32_t i = 0; i < depth; i++)
        free_places[i] = i;
    while (n_done < n_reads) {
        while (n_sent < n_reads && n_free > 0) {
            const uint32_t place = free_places[--n_free];
            uint32_t n_accepted = 0;
            const mf_io_read read = {.file = file,
                                     .offset = n_sent % file_reads * READ_BYTES,
                                     .n_bytes = READ_BYTES,
                                     .n_needed = READ_BYTES,
                                     .dest = room + (size_t)place * READ_BYTES,
                                     .tag = place | n_sent << 32};
            memset(read.dest, 0x77, READ_BYTES);
            REQUIRE_OK(mf_io_submit(io, &read, 1, &n_accepted, &error), &error);
            REQUIRE(n_accepted == 1);
            n_sent++;
        }
        mf_io_done done[16];
        uint32_t n;
        REQUIRE_OK(mf_io_collect(io, true, done, 16, &n, &error), &error);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t place = (uint32_t)done[i].tag;
            const uint64_t number = done[i].tag >> 32;
            n_failed += done[i].status != MF_OK;
            if (done[i].status == MF_OK && expected != NULL)
                CHECK(memcmp(room + (size_t)place * READ_BYTES,
                             expected + number % file_reads * READ_BYTES, READ_BYTES) == 0);
            free_places[n_free++] = place;
        }
        n_done += n;
    }
    free(room);
    return n_failed;
}

/* The file, and itself again as its copy. */
static mf_io *open_twice(numbers *s, const char *path, uint32_t *number)
{
    const mf_io_options options = {.engine = &engine_of_numbers, .engine_arg = s};
    mf_io *io = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_io_open(&options, &io, &error), &error);
    REQUIRE_OK(mf_io_add_file(io, path, number, &error), &error);
    REQUIRE_OK(mf_io_add_copy(io, *number, 0, path, &error), &error);
    return io;
}

static void test_speeds_add_up(double fast, double slow, uint32_t depth)
{
    uint64_t random = 88172645463325252u;
    numbers s = {.bytes_per_us = {fast, slow, 1, 1, 1, 1, 1, 1}};
    scratch_file file = scratch_create("/tmp", 4 * MIB, &random);
    uint32_t number;
    mf_io *io = open_twice(&s, file.path, &number);
    (void)read_all(io, number, 2000, depth, NULL); /* until both are known */
    const double began_us = s.now_us;
    const uint64_t before[2] = {s.n_bytes[0], s.n_bytes[1]}, n_reads = 8000;
    CHECK_U64(read_all(io, number, n_reads, depth, NULL), 0);
    const double rate = (double)(n_reads * READ_BYTES) / (s.now_us - began_us);
    const double on_fast = (double)(s.n_bytes[0] - before[0]);
    const double on_slow = (double)(s.n_bytes[1] - before[1]);
    CHECK_MSG(rate >= 0.95 * (fast + slow), "%.0f + %.0f B/us come to %.0f", fast, slow, rate);
    CHECK_MSG(fabs(on_fast / on_slow / (fast / slow) - 1) < 0.1, "shares of %.2f, speeds of %.2f",
              on_fast / on_slow, fast / slow);
    CHECK(mf_io_copy_bytes(io, UINT32_MAX) == s.n_bytes[0] - 2 * MF_IO_ALIGN); /* what tried both */
    CHECK(mf_io_copy_bytes(io, 0) == s.n_bytes[1]);
    mf_io_close(&io);
    scratch_remove(&file);
}

/* A drive that was slow for a while gets its share again, though few reads are in flight. */
static void test_recovers(uint32_t depth)
{
    uint64_t random = 2463534242u;
    numbers s = {.bytes_per_us = {10, 80, 1, 1, 1, 1, 1, 1}}; /* the first will be 160 */
    scratch_file file = scratch_create("/tmp", 4 * MIB, &random);
    uint32_t number;
    mf_io *io = open_twice(&s, file.path, &number);
    (void)read_all(io, number, 2000, depth, NULL);
    s.bytes_per_us[0] = 160;
    (void)read_all(io, number, 8000, depth, NULL); /* until it is seen */
    const uint64_t before[2] = {s.n_bytes[0], s.n_bytes[1]};
    (void)read_all(io, number, 8000, depth, NULL);
    const double share = (double)(s.n_bytes[0] - before[0]) / (double)(s.n_bytes[1] - before[1]);
    CHECK_MSG(share > 1.5 && share < 2.7, "depth %u: shares of %.2f, speeds of 2", depth, share);
    mf_io_close(&io);
    scratch_remove(&file);
}

/* ----------------------------------------------------------------------------- failures -- */

typedef struct told {
    char path[256];
    int os_errno;
    uint32_t n;
} told;

static void take_lost(void *ctx, const char *path, int os_errno)
{
    told *t = ctx;
    snprintf(t->path, sizeof t->path, "%s", path);
    t->os_errno = os_errno;
    t->n++;
}

static scratch_file copy_of(const scratch_file *file)
{
    uint64_t random = 1;
    scratch_file copy = scratch_create("/tmp", file->n_bytes, &random);
    memcpy(copy.bytes, file->bytes, file->n_bytes);
    FILE *f = fopen(copy.path, "wb");
    REQUIRE(f != NULL && fwrite(copy.bytes, 1, copy.n_bytes, f) == copy.n_bytes && fclose(f) == 0);
    return copy;
}

/* What fails where one drive is lost names the other's file. */
static void check_message(mf_io *io, uint32_t file, const char *path)
{
    static _Alignas(MF_IO_ALIGN) unsigned char room[MF_IO_ALIGN];
    const mf_io_read read = {
        .file = file, .n_bytes = MF_IO_ALIGN, .n_needed = MF_IO_ALIGN, .dest = room};
    mf_io_done done;
    mf_error error = {0};
    uint32_t n = 0;
    REQUIRE_OK(mf_io_submit(io, &read, 1, &n, &error), &error);
    REQUIRE_OK(mf_io_collect(io, true, &done, 1, &n, &error), &error);
    REQUIRE(n == 1);
    CHECK_STATUS(mf_io_fail(io, &done, &error), MF_ERR_IO);
    CHECK_MSG(strncmp(error.message, path, strlen(path)) == 0 && error.message[strlen(path)] == ':',
              "'%s', expected %s", error.message, path);
}

static void test_failing(const io_case *c)
{
    uint64_t random = 4711;
    told t = {.n = 0};
    mf_io_fault fault = {
        .inner = c->inner, .seed = 5, .short_chance = 100, .interrupt_chance = 100};
    scratch_file file = scratch_create("/tmp", 2 * MIB, &random), copy = copy_of(&file);
    const mf_io_options options = {
        .engine = &mf_io_engine_fault, .engine_arg = &fault, .lost = take_lost, .lost_ctx = &t};
    for (uint32_t lost = 0; lost < 2; lost++) {
        mf_io *io = NULL;
        mf_error error = {0};
        uint32_t number;
        fault.fail_lanes = 0;
        fault.fail_errno = 0;
        t.n = 0;
        REQUIRE_OK(mf_io_open(&options, &io, &error), &error);
        REQUIRE_OK(mf_io_add_file(io, file.path, &number, &error), &error);
        REQUIRE_OK(mf_io_add_copy(io, number, 0, copy.path, &error), &error);
        CHECK_U64(read_all(io, number, 200, 16, file.bytes), 0);
        CHECK(mf_io_copy_bytes(io, 0) > 0 && mf_io_copy_bytes(io, UINT32_MAX) > 0);
        CHECK_U64(t.n, 0);
        fault.fail_lanes = 1u << lost; /* one drive goes */
        fault.fail_errno = EIO;
        CHECK_U64(read_all(io, number, 200, 16, file.bytes), 0);
        CHECK_U64(t.n, 1);
        CHECK(t.os_errno == EIO && strcmp(t.path, lost == 0 ? file.path : copy.path) == 0);
        const uint64_t before = mf_io_copy_bytes(io, lost == 0 ? UINT32_MAX : 0);
        fault.fail_lanes = 0; /* it is not asked again */
        CHECK_U64(read_all(io, number, 50, 16, file.bytes), 0);
        CHECK_U64(mf_io_copy_bytes(io, lost == 0 ? UINT32_MAX : 0), before);
        fault.fail_lanes = 3; /* nobody is left */
        CHECK_U64(read_all(io, number, 20, 4, NULL), 20);
        CHECK_U64(t.n, 1);
        check_message(io, number, lost == 0 ? copy.path : file.path);
        fault.fail_lanes = 0;
        CHECK_U64(read_all(io, number, 50, 16, file.bytes), 0);
        mf_io_close(&io);
    }
    scratch_remove(&copy);
    scratch_remove(&file);
}

static void test_refused(void)
{
    uint64_t random = 4711;
    scratch_file file = scratch_create("/tmp", 40000, &random);
    scratch_file other = scratch_create("/tmp", 40000, &random);
    scratch_file longer = scratch_create("/tmp", 48000, &random);
    scratch_file ends = copy_of(&file);
    mf_io *io = NULL;
    mf_error error = {0};
    uint32_t number;
    REQUIRE_OK(mf_io_open(&(mf_io_options){.kind = MF_IO_POOL}, &io, &error), &error);
    REQUIRE_OK(mf_io_add_file(io, file.path, &number, &error), &error);
    CHECK_STATUS(mf_io_add_copy(io, number, 0, other.path, &error), MF_ERR_FORMAT);
    CHECK(strstr(error.message, other.path) != NULL);
    CHECK_STATUS(mf_io_add_copy(io, number, 0, longer.path, &error), MF_ERR_FORMAT);
    FILE *f = fopen(ends.path, "r+b");
    REQUIRE(f != NULL && fseek(f, -1, SEEK_END) == 0 && fputc(ends.bytes[39999] ^ 1, f) != EOF &&
            fclose(f) == 0);
    CHECK_STATUS(mf_io_add_copy(io, number, 0, ends.path, &error), MF_ERR_FORMAT);
    CHECK_STATUS(mf_io_add_copy(io, number, 0, "/tmp", &error), MF_ERR_FORMAT);
    CHECK_STATUS(mf_io_add_copy(io, number, 0, "/no/such", &error), MF_ERR_NOT_FOUND);
    CHECK_STATUS(mf_io_add_copy(io, number, MF_IO_COPIES_MAX, file.path, &error), MF_ERR_ARGUMENT);
    REQUIRE_OK(mf_io_add_copy(io, number, 0, file.path, &error), &error);
    CHECK_STATUS(mf_io_add_copy(io, number, 0, file.path, &error), MF_ERR_ARGUMENT);
    mf_io_close(&io);
    scratch_remove(&ends);
    scratch_remove(&longer);
    scratch_remove(&other);
    scratch_remove(&file);
}

int main(void)
{
    io_case cases[8];
    const uint32_t n = io_cases(cases);
    (void)open_case, (void)scratch_dirs; /* of the fixture: not needed here */
    test_recovers(6);
    test_recovers(16);
    test_speeds_add_up(3000, 1000, 32);
    test_speeds_add_up(1000, 3000, 32);
    test_speeds_add_up(2000, 2000, 16);
    test_speeds_add_up(7000, 500, 64);
    for (uint32_t i = 0; i < n; i++)
        if (cases[i].inner != NULL)
            test_failing(&cases[i]);
    test_refused();
    return test_result();
}
