/* SPDX-License-Identifier: MIT */
/* Part of <moeflux/moeflux.h>, which programs include and which states the conventions: checkpoints
 * written anew in the engine's own form, every expert one aligned run of bytes. */
#ifndef MOEFLUX_CONVERT_H
#define MOEFLUX_CONVERT_H

#include <moeflux/routing.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How far it is. */
typedef struct mf_convert_progress {
    size_t struct_bytes;
    /* Written (or read, by mf_convert_verify), of all. What an earlier run left counts. */
    uint64_t n_bytes_done;
    uint64_t n_bytes;
    /* The layer with experts that is being written, from 0, of all; n_layers: the dense tensors. */
    uint32_t layer;
    uint32_t n_layers;
} mf_convert_progress;

/* Other than 0: stop. Called by the calling thread, some times a second. */
typedef int (*mf_convert_progress_fn)(void *user, const mf_convert_progress *progress);

/* Layers of the model from `first` to `last`, both of them there, whose experts get so many bits;
 * 0: they stay as they are. */
typedef struct mf_convert_rule {
    uint32_t first_layer;
    uint32_t last_layer;
    uint32_t bits;
} mf_convert_rule;

/* Fill with mf_convert_options_default, then change what is needed. */
typedef struct mf_convert_options {
    size_t struct_bytes;
    /* All zero: the C library's. */
    mf_allocator allocator;
    /* As in mf_engine_options, of the source. */
    uint32_t packed_expert_bits;
    /* Threads that compute; 0: one per available core. */
    uint32_t n_threads;
    /* Further directories for experts, on drives of their own, n_drives of them (at most 15); each
     * is new or empty. Of each layer the output directory gets the share drive_shares[0] of the
     * experts, drive i the share drive_shares[1 + i]; NULL: the same for all. */
    const char *const *drives;
    const double *drive_shares;
    uint32_t n_drives;
    /* A trace of the source's routing, or NULL: drives get their shares of what is asked for, not
     * of the experts. Borrowed by the call. */
    const mf_routing *routing;
    /* Experts are quantised anew to affine codes of so many bits, 2, 3, 4, 5, 6 or 8, in groups of
     * 32, 64 or 128 (0: 64), so that the squared error is small; bits 0: they stay as they are. The
     * last of the rules [n_rules] that a layer is of says other bits. */
    uint32_t bits;
    uint32_t group;
    const mf_convert_rule *rules;
    uint32_t n_rules;
    /* Of each layer the experts that the trace (routing) has asked for most, as many as this share
     * of all, 0 to 1, get so many bits instead; 0: none do. Those of layers that stay as they are,
     * too.
     */
    uint32_t hot_bits;
    double hot_share;
    /* Sums of squares by mf_engine_sum_inputs from an engine of the source, [layers with experts]
     * [hidden size], n_input_squares of them: errors of gate and up are weighted by what comes
     * through their columns. NULL: all columns count alike. */
    const double *input_squares;
    uint64_t n_input_squares;
    /* Do everything but write: directories that are taken or cannot be made are found, too. */
    uint32_t is_dry_run;
    /* May be NULL. */
    mf_convert_progress_fn on_progress;
    void *user;
    /* Of a dry run: too little room on a drive is an error, too, as it is of the conversion. */
    uint32_t dry_run_wants_room;
} mf_convert_options;

MF_API void mf_convert_options_init(mf_convert_options *options, size_t struct_bytes);
/* The weights as they are, all in one directory. */
static inline void mf_convert_options_default(mf_convert_options *options)
{
    mf_convert_options_init(options, sizeof *options);
}

typedef struct mf_convert_result {
    size_t struct_bytes;
    uint32_t n_layers;
    uint32_t n_experts;
    /* Of all files; of it, dense tensors, experts, and what aligning them adds. */
    uint64_t n_bytes;
    uint64_t dense_bytes;
    uint64_t expert_bytes;
    uint64_t padding_bytes;
    /* Reads that one expert takes, and bytes with alignment, the mean of all: of the source, and of
     * what was written. */
    uint32_t source_reads_per_expert;
    uint32_t reads_per_expert;
    uint64_t source_expert_read_bytes;
    uint64_t expert_read_bytes;
    /* Layers that an earlier run had finished. */
    uint32_t n_layers_kept;
    /* Of memory for experts on their way. */
    uint64_t working_bytes;
    /* Of experts as the source has them. */
    uint64_t source_expert_bytes;
    /* The root of the mean squared error of what was quantised by this call, as a share of the
     * weights'; 0: nothing was. */
    double relative_error;
} mf_convert_result;

MF_API MF_MUST_CHECK mf_status mf_convert_sized(const char *path, const char *out,
                                                const mf_convert_options *options,
                                                mf_convert_result *result, size_t struct_bytes,
                                                mf_error *error);
/*
 * Writes the checkpoint `path`, in whichever form the engine reads, to the directory `out` in the
 * engine's own form, which gives the same results bit for bit unless they are quantised. `out` is
 * made, or is empty, or has what the same call left when it was interrupted: that is taken up
 * again. Nothing that is there is written over. On failure what was written stays, to be taken up.
 * Errors: those of mf_model_inspect; MF_ERR_ARGUMENT (a directory that is not empty, holds
 * something else, or is being written by another process); MF_ERR_IO (a full drive: said before
 * anything is written where it can be known); MF_ERR_CANCELLED (on_progress).
 */
MF_MUST_CHECK static inline mf_status mf_convert(const char *path, const char *out,
                                                 const mf_convert_options *options,
                                                 mf_convert_result *result, mf_error *error)
{
    return mf_convert_sized(path, out, options, result, sizeof *result, error);
}

/* Reads all of a model in the engine's own form and compares it with its checksums. Of options
 * allocator, on_progress and user count; may be NULL. Errors: those of mf_model_inspect;
 * MF_ERR_ARGUMENT (another form); MF_ERR_FORMAT, naming what is damaged. */
MF_API MF_MUST_CHECK mf_status mf_convert_verify(const char *path,
                                                 const mf_convert_options *options,
                                                 mf_error *error);

#ifdef __cplusplus
}
#endif
#endif
