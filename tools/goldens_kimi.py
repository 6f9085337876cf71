# SPDX-License-Identifier: MIT
"""The cases for make_goldens.py of Kimi-Linear: shapes and random weights, written as published. transformers is the oracle;
wrong models are evaluated beside the right one as in goldens_grouped."""
import copy

import torch
import transformers

import goldens_forms as forms
import goldens_module as modules

FAMILY = "kimi_linear"


def shape(hidden, heads, vocab, latent, linear, moe, full, **more):
    kv_lora, nope, rope, v_dim = latent
    n_linear, head_dim, width = linear
    n, k, inter, dense = moe
    layers = more.pop("layers")
    return {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": vocab,
        "kv_lora_rank": kv_lora, "q_lora_rank": None, "qk_nope_head_dim": nope, "qk_rope_head_dim": rope, "v_head_dim": v_dim,
        "linear_attn_config": {
            "full_attn_layers": full, "kda_layers": [i for i in range(1, layers + 1) if i not in full], "head_dim": head_dim,
            "num_heads": n_linear, "short_conv_kernel_size": width,
        },
        "num_experts": n, "num_experts_per_token": k, "moe_intermediate_size": inter, "intermediate_size": dense, "num_shared_experts": 1,
        "first_k_dense_replace": 1, "moe_layer_freq": 1, "moe_renormalize": True, "moe_router_activation_func": "sigmoid",
        "num_expert_group": 1, "topk_group": 1, "routed_scaling_factor": 2.446, "mla_use_nope": True, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "model_max_length": 4096, "rope_theta": 10000.0, "rope_scaling": None, "tie_word_embeddings": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **more,
    }


CASES = {
    "kimi_linear_bf16": dict(family=FAMILY, dtype="BF16", shards=2, config=shape(48, 3, 140, (20, 12, 8, 14), (3, 16, 4), (7, 3, 16, 56), [4], layers=4)),
    # groups, a convolution of three, all weights of the experts as they are
    "kimi_linear_groups_f32": dict(
        family=FAMILY, dtype="F32", config=shape(32, 2, 128, (16, 10, 6, 12), (2, 20, 3), (8, 2, 12, 40), [1, 3], layers=4, num_expert_group=4,
                                                 topk_group=2, moe_renormalize=False, first_k_dense_replace=2, num_shared_experts=2),
    ),
    "kimi_linear_f16": dict(family=FAMILY, dtype="F16", config=shape(56, 4, 132, (28, 8, 4, 8), (2, 33, 2), (6, 2, 24, 60), [2], layers=3)),
}


def drawer(seed):
    gains = {"mlp.gate.weight": 2.0, "lm_head.weight": 2.0, "o_proj.weight": 2.5, "q_proj.weight": 1.6, "kv_b_proj.weight": 1.3,
             "f_b_proj.weight": 2.0, "g_b_proj.weight": 2.0, "b_proj.weight": 2.0}

    def draw(name, size):
        normal = modules.normal_of(seed, name, size)
        if name.endswith("e_score_correction_bias"):
            value = 0.15 * normal
        elif name.endswith("A_log"):
            value = 0.5 * normal - 1.0
        elif name.endswith("dt_bias"):
            value = 0.7 * normal - 1.0
        elif len(size) == 1:
            value = 1.0 + 0.15 * normal
        elif "embed_tokens" in name:
            value = normal
        elif "conv1d" in name:
            value = 0.6 * normal
        else:
            value = modules.matrix_of(normal, modules.gain_of(name, gains))
        return modules.tensor_of(value)

    return draw


def make_module(case, **changes):
    config = transformers.KimiLinearConfig(**copy.deepcopy({**case["config"], **changes}))
    return modules.make(transformers.KimiLinearForCausalLM, modules.eager(config))


def module_of(case, state, **changes):
    return modules.loaded(case, make_module(case, **changes), state)


def random_state(case, draw):
    return modules.random_state(make_module(case), draw)


def mutants(case, state):
    for name, suffixes, change in (
        ("decay_of_heads", ("dt_bias",), lambda t: t.mean().expand_as(t).contiguous()),
        ("a_log", ("A_log",), lambda t: t + 1.0),
        ("beta", ("self_attn.b_proj.weight",), torch.zeros_like),
        ("gate", ("g_b_proj.weight",), torch.zeros_like),
        ("forget_gate", ("f_b_proj.weight",), torch.zeros_like),
        ("conv", ("conv1d.weight",), lambda t: t.flip(-1)),
        ("o_norm", ("o_norm.weight",), torch.ones_like),
        ("router_bias", ("e_score_correction_bias",), torch.zeros_like),
        ("no_latents", ("kv_a_proj_with_mqa.weight",), torch.zeros_like),
    ):
        yield name, {}, modules.with_weights(state, suffixes, change)
    yield "topk_sum", {"moe_renormalize": not case["config"]["moe_renormalize"]}, state


def published(case, state):
    """The names and tensors of the published form."""
    out, dense = {}, case["config"]["first_k_dense_replace"]
    for name, t in forms.split_experts(state).items():
        name = name.replace(".forget_gate.", ".")
        if name.startswith("model.layers.") and int(name.split(".")[2]) >= dense:
            name = name.replace(".mlp.", ".block_sparse_moe.")
        for ours, theirs in (("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2")):
            name = name.replace(f".{ours}.", f".{theirs}.") if ".experts." in name else name
        if name.endswith("conv1d.weight"):
            for letter, part in zip("qkv", t.chunk(3)):
                out[name.replace("conv1d", letter + "_conv1d")] = part.contiguous()
        else:
            out[name] = t
    return out


def make(case, folder, seed, tokens):
    draw = drawer(seed)

    def dtype_of(name):
        return "F32" if name.endswith(("e_score_correction_bias", "A_log", "dt_bias")) else case["dtype"]

    state = random_state(case, draw)
    state = {n: forms.float_of(forms.raw_of(t, dtype_of(n))) for n, t in state.items()}
    raw = {n: forms.raw_of(t, dtype_of(n)) for n, t in published(case, state).items()}
    dtype = modules.DTYPES[case["dtype"]]
    forms.write_json(folder / "config.json", {"architectures": ["KimiLinearForCausalLM"], "model_type": FAMILY, "torch_dtype": dtype, **case["config"]})
    forms.write_checkpoint(folder, dict(sorted(raw.items())), case.get("shards", 1))
    loaded = transformers.KimiLinearForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not loaded[1]["missing_keys"] and not loaded[1]["unexpected_keys"], loaded[1]
    for name, t in loaded[0].state_dict().items():
        assert torch.equal(t, state[name]), name
    return {"golden": modules.evaluate_with_mutants(module_of, mutants, case, state, tokens)}
