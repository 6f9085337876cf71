/* SPDX-License-Identifier: MIT */
/*
 * Products with what stands before or after them (mf_input_step, mf_output_step), and experts with
 * their sum, on a Vulkan device: the same bits as of the operations one after the other, which
 * test_vulkan_ops holds against float64. And how many dispatches and barriers either way takes. And
 * affine weights by shaders that take their bits for floats below the least normal one: the same
 * bits as by the others.
 */
#include "backend/vulkan/vk_internal.h"
#include "test.h"
#include "vulkan_open.h"

#define SLOT_BYTES ((uint64_t)1 << 17) /* of activations */
#define N_SLOTS 24u
#define WEIGHTS_AT (N_SLOTS * SLOT_BYTES)
#define BUFFER_BYTES ((uint64_t)48 << 20)
#define N_COMPARED 6u
#define EPS 1e-6f

/* Activations, each of them a slot. */
enum { X, H, T, Y0, Y1, Y2, Y3, Z, NORM, STATE, STATE_AFTER, CONV, IDS, SLOTS, SHARED, GATE, ACT };

typedef struct play {
    mf_backend *be;
    mf_buffer buffer;
    unsigned char *image; /* what the buffer begins with */
    uint64_t at;          /* of the next weight */
    uint64_t random;
    mf_op ops[8];
    uint32_t n_ops;
    uint64_t n_dispatches, n_barriers; /* of the last run */
} play;

static mf_span slot(const play *p, uint32_t i)
{
    return (mf_span){p->buffer, i * SLOT_BYTES};
}

static float number(play *p)
{
    return (float)(test_random(&p->random) % 2001) / 1000.0f - 1.0f;
}

/* Activations are numbers of ordinary size, ids and slots of experts those of 8. */
static void begin(play *p, uint64_t seed)
{
    p->random = seed;
    p->at = WEIGHTS_AT;
    for (uint64_t i = 0; i < WEIGHTS_AT / sizeof(float); i++)
        ((float *)(void *)p->image)[i] = number(p);
    for (uint32_t i = 0; i < 64; i++) {
        ((int32_t *)(void *)(p->image + IDS * SLOT_BYTES))[i] = (int32_t)((i * 5 + 3) % 8);
        ((uint32_t *)(void *)(p->image + SLOTS * SLOT_BYTES))[i] = (i * 3 + 1) % 8;
    }
}

/* A number's bytes in any form: exponents stay small. */
static void fill(unsigned char *bytes, uint64_t n, uint64_t *random)
{
    for (uint64_t i = 0; i < n; i++) {
        const unsigned char r = (unsigned char)(test_random(random) >> 40);
        bytes[i] = i % 2 == 0 ? r & 0xfe : (r & 0x83) | 0x3c;
    }
}

/* copies: of an expert's matrix, slot_bytes apart. */
static mf_weight weight(play *p, const mf_weight_shape *form, uint32_t n_rows, uint32_t n_cols,
                        uint32_t copies, uint64_t slot_bytes)
{
    mf_weight w = {.shape = *form};
    w.shape.n_rows = n_rows;
    w.shape.n_cols = n_cols;
    for (uint32_t i = 0; i < mf_weight_format_of(&w.shape)->n_arrays; i++) {
        const uint64_t n = mf_weight_array_bytes(&w.shape, i);
        w.arrays[i] = (mf_span){p->buffer, p->at};
        for (uint32_t j = 0; j < copies; j++)
            fill(p->image + p->at + j * slot_bytes, n, &p->random);
        p->at += (n + 63) / 64 * 64;
    }
    REQUIRE(p->at + (copies - 1) * slot_bytes <= BUFFER_BYTES);
    return w;
}

static mf_op *push(play *p, mf_op_kind kind)
{
    mf_op *op = &p->ops[p->n_ops++];
    *op = (mf_op){.kind = kind, .n_rows = 1};
    return op;
}

static void push_norm(play *p, uint32_t n_cols)
{
    push(p, MF_OP_RMSNORM)->u.rmsnorm = (mf_rmsnorm_params){
        .x = slot(p, X), .weight = slot(p, NORM), .out = slot(p, H), .n_cols = n_cols, .eps = EPS};
}

static mf_input_step normed(const play *p)
{
    return (mf_input_step){.kind = MF_INPUT_NORMED, .weight = slot(p, NORM), .eps = EPS};
}

/* y of n weights to Y0, Y1, ... */
static mf_matmul_params *push_product(play *p, uint32_t x, const mf_weight *w, uint32_t n)
{
    mf_matmul_params *m = &push(p, MF_OP_MATMUL)->u.matmul;
    m->x = slot(p, x);
    for (m->n = 0; m->n < n; m->n++) {
        m->weight[m->n] = w[m->n];
        m->y[m->n] = slot(p, Y0 + m->n);
    }
    return m;
}

/* Runs what is pushed from the image on; the slots listed to `out`. */
static void run(play *p, const uint32_t *slots, unsigned char *out)
{
    mf_error error = {0};
    const mf_vk_stream *stream = &((mf_vk_backend *)p->be)->stream;
    const mf_sequence one = {.n_rows = 1, .state = {slot(p, STATE), slot(p, STATE_AFTER)}};
    for (uint64_t i = 0; i < p->at; i += 1 << 20)
        p->be->ops->write(p->be, (mf_span){p->buffer, i}, p->image + i,
                          p->at - i < 1 << 20 ? p->at - i : 1 << 20);
    p->be->ops->begin_batch(p->be, &one, 1);
    for (uint32_t i = 0; i < p->n_ops; i++)
        REQUIRE_OK(mf_backend_reserve(p->be, &p->ops[i], &error), &error);
    p->n_dispatches = stream->n_dispatches;
    p->n_barriers = stream->n_barriers;
    for (uint32_t i = 0; i < p->n_ops; i++)
        p->be->ops->record(p->be, &p->ops[i]);
    p->n_dispatches = stream->n_dispatches - p->n_dispatches;
    p->n_barriers = stream->n_barriers - p->n_barriers;
    for (uint32_t i = 0; i < N_COMPARED; i++)
        REQUIRE_OK(
            mf_backend_read(p->be, slot(p, slots[i]), out + i * SLOT_BYTES, SLOT_BYTES, &error),
            &error);
    p->n_ops = 0;
}

/* Two ways to the same bits: of each the operations are pushed by `make`. */
typedef struct fused {
    const char *name;
    void (*make)(play *p, const mf_weight *w, uint32_t size, bool is_fused);
    uint32_t slots[N_COMPARED]; /* that are the same afterwards */
    uint32_t sizes[3];          /* of w's columns, or of experts; 0: no more */
    uint32_t most_dispatches;   /* with all weights of one form */
} fused;

static void make_normed(play *p, const mf_weight *w, uint32_t n_cols, bool is_fused)
{
    if (!is_fused)
        push_norm(p, n_cols);
    mf_matmul_params *m = push_product(p, is_fused ? X : H, w, 3);
    if (is_fused)
        m->before = normed(p);
}

/* x += w t, its norm, a gated pair of that. */
static void make_chain(play *p, const mf_weight *w, uint32_t n_cols, bool is_fused)
{
    mf_matmul_params *m = push_product(p, T, w + 4, 1);
    m->y[0] = slot(p, is_fused ? X : H);
    if (is_fused) {
        m->after.kind = MF_OUTPUT_ADDED;
        m = push_product(p, X, w, 2);
        m->before = normed(p);
        m->is_paired = true;
        return;
    }
    push(p, MF_OP_ADD)->u.add = (mf_add_params){.x = slot(p, X),
                                                .y = slot(p, H),
                                                .n_cols = n_cols,
                                                .norm = {slot(p, NORM), slot(p, H), EPS}};
    push_product(p, H, w, 2);
    push(p, MF_OP_SWIGLU)->u.swiglu = (mf_swiglu_params){
        .gate = slot(p, Y0), .up = slot(p, Y1), .out = slot(p, Y0), .n_cols = w->shape.n_rows};
}

static void make_heads(play *p, const mf_weight *w, uint32_t n_cols, bool is_fused)
{
    const uint32_t head_dim = n_cols == 256 ? 16 : n_cols == 768 ? 64 : 128;
    if (!is_fused)
        push(p, MF_OP_RMSNORM_GATED)->u.rmsnorm_gated = (mf_rmsnorm_gated_params){
            slot(p, T), slot(p, Z), slot(p, NORM), n_cols / head_dim, head_dim, EPS};
    mf_matmul_params *m = push_product(p, T, w, 1);
    if (!is_fused) {
        push(p, MF_OP_ADD)->u.add =
            (mf_add_params){.x = slot(p, X), .y = slot(p, Y0), .n_cols = w->shape.n_rows};
        return;
    }
    m->before = (mf_input_step){MF_INPUT_HEADS_GATED, slot(p, NORM), slot(p, Z), head_dim, EPS};
    m->after.kind = MF_OUTPUT_ADDED;
    m->y[0] = slot(p, X);
}

static void make_sigmoid(play *p, const mf_weight *w, uint32_t n_cols, bool is_fused)
{
    if (!is_fused)
        push(p, MF_OP_SIGMOID_MUL)->u.sigmoid_mul =
            (mf_sigmoid_mul_params){slot(p, T), slot(p, Z), n_cols};
    mf_matmul_params *m = push_product(p, T, w, 2);
    if (is_fused)
        m->before = (mf_input_step){.kind = MF_INPUT_SIGMOID, .gate = slot(p, Z)};
}

static void make_convolved(play *p, const mf_weight *w, uint32_t n_cols, bool is_fused)
{
    const uint32_t width = n_cols == 256 ? 2 : 4;
    if (!is_fused)
        push_norm(p, n_cols);
    mf_matmul_params *m = push_product(p, is_fused ? X : H, w, 4);
    if (is_fused) {
        m->before = normed(p);
        m->after = (mf_output_step){MF_OUTPUT_CONVOLVED, slot(p, CONV), width, 64};
        return;
    }
    push(p, MF_OP_CONV1D_SILU)->u.conv1d_silu = (mf_conv1d_silu_params){
        slot(p, Y0), slot(p, CONV), slot(p, Y0), w->shape.n_rows, width, 64};
}

/* Experts of w's form: k of 8. Hidden of whole tiles, whose activations may lie in another order,
 * and of half a tile. */
static void make_experts(play *p, const mf_weight *w, uint32_t k, bool is_fused)
{
    const mf_weight_shape *form = &w->shape;
    const uint32_t hidden = form->kind == MF_WEIGHT_AFFINE && k != 1 ? 512 : 256;
    const uint64_t slot_bytes = 3 << 19;
    mf_routed_experts_params r = {.x = slot(p, is_fused ? X : H),
                                  .ids = slot(p, IDS),
                                  .slot = slot(p, SLOTS),
                                  .act = slot(p, ACT),
                                  .out = slot(p, Y0),
                                  .slot_bytes = slot_bytes,
                                  .n_slots = 8,
                                  .n_experts = 8,
                                  .k = k};
    p->random = 77; /* the same weights either way */
    p->at = (p->at + 4095) / 4096 * 4096;
    r.slots = (mf_span){p->buffer, p->at};
    r.gate = weight(p, form, hidden, 512, 8, slot_bytes);
    r.up = weight(p, form, hidden, 512, 8, slot_bytes);
    r.down = weight(p, form, 512, hidden, 8, slot_bytes);
    REQUIRE(p->at <= r.slots.offset + slot_bytes);
    p->at = r.slots.offset + 8 * slot_bytes;
    if (!is_fused)
        push_norm(p, 512);
    if (is_fused) {
        r.before = normed(p);
        r.sum = (mf_expert_sum){slot(p, X), slot(p, Z), slot(p, SHARED), slot(p, GATE)};
        if (k == 1)
            r.sum.shared_gate.buffer.id = 0;
        if (k == 3)
            r.sum.shared.buffer.id = 0;
    }
    push(p, MF_OP_ROUTED_EXPERTS)->u.routed = r;
    if (!is_fused) {
        mf_combine_params c = {.x = slot(p, X),
                               .weights = slot(p, Z),
                               .experts = slot(p, Y0),
                               .shared = slot(p, SHARED),
                               .shared_gate = slot(p, GATE),
                               .n_cols = 512,
                               .k = k};
        if (k == 1)
            c.shared_gate.buffer.id = 0;
        if (k == 3)
            c.shared.buffer.id = 0;
        push(p, MF_OP_COMBINE)->u.combine = c;
    }
}

static const fused list[] = {
    {"normed", make_normed, {X, Y0, Y1, Y2, Z, Z}, {256, 2048, 4608}, 1},
    {"added, normed, paired", make_chain, {X, Y0, Z, Z, Z, Z}, {768, 0, 0}, 2},
    {"heads gated, added", make_heads, {X, Z, Z, Z, Z, Z}, {256, 768, 4608}, 1},
    {"sigmoid", make_sigmoid, {Y0, Y1, Z, Z, Z, Z}, {768, 0, 0}, 1},
    {"convolved", make_convolved, {Y0, Y1, Y2, Y3, STATE, STATE_AFTER}, {256, 768, 0}, 1},
    {"experts", make_experts, {X, Z, Z, Z, Z, Z}, {8, 3, 1}, 2},
};

static const mf_weight_shape forms[] = {
    {.kind = MF_WEIGHT_AFFINE, .float_type = MF_BF16, .bits = 4, .group = 64},
    {.kind = MF_WEIGHT_FLOAT, .float_type = MF_BF16},
    {.kind = MF_WEIGHT_FP8_BLOCK, .float_type = MF_F32, .bits = 8, .group = 128},
    {.kind = MF_WEIGHT_GGUF_Q4_K},
    {.kind = MF_WEIGHT_AFFINE, .float_type = MF_BF16, .bits = 8, .group = 64},
    {.kind = MF_WEIGHT_FLOAT, .float_type = MF_F32},
};

static void compare(play *p, const fused *f, const mf_weight_shape *form, uint32_t size)
{
    static unsigned char out[2][N_COMPARED * SLOT_BYTES];
    uint64_t n_barriers = 0;
    for (int is_fused = 0; is_fused < 2; is_fused++) {
        mf_weight w[5];
        const uint32_t n_cols = f->make == make_experts ? 512 : size;
        begin(p, 11 + size);
        for (uint32_t i = 0; i < 4; i++) /* the third is of another form */
            w[i] = weight(p, i == 2 ? &forms[5] : form, i < 2 ? 37 : i, n_cols, 1, 0);
        w[4] = weight(p, form, n_cols, 256, 1, 0);
        f->make(p, w, size, is_fused != 0);
        if (is_fused)
            n_barriers = p->n_barriers;
        run(p, f->slots, out[is_fused]);
    }
    for (uint32_t i = 0; i < N_COMPARED; i++)
        CHECK_MSG(memcmp(out[0] + i * SLOT_BYTES, out[1] + i * SLOT_BYTES, SLOT_BYTES) == 0,
                  "%s, form %d of %u bits, %u: other bits in the %u-th result", f->name,
                  (int)form->kind, form->bits, size, i);
    /* one more where the third weight has another form */
    CHECK_MSG(p->n_dispatches <= f->most_dispatches + 1, "%s: %u dispatches", f->name,
              (unsigned)p->n_dispatches);
    CHECK_MSG(p->n_barriers < n_barriers, "%s: %u barriers, %u one after the other", f->name,
              (unsigned)p->n_barriers, (unsigned)n_barriers);
}

/* Rows there are several of, or what the CPU is given, have no such steps. */
static void check_refusals(play *p)
{
    mf_error error = {0};
    mf_backend *cpu = NULL;
    begin(p, 1);
    const mf_weight w = weight(p, &forms[0], 64, 256, 1, 0);
    push_product(p, X, &w, 1)->before = normed(p);
    mf_op op = p->ops[0];
    p->n_ops = 0;
    CHECK(p->be->ops->supports_op(p->be, &op));
    op.n_rows = 2;
    CHECK(!p->be->ops->supports_op(p->be, &op));
    op.n_rows = 1;
    op.u.matmul.before = (mf_input_step){MF_INPUT_HEADS_GATED, slot(p, NORM), slot(p, Z), 24, EPS};
    CHECK(!p->be->ops->supports_op(p->be, &op));
    const mf_backend_options options = {.n_threads = 1};
    REQUIRE_OK(mf_backend_open(&options, &cpu, &error), &error);
    CHECK(!cpu->ops->supports_op(cpu, &op));
    op.u.matmul.before.kind = MF_INPUT_AS_IT_IS;
    CHECK(cpu->ops->supports_op(cpu, &op));
    cpu->ops->destroy(cpu);
}

/* A device in software takes long to make pipelines: each step with one size and one form. */
static bool is_asked_for(size_t step, size_t form, uint32_t size)
{
    return !vulkan_is_short() || (size == 0 && form == step % 4);
}

/* Whether shaders may be asked to keep floats below the least normal one. lavapipe does so without
 * saying it, which the validation layers do not allow. */
static bool may_keep_small(const play *p)
{
    const mf_vk_device *d = &((const mf_vk_backend *)p->be)->device;
    return d->keeps_small || (d->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU &&
                              getenv("VK_INSTANCE_LAYERS") == NULL);
}

static void open_buffer(play *p)
{
    mf_error error = {0};
    REQUIRE_OK(
        p->be->ops->buffer_create(p->be, BUFFER_BYTES, MF_USE_DEVICE, "all", &p->buffer, &error),
        &error);
    REQUIRE_OK(p->be->ops->reserve_batch(p->be, 1, 1, &error), &error);
}

/* One row by the operation of the list, fused or not; two rows of a product. */
static void play_small(play *p, const fused *f, const mf_weight_shape *form, uint32_t size,
                       unsigned char *out)
{
    mf_weight w[5];
    begin(p, 5 + size);
    for (uint32_t i = 0; i < 5; i++)
        w[i] = weight(p, form, i < 2 ? 37 : i, f->make == make_experts ? 512 : size, 1, 0);
    f->make(p, w, size, true);
    if (f->make != make_experts) {
        push_product(p, T, w, 1)->y[0] = slot(p, Y3);
        p->ops[p->n_ops - 1].n_rows = 2;
    }
    run(p, f->slots, out);
}

static void compare_small(play *p, const fused *f, const mf_weight_shape *form, uint32_t size)
{
    static unsigned char out[2][N_COMPARED * SLOT_BYTES];
    mf_vk_device *d = &((mf_vk_backend *)p->be)->device;
    const bool keeps_small = d->keeps_small;
    for (int is_small = 0; is_small < 2; is_small++) {
        d->keeps_small = is_small != 0;
        play_small(p, f, form, size, out[is_small]);
    }
    d->keeps_small = keeps_small;
    CHECK_MSG(memcmp(out[0], out[1], sizeof out[0]) == 0,
              "%s, %u bits, %u: other bits by small floats", f->name, form->bits, size);
}

static void test_small(play *p)
{
    static const fused product = {
        "a product", make_normed, {X, Y0, Y1, Y2, Y3, Z}, {256, 4608, 0}, 1};
    static const uint32_t bits[] = {4, 8, 3, 2, 5, 6};
    if (!may_keep_small(p))
        return;
    for (size_t i = 0; i < (vulkan_is_short() ? 1 : sizeof bits / sizeof *bits); i++) {
        mf_weight_shape form = forms[0];
        form.bits = bits[i];
        compare_small(p, &product, &form, product.sizes[i % 2]);
        if (bits[i] == 4)
            compare_small(p, &list[sizeof list / sizeof *list - 1], &form, 8);
    }
}

int main(void)
{
    play p = {.be = vulkan_open(NULL)};
    if (p.be == NULL)
        return TEST_SKIPPED;
    p.image = calloc(1, BUFFER_BYTES);
    REQUIRE(p.image != NULL);
    open_buffer(&p);
    check_refusals(&p);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (size_t j = 0; j < sizeof forms / sizeof *forms; j++)
            for (uint32_t k = 0; k < 3; k++)
                if (list[i].sizes[k] != 0 && is_asked_for(i, j, k))
                    compare(&p, &list[i], &forms[j], list[i].sizes[k]);
    test_small(&p);
    free(p.image);
    p.be->ops->destroy(p.be);
    return test_result();
}
