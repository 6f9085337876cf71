/* SPDX-License-Identifier: MIT */
/* moeflux convert: a checkpoint written anew in the engine's own form, with every expert one
 * aligned run of bytes; and such a model read back. */
#include "commands.h"
#include "convert_check.h"
#include "interrupt.h"
#include "json.h"
#include "model_path.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: moeflux convert MODEL OUT [OPTION]...\n"
    "       moeflux convert --verify MODEL\n"
    "Writes the checkpoint MODEL, of any form that is read, to the directory OUT in moeflux's "
    "own:\n"
    "each expert is one run of bytes, so that one read brings it in. The results are the same, "
    "bit\n"
    "for bit. OUT is new or empty; what an interrupted conversion left there is taken up again by\n"
    "the same command. Nothing is written over. It pays where a drive is asked for many small\n"
    "reads: --dry-run says how many there are.\n"
    "\n"
    "  --bits N               quantise the experts anew: affine codes of 2, 3, 4, 5, 6 or 8 bits\n"
    "  --group N              of so many values with a scale and a bias: 32, 64 or 128 (default "
    "64)\n"
    "  --layer-bits LIST      other bits for some layers: 0-2:6,39:8; 0 bits: as they are; of\n"
    "                         several for a layer the last counts\n"
    "  --calibrate FILE       a text: weigh errors by what comes through the columns of the "
    "weights\n"
    "  --calibrate-tokens N   so many of its tokens (default 4096)\n"
    "  --hot-bits N           other bits for the experts of each layer that are used most "
    "(--trace)\n"
    "  --hot-share P          so much of them, in percent (default 10%)\n"
    "  --check FILE           the perplexity of a text before and after\n"
    "  --check-tokens N       of so many of its tokens (default 2048)\n"
    "  --split DIR[:SHARE]    also use DIR, on another drive, for its share of the experts "
    "(default:\n"
    "                         the same for all; OUT has the share 1); up to 15 times\n"
    "  --trace FILE           a trace of routing (run --trace), for --hot-bits; and drives share\n"
    "                         what is asked for, not the number of experts\n"
    "  --dry-run              only say what would be written\n"
    "  --verify               read all of it back; without OUT: of a model that was converted\n"
    "  --packed-bits N        packed form: the 4-bit or the 2-bit experts\n"
    "  -t, --threads N        threads that compute (default: one per core)\n"
    "  --json                 one JSON object\n"
    "  -q, --quiet            no progress\n"
    "  -h, --help             this text\n";

enum {
    OPT_SPLIT = MF_OPT_OWN,
    OPT_TRACE,
    OPT_DRY_RUN,
    OPT_VERIFY,
    OPT_PACKED_BITS,
    OPT_BITS,
    OPT_GROUP,
    OPT_LAYER_BITS,
    OPT_CALIBRATE,
    OPT_CALIBRATE_TOKENS,
    OPT_HOT_BITS,
    OPT_HOT_SHARE,
    OPT_CHECK,
    OPT_CHECK_TOKENS,
    OPT_JSON
};

static const struct option long_options[] = {
    {"bits", required_argument, NULL, OPT_BITS},
    {"group", required_argument, NULL, OPT_GROUP},
    {"layer-bits", required_argument, NULL, OPT_LAYER_BITS},
    {"calibrate", required_argument, NULL, OPT_CALIBRATE},
    {"calibrate-tokens", required_argument, NULL, OPT_CALIBRATE_TOKENS},
    {"hot-bits", required_argument, NULL, OPT_HOT_BITS},
    {"hot-share", required_argument, NULL, OPT_HOT_SHARE},
    {"check", required_argument, NULL, OPT_CHECK},
    {"check-tokens", required_argument, NULL, OPT_CHECK_TOKENS},
    {"split", required_argument, NULL, OPT_SPLIT},
    {"trace", required_argument, NULL, OPT_TRACE},
    {"dry-run", no_argument, NULL, OPT_DRY_RUN},
    {"verify", no_argument, NULL, OPT_VERIFY},
    {"packed-bits", required_argument, NULL, OPT_PACKED_BITS},
    {"threads", required_argument, NULL, 't'},
    {"json", no_argument, NULL, OPT_JSON},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {0}};

#define MAX_DRIVES 15
#define MAX_RULES 512

typedef struct convert_args {
    mf_convert_options options;
    mf_cli_model_path model_path;
    const char *model, *out, *trace, *check, *calibration;
    uint64_t n_check_tokens, n_calibration_tokens; /* 0: not given */
    mf_convert_rule rules[MAX_RULES];
    char paths[MAX_DRIVES][4096];
    const char *drives[MAX_DRIVES];
    double shares[MAX_DRIVES + 1];
    bool is_quiet, has_json, verifies, has_hot_share;
} convert_args;

/* ------------------------------------------------------------------------- command line -- */

/* "DIR" or "DIR:SHARE". */
static int take_drive(convert_args *a, const mf_cli_parser *parser, const char *text)
{
    const char *colon = strrchr(text, ':');
    const uint32_t i = a->options.n_drives;
    float share = 1;
    size_t n = strlen(text);
    /* a name may have a colon, but what begins as a number behind it is meant as a share */
    const bool is_number = colon != NULL && strchr(colon, '/') == NULL && colon[1] != '\0' &&
                           strchr("+-.0123456789", colon[1]) != NULL;
    const bool has_share = colon != NULL && mf_cli_parse_float(colon + 1, 0, 1e6f, &share);
    if (has_share)
        n = (size_t)(colon - text);
    if (is_number != has_share || i == MAX_DRIVES || n == 0 || n >= sizeof a->paths[0])
        return mf_cli_bad_value(parser, "split", text, "DIR or DIR:SHARE, at most 15 times");
    memcpy(a->paths[i], text, n);
    a->paths[i][n] = '\0';
    a->drives[i] = a->paths[i];
    a->shares[i + 1] = (double)share;
    a->options.n_drives++;
    return MF_EXIT_OK;
}

static bool take_number(const char **at, uint32_t *out)
{
    char digits[8];
    const size_t n = strspn(*at, "0123456789");
    if (n == 0 || n >= sizeof digits)
        return false;
    memcpy(digits, *at, n);
    digits[n] = '\0';
    *at += n;
    return mf_cli_parse_u32(digits, 0, 65535, out);
}

/* "FIRST-LAST:BITS" or "LAYER:BITS"; *at comes behind it. */
static bool take_rule(const char **at, mf_convert_rule *rule)
{
    if (!take_number(at, &rule->first_layer))
        return false;
    rule->last_layer = rule->first_layer;
    if (**at == '-') {
        ++*at;
        if (!take_number(at, &rule->last_layer))
            return false;
    }
    if (*(*at)++ != ':' || rule->first_layer > rule->last_layer)
        return false;
    return take_number(at, &rule->bits) && (**at == ',' || **at == '\0');
}

static int take_rules(convert_args *a, const mf_cli_parser *parser, const char *text)
{
    const char *at = text;
    do {
        mf_convert_rule rule;
        const uint32_t i = a->options.n_rules;
        if (i == MAX_RULES || !take_rule(&at, &rule))
            return mf_cli_bad_value(parser, "layer-bits", text, "a list like 0-2:6,39:8");
        a->rules[i] = rule;
        a->options.n_rules++;
    } while (*at++ == ',');
    return MF_EXIT_OK;
}

/* An option that says how experts are stored; false: it is none of these. */
static bool take_codes(convert_args *a, const mf_cli_parser *parser, int option, int *exit_code)
{
    static const char bits[] = "2, 3, 4, 5, 6 or 8", groups[] = "32, 64 or 128";
    bool is_good;
    const char *name, *expected;
    mf_convert_options *o = &a->options;
    switch (option) {
    case OPT_BITS:
        is_good = mf_cli_parse_u32(optarg, 2, 8, &o->bits) && o->bits != 7;
        name = "bits", expected = bits;
        break;
    case OPT_HOT_BITS:
        is_good = mf_cli_parse_u32(optarg, 2, 8, &o->hot_bits) && o->hot_bits != 7;
        name = "hot-bits", expected = bits;
        break;
    case OPT_GROUP:
        is_good = mf_cli_parse_u32(optarg, 32, 128, &o->group) && (o->group & (o->group - 1)) == 0;
        name = "group", expected = groups;
        break;
    case OPT_PACKED_BITS:
        is_good = mf_cli_parse_packed_bits(optarg, &o->packed_expert_bits);
        name = "packed-bits", expected = "2 or 4";
        break;
    default:
        return false;
    }
    *exit_code = is_good ? MF_EXIT_OK : mf_cli_bad_value(parser, name, optarg, expected);
    return true;
}

static int own_option(void *ctx, const mf_cli_parser *parser, int option)
{
    static const mf_cli_number threads = {'t', "threads", offsetof(convert_args, options.n_threads),
                                          1, 1024};
    convert_args *a = ctx;
    int exit_code = MF_EXIT_OK;
    if (mf_cli_take_number(parser, &threads, 1, option, a, &exit_code) ||
        take_codes(a, parser, option, &exit_code))
        return exit_code;
    if (option == OPT_SPLIT)
        return take_drive(a, parser, optarg);
    if (option == OPT_LAYER_BITS)
        return take_rules(a, parser, optarg);
    a->has_hot_share |= option == OPT_HOT_SHARE;
    if (option == OPT_HOT_SHARE)
        return mf_cli_parse_share(optarg, &a->options.hot_share)
                   ? MF_EXIT_OK
                   : mf_cli_bad_value(parser, "hot-share", optarg, "a share like 10%");
    if (option == OPT_CHECK_TOKENS)
        return mf_cli_parse_u64(optarg, 2, UINT32_MAX, &a->n_check_tokens)
                   ? MF_EXIT_OK
                   : mf_cli_bad_value(parser, "check-tokens", optarg, "a number above one");
    if (option == OPT_CALIBRATE_TOKENS)
        return mf_cli_parse_u64(optarg, 2, UINT32_MAX, &a->n_calibration_tokens)
                   ? MF_EXIT_OK
                   : mf_cli_bad_value(parser, "calibrate-tokens", optarg, "a number above one");
    if (option == OPT_CALIBRATE)
        a->calibration = optarg;
    if (option == OPT_CHECK)
        a->check = optarg;
    if (option == OPT_TRACE)
        a->trace = optarg;
    a->options.is_dry_run |= option == OPT_DRY_RUN;
    a->verifies |= option == OPT_VERIFY;
    a->has_json |= option == OPT_JSON;
    a->is_quiet |= option == 'q';
    return MF_EXIT_OK;
}

static const char *contradiction(const convert_args *a)
{
    const mf_convert_options *o = &a->options;
    const bool has_bits = o->bits != 0 || o->n_rules > 0 || o->hot_bits != 0;
    if (o->group != 0 && !has_bits)
        return "--group needs --bits, --layer-bits or --hot-bits";
    if (a->calibration != NULL && !has_bits)
        return "--calibrate needs --bits, --layer-bits or --hot-bits";
    if (a->n_calibration_tokens != 0 && a->calibration == NULL)
        return "--calibrate-tokens needs --calibrate";
    if (a->n_check_tokens != 0 && a->check == NULL)
        return "--check-tokens needs --check";
    if (a->has_hot_share && o->hot_bits == 0)
        return "--hot-share needs --hot-bits";
    if (o->hot_bits != 0 && a->trace == NULL)
        return "--hot-bits needs --trace";
    return NULL;
}

/* What is for a conversion, where there is none. */
static const char *useless_to_verify(const convert_args *a)
{
    const mf_convert_options *o = &a->options;
    const struct {
        bool is_given;
        const char *message;
    } options[] = {{o->bits != 0, "--bits needs OUT"},
                   {o->n_rules > 0, "--layer-bits needs OUT"},
                   {o->hot_bits != 0, "--hot-bits needs OUT"},
                   {a->check != NULL, "--check needs OUT"},
                   {o->n_drives > 0, "--split needs OUT"},
                   {a->trace != NULL, "--trace needs OUT"},
                   {o->packed_expert_bits != 0, "--packed-bits needs OUT"},
                   {o->is_dry_run != 0, "--dry-run needs OUT"}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].is_given)
            return options[i].message;
    return NULL;
}

/* False: the program ends with *exit_code. */
static bool parse(convert_args *a, int argc, char **argv, int *exit_code)
{
    const mf_cli_parser parser = {"convert", help, argc, argv, ":hqt:", long_options, NULL};
    if (!mf_cli_parse(&parser, own_option, a, exit_code))
        return false;
    const char *excluded = contradiction(a);
    if (excluded != NULL) {
        *exit_code = mf_cli_usage_error("convert", "convert: %s", excluded);
        return false;
    }
    if (a->n_check_tokens == 0)
        a->n_check_tokens = 2048;
    if (a->n_calibration_tokens == 0)
        a->n_calibration_tokens = 4096;
    a->model = mf_cli_positional_model(&parser, true, &a->model_path, exit_code);
    if (a->model == NULL)
        return false;
    const bool is_alone = optind == argc && a->verifies;
    excluded = is_alone ? useless_to_verify(a) : NULL;
    if (excluded != NULL) {
        *exit_code = mf_cli_usage_error("convert", "convert: %s", excluded);
        return false;
    }
    a->out = is_alone ? NULL : mf_cli_positional(&parser, "OUT", false, exit_code);
    return is_alone || a->out != NULL;
}

/* ----------------------------------------------------------------------------- progress -- */

typedef struct bar {
    const char *what;
    double started, last_drawn; /* 0: never */
    uint64_t n_before;          /* done when it was first called */
    bool is_shown, is_begun;
} bar;

static void draw(bar *b, double now, const mf_convert_progress *p)
{
    enum { WIDTH = 24 };
    char text[WIDTH + 1], rate[MF_CLI_SIZE_CHARS];
    const double part = p->n_bytes > 0 ? (double)p->n_bytes_done / (double)p->n_bytes : 1;
    const double seconds = now - b->started, n = (double)(p->n_bytes_done - b->n_before);
    for (int i = 0; i < WIDTH; i++)
        text[i] = i < (int)(part * WIDTH) ? '#' : '.';
    text[WIDTH] = '\0';
    const double left = n > 0 ? (double)(p->n_bytes - p->n_bytes_done) / n * seconds : 0;
    fprintf(stderr, "\r%s [%s] %3.0f %%, layer %u of %u, %s/s, %.0f s left\033[K", b->what, text,
            100 * part, p->layer < p->n_layers ? p->layer + 1 : p->n_layers, p->n_layers,
            mf_cli_size(rate, seconds > 0 ? n / seconds : 0), left);
    b->last_drawn = now;
}

static int on_progress(void *user, const mf_convert_progress *p)
{
    bar *b = user;
    const double now = mf_cli_now();
    if (mf_cli_interrupted())
        return 1;
    if (!b->is_begun) {
        b->is_begun = true;
        b->n_before = p->n_bytes_done;
        b->started = now;
    }
    if (b->is_shown && now - b->started > 1 && now - b->last_drawn > 0.1)
        draw(b, now, p);
    return 0;
}

static bar begin_bar(const convert_args *a, const char *what)
{
    return (bar){.what = what,
                 .started = mf_cli_now(),
                 .is_shown = !a->is_quiet && isatty(STDERR_FILENO) != 0};
}

static void end_bar(bar *b)
{
    if (b->last_drawn > 0)
        fputs("\r\033[K", stderr);
}

/* -------------------------------------------------------------------------------- result -- */

/* What there is to say when it is done. */
typedef struct outcome {
    mf_convert_result result;
    mf_cli_check check; /* file NULL: none */
    double seconds;
} outcome;

static void print_json(const outcome *o)
{
    const mf_convert_result *r = &o->result;
    mf_cli_json json = mf_cli_json_begin(stdout);
    mf_cli_json_integer(&json, "n_layers", r->n_layers);
    mf_cli_json_integer(&json, "n_experts", r->n_experts);
    mf_cli_json_integer(&json, "n_bytes", r->n_bytes);
    mf_cli_json_integer(&json, "dense_bytes", r->dense_bytes);
    mf_cli_json_integer(&json, "source_expert_bytes", r->source_expert_bytes);
    mf_cli_json_integer(&json, "expert_bytes", r->expert_bytes);
    mf_cli_json_integer(&json, "padding_bytes", r->padding_bytes);
    mf_cli_json_integer(&json, "source_reads_per_expert", r->source_reads_per_expert);
    mf_cli_json_integer(&json, "source_expert_read_bytes", r->source_expert_read_bytes);
    mf_cli_json_integer(&json, "reads_per_expert", r->reads_per_expert);
    mf_cli_json_integer(&json, "expert_read_bytes", r->expert_read_bytes);
    mf_cli_json_integer(&json, "n_layers_kept", r->n_layers_kept);
    mf_cli_json_number(&json, "relative_error", r->relative_error);
    mf_cli_json_number(&json, "seconds", o->seconds);
    mf_cli_json_number(&json, "bytes_per_s", o->seconds > 0 ? (double)r->n_bytes / o->seconds : 0);
    if (o->check.file != NULL) {
        mf_cli_json_number(&json, "source_perplexity", o->check.source_perplexity);
        mf_cli_json_number(&json, "perplexity", o->check.made_perplexity);
    }
    mf_cli_json_end(&json);
}

/* Reads below this are waited for one by one; docs/PERFORMANCE.md has what was measured. */
#define SMALL_READ_BYTES (128u << 10)

static const char *verdict(const mf_convert_result *r)
{
    const uint64_t n = r->source_reads_per_expert;
    if (n <= r->reads_per_expert)
        return r->expert_read_bytes < r->source_expert_read_bytes ? "less to read"
                                                                  : "no faster than it is";
    if (r->source_expert_read_bytes / n < SMALL_READ_BYTES)
        return "faster where the drive is waited for: many small reads become one";
    return r->expert_read_bytes * 10 < r->source_expert_read_bytes * 9
               ? "less to read"
               : "hardly faster: the reads are large already";
}

static void print_sizes(const mf_convert_result *r)
{
    char size[MF_CLI_SIZE_CHARS], other[MF_CLI_SIZE_CHARS];
    printf("layers with experts    %" PRIu32 ", %" PRIu32 " experts each\n", r->n_layers,
           r->n_experts);
    printf("dense weights          %s\n", mf_cli_size(size, (double)r->dense_bytes));
    printf("experts                %s, before %s\n", mf_cli_size(size, (double)r->expert_bytes),
           mf_cli_size(other, (double)r->source_expert_bytes));
    printf("added by aligning      %s\n", mf_cli_size(size, (double)r->padding_bytes));
    printf("all files              %s\n", mf_cli_size(size, (double)r->n_bytes));
    printf("an expert now          %" PRIu32 " read%s, %s\n", r->source_reads_per_expert,
           r->source_reads_per_expert == 1 ? "" : "s",
           mf_cli_size(size, (double)r->source_expert_read_bytes));
    printf("an expert converted    %" PRIu32 " read%s, %s\n", r->reads_per_expert,
           r->reads_per_expert == 1 ? "" : "s", mf_cli_size(size, (double)r->expert_read_bytes));
    printf("verdict                %s\n", verdict(r));
}

static void print_check(const mf_cli_check *c)
{
    printf("perplexity             %.4f, before %.4f (%+.2f %%; %zu tokens of ", c->made_perplexity,
           c->source_perplexity, 100 * (c->made_perplexity / c->source_perplexity - 1),
           c->n_scored);
    mf_cli_put_plain(stdout, c->file);
    puts(")");
}

static void print_outcome(const convert_args *a, const outcome *o)
{
    char rate[MF_CLI_SIZE_CHARS];
    const mf_convert_result *r = &o->result;
    if (a->has_json) {
        print_json(o);
        return;
    }
    print_sizes(r);
    if (a->options.is_dry_run)
        return;
    if (r->n_layers_kept > 0)
        printf("taken up               %" PRIu32 " layers were there\n", r->n_layers_kept);
    printf("written                in %.1f s, %s/s: ", o->seconds,
           mf_cli_size(rate, o->seconds > 0 ? (double)r->n_bytes / o->seconds : 0));
    mf_cli_put_plain(stdout, a->out);
    putchar('\n');
    if (r->relative_error > 0)
        printf("quantisation's error   %.3f %% of the weights\n", 100 * r->relative_error);
    if (a->verifies)
        printf("read back              every checksum is right\n");
    if (o->check.file != NULL)
        print_check(&o->check);
}

/* ------------------------------------------------------------------------------- the work -- */

static int verify(const convert_args *a, const char *model)
{
    mf_convert_options options = a->options;
    mf_error error = {0};
    bar b = begin_bar(a, "reading back");
    options.user = &b;
    const mf_status status = mf_convert_verify(model, &options, &error);
    end_bar(&b);
    if (status == MF_ERR_CANCELLED)
        return MF_EXIT_INTERRUPTED;
    return status == MF_OK ? MF_EXIT_OK : mf_cli_fail(status, &error);
}

/* What the check needs is missing before the work is done, not after it. */
static int begin_check(const convert_args *a, mf_cli_check *out)
{
    if (a->check == NULL || a->out == NULL || a->options.is_dry_run)
        return MF_EXIT_OK;
    *out = (mf_cli_check){.source = a->model,
                          .made = a->out,
                          .file = a->check,
                          .packed_bits = a->options.packed_expert_bits,
                          .n_threads = a->options.n_threads,
                          .n_tokens = a->n_check_tokens};
    return mf_cli_check_begin(out);
}

/* What a conversion would refuse is known before a text is read or evaluated for it. */
static int look_first(const convert_args *a)
{
    mf_convert_options dry = a->options;
    mf_convert_result planned;
    mf_error error = {0};
    if ((a->check == NULL && a->calibration == NULL) || a->out == NULL || dry.is_dry_run)
        return MF_EXIT_OK;
    dry.is_dry_run = dry.dry_run_wants_room = true;
    const mf_status status = mf_convert(a->model, a->out, &dry, &planned, &error);
    return status == MF_OK ? MF_EXIT_OK : mf_cli_fail(status, &error);
}

static int calibrate(convert_args *a, double **sums)
{
    const mf_cli_check text = {.source = a->model,
                               .file = a->calibration,
                               .packed_bits = a->options.packed_expert_bits,
                               .n_threads = a->options.n_threads,
                               .n_tokens = a->n_calibration_tokens};
    const int exit_code = mf_cli_calibrate(&text, sums, &a->options.n_input_squares);
    a->options.input_squares = *sums;
    return exit_code;
}

static int convert(convert_args *a, outcome *o)
{
    mf_error error = {0};
    int exit_code = MF_EXIT_OK;
    bar b = begin_bar(a, "converting");
    const double started = mf_cli_now();
    a->options.user = &b;
    const mf_status status = mf_convert(a->model, a->out, &a->options, &o->result, &error);
    o->seconds = mf_cli_now() - started;
    end_bar(&b);
    if (status == MF_ERR_CANCELLED) {
        if (!a->is_quiet)
            fprintf(stderr, "moeflux: stopped; the same command goes on from here\n");
        return MF_EXIT_INTERRUPTED;
    }
    if (status != MF_OK)
        return mf_cli_fail(status, &error);
    if (a->verifies && !a->options.is_dry_run)
        exit_code = verify(a, a->out);
    if (exit_code == MF_EXIT_OK && o->check.file != NULL)
        exit_code = mf_cli_check_made(&o->check);
    if (exit_code == MF_EXIT_OK)
        print_outcome(a, o);
    return exit_code;
}

static int verify_alone(const convert_args *a)
{
    const int exit_code = verify(a, a->model);
    if (exit_code == MF_EXIT_OK && a->has_json) {
        mf_cli_json json = mf_cli_json_begin(stdout);
        mf_cli_json_bool(&json, "verified", true);
        mf_cli_json_end(&json);
    } else if (exit_code == MF_EXIT_OK) {
        printf("read back              every checksum is right\n");
    }
    return exit_code;
}

static int run(convert_args *a)
{
    mf_routing *routing = NULL;
    mf_error error = {0};
    if (a->trace != NULL) {
        const mf_status status = mf_routing_open(a->trace, NULL, &routing, &error);
        if (status != MF_OK)
            return mf_cli_fail(status, &error);
    }
    a->options.routing = routing;
    a->options.on_progress = on_progress;
    a->options.rules = a->rules;
    a->options.drives = a->drives;
    a->options.drive_shares = a->shares;
    mf_cli_interrupt_install();
    double *sums = NULL;
    outcome o = {0};
    int exit_code = look_first(a);
    if (exit_code == MF_EXIT_OK)
        exit_code = begin_check(a, &o.check);
    if (exit_code == MF_EXIT_OK && a->calibration != NULL && a->out != NULL &&
        !a->options.is_dry_run)
        exit_code = calibrate(a, &sums);
    if (exit_code == MF_EXIT_OK)
        exit_code = a->out != NULL ? convert(a, &o) : verify_alone(a);
    mf_cli_check_end(&o.check);
    free(sums);
    mf_routing_close(&routing);
    return mf_cli_finish(exit_code);
}

int mf_cmd_convert(int argc, char **argv)
{
    int exit_code = MF_EXIT_OK;
    convert_args *a = calloc(1, sizeof *a);
    if (a == NULL)
        return mf_cli_error("no memory");
    mf_convert_options_default(&a->options);
    a->shares[0] = 1;
    a->options.hot_share = 0.1;
    if (parse(a, argc, argv, &exit_code))
        exit_code = run(a);
    free(a);
    return exit_code;
}
