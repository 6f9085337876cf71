/* SPDX-License-Identifier: MIT */
/* A checkpoint with a weight that is no number: no logits that are none come out, but an error that
 * names the layer; and the engine goes on where the damage does not reach. */
#include "golden.h"
#include "scratch_dir.h"

#include "format/source.h"
#include "forward/finite.h"
#include "session/session.h"

/* Where a tensor's bytes begin in a safetensors file. */
static size_t tensor_offset(const unsigned char *file, size_t n_bytes, const char *name)
{
    uint64_t n_header;
    char quoted[200];
    REQUIRE(n_bytes > 8);
    memcpy(&n_header, file, 8);
    char *header = calloc(1, (size_t)n_header + 1);
    REQUIRE(header != NULL && n_header < n_bytes);
    memcpy(header, file + 8, (size_t)n_header);
    (void)snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *entry = strstr(header, quoted);
    REQUIRE(entry != NULL);
    const char *offsets = strstr(entry, "\"data_offsets\":[");
    REQUIRE(offsets != NULL);
    size_t at = 8 + (size_t)n_header + strtoull(offsets + 16, NULL, 10);
    free(header);
    return at;
}

/* One of the tensor's BF16 values becomes NaN or infinite. */
static void poison_at(const char *file, const char *tensor, size_t index, uint16_t bits)
{
    size_t n_bytes;
    unsigned char *data = read_file(scratch_path(file), &n_bytes);
    memcpy(data + tensor_offset(data, n_bytes, tensor) + index * sizeof bits, &bits, sizeof bits);
    scratch_write(file, data, n_bytes);
    free(data);
}

/* Its first. */
static void poison(const char *file, const char *tensor, uint16_t bits)
{
    poison_at(file, tensor, 0, bits);
}

static int count_calls(void *user, size_t token_index, const float *logits)
{
    (void)token_index;
    (void)logits;
    ++*(int *)user;
    return 0;
}

/* The first row of a step's second item is named by its own position. */
static void check_second(mf_engine *engine, mf_session *first, const int32_t *tokens)
{
    mf_session *second = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_session_create(engine, &second, &error), &error);
    mf_step_item items[] = {{sizeof items[0], first, tokens, 3, .flags = MF_STEP_NO_LOGITS},
                            {sizeof items[0], second, tokens, 1, .flags = 0}};
    CHECK_STATUS(mf_engine_step(engine, items, 2, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "the logits of token 0 are not finite numbers");
    mf_session_free(&second);
}

static void check_poisoned(const char *name, const char *file, const char *tensor, uint16_t bits,
                           const char *expected)
{
    const golden_case *c = golden_case_find(name);
    golden g;
    golden_read(c, &g);
    const char *dir = scratch_copy(name);
    poison(file, tensor, bits);
    mf_engine_options options = golden_options(c);
    options.n_sessions = 2;
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_engine_open(dir, &options, &engine, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    CHECK_STATUS(mf_session_eval(session, g.tokens, 4, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "the logits of token 3 are not finite numbers");
    CHECK_CONTAINS(error.message, expected);
    CHECK_U64(mf_session_position(session), 0);
    CHECK(mf_session_logits(session) == NULL);
    int n_calls = 0;
    CHECK_STATUS(mf_session_eval_each(session, g.tokens, 4, count_calls, &n_calls, &error),
                 MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "the logits of token 0 are not finite numbers");
    CHECK_U64(n_calls, 0);
    check_second(engine, session, g.tokens);
    mf_session_free(&session);
    mf_engine_close(&engine);
    scratch_remove();
    golden_free(&g);
}

/* A token is named by its place in the session, not in the call or the chunk. */
static void check_later(void)
{
    enum { N_BEFORE = 7 };
    const golden_case *c = golden_case_find("k2_bf16");
    golden g;
    golden_read(c, &g);
    const char *dir = scratch_copy(c->name);
    poison("model.safetensors", "model.embed_tokens.weight", 0x7FC0); /* token 0 */
    mf_engine_options options = golden_options(c);
    options.n_chunk_tokens = 4;
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    int32_t tokens[N_BEFORE];
    for (int i = 0; i < N_BEFORE; i++)
        tokens[i] = g.tokens[i] != 0 ? g.tokens[i] : 1;
    REQUIRE_OK(mf_engine_open(dir, &options, &engine, &error), &error);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(mf_session_eval(session, tokens, N_BEFORE, &error), &error);
    const int32_t bad[] = {1, 2, 0};
    CHECK_STATUS(mf_session_eval(session, bad, 3, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "the logits of token 9 are not finite numbers");
    CHECK(strncmp(error.message, "the logits", 10) == 0); /* of the only session: no item's */
    CHECK_U64(mf_session_position(session), N_BEFORE);
    mf_session_free(&session);
    mf_engine_close(&engine);
    scratch_remove();
    golden_free(&g);
}

/* Evaluates tokens one by one; the first that was evaluated ahead at the end. */
static int32_t eval_proposing(const char *dir, mf_engine **engine, mf_session **session)
{
    mf_engine_options options;
    mf_error error = {0};
    mf_engine_options_default(&options);
    options.n_context_tokens = 64;
    options.n_draft_tokens = 2;
    options.draft = MF_DRAFT_ALWAYS;
    REQUIRE_OK(mf_engine_open(dir, &options, engine, &error), &error);
    REQUIRE_OK(mf_session_create(*engine, session, &error), &error);
    for (int32_t token = 1; token < 4; token++)
        REQUIRE_OK(mf_session_eval(*session, &token, 1, &error), &error);
    const mf_session_draft *d = &(*session)->draft;
    return d->n > 1 ? d->tokens[1] : -1;
}

/* A token that is proposed, and of which no logits come, fails nobody who does not bring it. */
static void check_proposed(void)
{
    const char *dir = scratch_copy("draft_v3_bf16");
    const size_t hidden_size = 48;
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_error error = {0};
    const int32_t token = eval_proposing(dir, &engine, &session), other = 1;
    REQUIRE(token > 3);
    mf_session_free(&session);
    mf_engine_close(&engine);
    poison_at("model.safetensors", "model.embed_tokens.weight", (size_t)token * hidden_size,
              0x7FC0);
    CHECK(eval_proposing(dir, &engine, &session) == -1);
    CHECK_STATUS(mf_session_eval(session, &token, 1, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "the logits of token 3 are not finite numbers");
    CHECK_U64(mf_session_position(session), 3);
    REQUIRE_OK(mf_session_eval(session, &other, 1, &error), &error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    scratch_remove();
}

/* Each place among the lanes and behind them. */
static void check_values(void)
{
    float values[53];
    const uint32_t bad[] = {0x7FC00000u, 0x7F800001u, 0x7F800000u, 0xFF800000u, 0xFFC00000u};
    for (size_t i = 0; i < 53; i++)
        values[i] = i % 2 != 0 ? 3.4e38f : -1e-42f;
    CHECK(mf_all_finite(values, 53));
    for (size_t i = 0; i < 53; i++) {
        const float was = values[i];
        memcpy(&values[i], &bad[i % 5], sizeof(float));
        CHECK(!mf_all_finite(values, 53));
        CHECK(mf_all_finite(values, i));
        CHECK(isnan(mf_finite_bound(values, 53)));
        values[i] = 3.401e38f;
        CHECK(mf_finite_bound(values, 53) == 3.401e38f);
        CHECK(i == 0 || mf_finite_bound(values, i) == (i < 2 ? -1e-42f : 3.4e38f));
        values[i] = was;
    }
}

/* Where a tensor of a checkpoint begins in its file. */
static size_t stored_at(const char *path, const char *tensor)
{
    const mf_allocator a = mf_allocator_or_default(NULL);
    mf_source *source = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_source_open(&a, path, 0, &source, &error), &error);
    const mf_tensor *t = mf_tensor_find(&source->table, tensor);
    REQUIRE(t != NULL);
    const size_t at = (size_t)t->offset;
    mf_source_close(&source);
    return at;
}

/* A token whose first expert is given as `number`. */
static void check_table(const char *of, const char *file, const char *name, uint16_t number,
                        const char *how)
{
    const golden_case *c = golden_case_find(of);
    const char *dir = scratch_copy(c->name);
    char expected[160];
    size_t n_bytes;
    unsigned char *data = read_file(scratch_path(file), &n_bytes);
    memcpy(data + stored_at(dir, name), &number, sizeof number);
    scratch_write(file, data, n_bytes);
    free(data);
    mf_engine_options options = golden_options(c);
    mf_engine *engine = NULL;
    mf_error error = {0};
    CHECK_STATUS(mf_engine_open(dir, &options, &engine, &error), MF_ERR_FORMAT);
    snprintf(expected, sizeof expected, "%s: tensor %s has %s", file, name, how);
    CHECK_CONTAINS(error.message, expected);
    scratch_remove();
}

int main(void)
{
    enum { NOT_A_NUMBER = 0x7FC0, INFINITE = 0x7F80 };
    check_values();
    check_later();
    check_proposed();
    check_poisoned("k2_bf16", "model.safetensors", "model.layers.0.input_layernorm.weight",
                   NOT_A_NUMBER, "comes out of layer 0");
    check_poisoned("k2_bf16", "model.safetensors", "model.layers.1.post_attention_layernorm.weight",
                   NOT_A_NUMBER, "comes out of layer 1");
    check_poisoned("k2_bf16", "model.safetensors", "model.norm.weight", INFINITE,
                   "the final norm or the output head");
    check_poisoned("mlx_4bit", "model.safetensors", "language_model.lm_head.scales", NOT_A_NUMBER,
                   "the final norm or the output head");
    check_poisoned("hf_bf16", "model-00001-of-00002.safetensors", "lm_head.weight", NOT_A_NUMBER,
                   "the final norm or the output head");
    check_poisoned("deepseek_v4_fp8", "model.safetensors", "layers.1.attn_norm.weight",
                   NOT_A_NUMBER, "comes out of layer 1");
    check_table("deepseek_v4_fp8", "model.safetensors", "layers.0.ffn.gate.tid2eid", 6,
                "6; expected 0 to 5");
    check_table("gguf_deepseek_v4_q8_0", "model.gguf", "blk.1.ffn_gate_tid2eid.weight", 6,
                "6; expected 0 to 5");
    check_table("deepseek_v4_fp8", "model.safetensors", "layers.0.ffn.gate.tid2eid", 0,
                "0 twice in a row; expected 2 different numbers in each");
    return test_result();
}
