/* SPDX-License-Identifier: MIT */
/*
 * What a config.json may not say, and in which ways it may say the same: one line that names the
 * file, the field and what is wrong. Tables of a text that is replaced in a golden checkpoint.
 */
#include "golden.h"
#include "scratch_dir.h"

#include "format/checkpoint.h"
#include "model/family.h"
#include "model/rope.h"

#include <math.h>

static const char config[] = "config.json";

typedef struct refusal {
    const char *name, *checkpoint;
    const char *from, *to;
    mf_status status;
    const char *field, *why; /* in the message */
} refusal;

#define TYPE(checkpoint, from, to, field, why)                 \
    {                                                          \
        field, checkpoint, from, to, MF_ERR_FORMAT, field, why \
    }
#define UNSUPPORTED(checkpoint, from, to, field, why)               \
    {                                                               \
        field, checkpoint, from, to, MF_ERR_UNSUPPORTED, field, why \
    }

#define QKV "language_model.model.layers.0.linear_attn.in_proj_qkv"

static const refusal refusals[] = {
    /* values of a wrong type, which counted as absent */
    TYPE("hf_bf16", "\"hidden_act\": \"silu\"", "\"hidden_act\": 5", "hidden_act", "string"),
    TYPE("v3_bf16", "\"scoring_func\": \"sigmoid\"", "\"scoring_func\": 0", "scoring_func",
         "string"),
    TYPE("v3_bf16", "\"topk_method\": \"noaux_tc\"", "\"topk_method\": []", "topk_method",
         "string"),
    TYPE("v3_yarn_f32", "\"type\": \"yarn\"", "\"type\": 5", "rope_scaling.type", "string"),
    TYPE("next_yarn_f32", "\"type\": \"yarn\"", "\"rope_type\": {}", "rope_scaling.rope_type",
         "string"),
    TYPE("hf_bf16", "\"model_type\": \"qwen3_5_moe\"", "\"model_type\": 7", "model_type", "string"),
    TYPE("hf_bf16", "\"tie_word_embeddings\": false,\n  \"rope",
         "\"tie_word_embeddings\": 0,\n  \"rope", "tie_word_embeddings", "true or false"),
    TYPE("hf_bf16", "\"attention_bias\": false", "\"attention_bias\": \"no\"", "attention_bias",
         "true or false"),
    TYPE("next_bf16", "\"mlp_only_layers\": []", "\"mlp_only_layers\": 0", "mlp_only_layers",
         "list"),
    TYPE("hf_bf16", "\"layer_types\": [", "\"layer_types\": 3, \"other\": [", "layer_types",
         "list"),
    TYPE("hf_bf16", "\"text_config\": {", "\"text_config\": 3, \"other\": {", "text_config",
         "object"),
    TYPE("hf_bf16", "\"rope_parameters\": {", "\"rope_parameters\": 3, \"other\": {",
         "rope_parameters", "object"),
    TYPE("mlx_4bit", "\"quantization\": {", "\"quantization\": 4, \"other\": {", "quantization",
         "object"),
    TYPE("mlx_4bit", "\"bits\": 4", "\"bits\": \"4\"", "bits", "whole number"),
    TYPE("mlx_4bit", "\"group_size\": 64", "\"group_size\": 64.5", "group_size", "whole number"),
    TYPE("mlx_4bit", "\"mode\": \"affine\"", "\"mode\": 1", "mode", "string"),
    TYPE("mlx_4bit", "\"bits\": 4", "\"bits\": 4, \"" QKV "\": 3", QKV, "object"),
    TYPE("k2_fp8", "\"quant_method\": \"fp8\"", "\"quant_method\": 8", "quant_method", "string"),
    TYPE("k2_fp8", "\"fmt\": \"e4m3\"", "\"fmt\": 43", "fmt", "string"),
    /* whole numbers */
    TYPE("hf_bf16", "\"hidden_size\": 72", "\"hidden_size\": 72.5", "hidden_size", "whole number"),
    TYPE("hf_bf16", "\"hidden_size\": 72", "\"hidden_size\": 1e300", "hidden_size", "to 1048576"),
    /* a name that occurs twice, of which the first counted */
    TYPE("hf_bf16", "\"hidden_size\": 72", "\"hidden_size\": 72, \"hidden_size\": 64",
         "hidden_size", "twice"),
    TYPE("mlx_4bit", "\"bits\": 4", "\"bits\": 4, \"bits\": 8", "bits", "twice"),
    TYPE("hf_bf16", "\"hidden_size\": 72", "\"hidden_size\": 72, \"hidden\\u005fsize\": 64",
         "hidden_size", "twice"),
    /* numbers out of range, on both sides */
    TYPE("hf_bf16", "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 1.5", "rms_norm_eps", "to 1"),
    TYPE("hf_bf16", "\"rms_norm_eps\"", "\"norm_eps\"", "rms_norm_eps", "is missing"),
    TYPE("hf_bf16", "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": -1e-9", "rms_norm_eps", "from 0"),
    TYPE("hf_bf16", "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 1.25",
         "rope_parameters.partial_rotary_factor", "to 1"),
    TYPE("hf_bf16", "\"rope_theta\": 10000000.0", "\"rope_theta\": 1e13",
         "rope_parameters.rope_theta", "1e+12"),
    TYPE("next_yarn_f32", "\"attention_factor\": 1.25", "\"attention_factor\": 1e7",
         "rope_scaling.attention_factor", "1e+06"),
    TYPE("next_yarn_f32", "\"factor\": 8.0", "\"factor\": 0", "rope_scaling.factor", "from 0.001"),
    /* YaRN that makes NaN */
    TYPE("next_yarn_f32", "\"rope_theta\": 50000.0", "\"rope_theta\": 1", "rope_theta",
         "more than 1"),
    TYPE("v3_yarn_f32", "\"rope_theta\": 100", "\"rope_theta\": 1.0", "rope_theta", "more than 1"),
    TYPE("next_yarn_f32", "\"beta_fast\": 4", "\"beta_fast\": 1e-320", "rope_scaling.beta_fast",
         "1e-06"),
    TYPE("next_yarn_f32", "\"beta_slow\": 0.5", "\"beta_slow\": 1e-7", "rope_scaling.beta_slow",
         "1e-06"),
    TYPE("llama3_f16", "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 0.5",
         "rope_scaling.high_freq_factor", "at least low_freq_factor"),
    TYPE("qwen3_moe_bf16", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4",
         "num_key_value_heads", "does not divide"),
    TYPE("mistral_window_bf16", "\"num_attention_heads\": 4", "\"num_attention_heads\": 40",
         "hidden_size", "head_dim"),
    TYPE("qwen3_moe_dense_layers_f32", "\"mlp_only_layers\": [\n  2", "\"mlp_only_layers\": [\n  4",
         "mlp_only_layers[0]", "no layer"),
    TYPE("glm4_moe_groups_f16", "\"topk_group\": 2", "\"topk_group\": 0", "topk_group", "from 1"),
    TYPE("glm4_moe_groups_f16", "\"topk_group\"", "\"topk_of_none\"", "topk_group", "is missing"),
    TYPE("v3_bf16", "\"topk_group\"", "\"topk_of_none\"", "topk_group", "is missing"),
    TYPE("glm4_moe_groups_f16", "\"n_group\": 4", "\"n_group\": 5", "n_group", "do not fit"),
    TYPE("qwen2_window_f16", "\"sliding_window\": 9",
         "\"sliding_window\": null, \"layer_types\": [\"sliding_attention\", \"full_attention\", "
         "\"full_attention\"]",
         "sliding_window", "missing"),
    /* what nothing here computes */
    UNSUPPORTED("qwen3_moe_dense_layers_f32", "\"decoder_sparse_step\": 2",
                "\"decoder_sparse_step\": 5", "mlp_only_layers", "no layer"),
    UNSUPPORTED("minimax_m2_fp8", "\"qk_norm_type\": \"per_layer\"",
                "\"qk_norm_type\": \"per_head\"", "qk_norm_type", "per_layer"),
    UNSUPPORTED("minimax_m2_fp8", "\"scoring_func\": \"sigmoid\"", "\"scoring_func\": \"softmax\"",
                "scoring_func", "sigmoid"),
    UNSUPPORTED("minimax_m2_fp8", "\"rotary_dim\": 12",
                "\"rotary_dim\": 12, \"attn_type_list\": [1, 0]", "attn_type_list[1]", "softmax"),
    TYPE("gpt_oss_bf16", "\"swiglu_limit\": 1.25", "\"swiglu_limit\": 0", "swiglu_limit",
         "from 0.001"),
    TYPE("hunyuan_v1_moe_bf16", "\"alpha\": 50.0", "\"alpha\": 1e7", "rope_scaling.alpha", "1e+06"),
    TYPE("hunyuan_v1_moe_bf16", "\"moe_topk\": 3", "\"moe_topk\": 10", "moe_topk", "more than"),
    UNSUPPORTED("hunyuan_v1_moe_bf16", "\"moe_topk\": 3", "\"moe_topk\": [3, 2]", "moe_topk",
                "same for every layer"),
    UNSUPPORTED("hunyuan_v1_moe_bf16", "\"alpha\": 50.0", "\"alpha\": 0", "rope_scaling.type",
                "without a fixed alpha"),
    TYPE("kimi_linear_f16", "\"kda_layers\": [", "\"kda_layers\": [4,",
         "linear_attn_config.kda_layers[0]", "from 1 to 3"),
    TYPE("kimi_linear_f16", "\"full_attn_layers\": [", "\"full_attn_layers\": [], \"none\": [",
         "full_attn_layers", "do not name layer 2"),
    UNSUPPORTED("kimi_linear_f16", "\"linear_attn_config\"",
                "\"layer_types\": [\"linear_attention\", \"full_attention\"], "
                "\"linear_attn_config\"",
                "layer_types[2]", "missing"),
    UNSUPPORTED("kimi_linear_f16", "\"first_k_dense_replace\": 1",
                "\"mlp_layer_types\": [\"dense\", \"dense\", \"dense\"]", "first_k_dense_replace",
                "no layer"),
    UNSUPPORTED("kimi_linear_f16", "\"mla_use_nope\": true", "\"mla_use_nope\": false",
                "mla_use_nope", "only true"),
    TYPE("kimi_linear_f16", "\"num_expert_group\": 1", "\"num_expert_group\": 4",
         "num_expert_group", "do not fit"),
    UNSUPPORTED("deepseek_v4_bf16", "\"scoring_func\": \"sqrtsoftplus\"",
                "\"scoring_func\": \"softmax\"", "scoring_func", "sqrtsoftplus and sigmoid"),
    UNSUPPORTED("deepseek_v4_bf16", "\"compressed_sparse_attention\": 4",
                "\"compressed_sparse_attention\": 5", "compress_rates.compressed_sparse_attention",
                "divisors and multiples of 32"),
    UNSUPPORTED("deepseek_v4_bf16", "\"compress_ratios\": [", "\"compress_ratios\": [8,",
                "compress_ratios[0]", "0, 4 or 128"),
    TYPE("deepseek_v4_bf16", "\"compress_ratios\": [", "\"compress_ratios\": [], \"none\": [",
         "compress_ratios[0]", "each of the layers"),
    UNSUPPORTED("deepseek_v4_bf16", "\"n_shared_experts\": 1", "\"n_shared_experts\": 2",
                "n_shared_experts", "only 1"),
    UNSUPPORTED("deepseek_v4_bf16", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false",
                "norm_topk_prob", "only true"),
    TYPE("deepseek_v4_bf16", "\"hc_mult\": 4", "\"hc_mult\": 9", "hc_mult", "from 1 to 8"),
    TYPE("deepseek_v4_bf16", "\"o_groups\": 3", "\"o_groups\": 4", "o_groups", "does not divide"),
    TYPE("deepseek_v4_bf16", "\"index_head_dim\": 12", "\"index_head_dim\": 6", "index_head_dim",
         "from 8"),
    UNSUPPORTED("deepseek_v4_bf16", "\"rope_type\": \"yarn\"", "\"rope_type\": \"longrope\"",
                "rope_scaling.rope_type", "default and yarn"),
    UNSUPPORTED("deepseek_v4_types_f32", "\"hash_moe\"", "\"dense\"", "mlp_layer_types[1]",
                "hash_moe and moe"),
    UNSUPPORTED("deepseek_v4_types_f32", "\"sliding_attention\"", "\"full_attention\"",
                "layer_types[2]", "sliding_attention"),
    UNSUPPORTED("llama4_lists_f16", "\"num_experts_per_tok\": 1", "\"num_experts_per_tok\": 2",
                "num_experts_per_tok", "supported is 1"),
    TYPE("llama4_lists_f16", "\"no_rope_layers\": [", "\"no_rope_layers\": [2,", "no_rope_layers",
         "from 0 to 1"),
    TYPE("llama4_lists_f16", "\"moe_layers\": [", "\"moe_layers\": [3,", "moe_layers",
         "from 0 to 2"),
    TYPE("llama4_lists_f16", "\"attention_chunk_size\": 33", "\"attention_chunk_size\": 0",
         "attention_chunk_size", "from 1 to"),
    TYPE("llama4_lists_f16", "\"floor_scale\": 4", "\"floor_scale\": 0", "floor_scale",
         "from 1 to"),
    UNSUPPORTED("ernie4_5_moe_bf16", "\"use_bias\": false", "\"use_bias\": true", "use_bias",
                "true"),
    UNSUPPORTED("ernie4_5_moe_bf16", "\"use_bias\": false",
                "\"moe_norm_min\": 0.5, \"use_bias\": false", "moe_norm_min", "is 0.5"),
    UNSUPPORTED("ernie4_5_moe_bf16", "\"moe_layer_start_index\": 1", "\"moe_layer_start_index\": 3",
                "moe_layer_start_index", "no layer"),
    UNSUPPORTED(
        "glm_moe_dsa_f16", "\"first_k_dense_replace\": 1",
        "\"first_k_dense_replace\": 1, \"mlp_layer_types\": [\"dense\", \"dense\", \"sparse\"]",
        "mlp_layer_types[1]", "first_k_dense_replace"),
    TYPE("mistral3_growth_f16", "\"original_max_position_embeddings\": 16,", "",
         "llama_4_scaling_beta", "original_max_position_embeddings is needed"),
    UNSUPPORTED("glm4_moe_lite_types_f16", "\"sparse\"", "\"odd\"", "mlp_layer_types[1]",
                "dense and sparse"),
    UNSUPPORTED("llama3_f16", "\"mlp_bias\": false", "\"mlp_bias\": true", "mlp_bias", "true"),
    UNSUPPORTED("qwen2_window_f16", "\"sliding_window\": 9",
                "\"sliding_window\": 9, \"layer_types\": [\"chunked_attention\", "
                "\"full_attention\", \"full_attention\"]",
                "layer_types[0]", "chunked_attention"),
    UNSUPPORTED("hf_bf16", "\"attention_bias\": false", "\"attention_bias\": true",
                "attention_bias", "true"),
    UNSUPPORTED("next_yarn_f32", "\"type\": \"yarn\"", "\"type\": \"longrope\"",
                "rope_scaling.type", "longrope"),
    UNSUPPORTED("hf_bf16", "\"rope_type\": \"default\"", "\"rope_type\": \"dynamic\"",
                "rope_parameters.rope_type", "dynamic"),
    UNSUPPORTED("hf_bf16", "\"rope_parameters\": {",
                "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}, \"rope_parameters\": {",
                "rope_scaling", "rope_parameters"),
    UNSUPPORTED("hf_bf16", "\"rope_parameters\": {",
                "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"rope_parameters\": {",
                "rope_scaling", "differ"),
    /* a quantisation that only the text model declares */
    UNSUPPORTED("hf_bf16", "\"text_config\": {",
                "\"text_config\": {\"quantization_config\": {\"quant_method\": \"exl3\"}, ",
                "quantization_config.quant_method", "exl3"),
    UNSUPPORTED("hf_bf16", "\"text_config\": {",
                "\"text_config\": {\"quantization\": {\"quant_method\": \"bitsandbytes\"}, ",
                "quantization.quant_method", "bitsandbytes"),
    TYPE("mlx_4bit", "\"bits\": 4", "\"bits\": 65537", "quantization of", "from 1 to 65536"),
    /* declared as plain, stored quantised */
    TYPE("mlx_4bit", "\"bits\": 4", "\"bits\": 4, \"" QKV "\": false", QKV, "false"),
};

static void check_refusal(const refusal *r)
{
    const char *dir = scratch_copy(r->checkpoint);
    mf_model_info info = {0};
    mf_error error = {0};
    CHECK_STATUS(mf_model_inspect(dir, NULL, &info, &error), MF_OK);
    scratch_replace(config, r->from, r->to);
    mf_status status = mf_model_inspect(dir, NULL, &info, &error);
    CHECK_MSG(status == r->status, "%s with %s: %s, expected %s (\"%s\")", r->checkpoint, r->to,
              mf_status_name(status), mf_status_name(r->status), error.message);
    const char *const words[] = {scratch_path(config), r->field, r->why};
    for (size_t i = 0; i < 3 && status != MF_OK; i++)
        CHECK_MSG(strstr(error.message, words[i]) != NULL, "%s: the message \"%s\" lacks \"%s\"",
                  r->to, error.message, words[i]);
}

/* What is written in another way and means the same: the same logits. */
static const struct {
    const char *checkpoint, *from, *to;
} equals[] = {
    {"hf_bf16", "\"hidden_size\": 72", "\"hidden_size\": 72.0"},
    {"hf_bf16", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 2e0"},
    {"mlx_4bit", "\"bits\": 4", "\"bits\": 4.0"},
    {"hf_bf16", "\"rope_parameters\": {", "\"rope_scaling\": null, \"rope_parameters\": {"},
    {"hf_bf16", "\"rope_parameters\": {", "\"rope_scaling\": {}, \"rope_parameters\": {"},
    {"next_yarn_f32", "\"type\": \"yarn\"", "\"type\": \"linear\", \"rope_type\": \"yarn\""},
    {"next_yarn_f32", "\"rope_scaling\"", "\"rope_parameters\""},
    {"next_yarn_f32", "\"rope_scaling\"", /* under both names the same, in any order */
     "\"rope_parameters\": {\"truncate\": false, \"type\": \"yarn\", \"factor\": 8.0,"
     "\"original_max_position_embeddings\": 16, \"attention_factor\": 1.25, \"beta_fast\": 4,"
     "\"beta_slow\": 0.5}, \"rope_scaling\""},
    {"qwen3_moe_bf16", "\"num_experts\"",
     "\"num_local_experts\""}, /* as transformers 5 writes it */
    {"qwen3_vl_moe_turned_bf16", "\"norm_topk_prob\": true,", ""},
    {"kimi_linear_f16", /* as transformers 5 writes it, and with what it read beside that */
     "\"linear_attn_config\": {\n  \"full_attn_layers\": [\n   2\n  ],\n  \"kda_layers\": [\n   "
     "1,\n   3\n  ],"
     "\n  \"head_dim\": 33,\n  \"num_heads\": 2,\n  \"short_conv_kernel_size\": 2\n }",
     "\"layer_types\": [\"linear_attention\", \"full_attention\", \"linear_attention\"],"
     "\"linear_head_dim\": 33, \"linear_num_heads\": 2, \"linear_conv_kernel_dim\": 2"},
    {"kimi_linear_f16", "\"linear_attn_config\"",
     "\"layer_types\": [\"linear_attention\", \"full_attention\", \"linear_attention\"],"
     "\"linear_conv_kernel_dim\": 4, \"linear_attn_config\""},
    {"kimi_linear_f16", "\"first_k_dense_replace\": 1",
     "\"mlp_layer_types\": [\"dense\", \"sparse\", \"sparse\"]"},
    /* a head that is stored, of which one of the two places says that it is tied */
    {"qwen3_vl_moe_turned_bf16", "4096,\n  \"tie_word_embeddings\": false",
     "4096, \"tie_word_embeddings\": true"},
    {"mistral3_bf16", "\"tie_word_embeddings\": false,\n \"text",
     "\"tie_word_embeddings\": true, \"text"},
    /* and one that is not */
    {"hf_tied_f32", "\"tie_word_embeddings\": true,\n  \"rope",
     "\"tie_word_embeddings\": false, \"rope"},
    /* another than the embedding, although the config says that it is that */
    {"qwen3_moe_bf16", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"},
    {"mixtral_gptq_8bit", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true"},
    /* of which nothing is said */
    {"hunyuan_v1_moe_bf16", "\"tie_word_embeddings\": true,", ""},
    {"qwen3_moe_bf16", "\"tie_word_embeddings\": false,", ""},
};

static float *run(const char *dir, const golden *g)
{
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    float *logits = malloc((size_t)g->n_tokens * g->n_vocab * sizeof(float));
    REQUIRE_OK(mf_engine_open(dir, NULL, &engine, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(golden_eval(session, g->tokens, g->n_tokens, g->n_vocab, logits, &error), &error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    return logits;
}

static void test_equals(void)
{
    for (size_t i = 0; i < sizeof equals / sizeof *equals; i++) {
        golden g;
        golden_read(golden_case_find(equals[i].checkpoint), &g);
        float *before = run(golden_path(equals[i].checkpoint), &g);
        const char *dir = scratch_copy(equals[i].checkpoint);
        scratch_replace(config, equals[i].from, equals[i].to);
        float *after = run(dir, &g);
        CHECK_MSG(memcmp(before, after, (size_t)g.n_tokens * g.n_vocab * sizeof(float)) == 0,
                  "%s: %s gives other logits", equals[i].checkpoint, equals[i].to);
        free(before);
        free(after);
        golden_free(&g);
    }
}

/* arXiv 2309.00071 in float64: pair i turns n_original * theta^(-2i/n) / 2 pi times over the
 * original context; more than beta_fast turns are kept, fewer than beta_slow slowed by the factor,
 * with a linear ramp over i between where the two fall. */
static double expected_frequency(const mf_hparams *h, uint32_t i)
{
    const mf_rope *r = &h->rope;
    double plain = pow(r->theta, -2.0 * i / h->n_rot), ends[2];
    for (int j = 0; j < 2; j++) {
        double turns = j == 0 ? r->beta_fast : r->beta_slow;
        double pair = h->n_rot * log(r->n_original / (turns * 2 * acos(-1.0))) / 2 / log(r->theta);
        ends[j] = !r->truncate ? pair : j == 0 ? floor(pair) : ceil(pair);
    }
    double low = fmax(ends[0], 0), high = fmin(ends[1], h->n_rot - 1.0);
    double ramp = low == high ? (i > low) : fmin(fmax((i - low) / (high - low), 0), 1);
    return plain * (1 - ramp) + plain / r->factor * ramp;
}

static void configure_dir(const char *dir, mf_hparams *h)
{
    const mf_allocator a = mf_allocator_default();
    const mf_family *family = NULL;
    mf_source *source = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_source_open(&a, dir, 0, &source, &error), &error);
    REQUIRE_OK(mf_family_find(source, &family, &error), &error);
    REQUIRE_OK(family->configure(source, h, &error), &error);
    mf_source_close(&source);
}

static void configure_from(const char *checkpoint, const char *from, const char *to, mf_hparams *h)
{
    const char *dir = scratch_copy(checkpoint);
    scratch_replace(config, from, to);
    configure_dir(dir, h);
}

/* A head that is stored once more is left out, even where rows of one of the two are not there yet.
 */
static void test_head_again(void)
{
    const char *dir = scratch_copy("qwen3_moe_bf16");
    const mf_allocator a = mf_allocator_default();
    mf_tensor_table table;
    mf_hparams h;
    mf_error error = {0};
    size_t n;
    scratch_replace(config, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    mf_tensor_table_init(&table, &a);
    REQUIRE_OK(mf_safetensors_add_dir(&table, dir, &error), &error);
    const mf_tensor *embed = mf_tensor_find(&table, "model.embed_tokens.weight");
    const mf_tensor *head = mf_tensor_find(&table, "lm_head.weight");
    if (embed == NULL || head == NULL || embed->n_bytes != head->n_bytes ||
        embed->file != head->file) {
        CHECK_MSG(false, "%s: not as expected", dir);
        return;
    }
    const char *name = strrchr(table.files[head->file].path, '/') + 1;
    unsigned char *file = read_file(scratch_path(name), &n);
    for (int i = 0; i < 3; i++) { /* as it is; without what has not come; with another last byte */
        memcpy(file + head->offset, file + embed->offset, head->n_bytes);
        if (i == 1)
            memset(file + head->offset, 0, head->n_bytes);
        file[head->offset + head->n_bytes - 1] ^= i == 2;
        scratch_write(name, file, n);
        configure_dir(dir, &h);
        CHECK_MSG(h.tie_embeddings == (i < 2), "%d: tied %d", i, h.tie_embeddings);
    }
    free(file);
    mf_tensor_table_free(&table);
}

/* The config of next_yarn_f32 with another object of the rotation. */
static void configure(const char *rope, mf_hparams *h)
{
    char replacement[256];
    snprintf(replacement, sizeof replacement, "\"rope_scaling\": %s, \"other\": {", rope);
    configure_from("next_yarn_f32", "\"rope_scaling\": {", replacement, h);
}

static void test_frequencies(void)
{
    static const char *const ropes[] = {
        "{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":4096}",
        /* both ends fall on pair 0 */
        "{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":6}",
        /* and on another: no pair between them */
        "{\"type\":\"yarn\",\"factor\":2,\"original_max_position_embeddings\":1024,"
        "\"beta_fast\":3,\"beta_slow\":3,\"truncate\":false}",
        "{\"type\":\"yarn\",\"factor\":8,\"original_max_position_embeddings\":100000,"
        "\"beta_fast\":0,\"beta_slow\":0}",
        "{\"type\":\"yarn\",\"factor\":8,\"original_max_position_embeddings\":100000,"
        "\"beta_fast\":5,\"beta_slow\":2,\"truncate\":false}",
    };
    for (size_t i = 0; i < sizeof ropes / sizeof *ropes; i++) {
        mf_hparams h;
        float frequencies[64];
        configure(ropes[i], &h);
        REQUIRE(h.rope.is_yarn && h.n_rot == 24);
        mf_rope_frequencies(&h.rope, h.n_rot, frequencies);
        for (uint32_t j = 0; j < h.n_rot / 2; j++) {
            double expected = expected_frequency(&h, j);
            CHECK_MSG(fabs(frequencies[j] - expected) <= 1e-6 * expected,
                      "%s: pair %u: %g, expected %g", ropes[i], j, (double)frequencies[j],
                      expected);
        }
    }
}

/* The factor of cosine and sine, as transformers has it: the two mscales count where both are
 * given; with one of them, or none, it is that of the paper. */
static void test_mscale(void)
{
    static const struct {
        double part, all;
    } cases[] = {{0, 0}, {2, 0}, {0, 0.5}, {2, 0.5}, {0.7, 0.7}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double part = cases[i].part, all = cases[i].all, log_factor = log(8.0);
        double expected = 0.1 * log_factor + 1;
        if (part != 0 && all != 0)
            expected = (0.1 * part * log_factor + 1) / (0.1 * all * log_factor + 1);
        mf_hparams h;
        char rope[200], mscale[40] = "", mscale_all[40] = "";
        if (part != 0)
            snprintf(mscale, sizeof mscale, ",\"mscale\":%g", part);
        if (all != 0)
            snprintf(mscale_all, sizeof mscale_all, ",\"mscale_all_dim\":%g", all);
        snprintf(rope, sizeof rope,
                 "{\"type\":\"yarn\",\"factor\":8,\"original_max_position_embeddings\":1024%s%s}",
                 mscale, mscale_all);
        configure(rope, &h);
        CHECK_MSG(fabs(h.rope.attention_factor - expected) <= 1e-12, "%s: %.17g, expected %.17g",
                  rope, h.rope.attention_factor, expected);
    }
}

/* 0 counts as absent, as for the publishers; so does null. */
static void test_defaults(void)
{
    mf_hparams zero, none;
    configure("{\"type\":\"yarn\",\"factor\":8,\"beta_fast\":0,\"beta_slow\":0}", &zero);
    configure("{\"type\":\"yarn\",\"factor\":8,\"beta_fast\":null}", &none);
    CHECK(zero.rope.beta_fast == 32.0 && zero.rope.beta_slow == 1.0);
    CHECK(none.rope.beta_fast == 32.0 && none.rope.beta_slow == 1.0);
    CHECK(fabs(none.rope.attention_factor - (0.1 * log(8.0) + 1.0)) < 1e-12);
    CHECK(none.rope.n_original == 4096.0 && none.rope.theta == 50000.0);
}

/* As far as YaRN reaches, where that is more than max_position_embeddings, 4096. */
static void test_reach(void)
{
    static const struct {
        double factor, n_original;
        uint32_t n_context;
    } cases[] = {{2, 1024, 4096}, {8, 1024, 8192}, {2.5, 4095, 10237}, {1e6, 1e9, 1u << 28}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_hparams h;
        char rope[200];
        snprintf(rope, sizeof rope,
                 "{\"type\":\"yarn\",\"factor\":%g,\"original_max_position_embeddings\":%g}",
                 cases[i].factor, cases[i].n_original);
        configure(rope, &h);
        CHECK_U64(h.n_context, cases[i].n_context);
    }
}

/* Llama 4 Scout has the same factor for both ends: no pair is mixed, not even one that turns once
 * in as many positions. */
static void test_equal_ends(void)
{
    mf_rope r = {.theta = 5e5, .is_llama3 = true, .factor = 16, .n_original = 8192};
    float plain[64], frequencies[64];
    mf_model_info info = {0};
    mf_error error = {0};
    const char *dir = scratch_copy("llama3_f16");
    scratch_replace(config, "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 1.0");
    CHECK_STATUS(mf_model_inspect(dir, NULL, &info, &error), MF_OK);
    mf_rope_frequencies(&(mf_rope){.theta = r.theta}, 128, plain);
    for (uint32_t at = 0; at < 64; at += 9) {
        r.low_factor = r.high_factor = at == 0 ? 1 : r.n_original * plain[at] / (2 * acos(-1.0));
        mf_rope_frequencies(&r, 128, frequencies);
        for (uint32_t i = 0; i < 64; i++) {
            const double n_turns = r.n_original * plain[i] / (2 * acos(-1.0));
            const bool is_at_end = i == at && at != 0;
            const float slow = plain[i] / 16;
            CHECK_MSG(is_at_end ? frequencies[i] == plain[i] || frequencies[i] == slow
                                : frequencies[i] == (n_turns > r.low_factor ? plain[i] : slow),
                      "pair %u: %g of %g", i, (double)frequencies[i], (double)plain[i]);
        }
    }
}

/* As the checkpoint in the scratch directory says when it is converted. */
static void configure_converted(mf_hparams *h)
{
    char out[] = "/tmp/mf_errors_config_XXXXXX", command[64];
    mf_convert_options options;
    mf_convert_result result;
    mf_error error = {0};
    mf_convert_options_default(&options);
    REQUIRE(mkdtemp(out) != NULL);
    REQUIRE_OK(mf_convert(scratch_path("."), out, &options, &result, &error), &error);
    configure_dir(out, h);
    snprintf(command, sizeof command, "rm -rf '%s'", out);
    REQUIRE(system(command) == 0); /* NOLINT(cert-env33-c): the folder is ours */
}

/* What a window is where the config leaves it out, or has null, as transformers' classes have it.
 */
static void test_windows(void)
{
    static const struct {
        const char *checkpoint, *from, *to;
        uint32_t window[3];
    } cases[] = {
        {"gpt_oss_bf16", "\"sliding_window\": 7,", "", {128, 0, 128}},
        {"mistral_window_bf16", ",\n \"sliding_window\": 11", "", {4096, 4096}},
        {"mistral_window_bf16", "\"sliding_window\": 11", "\"sliding_window\": null", {0, 0}},
        {"mixtral_bf16", "\"sliding_window\"", "\"other\"", {0, 0}},
        {"mistral3_bf16", "\"sliding_window\"", "\"other\"", {0, 0}},
        {"qwen2_window_f16", "\"sliding_window\"", "\"other\"", {0, 4096, 4096}},
        /* layers without one take turns with it, up to max_window_layers */
        {"qwen2_moe_bf16",
         "\"use_sliding_window\": false,\n \"sliding_window\": null",
         "\"use_sliding_window\": true, \"sliding_window\": 9",
         {9, 0, 9}},
        {"qwen2_moe_bf16",
         "\"use_sliding_window\": false,\n \"sliding_window\": null,\n \"max_window_layers\": 21",
         "\"use_sliding_window\": true, \"max_window_layers\": 2",
         {4096, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mf_hparams h, converted;
        configure_from(cases[i].checkpoint, cases[i].from, cases[i].to, &h);
        configure_converted(&converted);
        for (uint32_t j = 0; j < h.n_layers && j < 3; j++)
            CHECK_MSG(h.window[j] == cases[i].window[j] && converted.window[j] == h.window[j],
                      "%s with %s: layer %u has %u and, converted, %u; expected %u",
                      cases[i].checkpoint, cases[i].to, j, h.window[j], converted.window[j],
                      cases[i].window[j]);
    }
}

static size_t put(unsigned char *to, const void *from, size_t n)
{
    memcpy(to, from, n);
    return n;
}

static size_t put_key(unsigned char *to, const char *key, uint32_t type)
{
    const uint64_t length = strlen(key);
    size_t n = put(to, &length, sizeof length);
    n += put(to + n, key, length);
    return n + put(to + n, &type, sizeof type);
}

enum { GGUF_FLOAT = 6, GGUF_STRING = 8 };

/* A key more in the scratch GGUF file's head, and a text that keeps tensors where they were to the
 * next 32 bytes. */
static void add_key(const char *key, uint32_t type, const void *value, size_t n_value)
{
    enum { HEAD = 24, ALIGNED = 32 };
    size_t n_file, n = HEAD;
    uint64_t n_keys, n_text;
    unsigned char *file = read_file(scratch_path("model.gguf"), &n_file);
    unsigned char *out = calloc(n_file + 256, 1);
    REQUIRE(out != NULL && n_file > HEAD);
    memcpy(&n_keys, file + 16, sizeof n_keys);
    n_keys += 2;
    memcpy(out, file, 16);
    memcpy(out + 16, &n_keys, sizeof n_keys);
    n += put_key(out + n, key, type);
    n += put(out + n, value, n_value);
    n += put_key(out + n, "filler", GGUF_STRING);
    n_text = (ALIGNED - (n - HEAD + sizeof n_text) % ALIGNED) % ALIGNED;
    n += put(out + n, &n_text, sizeof n_text) + n_text;
    memcpy(out + n, file + HEAD, n_file - HEAD);
    scratch_write("model.gguf", out, n + n_file - HEAD);
    free(out);
    free(file);
}

static void add_number(const char *key, float number)
{
    add_key(key, GGUF_FLOAT, &number, sizeof number);
}

/* Llama 3.1's factors beside another type of rotation, which would be the rotation alone. */
static void test_factors_and_type(void)
{
    static const char yarn[] = "\4\0\0\0\0\0\0\0yarn";
    char path[600];
    mf_model_info info = {0};
    mf_error error = {0};
    snprintf(path, sizeof path, "%s/model.gguf", scratch_copy("gguf_llama31_f16"));
    add_key("llama.rope.scaling.type", GGUF_STRING, yarn, sizeof yarn - 1);
    CHECK_STATUS(mf_model_inspect(path, NULL, &info, &error), MF_ERR_UNSUPPORTED);
    CHECK_MSG(strstr(error.message, "llama.rope.scaling.type is yarn") != NULL &&
                  strstr(error.message, "rope_freqs.weight") != NULL,
              "%s", error.message);
}

/* A factor alone, by its newer name or its older one, is linear scaling; 0 or 1 is not. Seen beside
 * Llama 3.1's factors, with which no type is taken. */
static void test_gguf_linear(void)
{
    static const struct {
        const char *key;
        float factor;
        bool is_linear;
    } cases[] = {
        {"llama.rope.scaling.factor", 2, true},  {"llama.rope.scaling.factor", 1, false},
        {"llama.rope.scaling.factor", 0, false}, {"llama.rope.scale_linear", 2, true},
        {"llama.rope.scale_linear", 1, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[600];
        mf_model_info info = {0};
        mf_error error = {0};
        snprintf(path, sizeof path, "%s/model.gguf", scratch_copy("gguf_llama31_f16"));
        add_number(cases[i].key, cases[i].factor);
        CHECK_STATUS(mf_model_inspect(path, NULL, &info, &error),
                     cases[i].is_linear ? MF_ERR_UNSUPPORTED : MF_OK);
        CHECK_MSG(!cases[i].is_linear || strstr(error.message, "is linear") != NULL, "%zu: %s", i,
                  error.message);
    }
}

/* Keys that were passed over although they change the result; those that say "none" are not in the
 * way. */
static void test_gguf_factors(void)
{
    static const struct {
        const char *key;
        float none, other;
    } keys[] = {
        {"rope.scaling.attn_factor", 1, 1.5f},
        {"rope.scaling.yarn_attn_factor", 1, 0.5f},
        {"rope.scaling.yarn_ext_factor", 1, 0.5f},
        {"rope.scaling.yarn_ext_factor", -1, 0},
        {"rope.scaling.alpha", 0, 50},
        {"attention.scale", 0, 0.125f},
        {"logit_scale", 0, 8},
        {"residual_scale", 1, 0.25f},
        {"embedding_scale", 0, 12},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (int is_other = 0; is_other < 2; is_other++) {
            char path[600], key[64];
            mf_model_info info = {0};
            mf_error error = {0};
            snprintf(path, sizeof path, "%s/model.gguf", scratch_copy("gguf_qwen3_moe_q8_0"));
            snprintf(key, sizeof key, "qwen3moe.%s", keys[i].key);
            add_number(key, is_other ? keys[i].other : keys[i].none);
            CHECK_STATUS(mf_model_inspect(path, NULL, &info, &error),
                         is_other ? MF_ERR_UNSUPPORTED : MF_OK);
            CHECK_MSG(!is_other || strstr(error.message, key) != NULL, "%s: %s", key,
                      error.message);
        }
}

/* As MLX's converters write affine modules of a model that is otherwise of another mode: entries
 * without a mode are affine ones, in groups of their own. */
static void test_mode_of_entries(void)
{
    static const char affine[] = "\"mode\": \"affine\"", unknown[] = "\"none\": \"affine\"";
    char path[600];
    size_t n;
    mf_model_info info = {0};
    mf_error error = {0};
    snprintf(path, sizeof path, "%s", scratch_copy("mlx_mixed_3_6"));
    scratch_replace("config.json", affine, "\"mode\": \"mxfp4\"");
    char *text = (char *)read_file(scratch_path("config.json"), &n);
    for (size_t i = 0; i + sizeof affine <= n; i++)
        if (memcmp(text + i, affine, sizeof affine - 1) == 0)
            memcpy(text + i, unknown, sizeof unknown - 1);
    scratch_write("config.json", text, n);
    free(text);
    CHECK_STATUS(mf_model_inspect(path, NULL, &info, &error), MF_OK);
}

int main(void)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        check_refusal(&refusals[i]);
    test_equals();
    test_frequencies();
    test_mscale();
    test_defaults();
    test_reach();
    test_equal_ends();
    test_windows();
    test_gguf_factors();
    test_factors_and_type();
    test_gguf_linear();
    test_head_again();
    test_mode_of_entries();
    scratch_remove();
    return test_result();
}
