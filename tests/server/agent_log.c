/* SPDX-License-Identifier: MIT */
/*
 * A client's log, replayed: turn by turn what it says, with what it makes of the answers before it,
 * in the fields and the order that it sends. Fails if an answer is not of the kind that the log
 * has, or if more of the prompts was evaluated than 1.1 times what was new in them.
 *
 *     server_agent_log LOG PROGRAM serve MODEL [OPTION...]
 *
 * LOG: form (chat, messages or responses), path, headers, request (all but the history; "$turn" in
 * it is the turn's number), biases (of the answers' kinds), turns: each with say (what is added to
 * the history; "$id" in it is the last call's) and answer (a kind).
 */
#include "agent_answer.h"
#include "server_child.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct replay {
    mf_st_server server;
    yyjson_val *log;
    yyjson_mut_doc *history_doc;
    yyjson_mut_val *history;
    char last_id[64];
    mf_agent_form form;
    long n_new, n_evaluated, n_held;
} replay;

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "%.300s: %.1000s\n", what, why ? why : "not as expected");
    exit(1);
}

static const char *text_of(yyjson_val *object, const char *key)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, key));
    if (!text)
        die(key, "the log has no such text");
    return text;
}

/* text with each `what` as `with`; from malloc. */
static char *replaced(const char *text, const char *what, const char *with)
{
    const size_t n_what = strlen(what), n_with = strlen(with);
    char *out = malloc(strlen(text) * (n_with + 1) + 1), *end = out;
    if (!out)
        abort();
    while (*text) {
        const bool is_it = strncmp(text, what, n_what) == 0;
        if (is_it)
            memcpy(end, with, n_with);
        else
            *end = *text;
        end += is_it ? n_with : 1;
        text += is_it ? n_what : 1;
    }
    *end = '\0';
    return out;
}

/* A value of the log, with `what` as `with`, in a document. */
static yyjson_mut_val *copied(yyjson_mut_doc *doc, yyjson_val *value, const char *what,
                              const char *with)
{
    char *text = yyjson_val_write(value, 0, NULL);
    char *changed = replaced(text, what, with);
    yyjson_doc *read = yyjson_read(changed, strlen(changed), 0);
    if (!read)
        die(changed, "not JSON any more");
    yyjson_mut_val *copy = yyjson_val_mut_copy(doc, yyjson_doc_get_root(read));
    yyjson_doc_free(read);
    free(changed);
    free(text);
    return copy;
}

/* A client that marks where it wants the prompt kept moves its marks on. */
static void forget_marks(yyjson_mut_val *value)
{
    size_t i, n;
    yyjson_mut_val *key, *child;
    if (yyjson_mut_is_obj(value)) {
        (void)yyjson_mut_obj_remove_key(value, "cache_control");
        yyjson_mut_obj_foreach(value, i, n, key, child) forget_marks(child);
    } else if (yyjson_mut_is_arr(value)) {
        yyjson_mut_arr_foreach(value, i, n, child) forget_marks(child);
    }
}

/* The request's body; from malloc. */
static char *body_of(const replay *r, yyjson_val *turn, size_t index)
{
    char number[16];
    snprintf(number, sizeof number, "%03zx", index);
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *request = copied(doc, yyjson_obj_get(r->log, "request"), "$turn", number);
    const char *kind = text_of(turn, "answer");
    yyjson_val *bias = yyjson_obj_get(yyjson_obj_get(r->log, "biases"), kind);
    if (!bias)
        die(kind, "no such kind of answer");
    yyjson_mut_obj_add_val(doc, request, r->form == MF_AGENT_RESPONSES ? "input" : "messages",
                           yyjson_mut_val_mut_copy(doc, r->history));
    yyjson_mut_obj_add_val(doc, request, "logit_bias", yyjson_val_mut_copy(doc, bias));
    yyjson_mut_doc_set_root(doc, request);
    char *text = yyjson_mut_write(doc, 0, NULL);
    yyjson_mut_doc_free(doc);
    if (!text)
        abort();
    return text;
}

static void ask(const replay *r, const char *body, mf_st_answer *answer)
{
    char *headers = strdup(""), *request;
    size_t i, n;
    yyjson_val *header;
    yyjson_arr_foreach(yyjson_obj_get(r->log, "headers"), i, n, header)
    {
        char *more;
        if (asprintf(&more, "%s%s\r\n", headers, yyjson_get_str(header)) < 0)
            abort();
        free(headers);
        headers = more;
    }
    if (asprintf(&request,
                 "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "%sContent-Length: %zu\r\n\r\n%s",
                 text_of(r->log, "path"), headers, strlen(body), body) < 0)
        abort();
    int fd = mf_st_connect(&r->server, 0);
    if (fd >= 0 && mf_st_send(fd, request, strlen(request)))
        mf_st_read(fd, SIZE_MAX / 2, answer);
    if (fd >= 0)
        close(fd);
    free(request);
    free(headers);
}

/* What of a turn's prompt was new: behind what the turn before it left. */
static void count(replay *r, const mf_agent_answer *a, size_t index)
{
    const long n_new = a->n_prompt - r->n_held, n_evaluated = a->n_prompt - a->n_cached;
    r->n_new += n_new;
    r->n_evaluated += n_evaluated;
    r->n_held = a->n_prompt + a->n_answered;
    printf("turn %zu: %ld tokens, %ld new, %ld evaluated\n", index, a->n_prompt, n_new,
           n_evaluated);
    if (n_new <= 0)
        die("a turn", "its prompt does not go on from the one before it");
}

static void take_turn(replay *r, yyjson_val *turn, size_t index)
{
    mf_st_answer answer = {0};
    mf_agent_answer a = {0};
    size_t i, n;
    yyjson_val *said;
    forget_marks(r->history);
    yyjson_arr_foreach(yyjson_obj_get(turn, "say"), i, n, said)
        yyjson_mut_arr_append(r->history, copied(r->history_doc, said, "$id", r->last_id));
    char *body = body_of(r, turn, index);
    ask(r, body, &answer);
    if (answer.status != 200 || !answer.is_whole)
        die(body, answer.body);
    const bool has_call = strcmp(text_of(turn, "answer"), "text") != 0;
    if (!mf_agent_read(r->form, answer.body, &a) || a.has_call != has_call)
        die(body, answer.body);
    mf_agent_append(r->form, &a, r->log, r->history_doc, r->history);
    if (has_call)
        snprintf(r->last_id, sizeof r->last_id, "%s", a.call_id);
    count(r, &a, index);
    mf_agent_answer_free(&a);
    mf_st_answer_free(&answer);
    free(body);
}

int main(int argc, char **argv)
{
    replay r = {0};
    size_t i, n;
    yyjson_val *turn;
    if (argc < 5)
        die("usage", "server_agent_log LOG PROGRAM serve MODEL [OPTION...]");
    yyjson_doc *doc = yyjson_read_file(argv[1], 0, NULL, NULL);
    r.log = yyjson_doc_get_root(doc);
    const char *form = text_of(r.log, "form");
    r.form = strcmp(form, "chat") == 0       ? MF_AGENT_CHAT
             : strcmp(form, "messages") == 0 ? MF_AGENT_MESSAGES
                                             : MF_AGENT_RESPONSES;
    r.history_doc = yyjson_mut_doc_new(NULL);
    r.history = yyjson_mut_arr(r.history_doc);
    if (!mf_st_start(&r.server, argv + 2))
        return 1;
    yyjson_val *turns = yyjson_obj_get(r.log, "turns");
    yyjson_arr_foreach(turns, i, n, turn) take_turn(&r, turn, i);
    const int code = mf_st_stop(&r.server, SIGTERM);
    printf("%s: %zu turns, %ld tokens new in prompts, %ld evaluated: %.3f\n",
           text_of(r.log, "client"), yyjson_arr_size(turns), r.n_new, r.n_evaluated,
           (double)r.n_evaluated / (double)r.n_new);
    const bool is_good =
        code == 0 && yyjson_arr_size(turns) >= 30 && r.n_evaluated * 10 <= r.n_new * 11;
    puts(is_good ? "passed" : "FAILED");
    yyjson_mut_doc_free(r.history_doc);
    yyjson_doc_free(doc);
    return is_good ? 0 : 1;
}
