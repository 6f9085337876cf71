/* SPDX-License-Identifier: MIT */
/*
 * Damaged and unknown checkpoints, and options that cannot be met: the status, and one line that
 * names the file and what is wrong with it.
 */
#include "golden.h"
#include "scratch_dir.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

static const char mlx[] = "model.safetensors";
static const char shard2[] = "model-00002-of-00002.safetensors";
static const char config[] = "config.json";

typedef struct damage {
    const char *name;
    const char *checkpoint;
    void (*apply)(void);
    mf_status status;
    const char *file;   /* named in the message */
    const char *reason; /* likewise: the tensor, field or value */
} damage;

#define WEIGHT "\"language_model.model.layers.2.self_attn.k_proj.weight\":"
#define AT "{\"data_offsets\":[518584,522680],\"dtype\":\"U32\",\"shape\":[64,16]}"

static void cut_shard(void)
{
    scratch_cut(shard2, -64);
}

static void cut_single(void)
{
    scratch_cut(mlx, -1);
}

static void cut_in_header(void)
{
    scratch_cut(mlx, 1000);
}

static void cut_in_length(void)
{
    scratch_cut(mlx, 5);
}

static void empty_file(void)
{
    scratch_cut(mlx, 0);
}

static void huge_header(void)
{
    static const unsigned char length[16] = {255, 255, 255, 255, 255, 255, 255, 127, '{', '}'};
    scratch_write(mlx, length, sizeof length);
}

static void broken_header(void)
{
    scratch_replace_in_header(mlx, "{\"__metadata__\":", "{\"__metadata__\",");
}

static void overlap(void)
{
    scratch_replace_in_header(
        mlx, WEIGHT AT,
        WEIGHT "{\"data_offsets\":[518580,522676],\"dtype\":\"U32\",\"shape\":[64,16]}");
}

static void overlap_by_one_byte(void)
{
    scratch_replace_in_header(
        mlx, WEIGHT AT,
        WEIGHT "{\"data_offsets\":[518583,522679],\"dtype\":\"U32\",\"shape\":[64,16]}");
}

static void overflow(void)
{
    scratch_replace_in_header(mlx, WEIGHT AT,
                              WEIGHT "{\"data_offsets\":[18446744073709551612,4092],\"dtype\":"
                                     "\"U32\",\"shape\":[64,16]}");
}

static void shape_overflow(void)
{
    scratch_replace_in_header(mlx, WEIGHT AT,
                              WEIGHT "{\"data_offsets\":[518584,522680],\"dtype\":\"U32\","
                                     "\"shape\":[4611686018427387904,1024]}");
}

static void beyond_file(void)
{
    scratch_replace_in_header(mlx, WEIGHT AT,
                              WEIGHT "{\"data_offsets\":[518584000,518588096],\"dtype\":\"U32\","
                                     "\"shape\":[64,16]}");
}

static void wrong_shape(void)
{
    scratch_replace_in_header(
        mlx, WEIGHT AT,
        WEIGHT "{\"data_offsets\":[518584,522680],\"dtype\":\"U32\",\"shape\":[32,32]}");
}

static void wrong_size(void)
{
    scratch_replace_in_header(
        mlx, WEIGHT AT,
        WEIGHT "{\"data_offsets\":[518584,522680],\"dtype\":\"U32\",\"shape\":[64,32]}");
}

static void wrong_dtype(void)
{
    scratch_replace_in_header(
        mlx, WEIGHT AT,
        WEIGHT "{\"data_offsets\":[518584,522680],\"dtype\":\"I32\",\"shape\":[64,16]}");
}

static void missing_tensor(void)
{
    scratch_replace_in_header(mlx, "language_model.model.layers.2.self_attn.q_norm.weight",
                              "mtp.q_norm.weight");
}

static void missing_expert(void)
{
    scratch_replace_in_header(mlx, "language_model.model.layers.1.mlp.switch_mlp.up_proj.scales",
                              "mtp.up_proj.scales");
}

static void surplus_tensor(void)
{
    scratch_replace_in_header(shard2, "mtp.norm.weight", "model.language_model.norm2.weight");
    scratch_replace("model.safetensors.index.json", "mtp.norm.weight",
                    "model.language_model.norm2.weight");
}

static void missing_shard(void)
{
    scratch_unlink(shard2);
}

static void bad_index(void)
{
    scratch_replace("model.safetensors.index.json", shard2, "../../etc/passwd");
}

static void no_weights(void)
{
    scratch_unlink(mlx);
}

static void no_config(void)
{
    scratch_unlink(config);
}

static void broken_config(void)
{
    scratch_cut(config, 200);
}

static void unknown_family(void)
{
    scratch_replace(config, "\"model_type\": \"qwen3_next\"", "\"model_type\": \"mammoth\"");
}

static void no_family(void)
{
    scratch_replace(config, "\"model_type\": \"qwen3_next\"", "\"other\": 1");
}

static void missing_field(void)
{
    scratch_replace(config, "\"moe_intermediate_size\"", "\"moe_intermediate_seize\"");
}

static void field_of_wrong_type(void)
{
    scratch_replace(config, "\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": \"three\"");
}

static void negative_field(void)
{
    scratch_replace(config, "\"hidden_size\": 128", "\"hidden_size\": -128");
}

static void huge_field(void)
{
    scratch_replace(config, "\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4000000000");
}

static void more_active_than_experts(void)
{
    scratch_replace(config, "\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 9");
}

static void heads_do_not_divide(void)
{
    scratch_replace(config, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3");
}

static void bad_bits(void)
{
    /* config.json has the object twice, as mlx writes it; the first one counts */
    scratch_replace(config, "\"bits\": 4", "\"bits\": 7");
}

static void bad_group(void)
{
    scratch_replace(config, "\"group_size\": 64", "\"group_size\": 48");
}

static void contradicting_bits(void)
{
    scratch_replace(config, "\"bits\": 4", "\"bits\": 2");
}

static void bad_mode(void)
{
    scratch_replace(config, "\"mode\": \"affine\"", "\"mode\": \"mxfp6\"");
}

static void cut_packed_weights(void)
{
    scratch_cut("model_weights.bin", -10);
}

static void broken_manifest(void)
{
    scratch_cut("model_weights.json", 3000);
}

static void cut_packed_experts(void)
{
    scratch_cut("packed_experts/layer_01.bin", -1);
}

static void missing_packed_experts(void)
{
    scratch_unlink("packed_experts/layer_02.bin");
}

static void contradicting_manifest(void)
{
    scratch_replace("model_weights.json", "\"bits\": 4", "\"bits\": 8");
}

static const damage damages[] = {
    {"truncated shard", "hf_bf16", cut_shard, MF_ERR_FORMAT, shard2, ""},
    {"truncated file", "mlx_4bit", cut_single, MF_ERR_FORMAT, mlx, ""},
    {"cut inside the header", "mlx_4bit", cut_in_header, MF_ERR_FORMAT, mlx, "header"},
    {"cut inside the header's length", "mlx_4bit", cut_in_length, MF_ERR_FORMAT, mlx, ""},
    {"empty file", "mlx_4bit", empty_file, MF_ERR_FORMAT, mlx, ""},
    {"header longer than the file", "mlx_4bit", huge_header, MF_ERR_FORMAT, mlx, "header"},
    {"header that is no JSON", "mlx_4bit", broken_header, MF_ERR_FORMAT, mlx, ""},
    {"overlapping offsets", "mlx_4bit", overlap, MF_ERR_FORMAT, mlx, "k_proj.weight"},
    {"overlap by a byte", "mlx_4bit", overlap_by_one_byte, MF_ERR_FORMAT, mlx, "overlap at byte"},
    {"overflowing offsets", "mlx_4bit", overflow, MF_ERR_FORMAT, mlx, "k_proj.weight"},
    {"overflowing shape", "mlx_4bit", shape_overflow, MF_ERR_FORMAT, mlx, "k_proj.weight"},
    {"offsets beyond the file", "mlx_4bit", beyond_file, MF_ERR_FORMAT, mlx, ""},
    {"wrong shape", "mlx_4bit", wrong_shape, MF_ERR_FORMAT, mlx, "k_proj.weight"},
    {"shape against size", "mlx_4bit", wrong_size, MF_ERR_FORMAT, mlx, "k_proj.weight"},
    {"wrong dtype", "mlx_4bit", wrong_dtype, MF_ERR_FORMAT, mlx, "k_proj"},
    {"missing tensor", "mlx_4bit", missing_tensor, MF_ERR_FORMAT, "", "layers.2.self_attn.q_norm"},
    {"missing expert tensor", "mlx_4bit", missing_expert, MF_ERR_FORMAT, "", "layers.1.mlp"},
    {"surplus tensor", "hf_bf16", surplus_tensor, MF_ERR_FORMAT, "", "norm2.weight"},
    {"missing shard", "hf_bf16", missing_shard, MF_ERR_NOT_FOUND, shard2, ""},
    {"index that leaves the directory", "hf_bf16", bad_index, MF_ERR_FORMAT, "index.json",
     "not a file name"},
    {"no weights", "mlx_4bit", no_weights, MF_ERR_NOT_FOUND, mlx, ""},
    {"no config.json", "mlx_4bit", no_config, MF_ERR_NOT_FOUND, config, ""},
    {"config.json cut short", "mlx_4bit", broken_config, MF_ERR_FORMAT, config, ""},
    {"unknown family", "next_bf16", unknown_family, MF_ERR_UNSUPPORTED, config, "mammoth"},
    {"no family", "next_bf16", no_family, MF_ERR_UNSUPPORTED, config, "model_type"},
    {"missing field", "mlx_4bit", missing_field, MF_ERR_FORMAT, config, "moe_intermediate_size"},
    {"field of a wrong type", "mlx_4bit", field_of_wrong_type, MF_ERR_FORMAT, config,
     "num_experts_per_tok"},
    {"negative field", "mlx_4bit", negative_field, MF_ERR_FORMAT, config, "hidden_size"},
    {"huge field", "mlx_4bit", huge_field, MF_ERR_FORMAT, config, "num_hidden_layers"},
    {"more active experts than experts", "mlx_4bit", more_active_than_experts, MF_ERR_FORMAT,
     config, "num_experts_per_tok"},
    {"heads that do not divide", "mlx_4bit", heads_do_not_divide, MF_ERR_FORMAT, config,
     "num_key_value_heads"},
    {"bad bits", "mlx_4bit", bad_bits, MF_ERR_FORMAT, config, "bits 7"},
    {"bad group", "mlx_4bit", bad_group, MF_ERR_FORMAT, config, "group_size 48"},
    {"bits against shape", "mlx_4bit", contradicting_bits, MF_ERR_FORMAT, config, "bits 2"},
    {"unknown quantisation", "mlx_4bit", bad_mode, MF_ERR_UNSUPPORTED, config, "mxfp6"},
    {"packed: weights cut short", "packed", cut_packed_weights, MF_ERR_FORMAT, "model_weights", ""},
    {"packed: manifest cut short", "packed", broken_manifest, MF_ERR_FORMAT, "model_weights.json",
     ""},
    {"packed: bits against shape", "packed", contradicting_manifest, MF_ERR_FORMAT, "",
     "bits 8, but its shape means 4"},
    {"packed: experts cut short", "packed", cut_packed_experts, MF_ERR_FORMAT,
     "packed_experts/layer_01.bin", ""},
    {"packed: experts missing", "packed", missing_packed_experts, MF_ERR_NOT_FOUND,
     "packed_experts/layer_02.bin", ""},
};

static void check_message(const char *name, const mf_error *error, const char *file,
                          const char *reason)
{
    CHECK_MSG(strstr(error->message, file) != NULL && strstr(error->message, reason) != NULL,
              "%s: the message \"%s\" lacks \"%s\" or \"%s\"", name, error->message, file, reason);
    CHECK_MSG(strchr(error->message, '\n') == NULL, "%s: more than one line", name);
}

static void check_damage(const damage *d)
{
    const char *dir = scratch_copy(d->checkpoint);
    d->apply();
    mf_engine_options options = golden_options(golden_case_find(d->checkpoint));
    mf_engine *engine = NULL;
    mf_error error = {0};
    mf_status status = mf_engine_open(dir, &options, &engine, &error);
    CHECK_MSG(status == d->status && error.code == status && engine == NULL,
              "%s: %s, expected %s (\"%s\")", d->name, mf_status_name(status),
              mf_status_name(d->status), error.message);
    if (status != MF_OK)
        check_message(d->name, &error, d->file, d->reason);
    mf_engine_close(&engine);
    mf_model_info info = {0};
    status = mf_model_inspect(dir, &options, &info, NULL);
    CHECK_MSG(status != MF_OK, "%s: inspect finds nothing wrong", d->name);
}

static void test_unknown_family_lists_known(void)
{
    const char *dir = scratch_copy("next_bf16");
    unknown_family();
    mf_engine *engine = NULL;
    mf_error error = {0};
    CHECK_STATUS(mf_engine_open(dir, NULL, &engine, &error), MF_ERR_UNSUPPORTED);
    for (const char *const *family = mf_families(); *family != NULL; family++)
        CHECK_CONTAINS(error.message, *family);
    CHECK_CONTAINS(error.message, "qwen3_5_moe");
    CHECK_CONTAINS(error.message, "qwen3_next");
}

static void test_directories(void)
{
    mf_engine *engine = NULL;
    mf_error error = {0};
    CHECK_STATUS(mf_engine_open("tests/model/no such place", NULL, &engine, &error),
                 MF_ERR_NOT_FOUND);
    CHECK_CONTAINS(error.message, "no such place");
    const char *file = golden_path("mlx_4bit/config.json");
    CHECK(mf_engine_open(file, NULL, &engine, &error) != MF_OK);
    CHECK_CONTAINS(error.message, "mlx_4bit/config.json");
    CHECK_STATUS(mf_engine_open(NULL, NULL, &engine, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_engine_open(file, NULL, NULL, &error), MF_ERR_ARGUMENT);
    CHECK(engine == NULL);
}

/* In a child that is not root: the scratch directory belongs to the parent and is 0700. */
static void test_unreadable_directory(void)
{
    char dir[256];
    snprintf(dir, sizeof dir, "%s", scratch_copy("mlx_4bit"));
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(TEST_SKIPPED);
        if (geteuid() != 65534)
            _exit(TEST_SKIPPED); /* the owner may read; only root can become someone else */
        mf_engine *engine = NULL;
        mf_error error = {0};
        mf_status status = mf_engine_open(dir, NULL, &engine, &error);
        bool good =
            status == MF_ERR_IO && error.os_errno == EACCES && strstr(error.message, dir) != NULL;
        if (!good)
            fprintf(stderr, "unreadable directory: %s, \"%s\"\n", mf_status_name(status),
                    error.message);
        _exit(good ? 0 : 1);
    }
    int state = 0;
    REQUIRE(waitpid(pid, &state, 0) == pid);
    CHECK(WIFEXITED(state) && (WEXITSTATUS(state) == 0 || WEXITSTATUS(state) == TEST_SKIPPED));
}

static void test_budget(void)
{
    const golden_case *c = golden_case_find("mlx_4bit");
    mf_engine_options options = golden_options(c);
    options.ram_bytes = 1 << 20;
    mf_engine *engine = NULL;
    mf_error error = {0};
    CHECK_STATUS(mf_engine_open(golden_path(c->name), &options, &engine, &error), MF_ERR_BUDGET);
    CHECK_CONTAINS(error.message, "mlx_4bit");
    mf_model_info info;
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &info, &error), &error);
    CHECK_U64(info.n_slots, 0);
    CHECK(info.floor_bytes > options.ram_bytes);
    options.ram_bytes = info.floor_bytes + (1 << 20);
    REQUIRE_OK(mf_engine_open(golden_path(c->name), &options, &engine, &error), &error);
    mf_engine_info(engine, &info);
    CHECK(info.n_slots > 0);
    mf_engine_close(&engine);
}

/* Of several options it is the guilty one that is named, with what it may be. */
static void test_guilty_options(const golden_case *c)
{
    const mf_engine_options good = golden_options(c);
    mf_engine_options bad[16];
    mf_model_info info;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        bad[i] = good;
    bad[0].n_threads = 1025;
    bad[1].n_sessions = 201;
    bad[2].n_chunk_tokens = (1u << 20) + 1;
    bad[3].state_bytes = 17361641481138402520u; /* a sixteenth more wraps around to little */
    bad[4].io = (mf_io_kind)3;
    bad[5].cpu_tier = "sse";
    bad[6].kv_type = (mf_kv_type)3;
    bad[7].mark_bytes = (UINT64_C(1) << 60) + 1;
    bad[8].device = "abacus";
    bad[9].expert_device = "CPU";
    bad[10].precision = (mf_precision)3;
    bad[11].numa = (mf_numa)2;
    bad[12].n_sessions = 0;
    bad[13].predict = (mf_predict)6;
    bad[14].cache_policy = "mru";
    bad[15].n_mirrors = 2; /* which are looked at when it is opened */
    static const char *const names[] = {"n_threads 1025 is more than 1024",
                                        "n_sessions 201 is more than 200",
                                        "n_chunk_tokens 1048577 is more than 1048576",
                                        "state_bytes 17361641481138402520",
                                        "io 3",
                                        "cpu_tier 'sse' is none of this CPU's: auto, scalar",
                                        "kv_type 3",
                                        "mark_bytes 1152921504606846977",
                                        "device 'abacus' is not known; there are: auto, cpu",
                                        "expert_device 'CPU' is not known",
                                        "precision 3 is more than 2",
                                        "numa 2 is more than 1",
                                        "n_sessions 0 is less than 1",
                                        "predict 6 is more than 5",
                                        "cache_policy: 'mru' is not known",
                                        "2 mirrors, but no array"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mf_engine *engine = NULL;
        mf_error error = {0};
        bad[i].ram_bytes = 200 << 20;
        CHECK_STATUS(mf_engine_open(golden_path(c->name), &bad[i], &engine, &error),
                     MF_ERR_ARGUMENT);
        CHECK_CONTAINS(error.message, names[i]);
        mf_engine_close(&engine);
        if (i < 15)
            CHECK_STATUS(mf_model_inspect(golden_path(c->name), &bad[i], &info, &error),
                         MF_ERR_ARGUMENT);
    }
}

/* All that is asked for is in the floor and in the message: the state, and checkpoints' logits. */
static void test_state_in_budget(const golden_case *c)
{
    mf_engine_options options = golden_options(c);
    mf_engine *engine = NULL;
    mf_error error = {0};
    options.state_bytes = UINT64_C(8) << 30;
    options.ram_bytes = 200 << 20;
    mf_model_info info;
    options.mark_bytes = options.state_bytes; /* all of it, and no more */
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &info, &error), &error);
    CHECK_U64(info.mark_bytes, options.state_bytes);
    options.mark_bytes++;
    CHECK_STATUS(mf_model_inspect(golden_path(c->name), &options, &info, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message, "mark_bytes 8589934593 is more than the 8589934592");
    options.mark_bytes = 1 << 20;
    CHECK_STATUS(mf_engine_open(golden_path(c->name), &options, &engine, &error), MF_ERR_BUDGET);
    CHECK_CONTAINS(error.message, "8704.0 MiB session state"); /* and a sixteenth for slabs */
    mf_model_info few, many;
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &few, &error), &error);
    options.mark_bytes = UINT64_C(4) << 30;
    REQUIRE_OK(mf_model_inspect(golden_path(c->name), &options, &many, &error), &error);
    CHECK(many.floor_bytes > few.floor_bytes);
}

static void test_options(void)
{
    const golden_case *c = golden_case_find("mlx_4bit");
    mf_engine *engine = NULL;
    mf_error error = {0};
    mf_engine_options options = golden_options(c);
    options.n_experts_per_token = 4; /* the model's own is 3 */
    CHECK_STATUS(mf_engine_open(golden_path(c->name), &options, &engine, &error), MF_ERR_ARGUMENT);
    options = golden_options(golden_case_find("packed_no_config"));
    options.packed_expert_bits = 4; /* it has 2-bit experts only */
    CHECK_STATUS(mf_engine_open(golden_path("packed_no_config"), &options, &engine, &error),
                 MF_ERR_NOT_FOUND);
    CHECK_CONTAINS(error.message, "packed_experts");
    options.packed_expert_bits = 3;
    CHECK_STATUS(mf_engine_open(golden_path("packed_no_config"), &options, &engine, &error),
                 MF_ERR_ARGUMENT);
    options = golden_options(c);
    options.packed_expert_bits = 4; /* it is no packed form */
    CHECK_STATUS(mf_engine_open(golden_path(c->name), &options, &engine, &error), MF_ERR_ARGUMENT);
    CHECK_CONTAINS(error.message,
                   "mlx_4bit: packed_expert_bits is 4, but the model is not in the packed form");
    test_guilty_options(c);
    test_state_in_budget(c);
    CHECK(engine == NULL);
}

static void test_tokens(void)
{
    const golden_case *c = golden_case_find("mlx_4bit");
    golden g;
    golden_read(c, &g);
    mf_engine_options options = golden_options(c);
    options.n_context_tokens = 16;
    mf_engine *engine = golden_open(c, &options);
    mf_session *session = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    CHECK_STATUS(mf_session_eval(session, g.tokens, 17, &error), MF_ERR_CONTEXT);
    CHECK_CONTAINS(error.message, "17");
    CHECK_CONTAINS(error.message, "16");
    CHECK_U64(mf_session_position(session), 0);
    CHECK_STATUS(mf_session_eval(session, g.tokens, 16, &error), MF_OK);
    CHECK_STATUS(mf_session_eval(session, g.tokens, 1, &error), MF_ERR_CONTEXT);
    CHECK_U64(mf_session_position(session), 16);
    CHECK(mf_session_logits(session) != NULL);
    mf_session_clear(session);

    const int32_t outside[][2] = {{1, (int32_t)g.n_vocab}, {1, -1}, {INT32_MAX, 0}};
    for (size_t i = 0; i < 3; i++) {
        CHECK_STATUS(mf_session_eval(session, outside[i], 2, &error), MF_ERR_ARGUMENT);
        CHECK_U64(mf_session_position(session), 0);
    }
    CHECK_STATUS(mf_session_eval(session, NULL, 0, &error), MF_OK);
    CHECK_STATUS(mf_session_eval(session, NULL, 1, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_session_eval(session, g.tokens, 3, &error), MF_OK);
    mf_session_free(&session);
    mf_session_free(&session);
    mf_engine_close(&engine);
    golden_free(&g);
}

static int cancel(void *user, uint64_t n_done, uint64_t n_total)
{
    unsigned *n_calls = user;
    CHECK(n_done <= n_total);
    return ++*n_calls == 2;
}

static void test_cancel(void)
{
    const golden_case *c = golden_case_find("mlx_4bit");
    golden g;
    golden_read(c, &g);
    mf_engine_options options = golden_options(c);
    options.n_chunk_tokens = 8;
    mf_engine *engine = golden_open(c, &options);
    mf_session *session = NULL;
    mf_error error = {0};
    unsigned n_calls = 0;
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    mf_session_set_progress(session, cancel, &n_calls);
    CHECK_STATUS(mf_session_eval(session, g.tokens, 40, &error), MF_ERR_CANCELLED);
    CHECK_U64(n_calls, 2);
    mf_session_set_progress(session, NULL, NULL);
    mf_session_clear(session);
    CHECK_STATUS(mf_session_eval(session, g.tokens, g.n_tokens, &error), MF_OK);
    mf_session_free(&session);
    mf_engine_close(&engine);
    golden_free(&g);
}

int main(void)
{
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++)
        check_damage(&damages[i]);
    test_unknown_family_lists_known();
    test_directories();
    test_unreadable_directory();
    scratch_remove();
    test_budget();
    test_options();
    test_tokens();
    test_cancel();
    return test_result();
}
