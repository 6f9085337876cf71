/* SPDX-License-Identifier: MIT */
/*
 * tokenizer.model from anywhere: opened, and where that succeeds, used. The input's first two bytes
 * are the length of the tokenizer_config.json that follows, which serves as the other two files,
 * too; the rest is the model.
 */
#include "text/tokenizer.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void decode(const mf_tokenizer *t, const int32_t *tokens, size_t n_tokens)
{
    static char out[1 << 16];
    mf_decoder decoder = {0};
    size_t n;
    for (size_t i = 0; i < n_tokens; i++) {
        if (tokens[i] < 0 || (size_t)tokens[i] >= mf_tokenizer_n_vocab(t))
            abort();
        if (mf_text_decode(t, &decoder, tokens[i], out, sizeof out, &n) == MF_OK && n > sizeof out)
            abort();
    }
    if (mf_text_decode(t, &decoder, -1, out, sizeof out, &n) != MF_OK || n > 4 * 3)
        abort();
}

static void use(const mf_tokenizer *t)
{
    static const char text[] =
        "  Hello  wo\xcc\x81rld 12\r\n\t<s>\xe4\xb8\xad\xe6\x96\x87\xff[I]\xe2\x96\x81"
        "\xf0\x9f\x98\x80 \xef\xac\x81 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ";
    int32_t tokens[1024];
    for (int special = 0; special < 2; special++) {
        const mf_text_input input = {text, sizeof text - 1, .parse_special = special != 0};
        mf_token_list list = {tokens, 1024, 0};
        if (mf_text_encode(t, &input, &list, NULL) == MF_OK)
            decode(t, tokens, list.n_tokens < 1024 ? list.n_tokens : 1024);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const mf_allocator a = mf_allocator_default();
    const size_t n_config = n_bytes >= 2 ? data[0] | (size_t)data[1] << 8 : 0;
    mf_json config = {0};
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    if (n_bytes > 1 << 17 || n_bytes < 2 || n_config > n_bytes - 2)
        return 0;
    if (n_config > 0 &&
        mf_json_parse(&a, "config", (const char *)data + 2, n_config, &config, NULL) != MF_OK)
        return 0;
    const mf_json *json = n_config > 0 ? &config : NULL;
    const mf_spm_files files = {
        .path = "fuzz",
        .model = (const char *)data + 2 + n_config,
        .n_bytes = n_bytes - 2 - n_config,
        .config = json,
        .added = yyjson_get_uint(yyjson_obj_get(config.root, "x")) == 1 ? json : NULL,
        .specials = json};
    const mf_status status = mf_text_open_spm(&files, &a, &t, &error);
    if (status == MF_OK)
        use(t);
    else if (error.message[0] == '\0')
        abort();
    mf_text_close(&t);
    mf_json_free(&config);
    return 0;
}
