/* SPDX-License-Identifier: MIT */
/*
 * Harmony: a reply is messages, each with a header that names a channel and may name who is meant.
 *   <|channel|>analysis<|message|>...<|end|>                                    a thought
 *   <|start|>assistant<|channel|>commentary to=functions.f<|message|>{...}<|call|>   a call
 *   <|start|>assistant<|channel|>final<|message|>...<|return|>                  content
 * The recipient may also stand before the channel, and what else a header has is of no meaning.
 */
#include "text/reply/reply_scan.h"

#include <string.h>

#define HEADER_BYTES 1024u

static bool in_header(mf_reply_scan *s);
static bool in_text(mf_reply_scan *s);

static const char message_mark[] = "<|message|>", channel_mark[] = "<|channel|>";
static const char *const end_marks[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};

/* What begins a header; the rest of a header that the prompt has begun may begin with a blank. */
static mf_reply_found begins_header(const mf_reply_scan *s, size_t at)
{
    static const char *const marks[] = {"<|start|>", "<|channel|>", "to=", "<|message|>"};
    mf_reply_found best = MF_FOUND_NO;
    size_t end;
    for (size_t i = 0; i < sizeof marks / sizeof *marks && best != MF_FOUND_WHOLE; i++) {
        if (i == 2 && !s->is_fresh)
            continue; /* text that begins so is text */
        mf_reply_found found = mf_reply_match(s, at, marks[i], &end);
        best = found > best ? found : best;
    }
    return best;
}

bool mf_reply_in_harmony(mf_reply_scan *s)
{
    const size_t at = mf_reply_behind_blanks(s, s->at);
    size_t end;
    if (at == s->in.n_bytes && !s->is_over)
        return false;
    bool may_end = false;
    for (size_t i = 0; i < 3; i++) {
        mf_reply_found found = mf_reply_match(s, at, end_marks[i], &end);
        if (found == MF_FOUND_WHOLE) {
            s->at = end; /* one too many */
            return true;
        }
        may_end = may_end || found == MF_FOUND_PART;
    }
    mf_reply_found found = begins_header(s, at);
    if (found == MF_FOUND_PART || may_end)
        return false;
    if (at == s->in.n_bytes && !s->is_fresh) {
        s->at = at;
        return false;
    }
    s->call.body = MF_REPLY_CONTENT;
    s->state = found == MF_FOUND_WHOLE ? in_header : in_text;
    return mf_reply_left(s) != 0;
}

/* ----------------------------------------------------------------------------------- headers -- */

/* The word behind `mark` in a header: up to a blank or another mark. */
static size_t word_behind(const char *text, size_t n_bytes, const char *mark, const char **out)
{
    const size_t n_mark = strlen(mark);
    const char *found = memmem(text, n_bytes, mark, n_mark);
    size_t n = 0;
    if (found == NULL)
        return 0;
    *out = found + n_mark;
    const size_t left = n_bytes - (size_t)(*out - text);
    while (n < left && !mf_reply_is_blank((*out)[n]) && (*out)[n] != '<')
        n++;
    return n;
}

/* What a message's text is, by its header. */
static mf_reply_kind kind_of(mf_reply_scan *s, const char *text, size_t n_bytes)
{
    const char *recipient = text, *channel = text;
    const size_t n_recipient = word_behind(text, n_bytes, "to=", &recipient);
    const size_t n_channel = word_behind(text, n_bytes, channel_mark, &channel);
    const bool is_to_user = n_recipient == 9 && memcmp(recipient, "assistant", 9) == 0;
    if (n_recipient != 0 && !is_to_user && s->has_calls) {
        mf_reply_call_begin(s, s->at);
        if (mf_reply_call_take_name(s, recipient, n_recipient))
            return MF_REPLY_CALL;
        s->call.is_open = false;
    }
    return n_channel == 8 && memcmp(channel, "analysis", 8) == 0 ? MF_REPLY_THOUGHT
                                                                 : MF_REPLY_CONTENT;
}

static bool in_header(mf_reply_scan *s)
{
    size_t at, end = 0;
    mf_reply_found found = MF_FOUND_NO;
    for (at = s->at; at < s->in.n_bytes && at - s->at <= HEADER_BYTES; at++) {
        found = mf_reply_match(s, at, message_mark, &end);
        if (found != MF_FOUND_NO)
            break;
    }
    if (found == MF_FOUND_WHOLE) {
        s->call.body = kind_of(s, (const char *)s->in.data + s->at, at - s->at);
        s->at = s->call.begin = end;
        s->is_fresh = false;
        s->is_thought = s->call.body == MF_REPLY_THOUGHT;
        s->state = s->call.body == MF_REPLY_CALL ? mf_reply_in_json : in_text;
        return true;
    }
    if (!s->is_over && (found == MF_FOUND_PART || at - s->at <= HEADER_BYTES))
        return false;
    s->call.body = MF_REPLY_CONTENT;
    s->is_fresh = false;
    s->state = in_text; /* no header after all */
    mf_reply_give_text(s, MF_REPLY_CONTENT, (const char *)s->in.data + s->at, at - s->at);
    s->at = at;
    return true;
}

/* ------------------------------------------------------------------------------------- texts -- */

static bool in_text(mf_reply_scan *s)
{
    size_t at, end = 0;
    mf_reply_found found = MF_FOUND_NO;
    size_t which = 0;
    for (at = s->at; at < s->in.n_bytes; at++) {
        for (which = 0; which < 4 && found == MF_FOUND_NO && s->in.data[at] == '<'; which++)
            found = mf_reply_match(s, at, end_marks[which], &end);
        if (found != MF_FOUND_NO)
            break;
    }
    mf_reply_give_text(s, s->call.body, (const char *)s->in.data + s->at, at - s->at);
    s->at = at;
    if (found != MF_FOUND_WHOLE)
        return false;
    /* <|start|> begins the next header itself */
    s->at = which == 4 ? at : end;
    s->is_thought = false;
    s->state = mf_reply_in_harmony;
    return true;
}
