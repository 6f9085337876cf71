# SPDX-License-Identifier: MIT
"""Stored forms of published Hugging Face checkpoints for make_goldens.py: integers and NVFP4 of compressed-tensors, FP8 with a
scale for each row or for a matrix, NVFP4 of modelopt. Each packs matrices as its publisher lays them out, and gives the values back
from the stored bytes alone."""
import numpy as np
import torch

from goldens_forms import Raw, float_of, is_fp8, raw_of

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def bytes_of(raw, dtype):
    return torch.from_numpy(np.frombuffer(raw.data, dtype).copy()).reshape(raw.shape)


def e4m3_of(t):
    return Raw("F8_E4M3", list(t.shape), t.to(torch.float8_e4m3fn).view(torch.uint8).numpy().tobytes())


def e4m3_values(raw):
    return bytes_of(raw, np.uint8).view(torch.float8_e4m3fn).float()


class Form:
    """takes(name): whether a tensor is quantised; store(module, t): what becomes of it, by name; value(module, raw): the reverse."""

    def takes(self, name):
        return is_fp8(name)

    def values(self, raw):
        """All tensors in float32, in the names of the unquantised checkpoint."""
        out, used = {}, set()
        for name in raw:
            module = name.removesuffix(self.first)
            if name.endswith(self.first) and module + self.second in raw:
                out[module + ".weight"] = raw_of(self.value(module, raw), "F32")
                used |= {n for n in raw if n.startswith(module + ".")}
        return out | {n: t for n, t in raw.items() if n not in used}


class Integers(Form):
    """pack-quantized: unsigned values in words of 32 bits, the first lowest, their middle 0."""

    first, second = ".weight_packed", ".weight_scale"

    def __init__(self, bits, group, dtype, experts_alone):
        self.bits, self.group, self.dtype, self.experts_alone = bits, group, dtype, experts_alone
        weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group", "group_size": group}
        self.config = {
            "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}},
            "ignore": ["lm_head"],
        }

    def takes(self, name):
        return is_fp8(name) and (not self.experts_alone or ".mlp.experts." in name)

    def store(self, module, t):
        rows, cols = t.shape
        half = 2 ** (self.bits - 1)
        groups = t.reshape(rows, -1, self.group)
        scale = raw_of(groups.abs().amax(-1) / (half - 0.5), self.dtype)
        q = (groups / float_of(scale).unsqueeze(-1)).round().clamp(-half, half - 1).reshape(rows, cols).long() + half
        per_word = 32 // self.bits
        shifts = torch.arange(per_word) * self.bits
        words = (q.reshape(rows, -1, per_word) << shifts).sum(-1).numpy().astype(np.uint32)
        return {
            module + ".weight_packed": Raw("I32", list(words.shape), words.tobytes()),
            module + ".weight_scale": scale,
            module + ".weight_shape": Raw("I64", [2], np.array([rows, cols], np.int64).tobytes()),
        }

    def value(self, module, raw):
        words = bytes_of(raw[module + ".weight_packed"], np.int32).long() & 0xFFFFFFFF
        shifts = torch.arange(32 // self.bits) * self.bits
        q = (words.unsqueeze(-1) >> shifts & (2**self.bits - 1)) - 2 ** (self.bits - 1)
        scale = float_of(raw[module + ".weight_scale"])
        return (q.reshape(*scale.shape, self.group) * scale.unsqueeze(-1)).reshape(scale.shape[0], -1)


class Fp8Rows(Form):
    """float-quantized with a scale for each row, or as modelopt does one for all."""

    first, second = ".weight", ".weight_scale"

    def __init__(self, by_row, config):
        self.by_row, self.config = by_row, config

    def store(self, module, t):
        largest = t.abs().amax(1, keepdim=True) if self.by_row else t.abs().amax()
        scale = raw_of(largest * 1.01 / 448, "BF16" if self.by_row else "F32")
        out = {module + ".weight": e4m3_of(t / float_of(scale)), module + ".weight_scale": scale}
        return out if self.by_row else out | {module + ".input_scale": raw_of(torch.tensor(0.25), "F32")}

    def value(self, module, raw):
        return e4m3_values(raw[module + ".weight"]) * float_of(raw[module + ".weight_scale"])


class Nvfp4(Form):
    """e2m1 values, e4m3 scales of 16, and a factor; compressed-tensors stores what to divide by."""

    def __init__(self, divided, config):
        self.divided, self.config = divided, config
        self.first = ".weight_packed" if divided else ".weight"
        self.second = ".weight_global_scale" if divided else ".weight_scale_2"

    def store(self, module, t):
        rows, cols = t.shape
        groups = t.reshape(rows, -1, 16)
        factor = groups.abs().amax() / (6 * 448)
        factor = raw_of((1 / factor if self.divided else factor).reshape([1] if self.divided else []), "F32")
        unit = 1 / float_of(factor) if self.divided else float_of(factor)
        scale = e4m3_of(groups.abs().amax(-1) / 6 / unit)
        scaled = groups / (e4m3_values(scale) * unit).unsqueeze(-1)
        q = (scaled.unsqueeze(-1) - E2M1).abs().nan_to_num(0).argmin(-1).reshape(rows, -1, 2)
        packed = (q[..., 0] | q[..., 1] << 4).numpy().astype(np.uint8)
        return {
            module + self.first: Raw("U8", list(packed.shape), packed.tobytes()),
            module + ".weight_scale": scale,
            module + self.second: factor,
        }

    def value(self, module, raw):
        packed = bytes_of(raw[module + self.first], np.uint8).long()
        q = torch.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1, 16)
        factor = float_of(raw[module + self.second])
        scale = e4m3_values(raw[module + ".weight_scale"]) * (1 / factor if self.divided else factor)
        return (E2M1[q] * scale.unsqueeze(-1)).reshape(packed.shape[0], -1)


def compressed(form, weights):
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]}


FORMS = {
    "int4": Integers(4, 32, "BF16", True),
    "int8": Integers(8, 64, "F16", False),
    "fp8_channel": Fp8Rows(
        True, compressed("float-quantized", {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"})
    ),
    "fp8_tensor": Fp8Rows(False, {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}),
    "nvfp4": Nvfp4(False, {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "ignore": ["lm_head"]}),
    "nvfp4_divided": Nvfp4(
        True, compressed("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group"})
    ),
}
