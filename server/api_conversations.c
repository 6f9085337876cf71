/* SPDX-License-Identifier: MIT */
/*
 * OpenAI's conversations: items under one id, which responses go on from and are added to. They
 * are kept as responses are: the latest, in memory, each its key's alone.
 */
#include "api.h"
#include "conversation_items.h"

#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* As published: at once, and of a list that does not say how long it may be. */
#define MAX_ITEMS 20
#define MAX_LISTED 100
#define MAX_METADATA 16

static bool no_memory(mf_srv_refusal *r)
{
    return mf_srv_refuse(r, 503, "out of memory for the conversation");
}

static bool refuse_unknown(const char *id, mf_srv_refusal *r)
{
    return mf_srv_refuse(r, 404, "Conversation with id '%.60s' not found.", id);
}

/* What is below a conversation's path. */
typedef struct place {
    char id[MF_SRV_ID_BYTES];
    bool has_items;   /* /items */
    const char *item; /* /items/ITEM; NULL: all */
} place;

static bool find_place(const mf_srv_request *request, place *out, mf_srv_refusal *r)
{
    static const char items[] = "items";
    const char *path = request->path, *rest = strchr(path, '/');
    const size_t n = rest ? (size_t)(rest - path) : strlen(path), n_items = sizeof items - 1;
    *out = (place){0};
    if (n == 0 || n >= sizeof out->id)
        return refuse_unknown(path, r);
    memcpy(out->id, path, n);
    if (!rest || rest[1] == '\0')
        return true;
    rest++;
    if (strncmp(rest, items, n_items) != 0 || (rest[n_items] != '\0' && rest[n_items] != '/'))
        return mf_srv_refuse(r, 404, "there is nothing at /v1/conversations/%.100s", path);
    out->has_items = true;
    out->item = rest[n_items] == '/' && rest[n_items + 1] != '\0' ? rest + n_items + 1 : NULL;
    return true;
}

/* The items of a conversation, parsed; NULL: the refusal says why. */
static yyjson_doc *open_items(const mf_srv_request *request, const char *id, mf_srv_refusal *r)
{
    mf_srv_bytes text = {0};
    yyjson_doc *doc = NULL;
    mf_srv_puts(&text, "[");
    if (!mf_srv_responses_find(request->server->model.conversations, id, request->key, &text, NULL,
                               NULL)) {
        refuse_unknown(id, r);
    } else {
        mf_srv_puts(&text, "]");
        doc = text.has_failed ? NULL : yyjson_read(text.data, text.n_bytes, 0);
        if (!doc)
            no_memory(r);
    }
    mf_srv_bytes_free(&text);
    return doc;
}

static bool is_called(yyjson_val *item, const char *id)
{
    return yyjson_equals_str(yyjson_obj_get(item, "id"), id);
}

/* --------------------------------------------------------------------------------- in a body -- */

/* Texts by name, a few. */
static bool check_metadata(yyjson_val *v, mf_srv_refusal *r)
{
    size_t i, n;
    yyjson_val *key, *value;
    if (!v) /* the loop would step from it */
        return true;
    if (!yyjson_is_obj(v) || yyjson_obj_size(v) > MAX_METADATA)
        return mf_srv_refuse_field(r, "metadata", "expected an object of at most %d texts",
                                   MAX_METADATA);
    yyjson_obj_foreach(v, i, n, key, value)
    {
        if (!yyjson_is_str(value))
            return mf_srv_refuse_field(r, "metadata", "expected an object of texts");
    }
    return true;
}

/* Items of a request, which a response could have been asked for with. */
static bool read_items(const mf_srv_request *request, mf_srv_bytes *out, mf_srv_refusal *r)
{
    yyjson_val *items = mf_srv_field_of(request->json, "items"), *item;
    mf_srv_conversation c = {0};
    size_t i, n;
    if (!items)
        return true;
    if (!yyjson_is_arr(items) || yyjson_arr_size(items) > MAX_ITEMS)
        return mf_srv_refuse_field(r, "items", "expected an array of at most %d items", MAX_ITEMS);
    const bool is_good = yyjson_arr_size(items) == 0 || mf_srv_read_items(items, "items", &c, r);
    mf_srv_conversation_free(&c);
    if (!is_good)
        return false;
    yyjson_arr_foreach(items, i, n, item)
    {
        mf_srv_puts(out, i > 0 ? "," : "");
        if (!mf_srv_put_item(item, out))
            return no_memory(r);
    }
    return true;
}

static bool put_conversation(const char *id, int64_t created, yyjson_val *metadata,
                             mf_srv_bytes *out)
{
    mf_srv_puts(out, "{\"id\":");
    mf_srv_puts_json(out, id);
    mf_srv_printf(out,
                  ",\"object\":\"conversation\",\"created_at\":%" PRId64 ",\"metadata\":", created);
    if (!metadata)
        mf_srv_puts(out, "{}");
    else if (!mf_srv_put_value(out, metadata))
        return false;
    mf_srv_puts(out, "}");
    return !out->has_failed;
}

bool mf_srv_api_conversation_new(mf_srv_request *request, mf_srv_refusal *r)
{
    static const mf_srv_field names[] = {
        {"items", MF_SRV_FIELD_USED}, {"metadata", MF_SRV_FIELD_USED}, {NULL, MF_SRV_FIELD_USED}};
    static const mf_srv_field *const tables[] = {names, NULL};
    yyjson_val *metadata = mf_srv_field_of(request->json, "metadata");
    char id[MF_SRV_ID_BYTES];
    mf_srv_stored kept = {0};
    mf_srv_make_id(id, "conv_");
    bool is_good = mf_srv_check_fields(request->json, "", tables, r) &&
                   check_metadata(metadata, r) && read_items(request, &kept.items, r);
    if (is_good && !put_conversation(id, (int64_t)time(NULL), metadata, &kept.response))
        is_good = no_memory(r);
    if (is_good)
        mf_srv_put(&request->answer, kept.response.data, kept.response.n_bytes);
    if (is_good)
        mf_srv_responses_put(request->server->model.conversations, id, request->key, &kept);
    mf_srv_bytes_free(&kept.items);
    mf_srv_bytes_free(&kept.response);
    return is_good;
}

/* ------------------------------------------------------------------------------------- lists -- */

/* Of n items from i on, up to limit of them, forwards or backwards. */
typedef struct page {
    bool is_rising;
    size_t limit;
    const char *after; /* the item behind which it begins; NULL: at the beginning */
} page;

static bool get_page(const mf_srv_request *request, page *out, mf_srv_refusal *r)
{
    const char *limit = mf_srv_argument(request, "limit");
    const char *order = mf_srv_argument(request, "order");
    *out = (page){.limit = MAX_ITEMS, .after = mf_srv_argument(request, "after")};
    out->is_rising = order && strcmp(order, "asc") == 0;
    if (order && !out->is_rising && strcmp(order, "desc") != 0)
        return mf_srv_refuse_field(r, "order", "expected asc or desc");
    if (!limit)
        return true;
    const size_t n = strlen(limit);
    out->limit = n > 0 && n < 4 && strspn(limit, "0123456789") == n ? strtoul(limit, NULL, 10) : 0;
    return (out->limit > 0 && out->limit <= MAX_LISTED) ||
           mf_srv_refuse_field(r, "limit", "expected a whole number from 1 to %d", MAX_LISTED);
}

/* The items [n] of the array in the page's order. */
static bool put_list(yyjson_val *const *items, size_t n, bool has_more, mf_srv_bytes *out)
{
    mf_srv_puts(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < n; i++) {
        mf_srv_puts(out, i > 0 ? "," : "");
        if (!mf_srv_put_value(out, items[i]))
            return false;
    }
    mf_srv_puts(out, "],\"first_id\":");
    if (n == 0 || !mf_srv_put_value(out, yyjson_obj_get(items[0], "id")))
        mf_srv_puts(out, "null");
    mf_srv_puts(out, ",\"last_id\":");
    if (n == 0 || !mf_srv_put_value(out, yyjson_obj_get(items[n - 1], "id")))
        mf_srv_puts(out, "null");
    mf_srv_printf(out, ",\"has_more\":%s}", has_more ? "true" : "false");
    return !out->has_failed;
}

/* The items in the page's order, from malloc; NULL: no memory. */
static yyjson_val **in_order(yyjson_val *array, bool is_rising)
{
    size_t i, n = yyjson_arr_size(array);
    yyjson_val *item, **all = malloc((n + 1) * sizeof(yyjson_val *));
    if (!all)
        return NULL;
    yyjson_arr_foreach(array, i, n, item)
    {
        all[is_rising ? i : n - 1 - i] = item;
    }
    return all;
}

static bool list_items(mf_srv_request *request, yyjson_val *array, mf_srv_refusal *r)
{
    const size_t n = yyjson_arr_size(array);
    size_t begin = 0;
    page p;
    if (!get_page(request, &p, r))
        return false;
    yyjson_val **all = in_order(array, p.is_rising);
    if (!all)
        return no_memory(r);
    while (p.after && begin < n && !is_called(all[begin], p.after))
        begin++;
    bool is_good = !p.after || begin < n;
    begin += p.after != NULL;
    if (!is_good) {
        mf_srv_refuse_field(r, "after", "Item with id '%.60s' not found.", p.after);
    } else {
        const size_t n_left = n - begin, n_listed = n_left < p.limit ? n_left : p.limit;
        is_good =
            put_list(all + begin, n_listed, n_listed < n_left, &request->answer) || no_memory(r);
    }
    free(all);
    return is_good;
}

static bool put_one(mf_srv_request *request, yyjson_val *array, const char *id, mf_srv_refusal *r)
{
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(array, i, n, item)
    {
        if (is_called(item, id))
            return mf_srv_put_value(&request->answer, item) || no_memory(r);
    }
    return mf_srv_refuse(r, 404, "Item with id '%.60s' not found.", id);
}

bool mf_srv_api_conversation(mf_srv_request *request, mf_srv_refusal *r)
{
    place at;
    if (!find_place(request, &at, r))
        return false;
    if (!at.has_items)
        return mf_srv_responses_find(request->server->model.conversations, at.id, request->key,
                                     NULL, &request->answer, NULL) ||
               refuse_unknown(at.id, r);
    yyjson_doc *doc = open_items(request, at.id, r);
    if (!doc)
        return false;
    yyjson_val *array = yyjson_doc_get_root(doc);
    const bool is_good =
        at.item ? put_one(request, array, at.item, r) : list_items(request, array, r);
    yyjson_doc_free(doc);
    return is_good;
}

/* ---------------------------------------------------------------------------------- changing -- */

static bool add_items(mf_srv_request *request, const char *id, mf_srv_refusal *r)
{
    static const mf_srv_field names[] = {{"items", MF_SRV_FIELD_USED}, {NULL, MF_SRV_FIELD_USED}};
    static const mf_srv_field *const tables[] = {names, NULL};
    mf_srv_bytes items = {0};
    yyjson_val *list[MAX_ITEMS], *item;
    yyjson_doc *doc = NULL;
    size_t i, n;
    bool is_good = mf_srv_check_fields(request->json, "", tables, r);
    if (is_good && !mf_srv_field_of(request->json, "items"))
        is_good = mf_srv_refuse_field(r, "items", "is missing");
    is_good = is_good && read_items(request, &items, r);
    if (is_good &&
        !mf_srv_responses_add(request->server->model.conversations, id, request->key, &items))
        is_good = refuse_unknown(id, r);
    if (is_good) { /* what was added, with its ids */
        mf_srv_bytes array = {0};
        mf_srv_printf(&array, "[%s]", items.data ? items.data : "");
        doc = array.has_failed ? NULL : yyjson_read(array.data, array.n_bytes, 0);
        mf_srv_bytes_free(&array);
        yyjson_arr_foreach(yyjson_doc_get_root(doc), i, n, item)
        {
            list[i] = item;
        }
        is_good = (doc && put_list(list, yyjson_arr_size(yyjson_doc_get_root(doc)), false,
                                   &request->answer)) ||
                  no_memory(r);
    }
    yyjson_doc_free(doc);
    mf_srv_bytes_free(&items);
    return is_good;
}

/* Other metadata. */
static bool change(mf_srv_request *request, const char *id, mf_srv_refusal *r)
{
    static const mf_srv_field names[] = {{"metadata", MF_SRV_FIELD_USED},
                                         {NULL, MF_SRV_FIELD_USED}};
    static const mf_srv_field *const tables[] = {names, NULL};
    mf_srv_responses *all = request->server->model.conversations;
    yyjson_val *metadata = mf_srv_field_of(request->json, "metadata");
    mf_srv_bytes before = {0}, now = {0};
    if (!mf_srv_check_fields(request->json, "", tables, r) || !check_metadata(metadata, r))
        return false;
    if (!mf_srv_responses_find(all, id, request->key, NULL, &before, NULL))
        return refuse_unknown(id, r);
    yyjson_doc *doc = yyjson_read(before.data, before.n_bytes, 0);
    const int64_t created = yyjson_get_sint(yyjson_obj_get(yyjson_doc_get_root(doc), "created_at"));
    bool is_good = (doc && put_conversation(id, created, metadata, &now)) || no_memory(r);
    if (is_good) {
        mf_srv_put(&request->answer, now.data, now.n_bytes);
        is_good =
            mf_srv_responses_change(all, id, request->key, NULL, &now) || refuse_unknown(id, r);
    }
    yyjson_doc_free(doc);
    mf_srv_bytes_free(&before);
    mf_srv_bytes_free(&now);
    return is_good;
}

bool mf_srv_api_conversation_change(mf_srv_request *request, mf_srv_refusal *r)
{
    place at;
    if (!find_place(request, &at, r))
        return false;
    if (at.item)
        return mf_srv_refuse(r, 404, "there is nothing at /v1/conversations/%.100s", request->path);
    return at.has_items ? add_items(request, at.id, r) : change(request, at.id, r);
}

static bool drop_item(mf_srv_request *request, const place *at, mf_srv_refusal *r)
{
    mf_srv_bytes items = {0};
    size_t i, n, n_left = 0;
    yyjson_val *item;
    yyjson_doc *doc = open_items(request, at->id, r);
    bool is_good = doc != NULL;
    yyjson_arr_foreach(yyjson_doc_get_root(doc), i, n, item)
    {
        if (is_called(item, at->item))
            continue;
        mf_srv_puts(&items, n_left++ > 0 ? "," : "");
        is_good = is_good && (mf_srv_put_value(&items, item) || no_memory(r));
    }
    if (is_good && n_left == n)
        is_good = mf_srv_refuse(r, 404, "Item with id '%.60s' not found.", at->item);
    yyjson_doc_free(doc);
    if (is_good)
        is_good = mf_srv_responses_change(request->server->model.conversations, at->id,
                                          request->key, &items, NULL) ||
                  refuse_unknown(at->id, r);
    mf_srv_bytes_free(&items);
    return is_good && mf_srv_responses_find(request->server->model.conversations, at->id,
                                            request->key, NULL, &request->answer, NULL);
}

bool mf_srv_api_conversation_drop(mf_srv_request *request, mf_srv_refusal *r)
{
    place at;
    if (!find_place(request, &at, r))
        return false;
    if (at.item)
        return drop_item(request, &at, r);
    if (at.has_items)
        return mf_srv_refuse(r, 405, "items are deleted one by one");
    if (!mf_srv_responses_drop(request->server->model.conversations, at.id, request->key))
        return refuse_unknown(at.id, r);
    mf_srv_puts(&request->answer, "{\"id\":");
    mf_srv_puts_json(&request->answer, at.id);
    mf_srv_puts(&request->answer, ",\"object\":\"conversation.deleted\",\"deleted\":true}");
    return true;
}
