/* SPDX-License-Identifier: MIT */
/* What this machine makes of the model. */
#include "doctor.h"
#include "output.h"
#include "verdict.h"

double mf_cli_doctor_speed(const mf_cli_patient *patient, uint64_t ram_bytes, double drive)
{
    mf_model_info info = patient->info;
    const mf_cli_trials *t = &patient->trials;
    if (ram_bytes != 0) {
        mf_engine_options options;
        mf_engine_options_default(&options);
        options.ram_bytes = ram_bytes;
        if (mf_model_inspect(patient->model, &options, &info, NULL) != MF_OK)
            return 0;
    }
    if (info.n_layers == 0 || !mf_cli_runs(&info))
        return 0;
    return mf_cli_tokens_per_second(mf_cli_token_bytes(&info), mf_cli_read_bytes(&info),
                                    t->drive * drive, t->memory);
}

/* What the two things that make streaming faster would give. */
static void add_effect(mf_cli_finding *f, const mf_cli_patient *patient)
{
    const mf_model_info *info = &patient->info;
    const uint64_t whole =
        info->floor_bytes + info->slot_bytes * info->n_experts * (uint64_t)info->n_moe_layers;
    const double now = mf_cli_doctor_speed(patient, 0, 1),
                 faster = mf_cli_doctor_speed(patient, 0, 2),
                 held = mf_cli_doctor_speed(patient, whole, 1);
    char size[MF_CLI_SIZE_CHARS];
    if (now <= 0 || faster <= 0 || held <= 0)
        return;
    mf_cli_effect(
        f,
        "%.3g tokens/s by the rates below, nothing overlapped; %.3g with a drive of twice "
        "the rate, %.3g with %s of memory, which holds every expert.",
        now, faster, held, mf_cli_size(size, (double)whole));
}

void mf_cli_doctor_model(mf_cli_findings *all, const mf_cli_patient *patient)
{
    const mf_model_info *info = &patient->info;
    if (!patient->model)
        return;
    if (patient->status != MF_OK) {
        mf_cli_advise(mf_cli_find(all, "model", "cannot be opened"), MF_CLI_BAD, "%s",
                      patient->error.message);
        return;
    }
    mf_cli_finding *f = mf_cli_find(all, "model", "%s, %s: %s", info->family, info->form,
                                    mf_cli_verdict(info, patient->text));
    if (!mf_cli_runs(info)) {
        mf_cli_advise(f, MF_CLI_BAD,
                      "moeflux info says what it needs; a smaller --ctx needs less.");
    } else if (patient->text != MF_OK && patient->text != MF_ERR_NOT_FOUND) {
        mf_cli_advise(f, MF_CLI_BAD, "%s", patient->text_error.message);
    } else if (mf_cli_cacheable_fraction(info) < 1 && info->n_moe_layers != 0) {
        mf_cli_advise(f, MF_CLI_GOOD, "moeflux plan says what other budgets would give.");
        add_effect(f, patient);
    }
}
