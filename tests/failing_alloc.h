/* SPDX-License-Identifier: MIT */
/*
 * The allocator of the tests: counts calls and what is live, finds wrong sizes and writes past the
 * end, and fails where it is told to. Threads may share it. A block never grows in place, so that
 * who kept its old address is found by the sanitizer.
 */
#ifndef MF_TESTS_FAILING_ALLOC_H
#define MF_TESTS_FAILING_ALLOC_H

#include "test.h"

#include <stdatomic.h>
#include <stddef.h>

/* Where malloc itself is counted: what is not. */
#ifndef FAILING_MALLOC
#define FAILING_MALLOC malloc
#endif

#define FAILING_CANARY_BYTES 64

typedef struct failing {
    atomic_ullong n_calls; /* of alloc and realloc */
    atomic_ullong fail_at; /* this call, counted from 1, and all after it; 0: none */
    bool fail_once;        /* this call alone */
    atomic_llong n_live, live_bytes;
    atomic_ullong n_wrong_sizes; /* given back with another size than was asked for */
    atomic_ullong n_overrun;     /* found written past their end when given back */
} failing;

typedef union failing_header {
    size_t n_bytes;
    max_align_t align;
} failing_header;

static void *failing_alloc(void *ctx, size_t n_bytes)
{
    failing *f = ctx;
    unsigned long long call = ++f->n_calls, fail_at = f->fail_at;
    if (fail_at != 0 && (f->fail_once ? call == fail_at : call >= fail_at))
        return NULL;
    failing_header *h = FAILING_MALLOC(sizeof *h + n_bytes + FAILING_CANARY_BYTES);
    if (h == NULL)
        return NULL;
    h->n_bytes = n_bytes;
    memset((unsigned char *)(h + 1) + n_bytes, 0xa5, FAILING_CANARY_BYTES);
    f->n_live++;
    f->live_bytes += (long long)n_bytes;
    return h + 1;
}

static void failing_free(void *ctx, void *ptr, size_t n_bytes)
{
    failing *f = ctx;
    if (ptr == NULL)
        return;
    failing_header *h = (failing_header *)ptr - 1;
    const unsigned char *end = (unsigned char *)ptr + h->n_bytes;
    bool whole = true;
    for (size_t i = 0; i < FAILING_CANARY_BYTES; i++)
        whole = whole && end[i] == 0xa5;
    f->n_overrun += !whole;
    f->n_wrong_sizes += h->n_bytes != n_bytes;
    f->n_live--;
    f->live_bytes -= (long long)h->n_bytes;
    free(h);
}

static void *failing_realloc(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    void *out = failing_alloc(ctx, new_bytes);
    if (out == NULL || ptr == NULL)
        return out;
    size_t held = ((failing_header *)ptr - 1)->n_bytes;
    memcpy(out, ptr, held < new_bytes ? held : new_bytes);
    failing_free(ctx, ptr, old_bytes);
    return out;
}

__attribute__((unused)) static mf_allocator failing_allocator(failing *f)
{
    return (mf_allocator){f, failing_alloc, failing_realloc, failing_free};
}

/* The n-th call from now on fails (1: the next), alone or with all after it. */
__attribute__((unused)) static void failing_arm(failing *f, unsigned long long n, bool once)
{
    f->fail_once = once;
    f->fail_at = f->n_calls + n;
}

/* Ends that. True if it came to a failure. */
__attribute__((unused)) static bool failing_disarm(failing *f)
{
    bool has_failed = f->fail_at != 0 && f->n_calls >= f->fail_at;
    f->fail_at = 0;
    return has_failed;
}

/* All has been given back as it was asked for. */
__attribute__((unused)) static void failing_check_end(const failing *f, const char *what)
{
    CHECK_MSG(f->n_live == 0 && f->live_bytes == 0 && f->n_wrong_sizes == 0 && f->n_overrun == 0,
              "%s: %lld blocks of %lld bytes are left, %llu were given back with another size, "
              "%llu overrun",
              what, f->n_live, f->live_bytes, f->n_wrong_sizes, f->n_overrun);
}

#endif
