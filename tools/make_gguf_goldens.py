#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the GGUF cases of tests/model/data: tiny random models written by PyPI's gguf, and what transformers computes of the
weights as that package dequantises them, put back into the published order.

Needs torch, transformers, gguf and numpy. Usage: tools/make_gguf_goldens.py [--out DIR] [CASE ...]
"""
import argparse
import json
import shutil
import tempfile
import zlib
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

import gguf_forms
import goldens_deepseek as deepseek
import goldens_deepseek_v4 as deepseek_v4
import goldens_grouped as grouped
import goldens_kimi as kimi
import goldens_llama4 as llama4
import goldens_module as modules
import make_goldens as plain
from goldens_run import evaluate, usable
from make_gguf import ARCHS, IN_PAIRS, OF_ALL, OF_ENTRIES, OF_KEYED, OF_LAYER, OF_STREAMS, Q, turn_experts, write_gguf

Q35, NEXT, Q35_DENSE = plain.Q35, plain.NEXT, plain.Q35_DENSE
V2, V3 = deepseek.V2, deepseek.V3

CASES = {
    # three value heads a key head, which converters put into another order; types that differ within a layer
    "gguf_35_q8_0": dict(
        family=Q35, kind=Q.Q8_0, interval=3, others=[("ffn_up_exps", Q.F16), ("attn_k.", Q.BF16)],
        config=plain.shape(64, 3, 4, 2, 32, 2, 6, 16, 16, 6, 2, 32, 64, 131, **plain.rope_v5(1e7, 0.25)),
    ),
    # as the mixed recipes have it: more bits for some layers' down projections, and for the tied embeddings
    "gguf_35_q4_k": dict(
        family=Q35, kind=Q.Q4_K, interval=2, others=[("blk.1.ffn_down_exps", Q.Q6_K), ("token_embd", Q.Q6_K), ("attn_v.", Q.Q6_K)],
        config=plain.shape(256, 2, 4, 2, 64, 2, 4, 32, 32, 4, 2, 256, 256, 128, **plain.rope_v5(1e6, 0.5), tie_word_embeddings=True),
    ),
    "gguf_next_q8_0": dict(
        family=NEXT, kind=Q.Q8_0, types=["linear_attention", "full_attention", "linear_attention"],
        config=plain.shape(96, 3, 4, 2, 32, 2, 4, 32, 32, 6, 2, 32, 64, 140, **plain.rope_flat(1e7, 0.25), norm_topk_prob=True),
    ),
    # the input projections of linear attention in one, as the first converters left them
    "gguf_next_old_f16": dict(
        family=NEXT, kind=Q.F16, interval=2, extra={"keeps_qkvz": True},
        config=plain.shape(40, 2, 2, 1, 32, 2, 4, 16, 16, 4, 2, 24, 40, 128, **plain.rope_flat(5e5, 0.5), norm_topk_prob=True),
    ),
    "gguf_qwen35_q8_0": dict(
        family=Q35_DENSE, kind=Q.Q8_0, interval=3, others=[("ffn_down", Q.Q5_0)],
        config=plain.dense_shape(64, 3, 4, 2, 32, 2, 6, 16, 16, 96, 130, **plain.rope_v5(1e7, 0.25)),
    ),
    "gguf_glm4_moe_lite_q8_0": dict(
        family="glm4_moe_lite", kind=Q.Q8_0,
        config=grouped.dense_latent(64, 3, 3, 32, 64, 32, 16, 32, 96, 32, 12, 4, 1, 1, 140, rope_theta=1000000.0, rms_norm_eps=1e-5,
                                    routed_scaling_factor=1.8),
    ),
    "gguf_v3_q8_0": dict(
        family=V3, kind=Q.Q8_0, others=[("attn_v_b", Q.F16)],
        config=deepseek.shape(
            64, 3, 4, 32, 64, 32, 16, 32, 128, 32, 12, 3, 4, 2, 144,
            **deepseek.yarn(40, 32, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)),
    ),
    # one group, no YaRN, the up-projection whole
    "gguf_v3_old_bf16": dict(
        family=V3, kind=Q.BF16, extra={"keeps_kv_b": True},
        config=deepseek.shape(56, 2, 4, 24, 40, 16, 12, 20, 96, 24, 16, 5, 1, 1, 150, routed_scaling_factor=2.827, rope_theta=50000),
    ),
    "gguf_v2_lite_q8_0": dict(
        family=V2, kind=Q.Q8_0,
        config=deepseek.shape(
            64, 3, 4, None, 32, 32, 12, 16, 96, 32, 16, 6, None, None, 144, n_shared_experts=2,
            **(deepseek.SOFTMAX | deepseek.yarn(40, 48, beta_fast=8, beta_slow=0.5, mscale=0.707, mscale_all_dim=0.707))),
    ),
    "gguf_v2_groups_f32": dict(
        family=V2, kind=Q.F32,
        config=deepseek.shape(
            60, 2, 5, 24, 20, 10, 8, 14, 72, 12, 20, 4, None, None, 132, n_shared_experts=2,
            **(deepseek.BY_GROUP | {"n_group": 5, "topk_group": 2})),
    ),
    "gguf_qwen3_moe_q8_0": dict(
        family="qwen3_moe", kind=Q.Q8_0,
        config=grouped.shape(64, 3, 6, 2, 32, 144, rope_theta=1000000.0, norm_topk_prob=True, **{
            **grouped.SPARSE, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
        }, **grouped.experts(12, 3, 32)),
    ),
    "gguf_qwen2_moe_f16": dict(
        family="qwen2_moe", kind=Q.F16,
        config=grouped.shape(56, 2, 4, 4, 14, 140, rope_theta=1000000.0, norm_topk_prob=False, shared_expert_intermediate_size=44,
                             qkv_bias=True, **grouped.SPARSE, **grouped.experts(9, 3, 28)),
    ),
    # queries and keys in the order of llama.cpp's rotation
    "gguf_mixtral_q8_0": dict(
        family="mixtral", kind=Q.Q8_0,
        config=grouped.shape(64, 2, 4, 2, 16, 130, rope_theta=1000000.0, rms_norm_eps=1e-5, **grouped.local_experts(6, 2, 32)),
    ),
    "gguf_llama_bf16": dict(
        family="llama", kind=Q.BF16,
        config=grouped.shape(60, 2, 5, 1, 20, 129, rope_theta=100.0, intermediate_size=76, attention_bias=False, mlp_bias=False),
    ),
    "gguf_glm4_moe_q8_0": dict(
        family="glm4_moe", kind=Q.Q8_0,
        config=grouped.shape(64, 3, 6, 2, 32, 140, rms_norm_eps=1e-5, **grouped.glm(12, 3, 32, 96, 4, 2)),
    ),
    "gguf_minimax_m2_q8_0": dict(
        family="minimax_m2", kind=Q.Q8_0,
        config=grouped.shape(64, 2, 4, 2, 32, 128, rope_theta=5000000.0, rotary_dim=16, use_qk_norm=True, **grouped.local_experts(8, 3, 32)),
    ),
    # with a vocabulary of bytes, a template and defaults of sampling: what the program needs for text
    "gguf_with_text": dict(
        family="qwen3_moe", kind=Q.Q8_0, has_text=True,
        config=grouped.shape(64, 2, 4, 2, 32, 264, rope_theta=10000.0, norm_topk_prob=True, **grouped.SPARSE, **grouped.experts(8, 2, 32)),
    ),
    # sinks, windows in every second layer, biases of all, MXFP4 experts
    "gguf_gpt_oss_mxfp4": dict(
        family="gpt_oss", kind=Q.Q8_0, others=[("_exps.weight", Q.MXFP4)],
        config=grouped.shape(64, 2, 8, 2, 16, 136, **grouped.oss(8, 4, 96, 11)),
    ),
    # the scaling of Llama 3.1, which no key has
    "gguf_llama31_f16": dict(
        family="llama", kind=Q.F16,
        config=grouped.shape(48, 2, 3, 1, 16, 129, rope_theta=100.0, rope_scaling=grouped.LLAMA3, intermediate_size=56,
                             attention_bias=False, mlp_bias=False),
    ),
    "gguf_linear_rope_f16": dict(
        family="llama", kind=Q.F16,
        config=grouped.shape(36, 2, 3, 1, 12, 128, rope_theta=100.0, rope_scaling={"rope_type": "linear", "factor": 2.5},
                             intermediate_size=40, attention_bias=False, mlp_bias=False),
    ),
    "gguf_ernie4_5_moe_q8_0": dict(
        family="ernie4_5_moe", kind=Q.Q8_0,
        config=grouped.shape(64, 3, 4, 2, 16, 132, rope_theta=500000.0, intermediate_size=96, use_bias=False, moe_intermediate_size=32,
                             moe_k=3, moe_num_experts=7, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=-1,
                             moe_layer_interval=1, **{**grouped.TIED, "rms_norm_eps": 1e-5}),
    ),
    "gguf_hunyuan_moe_f16": dict(
        family="hunyuan_v1_moe", kind=Q.F16,
        config=grouped.shape(48, 2, 4, 2, 16, 130, rope_theta=10000.0, rope_scaling={"type": "dynamic", "factor": 1.0, "alpha": 50.0},
                             intermediate_size=24, num_experts=7, moe_topk=3, use_qk_norm=True, **grouped.TIED),
    ),
    "gguf_glm_dsa_f16": dict(
        family="glm_moe_dsa", kind=Q.F16,
        config=grouped.latent(48, 3, 3, 20, 24, 14, 12, 18, 64, 20, 6, 2, 1, 1, 130, rope_theta=1000000.0, rms_norm_eps=1e-5),
    ),
    # linear layers of their own kind and latent attention that never rotates; types that differ within a layer
    "gguf_kimi_linear_q8_0": dict(
        family="kimi_linear", kind=Q.Q8_0, others=[("ssm_f_b", Q.F16), ("ffn_down_exps", Q.Q4_0)],
        config=kimi.shape(64, 2, 132, (32, 16, 8, 16), (2, 32, 4), (8, 3, 32, 96), [3], layers=4),
    ),
    "gguf_kimi_linear_groups_f16": dict(
        family="kimi_linear", kind=Q.F16,
        config=kimi.shape(44, 3, 128, (20, 10, 6, 14), (3, 18, 3), (12, 3, 20, 52), [1, 4], layers=4, num_expert_group=4, topk_group=2,
                          moe_renormalize=False, first_k_dense_replace=2, num_shared_experts=2),
    ),
    # as Scout: chunks, a layer that does not rotate and whose queries grow, the scaling of Llama 3.1
    "gguf_llama4_q8_0": dict(
        family="llama4", kind=Q.Q8_0,
        config=grouped.shape(64, 5, 6, 2, 16, 136, **llama4.towers(5, 32, 96, 16, rope_scaling=llama4.LLAMA3)),
    ),
    # as Maverick: dense layers between the others; its number of experts says that heads have no norms
    "gguf_llama4_dense_layers_f16": dict(
        family="llama4", kind=Q.F16,
        config=grouped.shape(24, 4, 3, 1, 12, 128, **llama4.towers(128, 8, 44, 9, use_qk_norm=False, interleave_moe_layer_step=2)),
    ),
    # text towers: of text alone all three axes of the rotation are the same
    "gguf_qwen3_vl_q8_0": dict(
        family="qwen3", kind=Q.Q8_0, extra={"model_type": "qwen3_vl"},
        config=grouped.shape(64, 2, 4, 2, 32, 132, rope_theta=5000000.0, intermediate_size=96, attention_bias=False),
    ),
    "gguf_qwen3_vl_moe_f16": dict(
        family="qwen3_moe", kind=Q.F16, extra={"model_type": "qwen3_vl_moe"},
        config=grouped.shape(40, 2, 4, 2, 16, 128, rope_theta=5000000.0, norm_topk_prob=True, **grouped.SPARSE, **grouped.experts(6, 2, 24)),
    ),
    # queries that grow from the sixteenth position on
    "gguf_ministral3_q8_0": dict(
        family="ministral3", kind=Q.Q8_0, extra={"model_type": "mistral3"},
        config=grouped.shape(64, 2, 4, 2, 32, 132, intermediate_size=96, sliding_window=None, rope_parameters=grouped.CASES[
            "mistral3_growth_f16"]["config"]["rope_parameters"]),
    ),
    # biases of queries, keys and values, tied
    "gguf_qwen2_q8_0": dict(
        family="qwen2", kind=Q.Q8_0,
        config=grouped.shape(64, 2, 4, 2, 16, 130, rope_theta=1000000.0, intermediate_size=96, use_sliding_window=False, **grouped.TIED),
    ),
    "gguf_deepseek_v32_q8_0": dict(
        family="deepseek_v32", kind=Q.Q8_0,
        config=grouped.latent(64, 2, 4, 32, 64, 32, 16, 32, 96, 32, 12, 3, 4, 2, 144, rope_theta=10000.0, rope_scaling={
            "type": "yarn", "factor": 40, "original_max_position_embeddings": 32, "mscale": 1.0, "mscale_all_dim": 1.0,
            "beta_fast": 32, "beta_slow": 1}),
    ),
    # entries of 4 positions of which some are chosen, and of 128; two layers whose experts tokens name
    "gguf_deepseek_v4_q8_0": dict(
        family="deepseek_v4", kind=Q.Q8_0, others=[("_exps.weight", Q.MXFP4)],
        config=deepseek_v4.shape(64, 4, 32, 131, (32, 2, 16, 8), (6, 2, 32), num_hidden_layers=4, compress_ratios=[0, 4, 128, 4],
                                 num_hash_layers=2, sliding_window=13, index_n_heads=8, index_head_dim=16, index_topk=5),
    ),
    # the indexers in force: 9 positions are chosen
    "gguf_glm_dsa_index_f16": dict(
        family="glm_moe_dsa", kind=Q.F16,
        config=grouped.latent(48, 3, 3, 20, 24, 14, 12, 18, 64, 16, 8, 2, 1, 1, 132, rope_theta=1000000.0, rms_norm_eps=1e-5, index_topk=9,
                              index_n_heads=12, index_head_dim=33),
    ),
    # as converters leave NVFP4: one factor a matrix, for experts one each; of some none; beside types that have none
    "gguf_35_nvfp4": dict(
        family=Q35, kind=Q.NVFP4, interval=2, alone=["blk.1.ffn_up_exps", "attn_k."], others=[
            ("token_embd", Q.F16), ("blk.2.ffn_down_exps", Q.Q4_0), ("blk.3.ffn_gate_exps", Q.Q8_0), ("blk.3.ffn_up_exps", Q.Q8_0),
            ("blk.3.ffn_down_exps", Q.Q8_0), ("attn_v.", Q.Q8_0), ("ssm_alpha", Q.F16), ("ssm_beta", Q.F16)],
        config=plain.shape(128, 4, 4, 2, 32, 2, 6, 32, 32, 6, 2, 64, 64, 131, **plain.rope_v5(1e7, 0.25)),
    ),
    "gguf_qwen3_f16": dict(
        family="qwen3", kind=Q.F16,
        config=grouped.shape(64, 2, 4, 2, 24, 136, rope_theta=1000000.0, intermediate_size=90, attention_bias=False, tie_word_embeddings=True),
    ),
}

# ---------------------------------------------------------------- back from GGUF


def is_grouped(case):
    return case["family"] in grouped.FAMILIES


def is_qwen(case):
    return case["family"] in (*plain.ALL_Q35, NEXT)


def weights_of(t, factor):
    """A tensor's values as PyPI's gguf dequantises them; factor: None, or what stands beside NVFP4."""
    value = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).reshape(shape_of(t))
    return value if factor is None else value * (factor.reshape(-1, 1, 1) if value.ndim == 3 else factor)


def shape_of(t):
    return [int(n) for n in reversed(t.shape)]


def read_gguf(path, c, values_of):
    """float32 tensors by the names that the converter took them from, without "model."."""
    of_layer = {v: k for k, v in OF_LAYER.items()} | {"ffn_norm.weight": "post_attention_layernorm.weight"}
    of_layer |= {"attn_q_norm.weight": "self_attn.q_norm.weight", "attn_k_norm.weight": "self_attn.k_norm.weight"}
    of_layer |= {"ffn_gate_inp.weight": "mlp.gate.weight", "exp_probs_b.bias": "mlp.gate.e_score_correction_bias"}
    of_layer |= {f"ffn_{p}_shexp.weight": f"shared.{p}" for p in ("gate", "up", "down")}
    if c["model_type"] == "kimi_linear":
        of_layer |= {v: k for k, v in OF_KEYED.items()}
    if c["model_type"] == "deepseek_v4":
        of_layer |= {v: k for k, v in OF_ENTRIES.items()}
    of_all = {v: k for k, v in (OF_ALL | OF_STREAMS).items()}
    out = {}
    stored = gguf.GGUFReader(path).tensors
    factors = {t.name.removesuffix(".scale"): t.data for t in stored if t.name.endswith(".scale")}
    for t in stored:
        if t.name.endswith((".scale", ".input_scale")):
            continue
        if t.tensor_type == Q.I32:
            value = t.data.astype(np.int64).reshape(shape_of(t))
        else:
            value = values_of(t, factors.get(t.name.removesuffix(".weight")))
        if t.name.startswith("blk."):
            _, layer, rest = t.name.split(".", 2)
            out[f"layers.{layer}.{of_layer[rest]}"] = value
        elif t.name != "rope_freqs.weight":  # of the config
            out[of_all[t.name]] = value
    return out


def published_value(name, t, c):
    """One tensor in the published order and meaning."""
    if c["model_type"] in plain.ALL_Q35 and "linear_attn." in name:
        t = gguf_forms.reorder_linear(name, t, c, gguf_forms.group_heads)
    if name.endswith("A_log"):
        return np.log(-t)
    if "conv1d" in name:
        return t.reshape(-1, 1, t.shape[-1])
    if name.endswith("shared_expert_gate.weight"):
        return t[None]
    if ARCHS[c["model_type"]] in IN_PAIRS and (".q_proj." in name or ".k_proj." in name):
        return gguf_forms.part_neighbours(t, c["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"])
    is_centred = c["model_type"] in (*plain.ALL_Q35, NEXT) and name.endswith("norm.weight") and "linear_attn" not in name
    return t - 1 if is_centred else t


def join_pairs(t):
    """The reverse of make_gguf.part_pairs, of a layer."""
    def turns(gate, up):
        return np.stack([gate, up], 2).reshape(len(gate), -1, *gate.shape[2:])

    stacked = "mlp.switch_mlp.{}_proj.bias"
    both, down = t.pop("mlp.experts.gate_up_proj"), t.pop("mlp.experts.down_proj")
    gate, up = np.split(both, 2, 1)
    t["mlp.experts.gate_up_proj"], t["mlp.experts.down_proj"] = turns(gate, up).swapaxes(1, 2), down.swapaxes(1, 2)
    t["mlp.experts.gate_up_proj_bias"] = turns(t.pop(stacked.format("gate")), t.pop(stacked.format("up")))
    t["mlp.experts.down_proj_bias"] = t.pop(stacked.format("down"))
    t["mlp.router.weight"] = t.pop("mlp.gate.weight")


def join_keyed(t):
    """The names and the one convolution that transformers has for Kimi's layers."""
    if "self_attn.q_conv1d.weight" in t:
        t["self_attn.conv1d.weight"] = np.concatenate([t.pop(f"self_attn.{p}_conv1d.weight") for p in "qkv"])
        for name in ("f_a_proj.weight", "f_b_proj.weight", "dt_bias", "A_log"):
            t[f"self_attn.forget_gate.{name}"] = t.pop(f"self_attn.{name}")


def join_llama4(t):
    """As transformers has it: transposed, below another name."""
    if "mlp.gate.weight" in t:
        t["mlp.router.weight"] = t.pop("mlp.gate.weight")
    return {n.replace("mlp.", "feed_forward."): value for n, value in turn_experts(t).items()}


def join_layer(t, c):
    """The tensors of a layer that the published form has in one."""
    shared = "mlp.shared_mlp" if c["model_type"] == "hunyuan_v1_moe" else "mlp.shared_expert" if c["model_type"] in (Q35, NEXT, "qwen2_moe", "llama4") else "mlp.shared_experts"
    for p in ("gate", "up", "down"):
        if f"shared.{p}" in t:
            t[f"{shared}.{p}_proj.weight"] = t.pop(f"shared.{p}")
    experts = "mlp.switch_mlp.{}_proj.weight"
    if experts.format("gate") in t:
        t["mlp.experts.gate_up_proj"] = np.concatenate([t.pop(experts.format("gate")), t.pop(experts.format("up"))], 1)
        t["mlp.experts.down_proj"] = t.pop(experts.format("down"))
    if c["model_type"] == NEXT and "linear_attn.in_proj_z.weight" in t:
        qkv, z = t.pop("linear_attn.in_proj_qkv.weight"), t.pop("linear_attn.in_proj_z.weight")
        t["linear_attn.in_proj_qkvz.weight"] = gguf_forms.join_qkvz(qkv, z, c)
    if c["model_type"] == "gpt_oss":
        join_pairs(t)
    if c["model_type"] == "ernie4_5_moe" and "mlp.gate.e_score_correction_bias" in t:
        t["mlp.gate.moe_statics.e_score_correction_bias"] = t.pop("mlp.gate.e_score_correction_bias")
    if c["model_type"] == "hunyuan_v1_moe":
        for old, new in (("query", "q_norm"), ("key", "k_norm")):
            t[f"self_attn.{old}_layernorm.weight"] = t.pop(f"self_attn.{new}.weight")
        t["mlp.gate.wg.weight"] = t.pop("mlp.gate.weight")
    if c["model_type"] == "kimi_linear":
        join_keyed(t)
    if c["model_type"] == "minimax_m2":
        t["mlp.e_score_correction_bias"] = t.pop("mlp.gate.e_score_correction_bias")
    if "self_attn.embed_q.weight" in t:
        key, value = t.pop("self_attn.embed_q.weight").transpose(0, 2, 1), t.pop("self_attn.unembed_out.weight")
        t["self_attn.kv_b_proj.weight"] = np.concatenate([key, value], 1).reshape(-1, key.shape[-1])
    return join_llama4(t) if c["model_type"] == "llama4" else t


def module_state(path, c, values_of=weights_of):
    """What values_of makes of the file's tensors, as transformers has them."""
    layers, out = {}, {}
    for name, t in read_gguf(path, c, values_of).items():
        t = published_value(name, t, c)
        if name.startswith("layers."):
            _, layer, rest = name.split(".", 2)
            layers.setdefault(layer, {})[rest] = t
        else:
            out["lm_head.weight" if name == "lm_head.weight" else f"model.{name}"] = t
    for layer, tensors in layers.items():
        out |= {f"model.layers.{layer}.{rest}": t for rest, t in join_layer(tensors, c).items()}
    return {n: torch.from_numpy(np.ascontiguousarray(t)) for n, t in out.items()}


# ---------------------------------------------------------------- cases


def module_of_cases(case):
    """The module that makes models of the case's family, of those that have one for it."""
    own = {"kimi_linear": kimi, "llama4": llama4, "deepseek_v4": deepseek_v4}.get(case["family"])
    return own or (grouped if is_grouped(case) else deepseek)


def random_state(case, seed):
    if is_qwen(case):
        return plain.random_state(case, plain.make_module(case), seed)[0]
    module = module_of_cases(case)
    if module is deepseek_v4:
        return modules.random_state(module.make_module(case), module.drawer(seed, case["config"]))
    draw = grouped.drawer(seed, True) if case["family"] == "gpt_oss" else module.drawer(seed)
    return module.random_state(case, draw)


def config_of(case):
    text = plain.text_config(case) if is_qwen(case) else case["config"]
    return {**text, "model_type": case["family"], **case.get("extra", {})}


def converted(case, state, c):
    """As gguf_forms.read_checkpoint gives tensors."""
    out = {}
    published = kimi.published(case, state) if case["family"] == "kimi_linear" else state
    for name, t in published.items():
        name, t = gguf_forms.plain_name(name), t.numpy()
        is_centred = c["model_type"] in (*plain.ALL_Q35, NEXT) and name.endswith("norm.weight") and "linear_attn" not in name
        out[name] = t + 1 if is_centred else t
    return out


PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_text(folder):
    """A tokenizer of bytes, and what stands beside it."""
    printable = [b for b in range(256) if 33 <= b < 127 or 161 <= b < 173 or b >= 174]
    others = [b for b in range(256) if b not in printable]
    alphabet = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    vocab = {alphabet[b]: b for b in range(256)} | {"he": 256, "ll": 257, "hell": 258}
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    tokenizer = {
        "model": {"type": "BPE", "vocab": vocab, "merges": ["h e", "l l", "he ll"]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split]},
        "added_tokens": [{"id": 259 + i, "content": t, "special": True} for i, t in enumerate(specials)],
    }
    config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": TEMPLATE}
    for name, value in (("tokenizer", tokenizer), ("tokenizer_config", config), ("generation_config", {"temperature": 0.5, "top_k": 7})):
        (folder / f"{name}.json").write_text(json.dumps(value))


def module_of(case, state):
    return (plain if is_qwen(case) else module_of_cases(case)).module_of(case, state)


def golden_of(case, state, tokens):
    hidden, logits, note = evaluate(module_of(case, state), tokens)
    if case["family"] == "deepseek_v4" and deepseek_v4.index_margin(case, state, tokens) < deepseek_v4.MIN_INDEX_MARGIN:
        note["router_margin"] = 0.0  # another seed
    return hidden, logits, note


def make_case(name, out, says=True):
    case, folder = {"form": "hf", "dtype": "F32", **CASES[name]}, out / name
    c = config_of(case)
    for seed in range(1, 200):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        tokens = [int(t) for t in rng.integers(0, c["vocab_size"], plain.N_TOKENS)]
        path = folder / "model.gguf"
        with tempfile.TemporaryDirectory() as text:
            if case.get("has_text"):
                write_text(Path(text))
            tensors = converted(case, random_state(case, seed), c)
            write_gguf(path, c, tensors, case["kind"], text, others=case.get("others", ()),
                       alone=case.get("alone", ()))
        hidden, logits, facts = golden_of(case, module_state(path, c), tokens)
        if usable(facts):
            break
    else:
        raise SystemExit(f"{name}: no seed gives decisive routers and logits")
    note = {"made_by": "tools/make_gguf_goldens.py", "transformers": transformers.__version__, "seed": seed, **facts}
    plain.write_golden(folder / "golden", tokens, hidden, logits, note, None)
    if says:
        print(f"{name}: seed {seed}, {path.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = Path(__file__).resolve().parent.parent / "tests" / "model" / "data"
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in args.cases or CASES:
        make_case(name, args.out)


if __name__ == "__main__":
    main()
