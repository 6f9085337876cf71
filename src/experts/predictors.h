/* SPDX-License-Identifier: MIT */
/* The predictors, a row of a table each. What all of them may know is gathered by foresight.c; each
 * is a function that names candidates for a layer, the likeliest first. */
#ifndef MF_EXPERTS_PREDICTORS_H
#define MF_EXPERTS_PREDICTORS_H

#include "experts/foresight.h"

/* As many as there are rows. */
#define MF_N_PREDICTORS 4u

/* A candidate, and the rank that it is judged by. */
typedef struct mf_candidate {
    uint16_t expert;
    uint8_t rank; /* below MF_FORESIGHT_RANKS */
} mf_candidate;

/* What is known of a layer before its turn. */
typedef struct mf_layer_known {
    uint32_t n_experts, k, n_rows;
    const float *shares;  /* [n_experts] of the tokens so far, that the expert was chosen for */
    const uint16_t *last; /* [n_last] of the pass before, each once */
    uint32_t n_last;
    const int32_t *foretold; /* [n_rows][n_foretold], or NULL */
    uint32_t n_foretold;
} mf_layer_known;

typedef struct mf_predictor {
    mf_predict kind;
    bool needs_router; /* names nothing where foretold is NULL */
    bool is_choosable; /* by MF_PREDICT_AUTO */
    /* At most `most`; an expert may be named twice. */
    uint32_t (*predict)(const mf_layer_known *known, mf_candidate *out, uint32_t most);
} mf_predictor;

extern const mf_predictor mf_predictors[MF_N_PREDICTORS];

#endif
