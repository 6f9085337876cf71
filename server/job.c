/* SPDX-License-Identifier: MIT */
/* Jobs and what they say. */
#include "job.h"

#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void mf_srv_make_id(char id[MF_SRV_ID_BYTES], const char *prefix)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuv";
    unsigned char random[20];
    mf_srv_random(random, sizeof random);
    size_t n = (size_t)snprintf(id, MF_SRV_ID_BYTES - sizeof random, "%s", prefix);
    for (size_t i = 0; i < sizeof random; i++)
        id[n++] = letters[random[i] & 31];
    id[n] = '\0';
}

mf_srv_job *mf_srv_job_new(const mf_srv_model *served, const mf_srv_protocol *protocol)
{
    mf_srv_job *job = calloc(1, sizeof *job);
    if (!job || !mf_srv_channel_init(&job->channel)) {
        free(job);
        return NULL;
    }
    job->n_refs = 1;
    job->served = served;
    job->protocol = protocol;
    job->created = time(NULL);
    job->arrived_us = mf_srv_now_us();
    mf_srv_make_id(job->id, protocol->id_prefix);
    job->params.sampler = served->sampler;
    job->params.n_choices = 1;
    job->params.n_max_tokens = SIZE_MAX;
    job->params.n_thought_max = SIZE_MAX;
    return job;
}

void mf_srv_job_hold(mf_srv_job *job)
{
    __atomic_add_fetch(&job->n_refs, 1, __ATOMIC_RELAXED);
}

static void free_choice(mf_srv_choice *c)
{
    free(c->tokens);
    mf_sampler_free(&c->sampler);
    mf_guide_free(&c->guide);
    free(c->mask);
    mf_reply_free(&c->reply);
    mf_srv_bytes_free(&c->held);
    mf_srv_bytes_free(&c->content);
    mf_srv_bytes_free(&c->thoughts);
    for (size_t i = 0; i < c->n_calls; i++) {
        free(c->calls[i].id);
        free(c->calls[i].model_id);
        free(c->calls[i].name);
        mf_srv_bytes_free(&c->calls[i].arguments);
    }
    free(c->calls);
    free(c->parts);
    free(c->infos);
}

void mf_srv_job_drop(mf_srv_job *job)
{
    if (!job || __atomic_sub_fetch(&job->n_refs, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (size_t i = 0; i < job->n_choices && job->choices; i++)
        free_choice(&job->choices[i]);
    free(job->choices);
    for (size_t i = 0; i < job->n_prompts; i++)
        mf_srv_prompt_free(&job->prompts[i]);
    free(job->prompts);
    for (size_t i = 0; i < job->params.n_stops; i++)
        free(job->params.stops[i]);
    mf_guide_free(&job->guide);
    free(job->params.biases);
    free((void *)job->params.breakers);
    free(job->model);
    mf_srv_bytes_free(&job->tools);
    mf_srv_odd_tools_free(&job->odd);
    mf_srv_bytes_free(&job->items);
    mf_srv_bytes_free(&job->echo);
    mf_srv_bytes_free(&job->own_items);
    mf_srv_log_free(&job->log);
    mf_srv_job_drop(job->follows);
    mf_srv_channel_free(&job->channel);
    free(job);
}

/* Other choices begin where the prompt ends. */
static void add_mark(mf_srv_prompt *p)
{
    if (p->n_marks < MF_SRV_MAX_MARKS &&
        (p->n_marks == 0 || p->marks[p->n_marks - 1] < p->n_tokens))
        p->marks[p->n_marks++] = p->n_tokens;
}

/* What takes the answer apart. */
static bool open_reply(mf_srv_job *job, mf_srv_choice *c)
{
    const mf_reply_syntax *syntax = job->served->syntax;
    const mf_srv_bytes *text = &c->prompt->text;
    mf_reply_options options;
    if (!job->protocol->has_thoughts || !syntax || !text->data)
        return true;
    mf_reply_options_default(&options);
    options.tools = job->tools.data;
    options.prompt = text->data;
    options.n_prompt_bytes = text->n_bytes;
    options.has_calls = job->tools.data != NULL;
    options.whole_calls = !job->params.streams;
    options.n_earlier_calls = job->n_earlier_calls;
    mf_srv_random(&options.id_seed, sizeof options.id_seed);
    return mf_reply_create(syntax, &options, &c->reply, NULL) == MF_OK;
}

bool mf_srv_job_prepare(mf_srv_job *job)
{
    const size_t n = job->params.n_choices;
    job->n_choices = job->n_prompts * n;
    job->choices = calloc(job->n_choices, sizeof *job->choices);
    for (size_t i = 0; job->choices && i < job->n_choices; i++) {
        mf_srv_choice *c = &job->choices[i];
        c->job = job;
        c->drawn = -1;
        c->index = i;
        c->prompt = &job->prompts[i / n];
        if (!open_reply(job, c))
            return false;
        if (n > 1 && c->index % n == 0)
            add_mark(&job->prompts[i / n]);
    }
    for (size_t i = 0; i < job->n_prompts; i++)
        mf_srv_bytes_free(&job->prompts[i].text); /* it was for what takes answers apart */
    return job->choices != NULL;
}

bool mf_srv_job_give_tokens(mf_srv_choice *c)
{
    if (c->tokens)
        return true;
    c->capacity = c->prompt->n_tokens + 256;
    c->tokens = malloc(c->capacity * sizeof *c->tokens);
    if (!c->tokens)
        return false;
    memcpy(c->tokens, c->prompt->tokens, c->prompt->n_tokens * sizeof *c->tokens);
    c->n_tokens = c->prompt->n_tokens;
    return true;
}

/* What a protocol wrote goes to the connection. */
static void send_out(mf_srv_job *job, mf_srv_bytes *out)
{
    if (out->n_bytes > 0 || out->has_failed)
        mf_srv_channel_put(&job->channel, out);
    mf_srv_bytes_free(out);
}

void mf_srv_job_begin(mf_srv_job *job)
{
    mf_srv_bytes out = {0};
    if (job->has_begun)
        return;
    __atomic_store_n(&job->has_begun, true, __ATOMIC_RELAXED);
    if (job->params.streams && job->protocol->begin)
        job->protocol->begin(job, &out);
    send_out(job, &out);
    mf_srv_channel_flush(&job->channel);
}

/* Where the text of a part is. */
static mf_srv_bytes *bytes_of(mf_srv_choice *c, const mf_srv_part *part)
{
    switch (part->kind) {
    case MF_SRV_THOUGHT:
        return &c->thoughts;
    case MF_SRV_CALL:
        return &c->calls[part->call].arguments;
    default:
        return &c->content;
    }
}

const char *mf_srv_part_text(const mf_srv_choice *choice, const mf_srv_part *part, size_t *n_bytes)
{
    const mf_srv_bytes *bytes = bytes_of((mf_srv_choice *)choice, part);
    const bool is_open = choice->has_open_part && part == &choice->parts[choice->n_parts - 1];
    *n_bytes = (is_open ? bytes->n_bytes : part->end) - part->begin;
    return bytes->data ? bytes->data + part->begin : "";
}

static void close_part(mf_srv_choice *c, mf_srv_bytes *out)
{
    mf_srv_job *job = c->job;
    if (!c->has_open_part)
        return;
    mf_srv_part *part = &c->parts[c->n_parts - 1];
    part->end = bytes_of(c, part)->n_bytes;
    c->has_open_part = false;
    if (job->params.streams && job->protocol->close)
        job->protocol->close(job, c, part, out);
}

/* The part that a piece belongs to, opened where there is none. False: no memory. */
static bool open_part(mf_srv_choice *c, mf_srv_kind kind, mf_srv_bytes *out)
{
    mf_srv_job *job = c->job;
    if (c->has_open_part && c->parts[c->n_parts - 1].kind == kind && kind != MF_SRV_CALL)
        return true;
    close_part(c, out);
    mf_srv_part *parts = realloc(c->parts, (c->n_parts + 1) * sizeof *parts);
    if (!parts) {
        out->has_failed = true;
        return false;
    }
    c->parts = parts;
    mf_srv_part *part = &parts[c->n_parts++];
    *part = (mf_srv_part){.kind = kind, .call = c->n_calls - (kind == MF_SRV_CALL)};
    part->begin = bytes_of(c, part)->n_bytes;
    c->has_open_part = true;
    if (job->params.streams && job->protocol->open)
        job->protocol->open(job, c, part, out);
    return true;
}

void mf_srv_job_piece(mf_srv_choice *choice, const mf_srv_piece *piece)
{
    mf_srv_job *job = choice->job;
    mf_srv_bytes out = {0};
    const bool is_open =
        choice->has_open_part && choice->parts[choice->n_parts - 1].kind == MF_SRV_CALL;
    if (piece->n_bytes > 0 &&
        (piece->kind == MF_SRV_CALL ? !is_open : !open_part(choice, piece->kind, &out))) {
        send_out(job, &out); /* there was no memory for the part */
        return;
    }
    if (piece->n_bytes > 0)
        mf_srv_put(bytes_of(choice, &choice->parts[choice->n_parts - 1]), piece->text,
                   piece->n_bytes);
    if (job->params.streams && job->protocol->piece)
        job->protocol->piece(job, choice, piece, &out);
    send_out(job, &out);
}

/* Anthropic's ids have letters, digits, _ and - alone. */
static char *make_client_id(const mf_srv_job *job, const char *id)
{
    mf_srv_bytes text = {0};
    const bool is_anthropic = job->protocol->shape == MF_SRV_ANTHROPIC;
    mf_srv_printf(&text, "%s%s", is_anthropic ? "toolu_" : "", id);
    for (char *s = text.data; is_anthropic && s && *s; s++)
        if (!strchr("_-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", *s))
            *s = '_';
    return text.data;
}

void mf_srv_job_call(mf_srv_choice *choice, const char *id, const char *name)
{
    mf_srv_job *job = choice->job;
    mf_srv_bytes out = {0};
    mf_srv_made_call *calls = realloc(choice->calls, (choice->n_calls + 1) * sizeof *calls);
    if (calls) {
        choice->calls = calls;
        calls[choice->n_calls++] = (mf_srv_made_call){
            .id = make_client_id(job, id), .model_id = strdup(id), .name = strdup(name)};
        mf_srv_made_call *call = &calls[choice->n_calls - 1];
        if (!call->id || !call->model_id || !call->name || !open_part(choice, MF_SRV_CALL, &out)) {
            free(call->id);
            free(call->model_id);
            free(call->name);
            choice->n_calls--;
            out.has_failed = true;
        }
    }
    out.has_failed = out.has_failed || !calls;
    send_out(job, &out);
}

/* All choices are made. */
static void end(mf_srv_job *job)
{
    mf_srv_bytes out = {0};
    job->is_over = true;
    if (!job->params.streams)
        job->protocol->document(job, &out);
    else if (job->protocol->end)
        job->protocol->end(job, &out);
    send_out(job, &out);
    mf_srv_channel_end(&job->channel, 200);
}

void mf_srv_job_finish(mf_srv_choice *choice, mf_srv_finish finish)
{
    mf_srv_job *job = choice->job;
    mf_srv_bytes out = {0};
    if (job->is_over)
        return;
    choice->finish = finish;
    if (choice->n_calls == 0 && choice->content.n_bytes == 0)
        (void)open_part(choice, MF_SRV_TEXT, &out); /* clients look for one */
    close_part(choice, &out);
    if (job->params.streams && job->protocol->finish)
        job->protocol->finish(job, choice, &out);
    send_out(job, &out);
    if (++job->n_finished == job->n_choices)
        end(job);
}

void mf_srv_job_fail(mf_srv_job *job, const mf_srv_refusal *refusal)
{
    mf_srv_bytes out = {0};
    if (job->is_over)
        return;
    job->is_over = true;
    if (!job->params.streams)
        mf_srv_put_refusal(&out, job->protocol->shape, refusal, job->id);
    else
        job->protocol->fail(job, refusal, &out);
    send_out(job, &out);
    if (job->protocol->drop)
        job->protocol->drop(job, refusal);
    mf_srv_channel_end(&job->channel, refusal->status);
}

void mf_srv_job_cancel(mf_srv_job *job)
{
    if (job->is_over)
        return;
    job->is_over = true;
    if (job->protocol->drop)
        job->protocol->drop(job, NULL);
    mf_srv_channel_end(&job->channel, 499);
}

mf_srv_usage mf_srv_job_usage(const mf_srv_job *job)
{
    mf_srv_usage usage = {0};
    for (size_t i = 0; i < job->n_prompts; i++)
        usage.n_prompt += job->prompts[i].n_tokens;
    for (size_t i = 0; i < job->n_choices; i++) {
        if (i % job->params.n_choices == 0)
            usage.n_cached += job->choices[i].n_cached;
        usage.n_answer += job->choices[i].n_answered;
        usage.n_thought += job->choices[i].n_thought_tokens;
    }
    return usage;
}

void mf_srv_job_tell_reading(mf_srv_job *job, const mf_srv_reading *reading)
{
    __atomic_store_n(&job->reading.n_done, reading->n_done, __ATOMIC_RELAXED);
    __atomic_store_n(&job->reading.n_all, reading->n_all, __ATOMIC_RELAXED);
    __atomic_store_n(&job->reading.end_us, reading->end_us, __ATOMIC_RELAXED);
}

mf_srv_reading mf_srv_job_reading(const mf_srv_job *job)
{
    return (mf_srv_reading){.n_done = __atomic_load_n(&job->reading.n_done, __ATOMIC_RELAXED),
                            .n_all = __atomic_load_n(&job->reading.n_all, __ATOMIC_RELAXED),
                            .end_us = __atomic_load_n(&job->reading.end_us, __ATOMIC_RELAXED)};
}
