#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A checkpoint directory (published or MLX form) as a GGUF file, by PyPI's gguf: for tests, and to compare with llama.cpp.

Needs numpy and gguf. Usage: tools/make_gguf.py DIR OUT.gguf [--type Q8_0] [--split N]
The type is that of matrices; rows that its blocks do not divide become Q8_0, or F16 where those do not either. Routers, norms
and what llama.cpp keeps in float32 stay float32.
"""
import argparse
import json
from pathlib import Path

import gguf
import numpy as np

import gguf_forms as forms

Q = forms.Q

OF_ALL = {"embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight", "norm.weight": "output_norm.weight"}
OF_LAYER = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    **{f"self_attn.{p}_proj.bias": f"attn_{p}.bias" for p in "qkv"},
    "self_attn.o_proj.bias": "attn_output.bias",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.in_proj_qkvz.weight": "ssm_in.weight",  # older files
    "linear_attn.in_proj_ba.weight": "ssm_ba.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
    "self_attn.q_a_proj.weight": "attn_q_a.weight",
    "self_attn.q_a_layernorm.weight": "attn_q_a_norm.weight",
    "self_attn.q_b_proj.weight": "attn_q_b.weight",
    "self_attn.kv_a_proj_with_mqa.weight": "attn_kv_a_mqa.weight",
    "self_attn.kv_a_layernorm.weight": "attn_kv_a_norm.weight",
    "self_attn.kv_b_proj.weight": "attn_kv_b.weight",
    "self_attn.embed_q.weight": "attn_k_b.weight",
    "self_attn.unembed_out.weight": "attn_v_b.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "self_attn.sinks": "attn_sinks.weight",
    "mlp.router.weight": "ffn_gate_inp.weight",
    "mlp.router.bias": "ffn_gate_inp.bias",
    **{f"mlp.switch_mlp.{p}_proj.bias": f"ffn_{p}_exps.bias" for p in ("gate", "up", "down")},
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.e_score_correction_bias": "exp_probs_b.bias",  # MiniMax
    "mlp.gate.moe_statics.e_score_correction_bias": "exp_probs_b.bias",  # ERNIE
    "mlp.gate.wg.weight": "ffn_gate_inp.weight",  # Hunyuan, and the following three
    **{f"mlp.shared_mlp.{p}_proj.weight": f"ffn_{p}_shexp.weight" for p in ("gate", "up", "down")},
    "self_attn.query_layernorm.weight": "attn_q_norm.weight",
    "self_attn.key_layernorm.weight": "attn_k_norm.weight",
    "self_attn.indexer.wq_b.weight": "indexer.attn_q_b.weight",
    "self_attn.indexer.wk.weight": "indexer.attn_k.weight",
    "self_attn.indexer.k_norm.weight": "indexer.k_norm.weight",
    "self_attn.indexer.k_norm.bias": "indexer.k_norm.bias",
    "self_attn.indexer.weights_proj.weight": "indexer.proj.weight",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    **{f"mlp.shared_expert{s}.{p}_proj.weight": f"ffn_{p}_shexp.weight" for s in ("", "s") for p in ("gate", "up", "down")},
    **{f"mlp.switch_mlp.{p}_proj.weight": f"ffn_{p}_exps.weight" for p in ("gate", "up", "down")},
}
# A layer that predicts further tokens has these besides.
OF_LAYER |= {
    "eh_proj.weight": "nextn.eh_proj.weight",
    "embed_tokens.weight": "nextn.embed_tokens.weight",
    "enorm.weight": "nextn.enorm.weight",
    "hnorm.weight": "nextn.hnorm.weight",
    "shared_head.head.weight": "nextn.shared_head_head.weight",
    "shared_head.norm.weight": "nextn.shared_head_norm.weight",
}
# Kimi Delta Attention, where it has other names than linear attention's
OF_KEYED = {
    **{f"self_attn.{p}_conv1d.weight": f"ssm_conv1d_{p}.weight" for p in "qkv"},
    **{f"self_attn.{p}_proj.weight": f"ssm_{p}.weight" for p in ("f_a", "f_b", "g_a", "g_b")},
    "self_attn.b_proj.weight": "ssm_beta.weight",
    "self_attn.A_log": "ssm_a",
    "self_attn.dt_bias": "ssm_dt.bias",
    "self_attn.o_norm.weight": "ssm_norm.weight",
}
# DeepSeek-V4, as transformers names it
OF_ENTRIES = {
    "self_attn.q_a_norm.weight": "attn_q_a_norm.weight",
    "self_attn.kv_proj.weight": "attn_kv.weight",
    "self_attn.kv_norm.weight": "attn_kv_a_norm.weight",
    "self_attn.o_a_proj.weight": "attn_output_a.weight",
    "self_attn.o_b_proj.weight": "attn_output_b.weight",
    "self_attn.compressor.indexer.q_b_proj.weight": "indexer.attn_q_b.weight",
    "self_attn.compressor.indexer.scorer.weights_proj.weight": "indexer.proj.weight",
    **{f"self_attn.compressor.{inner}{theirs}": f"{ours}_compressor_{part}.weight"
       for inner, ours in (("", "attn"), ("indexer.", "indexer"))
       for theirs, part in (("kv_proj.weight", "kv"), ("gate_proj.weight", "gate"), ("position_bias", "ape"), ("kv_norm.weight", "norm"))},
    **{f"{where}_hc.{part}": f"hc_{where}_{part}.weight" for where in ("attn", "ffn") for part in ("fn", "base", "scale")},
    "mlp.gate.tid2eid": "ffn_gate_tid2eid.weight",
}
OF_STREAMS = {f"hc_head.hc_{part}": f"output_hc_{part}.weight" for part in ("fn", "base", "scale")}
FLOAT = ("norm.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight", "ssm_conv1d.weight", "ssm_a", ".bias", "attn_sinks.weight",
         *(f"ssm_conv1d_{p}.weight" for p in "qkv"), "_ape.weight", "hc_attn_fn.weight", "hc_ffn_fn.weight", "output_hc_fn.weight")
ARCHS = {
    "qwen3_5_moe": "qwen35moe", "qwen3_next": "qwen3next", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2",
    "kimi_k2": "deepseek2", "qwen2": "qwen2", "qwen3": "qwen3", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "llama": "llama",
    "mistral": "llama", "mixtral": "llama", "glm4_moe": "glm4moe", "minimax_m2": "minimax-m2", "gpt_oss": "gpt-oss",
    "ernie4_5_moe": "ernie4_5-moe", "hunyuan_v1_moe": "hunyuan-moe", "glm_moe_dsa": "glm-dsa", "kimi_linear": "kimi-linear",
    "llama4": "llama4", "qwen3_5": "qwen35", "glm4_moe_lite": "deepseek2", "deepseek_v32": "deepseek32",
    "deepseek_v4": "deepseek4", "mistral3": "mistral3",
    "qwen3_vl": "qwen3vl", "qwen3_vl_moe": "qwen3vlmoe",
}
IN_PAIRS = ("llama", "mistral3")  # rows of queries and keys that are rotated together lie together
HAS_POST_NORM = ("qwen35moe", "qwen35", "qwen3next", "glm4moe", "gpt-oss")


def stack_experts(tensors):
    """Every stored form of experts as three stacked tensors a layer."""
    out, each = {}, {}
    for name, t in tensors.items():
        if ".mlp.experts." not in name:
            out[name] = t
            continue
        layer, rest = name.split(".mlp.experts.")
        if rest == "gate_up_proj":
            half = t.shape[1] // 2
            out[f"{layer}.mlp.switch_mlp.gate_proj.weight"] = t[:, :half]
            out[f"{layer}.mlp.switch_mlp.up_proj.weight"] = t[:, half:]
        elif rest == "down_proj":
            out[f"{layer}.mlp.switch_mlp.down_proj.weight"] = t
        else:
            number, part, _ = rest.split(".")
            each.setdefault(f"{layer}.mlp.switch_mlp.{part}.weight", {})[int(number)] = t
    for name, experts in each.items():
        out[name] = np.stack([experts[i] for i in range(len(experts))])
    return out


def part_pairs(tensors):
    """gpt-oss: [experts, hidden, 2 * inner] with gate and up by turns -> stacked matrices, rows outputs."""
    out = {}
    for name, t in tensors.items():
        layer, _, rest = name.partition(".mlp.experts.")
        stacked = f"{layer}.mlp.switch_mlp."
        if rest == "gate_up_proj":
            both = t.swapaxes(1, 2)
            out[stacked + "gate_proj.weight"], out[stacked + "up_proj.weight"] = both[:, ::2], both[:, 1::2]
        elif rest == "gate_up_proj_bias":
            out[stacked + "gate_proj.bias"], out[stacked + "up_proj.bias"] = t[:, ::2], t[:, 1::2]
        elif rest == "down_proj":
            out[stacked + "down_proj.weight"] = t.swapaxes(1, 2)
        elif rest == "down_proj_bias":
            out[stacked + "down_proj.bias"] = t
        else:
            out[name] = t
    return out


def turn_experts(tensors):
    """Llama 4 as published: [experts, inputs, outputs] -> rows of outputs."""
    return {n: t.swapaxes(1, 2) if n.endswith(("experts.gate_up_proj", "experts.down_proj")) else t for n, t in tensors.items()}


def split_kv_b(name, t, c):
    """The up-projection of the latent: the key half of each head transposed, and the value half."""
    heads = t.reshape(c["num_attention_heads"], c["qk_nope_head_dim"] + c["v_head_dim"], -1)
    key, value = np.split(heads, [c["qk_nope_head_dim"]], 1)
    base = name.removesuffix("kv_b_proj.weight")
    return {base + "embed_q.weight": key.transpose(0, 2, 1), base + "unembed_out.weight": value}


def to_gguf_order(tensors, c):
    """Names as before, but all as llama.cpp's converters leave it."""
    out = {}
    tensors = turn_experts(tensors) if c["model_type"] == "llama4" else tensors
    stacked = part_pairs(tensors) if c["model_type"] == "gpt_oss" else stack_experts(tensors)
    is_keyed = c["model_type"] == "kimi_linear"
    for name, t in stacked.items():
        if "conv1d" in name:
            t = t.reshape((1, len(t), 1, -1) if is_keyed else (len(t), -1))
        if c["model_type"] in ("qwen3_5_moe", "qwen3_5") and "linear_attn." in name:
            t = forms.reorder_linear(name, t, c, forms.tile_heads)
        if ARCHS[c["model_type"]] in IN_PAIRS and ".q_proj." in name:
            t = forms.pair_neighbours(t, c["num_attention_heads"])
        if ARCHS[c["model_type"]] in IN_PAIRS and ".k_proj." in name:
            t = forms.pair_neighbours(t, c["num_key_value_heads"])
        if name.endswith("A_log"):
            t = -np.exp(t)
        if name.endswith("in_proj_qkvz.weight") and not c.get("keeps_qkvz"):
            qkv, z = forms.split_qkvz(t, c)
            out[name.replace("qkvz", "qkv")], out[name.replace("qkvz", "z")] = qkv, z
        elif name.endswith("kv_b_proj.weight") and not c.get("keeps_kv_b"):
            out |= split_kv_b(name, t, c)
        else:
            out[name] = t
    return out


def gguf_name(name, arch):
    if name in OF_ALL | OF_STREAMS:
        return (OF_ALL | OF_STREAMS)[name]
    _, layer, rest = name.split(".", 2)
    names = {**OF_LAYER, **OF_KEYED, **OF_ENTRIES}
    new = "ffn_norm.weight" if arch not in HAS_POST_NORM and rest.startswith("post_attention") else names[rest]
    return f"blk.{layer}.{new}"


def type_of(name, t, kind, others):
    """others: a list of (part of a name, type instead), of which the first that fits counts."""
    if t.ndim == 1 or name.endswith(FLOAT):
        return Q.F32
    kind = next((k for part, k in others if part in name), kind)
    for choice in (kind, Q.Q8_0, Q.F16):
        if forms.fits(t, choice):
            return choice
    return Q.F16


# ---------------------------------------------------------------- metadata


def rope_of(c):
    return {**c, **(c.get("rope_scaling") or {}), **(c.get("rope_parameters") or {})}


def write_common(w, c):
    rope = rope_of(c)
    w.add_name("a test's model")
    w.add_block_count(c["num_hidden_layers"] + c.get("n_extra_layers", 0))
    if c.get("n_extra_layers"):
        w.add_nextn_predict_layers(c["n_extra_layers"])
    w.add_vocab_size(c["vocab_size"])
    w.add_context_length(c.get("max_position_embeddings") or c["model_max_length"])
    w.add_embedding_length(c["hidden_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    used = next((c[k] for k in ("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk") if c.get(k)), None)
    if used:
        w.add_expert_used_count(used)
    if "moe_intermediate_size" in c or c["model_type"] in ("minimax_m2", "gpt_oss", "llama4"):
        w.add_expert_feed_forward_length(c.get("moe_intermediate_size") or c["intermediate_size"])
    kind, theta = rope.get("rope_type", rope.get("type")), float(rope.get("rope_theta", 10000.0))
    if kind == "dynamic":  # Hunyuan: theta is stretched once and for all
        theta *= rope["alpha"] ** (c["head_dim"] / (c["head_dim"] - 2))
    w.add_rope_freq_base(theta)
    if kind == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(float(rope["factor"]))
    if kind == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(float(rope["factor"]))
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "beta_fast" in rope:
            w.add_rope_scaling_yarn_beta_fast(float(rope["beta_fast"]))
        if "beta_slow" in rope:
            w.add_rope_scaling_yarn_beta_slow(float(rope["beta_slow"]))
    return rope


def rope_factors(rope, n_rot):
    """What llama.cpp's converter makes of Llama 3.1's scaling."""
    frequencies = 1.0 / float(rope["rope_theta"]) ** (np.arange(0, n_rot, 2, dtype=np.float32) / n_rot)
    low, high, n = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    lengths = 2 * np.pi / frequencies
    smooth = (n / lengths - low) / (high - low)
    between = 1 / ((1 - smooth) / rope["factor"] + smooth)
    return np.where(lengths < n / high, 1.0, np.where(lengths > n / low, rope["factor"], between)).astype(np.float32)


def write_hybrid(w, c, rope):
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    if "num_experts" in c:
        w.add_expert_count(c["num_experts"])
        w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    else:
        w.add_feed_forward_length(c["intermediate_size"])
    w.add_rope_dimension_count(int(c["head_dim"] * rope.get("partial_rotary_factor", 0.25)))
    if c["model_type"] in ("qwen3_5_moe", "qwen3_5"):
        w.add_rope_dimension_sections((list(rope.get("mrope_section", [11, 11, 10])) + [0])[:4])
    w.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
    w.add_ssm_state_size(c["linear_key_head_dim"])
    w.add_ssm_group_count(c["linear_num_key_heads"])
    w.add_ssm_time_step_rank(c["linear_num_value_heads"])
    w.add_ssm_inner_size(c["linear_num_value_heads"] * c["linear_value_head_dim"])
    types = c.get("layer_types")
    interval = c.get("full_attention_interval") or 4
    regular = ["full_attention" if (i + 1) % interval == 0 else "linear_attention" for i in range(c["num_hidden_layers"])]
    w.add_uint32(f"{w.arch}.full_attention_interval", interval)
    if types and types != regular:
        w.add_array(f"{w.arch}.attention.recurrent_layers", [t == "linear_attention" for t in types])


def write_deepseek(w, c, rope):
    w.add_head_count_kv(1)
    if c.get("q_lora_rank"):
        w.add_q_lora_rank(c["q_lora_rank"])
    w.add_kv_lora_rank(c["kv_lora_rank"])
    w.add_key_length(c["kv_lora_rank"] + c["qk_rope_head_dim"])
    w.add_value_length(c["kv_lora_rank"])
    w.add_key_length_mla(c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
    w.add_value_length_mla(c["v_head_dim"])
    w.add_rope_dimension_count(c["qk_rope_head_dim"])
    w.add_leading_dense_block_count(c.get("first_k_dense_replace", 0))
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_expert_count(c["n_routed_experts"])
    w.add_expert_shared_count(c.get("n_shared_experts") or 0)
    is_v2 = c["model_type"] == "deepseek_v2"
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX if is_v2 else gguf.ExpertGatingFuncType.SIGMOID)
    if c.get("routed_scaling_factor") is not None:
        w.add_expert_weights_scale(c["routed_scaling_factor"])
    if c.get("norm_topk_prob", not is_v2):
        w.add_expert_weights_norm(True)
    if (c.get("n_group") or 1) > 1:
        w.add_expert_group_count(c["n_group"])
        w.add_expert_group_used_count(c["topk_group"])
    if "index_topk" in c:
        w.add_uint32(f"{w.arch}.attention.indexer.head_count", c["index_n_heads"])
        w.add_uint32(f"{w.arch}.attention.indexer.key_length", c["index_head_dim"])
        w.add_uint32(f"{w.arch}.attention.indexer.top_k", c["index_topk"])
    if rope.get("mscale_all_dim"):
        w.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


def write_deepseek4(w, c, rope):
    w.add_head_count_kv(1)
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_rope_dimension_count(c["qk_rope_head_dim"])
    w.add_q_lora_rank(c["q_lora_rank"])
    w.add_sliding_window(c["sliding_window"])
    w.add_expert_count(c["n_routed_experts"])
    w.add_expert_shared_count(c["n_shared_experts"])
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    w.add_expert_weights_norm(c["norm_topk_prob"])
    w.add_uint32(f"{w.arch}.expert_gating_func", 4)  # sqrtsoftplus, which this version of gguf has no name for
    for key in ("exp", "shexp"):
        w.add_array(f"{w.arch}.swiglu_clamp_{key}", [float(c["swiglu_limit"])] * c["num_hidden_layers"])
    w.add_array(f"{w.arch}.attention.compress_ratios", c["compress_ratios"])
    for key, value in (("attention.indexer.head_count", c["index_n_heads"]), ("attention.indexer.key_length", c["index_head_dim"]),
                       ("attention.indexer.top_k", c["index_topk"]), ("attention.output_group_count", c["o_groups"]),
                       ("attention.output_lora_rank", c["o_lora_rank"]), ("hyper_connection.count", c["hc_mult"]),
                       ("hyper_connection.sinkhorn_iterations", c["hc_sinkhorn_iters"]), ("hash_layer_count", c["num_hash_layers"])):
        w.add_uint32(f"{w.arch}.{key}", value)
    w.add_float32(f"{w.arch}.attention.compress_rope_freq_base", float(c["compress_rope_theta"]))
    w.add_float32(f"{w.arch}.hyper_connection.epsilon", c["hc_eps"])


def write_kimi_linear(w, c, rope):
    linear = c["linear_attn_config"]
    w.add_head_count_kv([int(i + 1 in linear["full_attn_layers"]) for i in range(c["num_hidden_layers"])])
    w.add_ssm_conv_kernel(linear["short_conv_kernel_size"])
    w.add_kda_head_dim(linear["head_dim"])
    w.add_kv_lora_rank(c["kv_lora_rank"])
    w.add_rope_dimension_count(c["qk_rope_head_dim"])
    w.add_key_length(c["kv_lora_rank"] + c["qk_rope_head_dim"])
    w.add_key_length_mla(c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
    w.add_value_length_mla(c["v_head_dim"])
    w.add_leading_dense_block_count(c["first_k_dense_replace"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_expert_count(c["num_experts"])
    w.add_expert_shared_count(c["num_shared_experts"])
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    w.add_expert_weights_scale(c["routed_scaling_factor"])
    if not c["moe_renormalize"]:
        w.add_expert_weights_norm(False)
    if c["num_expert_group"] > 1:
        w.add_expert_group_count(c["num_expert_group"])
        w.add_expert_group_used_count(c["topk_group"])


def write_llama4(w, c):
    """Beside what all write: converters leave out what is as published."""
    w.add_interleave_moe_layer_step(c["interleave_moe_layer_step"])
    if c["attention_chunk_size"] != 8192:
        w.add_sliding_window(c["attention_chunk_size"])
    if (c["floor_scale"], c["attn_scale"]) != (8192, 0.1):
        w.add_attn_temperature_length(c["floor_scale"])
        w.add_attn_temperature_scale(c["attn_scale"])


def write_grouped(w, c, rope):
    head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    partial = rope.get("partial_rotary_factor", 0.5 if c["model_type"] == "glm4_moe" else 1.0)
    n_experts = next((c[k] for k in ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts") if c.get(k)), None)
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_rope_dimension_count(c.get("rotary_dim") or int(head_dim * partial))
    w.add_feed_forward_length(c.get("intermediate_size_mlp") or c["intermediate_size"])
    if n_experts:
        w.add_expert_count(n_experts)
    if c["model_type"] in ("glm4_moe", "minimax_m2"):
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if c["model_type"] == "gpt_oss":
        w.add_sliding_window(c["sliding_window"])
    if "shared_expert_intermediate_size" in c:
        w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    if c["model_type"] == "glm4_moe":
        w.add_expert_shared_count(c["n_shared_experts"])
        w.add_leading_dense_block_count(c["first_k_dense_replace"])
        w.add_expert_weights_scale(c["routed_scaling_factor"])
        w.add_expert_group_count(c["n_group"])
        w.add_expert_group_used_count(c["topk_group"])
    if "norm_topk_prob" in c:
        w.add_expert_weights_norm(c["norm_topk_prob"])
    if c["model_type"] == "ernie4_5_moe":
        w.add_interleave_moe_layer_step(c["moe_layer_interval"])
        w.add_leading_dense_block_count(c["moe_layer_start_index"])
        w.add_expert_shared_count(c["moe_num_shared_experts"])
        w.add_expert_shared_feed_forward_length(c["moe_num_shared_experts"] * c["moe_intermediate_size"])
    if c["model_type"] == "hunyuan_v1_moe":
        w.add_expert_shared_feed_forward_length(c["intermediate_size"])
        w.add_expert_feed_forward_length(c["intermediate_size"])
        w.add_expert_shared_count(1)
    if c["model_type"] == "llama4":
        write_llama4(w, c)
    if c["model_type"] in ("qwen3_vl", "qwen3_vl_moe"):
        n_pairs = head_dim // 2
        w.add_rope_dimension_sections([n_pairs - 2 * (n_pairs // 3), n_pairs // 3, n_pairs // 3, 0])
        w.add_uint32(f"{w.arch}.n_deepstack_layers", 0)
    if "llama_4_scaling_beta" in rope:
        w.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        w.add_float32(f"{w.arch}.attention.temperature_scale", rope["llama_4_scaling_beta"])
    if rope.get("rope_type") == "llama3":
        w.add_tensor("rope_freqs.weight", rope_factors(rope, head_dim))


# Which pattern has which name; the last Split of a tokenizer.json.
PRE = {
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+": "qwen35",
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+": "qwen2",
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+": "llama-bpe",
}


def write_tokenizer(w, folder, n_vocab):
    path = Path(folder) / "tokenizer.json"
    if not path.exists():
        w.add_tokenizer_model("none")
        return
    t = json.loads(path.read_text())
    pattern = [p["pattern"]["Regex"] for p in t["pre_tokenizer"]["pretokenizers"] if p["type"] == "Split"][-1]
    tokens, types = [f"[PAD{i}]" for i in range(n_vocab)], [gguf.TokenType.UNUSED] * n_vocab
    for text, i in t["model"]["vocab"].items():
        tokens[i], types[i] = text, gguf.TokenType.NORMAL
    for a in t["added_tokens"]:
        tokens[a["id"]] = a["content"]
        types[a["id"]] = gguf.TokenType.CONTROL if a["special"] else gguf.TokenType.USER_DEFINED
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(next(name for rest, name in PRE.items() if pattern.endswith(rest)))
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]])
    config = json.loads((Path(folder) / "tokenizer_config.json").read_text())
    ids = {text: i for i, text in enumerate(tokens)}
    for key, add in (("bos_token", w.add_bos_token_id), ("eos_token", w.add_eos_token_id), ("pad_token", w.add_pad_token_id)):
        if config.get(key) is not None:
            add(ids[config[key] if isinstance(config[key], str) else config[key]["content"]])
    w.add_add_bos_token(bool(config.get("add_bos_token", False)))
    if config.get("chat_template"):
        w.add_chat_template(config["chat_template"])
    defaults = Path(folder) / "generation_config.json"
    if defaults.exists():
        values = json.loads(defaults.read_text())
        for key, name in (("temperature", "temp"), ("top_p", "top_p"), ("min_p", "min_p"), ("repetition_penalty", "penalty_repeat")):
            if key in values:
                w.add_float32(f"general.sampling.{name}", float(values[key]))
        if "top_k" in values:
            w.add_int32("general.sampling.top_k", values["top_k"])


def n_extra_layers(config, tensors):
    """Behind those that the model has: they predict further tokens."""
    last = max(int(name.split(".")[1]) for name in tensors if name.startswith("layers."))
    return max(0, last + 1 - config["num_hidden_layers"])


def add_nvfp4(w, name, t, is_alone):
    """The weight and, unless it is alone, what it is multiplied by: one value, or one for each expert, and one of activations."""
    if is_alone:
        w.add_tensor(name, forms.quantise_nvfp4(t, 1), raw_dtype=Q.NVFP4)
        return
    parts = t if "_exps." in name else t[None]
    factors = np.array([forms.nvfp4_factor(p) for p in parts], np.float32)
    rows = np.stack([forms.quantise_nvfp4(p, f) for p, f in zip(parts, factors)])
    w.add_tensor(name, rows if "_exps." in name else rows[0], raw_dtype=Q.NVFP4)
    w.add_tensor(name.replace(".weight", ".scale"), factors)
    w.add_tensor(name.replace(".weight", ".input_scale"), np.full(len(parts), 0.01, np.float32))


def write_gguf(path, config, tensors, kind, folder=None, split=0, others=(), alone=()):
    """alone: parts of names of those of NVFP4 that have no scale beside them."""
    arch = ARCHS[config["model_type"]]
    config = {**config, "n_extra_layers": n_extra_layers(config, tensors)}
    writers = {"qwen35moe": write_hybrid, "qwen35": write_hybrid, "qwen3next": write_hybrid, "deepseek2": write_deepseek, "glm-dsa": write_deepseek,
               "deepseek32": write_deepseek, "deepseek4": write_deepseek4, "kimi-linear": write_kimi_linear}
    w = gguf.GGUFWriter(path, arch, split_max_tensors=split)
    rope = write_common(w, config)
    writers.get(arch, write_grouped)(w, config, rope)
    write_tokenizer(w, folder or ".nowhere", config["vocab_size"])
    for name, t in to_gguf_order(tensors, config).items():
        new = gguf_name(name, arch)
        if new == "output.weight" and config.get("tie_word_embeddings"):
            continue
        if new.endswith("tid2eid.weight"):
            w.add_tensor(new, t.astype(np.int32))
            continue
        if new.endswith("ffn_gate_inp_shexp.weight"):
            t = t.reshape(-1)
        own = type_of(new, t, kind, others)
        if own == Q.NVFP4:
            add_nvfp4(w, new, t, any(part in new for part in alone))
            continue
        w.add_tensor(new, forms.quantise(t, own), raw_dtype=own)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--type", default="Q8_0", choices=[q.name for q in Q])
    parser.add_argument("--split", type=int, default=0, help="tensors of a part, of a split model")
    args = parser.parse_args()
    config, tensors = forms.read_checkpoint(args.folder)
    write_gguf(args.out, config, tensors, Q[args.type], args.folder, args.split)


if __name__ == "__main__":
    main()
