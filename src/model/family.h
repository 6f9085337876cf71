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
    /* The kind of attention of a multi-token-prediction layer; 0: the family has none that is known
     * here. */
    mf_layer_kind draft_kind;
    bool draft_feeds_normed; /* see mf_hparams */
    /* Binds every tensor; out->layers is allocated, mf_all_layers long. */
    mf_status (*bind)(mf_binder *binder, const mf_hparams *h, mf_model_weights *out,
                      mf_error *error);
} mf_family;

extern const mf_family mf_family_qwen3_5_moe;
extern const mf_family mf_family_qwen3_5;
extern const mf_family mf_family_qwen3_next;
extern const mf_family mf_family_deepseek_v3;
extern const mf_family mf_family_kimi_k2;
extern const mf_family mf_family_kimi_k25;
extern const mf_family mf_family_glm4_moe_lite;
extern const mf_family mf_family_deepseek_v2;
extern const mf_family mf_family_qwen2;
extern const mf_family mf_family_qwen3;
extern const mf_family mf_family_qwen2_moe;
extern const mf_family mf_family_qwen3_moe;
extern const mf_family mf_family_llama;
extern const mf_family mf_family_llama4;
extern const mf_family mf_family_kimi_linear;
extern const mf_family mf_family_deepseek_v4;
extern const mf_family mf_family_mistral;
extern const mf_family mf_family_mixtral;
extern const mf_family mf_family_glm4_moe;
extern const mf_family mf_family_glm4v_moe;
extern const mf_family mf_family_mistral3;
extern const mf_family mf_family_qwen3_vl;
extern const mf_family mf_family_qwen3_vl_moe;
extern const mf_family mf_family_deepseek_v32;
extern const mf_family mf_family_glm_moe_dsa;
extern const mf_family mf_family_ernie4_5_moe;
extern const mf_family mf_family_hunyuan_v1_moe;
extern const mf_family mf_family_gpt_oss;
extern const mf_family mf_family_minimax_m2;

/* The family that the source names; MF_ERR_UNSUPPORTED lists the known ones. */
mf_status mf_family_find(const mf_source *source, const mf_family **out, mf_error *error);

#endif
