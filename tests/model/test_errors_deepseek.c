/* SPDX-License-Identifier: MIT */
/*
 * What the DeepSeek families refuse: variants of a config that nothing here computes, and tensors
 * that are missing or of a wrong shape. One line that names the file, the field and its value.
 */
#include "golden.h"
#include "scratch_dir.h"

static const char config[] = "config.json";
static const char tensors[] = "model.safetensors";

typedef struct refusal {
    const char *name;
    const char *checkpoint;
    const char *file; /* where `from` becomes `to`; the header of a safetensors file */
    const char *from, *to;
    mf_status status;
    const char *named;  /* in the message: the file, */
    const char *reason; /* the field or tensor, */
    const char *value;  /* and its value or what was expected */
} refusal;

#define UNSUPPORTED(name, checkpoint, from, to, reason, value)                        \
    {                                                                                 \
        name, checkpoint, config, from, to, MF_ERR_UNSUPPORTED, config, reason, value \
    }
#define MALFORMED(name, checkpoint, from, to, reason, value)                     \
    {                                                                            \
        name, checkpoint, config, from, to, MF_ERR_FORMAT, config, reason, value \
    }
#define TENSOR(name, checkpoint, from, to, reason, value)                     \
    {                                                                         \
        name, checkpoint, tensors, from, to, MF_ERR_FORMAT, "", reason, value \
    }

#define KV_SCALES                                                                                \
    "kv_b_proj.weight_scale_inv\":{\"dtype\":\"BF16\",\"shape\":[4,2],\"data_offsets\":[155216," \
    "155232]"
#define KV_SCALES_CUT                                                                            \
    "kv_b_proj.weight_scale_inv\":{\"dtype\":\"BF16\",\"shape\":[4,1],\"data_offsets\":[155216," \
    "155224]"

static const refusal refusals[] = {
    UNSUPPORTED("scores of another kind", "v3_bf16", "\"scoring_func\": \"sigmoid\"",
                "\"scoring_func\": \"tanh\"", "scoring_func", "tanh"),
    UNSUPPORTED("softmax scores in V3", "v3_bf16", "\"scoring_func\": \"sigmoid\"",
                "\"scoring_func\": \"softmax\"", "scoring_func", "softmax"),
    UNSUPPORTED("sigmoid scores in V2", "v2_lite_bf16", "\"scoring_func\": \"softmax\"",
                "\"scoring_func\": \"sigmoid\"", "scoring_func", "sigmoid"),
    UNSUPPORTED("choice of another kind", "k2_bf16", "\"topk_method\": \"noaux_tc\"",
                "\"topk_method\": \"best_of_all\"", "topk_method", "best_of_all"),
    UNSUPPORTED("V2's choice in V3", "v3_bf16", "\"topk_method\": \"noaux_tc\"",
                "\"topk_method\": \"greedy\"", "topk_method", "greedy"),
    UNSUPPORTED("V3's choice in V2", "v2_groups_f16", "\"topk_method\": \"group_limited_greedy\"",
                "\"topk_method\": \"noaux_tc\"", "topk_method", "noaux_tc"),
    UNSUPPORTED("renormalised V2", "v2_lite_bf16", "\"norm_topk_prob\": false",
                "\"norm_topk_prob\": true", "norm_topk_prob", "true"),
    UNSUPPORTED("rope of another type", "v3_yarn_f32", "\"type\": \"yarn\"",
                "\"type\": \"longrope\"", "rope_scaling.type", "longrope"),
    UNSUPPORTED("rope of another type, the newer name", "v3_yarn_f32", "\"type\": \"yarn\"",
                "\"rope_type\": \"longrope\"", "rope_scaling.rope_type", "longrope"),
    {"linear rope without its factor", "v3_linear_rope_f16", config, "\"factor\": 3.0",
     "\"none\": 3.0", MF_ERR_FORMAT, config, "rope_scaling.factor", "missing: linear needs it"},
    {"rope of llama3 without its factors", "v3_yarn_f32", config, "\"type\": \"yarn\"",
     "\"rope_type\": \"llama3\"", MF_ERR_FORMAT, config, "low_freq_factor", "missing"},
    UNSUPPORTED("quantisation of another kind", "k2_fp8", "\"quant_method\": \"fp8\"",
                "\"quant_method\": \"exl3\"", "quant_method", "exl3"),
    UNSUPPORTED("FP8 of another kind", "k2_fp8", "\"fmt\": \"e4m3\"", "\"fmt\": \"e5m2\"", "fmt",
                "e5m2"),
    UNSUPPORTED("blocks of another size", "k2_fp8", "   128,\n", "   64,\n", "weight_block_size",
                "64"),
    UNSUPPORTED("biases", "v3_bf16", "\"attention_bias\": false", "\"attention_bias\": true",
                "attention_bias", "true"),
    UNSUPPORTED("other activations", "v3_bf16", "\"hidden_act\": \"silu\"",
                "\"hidden_act\": \"gelu\"", "hidden_act", "gelu"),
    UNSUPPORTED("fewer key heads", "v3_bf16", "\"num_key_value_heads\": 4",
                "\"num_key_value_heads\": 2", "num_key_value_heads", "2"),
    UNSUPPORTED("no layer with experts", "v3_bf16", "\"first_k_dense_replace\": 1",
                "\"first_k_dense_replace\": 3", "first_k_dense_replace", "3"),
    MALFORMED("groups that do not divide", "v3_bf16", "\"n_group\": 4", "\"n_group\": 5", "n_group",
              "5"),
    MALFORMED("more groups kept than there are", "v3_bf16", "\"topk_group\": 2",
              "\"topk_group\": 5", "topk_group", "from 1 to 4"),
    MALFORMED("more experts a token than the groups kept have", "v3_bf16",
              "\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 7", "topk_group",
              "do not fit 12 experts, of which 7"),
    MALFORMED("more experts a token than experts", "v3_bf16", "\"num_experts_per_tok\": 3",
              "\"num_experts_per_tok\": 13", "num_experts_per_tok", "from 1 to 12"),
    MALFORMED("an odd rotation", "v3_bf16", "\"qk_rope_head_dim\": 8", "\"qk_rope_head_dim\": 7",
              "qk_rope_head_dim", "7"),
    MALFORMED("no latent", "v3_bf16", "\"kv_lora_rank\"", "\"kv_lora_rang\"", "kv_lora_rank", ""),
    MALFORMED("dense layers of no width", "v3_bf16", "\"intermediate_size\": 112",
              "\"intermediate_seize\": 112", "intermediate_size", ""),
    MALFORMED("a group that the config contradicts", "v3_mlx_4bit_split", "\"group_size\": 64",
              "\"group_size\": 32", "group_size", "32"),
    TENSOR("no up-projection of keys and values", "v3_yarn_f32",
           "model.layers.1.self_attn.kv_b_proj.weight", "mtp.kv_b_proj.weight",
           "layers.1.self_attn.kv_b_proj", "missing"),
    TENSOR("half an up-projection", "v3_mlx_4bit_split", "layers.0.self_attn.unembed_out.weight",
           "mtp.unembed_out.weight", "layers.0.self_attn.unembed_out", "missing"),
    TENSOR("no bias of the router", "v3_yarn_f32",
           "model.layers.1.mlp.gate.e_score_correction_bias", "mtp.bias",
           "layers.1.mlp.gate.e_score_correction_bias", "missing"),
    TENSOR("no expert", "v3_yarn_f32", "model.layers.1.mlp.experts.7.up_proj.weight",
           "mtp.up_proj.weight", "layers.1.mlp.experts.7.up_proj", "missing"),
    TENSOR("no shared expert", "v3_yarn_f32", "model.layers.1.mlp.shared_experts.up_proj.weight",
           "mtp.up_proj.weight", "layers.1.mlp.shared_experts.up_proj", "missing"),
    TENSOR("FP8 without scales", "v3_fp8_bf16_scales",
           "model.layers.0.self_attn.o_proj.weight_scale_inv", "mtp.weight_scale_inv",
           "layers.0.self_attn.o_proj.weight_scale_inv", "missing"),
    TENSOR("keys and values turned", "v3_fp8_bf16_scales",
           "kv_b_proj.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[512,160]",
           "kv_b_proj.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[160,512]",
           "layers.0.self_attn.kv_b_proj.weight", "[512, 160]"),
    TENSOR("scales turned", "v3_fp8_bf16_scales",
           "kv_b_proj.weight_scale_inv\":{\"dtype\":\"BF16\",\"shape\":[4,2]",
           "kv_b_proj.weight_scale_inv\":{\"dtype\":\"BF16\",\"shape\":[2,4]",
           "layers.0.self_attn.kv_b_proj.weight_scale_inv", "[4, 2]"),
    TENSOR("scales cut short", "v3_fp8_bf16_scales", KV_SCALES, KV_SCALES_CUT,
           "layers.0.self_attn.kv_b_proj.weight_scale_inv", "[4, 2]"),
    TENSOR("scales of another dtype", "v3_fp8_bf16_scales",
           "kv_b_proj.weight_scale_inv\":{\"dtype\":\"BF16\"",
           "kv_b_proj.weight_scale_inv\":{\"dtype\":\"F16\"",
           "layers.0.self_attn.kv_b_proj.weight_scale_inv", "F32, BF16 or F8_E8M0"),
    TENSOR("heads that are too few", "v3_mlx_4bit_split",
           "layers.0.self_attn.embed_q.weight\":{\"dtype\":\"U32\",\"shape\":[2,128,8]",
           "layers.0.self_attn.embed_q.weight\":{\"dtype\":\"U32\",\"shape\":[1,256,8]",
           "layers.0.self_attn.embed_q", "[2, 128, "),
    TENSOR("a layer too many", "v3_yarn_f32", "model.layers.1.input_layernorm.weight",
           "model.layers.9.input_layernorm.weight", "layers.1.input_layernorm.weight", "missing"),
};

static void check_refusal(const refusal *r)
{
    const char *dir = scratch_copy(r->checkpoint);
    if (r->file == tensors)
        scratch_replace_in_header(r->file, r->from, r->to);
    else
        scratch_replace(r->file, r->from, r->to);
    mf_engine *engine = NULL;
    mf_error error = {0};
    mf_status status = mf_engine_open(dir, NULL, &engine, &error);
    CHECK_MSG(status == r->status && error.code == status && engine == NULL,
              "%s: %s, expected %s (\"%s\")", r->name, mf_status_name(status),
              mf_status_name(r->status), error.message);
    if (status != MF_OK) {
        const char *const words[] = {dir, r->named, r->reason, r->value};
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            CHECK_MSG(strstr(error.message, words[i]) != NULL,
                      "%s: the message \"%s\" lacks \"%s\"", r->name, error.message, words[i]);
        CHECK_MSG(strchr(error.message, '\n') == NULL, "%s: more than one line", r->name);
    }
    mf_engine_close(&engine);
    mf_model_info info = {0};
    CHECK_MSG(mf_model_inspect(dir, NULL, &info, NULL) != MF_OK, "%s: inspect finds nothing wrong",
              r->name);
}

/* The layer after the last is left out; one more belongs to nothing. */
static void test_layers_after_the_last(void)
{
    const char *dir = scratch_copy("v3_mtp_half_split_rope");
    mf_engine *engine = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_engine_open(dir, NULL, &engine, &error), &error);
    mf_engine_close(&engine);
    scratch_replace(config, "\"num_nextn_predict_layers\": 1", "\"num_nextn_predict_layers\": 0");
    CHECK_STATUS(mf_engine_open(dir, NULL, &engine, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "model.layers.3.");
    CHECK_CONTAINS(error.message, "surplus");
}

/* A checkpoint whose layers share what an indexer chose has no longer context than positions it
 * would choose of: there nothing is chosen. The choice of each layer's own is here. */
static void check_indexed(const char *added, uint32_t n_context)
{
    char to[160];
    const char *dir = scratch_copy("glm_moe_dsa_index_bf16");
    (void)snprintf(to, sizeof to, "\"index_topk\": 9, %s,", added);
    scratch_replace(config, "\"index_topk\": 9,", to);
    mf_engine_options options;
    mf_model_info info = {0};
    mf_engine *engine = NULL;
    mf_error error = {0};
    mf_engine_options_default(&options);
    REQUIRE_OK(mf_model_inspect(dir, NULL, &info, &error), &error);
    CHECK_U64(info.n_context_tokens_model, n_context);
    options.n_context_tokens = n_context;
    REQUIRE_OK(mf_engine_open(dir, &options, &engine, &error), &error);
    mf_engine_close(&engine);
    options.n_context_tokens = n_context + 1;
    const bool is_cut = n_context == 9;
    CHECK_STATUS(mf_engine_open(dir, &options, &engine, &error),
                 is_cut ? MF_ERR_UNSUPPORTED : MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, is_cut ? "index_topk" : "max_position_embeddings");
    CHECK_CONTAINS(error.message, "n_context_tokens");
}

int main(void)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        check_refusal(&refusals[i]);
    test_layers_after_the_last();
    check_indexed("\"indexer_types\": [\"full\", \"full\", \"full\"]", 4096);
    check_indexed("\"indexer_types\": [\"full\", \"shared\", \"full\"]", 9);
    check_indexed("\"indexer_types\": [\"full\", \"full\"]", 9);
    check_indexed("\"index_topk_freq\": 4", 9);
    check_indexed("\"index_topk_freq\": 1", 4096);
    check_indexed("\"index_topk_pattern\": \"FSS\"", 9);
    scratch_remove();
    return test_result();
}
