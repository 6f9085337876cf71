/* SPDX-License-Identifier: MIT */
/* The best path through a word, from each place that a character begins at to all ends of tokens
 * there; then back from its end. */
#include "text/unigram.h"

#include "text/bpe_chars.h"

#include <stdio.h>
#include <string.h>

/* "<0x0A>" */
#define BYTE_NAME_BYTES ((size_t)6)
#define NONE UINT32_MAX

/* ---------------------------------------------------------------------------------- building -- */

mf_status mf_unigram_reserve(mf_unigram *u, const mf_allocator *a, size_t n, mf_error *error)
{
    u->allocator = *a;
    u->unknown = MF_BPE_NONE;
    u->n_scores = n;
    u->scores = mf_alloc_array(a, n, sizeof *u->scores);
    return u->scores != NULL ? MF_OK : mf_fail_memory(error, n * sizeof *u->scores, "a vocabulary");
}

void mf_unigram_free(mf_unigram *u)
{
    if (u->scores != NULL)
        mf_free(&u->allocator, u->scores, u->n_scores * sizeof *u->scores);
    mf_prefix_tree_free(&u->tokens);
    *u = (mf_unigram){0};
}

/* What is found by its bytes. */
static mf_status list_tokens(const mf_bpe *bpe, mf_prefix *out, size_t *n, const char *path,
                             mf_error *error)
{
    *n = 0;
    for (uint32_t id = 0; id < bpe->n_ids; id++) {
        const mf_piece *p = &bpe->pieces[id];
        if (p->n_bytes == 0 || p->is_raw)
            continue;
        if (p->n_bytes > MF_MAX_UNIGRAM_BYTES)
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: token %u has %u bytes, expected at most %zu in a Unigram model",
                           path, id, (unsigned)p->n_bytes, MF_MAX_UNIGRAM_BYTES);
        out[(*n)++] = (mf_prefix){bpe->bytes + p->offset, p->n_bytes, id};
    }
    return MF_OK;
}

/* The names of bytes that have tokens. */
static size_t list_byte_names(const mf_bpe *bpe, char names[256][BYTE_NAME_BYTES + 1],
                              mf_prefix *out)
{
    size_t n = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        if (bpe->byte_ids[byte] == MF_BPE_NONE)
            continue;
        snprintf(names[byte], sizeof names[byte], "<0x%02X>", byte);
        out[n++] =
            (mf_prefix){(const unsigned char *)names[byte], BYTE_NAME_BYTES, bpe->byte_ids[byte]};
    }
    return n;
}

mf_status mf_unigram_finish(mf_unigram *u, const mf_bpe *bpe, bool with_byte_names,
                            const char *path, mf_error *error)
{
    char names[256][BYTE_NAME_BYTES + 1];
    const mf_allocator *a = &u->allocator;
    const size_t size = (bpe->n_ids + 256) * sizeof(mf_prefix);
    size_t n;
    mf_prefix *tokens = mf_alloc(a, size);
    if (tokens == NULL)
        return mf_fail_memory(error, size, "a vocabulary");
    mf_status status = list_tokens(bpe, tokens, &n, path, error);
    if (status == MF_OK && with_byte_names)
        n += list_byte_names(bpe, names, tokens + n);
    if (status == MF_OK && n == 0)
        status = mf_fail(error, MF_ERR_FORMAT, "%s: no token of a Unigram model is text", path);
    if (status == MF_OK)
        status = mf_prefix_tree_build(&u->tokens, a, tokens, n, error);
    mf_free(a, tokens, size);
    return status;
}

/* ---------------------------------------------------------------------------------- encoding -- */

/* The best path to a place in the word: what it adds up to, and its last token. */
typedef struct best_path {
    double sum;
    uint32_t start; /* of that token; NONE: no path is known */
    uint32_t id;
} best_path;

static void offer(best_path *to, double sum, size_t start, uint32_t id)
{
    if (to->start == NONE || sum > to->sum)
        *to = (best_path){sum, (uint32_t)start, id};
}

static double add(const mf_unigram *u, double sum, double score)
{
    return u->rounds_sums ? (double)(float)(sum + score) : sum + score;
}

/* Goes on from the path to `at` by all tokens that begin there, and past a character that none is.
 */
static void extend(const mf_unigram *u, best_path *paths, const unsigned char *word, size_t n_bytes,
                   size_t at, size_t n_char)
{
    const double sum = paths[at].sum;
    bool has_character = false;
    uint32_t node = 0;
    for (size_t end = at; end < n_bytes;) {
        node = mf_prefix_tree_step(&u->tokens, node, word[end++]);
        if (node == MF_PREFIX_NONE)
            break;
        const uint32_t id = u->tokens.nodes[node].value;
        if (id == MF_PREFIX_NONE)
            continue;
        offer(&paths[end], add(u, sum, u->scores[id]), at, id);
        has_character = has_character || end == at + n_char;
    }
    if (!has_character)
        offer(&paths[at + n_char], add(u, sum, u->unknown_score), at, u->unknown);
}

/* Ids from the word's end to its beginning, written from the end of their room. */
typedef struct backwards {
    const mf_unigram *u;
    const mf_bpe *bpe;
    uint32_t *ids;
    size_t at;
} backwards;

/* A character of a run: a blank stands for its mark. */
static const unsigned char *as_written(const mf_bpe *bpe, const unsigned char *c, size_t *n)
{
    const bool is_mark = bpe->marks_blanks && *c == ' ';
    *n = is_mark ? MF_BLANK_MARK_BYTES : 1;
    return is_mark ? (const unsigned char *)MF_BLANK_MARK : c;
}

static bool has_bytes(const mf_bpe *bpe, const unsigned char *text, size_t n_bytes)
{
    bool has = true;
    for (size_t i = 0, n; has && i < n_bytes; i++) {
        const unsigned char *c = as_written(bpe, text + i, &n);
        has = mf_bpe_has_bytes(bpe, c, n);
    }
    return has;
}

static void put_bytes(backwards *b, const unsigned char *text, size_t n_bytes)
{
    while (n_bytes > 0) {
        size_t n;
        const unsigned char *c = as_written(b->bpe, text + --n_bytes, &n);
        while (n > 0)
            b->ids[--b->at] = b->bpe->byte_ids[c[--n]];
    }
}

/* A run of unknown characters, which as a whole may be a token all the same: the unknown one by its
 * name. */
static void put_run(backwards *b, const unsigned char *run, size_t n_bytes)
{
    const uint32_t id = mf_prefix_tree_find(&b->u->tokens, run, n_bytes);
    if (id == MF_PREFIX_NONE && b->u->falls_to_bytes && has_bytes(b->bpe, run, n_bytes)) {
        put_bytes(b, run, n_bytes);
        return;
    }
    if (id != MF_PREFIX_NONE || b->u->unknown != MF_BPE_NONE)
        b->ids[--b->at] = id != MF_PREFIX_NONE ? id : b->u->unknown;
}

static void put_path(backwards *b, const best_path *paths, const unsigned char *word,
                     size_t n_bytes)
{
    size_t end = n_bytes;
    while (end > 0) {
        size_t start = paths[end].start;
        if (paths[end].id != b->u->unknown) {
            b->ids[--b->at] = paths[end].id;
        } else {
            while (start > 0 && paths[start].id == b->u->unknown)
                start = paths[start].start;
            put_run(b, word + start, end - start);
        }
        end = start;
    }
}

mf_status mf_unigram_encode(const mf_unigram *u, const mf_bpe *bpe, mf_bpe_scratch *scratch,
                            const unsigned char *word, size_t n_bytes, mf_bpe_ids *out,
                            mf_error *error)
{
    const size_t n_ids = MF_BLANK_MARK_BYTES * n_bytes + 1; /* at most: blanks as bytes */
    MF_TRY(mf_bpe_check_word(n_bytes, error));
    MF_TRY(mf_buffer_reserve(&scratch->symbols, (n_bytes + 1) * sizeof(best_path),
                             "a word's best paths", error));
    MF_TRY(mf_buffer_reserve(&scratch->heap, n_ids * sizeof(uint32_t), "a word's tokens", error));
    best_path *paths = (best_path *)(void *)scratch->symbols.data;
    for (size_t i = 0; i <= n_bytes; i++)
        paths[i] = (best_path){0, NONE, MF_BPE_NONE};
    for (size_t at = 0, n_char; at < n_bytes; at += n_char) {
        n_char = mf_char_bytes(word + at, n_bytes - at);
        extend(u, paths, word, n_bytes, at, n_char);
    }
    backwards b = {.u = u, .bpe = bpe, .ids = (uint32_t *)(void *)scratch->heap.data, .at = n_ids};
    put_path(&b, paths, word, n_bytes);
    *out = (mf_bpe_ids){b.ids + b.at, n_ids - b.at};
    return MF_OK;
}
