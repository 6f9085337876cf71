/* SPDX-License-Identifier: MIT */
/* Text of answers: decoded, taken apart, held back, released. */
#include "answer.h"

#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------- logprobs -- */

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

/* ----------------------------------------------------------------------------------- release -- */

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

/* ------------------------------------------------------------------------------------ tokens -- */

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

/* ------------------------------------------------------------------------------------- parts -- */

static size_t n_given_out(const mf_srv_choice *c)
{
    return c->content.n_bytes + c->held.n_bytes;
}

/* What was thought of tokens that turned out to be no content. */
static void forget_infos(mf_srv_choice *c)
{
    c->n_content_bytes = n_given_out(c);
    while (c->n_infos > c->n_released && c->infos[c->n_infos - 1].end > c->n_content_bytes)
        c->n_infos--;
}

/* Where all that a token says is given out it is known where its text ends. The reply drops blanks
 * behind a thought, of which nothing is in the content, and writes other bytes for what is no
 * UTF-8. */
static void settle_infos(mf_srv_choice *c, const char *piece, size_t n, size_t n_before)
{
    const mf_srv_bytes *last = c->held.n_bytes > 0 ? &c->held : &c->content;
    const size_t given = n_given_out(c), n_new = given - n_before;
    size_t n_same = n < n_new ? n : n_new;
    n_same = n_same < last->n_bytes ? n_same : last->n_bytes;
    if (n_same == 0 || memcmp(last->data + last->n_bytes - n_same, piece + n - n_same, n_same) != 0)
        return;
    for (size_t i = c->n_released; i < c->n_infos; i++) {
        mf_srv_token *info = &c->infos[i];
        const size_t n_behind = c->n_content_bytes - info->end;
        if (info->end > n_before)
            info->end = n_behind < n_new ? given - n_behind : n_before;
    }
    c->n_content_bytes = given;
}

static void release_held(mf_srv_choice *c)
{
    release(c, c->held.data ? c->held.data : "", c->held.n_bytes);
    mf_srv_drop(&c->held, c->held.n_bytes);
}

static void release_other(mf_srv_choice *c, mf_srv_kind kind, const mf_reply_event *e)
{
    const mf_srv_piece piece = {.kind = kind, .text = e->text, .n_bytes = e->n_bytes};
    if (e->n_bytes > 0)
        mf_srv_job_piece(c, &piece);
}

/* False: the answer ends here. */
static bool take_event(mf_srv_choice *c, const mf_reply_event *e)
{
    switch (e->kind) {
    case MF_REPLY_THOUGHT:
        release_other(c, MF_SRV_THOUGHT, e);
        return true;
    case MF_REPLY_CONTENT:
        return pass_content(c, e->text, e->n_bytes);
    case MF_REPLY_CALL:
        release_held(c);
        mf_srv_job_call(c, e->id, e->name);
        return true;
    case MF_REPLY_CALL_ARGUMENTS:
        release_other(c, MF_SRV_CALL, e);
        return true;
    case MF_REPLY_CALL_END:
        c->is_done = c->job->has_one_call ||
                     (c->job->params.n_max_calls > 0 && c->n_calls >= c->job->params.n_max_calls);
        return !c->is_done;
    default:
        c->is_broken = true; /* what was given out of it cannot be taken back */
        return true;
    }
}

static bool take_events(mf_srv_choice *c)
{
    mf_reply_event e;
    while (!c->stopped_by && !c->is_done && mf_reply_next(c->reply, &e))
        (void)take_event(c, &e);
    return !c->stopped_by && !c->is_done;
}

bool mf_srv_answer_is_thought(const mf_srv_choice *c)
{
    return c->reply && mf_reply_place(c->reply) == MF_REPLY_THOUGHT;
}

static bool is_content(const mf_srv_choice *c)
{
    return mf_reply_place(c->reply) == MF_REPLY_CONTENT;
}

/* A token of an answer that is taken apart. */
static bool push(mf_srv_choice *c, int32_t token, const float *logits)
{
    const mf_tokenizer *tokenizer = c->job->served->tokenizer;
    const bool was_content = is_content(c);
    const int is_special = mf_tokenizer_is_special(tokenizer, token);
    size_t n = 0;
    const char *piece = mf_tokenizer_piece(tokenizer, token, &n);
    c->n_thought_tokens += mf_srv_answer_is_thought(c);
    if (was_content) {
        c->n_content_bytes += is_special ? 0 : n;
        add_info(c, token, logits);
    }
    if (piece && mf_reply_push(c->reply, piece, n, is_special, NULL) != MF_OK) {
        c->is_done = c->is_broken = true;
        return false;
    }
    const size_t n_before = n_given_out(c);
    bool goes_on = take_events(c);
    if (!is_content(c) || !was_content)
        forget_infos(c);
    else if (piece && !is_special)
        settle_infos(c, piece, n, n_before);
    if (goes_on && is_content(c))
        goes_on = pass_content(c, "", 0);
    return goes_on;
}

/* ------------------------------------------------------------------------------------ public -- */

bool mf_srv_answer_token(mf_srv_choice *c, int32_t token, const float *logits)
{
    mf_srv_bytes text = {0};
    if (c->reply)
        return push(c, token, logits);
    if (!mf_tokenizer_is_special(c->job->served->tokenizer, token))
        decode(c, token, &text);
    c->n_content_bytes += text.n_bytes;
    add_info(c, token, logits);
    bool goes_on = pass_content(c, text.data ? text.data : "", text.n_bytes);
    mf_srv_bytes_free(&text);
    return goes_on;
}

void mf_srv_answer_echo(mf_srv_choice *c, int32_t token, bool is_text, const float *logits)
{
    mf_srv_bytes text = {0};
    if (is_text)
        decode(c, token, &text);
    c->n_content_bytes += text.n_bytes;
    add_info(c, token, logits);
    release(c, text.data ? text.data : "", text.n_bytes);
    mf_srv_bytes_free(&text);
}

void mf_srv_answer_end(mf_srv_choice *c, bool was_cut)
{
    mf_srv_bytes text = {0};
    if (c->stopped_by || c->is_done)
        return;
    if (c->reply) {
        c->is_broken = mf_reply_finish(c->reply, was_cut, NULL) != MF_OK || c->is_broken;
        (void)take_events(c);
    } else {
        decode(c, -1, &text);
        (void)pass_content(c, text.data ? text.data : "", text.n_bytes);
        mf_srv_bytes_free(&text);
    }
    if (!c->stopped_by)
        release_held(c);
}
