/* SPDX-License-Identifier: MIT */
/* The templates of a directory, where transformers looks for them. */
#include "text/chat.h"

#include <dirent.h>
#include <string.h>

#define MAX_TEMPLATE_BYTES ((size_t)1 << 20)
#define MAX_CONFIG_BYTES ((size_t)16 << 20)
#define MAX_PATH_BYTES 4096
#define MAX_TOKEN_BYTES 256
#define MAX_TOKENS 64

void mf_chat_free(mf_chat_set *set)
{
    const mf_allocator *a = &set->allocator;
    for (size_t i = 0; i < set->n_templates; i++) {
        mf_chat_template *template = set->templates[i];
        mf_jinja_free(&template->jinja);
        mf_free(a, template->name, strlen(template->name) + 1);
        mf_free(a, template, sizeof *template);
    }
    if (set->source != NULL)
        mf_free(a, set->source, strlen(set->source) + 1);
    mf_json_free(&set->variables);
    *set = (mf_chat_set){0};
}

static mf_status copy_text(const mf_allocator *a, const char *text, char **out, mf_error *error)
{
    const size_t n = strlen(text) + 1;
    char *copy = mf_alloc(a, n);
    if (copy == NULL)
        return mf_fail_memory(error, n, "a chat template");
    memcpy(copy, text, n);
    *out = copy;
    return MF_OK;
}

mf_status mf_chat_set_source(mf_chat_set *set, const mf_allocator *a, const char *path,
                             mf_error *error)
{
    set->allocator = *a;
    return copy_text(a, path, &set->source, error);
}

const mf_chat_template *mf_chat_find(const mf_chat_set *set, const char *name)
{
    for (size_t i = 0; i < set->n_templates; i++)
        if (strcmp(set->templates[i]->name, name) == 0)
            return set->templates[i];
    return NULL;
}

/* An empty one, as the last of the set. */
static mf_status add_empty(mf_chat_set *set, const char *name, mf_error *error)
{
    mf_chat_template *template = mf_alloc_zeroed(&set->allocator, sizeof *template);
    if (template == NULL)
        return mf_fail_memory(error, sizeof *template, "a chat template");
    const mf_status status = copy_text(&set->allocator, name, &template->name, error);
    if (status != MF_OK) {
        mf_free(&set->allocator, template, sizeof *template);
        return status;
    }
    set->templates[set->n_templates++] = template;
    return MF_OK;
}

mf_status mf_chat_add(mf_chat_set *set, const mf_allocator *a, const char *name, const char *file,
                      const char *text, size_t n_bytes, mf_error *error)
{
    set->allocator = *a;
    if (mf_chat_find(set, name) != NULL)
        return MF_OK; /* the first one counts */
    if (set->n_templates == MF_MAX_TEMPLATES)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: more than %d chat templates", file,
                       MF_MAX_TEMPLATES);
    MF_TRY(add_empty(set, name, error));
    mf_chat_template *template = set->templates[set->n_templates - 1];
    mf_status status = mf_jinja_parse(a, file, text, n_bytes, &template->jinja, &template->error);
    if (status != MF_ERR_NO_MEMORY)
        return MF_OK;
    if (error != NULL)
        *error = template->error;
    return status;
}

/* ------------------------------------------------------------------------------------ tokens -- */

static bool is_token_name(const char *key, size_t n)
{
    static const char end[] = "_token";
    return n > sizeof end - 1 && n < MAX_TOKEN_BYTES &&
           memcmp(key + n - (sizeof end - 1), end, sizeof end - 1) == 0;
}

/* Adds the config's tokens to an object that has those before; false: no memory. */
static bool add_tokens(yyjson_mut_doc *doc, yyjson_mut_val *object, yyjson_val *config)
{
    size_t i, n;
    yyjson_val *key, *value;
    yyjson_obj_foreach(config, i, n, key, value)
    {
        yyjson_val *name = yyjson_is_obj(value) ? yyjson_obj_get(value, "content") : value;
        if (!yyjson_is_str(name) || !is_token_name(yyjson_get_str(key), yyjson_get_len(key)) ||
            yyjson_mut_obj_size(object) >= MAX_TOKENS ||
            yyjson_mut_obj_get(object, yyjson_get_str(key)) != NULL)
            continue;
        if (!yyjson_mut_obj_add(object, yyjson_val_mut_copy(doc, key),
                                yyjson_val_mut_copy(doc, name)))
            return false;
    }
    return true;
}

/* Written and read again: a document that is read from has a form of its own. */
mf_status mf_chat_take_tokens(mf_chat_set *set, const mf_allocator *a, yyjson_val *config,
                              mf_error *error)
{
    mf_allocator allocator = *a;
    const yyjson_alc alc = mf_json_allocator(&allocator);
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&alc);
    yyjson_mut_val *object = doc == NULL ? NULL : yyjson_mut_obj(doc);
    size_t n_bytes = 0;
    mf_json json = {0};
    set->allocator = *a;
    const bool is_whole =
        object != NULL &&
        (set->variables.doc == NULL || add_tokens(doc, object, set->variables.root)) &&
        add_tokens(doc, object, config);
    char *text = is_whole
                     ? yyjson_mut_val_write_opts(object, YYJSON_WRITE_NOFLAG, &alc, &n_bytes, NULL)
                     : NULL;
    mf_status status = text == NULL
                           ? mf_fail_memory(error, MAX_TOKEN_BYTES, "names of tokens")
                           : mf_json_parse(a, "names of tokens", text, n_bytes, &json, error);
    mf_block_free(a, text);
    yyjson_mut_doc_free(doc);
    if (status != MF_OK)
        return status;
    mf_json_free(&set->variables);
    set->variables = json;
    return MF_OK;
}

/* ------------------------------------------------------------------------------------- files -- */

/* chat_template of tokenizer_config.json: a string, or a list of named ones. */
static mf_status add_of_config(mf_chat_set *set, const mf_allocator *a, yyjson_val *value,
                               mf_error *error)
{
    static const char file[] = "tokenizer_config.json";
    if (yyjson_is_str(value))
        return mf_chat_add(set, a, "default", file, yyjson_get_str(value), yyjson_get_len(value),
                           error);
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(value, i, n, item)
    {
        yyjson_val *name = yyjson_obj_get(item, "name"), *text = yyjson_obj_get(item, "template");
        if (!yyjson_is_str(name) || !yyjson_is_str(text))
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: chat_template: expected a name and a template, both strings", file);
        MF_TRY(mf_chat_add(set, a, yyjson_get_str(name), file, yyjson_get_str(text),
                           yyjson_get_len(text), error));
    }
    return MF_OK;
}

static mf_status load_config(mf_chat_set *set, const mf_allocator *a, const char *file,
                             mf_error *error)
{
    mf_json json = {0};
    MF_TRY(mf_json_read(a, file, MAX_CONFIG_BYTES, &json, error));
    mf_status status = MF_OK;
    if (set->n_templates == 0)
        status = add_of_config(set, a, yyjson_obj_get(json.root, "chat_template"), error);
    if (status == MF_OK)
        status = mf_chat_take_tokens(set, a, json.root, error);
    mf_json_free(&json);
    return status;
}

static mf_status add_file(mf_chat_set *set, const mf_allocator *a, const char *name,
                          const char *path, mf_error *error)
{
    char *text;
    size_t n_bytes;
    const char *slash = strrchr(path, '/');
    MF_TRY(mf_file_read(a, path, MAX_TEMPLATE_BYTES, &text, &n_bytes, error));
    mf_status status =
        mf_chat_add(set, a, name, slash == NULL ? path : slash + 1, text, n_bytes, error);
    mf_free(a, text, n_bytes + 1);
    return status;
}

/* The files NAME.jinja of a folder. */
static mf_status add_folder(mf_chat_set *set, const mf_allocator *a, const char *folder,
                            mf_error *error)
{
    static const char end[] = ".jinja";
    char path[MAX_PATH_BYTES], name[256];
    mf_status status = MF_OK;
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return MF_OK;
    for (struct dirent *entry; status == MF_OK && (entry = readdir(dir)) != NULL;) {
        size_t n = strlen(entry->d_name);
        if (n <= sizeof end - 1 || n >= sizeof name ||
            strcmp(entry->d_name + n - (sizeof end - 1), end) != 0)
            continue;
        memcpy(name, entry->d_name, n - (sizeof end - 1));
        name[n - (sizeof end - 1)] = '\0';
        status = mf_path_join(path, sizeof path, folder, entry->d_name, error);
        if (status == MF_OK)
            status = add_file(set, a, name, path, error);
    }
    closedir(dir);
    return status;
}

/* Where the checkpoint has no template its family may. Of a config that cannot be read others say
 * why. */
static mf_status add_builtin(mf_chat_set *set, const mf_allocator *a, const char *file,
                             mf_error *error)
{
    mf_json json = {0};
    mf_status status = mf_json_read(a, file, MAX_CONFIG_BYTES, &json, error);
    if (status != MF_OK)
        return status == MF_ERR_NO_MEMORY ? status : MF_OK;
    const char *type = yyjson_get_str(yyjson_obj_get(json.root, "model_type"));
    const char *text = type == NULL ? NULL : mf_chat_builtin(type);
    if (text != NULL)
        status = mf_chat_add(set, a, "default", MF_CHAT_UNNAMED, text, strlen(text), error);
    mf_json_free(&json);
    return status;
}

mf_status mf_chat_load(mf_chat_set *set, const mf_allocator *a, const char *path, mf_error *error)
{
    static const char *const configs[] = {"tokenizer_config.json", "special_tokens_map.json"};
    char file[MAX_PATH_BYTES];
    MF_TRY(mf_chat_set_source(set, a, path, error));
    MF_TRY(mf_path_join(file, sizeof file, path, "chat_template.jinja", error));
    if (mf_file_exists(file))
        MF_TRY(add_file(set, a, "default", file, error));
    MF_TRY(mf_path_join(file, sizeof file, path, "additional_chat_templates", error));
    MF_TRY(add_folder(set, a, file, error));
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        MF_TRY(mf_path_join(file, sizeof file, path, configs[i], error));
        if (mf_file_exists(file))
            MF_TRY(load_config(set, a, file, error));
    }
    MF_TRY(mf_path_join(file, sizeof file, path, "config.json", error));
    return set->n_templates == 0 && mf_file_exists(file) ? add_builtin(set, a, file, error) : MF_OK;
}
