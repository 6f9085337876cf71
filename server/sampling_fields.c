/* SPDX-License-Identifier: MIT */
/* Fields that all APIs that answer share. */
#include "fields.h"

#include "model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MAX_BIASES 4096
#define MAX_MODEL_BYTES 256

const mf_srv_field mf_srv_sampling_fields[] = {{"temperature", MF_SRV_FIELD_USED},
                                               {"top_p", MF_SRV_FIELD_USED},
                                               {"top_k", MF_SRV_FIELD_USED},
                                               {"min_p", MF_SRV_FIELD_USED},
                                               {"repetition_penalty", MF_SRV_FIELD_USED},
                                               {"presence_penalty", MF_SRV_FIELD_USED},
                                               {"frequency_penalty", MF_SRV_FIELD_USED},
                                               {"dry_multiplier", MF_SRV_FIELD_USED},
                                               {"dry_base", MF_SRV_FIELD_USED},
                                               {"dry_allowed_length", MF_SRV_FIELD_USED},
                                               {"dry_penalty_last_n", MF_SRV_FIELD_USED},
                                               {"dry_sequence_breakers", MF_SRV_FIELD_USED},
                                               {"xtc_probability", MF_SRV_FIELD_USED},
                                               {"xtc_threshold", MF_SRV_FIELD_USED},
                                               {"logit_bias", MF_SRV_FIELD_USED},
                                               {"seed", MF_SRV_FIELD_USED},
                                               {"ignore_eos", MF_SRV_FIELD_USED},
                                               {"grammar", MF_SRV_FIELD_USED},
                                               {"repeat_penalty", MF_SRV_FIELD_USED},
                                               {"json_schema", MF_SRV_FIELD_USED},
                                               {"structured_outputs", MF_SRV_FIELD_USED},
                                               {"guided_json", MF_SRV_FIELD_USED},
                                               {"guided_choice", MF_SRV_FIELD_USED},
                                               {"guided_grammar", MF_SRV_FIELD_USED},
                                               {"guided_regex", MF_SRV_FIELD_REFUSED},
                                               {"model", MF_SRV_FIELD_USED},
                                               {"stream", MF_SRV_FIELD_USED},
                                               {NULL, MF_SRV_FIELD_USED}};

const mf_srv_field mf_srv_harmless_fields[] = {{"user", MF_SRV_FIELD_HARMLESS},
                                               {"metadata", MF_SRV_FIELD_HARMLESS},
                                               {"store", MF_SRV_FIELD_HARMLESS},
                                               {"safety_identifier", MF_SRV_FIELD_HARMLESS},
                                               {"service_tier", MF_SRV_FIELD_HARMLESS},
                                               {"prompt_cache_key", MF_SRV_FIELD_HARMLESS},
                                               {"prompt_cache_options", MF_SRV_FIELD_HARMLESS},
                                               {"prompt_cache_retention", MF_SRV_FIELD_HARMLESS},
                                               {"client_metadata", MF_SRV_FIELD_HARMLESS},
                                               {"cache_prompt", MF_SRV_FIELD_HARMLESS},
                                               {NULL, MF_SRV_FIELD_USED}};

/* Any whole number of 64 bits, however it is written: 7.0 is 7, as it is for counts. */
static bool is_seed(yyjson_val *v, uint64_t *seed)
{
    const double number = yyjson_get_num(v);
    if (yyjson_is_int(v))
        *seed = yyjson_is_uint(v) ? yyjson_get_uint(v) : (uint64_t)yyjson_get_sint(v);
    else if (yyjson_is_real(v) && number >= -0x1p63 && number < 0x1p64 && number == floor(number))
        *seed = number < 0 ? (uint64_t)(int64_t)number : (uint64_t)number;
    else
        return false;
    return true;
}

static bool get_seed(yyjson_val *object, mf_srv_params *p, mf_srv_refusal *r)
{
    yyjson_val *v = mf_srv_field_of(object, "seed");
    if (v && !is_seed(v, &p->sampler.seed))
        return mf_srv_refuse_field(
            r, "seed", "expected a whole number from -9223372036854775808 to 18446744073709551615");
    if (!v && getrandom(&p->sampler.seed, sizeof p->sampler.seed, 0) < 0)
        return mf_srv_refuse(r, 500, "no random numbers: %s", strerror(errno));
    return true;
}

static bool get_one_bias(yyjson_val *key, yyjson_val *value, size_t n_vocab, mf_logit_bias *out,
                         mf_srv_refusal *r)
{
    char *end;
    const char *text = yyjson_get_str(key);
    errno = 0;
    unsigned long long token = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || end != text + yyjson_get_len(key) || errno != 0 ||
        token >= n_vocab)
        return mf_srv_refuse_field(r, "logit_bias", "'%.40s' is not a token id below %zu", text,
                                   n_vocab);
    double bias = yyjson_get_num(value);
    if (!yyjson_is_num(value) || !(bias >= -100.0 && bias <= 100.0))
        return mf_srv_refuse_field(r, "logit_bias", "expected numbers from -100 to 100");
    /* as published: -100 bans, 100 leaves no choice */
    *out = (mf_logit_bias){(int32_t)token, bias == -100.0 ? -INFINITY : (float)bias};
    return true;
}

static bool get_biases(yyjson_val *object, size_t n_vocab, mf_srv_params *p, mf_srv_refusal *r)
{
    yyjson_val *v = mf_srv_field_of(object, "logit_bias"), *key, *value;
    size_t i, n;
    if (!v)
        return true;
    if (!yyjson_is_obj(v) || yyjson_obj_size(v) > MAX_BIASES)
        return mf_srv_refuse_field(r, "logit_bias", "expected an object of at most %d biases",
                                   MAX_BIASES);
    p->biases = calloc(yyjson_obj_size(v) + 1, sizeof *p->biases);
    if (!p->biases)
        return mf_srv_refuse(r, 503, "out of memory");
    yyjson_obj_foreach(v, i, n, key, value)
    {
        if (!get_one_bias(key, value, n_vocab, &p->biases[i], r))
            return false;
    }
    p->sampler.biases = p->biases;
    p->sampler.n_biases = yyjson_obj_size(v);
    return true;
}

static bool get_top_k(yyjson_val *object, mf_srv_params *p, mf_srv_refusal *r)
{
    size_t k = p->sampler.top_k;
    if (!mf_srv_get_limit(object, "top_k", 0, INT32_MAX, &k, r))
        return false;
    p->sampler.top_k = k == SIZE_MAX ? 0 : (uint32_t)k;
    return true;
}

bool mf_srv_get_sampling(yyjson_val *object, size_t n_vocab, mf_srv_params *p, mf_srv_refusal *r)
{
    mf_sampler_options *o = &p->sampler;
    return mf_srv_get_float(object, "temperature", 0, 100, &o->temperature, r) &&
           mf_srv_get_float(object, "top_p", 0, 1, &o->top_p, r) && get_top_k(object, p, r) &&
           mf_srv_get_float(object, "min_p", 0, 1, &o->min_p, r) &&
           mf_srv_get_float(object, "repeat_penalty", 0.01, 100, &o->repetition_penalty, r) &&
           mf_srv_get_float(object, "repetition_penalty", 0.01, 100, &o->repetition_penalty, r) &&
           mf_srv_get_float(object, "presence_penalty", -2, 2, &o->presence_penalty, r) &&
           mf_srv_get_float(object, "frequency_penalty", -2, 2, &o->frequency_penalty, r) &&
           get_seed(object, p, r) && get_biases(object, n_vocab, p, r) &&
           mf_srv_get_bool(object, "ignore_eos", &p->ignores_end, r) &&
           mf_srv_get_bool(object, "stream", &p->streams, r);
}

static bool add_stop(yyjson_val *v, const char *name, mf_srv_params *p, mf_srv_refusal *r)
{
    if (!mf_srv_is_text(v, name, r))
        return false;
    if (yyjson_get_len(v) == 0 || yyjson_get_len(v) > MF_SRV_MAX_STOP_BYTES)
        return mf_srv_refuse_field(r, name, "expected strings of 1 to %d bytes",
                                   MF_SRV_MAX_STOP_BYTES);
    if (p->n_stops == MF_SRV_MAX_STOPS)
        return mf_srv_refuse_field(r, name, "more than %d strings", MF_SRV_MAX_STOPS);
    p->stops[p->n_stops] = strdup(yyjson_get_str(v));
    if (!p->stops[p->n_stops])
        return mf_srv_refuse(r, 503, "out of memory");
    p->n_stops++;
    return true;
}

bool mf_srv_get_stops(yyjson_val *object, const char *name, mf_srv_params *p, mf_srv_refusal *r)
{
    yyjson_val *v = mf_srv_field_of(object, name), *item;
    size_t i, n;
    if (!v)
        return true;
    if (yyjson_is_str(v))
        return add_stop(v, name, p, r);
    if (!yyjson_is_arr(v))
        return mf_srv_refuse_field(r, name, "expected a string or an array of strings");
    yyjson_arr_foreach(v, i, n, item)
    {
        if (!add_stop(item, name, p, r))
            return false;
    }
    return true;
}

bool mf_srv_get_stream_options(yyjson_val *object, mf_srv_params *p, mf_srv_refusal *r)
{
    static const mf_srv_field names[] = {{"include_usage", MF_SRV_FIELD_USED},
                                         {"include_obfuscation", MF_SRV_FIELD_HARMLESS},
                                         {"continuous_usage_stats", MF_SRV_FIELD_REFUSED},
                                         {NULL, MF_SRV_FIELD_USED}};
    yyjson_val *v;
    return mf_srv_get_object(object, "stream_options", names, &v, r) &&
           mf_srv_get_bool(v, "stream_options.include_usage", &p->has_usage_event, r);
}

bool mf_srv_get_model(yyjson_val *object, mf_srv_job *job, mf_srv_refusal *r)
{
    const char *name = job->served->name;
    if (!mf_srv_get_string(object, "model", &name, r))
        return false;
    if (strlen(name) > MAX_MODEL_BYTES)
        return mf_srv_refuse_field(r, "model", "longer than %d bytes", MAX_MODEL_BYTES);
    job->model = strdup(name);
    return job->model || mf_srv_refuse(r, 503, "out of memory");
}
