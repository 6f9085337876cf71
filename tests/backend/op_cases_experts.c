/* SPDX-License-Identifier: MIT */
/* Scenes of experts: listed and routed ones, their steps, and how their rows are combined. */
#include "op_cases.h"

#include <string.h>

#define DISTINCT 3u /* experts with weights of their own; more items share them */

/* Items with 1 .. most rows each; their outputs lie in another order than they are listed. */
static uint32_t build_items(scene *s, uint32_t n_items, uint32_t most, uint32_t n_x)
{
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < n_items; i++) {
        uint32_t j = n_items - 1 - i;
        s->items[j] = s->items[j % DISTINCT];
        s->items[j].n_rows = i % 3 == 0 ? 1 : 1 + scene_random(s, most);
        s->items[j].out_row = n_rows;
        s->items[j].x_rows = s->list + n_rows;
        for (uint32_t r = 0; r < s->items[j].n_rows; r++)
            s->list[n_rows++] = scene_random(s, n_x);
    }
    return n_rows;
}

/* p: items, rows of an item at most, columns, hidden, kind of gate and up, kind of down, reserve
 * for the largest item alone */
void op_build_experts(scene *s, const uint32_t *p)
{
    uint32_t n_x = 9;
    s->op = (mf_op){.kind = MF_OP_EXPERTS};
    s->op.u.experts.x = scene_input(s, (size_t)n_x * p[2], 2.0f);
    for (uint32_t i = 0; i < DISTINCT; i++) {
        s->items[i] = (mf_expert_item){.gate = scene_weight(s, p[4], p[3], p[2]),
                                       .up = scene_weight(s, p[4], p[3], p[2]),
                                       .down = scene_weight(s, p[5], p[2], p[3])};
    }
    s->op.n_rows = build_items(s, p[0], p[1], n_x);
    s->reserve_rows = p[6] != 0 ? p[1] : 0;
    s->op.u.experts.items = s->items;
    s->op.u.experts.n_items = p[0];
    size_t n_act = (size_t)s->op.n_rows * 2 * p[3];
    s->op.u.experts.act = scene_output(s, n_act);
    scene_scratch(s, s->op.u.experts.act, n_act);
    s->op.u.experts.out = scene_output(s, (size_t)s->op.n_rows * p[2]);
}

/* p: as op_build_experts, but the kind of up at last */
void op_build_mixed_experts(scene *s, const uint32_t *p)
{
    const uint32_t of_one_kind[] = {p[0], p[1], p[2], p[3], p[4], p[5], 0};
    op_build_experts(s, of_one_kind);
    for (uint32_t i = 0; i < DISTINCT; i++)
        s->items[i].up = scene_weight(s, p[6], p[3], p[2]);
    for (uint32_t i = 0; i < p[0]; i++)
        s->items[i].up = s->items[i % DISTINCT].up;
}

/* n different numbers below `most`, in any order, into s->list. */
static void build_numbers(scene *s, uint32_t most)
{
    for (uint32_t i = 0; i < most; i++)
        s->list[i] = i;
    for (uint32_t i = most; i > 1; i--) {
        uint32_t j = scene_random(s, i), swap = s->list[j];
        s->list[j] = s->list[i - 1];
        s->list[i - 1] = swap;
    }
}

enum { SLOTS_SCALES_APART = 1, SLOTS_PAIRED = 2 };

/* The arrays of each at the same places; one slot more than experts. up is of p[5]'s kind, or of
 * another that is not 0. */
static void build_slots(scene *s, mf_routed_experts_params *r, const uint32_t *p, uint32_t up_kind)
{
    const uint32_t kind = up_kind != 0 ? up_kind : p[5];
    const size_t from = s->n_bytes;
    r->n_slots = r->n_experts + 1;
    for (uint32_t i = 0; i < r->n_slots; i++) {
        const bool is_paired = p[7] == SLOTS_PAIRED;
        const mf_weight gate = scene_weight(s, p[5], (is_paired ? 2 : 1) * p[4], p[3]);
        const mf_weight up = is_paired ? (mf_weight){0} : scene_weight(s, kind, p[4], p[3]);
        const mf_weight down = scene_weight(s, p[6], p[3], p[4]);
        r->gate = i == 0 ? gate : r->gate;
        r->up = i == 0 ? up : r->up;
        r->down = i == 0 ? down : r->down;
    }
    r->slots = (mf_span){s->buffer, from};
    r->slot_bytes = (s->n_bytes - from) / ((size_t)r->n_experts + 1);
    r->slot = scene_input(s, r->n_experts, 0.0f);
    build_numbers(s, r->n_slots);
    memcpy(scene_at(s, r->slot), s->list, r->n_experts * sizeof *s->list);
}

static void build_resident_scales(scene *s, mf_weight *w, uint32_t n_experts)
{
    for (uint32_t i = 0; i < mf_weight_format_of(&w->shape)->n_arrays; i++)
        if (mf_weight_format_of(&w->shape)->arrays[i].is_float32)
            w->arrays[i] =
                scene_input(s, n_experts * (mf_weight_array_bytes(&w->shape, i) / 4), 0.5f);
}

static void build_routed(scene *s, const uint32_t *p, uint32_t up_kind)
{
    s->op = (mf_op){.kind = MF_OP_ROUTED_EXPERTS, .n_rows = p[0]};
    mf_routed_experts_params *r = &s->op.u.routed;
    r->n_experts = p[1];
    r->k = p[2];
    r->x = scene_input(s, (size_t)p[0] * p[3], 2.0f);
    build_slots(s, r, p, up_kind);
    r->has_resident_scales = p[7] == SLOTS_SCALES_APART;
    if (r->has_resident_scales) {
        build_resident_scales(s, &r->gate, p[1]);
        build_resident_scales(s, &r->up, p[1]);
        build_resident_scales(s, &r->down, p[1]);
    }
    r->ids = scene_input(s, p[0] * p[2], 0.0f);
    for (uint32_t row = 0; row < p[0]; row++) {
        build_numbers(s, p[1]);
        memcpy((uint32_t *)scene_at(s, r->ids) + row * p[2], s->list, p[2] * sizeof *s->list);
    }
    const size_t n_picks = (size_t)p[0] * p[2];
    r->act = scene_output(s, n_picks * 2 * p[4]);
    scene_scratch(s, r->act, n_picks * 2 * p[4]);
    r->out = scene_output(s, n_picks * p[3]);
}

/* p: rows, experts, k, columns, hidden, kind of gate and up, kind of down, resident scales or pairs
 */
void op_build_routed(scene *s, const uint32_t *p)
{
    build_routed(s, p, 0);
}

/* p: as op_build_routed, but the kind of up at last; scales that may be are resident */
void op_build_mixed_routed(scene *s, const uint32_t *p)
{
    const uint32_t with_scales[] = {p[0], p[1], p[2], p[3], p[4], p[5], p[6], SLOTS_SCALES_APART};
    build_routed(s, with_scales, p[7]);
}

/* Of experts with these columns and this hidden size. */
static mf_expert_steps build_steps(scene *s, uint32_t flags, uint32_t n_experts,
                                   const uint32_t *sizes)
{
    const uint32_t n_cols = sizes[0], hidden = sizes[1];
    mf_expert_steps steps = {.is_paired = (flags & OP_PAIRED) != 0,
                             .is_clamped = (flags & OP_CLAMPED) != 0,
                             .limit = 1.25f,
                             .alpha = 1.7f};
    if ((flags & OP_BIASES) == 0)
        return steps;
    steps.gate_bias = scene_input(s, (size_t)n_experts * hidden * (steps.is_paired ? 2 : 1), 1.0f);
    if (!steps.is_paired)
        steps.up_bias = scene_input(s, (size_t)n_experts * hidden, 1.0f);
    steps.down_bias = scene_input(s, (size_t)n_experts * n_cols, 1.0f);
    return steps;
}

/* p: items, rows of an item at most, columns, hidden, kind of gate and up, kind of down, flags */
void op_build_expert_steps(scene *s, const uint32_t *p)
{
    const uint32_t without_flags[] = {p[0], p[1], p[2], p[3], p[4], p[5], 0};
    op_build_experts(s, without_flags);
    mf_experts_params *e = &s->op.u.experts;
    e->steps = build_steps(s, p[6], p[0] + 2, p + 2);
    if (e->steps.is_paired)
        for (uint32_t i = 0; i < DISTINCT; i++) {
            s->items[i].gate = scene_weight(s, p[4], 2 * p[3], p[2]);
            s->items[i].up = (mf_weight){0};
        }
    for (uint32_t i = 0; i < p[0]; i++) { /* items share weights, not biases */
        s->items[i].gate = s->items[i % DISTINCT].gate;
        s->items[i].up = s->items[i % DISTINCT].up;
        s->items[i].expert = p[0] + 1 - i;
    }
}

/* p: as op_build_routed, but flags at last */
void op_build_routed_steps(scene *s, const uint32_t *p)
{
    const uint32_t without_flags[] = {p[0], p[1], p[2], p[3],
                                      p[4], p[5], p[6], (p[7] & OP_PAIRED) != 0 ? SLOTS_PAIRED : 0};
    op_build_routed(s, without_flags);
    s->op.u.routed.steps = build_steps(s, p[7], p[1], p + 3);
}

/* p: rows, columns, k, 1 without a gate or 2 without a shared expert, in the order of picks,
 * with a norm */
void op_build_combine(scene *s, const uint32_t *p)
{
    uint32_t n_places = p[0] * p[2];
    s->op = (mf_op){.kind = MF_OP_COMBINE, .n_rows = p[0]};
    s->op.u.combine.x = scene_input(s, (size_t)p[0] * p[1], 4.0f);
    s->op.u.combine.weights = scene_input(s, n_places, 1.0f);
    s->op.u.combine.experts = scene_input(s, (size_t)n_places * p[1], 4.0f);
    s->op.u.combine.shared = scene_input(s, (size_t)p[0] * p[1], 4.0f);
    scene_scratch(s, s->op.u.combine.shared, (size_t)p[0] * p[1]);
    s->op.u.combine.shared_gate = scene_input(s, p[0], 6.0f);
    if (p[3] != 0)
        s->op.u.combine.shared_gate.buffer.id = 0;
    if (p[3] == 2)
        s->op.u.combine.shared.buffer.id = 0;
    build_numbers(s, n_places);
    s->op.u.combine.place = p[4] != 0 ? NULL : s->list;
    s->op.u.combine.n_cols = p[1];
    s->op.u.combine.k = p[2];
    if (p[5] != 0)
        s->op.u.combine.norm = op_build_norm_after(s, p[0], p[1]);
}
