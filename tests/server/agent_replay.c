/* SPDX-License-Identifier: MIT */
/*
 * What a real agent said to a server, said again: its requests with all their fields, in its order,
 * with the identifiers that this server gives. Fails where an answer is refused, where its events
 * are not those with which the agent went on, or where more of the prompts that go on with a
 * conversation was evaluated than 1.1 times what was new in them.
 *
 *     server_agent_replay LOG PROGRAM serve MODEL [OPTION...]
 *
 * LOG: made by tools/trim_agent_log.py, which says what is in it. What the model says is put in its
 * mouth by a grammar of one text, as it was when the agent was recorded.
 */
#include "agent_events.h"
#include "server_child.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_REQUESTS 256u

typedef struct request {
    yyjson_mut_val *body, *history; /* of the replay's document; the history is apart */
    char *answer;                   /* its text; from malloc */
    long n_held;                    /* tokens, with the answer */
} request;

typedef struct replay {
    mf_st_server server;
    yyjson_mut_doc *doc;
    yyjson_val *headers; /* those of the request before */
    request requests[MAX_REQUESTS];
    long n_new, n_evaluated, n_turns;
} replay;

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "%.2000s: %.2000s\n", what, why ? why : "not as expected");
    exit(1);
}

static const char *text_of(yyjson_val *object, const char *key)
{
    return yyjson_get_str(yyjson_obj_get(object, key));
}

/* ------------------------------------------------------------------------------- the requests --
 */

static const request *request_at(const replay *r, yyjson_val *index)
{
    if (!yyjson_is_int(index) || yyjson_get_uint(index) >= MAX_REQUESTS)
        return NULL;
    return &r->requests[yyjson_get_uint(index)];
}

/* The body but for its history, and that. */
static void build(replay *r, yyjson_val *entry, request *out)
{
    const request *like = request_at(r, yyjson_obj_get(entry, "like"));
    size_t i, n;
    yyjson_val *key, *value;
    out->body = like ? yyjson_mut_val_mut_copy(r->doc, like->body) : yyjson_mut_obj(r->doc);
    out->history = yyjson_mut_arr(r->doc);
    yyjson_arr_foreach(yyjson_obj_get(entry, "drop"), i, n, value)(void)
        yyjson_mut_obj_remove_key(out->body, yyjson_get_str(value));
    yyjson_obj_foreach(yyjson_obj_get(entry, "fields"), i, n, key, value) yyjson_mut_obj_put(
        out->body, yyjson_val_mut_copy(r->doc, key), yyjson_val_mut_copy(r->doc, value));
    const size_t n_kept = yyjson_get_uint(yyjson_obj_get(entry, "keep"));
    for (i = 0; i < n_kept; i++)
        yyjson_mut_arr_append(
            out->history,
            yyjson_mut_val_mut_copy(r->doc, like ? yyjson_mut_arr_get(like->history, i) : NULL));
    yyjson_arr_foreach(yyjson_obj_get(entry, "add"), i, n, value)
        yyjson_mut_arr_append(out->history, yyjson_val_mut_copy(r->doc, value));
}

/* A grammar of one text. */
static void add_line(replay *r, yyjson_mut_val *body, const char *line)
{
    char *gbnf = malloc(strlen(line) * 4 + 16), *end = gbnf;
    if (!gbnf)
        abort();
    end += sprintf(end, "root ::= \"");
    for (; *line; line++) {
        const unsigned char c = (unsigned char)*line;
        end += c < 32 || c == '"' || c == '\\' ? sprintf(end, "\\x%02X", c) : sprintf(end, "%c", c);
    }
    sprintf(end, "\"");
    yyjson_mut_obj_add_strcpy(r->doc, body, "grammar", gbnf);
    free(gbnf);
}

/* What @{REQUEST:KEY:N} at text stands for, from malloc, and *end behind it; NULL: it is none. */
static char *id_at(const replay *r, const char *text, const char **end)
{
    char key[32], *behind;
    if (strncmp(text, "@{", 2) != 0)
        return NULL;
    const unsigned long from = strtoul(text + 2, &behind, 10);
    const size_t n_key = *behind == ':' ? strcspn(behind + 1, ":") : 0;
    if (n_key == 0 || n_key >= sizeof key || behind[1 + n_key] != ':')
        return NULL;
    memcpy(key, behind + 1, n_key);
    key[n_key] = '\0';
    const unsigned long index = strtoul(behind + 2 + n_key, &behind, 10);
    if (*behind != '}')
        return NULL;
    const char *answer = from < MAX_REQUESTS ? r->requests[from].answer : NULL;
    char *id = answer ? mf_agent_id(answer, key, index) : NULL;
    if (!id)
        die(key, "the answer has no such identifier");
    *end = behind + 1;
    return id;
}

/* text with what the server gave where its identifiers stood; from malloc. */
static char *identified(const replay *r, const char *text)
{
    char *out = NULL;
    size_t n_bytes = 0;
    FILE *f = open_memstream(&out, &n_bytes);
    if (!f)
        abort();
    while (*text) {
        char *id = id_at(r, text, &text);
        if (id)
            fputs(id, f);
        else
            fputc(*text++, f);
        free(id);
    }
    fclose(f);
    return out;
}

/* From malloc; NULL: there is none. */
static char *body_of(replay *r, yyjson_val *entry, const request *q)
{
    const char *line = text_of(entry, "line"), *name = text_of(entry, "history");
    if (strcmp(text_of(entry, "method"), "POST") != 0)
        return NULL;
    yyjson_mut_val *body = yyjson_mut_val_mut_copy(r->doc, q->body);
    if (name)
        yyjson_mut_obj_add_val(r->doc, body, name, yyjson_mut_val_mut_copy(r->doc, q->history));
    if (line && *line)
        add_line(r, body, line);
    char *text = yyjson_mut_val_write(body, 0, NULL);
    if (!text)
        abort();
    char *out = identified(r, text);
    free(text);
    return out;
}

static void ask(replay *r, yyjson_val *entry, const char *body, mf_st_answer *answer)
{
    char *text = NULL;
    size_t n_bytes = 0, i, n;
    yyjson_val *header, *headers = yyjson_obj_get(entry, "headers");
    r->headers = yyjson_is_arr(headers) ? headers : r->headers;
    FILE *f = open_memstream(&text, &n_bytes);
    if (!f)
        abort();
    fprintf(f, "%s %s HTTP/1.1\r\nHost: localhost\r\n", text_of(entry, "method"),
            text_of(entry, "path"));
    yyjson_arr_foreach(r->headers, i, n, header) fprintf(f, "%s\r\n", yyjson_get_str(header));
    if (body)
        fprintf(f, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    fprintf(f, "\r\n%s", body ? body : "");
    fclose(f);
    int fd = mf_st_connect(&r->server, 0);
    if (fd >= 0 && mf_st_send(fd, text, n_bytes))
        mf_st_read(fd, SIZE_MAX / 2, answer);
    if (fd >= 0)
        close(fd);
    free(text);
}

/* -------------------------------------------------------------------------------- the answers --
 */

/* What of a prompt was new: behind what the request that it goes on with left. */
static void count(replay *r, yyjson_val *entry, size_t index, const mf_agent_usage *u)
{
    const request *before = request_at(r, yyjson_obj_get(entry, "after"));
    r->requests[index].n_held = u->n_prompt + u->n_answered;
    if (u->n_prompt <= 0 || u->n_answered <= 0)
        die("usage", "the answer says none");
    if (!before) {
        printf("request %zu: %ld tokens, %ld found, %ld answered\n", index, u->n_prompt,
               u->n_cached, u->n_answered);
        return;
    }
    const long n_new = u->n_prompt - before->n_held, n_evaluated = u->n_prompt - u->n_cached;
    printf("request %zu: %ld tokens, %ld new, %ld evaluated, %ld answered\n", index, u->n_prompt,
           n_new, n_evaluated, u->n_answered);
    r->n_new += n_new;
    r->n_evaluated += n_evaluated;
    r->n_turns++;
}

static void check_answer(replay *r, yyjson_val *entry, size_t index, const char *body,
                         const mf_st_answer *a)
{
    char status[160];
    mf_agent_usage usage;
    const char *events = text_of(entry, "events");
    if (a->status != (int)yyjson_get_int(yyjson_obj_get(entry, "status")) ||
        (strcmp(text_of(entry, "method"), "HEAD") != 0 && !a->is_whole)) {
        snprintf(status, sizeof status, "request %zu, %.60s: status %d", index,
                 text_of(entry, "path"), a->status);
        fprintf(stderr, "%.1000s\n", body ? body : "");
        die(status, a->body);
    }
    if (!events)
        return;
    char *kinds = mf_agent_events(a->body, &usage);
    if (strcmp(kinds, events) != 0) {
        fprintf(stderr, "request %zu: the events are\n%s\nand should be\n%s\n", index, kinds,
                events);
        die("its answer", a->body);
    }
    free(kinds);
    count(r, entry, index, &usage);
}

static void say(replay *r, yyjson_val *entry, size_t index)
{
    mf_st_answer answer = {0};
    request *q = &r->requests[index];
    build(r, entry, q);
    char *body = body_of(r, entry, q);
    ask(r, entry, body, &answer);
    check_answer(r, entry, index, body, &answer);
    q->answer = strdup(answer.body ? answer.body : "");
    mf_st_answer_free(&answer);
    free(body);
}

int main(int argc, char **argv)
{
    replay *r = calloc(1, sizeof *r);
    size_t i, n;
    yyjson_val *entry;
    if (!r)
        abort();
    if (argc < 5)
        die("usage", "server_agent_replay LOG PROGRAM serve MODEL [OPTION...]");
    yyjson_doc *doc = yyjson_read_file(argv[1], 0, NULL, NULL);
    yyjson_val *requests = yyjson_obj_get(yyjson_doc_get_root(doc), "requests");
    const char *client = text_of(yyjson_doc_get_root(doc), "client");
    if (!client || yyjson_arr_size(requests) == 0 || yyjson_arr_size(requests) > MAX_REQUESTS)
        die(argv[1], "no log");
    r->doc = yyjson_mut_doc_new(NULL);
    if (!mf_st_start(&r->server, argv + 2))
        return 1;
    yyjson_arr_foreach(requests, i, n, entry) say(r, entry, i);
    const int code = mf_st_stop(&r->server, SIGTERM);
    printf(
        "%s: %zu requests, %ld that go on, %ld tokens new in their prompts, %ld evaluated: %.3f\n",
        client, yyjson_arr_size(requests), r->n_turns, r->n_new, r->n_evaluated,
        r->n_new > 0 ? (double)r->n_evaluated / (double)r->n_new : 0.0);
    const bool is_good = code == 0 && r->n_turns > 0 && r->n_evaluated * 10 <= r->n_new * 11;
    puts(is_good ? "passed" : "FAILED");
    for (i = 0; i < MAX_REQUESTS; i++)
        free(r->requests[i].answer);
    yyjson_mut_doc_free(r->doc);
    yyjson_doc_free(doc);
    free(r);
    return is_good ? 0 : 1;
}
