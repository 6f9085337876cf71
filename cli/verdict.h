/* SPDX-License-Identifier: MIT */
/* What mf_model_info says about whether, and how, a model runs here. */
#ifndef MF_CLI_VERDICT_H
#define MF_CLI_VERDICT_H

#include "output.h"

/* Of the experts, what the slots hold. */
double mf_cli_cacheable_fraction(const mf_model_info *info);
/* The least --vram: each device is promised the same. */
uint64_t mf_cli_vram_floor(const mf_model_info *info);
/* Does not run, and why; or how it runs. Static storage. */
const char *mf_cli_verdict(const mf_model_info *info);
/* False: memory is too small for it. */
bool mf_cli_runs(const mf_model_info *info);

#endif
