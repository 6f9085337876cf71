/* SPDX-License-Identifier: MIT */
#include "dropped_thoughts.h"

#include <string.h>

enum { AT_END = -1, IN_THOUGHT = -2 };

typedef struct mark {
    const char *text; /* without blanks around it */
    size_t n;
} mark;

typedef struct reader {
    const char *text;
    size_t n, at;
    mark open, close;
} reader;

static mark mark_of(const char *text)
{
    mark m = {"", text ? strlen(text) : 0};
    if (text)
        m.text = mf_srv_trim(text, &m.n);
    return m;
}

static bool is_at(const reader *r, const char *text, size_t n)
{
    return r->n - r->at >= n && memcmp(r->text + r->at, text, n) == 0;
}

static void skip_blanks(reader *r)
{
    while (r->at < r->n && mf_srv_is_blank(r->text[r->at]))
        r->at++;
}

/* The next byte that is no blank and of no thought. */
static int next(reader *r)
{
    for (;;) {
        skip_blanks(r);
        if (r->at == r->n)
            return AT_END;
        if (!is_at(r, r->open.text, r->open.n))
            return (unsigned char)r->text[r->at++];
        const char *begin = r->text + r->at + r->open.n;
        const char *end =
            memmem(begin, (size_t)(r->text + r->n - begin), r->close.text, r->close.n);
        if (!end)
            return IN_THOUGHT;
        r->at = (size_t)(end - r->text) + r->close.n;
    }
}

/* The tokens' text. The one that texts begin with is left out where the template did not write it.
 */
static void put_text(const mf_srv_model *model, const int32_t *tokens, size_t n,
                     const mf_srv_bytes *text, mf_srv_bytes *out)
{
    for (size_t i = 0; i < n; i++) {
        size_t n_piece = 0;
        const char *piece = mf_tokenizer_piece(model->tokenizer, tokens[i], &n_piece);
        const bool is_start = i == 0 && tokens[0] == mf_tokenizer_start(model->tokenizer);
        if (piece &&
            !(is_start && (text->n_bytes < n_piece || memcmp(text->data, piece, n_piece) != 0)))
            mf_srv_put(out, piece, n_piece);
    }
}

static bool ends_answer(const mf_srv_model *model, const reader *r)
{
    for (size_t i = 0; i < model->n_end_texts; i++)
        if (is_at(r, model->end_texts[i], strlen(model->end_texts[i])))
            return true;
    return false;
}

bool mf_srv_follows_but_thoughts(const mf_srv_model *model, const int32_t *tokens, size_t n,
                                 const mf_srv_bytes *text, size_t *n_bytes)
{
    mf_reply_form form;
    mf_srv_bytes said = {0};
    mf_reply_form_of(model->syntax, &form);
    const mark open = mark_of(form.thought_open), close = mark_of(form.thought_close);
    if (open.n == 0 || close.n == 0)
        return false;
    put_text(model, tokens, n, text, &said);
    reader a = {said.data, said.n_bytes, 0, open, close};
    reader b = {text->data, text->n_bytes, 0, open, close};
    bool is_same = !said.has_failed && said.data && text->data;
    int byte = 0;
    while (is_same && (byte = next(&a)) != AT_END)
        is_same = byte != IN_THOUGHT && next(&b) == byte;
    mf_srv_bytes_free(&said);
    if (is_same)
        skip_blanks(&b);
    if (!is_same || !ends_answer(model, &b))
        return false;
    *n_bytes = b.at;
    return true;
}
