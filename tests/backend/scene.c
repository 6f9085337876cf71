/* SPDX-License-Identifier: MIT */
/* Scenes: operands laid out in a buffer, plays whole or in pieces, and comparison. */
#include "scene.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 64u
#define GUARD 0xa5
#define POISON 0xff /* a NaN, or -1 */

scene *scene_new(void)
{
    scene *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->image = malloc(SCENE_BYTES);
    s->roles = malloc(SCENE_WORDS);
    s->want = malloc(SCENE_WORDS * sizeof *s->want);
    s->slack = malloc(SCENE_WORDS * sizeof *s->slack);
    if (s->image != NULL && s->roles != NULL && s->want != NULL && s->slack != NULL)
        return s;
    scene_free(s);
    return NULL;
}

void scene_free(scene *s)
{
    if (s == NULL)
        return;
    free(s->image);
    free(s->roles);
    free(s->want);
    free(s->slack);
    free(s);
}

static void grow(scene *s, size_t n_bytes)
{
    if (n_bytes > SCENE_BYTES)
        abort(); /* a case that is too large for the scene */
    memset(s->image + s->n_bytes, GUARD, n_bytes - s->n_bytes);
    memset(s->roles + s->n_bytes / 4, SCENE_FIXED, (n_bytes - s->n_bytes) / 4);
    s->n_bytes = n_bytes;
}

void scene_reset(scene *s, mf_buffer buffer, uint32_t skew, uint64_t seed)
{
    memset(&s->op, 0, sizeof s->op);
    memset(s->sequences, 0, sizeof s->sequences);
    s->n_sequences = 0;
    s->reserve_rows = 0;
    s->buffer = buffer;
    s->skew = skew;
    s->random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    s->n_bytes = 0;
    grow(s, ALIGN);
}

static uint64_t next_random(scene *s)
{
    uint64_t x = s->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    s->random = x;
    return x * UINT64_C(2685821657736338717);
}

uint32_t scene_random(scene *s, uint32_t n)
{
    return (uint32_t)(next_random(s) >> 33) % n;
}

/* Room for n_bytes with a guard behind it. */
static mf_span place(scene *s, size_t n_bytes, uint32_t skew)
{
    mf_span span = {s->buffer, s->n_bytes + skew};
    grow(s, s->n_bytes + ((skew + n_bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1)) + ALIGN);
    return span;
}

static float random_float(scene *s, float scale)
{
    float unit = (float)((double)(next_random(s) >> 11) * 0x1p-53 * 2.0 - 1.0);
    switch (scene_random(s, 40)) {
    case 0:
        return 0.0f;
    case 1:
        return unit * scale * 1e-6f;
    default:
        return unit * scale;
    }
}

mf_span scene_input(scene *s, size_t n, float scale)
{
    mf_span span = place(s, n * sizeof(float), 0);
    float *x = scene_at(s, span);
    for (size_t i = 0; i < n; i++)
        x[i] = random_float(s, scale);
    return span;
}

mf_span scene_output(scene *s, size_t n)
{
    mf_span span = place(s, n * sizeof(float), 0);
    memset(scene_at(s, span), POISON, n * sizeof(float));
    return span;
}

void scene_scratch(scene *s, mf_span span, size_t n)
{
    memset(s->roles + span.offset / 4, SCENE_SCRATCH, n);
}

/* n values of a dtype between 2^-6 and 2^-1 in size; bytes may lie anywhere. */
static void fill_floats(scene *s, unsigned char *to, size_t n, mf_dtype type)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t sign = scene_random(s, 2), exponent = scene_random(s, 5);
        uint32_t fraction = scene_random(s, 1u << 23);
        uint32_t f32 = sign << 31 | (121 + exponent) << 23 | fraction;
        uint16_t f16 = (uint16_t)(sign << 15 | (9 + exponent) << 10 | fraction >> 13);
        uint16_t bf16 = (uint16_t)(f32 >> 16);
        if (type == MF_F32)
            memcpy(to + 4 * i, &f32, 4);
        else
            memcpy(to + 2 * i, type == MF_F16 ? &f16 : &bf16, 2);
    }
}

/* Any codes but NaN. */
static void fill_fp8(scene *s, unsigned char *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t code = scene_random(s, 256);
        to[i] = (unsigned char)((code & 127) == 127 ? 0 : code);
    }
}

static void fill_bytes(scene *s, unsigned char *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (unsigned char)scene_random(s, 256);
}

static mf_weight_shape shape_of(uint32_t kind, uint32_t n_rows, uint32_t n_cols)
{
    mf_weight_shape w = {.n_rows = n_rows, .n_cols = n_cols, .float_type = MF_F32};
    if (kind == SCENE_FP8) {
        w.kind = MF_WEIGHT_FP8_BLOCK;
        w.bits = 8;
        w.group = 128;
    } else if (kind == SCENE_Q8_0) {
        w.kind = MF_WEIGHT_GGUF_Q8_0;
    } else if (kind == SCENE_NVFP4) {
        w.kind = MF_WEIGHT_NVFP4;
    } else {
        w.kind = kind >> 16 != 0 ? MF_WEIGHT_AFFINE : MF_WEIGHT_FLOAT;
        w.float_type = (mf_dtype)(kind & 15);
        w.bits = kind >> 16;
        w.group = kind >> 4 & 0xfff;
    }
    return w;
}

/* Array i of a weight, which has n_bytes. */
static void fill_array(scene *s, const mf_weight_shape *w, uint32_t i, unsigned char *to, size_t n)
{
    const bool is_e4m3 = w->kind == MF_WEIGHT_FP8_BLOCK || w->kind == MF_WEIGHT_NVFP4;
    const bool is_float =
        w->kind == MF_WEIGHT_FLOAT || i == 2 || (i == 1 && w->kind != MF_WEIGHT_NVFP4);
    if (is_float)
        fill_floats(s, to, n / mf_dtype_bytes(w->float_type), w->float_type);
    else if (is_e4m3)
        fill_fp8(s, to, n);
    else
        fill_bytes(s, to, n);
    for (size_t at = 0; w->kind == MF_WEIGHT_GGUF_Q8_0 && at < n; at += 34)
        fill_floats(s, to + at, 1, MF_F16);
}

mf_weight scene_weight(scene *s, uint32_t kind, uint32_t n_rows, uint32_t n_cols)
{
    mf_weight w = {.shape = shape_of(kind, n_rows, n_cols)};
    for (uint32_t i = 0; i < mf_weight_format_of(&w.shape)->n_arrays; i++) {
        size_t n_bytes = (size_t)mf_weight_array_bytes(&w.shape, i);
        w.arrays[i] = place(s, n_bytes, s->skew);
        fill_array(s, &w.shape, i, scene_at(s, w.arrays[i]), n_bytes);
    }
    return w;
}

void scene_sequences(scene *s, uint32_t n_rows, uint32_t n)
{
    uint32_t first = 0;
    s->n_sequences = n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t spare = n_rows - first - (n - i);
        uint32_t rows = i + 1 == n ? n_rows - first : 1 + scene_random(s, spare + 1);
        /* the last is listed first */
        s->sequences[(i + 1) % n] = (mf_sequence){
            .first_row = first, .n_rows = rows, .position = i % 3 == 0 ? 0 : scene_random(s, 40)};
        first += rows;
    }
}

void scene_expect(scene *s, mf_span span, size_t i, double want, double slack)
{
    size_t word = span.offset / 4 + i;
    s->roles[word] = SCENE_RESULT;
    s->want[word] = want;
    s->slack[word] = slack;
}

void scene_expect_id(scene *s, mf_span span, size_t i, int32_t want)
{
    size_t word = span.offset / 4 + i;
    s->roles[word] = SCENE_ID;
    s->want[word] = want;
}

static bool is_result(const scene *s, size_t word)
{
    return s->roles[word] == SCENE_RESULT || s->roles[word] == SCENE_ID;
}

void scene_keep_wants(const scene *s, scene_wants *wants)
{
    const size_t n_words = s->n_bytes / 4;
    size_t n = 0;
    for (size_t w = 0; w < n_words; w++)
        n += is_result(s, w);
    wants->roles = malloc(n_words + 1);
    wants->values = wants->roles ? malloc((2 * n + 1) * sizeof *wants->values) : NULL;
    if (!wants->values)
        return;
    memcpy(wants->roles, s->roles, n_words);
    double *at = wants->values;
    for (size_t w = 0; w < n_words; w++) {
        if (!is_result(s, w))
            continue;
        *at++ = s->want[w];
        *at++ = s->slack[w];
    }
}

void scene_take_wants(scene *s, const scene_wants *wants)
{
    const size_t n_words = s->n_bytes / 4;
    const double *at = wants->values;
    memcpy(s->roles, wants->roles, n_words);
    for (size_t w = 0; w < n_words; w++) {
        if (!is_result(s, w))
            continue;
        s->want[w] = *at++;
        s->slack[w] = *at++;
    }
}

void scene_free_wants(scene_wants *wants)
{
    free(wants->roles);
    free(wants->values);
    *wants = (scene_wants){0};
}

/* ------------------------------------------------------------------------------------ pieces */

static void skip(mf_span *span, uint32_t rows, size_t row_words)
{
    span->offset += rows * row_words * 4;
}

static uint32_t rmsnorm_stride(const mf_op *op)
{
    return op->u.rmsnorm.stride != 0 ? op->u.rmsnorm.stride : op->u.rmsnorm.n_cols;
}

/* Operations that know no sequences. */
static void skip_rows(mf_op *op, uint32_t first)
{
    switch (op->kind) {
    case MF_OP_EMBED:
        op->u.embed.tokens += first;
        skip(&op->u.embed.out, first, op->u.embed.weight.shape.n_cols);
        break;
    case MF_OP_COPY_ROWS:
        op->u.copy_rows.rows += first;
        skip(&op->u.copy_rows.out, first, op->u.copy_rows.n_cols);
        break;
    case MF_OP_FINITE:
        skip(&op->u.finite.x, first, op->u.finite.n_cols);
        skip(&op->u.finite.out, first, mf_finite_blocks(op->u.finite.n_cols));
        if (op->u.finite.copy.buffer.id != 0)
            skip(&op->u.finite.copy, first, op->u.finite.n_cols);
        break;
    case MF_OP_RMSNORM:
        skip(&op->u.rmsnorm.x, first, rmsnorm_stride(op));
        skip(&op->u.rmsnorm.out, first, rmsnorm_stride(op));
        break;
    case MF_OP_RMSNORM_GATED:
        skip(&op->u.rmsnorm_gated.x, first,
             op->u.rmsnorm_gated.n_heads * op->u.rmsnorm_gated.head_dim);
        skip(&op->u.rmsnorm_gated.z, first,
             op->u.rmsnorm_gated.n_heads * op->u.rmsnorm_gated.head_dim);
        break;
    case MF_OP_MATMUL:
        skip(&op->u.matmul.x, first, op->u.matmul.weight[0].shape.n_cols);
        for (uint32_t j = 0; j < op->u.matmul.n; j++)
            skip(&op->u.matmul.y[j], first, op->u.matmul.weight[j].shape.n_rows);
        break;
    case MF_OP_SIGMOID_MUL:
        skip(&op->u.sigmoid_mul.x, first, op->u.sigmoid_mul.n_cols);
        skip(&op->u.sigmoid_mul.gate, first, op->u.sigmoid_mul.n_cols);
        break;
    default:
        break;
    }
}

static void skip_rows_of_experts(mf_op *op, uint32_t first)
{
    switch (op->kind) {
    case MF_OP_ADD:
        skip(&op->u.add.x, first, op->u.add.n_cols);
        skip(&op->u.add.y, op->u.add.y_is_one_row ? 0 : first, op->u.add.n_cols);
        skip(&op->u.add.norm.out, first, op->u.add.n_cols);
        break;
    case MF_OP_SWIGLU:
        skip(&op->u.swiglu.gate, first, op->u.swiglu.n_cols);
        skip(&op->u.swiglu.up, first, op->u.swiglu.n_cols);
        skip(&op->u.swiglu.out, first, op->u.swiglu.n_cols);
        break;
    case MF_OP_ROUTE: /* found is of all pieces */
        skip(&op->u.route.logits, first, op->u.route.n_experts);
        skip(&op->u.route.ids, first, op->u.route.k);
        skip(&op->u.route.weights, first, op->u.route.k);
        break;
    case MF_OP_COMBINE:
        skip(&op->u.combine.x, first, op->u.combine.n_cols);
        skip(&op->u.combine.weights, first, op->u.combine.k);
        skip(&op->u.combine.shared, first, op->u.combine.n_cols);
        skip(&op->u.combine.shared_gate, first, 1);
        skip(&op->u.combine.norm.out, first, op->u.combine.n_cols);
        if (op->u.combine.place != NULL)
            op->u.combine.place += first * op->u.combine.k;
        else
            skip(&op->u.combine.experts, first, op->u.combine.k * op->u.combine.n_cols);
        break;
    case MF_OP_ROUTED_EXPERTS:
        skip(&op->u.routed.x, first, op->u.routed.gate.shape.n_cols);
        skip(&op->u.routed.ids, first, op->u.routed.k);
        skip(&op->u.routed.act, first, op->u.routed.k * 2 * op->u.routed.down.shape.n_cols);
        skip(&op->u.routed.out, first, op->u.routed.k * op->u.routed.down.shape.n_rows);
        break;
    case MF_OP_HEAD_MATMUL:
        skip(&op->u.head_matmul.x, first, op->u.head_matmul.x_row);
        skip(&op->u.head_matmul.y, first, op->u.head_matmul.y_row);
        break;
    default:
        break;
    }
}

/* The sequences' share of rows first .. first + n - 1, counted from row `first`. */
static uint32_t cut_sequences(const scene *s, uint32_t first, uint32_t n, mf_sequence *out)
{
    uint32_t n_out = 0;
    for (uint32_t i = 0; i < s->n_sequences; i++) {
        mf_sequence q = s->sequences[i];
        uint32_t from = q.first_row > first ? q.first_row : first;
        uint32_t end = q.first_row + q.n_rows < first + n ? q.first_row + q.n_rows : first + n;
        if (from >= end)
            continue;
        q.position += from - q.first_row;
        if (from != q.first_row)
            q.state[0] = q.state[1]; /* goes on from what the piece before it left */
        q.first_row = from - first;
        q.n_rows = end - from;
        out[n_out++] = q;
    }
    return n_out;
}

static void skip_rows_of_sequences(mf_op *op, uint32_t first)
{
    if (op->kind == MF_OP_HEAD_NORM_ROPE) {
        skip(&op->u.head_norm_rope.x, first,
             op->u.head_norm_rope.n_heads * op->u.head_norm_rope.head_dim);
    } else if (op->kind == MF_OP_ATTENTION) {
        uint32_t dim = op->u.attention.head_dim;
        skip(&op->u.attention.q, first, op->u.attention.n_heads * dim);
        skip(&op->u.attention.k, first, op->u.attention.n_kv_heads * dim);
        skip(&op->u.attention.v, first, op->u.attention.n_kv_heads * dim);
        skip(&op->u.attention.out, first, op->u.attention.n_heads * dim);
    } else if (op->kind == MF_OP_CONV1D_SILU) {
        skip(&op->u.conv1d_silu.x, first, op->u.conv1d_silu.n_channels);
        skip(&op->u.conv1d_silu.out, first, op->u.conv1d_silu.n_channels);
    } else if (op->kind == MF_OP_GATED_DELTA && op->u.gated_delta.has_key_decays) {
        const uint32_t keys = op->u.gated_delta.n_v_heads * op->u.gated_delta.key_dim;
        const uint32_t values = op->u.gated_delta.n_v_heads * op->u.gated_delta.value_dim;
        skip(&op->u.gated_delta.qkv, first, keys);
        skip(&op->u.gated_delta.k, first, keys);
        skip(&op->u.gated_delta.v, first, values);
        skip(&op->u.gated_delta.a, first, keys);
        skip(&op->u.gated_delta.b, first, op->u.gated_delta.n_v_heads);
        skip(&op->u.gated_delta.out, first, values);
    } else if (op->kind == MF_OP_GATED_DELTA) {
        uint32_t v_heads = op->u.gated_delta.n_v_heads, dim = op->u.gated_delta.value_dim;
        skip(&op->u.gated_delta.qkv, first,
             2 * op->u.gated_delta.n_k_heads * op->u.gated_delta.key_dim + v_heads * dim);
        skip(&op->u.gated_delta.a, first, v_heads);
        skip(&op->u.gated_delta.b, first, v_heads);
        skip(&op->u.gated_delta.out, first, v_heads * dim);
    }
}

static void skip_rows_of_latents(mf_op *op, uint32_t first)
{
    if (op->kind == MF_OP_ROPE) {
        skip(&op->u.rope.x, first, op->u.rope.row_stride);
    } else if (op->kind == MF_OP_LATENT_ATTENTION) {
        uint32_t n_latent = op->u.latent_attention.n_latent;
        skip(&op->u.latent_attention.q, first, op->u.latent_attention.n_heads * n_latent);
        skip(&op->u.latent_attention.out, first, op->u.latent_attention.n_heads * n_latent);
        skip(&op->u.latent_attention.q_rot, first, op->u.latent_attention.q_rot_row);
        skip(&op->u.latent_attention.kv, first, n_latent + op->u.latent_attention.n_rot);
        mf_index_params *x = &op->u.latent_attention.index;
        skip(&x->q, first, x->n_heads * x->dim);
        skip(&x->k, first, x->dim);
        skip(&x->weights, first, x->n_heads);
    }
}

static void skip_rows_of_entries(mf_op *op, uint32_t first)
{
    if (op->kind == MF_OP_STREAMS_IN) {
        mf_streams_in_params *p = &op->u.streams_in;
        const uint32_t n = p->n_streams;
        skip(&p->streams, first, (size_t)n * p->n_cols);
        skip(&p->mixes, first, p->is_last ? n : (2 + n) * n);
        skip(&p->out, first, p->n_cols);
        skip(&p->gates, first, n + n * n);
        skip(&p->norm.out, first, p->n_cols);
    } else if (op->kind == MF_OP_STREAMS_OUT) {
        mf_streams_out_params *p = &op->u.streams_out;
        const uint32_t n = p->n_streams;
        skip(&p->streams, first, (size_t)n * p->n_cols);
        skip(&p->y, first, p->n_cols);
        skip(&p->gates, first, n + n * n);
        skip(&p->mean, first, p->n_cols);
    } else if (op->kind == MF_OP_COMPRESS) {
        skip(&op->u.compress.kv, first, op->u.compress.n_series * op->u.compress.dim);
        skip(&op->u.compress.gate, first, op->u.compress.n_series * op->u.compress.dim);
    } else if (op->kind == MF_OP_ENTRY_ATTENTION) {
        mf_entry_attention_params *p = &op->u.entry_attention;
        skip(&p->q, first, p->n_heads * p->dim);
        skip(&p->out, first, p->n_heads * p->dim);
        skip(&p->kv, first, p->dim);
        skip(&p->index.q, first, p->index.n_heads * p->index.dim);
        skip(&p->index.weights, first, p->index.n_heads);
    }
}

static void begin_batch(mf_backend *be, const mf_sequence *sequences, uint32_t n)
{
    mf_sequence copy[SCENE_SEQUENCES];
    memcpy(copy, sequences, n * sizeof *copy);
    be->ops->begin_batch(be, copy, n);
    memset(copy, POISON, sizeof copy); /* it has been copied */
}

/* Rows of these kinds may be a part of the batch's; recurrent ones go through a batch whole. */
static bool takes_parts(mf_op_kind kind)
{
    return kind == MF_OP_HEAD_NORM_ROPE || kind == MF_OP_ATTENTION || kind == MF_OP_ROPE ||
           kind == MF_OP_LATENT_ATTENTION || kind == MF_OP_COMPRESS ||
           kind == MF_OP_ENTRY_ATTENTION;
}

/* Where the operation can, every other piece is a part of a batch of all rows, the others batches
 * of their own. */
static void record_rows(const scene *s, mf_backend *be, uint32_t first, uint32_t n)
{
    mf_sequence sequences[SCENE_SEQUENCES];
    mf_op op = s->op;
    op.n_rows = n;
    skip_rows(&op, first);
    skip_rows_of_experts(&op, first);
    skip_rows_of_sequences(&op, first);
    skip_rows_of_latents(&op, first);
    skip_rows_of_entries(&op, first);
    if (takes_parts(op.kind) && first / n % 2 == 1) {
        begin_batch(be, s->sequences, s->n_sequences);
        op.first_row = first;
    } else {
        begin_batch(be, sequences, cut_sequences(s, first, n, sequences));
    }
    be->ops->record(be, &op);
}

static void record_items(const scene *s, mf_backend *be, uint32_t step)
{
    mf_expert_item items[SCENE_ITEMS];
    mf_op op = s->op;
    uint32_t n_items = op.u.experts.n_items;
    for (uint32_t i = 0; i < n_items; i++)
        items[i] = s->items[step == SCENE_REVERSED ? n_items - 1 - i : i];
    if (step == SCENE_REVERSED || step == SCENE_ALONE)
        step = n_items;
    for (uint32_t i = 0; i < n_items; i += step) {
        op.u.experts.items = items + i;
        op.u.experts.n_items = n_items - i < step ? n_items - i : step;
        op.n_rows = 0;
        for (uint32_t j = 0; j < op.u.experts.n_items; j++)
            op.n_rows += items[i + j].n_rows;
        be->ops->record(be, &op);
    }
}

static void record_pieces(const scene *s, mf_backend *be, uint32_t step)
{
    uint32_t n_rows = s->op.n_rows;
    if (step == SCENE_WHOLE) {
        begin_batch(be, s->sequences, s->n_sequences);
        be->ops->record(be, &s->op);
    } else if (s->op.kind == MF_OP_EXPERTS) {
        record_items(s, be, step);
    } else if (step == SCENE_ALONE) {
        for (uint32_t i = 0; i < SCENE_SEQUENCES; i++) {
            const mf_sequence *q = &s->sequences[i];
            if (q->n_rows > 0)
                record_rows(s, be, q->first_row, q->n_rows);
        }
    } else {
        for (uint32_t first = 0; first < n_rows; first += step)
            record_rows(s, be, first, n_rows - first < step ? n_rows - first : step);
    }
}

mf_status scene_play(const scene *s, mf_backend *be, uint32_t step, unsigned char *result,
                     mf_error *error)
{
    mf_span all = {s->buffer, 0};
    mf_op sized = s->op;
    sized.n_rows = s->reserve_rows != 0 ? s->reserve_rows : s->op.n_rows;
    be->ops->write(be, all, s->image, s->n_bytes);
    mf_status status = be->ops->reserve(be, &sized, error);
    if (status == MF_OK)
        status = be->ops->reserve_batch(be, SCENE_SEQUENCES, SCENE_SEQUENCES * SCENE_PAGES, error);
    if (status != MF_OK)
        return status;
    record_pieces(s, be, step);
    return mf_backend_read(be, all, result, s->n_bytes, error);
}

/* -------------------------------------------------------------------------------- comparison */

static bool word_is_right(const scene *s, size_t word, const unsigned char *result,
                          double slack_factor)
{
    const unsigned char *got = result + 4 * word;
    float value;
    int32_t id;
    switch (s->roles[word]) {
    case SCENE_FIXED:
        return memcmp(got, s->image + 4 * word, 4) == 0;
    case SCENE_RESULT:
        memcpy(&value, got, 4);
        return fabs(value - s->want[word]) <= s->slack[word] * slack_factor;
    case SCENE_ID:
        memcpy(&id, got, 4);
        return id == s->want[word];
    default:
        return true;
    }
}

size_t scene_check(const scene *s, const unsigned char *result, double slack_factor)
{
    for (size_t word = 0; word < s->n_bytes / 4; word++) {
        if (!word_is_right(s, word, result, slack_factor))
            return word;
    }
    return SIZE_MAX;
}

size_t scene_differs(const scene *s, const unsigned char *a, const unsigned char *b)
{
    for (size_t word = 0; word < s->n_bytes / 4; word++) {
        bool result = is_result(s, word);
        if (result && memcmp(a + 4 * word, b + 4 * word, 4) != 0)
            return word;
    }
    return SIZE_MAX;
}
