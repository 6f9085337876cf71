/* SPDX-License-Identifier: MIT */
/*
 * The scheduler over an engine whose time is a number: how much of a prompt of 4,096 tokens is read
 * between two tokens of a running answer, who gives way to whom and when, the queue's bound for
 * each client, deadlines, whose place a request takes. Nothing here takes longer, or ends
 * otherwise, on a busy machine.
 */
#include "fake_engine.h"
#include "model.h"
#include "scheduler.h"
#include "test.h"

#include <time.h>

enum { N_SESSIONS = 4, N_CHUNK = 512, N_PROMPT = 4096 };

static mf_srv_model model;
static mf_srv_stats stats;

static void document(mf_srv_job *job, mf_srv_bytes *out)
{
    (void)job;
    (void)out;
}

static const mf_srv_protocol protocol = {.name = "test", .id_prefix = "t_", .document = document};

static mf_srv_scheduler *start(size_t n_sessions, size_t n_queue, double stall_us)
{
    const mf_srv_scheduler_options options = {.model = &model,
                                              .stats = &stats,
                                              .max_waiting_jobs = n_queue,
                                              .max_stall_us = stall_us,
                                              .max_unsent_bytes = 1u << 20};
    memset(&stats.counts, 0, sizeof stats.counts);
    model.info.n_sessions = (uint32_t)n_sessions;
    mf_srv_scheduler *s = mf_srv_scheduler_start(&options);
    REQUIRE(s != NULL);
    return s;
}

/* n_prompt tokens that begin with `first`, n_answer to be answered. */
static mf_srv_job *make(uint64_t client, int32_t first, size_t n_prompt, size_t n_answer)
{
    mf_srv_job *job = mf_srv_job_new(&model, &protocol);
    REQUIRE(job != NULL);
    job->client = client;
    job->arrived_us = fake_now_us();
    job->params.ignores_end = true;
    job->params.n_max_tokens = n_answer;
    job->prompts = calloc(1, sizeof *job->prompts);
    REQUIRE(job->prompts != NULL);
    job->n_prompts = 1;
    job->prompts[0].n_tokens = n_prompt;
    job->prompts[0].tokens = malloc(n_prompt * sizeof(int32_t));
    REQUIRE(job->prompts[0].tokens != NULL);
    for (size_t i = 0; i < n_prompt; i++)
        job->prompts[0].tokens[i] = i == 0 ? first : (int32_t)(i % FAKE_VOCAB);
    REQUIRE(mf_srv_job_prepare(job));
    return job;
}

static bool is_done(mf_srv_job *job)
{
    pthread_mutex_lock(&job->channel.lock);
    const bool is = job->channel.is_done;
    pthread_mutex_unlock(&job->channel.lock);
    return is;
}

static void wait_done(mf_srv_job *job)
{
    const struct timespec tick = {0, 200000};
    while (!is_done(job))
        nanosleep(&tick, NULL);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double p99(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_value);
    return values[n * 99 / 100];
}

static bool is_in(const fake_step *step, const mf_session *session)
{
    for (size_t i = 0; i < step->n_items; i++)
        if (step->items[i].session == session)
            return true;
    return false;
}

/* Tokens of those that are not among a step's of answers alone. */
static size_t n_read_in(const fake_step *step, const fake_step *usual)
{
    size_t n = 0;
    for (size_t i = 0; i < step->n_items; i++)
        n += is_in(usual, step->items[i].session) ? 0 : step->items[i].n_tokens;
    return n;
}

/* Answers run; then prompts of 4,096 tokens come. Between two tokens of an answer as much of them
 * is read as takes at most three times the usual (p99), and no less than 0.4 of that. */
static void check_prompts(const char *name, const fake_costs *costs, size_t n_answers,
                          size_t n_prompts)
{
    static double gaps[FAKE_MAX_STEPS];
    const size_t n_usual = 200;
    mf_srv_job *answers[N_SESSIONS], *prompts[N_SESSIONS];
    const fake_step *steps;
    fake_begin(costs);
    mf_srv_scheduler *s = start(N_SESSIONS, 8, 0);
    for (size_t i = 0; i < n_answers; i++) {
        answers[i] = make(1 + i, (int32_t)i, 4, 12000);
        CHECK(mf_srv_scheduler_submit(s, answers[i]) == MF_SRV_TAKEN);
    }
    fake_let_go(n_usual);
    fake_wait_held();
    for (size_t i = 0; i < n_prompts; i++) {
        prompts[i] = make(10 + i, (int32_t)(20 + i), N_PROMPT, 1);
        CHECK(mf_srv_scheduler_submit(s, prompts[i]) == MF_SRV_TAKEN);
    }
    fake_let_go(SIZE_MAX);
    for (size_t i = 0; i < n_prompts; i++)
        wait_done(prompts[i]);
    mf_srv_scheduler_cancel_all(s);
    mf_srv_scheduler_stop(&s);
    const size_t n_steps = fake_steps(&steps);
    REQUIRE(n_steps > n_usual && n_steps < FAKE_MAX_STEPS);
    const fake_step *usual_step = &steps[n_usual - 1];
    CHECK(usual_step->n_items == n_answers);
    size_t n = 0, n_read = 0;
    for (size_t i = n_usual; i < n_steps; i++) {
        const size_t n_here = n_read_in(&steps[i], usual_step);
        for (size_t k = 0; k < n_answers; k++) /* no step without an answer */
            CHECK(is_in(&steps[i], usual_step->items[k].session));
        if (n_here == 0)
            continue;
        n_read += n_here;
        gaps[n++] = (double)(steps[i].end_us - steps[i - 1].end_us);
    }
    CHECK_MSG(n_read == n_prompts * N_PROMPT, "%s: %zu tokens read", name, n_read);
    const double usual = costs->answer_us * (1 + costs->jitter / 2);
    const double late = p99(gaps, n) / usual;
    const double room = pow(2 * costs->answer_us / costs->token_us, 1 / costs->exponent);
    const double each = (double)n_read / (double)n;
    const double most =
        fmax(3, 1.2 * (1 + costs->token_us / costs->answer_us)); /* a token at least */
    CHECK_MSG(late <= most, "%s: between tokens p99 %.2f of the usual", name, late);
    CHECK_MSG(each >= 0.4 * fmin(room, N_CHUNK), "%s: %.2f tokens a step of %.2f", name, each,
              room);
    for (size_t i = 0; i < n_answers; i++)
        mf_srv_job_drop(answers[i]);
    for (size_t i = 0; i < n_prompts; i++)
        mf_srv_job_drop(prompts[i]);
}

/* A client has both places. Another's request gets one when it has waited for two seconds of the
 * scheduler's time, and at the end all have their answers. */
static void check_way(void)
{
    const fake_costs costs = {.answer_us = 10000, .token_us = 1000, .exponent = 1};
    mf_srv_job *first, *second, *other;
    fake_begin(&costs);
    mf_srv_scheduler *s = start(2, 8, 0);
    first = make(1, 1, 100, 2000);
    second = make(1, 2, 100, 2000);
    CHECK(mf_srv_scheduler_submit(s, first) == MF_SRV_TAKEN);
    CHECK(mf_srv_scheduler_submit(s, second) == MF_SRV_TAKEN);
    fake_let_go(50);
    fake_wait_held();
    other = make(2, 3, 10, 5);
    const uint64_t came_us = fake_now_us();
    CHECK(mf_srv_scheduler_submit(s, other) == MF_SRV_TAKEN);
    fake_let_go(SIZE_MAX);
    wait_done(other);
    wait_done(first);
    wait_done(second);
    mf_srv_scheduler_stop(&s);
    CHECK(other->channel.status == 200 && first->channel.status == 200 &&
          second->channel.status == 200);
    CHECK(stats.counts.n_preempted == 1);
    CHECK(first->choices[0].n_answered == 2000 && second->choices[0].n_answered == 2000);
    const uint64_t after_us = other->choices[0].first_us - came_us;
    CHECK_MSG(after_us >= 2000000 && after_us <= 2200000, "after %" PRIu64 " us", after_us);
    mf_srv_job_drop(first);
    mf_srv_job_drop(second);
    mf_srv_job_drop(other);
}

/* The queue is full of one client's; another with nothing in it gets in, up to twice as many. */
static void check_queue(void)
{
    const fake_costs costs = {.answer_us = 10000, .token_us = 1000, .exponent = 1};
    mf_srv_job *jobs[8];
    size_t n = 0;
    fake_begin(&costs);
    mf_srv_scheduler *s = start(1, 2, 0);
    jobs[n] = make(1, 1, 10, 100);
    CHECK(mf_srv_scheduler_submit(s, jobs[n++]) == MF_SRV_TAKEN);
    fake_wait_held();
    for (; n < 3; n++) {
        jobs[n] = make(1, 1, 10, 3);
        CHECK(mf_srv_scheduler_submit(s, jobs[n]) == MF_SRV_TAKEN);
    }
    jobs[n] = make(1, 1, 10, 3);
    CHECK(mf_srv_scheduler_submit(s, jobs[n++]) == MF_SRV_FULL);
    for (uint64_t client = 2; client < 4; client++) {
        jobs[n] = make(client, 1, 10, 3);
        CHECK(mf_srv_scheduler_submit(s, jobs[n++]) == MF_SRV_TAKEN);
    }
    jobs[n] = make(4, 1, 10, 3);
    CHECK(mf_srv_scheduler_submit(s, jobs[n++]) == MF_SRV_FULL);
    mf_srv_scheduler_close(s);
    fake_let_go(SIZE_MAX);
    for (size_t i = 0; i < n; i++) {
        if (i != 3 && i != 6) {
            wait_done(jobs[i]);
            CHECK(jobs[i]->channel.status == 200);
        }
        mf_srv_job_drop(jobs[i]);
    }
    CHECK(stats.counts.n_rejected == 2 && stats.counts.n_jobs == 5);
    mf_srv_scheduler_stop(&s);
}

/* Late: told so with the first step behind the deadline, whether it runs or waits. */
static void check_deadline(void)
{
    const fake_costs costs = {.answer_us = 10000, .token_us = 1000, .exponent = 1};
    fake_begin(&costs);
    mf_srv_scheduler *s = start(1, 2, 0);
    mf_srv_job *runs = make(1, 1, 10, 4000), *waits = make(1, 2, 10, 4000);
    runs->deadline_us = fake_now_us() + 1000000;
    waits->deadline_us = fake_now_us() + 500000;
    CHECK(mf_srv_scheduler_submit(s, runs) == MF_SRV_TAKEN);
    CHECK(mf_srv_scheduler_submit(s, waits) == MF_SRV_TAKEN);
    fake_let_go(SIZE_MAX);
    wait_done(runs);
    wait_done(waits);
    mf_srv_scheduler_stop(&s);
    CHECK(runs->channel.status == 504 && waits->channel.status == 504);
    CHECK(runs->choices[0].n_answered >= 95 && runs->choices[0].n_answered <= 101);
    CHECK(waits->choices[0].n_answered == 0);
    mf_srv_job_drop(runs);
    mf_srv_job_drop(waits);
}

/* How many tokens of its prompt a request finds held; the prompt is `first` and what follows it. */
static size_t n_found(mf_srv_scheduler *s, int32_t first, size_t n_prompt, size_t n_answer)
{
    mf_srv_job *job = make(1, first, n_prompt, n_answer);
    CHECK(mf_srv_scheduler_submit(s, job) == MF_SRV_TAKEN);
    wait_done(job);
    CHECK(job->channel.status == 200);
    const size_t n = job->choices[0].n_cached;
    mf_srv_job_drop(job);
    return n;
}

/* As many conversations as places, each of which asks for another answer: none takes the place of
 * another. A new one takes that of the one that was silent longest. */
static void check_places(void)
{
    const fake_costs costs = {.answer_us = 10000, .token_us = 1000, .exponent = 1};
    fake_begin(&costs);
    mf_srv_scheduler *s = start(3, 8, 0);
    fake_let_go(SIZE_MAX);
    for (int32_t first = 1; first <= 3; first++)
        CHECK(n_found(s, first, 100, 20) == 0);
    for (int round = 0; round < 2; round++) /* not in the order of their places */
        for (int32_t first = 3; first >= 1; first--)
            CHECK(n_found(s, first, 100, 20) == 99);
    CHECK(n_found(s, 2, 110, 20) == 100); /* a question, where the answer was */
    CHECK(n_found(s, 4, 100, 20) == 0);
    CHECK(n_found(s, 1, 100, 20) == 99);
    CHECK(n_found(s, 2, 110, 20) == 109);
    CHECK(n_found(s, 3, 100, 20) == 0);
    mf_srv_scheduler_stop(&s);
}

int main(void)
{
    static const struct {
        const char *name;
        fake_costs costs;
    } machines[] = {
        {"held in memory", {8000, 90, 1, 0.05}},
        {"experts that repeat", {77000, 20000, 0.8, 0.15}},
        {"experts from a drive", {900000, 300000, 0.9, 0.3}},
        {"fast and busy", {500, 150, 1, 0.6}},
        {"dear tokens", {10000, 30000, 1, 0.1}},
    };
    mf_error error;
    REQUIRE_OK(mf_tokenizer_open("models/demo", NULL, &model.tokenizer, &error), &error);
    pthread_mutex_init(&stats.lock, NULL);
    mf_sampler_options_default(&model.sampler);
    model.sampler.temperature = 0;
    model.info.n_context_tokens = 16000;
    model.info.n_chunk_tokens = N_CHUNK;
    model.info.n_vocab = FAKE_VOCAB;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        check_prompts(machines[i].name, &machines[i].costs, 1, 1);
        check_prompts(machines[i].name, &machines[i].costs, 2, 2);
    }
    check_way();
    check_queue();
    check_deadline();
    check_places();
    pthread_mutex_destroy(&stats.lock);
    mf_tokenizer_free(&model.tokenizer);
    return test_result();
}
