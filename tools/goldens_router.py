# SPDX-License-Identifier: MIT
"""router.bin for make_goldens.py: 10,000 random rows through the routers of transformers' DeepSeek models.

Logits and biases are not stored: both sides make them with the same integer generator. A row whose choice hangs on a distance
that float32 may round either way is left out and listed."""
import struct

import numpy as np
import torch
import transformers
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2TopkRouter
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter

from goldens_run import margin_of

NOAUX, GREEDY, BY_GROUP = 0, 1, 2
MIN_MARGIN = 1e-6
WEIGHTS_EVERY = 4  # of these rows the weights are stored as well

# kind, experts, groups, groups kept, experts taken, renormalised, factor, rows
SHAPES = [
    (NOAUX, 256, 8, 4, 8, True, 2.5, 2000),
    (NOAUX, 384, 1, 1, 8, True, 2.827, 1500),
    (NOAUX, 12, 4, 2, 3, True, 2.5, 1000),
    (NOAUX, 20, 5, 3, 5, False, 1.0, 1000),
    (NOAUX, 64, 16, 1, 4, True, 1.5, 500),
    (GREEDY, 64, 1, 1, 6, False, 1.0, 1500),
    (BY_GROUP, 160, 8, 3, 6, False, 16.0, 2000),
    (BY_GROUP, 20, 5, 2, 4, False, 1.0, 500),
]


def integers(key, count):
    """24 random bits each: the upper ones of splitmix64 at key, key + step, ..."""
    with np.errstate(over="ignore"):
        z = np.uint64(key) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.int64) - (1 << 23)


def inputs(key, rows, experts):
    """Logits within 0.5, 2 or 8, row by row in turn, and biases within 0.125."""
    span = np.exp2(2.0 * (np.arange(rows) % 3) - 1.0)
    logits = integers(key, rows * experts).reshape(rows, experts) * (span[:, None] / (1 << 23))
    bias = integers(key + (1 << 32), experts) / (1 << 26)
    return logits.astype(np.float32), bias.astype(np.float32)


def router(kind, experts, groups, kept, k, renormalised, factor, bias):
    """transformers' own, with the identity for its matrix: what goes in are the logits."""
    same = dict(hidden_size=experts, n_routed_experts=experts, n_group=groups, topk_group=kept, num_experts_per_tok=k)
    same |= dict(routed_scaling_factor=factor, norm_topk_prob=renormalised, num_attention_heads=1)
    if kind == NOAUX:
        config = transformers.DeepseekV3Config(**same)
        module = DeepseekV3TopkRouter(config)
        module.e_score_correction_bias.copy_(torch.from_numpy(bias))
    else:
        config = transformers.DeepseekV2Config(**same, topk_method="greedy" if kind == GREEDY else "group_limited_greedy")
        module = DeepseekV2TopkRouter(config)
    module.weight.data = torch.eye(experts)
    return config, module


def shape_bytes(number, row):
    kind, experts, groups, kept, k, renormalised, factor, n_rows = row
    key = (number + 1) << 40
    n_drawn = n_rows + n_rows // 8  # more than enough for those left out
    logits, bias = inputs(key, n_drawn, experts)
    config, module = router(kind, experts, groups, kept, k, renormalised, factor, bias)
    with torch.no_grad():
        out = module(torch.from_numpy(logits))
    assert torch.equal(out[0], torch.from_numpy(logits))
    skipped, ids, weights = [], [], []
    for r in range(n_drawn):
        if len(ids) == n_rows:
            break
        if margin_of(config, module, out, slice(r, r + 1)) < MIN_MARGIN:
            skipped.append(r)
            continue
        order = torch.argsort(out[2][r])
        ids.append(out[2][r][order].numpy().astype("<u2").tobytes())
        if (len(ids) - 1) % WEIGHTS_EVERY == 0:
            weights.append(out[1][r][order].numpy().astype("<f4").tobytes())
    assert len(ids) == n_rows
    print(f"router {row}: {len(skipped)} rows left out")
    head = struct.pack("<6IfIIIQ", kind, experts, groups, kept, k, renormalised, factor, n_rows, WEIGHTS_EVERY, len(skipped), key)
    return head + struct.pack(f"<{len(skipped)}I", *skipped) + b"".join(ids) + b"".join(weights)


def make_router(out):
    body = b"".join(shape_bytes(i, row) for i, row in enumerate(SHAPES))
    (out / "router.bin").write_bytes(b"MFROUTER" + struct.pack("<II", 1, len(SHAPES)) + body)
