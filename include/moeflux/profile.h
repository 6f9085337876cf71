/* SPDX-License-Identifier: MIT */
/* Part of <moeflux/moeflux.h>, which programs include and which states the conventions: where the
 * time of evaluations goes, by stage and by layer, and when it went there. */
#ifndef MOEFLUX_PROFILE_H
#define MOEFLUX_PROFILE_H

#include <moeflux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the evaluating thread is at. */
typedef enum mf_stage {
    /* Embedding, and all that is between the others. */
    MF_STAGE_OTHER = 0,
    MF_STAGE_ATTENTION,
    MF_STAGE_ROUTER,
    /* The shared expert, or the MLP of a layer without experts. */
    MF_STAGE_SHARED,
    MF_STAGE_EXPERTS,
    /* The logits. */
    MF_STAGE_HEAD,
    /* Nothing could be computed before a read has come. */
    MF_STAGE_WAITING,
    /* To a device and back. */
    MF_STAGE_COPYING,
    /* Nothing could be done before a device is done. */
    MF_STAGE_DEVICE,
    /* What the next layer's router says beforehand (mf_engine_options.predict). */
    MF_STAGE_FORETELLING
} mf_stage;
/* Room in structs, for more of them. */
#define MF_STAGES 16

/* "attention", "waiting"; NULL for another value. */
MF_API const char *mf_stage_name(mf_stage stage);

/* Where a layer's time went, and what was asked for in it, since that is taken. */
typedef struct mf_layer_profile {
    size_t struct_bytes;
    /* By mf_stage. */
    double seconds[MF_STAGES];
    /* What follows is 0 for layers without experts. Requests (as mf_stats has them), those that
     * were held, and those of experts that the evaluation step before had asked for as well. */
    uint64_t n_requests, n_hits, n_repeated;
    /* Experts foreseen and read, and what came of them, as mf_stats has it. */
    uint64_t n_hints, n_hints_useful, n_hints_late, n_hints_wasted;
    /* Experts that were asked for at all; of all requests, those of the tenth of the layer's
     * experts that was asked for most. */
    uint32_t n_experts_used;
    double most_used_share;
} mf_layer_profile;

/* What the following two functions tell is taken from now on (on not 0), beginning at 0, or not any
 * more. It costs some reading of a clock. Waits for its turn among the evaluations. Errors:
 * MF_ERR_ARGUMENT, MF_ERR_NO_MEMORY, MF_ERR_STATE (from a callback). mf_stats.stage_us goes with
 * it. */
MF_API MF_MUST_CHECK mf_status mf_engine_profile(mf_engine *engine, int on, mf_error *error);
/* Of a layer; of layer n_layers: what belongs to none. MF_ERR_ARGUMENT: there is no such layer.
 * MF_ERR_STATE: nothing is taken. Waits and fails as mf_engine_profile. */
MF_API MF_MUST_CHECK mf_status mf_engine_layer_profile_sized(mf_engine *engine, uint32_t layer,
                                                             mf_layer_profile *out,
                                                             size_t struct_bytes, mf_error *error);
MF_MUST_CHECK static inline mf_status
mf_engine_layer_profile(mf_engine *engine, uint32_t layer, mf_layer_profile *out, mf_error *error)
{
    return mf_engine_layer_profile_sized(engine, layer, out, sizeof *out, error);
}

/* Writes what the engine does, and when, to a file from now on, as Chrome's trace events (for
 * chrome://tracing, ui.perfetto.dev): the evaluating thread by stage and pass, the operations and
 * each compute thread's part of them on a CPU, each expert on its way and each read, by drive. An
 * older file is replaced. path NULL: no longer; what was written is whole. After 4 million events
 * the rest is left out, and counted at the file's end. Waits and fails as mf_engine_profile;
 * MF_ERR_IO: the file cannot be made, or could not be written when recording ended. */
MF_API MF_MUST_CHECK mf_status mf_engine_record_timeline(mf_engine *engine, const char *path,
                                                         mf_error *error);

#ifdef __cplusplus
}
#endif
#endif
