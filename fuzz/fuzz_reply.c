/* SPDX-License-Identifier: MIT */
/*
 * What a model might say, in each syntax: never a crash, events in their order, finished arguments
 * always a JSON object, text always UTF-8, and the same events whatever pieces the text comes in.
 * The first byte is the syntax, the second has options; the rest is the text.
 */
#include "text/reply/reply_syntax.h"
#include "text/utf8.h"

#include "format/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static const char tools[] =
    "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": "
    "\"string\"}, \"b\": {\"type\": [\"integer\", \"object\"]}, \"c\": {\"anyOf\": [{\"type\": "
    "\"string\"}, {\"type\": \"null\"}]}}}}}, {\"name\": \"g\"}]";

/* All that came out: kind and text, texts of one kind together. */
typedef struct heard {
    char *text;
    size_t n, capacity, arguments_at;
    mf_reply_kind last;
    bool is_in_call;
} heard;

static void put(heard *h, const void *bytes, size_t n)
{
    if (h->capacity - h->n < n) {
        h->capacity = 2 * (h->n + n) + 256;
        h->text = realloc(h->text, h->capacity);
        if (h->text == NULL)
            abort();
    }
    memcpy(h->text + h->n, bytes, n);
    h->n += n;
}

static void check_arguments(const heard *h)
{
    const mf_allocator a = mf_allocator_default();
    mf_json json = {0};
    if (mf_json_parse_exact(&a, "arguments", h->text + h->arguments_at, h->n - h->arguments_at,
                            &json, NULL) != MF_OK ||
        !yyjson_is_obj(json.root))
        abort();
    mf_json_free(&json);
}

static void hear(heard *h, const mf_reply_event *e)
{
    const unsigned char kind = (unsigned char)e->kind;
    const bool is_of_call = e->kind == MF_REPLY_CALL_ARGUMENTS || e->kind == MF_REPLY_CALL_END ||
                            e->kind == MF_REPLY_CALL_BROKEN;
    if (h->is_in_call != is_of_call || e->text[e->n_bytes] != '\0' ||
        !mf_utf8_is_valid((const unsigned char *)e->text, e->n_bytes))
        abort();
    if (e->kind == MF_REPLY_CALL_END)
        check_arguments(h);
    h->is_in_call = e->kind == MF_REPLY_CALL || e->kind == MF_REPLY_CALL_ARGUMENTS;
    if (e->kind != h->last || e->kind == MF_REPLY_CALL)
        put(h, &kind, 1);
    if (e->kind == MF_REPLY_CALL) {
        if (e->name[0] == '\0' || e->id[0] == '\0')
            abort();
        put(h, e->name, strlen(e->name) + 1);
        put(h, e->id, strlen(e->id) + 1);
    }
    if (e->kind == MF_REPLY_CALL_ARGUMENTS && h->last != e->kind)
        h->arguments_at = h->n;
    put(h, e->text, e->n_bytes);
    h->last = e->kind;
}

static void take_events(mf_reply *reply, heard *h)
{
    mf_reply_event event;
    while (mf_reply_next(reply, &event))
        hear(h, &event);
}

/* In pieces of n_piece bytes. */
static void say(const mf_reply_syntax *syntax, unsigned flags, const uint8_t *text, size_t n_bytes,
                size_t n_piece, heard *h)
{
    mf_reply_options options;
    mf_reply *reply = NULL;
    mf_reply_options_default(&options);
    options.tools = flags & 1 ? NULL : tools;
    options.has_calls = (flags & 14) != 14;
    options.whole_calls = (flags & 2) != 0;
    options.prompt = flags & 4 ? "x<think>\n" : NULL;
    options.n_prompt_bytes = flags & 4 ? 9 : 0;
    if (mf_reply_create(syntax, &options, &reply, NULL) != MF_OK)
        abort();
    for (size_t at = 0, n; at < n_bytes; at += n) {
        n = n_bytes - at < n_piece ? n_bytes - at : n_piece;
        char *piece = malloc(n); /* an exact copy, so that a look past the end is seen */
        if (piece == NULL)
            abort();
        memcpy(piece, text + at, n);
        if (mf_reply_push(reply, piece, n, 0, NULL) != MF_OK)
            abort();
        free(piece);
        take_events(reply, h);
    }
    if (mf_reply_finish(reply, (flags & 8) != 0, NULL) != MF_OK)
        abort();
    take_events(reply, h);
    if (h->is_in_call)
        abort();
    mf_reply_free(&reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const size_t pieces[] = {SIZE_MAX, 1, 3, 17};
    heard all[4] = {{0}};
    mf_reply_syntax *syntax = NULL;
    size_t n_rows;
    if (n_bytes < 2)
        return 0;
    const mf_reply_row *rows = mf_reply_rows(&n_rows);
    if (mf_reply_syntax_named(rows[data[0] % n_rows].name, NULL, &syntax, NULL) != MF_OK)
        abort();
    for (size_t i = 0; i < 4; i++) {
        say(syntax, data[1], data + 2, n_bytes - 2, pieces[i], &all[i]);
        if (all[i].n != all[0].n ||
            (all[0].n != 0 && memcmp(all[i].text, all[0].text, all[0].n) != 0))
            abort();
    }
    for (size_t i = 0; i < 4; i++)
        free(all[i].text);
    mf_reply_syntax_free(&syntax);
    return 0;
}
