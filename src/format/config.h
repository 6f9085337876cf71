/* SPDX-License-Identifier: MIT */
/*
 * config.json: its fields by name, and the quantisation it declares. A field is looked for in
 * text_config first where there is one, then at the top level; those of the rotation in
 * rope_parameters or rope_scaling.
 */
#ifndef MF_FORMAT_CONFIG_H
#define MF_FORMAT_CONFIG_H

#include "format/json.h"
#include "format/source.h"

typedef struct mf_config {
    mf_json json;
    bool is_manifest;         /* of the packed form, which may name no family */
    yyjson_val *top;          /* where quantization is looked for */
    yyjson_val *text;         /* text_config, or top */
    yyjson_val *rope;         /* rope_parameters or rope_scaling; NULL if neither */
    const char *rope_name;    /* which of them */
    yyjson_val *quantization; /* NULL if none */
    const char *quantization_name;
} mf_config;

/* Reads path. The packed form's manifest serves too: its `config` object is then the top. Refuses
 * names that occur twice in an object, and fields that are to be objects and are not. */
mf_status mf_config_read(const mf_allocator *a, const char *path, bool is_manifest, mf_config *out,
                         mf_error *error);
/* Takes over a parsed document (for fuzzing); on failure the caller still owns it. */
mf_status mf_config_from_json(const mf_json *json, bool is_manifest, mf_config *out,
                              mf_error *error);
void mf_config_free(mf_config *config);

/* As mf_source_ops.hparam; null counts as absent. */
void mf_config_get(const mf_config *config, const char *name, uint32_t index, mf_hparam_value *out);
/* Whether text_config says something else of a field than the top does. */
bool mf_config_disagrees(const mf_config *config, const char *field);

/* What the config says of one tensor's quantisation. */
typedef struct mf_quantization {
    bool disabled;    /* the config says this tensor is not quantised */
    const char *mode; /* of MLX; NULL where not stated: affine */
    /* The mode is the general one, and the module has an entry that names none: MLX's converters
     * leave affine out there, whatever the others are. */
    bool mode_is_general;
    uint32_t bits;  /* 0 where not stated */
    uint32_t group; /* 0 where not stated */
} mf_quantization;

/* Errors: MF_ERR_UNSUPPORTED, naming the field, for a quant_method other than fp8 (in blocks of 128
 * x 128, by row or by tensor), compressed-tensors, modelopt, mxfp4, gptq and awq in the formats
 * that are read. (MLX's modes have no quant_method.) */
mf_status mf_config_check_quantization(const mf_config *config, mf_error *error);

/* How the tensors called qweight are laid out. */
typedef struct mf_config_packed {
    mf_packing packing;
    bool has_zeros, has_index; /* those that are there say something that has to be read */
} mf_config_packed;

mf_status mf_config_packing(const mf_config *config, mf_config_packed *out, mf_error *error);

/* For the module `name` (a tensor's name without ".weight"). Errors: MF_ERR_UNSUPPORTED for a mode
 * other than affine, mxfp4, mxfp8 and nvfp4, MF_ERR_FORMAT for a value of a wrong type. */
mf_status mf_config_quantization(const mf_config *config, const char *name, mf_quantization *out,
                                 mf_error *error);

#endif
