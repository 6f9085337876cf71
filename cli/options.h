/* SPDX-License-Identifier: MIT */
/*
 * Command lines: strict parsers of numbers and sizes (no sign, no blanks, nothing left over), the
 * options that several subcommands share, and getopt_long wrapped so that every mistake is one line
 * of the same form.
 */
#ifndef MF_CLI_OPTIONS_H
#define MF_CLI_OPTIONS_H

#include "output.h"

#include <getopt.h>

/* Values of options: their letter, or above any character. A subcommand's own start at
 * MF_OPT_OWN. */
enum {
    MF_OPT_CONTEXT = 'c',
    MF_OPT_QUIET = 'q',
    MF_OPT_THREADS = 't',
    MF_OPT_VERBOSE = 'v',
    MF_OPT_RAM = 256,
    MF_OPT_EXPERT_CACHE,
    MF_OPT_IO,
    MF_OPT_CHUNK,
    MF_OPT_EXPERTS_PER_TOKEN,
    MF_OPT_PACKED_BITS,
    MF_OPT_CPU_TIER,
    MF_OPT_KV_TYPE,
    MF_OPT_DEVICE,
    MF_OPT_EXPERT_DEVICE,
    MF_OPT_VRAM,
    MF_OPT_PRECISION,
    MF_OPT_NUMA,
    MF_OPT_NO_SHADER_CACHE,
    MF_OPT_CACHE_POLICY,
    MF_OPT_PREDICT,
    MF_OPT_PREDICT_DEPTH,
    MF_OPT_DRAFT,
    MF_OPT_TIMELINE,
    MF_OPT_MIRROR,
    MF_OPT_OWN
};

#define MF_ENGINE_SHORT_OPTIONS "c:hqt:v"
/* clang-format off */
/* Of commands that look at a model without an engine: what the engine would be, and nothing that it
 * does. */
#define MF_MODEL_LONG_OPTIONS                                                                      \
    {"ram", required_argument, NULL, MF_OPT_RAM},                                                  \
    {"expert-cache", required_argument, NULL, MF_OPT_EXPERT_CACHE},                                \
    {"cache-policy", required_argument, NULL, MF_OPT_CACHE_POLICY},                                \
    {"predict", required_argument, NULL, MF_OPT_PREDICT},                                          \
    {"predict-depth", required_argument, NULL, MF_OPT_PREDICT_DEPTH},                              \
    {"draft", required_argument, NULL, MF_OPT_DRAFT},                                              \
    {"mirror", required_argument, NULL, MF_OPT_MIRROR},                                            \
    {"ctx", required_argument, NULL, MF_OPT_CONTEXT},                                              \
    {"io", required_argument, NULL, MF_OPT_IO},                                                    \
    {"threads", required_argument, NULL, MF_OPT_THREADS},                                          \
    {"prefill-chunk", required_argument, NULL, MF_OPT_CHUNK},                                      \
    {"experts-per-token", required_argument, NULL, MF_OPT_EXPERTS_PER_TOKEN},                      \
    {"packed-bits", required_argument, NULL, MF_OPT_PACKED_BITS},                                  \
    {"cpu-tier", required_argument, NULL, MF_OPT_CPU_TIER},                                        \
    {"numa", required_argument, NULL, MF_OPT_NUMA},                                                \
    {"kv-type", required_argument, NULL, MF_OPT_KV_TYPE},                                          \
    {"device", required_argument, NULL, MF_OPT_DEVICE},                                            \
    {"expert-device", required_argument, NULL, MF_OPT_EXPERT_DEVICE},                              \
    {"vram", required_argument, NULL, MF_OPT_VRAM},                                                \
    {"precision", required_argument, NULL, MF_OPT_PRECISION},                                      \
    {"no-shader-cache", no_argument, NULL, MF_OPT_NO_SHADER_CACHE},                                \
    {"verbose", no_argument, NULL, MF_OPT_VERBOSE},                                                \
    {"quiet", no_argument, NULL, MF_OPT_QUIET},                                                    \
    {"help", no_argument, NULL, 'h'}
#define MF_ENGINE_LONG_OPTIONS                                                                     \
    {"timeline", required_argument, NULL, MF_OPT_TIMELINE}, MF_MODEL_LONG_OPTIONS

#define MF_OPTIONS_HELP(of_engines)                                                                \
    "Engine:\n"                                                                                    \
    "  --ram SIZE             peak memory of the whole process; auto (default): what is\n"         \
    "                         available, and fewer experts are held while others need memory\n"    \
    "  --expert-cache SIZE    memory for experts alone; 0: the least possible\n"                   \
    "  --cache-policy POLICY  which expert makes room: next-use, lru, lfu or s3-fifo (default\n"   \
    "                         next-use)\n"                                                         \
    "  --predict KIND         what is read before it is asked for: auto, off, next-layer,\n"       \
    "                         last-token, frequency or wrong (default auto)\n"                       \
    "  --predict-depth N      layers ahead that routers are asked of, up to 3, or auto: as many\n" \
    "                         as pay (default auto)\n"                                             \
    "  --draft N[,always]     tokens that the model's multi-token-prediction layer proposes at\n"  \
    "                         once, evaluated with the token before them; used while it pays,\n"   \
    "                         or always; 0: none (default 0)\n"                                    \
    "  --mirror DIR           the same files on another drive: both are read; repeatable\n"        \
    of_engines                                                                                     \
    "  -c, --ctx N            context in tokens (default 4096, or the model's limit if less)\n"    \
    "  --io KIND              uring, pool or auto (default auto)\n"                                \
    "  -t, --threads N        compute threads (default: one per core)\n"                           \
    "  --prefill-chunk N      tokens evaluated together in a prefill (default 512, or more "       \
    "where\n"                                                                                      \
    "                         experts are read and memory allows it)\n"                            \
    "  --experts-per-token K  use fewer experts than the model's own number\n"                     \
    "  --packed-bits N        packed form: the 4-bit or the 2-bit experts\n"                       \
    "  --cpu-tier TIER        kernels of the CPU: scalar; avx2, avx-vnni, avx512-bw,\n"            \
    "                         avx512-vnni, avx512, avx512-amx, avx512-amx-bf16; neon,\n"           \
    "                         neon-dotprod, neon-i8mm (default auto, the best)\n"                  \
    "  --numa KIND            auto or off: on machines with several nodes threads stay with one\n" \
    "                         each, and weights lie with those that multiply them (default\n"      \
    "                         auto)\n"                                                             \
    "  --kv-type TYPE         f32, bf16 or q8: cached keys and values, or latents, in half\n"      \
    "                         the memory, or in a little more than a quarter (default f32)\n"      \
    "  --device NAME          what computes: auto, cpu, vulkan (the best GPU) or vulkan:N as\n"    \
    "                         'moeflux devices' has it (default auto: a discrete GPU that\n"       \
    "                         serves, else the CPU)\n"                                             \
    "  --expert-device NAME   what holds and multiplies experts (default: the same); hybrid:\n"    \
    "                         the CPU, but those of 128 tokens and more at a time the GPU,\n"      \
    "                         where they are sent for it; hybrid:N: the GPU keeps those of N\n"    \
    "                         layers, hybrid:auto of as many as it has room for\n"                 \
    "  --vram SIZE            peak memory of a GPU in use (default: most of what is free)\n"       \
    "  --precision KIND       of long runs of tokens on a GPU: f32, mixed (float16 on matrix\n"    \
    "                         units) or auto: mixed where there are such units (default auto)\n"   \
    "  --no-shader-cache      do not keep what a GPU's driver compiled for the next start\n"       \
    "  -v, --verbose          also the engine's notes\n"                                           \
    "  -q, --quiet            not even its warnings\n"                                             \
    "  -h, --help             this text\n"                                                         \
    "SIZE is a number of bytes or has a suffix K, M, G or T: 512M, 3G, 1.5G.\n"

#define MF_MODEL_OPTIONS_HELP MF_OPTIONS_HELP("")
#define MF_ENGINE_OPTIONS_HELP                                                                     \
    MF_OPTIONS_HELP(                                                                               \
        "  --timeline FILE        what is done when, by threads and drives, for ui.perfetto.dev\n")
/* clang-format on */

#define MF_CLI_MAX_MIRRORS 4

/* The shared options as parsed. Not to be moved after mf_cli_engine_args_init. */
typedef struct mf_cli_engine_args {
    mf_engine_options options;
    mf_cli_verbosity verbosity;
    char cache_dir[1024];
    const char *mirrors[MF_CLI_MAX_MIRRORS];
} mf_cli_engine_args;

void mf_cli_engine_args_init(mf_cli_engine_args *args);

/* One command line being read. */
typedef struct mf_cli_parser {
    const char *command; /* the subcommand's name */
    const char *help;    /* its --help text */
    int argc;            /* argv[0] is the subcommand */
    char **argv;
    const char *short_options; /* begins with ':' */
    const struct option *long_options;
    mf_cli_engine_args *engine; /* NULL where the subcommand opens none */
} mf_cli_parser;

/* Takes one option of the subcommand's own, whose value is optarg. An exit code. */
typedef int (*mf_cli_option_fn)(void *args, const mf_cli_parser *parser, int option);

/* Reads all options: --help and the engine's itself, the others by own(args). False: the program
 * ends with *exit_code. */
bool mf_cli_parse(const mf_cli_parser *parser, mf_cli_option_fn own, void *args, int *exit_code);

/* An option that is a number, and the uint32_t that it sets. */
typedef struct mf_cli_number {
    int option;
    const char *name;
    size_t offset; /* in the subcommand's arguments */
    uint32_t min, max;
} mf_cli_number;

/* Sets the number that `option` is. False: it is none of them; else *exit_code is set. */
bool mf_cli_take_number(const mf_cli_parser *parser, const mf_cli_number *numbers, size_t n,
                        int option, void *args, int *exit_code);

/* Options that keep their value as it is, and options without one, with what they set; the last has
 * NULL in place of that. */
typedef struct mf_cli_text {
    int option;
    const char **out;
} mf_cli_text;
typedef struct mf_cli_flag {
    int option;
    bool *out;
} mf_cli_flag;

/* False: `option` is none of them. */
bool mf_cli_take_text(const mf_cli_text *texts, int option);
bool mf_cli_take_flag(const mf_cli_flag *flags, int option);

/* For a subcommand whose only option of its own is --json: args is the bool that it sets. */
int mf_cli_json_option(void *has_json, const mf_cli_parser *parser, int option);
/* A size above zero, of the option that is called `name`; an exit code. */
int mf_cli_take_size(const mf_cli_parser *parser, const char *name, uint64_t *out);
/* Says that option's value is bad; returns MF_EXIT_USAGE. */
int mf_cli_bad_value(const mf_cli_parser *parser, const char *option, const char *value,
                     const char *expected);
/* The only positional argument; NULL and *exit_code where there are fewer or (unless more) more. */
const char *mf_cli_positional(const mf_cli_parser *parser, const char *what, bool more,
                              int *exit_code);

/* Strict parsers: false where the text is anything else. */
bool mf_cli_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out);
bool mf_cli_parse_u32(const char *text, uint32_t min, uint32_t max, uint32_t *out);
bool mf_cli_parse_size(const char *text, uint64_t *out);
bool mf_cli_parse_float(const char *text, float min, float max, float *out);
/* "10%" is 0.1; from 0 to 1. */
bool mf_cli_parse_share(const char *text, double *out);
bool mf_cli_parse_predict(const char *text, mf_predict *out);
#define MF_CLI_PREDICTS "auto, off, next-layer, last-token, frequency or wrong"
/* Whether a cache policy is called so. */
bool mf_cli_is_policy(const char *text);
#define MF_CLI_POLICIES "next-use, lru, lfu or s3-fifo"
/* 2 or 4: the experts of the packed form. */
bool mf_cli_parse_packed_bits(const char *text, uint32_t *out);
/* The index of text in names[n]; -1 if it is not there. */
int mf_cli_parse_name(const char *text, const char *const *names, int n);

#endif
