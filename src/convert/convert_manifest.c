/* SPDX-License-Identifier: MIT */
/* The manifest, written last: a directory that has one is whole. And the files for text, which go
 * with the model as they are. */
#include "convert/convert.h"

#include "format/gguf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPLATES "additional_chat_templates"
#define MAX_TEXT_BYTES ((size_t)1 << 30)

/* ------------------------------------------------------------------------------- manifest -- */

typedef struct writer {
    const mf_conversion *c;
    yyjson_mut_doc *doc;
    yyjson_mut_val *root;
    bool is_full; /* out of memory */
} writer;

static void add(writer *w, yyjson_mut_val *object, const char *key, yyjson_mut_val *value)
{
    if (!yyjson_mut_obj_add(object, yyjson_mut_strcpy(w->doc, key), value))
        w->is_full = true;
}

static yyjson_mut_val *text_of(writer *w, const char *text)
{
    return yyjson_mut_strcpy(w->doc, text);
}

static void add_tensor(writer *w, yyjson_mut_val *tensors, size_t i)
{
    const mf_watched_tensor *t = &w->c->watch.tensors[i];
    char name[64], sum[20];
    yyjson_mut_val *entry = yyjson_mut_obj(w->doc), *shape = yyjson_mut_arr(w->doc);
    mf_aligned_tensor_name(t->id, t->array, name, sizeof name);
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)w->c->dense_sums[i]);
    for (uint32_t d = 0; d < t->tensor.n_dims; d++)
        if (!yyjson_mut_arr_add_uint(w->doc, shape, t->tensor.shape[d]))
            w->is_full = true;
    if (t->tensor.n_dims == 0 && !yyjson_mut_arr_add_uint(w->doc, shape, 1))
        w->is_full = true;
    add(w, entry, "offset", yyjson_mut_uint(w->doc, w->c->dense_at[i]));
    add(w, entry, "size", yyjson_mut_uint(w->doc, t->tensor.n_bytes));
    add(w, entry, "shape", shape);
    add(w, entry, "dtype", text_of(w, t->tensor.type_name));
    if (t->tensor.bits != 0)
        add(w, entry, "bits", yyjson_mut_uint(w->doc, t->tensor.bits));
    if (t->tensor.is_negated_exp)
        add(w, entry, "negated_exp", yyjson_mut_bool(w->doc, true));
    if (t->tensor.type != MF_TENSOR_BLOCKS && t->tensor.kind != 0)
        add(w, entry, "form", text_of(w, mf_weight_formats[t->tensor.kind].form));
    if (t->tensor.packing != MF_PACKING_NONE)
        add(w, entry, "packing", text_of(w, mf_packing_name(t->tensor.packing)));
    add(w, entry, "xxh3", text_of(w, sum));
    add(w, tensors, name, entry);
}

static void add_shape(writer *w, yyjson_mut_val *form, const char *name, const mf_weight_shape *s)
{
    yyjson_mut_val *matrix = yyjson_mut_obj(w->doc);
    add(w, matrix, "format", text_of(w, mf_weight_format_of(s)->form));
    add(w, matrix, "type", text_of(w, mf_aligned_dtype_name(s->float_type)));
    if (s->bits != 0)
        add(w, matrix, "bits", yyjson_mut_uint(w->doc, s->bits));
    if (s->group != 0)
        add(w, matrix, "group", yyjson_mut_uint(w->doc, s->group));
    if (s->scale_rows != 0)
        add(w, matrix, "scale_rows", yyjson_mut_uint(w->doc, s->scale_rows));
    add(w, form, name, matrix);
}

static void add_layer(writer *w, yyjson_mut_val *experts, const mf_target_layer *t)
{
    yyjson_mut_val *layer = yyjson_mut_obj(w->doc), *forms = yyjson_mut_arr(w->doc);
    yyjson_mut_val *files = yyjson_mut_arr(w->doc);
    for (uint32_t f = 0; f < t->n_forms; f++) {
        yyjson_mut_val *form = yyjson_mut_obj(w->doc);
        add_shape(w, form, "gate", &t->forms[f].shapes[0]);
        if (!t->is_paired)
            add_shape(w, form, "up", &t->forms[f].shapes[1]);
        add_shape(w, form, "down", &t->forms[f].shapes[2]);
        if (!yyjson_mut_arr_append(forms, form))
            w->is_full = true;
    }
    for (uint32_t d = 0; d < w->c->n_dirs; d++) {
        char name[64];
        mf_aligned_expert_file(t->layer, d, name, sizeof name);
        if (t->file_experts[d] != 0 && !yyjson_mut_arr_append(files, text_of(w, name)))
            w->is_full = true;
    }
    add(w, layer, "layer", yyjson_mut_uint(w->doc, t->layer));
    if (t->is_paired)
        add(w, layer, "pairs", yyjson_mut_bool(w->doc, true));
    add(w, layer, "forms", forms);
    add(w, layer, "files", files);
    if (!yyjson_mut_arr_append(experts, layer))
        w->is_full = true;
}

static void fill(writer *w)
{
    char id[33];
    yyjson_mut_val *tensors = yyjson_mut_obj(w->doc), *experts = yyjson_mut_arr(w->doc);
    mf_aligned_id_text(w->c->id, id);
    add(w, w->root, "form", text_of(w, MF_ALIGNED_FORM));
    add(w, w->root, "version", yyjson_mut_uint(w->doc, MF_ALIGNED_VERSION));
    add(w, w->root, "id", text_of(w, id));
    add(w, w->root, "norms_as_published",
        yyjson_mut_bool(w->doc, w->c->source.source->norms_as_published));
    add(w, w->root, "hparams", w->c->watch.hparams);
    for (size_t i = 0; i < w->c->watch.n_tensors; i++)
        add_tensor(w, tensors, i);
    add(w, w->root, "tensors", tensors);
    for (uint32_t i = 0; i < w->c->source.h.n_moe_layers; i++)
        add_layer(w, experts, &w->c->layers[i]);
    add(w, w->root, "experts", experts);
}

static mf_status write_text(const mf_output_dir *dir, const char *name, const char *text,
                            size_t n_bytes, mf_error *error)
{
    mf_output_file file;
    MF_TRY(mf_output_begin(dir, name, n_bytes, &file, error));
    mf_status status = mf_output_write(&file, 0, text, n_bytes, error);
    if (status == MF_OK)
        return mf_output_commit(&file, error);
    mf_output_abandon(&file);
    return status;
}

mf_status mf_convert_manifest(mf_conversion *c, mf_error *error)
{
    writer w = {.c = c, .doc = c->watch.doc, .root = yyjson_mut_obj(c->watch.doc)};
    size_t n_bytes = 0;
    fill(&w);
    char *text = w.is_full ? NULL
                           : yyjson_mut_val_write_opts(w.root, YYJSON_WRITE_NEWLINE_AT_END,
                                                       &c->watch.json_allocator, &n_bytes, NULL);
    if (text == NULL)
        return mf_fail_memory(error, 4096, "the manifest");
    mf_status status = n_bytes <= MF_ALIGNED_MANIFEST_BYTES
                           ? write_text(&c->dirs[0], MF_ALIGNED_MANIFEST, text, n_bytes, error)
                           : mf_fail(error, MF_ERR_UNSUPPORTED,
                                     "%s: its manifest would have %zu bytes, at most %zu",
                                     c->dirs[0].path, n_bytes, MF_ALIGNED_MANIFEST_BYTES);
    mf_block_free(&c->watch.allocator, text);
    return status;
}

/* ---------------------------------------------------------------------------------- texts -- */

static mf_status copy_text(const mf_conversion *c, const char *from, const char *name,
                           mf_error *error)
{
    char path[2 * MF_MAX_PATH], *text = NULL;
    size_t n_bytes = 0;
    MF_TRY(mf_path_join(path, sizeof path, from, name, error));
    if (!mf_file_exists(path))
        return MF_OK;
    MF_TRY(mf_file_read(&c->allocator, path, MAX_TEXT_BYTES, &text, &n_bytes, error));
    mf_status status = write_text(&c->dirs[0], name, text, n_bytes, error);
    mf_free(&c->allocator, text, n_bytes + 1);
    return status;
}

static bool is_template(const char *name)
{
    const size_t n = strlen(name);
    return n > 6 && n < 256 && strcmp(name + n - 6, ".jinja") == 0;
}

static mf_status copy_templates(const mf_conversion *c, const char *from, mf_error *error)
{
    char path[2 * MF_MAX_PATH];
    MF_TRY(mf_path_join(path, sizeof path, from, TEMPLATES, error));
    DIR *dir = opendir(path);
    if (dir == NULL)
        return MF_OK;
    mf_status status = MF_OK;
    if (mkdirat(c->dirs[0].fd, TEMPLATES, 0777) != 0 && errno != EEXIST)
        status = mf_fail_os(error, MF_ERR_IO, errno, "%s/" TEMPLATES ": cannot make the directory",
                            c->dirs[0].path);
    for (const struct dirent *e; status == MF_OK && (e = readdir(dir)) != NULL;) {
        char name[MF_OUTPUT_NAME_CHARS];
        if (!is_template(e->d_name))
            continue;
        snprintf(name, sizeof name, TEMPLATES "/%.255s", e->d_name);
        status = copy_text(c, from, name, error);
    }
    closedir(dir);
    return status;
}

/* The keys of a GGUF file, without tensors. */
static mf_status write_gguf_text(const mf_conversion *c, const char *from, mf_error *error)
{
    mf_gguf gguf = {0};
    MF_TRY(mf_gguf_open(&c->allocator, from, &gguf, error));
    memset(gguf.bytes + 8, 0, 8); /* how many tensors there are */
    mf_status status =
        write_text(&c->dirs[0], MF_GGUF_TEXT_FILE, (const char *)gguf.bytes, gguf.keys_end, error);
    mf_gguf_free(&gguf);
    return status;
}

mf_status mf_convert_texts(mf_conversion *c, mf_error *error)
{
    static const char *const names[] = {"config.json",
                                        "tokenizer.json",
                                        "tiktoken.model",
                                        "hy.tiktoken",
                                        "tokenizer.model",
                                        "added_tokens.json",
                                        "tokenizer_config.json",
                                        "chat_template.jinja",
                                        "generation_config.json",
                                        "special_tokens_map.json"};
    char from[2 * MF_MAX_PATH];
    bool is_gguf;
    MF_TRY(mf_gguf_locate_text(c->source.source->path, from, sizeof from, &is_gguf, error));
    if (is_gguf)
        return write_gguf_text(c, from, error);
    /* the packed form in three folders has them in one of these */
    MF_TRY(mf_path_join(from, sizeof from, c->source.source->path, "artifacts/model_weights.json",
                        error));
    const bool is_split = mf_file_exists(from) != 0;
    MF_TRY(mf_path_join(from, sizeof from, c->source.source->path, is_split ? "mlx" : ".", error));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        MF_TRY(copy_text(c, from, names[i], error));
    return copy_templates(c, from, error);
}
