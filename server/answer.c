/* SPDX-License-Identifier: MIT */
/* Text of answers: decoded, taken apart, held back, released. */
#include "answer.h"

#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define THINK "<think>"
#define THINK_END "</think>"

/* ------------------------------------------------------------------------------------ logprobs --
 */

static void add_info(mf_srv_choice *c, int32_t token, const float *logits)
{
    const mf_srv_job *job = c->job;
    if (!job->params.has_logprobs)
        return;
    if (c->n_infos == c->info_capacity) {
        size_t capacity = c->info_capacity * 2 + 32;
        mf_srv_token *infos = realloc(c->infos, capacity * sizeof *infos);
        if (!infos)
            return;
        c->infos = infos;
        c->info_capacity = capacity;
    }
    mf_srv_token *info = &c->infos[c->n_infos++];
    *info = (mf_srv_token){.token = token, .logprob = NAN, .end = c->n_content_bytes};
    if (!logits)
        return;
    /* of the model's own distribution, before sampling changes it */
    info->logprob =
        mf_logprob_of(logits, job->served->info.n_vocab, token, info->top, job->params.n_top);
    while (info->n_top < job->params.n_top && info->top[info->n_top].token >= 0)
        info->n_top++;
}

/* ------------------------------------------------------------------------------------- release --
 */

static void release(mf_srv_choice *c, const char *text, size_t n_bytes)
{
    const size_t end = c->content.n_bytes + n_bytes;
    size_t n = c->n_released;
    while (n < c->n_infos && c->infos[n].end <= end)
        n++;
    const mf_srv_piece piece = {.text = text,
                                .n_bytes = n_bytes,
                                .tokens = c->infos ? c->infos + c->n_released : NULL,
                                .n_tokens = n - c->n_released};
    c->n_released = n;
    if (n_bytes > 0 || piece.n_tokens > 0)
        mf_srv_job_piece(c, &piece);
}

static void release_thought(mf_srv_choice *c, const char *text, size_t n_bytes)
{
    const mf_srv_piece piece = {.is_thought = true, .text = text, .n_bytes = n_bytes};
    if (n_bytes > 0)
        mf_srv_job_piece(c, &piece);
}

/* How many of text's last bytes word begins with, but not all of word. */
static size_t n_begun(const char *text, size_t n_bytes, const char *word)
{
    size_t n = strlen(word) - 1;
    for (n = n < n_bytes ? n : n_bytes; n > 0; n--)
        if (memcmp(text + n_bytes - n, word, n) == 0)
            break;
    return n;
}

/* Releases what no stop string can begin in. False: one is there. */
static bool pass_content(mf_srv_choice *c, const char *text, size_t n_bytes)
{
    const mf_srv_params *p = &c->job->params;
    size_t found;
    if (c->stopped_by)
        return false;
    if (p->n_stops == 0) {
        release(c, text, n_bytes);
        return true;
    }
    mf_srv_put(&c->held, text, n_bytes);
    if (!c->held.data)
        return true;
    const char *const *stops = (const char *const *)p->stops;
    size_t n_free = mf_stop_find(c->held.data, c->held.n_bytes, stops, p->n_stops, &found);
    release(c, c->held.data, n_free);
    if (found < p->n_stops)
        c->stopped_by = stops[found];
    mf_srv_drop(&c->held, c->stopped_by ? c->held.n_bytes : n_free);
    return !c->stopped_by;
}

/* ------------------------------------------------------------------------------------ thoughts --
 */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static size_t n_blank(const mf_srv_bytes *b)
{
    size_t n = 0;
    while (n < b->n_bytes && is_blank(b->data[n]))
        n++;
    return n;
}

/* Before content: blanks, then perhaps a tag. True: something was decided. */
static bool decide_start(mf_srv_choice *c)
{
    mf_srv_bytes *u = &c->undecided;
    size_t n = n_blank(u);
    if (n == u->n_bytes)
        return false;
    if (c->place == MF_SRV_AFTER_THOUGHT) {
        mf_srv_drop(u, n);
        c->place = MF_SRV_IN_CONTENT;
        return true;
    }
    size_t n_tag = sizeof THINK - 1, n_left = u->n_bytes - n;
    if (memcmp(u->data + n, THINK, n_left < n_tag ? n_left : n_tag) != 0) {
        c->place = MF_SRV_IN_CONTENT;
        return true;
    }
    if (n_left < n_tag)
        return false;
    mf_srv_drop(u, n + n_tag);
    c->place = MF_SRV_IN_THOUGHT;
    return true;
}

/* Thoughts begin behind blanks and end before blanks. */
static bool decide_thought(mf_srv_choice *c)
{
    mf_srv_bytes *u = &c->undecided;
    if (c->thoughts.n_bytes == 0)
        mf_srv_drop(u, n_blank(u));
    const char *end = memmem(u->data, u->n_bytes, THINK_END, sizeof THINK_END - 1);
    size_t n = end ? (size_t)(end - u->data) : u->n_bytes - n_begun(u->data, u->n_bytes, THINK_END);
    size_t n_text = n;
    while (n_text > 0 && is_blank(u->data[n_text - 1]))
        n_text--;
    release_thought(c, u->data, n_text);
    mf_srv_drop(u, end ? n + sizeof THINK_END - 1 : n_text);
    if (end)
        c->place = MF_SRV_AFTER_THOUGHT;
    return end != NULL;
}

/* Text of the answer. False: a stop string. */
static bool pass(mf_srv_choice *c, const char *text, size_t n_bytes)
{
    if (c->place == MF_SRV_IN_CONTENT && c->undecided.n_bytes == 0) {
        c->n_content_bytes += n_bytes;
        return pass_content(c, text, n_bytes);
    }
    mf_srv_put(&c->undecided, text, n_bytes);
    while (c->undecided.n_bytes > 0 && c->place != MF_SRV_IN_CONTENT)
        if (!(c->place == MF_SRV_IN_THOUGHT ? decide_thought(c) : decide_start(c)))
            return true;
    if (c->undecided.n_bytes == 0)
        return true;
    c->n_content_bytes += c->undecided.n_bytes;
    bool goes_on = pass_content(c, c->undecided.data, c->undecided.n_bytes);
    mf_srv_drop(&c->undecided, c->undecided.n_bytes);
    return goes_on;
}

/* --------------------------------------------------------------------------------------- tokens --
 */

/* Adds the characters that a token completes; token < 0: those held back. */
static void decode(mf_srv_choice *c, int32_t token, mf_srv_bytes *out)
{
    const mf_tokenizer *tokenizer = c->job->served->tokenizer;
    char small[512];
    size_t n_piece = 0, n_bytes = 0;
    if (token >= 0 && !mf_tokenizer_piece(tokenizer, token, &n_piece))
        return;
    const size_t capacity = 3 * n_piece + 12;
    char *text = capacity <= sizeof small ? small : malloc(capacity);
    if (text &&
        mf_tokenizer_decode(tokenizer, &c->decoder, token, text, capacity, &n_bytes) == MF_OK)
        mf_srv_put(out, text, n_bytes);
    if (text != small)
        free(text);
}

bool mf_srv_answer_token(mf_srv_choice *c, int32_t token, const float *logits)
{
    mf_srv_bytes text = {0};
    if (c->place == MF_SRV_IN_THOUGHT)
        c->n_thought_tokens++;
    if (!mf_tokenizer_is_special(c->job->served->tokenizer, token))
        decode(c, token, &text);
    const size_t n_before = c->n_infos;
    const bool is_content = c->place == MF_SRV_IN_CONTENT;
    /* the token ends where the content will end with its text */
    c->n_content_bytes += is_content ? text.n_bytes : 0;
    if (is_content)
        add_info(c, token, logits);
    c->n_content_bytes -= is_content ? text.n_bytes : 0;
    bool goes_on = pass(c, text.data ? text.data : "", text.n_bytes);
    if (goes_on && text.n_bytes == 0 && c->n_infos > n_before)
        goes_on = pass_content(c, "", 0);
    mf_srv_bytes_free(&text);
    return goes_on;
}

void mf_srv_answer_echo(mf_srv_choice *c, int32_t token, const float *logits)
{
    mf_srv_bytes text = {0};
    decode(c, token, &text);
    c->n_content_bytes += text.n_bytes;
    add_info(c, token, logits);
    release(c, text.data ? text.data : "", text.n_bytes);
    mf_srv_bytes_free(&text);
}

void mf_srv_answer_end(mf_srv_choice *c)
{
    mf_srv_bytes text = {0};
    if (c->stopped_by)
        return;
    decode(c, -1, &text);
    (void)pass(c, text.data ? text.data : "", text.n_bytes);
    mf_srv_bytes_free(&text);
    if (c->place == MF_SRV_AT_START) {
        c->place = MF_SRV_IN_CONTENT;
        (void)pass(c, "", 0);
    }
    if (c->place == MF_SRV_IN_THOUGHT)
        release_thought(c, c->undecided.data ? c->undecided.data : "", c->undecided.n_bytes);
    if (!c->stopped_by)
        release(c, c->held.data ? c->held.data : "", c->held.n_bytes);
}
