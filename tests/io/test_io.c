/* SPDX-License-Identifier: MIT */
/* The I/O layer: every engine, alone and broken by the fault engine, on a disk and in memory. */
#include "failing_alloc.h"
#include "io_fixture.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define ALIGN ((size_t)MF_IO_ALIGN)
#define N_BUFFERS 8u
#define BUFFER_BYTES (64u << 10)

typedef struct fixture {
    const io_case *c;
    mf_io_fault fault;
    mf_io *io;
    scratch_file file;
    uint32_t number; /* of the file */
    unsigned char *memory;
    uint64_t random;
} fixture;

static fixture setup(const io_case *c, const char *dir, size_t n_bytes, uint64_t seed)
{
    fixture f = {.c = c, .fault = {.seed = seed}, .random = seed};
    f.file = scratch_create(dir, n_bytes, &f.random);
    f.memory = aligned_alloc(ALIGN, N_BUFFERS * BUFFER_BYTES);
    REQUIRE(f.memory != NULL);
    return f;
}

/* Apart from setup: the fault engine keeps the address of the script. */
static void setup_io(fixture *f, uint32_t depth)
{
    mf_error error;
    f->io = open_case(f->c, &f->fault, depth, NULL);
    REQUIRE_OK(mf_io_add_file(f->io, f->file.path, &f->number, &error), &error);
    CHECK_STR(mf_io_file_path(f->io, f->number), f->file.path);
    CHECK_U64(mf_io_file_bytes(f->io, f->number), f->file.n_bytes);
}

static void teardown(fixture *f)
{
    mf_io_close(&f->io);
    CHECK(f->io == NULL);
    scratch_remove(&f->file);
    free(f->memory);
}

/* A random aligned read that needs at least a byte of the file and may reach past its end. */
static mf_io_read random_read(fixture *f, uint32_t buffer)
{
    size_t n_blocks = (f->file.n_bytes + ALIGN - 1) / ALIGN;
    uint64_t offset = test_random(&f->random) % n_blocks * ALIGN;
    uint32_t n_bytes = (uint32_t)((1 + test_random(&f->random) % (BUFFER_BYTES / ALIGN)) * ALIGN);
    uint64_t n_there = f->file.n_bytes - offset;
    uint32_t n_most = n_there < n_bytes ? (uint32_t)n_there : n_bytes;
    uint32_t n_needed = test_random(&f->random) % 2 != 0
                            ? n_most
                            : 1 + (uint32_t)(test_random(&f->random) % n_most);
    return (mf_io_read){.file = f->number,
                        .offset = offset,
                        .n_bytes = n_bytes,
                        .n_needed = n_needed,
                        .dest = f->memory + buffer * BUFFER_BYTES,
                        .tag = buffer};
}

/* n reads, as many in flight as there are buffers; each checked when it completes. */
static void read_and_check(fixture *f, uint32_t n)
{
    mf_error error;
    mf_io_read reads[N_BUFFERS];
    bool is_busy[N_BUFFERS] = {false};
    uint32_t n_done_all = 0, n_started = 0;
    while (n_done_all < n) {
        for (uint32_t b = 0; b < N_BUFFERS && n_started < n; b++) {
            if (is_busy[b])
                continue;
            uint32_t n_accepted;
            reads[b] = random_read(f, b);
            memset(reads[b].dest, 0, reads[b].n_bytes);
            REQUIRE_OK(mf_io_submit(f->io, &reads[b], 1, &n_accepted, &error), &error);
            is_busy[b] = n_accepted == 1;
            n_started += n_accepted;
        }
        mf_io_done done[3];
        uint32_t n_done;
        bool wait = test_random(&f->random) % 4 != 0;
        REQUIRE_OK(mf_io_collect(f->io, wait, done, 3, &n_done, &error), &error);
        CHECK(!wait || n_done > 0);
        for (uint32_t i = 0; i < n_done; i++) {
            REQUIRE(done[i].tag < N_BUFFERS && is_busy[done[i].tag]);
            const mf_io_read *read = &reads[done[i].tag];
            is_busy[done[i].tag] = false;
            CHECK_STATUS(done[i].status, MF_OK);
            CHECK_BYTES(read->dest, f->file.bytes + read->offset, read->n_needed);
        }
        n_done_all += n_done;
    }
    CHECK_U64(mf_io_in_flight(f->io), 0);
}

static void test_reads(const io_case *c, const char *dir)
{
    const size_t sizes[] = {1, 4095, 4096, 4097, 1000003};
    const uint32_t depths[] = {1, 5, 0};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t d = 0; d < 3; d++) {
            fixture f = setup(c, dir, sizes[s], 1 + s * 3 + d);
            setup_io(&f, depths[d]);
            f.fault.short_chance = 400;
            f.fault.interrupt_chance = 100;
            f.fault.hold_chance = 300;
            f.fault.shuffle = 1;
            read_and_check(&f, 60);
            teardown(&f);
        }
    }
}

/* Into memory that is held and memory that is not, with short reads and after a reset; of files and
 * memory that the system refuses to hold, nothing is lost. */
static void test_held(const io_case *c, const char *dir)
{
    for (uint32_t n_held = 0; n_held <= N_BUFFERS; n_held += N_BUFFERS / 2) {
        mf_error error;
        fixture f = setup(c, dir, 1000003, 91 + n_held);
        setup_io(&f, 0);
        f.fault.short_chance = 300;
        mf_io_hold_memory(f.io, f.memory, n_held * BUFFER_BYTES);
        const uint64_t before = mf_io_n_calls(f.io);
        read_and_check(&f, 60);
        const uint64_t n = mf_io_n_calls(f.io) - before;
        CHECK_MSG(n > 0 && n < 2000, "%llu system calls", (unsigned long long)n);
        REQUIRE_OK(mf_io_reset(f.io, &error), &error);
        read_and_check(&f, 60);
        teardown(&f);
    }
}

static void test_only_short_reads(const io_case *c, const char *dir)
{
    fixture f = setup(c, dir, 300001, 77);
    setup_io(&f, 0);
    f.fault.short_chance = 950;
    read_and_check(&f, 100);
    CHECK(c->inner == NULL || f.fault.n_short > 100);
    teardown(&f);
}

static void test_depth_and_arguments(const io_case *c, const char *dir)
{
    mf_error error;
    fixture f = setup(c, dir, 100000, 5);
    setup_io(&f, 3);
    mf_io_read reads[N_BUFFERS];
    mf_io_done done[N_BUFFERS];
    uint32_t n, n_all = 0;
    CHECK_STATUS(mf_io_collect(f.io, true, done, N_BUFFERS, &n, &error), MF_OK);
    CHECK_U64(n, 0);
    for (uint32_t b = 0; b < N_BUFFERS; b++)
        reads[b] = random_read(&f, b);
    CHECK_STATUS(mf_io_submit(f.io, reads, N_BUFFERS, &n, &error), MF_OK);
    CHECK_U64(n, 3);
    CHECK_U64(mf_io_in_flight(f.io), 3);
    uint32_t number;
    CHECK_STATUS(mf_io_add_file(f.io, f.file.path, &number, &error), MF_ERR_ARGUMENT);
    while (n_all < 3) {
        CHECK_STATUS(mf_io_collect(f.io, true, done, N_BUFFERS, &n, &error), MF_OK);
        n_all += n;
    }
    CHECK_U64(mf_io_in_flight(f.io), 0);
    for (int which = 0; which < 5; which++) {
        mf_io_read bad = {f.number, 0, 4096, 4096, f.memory, 0};
        bad.offset += which == 0 ? 512 : 0;
        bad.n_bytes += which == 1 ? 1 : 0;
        bad.dest += which == 2 ? 8 : 0;
        bad.n_needed += which == 3 ? 1 : 0;
        bad.file += which == 4 ? 1 : 0;
        CHECK_STATUS(mf_io_submit(f.io, &bad, 1, &n, &error), MF_ERR_ARGUMENT);
    }
    teardown(&f);
}

static void test_close_waits(const io_case *c, const char *dir)
{
    mf_error error;
    fixture f = setup(c, dir, 400000, 9);
    setup_io(&f, 0);
    f.fault.hold_chance = 500;
    f.fault.short_chance = 500;
    mf_io_read reads[N_BUFFERS];
    uint32_t n;
    for (uint32_t b = 0; b < N_BUFFERS; b++)
        reads[b] = random_read(&f, b);
    CHECK_STATUS(mf_io_submit(f.io, reads, N_BUFFERS, &n, &error), MF_OK);
    mf_io_close(&f.io);
    for (uint32_t b = 0; b < N_BUFFERS; b++)
        CHECK_BYTES(reads[b].dest, f.file.bytes + reads[b].offset, reads[b].n_needed);
    teardown(&f);
}

static mf_io_done read_one(fixture *f, const mf_io_read *read)
{
    mf_error error;
    mf_io_done done = {0};
    uint32_t n;
    REQUIRE_OK(mf_io_submit(f->io, read, 1, &n, &error), &error);
    REQUIRE_OK(mf_io_collect(f->io, true, &done, 1, &n, &error), &error);
    REQUIRE(n == 1);
    return done;
}

static void test_truncated_file(const io_case *c, const char *dir)
{
    mf_error error;
    fixture f = setup(c, dir, 50000, 11);
    setup_io(&f, 0);
    f.fault.short_chance = 300;
    mf_io_read whole = {f.number, 0, 53248, 50000, f.memory, 0};
    CHECK_STATUS(read_one(&f, &whole).status, MF_OK);
    REQUIRE(truncate(f.file.path, 20001) == 0);
    mf_io_done done = read_one(&f, &whole);
    CHECK_STATUS(done.status, MF_ERR_FORMAT);
    CHECK_STATUS(mf_io_fail(f.io, &done, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, f.file.path);
    CHECK_CONTAINS(error.message, "file ends at byte 20001, expected at least 50000 bytes");
    CHECK_U64(error.byte_position, 20001);
    mf_io_read beyond = {f.number, 40960, 4096, 4096, f.memory, 0};
    CHECK_STATUS(read_one(&f, &beyond).status, MF_ERR_FORMAT);
    mf_io_read enough = {f.number, 16384, 8192, 3617, f.memory, 0};
    CHECK_STATUS(read_one(&f, &enough).status, MF_OK);
    CHECK_BYTES(f.memory, f.file.bytes + 16384, 3617);
    teardown(&f);
}

static void test_errors_name_the_place(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    mf_error error;
    fixture f = setup(c, dir, 100000, 13);
    setup_io(&f, 0);
    f.fault.fail_errno = EIO;
    f.fault.fail_at_offset = true;
    f.fault.fail_offset = 45000;
    mf_io_read read = {f.number, 40960, 16384, 16384, f.memory, 7};
    mf_io_done done = read_one(&f, &read);
    CHECK_STATUS(done.status, MF_ERR_IO);
    CHECK_U64(done.tag, 7);
    CHECK_STATUS(mf_io_fail(f.io, &done, &error), MF_ERR_IO);
    CHECK_U64(error.os_errno, EIO);
    CHECK_U64(error.byte_position, 40960);
    CHECK_CONTAINS(error.message, f.file.path);
    CHECK_CONTAINS(error.message, "offset 40960");
    read.offset = 0;
    CHECK_STATUS(read_one(&f, &read).status, MF_OK);
    f.fault.fail_errno = 0;
    f.fault.interrupt_chance = 1000; /* for ever */
    done = read_one(&f, &read);
    CHECK_STATUS(done.status, MF_ERR_IO);
    CHECK_U64(done.os_errno, EINTR);
    f.fault.interrupt_chance = 0;
    read_and_check(&f, 20);
    teardown(&f);
}

/* Errors that pass are no errors, whichever they are, as long as a read gets through now and then:
 * more of them in all than may come in a row. */
static void test_errors_that_pass(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    const int codes[] = {EINTR, EAGAIN, ECANCELED};
    for (int i = 0; i < 3; i++) {
        fixture f = setup(c, dir, 200000, 29);
        setup_io(&f, 0);
        f.fault.interrupt_errno = codes[i];
        f.fault.interrupt_each = 300;
        f.fault.short_chance = 1000;
        mf_io_read read = {f.number, 0, BUFFER_BYTES, BUFFER_BYTES - 4000, f.memory, 0};
        CHECK_STATUS(read_one(&f, &read).status, MF_OK);
        CHECK_BYTES(f.memory, f.file.bytes, read.n_needed);
        CHECK(f.fault.n_interrupted > 1100);
        f.fault.interrupt_each = UINT32_MAX;
        mf_io_done done = read_one(&f, &read);
        CHECK_STATUS(done.status, MF_ERR_IO);
        CHECK_U64(done.os_errno, codes[i]);
        teardown(&f);
    }
}

/* O_DIRECT where a file can be read so. */
static int direct_flag(const fixture *f)
{
    int fd = open(f->file.path, O_RDONLY | O_DIRECT);
    bool is_direct = fd >= 0 && pread(fd, f->memory, ALIGN, 0) >= 0;
    if (fd >= 0)
        close(fd);
    return is_direct ? O_DIRECT : 0;
}

/* The probe for direct reads is interrupted like any read, and finds out all the same. */
static void test_interrupted_probe(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    fixture f = setup(c, dir, 100000, 31), g = setup(c, dir, 100000, 31);
    setup_io(&f, 0);
    g.fault.interrupt_each = 5;
    setup_io(&g, 0);
    CHECK_U64(g.fault.n_interrupted, 5);
    mf_io_read read = {f.number, 0, 4096, 4096, f.memory, 0};
    CHECK_STATUS(read_one(&f, &read).status, MF_OK);
    g.fault.interrupt_each = 0;
    read.dest = g.memory;
    CHECK_STATUS(read_one(&g, &read).status, MF_OK);
    CHECK_U64(fcntl(f.fault.last_fd, F_GETFL) & O_DIRECT, direct_flag(&f));
    CHECK_U64(fcntl(g.fault.last_fd, F_GETFL) & O_DIRECT, direct_flag(&g));
    teardown(&f);
    teardown(&g);
}

typedef struct submitter {
    fixture *f;
    mf_io_read reads[N_BUFFERS];
    uint32_t n_accepted;
    mf_status status;
} submitter;

static void *submit_and_end(void *arg)
{
    submitter *s = arg;
    s->status = mf_io_submit(s->f->io, s->reads, N_BUFFERS, &s->n_accepted, NULL);
    return NULL;
}

/* Reads outlive the thread that submitted them. */
static void test_submitter_ends(const io_case *c, const char *dir)
{
    mf_error error;
    fixture f = setup(c, dir, 900000, 37);
    setup_io(&f, 0);
    f.fault.hold_chance = 300;
    f.fault.short_chance = 300;
    for (int round = 0; round < 30; round++) {
        submitter s = {.f = &f};
        pthread_t thread;
        for (uint32_t b = 0; b < N_BUFFERS; b++)
            s.reads[b] = random_read(&f, b);
        int failure = pthread_create(&thread, NULL, submit_and_end, &s);
        REQUIRE(failure == 0 && pthread_join(thread, NULL) == 0);
        CHECK_STATUS(s.status, MF_OK);
        CHECK_U64(s.n_accepted, N_BUFFERS);
        mf_io_done done;
        uint32_t n;
        while (mf_io_in_flight(f.io) > 0) {
            REQUIRE_OK(mf_io_collect(f.io, true, &done, 1, &n, &error), &error);
            const mf_io_read *read = &s.reads[done.tag];
            CHECK_STATUS(done.status, MF_OK);
            CHECK_BYTES(read->dest, f.file.bytes + read->offset, read->n_needed);
        }
    }
    teardown(&f);
}

/* The engine fails as such, at any call: nothing works until it is reset, and then all does. */
static void test_broken_engine(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    fixture f = setup(c, dir, 400000, 41);
    setup_io(&f, 0);
    f.fault.hold_chance = 300;
    f.fault.short_chance = 300;
    for (uint64_t nth = 1; nth <= 6; nth++) {
        mf_error error = {0};
        mf_io_read reads[N_BUFFERS];
        mf_io_done done[N_BUFFERS];
        uint32_t n = 0, n_calls = 0;
        for (uint32_t b = 0; b < N_BUFFERS; b++)
            reads[b] = random_read(&f, b);
        f.fault.break_at = f.fault.n_calls + nth;
        mf_status status = mf_io_submit(f.io, reads, N_BUFFERS, &n, &error);
        while (status == MF_OK && n_calls++ < 1000) {
            if (mf_io_in_flight(f.io) == 0)
                status = mf_io_submit(f.io, reads, N_BUFFERS, &n, &error);
            else
                status = mf_io_collect(f.io, true, done, 1, &n, &error);
        }
        CHECK_STATUS(status, MF_ERR_IO);
        CHECK_CONTAINS(error.message, "broke");
        CHECK_STATUS(mf_io_submit(f.io, reads, 1, &n, &error), MF_ERR_IO);
        CHECK_CONTAINS(error.message, "earlier failure");
        f.fault.reset_fails = true;
        CHECK_STATUS(mf_io_reset(f.io, &error), MF_ERR_IO);
        CHECK_STATUS(mf_io_submit(f.io, reads, 1, &n, &error), MF_ERR_IO);
        f.fault.reset_fails = false;
        REQUIRE_OK(mf_io_reset(f.io, &error), &error);
        CHECK_U64(mf_io_in_flight(f.io), 0);
        /* Whatever was in flight writes no more. */
        memset(f.memory, 0x5a, N_BUFFERS * BUFFER_BYTES);
        mf_io_read one = {f.number, 0, 4096, 4096, f.memory, 0};
        CHECK_STATUS(read_one(&f, &one).status, MF_OK);
        for (uint32_t i = 4096; i < N_BUFFERS * BUFFER_BYTES; i++)
            CHECK_MSG(f.memory[i] == 0x5a, "byte %u was written after the reset", i);
        read_and_check(&f, 20);
    }
    f.fault.break_at = f.fault.n_calls + 2;
    mf_io_read last = random_read(&f, 0);
    uint32_t n;
    (void)!mf_io_submit(f.io, &last, 1, &n, NULL); /* closing finds out */
    teardown(&f);
}

#ifdef MF_HAVE_URING
/* The ring's descriptor becomes one that takes no reads: the kernel refuses what is queued. */
static void spoil_ring(void)
{
    int n_found = 0, other = open("/dev/null", O_RDONLY | O_CLOEXEC);
    REQUIRE(other >= 0);
    for (int fd = 3; fd < 256; fd++) {
        char link[64], what[64] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, what, sizeof what - 1) > 0 && strstr(what, "io_uring") != NULL) {
            REQUIRE(dup2(other, fd) == fd);
            n_found++;
        }
    }
    CHECK_U64((uint64_t)n_found, 1);
    close(other);
}

/* A ring that the kernel refuses while reads are queued is set up anew with nothing in flight, as
 * often as need be: reads that were never taken are not waited for. */
static void test_refused_ring(const io_case *c, const char *dir)
{
    if (c->inner != NULL || c->kind != MF_IO_URING)
        return;
    mf_error error = {0};
    fixture f = setup(c, dir, 400000, 53);
    setup_io(&f, 0);
    for (uint32_t round = 1; round <= 3; round++) {
        mf_io_read reads[N_BUFFERS];
        uint32_t n;
        for (uint32_t b = 0; b < N_BUFFERS; b++)
            reads[b] = random_read(&f, b);
        spoil_ring();
        CHECK_STATUS(mf_io_submit(f.io, reads, round, &n, &error), MF_ERR_IO);
        CHECK_CONTAINS(error.message, "io_uring: submitting reads failed");
        REQUIRE_OK(mf_io_reset(f.io, &error), &error);
        CHECK_U64(mf_io_in_flight(f.io), 0);
        read_and_check(&f, 20);
    }
    teardown(&f);
}
#else
static void test_refused_ring(const io_case *c, const char *dir)
{
    (void)c;
    (void)dir;
}
#endif

/* A file system whose direct reads fail is read through the page cache. */
static void test_direct_fallback(const io_case *c, const char *dir)
{
    if (c->inner == NULL)
        return;
    fixture f = setup(c, dir, 100001, 17);
    f.fault.fail_errno = EINVAL;
    f.fault.fail_from = 1;
    f.fault.fail_count = 1;
    setup_io(&f, 0);
    CHECK_U64(f.fault.n_failed, 1);
    read_and_check(&f, 50);
    CHECK((fcntl(f.fault.last_fd, F_GETFL) & O_DIRECT) == 0);
    teardown(&f);
}

/* A program may have closed its standard streams: what reads or prints must not meet a model. */
static void test_standard_descriptors(const io_case *c, const char *dir)
{
    mf_error error;
    fixture f = setup(c, dir, 4096, 1);
    f.io = open_case(f.c, &f.fault, 0, NULL);
    int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
    REQUIRE(kept >= 10);
    close(STDIN_FILENO);
    mf_status status = mf_io_add_file(f.io, f.file.path, &f.number, &error);
    bool is_taken = fcntl(STDIN_FILENO, F_GETFD) >= 0;
    REQUIRE(dup2(kept, STDIN_FILENO) == STDIN_FILENO);
    close(kept);
    REQUIRE_OK(status, &error);
    CHECK(!is_taken);
    read_and_check(&f, 3);
    teardown(&f);
}

static void test_files_refused(const io_case *c, const char *dir)
{
    mf_error error;
    uint32_t number = 99;
    fixture f = setup(c, dir, 10, 19);
    setup_io(&f, 0);
    CHECK_STATUS(mf_io_add_file(f.io, "/nonexistent/x", &number, &error), MF_ERR_NOT_FOUND);
    CHECK_CONTAINS(error.message, "/nonexistent/x");
    CHECK_STATUS(mf_io_add_file(f.io, dir, &number, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "not a regular file");
    CHECK_U64(number, 99);
    if (access("/proc/self/status", R_OK) == 0) { /* procfs refuses O_DIRECT at open */
        REQUIRE_OK(mf_io_add_file(f.io, "/proc/self/status", &number, &error), &error);
    }
    /* More files than the table starts with. */
    for (uint32_t i = 0; i < 40; i++)
        REQUIRE_OK(mf_io_add_file(f.io, f.file.path, &number, &error), &error);
    CHECK_STR(mf_io_file_path(f.io, number), f.file.path);
    teardown(&f);
}

static void test_allocations(const io_case *c, const char *dir)
{
    failing count = {.fail_once = true};
    mf_allocator allocator = failing_allocator(&count);
    fixture f = setup(c, dir, 200000, 23);
    mf_io_options options = {.allocator = allocator, .kind = c->kind};
    if (c->inner != NULL) {
        f.fault.inner = c->inner;
        options.engine = &mf_io_engine_fault;
        options.engine_arg = &f.fault;
    }
    mf_error error;
    mf_status status = MF_ERR_NO_MEMORY;
    for (count.fail_at = 1; status != MF_OK && count.fail_at < 100; count.fail_at++) {
        count.n_calls = 0;
        status = mf_io_open(&options, &f.io, &error);
        if (status == MF_OK)
            status = mf_io_add_file(f.io, f.file.path, &f.number, &error);
        if (status != MF_OK) {
            CHECK_STATUS(status, MF_ERR_NO_MEMORY);
            CHECK_CONTAINS(error.message, "out of memory");
            mf_io_close(&f.io);
            failing_check_end(&count, "an engine that does not open");
        }
    }
    CHECK(count.fail_at > 5);
    REQUIRE(status == MF_OK);
    uint64_t n_calls = count.n_calls;
    f.fault.short_chance = 300;
    f.fault.hold_chance = 300;
    read_and_check(&f, 50);
    CHECK_U64(count.n_calls, n_calls);
    teardown(&f);
    failing_check_end(&count, "an engine");
}

/* Two drives: the depth is shared, and one that hangs keeps nothing of the other from coming. */
static void test_two_drives(const io_case *c, const char **dirs)
{
    mf_error error;
    struct stat info[2];
    fixture f = setup(c, dirs[0], 300000, 43);
    scratch_file other = scratch_create(dirs[1], 300000, &f.random);
    uint32_t number, n;
    REQUIRE(stat(f.file.path, &info[0]) == 0 && stat(other.path, &info[1]) == 0);
    setup_io(&f, 6);
    CHECK_U64(mf_io_n_lanes(f.io), 1);
    CHECK_U64(mf_io_room(f.io, 0), 6);
    REQUIRE_OK(mf_io_add_file(f.io, other.path, &number, &error), &error);
    if (info[0].st_dev == info[1].st_dev) {
        CHECK_U64(mf_io_n_lanes(f.io), 1);
        teardown(&f);
        scratch_remove(&other);
        return;
    }
    CHECK_U64(mf_io_n_lanes(f.io), 2);
    CHECK(mf_io_file_lane(f.io, f.number) == 0 && mf_io_file_lane(f.io, number) == 1);
    mf_io_read reads[N_BUFFERS];
    for (uint32_t b = 0; b < N_BUFFERS; b++)
        reads[b] = random_read(&f, b);
    f.fault.slow_lanes = 1;
    REQUIRE_OK(mf_io_submit(f.io, reads, N_BUFFERS, &n, &error), &error);
    CHECK_U64(n, 3);
    CHECK_U64(mf_io_room(f.io, 0), 0);
    CHECK_U64(mf_io_lane_in_flight(f.io, 0), 3);
    for (int i = 0; i < 20; i++) {
        mf_io_read read = {number, 4096, 8192, 8192, f.memory + 7 * BUFFER_BYTES, 7};
        mf_io_done done = {0};
        CHECK_U64(mf_io_room(f.io, 1), 3);
        REQUIRE_OK(mf_io_submit(f.io, &read, 1, &n, &error), &error);
        CHECK_U64(n, 1);
        for (n = 0; n == 0 || done.tag != 7;) /* the healthy drive's, if both are */
            REQUIRE_OK(mf_io_collect(f.io, true, &done, 1, &n, &error), &error);
        CHECK_STATUS(done.status, MF_OK);
        CHECK_BYTES(read.dest, other.bytes + 4096, 8192);
    }
    CHECK(c->inner == NULL || mf_io_lane_in_flight(f.io, 0) == 3);
    f.fault.slow_lanes = 0;
    teardown(&f);
    scratch_remove(&other);
}

/* More devices than lanes, more lanes than threads: two are all there are here, with a depth of
 * one.
 */
static void test_lanes_without_depth(const io_case *c, const char **dirs)
{
    mf_error error;
    fixture f = setup(c, dirs[0], 300000, 47);
    scratch_file other = scratch_create(dirs[1], 300000, &f.random);
    uint32_t number;
    setup_io(&f, 1);
    REQUIRE_OK(mf_io_add_file(f.io, other.path, &number, &error), &error);
    for (int i = 0; i < 20; i++) {
        bool is_other = i % 2 != 0;
        mf_io_read read = {is_other ? number : f.number, 4096, 8192, 8192, f.memory, 0};
        CHECK_STATUS(read_one(&f, &read).status, MF_OK);
        CHECK_BYTES(read.dest, (is_other ? other.bytes : f.file.bytes) + 4096, 8192);
    }
    teardown(&f);
    scratch_remove(&other);
}

#if defined(__x86_64__) || defined(__aarch64__)
static bool forbid_io_uring(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* Of what a ring may be told, all but the question what it can do. */
static bool forbid_holding(void)
{
    enum { REGISTER_PROBE = 8 };
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_register, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, REGISTER_PROBE, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* Where files and memory may not be held, as by old kernels and low limits, reads are as ever. */
static void test_holding_refused(const io_case *c, const char *dir)
{
    fflush(NULL);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        if (!forbid_holding())
            _exit(TEST_SKIPPED);
        test_held(c, dir);
        _exit(test_n_failed == 0 ? 0 : 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == TEST_SKIPPED));
}

/* As in a container that forbids io_uring. Runs in a child: the ban cannot be lifted. */
static void test_forbidden_io_uring(void)
{
    fflush(NULL);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        if (!forbid_io_uring())
            _exit(TEST_SKIPPED);
        mf_error error;
        mf_io *io = NULL;
        CHECK_STATUS(mf_io_open(&(mf_io_options){.kind = MF_IO_URING}, &io, &error),
                     MF_ERR_UNSUPPORTED);
        CHECK_CONTAINS(error.message, "io_uring");
        REQUIRE_OK(mf_io_open(&(mf_io_options){.kind = MF_IO_AUTO}, &io, &error), &error);
        CHECK_STR(mf_io_name(io), "pool");
        mf_io_close(&io);
        _exit(test_n_failed == 0 ? 0 : 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == TEST_SKIPPED));
}
#else
static void test_holding_refused(const io_case *c, const char *dir)
{
    (void)c;
    (void)dir;
}

static void test_forbidden_io_uring(void)
{
}
#endif

int main(void)
{
    const char *dirs[2];
    io_case cases[4];
    test_forbidden_io_uring(); /* before any thread exists */
    uint32_t n_dirs = scratch_dirs(dirs), n_cases = io_cases(cases);
    for (uint32_t c = 0; c < n_cases; c++)
        test_holding_refused(&cases[c], dirs[0]);
    for (uint32_t d = 0; d < n_dirs; d++) {
        for (uint32_t c = 0; c < n_cases; c++) {
            fprintf(stderr, "%s in %s\n", cases[c].name, dirs[d]);
            test_reads(&cases[c], dirs[d]);
            test_held(&cases[c], dirs[d]);
            test_only_short_reads(&cases[c], dirs[d]);
            test_depth_and_arguments(&cases[c], dirs[d]);
            test_close_waits(&cases[c], dirs[d]);
            test_truncated_file(&cases[c], dirs[d]);
            test_errors_name_the_place(&cases[c], dirs[d]);
            test_errors_that_pass(&cases[c], dirs[d]);
            test_interrupted_probe(&cases[c], dirs[d]);
            test_submitter_ends(&cases[c], dirs[d]);
            test_broken_engine(&cases[c], dirs[d]);
            test_refused_ring(&cases[c], dirs[d]);
            test_direct_fallback(&cases[c], dirs[d]);
            test_standard_descriptors(&cases[c], dirs[d]);
            test_files_refused(&cases[c], dirs[d]);
            test_allocations(&cases[c], dirs[d]);
        }
    }
    for (uint32_t c = 0; c < n_cases && n_dirs == 2; c++) {
        test_two_drives(&cases[c], dirs);
        test_lanes_without_depth(&cases[c], dirs);
    }
    return test_result();
}
