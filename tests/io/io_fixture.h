/* SPDX-License-Identifier: MIT */
/* What the tests of reading share: scratch files of known bytes, engines to run over. */
#ifndef MF_TESTS_IO_FIXTURE_H
#define MF_TESTS_IO_FIXTURE_H

#include "io/io.h"
#include "io/io_engine.h"
#include "io/io_fault.h"
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* -------------------------------------------------------------------------- scratch files -- */

typedef struct scratch_file {
    char path[256];
    unsigned char *bytes; /* what it holds */
    size_t n_bytes;
} scratch_file;

static scratch_file scratch_create(const char *dir, size_t n_bytes, uint64_t *random)
{
    scratch_file f = {.n_bytes = n_bytes, .bytes = malloc(n_bytes + 8)};
    snprintf(f.path, sizeof f.path, "%s/moeflux-io-XXXXXX", dir);
    int fd = mkstemp(f.path);
    REQUIRE(fd >= 0 && f.bytes != NULL);
    for (size_t i = 0; i < n_bytes; i += 8) {
        uint64_t word = test_random(random);
        memcpy(f.bytes + i, &word, 8);
    }
    for (size_t done = 0; done < n_bytes;) {
        ssize_t n = write(fd, f.bytes + done, n_bytes - done);
        REQUIRE(n > 0);
        done += (size_t)n;
    }
    close(fd);
    return f;
}

static void scratch_remove(scratch_file *f)
{
    unlink(f->path);
    free(f->bytes);
    *f = (scratch_file){0};
}

/* A disk and a memory file system, where there is one: direct and (mostly) buffered reads. */
static uint32_t scratch_dirs(const char **dirs)
{
    const char *tmp = getenv("TMPDIR");
    uint32_t n = 0;
    dirs[n++] = tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp";
    if (access("/dev/shm", W_OK) == 0)
        dirs[n++] = "/dev/shm";
    return n;
}

/* -------------------------------------------------------------------------------- engines -- */

typedef struct io_case {
    const char *name;
    mf_io_kind kind;
    const mf_io_engine *inner; /* non-NULL: through the fault engine */
} io_case;

static uint32_t io_cases(io_case *cases)
{
    uint32_t n = 0;
    cases[n++] = (io_case){"pool", MF_IO_POOL, NULL};
    cases[n++] = (io_case){"broken pool", MF_IO_POOL, &mf_io_engine_pool};
#ifdef MF_HAVE_URING
    mf_io *probe = NULL;
    if (mf_io_open(&(mf_io_options){.kind = MF_IO_URING}, &probe, NULL) == MF_OK) {
        mf_io_close(&probe);
        cases[n++] = (io_case){"io_uring", MF_IO_URING, NULL};
        cases[n++] = (io_case){"broken io_uring", MF_IO_URING, &mf_io_engine_uring};
    } else {
        fprintf(stderr, "io_uring is not available here: not tested\n");
    }
#endif
    return n;
}

/* fault is used by the cases that go through the fault engine. */
static mf_io *open_case(const io_case *c, mf_io_fault *fault, uint32_t depth,
                        const mf_allocator *allocator)
{
    mf_io_options options = {.kind = c->kind, .depth = depth};
    if (allocator != NULL)
        options.allocator = *allocator;
    if (c->inner != NULL) {
        fault->inner = c->inner;
        options.engine = &mf_io_engine_fault;
        options.engine_arg = fault;
    }
    mf_io *io = NULL;
    mf_error error;
    REQUIRE_OK(mf_io_open(&options, &io, &error), &error);
    return io;
}

#endif
