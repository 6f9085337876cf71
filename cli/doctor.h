/* SPDX-License-Identifier: MIT */
/* What the doctor looks at. Each adds findings. */
#ifndef MF_CLI_DOCTOR_H
#define MF_CLI_DOCTOR_H

#include "doctor_trials.h"
#include "findings.h"

#include <moeflux/moeflux.h>

/* What is known before anything is said. */
typedef struct mf_cli_patient {
    const char *model; /* as it can be opened; NULL: none */
    mf_status status;  /* of the model */
    mf_error error;    /* why it cannot be opened */
    mf_status text;    /* of its vocabulary */
    mf_error text_error;
    mf_model_info info;   /* zeros, unless there is a model that can be opened */
    mf_cli_trials trials; /* zeros, unless they were made */
} mf_cli_patient;

/* CPU, memory, limits, pages, io_uring, open files: by the system's own words. */
void mf_cli_doctor_system(mf_cli_findings *all, const mf_cli_patient *patient);
/* GPUs. */
void mf_cli_doctor_devices(mf_cli_findings *all);
/* The model: whether it runs, and what more memory or a faster drive would make of it. */
void mf_cli_doctor_model(mf_cli_findings *all, const mf_cli_patient *patient);
/* The folder at folder, which models are read from: its file system and its drive. */
void mf_cli_doctor_drive(mf_cli_findings *all, const mf_cli_patient *patient, const char *folder);

/* Tokens a second of the model, by arithmetic from what was measured, if the engine could have
 * ram_bytes (0: what it can have now) and a drive so many times as fast; 0: that is not known. */
double mf_cli_doctor_speed(const mf_cli_patient *patient, uint64_t ram_bytes, double drive);

#endif
