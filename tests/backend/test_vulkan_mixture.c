/* SPDX-License-Identifier: MIT */
/*
 * A row's mixture of experts as one dispatch: the same bits as of the operations one after the
 * other, whatever the number of workgroups (one, where it is not known how many run side by side),
 * however weights lie, before and after the numbers of dispatches begin again; and that a workgroup
 * which waits in vain loses the device with a reason.
 */
#include "vulkan_joined.h"
#include "vulkan_product.h"

#define N_SLOTS 16u
#define EPS 1e-6f

enum { X, NORM, LOGITS, SHARED_GATE, MLP, UP, IDS, PICKED, TABLE, SHARED, ACT, OUT };

typedef struct sizes {
    uint32_t n_cols, n_experts, k;
    bool normalise;
    mf_weight_kind kind;  /* of experts: affine of 4 bits, the router of 8; or blocks */
    mf_dtype router_type; /* of blocks, floats */
} sizes;

typedef struct play {
    joined_play all;
    mf_op router, shared_in, route, shared_out, experts, mixture;
} play;

typedef struct results {
    float x[2048], weights[16];
    int32_t ids[16];
} results;

static mf_span slot(const play *p, uint32_t i)
{
    return joined_slot(&p->all, i);
}

static mf_weight weight(play *p, mf_weight_shape form, uint32_t n_rows, uint32_t n_cols)
{
    const mf_weight w = joined_place(&p->all, form, n_rows, n_cols);
    for (uint32_t i = 0; i < mf_weight_format_of(&form)->n_arrays; i++)
        product_fill(&w.shape, i, p->all.image + w.arrays[i].offset, &p->all.random);
    return w;
}

static mf_weight_shape form_of(const sizes *s)
{
    return s->kind == MF_WEIGHT_AFFINE ? joined_affine(4) : (mf_weight_shape){.kind = s->kind};
}

static mf_weight_shape router_form(const sizes *s)
{
    return s->kind == MF_WEIGHT_AFFINE
               ? joined_affine(8)
               : (mf_weight_shape){.kind = MF_WEIGHT_FLOAT, .float_type = s->router_type};
}

/* What is chosen differs from layer to layer. */
static void fill(play *p, const sizes *s)
{
    joined_fill(&p->all);
    for (uint32_t i = 0; i < s->n_experts; i++)
        ((uint32_t *)(void *)(p->all.image + TABLE * JOINED_SLOT))[i] = (i * 5 + 3) % s->n_experts;
}

static void make_experts(play *p, const sizes *s, mf_input_step before)
{
    const mf_weight_shape form = form_of(s);
    mf_routed_experts_params r = {
        .x = slot(p, X),
        .ids = slot(p, IDS),
        .slot = slot(p, TABLE),
        .act = slot(p, ACT),
        .out = slot(p, OUT),
        .n_slots = s->n_experts,
        .n_experts = s->n_experts,
        .k = s->k,
        .before = before,
        .sum = {slot(p, X), slot(p, PICKED), slot(p, SHARED), slot(p, SHARED_GATE)}};
    r.slots = (mf_span){p->all.buffer, p->all.at};
    for (uint32_t i = 0; i < s->n_experts; i++) { /* all alike; of the first one it is kept where */
        const mf_weight gate = weight(p, form, 512, s->n_cols);
        const mf_weight up = weight(p, form, 512, s->n_cols);
        const mf_weight down = weight(p, form, s->n_cols, 512);
        r.gate = i == 0 ? gate : r.gate;
        r.up = i == 0 ? up : r.up;
        r.down = i == 0 ? down : r.down;
        r.slot_bytes = i == 0 ? p->all.at - r.slots.offset : r.slot_bytes;
    }
    p->experts = (mf_op){.kind = MF_OP_ROUTED_EXPERTS, .n_rows = 1, .u.routed = r};
}

/* shift: of the router's weights, from where they would be aligned. */
static void make(play *p, const sizes *s, uint64_t shift)
{
    const mf_input_step before = {.kind = MF_INPUT_NORMED, .weight = slot(p, NORM), .eps = EPS};
    const mf_weight_shape form = form_of(s), router = router_form(s);
    p->all.at = N_SLOTS * JOINED_SLOT + shift;
    p->router = p->shared_in = p->shared_out = (mf_op){.kind = MF_OP_MATMUL, .n_rows = 1};
    p->router.u.matmul = (mf_matmul_params){.x = slot(p, X),
                                            .n = 2,
                                            .weight = {weight(p, router, s->n_experts, s->n_cols)},
                                            .y = {slot(p, LOGITS), slot(p, SHARED_GATE)},
                                            .before = before};
    p->router.u.matmul.weight[1] = weight(p, router, 1, s->n_cols);
    p->shared_in.u.matmul = (mf_matmul_params){.x = slot(p, X),
                                               .n = 2,
                                               .weight = {weight(p, form, 512, s->n_cols)},
                                               .y = {slot(p, MLP), slot(p, UP)},
                                               .before = before,
                                               .is_paired = true};
    p->shared_in.u.matmul.weight[1] = weight(p, form, 512, s->n_cols);
    p->shared_out.u.matmul = (mf_matmul_params){.x = slot(p, MLP),
                                                .n = 1,
                                                .weight = {weight(p, form, s->n_cols, 512)},
                                                .y = {slot(p, SHARED)}};
    p->route = (mf_op){.kind = MF_OP_ROUTE,
                       .n_rows = 1,
                       .u.route = {.logits = slot(p, LOGITS),
                                   .ids = slot(p, IDS),
                                   .weights = slot(p, PICKED),
                                   .slot = slot(p, TABLE),
                                   .n_experts = s->n_experts,
                                   .k = s->k,
                                   .n_groups = 1,
                                   .k_groups = 1,
                                   .normalise = s->normalise,
                                   .eps = 1e-20f,
                                   .scale = 1.5f}};
    make_experts(p, s, before);
    p->mixture =
        (mf_op){.kind = MF_OP_MIXTURE,
                .n_rows = 1,
                .u.mixture = {&p->router, &p->shared_in, &p->route, &p->shared_out, &p->experts}};
}

/* Two layers, the second of what the first left; dispatches of both. */
static uint64_t run(play *p, bool is_joined, results *out)
{
    mf_op *const apart[] = {&p->router, &p->shared_in, &p->route, &p->shared_out, &p->experts};
    mf_op *const joined[] = {&p->mixture};
    mf_backend *be = p->all.be;
    mf_error error = {0};
    joined_send(&p->all);
    joined_reserve(&p->all, apart, 5);
    if (is_joined)
        joined_reserve(&p->all, joined, 1);
    uint64_t n = 0;
    for (uint32_t layer = 0; layer < 2; layer++)
        n += joined_record(&p->all, is_joined ? joined : apart, is_joined ? 1 : 5);
    be->ops->read(be, slot(p, X), out->x, sizeof out->x);
    be->ops->read(be, slot(p, IDS), out->ids, sizeof out->ids);
    REQUIRE_OK(mf_backend_read(be, slot(p, PICKED), out->weights, sizeof out->weights, &error),
               &error);
    return n;
}

static void compare(play *p, const char *what, const sizes *s, uint64_t most_dispatches)
{
    static results apart, joined;
    (void)run(p, false, &apart);
    const uint64_t n = run(p, true, &joined);
    CHECK_MSG(memcmp(apart.x, joined.x, s->n_cols * sizeof(float)) == 0,
              "form %d, %u columns, %s: other sums", (int)s->kind, s->n_cols, what);
    CHECK_MSG(memcmp(apart.ids, joined.ids, s->k * sizeof(int32_t)) == 0, "%s: others chosen",
              what);
    CHECK_MSG(memcmp(apart.weights, joined.weights, s->k * sizeof(float)) == 0, "%s: other weights",
              what);
    CHECK_MSG(n <= most_dispatches, "%s: %u dispatches", what, (unsigned)n);
    CHECK_MSG(memcmp(joined.x, p->all.image, s->n_cols * sizeof(float)) != 0, "%s: nothing done",
              what);
}

static void check_sizes(play *p)
{
    static const sizes list[] = {{512, 32, 4, true, MF_WEIGHT_GGUF_Q4_0, MF_F32},
                                 {512, 32, 4, true, MF_WEIGHT_AFFINE, MF_BF16},
                                 {1024, 32, 8, false, MF_WEIGHT_AFFINE, MF_BF16},
                                 {1024, 32, 8, true, MF_WEIGHT_GGUF_Q4_K, MF_F32},
                                 {2048, 32, 8, true, MF_WEIGHT_AFFINE, MF_BF16},
                                 {2048, 32, 8, true, MF_WEIGHT_GGUF_Q4_0, MF_F32},
                                 {512, 32, 8, false, MF_WEIGHT_GGUF_Q8_0, MF_BF16},
                                 {512, 32, 8, true, MF_WEIGHT_GGUF_MXFP4, MF_F16},
                                 {1024, 32, 8, true, MF_WEIGHT_MXFP4, MF_BF16},
                                 {1024, 32, 4, true, MF_WEIGHT_GGUF_Q6_K, MF_F32},
                                 {512, 64, 8, true, MF_WEIGHT_GGUF_IQ4_XS, MF_F32},
                                 {512, 32, 8, true, MF_WEIGHT_GGUF_Q5_0, MF_F32}};
    mf_vk_backend *be = (mf_vk_backend *)p->all.be;
    for (size_t i = 0; i < (vulkan_is_short() ? 2 : sizeof list / sizeof *list); i++) {
        fill(p, &list[i]);
        make(p, &list[i], 0);
        compare(p, "one after the other", &list[i], 2);
        make(p, &list[i], 4);
        compare(p, "not aligned", &list[i], 14);
        make(p, &list[i], 0);
        be->grid.epoch = UINT32_MAX - 1; /* the second layer's number is the first again */
        compare(p, "numbers begin again", &list[i], 2);
        CHECK(be->grid.epoch == 1);
    }
}

static void check_refusals(play *p)
{
    const sizes s = {512, 32, 4, true, MF_WEIGHT_AFFINE, MF_BF16};
    const mf_vk_backend *be = (mf_vk_backend *)p->all.be;
    make(p, &s, 0);
    CHECK(be->base.ops->supports_op(p->all.be, &p->mixture));
    p->mixture.n_rows = 2;
    CHECK(!be->base.ops->supports_op(p->all.be, &p->mixture));
    make(p, &s, 0);
    p->route.u.route.score = MF_SCORE_SIGMOID;
    CHECK(!be->base.ops->supports_op(p->all.be, &p->mixture));
    make(p, &s, 0);
    p->experts.u.routed.up.shape.bits = 8;
    CHECK(!be->base.ops->supports_op(p->all.be, &p->mixture));
    make(p, &s, 0);
    p->experts.u.routed.k = p->route.u.route.k = 3;
    CHECK(!be->base.ops->supports_op(p->all.be, &p->mixture));
}

static void check_device(uint32_t n_resident)
{
    const sizes s = {512, 32, 4, true, MF_WEIGHT_AFFINE, MF_BF16};
    play p = {.all = joined_open(n_resident)};
    const bool has = joined_has(&p.all, n_resident);
    if (has) {
        check_sizes(&p);
        check_refusals(&p);
    }
    make(&p, &s, 0);
    CHECK(p.all.be->ops->supports_op(p.all.be, &p.mixture) == has);
    if (has)
        joined_check_fault(&p.all, &p.mixture);
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
