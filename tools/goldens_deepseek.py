# SPDX-License-Identifier: MIT
"""The DeepSeek family's cases for make_goldens.py: deepseek_v3 (v3_*), kimi_k2 (k2_*) and deepseek_v2 (v2_*). Their shapes,
random weights, router margins and stored forms; the golden values come from make_goldens.evaluate like all others."""
import copy
import json
import math
import shutil
import tempfile
import zlib
from pathlib import Path

import numpy as np
import torch
import transformers

import goldens_forms as forms
import goldens_stored as stored
from goldens_run import evaluate, run

MIN_DIFFERENCE = 5e-3  # of a mutant's logits; the tests allow 1e-4

V3, K2, V2 = "deepseek_v3", "kimi_k2", "deepseek_v2"


def shape(hidden, layers, heads, q_lora, kv_lora, nope, rope, v_dim, dense, inter, experts, top_k, groups, kept, vocab, **more):
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "q_lora_rank": q_lora,
        "kv_lora_rank": kv_lora,
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": v_dim,
        "intermediate_size": dense,
        "moe_intermediate_size": inter,
        "n_routed_experts": experts,
        "num_experts_per_tok": top_k,
        "n_group": groups,
        "topk_group": kept,
        "vocab_size": vocab,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000,
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        **more,
    }


def yarn(factor, original, **more):
    return {"rope_scaling": {"type": "yarn", "factor": factor, "original_max_position_embeddings": original, **more}}


SOFTMAX = {"scoring_func": "softmax", "topk_method": "greedy", "norm_topk_prob": False, "routed_scaling_factor": 1.0, "n_group": 1, "topk_group": 1}
BY_GROUP = {**SOFTMAX, "topk_method": "group_limited_greedy", "routed_scaling_factor": 16.0}
LONG_ROWS = [0, 1, 511, 1023, 1024, 2047, 3000, 4094, 4095, 4096, 4097, 4223, *range(4282, 4290)]

# Sizes as in make_goldens: unlike one another, and often no multiple of a SIMD width.
CASES = {
    "v3_bf16": dict(
        family=V3, form="hf", dtype="BF16", shards=2,
        config=shape(72, 3, 4, 24, 32, 16, 8, 12, 112, 24, 12, 3, 4, 2, 144),
    ),
    # the ramp from kept to interpolated frequencies lies within the eight pairs
    "v3_yarn_f32": dict(
        family=V3, form="hf", dtype="F32",
        config=shape(40, 2, 3, 20, 24, 12, 16, 10, 48, 16, 8, 2, 4, 2, 128, rope_theta=100,
                     **yarn(40, 32, beta_fast=4, beta_slow=0.25, mscale=1.0, mscale_all_dim=1.0)),
    ),
    # the cosines are scaled too; the defaults of beta_fast and beta_slow
    "v3_yarn_two_mscales": dict(
        family=V3, form="hf", dtype="BF16",
        config=shape(48, 2, 2, 16, 20, 10, 20, 14, 56, 20, 8, 3, 2, 1, 128,
                     **yarn(8, 48, mscale=1.4, mscale_all_dim=0.6)),
    ),
    "v3_yarn_no_mscale": dict(
        family=V3, form="hf", dtype="BF16", fewer=2,
        config=shape(48, 2, 2, 16, 20, 10, 12, 14, 56, 20, 8, 3, 2, 1, 128,
                     **yarn(4, 40, beta_fast=8, beta_slow=0.5)),
    ),
    # no published model has it; the attention is scaled as with YaRN
    "v3_linear_rope_f16": dict(
        family=V3, form="hf", dtype="F16",
        config=shape(40, 2, 2, 16, 20, 10, 8, 12, 36, 16, 4, 2, 2, 1, 128, rope_theta=100,
                     rope_scaling={"type": "linear", "factor": 3.0, "mscale_all_dim": 0.8}),
    ),
    # as an MTP layer is published: layer num_hidden_layers, with its own embeddings and head
    "v3_mtp_half_split_rope": dict(
        family=V3, form="hf", dtype="BF16", shards=3, mtp=True,
        config=shape(56, 3, 3, 24, 16, 12, 10, 8, 72, 20, 10, 4, 5, 3, 131, rope_interleave=False, first_k_dense_replace=2,
                     n_shared_experts=2, num_nextn_predict_layers=1, rms_norm_eps=1e-2),
    ),
    # as save_pretrained writes it today: rope_parameters, and whatever else transformers fills in
    "v3_saved_bf16": dict(
        family=V3, form="hf", dtype="BF16", saved=True,
        config=shape(44, 3, 2, 18, 22, 14, 12, 10, 60, 18, 6, 2, 3, 1, 128, rope_theta=500,
                     **yarn(16, 36, beta_fast=6, beta_slow=0.5, mscale=0.8, mscale_all_dim=0.8)),
    ),
    # no q_lora, no renormalisation, an eps that shows where it is used and where not, dense layers among the others
    "v3_no_q_lora_f16": dict(
        family=V3, form="hf", dtype="F16",
        config=shape(60, 4, 5, None, 28, 14, 6, 18, 80, 16, 9, 4, 3, 2, 130, norm_topk_prob=False, routed_scaling_factor=1.3,
                     rms_norm_eps=3e-2, moe_layer_freq=2),
    ),
    "v3_fp8": dict(
        family=V3, form="fp8", dtype="BF16", shards=2, mtp=True,
        config=shape(132, 2, 3, 56, 72, 40, 16, 24, 200, 130, 6, 2, 3, 2, 140, num_nextn_predict_layers=1,
                     **yarn(40, 32, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)),
    ),
    # heads of whole blocks, as the published model has them; scales in BF16
    "v3_fp8_bf16_scales": dict(
        family=V3, form="fp8", dtype="BF16", scale_dtype="BF16", bias_dtype="BF16",
        config=shape(64, 2, 2, 136, 160, 128, 32, 128, 144, 32, 8, 3, 4, 2, 128),
    ),
    # mlx-lm writes kv_b_proj as embed_q and unembed_out
    "v3_mlx_4bit_split": dict(
        family=V3, form="mlx", dtype="BF16", bits=4, group=64,
        config=shape(128, 3, 2, 64, 128, 64, 16, 64, 192, 64, 8, 3, 4, 2, 160, **yarn(40, 32, mscale=1.0, mscale_all_dim=1.0)),
    ),
    # a head that the group does not divide: embed_q stays BF16 beside a quantised unembed_out
    "v3_mlx_8bit_split_plain": dict(
        family=V3, form="mlx", dtype="BF16", bits=8, group=32, shards=2,
        config=shape(96, 2, 3, 32, 64, 20, 12, 32, 64, 32, 6, 2, 3, 2, 128),
    ),
    # as older mlx-lm wrote it: kv_b_proj whole, the router's bias cast to BF16
    "v3_mlx_4bit_whole": dict(
        family=V3, form="mlx_whole", dtype="BF16", bias_dtype="BF16", bits=4, group=64,
        config=shape(128, 3, 4, 64, 64, 32, 8, 32, 128, 64, 8, 3, 4, 2, 144,
                     **yarn(40, 32, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)),
    ),
    "v3_packed": dict(family=V3, form="packed", source="v3_mlx_4bit_whole", bits=(4, 2), config_json=True),
    "v3_packed_no_config": dict(family=V3, form="packed", source="v3_mlx_4bit_whole", bits=(4,), config_json=False),
    # past YaRN's original length and past 4,096 positions; experts in the last layer alone, so that no token's choice
    # depends on another's
    "v3_long": dict(
        family=V3, form="hf", dtype="BF16", n_tokens=4290, rows=LONG_ROWS,
        config=shape(40, 2, 2, 16, 24, 12, 16, 10, 64, 16, 8, 2, 4, 2, 96, max_position_embeddings=8192,
                     **yarn(8, 1024, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)),
    ),
    "k2_bf16": dict(
        family=K2, form="hf", dtype="BF16",
        config=shape(48, 2, 2, 24, 32, 16, 8, 16, 96, 16, 48, 8, 1, 1, 150, routed_scaling_factor=2.827, rope_theta=50000,
                     rms_norm_eps=1e-5, **yarn(32, 32, beta_fast=1.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)),
    ),
    "k2_fp8": dict(
        family=K2, form="fp8", dtype="BF16",
        config=shape(136, 2, 4, 40, 48, 24, 8, 20, 132, 16, 20, 5, 1, 1, 128, routed_scaling_factor=2.827, rope_theta=50000),
    ),
    "k2_mlx_4bit": dict(
        family=K2, form="mlx", dtype="BF16", bits=4, group=32,
        config=shape(64, 2, 2, 32, 64, 32, 8, 32, 96, 32, 24, 6, 1, 1, 128, routed_scaling_factor=2.827, rope_theta=50000,
                     **yarn(32, 32, beta_fast=1.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0)),
    ),
    # as Kimi-K2-Thinking is published: the experts alone, in integers
    "k2_int4": dict(
        family=K2, form="int4", dtype="BF16",
        config=shape(96, 2, 2, 24, 32, 16, 8, 16, 80, 64, 24, 6, 1, 1, 128, routed_scaling_factor=2.827, rope_theta=50000),
    ),
    "v3_int8": dict(
        family=V3, form="int8", dtype="F16",
        config=shape(128, 2, 2, None, 128, 64, 16, 64, 128, 128, 6, 2, 3, 2, 128),
    ),
    "v3_fp8_channel": dict(
        family=V3, form="fp8_channel", dtype="BF16", mtp=True,
        config=shape(132, 2, 3, 56, 72, 40, 16, 24, 200, 130, 6, 2, 3, 2, 140, num_nextn_predict_layers=1),
    ),
    "k2_fp8_tensor": dict(
        family=K2, form="fp8_tensor", dtype="BF16",
        config=shape(72, 2, 3, 40, 48, 24, 8, 20, 132, 36, 20, 5, 1, 1, 128, routed_scaling_factor=2.827, rope_theta=50000),
    ),
    "v3_nvfp4": dict(
        family=V3, form="nvfp4", dtype="BF16",
        config=shape(112, 2, 2, 48, 64, 40, 16, 24, 80, 48, 8, 3, 4, 2, 130),
    ),
    "k2_nvfp4_divided": dict(
        family=K2, form="nvfp4_divided", dtype="BF16",
        config=shape(80, 2, 2, 32, 48, 24, 8, 16, 96, 32, 16, 4, 1, 1, 128, routed_scaling_factor=2.827, rope_theta=50000),
    ),
    "k2_mlx_mxfp4": dict(
        family=K2, form="mlx", dtype="BF16", bits=4, group=32, mode="mxfp4",
        config=shape(64, 2, 2, 32, 64, 32, 8, 32, 96, 32, 24, 6, 1, 1, 128, routed_scaling_factor=2.827, rope_theta=50000),
    ),
    "k2_mlx_mxfp8": dict(
        family=K2, form="mlx", dtype="BF16", bits=8, group=32, mode="mxfp8",
        config=shape(64, 2, 2, 32, 64, 32, 8, 32, 96, 32, 10, 3, 1, 1, 128, routed_scaling_factor=2.827, rope_theta=50000),
    ),
    "v3_mlx_nvfp4": dict(
        family=V3, form="mlx", dtype="BF16", bits=4, group=16, mode="nvfp4",
        config=shape(96, 2, 3, 32, 64, 32, 16, 32, 64, 48, 6, 2, 3, 2, 128),
    ),
    "v2_lite_bf16": dict(
        family=V2, form="hf", dtype="BF16",
        config=shape(64, 3, 4, None, 32, 16, 12, 16, 80, 16, 16, 6, None, None, 144, n_shared_experts=2,
                     **(SOFTMAX | yarn(40, 48, beta_fast=8, beta_slow=0.5, mscale=0.707, mscale_all_dim=0.707))),
    ),
    "v2_groups_f16": dict(
        family=V2, form="hf", dtype="F16",
        config=shape(60, 3, 5, 24, 20, 10, 8, 14, 72, 12, 20, 4, None, None, 132, n_shared_experts=2,
                     **(BY_GROUP | {"n_group": 5, "topk_group": 2})),
    ),
    "v2_lite_mlx_4bit": dict(
        family=V2, form="mlx", dtype="BF16", bits=4, group=64,
        config=shape(128, 2, 4, None, 64, 32, 16, 32, 128, 64, 10, 4, None, None, 128, n_shared_experts=2,
                     **(SOFTMAX | yarn(40, 32, beta_fast=32, beta_slow=1, mscale=0.707, mscale_all_dim=0.707))),
    ),
}


# ---------------------------------------------------------------- random weights


def drawer(seed):
    """Weights that make attention far from uniform and the router's bias matter."""
    gains = {
        "mlp.gate.weight": 2.0,
        "lm_head.weight": 2.0,
        "o_proj.weight": 2.0,
        "q_b_proj.weight": 1.6,
        "q_proj.weight": 1.6,
        "kv_b_proj.weight": 1.3,
    }

    def draw(name, size):
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        normal = rng.standard_normal(size, dtype=np.float32)
        if name.endswith("e_score_correction_bias"):
            value = 0.15 * normal
        elif len(size) == 1:
            value = 1.0 + 0.15 * normal
        elif "embed_tokens" in name:
            value = normal
        else:
            gain = next((g for end, g in gains.items() if name.endswith(end)), 2.5 if "down_proj" in name else 1.0)
            value = normal * (gain / math.sqrt(size[-1]))
        return torch.from_numpy(np.asarray(value, np.float32))

    return draw


def classes(family):
    if family == V2:
        return transformers.DeepseekV2Config, transformers.DeepseekV2ForCausalLM
    return transformers.DeepseekV3Config, transformers.DeepseekV3ForCausalLM


def make_config(case, **changes):
    config = classes(case["family"])[0](**copy.deepcopy({**case["config"], **changes}))  # it fills in rope_scaling itself
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return config


def make_module(case, **changes):
    """The module; transformers knows no moe_layer_freq, so layers that it makes dense are exchanged here."""
    torch.manual_seed(0)
    module = classes(case["family"])[1](make_config(case, **changes)).eval().float()
    for i, layer in enumerate(module.model.layers):
        if i >= case["config"]["first_k_dense_replace"] and i % case["config"]["moe_layer_freq"]:
            layer.mlp = type(module.model.layers[0].mlp)(module.config)
    return module


# ---------------------------------------------------------------- sensitivity


def mutants(case, state):
    """What a wrong implementation might compute: name, changes of the config, weights."""
    c, rope = case["config"], case["config"]["rope_scaling"]
    if case["family"] != V2:
        yield "rope_pairs", {"rope_interleave": not c.get("rope_interleave", True)}, state
        yield "router_bias", {}, {n: torch.zeros_like(t) if n.endswith("correction_bias") else t for n, t in state.items()}
    if rope:
        yield "no_yarn", {"rope_scaling": None}, state
        if "original_max_position_embeddings" in rope:
            yield "yarn_ramp", {"rope_scaling": {**rope, "original_max_position_embeddings": 3 * rope["original_max_position_embeddings"]}}, state
        yield "mscale", {"rope_scaling": {**rope, "mscale": 1.0, "mscale_all_dim": 0.3}}, state
    if c["topk_group"] < c["n_group"]:
        yield "all_groups", {"topk_group": c["n_group"]}, state
    if c["rms_norm_eps"] > 1e-5:
        yield "norm_eps", {"rms_norm_eps": 1e-6}, state
    uniform = {n: torch.zeros_like(t) if n.endswith(("q_b_proj.weight", "q_proj.weight")) else t for n, t in state.items()}
    yield "uniform_attention", {}, uniform
    no_rope = dict(state)
    for name, t in state.items():
        if name.endswith("kv_a_proj_with_mqa.weight"):
            no_rope[name] = torch.cat([t[: c["kv_lora_rank"]], torch.zeros_like(t[c["kv_lora_rank"] :])])
    yield "no_rope_part", {}, no_rope


def evaluate_with_mutants(case, module, tokens):
    """The golden values; of every mutant the largest relative difference of a row's logits, which must be far above the
    tolerance of the tests."""
    rows = case.get("rows", slice(None))
    state = {n: t.clone() for n, t in module.state_dict().items()}
    hidden, logits, note = evaluate(module, tokens, rows)
    note["differences"] = {}
    for name, changes, weights in mutants(case, state):
        other = make_module(case, **changes)
        other.load_state_dict(weights)
        _, wrong, _ = run(other, tokens, rows)
        difference = float(((wrong - logits).abs().amax(-1) / logits.abs().amax(-1)).max())
        note["differences"][name] = float(f"{difference:.2g}")
        assert difference > MIN_DIFFERENCE, (name, difference)
    return hidden, logits, note


# ---------------------------------------------------------------- forms


def published_config(case):
    names = {V3: "DeepseekV3ForCausalLM", K2: "DeepseekV3ForCausalLM", V2: "DeepseekV2ForCausalLM"}
    dtype = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}[case["dtype"]]
    out = {"architectures": [names[case["family"]]], "model_type": case["family"], "torch_dtype": dtype, **case["config"]}
    if case["form"] == "fp8":
        out["quantization_config"] = {
            "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128],
        }
    if case["form"] in stored.FORMS:
        out["quantization_config"] = stored.FORMS[case["form"]].config
    return out


def random_state(case, draw):
    """Random weights in the module's names, each rounded to what its form stores it in."""
    state = {}
    for name, t in make_module(case).state_dict().items():
        value = draw(name, tuple(t.shape))
        if case["form"] == "fp8" and forms.is_fp8(name):
            value = value * forms.block_factors(value.shape, draw(name + "/blocks", (64, 64)))
        state[name] = value
    return state


def mtp_tensors(case, tensors, draw):
    """A multi-token-prediction layer as it is published: one more layer like the last (here with two experts only), and what
    joins and ends it."""
    n, h, v = (case["config"][k] for k in ("num_hidden_layers", "hidden_size", "vocab_size"))
    last, base = f"model.layers.{n - 1}.", f"model.layers.{n}."
    names = [k[len(last) :] for k in tensors if k.startswith(last)]
    names = [k for k in names if not k.startswith("mlp.experts.") or k.split(".")[2] in "01"]
    out = {base + k: tensors[last + k].flip(0) for k in names}
    sizes = {"embed_tokens": (v, h), "enorm": (h,), "hnorm": (h,), "eh_proj": (h, 2 * h), "shared_head.norm": (h,), "shared_head.head": (v, h)}
    return out | {f"{base}{k}.weight": draw(base + k, size) for k, size in sizes.items()}


def write_published(case, folder, state, draw):
    """The raw Hugging Face form; returns the tensors as stored."""
    tensors = forms.split_experts(state)
    if case.get("mtp"):
        tensors |= mtp_tensors(case, tensors, draw)
    raw = {}
    for name, t in tensors.items():
        if case["form"] == "fp8" and forms.is_fp8(name):
            raw[name], raw[name + "_scale_inv"] = forms.fp8_of(t, case.get("scale_dtype", "F32"))
        elif case["form"] in stored.FORMS and stored.FORMS[case["form"]].takes(name):
            raw |= stored.FORMS[case["form"]].store(name.removesuffix(".weight"), t)
        else:
            bias = name.endswith("e_score_correction_bias")
            raw[name] = forms.raw_of(t, case.get("bias_dtype", "F32") if bias else case["dtype"])
    forms.write_json(folder / "config.json", published_config(case))
    forms.write_checkpoint(folder, dict(sorted(raw.items())), case.get("shards", 1))
    return raw


def module_of(case, state):
    module = make_module(case)
    module.load_state_dict(state)
    return module


def load_published(case, folder):
    """As transformers itself reads the directory."""
    module, info = classes(case["family"])[1].from_pretrained(
        folder, config=make_config(case), dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"] and not info.get("mismatched_keys"), info
    return module.eval()


def make_hf(case, folder, seed, tokens, out):
    draw = drawer(seed)
    if case.get("saved"):
        return make_saved(case, folder, draw, tokens)
    raw = write_published(case, folder, random_state(case, draw), draw)
    if case["form"] in stored.FORMS:
        raw = stored.FORMS[case["form"]].values(raw)
    state = forms.fuse_experts({n: forms.float_of(t) for n, t in forms.dequantise_fp8(raw).items()}, case["config"]["num_hidden_layers"])
    module = module_of(case, state)
    if case["form"] == "hf" and case["config"]["moe_layer_freq"] == 1:
        for name, t in load_published(case, folder).state_dict().items():
            assert torch.equal(t, state[name]), name
    results = {"golden": evaluate_with_mutants(case, module, tokens)}
    if case.get("fewer"):  # the same weights with fewer experts per token than the model's own
        less = {**case, "config": {**case["config"], "num_experts_per_tok": case["fewer"]}}
        results[f"golden_{case['fewer']}_experts"] = evaluate_with_mutants(less, module_of(less, state), tokens)
    return results


def make_saved(case, folder, draw, tokens):
    module = module_of(case, random_state(case, draw))
    module.to(forms.TORCH_OF[case["dtype"]]).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return {"golden": evaluate_with_mutants(case, load_published(case, folder), tokens)}


def make_mlx(case, folder, seed, tokens, out):
    draw = drawer(seed)
    with tempfile.TemporaryDirectory() as raw:
        write_published({**case, "shards": 1}, Path(raw), random_state(case, draw), draw)
        if case["form"] == "mlx":
            config = forms.convert_to_mlx(Path(raw), folder, case["bits"], case["group"], mode=case.get("mode", "affine"))
            tensors = forms.read_checkpoint(folder)
        else:
            config, tensors = forms.old_mlx(Path(raw), case["bits"], case["group"])
            forms.write_json(folder / "config.json", config)
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    forms.write_checkpoint(folder, tensors, case.get("shards", 1), "mlx")
    hidden, logits, note = evaluate_with_mutants(case, module_of(case, mlx_state(case, tensors, config)), tokens)
    if case["form"] == "mlx":
        # a second program's view of what the stored halves of kv_b_proj mean
        difference = float(((forms.mlx_lm_logits(folder, tokens) - logits).abs().amax(-1) / logits.abs().amax(-1)).max())
        note["mlx_lm_difference"] = float(f"{difference:.2g}")
    return {"golden": (hidden, logits, note)}


def mlx_state(case, tensors, config):
    """The module's weights from MLX tensors: dequantised, the two halves of kv_b_proj joined head by head."""
    state = forms.dequantised_mlx(tensors, config["quantization"])
    for name in [n for n in state if n.endswith("embed_q.weight")]:
        other = name.replace("embed_q", "unembed_out")
        halves = torch.cat([state.pop(name).transpose(1, 2), state.pop(other)], dim=1)
        state[name.replace("embed_q", "kv_b_proj")] = halves.flatten(0, 1).contiguous()
    return forms.fuse_switch_mlp(state)


MANIFEST_KEYS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size", "rms_norm_eps",
    "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size", "intermediate_size", "n_group",
    "topk_group", "first_k_dense_replace", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "q_lora_rank", "kv_lora_rank",
    "rope_theta", "rope_scaling", "routed_scaling_factor",
)


def make_packed(case, folder, seed, tokens, out):
    source = CASES[case["source"]]
    c, config = source["config"], json.loads((out / case["source"] / "config.json").read_text())
    tensors = forms.read_checkpoint(out / case["source"])
    if case["config_json"]:
        shutil.copy(out / case["source"] / "config.json", folder / "config.json")
    manifest = {k: config[k] for k in MANIFEST_KEYS} | {"default_bits": source["bits"], "default_group_size": source["group"]}
    forms.pack_resident(folder, tensors, config, manifest, list(tensors))
    layers, results = range(c["first_k_dense_replace"], c["num_hidden_layers"]), {}
    for bits in case["bits"]:
        experts = tensors if bits == 4 else forms.requantise_2bit(tensors)
        packed = folder / ("packed_experts" if bits == 4 else "packed_experts_2bit")
        forms.pack_experts(packed, experts, layers, c["n_routed_experts"], "model")
        forms.write_layout(packed, experts, layers, c["n_routed_experts"], c["num_hidden_layers"])
        quantization = dict(config["quantization"])
        if bits == 2:
            narrow = [k.removesuffix(".weight") for k in experts if ".switch_mlp." in k and k.endswith(".weight")]
            quantization |= {k: {"group_size": 64, "bits": 2} for k in narrow}
        module = module_of(source, mlx_state(source, experts, {"quantization": quantization}))
        results["golden" if bits == case["bits"][0] else "golden_2bit"] = evaluate_with_mutants(source, module, tokens)
    return results


def make(case, folder, seed, tokens, out):
    forms_of = {"hf": make_hf, "fp8": make_hf, "mlx": make_mlx, "mlx_whole": make_mlx, "packed": make_packed}
    return forms_of.get(case["form"], make_hf)(case, folder, seed, tokens, out)
