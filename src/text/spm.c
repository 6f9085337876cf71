/* SPDX-License-Identifier: MIT */
/* Encoding by a SentencePiece model: a heap of pairs over a list of symbols. */
#include "text/spm.h"

#include "text/bpe_chars.h"
#include "text/bpe_tables.h"

#include <string.h>

#define NONE UINT32_MAX
#define NORMALISED "normalised text"

/* A run of the word's bytes; of one that was joined to the left one n_bytes is 0. */
typedef struct spm_symbol {
    uint32_t start, n_bytes, previous, next;
} spm_symbol;

/* Two neighbours that are a token of n_bytes. */
typedef struct spm_pair {
    float score;
    uint32_t left, n_bytes;
} spm_pair;

typedef struct spm_word {
    const mf_spm *spm;
    const mf_bpe *bpe;
    const unsigned char *bytes;
    spm_symbol *symbols;
    size_t n_symbols;
    spm_pair *heap;
    size_t n_pairs;
} spm_word;

void mf_spm_free(mf_spm *spm)
{
    if (spm->scores != NULL)
        mf_free(&spm->allocator, spm->scores, spm->n_scores * sizeof *spm->scores);
    mf_charsmap_free(&spm->charsmap);
    mf_prefix_tree_free(&spm->symbols);
    *spm = (mf_spm){0};
}

/* What the text's first characters become: *n_used bytes of it. */
static const unsigned char *next_unit(const mf_spm *spm, const unsigned char *text, size_t n_bytes,
                                      size_t *n_used, size_t *n_out)
{
    *n_used = *n_out = mf_prefix_tree_longest(&spm->symbols, text, n_bytes);
    if (*n_used == 0 && spm->charsmap.n_units != 0) {
        const unsigned char *found = mf_charsmap_find(&spm->charsmap, text, n_bytes, n_used, n_out);
        if (*n_used != 0)
            return found;
    }
    if (*n_used == 0)
        *n_used = *n_out = mf_char_bytes(text, n_bytes);
    return text;
}

static size_t leading_blanks(const mf_spm *spm, const unsigned char *text, size_t n_bytes)
{
    size_t at = 0, n_used, n_out;
    for (; at < n_bytes; at += n_used) {
        const unsigned char *unit = next_unit(spm, text + at, n_bytes - at, &n_used, &n_out);
        if (n_out != 1 || unit[0] != ' ')
            break;
    }
    return at;
}

/* Blanks may be removed before they become marks: those that are marks in the text are none. */
static mf_status append_units(const mf_spm *spm, const unsigned char *text, size_t n_bytes,
                              mf_buffer *out, mf_error *error)
{
    bool was_blank = spm->removes_extra_blanks;
    for (size_t at = 0, n_used, n_out; at < n_bytes; at += n_used) {
        const unsigned char *unit = next_unit(spm, text + at, n_bytes - at, &n_used, &n_out);
        for (; was_blank && n_out > 0 && *unit == ' '; n_out--)
            unit++;
        MF_TRY(mf_buffer_reserve(out, n_out, NORMALISED, error));
        out->n_bytes += mf_blanks_unmark(unit, n_out, out->data + out->n_bytes);
        if (n_out > 0 && spm->removes_extra_blanks)
            was_blank = unit[n_out - 1] == ' ';
    }
    return MF_OK;
}

mf_status mf_spm_normalise(const mf_spm *spm, const unsigned char *text, size_t n_bytes,
                           bool at_start, mf_buffer *out, mf_error *error)
{
    const size_t n_leading = spm->removes_extra_blanks ? leading_blanks(spm, text, n_bytes) : 0;
    out->n_bytes = 0;
    MF_TRY(mf_buffer_reserve(out, n_bytes + 1, NORMALISED, error));
    if (n_leading == n_bytes)
        return MF_OK;
    if (spm->prepend == MF_PREPEND_ALWAYS || (spm->prepend == MF_PREPEND_FIRST && at_start))
        MF_TRY(mf_buffer_append(out, " ", 1, NORMALISED, error));
    MF_TRY(append_units(spm, text + n_leading, n_bytes - n_leading, out, error));
    while (spm->removes_extra_blanks && out->n_bytes > 0 && out->data[out->n_bytes - 1] == ' ')
        out->n_bytes--;
    return MF_OK;
}

size_t mf_spm_word(const mf_spm *spm, const unsigned char *text, size_t n_bytes)
{
    for (size_t i = 1; spm->cuts_words && i < n_bytes; i++)
        if (text[i] == ' ' && text[i - 1] != ' ')
            return i;
    return n_bytes;
}

static bool goes_first(const spm_pair *a, const spm_pair *b)
{
    return a->score != b->score ? a->score > b->score : a->left < b->left;
}

static void push(spm_word *w, spm_pair pair)
{
    size_t i = w->n_pairs++;
    while (i > 0 && goes_first(&pair, &w->heap[(i - 1) / 2])) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = pair;
}

static spm_pair pop(spm_word *w)
{
    const spm_pair top = w->heap[0], last = w->heap[--w->n_pairs];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < w->n_pairs; i = child) {
        if (child + 1 < w->n_pairs && goes_first(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!goes_first(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = last;
    return top;
}

static void consider(spm_word *w, uint32_t left)
{
    if (left == NONE || w->symbols[left].next == NONE)
        return;
    const spm_symbol *s = &w->symbols[left];
    const size_t n_bytes = (size_t)s->n_bytes + w->symbols[s->next].n_bytes;
    if (n_bytes > w->spm->longest_bytes)
        return;
    const uint32_t id = mf_bpe_find(w->bpe, w->bytes + s->start, n_bytes, false);
    if (id != MF_BPE_NONE)
        push(w, (spm_pair){w->spm->scores[id], left, (uint32_t)n_bytes});
}

static void join(spm_word *w)
{
    for (size_t i = 0; i < w->n_symbols; i++)
        consider(w, (uint32_t)i);
    while (w->n_pairs > 0) {
        const spm_pair pair = pop(w);
        spm_symbol *left = &w->symbols[pair.left];
        if (left->n_bytes == 0 || left->next == NONE)
            continue;
        spm_symbol *right = &w->symbols[left->next];
        if (left->n_bytes + right->n_bytes != pair.n_bytes)
            continue; /* one of them has been joined otherwise since */
        left->n_bytes = pair.n_bytes;
        left->next = right->next;
        right->n_bytes = 0;
        if (left->next != NONE)
            w->symbols[left->next].previous = pair.left;
        consider(w, left->previous);
        consider(w, pair.left);
    }
}

static void list_symbols(spm_word *w, size_t n_bytes)
{
    for (size_t at = 0, n; at < n_bytes; at += n) {
        n = mf_char_bytes(w->bytes + at, n_bytes - at);
        const uint32_t i = (uint32_t)w->n_symbols++;
        w->symbols[i] = (spm_symbol){(uint32_t)at, (uint32_t)n, i == 0 ? NONE : i - 1,
                                     at + n < n_bytes ? i + 1 : NONE};
    }
}

/* What is no token: its bytes, or what is unknown, once for a run of them where those are fused. */
static size_t add_unknown(const spm_word *w, const spm_symbol *s, uint32_t *ids, size_t n)
{
    const uint32_t unknown = w->spm->unknown;
    if (w->spm->fuses_unknown) {
        if (unknown != MF_BPE_NONE && (n == 0 || ids[n - 1] != unknown))
            ids[n++] = unknown;
        return n;
    }
    for (uint32_t j = 0; j < s->n_bytes; j++) {
        const uint32_t byte = w->bpe->byte_ids[w->bytes[s->start + j]];
        const uint32_t as = byte != MF_BPE_NONE ? byte : unknown;
        if (as != MF_BPE_NONE)
            ids[n++] = as;
    }
    return n;
}

/* The ids replace the heap, which is empty then. */
static void list_ids(const spm_word *w, mf_bpe_ids *out)
{
    uint32_t *ids = (uint32_t *)(void *)w->heap;
    size_t n = 0;
    for (uint32_t i = 0; w->n_symbols > 0 && i != NONE; i = w->symbols[i].next) {
        const spm_symbol *s = &w->symbols[i];
        const uint32_t id = mf_bpe_find(w->bpe, w->bytes + s->start, s->n_bytes, false);
        if (id != MF_BPE_NONE)
            ids[n++] = id;
        else
            n = add_unknown(w, s, ids, n);
    }
    *out = (mf_bpe_ids){ids, n};
}

mf_status mf_spm_encode(const mf_spm *spm, const mf_bpe *bpe, mf_bpe_scratch *scratch,
                        const unsigned char *word, size_t n_bytes, mf_bpe_ids *out, mf_error *error)
{
    MF_TRY(mf_bpe_check_word(n_bytes, error));
    /* A pair for each symbol at first; each join takes one out and puts at most two in. */
    MF_TRY(mf_buffer_reserve(&scratch->symbols, (n_bytes + 1) * sizeof(spm_symbol),
                             "a word's symbols", error));
    MF_TRY(mf_buffer_reserve(&scratch->heap, (2 * n_bytes + 1) * sizeof(spm_pair), "a word's pairs",
                             error));
    spm_word w = {.spm = spm,
                  .bpe = bpe,
                  .bytes = word,
                  .symbols = (spm_symbol *)(void *)scratch->symbols.data,
                  .heap = (spm_pair *)(void *)scratch->heap.data};
    list_symbols(&w, n_bytes);
    join(&w);
    list_ids(&w, out);
    return MF_OK;
}
