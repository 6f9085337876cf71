#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the files that make_gguf.py writes against llama.cpp: a small model of each family in float32, whose logits by llama.cpp
must be those that transformers has of the same weights. So the goldens of make_gguf_goldens.py are files as llama.cpp's.

Needs torch, transformers, gguf, numpy and llama-cpp-python. Usage: tools/check_llama_logits.py [CASE ...]
"""
import argparse
import copy
import struct
import sys
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np

import goldens_deepseek_v4 as deepseek_v4
import goldens_grouped as grouped
import make_gguf_goldens as goldens

TOLERANCE = 2e-4  # of a position's largest logit: float32 of another order
INDEX = {"index_topk": 9, "index_n_heads": 64, "index_head_dim": 128}  # sizes that llama.cpp's kernels take
AS_SCOUT = {"attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1}  # which no key says
# Cases of other sizes than the goldens'; None: what llama.cpp does not know
OTHERS = {
    "gguf_deepseek_v4_q8_0": deepseek_v4.shape(
        64, 4, 64, 131, (32, 2, 16, 16), (8, 2, 32), num_hidden_layers=4, compress_ratios=[0, 4, 128, 4], num_hash_layers=2,
        sliding_window=13, index_n_heads=64, index_head_dim=128, index_topk=5),
    "gguf_deepseek_v32_q8_0": grouped.latent(64, 3, 4, 32, 32, 16, 16, 16, 64, 32, 8, 2, 4, 2, 132, rope_theta=10000.0, rope_scaling=None, **INDEX),
    "gguf_glm_dsa_index_f16": grouped.latent(64, 3, 4, 32, 32, 16, 16, 16, 64, 32, 8, 2, 1, 1, 132, rope_theta=1000000.0, rms_norm_eps=1e-5, **INDEX),
    "gguf_glm_dsa_f16": None,  # the same
    "gguf_llama4_q8_0": goldens.CASES["gguf_llama4_q8_0"]["config"] | AS_SCOUT,
    "gguf_llama4_dense_layers_f16": goldens.CASES["gguf_llama4_dense_layers_f16"]["config"] | AS_SCOUT,
    "gguf_gpt_oss_mxfp4": grouped.shape(64, 2, 8, 2, 16, 136, **grouped.oss(8, 4, 96, 11, truncate=True)),  # it always rounds the ramp
    "gguf_v2_lite_q8_0": None,  # of 27 layers alone
    "gguf_v2_groups_f32": goldens.deepseek.shape(  # it takes groups by their two best, the published model by the best
        60, 2, 5, 24, 20, 10, 8, 14, 72, 12, 20, 4, None, None, 132, n_shared_experts=2, **goldens.deepseek.SOFTMAX),
    "gguf_kimi_linear_groups_f16": None,  # weights that are not normalised
    "gguf_next_old_f16": None,  # a form that its converter no longer writes
    "gguf_v3_old_bf16": None,
    "gguf_with_text": None,  # of the vocabulary
}


def golden_of(path):
    data = path.read_bytes()
    _, n, vocab, layers, hidden, positions = struct.unpack("<6I", data[8:32])
    tokens = struct.unpack(f"<{n}i", data[32 : 32 + 4 * n])
    at = 32 + 4 * n + 4 * positions + 4 * layers * positions * hidden
    return tokens, np.frombuffer(data, np.float32, n * vocab, at).reshape(n, vocab)


@llama_cpp.llama_log_callback
def say_errors(level, text, user):
    if level == 4:
        sys.stderr.write(text.decode(errors="replace"))


def llama_logits(path, tokens, n_vocab):
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        return None
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_ubatch = 256, 128, 128
    settings.n_threads, settings.type_k, settings.type_v, settings.flash_attn_type = 1, 0, 0, 0
    context = llama_cpp.llama_init_from_model(model, settings)
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
        batch.seq_id[i][0] = 0
    assert llama_cpp.llama_decode(context, batch) == 0
    rows = [llama_cpp.llama_get_logits_ith(context, i) for i in range(len(tokens))]
    out = np.stack([np.ctypeslib.as_array(row, (n_vocab,)).copy() for row in rows])
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return out


def check(name, folder):
    case = copy.deepcopy(goldens.CASES[name])
    case.update(kind=goldens.Q.F32, config=OTHERS.get(name) or case["config"])
    case.pop("others", None)
    goldens.CASES[name] = case
    goldens.make_case(name, folder)
    tokens, wanted = golden_of(folder / name / "golden.bin")
    got = llama_logits(folder / name / "model.gguf", tokens, wanted.shape[1])
    if got is None:
        print(f"{name}: llama.cpp does not open it")
        return False
    worst = float((np.abs(got - wanted).max(1) / np.abs(wanted).max(1)).max())
    print(f"{name}: {worst:.2g} of the largest logit", flush=True)
    return worst < TOLERANCE


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    goldens.torch.set_num_threads(1)
    goldens.transformers.logging.set_verbosity_error()
    names = args.cases or [n for n in goldens.CASES if OTHERS.get(n, ()) is not None]

    llama_cpp.llama_log_set(say_errors, None)
    llama_cpp.llama_backend_init()
    with tempfile.TemporaryDirectory() as folder:
        failed = [name for name in names if not check(name, Path(folder))]
    if failed:
        raise SystemExit(f"check_llama_logits: they differ: {' '.join(failed)}")


if __name__ == "__main__":
    main()
