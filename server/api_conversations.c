/* SPDX-License-Identifier: MIT */
/*
 * OpenAI's conversations: items under one id, which responses go on from and are added to. They
 * are kept as responses are: the latest, in memory, each its key's alone.
 */
#include "api.h"
#include "conversation_items.h"
#include "item_list.h"

#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* As published. */
#define MAX_ITEMS 20
#define MAX_METADATA 16

static bool no_memory(mf_srv_refusal *r)
{
    return mf_srv_refuse(r, 503, "out of memory for the conversation");
}

static bool refuse_unknown(const char *id, mf_srv_refusal *r)
{
    return mf_srv_refuse(r, 404, "Conversation with id '%.60s' not found.", id);
}

/* The conversation is as it was. */
static bool refuse_change(mf_srv_change change, const char *id, mf_srv_refusal *r)
{
    if (change == MF_SRV_TOO_LARGE)
        return mf_srv_refuse_field(r, "items", "the conversation would have more than %zu bytes",
                                   MF_SRV_RESPONSE_BYTES);
    return change == MF_SRV_NOT_THERE ? refuse_unknown(id, r) : no_memory(r);
}

/* Whose path it is, and what of it. */
typedef struct place {
    char id[MF_SRV_ID_BYTES];
    const char *item; /* "": none */
} place;

/* The path is ID, ID/items or ID/items/ITEM. */
static bool find_place(const mf_srv_request *request, place *out, mf_srv_refusal *r)
{
    const char *path = request->path, *rest = strchrnul(path, '/');
    const size_t n = (size_t)(rest - path);
    *out = (place){.item = ""};
    if (n >= sizeof out->id)
        return refuse_unknown(path, r);
    memcpy(out->id, path, n);
    if (*rest != '\0' && strchr(rest + 1, '/'))
        out->item = strchr(rest + 1, '/') + 1;
    return true;
}

/* The items of a conversation, parsed, and in *text as they are kept. NULL: the refusal says why.
 */
static yyjson_doc *open_items(const mf_srv_request *request, const char *id, mf_srv_bytes *text,
                              mf_srv_refusal *r)
{
    if (!mf_srv_responses_find(request->server->model.conversations, id, request->key, text, NULL,
                               NULL)) {
        refuse_unknown(id, r);
        return NULL;
    }
    yyjson_doc *doc = mf_srv_parse_items(text);
    if (!doc)
        no_memory(r);
    return doc;
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
    if (is_good &&
        !mf_srv_responses_put(request->server->model.conversations, id, request->key, &kept))
        is_good = refuse_change(MF_SRV_TOO_LARGE, id, r);
    mf_srv_bytes_free(&kept.items);
    mf_srv_bytes_free(&kept.response);
    return is_good;
}

/* ------------------------------------------------------------------------------------ items -- */

static bool put_one(mf_srv_request *request, yyjson_val *array, const char *id, mf_srv_refusal *r)
{
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(array, i, n, item)
    {
        if (mf_srv_is_item(item, id))
            return mf_srv_put_value(&request->answer, item) || no_memory(r);
    }
    return mf_srv_refuse(r, 404, "Item with id '%.60s' not found.", id);
}

/* All of them, or one. */
static bool get_items(mf_srv_request *request, bool is_list, mf_srv_refusal *r)
{
    place at;
    mf_srv_bytes text = {0};
    yyjson_doc *doc = find_place(request, &at, r) ? open_items(request, at.id, &text, r) : NULL;
    yyjson_val *array = yyjson_doc_get_root(doc);
    const bool is_good =
        doc && (is_list ? mf_srv_list_items(request, array, yyjson_arr_size(array), r)
                        : put_one(request, array, at.item, r));
    yyjson_doc_free(doc);
    mf_srv_bytes_free(&text);
    return is_good;
}

bool mf_srv_api_items(mf_srv_request *request, mf_srv_refusal *r)
{
    return get_items(request, true, r);
}

bool mf_srv_api_item(mf_srv_request *request, mf_srv_refusal *r)
{
    return get_items(request, false, r);
}

/* What was added, with its ids. */
static bool put_added(const mf_srv_bytes *items, mf_srv_bytes *out)
{
    yyjson_val *list[MAX_ITEMS], *item;
    yyjson_doc *doc = mf_srv_parse_items(items);
    yyjson_val *array = yyjson_doc_get_root(doc);
    size_t i, n;
    yyjson_arr_foreach(array, i, n, item)
    {
        list[i] = item;
    }
    const bool is_good = doc && mf_srv_put_page(list, yyjson_arr_size(array), false, out);
    yyjson_doc_free(doc);
    return is_good;
}

bool mf_srv_api_items_add(mf_srv_request *request, mf_srv_refusal *r)
{
    static const mf_srv_field names[] = {{"items", MF_SRV_FIELD_USED}, {NULL, MF_SRV_FIELD_USED}};
    static const mf_srv_field *const tables[] = {names, NULL};
    mf_srv_bytes items = {0};
    place at;
    if (!find_place(request, &at, r) || !mf_srv_check_fields(request->json, "", tables, r))
        return false;
    if (!mf_srv_field_of(request->json, "items"))
        return mf_srv_refuse_field(r, "items", "is missing");
    bool is_good =
        read_items(request, &items, r) && (put_added(&items, &request->answer) || no_memory(r));
    if (is_good) {
        const mf_srv_change change =
            mf_srv_responses_add(request->server->model.conversations, at.id, request->key, &items);
        is_good = change == MF_SRV_CHANGED || refuse_change(change, at.id, r);
    }
    mf_srv_bytes_free(&items);
    return is_good;
}

/* The items of the array but for the one with that id. False: it is not there, or no memory. */
static bool put_others(yyjson_val *array, const char *id, mf_srv_bytes *out, mf_srv_refusal *r)
{
    size_t i, n, n_left = 0;
    yyjson_val *item;
    yyjson_arr_foreach(array, i, n, item)
    {
        if (mf_srv_is_item(item, id))
            continue;
        mf_srv_puts(out, n_left++ > 0 ? "," : "");
        if (!mf_srv_put_value(out, item))
            return no_memory(r);
    }
    return n_left < n || mf_srv_refuse(r, 404, "Item with id '%.60s' not found.", id);
}

/* Once; it has to be said again where the items are others by then. */
static bool drop_item(mf_srv_request *request, const place *at, mf_srv_change *change,
                      mf_srv_refusal *r)
{
    mf_srv_bytes was = {0}, items = {0};
    yyjson_doc *doc = open_items(request, at->id, &was, r);
    const bool is_good = doc && put_others(yyjson_doc_get_root(doc), at->item, &items, r);
    yyjson_doc_free(doc);
    if (is_good)
        *change = mf_srv_responses_change(request->server->model.conversations, at->id,
                                          request->key, &was, &items, NULL);
    mf_srv_bytes_free(&was);
    mf_srv_bytes_free(&items);
    return is_good;
}

bool mf_srv_api_item_drop(mf_srv_request *request, mf_srv_refusal *r)
{
    mf_srv_change change = MF_SRV_CHANGED_MEANWHILE;
    place at;
    if (!find_place(request, &at, r))
        return false;
    while (change == MF_SRV_CHANGED_MEANWHILE)
        if (!drop_item(request, &at, &change, r))
            return false;
    if (change != MF_SRV_CHANGED)
        return refuse_change(change, at.id, r);
    return mf_srv_responses_find(request->server->model.conversations, at.id, request->key, NULL,
                                 &request->answer, NULL) ||
           refuse_unknown(at.id, r);
}

/* ----------------------------------------------------------------------------- conversations -- */

bool mf_srv_api_conversation(mf_srv_request *request, mf_srv_refusal *r)
{
    return mf_srv_responses_find(request->server->model.conversations, request->path, request->key,
                                 NULL, &request->answer, NULL) ||
           refuse_unknown(request->path, r);
}

/* Other metadata. */
bool mf_srv_api_conversation_change(mf_srv_request *request, mf_srv_refusal *r)
{
    static const mf_srv_field names[] = {{"metadata", MF_SRV_FIELD_USED},
                                         {NULL, MF_SRV_FIELD_USED}};
    static const mf_srv_field *const tables[] = {names, NULL};
    mf_srv_responses *all = request->server->model.conversations;
    yyjson_val *metadata = mf_srv_field_of(request->json, "metadata");
    mf_srv_bytes before = {0}, now = {0};
    if (!mf_srv_check_fields(request->json, "", tables, r) || !check_metadata(metadata, r))
        return false;
    if (!yyjson_obj_get(request->json, "metadata")) /* null: none */
        return mf_srv_refuse_field(r, "metadata", "is missing");
    if (!mf_srv_responses_find(all, request->path, request->key, NULL, &before, NULL))
        return refuse_unknown(request->path, r);
    yyjson_doc *doc = yyjson_read(before.data, before.n_bytes, 0);
    const int64_t created = yyjson_get_sint(yyjson_obj_get(yyjson_doc_get_root(doc), "created_at"));
    bool is_good =
        (doc && put_conversation(request->path, created, metadata, &now)) || no_memory(r);
    if (is_good) {
        mf_srv_put(&request->answer, now.data, now.n_bytes);
        const mf_srv_change change =
            mf_srv_responses_change(all, request->path, request->key, NULL, NULL, &now);
        is_good = change == MF_SRV_CHANGED || refuse_change(change, request->path, r);
    }
    yyjson_doc_free(doc);
    mf_srv_bytes_free(&before);
    mf_srv_bytes_free(&now);
    return is_good;
}

bool mf_srv_api_conversation_drop(mf_srv_request *request, mf_srv_refusal *r)
{
    if (!mf_srv_responses_drop(request->server->model.conversations, request->path, request->key))
        return refuse_unknown(request->path, r);
    mf_srv_puts(&request->answer, "{\"id\":");
    mf_srv_puts_json(&request->answer, request->path);
    mf_srv_puts(&request->answer, ",\"object\":\"conversation.deleted\",\"deleted\":true}");
    return true;
}
