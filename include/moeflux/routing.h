/* SPDX-License-Identifier: MIT */
/* Part of <moeflux/moeflux.h>, which programs include and which states the conventions: traces of
 * which experts the router chose (mf_engine_record_routing writes them), and what another machine
 * or another cache would make of them. */
#ifndef MOEFLUX_ROUTING_H
#define MOEFLUX_ROUTING_H

#include <moeflux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which experts are read before the router has asked for them. Never more than a matter of time:
 * the results are the same, bit for bit. Each is given up by itself where it does not pay. */
typedef enum mf_predict {
    /* The best of those below but the last. */
    MF_PREDICT_AUTO = 0,
    MF_PREDICT_OFF = 1,
    /* What the next layer's router says of the state before this layer's experts. */
    MF_PREDICT_NEXT_LAYER = 2,
    /* What the token before was given. */
    MF_PREDICT_LAST_TOKEN = 3,
    /* What the layer asks for most often. */
    MF_PREDICT_FREQUENCY = 4,
    /* What will not be asked for; for tests. */
    MF_PREDICT_WRONG = 5
} mf_predict;

/* "auto", "off", "next-layer", "last-token", "frequency", "wrong"; NULL for another value. */
MF_API const char *mf_predict_name(mf_predict predict);
#define MF_PREDICT_DEPTH_MOST 3
/* The names that cache_policy takes, the engine's own first: "next-use", "lru", ...; NULL behind
 * the last. */
MF_API const char *mf_cache_policy_name(size_t i);

typedef struct mf_routing mf_routing;

/* A trace, whole in memory, checked. allocator may be NULL. Errors: MF_ERR_NOT_FOUND, MF_ERR_IO,
 * MF_ERR_FORMAT (no trace, or a damaged one; the message names the byte), MF_ERR_UNSUPPORTED
 * (another version), MF_ERR_NO_MEMORY. The caller closes it, after engines that follow it. */
MF_API MF_MUST_CHECK mf_status mf_routing_open(const char *path, const mf_allocator *allocator,
                                               mf_routing **out, mf_error *error);
MF_API void mf_routing_close(mf_routing **routing);

typedef struct mf_routing_info {
    size_t struct_bytes;
    /* As mf_model_info.family. */
    char family[32];
    /* With experts. */
    uint32_t n_layers;
    uint32_t n_experts;
    uint32_t n_experts_per_token;
    /* Evaluations, and tokens of all of them. */
    uint64_t n_passes;
    uint64_t n_tokens;
    /* Layers of passes of which it was noted what the router had foretold. */
    uint64_t n_foretold;
    /* Read for one expert, and one slot, the means; of the recording engine's budget, what is
     * beside slots. */
    uint64_t expert_bytes;
    uint64_t slot_bytes;
    uint64_t fixed_bytes;
    /* Of all passes, as they were recorded: their time, and of it that in which they waited. */
    uint64_t elapsed_us;
    uint64_t waited_us;
} mf_routing_info;

MF_API void mf_routing_get_info_sized(const mf_routing *routing, mf_routing_info *out,
                                      size_t struct_bytes);
static inline void mf_routing_get_info(const mf_routing *routing, mf_routing_info *out)
{
    mf_routing_get_info_sized(routing, out, sizeof *out);
}

/* The machine to be simulated. Fill with mf_replay_options_default, then change what is needed. */
typedef struct mf_replay_options {
    size_t struct_bytes;
    /* Expert slots; 0: as many as ram_bytes has room for beside the trace's fixed_bytes. */
    uint64_t n_slots;
    uint64_t ram_bytes;
    /* The drive: what it reads at most, and what a read takes before its first byte. */
    double drive_bytes_per_second;
    double latency_us;
    /* Computing a token; 0: as recorded. */
    double compute_us;
    /* As mf_engine_options.cache_policy. */
    const char *cache_policy;
    /* MF_PREDICT_NEXT_LAYER foretells what was foretold when the trace was recorded. */
    mf_predict predict;
    /* Passes from this one on count; those before fill the cache. */
    uint64_t n_passes_before;
} mf_replay_options;

MF_API void mf_replay_options_init(mf_replay_options *options, size_t struct_bytes);
/* 3.5 GB/s after 80 us, computing as recorded, the engine's own policy, nothing foreseen. */
static inline void mf_replay_options_default(mf_replay_options *options)
{
    mf_replay_options_init(options, sizeof *options);
}

typedef struct mf_replay_result {
    size_t struct_bytes;
    uint64_t n_slots;
    uint64_t n_tokens;
    /* As mf_stats counts them. */
    uint64_t n_expert_hits;
    uint64_t n_expert_misses;
    uint64_t n_reads;
    uint64_t read_bytes;
    uint64_t n_hints;
    uint64_t n_hints_useful;
    uint64_t n_hints_late;
    uint64_t n_hints_cancelled;
    uint64_t n_hints_wasted;
    /* Of as many requests, those that hit by Belady's rule, which knows the future: no policy that
     * reads what is asked for has more. */
    uint64_t n_best_hits;
    /* The machine's time; of it waiting for reads, and with a read in flight. */
    double seconds;
    double wait_seconds;
    double reading_seconds;
} mf_replay_result;

MF_API MF_MUST_CHECK mf_status mf_routing_replay_sized(const mf_routing *routing,
                                                       const mf_replay_options *options,
                                                       mf_replay_result *out, size_t struct_bytes,
                                                       mf_error *error);
/*
 * Runs the engine's own expert store over the trace, on a drive and a clock that are numbers.
 * Errors: MF_ERR_ARGUMENT (an unknown policy, a drive of no speed), MF_ERR_BUDGET (no room for one
 * token's experts of a layer), MF_ERR_NO_MEMORY.
 */
MF_MUST_CHECK static inline mf_status mf_routing_replay(const mf_routing *routing,
                                                        const mf_replay_options *options,
                                                        mf_replay_result *out, mf_error *error)
{
    return mf_routing_replay_sized(routing, options, out, sizeof *out, error);
}

#ifdef __cplusplus
}
#endif
#endif
