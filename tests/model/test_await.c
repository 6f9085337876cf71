/* SPDX-License-Identifier: MIT */
/*
 * mf_engine_options.await_bytes: it is asked before bytes of weights are read, by the loader and by
 * reads of experts; the bits are those of a checkpoint that is all there; what it refuses is an
 * error of that errno.
 */
#include "golden.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef struct gate {
    atomic_ullong n_calls, n_bytes;
    atomic_int refuse; /* an errno; 0: none */
    bool is_slow;
} gate;

static int wait_a_little(void *user, int fd, uint64_t offset, uint64_t n_bytes)
{
    gate *g = user;
    struct stat st;
    if (fstat(fd, &st) != 0 || offset >= (uint64_t)st.st_size)
        return EBADF;
    const struct timespec pause = {0, (long)(offset % 7) * 100000};
    if (g->is_slow)
        nanosleep(&pause, NULL);
    atomic_fetch_add(&g->n_calls, 1);
    atomic_fetch_add(&g->n_bytes, n_bytes);
    return atomic_load(&g->refuse);
}

static mf_engine_options options_of(const golden_case *c, gate *g)
{
    mf_engine_options options = golden_options(c);
    options.await_bytes = wait_a_little;
    options.await_user = g;
    options.expert_cache_bytes = 0; /* experts are read again and again */
    return options;
}

static void check_same(const char *name)
{
    const golden_case *c = golden_case_find(name);
    golden g;
    gate slow = {.is_slow = true};
    mf_error error = {0};
    mf_session *s = NULL;
    golden_read(c, &g);
    const mf_engine_options options = options_of(c, &slow);
    mf_engine *e = golden_open(c, &options);
    const unsigned long long n_loading = atomic_load(&slow.n_bytes);
    CHECK(n_loading > 0);
    REQUIRE_OK(mf_session_create(e, &s, &error), &error);
    REQUIRE_OK(mf_session_eval(s, g.tokens, g.n_tokens, &error), &error);
    CHECK(atomic_load(&slow.n_bytes) > n_loading);
    const float *logits = mf_session_logits(s);
    const float *golden_row = g.logits + (g.n_tokens - 1) * g.n_vocab;
    REQUIRE(logits != NULL);
    float largest = 0, difference = 0;
    for (size_t i = 0; i < g.n_vocab; i++) {
        const float d = logits[i] - golden_row[i], a = golden_row[i];
        difference = d > difference ? d : -d > difference ? -d : difference;
        largest = a > largest ? a : -a > largest ? -a : largest;
    }
    CHECK_MSG(difference <= 1e-4F * largest, "%s: %g of %g", name, (double)difference,
              (double)largest);
    mf_session_free(&s);
    mf_engine_close(&e);
    golden_free(&g);
}

static void check_refused(const char *name)
{
    const golden_case *c = golden_case_find(name);
    golden g;
    gate shut = {.refuse = ECANCELED};
    mf_error error = {0};
    mf_engine *e = NULL;
    mf_session *s = NULL;
    golden_read(c, &g);
    const mf_engine_options options = options_of(c, &shut);
    CHECK_STATUS(mf_engine_open(golden_path(c->name), &options, &e, &error), MF_ERR_IO);
    CHECK(error.os_errno == ECANCELED);
    atomic_store(&shut.refuse, 0);
    e = golden_open(c, &options);
    REQUIRE_OK(mf_session_create(e, &s, &error), &error);
    REQUIRE_OK(mf_session_eval(s, g.tokens, 4, &error), &error);
    atomic_store(&shut.refuse, EIO);
    CHECK_STATUS(mf_session_eval(s, g.tokens + 4, g.n_tokens - 4, &error), MF_ERR_IO);
    CHECK(error.os_errno == EIO);
    atomic_store(&shut.refuse, 0); /* and it goes on from where it was */
    const size_t at = mf_session_position(s);
    REQUIRE_OK(mf_session_eval(s, g.tokens + at, g.n_tokens - at, &error), &error);
    mf_session_free(&s);
    mf_engine_close(&e);
    golden_free(&g);
}

int main(void)
{
    check_same("mlx_4bit");
    check_same("gguf_qwen3_moe_q8_0");
    check_refused("mlx_4bit");
    return test_result();
}
