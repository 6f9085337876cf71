/* SPDX-License-Identifier: MIT */
/* Jobs and what they say. */
#include "job.h"

#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

void mf_srv_make_id(char id[MF_SRV_ID_BYTES], const char *prefix)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuv";
    unsigned char random[20] = {0};
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        memset(random, 7, sizeof random);
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
    mf_srv_bytes_free(&c->undecided);
    mf_srv_bytes_free(&c->held);
    mf_srv_bytes_free(&c->content);
    mf_srv_bytes_free(&c->thoughts);
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
    free(job->params.biases);
    free((void *)job->params.breakers);
    free(job->model);
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

bool mf_srv_job_prepare(mf_srv_job *job)
{
    const size_t n = job->params.n_choices;
    job->n_choices = job->n_prompts * n;
    job->choices = calloc(job->n_choices, sizeof *job->choices);
    for (size_t i = 0; job->choices && i < job->n_choices; i++) {
        mf_srv_choice *c = &job->choices[i];
        c->job = job;
        c->index = i;
        c->prompt = &job->prompts[i / n];
        c->place = MF_SRV_IN_CONTENT;
        if (job->protocol->has_thoughts && job->served->has_thoughts)
            c->place = c->prompt->opens_thought ? MF_SRV_IN_THOUGHT : MF_SRV_AT_START;
        c->capacity = c->prompt->n_tokens + 256;
        c->tokens = malloc(c->capacity * sizeof *c->tokens);
        if (!c->tokens)
            return false;
        if (n > 1 && c->index % n == 0)
            add_mark(&job->prompts[i / n]);
        memcpy(c->tokens, c->prompt->tokens, c->prompt->n_tokens * sizeof *c->tokens);
        c->n_tokens = c->prompt->n_tokens;
    }
    return job->choices != NULL;
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
    job->has_begun = true;
    if (job->params.streams && job->protocol->begin)
        job->protocol->begin(job, &out);
    send_out(job, &out);
}

void mf_srv_job_piece(mf_srv_choice *choice, const mf_srv_piece *piece)
{
    mf_srv_job *job = choice->job;
    mf_srv_bytes out = {0};
    mf_srv_put(piece->is_thought ? &choice->thoughts : &choice->content, piece->text,
               piece->n_bytes);
    if (job->params.streams && job->protocol->piece)
        job->protocol->piece(job, choice, piece, &out);
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
    mf_srv_channel_end(&job->channel, refusal->status);
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
