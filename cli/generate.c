/* SPDX-License-Identifier: MIT */
/* Opening a model, prefill with progress, and the generation loop. */
#include "generate.h"

#include "chat_text.h"
#include "interrupt.h"
#include "terminal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* What whoever started the program should know, but for --quiet. */
__attribute__((format(printf, 2, 3))) static void say(const mf_cli_generator *g, const char *format,
                                                      ...)
{
    mf_cli_verbosity told = g->args->engine.verbosity;
    char line[512];
    va_list args;
    if (told.quiet)
        return;
    told.verbose = true;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    mf_cli_log(&told, MF_LOG_INFO, line);
}

/* Of 32 bits: it will be typed. */
static uint64_t random_seed(void)
{
    uint32_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
        seed = (uint32_t)(mf_cli_now() * 1e6) ^ (uint32_t)getpid();
    return seed;
}

static int open_sampler(mf_cli_generator *g)
{
    const mf_cli_generate_args *args = g->args;
    mf_sampler_options options;
    mf_error error = {0};
    mf_sampler_options_default(&options);
    mf_status status = mf_sampler_options_load(g->model, &options, &error);
    if (status != MF_OK)
        return mf_cli_fail(status, &error);
    mf_cli_sampling_apply(&args->sampling, g->tokenizer, g->n_context_tokens, &options);
    options.seed = args->sampling.has_seed ? args->sampling.given.seed : random_seed();
    g->stats.is_random = options.temperature > 0;
    g->stats.seed = options.seed;
    status = mf_sampler_create(&options, g->info.n_vocab, NULL, &g->sampler, &error);
    return status == MF_OK ? MF_EXIT_OK : mf_cli_fail(status, &error);
}

static int is_interrupted(void *user)
{
    (void)user;
    return mf_cli_interrupted();
}

static mf_status open_store(mf_cli_generator *g, mf_error *error)
{
    const mf_cli_generate_args *args = g->args;
    mf_store_options options;
    mf_store_options_default(&options);
    if (args->state_dir_bytes > 0)
        options.max_bytes = args->state_dir_bytes;
    options.log = mf_cli_log;
    options.log_user = (void *)&args->engine.verbosity;
    options.stop = is_interrupted;
    return mf_store_open(args->state_dir, &options, &g->store, error);
}

/* What a prompt is taken up at in families with recurrent layers: marks, of which the plan
 * has room for one. A chat wants one more, a store as many as an entry keeps, where the budget
 * allows for them. */
static mf_status open_engine(mf_cli_generator *g, const mf_engine_options *options, mf_error *error)
{
    const uint64_t n_more = g->store ? 3 : MF_CLI_MAX_STOPS - 1;
    mf_engine_options large = *options;
    if ((g->store || g->args->is_chat) &&
        (g->info.n_linear_attention_layers > 0 || g->info.window_tokens > 0) &&
        options->state_bytes == 0) {
        large.state_bytes = g->info.state_bytes + n_more * g->info.one_mark_bytes;
        large.mark_bytes = (n_more + 1) * g->info.one_mark_bytes;
        mf_status status = mf_engine_open(g->model, &large, &g->engine, error);
        if (status != MF_ERR_BUDGET)
            return status;
    }
    return mf_engine_open(g->model, options, &g->engine, error);
}

/* A model that was taught a template which is not known here would answer the bare text, only not
 * well: that has to be asked for. */
static mf_status check_template(const mf_cli_generator *g, mf_error *error)
{
    const mf_chat_message any = {MF_ROLE_USER, "x"};
    mf_error found = {0};
    size_t n_bytes;
    if (g->args->raw || mf_chat_format(g->tokenizer, &any, 1, g->args->thinking, NULL, 0, &n_bytes,
                                       &found) != MF_ERR_UNSUPPORTED)
        return MF_OK;
    *error = found;
    snprintf(error->message, sizeof error->message, "%.300s: %.600s; --raw does without", g->model,
             found.message);
    return found.code;
}

/* The descriptors come first, so that a directory that is no model is called that, and not one
 * without a tokenizer; the tokenizer and the store second, so that the memory budget counts them.
 */
int mf_cli_generator_open(mf_cli_generator *g, const char *model, const mf_cli_generate_args *args)
{
    mf_error error = {0};
    memset(g, 0, sizeof *g);
    g->args = args;
    g->model = model;
    g->now_seconds = (int64_t)time(NULL);
    mf_cli_screen_open(&g->screen, args->color, !args->no_wrap);
    mf_engine_options options = args->engine.options;
    options.hot_dir = args->state_dir;
    mf_status status = mf_model_inspect(model, &options, &g->info, &error);
    if (status == MF_OK)
        status = mf_tokenizer_open(model, NULL, &g->tokenizer, &error);
    if (status == MF_OK)
        status = check_template(g, &error);
    if (status == MF_OK && args->state_dir)
        status = open_store(g, &error);
    if (status == MF_OK)
        status = mf_cli_chat_learn(g, &error);
    const int guided =
        status != MF_OK ? MF_EXIT_OK
                        : mf_cli_guide_open(&g->guide, g->tokenizer, args->raw ? NULL : g->syntax,
                                            args->json_schema, args->grammar);
    if (guided != MF_EXIT_OK)
        return guided;
    if (status == MF_OK)
        status = open_engine(g, &options, &error);
    if (status == MF_OK)
        status = mf_session_create(g->engine, &g->session, &error);
    if (status == MF_OK && args->trace)
        status = mf_engine_record_routing(g->engine, args->trace, &error);
    if (status == MF_OK && args->has_profile)
        status = mf_engine_profile(g->engine, 1, &error);
    if (status != MF_OK)
        return mf_cli_fail(status, &error);
    mf_engine_set_store(g->engine, g->store);
    mf_engine_info(g->engine, &g->info);
    g->n_context_tokens = g->info.n_context_tokens;
    g->stats.n_experts_per_token = g->info.n_experts_per_token;
    g->stats.n_experts_per_token_model = g->info.n_experts_per_token_model;
    g->stats.ram_bytes = g->info.ram_bytes;
    g->stats.n_slots = g->info.n_slots;
    g->stats.slot_bytes = g->info.slot_bytes;
    g->stats.n_host_slots = g->info.n_host_slots;
    g->stats.io_name = mf_engine_io_name(g->engine);
    g->stats.cpu_name = mf_engine_cpu_name(g->engine);
    g->stats.device = g->info.device;
    g->stats.expert_device = g->info.expert_device;
    g->stats.device_why = g->info.device_why;
    g->stats.device_bytes = g->info.device_bytes;
    return open_sampler(g);
}

void mf_cli_generator_close(mf_cli_generator *g)
{
    mf_sampler_free(&g->sampler);
    mf_cli_guide_close(&g->guide);
    mf_reply_syntax_free(&g->syntax);
    mf_session_free(&g->session);
    mf_engine_close(&g->engine);
    mf_store_close(&g->store);
    mf_tokenizer_free(&g->tokenizer);
    mf_cli_buffer_free(&g->shown);
    mf_cli_buffer_free(&g->escaped);
    mf_cli_screen_free(&g->screen);
}

bool mf_cli_fits(const mf_cli_generator *g, size_t n_tokens)
{
    return n_tokens <= g->n_context_tokens;
}

typedef struct progress {
    double started;
    double last_drawn; /* 0: never */
    bool is_shown;     /* stderr is a terminal */
    double announced;  /* seconds; 0: not known */
    /* What pieces cost, by their forecast or in tokens: all, those done, and the present one. */
    double all, before, piece;
} progress;

static void progress_draw(progress *p, double now, uint64_t n_done, uint64_t n_total)
{
    enum { WIDTH = 30 };
    char bar[WIDTH + 1];
    double piece = n_total > 0 ? (double)n_done / (double)n_total : 1;
    double part = p->all > 0 ? (p->before + piece * p->piece) / p->all : 0;
    part = part < 1 ? part : 1;
    int n_filled = (int)(part * WIDTH);
    for (int i = 0; i < WIDTH; i++)
        bar[i] = i < n_filled ? '#' : '.';
    bar[WIDTH] = '\0';
    /* What was announced, and more and more what it takes in fact. */
    double took = now - p->started;
    double in_all = part > 0 ? took / part : p->announced;
    if (p->announced > 0)
        in_all = part * in_all + (1 - part) * p->announced;
    double left = in_all > took ? in_all - took : 0;
    fprintf(stderr, "\rreading the prompt [%s] %3.0f %%, %.0f s left\033[K", bar, 100 * part, left);
    p->last_drawn = now;
}

static int on_progress(void *user, uint64_t n_done, uint64_t n_total)
{
    progress *p = user;
    double now = mf_cli_now();
    if (mf_cli_interrupted())
        return 1;
    if (p->is_shown && now - p->started > 1 && now - p->last_drawn > 0.1)
        progress_draw(p, now, n_done, n_total);
    return 0;
}

int mf_cli_add_start(const mf_cli_generator *g, mf_cli_ids *ids)
{
    int32_t start = mf_tokenizer_start(g->tokenizer);
    if (start < 0 || ids->n_tokens == 0 || ids->tokens[0] == start)
        return MF_EXIT_OK;
    int32_t *grown = realloc(ids->tokens, (ids->n_tokens + 1) * sizeof *grown);
    if (!grown)
        return mf_cli_error("no memory for the prompt");
    memmove(grown + 1, grown, ids->n_tokens * sizeof *grown);
    grown[0] = start;
    *ids = (mf_cli_ids){grown, ids->n_tokens + 1};
    return MF_EXIT_OK;
}

/* Whoever names a directory is told what came of it, unless quiet. */
static void report_reuse(const mf_cli_generator *g, const mf_sync_result *result, size_t n_tokens)
{
    if (result->source == MF_SYNC_STORE)
        say(g, "%zu of %zu tokens taken from %s", result->n_reused, n_tokens, g->args->state_dir);
}

/* Parts that a prompt's marks cut it into: enough that of those which the store keeps the
 * newest is near the end, where another question after the same text begins. */
#define PROMPT_PARTS 8

/* How much of the prompt the session holds or had evaluated at its end. */
static size_t n_common(const mf_session *session, const mf_cli_prompt *prompt)
{
    size_t n = 0, n_held = mf_session_position(session);
    const int32_t *held = mf_session_tokens(session);
    while (n < n_held && n < prompt->n_tokens && held[n] == prompt->tokens[n])
        n++;
    return n;
}

static void count_prompt(mf_cli_generator *g, const mf_cli_prompt *prompt, size_t n_seen,
                         const mf_sync_result *reused)
{
    g->stats.n_prompt += prompt->n_tokens;
    g->stats.n_reused += reused->n_reused;
    g->stats.n_new += prompt->n_tokens - (n_seen > reused->n_reused ? n_seen : reused->n_reused);
    if (reused->source == MF_SYNC_STORE && reused->n_reused > n_seen)
        g->stats.n_from_store += reused->n_reused - n_seen;
}

/* A mark where the session stands, in place of those at places that matter no more. One that
 * does not fit is left out: it saves time and nothing else. */
static void mark_stop(mf_cli_generator *g, const mf_cli_prompt *prompt)
{
    size_t positions[16];
    size_t n = mf_mark_list(g->session, positions, 16);
    (void)!mf_mark_save(g->session, NULL);
    for (size_t i = 0; i < n && i < 16; i++) {
        bool matters = false;
        for (size_t k = 0; k < prompt->n_stops; k++)
            matters = matters || positions[i] == prompt->stops[k];
        if (!matters)
            (void)!mf_mark_drop(g->session, positions[i], NULL);
    }
}

/* Prompts from so many tokens on are worth measuring for; each rate for so long. */
#define FORECAST_TOKENS 128
#define FORECAST_MS 150
/* Nobody needs to be told of less. */
#define ANNOUNCED_SECONDS 2

static size_t piece_end(const mf_cli_prompt *prompt, size_t i)
{
    return i < prompt->n_stops ? prompt->stops[i] : prompt->n_tokens;
}

/* What so many tokens more cost, as far as it is known. */
static double piece_cost(const mf_cli_generator *g, const progress *p, size_t n)
{
    mf_forecast forecast;
    mf_status status =
        p->announced > 0 ? mf_session_forecast(g->session, n, 0, &forecast, NULL) : MF_ERR_STATE;
    return status == MF_OK && forecast.seconds > 0 ? forecast.seconds : (double)n;
}

static void announce(const mf_cli_generator *g, size_t n_tokens, const mf_forecast *forecast)
{
    char bytes[MF_CLI_SIZE_CHARS], rate[MF_CLI_SIZE_CHARS], reads[128] = "";
    if (forecast->seconds < ANNOUNCED_SECONDS)
        return;
    if (forecast->read_bytes > 0)
        snprintf(reads, sizeof reads, ", %s read in %" PRIu64 " sweep%s at %s/s",
                 mf_cli_size(bytes, (double)forecast->read_bytes), forecast->n_chunks,
                 forecast->n_chunks == 1 ? "" : "s",
                 mf_cli_size(rate, forecast->read_bytes_per_second));
    say(g, "reading a prompt of %zu tokens: about %.0f s (%.0f s of computing%s)", n_tokens,
        forecast->seconds, forecast->computing_seconds, reads);
}

/* Says how long it will take, where somebody looks, and lays out the bar by it. What cannot be
 * known is left out: the prompt is evaluated all the same. */
static void plan_progress(mf_cli_generator *g, const mf_cli_prompt *prompt, progress *p)
{
    const size_t start = mf_session_position(g->session), n = prompt->n_tokens - start;
    const double began = mf_cli_now();
    mf_forecast forecast;
    if (n >= FORECAST_TOKENS && (p->is_shown || g->args->has_forecast) &&
        mf_session_forecast(g->session, n, FORECAST_MS, &forecast, NULL) == MF_OK) {
        p->announced = forecast.seconds;
        g->stats.announced_seconds += forecast.seconds;
        if (p->is_shown)
            announce(g, n, &forecast);
    }
    p->started += mf_cli_now() - began;
    p->all = 0;
    for (size_t i = 0, at = start; i <= prompt->n_stops; i++) {
        const size_t end = piece_end(prompt, i);
        p->all += end > at ? piece_cost(g, p, end - at) : 0;
        at = end > at ? end : at;
    }
}

/* What is left of the prompt, with a stop where later ones will part from it. */
static mf_status evaluate_rest(mf_cli_generator *g, const mf_cli_prompt *prompt, progress *p,
                               mf_error *error)
{
    plan_progress(g, prompt, p);
    for (size_t i = 0; i <= prompt->n_stops; i++) {
        bool is_stop = i < prompt->n_stops;
        size_t end = piece_end(prompt, i);
        size_t at = mf_session_position(g->session);
        p->before += p->piece;
        p->piece = end > at ? piece_cost(g, p, end - at) : 0;
        if (end > at) {
            mf_status status = mf_session_eval(g->session, prompt->tokens + at, end - at, error);
            if (status != MF_OK)
                return status;
        }
        if (is_stop && end >= at)
            mark_stop(g, prompt);
    }
    return MF_OK;
}

static mf_status bring_session(mf_cli_generator *g, const mf_cli_prompt *prompt, progress *p,
                               mf_error *error)
{
    mf_sync_result reused;
    size_t n_seen = n_common(g->session, prompt);
    bool cuts = g->store && prompt->n_stops == 0 && g->info.n_linear_attention_layers != 0;
    mf_mark_auto(g->session, cuts ? prompt->n_tokens / PROMPT_PARTS + 1 : 0, 0);
    mf_status status =
        mf_session_reuse(g->session, prompt->tokens, prompt->n_tokens, &reused, error);
    if (status != MF_OK)
        return status;
    count_prompt(g, prompt, n_seen, &reused);
    status = evaluate_rest(g, prompt, p, error);
    if (status != MF_OK)
        return status;
    report_reuse(g, &reused, prompt->n_tokens);
    mf_cli_keep(g);
    return MF_OK;
}

void mf_cli_keep(mf_cli_generator *g)
{
    mf_error error = {0};
    char line[1200];
    if (!g->store || mf_store_put(g->store, g->session, &error) == MF_OK)
        return;
    snprintf(line, sizeof line, "the state was not kept: %s", error.message);
    mf_cli_log((void *)&g->args->engine.verbosity, MF_LOG_WARNING, line);
}

static bool append_piece(const mf_cli_generator *g, mf_cli_buffer *text, int32_t token)
{
    size_t n_bytes = 0;
    const char *piece = text ? mf_tokenizer_piece(g->tokenizer, token, &n_bytes) : NULL;
    return !piece || mf_cli_buffer_append(text, piece, n_bytes);
}

/* The text that the prompt's tokens stand for, special ones included. Only a sight: that it cannot
 * be written is no failure. */
static void show_prompt(mf_cli_generator *g, const mf_cli_prompt *prompt)
{
    mf_cli_buffer text = {0};
    bool has_memory = true;
    for (size_t i = 0; i < prompt->n_tokens && has_memory; i++)
        has_memory = append_piece(g, &text, prompt->tokens[i]);
    if (has_memory && mf_cli_buffer_append(&text, "\n", 1))
        (void)mf_cli_show(stderr, text.data, text.n_bytes, &g->escaped);
    mf_cli_buffer_free(&text);
}

mf_status mf_cli_prefill(mf_cli_generator *g, const mf_cli_prompt *prompt)
{
    mf_error error = {0};
    mf_stats before, after;
    progress p = {.started = mf_cli_now(),
                  .is_shown = isatty(STDERR_FILENO) && !g->args->engine.verbosity.quiet};
    mf_cli_silence silence;
    if (g->args->shows_prompt)
        show_prompt(g, prompt);
    mf_engine_stats(g->engine, &before);
    mf_session_set_progress(g->session, on_progress, &p);
    mf_cli_silence_begin(&silence);
    mf_status status = bring_session(g, prompt, &p, &error);
    mf_cli_silence_end(&silence);
    mf_session_set_progress(g->session, NULL, NULL);
    mf_engine_stats(g->engine, &after);
    mf_cli_phase_add(&g->stats.prefill, &before, &after, mf_cli_now() - p.started);
    if (p.last_drawn > 0)
        fputs("\r\033[K", stderr);
    if (status != MF_OK && status != MF_ERR_CANCELLED)
        mf_cli_fail(status, &error);
    if (status == MF_OK) {
        mf_sampler_forget(g->sampler); /* earlier turns stand in the prompt */
        mf_sampler_accept_prompt(g->sampler, prompt->tokens, prompt->n_tokens);
    }
    return status;
}

void mf_cli_say_seed(mf_cli_generator *g)
{
    const mf_cli_generate_args *args = g->args;
    if (g->stats.is_random && !args->sampling.has_seed && !g->has_said_seed &&
        args->n_max_tokens > 0)
        say(g, "seed %" PRIu64, g->stats.seed);
    g->has_said_seed = true;
}
