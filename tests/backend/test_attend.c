/* SPDX-License-Identifier: MIT */
/*
 * The CPU's attention over contexts of several segments: near float64, and the same bits whether a
 * task joins the parts itself or threads have a segment each, whatever their number, the rows of an
 * operation and the room for parts; with windows, sinks and every type of cache.
 */
#include "backend/backend.h"
#include "base/cache_rows.h"
#include "test.h"

#include <math.h>
#include <string.h>

enum { HEADS = 6, KV_HEADS = 2, DIM = 24, CONTEXT = 1400, ROWS = 40, PAGES = 44, SEQUENCES = 2 };
enum { Q_WIDTH = HEADS * DIM, KV_WIDTH = KV_HEADS * DIM };

typedef struct shape {
    mf_dtype type;
    uint32_t window;
    bool is_chunk, has_sinks;
} shape;

typedef struct data {
    float q[SEQUENCES * ROWS * Q_WIDTH], k[SEQUENCES * CONTEXT * KV_WIDTH],
        v[SEQUENCES * CONTEXT * KV_WIDTH], sinks[HEADS];
} data;

typedef struct bench {
    mf_backend *be;
    mf_span q, k, v, out, sinks, pages[SEQUENCES * PAGES];
    shape s;
} bench;

static mf_span put(mf_backend *be, const void *from, size_t n_bytes)
{
    mf_error error = {0};
    mf_span span = {0};
    REQUIRE_OK(be->ops->buffer_create(be, n_bytes, MF_USE_HOST, "test", &span.buffer, &error),
               &error);
    unsigned char *to = be->ops->buffer_host(be, span.buffer);
    REQUIRE(to != NULL);
    memset(to, 0, n_bytes);
    if (from != NULL)
        memcpy(to, from, n_bytes);
    return span;
}

/* The n rows of each of n_sequences that end at `end`, their keys and values appended. */
static void record(bench *b, uint32_t n_sequences, uint32_t n, uint32_t end, const data *d)
{
    mf_error error = {0};
    mf_sequence sequences[SEQUENCES];
    const uint64_t row_bytes = mf_cache_row_bytes(b->s.type, KV_HEADS, DIM);
    for (uint32_t i = 0; i < n_sequences; i++) {
        sequences[i] = (mf_sequence){.first_row = i * n,
                                     .n_rows = n,
                                     .position = end - n,
                                     .pages = b->pages + (size_t)i * PAGES};
        const size_t from = ((size_t)i * CONTEXT + end - n) * KV_WIDTH;
        const size_t at = (size_t)i * n * KV_WIDTH, size = (size_t)n * KV_WIDTH;
        memcpy((float *)(void *)b->be->ops->buffer_host(b->be, b->k.buffer) + at, d->k + from,
               size * sizeof(float));
        memcpy((float *)(void *)b->be->ops->buffer_host(b->be, b->v.buffer) + at, d->v + from,
               size * sizeof(float));
    }
    const mf_op op = {.kind = MF_OP_ATTENTION,
                      .n_rows = n_sequences * n,
                      .u.attention = {.q = b->q,
                                      .k = b->k,
                                      .v = b->v,
                                      .out = b->out,
                                      .sinks = b->s.has_sinks ? b->sinks : (mf_span){{0}, 0},
                                      .n_heads = HEADS,
                                      .n_kv_heads = KV_HEADS,
                                      .head_dim = DIM,
                                      .window = b->s.window,
                                      .window_is_chunk = b->s.is_chunk,
                                      .cache_type = b->s.type,
                                      .page_offset = {0, MF_PAGE_TOKENS * row_bytes},
                                      .scale = 0.2f}};
    REQUIRE_OK(mf_backend_reserve(b->be, &op, &error), &error);
    b->be->ops->begin_batch(b->be, sequences, n_sequences);
    b->be->ops->record(b->be, &op);
}

static bench open_bench(const shape *s, uint32_t n_threads, const data *d)
{
    mf_error error = {0};
    bench b = {.s = *s};
    const mf_backend_options options = {.n_threads = n_threads};
    REQUIRE_OK(mf_backend_open(&options, &b.be, &error), &error);
    const size_t n = sizeof(float) * SEQUENCES * CONTEXT * KV_WIDTH;
    b.q = put(b.be, d->q, sizeof d->q);
    b.k = put(b.be, NULL, n);
    b.v = put(b.be, NULL, n);
    b.out = put(b.be, NULL, sizeof(float) * SEQUENCES * CONTEXT * Q_WIDTH);
    b.sinks = put(b.be, d->sinks, sizeof d->sinks);
    const uint64_t page_bytes = 2 * MF_PAGE_TOKENS * mf_cache_row_bytes(s->type, KV_HEADS, DIM);
    const mf_span all = put(b.be, NULL, (size_t)page_bytes * SEQUENCES * PAGES);
    for (uint32_t i = 0; i < SEQUENCES * PAGES; i++)
        b.pages[i] = mf_span_at(all, i * page_bytes);
    REQUIRE_OK(b.be->ops->reserve_batch(b.be, SEQUENCES, (size_t)SEQUENCES * PAGES, &error),
               &error);
    return b;
}

/* Caches up to the last ROWS positions. The queries are of no interest. */
static void fill(bench *b, const data *d)
{
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        bench one = *b;
        static data at_hand;
        data *moved = &at_hand;
        memcpy(moved->k, d->k + (size_t)i * CONTEXT * KV_WIDTH, sizeof d->k / SEQUENCES);
        memcpy(moved->v, d->v + (size_t)i * CONTEXT * KV_WIDTH, sizeof d->v / SEQUENCES);
        one.q = put(b->be, NULL, sizeof(float) * CONTEXT * Q_WIDTH);
        for (uint32_t p = 0; p < PAGES; p++)
            one.pages[p] = b->pages[i * PAGES + p];
        record(&one, 1, CONTEXT - ROWS, CONTEXT - ROWS, moved);
        b->be->ops->buffer_free(b->be, one.q.buffer);
    }
}

/* Every row of both sequences, n of each at a time: [SEQUENCES, ROWS, Q_WIDTH]. */
static void run(bench *b, uint32_t n, const data *d, float *out)
{
    float *q = (float *)(void *)b->be->ops->buffer_host(b->be, b->q.buffer);
    const float *got = (const float *)(const void *)b->be->ops->buffer_host(b->be, b->out.buffer);
    const size_t size = (size_t)n * Q_WIDTH;
    for (uint32_t row = 0; row < ROWS; row += n) {
        for (uint32_t i = 0; i < SEQUENCES; i++)
            memcpy(q + i * size, d->q + ((size_t)i * ROWS + row) * Q_WIDTH, size * sizeof *q);
        record(b, SEQUENCES, n, CONTEXT - ROWS + row + n, d);
        for (uint32_t i = 0; i < SEQUENCES; i++)
            memcpy(out + ((size_t)i * ROWS + row) * Q_WIDTH, got + i * size, size * sizeof *q);
    }
}

/* Cached values, as they are stored. */
static double stored(const shape *s, const float *rows, size_t position, uint32_t i)
{
    unsigned char row[KV_WIDTH * 4];
    float head[DIM];
    const uint32_t h = i / DIM;
    mf_cache_store(row, rows + position * KV_WIDTH, 1, KV_HEADS, DIM, s->type);
    const unsigned char *values = row + mf_cache_head_at(s->type, h, DIM);
    if (s->type == MF_F32)
        return (double)rows[position * KV_WIDTH + i];
    mf_cache_load(head, values, values + mf_cache_scales_at(KV_HEADS, h, DIM), DIM, s->type);
    return (double)head[i % DIM];
}

static void check_row(const shape *s, const data *d, uint32_t sequence, uint32_t row,
                      const float *got)
{
    const uint32_t n = CONTEXT - ROWS + row + 1, h = row % HEADS, kv = h / (HEADS / KV_HEADS) * DIM;
    const float *k = d->k + (size_t)sequence * CONTEXT * KV_WIDTH;
    const float *v = d->v + (size_t)sequence * CONTEXT * KV_WIDTH;
    const size_t at = ((size_t)sequence * ROWS + row) * Q_WIDTH + (size_t)h * DIM;
    static double p[CONTEXT];
    double max = s->has_sinks ? (double)d->sinks[h] : -INFINITY, out[DIM] = {0};
    uint32_t first = s->window != 0 && n > s->window ? n - s->window : 0;
    if (s->is_chunk && s->window != 0)
        first = (n - 1) / s->window * s->window;
    for (uint32_t t = first; t < n; t++) {
        p[t] = 0;
        for (uint32_t i = 0; i < DIM; i++)
            p[t] += (double)d->q[at + i] * stored(s, k, t, kv + i) * (double)0.2f;
        max = fmax(max, p[t]);
    }
    double sum = s->has_sinks ? exp((double)d->sinks[h] - max) : 0;
    for (uint32_t t = first; t < n; t++) {
        const double weight = exp(p[t] - max);
        sum += weight;
        for (uint32_t i = 0; i < DIM; i++)
            out[i] += weight * stored(s, v, t, kv + i);
    }
    for (uint32_t i = 0; i < DIM; i++)
        CHECK_MSG(fabs((double)got[at + i] - out[i] / sum) <= 1e-5,
                  "row %u of sequence %u, value %u: %.8g, expected %.8g", row, sequence, i,
                  (double)got[at + i], out[i] / sum);
}

static bool same_bits(const float *a, const float *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

static void check_shape(const shape *s, const data *d)
{
    static float first[SEQUENCES * ROWS * Q_WIDTH], other[SEQUENCES * ROWS * Q_WIDTH];
    static const uint32_t threads[] = {1, 2, 7}, rows[] = {40, 8, 1};
    for (size_t t = 0; t < 3; t++) {
        bench b = open_bench(s, threads[t], d);
        fill(&b, d);
        for (size_t r = 0; r < 3; r++) {
            run(&b, rows[r], d, t == 0 && r == 0 ? first : other);
            CHECK_MSG((t == 0 && r == 0) || same_bits(first, other, sizeof first / sizeof *first),
                      "type %u, window %u: other bits with %u threads, %u rows", s->type, s->window,
                      threads[t], rows[r]);
        }
        b.be->ops->destroy(b.be);
    }
    for (uint32_t i = 0; i < SEQUENCES; i++)
        for (uint32_t row = 0; row < ROWS; row += 13)
            check_row(s, d, i, row, first);
}

int main(void)
{
    static const shape shapes[] = {{MF_F32, 0, false, false},  {MF_F32, 600, false, true},
                                   {MF_BF16, 0, false, true},  {MF_Q8, 0, false, false},
                                   {MF_Q8, 1100, true, false}, {MF_BF16, 100, false, false}};
    static data d;
    uint64_t state = 3;
    for (size_t i = 0; i < sizeof d / sizeof(float); i++)
        ((float *)(void *)&d)[i] = (float)(test_random(&state) >> 40) / 4194304.0f - 2.0f;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i], &d);
    return test_result();
}
