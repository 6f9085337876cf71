# SPDX-License-Identifier: MIT
"""Small models with a multi-token-prediction layer, and what that layer proposes, which transformers leaves out.

The definition is that of the DeepSeek-V3 report (arXiv 2412.19437, section 2.2) and of the published Qwen3-Next weights
(mtp.*), written out below in float64: token t and the model's normed state of the position before it, each normed, go
side by side through one matrix; one more decoder layer; a norm; the model's own head. The states of the model itself and
the decoder layer are transformers' modules in float64 (their norms and rotations compute in float32).

DeepSeek-V4's layer, after the definition in its published inference/model.py (MTPBlock): what it is given of the model is all
streams of its last layer, before they are joined. The token's embedding and each stream, normed, go through a matrix each; their
sums are the streams of one more decoder layer, which sees a window alone, and are joined by a head of its own. What it makes
of a token goes on as it is, all streams of it.

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
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as v4
from transformers.models.glm4_moe import modeling_glm4_moe as glm4
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa as glm5
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as q35
from transformers.models.qwen3_next import modeling_qwen3_next as next_

import goldens_affine as affine
import goldens_deepseek as deepseek
import goldens_deepseek_v4 as deepseek_v4
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
# a window of 13 positions, entries of 4 and of 16, three streams, the first layer's experts named by tokens
V4_CASE = dict(
    family=deepseek_v4.FAMILY, form="hf", dtype="BF16",
    config=deepseek_v4.shape(40, 6, 24, 131, (20, 3, 12, 8), (7, 3, 24), num_hidden_layers=3, compress_ratios=[0, 4, 128, 0], num_hash_layers=1,
                             sliding_window=13, index_n_heads=8, index_head_dim=12, index_topk=512, hc_mult=3, **deepseek_v4.rates(4, 16)),
)
CASES = {
    "draft_next_bf16": NEXT_CASE, "draft_v3_bf16": V3_CASE, "draft_glm4_bf16": GLM_CASE, "draft_v32_bf16": V32_CASE,
    "draft_glm5_bf16": GLM5_CASE, "draft_qwen35_mlx_4bit": Q35_CASE, "draft_v4_bf16": V4_CASE,
}
LAYERS = {
    goldens.NEXT: next_.Qwen3NextDecoderLayer, goldens.Q35: q35.Qwen3_5MoeDecoderLayer, deepseek.V3: v3.DeepseekV3DecoderLayer, "glm4_moe": glm4.Glm4MoeDecoderLayer,
    "deepseek_v32": v32.DeepseekV32DecoderLayer, "glm_moe_dsa": glm5.GlmMoeDsaDecoderLayer,
    deepseek_v4.FAMILY: v4.DeepseekV4DecoderLayer,
}


def is_qwen(case):
    return case["family"] in (goldens.NEXT, goldens.Q35)


def is_v4(case):
    return case["family"] == deepseek_v4.FAMILY


def tools_of(case):
    """What makes the family's modules, weights and configs."""
    others = {deepseek.V3: deepseek, deepseek_v4.FAMILY: deepseek_v4}
    return goldens if is_qwen(case) else others.get(case["family"], grouped)


def decoder_layer(case, config):
    """One more of the model's."""
    config = copy.deepcopy(config)
    index = config.num_hidden_layers
    config.num_hidden_layers += 1
    config._attn_implementation = config._experts_implementation = "eager"
    kinds = ("sliding_attention", "moe") if is_v4(case) else ("full_attention", "sparse")
    for name, more in (("layer_types", kinds[0]), ("mlp_layer_types", kinds[1]), ("indexer_types", "full")):
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


class StreamsDraft(Draft):
    """DeepSeek-V4's; states are [tokens, streams * hidden]."""

    def states(self, tokens, before):
        config, n = self.module.config, len(tokens)
        streams = self.norm(before.reshape(n, config.hc_mult, -1), "hidden") @ self.own["state_in"].T
        x = streams + (self.norm(self.embed[tokens], "embed") @ self.own["embed_in"].T)[:, None]
        positions = torch.arange(n)[None]
        rotary = {k: self.module.model.rotary_emb(x[None, :, 0], position_ids=positions, layer_type=k) for k in ("main", "compress")}
        distance = positions.T - positions
        mask = torch.zeros(1, 1, n, n).double().masked_fill((distance < 0) | (distance >= config.sliding_window), -torch.inf)
        return self.layer(x[None], position_embeddings=rotary, attention_mask=mask, position_ids=positions).reshape(n, -1)

    def logits(self, states):
        config = self.module.config
        mixes = rms(states, 1.0, self.eps) @ self.own["streams_fn"].T
        gates = torch.sigmoid(mixes * self.own["streams_scale"] + self.own["streams_base"]) + config.hc_eps
        return self.norm((gates[..., None] * states.reshape(len(states), config.hc_mult, -1)).sum(1), "norm") @ self.head.T


def streams_state(case, module, draw, config):
    """As draft_state, of DeepSeek-V4."""
    h, n = config["hidden_size"], config["hc_mult"]
    own = {"embed": "enorm.weight", "hidden": "hnorm.weight", "norm": "norm.weight", "embed_in": "e_proj.weight", "state_in": "h_proj.weight",
           "streams_fn": "hc_head.hc_fn", "streams_base": "hc_head.hc_base", "streams_scale": "hc_head.hc_scale"}
    sizes = {"embed_in": (h, h), "state_in": (h, h), "streams_fn": (n, n * h), "streams_base": (n,), "streams_scale": (1,)}
    stored = lambda name, t: forms.float_of(deepseek_v4.raw_of(case, name, t))
    state = {k: stored(name.replace(".hc_", "_"), draw("draft." + name, sizes.get(k, (h,)))) for k, name in own.items()}
    probe = decoder_layer(case, module.config).state_dict()
    state["layer"] = {k: stored(k, draw(f"draft.layer.{k}", tuple(t.shape))) for k, t in probe.items()}
    return state


def write_streams(case, folder, module_state, state):
    names = {"embed": "enorm.weight", "hidden": "hnorm.weight", "norm": "norm.weight", "embed_in": "e_proj.weight", "state_in": "h_proj.weight",
             "streams_fn": "hc_head_fn", "streams_base": "hc_head_base", "streams_scale": "hc_head_scale"}
    layer = deepseek_v4.published({f"model.layers.0.{k}": t for k, t in state["layer"].items()})
    tensors = deepseek_v4.published(module_state) | {"mtp.0." + names[k]: state[k] for k in names}
    tensors |= {"mtp.0." + k.removeprefix("layers.0."): t for k, t in layer.items()}
    raw = {n: deepseek_v4.raw_of(case, n, t) for n, t in tensors.items()}
    config = {"architectures": ["DeepseekV4ForCausalLM"], "model_type": deepseek_v4.FAMILY, "torch_dtype": "bfloat16", **case["config"]}
    forms.write_json(folder / "config.json", config)
    forms.write_checkpoint(folder, dict(sorted(raw.items())), 1)


def draft_state(case, module, draw, config):
    """Random weights of the layer, rounded as they are stored."""
    if is_v4(case):
        return streams_state(case, module, draw, config)
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


def random_weights(case, module, seed, draw):
    """Of the model, rounded as they are stored."""
    if is_v4(case):
        state = {n: draw(n, tuple(t.shape)) for n, t in module.state_dict().items()}
        return {n: t if t.dtype == torch.int64 else forms.float_of(deepseek_v4.raw_of(case, n, t)) for n, t in state.items()}
    if is_qwen(case):
        weights = goldens.random_state(case, module, seed)[0]
    else:
        weights = tools_of(case).random_state(case, draw)
    return {n: forms.float_of(forms.raw_of(t, "F32" if n.endswith("e_score_correction_bias") else case["dtype"])) for n, t in weights.items()}


def evaluate(case, module, tokens):
    """What the layer is given of each token, and the logits."""
    seen = []
    if is_v4(case):
        module.model.hc_head.register_forward_pre_hook(lambda m, args: seen.append(args[0][0]))
    last = module.model(tokens[None]).last_hidden_state[0].double()
    return seen[0].double().flatten(1) if seen else last, last @ module.lm_head.weight.double().T


def make(name, out):
    case, folder = CASES[name], out / name
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    seed = 1
    draw = deepseek_v4.drawer(seed, case["config"]) if is_v4(case) else tools_of(case).drawer(seed)
    module = tools_of(case).make_module(case)
    weights = random_weights(case, module, seed, draw)
    state = draft_state(case, module, draw, case["config"])
    if case["form"] == "mlx":
        weights, state = write_mlx(case, folder, weights, state)
    elif is_v4(case):
        write_streams(case, folder, weights, state)
    else:
        write(case, folder, weights, state, module.config.num_hidden_layers)
    module = module.double().eval()
    module.load_state_dict(weights, strict=False)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    tokens = torch.tensor(rng.integers(0, case["config"]["vocab_size"], N_TOKENS))
    with torch.no_grad():
        draft = (StreamsDraft if is_v4(case) else Draft)(case, module, state)
        hidden, logits = evaluate(case, module, tokens)
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
    if case["form"] != "mlx" and not is_v4(case) and "index_topk" not in case["config"]:  # GGUF has no indexer that is used
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
