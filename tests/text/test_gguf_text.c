/* SPDX-License-Identifier: MIT */
/* What a GGUF file says of text beside its vocabulary (whose ids test_tokenizer_goldens compares):
 * start and end tokens, templates; and what is refused. */
#include "gguf_writer.h"
#include "text_data.h"

#define NAME "qwen3"
enum { IM_START = 1500, IM_END, ENDOFTEXT };

static void begin(gguf_head *h, const char *pre)
{
    gguf_head_begin(h, "gpt2");
    gguf_head_put_string(h, "tokenizer.ggml.pre", pre);
    gguf_head_put_tokenizer(h, NAME);
}

static mf_tokenizer *take(gguf_head *h)
{
    mf_error error = {0};
    mf_tokenizer *t = gguf_head_take(h, &error);
    REQUIRE(CHECK_MSG(t != NULL, "%s", error.message));
    return t;
}

static void test_ends(void)
{
    gguf_head h;
    begin(&h, "qwen2");
    gguf_head_put_number(&h, "tokenizer.ggml.eos_token_id", 7);
    gguf_head_put_number(&h, "tokenizer.ggml.bos_token_id", 9);
    mf_tokenizer *t = take(&h);
    CHECK(mf_tokenizer_is_end(t, 7) && mf_tokenizer_is_end(t, IM_END) &&
          mf_tokenizer_is_end(t, ENDOFTEXT));
    CHECK(!mf_tokenizer_is_end(t, IM_START) && !mf_tokenizer_is_end(t, 9));
    CHECK(mf_tokenizer_is_special(t, IM_END) && !mf_tokenizer_is_special(t, 7));
    CHECK(mf_tokenizer_start(t) == -1); /* nothing asks for it */
    mf_tokenizer_free(&t);
}

/* Llama 4's, of which a file names one: those that are control tokens. */
static void test_ends_by_name(void)
{
    static const char *const texts[3] = {"<|eom|>", "<|eot|>", "A"};
    static const uint32_t control[3] = {3, 3, 1}, plain[3] = {3, 4, 1};
    static const float scores[3] = {0};
    for (uint32_t i = 0; i < 2; i++) {
        gguf_head h;
        gguf_head_begin(&h, "llama");
        gguf_head_put_tokens(&h, texts, i == 0 ? control : plain, scores);
        mf_tokenizer *t = take(&h);
        CHECK(mf_tokenizer_is_end(t, 0) && mf_tokenizer_is_end(t, 1) == (i == 0));
        CHECK(!mf_tokenizer_is_end(t, 2));
        mf_tokenizer_free(&t);
    }
}

static void test_start(void)
{
    static const struct {
        const char *pre;
        int flag; /* -1: none */
        int32_t start;
    } cases[] = {{"qwen2", 1, 9},      {"qwen2", 0, -1},     {"qwen2", -1, -1},
                 {"llama-bpe", 1, 9},  {"llama-bpe", 0, -1}, {"llama-bpe", -1, 9},
                 {"deepseek-v3", 1, 9}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_head h;
        begin(&h, cases[i].pre);
        gguf_head_put_number(&h, "tokenizer.ggml.bos_token_id", 9);
        if (cases[i].flag >= 0)
            gguf_head_put_bool(&h, "tokenizer.ggml.add_bos_token", cases[i].flag == 1);
        mf_tokenizer *t = take(&h);
        CHECK_MSG(mf_tokenizer_start(t) == cases[i].start, "%s, %d: start is %d", cases[i].pre,
                  cases[i].flag, (int)mf_tokenizer_start(t));
        mf_tokenizer_free(&t);
    }
}

static void test_template(void)
{
    static const mf_chat_message messages[] = {{.role = MF_ROLE_USER, .content = "hi"}};
    gguf_head h;
    char text[256];
    size_t n = 0;
    mf_error error = {0};
    begin(&h, "qwen2");
    gguf_head_put_number(&h, "tokenizer.ggml.eos_token_id", IM_END);
    gguf_head_put_string(&h, "tokenizer.chat_template",
                         "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ eos_token }}"
                         "{% endfor %}");
    mf_tokenizer *t = take(&h);
    REQUIRE(mf_tokenizer_has_chat(t));
    REQUIRE_OK(mf_chat_format(t, messages, 1, MF_THINKING_DEFAULT, text, sizeof text, &n, &error),
               &error);
    CHECK(n == strlen("user:hi<|im_end|>") && memcmp(text, "user:hi<|im_end|>", n) == 0);
    mf_tokenizer_free(&t);
}

/* Of an architecture whose publisher has none there is one all the same, of others none. */
static void test_builtin_template(void)
{
    static const mf_chat_message messages[] = {{.role = MF_ROLE_USER, .content = "hi"}};
    static const char *const archs[] = {"deepseek4", "qwen3moe", NULL};
    static const char expected[] = "<｜User｜>hi<｜Assistant｜></think>";
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        gguf_head h;
        char text[256];
        size_t n = 0;
        mf_error error = {0};
        begin(&h, "qwen2");
        if (archs[i] != NULL)
            gguf_head_put_string(&h, "general.architecture", archs[i]);
        mf_tokenizer *t = take(&h);
        CHECK(mf_tokenizer_has_chat(t) == (i == 0));
        const mf_status status =
            mf_chat_format(t, messages, 1, MF_THINKING_OFF, text, sizeof text, &n, &error);
        if (i == 0) {
            REQUIRE_OK(status, &error);
            CHECK(n == strlen(expected) && memcmp(text, expected, n) == 0);
        } else {
            CHECK_U64(status, MF_ERR_NOT_FOUND);
            CHECK_STR(error.message, "FILE has no chat template");
        }
        mf_tokenizer_free(&t);
    }
}

/* Every name gives patterns that compile. */
static void test_names(void)
{
    static const char *const names[] = {
        "qwen2",        "qwen35",         "llama-bpe",  "glm4",    "chatglm-bpe", "deepseek-v3",
        "deepseek-llm", "deepseek-coder", "gpt-4o",     "tekken",  "kimi-k2",     "gpt-2",
        "starcoder",    "hunyuan-dense",  "minimax-m2", "dbrx",    "stablelm2",   "smollm",
        "glm5",         "hy_v4",          "llama4",     "f2llmv2", "talkie"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        gguf_head h;
        begin(&h, names[i]);
        mf_tokenizer *t = take(&h);
        int32_t ids[64];
        size_t n = 0;
        REQUIRE(mf_tokenizer_encode(t, "Hello, 123 w\xc3\xb6rld\n", 18, 0, ids, 64, &n, NULL) ==
                MF_OK);
        CHECK(n > 3);
        mf_tokenizer_free(&t);
    }
}

static void check_refused(gguf_head *h, mf_status status, const char *text)
{
    mf_error error = {0};
    mf_tokenizer *t = gguf_head_take(h, &error);
    CHECK_MSG(t == NULL, "taken, expected: %s", text);
    CHECK_STATUS(error.code, status);
    CHECK_CONTAINS(error.message, "FILE");
    CHECK_CONTAINS(error.message, text);
    mf_tokenizer_free(&t);
}

static void test_refused(void)
{
    gguf_head h;
    begin(&h, "no-such-pre");
    check_refused(&h, MF_ERR_UNSUPPORTED, "tokenizer.ggml.pre is no-such-pre");
    begin(&h, "qwen");
    check_refused(&h, MF_ERR_UNSUPPORTED, "tokenizer.ggml.pre is qwen,");
    begin(&h, "qwen2 kormo");
    check_refused(&h, MF_ERR_UNSUPPORTED, "tokenizer.ggml.pre");
    gguf_head_begin(&h, "gpt2");
    gguf_head_put_tokenizer(&h, NAME);
    check_refused(&h, MF_ERR_UNSUPPORTED, "tokenizer.ggml.pre is missing");
    gguf_head_begin(&h, "gpt2");
    check_refused(&h, MF_ERR_FORMAT, "tokenizer.ggml.tokens is missing");
    gguf_head_begin(&h, "gpt2");
    gguf_head_put_number(&h, "tokenizer.ggml.tokens", 3);
    check_refused(&h, MF_ERR_FORMAT, "tokenizer.ggml.tokens is no array of strings");
    begin(&h, "qwen2");
    gguf_head_put_number(&h, "tokenizer.ggml.eos_token_id", 1u << 20);
    check_refused(&h, MF_ERR_FORMAT, "tokenizer.ggml.eos_token_id is no token's id");
    begin(&h, "qwen2");
    gguf_head_put_number(&h, "tokenizer.ggml.eos_token_id", UINT32_MAX); /* how "none" is written */
    mf_tokenizer *t = take(&h);
    mf_tokenizer_free(&t);
}

/* ------------------------------------------------------------------------- SentencePiece -- */

static void test_spm(void)
{
    enum { UNKNOWN, START, END };
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    int32_t ids[32];
    char text[64];
    size_t n = 0, n_text = 0;
    REQUIRE_OK(mf_tokenizer_open(text_data_path("spm/model.gguf"), NULL, &t, &error), &error);
    CHECK(mf_tokenizer_start(t) == START && mf_tokenizer_is_end(t, END));
    CHECK(mf_tokenizer_is_special(t, UNKNOWN) && mf_tokenizer_is_special(t, START));
    REQUIRE(mf_tokenizer_encode(t, "the</s>caf\xc3\xa9\x01", 12, 1, ids, 32, &n, NULL) == MF_OK);
    CHECK(n > 3 && ids[1] == END); /* " the" is a token; a stretch begins anew behind it */
    mf_decoder decoder = {0};
    for (size_t i = 0; i < n; i++) {
        size_t n_piece = 0;
        REQUIRE(mf_tokenizer_decode(t, &decoder, ids[i], text + n_text, sizeof text - n_text,
                                    &n_piece) == MF_OK);
        n_text += n_piece;
    }
    /* the first blank of a text is not shown */
    CHECK(n_text == 13 && memcmp(text, "the</s> caf\xc3\xa9\x01", n_text) == 0);
    REQUIRE(mf_tokenizer_encode(t, "</s>", 4, 0, ids, 32, &n, NULL) == MF_OK);
    for (size_t i = 0; i < n; i++)
        CHECK(!mf_tokenizer_is_special(t, ids[i]));
    mf_tokenizer_free(&t);
}

static void begin_spm(gguf_head *h, const float *scores)
{
    static const char *const texts[3] = {"<unk>", "<0x41>", "B"};
    static const uint32_t types[3] = {2, 6, 1};
    gguf_head_begin(h, "llama");
    gguf_head_put_tokens(h, texts, types, scores);
}

static void test_spm_small(void)
{
    static const float scores[3] = {0, 0, -1}, bad[3] = {0, 0, NAN};
    gguf_head h;
    int32_t ids[8];
    size_t n = 0;
    begin_spm(&h, scores);
    gguf_head_put_bool(&h, "tokenizer.ggml.add_space_prefix", false);
    gguf_head_put_bool(&h, "tokenizer.ggml.add_bos_token", false);
    mf_tokenizer *t = take(&h);
    CHECK(mf_tokenizer_start(t) == -1);
    REQUIRE(mf_tokenizer_encode(t, "ABC", 3, 0, ids, 8, &n, NULL) == MF_OK);
    CHECK(n == 3 && ids[0] == 1 && ids[1] == 2 && ids[2] == 0); /* a byte, a token, neither */
    mf_tokenizer_free(&t);
    begin_spm(&h, NULL);
    check_refused(&h, MF_ERR_FORMAT, "tokenizer.ggml.scores has not one score");
    begin_spm(&h, bad);
    check_refused(&h, MF_ERR_FORMAT, "tokenizer.ggml.scores has a score that is no number");
    gguf_head_begin(&h, "bert");
    check_refused(&h, MF_ERR_UNSUPPORTED,
                  "tokenizer.ggml.model is bert; supported are gpt2, llama, t5");
}

int main(int argc, char **argv)
{
    text_data_set_dir(argc, argv);
    test_ends();
    test_ends_by_name();
    test_start();
    test_template();
    test_builtin_template();
    test_names();
    test_refused();
    test_spm();
    test_spm_small();
    return test_result();
}
