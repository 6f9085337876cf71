/* SPDX-License-Identifier: MIT */
#include "grammar_data.h"

void grammar_data_open(grammar_data *d)
{
    mf_error error = {0};
    *d = (grammar_data){0};
    REQUIRE_OK(mf_tokenizer_open("models/demo", NULL, &d->tokenizer, &error), &error);
    REQUIRE_OK(mf_vocabulary_create(d->tokenizer, NULL, &d->vocabulary, &error), &error);
}

void grammar_data_close(grammar_data *d)
{
    mf_vocabulary_free(&d->vocabulary);
    mf_tokenizer_free(&d->tokenizer);
}

static mf_grammar *compile(const grammar_data *d, const mf_grammar_params *params, mf_error *error)
{
    mf_grammar *g = NULL;
    mf_status status = mf_grammar_compile(d->vocabulary, params, &g, error);
    CHECK(status == MF_OK ? g != NULL : g == NULL && error->message[0] != '\0');
    return g;
}

mf_grammar *grammar_of_schema(const grammar_data *d, const char *schema, mf_error *error)
{
    mf_grammar_params params;
    mf_grammar_params_default(&params);
    params.json_schema = schema;
    params.n_schema_bytes = strlen(schema);
    return compile(d, &params, error);
}

mf_grammar *grammar_of_gbnf(const grammar_data *d, const char *gbnf, mf_error *error)
{
    mf_grammar_params params;
    mf_grammar_params_default(&params);
    params.gbnf = gbnf;
    params.n_gbnf_bytes = strlen(gbnf);
    return compile(d, &params, error);
}

/* The token of one byte. */
static int32_t token_of_byte(const grammar_data *d, unsigned char byte)
{
    const size_t n = mf_tokenizer_n_vocab(d->tokenizer);
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes = 0;
        const char *piece = mf_tokenizer_piece(d->tokenizer, (int32_t)i, &n_bytes);
        if (n_bytes == 1 && (unsigned char)*piece == byte &&
            !mf_tokenizer_is_special(d->tokenizer, (int32_t)i))
            return (int32_t)i;
    }
    return -1;
}

static bool is_allowed(const grammar_data *d, mf_guide *guide, int32_t token)
{
    const size_t n = mf_tokenizer_n_vocab(d->tokenizer);
    uint32_t *mask = malloc((n + 31) / 32 * sizeof *mask);
    mf_error error = {0};
    REQUIRE(mask != NULL);
    mf_status status = mf_guide_mask(guide, mask, n, NULL, &error);
    bool is_set = status == MF_OK && (mask[token / 32] >> token % 32 & 1);
    CHECK_MSG(status == MF_OK || status == MF_ERR_NOT_FOUND, "%s", error.message);
    free(mask);
    return is_set;
}

/* Takes what it can of the tokens; each must be in the mask exactly if it is taken. */
static size_t take(const grammar_data *d, mf_guide *guide, const int32_t *tokens, size_t n)
{
    mf_error error;
    for (size_t i = 0; i < n; i++) {
        const bool may = is_allowed(d, guide, tokens[i]);
        const bool does = mf_guide_accept(guide, tokens[i], &error) == MF_OK;
        CHECK_MSG(may == does, "token %zu: the mask says %d, the guide %d", i, may, does);
        if (!does)
            return i;
    }
    return n;
}

static bool accepts_tokens(const grammar_data *d, mf_grammar *grammar, const int32_t *tokens,
                           size_t n)
{
    mf_guide *guide = NULL;
    mf_error error = {0};
    REQUIRE_OK(mf_guide_create(grammar, &guide, &error), &error);
    bool is_good = take(d, guide, tokens, n) == n && mf_guide_may_end(guide);
    mf_guide_free(&guide);
    return is_good;
}

static int32_t *bytes_as_tokens(const grammar_data *d, const char *text, size_t n)
{
    int32_t *tokens = malloc((n + 1) * sizeof *tokens);
    REQUIRE(tokens != NULL);
    for (size_t i = 0; i < n; i++)
        tokens[i] = token_of_byte(d, (unsigned char)text[i]);
    return tokens;
}

/* Do these tokens stand for the text's bytes? Not where it is no UTF-8. */
static bool are_its(const grammar_data *d, const int32_t *tokens, size_t n, size_t n_bytes)
{
    size_t n_all = 0;
    for (size_t i = 0; i < n; i++) {
        size_t n_piece = 0;
        (void)mf_tokenizer_piece(d->tokenizer, tokens[i], &n_piece);
        n_all += n_piece;
    }
    return n_all == n_bytes;
}

bool grammar_accepts(const grammar_data *d, mf_grammar *grammar, const char *text)
{
    mf_error error = {0};
    const size_t n_bytes = strlen(text), capacity = 3 * n_bytes; /* U+FFFD for a byte */
    size_t n = 0;
    int32_t *bytes = bytes_as_tokens(d, text, n_bytes);
    const bool by_bytes = accepts_tokens(d, grammar, bytes, n_bytes);
    free(bytes);
    int32_t *tokens = malloc((capacity + 1) * sizeof *tokens);
    REQUIRE(tokens != NULL);
    REQUIRE_OK(mf_tokenizer_encode(d->tokenizer, text, n_bytes, 0, tokens, capacity, &n, &error),
               &error);
    REQUIRE(n <= capacity);
    if (are_its(d, tokens, n, n_bytes)) {
        const bool by_tokens = accepts_tokens(d, grammar, tokens, n);
        CHECK_MSG(by_tokens == by_bytes, "%s: %d by tokens, %d by bytes", text, by_tokens,
                  by_bytes);
    }
    free(tokens);
    return by_bytes;
}

size_t grammar_prefix(const grammar_data *d, mf_grammar *grammar, const char *text)
{
    mf_guide *guide = NULL;
    mf_error error = {0};
    const size_t n = strlen(text);
    int32_t *tokens = bytes_as_tokens(d, text, n);
    REQUIRE_OK(mf_guide_create(grammar, &guide, &error), &error);
    const size_t n_taken = take(d, guide, tokens, n);
    mf_guide_free(&guide);
    free(tokens);
    return n_taken;
}
