/* SPDX-License-Identifier: MIT */
/* Pieces to tables. Normal pieces are found by their bytes; all others have an id and bytes to
 * show, and those that stand for text as a whole are added tokens. */
#include "text/spm_build.h"

#include "text/bpe_chars.h"

#include <float.h>
#include <math.h>
#include <string.h>

mf_status mf_spm_build_begin(mf_tokenizer *t, const mf_spm_sizes *sizes, mf_error *error)
{
    const size_t n = sizes->n_pieces;
    t->bpe.allocator = t->spm.allocator = t->allocator;
    MF_TRY(mf_bpe_reserve(&t->bpe, n, n + sizes->n_extra,
                          sizes->n_piece_bytes + sizes->n_extra_bytes, error));
    MF_TRY(mf_added_tokens_reserve(&t->added, &t->allocator, sizes->n_added + 1, error));
    t->bpe.n_ids = n;
    t->bpe.of_characters = t->bpe.marks_blanks = t->bpe.has_byte_keys = true;
    t->bpe.unknown = t->spm.unknown = MF_BPE_NONE;
    t->spm.cuts_words = true;
    t->spm.n_scores = n;
    t->spm.lowest_score = FLT_MAX; /* as the package begins with it */
    t->spm.scores = mf_alloc_array(&t->allocator, n, sizeof *t->spm.scores);
    if (t->spm.scores == NULL)
        return mf_fail_memory(error, n * sizeof *t->spm.scores, "a vocabulary");
    for (size_t b = 0; b < 256; b++)
        t->bpe.byte_ids[b] = MF_BPE_NONE;
    return MF_OK;
}

bool mf_spm_is_added(int type)
{
    return type == MF_SPM_CONTROL || type == MF_SPM_USER_DEFINED || type == MF_SPM_UNKNOWN;
}

/* The n bytes behind the pieces as token `id`, which merges never give. */
static void take_apart(mf_bpe *bpe, uint32_t id, size_t n, bool is_special)
{
    bpe->pieces[id] = (mf_piece){(uint32_t)bpe->n_bytes, (uint32_t)n, 1, is_special};
    bpe->n_bytes += n;
}

static mf_status take_added(mf_tokenizer *t, uint32_t id, size_t n, int type,
                            mf_spm_symbols symbols, mf_error *error)
{
    const char *text = (const char *)t->bpe.bytes + t->bpe.n_bytes;
    const bool is_special = type != MF_SPM_USER_DEFINED;
    mf_added_token *added;
    if (type == MF_SPM_UNKNOWN)
        t->spm.unknown = id;
    if (mf_added_tokens_find(&t->added, text, n) == NULL) {
        MF_TRY(mf_added_tokens_add(&t->added, id, text, n, &added, error));
        added->is_special = is_special;
        added->is_normalized = symbols == MF_SPM_IN_NORMALISED && !is_special;
        added->order = id;
    }
    take_apart(&t->bpe, id, n, is_special);
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

mf_status mf_spm_build_piece(mf_tokenizer *t, uint32_t id, const mf_spm_piece *piece,
                             mf_spm_symbols symbols, mf_error *error)
{
    mf_bpe *bpe = &t->bpe;
    mf_spm *spm = &t->spm;
    const mf_spm_text text = piece->text;
    const bool is_symbol = piece->type == MF_SPM_USER_DEFINED && symbols != MF_SPM_IN_TEXT;
    const bool has_blank = memchr(text.text, ' ', text.n_bytes) != NULL;
    const unsigned char *const to = bpe->bytes + bpe->n_bytes;
    unsigned char byte;
    size_t n;
    if (piece->type == MF_SPM_UNUSED || text.n_bytes == 0)
        return MF_OK;
    if (piece->type == MF_SPM_BYTE && mf_bpe_is_byte_key(text.text, text.n_bytes, &byte)) {
        bpe->byte_ids[byte] = id;
        MF_TRY(mf_bpe_write_text(bpe, (const char *)&byte, 1, &n, error));
        take_apart(bpe, id, 1, false);
        return MF_OK;
    }
    MF_TRY(mf_bpe_write_text(bpe, text.text, text.n_bytes, &n, error));
    if (piece->type == MF_SPM_NORMAL)
        spm->lowest_score = fminf(spm->lowest_score, piece->score);
    if (has_blank && (is_symbol || !mf_spm_is_added(piece->type))) {
        take_apart(bpe, id, n, false); /* normalised text has no blank, but marks */
        return MF_OK;
    }
    if (mf_spm_is_added(piece->type) && !(is_symbol && symbols == MF_SPM_AMONG_TOKENS))
        return take_added(t, id, n, piece->type, symbols, error);
    spm->scores[id] = is_symbol ? NAN : piece->score;
    spm->cuts_words = spm->cuts_words && !has_inner_blank(to, n);
    spm->longest_bytes = n > spm->longest_bytes ? n : spm->longest_bytes;
    if (mf_bpe_has(bpe, to, n))
        take_apart(bpe, id, n, false); /* the first of a name counts */
    else
        mf_bpe_take_token(bpe, id, n, false);
    return MF_OK;
}

/* What the package (0.2.3) gives a user-defined piece, by its bytes, so that it is all but always
 * chosen; older ones gave what other pieces' scores led to. */
static float score_of_symbol(const mf_tokenizer *t, size_t id)
{
    const mf_piece *p = &t->bpe.pieces[id];
    size_t n_marked = p->n_bytes;
    for (size_t i = 0; i < p->n_bytes; i++)
        n_marked += t->bpe.bytes[p->offset + i] == ' ' ? MF_BLANK_MARK_BYTES - 1 : 0;
    return (float)n_marked * 0.1f - 0.1f;
}

mf_status mf_spm_build_unigram(mf_tokenizer *t, const char *path, mf_error *error)
{
    mf_unigram *u = &t->unigram;
    MF_TRY(mf_unigram_reserve(u, &t->allocator, t->spm.n_scores, error));
    for (size_t id = 0; id < u->n_scores; id++)
        u->scores[id] = isnan(t->spm.scores[id]) ? score_of_symbol(t, id) : t->spm.scores[id];
    u->unknown = t->spm.unknown;
    u->unknown_score = t->spm.lowest_score - (float)MF_UNKNOWN_PENALTY;
    return mf_unigram_finish(u, &t->bpe, false, path, error);
}
