/* SPDX-License-Identifier: MIT */
/* What a GGUF file's metadata says of text: vocabulary, pre-tokenizer, templates, defaults. */
#include "base/alloc.h"
#include "text/gguf_text.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "Hello, world 42 \xe2\x82\xac <|x|>\n";
    const mf_allocator a = mf_allocator_default();
    mf_gguf gguf = {0};
    mf_tokenizer *tokenizer = NULL;
    mf_error error;
    int32_t ids[64];
    size_t n_ids;
    if (mf_gguf_parse(&a, "fuzz", data, size, size, &gguf, &error) != MF_OK)
        return 0;
    if (mf_text_of_gguf(&gguf, &a, &tokenizer, &error) == MF_OK &&
        mf_tokenizer_encode(tokenizer, text, sizeof text - 1, 1, ids, 64, &n_ids, &error) == MF_OK)
        for (size_t i = 0; i < n_ids && i < 64; i++)
            if (ids[i] < 0 || (size_t)ids[i] >= mf_tokenizer_n_vocab(tokenizer))
                abort();
    mf_text_close(&tokenizer);
    mf_gguf_free(&gguf);
    return 0;
}
