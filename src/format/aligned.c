/* SPDX-License-Identifier: MIT */
/* Opening the aligned form, and what it answers. */
#include "format/aligned.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mf_aligned *aligned_of(mf_source *source)
{
    return (mf_aligned *)source;
}

static const mf_aligned *of(const mf_source *source)
{
    return (const mf_aligned *)source;
}

/* --------------------------------------------------------------------------- the manifest -- */

static mf_status bad_field(const mf_json *json, const char *field, const char *expected,
                           mf_error *error)
{
    return mf_fail(error, MF_ERR_FORMAT, "%s: field %s is not %s", json->path, field, expected);
}

static mf_status check_version(const mf_json *json, mf_error *error)
{
    yyjson_val *version = yyjson_obj_get(json->root, "version");
    const char *form = yyjson_get_str(yyjson_obj_get(json->root, "form"));
    if (form == NULL || strcmp(form, MF_ALIGNED_FORM) != 0)
        return bad_field(json, "form", "\"" MF_ALIGNED_FORM "\"", error);
    if (!yyjson_is_uint(version))
        return bad_field(json, "version", "a number", error);
    if (yyjson_get_uint(version) != MF_ALIGNED_VERSION)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: field version is %llu, expected %u",
                       json->path, (unsigned long long)yyjson_get_uint(version),
                       MF_ALIGNED_VERSION);
    return MF_OK;
}

mf_status mf_aligned_take_manifest(mf_aligned *c, const mf_json *json, uint32_t dense,
                                   mf_error *error)
{
    mf_tensor_table *table = &c->source.table;
    yyjson_val *root = json->root;
    if (!yyjson_is_obj(root))
        return mf_fail(error, MF_ERR_FORMAT, "%s: not a JSON object", json->path);
    MF_TRY(mf_json_check_names(json, error));
    MF_TRY(check_version(json, error));
    const char *id = yyjson_get_str(yyjson_obj_get(root, "id"));
    if (id == NULL || !mf_aligned_id_parse(id, c->id))
        return bad_field(json, "id", "32 hexadecimal digits", error);
    yyjson_val *norms = yyjson_obj_get(root, "norms_as_published");
    yyjson_val *hparams = yyjson_obj_get(root, "hparams");
    yyjson_val *experts = yyjson_obj_get(root, "experts");
    if (!yyjson_is_bool(norms))
        return bad_field(json, "norms_as_published", "true or false", error);
    if (!yyjson_is_obj(hparams))
        return bad_field(json, "hparams", "an object", error);
    if (!yyjson_is_arr(experts))
        return bad_field(json, "experts", "a list", error);
    MF_TRY(mf_manifest_parse(table, dense, json, table->files[dense].n_bytes, error));
    c->source.norms_as_published = yyjson_get_bool(norms);
    c->source.hparam_path = json->path;
    c->hparams = hparams;
    c->experts = experts;
    c->manifest = *json;
    return MF_OK;
}

static mf_status read_directory(mf_aligned *c, mf_error *error)
{
    char path[MF_MAX_PATH];
    uint32_t dense;
    mf_json json = {0};
    MF_TRY(mf_path_join(path, sizeof path, c->dir, MF_ALIGNED_DENSE, error));
    MF_TRY(mf_tensor_table_add_file(&c->source.table, path, &dense, error));
    MF_TRY(mf_path_join(path, sizeof path, c->dir, MF_ALIGNED_MANIFEST, error));
    MF_TRY(mf_json_read(&c->source.allocator, path, MF_ALIGNED_MANIFEST_BYTES, &json, error));
    mf_status status = mf_aligned_take_manifest(c, &json, dense, error);
    if (status != MF_OK)
        mf_json_free(&json);
    return status;
}

/* ----------------------------------------------------------------------- hyper-parameters -- */

static void hparam(const mf_source *source, const char *name, uint32_t index, mf_hparam_value *out)
{
    yyjson_val *value = yyjson_obj_get(of(source)->hparams, name);
    *out = (mf_hparam_value){.kind = MF_HPARAM_ABSENT};
    snprintf(out->field, sizeof out->field, "hparams.%s", name);
    if (index != MF_HPARAM_WHOLE)
        value = yyjson_arr_get(value, index);
    out->is_null = value == NULL; /* null stands for what the source leaves out: see FORMATS.md */
    if (value == NULL || yyjson_is_null(value))
        return;
    out->kind = yyjson_is_bool(value)  ? MF_HPARAM_BOOL
                : yyjson_is_num(value) ? MF_HPARAM_NUMBER
                : yyjson_is_str(value) ? MF_HPARAM_STRING
                : yyjson_is_arr(value) ? MF_HPARAM_LIST
                                       : MF_HPARAM_OTHER;
    out->boolean = yyjson_is_true(value);
    out->number = yyjson_get_num(value);
    out->string = yyjson_get_str(value);
    out->n_elements = (uint32_t)yyjson_arr_size(value);
}

/* -------------------------------------------------------------------------------- tensors -- */

static mf_tensor *find_array(const mf_source *source, mf_tensor_id id, uint32_t array)
{
    char name[64];
    if (mf_aligned_role_name(id.role) == NULL)
        return NULL;
    mf_aligned_tensor_name(id, array, name, sizeof name);
    return mf_tensor_find(&source->table, name);
}

static bool has(const mf_source *source, mf_tensor_id id)
{
    return find_array(source, id, MF_WEIGHT_VALUES) != NULL;
}

static mf_status find(mf_source *source, mf_tensor_id id, mf_stored *out, mf_error *error)
{
    mf_tensor *arrays[MF_STORED_ARRAYS];
    for (uint32_t i = 0; i < MF_STORED_ARRAYS; i++)
        arrays[i] = find_array(source, id, i);
    const mf_stored s = {arrays[0], arrays[1], arrays[2], arrays[3], arrays[4]};
    const bool needs_scales = s.biases != NULL || s.zeros != NULL || s.index != NULL ||
                              (s.data != NULL && s.data->packing != 0);
    if (s.data == NULL || (needs_scales && s.scales == NULL)) {
        char name[64];
        mf_aligned_tensor_name(id, s.data == NULL ? MF_WEIGHT_VALUES : MF_WEIGHT_SCALES, name,
                               sizeof name);
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s is missing", source->hparam_path, name);
    }
    for (uint32_t i = 0; i < MF_STORED_ARRAYS; i++)
        if (arrays[i] != NULL)
            arrays[i]->used = true;
    *out = s;
    return MF_OK;
}

/* Nothing but the shapes says anything of them. */
static mf_status check_affine(const mf_source *source, const mf_stored *stored, uint32_t bits,
                              uint32_t group, mf_error *error)
{
    if (stored->data->bits == 0 || stored->data->bits == bits)
        return MF_OK;
    return mf_fail(error, MF_ERR_FORMAT,
                   "%s: tensor %s: bits %u, but its shape means %u in groups of %u",
                   source->hparam_path, stored->data->name, stored->data->bits, bits, group);
}

/* Of the layer that proposes tokens where somebody asks for it. */
static bool is_of_draft(const mf_source *source, const mf_tensor *t, uint32_t n_layers)
{
    char *end;
    return strtoul(t->name, &end, 10) == n_layers && end != t->name && *end == '.' &&
           mf_source_has_draft(source, n_layers);
}

static mf_status check_unused(mf_source *source, uint32_t n_layers, uint32_t n_extra,
                              uint32_t *n_skipped, mf_error *error)
{
    uint32_t n = 0;
    (void)n_extra; /* a manifest has the one that can be used, if any */
    for (size_t i = 0; i < source->table.n_tensors; i++) {
        const mf_tensor *t = &source->table.tensors[i];
        if (t->used)
            continue;
        if (!is_of_draft(source, t, n_layers))
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: tensor %s belongs to nothing in this model (surplus)",
                           source->hparam_path, t->name);
        mf_source_leave_out(source, t, MF_LEFT_DRAFT, t->name,
                            (size_t)(strchr(t->name, '.') + 1 - t->name));
        n = 1;
    }
    *n_skipped = n;
    return MF_OK;
}

/* -------------------------------------------------------------------------------- experts -- */

static mf_expert_layout expert_layout(const mf_source *source, uint32_t layer)
{
    (void)source;
    (void)layer;
    return MF_EXPERTS_ALIGNED;
}

/* The layer whose experts are being looked at. */
typedef struct layer_walk {
    mf_aligned *c;
    uint32_t layer;
    yyjson_val *entry; /* of the manifest */
    mf_expert_run *places;
    uint32_t n_experts, n_found;
} layer_walk;

static mf_status fail_layer(const layer_walk *w, mf_error *error, const char *what)
{
    return mf_fail(error, MF_ERR_FORMAT, "%s: experts of layer %u: %s", w->c->source.hparam_path,
                   w->layer, what);
}

static mf_status find_layer(layer_walk *w, mf_error *error)
{
    size_t i, n;
    yyjson_val *entry;
    yyjson_arr_foreach(w->c->experts, i, n, entry)
    {
        yyjson_val *layer = yyjson_obj_get(entry, "layer");
        if (!yyjson_is_uint(layer) || yyjson_get_uint(layer) != w->layer)
            continue;
        if (w->entry != NULL)
            return fail_layer(w, error, "given twice");
        w->entry = entry;
    }
    return w->entry != NULL ? MF_OK : fail_layer(w, error, "missing");
}

static bool read_number(yyjson_val *object, const char *name, uint32_t *out)
{
    yyjson_val *value = yyjson_obj_get(object, name);
    *out = yyjson_is_uint(value) && yyjson_get_uint(value) <= 65536
               ? (uint32_t)yyjson_get_uint(value)
               : 0;
    return value == NULL || *out != 0;
}

static mf_status read_shape(const layer_walk *w, yyjson_val *matrix, mf_weight_shape *out,
                            mf_error *error)
{
    const char *format = yyjson_get_str(yyjson_obj_get(matrix, "format"));
    const char *type = yyjson_get_str(yyjson_obj_get(matrix, "type"));
    mf_weight_shape s = {0};
    for (uint32_t kind = 1; format != NULL && kind < MF_WEIGHT_KINDS; kind++)
        if (mf_weight_formats[kind].form != NULL &&
            strcmp(mf_weight_formats[kind].form, format) == 0)
            s.kind = (mf_weight_kind)kind;
    if (s.kind == 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: experts of layer %u: format %s is not known",
                       w->c->source.hparam_path, w->layer, format != NULL ? format : "(none)");
    if (type == NULL || !mf_aligned_dtype_parse(type, &s.float_type))
        return fail_layer(w, error, "a type is not F32, F16 or BF16");
    if (!read_number(matrix, "bits", &s.bits) || !read_number(matrix, "group", &s.group) ||
        !read_number(matrix, "scale_rows", &s.scale_rows))
        return fail_layer(w, error, "bits, group or scale_rows is not a number from 1 to 65536");
    *out = s;
    return MF_OK;
}

static mf_status read_forms(const layer_walk *w, mf_aligned_experts *out, mf_error *error)
{
    static const char *const matrices[] = {"gate", "up", "down"};
    yyjson_val *forms = yyjson_obj_get(w->entry, "forms"), *form;
    size_t i, n = yyjson_arr_size(forms);
    if (n == 0 || n > MF_EXPERT_FORMS)
        return fail_layer(w, error, "forms is not a list of 1 to 8");
    out->is_paired = yyjson_is_true(yyjson_obj_get(w->entry, "pairs"));
    yyjson_arr_foreach(forms, i, n, form)
    {
        for (uint32_t j = 0; j < 3; j += out->is_paired ? 2 : 1)
            MF_TRY(read_shape(w, yyjson_obj_get(form, matrices[j]), &out->shapes[i][j], error));
    }
    out->n_forms = (uint32_t)n;
    return MF_OK;
}

static mf_status place_experts(layer_walk *w, uint32_t file, const mf_aligned_head *head,
                               const mf_aligned_entry *entries, mf_error *error)
{
    const char *path = w->c->source.table.files[file].path;
    if (memcmp(head->id, w->c->id, sizeof head->id) != 0 || head->layer != w->layer)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: is of another model or layer (%u, expected %u) than moeflux.json says",
                       path, head->layer, w->layer);
    for (uint32_t i = 0; i < head->n_experts; i++) {
        const mf_aligned_entry *e = &entries[i];
        if (e->expert >= w->n_experts || w->places[e->expert].n_bytes != 0)
            return mf_fail(error, MF_ERR_FORMAT, "%s: expert %u of %u is %s", path, e->expert,
                           w->n_experts, e->expert < w->n_experts ? "there twice" : "too many");
        w->places[e->expert] = (mf_expert_run){file, e->form, e->offset, e->n_bytes};
        w->n_found++;
    }
    return MF_OK;
}

static mf_status read_file(layer_walk *w, const char *name, mf_error *error)
{
    const mf_allocator *a = &w->c->source.allocator;
    char path[MF_MAX_PATH];
    uint32_t file;
    mf_aligned_head head;
    mf_aligned_entry *entries = NULL;
    MF_TRY(mf_path_join(path, sizeof path, w->c->dir, name, error));
    MF_TRY(mf_tensor_table_add_file(&w->c->source.table, path, &file, error));
    MF_TRY(mf_aligned_file_read(a, path, &head, &entries, error));
    mf_status status = place_experts(w, file, &head, entries, error);
    mf_free(a, entries, head.n_experts * sizeof *entries);
    return status;
}

static mf_status aligned_experts(mf_source *source, uint32_t layer, mf_expert_run *places,
                                 uint32_t n_experts, mf_aligned_experts *out, mf_error *error)
{
    layer_walk w = {
        .c = aligned_of(source), .layer = layer, .places = places, .n_experts = n_experts};
    size_t i, n;
    yyjson_val *name;
    memset(places, 0, n_experts * sizeof *places);
    MF_TRY(find_layer(&w, error));
    MF_TRY(read_forms(&w, out, error));
    yyjson_arr_foreach(yyjson_obj_get(w.entry, "files"), i, n, name)
    {
        const char *text = yyjson_get_str(name);
        if (text == NULL || strlen(text) != yyjson_get_len(name) || !mf_name_is_below(text))
            return fail_layer(&w, error, "a file is no name below the directory");
        MF_TRY(read_file(&w, text, error));
    }
    if (w.n_found != n_experts)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: experts of layer %u: its files have %u of %u experts",
                       source->hparam_path, layer, w.n_found, n_experts);
    return MF_OK;
}

/* ------------------------------------------------------------------------ open and close -- */

static void close_aligned(mf_source *source)
{
    const mf_allocator a = source->allocator;
    mf_aligned_clear(aligned_of(source));
    mf_free(&a, source, sizeof(mf_aligned));
}

static const mf_source_ops ops = {
    .hparam = hparam,
    .has = has,
    .find = find,
    .check_affine = check_affine,
    .expert_layout = expert_layout,
    .aligned_experts = aligned_experts,
    .check_unused = check_unused,
    .close = close_aligned,
};

void mf_aligned_init(mf_aligned *c, const mf_allocator *a)
{
    *c = (mf_aligned){.source = {.ops = &ops, .allocator = *a, .form = MF_ALIGNED_FORM}};
    c->source.path = c->source.hparam_path = c->dir;
    mf_tensor_table_init(&c->source.table, a);
}

void mf_aligned_clear(mf_aligned *c)
{
    mf_json_free(&c->manifest);
    mf_tensor_table_free(&c->source.table);
}

bool mf_aligned_is_there(const char *dir)
{
    char path[MF_MAX_PATH];
    mf_error error;
    return mf_path_join(path, sizeof path, dir, MF_ALIGNED_MANIFEST, &error) == MF_OK &&
           mf_file_exists(path) != 0;
}

mf_status mf_aligned_open(const mf_allocator *a, const char *dir, mf_source **out, mf_error *error)
{
    if (strlen(dir) >= MF_MAX_PATH)
        return mf_fail(error, MF_ERR_ARGUMENT, "path longer than %d bytes: %.64s...", MF_MAX_PATH,
                       dir);
    mf_aligned *c = mf_alloc(a, sizeof *c);
    if (c == NULL)
        return mf_fail_memory(error, sizeof *c, dir);
    mf_aligned_init(c, a);
    snprintf(c->dir, sizeof c->dir, "%s", dir);
    mf_status status = read_directory(c, error);
    if (status != MF_OK)
        close_aligned(&c->source);
    else
        *out = &c->source;
    return status;
}
