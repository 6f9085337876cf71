/* SPDX-License-Identifier: MIT */
/* The sampler's options. */
#include "sampling.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library's own limit. */
#define MAX_DRY_TOKENS (1u << 24)

/* Options that are one field of the sampler's: a float within limits, or a whole number. */
static const struct scalar {
    int option;
    const char *name;
    size_t offset;
    bool is_whole;
    float min, max;
} scalars[] = {
#define FIELD(name) offsetof(mf_sampler_options, name)
    {MF_OPT_TEMP, "temp", FIELD(temperature), false, 0, 1000},
    {MF_OPT_TOP_K, "top-k", FIELD(top_k), true, 0, 0},
    {MF_OPT_TOP_P, "top-p", FIELD(top_p), false, 1e-6f, 1},
    {MF_OPT_MIN_P, "min-p", FIELD(min_p), false, 0, 1},
    {MF_OPT_REPEAT_PENALTY, "repeat-penalty", FIELD(repetition_penalty), false, 1e-6f, 1000},
    {MF_OPT_PRESENCE_PENALTY, "presence-penalty", FIELD(presence_penalty), false, -100, 100},
    {MF_OPT_FREQUENCY_PENALTY, "frequency-penalty", FIELD(frequency_penalty), false, -100, 100},
    {MF_OPT_DRY_MULTIPLIER, "dry-multiplier", FIELD(dry_multiplier), false, 0, 100},
    {MF_OPT_DRY_BASE, "dry-base", FIELD(dry_base), false, 1, 100},
    {MF_OPT_DRY_ALLOWED_LENGTH, "dry-allowed-length", FIELD(dry_allowed_length), true, 1, 0},
    {MF_OPT_DRY_LAST_N, "dry-last-n", FIELD(dry_n_tokens), true, 1, 0},
    {MF_OPT_XTC_PROBABILITY, "xtc-probability", FIELD(xtc_probability), false, 0, 1},
    {MF_OPT_XTC_THRESHOLD, "xtc-threshold", FIELD(xtc_threshold), false, 0, 1},
#undef FIELD
};

enum { N_SCALARS = sizeof scalars / sizeof *scalars };

/* A float that may begin with a minus where the limits allow for it. */
static bool parse_signed(const char *text, float min, float max, float *out)
{
    float size;
    if (*text != '-' || min >= 0)
        return mf_cli_parse_float(text, min > 0 ? min : 0, max, out);
    if (!mf_cli_parse_float(text + 1, 0, -min, &size))
        return false;
    *out = -size;
    return true;
}

static int take_scalar(const mf_cli_parser *parser, mf_cli_sampling *s, size_t i)
{
    char *field = (char *)&s->given + scalars[i].offset;
    uint32_t whole = 0;
    float number = 0;
    bool good;
    if (scalars[i].is_whole)
        good = mf_cli_parse_u32(optarg, (uint32_t)scalars[i].min, UINT32_MAX, &whole);
    else
        good = parse_signed(optarg, scalars[i].min, scalars[i].max, &number);
    if (!good) {
        char expected[64];
        if (scalars[i].is_whole)
            snprintf(expected, sizeof expected, "a whole number from %g to %u",
                     (double)scalars[i].min, UINT32_MAX);
        else
            snprintf(expected, sizeof expected, "a number from %g to %g", (double)scalars[i].min,
                     (double)scalars[i].max);
        return mf_cli_bad_value(parser, scalars[i].name, optarg, expected);
    }
    memcpy(field, scalars[i].is_whole ? (void *)&whole : (void *)&number, sizeof whole);
    s->has |= 1u << i;
    return MF_EXIT_OK;
}

/* ID=BIAS; a later one of the same token counts. */
static int take_bias(const mf_cli_parser *parser, mf_cli_sampling *s)
{
    char id[16];
    uint32_t token;
    float bias;
    size_t n = strcspn(optarg, "="), i = 0;
    if (n >= sizeof id || optarg[n] == '\0')
        return mf_cli_bad_value(parser, "logit-bias", optarg, "ID=BIAS");
    memcpy(id, optarg, n);
    id[n] = '\0';
    if (!mf_cli_parse_u32(id, 0, INT32_MAX, &token) ||
        !parse_signed(optarg + n + 1, -100, 100, &bias))
        return mf_cli_bad_value(parser, "logit-bias", optarg,
                                "ID=BIAS, a token id and a number from -100 to 100");
    while (i < s->n_biases && s->biases[i].token != (int32_t)token)
        i++;
    if (i == MF_CLI_MAX_BIASES)
        return mf_cli_usage_error(parser->command, "--logit-bias: more than %d of them",
                                  MF_CLI_MAX_BIASES);
    s->biases[i] = (mf_logit_bias){(int32_t)token, bias == -100.0f ? -INFINITY : bias};
    s->n_biases += i == s->n_biases;
    return MF_EXIT_OK;
}

static int take_breaker(const mf_cli_parser *parser, mf_cli_sampling *s)
{
    s->has_breakers = true;
    if (*optarg == '\0')
        return MF_EXIT_OK;
    if (s->n_breakers == MF_CLI_MAX_BREAKERS)
        return mf_cli_usage_error(parser->command, "--dry-breaker: more than %d of them",
                                  MF_CLI_MAX_BREAKERS);
    s->breakers[s->n_breakers++] = optarg;
    return MF_EXIT_OK;
}

bool mf_cli_take_sampling(const mf_cli_parser *parser, mf_cli_sampling *s, int option,
                          int *exit_code)
{
    *exit_code = MF_EXIT_OK;
    for (size_t i = 0; i < N_SCALARS; i++)
        if (scalars[i].option == option) {
            *exit_code = take_scalar(parser, s, i);
            return true;
        }
    switch (option) {
    case 's':
        s->has_seed = mf_cli_parse_u64(optarg, 0, UINT64_MAX, &s->given.seed);
        if (!s->has_seed)
            *exit_code =
                mf_cli_bad_value(parser, "seed", optarg, "a whole number from 0 to 2^64 - 1");
        return true;
    case MF_OPT_LOGIT_BIAS:
        *exit_code = take_bias(parser, s);
        return true;
    case MF_OPT_DRY_BREAKER:
        *exit_code = take_breaker(parser, s);
        return true;
    default:
        return false;
    }
}

void mf_cli_sampling_apply(const mf_cli_sampling *s, const mf_tokenizer *tokenizer,
                           size_t n_context_tokens, mf_sampler_options *options)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    const uint32_t n_most =
        n_context_tokens < MAX_DRY_TOKENS ? (uint32_t)n_context_tokens : MAX_DRY_TOKENS;
    options->dry_n_tokens = n_most;
    for (size_t i = 0; i < N_SCALARS; i++)
        if (s->has & 1u << i)
            memcpy((char *)options + scalars[i].offset, (const char *)&s->given + scalars[i].offset,
                   sizeof(uint32_t));
    if (options->dry_n_tokens > n_most) /* there are no more */
        options->dry_n_tokens = n_most;
    options->dry_breakers = s->has_breakers ? s->breakers : usual;
    options->n_dry_breakers = s->has_breakers ? s->n_breakers : sizeof usual / sizeof *usual;
    options->tokenizer = tokenizer;
    options->biases = s->biases;
    options->n_biases = s->n_biases;
}
