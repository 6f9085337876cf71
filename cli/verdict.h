/* SPDX-License-Identifier: MIT */
/* What mf_model_info says about whether, and how, a model runs here. */
#ifndef MF_CLI_VERDICT_H
#define MF_CLI_VERDICT_H

#include "output.h"

/* Of the experts, what the slots hold. */
double mf_cli_cacheable_fraction(const mf_model_info *info);
/* The least --vram: each device is promised the same. */
uint64_t mf_cli_vram_floor(const mf_model_info *info);
/* What a token touches: the embedding, of which it takes a row, is counted too. */
double mf_cli_token_bytes(const mf_model_info *info);
/* What of it is read from the drive, every expert being as likely as another. */
double mf_cli_read_bytes(const mf_model_info *info);
/* Where a token touches so many bytes and reads so many of them, by a drive and memory of so many
 * bytes a second. Nothing is overlapped: routing that repeats itself, and reading ahead, do better.
 * 0: a rate that is needed is 0. */
double mf_cli_tokens_per_second(double token_bytes, double read_bytes, double drive, double memory);
/* Whether the model's vocabulary can be read: MF_OK, MF_ERR_NOT_FOUND where it has none, or another
 * status, with *error, which names the file below the model. To be asked after what takes the
 * process's memory into account. */
mf_status mf_cli_look_at_text(const char *model, mf_error *error);
/* Does not run, and why; or how it runs. text is what mf_cli_look_at_text said. Static storage. */
const char *mf_cli_verdict(const mf_model_info *info, mf_status text);
/* Prints it, and where the vocabulary cannot be read text_error, which says why. */
void mf_cli_print_verdict(const mf_model_info *info, mf_status text, const mf_error *text_error);
/* Prints a line for each part of the checkpoint that is not run. */
void mf_cli_print_left_out(const mf_model_info *info);
/* False: memory is too small for it. */
bool mf_cli_runs(const mf_model_info *info);

#endif
