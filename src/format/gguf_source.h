/* SPDX-License-Identifier: MIT */
/*
 * A GGUF model as a source: its metadata answers for a config, and its tensors have the names of
 * llama.cpp's architectures. Hyper-parameters are given under Hugging Face's names, as families
 * ask for them.
 */
#ifndef MF_FORMAT_GGUF_SOURCE_H
#define MF_FORMAT_GGUF_SOURCE_H

#include "format/gguf.h"
#include "format/source.h"

/* What an architecture's name means beyond the keys that all share. */
typedef struct mf_gguf_arch {
    const char *name;
    const char *family;          /* our name of it, where nothing else decides */
    bool normalises;             /* the experts' weights, where no key says */
    bool rotates_neighbours;     /* pairs (2i, 2i + 1) */
    bool keeps_ramp;             /* YaRN's ends are not rounded */
    bool tiles_value_heads;      /* of linear attention: converters put them into another order */
    bool hidden_is_of_experts;   /* the family's intermediate_size */
    uint32_t n_unnormed_experts; /* a model of so many has no norms of heads, where those have no
                                    tensors; 0: tensors say it */
} mf_gguf_arch;

/* A tensor that is a part of the config: of Llama 3.1, whose scaling no key has. */
#define MF_GGUF_ROPE_FACTORS "rope_freqs.weight"
#define MF_GGUF_MAX_ROPE_FACTORS 512

typedef struct mf_gguf_source {
    mf_source source; /* first: the one is the other */
    char path[MF_MAX_PATH];
    mf_gguf head; /* of the first part */
    const mf_gguf_arch *arch;
    uint32_t n_blocks, n_layers; /* with and without those that foretell several tokens */
    uint32_t n_rope_factors;     /* 0: there are none */
    float rope_factors[MF_GGUF_MAX_ROPE_FACTORS];
} mf_gguf_source;

/* path is a file, the first part of a split model. */
mf_status mf_gguf_source_open(const mf_allocator *a, const char *path, mf_source **out,
                              mf_error *error);
/* The pieces of it, for fuzzing: takes over the head of the one part; *gguf is zeroed. */
mf_status mf_gguf_source_take(mf_gguf_source *gguf, mf_gguf *head, mf_error *error);
void mf_gguf_source_clear(mf_gguf_source *gguf);

extern const mf_source_ops mf_gguf_source_ops;

/* gguf_config.c: which architecture it is, and its hyper-parameters. */
mf_status mf_gguf_find_arch(mf_gguf_source *gguf, mf_error *error);
void mf_gguf_hparam(const mf_source *source, const char *name, uint32_t index,
                    mf_hparam_value *out);

/* gguf_names.c: the tensor that has a role; NULL if there is none. */
mf_tensor *mf_gguf_find_role(const mf_gguf_source *gguf, mf_tensor_id id);
/* What stands beside NAME.weight as NAME.`what`; NULL if nothing does. */
mf_tensor *mf_gguf_find_beside(const mf_gguf_source *gguf, const mf_tensor *tensor,
                               const char *what);
/* Its first name. */
void mf_gguf_role_name(mf_tensor_id id, char *name, size_t capacity);

#endif
