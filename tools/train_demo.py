#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the demo model under models/demo: a small Qwen3.5-MoE language model trained on old books.

Owns every step, one subcommand each: `tokenizer` (byte-level BPE and the held-out chapter), `train`
(on a GPU; quantisation-aware at its end, optionally taught by earlier runs), `quantise` (an MLX-style
checkpoint directory) and `evaluate` (perplexity and agreement by transformers and mlx-lm, which both
load the finished directory's numbers independently of the code here).

The training forward pass is written out below instead of using transformers' modules because it
computes all the small experts as two matrix products; `evaluate` proves that it is the same function.
"""

import argparse
import json
import math
import os
import time
import unicodedata

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

END = "<|endoftext|>"
# The pre-tokeniser of Qwen3.5.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
HELD_OUT_BOOK = "peter-pan.txt"
HELD_OUT_FROM = "Chapter 17 WHEN WENDY GREW UP"
VALIDATION_CHARS = 8000  # from the end of every other book
PERPLEXITY_TOKENS = 2048
GROUP = 64

CONFIG = {
    "model_type": "qwen3_5_moe_text",
    "vocab_size": 4096,
    "hidden_size": 256,
    "num_hidden_layers": 8,
    "full_attention_interval": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
    "num_experts": 32,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 128,
    "norm_topk_prob": True,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.25,
        "mrope_interleaved": True,
        "mrope_section": [3, 3, 2],
    },
}


# --- corpus -------------------------------------------------------------------------------------


def read_book(folder, name):
    """One book, with the notes of later hands cut off and the mark-up of the e-text removed."""
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        text = f.read()
    for note in ("\n\nORIGINAL TRANSCRIBER'S NOTES", "\n\nThe Brothers Grimm, Jacob (1785"):
        text = text.split(note)[0]
    text = unicodedata.normalize("NFC", text).replace("_", "")
    while "  " in text:
        text = text.replace("  ", " ")
    return text.strip() + "\n"


def split_corpus(folder):
    """Returns (training texts, validation texts, the held-out chapter)."""
    train, validation, held_out = [], [], None
    for name in sorted(n for n in os.listdir(folder) if n.endswith(".txt")):
        text = read_book(folder, name)
        if name == HELD_OUT_BOOK:
            cut = text.index(HELD_OUT_FROM)
            held_out = text[cut:]
        else:
            cut = text.index("\n\n", len(text) - VALIDATION_CHARS) + 2
            validation.append(text[cut:])
        train.append(text[:cut])
    if held_out is None:
        raise SystemExit(f"{folder}: {HELD_OUT_BOOK} is missing")
    return train, validation, held_out


def make_tokenizer(args):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    train, _, held_out = split_corpus(args.corpus)
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"] - 1,
        min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tok.train_from_iterator(train, trainer)
    tok.add_special_tokens([END])
    assert tok.get_vocab_size() == CONFIG["vocab_size"]

    os.makedirs(args.out, exist_ok=True)
    tok.save(os.path.join(args.out, "tokenizer.json"))
    end = {"content": END, "lstrip": False, "normalized": False, "rstrip": False}
    end.update({"single_word": False, "special": True})
    write_json(
        os.path.join(args.out, "tokenizer_config.json"),
        {
            "add_prefix_space": False,
            "added_tokens_decoder": {str(tok.token_to_id(END)): end},
            "bos_token": None,
            "clean_up_tokenization_spaces": False,
            "eos_token": END,
            "model_max_length": CONFIG["max_position_embeddings"],
            "pad_token": END,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "unk_token": None,
        },
    )
    with open(os.path.join(args.out, "heldout.txt"), "w", encoding="utf-8") as f:
        f.write(held_out)
    chars = sum(map(len, train))
    tokens = sum(len(tok.encode(t).ids) for t in train)
    print(f"{chars} characters, {tokens} tokens, {chars / tokens:.3f} characters a token")


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def encode_all(tok, texts):
    ids = []
    for text in texts:
        ids += tok.encode(text, add_special_tokens=False).ids + [tok.token_to_id(END)]
    return torch.tensor(ids, dtype=torch.int64)


# --- quantisation -------------------------------------------------------------------------------


def bits_of(name):
    """MLX's rule for this family: 8 bits for the router and the shared expert's gate, else 4."""
    return 8 if name.endswith(("mlp.gate.weight", "shared_expert_gate.weight")) else 4


def is_quantised(name, weight):
    return weight.ndim >= 2 and "conv1d" not in name and weight.shape[-1] % GROUP == 0


def is_shifted(name):
    """Norm weights that transformers stores as the difference from one, and MLX as they are used."""
    return name.endswith("norm.weight") and "linear_attn.norm" not in name


def affine(groups, bits):
    """Affine quantisation of rows of GROUP values: (codes, scales, biases), the last two in BF16.

    As in MLX the end of the range that is farther from zero is hit exactly and zero is a code; the
    codes are chosen for the scales and biases as stored, after their rounding to BF16.
    """
    steps = float(2**bits - 1)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    from_low = low.abs() > high.abs()
    scale = ((high - low) / steps).clamp_min(1e-7)
    scale = torch.where(from_low, scale, -scale)
    edge = torch.where(from_low, low, high)
    zero_code = torch.round(edge / scale)
    scale = torch.where(zero_code != 0, edge / zero_code, scale)
    bias = torch.where(zero_code != 0, edge, torch.zeros_like(edge))
    scale, bias = scale.bfloat16(), bias.bfloat16()
    codes = torch.round((groups - bias.float()) / scale.float()).clamp(0, steps)
    return codes, scale, bias


def dequantise(codes, scale, bias):
    return codes * scale.float() + bias.float()


def rounded(weights):
    """The weights as the quantised checkpoint holds them; gradients pass straight through."""
    out = dict(weights)
    with torch.no_grad():
        for bits in (4, 8):
            names = [n for n, w in weights.items() if is_quantised(n, w) and bits_of(n) == bits]
            flat = torch.cat([weights[n].reshape(-1, GROUP) for n in names])
            error = dequantise(*affine(flat, bits)) - flat
            parts = error.split([weights[n].numel() // GROUP for n in names])
            for name, part in zip(names, parts):
                out[name] = part.reshape(weights[name].shape)
        for name, w in weights.items():
            if not is_quantised(name, w) and not name.endswith("A_log"):
                shift = 1.0 if is_shifted(name) else 0.0
                out[name] = ((w + shift).bfloat16().float() - shift) - w
    return {n: w if out[n] is w else w + out[n] for n, w in weights.items()}


# --- the model, as a function of a dictionary of weights ------------------------------------------


def is_linear_layer(cfg, index):
    return (index + 1) % cfg["full_attention_interval"] != 0


def initial_weights(cfg, generator):
    """Fresh weights under transformers' names; norms are zero-centred as in its checkpoints."""
    hidden, experts = cfg["hidden_size"], cfg["num_experts"]
    inner, shared = cfg["moe_intermediate_size"], cfg["shared_expert_intermediate_size"]
    v_heads, v_dim = cfg["linear_num_value_heads"], cfg["linear_value_head_dim"]
    values = v_heads * v_dim
    channels = 2 * cfg["linear_num_key_heads"] * cfg["linear_key_head_dim"] + values
    q_dim = cfg["num_attention_heads"] * cfg["head_dim"]
    kv_dim = cfg["num_key_value_heads"] * cfg["head_dim"]
    back = 0.02 / math.sqrt(2 * cfg["num_hidden_layers"]) * 2

    def normal(*shape, std=0.04):
        return torch.randn(*shape, generator=generator) * std

    w = {"model.embed_tokens.weight": normal(cfg["vocab_size"], hidden, std=0.03)}
    for i in range(cfg["num_hidden_layers"]):
        p = f"model.layers.{i}."
        if is_linear_layer(cfg, i):
            a = p + "linear_attn."
            w[a + "in_proj_qkv.weight"] = normal(channels, hidden)
            w[a + "in_proj_z.weight"] = normal(values, hidden)
            w[a + "in_proj_b.weight"] = normal(v_heads, hidden)
            w[a + "in_proj_a.weight"] = normal(v_heads, hidden)
            w[a + "conv1d.weight"] = normal(channels, 1, cfg["linear_conv_kernel_dim"], std=0.3)
            step = torch.exp(torch.linspace(math.log(0.002), math.log(0.2), v_heads))
            w[a + "dt_bias"] = step + torch.log(-torch.expm1(-step))  # softplus^-1(step)
            w[a + "A_log"] = torch.zeros(v_heads)
            w[a + "norm.weight"] = torch.ones(v_dim)
            w[a + "out_proj.weight"] = normal(hidden, values, std=back)
        else:
            a = p + "self_attn."
            w[a + "q_proj.weight"] = normal(2 * q_dim, hidden)
            w[a + "k_proj.weight"] = normal(kv_dim, hidden)
            w[a + "v_proj.weight"] = normal(kv_dim, hidden)
            w[a + "o_proj.weight"] = normal(hidden, q_dim, std=back)
            w[a + "q_norm.weight"] = torch.zeros(cfg["head_dim"])
            w[a + "k_norm.weight"] = torch.zeros(cfg["head_dim"])
        w[p + "input_layernorm.weight"] = torch.zeros(hidden)
        w[p + "post_attention_layernorm.weight"] = torch.zeros(hidden)
        m = p + "mlp."
        w[m + "gate.weight"] = normal(experts, hidden)
        w[m + "experts.gate_up_proj"] = normal(experts, 2 * inner, hidden)
        w[m + "experts.down_proj"] = normal(experts, hidden, inner, std=back)
        w[m + "shared_expert.gate_proj.weight"] = normal(shared, hidden)
        w[m + "shared_expert.up_proj.weight"] = normal(shared, hidden)
        w[m + "shared_expert.down_proj.weight"] = normal(hidden, shared, std=back)
        w[m + "shared_expert_gate.weight"] = normal(1, hidden)
    w["model.norm.weight"] = torch.zeros(hidden)
    return w


def rms_norm(x, weight, eps):
    return F.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps)


def delta_rule(q, k, v, g, beta, chunk=64):
    """Gated delta rule over [batch, heads, tokens, dim] in chunks; g is the log decay, all float32."""
    batch, heads, length, dim = q.shape
    pad = -length % chunk
    q, k, v = (F.pad(t, (0, 0, 0, pad)) for t in (q, k, v))
    g, beta = F.pad(g, (0, pad)), F.pad(beta, (0, pad))
    q, k, v = (t.reshape(batch, heads, -1, chunk, t.shape[-1]) for t in (q, k, v))
    beta = beta.reshape(batch, heads, -1, chunk, 1)
    total = g.reshape(batch, heads, -1, chunk).cumsum(-1)
    future = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).triu(1)
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(future, -math.inf).exp()
    system = ((k * beta) @ k.transpose(-1, -2)) * decay  # its diagonal is taken as one below
    right = torch.cat([v * beta, k * beta * total.exp()[..., None]], -1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    new, read = solved.split([v.shape[-1], dim], -1)
    inside = (q @ k.transpose(-1, -2)) * decay
    q = q * total.exp()[..., None]
    k = k * (total[..., -1:] - total).exp()[..., None]
    fade = total[..., -1].exp()[..., None, None]
    state = q.new_zeros(batch, heads, dim, v.shape[-1])
    out = []
    parts = (t.unbind(2) for t in (q, inside, k.transpose(-1, -2), new, read, fade))
    for q_c, inside_c, k_c, new_c, read_c, fade_c in zip(*parts):
        written = new_c - read_c @ state
        out.append(q_c @ state + inside_c @ written)
        state = state * fade_c + k_c @ written
    return torch.cat(out, 2)[:, :, :length]


def linear_attention(cfg, w, p, x):
    batch, length, _ = x.shape
    k_heads, k_dim = cfg["linear_num_key_heads"], cfg["linear_key_head_dim"]
    v_heads, v_dim = cfg["linear_num_value_heads"], cfg["linear_value_head_dim"]
    mixed = F.linear(x, w[p + "in_proj_qkv.weight"])
    taps = w[p + "conv1d.weight"][:, 0].to(mixed.dtype)
    padded = F.pad(mixed, (0, 0, taps.shape[1] - 1, 0))
    mixed = sum(padded[:, j : j + length] * taps[:, j] for j in range(taps.shape[1]))
    q, k, v = F.silu(mixed).float().split([k_heads * k_dim, k_heads * k_dim, v_heads * v_dim], -1)
    q, k = (t.reshape(batch, length, k_heads, k_dim) for t in (q, k))
    v = v.reshape(batch, length, v_heads, v_dim).transpose(1, 2)
    q, k = (t * torch.rsqrt(t.square().sum(-1, keepdim=True) + 1e-6) for t in (q, k))
    q, k = (t.repeat_interleave(v_heads // k_heads, 2).transpose(1, 2) for t in (q, k))
    beta = F.linear(x, w[p + "in_proj_b.weight"]).float().sigmoid().transpose(1, 2)
    step = F.softplus(F.linear(x, w[p + "in_proj_a.weight"]).float() + w[p + "dt_bias"])
    g = (-w[p + "A_log"].exp() * step).transpose(1, 2)
    with torch.autocast(x.device.type, enabled=False):
        y = delta_rule(q * k_dim**-0.5, k, v, g, beta).transpose(1, 2)
        y = rms_norm(y, w[p + "norm.weight"], cfg["rms_norm_eps"])
    z = F.linear(x, w[p + "in_proj_z.weight"]).float().reshape(batch, length, v_heads, v_dim)
    return F.linear((y * F.silu(z)).reshape(batch, length, -1), w[p + "out_proj.weight"])


def rotate(x, cos, sin):
    turn, keep = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    a, b = turn.chunk(2, -1)
    return torch.cat([turn * cos + torch.cat([-b, a], -1) * sin, keep], -1)


def full_attention(cfg, w, p, x):
    batch, length, _ = x.shape
    dim, eps = cfg["head_dim"], cfg["rms_norm_eps"]
    rope = cfg["rope_parameters"]
    q, gate = F.linear(x, w[p + "q_proj.weight"]).reshape(batch, length, -1, 2 * dim).chunk(2, -1)
    k = F.linear(x, w[p + "k_proj.weight"]).reshape(batch, length, -1, dim)
    v = F.linear(x, w[p + "v_proj.weight"]).reshape(batch, length, -1, dim).transpose(1, 2)
    q = rms_norm(q, 1 + w[p + "q_norm.weight"], eps).transpose(1, 2)
    k = rms_norm(k, 1 + w[p + "k_norm.weight"], eps).transpose(1, 2)
    turned = int(dim * rope["partial_rotary_factor"])
    power = torch.arange(0, turned, 2, device=x.device).float() / turned
    angle = torch.arange(length, device=x.device)[:, None] * rope["rope_theta"] ** -power
    cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
    q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
    groups = cfg["num_attention_heads"] // cfg["num_key_value_heads"]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    y = y * torch.sigmoid(gate)
    return F.linear(y.reshape(batch, length, -1), w[p + "o_proj.weight"])


def mixture(cfg, w, p, x, balance):
    """The sparse block, dense: every expert is computed and those not chosen get weight zero."""
    experts, k = cfg["num_experts"], cfg["num_experts_per_tok"]
    hidden = x.shape[-1]
    flat = x.reshape(-1, hidden)
    with torch.autocast(x.device.type, enabled=False):
        # In bfloat16 the choice of experts would differ from the one at inference.
        probs = F.linear(flat.float(), w[p + "gate.weight"]).softmax(-1)
        top, chosen = probs.topk(k, -1)
        share = torch.zeros_like(probs).scatter(1, chosen, top / top.sum(-1, keepdim=True))
        if balance is not None:
            load = (share.detach() > 0).float().mean(0) / k
            balance.append((probs.mean(0), load, chosen.detach()))
    gate_up = F.linear(flat, w[p + "experts.gate_up_proj"].reshape(-1, hidden))
    gate, up = gate_up.reshape(flat.shape[0], experts, -1).chunk(2, -1)
    inner = F.silu(gate) * up * share[..., None].to(up.dtype)
    down = w[p + "experts.down_proj"].transpose(1, 2).reshape(-1, hidden)
    y = inner.reshape(flat.shape[0], -1) @ down.to(inner.dtype)
    s = p + "shared_expert."
    inner = F.silu(F.linear(flat, w[s + "gate_proj.weight"])) * F.linear(
        flat, w[s + "up_proj.weight"]
    )
    switch = torch.sigmoid(F.linear(flat, w[p + "shared_expert_gate.weight"]))
    return (y + switch * F.linear(inner, w[s + "down_proj.weight"])).reshape(x.shape)


def forward(cfg, w, ids, dropout=0.0, balance=None):
    """Logits [batch, tokens, vocabulary]; `balance` collects what each layer's router does: its mean
    probabilities, the experts' loads and the choices."""
    eps = cfg["rms_norm_eps"]
    x = F.dropout(F.embedding(ids, w["model.embed_tokens.weight"]).float(), dropout)
    for i in range(cfg["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = rms_norm(x, 1 + w[p + "input_layernorm.weight"], eps)
        if is_linear_layer(cfg, i):
            h = linear_attention(cfg, w, p + "linear_attn.", h)
        else:
            h = full_attention(cfg, w, p + "self_attn.", h)
        x = x + F.dropout(h, dropout)
        h = rms_norm(x, 1 + w[p + "post_attention_layernorm.weight"], eps)
        x = x + F.dropout(mixture(cfg, w, p + "mlp.", h, balance), dropout)
    x = rms_norm(x, 1 + w["model.norm.weight"], eps)
    return F.linear(x, w["model.embed_tokens.weight"])


# --- training -----------------------------------------------------------------------------------


def batches(data, length, size, generator):
    """Positions in the data for one pass over it in random order, cut at a random offset so that no
    two passes agree."""
    start = torch.randint(0, length, (1,), generator=generator).item()
    count = (len(data) - 1 - start) // length
    order = torch.randperm(count, generator=generator)
    for i in range(0, count - size + 1, size):
        at = start + order[i : i + size, None] * length + torch.arange(length + 1)
        yield at


@torch.no_grad()
def mean_loss(cfg, w, data, length, device):
    """Mean loss in bfloat16 over consecutive windows, each from an empty state."""
    total, count = 0.0, 0
    windows = (len(data) - 1) // length
    at = torch.arange(windows)[:, None] * length + torch.arange(length + 1)
    for part in data[at].split(16):
        part = part.to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = forward(cfg, w, part[:, :-1])
        logits, target = logits.float().flatten(0, 1), part[:, 1:].flatten()
        total += F.cross_entropy(logits, target, reduction="sum").item()
        count += part[:, 1:].numel()
    return total / count


@torch.no_grad()
def teacher_probs(cfg, teachers, data, length, device):
    """The teachers' mean distribution after every token of `data`, [tokens, vocabulary] in half
    precision; computed once, each token with at least a quarter of a window before it."""
    out = torch.empty(len(data), cfg["vocab_size"], dtype=torch.float16, device=device)
    stride, first = length * 3 // 4, length // 4
    starts = list(range(0, len(data) - length, stride)) + [len(data) - length]
    for part in torch.tensor(starts).split(16):
        ids = data[part[:, None] + torch.arange(length)].to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            probs = sum(forward(cfg, t, ids).float().softmax(-1) for t in teachers) / len(teachers)
        for start, p in zip(part.tolist(), probs):
            skip = first if start > 0 else 0
            out[start + skip : start + length] = p[skip:]
    return out


def balance_loss(cfg, routers, floor):
    """Load-balancing loss, one where all experts are chosen equally often. Only what an expert lacks
    to `floor` times the equal share counts: above it the text decides how often each is chosen."""
    experts = cfg["num_experts"]
    losses = [(load.clamp(max=floor / experts) * probs).sum() for probs, load, _ in routers]
    return experts * sum(losses) / len(losses)


def loss_of(cfg, w, part, args, taught):
    routers = []
    ids, target = part[:, :-1], part[:, 1:]
    logits = forward(cfg, w, ids, args.dropout, routers).float()
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
    plain = loss.detach()
    if taught is not None:
        soft = -(taught.float() * logits.log_softmax(-1)).sum(-1).mean()
        loss = (1 - args.distil) * loss + args.distil * soft
    loss = loss + args.balance * balance_loss(cfg, routers, args.floor)
    return loss, plain, torch.stack([load for _, load, _ in routers])


@torch.no_grad()
def routing(cfg, w, ids, sessions, prompt, steps):
    """How the router shares the experts out over the text.

    (Distinct experts that `sessions` decoding together want at one step of one layer, over the
    choices they make there, as bench_sessions counts it; each layer's loads over the equal share.)
    """
    stretch, routers = prompt + steps, []
    count = len(ids) // (sessions * stretch) * sessions
    device = w["model.embed_tokens.weight"].device
    for part in ids[: count * stretch].reshape(-1, stretch).split(64):
        found = []
        forward(cfg, w, part.to(device), 0.0, found)
        routers.append(torch.stack([c.reshape(*part.shape, -1)[:, prompt:] for *_, c in found]))
    chosen = torch.cat(routers, 1)  # [layers, stretches, steps, k]
    layers, _, _, k = chosen.shape
    loads = torch.stack([c.flatten().bincount(minlength=cfg["num_experts"]) for c in chosen])
    loads = loads.float() / chosen[0].numel() * cfg["num_experts"]
    groups = chosen.reshape(layers, -1, sessions, steps, k).transpose(2, 3).reshape(-1, sessions * k)
    wanted = groups.sort(-1).values
    distinct = 1 + (wanted[:, 1:] != wanted[:, :-1]).sum(-1).float()
    return (distinct.mean() / (sessions * k)).item(), loads


def print_routing(cfg, w, ids, name):
    share, loads = routing(cfg, w, ids, 8, 32, 32)
    first, _ = routing(cfg, w, ids[: 8 * 64], 8, 32, 32)
    print(f"{name}: 8 sessions want {100 * share:.1f} % of their choices", end="")
    print(f" ({100 * first:.1f} % in the first 512 tokens); each layer's loads over the equal share:")
    for i, load in enumerate(loads):
        print(f"  layer {i}: " + " ".join(f"{x:.2f}" for x in sorted(load.tolist())), flush=True)


class Stepper:
    """One optimiser step on a batch; on a GPU as a captured graph, for the launches cost the most."""

    def __init__(self, cfg, w, args, taught, device):
        self.cfg, self.w, self.args, self.device = cfg, w, args, device
        decayed = [t for n, t in w.items() if t.ndim >= 2 and "conv1d" not in n]
        others = [t for n, t in w.items() if not (t.ndim >= 2 and "conv1d" not in n)]
        groups = [{"params": decayed, "weight_decay": args.weight_decay}]
        groups += [{"params": others, "weight_decay": 0.0}]
        on_gpu = device == "cuda"
        self.lr = torch.tensor(args.lr, device=device)
        self.optimiser = torch.optim.AdamW(
            groups, lr=self.lr, betas=(0.9, 0.98), fused=on_gpu, capturable=on_gpu
        )
        self.ids = torch.zeros(args.batch, args.length + 1, dtype=torch.int64, device=device)
        shape = (args.batch, args.length, cfg["vocab_size"])
        self.taught = taught.new_zeros(shape) if taught is not None else None
        self.side = torch.cuda.Stream() if on_gpu else None
        self.graphs, self.runs = {}, {}

    def eager(self, quantised):
        with torch.autocast(self.device, dtype=torch.bfloat16, cache_enabled=False):
            used = rounded(self.w) if quantised else self.w
            loss, plain, load = loss_of(self.cfg, used, self.ids, self.args, self.taught)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.w.values()), 1.0)
        self.optimiser.step()
        return plain, load

    def __call__(self, part, taught, lr, quantised):
        """Returns (loss without the balancing term, each layer's expert loads)."""
        self.ids.copy_(part)
        if taught is not None:
            self.taught.copy_(taught)
        self.lr.fill_(lr)
        if quantised in self.graphs:
            graph, out = self.graphs[quantised]
            graph.replay()
            return tuple(t.clone() for t in out)
        self.optimiser.zero_grad(set_to_none=True)
        runs = self.runs[quantised] = self.runs.get(quantised, 0) + 1
        if self.side is None:
            return self.eager(quantised)
        if runs <= 3:
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                out = self.eager(quantised)
            torch.cuda.current_stream().wait_stream(self.side)
            return out
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self.eager(quantised)
        self.graphs[quantised] = (graph, out)
        graph.replay()
        return tuple(t.clone() for t in out)


def ensemble_loss(cfg, teachers, data, length, device):
    """Mean loss of the teachers' mean distribution."""
    probs = teacher_probs(cfg, teachers, data, length, device)[:-1].float()
    return -probs.gather(1, data[1:, None].to(device)).clamp_min(1e-7).log().mean().item()


def load_weights(path, device):
    return {n: t.float().to(device) for n, t in load_file(path).items()}


def train(args):
    from tokenizers import Tokenizer

    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cfg = dict(CONFIG)
    tok = Tokenizer.from_file(os.path.join(args.tokenizer, "tokenizer.json"))
    texts, validation, held_out = split_corpus(args.corpus)
    data, valid = encode_all(tok, texts), encode_all(tok, validation)
    chapter = torch.tensor(tok.encode(held_out).ids)
    generator = torch.Generator().manual_seed(args.seed)
    w = {n: t.to(device).requires_grad_() for n, t in initial_weights(cfg, generator).items()}
    taught = None
    if args.teacher:
        teachers = [load_weights(p, device) for p in args.teacher]
        taught = teacher_probs(cfg, teachers, data, args.length, device)
        loss = ensemble_loss(cfg, teachers, valid, args.length, device)
        print(f"teachers: valid {loss:.4f}", flush=True)
        del teachers
    print(f"{sum(t.numel() for t in w.values())} weights, {len(data)} tokens, {args.seed=}", flush=True)

    stepper = Stepper(cfg, w, args, taught, device)
    steps = args.epochs * (len(data) // (args.length * args.batch))
    if args.max_steps:
        steps = min(steps, args.max_steps)
    best, best_weights, step, began = math.inf, None, 0, time.time()
    running, loads = [], None
    while step < steps:
        for at in batches(data, args.length, args.batch, generator):
            progress = step / steps
            lr = args.lr * min(1.0, (step + 1) / args.warmup)
            lr *= 0.01 + 0.99 * (0.5 + 0.5 * math.cos(math.pi * progress))
            quantised = progress >= args.round_from
            soft = taught[at[:, :-1].to(device)] if taught is not None else None
            plain, load = stepper(data[at], soft, lr, quantised)
            running.append(plain)
            loads = load if loads is None else 0.98 * loads + 0.02 * load
            step += 1
            if step % args.every == 0 or step == steps:
                mean = torch.stack(running).mean().item()
                running = []
                with torch.no_grad():
                    at_stored = mean_loss(cfg, rounded(w), valid, args.length, device)
                plain_at = mean_loss(cfg, w, valid, args.length, device)
                low, high = (loads * cfg["num_experts"]).aminmax()
                print(
                    f"{step}/{steps} {time.time() - began:.0f}s train {mean:.4f} valid {plain_at:.4f}"
                    f" quantised {at_stored:.4f} load {low:.2f}..{high:.2f}",
                    flush=True,
                )
                if quantised and at_stored < best:
                    best = at_stored
                    best_weights = {n: t.detach().clone() for n, t in w.items()}
            if step == steps:
                break
    with torch.no_grad():
        w = best_weights if best_weights is not None else {n: t.detach() for n, t in w.items()}
        plain_test = mean_loss(cfg, w, chapter, min(args.length, len(chapter) - 1), device)
        test = mean_loss(cfg, rounded(w), chapter, min(args.length, len(chapter) - 1), device)
    print(
        f"RESULT {args.out} valid {best:.4f} held-out {plain_test:.4f} quantised {test:.4f}"
        f" (perplexity {math.exp(plain_test):.2f}, {math.exp(test):.2f})"
        f" seconds {time.time() - began:.0f} settings {vars(args)}",
        flush=True,
    )
    save_file({n: t.contiguous().cpu() for n, t in w.items()}, args.out)
    print_routing(cfg, rounded(w), valid, "validation")
    print_routing(cfg, rounded(w), chapter, "held-out chapter")


# --- the checkpoint directory -------------------------------------------------------------------


def mlx_tensors(weights):
    """(name, tensor) in MLX's naming and layout, the stacked experts' fused matrices split."""
    for name, t in weights.items():
        name = "language_model." + name
        if name.endswith("experts.gate_up_proj"):
            gate, up = t.chunk(2, 1)
            yield name.replace("experts.gate_up_proj", "switch_mlp.gate_proj.weight"), gate
            yield name.replace("experts.gate_up_proj", "switch_mlp.up_proj.weight"), up
        elif name.endswith("experts.down_proj"):
            yield name.replace("experts.down_proj", "switch_mlp.down_proj.weight"), t
        elif name.endswith("conv1d.weight"):
            yield name, t.transpose(1, 2)
        else:
            yield name, t + 1 if is_shifted(name) else t


def packed(codes, bits):
    """Codes [..., n] as little-endian 32-bit words [..., n * bits / 32], the first code lowest."""
    per_word = 32 // bits
    codes = codes.numpy().astype(np.uint32).reshape(*codes.shape[:-1], -1, per_word)
    shifts = np.arange(per_word, dtype=np.uint32) * np.uint32(bits)
    return torch.from_numpy(np.bitwise_or.reduce(codes << shifts, -1))


def unpacked(words, bits):
    shifts = np.arange(32 // bits, dtype=np.uint32) * np.uint32(bits)
    codes = (words.numpy()[..., None] >> shifts) & np.uint32(2**bits - 1)
    return torch.from_numpy(codes.reshape(*words.shape[:-1], -1).astype(np.float32))


def quantise(args):
    out, overrides = {}, {}
    for name, t in mlx_tensors(load_file(args.weights)):
        if name.endswith("A_log"):
            out[name] = t.float().contiguous()
        elif not is_quantised(name, t):
            out[name] = t.bfloat16().contiguous()
        else:
            bits, base = bits_of(name), name.removesuffix(".weight")
            codes, scale, bias = affine(t.float().reshape(*t.shape[:-1], -1, GROUP), bits)
            out[name] = packed(codes.reshape(t.shape), bits).contiguous()
            out[base + ".scales"] = scale[..., 0].contiguous()
            out[base + ".biases"] = bias[..., 0].contiguous()
            if bits != 4:
                overrides[base] = {"group_size": GROUP, "bits": bits}
    os.makedirs(args.out, exist_ok=True)
    save_file(out, os.path.join(args.out, "model.safetensors"), metadata={"format": "mlx"})
    end = CONFIG["vocab_size"] - 1
    quantisation = {"group_size": GROUP, "bits": 4, "mode": "affine", **overrides}
    layers = range(CONFIG["num_hidden_layers"])
    kinds = ["linear_attention" if is_linear_layer(CONFIG, i) else "full_attention" for i in layers]
    write_json(
        os.path.join(args.out, "config.json"),
        {
            "architectures": ["Qwen3_5MoeForConditionalGeneration"],
            "eos_token_id": end,
            "model_type": "qwen3_5_moe",
            "quantization": quantisation,
            "quantization_config": quantisation,
            "text_config": {**CONFIG, "layer_types": kinds, "eos_token_id": end, "dtype": "bfloat16"},
            "tie_word_embeddings": CONFIG["tie_word_embeddings"],
        },
    )
    write_json(
        os.path.join(args.out, "generation_config.json"),
        {
            "do_sample": True,
            "eos_token_id": end,
            "repetition_penalty": 1.1,
            "temperature": 0.8,
            "top_k": 40,
            "top_p": 0.95,
        },
    )
    experts = sum(t.nbytes for n, t in out.items() if "switch_mlp" in n)
    total = sum(t.nbytes for t in out.values())
    print(f"{total} bytes of tensors, {experts} of them experts ({100 * experts / total:.1f}%)")


# --- evaluation ---------------------------------------------------------------------------------


def dequantised(folder):
    """The directory's tensors as float32, under transformers' names, from their packed form."""
    import mlx.core as mx

    stored = load_file(os.path.join(folder, "model.safetensors"))
    in_mlx = mx.load(os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        quantisation = json.load(f)["quantization"]
    plain = {}
    for name, t in stored.items():
        base = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if base + ".scales" not in stored:
            plain[name] = t.float()
            continue
        bits = quantisation.get(base, quantisation)["bits"]
        scale, bias = stored[base + ".scales"], stored[base + ".biases"]
        codes = unpacked(t, bits)
        groups = codes.reshape(*codes.shape[:-1], -1, GROUP)
        plain[name] = dequantise(groups, scale[..., None], bias[..., None]).reshape(codes.shape)
        by_mlx = mx.dequantize(
            in_mlx[name],
            in_mlx[base + ".scales"].astype(mx.float32),
            in_mlx[base + ".biases"].astype(mx.float32),
            group_size=GROUP,
            bits=bits,
        )
        largest = np.abs(np.array(by_mlx) - plain[name].numpy()).max()
        assert largest <= 1e-6 * plain[name].abs().max().item(), (name, largest)
    out = {}
    for name, t in plain.items():
        short = name.removeprefix("language_model.")
        if short.endswith("switch_mlp.gate_proj.weight"):
            up = plain[name.replace("gate_proj", "up_proj")]
            fused = short.replace("switch_mlp.gate_proj.weight", "experts.gate_up_proj")
            out[fused] = torch.cat([t, up], 1)
        elif short.endswith("switch_mlp.down_proj.weight"):
            out[short.replace("switch_mlp.down_proj.weight", "experts.down_proj")] = t
        elif short.endswith("conv1d.weight"):
            out[short] = t.transpose(1, 2).contiguous()
        elif "switch_mlp" not in short:
            out[short] = t - 1 if is_shifted(short) else t
    return out


def transformers_model(weights):
    from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

    config = Qwen3_5MoeTextConfig(**json.loads(json.dumps(CONFIG)), attn_implementation="eager")
    model = Qwen3_5MoeForCausalLM(config).float().eval()
    missing, surplus = model.load_state_dict(weights, strict=False)
    assert not surplus and set(missing) <= {"lm_head.weight"}, (missing, surplus)
    model.tie_weights()
    return model


def difference(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


def nll_of(logits, ids):
    """Mean negative log-likelihood, in float64, of every token after the first."""
    logp = logits[:-1].double().log_softmax(-1)
    return -logp.gather(1, ids[1:, None]).mean().item()


def evaluate(args):
    import mlx.core as mx
    from mlx_lm import generate, load
    from mlx_lm.sample_utils import make_logits_processors, make_sampler
    from tokenizers import Tokenizer

    tok = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
    with open(os.path.join(args.model, "heldout.txt"), encoding="utf-8") as f:
        ids = torch.tensor(tok.encode(f.read(), add_special_tokens=False).ids)
    ids = ids[:PERPLEXITY_TOKENS]
    weights = dequantised(args.model)
    with torch.no_grad():
        logits = transformers_model(weights)(ids[None]).logits[0]
        ours = forward(CONFIG, weights, ids[None])[0]
    nll = nll_of(logits, ids)
    print(f"training code against transformers: {difference(ours, logits):.2e}")
    print_routing(CONFIG, weights, ids, "held-out text")

    model, wrapped = load(args.model)
    for prompt in args.prompt:
        for temp, penalty in ((0.0, 1.0), (0.0, 1.1), (0.8, 1.1)):
            mx.random.seed(1)
            text = generate(
                model,
                wrapped,
                prompt,
                max_tokens=args.tokens,
                sampler=make_sampler(temp=temp, top_k=40 if temp else 0, top_p=0.95),
                logits_processors=make_logits_processors(None, penalty, 64),
            )
            print(f"--- mlx-lm, temperature {temp}, repetition penalty {penalty}\n{prompt}{text}")
    in_bf16 = model(mx.array(ids.numpy())[None]).astype(mx.float32)
    print(f"mlx-lm as stored: perplexity {math.exp(nll_of(torch.tensor(np.array(in_bf16))[0], ids)):.4f}")
    model.set_dtype(mx.float32)
    in_f32 = torch.tensor(np.array(model(mx.array(ids.numpy())[None])))[0]
    print(f"mlx-lm in float32 against transformers: {difference(in_f32, logits):.2e}")

    result = {
        "text": "heldout.txt",
        "tokens": len(ids),
        "scored_tokens": len(ids) - 1,
        "mean_nll": nll,
        "perplexity": math.exp(nll),
        "protocol": "heldout.txt tokenised whole, without special tokens; its first `tokens` tokens"
        " in one pass from an empty state; mean negative log-likelihood of tokens 2 to `tokens`;"
        " transformers in float32 on the dequantised weights",
    }
    print(json.dumps(result, indent=2))
    if args.out:
        write_json(args.out, result)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)

    p = commands.add_parser("tokenizer", help="train the tokenizer, cut out the held-out chapter")
    p.add_argument("--corpus", required=True, help="folder of plain-text books")
    p.add_argument("--out", default="models/demo")
    p.set_defaults(run=make_tokenizer)

    p = commands.add_parser("train", help="train the weights")
    p.add_argument("--corpus", required=True)
    p.add_argument("--tokenizer", default="models/demo", help="folder of tokenizer.json")
    p.add_argument("--out", required=True, help="float32 weights, a .safetensors file")
    p.add_argument("--teacher", action="append", default=[], help="weights of an earlier run")
    p.add_argument("--distil", type=float, default=1.0, help="weight of the teachers' loss")
    p.add_argument("--epochs", type=int, default=30)
    p.add_argument("--max-steps", type=int, default=0)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--length", type=int, default=1024)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--warmup", type=int, default=100)
    p.add_argument("--weight-decay", type=float, default=3.0)
    p.add_argument("--dropout", type=float, default=0.3)
    p.add_argument("--balance", type=float, default=0.03)
    p.add_argument("--floor", type=float, default=0.4, help="share below which balancing acts")
    p.add_argument("--round-from", type=float, default=0.7, help="share of the steps done in float")
    p.add_argument("--every", type=int, default=200)
    p.add_argument("--seed", type=int, default=1)
    p.set_defaults(run=train)

    p = commands.add_parser("quantise", help="write the MLX-style checkpoint directory")
    p.add_argument("--weights", required=True)
    p.add_argument("--out", default="models/demo")
    p.set_defaults(run=quantise)

    p = commands.add_parser("evaluate", help="perplexity, agreement with mlx-lm, sample texts")
    p.add_argument("--model", default="models/demo")
    p.add_argument("--out", help="JSON file for the perplexity")
    p.add_argument("--prompt", action="append", default=["Once upon a time"])
    p.add_argument("--tokens", type=int, default=200)
    p.set_defaults(run=evaluate)

    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
