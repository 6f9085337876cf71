/* SPDX-License-Identifier: MIT */
/* A source's operations with notes taken. */
#include "convert/watch.h"

#include <string.h>

static mf_watch *watch_of(const mf_source *source)
{
    return source->watcher;
}

/* ----------------------------------------------------------------------- hyper-parameters -- */

static yyjson_mut_val *number_of(yyjson_mut_doc *doc, double n)
{
    if (n > -9e15 && n < 9e15 && n == (double)(int64_t)n)
        return yyjson_mut_sint(doc, (int64_t)n);
    return yyjson_mut_real(doc, n);
}

/* A value that is no list. */
static yyjson_mut_val *value_of(yyjson_mut_doc *doc, const mf_hparam_value *v)
{
    switch (v->kind) {
    case MF_HPARAM_BOOL:
        return yyjson_mut_bool(doc, v->boolean);
    case MF_HPARAM_NUMBER:
        return number_of(doc, v->number);
    case MF_HPARAM_STRING:
        return yyjson_mut_strcpy(doc, v->string);
    case MF_HPARAM_OTHER:
    case MF_HPARAM_LIST:
        return yyjson_mut_obj(doc);
    case MF_HPARAM_ABSENT:
        break;
    }
    return yyjson_mut_null(doc);
}

static yyjson_mut_val *list_of(mf_watch *w, const mf_source *source, const char *name, uint32_t n)
{
    yyjson_mut_val *list = yyjson_mut_arr(w->doc);
    for (uint32_t i = 0; i < n; i++) {
        mf_hparam_value element = {0};
        w->inner->hparam(source, name, i, &element);
        if (!yyjson_mut_arr_append(list, value_of(w->doc, &element)))
            return NULL;
    }
    return list;
}

static void hparam(const mf_source *source, const char *name, uint32_t index, mf_hparam_value *out)
{
    mf_watch *w = watch_of(source);
    mf_hparam_value whole = {0};
    w->inner->hparam(source, name, index, out);
    if (yyjson_mut_obj_get(w->hparams, name) != NULL)
        return;
    w->inner->hparam(source, name, MF_HPARAM_WHOLE, &whole);
    if (whole.is_null) /* noted is what the source leaves out, whose default the reader knows */
        return;
    yyjson_mut_val *value = whole.kind == MF_HPARAM_LIST
                                ? list_of(w, source, name, whole.n_elements)
                                : value_of(w->doc, &whole);
    if (!yyjson_mut_obj_add(w->hparams, yyjson_mut_strcpy(w->doc, name), value))
        w->is_out_of_memory = true;
}

/* -------------------------------------------------------------------------------- tensors -- */

static bool is_noted(const mf_watch *w, mf_tensor_id id, uint32_t array)
{
    for (size_t i = w->n_tensors; i-- > 0;) { /* most often asked for again at once */
        const mf_watched_tensor *t = &w->tensors[i];
        if (t->id.role == id.role && t->id.layer == id.layer && t->array == array)
            return true;
    }
    return false;
}

static void note(mf_watch *w, mf_tensor_id id, uint32_t array, const mf_tensor *tensor)
{
    if (tensor == NULL || is_noted(w, id, array))
        return;
    if (w->n_tensors == w->capacity) {
        const size_t wanted = w->capacity == 0 ? 256 : 2 * w->capacity;
        mf_watched_tensor *grown = mf_realloc(&w->allocator, w->tensors,
                                              w->capacity * sizeof *grown, wanted * sizeof *grown);
        if (grown == NULL) {
            w->is_out_of_memory = true;
            return;
        }
        w->tensors = grown;
        w->capacity = wanted;
    }
    w->tensors[w->n_tensors++] = (mf_watched_tensor){id, array, *tensor};
}

/* Experts have files of their own. */
static bool is_of_experts(mf_role role)
{
    return role == MF_ROLE_EXPERT_GATE || role == MF_ROLE_EXPERT_UP ||
           role == MF_ROLE_EXPERT_DOWN || role == MF_ROLE_EXPERT_GATE_UP ||
           role == MF_ROLE_EXPERT_PAIRS;
}

static mf_status find(mf_source *source, mf_tensor_id id, mf_stored *out, mf_error *error)
{
    mf_watch *w = watch_of(source);
    MF_TRY(w->inner->find(source, id, out, error));
    if (is_of_experts(id.role))
        return MF_OK;
    for (uint32_t i = 0; i < MF_STORED_ARRAYS; i++)
        note(w, id, i, mf_stored_array(out, i));
    return MF_OK;
}

/* -------------------------------------------------------------------------- begin and end -- */

mf_status mf_watch_begin(mf_watch *w, const mf_allocator *a, mf_source *source, mf_error *error)
{
    *w = (mf_watch){.inner = source->ops, .ops = *source->ops, .allocator = *a};
    w->json_allocator = mf_json_allocator(&w->allocator);
    w->doc = yyjson_mut_doc_new(&w->json_allocator);
    w->hparams = yyjson_mut_obj(w->doc);
    if (w->hparams == NULL)
        return mf_fail_memory(error, 4096, "the manifest");
    w->ops.hparam = hparam;
    w->ops.find = find;
    source->ops = &w->ops;
    source->watcher = w;
    return MF_OK;
}

mf_status mf_watch_end(mf_watch *w, mf_source *source, mf_error *error)
{
    source->ops = w->inner;
    source->watcher = NULL;
    return w->is_out_of_memory ? mf_fail_memory(error, 4096, "the manifest") : MF_OK;
}

void mf_watch_free(mf_watch *w)
{
    if (w->doc != NULL)
        yyjson_mut_doc_free(w->doc);
    mf_free(&w->allocator, w->tensors, w->capacity * sizeof *w->tensors);
    *w = (mf_watch){0};
}
