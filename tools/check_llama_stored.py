#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds our logits of quantised GGUF files against llama.cpp's of the same files: the cases of make_gguf_goldens.py that llama.cpp
knows, of the types that they have, and one case of every type. Of each file these have to hold:

exact    ours are those of transformers on the weights as PyPI's gguf dequantises them, within 1e-4.
float    ours are llama.cpp's on a float32 copy of the weights as its own code dequantises them, within 2e-4. With floats it rounds nothing.
stored   ours are llama.cpp's on the file itself, within `bound`. There it rounds what a matrix is multiplied with: to 8 bits in blocks
         of 32 or 256, or to float16 or bfloat16, as the matrix's type asks. What that alone gives is measured: transformers with the
         inputs of these products rounded so, against itself without. Two sums of other orders turn some roundings, after which errors
         are of one size, but not the same; so the bound is 1.5 times that.
again    llama.cpp's are those of transformers so rounded, within 1e-5, wherever no rounding turned. This says that the bound is of the
         right thing, and finds what is far below it. Left out are latent attention, which multiplies in another order, float16, which turns
         at once, and Q4_1 and Q5_1, where sums of blocks are rounded as well.
wrong    when llama.cpp reads a copy in which, in all matrices of a type, the halves of each byte of codes are in each other's place, or
         the scales of neighbouring blocks, its logits are beyond the bound. The least of these is shown.

All are max|difference| / max|logit| of a position: exact and float the largest of all positions, again the least, the others the
median, for a rounding that turns a choice of experts changes a position by any amount. `largest`, `cosine` and `top-1` are ours beside
llama.cpp's of the file: the largest of all positions, the least cosine, and where the likeliest token is the same.

Needs torch, transformers, gguf, numpy, cffi and llama-cpp-python. Usage:
tools/check_llama_stored.py [--library FILE] [--tier NAME] [CASE[@TYPE] ...]
"""
import argparse
import copy
import ctypes
import functools
import runpy
import shutil
import tempfile
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import torch
from cffi import FFI
from torch.overrides import TorchFunctionMode

import gguf_forms as forms
import make_format_goldens
import make_gguf_goldens as goldens
from check_llama_logits import OTHERS, TOLERANCE, golden_of, llama_logits, say_errors
from make_gguf import Q, write_gguf

ROOT = Path(__file__).resolve().parent.parent
MAX_EXACT, MAX_AGAIN, MAX_RATIO = 1e-4, 1e-5, 1.5
OF_ALL_TYPES = "gguf_35_q4_k"  # rows of 256 values
TYPES = [Q.F16, Q.BF16, *(kind for _, kind, *_ in make_format_goldens.TYPES if kind != Q.NVFP4)]  # which has a case of its own
WHOLE_HEADS = {"linear_key_head_dim": 32, "linear_value_head_dim": 32}
CHANGES = {
    # so that llama.cpp's order of value heads leaves the same values together in blocks of 32
    "gguf_35_q8_0": WHOLE_HEADS, "gguf_qwen35_q8_0": WHOLE_HEADS,
    # so that YaRN's ramp ends at 2 pairs, whether that is rounded, as llama.cpp does, or not, as is published: (16 / 2 pi)^4
    "gguf_gpt_oss_mxfp4": {"rope_theta": 42.0495},
    # of families whose cases are floats, in sizes of whole blocks
    "gguf_v2_groups_f32@Q8_0": {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 32,
                                "qk_nope_head_dim": 32, "v_head_dim": 32, "intermediate_size": 96, "moe_intermediate_size": 32},
    "gguf_qwen2_moe_f16@Q8_0": {"hidden_size": 64, "head_dim": 16, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64},
    "gguf_llama_bf16@Q8_0": {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 16, "intermediate_size": 96},
    "gguf_hunyuan_moe_f16@Q8_0": {"hidden_size": 64, "intermediate_size": 32},
    "gguf_qwen3_vl_moe_f16@Q8_0": {"hidden_size": 64, "moe_intermediate_size": 32},
    "gguf_glm_dsa_index_f16@Q8_0": {"qk_nope_head_dim": 32, "v_head_dim": 32},
    "gguf_qwen3_f16@Q8_0": {"intermediate_size": 96},
}

# ---------------------------------------------------------------- the library

OURS = FFI()
OURS.cdef(runpy.run_path(str(ROOT / "python" / "cdef.py"))["declarations"](ROOT / "include"))


def call(function, *args):
    error = OURS.new("mf_error *")
    if function(*args, error) != 0:
        raise SystemExit(f"check_llama_stored: {OURS.string(error.message).decode()}")


def our_logits(lib, tier, path, tokens, n_vocab):
    device, tier = OURS.new("char[]", b"cpu"), OURS.new("char[]", tier.encode())
    options = OURS.new("mf_engine_options *")
    lib.mf_engine_options_init(options, OURS.sizeof("mf_engine_options"))
    options.device, options.cpu_tier = device, tier
    out = np.zeros((len(tokens), n_vocab), np.float32)

    @OURS.callback("int(void *, size_t, const float *)")
    def keep(user, at, row):
        out[at] = np.frombuffer(OURS.buffer(row, 4 * n_vocab), np.float32)
        return 0

    engine, session = OURS.new("mf_engine **"), OURS.new("mf_session **")
    call(lib.mf_engine_open, str(path).encode(), options, engine)
    call(lib.mf_session_create, engine[0], session)
    call(lib.mf_session_eval_each, session[0], list(tokens), len(tokens), keep, OURS.NULL)
    lib.mf_session_free(session)
    lib.mf_engine_close(engine)
    return out


# ---------------------------------------------------------------- llama.cpp's own forms

GGML = llama_cpp.llama_cpp._lib  # and what it is linked with
TO_FLOAT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class Traits(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("n_values", ctypes.c_int64), ("interleaved", ctypes.c_int64), ("n_bytes", ctypes.c_size_t),
                ("is_quantized", ctypes.c_bool), ("to_float", ctypes.c_void_p)]


GGML.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
GGML.ggml_quantize_chunk.restype = ctypes.c_size_t
GGML.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]


def their_weights(t, factor):
    """As goldens.weights_of, by llama.cpp."""
    if t.tensor_type == Q.F32:
        return goldens.weights_of(t, factor)
    traits = GGML.ggml_get_type_traits(int(t.tensor_type)).contents
    data, out = np.ascontiguousarray(t.data), np.empty(goldens.shape_of(t), np.float32)
    TO_FLOAT(traits.to_float)(data.ctypes.data, out.ctypes.data, out.size)
    return out if factor is None else out * factor.reshape(-1, *[1] * (out.ndim - 1))


OUR_QUANTISE = forms.quantise


def quantise(t, kind):
    """As forms.quantise; what nothing in Python writes is llama.cpp's to write, all columns of one weight."""
    try:
        return OUR_QUANTISE(t, kind)
    except NotImplementedError:
        n_cols = t.shape[-1]
        n_values, n_bytes = gguf.GGML_QUANT_SIZES[kind]
        x, ones = np.ascontiguousarray(t, np.float32), np.ones(n_cols, np.float32)
        out = np.empty((*t.shape[:-1], n_cols // n_values * n_bytes), np.uint8)
        GGML.ggml_quantize_chunk(int(kind), x.ctypes.data, out.ctypes.data, 0, x.size // n_cols, n_cols, ones.ctypes.data)
        return out


# ---------------------------------------------------------------- what rounding alone gives


def rounded(x, kind):
    """What llama.cpp multiplies a matrix of this type with."""
    if kind in (Q.F16, Q.BF16):
        return x.to({Q.F16: torch.float16, Q.BF16: torch.bfloat16}[kind]).float()
    is_wide = gguf.GGML_QUANT_SIZES[kind][0] == 256
    blocks = x.reshape(-1, 256 if is_wide else 32)
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    codes = torch.round(blocks / torch.where(scale == 0, 1, scale))
    return (codes * (scale if is_wide else scale.half().float())).reshape(x.shape)


class Rounding(TorchFunctionMode):
    """Products with weights that have types, by where the weights lie: each input is rounded as the types of its rows ask."""

    PRODUCTS = (torch.nn.functional.linear, torch.bmm, torch.matmul, torch.Tensor.matmul)

    def __init__(self, types):
        super().__init__()
        self.types, self.left = types, set(types)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        where = args[1].untyped_storage().data_ptr() if func in self.PRODUCTS else None
        if where not in self.types:
            return func(*args, **(kwargs or {}))
        self.left.discard(where)
        rows = self.types[where]
        kinds = rows.unique().tolist()
        outs = [func(rounded(args[0], Q(kind)), *args[1:], **(kwargs or {})) for kind in kinds]
        assert len(kinds) == 1 or func is torch.nn.functional.linear and len(rows) == len(args[1])
        return outs[0] if len(outs) == 1 else sum(torch.where(rows == kind, out, 0) for kind, out in zip(kinds, outs))


def type_of_all(t, factor):
    """Each value the number of its type."""
    return np.full(goldens.shape_of(t), int(t.tensor_type), np.float32)


def rounded_logits(case, path, c, tokens):
    module = goldens.module_of(case, goldens.module_state(path, c))
    with np.errstate(all="ignore"):  # some are taken the logarithm of
        kinds = goldens.module_state(path, c, type_of_all)
    types = {}
    for name, p in module.named_parameters():
        rows = kinds[name].reshape(-1, *kinds[name].shape[-2:])[0] if name in kinds and p.dim() > 1 else None
        if rows is not None and "conv1d" not in name and bool((rows[:, 0] > 0).all()):
            types[p.untyped_storage().data_ptr()] = rows[:, 0].int()
    with torch.no_grad(), Rounding(types) as mode:
        out = module(torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    mode.left.discard(module.get_input_embeddings().weight.untyped_storage().data_ptr())
    assert not mode.left, "weights that nothing was multiplied with"
    return out


# ---------------------------------------------------------------- what must be found

SCALES = {kind: [at + i for at in halves for i in (0, 1)] for _, kind, _, _, _, halves in make_format_goldens.TYPES}
SCALES |= {Q.MXFP4: [0], Q.NVFP4: [0, 1, 2, 3], Q.IQ1_M: list(range(48, 56)), Q.F16: [0, 1], Q.BF16: [0, 1]}


def swap_halves(blocks, scales):
    codes = np.setdiff1d(np.arange(blocks.shape[1]), scales)
    blocks[:, codes] = blocks[:, codes] >> 4 | blocks[:, codes] << 4


def swap_scales(blocks, scales):
    even = len(blocks) // 2 * 2
    blocks[:even, scales] = blocks[:even, scales].reshape(-1, 2, len(scales))[:, ::-1].reshape(even, -1)


def mistakes(path, out):
    """Copies of the file with one thing wrong in all matrices of a type, one after the other."""
    kinds = {t.tensor_type for t in gguf.GGUFReader(path).tensors} & set(SCALES)
    for kind in sorted(kinds):
        for spoil in (swap_scales, swap_halves) if kind not in (Q.F16, Q.BF16) else (swap_scales,):
            shutil.copy(path, out)
            for t in gguf.GGUFReader(out, "r+").tensors:
                if t.tensor_type == kind:
                    spoil(t.data.view(np.uint8).reshape(-1, gguf.GGML_QUANT_SIZES[kind][1]), SCALES[kind])
            yield f"{kind.name}, {spoil.__name__}"


# ---------------------------------------------------------------- the checks


def off(got, wanted):
    """Of each position."""
    return np.abs(got - wanted).max(1) / np.abs(wanted).max(1)


def least_cosine(a, b):
    return float(((a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))).min())


def case_of(given):
    name, _, kind = given.partition("@")
    case = copy.deepcopy(goldens.CASES[name])
    case["config"] = (OTHERS.get(name) or case["config"]) | CHANGES.get(given, {})
    if kind:
        case |= {"kind": Q[kind], "others": ()}
    return {"form": "hf", "dtype": "F32", **case}


def check(evaluate, given, folder):
    """evaluate: our logits of a path, tokens and a vocabulary's size."""
    case = goldens.CASES[given] = case_of(given)
    goldens.make_case(given, folder, says=False)
    c, path, copied = goldens.config_of(case), folder / given / "model.gguf", folder / "copy.gguf"
    tokens, exact = golden_of(folder / given / "golden.bin")
    n_vocab = exact.shape[1]
    ours, theirs = evaluate(path, tokens, n_vocab), llama_logits(path, tokens, n_vocab)
    if theirs is None:
        print(f"{given}: llama.cpp does not open it", flush=True)
        return False
    write_gguf(copied, c, goldens.converted(case, goldens.module_state(path, c, their_weights), c), Q.F32)
    of_floats = llama_logits(copied, tokens, n_vocab)
    alike = rounded_logits(case, path, c, list(tokens))
    types = {t.tensor_type.name for t in gguf.GGUFReader(path).tensors} - {"F32", "I32"}
    bound = MAX_RATIO * max(float(np.median(off(alike, exact))), TOLERANCE)
    wrong = {what: float(np.median(off(llama_logits(copied, tokens, n_vocab), ours))) for what in mistakes(path, copied)}
    found = {"exact": off(ours, exact).max(), "float": off(of_floats, ours).max(), "stored": np.median(off(theirs, ours)),
             "again": off(theirs, alike).min()}
    is_alike = not types & {"F16", "Q4_1", "Q5_1"} and "kv_lora_rank" not in c
    limits = {"exact": MAX_EXACT, "float": TOLERANCE, "stored": bound, "again": MAX_AGAIN if is_alike else np.inf}
    missed = [what for what in limits if not found[what] <= limits[what]] + [what for what, value in wrong.items() if not value > bound]
    print(f"{given:28} {' '.join(sorted(types)) or 'F32':20} {found['exact']:.1e} {found['float']:.1e} {found['stored']:.1e} {bound:.1e} "
          f"{found['again']:.1e} {min(wrong.values(), default=np.nan):.1e} {off(theirs, ours).max():.1e} {least_cosine(theirs, ours):8.5f} "
          f"{(theirs.argmax(1) == ours.argmax(1)).mean():6.1%}{' FAILED: ' * bool(missed)}{'; '.join(missed)}", flush=True)
    return not missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", default=str(ROOT / "build" / "libmoeflux.so"))
    parser.add_argument("--tier", default="auto", help="of our kernels: avx2, scalar, ...")
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    torch.set_num_threads(1)
    goldens.transformers.logging.set_verbosity_error()
    forms.quantise = quantise
    known = [name for name in goldens.CASES if OTHERS.get(name, ()) is not None]
    names = args.cases or [*known, *(n for n in CHANGES if "@" in n), *(f"{OF_ALL_TYPES}@{kind.name}" for kind in TYPES)]
    llama_cpp.llama_log_set(say_errors, None)
    llama_cpp.llama_backend_init()
    evaluate = functools.partial(our_logits, OURS.dlopen(args.library), args.tier)
    print(f"{'case':28} {'types':20} exact   float   stored  bound   again   wrong   largest   cosine  top-1")
    with tempfile.TemporaryDirectory() as folder:
        failed = [name for name in names if not check(evaluate, name, Path(folder))]
    if failed:
        raise SystemExit(f"check_llama_stored: they differ: {' '.join(failed)}")


if __name__ == "__main__":
    main()
