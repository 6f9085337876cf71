/* SPDX-License-Identifier: MIT */
/* The table of model families. A family is one file under arch/ and one row here. */
#ifndef MF_MODEL_FAMILY_H
#define MF_MODEL_FAMILY_H

#include "model/binder.h"

typedef struct mf_family {
    const char *name;      /* as model_type names it */
    const char *text_name; /* of the text model alone, where that has a name; may be NULL */
    /* Reads and checks the hyper-parameters. */
    mf_status (*configure)(const mf_source *source, mf_hparams *out, mf_error *error);
    /* Binds every tensor; out->layers is allocated, n_layers long. */
    mf_status (*bind)(mf_binder *binder, const mf_hparams *h, mf_model_weights *out,
                      mf_error *error);
} mf_family;

extern const mf_family mf_family_qwen3_5_moe;
extern const mf_family mf_family_qwen3_next;
extern const mf_family mf_family_deepseek_v3;
extern const mf_family mf_family_kimi_k2;
extern const mf_family mf_family_deepseek_v2;

/* The family that the source names; MF_ERR_UNSUPPORTED lists the known ones. */
mf_status mf_family_find(const mf_source *source, const mf_family **out, mf_error *error);

#endif
