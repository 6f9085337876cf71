# SPDX-License-Identifier: MIT
"""Golden logits of a cache in 8 bits (golden_q8.bin beside golden.bin): transformers' own models, whose keys and values go through
the blocks of src/base/cache_rows.h, written down here once more, before attention meets them.

    python tools/make_kv_goldens.py [CASE ...]      from the root, with torch and transformers
"""
import importlib
import json
import struct
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import goldens_run

CASES = ["qwen3_moe_bf16", "next_bf16", "mistral_window_bf16", "v2_lite_bf16"]
BLOCK = 32
DATA = Path("tests/model/data")


def bfloat16_up(x):
    """The least bfloat16 that is not below x >= 0."""
    bits = x.float().contiguous().view(torch.int32)
    return ((bits + 0xFFFF) & ~0xFFFF).view(torch.float32)


def eight_bits(x):
    """The last dimension in blocks of signed bytes and a scale each, and back."""
    out = torch.empty_like(x)
    for at in range(0, x.shape[-1], BLOCK):
        block = x[..., at : at + BLOCK]
        scale = bfloat16_up(block.abs().amax(-1, keepdim=True) / 127)
        code = torch.where(scale > 0, (block / scale.clamp_min(2.0**-126)).round(), torch.zeros_like(block))
        assert code.abs().max() <= 127
        out[..., at : at + BLOCK] = code * scale
    return out


def through_heads(module):
    """Keys and values, rotated, as attention is given them."""
    code = importlib.import_module(type(module.model).__module__)
    plain = code.eager_attention_forward

    def attend(layer, query, key, value, *args, **kwargs):
        return plain(layer, query, eight_bits(key), eight_bits(value), *args, **kwargs)

    code.eager_attention_forward = attend


def through_latents(module):
    """Latents as they are expanded, and the rotated part of keys. Blocks do not run across: the rank is whole blocks."""
    config = module.config
    assert config.kv_lora_rank % BLOCK == 0
    code = importlib.import_module(type(module.model).__module__)
    plain, n_rot = code.eager_attention_forward, config.qk_rope_head_dim

    def attend(layer, query, key, value, *args, **kwargs):
        key = torch.cat([key[..., :-n_rot], eight_bits(key[..., -n_rot:])], -1)
        return plain(layer, query, key, value, *args, **kwargs)

    code.eager_attention_forward = attend
    for layer in module.model.layers:
        layer.self_attn.kv_a_layernorm.register_forward_hook(lambda m, a, out: eight_bits(out))


def make(name):
    folder = DATA / name
    head = (folder / "golden.bin").read_bytes()
    _, n_tokens = struct.unpack("<2I", head[8:16])
    tokens = list(struct.unpack(f"<{n_tokens}i", head[32 : 32 + 4 * n_tokens]))
    module = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    hidden, plain, _ = goldens_run.run(module, tokens)
    (through_latents if hasattr(module.config, "kv_lora_rank") else through_heads)(module)
    hidden, logits, _ = goldens_run.run(module, tokens)
    with open(folder / "golden_q8.bin", "wb") as f:
        f.write(b"MFGOLDEN" + struct.pack("<6I", 1, n_tokens, logits.shape[1], hidden.shape[0], hidden.shape[2], 1))
        f.write(struct.pack(f"<{n_tokens}i", *tokens) + struct.pack("<I", n_tokens - 1))
        f.write(hidden[:, -1:].contiguous().numpy().tobytes() + logits.contiguous().numpy().tobytes())
    stored = torch.frombuffer(bytearray(head[-4 * plain.numel() :]), dtype=torch.float32).view_as(plain)
    scale = plain.abs().amax(-1)
    print(name, "golden.bin again to", float(((plain - stored).abs().amax(-1) / scale).max()))
    off = ((logits - plain).abs().amax(-1) / scale).sort().values
    print(name, "8 bits: median", float(off[len(off) // 2]), "largest", float(off[-1]))


for case in sys.argv[1:] or CASES:
    make(case)
