/* SPDX-License-Identifier: MIT */
/*
 * The CPU's attention over a long context, on the shape of a mixture of 35B with 3B active: one
 * token, bytes of its cache a second beside what all threads read from memory in the same minute;
 * a chunk of a prompt, multiply-adds a second beside the peak. Caches go round through --mib of
 * memory, so that none is found in the processor's.
 *
 *     bench_attention [-t THREADS] [--context N] [--rows N] [--mib N] [--tier NAME]
 */
#include "backend/backend.h"
#include "base/cache_rows.h"
#include "bench_median.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { HEADS = 16, KV_HEADS = 2, DIM = 256, RUNS = 7, PAGES_MOST = 1u << 16 };

typedef struct bench {
    mf_backend *be;
    uint32_t n_threads, n_context, n_rows, n_mib;
    const char *tier;
    mf_span caches, x; /* x: q, k, v, out */
    uint64_t n_bytes, next;
    double read, fma;
    mf_span pages[PAGES_MOST];
} bench;

/* Of one thread the time that it ran, so that others on the machine disturb little. */
static double now(const bench *b)
{
    struct timespec t;
    (void)clock_gettime(b->n_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(mf_status status, const mf_error *error)
{
    if (status == MF_OK)
        return; /* what it gives is there */
    fprintf(stderr, "bench_attention: %s\n", error->message);
    exit(1);
}

static mf_span create(bench *b, uint64_t n_bytes)
{
    mf_error error = {0};
    mf_span span = {0};
    check(b->be->ops->buffer_create(b->be, n_bytes, MF_USE_HOST, "bench", &span.buffer, &error),
          &error);
    float *at = (float *)(void *)b->be->ops->buffer_host(b->be, span.buffer);
    for (uint64_t i = 0; i < n_bytes / sizeof *at; i++)
        at[i] = (float)(i * 2654435761u % 1024) / 512.0f - 1.0f;
    return span;
}

static void open_backend(bench *b)
{
    mf_error error = {0};
    mf_cpu_tier tier = MF_CPU_BEST;
    for (uint32_t i = 0; b->tier != NULL && i < 8; i++)
        if (strcmp(b->tier, mf_cpu_tier_name((mf_cpu_tier)i)) == 0)
            tier = (mf_cpu_tier)i;
    const mf_backend_options options = {.n_threads = b->n_threads, .cpu_tier = tier};
    check(mf_backend_open(&options, &b->be, &error), &error);
    if (b->be == NULL)
        exit(1);
    b->n_bytes = (uint64_t)b->n_mib << 20;
    b->caches = create(b, b->n_bytes);
    b->x = create(b, (uint64_t)b->n_rows * 2 * (HEADS + KV_HEADS) * DIM * sizeof(float));
    check(b->be->ops->reserve_batch(b->be, 1, PAGES_MOST, &error), &error);
    check(b->be->ops->measure(b->be, &b->caches, &b->n_bytes, 1, 200, &b->read, &b->fma, &error),
          &error);
}

/* One layer's attention of n_rows rows that end at the context, over caches that were not read
 * lately; seconds. */
static double run(bench *b, uint32_t n_rows, mf_dtype type)
{
    mf_error error = {0};
    const uint64_t row_bytes = mf_cache_row_bytes(type, KV_HEADS, DIM);
    const uint64_t page_bytes = 2 * MF_PAGE_TOKENS * row_bytes;
    const uint32_t n_pages = mf_pages_of(b->n_context);
    const uint64_t n_there = page_bytes != 0 ? b->n_bytes / page_bytes : 0;
    if (n_there == 0)
        exit(2);
    const uint64_t q = (uint64_t)b->n_rows * HEADS * DIM * sizeof(float);
    const uint64_t kv = (uint64_t)b->n_rows * KV_HEADS * DIM * sizeof(float);
    for (uint32_t i = 0; i < n_pages; i++, b->next++)
        b->pages[i] = mf_span_at(b->caches, b->next % n_there * page_bytes);
    const mf_sequence sequence = {
        .n_rows = n_rows, .position = b->n_context - n_rows, .pages = b->pages};
    const mf_op op = {.kind = MF_OP_ATTENTION,
                      .n_rows = n_rows,
                      .u.attention = {.q = b->x,
                                      .k = mf_span_at(b->x, 2 * q),
                                      .v = mf_span_at(b->x, 2 * q + kv),
                                      .out = mf_span_at(b->x, q),
                                      .n_heads = HEADS,
                                      .n_kv_heads = KV_HEADS,
                                      .head_dim = DIM,
                                      .cache_type = type,
                                      .page_offset = {0, MF_PAGE_TOKENS * row_bytes},
                                      .scale = 0.0625f}};
    check(mf_backend_reserve(b->be, &op, &error), &error);
    b->be->ops->begin_batch(b->be, &sequence, 1);
    const double began = now(b);
    b->be->ops->record(b->be, &op);
    return now(b) - began;
}

static void report(bench *b, mf_dtype type, const char *name)
{
    double few[RUNS], many[RUNS];
    const uint64_t n = b->n_context;
    const uint32_t n_many = b->n_rows > 512 ? 1 : 3;
    for (uint32_t i = 0; i < RUNS; i++)
        few[i] = run(b, 1, type);
    for (uint32_t i = 0; i < n_many; i++)
        many[i] = run(b, b->n_rows, type);
    const double seconds = bench_median(few, RUNS), prompt = bench_median(many, n_many);
    const double n_bytes = 2.0 * (double)(n * mf_cache_row_bytes(type, KV_HEADS, DIM));
    const double seen = (double)b->n_rows * ((double)n - 0.5 * ((double)b->n_rows - 1));
    const double n_products = 2.0 * seen * HEADS * DIM;
    printf("%-5s one token %8.1f us %6.1f GB/s %4.2f of reading | %u rows %8.2f ms %6.1f G/s %4.2f "
           "of the peak\n",
           name, 1e6 * seconds, 1e-9 * n_bytes / seconds, n_bytes / seconds / b->read, b->n_rows,
           1e3 * prompt, 1e-9 * n_products / prompt, n_products / prompt / b->fma);
}

int main(int argc, char **argv)
{
    static bench b = {.n_threads = 2, .n_context = 32768, .n_rows = 256, .n_mib = 512};
    for (int i = 1; i + 1 < argc; i += 2) {
        uint32_t *const value = strcmp(argv[i], "-t") == 0          ? &b.n_threads
                                : strcmp(argv[i], "--context") == 0 ? &b.n_context
                                : strcmp(argv[i], "--rows") == 0    ? &b.n_rows
                                : strcmp(argv[i], "--mib") == 0     ? &b.n_mib
                                                                    : NULL;
        if (value != NULL)
            *value = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else
            b.tier = argv[i + 1];
    }
    if (b.n_rows == 0 || b.n_context < b.n_rows || mf_pages_of(b.n_context) > PAGES_MOST)
        return 2;
    open_backend(&b);
    printf("context %u, %u threads, reading %.1f GB/s, %.1f G multiply-adds/s\n", b.n_context,
           b.n_threads, 1e-9 * b.read, 1e-9 * b.fma);
    report(&b, MF_F32, "f32");
    report(&b, MF_BF16, "bf16");
    report(&b, MF_Q8, "q8");
    b.be->ops->destroy(b.be);
    return 0;
}
