/* SPDX-License-Identifier: MIT */
/* Part of <moeflux/moeflux.h>, which programs include and which states the conventions: what an
 * engine counts while it works, and what it measures of the machine. */
#ifndef MOEFLUX_STATISTICS_H
#define MOEFLUX_STATISTICS_H

#include <moeflux/profile.h>
#include <moeflux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Counters since the engine was opened or reset, as of the layer last finished, and what is held
 * now. One "request" is one expert of one layer wanted by one evaluation step. */
typedef struct mf_stats {
    size_t struct_bytes;
    /* Evaluated. */
    uint64_t n_tokens;
    /* Requests found in a slot; read from disk. */
    uint64_t n_expert_hits;
    uint64_t n_expert_misses;
    /* Read requests sent to the drive, and their bytes, alignment included. */
    uint64_t n_reads;
    uint64_t read_bytes;
    /* Weight bytes multiplied with: of experts; of all, experts included. */
    uint64_t expert_bytes_touched;
    uint64_t weight_bytes_touched;
    /* Compute stood still for a read; at least one read was in flight. */
    uint64_t wait_us;
    uint64_t reading_us;
    uint64_t n_slots;
    uint64_t slot_bytes;
    /* Sessions open now. */
    uint64_t n_sessions;
    /* Of state_bytes: what sessions and marks hold, what is free, and what marks, of
     * which old ones make room, hold of it. */
    uint64_t state_bytes_used;
    uint64_t state_bytes_free;
    uint64_t mark_bytes_used;

    /* Experts foreseen (mf_engine_options.predict), and so read ahead. Taken, of those neither held
     * nor on their way; of these, asked for when they were held, or while they were still on their
     * way; given up before they were sent whole; and read for nothing, or in vain. */
    uint64_t n_hints, n_hints_useful, n_hints_late, n_hints_cancelled, n_hints_wasted;
    /* Experts that wait for their drive now, asked for or foreseen. */
    uint64_t n_queued;
    /* Taken of GPUs' memory now, of all that device_bytes bounds. */
    uint64_t device_bytes_taken;

    /* Where the experts' device has memory of its own, which is where their slots are: of the
     * misses, those found in the process's memory and uploaded without a read; bytes uploaded, of
     * these and of what was read; experts that the process's memory holds at most. */
    uint64_t n_expert_host_hits;
    uint64_t upload_bytes;
    uint64_t n_host_slots;

    /* Bytes read ahead, and of them those read for nothing; what reading took, up to their request,
     * of those that were asked for afterwards, and of those read for nothing. */
    uint64_t hint_bytes, hint_wasted_bytes, hint_saved_us, hint_wasted_us;

    /* Time of evaluations by mf_stage, while mf_engine_profile takes it; else 0. */
    uint64_t stage_us[MF_STAGES];

    /* Tokens proposed and evaluated ahead (mf_engine_options.n_draft_tokens), and of them those
     * that a call then brought; n_tokens counts the latter alone. And whether tokens are proposed
     * now. */
    uint64_t n_proposed, n_kept;
    uint64_t proposes;

    /* System calls made for reads of experts; with the pool of threads those that read alone. */
    uint64_t n_read_calls;

    /* Passes of several sessions that were evaluated in halves, one computing while the other's
     * experts were read. */
    uint64_t n_split_passes;

    /* What evaluating costs at least: multiply-adds of products and of attention; bytes of caches
     * and recurrent states that are read and written, each once for all rows of a sequence that are
     * evaluated together. */
    uint64_t n_multiply_adds;
    uint64_t state_bytes_touched;
} mf_stats;

/* From any thread, at any time: it waits for no evaluation. */
MF_API void mf_engine_stats_sized(const mf_engine *engine, mf_stats *out, size_t struct_bytes);
static inline void mf_engine_stats(const mf_engine *engine, mf_stats *out)
{
    mf_engine_stats_sized(engine, out, sizeof *out);
}
/* The counters begin at 0 again. From any thread, at any time. */
MF_API void mf_engine_stats_reset(mf_engine *engine);

/* Where an expert is. */
typedef enum mf_expert_state {
    /* On the drive alone. */
    MF_EXPERT_ABSENT = 0,
    /* It has a slot, and waits for its drive. */
    MF_EXPERT_QUEUED,
    MF_EXPERT_READING,
    /* In a slot: whoever asks for it has it. */
    MF_EXPERT_HELD,
    /* In the process's memory, below the slots of a GPU with memory of its own: it is uploaded
     * without being read. */
    MF_EXPERT_BELOW
} mf_expert_state;

/* Looks at the experts of one of the n_moe_layers layers that have some: states[i] is an
 * mf_expert_state, n_uses[i] how often an evaluation step asked for expert i since the engine was
 * opened (after 2^32 - 1 comes 0); those of the first `capacity` experts, and either may be NULL.
 * Returns n_experts; 0: there is no such layer. From any thread, at any time: it waits for nothing,
 * and holds nothing up; each figure was true when it was read, though no two are promised to be of
 * the same moment. */
MF_API size_t mf_engine_expert_states(const mf_engine *engine, uint32_t layer, uint8_t *states,
                                      uint32_t *n_uses, size_t capacity);

/* "io_uring" or "pool", and the CPU tier in use ("scalar", "avx2", "neon" ...). Static storage. */
MF_API const char *mf_engine_io_name(const mf_engine *engine);
MF_API const char *mf_engine_cpu_name(const mf_engine *engine);

/*
 * Reads random experts from the model's own files for about n_milliseconds, in the requests that
 * evaluation makes (direct I/O where the file system has it), one token's experts of one layer in
 * flight, into the expert cache, which holds them afterwards: the drive's raw bandwidth for this
 * model's requests and this cache; 0 for a model without experts. Waits for its turn among the
 * evaluations. Errors: MF_ERR_ARGUMENT, MF_ERR_NO_MEMORY, MF_ERR_IO, MF_ERR_FORMAT, MF_ERR_STATE
 * (from a callback).
 */
MF_API MF_MUST_CHECK mf_status mf_engine_measure_drive(mf_engine *engine, uint32_t n_milliseconds,
                                                       double *bytes_per_second, mf_error *error);

/* How long an expert that is read alone takes beyond what its bytes take at the bandwidth of
 * mf_engine_measure_drive, in microseconds: what mf_replay_options.latency_us stands for. Both are
 * measured, one after the other, for about n_milliseconds together; 0 for a model without experts.
 * Waits and fails as mf_engine_measure_drive. */
MF_API MF_MUST_CHECK mf_status mf_engine_measure_latency(mf_engine *engine, uint32_t n_milliseconds,
                                                         double *latency_us, mf_error *error);

/* Sequential read bandwidth of the memory (a GPU's own) over the engine's weights and filled expert
 * slots, and float32 multiply-adds per second of the engine's compute threads or its GPU, each
 * measured for about n_milliseconds. Waits and fails as mf_engine_measure_drive. */
MF_API MF_MUST_CHECK mf_status mf_engine_measure_compute(mf_engine *engine, uint32_t n_milliseconds,
                                                         double *dram_bytes_per_second,
                                                         double *fma_per_second, mf_error *error);

/* Bandwidth of the link to a GPU that has memory of its own, and from it, between there and memory
 * of the process that it reaches, each measured for about n_milliseconds; both 0 where no device in
 * use has memory of its own. Waits and fails as mf_engine_measure_drive. */
MF_API MF_MUST_CHECK mf_status mf_engine_measure_link(mf_engine *engine, uint32_t n_milliseconds,
                                                      double *to_bytes_per_second,
                                                      double *from_bytes_per_second,
                                                      mf_error *error);

/* What a GPU did for one kind of operation. */
typedef struct mf_operation_time {
    /* "matmul", "experts"; static storage. */
    const char *name;
    uint64_t n;
    double seconds;
} mf_operation_time;

/* A GPU's time by kinds of operations is taken from now on (on not 0) or not any more; what was
 * taken is forgotten. It costs a little time. MF_ERR_UNSUPPORTED: no device in use can. Waits and
 * fails as mf_engine_measure_drive. */
MF_API MF_MUST_CHECK mf_status mf_engine_time_operations(mf_engine *engine, int on,
                                                         mf_error *error);
/* Fills out[0 .. capacity - 1] with what was taken of the work that is done, and returns how many
 * kinds there are. The time of an operation includes what was waited for before it could begin, and
 * transfers before it. */
MF_API size_t mf_engine_operation_times(mf_engine *engine, mf_operation_time *out, size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
