/* SPDX-License-Identifier: MIT */
/*
 * The chat templates of a checkpoint: which file has them, the names of tokens that they print, and
 * conversations written by them. A template that does not parse is kept as the reason why, so that
 * a model can be used without it.
 */
#ifndef MF_TEXT_CHAT_H
#define MF_TEXT_CHAT_H

#include "text/added_tokens.h"
#include "text/jinja/jinja.h"

#include <moeflux/text.h>

#define MF_MAX_TEMPLATES 16

/* What a template without a file is called. */
#define MF_CHAT_UNNAMED "the template"

/* One of several; its parts are the set's allocator's. */
typedef struct mf_chat_template {
    char *name;      /* "default", "tool_use" */
    mf_jinja *jinja; /* NULL: it does not parse */
    mf_error error;  /* then */
} mf_chat_template;

typedef struct mf_chat_set {
    mf_allocator allocator;
    char *source; /* the folder or file that was looked in, for messages; NULL: none */
    mf_chat_template *templates[MF_MAX_TEMPLATES];
    size_t n_templates;
    mf_json variables; /* names of tokens, as templates see them: bos_token */
} mf_chat_set;

/* The template of a family (config.json's model_type, or GGUF's general.architecture) whose
 * checkpoints come without one; NULL: none is known. */
const char *mf_chat_builtin(const char *family);

/* Reads chat_template.jinja and additional_chat_templates/, or chat_template of
 * tokenizer_config.json, and the tokens' names. Without any there is mf_chat_builtin's, or none. */
mf_status mf_chat_load(mf_chat_set *set, const mf_allocator *a, const char *path, mf_error *error);
/* Says where the set's templates are from. */
mf_status mf_chat_set_source(mf_chat_set *set, const mf_allocator *a, const char *path,
                             mf_error *error);
/* Takes a zeroed one, and a half-loaded one. */
void mf_chat_free(mf_chat_set *set);
/* One template more. A mistake in it is kept in it and no error here. */
mf_status mf_chat_add(mf_chat_set *set, const mf_allocator *a, const char *name, const char *file,
                      const char *text, size_t n_bytes, mf_error *error);
/* The tokens' names: an object of JSON, of which the members that are strings (or objects whose
 * content is one) and end in "_token" are taken, unless there already. */
mf_status mf_chat_take_tokens(mf_chat_set *set, const mf_allocator *a, yyjson_val *config,
                              mf_error *error);

/* The template of that name; NULL: there is none. */
const mf_chat_template *mf_chat_find(const mf_chat_set *set, const char *name);
/* Whether there is a template that conversations can be written by. */
bool mf_chat_is_usable(const mf_chat_set *set);

/* A conversation rendered by a template. Free with mf_jinja_output_free. */
mf_status mf_chat_render(const mf_chat_set *set, const mf_chat_params *chat, mf_jinja_output *out,
                         mf_error *error);
/* The same of JSON. */
mf_status mf_chat_render_json(const mf_chat_set *set, const mf_chat_json_params *chat,
                              mf_jinja_output *out, mf_error *error);

#endif
