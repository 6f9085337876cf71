/* SPDX-License-Identifier: MIT */
/* What this program is: version, commit, compiler, parts. */
#ifndef MF_CLI_BUILD_FACTS_H
#define MF_CLI_BUILD_FACTS_H

#include "json.h"

/* The first line is the version alone. */
void mf_cli_print_version(FILE *out);
void mf_cli_json_build(mf_cli_json *json);

#endif
