/* SPDX-License-Identifier: MIT */
/* What operations cost at least: multiply-adds, and bytes of what sequences keep. */
#include "forward/forward.h"

#include "base/cache_rows.h"

static uint64_t elements(const mf_weight *w)
{
    return (uint64_t)w->shape.n_rows * w->shape.n_cols;
}

/* The positions that the operation's rows see, row by row and once for each sequence. */
typedef struct seen {
    uint64_t by_rows, once;
} seen;

static seen positions_seen(const mf_runner *r, const mf_op *op, uint32_t window, bool is_chunk,
                           uint32_t most)
{
    seen s = {0};
    for (uint32_t i = 0; i < r->n_at_hand; i++) {
        const mf_sequence *seq = &r->at_hand[i];
        const uint32_t op_end = op->first_row + op->n_rows, end = seq->first_row + seq->n_rows;
        uint32_t row = seq->first_row > op->first_row ? seq->first_row : op->first_row;
        uint64_t first = UINT64_MAX, last = 0;
        for (; row < end && row < op_end; row++) {
            const uint64_t n = seq->position + row - seq->first_row + 1;
            uint64_t from = window != 0 && n > window ? n - window : 0;
            if (window != 0 && is_chunk)
                from = (n - 1) / window * window;
            s.by_rows += most != 0 && n - from > most ? most : n - from;
            first = from < first ? from : first;
            last = n;
        }
        s.once += last > first ? last - first : 0;
    }
    return s;
}

static void count_attention(mf_runner *r, const mf_op *op)
{
    const mf_attention_params *p = &op->u.attention;
    const seen s = positions_seen(r, op, p->window, p->window_is_chunk, 0);
    r->n_multiply_adds += 2 * s.by_rows * p->n_heads * p->head_dim;
    r->state_bytes_touched +=
        2 * s.once * mf_cache_row_bytes(p->cache_type, p->n_kv_heads, p->head_dim);
}

static void count_latent(mf_runner *r, const mf_op *op)
{
    const mf_latent_attention_params *p = &op->u.latent_attention;
    const seen s = positions_seen(r, op, 0, false, p->index.n_most);
    r->n_multiply_adds += s.by_rows * p->n_heads * (2 * (uint64_t)p->n_latent + p->n_rot);
    r->state_bytes_touched +=
        s.once * mf_cache_row_bytes(p->cache_type, 1, (uint64_t)p->n_latent + p->n_rot);
}

/* The entries of runs of rate positions that the operation's rows may see, the last `most` at most.
 */
static seen entries_seen(const mf_runner *r, const mf_op *op, uint32_t rate, uint32_t most)
{
    seen s = {0};
    for (uint32_t i = 0; i < r->n_at_hand && rate != 0; i++) {
        const mf_sequence *seq = &r->at_hand[i];
        const uint32_t op_end = op->first_row + op->n_rows, end = seq->first_row + seq->n_rows;
        uint32_t row = seq->first_row > op->first_row ? seq->first_row : op->first_row;
        uint64_t last = 0;
        for (; row < end && row < op_end; row++) {
            const uint64_t n = (seq->position + row - seq->first_row + 1) / rate;
            s.by_rows += most != 0 && n > most ? most : n;
            last = n;
        }
        s.once += last;
    }
    return s;
}

/* Where an index chooses among the entries, it looks at all of them. */
static void count_entries(mf_runner *r, const mf_op *op)
{
    const mf_entry_attention_params *p = &op->u.entry_attention;
    const seen near = positions_seen(r, op, p->window, false, 0);
    const seen far = entries_seen(r, op, p->rate, p->index.n_most);
    r->n_multiply_adds += 2 * (near.by_rows + far.by_rows) * p->n_heads * p->dim;
    r->state_bytes_touched += (near.once + far.once) * mf_cache_row_bytes(p->cache_type, 1, p->dim);
    if (p->index.n_most == 0)
        return;
    const seen all = entries_seen(r, op, p->rate, 0);
    r->n_multiply_adds += all.by_rows * p->index.n_heads * p->index.dim;
    r->state_bytes_touched += all.once * mf_cache_row_bytes(p->index.cache_type, 1, p->index.dim);
}

/* Read and written once for each sequence; where states are kept row by row, for each row. */
static void count_delta(mf_runner *r, const mf_op *op)
{
    const mf_gated_delta_params *p = &op->u.gated_delta;
    const uint64_t n = (uint64_t)p->n_v_heads * p->key_dim * p->value_dim;
    r->n_multiply_adds += 3 * n * op->n_rows;
    r->state_bytes_touched += 2 * n * sizeof(float) * (r->batch != NULL ? 1 : r->n_at_hand);
}

static void count_experts(mf_runner *r, const mf_op *op)
{
    for (uint32_t i = 0; i < op->u.experts.n_items; i++) {
        const mf_expert_item *item = &op->u.experts.items[i];
        r->n_multiply_adds +=
            item->n_rows * (elements(&item->gate) + elements(&item->up) + elements(&item->down));
    }
}

void mf_count_op(mf_runner *r, const mf_op *op)
{
    switch (op->kind) {
    case MF_OP_MATMUL:
        for (uint32_t j = 0; j < op->u.matmul.n; j++)
            r->n_multiply_adds += op->n_rows * elements(&op->u.matmul.weight[j]);
        break;
    case MF_OP_HEAD_MATMUL:
        r->n_multiply_adds += (uint64_t)op->n_rows * op->u.head_matmul.n_heads *
                              op->u.head_matmul.w.n_rows * op->u.head_matmul.w.weight.shape.n_cols;
        break;
    case MF_OP_EXPERTS:
        count_experts(r, op);
        break;
    case MF_OP_ROUTED_EXPERTS:
        r->n_multiply_adds += (uint64_t)op->n_rows * op->u.routed.k *
                              (elements(&op->u.routed.gate) + elements(&op->u.routed.up) +
                               elements(&op->u.routed.down));
        break;
    case MF_OP_ATTENTION:
        count_attention(r, op);
        break;
    case MF_OP_LATENT_ATTENTION:
        count_latent(r, op);
        break;
    case MF_OP_ENTRY_ATTENTION:
        count_entries(r, op);
        break;
    case MF_OP_GATED_DELTA:
        count_delta(r, op);
        break;
    case MF_OP_MIXTURE:
        mf_count_op(r, op->u.mixture.router);
        mf_count_op(r, op->u.mixture.shared_in);
        mf_count_op(r, op->u.mixture.shared_out);
        mf_count_op(r, op->u.mixture.experts);
        break;
    case MF_OP_LINEAR_ROW:
        mf_count_op(r, op->u.linear_row.in);
        mf_count_op(r, op->u.linear_row.rule);
        mf_count_op(r, op->u.linear_row.out);
        break;
    case MF_OP_ATTEND_ROW:
        mf_count_op(r, op->u.attend_row.in);
        mf_count_op(r, op->u.attend_row.attend);
        mf_count_op(r, op->u.attend_row.out);
        break;
    case MF_OP_LATENT_ROW:
        mf_count_op(r, op->u.latent_row.attend);
        break;
    default: /* next to nothing */
        break;
    }
}
