/* SPDX-License-Identifier: MIT */
/* What the files of DeepSeek-V4 share. */
#ifndef MF_MODEL_ARCH_DEEPSEEK_V4_H
#define MF_MODEL_ARCH_DEEPSEEK_V4_H

#include "model/family.h"

mf_status mf_deepseek_v4_configure(const mf_source *source, mf_hparams *out, mf_error *error);

#endif
