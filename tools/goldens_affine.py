# SPDX-License-Identifier: MIT
"""Checkpoints in MLX's form without mlx, for what mlx-lm leaves out of them: matrices as affine codes, w = scale q + bias for
each group of columns (scales and biases BF16; codes side by side in words of 32 bits, the first one lowest), stacked experts,
norms and convolutions as its conversions store them. What mlx makes of such codes is in tests/model/data/dequant.bin."""

import numpy as np
import torch

import goldens_forms as forms

# of the Qwen families, where the model's own are published minus one
SHIFTED = ("layernorm.weight", "model.norm.weight", "q_norm.weight", "k_norm.weight", "mtp.norm.weight", "pre_fc_norm_embedding.weight",
           "pre_fc_norm_hidden.weight")


def packed(codes, bits):
    """[..., n] codes to [..., n bits / 32] words."""
    each = 32 // bits
    words = codes.astype(np.uint64).reshape(*codes.shape[:-1], -1, each)
    return (words << (np.arange(each, dtype=np.uint64) * bits)).sum(-1).astype(np.uint32)


class Checkpoint:
    """Tensors as they are stored, under their names; each put gives back the values that it then has, in float64."""

    def __init__(self, bits, group):
        self.bits, self.group, self.tensors = bits, group, {}
        self.quantization = {"group_size": group, "bits": bits, "mode": "affine"}

    def put_plain(self, name, t):
        self.tensors[name] = forms.raw_of(t, "BF16")
        return forms.float_of(self.tensors[name]).double()

    def put_affine(self, name, t, bits=None):
        if bits is not None:
            self.quantization[name] = {"group_size": self.group, "bits": bits}
        bits = bits or self.bits
        groups = t.double().reshape(*t.shape[:-1], -1, self.group)
        least, most = groups.amin(-1), groups.amax(-1)
        scales = self.put_plain(name + ".scales", ((most - least) / (2**bits - 1)).float())
        biases = self.put_plain(name + ".biases", least.float())
        codes = ((groups - biases[..., None]) / scales[..., None]).round().clamp(0, 2**bits - 1)
        words = packed(codes.reshape(t.shape).numpy(), bits)
        self.tensors[name + ".weight"] = forms.Raw("U32", list(words.shape), words.tobytes())
        return (codes * scales[..., None] + biases[..., None]).reshape(t.shape)

    def put_experts(self, base, name, t):
        """Fused in transformers, apart here."""
        if name == "down_proj":
            return self.put_affine(f"{base}.switch_mlp.down_proj", t)
        half = t.shape[1] // 2
        parts = (("gate_proj", t[:, :half]), ("up_proj", t[:, half:]))
        return torch.cat([self.put_affine(f"{base}.switch_mlp.{n}", p) for n, p in parts], 1)

    def put(self, name, t):
        base, _, last = name.rpartition(".")
        if base.endswith(".experts"):
            return self.put_experts(base.removesuffix(".experts"), last, t)
        if name.endswith(SHIFTED) and not name.endswith("linear_attn.norm.weight"):
            return self.put_plain(name, t + 1) - 1
        if "conv1d" in name:
            return self.put_plain(name, t.movedim(1, 2).contiguous()).movedim(1, 2)
        if t.dim() < 2 or last != "weight" or name.endswith("mtp.fc.weight"):
            return self.put_plain(name, t)
        return self.put_affine(base, t, 8 if base.endswith(("mlp.gate", "shared_expert_gate")) else None)
