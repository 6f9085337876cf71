/* SPDX-License-Identifier: MIT */
/* Where time went, by stage and by layer, as tables and as JSON. */
#ifndef MF_CLI_PROFILE_H
#define MF_CLI_PROFILE_H

#include "run_stats.h"

/* Rows of two phases, and of what is neither a stage nor in one; nothing if no time was taken. */
void mf_cli_stages_table(FILE *out, const mf_cli_phase *prefill, const mf_cli_phase *decode);
/* A member, an object of microseconds by stage. */
void mf_cli_stages_json(mf_cli_json *json, const char *key, const mf_cli_phase *phase);

/* All layers; nothing if no profile is taken. */
void mf_cli_layers_table(FILE *out, mf_engine *engine);
/* The member "layers", an array. */
void mf_cli_layers_json(mf_cli_json *json, mf_engine *engine);

#endif
