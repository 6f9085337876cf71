/* SPDX-License-Identifier: MIT */
/*
 * config.json: typed fields with range checks, and the quantisation it declares. A field is looked
 * for in text_config first where there is one, then at the top level.
 */
#ifndef MF_FORMAT_CONFIG_H
#define MF_FORMAT_CONFIG_H

#include "format/json.h"

typedef struct mf_config {
    mf_json json;
    yyjson_val *top;          /* where quantization is looked for */
    yyjson_val *text;         /* text_config, or top */
    yyjson_val *quantization; /* NULL if none */
} mf_config;

/* Reads path. The prepared form's manifest serves too: its `config` object is then the top. */
mf_status mf_config_read(const mf_allocator *a, const char *path, bool is_manifest, mf_config *out,
                         mf_error *error);
/* Takes over a parsed document (for fuzzing); on failure the caller still owns it. */
mf_status mf_config_from_json(const mf_json *json, bool is_manifest, mf_config *out,
                              mf_error *error);
void mf_config_free(mf_config *config);

/* NULL if absent or null. */
yyjson_val *mf_config_find(const mf_config *config, const char *field);

/* A whole number in [min, max]. Required. */
mf_status mf_config_u32(const mf_config *config, const char *field, uint32_t min, uint32_t max,
                        uint32_t *out, mf_error *error);
/* The same, `fallback` if absent. */
mf_status mf_config_u32_or(const mf_config *config, const char *field, uint32_t fallback,
                           uint32_t min, uint32_t max, uint32_t *out, mf_error *error);
mf_status mf_config_double_or(const mf_config *config, const char *field, double fallback,
                              double min, double max, double *out, mf_error *error);
mf_status mf_config_bool_or(const mf_config *config, const char *field, bool fallback, bool *out,
                            mf_error *error);
/* NULL if absent or not a string; valid as long as the config. */
const char *mf_config_string(const mf_config *config, const char *field);

/* What the config says of one tensor's quantisation. */
typedef struct mf_quantization {
    bool declared;  /* the config speaks of it */
    bool disabled;  /* the config says this tensor is not quantised */
    uint32_t bits;  /* 0 where not stated */
    uint32_t group; /* 0 where not stated */
} mf_quantization;

/* Errors: MF_ERR_UNSUPPORTED, naming the field, for a quant_method other than fp8 in blocks of 128
 * x 128 (MLX's affine has no quant_method). */
mf_status mf_config_check_quantization(const mf_config *config, mf_error *error);

/* For the module `name` (a tensor's name without ".weight"). Errors: MF_ERR_UNSUPPORTED for a mode
 * other than affine. */
mf_status mf_config_quantization(const mf_config *config, const char *name, mf_quantization *out,
                                 mf_error *error);

#endif
