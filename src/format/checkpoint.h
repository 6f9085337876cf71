/* SPDX-License-Identifier: MIT */
/* A checkpoint directory: which of the known forms it is, its config, its tensor table. Reads
 * descriptors only. */
#ifndef MF_FORMAT_CHECKPOINT_H
#define MF_FORMAT_CHECKPOINT_H

#include "format/config.h"
#include "format/tensors.h"

typedef struct mf_checkpoint {
    mf_allocator allocator;
    char dir[MF_MAX_PATH];
    mf_config config;
    mf_tensor_table table;
    bool is_packed;            /* the prepared form: manifest + packed_experts */
    bool is_split;             /* of it: in artifacts/, root/ and mlx/, as prepared for Cogito */
    bool config_from_manifest; /* no config.json: the manifest's own config serves */
    uint32_t packed_bits;      /* 4 or 2, of the packed experts */
} mf_checkpoint;

/* packed_bits: 4, 2, or 0 for whichever directory exists (4 first); ignored for other forms. */
mf_status mf_checkpoint_read(const mf_allocator *a, const char *dir, uint32_t packed_bits,
                             mf_checkpoint *out, mf_error *error);
/* Takes a zeroed one. */
void mf_checkpoint_free(mf_checkpoint *checkpoint);

/* dir/packed_experts[_2bit]/layer_NN.bin */
mf_status mf_checkpoint_layer_file(const mf_checkpoint *checkpoint, uint32_t layer, char *path,
                                   size_t capacity, mf_error *error);

#endif
