/* SPDX-License-Identifier: MIT */
#include "model_json.h"

#include "verdict.h"

void mf_cli_json_left_out(mf_cli_json *json, const mf_model_info *info)
{
    mf_cli_json_key(json, "left_out");
    putc('[', json->out);
    for (uint64_t i = 0; i < info->n_left_out; i++) {
        const mf_left_out *part = &info->left_out[i];
        if (i > 0)
            fputs(", ", json->out);
        mf_cli_json inner = mf_cli_json_begin(json->out);
        mf_cli_json_string(&inner, "what", part->what);
        mf_cli_json_string(&inner, "names", part->names);
        mf_cli_json_integer(&inner, "n_tensors", part->n_tensors);
        mf_cli_json_integer(&inner, "bytes", part->n_bytes);
        mf_cli_json_end_value(&inner);
    }
    putc(']', json->out);
}

void mf_cli_json_model(mf_cli_json *json, const mf_model_info *info, mf_status text)
{
    const struct {
        const char *key;
        uint64_t value;
    } members[] = {
        {"n_layers", info->n_layers},
        {"n_full_attention_layers", info->n_full_attention_layers},
        {"n_linear_attention_layers", info->n_linear_attention_layers},
        {"n_latent_attention_layers", info->n_latent_attention_layers},
        {"n_moe_layers", info->n_moe_layers},
        {"n_skipped_layers", info->n_skipped_layers},
        {"hidden_size", info->hidden_size},
        {"n_heads", info->n_heads},
        {"n_kv_heads", info->n_kv_heads},
        {"head_dim", info->head_dim},
        {"q_lora_rank", info->q_lora_rank},
        {"kv_lora_rank", info->kv_lora_rank},
        {"qk_rope_head_dim", info->qk_rope_head_dim},
        {"v_head_dim", info->v_head_dim},
        {"n_vocab", info->n_vocab},
        {"n_experts", info->n_experts},
        {"n_experts_per_token", info->n_experts_per_token},
        {"n_experts_per_token_model", info->n_experts_per_token_model},
        {"n_expert_groups", info->n_expert_groups},
        {"n_expert_groups_per_token", info->n_expert_groups_per_token},
        {"expert_hidden_size", info->expert_hidden_size},
        {"dense_hidden_size", info->dense_hidden_size},
        {"shared_expert_hidden_size", info->shared_expert_hidden_size},
        {"n_context_tokens_model", info->n_context_tokens_model},
        {"expert_bits", info->expert_bits},
        {"n_parameters", info->n_parameters},
        {"resident_bytes", info->resident_bytes},
        {"expert_bytes", info->expert_bytes},
        {"one_expert_bytes", info->one_expert_bytes},
        {"working_set_bytes", info->working_set_bytes},
        {"session_bytes", info->session_bytes},
        {"scratch_bytes", info->scratch_bytes},
        {"floor_bytes", info->floor_bytes},
        {"available_bytes", info->available_bytes},
        {"ram_bytes", info->ram_bytes},
        {"device_floor_bytes", info->device_floor_bytes},
        {"expert_device_floor_bytes", info->expert_device_floor_bytes},
        {"device_bytes", info->device_bytes},
        {"slot_bytes", info->slot_bytes},
        {"n_slots", info->n_slots},
        {"n_host_slots", info->n_host_slots},
    };
    mf_cli_json_string(json, "family", info->family);
    mf_cli_json_string(json, "form", info->form);
    mf_cli_json_string(json, "device", info->device);
    mf_cli_json_string(json, "expert_device", info->expert_device);
    mf_cli_json_string(json, "device_why", info->device_why);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        mf_cli_json_integer(json, members[i].key, members[i].value);
    mf_cli_json_left_out(json, info);
    mf_cli_json_number(json, "cacheable_fraction", mf_cli_cacheable_fraction(info));
    mf_cli_json_bool(json, "has_text", text == MF_OK);
    mf_cli_json_string(json, "verdict", mf_cli_verdict(info, text));
}
