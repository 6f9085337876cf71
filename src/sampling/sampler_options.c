/* SPDX-License-Identifier: MIT */
/* The sampler's options: defaults, ranges, and what generation_config.json says of them. */
#include "sampling/sampler.h"

#include "base/sized.h"
#include "format/gguf.h"
#include "format/json.h"

#include <math.h>

#define MAX_CONFIG_BYTES ((size_t)1 << 20)
#define MAX_PATH_BYTES 4096
#define MAX_DRY_TOKENS (1u << 24)

void mf_sampler_options_init(mf_sampler_options *options, size_t struct_bytes)
{
    const mf_sampler_options defaults = {.temperature = 1.0f,
                                         .top_p = 1.0f,
                                         .repetition_penalty = 1.0f,
                                         .dry_base = 1.75f,
                                         .dry_allowed_length = 2,
                                         .dry_n_tokens = 4096,
                                         .xtc_threshold = 0.1f};
    mf_sized_init(options, struct_bytes, &defaults, sizeof defaults);
}

static mf_status check_dry(const mf_sampler_options *o, mf_error *error)
{
    if (!(o->dry_multiplier >= 0.0f) || !isfinite(o->dry_multiplier))
        return mf_fail(error, MF_ERR_ARGUMENT, "DRY multiplier %g: expected 0 or more",
                       (double)o->dry_multiplier);
    if (!(o->dry_base >= 1.0f) || !isfinite(o->dry_base))
        return mf_fail(error, MF_ERR_ARGUMENT, "DRY base %g: expected 1 or more",
                       (double)o->dry_base);
    if (o->dry_allowed_length == 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "DRY allowed length 0: expected 1 or more");
    if (o->dry_n_tokens == 0 || o->dry_n_tokens > MAX_DRY_TOKENS)
        return mf_fail(error, MF_ERR_ARGUMENT, "DRY tokens %lu: expected 1 to %lu",
                       (unsigned long)o->dry_n_tokens, (unsigned long)MAX_DRY_TOKENS);
    if (o->n_dry_breakers > 0 && (o->dry_breakers == NULL || o->tokenizer == NULL))
        return mf_fail(error, MF_ERR_ARGUMENT, "DRY breakers: %zu of them, but no %s",
                       o->n_dry_breakers, o->dry_breakers == NULL ? "array" : "tokenizer");
    for (size_t i = 0; i < o->n_dry_breakers; i++)
        if (o->dry_breakers[i] == NULL || o->dry_breakers[i][0] == '\0')
            return mf_fail(error, MF_ERR_ARGUMENT, "DRY breakers: %zu is empty", i);
    return MF_OK;
}

mf_status mf_sampler_options_check(const mf_sampler_options *o, mf_error *error)
{
    if (!(o->temperature >= 0.0f) || !isfinite(o->temperature))
        return mf_fail(error, MF_ERR_ARGUMENT, "temperature %g: expected 0 or more",
                       (double)o->temperature);
    if (!(o->top_p >= 0.0f && o->top_p <= 1.0f))
        return mf_fail(error, MF_ERR_ARGUMENT, "top-p %g: expected 0 to 1", (double)o->top_p);
    if (!(o->min_p >= 0.0f && o->min_p <= 1.0f))
        return mf_fail(error, MF_ERR_ARGUMENT, "min-p %g: expected 0 to 1", (double)o->min_p);
    if (!(o->repetition_penalty > 0.0f) || !isfinite(o->repetition_penalty))
        return mf_fail(error, MF_ERR_ARGUMENT, "repetition penalty %g: expected more than 0",
                       (double)o->repetition_penalty);
    if (!isfinite(o->presence_penalty))
        return mf_fail(error, MF_ERR_ARGUMENT, "presence penalty %g: expected a finite number",
                       (double)o->presence_penalty);
    if (!isfinite(o->frequency_penalty))
        return mf_fail(error, MF_ERR_ARGUMENT, "frequency penalty %g: expected a finite number",
                       (double)o->frequency_penalty);
    if (o->n_biases > 0 && o->biases == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "logit biases: %zu of them, but no array",
                       o->n_biases);
    for (size_t i = 0; i < o->n_biases; i++)
        if (isnan(o->biases[i].bias) || o->biases[i].bias == INFINITY)
            return mf_fail(error, MF_ERR_ARGUMENT, "logit bias of token %ld: %g is no bias",
                           (long)o->biases[i].token, (double)o->biases[i].bias);
    if (!(o->xtc_probability >= 0.0f && o->xtc_probability <= 1.0f))
        return mf_fail(error, MF_ERR_ARGUMENT, "XTC probability %g: expected 0 to 1",
                       (double)o->xtc_probability);
    if (!(o->xtc_threshold >= 0.0f && o->xtc_threshold <= 1.0f))
        return mf_fail(error, MF_ERR_ARGUMENT, "XTC threshold %g: expected 0 to 1",
                       (double)o->xtc_threshold);
    return check_dry(o, error);
}

/* Takes a number that the file names; absent and null leave *out alone. */
static mf_status load_number(const mf_json *json, const char *name, float *out, mf_error *error)
{
    yyjson_val *value = yyjson_obj_get(json->root, name);
    if (value == NULL || yyjson_is_null(value))
        return MF_OK;
    if (!yyjson_is_num(value))
        return mf_fail(error, MF_ERR_FORMAT, "%s: %s: expected a number", json->path, name);
    *out = (float)yyjson_get_num(value);
    return MF_OK;
}

static mf_status load_options(const mf_json *json, mf_sampler_options *o, mf_error *error)
{
    if (!yyjson_is_obj(json->root))
        return mf_fail(error, MF_ERR_FORMAT, "%s: expected an object", json->path);
    MF_TRY(mf_json_check_names(json, error));
    MF_TRY(load_number(json, "temperature", &o->temperature, error));
    MF_TRY(load_number(json, "top_p", &o->top_p, error));
    MF_TRY(load_number(json, "min_p", &o->min_p, error));
    MF_TRY(load_number(json, "repetition_penalty", &o->repetition_penalty, error));
    yyjson_val *top_k = yyjson_obj_get(json->root, "top_k");
    if (top_k != NULL && !yyjson_is_null(top_k)) {
        double k = yyjson_get_num(top_k);
        if (!yyjson_is_num(top_k) || !(k >= 0 && k <= UINT32_MAX) || k != (double)(uint32_t)k)
            return mf_fail(error, MF_ERR_FORMAT, "%s: top_k: expected a whole number", json->path);
        o->top_k = (uint32_t)k;
    }
    yyjson_val *do_sample = yyjson_obj_get(json->root, "do_sample");
    if (do_sample != NULL && !yyjson_is_null(do_sample) && !yyjson_is_bool(do_sample))
        return mf_fail(error, MF_ERR_FORMAT, "%s: do_sample: expected true or false", json->path);
    if (yyjson_is_false(do_sample))
        o->temperature = 0.0f;
    mf_error range;
    if (mf_sampler_options_check(o, &range) != MF_OK)
        return mf_fail(error, MF_ERR_FORMAT, "%s: %.400s", json->path, range.message);
    return MF_OK;
}

/* general.sampling.* of a GGUF file. */
static mf_status take_gguf(const mf_gguf *gguf, mf_sampler_options *o, mf_error *error)
{
    const struct {
        const char *key;
        float *out;
    } numbers[] = {{"general.sampling.temp", &o->temperature},
                   {"general.sampling.top_p", &o->top_p},
                   {"general.sampling.min_p", &o->min_p},
                   {"general.sampling.xtc_probability", &o->xtc_probability},
                   {"general.sampling.xtc_threshold", &o->xtc_threshold},
                   {"general.sampling.penalty_repeat", &o->repetition_penalty}};
    double value;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (mf_gguf_number(gguf, mf_gguf_find(gguf, numbers[i].key), 0, &value))
            *numbers[i].out = (float)value;
    if (mf_gguf_number(gguf, mf_gguf_find(gguf, "general.sampling.top_k"), 0, &value)) {
        if (!(value <= UINT32_MAX) || value != floor(value))
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: key general.sampling.top_k: expected a whole number", gguf->path);
        o->top_k = value > 0 ? (uint32_t)value : 0;
    }
    mf_error range;
    if (mf_sampler_options_check(o, &range) != MF_OK)
        return mf_fail(error, MF_ERR_FORMAT, "%s: general.sampling: %.400s", gguf->path,
                       range.message);
    return MF_OK;
}

static mf_status load_gguf(const char *file, mf_sampler_options *options,
                           mf_sampler_options *loaded, mf_error *error)
{
    const mf_allocator a = mf_allocator_default();
    mf_gguf gguf = {0};
    MF_TRY(mf_gguf_open(&a, file, &gguf, error));
    mf_status status = take_gguf(&gguf, loaded, error);
    mf_gguf_free(&gguf);
    if (status == MF_OK)
        mf_sized_init(options, options->struct_bytes, loaded, sizeof *loaded);
    return status;
}

mf_status mf_sampler_options_load(const char *path, mf_sampler_options *options, mf_error *error)
{
    char file[MAX_PATH_BYTES];
    if (path == NULL || options == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_sampler_options_load: a NULL argument");
    mf_sampler_options loaded;
    mf_sampler_options_default(&loaded);
    MF_TRY(mf_sized_get(&loaded, sizeof loaded, options, "mf_sampler_options", error));
    const mf_allocator a = mf_allocator_default();
    bool is_gguf;
    MF_TRY(mf_gguf_locate_text(path, file, sizeof file, &is_gguf, error));
    if (is_gguf)
        return load_gguf(file, options, &loaded, error);
    MF_TRY(mf_path_join(file, sizeof file, path, "generation_config.json", error));
    if (!mf_file_exists(file))
        return MF_OK;
    mf_json json = {0};
    MF_TRY(mf_json_read(&a, file, MAX_CONFIG_BYTES, &json, error));
    mf_status status = load_options(&json, &loaded, error);
    mf_json_free(&json);
    if (status == MF_OK)
        mf_sized_init(options, options->struct_bytes, &loaded, sizeof loaded);
    return status;
}
