/* SPDX-License-Identifier: MIT */
/* The public functions of replies: they check the arguments and call. */
#include "base/sized.h"
#include "text/reply/reply_scan.h"

#include <stdio.h>
#include <string.h>

void mf_reply_options_init(mf_reply_options *options, size_t struct_bytes)
{
    const mf_reply_options defaults = {.has_calls = 1};
    mf_sized_init(options, struct_bytes, &defaults, sizeof defaults);
}

mf_status mf_reply_syntax_named(const char *name, const mf_allocator *allocator,
                                mf_reply_syntax **out, mf_error *error)
{
    mf_allocator a;
    if (name == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_reply_syntax_named: a NULL argument");
    MF_TRY(mf_allocator_take(allocator, &a, error));
    const mf_reply_row *row = mf_reply_row_find(name);
    if (row != NULL)
        return mf_reply_syntax_make(&a, row, out, error);
    char list[512] = "";
    size_t n = 0;
    for (const char *const *known = mf_reply_syntax_names(); *known != NULL; known++)
        if (n < sizeof list)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n == 0 ? "" : ", ", *known);
    return mf_fail(error, MF_ERR_NOT_FOUND, "no syntax of replies '%s', expected one of %s", name,
                   list);
}

/* ----------------------------------------------------------------------------------- a reply -- */

#define N_BUFFERS 9

static void all_buffers(mf_reply_scan *s, mf_buffer *out[N_BUFFERS])
{
    mf_buffer *const buffers[N_BUFFERS] = {&s->in,       &s->call.name,    &s->call.id,
                                           &s->call.key, &s->call.keys,    &s->call.value,
                                           &s->scratch,  &s->events.texts, &s->events.items};
    memcpy(out, buffers, sizeof buffers);
}

static void init_scan(mf_reply_scan *s, const mf_reply_syntax *syntax, const mf_reply_options *o)
{
    mf_buffer *buffers[N_BUFFERS];
    all_buffers(s, buffers);
    for (size_t i = 0; i < N_BUFFERS; i++)
        mf_buffer_init(buffers[i], &syntax->allocator);
    s->syntax = syntax;
    s->allocator = syntax->allocator;
    s->has_calls = o->has_calls != 0;
    s->has_whole_calls = o->whole_calls != 0;
    s->id_seed = o->id_seed;
    s->n_earlier_calls = o->n_earlier_calls;
    s->state = syntax->row.reader == MF_READ_HARMONY ? mf_reply_in_harmony
               : syntax->row.everybody != NULL       ? mf_reply_begin_recipient
                                                     : mf_reply_in_content;
    s->is_fresh = true;
}

/* The last place where `mark` stands in the text; NULL: none. */
static const char *find_last(const char *text, size_t n_bytes, const char *mark)
{
    const size_t n = strlen(mark);
    for (size_t at = n_bytes >= n ? n_bytes - n + 1 : 0; at-- > 0;)
        if (memcmp(text + at, mark, n) == 0)
            return text + at;
    return NULL;
}

/* Reads what of the answer stands in the prompt already. */
static void read_prompt(mf_reply_scan *s, const mf_reply_options *o)
{
    const char *text = o->prompt, *end = o->prompt + o->n_prompt_bytes;
    const char *opening = s->syntax->opening, *thought = s->syntax->thought_mark;
    const char *found = opening == NULL ? NULL : find_last(text, o->n_prompt_bytes, opening);
    if (found != NULL)
        text = found + strlen(opening);
    else if (thought != NULL && (found = find_last(text, o->n_prompt_bytes, thought)) != NULL)
        text = found;
    else
        return;
    const char *result = s->syntax->row.result_close;
    found = result == NULL ? NULL : find_last(text, (size_t)(end - text), result);
    if (found != NULL)
        text = found + strlen(result); /* the answer goes on behind the result of its call */
    while (text < end && mf_reply_is_blank(*text))
        text++; /* the opening's own, and nothing that the model said */
    mf_reply_scan_push(s, text, (size_t)(end - text));
    while (s->status == MF_OK && s->events.n_taken < s->events.n_visible)
        s->events.n_taken = s->events.n_visible;
}

mf_status mf_reply_create(const mf_reply_syntax *syntax, const mf_reply_options *options,
                          mf_reply **out, mf_error *error)
{
    mf_reply_options o;
    mf_reply_options_default(&o);
    if (syntax == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_reply_create: a NULL argument");
    if (options != NULL)
        MF_TRY(mf_sized_get(&o, sizeof o, options, "mf_reply_options", error));
    mf_reply *reply = mf_alloc_zeroed(&syntax->allocator, sizeof *reply);
    if (reply == NULL)
        return mf_fail_memory(error, sizeof *reply, "a reply");
    init_scan(&reply->scan, syntax, &o);
    mf_status status = mf_reply_tools_read(&syntax->allocator, o.tools, &reply->scan.tools, error);
    if (status == MF_OK) /* a place, even where nothing is said */
        status = mf_buffer_reserve(&reply->scan.in, 1, "a reply", error);
    if (status == MF_OK && o.prompt != NULL)
        read_prompt(&reply->scan, &o);
    if (status == MF_OK && reply->scan.status != MF_OK)
        status = mf_fail_memory(error, o.n_prompt_bytes, "a reply");
    if (status != MF_OK) {
        mf_reply_free(&reply);
        return status;
    }
    *out = reply;
    return MF_OK;
}

void mf_reply_free(mf_reply **reply)
{
    if (reply == NULL || *reply == NULL)
        return;
    mf_reply_scan *s = &(*reply)->scan;
    const mf_allocator a = s->allocator;
    mf_buffer *buffers[N_BUFFERS];
    all_buffers(s, buffers);
    for (size_t i = 0; i < N_BUFFERS; i++)
        mf_buffer_free(buffers[i]);
    mf_reply_tools_free(&s->tools);
    mf_free(&a, *reply, sizeof **reply);
    *reply = NULL;
}

/* Whether a special token's text is part of what the reader looks for. */
static bool is_mark(const mf_reply_syntax *syntax, const char *bytes, size_t n_bytes)
{
    const mf_reply_row *row = &syntax->row;
    const char *const texts[] = {row->section_open,
                                 row->section_also,
                                 row->section_close,
                                 row->call_open,
                                 row->name_close,
                                 row->call_close,
                                 row->key_open,
                                 row->key_close,
                                 row->value_close,
                                 row->number_open,
                                 row->id_open,
                                 row->key_close_string,
                                 row->thought_open,
                                 row->thought_close,
                                 row->content_open,
                                 row->content_close,
                                 row->section_close_also,
                                 row->type_close,
                                 row->quote,
                                 row->json_open,
                                 row->json_close,
                                 row->dropped[0],
                                 row->dropped[1],
                                 row->drops_turns ? NULL : row->dropped[2]};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i] != NULL && n_bytes != 0 &&
            memmem(texts[i], strlen(texts[i]), bytes, n_bytes) != NULL)
            return true;
    return false;
}

mf_status mf_reply_push(mf_reply *reply, const char *bytes, size_t n_bytes, int is_special,
                        mf_error *error)
{
    if (reply == NULL || (bytes == NULL && n_bytes != 0))
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_reply_push: a NULL argument");
    mf_reply_scan *s = &reply->scan;
    if (s->is_over)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_reply_push: the reply is over");
    if (is_special != 0 && !is_mark(s->syntax, bytes, n_bytes))
        return MF_OK;
    if (n_bytes != 0)
        mf_reply_scan_push(s, bytes, n_bytes);
    return s->status == MF_OK ? MF_OK : mf_fail_memory(error, n_bytes, "a reply");
}

mf_status mf_reply_finish(mf_reply *reply, int was_cut, mf_error *error)
{
    if (reply == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_reply_finish: a NULL argument");
    mf_reply_scan *s = &reply->scan;
    if (s->is_over)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_reply_finish: the reply is over");
    mf_reply_scan_finish(s, was_cut != 0);
    return s->status == MF_OK ? MF_OK : mf_fail_memory(error, 0, "a reply");
}

mf_reply_kind mf_reply_place(const mf_reply *reply)
{
    const mf_reply_scan *s = &reply->scan;
    return s->is_thought ? MF_REPLY_THOUGHT : s->call.is_open ? MF_REPLY_CALL : MF_REPLY_CONTENT;
}
