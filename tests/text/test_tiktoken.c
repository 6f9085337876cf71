/* SPDX-License-Identifier: MIT */
/*
 * tiktoken.model apart from goldens: files that are refused, by line; which file of a directory
 * counts; special tokens and end tokens; decoding; long words; failing memory.
 */
#include "text_data.h"

#include "text/tokenizer.h"

#include <sys/stat.h>
#include <unistd.h>

#define N_BYTES ((size_t)256)

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

typedef struct model_text {
    char text[1u << 16];
    size_t n_bytes;
} model_text;

static void add(model_text *m, const char *text)
{
    size_t n = strlen(text);
    REQUIRE(n <= sizeof m->text - m->n_bytes);
    memcpy(m->text + m->n_bytes, text, n);
    m->n_bytes += n;
}

/* A line for each byte but `missing`, whose rank goes to a token that is no byte. */
static void add_bytes(model_text *m, int missing)
{
    char line[32];
    for (int b = 0; b < 256; b++) {
        snprintf(line, sizeof line, "%c%c== %d\n", alphabet[b >> 2], alphabet[(b & 3) << 4], b);
        add(m, b == missing ? "enp6 65\n" : line);
    }
}

static mf_status open_model(const model_text *m, const char *config, mf_tokenizer **out,
                            mf_error *error)
{
    mf_allocator a = mf_allocator_default();
    mf_json json = {0};
    if (config != NULL)
        REQUIRE(mf_json_parse(&a, "c.json", config, strlen(config), &json, NULL) == MF_OK);
    const mf_tiktoken_files files = {"t.model", m->text, m->n_bytes, config != NULL ? &json : NULL,
                                     false};
    mf_status status = mf_text_open_tiktoken(&files, &a, out, error);
    mf_json_free(&json);
    return status;
}

static void check_refused(const model_text *m, const char *config, mf_status expected,
                          const char *part)
{
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    mf_status status = open_model(m, config, &t, &error);
    CHECK_MSG(status == expected && strstr(error.message, part) != NULL && t == NULL,
              "got %d \"%s\", want %d with \"%s\"", status, error.message, expected, part);
    mf_text_close(&t);
}

static void check_line(const char *line, mf_status expected, const char *part)
{
    static model_text m;
    m.n_bytes = 0;
    add_bytes(&m, -1);
    add(&m, line);
    check_refused(&m, NULL, expected, part);
}

static void check_lines(void)
{
    static model_text m;
    const mf_status bad = MF_ERR_FORMAT;
    char line[4096] = "";
    m.n_bytes = 0;
    check_refused(&m, NULL, bad, "t.model: 0 tokens, expected 1 to");
    add(&m, "\r\n\n\n");
    check_refused(&m, NULL, bad, "t.model: 0 tokens, expected 1 to");
    m.n_bytes = 0;
    add_bytes(&m, 65);
    check_refused(&m, NULL, bad, "t.model: no token is the byte 0x41, expected all 256");
    check_line("YWI=", bad, "t.model: line 257: \"YWI=\", expected \"BASE64 RANK\"");
    check_line("YWI= ", bad, "line 257");
    check_line("YWI=  256", bad, "line 257");
    check_line("YWI= 256 1", bad, "line 257");
    check_line("YWI=\t256", bad, "line 257");
    check_line("YWI= -1", bad, "with a decimal rank");
    check_line("YWI= 99999999999999999999", bad, "with a decimal rank");
    check_line("YWI= 256x", bad, "with a decimal rank");
    check_line("\n\r\nYW!= 256", bad, "line 259: \"YW!=\" is not a token in base64");
    check_line("YWI 256", bad, "\"YWI\" is not a token in base64");
    check_line("YW=I 256", bad, "not a token in base64");
    check_line("Y=== 256", bad, "not a token in base64");
    check_line("YWJ= 256", bad, "not a token in base64"); /* bits after the last byte */
    check_line(" 256", bad, "\"\" is not a token in base64");
    check_line("==== 256", bad, "not a token in base64");
    check_line("YWI= 255", bad, "line 257: rank 255 is given twice, expected once");
    check_line("YWI= 257", bad, "line 257: rank 257, expected 0 to 256 without a gap");
    check_line("YWI= 256\nYWI= 257", bad, "line 258: token \"YWI=\" is listed twice");
    check_line("YQ== 256", bad, "line 257: token \"YQ==\" is listed twice, expected once");
    memset(line, 'A', 1368);
    strcpy(line + 1368, " 256");
    check_line(line, MF_ERR_UNSUPPORTED, "line 257: a token of 1026 bytes, expected at most 1024");
}

static void check_configs(void)
{
    static model_text m;
    m.n_bytes = 0;
    add_bytes(&m, -1);
    const mf_status no = MF_ERR_UNSUPPORTED, bad = MF_ERR_FORMAT;
    check_refused(&m, "{\"tokenizer_class\":\"QWenTokenizer\"}", no,
                  "c.json: tokenizer_class: \"QWenTokenizer\", expected");
    check_refused(&m, "{\"added_tokens_decoder\":[]}", bad, "c.json: added_tokens_decoder");
    check_refused(&m, "{\"added_tokens_decoder\":{\"255\":{\"content\":\"x\"}}}", no,
                  "id \"255\", expected 256 to 511");
    check_refused(&m, "{\"added_tokens_decoder\":{\"512\":{\"content\":\"x\"}}}", no,
                  "id \"512\", expected 256 to 511");
    check_refused(&m, "{\"added_tokens_decoder\":{\"x\":{\"content\":\"x\"}}}", no, "id \"x\"");
    check_refused(&m, "{\"added_tokens_decoder\":{\"256\":{}}}", bad,
                  "added_tokens_decoder.256.content");
    check_refused(&m, "{\"added_tokens_decoder\":{\"256\":{\"content\":\"\"}}}", bad, "content");
    check_refused(&m, "{\"added_tokens_decoder\":{\"256\":{\"content\":\"x\",\"special\":1}}}", bad,
                  "added_tokens_decoder.256.special: expected true or false");
    check_refused(&m,
                  "{\"added_tokens_decoder\":{\"256\":{\"content\":\"x\"},"
                  "\"0256\":{\"content\":\"y\"}}}",
                  bad, "id 256 is given twice");
    check_refused(&m,
                  "{\"added_tokens_decoder\":{\"256\":{\"content\":\"x\"},"
                  "\"300\":{\"content\":\"x\"}}}",
                  bad, "\"x\" is the name of two ids");
}

/* CR LF, empty lines, no newline at the end, and ranks in any order are read. */
static void check_read(void)
{
    static model_text m;
    mf_tokenizer *t = NULL;
    int32_t ids[8];
    size_t n;
    m.n_bytes = 0;
    add(&m, "YWI= 257\r\n\r\nYWJj 256\n");
    add_bytes(&m, -1);
    m.n_bytes--;
    REQUIRE(open_model(&m, NULL, &t, NULL) == MF_OK);
    CHECK(mf_tokenizer_n_vocab(t) == 258 + 256);
    /* "abcd": no letters b and c are joined, so a b is, and then ab c */
    REQUIRE(mf_tokenizer_encode(t, "abcd", 4, 0, ids, 8, &n, NULL) == MF_OK);
    CHECK(n == 2 && ids[0] == 256 && ids[1] == 'd');
    REQUIRE(mf_tokenizer_encode(t, "<|reserved_token_400|>", 22, 1, ids, 8, &n, NULL) == MF_OK);
    CHECK(n == 1 && ids[0] == 400 && mf_tokenizer_is_special(t, 400));
    mf_text_close(&t);
}

static void check_specials(void)
{
    mf_tokenizer *t = text_tokenizer_open("kimi");
    int32_t bos = -1, id = -1;
    size_t n, n_vocab = mf_tokenizer_n_vocab(t);
    REQUIRE(mf_tokenizer_encode(t, "[BOS]", 5, 1, &bos, 1, &n, NULL) == MF_OK && n == 1);
    CHECK((size_t)bos + 256 == n_vocab);
    CHECK(mf_tokenizer_encode(t, "[BOS]", 5, 0, &id, 1, &n, NULL) == MF_OK && n > 1);
    /* [EOS] by tokenizer_config.json, <|im_end|> by generation_config.json */
    CHECK(mf_tokenizer_is_end(t, bos + 1) && mf_tokenizer_is_end(t, bos + 2));
    CHECK(!mf_tokenizer_is_end(t, bos) && !mf_tokenizer_is_end(t, bos + 3));
    CHECK(mf_tokenizer_is_special(t, bos) && mf_tokenizer_is_special(t, bos + 5));
    CHECK(!mf_tokenizer_is_special(t, bos + 11) && !mf_tokenizer_is_special(t, bos - 1));
    const char *piece = mf_tokenizer_piece(t, bos + 17, &n);
    CHECK(piece != NULL && n == 13 && memcmp(piece, "<|im_middle|>", 13) == 0);
    CHECK(mf_tokenizer_piece(t, (int32_t)n_vocab, &n) == NULL);
    mf_tokenizer_free(&t);
}

/* Bytes one at a time: nothing comes out before a character is whole. */
static void check_decoder(void)
{
    static model_text m;
    static const unsigned char smile[] = {0xF0, 0x9F, 0x98, 0x80};
    mf_tokenizer *t = NULL;
    mf_decoder decoder = {0};
    char text[64];
    size_t n;
    m.n_bytes = 0;
    add_bytes(&m, -1);
    REQUIRE(open_model(&m, NULL, &t, NULL) == MF_OK);
    for (int i = 0; i < 4; i++) {
        REQUIRE(mf_tokenizer_decode(t, &decoder, smile[i], text, sizeof text, &n) == MF_OK);
        CHECK(n == (i == 3 ? 4u : 0u));
    }
    CHECK(memcmp(text, smile, 4) == 0);
    REQUIRE(mf_tokenizer_decode(t, &decoder, 0xE4, text, sizeof text, &n) == MF_OK && n == 0);
    REQUIRE(mf_tokenizer_decode(t, &decoder, 'x', text, sizeof text, &n) == MF_OK);
    CHECK(n == 4 && memcmp(text, "\xEF\xBF\xBDx", 4) == 0);
    mf_text_close(&t);
}

/* tokenizer.json counts where both are there. */
static void check_directory(void)
{
    static model_text m;
    char dir[] = "/tmp/mf_tiktoken_XXXXXX", model[64], json[64];
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(model, sizeof model, "%s/tiktoken.model", dir);
    snprintf(json, sizeof json, "%s/tokenizer.json", dir);
    CHECK(mf_tokenizer_open(dir, NULL, &t, NULL) == MF_ERR_NOT_FOUND);
    m.n_bytes = 0;
    add_bytes(&m, -1);
    FILE *file = fopen(model, "wb");
    REQUIRE(file != NULL && fwrite(m.text, 1, m.n_bytes, file) == m.n_bytes && fclose(file) == 0);
    CHECK(mf_tokenizer_open(dir, NULL, &t, NULL) == MF_OK && mf_tokenizer_n_vocab(t) == 512);
    CHECK(!mf_tokenizer_has_chat(t));
    mf_tokenizer_free(&t);
    file = fopen(json, "wb");
    REQUIRE(file != NULL && fputs("[]", file) >= 0 && fclose(file) == 0);
    CHECK(mf_tokenizer_open(dir, NULL, &t, &error) == MF_ERR_FORMAT);
    CHECK(strstr(error.message, "tokenizer.json") != NULL);
    unlink(model);
    unlink(json);
    rmdir(dir);
}

int main(int argc, char **argv)
{
    text_data_set_dir(argc, argv);
    check_lines();
    check_configs();
    check_read();
    check_specials();
    check_decoder();
    check_directory();
    text_encode_long_words("kimi");
    return test_result();
}
