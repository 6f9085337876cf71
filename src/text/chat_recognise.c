/* SPDX-License-Identifier: MIT */
/*
 * Which chat template is it? The text is brought to a plain form (no white space, one kind of
 * quotes, no comments) and searched for the statements that the family's published templates share.
 */
#include "text/chat.h"

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

mf_status mf_chat_recognise(mf_chat_style *style, const mf_allocator *a, const char *text,
                            size_t n_bytes, mf_error *error)
{
    mf_chat_style found = {0};
    *style = (mf_chat_style){0};
    if (n_bytes > MAX_TEMPLATE_BYTES)
        return MF_OK;
    char *plain = mf_alloc(a, n_bytes + 1);
    if (plain == NULL)
        return mf_fail_memory(error, n_bytes + 1, "a chat template");
    make_plain(text, n_bytes, plain);
    if (recognise(plain, &found)) {
        found.is_known = true;
        *style = found;
    }
    mf_free(a, plain, n_bytes + 1);
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

mf_status mf_chat_load(mf_chat_style *style, const mf_allocator *a, const char *path,
                       mf_error *error)
{
    char file[MAX_PATH_BYTES];
    *style = (mf_chat_style){0};
    MF_TRY(mf_path_join(file, sizeof file, path, "chat_template.jinja", error));
    if (mf_file_exists(file)) {
        char *text;
        size_t n_bytes;
        MF_TRY(mf_file_read(a, file, MAX_TEMPLATE_BYTES, &text, &n_bytes, error));
        mf_status status = mf_chat_recognise(style, a, text, n_bytes, error);
        mf_free(a, text, n_bytes + 1);
        return status;
    }
    MF_TRY(mf_path_join(file, sizeof file, path, "tokenizer_config.json", error));
    if (!mf_file_exists(file))
        return MF_OK;
    mf_json json = {0};
    MF_TRY(mf_json_read(a, file, MAX_CONFIG_BYTES, &json, error));
    yyjson_val *text = template_of_config(json.root);
    mf_status status = MF_OK;
    if (yyjson_is_str(text))
        status = mf_chat_recognise(style, a, yyjson_get_str(text), yyjson_get_len(text), error);
    mf_json_free(&json);
    return status;
}
