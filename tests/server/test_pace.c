/* SPDX-License-Identifier: MIT */
/*
 * Pieces of prompts against steps that are made up: what a token adds may fall the more there are,
 * and steps vary as on a busy machine. Running answers wait at most three times the usual (p99),
 * prompts get most of the room there is; a bound in milliseconds is kept to likewise.
 */
#include "pace.h"
#include "test.h"

#include <math.h>

enum { N_STEPS = 4000, N_USUAL = 200 };

static uint64_t random_state = 88172645463325252u;

static double uniform(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) * 0x1p-53;
}

typedef struct machine {
    const char *name;
    double answer_us, token_us, exponent; /* tokens add token_us * n^exponent */
    double jitter;                        /* a step takes up to so much more, evenly */
    double late, late_by;                 /* a share of steps takes so many times more */
} machine;

static double step(const machine *m, size_t n)
{
    double us = m->answer_us + (n > 0 ? m->token_us * pow((double)n, m->exponent) : 0);
    us *= 1 + m->jitter * uniform();
    return uniform() < m->late ? us * m->late_by : us;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double p99(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare);
    return values[n * 99 / 100];
}

/* The most tokens of a step that is `bound` long without any jitter. */
static double ideal(const machine *m, double bound)
{
    return pow(fmax(bound - m->answer_us, 0) / m->token_us, 1 / m->exponent);
}

static void check(const machine *m, size_t most, double stall_us)
{
    static double usual[N_USUAL], mixed[N_STEPS];
    mf_srv_pace p;
    double n_tokens = 0;
    size_t n = 0;
    mf_srv_pace_begin(&p, most, stall_us);
    for (size_t i = 0; i < N_USUAL; i++)
        mf_srv_pace_answers(&p, usual[i] = step(m, 0));
    for (size_t i = 0; i < N_STEPS; i++) {
        const size_t piece = p.piece;
        CHECK(piece >= 1 && piece <= most);
        const double us = step(m, piece);
        mf_srv_pace_mixed(&p, piece, us);
        if (i >= 30) { /* it has to learn what a token takes */
            mixed[n++] = us;
            n_tokens += (double)piece;
        }
    }
    const double slack = m->late > 0.01 ? 1.25 * m->late_by : 1.25;
    const double bound = fmax(3 * p99(usual, N_USUAL), slack * stall_us), got = p99(mixed, n);
    const double room = ideal(m, fmax(2.6 * m->answer_us, stall_us));
    const double least = 0.45 * fmin(room, (double)most);
    CHECK_MSG(got <= bound || room < 1, "%s: %.0f us, %.0f at most", m->name, got, bound);
    CHECK_MSG(n_tokens / (double)n >= least, "%s: %.2f tokens a step, %.2f at least", m->name,
              n_tokens / (double)n, least);
}

int main(void)
{
    static const machine machines[] = {
        {"steady", 10000, 1000, 1, 0.02, 0, 1},
        {"experts that repeat", 20000, 6000, 0.7, 0.1, 0, 1},
        {"jitter", 10000, 800, 0.9, 0.6, 0, 1},
        {"late ones", 10000, 500, 1, 0.1, 0.02, 2.5},
        {"very fast tokens", 30000, 20, 1, 0.1, 0, 1},
        {"dear tokens", 10000, 30000, 1, 0.1, 0, 1},
    };
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        check(&machines[i], 512, 0);
        check(&machines[i], 512, 250e3);
        check(&machines[i], 4, 0);
    }
    return test_result();
}
