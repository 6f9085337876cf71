/* SPDX-License-Identifier: MIT */
#include "server_attacks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HUGE_BODY ((size_t)100 << 20)

static const char *const paths[] = {"/v1/completions", "/v1/chat/completions",
                                    "/v1/responses",   "/v1/messages",
                                    "/tokenize",       "/detokenize",
                                    "/apply-template", "/v1/messages/count_tokens",
                                    "/v1/models",      "/v1/responses/input_tokens"};

static const char *const values[] = {
    "null",
    "true",
    "-1",
    "1e999",
    "0.5",
    "18446744073709551616",
    "\"\"",
    "\"\\ud800\"",
    "\"\\u0000\"",
    "[]",
    "{}",
    "[null]",
    "[[[[]]]]",
    "{\"role\":7}",
    "[{\"role\":\"user\"}]",
    "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":7}]}]",
    "[-1,999999999]",
    "[1,2,3]",
    "{\"a\":{\"b\":[1]}}",
    "128",
    "-9223372036854775808",
    "\"text\""};

static const char *const names[] = {"prompt",
                                    "messages",
                                    "input",
                                    "max_tokens",
                                    "max_output_tokens",
                                    "n",
                                    "stop",
                                    "stream",
                                    "seed",
                                    "temperature",
                                    "top_p",
                                    "top_k",
                                    "logprobs",
                                    "top_logprobs",
                                    "logit_bias",
                                    "echo",
                                    "model",
                                    "tools",
                                    "tool_choice",
                                    "response_format",
                                    "system",
                                    "thinking",
                                    "reasoning",
                                    "reasoning_effort",
                                    "stream_options",
                                    "chat_template_kwargs",
                                    "metadata",
                                    "content",
                                    "tokens",
                                    "instructions",
                                    "text",
                                    "stop_sequences",
                                    "unknown"};

#define PICK(list, r) ((list)[mf_st_below((r), sizeof(list) / sizeof *(list))])

static void set_text(mf_st_attack *a, char *text, size_t n)
{
    free(a->text);
    a->text = text;
    a->n_text = n;
}

/* A request around the body: n_body bytes of any kind. */
static void wrap(mf_st_attack *a, const char *path, const char *more, const char *body,
                 size_t n_body)
{
    char *head = NULL;
    int n = asprintf(&head, "POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n",
                     path, more, n_body);
    char *text = n > 0 ? realloc(head, (size_t)n + n_body + 1) : NULL;
    if (!text)
        abort();
    memcpy(text + n, body, n_body);
    text[(size_t)n + n_body] = '\0';
    set_text(a, text, (size_t)n + n_body);
}

/* ------------------------------------------------------------------------------------ bodies -- */

static void wrong_types(mf_st_attack *a, const mf_st_question *q, mf_st_random *r)
{
    char *body = NULL;
    const char *open = q->body + 1;
    const bool is_added = mf_st_below(r, 2);
    int n = is_added ? asprintf(&body, "{\"%s\":%s,%s", PICK(names, r), PICK(values, r), open)
                     : asprintf(&body, "{\"%s\":%s,\"%s\":%s,\"max_tokens\":3}", PICK(names, r),
                                PICK(values, r), PICK(names, r), PICK(values, r));
    if (n < 0)
        abort();
    wrap(a, is_added ? q->path : PICK(paths, r), "", body, (size_t)n);
    free(body);
}

static void flipped_bytes(mf_st_attack *a, const mf_st_question *q, mf_st_random *r)
{
    char *body = strdup(q->body);
    const size_t n = strlen(body);
    for (size_t i = 1 + mf_st_below(r, 4); i > 0; i--)
        body[mf_st_below(r, n)] = (char)(mf_st_next(r) & 0xFF);
    wrap(a, mf_st_below(r, 4) ? q->path : PICK(paths, r), "", body,
         mf_st_below(r, 3) ? n : mf_st_below(r, n));
    free(body);
}

static void deep_json(mf_st_attack *a, const mf_st_question *q, mf_st_random *r)
{
    static const char *const openers[] = {"[", "{\"a\":", "[{\"b\":["};
    const char *opener = PICK(openers, r);
    const size_t n_opener = strlen(opener), n = 1 + mf_st_below(r, 100000);
    char *body = malloc(n * n_opener + 16);
    if (!body)
        abort();
    memcpy(body, "{\"messages\":", 12);
    for (size_t i = 0; i < n; i++)
        memcpy(body + 12 + i * n_opener, opener, n_opener);
    wrap(a, q->path, "", body, 12 + n * n_opener);
    a->must_be_refused = true;
    free(body);
}

static void bad_utf8(mf_st_attack *a, const mf_st_question *q, mf_st_random *r)
{
    static const char *const bad[] = {"\xC0\x80", "\xED\xA0\x80", "\xF8\x88\x80\x80\x80",
                                      "\xFF",     "\xE2\x82",     "\xF4\x90\x80\x80"};
    char *body = NULL;
    int n = asprintf(&body, "{\"prompt\":\"%s\",\"content\":\"%s\",\"max_tokens\":2}", PICK(bad, r),
                     PICK(bad, r));
    if (n < 0)
        abort();
    wrap(a, mf_st_below(r, 2) ? q->path : PICK(paths, r), "", body, (size_t)n);
    a->must_be_refused = true;
    free(body);
}

static void bad_coding(mf_st_attack *a, const mf_st_question *q, mf_st_random *r)
{
    static const char *const codings[] = {
        "Content-Encoding: gzip\r\n", "Content-Encoding: zstd\r\n", "Content-Encoding: br\r\n",
        "Content-Encoding: gzip, zstd\r\n", "Content-Encoding: \r\n"};
    static const char *const starts[] = {"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
                                         "\x28\xb5\x2f\xfd\x04\x58\x01\x00", ""};
    char body[300];
    const char *start = PICK(starts, r);
    const size_t n_start = *start == '\x1f' ? 10 : *start ? 8 : 0;
    memcpy(body, start, n_start);
    for (size_t i = n_start; i < sizeof body; i++)
        body[i] = (char)(mf_st_next(r) & 0xFF);
    wrap(a, q->path, PICK(codings, r), body, mf_st_below(r, sizeof body));
    a->must_be_refused = true;
}

/* A hundred megabytes, announced, or in a chunk that is one. */
static void huge_body(mf_st_attack *a, const mf_st_question *q, mf_st_random *r)
{
    char *text = NULL;
    const bool is_chunked = mf_st_below(r, 2);
    int n = is_chunked ? asprintf(&text,
                                  "POST %s HTTP/1.1\r\nHost: localhost\r\n"
                                  "Transfer-Encoding: chunked\r\n\r\n%zx\r\n",
                                  q->path, HUGE_BODY)
                       : asprintf(&text,
                                  "POST %s HTTP/1.1\r\nHost: localhost\r\n"
                                  "Content-Length: %zu\r\n\r\n",
                                  q->path, HUGE_BODY);
    if (n < 0)
        abort();
    set_text(a, text, (size_t)n);
    a->n_endless = mf_st_below(r, 8) ? (size_t)64 << 10 : HUGE_BODY;
    a->is_unfinished = true;
    a->must_be_refused = true;
}

/* ------------------------------------------------------------------------------------- heads -- */

static void smuggled(mf_st_attack *a, const mf_st_question *q, mf_st_random *r)
{
    static const char *const framings[] = {
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nContent-Length: 60\r\n",
        "Content-Length: 4\r\nContent-Length: 4\r\n",
        "Content-Length: 4, 4\r\n",
        "Content-Length: +4\r\n",
        "Content-Length: -4\r\n",
        "Content-Length: 0x4\r\n",
        "Content-Length: 4 \r\nX: y\r\n Transfer-Encoding: chunked\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Content-Length\r\n: 4\r\n"};
    static const char *const bodies[] = {"0\r\n\r\n", "4\r\n{\"a\"\r\n0\r\n\r\n", "{}  ", "x"};
    char *text = NULL;
    int n = asprintf(&text,
                     "POST %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n%s"
                     "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
                     q->path, PICK(framings, r), PICK(bodies, r));
    if (n < 0)
        abort();
    set_text(a, text, (size_t)n);
    a->is_ambiguous = true;
    a->is_unfinished = true;
    a->must_be_refused = true;
}

static void odd_head(mf_st_attack *a, const mf_st_question *q, mf_st_random *r)
{
    static const char *const heads[] = {
        "GET /health\r\n\r\n",
        "GET /health HTTP/0.9\r\n\r\n",
        "GET /health HTTP/1.1\r\n\r\n",
        "GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n",
        "GET /health HTTP/1.1\nHost: localhost\n\n",
        "GET /health HTTP/1.1\rHost: localhost\r\r",
        "GET http://evil.test/health HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.test\r\n\r\n",
        "GET /%00/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /v1/models/%ff%fe%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "BREW /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\n: empty\r\nX: a\x01\x02\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "\r\n\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 200-maybe\r\n"
         "Content-Length: 2\r\n\r\n{}"),
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\r\n folded\r\n\r\n"};
    char *text = strdup(PICK(heads, r));
    (void)q;
    set_text(a, text, strlen(text));
    a->is_unfinished = true;
}

static void long_head(mf_st_attack *a, const mf_st_question *q, mf_st_random *r)
{
    const size_t n = 1000 + mf_st_below(r, 100000), which = mf_st_below(r, 3);
    char *text = malloc(n + 200), *at = text;
    if (!text)
        abort();
    at += sprintf(at, which == 0 ? "GET /" : "GET /health HTTP/1.1\r\nHost: localhost\r\n");
    char *end = text + n;
    if (which == 1)
        at += sprintf(at, "X-Long: ");
    for (; at < end; at += 8)
        memcpy(at, which == 2 ? "A: bcd\r\n" : "AAAAAAAA", 8);
    at += sprintf(at, which == 0 ? " HTTP/1.1\r\nHost: localhost\r\n\r\n" : "\r\n\r\n");
    (void)q;
    set_text(a, text, (size_t)(at - text));
    a->is_unfinished = true;
}

/* ----------------------------------------------------------------------------------- manners -- */

/* A good request, of which only a part is sent. */
static void cut(mf_st_attack *a, const mf_st_question *q, mf_st_random *r)
{
    char *text = strdup(q->request);
    set_text(a, text, mf_st_below(r, q->n_request));
    a->end = mf_st_below(r, 3) ? MF_ST_DAWDLES : MF_ST_HALF_CLOSES;
    a->is_unfinished = true;
}

static void slow(mf_st_attack *a, const mf_st_question *q, mf_st_random *r)
{
    set_text(a, strdup(q->request), q->n_request);
    a->is_slow = true;
    a->end = mf_st_below(r, 2) ? MF_ST_READS : MF_ST_LEAVES;
}

/* Gone at an event of the answer. */
static void leaves(mf_st_attack *a, const mf_st_question *q, mf_st_random *r)
{
    set_text(a, strdup(q->request), q->n_request);
    a->n_most = mf_st_below(r, strlen(q->expected) + 400);
    if (mf_st_below(r, 4) == 0)
        a->end = MF_ST_LEAVES;
}

/* Many in one go. */
static void pipelined(mf_st_attack *a, const mf_st_question *q, mf_st_random *r)
{
    const size_t n = 2 + mf_st_below(r, 6);
    char *text = malloc(n * q->n_request + 1);
    if (!text)
        abort();
    for (size_t i = 0; i < n; i++)
        memcpy(text + i * q->n_request, q->request, q->n_request + 1);
    set_text(a, text, n * q->n_request);
    a->n_most = mf_st_below(r, 20000);
}

void mf_st_attack_make(mf_st_attack *a, const mf_st_question *questions, size_t n_questions,
                       mf_st_random *r)
{
    static const struct {
        const char *name;
        void (*make)(mf_st_attack *a, const mf_st_question *q, mf_st_random *r);
        size_t weight;
    } attacks[] = {{"wrong types", wrong_types, 40},
                   {"flipped bytes", flipped_bytes, 30},
                   {"deep JSON", deep_json, 4},
                   {"bad UTF-8", bad_utf8, 6},
                   {"bad coding", bad_coding, 10},
                   {"a huge body", huge_body, 1},
                   {"smuggled", smuggled, 20},
                   {"an odd head", odd_head, 10},
                   {"a long head", long_head, 6},
                   {"cut", cut, 8},
                   {"slow", slow, 2},
                   {"leaves", leaves, 8},
                   {"pipelined", pipelined, 3}};
    size_t sum = 0, i = 0;
    for (size_t k = 0; k < sizeof attacks / sizeof *attacks; k++)
        sum += attacks[k].weight;
    for (size_t at = mf_st_below(r, sum); at >= attacks[i].weight; i++)
        at -= attacks[i].weight;
    *a = (mf_st_attack){.name = attacks[i].name, .n_most = SIZE_MAX / 2};
    if (mf_st_below(r, 6) == 0)
        a->end = MF_ST_HALF_CLOSES;
    attacks[i].make(a, &questions[mf_st_below(r, n_questions)], r);
}

void mf_st_attack_free(mf_st_attack *a)
{
    free(a->text);
    a->text = NULL;
}
