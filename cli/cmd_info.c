/* SPDX-License-Identifier: MIT */
/* moeflux info: what a checkpoint is, what it needs, and what this machine's memory allows. */
#include "commands.h"
#include "model_json.h"
#include "model_path.h"
#include "verdict.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: moeflux info MODEL [OPTION]...\n"
    "Says what a checkpoint is, what it needs, and what this machine's memory allows. Loads no\n"
    "weights.\n"
    "\n"
    "  --json                 one JSON object\n" //
    MF_MODEL_OPTIONS_HELP;

enum { OPT_JSON = MF_OPT_OWN };

static const struct option long_options[] = {
    {"json", no_argument, NULL, OPT_JSON}, MF_MODEL_LONG_OPTIONS, {0}};

static void row_size(const char *name, uint64_t n_bytes)
{
    char size[MF_CLI_SIZE_CHARS];
    printf("%-22s %s\n", name, mf_cli_size(size, (double)n_bytes));
}

/* Rounded up, so that what is printed is accepted. */
static void row_floor(const char *name, uint64_t n_bytes)
{
    char size[MF_CLI_SIZE_CHARS];
    printf("%-22s %s\n", name, mf_cli_size_up(size, n_bytes));
}

static void print_layers(const mf_model_info *info)
{
    const struct {
        uint32_t n;
        const char *what;
    } kinds[] = {{info->n_full_attention_layers, "full attention"},
                 {info->n_linear_attention_layers, "linear attention"},
                 {info->n_latent_attention_layers, "latent attention"},
                 {info->n_layers - info->n_moe_layers, "without experts"},
                 {info->n_skipped_layers, "for multi-token prediction left out"}};
    printf("%-22s %" PRIu32, "layers", info->n_layers);
    const char *separator = " (";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].n == 0)
            continue;
        printf("%s%" PRIu32 " %s", separator, kinds[i].n, kinds[i].what);
        separator = ", ";
    }
    printf(")\n");
}

static void print_heads(const mf_model_info *info)
{
    printf("%-22s %" PRIu32, "attention heads", info->n_heads);
    if (info->n_latent_attention_layers == 0) {
        printf(" (%" PRIu32 " for keys and values) of %" PRIu32 "\n", info->n_kv_heads,
               info->head_dim);
        return;
    }
    printf(" of %" PRIu32 ", %" PRIu32 " of them rotated, values of %" PRIu32 "\n", info->head_dim,
           info->qk_rope_head_dim, info->v_head_dim);
    printf("%-22s %" PRIu32 " for keys and values", "latent rank", info->kv_lora_rank);
    if (info->q_lora_rank != 0)
        printf(", %" PRIu32 " for queries", info->q_lora_rank);
    printf("\n");
}

static void print_experts(const mf_model_info *info)
{
    printf("%-22s %" PRIu32 " a layer, %" PRIu32 " a token", "experts", info->n_experts,
           info->n_experts_per_token);
    if (info->n_expert_groups > 1)
        printf(" from %" PRIu32 " of %" PRIu32 " groups", info->n_expert_groups_per_token,
               info->n_expert_groups);
    if (info->n_experts_per_token != info->n_experts_per_token_model)
        printf(" (the model's own: %" PRIu32 ")", info->n_experts_per_token_model);
    printf(", inner size %" PRIu32 ", shared %" PRIu32 "\n", info->expert_hidden_size,
           info->shared_expert_hidden_size);
}

static void print_shape(const mf_model_info *info)
{
    char count[MF_CLI_SIZE_CHARS];
    printf("%-22s %s\n", "family", info->family);
    printf("%-22s %s, %s of %" PRIu32 " bits\n", "form", info->form,
           info->n_moe_layers != 0 ? "experts" : "MLPs", info->expert_bits);
    printf("%-22s %s\n", "parameters", mf_cli_count(count, (double)info->n_parameters));
    print_layers(info);
    printf("%-22s %" PRIu32 "\n", "hidden size", info->hidden_size);
    print_heads(info);
    if (info->n_moe_layers != 0)
        print_experts(info);
    printf("%-22s %" PRIu32 "\n", "vocabulary", info->n_vocab);
    printf("%-22s %" PRIu32 " tokens at most\n", "context", info->n_context_tokens_model);
}

static void print_memory(const mf_model_info *info)
{
    char line[MF_CLI_EXPERT_DEVICE_CHARS];
    row_size("dense weights", info->resident_bytes);
    if (info->n_moe_layers != 0) {
        row_size("experts", info->expert_bytes);
        row_size("one expert", info->one_expert_bytes);
        row_size("working set a token", info->working_set_bytes);
    }
    row_size("session state", info->session_bytes);
    row_size("scratch", info->scratch_bytes);
    printf("%-22s %s", "device", info->device);
    if (strcmp(info->device, info->expert_device) != 0)
        printf(", experts on %s", mf_cli_expert_device(info->expert_device, line));
    if (info->device_why[0] != '\0')
        printf(" (auto: %s)", info->device_why);
    printf("\n");
    if (mf_cli_vram_floor(info) != 0)
        row_floor("least --vram", mf_cli_vram_floor(info));
    if (info->device_bytes != 0)
        row_size("device memory", info->device_bytes);
    row_floor("least --ram", info->floor_bytes);
    row_size("available now", info->available_bytes);
    row_size("budget", info->ram_bytes);
    if (info->n_moe_layers != 0)
        printf("%-22s %" PRIu64 " (%.1f %% of the experts)\n", "expert slots", info->n_slots,
               100 * mf_cli_cacheable_fraction(info));
}

static void print_json(const char *path, const mf_model_info *info, mf_status text)
{
    mf_cli_json json = mf_cli_json_begin(stdout);
    mf_cli_json_string(&json, "model", path);
    mf_cli_json_model(&json, info, text);
    mf_cli_json_end(&json);
}

int mf_cmd_info(int argc, char **argv)
{
    mf_cli_engine_args engine;
    mf_cli_engine_args_init(&engine);
    const mf_cli_parser parser = {"info",       help,   argc, argv, ":" MF_ENGINE_SHORT_OPTIONS,
                                  long_options, &engine};
    bool has_json = false;
    int exit_code = MF_EXIT_OK;
    if (!mf_cli_parse(&parser, mf_cli_json_option, &has_json, &exit_code))
        return exit_code;
    mf_cli_model_path path;
    const char *model = mf_cli_positional_model(&parser, false, &path, &exit_code);
    if (!model)
        return exit_code;
    mf_model_info info;
    mf_error error = {0};
    mf_status status = mf_model_inspect(model, &engine.options, &info, &error);
    if (status != MF_OK)
        return mf_cli_fail(status, &error);
    const mf_status text = mf_cli_look_at_text(model, &error);
    if (has_json) {
        print_json(model, &info, text);
    } else {
        print_shape(&info);
        mf_cli_print_left_out(&info);
        print_memory(&info);
        mf_cli_print_verdict(&info, text, &error);
    }
    return mf_cli_finish(MF_EXIT_OK);
}
