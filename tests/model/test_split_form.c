/* SPDX-License-Identifier: MIT */
/* The packed form as the converter for Cogito leaves it, in the folders artifacts/, root/ and
 * mlx/: the same bits as in one folder, and errors that name the file in its place. */
#include "golden.h"
#include "scratch_dir.h"

#include <sys/stat.h>

static void move(const char *file, const char *folder)
{
    char to[600];
    snprintf(to, sizeof to, "%s", scratch_path(folder));
    (void)mkdir(to, 0700);
    snprintf(to, sizeof to, "%s/%s", scratch_path(folder), file);
    REQUIRE(rename(scratch_path(file), to) == 0);
}

static void split(void)
{
    move("model_weights.bin", "artifacts");
    move("model_weights.json", "artifacts");
    move("packed_experts", "root");
}

static void check_same(const golden_case *c, const golden *g, const char *dir)
{
    mf_engine_options options = golden_options(c);
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    size_t n = (size_t)g->n_tokens * g->n_vocab;
    float *want = golden_run(c, g, &options, &error), *got = malloc(n * sizeof *got);
    REQUIRE(want != NULL && got != NULL);
    REQUIRE_OK(mf_engine_open(dir, &options, &engine, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(golden_eval(session, g->tokens, g->n_tokens, g->n_vocab, got, &error), &error);
    CHECK(memcmp(got, want, n * sizeof *got) == 0);
    mf_session_free(&session);
    mf_engine_close(&engine);
    free(want);
    free(got);
}

int main(void)
{
    static const char *const names[] = {"v3_packed", "v3_packed_no_config"};
    for (size_t i = 0; i < 2; i++) {
        const golden_case *c = golden_case_find(names[i]);
        golden g;
        golden_read(c, &g);
        const char *dir = scratch_copy(names[i]);
        split();
        if (i == 0)
            move("config.json", "mlx");
        check_same(c, &g, dir);
        golden_free(&g);
    }
    mf_model_info info;
    mf_error error = {0};
    const char *dir = scratch_copy("v3_packed");
    split();
    move("config.json", "mlx");
    scratch_cut("root/packed_experts/layer_02.bin", -1);
    CHECK_STATUS(mf_model_inspect(dir, NULL, &info, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "root/packed_experts/layer_02.bin");
    scratch_unlink("root/packed_experts/layer_02.bin");
    CHECK_STATUS(mf_model_inspect(dir, NULL, &info, &error), MF_ERR_NOT_FOUND);
    scratch_unlink("artifacts/model_weights.bin");
    CHECK_STATUS(mf_model_inspect(dir, NULL, &info, &error), MF_ERR_NOT_FOUND);
    CHECK_CONTAINS(error.message, "artifacts/model_weights.bin");
    return test_result();
}
