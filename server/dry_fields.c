/* SPDX-License-Identifier: MIT */
/* Fields of DRY and XTC, by the names that llama.cpp's server and text-generation-webui give them.
 */
#include "fields.h"

#include "model.h"

#include <stdlib.h>
#include <string.h>

#define MAX_BREAKERS 64
#define MAX_BREAKER_BYTES 64
#define MAX_TOKENS (1 << 24)

/* -1: the whole context; 0: DRY is off. */
static bool get_last_n(yyjson_val *object, mf_sampler_options *o, mf_srv_refusal *r)
{
    size_t n = o->dry_n_tokens;
    if (!mf_srv_get_limit(object, "dry_penalty_last_n", 0, MAX_TOKENS, &n, r))
        return false;
    if (n == 0)
        o->dry_multiplier = 0.0f;
    else if (n < o->dry_n_tokens) /* the context holds no more */
        o->dry_n_tokens = (uint32_t)n;
    return true;
}

static bool check_breakers(yyjson_val *v, size_t *n_bytes, mf_srv_refusal *r)
{
    const char *const name = "dry_sequence_breakers";
    yyjson_val *item;
    size_t i, n;
    if (!yyjson_is_arr(v) || yyjson_arr_size(v) > MAX_BREAKERS)
        return mf_srv_refuse_field(r, name, "expected an array of at most %d strings",
                                   MAX_BREAKERS);
    yyjson_arr_foreach(v, i, n, item)
    {
        if (!mf_srv_is_text(item, name, r))
            return false;
        if (yyjson_get_len(item) == 0 || yyjson_get_len(item) > MAX_BREAKER_BYTES)
            return mf_srv_refuse_field(r, name, "expected strings of 1 to %d bytes",
                                       MAX_BREAKER_BYTES);
        *n_bytes += yyjson_get_len(item) + 1;
    }
    return true;
}

/* Pointers and texts are one block. */
static bool get_breakers(yyjson_val *object, mf_srv_params *p, mf_srv_refusal *r)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    yyjson_val *v = mf_srv_field_of(object, "dry_sequence_breakers"), *item;
    size_t i, n, n_bytes = 0;
    p->sampler.dry_breakers = usual;
    p->sampler.n_dry_breakers = sizeof usual / sizeof *usual;
    if (!v)
        return true;
    if (!check_breakers(v, &n_bytes, r))
        return false;
    n = yyjson_arr_size(v);
    const char **breakers = malloc((n + 1) * sizeof *breakers + n_bytes);
    if (!breakers)
        return mf_srv_refuse(r, 503, "out of memory");
    char *text = (char *)(breakers + n + 1);
    yyjson_arr_foreach(v, i, n, item)
    {
        breakers[i] = text;
        memcpy(text, yyjson_get_str(item), yyjson_get_len(item) + 1);
        text += yyjson_get_len(item) + 1;
    }
    p->breakers = breakers;
    p->sampler.dry_breakers = breakers;
    p->sampler.n_dry_breakers = n;
    return true;
}

bool mf_srv_get_dry(yyjson_val *object, const mf_srv_model *model, mf_srv_params *p,
                    mf_srv_refusal *r)
{
    mf_sampler_options *o = &p->sampler;
    size_t allowed_length = o->dry_allowed_length;
    o->tokenizer = model->tokenizer;
    o->dry_n_tokens =
        model->info.n_context_tokens < MAX_TOKENS ? model->info.n_context_tokens : MAX_TOKENS;
    if (!mf_srv_get_float(object, "dry_multiplier", 0, 100, &o->dry_multiplier, r) ||
        !mf_srv_get_float(object, "dry_base", 1, 100, &o->dry_base, r) ||
        !mf_srv_get_count(object, "dry_allowed_length", 1, MAX_TOKENS, &allowed_length, r) ||
        !get_last_n(object, o, r) || !get_breakers(object, p, r))
        return false;
    o->dry_allowed_length = (uint32_t)allowed_length;
    return mf_srv_get_float(object, "xtc_probability", 0, 1, &o->xtc_probability, r) &&
           mf_srv_get_float(object, "xtc_threshold", 0, 1, &o->xtc_threshold, r);
}
