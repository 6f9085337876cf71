# SPDX-License-Identifier: MIT
"""The DeepSeek family's cases for make_goldens.py: deepseek_v3 (v3_*), kimi_k2 (k2_*) and deepseek_v2 (v2_*). Their shapes,
random weights, router margins and stored forms; the golden values come from make_goldens.evaluate like all others."""
import math
import zlib

import numpy as np
import torch
import transformers

import goldens_forms as forms

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


CASES = {
    "v3_bf16": dict(
        family=V3, form="hf", dtype="BF16", shards=2,
        config=shape(72, 3, 4, 24, 32, 16, 8, 12, 112, 24, 12, 3, 4, 2, 144),
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


def make_config(case):
    config = classes(case["family"])[0](**case["config"])
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return config


def make_module(case):
    torch.manual_seed(0)
    return classes(case["family"])[1](make_config(case)).eval().float()


def margin_of(config, gate, out, rows):
    """How far the router is from another choice, over the rows: the distance between the last taken and the first left, of
    groups and of experts, in the scores that choose."""
    logits = out[0].detach()[rows]
    noaux = hasattr(gate, "e_score_correction_bias")
    scores = logits.sigmoid() + gate.e_score_correction_bias if noaux else logits.softmax(-1)
    margin = math.inf
    if noaux or config.topk_method == "group_limited_greedy":
        grouped = scores.view(len(scores), config.n_group, -1)
        of_group = grouped.topk(2, -1).values.sum(-1) if noaux else grouped.amax(-1)
        if config.topk_group < config.n_group:
            top = of_group.topk(config.topk_group + 1, -1)
            margin = float((top.values[:, -2] - top.values[:, -1]).min())
            kept = torch.zeros_like(of_group).scatter_(1, top.indices[:, :-1], 1).bool()
            scores = grouped.masked_fill(~kept[..., None], -math.inf).flatten(1)
    top = scores.topk(config.num_experts_per_tok + 1, -1).values
    return min(margin, float((top[:, -2] - top[:, -1]).min()))


# ---------------------------------------------------------------- forms


def published_config(case):
    names = {V3: "DeepseekV3ForCausalLM", K2: "DeepseekV3ForCausalLM", V2: "DeepseekV2ForCausalLM"}
    dtype = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}[case["dtype"]]
    return {"architectures": [names[case["family"]]], "model_type": case["family"], "torch_dtype": dtype, **case["config"]}


def stored_dtype(case, name):
    if name.endswith("e_score_correction_bias"):
        return case.get("bias_dtype", "F32")
    return case["dtype"]


def load_published(case, folder):
    module, info = classes(case["family"])[1].from_pretrained(
        folder, config=make_config(case), dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    assert not info["missing_keys"] and not info.get("mismatched_keys"), info
    return module.eval()


def make_hf(case, folder, seed, tokens, evaluate):
    draw = drawer(seed)
    state = {n: draw(n, tuple(t.shape)) for n, t in make_module(case).state_dict().items()}
    raw = {n: forms.raw_of(t, stored_dtype(case, n)) for n, t in forms.split_experts(state).items()}
    forms.write_json(folder / "config.json", published_config(case))
    forms.write_checkpoint(folder, dict(sorted(raw.items())), case.get("shards", 1))
    module = load_published(case, folder)
    for name, t in module.state_dict().items():
        assert torch.equal(t, forms.float_of(forms.raw_of(state[name], stored_dtype(case, name)))), name
    return {"golden": evaluate(module, tokens)}


def make(case, folder, seed, tokens, evaluate):
    return {"hf": make_hf}[case["form"]](case, folder, seed, tokens, evaluate)
