/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint directory with a config.json: which of the known forms it is, its config, its tensor
 * table, and which tensor has which role under Hugging Face's and MLX's names. Reads descriptors
 * only.
 */
#ifndef MF_FORMAT_CHECKPOINT_H
#define MF_FORMAT_CHECKPOINT_H

#include "format/config.h"
#include "format/source.h"

/* How layers that predict further tokens are called where they are apart from the others. */
typedef struct mf_mtp_names {
    const char *one;    /* a name that such checkpoints have */
    const char *layers; /* before a layer's number: "mtp.layers.", ... */
    const char *own;    /* before what such layers alone have */
} mf_mtp_names;

typedef struct mf_checkpoint {
    mf_source source; /* first: the one is the other */
    char dir[MF_MAX_PATH];
    mf_config config;
    const char *prefix; /* of layer tensors: "model.", "language_model.model.", ... */
    /* Layers from this on have names of their own, "mtp.layers.0", ...; UINT32_MAX: none have. */
    uint32_t first_mtp_layer;
    const mf_mtp_names *mtp;
    bool has_own_head;    /* that is not the embedding, although the config says so */
    bool is_packed;       /* the packed form: manifest + packed_experts */
    bool is_split;        /* of it: in artifacts/, root/ and mlx/, as packed for Cogito */
    uint32_t packed_bits; /* 4 or 2, of the packed experts */
} mf_checkpoint;

/* packed_bits: 4, 2, or 0 for whichever directory exists (4 first); not looked at for other
 * forms. */
mf_status mf_checkpoint_open(const mf_allocator *a, const char *dir, uint32_t packed_bits,
                             mf_source **out, mf_error *error);

/* The pieces of it, for fuzzing: an empty one; from a complete table, which prefix names have and
 * whether a conversion has been over the norms; what to free of one that was not opened. */
void mf_checkpoint_init(mf_checkpoint *checkpoint, const mf_allocator *a);
void mf_checkpoint_find_names(mf_checkpoint *checkpoint);
void mf_checkpoint_clear(mf_checkpoint *checkpoint);

extern const mf_source_ops mf_checkpoint_ops;

/* NULL if there is none; nothing is marked as used. */
mf_tensor *mf_checkpoint_tensor(const mf_checkpoint *checkpoint, mf_tensor_id id);
/* Where the config says that both are one: whether the head that is stored differs from the
 * embedding. Some pages of both are read. */
mf_status mf_checkpoint_compare_head(mf_checkpoint *checkpoint, mf_error *error);

/* Finds what lies beside s->data, and in which form it is stored. */
mf_status mf_checkpoint_stored(const mf_checkpoint *checkpoint, mf_stored *s, mf_error *error);
mf_status mf_checkpoint_check_affine(const mf_source *source, const mf_stored *s, uint32_t bits,
                                     uint32_t group, mf_error *error);

/* Of those, in files of their own: closes what mf_checkpoint_open made, and the packed form's
 * file of a layer. */
void mf_checkpoint_close(mf_source *source);
mf_status mf_checkpoint_packed_experts(mf_source *source, uint32_t layer, mf_packed_experts *out,
                                       mf_error *error);

#endif
