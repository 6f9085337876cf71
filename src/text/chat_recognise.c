/* SPDX-License-Identifier: MIT */
/*
 * Which chat template is it? The text is brought to a plain form (no white space, one kind of
 * quotes, no comments) and searched for the statements that the family's published templates share.
 */
#include "text/chat_template.h"

#include <string.h>

#define MAX_TEMPLATE_BYTES ((size_t)1 << 20)
#define MAX_CONFIG_BYTES ((size_t)16 << 20)
#define MAX_PATH_BYTES 4096

/* The plain form of text[n_bytes] in out[n_bytes + 1]. */
static void make_plain(const char *text, size_t n_bytes, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        char c = text[i];
        if (c == '{' && i + 1 < n_bytes && text[i + 1] == '#') {
            while (i + 1 < n_bytes && !(text[i] == '#' && text[i + 1] == '}'))
                i++;
            i++;
            continue;
        }
        if (c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '\0')
            continue;
        out[n++] = c == '"' ? '\'' : c;
    }
    out[n] = '\0';
}

static bool has(const char *plain, const char *statement)
{
    return strstr(plain, statement) != NULL;
}

#define OPEN "%}{{-'<|im_start|>assistant\\n'}}"
#define EMPTY_THOUGHT "{{-'<think>\\n\\n</think>\\n\\n'}}"
#define OPEN_THOUGHT "{{-'<think>\\n'}}"
#define IF_OFF "{%-ifenable_thinkingisdefinedandenable_thinkingisfalse%}"
#define IF_ON "{%-ifenable_thinkingisdefinedandenable_thinkingistrue%}"
#define END "{%-endif%}"

/* How the answer is opened: all that follows the last "if add_generation_prompt". */
static bool recognise_opening(const char *plain, mf_chat_opening *out)
{
    static const struct {
        const char *statements;
        mf_chat_opening opening;
    } known[] = {
        {OPEN END, MF_OPENING_PLAIN},
        {OPEN IF_OFF EMPTY_THOUGHT END END, MF_OPENING_CLOSABLE},
        {OPEN IF_OFF EMPTY_THOUGHT "{%-else%}" OPEN_THOUGHT END END, MF_OPENING_THINK},
        {OPEN IF_ON OPEN_THOUGHT "{%-else%}" EMPTY_THOUGHT END END, MF_OPENING_THINK_ASKED},
        {"%}{{-'<|im_start|>assistant\\n<think>\\n'}}" END, MF_OPENING_ALWAYS},
    };
    static const char start[] = "{%-ifadd_generation_prompt";
    const char *tail = NULL;
    for (const char *p = plain; (p = strstr(p, start)) != NULL; p++)
        tail = p + sizeof start - 1;
    for (size_t i = 0; tail != NULL && i < sizeof known / sizeof *known; i++) {
        if (strcmp(tail, known[i].statements) == 0) {
            *out = known[i].opening;
            return true;
        }
    }
    return false;
}

/* How earlier assistant turns are written. */
static bool recognise_history(const char *plain, mf_chat_style *style)
{
    static const char asked_after_last[] =
        "{%-ifloop.lastor(notloop.lastandreasoning_content)%}{{-'<|im_start|>'+message.role+'\\n"
        "<think>\\n'+reasoning_content.strip('\\n')+'\\n</think>\\n\\n'+content.lstrip('\\n')}}";
    static const char always[] = "{{-'<|im_start|>'+message.role+'\\n<think>\\n'+reasoning_content+"
                                 "'\\n</think>\\n\\n'+content}}";
    style->splits_thoughts =
        has(plain, "if'</think>'incontent%}") || has(plain, "if'</think>'inmessage.content%}");
    if (!has(plain, "last_query_index")) {
        style->history = MF_HISTORY_PLAIN;
        return !style->splits_thoughts && !has(plain, "reasoning_content");
    }
    if (has(plain, asked_after_last))
        style->history = MF_HISTORY_LAST_TURNS;
    else if (has(plain, always))
        style->history = MF_HISTORY_ALWAYS;
    else
        return false;
    style->keeps_thoughts = has(plain, "preserve_thinkingisundefined");
    return style->keeps_thoughts || has(plain, "loop.index0>ns.last_query_index");
}

static bool recognise(const char *plain, mf_chat_style *style)
{
    /* A default system message, or instructions on how hard to think, are of other templates. */
    if (has(plain, "YouareQwen,createdby") || has(plain, "Youareahelpfulassistant") ||
        has(plain, "reasoning_effort"))
        return false;
    if (!has(plain, "'<|im_start|>system\\n'+") ||
        !has(plain, "'<|im_start|>'+message.role+'\\n'+"))
        return false;
    style->trims = has(plain, "render_content(message.content,true)|trim") ||
                   has(plain, "render_content(message.content,True)|trim");
    style->wants_system_first = has(plain, "Systemmessagemustbeatthebeginning");
    style->wants_question = has(plain, "Nouserqueryfoundinmessages");
    return recognise_opening(plain, &style->opening) && recognise_history(plain, style);
}

/* Tries the families in turn; what one of them half recognised is forgotten. */
static bool recognise_any(const char *text, size_t n_bytes, char *form, mf_chat_style *style)
{
    static bool (*const families[])(const char *canonical, mf_chat_style *style) = {
        mf_chat_recognise_deepseek, mf_chat_recognise_cogito, mf_chat_recognise_kimi};
    make_plain(text, n_bytes, form);
    if (recognise(form, style))
        return true;
    mf_chat_canonical(text, n_bytes, form);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        *style = (mf_chat_style){0};
        if (families[i](form, style))
            return true;
    }
    return false;
}

mf_status mf_chat_recognise(mf_chat_style *style, const mf_allocator *a, const char *text,
                            size_t n_bytes, mf_error *error)
{
    mf_chat_style found = {0};
    *style = (mf_chat_style){.source = MF_CHAT_UNNAMED};
    if (n_bytes > MAX_TEMPLATE_BYTES)
        return MF_OK;
    char *form = mf_alloc(a, 2 * n_bytes + 1);
    if (form == NULL)
        return mf_fail_memory(error, 2 * n_bytes + 1, "a chat template");
    if (recognise_any(text, n_bytes, form, &found)) {
        found.is_known = true;
        found.source = style->source;
        *style = found;
    }
    mf_free(a, form, 2 * n_bytes + 1);
    return MF_OK;
}

/* chat_template of tokenizer_config.json: a string, or a list of named ones. */
static yyjson_val *template_of_config(yyjson_val *root)
{
    yyjson_val *value = yyjson_obj_get(root, "chat_template");
    if (!yyjson_is_arr(value))
        return value;
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(value, i, n, item)
    {
        if (yyjson_equals_str(yyjson_obj_get(item, "name"), "default"))
            return yyjson_obj_get(item, "template");
    }
    return NULL;
}

/* bos_token or eos_token: a string, or an object with its content; absent: empty, as in Jinja. */
static mf_status read_name(const mf_json *config, const char *field, char out[MF_MAX_CHAT_NAME],
                           mf_error *error)
{
    yyjson_val *value = yyjson_obj_get(config->root, field);
    if (yyjson_is_obj(value))
        value = yyjson_obj_get(value, "content");
    if (!yyjson_is_str(value))
        return MF_OK;
    if (yyjson_get_len(value) >= MF_MAX_CHAT_NAME)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: %s: %zu bytes, expected at most %d",
                       config->path, field, yyjson_get_len(value), MF_MAX_CHAT_NAME - 1);
    memcpy(out, yyjson_get_str(value), yyjson_get_len(value) + 1);
    return MF_OK;
}

/* What tokenizer_config.json says: the template, unless it is in a file of its own, and names. */
static mf_status load_config(mf_chat_style *style, const mf_allocator *a, const char *file,
                             mf_error *error)
{
    mf_json json = {0};
    mf_status status = mf_json_read(a, file, MAX_CONFIG_BYTES, &json, error);
    if (status != MF_OK)
        return status;
    yyjson_val *text = template_of_config(json.root);
    if (!style->is_known && yyjson_is_str(text)) {
        status = mf_chat_recognise(style, a, yyjson_get_str(text), yyjson_get_len(text), error);
        style->source = "tokenizer_config.json";
    }
    bool has_names = style->family != MF_CHAT_QWEN && style->family != MF_CHAT_KIMI;
    if (status == MF_OK && has_names)
        status = read_name(&json, "bos_token", style->bos, error);
    if (status == MF_OK && has_names)
        status = read_name(&json, "eos_token", style->eos, error);
    mf_json_free(&json);
    return status;
}

mf_status mf_chat_load(mf_chat_style *style, const mf_allocator *a, const char *path,
                       mf_error *error)
{
    char file[MAX_PATH_BYTES];
    *style = (mf_chat_style){0};
    MF_TRY(mf_path_join(file, sizeof file, path, "chat_template.jinja", error));
    bool has_file = mf_file_exists(file);
    if (has_file) {
        char *text;
        size_t n_bytes;
        MF_TRY(mf_file_read(a, file, MAX_TEMPLATE_BYTES, &text, &n_bytes, error));
        mf_status status = mf_chat_recognise(style, a, text, n_bytes, error);
        mf_free(a, text, n_bytes + 1);
        MF_TRY(status);
        style->source = "chat_template.jinja";
    }
    MF_TRY(mf_path_join(file, sizeof file, path, "tokenizer_config.json", error));
    /* A template of its own that is not known stays so, whatever the config has. */
    if ((has_file && !style->is_known) || !mf_file_exists(file))
        return MF_OK;
    return load_config(style, a, file, error);
}
