/* SPDX-License-Identifier: MIT */
/*
 * Memory: nothing is allocated per decoded token once a session is warm (counted at the engine's
 * allocator and at malloc and mmap themselves), and an allocator that fails at its N-th call, for
 * every N, gives a clean error and no leak.
 */
#include "golden.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

/* The linker sends every call of the library's to these (--wrap). */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t alignment, size_t n);
int __real_posix_memalign(void **out, size_t alignment, size_t n);
void *__real_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t alignment, size_t n);
int __wrap_posix_memalign(void **out, size_t alignment, size_t n);
void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);

static atomic_ullong n_system_calls;

void *__wrap_malloc(size_t n)
{
    n_system_calls++;
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    n_system_calls++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    n_system_calls++;
    return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t alignment, size_t n)
{
    n_system_calls++;
    return __real_aligned_alloc(alignment, n);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t n)
{
    n_system_calls++;
    return __real_posix_memalign(out, alignment, n);
}

void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    n_system_calls++;
    return __real_mmap(at, n, protection, flags, fd, offset);
}

/* It is counted by itself. */
#define FAILING_MALLOC __real_malloc
#include "failing_alloc.h"

static void check_decode(const golden_case *c, const golden *g, mf_io_kind io)
{
    const uint32_t n_tokens = golden_is_short() ? 22 : g->n_tokens;
    failing count = {0};
    mf_engine_options options = golden_options(c);
    options.allocator = failing_allocator(&count);
    options.expert_cache_bytes = 0; /* every token reads */
    options.n_threads = 2;
    options.timeline = "/dev/null";
    options.io = io;
    mf_error error = {0};
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    if (mf_engine_open(golden_path(c->name), &options, &engine, &error) == MF_ERR_UNSUPPORTED &&
        io == MF_IO_URING)
        return;
    REQUIRE(engine != NULL);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    REQUIRE_OK(mf_engine_profile(engine, 1, &error), &error);
    REQUIRE_OK(mf_session_eval(session, g->tokens, 10, &error), &error);
    REQUIRE_OK(mf_session_eval(session, g->tokens + 10, 1, &error), &error);
    unsigned long long own = count.n_calls, system = n_system_calls;
    for (uint32_t t = 11; t < n_tokens; t++)
        REQUIRE_OK(mf_session_eval(session, g->tokens + t, 1, &error), &error);
    CHECK_MSG(count.n_calls == own, "%s: %llu calls of the allocator in %u decoded tokens", c->name,
              count.n_calls - own, n_tokens - 11);
    CHECK_MSG(n_system_calls == system, "%s: %llu calls of malloc or mmap in %u decoded tokens",
              c->name, n_system_calls - system, n_tokens - 11);
    mf_session_free(&session);
    mf_engine_close(&engine);
    failing_check_end(&count, c->name);
}

/* Open, create, evaluate, close; MF_OK or the first failure. Handles must stay NULL on failure. */
static mf_status life(const golden_case *c, const golden *g, failing *count, mf_error *error)
{
    mf_engine_options options = golden_options(c);
    options.allocator = failing_allocator(count);
    options.expert_cache_bytes = 0;
    options.n_threads = 2;
    options.timeline = "/dev/null";
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_status status = mf_engine_open(golden_path(c->name), &options, &engine, error);
    CHECK((status == MF_OK) == (engine != NULL));
    if (status == MF_OK) {
        status = mf_session_create(engine, &session, error);
        CHECK((status == MF_OK) == (session != NULL));
    }
    if (status == MF_OK)
        status = mf_session_eval(session, g->tokens, 9, error);
    if (status == MF_OK)
        status = mf_session_eval(session, g->tokens + 9, 1, error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    return status;
}

static void check_failures(const golden_case *c, const golden *g, bool once)
{
    const unsigned long long step = golden_is_short() ? 11 : GOLDEN_ON_DEVICE ? 5 : 1;
    unsigned long long n_failed = 0;
    for (unsigned long long n = 1;; n += step) {
        failing count = {.fail_at = n, .fail_once = once};
        mf_error error = {0};
        mf_status status = life(c, g, &count, &error);
        failing_check_end(&count, c->name);
        if (count.n_calls < n) { /* nothing was left to fail */
            CHECK_MSG(status == MF_OK, "%s: %s", c->name, error.message);
            break;
        }
        n_failed++;
        CHECK_MSG((once && status == MF_OK) || /* something may do without */
                      (status == MF_ERR_NO_MEMORY && error.code == MF_ERR_NO_MEMORY &&
                       error.message[0] != 0),
                  "%s: allocation %llu failed: %s, \"%s\"", c->name, n, mf_status_name(status),
                  error.message);
    }
    fprintf(stderr, "%s: %llu allocations failed one by one\n", c->name, n_failed);
    CHECK(n_failed > 10 / step);
}

static void check_inspect_failures(const golden_case *c)
{
    for (unsigned long long n = 1;; n++) {
        failing count = {.fail_at = n};
        mf_engine_options options = golden_options(c);
        options.allocator = failing_allocator(&count);
        mf_model_info info;
        mf_error error = {0};
        mf_status status = mf_model_inspect(golden_path(c->name), &options, &info, &error);
        failing_check_end(&count, c->name);
        if (count.n_calls < n) {
            CHECK_STATUS(status, MF_OK);
            break;
        }
        CHECK_STATUS(status, MF_ERR_NO_MEMORY);
    }
}

int main(void)
{
    static const char *const names[] = {
        "mlx_4bit",           "hf_bf16",      "next_bf16",        "packed_no_config", "v3_fp8",
        "v3_fp8_bf16_scales", "v2_lite_bf16", "v3_mlx_4bit_split"};
    const size_t n = sizeof names / sizeof *names;
    /* in short one, whose shaders test_goldens_vulkan compiles as well */
    for (size_t i = golden_is_short() ? n - 1 : 0; i < n; i += GOLDEN_ON_DEVICE ? 2 : 1) {
        const golden_case *c = golden_case_find(names[i]);
        golden g;
        golden_read(c, &g);
        check_decode(c, &g, MF_IO_POOL);
        check_decode(c, &g, MF_IO_URING);
        if (GOLDEN_ON_DEVICE || i % 3 == 0 || i == n - 1 || getenv("MF_TEST_LONG") != NULL) {
            check_failures(c, &g, false);
            check_failures(c, &g, true);
        }
        check_inspect_failures(c);
        golden_free(&g);
    }
    return test_result();
}
