/* SPDX-License-Identifier: MIT */
/* Answers found again, and prompts that begin with them. */
#include "history.h"

#include "dropped_thoughts.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <stdlib.h>
#include <string.h>

/* So many answers' tokens are read beside a prompt, the latest ones. */
#define MAX_LOOKS 4u

/* ----------------------------------------------------------------------------------- finding -- */

/* A conversation and a message more. */
static mf_srv_digest chain_of(const mf_srv_recall *recall, const mf_srv_digest *before,
                              const mf_srv_message *m, yyjson_val *tools, bool *has_failed)
{
    mf_srv_bytes text = {0};
    mf_srv_put(&text, (const char *)before, sizeof *before);
    mf_srv_put_meaning(m, tools, &text);
    *has_failed = *has_failed || text.has_failed;
    mf_srv_digest chain = {{0, 0}};
    if (text.data)
        chain = mf_srv_digest_of(mf_srv_recall_key(recall), text.data, text.n_bytes);
    mf_srv_bytes_free(&text);
    return chain;
}

/* Equal but for blanks around them. */
static bool is_same_text(const mf_srv_bytes *a, const mf_srv_bytes *b)
{
    size_t n = a->n_bytes, m = b->n_bytes;
    const char *s = mf_srv_trim(a->data ? a->data : "", &n);
    const char *t = mf_srv_trim(b->data ? b->data : "", &m);
    return n == m && memcmp(s, t, n) == 0;
}

static bool copy_bytes(const mf_srv_bytes *from, mf_srv_bytes *to)
{
    mf_srv_bytes copy = {0};
    if (from->data)
        mf_srv_put(&copy, from->data, from->n_bytes);
    if (copy.has_failed)
        return false;
    mf_srv_bytes_free(to);
    *to = copy;
    return true;
}

/* Results name the call whose they are. */
static bool rename_results(mf_srv_conversation *c, size_t from, const char *old, const char *id)
{
    for (size_t i = from; i < c->n_messages; i++) {
        mf_srv_message *m = &c->messages[i];
        if (!m->call_id || strcmp(m->call_id, old) != 0)
            continue;
        char *copy = strdup(id);
        if (!copy)
            return false;
        free(m->call_id);
        m->call_id = copy;
    }
    return true;
}

/* The call as the model wrote it. */
static bool restore_call(mf_srv_conversation *c, size_t i, mf_srv_call *call,
                         const mf_srv_call *kept)
{
    char *arguments = strdup(kept->arguments), *id = kept->id ? strdup(kept->id) : NULL;
    bool is_good = arguments && (id || !kept->id) &&
                   (!call->id || !id || rename_results(c, i + 1, call->id, id));
    if (!is_good) {
        free(arguments);
        free(id);
        return false;
    }
    free(call->arguments);
    free(call->id);
    call->arguments = arguments;
    call->id = id;
    return true;
}

static bool restore(mf_srv_conversation *c, size_t i, const mf_srv_kept *kept)
{
    mf_srv_message *m = &c->messages[i];
    bool is_good = copy_bytes(&kept->message.content, &m->content) &&
                   copy_bytes(&kept->message.thoughts, &m->thoughts);
    for (size_t k = 0; is_good && k < m->n_calls; k++)
        is_good = restore_call(c, i, &m->calls[k], &kept->message.calls[k]);
    return is_good;
}

/* The same was said in the same place: if thoughts, or words beside calls, came back they are the
 * same, too. */
static mf_srv_kept *find(mf_srv_recall *recall, const mf_srv_digest *key, const mf_srv_message *m)
{
    mf_srv_kept *kept = mf_srv_recall_find(recall, key);
    if (kept && kept->message.n_calls == m->n_calls &&
        (m->thoughts.n_bytes == 0 || is_same_text(&m->thoughts, &kept->message.thoughts)) &&
        ((m->n_calls > 0 && m->content.n_bytes == 0) ||
         is_same_text(&m->content, &kept->message.content)))
        return kept;
    mf_srv_kept_drop(kept);
    return NULL;
}

/* NULL: none, or no memory, with which less is found again. */
static yyjson_doc *read_tools(const mf_srv_bytes *tools)
{
    return tools->data ? yyjson_read(tools->data, tools->n_bytes, 0) : NULL;
}

bool mf_srv_history_open(const mf_srv_model *model, mf_srv_conversation *c, mf_srv_history *h)
{
    bool has_failed = false;
    *h = (mf_srv_history){.n_messages = c->n_messages};
    if (!model->recall)
        return true;
    h->kept = calloc(c->n_messages + 1, sizeof(mf_srv_kept *));
    has_failed = !h->kept || !mf_srv_recall_order(model->recall, &c->tools);
    yyjson_doc *tools = has_failed ? NULL : read_tools(&c->tools);
    for (size_t i = 0; !has_failed && i < c->n_messages; i++) {
        h->chain = chain_of(model->recall, &h->chain, &c->messages[i], yyjson_doc_get_root(tools),
                            &has_failed);
        if (c->messages[i].role != MF_SRV_ASSISTANT || has_failed)
            continue;
        h->kept[i] = find(model->recall, &h->chain, &c->messages[i]);
        if (!h->kept[i])
            continue;
        h->now = h->now != 0 ? h->now : h->kept[i]->origin.now;
        has_failed = !restore(c, i, h->kept[i]);
    }
    yyjson_doc_free(tools);
    if (has_failed)
        mf_srv_history_close(h);
    return !has_failed;
}

void mf_srv_history_close(mf_srv_history *h)
{
    for (size_t i = 0; h->kept && i < h->n_messages; i++)
        mf_srv_kept_drop(h->kept[i]);
    free(h->kept);
    *h = (mf_srv_history){0};
}

/* --------------------------------------------------------------------------------- beginning -- */

/* The first text in [n_bytes] of one of the tokens that end answers. */
static const char *find_end(const mf_srv_model *model, const char *text, size_t n_bytes)
{
    const char *first = NULL;
    for (size_t i = 0; i < model->n_end_texts; i++) {
        const char *end = model->end_texts[i];
        const char *at = memmem(text, first ? (size_t)(first - text) : n_bytes, end, strlen(end));
        first = at ? at : first;
    }
    return first;
}

/* The text of an answer, read as the model's own would be. tools: those it may call. */
static bool read_answer(const mf_srv_model *model, const mf_srv_bytes *tools, const char *text,
                        size_t n_bytes, mf_srv_message *out)
{
    mf_reply_options options;
    mf_reply_event e;
    mf_reply *reply = NULL;
    mf_srv_refusal refusal;
    mf_reply_options_default(&options);
    options.tools = tools->data;
    options.has_calls = options.tools != NULL;
    options.whole_calls = 1;
    bool is_good = mf_reply_create(model->syntax, &options, &reply, NULL) == MF_OK &&
                   mf_reply_push(reply, text, n_bytes, 0, NULL) == MF_OK &&
                   mf_reply_finish(reply, 0, NULL) == MF_OK;
    while (is_good && mf_reply_next(reply, &e)) {
        mf_srv_call *last = out->n_calls > 0 ? &out->calls[out->n_calls - 1] : NULL;
        if (e.kind == MF_REPLY_THOUGHT || e.kind == MF_REPLY_CONTENT)
            mf_srv_put(e.kind == MF_REPLY_THOUGHT ? &out->thoughts : &out->content, e.text,
                       e.n_bytes);
        else if (e.kind == MF_REPLY_CALL)
            is_good = mf_srv_message_call(out, NULL, e.name, "", 0, &refusal);
        else if (e.kind == MF_REPLY_CALL_ARGUMENTS && last) {
            mf_srv_bytes joined = {0};
            mf_srv_printf(&joined, "%s%s", last->arguments, e.text);
            free(last->arguments);
            last->arguments = joined.data;
            is_good = joined.data && !joined.has_failed;
        } else if (e.kind == MF_REPLY_CALL_BROKEN)
            is_good = false;
    }
    mf_reply_free(&reply);
    return is_good;
}

/* Whether the text of an answer says what the message says, thoughts included. */
static bool says(const mf_srv_model *model, const mf_srv_bytes *tools, const char *text,
                 size_t n_bytes, const mf_srv_message *message)
{
    mf_srv_message read = {.role = MF_SRV_ASSISTANT};
    mf_srv_bytes a = {0}, b = {0};
    bool is_same = read_answer(model, tools, text, n_bytes, &read);
    if (is_same) {
        mf_srv_put_meaning(&read, NULL, &a);
        mf_srv_put_meaning(message, NULL, &b);
        is_same = !a.has_failed && !b.has_failed && is_same_text(&a, &b) &&
                  is_same_text(&read.content, &message->content) &&
                  is_same_text(&read.thoughts, &message->thoughts);
    }
    mf_srv_bytes_free(&a);
    mf_srv_bytes_free(&b);
    mf_srv_message_free(&read);
    return is_same;
}

static size_t n_without_blanks(const char *text, size_t n)
{
    while (n > 0 && mf_srv_is_blank(text[n - 1]))
        n--;
    return n;
}

/* Whether text [n] ends in the last n_rest bytes of the content, blanks at both ends not counted.
 * *n_before: the text's bytes before them. */
static bool ends_in_rest(const char *text, size_t n, const mf_srv_bytes *content, size_t n_rest,
                         size_t *n_before)
{
    const size_t n_text = n_without_blanks(text, n);
    const size_t n_content = content->data ? n_without_blanks(content->data, content->n_bytes) : 0;
    if (n_rest > n_text || n_rest > n_content)
        return false;
    if (n_rest > 0 &&
        memcmp(text + n_text - n_rest, content->data + n_content - n_rest, n_rest) != 0)
        return false;
    *n_before = n_text - n_rest;
    return true;
}

/* Whether what the template wrote from the head on says what the kept answer said. *n_bytes: up to
 * the token that ends it, or to what of it the kept tokens leave out. */
static bool says_the_same(const mf_srv_writing *w, const mf_srv_kept *kept,
                          const mf_srv_bytes *text, size_t *n_bytes)
{
    const size_t n_head = kept->origin.n_head_bytes;
    const char *begin = text->data + n_head;
    const char *end = find_end(w->model, begin, text->n_bytes - n_head);
    if (!end || !kept->has_answer)
        return false;
    const size_t n = (size_t)(end - begin);
    size_t n_before = n;
    if (!says(w->model, &w->conversation->tools, begin, n, &kept->message) ||
        (kept->n_rest_bytes > 0 &&
         !ends_in_rest(begin, n, &kept->message.content, kept->n_rest_bytes, &n_before)))
        return false;
    *n_bytes = n_head + n_before;
    return true;
}

static bool has_head(const mf_srv_writing *w, const mf_srv_kept *kept, const mf_srv_bytes *text)
{
    const mf_srv_origin *o = &kept->origin;
    if (o->n_head_bytes > text->n_bytes)
        return false;
    const mf_srv_digest head =
        mf_srv_digest_of(mf_srv_recall_key(w->model->recall), text->data, o->n_head_bytes);
    return mf_srv_digest_is(&head, &o->head);
}

/* How many of the kept answer's tokens the prompt begins with; 0: none. */
static size_t n_tokens_of(const mf_srv_writing *w, const mf_srv_kept *kept,
                          const mf_srv_bytes *text, bool keeps_thoughts, size_t *n_bytes)
{
    const bool is_known = has_head(w, kept, text);
    if (is_known && says_the_same(w, kept, text, n_bytes))
        return kept->n_tokens;
    if (keeps_thoughts && kept->has_answer && kept->n_rest_bytes == 0 &&
        mf_srv_follows_but_thoughts(w->model, kept->tokens, kept->n_tokens, text, n_bytes))
        return kept->n_tokens;
    *n_bytes = is_known ? kept->origin.n_head_bytes : 0;
    return is_known ? kept->origin.n_head_tokens : 0;
}

bool mf_srv_history_begin(const mf_srv_history *h, const mf_srv_writing *w,
                          const mf_srv_bytes *text, mf_srv_prompt *out, size_t *n_bytes)
{
    size_t n_looks = 0;
    *n_bytes = 0;
    *out = (mf_srv_prompt){0};
    for (size_t i = h->kept ? w->conversation->n_messages : 0; i-- > 0;) {
        const mf_srv_kept *kept = h->kept[i];
        if (!kept)
            continue;
        const bool keeps_thoughts = w->conversation->keeps_thoughts && n_looks++ < MAX_LOOKS;
        const size_t n_tokens = n_tokens_of(w, kept, text, keeps_thoughts, n_bytes);
        if (n_tokens == 0)
            continue;
        out->tokens = malloc(n_tokens * sizeof *out->tokens);
        if (!out->tokens)
            return false;
        memcpy(out->tokens, kept->tokens, n_tokens * sizeof *out->tokens);
        out->n_tokens = n_tokens;
        out->origin.system_mark = kept->origin.system_mark;
        return true;
    }
    *n_bytes = 0;
    return true;
}

/* ------------------------------------------------------------------------------------ ending -- */

/* How many bytes are left of text[n] without a mark at its end, whose own blanks do not count; n:
 * it does not end in it. */
static size_t n_without_mark(const char *text, size_t n, const char *mark)
{
    const size_t n_blank = mark ? strspn(mark, " \t\r\n") : 0;
    const size_t n_mark = mark ? n_without_blanks(mark, strlen(mark)) : 0;
    const size_t n_text = n_without_blanks(text, n);
    if (n_mark <= n_blank || n_text < n_mark - n_blank ||
        memcmp(text + n_text - (n_mark - n_blank), mark + n_blank, n_mark - n_blank) != 0)
        return n;
    return n_text - (n_mark - n_blank);
}

/* The text's bytes without the opening of a thought, or an empty one, at its end. */
static size_t n_head_of(const mf_srv_model *model, const mf_srv_bytes *text)
{
    mf_reply_form form;
    mf_reply_form_of(model->syntax, &form);
    const size_t n = n_without_mark(text->data, text->n_bytes, form.thought_close);
    const size_t n_head = n_without_mark(text->data, n, form.thought_open);
    return n_head == n ? text->n_bytes : n_head;
}

/* The tokens of the text but for its last bytes; 0: they begin within a token. */
static size_t n_tokens_before(const mf_srv_model *model, const mf_srv_prompt *prompt,
                              size_t n_bytes)
{
    size_t n_left = n_bytes, i = prompt->n_tokens;
    while (n_left > 0 && i > 0) {
        size_t n = 0;
        const char *piece = mf_tokenizer_piece(model->tokenizer, prompt->tokens[--i], &n);
        if (!piece || n > n_left)
            return 0;
        n_left -= n;
    }
    return n_left == 0 ? i : 0;
}

void mf_srv_history_end(const mf_srv_history *h, const mf_srv_writing *w, size_t system_mark,
                        mf_srv_prompt *prompt)
{
    const mf_srv_bytes *text = &prompt->text;
    mf_srv_origin *o = &prompt->origin;
    if (!w->model->recall)
        return;
    const size_t n = n_head_of(w->model, text);
    *o = (mf_srv_origin){.is_known = true,
                         .chain = h->chain,
                         .n_head_bytes = n,
                         .n_head_tokens = n_tokens_before(w->model, prompt, text->n_bytes - n),
                         .system_mark = system_mark,
                         .now = w->now};
    o->head = mf_srv_digest_of(mf_srv_recall_key(w->model->recall), text->data, n);
}

/* ----------------------------------------------------------------------------------- keeping -- */

/* The answer as a message; ids are the model's own. */
static bool make_message(const mf_srv_choice *c, mf_srv_message *out)
{
    mf_srv_refusal refusal;
    out->role = MF_SRV_ASSISTANT;
    bool is_good =
        copy_bytes(&c->content, &out->content) && copy_bytes(&c->thoughts, &out->thoughts);
    for (size_t i = 0; is_good && i < c->n_calls; i++) {
        const mf_srv_made_call *call = &c->calls[i];
        const bool is_empty = call->arguments.n_bytes == 0;
        is_good = mf_srv_message_call(out, call->model_id, call->name,
                                      is_empty ? "{}" : call->arguments.data,
                                      is_empty ? 2 : call->arguments.n_bytes, &refusal);
    }
    return is_good;
}

/* What the tokens [n] say. False: one of them says nothing, or no memory. */
static bool put_pieces(const mf_srv_model *model, const int32_t *tokens, size_t n,
                       mf_srv_bytes *out)
{
    for (size_t i = 0; i < n; i++) {
        size_t n_piece = 0;
        const char *piece = mf_tokenizer_piece(model->tokenizer, tokens[i], &n_piece);
        if (!piece)
            return false;
        mf_srv_put(out, piece, n_piece);
    }
    return out->data && !out->has_failed;
}

/* Where the stop string begins in what was said, which its end is in the last n_last bytes of;
 * SIZE_MAX: it is not there. */
static size_t n_before_stop(const mf_srv_bytes *said, size_t n_last, const char *stop)
{
    const size_t n_stop = strlen(stop), n_earlier = said->n_bytes - n_last;
    const size_t from = n_earlier < n_stop ? 0 : n_earlier - n_stop + 1;
    const char *at = memmem(said->data + from, said->n_bytes - from, stop, n_stop);
    return at ? (size_t)(at - said->data) : SIZE_MAX;
}

/* Behind a stop string the tokens say more than the answer: those before it are kept, and how much
 * of the answer they leave out, if what they say is read as the answer was. */
static void keep_until_stop(const mf_srv_choice *c, mf_srv_kept *kept)
{
    const mf_srv_model *model = c->job->served;
    const size_t first = c->prompt->origin.n_head_tokens;
    mf_srv_bytes said = {0};
    size_t n = c->n_tokens, n_last = 0, n_before = 0;
    kept->n_tokens = c->prompt->n_tokens;
    if (first == 0 || c->n_calls > 0 || n <= c->prompt->n_tokens ||
        !put_pieces(model, c->tokens + first, n - first, &said) ||
        !mf_tokenizer_piece(model->tokenizer, c->tokens[n - 1], &n_last)) {
        mf_srv_bytes_free(&said);
        return;
    }
    const size_t n_answer = n_before_stop(&said, n_last, c->stopped_by);
    size_t n_whole = said.n_bytes;
    while (n > c->prompt->n_tokens && n_whole > n_answer) {
        size_t n_piece = 0;
        (void)mf_tokenizer_piece(model->tokenizer, c->tokens[--n], &n_piece);
        n_whole -= n_piece;
    }
    const size_t n_end = n_answer != SIZE_MAX ? n_without_blanks(said.data, n_answer) : 0;
    const size_t n_rest = n_end > n_whole ? n_end - n_whole : 0;
    if (n_answer != SIZE_MAX && n_whole <= n_answer &&
        says(model, &c->job->tools, said.data, n_answer, &kept->message) &&
        ends_in_rest(said.data, n_answer, &kept->message.content, n_rest, &n_before)) {
        kept->has_answer = true;
        kept->n_tokens = n;
        kept->n_rest_bytes = n_rest;
    }
    mf_srv_bytes_free(&said);
}

void mf_srv_history_keep(const mf_srv_choice *c, mf_srv_finish why)
{
    mf_srv_recall *recall = c->job->served->recall;
    const mf_srv_origin *o = &c->prompt->origin;
    const size_t n_all = c->prompt->n_tokens + c->n_answered;
    bool has_failed = false;
    if (!recall || !o->is_known || c->is_broken || !c->reply || !c->tokens)
        return;
    mf_srv_kept *kept = mf_srv_kept_new();
    if (!kept)
        return;
    kept->origin = *o;
    kept->has_answer = why != MF_SRV_STOP && c->n_tokens == n_all;
    kept->n_tokens = kept->has_answer ? n_all : c->prompt->n_tokens;
    bool is_good = make_message(c, &kept->message);
    if (is_good && why == MF_SRV_STOP && c->n_tokens == n_all)
        keep_until_stop(c, kept);
    kept->tokens = is_good ? malloc((kept->n_tokens + 1) * sizeof *kept->tokens) : NULL;
    if (!kept->tokens) {
        mf_srv_kept_drop(kept);
        return;
    }
    memcpy(kept->tokens, c->tokens, kept->n_tokens * sizeof *kept->tokens);
    yyjson_doc *tools = read_tools(&c->job->tools);
    kept->key =
        chain_of(recall, &o->chain, &kept->message, yyjson_doc_get_root(tools), &has_failed);
    yyjson_doc_free(tools);
    if (has_failed)
        mf_srv_kept_drop(kept);
    else
        mf_srv_recall_put(recall, kept);
}
