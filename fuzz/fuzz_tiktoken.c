/* SPDX-License-Identifier: MIT */
/*
 * tiktoken.model from anywhere: opened, and where that succeeds, used. After a NUL byte, if there
 * is one, the input is the tokenizer_config.json beside it.
 */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void use(const mf_tokenizer *t)
{
    static const char text[] =
        "Hello  wo\xcc\x81rld 12\r\n\t<|im_end|>\xe4\xb8\xad\xe6\x96\x87\xff<|reserved_token_300|>"
        "\xf0\x9f\x98\x80 'S aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    int32_t tokens[512];
    char out[4096];
    for (int special = 0; special < 2; special++) {
        size_t n, n_out = 0;
        mf_decoder decoder = {0};
        const mf_text_input input = {text, sizeof text - 1, .parse_special = special != 0};
        mf_token_list list = {tokens, 512, 0};
        if (mf_text_encode(t, &input, &list, NULL) != MF_OK)
            continue;
        if (list.n_tokens > 512) /* every token has at least a byte */
            abort();
        for (size_t i = 0; i < list.n_tokens; i++) {
            if (tokens[i] < 0 || (size_t)tokens[i] >= t->bpe.n_ids)
                abort();
            if (mf_text_decode(t, &decoder, tokens[i], out + n_out, sizeof out - n_out, &n) ==
                MF_OK)
                n_out += n;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const mf_allocator a = mf_allocator_default();
    const uint8_t *split = n_bytes > 0 ? memchr(data, 0, n_bytes) : NULL;
    size_t n_model = split != NULL ? (size_t)(split - data) : n_bytes;
    mf_json config = {0};
    mf_tokenizer *t = NULL;
    mf_error error = {0};
    if (n_bytes > 1 << 16)
        return 0;
    if (split != NULL && mf_json_parse(&a, "config", (const char *)split + 1, n_bytes - n_model - 1,
                                       &config, NULL) != MF_OK)
        return 0;
    const mf_tiktoken_files files = {"fuzz", (const char *)data, n_model,
                                     split != NULL ? &config : NULL, false};
    mf_status status = mf_text_open_tiktoken(&files, &a, &t, &error);
    if (status == MF_OK)
        use(t);
    else if (error.message[0] == '\0')
        abort();
    mf_text_close(&t);
    mf_json_free(&config);
    return 0;
}
