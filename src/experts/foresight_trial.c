/* SPDX-License-Identifier: MIT */
/* Windows of passes in turn, and what they say. */
#include "experts/foresight_trial.h"

#define WINDOWS_LEAST 5u
/* A trial ends with its least windows where all of them say the same by so much. */
#define CLEARLY_LESS 0.9
#define CLEARLY_MORE (1 / CLEARLY_LESS)
/* No pass is expected to take less than this part of their mean. */
#define LEAST_PART 0.1
/* Passes between trials: more after each that says the same as the last, the more if it did so
 * clearly. */
#define REST_LEAST 64u
#define REST_MOST 768u
#define REST_GROWTH 2u
#define REST_GROWTH_CLEAR 4u

void mf_foresight_trial_init(mf_foresight_trial *t)
{
    *t = (mf_foresight_trial){.is_on = true, .pays = true, .first_is_on = true};
    t->n_rest = REST_LEAST;
}

void mf_foresight_trial_restart(mf_foresight_trial *t)
{
    t->n_passes = 0;
    t->has_acted = false;
    t->first_is_on = t->pays;
    t->is_on = t->pays;
}

/* Of a few numbers, which are sorted. */
static double median(double *x, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t j = i; j > 0 && x[j - 1] > x[j]; j--) {
            const double other = x[j];
            x[j] = x[j - 1];
            x[j - 1] = other;
        }
    return n % 2 != 0 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* What a pass takes by how many experts it needs: `each` is of one, `fixed` what there is anyway.
 */
typedef struct line {
    double fixed, each, least;
} line;

/* The least squares' line through all passes; neither part of it is below 0. */
static line fit(const mf_foresight_trial *t)
{
    const double n = t->n_passes;
    double time = 0, needed = 0, squares = 0, products = 0;
    for (uint32_t i = 0; i < t->n_passes; i++) {
        time += t->passes[i].time / n;
        needed += t->passes[i].n_needed / n;
    }
    for (uint32_t i = 0; i < t->n_passes; i++) {
        const double more = t->passes[i].n_needed - needed;
        squares += more * more;
        products += more * t->passes[i].time;
    }
    line l = {time, 0, LEAST_PART * time};
    if (products > 0) {
        l.each = products / squares;
        l.fixed = time - l.each * needed;
    }
    return l.fixed >= 0 ? l : (line){0, time / needed, l.least};
}

static double median_of_window(const mf_foresight_trial *t, const line *l, uint32_t window)
{
    double parts[MF_TRIAL_PASSES];
    for (uint32_t i = 0; i < MF_TRIAL_PASSES; i++) {
        const mf_trial_pass *p = &t->passes[window * MF_TRIAL_PASSES + i];
        const double expected = l->fixed + l->each * p->n_needed;
        parts[i] = p->time / (expected > l->least ? expected : l->least);
    }
    return median(parts, MF_TRIAL_PASSES);
}

/* With over without, of each of the windows that has two neighbours; how many. */
static uint32_t compare(const mf_foresight_trial *t, uint32_t n_windows,
                        double ratios[MF_TRIAL_WINDOWS])
{
    const line l = fit(t);
    double windows[MF_TRIAL_WINDOWS];
    uint32_t n = 0;
    if (l.least <= 0)
        return 0;
    for (uint32_t i = 0; i < n_windows; i++)
        windows[i] = median_of_window(t, &l, i);
    for (uint32_t i = 1; i + 1 < n_windows; i++) {
        const bool is_with = t->first_is_on == (i % 2 == 0);
        const double own = windows[i], others = (windows[i - 1] + windows[i + 1]) / 2;
        if (own > 0 && others > 0)
            ratios[n++] = is_with ? own / others : others / own;
    }
    return n;
}

static bool are_clear(const double *ratios, uint32_t n)
{
    bool all_less = n > 0, all_more = n > 0;
    for (uint32_t i = 0; i < n; i++) {
        all_less = all_less && ratios[i] < CLEARLY_LESS;
        all_more = all_more && ratios[i] > CLEARLY_MORE;
    }
    return all_less || all_more;
}

static void rest(mf_foresight_trial *t)
{
    t->is_resting = true;
    t->n_rested = 0;
    mf_foresight_trial_restart(t);
}

/* The trial's result, with those before it. Where nothing was foreseen both ways were the same. */
static void conclude(mf_foresight_trial *t, double ratio)
{
    const bool paid = t->pays, is_first = t->ratio <= 0;
    if (t->has_acted) {
        t->ratio = is_first ? ratio : (t->ratio + ratio) / 2;
        t->pays = t->ratio < 1;
    }
    const bool is_clear = t->ratio < CLEARLY_LESS || t->ratio > CLEARLY_MORE;
    const uint32_t longer = t->n_rest * (is_clear ? REST_GROWTH_CLEAR : REST_GROWTH);
    t->n_rest = t->pays != paid || is_first ? REST_LEAST : longer;
    t->n_rest = t->n_rest < REST_MOST ? t->n_rest : REST_MOST;
    rest(t);
}

static void end_window(mf_foresight_trial *t)
{
    double ratios[MF_TRIAL_WINDOWS];
    const uint32_t n_windows = t->n_passes / MF_TRIAL_PASSES;
    t->is_on = !t->is_on;
    if (n_windows < WINDOWS_LEAST)
        return;
    const uint32_t n = compare(t, n_windows, ratios);
    if (n_windows == MF_TRIAL_WINDOWS || are_clear(ratios, n))
        conclude(t, n > 0 ? median(ratios, n) : 1);
}

void mf_foresight_trial_add(mf_foresight_trial *t, mf_trial_pass pass, bool has_acted)
{
    if (t->is_resting) {
        t->is_resting = ++t->n_rested < t->n_rest;
        return;
    }
    t->has_acted = t->has_acted || (has_acted && t->is_on);
    t->passes[t->n_passes++] = pass;
    if (t->n_passes % MF_TRIAL_PASSES == 0)
        end_window(t);
}
