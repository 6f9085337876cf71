/* SPDX-License-Identifier: MIT */
/* A list, the one used last at its end. */
#include "recall.h"

#include "random.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_KEPT 8192
/* Sets of tools whose order is known, and the bytes of one. */
#define MAX_SETS 64
#define MAX_SET_BYTES ((size_t)1 << 20)

typedef struct tool_set {
    mf_srv_digest digest; /* of the tools in order of their text */
    char *tools;          /* as they came first */
} tool_set;

struct mf_srv_recall {
    pthread_mutex_t lock;
    mf_srv_digest_key key;
    size_t max_bytes, n_bytes;
    size_t n_kept;
    mf_srv_kept *kept[MAX_KEPT];
    tool_set sets[MAX_SETS]; /* the one used last at the end */
    size_t n_sets;
    mf_srv_recall_watcher watcher;
};

mf_srv_recall *mf_srv_recall_new(size_t max_bytes)
{
    mf_srv_recall *recall = calloc(1, sizeof *recall);
    if (!recall)
        return NULL;
    pthread_mutex_init(&recall->lock, NULL);
    mf_srv_random(&recall->key, sizeof recall->key);
    recall->max_bytes = max_bytes;
    return recall;
}

const mf_srv_digest_key *mf_srv_recall_key(const mf_srv_recall *recall)
{
    return &recall->key;
}

void mf_srv_recall_set_key(mf_srv_recall *recall, const mf_srv_digest_key *key)
{
    recall->key = *key;
}

void mf_srv_recall_watch(mf_srv_recall *recall, const mf_srv_recall_watcher *watcher)
{
    pthread_mutex_lock(&recall->lock);
    recall->watcher = watcher ? *watcher : (mf_srv_recall_watcher){NULL, NULL, NULL};
    pthread_mutex_unlock(&recall->lock);
}

mf_srv_kept *mf_srv_kept_new(void)
{
    mf_srv_kept *kept = calloc(1, sizeof *kept);
    if (kept)
        kept->n_refs = 1;
    return kept;
}

void mf_srv_kept_drop(mf_srv_kept *kept)
{
    if (!kept || __atomic_sub_fetch(&kept->n_refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    mf_srv_message_free(&kept->message);
    free(kept->tokens);
    free(kept);
}

void mf_srv_recall_free(mf_srv_recall **recall)
{
    if (!*recall)
        return;
    for (size_t i = 0; i < (*recall)->n_kept; i++)
        mf_srv_kept_drop((*recall)->kept[i]);
    for (size_t i = 0; i < (*recall)->n_sets; i++)
        free((*recall)->sets[i].tools);
    pthread_mutex_destroy(&(*recall)->lock);
    free(*recall);
    *recall = NULL;
}

size_t mf_srv_kept_bytes(const mf_srv_kept *kept)
{
    size_t n = sizeof *kept + kept->n_tokens * sizeof *kept->tokens +
               kept->message.content.capacity + kept->message.thoughts.capacity;
    for (size_t i = 0; i < kept->message.n_calls; i++) {
        const mf_srv_call *call = &kept->message.calls[i];
        n += sizeof *call + strlen(call->name) + strlen(call->arguments) + 64;
    }
    return n;
}

static void take_out(mf_srv_recall *r, size_t i)
{
    r->n_bytes -= mf_srv_kept_bytes(r->kept[i]);
    memmove(&r->kept[i], &r->kept[i + 1], (--r->n_kept - i) * sizeof *r->kept);
}

static size_t find(const mf_srv_recall *r, const mf_srv_digest *key)
{
    size_t i = r->n_kept;
    while (i > 0 && !mf_srv_digest_is(&r->kept[i - 1]->key, key))
        i--;
    return i > 0 ? i - 1 : SIZE_MAX;
}

void mf_srv_recall_put(mf_srv_recall *r, mf_srv_kept *kept)
{
    const size_t n_bytes = mf_srv_kept_bytes(kept);
    if (n_bytes > r->max_bytes) {
        mf_srv_kept_drop(kept);
        return;
    }
    pthread_mutex_lock(&r->lock);
    size_t i = find(r, &kept->key);
    while (i != SIZE_MAX || r->n_kept == MAX_KEPT || r->n_bytes + n_bytes > r->max_bytes) {
        mf_srv_kept *old = r->kept[i != SIZE_MAX ? i : 0];
        take_out(r, i != SIZE_MAX ? i : 0);
        mf_srv_kept_drop(old);
        i = SIZE_MAX;
    }
    r->kept[r->n_kept++] = kept;
    r->n_bytes += n_bytes;
    if (r->watcher.kept)
        r->watcher.kept(r->watcher.user, kept);
    pthread_mutex_unlock(&r->lock);
}

mf_srv_kept *mf_srv_recall_find(mf_srv_recall *r, const mf_srv_digest *key)
{
    mf_srv_kept *kept = NULL;
    pthread_mutex_lock(&r->lock);
    const size_t i = find(r, key);
    if (i != SIZE_MAX) {
        kept = r->kept[i];
        memmove(&r->kept[i], &r->kept[i + 1], (r->n_kept - 1 - i) * sizeof *r->kept);
        r->kept[r->n_kept - 1] = kept;
        __atomic_add_fetch(&kept->n_refs, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&r->lock);
    return kept;
}

bool mf_srv_recall_list_all(mf_srv_recall *r, mf_srv_recall_list *out)
{
    pthread_mutex_lock(&r->lock);
    *out = (mf_srv_recall_list){.kept = calloc(r->n_kept + 1, sizeof(mf_srv_kept *)),
                                .tools = calloc(r->n_sets + 1, sizeof(char *))};
    bool is_good = out->kept && out->tools;
    for (; is_good && out->n_kept < r->n_kept; out->n_kept++) {
        out->kept[out->n_kept] = r->kept[out->n_kept];
        __atomic_add_fetch(&out->kept[out->n_kept]->n_refs, 1, __ATOMIC_RELAXED);
    }
    for (; is_good && out->n_tools < r->n_sets; out->n_tools++)
        is_good = (out->tools[out->n_tools] = strdup(r->sets[out->n_tools].tools)) != NULL;
    pthread_mutex_unlock(&r->lock);
    if (!is_good)
        mf_srv_recall_list_free(out);
    return is_good;
}

void mf_srv_recall_list_free(mf_srv_recall_list *list)
{
    for (size_t i = 0; list->kept && i < list->n_kept; i++)
        mf_srv_kept_drop(list->kept[i]);
    for (size_t i = 0; list->tools && i < list->n_tools; i++)
        free(list->tools[i]);
    free(list->kept);
    free(list->tools);
    *list = (mf_srv_recall_list){0};
}

/* ------------------------------------------------------------------------------------- tools -- */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The digest of the tools, whatever their order. */
static bool digest_of_set(const mf_srv_recall *r, const mf_srv_bytes *tools, mf_srv_digest *out)
{
    yyjson_doc *doc = yyjson_read(tools->data, tools->n_bytes, 0);
    yyjson_val *array = yyjson_doc_get_root(doc), *tool;
    const size_t n = yyjson_arr_size(array);
    char **texts = calloc(n + 1, sizeof *texts);
    mf_srv_bytes all = {0};
    bool is_good = doc && texts;
    size_t i, max;
    yyjson_arr_foreach(array, i, max, tool)
    {
        if (is_good)
            is_good = (texts[i] = yyjson_val_write(tool, 0, NULL)) != NULL;
    }
    if (is_good)
        qsort(texts, n, sizeof *texts, compare_texts);
    for (i = 0; is_good && i < n; i++) {
        mf_srv_puts(&all, texts[i]);
        mf_srv_puts(&all, "\n");
    }
    is_good = is_good && all.data && !all.has_failed;
    if (is_good)
        *out = mf_srv_digest_of(&r->key, all.data, all.n_bytes);
    for (i = 0; texts && i < n; i++)
        free(texts[i]);
    free(texts);
    mf_srv_bytes_free(&all);
    yyjson_doc_free(doc);
    return is_good;
}

/* Behind the lock. */
static bool use_order(mf_srv_recall *r, const mf_srv_digest *digest, mf_srv_bytes *tools)
{
    size_t i = 0;
    while (i < r->n_sets && !mf_srv_digest_is(&r->sets[i].digest, digest))
        i++;
    tool_set set = {*digest, NULL};
    if (i < r->n_sets) {
        set = r->sets[i];
        mf_srv_bytes known = {0};
        mf_srv_puts(&known, set.tools);
        if (known.has_failed || !known.data)
            return false;
        mf_srv_bytes_free(tools);
        *tools = known;
    } else {
        set.tools = strdup(tools->data);
        if (!set.tools)
            return false;
        i = r->n_sets < MAX_SETS ? r->n_sets++ : 0;
        free(r->sets[i].tools);
        if (r->watcher.tools)
            r->watcher.tools(r->watcher.user, set.tools);
    }
    memmove(&r->sets[i], &r->sets[i + 1], (r->n_sets - 1 - i) * sizeof *r->sets);
    r->sets[r->n_sets - 1] = set;
    return true;
}

bool mf_srv_recall_order(mf_srv_recall *r, mf_srv_bytes *tools)
{
    mf_srv_digest digest = {{0, 0}};
    if (!tools->data || tools->n_bytes > MAX_SET_BYTES)
        return true;
    if (!digest_of_set(r, tools, &digest))
        return false;
    pthread_mutex_lock(&r->lock);
    const bool is_good = use_order(r, &digest, tools);
    pthread_mutex_unlock(&r->lock);
    return is_good;
}
