/* SPDX-License-Identifier: MIT */
/*
 * What a compute backend offers to models: memory by handle, and operations recorded into one
 * in-order stream. Nothing above this header knows which backend it talks to.
 *
 * The stream. record, write, upload, copy, read, buffer_free and buffer_discard take their place in
 * one order: that of the calls, whichever threads make them. When each is done is the backend's
 * business (the CPU does it at once, a device may begin when somebody waits), and what cannot be
 * told from outside it may do in another order; but every one finds the bytes that those before it
 * leave, and those after it find what it leaves. So memory that recorded work still reads may be
 * given to somebody else who reaches it through the stream.
 *
 * Tickets. mark names the stream's present end, upload also the place that it takes. Tickets rise;
 * one is done when everything up to it is. done only asks: nothing says that it ever becomes true
 * by itself. wait_for sees to it. Ticket 0 is always done.
 *
 * The host's side. Parameters of an operation, the arrays they point to and the source of write are
 * copied by the call. The source of upload must stay as it is until its ticket is done; the
 * destination of read is the backend's from the call on, and holds the bytes once a ticket marked
 * after the call has been waited for or was found done. What the host writes through buffer_host is
 * found by everything called afterwards; bytes that work not yet done reads or writes must be left
 * alone, and what that work wrote is seen once a ticket after it is done.
 *
 * Ahead. upload_ahead has no place in the stream: it may be done at any time, beside what was
 * called before it, which therefore must not use the bytes that it writes unless that is done;
 * everything called afterwards finds them. Its ticket says that it and those before it are done, no
 * more; and no ticket but that says so: it is waited for before either buffer is freed.
 *
 * Failure. Recording cannot fail. A device that fails is lost: from then on every ticket counts as
 * done, each wait_for returns the device's error, destinations of reads hold anything, and buffers
 * and the backend can still be freed.
 *
 * Threads. One thread at a time begins batches, reserves, records and measures. All others but
 * destroy may be called by any thread at any time, also while another records: a backend that needs
 * one has a lock of its own. The work of several threads gets into the stream call by call.
 *
 * Every operation takes n rows of activations: the tokens of a batch, which may belong to several
 * sequences (begin_batch). All activations are float32 unless named otherwise. Spans name bytes
 * inside a buffer. Which bytes an operation reads and writes: op_spans.h.
 *
 * The same bits: on one backend a row's result does not depend on the other rows of the batch, nor
 * on how rows are batched; on one that is mixed it depends on whether its operation is_long, which
 * is to be a property of the row's own run.
 */
#ifndef MF_BACKEND_BACKEND_H
#define MF_BACKEND_BACKEND_H

#include "base/alloc.h"
#include "base/ticket.h"
#include "base/visit.h"
#include "base/weight_format.h"

#include <moeflux/devices.h>

typedef struct mf_backend mf_backend;

/* A buffer of the backend; id 0 is none. */
typedef struct mf_buffer {
    uint32_t id;
} mf_buffer;

/* What a buffer is for, and so where it lies. */
typedef enum mf_buffer_use {
    MF_USE_DEVICE = 0, /* operands, in the memory that is best for them; out of the host's reach */
    MF_USE_HOST,       /* operands in memory that the host reaches, direct reads from disk too */
    MF_USE_STAGING     /* sources of uploads and destinations of reads: no operands */
} mf_buffer_use;

typedef struct mf_span {
    mf_buffer buffer;
    uint64_t offset; /* bytes */
} mf_span;

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

static inline uint32_t mf_pages_of(uint64_t n_tokens)
{
    return (uint32_t)((n_tokens + MF_PAGE_TOKENS - 1) / MF_PAGE_TOKENS);
}

/* A run of rows of the batch that belongs to one sequence: rows first_row .. first_row + n_rows - 1
 * hold its tokens at positions position, position + 1, ... There are pages for all positions up to
 * the run's last, or none (NULL) where no layer caches positions; an operation's cache row of
 * position p is row p % MF_PAGE_TOKENS of what begins at the operation's page_offset in pages[p /
 * MF_PAGE_TOKENS]. A recurrent operation reads the state before the run at its state_offset in
 * state[0] (buffer id 0: all zero) and writes the one after it at the same place in state[1], which
 * may be the same. */
typedef struct mf_sequence {
    uint32_t first_row, n_rows;
    uint64_t position;
    const mf_span *pages;
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
    MF_OP_LATENT_ATTENTION
} mf_op_kind;

/* How a router's logits become scores. */
typedef enum mf_score { MF_SCORE_SOFTMAX = 0, MF_SCORE_SIGMOID = 1 } mf_score;

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

/* out = rmsnorm(x) * weight over the first n_cols of rows that are `stride` floats apart
 * (0: n_cols); weight float32. out may be x. */
typedef struct mf_rmsnorm_params {
    mf_span x, weight, out;
    uint32_t n_cols, stride;
    float eps;
} mf_rmsnorm_params;

/* Per row n_heads heads of head_dim: x = rmsnorm(x) * weight * silu(z), in place; weight
 * float32 [head_dim] */
typedef struct mf_rmsnorm_gated_params {
    mf_span x, z, weight;
    uint32_t n_heads, head_dim;
    float eps;
} mf_rmsnorm_gated_params;

/* y[j][r] = weight[j] x[r], j < n: products of the same input */
typedef struct mf_matmul_params {
    mf_span x;
    uint32_t n;
    mf_weight weight[MF_MAX_MATMULS];
    mf_span y[MF_MAX_MATMULS];
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
 * n_kv_heads). With a window only the last `window` positions up to the row's own are attended. A
 * sink (float32 [n_heads]; none: id 0) takes part in the softmax as one more score, without value.
 */
typedef struct mf_attention_params {
    mf_span q, k, v, out, sinks;
    uint32_t n_heads, n_kv_heads, head_dim;
    uint32_t window; /* 0: all positions */
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
 * value_dim]. Value head h uses key head h / (v_heads / k_heads). out rows: [v_heads *
 * value_dim]. qkv is overwritten. */
typedef struct mf_gated_delta_params {
    mf_span qkv, a, b, a_log, dt_bias, out;
    uint32_t n_k_heads, n_v_heads, key_dim, value_dim;
    float eps;
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

/* out = silu(gate) * up, rows of n_cols; out may be gate */
typedef struct mf_swiglu_params {
    mf_span gate, up, out;
    uint32_t n_cols;
} mf_swiglu_params;

/* score = softmax or sigmoid of logits over n_experts; choice = score + bias (float32
 * [n_experts]; none: id 0). With n_groups > 1, experts e * n_experts / n_groups ... form
 * group e; only the k_groups best groups stay. The k experts of largest choice are taken in
 * falling order, the lower index first among equals, also among groups: ids int32 [rows,
 * k]; weights [rows, k] are their scores, divided by their sum + eps if normalise, times
 * scale. logits is overwritten. With found (uint32 [2], both 0 at first; none: id 0) and slot
 * (uint32 [n_experts]): found[1] grows by the rows whose experts all have a slot, not MF_NO_SLOT;
 * once it is n_to_find, found[0] is 1. */
typedef struct mf_route_params {
    mf_span logits, bias, ids, weights, slot, found;
    uint32_t n_experts, k, n_groups, k_groups;
    uint32_t n_to_find;
    mf_score score;
    mf_group_rule group_rule;
    bool normalise;
    float eps, scale;
} mf_route_params;

typedef struct mf_expert_item {
    mf_weight gate, up, down;
    const uint32_t *x_rows;
    uint32_t n_rows;
    uint32_t out_row;
} mf_expert_item;

/* For each item: rows out_row .. out_row + n_rows - 1 of out = down (silu(gate x) * (up x))
 * for x rows x_rows[...]. act is scratch for the same rows: 2 * hidden floats each (hidden
 * = gate.n_rows). */
typedef struct mf_experts_params {
    mf_span x, act, out;
    const mf_expert_item *items;
    uint32_t n_items;
} mf_experts_params;

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
} mf_routed_experts_params;

/* Picks of one such operation, at most. */
#define MF_MAX_ROUTED_PICKS 256

/* x[r] += sigmoid(shared_gate[r]) * shared[r] + sum over j < k, in that order, of
 * weights[r, j] * experts[place[r * k + j]]. shared is overwritten. shared_gate of id 0:
 * shared counts as it is; shared of id 0: there is none. place: host array of rows of
 * experts; NULL: they lie in the order of the picks. */
typedef struct mf_combine_params {
    mf_span x, weights, experts, shared, shared_gate;
    const uint32_t *place;
    uint32_t n_cols, k;
    mf_norm_after norm;
} mf_combine_params;

/* Rotation in place, by the row's position, of n_heads runs of n_rot floats: head h of row
 * r at x + r * row_stride + h * head_stride. Pairs (i, i + n_rot / 2), or (2i, 2i + 1)
 * where interleaved. cos/sin: float32 [positions, n_rot / 2]. */
typedef struct mf_rope_params {
    mf_span x, cos, sin;
    uint32_t n_heads, n_rot, row_stride, head_stride;
    bool interleaved;
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
typedef struct mf_latent_attention_params {
    mf_span q, q_rot, kv, out;
    uint32_t n_heads, n_latent, n_rot, q_rot_row, q_rot_head;
    mf_dtype cache_type;
    uint64_t page_offset;
    float scale;
} mf_latent_attention_params;

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
    } u;
} mf_op;

/* More than there are kinds of operations. */
#define MF_N_OP_KINDS 32

/* What a device did for operations of one kind. */
typedef struct mf_op_time {
    uint64_t n, ns;
} mf_op_time;

/* Bytes on their way ahead of the stream. */
typedef struct mf_upload {
    mf_span dest;    /* of MF_USE_DEVICE */
    const void *src; /* as upload's */
    uint64_t n_bytes;
} mf_upload;

/* One of the memories that a backend's buffers lie in. */
typedef struct mf_backend_memory {
    char name[64];
    uint64_t n_bytes;     /* that buffers can still take; 0: not known */
    uint32_t uses;        /* 1 << mf_buffer_use, of those that lie in it */
    bool is_host;         /* the process's own memory, which ram_bytes bounds */
    bool takes_promise;   /* device_bytes bounds what is taken of it: */
    uint64_t taken_bytes; /* that the backend has of it */
} mf_backend_memory;

/* As many as a backend may have. */
#define MF_MAX_MEMORIES 4

typedef struct mf_backend_ops {
    const char *name;
    /* What is recorded runs while the host goes on: it is better not waited for. */
    bool runs_later;
    /* What it runs on: a CPU's kernel tier, a GPU's name. */
    const char *(*device_name)(const mf_backend *be);
    /* Whose roundings its results have: 1 to 3 are the CPU's tiers, 2^31 and more GPUs', and every
     * other backend whose results have other bits takes other numbers, which stay
     * (docs/FORMATS.md). 0: none, so that no state of its is stored. */
    uint32_t (*rounding)(const mf_backend *be);
    /* Whether it has other kernels for operations that are long. NULL: it has none. */
    bool (*is_mixed)(const mf_backend *be);
    /* The memories, at most MF_MAX_MEMORIES, as they are now; returns how many. Each use lies in
     * one of them. */
    uint32_t (*memories)(const mf_backend *be, mf_backend_memory *out);
    /* A buffer's bytes are anything at first. The first buffers of a backend have the ids 1, 2, ...
     * in the order of creation. Errors: MF_ERR_NO_MEMORY. */
    mf_status (*buffer_create)(mf_backend *be, uint64_t n_bytes, mf_buffer_use use,
                               const char *what, mf_buffer *out, mf_error *error);
    /* Takes the buffer of id 0: none. */
    void (*buffer_free)(mf_backend *be, mf_buffer buffer);
    /* These bytes are not needed any more, whatever they hold when next touched: true if their
     * memory is given back (but for parts of pages at either end). */
    bool (*buffer_discard)(mf_backend *be, mf_span span, uint64_t n_bytes);
    /* The bytes of a buffer of MF_USE_HOST or MF_USE_STAGING, aligned to 4096; NULL for
     * MF_USE_DEVICE. */
    unsigned char *(*buffer_host)(mf_backend *be, mf_buffer buffer);
    void (*write)(mf_backend *be, mf_span dest, const void *src, uint64_t n_bytes);
    /* As write, without the copy: src is host memory, best within a buffer that buffer_host gives
     * (from elsewhere the bytes may be copied on their way). */
    mf_ticket (*upload)(mf_backend *be, mf_span dest, const void *src, uint64_t n_bytes);
    /* See above; NULL: there is nothing to gain (mf_backend_upload_ahead). n is not 0. */
    mf_ticket (*upload_ahead)(mf_backend *be, const mf_upload *uploads, uint32_t n);
    void (*read)(mf_backend *be, mf_span src, void *dest, uint64_t n_bytes);
    /* read, waited for, the bytes handed to fn: without a copy where they lie in the process's
     * memory. Errors: the device's, and fn's. */
    mf_status (*visit)(mf_backend *be, mf_span src, uint64_t n_bytes, mf_visit_fn fn, void *ctx,
                       mf_error *error);
    /* write of what fn makes, runs of MF_VISIT_BYTES at most: without a copy where the bytes lie in
     * the process's memory, and nothing that is recorded uses them. Errors: fn's, and
     * MF_ERR_NO_MEMORY; then they are anything. */
    mf_status (*produce)(mf_backend *be, mf_span dest, uint64_t n_bytes, mf_produce_fn fn,
                         void *ctx, mf_error *error);
    /* The spans do not overlap. */
    void (*copy)(mf_backend *be, mf_span dest, mf_span src, uint64_t n_bytes);
    /* The sequences that the rows of the operations recorded from now on belong to, all of their
     * pages included; copied. Reserved before. */
    void (*begin_batch)(mf_backend *be, const mf_sequence *sequences, uint32_t n);
    /* Room for batches of so many sequences with so many pages in all. */
    mf_status (*reserve_batch)(mf_backend *be, uint32_t n_sequences, size_t n_pages,
                               mf_error *error);
    /* Whether an operation of this kind, with weights of these forms, can be recorded. */
    bool (*supports_op)(const mf_backend *be, const mf_op *op);
    /* Makes room for an operation of these sizes, so that record need not allocate. Called before
     * the first record of its kind; see mf_backend_reserve. */
    mf_status (*reserve)(mf_backend *be, const mf_op *op, mf_error *error);
    /* Or NULL: from gather to gathered, reserve may leave what takes long to gathered, which does
     * it all at once. Nothing is recorded in between. */
    void (*gather)(mf_backend *be);
    mf_status (*gathered)(mf_backend *be, mf_error *error);
    void (*record)(mf_backend *be, const mf_op *op);
    mf_ticket (*mark)(mf_backend *be);
    bool (*done)(mf_backend *be, mf_ticket ticket);
    /* Errors: the device's. */
    mf_status (*wait_for)(mf_backend *be, mf_ticket ticket, mf_error *error);
    /* Weight bytes multiplied with since creation. */
    uint64_t (*weight_bytes)(const mf_backend *be);
    mf_status (*measure)(mf_backend *be, const mf_span *spans, const uint64_t *span_bytes,
                         uint32_t n_spans, uint32_t n_milliseconds, double *bytes_per_second,
                         double *fma_per_second, mf_error *error);
    /* The device's time by kinds of operations is taken from now on, or not any more; NULL: it
     * cannot be. What was taken is forgotten. Errors: MF_ERR_UNSUPPORTED, MF_ERR_NO_MEMORY. */
    mf_status (*time_ops)(mf_backend *be, bool is_on, mf_error *error);
    /* Adds what was taken of work that is done to out[MF_N_OP_KINDS]. NULL where time_ops is. */
    void (*op_times)(mf_backend *be, mf_op_time *out);
    /* Nobody is within another call. What is recorded need not run any more. */
    void (*destroy)(mf_backend *be);
} mf_backend_ops;

/* Every backend struct begins with this. */
struct mf_backend {
    const mf_backend_ops *ops;
};

typedef struct mf_backend_options {
    mf_allocator allocator;
    uint32_t n_threads;      /* of the CPU; 0: one per available CPU */
    uint32_t cpu_tier_limit; /* as mf_kernels_get */
    /* "cpu" (also NULL and "auto", which devices.h knows), "vulkan" (the best GPU), "vulkan:N" */
    const char *device;
    uint64_t device_bytes;  /* of the device's memory, at most; 0: most of what is free */
    const char *cache_dir;  /* where a device's compiled shaders are kept; NULL: nowhere */
    mf_precision precision; /* of devices, for operations that are long */
} mf_backend_options;

/* Opens the backend that the options ask for. ops->destroy ends it. Errors: MF_ERR_ARGUMENT (the
 * device is not known; the message lists those that are), MF_ERR_NO_MEMORY. */
mf_status mf_backend_open(const mf_backend_options *options, mf_backend **out, mf_error *error);
/* The same, for whoever brings a backend of their own. */
typedef mf_status (*mf_backend_open_fn)(void *ctx, const mf_backend_options *options,
                                        mf_backend **out, mf_error *error);

/* MF_ERR_ARGUMENT, with those that there are, for a name that mf_backend_open does not know. */
mf_status mf_backend_check_device(const char *option, const char *device, mf_error *error);
/* The device that a known name stands for: the CPU for "auto" and NULL. */
const char *mf_backend_device(const char *device);
/* Whether experts have another device than the rest; "auto" and NULL: the same. */
bool mf_backend_are_apart(const char *device, const char *expert_device);

/* Bytes of the process's memory, at most, that the device takes beside buffers and scratch for n
 * rows of at most n_cols floats in a form of its own. Can be asked before it is opened. */
uint64_t mf_backend_host_bytes(const char *device, uint64_t n_rows, uint64_t n_cols);

/* The same of what its driver takes. */
uint64_t mf_backend_driver_bytes(const char *device);
/* What the model's operations may be as large as. */
typedef struct mf_backend_sizes {
    uint64_t n_rows, n_cols; /* rows of at most so many floats, at once */
    uint64_t n_sequences, n_pages;
    bool may_be_mixed; /* of rows in float16 too */
} mf_backend_sizes;
/* Bytes of the device's memory, at most, that it takes beside buffers, where device_bytes bounds
 * them; 0: it takes no promise. */
uint64_t mf_backend_device_bytes(const char *device, const mf_backend_sizes *sizes);

/* The use for operands that are read from disk: MF_USE_HOST where the device's memory is the
 * process's own anyway, so that they can be read to where they stay, else MF_USE_DEVICE. */
mf_buffer_use mf_backend_operand_use(const mf_backend *be);
/* ops->gather and ops->gathered, where there are. */
void mf_backend_gather(mf_backend *be);
mf_status mf_backend_gathered(mf_backend *be, mf_error *error);
bool mf_backend_is_mixed(const mf_backend *be);
/* ops->reserve, or MF_ERR_UNSUPPORTED for an operation that the device lacks. */
mf_status mf_backend_reserve(mf_backend *be, const mf_op *op, mf_error *error);
/* ops->upload_ahead, or uploads in the stream. */
mf_ticket mf_backend_upload_ahead(mf_backend *be, const mf_upload *uploads, uint32_t n);
/* Waits for everything up to now. */
mf_status mf_backend_finish(mf_backend *be, mf_error *error);
/* ops->read, and waits for it. */
mf_status mf_backend_read(mf_backend *be, mf_span src, void *dest, uint64_t n_bytes,
                          mf_error *error);
/* gate, up or down of routed experts, of one expert that lies in this slot. */
mf_weight mf_routed_weight(const mf_routed_experts_params *p, const mf_weight *w, uint32_t expert,
                           uint32_t slot);
/* "matmul", for messages; "unknown" */
const char *mf_op_name(mf_op_kind kind);

static inline mf_span mf_span_at(mf_span span, uint64_t n_bytes)
{
    return (mf_span){span.buffer, span.offset + n_bytes};
}

#endif
