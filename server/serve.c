/* SPDX-License-Identifier: MIT */
/* The server's life: bind, open, listen, watch, drain. Its first thread waits for signals. */
#include "serve.h"

#include "conversation.h"
#include "http.h"
#include "template.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS (100 * 1000000L)
#define DRIVE_MS 250
#define MAX_UNSENT_BYTES ((size_t)256 << 10)

/* ------------------------------------------------------------------------------------- model -- */

/* The directory's own name, a file's without its ending, or what the command line says. */
static void name_model(mf_srv_model *m, const mf_srv_config *config)
{
    const char *path = config->model, *end = path + strlen(path);
    while (end > path + 1 && end[-1] == '/')
        end--;
    const char *begin = end;
    while (begin > path && begin[-1] != '/')
        begin--;
    if (end - begin > 5 && memcmp(end - 5, ".gguf", 5) == 0)
        end -= 5;
    if (config->name)
        snprintf(m->name, sizeof m->name, "%s", config->name);
    else
        snprintf(m->name, sizeof m->name, "%.*s", (int)(end - begin), begin);
}

/* What the drive can do is worth knowing where experts come from it again and again. */
static void measure_drive(mf_srv_model *m)
{
    const uint64_t n_experts = (uint64_t)m->info.n_moe_layers * m->info.n_experts;
    if (m->info.n_slots + m->info.n_host_slots < n_experts &&
        mf_engine_measure_drive(m->engine, DRIVE_MS, &m->drive_rate, NULL) != MF_OK)
        m->drive_rate = 0;
}

/* Before the engine: what is wrong with the directory is known before a model is loaded. */
static mf_status open_store(mf_srv_model *m, const mf_srv_config *config, mf_error *error)
{
    mf_store_options options;
    if (!config->state_dir)
        return MF_OK;
    mf_store_options_default(&options);
    options.max_bytes = config->state_dir_bytes;
    options.log = config->engine.log;
    options.log_user = config->engine.log_user;
    return mf_store_open(config->state_dir, &options, &m->store, error);
}

static mf_status open_model(mf_srv_model *m, const mf_srv_config *config, mf_error *error)
{
    m->path = config->model;
    m->variables = config->variables;
    m->thinking = config->thinking;
    m->n_thought_max = config->think_budget > 0 ? config->think_budget : SIZE_MAX;
    if (config->variables && !mf_srv_check_variables(config->variables, error))
        return MF_ERR_ARGUMENT;
    m->created = time(NULL);
    name_model(m, config);
    mf_status status = mf_tokenizer_open(config->model, NULL, &m->tokenizer, error);
    if (status == MF_OK)
        status = mf_vocabulary_create(m->tokenizer, NULL, &m->vocabulary, error);
    if (status == MF_OK)
        status = open_store(m, config, error);
    if (status == MF_OK)
        status = mf_engine_open(config->model, &config->engine, &m->engine, error);
    if (status == MF_OK && !(m->guides = mf_srv_guides_new()))
        status = MF_ERR_NO_MEMORY;
    if (status != MF_OK)
        return status;
    if (m->store)
        mf_engine_set_store(m->engine, m->store);
    mf_engine_info(m->engine, &m->info);
    measure_drive(m);
    mf_sampler_options_default(&m->sampler);
    status = mf_srv_model_learn(m, error);
    if (status == MF_OK && config->state_dir) {
        const uint64_t n_store = config->state_dir_bytes;
        const mf_srv_recall_file_options answers = {.directory = config->state_dir,
                                                    .max_bytes = n_store ? n_store / 8 : UINT64_MAX,
                                                    .log = config->engine.log,
                                                    .log_user = config->engine.log_user};
        mf_srv_model_remember(m, &answers);
    }
    return status == MF_OK ? mf_sampler_options_load(config->model, &m->sampler, error) : status;
}

static void close_model(mf_srv_model *m)
{
    mf_engine_close(&m->engine);
    mf_store_close(&m->store);
    mf_reply_syntax_free(&m->syntax);
    mf_srv_recall_file_close(&m->recall_file);
    mf_srv_recall_free(&m->recall);
    mf_srv_responses_free(&m->responses);
    mf_srv_responses_free(&m->conversations);
    mf_srv_guides_free(&m->guides);
    mf_vocabulary_free(&m->vocabulary);
    mf_tokenizer_free(&m->tokenizer);
}

/* ----------------------------------------------------------------------------------- signals -- */

/* They are waited for, by this thread; all that are started later inherit that. */
static void block_signals(sigset_t *signals, sigset_t *before)
{
    sigemptyset(signals);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, signals, before);
    signal(SIGPIPE, SIG_IGN);
}

/* Opening a model cannot be cancelled: while it goes on, a signal ends the process, by a thread. */
typedef struct loading {
    const sigset_t *signals;
    const char *made_path; /* NULL: none */
    pthread_t thread;
    bool has_thread;
} loading;

static void *end_early(void *context)
{
    loading *l = context;
    siginfo_t info;
    while (sigwaitinfo(l->signals, &info) < 0)
        continue;
    if (info.si_code == SI_QUEUE && info.si_value.sival_ptr == l) /* of end_loading */
        return NULL;
    if (l->made_path)
        unlink(l->made_path);
    signal(info.si_signo, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, l->signals, NULL);
    kill(getpid(), info.si_signo);
    _exit(128 + info.si_signo); /* the first process of a container, which signals do not end */
}

static void begin_loading(loading *l)
{
    l->has_thread = pthread_create(&l->thread, NULL, end_early, l) == 0;
}

static void end_loading(loading *l)
{
    if (!l->has_thread)
        return;
    (void)pthread_sigqueue(l->thread, SIGTERM, (union sigval){.sival_ptr = l});
    pthread_join(l->thread, NULL);
}

/* Looks after the connections until a signal comes, or until is_enough. True: a signal. */
static bool watch(mf_srv_server *server, const sigset_t *signals, uint64_t until_us)
{
    const struct timespec tick = {0, TICK_NS};
    for (;;) {
        if (sigtimedwait(signals, NULL, &tick) > 0)
            return true;
        mf_srv_watch(server);
        if (until_us > 0 &&
            (mf_srv_now_us() >= until_us || mf_srv_scheduler_is_idle(server->scheduler)))
            return false;
    }
}

/* No new requests; those under way end, or are ended. */
static void drain(mf_srv_server *server, const sigset_t *signals)
{
    const uint64_t second = 1000000;
    sd_notify(0, "STOPPING=1");
    mf_srv_http_quiesce(server);
    mf_srv_scheduler_close(server->scheduler);
    (void)watch(server, signals, mf_srv_now_us() + server->config->drain_s * second + 1);
    mf_srv_scheduler_cancel_all(server->scheduler);
    while (!mf_srv_scheduler_is_idle(server->scheduler))
        (void)watch(server, signals, mf_srv_now_us() + second);
    /* what the last answers left in their channels is sent */
    for (int i = 0; i < 10 && mf_srv_is_sending(server); i++)
        (void)watch(server, signals, mf_srv_now_us() + second / 10);
}

/* -------------------------------------------------------------------------------------- life -- */

static void say_where(const mf_srv_server *server)
{
    const mf_srv_config *c = server->config;
    const char *host = c->host ? c->host : "127.0.0.1";
    const bool is_v6 = strchr(host, ':') != NULL;
    printf("moeflux: %s at ", server->model.name);
    if (c->socket_path)
        printf("unix:%s", c->socket_path);
    else
        printf("%s://%s%s%s:%u", server->certificate ? "https" : "http", is_v6 ? "[" : "", host,
               is_v6 ? "]" : "", server->port);
    printf(" (%lu sessions, context %lu tokens)\n", (unsigned long)server->model.info.n_sessions,
           (unsigned long)server->model.info.n_context_tokens);
    fflush(stdout);
    sd_notify(0, "READY=1");
}

static bool load(mf_srv_server *server, const sigset_t *signals, mf_error *error)
{
    loading l = {.signals = signals,
                 .made_path = server->has_path ? server->config->socket_path : NULL};
    begin_loading(&l);
    const bool is_good = open_model(&server->model, server->config, error) == MF_OK;
    end_loading(&l);
    return is_good;
}

static bool start(mf_srv_server *server, const sigset_t *signals, mf_error *error)
{
    const mf_srv_scheduler_options options = {.model = &server->model,
                                              .stats = &server->stats,
                                              .max_waiting_jobs = server->config->n_waiting,
                                              .max_stall_us = server->config->max_stall_ms * 1e3,
                                              .max_unsent_bytes = MAX_UNSENT_BYTES};
    if (!load(server, signals, error))
        return false;
    server->scheduler = mf_srv_scheduler_start(&options);
    if (!server->scheduler) {
        snprintf(error->message, sizeof error->message, "no thread for the scheduler");
        return false;
    }
    return mf_srv_http_start(server, error);
}

bool mf_serve(const mf_srv_config *config, mf_error *error)
{
    sigset_t signals, before;
    mf_srv_server *server = calloc(1, sizeof *server);
    *error = (mf_error){.byte_position = MF_ERROR_NO_POSITION};
    if (!server) {
        snprintf(error->message, sizeof error->message, "out of memory");
        return false;
    }
    server->config = config;
    server->started_us = mf_srv_now_us();
    pthread_mutex_init(&server->peers_lock, NULL);
    pthread_mutex_init(&server->stats.lock, NULL);
    bool is_good =
        mf_srv_guard_open(&server->guard, config, error) && mf_srv_http_bind(server, error);
    block_signals(&signals, &before);
    is_good = is_good && start(server, &signals, error);
    if (is_good) {
        say_where(server);
        (void)watch(server, &signals, 0);
        drain(server, &signals);
    }
    mf_srv_http_stop(server);
    mf_srv_scheduler_stop(&server->scheduler);
    close_model(&server->model);
    mf_srv_guard_close(&server->guard);
    pthread_mutex_destroy(&server->peers_lock);
    pthread_mutex_destroy(&server->stats.lock);
    free(server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_good;
}
