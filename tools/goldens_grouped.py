# SPDX-License-Identifier: MIT
"""The cases for make_goldens.py of families of grouped-query softmax attention, dense and with experts: their shapes, random
weights and stored forms. The golden values come from goldens_run.evaluate like all others; of every case so many wrong models
are evaluated beside the right one, each of which must differ by far more than the tests allow."""
import copy
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

import goldens_forms as forms
import goldens_module as modules
import goldens_packed as packed
from goldens_run import run

# family: classes of transformers, and how published checkpoints call experts (see published_name)
FAMILIES = {
    "qwen2": ("Qwen2", "plain"),
    "qwen3": ("Qwen3", "plain"),
    "llama": ("Llama", "plain"),
    "mistral": ("Mistral", "plain"),
    "ministral3": ("Ministral3", "plain"),
    "qwen2_moe": ("Qwen2Moe", "plain"),
    "qwen3_moe": ("Qwen3Moe", "plain"),
    "glm4_moe": ("Glm4Moe", "plain"),
    "mixtral": ("Mixtral", "w123"),
    "minimax_m2": ("MiniMaxM2", "w123"),
    "gpt_oss": ("GptOss", "plain"),
    "mistral3": ("Mistral3", "vision"),
    "glm4v_moe": ("Glm4vMoe", "vision"),
    "qwen3_vl": ("Qwen3VL", "vision"),
    "qwen3_vl_moe": ("Qwen3VLMoe", "vision"),
    "ernie4_5_moe": ("Ernie4_5_Moe", "ernie"),
    "hunyuan_v1_moe": ("HunYuanMoEV1", "plain"),
    "deepseek_v32": ("DeepseekV32", "plain"),
    "glm_moe_dsa": ("GlmMoeDsa", "plain"),
    "glm4_moe_lite": ("Glm4MoeLite", "plain"),
    "kimi_k25": ("Kimi_K25", "vision"),
}


def shape(hidden, layers, heads, kv, head_dim, vocab, **more):
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": head_dim,
        "vocab_size": vocab,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        **more,
    }


def experts(n, k, inter, **more):
    return {"num_experts": n, "num_experts_per_tok": k, "moe_intermediate_size": inter, **more}


def local_experts(n, k, inter, **more):
    return {"num_local_experts": n, "num_experts_per_tok": k, "intermediate_size": inter, **more}


def glm(n, k, inter, dense, groups=1, kept=1, **more):
    return {
        "n_routed_experts": n, "num_experts_per_tok": k, "moe_intermediate_size": inter, "intermediate_size": dense,
        "n_group": groups, "topk_group": kept, "n_shared_experts": 1, "first_k_dense_replace": 1, "norm_topk_prob": True,
        "routed_scaling_factor": 2.5, "partial_rotary_factor": 0.5, "rope_theta": 1000000, "rope_scaling": None,
        "attention_bias": True, "use_qk_norm": True, "num_nextn_predict_layers": 1, **more,
    }


def oss(n, k, inter, window, truncate=False, **more):
    return {
        "num_local_experts": n, "num_experts_per_tok": k, "intermediate_size": inter, "sliding_window": window, "attention_bias": True,
        "rope_theta": 150.0, "rope_scaling": {
            "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": truncate,
            "original_max_position_embeddings": 16,
        },
        "rms_norm_eps": 1e-5, "swiglu_limit": 7.0, "swiglu_alpha": 1.702, **more,
    }


def latent(hidden, layers, heads, q_lora, kv_lora, nope, rope, v_dim, dense, inter, n, k, groups, kept, vocab, **more):
    out = shape(hidden, layers, heads, heads, rope, vocab)
    del out["head_dim"]
    return {
        **out, "q_lora_rank": q_lora, "kv_lora_rank": kv_lora, "qk_nope_head_dim": nope, "qk_rope_head_dim": rope, "v_head_dim": v_dim,
        "intermediate_size": dense, "moe_intermediate_size": inter, "n_routed_experts": n, "num_experts_per_tok": k, "n_group": groups,
        "topk_group": kept, "n_shared_experts": 1, "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
        "attention_bias": False, "index_topk": 2048, "index_head_dim": 2 * rope, "index_n_heads": 4, "scoring_func": "sigmoid",
        "topk_method": "noaux_tc", **more,
    }


def dense_latent(*sizes, **more):
    """Without an indexer."""
    return {k: v for k, v in latent(*sizes, **more).items() if not k.startswith("index_")}


TIED = {"tie_word_embeddings": True}
SPARSE = {"decoder_sparse_step": 1, "mlp_only_layers": [], "intermediate_size": 64, "rope_scaling": None}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}

# Sizes as in make_goldens: unlike one another, and often no multiple of a SIMD width.
CASES = {
    "qwen3_moe_bf16": dict(
        family="qwen3_moe", form="hf", dtype="BF16", shards=2,
        config=shape(72, 3, 6, 2, 20, 144, rope_theta=1000000.0, norm_topk_prob=True, **SPARSE, **experts(12, 3, 24)),
    ),
    # biases of all projections, layers without experts among the others, a tied head
    "qwen3_moe_dense_layers_f32": dict(
        family="qwen3_moe", form="hf", dtype="F32",
        config=shape(40, 4, 3, 1, 16, 131, rope_theta=10000.0, norm_topk_prob=False, attention_bias=True,
                     tie_word_embeddings=True, **{**SPARSE, "mlp_only_layers": [2], "decoder_sparse_step": 2}, **experts(7, 2, 20)),
    ),
    "qwen3_moe_yarn_fp8": dict(
        family="qwen3_moe", form="fp8", dtype="BF16",
        config=shape(136, 2, 4, 2, 40, 128, norm_topk_prob=True, **experts(6, 2, 132), **{
            **SPARSE, "rope_theta": 5000.0,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 8, "beta_slow": 0.5},
        }),
    ),
    "qwen3_moe_mlx_4bit": dict(
        family="qwen3_moe", form="mlx", dtype="BF16", bits=4, group=64, fewer=2,
        config=shape(128, 2, 8, 2, 16, 160, rope_theta=1000000.0, norm_topk_prob=True, **SPARSE, **experts(10, 4, 64)),
    ),
    "qwen3_moe_gptq": dict(
        family="qwen3_moe", form="gptq_act_order", dtype="F16",
        config=shape(96, 2, 4, 2, 16, 128, rope_theta=1000000.0, norm_topk_prob=True, **SPARSE, **experts(7, 2, 64)),
    ),
    "qwen3_moe_gptq_3bit": dict(
        family="qwen3_moe", form="gptq_3bit", dtype="F16",
        config=shape(64, 2, 4, 2, 16, 128, rope_theta=1000000.0, norm_topk_prob=True, **SPARSE, **experts(6, 2, 96)),
    ),
    "qwen3_moe_awq": dict(
        family="qwen3_moe", form="awq", dtype="F16",
        config=shape(64, 2, 4, 2, 16, 136, rope_theta=1000000.0, norm_topk_prob=True, **SPARSE, **experts(8, 3, 96)),
    ),
    "qwen3_moe_int8_points": dict(
        family="qwen3_moe", form="points_reordered", dtype="BF16",
        config=shape(64, 2, 4, 2, 16, 128, rope_theta=1000000.0, norm_topk_prob=True, **SPARSE, **experts(5, 2, 32)),
    ),
    "qwen2_moe_gptq_v2": dict(
        family="qwen2_moe", form="gptq_v2", dtype="F16",
        config=shape(128, 2, 4, 4, 16, 128, rope_theta=1000000.0, norm_topk_prob=False, shared_expert_intermediate_size=64,
                     qkv_bias=True, use_sliding_window=False, sliding_window=None, max_window_layers=21, **SPARSE, **experts(5, 2, 64)),
    ),
    "qwen2_moe_int6_points": dict(
        family="qwen2_moe", form="int6_points", dtype="BF16",
        config=shape(64, 2, 4, 4, 16, 128, rope_theta=1000000.0, norm_topk_prob=False, shared_expert_intermediate_size=64,
                     qkv_bias=True, use_sliding_window=False, sliding_window=None, max_window_layers=21, **SPARSE, **experts(6, 2, 64)),
    ),
    "qwen2_moe_bf16": dict(
        family="qwen2_moe", form="hf", dtype="BF16", shards=2,
        config=shape(56, 3, 4, 4, 14, 140, rope_theta=1000000.0, norm_topk_prob=False, shared_expert_intermediate_size=44,
                     qkv_bias=True, use_sliding_window=False, sliding_window=None, max_window_layers=21, **SPARSE, **experts(9, 3, 28)),
    ),
    "qwen2_window_f16": dict(
        family="qwen2", form="hf", dtype="F16",
        config=shape(48, 3, 6, 2, 12, 128, rope_theta=10000.0, intermediate_size=100, use_sliding_window=True, sliding_window=9,
                     max_window_layers=1, tie_word_embeddings=True),
    ),
    "qwen3_dense_bf16": dict(
        family="qwen3", form="hf", dtype="BF16",
        config=shape(64, 2, 4, 2, 24, 136, rope_theta=1000000.0, intermediate_size=90, attention_bias=False, tie_word_embeddings=True),
    ),
    "qwen3_dense_mlx_4bit": dict(
        family="qwen3", form="mlx", dtype="BF16", bits=4, group=32,
        config=shape(64, 2, 4, 2, 32, 128, rope_theta=1000000.0, intermediate_size=96, attention_bias=False),
    ),
    "llama3_f16": dict(
        family="llama", form="hf", dtype="F16",
        config=shape(60, 2, 5, 1, 20, 129, rope_theta=100.0, rope_scaling=LLAMA3, intermediate_size=76, attention_bias=False, mlp_bias=False),
    ),
    # no head_dim, as older configs
    "mistral_window_bf16": dict(
        family="mistral", form="hf", dtype="BF16", drop=["head_dim"],
        config=shape(64, 2, 4, 2, 16, 128, rope_theta=10000.0, intermediate_size=84, sliding_window=11),
    ),
    "mixtral_bf16": dict(
        family="mixtral", form="hf", dtype="BF16", shards=2, drop=["head_dim"],
        config=shape(72, 2, 4, 2, 18, 130, rope_theta=1000000.0, sliding_window=None, rms_norm_eps=1e-5, **local_experts(6, 2, 40)),
    ),
    "mixtral_gptq_8bit": dict(
        family="mixtral", form="gptq_8bit", dtype="F16", drop=["head_dim"],
        config=shape(96, 2, 4, 2, 24, 132, rope_theta=1000000.0, sliding_window=None, rms_norm_eps=1e-5, **local_experts(4, 2, 32)),
    ),
    "mixtral_int4_points": dict(
        family="mixtral", form="points", dtype="BF16", drop=["head_dim"],
        config=shape(64, 2, 4, 2, 16, 130, rope_theta=1000000.0, sliding_window=None, rms_norm_eps=1e-5, **local_experts(5, 2, 96)),
    ),
    "mixtral_int4_channel": dict(
        family="mixtral", form="int4_channel", dtype="F16", drop=["head_dim"],
        config=shape(96, 2, 4, 2, 24, 130, rope_theta=1000000.0, sliding_window=None, rms_norm_eps=1e-5, **local_experts(3, 2, 192)),
    ),
    "mixtral_mlx_4bit": dict(
        family="mixtral", form="mlx", dtype="BF16", bits=4, group=64,
        config=shape(128, 2, 4, 1, 32, 144, rope_theta=1000000.0, sliding_window=None, **local_experts(5, 2, 64)),
    ),
    "glm4_moe_int8_bytes": dict(
        family="glm4_moe", form="bytes", dtype="BF16",
        config=shape(64, 2, 4, 2, 16, 128, **glm(6, 2, 32, 96)),
    ),
    "glm4_moe_int8_bytes_points": dict(
        family="glm4_moe", form="bytes_points", dtype="F16",
        config=shape(96, 2, 4, 2, 16, 128, **glm(5, 2, 64, 128)),
    ),
    "glm4_moe_bf16": dict(
        family="glm4_moe", form="hf", dtype="BF16", mtp=True,
        config=shape(68, 3, 6, 2, 24, 140, rms_norm_eps=1e-5, **glm(12, 3, 20, 84)),
    ),
    # as 4.5-Air, but for the groups: no norms of heads
    "glm4_moe_groups_f16": dict(
        family="glm4_moe", form="hf", dtype="F16",
        config=shape(44, 3, 4, 2, 20, 128, **glm(12, 3, 24, 60, 4, 2, use_qk_norm=False, norm_topk_prob=False, n_shared_experts=2)),
    ),
    "glm4_moe_mlx_4bit": dict(
        family="glm4_moe", form="mlx", dtype="BF16", bits=4, group=64,
        config=shape(128, 2, 8, 2, 16, 128, **glm(8, 2, 64, 128)),
    ),
    "minimax_m2_fp8": dict(
        family="minimax_m2", form="fp8", dtype="BF16",
        config=shape(132, 2, 6, 2, 24, 128, rope_theta=5000000.0, rotary_dim=12, use_qk_norm=True, qk_norm_type="per_layer",
                     scoring_func="sigmoid", use_routing_bias=True, **local_experts(10, 3, 136)),
    ),
    "minimax_m2_f32": dict(
        family="minimax_m2", form="hf", dtype="F32",
        config=shape(40, 2, 3, 1, 16, 128, rope_theta=10000.0, rotary_dim=8, use_qk_norm=True, **local_experts(7, 2, 18)),
    ),
    "minimax_m2_mlx_4bit": dict(
        family="minimax_m2", form="mlx", dtype="BF16", bits=4, group=64,
        config=shape(128, 2, 4, 2, 32, 128, rope_theta=5000000.0, rotary_dim=16, use_qk_norm=True, scoring_func="sigmoid",
                     shared_intermediate_size=0, **local_experts(8, 3, 64)),
    ),
    "ernie4_5_moe_bf16": dict(
        family="ernie4_5_moe", form="hf", dtype="BF16", drop=["head_dim"],
        config=shape(72, 3, 4, 2, 18, 132, rope_theta=500000.0, intermediate_size=88, use_bias=False, moe_intermediate_size=28, moe_k=3,
                     moe_num_experts=10, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=-1,
                     moe_layer_interval=1, **{**TIED, "rms_norm_eps": 1e-5}),
    ),
    "ernie4_5_moe_interval_f16": dict(
        family="ernie4_5_moe", form="hf", dtype="F16",
        config=shape(48, 5, 3, 1, 16, 128, rope_theta=10000.0, intermediate_size=60, use_bias=False, moe_intermediate_size=20, moe_k=2,
                     moe_num_experts=7, moe_num_shared_experts=1, moe_layer_start_index=1, moe_layer_end_index=3, moe_layer_interval=2),
    ),
    "hunyuan_v1_moe_bf16": dict(
        family="hunyuan_v1_moe", form="hf", dtype="BF16",
        config=shape(64, 2, 4, 2, 20, 130, rope_theta=10000.0, rope_scaling={"type": "dynamic", "factor": 1.0, "alpha": 50.0},
                     intermediate_size=36, num_experts=9, moe_topk=3, use_qk_norm=True, **TIED),
    ),
    # the context ends where the indexer would begin to choose
    "deepseek_v32_bf16": dict(
        family="deepseek_v32", form="hf", dtype="BF16",
        config=latent(72, 3, 4, 24, 32, 16, 8, 12, 112, 24, 12, 3, 4, 2, 144, rope_theta=10000.0, rope_scaling={
            "type": "yarn", "factor": 40, "original_max_position_embeddings": 32, "mscale": 1.0, "mscale_all_dim": 1.0,
            "beta_fast": 4, "beta_slow": 0.25}),
    ),
    "glm_moe_dsa_f16": dict(
        family="glm_moe_dsa", form="hf", dtype="F16",
        config=latent(56, 3, 3, 20, 24, 14, 12, 18, 80, 20, 10, 2, 1, 1, 136, rope_theta=1000000.0, rms_norm_eps=1e-5),
    ),
    # the indexer chooses 13 or 9 of what there is
    "deepseek_v32_index_f32": dict(
        family="deepseek_v32", form="hf", dtype="F32",
        config=latent(40, 3, 3, 20, 20, 12, 8, 10, 56, 12, 8, 2, 4, 2, 128, rope_theta=10000.0, rope_scaling=None, index_topk=13,
                      index_n_heads=16, index_head_dim=20),
    ),
    "glm_moe_dsa_index_bf16": dict(
        family="glm_moe_dsa", form="hf", dtype="BF16",
        config=latent(48, 3, 3, 20, 24, 14, 12, 18, 64, 16, 8, 2, 1, 1, 132, rope_theta=1000000.0, rms_norm_eps=1e-5, index_topk=9,
                      index_n_heads=12, index_head_dim=33),
    ),
    # GLM-4.7-Flash: V3's attention and router, with its multi-token-prediction layer left out
    "glm4_moe_lite_bf16": dict(
        family="glm4_moe_lite", form="hf", dtype="BF16", shards=2, mtp=True, drop=["first_k_dense_replace"],
        config=dense_latent(72, 3, 5, 24, 32, 24, 8, 32, 112, 24, 16, 4, 1, 1, 150, rope_theta=1000000.0, rms_norm_eps=1e-5,
                            routed_scaling_factor=1.8, num_nextn_predict_layers=1),
    ),
    # as transformers writes it: a list says which layers are dense
    "glm4_moe_lite_types_f16": dict(
        family="glm4_moe_lite", form="hf", dtype="F16", drop=["first_k_dense_replace"],
        config=dense_latent(44, 4, 3, 20, 24, 18, 10, 22, 60, 20, 9, 2, 3, 2, 131, rope_theta=5000.0, norm_topk_prob=False,
                            routed_scaling_factor=1.3, mlp_layer_types=["dense", "sparse", "dense", "sparse"]),
    ),
    # the text tower of Kimi-K2.5, which is Kimi-K2 below another name
    "kimi_k25_bf16": dict(
        family="kimi_k25", form="hf", dtype="BF16", shards=2,
        config=dense_latent(56, 2, 2, 24, 32, 16, 8, 16, 96, 20, 24, 6, 1, 1, 140, rope_theta=50000.0, routed_scaling_factor=2.827,
                            rms_norm_eps=1e-5, rope_scaling={"type": "yarn", "factor": 32.0, "original_max_position_embeddings": 32,
                                                             "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}),
    ),
    # text towers of models that see: what sees is left out
    "mistral3_bf16": dict(
        family="mistral3", form="hf", dtype="BF16",
        config=shape(56, 2, 4, 2, 16, 130, rope_theta=1000000.0, intermediate_size=72, sliding_window=None),
    ),
    # Ministral 3: queries that grow from the sixteenth position on
    "mistral3_growth_f16": dict(
        family="mistral3", text_type="ministral3", form="hf", dtype="F16",
        config=shape(40, 2, 4, 2, 16, 128, intermediate_size=60, sliding_window=None, rope_parameters={
            "type": "yarn", "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "original_max_position_embeddings": 16,
            "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}),
    ),
    "glm4v_moe_bf16": dict(
        family="glm4v_moe", form="hf", dtype="BF16",
        config={**shape(48, 3, 4, 2, 24, 128, rms_norm_eps=1e-5, **glm(8, 2, 20, 60, use_qk_norm=False)),
                "rope_scaling": {"rope_type": "default", "mrope_section": [2, 2, 2], "partial_rotary_factor": 0.5}},
    ),
    "qwen3_vl_f16": dict(
        family="qwen3_vl", form="hf", dtype="F16",
        config=shape(40, 2, 4, 2, 16, 128, rope_theta=5000000.0, intermediate_size=52, attention_bias=False,
                     rope_scaling={"rope_type": "default", "mrope_interleaved": True, "mrope_section": [3, 3, 2]}),
    ),
    # experts transposed, as published
    "qwen3_vl_moe_turned_bf16": dict(
        family="qwen3_vl_moe", form="turned", dtype="BF16",
        config=shape(40, 2, 4, 2, 16, 128, rope_theta=5000000.0, attention_bias=False, **experts(6, 2, 27), intermediate_size=52,
                     decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True,
                     rope_scaling={"rope_type": "default", "mrope_interleaved": True, "mrope_section": [3, 3, 2]}),
    ),
    # the same as transformers saves them, where the first tensor's shape does not tell
    "qwen3_vl_moe_square_f16": dict(
        family="qwen3_vl_moe", form="turned", dtype="F16", stays=True,
        config=shape(32, 2, 4, 2, 16, 128, rope_theta=5000000.0, attention_bias=False, **experts(6, 2, 16), intermediate_size=52,
                     decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True,
                     rope_scaling={"rope_type": "default", "mrope_interleaved": True, "mrope_section": [3, 3, 2]}),
    ),
    # sinks, windows in every second layer, biases everywhere, an activation whose limits are reached; as mlx-lm converts without
    # quantising
    "gpt_oss_bf16": dict(
        family="gpt_oss", form="mlx_plain", dtype="BF16",
        config=shape(72, 3, 6, 2, 20, 140, **oss(9, 3, 40, 7, swiglu_limit=1.25)),
    ),
    "gpt_oss_types_f32": dict(
        family="gpt_oss", form="mlx_plain", dtype="F32",
        config=shape(40, 2, 4, 4, 16, 128, **oss(6, 2, 300, 5, layer_types=["full_attention", "sliding_attention"], swiglu_alpha=1.1)),
    ),
    # as published: MXFP4, rows of gate and up taking turns; the embedding, the head and attention in BF16
    "gpt_oss_mxfp4": dict(
        family="gpt_oss", form="mxfp4", dtype="BF16", shards=2,
        config=shape(64, 2, 6, 2, 18, 132, **oss(7, 3, 96, 9, swiglu_limit=1.5)),
    ),
    # as programs that train write it, and transformers itself: experts transposed
    "gpt_oss_turned_bf16": dict(
        family="gpt_oss", form="turned", dtype="BF16",
        config=shape(44, 2, 4, 2, 12, 128, **oss(6, 3, 28, 7, swiglu_limit=1.25)),
    ),
    # mlx-lm truncates the ramp of YaRN whatever the config says
    "gpt_oss_mlx_4bit": dict(
        family="gpt_oss", form="mlx", dtype="BF16", bits=4, group=32,
        config=shape(64, 2, 8, 2, 16, 128, **oss(8, 4, 96, 11, truncate=True)),
    ),
}


# ---------------------------------------------------------------- random weights


def drawer(seed, oss=False):
    """Weights that make attention far from uniform, and every bias matter."""
    gains = {"mlp.gate.weight": 2.0, "mlp.router.weight": 2.0, "lm_head.weight": 2.0, "o_proj.weight": 2.0, "q_proj.weight": 1.4, "q_b_proj.weight": 1.6, "kv_b_proj.weight": 1.3}

    def draw(name, size):
        normal = modules.normal_of(seed, name, size)
        if name.endswith("e_score_correction_bias"):
            value = (0.05 if "moe_statics" in name else 0.15) * normal
        elif name.endswith((".bias", "_bias")):
            value = 0.3 * normal
        elif name.endswith("sinks"):
            value = normal
        elif name.endswith(("experts.gate_up_proj", "experts.down_proj")) and oss:
            value = modules.matrix_of(normal, modules.gain_of(name, {}), size[-2])
        elif "k_norm.bias" in name:
            value = 0.3 * normal
        elif len(size) == 1:
            value = 1.0 + 0.15 * normal
        elif "embed_tokens" in name:
            value = normal
        else:
            value = modules.matrix_of(normal, modules.gain_of(name, gains))
        return modules.tensor_of(value)

    return draw


def classes(family):
    name = FAMILIES[family][0]
    kind = "ForConditionalGeneration" if FAMILIES[family][1] == "vision" else "ForCausalLM"
    return getattr(transformers, name + "Config"), getattr(transformers, name + kind)


def nested_config(case, text):
    """Of a model with a vision tower, the least there can be of that."""
    names = {"mistral3": "mistral", "glm4v_moe": "glm4v_moe_text", "qwen3_vl": "qwen3_vl_text", "qwen3_vl_moe": "qwen3_vl_moe_text",
             "kimi_k25": "kimi_k2"}
    n, text = text["hidden_size"], {"model_type": case.get("text_type", names[case["family"]]), **text}
    vision = {"depth": 1, "num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "num_attention_heads": 2,
              "out_hidden_size": n, "image_size": 28, "patch_size": 14, "deepstack_visual_indexes": [0], "num_position_embeddings": 4}
    if case["family"] == "mistral3":
        vision = {k: v for k, v in vision.items() if "head" in k or "size" in k or k == "num_hidden_layers"} | {"model_type": "pixtral"}
        vision = {k: v for k, v in vision.items() if k not in ("num_heads", "out_hidden_size")}
    return {"tie_word_embeddings": text["tie_word_embeddings"], "text_config": text, "vision_config": vision}


def make_config(case, **changes):
    if FAMILIES[case["family"]][1] == "vision":
        config = classes(case["family"])[0](**nested_config(case, copy.deepcopy({**case["config"], **changes})))
        modules.eager(config.text_config)
        return modules.eager(config)
    return modules.eager(classes(case["family"])[0](**copy.deepcopy({**case["config"], **changes})))


def make_module(case, **changes):
    return modules.make(classes(case["family"])[1], make_config(case, **changes))


def module_of(case, state, **changes):
    return modules.loaded(case, make_module(case, **changes), state)


# ---------------------------------------------------------------- sensitivity


def mutants(case, state):
    """What a wrong implementation might compute: name, changes of the config, weights."""
    c = case["config"]

    for name, suffixes, change in (
        ("head_norms", ("q_norm.weight", "k_norm.weight", "query_layernorm.weight", "key_layernorm.weight"), torch.ones_like),
        ("router_bias", ("e_score_correction_bias",), torch.zeros_like),
        ("q_bias", ("q_proj.bias",), torch.zeros_like),
        ("v_bias", ("v_proj.bias",), torch.zeros_like),
        ("o_bias", ("o_proj.bias",), torch.zeros_like),
        ("sinks", ("self_attn.sinks",), lambda t: t - 3.0),
        ("router_logit_bias", ("mlp.router.bias",), torch.zeros_like),
        ("gate_up_bias", ("gate_up_proj_bias",), torch.zeros_like),
        ("down_bias", ("down_proj_bias",), torch.zeros_like),
        ("no_queries", ("q_proj.weight",), torch.zeros_like),
    ):
        if any(n.endswith(suffixes) and ".indexer." not in n and ".vision_tower." not in n for n in state):
            yield name, {}, modules.with_weights(state, suffixes, change)
    if c.get("sliding_window"):
        yield "window", {"sliding_window": c["sliding_window"] + 2}, state
    if "swiglu_alpha" in c:
        yield "alpha", {"swiglu_alpha": 1.0}, state
        if c["swiglu_limit"] < 2:
            yield "limit", {"swiglu_limit": 7.0}, state
    if "norm_topk_prob" in c and case["family"] not in ("mixtral", "qwen3_vl_moe"):
        yield "topk_sum", {"norm_topk_prob": not c["norm_topk_prob"]}, state
    if c.get("rope_scaling") and "mrope_section" not in c["rope_scaling"]:
        yield "no_scaling", {"rope_scaling": None}, state
    if "rotary_dim" in c:
        yield "whole_rotation", {"rotary_dim": c["head_dim"]}, state
    if "partial_rotary_factor" in c and "mrope_section" not in (c["rope_scaling"] or {}):
        yield "whole_rotation", {"partial_rotary_factor": 1.0}, state
    if c.get("index_topk", 2048) < 70:
        yield "index_topk", {"index_topk": c["index_topk"] + 1}, state
        yield "index_norm", {}, modules.with_weights(state, ("indexer.k_norm.bias",), torch.zeros_like)
        yield "index_weights", {}, modules.with_weights(state, ("indexer.weights_proj.weight",), torch.abs)
    if "kv_lora_rank" in c:  # the indexer's weights are of no consequence
        yield "no_latents", {}, modules.with_weights(state, ("kv_a_proj_with_mqa.weight",), torch.zeros_like)
    if "rope_parameters" in c:  # Ministral 3
        yield "growth", {"rope_parameters": {**c["rope_parameters"], "llama_4_scaling_beta": 0.0}}, state
        yield "theta", {"rope_parameters": {**c["rope_parameters"], "rope_theta": 100.0}}, state
        return
    yield "theta", {"rope_theta": 100 * c["rope_theta"]}, state


def evaluate_with_mutants(case, state, tokens):
    return modules.evaluate_with_mutants(module_of, mutants, case, state, tokens)


# ---------------------------------------------------------------- forms


def published_config(case):
    dtype = modules.DTYPES[case["dtype"]]
    name = FAMILIES[case["family"]][0] + "ForCausalLM"
    out = {"architectures": [name], "model_type": case["family"], "torch_dtype": dtype, **case["config"]}
    if FAMILIES[case["family"]][1] == "vision":
        out = {"architectures": [FAMILIES[case["family"]][0] + "ForConditionalGeneration"], "model_type": case["family"],
               "torch_dtype": dtype, **nested_config(case, case["config"])}
    for key in case.get("drop", ()):
        del out[key]
    if case["form"] in packed.FORMS:
        out["quantization_config"] = packed.FORMS[case["form"]].config
    if case["form"] == "fp8":
        out["quantization_config"] = {
            "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128],
        }
    return out


def published_name(case, name):
    """Mixtral's and MiniMax's experts and routers, and ERNIE's correction."""
    if FAMILIES[case["family"]][1] == "ernie":
        return name.replace("mlp.gate.moe_statics.", "mlp.moe_statics.")
    if FAMILIES[case["family"]][1] != "w123":
        return name
    name = name.replace(".mlp.", ".block_sparse_moe.")
    for ours, theirs in (("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")):
        name = name.replace(f".{ours}.", f".{theirs}.") if ".experts." in name else name
    return name


def module_name(case, name):
    """The reverse."""
    if FAMILIES[case["family"]][1] != "w123":
        return name
    name = name.replace(".block_sparse_moe.", ".mlp.")
    for ours, theirs in (("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")):
        name = name.replace(f".{theirs}.", f".{ours}.")
    return name


def random_state(case, draw):
    state = {}
    tied = case["config"]["tie_word_embeddings"]
    for name, t in make_module(case).state_dict().items():
        value = draw(name, tuple(t.shape))
        if case["form"] == "fp8" and forms.is_fp8(name):
            value = value * forms.block_factors(value.shape, draw(name + "/blocks", (64, 64)))
        if not (tied and name == "lm_head.weight"):
            state[name] = value
    return state


def mtp_tensors(case, tensors, draw):
    """GLM's multi-token-prediction layer as it is published: one more layer like the last, and what joins and ends it."""
    n, h, v = (case["config"][k] for k in ("num_hidden_layers", "hidden_size", "vocab_size"))
    last, base = f"model.layers.{n - 1}.", f"model.layers.{n}."
    names = [k[len(last) :] for k in tensors if k.startswith(last)]
    names = [k for k in names if not k.startswith("mlp.experts.") or k.split(".")[2] in "01"]
    sizes = {"embed_tokens": (v, h), "enorm": (h,), "hnorm": (h,), "eh_proj": (h, 2 * h), "shared_head.norm": (h,), "shared_head.head": (v, h)}
    return {base + k: tensors[last + k].flip(0) for k in names} | {f"{base}{k}.weight": draw(base + k, size) for k, size in sizes.items()}


def write_published(case, folder, state, draw):
    """The raw Hugging Face form; returns the tensors as stored, in the module's names."""
    tensors = forms.split_experts(state)
    if case.get("mtp"):
        tensors |= mtp_tensors(case, tensors, draw)
    raw, ours = {}, {}
    for name, t in tensors.items():
        stored = published_name(case, name)
        if case["form"] == "fp8" and forms.is_fp8(name):
            raw[stored], raw[stored + "_scale_inv"] = forms.fp8_of(t, "F32")
            ours[name], ours[name + "_scale_inv"] = raw[stored], raw[stored + "_scale_inv"]
        elif case["form"] in packed.FORMS and packed.FORMS[case["form"]].takes(name):
            form, module, ends = packed.FORMS[case["form"]], name.removesuffix(".weight"), len(stored.removesuffix(".weight"))
            parts = form.store(stored.removesuffix(".weight"), t)
            raw |= parts
            ours[name] = forms.raw_of(form.value(module, {module + n[ends:]: r for n, r in parts.items()}), "F32")
        else:
            raw[stored] = ours[name] = forms.raw_of(t, "F32" if name.endswith("e_score_correction_bias") else case["dtype"])
    forms.write_json(folder / "config.json", published_config(case))
    forms.write_checkpoint(folder, dict(sorted(raw.items())), case.get("shards", 1))
    return ours


def load_published(case, folder):
    """As transformers itself reads the directory."""
    config = classes(case["family"])[0].from_pretrained(folder)
    config._experts_implementation = "eager"
    module, info = classes(case["family"])[1].from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"] and not info.get("mismatched_keys"), info
    return module.eval()


def oss_to_mlx(state):
    """gpt-oss's experts, which transformers has transposed and gate and up taking turns, as mlx-lm has them."""
    out = {}
    for name, t in state.items():
        if name.endswith("experts.gate_up_proj"):
            base = name.removesuffix("gate_up_proj")
            out[base + "gate_proj.weight"] = t[..., ::2].transpose(1, 2).contiguous()
            out[base + "up_proj.weight"] = t[..., 1::2].transpose(1, 2).contiguous()
        elif name.endswith("gate_up_proj_bias"):
            base = name.removesuffix("gate_up_proj_bias")
            out[base + "gate_proj.bias"], out[base + "up_proj.bias"] = t[..., ::2].contiguous(), t[..., 1::2].contiguous()
        elif name.endswith("experts.down_proj"):
            out[name + ".weight"] = t.transpose(1, 2).contiguous()
        elif name.endswith("down_proj_bias"):
            out[name.replace("down_proj_bias", "down_proj.bias")] = t
        else:
            out[name] = t
    return out


def oss_of_mlx(tensors):
    """The reverse."""
    out = dict(tensors)
    for name in tensors:
        for end, turned in ((".weight", True), (".bias", False)):
            if not name.endswith("experts.gate_proj" + end):
                continue
            base = name.removesuffix("gate_proj" + end)
            parts = [out.pop(f"{base}{p}_proj{end}") for p in ("gate", "up", "down")]
            parts = [p.transpose(1, 2) if turned else p for p in parts]
            both, tail = torch.stack(parts[:2], -1).flatten(-2), "" if turned else "_bias"
            out[f"{base}gate_up_proj{tail}"], out[f"{base}down_proj{tail}"] = both.contiguous(), parts[2].contiguous()
    return out


def write_oss(case, folder, state):
    raw = {n: forms.raw_of(t, case["dtype"]) for n, t in oss_to_mlx(state).items()}
    forms.write_json(folder / "config.json", published_config(case))
    forms.write_checkpoint(folder, dict(sorted(raw.items())), 1, "mlx")


def mxfp4_of(t):
    """Blocks and scales of [experts, rows, columns], as gpt-oss stores them: 32 columns share a power of two."""
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    x = t.numpy().reshape(*t.shape[:-1], -1, 32)
    exponent = np.floor(np.log2(np.abs(x).max(-1))) - 2
    scaled = x / np.exp2(exponent)[..., None]
    codes = np.abs(np.abs(scaled)[..., None] - values).argmin(-1) | np.where(scaled < 0, 8, 0)
    blocks = (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8)
    return forms.Raw("U8", list(blocks.shape), blocks.tobytes()), forms.Raw("U8", list(exponent.shape), (exponent + 127).astype(np.uint8).tobytes())


def of_mxfp4(blocks, scales):
    """As transformers itself reads them: transposed."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    blocks, scales = (torch.from_numpy(np.frombuffer(r.data, np.uint8).copy()).reshape(r.shape) for r in (blocks, scales))
    return convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)


def make_oss_mxfp4(case, folder, seed, tokens):
    raw, values = {}, {}
    for name, t in random_state(case, drawer(seed, True)).items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            raw[name + "_blocks"], raw[name + "_scales"] = mxfp4_of(t.transpose(1, 2))
            values[name] = of_mxfp4(raw[name + "_blocks"], raw[name + "_scales"])
        else:
            raw[name] = forms.raw_of(t, case["dtype"])
            values[name] = forms.float_of(raw[name])
    config = published_config(case) | {"quantization_config": {
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
        "quant_method": "mxfp4",
    }}
    forms.write_json(folder / "config.json", config)
    forms.write_checkpoint(folder, dict(sorted(raw.items())), case["shards"])
    return {"golden": evaluate_with_mutants(case, values, tokens)}


def make_oss(case, folder, seed, tokens):
    """As mlx-lm converts, quantised or not; its own model is a second view of the same files."""
    state = random_state(case, drawer(seed, True))
    if case["form"] == "mlx_plain":
        write_oss(case, folder, state)
        values = {n: forms.float_of(t) for n, t in forms.read_checkpoint(folder).items()}
    else:
        with tempfile.TemporaryDirectory() as raw:
            write_oss(case, Path(raw), state)
            config = forms.convert_to_mlx(Path(raw), folder, case["bits"], case["group"], oss_predicate)
        (folder / "model.safetensors.index.json").unlink(missing_ok=True)
        values = forms.dequantised_mlx(forms.read_checkpoint(folder), config["quantization"])
    hidden, logits, note = evaluate_with_mutants(case, oss_of_mlx(values), tokens)
    if case["config"]["swiglu_alpha"] == 1.702 and case["config"]["swiglu_limit"] == 7.0:  # mlx-lm has only these
        difference = float(((forms.mlx_lm_logits(folder, tokens) - logits).abs().amax(-1) / logits.abs().amax(-1)).max())
        note["mlx_lm_difference"] = float(f"{difference:.2g}")
    return {"golden": (hidden, logits, note)}


def oss_predicate(path, module):
    """mlx-lm's own asks for 8 bits in groups of 64 on the router; 32 here."""
    return {"group_size": 32, "bits": 8} if path.endswith("router") else True


def make_hf(case, folder, seed, tokens):
    draw = drawer(seed)
    raw = write_published(case, folder, random_state(case, draw), draw)
    state = forms.fuse_experts({n: forms.float_of(t) for n, t in forms.dequantise_fp8(raw).items()}, case["config"]["num_hidden_layers"])
    if case["form"] == "hf":
        loaded = load_published(case, folder)
        for name, t in loaded.state_dict().items():
            assert name not in state or torch.equal(t, state[name]), name
        _, again, _ = run(loaded, tokens)  # with transformers' own reading of the config
        _, ours, _ = run(module_of(case, state), tokens)
        assert torch.allclose(again, ours, rtol=1e-5, atol=1e-5)
    return {"golden": evaluate_with_mutants(case, state, tokens)}


def make_mlx(case, folder, seed, tokens):
    draw = drawer(seed)
    with tempfile.TemporaryDirectory() as raw:
        write_published({**case, "shards": 1}, Path(raw), random_state(case, draw), draw)
        config = forms.convert_to_mlx(Path(raw), folder, case["bits"], case["group"])
    tensors = forms.read_checkpoint(folder)
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    state = forms.dequantised_mlx(tensors, config["quantization"])
    state = {module_name(case, n): t for n, t in forms.fuse_switch_mlp(state).items()}
    hidden, logits, note = evaluate_with_mutants(case, state, tokens)
    # a second program's view of the same files
    difference = float(((forms.mlx_lm_logits(folder, tokens) - logits).abs().amax(-1) / logits.abs().amax(-1)).max())
    note["mlx_lm_difference"] = float(f"{difference:.2g}")
    results = {"golden": (hidden, logits, note)}
    if case.get("fewer"):  # the same weights with fewer experts per token than the model's own
        less = {**case, "config": {**case["config"], "num_experts_per_tok": case["fewer"]}}
        results[f"golden_{case['fewer']}_experts"] = evaluate_with_mutants(less, state, tokens)
    return results


def make_turned(case, folder, seed, tokens):
    """Experts transposed: as transformers has them in memory, or turns them when it reads such files."""
    state = random_state(case, drawer(seed, case["family"] == "gpt_oss"))
    raw, values = {}, {}
    for name, t in state.items():
        raw[name] = forms.raw_of(t, case["dtype"])
        values[name] = forms.float_of(raw[name])
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")) and case["family"] != "gpt_oss" and not case.get("stays"):
            raw[name] = forms.raw_of(t.transpose(1, 2).contiguous(), case["dtype"])
    forms.write_json(folder / "config.json", published_config(case))
    forms.write_checkpoint(folder, dict(sorted(raw.items())), 1)
    for name, t in load_published(case, folder).state_dict().items():
        assert name not in values or torch.equal(t, values[name]), name
    stored = [t for n, t in forms.read_checkpoint(folder).items() if n.endswith("experts.gate_up_proj")]
    assert stored and all(t.shape[1] == case["config"]["hidden_size"] for t in stored)
    return {"golden": evaluate_with_mutants(case, values, tokens)}


def make(case, folder, seed, tokens):
    if case["form"] == "turned":
        return make_turned(case, folder, seed, tokens)
    if case["form"] == "mxfp4":
        return make_oss_mxfp4(case, folder, seed, tokens)
    if case["family"] == "gpt_oss":
        return make_oss(case, folder, seed, tokens)
    if case["form"] in packed.FORMS:
        return make_hf(case, folder, seed, tokens)
    return {"hf": make_hf, "fp8": make_hf, "mlx": make_mlx}[case["form"]](case, folder, seed, tokens)
