/* SPDX-License-Identifier: MIT */
/* Where time went: tables and JSON. */
#include "profile.h"

#include <inttypes.h>
#include <math.h>

static uint64_t total_of(const mf_cli_phase *phase)
{
    uint64_t us = 0;
    for (int i = 0; i < MF_STAGES; i++)
        us += phase->stats.stage_us[i];
    return us;
}

static void print_cells(FILE *out, double us, const mf_cli_phase *phase)
{
    if (phase->n_tokens == 0 || phase->seconds <= 0) {
        fprintf(out, " %14s %8s", "-", "-");
        return;
    }
    fprintf(out, " %11.3f ms %6.1f %%", 1e-3 * us / (double)phase->n_tokens,
            1e-4 * us / phase->seconds);
}

static void print_row(FILE *out, const char *name, const double us[2],
                      const mf_cli_phase *const phases[2])
{
    fprintf(out, "  %-18s", name);
    for (int i = 0; i < 2; i++)
        print_cells(out, us[i], phases[i]);
    fputc('\n', out);
}

void mf_cli_stages_table(FILE *out, const mf_cli_phase *prefill, const mf_cli_phase *decode)
{
    const mf_cli_phase *const phases[2] = {prefill, decode};
    const double all[2] = {(double)total_of(prefill), (double)total_of(decode)};
    double rest[2];
    if (all[0] + all[1] <= 0)
        return;
    fprintf(out, "%-20s %23s %23s\n", "time, a token", "prompt", "answer");
    for (int i = 0; mf_stage_name((mf_stage)i); i++) {
        const double us[2] = {(double)prefill->stats.stage_us[i],
                              (double)decode->stats.stage_us[i]};
        if (us[0] + us[1] > 0)
            print_row(out, mf_stage_name((mf_stage)i), us, phases);
    }
    for (int i = 0; i < 2; i++)
        rest[i] = fmax(0, 1e6 * phases[i]->seconds - all[i]);
    print_row(out, "between evaluations", rest, phases);
}

void mf_cli_stages_json(mf_cli_json *json, const char *key, const mf_cli_phase *phase)
{
    mf_cli_json_key(json, key);
    mf_cli_json stages = mf_cli_json_begin(json->out);
    for (int i = 0; mf_stage_name((mf_stage)i); i++)
        mf_cli_json_integer(&stages, mf_stage_name((mf_stage)i), phase->stats.stage_us[i]);
    mf_cli_json_end_value(&stages);
}

static double all_seconds(const mf_layer_profile *l)
{
    double seconds = 0;
    for (int i = 0; i < MF_STAGES; i++)
        seconds += l->seconds[i];
    return seconds;
}

static double percent(uint64_t part, uint64_t all)
{
    return all > 0 ? 100 * (double)part / (double)all : 0;
}

static void print_layer(FILE *out, uint32_t layer, const mf_layer_profile *l)
{
    const double compute = all_seconds(l) - l->seconds[MF_STAGE_WAITING];
    fprintf(out, "%5" PRIu32 " %9.3f %9.3f %9.3f %9.3f", layer, 1e3 * compute,
            1e3 * l->seconds[MF_STAGE_ATTENTION], 1e3 * l->seconds[MF_STAGE_EXPERTS],
            1e3 * l->seconds[MF_STAGE_WAITING]);
    if (l->n_requests > 0)
        fprintf(out, " %9" PRIu64 " %6.1f %8.1f %7" PRIu32 " %7.1f %8" PRIu64 " %6" PRIu64,
                l->n_requests, percent(l->n_hits, l->n_requests),
                percent(l->n_repeated, l->n_requests), l->n_experts_used, 100 * l->most_used_share,
                l->n_hints, l->n_hints_useful + l->n_hints_late);
    fputc('\n', out);
}

void mf_cli_layers_table(FILE *out, mf_engine *engine)
{
    mf_model_info info;
    mf_layer_profile l;
    mf_engine_info(engine, &info);
    for (uint32_t i = 0; i < info.n_layers; i++) {
        if (mf_engine_layer_profile(engine, i, &l, NULL) != MF_OK)
            return;
        if (i == 0)
            fprintf(out,
                    "%5s %9s %9s %9s %9s %9s %6s %8s %7s %7s %8s %6s\n"
                    "%5s %9s %9s %9s %9s %9s %6s %8s %7s %7s %8s %6s\n",
                    "layer", "computing", "attention", "experts", "waiting", "requests", "held",
                    "repeated", "experts", "top 1/10", "foreseen", "right", "", "ms", "ms", "ms",
                    "ms", "", "%", "%", "used", "%", "", "");
        print_layer(out, i, &l);
    }
}

static void json_layer(FILE *out, const mf_layer_profile *l)
{
    mf_cli_json json = mf_cli_json_begin(out);
    mf_cli_json_key(&json, "us");
    mf_cli_json stages = mf_cli_json_begin(out);
    for (int i = 0; mf_stage_name((mf_stage)i); i++)
        mf_cli_json_number(&stages, mf_stage_name((mf_stage)i), 1e6 * l->seconds[i]);
    mf_cli_json_end_value(&stages);
    mf_cli_json_integer(&json, "requests", l->n_requests);
    mf_cli_json_integer(&json, "hits", l->n_hits);
    mf_cli_json_integer(&json, "repeated", l->n_repeated);
    mf_cli_json_integer(&json, "experts_used", l->n_experts_used);
    mf_cli_json_number(&json, "most_used_share", l->most_used_share);
    mf_cli_json_integer(&json, "hints", l->n_hints);
    mf_cli_json_integer(&json, "hints_useful", l->n_hints_useful);
    mf_cli_json_integer(&json, "hints_late", l->n_hints_late);
    mf_cli_json_integer(&json, "hints_wasted", l->n_hints_wasted);
    mf_cli_json_end_value(&json);
}

void mf_cli_layers_json(mf_cli_json *json, mf_engine *engine)
{
    mf_model_info info;
    mf_layer_profile l;
    mf_engine_info(engine, &info);
    mf_cli_json_key(json, "layers");
    fputc('[', json->out);
    for (uint32_t i = 0; i < info.n_layers; i++) {
        if (mf_engine_layer_profile(engine, i, &l, NULL) != MF_OK)
            break;
        fputs(i > 0 ? ", " : "", json->out);
        json_layer(json->out, &l);
    }
    fputc(']', json->out);
}
