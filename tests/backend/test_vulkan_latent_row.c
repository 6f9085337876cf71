/* SPDX-License-Identifier: MIT */
/*
 * A row of latent attention, with the norm and the rotations before it, as one operation: the same
 * bits of what is attended and of the cache after it as of the operations one after the other, at
 * every kind of position, with the row before it in the cache, however many heads there are; and
 * one or two dispatches for it.
 */
#include "vulkan_joined.h"

#include "backend/vulkan/vk_attention.h"

#define N_SLOTS 24u
#define N_TOKENS 2u /* one after the other */
#define MOST_VALUES (128u * 512)
#define MOST_PAGES 72u
#define MOST_PAGE_BYTES ((uint64_t)576 * 4 * MF_PAGE_TOKENS)

/* Q, Q_LATENT and OUT are several slots. */
enum { KV = 0, NORM, COS, SIN, Q, Q_LATENT = 8, OUT = 16 };

typedef struct sizes {
    uint32_t n_heads, n_latent, n_rot, n_nope;
    bool is_rotated, is_interleaved;
    mf_dtype cache_type;
} sizes;

typedef struct play {
    joined_play all;
    mf_op norm, rotate_q, rotate_kv, attend, row;
    uint64_t page_bytes;
    mf_span pages[MOST_PAGES];
} play;

typedef struct results {
    float out[N_TOKENS][MOST_VALUES];
    unsigned char page[N_TOKENS][MOST_PAGE_BYTES]; /* of each token */
} results;

static mf_span slot(const play *p, uint32_t i)
{
    return joined_slot(&p->all, i);
}

static mf_span floats_at(mf_span span, uint64_t n)
{
    return (mf_span){span.buffer, span.offset + n * sizeof(float)};
}

static mf_op rotation(const play *p, const sizes *s, mf_span x, uint32_t n_heads, uint32_t stride)
{
    return (mf_op){.kind = MF_OP_ROPE,
                   .n_rows = 1,
                   .u.rope = {.x = x,
                              .cos = slot(p, COS),
                              .sin = slot(p, SIN),
                              .n_heads = n_heads,
                              .n_rot = s->n_rot,
                              .row_stride = n_heads * stride,
                              .head_stride = stride,
                              .interleaved = s->is_interleaved}};
}

static void make_attend(play *p, const sizes *s)
{
    const uint32_t head = s->n_nope + s->n_rot;
    p->attend = (mf_op){.kind = MF_OP_LATENT_ATTENTION,
                        .n_rows = 1,
                        .u.latent_attention = {.q = slot(p, Q_LATENT),
                                               .q_rot = floats_at(slot(p, Q), s->n_nope),
                                               .kv = slot(p, KV),
                                               .out = slot(p, OUT),
                                               .n_heads = s->n_heads,
                                               .n_latent = s->n_latent,
                                               .n_rot = s->n_rot,
                                               .q_rot_row = s->n_heads * head,
                                               .q_rot_head = head,
                                               .cache_type = s->cache_type,
                                               .scale = 0.02f}};
}

/* shift: bytes of the pages from where they would be aligned. */
static void make(play *p, const sizes *s, uint64_t shift)
{
    const uint32_t n_dims = s->n_latent + s->n_rot;
    p->norm = (mf_op){.kind = MF_OP_RMSNORM,
                      .n_rows = 1,
                      .u.rmsnorm = {.x = slot(p, KV),
                                    .weight = slot(p, NORM),
                                    .out = slot(p, KV),
                                    .n_cols = s->n_latent,
                                    .stride = n_dims,
                                    .eps = 1e-6f}};
    p->rotate_q =
        rotation(p, s, floats_at(slot(p, Q), s->n_nope), s->n_heads, s->n_nope + s->n_rot);
    p->rotate_kv = rotation(p, s, floats_at(slot(p, KV), s->n_latent), 1, n_dims);
    make_attend(p, s);
    p->row = (mf_op){.kind = MF_OP_LATENT_ROW,
                     .n_rows = 1,
                     .u.latent_row = {&p->norm, s->is_rotated ? &p->rotate_q : NULL,
                                      s->is_rotated ? &p->rotate_kv : NULL, &p->attend}};
    p->page_bytes = (uint64_t)n_dims * (s->cache_type == MF_F32 ? 4 : 2) * MF_PAGE_TOKENS;
    REQUIRE(p->page_bytes <= MOST_PAGE_BYTES);
    p->all.at = N_SLOTS * JOINED_SLOT + shift;
    for (uint32_t i = 0; i < MOST_PAGES; i++) /* they lie anywhere */
        p->pages[i] = (mf_span){p->all.buffer, p->all.at + i * 7 % MOST_PAGES * p->page_bytes};
    p->all.at += MOST_PAGES * p->page_bytes;
    REQUIRE(p->all.at <= JOINED_BYTES);
}

/* The row at this position and the next one, whose inputs are other ones, behind what the cache
 * holds at first. Returns dispatches of both. */
static uint64_t run(play *p, const sizes *s, uint32_t position, bool is_joined, results *out)
{
    mf_op *const apart[] = {&p->norm, &p->rotate_q, &p->rotate_kv, &p->attend};
    mf_op *const unrotated[] = {&p->norm, &p->attend}, *const joined[] = {&p->row};
    mf_op *const *ops = is_joined ? joined : s->is_rotated ? apart : unrotated;
    const uint32_t n_ops = is_joined ? 1 : s->is_rotated ? 4 : 2;
    const uint64_t out_bytes = (uint64_t)s->n_heads * s->n_latent * sizeof(float);
    mf_backend *be = p->all.be;
    mf_error error = {0};
    uint64_t n = 0;
    joined_send(&p->all);
    joined_reserve(&p->all, apart, 4);
    joined_reserve(&p->all, ops, n_ops);
    REQUIRE_OK(be->ops->reserve_batch(be, 1, MOST_PAGES, &error), &error);
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        const mf_sequence one = {.n_rows = 1, .position = position + t, .pages = p->pages};
        const uint64_t shift = (N_SLOTS + t) * JOINED_SLOT; /* bytes that pages have */
        be->ops->write(be, slot(p, KV), p->all.image + shift, 576 * sizeof(float));
        be->ops->write(be, slot(p, Q), p->all.image + shift, 2 * JOINED_SLOT);
        be->ops->begin_batch(be, &one, 1);
        n += joined_record(&p->all, ops, n_ops);
        be->ops->read(be, slot(p, OUT), out->out[t], out_bytes);
        REQUIRE_OK(mf_backend_read(be, p->pages[(position + t) / MF_PAGE_TOKENS], out->page[t],
                                   p->page_bytes, &error),
                   &error);
    }
    return n;
}

/* n_dispatches: of both tokens; 0: those of the operations themselves. */
static void compare(play *p, const char *what, const sizes *s, uint32_t position,
                    uint64_t n_dispatches)
{
    static results apart, joined;
    const uint64_t n_apart = run(p, s, position, false, &apart);
    const uint64_t n = run(p, s, position, true, &joined);
    const uint64_t n_values = (uint64_t)s->n_heads * s->n_latent;
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        CHECK_MSG(memcmp(apart.out[t], joined.out[t], n_values * sizeof(float)) == 0,
                  "%s, %u heads, %u and %u, position %u: other sums", what, s->n_heads, s->n_latent,
                  s->n_rot, position + t);
        CHECK_MSG(memcmp(apart.page[t], joined.page[t], p->page_bytes) == 0,
                  "%s, %u heads, position %u: other caches", what, s->n_heads, position + t);
        for (uint64_t i = 0; i < n_values; i++)
            CHECK(joined.out[t][i] - joined.out[t][i] == 0.0f);
    }
    CHECK_MSG(memcmp(joined.out[0], joined.out[1], n_values * sizeof(float)) != 0, "nothing done");
    CHECK_MSG(n == (n_dispatches != 0 ? n_dispatches : n_apart), "%s, position %u: %u dispatches",
              what, position, (unsigned)n);
}

static uint64_t dispatches_at(const play *p, uint32_t position)
{
    const uint32_t most = mf_vk_latent_row_blocks((mf_vk_backend *)p->all.be, &p->attend);
    uint64_t n = 0;
    for (uint32_t t = 0; t < N_TOKENS; t++)
        n += position + t < MF_VK_BLOCK ? 1 : 2;
    return (position + N_TOKENS - 1) / MF_VK_BLOCK < most ? n : 0;
}

/* Of long contexts the operations come one after the other. */
static void check_positions(play *p, const sizes *s)
{
    static const uint32_t positions[] = {0, 30, 63, 64, 100, 191, 500, 1000, 1500};
    for (size_t i = 0; i < (vulkan_is_short() ? 6 : 9); i++)
        compare(p, "one after the other", s, positions[i], dispatches_at(p, positions[i]));
}

static void check_sizes(play *p)
{
    static const sizes list[] = {
        {16, 512, 64, 128, true, true, MF_F32}, {20, 48, 16, 16, true, false, MF_BF16},
        {5, 128, 64, 32, false, false, MF_F32}, {64, 256, 64, 64, true, false, MF_F32},
        {1, 512, 64, 128, true, true, MF_BF16}, {128, 512, 64, 64, true, true, MF_F32}};
    for (size_t i = 0; i < (vulkan_is_short() ? 3 : 6); i++) {
        joined_fill(&p->all);
        make(p, &list[i], 0);
        CHECK(p->all.be->ops->supports_op(p->all.be, &p->row));
        check_positions(p, &list[i]);
        make(p, &list[i], 4);
        compare(p, "not aligned", &list[i], 70, 0);
    }
    const sizes many = {128, 512, 64, 64, true, true, MF_BF16};
    make(p, &many, 0);
    compare(p, "too many blocks", &many, 2200, 0);
}

static void check_refusals(play *p)
{
    const sizes s = {16, 48, 16, 16, true, false, MF_F32};
    mf_backend *be = p->all.be;
    mf_op *const row = &p->row;
    make(p, &s, 0);
    CHECK(be->ops->supports_op(be, row));
    row->n_rows = 2; /* of one sequence or several */
    CHECK(!be->ops->supports_op(be, row));
    make(p, &s, 0);
    p->attend.u.latent_attention.cache_type = MF_Q8;
    CHECK(!be->ops->supports_op(be, row));
    make(p, &s, 0);
    p->attend.u.latent_attention.index.n_most = 64;
    CHECK(!be->ops->supports_op(be, row));
    make(p, &s, 0);
    p->rotate_kv.u.rope.interleaved = true;
    CHECK(!be->ops->supports_op(be, row));
    make(p, &s, 0);
    row->u.latent_row.rotate_kv = NULL; /* one of two */
    CHECK(!be->ops->supports_op(be, row));
    make(p, &s, 0);
    p->norm.u.rmsnorm.is_centred = true;
    CHECK(!be->ops->supports_op(be, row));
    make(p, &s, 0);
    p->norm.u.rmsnorm.n_cols = 64; /* what is rotated, too */
    CHECK(!be->ops->supports_op(be, row));
}

int main(void)
{
    if (!vulkan_is_there())
        return TEST_SKIPPED;
    play p = {.all = joined_open(0)};
    check_sizes(&p);
    check_refusals(&p);
    joined_close(&p.all);
    return test_result();
}
