/* SPDX-License-Identifier: MIT */
/*
 * A cache's size by made-up samples: it shrinks within a second when memory goes, grows when it is
 * there again, never past what is free, does not swing, and two on one machine come to share it.
 */
#include "base/cgroup.h"
#include "base/memory_governor.h"
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define PERIOD_US 200000u

/* A machine of which others take some; what caches hold is not available. */
typedef struct machine {
    uint64_t n_bytes, others, now_us, stalled_us;
    uint64_t held[4];
    mf_memory_governor governors[4];
    uint32_t n;
    uint64_t random;
} machine;

static mf_memory_sample sample_of(const machine *m)
{
    uint64_t used = m->others;
    for (uint32_t i = 0; i < m->n; i++)
        used += m->held[i];
    return (mf_memory_sample){.now_us = m->now_us,
                              .available_bytes = used < m->n_bytes ? m->n_bytes - used : 1,
                              .total_bytes = m->n_bytes,
                              .stalled_us = m->stalled_us};
}

static void start(machine *m, uint64_t held)
{
    const mf_memory_sample s = sample_of(m);
    mf_memory_governor_init(&m->governors[m->n], &s);
    m->held[m->n++] = held;
}

static void run(machine *m, uint32_t n_periods)
{
    for (uint32_t t = 0; t < n_periods; t++) {
        const uint32_t first = (uint32_t)(test_random(&m->random) % 7); /* who looks first */
        m->now_us += PERIOD_US;
        for (uint32_t j = 0; j < m->n; j++) {
            const uint32_t i = (j + first) % m->n;
            const mf_memory_sample s = sample_of(m);
            const mf_memory_holding h = {m->held[i], 100 * MIB, 24 * GIB, 2 * MIB};
            m->held[i] = mf_memory_govern(&m->governors[i], &s, &h);
            CHECK(m->held[i] >= h.least_bytes && m->held[i] <= h.most_bytes);
        }
    }
}

static void test_shrinks_and_grows(void)
{
    machine m = {
        .n_bytes = 32 * GIB, .others = 2 * GIB, .now_us = 5000000, .random = 88172645463325252u};
    start(&m, 20 * GIB);
    const uint64_t room = m.governors[0].room_bytes;
    CHECK_U64(room, 2 * GIB);
    run(&m, 200);
    const uint64_t calm = m.held[0];
    CHECK(sample_of(&m).available_bytes >= room && calm >= 20 * GIB);
    run(&m, 20);
    CHECK_U64(m.held[0], calm); /* it does not swing */
    m.others = 20 * GIB;        /* more than there is */
    run(&m, 5);
    CHECK_MSG(sample_of(&m).available_bytes >= room / 4 * 3, "%llu MiB are left after a second",
              (unsigned long long)(sample_of(&m).available_bytes / MIB));
    CHECK(m.held[0] < 10 * GIB);
    m.others = 40 * GIB;
    run(&m, 8);
    CHECK_U64(m.held[0], 100 * MIB);
    m.others = 2 * GIB;
    run(&m, 4);
    CHECK_U64(m.held[0], 100 * MIB); /* not before a second of calm */
    run(&m, 300);
    CHECK(m.held[0] >= calm - GIB && sample_of(&m).available_bytes >= room);
}

static void test_small_swings(void)
{
    machine m = {
        .n_bytes = 32 * GIB, .others = 2 * GIB, .now_us = 5000000, .random = 88172645463325252u};
    start(&m, 20 * GIB);
    run(&m, 300);
    const uint64_t calm = m.held[0];
    for (uint32_t i = 0; i < 100; i++) {
        m.others = 2 * GIB + i % 2 * 500 * MIB;
        run(&m, 1);
        CHECK_U64(m.held[0], calm);
    }
}

static void test_stalls(void)
{
    machine m = {.n_bytes = 32 * GIB,
                 .others = 2 * GIB,
                 .now_us = 5000000,
                 .random = 88172645463325252u,
                 .stalled_us = 77};
    start(&m, 10 * GIB);
    run(&m, 1);
    const uint64_t before = m.held[0];
    m.stalled_us += 1000;
    run(&m, 1);
    CHECK_U64(m.held[0], before);
    for (uint32_t i = 0; i < 5; i++) {
        m.stalled_us += PERIOD_US / 2;
        run(&m, 1);
    }
    CHECK(m.held[0] < before - before / 5);
}

/* One was there first and has all; the other comes. */
static void test_shares(void)
{
    machine m = {
        .n_bytes = 24 * GIB, .others = 2 * GIB, .now_us = 5000000, .random = 88172645463325252u};
    start(&m, 20 * GIB);
    run(&m, 100);
    start(&m, 200 * MIB);
    for (uint32_t i = 0; i < 400; i++) {
        m.others = 2 * GIB + i % 40 / 20 * 2 * GIB; /* somebody else comes and goes */
        run(&m, 11);
    }
    const uint64_t less = m.held[0] < m.held[1] ? m.held[0] : m.held[1];
    const uint64_t more = m.held[0] + m.held[1] - less;
    CHECK_MSG(less * 2 >= more, "%llu and %llu MiB", (unsigned long long)(m.held[0] / MIB),
              (unsigned long long)(m.held[1] / MIB));
}

static void test_unknown(void)
{
    mf_memory_governor g;
    mf_memory_sample s = {.now_us = 1000000};
    const mf_memory_holding h = {10 * GIB, MIB, 24 * GIB, MIB};
    mf_memory_governor_init(&g, &s);
    for (uint32_t i = 0; i < 20; i++) {
        s.now_us += PERIOD_US;
        CHECK_U64(mf_memory_govern(&g, &s, &h), 10 * GIB);
    }
    mf_memory_take_sample(&s);
    CHECK(s.now_us > 0 && s.available_bytes > 0);
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void test_pressure(void)
{
    char dir[] = "/tmp/mf-pressure-XXXXXX", self[64], group[64], path[80];
    REQUIRE(mkdtemp(dir) != NULL);
    snprintf(self, sizeof self, "%s/self", dir);
    snprintf(group, sizeof group, "%s/a", dir);
    snprintf(path, sizeof path, "%s/memory.pressure", group);
    REQUIRE(mkdir(group, 0700) == 0);
    put(self, "0::/a\n");
    put(path, "some avg10=1.00 avg60=0.00 avg300=0.00 total=4711\nfull avg10=0 total=3\n");
    CHECK_U64(mf_cgroup_memory_stalled_us(self, dir), 4711);
    put(path, "nonsense\n");
    const uint64_t stalled_us = mf_cgroup_memory_stalled_us(self, dir);
    CHECK(stalled_us != 4711); /* the machine's, or none */
    CHECK(unlink(path) == 0 && unlink(self) == 0 && rmdir(group) == 0 && rmdir(dir) == 0);
}

int main(void)
{
    test_shrinks_and_grows();
    test_small_swings();
    test_stalls();
    test_shares();
    test_unknown();
    test_pressure();
    return test_result();
}
