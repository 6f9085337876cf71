/* SPDX-License-Identifier: MIT */
/* Candidates, what became of them, and whether it was worth it. */
#include "experts/foresight.h"

#include "base/clock.h"
#include "experts/foresight_trial.h"
#include "experts/predictors.h"

#include <string.h>

/* Named of a layer at once, and remembered of a pass. */
#define CANDIDATES 128u
/* A candidate that is right less often than this is not worth a read. */
#define WORTHWHILE 0.4f
/* What a rank is taken to be worth before it was judged, and how much a judgement weighs then. */
#define CHANCE_AT_FIRST 0.5f
#define WEIGHT 0.0625f
/* An expert of a sweep is named where it is wanted with at least this chance. */
#define SWEEP_CHANCE 0.5
/* And read as if it were demanded, at the drive's full depth, with this one. */
#define SWEEP_SURE 0.95
/* A predictor that nobody follows is asked in one pass of so many. */
#define PASSES_BETWEEN 64u
/* With the shared expert in the state, or without: the one that names fewer rightly is asked in one
 * pass of so many. */
#define PASSES_FOLDED 16u
/* Another depth is tried in one run of passes of so many. */
#define RUNS_OF_DEPTH 8u
#define N_FAR (MF_FORESIGHT_DEPTH - 1)
/* What reads gained is looked at each time that so many passes are done; sweeps pause in so many at
 * first, at most. */
#define PASSES_JUDGED 32u
#define PASSES_PAUSED 32u
#define PASSES_PAUSED_MOST 4096u
/* Fewer missed in a pass, in the middle of the last ones: asking routers costs more than what is to
 * be gained. One pass counts for so many at most, and weighs so much. */
#define MISSES_WORTHWHILE 1.0f
#define MISSES_MOST 4u
#define WEIGHT_OF_MISSES 0.125f

typedef struct named {
    uint32_t n;
    mf_candidate candidates[CANDIDATES];
} named;

typedef struct record {
    float chance[MF_FORESIGHT_RANKS]; /* that a candidate of the rank is chosen */
    uint64_t n_named, n_right;        /* ever, of as many as a row chooses */
} record;

struct mf_foresight {
    mf_arena arena;
    mf_expert_store *store;
    uint32_t n_layers, n_experts, k, n_rows;
    mf_predict predict;
    bool is_unbridled;
    record records[MF_N_PREDICTORS];
    record folded[MF_N_PREDICTORS]; /* of those that ask the router, with the shared expert */
    record far_records[N_FAR];      /* of what routers say two turns ahead and more */
    bool may_fold, is_folded;
    uint32_t depth_wanted, depth, n_runs; /* in the pass at hand; runs judged */
    double gains[MF_FORESIGHT_DEPTH + 1]; /* microseconds a pass, by depth; 0: not tried yet */
    named *named;      /* [n_layers][MF_N_PREDICTORS] for the layer's next turn */
    named *far;        /* [n_layers][N_FAR] */
    float *shares;     /* [n_layers][n_experts] */
    uint16_t *last;    /* [n_layers][CANDIDATES] */
    uint32_t *n_last;  /* [n_layers] */
    uint8_t *is_there; /* [n_experts] scratch */
    uint32_t *hints;   /* [n_experts] scratch */
    bool is_on;        /* in this pass */
    bool asks_router;
    bool is_noted;            /* what routers foretell, of use or not */
    mf_foresight_trial trial; /* of passes of few rows */
    uint64_t (*now_us)(void *clock);
    void *clock;
    uint64_t began_us;      /* the pass at hand, where it is timed; else 0 */
    mf_expert_stats before; /* and as they were then */
    uint64_t n_passes, paused_until, judged_at;
    uint32_t n_paused, n_foreseen; /* n_foreseen: passes with foresight since judged_at */
    mf_expert_stats judged;        /* as they were when profit was last looked at */
    uint64_t n_misses;
    float missed; /* in a pass, lately */
};

/* --------------------------------------------------------------------------------- opening -- */

static uint64_t each_bytes(uint32_t n_layers, uint32_t n_experts)
{
    return n_layers *
               ((MF_N_PREDICTORS + N_FAR) * sizeof(named) + (uint64_t)n_experts * sizeof(float) +
                CANDIDATES * sizeof(uint16_t) + sizeof(uint32_t)) +
           n_experts * (uint64_t)(1 + sizeof(uint32_t));
}

uint64_t mf_foresight_bytes(uint32_t n_layers, uint32_t n_experts)
{
    return sizeof(mf_foresight) + each_bytes(n_layers, n_experts) + 10 * 64;
}

static uint64_t machine_us(void *clock)
{
    (void)clock;
    return mf_now_us();
}

static void init(mf_foresight *f, const mf_foresight_options *o)
{
    mf_foresight_trial_init(&f->trial);
    f->now_us = o->now_us != NULL ? o->now_us : machine_us;
    f->clock = o->clock;
    f->store = o->store;
    f->n_layers = o->n_layers;
    f->n_experts = o->n_experts;
    f->k = o->k;
    f->predict = o->predict;
    f->n_paused = PASSES_PAUSED;
    f->depth_wanted = o->depth;
    f->depth = o->depth != 0 ? o->depth : 1;
    f->missed = (float)MISSES_MOST;
    for (uint32_t j = 0; j < MF_FORESIGHT_RANKS; j++) {
        for (uint32_t i = 0; i < MF_N_PREDICTORS; i++)
            f->records[i].chance[j] = f->folded[i].chance[j] = CHANCE_AT_FIRST;
        for (uint32_t i = 0; i < N_FAR; i++)
            f->far_records[i].chance[j] = CHANCE_AT_FIRST;
    }
    for (size_t i = 0; i < (size_t)o->n_layers * o->n_experts; i++)
        f->shares[i] = (float)o->k / (float)o->n_experts;
}

mf_status mf_foresight_open(const mf_foresight_options *o, mf_foresight **out, mf_error *error)
{
    const mf_allocator a = mf_allocator_or_default(&o->allocator);
    const size_t n_bytes = (size_t)mf_foresight_bytes(o->n_layers, o->n_experts);
    const size_t n = o->n_layers;
    mf_arena arena;
    MF_TRY(mf_arena_create(&a, n_bytes, "foresight", &arena, error));
    mf_foresight *f = mf_arena_take(&arena, sizeof *f);
    f->named = mf_arena_take(&arena, n * MF_N_PREDICTORS * sizeof *f->named);
    f->far = mf_arena_take(&arena, n * N_FAR * sizeof *f->far);
    f->shares = mf_arena_take(&arena, n * o->n_experts * sizeof *f->shares);
    f->last = mf_arena_take(&arena, n * CANDIDATES * sizeof *f->last);
    f->n_last = mf_arena_take(&arena, n * sizeof *f->n_last);
    f->is_there = mf_arena_take(&arena, o->n_experts);
    f->hints = mf_arena_take(&arena, o->n_experts * sizeof *f->hints);
    f->arena = arena;
    init(f, o);
    *out = f;
    return MF_OK;
}

void mf_foresight_unbridle(mf_foresight *foresight)
{
    foresight->is_unbridled = true;
}

void mf_foresight_close(mf_foresight **foresight)
{
    mf_foresight *f = *foresight;
    if (f == NULL)
        return;
    *foresight = NULL;
    mf_arena arena = f->arena;
    mf_arena_free(&arena);
}

/* ---------------------------------------------------------------------------------- choice -- */

static bool is_asked(const mf_foresight *f, uint32_t i)
{
    const mf_predictor *p = &mf_predictors[i];
    return f->predict == MF_PREDICT_AUTO ? p->is_choosable : p->kind == f->predict;
}

/* How a predictor did, asked as it is asked in this pass. */
static record *record_of(const mf_foresight *f, uint32_t i)
{
    mf_foresight *of = (mf_foresight *)f;
    return f->is_folded && mf_predictors[i].needs_router ? &of->folded[i] : &of->records[i];
}

static bool is_likely(const mf_foresight *f, const record *r, uint32_t rank)
{
    return f->is_unbridled || r->chance[rank] >= WORTHWHILE;
}

/* How many of its candidates for a row are expected to be right, of those that are likely. */
static float worth_of(const mf_foresight *f, uint32_t i)
{
    const mf_predictor *p = &mf_predictors[i];
    const record *r = record_of(f, i);
    float worth = 0;
    if (!p->needs_router && p->kind == MF_PREDICT_LAST_TOKEN)
        return is_likely(f, r, 0) ? r->chance[0] * (float)f->k : 0;
    for (uint32_t rank = 0; rank < MF_FORESIGHT_RANKS && rank < 2 * f->k; rank++)
        worth += is_likely(f, r, rank) ? r->chance[rank] : 0;
    return worth;
}

/* The predictor that is followed, of those that named something; MF_N_PREDICTORS: none. */
static uint32_t best_of(const mf_foresight *f, const named *list)
{
    uint32_t best = MF_N_PREDICTORS;
    float most = 0;
    for (uint32_t i = 0; i < MF_N_PREDICTORS; i++) {
        const float worth = is_asked(f, i) && list[i].n > 0 ? worth_of(f, i) : 0;
        if (worth > most || (f->is_unbridled && best == MF_N_PREDICTORS && list[i].n > 0)) {
            most = worth;
            best = i;
        }
    }
    return best;
}

static bool is_router_worth_it(const mf_foresight *f)
{
    for (uint32_t i = 0; i < MF_N_PREDICTORS; i++)
        if (is_asked(f, i) && mf_predictors[i].needs_router &&
            (f->is_unbridled || worth_of(f, i) > 0))
            return true;
    return false;
}

static bool needs_router(const mf_foresight *f)
{
    for (uint32_t i = 0; i < MF_N_PREDICTORS; i++)
        if (is_asked(f, i) && mf_predictors[i].needs_router)
            return true;
    return false;
}

/* The depth that gained most in a pass; another one now and then. */
static void choose_depth(mf_foresight *f, double gained)
{
    uint32_t best = 1;
    if (f->n_foreseen == 0)
        return;
    f->gains[f->depth] = gained / f->n_foreseen;
    if (f->depth_wanted != 0)
        return;
    for (uint32_t d = 2; d <= MF_FORESIGHT_DEPTH; d++)
        best = f->gains[d] > f->gains[best] ? d : best;
    f->depth = best;
    if (++f->n_runs % RUNS_OF_DEPTH == 0) /* the next one, or the one before */
        f->depth = best < MF_FORESIGHT_DEPTH && (best == 1 || f->n_runs / RUNS_OF_DEPTH % 2 == 0)
                       ? best + 1
                       : best - 1;
}

/* Fewer say nothing of one way or the other. */
#define NAMED_LEAST 1024u

static double recall_of(const record *r)
{
    return r->n_named >= NAMED_LEAST ? (double)r->n_right / (double)r->n_named : 0;
}

static void choose_state(mf_foresight *f)
{
    bool is_better = false;
    for (uint32_t i = 0; i < MF_N_PREDICTORS; i++)
        if (mf_predictors[i].kind == MF_PREDICT_NEXT_LAYER)
            is_better = recall_of(&f->folded[i]) > recall_of(&f->records[i]);
    const bool is_other = f->n_passes % PASSES_FOLDED == 0;
    f->is_folded = f->may_fold && is_better != is_other;
}

/* Of a counter that may have begun anew in between. */
static uint64_t since(uint64_t now, uint64_t before)
{
    return now >= before ? now - before : now;
}

static void count_misses(mf_foresight *f, uint64_t n_misses)
{
    const uint64_t n = since(n_misses, f->n_misses);
    f->n_misses = n_misses;
    f->missed += WEIGHT_OF_MISSES * ((float)(n < MISSES_MOST ? n : MISSES_MOST) - f->missed);
}

/* What the reads of the last passes gained: how far ahead to look, and whether sweeps pause. */
static void judge_reads(mf_foresight *f, const mf_expert_stats *now)
{
    if (f->n_passes < f->judged_at + PASSES_JUDGED)
        return;
    const uint64_t saved = since(now->hint_saved_us, f->judged.hint_saved_us);
    const uint64_t wasted = since(now->hint_wasted_us, f->judged.hint_wasted_us);
    f->judged_at = f->n_passes;
    f->judged = *now;
    choose_depth(f, (double)saved - (double)wasted);
    f->n_foreseen = 0;
    if (wasted > saved) {
        f->paused_until = f->n_passes + f->n_paused;
        f->n_paused = 2 * f->n_paused < PASSES_PAUSED_MOST ? 2 * f->n_paused : PASSES_PAUSED_MOST;
    } else if (saved > 0) {
        f->n_paused = PASSES_PAUSED;
    }
}

/* Whether anything is foreseen in this pass. */
static bool is_pass_on(mf_foresight *f, const mf_expert_stats *now)
{
    f->began_us = 0;
    if (f->is_unbridled)
        return true;
    if (f->missed < MISSES_WORTHWHILE) { /* nothing is to be gained, nor to be told apart */
        mf_foresight_trial_restart(&f->trial);
        return false;
    }
    if (f->n_rows > MF_FORESIGHT_ROWS)
        return f->n_passes >= f->paused_until;
    f->before = *now;
    f->began_us = f->now_us(f->clock);
    return f->trial.is_on;
}

/* What the pass took, if it was timed. */
static void end_timing(mf_foresight *f)
{
    mf_expert_stats now;
    if (f->began_us == 0)
        return;
    const double us = (double)(f->now_us(f->clock) - f->began_us);
    mf_expert_store_stats(f->store, &now);
    const mf_expert_stats *b = &f->before;
    const uint64_t n_needed =
        since(now.n_misses, b->n_misses) + since(now.n_hints_useful, b->n_hints_useful);
    const mf_trial_pass pass = {us / f->n_rows, (double)n_needed / f->n_rows};
    mf_foresight_trial_add(&f->trial, pass, since(now.n_hints, b->n_hints) > 0);
    f->began_us = 0;
}

void mf_foresight_begin(mf_foresight *f, uint32_t n_rows)
{
    mf_expert_stats now;
    mf_expert_store_stats(f->store, &now);
    f->n_rows = n_rows;
    f->n_passes++;
    count_misses(f, now.n_misses + now.n_hints_useful);
    judge_reads(f, &now);
    choose_state(f);
    f->is_on = is_pass_on(f, &now);
    f->n_foreseen += f->is_on;
    const bool is_asked_now =
        f->is_on && (is_router_worth_it(f) || f->n_passes % PASSES_BETWEEN == 0);
    f->asks_router =
        n_rows <= MF_FORESIGHT_ROWS && needs_router(f) && (f->is_noted || is_asked_now);
    for (size_t i = 0; i < (size_t)f->n_layers * MF_N_PREDICTORS && n_rows > MF_FORESIGHT_ROWS; i++)
        f->named[i].n = 0;
    for (size_t i = 0; i < (size_t)f->n_layers * N_FAR && n_rows > MF_FORESIGHT_ROWS; i++)
        f->far[i].n = 0;
}

void mf_foresight_note(mf_foresight *f, bool is_noted)
{
    f->is_noted = is_noted;
}

bool mf_foresight_asks(const mf_foresight *f)
{
    return f->asks_router;
}

bool mf_foresight_wants_router(const mf_foresight *f, uint32_t layer)
{
    return f->asks_router && layer < f->n_layers;
}

uint32_t mf_foresight_depth(const mf_foresight *f)
{
    return f->is_noted ? 1 : f->depth;
}

double mf_foresight_recall(const mf_foresight *f, uint32_t distance, bool is_folded)
{
    if (distance > 1)
        return distance <= MF_FORESIGHT_DEPTH ? recall_of(&f->far_records[distance - 2]) : 0;
    for (uint32_t i = 0; i < MF_N_PREDICTORS; i++)
        if (mf_predictors[i].kind == MF_PREDICT_NEXT_LAYER)
            return recall_of(is_folded ? &f->folded[i] : &f->records[i]);
    return 0;
}

void mf_foresight_may_fold(mf_foresight *f)
{
    f->may_fold = true;
}

bool mf_foresight_folds_shared(const mf_foresight *f)
{
    return f->is_folded && f->asks_router;
}

/* ----------------------------------------------------------------------------------- hints -- */

/* The chance that none of the pass's rows wants an expert that each wants with this one; no nearer
 * than what is below all that is asked of it. */
static double chance_of_none(const mf_foresight *f, double share)
{
    double none = 1;
    for (uint32_t row = 0; row < f->n_rows && none > 1 - SWEEP_SURE; row++)
        none *= 1 - share;
    return none;
}

/* A pass of many rows: those that any of them is expected to want, in order, the surest part of
 * them at the front. Returns how many; *n_sure: of them, those. */
static uint32_t list_sweep(mf_foresight *f, uint32_t layer, uint32_t *n_sure)
{
    const float *shares = f->shares + (size_t)layer * f->n_experts;
    uint32_t n = 0;
    for (uint32_t e = 0; e < f->n_experts; e++) {
        const double none = chance_of_none(f, (double)shares[e]);
        f->is_there[e] = none > 1 - SWEEP_SURE && none <= 1 - SWEEP_CHANCE; /* goes behind */
        if (none <= 1 - SWEEP_SURE)
            f->hints[n++] = e;
    }
    *n_sure = n;
    for (uint32_t e = 0; e < f->n_experts; e++)
        if (f->is_there[e])
            f->hints[n++] = e;
    return n;
}

static bool does_sweep(const mf_foresight *f)
{
    return f->predict == MF_PREDICT_AUTO || f->predict == MF_PREDICT_NEXT_LAYER ||
           f->predict == MF_PREDICT_FREQUENCY;
}

/* The likely candidates, each once, in their order. */
static uint32_t list_candidates(mf_foresight *f, const named *list, const record *r)
{
    uint32_t n = 0;
    memset(f->is_there, 0, f->n_experts);
    for (uint32_t i = 0; i < list->n; i++) {
        const mf_candidate *c = &list->candidates[i];
        if (f->is_there[c->expert] || !is_likely(f, r, c->rank))
            continue;
        f->is_there[c->expert] = 1;
        f->hints[n++] = c->expert;
    }
    return n;
}

static uint32_t name_candidates(mf_foresight *f, uint32_t layer, const int32_t *foretold,
                                uint32_t n_foretold)
{
    named *list = f->named + (size_t)layer * MF_N_PREDICTORS;
    const mf_layer_known known = {.n_experts = f->n_experts,
                                  .k = f->k,
                                  .n_rows = f->n_rows,
                                  .shares = f->shares + (size_t)layer * f->n_experts,
                                  .last = f->last + (size_t)layer * CANDIDATES,
                                  .n_last = f->n_last[layer],
                                  .foretold = foretold,
                                  .n_foretold = foretold != NULL ? n_foretold : 0};
    for (uint32_t i = 0; i < MF_N_PREDICTORS; i++)
        list[i].n =
            is_asked(f, i) ? mf_predictors[i].predict(&known, list[i].candidates, CANDIDATES) : 0;
    const uint32_t best = best_of(f, list);
    return best < MF_N_PREDICTORS ? list_candidates(f, &list[best], record_of(f, best)) : 0;
}

void mf_foresight_hint(mf_foresight *f, uint32_t layer, const int32_t *foretold, uint32_t n)
{
    uint32_t n_hints = 0, n_sure = 0;
    if (!f->is_on || layer >= f->n_layers)
        return;
    if (f->n_rows <= MF_FORESIGHT_ROWS)
        n_hints = name_candidates(f, layer, foretold, n);
    else if (does_sweep(f))
        n_hints = list_sweep(f, layer, &n_sure);
    if (f->depth > 1)
        mf_expert_store_cancel_hints_of(f->store, layer); /* what was said from farther away */
    if (n_sure > 0)
        mf_expert_store_expect(f->store, layer, f->hints, n_sure);
    if (n_hints > n_sure)
        mf_expert_store_hint(f->store, layer, f->hints + n_sure, n_hints - n_sure);
}

void mf_foresight_hint_far(mf_foresight *f, uint32_t layer, uint32_t distance,
                           const int32_t *foretold, uint32_t n)
{
    if (!f->is_on || layer >= f->n_layers || distance < 2 || distance > MF_FORESIGHT_DEPTH ||
        f->n_rows > MF_FORESIGHT_ROWS || foretold == NULL)
        return;
    named *list = &f->far[(size_t)layer * N_FAR + distance - 2];
    const mf_layer_known known = {.n_experts = f->n_experts,
                                  .k = f->k,
                                  .n_rows = f->n_rows,
                                  .foretold = foretold,
                                  .n_foretold = n};
    for (uint32_t i = 0; i < MF_N_PREDICTORS; i++)
        if (is_asked(f, i) && mf_predictors[i].needs_router)
            list->n = mf_predictors[i].predict(&known, list->candidates, CANDIDATES);
    const uint32_t n_hints = list_candidates(f, list, &f->far_records[distance - 2]);
    mf_expert_store_cancel_hints_of(f->store, layer); /* what was said from farther away */
    if (n_hints > 0)
        mf_expert_store_hint(f->store, layer, f->hints, n_hints);
}

/* --------------------------------------------------------------------------------- judging -- */

static void judge(const mf_foresight *f, record *r, named *list)
{
    float *chance = r->chance;
    for (uint32_t i = 0; i < list->n; i++) {
        const mf_candidate *c = &list->candidates[i];
        const float was_right = f->is_there[c->expert] ? 1.0f : 0.0f;
        chance[c->rank] += WEIGHT * (was_right - chance[c->rank]);
        r->n_named += c->rank < f->k;
        r->n_right += c->rank < f->k && f->is_there[c->expert];
    }
    list->n = 0;
}

/* An average over about 64 tokens; of a large chunk, over it and those before. */
static void take_shares(mf_foresight *f, float *shares, const int32_t *ids)
{
    const float weight = f->n_rows < 32 ? (float)f->n_rows / 64.0f : 0.5f;
    const float each = weight / (float)f->n_rows;
    for (uint32_t e = 0; e < f->n_experts; e++)
        shares[e] -= weight * shares[e];
    for (uint32_t i = 0; i < f->n_rows * f->k; i++)
        shares[ids[i]] += each;
}

void mf_foresight_chosen(mf_foresight *f, uint32_t layer, const int32_t *ids)
{
    named *list = f->named + (size_t)layer * MF_N_PREDICTORS;
    uint16_t *last = f->last + (size_t)layer * CANDIDATES;
    uint32_t n_last = 0;
    memset(f->is_there, 0, f->n_experts);
    for (uint32_t i = 0; i < f->n_rows * f->k; i++) {
        if (!f->is_there[ids[i]] && n_last < CANDIDATES)
            last[n_last++] = (uint16_t)ids[i];
        f->is_there[ids[i]] = 1;
    }
    f->n_last[layer] = n_last;
    for (uint32_t i = 0; i < MF_N_PREDICTORS; i++)
        judge(f, record_of(f, i), &list[i]);
    for (uint32_t i = 0; i < N_FAR; i++)
        judge(f, &f->far_records[i], &f->far[(size_t)layer * N_FAR + i]);
    take_shares(f, f->shares + (size_t)layer * f->n_experts, ids);
}

void mf_foresight_end(mf_foresight *f, bool is_whole)
{
    if (is_whole)
        end_timing(f);
    else
        mf_expert_store_cancel_hints(f->store);
}

#include <moeflux/routing.h>

const char *mf_predict_name(mf_predict predict)
{
    static const char *const names[] = {"auto",       "off",       "next-layer",
                                        "last-token", "frequency", "wrong"};
    const size_t n = sizeof names / sizeof *names;
    return (size_t)predict < n ? names[predict] : NULL;
}
