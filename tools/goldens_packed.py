# SPDX-License-Identifier: MIT
"""Stored forms of published Hugging Face checkpoints for make_goldens.py whose values are repacked when they are read: GPTQ (both
ways to write zeros, with columns in another order and without), AWQ, and compressed-tensors' integers with zero points, with other
groups, and as bytes. Written from the packages that write them (GPTQModel, AutoAWQ, compressed-tensors); where compressed_tensors
can be imported, its own reading of the same tensors is asked for as well."""
import zlib

import numpy as np
import torch

from goldens_forms import Raw, float_of, is_fp8, raw_of
from goldens_stored import Form, bytes_of

try:
    import compressed_tensors
except ImportError:
    compressed_tensors = None

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def raw_i32(words):
    words = np.ascontiguousarray(words, np.uint32)
    return Raw("I32", list(words.shape), words.tobytes())


def words_of(raw):
    return np.frombuffer(raw.data, np.uint32).reshape(raw.shape)


def join(codes, bits):
    """Codes [..., n] to words [..., n * bits / 32]: one stream of bits, the lowest first; filled up with zeros."""
    n = codes.shape[-1]
    stream = (codes[..., None].astype(np.uint32) >> np.arange(bits, dtype=np.uint32) & 1).reshape(*codes.shape[:-1], n * bits)
    stream = np.concatenate([stream, np.zeros((*stream.shape[:-1], -(n * bits) % 32), np.uint32)], -1)
    return (stream.reshape(*stream.shape[:-1], -1, 32) << np.arange(32, dtype=np.uint32)).sum(-1, dtype=np.uint32)


def split(words, bits, n):
    stream = (words[..., None] >> np.arange(32, dtype=np.uint32) & 1).reshape(*words.shape[:-1], -1)[..., : n * bits]
    return (stream.reshape(*stream.shape[:-1], n, bits) << np.arange(bits, dtype=np.uint32)).sum(-1).astype(np.int64)


def quantised(t, group, bits, symmetric, dtype, order=None):
    """Codes [rows, columns], zeros [rows, groups], scales likewise (stored in `dtype`), and the group of each column."""
    rows, cols = t.shape
    group, top = group or cols, 2**bits - 1
    order = np.arange(cols) if order is None else order
    index = np.empty(cols, np.int64)
    index[order] = np.arange(cols) // group
    x = t.numpy()[:, order].reshape(rows, -1, group)
    low, high = np.minimum(x.min(-1), 0), np.maximum(x.max(-1), 0)
    if symmetric:
        high = np.maximum(-low, high)
        low = -high
    scales = raw_of(torch.from_numpy(np.maximum(high - low, 1e-5) / top), dtype)
    s = float_of(scales).numpy()
    zeros = np.full(s.shape, 2 ** (bits - 1), np.int64) if symmetric else np.rint(-low / s).clip(0, top).astype(np.int64)
    codes = np.rint(t.numpy() / s[:, index]) + zeros[:, index]
    return codes.clip(0, top).astype(np.int64), zeros, scales, index


def dequantised(codes, zeros, scales, index):
    return torch.from_numpy(((codes - zeros[:, index]).astype(np.float32) * scales[:, index]).astype(np.float32))


def reordered(module, cols):
    return np.random.default_rng(zlib.crc32(module.encode())).permutation(cols)


def turned(raw):
    """The transposed stored floats."""
    return raw_of(float_of(raw).T, raw.dtype)


class Packed(Form):
    def takes(self, name):
        return is_fp8(name) and "shared_expert_gate" not in name


class Gptq(Packed):
    first, second = ".qweight", ".qzeros"

    def __init__(self, bits, group, symmetric, act_order, v2=False, dtype="F16"):
        self.bits, self.group, self.symmetric, self.act_order, self.v2, self.dtype = bits, group, symmetric, act_order, v2, dtype
        self.ones = np.uint32(sum(1 << i for i in range(0, 32, bits)))
        self.each = bits == 3 and not v2  # 1 is taken from each zero before they are packed: some go from word to word
        self.config = {
            "bits": bits, "group_size": group or -1, "desc_act": act_order, "sym": symmetric, "lm_head": False, "damp_percent": 0.1,
            "quant_method": "gptq", "checkpoint_format": "gptq_v2" if v2 else "gptq", "true_sequential": True,
        }

    def store(self, module, t):
        cols = t.shape[1]
        order = reordered(module.rsplit(".", 1)[0], cols) if self.act_order else None
        codes, zeros, scales, index = quantised(t, self.group, self.bits, self.symmetric, self.dtype, order)
        words = join((zeros.T - 1) % 8 if self.each else zeros.T, self.bits)
        return {
            module + ".qweight": raw_i32(join(codes, self.bits).T),
            module + ".qzeros": raw_i32(words if self.v2 or self.each else words - self.ones),
            module + ".scales": turned(scales),
            module + ".g_idx": raw_i32(index),
        }

    def value(self, module, raw):
        scales = float_of(raw[module + ".scales"]).numpy().T
        index = words_of(raw[module + ".g_idx"]).astype(np.int64)
        words = words_of(raw[module + ".qzeros"])
        zeros = split(words if self.v2 or self.each else words + self.ones, self.bits, len(scales)).T
        zeros = (zeros + 1) % 8 if self.each else zeros
        return dequantised(split(words_of(raw[module + ".qweight"]).T, self.bits, len(index)), zeros, scales, index)


class Awq(Packed):
    first, second = ".qweight", ".qzeros"

    def __init__(self, group):
        self.group = group
        self.config = {
            "bits": 4, "group_size": group, "quant_method": "awq", "version": "gemm", "zero_point": True,
            "modules_to_not_convert": ["gate"],
        }

    @staticmethod
    def words(codes):
        """[n, rows] to [n, rows / 8]."""
        return join(codes.reshape(len(codes), -1, 8)[..., AWQ_ORDER].reshape(len(codes), -1), 4)

    @staticmethod
    def codes(words):
        out = np.empty((len(words), words.shape[1], 8), np.int64)
        out[..., AWQ_ORDER] = split(words, 4, 8 * words.shape[1]).reshape(out.shape)
        return out.reshape(len(words), -1)

    def store(self, module, t):
        codes, zeros, scales, _ = quantised(t, self.group, 4, False, "F16")
        return {
            module + ".qweight": raw_i32(self.words(codes.T)),
            module + ".qzeros": raw_i32(self.words(zeros.T)),
            module + ".scales": turned(scales),
        }

    def value(self, module, raw):
        scales = float_of(raw[module + ".scales"]).numpy().T
        codes, zeros = (self.codes(words_of(raw[module + end])).T for end in (".qweight", ".qzeros"))
        value = dequantised(codes, zeros, scales, np.arange(codes.shape[1]) // self.group)
        if compressed_tensors is not None:
            from compressed_tensors.entrypoints.convert.converters import AutoAWQConverter

            tensors = [torch.from_numpy(words_of(raw[module + end]).view(np.int32).copy()) for end in (".qweight", ".qzeros")]
            theirs = AutoAWQConverter(group_size=self.group)._convert_gemm_module(tensors[0], float_of(raw[module + ".scales"]), tensors[1])
            again = (theirs[0].float() - theirs[2].float().repeat_interleave(self.group, 1)) * theirs[1].repeat_interleave(self.group, 1)
            assert torch.equal(again, value)
        return value


def weights_of(bits, symmetric, group, **more):
    strategy = {"strategy": "group", "group_size": group} if group else {"strategy": "channel"}
    return {"num_bits": bits, "type": "int", "symmetric": symmetric, **strategy, **more}


def compressed(form, weights):
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]}


class Points(Packed):
    """pack-quantized with zero points, with columns in another order, of other bits, or with a scale for each row."""

    first, second = ".weight_packed", ".weight_scale"

    def __init__(self, bits, group, symmetric, act_order=False, dtype="BF16"):
        self.bits, self.group, self.symmetric, self.act_order, self.dtype = bits, group, symmetric, act_order, dtype
        more = {"actorder": "group"} if act_order else {}
        self.config = compressed("pack-quantized", weights_of(bits, symmetric, group, **more))

    def store(self, module, t):
        order = reordered(module.rsplit(".", 1)[0], t.shape[1]) if self.act_order else None
        codes, zeros, scales, index = quantised(t, self.group, self.bits, self.symmetric, self.dtype, order)
        out = {
            module + ".weight_packed": raw_i32(join(codes, self.bits)),
            module + ".weight_scale": scales,
            module + ".weight_shape": Raw("I64", [2], np.array(t.shape, np.int64).tobytes()),
        }
        if not self.symmetric:
            out[module + ".weight_zero_point"] = raw_i32(join(zeros.T, self.bits).T)
        if self.act_order:
            out[module + ".weight_g_idx"] = raw_i32(index)
        return out

    def value(self, module, raw):
        rows, cols = np.frombuffer(raw[module + ".weight_shape"].data, np.int64)
        scales = float_of(raw[module + ".weight_scale"]).numpy()
        codes = split(words_of(raw[module + ".weight_packed"]), self.bits, cols)
        index = np.arange(cols) // (self.group or cols)
        if self.act_order:
            index = words_of(raw[module + ".weight_g_idx"]).astype(np.int64)
        zeros = np.full(scales.shape, 2 ** (self.bits - 1))
        if not self.symmetric:
            zeros = split(words_of(raw[module + ".weight_zero_point"]).T, self.bits, rows).T
        value = dequantised(codes, zeros, scales, index)
        if compressed_tensors is not None and not self.act_order:
            assert torch.equal(self.theirs(module, raw), value)
        return value

    def theirs(self, module, raw):
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**self.config["config_groups"]["group_0"]["weights"]))
        tensors = {"weight_scale": float_of(raw[module + ".weight_scale"])}
        for end in ("weight_packed", "weight_zero_point"):
            if f"{module}.{end}" in raw:
                tensors[end] = torch.from_numpy(words_of(raw[f"{module}.{end}"]).view(np.int32).copy())
        tensors["weight_shape"] = bytes_of(raw[module + ".weight_shape"], np.int64)
        return BaseCompressor.get_value_from_registry("pack-quantized").decompress(tensors, scheme)["weight"].float()


class Bytes(Packed):
    """int-quantized: bytes with a sign, with zero points or without, a scale for each row or group."""

    first, second = ".weight", ".weight_scale"

    def __init__(self, group, symmetric, dtype="BF16"):
        self.group, self.symmetric, self.dtype = group, symmetric, dtype
        self.config = compressed("int-quantized", weights_of(8, symmetric, group))

    @staticmethod
    def bytes_of(codes):
        return Raw("I8", list(codes.shape), (codes - 128).astype(np.int8).tobytes())

    def store(self, module, t):
        codes, zeros, scales, _ = quantised(t, self.group, 8, self.symmetric, self.dtype)
        out = {module + ".weight": self.bytes_of(codes), module + ".weight_scale": scales}
        return out if self.symmetric else out | {module + ".weight_zero_point": self.bytes_of(zeros)}

    def value(self, module, raw):
        codes, scale = (raw[module + end] for end in (".weight", ".weight_scale"))
        q, s = bytes_of(codes, np.int8).float(), float_of(scale)
        z = 0 if self.symmetric else bytes_of(raw[module + ".weight_zero_point"], np.int8).float()
        many = q.shape[1] // s.shape[1]
        return (q - (z if self.symmetric else z.repeat_interleave(many, 1))) * s.repeat_interleave(many, 1)


FORMS = {
    "gptq_act_order": Gptq(4, 32, False, True),
    "gptq_8bit": Gptq(8, None, True, False),
    "gptq_3bit": Gptq(3, 32, False, False),
    "gptq_v2": Gptq(4, 64, False, False, v2=True),
    "awq": Awq(32),
    "points": Points(4, 32, False),
    "points_reordered": Points(8, 32, False, act_order=True),
    "int4_channel": Points(4, None, True, dtype="F32"),
    "int6_points": Points(6, 64, False),
    "bytes": Bytes(None, True),
    "bytes_points": Bytes(32, False),
}
