/* SPDX-License-Identifier: MIT */
/*
 * Every golden case against Hugging Face transformers: logits at every position and the residual
 * stream after every layer, on every CPU tier of this machine, in chunks of 1, 7, 64 or all.
 */
#include "golden.h"

#include "base/cpu.h"
#include "session/session.h"

#define MAX_RELATIVE 1e-4
#define MIN_COSINE 0.99999

typedef struct run_name {
    const golden_case *c;
    uint32_t tier, chunk;
} run_name;

typedef struct hidden_target {
    const golden *g;
    float *hidden; /* as golden.hidden */
    unsigned char *seen;
} hidden_target;

static void keep_hidden(void *user, uint32_t layer, uint64_t first_position, uint32_t n_tokens,
                        const float *hidden)
{
    hidden_target *target = user;
    const golden *g = target->g;
    for (uint32_t i = 0; i < g->n_positions; i++) {
        uint64_t position = g->positions[i];
        if (layer >= g->n_layers || position < first_position ||
            position >= first_position + n_tokens)
            continue;
        size_t row = (size_t)layer * g->n_positions + i;
        memcpy(target->hidden + row * g->hidden_size,
               hidden + (size_t)(position - first_position) * g->hidden_size,
               g->hidden_size * sizeof(float));
        target->seen[row]++;
    }
}

static double largest_relative; /* of the whole program, for the last line */

/* The relative difference and the cosine of n values, in float64. */
static void compare(const run_name *run, const char *what, uint32_t where, const float *got,
                    const float *want, size_t n)
{
    double max_diff = 0, max_want = 0, dot = 0, got2 = 0, want2 = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        finite = finite && isfinite(got[i]);
        max_diff = fmax(max_diff, fabs((double)got[i] - want[i]));
        max_want = fmax(max_want, fabs((double)want[i]));
        dot += (double)got[i] * want[i];
        got2 += (double)got[i] * got[i];
        want2 += (double)want[i] * want[i];
    }
    double relative = max_diff / max_want, cosine = dot / sqrt(got2 * want2);
    largest_relative = fmax(largest_relative, relative);
    CHECK_MSG(finite && relative <= MAX_RELATIVE,
              "%s/%s, tier %s, chunk %u, %s %u: max|diff|/max|golden| is %g%s", run->c->name,
              run->c->golden, mf_cpu_tier_name(run->tier), run->chunk, what, where, relative,
              finite ? "" : " (not finite)");
    CHECK_MSG(cosine >= MIN_COSINE, "%s/%s, tier %s, chunk %u, %s %u: cosine is %.8f", run->c->name,
              run->c->golden, mf_cpu_tier_name(run->tier), run->chunk, what, where, cosine);
}

static uint32_t argmax(const float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

static void compare_all(const run_name *run, const golden *g, const hidden_target *got,
                        const float *logits)
{
    size_t layer_values = (size_t)g->n_positions * g->hidden_size;
    for (uint32_t layer = 0; layer < g->n_layers; layer++) {
        for (uint32_t i = 0; i < g->n_positions; i++)
            CHECK_MSG(got->seen[layer * g->n_positions + i] == 1,
                      "%s, layer %u, position %u was traced %u times", run->c->name, layer,
                      g->positions[i], got->seen[layer * g->n_positions + i]);
        compare(run, "layer", layer, got->hidden + layer * layer_values,
                g->hidden + layer * layer_values, layer_values);
    }
    for (uint32_t i = 0; i < g->n_logits; i++) {
        uint32_t t = golden_position(g, i);
        const float *mine = logits + (size_t)t * g->n_vocab,
                    *theirs = g->logits + (size_t)i * g->n_vocab;
        compare(run, "logits of position", t, mine, theirs, g->n_vocab);
        CHECK_MSG(argmax(mine, g->n_vocab) == argmax(theirs, g->n_vocab),
                  "%s/%s, tier %s, chunk %u, position %u: argmax is %u, golden %u", run->c->name,
                  run->c->golden, mf_cpu_tier_name(run->tier), run->chunk, t,
                  argmax(mine, g->n_vocab), argmax(theirs, g->n_vocab));
    }
}

static void test_run(const run_name *run, const golden *g)
{
    mf_engine_options options = golden_options(run->c);
    options.n_chunk_tokens = run->chunk;
    options.cpu_tier = mf_cpu_tier_name(run->tier);
    mf_engine *engine = golden_open(run->c, &options);
    if (!GOLDEN_ON_DEVICE)
        CHECK_STR(mf_engine_cpu_name(engine), mf_cpu_tier_name(run->tier));
    mf_model_info info;
    mf_engine_info(engine, &info);
    CHECK_U64(info.n_vocab, g->n_vocab);
    CHECK_U64(info.n_layers, g->n_layers);
    CHECK_U64(info.hidden_size, g->hidden_size);

    mf_error error = {0};
    mf_session *session = NULL;
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    size_t n_rows = (size_t)g->n_layers * g->n_positions;
    hidden_target target = {g, calloc(n_rows * g->hidden_size, sizeof(float)), calloc(n_rows, 1)};
    float *logits = calloc((size_t)g->n_tokens * g->n_vocab, sizeof(float));
    REQUIRE_OK(mf_session_set_trace(session, keep_hidden, &target, &error), &error);
    REQUIRE_OK(golden_eval(session, g->tokens, g->n_tokens, g->n_vocab, logits, &error), &error);
    CHECK_U64(mf_session_position(session), g->n_tokens);
    compare_all(run, g, &target, logits);
    free(target.hidden);
    free(target.seen);
    free(logits);
    mf_session_free(&session);
    mf_engine_close(&engine);
}

/* A tier that this CPU has, but that only another kind of CPU would choose, and whose kernels are
 * those of its neighbours but for a few products. */
static bool is_between(uint32_t tier)
{
    return tier != (uint32_t)mf_cpu_best() &&
           (tier == MF_CPU_AVX_VNNI || tier == MF_CPU_AVX512_BW || tier == MF_CPU_AVX512_VNNI);
}

/* Every tier with one chunk, another for each tier and for the next case: that the others give the
 * same bits is test_same_bits' to say. With MF_TEST_LONG every chunk; of a long case two, in each
 * of which many tokens see many. On a device one, which is slow in software, and of some tiers. */
static void test_case(const golden_case *c)
{
    static const uint32_t chunks[] = {1, 7, 64, 512};
    const bool is_long = getenv("MF_TEST_LONG") != NULL;
    golden g;
    golden_read(c, &g);
    for (uint32_t tier = MF_CPU_SCALAR; tier < MF_CPU_END; tier++) {
        const bool is_one = GOLDEN_ON_DEVICE || is_between(tier);
        const size_t begin = g.has_few || is_one ? 2 : 0, end = is_one ? 3 : 4;
        for (size_t j = begin; golden_has_tier(tier) && j < end; j++)
            if (is_long || j == begin + ((size_t)(c - golden_cases) + tier) % (end - begin))
                test_run(&(run_name){c, tier, chunks[j]}, &g);
    }
    golden_free(&g);
}

/* With arguments: only the cases of these names; or, as -NAME, all but those. */
int main(int argc, char **argv)
{
    for (size_t i = 0; i < n_golden_cases; i++) {
        const golden_case *c = &golden_cases[i];
        if (!golden_is_asked_for(c, argc, argv))
            continue;
        test_case(c);
    }
    fprintf(stderr, "largest max|diff|/max|golden|: %g\n", largest_relative);
    return test_result();
}
