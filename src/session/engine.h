/* SPDX-License-Identifier: MIT */
/* The engine: one opened checkpoint with everything that its sessions share. */
#ifndef MF_SESSION_ENGINE_H
#define MF_SESSION_ENGINE_H

#include "backend/devices.h"
#include "base/checksum.h"
#include "forward/runner.h"
#include "session/draft_profit.h"
#include "session/forecast.h"
#include "session/session_apart.h"
#include "session/state_pool.h"
#include "session/turn.h"
#include "state/snapshot_format.h"

#include <pthread.h>

struct mf_io_engine;
struct mf_engine_routing;
struct mf_memory_sample;

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
    mf_draft_part *draft_parts; /* [n_sessions], where tokens are proposed */
    mf_apart apart;             /* with the turn */
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
    mf_forecast_rates rates;           /* the same */
    mf_input_sums inputs;              /* rows NULL until somebody sums; with the turn */
    struct mf_engine_routing *routing; /* NULL until somebody records or follows; with the turn */
    mf_profile *profile;   /* NULL: nobody wants to know; with the turn, as the next two */
    mf_timeline *timeline; /* or NULL */
    bool is_profiled;      /* not for a timeline alone */
    struct mf_engine_memory *memory; /* NULL: the cache does not change */
    struct mf_engine_hot *hot;       /* NULL: not kept */
    mf_draft_profit draft_profit;    /* with the turn, as the next */
    uint64_t draft_bytes, draft_us;  /* read, and the time, as of the beginning of the pass */
    bool has_draft_failed;           /* the layer that proposes cannot be run: nothing is */
    uint64_t n_proposed, n_kept;     /* tokens */
    /* Shown what is proposed; NULL: nobody watches. */
    void (*draft_watch)(void *ctx, const mf_session *session, uint32_t round, const float *logits);
    void *draft_watch_ctx;
    uint64_t n_sessions_ever; /* under the state lock */
    uint64_t
        n_cuts; /* whose turn it is where a chunk has fewer rows than sessions; with the turn */
};

/* Ends profile and timeline; what could not be written is told to the log. */
void mf_engine_profile_free(mf_engine *engine);
/* Of an engine that is being opened; path NULL: none. */
mf_status mf_engine_timeline_begin(mf_engine *engine, const char *path, mf_error *error);
void mf_engine_count_stages(const mf_profile *profile, mf_stats *out);
/* Experts asked for most, kept in a directory (NULL: nowhere), of an engine that is being opened;
 * what is damaged there is told to the log. And when it is closed, before its store. */
mf_status mf_engine_hot_begin(mf_engine *engine, const char *directory, mf_error *error);
void mf_engine_hot_end(mf_engine *engine);
/* Of shapes, config and dense weights alone. */
mf_status mf_engine_dense_fingerprint(mf_engine *engine, uint8_t out[MF_FINGERPRINT_BYTES],
                                      mf_error *error);
/* Ends recording and following. */
void mf_engine_routing_free(mf_engine *engine);
void mf_engine_inputs_free(mf_engine *engine);

/* What an engine is built on, where it is not what its options name; each may be NULL. */
typedef struct mf_engine_hooks {
    const struct mf_io_engine *io_engine; /* reads the experts */
    void *io_arg;
    mf_backend_open_fn open_backend;
    void *backend_ctx;
    mf_backend_open_fn open_experts; /* theirs, apart from the other */
    void *experts_ctx;
    void (*memory_sample)(void *ctx, struct mf_memory_sample *out); /* what the machine can spare */
    void *memory_ctx;
    mf_device_choose_fn choose_device; /* for "auto" */
} mf_engine_hooks;

/* mf_engine_open with hooks; for tests. */
mf_status mf_engine_open_with(const char *path, const mf_engine_options *options,
                              const mf_engine_hooks *hooks, mf_engine **out, mf_error *error);

#endif
