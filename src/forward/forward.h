/* SPDX-License-Identifier: MIT */
/* What the files of the forward pass share: recording of the commonest operations, room for them,
 * and the parts of a layer. All take the layer's normed input in plan.h. */
#ifndef MF_FORWARD_FORWARD_H
#define MF_FORWARD_FORWARD_H

#include "forward/runner.h"

/* plan.x = the residual stream after all layers. */
mf_status mf_forward_layers(mf_runner *r, const mf_batch *batch, mf_error *error);
/* plan.x += the dense MLP of plan.h, then plan.h = the next layer's input. */
void mf_forward_mlp(mf_runner *r, uint32_t layer, uint32_t n_rows);
/* plan.x += the mixture of experts of plan.h, likewise. */
mf_status mf_forward_moe(mf_runner *r, const mf_batch *batch, uint32_t layer, mf_error *error);

/* -- a layer in pieces, for passes in two halves (split.h) -- */

/* plan.x += the layer's attention, then plan.h = what comes after it takes. */
void mf_forward_attention(mf_runner *r, uint32_t n_rows, uint32_t layer);
/* The router's choice, and a fetch of it. Nobody is told of it. */
mf_status mf_forward_choose(mf_runner *r, uint32_t layer, uint32_t n_rows, mf_expert_fetch **fetch,
                            uint32_t *n_wanted, mf_error *error);
/* What follows; the fetch is ended, with an error too. */
mf_status mf_forward_multiply(mf_runner *r, const mf_batch *batch, uint32_t layer,
                              mf_expert_fetch *fetch, uint32_t n_wanted, mf_error *error);
/* The layer is done. */
mf_status mf_forward_report(mf_runner *r, const mf_batch *batch, uint32_t layer, mf_error *error);

/* The layer over plan.x, alone: neither its input's norm nor what comes after it. */
mf_status mf_forward_layer(mf_runner *r, const mf_batch *batch, uint32_t layer, mf_error *error);

/* -- a single row, where the backend's products take steps (fused.c) -- */

/* A batch of n rows. */
void mf_fused_begin(mf_runner *r, uint32_t n_rows);
/* Room for the operation, if the backend has it; without one of them nothing is fused. */
mf_status mf_fused_reserve(mf_runner *r, const mf_op *op, mf_error *error);
/* The same of several operations that are one, if *has; then *has says whether the backend has it
 * so.
 */
mf_status mf_joined_reserve(mf_runner *r, const mf_op *op, bool *has, mf_error *error);
mf_input_step mf_fused_norm(const mf_runner *r, mf_span weight);
/* plan.mlp_gate = what a gated MLP makes first of plan.x, normed with this weight. */
mf_op mf_fused_pair(const mf_runner *r, const mf_mlp_weights *w, mf_span norm);
/* The layer's router, and the shared expert's gate, of plan.x normed. */
mf_op mf_fused_router(const mf_runner *r, uint32_t layer);
/* plan.x += w x */
mf_op mf_fused_out(const mf_runner *r, const mf_weight *w, mf_span x, mf_input_step before);
/* Whether the norm is left to what comes next: plan.h is not made. */
bool mf_fused_leave_norm(mf_runner *r, mf_norm_after norm);
/* Whether it was left: then products of plan.x begin with *before, instead of plan.h. All that need
 * it are recorded together. */
bool mf_fused_take_norm(mf_runner *r, mf_input_step *before);
/* plan.h is made, if it is not yet. */
void mf_need_h(mf_runner *r);

/* -- a residual stream that is several (streams.c); but for the last two nothing is done where it
 * is one -- */

mf_status mf_streams_reserve(mf_runner *r, mf_error *error);
/* All are plan.x. */
void mf_streams_begin(mf_runner *r, uint32_t n_rows);
/* plan.h = the normed input of a block, whose result goes back by mf_streams_out; plan.y is lost.
 */
void mf_streams_in(mf_runner *r, uint32_t n_rows, const mf_stream_weights *w, mf_span norm);
/* plan.x = their mean then. */
void mf_streams_out(mf_runner *r, uint32_t n_rows, mf_span y);
/* What attention made in plan.y goes back; plan.h is the layer's next input, and plan.x is 0. */
void mf_streams_join(mf_runner *r, uint32_t layer, uint32_t n_rows);
/* plan.last = what the n rows in row_list are joined to, whose streams are in plan.last_streams. */
void mf_streams_last(mf_runner *r, uint32_t n, const mf_stream_weights *w);

/* -- tokens that are proposed (draft.c); nothing is done where none are -- */

mf_status mf_draft_reserve(mf_runner *r, mf_error *error);
/* The rows' states, once the layers are recorded: kept, and asked for. */
void mf_draft_keep(mf_runner *r, const mf_batch *batch);

/* -- experts that are chosen on the device (routed.c) -- */

/* Room for the operation, if the device has it. */
mf_status mf_routed_reserve(mf_runner *r, uint32_t layer, mf_error *error);
/* Whether the device has, or will have, all experts of all layers. */
bool mf_routed_has_all(const mf_runner *r);
/* Whether the layer's experts, for so many rows, need no choice of the host's. */
bool mf_routed_can(mf_runner *r, uint32_t layer, uint32_t n_rows);
/* Rows that are routed at most. */
uint32_t mf_routed_most_rows(const mf_runner *r);
/* The layer's slots on the device, a number for each expert. */
mf_span mf_routed_slots(const mf_runner *r, uint32_t layer);
/* Writes them, [n_experts]. */
void mf_routed_write_slots(mf_runner *r, uint32_t layer, const uint32_t *slots);
/* Where the router's choice goes for them. */
mf_span mf_routed_ids(const mf_runner *r, uint32_t layer, uint32_t n_rows);
/* The results to plan.expert_out, in the order of the picks; or, of one row whose norm was left to
 * products (`before`), added to plan.x. */
void mf_routed_record(mf_runner *r, uint32_t layer, uint32_t n_rows, const mf_input_step *before);
/* The operation alone; and that it has been recorded, in whatever. */
mf_op mf_routed_op(const mf_runner *r, uint32_t layer, uint32_t n_rows,
                   const mf_input_step *before);
void mf_routed_note(mf_runner *r, uint32_t layer);
/* A row's mixture as one operation (moe.c), if the device has it so; after mf_routed_reserve. */
typedef struct mf_mixture {
    mf_op router, shared_in, route, shared_out, experts;
} mf_mixture;
/* m: what it is made of, with m->experts there; kept as long as the operation. */
mf_op mf_mixture_op(const mf_runner *r, uint32_t layer, const mf_input_step *before, mf_mixture *m);
mf_status mf_mixture_reserve(mf_runner *r, uint32_t layer, mf_error *error);
/* Counts what a pass of n_rows chose: asked for once its layers are recorded, taken once it is
 * done.
 */
void mf_routed_begin(mf_runner *r);
void mf_routed_ask(mf_runner *r, uint32_t n_rows);
void mf_routed_count(mf_runner *r, uint32_t n_rows);

/* -- layers recorded before it is known whether their experts are held (ahead.c) -- */

/* Whether the layer is to be recorded so. Where others are so recorded already, it is. */
bool mf_ahead_can(const mf_runner *r, const mf_batch *batch);
/* The layer is one of them: to be called before its choice. Returns the word that the choice sets.
 */
mf_span mf_ahead_begin(mf_runner *r, uint32_t layer);
/* What is recorded from now on is done only if the word is set. */
void mf_ahead_under(mf_runner *r, mf_span found);
void mf_ahead_record(mf_runner *r, const mf_op *op);
/* It is time to wait for them. */
bool mf_ahead_is_full(const mf_runner *r);
bool mf_ahead_is_open(const mf_runner *r);
/* Asks for what is to be known. */
void mf_ahead_ask(mf_runner *r, uint32_t n_rows);
/* Once that is there: nothing is recorded so any more. Where experts of a layer were missing,
 * nothing that follows its choice has been done: it is now, up to the next layer, which is *next;
 * else that is 0. */
mf_status mf_ahead_settle(mf_runner *r, const mf_batch *batch, uint32_t *next, mf_error *error);
/* A layer whose choice was waited for: whether all of it was held. */
void mf_ahead_note(mf_runner *r, bool was_held);
/* The pass has ended, whatever became of it. */
void mf_ahead_end(mf_runner *r);

/* -- the next token's commands, recorded while the device does this one's (early.c) -- */

/* Its lists, of so many bytes of the runner's arena; nothing where the device cannot. */
size_t mf_early_bytes(const mf_runner *r, uint32_t n_sequences);
void mf_early_open(mf_runner *r, uint32_t n_sequences);
/* Whether plain batches are, as long as all experts are chosen on the device. */
bool mf_early_is_on(const mf_runner *r);
/* All of the batch is recorded: what comes after it, if that can be foreseen, now is, too. */
void mf_early_record(mf_runner *r, const mf_batch *batch);
/* Whether the batch was foreseen: then it is on its way, with its logits, as if it were recorded.
 */
bool mf_early_take(mf_runner *r, const mf_batch *batch);
/* All that a batch of one row a part records, the parts' logits too. Nothing is waited for where
 * all experts are chosen on the device. */
mf_status mf_forward_record(mf_runner *r, const mf_batch *batch, mf_error *error);
/* Where such a batch's logits go. */
void mf_forward_want(mf_runner *r, const mf_batch *batch);

/* What follows a choice that the host knows: ids of the layer, [n_rows, k]. */
mf_status mf_forward_chosen(mf_runner *r, const mf_batch *batch, uint32_t layer, const int32_t *ids,
                            mf_error *error);
/* Tells the store of experts that were chosen, held and multiplied. */
mf_status mf_forward_used(mf_runner *r, uint32_t layer, uint32_t n_rows, const int32_t *ids,
                          mf_error *error);

/* -- experts on a device of their own (expert_device.c); nothing is done where they have none -- */

/* Memory of the process for what goes there and comes back. */
mf_status mf_expert_device_prepare(mf_runner *r, mf_error *error);
/* The experts' resident scales, once they are loaded. */
mf_status mf_expert_device_copy_scales(mf_runner *r, mf_error *error);
/* Room for the sum of a row's experts. */
mf_status mf_expert_sum_reserve(mf_runner *r, mf_error *error);
/* Asks for the rows of plan.moe_x and the weights of their experts, which go there once a later
 * ticket has been waited for. */
void mf_expert_rows_ask(mf_runner *r, uint32_t n_rows);
void mf_expert_rows_send(mf_runner *r, uint32_t n_rows);
/* Each row's experts, summed, to rows_back, as moe.place says; from there to plan.expert_out. */
mf_status mf_expert_rows_sum(mf_runner *r, uint32_t n_rows, mf_error *error);
void mf_expert_rows_return(mf_runner *r, uint32_t n_rows);

/* -- such experts, lent to the dense layers' device for long runs (lend.c); nothing is done where
 * they are not -- */

/* Lists for it, and how many slots, before the experts' own device has their scales; then room for
 * operations. */
mf_status mf_lend_prepare(mf_runner *r, mf_error *error);
mf_status mf_lend_reserve(mf_runner *r, mf_error *error);
/* Once there are slots at these bytes: uploads start from there. */
void mf_lend_from(mf_runner *r, unsigned char *slots, uint64_t n_bytes, uint64_t slot_bytes);
/* A batch begins, whose rows are all of long runs or none is. */
void mf_lend_begin(mf_runner *r, const mf_batch *batch);
/* The n experts of the layer in moe.ready, at most mf_lend_most, are on their way to slots of that
 * device, where moe.ready then has their parts: what is recorded from now on finds them. */
mf_status mf_lend(mf_runner *r, uint32_t layer, uint32_t n, mf_error *error);
uint32_t mf_lend_most(const mf_runner *r);
/* What multiplies them is recorded. Those that were lent before them are released. */
mf_status mf_lend_used(mf_runner *r, mf_expert_fetch *fetch, uint32_t n, mf_error *error);
/* All are. */
mf_status mf_lend_end(mf_runner *r, mf_expert_fetch *fetch, mf_error *error);
void mf_lend_close(mf_runner *r);

/* The experts' slots on that device. */
uint64_t mf_lend_slots_bytes(const mf_runner *r);
/* The pieces that bring an expert from where it was read to a slot there, and where its parts are
 * then. */
uint32_t mf_lend_pieces(const mf_runner *r, uint32_t moe, uint32_t expert, uint64_t slot_at,
                        mf_expert_ready *ready, mf_slot_piece *pieces);

/* -- such experts that the dense layers' device has for good (give.c); likewise -- */

/* Reads them, once there is a store. */
mf_status mf_give(mf_runner *r, mf_error *error);
/* The layer's slots there, in units of lending.slot_bytes: that of expert 0, and of all slots. */
uint32_t mf_given_first(const mf_runner *r, uint32_t moe);
uint32_t mf_given_end(const mf_runner *r);
/* The first n of moe.wanted from `first` on, as if they had been fetched. */
void mf_given_ready(mf_runner *r, uint32_t layer, uint32_t first, uint32_t n);

/* -- such experts while the stream goes on (relay.c) -- */

/* Memory for it, if both devices can. */
mf_status mf_relay_prepare(mf_runner *r, mf_error *error);
/* A batch begins. */
void mf_relay_begin(mf_runner *r, const mf_batch *batch);
/* Passes on what the layer's router chose, as it lies in plan.ids, plan.weights and plan.moe_x;
 * what an earlier layer waits for is multiplied meanwhile. */
mf_status mf_relay_pass_on(mf_runner *r, const mf_batch *batch, mf_error *error);
/* plan.expert_out = the sum of the layer's experts, which is multiplied later. */
void mf_relay_await(mf_runner *r, uint32_t layer, uint32_t n_rows);
/* It is multiplied now, if the stream waits for one. */
mf_status mf_relay_settle(mf_runner *r, const mf_batch *batch, mf_error *error);
/* Whether it does: then nobody is called who may wait for others. */
static inline bool mf_relay_is_open(const mf_runner *r)
{
    return r->relay.is_open;
}
/* The pass has ended, whatever became of it: the stream waits for nothing. */
void mf_relay_end(mf_runner *r);
/* Once that is done: whether the device has given up waiting. */
mf_status mf_relay_check(mf_runner *r, mf_error *error);
/* The layer's experts, by moe.ids, of the rows that are there: their sum to rows_back. */
mf_status mf_forward_there(mf_runner *r, const mf_batch *batch, uint32_t layer, mf_error *error);

/* -- foresight (foretell.c) -- */

/* Records what the next layer's router says of the state as it is, for moe.foretold, if somebody
 * wants it; false: nobody. Before the layer's experts, after its router. */
bool mf_foretell(mf_runner *r, uint32_t layer, uint32_t n_rows);
/* Hints of the next layer, once that has come; then of those after it, whose routers are asked now
 * where that is wanted. */
void mf_foretell_hint(mf_runner *r, uint32_t layer, bool is_foretold, uint32_t n_rows);
/* A pass begins: what its first layer of experts will want, where no state need be asked. */
void mf_foretell_first(mf_runner *r, uint32_t n_rows);
/* Whether the shared expert can be a part of the state that is asked of: it is computed first. */
bool mf_foretell_can_fold(const mf_runner *r);
/* Whether it is, in this pass. */
bool mf_foretell_folds(const mf_runner *r);
/* The router's operation, of the scores in plan.router: the k experts of each row to ids. */
mf_op mf_route_op(const mf_runner *r, uint32_t layer, uint32_t n_rows, uint32_t k, mf_span ids,
                  mf_span weights);

/* Waits for a device, whose time that is; one that computes at once is not waited for. */
static inline mf_status mf_finish(mf_runner *r, mf_backend *be, mf_error *error)
{
    const mf_stage before =
        mf_profile_enter(r->profile, be->ops->runs_later ? MF_STAGE_DEVICE : MF_STAGE_COPYING);
    mf_status status = mf_backend_finish(be, error);
    (void)mf_profile_enter(r->profile, before);
    return status;
}

/* Of a pass: waits for all its devices, also where it failed with `status`, so that nothing still
 * writes to what the caller is about to give back. Returns the first failure; *error is of it. */
static inline mf_status mf_finish_all(mf_runner *r, mf_status status, mf_error *error)
{
    mf_backend *const both[] = {r->backend, r->experts};
    for (int i = 0; i < (mf_experts_are_apart(r) ? 2 : 1); i++) {
        const mf_status ended = mf_finish(r, both[i], status == MF_OK ? error : NULL);
        status = status == MF_OK ? ended : status;
    }
    return status;
}

/* What the batch's owner says between layers. */
static inline mf_status mf_batch_check(const mf_batch *batch, mf_error *error)
{
    const mf_batch_watch *w = batch->watch;
    return w->check != NULL ? w->check(w->ctx, error) : MF_OK;
}

/* Adds what the operation costs at least to the runner's counts. */
void mf_count_op(mf_runner *r, const mf_op *op);

/* Where the operation was computed at once, what is read ahead goes on: little of it is in flight
 * at a time, so that it has to be looked after. */
static inline void mf_record(mf_runner *r, const mf_op *op)
{
    mf_count_op(r, op);
    if (r->ahead.when.buffer.id != 0)
        mf_ahead_record(r, op);
    else
        r->backend->ops->record(r->backend, op);
    if ((r->foresight != NULL || r->split.is_on) && !r->backend->ops->runs_later)
        mf_expert_store_poll(r->store);
}

/* out[i] = x[rows[i]], of n_cols each. */
static inline void mf_record_copy_rows(mf_runner *r, uint32_t n_rows, mf_span x,
                                       const uint32_t *rows, mf_span out, uint32_t n_cols)
{
    const mf_op op = {.kind = MF_OP_COPY_ROWS,
                      .n_rows = n_rows,
                      .u.copy_rows = {.x = x, .out = out, .rows = rows, .n_cols = n_cols}};
    mf_record(r, &op);
}

/* Over rows of hidden_size. */
static inline void mf_record_rmsnorm(mf_runner *r, uint32_t n_rows, mf_span x, mf_span weight,
                                     mf_span out)
{
    const mf_op op = {
        .kind = MF_OP_RMSNORM,
        .n_rows = n_rows,
        .u.rmsnorm = {
            .x = x, .weight = weight, .out = out, .n_cols = r->h.hidden_size, .eps = r->h.rms_eps}};
    mf_record(r, &op);
}

/* A matmul of the batch's rows: those of long runs, and the others. */
void mf_record_matmuls(mf_runner *r, const mf_op *op);

static inline void mf_record_matmul(mf_runner *r, uint32_t n_rows, const mf_weight *w, mf_span x,
                                    mf_span y)
{
    const mf_op op = {.kind = MF_OP_MATMUL,
                      .n_rows = n_rows,
                      .u.matmul = {.x = x, .n = 1, .weight = {*w}, .y = {y}}};
    mf_record_matmuls(r, &op);
}

/* plan.h = rmsnorm(plan.x) * weight, after an operation. */
static inline mf_norm_after mf_to_h(const mf_runner *r, mf_span weight)
{
    return (mf_norm_after){.weight = weight, .out = r->plan.h, .eps = r->h.rms_eps};
}

/* What makes the next layer's input of plan.x; nothing after the last, nor of several streams. */
static inline mf_norm_after mf_next_input(const mf_runner *r, uint32_t layer)
{
    if (layer + 1 >= r->h.n_layers || r->h.n_streams != 0)
        return (mf_norm_after){.eps = 0.0f};
    return mf_to_h(r, r->weights.layers[layer + 1].input_norm);
}

/* plan.x += y, and then the norm */
static inline void mf_record_add(mf_runner *r, uint32_t n_rows, mf_span y, mf_norm_after norm)
{
    const mf_op op = {.kind = MF_OP_ADD,
                      .n_rows = n_rows,
                      .u.add = {.x = r->plan.x, .y = y, .n_cols = r->h.hidden_size, .norm = norm}};
    mf_record(r, &op);
}

/* Adds a bias of n_cols floats to each row of x; nothing where there is none (buffer id 0). */
static inline void mf_record_bias(mf_runner *r, uint32_t n_rows, mf_span x, mf_span bias,
                                  uint32_t n_cols)
{
    const mf_op op = {.kind = MF_OP_ADD,
                      .n_rows = n_rows,
                      .u.add = {.x = x, .y = bias, .n_cols = n_cols, .y_is_one_row = true}};
    if (bias.buffer.id != 0)
        mf_record(r, &op);
}

/* Rotation as the model's rope says; see mf_rope_params. */
static inline mf_op mf_rope_op(const mf_runner *r, uint32_t n_rows, mf_span x, uint32_t n_heads,
                               uint32_t row_stride, uint32_t head_stride)
{
    return (mf_op){.kind = MF_OP_ROPE,
                   .n_rows = n_rows,
                   .u.rope = {.x = x,
                              .cos = r->plan.cos,
                              .sin = r->plan.sin,
                              .n_heads = n_heads,
                              .n_rot = r->h.n_rot,
                              .row_stride = row_stride,
                              .head_stride = head_stride,
                              .interleaved = r->h.rope.interleaved}};
}

static inline void mf_record_rope(mf_runner *r, uint32_t n_rows, mf_span x, uint32_t n_heads,
                                  uint32_t row_stride, uint32_t head_stride)
{
    const mf_op op = mf_rope_op(r, n_rows, x, n_heads, row_stride, head_stride);
    mf_record(r, &op);
}

/* Room for products of n_rows rows with this matrix. */
static inline mf_status mf_reserve_matmul(mf_runner *r, const mf_weight *w, uint32_t n_rows,
                                          mf_error *error)
{
    const mf_op op = {.kind = MF_OP_MATMUL, .n_rows = n_rows, .u.matmul = {.n = 1, .weight = {*w}}};
    return mf_backend_reserve(r->backend, &op, error);
}

/* At most MF_MAX_EXPERT_PARTS pieces, to the device's slots. */
mf_ticket mf_upload_to_slots(mf_backend *be, const mf_slot_piece *pieces, uint32_t n);
/* Room for such experts, of each form that they have, on the device that multiplies them. */
mf_status mf_reserve_experts(mf_runner *r, mf_backend *be, const mf_expert_shape *shape,
                             mf_error *error);
/* Room for operations of n_chunk rows that need to know nothing else; kinds end with 0. */
mf_status mf_reserve_kinds(mf_runner *r, const mf_op_kind *kinds, mf_error *error);

#endif
