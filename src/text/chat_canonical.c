/* SPDX-License-Identifier: MIT */
/* The canonical form of a chat template. It is only compared, so a template that is no Jinja gives
 * some text too. */
#include "text/chat_template.h"

#include <string.h>

typedef struct mf_canonical {
    const char *at, *end;
    char *out;
    size_t n_out;
    bool drops_blanks;  /* the last tag ended in -}: what follows loses its white space */
    bool drops_newline; /* it was a statement or a comment: the line's end belongs to it */
    bool starts_line;
} mf_canonical;

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void put(mf_canonical *c, const char *text, size_t n)
{
    memcpy(c->out + c->n_out, text, n);
    c->n_out += n;
}

static bool is_tag(const char *at, const char *end)
{
    return end - at >= 2 && at[0] == '{' && (at[1] == '%' || at[1] == '{' || at[1] == '#');
}

/* The text up to the next tag, without what the tags on its two sides take away. */
static void put_text(mf_canonical *c)
{
    const char *start = c->at;
    while (c->at < c->end && !is_tag(c->at, c->end))
        c->at++;
    const char *stop = c->at;
    if (c->drops_blanks)
        while (start < stop && is_blank(*start))
            start++;
    else if (c->drops_newline && start < stop && *start == '\n') {
        start++;
        c->starts_line = true;
    }
    if (c->end - c->at >= 3 && c->at[2] == '-') {
        while (stop > start && is_blank(stop[-1]))
            stop--;
    } else if (c->end - c->at >= 2 && c->at[1] != '{') {
        const char *blank = stop;
        while (blank > start && (blank[-1] == ' ' || blank[-1] == '\t'))
            blank--;
        if (blank > start ? blank[-1] == '\n' : c->starts_line)
            stop = blank;
    }
    put(c, start, (size_t)(stop - start));
}

/* A string in a tag, at its quote. */
static void put_quoted(mf_canonical *c)
{
    char quote = *c->at++;
    put(c, "'", 1);
    while (c->at < c->end && *c->at != quote) {
        if (*c->at == '\\' && c->end - c->at >= 2)
            put(c, c->at++, 1);
        if (*c->at == '\n')
            put(c, "\\n", 2);
        else
            put(c, c->at, 1);
        c->at++;
    }
    put(c, "'", 1);
    if (c->at < c->end)
        c->at++;
}

/* A tag that is no comment, at its '{'. */
static void put_tag(mf_canonical *c)
{
    char close = c->at[1] == '%' ? '%' : '}';
    put(c, c->at, 2);
    c->at += 2;
    if (c->at < c->end && (*c->at == '-' || *c->at == '+'))
        c->at++;
    c->drops_blanks = false;
    while (c->at < c->end) {
        bool has_sign = (*c->at == '-' || *c->at == '+') && c->end - c->at >= 3;
        const char *at = c->at + has_sign;
        if (c->end - at >= 2 && at[0] == close && at[1] == '}') {
            c->drops_blanks = has_sign && *c->at == '-';
            put(c, at, 2);
            c->at = at + 2;
            return;
        }
        if (*c->at == '\'' || *c->at == '"') {
            put_quoted(c);
        } else {
            if (!is_blank(*c->at))
                put(c, c->at, 1);
            c->at++;
        }
    }
}

static void skip_comment(mf_canonical *c)
{
    c->at += 2;
    while (c->at < c->end && !(c->end - c->at >= 2 && c->at[0] == '#' && c->at[1] == '}'))
        c->at++;
    c->drops_blanks = c->at[-1] == '-';
    c->at = c->end - c->at >= 2 ? c->at + 2 : c->end;
}

void mf_chat_canonical(const char *text, size_t n_bytes, char *out)
{
    if (n_bytes > 0 && text[n_bytes - 1] == '\n')
        n_bytes--;
    mf_canonical c = {.at = text, .end = text + n_bytes, .out = out, .starts_line = true};
    while (c.at < c.end) {
        put_text(&c);
        if (c.at == c.end)
            break;
        c.drops_newline = c.at[1] != '{';
        c.starts_line = false;
        if (c.at[1] == '#')
            skip_comment(&c);
        else
            put_tag(&c);
    }
    for (size_t i = 0; i < c.n_out; i++) /* compared as a C string */
        if (out[i] == '\0')
            out[i] = ' ';
    out[c.n_out] = '\0';
}
