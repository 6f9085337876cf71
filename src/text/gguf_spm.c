/* SPDX-License-Identifier: MIT */
/* SentencePiece vocabularies (tokenizer.ggml.model llama): tokens, scores, bytes. */
#include "text/gguf_text_internal.h"

#include <math.h>
#include <string.h>

#define MAX_ADDED ((size_t)1 << 14)

typedef struct spm_loader {
    const mf_gguf_text_reader *t;
    mf_tokenizer *tokenizer;
    const mf_gguf_value *scores;
    size_t n_added;
} spm_loader;

/* -1 where it is none */
static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "<0x0A>" */
static bool byte_of(mf_gguf_text token, unsigned char *out)
{
    if (token.n_bytes != 6 || memcmp(token.text, "<0x", 3) != 0 || token.text[5] != '>')
        return false;
    const int high = hex_digit(token.text[3]), low = hex_digit(token.text[4]);
    if (high < 0 || low < 0)
        return false;
    *out = (unsigned char)(high << 4 | low);
    return true;
}

/* Writes a token with blanks for what stands for them; returns its bytes. */
static size_t write_token(mf_gguf_text token, unsigned char *out)
{
    const size_t n_blank = sizeof MF_SPM_BLANK - 1;
    size_t n = 0;
    for (size_t i = 0; i < token.n_bytes;) {
        const bool is_blank =
            token.n_bytes - i >= n_blank && memcmp(token.text + i, MF_SPM_BLANK, n_blank) == 0;
        out[n++] = is_blank ? ' ' : (unsigned char)token.text[i];
        i += is_blank ? n_blank : 1;
    }
    return n;
}

static bool is_added(int type)
{
    return type == MF_GGUF_CONTROL || type == MF_GGUF_USER_DEFINED || type == MF_GGUF_UNKNOWN;
}

static mf_status reserve(spm_loader *l, mf_error *error)
{
    const mf_gguf_text_reader *t = l->t;
    const size_t n = (size_t)t->tokens->n;
    mf_tokenizer *k = l->tokenizer;
    if (n == 0 || n > MF_GGUF_MAX_TOKENS || t->tokens->n_bytes > UINT32_MAX / 2)
        return mf_gguf_text_fail(t, MF_ERR_FORMAT, "tokens", "has none, or too many tokens");
    if (l->scores == NULL || l->scores->n != n)
        return mf_gguf_text_fail(t, MF_ERR_FORMAT, "scores", "has not one score for each token");
    for (uint64_t id = 0; id < n; id++)
        l->n_added += is_added(mf_gguf_token_type(t, id));
    if (l->n_added > MAX_ADDED)
        return mf_gguf_text_fail(t, MF_ERR_UNSUPPORTED, "token_type",
                                 "has more than 16384 control and user-defined tokens");
    k->bpe.allocator = k->spm.allocator = k->allocator;
    MF_TRY(mf_bpe_reserve(&k->bpe, n, n, t->tokens->n_bytes, error));
    MF_TRY(mf_added_tokens_reserve(&k->added, &k->allocator, l->n_added + 1, error));
    k->bpe.n_ids = n;
    k->spm.n_scores = n;
    k->spm.scores = mf_alloc_array(&k->allocator, n, sizeof *k->spm.scores);
    if (k->spm.scores == NULL)
        return mf_fail_memory(error, n * sizeof *k->spm.scores, "a vocabulary");
    for (size_t b = 0; b < 256; b++)
        k->bpe.byte_ids[b] = MF_BPE_NONE;
    return MF_OK;
}

/* The n bytes behind the pieces as token `id`, which merges never give. */
static void take_apart(mf_bpe *bpe, uint32_t id, size_t n, bool is_special)
{
    bpe->pieces[id] = (mf_piece){(uint32_t)bpe->n_bytes, (uint32_t)n, 1, is_special};
    bpe->n_bytes += n;
}

static mf_status take_added(spm_loader *l, uint32_t id, size_t n, int type, mf_error *error)
{
    mf_tokenizer *k = l->tokenizer;
    const char *text = (const char *)k->bpe.bytes + k->bpe.n_bytes;
    const bool is_special = type != MF_GGUF_USER_DEFINED;
    mf_added_token *added;
    if (type == MF_GGUF_UNKNOWN)
        k->spm.unknown = id;
    if (mf_added_tokens_find(&k->added, text, n) == NULL) {
        MF_TRY(mf_added_tokens_add(&k->added, id, text, n, &added, error));
        added->is_special = is_special;
        added->order = id;
    }
    take_apart(&k->bpe, id, n, is_special);
    return MF_OK;
}

/* A blank behind something else: then words cannot be told apart by them. */
static bool has_inner_blank(const unsigned char *text, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (text[i] == ' ' && text[i - 1] != ' ')
            return true;
    return false;
}

static mf_status take_token(spm_loader *l, uint32_t id, mf_gguf_text token, mf_error *error)
{
    mf_bpe *bpe = &l->tokenizer->bpe;
    mf_spm *spm = &l->tokenizer->spm;
    const int type = mf_gguf_token_type(l->t, id);
    unsigned char *to = bpe->bytes + bpe->n_bytes;
    double score = 0;
    if (type == MF_GGUF_UNUSED || token.n_bytes == 0)
        return MF_OK;
    if (type == MF_GGUF_BYTE && byte_of(token, to)) {
        bpe->byte_ids[*to] = id;
        take_apart(bpe, id, 1, false);
        return MF_OK;
    }
    const size_t n = write_token(token, to);
    if (is_added(type))
        return take_added(l, id, n, type, error);
    if (!mf_gguf_number(l->t->gguf, l->scores, id, &score) || isnan(score))
        return mf_gguf_text_fail(l->t, MF_ERR_FORMAT, "scores", "has a score that is no number");
    spm->scores[id] = (float)score;
    spm->cuts_words = spm->cuts_words && !has_inner_blank(to, n);
    spm->longest_bytes = n > spm->longest_bytes ? n : spm->longest_bytes;
    if (mf_bpe_has(bpe, to, n))
        take_apart(bpe, id, n, false); /* the first of a name counts */
    else
        mf_bpe_take_token(bpe, id, n, false);
    return MF_OK;
}

static mf_status load(spm_loader *l, mf_error *error)
{
    const mf_gguf_text_reader *t = l->t;
    mf_tokenizer *k = l->tokenizer;
    mf_gguf_text token;
    size_t at = 0;
    MF_TRY(reserve(l, error));
    k->spm.unknown = MF_BPE_NONE;
    k->spm.adds_blank = mf_gguf_text_flag(t, "add_space_prefix", true);
    k->spm.cuts_words = true;
    for (uint32_t id = 0; mf_gguf_next(t->gguf, t->tokens, &at, &token); id++)
        MF_TRY(take_token(l, id, token, error));
    MF_TRY(mf_added_tokens_finish(&k->added, false, error));
    return mf_gguf_text_flag(t, "add_bos_token", true)
               ? mf_gguf_text_id(t, "bos_token_id", &k->start_token)
               : MF_OK;
}

mf_status mf_gguf_open_spm(mf_gguf_text_reader *t, const mf_allocator *a, mf_tokenizer **out)
{
    spm_loader l = {.t = t, .tokenizer = mf_alloc_zeroed(a, sizeof *l.tokenizer)};
    if (l.tokenizer == NULL)
        return mf_fail_memory(t->error, sizeof *l.tokenizer, "a tokenizer");
    l.tokenizer->allocator = *a;
    l.tokenizer->start_token = -1;
    mf_status status = mf_gguf_text_array(t, "scores", false, &l.scores);
    if (status == MF_OK)
        status = load(&l, t->error);
    if (status == MF_OK)
        *out = l.tokenizer;
    else
        mf_text_close(&l.tokenizer);
    return status;
}
