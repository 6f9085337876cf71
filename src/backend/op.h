/* SPDX-License-Identifier: MIT */
/*
 * Operations, and the operands that they name: memory by handle.
 *
 * Every operation takes n rows of activations: the tokens of a batch, which may belong to several
 * sequences (begin_batch). All activations are float32 unless named otherwise. Spans name bytes
 * inside a buffer. Which bytes an operation reads and writes: op_spans.h.
 */
#ifndef MF_BACKEND_OP_H
#define MF_BACKEND_OP_H

#include "base/weight_format.h"

#include <stdbool.h>
#include <stdint.h>

/* A buffer of the backend; id 0 is none. */
typedef struct mf_buffer {
    uint32_t id;
} mf_buffer;

/* What a buffer is for, and so where it lies. */
typedef enum mf_buffer_use {
    MF_USE_DEVICE = 0, /* operands, in the memory that is best for them; out of the host's reach */
    MF_USE_HOST,       /* operands in memory that the host reaches, direct reads from disk too */
    MF_USE_STAGING,    /* sources of uploads and destinations of reads: no operands, but for what
                        * MF_OP_FINITE writes */
    MF_USE_SHARED      /* small operands that the host writes while the device waits for them */
} mf_buffer_use;

typedef struct mf_span {
    mf_buffer buffer;
    uint64_t offset; /* bytes */
} mf_span;

static inline mf_span mf_span_at(mf_span span, uint64_t n_bytes)
{
    return (mf_span){span.buffer, span.offset + n_bytes};
}

/* A weight matrix in backend memory, of any format of base/weight_format.h: where its arrays are.
 */
typedef struct mf_weight {
    mf_weight_shape shape;
    union {
        mf_span arrays[MF_MAX_WEIGHT_ARRAYS];
        struct {
            mf_span data, scales, biases;
        };
    };
} mf_weight;

/* Caches grow by pages of this many positions: a whole tile of the attention's online softmax, so
 * that pages do not show in the results. */
#define MF_PAGE_TOKENS 32

/* Positions before an operation's window are not read, but for those up to the last multiple of so
 * many pages before it. */
#define MF_WINDOW_PAGES 2

static inline uint32_t mf_pages_of(uint64_t n_tokens)
{
    return (uint32_t)((n_tokens + MF_PAGE_TOKENS - 1) / MF_PAGE_TOKENS);
}

/* A run of rows of the batch that belongs to one sequence: rows first_row .. first_row + n_rows - 1
 * hold its tokens at positions position, position + 1, ... There are pages for all positions up to
 * the run's last, or none (NULL) where no layer caches positions; an operation's cache row of
 * position p is row p % MF_PAGE_TOKENS of what begins at the operation's page_offset in pages[p /
 * MF_PAGE_TOKENS], or in window_pages[...] where the operation says so; of these, entries that no
 * window of the run's rows reaches have no buffer (id 0). A recurrent operation reads the state
 * before the run at its state_offset in state[0] (buffer id 0: all zero) and writes the one after
 * it at the same place in state[1], which may be the same. */
typedef struct mf_sequence {
    uint32_t first_row, n_rows;
    uint64_t position;
    const mf_span *pages, *window_pages;
    mf_span state[2];
} mf_sequence;

typedef enum mf_op_kind {
    MF_OP_EMBED = 1,
    MF_OP_COPY_ROWS,
    MF_OP_RMSNORM,
    MF_OP_RMSNORM_GATED,
    MF_OP_MATMUL,
    MF_OP_HEAD_NORM_ROPE,
    MF_OP_ATTENTION,
    MF_OP_SIGMOID_MUL,
    MF_OP_CONV1D_SILU,
    MF_OP_GATED_DELTA,
    MF_OP_ADD,
    MF_OP_SWIGLU,
    MF_OP_ROUTE,
    MF_OP_EXPERTS,
    MF_OP_ROUTED_EXPERTS,
    MF_OP_COMBINE,
    MF_OP_ROPE,
    MF_OP_HEAD_MATMUL,
    MF_OP_LATENT_ATTENTION,
    MF_OP_COMPRESS,
    MF_OP_ENTRY_ATTENTION,
    MF_OP_STREAMS_IN,
    MF_OP_STREAMS_OUT,
    MF_OP_FINITE,
    MF_OP_MIXTURE,
    MF_OP_LINEAR_ROW,
    MF_OP_ATTEND_ROW,
    MF_OP_LATENT_ROW,
    MF_OP_TO_HOST,
    MF_OP_FROM_HOST
} mf_op_kind;

/* How a router's logits become scores. */
typedef enum mf_score {
    MF_SCORE_SOFTMAX = 0,
    MF_SCORE_SIGMOID = 1,
    MF_SCORE_SQRT_SOFTPLUS = 2
} mf_score;

/* How groups of experts are ranked, and what becomes of the experts outside of those kept. */
typedef enum mf_group_rule {
    MF_GROUP_MAX = 0, /* by its largest choice; the others' choices and scores become 0 */
    MF_GROUP_TOP2 = 1 /* by the sum of its two largest; the others' choices become -infinity */
} mf_group_rule;

#define MF_MAX_GROUPS 256

/* Of an expert that lies in none. */
#define MF_NO_SLOT UINT32_MAX

/* One matrix for every head, stored one under the other: head h's is the rows h * head_rows +
 * first_row .. + n_rows of weight, or, transposed, their transpose. */
typedef struct mf_head_weight {
    mf_weight weight;
    uint32_t head_rows, first_row, n_rows;
    bool transposed;
} mf_head_weight;

#define MF_MAX_MATMULS 4

/* out[r] = row tokens[r] of weight */
typedef struct mf_embed_params {
    mf_weight weight;
    const int32_t *tokens;
    mf_span out;
} mf_embed_params;

/* out[i] = x[rows[i]], i < n_rows, rows of n_cols floats */
typedef struct mf_copy_rows_params {
    mf_span x, out;
    const uint32_t *rows;
    uint32_t n_cols;
} mf_copy_rows_params;

/* out[r * mf_finite_blocks(n_cols) + i]: the highest of the i-th MF_FINITE_BLOCK columns of x's row
 * r, of which the last block may have fewer; 0x7FC00000, a NaN, where one of them is no finite
 * number. copy (buffer 0: none): gets x, by its bits. out and copy may lie in a staging buffer,
 * where the host finds them once a wait has said that this is done. */
#define MF_FINITE_BLOCK 1024
typedef struct mf_finite_params {
    mf_span x, out, copy;
    uint32_t n_cols;
} mf_finite_params;

static inline uint32_t mf_finite_blocks(uint32_t n_cols)
{
    return (n_cols + MF_FINITE_BLOCK - 1) / MF_FINITE_BLOCK;
}

/* out = rmsnorm(x) * weight over the first n_cols of rows that are `stride` floats apart
 * (0: n_cols); weight float32. out may be x. */
typedef struct mf_rmsnorm_params {
    mf_span x, weight, out;
    uint32_t n_cols, stride;
    float eps;
    bool is_centred; /* of x less its mean; out is x */
} mf_rmsnorm_params;

/* Per row n_heads heads of head_dim: x = rmsnorm(x) * weight * silu(z), in place; weight
 * float32 [head_dim] */
typedef struct mf_rmsnorm_gated_params {
    mf_span x, z, weight;
    uint32_t n_heads, head_dim;
    float eps;
} mf_rmsnorm_gated_params;

/* What products make of their input first; it is written nowhere. Devices may lack it. Operations
 * that have it are of one row, and products are reserved with the operands that they will have. */
typedef enum mf_input_kind {
    MF_INPUT_AS_IT_IS = 0,
    MF_INPUT_NORMED,      /* rmsnorm(x) * weight: MF_OP_RMSNORM */
    MF_INPUT_HEADS_GATED, /* per head of head_dim rmsnorm(x) * weight * silu(gate):
                             MF_OP_RMSNORM_GATED */
    MF_INPUT_SIGMOID      /* x * sigmoid(gate): MF_OP_SIGMOID_MUL */
} mf_input_kind;

typedef struct mf_input_step {
    mf_input_kind kind;
    mf_span weight, gate;
    uint32_t head_dim;
    float eps;
} mf_input_step;

/* What becomes of their results; likewise. */
typedef enum mf_output_kind {
    MF_OUTPUT_PUT = 0,
    MF_OUTPUT_ADDED,    /* y += the product */
    MF_OUTPUT_CONVOLVED /* y[0] = what MF_OP_CONV1D_SILU makes of it */
} mf_output_kind;

typedef struct mf_output_step {
    mf_output_kind kind;
    mf_span weight; /* of the convolution; width, state_offset as there */
    uint32_t width;
    uint64_t state_offset;
} mf_output_step;

/* y[j][r] = weight[j] x[r], j < n: products of the same input; of pairs y[j] = silu(weight[j] x) *
 * (weight[j + 1] x) for even j, and those of odd j are not written (one row, devices may lack it).
 */
typedef struct mf_matmul_params {
    mf_span x;
    uint32_t n;
    mf_weight weight[MF_MAX_MATMULS];
    mf_span y[MF_MAX_MATMULS];
    mf_input_step before;
    mf_output_step after;
    bool is_paired;
} mf_matmul_params;

/* Per row n_heads heads of head_dim, in place: rmsnorm with weight [head_dim], then
 * rotation of the first n_rot dims by the row's position; cos/sin: float32 [positions,
 * n_rot / 2]. */
typedef struct mf_head_norm_rope_params {
    mf_span x, weight, cos, sin;
    uint32_t n_heads, head_dim, n_rot;
    float eps;
} mf_head_norm_rope_params;

/* Appends k, v [rows, n_kv_heads * head_dim] to the sequences' caches of cache_type and attends
 * causally: out[r, h] = softmax(scale q[r, h] . K) V. Query head h uses key head h / (n_heads /
 * n_kv_heads). With a window only the last `window` positions up to the row's own are attended, or,
 * of a chunk, those from the last multiple of `window` on. A sink (float32 [n_heads]; none: id 0)
 * takes part in the softmax as one more score, without value.
 */
typedef struct mf_attention_params {
    mf_span q, k, v, out, sinks;
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t window; /* 0: all positions */
    bool window_is_chunk;
    bool is_in_window_pages;
    mf_dtype cache_type;
    uint64_t page_offset[2]; /* of keys, of values */
    float scale;
} mf_attention_params;

/* x *= sigmoid(gate), rows of n_cols */
typedef struct mf_sigmoid_mul_params {
    mf_span x, gate;
    uint32_t n_cols;
} mf_sigmoid_mul_params;

/* Depthwise causal convolution and SiLU: rows of n_channels; weight float32 [n_channels,
 * width]; state: the last width - 1 inputs, oldest first, [width - 1, n_channels]. out may
 * be x. */
typedef struct mf_conv1d_silu_params {
    mf_span x, weight, out;
    uint32_t n_channels, width;
    uint64_t state_offset;
} mf_conv1d_silu_params;

/* The gated delta rule (arXiv 2412.06464) with its gates. qkv rows: q [k_heads * key_dim],
 * k likewise, v [v_heads * value_dim]; q and k are l2-normalised per head (eps), q scaled
 * by key_dim^-1/2; decay = exp(-exp(a_log) softplus(a + dt_bias)); beta = sigmoid(b); a, b
 * rows of v_heads; a_log, dt_bias float32 [v_heads]. state: [v_heads, key_dim,
 * value_dim]. Value head h uses key head h / (v_heads / k_heads), or, tiled, h % k_heads. out rows:
 * [v_heads * value_dim]. qkv is overwritten. With key decays (Kimi Delta Attention, arXiv
 * 2510.26692) each row of a head's state has its own: a has rows of [v_heads * key_dim], as dt_bias
 * has, there are as many key heads as value heads, k and v have rows of their own beside qkv, which
 * is q, and a and b are overwritten too. */
typedef struct mf_gated_delta_params {
    mf_span qkv, a, b, a_log, dt_bias, out;
    mf_span k, v; /* with key decays */
    bool has_key_decays;
    uint32_t n_k_heads, n_v_heads, key_dim, value_dim;
    float eps;
    bool is_tiled;
    uint64_t state_offset;
} mf_gated_delta_params;

/* What an operation does with the rows x of n_cols floats that it leaves: out = rmsnorm(x) *
 * weight; weight float32, id 0: nothing. */
typedef struct mf_norm_after {
    mf_span weight, out;
    float eps;
} mf_norm_after;

/* x += y, rows of n_cols; y may be one row, which is added to each */
typedef struct mf_add_params {
    mf_span x, y;
    uint32_t n_cols;
    bool y_is_one_row;
    mf_norm_after norm;
} mf_add_params;

/* out = silu(gate) * up, rows of n_cols; out may be gate. With a limit (0: none) gate is first made
 * at most that, and up what lies between -limit and limit; gate and up are overwritten. */
typedef struct mf_swiglu_params {
    mf_span gate, up, out;
    uint32_t n_cols;
    float limit;
} mf_swiglu_params;

/* score = softmax or sigmoid of logits over n_experts, or the root of their softplus; choice =
 * score + bias (float32 [n_experts]; none: id 0). With n_groups > 1, experts e * n_experts /
 * n_groups ... form group e; only the k_groups best groups stay. The k experts of largest choice
 * are taken in falling order, the lower index first among equals, also among groups: ids int32
 * [rows, k]; weights [rows, k] are their scores, divided by their sum + eps if normalise, times
 * scale. logits is overwritten. With found (uint32 [2], both 0 at first; none: id 0) and slot
 * (uint32 [n_experts]): found[1] grows by the rows whose experts all have a slot, not MF_NO_SLOT;
 * once it is n_to_find, found[0] is 1. With a table (int32 [vocabulary, n_table]; none: id 0) a
 * row's token names its experts, the first k of the table's row tokens[row]: nothing is chosen. */
typedef struct mf_route_params {
    mf_span logits, bias, ids, weights, slot, found, table;
    const int32_t *tokens; /* with a table */
    uint32_t n_table;
    uint32_t n_experts, k, n_groups, k_groups;
    uint32_t n_to_find;
    mf_score score;
    mf_group_rule group_rule;
    bool normalise;
    float eps, scale;
} mf_route_params;

/* What an expert may have beside its products; all zero: nothing. */
typedef struct mf_expert_steps {
    /* Added to the products: float32 [n_experts, rows of the matrix]; none: id 0. */
    mf_span gate_bias, up_bias, down_bias;
    /* Row 2i of gate is row i of gate, row 2i + 1 row i of up, which is none (no rows, no kind);
     * so are the elements of gate_bias, and there is no up_bias. */
    bool is_paired;
    /* Not silu(gate) * up, but with g = min(gate, limit) and u = up between -limit and limit
     * g * sigmoid(alpha g) * (u + 1). */
    bool is_clamped;
    float limit, alpha;
    float silu_limit; /* not 0: silu(gate) * up as mf_swiglu_params has it with a limit */
} mf_expert_steps;

typedef struct mf_expert_item {
    mf_weight gate, up, down;
    const uint32_t *x_rows;
    uint32_t n_rows;
    uint32_t out_row;
    uint32_t expert; /* whose biases */
} mf_expert_item;

/* For each item: rows out_row .. out_row + n_rows - 1 of out = down (silu(gate x) * (up x))
 * for x rows x_rows[...]; and as the steps say. act is scratch for the same rows: 2 * hidden floats
 * each (hidden = down.n_cols). */
typedef struct mf_experts_params {
    mf_span x, act, out;
    mf_expert_steps steps;
    const mf_expert_item *items;
    uint32_t n_items;
} mf_experts_params;

/* What becomes of the results of one row's experts, instead of out, which is not written: as
 * mf_combine_params, without a norm; shared stays as it is. Devices may lack it. */
typedef struct mf_expert_sum {
    mf_span x, weights, shared, shared_gate;
} mf_expert_sum;

/* Experts by numbers that the host need not know: ids int32 [rows, k], as MF_OP_ROUTE leaves them.
 * Row r * k + j of out is what mf_experts_params says of expert ids[r, j] and row r of x; act as
 * there. Experts lie in slots of slot_bytes, from `slots` on: slot[e], uint32 [n_experts], is
 * expert e's, less than n_slots; slots of no expert that is named are not touched. gate, up and
 * down are those of an expert in slot 0; in any other they lie at the same places. With resident
 * scales, arrays of float32 that a format has are not there: they are those of expert 0, and those
 * of the others follow. */
typedef struct mf_routed_experts_params {
    mf_span x, ids, slot, act, out;
    mf_span slots;
    uint64_t slot_bytes;
    uint32_t n_slots, n_experts, k;
    bool has_resident_scales;
    mf_weight gate, up, down;
    mf_expert_steps steps;
    mf_input_step before; /* of x; one row */
    mf_expert_sum sum;    /* of x id 0: none */
} mf_routed_experts_params;

/* One row's mixture of experts: what these operations leave one after the other, in this order, to
 * x (of the sum), ids and weights; what else they would write is undefined then. router: a norm
 * times the router and, below it, the shared expert's gate; shared_in: the same norm times a pair;
 * experts: with that norm before and a sum. Devices may lack it; it is reserved with the operands
 * that it will have, after the operations themselves. */
typedef struct mf_mixture_params {
    const struct mf_op *router, *shared_in, *route, *shared_out, *experts;
} mf_mixture_params;

/* One row of linear attention: what these operations leave one after the other, in this order, to
 * the state and to y of the last; what else they would write is undefined then. in: a norm times
 * four weights, the first of which is convolved; rule: of its results as q, k and v, the fourth as
 * a, the third as b; out: of its heads, normed and gated with the second, added. Likewise. */
typedef struct mf_linear_row_params {
    const struct mf_op *in, *rule, *out;
} mf_linear_row_params;

/* One row of softmax attention: what these operations leave one after the other, in this order, to
 * the caches and to y of the last; what else they would write is undefined then. in: a norm times
 * three weights or four; queries, keys: of the first and the second result; attend: of these as q
 * and k, the third as v; out: of what is attended, times the sigmoid of the fourth if there is one,
 * added. Likewise. */
typedef struct mf_attend_row_params {
    const struct mf_op *in, *queries, *keys, *attend, *out;
} mf_attend_row_params;

/* One row of latent attention: what these operations leave one after the other, in this order, to
 * the cache and to out of the last; what else they would write is undefined then. norm: of the
 * latent that is appended; rotate_q, rotate_kv: of what is rotated of the queries and of that row
 * (NULL, both: nothing is); attend: without an index. Likewise. */
typedef struct mf_latent_row_params {
    const struct mf_op *norm, *rotate_q, *rotate_kv, *attend;
} mf_latent_row_params;

/* Picks of one such operation, at most. */
#define MF_MAX_ROUTED_PICKS 256

/* What passes between the stream and the host while the stream goes on (host_words.h): values of
 * four bytes, each of which lies beside a number in one word of 64 bits. words on their way to the
 * host: of a buffer of MF_USE_HOST; from it: of MF_USE_SHARED. Devices may lack these operations;
 * those that have them have hold, go and is_lost. */
#define MF_TO_HOST_ARRAYS 3
/* Puts the rows of arrays, one array after the other, n_cols[i] values a row, to words. */
typedef struct mf_to_host_params {
    mf_span arrays[MF_TO_HOST_ARRAYS];
    uint32_t n_cols[MF_TO_HOST_ARRAYS]; /* 0: there is none */
    mf_span words;
    uint32_t number;
} mf_to_host_params;

/* out = rows of n_cols values, as soon as the host has put all of them to words with this number.
 * A device that has waited for long gives up: then the word `late` (uint32, of MF_USE_HOST) is 1,
 * and out anything. */
typedef struct mf_from_host_params {
    mf_span words, late, out;
    uint32_t n_cols, number;
} mf_from_host_params;

/* x[r] += sigmoid(shared_gate[r]) * shared[r] + sum over j < k, in that order, of
 * weights[r, j] * experts[place[r * k + j]]. shared is overwritten. shared_gate of id 0:
 * shared counts as it is; shared of id 0: there is none. place: host array of rows of
 * experts; NULL: they lie in the order of the picks. is_put: x is that, instead of growing by it.
 */
typedef struct mf_combine_params {
    mf_span x, weights, experts, shared, shared_gate;
    const uint32_t *place;
    uint32_t n_cols, k;
    bool is_put;
    mf_norm_after norm;
} mf_combine_params;

/* Rotation in place, by the row's position, of n_heads runs of n_rot floats: head h of row
 * r at x + r * row_stride + h * head_stride. Pairs (i, i + n_rot / 2), or (2i, 2i + 1)
 * where interleaved. cos/sin: float32 [positions, n_rot / 2]. */
typedef struct mf_rope_params {
    mf_span x, cos, sin;
    uint32_t n_heads, n_rot, row_stride, head_stride;
    bool interleaved;
    bool is_inverse; /* back by the same angle */
} mf_rope_params;

/* y[r, h] = W_h x[r, h] for every head: x at r * x_row + h * x_head floats, y likewise. A
 * head's x has n_cols values and y n_rows, or the other way round if transposed. */
typedef struct mf_head_matmul_params {
    mf_head_weight w;
    mf_span x, y;
    uint32_t n_heads, x_row, x_head, y_row, y_head;
} mf_head_matmul_params;

/* Appends kv [rows, n_latent + n_rot] to the sequences' caches of cache_type and attends causally:
 * with the key of a position all of its cached row and its value the first n_latent of it, out[r,
 * h] = softmax(scale (q[r, h] . latent + q_rot[r, h] . rot)) latent. q, out: [rows, n_heads,
 * n_latent], distinct; head h of row r of q_rot at r * q_rot_row + h * q_rot_head floats. */
/* An indexer (DeepSeek-V3.2's report): keys k [rows, dim] are appended to a cache of the
 * cache_type at page_offset; a row at a position from n_most on attends to the n_most
 * positions up to its own of the largest scores alone, the first among equals: sum over heads h of
 * weights[r, h] * max(0, scale * q[r, h] . k). q: [rows, n_heads, dim]. Scratch for n_at_once rows
 * each: scores [2, n_positions], and gathered [n_most rounded up to MF_PAGE_TOKENS, n_latent +
 * n_rot] floats; n_positions: the most that a row can see. n_most 0: there is none. */
#define MF_INDEX_MOST 65536u
typedef struct mf_index_params {
    mf_span q, k, weights, scores, gathered;
    uint32_t n_heads, dim, n_most;
    mf_dtype cache_type; /* MF_F32 or MF_BF16 */
    uint64_t page_offset;
    float scale;
} mf_index_params;

typedef struct mf_latent_attention_params {
    mf_span q, q_rot, kv, out;
    uint32_t n_heads, n_latent, n_rot, q_rot_row, q_rot_head;
    mf_dtype cache_type;
    uint64_t page_offset;
    float scale;
    mf_index_params index;
    uint32_t n_at_once, n_positions; /* with an index */
} mf_latent_attention_params;

/* Entries that stand for runs of positions (DeepSeek-V4's report, 2.3). kv and gate, rows of
 * n_series * dim, are appended to the window's pages, caches of cache_type at kv_offset and
 * gate_offset. Each run of `rate` positions from a multiple of rate on that ends among the rows
 * becomes an entry: column by column the sum of kv, weighted by the softmax of gate + bias (float32
 * [rate, n_series * dim]) over the run's positions. With two series it is a sum over the run before
 * (if there is one) with the first dim columns, and over the run itself with the others. Entries
 * are normed (norm: float32 [dim]), their last n_rot columns rotated as interleaved pairs by the
 * run's first position, and kept at entry_offset of the page of the run's last position, as row (p
 * % MF_PAGE_TOKENS) / rate of it. rate divides MF_PAGE_TOKENS or is a multiple of it. */
typedef struct mf_compress_params {
    mf_span kv, gate, bias, norm, cos, sin;
    uint32_t dim, n_series, rate, n_rot;
    mf_dtype cache_type;
    uint64_t kv_offset, gate_offset, entry_offset;
    float eps;
} mf_compress_params;

/* Appends kv [rows, dim] to the window's pages, and attends to the last `window` positions and, if
 * rate is not 0, to the entries whose runs ended at or before the row's own position: out[r, h] =
 * softmax(scale q[r, h] . k) k, where what is attended to is key and value at once, and sinks
 * (float32 [n_heads]) one more score. q, out: [rows, n_heads, dim], distinct. With an index, and
 * more entries than its n_most, to those alone that it chooses; its keys are entries too, at its
 * page_offset, and k is none. Scratch for n_at_once rows each: gathered [mf_entry_rows, dim + 1],
 * and with an index scores [2, n_entries] of its own. n_entries: the most that a row can see. */
typedef struct mf_entry_attention_params {
    mf_span q, kv, out, sinks, gathered;
    uint32_t n_heads, dim, window, rate, n_at_once, n_entries;
    mf_dtype cache_type;
    uint64_t page_offset, entry_offset;
    float scale;
    mf_index_params index;
} mf_entry_attention_params;

/* Rows that one row's attention gathers at most: of the window, entries, and one for the sinks. */
static inline uint64_t mf_entry_rows(uint32_t window, uint32_t n_entries, uint32_t n_most)
{
    const uint32_t n = n_most != 0 && n_most < n_entries ? n_most : n_entries;
    return mf_pages_of((uint64_t)window + n + 1) * (uint64_t)MF_PAGE_TOKENS;
}

/* Hyper-connections whose mixing is doubly stochastic (arXiv 2409.19606, 2512.24880). A row is n =
 * n_streams streams of n_cols floats; mixes [rows, (2 + n) n] are products of all of them. With m =
 * mixes / sqrt(mean of the squares of the streams + norm_eps), split into n, n and n * n: pre =
 * sigmoid(m * scale[0] + base) + eps, post = 2 sigmoid(m * scale[1] + base), comb[i, j] = softmax
 * over j of (m * scale[2] + base), + eps, then n_iterations times its columns are divided by their
 * sum + eps, and before each time but the first its rows. out = sum_i pre[i] * stream[i]; gates
 * [rows, n + n * n] = post and comb. is_last: there is only pre, and no gates. base float32 like a
 * row of mixes, scale float32 [3], or [1]. */
#define MF_MAX_STREAMS 8
typedef struct mf_streams_in_params {
    mf_span streams, mixes, base, scale, out, gates;
    uint32_t n_streams, n_cols, n_iterations;
    float eps, norm_eps;
    bool is_last;
    mf_norm_after norm; /* of out */
} mf_streams_in_params;

/* stream[j] = post[j] * y + sum_i comb[i, j] * stream[i], with gates as above; mean, which may be
 * y, is that of the streams then: rows of n_cols. */
typedef struct mf_streams_out_params {
    mf_span streams, y, gates, mean;
    uint32_t n_streams, n_cols;
} mf_streams_out_params;

typedef struct mf_op {
    mf_op_kind kind;
    uint32_t n_rows;    /* rows that the operation covers; its spans begin with the first of them */
    uint32_t first_row; /* of the batch, where the operation knows sequences */
    /* Each of its rows is of a sequence's run that is long by itself: a backend that is mixed
     * multiplies it by other kernels, with other bits. */
    bool is_long;
    /* A uint32 that MF_OP_ROUTE's found, or write, left: if it is 0 when the operation's turn
     * comes, nothing is done and no byte changes. id 0: it is done. Devices may lack it. */
    mf_span when;
    union {
        mf_embed_params embed;
        mf_copy_rows_params copy_rows;
        mf_rmsnorm_params rmsnorm;
        mf_rmsnorm_gated_params rmsnorm_gated;
        mf_matmul_params matmul;
        mf_head_norm_rope_params head_norm_rope;
        mf_attention_params attention;
        mf_sigmoid_mul_params sigmoid_mul;
        mf_conv1d_silu_params conv1d_silu;
        mf_gated_delta_params gated_delta;
        mf_add_params add;
        mf_swiglu_params swiglu;
        mf_route_params route;
        mf_experts_params experts;
        mf_routed_experts_params routed;
        mf_combine_params combine;
        mf_rope_params rope;
        mf_head_matmul_params head_matmul;
        mf_latent_attention_params latent_attention;
        mf_compress_params compress;
        mf_entry_attention_params entry_attention;
        mf_streams_in_params streams_in;
        mf_streams_out_params streams_out;
        mf_finite_params finite;
        mf_mixture_params mixture;
        mf_linear_row_params linear_row;
        mf_attend_row_params attend_row;
        mf_latent_row_params latent_row;
        mf_to_host_params to_host;
        mf_from_host_params from_host;
    } u;
} mf_op;

/* More than there are kinds of operations. */
#define MF_N_OP_KINDS 32

/* gate, up or down of routed experts, of one expert that lies in this slot. */
mf_weight mf_routed_weight(const mf_routed_experts_params *p, const mf_weight *w, uint32_t expert,
                           uint32_t slot);
/* "matmul", for messages; "unknown" */
const char *mf_op_name(mf_op_kind kind);

static inline bool mf_has_expert_steps(const mf_expert_steps *s)
{
    return s->is_paired || s->is_clamped || s->silu_limit != 0 || s->gate_bias.buffer.id != 0 ||
           s->up_bias.buffer.id != 0 || s->down_bias.buffer.id != 0;
}

/* Whether it is more than products of its input. */
static inline bool mf_has_steps(const mf_matmul_params *p)
{
    return p->before.kind != MF_INPUT_AS_IT_IS || p->after.kind != MF_OUTPUT_PUT || p->is_paired;
}

static inline bool mf_routed_has_steps(const mf_routed_experts_params *p)
{
    return p->before.kind != MF_INPUT_AS_IT_IS || p->sum.x.buffer.id != 0;
}

#endif
