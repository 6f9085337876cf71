/* SPDX-License-Identifier: MIT */
/* The public functions of the tokenizer: they check the arguments and call. */
#include "text/tokenizer.h"

#include <limits.h>

mf_status mf_tokenizer_open(const char *path, const mf_allocator *allocator, mf_tokenizer **out,
                            mf_error *error)
{
    if (path == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_tokenizer_open: path and out must not be NULL");
    mf_allocator a;
    MF_TRY(mf_allocator_take(allocator, &a, error));
    return mf_text_open(path, &a, out, error);
}

void mf_tokenizer_free(mf_tokenizer **tokenizer)
{
    if (tokenizer != NULL)
        mf_text_close(tokenizer);
}

mf_status mf_tokenizer_encode(const mf_tokenizer *tokenizer, const char *text, size_t n_bytes,
                              int parse_special, int32_t *tokens, size_t capacity, size_t *n_tokens,
                              mf_error *error)
{
    if (tokenizer == NULL || n_tokens == NULL || (text == NULL && n_bytes != 0) ||
        (tokens == NULL && capacity != 0))
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_tokenizer_encode: a NULL argument");
    if (n_bytes > INT_MAX / 4)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_tokenizer_encode: %zu bytes of text, at most %d at once", n_bytes,
                       INT_MAX / 4);
    const mf_text_input input = {text, n_bytes, .parse_special = parse_special != 0};
    mf_token_list list = {tokens, capacity, 0};
    MF_TRY(mf_text_encode(tokenizer, &input, &list, error));
    *n_tokens = list.n_tokens;
    return MF_OK;
}

const char *mf_tokenizer_piece(const mf_tokenizer *tokenizer, int32_t token, size_t *n_bytes)
{
    size_t ignored;
    return mf_text_piece(tokenizer, token, n_bytes != NULL ? n_bytes : &ignored);
}

size_t mf_tokenizer_n_vocab(const mf_tokenizer *tokenizer)
{
    return tokenizer->bpe.n_ids;
}

int mf_tokenizer_is_end(const mf_tokenizer *tokenizer, int32_t token)
{
    for (size_t i = 0; i < tokenizer->n_end_tokens; i++)
        if (tokenizer->end_tokens[i] == token)
            return 1;
    return 0;
}

int32_t mf_tokenizer_start(const mf_tokenizer *tokenizer)
{
    return tokenizer->start_token;
}

int mf_tokenizer_is_special(const mf_tokenizer *tokenizer, int32_t token)
{
    return token >= 0 && (size_t)token < tokenizer->bpe.n_ids &&
           tokenizer->bpe.pieces[token].is_special;
}

mf_status mf_tokenizer_decode(const mf_tokenizer *tokenizer, mf_decoder *decoder, int32_t token,
                              char *text, size_t capacity, size_t *n_bytes)
{
    if (tokenizer == NULL || decoder == NULL || n_bytes == NULL || (text == NULL && capacity != 0))
        return MF_ERR_ARGUMENT;
    if (decoder->n_pending >= sizeof decoder->pending)
        return MF_ERR_ARGUMENT;
    return mf_text_decode(tokenizer, decoder, token, text, capacity, n_bytes);
}
