/* SPDX-License-Identifier: MIT */
/*
 * Attention of long runs over caches of 8 bits, by matrix units or without: the bits of the same
 * kernel over a float32 cache of what the bytes that the device stored stand for
 * (base/cache_rows.h), which test_vulkan_ops holds against float64.
 */
#include "backend/vulkan/vk_internal.h"
#include "base/cache_rows.h"
#include "vulkan_open.h"

#include <string.h>

typedef struct shape {
    uint32_t n_heads, n_kv_heads, dim, window;
    uint32_t position, n_rows; /* of the run; what lies before it is cached */
} shape;

#define BUFFER_BYTES ((uint64_t)16 << 20)
#define MOST_PAGES 16u

typedef struct player {
    mf_backend *be;
    mf_buffer buffer;
    uint64_t end;
} player;

/* The keys and values of all positions, as they are and as the 8 bits of a cache have them. */
typedef struct world {
    const shape *s;
    uint32_t width, n_tokens;
    float *q, *keys[2], *stored[2]; /* [n_tokens, width] */
} world;

static float *random_floats(size_t n, uint64_t *random)
{
    float *x = malloc(n * sizeof *x);
    REQUIRE(x != NULL);
    for (size_t i = 0; i < n; i++)
        x[i] = ((float)(test_random(random) >> 40) / (float)(1 << 23) - 1.0f) * 2.0f;
    return x;
}

static world make_world(const shape *s)
{
    uint64_t random = 11;
    world w = {.s = s, .width = s->n_kv_heads * s->dim, .n_tokens = s->position + s->n_rows};
    w.q = random_floats((size_t)s->n_rows * s->n_heads * s->dim, &random);
    for (int i = 0; i < 2; i++) {
        w.keys[i] = random_floats((size_t)w.n_tokens * w.width, &random);
        w.stored[i] = malloc((size_t)w.n_tokens * w.width * sizeof(float));
        REQUIRE(w.stored[i] != NULL);
    }
    return w;
}

static void free_world(world *w)
{
    for (int i = 0; i < 2; i++) {
        free(w->keys[i]);
        free(w->stored[i]);
    }
    free(w->q);
}

static mf_span put(player *p, const void *bytes, uint64_t n_bytes, uint32_t skew)
{
    const mf_span span = {p->buffer, p->end + skew};
    if (bytes != NULL)
        p->be->ops->write(p->be, span, bytes, n_bytes);
    p->end += (n_bytes + skew + 255) / 256 * 256;
    REQUIRE(p->end <= BUFFER_BYTES);
    return span;
}

/* Bytes of a page's keys, or values. */
static size_t array_bytes(const world *w, mf_dtype type)
{
    return MF_PAGE_TOKENS * (size_t)mf_cache_row_bytes(type, w->s->n_kv_heads, w->s->dim);
}

/* What is cached before the run, the last page first. */
static void put_pages(player *p, const world *w, mf_dtype type, float *const keys[2], uint32_t skew,
                      mf_span *pages)
{
    const size_t array = array_bytes(w, type);
    unsigned char *page = malloc(2 * array);
    REQUIRE(page != NULL);
    for (uint32_t i = mf_pages_of(w->n_tokens); i-- > 0;) {
        const uint32_t first = i * MF_PAGE_TOKENS, before = w->s->position;
        const uint32_t left = before > first ? before - first : 0;
        const uint32_t n = left < MF_PAGE_TOKENS ? left : MF_PAGE_TOKENS;
        memset(page, 0xff, 2 * array);
        for (int j = 0; j < 2; j++)
            mf_cache_store(page + j * array, keys[j] + (size_t)first * w->width, n,
                           w->s->n_kv_heads, w->s->dim, type);
        pages[i] = put(p, page, 2 * array, skew);
    }
    free(page);
}

/* What the device has cached of all positions. */
static void read_pages(player *p, const world *w, const mf_span *pages)
{
    const shape *s = w->s;
    const size_t array = array_bytes(w, MF_Q8), row_bytes = array / MF_PAGE_TOKENS;
    unsigned char *page = malloc(2 * array);
    mf_error error = {0};
    REQUIRE(page != NULL);
    for (uint32_t t = 0; t < w->n_tokens; t++) {
        if (t % MF_PAGE_TOKENS == 0)
            REQUIRE_OK(mf_backend_read(p->be, pages[t / MF_PAGE_TOKENS], page, 2 * array, &error),
                       &error);
        for (uint32_t i = 0; i < 2 * s->n_kv_heads; i++) {
            const uint32_t h = i / 2;
            const unsigned char *at = page + i % 2 * array + t % MF_PAGE_TOKENS * row_bytes +
                                      mf_cache_head_at(MF_Q8, h, s->dim);
            mf_cache_load(w->stored[i % 2] + (size_t)t * w->width + (size_t)h * s->dim, at,
                          at + mf_cache_scales_at(s->n_kv_heads, h, s->dim), s->dim, MF_Q8);
        }
    }
    free(page);
}

/* The run, all positions' keys and values being `keys`: results to out. */
static void play(player *p, const world *w, mf_dtype type, float *const keys[2], uint32_t skew,
                 float *out)
{
    const shape *s = w->s;
    const size_t at = (size_t)s->position * w->width, kv = (size_t)s->n_rows * w->width * 4;
    const size_t out_bytes = (size_t)s->n_rows * s->n_heads * s->dim * 4;
    mf_error error = {0};
    mf_span pages[MOST_PAGES];
    REQUIRE(mf_pages_of(w->n_tokens) <= MOST_PAGES);
    p->end = 0;
    put_pages(p, w, type, keys, skew, pages);
    mf_op op = {.kind = MF_OP_ATTENTION, .n_rows = s->n_rows, .is_long = true};
    op.u.attention = (mf_attention_params){.q = put(p, w->q, out_bytes, skew),
                                           .k = put(p, keys[0] + at, kv, skew),
                                           .v = put(p, keys[1] + at, kv, skew),
                                           .out = put(p, NULL, out_bytes, skew),
                                           .n_heads = s->n_heads,
                                           .n_kv_heads = s->n_kv_heads,
                                           .head_dim = s->dim,
                                           .window = s->window,
                                           .cache_type = type,
                                           .page_offset = {0, array_bytes(w, type)},
                                           .scale = 0.1f};
    const mf_sequence seq = {.n_rows = s->n_rows, .position = s->position, .pages = pages};
    REQUIRE_OK(p->be->ops->reserve(p->be, &op, &error), &error);
    REQUIRE_OK(p->be->ops->reserve_batch(p->be, 1, MOST_PAGES, &error), &error);
    p->be->ops->begin_batch(p->be, &seq, 1);
    p->be->ops->record(p->be, &op);
    REQUIRE_OK(mf_backend_read(p->be, op.u.attention.out, out, out_bytes, &error), &error);
    if (type == MF_Q8)
        read_pages(p, w, pages);
}

static void check_shape(player *p, const shape *s)
{
    world w = make_world(s);
    const size_t n = (size_t)s->n_rows * s->n_heads * s->dim;
    float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
    REQUIRE(want != NULL && got != NULL);
    for (uint32_t skew = 0; skew <= 4; skew += 4) {
        memset(got, 0, n * sizeof *got);
        play(p, &w, MF_Q8, w.keys, skew, got);
        play(p, &w, MF_F32, w.stored, 0, want);
        size_t i = 0;
        while (i < n && memcmp(&got[i], &want[i], sizeof *got) == 0)
            i++;
        CHECK_MSG(i == n, "%u heads of %u, %u rows: value %zu is %.9g, over float32 %.9g",
                  s->n_heads, s->dim, s->n_rows, i, (double)got[i % n], (double)want[i % n]);
    }
    free(want);
    free(got);
    free_world(&w);
}

int main(void)
{
    static const shape shapes[] = {{6, 2, 64, 0, 70, 150},
                                   {4, 4, 128, 45, 0, 130},
                                   {8, 1, 256, 0, 100, 33},
                                   {2, 1, 192, 0, 5, 64}};
    mf_error error = {0};
    player p = {.be = vulkan_open_with(NULL, MF_PRECISION_MIXED)};
    if (p.be == NULL)
        return TEST_SKIPPED;
    REQUIRE_OK(
        p.be->ops->buffer_create(p.be, BUFFER_BYTES, MF_USE_DEVICE, "test", &p.buffer, &error),
        &error);
    for (size_t i = 0; i < (vulkan_is_short() ? 1 : sizeof shapes / sizeof *shapes); i++)
        check_shape(&p, &shapes[i]);
    p.be->ops->destroy(p.be);
    return test_result();
}
