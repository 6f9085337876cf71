/* SPDX-License-Identifier: MIT */
/*
 * Golden cases whose tensors are called as transformers writes them, and not as they are published:
 * the same bits. What names tell of how norms are stored.
 */
#include "golden.h"
#include "scratch_dir.h"

#include "format/source.h"

#define FILE_NAME "model.safetensors"

static unsigned rename_all(const char *from, const char *to)
{
    for (unsigned n = 0;; n++) {
        size_t n_bytes;
        unsigned char *data = read_file(scratch_path(FILE_NAME), &n_bytes);
        const bool is_there = memmem(data, n_bytes, from, strlen(from)) != NULL;
        free(data);
        if (!is_there)
            return n;
        scratch_replace_in_header(FILE_NAME, from, to);
    }
}

static float *logits_in(const char *dir, const golden_case *c, const golden *g)
{
    mf_engine_options options = golden_options(c);
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    float *logits = calloc((size_t)g->n_tokens * g->n_vocab, sizeof *logits);
    REQUIRE_OK(mf_engine_open(dir, &options, &engine, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(golden_eval(session, g->tokens, g->n_tokens, g->n_vocab, logits, &error), &error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    return logits;
}

static void check_renamed(const char *name, const char *from, const char *to)
{
    const golden_case *c = golden_case_find(name);
    golden g;
    golden_read(c, &g);
    float *published = logits_in(golden_path(name), c, &g);
    const char *dir = scratch_copy(name);
    CHECK(rename_all(from, to) > 0);
    float *renamed = logits_in(dir, c, &g);
    CHECK_MSG(memcmp(renamed, published, (size_t)g.n_tokens * g.n_vocab * sizeof *renamed) == 0,
              "%s: with %s other bits", name, to);
    free(published);
    free(renamed);
    golden_free(&g);
    scratch_remove();
}

/* Without a layer of linear attention, and without experts, whose names would tell. */
static void check_norms(const char *gate, const char *up, bool are_as_published)
{
    const mf_allocator a = mf_allocator_or_default(NULL);
    const char *dir = scratch_copy("qwen3_5_tied_f16");
    mf_source *source = NULL;
    mf_error error = {0};
    CHECK(rename_all(".linear_attn.conv1d.", ".linear_attn.other.") > 0);
    if (gate != NULL)
        CHECK(rename_all(".mlp.gate_proj.weight", gate) > 0);
    if (up != NULL)
        CHECK(rename_all(".mlp.up_proj.weight", up) > 0);
    REQUIRE_OK(mf_source_open(&a, dir, 0, &source, &error), &error);
    CHECK(source->norms_as_published == are_as_published);
    mf_source_close(&source);
    scratch_remove();
}

int main(void)
{
    check_renamed("kimi_linear_f16", ".mlp.gate_proj.", ".block_sparse_moe.gate_proj.");
    check_renamed("kimi_linear_f16", ".mlp.up_proj.", ".block_sparse_moe.up_proj.");
    check_renamed("kimi_linear_f16", ".mlp.down_proj.", ".block_sparse_moe.down_proj.");
    check_renamed("deepseek_v4_fp8", ".attn.kv_norm.", ".attn.norm.");
    check_renamed("minimax_m2_f32", ".block_sparse_moe.e_score", ".mlp.e_score");
    check_renamed("ernie4_5_moe_interval_f16", ".mlp.moe_statics.", ".mlp.gate.moe_statics.");
    check_norms(NULL, NULL, true);
    check_norms(".mlp.gate_proj.scales", NULL, false);
    check_norms(".mlp.gate_proj.scales", ".mlp.up_proj.qweight", true); /* GPTQ, AWQ */
    return test_result();
}
