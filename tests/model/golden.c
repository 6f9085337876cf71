/* SPDX-License-Identifier: MIT */
/* Golden files and the runs that are compared with them. */
#include "golden.h"

#include "base/cpu.h"
#include "kernels/kernels.h"

const golden_case golden_cases[] = {
    {"hf_bf16", "golden.bin", 0, 0, 0},
    {"hf_saved_tied_f16", "golden.bin", 0, 0, 0},
    {"hf_tied_f32", "golden.bin", 0, 0, 0},
    {"hf_yarn_tied_f16", "golden.bin", 0, 0, 0},
    {"next_bf16", "golden.bin", 0, 0, 0},
    {"next_plain_topk_f16", "golden.bin", 0, 0, 0},
    {"next_mlx_4bit", "golden.bin", 0, 0, 0},
    {"next_yarn_f32", "golden.bin", 0, 0, 0},
    {"mlx_2bit_f16", "golden.bin", 0, 0, 0},
    {"mlx_3bit_g128", "golden.bin", 0, 0, 0},
    {"mlx_4bit", "golden.bin", 0, 0, 0},
    {"mlx_4bit", "golden_2_experts.bin", 0, 2, 0},
    {"mlx_5bit", "golden.bin", 0, 0, 0},
    {"mlx_6bit_f32", "golden.bin", 0, 0, 0},
    {"mlx_8bit_tied", "golden.bin", 0, 0, 0},
    {"mlx_mixed_3_6", "golden.bin", 0, 0, 0},
    {"mlx_10_of_512", "golden.bin", 0, 0, 0},
    {"packed", "golden.bin", 0, 0, 0},
    {"packed", "golden_2bit.bin", 2, 0, 0},
    {"packed_no_config", "golden.bin", 0, 0, 0},
    {"k2_bf16", "golden.bin", 0, 0, 0},
    {"k2_fp8", "golden.bin", 0, 0, 0},
    {"k2_fp8_tensor", "golden.bin", 0, 0, 0},
    {"k2_int4", "golden.bin", 0, 0, 0},
    {"k2_mlx_4bit", "golden.bin", 0, 0, 0},
    {"k2_mlx_mxfp4", "golden.bin", 0, 0, 0},
    {"k2_nvfp4_divided", "golden.bin", 0, 0, 0},
    {"v2_groups_f16", "golden.bin", 0, 0, 0},
    {"v2_lite_bf16", "golden.bin", 0, 0, 0},
    {"v2_lite_mlx_4bit", "golden.bin", 0, 0, 0},
    {"v3_bf16", "golden.bin", 0, 0, 0},
    {"v3_fp8", "golden.bin", 0, 0, 0},
    {"v3_fp8_bf16_scales", "golden.bin", 0, 0, 0},
    {"v3_fp8_channel", "golden.bin", 0, 0, 0},
    {"v3_int8", "golden.bin", 0, 0, 0},
    {"v3_long", "golden.bin", 0, 0, 4352},
    {"v3_mlx_4bit_split", "golden.bin", 0, 0, 0},
    {"v3_mlx_4bit_whole", "golden.bin", 0, 0, 0},
    {"v3_mlx_8bit_split_plain", "golden.bin", 0, 0, 0},
    {"v3_mlx_nvfp4", "golden.bin", 0, 0, 0},
    {"v3_mtp_half_split_rope", "golden.bin", 0, 0, 0},
    {"v3_nvfp4", "golden.bin", 0, 0, 0},
    {"v3_no_q_lora_f16", "golden.bin", 0, 0, 0},
    {"v3_packed", "golden.bin", 0, 0, 0},
    {"v3_packed", "golden_2bit.bin", 2, 0, 0},
    {"v3_packed_no_config", "golden.bin", 0, 0, 0},
    {"v3_saved_bf16", "golden.bin", 0, 0, 0},
    {"v3_yarn_f32", "golden.bin", 0, 0, 0},
    {"v3_yarn_no_mscale", "golden.bin", 0, 0, 0},
    {"v3_linear_rope_f16", "golden.bin", 0, 0, 0},
    {"v3_yarn_no_mscale", "golden_2_experts.bin", 0, 2, 0},
    {"v3_yarn_two_mscales", "golden.bin", 0, 0, 0},
    {"qwen3_moe_bf16", "golden.bin", 0, 0, 0},
    {"qwen3_moe_dense_layers_f32", "golden.bin", 0, 0, 0},
    {"qwen3_moe_yarn_fp8", "golden.bin", 0, 0, 0},
    {"qwen2_moe_bf16", "golden.bin", 0, 0, 0},
    {"qwen2_window_f16", "golden.bin", 0, 0, 0},
    {"qwen3_dense_bf16", "golden.bin", 0, 0, 0},
    {"llama3_f16", "golden.bin", 0, 0, 0},
    {"mistral_window_bf16", "golden.bin", 0, 0, 0},
    {"mixtral_bf16", "golden.bin", 0, 0, 0},
    {"glm4_moe_bf16", "golden.bin", 0, 0, 0},
    {"glm4_moe_groups_f16", "golden.bin", 0, 0, 0},
    {"minimax_m2_fp8", "golden.bin", 0, 0, 0},
    {"minimax_m2_f32", "golden.bin", 0, 0, 0},
    {"qwen3_moe_mlx_4bit", "golden.bin", 0, 0, 0},
    {"qwen3_dense_mlx_4bit", "golden.bin", 0, 0, 0},
    {"mixtral_mlx_4bit", "golden.bin", 0, 0, 0},
    {"glm4_moe_mlx_4bit", "golden.bin", 0, 0, 0},
    {"minimax_m2_mlx_4bit", "golden.bin", 0, 0, 0},
    {"qwen3_moe_mlx_4bit", "golden_2_experts.bin", 0, 2, 0},
    {"gguf_35_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_35_q4_k", "golden.bin", 0, 0, 0},
    {"gguf_next_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_next_old_f16", "golden.bin", 0, 0, 0},
    {"gguf_v3_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_v3_old_bf16", "golden.bin", 0, 0, 0},
    {"gguf_v2_lite_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_v2_groups_f32", "golden.bin", 0, 0, 0},
    {"gguf_qwen3_moe_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_qwen2_moe_f16", "golden.bin", 0, 0, 0},
    {"gguf_mixtral_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_llama_bf16", "golden.bin", 0, 0, 0},
    {"gguf_glm4_moe_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_minimax_m2_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_35_nvfp4", "golden.bin", 0, 0, 0},
    {"gguf_qwen3_f16", "golden.bin", 0, 0, 0},
    {"gguf_gpt_oss_mxfp4", "golden.bin", 0, 0, 0},
    {"gguf_with_text", "golden.bin", 0, 0, 0},
    {"gguf_llama31_f16", "golden.bin", 0, 0, 0},
    {"gguf_linear_rope_f16", "golden.bin", 0, 0, 0},
    {"gguf_ernie4_5_moe_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_hunyuan_moe_f16", "golden.bin", 0, 0, 0},
    {"gguf_glm_dsa_f16", "golden.bin", 0, 0, 0},
    {"gguf_kimi_linear_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_kimi_linear_groups_f16", "golden.bin", 0, 0, 0},
    {"gguf_llama4_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_llama4_dense_layers_f16", "golden.bin", 0, 0, 0},
    {"gpt_oss_bf16", "golden.bin", 0, 0, 0},
    {"gpt_oss_types_f32", "golden.bin", 0, 0, 0},
    {"gpt_oss_turned_bf16", "golden.bin", 0, 0, 0},
    {"gpt_oss_mlx_4bit", "golden.bin", 0, 0, 0},
    {"gpt_oss_mxfp4", "golden.bin", 0, 0, 0},
    {"ernie4_5_moe_bf16", "golden.bin", 0, 0, 0},
    {"ernie4_5_moe_interval_f16", "golden.bin", 0, 0, 0},
    {"hunyuan_v1_moe_bf16", "golden.bin", 0, 0, 0},
    {"mistral3_bf16", "golden.bin", 0, 0, 0},
    {"glm4v_moe_bf16", "golden.bin", 0, 0, 0},
    {"qwen3_vl_f16", "golden.bin", 0, 0, 0},
    {"llama4_mlx_bf16", "golden.bin", 0, 0, 0},
    {"llama4_dense_layers_f32", "golden.bin", 0, 0, 0},
    {"llama4_lists_f16", "golden.bin", 0, 0, 0},
    {"llama4_turned_bf16", "golden.bin", 0, 0, 0},
    {"qwen3_vl_moe_turned_bf16", "golden.bin", 0, 0, 0},
    {"qwen3_vl_moe_square_f16", "golden.bin", 0, 0, 0},
    {"kimi_linear_bf16", "golden.bin", 0, 0, 0},
    {"kimi_linear_groups_f32", "golden.bin", 0, 0, 0},
    {"kimi_linear_f16", "golden.bin", 0, 0, 0},
    {"deepseek_v4_bf16", "golden.bin", 0, 0, 0},
    {"deepseek_v4_types_f32", "golden.bin", 0, 0, 0},
    {"deepseek_v4_plain_f16", "golden.bin", 0, 0, 0},
    {"deepseek_v4_fp8", "golden.bin", 0, 0, 0},
    {"deepseek_v32_index_f32", "golden.bin", 0, 0, 0},
    {"glm_moe_dsa_index_bf16", "golden.bin", 0, 0, 0},
    {"deepseek_v32_bf16", "golden.bin", 0, 0, 0},
    {"glm_moe_dsa_f16", "golden.bin", 0, 0, 0},
    {"qwen3_moe_gptq", "golden.bin", 0, 0, 0},
    {"qwen3_moe_gptq_3bit", "golden.bin", 0, 0, 0},
    {"qwen2_moe_gptq_v2", "golden.bin", 0, 0, 0},
    {"mixtral_gptq_8bit", "golden.bin", 0, 0, 0},
    {"qwen3_moe_awq", "golden.bin", 0, 0, 0},
    {"mixtral_int4_points", "golden.bin", 0, 0, 0},
    {"qwen3_moe_int8_points", "golden.bin", 0, 0, 0},
    {"mixtral_int4_channel", "golden.bin", 0, 0, 0},
    {"qwen2_moe_int6_points", "golden.bin", 0, 0, 0},
    {"glm4_moe_int8_bytes", "golden.bin", 0, 0, 0},
    {"glm4_moe_int8_bytes_points", "golden.bin", 0, 0, 0},
    {"k2_mlx_mxfp8", "golden.bin", 0, 0, 0},
    {"qwen3_5_moe_fp8", "golden.bin", 0, 0, 0},
    {"qwen3_5_moe_stacked_fp8", "golden.bin", 0, 0, 0},
    {"qwen3_5_moe_stacked_fp8_bf16_scales", "golden.bin", 0, 0, 0},
    {"qwen3_5_bf16", "golden.bin", 0, 0, 0},
    {"qwen3_5_tied_f16", "golden.bin", 0, 0, 0},
    {"glm4_moe_lite_bf16", "golden.bin", 0, 0, 0},
    {"glm4_moe_lite_types_f16", "golden.bin", 0, 0, 0},
    {"kimi_k25_bf16", "golden.bin", 0, 0, 0},
    {"mistral3_growth_f16", "golden.bin", 0, 0, 0},
    {"gguf_qwen35_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_ministral3_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_qwen3_vl_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_qwen3_vl_moe_f16", "golden.bin", 0, 0, 0},
    {"gguf_qwen2_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_deepseek_v32_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_deepseek_v4_q8_0", "golden.bin", 0, 0, 0},
    {"gguf_glm_dsa_index_f16", "golden.bin", 0, 0, 0},
    {"gguf_glm4_moe_lite_q8_0", "golden.bin", 0, 0, 0},
};
const size_t n_golden_cases = sizeof golden_cases / sizeof *golden_cases;

const golden_case *golden_case_find(const char *name)
{
    for (size_t i = 0; i < n_golden_cases; i++)
        if (strcmp(golden_cases[i].name, name) == 0)
            return &golden_cases[i];
    fprintf(stderr, "no golden case %s\n", name);
    exit(1);
}

bool golden_is_short(void)
{
    return GOLDEN_ON_DEVICE && getenv("MF_TEST_LONG") == NULL;
}

bool golden_is_asked_for(const golden_case *c, int argc, char **argv)
{
    bool is_listed = true;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && strcmp(c->name, argv[i] + 1) == 0)
            return false;
        if (strcmp(c->name, argv[i]) == 0)
            return true;
        is_listed = is_listed && argv[i][0] == '-';
    }
    return is_listed;
}

unsigned char *read_file(const char *path, size_t *n_bytes)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        fprintf(stderr, "%s: cannot be opened (tests run in the project's root)\n", path);
        exit(1);
    }
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    unsigned char *data = malloc((size_t)n + 1);
    if (n < 0 || data == NULL || fread(data, 1, (size_t)n, f) != (size_t)n) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    data[n] = 0;
    fclose(f);
    *n_bytes = (size_t)n;
    return data;
}

bool golden_has_tier(uint32_t tier)
{
    if (GOLDEN_ON_DEVICE)
        return tier == MF_CPU_SCALAR;
    return mf_kernels_get((mf_cpu_tier)tier) != NULL;
}

int golden_stop(void *stopper, uint64_t n_done, uint64_t n_total)
{
    golden_stopper *s = stopper;
    (void)n_done;
    (void)n_total;
    return ++s->n_asked == s->at;
}

const char *golden_path(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], GOLDEN_ROOT "/%s", name);
    return path;
}

void golden_read(const golden_case *c, golden *out)
{
    char path[512];
    size_t n_bytes;
    snprintf(path, sizeof path, GOLDEN_ROOT "/%s/%s", c->name, c->golden);
    unsigned char *file = read_file(path, &n_bytes);
    uint32_t head[6];
    REQUIRE(n_bytes > 32 && memcmp(file, "MFGOLDEN", 8) == 0);
    memcpy(head, file + 8, sizeof head);
    REQUIRE(head[0] == 1 || head[0] == 2);
    *out = (golden){.has_few = head[0] == 2,
                    .n_logits = head[0] == 2 ? head[5] : head[1],
                    .n_tokens = head[1],
                    .n_vocab = head[2],
                    .n_layers = head[3],
                    .hidden_size = head[4],
                    .n_positions = head[5],
                    .file = file};
    unsigned char *p = file + 32;
    out->tokens = (int32_t *)(void *)p;
    p += 4 * (size_t)out->n_tokens;
    out->positions = (uint32_t *)(void *)p;
    p += 4 * (size_t)out->n_positions;
    out->hidden = (float *)(void *)p;
    p += 4 * (size_t)out->n_layers * out->n_positions * out->hidden_size;
    out->logits = (float *)(void *)p;
    p += 4 * (size_t)out->n_logits * out->n_vocab;
    REQUIRE(p == file + n_bytes);
}

uint32_t golden_position(const golden *g, uint32_t i)
{
    return g->has_few ? g->positions[i] : i;
}

void golden_free(golden *g)
{
    free(g->file);
    *g = (golden){0};
}

mf_engine_options golden_options(const golden_case *c)
{
    mf_engine_options options;
    mf_engine_options_default(&options);
    options.n_context_tokens = c->n_context ? c->n_context : 160;
    options.packed_expert_bits = c->packed_bits;
    options.n_experts_per_token = c->n_experts_per_token;
    return options;
}

mf_engine *golden_open(const golden_case *c, const mf_engine_options *options)
{
    mf_engine *engine = NULL;
    mf_error error = {0};
    mf_status status = mf_engine_open(golden_path(c->name), options, &engine, &error);
    if (status != MF_OK) {
        fprintf(stderr, "%s: open: %s: %s\n", c->name, mf_status_name(status), error.message);
        exit(1);
    }
    return engine;
}

mf_session *golden_session(mf_engine *engine)
{
    mf_session *session = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    return session;
}

typedef struct copy_target {
    float *out;
    size_t n_vocab;
    size_t n_seen;
} copy_target;

static int copy_logits(void *user, size_t token_index, const float *logits)
{
    copy_target *target = user;
    if (token_index != target->n_seen++)
        return 1; /* out of order: the evaluation ends as cancelled */
    memcpy(target->out + token_index * target->n_vocab, logits, target->n_vocab * sizeof(float));
    return 0;
}

mf_status golden_eval(mf_session *session, const int32_t *tokens, size_t n_tokens, size_t n_vocab,
                      float *out, mf_error *error)
{
    copy_target target = {out, n_vocab, 0};
    return mf_session_eval_each(session, tokens, n_tokens, copy_logits, &target, error);
}

float *golden_run(const golden_case *c, const golden *g, const mf_engine_options *options,
                  mf_error *error)
{
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    float *logits = malloc((size_t)g->n_tokens * g->n_vocab * sizeof(float));
    mf_status status = mf_engine_open(golden_path(c->name), options, &engine, error);
    if (status == MF_OK)
        status = mf_session_create(engine, &session, error);
    if (status == MF_OK)
        status = golden_eval(session, g->tokens, g->n_tokens, g->n_vocab, logits, error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    if (status == MF_OK)
        return logits;
    free(logits);
    return NULL;
}
