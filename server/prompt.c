/* SPDX-License-Identifier: MIT */
/*
 * Prompts. The marks are where the next request will part from this one: found by writing the
 * conversation with another turn behind it, without an answer, and with another first question, and
 * comparing tokens.
 */
#include "prompt.h"

#include "history.h"

#include <stdlib.h>
#include <string.h>

void mf_srv_prompt_free(mf_srv_prompt *prompt)
{
    free(prompt->tokens);
    mf_srv_bytes_free(&prompt->text);
    *prompt = (mf_srv_prompt){0};
}

static bool no_memory(mf_srv_refusal *refusal)
{
    return mf_srv_refuse(refusal, 503, "out of memory for the prompt");
}

bool mf_srv_encode(const mf_srv_model *model, const char *text, size_t n_bytes, bool parse_special,
                   mf_srv_prompt *out, mf_srv_refusal *refusal)
{
    mf_error error = {0};
    size_t n = n_bytes + 2; /* a token is a byte at least, but for a changed character */
    for (;;) {
        size_t capacity = n;
        int32_t *tokens = malloc((capacity + 1) * sizeof *tokens);
        if (!tokens)
            return no_memory(refusal);
        mf_status status = mf_tokenizer_encode(model->tokenizer, text, n_bytes, parse_special,
                                               tokens, capacity, &n, &error);
        if (status == MF_OK && n <= capacity) {
            *out = (mf_srv_prompt){.tokens = tokens, .n_tokens = n};
            return true;
        }
        free(tokens);
        if (status != MF_OK)
            return mf_srv_refuse_status(refusal, status, &error);
    }
}

void mf_srv_prompt_mark_end(const mf_srv_model *model, mf_srv_prompt *prompt)
{
    /* The store keeps marks without logits, so the last token is to be evaluated again. It is one
     * mark or the other: a session's newest alone is sure to stay when memory for marks is short.
     */
    const bool is_before = model->store && prompt->n_tokens > 1;
    prompt->marks[prompt->n_marks++] = prompt->n_tokens - is_before;
}

/* The token that sequences begin with, if the model has one and it is not there. There is room:
 * mf_srv_encode leaves it. */
static void put_start(const mf_srv_model *model, mf_srv_prompt *prompt)
{
    const int32_t start = mf_tokenizer_start(model->tokenizer);
    if (start < 0 || prompt->tokens == NULL || (prompt->n_tokens > 0 && prompt->tokens[0] == start))
        return;
    memmove(prompt->tokens + 1, prompt->tokens, prompt->n_tokens++ * sizeof *prompt->tokens);
    prompt->tokens[0] = start;
    prompt->has_start = true;
}

bool mf_srv_prompt_text(const mf_srv_model *model, const char *text, size_t n_bytes,
                        bool parse_special, mf_srv_prompt *out, mf_srv_refusal *refusal)
{
    if (!mf_srv_encode(model, text, n_bytes, parse_special, out, refusal))
        return false;
    put_start(model, out);
    mf_srv_prompt_mark_end(model, out);
    return true;
}

/* --------------------------------------------------------------------------- with a template -- */

/* Of a from a token on. */
static size_t n_common(const mf_srv_prompt *a, size_t begin, const mf_srv_prompt *b)
{
    size_t n = 0;
    while (begin + n < a->n_tokens && n < b->n_tokens && a->tokens[begin + n] == b->tokens[n])
        n++;
    return n;
}

/* A prompt in the making: n_known tokens stand for the first n_skip bytes of its text. */
typedef struct making {
    mf_srv_writing w;
    mf_srv_prompt *prompt;
    size_t n_known, n_skip;
} making;

/* How many tokens the prompt shares with these messages; 0 where the template refuses them, or
 * where they part within what is known. */
static size_t n_shared(const making *k, const mf_srv_message *messages, size_t n)
{
    const mf_srv_bytes *own = &k->prompt->text;
    mf_srv_prompt other = {0};
    mf_srv_bytes text = {0};
    size_t n_same = 0;
    if (k->n_skip > 0 && (mf_srv_template_text(&k->w, messages, n, false, &text, NULL) != MF_OK ||
                          text.n_bytes < k->n_skip || own->n_bytes < k->n_skip ||
                          memcmp(text.data, own->data, k->n_skip) != 0)) {
        mf_srv_bytes_free(&text);
        return 0;
    }
    mf_srv_bytes_free(&text);
    if (mf_srv_template_tokens(&k->w, messages, n, false, k->n_skip, &other, NULL) == MF_OK)
        n_same = k->n_known + n_common(k->prompt, k->n_known, &other);
    mf_srv_prompt_free(&other);
    return n_same;
}

/* A message that says one letter. */
static mf_srv_message letter(mf_srv_role role, char *text)
{
    return (mf_srv_message){.role = role, .content = {.data = text, .n_bytes = 1}};
}

/* Where another conversation with the same system message and tools parts from this one. */
static size_t mark_of_system(const making *k)
{
    char text[] = "x";
    const mf_srv_conversation *c = k->w.conversation;
    const bool has_system = c->n_messages > 1 && c->messages[0].role == MF_SRV_SYSTEM;
    if (!has_system && !c->tools.data)
        return 0;
    const mf_srv_message *first = &c->messages[has_system];
    *text = first->content.data && *first->content.data == 'x' ? 'y' : 'x';
    mf_srv_message messages[2] = {letter(MF_SRV_USER, text), letter(MF_SRV_USER, text)};
    if (has_system)
        messages[0] = c->messages[0];
    return n_shared(k, messages, 1 + has_system);
}

/* Where the conversation goes on in another way: after another answer, whose thoughts, and those of
 * the run before it, the template may drop; or with another message in the answer's place. */
static size_t mark_of_turn(const making *k)
{
    char text[] = "x";
    const mf_srv_conversation *c = k->w.conversation;
    const size_t n = c->n_messages;
    mf_srv_message *messages = malloc((n + 2) * sizeof *messages);
    if (!messages)
        return 0;
    memcpy(messages, c->messages, n * sizeof *messages);
    messages[n] = letter(MF_SRV_ASSISTANT, text);
    messages[n + 1] = letter(MF_SRV_USER, text);
    const size_t after = n_shared(k, messages, n + 2), before = n_shared(k, messages, n);
    free(messages);
    /* behind thoughts that stay without the template, it cannot be seen where an answer's end is */
    const bool is_after_known = after > 0 || !c->keeps_thoughts;
    return before > 0 && (before < after || !is_after_known) ? before : after;
}

static void add_mark(mf_srv_prompt *prompt, size_t at)
{
    if (at > 0 && (prompt->n_marks == 0 || at > prompt->marks[prompt->n_marks - 1]))
        prompt->marks[prompt->n_marks++] = at;
}

/* Tokens [more] behind the prompt's. */
static bool append(mf_srv_prompt *prompt, const mf_srv_prompt *more)
{
    int32_t *tokens =
        realloc(prompt->tokens, (prompt->n_tokens + more->n_tokens + 1) * sizeof *tokens);
    if (!tokens)
        return false;
    if (more->n_tokens > 0)
        memcpy(tokens + prompt->n_tokens, more->tokens, more->n_tokens * sizeof *tokens);
    prompt->tokens = tokens;
    prompt->n_tokens += more->n_tokens;
    return true;
}

/* Tokens one behind the other; the text is no token's. */
static bool append_part(const mf_srv_model *model, int32_t token, const char *text, size_t n_bytes,
                        mf_srv_prompt *out, mf_srv_refusal *refusal)
{
    mf_srv_prompt mark = {.tokens = &token, .n_tokens = token >= 0}, more = {0};
    if (!mf_srv_encode(model, text, n_bytes, false, &more, refusal))
        return false;
    const bool is_good = append(out, &mark) && append(out, &more);
    mf_srv_prompt_free(&more);
    return is_good || no_memory(refusal);
}

bool mf_srv_prompt_gap(const mf_srv_model *model, const char *before, size_t n_before,
                       const char *behind, size_t n_behind, mf_srv_prompt *out,
                       mf_srv_refusal *refusal)
{
    const mf_srv_gap *g = &model->gap;
    mf_srv_prompt made = {0};
    bool is_good = true;
    if (g->prefix < 0) {
        mf_srv_refuse_field(refusal, "suffix", "this model has no tokens for a gap in a text");
        refusal->code = "unsupported_parameter";
        return false;
    }
    for (int i = 0; i < 2 && is_good; i++)
        is_good = (i == 0) != g->has_suffix_first
                      ? append_part(model, g->prefix, before, n_before, &made, refusal)
                      : append_part(model, g->suffix, behind, n_behind, &made, refusal);
    is_good = is_good && append_part(model, g->middle, "", 0, &made, refusal);
    if (!is_good) {
        mf_srv_prompt_free(&made);
        return false;
    }
    put_start(model, &made);
    mf_srv_prompt_mark_end(model, &made);
    *out = made;
    return true;
}

/* What is known of the prompt's tokens, and the others behind them. */
static mf_status write_tokens(making *k, const mf_srv_history *h, mf_error *error)
{
    const mf_srv_conversation *c = k->w.conversation;
    mf_srv_prompt rest = {0}, begin;
    if (!mf_srv_history_begin(h, &k->w, &k->prompt->text, &begin, &k->n_skip))
        return MF_ERR_NO_MEMORY;
    begin.text = k->prompt->text;
    *k->prompt = begin;
    k->n_known = begin.n_tokens;
    mf_status status =
        mf_srv_template_tokens(&k->w, c->messages, c->n_messages, true, k->n_skip, &rest, error);
    if (status == MF_OK && !append(k->prompt, &rest))
        status = MF_ERR_NO_MEMORY;
    mf_srv_prompt_free(&rest);
    return status;
}

/* A conversation as text, and as tokens with marks. */
static mf_status write_chat(const mf_srv_model *model, const mf_srv_conversation *c,
                            const mf_srv_history *h, mf_srv_prompt *out, mf_error *error)
{
    making k = {.w = {.model = model, .conversation = c, .now = h->now}, .prompt = out};
    mf_status status = mf_srv_template_begin(&k.w, c->n_messages, true, &out->text, error);
    if (status == MF_OK)
        status = write_tokens(&k, h, error);
    if (status != MF_OK)
        return status;
    const size_t system = k.n_known > 0 ? out->origin.system_mark : mark_of_system(&k);
    add_mark(out, system);
    add_mark(out, mark_of_turn(&k));
    mf_srv_history_end(h, &k.w, system, out);
    return MF_OK;
}

static bool refuse_chat(mf_srv_refusal *refusal, mf_status status, const mf_error *error)
{
    mf_srv_refuse_status(refusal, status, error);
    strcpy(refusal->param, "messages");
    return false;
}

/* ------------------------------------------------------------------------ without a template -- */

/* Messages as paragraphs, for models that only go on writing: text alone. */
static void put_paragraphs(const mf_srv_conversation *c, mf_srv_bytes *out)
{
    for (size_t i = 0; i < c->n_messages; i++) {
        const mf_srv_bytes *text = &c->messages[i].content;
        if (i > 0)
            mf_srv_puts(out, "\n\n");
        mf_srv_put(out, text->data ? text->data : "", text->n_bytes);
    }
}

/* Such a model could not know what calls are. */
static bool check_plain(const mf_srv_conversation *c, mf_srv_refusal *refusal)
{
    bool has_calls = c->tools.data != NULL;
    for (size_t i = 0; i < c->n_messages; i++)
        has_calls = has_calls || c->messages[i].n_calls > 0 || c->messages[i].role == MF_SRV_TOOL;
    if (!has_calls)
        return true;
    mf_srv_refuse_field(refusal, c->tools.data ? "tools" : "messages",
                        "this model has no chat template, and knows nothing of tools");
    refusal->code = "unsupported_parameter";
    return false;
}

/* What users write in it is text, and nothing special. */
static bool paragraphs(const mf_srv_model *model, const mf_srv_conversation *c, mf_srv_prompt *out,
                       mf_srv_refusal *refusal)
{
    mf_srv_bytes text = {0};
    if (!check_plain(c, refusal))
        return false;
    put_paragraphs(c, &text);
    bool is_good = !text.has_failed || no_memory(refusal);
    is_good = is_good &&
              mf_srv_encode(model, text.data ? text.data : "", text.n_bytes, false, out, refusal);
    mf_srv_bytes_free(&text);
    if (is_good) {
        put_start(model, out);
        mf_srv_prompt_mark_end(model, out);
    }
    return is_good;
}

/* -------------------------------------------------------------------------------------- both -- */

/* What the answer goes on behind; it is not kept. */
static bool append_text(const mf_srv_model *model, const mf_srv_bytes *text, mf_srv_prompt *prompt,
                        mf_srv_refusal *refusal)
{
    mf_srv_prompt more = {0};
    if (!mf_srv_encode(model, text->data, text->n_bytes, false, &more, refusal))
        return false;
    const bool is_good = append(prompt, &more);
    mf_srv_prompt_free(&more);
    mf_srv_put(&prompt->text, text->data, text->n_bytes);
    prompt->origin.is_known = false;
    return is_good || no_memory(refusal);
}

/* The text that the answer continues; NULL: none. */
static const mf_srv_bytes *continued(const mf_srv_conversation *c)
{
    const mf_srv_message *last = &c->messages[c->n_messages - 1];
    return c->n_messages > 1 && last->role == MF_SRV_ASSISTANT && last->n_calls == 0 &&
                   last->content.data
               ? &last->content
               : NULL;
}

/* With a template. What is continued is no thought. */
static bool with_template(const mf_srv_model *model, mf_srv_conversation *c, mf_srv_prompt *out,
                          mf_srv_refusal *refusal)
{
    mf_srv_history h;
    mf_error error = {0};
    if (!mf_srv_history_open(model, c, &h))
        return no_memory(refusal);
    mf_srv_conversation shorter = *c;
    const mf_srv_bytes *text = continued(c);
    if (text) {
        shorter.n_messages--;
        shorter.thinking = MF_THINKING_OFF;
    }
    mf_status status = write_chat(model, &shorter, &h, out, &error);
    mf_srv_history_close(&h);
    if (status != MF_OK)
        return refuse_chat(refusal, status, &error);
    return !text || append_text(model, text, out, refusal);
}

bool mf_srv_prompt_chat(const mf_srv_model *model, mf_srv_conversation *c, mf_srv_prompt *out,
                        mf_srv_refusal *refusal)
{
    mf_srv_prompt prompt = {0};
    bool is_good = model->has_chat ? with_template(model, c, &prompt, refusal)
                                   : paragraphs(model, c, &prompt, refusal);
    if (is_good)
        *out = prompt;
    else
        mf_srv_prompt_free(&prompt);
    return is_good;
}

bool mf_srv_prompt_chat_text(const mf_srv_model *model, const mf_srv_conversation *c,
                             mf_srv_bytes *out, mf_srv_refusal *refusal)
{
    const mf_srv_bytes *text = continued(c);
    mf_srv_conversation shorter = *c;
    mf_srv_writing w = {.model = model, .conversation = &shorter};
    mf_error error = {0};
    if (!model->has_chat) {
        put_paragraphs(c, out);
        return !out->has_failed || no_memory(refusal);
    }
    if (text) {
        shorter.n_messages--;
        shorter.thinking = MF_THINKING_OFF;
    }
    mf_status status = mf_srv_template_begin(&w, shorter.n_messages, true, out, &error);
    if (status != MF_OK)
        return refuse_chat(refusal, status, &error);
    if (text)
        mf_srv_put(out, text->data, text->n_bytes);
    return !out->has_failed || no_memory(refusal);
}
