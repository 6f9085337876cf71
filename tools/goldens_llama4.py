# SPDX-License-Identifier: MIT
"""The cases for make_goldens.py of Llama 4: shapes, random weights and stored forms of its text tower. transformers is the
oracle; wrong models are evaluated beside the right one as in goldens_grouped."""
import copy

import torch
import transformers

import goldens_forms as forms
import goldens_module as modules
from goldens_grouped import shape

FAMILY = "llama4"
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


def towers(n, inter, dense, chunk, **more):
    return {
        "num_local_experts": n, "num_experts_per_tok": 1, "intermediate_size": inter, "intermediate_size_mlp": dense,
        "attention_chunk_size": chunk, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "floor_scale": 4, "attn_scale": 0.6,
        "attn_temperature_tuning": True, "interleave_moe_layer_step": 1, "use_qk_norm": True, "attention_bias": False, **more,
    }


CASES = {
    # as Scout, in the form of mlx-lm: experts beside one another, a vision tower that is left out
    "llama4_mlx_bf16": dict(
        family=FAMILY, form="mlx_plain", dtype="BF16",
        config=shape(48, 5, 6, 2, 16, 136, **towers(5, 20, 64, 16, rope_scaling=LLAMA3)),
    ),
    # as Maverick: a dense layer between two with experts, no norms of heads; each expert apart, as converters to int8 leave them
    "llama4_dense_layers_f32": dict(
        family=FAMILY, form="each", dtype="F32",
        config=shape(36, 4, 5, 1, 12, 128, **towers(6, 20, 44, 9, use_qk_norm=False, interleave_moe_layer_step=2)),
    ),
    # layers that do not rotate by a list, all of the queries as they are, biases
    "llama4_lists_f16": dict(
        family=FAMILY, form="each", dtype="F16",
        config=shape(56, 3, 4, 4, 14, 132, **towers(5, 36, 60, 33, no_rope_layers=[0, 1, 1], moe_layers=[0, 2], attention_bias=True,
                                                    attn_temperature_tuning=False, tie_word_embeddings=True)),
    ),
    # as published by Meta: experts transposed, gate and up in one tensor
    "llama4_turned_bf16": dict(
        family=FAMILY, form="turned", dtype="BF16",
        config=shape(36, 4, 5, 1, 12, 128, **towers(4, 21, 28, 16, rope_scaling=LLAMA3)),
    ),
}


def drawer(seed):
    gains = {"router.weight": 2.5, "lm_head.weight": 2.0, "o_proj.weight": 2.0, "q_proj.weight": 2.0, "k_proj.weight": 1.5}

    def draw(name, size):
        normal = modules.normal_of(seed, name, size)
        if name.endswith(".bias"):
            value = 0.3 * normal
        elif len(size) == 1:
            value = 1.0 + 0.15 * normal
        elif "embed_tokens" in name:
            value = normal
        elif len(size) == 3:  # transposed
            value = modules.matrix_of(normal, 2.5 if "down_proj" in name else 1.5, size[-2])
        else:
            value = modules.matrix_of(normal, modules.gain_of(name, gains))
        return modules.tensor_of(value)

    return draw


def make_module(case, **changes):
    config = transformers.Llama4TextConfig(**copy.deepcopy({**case["config"], **changes}))
    config._attn_implementation = "eager"
    return modules.make(transformers.Llama4ForCausalLM, config)


def module_of(case, state, **changes):
    return modules.loaded(case, make_module(case, **changes), state)


def random_state(case, draw):
    return modules.random_state(make_module(case), draw, modules.unstored(case))


def mutants(case, state):
    c = case["config"]

    yield "chunk", {"attention_chunk_size": c["attention_chunk_size"] + 3}, state
    yield "temperature", {"attn_temperature_tuning": not c["attn_temperature_tuning"]}, state
    if c["attn_temperature_tuning"]:
        yield "floor", {"floor_scale": c["floor_scale"] + 1}, state
    yield "head_norms", {"use_qk_norm": not c["use_qk_norm"]}, state
    yield "all_rotate", {"no_rope_layers": [1] * c["num_hidden_layers"]}, state
    yield "theta", {"rope_theta": 100 * c["rope_theta"]}, state
    yield "router", {}, modules.with_weights(state, ("router.weight",), lambda t: 0.5 * t)
    yield "no_shared", {}, modules.with_weights(state, ("shared_expert.down_proj.weight",), torch.zeros_like)
    if c.get("rope_scaling"):
        yield "no_scaling", {"rope_scaling": None}, state
    if c["attention_bias"]:
        yield "bias", {}, modules.with_weights(state, ("k_proj.bias", "o_proj.bias"), torch.zeros_like)


# ---------------------------------------------------------------- forms


def stored(case, state):
    """Experts as they are multiplied: rows of outputs. As transformers itself has them where they are to be turned."""
    out = {}
    if case["form"] == "turned":
        return dict(state)
    for name, t in state.items():
        base = name.rsplit(".", 1)[0]
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            out[name] = t
            continue
        parts = t.transpose(1, 2).chunk(2, 1) if "gate_up" in name else [t.transpose(1, 2)]
        for proj, part in zip(("gate_proj", "up_proj") if "gate_up" in name else ("down_proj",), parts):
            if case["form"] == "each":
                out |= {f"{base}.{e}.{proj}.weight": part[e].contiguous() for e in range(len(part))}
            else:
                out[f"{base}.{proj}.weight"] = part.contiguous()
    return out


def published_config(case):
    dtype = modules.DTYPES[case["dtype"]]
    text = {**case["config"], "model_type": "llama4_text"}
    if case["form"] == "each":
        return {"architectures": ["Llama4ForCausalLM"], "torch_dtype": dtype, **text}
    text["attn_temperature_tuning"] = 4  # as published
    vision = {"model_type": "llama4_vision_model", "hidden_size": 16, "num_hidden_layers": 1}
    return {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "torch_dtype": dtype, "text_config": text,
            "vision_config": vision}


def make(case, folder, seed, tokens):
    draw = drawer(seed)
    state = random_state(case, draw)
    state = {n: forms.float_of(forms.raw_of(t, case["dtype"])) for n, t in state.items()}
    raw = {n: forms.raw_of(t, case["dtype"]) for n, t in stored(case, state).items()}
    if case["form"] in ("mlx_plain", "turned"):
        raw = {"language_model." + n: t for n, t in raw.items()}
        raw["vision_model.layernorm_pre.weight"] = forms.raw_of(draw("vision", (16,)), case["dtype"])
        raw["multi_modal_projector.linear_1.weight"] = forms.raw_of(draw("projector", (8, 16)), case["dtype"])
    forms.write_json(folder / "config.json", published_config(case))
    forms.write_checkpoint(folder, dict(sorted(raw.items())), 1, "mlx" if case["form"] == "mlx_plain" else "pt")
    if case["form"] == "turned":
        for name, t in state.items():
            stored_as = forms.float_of(raw["language_model." + name])
            assert stored_as.shape == t.shape and torch.equal(stored_as, t), name
    return {"golden": modules.evaluate_with_mutants(module_of, mutants, case, state, tokens)}
