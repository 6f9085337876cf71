/* SPDX-License-Identifier: MIT */
/* A backend's memory: buffers come, go and keep what is written; memory that fails is reported and
 * nothing is left behind. */
#include "failing_alloc.h"
#include "op_cases.h"
#include "strict_backend.h"
#include "vulkan_open.h"

#include "kernels/kernels.h"

/* Opens a backend and reserves for every case of the op list, each larger than some before it. */
static mf_status lifetime(const mf_allocator *a, scene *s, mf_error *error)
{
    const mf_backend_options options = {.allocator = *a, .n_threads = 2};
    mf_backend *be = NULL;
    mf_status status = mf_backend_open(&options, &be, error);
    if (status != MF_OK) {
        CHECK(be == NULL);
        return status;
    }
    mf_buffer kept = {0}, freed = {0};
    status = be->ops->buffer_create(be, 70000, MF_USE_DEVICE, "kept", &kept, error);
    if (status == MF_OK)
        status = be->ops->buffer_create(be, 1, MF_USE_STAGING, "freed", &freed, error);
    be->ops->buffer_free(be, freed); /* none if it failed */
    for (size_t i = 0; i < n_op_cases && status == MF_OK; i++) {
        scene_reset(s, kept, 0, 1);
        op_cases[i].build(s, op_cases[i].p);
        status = be->ops->reserve(be, &s->op, error);
    }
    be->ops->destroy(be); /* frees `kept` */
    return status;
}

static void check_failing(scene *s)
{
    bool done = false;
    unsigned long n = 1;
    for (; n < 1000 && !done; n++) {
        failing f = {.fail_at = n};
        mf_error error = {0};
        const mf_allocator a = failing_allocator(&f);
        mf_status status = lifetime(&a, s, &error);
        done = status == MF_OK;
        if (!done) {
            CHECK_STATUS(status, MF_ERR_NO_MEMORY);
            CHECK(error.code == MF_ERR_NO_MEMORY && error.message[0] != 0);
        }
        failing_check_end(&f, "lifetime");
    }
    CHECK_MSG(done && n > 5, "%lu calls", n);
}

static const op_case *smallest_like(const op_case *c)
{
    const op_case *first = op_cases;
    while (first->build != c->build)
        first++;
    return first;
}

/* What is played over and over. */
typedef struct stage {
    scene *s;
    scene_wants *wants;    /* [n_op_cases] */
    unsigned char *result; /* [SCENE_BYTES] */
} stage;

static void play_case(const op_case *c, stage *on, mf_backend *be, mf_buffer buffer,
                      const char *when)
{
    scene *s = on->s;
    unsigned char *result = on->result;
    mf_error error = {0};
    op_case_build_again(c, s, buffer, 0, on->wants);
    REQUIRE_OK(scene_play(s, be, SCENE_WHOLE, result, &error), &error);
    CHECK_MSG(scene_check(s, result, 1.0) == SIZE_MAX, "%s: wrong %s", c->name, when);
}

/* On a backend of its own, so that no larger operation's memory helps out. A reserve that fails
 * leaves the backend usable: for what it had room for already, and once memory is there again. */
static void check_own_backend(const op_case *c, stage *on, uint32_t tier)
{
    failing f = {0};
    mf_error error = {0};
    const mf_backend_options options = {
        .allocator = failing_allocator(&f), .n_threads = 2, .cpu_tier = tier};
    mf_backend *be = NULL;
    mf_buffer buffer = {0};
    REQUIRE_OK(mf_backend_open(&options, &be, &error), &error);
    REQUIRE_OK(be->ops->buffer_create(be, SCENE_BYTES, MF_USE_DEVICE, "scene", &buffer, &error),
               &error);
    play_case(smallest_like(c), on, be, buffer, "at first");
    op_case_build_again(c, on->s, buffer, 0, on->wants);
    failing_arm(&f, 1, false);
    mf_status status = be->ops->reserve(be, &on->s->op, &error);
    CHECK_STATUS(status, failing_disarm(&f) ? MF_ERR_NO_MEMORY : MF_OK);
    play_case(smallest_like(c), on, be, buffer, "after a failed reserve of more");
    play_case(c, on, be, buffer, "after a failed reserve");
    be->ops->destroy(be);
    failing_check_end(&f, c->name);
}

static void check_own_backends(scene *s)
{
    stage on = {s, calloc(n_op_cases, sizeof *on.wants), malloc(SCENE_BYTES)};
    REQUIRE(on.wants != NULL && on.result != NULL);
    for (uint32_t tier = MF_CPU_SCALAR; tier < MF_CPU_END; tier++) {
        for (size_t i = 0; mf_kernels_get(tier) != NULL && i < n_op_cases; i++)
            check_own_backend(&op_cases[i], &on, tier);
    }
    for (size_t i = 0; i < n_op_cases; i++)
        scene_free_wants(&on.wants[i]);
    free(on.wants);
    free(on.result);
}

/* ----------------------------------------------------------------------------------- buffers */

#define N_BUFFERS 5

static uint64_t size_of(uint32_t i)
{
    static const uint64_t sizes[N_BUFFERS] = {1, 4096, 70001, 3 << 20, 77};
    return sizes[i];
}

/* The uses take turns. */
static mf_buffer_use use_of(uint32_t seed)
{
    return (mf_buffer_use)(seed % 3);
}

static void fill(unsigned char *bytes, uint64_t n, uint32_t seed)
{
    uint64_t random = seed + 1;
    for (uint64_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(test_random(&random) >> 40);
}

static void check_holds(mf_backend *be, mf_buffer buffer, uint64_t n, uint32_t seed)
{
    unsigned char *want = malloc(n), *got = malloc(n);
    REQUIRE(want != NULL && got != NULL);
    fill(want, n, seed);
    mf_error error = {0};
    REQUIRE_OK(mf_backend_read(be, (mf_span){buffer, 0}, got, n, &error), &error);
    CHECK_BYTES(got, want, n);
    const unsigned char *host = be->ops->buffer_host(be, buffer);
    CHECK((host == NULL) == (use_of(seed) == MF_USE_DEVICE));
    CHECK(host == NULL || (memcmp(host, want, n) == 0 && (uintptr_t)host % 4096 == 0));
    /* a part from the middle */
    uint64_t from = n / 3, part = n / 2 - from;
    REQUIRE_OK(mf_backend_read(be, mf_span_at((mf_span){buffer, 0}, from), got, part, &error),
               &error);
    CHECK_BYTES(got, want + from, part);
    free(want);
    free(got);
}

static mf_buffer create(mf_backend *be, uint64_t n, uint32_t seed)
{
    mf_error error = {0};
    mf_buffer buffer = {0};
    REQUIRE_OK(be->ops->buffer_create(be, n, use_of(seed), "test", &buffer, &error), &error);
    CHECK(buffer.id != 0);
    unsigned char *bytes = malloc(n);
    REQUIRE(bytes != NULL);
    fill(bytes, n, seed);
    /* in two writes that meet */
    be->ops->write(be, (mf_span){buffer, n / 2}, bytes + n / 2, n - n / 2);
    be->ops->write(be, (mf_span){buffer, 0}, bytes, n / 2);
    free(bytes);
    return buffer;
}

/* Works for any backend. */
static void check_buffers(mf_backend *be)
{
    mf_buffer buffers[N_BUFFERS];
    uint32_t seeds[N_BUFFERS];
    for (uint32_t i = 0; i < N_BUFFERS; i++)
        buffers[i] = create(be, size_of(i), seeds[i] = i);
    for (uint32_t round = 0; round < 1000; round++) {
        uint32_t i = round * 7 % N_BUFFERS;
        if (size_of(i) > 100000 && round % 50 != 0)
            continue;
        be->ops->buffer_free(be, buffers[i]);
        buffers[i] = create(be, size_of(i), seeds[i] = 100 + round);
        for (uint32_t j = 0; j < N_BUFFERS; j++)
            CHECK(j == i || buffers[j].id != buffers[i].id);
    }
    for (uint32_t i = 0; i < N_BUFFERS; i++)
        check_holds(be, buffers[i], size_of(i), seeds[i]);
    be->ops->buffer_free(be, (mf_buffer){0}); /* none */
    for (uint32_t i = 0; i < N_BUFFERS; i++)
        be->ops->buffer_free(be, buffers[i]);
}

/* However many there may be, the one too many is refused, and room comes back. */
static void check_too_many(mf_backend *be)
{
    enum { MOST = 10000 };
    static mf_buffer buffers[MOST];
    mf_error error = {0};
    mf_status status = MF_OK;
    uint32_t n = 0;
    while (n < MOST && status == MF_OK) {
        status = be->ops->buffer_create(be, 1, MF_USE_DEVICE, "one of many", &buffers[n], &error);
        n += status == MF_OK;
    }
    CHECK(n >= 64);
    if (n < MOST) {
        CHECK_STATUS(status, MF_ERR_NO_MEMORY);
        CHECK_CONTAINS(error.message, "one of many");
    }
    be->ops->buffer_free(be, buffers[n / 2]);
    REQUIRE_OK(be->ops->buffer_create(be, 1, MF_USE_DEVICE, "again", &buffers[n / 2], &error),
               &error);
    for (uint32_t i = 0; i < n; i++)
        be->ops->buffer_free(be, buffers[i]);
}

static int run_vulkan(void)
{
    mf_backend *be = vulkan_open(NULL);
    if (be == NULL)
        return TEST_SKIPPED;
    check_buffers(be);
    check_too_many(be);
    be->ops->destroy(be);
    return test_result();
}

int main(int argc, char **argv)
{
    mf_error error = {0};
    mf_backend *be = NULL;
    if (argc > 1 && strcmp(argv[1], "vulkan") == 0)
        return run_vulkan();
    const mf_backend_options options = {.n_threads = 1};
    REQUIRE_OK(mf_backend_open(&options, &be, &error), &error);
    check_buffers(be);
    check_too_many(be);
    be->ops->destroy(be);
    REQUIRE_OK(strict_backend_open(NULL, &options, &be, &error), &error);
    check_buffers(be);
    check_too_many(be);
    be->ops->destroy(be);

    scene *s = scene_new();
    REQUIRE(s != NULL);
    check_failing(s);
    check_own_backends(s);
    scene_free(s);
    return test_result();
}
