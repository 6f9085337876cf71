/* SPDX-License-Identifier: MIT */
/* tokenizer.json from anywhere: opened, and where that succeeds, used. */
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char text[] =
        "Hello  wo\xcc\x81rld 12\r\n\t<|im_start|>\xe4\xb8\xad\xff\xf0\x9f\x98\x80 'S";
    mf_allocator a = mf_allocator_default();
    mf_json json = {0};
    mf_tokenizer *t = NULL;
    if (n_bytes > 1 << 16 ||
        mf_json_parse(&a, "fuzz", (const char *)data, n_bytes, &json, NULL) != MF_OK)
        return 0;
    if (mf_text_open_json(&json, &a, &t, NULL) == MF_OK) {
        int32_t tokens[256];
        size_t n;
        char out[4096];
        mf_decoder decoder = {0};
        for (int special = 0; special < 2; special++) {
            const mf_text_input input = {text, sizeof text - 1, .parse_special = special != 0};
            mf_token_list list = {tokens, 256, 0};
            mf_status status = mf_text_encode(t, &input, &list, NULL);
            for (size_t i = 0; status == MF_OK && i < list.n_tokens && i < 256; i++)
                (void)!mf_text_decode(t, &decoder, tokens[i], out, sizeof out, &n);
        }
        mf_text_close(&t);
    }
    mf_json_free(&json);
    return 0;
}
