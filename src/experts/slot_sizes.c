/* SPDX-License-Identifier: MIT */
/* Which sizes there are, and in which order slots have them. */
#include "experts/slot_sizes.h"

#include "base/checked.h"
#include "experts/expert_plan.h"

/* A size for itself saves at least so much of the next larger one, and more than experts of equal
 * bytes may differ by where their reads begin. */
#define PART_SAVED 64

/* What the expert takes in a slot; 0: too much. */
static uint64_t bytes_in_slot(const mf_expert_map *map, uint32_t layer, uint32_t expert,
                              bool anywhere)
{
    uint32_t part_at[MF_MAX_EXPERT_PARTS];
    mf_expert_plan plan;
    if (!mf_expert_plan_make(map, layer, expert, &plan))
        return 0;
    if (!anywhere && !mf_expert_is_made(map, layer))
        return plan.n_bytes;
    const uint64_t laid = mf_expert_lay_parts(map, layer, expert, part_at);
    if (laid == UINT64_MAX)
        return 0;
    return laid > plan.n_bytes ? mf_round_up(laid, MF_IO_ALIGN) : plan.n_bytes;
}

bool mf_slot_forms_of(const mf_expert_map *map, uint32_t layer, bool anywhere, mf_slot_forms *out)
{
    *out = (mf_slot_forms){0};
    for (uint32_t expert = 0; expert < map->n_experts; expert++) {
        const uint64_t bytes = bytes_in_slot(map, layer, expert, anywhere);
        const uint32_t form = mf_expert_map_form(map, layer, expert);
        if (bytes == 0)
            return false;
        out->n_experts[form]++;
        out->bytes[form] = bytes > out->bytes[form] ? bytes : out->bytes[form];
    }
    return true;
}

uint64_t mf_slot_layer_bytes(const mf_expert_map *map, uint32_t layer, bool anywhere)
{
    mf_slot_forms forms;
    uint64_t most = 0;
    if (!mf_slot_forms_of(map, layer, anywhere, &forms))
        return 0;
    for (uint32_t form = 0; form < MF_MAP_FORMS; form++)
        most = forms.bytes[form] > most ? forms.bytes[form] : most;
    return most;
}

/* One size more, in its place; there is room for it. */
static void add_size(mf_slot_sizes *s, uint64_t bytes, uint64_t n_experts, uint64_t n_hot)
{
    uint32_t at = 0;
    while (at < s->n && s->bytes[at] > bytes)
        at++;
    if (at < s->n && s->bytes[at] == bytes) {
        s->n_experts[at] += n_experts;
        s->n_hot[at] += n_hot;
        return;
    }
    for (uint32_t i = s->n++; i > at; i--) {
        s->bytes[i] = s->bytes[i - 1];
        s->n_experts[i] = s->n_experts[i - 1];
        s->n_hot[i] = s->n_hot[i - 1];
    }
    s->bytes[at] = bytes;
    s->n_experts[at] = n_experts;
    s->n_hot[at] = n_hot;
}

static bool has_size(const mf_slot_sizes *s, uint64_t bytes)
{
    uint32_t i = 0;
    while (i < s->n && s->bytes[i] != bytes)
        i++;
    return i < s->n;
}

/* Experts of a size have slots of the next larger one. */
static void join_size(mf_slot_sizes *s, uint32_t i)
{
    s->n_experts[i - 1] += s->n_experts[i];
    s->n_hot[i - 1] += s->n_hot[i];
    s->n--;
    for (; i < s->n; i++) {
        s->bytes[i] = s->bytes[i + 1];
        s->n_experts[i] = s->n_experts[i + 1];
        s->n_hot[i] = s->n_hot[i + 1];
    }
}

/* The size whose experts waste the least in slots of the next larger one. */
static uint32_t least_wasted(const mf_slot_sizes *s)
{
    uint32_t best = 1;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 1; i < s->n; i++) {
        const uint64_t wasted = (s->bytes[i - 1] - s->bytes[i]) * s->n_experts[i];
        if (wasted < least) {
            least = wasted;
            best = i;
        }
    }
    return best;
}

/* What alignment may add to an expert: a block for each of its reads. */
static uint64_t alignment_of(const mf_expert_map *map)
{
    uint32_t n_most = 0;
    for (uint32_t layer = 0; layer < map->n_layers; layer++) {
        mf_expert_plan plan;
        if (mf_expert_plan_make(map, layer, 0, &plan) && plan.n_extents > n_most)
            n_most = plan.n_extents;
    }
    return (uint64_t)n_most * MF_IO_ALIGN;
}

/* False: mf_slot_forms_of is. */
static bool add_layer(const mf_expert_map *map, uint32_t layer, bool anywhere, mf_slot_sizes *s)
{
    mf_slot_forms forms;
    uint64_t least = UINT64_MAX;
    if (!mf_slot_forms_of(map, layer, anywhere, &forms))
        return false;
    for (uint32_t i = 0; i < MF_MAP_FORMS; i++)
        least = forms.n_experts[i] != 0 && forms.bytes[i] < least ? forms.bytes[i] : least;
    for (uint32_t i = 0; i < MF_MAP_FORMS; i++) {
        const uint64_t bytes = forms.bytes[i], n = forms.n_experts[i];
        if (n == 0)
            continue;
        if (s->n == MF_SLOT_SIZES && !has_size(s, bytes))
            join_size(s, least_wasted(s));
        add_size(s, bytes, n, bytes > least ? n : 0);
    }
    return true;
}

void mf_slot_sizes_of(const mf_expert_map *map, bool anywhere, uint32_t n_first, mf_slot_sizes *out)
{
    mf_slot_sizes s = {.n_first = n_first > 0 ? n_first : 1};
    *out = (mf_slot_sizes){.n_first = s.n_first};
    for (uint32_t layer = 0; layer < map->n_layers; layer++)
        if (!add_layer(map, layer, anywhere, &s))
            return;
    const uint64_t by_place = alignment_of(map);
    for (uint32_t i = 1; i < s.n;) {
        const uint64_t saved = s.bytes[i - 1] - s.bytes[i];
        if (saved <= by_place || saved < s.bytes[i - 1] / PART_SAVED)
            join_size(&s, i);
        else
            i++;
    }
    *out = s;
}

uint32_t mf_slot_sizes_find(const mf_slot_sizes *sizes, uint64_t n_bytes)
{
    uint32_t i = sizes->n;
    while (i > 1 && sizes->bytes[i - 1] < n_bytes)
        i--;
    return i == 0 ? 0 : i - 1;
}

static uint64_t share_of(const mf_slot_sizes *s, uint32_t size)
{
    return s->n_experts[size] + (MF_SLOT_HOT_WEIGHT - 1) * s->n_hot[size];
}

/* Whether the next slot is rather of size a than of size b. */
static bool comes_before(const mf_slot_order *order, uint32_t a, uint32_t b)
{
    const mf_slot_sizes *s = order->sizes;
    const bool has_all = order->n_of[a] >= s->n_experts[a];
    if (has_all != (order->n_of[b] >= s->n_experts[b]))
        return !has_all;
    return (order->n_of[a] + 1) * share_of(s, b) < (order->n_of[b] + 1) * share_of(s, a);
}

/* The j-th slot of a size has its turn at j / its share; of several at once the largest. */
uint32_t mf_slot_order_next(mf_slot_order *order)
{
    const mf_slot_sizes *s = order->sizes;
    uint32_t next = 0;
    for (uint32_t i = 1; i < s->n && order->n >= s->n_first; i++)
        next = comes_before(order, i, next) ? i : next;
    order->n++;
    order->n_of[next]++;
    return next;
}

uint64_t mf_slot_sizes_bytes(const mf_slot_sizes *sizes, uint64_t n_slots)
{
    mf_slot_order order = {.sizes = sizes};
    uint64_t n_bytes = 0;
    if (sizes->n <= 1)
        return mf_mul_u64(n_slots, sizes->bytes[0], &n_bytes) ? n_bytes : UINT64_MAX;
    for (uint64_t i = 0; i < n_slots; i++)
        if (!mf_add_u64(n_bytes, sizes->bytes[mf_slot_order_next(&order)], &n_bytes))
            return UINT64_MAX;
    return n_bytes;
}

uint64_t mf_slot_sizes_fit(const mf_slot_sizes *sizes, uint64_t n_bytes, uint64_t more_each,
                           uint64_t most)
{
    mf_slot_order order = {.sizes = sizes};
    uint64_t n = 0, each;
    if (sizes->n <= 1) {
        if (!mf_add_u64(sizes->bytes[0], more_each, &each))
            return 0;
        return each == 0 || n_bytes / each > most ? most : n_bytes / each;
    }
    while (n < most) {
        if (!mf_add_u64(sizes->bytes[mf_slot_order_next(&order)], more_each, &each) ||
            each > n_bytes)
            break;
        n_bytes -= each;
        n++;
    }
    return n;
}

uint64_t mf_slot_sizes_mean(const mf_slot_sizes *sizes)
{
    uint64_t n_bytes = 0, n = 0;
    for (uint32_t i = 0; i < sizes->n; i++) {
        n_bytes += sizes->bytes[i] * sizes->n_experts[i];
        n += sizes->n_experts[i];
    }
    return n == 0 ? 0 : (n_bytes + n - 1) / n;
}
