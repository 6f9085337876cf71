/* SPDX-License-Identifier: MIT */
/*
 * The aligned form, our own (docs/FORMATS.md): a directory with a manifest, the dense tensors in
 * one file, and files of experts, each of them one run of bytes. Its tensors are named by role, its
 * hyper-parameters as the engine asks for them, so that any form and family that the engine reads
 * can be written as it. Reads descriptors only.
 */
#ifndef MF_FORMAT_ALIGNED_H
#define MF_FORMAT_ALIGNED_H

#include "format/aligned_file.h"
#include "format/json.h"
#include "format/source.h"

#define MF_ALIGNED_MANIFEST "moeflux.json"
#define MF_ALIGNED_DENSE "dense.bin"
#define MF_ALIGNED_FORM "moeflux"
#define MF_ALIGNED_MANIFEST_BYTES ((size_t)8 << 20)

typedef struct mf_aligned {
    mf_source source; /* first: the one is the other */
    char dir[MF_MAX_PATH];
    mf_json manifest;
    yyjson_val *hparams, *experts;
    uint8_t id[MF_ALIGNED_ID_BYTES];
} mf_aligned;

/* Whether the directory is of this form. */
bool mf_aligned_is_there(const char *dir);
mf_status mf_aligned_open(const mf_allocator *a, const char *dir, mf_source **out, mf_error *error);

/* The pieces of it, for fuzzing: an empty one; what a parsed manifest says, the dense file having
 * so many bytes (the manifest stays the caller's on failure); what to free of one not opened. */
void mf_aligned_init(mf_aligned *aligned, const mf_allocator *a);
mf_status mf_aligned_take_manifest(mf_aligned *aligned, const mf_json *manifest, uint32_t dense,
                                   mf_error *error);
void mf_aligned_clear(mf_aligned *aligned);

/* Names of tensors: a role's, NULL where it has none; and that of array i (values, scales, biases)
 * of a tensor. */
const char *mf_aligned_role_name(mf_role role);
void mf_aligned_tensor_name(mf_tensor_id id, uint32_t array, char *name, size_t capacity);
/* Of the file with the experts of a layer that lie in the given directory: 0 is the model's own. */
void mf_aligned_expert_file(uint32_t layer, uint32_t drive, char *name, size_t capacity);

/* A form of a weight's values and back; false for an unknown name. */
const char *mf_aligned_dtype_name(mf_dtype type);
bool mf_aligned_dtype_parse(const char *name, mf_dtype *out);

#endif
