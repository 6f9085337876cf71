#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the tiny random checkpoints of tests/model/data with their golden outputs.

Every case is an ordinary checkpoint directory plus golden.bin: token ids, the residual stream after every layer at some
positions, and the logits at every position, all from Hugging Face transformers in float32 on the CPU (eager attention, the
plain torch delta rule). For quantised forms transformers runs on the weights as mlx dequantises them with float32 scales.

Needs torch, transformers, safetensors, mlx, mlx-lm and numpy. Usage: tools/make_goldens.py [--out DIR] [CASE ...]
"""
import argparse
import copy
import json
import math
import shutil
import struct
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
import transformers

import goldens_deepseek as deepseek
import goldens_deepseek_v4 as deepseek_v4
import goldens_forms as forms
import goldens_grouped as grouped
import goldens_kimi as kimi
import goldens_llama4 as llama4
import goldens_router
from goldens_run import evaluate, usable

N_TOKENS = 70
POSITIONS = [0, 1, 2, 3, 5, 6, 7, 8, 20, 41, 62, 63, 64, 65, 69]


def shape(hidden, layers, heads, kv, head_dim, k_heads, v_heads, k_dim, v_dim, experts, top_k, inter, shared, vocab, **more):
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": head_dim,
        "linear_num_key_heads": k_heads,
        "linear_num_value_heads": v_heads,
        "linear_key_head_dim": k_dim,
        "linear_value_head_dim": v_dim,
        "linear_conv_kernel_dim": 4,
        "num_experts": experts,
        "num_experts_per_tok": top_k,
        "moe_intermediate_size": inter,
        "shared_expert_intermediate_size": shared,
        "vocab_size": vocab,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        **more,
    }


def dense_shape(hidden, layers, heads, kv, head_dim, k_heads, v_heads, k_dim, v_dim, inter, vocab, **more):
    """Without experts."""
    out = shape(hidden, layers, heads, kv, head_dim, k_heads, v_heads, k_dim, v_dim, 0, 0, 0, 0, vocab, **more)
    return {k: v for k, v in out.items() if "expert" not in k and not k.startswith("moe_")} | {"intermediate_size": inter}


def rope_v5(theta, partial):
    return {
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
            "rope_type": "default",
            "rope_theta": theta,
            "partial_rotary_factor": partial,
        }
    }


def rope_yarn(theta, partial, **more):
    """As the model cards of Qwen3.5 recommend for long contexts: YaRN's fields beside the others."""
    rope = rope_v5(theta, partial)["rope_parameters"]
    return {"rope_parameters": {**rope, "rope_type": "yarn", **more}}


def rope_flat(theta, partial):
    return {"rope_theta": theta, "partial_rotary_factor": partial, "rope_scaling": None}


def layer_types(config, interval):
    n = config["num_hidden_layers"]
    return ["full_attention" if (i + 1) % interval == 0 else "linear_attention" for i in range(n)]


def gate_group_32(path, module):
    """mlx-lm's own predicate asks for 8 bits in groups of 64 on the router; 32 where 64 does not divide the hidden size."""
    return {"group_size": 32, "bits": 8} if path.endswith(("mlp.gate", "shared_expert_gate")) else True


# family, form and storage; `config` in the family's own words. Sizes are chosen to be unlike one another, and often no
# multiple of a SIMD width.
Q35, NEXT, Q35_DENSE = "qwen3_5_moe", "qwen3_next", "qwen3_5"
ALL_Q35 = (Q35, Q35_DENSE)
CASES = {
    "hf_bf16": dict(
        family=Q35, form="hf", dtype="BF16", extras=True, shards=2, types=4, interval=4,
        config=shape(72, 4, 4, 2, 16, 2, 4, 16, 24, 8, 2, 24, 40, 144, **rope_v5(1e7, 0.25)),
    ),
    "mlx_4bit": dict(
        family=Q35, form="mlx", dtype="BF16", bits=4, group=64, interval=3, fewer=2,
        config=shape(128, 3, 8, 2, 32, 2, 8, 32, 16, 8, 3, 64, 128, 160, **rope_v5(1e7, 0.25)),
    ),
    "packed": dict(form="packed", source="mlx_4bit", bits=(4, 2), config_json=True),
    "packed_no_config": dict(form="packed", source="mlx_4bit", bits=(2,), config_json=False),
    # as save_pretrained writes the text model: other model_type, no nesting, experts one by one
    "hf_saved_tied_f16": dict(
        family=Q35, form="hf", dtype="F16", saved=True, interval=2,
        config=shape(40, 2, 2, 1, 32, 2, 2, 32, 16, 4, 3, 24, 16, 131, **rope_v5(1e4, 0.5), tie_word_embeddings=True),
    ),
    "hf_tied_f32": dict(
        family=Q35, form="hf", dtype="F32", extras=True, types=3,
        config=shape(40, 3, 6, 2, 16, 1, 4, 16, 20, 5, 2, 16, 24, 128, **rope_v5(1e6, 0.5), tie_word_embeddings=True),
    ),
    # YaRN past its original length, and a tied head that is stored all the same
    "hf_yarn_tied_f16": dict(
        family=Q35, form="hf", dtype="F16", interval=2, stored_head=True,
        config=shape(
            48, 2, 3, 1, 32, 2, 2, 16, 16, 5, 2, 24, 32, 130, tie_word_embeddings=True,
            **rope_yarn(1e4, 0.5, factor=4.0, original_max_position_embeddings=32),
        ),
    ),
    # as those of Qwen3-Next do: rope_scaling, with theta and the rotated part at the top
    "next_yarn_f32": dict(
        family=NEXT, form="hf", dtype="F32", interval=2,
        config=shape(
            40, 2, 2, 1, 32, 2, 2, 16, 16, 4, 2, 16, 16, 128, **{
                **rope_flat(5e4, 0.75),
                "rope_scaling": {"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "attention_factor": 1.25,
                                 "beta_fast": 4, "beta_slow": 0.5, "truncate": False},
            }, norm_topk_prob=True,
        ),
    ),
    "next_bf16": dict(
        family=NEXT, form="hf", dtype="BF16", extras=True, shards=3, interval=4,
        config=shape(80, 4, 4, 1, 32, 2, 4, 24, 16, 8, 3, 24, 40, 137, **rope_flat(1e7, 0.25), norm_topk_prob=True),
    ),
    "next_plain_topk_f16": dict(
        family=NEXT, form="hf", dtype="F16", types=["full_attention", "linear_attention", "linear_attention"],
        config=shape(56, 3, 3, 1, 24, 3, 3, 16, 16, 6, 2, 24, 16, 128, **rope_flat(5e5, 0.5), norm_topk_prob=False),
    ),
    "next_mlx_4bit": dict(
        family=NEXT, form="mlx", dtype="BF16", bits=4, group=32, interval=3, predicate=gate_group_32,
        config=shape(96, 3, 4, 2, 16, 2, 4, 16, 32, 6, 2, 32, 64, 144, **rope_flat(1e7, 0.25), norm_topk_prob=True),
    ),
    "mlx_2bit_f16": dict(
        family=Q35, form="mlx", dtype="F16", bits=2, group=32, interval=2, predicate=gate_group_32,
        config=shape(160, 2, 2, 2, 64, 1, 4, 64, 32, 5, 2, 96, 32, 133, **rope_v5(1e7, 0.25)),
    ),
    # in-dimensions that 128 does not divide stay plain BF16 beside quantised ones
    "mlx_3bit_g128": dict(
        family=Q35, form="mlx", dtype="BF16", bits=3, group=128, types=2, interval=2,
        config=shape(128, 2, 4, 1, 16, 4, 4, 16, 32, 6, 2, 128, 64, 128, **rope_v5(1e7, 0.5)),
    ),
    "mlx_5bit": dict(
        family=Q35, form="mlx", dtype="BF16", bits=5, group=32, interval=2, predicate=gate_group_32, shards=2,
        drop_keys=["quantization"],
        config=shape(96, 2, 3, 1, 32, 2, 4, 16, 24, 5, 2, 32, 96, 129, **rope_v5(1e7, 0.25)),
    ),
    "mlx_6bit_f32": dict(
        family=Q35, form="mlx", dtype="F32", bits=6, group=64, interval=2, drop_keys=["quantization_config"],
        config=shape(64, 2, 4, 2, 16, 2, 2, 16, 32, 6, 3, 64, 64, 150, **rope_v5(1e5, 0.5)),
    ),
    "mlx_8bit_tied": dict(
        family=Q35, form="mlx", dtype="BF16", bits=8, group=64, interval=2,
        config=shape(64, 2, 2, 1, 32, 2, 4, 32, 16, 4, 2, 64, 128, 140, **rope_v5(1e7, 0.25), tie_word_embeddings=True),
    ),
    # mlx-lm's mixed recipe: 3 and 6 bits by layer and projection, experts' down_proj included
    "mlx_mixed_3_6": dict(
        family=Q35, form="mlx", dtype="BF16", bits=3, group=32, interval=4, predicate="mixed_3_6", vision_tower=True,
        config=shape(64, 4, 4, 2, 16, 2, 4, 16, 16, 4, 2, 32, 32, 128, **rope_v5(1e7, 0.25)),
    ),
    "mlx_10_of_512": dict(
        family=Q35, form="mlx", dtype="BF16", bits=2, group=32, interval=2, predicate=gate_group_32,
        config=shape(32, 2, 2, 1, 16, 1, 2, 16, 16, 512, 10, 32, 32, 128, **rope_v5(1e7, 0.25)),
    ),
    # heads that blocks of FP8 do not fit, as those of the published models do
    "qwen3_5_moe_fp8": dict(
        family=Q35, form="fp8", dtype="BF16", shards=2, interval=2,
        config=shape(136, 2, 3, 1, 48, 2, 4, 32, 40, 5, 2, 72, 140, 130, **rope_v5(1e7, 0.25)),
    ),
    "qwen3_5_moe_stacked_fp8": dict(
        family=Q35, form="fp8", dtype="BF16", stacked=True, interval=2,
        config=shape(72, 2, 2, 1, 128, 1, 2, 64, 64, 4, 2, 128, 40, 128, **rope_v5(1e6, 0.25)),
    ),
    # scales as published beside experts one by one
    "qwen3_5_moe_stacked_fp8_bf16_scales": dict(
        family=Q35, form="fp8", dtype="BF16", stacked=True, interval=2, scales="BF16",
        config=shape(40, 2, 2, 1, 64, 1, 2, 32, 32, 3, 2, 256, 40, 96, **rope_v5(1e6, 0.25)),
    ),
    # one MLP a layer in place of experts, and a multi-token-prediction layer that is left out
    "qwen3_5_bf16": dict(
        family=Q35_DENSE, form="hf", dtype="BF16", extras=True, shards=2, types=4, interval=4,
        config=dense_shape(72, 4, 4, 2, 16, 2, 6, 16, 24, 88, 144, **rope_v5(1e7, 0.25)),
    ),
    "qwen3_5_tied_f16": dict(
        family=Q35_DENSE, form="hf", dtype="F16", saved=True, interval=3,
        config=dense_shape(40, 3, 2, 1, 32, 2, 4, 20, 12, 52, 131, **rope_v5(1e5, 0.5), tie_word_embeddings=True),
    ),
    **deepseek.CASES,
    **grouped.CASES,
    **llama4.CASES,
    **kimi.CASES,
    **deepseek_v4.CASES,
}


# ---------------------------------------------------------------- random weights


def drawer(seed):
    def draw(name, shape):
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        normal = rng.standard_normal(shape, dtype=np.float32)
        fan_in = shape[-1]
        if name.endswith("A_log"):
            value = np.log(rng.uniform(0.02, 6.0, shape).astype(np.float32))
        elif name.endswith("dt_bias"):
            value = normal - 1.0
        elif name.endswith("linear_attn.norm.weight"):
            value = 1.0 + 0.15 * normal
        elif len(shape) == 1:
            value = 0.15 * normal
        elif "conv1d" in name:
            value = 0.5 * normal
        elif "embed_tokens" in name:
            value = normal
        else:
            gain = 1.0
            if name.endswith("mlp.gate.weight"):
                gain = 2.5
            elif name.endswith(("lm_head.weight", "out_proj.weight", "o_proj.weight")):
                gain = 2.0
            elif "down_proj" in name:
                gain = 2.5
            value = normal * (gain / math.sqrt(fan_in))
        return torch.from_numpy(np.asarray(value, np.float32))

    return draw


def classes(family):
    if family == Q35:
        return transformers.Qwen3_5MoeTextConfig, transformers.Qwen3_5MoeForCausalLM
    if family == Q35_DENSE:
        return transformers.Qwen3_5TextConfig, transformers.Qwen3_5ForCausalLM
    return transformers.Qwen3NextConfig, transformers.Qwen3NextForCausalLM


def make_module(case):
    config_class, model_class = classes(case["family"])
    config = config_class(**text_config(case))
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    torch.manual_seed(0)
    return model_class(config).eval().float()


def text_config(case):
    config = copy.deepcopy(case["config"])
    if case.get("types"):
        types = case["types"]
        config["layer_types"] = types if isinstance(types, list) else layer_types(config, types)
    if case.get("interval"):
        config["full_attention_interval"] = case["interval"]
    if case["family"] == NEXT:
        config |= {"intermediate_size": 4 * config["hidden_size"], "decoder_sparse_step": 1, "mlp_only_layers": []}
    return config


def random_state(case, module, seed):
    """Random weights in the module's names, and the dtype each is stored in."""
    draw = drawer(seed)
    tied = case["config"]["tie_word_embeddings"]
    state = {n: draw(n, tuple(t.shape)) for n, t in module.state_dict().items() if not (tied and n == "lm_head.weight")}

    def dtype(name):
        if case["family"] in ALL_Q35 and case["dtype"] == "BF16" and name.endswith(("A_log", "linear_attn.norm.weight")):
            return "F32"  # as the published checkpoints have them
        return case["dtype"]

    return state, dtype, draw


# ---------------------------------------------------------------- golden outputs


def write_golden(path, tokens, hidden, logits, note, rows):
    """Version 1 has the logits of every token, version 2 hidden and logits of the same few."""
    n_layers, _, width = hidden.shape
    version, positions = (1, POSITIONS) if rows is None else (2, rows)
    if rows is None:
        hidden = hidden[:, POSITIONS]
    with open(path.with_suffix(".bin"), "wb") as f:
        f.write(b"MFGOLDEN" + struct.pack("<6I", version, len(tokens), logits.shape[1], n_layers, width, len(positions)))
        f.write(struct.pack(f"<{len(tokens)}i", *tokens) + struct.pack(f"<{len(positions)}I", *positions))
        f.write(hidden.contiguous().numpy().tobytes())
        f.write(logits.contiguous().numpy().tobytes())
    forms.write_json(path.with_suffix(".json"), note)


def module_of(case, state):
    module = make_module(case)
    missing, surplus = module.load_state_dict(state, strict=False)
    allowed = {"lm_head.weight"} if case["config"]["tie_word_embeddings"] else set()
    assert set(missing) <= allowed and not surplus, (missing, surplus)
    module.tie_weights()
    return module


def golden_of_state(case, state, tokens):
    return evaluate(module_of(case, state), tokens)


# ---------------------------------------------------------------- forms


def published_config(case):
    text = text_config(case)
    dtype = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}[case["dtype"]]
    if case["family"] == NEXT:
        return {"architectures": ["Qwen3NextForCausalLM"], "model_type": NEXT, "torch_dtype": dtype, **text}
    name = "Qwen3_5Moe" if case["family"] == Q35 else "Qwen3_5"
    return {
        "architectures": [name + "ForConditionalGeneration"],
        "model_type": case["family"],
        "tie_word_embeddings": text["tie_word_embeddings"],
        "text_config": {"model_type": case["family"] + "_text", "dtype": dtype, **text},
        "vision_config": {"model_type": case["family"], "depth": 1, "hidden_size": 16, "num_heads": 2, "out_hidden_size": text["hidden_size"]},
    }


def write_published(case, folder, state, dtype, draw):
    """The raw Hugging Face form; returns nothing, but checks that transformers itself reads it back to the same weights."""
    tensors = state if case["family"] in ALL_Q35 and not case.get("per_expert") else forms.split_experts(state)
    if case.get("stored_head"):
        tensors = {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]}
    if case["family"] in ALL_Q35 and not case.get("text_only"):
        tensors = {forms.language_prefix(n): t for n, t in tensors.items()}
    raw = {n: forms.raw_of(t, dtype(n)) for n, t in tensors.items()}
    if case.get("extras"):
        raw |= {n: forms.raw_of(t, case["dtype"]) for n, t in forms.extras(case, draw).items()}
    raw = dict(sorted(raw.items()))
    forms.write_json(folder / "config.json", published_config(case))
    forms.write_checkpoint(folder, raw, case.get("shards", 1))


def load_published(case, folder):
    config_class, model_class = classes(case["family"])
    loaded = json.loads((folder / "config.json").read_text())
    config = config_class(**{k: v for k, v in loaded.get("text_config", loaded).items() if k not in ("model_type", "architectures")})
    config._experts_implementation = "eager"
    module, info = model_class.from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"] and not info.get("mismatched_keys"), info
    return module.eval()


def make_hf(case, folder, seed, tokens):
    module = make_module(case)
    state, dtype, draw = random_state(case, module, seed)
    if case.get("saved"):
        module.load_state_dict(state, strict=False)
        module.to(forms.TORCH_OF[case["dtype"]]).save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
    else:
        write_published(case, folder, state, dtype, draw)
    module = load_published(case, folder)
    for name, t in module.state_dict().items():
        if name in state:
            stored = forms.float_of(forms.raw_of(state[name], dtype(name)))
            assert torch.equal(t, stored), name
    return {"golden": evaluate(module, tokens)}


def is_fp8(name):
    """What Qwen's FP8 checkpoints quantise."""
    kept = ("embed_tokens.weight", "lm_head.weight", "gate.weight", "norm.weight", "conv1d.weight", "in_proj_a.weight", "in_proj_b.weight")
    return name.endswith((".weight", "gate_up_proj", "experts.down_proj")) and not name.endswith(kept)


def fp8_of(t, scale_dtype):
    """Also of matrices in a stack, each by itself."""
    if t.dim() == 2:
        return forms.fp8_of(t, scale_dtype)
    pairs = [forms.fp8_of(each, scale_dtype) for each in t]
    return tuple(forms.Raw(p[0].dtype, [len(t), *p[0].shape], b"".join(r.data for r in p)) for p in zip(*pairs))


def make_fp8(case, folder, seed, tokens):
    """As Qwen publishes them, experts one by one; or stacked, as programs have them in memory."""
    state, dtype, draw = random_state(case, make_module(case), seed)
    raw = {}
    for name, t in (state if case.get("stacked") else forms.split_experts(state)).items():
        if is_fp8(name):
            factors = forms.block_factors(t.shape, draw(name + "/blocks", (64, 64)))
            scales = name + "_scale_inv"
            raw[name], raw[scales] = fp8_of(t * factors, case.get("scales", "F32"))
        else:
            raw[name] = forms.raw_of(t, dtype(name))
    values = {n: forms.float_of(t) for n, t in forms.dequantise_fp8(raw).items()}
    config = published_config(case) | {"quantization_config": {
        "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}}
    forms.write_json(folder / "config.json", config)
    forms.write_checkpoint(folder, dict(sorted((forms.language_prefix(n), t) for n, t in raw.items())), case.get("shards", 1))
    if not case.get("stacked"):
        values = forms.fuse_experts(values, case["config"]["num_hidden_layers"])
    return {"golden": golden_of_state(case, values, tokens)}


def make_mlx(case, folder, seed, tokens):
    module = make_module(case)
    state, dtype, draw = random_state(case, module, seed)
    with tempfile.TemporaryDirectory() as raw:
        write_published({**case, "extras": True, "shards": 1}, Path(raw), state, dtype, draw)
        config = forms.convert_to_mlx(Path(raw), folder, case["bits"], case["group"], case.get("predicate"))
    tensors = forms.read_checkpoint(folder)
    (folder / "model.safetensors.index.json").unlink()
    if case.get("vision_tower"):
        tensors |= {"vision_tower.blocks.0.norm1.weight": forms.raw_of(draw("v", (16,)), case["dtype"])}
    if case.get("vision_tower") or case.get("shards", 1) > 1:
        forms.write_checkpoint(folder, tensors, case.get("shards", 1), "mlx")
    for key in case.get("drop_keys", ()):
        on_disk = json.loads((folder / "config.json").read_text())
        del on_disk[key]
        forms.write_json(folder / "config.json", on_disk)
    module_state = forms.module_state_of_mlx(tensors, config["quantization"], case["family"])
    results = {"golden": golden_of_state(case, module_state, tokens)}
    if case.get("fewer"):  # the same weights with fewer experts per token than the model's own
        less = {**case, "config": {**case["config"], "num_experts_per_tok": case["fewer"]}}
        results[f"golden_{case['fewer']}_experts"] = golden_of_state(less, module_state, tokens)
    return results


def make_packed(case, folder, seed, tokens, out):
    source = CASES[case["source"]]
    config = json.loads((out / case["source"] / "config.json").read_text())
    tensors = forms.read_checkpoint(out / case["source"])
    text = {k: v for k, v in config["text_config"].items()}
    rope = text["rope_parameters"]
    wanted = [
        "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
        "rms_norm_eps", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size",
        "full_attention_interval", "linear_num_value_heads", "linear_num_key_heads", "linear_key_head_dim",
        "linear_value_head_dim", "linear_conv_kernel_dim",
    ]
    manifest_config = {k: text[k] for k in wanted} | {
        "partial_rotary_factor": rope["partial_rotary_factor"],
        "rope_theta": rope["rope_theta"],
        "default_bits": source["bits"],
        "default_group_size": source["group"],
        "layer_types": layer_types(text, source["interval"]),
    }
    if case["config_json"]:
        shutil.copy(out / case["source"] / "config.json", folder / "config.json")
    forms.pack_resident(folder, tensors, config, manifest_config)
    results = {}
    for bits in case["bits"]:
        experts = tensors if bits == 4 else forms.requantise_2bit(tensors)
        name = "packed_experts" if bits == 4 else "packed_experts_2bit"
        forms.pack_experts(folder / name, experts, range(text["num_hidden_layers"]), text["num_experts"])
        quantization = dict(config["quantization"])
        if bits == 2:
            for key in experts:
                if ".switch_mlp." in key and key.endswith(".weight"):
                    quantization[key.removesuffix(".weight")] = {"group_size": 64, "bits": 2}
        state = forms.module_state_of_mlx(experts, quantization, source["family"])
        # A case with both keeps golden.bin for 4 bits and golden_2bit.bin for 2.
        results["golden" if bits == case["bits"][0] else "golden_2bit"] = golden_of_state(source, state, tokens)
    return results


def make_case(name, out):
    case, folder = CASES[name], out / name
    vocab = CASES[case.get("source", name)]["config"]["vocab_size"]
    for seed in range(1, 200):
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        tokens = [int(t) for t in rng.integers(0, vocab, case.get("n_tokens", N_TOKENS))]
        tokens[20] = tokens[19]  # a repeated token, and a phrase that comes again
        tokens[50:55] = tokens[10:15]
        if case.get("family") in (deepseek.V3, deepseek.K2, deepseek.V2):
            results = deepseek.make(case, folder, seed, tokens, out)
        elif case.get("family") == deepseek_v4.FAMILY:
            results = deepseek_v4.make(case, folder, seed, tokens)
        elif case.get("family") == kimi.FAMILY:
            results = kimi.make(case, folder, seed, tokens)
        elif case.get("family") == llama4.FAMILY:
            results = llama4.make(case, folder, seed, tokens)
        elif case.get("family") in grouped.FAMILIES:
            results = grouped.make(case, folder, seed, tokens)
        elif case["form"] == "packed":
            results = make_packed(case, folder, seed, tokens, out)
        else:
            results = {"hf": make_hf, "mlx": make_mlx, "fp8": make_fp8}[case["form"]](case, folder, seed, tokens)
        if all(usable(facts) for _, _, facts in results.values()):
            break
    else:
        raise SystemExit(f"{name}: no seed gives decisive routers and logits")
    for key, (hidden, logits, facts) in results.items():
        note = {
            "made_by": "tools/make_goldens.py",
            "transformers": transformers.__version__,
            "torch": torch.__version__.split("+")[0],
            "seed": seed,
            **facts,
            "layout": "8 bytes MFGOLDEN; u32 version, tokens, vocab, layers, hidden, positions; i32 token ids; u32 positions; "
            f"f32 hidden[layers][positions][hidden]; f32 logits[{'positions' if case.get('rows') else 'tokens'}][vocab]",
        }
        write_golden(folder / key, tokens, hidden, logits, note, case.get("rows"))
        scale = [round(float(h.std()), 2) for h in hidden]
        margins = " ".join(f"{k} {v:.2g}" for k, v in facts.items() if isinstance(v, float))
        print(f"{name}/{key}: seed {seed} {margins}, layer std {scale}, logits std {float(logits.std()):.2f}")


# ---------------------------------------------------------------- dequantisation by itself


def make_dequant(out):
    """dequant.bin: for every bits and group a small matrix as mlx quantises it, and what mlx makes of it in float32."""
    import mlx.core as mx

    entries = []
    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            rng = np.random.default_rng([bits, group])
            dense = mx.array(rng.standard_normal((3, 2 * group), dtype=np.float32)).astype(mx.bfloat16)
            packed, scales, biases = mx.quantize(dense, group_size=group, bits=bits)
            back = mx.dequantize(packed, scales.astype(mx.float32), biases.astype(mx.float32), group_size=group, bits=bits)
            head = struct.pack("<4I", bits, group, *dense.shape)
            halves = [np.array(x.view(mx.uint16)).tobytes() for x in (scales, biases)]
            entries.append(head + np.array(packed).tobytes() + b"".join(halves) + np.array(back).tobytes())
    (out / "dequant.bin").write_bytes(b"MFDEQUAN" + struct.pack("<I", len(entries)) + b"".join(entries))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = Path(__file__).resolve().parent.parent / "tests" / "model" / "data"
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    if not args.cases:
        args.out.mkdir(parents=True, exist_ok=True)
        make_dequant(args.out)
    if not args.cases or "router" in args.cases:
        goldens_router.make_router(args.out)
    for name in args.cases or CASES:
        if name != "router":
            make_case(name, args.out)


if __name__ == "__main__":
    main()
