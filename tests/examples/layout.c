/* SPDX-License-Identifier: MIT */
/* Prints the sizes and offsets of the structures that examples/moeflux_ctypes.py repeats, in the
 * form of its --layout. */
#include <moeflux/moeflux.h>

#include <stddef.h>
#include <stdio.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define AT(type, field) printf(#type "." #field " %zu\n", offsetof(type, field))

static void engine_options(void)
{
    SIZE(mf_engine_options);
    AT(mf_engine_options, struct_bytes);
    AT(mf_engine_options, allocator);
    AT(mf_engine_options, ram_bytes);
    AT(mf_engine_options, expert_cache_bytes);
    AT(mf_engine_options, state_bytes);
    AT(mf_engine_options, mark_bytes);
    AT(mf_engine_options, n_sessions);
    AT(mf_engine_options, n_context_tokens);
    AT(mf_engine_options, n_chunk_tokens);
    AT(mf_engine_options, n_experts_per_token);
    AT(mf_engine_options, packed_expert_bits);
    AT(mf_engine_options, n_threads);
    AT(mf_engine_options, cpu_tier);
    AT(mf_engine_options, io);
    AT(mf_engine_options, kv_type);
    AT(mf_engine_options, log);
    AT(mf_engine_options, log_user);
    AT(mf_engine_options, device);
    AT(mf_engine_options, expert_device);
    AT(mf_engine_options, device_bytes);
    AT(mf_engine_options, precision);
    AT(mf_engine_options, cache_dir);
    AT(mf_engine_options, cache_policy);
    AT(mf_engine_options, predict);
    AT(mf_engine_options, timeline);
    AT(mf_engine_options, hot_dir);
    AT(mf_engine_options, mirrors);
    AT(mf_engine_options, n_mirrors);
    AT(mf_engine_options, n_draft_tokens);
    AT(mf_engine_options, draft);
    AT(mf_engine_options, predict_depth);
    AT(mf_engine_options, await_bytes);
    AT(mf_engine_options, await_user);
    AT(mf_engine_options, numa);
}

static void model_info(void)
{
    SIZE(mf_left_out);
    AT(mf_left_out, what);
    AT(mf_left_out, names);
    AT(mf_left_out, n_tensors);
    AT(mf_left_out, n_bytes);
    SIZE(mf_model_info);
    AT(mf_model_info, struct_bytes);
    AT(mf_model_info, family);
    AT(mf_model_info, form);
    AT(mf_model_info, n_parameters);
    AT(mf_model_info, n_vocab);
    AT(mf_model_info, hidden_size);
    AT(mf_model_info, n_context_tokens_model);
    AT(mf_model_info, n_layers);
    AT(mf_model_info, n_full_attention_layers);
    AT(mf_model_info, n_linear_attention_layers);
    AT(mf_model_info, n_latent_attention_layers);
    AT(mf_model_info, n_moe_layers);
    AT(mf_model_info, n_skipped_layers);
    AT(mf_model_info, n_heads);
    AT(mf_model_info, n_kv_heads);
    AT(mf_model_info, head_dim);
    AT(mf_model_info, q_lora_rank);
    AT(mf_model_info, kv_lora_rank);
    AT(mf_model_info, qk_rope_head_dim);
    AT(mf_model_info, v_head_dim);
    AT(mf_model_info, n_experts);
    AT(mf_model_info, n_experts_per_token);
    AT(mf_model_info, n_experts_per_token_model);
    AT(mf_model_info, n_expert_groups);
    AT(mf_model_info, n_expert_groups_per_token);
    AT(mf_model_info, expert_bits);
    AT(mf_model_info, expert_hidden_size);
    AT(mf_model_info, shared_expert_hidden_size);
    AT(mf_model_info, dense_hidden_size);
    AT(mf_model_info, n_context_tokens);
    AT(mf_model_info, n_chunk_tokens);
    AT(mf_model_info, n_sessions);
    AT(mf_model_info, page_tokens);
    AT(mf_model_info, resident_bytes);
    AT(mf_model_info, expert_bytes);
    AT(mf_model_info, one_expert_bytes);
    AT(mf_model_info, working_set_bytes);
    AT(mf_model_info, scratch_bytes);
    AT(mf_model_info, page_bytes);
    AT(mf_model_info, recurrent_bytes);
    AT(mf_model_info, session_bytes);
    AT(mf_model_info, one_mark_bytes);
    AT(mf_model_info, state_bytes);
    AT(mf_model_info, mark_bytes);
    AT(mf_model_info, ram_bytes);
    AT(mf_model_info, floor_bytes);
    AT(mf_model_info, n_slots);
    AT(mf_model_info, slot_bytes);
    AT(mf_model_info, available_bytes);
    AT(mf_model_info, device);
    AT(mf_model_info, expert_device);
    AT(mf_model_info, device_floor_bytes);
    AT(mf_model_info, expert_device_floor_bytes);
    AT(mf_model_info, device_bytes);
    AT(mf_model_info, device_why);
    AT(mf_model_info, n_host_slots);
    AT(mf_model_info, window_tokens);
    AT(mf_model_info, window_page_bytes);
    AT(mf_model_info, n_left_out);
    AT(mf_model_info, left_out);
}

int main(void)
{
    SIZE(mf_error);
    AT(mf_error, code);
    AT(mf_error, os_errno);
    AT(mf_error, byte_position);
    AT(mf_error, message);
    engine_options();
    model_info();
    SIZE(mf_sampler_options);
    AT(mf_sampler_options, struct_bytes);
    AT(mf_sampler_options, temperature);
    AT(mf_sampler_options, top_k);
    AT(mf_sampler_options, top_p);
    AT(mf_sampler_options, min_p);
    AT(mf_sampler_options, repetition_penalty);
    AT(mf_sampler_options, seed);
    AT(mf_sampler_options, presence_penalty);
    AT(mf_sampler_options, frequency_penalty);
    AT(mf_sampler_options, biases);
    AT(mf_sampler_options, n_biases);
    AT(mf_sampler_options, dry_multiplier);
    AT(mf_sampler_options, dry_base);
    AT(mf_sampler_options, dry_allowed_length);
    AT(mf_sampler_options, dry_n_tokens);
    AT(mf_sampler_options, dry_breakers);
    AT(mf_sampler_options, n_dry_breakers);
    AT(mf_sampler_options, tokenizer);
    AT(mf_sampler_options, xtc_probability);
    AT(mf_sampler_options, xtc_threshold);
    SIZE(mf_batch_item);
    AT(mf_batch_item, session);
    AT(mf_batch_item, tokens);
    AT(mf_batch_item, n_tokens);
    SIZE(mf_decoder);
    AT(mf_decoder, pending);
    AT(mf_decoder, n_pending);
    SIZE(mf_chat_message);
    AT(mf_chat_message, role);
    AT(mf_chat_message, content);
    return 0;
}
