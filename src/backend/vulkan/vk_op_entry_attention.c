/* SPDX-License-Identifier: MIT */
/*
 * Attention to entries and a window (DeepSeek-V4). What a row attends to is gathered side by side
 * (vk_seen.c), the row's own key last; a head's sink is its tile's as well.
 */
#include "backend/vulkan/vk_attention.h"

static mf_vk_attention of_entry_attention(const mf_vk_backend *be, const mf_op *op)
{
    const mf_entry_attention_params *p = &op->u.entry_attention;
    return (mf_vk_attention){.op = op,
                             .q = p->q,
                             .q_rot = p->sinks,
                             .out = p->out,
                             .n_heads = p->n_heads,
                             .n_kv_heads = 1,
                             .key_dim = p->dim,
                             .value_dim = p->dim,
                             .width = p->dim,
                             .cache_type = p->cache_type,
                             .scale = p->scale,
                             .is_software =
                                 be->device.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU,
                             .is_gathered = true,
                             .ahead = be->tuning.attention_ahead};
}

static mf_vk_seen of_entries(const mf_vk_backend *be, const mf_op *op)
{
    const mf_entry_attention_params *p = &op->u.entry_attention;
    const uint64_t n_rows = mf_entry_rows(p->window, p->n_entries, p->index.n_most);
    return (mf_vk_seen){.attend = of_entry_attention(be, op),
                        .index = p->index,
                        .to = p->gathered,
                        .page_offset = p->page_offset,
                        .entry_offset = p->entry_offset,
                        .window = p->window,
                        .rate = p->rate,
                        .n_at_once = p->n_at_once,
                        .n_pages = (uint32_t)(n_rows / MF_PAGE_TOKENS),
                        .n_room = p->n_entries};
}

static bool entry_supports(const mf_vk_backend *be, const mf_op *op)
{
    const mf_vk_seen s = of_entries(be, op);
    return mf_vk_seen_supports(be, &s);
}

static mf_status entry_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error)
{
    const mf_vk_seen s = of_entries(be, op);
    return mf_vk_seen_reserve(be, &s, error);
}

static void entry_record(mf_vk_backend *be, const mf_op *op)
{
    const mf_entry_attention_params *p = &op->u.entry_attention;
    const mf_vk_seen s = of_entries(be, op);
    mf_vk_attention own = s.attend; /* what is appended: one array, into the window's pages */
    own.fresh[0] = p->kv;
    own.page_offset[0] = p->page_offset;
    own.is_in_window_pages = true;
    mf_vk_attention_append(be, &own);
    mf_vk_seen_record(be, &s);
}

const mf_vk_op mf_vk_op_entry_attention = {entry_supports, entry_reserve, entry_record};
