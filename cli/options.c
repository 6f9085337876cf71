/* SPDX-License-Identifier: MIT */
/* Strict number parsers, shared engine options, getopt_long with uniform messages. */
#include "options.h"
#include "suggest.h"
#include "user_dirs.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool mf_cli_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    uint64_t value = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (!isdigit((unsigned char)*text))
            return false;
        uint64_t digit = (uint64_t)(*text - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    if (value < min || value > max)
        return false;
    *out = value;
    return true;
}

bool mf_cli_parse_u32(const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
    uint64_t value;
    if (!mf_cli_parse_u64(text, min, max, &value))
        return false;
    *out = (uint32_t)value;
    return true;
}

/* log2 of the unit that a suffix stands for, -1 if it is none. */
static int suffix_shift(const char *suffix)
{
    static const char letters[] = "KMGT";
    if (!*suffix)
        return 0;
    const char *found = strchr(letters, toupper((unsigned char)*suffix));
    return found && !suffix[1] ? 10 * (int)(found - letters + 1) : -1;
}

bool mf_cli_parse_size(const char *text, uint64_t *out)
{
    char digits[32];
    size_t n_digits = strspn(text, "0123456789");
    if (n_digits == 0 || n_digits >= sizeof digits)
        return false;
    memcpy(digits, text, n_digits);
    digits[n_digits] = '\0';
    uint64_t whole, fraction = 0, scale = 1;
    if (!mf_cli_parse_u64(digits, 0, UINT64_MAX, &whole))
        return false;
    text += n_digits;
    bool has_fraction = *text == '.';
    if (has_fraction) {
        size_t n = strspn(++text, "0123456789");
        if (n == 0)
            return false;
        /* six digits of a fraction are a millionth of the unit, and cannot overflow with T */
        for (size_t i = 0; i < n && i < 6; i++, scale *= 10)
            fraction = fraction * 10 + (uint64_t)(text[i] - '0');
        text += n;
    }
    int shift = suffix_shift(text);
    if (shift < 0 || (has_fraction && shift == 0) || whole > (UINT64_MAX >> shift) - 1)
        return false;
    *out = (whole << shift) + (fraction << shift) / scale;
    return true;
}

static bool parse_double(const char *text, double *out)
{
    /* strtod alone would take blanks, signs, "nan" and hexadecimal */
    if (!isdigit((unsigned char)*text) && *text != '.')
        return false;
    if (strspn(text, "0123456789.eE+-") != strlen(text))
        return false;
    char *end;
    const double value = strtod(text, &end);
    if (*end || end == text || !isfinite(value))
        return false;
    *out = value;
    return true;
}

bool mf_cli_parse_float(const char *text, float min, float max, float *out)
{
    double given;
    if (!parse_double(text, &given))
        return false;
    const float value = (float)given;
    if (!isfinite(value) || value < min || value > max)
        return false;
    *out = value;
    return true;
}

bool mf_cli_parse_share(const char *text, double *out)
{
    char digits[32];
    double percent;
    const size_t n = strlen(text);
    if (n < 2 || n > sizeof digits || text[n - 1] != '%')
        return false;
    memcpy(digits, text, n - 1);
    digits[n - 1] = '\0';
    if (!parse_double(digits, &percent) || percent > 100)
        return false;
    *out = percent / 100;
    return true;
}

int mf_cli_parse_name(const char *text, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(text, names[i]) == 0)
            return i;
    return -1;
}

bool mf_cli_parse_predict(const char *text, mf_predict *out)
{
    for (int i = 0; mf_predict_name((mf_predict)i); i++)
        if (strcmp(text, mf_predict_name((mf_predict)i)) == 0) {
            *out = (mf_predict)i;
            return true;
        }
    return false;
}

bool mf_cli_is_policy(const char *text)
{
    const char *known;
    for (size_t i = 0; (known = mf_cache_policy_name(i)) != NULL; i++)
        if (strcmp(text, known) == 0)
            return true;
    return false;
}

bool mf_cli_parse_packed_bits(const char *text, uint32_t *out)
{
    uint32_t bits;
    if (!mf_cli_parse_u32(text, 2, 4, &bits) || bits == 3)
        return false;
    *out = bits;
    return true;
}

void mf_cli_engine_args_init(mf_cli_engine_args *args)
{
    memset(args, 0, sizeof *args);
    mf_engine_options_default(&args->options);
    args->options.log = mf_cli_log;
    args->options.log_user = &args->verbosity;
    const char *device = getenv("MOEFLUX_DEVICE");
    args->options.device = device && *device ? device : "auto";
    const char *tier = getenv("MOEFLUX_CPU_TIER");
    args->options.cpu_tier = tier && *tier ? tier : "auto";
    if (mf_cli_user_path("XDG_CACHE_HOME", ".cache", "", args->cache_dir, sizeof args->cache_dir))
        args->options.cache_dir = args->cache_dir;
}

int mf_cli_bad_value(const mf_cli_parser *parser, const char *option, const char *value,
                     const char *expected)
{
    return mf_cli_usage_error(parser->command, "--%s: '%s' is not %s", option, value, expected);
}

static bool parse_io(const char *text, mf_io_kind *out)
{
    static const char *const names[] = {"auto", "uring", "pool"};
    static const mf_io_kind kinds[] = {MF_IO_AUTO, MF_IO_URING, MF_IO_POOL};
    int i = mf_cli_parse_name(text, names, 3);
    if (i >= 0)
        *out = kinds[i];
    return i >= 0;
}

static bool parse_cpu_tier(const char *text, const char **out)
{
    static const char *const names[] = {"auto",     "scalar",       "avx2",
                                        "avx-vnni", "avx512-bw",    "avx512-vnni",
                                        "avx512",   "avx512-amx",   "avx512-amx-bf16",
                                        "neon",     "neon-dotprod", "neon-i8mm"};
    int i = mf_cli_parse_name(text, names, (int)(sizeof names / sizeof *names));
    if (i >= 0)
        *out = names[i];
    return i >= 0;
}

static bool parse_kv_type(const char *text, mf_kv_type *out)
{
    static const char *const names[] = {"f32", "bf16", "q8"};
    int i = mf_cli_parse_name(text, names, 3);
    if (i >= 0)
        *out = (mf_kv_type)i;
    return i >= 0;
}

static bool parse_precision(const char *text, mf_precision *out)
{
    static const char *const names[] = {"auto", "f32", "mixed"};
    static const mf_precision kinds[] = {MF_PRECISION_AUTO, MF_PRECISION_F32, MF_PRECISION_MIXED};
    int i = mf_cli_parse_name(text, names, 3);
    if (i >= 0)
        *out = kinds[i];
    return i >= 0;
}

static bool parse_numa(const char *text, mf_numa *out)
{
    static const char *const names[] = {"auto", "off"};
    static const mf_numa kinds[] = {MF_NUMA_AUTO, MF_NUMA_OFF};
    int i = mf_cli_parse_name(text, names, 2);
    if (i >= 0)
        *out = kinds[i];
    return i >= 0;
}

static bool parse_ram(const char *text, uint64_t *out)
{
    if (strcmp(text, "auto") != 0)
        return mf_cli_parse_size(text, out) && *out > 0;
    *out = 0;
    return true;
}

/* The largest context and chunk that int32 positions and 32-bit sizes leave room for. */
#define MAX_TOKENS (1u << 30)

/* The shared options that are a plain number. */
static const mf_cli_number engine_numbers[] = {
    {MF_OPT_CONTEXT, "ctx", offsetof(mf_engine_options, n_context_tokens), 1, MAX_TOKENS},
    {MF_OPT_THREADS, "threads", offsetof(mf_engine_options, n_threads), 1, 1024},
    {MF_OPT_CHUNK, "prefill-chunk", offsetof(mf_engine_options, n_chunk_tokens), 1, 1u << 20},
    {MF_OPT_EXPERTS_PER_TOKEN, "experts-per-token",
     offsetof(mf_engine_options, n_experts_per_token), 1, 65536},
};

bool mf_cli_take_number(const mf_cli_parser *parser, const mf_cli_number *numbers, size_t n,
                        int option, void *args, int *exit_code)
{
    char expected[64];
    for (size_t i = 0; i < n; i++) {
        const mf_cli_number *number = &numbers[i];
        if (number->option != option)
            continue;
        uint32_t *out = (uint32_t *)(void *)((char *)args + number->offset);
        *exit_code = MF_EXIT_OK;
        if (!mf_cli_parse_u32(optarg, number->min, number->max, out)) {
            snprintf(expected, sizeof expected, "a number from %lu to %lu",
                     (unsigned long)number->min, (unsigned long)number->max);
            *exit_code = mf_cli_bad_value(parser, number->name, optarg, expected);
        }
        return true;
    }
    return false;
}

bool mf_cli_take_text(const mf_cli_text *texts, int option)
{
    for (; texts->out; texts++)
        if (texts->option == option) {
            *texts->out = optarg;
            return true;
        }
    return false;
}

bool mf_cli_take_flag(const mf_cli_flag *flags, int option)
{
    for (; flags->out; flags++)
        if (flags->option == option) {
            *flags->out = true;
            return true;
        }
    return false;
}

int mf_cli_json_option(void *has_json, const mf_cli_parser *parser, int option)
{
    (void)parser;
    (void)option;
    *(bool *)has_json = true;
    return MF_EXIT_OK;
}

int mf_cli_take_size(const mf_cli_parser *parser, const char *name, uint64_t *out)
{
    if (mf_cli_parse_size(optarg, out) && *out > 0)
        return MF_EXIT_OK;
    return mf_cli_bad_value(parser, name, optarg, "a size above zero, like 512M or 3G");
}

/* An answer of engine_option: 1 handled, -1 bad value (*exit_code set). */
static int checked(bool good, const mf_cli_parser *parser, const char *name, const char *expected,
                   int *exit_code)
{
    if (!good)
        *exit_code = mf_cli_bad_value(parser, name, optarg, expected);
    return good ? 1 : -1;
}

/* N or N,always */
static bool parse_draft(const char *text, mf_engine_options *o)
{
    static const char always[] = ",always";
    const size_t n = strlen(text), n_always = sizeof always - 1;
    const bool is_always = n > n_always && strcmp(text + n - n_always, always) == 0;
    char number[8] = "";
    if (n - (is_always ? n_always : 0) >= sizeof number)
        return false;
    memcpy(number, text, n - (is_always ? n_always : 0));
    o->draft = is_always ? MF_DRAFT_ALWAYS : MF_DRAFT_AUTO;
    return mf_cli_parse_u32(number, 0, MF_DRAFT_TOKENS_MOST, &o->n_draft_tokens);
}

static bool parse_depth(const char *text, mf_engine_options *o)
{
    o->predict_depth = 0;
    return strcmp(text, "auto") == 0 ||
           mf_cli_parse_u32(text, 1, MF_PREDICT_DEPTH_MOST, &o->predict_depth);
}

/* Handles a shared option: 1 handled, 0 not one of them, -1 bad value (*exit_code set). */
static int engine_option(const mf_cli_parser *parser, int option, int *exit_code)
{
    mf_cli_engine_args *args = parser->engine;
    mf_engine_options *o = &args->options;
    const mf_cli_text texts[] = {{MF_OPT_DEVICE, &o->device}, /* the library knows their names */
                                 {MF_OPT_EXPERT_DEVICE, &o->expert_device},
                                 {MF_OPT_TIMELINE, &o->timeline},
                                 {0, NULL}};
    const mf_cli_flag flags[] = {{MF_OPT_VERBOSE, &args->verbosity.verbose},
                                 {MF_OPT_QUIET, &args->verbosity.quiet},
                                 {0, NULL}};
    if (mf_cli_take_text(texts, option) || mf_cli_take_flag(flags, option))
        return 1;
    if (mf_cli_take_number(parser, engine_numbers, sizeof engine_numbers / sizeof *engine_numbers,
                           option, o, exit_code))
        return *exit_code == MF_EXIT_OK ? 1 : -1;
    switch (option) {
    case MF_OPT_RAM:
        return checked(parse_ram(optarg, &o->ram_bytes), parser, "ram",
                       "auto, or a size above zero, like 512M or 3G", exit_code);
    case MF_OPT_EXPERT_CACHE:
        return checked(mf_cli_parse_size(optarg, &o->expert_cache_bytes), parser, "expert-cache",
                       "a size, like 512M or 3G", exit_code);
    case MF_OPT_IO:
        return checked(parse_io(optarg, &o->io), parser, "io", "uring, pool or auto", exit_code);
    case MF_OPT_PACKED_BITS:
        return checked(mf_cli_parse_packed_bits(optarg, &o->packed_expert_bits), parser,
                       "packed-bits", "2 or 4", exit_code);
    case MF_OPT_CPU_TIER:
        return checked(parse_cpu_tier(optarg, &o->cpu_tier), parser, "cpu-tier",
                       "auto, scalar, avx2, avx-vnni, avx512-bw, avx512-vnni, avx512, avx512-amx, "
                       "avx512-amx-bf16, neon, neon-dotprod or neon-i8mm",
                       exit_code);
    case MF_OPT_KV_TYPE:
        return checked(parse_kv_type(optarg, &o->kv_type), parser, "kv-type", "f32, bf16 or q8",
                       exit_code);
    case MF_OPT_PRECISION:
        return checked(parse_precision(optarg, &o->precision), parser, "precision",
                       "auto, f32 or mixed", exit_code);
    case MF_OPT_NUMA:
        return checked(parse_numa(optarg, &o->numa), parser, "numa", "auto or off", exit_code);
    case MF_OPT_VRAM:
        *exit_code = mf_cli_take_size(parser, "vram", &o->device_bytes);
        return *exit_code == MF_EXIT_OK ? 1 : -1;
    case MF_OPT_PREDICT:
        return checked(mf_cli_parse_predict(optarg, &o->predict), parser, "predict",
                       MF_CLI_PREDICTS, exit_code);
    case MF_OPT_CACHE_POLICY:
        o->cache_policy = optarg;
        return checked(mf_cli_is_policy(optarg), parser, "cache-policy", MF_CLI_POLICIES,
                       exit_code);
    case MF_OPT_PREDICT_DEPTH:
        return checked(parse_depth(optarg, o), parser, "predict-depth", "1, 2, 3 or auto",
                       exit_code);
    case MF_OPT_DRAFT:
        return checked(parse_draft(optarg, o), parser, "draft",
                       "a number from 0 to 8, with or without ',always'", exit_code);
    case MF_OPT_MIRROR:
        if (o->n_mirrors == MF_CLI_MAX_MIRRORS)
            return checked(false, parser, "mirror", "one of 4 at most", exit_code);
        args->mirrors[o->n_mirrors++] = optarg;
        o->mirrors = args->mirrors;
        return 1;
    case MF_OPT_NO_SHADER_CACHE:
        o->cache_dir = NULL;
        return 1;
    default:
        return 0;
    }
}

/* What other programs of this kind call an option. */
static const char *other_name(const char *name)
{
    static const char *const others[][2] = {
        {"n-predict", "max-tokens"},
        {"num-predict", "max-tokens"},
        {"max-new-tokens", "max-tokens"},
        {"ctx-size", "ctx"},
        {"num-ctx", "ctx"},
        {"context", "ctx"},
        {"max-model-len", "ctx"},
        {"gpu", "device"},
        {"gpu-layers", "device"},
        {"n-gpu-layers", "device"},
        {"cuda", "device"},
        {"memory", "ram"},
        {"max-memory", "ram"},
        {"gpu-memory", "vram"},
        {"repetition-penalty", "repeat-penalty"},
        {"cache-type-k", "kv-type"},
        {"cache-type-v", "kv-type"},
        {"kv-cache-dtype", "kv-type"},
        {"ubatch-size", "prefill-chunk"},
        {"batch-size", "prefill-chunk"},
        {"reasoning-budget", "think-budget"},
        {"parallel", "sessions"},
        {"served-model-name", "name"},
        {"alias", "name"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i][0]) == 0)
            return others[i][1];
    return name;
}

/* The long option that word, "--NAME" or "--NAME=VALUE", is most like. */
static const char *meant_option(const mf_cli_parser *parser, const char *word)
{
    enum { MOST = 128 };
    const char *names[MOST];
    char name[64];
    size_t n = 0;
    for (const struct option *o = parser->long_options; o->name && n < MOST; o++)
        names[n++] = o->name;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    return mf_cli_nearest(other_name(name), names, n);
}

/* Others want the model behind an option. */
static bool is_for_model(const char *word)
{
    return strcmp(word, "-m") == 0 || strncmp(word, "--model", 7) == 0;
}

/* The option that getopt has refused: as a letter, or the word that it stands in. getopt is still
 * at a word of letters that has more of them, and one of several bytes is refused by its first. */
static const char *refused_word(const mf_cli_parser *parser, char letter[3])
{
    const char *word = parser->argv[optind - 1];
    const char *next = optind < parser->argc ? parser->argv[optind] : "";
    const bool is_byte = optopt < 0 || (optopt >= 128 && optopt < 256);
    const bool is_letter = optopt > 0 && optopt < 128;
    if (is_byte)
        return *next == '-' && strchr(next, (char)optopt) ? next : word;
    if (is_letter && (strncmp(word, "--", 2) != 0 || !strchr(parser->short_options, optopt)))
        return letter;
    return word;
}

/* getopt's '?' and ':': which option was it? */
static int bad_option(const mf_cli_parser *parser, int answer)
{
    char letter[3] = {'-', (char)optopt, '\0'};
    const char *word = refused_word(parser, letter);
    const char *what = "is not an option";
    if (answer == ':')
        what = "needs a value";
    else if (optopt != 0 && strncmp(word, "--", 2) == 0)
        what = "takes no value";
    else if (is_for_model(word))
        return mf_cli_usage_error(parser->command,
                                  "%s: '%s' is not an option; the model stands by itself: "
                                  "moeflux %s MODEL",
                                  parser->command, word, parser->command);
    else if (strncmp(word, "--", 2) == 0 && meant_option(parser, word))
        return mf_cli_usage_error(parser->command, "%s: '%s' is not an option; did you mean --%s?",
                                  parser->command, word, meant_option(parser, word));
    return mf_cli_usage_error(parser->command, "%s: '%s' %s", parser->command, word, what);
}

/* An empty value of an option that names a file or a folder, as of a shell's variable that is not
 * set: the system's word for it would name nothing. False: it is none. */
static bool is_empty_path(const mf_cli_parser *parser, int option, int *exit_code)
{
    static const char *const paths[] = {
        "api-key-file", "calibrate", "check",   "file",  "grammar",   "json-schema", "messages",
        "mirror",       "report",    "routing", "split", "state-dir", "svg",         "timeline",
        "tls-cert",     "tls-key",   "tools",   "trace", "unix"};
    const struct option *o = parser->long_options;
    while (o->name && o->val != option)
        o++;
    if (!o->name || !o->has_arg || !optarg || *optarg ||
        mf_cli_parse_name(o->name, paths, sizeof paths / sizeof *paths) < 0)
        return false;
    *exit_code = mf_cli_bad_value(parser, o->name, optarg, "a path");
    return true;
}

bool mf_cli_parse(const mf_cli_parser *parser, mf_cli_option_fn own, void *args, int *exit_code)
{
    opterr = 0;
    for (;;) {
        int option = getopt_long(parser->argc, parser->argv, parser->short_options,
                                 parser->long_options, NULL);
        if (option == -1)
            return true;
        if (option == 'h') {
            fputs(parser->help, stdout);
            *exit_code = mf_cli_finish(MF_EXIT_OK);
            return false;
        }
        if (option == '?' || option == ':') {
            *exit_code = bad_option(parser, option);
            return false;
        }
        if (is_empty_path(parser, option, exit_code))
            return false;
        int handled = parser->engine ? engine_option(parser, option, exit_code) : 0;
        if (handled == 0)
            *exit_code = own(args, parser, option);
        if (*exit_code != MF_EXIT_OK)
            return false;
    }
}

const char *mf_cli_positional(const mf_cli_parser *parser, const char *what, bool more,
                              int *exit_code)
{
    if (optind >= parser->argc) {
        *exit_code =
            mf_cli_usage_error(parser->command, "%s: %s is missing", parser->command, what);
        return NULL;
    }
    if (!more && optind + 1 < parser->argc) {
        *exit_code = mf_cli_usage_error(parser->command, "%s: unexpected argument '%s'",
                                        parser->command, parser->argv[optind + 1]);
        return NULL;
    }
    if (!*parser->argv[optind]) {
        *exit_code = mf_cli_usage_error(parser->command, "%s: %s is empty", parser->command, what);
        return NULL;
    }
    return parser->argv[optind++];
}
