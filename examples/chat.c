/* SPDX-License-Identifier: MIT */
/*
 * A chat whose every turn has several answers to choose from, written together:
 *
 *     cc chat.c $(pkg-config --cflags --libs moeflux) -o chat
 *     ./chat models/demo 3 64        three answers of at most 64 tokens
 *
 * A line of input is the user's turn. /N goes on with answer N (default 1), /undo takes the last
 * turn back.
 *
 * What it shows: mf_session_reuse takes over what any session or mark holds of a text, so the
 * program keeps the conversation as text and nothing else; a mark stands where later turns
 * will part from this one, which is before the answer, since templates write an answer in another
 * way once it is history (without its thoughts, say); mf_session_fork gives every answer a session
 * of its own without copying the conversation's state; mf_engine_eval evaluates one token of each
 * together, reading an expert once for all of them.
 */
#include <moeflux/moeflux.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ANSWERS 16
#define MAX_MESSAGES 512 /* of a conversation */

/* One answer in the making. */
typedef struct answer {
    mf_session *session;
    mf_sampler *sampler;
    mf_decoder decoder;
    char *text; /* from malloc, with a NUL behind it */
    size_t n_bytes;
    int is_done;
    int32_t token; /* chosen, to be evaluated next */
} answer;

typedef struct chat {
    const char *model;
    mf_tokenizer *tokenizer;
    mf_engine *engine;
    answer answers[MAX_ANSWERS];
    size_t n_answers;
    long n_tokens; /* of an answer, at most */
    mf_chat_message messages[MAX_MESSAGES];
    size_t n_messages;
} chat;

static mf_status open_chat(chat *c, mf_error *error)
{
    mf_engine_options options;
    mf_sampler_options sampling;
    mf_model_info info;
    mf_engine_options_default(&options);
    options.n_sessions = (uint32_t)c->n_answers;
    mf_sampler_options_default(&sampling);
    mf_status status = mf_tokenizer_open(c->model, NULL, &c->tokenizer, error);
    if (status == MF_OK)
        status = mf_sampler_options_load(c->model, &sampling, error);
    if (status == MF_OK)
        status = mf_engine_open(c->model, &options, &c->engine, error);
    if (status == MF_OK)
        status = mf_session_create(c->engine, &c->answers[0].session, error);
    if (status != MF_OK)
        return status;
    mf_engine_info(c->engine, &info);
    for (size_t i = 0; status == MF_OK && i < c->n_answers; i++) {
        sampling.seed = i;
        status = mf_sampler_create(&sampling, info.n_vocab, NULL, &c->answers[i].sampler, error);
    }
    return status;
}

static void close_chat(chat *c)
{
    for (size_t i = 0; i < c->n_answers; i++) {
        mf_sampler_free(&c->answers[i].sampler);
        mf_session_free(&c->answers[i].session);
        free(c->answers[i].text);
    }
    for (size_t i = 0; i < c->n_messages; i++)
        free((char *)c->messages[i].content);
    mf_engine_close(&c->engine);
    mf_tokenizer_free(&c->tokenizer);
}

static mf_status append(char **text, size_t *n_bytes, const char *more, size_t n_more)
{
    char *grown = realloc(*text, *n_bytes + n_more + 1);
    if (grown == NULL)
        return MF_ERR_NO_MEMORY;
    memcpy(grown + *n_bytes, more, n_more);
    *text = grown;
    *n_bytes += n_more;
    grown[*n_bytes] = '\0';
    return MF_OK;
}

/* The conversation as text, from malloc: by the model's template, with the beginning of the answer
 * or without, or all messages one after the other where the model just continues. */
static mf_status conversation(const chat *c, int opens_answer, char **text, size_t *n_bytes,
                              mf_error *error)
{
    mf_status status = MF_OK;
    mf_chat_params params;
    *n_bytes = 0;
    if (!mf_tokenizer_has_chat(c->tokenizer)) {
        for (size_t i = 0; status == MF_OK && i < c->n_messages; i++)
            status = append(text, n_bytes, c->messages[i].content, strlen(c->messages[i].content));
        return status;
    }
    size_t n = 0;
    mf_chat_params_default(&params);
    params.messages = c->messages;
    params.n_messages = c->n_messages;
    params.add_generation_prompt = opens_answer;
    status = mf_chat_text(c->tokenizer, &params, NULL, 0, &n, error);
    if (status == MF_OK && (*text = malloc(n + 1)) == NULL)
        status = MF_ERR_NO_MEMORY;
    if (status == MF_OK)
        status = mf_chat_text(c->tokenizer, &params, *text, n, n_bytes, error);
    return status;
}

static mf_status conversation_tokens(const chat *c, int opens_answer, int32_t **tokens,
                                     size_t *n_tokens, mf_error *error)
{
    char *text = NULL;
    size_t n_bytes = 0, n = 0;
    int32_t start = mf_tokenizer_has_chat(c->tokenizer) ? -1 : mf_tokenizer_start(c->tokenizer);
    size_t n_start = start >= 0;
    mf_status status = conversation(c, opens_answer, &text, &n_bytes, error);
    if (status == MF_OK)
        status = mf_tokenizer_encode(c->tokenizer, text, n_bytes, 1, NULL, 0, &n, error);
    if (status == MF_OK && (*tokens = malloc((n + 1) * sizeof **tokens)) == NULL)
        status = MF_ERR_NO_MEMORY;
    if (status == MF_OK) {
        (*tokens)[0] = start;
        *n_tokens = n_start + n;
        status =
            mf_tokenizer_encode(c->tokenizer, text, n_bytes, 1, *tokens + n_start, n, &n, error);
    }
    free(text);
    return status;
}

/* How many of the prompt's tokens later turns will begin with. The text without the beginning of
 * the answer is what they share; what its tokens share is less where a token crosses its end. */
static mf_status stable_tokens(const chat *c, const int32_t *tokens, size_t n_tokens,
                               size_t *n_stable, mf_error *error)
{
    int32_t *plain = NULL;
    size_t n_plain = 0, n = 0;
    mf_status status = conversation_tokens(c, 0, &plain, &n_plain, error);
    while (status == MF_OK && n < n_plain && n < n_tokens && plain[n] == tokens[n])
        n++;
    *n_stable = n;
    free(plain);
    return status;
}

/* Makes the session hold the tokens, with a mark after the stable ones: a recurrent family
 * needs one to go back to, others can go back anywhere. */
static mf_status bring(mf_session *session, const int32_t *tokens, size_t n_tokens, size_t n_stable,
                       mf_sync_result *reused, mf_error *error)
{
    mf_status status = mf_session_reuse(session, tokens, n_tokens, reused, error);
    size_t n = status == MF_OK ? mf_session_position(session) : 0;
    reused->n_evaluated = n_tokens - n;
    if (status == MF_OK && n < n_stable)
        status = mf_session_eval(session, tokens + n, n_stable - n, error);
    if (status == MF_OK && n <= n_stable) {
        n = n_stable;
        status = mf_mark_save(session, error);
        if (status == MF_ERR_BUDGET) /* then later turns evaluate more, and that is all */
            status = MF_OK;
    }
    if (status == MF_OK)
        status = mf_session_eval(session, tokens + n, n_tokens - n, error);
    return status;
}

/* Brings the first session to the conversation, and makes the others copies of it. The sessions of
 * the last turn's answers are still there meanwhile: what they hold is found in them. */
static mf_status begin_turn(chat *c, mf_error *error)
{
    static const char *const sources[] = {"nothing", "the session", "another session", "the store"};
    int32_t *tokens = NULL;
    size_t n_tokens = 0, n_stable = 0;
    mf_sync_result reused = {MF_SYNC_NONE, 0, 0};
    mf_status status = conversation_tokens(c, 1, &tokens, &n_tokens, error);
    if (status == MF_OK)
        status = stable_tokens(c, tokens, n_tokens, &n_stable, error);
    if (status == MF_OK)
        status = bring(c->answers[0].session, tokens, n_tokens, n_stable, &reused, error);
    if (status == MF_OK)
        fprintf(stderr, "[%zu tokens from %s, %zu evaluated]\n", reused.n_reused,
                sources[reused.source], reused.n_evaluated);
    for (size_t i = 0; status == MF_OK && i < c->n_answers; i++) {
        answer *a = &c->answers[i];
        if (i > 0) {
            mf_session_free(&a->session);
            status = mf_session_fork(c->answers[0].session, &a->session, error);
        }
        a->decoder.n_pending = 0;
        a->n_bytes = 0;
        a->is_done = 0;
        mf_sampler_reset(a->sampler);
        for (size_t t = 0; t < n_tokens; t++)
            mf_sampler_accept(a->sampler, tokens[t]);
        if (status == MF_OK)
            status = append(&a->text, &a->n_bytes, "", 0);
    }
    free(tokens);
    return status;
}

/* The text that a token completes; -1: what is held back. */
static mf_status add_token(const chat *c, answer *a, int32_t token)
{
    char piece[4096];
    size_t n_bytes = 0;
    if (token >= 0 && mf_tokenizer_is_special(c->tokenizer, token))
        return MF_OK;
    mf_status status =
        mf_tokenizer_decode(c->tokenizer, &a->decoder, token, piece, sizeof piece, &n_bytes);
    return status != MF_OK ? status : append(&a->text, &a->n_bytes, piece, n_bytes);
}

/* A token for each unfinished answer; then all of them evaluated in one go. *n_running is how many
 * go on. */
static mf_status step(chat *c, int is_last, size_t *n_running, mf_error *error)
{
    mf_batch_item items[MAX_ANSWERS];
    mf_status status = MF_OK;
    size_t n_items = 0;
    for (size_t i = 0; status == MF_OK && i < c->n_answers; i++) {
        answer *a = &c->answers[i];
        if (a->is_done)
            continue;
        a->token = mf_sampler_sample(a->sampler, mf_session_logits(a->session));
        a->is_done = mf_tokenizer_is_end(c->tokenizer, a->token);
        if (!a->is_done) {
            mf_sampler_accept(a->sampler, a->token);
            status = add_token(c, a, a->token);
            items[n_items++] = (mf_batch_item){a->session, &a->token, 1};
        }
    }
    *n_running = is_last ? 0 : n_items;
    if (status == MF_OK && *n_running > 0)
        status = mf_engine_eval(c->engine, items, n_items, error);
    return status;
}

static mf_status answer_turn(chat *c, mf_error *error)
{
    size_t n_running = c->n_answers;
    mf_status status = begin_turn(c, error);
    for (long i = 0; status == MF_OK && n_running > 0; i++)
        status = step(c, i + 1 == c->n_tokens, &n_running, error);
    for (size_t i = 0; status == MF_OK && i < c->n_answers; i++) {
        status = add_token(c, &c->answers[i], -1);
        printf("[%zu]%s\n", i + 1, c->answers[i].text);
    }
    fflush(stdout);
    return status;
}

/* Takes over a copy of the text as the conversation's last message. */
static mf_status add_message(chat *c, mf_chat_role role, const char *text)
{
    char *copy = NULL;
    size_t n_bytes = 0;
    if (c->n_messages == MAX_MESSAGES)
        return MF_ERR_ARGUMENT;
    mf_status status = append(&copy, &n_bytes, text, strlen(text));
    if (status == MF_OK)
        c->messages[c->n_messages++] = (mf_chat_message){role, copy};
    return status;
}

static void drop_message(chat *c)
{
    free((char *)c->messages[--c->n_messages].content);
}

/* /N and /undo speak of the last turn: its user message and its answer. */
static mf_status command(chat *c, const char *line)
{
    long n = strtol(line + 1, NULL, 10);
    if (c->n_messages < 2)
        fprintf(stderr, "[there is no turn yet]\n");
    else if (strcmp(line, "/undo") == 0) {
        drop_message(c);
        drop_message(c);
    } else if (n >= 1 && (size_t)n <= c->n_answers) {
        drop_message(c);
        return add_message(c, MF_ROLE_ASSISTANT, c->answers[n - 1].text);
    } else
        fprintf(stderr, "[/1 to /%zu, or /undo]\n", c->n_answers);
    return MF_OK;
}

static mf_status converse(chat *c, mf_error *error)
{
    char line[4096];
    mf_status status = open_chat(c, error);
    while (status == MF_OK && fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '/') {
            status = command(c, line);
        } else if (line[0] != '\0') {
            status = add_message(c, MF_ROLE_USER, line);
            if (status == MF_OK)
                status = answer_turn(c, error);
            if (status == MF_OK)
                status = add_message(c, MF_ROLE_ASSISTANT, c->answers[0].text);
        }
    }
    return status;
}

int main(int argc, char **argv)
{
    long n_answers = argc == 4 ? atol(argv[2]) : 0;
    if (argc != 4 || n_answers < 1 || n_answers > MAX_ANSWERS || atol(argv[3]) < 1) {
        fprintf(stderr, "usage: chat MODEL ANSWERS TOKENS (at most %d answers)\n", MAX_ANSWERS);
        return 2;
    }
    static chat c;
    mf_error error = {MF_OK, 0, MF_ERROR_NO_POSITION, "the conversation is too long"};
    c.model = argv[1];
    c.n_answers = (size_t)n_answers;
    c.n_tokens = atol(argv[3]);
    mf_status status = converse(&c, &error);
    if (status != MF_OK)
        fprintf(stderr, "chat: %s (%s)\n", error.message, mf_status_name(status));
    close_chat(&c);
    return status == MF_OK ? 0 : 1;
}
