/* SPDX-License-Identifier: MIT */
/* OpenAI's completions: text, or tokens, that is gone on with. */
#include "api.h"
#include "constraint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* As published, where max_tokens is absent. */
#define DEFAULT_TOKENS 16

static const mf_srv_field fields[] = {
    {"prompt", MF_SRV_FIELD_USED}, {"max_tokens", MF_SRV_FIELD_USED},
    {"n", MF_SRV_FIELD_USED},      {"best_of", MF_SRV_FIELD_USED},
    {"stop", MF_SRV_FIELD_USED},   {"logprobs", MF_SRV_FIELD_USED},
    {"echo", MF_SRV_FIELD_USED},   {"stream_options", MF_SRV_FIELD_USED},
    {"suffix", MF_SRV_FIELD_USED}, {"response_format", MF_SRV_FIELD_USED},
    {NULL, MF_SRV_FIELD_USED}};

/* ----------------------------------------------------------------------------------- answers -- */

/* Of the content's bytes, as far as there are so many. */
static size_t n_characters(const mf_srv_bytes *content, size_t begin, size_t end)
{
    size_t n = 0;
    for (size_t i = begin; i < end && i < content->n_bytes; i++)
        n += ((unsigned char)content->data[i] & 0xC0) != 0x80;
    return n;
}

/* Where each token's text begins in the content; clients count characters. */
static void put_offsets(const mf_srv_choice *c, const mf_srv_token *tokens, size_t n,
                        mf_srv_bytes *out)
{
    size_t end = n > 0 && tokens > c->infos ? tokens[-1].end : 0;
    size_t offset = n_characters(&c->content, 0, end);
    for (size_t i = 0; i < n; i++) {
        mf_srv_printf(out, "%s%zu", i > 0 ? "," : "", offset);
        offset += n_characters(&c->content, end, tokens[i].end);
        end = tokens[i].end;
    }
}

/* An object by the tokens' texts, each of which stands in it once: tokens that are no characters by
 * themselves have one text, and the likeliest of them is told. */
static void put_top(const mf_srv_job *job, const mf_srv_token *token, mf_srv_bytes *out)
{
    const size_t begin = out->n_bytes;
    if (token->n_top == 0) {
        mf_srv_puts(out, "null");
        return;
    }
    for (unsigned k = 0; k < token->n_top; k++) {
        mf_srv_bytes name = {0};
        mf_srv_puts(&name, ",");
        mf_srv_put_token(job, &name, token->top[k].token);
        mf_srv_puts(&name, ":");
        out->has_failed = out->has_failed || name.has_failed;
        if (!out->has_failed &&
            (k == 0 || !memmem(out->data + begin, out->n_bytes - begin, name.data, name.n_bytes))) {
            mf_srv_put(out, name.data, name.n_bytes);
            mf_srv_put_logprob(out, token->top[k].logprob);
        }
        mf_srv_bytes_free(&name);
    }
    mf_srv_puts(out, "}");
    if (!out->has_failed)
        out->data[begin] = '{';
}

static void put_logprobs(const mf_srv_choice *c, const mf_srv_token *tokens, size_t n,
                         mf_srv_bytes *out)
{
    const mf_srv_job *job = c->job;
    mf_srv_puts(out, ",\"logprobs\":");
    if (!job->params.has_logprobs) {
        mf_srv_puts(out, "null");
        return;
    }
    mf_srv_puts(out, "{\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        mf_srv_puts(out, i > 0 ? "," : "");
        mf_srv_put_token(job, out, tokens[i].token);
    }
    mf_srv_puts(out, "],\"token_logprobs\":[");
    for (size_t i = 0; i < n; i++) {
        mf_srv_puts(out, i > 0 ? "," : "");
        mf_srv_put_logprob(out, tokens[i].logprob);
    }
    mf_srv_puts(out, "],\"top_logprobs\":[");
    for (size_t i = 0; i < n; i++) {
        mf_srv_puts(out, i > 0 ? "," : "");
        put_top(job, &tokens[i], out);
    }
    mf_srv_puts(out, "],\"text_offset\":[");
    put_offsets(c, tokens, n, out);
    mf_srv_puts(out, "]}");
}

static void put_head(const mf_srv_job *job, mf_srv_bytes *out)
{
    mf_srv_printf(out, "{\"id\":\"%s\",\"object\":\"text_completion\",\"created\":%" PRId64,
                  job->id, job->created);
    mf_srv_put_text_field(out, "model", job->model);
    mf_srv_puts(out, ",\"choices\":[");
}

static void put_text(mf_srv_bytes *out, size_t index, const char *text, size_t n_bytes)
{
    mf_srv_printf(out, "{\"index\":%zu,\"text\":", index);
    mf_srv_put_json(out, text ? text : "", n_bytes);
}

static void end_event(const mf_srv_job *job, mf_srv_bytes *out)
{
    mf_srv_puts(out, job->params.has_usage_event ? "],\"usage\":null}\n\n" : "]}\n\n");
}

static void on_piece(mf_srv_job *job, mf_srv_choice *c, const mf_srv_piece *piece,
                     mf_srv_bytes *out)
{
    mf_srv_puts(out, "data: ");
    put_head(job, out);
    put_text(out, c->index, piece->text, piece->n_bytes);
    put_logprobs(c, piece->tokens, piece->n_tokens, out);
    mf_srv_puts(out, ",\"finish_reason\":null}");
    end_event(job, out);
}

static void on_finish(mf_srv_job *job, mf_srv_choice *c, mf_srv_bytes *out)
{
    mf_srv_puts(out, "data: ");
    put_head(job, out);
    put_text(out, c->index, "", 0);
    mf_srv_printf(out, ",\"logprobs\":null,\"finish_reason\":\"%s\"}",
                  mf_srv_finish_name(c->finish));
    end_event(job, out);
}

static void on_end(mf_srv_job *job, mf_srv_bytes *out)
{
    if (job->params.has_usage_event) {
        mf_srv_puts(out, "data: ");
        put_head(job, out);
        mf_srv_puts(out, "],\"usage\":");
        mf_srv_put_usage(job, out);
        mf_srv_puts(out, "}\n\n");
    }
    mf_srv_puts(out, "data: [DONE]\n\n");
}

/* Per token; an answer of none (max_tokens 0) is as good as any. */
static double logprob_of(const mf_srv_choice *c)
{
    return c->n_scored > 0 ? c->logprob_sum / (double)c->n_scored : 0;
}

/* Of a prompt's n choices the likeliest that is not given out yet; of equals the first. */
static size_t next_best(const mf_srv_choice *choices, size_t n, const bool *is_given)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (!is_given[i] && (best == n || logprob_of(&choices[i]) > logprob_of(&choices[best])))
            best = i;
    return best;
}

static void put_choice(size_t index, const mf_srv_choice *c, mf_srv_bytes *out)
{
    mf_srv_puts(out, index > 0 ? "," : "");
    put_text(out, index, c->content.data, c->content.n_bytes);
    put_logprobs(c, c->infos, c->n_released, out);
    mf_srv_printf(out, ",\"finish_reason\":\"%s\"}", mf_srv_finish_name(c->finish));
}

static void on_document(mf_srv_job *job, mf_srv_bytes *out)
{
    const size_t n = job->params.n_choices, n_best = job->params.n_best;
    put_head(job, out);
    for (size_t p = 0; p < job->n_prompts; p++) {
        const mf_srv_choice *choices = &job->choices[p * n];
        bool is_given[MF_SRV_MAX_CHOICES] = {false};
        for (size_t i = 0; n_best == 0 && i < n; i++)
            put_choice(p * n + i, &choices[i], out);
        for (size_t i = 0; i < n_best; i++) {
            const size_t best = next_best(choices, n, is_given);
            is_given[best] = true;
            put_choice(p * n_best + i, &choices[best], out);
        }
    }
    mf_srv_puts(out, "],\"usage\":");
    mf_srv_put_usage(job, out);
    mf_srv_puts(out, "}");
}

static const mf_srv_protocol protocol = {.name = "completions",
                                         .id_prefix = "cmpl-",
                                         .shape = MF_SRV_OPENAI,
                                         .piece = on_piece,
                                         .finish = on_finish,
                                         .end = on_end,
                                         .fail = mf_srv_put_error_event,
                                         .document = on_document};

/* ----------------------------------------------------------------------------------- request -- */

static bool add_tokens(mf_srv_job *job, yyjson_val *array, mf_srv_refusal *r)
{
    size_t i, n;
    yyjson_val *v;
    mf_srv_prompt prompt = {.tokens = malloc((yyjson_arr_size(array) + 1) * sizeof(int32_t))};
    if (!prompt.tokens)
        return mf_srv_refuse(r, 503, "out of memory for the prompt");
    yyjson_arr_foreach(array, i, n, v)
    {
        if (!yyjson_is_uint(v) || yyjson_get_uint(v) >= job->served->info.n_vocab) {
            mf_srv_prompt_free(&prompt);
            return mf_srv_refuse_field(r, "prompt", "expected token ids below %lu",
                                       (unsigned long)job->served->info.n_vocab);
        }
        prompt.tokens[prompt.n_tokens++] = (int32_t)yyjson_get_uint(v);
    }
    mf_srv_prompt_mark_end(job->served, &prompt);
    return mf_srv_api_add_prompt(job, &prompt, r);
}

/* suffix: what stands behind the answer; NULL: nothing is said of it. */
static bool add_text(mf_srv_job *job, yyjson_val *text, yyjson_val *suffix, mf_srv_refusal *r)
{
    mf_srv_prompt prompt = {0};
    if (suffix)
        return mf_srv_prompt_gap(job->served, yyjson_get_str(text), yyjson_get_len(text),
                                 yyjson_get_str(suffix), yyjson_get_len(suffix), &prompt, r) &&
               mf_srv_api_add_prompt(job, &prompt, r);
    return mf_srv_prompt_text(job->served, yyjson_get_str(text), yyjson_get_len(text), true,
                              &prompt, r) &&
           mf_srv_api_add_prompt(job, &prompt, r);
}

/* What stands behind the answer; *out NULL: nothing is said of it, or nothing stands there. */
static bool get_suffix(yyjson_val *object, const mf_srv_job *job, yyjson_val **out,
                       mf_srv_refusal *r)
{
    yyjson_val *v = mf_srv_field_of(object, "suffix");
    *out = NULL;
    if (v && !yyjson_is_str(v))
        return mf_srv_refuse_field(r, "suffix", "expected a string");
    if (!v || yyjson_get_len(v) == 0)
        return true;
    if (job->params.has_echo)
        return mf_srv_refuse_field(r, "suffix", "excludes echo");
    *out = v;
    return true;
}

static bool add_prompt(mf_srv_job *job, yyjson_val *prompt, yyjson_val *suffix, mf_srv_refusal *r)
{
    if (yyjson_is_str(prompt))
        return add_text(job, prompt, suffix, r);
    return suffix ? mf_srv_refuse_field(r, "suffix", "wants prompts that are texts")
                  : add_tokens(job, prompt, r);
}

/* A text, tokens, or several of either. */
static bool get_prompts(yyjson_val *object, mf_srv_job *job, mf_srv_refusal *r)
{
    yyjson_val *v = mf_srv_field_of(object, "prompt"), *item, *suffix;
    size_t i, n;
    if (!get_suffix(object, job, &suffix, r))
        return false;
    if (!yyjson_is_str(v) && (!yyjson_is_arr(v) || yyjson_arr_size(v) == 0))
        return mf_srv_refuse_field(r, "prompt", "expected a string, token ids, or several of them");
    if (yyjson_is_str(v) || yyjson_is_num(yyjson_arr_get_first(v)))
        return add_prompt(job, v, suffix, r);
    if (yyjson_arr_size(v) > MF_SRV_MAX_CHOICES)
        return mf_srv_refuse_field(r, "prompt", "more than %d prompts", MF_SRV_MAX_CHOICES);
    yyjson_arr_foreach(v, i, n, item)
    {
        if (!yyjson_is_str(item) && !yyjson_is_arr(item))
            return mf_srv_refuse_field(r, "prompt", "expected strings or arrays of token ids");
        if (!add_prompt(job, item, suffix, r))
            return false;
    }
    return true;
}

static bool get_logprobs(yyjson_val *object, mf_srv_params *p, mf_srv_refusal *r)
{
    size_t n = 0;
    p->has_logprobs = mf_srv_field_of(object, "logprobs") != NULL;
    if (!mf_srv_get_count(object, "logprobs", 0, MF_SRV_MAX_TOP, &n, r))
        return false;
    p->n_top = (unsigned)n;
    return true;
}

/* n answers are given out, of best_of that are made. */
static bool get_choices(yyjson_val *object, mf_srv_params *p, mf_srv_refusal *r)
{
    if (!mf_srv_get_count(object, "n", 1, MF_SRV_MAX_CHOICES, &p->n_choices, r))
        return false;
    size_t best_of = p->n_choices;
    if (!mf_srv_get_count(object, "best_of", 1, MF_SRV_MAX_CHOICES, &best_of, r))
        return false;
    if (best_of < p->n_choices)
        return mf_srv_refuse_field(r, "best_of", "is less than n");
    if (best_of == p->n_choices)
        return true;
    if (p->streams)
        return mf_srv_refuse_field(r, "best_of",
                                   "which answers are the best is known when all are made: with "
                                   "stream no more than n");
    p->n_best = p->n_choices;
    p->n_choices = best_of;
    return true;
}

static bool read_request(yyjson_val *object, mf_srv_job *job, mf_srv_refusal *r)
{
    mf_srv_params *p = &job->params;
    p->n_max_tokens = DEFAULT_TOKENS;
    if (!mf_srv_get_token_limit(object, "max_tokens", 0, &p->n_max_tokens, r) ||
        !get_choices(object, p, r))
        return false;
    return mf_srv_get_stops(object, "stop", p, r) && get_logprobs(object, p, r) &&
           mf_srv_get_bool(object, "echo", &p->has_echo, r) &&
           mf_srv_get_stream_options(object, p, r) &&
           mf_srv_read_constraint(object, mf_srv_field_of(object, "response_format"),
                                  "response_format", job, r) &&
           get_prompts(object, job, r);
}

bool mf_srv_api_completions(mf_srv_request *request, mf_srv_refusal *r)
{
    static const mf_srv_field *const tables[] = {fields, mf_srv_sampling_fields,
                                                 mf_srv_harmless_fields, NULL};
    if (!mf_srv_check_fields(request->json, "", tables, r))
        return false;
    mf_srv_job *job = mf_srv_api_job(request, &protocol, r);
    return job && read_request(request->json, job, r) && mf_srv_api_finish(job, r);
}
