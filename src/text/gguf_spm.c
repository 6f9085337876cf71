/* SPDX-License-Identifier: MIT */
/*
 * SentencePiece vocabularies: tokens, scores, bytes. tokenizer.ggml.model llama is byte pairs, t5
 * the Unigram kind, whose normalisation is in the file, too.
 */
#include "text/gguf_text_internal.h"

#include "text/bpe_chars.h"
#include "text/spm_build.h"

#include <math.h>
#include <stdio.h>

#define MAX_WHERE_BYTES 512

typedef struct spm_loader {
    const mf_gguf_text_reader *t;
    mf_tokenizer *tokenizer;
    const mf_gguf_value *scores;
    bool is_unigram;
} spm_loader;

static mf_status reserve(spm_loader *l, mf_error *error)
{
    const mf_gguf_text_reader *t = l->t;
    const size_t n = (size_t)t->tokens->n;
    mf_spm_sizes sizes = {.n_pieces = n, .n_piece_bytes = t->tokens->n_bytes};
    if (n == 0 || n > MF_GGUF_MAX_TOKENS || t->tokens->n_bytes > UINT32_MAX / 2)
        return mf_gguf_text_fail(t, MF_ERR_FORMAT, "tokens", "has none, or too many tokens");
    if (l->scores == NULL || l->scores->n != n)
        return mf_gguf_text_fail(t, MF_ERR_FORMAT, "scores", "has not one score for each token");
    for (uint64_t id = 0; id < n; id++)
        sizes.n_added += mf_spm_is_added(mf_gguf_token_type(t, id));
    if (sizes.n_added > MF_SPM_MAX_ADDED)
        return mf_gguf_text_fail(t, MF_ERR_UNSUPPORTED, "token_type",
                                 "has more than 16384 control and user-defined tokens");
    return mf_spm_build_begin(l->tokenizer, &sizes, error);
}

static mf_status take_token(spm_loader *l, uint32_t id, mf_gguf_text token, mf_error *error)
{
    const int type = mf_gguf_token_type(l->t, id);
    unsigned char byte;
    const bool has_score =
        token.n_bytes != 0 && !mf_spm_is_added(type) && type != MF_SPM_UNUSED &&
        !(type == MF_SPM_BYTE && mf_bpe_is_byte_key(token.text, token.n_bytes, &byte));
    double score = 0;
    if (has_score && (!mf_gguf_number(l->t->gguf, l->scores, id, &score) || isnan(score)))
        return mf_gguf_text_fail(l->t, MF_ERR_FORMAT, "scores", "has a score that is no number");
    const mf_spm_piece piece = {{token.text, token.n_bytes}, (float)score, type};
    return mf_spm_build_piece(l->tokenizer, id, &piece, MF_SPM_IN_TEXT, error);
}

static mf_status load_charsmap(const spm_loader *l, mf_error *error)
{
    static const char key[] = "precompiled_charsmap";
    const mf_gguf_value *map;
    char where[MAX_WHERE_BYTES];
    MF_TRY(mf_gguf_text_array(l->t, key, false, &map));
    if (map == NULL)
        return MF_OK;
    if (map->type != MF_GGUF_U8 && map->type != MF_GGUF_I8)
        return mf_gguf_text_fail(l->t, MF_ERR_FORMAT, key, "is no array of bytes");
    snprintf(where, sizeof where, "%.400s: key tokenizer.ggml.%s", l->t->gguf->path, key);
    return mf_charsmap_load(&l->tokenizer->spm.charsmap, &l->tokenizer->allocator, where,
                            l->t->gguf->bytes + map->at, map->n_bytes, error);
}

/* When all tokens are there. Sums are those of llama.cpp, which does not round them. */
static mf_status finish_unigram(const spm_loader *l, mf_error *error)
{
    l->tokenizer->unigram.falls_to_bytes = true;
    MF_TRY(load_charsmap(l, error));
    return mf_spm_build_unigram(l->tokenizer, l->t->gguf->path, error);
}

/* Of byte pairs the first blank goes, whatever it comes from: so llama.cpp has it, and
 * transformers, which gives such a file the decoder of Llama's tokenizer.json. Of the others as the
 * sentencepiece package does. */
static mf_start_strip strip_of(const spm_loader *l, const mf_spm *spm)
{
    if (spm->removes_extra_blanks)
        return MF_STRIP_MARKS;
    if (spm->prepend == MF_PREPEND_NEVER)
        return MF_STRIP_NONE;
    return l->is_unigram ? MF_STRIP_MARK : MF_STRIP_BLANK;
}

static mf_status load(spm_loader *l, mf_error *error)
{
    const mf_gguf_text_reader *t = l->t;
    mf_tokenizer *k = l->tokenizer;
    mf_gguf_text token;
    size_t at = 0;
    MF_TRY(reserve(l, error));
    k->spm.prepend =
        mf_gguf_text_flag(t, "add_space_prefix", true) ? MF_PREPEND_ALWAYS : MF_PREPEND_NEVER;
    k->spm.removes_extra_blanks =
        l->is_unigram && mf_gguf_text_flag(t, "remove_extra_whitespaces", false);
    k->decoding =
        (mf_decoding){.unmarks_blanks = true, .joins_bytes = true, .strip = strip_of(l, &k->spm)};
    for (uint32_t id = 0; mf_gguf_next(t->gguf, t->tokens, &at, &token); id++)
        MF_TRY(take_token(l, id, token, error));
    k->bpe.cuts_before_unknown = true; /* each is a token by itself */
    MF_TRY(mf_bpe_index_characters(&k->bpe, error));
    mf_added_tokens_finish(&k->added);
    if (l->is_unigram)
        MF_TRY(finish_unigram(l, error));
    return mf_gguf_text_flag(t, "add_bos_token", !l->is_unigram)
               ? mf_gguf_text_id(t, "bos_token_id", &k->start_token)
               : MF_OK;
}

mf_status mf_gguf_open_spm(mf_gguf_text_reader *t, const mf_allocator *a, bool is_unigram,
                           mf_tokenizer **out)
{
    spm_loader l = {.t = t, .tokenizer = mf_text_create(a), .is_unigram = is_unigram};
    if (l.tokenizer == NULL)
        return mf_fail_memory(t->error, sizeof *l.tokenizer, "a tokenizer");
    mf_status status = mf_gguf_text_array(t, "scores", false, &l.scores);
    if (status == MF_OK)
        status = load(&l, t->error);
    if (status == MF_OK)
        *out = l.tokenizer;
    else
        mf_text_close(&l.tokenizer);
    return status;
}
