/* SPDX-License-Identifier: MIT */
/* An expert file that is cut short while the engine runs: a clean error that names it, and after
 * the file is whole again and the session cleared, the same bits as before. */
#include "golden.h"
#include "scratch_dir.h"

static void check_cut(const char *name, const char *file, int64_t keep_bytes)
{
    const golden_case *c = golden_case_find(name);
    golden g;
    golden_read(c, &g);
    const char *dir = scratch_copy(name);
    mf_engine_options options = golden_options(c);
    options.expert_cache_bytes = 0;
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    size_t n_values = (size_t)g.n_tokens * g.n_vocab, n_bytes;
    float *base = malloc(n_values * sizeof(float)), *again = malloc(n_values * sizeof(float));
    unsigned char *whole = read_file(scratch_path(file), &n_bytes);

    REQUIRE_OK(mf_engine_open(dir, &options, &engine, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(golden_eval(session, g.tokens, g.n_tokens, g.n_vocab, base, &error), &error);
    mf_session_clear(session);

    scratch_cut(file, keep_bytes);
    CHECK_STATUS(mf_session_eval(session, g.tokens, g.n_tokens, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, file);
    mf_session_clear(session);

    scratch_write(file, whole, n_bytes);
    REQUIRE_OK(golden_eval(session, g.tokens, g.n_tokens, g.n_vocab, again, &error), &error);
    CHECK_BYTES(again, base, n_values * sizeof(float));
    mf_session_free(&session);
    mf_engine_close(&engine);
    scratch_remove();
    free(whole);
    free(base);
    free(again);
    golden_free(&g);
}

int main(void)
{
    check_cut("packed", "packed_experts/layer_01.bin", 5000);
    check_cut("packed", "packed_experts/layer_02.bin", 0);
    check_cut("packed_no_config", "packed_experts_2bit/layer_00.bin", 4096);
    check_cut("mlx_4bit", "model.safetensors", 100000);
    check_cut("hf_bf16", "model-00002-of-00002.safetensors", 100000);
    return test_result();
}
