/* SPDX-License-Identifier: MIT */
/*
 * Continues a prompt, or answers it if the model is a chat model. Built against an installed
 * library:
 *
 *     cc generate.c $(pkg-config --cflags --libs moeflux) -o generate
 *     ./generate models/demo "Once upon a time" 64
 *
 * Every call that can fail returns a status and fills an mf_error with one line to show.
 */
#include <moeflux/moeflux.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All handles start as NULL: each *_free takes that, so there is one way out. */
typedef struct program {
    mf_tokenizer *tokenizer;
    mf_engine *engine;
    mf_session *session;
    mf_sampler *sampler;
} program;

static mf_status open_model(program *p, const char *model, mf_error *error)
{
    mf_engine_options options;
    mf_engine_options_default(&options);
    options.ram_bytes =
        0; /* what is free now; 3ull << 30 would keep the whole process below 3 GiB */
    mf_status status =
        mf_tokenizer_open(model, NULL, &p->tokenizer, error); /* counts: goes first */
    if (status == MF_OK)
        status = mf_engine_open(model, &options, &p->engine, error);
    if (status == MF_OK)
        status = mf_session_create(p->engine, &p->session, error);
    if (status != MF_OK)
        return status;

    mf_model_info info;
    mf_sampler_options sampling;
    mf_engine_info(p->engine, &info);
    mf_sampler_options_default(&sampling);
    status = mf_sampler_options_load(model, &sampling, error); /* as its makers recommend */
    return status != MF_OK ? status
                           : mf_sampler_create(&sampling, info.n_vocab, NULL, &p->sampler, error);
}

/* The text to evaluate, in memory from malloc: the prompt, inside the model's chat template if it
 * has one. Sizes are asked for first, with a capacity of 0. */
static mf_status prompt_text(const program *p, const char *prompt, char **text, size_t *n_bytes,
                             mf_error *error)
{
    const mf_chat_message message = {MF_ROLE_USER, prompt};
    mf_status status = MF_OK;
    *n_bytes = strlen(prompt);
    if (mf_tokenizer_has_chat(p->tokenizer))
        status =
            mf_chat_format(p->tokenizer, &message, 1, MF_THINKING_DEFAULT, NULL, 0, n_bytes, error);
    if (status != MF_OK)
        return status;
    *text = malloc(*n_bytes + 1);
    if (*text == NULL)
        return MF_ERR_NO_MEMORY;
    if (mf_tokenizer_has_chat(p->tokenizer))
        return mf_chat_format(p->tokenizer, &message, 1, MF_THINKING_DEFAULT, *text, *n_bytes,
                              n_bytes, error);
    memcpy(*text, prompt, *n_bytes);
    return MF_OK;
}

/* The text as tokens, from malloc. A chat template writes its start token itself. */
static mf_status encode(const program *p, const char *text, size_t n_bytes, int32_t **tokens,
                        size_t *n_tokens, mf_error *error)
{
    int32_t start = mf_tokenizer_has_chat(p->tokenizer) ? -1 : mf_tokenizer_start(p->tokenizer);
    size_t n = 0, n_start = start >= 0;
    mf_status status = mf_tokenizer_encode(p->tokenizer, text, n_bytes, 1, NULL, 0, &n, error);
    if (status != MF_OK)
        return status;
    *tokens = malloc((n + 1) * sizeof **tokens);
    if (*tokens == NULL)
        return MF_ERR_NO_MEMORY;
    (*tokens)[0] = start;
    *n_tokens = n_start + n;
    return mf_tokenizer_encode(p->tokenizer, text, n_bytes, 1, *tokens + n_start, n, &n, error);
}

/* Shows what the token completes: the decoder holds back unfinished characters. */
static void show(const program *p, mf_decoder *decoder, int32_t token)
{
    char text[4096];
    size_t n_bytes = 0;
    if (mf_tokenizer_decode(p->tokenizer, decoder, token, text, sizeof text, &n_bytes) == MF_OK)
        fwrite(text, 1, n_bytes, stdout);
    fflush(stdout);
}

static mf_status answer(program *p, long n_tokens, mf_error *error)
{
    mf_decoder decoder = {{0}, 0};
    for (long i = 0; i < n_tokens; i++) {
        int32_t token = mf_sampler_sample(p->sampler, mf_session_logits(p->session));
        if (mf_tokenizer_is_end(p->tokenizer, token))
            break;
        mf_sampler_accept(p->sampler, token);
        if (!mf_tokenizer_is_special(p->tokenizer, token))
            show(p, &decoder, token);
        if (i + 1 == n_tokens)
            break; /* nobody asks for what comes after it */
        mf_status status = mf_session_eval(p->session, &token, 1, error);
        if (status != MF_OK)
            return status;
    }
    show(p, &decoder, -1);
    putchar('\n');
    return MF_OK;
}

static mf_status run(program *p, const char *model, const char *prompt, long n_tokens,
                     mf_error *error)
{
    char *text = NULL;
    int32_t *tokens = NULL;
    size_t n_bytes = 0, n_prompt = 0;
    mf_status status = open_model(p, model, error);
    if (status == MF_OK)
        status = prompt_text(p, prompt, &text, &n_bytes, error);
    if (status == MF_OK)
        status = encode(p, text, n_bytes, &tokens, &n_prompt, error);
    if (status == MF_OK)
        status = mf_session_eval(p->session, tokens, n_prompt, error);
    for (size_t i = 0; status == MF_OK && i < n_prompt; i++)
        mf_sampler_accept(p->sampler, tokens[i]);
    if (status == MF_OK)
        status = answer(p, n_tokens, error);
    free(tokens);
    free(text);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 4 || argv[2][0] == '\0' || atol(argv[3]) < 1) {
        fprintf(stderr, "usage: generate MODEL PROMPT TOKENS\n");
        return 2;
    }
    program p = {NULL, NULL, NULL, NULL};
    mf_error error = {MF_OK, 0, MF_ERROR_NO_POSITION, "no memory"};
    mf_status status = run(&p, argv[1], argv[2], atol(argv[3]), &error);
    if (status != MF_OK)
        fprintf(stderr, "generate: %s (%s)\n", error.message, mf_status_name(status));
    mf_sampler_free(&p.sampler);
    mf_session_free(&p.session);
    mf_engine_close(&p.engine);
    mf_tokenizer_free(&p.tokenizer);
    return status == MF_OK ? 0 : 1;
}
