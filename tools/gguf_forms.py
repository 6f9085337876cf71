# SPDX-License-Identifier: MIT
"""What make_gguf.py needs of checkpoints and of GGUF: reading the published and the MLX form, the names and orders that
llama.cpp's converters give tensors, and plain quantisers for the block types that PyPI's gguf only reads."""
import json
import struct
from pathlib import Path

import gguf
import numpy as np

Q = gguf.GGMLQuantizationType

# ---------------------------------------------------------------- reading


def read_safetensors(path):
    blob = np.memmap(path, np.uint8, "r")
    (n,) = struct.unpack("<Q", blob[:8].tobytes())
    header = json.loads(blob[8 : 8 + n].tobytes())
    header.pop("__metadata__", None)
    return {
        name: (e["dtype"], e["shape"], blob[8 + n + e["data_offsets"][0] : 8 + n + e["data_offsets"][1]])
        for name, e in header.items()
    }


def as_float(entry):
    dtype, shape, data = entry
    if dtype == "BF16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return data.view({"F32": np.float32, "F16": np.float16}[dtype]).astype(np.float32).reshape(shape)


def affine(words, scales, biases, bits, group):
    """MLX: w = code * scale + bias."""
    _, shape, data = words
    scales, biases = as_float(scales), as_float(biases)
    packed = data.view(np.uint32).reshape(-1, shape[-1])
    flat = np.unpackbits(packed.view(np.uint8).reshape(len(packed), -1), axis=1, bitorder="little")
    n = flat.shape[1] // bits
    codes = (flat.reshape(len(packed), n, bits).astype(np.uint32) << np.arange(bits, dtype=np.uint32)).sum(-1)
    out = codes.astype(np.float32) * np.repeat(scales.reshape(len(packed), -1), group, 1)
    out += np.repeat(biases.reshape(len(packed), -1), group, 1)
    return out.reshape(*shape[:-1], n)


def is_shifted(tensors):
    """Conversions make conv1d [channels, width, 1] and add one to norms; published checkpoints have neither."""
    for name, entry in tensors.items():
        if "linear_attn.conv1d" in name and "mtp." not in name:
            return entry[1][2] == 1
    return not any(".mlp.experts." in n for n in tensors)


def plain_name(name):
    """A published tensor's name without what comes before the layers, and with the names that most families have."""
    for prefix in ("language_model.model.", "model.language_model.", "model.", "language_model."):
        if name.startswith(prefix):
            name = name[len(prefix) :]
            break
    if ".block_sparse_moe." in name:
        name = name.replace(".block_sparse_moe.", ".mlp.")
        for theirs, ours in (("w1", "gate_proj"), ("w3", "up_proj"), ("w2", "down_proj")):
            name = name.replace(f".{theirs}.", f".{ours}.")
    return name.replace(".feed_forward.", ".mlp.")


def is_of_sight(name):
    return any(part in name for part in ("visual.", "vision_tower.", "vision_model.", "multi_modal_projector."))


# As llama.cpp's converters rename what Qwen publishes: one layer more, and what DeepSeek and GLM call its own.
OF_DRAFT = {
    "mtp.fc.": "eh_proj.", "mtp.pre_fc_norm_embedding.": "enorm.", "mtp.pre_fc_norm_hidden.": "hnorm.", "mtp.norm.": "shared_head.norm.",
    "mtp.layers.0.": "",
}


def has_whole_draft(stored):
    return "mtp.fc.weight" in stored and "mtp.layers.0.self_attn.o_proj.weight" in stored


def draft_name(name, n_layers):
    for theirs, ours in OF_DRAFT.items():
        if name.startswith(theirs):
            return f"layers.{n_layers}.{ours}{name.removeprefix(theirs)}"
    return name


def read_checkpoint(folder):
    """The config of the text model, and float32 tensors by the names that they have after "model."."""
    config = json.loads((Path(folder) / "config.json").read_text())
    text = {**config, **config.get("text_config", {}), "model_type": config["model_type"]}
    stored = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        stored.update(read_safetensors(path))
    shifted = is_shifted(stored)
    quantization = config.get("quantization") or config.get("quantization_config") or {}
    out = {}
    for name, entry in stored.items():
        if name.endswith((".scales", ".biases")) or is_of_sight(name) or "mtp." in name and not has_whole_draft(stored):
            continue
        base = name.removesuffix(".weight")
        if base + ".scales" in stored:
            own = {**quantization, **(quantization.get(base) or {})}
            value = affine(entry, stored[base + ".scales"], stored[base + ".biases"], own["bits"], own["group_size"])
        else:
            value = as_float(entry)
        name = draft_name(plain_name(name), text["num_hidden_layers"])
        is_centred = text["model_type"] in ("qwen3_5_moe", "qwen3_5", "qwen3_next") and name.endswith("norm.weight") and "linear_attn" not in name
        out[name] = value + 1 if is_centred and not shifted else value
    return text, out


# ---------------------------------------------------------------- the orders of llama.cpp


def tile_heads(t, axis, n_k, n_v, dim):
    """Value heads from grouped by key head to one of each key head by turns."""
    shape = t.shape
    split = shape[:axis] + (n_k, n_v // n_k, dim) + shape[axis + 1 :]
    return np.ascontiguousarray(t.reshape(split).swapaxes(axis, axis + 1).reshape(shape))


def group_heads(t, axis, n_k, n_v, dim):
    return tile_heads(t, axis, n_v // n_k, n_v, dim)


def reorder_linear(name, t, c, order):
    """The value heads of a tensor of linear attention, by tile_heads or group_heads."""
    n_k, n_v, dim = c["linear_num_key_heads"], c["linear_num_value_heads"], c["linear_value_head_dim"]
    n_qk = 2 * n_k * c["linear_key_head_dim"]
    if "in_proj_qkv." in name or "conv1d" in name:
        return np.concatenate([t[:n_qk], order(t[n_qk:], 0, n_k, n_v, dim)])
    if "in_proj_z" in name:
        return order(t, 0, n_k, n_v, dim)
    if "out_proj" in name:
        return order(t, 1, n_k, n_v, dim)
    if any(part in name for part in ("in_proj_a", "in_proj_b", "A_log", "dt_bias")):
        return order(t, 0, n_k, n_v, 1)
    return t


def pair_neighbours(t, n_heads):
    """Rows of a head that are rotated together: from half a head apart to one behind the other."""
    return np.ascontiguousarray(t.reshape(n_heads, 2, -1, *t.shape[1:]).swapaxes(1, 2).reshape(t.shape))


def part_neighbours(t, n_heads):
    return np.ascontiguousarray(t.reshape(n_heads, -1, 2, *t.shape[1:]).swapaxes(1, 2).reshape(t.shape))


def split_qkvz(t, c):
    """Qwen3-Next: key head by key head its q, its k, its value heads' v, their z -> all q, k, v, and all z."""
    n_k, ratio = c["linear_num_key_heads"], c["linear_num_value_heads"] // c["linear_num_key_heads"]
    k, v = c["linear_key_head_dim"], ratio * c["linear_value_head_dim"]
    heads = t.reshape(n_k, 2 * k + 2 * v, -1)
    parts = np.split(heads, [k, 2 * k, 2 * k + v], 1)
    flat = [p.reshape(-1, t.shape[1]) for p in parts]
    return np.concatenate(flat[:3]), flat[3]


def join_qkvz(qkv, z, c):
    n_k = c["linear_num_key_heads"]
    n_keys = n_k * c["linear_key_head_dim"]
    q, k, v = np.split(qkv, [n_keys, 2 * n_keys])
    heads = [p.reshape(n_k, -1, qkv.shape[1]) for p in (q, k, v, z)]
    return np.concatenate(heads, 1).reshape(-1, qkv.shape[1])


# ---------------------------------------------------------------- quantisers


def halves(x):
    return x.astype(np.float16).view(np.uint8).reshape(len(x), 2)


def quantise_q4_k(x):
    """Blocks of 256: eight parts of 32 with a scale and a minimum of six bits each, nearest codes."""
    x = x.reshape(-1, 8, 32)
    low = np.minimum(x.min(-1), 0)
    scale = (x.max(-1) - low) / 15
    d = (scale.max(-1) / 63).astype(np.float16).astype(np.float32)
    dmin = (-low.min(-1) / 63).astype(np.float16).astype(np.float32)
    safe = lambda a: np.where(a == 0, 1, a)
    s = np.clip(np.rint(scale / safe(d)[:, None]), 0, 63).astype(np.uint8)
    m = np.clip(np.rint(-low / safe(dmin)[:, None]), 0, 63).astype(np.uint8)
    step = safe(d[:, None] * s)[..., None]
    q = np.clip(np.rint((x + (dmin[:, None] * m)[..., None]) / step), 0, 15).astype(np.uint8)
    packed = np.zeros((len(x), 12), np.uint8)
    packed[:, 0:4] = s[:, :4] | (s[:, 4:] >> 4) << 6
    packed[:, 4:8] = m[:, :4] | (m[:, 4:] >> 4) << 6
    packed[:, 8:12] = (s[:, 4:] & 15) | (m[:, 4:] & 15) << 4
    codes = (q[:, 0::2] | q[:, 1::2] << 4).reshape(len(x), 128)
    return np.concatenate([halves(d), halves(dmin), packed, codes], 1)


def quantise_q6_k(x):
    """Blocks of 256: a signed scale of eight bits for each 16 values of six bits."""
    x = x.reshape(-1, 16, 16)
    at = np.abs(x).argmax(-1)
    scale = -np.take_along_axis(x, at[..., None], -1)[..., 0] / 32
    d = (np.abs(scale).max(-1) / 127).astype(np.float16).astype(np.float32)
    safe = lambda a: np.where(a == 0, 1, a)
    s = np.clip(np.rint(scale / safe(d)[:, None]), -128, 127).astype(np.int8)
    q = np.clip(np.rint(x / safe(d[:, None] * s)[..., None]), -32, 31) + 32
    q = q.astype(np.uint8).reshape(-1, 2, 4, 32)
    low = (q[:, :, :2] & 15) | (q[:, :, 2:] & 15) << 4
    high = np.zeros((len(q), 2, 32), np.uint8)
    for part in range(4):
        high |= (q[:, :, part] >> 4) << (2 * part)
    return np.concatenate([low.reshape(len(q), 128), high.reshape(len(q), 64), s.view(np.uint8), halves(d)], 1)


def nvfp4_factor(t):
    """What converters write beside NVFP4, as publishers choose it: the largest value is the largest code times the largest scale."""
    return np.float32(np.abs(t).max() / (6 * 448))


def quantise_nvfp4(t, factor):
    """Blocks of 64: four scales of e4m3, then of each 16 values the first eight in the low nibbles, the others in the high."""
    n = gguf.quants.NVFP4
    x = np.ascontiguousarray(t, np.float32).reshape(-1, 4, 16) / factor
    scales = n.fp32_to_ue4m3(np.abs(x).max(-1) / 6)
    steps = n.ue4m3_to_fp32(scales)[..., None]
    points = x[..., None] / np.where(steps == 0, 1, steps)[..., None] - np.array(n.kvalues, np.float32)
    codes = np.abs(points).argmin(-1).astype(np.uint8)
    blocks = np.concatenate([scales, (codes[..., :8] | codes[..., 8:] << 4).reshape(len(x), 32)], 1)
    return blocks.reshape(*t.shape[:-1], -1)


def quantise(t, kind):
    """Rows of blocks as bytes; floats as they are stored."""
    t = np.ascontiguousarray(t, np.float32)
    if kind == Q.F32:
        return t
    own = {Q.Q4_K: quantise_q4_k, Q.Q6_K: quantise_q6_k}.get(kind)
    if own is None:
        return gguf.quants.quantize(t, kind)
    blocks = own(t.reshape(-1, 256)) if kind == Q.Q4_K else own(t.reshape(-1, 16, 16))
    return blocks.reshape(*t.shape[:-1], -1)


def fits(t, kind):
    n_values, _ = gguf.GGML_QUANT_SIZES[kind]
    return t.shape[-1] % n_values == 0
