# SPDX-License-Identifier: MIT
"""The cases for make_goldens.py of DeepSeek-V4: shapes and random weights, written as published and as transformers names
them. transformers is the oracle; wrong models are evaluated beside the right one as in goldens_grouped."""
import copy

import numpy as np
import torch
import transformers

import goldens_forms as forms
import goldens_module as modules
from goldens_grouped import mxfp4_of
from goldens_run import evaluate, run

FAMILY = "deepseek_v4"
MIN_INDEX_MARGIN = 1e-4
YARN = {"rope_type": "yarn", "factor": 16.0, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 48}


def shape(hidden, heads, head_dim, vocab, low, moe, **more):
    q_rank, groups, o_rank, rot = low
    n, k, inter = moe
    return {
        "hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": 1, "head_dim": head_dim, "vocab_size": vocab,
        "q_lora_rank": q_rank, "o_groups": groups, "o_lora_rank": o_rank, "qk_rope_head_dim": rot, "n_routed_experts": n,
        "num_experts_per_tok": k, "moe_intermediate_size": inter, "n_shared_experts": 1, "scoring_func": "sqrtsoftplus",
        "topk_method": "noaux_tc", "norm_topk_prob": True, "routed_scaling_factor": 1.5, "swiglu_limit": 1.5, "hidden_act": "silu",
        "rms_norm_eps": 1e-6, "max_position_embeddings": 4096, "rope_theta": 10000, "compress_rope_theta": 40000.0,
        "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "num_nextn_predict_layers": 1, "attention_bias": False,
        "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1, **({} if "rope_parameters" in more else {"rope_scaling": YARN}), **more,
    }


def rates(sparse, heavy):
    return {"compress_rates": {"compressed_sparse_attention": sparse, "heavily_compressed_attention": heavy}}


SLIDING, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"

CASES = {
    # as published: ratios, the first layers hashed; five of seventeen entries chosen
    "deepseek_v4_bf16": dict(
        family=FAMILY, dtype="BF16", shards=2,
        config=shape(40, 6, 24, 131, (20, 3, 12, 8), (7, 3, 24), num_hidden_layers=4, compress_ratios=[0, 4, 128, 4, 0], num_hash_layers=2,
                     sliding_window=13, index_n_heads=8, index_head_dim=12, index_topk=5, **rates(4, 16)),
    ),
    # names of layers, rotations in objects; entries of 2 and of 32 positions, two streams, sigmoid scores, nothing hashed
    "deepseek_v4_types_f32": dict(
        family=FAMILY, dtype="F32", names="transformers",
        config=shape(36, 5, 18, 127, (28, 5, 7, 6), (6, 2, 20), num_hidden_layers=4, layer_types=[HEAVY, SPARSE, SLIDING, SPARSE],
                     mlp_layer_types=["moe", "hash_moe", "moe", "moe"], sliding_window=33, index_n_heads=7, index_head_dim=10, index_topk=9,
                     hc_mult=2, hc_sinkhorn_iters=3, hc_eps=1e-3, scoring_func="sigmoid", routed_scaling_factor=2.2, rms_norm_eps=1e-5,
                     rope_parameters={"main": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 6 / 18},
                                      "compress": {"rope_type": "yarn", "rope_theta": 90000.0, "partial_rotary_factor": 6 / 18, "factor": 8.0,
                                                   "original_max_position_embeddings": 64, "attention_factor": 1.1}}, **rates(2, 32)),
    ),
    # the types that nothing names; three streams, one group, every entry is seen, some of two pages
    "deepseek_v4_plain_f16": dict(
        family=FAMILY, dtype="F16",
        config=shape(48, 3, 32, 130, (24, 1, 20, 4), (5, 2, 28), num_hidden_layers=4, num_hash_layers=1, sliding_window=20, index_n_heads=4,
                     index_head_dim=16, index_topk=512, hc_mult=3, swiglu_limit=10.0, rope_scaling=None, **rates(8, 64)),
    ),
    # the stored forms: FP8 in blocks and experts of e2m1, scales that are powers of two
    "deepseek_v4_fp8": dict(
        family=FAMILY, dtype="BF16", stored=True,
        config=shape(64, 4, 32, 129, (32, 2, 16, 8), (6, 2, 32), num_hidden_layers=3, compress_ratios=[0, 4, 128, 0], num_hash_layers=1,
                     sliding_window=16, index_n_heads=8, index_head_dim=16, index_topk=6, expert_dtype="fp4",
                     quantization_config={"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "scale_fmt": "ue8m0",
                                          "weight_block_size": [128, 128]}, **rates(4, 32)),
    ),
}

GAINS = {"gate.weight": 2.0, "lm_head.weight": 2.0, "o_b_proj.weight": 1.5, "down_proj": 2.5, "hc.fn": 1.5, "hc_fn": 1.5,
         "weights_proj.weight": 1.5, "compressor.gate_proj.weight": 2.0, "indexer.gate_proj.weight": 2.0, "gate_up_proj": 1.6}


def drawer(seed, config):
    def draw(name, size):
        if name.endswith("tid2eid"):
            rng = modules.rng_of(seed, name)
            picks = [rng.permutation(config["n_routed_experts"])[: size[1]] for _ in range(size[0])]
            return torch.from_numpy(np.array(picks, np.int64))
        normal = modules.normal_of(seed, name, size)
        if name.endswith("e_score_correction_bias"):
            value = 0.15 * normal
        elif name.endswith(("position_bias", "sinks")) or name.endswith(("base", "hc_base")):
            value = 0.7 * normal
        elif name.endswith(("hc.scale", "hc_scale")):
            value = 1.0 + 0.3 * normal
        elif len(size) == 1:
            value = 1.0 + 0.15 * normal
        elif "embed_tokens" in name:
            value = normal
        else:
            value = modules.matrix_of(normal, modules.gain_of(name, GAINS, 1.0))
        return modules.tensor_of(value)

    return draw


def make_module(case, **changes):
    settings = copy.deepcopy({**case["config"], **changes})
    settings.pop("quantization_config", None)
    return modules.make(transformers.DeepseekV4ForCausalLM, modules.eager(transformers.DeepseekV4Config(**settings)))


def module_of(case, state, **changes):
    return modules.loaded(case, make_module(case, **changes), state)


def mutants(case, state):
    config = case["config"]
    for name, suffixes, change in (
        ("sinks", ("sinks",), torch.zeros_like),
        ("position_bias", ("compressor.position_bias",), torch.zeros_like),
        ("entry_gate", ("compressor.gate_proj.weight",), torch.zeros_like),
        ("entry_norm", ("compressor.kv_norm.weight",), torch.ones_like),
        ("kv_norm", ("self_attn.kv_norm.weight",), torch.ones_like),
        ("stream_base", ("hc.base",), torch.zeros_like),
        ("stream_scale", ("hc.scale",), torch.ones_like),
        ("head_base", ("hc_base",), torch.zeros_like),
        ("router_bias", ("e_score_correction_bias",), torch.zeros_like),
    ):
        yield name, {}, modules.with_weights(state, suffixes, change)
    chosen = config["index_topk"] < 70 // 4
    if chosen:
        yield "index_bias", {}, modules.with_weights(state, ("indexer.position_bias",), lambda t: -2 * t)
        yield "all_entries", {"index_topk": 4096}, state
    if any("tid2eid" in n for n in state):
        yield "hashes", {}, modules.with_weights(state, ("tid2eid",), lambda t: t.roll(1, 0))
    yield "limit", {"swiglu_limit": 0.5 * config["swiglu_limit"] if config["swiglu_limit"] < 5 else 0.5}, state
    yield "window", {"sliding_window": config["sliding_window"] - 1}, state
    yield "iterations", {"hc_sinkhorn_iters": 1}, state
    yield "score", {"scoring_func": "sigmoid" if config["scoring_func"] != "sigmoid" else "sqrtsoftplus"}, state
    yield "compress_theta", {"compress_rope_theta": 100.0, "rope_parameters": None, "rope_scaling": None}, state


def index_margin(case, state, tokens):
    """How far indexers are from another choice: the least distance of the last entry chosen to the first left, of the largest."""
    module, margins, k = module_of(case, state), [1.0], case["config"]["index_topk"]

    def look(rate):
        def hook(m, a, scores):
            for position, row in enumerate(scores[0]):
                seen = row[: (position + 1) // rate].sort(descending=True).values
                if len(seen) > k:
                    margins.append(float((seen[k - 1] - seen[k]) / seen.abs().max()))

        return hook

    for part in module.modules():
        if type(part).__name__ == "DeepseekV4Indexer":
            part.scorer.register_forward_hook(look(part.compress_rate))
    run(module, tokens)
    return min(margins)


def evaluate_with_mutants(case, state, tokens):
    hidden, logits, note = evaluate(module_of(case, state), tokens)
    note["index_margin"] = index_margin(case, state, tokens)
    if note["index_margin"] < MIN_INDEX_MARGIN:
        note["router_margin"] = 0.0  # another seed
        return hidden, logits, note
    modules.add_differences(note, logits, module_of, mutants, case, state, tokens)
    return hidden, logits, note


RENAMES = (
    (".compressor.indexer.kv_proj.", ".indexer.compressor.wkv."), (".compressor.indexer.gate_proj.", ".indexer.compressor.wgate."),
    (".compressor.indexer.position_bias", ".indexer.compressor.ape"), (".compressor.indexer.kv_norm.", ".indexer.compressor.norm."),
    (".compressor.indexer.q_b_proj.", ".indexer.wq_b."), (".compressor.indexer.scorer.weights_proj.", ".indexer.weights_proj."),
    (".compressor.kv_proj.", ".compressor.wkv."), (".compressor.gate_proj.", ".compressor.wgate."),
    (".compressor.position_bias", ".compressor.ape"), (".compressor.kv_norm.", ".compressor.norm."),
    ("self_attn.kv_proj.", "self_attn.wkv."), (".q_a_proj.", ".wq_a."), (".q_b_proj.", ".wq_b."), (".q_a_norm.", ".q_norm."),
    (".o_a_proj.", ".wo_a."), (".o_b_proj.", ".wo_b."), (".sinks", ".attn_sink"), (".self_attn.", ".attn."), (".mlp.", ".ffn."),
    (".gate.e_score_correction_bias", ".gate.bias"), (".shared_experts.gate_proj.", ".shared_experts.w1."),
    (".shared_experts.down_proj.", ".shared_experts.w2."), (".shared_experts.up_proj.", ".shared_experts.w3."),
    (".attn_hc.", ".hc_attn_"), (".ffn_hc.", ".hc_ffn_"), ("model.hc_head.hc_", "hc_head_"), (".input_layernorm.", ".attn_norm."),
    (".post_attention_layernorm.", ".ffn_norm."), ("model.embed_tokens.", "embed."), ("lm_head.", "head."), ("model.", ""),
)


def published_name(name):
    for ours, theirs in RENAMES:
        name = name.replace(ours, theirs)
    return name


def published(state):
    """The names of the published form, each expert's matrices apart."""
    out = {}
    for name, t in state.items():
        if name.endswith("experts.gate_up_proj"):
            folder = published_name(name).removesuffix(".gate_up_proj")
            for e, both in enumerate(t):
                out[f"{folder}.{e}.w1.weight"], out[f"{folder}.{e}.w3.weight"] = both.chunk(2)
        elif name.endswith("experts.down_proj"):
            out.update({f"{published_name(name).removesuffix('.down_proj')}.{e}.w2.weight": each for e, each in enumerate(t)})
        else:
            out[published_name(name)] = t
    return out


def joined(names, state):
    """Back to the names of the module, whose shapes are given."""
    out = {}
    for name in names:
        own = published_name(name)
        if name.endswith("experts.gate_up_proj"):
            folder = own.removesuffix(".gate_up_proj")
            n = sum(k.startswith(folder) and k.endswith(".w1.weight") for k in state)
            out[name] = torch.stack([torch.cat([state[f"{folder}.{e}.w1.weight"], state[f"{folder}.{e}.w3.weight"]]) for e in range(n)])
        elif name.endswith("experts.down_proj"):
            folder = own.removesuffix(".down_proj")
            n = sum(k.startswith(folder) and k.endswith(".w2.weight") for k in state)
            out[name] = torch.stack([state[f"{folder}.{e}.w2.weight"] for e in range(n)])
        else:
            out[name] = state[own]
    return out


def is_float32(name):
    return name.endswith(("ape", "attn_sink", "gate.bias", "position_bias", "sinks", "e_score_correction_bias", "_fn", "_base", "_scale",
                          "hc.fn", "hc.base", "hc.scale"))


def raw_of(case, name, t):
    if t.dtype == torch.int64:
        return forms.Raw("I64", list(t.shape), t.numpy().tobytes())
    return forms.raw_of(t, "F32" if is_float32(name) else case["dtype"])


def powers_of_two(largest):
    return torch.exp2(torch.ceil(torch.log2(largest / 448))).to(torch.float8_e8m0fnu)


def stored_fp8(t):
    rows, cols = t.shape
    padded = torch.zeros((rows + 127) // 128 * 128, (cols + 127) // 128 * 128)
    padded[:rows, :cols] = t
    scale = powers_of_two(padded.reshape(padded.shape[0] // 128, 128, -1, 128).abs().amax((1, 3)))
    factors = forms.blocks(scale.float(), t.shape)
    codes = (t / factors).to(torch.float8_e4m3fn)
    pair = (forms.Raw("F8_E4M3", [rows, cols], codes.view(torch.uint8).numpy().tobytes()),
            forms.Raw("F8_E8M0", list(scale.shape), scale.view(torch.uint8).numpy().tobytes()))
    return pair, codes.float() * factors


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def stored_fp4(t):
    blocks, exponents = mxfp4_of(t)
    rows, cols = t.shape
    codes = torch.from_numpy(np.frombuffer(blocks.data, np.uint8).copy()).reshape(rows, cols // 2)
    scale = torch.from_numpy(np.frombuffer(exponents.data, np.uint8).copy()).reshape(rows, cols // 32).view(torch.float8_e8m0fnu)
    values = torch.stack([E2M1[(codes & 15).long()], E2M1[(codes >> 4).long()]], -1).reshape(rows, cols)
    pair = forms.Raw("I8", [rows, cols // 2], blocks.data), forms.Raw("F8_E8M0", [rows, cols // 32], exponents.data)
    return pair, values * scale.float().repeat_interleave(32, 1)


def is_fp8(name):
    """As published: what makes entries, and the scores of heads, stay as they are."""
    return ".wq_" in name or ".wo_" in name or name.endswith("attn.wkv.weight") or ".shared_experts." in name


def store(case, state):
    """Published tensors, and the values that they stand for."""
    raw, values = {}, {}
    for name, t in published(state).items():
        stored = stored_fp4 if ".ffn.experts." in name else stored_fp8 if is_fp8(name) else None
        if case.get("stored") and stored is not None:
            (raw[name], raw[name.removesuffix("weight") + "scale"]), values[name] = stored(t)
        else:
            raw[name] = raw_of(case, name, t)
            values[name] = t if t.dtype == torch.int64 else forms.float_of(raw[name])
    return raw, joined(state, values)


def make(case, folder, seed, tokens):
    draw = drawer(seed, case["config"])
    state = modules.random_state(make_module(case), draw)
    if case.get("names") == "transformers":
        raw = {n: raw_of(case, n, t) for n, t in state.items()}
    else:
        raw, state = store(case, state)
    dtype = modules.DTYPES[case["dtype"]]
    forms.write_json(folder / "config.json", {"architectures": ["DeepseekV4ForCausalLM"], "model_type": FAMILY, "torch_dtype": dtype, **case["config"]})
    forms.write_checkpoint(folder, dict(sorted(raw.items())), case.get("shards", 1))
    if not case.get("stored"):
        loaded = transformers.DeepseekV4ForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        assert not loaded[1]["missing_keys"] and not loaded[1]["unexpected_keys"], loaded[1]
        for name, t in loaded[0].state_dict().items():
            assert torch.equal(t, state[name]), name
    return {"golden": evaluate_with_mutants(case, state, tokens)}
