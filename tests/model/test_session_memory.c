/* SPDX-License-Identifier: MIT */
/*
 * What sessions cost: 64 of 100 tokens no more than their pages and recurrent states; forks nothing
 * but a last page; 1,000 sessions that come and go leave neither heap nor address space behind.
 */
#include "golden.h"

#include "session/session.h"

#include <malloc.h>
#include <unistd.h>

enum { N_SESSIONS = 64, N_TOKENS = 100 };

static mf_engine *open_engine(const golden_case *c, uint32_t n_context)
{
    mf_engine_options options = golden_options(c);
    options.n_context_tokens = n_context;
    options.n_sessions = N_SESSIONS;
    options.state_bytes = UINT64_C(1) << 30;
    options.n_threads = 1;
    return golden_open(c, &options);
}

static uint64_t pages_bytes(const mf_engine *e, uint64_t n_pages, uint64_t n_states)
{
    return n_pages * e->runner.plan.page_bytes + n_states * e->runner.plan.recurrent_bytes;
}

static void check_size(const golden_case *c, const golden *g)
{
    mf_engine *e = open_engine(c, 128);
    mf_session *sessions[N_SESSIONS] = {NULL};
    mf_error error = {0};
    int32_t tokens[N_TOKENS];
    for (size_t i = 0; i < N_TOKENS; i++)
        tokens[i] = g->tokens[i % g->n_tokens];
    for (size_t i = 0; i < N_SESSIONS; i++) {
        REQUIRE_OK(mf_session_create(e, &sessions[i], &error), &error);
        REQUIRE_OK(mf_session_eval(sessions[i], tokens, N_TOKENS, &error), &error);
        CHECK_U64(mf_session_state_bytes(sessions[i]), pages_bytes(e, 4, 1));
    }
    CHECK_U64(e->pool.touched_bytes, pages_bytes(e, 4 * N_SESSIONS, N_SESSIONS));
    for (size_t i = 1; i < N_SESSIONS; i++)
        mf_session_free(&sessions[i]);
    uint64_t before = e->pool.kinds[MF_UNIT_PAGE].n_used;
    CHECK_U64(before, 4);
    for (size_t i = 1; i < N_SESSIONS; i++)
        REQUIRE_OK(mf_session_fork(sessions[0], &sessions[i], &error), &error);
    CHECK_U64(e->pool.kinds[MF_UNIT_PAGE].n_used, before);
    mf_batch_item items[N_SESSIONS];
    for (size_t i = 0; i < N_SESSIONS; i++)
        items[i] = (mf_batch_item){sessions[i], tokens, 1};
    REQUIRE_OK(mf_engine_eval(e, items, N_SESSIONS, &error), &error);
    /* three pages in common, a last one each */
    CHECK_U64(e->pool.kinds[MF_UNIT_PAGE].n_used, 3 + N_SESSIONS);
    /* the state before the last token is kept for the next one's */
    REQUIRE_OK(mf_session_eval(sessions[0], tokens, 1, &error), &error);
    CHECK_U64(mf_session_state_bytes(sessions[0]), pages_bytes(e, 4, 2));
    for (size_t i = 0; i < N_SESSIONS; i++)
        mf_session_free(&sessions[i]);
    CHECK_U64(e->pool.kinds[MF_UNIT_PAGE].n_used + e->pool.kinds[MF_UNIT_RECURRENT].n_used, 0);
    mf_engine_close(&e);
}

/* Pages of address space, from the kernel. */
static unsigned long address_space(void)
{
    unsigned long n = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    REQUIRE(f != NULL && fscanf(f, "%lu", &n) == 1);
    fclose(f);
    return n;
}

static void come_and_go(mf_engine *e, const golden *g, size_t n)
{
    mf_session *s[3] = {NULL};
    mf_error error = {0};
    for (size_t i = 0; i < n; i++) {
        REQUIRE_OK(mf_session_create(e, &s[0], &error), &error);
        REQUIRE_OK(mf_session_eval(s[0], g->tokens, 3 + i % 40, &error), &error);
        REQUIRE_OK(mf_mark_save(s[0], &error), &error);
        REQUIRE_OK(mf_session_fork(s[0], &s[1], &error), &error);
        REQUIRE_OK(mf_session_eval(s[1], g->tokens, 2, &error), &error);
        for (size_t j = 0; j < 2; j++)
            mf_session_free(&s[j]);
    }
}

static void check_leaks(const golden_case *c, const golden *g)
{
    mf_engine *e = open_engine(c, 128);
    come_and_go(e, g, 50);
    size_t heap = mallinfo2().uordblks;
    unsigned long space = address_space();
    come_and_go(e, g, 500); /* 1,000 sessions */
    CHECK_U64(mallinfo2().uordblks, heap);
    CHECK_U64(address_space(), space);
    CHECK_U64(e->pool.kinds[MF_UNIT_PAGE].n_used + e->pool.kinds[MF_UNIT_RECURRENT].n_used, 0);
    mf_engine_close(&e);
}

int main(void)
{
    static const char *const names[] = {"mlx_4bit", "v2_lite_bf16"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const golden_case *c = golden_case_find(names[i]);
        golden g;
        golden_read(c, &g);
        check_size(c, &g);
        check_leaks(c, &g);
        golden_free(&g);
    }
    return test_result();
}
