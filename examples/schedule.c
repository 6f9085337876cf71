/* SPDX-License-Identifier: MIT */
/*
 * Continues several prompts at once, as a server does for users who come and go: a request is taken
 * in with each step, and each is answered with what it would get alone.
 *
 *     cc schedule.c $(pkg-config --cflags --libs moeflux) -o schedule
 *     ./schedule models/demo 48 "Once upon a time" "The sea was"
 */
#include <moeflux/moeflux.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REQUESTS = 16, MAX_TOKENS = 4096, MAX_TEXT = 1 << 16 };

typedef struct request {
    mf_session *session; /* NULL: nobody's place */
    mf_sampler *sampler;
    mf_decoder decoder;
    mf_cancel cancel; /* for whoever hears that the user has gone */
    int32_t tokens[MAX_TOKENS];
    const int32_t *left; /* what is still to be evaluated: of the prompt, or one sampled token */
    size_t n_left;
    long n_answered, number;
    size_t n_text;
    char text[MAX_TEXT];
} request;

typedef struct server {
    const char *model;
    long n_answer; /* tokens of an answer */
    mf_tokenizer *tokenizer;
    mf_engine *engine;
    request *requests; /* [MAX_REQUESTS] */
} server;

static mf_status open_server(server *s, mf_error *error)
{
    mf_engine_options options;
    mf_engine_options_default(&options);
    options.n_sessions = MAX_REQUESTS;
    options.n_context_tokens = 1024;
    s->requests = calloc(MAX_REQUESTS, sizeof *s->requests);
    if (s->requests == NULL)
        return MF_ERR_NO_MEMORY;
    mf_status status = mf_tokenizer_open(s->model, NULL, &s->tokenizer, error);
    return status == MF_OK ? mf_engine_open(s->model, &options, &s->engine, error) : status;
}

/* The text that a token completes; -1: what was held back of an unfinished character. */
static void say(server *s, request *r, int32_t token)
{
    size_t n_bytes = 0;
    if ((token < 0 || !mf_tokenizer_is_special(s->tokenizer, token)) &&
        mf_tokenizer_decode(s->tokenizer, &r->decoder, token, r->text + r->n_text,
                            MAX_TEXT - r->n_text, &n_bytes) == MF_OK)
        r->n_text += n_bytes;
}

static void finish(server *s, request *r)
{
    if (r->session != NULL) {
        say(s, r, -1);
        printf("[%ld]%.*s\n", r->number, (int)r->n_text, r->text);
    }
    mf_sampler_free(&r->sampler);
    mf_session_free(&r->session);
}

/* A new request: what is held of its prompt already, by whatever session, is not evaluated again.
 */
static mf_status begin(server *s, request *r, const char *prompt, mf_error *error)
{
    mf_sampler_options sampling;
    mf_model_info info;
    mf_sync_result found;
    size_t n = 0;
    int32_t start = mf_tokenizer_start(s->tokenizer);
    size_t n_start = start >= 0;
    r->tokens[0] = start;
    r->n_answered = 0;
    r->n_text = 0;
    memset(&r->decoder, 0, sizeof r->decoder);
    mf_cancel_reset(&r->cancel);
    mf_engine_info(s->engine, &info);
    mf_sampler_options_default(&sampling);
    mf_status status = mf_tokenizer_encode(s->tokenizer, prompt, strlen(prompt), 1,
                                           r->tokens + n_start, MAX_TOKENS - 1, &n, error);
    if (status == MF_OK)
        status = mf_sampler_options_load(s->model, &sampling, error);
    if (status == MF_OK)
        status = mf_sampler_create(&sampling, info.n_vocab, NULL, &r->sampler, error);
    if (status == MF_OK)
        status = mf_session_create(s->engine, &r->session, error);
    n = n_start + n < MAX_TOKENS ? n_start + n : MAX_TOKENS;
    if (status == MF_OK)
        status = mf_session_reuse(r->session, r->tokens, n, &found, error);
    if (status != MF_OK)
        return status;
    for (size_t i = 0; i < n; i++)
        mf_sampler_accept(r->sampler, r->tokens[i]);
    r->left = r->tokens + found.n_reused;
    r->n_left = n - found.n_reused;
    return MF_OK;
}

/* What a step did for a request. All evaluated: the next token of its answer. */
static void take(server *s, request *r, mf_status status, size_t n_done)
{
    r->left += n_done;
    r->n_left -= n_done;
    if (status == MF_OK && r->n_left > 0)
        return;
    const float *logits = status == MF_OK ? mf_session_logits(r->session) : NULL;
    int32_t token = logits != NULL ? mf_sampler_sample(r->sampler, logits) : -1;
    if (token < 0 || mf_tokenizer_is_end(s->tokenizer, token)) {
        finish(s, r);
        return;
    }
    mf_sampler_accept(r->sampler, token);
    say(s, r, token);
    r->tokens[0] = token;
    r->left = r->tokens;
    r->n_left = 1;
    if (++r->n_answered == s->n_answer)
        finish(s, r);
}

/* One chunk of all who have tokens left. *n_left: how many they are. */
static mf_status step(server *s, size_t *n_left, mf_error *error)
{
    mf_step_item items[MAX_REQUESTS];
    request *of[MAX_REQUESTS];
    size_t n = 0;
    for (request *r = s->requests; r < s->requests + MAX_REQUESTS; r++) {
        if (r->session == NULL)
            continue;
        items[n] = (mf_step_item){.struct_bytes = sizeof items[n],
                                  .session = r->session,
                                  .tokens = r->left,
                                  .n_tokens = r->n_left,
                                  .cancel = &r->cancel,
                                  .status = MF_ERR_STATE}; /* stays if the call itself is refused */
        of[n++] = r;
    }
    *n_left = n;
    mf_status status = mf_engine_step(s->engine, items, n, error); /* each has its own, too */
    for (size_t i = 0; i < n; i++)
        take(s, of[i], items[i].status, items[i].n_done);
    return status;
}

static mf_status serve(server *s, char **prompts, size_t n_prompts, mf_error *error)
{
    size_t n_left = 1;
    mf_status status = open_server(s, error), first = status;
    for (size_t n = 0; status == MF_OK && (n < n_prompts || n_left > 0);) {
        request *r = s->requests;
        while (r < s->requests + MAX_REQUESTS && r->session != NULL)
            r++;
        if (n < n_prompts && r < s->requests + MAX_REQUESTS) {
            r->number = (long)++n;
            status = begin(s, r, prompts[n - 1], error);
        }
        if (status == MF_OK && step(s, &n_left, error) != MF_OK)
            first = error->code;
    }
    return status != MF_OK ? status : first;
}

int main(int argc, char **argv)
{
    if (argc < 4 || atol(argv[2]) < 1) {
        fprintf(stderr, "usage: schedule MODEL TOKENS PROMPT...\n");
        return 2;
    }
    server s = {.model = argv[1], .n_answer = atol(argv[2])};
    mf_error error = {MF_OK, 0, MF_ERROR_NO_POSITION, "no memory"};
    mf_status status = serve(&s, argv + 3, (size_t)argc - 3, &error);
    if (status != MF_OK)
        fprintf(stderr, "schedule: %s (%s)\n", error.message, mf_status_name(status));
    for (size_t i = 0; s.requests != NULL && i < MAX_REQUESTS; i++)
        finish(&s, &s.requests[i]);
    free(s.requests);
    mf_engine_close(&s.engine);
    mf_tokenizer_free(&s.tokenizer);
    return status == MF_OK ? 0 : 1;
}
