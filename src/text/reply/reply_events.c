/* SPDX-License-Identifier: MIT */
/* What comes out of a reply: events that wait, ids of calls. */
#include "text/reply/reply_scan.h"

#include "base/sized.h"

#include <stdio.h>
#include <string.h>

static mf_reply_item *items(const mf_reply_events *e)
{
    return (mf_reply_item *)(void *)e->items.data;
}

static size_t n_items(const mf_reply_events *e)
{
    return e->items.n_bytes / sizeof(mf_reply_item);
}

static void fail_memory(mf_reply_scan *s)
{
    s->status = MF_ERR_NO_MEMORY;
}

/* Text with a NUL; returns where it stands. */
static size_t put_text(mf_reply_scan *s, const void *text, size_t n_bytes)
{
    mf_buffer *texts = &s->events.texts;
    size_t at = texts->n_bytes;
    if (mf_buffer_append(texts, text, n_bytes, "a reply", NULL) != MF_OK ||
        mf_buffer_append(texts, "", 1, "a reply", NULL) != MF_OK)
        fail_memory(s);
    return at;
}

static bool is_hidden(const mf_reply_scan *s)
{
    const mf_reply_call *c = &s->call;
    return c->is_open && (!c->is_given || c->must_close || s->has_whole_calls) && !c->is_whole;
}

static void put_item(mf_reply_scan *s, const mf_reply_item *item)
{
    if (s->status == MF_OK &&
        mf_buffer_append(&s->events.items, item, sizeof *item, "a reply", NULL) != MF_OK)
        fail_memory(s);
    if (s->status == MF_OK && !is_hidden(s))
        s->events.n_visible = n_items(&s->events);
}

/* Adds to the last event, if it is of this kind and was not taken. */
static bool extend(mf_reply_scan *s, mf_reply_kind kind, const char *text, size_t n_bytes)
{
    mf_reply_events *e = &s->events;
    size_t n = n_items(e);
    if (n == 0 || n <= e->n_taken || items(e)[n - 1].kind != kind)
        return false;
    if (items(e)[n - 1].text_at + items(e)[n - 1].n_bytes + 1 != e->texts.n_bytes)
        return false;   /* a call that was taken back stood between */
    e->texts.n_bytes--; /* the NUL */
    put_text(s, text, n_bytes);
    items(e)[n - 1].n_bytes += n_bytes;
    return true;
}

void mf_reply_give_text(mf_reply_scan *s, mf_reply_kind kind, const char *text, size_t n_bytes)
{
    mf_reply_item item = {.kind = kind, .n_bytes = n_bytes};
    if (kind == MF_REPLY_CALL_ARGUMENTS)
        item.call = s->n_calls - 1;
    if (kind == MF_REPLY_CONTENT) {
        for (size_t i = 0; i < n_bytes && s->is_fresh; i++)
            s->is_fresh = mf_reply_is_blank(text[i]);
        s->is_after_call = false;
    }
    if (n_bytes == 0 || s->status != MF_OK || extend(s, kind, text, n_bytes))
        return;
    item.text_at = put_text(s, text, n_bytes);
    put_item(s, &item);
}

/* --------------------------------------------------------------------------------------- ids -- */

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* Letters and digits by the seed and the call's number. */
static void make_letters(const mf_reply_scan *s, char *out, size_t n)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint64_t state = mix(s->id_seed) ^ mix(mix(s->n_calls));
    for (size_t i = 0; i < n; i++) {
        state = mix(state);
        out[i] = letters[state % (sizeof letters - 1)];
    }
}

/* What the model wrote, or one in the syntax's manner. */
static void take_id(mf_reply_scan *s)
{
    mf_reply_call *c = &s->call;
    const mf_reply_row *row = &s->syntax->row;
    char made[MF_REPLY_NAME_BYTES + 64];
    int n = 0;
    if (c->id.n_bytes != 0)
        return;
    if (row->number_open != NULL && row->name_prefix != NULL) {
        n = snprintf(made, sizeof made, "%s%.*s%s%u", row->name_prefix, (int)c->name.n_bytes,
                     (const char *)c->name.data, row->number_open, s->n_earlier_calls + s->n_calls);
    } else if (row->has_short_ids) {
        make_letters(s, made, 9);
        n = 9;
    } else {
        static const char prefix[5] = {'c', 'a', 'l', 'l', '_'};
        memcpy(made, prefix, sizeof prefix);
        make_letters(s, made + sizeof prefix, 24);
        n = (int)sizeof prefix + 24;
    }
    if (mf_buffer_append(&c->id, made, (size_t)n, "a reply", NULL) != MF_OK)
        fail_memory(s);
}

void mf_reply_give_call(mf_reply_scan *s)
{
    mf_reply_call *c = &s->call;
    mf_reply_item item = {.kind = MF_REPLY_CALL, .call = s->n_calls};
    take_id(s);
    item.id_at = put_text(s, c->id.data, c->id.n_bytes);
    item.name_at = put_text(s, c->name.data, c->name.n_bytes);
    item.text_at = put_text(s, "", 0);
    s->n_calls++;
    c->is_given = true;
    s->is_fresh = false;
    put_item(s, &item);
}

void mf_reply_give_end(mf_reply_scan *s, mf_reply_kind kind, const char *text, size_t n_bytes)
{
    mf_reply_item item = {.kind = kind, .call = s->n_calls - 1, .n_bytes = n_bytes};
    item.text_at = put_text(s, text, n_bytes);
    put_item(s, &item);
}

void mf_reply_take_back(mf_reply_scan *s)
{
    s->events.items.n_bytes = s->events.n_visible * sizeof(mf_reply_item);
    if (s->call.is_given)
        s->n_calls--;
}

void mf_reply_tidy(mf_reply_scan *s)
{
    mf_reply_events *e = &s->events;
    size_t keep = s->call.is_open ? s->call.begin : s->at;
    if (keep != 0) {
        memmove(s->in.data, s->in.data + keep, s->in.n_bytes - keep);
        s->in.n_bytes -= keep;
        s->at -= keep;
        s->call.begin = 0;
    }
    if (e->n_taken == n_items(e)) {
        e->items.n_bytes = e->texts.n_bytes = 0;
        e->n_taken = e->n_visible = 0;
    }
}

int mf_reply_next_sized(mf_reply *reply, mf_reply_event *event, size_t struct_bytes)
{
    mf_reply_events *e = &reply->scan.events;
    if (e->n_taken == e->n_visible || reply->scan.status != MF_OK)
        return 0;
    const mf_reply_item *item = &items(e)[e->n_taken++];
    const char *texts = (const char *)e->texts.data;
    const bool is_call = item->kind == MF_REPLY_CALL;
    const mf_reply_event out = {.kind = item->kind,
                                .call = item->call,
                                .text = texts + item->text_at,
                                .n_bytes = item->n_bytes,
                                .id = is_call ? texts + item->id_at : NULL,
                                .name = is_call ? texts + item->name_at : NULL};
    mf_sized_put(event, struct_bytes, &out, sizeof out);
    return 1;
}
