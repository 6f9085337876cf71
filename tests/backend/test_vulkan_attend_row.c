/* SPDX-License-Identifier: MIT */
/*
 * A row of softmax attention as one dispatch: the same bits of the row and of the caches after it
 * as of the operations one after the other, at every kind of position, with the row before it in
 * the cache; whatever the number of workgroups (one, where it is not known how many run side by
 * side), however weights lie, before and after the numbers of dispatches begin again; and that a
 * workgroup which waits in vain loses the device with a reason.
 */
#include "vulkan_joined.h"

#include "backend/vulkan/vk_attention.h"

#define N_SLOTS 16u
#define N_TOKENS 2u /* one after the other */
#define MOST_COLS 2048u
#define MOST_PAGES 136u
#define MOST_PAGE_BYTES ((uint64_t)1 << 18)
#define N_OPS 5u

enum { X, NORM, Q, K, V, GATE, ATTENDED, Q_NORM, K_NORM, COS, SIN };

typedef struct sizes {
    uint32_t n_cols, head_dim, n_kv_heads, per_key, n_rot, window;
    bool has_gate;
    mf_dtype cache_type;
} sizes;

typedef struct play {
    joined_play all;
    mf_op in, queries, keys, attend, out, row;
    uint64_t page_bytes, first_page;
    mf_span pages[MOST_PAGES];
} play;

typedef struct results {
    float x[N_TOKENS][MOST_COLS];
    unsigned char page[N_TOKENS][MOST_PAGE_BYTES]; /* of each token */
} results;

static mf_span slot(const play *p, uint32_t i)
{
    return joined_slot(&p->all, i);
}

static uint32_t n_heads(const sizes *s)
{
    return s->n_kv_heads * s->per_key;
}

/* shift: of the first weights, from where they would be aligned. */
static void make_in(play *p, const sizes *s, uint64_t shift)
{
    const uint32_t n_queries = n_heads(s) * s->head_dim, n_keys = s->n_kv_heads * s->head_dim;
    const uint32_t n_rows[] = {n_queries, n_keys, n_keys, n_queries};
    mf_matmul_params in = {
        .x = slot(p, X),
        .n = s->has_gate ? 4 : 3,
        .y = {slot(p, Q), slot(p, K), slot(p, V), slot(p, GATE)},
        .before = {.kind = MF_INPUT_NORMED, .weight = slot(p, NORM), .eps = 1e-6f}};
    p->all.at = N_SLOTS * JOINED_SLOT + shift;
    for (uint32_t i = 0; i < in.n; i++)
        in.weight[i] = joined_weight(&p->all, 4, n_rows[i], s->n_cols);
    p->in = (mf_op){.kind = MF_OP_MATMUL, .n_rows = 1, .u.matmul = in};
}

static mf_op heads(const play *p, const sizes *s, uint32_t x, uint32_t norm, uint32_t n)
{
    return (mf_op){.kind = MF_OP_HEAD_NORM_ROPE,
                   .n_rows = 1,
                   .u.head_norm_rope = {.x = slot(p, x),
                                        .weight = slot(p, norm),
                                        .cos = slot(p, COS),
                                        .sin = slot(p, SIN),
                                        .n_heads = n,
                                        .head_dim = s->head_dim,
                                        .n_rot = s->n_rot,
                                        .eps = 1e-5f}};
}

static void make_attend(play *p, const sizes *s)
{
    const uint64_t row = (uint64_t)s->n_kv_heads * s->head_dim * (s->cache_type == MF_F32 ? 4 : 2);
    p->page_bytes = 2 * row * MF_PAGE_TOKENS;
    REQUIRE(p->page_bytes <= MOST_PAGE_BYTES);
    p->attend = (mf_op){.kind = MF_OP_ATTENTION,
                        .n_rows = 1,
                        .u.attention = {.q = slot(p, Q),
                                        .k = slot(p, K),
                                        .v = slot(p, V),
                                        .out = slot(p, ATTENDED),
                                        .n_heads = n_heads(s),
                                        .n_kv_heads = s->n_kv_heads,
                                        .head_dim = s->head_dim,
                                        .window = s->window,
                                        .cache_type = s->cache_type,
                                        .page_offset = {0, row * MF_PAGE_TOKENS},
                                        .scale = 0.1f}};
}

static void make(play *p, const sizes *s, uint64_t shift)
{
    make_in(p, s, shift);
    p->queries = heads(p, s, Q, Q_NORM, n_heads(s));
    p->keys = heads(p, s, K, K_NORM, s->n_kv_heads);
    make_attend(p, s);
    const mf_matmul_params out = {
        .x = slot(p, ATTENDED),
        .n = 1,
        .weight = {joined_weight(&p->all, 4, s->n_cols, n_heads(s) * s->head_dim)},
        .y = {slot(p, X)},
        .before = {.kind = s->has_gate ? MF_INPUT_SIGMOID : MF_INPUT_AS_IT_IS,
                   .gate = s->has_gate ? slot(p, GATE) : (mf_span){{0}, 0}},
        .after = {.kind = MF_OUTPUT_ADDED}};
    p->out = (mf_op){.kind = MF_OP_MATMUL, .n_rows = 1, .u.matmul = out};
    p->row = (mf_op){.kind = MF_OP_ATTEND_ROW,
                     .n_rows = 1,
                     .u.attend_row = {&p->in, &p->queries, &p->keys, &p->attend, &p->out}};
    p->first_page = (p->all.at + 255) / 256 * 256;
    p->all.at = p->first_page + MOST_PAGES * p->page_bytes;
    REQUIRE(p->all.at <= JOINED_BYTES);
    for (uint32_t i = 0; i < MOST_PAGES; i++) /* they lie anywhere */
        p->pages[i] = (mf_span){p->all.buffer, p->first_page + i * 27 % MOST_PAGES * p->page_bytes};
}

/* The row at this position and the next one, behind what the caches hold at first. Returns
 * dispatches of both. */
static uint64_t run(play *p, const sizes *s, uint32_t position, bool is_joined, results *out)
{
    mf_op *const apart[N_OPS] = {&p->in, &p->queries, &p->keys, &p->attend, &p->out},
                 *const joined[] = {&p->row};
    mf_backend *be = p->all.be;
    mf_error error = {0};
    uint64_t n = 0;
    joined_send(&p->all);
    joined_reserve(&p->all, apart, N_OPS);
    if (is_joined)
        joined_reserve(&p->all, joined, 1);
    REQUIRE_OK(be->ops->reserve_batch(be, 1, MOST_PAGES, &error), &error);
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        const mf_sequence one = {.n_rows = 1, .position = position + t, .pages = p->pages};
        be->ops->begin_batch(be, &one, 1);
        n += joined_record(&p->all, is_joined ? joined : apart, is_joined ? 1 : N_OPS);
        be->ops->read(be, slot(p, X), out->x[t], s->n_cols * sizeof(float));
        REQUIRE_OK(mf_backend_read(be, p->pages[(position + t) / MF_PAGE_TOKENS], out->page[t],
                                   p->page_bytes, &error),
                   &error);
    }
    return n;
}

/* is_one: it is one dispatch, and not the operations themselves. */
static void compare(play *p, const char *what, const sizes *s, uint32_t position, bool is_one)
{
    static results apart, joined;
    const uint64_t n_apart = run(p, s, position, false, &apart);
    const uint64_t n = run(p, s, position, true, &joined);
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        const size_t row = s->n_cols * sizeof(float);
        CHECK_MSG(memcmp(apart.x[t], joined.x[t], row) == 0,
                  "%s, %u columns, heads of %u, position %u: other sums", what, s->n_cols,
                  s->head_dim, position + t);
        CHECK_MSG(memcmp(apart.page[t], joined.page[t], p->page_bytes) == 0,
                  "%s, heads of %u, position %u: other caches", what, s->head_dim, position + t);
        for (uint32_t i = 0; i < s->n_cols; i++)
            CHECK(joined.x[t][i] - joined.x[t][i] == 0.0f);
    }
    CHECK_MSG(memcmp(joined.x[0], joined.x[1], s->n_cols * sizeof(float)) != 0, "nothing done");
    CHECK_MSG(n == (is_one ? N_TOKENS : n_apart), "%s, position %u: %u dispatches", what, position,
              (unsigned)n);
}

/* Of contexts that are too long the operations come one after the other. */
static void check_positions(play *p, const sizes *s)
{
    static const uint32_t positions[] = {0, 31, 62, 64, 96, 191, 500, 1000, 4224, 1500};
    const uint32_t most = mf_vk_attend_row_blocks(&p->attend) * MF_VK_BLOCK;
    for (size_t i = 0; i < (vulkan_is_short() ? 6 : 10); i++)
        compare(p, "one after the other", s, positions[i],
                s->window != 0 || positions[i] + N_TOKENS <= most);
}

static void check_sizes(play *p)
{
    static const sizes list[] = {{512, 128, 2, 2, 128, 0, false, MF_F32},
                                 {1024, 256, 1, 4, 64, 0, true, MF_BF16},
                                 {512, 64, 2, 8, 32, 100, true, MF_F32},
                                 {2048, 256, 2, 8, 64, 0, true, MF_F32},
                                 {2048, 128, 4, 8, 128, 0, false, MF_BF16}};
    mf_vk_backend *be = (mf_vk_backend *)p->all.be;
    for (size_t i = 0; i < (vulkan_is_short() ? 2 : 5); i++) {
        joined_fill(&p->all);
        make(p, &list[i], 0);
        check_positions(p, &list[i]);
        make(p, &list[i], 4);
        compare(p, "not aligned", &list[i], 70, false);
        make(p, &list[i], 0);
        be->grid.epoch = UINT32_MAX - 1; /* the second token's number is the first again */
        compare(p, "numbers begin again", &list[i], 70, true);
        CHECK(be->grid.epoch == N_TOKENS - 1);
    }
}

static const sizes small = {512, 64, 2, 4, 64, 0, true, MF_F32};

static void check_refusals(play *p)
{
    mf_op *const row = &p->row;
    mf_backend *be = p->all.be;
    make(p, &small, 0);
    CHECK(be->ops->supports_op(be, row));
    row->n_rows = 2; /* of one sequence or several */
    CHECK(!be->ops->supports_op(be, row));
    make(p, &small, 0);
    p->in.u.matmul.weight[1].shape.bits = 8;
    CHECK(!be->ops->supports_op(be, row));
    make(p, &small, 0);
    p->attend.u.attention.cache_type = MF_Q8;
    CHECK(!be->ops->supports_op(be, row));
    make(p, &small, 0);
    p->attend.u.attention.sinks = slot(p, Q_NORM);
    CHECK(!be->ops->supports_op(be, row));
    make(p, &small, 0);
    p->keys.u.head_norm_rope.n_rot = 32;
    CHECK(!be->ops->supports_op(be, row));
    make(p, &small, 0);
    p->queries.kind = MF_OP_RMSNORM;
    CHECK(!be->ops->supports_op(be, row));
    make(p, &small, 0);
    p->out.u.matmul.before.kind = MF_INPUT_AS_IT_IS; /* the gate has nothing to do */
    CHECK(!be->ops->supports_op(be, row));
}

static void check_device(uint32_t n_resident)
{
    play p = {.all = joined_open(n_resident)};
    const bool has = joined_has(&p.all, n_resident);
    mf_error error = {0};
    if (has) {
        check_sizes(&p);
        check_refusals(&p);
    }
    make(&p, &small, 0);
    CHECK(p.all.be->ops->supports_op(p.all.be, &p.row) == has);
    if (has) {
        const mf_sequence one = {.n_rows = 1, .pages = p.pages};
        REQUIRE_OK(p.all.be->ops->reserve_batch(p.all.be, 1, MOST_PAGES, &error), &error);
        p.all.be->ops->begin_batch(p.all.be, &one, 1);
        joined_check_fault(&p.all, &p.row);
    }
    joined_close(&p.all);
}

int main(void)
{
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    check_device(0);
    check_device(1);
    return test_result();
}
