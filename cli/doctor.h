/* SPDX-License-Identifier: MIT */
/* What the doctor looks at. Each adds findings. */
#ifndef MF_CLI_DOCTOR_H
#define MF_CLI_DOCTOR_H

#include "findings.h"

/* CPU, memory, limits, pages, io_uring, open files: by the system's own words. */
void mf_cli_doctor_system(mf_cli_findings *all);
/* GPUs. */
void mf_cli_doctor_devices(mf_cli_findings *all);
/* The drive that a model (or NULL) is on, or else the folder that models are fetched to. Reads at
 * the model's size of an expert (0: a usual one) are timed if so asked. */
void mf_cli_doctor_drive(mf_cli_findings *all, const char *model, uint64_t expert_bytes,
                         bool is_measured);

#endif
