# SPDX-License-Identifier: MIT
"""Small models with a multi-token-prediction layer, and what that layer proposes, which transformers leaves out.

The definition is that of the DeepSeek-V3 report (arXiv 2412.19437, section 2.2) and of the published Qwen3-Next weights
(mtp.*), written out below in float64: token t and the model's normed state of the position before it, each normed, go
side by side through one matrix; one more decoder layer; a norm; the model's own head. The states of the model itself and
the decoder layer are transformers' modules in float64 (their norms and rotations compute in float32).

The Qwen3.5 case is in MLX's form (tools/goldens_affine.py), with the layer under the names that conversions give it which keep
it: affine codes but for mtp.fc, norms one more than published.

Each of the others is written once more as GGUF by PyPI's gguf (tools/make_gguf.py), with the same numbers, under the names that
llama.cpp has for such layers (blk.N.nextn.*).

The golden: 8 bytes MFDRAFT1; u32 tokens, vocab; i32 token ids; f32 proposals[tokens - 1][vocab], row i of what follows
token i + 1; f32 logits[tokens][vocab] of the model. And of the last tokens what the layer proposes two tokens ahead, from
its own first proposal: i32 first[8], f32 second[8][vocab]."""

import argparse
import copy
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3
from transformers.models.deepseek_v32 import modeling_deepseek_v32 as v32
from transformers.models.glm4_moe import modeling_glm4_moe as glm4
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa as glm5
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as q35
from transformers.models.qwen3_next import modeling_qwen3_next as next_

import goldens_affine as affine
import goldens_deepseek as deepseek
import gguf_forms
import goldens_forms as forms
import goldens_grouped as grouped
import make_gguf
import make_goldens as goldens

N_TOKENS, N_SECOND = 72, 8
NEXT_CASE = dict(
    family=goldens.NEXT, form="hf", dtype="BF16", interval=2,
    config=goldens.shape(40, 2, 2, 1, 32, 2, 2, 16, 16, 4, 2, 16, 16, 128, **goldens.rope_flat(1e6, 0.5), norm_topk_prob=True),
)
Q35_CASE = dict(
    family=goldens.Q35, form="mlx", dtype="BF16", bits=4, group=32, interval=2,
    config=goldens.shape(64, 2, 4, 2, 16, 2, 4, 16, 16, 4, 2, 32, 32, 128, **goldens.rope_v5(1e7, 0.25)),
)
V3_CASE = dict(
    family=deepseek.V3, form="hf", dtype="BF16",
    config=deepseek.shape(48, 2, 2, 16, 20, 10, 20, 14, 56, 16, 4, 2, 2, 1, 128, first_k_dense_replace=1, num_nextn_predict_layers=1),
)
GLM_CASE = dict(
    family="glm4_moe", form="hf", dtype="BF16",
    config=grouped.shape(40, 2, 4, 2, 12, 128, rms_norm_eps=1e-5, **grouped.glm(4, 2, 16, 56)),
)
# the indexer chooses 24 positions of the layer's own
V32_CASE = dict(
    family="deepseek_v32", form="hf", dtype="BF16",
    config=grouped.latent(40, 2, 2, 16, 20, 10, 8, 14, 56, 16, 4, 2, 2, 1, 128, rope_theta=10000.0, rope_scaling=None, index_topk=24,
                          index_n_heads=12, index_head_dim=20, num_nextn_predict_layers=1),
)
GLM5_CASE = dict(
    family="glm_moe_dsa", form="hf", dtype="BF16",
    config=grouped.latent(40, 2, 2, 16, 20, 10, 8, 14, 56, 16, 4, 2, 1, 1, 128, rope_theta=1000000.0, rms_norm_eps=1e-5, index_topk=512,
                          num_nextn_predict_layers=1),
)
CASES = {
    "draft_next_bf16": NEXT_CASE, "draft_v3_bf16": V3_CASE, "draft_glm4_bf16": GLM_CASE, "draft_v32_bf16": V32_CASE,
    "draft_glm5_bf16": GLM5_CASE, "draft_qwen35_mlx_4bit": Q35_CASE,
}
LAYERS = {
    goldens.NEXT: next_.Qwen3NextDecoderLayer, goldens.Q35: q35.Qwen3_5MoeDecoderLayer, deepseek.V3: v3.DeepseekV3DecoderLayer, "glm4_moe": glm4.Glm4MoeDecoderLayer,
    "deepseek_v32": v32.DeepseekV32DecoderLayer, "glm_moe_dsa": glm5.GlmMoeDsaDecoderLayer,
}


def is_qwen(case):
    return case["family"] in (goldens.NEXT, goldens.Q35)


def tools_of(case):
    """What makes the family's modules, weights and configs."""
    return goldens if is_qwen(case) else deepseek if case["family"] == deepseek.V3 else grouped


def decoder_layer(case, config):
    """One more of the model's."""
    config = copy.deepcopy(config)
    index = config.num_hidden_layers
    config.num_hidden_layers += 1
    config._attn_implementation = config._experts_implementation = "eager"
    for name, more in (("layer_types", "full_attention"), ("mlp_layer_types", "sparse"), ("indexer_types", "full")):
        if getattr(config, name, None):
            setattr(config, name, list(getattr(config, name)) + [more])
    return LAYERS[case["family"]](config, index)


def rms(x, weight, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def causal(n):
    return torch.full((n, n), -torch.inf, dtype=torch.float64).triu(1)[None, None]


class Draft:
    """The layer, once its weights are known: draft.* are its own, draft.layer.* those of its decoder layer."""

    def __init__(self, case, module, state):
        self.is_qwen = is_qwen(case)
        self.module = module
        self.layer = decoder_layer(case, module.config).double().eval()
        self.layer.load_state_dict({k: t.double() for k, t in state["layer"].items()})
        self.own = {k: t.double() for k, t in state.items() if k != "layer"}
        self.eps = module.config.rms_norm_eps
        self.centre = 1.0 if self.is_qwen else 0.0
        self.embed = module.get_input_embeddings().weight.double()
        self.head = module.lm_head.weight.double()

    def norm(self, x, name):
        return rms(x, self.own[name] + self.centre, self.eps)

    def states(self, tokens, before):
        """Of each token, with the state before it: what the decoder layer gives."""
        x = torch.cat([self.norm(self.embed[tokens], "embed"), self.norm(before, "hidden")], -1) @ self.own["in"].T
        positions = torch.arange(len(tokens))[None]
        rotary = self.module.model.rotary_emb(x[None], positions)
        out = self.layer(x[None], position_embeddings=rotary, attention_mask=causal(len(tokens)), position_ids=positions)
        return (out[0] if isinstance(out, tuple) else out).reshape(len(tokens), -1)

    def logits(self, states):
        return self.norm(states, "norm") @ self.head.T

    def fed(self, states):
        """What a proposal's own state is where it goes on from itself: the Qwen families' is normed."""
        return self.norm(states, "norm") if self.is_qwen else states


def draft_state(case, module, draw, config):
    """Random weights of the layer, rounded as they are stored."""
    h = config["hidden_size"]
    own = {"embed": (h,), "hidden": (h,), "norm": (h,), "in": (h, 2 * h)}
    probe = decoder_layer(case, module.config)
    stored = lambda t: forms.float_of(forms.raw_of(t, case["dtype"]))
    state = {k: stored(draw(f"draft.{k}norm.weight" if len(s) == 1 else "draft.in.weight", s)) for k, s in own.items()}
    state["layer"] = {k: stored(draw(f"draft.layer.{k}", tuple(t.shape))) for k, t in probe.state_dict().items()}
    return state


def tensors_of(case, state, n_layers):
    """Under the published names."""
    if is_qwen(case):
        names = {"embed": "mtp.pre_fc_norm_embedding", "hidden": "mtp.pre_fc_norm_hidden", "norm": "mtp.norm", "in": "mtp.fc"}
        base = "mtp.layers.0."
    else:
        base = f"model.layers.{n_layers}."
        names = {"embed": base + "enorm", "hidden": base + "hnorm", "norm": base + "shared_head.norm", "in": base + "eh_proj"}
    layer = forms.split_experts({f"model.layers.0.{k}": t for k, t in state["layer"].items()})
    out = {base + k.removeprefix("model.layers.0."): t for k, t in layer.items()}
    return out | {names[k] + ".weight": state[k] for k in names}


def write(case, folder, module_state, state, n_layers):
    tensors = forms.split_experts(module_state) | tensors_of(case, state, n_layers)
    if not is_qwen(case):  # the shared ones are stored once more
        tensors[f"model.layers.{n_layers}.embed_tokens.weight"] = module_state["model.embed_tokens.weight"]
        tensors[f"model.layers.{n_layers}.shared_head.head.weight"] = module_state["lm_head.weight"]
    raw = {n: forms.raw_of(t, "F32" if n.endswith("e_score_correction_bias") else case["dtype"]) for n, t in tensors.items()}
    forms.write_json(folder / "config.json", tools_of(case).published_config(case))
    forms.write_checkpoint(folder, dict(sorted(raw.items())), 1)


def write_mlx(case, folder, weights, state):
    """The values that the model and its layer then have."""
    checkpoint = affine.Checkpoint(case["bits"], case["group"])
    put = lambda name, t: checkpoint.put("language_model." + name, t)
    module = {n: put(n, t) for n, t in weights.items()}
    names = {"embed": "mtp.pre_fc_norm_embedding", "hidden": "mtp.pre_fc_norm_hidden", "norm": "mtp.norm", "in": "mtp.fc"}
    own = {k: put(names[k] + ".weight", state[k]) for k in names}
    own["layer"] = {k: put("mtp.layers.0." + k, t) for k, t in state["layer"].items()}
    config = goldens.published_config(case) | {"quantization": checkpoint.quantization, "quantization_config": checkpoint.quantization}
    forms.write_json(folder / "config.json", config)
    forms.write_checkpoint(folder, dict(sorted(checkpoint.tensors.items())), 1, "mlx")
    return module, own


def write_gguf(folder, out):
    """The same numbers: what is stored as BF16 stays so, norms become float32."""
    if out.exists():
        shutil.rmtree(out)
    out.mkdir()
    config, tensors = gguf_forms.read_checkpoint(folder)
    make_gguf.write_gguf(out / "model.gguf", config, tensors, make_gguf.Q.BF16)


def make(name, out):
    case, folder = CASES[name], out / name
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    seed = 1
    draw = tools_of(case).drawer(seed)
    module = tools_of(case).make_module(case)
    if is_qwen(case):
        weights = goldens.random_state(case, module, seed)[0]
    else:
        weights = tools_of(case).random_state(case, draw)
    weights = {n: forms.float_of(forms.raw_of(t, "F32" if n.endswith("e_score_correction_bias") else case["dtype"])) for n, t in weights.items()}
    state = draft_state(case, module, draw, case["config"])
    if case["form"] == "mlx":
        weights, state = write_mlx(case, folder, weights, state)
    else:
        write(case, folder, weights, state, module.config.num_hidden_layers)
    module = module.double().eval()
    module.load_state_dict(weights, strict=False)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    tokens = torch.tensor(rng.integers(0, case["config"]["vocab_size"], N_TOKENS))
    with torch.no_grad():
        draft = Draft(case, module, state)
        hidden = module.model(tokens[None]).last_hidden_state[0].double()
        logits = hidden @ draft.head.T
        made = draft.states(tokens[1:], hidden[:-1])
        proposals = draft.logits(made)
        firsts, seconds = [], []
        for end in range(N_TOKENS - N_SECOND, N_TOKENS):  # the last token known is `end`
            first = int(proposals[end - 1].argmax())
            states = draft.states(torch.cat([tokens[1 : end + 1], torch.tensor([first])]), torch.cat([hidden[:end], draft.fed(made[end - 1 : end])]))
            firsts.append(first)
            seconds.append(draft.logits(states[-1:])[0])
    with open(folder / "draft.bin", "wb") as f:
        f.write(b"MFDRAFT1" + struct.pack("<2I", N_TOKENS, logits.shape[1]) + tokens.int().numpy().tobytes())
        f.write(proposals.float().numpy().tobytes() + logits.float().numpy().tobytes())
        f.write(struct.pack(f"<{N_SECOND}i", *firsts) + torch.stack(seconds).float().numpy().tobytes())
    forms.write_json(
        folder / "draft.json",
        {"made_by": "tools/make_draft_goldens.py", "transformers": transformers.__version__, "torch": torch.__version__.split("+")[0], "seed": seed},
    )
    if case["form"] != "mlx" and "index_topk" not in case["config"]:  # GGUF has no indexer that is used
        write_gguf(folder, out / name.replace("_bf16", "_gguf"))
    print(name, "logits std", float(logits.std()), "proposals std", float(proposals.std()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = Path(__file__).resolve().parent.parent / "tests" / "model" / "data"
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in args.cases or CASES:
        make(name, args.out)


if __name__ == "__main__":
    main()
