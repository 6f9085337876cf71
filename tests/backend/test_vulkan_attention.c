/* SPDX-License-Identifier: MIT */
/*
 * Attention over long contexts on a Vulkan device: a row alone, whose context is cut among
 * workgroups and, where there is little room, merged in rounds, or that has a kernel of its own;
 * the same row among many, for whose queries a workgroup goes over everything; operands that lie
 * where fewer bytes can be read at once. All give the same bits, and what float64 gives.
 */
#include "base/half.h"
#include "vulkan_open.h"

#include <math.h>
#include <string.h>

#define TOLERANCE 3e-5 /* of the largest value */

typedef struct shape {
    const char *name;
    uint32_t n_heads, n_kv_heads, dim; /* dim: of a head, or the latent */
    uint32_t n_rot;                    /* latent attention has it, and one key head */
    mf_dtype type;
    uint32_t window;
    bool has_sinks;
    uint32_t n_tokens, n_many; /* the last n_many are the operation's rows */
    uint32_t n_most;           /* of latents: positions that an indexer chooses; 0: there is none */
} shape;

#define INDEX_HEADS 3u
#define INDEX_DIM 12u
#define INDEX_SCALE 0.5f

typedef struct world {
    const shape *s;
    uint32_t width, q_cols, out_cols;
    float *q, *rot, *keys, *values, sinks[64]; /* keys, values: [n_tokens, width] */
    float *index_q, *index_weights, *index_keys;
} world;

static float *random_floats(size_t n, float scale, mf_dtype type, uint64_t *random)
{
    float *x = malloc((n + 1) * sizeof *x);
    REQUIRE(x != NULL);
    for (size_t i = 0; i < n; i++) {
        x[i] = ((float)(test_random(random) >> 40) / (float)(1 << 23) - 1.0f) * scale;
        if (type == MF_BF16)
            x[i] = mf_f32_from_bf16(mf_bf16_from_f32(x[i]));
    }
    return x;
}

/* Whole numbers -2 .. 2. */
static float *random_numbers(size_t n, uint64_t *random)
{
    float *x = malloc((n + 1) * sizeof *x);
    REQUIRE(x != NULL);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(test_random(random) % 5) - 2.0f;
    return x;
}

static world make_world(const shape *s)
{
    uint64_t random = 7;
    world w = {.s = s,
               .width = s->n_kv_heads * s->dim + s->n_rot,
               .q_cols = s->n_heads * s->dim,
               .out_cols = s->n_heads * s->dim};
    w.q = random_floats((size_t)s->n_many * w.q_cols, 2.0f, MF_F32, &random);
    w.rot = random_floats((size_t)s->n_many * s->n_heads * s->n_rot, 2.0f, MF_F32, &random);
    w.keys = random_floats((size_t)s->n_tokens * w.width, 2.0f, s->type, &random);
    w.values = random_floats((size_t)s->n_tokens * w.width, 2.0f, s->type, &random);
    w.index_q = random_numbers((size_t)s->n_many * INDEX_HEADS * INDEX_DIM, &random);
    w.index_weights = random_numbers((size_t)s->n_many * INDEX_HEADS, &random);
    w.index_keys = random_numbers((size_t)s->n_tokens * INDEX_DIM, &random);
    for (uint32_t h = 0; h < s->n_heads; h++)
        w.sinks[h] = (float)h - 2.0f;
    if (s->n_rot != 0)
        memcpy(w.values, w.keys, (size_t)s->n_tokens * w.width * sizeof *w.values);
    return w;
}

static void free_world(world *w)
{
    free(w->q);
    free(w->rot);
    free(w->keys);
    free(w->values);
    free(w->index_q);
    free(w->index_weights);
    free(w->index_keys);
}

/* ----------------------------------------------------------------------------------- float64 */

static double dot(const float *a, const float *b, uint32_t n)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static float scale_of(const shape *s)
{
    return 1.0f / sqrtf((float)(s->dim + s->n_rot));
}

/* Which of n positions the indexer chooses for one of the many rows. */
static void choose(const world *w, uint32_t row, uint32_t n, bool *is_seen)
{
    const float *q = w->index_q + (size_t)row * INDEX_HEADS * INDEX_DIM;
    const float *weights = w->index_weights + (size_t)row * INDEX_HEADS;
    double *scores = calloc(n, sizeof *scores);
    REQUIRE(scores != NULL);
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t h = 0; h < INDEX_HEADS; h++)
            scores[t] += (double)weights[h] *
                         fmax(0.0, (double)INDEX_SCALE * dot(q + (size_t)h * INDEX_DIM,
                                                             w->index_keys + (size_t)t * INDEX_DIM,
                                                             INDEX_DIM));
    for (uint32_t t = 0; t < n; t++) {
        uint32_t n_before = 0;
        for (uint32_t o = 0; o < n; o++)
            n_before += scores[o] > scores[t] || (scores[o] == scores[t] && o < t);
        is_seen[t] = n_before < w->s->n_most;
    }
    free(scores);
}

/* One head of one of the many rows, which sees the positions of these that are true. */
static void expect(const world *w, uint32_t row, uint32_t h, const bool *is_seen, double *out)
{
    const shape *s = w->s;
    const uint32_t n = s->n_tokens - s->n_many + row + 1;
    const uint32_t from = s->window != 0 && n > s->window ? n - s->window : 0;
    const size_t at = (size_t)(h / (s->n_heads / s->n_kv_heads)) * s->dim;
    const float *q = w->q + (size_t)row * w->q_cols + (size_t)h * s->dim;
    const float *rot = w->rot + ((size_t)row * s->n_heads + h) * s->n_rot;
    double *p = calloc(n, sizeof *p), most = s->has_sinks ? (double)w->sinks[h] : -1e300;
    REQUIRE(p != NULL);
    for (uint32_t t = from; t < n; t++) {
        const float *key = w->keys + (size_t)t * w->width;
        p[t] = (dot(q, key + at, s->dim) + dot(rot, key + s->dim, s->n_rot)) * (double)scale_of(s);
        if (!is_seen[t])
            p[t] = -INFINITY;
        most = fmax(most, p[t]);
    }
    double sum = s->has_sinks ? exp((double)w->sinks[h] - most) : 0.0;
    for (uint32_t t = from; t < n; t++)
        sum += exp(p[t] - most);
    for (uint32_t i = 0; i < s->dim; i++) {
        out[i] = 0.0;
        for (uint32_t t = from; t < n; t++)
            out[i] += exp(p[t] - most) / sum * (double)w->values[(size_t)t * w->width + at + i];
    }
    free(p);
}

static void check_row(const world *w, uint32_t row, const float *got, const char *what)
{
    const uint32_t n = w->s->n_tokens - w->s->n_many + row + 1;
    double want[256]; /* the widest dim */
    bool *is_seen = malloc(n * sizeof *is_seen);
    REQUIRE(is_seen != NULL);
    memset(is_seen, true, n * sizeof *is_seen);
    if (w->s->n_most != 0)
        choose(w, row, n, is_seen);
    for (uint32_t h = 0; h < w->s->n_heads; h++) {
        expect(w, row, h, is_seen, want);
        for (uint32_t i = 0; i < w->s->dim; i++) {
            const double value = (double)got[h * w->s->dim + i];
            CHECK_MSG(fabs(value - want[i]) <= TOLERANCE,
                      "%s, %s, row %u, head %u: value %u is %.9g, expected %.9g", w->s->name, what,
                      row, h, i, value, want[i]);
        }
    }
    free(is_seen);
}

/* -------------------------------------------------------------------------------- the device */

typedef struct player {
    mf_backend *be;
    mf_buffer buffer;
    uint64_t end;
} player;

#define BUFFER_BYTES ((uint64_t)16 << 20)

static player open_player(void)
{
    mf_error error = {0};
    player p = {.be = vulkan_open(NULL)};
    REQUIRE(p.be != NULL);
    REQUIRE_OK(
        p.be->ops->buffer_create(p.be, BUFFER_BYTES, MF_USE_DEVICE, "test", &p.buffer, &error),
        &error);
    return p;
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

/* n rows of so many columns into the page's array at `to`; the rest is not a number. */
static void fill_page(const world *w, const float *rows, uint32_t width, uint32_t n,
                      unsigned char *to)
{
    memset(to, 0xff, (size_t)MF_PAGE_TOKENS * width * mf_dtype_bytes(w->s->type));
    for (size_t i = 0; i < (size_t)n * width; i++) {
        const uint16_t half = mf_bf16_from_f32(rows[i]);
        if (w->s->type == MF_F32)
            memcpy(to + i * 4, rows + i, 4);
        else
            memcpy(to + i * 2, &half, 2);
    }
}

/* Bytes of a page's keys, or values. */
static size_t array_bytes(const world *w)
{
    return (size_t)MF_PAGE_TOKENS * w->width * mf_dtype_bytes(w->s->type);
}

/* What the sequence has cached before `position`, the last page first: keys, values, an indexer's
 * keys. */
static void put_pages(player *p, const world *w, uint32_t position, mf_span *pages, uint32_t skew)
{
    const uint32_t n_pages = mf_pages_of(w->s->n_tokens);
    const size_t array = array_bytes(w), index_dim = w->s->n_most != 0 ? INDEX_DIM : 0;
    const size_t n_bytes = 2 * array + index_dim * MF_PAGE_TOKENS * mf_dtype_bytes(w->s->type);
    unsigned char *page = malloc(n_bytes);
    REQUIRE(page != NULL);
    for (uint32_t i = n_pages; i-- > 0;) {
        const size_t first = (size_t)i * MF_PAGE_TOKENS;
        uint32_t n = position > first ? position - (uint32_t)first : 0;
        n = n < MF_PAGE_TOKENS ? n : MF_PAGE_TOKENS;
        fill_page(w, w->keys + first * w->width, w->width, n, page);
        fill_page(w, w->values + first * w->width, w->width, n, page + array);
        if (index_dim != 0)
            fill_page(w, w->index_keys + first * INDEX_DIM, INDEX_DIM, n, page + 2 * array);
        pages[i] = put(p, page, n_bytes, skew);
    }
    free(page);
}

/* The indexer of n rows from `first` of the many on. */
static void put_index(player *p, const world *w, uint32_t first, uint32_t n, uint32_t skew,
                      mf_latent_attention_params *to)
{
    const size_t position = w->s->n_tokens - w->s->n_many + first, row = INDEX_HEADS * INDEX_DIM;
    mf_index_params *x = &to->index;
    *x = (mf_index_params){.n_heads = INDEX_HEADS,
                           .dim = INDEX_DIM,
                           .n_most = w->s->n_most,
                           .cache_type = w->s->type,
                           .page_offset = 2 * array_bytes(w),
                           .scale = INDEX_SCALE};
    to->n_at_once = 4;
    to->n_positions = w->s->n_tokens;
    x->q = put(p, w->index_q + first * row, n * row * 4, skew);
    x->k = put(p, w->index_keys + position * INDEX_DIM, (size_t)n * INDEX_DIM * 4, skew);
    x->weights =
        put(p, w->index_weights + (size_t)first * INDEX_HEADS, (size_t)n * INDEX_HEADS * 4, skew);
    x->scores = put(p, NULL, (size_t)to->n_at_once * 2 * to->n_positions * 4, 0);
    x->gathered =
        put(p, NULL, (size_t)to->n_at_once * mf_pages_of(x->n_most) * array_bytes(w) * 2, skew);
}

/* n rows from `first` of the many on: their results into out. */
static void play(player *p, const world *w, uint32_t first, uint32_t n, uint32_t skew, float *out)
{
    const shape *s = w->s;
    const uint32_t position = s->n_tokens - s->n_many + first;
    const size_t out_bytes = (size_t)n * w->out_cols * 4, kv = (size_t)n * w->width * 4;
    const size_t at = (size_t)position * w->width;
    mf_error error = {0};
    mf_span pages[512];
    mf_op op = {.kind = s->n_rot != 0 ? MF_OP_LATENT_ATTENTION : MF_OP_ATTENTION, .n_rows = n};
    p->end = 0;
    put_pages(p, w, position, pages, skew);
    const mf_span q = put(p, w->q + (size_t)first * w->q_cols, out_bytes, skew);
    const mf_span k = put(p, w->keys + at, kv, skew), v = put(p, w->values + at, kv, skew);
    const mf_span result = put(p, NULL, out_bytes, skew);
    const uint64_t v_offset = (uint64_t)MF_PAGE_TOKENS * w->width * mf_dtype_bytes(s->type);
    const uint32_t rot_row = s->n_heads * s->n_rot;
    if (s->n_rot != 0) {
        const mf_span rot = put(p, w->rot + (size_t)first * rot_row, (size_t)n * rot_row * 4, skew);
        op.u.latent_attention = (mf_latent_attention_params){.q = q,
                                                             .q_rot = rot,
                                                             .kv = k,
                                                             .out = result,
                                                             .n_heads = s->n_heads,
                                                             .n_latent = s->dim,
                                                             .n_rot = s->n_rot,
                                                             .q_rot_row = rot_row,
                                                             .q_rot_head = s->n_rot,
                                                             .cache_type = s->type,
                                                             .scale = scale_of(s)};
        if (s->n_most != 0)
            put_index(p, w, first, n, skew, &op.u.latent_attention);
    } else {
        op.u.attention =
            (mf_attention_params){.q = q, .k = k, .v = v, .out = result, .n_heads = s->n_heads};
        op.u.attention.sinks = s->has_sinks ? put(p, w->sinks, sizeof w->sinks, 0) : (mf_span){0};
        op.u.attention.n_kv_heads = s->n_kv_heads;
        op.u.attention.head_dim = s->dim;
        op.u.attention.window = s->window;
        op.u.attention.cache_type = s->type;
        op.u.attention.page_offset[1] = v_offset;
        op.u.attention.scale = scale_of(s);
    }
    const mf_sequence seq = {.n_rows = n, .position = position, .pages = pages};
    REQUIRE_OK(p->be->ops->reserve(p->be, &op, &error), &error);
    REQUIRE_OK(p->be->ops->reserve_batch(p->be, 1, 512, &error), &error);
    p->be->ops->begin_batch(p->be, &seq, 1);
    p->be->ops->record(p->be, &op);
    REQUIRE_OK(mf_backend_read(p->be, result, out, out_bytes, &error), &error);
}

static void check_same(const world *w, const float *got, const float *want, uint32_t n_rows,
                       const char *what)
{
    for (size_t i = 0; i < (size_t)n_rows * w->out_cols; i++)
        if (memcmp(&got[i], &want[i], 4) != 0) {
            CHECK_MSG(false, "%s, %s: value %zu is %.9g, among many %.9g", w->s->name, what, i,
                      (double)got[i], (double)want[i]);
            return;
        }
    CHECK(true);
}

static void test_shape(const shape *s)
{
    world w = make_world(s);
    const uint32_t last = s->n_many - 1, few = s->n_many < 3 ? s->n_many : 3;
    float *many = malloc((size_t)s->n_many * w.out_cols * sizeof *many);
    float *other = malloc((size_t)s->n_many * w.out_cols * sizeof *other);
    REQUIRE(many != NULL && other != NULL);
    player alone = open_player();
    play(&alone, &w, last, 1, 0, other); /* with room for no more than this */
    alone.be->ops->destroy(alone.be);
    player p = open_player();
    play(&p, &w, 0, s->n_many, 0, many);
    check_row(&w, last, many + (size_t)last * w.out_cols, "among many");
    check_row(&w, 0, many, "among many");
    check_same(&w, other, many + (size_t)last * w.out_cols, 1, "alone");
    play(&p, &w, last, 1, 0, other);
    check_same(&w, other, many + (size_t)last * w.out_cols, 1, "alone, with room");
    play(&p, &w, s->n_many - few, few, 0, other);
    check_same(&w, other, many + (size_t)(s->n_many - few) * w.out_cols, few, "few");
    play(&p, &w, 0, few, 0, other);
    check_same(&w, other, many, few, "the first few");
    play(&p, &w, 0, s->n_many, 4, other);
    check_same(&w, other, many, s->n_many, "4 bytes from alignment");
    p.be->ops->destroy(p.be);
    free(many);
    free(other);
    free_world(&w);
}

int main(void)
{
    /* of a short run the first */
    static const shape shapes[] = {
        {"3 heads of a key of 32", 6, 2, 32, 0, MF_F32, 0, false, 1500, 4, 0},
        {"chosen latents", 3, 1, 8, 4, MF_BF16, 0, false, 4300, 25, 130},
        {"groups of 3", 6, 2, 12, 0, MF_F32, 0, false, 4300, 30, 0},
        {"a window and sinks", 4, 2, 8, 0, MF_BF16, 4500, true, 5003, 5, 0},
        {"latents", 3, 1, 8, 4, MF_BF16, 0, false, 4300, 25, 0},
        {"8 heads of a key of 64", 8, 1, 64, 0, MF_BF16, 0, false, 4000, 3, 0},
        {"a block alone", 4, 2, 64, 0, MF_F32, 0, true, 40, 3, 0},
        {"64 heads", 64, 64, 4, 0, MF_BF16, 0, false, 330, 257, 0},
        {"odd dims", 2, 1, 11, 0, MF_BF16, 0, false, 4300, 9, 0},
        {"a short window", 2, 2, 8, 0, MF_F32, 70, true, 5003, 40, 0},
        {"8 heads of a key of 128", 16, 2, 128, 0, MF_BF16, 0, false, 400, 85, 0},
        {"8 heads of a key of 256", 8, 1, 256, 0, MF_BF16, 100, true, 330, 100, 0},
        {"wide latents", 20, 1, 64, 8, MF_F32, 0, false, 300, 4, 0},
        {"all latents, and then those that are chosen", 20, 1, 64, 8, MF_F32, 0, false, 300, 40,
         280},
    };
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    for (size_t i = 0; i < (vulkan_is_short() ? 5 : sizeof shapes / sizeof *shapes); i++)
        test_shape(&shapes[i]);
    return test_result();
}
