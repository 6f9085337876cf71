/* SPDX-License-Identifier: MIT */
/* From a model's needs, its vocabulary and a machine's memory to a sentence. */
#include "verdict.h"

#include <stdio.h>
#include <string.h>

double mf_cli_cacheable_fraction(const mf_model_info *info)
{
    uint64_t n_experts = (uint64_t)info->n_moe_layers * info->n_experts;
    if (n_experts == 0)
        return 0;
    return info->n_slots >= n_experts ? 1 : (double)info->n_slots / (double)n_experts;
}

double mf_cli_token_bytes(const mf_model_info *info)
{
    return (double)(info->resident_bytes + info->working_set_bytes);
}

double mf_cli_read_bytes(const mf_model_info *info)
{
    const double held = info->n_moe_layers == 0 ? 1 : mf_cli_cacheable_fraction(info);
    return (1 - held) * (double)info->working_set_bytes;
}

double mf_cli_tokens_per_second(double token_bytes, double read_bytes, double drive, double memory)
{
    if (memory <= 0 || (read_bytes > 0 && drive <= 0))
        return 0;
    const double seconds = token_bytes / memory + (read_bytes > 0 ? read_bytes / drive : 0);
    return seconds > 0 ? 1 / seconds : 0;
}

uint64_t mf_cli_vram_floor(const mf_model_info *info)
{
    return info->device_floor_bytes > info->expert_device_floor_bytes
               ? info->device_floor_bytes
               : info->expert_device_floor_bytes;
}

void mf_cli_print_left_out(const mf_model_info *info)
{
    for (uint64_t i = 0; i < info->n_left_out; i++) {
        const mf_left_out *part = &info->left_out[i];
        char size[MF_CLI_SIZE_CHARS];
        printf("%-22s %s (%s*: %llu tensor%s, %s)\n", "left out", part->what, part->names,
               (unsigned long long)part->n_tensors, part->n_tensors == 1 ? "" : "s",
               mf_cli_size(size, (double)part->n_bytes));
    }
}

bool mf_cli_runs(const mf_model_info *info)
{
    return info->ram_bytes >= info->floor_bytes &&
           (info->device_bytes == 0 || info->device_bytes >= mf_cli_vram_floor(info));
}

mf_status mf_cli_look_at_text(const char *model, mf_error *error)
{
    mf_tokenizer *tokenizer = NULL;
    const mf_status status = mf_tokenizer_open(model, NULL, &tokenizer, error);
    mf_tokenizer_free(&tokenizer);
    const size_t n = strlen(model);
    if (status == MF_OK || strncmp(error->message, model, n) != 0)
        return status;
    const char *slash = strrchr(model, '/'); /* the model is the file, or the folder that has it */
    const char *name = error->message[n] == '/' ? error->message + n + 1
                       : slash                  ? error->message + (slash + 1 - model)
                                                : error->message;
    memmove(error->message, name, strlen(name) + 1);
    return status;
}

/* A model without a vocabulary runs as far as it can. */
#define NO_TEXT "; without text alone (bench), since it has no vocabulary"
#define RUNS(text_status, how) ((text_status) == MF_ERR_NOT_FOUND ? how NO_TEXT : (how))

const char *mf_cli_verdict(const mf_model_info *info, mf_status text)
{
    uint64_t working_set = (uint64_t)info->n_moe_layers * info->n_experts_per_token;
    if (info->ram_bytes < info->floor_bytes)
        return "does not run: the budget is below the least --ram";
    if (info->device_bytes != 0 && info->device_bytes < mf_cli_vram_floor(info))
        return "does not run: the device's memory is below the least --vram";
    if (text != MF_OK && text != MF_ERR_NOT_FOUND)
        return "does not run but for bench: its vocabulary cannot be read";
    if (info->n_moe_layers == 0)
        return RUNS(text, "runs in memory: it has no experts to stream");
    if (mf_cli_cacheable_fraction(info) >= 1)
        return RUNS(text, "runs with every expert in memory");
    if (info->n_slots >= working_set)
        return RUNS(text, "runs with its experts streamed from disk; the cache holds a token's "
                          "working set");
    return RUNS(text, "runs with its experts streamed from disk, slowly: the cache is smaller than "
                      "a token's working set");
}

void mf_cli_print_verdict(const mf_model_info *info, mf_status text, const mf_error *text_error)
{
    printf("%-22s %s\n", "verdict", mf_cli_verdict(info, text));
    if (text != MF_OK)
        mf_cli_row("text", text_error->message);
}
