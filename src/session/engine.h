/* SPDX-License-Identifier: MIT */
/* The engine: one opened checkpoint with everything that its sessions share. */
#ifndef MF_SESSION_ENGINE_H
#define MF_SESSION_ENGINE_H

#include "model/model.h"
#include "session/state_pool.h"
#include "session/turn.h"
#include "state/snapshot_format.h"

#include <pthread.h>

struct mf_io_engine;

/* Host-side lists for the experts of one layer and chunk; sized once, in the engine's arena. */
typedef struct mf_moe_lists {
    int32_t *ids;           /* [chunk * k] the router's choice */
    uint32_t *place;        /* [chunk * k] row of expert_out that holds it */
    uint32_t *x_rows;       /* [chunk * k] tokens, expert by expert */
    uint32_t *first;        /* [experts + 1] where each expert's rows begin */
    uint32_t *wanted;       /* [experts] the distinct experts, in rising order */
    mf_expert_item *items;  /* [MF_READY_MAX] */
    mf_expert_ready *ready; /* [MF_READY_MAX] */
} mf_moe_lists;

#define MF_READY_MAX 32

struct mf_engine {
    mf_allocator allocator;
    mf_engine_options options;
    mf_hparams h;
    mf_plan plan;
    mf_model_info info;
    mf_model_weights weights;
    mf_expert_part *parts;
    size_t parts_bytes;
    uint32_t *each_file;
    uint64_t *each_offset;
    size_t each_count;
    mf_backend *backend;
    mf_buffer resident, slots, act;
    uint32_t n_threads; /* of the CPU */
    mf_io *io;
    mf_expert_store *store;
    mf_arena arena;
    mf_moe_lists moe;
    mf_sequence *sequences;           /* [n_sessions], of the layer at hand */
    mf_sequence *sequence_cuts;       /* [n_sessions], those of a few of its rows */
    uint32_t *row_list;               /* [n_logit_rows] */
    int32_t *row_tokens;              /* [n_chunk] */
    struct mf_batch_part *parts_list; /* [n_sessions], of the chunk at hand */
    float *each_logits;               /* [n_vocab] */
    /* What sessions hold; see session.h. */
    mf_turn turn;
    pthread_mutex_t state_lock;
    bool has_locks;
    mf_layer_state *layers; /* [n_layers] */
    mf_state_pool pool;
    mf_session *first_session;
    uint32_t n_sessions; /* open now */
    uint64_t checkpoint_limit, checkpoint_bytes, n_uses;
    void (*tokens_changed)(void *user, mf_session *session, uint64_t n_kept);
    void *tokens_changed_user;
    /* Reuse of what sessions and the store hold; under the state lock. */
    mf_snapshot_key snapshot_key;
    bool has_snapshot_key;
    struct mf_session_index *session_index; /* NULL until the first sync */
    mf_store *prefix_store;                 /* or NULL */
    uint64_t n_tokens, expert_bytes_touched, weight_bytes_start;
};

/* mf_engine_open with the I/O engine given (NULL: by options.io); for tests that inject faults. */
mf_status mf_engine_open_with_io(const char *path, const mf_engine_options *options,
                                 const struct mf_io_engine *io_engine, void *io_arg,
                                 mf_engine **out, mf_error *error);

#endif
