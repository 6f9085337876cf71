/* SPDX-License-Identifier: MIT */
/* How the next token is chosen, by options: those that are given take the place of the model's own
 * (generation_config.json). */
#ifndef MF_CLI_SAMPLING_H
#define MF_CLI_SAMPLING_H

#include "options.h"

#define MF_CLI_MAX_BIASES 1024
#define MF_CLI_MAX_BREAKERS 64

/* Far from any subcommand's own. */
enum {
    MF_OPT_TEMP = 1024,
    MF_OPT_TOP_K,
    MF_OPT_TOP_P,
    MF_OPT_MIN_P,
    MF_OPT_REPEAT_PENALTY,
    MF_OPT_PRESENCE_PENALTY,
    MF_OPT_FREQUENCY_PENALTY,
    MF_OPT_DRY_MULTIPLIER,
    MF_OPT_DRY_BASE,
    MF_OPT_DRY_ALLOWED_LENGTH,
    MF_OPT_DRY_LAST_N,
    MF_OPT_DRY_BREAKER,
    MF_OPT_XTC_PROBABILITY,
    MF_OPT_XTC_THRESHOLD,
    MF_OPT_LOGIT_BIAS
};

/* clang-format off */
#define MF_SAMPLING_LONG_OPTIONS                                                                   \
    {"temp", required_argument, NULL, MF_OPT_TEMP},                                                \
    {"top-k", required_argument, NULL, MF_OPT_TOP_K},                                              \
    {"top-p", required_argument, NULL, MF_OPT_TOP_P},                                              \
    {"min-p", required_argument, NULL, MF_OPT_MIN_P},                                              \
    {"repeat-penalty", required_argument, NULL, MF_OPT_REPEAT_PENALTY},                            \
    {"presence-penalty", required_argument, NULL, MF_OPT_PRESENCE_PENALTY},                        \
    {"frequency-penalty", required_argument, NULL, MF_OPT_FREQUENCY_PENALTY},                      \
    {"dry-multiplier", required_argument, NULL, MF_OPT_DRY_MULTIPLIER},                            \
    {"dry-base", required_argument, NULL, MF_OPT_DRY_BASE},                                        \
    {"dry-allowed-length", required_argument, NULL, MF_OPT_DRY_ALLOWED_LENGTH},                    \
    {"dry-last-n", required_argument, NULL, MF_OPT_DRY_LAST_N},                                    \
    {"dry-breaker", required_argument, NULL, MF_OPT_DRY_BREAKER},                                  \
    {"xtc-probability", required_argument, NULL, MF_OPT_XTC_PROBABILITY},                          \
    {"xtc-threshold", required_argument, NULL, MF_OPT_XTC_THRESHOLD},                              \
    {"logit-bias", required_argument, NULL, MF_OPT_LOGIT_BIAS},                                    \
    {"seed", required_argument, NULL, 's'}
/* clang-format on */

#define MF_SAMPLING_OPTIONS_HELP                                                                   \
    "Choice of the next token (defaults from generation_config.json):\n"                           \
    "  --temp T               temperature; 0: always the most likely token\n"                      \
    "  --top-k K              among the K most likely; 0: off\n"                                   \
    "  --top-p P              among the most likely that sum to P; 1: off\n"                       \
    "  --min-p P              among those at least P times the likeliest; 0: off\n"                \
    "  --repeat-penalty R     divide the score of what was there already by R; 1: off\n"           \
    "  --presence-penalty P   subtract P from the score of what is in the answer already\n"        \
    "  --frequency-penalty P  the same, as many times as it is there\n"                            \
    "  --dry-multiplier M     subtract M * base^(n - length) from the score of what would go on\n" \
    "                         with a repetition of n tokens; 0 (default): off\n"                   \
    "  --dry-base B           (default 1.75)\n"                                                    \
    "  --dry-allowed-length N shorter repetitions are free (default 2)\n"                          \
    "  --dry-last-n N         look at the last N tokens (default: all)\n"                          \
    "  --dry-breaker TEXT     no repetition goes over TEXT; repeatable (default: a line's end, "   \
    ":,\n"                                                                                         \
    "                         \" and *; --dry-breaker '': none)\n"                                 \
    "  --xtc-probability P    as often, leave out all but the last of the likely tokens\n"         \
    "  --xtc-threshold P      likely: at least P (default 0.1)\n"                                  \
    "  --logit-bias ID=BIAS   add BIAS to a token's score, -100 to 100; -100: never; repeatable\n" \
    "  -s, --seed N           of the random choices; the same seed gives the same text "           \
    "(default:\n"                                                                                  \
    "                         another each time, which is said on standard error)\n"

/* Not to be moved once options were taken. */
typedef struct mf_cli_sampling {
    mf_sampler_options given;
    uint32_t has; /* bit i: the i-th of the options that are one field */
    bool has_seed;
    mf_logit_bias biases[MF_CLI_MAX_BIASES];
    size_t n_biases;
    const char *breakers[MF_CLI_MAX_BREAKERS];
    size_t n_breakers;
    bool has_breakers;
} mf_cli_sampling;

/* Takes an option of MF_SAMPLING_LONG_OPTIONS. False: it is none of them; else *exit_code is set.
 */
bool mf_cli_take_sampling(const mf_cli_parser *parser, mf_cli_sampling *sampling, int option,
                          int *exit_code);
/* Puts what was given over *options. The tokenizer is asked for the breakers' sake. */
void mf_cli_sampling_apply(const mf_cli_sampling *sampling, const mf_tokenizer *tokenizer,
                           size_t n_context_tokens, mf_sampler_options *options);

#endif
