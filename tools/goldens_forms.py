# SPDX-License-Identifier: MIT
"""Checkpoint forms for make_goldens.py: safetensors on the byte level, the published Hugging Face names, the MLX form as
mlx_lm writes it, and the packed form derived from it. Tensors are (dtype, shape, bytes) until mathematics needs them."""
import json
import struct
from collections import namedtuple
from pathlib import Path

import numpy as np
import torch

Raw = namedtuple("Raw", "dtype shape data")

TORCH_OF = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


def raw_of(tensor, dtype):
    tensor = tensor.to(TORCH_OF[dtype]).contiguous()
    view = tensor if dtype == "F32" else tensor.view(torch.int16)
    return Raw(dtype, list(tensor.shape), view.numpy().tobytes())


def float_of(raw):
    """A float32 torch tensor of a stored float tensor."""
    np_type = np.float32 if raw.dtype == "F32" else np.int16
    flat = torch.from_numpy(np.frombuffer(raw.data, np_type).copy()).reshape(raw.shape)
    return flat if raw.dtype == "F32" else flat.view(TORCH_OF[raw.dtype]).float()


def read_safetensors(path):
    blob = Path(path).read_bytes()
    (n,) = struct.unpack("<Q", blob[:8])
    header = json.loads(blob[8 : 8 + n])
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        out[name] = Raw(entry["dtype"], entry["shape"], blob[8 + n + begin : 8 + n + end])
    return out


def read_checkpoint(folder):
    out = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        out.update(read_safetensors(path))
    return out


def write_safetensors(path, tensors, fmt):
    header, offset = {"__metadata__": {"format": fmt}}, 0
    for name, raw in tensors.items():
        header[name] = {"dtype": raw.dtype, "shape": raw.shape, "data_offsets": [offset, offset + len(raw.data)]}
        offset += len(raw.data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for raw in tensors.values():
            f.write(raw.data)


def write_checkpoint(folder, tensors, n_shards, fmt="pt"):
    """One file, or shards with an index as published checkpoints have them."""
    for old in Path(folder).glob("model*.safetensors*"):
        old.unlink()
    if n_shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, fmt)
        return
    total = sum(len(r.data) for r in tensors.values())
    shards, used = [{}], 0
    for name, raw in tensors.items():
        if used >= total * len(shards) / n_shards and len(shards) < n_shards:
            shards.append({})
        shards[-1][name] = raw
        used += len(raw.data)
    index = {"metadata": {"total_size": total}, "weight_map": {}}
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{n_shards:05d}.safetensors"
        write_safetensors(folder / name, shard, fmt)
        index["weight_map"].update({k: name for k in shard})
    index["weight_map"] = dict(sorted(index["weight_map"].items()))
    write_json(folder / "model.safetensors.index.json", index)


def write_json(path, value):
    Path(path).write_text(json.dumps(value, indent=1) + "\n")


# ---------------------------------------------------------------- published Hugging Face names


def split_experts(state):
    """Fused module tensors -> one tensor per expert and projection."""
    out = {}
    for name, t in state.items():
        base = name.rsplit(".", 1)[0]
        if name.endswith("experts.gate_up_proj"):
            half = t.shape[1] // 2
            for e in range(t.shape[0]):
                out[f"{base}.{e}.gate_proj.weight"] = t[e, :half]
                out[f"{base}.{e}.up_proj.weight"] = t[e, half:]
        elif name.endswith("experts.down_proj"):
            for e in range(t.shape[0]):
                out[f"{base}.{e}.down_proj.weight"] = t[e]
        else:
            out[name] = t
    return out


def language_prefix(name):
    return name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name


def extras(case, draw):
    """Tensors that a loader has to skip: the multi-token-prediction head and the vision tower."""
    h, i = case["config"]["hidden_size"], case["config"].get("moe_intermediate_size", 8)
    shapes = {
        "mtp.fc.weight": (h, 2 * h),
        "mtp.norm.weight": (h,),
        "mtp.pre_fc_norm_embedding.weight": (h,),
        "mtp.pre_fc_norm_hidden.weight": (h,),
        "mtp.layers.0.input_layernorm.weight": (h,),
        "mtp.layers.0.self_attn.k_proj.weight": (16, h),
        "mtp.layers.0.mlp.gate.weight": (4, h),
        "mtp.layers.0.mlp.experts.0.gate_proj.weight": (i, h),
    }
    if case["family"] in ("qwen3_5_moe", "qwen3_5"):
        shapes |= {
            "model.visual.patch_embed.proj.weight": (16, 3, 2, 4, 4),
            "model.visual.patch_embed.proj.bias": (16,),
            "model.visual.blocks.0.attn.qkv.weight": (48, 16),
            "model.visual.blocks.0.norm1.weight": (16,),
            "model.visual.merger.linear_fc2.weight": (h, 32),
        }
    return {name: draw(name, shape) for name, shape in shapes.items()}


def fuse_experts(tensors, n_layers):
    """The reverse of split_experts, for the module's own layers; those past n_layers are left out."""
    out, experts = {}, {}
    for name, t in tensors.items():
        if name.startswith("model.layers.") and int(name.split(".")[2]) >= n_layers:
            continue
        if ".mlp.experts." not in name:
            out[name] = t
            continue
        prefix, rest = name.split(".mlp.experts.")
        number, proj, _ = rest.split(".")
        experts.setdefault(prefix + ".mlp.experts", {})[int(number), proj] = t
    for prefix, e in experts.items():
        numbers = sorted({n for n, _ in e})
        fused = [torch.cat([e[n, "gate_proj"], e[n, "up_proj"]]) for n in numbers]
        out[prefix + ".gate_up_proj"] = torch.stack(fused)
        out[prefix + ".down_proj"] = torch.stack([e[n, "down_proj"] for n in numbers])
    return out


# ---------------------------------------------------------------- FP8 in blocks of 128 x 128


def is_fp8(name):
    """What DeepSeek's published FP8 checkpoints quantise: every matrix but embeddings, head and router."""
    kept = ("embed_tokens.weight", "lm_head.weight", "mlp.gate.weight", "norm.weight", "eh_proj.weight", "head.weight", "enorm.weight")
    return name.endswith((".weight", "gate_up_proj", "experts.down_proj")) and not name.endswith(kept)


def blocks(values, shape):
    """One value a block, repeated to the shape of the matrix (the last two dimensions)."""
    rows, cols = shape[-2:]
    return values.repeat_interleave(128, -2)[..., :rows, :].repeat_interleave(128, -1)[..., :cols]


def block_factors(shape, normal):
    """Factors of one half to two, so that a block's scale does not fit its neighbour."""
    n_rows, n_cols = (shape[-2] + 127) // 128, (shape[-1] + 127) // 128
    return blocks(torch.exp2(normal[:n_rows, :n_cols].clamp(-1, 1)), shape)


def fp8_of(t, scale_dtype):
    """The stored pair: e4m3 values and the factor of each block that gives the matrix back."""
    rows, cols = t.shape
    padded = torch.zeros((rows + 127) // 128 * 128, (cols + 127) // 128 * 128)
    padded[:rows, :cols] = t
    largest = padded.reshape(padded.shape[0] // 128, 128, -1, 128).abs().amax((1, 3))
    scale = raw_of(largest * 1.01 / 448, scale_dtype)
    codes = (t / blocks(float_of(scale), t.shape)).to(torch.float8_e4m3fn)
    return Raw("F8_E4M3", [rows, cols], codes.view(torch.uint8).numpy().tobytes()), scale


def dequantise_fp8(tensors):
    out = {}
    for name, raw in tensors.items():
        if raw.dtype == "F8_E4M3":
            codes = torch.from_numpy(np.frombuffer(raw.data, np.uint8).copy()).reshape(raw.shape).view(torch.float8_e4m3fn)
            value = codes.float() * blocks(float_of(tensors[name + "_scale_inv"]), raw.shape)
            out[name] = raw_of(value, "F32")
        elif not name.endswith("_scale_inv"):
            out[name] = raw
    return out


# ---------------------------------------------------------------- MLX form


def dequantised_mlx(tensors, quantization):
    """Every tensor of an MLX checkpoint in float32, as mlx dequantises it with float32 scales and biases."""
    import mlx.core as mx

    def to_mx(raw):
        if raw.dtype in ("U32", "U8"):
            return mx.array(np.frombuffer(raw.data, np.uint32 if raw.dtype == "U32" else np.uint8).reshape(raw.shape))
        return mx.array(float_of(raw).numpy())

    out = {}
    for name, raw in tensors.items():
        base = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if base + ".scales" not in tensors:
            out[name] = float_of(raw)
            continue
        how = quantization.get(base, quantization)
        parts = [to_mx(tensors[base + end]) for end in (".weight", ".scales", ".biases") if base + end in tensors]
        mode = how.get("mode", "affine")
        more = {} if mode == "affine" else {"dtype": mx.float32}
        dense = mx.dequantize(*parts, group_size=how["group_size"], bits=how["bits"], mode=mode, **more)
        assert dense.dtype == mx.float32
        out[name] = torch.from_numpy(np.array(dense))
    return out


def mlx_lm_logits(folder, tokens):
    """What mlx-lm's own model makes of an MLX checkpoint, with float32 scales, on the CPU."""
    import mlx.core as mx
    from mlx.utils import tree_map
    from mlx_lm.utils import load_model

    mx.set_default_device(mx.cpu)
    model, _ = load_model(folder)
    model.update(tree_map(lambda x: x.astype(mx.float32) if mx.issubdtype(x.dtype, mx.floating) else x, model.parameters()))
    return torch.from_numpy(np.array(model(mx.array(tokens)[None])[0]))


def fuse_switch_mlp(state):
    out, parts = {}, {}
    for name, t in state.items():
        if ".switch_mlp." in name:
            prefix, proj = name.removesuffix(".weight").split(".switch_mlp.")
            parts.setdefault(prefix, {})[proj] = t
        else:
            out[name] = t
    for prefix, p in parts.items():
        out[prefix + ".experts.gate_up_proj"] = torch.cat([p["gate_proj"], p["up_proj"]], dim=1)
        out[prefix + ".experts.down_proj"] = p["down_proj"]
    return out


def old_mlx(raw_folder, bits, group):
    """DeepSeek-V3 as mlx-lm wrote it before it split kv_b_proj: stacked experts, every matrix but the router quantised."""
    import mlx.core as mx

    config, tensors, stacks = json.loads((raw_folder / "config.json").read_text()), {}, {}
    for name, raw in read_checkpoint(raw_folder).items():
        if ".mlp.experts." in name:
            prefix, rest = name.split(".experts.")
            number, proj, _ = rest.split(".")
            stacks.setdefault(f"{prefix}.switch_mlp.{proj}.weight", {})[int(number)] = float_of(raw)
        else:
            tensors[name] = raw
    for name, parts in stacks.items():
        tensors[name] = raw_of(torch.stack([parts[n] for n in sorted(parts)]), "BF16")
    out = {}
    for name, raw in sorted(tensors.items()):
        base = name.removesuffix(".weight")
        if len(raw.shape) < 2 or name.endswith("mlp.gate.weight") or raw.shape[-1] % group:
            out[name] = raw
            continue
        dense = mx.array(float_of(raw).numpy()).astype(mx.bfloat16)
        codes, scales, biases = mx.quantize(dense, group_size=group, bits=bits)
        out[name] = Raw("U32", list(codes.shape), np.array(codes).tobytes())
        for end, x in ((".scales", scales), (".biases", biases)):
            out[base + end] = Raw("BF16", list(x.shape), np.array(x.view(mx.uint16)).tobytes())
    return {**config, "quantization": {"group_size": group, "bits": bits}}, out


def module_state_of_mlx(tensors, quantization, family):
    """The state dict of the transformers module, in float32, of an MLX checkpoint: dequantised by mlx itself with float32
    scales and biases, stacked experts fused again, norms shifted back."""
    import mlx.core as mx

    def to_mx(raw):
        if raw.dtype in ("U32", "U8"):
            return mx.array(np.frombuffer(raw.data, np.uint32 if raw.dtype == "U32" else np.uint8).reshape(raw.shape))
        return mx.array(float_of(raw).numpy())

    def values(base):
        weight = tensors[base + ".weight"]
        if base + ".scales" not in tensors:
            return float_of(weight)
        how = quantization.get(base, quantization)
        dense = mx.dequantize(
            to_mx(weight),
            to_mx(tensors[base + ".scales"]),
            to_mx(tensors[base + ".biases"]),
            group_size=how["group_size"],
            bits=how["bits"],
        )
        assert dense.dtype == mx.float32
        return torch.from_numpy(np.array(dense))

    shifted = ("input_layernorm", "post_attention_layernorm", "model.norm", "q_norm", "k_norm")
    state, parts = {}, {}
    for name, raw in tensors.items():
        if name.endswith((".scales", ".biases")) or name.startswith("vision_tower"):
            continue
        out = name.removeprefix("language_model.")
        if not name.endswith(".weight"):
            state[out] = float_of(raw)
            continue
        base = name.removesuffix(".weight")
        t = values(base)
        if base.endswith(shifted):
            t = t - 1.0
        elif base.endswith("conv1d"):
            t = t.movedim(1, 2)
        if ".switch_mlp." in out:
            prefix, proj = out.removesuffix(".weight").split(".switch_mlp.")
            parts.setdefault(prefix, {})[proj] = t
        else:
            state[out] = t.contiguous()
    for prefix, p in parts.items():
        state[prefix + ".experts.gate_up_proj"] = torch.cat([p["gate_proj"], p["up_proj"]], dim=1)
        state[prefix + ".experts.down_proj"] = p["down_proj"]
    return state


def convert_to_mlx(raw_folder, folder, bits, group, predicate=None, mode="affine"):
    """mlx_lm.convert without its tokenizer: the same load, sanitize, cast, quantise and save."""
    import mlx.core as mx
    from mlx.utils import tree_map_with_path
    from mlx_lm.convert import mixed_quant_predicate_builder
    from mlx_lm.utils import load_model, quantize_model, save_config, save_model

    model, config = load_model(raw_folder)
    name = config.get("torch_dtype") or config.get("dtype") or config.get("text_config", {}).get("dtype")
    dtype, keep = getattr(mx, name), getattr(model, "cast_predicate", lambda _: True)

    def cast(key, value):
        return value.astype(dtype) if keep(key) and mx.issubdtype(value.dtype, mx.floating) else value

    model.update(tree_map_with_path(cast, model.parameters()))
    if isinstance(predicate, str):
        predicate = mixed_quant_predicate_builder(predicate, model, group)
    model, config = quantize_model(model, config, group, bits, mode=mode, quant_predicate=predicate)
    save_model(folder, model)
    save_config(config, folder / "config.json")
    return config


# ---------------------------------------------------------------- packed form

PARTS = [f"{p}_proj.{c}" for p in ("gate", "up", "down") for c in ("weight", "scales", "biases")]


def pack_resident(folder, tensors, config, manifest_config, order=None):
    """model_weights.bin and .json: every tensor but the routed experts, each at a multiple of 64, by name or in the order."""
    quantization = config["quantization"]
    manifest = {"model": "random", "num_tensors": 0, "tensors": {}, "config": manifest_config}
    offset = 0
    with open(folder / "model_weights.bin", "wb") as f:
        for name in order or sorted(tensors):
            if ".switch_mlp." in name or name.startswith("vision_tower"):
                continue
            raw = tensors[name]
            if name.endswith(".linear_attn.A_log") and raw.dtype == "BF16":
                raw = raw_of(float_of(raw), "F32")
            f.write(b"\0" * (-offset % 64))
            offset += -offset % 64
            entry = {"offset": offset, "size": len(raw.data), "shape": raw.shape, "dtype": raw.dtype}
            if raw.dtype == "U32":
                entry["bits"] = quantization.get(name.removesuffix(".weight"), quantization)["bits"]
            manifest["tensors"][name.removeprefix("language_model.")] = entry
            f.write(raw.data)
            offset += len(raw.data)
    manifest["num_tensors"] = len(manifest["tensors"])
    write_json(folder / "model_weights.json", manifest)


def pack_experts(folder, tensors, layers, n_experts, prefix="language_model.model"):
    folder.mkdir()
    for layer in layers:
        parts = [tensors[f"{prefix}.layers.{layer}.mlp.switch_mlp.{p}"] for p in PARTS]
        with open(folder / f"layer_{layer:02d}.bin", "wb") as f:
            for e in range(n_experts):
                for raw in parts:
                    n = len(raw.data) // n_experts
                    f.write(raw.data[e * n : (e + 1) * n])


def write_layout(folder, tensors, layers, n_experts, n_layers):
    """layout.json as the reference's converter leaves it for a model that begins with dense layers."""
    offset, components = 0, []
    for part in PARTS:
        raw = tensors[f"model.layers.{layers[0]}.mlp.switch_mlp.{part}"]
        n = len(raw.data) // n_experts
        components.append({"name": part, "offset": offset, "size": n, "dtype": raw.dtype, "shape": raw.shape[1:]})
        offset += n
    layout = {"expert_size": offset, "num_layers": n_layers, "num_experts": n_experts, "components": components}
    write_json(folder / "layout.json", layout | {"moe_layers": list(layers)})


def requantise_2bit(tensors):
    """The routed experts once more at 2 bits, as the reference's tool makes them from 4-bit ones: scale and bias from the
    group's extremes, codes chosen before scale and bias are truncated to bfloat16."""
    out = dict(tensors)
    for name, raw in tensors.items():
        if ".switch_mlp." not in name or not name.endswith(".weight"):
            continue
        base = name.removesuffix(".weight")
        scales, biases = float_of(tensors[base + ".scales"]).numpy(), float_of(tensors[base + ".biases"]).numpy()
        words = np.frombuffer(raw.data, np.uint32).reshape(raw.shape)
        codes = (words[..., None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
        groups = codes.reshape(*scales.shape, -1).astype(np.float32)
        values = groups * scales[..., None] + biases[..., None]
        low, high = values.min(-1), values.max(-1)
        step = (high - low) / np.float32(3)
        divisor = np.where(step == 0, np.float32(1), step)
        codes = np.clip(np.rint((values - low[..., None]) / divisor[..., None]), 0, 3).astype(np.uint32)
        packed = (codes.reshape(*raw.shape[:-1], -1, 16) << (2 * np.arange(16, dtype=np.uint32))).sum(-1).astype(np.uint32)

        def truncated(x):
            return Raw("BF16", list(x.shape), (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes())

        out[name] = Raw("U32", list(packed.shape), packed.tobytes())
        out[base + ".scales"], out[base + ".biases"] = truncated(step), truncated(low)
    return out
