/* SPDX-License-Identifier: MIT */
/* A tokenizer from a GGUF file's metadata. */
#include "text/gguf_text_internal.h"

#include <stdio.h>
#include <string.h>

#define PREFIX "tokenizer.ggml."
#define MAX_FIELD_BYTES 512

mf_status mf_gguf_text_fail(const mf_gguf_text_reader *t, mf_status code, const char *key,
                            const char *what)
{
    return mf_fail(t->error, code, "%s: key %s%s %s", t->gguf->path, PREFIX, key, what);
}

/* The array of that key; NULL where there is none. */
mf_status mf_gguf_text_array(const mf_gguf_text_reader *t, const char *key, bool is_text,
                             const mf_gguf_value **out)
{
    char full[64];
    snprintf(full, sizeof full, PREFIX "%s", key);
    *out = mf_gguf_find(t->gguf, full);
    if (*out != NULL && (!(*out)->is_array || ((*out)->type == MF_GGUF_STRING) != is_text))
        return mf_gguf_text_fail(t, MF_ERR_FORMAT, key,
                                 is_text ? "is no array of strings" : "is no array of numbers");
    return MF_OK;
}

int mf_gguf_token_type(const mf_gguf_text_reader *t, uint64_t id)
{
    double type = MF_GGUF_NORMAL;
    (void)mf_gguf_number(t->gguf, t->types, id, &type);
    return type >= MF_GGUF_NORMAL && type <= MF_GGUF_BYTE ? (int)type : MF_GGUF_NORMAL;
}

/* The id that a key names, -1 where it names none. */
mf_status mf_gguf_text_id(const mf_gguf_text_reader *t, const char *key, int32_t *out)
{
    char full[64];
    double id;
    *out = -1;
    snprintf(full, sizeof full, PREFIX "%s", key);
    const mf_gguf_value *v = mf_gguf_find(t->gguf, full);
    if (v == NULL || (mf_gguf_number(t->gguf, v, 0, &id) && id >= (double)UINT32_MAX))
        return MF_OK; /* how some files write "none" */
    if (v->is_array || !mf_gguf_number(t->gguf, v, 0, &id) ||
        !(id >= 0 && id < (double)t->tokens->n) || id != (double)(int32_t)id)
        return mf_gguf_text_fail(t, MF_ERR_FORMAT, key, "is no token's id");
    *out = (int32_t)id;
    return MF_OK;
}

bool mf_gguf_text_flag(const mf_gguf_text_reader *t, const char *key, bool fallback)
{
    char full[64];
    double value;
    snprintf(full, sizeof full, PREFIX "%s", key);
    return mf_gguf_number(t->gguf, mf_gguf_find(t->gguf, full), 0, &value) ? value != 0 : fallback;
}

/* ---------------------------------------------------------------------------- tokenizer.json -- */

static mf_status put(mf_gguf_text_reader *t, const char *text)
{
    return mf_buffer_append(&t->json, text, strlen(text), "a vocabulary", t->error);
}

/* A string of JSON. That it is UTF-8 is for who reads it to check. */
static mf_status put_string(mf_gguf_text_reader *t, const char *text, size_t n)
{
    size_t start = 0;
    MF_TRY(put(t, "\""));
    for (size_t i = 0; i <= n; i++) {
        const unsigned char c = i < n ? (unsigned char)text[i] : 0;
        char escaped[8];
        if (i < n && c >= 0x20 && c != '"' && c != '\\')
            continue;
        MF_TRY(mf_buffer_append(&t->json, text + start, i - start, "a vocabulary", t->error));
        start = i + 1;
        snprintf(escaped, sizeof escaped, "\\u%04x", c);
        if (i < n)
            MF_TRY(put(t, escaped));
    }
    return put(t, "\"");
}

static mf_status put_vocabulary(mf_gguf_text_reader *t)
{
    mf_gguf_text token;
    size_t at = 0;
    bool is_first = true;
    MF_TRY(put(t, "\"vocab\":{"));
    for (uint64_t id = 0; mf_gguf_next(t->gguf, t->tokens, &at, &token); id++) {
        char number[24];
        if (mf_gguf_token_type(t, id) == MF_GGUF_UNUSED || token.n_bytes == 0)
            continue; /* fills a gap */
        MF_TRY(is_first ? MF_OK : put(t, ","));
        MF_TRY(put_string(t, token.text, token.n_bytes));
        snprintf(number, sizeof number, ":%llu", (unsigned long long)id);
        MF_TRY(put(t, number));
        is_first = false;
    }
    return put(t, "}");
}

static mf_status put_merges(mf_gguf_text_reader *t)
{
    mf_gguf_text merge;
    MF_TRY(put(t, ",\"merges\":["));
    for (size_t at = 0; mf_gguf_next(t->gguf, t->merges, &at, &merge);) {
        const bool is_last = at >= t->merges->n_bytes;
        MF_TRY(put_string(t, merge.text, merge.n_bytes));
        MF_TRY(is_last ? MF_OK : put(t, ","));
    }
    return put(t, "]");
}

/* Control tokens are special, those that users defined are not. */
static mf_status put_added(mf_gguf_text_reader *t)
{
    mf_gguf_text token;
    size_t at = 0;
    bool is_first = true;
    MF_TRY(put(t, ",\"added_tokens\":["));
    for (uint64_t id = 0; mf_gguf_next(t->gguf, t->tokens, &at, &token); id++) {
        const int type = mf_gguf_token_type(t, id);
        if ((type != MF_GGUF_CONTROL && type != MF_GGUF_USER_DEFINED) || token.n_bytes == 0)
            continue;
        MF_TRY(put(t, is_first ? "{\"content\":" : ",{\"content\":"));
        MF_TRY(put_string(t, token.text, token.n_bytes));
        MF_TRY(put(t, type == MF_GGUF_CONTROL ? ",\"special\":true}" : ",\"special\":false}"));
        is_first = false;
    }
    return put(t, "]");
}

static mf_status put_pretokenizer(mf_gguf_text_reader *t, const mf_named_pretokenizer *p)
{
    const char *const kimi[] = {mf_kimi_pattern, NULL};
    const char *const *patterns = p->is_kimi ? kimi : p->patterns;
    MF_TRY(put(t, ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["));
    for (size_t i = 0; i < MF_PRETOKENIZER_STEPS && patterns[i] != NULL; i++) {
        MF_TRY(put(t, "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":"));
        MF_TRY(put_string(t, patterns[i], strlen(patterns[i])));
        MF_TRY(put(t, "}},"));
    }
    return put(t, "{\"type\":\"ByteLevel\",\"use_regex\":false}]}");
}

static mf_status put_tokenizer(mf_gguf_text_reader *t, const mf_named_pretokenizer *p)
{
    MF_TRY(put(t, "{\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","));
    MF_TRY(p->ignores_merges ? put(t, "\"ignore_merges\":true,") : MF_OK);
    MF_TRY(put_vocabulary(t));
    MF_TRY(put_merges(t));
    MF_TRY(put(t, "}"));
    MF_TRY(put_added(t));
    MF_TRY(p->uses_nfc ? put(t, ",\"normalizer\":{\"type\":\"NFC\"}") : MF_OK);
    MF_TRY(put_pretokenizer(t, p));
    return put(t, "}");
}

static mf_status find_pretokenizer(const mf_gguf_text_reader *t, const mf_named_pretokenizer **out)
{
    mf_gguf_text name;
    if (!mf_gguf_string(t->gguf, mf_gguf_find(t->gguf, PREFIX "pre"), &name))
        return mf_gguf_text_fail(t, MF_ERR_UNSUPPORTED, "pre",
                                 "is missing, so that it is not known how text is cut into words");
    *out = mf_find_pretokenizer(name.text, name.n_bytes);
    if (*out == NULL)
        return mf_fail(t->error, MF_ERR_UNSUPPORTED,
                       "%s: key " PREFIX "pre is %.*s, which is not supported", t->gguf->path,
                       (int)(name.n_bytes > 64 ? 64 : name.n_bytes), name.text);
    return MF_OK;
}

static mf_status open_byte_level(mf_gguf_text_reader *t, const mf_allocator *a, mf_tokenizer **out)
{
    const mf_named_pretokenizer *p;
    char path[MAX_FIELD_BYTES];
    mf_json json = {0};
    MF_TRY(mf_gguf_text_array(t, "merges", true, &t->merges));
    if (t->merges == NULL)
        return mf_gguf_text_fail(t, MF_ERR_FORMAT, "merges", "is missing");
    MF_TRY(find_pretokenizer(t, &p));
    MF_TRY(put_tokenizer(t, p));
    snprintf(path, sizeof path, "%.400s: %.14s", t->gguf->path, PREFIX);
    mf_status status =
        mf_json_parse(a, path, (const char *)t->json.data, t->json.n_bytes, &json, t->error);
    mf_buffer_free(&t->json);
    if (status != MF_OK)
        return status;
    status = mf_text_open_json(&json, a, out, t->error);
    mf_json_free(&json);
    if (status != MF_OK)
        return status;
    (*out)->cuts_runs = p->is_kimi;
    return mf_gguf_text_flag(t, "add_bos_token", p->adds_start)
               ? mf_gguf_text_id(t, "bos_token_id", &(*out)->start_token)
               : MF_OK;
}

/* ---------------------------------------------------------------------------- ends and chats -- */

static mf_status add_end(const mf_gguf_text_reader *t, mf_tokenizer *tokenizer, int32_t id)
{
    if (id < 0 || mf_tokenizer_is_end(tokenizer, id) || (size_t)id >= tokenizer->bpe.n_ids)
        return MF_OK;
    if (tokenizer->n_end_tokens == MF_MAX_END_TOKENS)
        return mf_fail(t->error, MF_ERR_UNSUPPORTED, "%s: more than %d end tokens", t->gguf->path,
                       MF_MAX_END_TOKENS);
    tokenizer->end_tokens[tokenizer->n_end_tokens++] = id;
    return MF_OK;
}

/* Those that the file names, and those that end an answer wherever they are control tokens. */
static mf_status add_ends(const mf_gguf_text_reader *t, mf_tokenizer *tokenizer)
{
    static const char *const keys[] = {"eos_token_id", "eot_token_id", "eom_token_id"};
    static const char *const texts[] = {
        "<|im_end|>", "<|endoftext|>", "<|eot_id|>",    "<|eom_id|>", "<|eot|>",        "<|eom|>",
        "<|return|>", "<|call|>",      "<end_of_turn>", "<|user|>",   "<|observation|>"};
    int32_t id;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        MF_TRY(mf_gguf_text_id(t, keys[i], &id));
        MF_TRY(add_end(t, tokenizer, id));
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const mf_added_token *token =
            mf_added_tokens_find(&tokenizer->added, texts[i], strlen(texts[i]));
        if (token != NULL && token->is_special)
            MF_TRY(add_end(t, tokenizer, (int32_t)token->id));
    }
    return MF_OK;
}

/* The text of a token, for templates to print; false where there is none. */
static bool token_text(const mf_gguf_text_reader *t, int32_t id, mf_gguf_text *out)
{
    size_t at = 0;
    for (int32_t i = 0; mf_gguf_next(t->gguf, t->tokens, &at, out); i++)
        if (i == id)
            return true;
    return false;
}

static mf_status take_names(mf_gguf_text_reader *t, mf_tokenizer *tokenizer)
{
    static const char *const names[][2] = {{"bos_token_id", "bos_token"},
                                           {"eos_token_id", "eos_token"},
                                           {"padding_token_id", "pad_token"},
                                           {"unknown_token_id", "unk_token"}};
    mf_json json = {0};
    t->json.n_bytes = 0;
    MF_TRY(put(t, "{\"names\":0"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t id;
        mf_gguf_text text;
        MF_TRY(mf_gguf_text_id(t, names[i][0], &id));
        if (!token_text(t, id, &text))
            continue;
        MF_TRY(put(t, ","));
        MF_TRY(put_string(t, names[i][1], strlen(names[i][1])));
        MF_TRY(put(t, ":"));
        MF_TRY(put_string(t, text.text, text.n_bytes));
    }
    MF_TRY(put(t, "}"));
    MF_TRY(mf_json_parse(&tokenizer->allocator, t->gguf->path, (const char *)t->json.data,
                         t->json.n_bytes, &json, t->error));
    mf_status status =
        mf_chat_take_tokens(&tokenizer->chat, &tokenizer->allocator, json.root, t->error);
    mf_json_free(&json);
    return status;
}

static mf_status add_template(const mf_gguf_text_reader *t, mf_tokenizer *tokenizer,
                              const char *name, const char *key)
{
    mf_gguf_text text;
    if (!mf_gguf_string(t->gguf, mf_gguf_find(t->gguf, key), &text))
        return MF_OK;
    return mf_chat_add(&tokenizer->chat, &tokenizer->allocator, name, "tokenizer.chat_template",
                       text.text, text.n_bytes, t->error);
}

/* Where the file has no template its architecture may. */
static mf_status add_builtin(const mf_gguf_text_reader *t, mf_tokenizer *tokenizer)
{
    mf_gguf_text arch;
    char name[64];
    if (!mf_gguf_string(t->gguf, mf_gguf_find(t->gguf, "general.architecture"), &arch) ||
        arch.n_bytes >= sizeof name)
        return MF_OK;
    snprintf(name, sizeof name, "%.*s", (int)arch.n_bytes, arch.text);
    const char *text = mf_chat_builtin(name);
    return text == NULL ? MF_OK
                        : mf_chat_add(&tokenizer->chat, &tokenizer->allocator, "default",
                                      MF_CHAT_UNNAMED, text, strlen(text), t->error);
}

static mf_status add_templates(const mf_gguf_text_reader *t, mf_tokenizer *tokenizer)
{
    const mf_gguf_value *names = mf_gguf_find(t->gguf, "tokenizer.chat_templates");
    mf_gguf_text name;
    MF_TRY(mf_chat_set_source(&tokenizer->chat, &tokenizer->allocator, t->gguf->path, t->error));
    MF_TRY(add_template(t, tokenizer, "default", "tokenizer.chat_template"));
    for (size_t at = 0;
         names != NULL && names->is_array && mf_gguf_next(t->gguf, names, &at, &name);) {
        char own[64], key[128];
        if (name.n_bytes == 0 || name.n_bytes >= sizeof own)
            continue;
        snprintf(own, sizeof own, "%.*s", (int)name.n_bytes, name.text);
        snprintf(key, sizeof key, "tokenizer.chat_template.%s", own);
        MF_TRY(add_template(t, tokenizer, own, key));
    }
    return tokenizer->chat.n_templates == 0 ? add_builtin(t, tokenizer) : MF_OK;
}

/* ----------------------------------------------------------------------------------- opening -- */

static mf_status open_model(mf_gguf_text_reader *t, const mf_allocator *a, mf_tokenizer **out)
{
    static const char key[] = PREFIX "model";
    mf_gguf_text model = {"?", 1};
    MF_TRY(mf_gguf_text_array(t, "tokens", true, &t->tokens));
    MF_TRY(mf_gguf_text_array(t, "token_type", false, &t->types));
    if (mf_gguf_find(t->gguf, key) == NULL || mf_gguf_is(t->gguf, key, "none"))
        return mf_gguf_text_fail(t, MF_ERR_NOT_FOUND, "model",
                                 "is none; supported are gpt2, llama, t5");
    (void)mf_gguf_string(t->gguf, mf_gguf_find(t->gguf, key), &model);
    const bool is_unigram = mf_gguf_is(t->gguf, key, "t5");
    const bool is_spm = is_unigram || mf_gguf_is(t->gguf, key, "llama");
    if (!is_spm && !mf_gguf_is(t->gguf, key, "gpt2"))
        return mf_fail(t->error, MF_ERR_UNSUPPORTED,
                       "%s: key %s is %.*s; supported are gpt2, llama, t5", t->gguf->path, key,
                       (int)(model.n_bytes > 64 ? 64 : model.n_bytes), model.text);
    if (t->tokens == NULL)
        return mf_gguf_text_fail(t, MF_ERR_FORMAT, "tokens", "is missing");
    return is_spm ? mf_gguf_open_spm(t, a, is_unigram, out) : open_byte_level(t, a, out);
}

mf_status mf_text_of_gguf(const mf_gguf *gguf, const mf_allocator *a, mf_tokenizer **out,
                          mf_error *error)
{
    mf_gguf_text_reader t = {.gguf = gguf, .error = error};
    mf_tokenizer *tokenizer = NULL;
    mf_buffer_init(&t.json, a);
    mf_status status = open_model(&t, a, &tokenizer);
    if (status == MF_OK)
        status = add_ends(&t, tokenizer);
    if (status == MF_OK)
        status = take_names(&t, tokenizer);
    if (status == MF_OK)
        status = add_templates(&t, tokenizer);
    mf_buffer_free(&t.json);
    if (status == MF_OK)
        *out = tokenizer;
    else
        mf_text_close(&tokenizer);
    return status;
}

mf_status mf_text_open_gguf(const char *file, const mf_allocator *a, mf_tokenizer **out,
                            mf_error *error)
{
    mf_gguf gguf = {0};
    MF_TRY(mf_gguf_open(a, file, &gguf, error));
    mf_status status = mf_text_of_gguf(&gguf, a, out, error);
    mf_gguf_free(&gguf);
    return status;
}
