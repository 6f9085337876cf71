/* SPDX-License-Identifier: MIT */
/* The thread pool: every task once, thread indices exclusive, no allocation while running, nothing
 * burnt while idle. */
#include "base/threads.h"
#include "failing_alloc.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAX_TASKS 1000
#define MAX_THREADS 8

typedef struct record {
    atomic_uint n_runs[MAX_TASKS];
    atomic_uint busy[MAX_THREADS]; /* tasks that a thread index runs at once */
    atomic_uint n_violations;
    uint32_t n_threads;
} record;

static void record_task(void *ctx, uint32_t task, uint32_t thread)
{
    record *r = ctx;
    if (task >= MAX_TASKS || thread >= r->n_threads) {
        atomic_fetch_add(&r->n_violations, 1);
        return;
    }
    if (atomic_fetch_add(&r->busy[thread], 1) != 0)
        atomic_fetch_add(&r->n_violations, 1);
    atomic_fetch_add(&r->n_runs[task], 1);
    atomic_fetch_sub(&r->busy[thread], 1);
}

static mf_thread_pool *create(uint32_t n_threads)
{
    mf_allocator a = mf_allocator_default();
    mf_thread_pool *pool = NULL;
    mf_error error;
    REQUIRE_OK(mf_thread_pool_create(&a, n_threads, &pool, &error), &error);
    CHECK_U64(mf_thread_pool_size(pool), n_threads);
    return pool;
}

static void test_each_task_once(uint32_t n_threads)
{
    mf_thread_pool *pool = create(n_threads);
    static record r;
    memset(&r, 0, sizeof r);
    r.n_threads = n_threads;
    unsigned expected[MAX_TASKS] = {0};
    uint64_t seed = 7;
    for (int job = 0; job < 3000; job++) {
        uint32_t n_tasks = (uint32_t)(test_random(&seed) % (job % 50 == 0 ? MAX_TASKS : 9));
        mf_thread_pool_run(pool, n_tasks, record_task, &r);
        for (uint32_t i = 0; i < n_tasks; i++)
            expected[i]++;
        if (job % 200 == 0) /* let the workers fall asleep now and then */
            usleep(300);
        if (job % 100 == 0) /* all is visible to the caller on return */
            for (uint32_t i = 0; i < MAX_TASKS; i++)
                CHECK_U64(r.n_runs[i], expected[i]);
    }
    for (uint32_t i = 0; i < MAX_TASKS; i++)
        CHECK_U64(r.n_runs[i], expected[i]);
    CHECK_U64(r.n_violations, 0);
    mf_thread_pool_free(&pool);
    CHECK(pool == NULL);
    mf_thread_pool_free(&pool);
}

/* Plain stores of tasks are seen by the caller, plain stores of the caller by tasks. */
static void add_one(void *ctx, uint32_t task, uint32_t thread)
{
    (void)thread;
    ((uint64_t *)ctx)[task]++;
}

static void test_plain_memory(void)
{
    mf_thread_pool *pool = create(4);
    uint64_t values[16] = {0};
    for (uint64_t job = 0; job < 20000; job++) {
        mf_thread_pool_run(pool, 16, add_one, values);
        values[job % 16]++;
    }
    for (int i = 0; i < 16; i++)
        CHECK_U64(values[i], 20000 + 1250);
    mf_thread_pool_free(&pool);
}

/* Each task waits for the one before it, which was begun before it whoever has it; so the test
 * hangs if they are not begun in rising order. */
typedef struct chain {
    atomic_bool is_done[200];
    uint64_t value[200]; /* plain: seen by whoever waited */
} chain;

static void run_link(void *ctx, uint32_t task, uint32_t thread)
{
    (void)thread;
    chain *c = ctx;
    if (task > 0)
        mf_thread_await(&c->is_done[task - 1]);
    c->value[task] = task > 0 ? c->value[task - 1] + 1 : 1;
    atomic_store_explicit(&c->is_done[task], true, memory_order_release);
}

static void test_tasks_wait_for_earlier_ones(uint32_t n_threads)
{
    mf_thread_pool *pool = create(n_threads);
    static chain c;
    for (int job = 0; job < 20; job++) {
        memset(&c, 0, sizeof c);
        mf_thread_pool_run(pool, 200, run_link, &c);
        CHECK_U64(c.value[199], 200);
    }
    mf_thread_pool_free(&pool);
}

/* ------------------------------------------------------------------------------------ homes -- */

/* This process's CPUs as n nodes: each has all, or, apart, they are dealt out, as far as they go.
 */
static mf_numa_nodes *make_nodes(uint32_t n, bool are_apart)
{
    static mf_numa_nodes nodes;
    uint64_t all[MF_NUMA_MAX_CPUS / 64] = {0};
    uint32_t n_seen = 0;
    REQUIRE(sched_getaffinity(0, sizeof all, (cpu_set_t *)(void *)all) == 0);
    nodes = (mf_numa_nodes){.n = n};
    for (uint32_t cpu = 0; cpu < MF_NUMA_MAX_CPUS; cpu++) {
        if ((all[cpu / 64] >> cpu % 64 & 1) == 0)
            continue;
        for (uint32_t i = 0; i < n; i++)
            if (!are_apart || n_seen % n == i) {
                nodes.node[i].cpus[cpu / 64] |= (uint64_t)1 << cpu % 64;
                nodes.node[i].n_cpus++;
            }
        n_seen++;
    }
    return &nodes;
}

static mf_thread_pool *create_at_home(uint32_t n_threads, const mf_numa_nodes *nodes)
{
    mf_allocator a = mf_allocator_default();
    mf_thread_pool *pool = NULL;
    mf_error error;
    REQUIRE_OK(mf_thread_pool_create_at_home(&a, n_threads, nodes, &pool, &error), &error);
    CHECK_U64(mf_thread_pool_size(pool), n_threads);
    return pool;
}

/* Every task once, of jobs with homes and without, some of whose homes and phases are empty. */
static void test_homes_run_all(uint32_t n_threads, uint32_t n_nodes)
{
    const mf_numa_nodes *nodes = make_nodes(n_nodes, false);
    mf_thread_pool *pool = create_at_home(n_threads, nodes);
    static record r;
    memset(&r, 0, sizeof r);
    r.n_threads = n_threads;
    CHECK_U64(mf_thread_pool_homes(pool), n_nodes > n_threads ? 1 : n_nodes);
    const uint32_t n_homes = mf_thread_pool_homes(pool);
    unsigned expected[MAX_TASKS] = {0};
    uint64_t seed = 11;
    for (int job = 0; job < 3000; job++) {
        uint32_t end[MF_TASK_PHASES * 4], n_tasks = 0;
        const uint32_t n_phases = 1 + (uint32_t)(test_random(&seed) % MF_TASK_PHASES);
        for (uint32_t i = 0; i < n_phases * n_homes; i++)
            end[i] = n_tasks += (uint32_t)(test_random(&seed) % 5);
        if (job % 3 == 0)
            mf_thread_pool_run(pool, n_tasks, record_task, &r);
        else
            mf_thread_pool_run_at_home(pool, n_phases, end, record_task, &r);
        for (uint32_t i = 0; i < n_tasks; i++)
            expected[i]++;
        if (job % 200 == 0)
            usleep(300);
    }
    for (uint32_t i = 0; i < MAX_TASKS; i++)
        CHECK_U64(r.n_runs[i], expected[i]);
    CHECK_U64(r.n_violations, 0);
    mf_thread_pool_free(&pool);
}

/* Each task waits for all of the phases before its own; the test hangs if they are not begun. */
typedef struct phases {
    uint32_t n_per_phase;
    atomic_bool is_done[MF_TASK_PHASES * 24];
    uint64_t value[MF_TASK_PHASES * 24]; /* plain: seen by whoever waited */
} phases;

static void run_in_phase(void *ctx, uint32_t task, uint32_t thread)
{
    (void)thread;
    phases *p = ctx;
    uint64_t sum = 1;
    for (uint32_t i = 0; i < task / p->n_per_phase * p->n_per_phase; i++) {
        mf_thread_await(&p->is_done[i]);
        sum += p->value[i];
    }
    p->value[task] = sum;
    atomic_store_explicit(&p->is_done[task], true, memory_order_release);
}

static void test_phases(uint32_t n_threads, uint32_t n_nodes)
{
    mf_thread_pool *pool = create_at_home(n_threads, make_nodes(n_nodes, false));
    const uint32_t n_homes = mf_thread_pool_homes(pool);
    for (int job = 0; job < 300; job++) {
        static phases p;
        uint32_t end[MF_TASK_PHASES * 4];
        memset(&p, 0, sizeof p);
        p.n_per_phase = 6 * n_homes;
        for (uint32_t i = 0; i < MF_TASK_PHASES * n_homes; i++)
            end[i] = 6 * (i + 1);
        mf_thread_pool_run_at_home(pool, MF_TASK_PHASES, end, run_in_phase, &p);
        const uint64_t n = p.n_per_phase;
        CHECK_U64(p.value[0], 1);
        CHECK_U64(p.value[n], 1 + n);
        CHECK_U64(p.value[3 * n - 1], 1 + n + n * (1 + n));
    }
    mf_thread_pool_free(&pool);
}

/* Two tasks that wait for each other: each goes to the thread at whose home it is. */
typedef struct meeting {
    atomic_uint n_here;
    uint32_t thread[2];
} meeting;

static void meet_at_home(void *ctx, uint32_t task, uint32_t thread)
{
    meeting *m = ctx;
    m->thread[task] = thread;
    atomic_fetch_add(&m->n_here, 1);
    while (atomic_load(&m->n_here) < 2)
        usleep(50);
}

static void test_own_tasks_first(void)
{
    static const uint32_t end[2] = {1, 2};
    mf_thread_pool *pool = create_at_home(2, make_nodes(2, false));
    for (int i = 0; i < 50; i++) {
        meeting m = {.n_here = 0};
        mf_thread_pool_run_at_home(pool, 1, end, meet_at_home, &m);
        CHECK(m.thread[0] == 0 && m.thread[1] == 1); /* the caller's node has the id 0 */
    }
    mf_thread_pool_free(&pool);
}

/* Workers stay with their nodes, the caller is left alone; where there are CPUs for that. */
typedef struct stays {
    atomic_uint n_here;
    uint64_t cpus[4][MF_NUMA_MAX_CPUS / 64]; /* by thread */
} stays;

static void look_at_cpus(void *ctx, uint32_t task, uint32_t thread)
{
    (void)task;
    stays *s = ctx;
    (void)sched_getaffinity(0, sizeof s->cpus[thread], (cpu_set_t *)(void *)s->cpus[thread]);
    atomic_fetch_add(&s->n_here, 1);
    while (atomic_load(&s->n_here) < 4)
        usleep(50);
}

static void test_workers_stay(void)
{
    static stays s;
    const mf_numa_nodes *nodes = make_nodes(2, true);
    uint64_t before[MF_NUMA_MAX_CPUS / 64] = {0};
    uint32_t n_of[2] = {0, 0};
    if (nodes->node[1].n_cpus == 0)
        return;
    REQUIRE(sched_getaffinity(0, sizeof before, (cpu_set_t *)(void *)before) == 0);
    mf_thread_pool *pool = create_at_home(4, nodes);
    mf_thread_pool_run(pool, 4, look_at_cpus, &s);
    CHECK_BYTES(s.cpus[0], before, sizeof before);
    for (uint32_t thread = 1; thread < 4; thread++)
        for (uint32_t i = 0; i < 2; i++)
            n_of[i] += memcmp(s.cpus[thread], nodes->node[i].cpus, sizeof nodes->node[i].cpus) == 0;
    CHECK(n_of[0] + n_of[1] == 3 && n_of[0] > 0 && n_of[1] > 0);
    mf_thread_pool_free(&pool);
}

/* A task that waits for another one ends only if two threads really take part; the test hangs if
 * they do not. */
static void meet(void *ctx, uint32_t task, uint32_t thread)
{
    (void)task;
    (void)thread;
    atomic_uint *n_here = ctx;
    atomic_fetch_add(n_here, 1);
    while (atomic_load(n_here) < 2)
        usleep(50);
}

static void test_workers_take_part(void)
{
    mf_thread_pool *pool = create(2);
    for (int i = 0; i < 20; i++) {
        atomic_uint n_here = 0;
        usleep(i % 2 == 0 ? 1000 : 0); /* from sleep and from spin */
        mf_thread_pool_run(pool, 2, meet, &n_here);
        CHECK_U64(n_here, 2);
    }
    mf_thread_pool_free(&pool);
}

/* Signals are handled by the program's own threads: every worker has all of them blocked. */
typedef struct mask_check {
    atomic_uint n_here, n_workers, n_open;
} mask_check;

static void look_at_mask(void *ctx, uint32_t task, uint32_t thread)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM, SIGWINCH};
    mask_check *m = ctx;
    sigset_t mask;
    meet(&m->n_here, task, thread);
    if (thread == 0)
        return;
    atomic_fetch_add(&m->n_workers, 1);
    if (pthread_sigmask(SIG_SETMASK, NULL, &mask) != 0)
        atomic_fetch_add(&m->n_open, 1);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigismember(&mask, signals[i]) != 1)
            atomic_fetch_add(&m->n_open, 1);
}

static void test_signals_are_blocked(void)
{
    mask_check m = {0};
    sigset_t before, after;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    REQUIRE(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    mf_thread_pool *pool = create(2);
    mf_thread_pool_run(pool, 2, look_at_mask, &m);
    mf_thread_pool_free(&pool);
    CHECK(m.n_workers == 1 && m.n_open == 0);
    REQUIRE(pthread_sigmask(SIG_SETMASK, NULL, &after) == 0);
    for (int i = 1; i < 32; i++) /* the caller's are as they were */
        CHECK(sigismember(&before, i) == sigismember(&after, i));
}

/* The caller sleeps while a worker still computes, and is woken by it. */
static void slow_unless_caller(void *ctx, uint32_t task, uint32_t thread)
{
    (void)task;
    atomic_uint *n_done = ctx;
    if (thread != 0)
        usleep(3000);
    else
        usleep(200);
    atomic_fetch_add(n_done, 1);
}

static void test_long_tasks(void)
{
    mf_thread_pool *pool = create(3);
    for (int i = 0; i < 10; i++) {
        atomic_uint n_done = 0;
        mf_thread_pool_run(pool, 3, slow_unless_caller, &n_done);
        CHECK_U64(n_done, 3);
    }
    mf_thread_pool_free(&pool);
}

/* How often the other threads of this process have gone to sleep so far; UINT64_MAX if one is not
 * asleep now. */
static uint64_t count_sleeps(void)
{
    char path[300], line[256];
    uint64_t n_sleeps = 0, n;
    bool all_asleep = true;
    DIR *d = opendir("/proc/self/task");
    REQUIRE(d != NULL);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.' || atol(e->d_name) == (long)getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *file = fopen(path, "r");
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
            if (strncmp(line, "State:\t", 7) == 0 && line[7] != 'S')
                all_asleep = false;
            if (sscanf(line, "voluntary_ctxt_switches: %" SCNu64, &n) == 1)
                n_sleeps += n;
        }
        if (file != NULL)
            fclose(file);
    }
    closedir(d);
    return all_asleep ? n_sleeps : UINT64_MAX;
}

/* Workers without work go to sleep and stay so; the test hangs if they spin, or wake all the time.
 */
static void test_idle_pool_sleeps(void)
{
    if (access("/proc/self/task", R_OK) != 0)
        return;
    mf_thread_pool *pool = create(4);
    uint64_t values[4] = {0}, before, after;
    mf_thread_pool_run(pool, 4, add_one, values);
    do {
        before = count_sleeps();
        usleep(20000);
        after = count_sleeps();
    } while (before == UINT64_MAX || after != before);
    CHECK(after > 0);
    mf_thread_pool_free(&pool);
}

static void test_failures(void)
{
    failing f = {.fail_at = 1};
    mf_allocator a = failing_allocator(&f);
    mf_thread_pool *pool = NULL;
    mf_error error;
    CHECK_STATUS(mf_thread_pool_create(&a, 2, &pool, &error), MF_ERR_NO_MEMORY);
    CHECK_CONTAINS(error.message, "thread pool");
    CHECK(pool == NULL && f.n_calls == 1);
    CHECK_STATUS(mf_thread_pool_create(&a, 0, &pool, &error), MF_ERR_ARGUMENT);
    CHECK_STATUS(mf_thread_pool_create(&a, 1000000, &pool, &error), MF_ERR_ARGUMENT);
    CHECK(pool == NULL && f.n_calls == 1);
}

/* Valgrind needs the address space as sanitizers do. */
static bool is_under_valgrind(void)
{
    const char *preloaded = getenv("LD_PRELOAD");
    return preloaded != NULL && strstr(preloaded, "vgpreload") != NULL;
}

/* Where the system refuses a thread, those already started are joined and all is given back. */
static void test_refused_thread(void)
{
    struct rlimit before, tight, set;
    getrlimit(RLIMIT_AS, &before);
    tight = before;
    tight.rlim_cur = (rlim_t)1 << 30; /* room for the program and a few 8 MiB stacks */
    /* Sanitizers map terabytes of address space, so a limit on it cannot be set. */
    if (TEST_IS_SANITIZED || is_under_valgrind() || setrlimit(RLIMIT_AS, &tight) != 0)
        return;
    getrlimit(RLIMIT_AS, &set);
    if (set.rlim_cur != tight.rlim_cur) /* qemu-user keeps its own */
        return;
    mf_allocator a = mf_allocator_default();
    mf_thread_pool *pool = NULL;
    mf_error error;
    mf_status status = mf_thread_pool_create(&a, 1024, &pool, &error);
    setrlimit(RLIMIT_AS, &before);
    CHECK_STATUS(status, MF_ERR_NO_MEMORY);
    if (status != MF_OK)
        CHECK(pool == NULL && error.os_errno != 0);
    mf_thread_pool_free(&pool);
}

static void test_create_and_free(void)
{
    for (uint32_t i = 0; i < 200; i++) {
        mf_thread_pool *pool = create(1 + i % 5);
        if (i % 2 == 0) {
            uint64_t values[3] = {0};
            mf_thread_pool_run(pool, 3, add_one, values);
            CHECK(values[0] + values[1] + values[2] == 3);
        }
        mf_thread_pool_free(&pool);
    }
}

int main(void)
{
    for (uint32_t n = 1; n <= 5; n++)
        test_each_task_once(n);
    test_plain_memory();
    test_tasks_wait_for_earlier_ones(1);
    test_tasks_wait_for_earlier_ones(4);
    test_homes_run_all(1, 2);
    test_homes_run_all(2, 2);
    test_homes_run_all(5, 2);
    test_homes_run_all(5, 4);
    test_phases(2, 2);
    test_phases(5, 2);
    test_phases(5, 4);
    test_own_tasks_first();
    test_workers_stay();
    test_workers_take_part();
    test_signals_are_blocked();
    test_long_tasks();
    test_idle_pool_sleeps();
    test_failures();
    test_refused_thread();
    test_create_and_free();
    return test_result();
}
