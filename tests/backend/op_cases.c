/* SPDX-License-Identifier: MIT */
/* The op list. Sizes are awkward on purpose: odd heads, widths that fill no vector, 1, 7 and 70
 * rows, sums that cross every block of the kernels. */
#include "op_cases.h"

#include <math.h>
#include <string.h>

#define EPS 1e-6f

static void build_embed(scene *s, const uint32_t *p)
{
    uint32_t n_vocab = 50;
    s->op = (mf_op){.kind = MF_OP_EMBED, .n_rows = p[0]};
    s->op.u.embed.weight = scene_weight(s, p[1], n_vocab, p[2]);
    for (uint32_t i = 0; i < p[0]; i++)
        s->tokens[i] = (int32_t)(i == 0 ? n_vocab - 1 : scene_random(s, n_vocab));
    s->op.u.embed.tokens = s->tokens;
    s->op.u.embed.out = scene_output(s, (size_t)p[0] * p[2]);
}

static void build_copy_rows(scene *s, const uint32_t *p)
{
    s->op = (mf_op){.kind = MF_OP_COPY_ROWS, .n_rows = p[0]};
    s->op.u.copy_rows.x = scene_input(s, (size_t)20 * p[1], 3.0f);
    s->op.u.copy_rows.out = scene_output(s, (size_t)p[0] * p[1]);
    for (uint32_t i = 0; i < p[0]; i++)
        s->list[i] = i == 0 ? 19 : scene_random(s, 20);
    s->op.u.copy_rows.rows = s->list;
    s->op.u.copy_rows.n_cols = p[1];
}

/* Every third row has one value that is no finite number, somewhere; the second has none above 0,
 * and the last of them are hardly below. p[2]: rows are copied. */
static void build_finite(scene *s, const uint32_t *p)
{
    const float others[] = {INFINITY, -INFINITY, NAN, -NAN};
    s->op = (mf_op){.kind = MF_OP_FINITE, .n_rows = p[0]};
    s->op.u.finite.x = scene_input(s, (size_t)p[0] * p[1], 3.0e38f);
    s->op.u.finite.out = scene_output(s, (size_t)p[0] * mf_finite_blocks(p[1]));
    s->op.u.finite.n_cols = p[1];
    if (p[2] != 0)
        s->op.u.finite.copy = scene_output(s, (size_t)p[0] * p[1]);
    float *x = scene_at(s, s->op.u.finite.x);
    for (uint32_t r = 0; r < p[0]; r += 3)
        x[(size_t)r * p[1] + scene_random(s, p[1])] = others[r / 3 % 4];
    for (uint32_t i = 0; i < p[1] && p[0] > 1; i++)
        x[p[1] + i] = p[1] - i < 10 ? -1e-40f : -fabsf(x[p[1] + i]);
}

/* p[2]: in place; p[3]: floats between rows */
static void build_rmsnorm(scene *s, const uint32_t *p)
{
    size_t n = (size_t)p[0] * (p[3] != 0 ? p[3] : p[1]);
    s->op = (mf_op){.kind = MF_OP_RMSNORM, .n_rows = p[0]};
    s->op.u.rmsnorm.x = scene_input(s, n, 20.0f);
    s->op.u.rmsnorm.weight = scene_input(s, p[1], 2.0f);
    s->op.u.rmsnorm.out = p[2] != 0 ? s->op.u.rmsnorm.x : scene_output(s, n);
    s->op.u.rmsnorm.n_cols = p[1];
    s->op.u.rmsnorm.stride = p[3];
    s->op.u.rmsnorm.eps = EPS;
    s->op.u.rmsnorm.is_centred = p[4] != 0;
}

static void build_rmsnorm_gated(scene *s, const uint32_t *p)
{
    size_t n = (size_t)p[0] * p[1] * p[2];
    s->op = (mf_op){.kind = MF_OP_RMSNORM_GATED, .n_rows = p[0]};
    s->op.u.rmsnorm_gated.x = scene_input(s, n, 0.5f);
    s->op.u.rmsnorm_gated.z = scene_input(s, n, 60.0f);
    s->op.u.rmsnorm_gated.weight = scene_input(s, p[2], 2.0f);
    s->op.u.rmsnorm_gated.n_heads = p[1];
    s->op.u.rmsnorm_gated.head_dim = p[2];
    s->op.u.rmsnorm_gated.eps = EPS;
}

/* p[1]: columns; p[2], p[3]: rows of the first weight, more for each further; p[4 ..]: kinds, 0
 * ends them */
static void build_matmul(scene *s, const uint32_t *p)
{
    s->op = (mf_op){.kind = MF_OP_MATMUL, .n_rows = p[0]};
    s->op.u.matmul.x = scene_input(s, (size_t)p[0] * p[1], 2.0f);
    for (uint32_t j = 0; j < MF_MAX_MATMULS && p[4 + j] != 0; j++) {
        uint32_t n_out = p[2] + j * p[3];
        s->op.u.matmul.weight[j] = scene_weight(s, p[4 + j], n_out, p[1]);
        s->op.u.matmul.y[j] = scene_output(s, (size_t)p[0] * n_out);
        s->op.u.matmul.n++;
    }
}

/* p: rows, heads, head_dim, n_rot, sequences */
static void build_head_norm_rope(scene *s, const uint32_t *p)
{
    uint32_t half = p[3] / 2, n_positions = 40 + p[0];
    s->op = (mf_op){.kind = MF_OP_HEAD_NORM_ROPE, .n_rows = p[0]};
    s->op.u.head_norm_rope.x = scene_input(s, (size_t)p[0] * p[1] * p[2], 8.0f);
    s->op.u.head_norm_rope.weight = scene_input(s, p[2], 2.0f);
    s->op.u.head_norm_rope.cos = scene_input(s, (size_t)n_positions * half, 1.0f);
    s->op.u.head_norm_rope.sin = scene_input(s, (size_t)n_positions * half, 1.0f);
    float *cosine = scene_at(s, s->op.u.head_norm_rope.cos);
    float *sine = scene_at(s, s->op.u.head_norm_rope.sin);
    for (uint32_t i = 0; i < n_positions * half; i++) {
        double angle = i / half * pow(1e4, -(double)(i % half) / half);
        cosine[i] = (float)cos(angle);
        sine[i] = (float)sin(angle);
    }
    s->op.u.head_norm_rope.n_heads = p[1];
    s->op.u.head_norm_rope.head_dim = p[2];
    s->op.u.head_norm_rope.n_rot = p[3];
    s->op.u.head_norm_rope.eps = EPS;
    scene_sequences(s, p[0], p[4]);
}

/* What the sequence holds already of a cache whose first row is at `span`, rows of `width` values.
 */
static void fill_cache(scene *s, const mf_sequence *seq, mf_span span, size_t width, mf_dtype type)
{
    for (uint64_t p = 0; p < seq->position; p++) {
        for (size_t i = 0; i < width; i++) {
            size_t at = scene_cache_row(s, seq, p) * width + i;
            if (type == MF_F32)
                ((float *)scene_at(s, span))[at] = (float)scene_random(s, 2001) / 1000.0f - 1.0f;
            else /* 0.125 .. 1.5, of either sign */
                ((uint16_t *)scene_at(s, span))[at] =
                    (uint16_t)(0x3e00u + scene_random(s, 0x1c0) + (scene_random(s, 2) << 15));
        }
    }
}

/* n_caches caches of the i-th sequence, which share its pages; their rest is poison. */
static void add_caches(scene *s, uint32_t i, uint32_t n_caches, size_t width, mf_dtype type)
{
    mf_sequence *seq = &s->sequences[i];
    const size_t n_pages = scene_cache_pages(seq), row_bytes = width * mf_dtype_bytes(type);
    s->page_rows = n_caches * MF_PAGE_TOKENS;
    const mf_span all = scene_output(s, n_pages * s->page_rows * row_bytes / 4);
    for (uint32_t j = 0; j < n_caches; j++) {
        seq->state[j] = mf_span_at(all, j * MF_PAGE_TOKENS * row_bytes);
        fill_cache(s, seq, seq->state[j], width, type);
    }
    for (uint32_t p = 0; p < n_pages; p++)
        s->pages[i][p] =
            mf_span_at(all, scene_cache_row(s, seq, (uint64_t)p * MF_PAGE_TOKENS) * row_bytes);
    seq->pages = s->pages[i];
}

/* The sequence's pages are those of its window alone; what it does not reach is not there. */
static void leave_window(scene *s, uint32_t i, uint32_t window)
{
    mf_sequence *seq = &s->sequences[i];
    const uint64_t first = seq->position >= window ? seq->position + 1 - window : 0;
    for (uint64_t p = 0; p < first / MF_PAGE_TOKENS / MF_WINDOW_PAGES * MF_WINDOW_PAGES; p++)
        s->pages[i][p] = (mf_span){{0}, 0};
    seq->window_pages = seq->pages;
    seq->pages = NULL;
}

/* p: rows, heads, kv_heads, head_dim, sequences, bfloat16, window, and added up: 1 sinks, 2 the
 * window is a chunk, 4 in pages of windows */
static void build_attention(scene *s, const uint32_t *p)
{
    size_t width = (size_t)p[2] * p[3];
    mf_dtype type = p[5] != 0 ? MF_BF16 : MF_F32;
    s->op = (mf_op){.kind = MF_OP_ATTENTION, .n_rows = p[0]};
    s->op.u.attention.q = scene_input(s, (size_t)p[0] * p[1] * p[3], 3.0f);
    s->op.u.attention.k = scene_input(s, p[0] * width, 2.0f);
    s->op.u.attention.v = scene_input(s, p[0] * width, 2.0f);
    s->op.u.attention.out = scene_output(s, (size_t)p[0] * p[1] * p[3]);
    s->op.u.attention.n_heads = p[1];
    s->op.u.attention.n_kv_heads = p[2];
    s->op.u.attention.head_dim = p[3];
    s->op.u.attention.scale = 1.0f / sqrtf((float)p[3]);
    s->op.u.attention.window = p[6];
    s->op.u.attention.window_is_chunk = (p[7] & 2) != 0;
    s->op.u.attention.is_in_window_pages = (p[7] & 4) != 0;
    if ((p[7] & 1) != 0)
        s->op.u.attention.sinks = scene_input(s, p[1], 2.0f);
    scene_sequences(s, p[0], p[4]);
    for (uint32_t i = 0; i < p[4]; i++)
        add_caches(s, i, 2, width, type);
    for (uint32_t i = 0; i < p[4] && (p[7] & 4) != 0; i++)
        leave_window(s, i, p[6]);
    s->op.u.attention.cache_type = type;
    s->op.u.attention.page_offset[1] = MF_PAGE_TOKENS * width * mf_dtype_bytes(type);
}

/* p: rows, heads, n_latent, n_rot, sequences, bfloat16 */
static void build_latent_attention(scene *s, const uint32_t *p)
{
    size_t width = (size_t)p[2] + p[3];
    uint32_t head = p[3] + 5;
    mf_dtype type = p[5] != 0 ? MF_BF16 : MF_F32;
    s->op = (mf_op){.kind = MF_OP_LATENT_ATTENTION, .n_rows = p[0]};
    s->op.u.latent_attention.q = scene_input(s, (size_t)p[0] * p[1] * p[2], 3.0f);
    s->op.u.latent_attention.q_rot = scene_input(s, (size_t)p[0] * p[1] * head, 3.0f);
    s->op.u.latent_attention.kv = scene_input(s, p[0] * width, 2.0f);
    s->op.u.latent_attention.out = scene_output(s, (size_t)p[0] * p[1] * p[2]);
    s->op.u.latent_attention.n_heads = p[1];
    s->op.u.latent_attention.n_latent = p[2];
    s->op.u.latent_attention.n_rot = p[3];
    s->op.u.latent_attention.q_rot_row = p[1] * head;
    s->op.u.latent_attention.q_rot_head = head;
    s->op.u.latent_attention.cache_type = type;
    s->op.u.latent_attention.scale = 1.0f / sqrtf((float)width);
    scene_sequences(s, p[0], p[4]);
    for (uint32_t i = 0; i < p[4]; i++)
        add_caches(s, i, 1, width, type);
}

static void build_sigmoid_mul(scene *s, const uint32_t *p)
{
    s->op = (mf_op){.kind = MF_OP_SIGMOID_MUL, .n_rows = p[0]};
    s->op.u.sigmoid_mul.x = scene_input(s, (size_t)p[0] * p[1], 4.0f);
    s->op.u.sigmoid_mul.gate = scene_input(s, (size_t)p[0] * p[1], 60.0f);
    s->op.u.sigmoid_mul.n_cols = p[1];
}

/* A state of n floats to go on from and another to leave behind; every fourth in place, every
 * third beginning with nothing. */
static void begin_state(scene *s, uint32_t i, size_t n, float scale)
{
    mf_sequence *seq = &s->sequences[i];
    if (i % 3 != 2)
        seq->state[0] = scene_input(s, n, scale);
    seq->state[1] = i % 4 == 3 ? seq->state[0] : scene_output(s, n);
}

/* p: rows, channels, width, sequences, in place */
static void build_conv1d_silu(scene *s, const uint32_t *p)
{
    size_t n = (size_t)p[0] * p[1];
    s->op = (mf_op){.kind = MF_OP_CONV1D_SILU, .n_rows = p[0]};
    s->op.u.conv1d_silu.x = scene_input(s, n, 8.0f);
    s->op.u.conv1d_silu.weight = scene_input(s, (size_t)p[1] * p[2], 1.0f);
    s->op.u.conv1d_silu.out = p[4] != 0 ? s->op.u.conv1d_silu.x : scene_output(s, n);
    s->op.u.conv1d_silu.n_channels = p[1];
    s->op.u.conv1d_silu.width = p[2];
    scene_sequences(s, p[0], p[3]);
    for (uint32_t i = 0; i < p[3]; i++)
        begin_state(s, i, (size_t)(p[2] - 1) * p[1], 8.0f);
}

/* p: rows, k_heads, v_heads, key_dim, value_dim, sequences, whether tiled */
static void build_gated_delta(scene *s, const uint32_t *p)
{
    size_t row = (size_t)2 * p[1] * p[3] + (size_t)p[2] * p[4];
    s->op = (mf_op){.kind = MF_OP_GATED_DELTA, .n_rows = p[0]};
    s->op.u.gated_delta.qkv = scene_input(s, p[0] * row, 3.0f);
    scene_scratch(s, s->op.u.gated_delta.qkv, p[0] * row);
    /* beyond where exp overflows, by factors small enough that it shows */
    s->op.u.gated_delta.a = scene_input(s, (size_t)p[0] * p[2], 120.0f);
    s->op.u.gated_delta.b = scene_input(s, (size_t)p[0] * p[2], 10.0f);
    s->op.u.gated_delta.a_log = scene_input(s, p[2], 6.0f);
    s->op.u.gated_delta.dt_bias = scene_input(s, p[2], 3.0f);
    s->op.u.gated_delta.out = scene_output(s, (size_t)p[0] * p[2] * p[4]);
    s->op.u.gated_delta.n_k_heads = p[1];
    s->op.u.gated_delta.n_v_heads = p[2];
    s->op.u.gated_delta.key_dim = p[3];
    s->op.u.gated_delta.value_dim = p[4];
    s->op.u.gated_delta.eps = EPS;
    s->op.u.gated_delta.is_tiled = p[6] != 0;
    scene_sequences(s, p[0], p[5]);
    for (uint32_t i = 0; i < p[5]; i++)
        begin_state(s, i, (size_t)p[2] * p[3] * p[4], 1.0f);
}

/* p: rows, heads, key_dim, value_dim, sequences */
static void build_keyed_delta(scene *s, const uint32_t *p)
{
    const size_t keys = (size_t)p[0] * p[1] * p[2], values = (size_t)p[0] * p[1] * p[3];
    mf_gated_delta_params *d = &s->op.u.gated_delta;
    s->op = (mf_op){.kind = MF_OP_GATED_DELTA, .n_rows = p[0]};
    d->qkv = scene_input(s, keys, 3.0f);
    d->k = scene_input(s, keys, 3.0f);
    d->v = scene_input(s, values, 3.0f);
    d->a = scene_input(s, keys, 120.0f);
    d->b = scene_input(s, (size_t)p[0] * p[1], 10.0f);
    d->a_log = scene_input(s, p[1], 6.0f);
    d->dt_bias = scene_input(s, (size_t)p[1] * p[2], 3.0f);
    d->out = scene_output(s, values);
    scene_scratch(s, d->qkv, keys);
    scene_scratch(s, d->k, keys);
    scene_scratch(s, d->a, keys);
    scene_scratch(s, d->b, (size_t)p[0] * p[1]);
    d->has_key_decays = true;
    d->n_k_heads = d->n_v_heads = p[1];
    d->key_dim = p[2];
    d->value_dim = p[3];
    d->eps = EPS;
    scene_sequences(s, p[0], p[4]);
    for (uint32_t i = 0; i < p[4]; i++)
        begin_state(s, i, (size_t)p[1] * p[2] * p[3], 1.0f);
}

mf_norm_after op_build_norm_after(scene *s, uint32_t n_rows, uint32_t n_cols)
{
    return (mf_norm_after){.weight = scene_input(s, n_cols, 2.0f),
                           .out = scene_output(s, (size_t)n_rows * n_cols),
                           .eps = EPS};
}

/* p: rows, columns, one row for all, with a norm */
static void build_add(scene *s, const uint32_t *p)
{
    s->op = (mf_op){.kind = MF_OP_ADD, .n_rows = p[0]};
    s->op.u.add.x = scene_input(s, (size_t)p[0] * p[1], 4.0f);
    s->op.u.add.y_is_one_row = p[2] != 0;
    s->op.u.add.y = scene_input(s, (size_t)(p[2] != 0 ? 1 : p[0]) * p[1], 4.0f);
    s->op.u.add.n_cols = p[1];
    if (p[3] != 0)
        s->op.u.add.norm = op_build_norm_after(s, p[0], p[1]);
}

/* p[2]: in place */
static void build_swiglu(scene *s, const uint32_t *p)
{
    size_t n = (size_t)p[0] * p[1];
    s->op = (mf_op){.kind = MF_OP_SWIGLU, .n_rows = p[0]};
    s->op.u.swiglu.gate = scene_input(s, n, 60.0f);
    s->op.u.swiglu.up = scene_input(s, n, 4.0f);
    s->op.u.swiglu.out = p[2] != 0 ? s->op.u.swiglu.gate : scene_output(s, n);
    s->op.u.swiglu.n_cols = p[1];
}

/* p: rows, experts, k, normalise. Logits are multiples of 1/8, so that many are equal and none are
 * nearly so. */
static void build_softmax_top_k(scene *s, const uint32_t *p)
{
    size_t n = (size_t)p[0] * p[1];
    s->op = (mf_op){.kind = MF_OP_ROUTE, .n_rows = p[0]};
    s->op.u.route.logits = scene_input(s, n, 1.0f);
    float *logits = scene_at(s, s->op.u.route.logits);
    for (size_t i = 0; i < n; i++)
        logits[i] = (float)scene_random(s, 65) / 8.0f - 4.0f;
    scene_scratch(s, s->op.u.route.logits, n);
    s->op.u.route.ids = scene_output(s, (size_t)p[0] * p[2]);
    s->op.u.route.weights = scene_output(s, (size_t)p[0] * p[2]);
    s->op.u.route.n_experts = p[1];
    s->op.u.route.k = p[2];
    s->op.u.route.normalise = p[3] != 0;
    s->op.u.route.n_groups = s->op.u.route.k_groups = 1;
    s->op.u.route.scale = 1.0f;
}

/* p: rows, experts, k, groups, groups kept, sigmoid with bias, normalise */
static void build_grouped_route(scene *s, const uint32_t *p)
{
    build_softmax_top_k(s, (const uint32_t[]){p[0], p[1], p[2], p[6]});
    s->op.u.route.n_groups = p[3];
    s->op.u.route.k_groups = p[4];
    s->op.u.route.scale = 2.5f;
    if (p[5] == 0)
        return;
    s->op.u.route.score = MF_SCORE_SIGMOID;
    s->op.u.route.group_rule = MF_GROUP_TOP2;
    s->op.u.route.eps = 1e-20f;
    s->op.u.route.bias = scene_input(s, p[1], 1.0f);
    float *bias = scene_at(s, s->op.u.route.bias);
    for (uint32_t i = 0; i < p[1]; i++)
        bias[i] = (float)scene_random(s, 9) / 16.0f - 0.25f;
}

/* p: rows, experts, k, experts without a slot */
static void build_finding_route(scene *s, const uint32_t *p)
{
    build_softmax_top_k(s, (const uint32_t[]){p[0], p[1], p[2], 1});
    mf_route_params *r = &s->op.u.route;
    r->slot = scene_input(s, p[1], 0.0f);
    uint32_t *slot = scene_at(s, r->slot);
    for (uint32_t i = 0; i < p[1]; i++)
        slot[i] = p[1] - i;
    for (uint32_t i = 0; i < p[3]; i++)
        slot[scene_random(s, p[1])] = MF_NO_SLOT;
    r->found = scene_input(s, 2, 0.0f);
    memset(scene_at(s, r->found), 0, 2 * sizeof(uint32_t));
    r->n_to_find = p[0];
}

/* p: rows, heads, n_rot, other floats of a head, sequences, interleaved */
static void build_rope(scene *s, const uint32_t *p)
{
    uint32_t half = p[2] / 2, n_positions = 40 + p[0], head = p[2] + p[3];
    s->op = (mf_op){.kind = MF_OP_ROPE, .n_rows = p[0]};
    s->op.u.rope.x = scene_input(s, (size_t)p[0] * p[1] * head, 8.0f);
    s->op.u.rope.x.offset += p[3] * sizeof(float);
    s->op.u.rope.cos = scene_input(s, (size_t)n_positions * half, 1.0f);
    s->op.u.rope.sin = scene_input(s, (size_t)n_positions * half, 1.0f);
    s->op.u.rope.n_heads = p[1];
    s->op.u.rope.n_rot = p[2];
    s->op.u.rope.row_stride = p[1] * head;
    s->op.u.rope.head_stride = head;
    s->op.u.rope.interleaved = p[5] != 0;
    scene_sequences(s, p[0], p[4]);
}

/* p: rows, heads, kind, rows of a head's matrix, columns, transposed, rows of a head before, after
 */
static void build_head_matmul(scene *s, const uint32_t *p)
{
    uint32_t head_rows = p[3] + p[6] + p[7];
    uint32_t n_in = p[5] != 0 ? p[3] : p[4], n_out = p[5] != 0 ? p[4] : p[3];
    s->op = (mf_op){.kind = MF_OP_HEAD_MATMUL, .n_rows = p[0]};
    s->op.u.head_matmul.w =
        (mf_head_weight){.weight = scene_weight(s, p[2], p[1] * head_rows, p[4]),
                         .head_rows = head_rows,
                         .first_row = p[6],
                         .n_rows = p[3],
                         .transposed = p[5] != 0};
    s->op.u.head_matmul.n_heads = p[1];
    s->op.u.head_matmul.x_head = n_in + 3;
    s->op.u.head_matmul.x_row = p[1] * (n_in + 3);
    s->op.u.head_matmul.y_head = n_out;
    s->op.u.head_matmul.y_row = p[1] * n_out + 5;
    s->op.u.head_matmul.x = scene_input(s, (size_t)p[0] * s->op.u.head_matmul.x_row, 2.0f);
    s->op.u.head_matmul.y = scene_output(s, (size_t)p[0] * s->op.u.head_matmul.y_row);
}

#define F32 MF_F32
#define F16 MF_F16
#define BF16 MF_BF16
#define FP8 SCENE_FP8
#define Q8_0 SCENE_Q8_0
#define NVFP4 SCENE_NVFP4
#define Q(bits, group, dtype) SCENE_AFFINE(bits, group, dtype)

const op_case op_cases[] = {
    {"embed f32", build_embed, {7, F32, 37}},
    {"embed f16", build_embed, {1, F16, 19}},
    {"embed bf16", build_embed, {70, BF16, 45}},
    {"embed q2/64", build_embed, {7, Q(2, 64, MF_F16), 192}},
    {"embed q3/32", build_embed, {7, Q(3, 32, MF_BF16), 96}},
    {"embed q4/64", build_embed, {70, Q(4, 64, MF_BF16), 320}},
    {"embed q5/128", build_embed, {1, Q(5, 128, MF_F32), 128}},
    {"embed q6/32", build_embed, {7, Q(6, 32, MF_F16), 32}},
    {"embed q8/64", build_embed, {7, Q(8, 64, MF_F32), 64}},
    {"embed fp8", build_embed, {7, FP8, 150}},
    {"embed q8_0", build_embed, {7, Q8_0, 96}},
    {"embed nvfp4", build_embed, {7, NVFP4, 48}},
    {"copy_rows 1x1", build_copy_rows, {1, 1}},
    {"copy_rows 7x33", build_copy_rows, {7, 33}},
    {"copy_rows 70x65", build_copy_rows, {70, 65}},
    {"finite 1x1", build_finite, {1, 1}},
    {"finite 7x33", build_finite, {7, 33}},
    {"finite 12x1", build_finite, {12, 1}},
    {"finite 70x4099", build_finite, {70, 4099}},
    {"finite 5x2048 copied", build_finite, {5, 2048, 1}},
    {"finite 4x3001 copied", build_finite, {4, 3001, 1}},
    {"rmsnorm 1x1", build_rmsnorm, {1, 1, 0}},
    {"rmsnorm 7x77", build_rmsnorm, {7, 77, 0}},
    {"rmsnorm 70x259 in place", build_rmsnorm, {70, 259, 1}},
    {"rmsnorm 7x4099", build_rmsnorm, {7, 4099, 0}},
    {"rmsnorm 7x33 of 45", build_rmsnorm, {7, 33, 1, 45}},
    {"rmsnorm 70x512 of 576", build_rmsnorm, {70, 512, 1, 576}},
    {"rmsnorm 7x33, centred", build_rmsnorm, {7, 33, 1, 0, 1}},
    {"rmsnorm 70x128, centred", build_rmsnorm, {70, 128, 1, 0, 1}},
    {"rmsnorm 33x259 of 262, centred", build_rmsnorm, {33, 259, 1, 262, 1}},
    {"rmsnorm 3x4099, centred", build_rmsnorm, {3, 4099, 1, 0, 1}},
    {"rmsnorm_gated 1x1x5", build_rmsnorm_gated, {1, 1, 5}},
    {"rmsnorm_gated 7x3x33", build_rmsnorm_gated, {7, 3, 33}},
    {"rmsnorm_gated 70x5x130", build_rmsnorm_gated, {70, 5, 130}},
    {"matmul f32 1", build_matmul, {1, 37, 29, 0, F32}},
    {"matmul f16 7", build_matmul, {7, 133, 131, 0, F16}},
    {"matmul bf16 70", build_matmul, {70, 67, 197, 0, BF16}},
    {"matmul f32 f16 bf16 f32 7", build_matmul, {7, 50, 1, 66, F32, F16, BF16, F32}},
    {"matmul q2/32 3", build_matmul, {3, 96, 70, 0, Q(2, 32, MF_F16)}},
    {"matmul q3/64 7", build_matmul, {7, 192, 65, 0, Q(3, 64, MF_BF16)}},
    {"matmul q4/64 1", build_matmul, {1, 320, 203, 0, Q(4, 64, MF_BF16)}},
    {"matmul q4/32 70", build_matmul, {70, 160, 130, 0, Q(4, 32, MF_F16)}},
    {"matmul q5/128 7", build_matmul, {7, 384, 33, 0, Q(5, 128, MF_F32)}},
    {"matmul q6/64 2", build_matmul, {2, 192, 17, 0, Q(6, 64, MF_BF16)}},
    {"matmul q8/128 4", build_matmul, {4, 256, 300, 0, Q(8, 128, MF_F16)}},
    {"matmul q4 q8 1", build_matmul, {1, 128, 64, 1, Q(4, 64, MF_BF16), Q(8, 64, MF_BF16)}},
    {"matmul q4 q8 f32 7", build_matmul, {7, 64, 15, 50, Q(4, 64, MF_F16), Q(8, 32, MF_F32), F32}},
    {"matmul f32 q4, the second larger 7", build_matmul, {7, 96, 3, 90, F32, Q(4, 32, MF_F16)}},
    {"matmul of four kinds 70",
     build_matmul,
     {70, 192, 3, 61, Q(4, 64, MF_BF16), BF16, Q(3, 32, MF_F16), Q(6, 64, MF_F32)}},
    {"matmul bf16 1", build_matmul, {1, 390, 300, 0, BF16}},
    {"matmul bf16 3", build_matmul, {3, 77, 130, 0, BF16}},
    {"matmul fp8 1", build_matmul, {1, 390, 300, 0, FP8}},
    {"matmul fp8 2, less than a block", build_matmul, {2, 50, 37, 0, FP8}},
    {"matmul fp8 4", build_matmul, {4, 256, 129, 0, FP8}},
    {"matmul fp8 7", build_matmul, {7, 530, 193, 0, FP8}},
    {"matmul fp8 70", build_matmul, {70, 200, 260, 0, FP8}},
    {"matmul q8_0 1", build_matmul, {1, 96, 70, 0, Q8_0}},
    {"matmul q8_0 nvfp4 q4 7", build_matmul, {7, 64, 70, 61, Q8_0, NVFP4, Q(4, 64, MF_BF16)}},
    {"matmul fp8 bf16 q4 fp8 7", build_matmul, {7, 192, 70, 61, FP8, BF16, Q(4, 64, MF_BF16), FP8}},
    {"head_norm_rope 1", build_head_norm_rope, {1, 1, 8, 8, 1}},
    {"head_norm_rope 7, part rotated", build_head_norm_rope, {7, 5, 36, 10, 2}},
    {"head_norm_rope 70", build_head_norm_rope, {70, 3, 64, 64, 5}},
    {"attention 1", build_attention, {1, 1, 1, 8, 1}},
    {"attention 7", build_attention, {7, 6, 2, 20, 3}},
    {"attention 70", build_attention, {70, 3, 3, 33, 1}},
    {"attention 70, five sequences", build_attention, {70, 10, 2, 64, 5}},
    {"attention 4, each its sequence", build_attention, {4, 9, 3, 128, 4}},
    {"attention 160, six pages", build_attention, {160, 4, 2, 12, 1}},
    {"attention 1, bf16", build_attention, {1, 1, 1, 8, 1, 1}},
    {"attention 7, bf16", build_attention, {7, 6, 2, 20, 3, 1}},
    {"attention 70, bf16", build_attention, {70, 3, 3, 34, 1, 1}},
    {"attention 70, bf16, five sequences", build_attention, {70, 10, 2, 64, 5, 1}},
    {"attention 4, bf16, each its sequence", build_attention, {4, 9, 3, 128, 4, 1}},
    {"attention 33, bf16, 8 heads of one key", build_attention, {33, 8, 1, 96, 2, 1}},
    {"attention 5, bf16, 16 heads of 256", build_attention, {5, 16, 2, 256, 5, 1}},
    {"attention 160, window of 1", build_attention, {160, 4, 2, 12, 2, 0, 1, 0}},
    {"attention 160, window of 32", build_attention, {160, 4, 2, 12, 1, 0, 32, 0}},
    {"attention 160, bf16, window of 45", build_attention, {160, 4, 2, 12, 3, 1, 45, 0}},
    {"attention 70, window beyond", build_attention, {70, 3, 3, 33, 1, 0, 500, 0}},
    {"attention 70, sinks", build_attention, {70, 6, 2, 20, 5, 0, 0, 1}},
    {"attention 160, window of 70, sinks", build_attention, {160, 6, 3, 24, 2, 1, 70, 1}},
    {"attention 160, chunks of 40", build_attention, {160, 4, 2, 12, 2, 0, 40, 2}},
    {"attention 160, bf16, of 64, chunks of 64", build_attention, {160, 6, 3, 64, 1, 1, 64, 2}},
    {"attention 160, window of 20, its pages", build_attention, {160, 4, 2, 12, 5, 0, 20, 4}},
    {"attention 90, bf16, window of 70, sinks, its pages",
     build_attention,
     {90, 6, 3, 64, 3, 1, 70, 5}},
    {"attention 90, heads of 192", build_attention, {90, 4, 2, 192, 2}},
    {"attention 150, 8 heads of one key of 64", build_attention, {150, 8, 1, 64, 1}},
    {"attention 160, bf16, of 64, window of 70, sinks",
     build_attention,
     {160, 6, 3, 64, 2, 1, 70, 1}},
    {"attention 160, bf16, six pages", build_attention, {160, 4, 2, 12, 1, 1}},
    {"sigmoid_mul 1x3", build_sigmoid_mul, {1, 3}},
    {"sigmoid_mul 7x33", build_sigmoid_mul, {7, 33}},
    {"sigmoid_mul 70x517", build_sigmoid_mul, {70, 517}},
    {"conv1d_silu 1", build_conv1d_silu, {1, 5, 4, 1, 0}},
    {"conv1d_silu 7 in place", build_conv1d_silu, {7, 35, 4, 3, 1}},
    {"conv1d_silu 70", build_conv1d_silu, {70, 529, 4, 5, 0}},
    {"conv1d_silu width 2", build_conv1d_silu, {7, 257, 2, 2, 1}},
    {"conv1d_silu width 3", build_conv1d_silu, {4, 19, 3, 4, 0}},
    {"gated_delta 1", build_gated_delta, {1, 1, 1, 4, 4, 1}},
    {"gated_delta 7", build_gated_delta, {7, 3, 6, 20, 12, 3}},
    {"gated_delta 70", build_gated_delta, {70, 1, 3, 33, 19, 1}},
    {"gated_delta 70, four sequences", build_gated_delta, {70, 2, 4, 64, 48, 4}},
    {"gated_delta 5, each its sequence", build_gated_delta, {5, 2, 2, 128, 128, 5}},
    {"gated_delta 3, tiled, each its sequence", build_gated_delta, {3, 2, 4, 64, 128, 3, 1}},
    {"gated_delta 7, tiled", build_gated_delta, {7, 3, 6, 20, 12, 2, 1}},
    {"gated_delta 70, tiled", build_gated_delta, {70, 2, 6, 64, 32, 1, 1}},
    {"keyed delta 7", build_keyed_delta, {7, 3, 20, 12, 3}},
    {"keyed delta 70, four sequences", build_keyed_delta, {70, 2, 33, 48, 4}},
    {"keyed delta 5, each its sequence", build_keyed_delta, {5, 2, 128, 128, 5}},
    {"keyed delta 1", build_keyed_delta, {1, 1, 1, 1, 1}},
    {"keyed delta 29, heads of 128", build_keyed_delta, {29, 3, 128, 128, 2}},
    {"keyed delta 21, heads of 200", build_keyed_delta, {21, 1, 200, 37, 2}},
    {"add 1x1", build_add, {1, 1}},
    {"add 7x33", build_add, {7, 33}},
    {"add 70x517", build_add, {70, 517}},
    {"add 70x517, one row to all", build_add, {70, 517, 1}},
    {"add 1x1, normed", build_add, {1, 1, 0, 1}},
    {"add 33x517, normed", build_add, {33, 517, 0, 1}},
    {"add 3x9001, one row to all, normed", build_add, {3, 9001, 1, 1}},
    {"swiglu 1x3", build_swiglu, {1, 3, 0}},
    {"swiglu 7x33 in place", build_swiglu, {7, 33, 1}},
    {"swiglu 70x131", build_swiglu, {70, 131, 0}},
    {"softmax_top_k 1 of 1", build_softmax_top_k, {1, 1, 1, 0}},
    {"softmax_top_k 3 of 7", build_softmax_top_k, {7, 7, 3, 1}},
    {"softmax_top_k 8 of 129", build_softmax_top_k, {70, 129, 8, 1}},
    {"softmax_top_k 10 of 512", build_softmax_top_k, {7, 512, 10, 0}},
    {"softmax_top_k all 37", build_softmax_top_k, {7, 37, 37, 1}},
    {"softmax_top_k all 5", build_softmax_top_k, {70, 5, 5, 0}},
    {"route 3 of 12, 2 of 4 groups", build_grouped_route, {70, 12, 3, 4, 2, 1, 1}},
    {"route 8 of 256, 4 of 8 groups", build_grouped_route, {7, 256, 8, 8, 4, 1, 1}},
    {"route 8 of 384, one group", build_grouped_route, {33, 384, 8, 1, 1, 1, 1}},
    {"route 5 of 12, fewer are kept", build_grouped_route, {33, 12, 5, 6, 2, 1, 0}},
    {"route 1 of 6, groups of one", build_grouped_route, {7, 6, 1, 6, 2, 1, 1}},
    {"route 6 of 160, 3 of 8, greedy", build_grouped_route, {70, 160, 6, 8, 3, 0, 0}},
    {"route 6 of 64, greedy", build_grouped_route, {7, 64, 6, 1, 1, 0, 0}},
    {"route 7 of 20, greedy, fewer are kept", build_grouped_route, {33, 20, 7, 5, 1, 0, 0}},
    {"route 4 of 64, all are found", build_finding_route, {33, 64, 4, 0}},
    {"route 2 of 7, one is missing", build_finding_route, {7, 7, 2, 1}},
    {"route 8 of 256, two are missing", build_finding_route, {70, 256, 8, 2}},
    {"route 1 of 129, one is missing", build_finding_route, {1, 129, 1, 1}},
    {"rope 1", build_rope, {1, 1, 8, 0, 1, 1}},
    {"rope 7, pairs", build_rope, {7, 5, 10, 13, 2, 1}},
    {"rope 70, pairs, five sequences", build_rope, {70, 3, 64, 128, 5, 1}},
    {"rope 7, halves", build_rope, {7, 5, 36, 3, 3, 0}},
    {"head_matmul 1", build_head_matmul, {1, 3, F32, 7, 19, 0, 0, 0}},
    {"head_matmul 7, values of kv_b", build_head_matmul, {7, 4, BF16, 12, 33, 0, 16, 0}},
    {"head_matmul 7, keys of kv_b", build_head_matmul, {7, 4, BF16, 16, 33, 1, 0, 12}},
    {"head_matmul 70, keys, q4", build_head_matmul, {70, 3, Q(4, 64, MF_BF16), 21, 128, 1, 3, 5}},
    {"head_matmul 1, keys, f16", build_head_matmul, {1, 19, F16, 40, 77, 1, 0, 0}},
    {"head_matmul 70, q8", build_head_matmul, {70, 5, Q(8, 32, MF_F16), 45, 64, 0, 0, 0}},
    {"head_matmul 3, values, q4", build_head_matmul, {3, 7, Q(4, 64, MF_BF16), 17, 192, 0, 9, 0}},
    {"latent_attention 1", build_latent_attention, {1, 1, 8, 2, 1, 0}},
    {"latent_attention 7", build_latent_attention, {7, 5, 33, 6, 3, 0}},
    {"latent_attention 70, 19 heads", build_latent_attention, {70, 19, 45, 10, 1, 0}},
    {"latent_attention 70, five sequences", build_latent_attention, {70, 6, 128, 32, 5, 0}},
    {"latent_attention 5, wide", build_latent_attention, {5, 21, 512, 64, 2, 0}},
    {"latent_attention 160, bf16, six pages", build_latent_attention, {160, 3, 24, 4, 1, 1}},
    {"latent_attention 7, bf16", build_latent_attention, {7, 5, 34, 6, 3, 1}},
    {"latent_attention 70, bf16", build_latent_attention, {70, 18, 64, 8, 4, 1}},
    {"latent_attention 1 of 1 chosen", op_build_chosen_attention, {1, 2, 8, 2, 1, 0, 1, 4}},
    {"latent_attention 70, 9 chosen", op_build_chosen_attention, {70, 5, 33, 6, 3, 0, 9, 13}},
    {"latent_attention 160, 70 chosen", op_build_chosen_attention, {160, 3, 24, 4, 2, 0, 70, 16}},
    {"latent_attention 70, bf16, 33 chosen",
     op_build_chosen_attention,
     {70, 9, 20, 4, 5, 1, 33, 18}},
    {"head_matmul 7, values, fp8", build_head_matmul, {7, 4, FP8, 50, 130, 0, 13, 0}},
    {"head_matmul 1, values, fp8", build_head_matmul, {1, 3, FP8, 128, 256, 0, 128, 0}},
    {"head_matmul 3, keys, fp8", build_head_matmul, {3, 5, FP8, 40, 200, 1, 0, 9}},
    {"experts f32, one", op_build_experts, {1, 1, 37, 29, F32, F32, 0}},
    {"experts bf16, five", op_build_experts, {5, 4, 45, 70, BF16, F16, 0}},
    {"experts q4", op_build_experts, {7, 7, 64, 96, Q(4, 64, MF_BF16), Q(4, 32, MF_BF16), 0}},
    {"experts q4 q8, many",
     op_build_experts,
     {70, 9, 64, 32, Q(4, 32, MF_F16), Q(8, 32, MF_F16), 1}},
    {"experts q2", op_build_experts, {33, 1, 128, 192, Q(2, 64, MF_BF16), Q(3, 64, MF_BF16), 1}},
    {"experts fp8", op_build_experts, {5, 4, 140, 200, FP8, FP8, 0}},
    {"experts q8_0 nvfp4", op_build_experts, {7, 4, 64, 96, Q8_0, NVFP4, 0}},
    {"experts q8_0 nvfp4, many", op_build_experts, {70, 9, 64, 32, NVFP4, Q8_0, 1}},
    {"experts fp8, many", op_build_experts, {70, 9, 64, 96, FP8, FP8, 1}},
    {"experts bf16, up f32", op_build_mixed_experts, {5, 4, 45, 70, BF16, F16, F32}},
    {"experts q4, up q8_0", op_build_mixed_experts, {33, 3, 64, 96, Q(4, 64, MF_BF16), F32, Q8_0}},
    {"experts nvfp4, up fp8", op_build_mixed_experts, {7, 9, 64, 96, NVFP4, Q8_0, FP8}},
    {"experts f32, biases", op_build_expert_steps, {4, 3, 37, 29, F32, F32, OP_BIASES}},
    {"experts bf16, clamped", op_build_expert_steps, {5, 4, 45, 70, BF16, F16, OP_CLAMPED}},
    {"experts q4, biases, clamped",
     op_build_expert_steps,
     {9, 7, 64, 96, Q(4, 64, MF_BF16), Q(4, 32, MF_BF16), OP_BIASES | OP_CLAMPED}},
    {"experts bf16, pairs", op_build_expert_steps, {5, 4, 45, 35, BF16, F16, OP_PAIRED}},
    {"experts q4, pairs, biases, clamped",
     op_build_expert_steps,
     {9, 7, 64, 288, Q(4, 64, MF_BF16), Q(4, 32, MF_BF16), OP_BIASES | OP_CLAMPED | OP_PAIRED}},
    {"routed bf16, biases", op_build_routed_steps, {3, 9, 4, 45, 70, BF16, F16, OP_BIASES}},
    {"routed q4, biases, clamped",
     op_build_routed_steps,
     {2, 8, 8, 64, 96, Q(4, 64, MF_BF16), Q(4, 32, MF_BF16), OP_BIASES | OP_CLAMPED}},
    {"routed q4, pairs, biases, clamped",
     op_build_routed_steps,
     {5, 8, 4, 64, 96, Q(4, 64, MF_BF16), Q(4, 32, MF_BF16), OP_BIASES | OP_CLAMPED | OP_PAIRED}},
    {"routed f32, one", op_build_routed, {1, 1, 1, 37, 29, F32, F32, 0}},
    {"routed bf16 f16", op_build_routed, {1, 9, 4, 45, 70, BF16, F16, 0}},
    {"routed q4", op_build_routed, {1, 8, 8, 64, 96, Q(4, 64, MF_BF16), Q(4, 32, MF_BF16), 0}},
    {"routed q4 q8, many",
     op_build_routed,
     {33, 5, 3, 64, 32, Q(4, 32, MF_F16), Q(8, 32, MF_F16), 0}},
    {"routed q2 q3", op_build_routed, {8, 5, 2, 128, 192, Q(2, 64, MF_BF16), Q(3, 64, MF_BF16), 0}},
    {"routed q4, of some rows one",
     op_build_routed,
     {9, 14, 3, 64, 96, Q(4, 64, MF_BF16), Q(4, 32, MF_F16), 0}},
    {"routed bf16, all of 256", op_build_routed, {64, 7, 4, 32, 24, BF16, BF16, 0}},
    {"routed fp8", op_build_routed, {3, 6, 4, 140, 200, FP8, FP8, 0}},
    {"routed fp8, scales apart", op_build_routed, {5, 6, 4, 140, 200, FP8, FP8, 1}},
    {"routed q8_0 nvfp4", op_build_routed, {7, 7, 4, 64, 96, Q8_0, NVFP4, 0}},
    {"routed q4, up q8_0", op_build_mixed_routed, {1, 8, 8, 64, 96, Q(4, 64, MF_BF16), BF16, Q8_0}},
    {"routed fp8, up nvfp4, scales apart",
     op_build_mixed_routed,
     {9, 5, 3, 64, 128, FP8, NVFP4, NVFP4}},
    {"routed nvfp4, scales apart", op_build_routed, {9, 4, 2, 96, 64, NVFP4, NVFP4, 1}},
    {"combine 1x3 of 1", op_build_combine, {1, 3, 1}},
    {"combine 7x77 of 3", op_build_combine, {7, 77, 3}},
    {"combine 70x133 of 8", op_build_combine, {70, 133, 8}},
    {"combine 7x77 of 3, no gate", op_build_combine, {7, 77, 3, 1}},
    {"combine 70x133 of 6, no shared", op_build_combine, {70, 133, 6, 2}},
    {"combine 7x77 of 3, by pick", op_build_combine, {7, 77, 3, 0, 1}},
    {"combine 7x517 of 3, normed", op_build_combine, {7, 517, 3, 0, 1, 1}},
    {"combine 33x77 of 2, no shared, normed", op_build_combine, {33, 77, 2, 2, 0, 1}},
    {"combine 1x9001 of 3, normed", op_build_combine, {1, 9001, 3, 1, 0, 1}},
    {"streams_in 1 of 1", op_build_streams_in, {1, 1, 5, 1, 0, 0}},
    {"streams_in 7 of 4, normed", op_build_streams_in, {7, 4, 37, 20, 0, 1}},
    {"streams_in 70 of 3", op_build_streams_in, {70, 3, 130, 5, 0, 0}},
    {"streams_in 7 of 8, the last", op_build_streams_in, {7, 8, 33, 0, 1, 0}},
    {"streams_in 33 of 4, the last, normed", op_build_streams_in, {33, 4, 517, 0, 1, 1}},
    {"streams_out 1 of 1", op_build_streams_out, {1, 1, 3, 0}},
    {"streams_out 7 of 4, the mean in place", op_build_streams_out, {7, 4, 67, 1}},
    {"streams_out 70 of 3", op_build_streams_out, {70, 3, 129, 0}},
    {"streams_out 7 of 8", op_build_streams_out, {7, 8, 64, 0}},
    {"compress 70 by 4, two series", op_build_compress, {70, 20, 2, 4, 6, 3}},
    {"compress 7 by 4", op_build_compress, {7, 33, 1, 4, 8, 2}},
    {"compress 160 by 32", op_build_compress, {160, 12, 1, 32, 12, 2}},
    {"compress 160 by 64, two series", op_build_compress, {160, 10, 2, 64, 4, 1}},
    {"compress 5 by 1, each its sequence", op_build_compress, {5, 9, 2, 1, 2, 5}},
    {"entry_attention 1", op_build_entry_attention, {1, 1, 8, 4, 4, 1, 0, 0}},
    {"entry_attention 7, no entries", op_build_entry_attention, {7, 5, 20, 9, 0, 3, 0, 0}},
    {"entry_attention 70 by 4", op_build_entry_attention, {70, 6, 33, 20, 4, 3, 0, 0}},
    {"entry_attention 70 by 4, bf16", op_build_entry_attention, {70, 3, 34, 20, 4, 2, 1, 0}},
    {"entry_attention 70 by 4, 5 chosen", op_build_entry_attention, {70, 5, 24, 16, 4, 4, 0, 5}},
    {"entry_attention 70 by 2, bf16, 9 chosen",
     op_build_entry_attention,
     {70, 4, 20, 7, 2, 1, 1, 9}},
    {"entry_attention 160 by 64", op_build_entry_attention, {160, 17, 12, 40, 64, 2, 0, 0}},
    {"entry_attention 5, each its sequence", op_build_entry_attention, {5, 19, 64, 33, 4, 5, 0, 0}},
};
const size_t n_op_cases = sizeof op_cases / sizeof op_cases[0];

static void build_operands(const op_case *c, scene *s, mf_buffer buffer, uint32_t skew)
{
    scene_reset(s, buffer, skew, (uint64_t)(c - op_cases) + 1);
    c->build(s, c->p);
}

void op_case_build(const op_case *c, scene *s, mf_buffer buffer, uint32_t skew)
{
    build_operands(c, s, buffer, skew);
    scene_reference(s);
}

void op_case_build_again(const op_case *c, scene *s, mf_buffer buffer, uint32_t skew,
                         scene_wants *wants)
{
    wants += c - op_cases;
    if (wants->values != NULL) {
        build_operands(c, s, buffer, skew);
        scene_take_wants(s, wants);
    } else {
        op_case_build(c, s, buffer, skew);
        scene_keep_wants(s, wants);
    }
}
