/* SPDX-License-Identifier: MIT */
/* The engine: one opened checkpoint with everything that its sessions share. */
#ifndef MF_SESSION_ENGINE_H
#define MF_SESSION_ENGINE_H

#include "forward/runner.h"
#include "session/state_pool.h"
#include "session/turn.h"
#include "state/snapshot_format.h"

#include <pthread.h>

struct mf_io_engine;
struct mf_engine_routing;

struct mf_engine {
    mf_allocator allocator;
    mf_engine_options options;
    mf_model_info info;
    mf_runner runner;
    const mf_cache_policy *cache_policy;
    uint32_t n_threads; /* of the CPU */
    /* [n_sessions], the chunk at hand: as the runner sees it, and whose it is. */
    mf_batch_part *parts_list;
    mf_session **parts_sessions;
    /* What sessions hold; see session.h. */
    mf_turn turn;
    pthread_mutex_t state_lock;
    bool has_locks;
    mf_state_pool pool;
    mf_session *first_session;
    uint32_t n_sessions; /* open now */
    uint64_t mark_limit, mark_bytes, n_uses;
    void (*tokens_changed)(void *user, mf_session *session, uint64_t n_kept);
    void *tokens_changed_user;
    /* Reuse of what sessions and the store hold; under the state lock. */
    mf_snapshot_key snapshot_key;
    bool has_snapshot_key;
    struct mf_session_index *session_index; /* NULL until the first sync */
    mf_store *prefix_store;                 /* or NULL */
    /* Counters as of the layer last finished, and as of the last reset; under the state lock. */
    mf_stats counted, counted_before;
    struct mf_engine_routing *routing; /* NULL until somebody records or follows; with the turn */
    uint64_t n_sessions_ever;          /* under the state lock */
    uint64_t
        n_cuts; /* whose turn it is where a chunk has fewer rows than sessions; with the turn */
};

/* Ends recording and following. */
void mf_engine_routing_free(mf_engine *engine);

/* What an engine is built on, where it is not what its options name; each may be NULL. */
typedef struct mf_engine_hooks {
    const struct mf_io_engine *io_engine; /* reads the experts */
    void *io_arg;
    mf_backend_open_fn open_backend;
    void *backend_ctx;
    mf_backend_open_fn open_experts; /* theirs, apart from the other */
    void *experts_ctx;
} mf_engine_hooks;

/* mf_engine_open with hooks; for tests. */
mf_status mf_engine_open_with(const char *path, const mf_engine_options *options,
                              const mf_engine_hooks *hooks, mf_engine **out, mf_error *error);

#endif
