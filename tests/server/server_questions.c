/* SPDX-License-Identifier: MIT */
#include "server_questions.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PROMPT_BYTES 600
#define MAX_ANSWER_TOKENS 60
/* Of the same text, at the beginning of some prompts. */
#define SHARED_BYTES 700

typedef struct kind {
    const char *path, *prompt_format, *limit;
} kind;

static const kind kinds[] = {
    {"/v1/completions", "\"prompt\":\"%s\"", "max_tokens"},
    {"/v1/chat/completions", "\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]",
     "max_completion_tokens"},
    {"/v1/responses", "\"input\":\"%s\"", "max_output_tokens"},
    {"/v1/messages", "\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]", "max_tokens"},
};

char *mf_st_read_text(const char *path)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = fopen(path, "re");
    if (!f || getdelim(&text, &n, '\0', f) <= 0) {
        perror(path);
        exit(1);
    }
    fclose(f);
    return text;
}

/* Some of the text, made fit for a JSON string. */
static char *piece_of(const char *text, mf_st_random *r)
{
    const size_t n_text = strlen(text);
    const size_t n = 20 + mf_st_below(r, MAX_PROMPT_BYTES);
    const bool is_shared = mf_st_below(r, 3) == 0;
    const size_t n_shared = is_shared ? SHARED_BYTES : 0;
    char *piece = malloc(n_shared + n + 1);
    if (!piece || n_text < SHARED_BYTES + MAX_PROMPT_BYTES + 100)
        abort();
    memcpy(piece, text, n_shared);
    memcpy(piece + n_shared, text + mf_st_below(r, n_text - n), n);
    for (size_t i = 0; i < n_shared + n; i++)
        if (!isprint((unsigned char)piece[i]) || piece[i] == '"' || piece[i] == '\\')
            piece[i] = ' ';
    piece[n_shared + n] = '\0';
    return piece;
}

static char *options_of(size_t which, mf_st_random *r)
{
    char *options = NULL;
    const bool streams = mf_st_below(r, 2);
    /* in a stream, which choice says something first is nobody's promise */
    const unsigned n_choices = which < 2 && !streams && mf_st_below(r, 4) == 0 ? 2 : 1;
    const bool has_stop = which == 0 && mf_st_below(r, 3) == 0;
    const bool has_logprobs = which == 0 && mf_st_below(r, 6) == 0;
    const bool has_echo = which == 0 && mf_st_below(r, 4) == 0;
    char n_field[16] = "";
    if (n_choices > 1)
        snprintf(n_field, sizeof n_field, ",\"n\":%u", n_choices);
    if (asprintf(&options, ",\"stream\":%s,\"seed\":%zu,\"temperature\":%s%s%s%s%s",
                 streams ? "true" : "false", mf_st_below(r, 1000), mf_st_below(r, 4) ? "0.9" : "0",
                 n_field, has_stop ? ",\"stop\":\" and\"" : "",
                 has_logprobs ? ",\"logprobs\":3" : "", has_echo ? ",\"echo\":true" : "") < 0)
        abort();
    return options;
}

static void make_question(mf_st_question *q, const char *text, mf_st_random *r)
{
    const size_t which = mf_st_below(r, sizeof kinds / sizeof *kinds);
    char *piece = piece_of(text, r), *options = options_of(which, r), *prompt = NULL;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (asprintf(&prompt, kinds[which].prompt_format, piece) < 0)
        abort();
#pragma GCC diagnostic pop
    if (asprintf(&q->body, "{%s,\"%s\":%zu%s}", prompt, kinds[which].limit,
                 1 + mf_st_below(r, MAX_ANSWER_TOKENS), options) < 0)
        abort();
    q->path = kinds[which].path;
    q->request = mf_st_request(q->path, q->body, &q->n_request);
    free(piece);
    free(options);
    free(prompt);
}

mf_st_question *mf_st_questions_make(size_t n, uint64_t seed, const char *text)
{
    mf_st_random r = {seed};
    mf_st_question *questions = calloc(n, sizeof *questions);
    if (!questions)
        abort();
    for (size_t i = 0; i < n; i++)
        make_question(&questions[i], text, &r);
    return questions;
}

void mf_st_questions_free(mf_st_question *questions, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(questions[i].body);
        free(questions[i].request);
        free(questions[i].expected);
    }
    free(questions);
}

/* The value behind *from is not copied: *from is set behind it. */
static void skip_value(const char **from)
{
    const char *at = *from;
    if (*at == '"') {
        for (at++; *at && *at != '"'; at++)
            at += *at == '\\' && at[1];
        at += *at == '"';
    } else {
        at += strcspn(at, ",}]");
    }
    *from = at;
}

void mf_st_make_comparable(char *body)
{
    static const char *const volatile_names[] = {
        "\"id\":",           "\"item_id\":",       "\"created\":",
        "\"created_at\":",   "\"cached_tokens\":", "\"cache_read_input_tokens\":",
        "\"input_tokens\":", "\"signature\":",     "\"completed_at\":"};
    static const char comment[] = ": keep-alive"; /* and what a prompt still takes */
    char *to = body;
    for (const char *from = body; *from;) {
        size_t n = 0;
        if (strncmp(from, comment, sizeof comment - 1) == 0 && (to == body || to[-1] == '\n')) {
            const char *end = strstr(from, "\n\n");
            from = end ? end + 2 : from + strlen(from);
            continue;
        }
        for (size_t i = 0; *from == '"' && i < sizeof volatile_names / sizeof *volatile_names; i++)
            if (strncmp(from, volatile_names[i], strlen(volatile_names[i])) == 0)
                n = strlen(volatile_names[i]);
        if (n == 0) {
            *to++ = *from++;
            continue;
        }
        memmove(to, from, n);
        to += n;
        from += n;
        skip_value(&from);
    }
    *to = '\0';
}

bool mf_st_questions_ask(const mf_st_server *s, mf_st_question *questions, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        mf_st_answer a;
        mf_st_ask(s, questions[i].path, questions[i].body, &a);
        if (a.status != 200 || !a.is_whole) {
            fprintf(stderr, "alone: status %d for %s %s: %s\n", a.status, questions[i].path,
                    questions[i].body, a.body ? a.body : "nothing");
            mf_st_answer_free(&a);
            return false;
        }
        mf_st_make_comparable(a.body);
        questions[i].expected = a.body;
        a.body = NULL;
        mf_st_answer_free(&a);
    }
    return true;
}
