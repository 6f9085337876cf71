/* SPDX-License-Identifier: MIT */
/* mf_model_info as members of a JSON object. */
#ifndef MF_CLI_MODEL_JSON_H
#define MF_CLI_MODEL_JSON_H

#include "json.h"

#include <moeflux/moeflux.h>

/* Parts of the checkpoint that are not run: "left_out", an array. */
void mf_cli_json_left_out(mf_cli_json *json, const mf_model_info *info);
/* text: as mf_cli_look_at_text has it. */
void mf_cli_json_model(mf_cli_json *json, const mf_model_info *info, mf_status text);

#endif
