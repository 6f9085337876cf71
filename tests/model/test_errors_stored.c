/* SPDX-License-Identifier: MIT */
/* Published stored forms whose tensors are not what they have to be: refused, by name, with what
 * was expected. */
#include "golden.h"
#include "scratch_dir.h"

static const char model[] = "model.safetensors";

typedef struct damage {
    const char *checkpoint, *from, *to; /* in the header of its file */
    mf_status status;
    const char *reason[2];
} damage;

#define GATE "model.layers.1.mlp.experts.3.gate_proj."
#define WORDS GATE

static const damage damages[] = {
    {"k2_int4",
     GATE "weight_shape",
     GATE "weight_zero_point",
     MF_ERR_FORMAT,
     {GATE "weight_zero_point", "[8, 3] of I32 (pack-quantized, 4 bits)"}},
    {"k2_int4",
     GATE "weight_shape",
     GATE "weight_g_idx",
     MF_ERR_FORMAT,
     {GATE "weight_g_idx", "[96] of I32"}},
    {"qwen3_moe_gptq",
     WORDS "qzeros",
     WORDS "zeros",
     MF_ERR_FORMAT,
     {WORDS "qzeros", "is missing"}},
    {"qwen3_moe_gptq",
     WORDS "qweight\":{\"dtype\":\"I32\",\"shape\":[12,64]",
     WORDS "qweight\":{\"dtype\":\"I32\",\"shape\":[64,12]",
     MF_ERR_UNSUPPORTED,
     {WORDS "qweight", "gptq of 21 bits, 3 scales for a row of 96"}},
    {"qwen3_moe_gptq",
     WORDS "scales\":{\"dtype\":\"F16\",\"shape\":[3,64]",
     WORDS "scales\":{\"dtype\":\"F16\",\"shape\":[64,3]",
     MF_ERR_UNSUPPORTED,
     {WORDS "qweight", "64 scales for a row of 96"}},
    {"qwen3_moe_gptq",
     WORDS "g_idx\":{\"dtype\":\"I32\",\"shape\":[96]",
     WORDS "g_idx\":{\"dtype\":\"F32\",\"shape\":[96]",
     MF_ERR_FORMAT,
     {WORDS "g_idx", "[96] of I32 (gptq, 4 bits)"}},
    {"qwen3_moe_awq",
     WORDS "qweight\":{\"dtype\":\"I32\",\"shape\":[64,12]",
     WORDS "qweight\":{\"dtype\":\"I32\",\"shape\":[12,64]",
     MF_ERR_FORMAT,
     {WORDS "qweight", "[64, 12] of I32 (awq, 4 bits)"}},
    {"glm4_moe_int8_bytes",
     "model.layers.1.mlp.experts.3.gate_proj.weight_scale\":{\"dtype\":\"BF16\",\"shape\":[32,1]",
     "model.layers.1.mlp.experts.3.gate_proj.weight_scale\":{\"dtype\":\"BF16\",\"shape\":[1,32]",
     MF_ERR_UNSUPPORTED,
     {"experts.3.gate_proj.weight", "int-quantized of 8 bits, 32 scales"}},
    {"k2_mlx_mxfp8",
     "model.layers.1.mlp.switch_mlp.up_proj.scales\":{\"dtype\":\"U8\"",
     "model.layers.1.mlp.switch_mlp.up_proj.scales\":{\"dtype\":\"I8\"",
     MF_ERR_FORMAT,
     {"switch_mlp.up_proj.scales", "of U8"}},
    {"k2_int4",
     GATE "weight_scale",
     GATE "weight_scales",
     MF_ERR_FORMAT,
     {GATE "weight_scale", "is missing"}},
    {"k2_int4",
     GATE "weight_packed\":{\"dtype\":\"I32\",\"shape\":[64,12]",
     GATE "weight_packed\":{\"dtype\":\"I32\",\"shape\":[32,24]",
     MF_ERR_FORMAT,
     {GATE "weight_packed", "[64, 96] of 4 or 8 bits"}},
    {"k2_int4",
     GATE "weight_packed\":{\"dtype\":\"I32\"",
     GATE "weight_packed\":{\"dtype\":\"F32\"",
     MF_ERR_FORMAT,
     {GATE "weight_packed", "F32"}},
    {"k2_int4",
     GATE "weight_scale\":{\"dtype\":\"BF16\",\"shape\":[64,3]",
     GATE "weight_scale\":{\"dtype\":\"BF16\",\"shape\":[32,6]",
     MF_ERR_FORMAT,
     {GATE "weight_scale", "32, 64 or 128"}},
    {"v3_fp8_channel",
     "model.layers.1.self_attn.o_proj.weight_scale\":{\"dtype\":\"BF16\",\"shape\":[132,1]",
     "model.layers.1.self_attn.o_proj.weight_scale\":{\"dtype\":\"BF16\",\"shape\":[66,2]",
     MF_ERR_FORMAT,
     {"o_proj.weight_scale", "[132, 1]"}},
    {"k2_fp8_tensor",
     GATE "weight_scale\":{\"dtype\":\"F32\"",
     GATE "weight_scale\":{\"dtype\":\"I32\"",
     MF_ERR_FORMAT,
     {GATE "weight_scale", "F32, F16 or BF16"}},
    {"v3_nvfp4",
     GATE "weight_scale_2\":{\"dtype\":\"F32\"",
     GATE "weight_scale_2\":{\"dtype\":\"U32\"",
     MF_ERR_FORMAT,
     {GATE "weight_scale_2", "one value of F32"}},
    {"k2_nvfp4_divided",
     GATE "weight_global_scale",
     GATE "weight_global",
     MF_ERR_FORMAT,
     {GATE "weight_global_scale", "is missing"}},
    {"k2_nvfp4_divided",
     GATE "weight_packed\":{\"dtype\":\"U8\",\"shape\":[32,40]",
     GATE "weight_packed\":{\"dtype\":\"U8\",\"shape\":[40,32]",
     MF_ERR_FORMAT,
     {GATE "weight_packed", "[32, 80] of 4 bits"}},
    {"v3_mlx_nvfp4",
     "model.layers.1.mlp.switch_mlp.up_proj.scales\":{\"dtype\":\"U8\"",
     "model.layers.1.mlp.switch_mlp.up_proj.scales\":{\"dtype\":\"I8\"",
     MF_ERR_FORMAT,
     {"switch_mlp.up_proj.scales", "U8 or F8_E4M3"}},
    {"k2_mlx_mxfp4",
     "model.layers.1.mlp.switch_mlp.up_proj.scales\":{\"dtype\":\"U8\"",
     "model.layers.1.mlp.switch_mlp.up_proj.scales\":{\"dtype\":\"F8_E4M3\"",
     MF_ERR_FORMAT,
     {"switch_mlp.up_proj.scales", "of U8"}},
};

/* The checkpoint, as it was damaged. */
static void check_refused(const damage *d, const char *dir)
{
    mf_engine_options options = golden_options(golden_case_find(d->checkpoint));
    mf_engine *engine = NULL;
    mf_error error = {0};
    const mf_status status = mf_engine_open(dir, &options, &engine, &error);
    CHECK_MSG(status == d->status && engine == NULL, "%s to %s: %s (\"%s\")", d->from, d->to,
              mf_status_name(status), error.message);
    for (size_t i = 0; i < 2; i++)
        CHECK_CONTAINS(error.message, d->reason[i]);
    mf_engine_close(&engine);
    scratch_remove();
}

static void check_damage(const damage *d)
{
    const char *dir = scratch_copy(d->checkpoint);
    scratch_replace_in_header(model, d->from, d->to);
    check_refused(d, dir);
}

/* Fields of a config that say how integers are stored. */
static const damage configs[] = {
    {"qwen3_moe_gptq",
     "\"checkpoint_format\": \"gptq\"",
     "\"checkpoint_format\": \"marlin\"",
     MF_ERR_UNSUPPORTED,
     {"quantization_config.checkpoint_format is marlin", "gptq and gptq_v2"}},
    {"qwen3_moe_gptq",
     "\"sym\": false",
     "\"sym\": 0",
     MF_ERR_FORMAT,
     {"quantization_config.sym", "true or false"}},
    {"qwen3_moe_gptq",
     "\"quant_method\": \"gptq\"",
     "\"method\": \"gptq\"",
     MF_ERR_FORMAT,
     {"qweight", "quant_method"}},
    {"qwen3_moe_awq",
     "\"version\": \"gemm\"",
     "\"version\": \"gemv\"",
     MF_ERR_UNSUPPORTED,
     {"quantization_config.version is gemv", "gemm"}},
    {"qwen3_moe_awq",
     "\"zero_point\": true",
     "\"zero_point\": false",
     MF_ERR_UNSUPPORTED,
     {"quantization_config.zero_point", "only true"}},
};

static void check_config(const damage *d)
{
    const char *dir = scratch_copy(d->checkpoint);
    scratch_replace("config.json", d->from, d->to);
    check_refused(d, dir);
}

/* Overwrites the first of a tensor's numbers. */
static void put_number(const char *tensor, int32_t number)
{
    size_t n_bytes;
    char name[128];
    unsigned char *file = read_file(scratch_path(model), &n_bytes);
    uint64_t n_header, first = 0;
    memcpy(&n_header, file, sizeof n_header);
    snprintf(name, sizeof name, "\"%s\":{", tensor);
    const char *at = strstr((const char *)file + 8, name);
    REQUIRE(at != NULL);
    at = strstr(at, "data_offsets\":[");
    REQUIRE(at != NULL);
    first = strtoull(at + strlen("data_offsets\":["), NULL, 10);
    memcpy(file + 8 + n_header + first, &number, sizeof number);
    scratch_write(model, file, n_bytes);
    free(file);
}

/* A group that is not there is found when the index is read: of a dense matrix when the model is
 * opened, of an expert when it is asked for. */
static void check_index(bool is_expert)
{
    const char *dir = scratch_copy("qwen3_moe_gptq");
    put_number(is_expert ? WORDS "g_idx" : "model.layers.0.self_attn.k_proj.g_idx", 3);
    golden g;
    const golden_case *c = golden_case_find("qwen3_moe_gptq");
    golden_read(c, &g);
    mf_engine_options options = golden_options(c);
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    float *logits = calloc((size_t)g.n_tokens * g.n_vocab, sizeof *logits);
    mf_status status = mf_engine_open(dir, &options, &engine, &error);
    CHECK(is_expert == (status == MF_OK));
    if (status == MF_OK) {
        REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
        status = golden_eval(session, g.tokens, g.n_tokens, g.n_vocab, logits, &error);
        CHECK_CONTAINS(error.message, "expert 3 of layer 1");
    }
    CHECK_STATUS(status, MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "g_idx");
    CHECK_CONTAINS(error.message, "expected 0 to 2");
    mf_session_free(&session);
    mf_engine_close(&engine);
    free(logits);
    golden_free(&g);
    scratch_remove();
}

/* Of a list of float32 values in a GGUF file the length, or the type, is another. */
typedef struct other_list {
    const char *golden, *name;
    unsigned char n, other;
    bool is_type;
    const char *reason;
} other_list;

static const other_list other_lists[] = {
    {"gguf_llama31_f16", "rope_freqs.weight", 8, 4, false, "is no list of 8"},
    {"gguf_llama31_f16", "rope_freqs.weight", 8, 1, true, "a list of 1 to 512 of F32"},
    {"gguf_35_nvfp4", "blk.1.ffn_down_exps.scale", 6, 5, false, "[6] of F32 (the factor of NVFP4)"},
    {"gguf_35_nvfp4", "blk.1.attn_q.scale", 1, 1, true, "[1] of F32 (the factor of NVFP4)"},
};

static void check_list(const other_list *l)
{
    const char *dir = scratch_copy(l->golden);
    const size_t n_name = strlen(l->name);
    size_t n_bytes, at = 0;
    unsigned char *file = read_file(scratch_path("model.gguf"), &n_bytes);
    while (at < n_bytes && memcmp(file + at, l->name, n_name) != 0)
        at++;
    REQUIRE(at < n_bytes);
    at += n_name; /* dimensions, the first of them, the type */
    CHECK(file[at] == 1 && file[at + 4] == l->n && file[at + 12] == 0);
    file[l->is_type ? at + 12 : at + 4] = l->other;
    scratch_write("model.gguf", file, n_bytes);
    free(file);
    mf_engine_options options = golden_options(golden_case_find(l->golden));
    mf_engine *engine = NULL;
    mf_error error = {0};
    CHECK_STATUS(mf_engine_open(dir, &options, &engine, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, l->name);
    CHECK_CONTAINS(error.message, l->reason);
    mf_engine_close(&engine);
    scratch_remove();
}

int main(void)
{
    for (size_t i = 0; i < sizeof other_lists / sizeof *other_lists; i++)
        check_list(&other_lists[i]);
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
        check_config(&configs[i]);
    check_index(false);
    check_index(true);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++)
        check_damage(&damages[i]);
    return test_result();
}
