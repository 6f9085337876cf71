/* SPDX-License-Identifier: MIT */
/* What the next router says, what the last pass was given, what is asked for most, and what will
 * not be asked for. */
#include "experts/predictors.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Every row's best first, then every row's second. */
static uint32_t by_router(const mf_layer_known *l, mf_candidate *out, uint32_t most)
{
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < least(l->n_foretold, MF_FORESIGHT_RANKS); rank++)
        for (uint32_t row = 0; row < l->n_rows && l->foretold != NULL && n < most; row++) {
            const int32_t expert = l->foretold[row * l->n_foretold + rank];
            if (expert >= 0 && (uint32_t)expert < l->n_experts)
                out[n++] = (mf_candidate){(uint16_t)expert, (uint8_t)rank};
        }
    return n;
}

static uint32_t by_last(const mf_layer_known *l, mf_candidate *out, uint32_t most)
{
    const uint32_t n = least(l->n_last, most);
    for (uint32_t i = 0; i < n; i++)
        out[i] = (mf_candidate){l->last[i], 0};
    return n;
}

/* As many as a row has. */
static uint32_t by_frequency(const mf_layer_known *l, mf_candidate *out, uint32_t most)
{
    const uint32_t n = least(least(l->k, most), MF_FORESIGHT_RANKS);
    uint32_t n_found = 0;
    for (uint32_t e = 0; e < l->n_experts; e++) {
        uint32_t at = n_found < n ? n_found++ : n;
        if (at == n && l->shares[e] <= l->shares[out[n - 1].expert])
            continue;
        for (at = at == n ? n - 1 : at; at > 0 && l->shares[out[at - 1].expert] < l->shares[e];
             at--)
            out[at].expert = out[at - 1].expert;
        out[at].expert = (uint16_t)e;
    }
    for (uint32_t i = 0; i < n_found; i++)
        out[i].rank = (uint8_t)i;
    return n_found;
}

static bool is_foretold(const mf_layer_known *l, uint32_t expert)
{
    for (uint32_t i = 0; i < l->n_rows * l->n_foretold; i++)
        if (l->foretold[i] == (int32_t)expert)
            return true;
    return false;
}

/* The last of those that the router does not name. */
static uint32_t by_contrariness(const mf_layer_known *l, mf_candidate *out, uint32_t most)
{
    uint32_t n = 0;
    for (uint32_t e = l->n_experts; e-- > 0 && n < least(l->k, most) && l->foretold != NULL;)
        if (!is_foretold(l, e))
            out[n++] = (mf_candidate){(uint16_t)e, 0};
    return n;
}

const mf_predictor mf_predictors[MF_N_PREDICTORS] = {
    {MF_PREDICT_NEXT_LAYER, true, true, by_router},
    {MF_PREDICT_LAST_TOKEN, false, true, by_last},
    {MF_PREDICT_FREQUENCY, false, true, by_frequency},
    {MF_PREDICT_WRONG, true, false, by_contrariness},
};
