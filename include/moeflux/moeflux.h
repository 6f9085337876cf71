/* SPDX-License-Identifier: MIT */
/*
 * moeflux: runs Mixture-of-Experts language models that are larger than memory. The dense weights
 * stay resident; the experts are read from disk as the router asks for them.
 *
 * Objects: an mf_engine is one opened checkpoint; an mf_session is one sequence evaluated by it; an
 * mf_tokenizer turns text into token ids and back; an mf_sampler chooses the next token from
 * logits, an mf_guide bounds it by a grammar; an mf_reply takes apart what was said. All but the
 * first two, and what a checkpoint is, an engine's counters and measurements, are declared in the
 * other headers of this folder, which are included here.
 *
 * Conventions. A function that can fail returns mf_status: MF_OK (0) or a negative code. Results
 * come by out-pointer and are untouched on failure. Where an mf_error * is taken it may be NULL; on
 * failure it is filled with one line that names the file, the field and what was expected. A NULL
 * that is not allowed is MF_ERR_ARGUMENT, whether a function's list of errors says so or not; one
 * that returns no status (mf_session_position, mf_sampler_sample) must not be given any. Strings
 * are UTF-8. Paths and option structs are copied, never kept. Every *_free / *_close takes a
 * pointer to the handle, accepts NULL and NULL handles, and sets the handle to NULL. The library
 * never prints, exits, or reads the environment, and has no mutable globals: any number of engines
 * may be open in one process.
 *
 * Sizes. A struct that later versions may extend begins with struct_bytes: its size as the caller's
 * compiler sees it. *_default and the functions that fill such a struct pass it on, so that a
 * program and a library of different versions agree on the fields that both know: an option that
 * the program does not know has its default; one that the library does not know is refused with
 * MF_ERR_ARGUMENT unless its bytes are zero; and a result's struct_bytes says how much of it was
 * filled. The *_init and *_sized functions are for bindings, which pass the size themselves.
 *
 * Threads. Different engines, tokenizers and samplers may be used from different threads at once.
 * The sessions of one engine may be used from different threads, each session by one thread at a
 * time; their evaluations take turns (evaluate them together with mf_engine_eval to share the
 * work). Only mf_session_cancel may be called while another thread uses the session. Closing an
 * engine or a store wants it to itself. A tokenizer is read-only after it was opened and may be
 * shared.
 *
 * Callbacks. From a progress or logits callback the engine may be asked and sessions forked, saved
 * and stored, but nothing may be evaluated or measured, and no session that the call evaluates may
 * be changed: what would do so returns MF_ERR_STATE before it has changed anything, or, where it
 * returns nothing (mf_session_clear, mf_session_free, mf_engine_close), does nothing.
 */
#ifndef MOEFLUX_MOEFLUX_H
#define MOEFLUX_MOEFLUX_H

#include <moeflux/convert.h>
#include <moeflux/devices.h>
#include <moeflux/grammar.h>
#include <moeflux/info.h>
#include <moeflux/profile.h>
#include <moeflux/reply.h>
#include <moeflux/routing.h>
#include <moeflux/sampling.h>
#include <moeflux/statistics.h>
#include <moeflux/text.h>
#include <moeflux/types.h>

#define MF_VERSION_MAJOR 0
#define MF_VERSION_MINOR 1
#define MF_VERSION_PATCH 0
#define MF_VERSION_STRING "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* The library's version, "MAJOR.MINOR.PATCH". Static storage. */
MF_API const char *mf_version(void);

/* ---------------------------------------- engine ---------------------------------------- */

typedef struct mf_session mf_session;

typedef enum mf_io_kind {
    /* io_uring where a probe finds it, else the thread pool. */
    MF_IO_AUTO = 0,
    /* Fails with MF_ERR_UNSUPPORTED where the kernel has none. */
    MF_IO_URING = 1,
    /* Positional reads on threads. */
    MF_IO_POOL = 2
} mf_io_kind;

/* How keys and values, or the latents of multi-head latent attention, are cached: in float32; in
 * bfloat16, half as large; in 8 bits with a scale for each 32 values of a head, a little more than
 * a quarter, of all families but DeepSeek-V4. */
typedef enum mf_kv_type { MF_KV_F32 = 0, MF_KV_BF16 = 1, MF_KV_Q8 = 2 } mf_kv_type;

/* When tokens are proposed (mf_engine_options.n_draft_tokens). */
typedef enum mf_draft {
    /* While it is measured to pay: where experts are read, in bytes read for each token; else in
     * time. */
    MF_DRAFT_AUTO = 0,
    MF_DRAFT_ALWAYS = 1
} mf_draft;

/* Tokens that may be proposed at once. */
#define MF_DRAFT_TOKENS_MOST 8

/* What is made of a machine with several nodes, memory that is near to some CPUs and far from the
 * others. The results are the same. */
typedef enum mf_numa {
    /* As mf_device_info.numa_use says; nothing with fewer threads than nodes, and nothing where the
     * allocator is the caller's. The caller's threads go where they like. */
    MF_NUMA_AUTO = 0,
    /* Nothing. */
    MF_NUMA_OFF = 1
} mf_numa;

typedef enum mf_log_level { MF_LOG_INFO = 0, MF_LOG_WARNING = 1 } mf_log_level;

/* Receives notes and warnings: one line without newline, valid during the call only. */
typedef void (*mf_log_fn)(void *user, mf_log_level level, const char *line);

#define MF_EXPERT_CACHE_AUTO UINT64_MAX

/* Fill with mf_engine_options_default, then change what is needed. */
typedef struct mf_engine_options {
    size_t struct_bytes;
    /* All zero: the C library's. */
    mf_allocator allocator;

    /* A promise: the process's peak resident memory; 0: from what is available now, and while
     * others need memory, experts' slots are given back to the system, and taken again later,
     * within a second or so (unless expert_cache_bytes says how many, the allocator is the
     * caller's, or a GPU has them); mf_stats.n_slots says how many there are. What lies in a
     * device's own memory is not of it. */
    uint64_t ram_bytes;
    /* Of ram_bytes, expert slots alone; 0: the least possible; MF_EXPERT_CACHE_AUTO: what is left.
     * It bounds slots in a device's own memory likewise. */
    uint64_t expert_cache_bytes;
    /* Of ram_bytes, blocks and recurrent states of all sessions and marks together; 0: one
     * session of n_context_tokens and a little more for each other session. */
    uint64_t state_bytes;
    /* Of state_bytes, what marks alone may hold; 0: a quarter. */
    uint64_t mark_bytes;

    /* Sessions that may be open at once; 1 to 200. */
    uint32_t n_sessions;
    /* Per session; 0: 4096 or the model's own limit if that is less. */
    uint32_t n_context_tokens;
    /* Tokens evaluated together, of all sessions; 0: 512, or with one session on a CPU, where
     * experts are read for each chunk, up to 4096, as far as an eighth of their memory pays for
     * that. */
    uint32_t n_chunk_tokens;
    /* 0: the model's own; less renormalises over those kept; more is an error. */
    uint32_t n_experts_per_token;
    /* Packed form only, elsewhere an error: 4 or 2; 0: whichever directory exists, 4 first. */
    uint32_t packed_expert_bits;
    /* Compute threads; 0: one per available core. */
    uint32_t n_threads;
    /* Which kernels the CPU computes with: NULL or "auto", the best that it has; "scalar", plain C;
     * "avx2" (with FMA and F16C), "avx-vnni" (and AVX-VNNI), "avx512-bw" (F, BW, DQ, VL),
     * "avx512-vnni" (and VNNI), "avx512" (and VBMI), "avx512-amx" (and tiles of bytes, which the
     * kernel has to permit) or "avx512-amx-bf16" (and of bfloat16, for BF16 and FP8 weights) of
     * x86-64;
     * "neon", "neon-dotprod" (and SDOT) or "neon-i8mm" (and SMMLA) of 64-bit ARM. One that this CPU
     * lacks is MF_ERR_ARGUMENT; the message lists those that it has. Read by the call alone. */
    const char *cpu_tier;
    mf_io_kind io;
    /* Of cached keys, values and latents. A device that cannot compute with it refuses it at
     * opening (MF_ERR_UNSUPPORTED); "auto" takes one that can. */
    mf_kv_type kv_type;

    /* May be NULL. */
    mf_log_fn log;
    void *log_user;

    /* What computes: "cpu" (also NULL), "vulkan" (the best GPU), "vulkan:N" as mf_device_list has
     * it. "auto": a discrete GPU that has what is needed and memory for the model's dense part,
     * else the CPU. Read by the call alone. */
    const char *device;
    /* Where experts are kept and multiplied; NULL or "auto": the same device. "hybrid": kept in the
     * process's memory, and multiplied by the CPU, but those of long runs (128 tokens and more that
     * come in one call) by `device`, to which they are sent each time; what a row's bits depend on
     * is then its own run. The memory is not given back while the engine is open. Not with
     * n_draft_tokens (MF_ERR_UNSUPPORTED); the same as "cpu" where `device` is the CPU.
     * "hybrid:N": likewise, but the experts of the first N layers that have any are kept and
     * multiplied by `device`, whatever the run (MF_ERR_BUDGET where it has no room for them);
     * "hybrid:auto": of as many as it has room for beside what else it holds, so that bits depend
     * on device_bytes; mf_model_info.expert_device says how many. */
    const char *expert_device;
    /* A promise, of each GPU in use: what is taken of its memory, driver's own needs not counted;
     * 0: most of what is free there. (Where that memory is the process's, ram_bytes holds too.)
     * MF_ERR_ARGUMENT where there is no GPU in use. */
    uint64_t device_bytes;
    mf_precision precision;
    /* Where GPUs' compiled shaders are kept, in files that begin with "vulkan-", so that the next
     * opening is faster; made if missing. NULL: nowhere. One that cannot be used is no error. Read
     * by the call alone. */
    const char *cache_dir;
    /* Which expert makes room for another: "next-use" (also NULL), the one that is expected to be
     * wanted last; "lru", least recently used; "lfu", least frequently used, with ageing (its
     * search takes time where slots are many); "s3-fifo", which sweeps pass through. Read by the
     * call alone. */
    const char *cache_policy;
    /* What is read before the router has asked. Of experts in slots on a GPU MF_PREDICT_AUTO is
     * MF_PREDICT_NEXT_LAYER if all are in RAM and fewer than 90 % have slots, else
     * MF_PREDICT_OFF. */
    mf_predict predict;
    /* As mf_engine_record_timeline, from the start; NULL: none. What cannot be written in the end
     * is told to the log. Read by the call alone. */
    const char *timeline;
    /* Where it is kept which experts were asked for most, in a small file for each model that
     * begins with "hot-": they are read first at the next opening, and the cache knows that they
     * are worth keeping. Written when the engine is closed; made if missing. One that cannot be
     * used is no error, but told to the log. NULL: nowhere. Read by the call alone. */
    const char *hot_dir;
    /* Up to 4 directories on other drives that have copies of the checkpoint's files, or of some of
     * them, under the same names: each read of an expert goes to the drive that is expected to have
     * it first. A copy that is not as long, or begins or ends with other bytes, is refused
     * (MF_ERR_FORMAT). A drive that fails is left out, which the log is told. Read by the call
     * alone. */
    const char *const *mirrors;
    uint32_t n_mirrors;
    /* Up to MF_DRAFT_TOKENS_MOST; 0: the checkpoint's multi-token-prediction layer is left out.
     * Else it is loaded, and where a session evaluates one token it proposes so many that may
     * follow; they are evaluated in the same pass, and a call that then brings the token that was
     * proposed finds it done. Nothing else changes: not a bit of the logits. Costs memory (the
     * layer, and as many recurrent states and logits more for each session); states and snapshots
     * are other files' than without. MF_ERR_UNSUPPORTED: the checkpoint has no such layer. */
    uint32_t n_draft_tokens;
    mf_draft draft;
    /* Layers ahead that `predict` asks routers of, up to MF_PREDICT_DEPTH_MOST; 0: as many as are
     * measured to pay. */
    uint32_t predict_depth;
    /* A checkpoint whose weights are still coming: called before bytes of an open file of its are
     * read, from any thread, several at once; returns 0 when they are there, however long that
     * takes, or the errno that the read fails with. Bytes beyond the file's end count as there.
     * Descriptors (configs, tokenizer, headers of files with weights) are to be there before, and
     * files as long as they will be. Reads are those of the thread pool then. NULL: all is there.
     */
    int (*await_bytes)(void *user, int fd, uint64_t offset, uint64_t n_bytes);
    void *await_user;
    mf_numa numa;
} mf_engine_options;

/* What mf_engine_options_default calls, with the size that the caller's compiler gives the struct.
 */
MF_API void mf_engine_options_init(mf_engine_options *options, size_t struct_bytes);

/* One session, everything else by itself. */
static inline void mf_engine_options_default(mf_engine_options *options)
{
    mf_engine_options_init(options, sizeof *options);
}

/*
 * Opens a checkpoint, a directory or a GGUF file: checks every tensor, loads the dense weights,
 * sets up the expert store. ram_bytes has room for a process with one tokenizer and a prompt's
 * text; what the process already holds beyond that counts against it: load what is large first. The
 * floor_bytes that mf_model_inspect told is accepted. The caller owns *out and closes it after all
 * of its sessions. Errors: as mf_model_inspect, and MF_ERR_BUDGET, whose message names each part of
 * the floor. Nothing is left behind on failure.
 */
MF_API MF_MUST_CHECK mf_status mf_engine_open(const char *path, const mf_engine_options *options,
                                              mf_engine **out, mf_error *error);
/* Does nothing from a callback of an evaluation. */
MF_API void mf_engine_close(mf_engine **engine);

/* Writes which experts the router chooses from now on to a file (docs/FORMATS.md); NULL, or closing
 * the engine: no more. Evaluations that fail are left out. Takes memory beside the budget (5 bytes
 * for each choice of a chunk), and GPUs wait for the host in each layer. A file that cannot be
 * written stops no evaluation: the call that ends the recording tells. Waits and fails as
 * mf_engine_measure_drive. */
MF_API MF_MUST_CHECK mf_status mf_engine_record_routing(mf_engine *engine, const char *path,
                                                        mf_error *error);

/* The router's choices are a trace's from now on: position p of any session is its token p, modulo
 * their number; layer l its layer l, and after its last one its second, of which it may have what
 * was foretold, and so on. For measuring checkpoints of random weights: results mean nothing. NULL:
 * no more; the trace is borrowed until then. Waits and fails likewise;
 * MF_ERR_UNSUPPORTED: of other numbers of experts. */
MF_API MF_MUST_CHECK mf_status mf_engine_follow_routing(mf_engine *engine,
                                                        const mf_routing *routing, mf_error *error);

/* From now on the squares of what the experts of each layer are given are added to sums, [layers
 * with experts][hidden size], for every token that is evaluated: which columns matter, for
 * mf_convert_options.input_squares. NULL: no more; the sums are borrowed until then. Takes memory
 * beside the budget, a chunk's rows. Waits and fails as mf_engine_measure_drive. */
MF_API MF_MUST_CHECK mf_status mf_engine_sum_inputs(mf_engine *engine, double *sums,
                                                    mf_error *error);

/* The names of the model families this build runs, NULL-terminated; static storage. */
MF_API const char *const *mf_families(void);

/* ---------------------------------------- session ---------------------------------------- */

/* Called after each layer with the work done so far of the call's n_total, in arbitrary units; of a
 * step, of its chunk. Non-zero cancels the session's part of the call. */
typedef int (*mf_progress_fn)(void *user, uint64_t n_done, uint64_t n_total);

/* Called once per evaluated token, in order; logits[n_vocab] is valid during the call only.
 * Non-zero cancels. */
typedef int (*mf_logits_fn)(void *user, size_t token_index, const float *logits);

/*
 * What a session holds is its tokens and, for each layer, what they left behind: cached keys and
 * values (or latents) of every position, in blocks of a fixed number of positions, and, in families
 * with recurrent layers, one recurrent state. Blocks and recurrent states are never changed once
 * written; sessions, forks and marks share them, and what nobody holds is reused: it stays
 * with the engine until that is closed.
 */

/* A new, empty sequence of up to the engine's n_context_tokens. It takes memory as it grows.
 * Errors: MF_ERR_ARGUMENT, _NO_MEMORY, _BUDGET (more sessions than the engine was opened for). The
 * caller owns *out and frees it before closing the engine. */
MF_API MF_MUST_CHECK mf_status mf_session_create(mf_engine *engine, mf_session **out,
                                                 mf_error *error);
/* Does nothing while the session is being evaluated: *session is then not NULL afterwards. */
MF_API void mf_session_free(mf_session **session);

/* Sets the progress callback of later evaluations; NULL removes it. */
MF_API void mf_session_set_progress(mf_session *session, mf_progress_fn progress, void *user);

/*
 * Appends n_tokens to the sequence and evaluates them; the last token's logits are then
 * mf_session_logits. n_tokens 0 does nothing. Errors: MF_ERR_ARGUMENT (an id outside the
 * vocabulary), MF_ERR_CONTEXT (they do not fit), MF_ERR_STATE (from a callback of an evaluation):
 * nothing was evaluated. MF_ERR_BUDGET (state_bytes are used up), MF_ERR_NO_MEMORY, MF_ERR_IO,
 * MF_ERR_FORMAT (an expert file was cut short, or the logits are not finite numbers: the message
 * names the layer), MF_ERR_CANCELLED (a cancel, the progress callback, or the deadline): the
 * session holds a whole number of the call's chunks (its position says how many tokens) and can be
 * used as if the call had ended there.
 */
MF_API MF_MUST_CHECK mf_status mf_session_eval(mf_session *session, const int32_t *tokens,
                                               size_t n_tokens, mf_error *error);

/* The same, calling fn with the logits of every token. */
MF_API MF_MUST_CHECK mf_status mf_session_eval_each(mf_session *session, const int32_t *tokens,
                                                    size_t n_tokens, mf_logits_fn fn, void *user,
                                                    mf_error *error);

/* What evaluating a prompt takes. */
typedef struct mf_forecast {
    size_t struct_bytes;
    /* Pieces that it is evaluated in; each may sweep over all experts. */
    uint64_t n_chunks;
    /* Expected to be read, and how fast; 0: not known. */
    uint64_t read_bytes;
    double read_bytes_per_second;
    /* All of it, computing alone, and reading alone; 0: not known. The next layer's experts are
     * read while one computes, so that each chunk takes the longer of the two. */
    double seconds;
    double computing_seconds, reading_seconds;
} mf_forecast;

/* How long mf_session_eval of n_tokens more would take, alone: from what this engine's evaluations
 * took so far, and before the first one from what drive, memory and cores can do, each measured for
 * about n_milliseconds (0: nothing is measured, and what is not known stays 0). Waits for its turn
 * if it measures, else for nothing. Errors: those of mf_engine_measure_drive; MF_ERR_CONTEXT: so
 * many do not fit the context beside those that the session holds. */
MF_API MF_MUST_CHECK mf_status mf_session_forecast_sized(mf_session *session, size_t n_tokens,
                                                         uint32_t n_milliseconds, mf_forecast *out,
                                                         size_t struct_bytes, mf_error *error);
MF_MUST_CHECK static inline mf_status mf_session_forecast(mf_session *session, size_t n_tokens,
                                                          uint32_t n_milliseconds, mf_forecast *out,
                                                          mf_error *error)
{
    return mf_session_forecast_sized(session, n_tokens, n_milliseconds, out, sizeof *out, error);
}

/* ---------------------------------------- scheduling ---------------------------------------- */

/*
 * A wish to stop, which belongs to whoever has it, a request say, and not to a session: calls that
 * are given it end with MF_ERR_CANCELLED while it stands, those of others never. Zero-initialise.
 * Owned by the caller, who keeps it as long as a call or a session has it; changed by these
 * functions only, which may be called from any thread and from a signal handler.
 */
typedef struct mf_cancel {
    int is_requested;
} mf_cancel;

MF_API void mf_cancel_request(mf_cancel *cancel);
/* For the next request; when none of this one's calls runs any more. */
MF_API void mf_cancel_reset(mf_cancel *cancel);
MF_API int mf_cancel_is_requested(const mf_cancel *cancel);

/* Later calls of the session watch this cancel, until it is set to another; NULL: none. */
MF_API void mf_session_set_cancel(mf_session *session, const mf_cancel *cancel);

/* The session's running call (an evaluation, a batch, a step or a sync) ends with
 * MF_ERR_CANCELLED: before its next layer, or within milliseconds where it waits for its turn. Does
 * nothing if none is running: a call that begins later is never cancelled by it. Whoever may come
 * too early uses an mf_cancel. From any thread, or a signal handler. */
MF_API void mf_session_cancel(mf_session *session);

/* Evaluations that are not done at this time of CLOCK_MONOTONIC, in microseconds, return
 * MF_ERR_CANCELLED before their next layer, or while they wait for another's. 0: no deadline. */
MF_API void mf_session_set_deadline(mf_session *session, uint64_t monotonic_us);

/* mf_step_item.flags: the logits are not wanted, not even of the last token: a piece of a prompt
 * that the caller cuts itself. */
#define MF_STEP_NO_LOGITS 1u

/* One session's part of a step. */
typedef struct mf_step_item {
    /* sizeof(mf_step_item), the same in all items. */
    size_t struct_bytes;
    /* Of this engine, at most once in a step. */
    mf_session *session;
    /* To be appended, as many of them as the chunk has room for; n_tokens 0: none. */
    const int32_t *tokens;
    size_t n_tokens;
    /* Watched beside the session's own; may be NULL. */
    const mf_cancel *cancel;
    /* MF_STEP_NO_LOGITS, or 0: mf_session_logits are there when all n_tokens are done. */
    uint32_t flags;
    /* Set by the step: what became of it, and how many of the tokens the session now holds. */
    mf_status status;
    size_t n_done;
} mf_step_item;

/*
 * One step of a scheduler: evaluates at most one chunk (mf_model_info.n_chunk_tokens) of all items
 * together; an expert that any of them needs is read once for all. The chunk's rows are shared
 * evenly, what some do not need goes to those who have more left, and where there are more items
 * than rows they take turns from step to step. Each session gets the bits that it gets alone.
 *
 * Items stand for themselves. One that is refused (MF_ERR_CONTEXT, MF_ERR_ARGUMENT for an id
 * outside the vocabulary), gets no memory (MF_ERR_BUDGET, MF_ERR_NO_MEMORY), or is cancelled or
 * late or ended by its progress callback (MF_ERR_CANCELLED) has n_done 0, its session as it was;
 * the others' rows are committed. An error of the evaluation itself (MF_ERR_IO, MF_ERR_FORMAT,
 * MF_ERR_NO_MEMORY) is that of all items in the chunk. Any session can be used again at once.
 *
 * Returns the status of the first item that failed, or MF_OK; the error's message names the item
 * where it is its own, not where the evaluation itself failed.
 * MF_ERR_ARGUMENT (NULL, a wrong struct_bytes, a session of another engine or twice, an unknown
 * flag) and MF_ERR_STATE (from a callback, or a session that another call evaluates) may also be
 * the call's own: then nothing was done, and the items' results are as they were before.
 */
MF_API MF_MUST_CHECK mf_status mf_engine_step(mf_engine *engine, mf_step_item *items,
                                              size_t n_items, mf_error *error);

/* One session's part of a batch. */
typedef struct mf_batch_item {
    /* Of this engine, at most once in a batch. */
    mf_session *session;
    /* Appended to the session. */
    const int32_t *tokens;
    /* At least 1. */
    size_t n_tokens;
} mf_batch_item;

/*
 * Steps until all tokens of all items are evaluated, each session's logits then being those of its
 * last one, or until something fails: MF_ERR_ARGUMENT, MF_ERR_CONTEXT, MF_ERR_STATE of any item,
 * and nothing is evaluated; else as mf_session_eval, each session holding a whole number of the
 * call's chunks. A cancelled or late session ends the batch, when the chunk that is under way for
 * the others is done.
 */
MF_API MF_MUST_CHECK mf_status mf_engine_eval(mf_engine *engine, const mf_batch_item *items,
                                              size_t n_items, mf_error *error);

/* ------------------------------------ what it holds ------------------------------------ */

/* float32 [n_vocab] of the last token evaluated, NULL if there is none (new, cleared, truncated,
 * loaded from what had none); valid until the next call on the session. */
MF_API const float *mf_session_logits(const mf_session *session);

/* The highest of each MF_LOGITS_BLOCK of those logits, for mf_sampler_sample_bounded; the last
 * block may have fewer. NULL where they are not known: there are no logits, or they came from a
 * mark, a snapshot or a draft. Valid as long as the logits. */
MF_API const float *mf_session_bounds(const mf_session *session);

/* Number of tokens that the session holds, which is the next token's position. */
MF_API size_t mf_session_position(const mf_session *session);

/* Those tokens, [mf_session_position()]; valid until the next call on the session. */
MF_API const int32_t *mf_session_tokens(const mf_session *session);

/* Bytes of blocks and recurrent states that the session refers to, shared ones in full. */
MF_API uint64_t mf_session_state_bytes(const mf_session *session);

/* Back to the empty sequence, whatever happened before. Its marks are dropped. Does nothing
 * while the session is being evaluated. */
MF_API void mf_session_clear(mf_session *session);

/* A new session that holds what this one does, logits included, without its marks. It shares
 * all memory until one of the two writes: no state is copied but, at the next evaluation of either,
 * the last block. Errors: as mf_session_create. */
MF_API MF_MUST_CHECK mf_status mf_session_fork(const mf_session *session, mf_session **out,
                                               mf_error *error);

/*
 * Keeps the first n_tokens, so that the session is, bit for bit, as if only they had been
 * evaluated. Families without recurrent layers and windows always can; those with windows by up to
 * 64 tokens, and as long as the windows reach all of them. Others can go back only to a mark:
 * the session then holds the tokens of its newest mark at or before n_tokens, *n_kept says
 * how many, and the caller evaluates the rest again. Errors: MF_ERR_ARGUMENT (n_tokens beyond the
 * position), MF_ERR_NOT_FOUND (no mark at or before n_tokens but the empty sequence, and
 * n_tokens > 0), MF_ERR_STATE: the session is unchanged. Marks beyond are dropped. n_tokens 0
 * clears.
 */
MF_API MF_MUST_CHECK mf_status mf_session_truncate(mf_session *session, size_t n_tokens,
                                                   size_t *n_kept, mf_error *error);

/* ---------------------------------------- marks ---------------------------------------- */

/*
 * A mark is a position of a session that it can go back to: its state there, held. (A checkpoint is
 * a model's files.) While the session is being evaluated, saving, restoring and dropping are
 * MF_ERR_STATE.
 */

/* Marks the session's present position; one mark at a position. Beyond the engine's mark_bytes the
 * least recently used are dropped, of all sessions, but never a session's newest. Errors:
 * MF_ERR_NO_MEMORY, MF_ERR_BUDGET (it does not fit by itself), MF_ERR_STATE. */
MF_API MF_MUST_CHECK mf_status mf_mark_save(mf_session *session, mf_error *error);

/* Later evaluations of the session make marks by themselves: every n_tokens (rounded up to whole
 * chunks; 0: none), and if at_end is not 0 at the end of each call (step, evaluation) that gave it
 * more than one token and got through all of them. One that does not fit is left out. Forks
 * inherit the setting. Default: none. */
MF_API void mf_mark_auto(mf_session *session, size_t n_tokens, int at_end);

/* Number of marks; positions[i], i < capacity, get theirs, rising. positions may be NULL. */
MF_API size_t mf_mark_list(const mf_session *session, size_t *positions, size_t capacity);

/* Goes back to the mark at exactly this position, with its logits if the session had some when it
 * was made; those beyond it are dropped. Errors: MF_ERR_NOT_FOUND, MF_ERR_STATE, the session
 * unchanged. */
MF_API MF_MUST_CHECK mf_status mf_mark_restore(mf_session *session, size_t position,
                                               mf_error *error);

/* Drops the mark at this position. Errors: MF_ERR_NOT_FOUND, MF_ERR_STATE. */
MF_API MF_MUST_CHECK mf_status mf_mark_drop(mf_session *session, size_t position, mf_error *error);

/* ---------------------------------------- snapshots ---------------------------------------- */

/*
 * A snapshot is a session's tokens, state and logits as bytes (docs/FORMATS.md), with a checksum
 * over everything and the fingerprint of the model it belongs to. Loading checks all of it before
 * the session changes: MF_ERR_FORMAT (not a snapshot, another version, truncated, a changed bit),
 * MF_ERR_UNSUPPORTED (another model, another cache type), MF_ERR_CONTEXT (it does not fit the
 * session's), MF_ERR_STATE (it is being evaluated), MF_ERR_BUDGET and MF_ERR_NO_MEMORY leave it as
 * it was. After loading the logits are
 * those that the session had when it was saved, or NULL if it had none: sampling goes on at once.
 * Large snapshots in memory are done by up to n_threads threads, which end with the call. A write
 * that fails sends no signal (SIGPIPE, SIGXFSZ).
 */

/* Exactly the bytes that saving now would write; with logits, n_vocab floats and their checksum
 * more than without. */
MF_API uint64_t mf_snapshot_bytes(const mf_session *session);
/* Into a buffer; capacity below mf_snapshot_bytes is MF_ERR_ARGUMENT and nothing is written. Errors
 * also: MF_ERR_NO_MEMORY, and MF_ERR_IO and MF_ERR_FORMAT of the first snapshot, for which the
 * checkpoint is sampled (the buffer's content is then undefined), and MF_ERR_UNSUPPORTED on a
 * backend whose states cannot be told from others'. */
MF_API MF_MUST_CHECK mf_status mf_snapshot_save(const mf_session *session, void *buffer,
                                                size_t capacity, mf_error *error);
MF_API MF_MUST_CHECK mf_status mf_snapshot_load(mf_session *session, const void *buffer,
                                                size_t n_bytes, mf_error *error);
/* To and from the present offset of a file descriptor, which stays open; the offset is then behind
 * the snapshot, and undefined after an error. Errors also: MF_ERR_IO. */
MF_API MF_MUST_CHECK mf_status mf_snapshot_save_fd(const mf_session *session, int fd,
                                                   mf_error *error);
MF_API MF_MUST_CHECK mf_status mf_snapshot_load_fd(mf_session *session, int fd, mf_error *error);
/* The fingerprint of the model that its snapshots carry: of shapes, config, dense weights and a
 * sample of the experts, which are read when it is first asked for. For files of one's own that
 * belong to a model. Errors: MF_ERR_ARGUMENT, MF_ERR_IO, MF_ERR_FORMAT, MF_ERR_NO_MEMORY,
 * MF_ERR_UNSUPPORTED as above. */
MF_API MF_MUST_CHECK mf_status mf_engine_fingerprint(mf_engine *engine, uint8_t out[16],
                                                     mf_error *error);

/* ---------------------------------------- sync ---------------------------------------- */

typedef enum mf_sync_source {
    /* Nothing was reused. */
    MF_SYNC_NONE = 0,
    /* The session held the prefix itself, or its mark did. */
    MF_SYNC_SELF = 1,
    /* Another session of the engine, or a mark of it. */
    MF_SYNC_SESSION = 2,
    /* The store on disk. */
    MF_SYNC_STORE = 3
} mf_sync_source;

typedef struct mf_sync_result {
    mf_sync_source source;
    /* Tokens taken over. */
    size_t n_reused;
    /* Tokens evaluated. */
    size_t n_evaluated;
} mf_sync_result;

/*
 * Makes the session hold exactly these tokens, with the logits of the last one (n_tokens at least
 * 1): mf_session_reuse, then the rest evaluated. out may be NULL. Errors: as mf_session_eval; the
 * session then holds a prefix of the tokens, or, after the first three, what it held.
 */
MF_API MF_MUST_CHECK mf_status mf_session_sync(mf_session *session, const int32_t *tokens,
                                               size_t n_tokens, mf_sync_result *out,
                                               mf_error *error);

/*
 * Takes over the longest prefix of the tokens that the session itself, other sessions of the
 * engine, their marks, or the store hold, and evaluates nothing. out->n_reused, the session's
 * position, says how many it then holds; the caller evaluates the rest, in steps with others or in
 * pieces. Where it is all of them, the last one's logits are there; held without logits, all but
 * the last serve. A damaged entry of the store is passed over. out may be NULL. Errors:
 * MF_ERR_ARGUMENT, MF_ERR_CONTEXT, MF_ERR_STATE (the session is being evaluated), MF_ERR_NO_MEMORY:
 * the session is unchanged.
 */
MF_API MF_MUST_CHECK mf_status mf_session_reuse(mf_session *session, const int32_t *tokens,
                                                size_t n_tokens, mf_sync_result *out,
                                                mf_error *error);

/* ---------------------------------------- store ---------------------------------------- */

typedef struct mf_store mf_store;

/* Fill with mf_store_options_default, then change what is needed. */
typedef struct mf_store_options {
    size_t struct_bytes;
    /* All zero: the C library's. */
    mf_allocator allocator;
    /* Of all entries on disk together; 0: 8 GiB. What is there beyond it goes when the store is
     * opened and when something is written. On a disk that is full, entries go for new ones. */
    uint64_t max_bytes;
    /* Shorter prefixes are not worth an entry; 0: 64. */
    uint64_t min_tokens;
    /* May be NULL. */
    mf_log_fn log;
    void *log_user;
    /* Storing waits so long for another process that holds the store's lock, then gives up; 0: 3000
     * ms. Waiting ends too when stop(stop_user), which is asked all the while, is not 0. */
    uint32_t lock_wait_ms;
    int (*stop)(void *user); /* may be NULL */
    void *stop_user;
} mf_store_options;

MF_API void mf_store_options_init(mf_store_options *options, size_t struct_bytes);
static inline void mf_store_options_default(mf_store_options *options)
{
    mf_store_options_init(options, sizeof *options);
}

typedef struct mf_store_stats {
    size_t struct_bytes;
    /* On disk, of every model. */
    uint64_t n_entries, n_bytes;
    /* Lookups since opening. */
    uint64_t n_hits, n_misses;
    /* Entries since opening; set aside: found damaged. */
    uint64_t n_evicted, n_set_aside;
} mf_store_stats;

/*
 * Snapshots of prefixes in a directory (made if missing; its parent must exist). Any number of
 * processes may share it. An entry is written to a temporary file, synced and renamed: a process
 * killed at any moment loses at most the entry that it was writing. Files in the directory that are
 * not the store's are left alone. Errors: MF_ERR_IO (a directory that cannot be made, read or
 * written), MF_ERR_NO_MEMORY. The caller owns *out and closes it after the engines that use it.
 */
MF_API MF_MUST_CHECK mf_status mf_store_open(const char *directory, const mf_store_options *options,
                                             mf_store **out, mf_error *error);
MF_API void mf_store_close(mf_store **store);
MF_API void mf_store_get_stats_sized(mf_store *store, mf_store_stats *out, size_t struct_bytes);
static inline void mf_store_get_stats(mf_store *store, mf_store_stats *out)
{
    mf_store_get_stats_sized(store, out, sizeof *out);
}

/* mf_session_sync of this engine's sessions looks into the store from now on; NULL: no longer. */
MF_API void mf_engine_set_store(mf_engine *engine, mf_store *store);

/*
 * Writes the session's present state as an entry, unless one with exactly these tokens exists or
 * they are fewer than min_tokens. In families without recurrent layers and windows any beginning of
 * an entry's tokens serves mf_session_sync; in others all of them, or as far as one of at most four
 * of the session's marks, whose states are written too (see mf_mark_auto); with windows also any
 * beginning that the last window still reaches. First makes room by evicting what is old, large and
 * rarely used. Errors: MF_ERR_IO (a full disk, say: the store is as it was; or another process
 * keeps the lock), MF_ERR_CANCELLED (stopped while it waited for that), MF_ERR_BUDGET (larger than
 * max_bytes), MF_ERR_NO_MEMORY, and those of mf_engine_fingerprint. The session is unchanged.
 */
MF_API MF_MUST_CHECK mf_status mf_store_put(mf_store *store, const mf_session *session,
                                            mf_error *error);

#ifdef __cplusplus
}
#endif
#endif
