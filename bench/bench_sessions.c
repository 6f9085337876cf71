/* SPDX-License-Identifier: MIT */
/*
 * Sessions: several decoding together, prefixes reused from memory and from disk, snapshots; each
 * beside what it replaces or what the machine can do.
 *
 *     bench_sessions MODEL [--text FILE] [--sessions N] [--prompt N] [--steps N] [--prefix N]
 *                          [--rounds N] [--ram MIB] [--cache MIB] [--dir DIR]
 *                          [--part decode|together|state] [--one-prompt] [--device NAME]
 *                          [--vram MIB] [--operations] [--halves auto|never|always]
 *
 * --part together: decoding, without each session alone beside it. --text: the tokens are FILE's,
 * else pseudo-random. --one-prompt: each session samples its own continuation of the same prompt,
 * else each has a stretch of the tokens. --cache: expert slots, default the least possible.
 * --operations: a GPU's time of a step together, by operations. --halves: passes of several
 * sessions in two halves, one computing while the other's experts are read: where it pays, never,
 * or always.
 * --dir: an empty folder on the drive to be measured, for snapshots and the store.
 */
#include "bench_sessions.h"

#include <stdlib.h>
#include <string.h>

_Noreturn void bench_die(const char *what, const mf_error *error)
{
    fprintf(stderr, "bench_sessions: %s: %s\n", what, error != NULL ? error->message : "");
    exit(1);
}

void bench_line(const char *what, double value, const char *unit)
{
    printf("%-48s %12.4g %s\n", what, value, unit);
}

/* Tokens of the text file, from its beginning and again from there until they suffice. */
static void read_text(bench *b)
{
    static char text[1 << 20];
    mf_tokenizer *tokenizer = NULL;
    FILE *file = fopen(b->text, "rb");
    size_t n_bytes = file != NULL ? fread(text, 1, sizeof text, file) : 0, n = 0;
    if (n_bytes == 0)
        bench_die(b->text, NULL);
    fclose(file);
    BENCH_TRY(mf_tokenizer_open(b->model, NULL, &tokenizer, &error));
    BENCH_TRY(mf_tokenizer_encode(tokenizer, text, n_bytes, 0, NULL, 0, &n, &error));
    int32_t *tokens = malloc((n + 1) * sizeof *tokens);
    if (tokens == NULL || n == 0)
        bench_die("no memory, or no text", NULL);
    BENCH_TRY(mf_tokenizer_encode(tokenizer, text, n_bytes, 0, tokens, n, &n, &error));
    for (size_t i = 0; i < b->n_tokens; i++)
        b->tokens[i] = tokens[i % n];
    free(tokens);
    mf_tokenizer_free(&tokenizer);
}

static void make_tokens(bench *b)
{
    uint64_t random = 88172645463325252u;
    size_t n = (size_t)b->n_sessions * (b->n_prompt + b->n_steps);
    b->n_tokens = n > b->n_prefix + 1 ? n : b->n_prefix + 1;
    b->tokens = malloc(b->n_tokens * sizeof *b->tokens);
    if (b->tokens == NULL)
        bench_die("no memory", NULL);
    if (b->text != NULL)
        read_text(b);
    for (size_t i = 0; b->text == NULL && i < b->n_tokens; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        b->tokens[i] = (int32_t)((random >> 11) % b->info.n_vocab);
    }
}

static void open_engine(bench *b, const char *part)
{
    uint32_t longest = b->n_prompt + b->n_steps;
    if (strcmp(part, "state") == 0) {
        longest = b->n_prefix + 1;
        b->n_sessions = 2;
    }
    b->options.n_sessions = b->n_sessions;
    b->options.n_context_tokens = longest;
    b->options.log = NULL;
    mf_model_info info;
    BENCH_TRY(mf_model_inspect(b->model, &b->options, &info, &error));
    if (b->options.ram_bytes == 0) /* else the budget decides what the default is good for */
        b->options.state_bytes = info.session_bytes * (b->n_sessions + 1);
    BENCH_TRY(mf_engine_open(b->model, &b->options, &b->engine, &error));
    b->engine->runner.split.mode = b->halves;
    mf_engine_info(b->engine, &b->info);
}

static uint32_t number(const char *text, uint32_t most)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (*end != '\0' || n < 1 || n > most)
        bench_die(text, &(mf_error){.message = "not a number in range"});
    return (uint32_t)n;
}

int main(int argc, char **argv)
{
    const char *part = "decode";
    bench b = {.n_sessions = 8, .n_prompt = 32, .n_steps = 32, .n_prefix = 4096, .n_rounds = 3};
    mf_engine_options_default(&b.options);
    b.options.expert_cache_bytes = 0;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (argv[i][0] != '-') {
            b.model = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--one-prompt") == 0) {
            b.has_one_prompt = true;
            continue;
        }
        if (strcmp(argv[i], "--operations") == 0) {
            b.has_operations = true;
            continue;
        }
        i++;
        if (strcmp(argv[i - 1], "--text") == 0)
            b.text = value;
        else if (strcmp(argv[i - 1], "--sessions") == 0)
            b.n_sessions = number(value, BENCH_MAX_SESSIONS);
        else if (strcmp(argv[i - 1], "--prompt") == 0)
            b.n_prompt = number(value, 1 << 20);
        else if (strcmp(argv[i - 1], "--steps") == 0)
            b.n_steps = number(value, 1 << 20);
        else if (strcmp(argv[i - 1], "--prefix") == 0)
            b.n_prefix = number(value, 1 << 20);
        else if (strcmp(argv[i - 1], "--rounds") == 0)
            b.n_rounds = number(value, BENCH_MAX_ROUNDS);
        else if (strcmp(argv[i - 1], "--ram") == 0) {
            b.options.ram_bytes = (uint64_t)number(value, 1 << 20) << 20;
            b.options.expert_cache_bytes = MF_EXPERT_CACHE_AUTO;
        } else if (strcmp(argv[i - 1], "--cache") == 0)
            b.options.expert_cache_bytes = (uint64_t)number(value, 1 << 20) << 20;
        else if (strcmp(argv[i - 1], "--device") == 0)
            b.options.device = value;
        else if (strcmp(argv[i - 1], "--vram") == 0)
            b.options.device_bytes = (uint64_t)number(value, 1 << 20) << 20;
        else if (strcmp(argv[i - 1], "--dir") == 0)
            b.directory = value;
        else if (strcmp(argv[i - 1], "--halves") == 0)
            b.halves = strcmp(value, "never") == 0    ? MF_SPLIT_NEVER
                       : strcmp(value, "always") == 0 ? MF_SPLIT_ALWAYS
                                                      : MF_SPLIT_AUTO;
        else if (strcmp(argv[i - 1], "--part") == 0)
            part = value;
        else
            bench_die(argv[i - 1], &(mf_error){.message = "unknown option"});
    }
    if (b.model == NULL)
        bench_die("MODEL is missing", NULL);
    open_engine(&b, part);
    make_tokens(&b);
    if (strcmp(part, "decode") == 0)
        bench_decode(&b);
    else if (strcmp(part, "together") == 0)
        bench_together(&b);
    else if (strcmp(part, "state") == 0)
        bench_state(&b);
    else
        bench_die(part, &(mf_error){.message = "no such part"});
    free(b.tokens);
    mf_engine_close(&b.engine);
    return 0;
}
