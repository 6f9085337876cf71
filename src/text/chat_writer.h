/* SPDX-License-Identifier: MIT */
/* What the files that render chat templates share: text that is written as far as it fits, and the
 * families' renderers. */
#ifndef MF_TEXT_CHAT_WRITER_H
#define MF_TEXT_CHAT_WRITER_H

#include "text/chat.h"

#include <string.h>

/* A stretch of a message's content. */
typedef struct mf_span {
    const char *text;
    size_t n_bytes;
} mf_span;

typedef struct mf_writer {
    char *text;
    size_t capacity, n_bytes;   /* n_bytes counts what does not fit too */
    mf_chat_contents *contents; /* NULL: not wanted */
} mf_writer;

static inline void mf_write_span(mf_writer *w, mf_span span)
{
    if (w->n_bytes < w->capacity) {
        size_t room = w->capacity - w->n_bytes;
        memcpy(w->text + w->n_bytes, span.text, span.n_bytes < room ? span.n_bytes : room);
    }
    w->n_bytes += span.n_bytes;
}

static inline void mf_write_string(mf_writer *w, const char *text)
{
    mf_write_span(w, (mf_span){text, strlen(text)});
}

/* A message's content, noted if it is a user's. */
static inline void mf_write_content(mf_writer *w, mf_chat_role role, mf_span content)
{
    size_t start = w->n_bytes;
    mf_write_span(w, content);
    if (w->contents != NULL && role == MF_ROLE_USER)
        w->contents->ranges[w->contents->n_ranges++] = (mf_text_range){start, w->n_bytes};
}

/* Where `word` first (or last) stands in a span; NULL if nowhere. */
const char *mf_span_find(mf_span span, const char *word, bool last);

void mf_chat_render_deepseek(mf_writer *w, const mf_chat_style *style, const mf_chat_params *chat);
void mf_chat_render_deepseek_v2(mf_writer *w, const mf_chat_style *style,
                                const mf_chat_params *chat);
void mf_chat_render_cogito(mf_writer *w, const mf_chat_style *style, const mf_chat_params *chat);
void mf_chat_render_kimi(mf_writer *w, const mf_chat_style *style, const mf_chat_params *chat);

#endif
