# SPDX-License-Identifier: MIT
"""What make_goldens.py measures of a transformers module: the residual stream after every layer, the logits, how decisive the
routers and the logits are, and how far float32 is from float64."""
import importlib
import math

import torch

MIN_ROUTER_MARGIN = 1e-3  # between the k-th and the next router logit (DeepSeek: score), every layer and position
MIN_ARGMAX_MARGIN = 2e-3  # between the two largest logits, relative to the largest magnitude
MAX_ROUNDING = 3e-5  # of the float32 golden against the same model in float64, by the tests' own measure


def deepseek_margin(config, gate, out, rows):
    """How far the router is from another choice: the least distance between the last taken and the first left, of groups and of
    experts, in the scores that choose (of a softmax: in its logits, which choose the same)."""
    logits = out[0].detach()[rows]
    noaux = hasattr(gate, "e_score_correction_bias")
    scores = logits.sigmoid() + gate.e_score_correction_bias if noaux else logits
    margin = math.inf
    if config.topk_group and config.topk_group < config.n_group and (noaux or config.topk_method == "group_limited_greedy"):
        grouped = scores.view(len(scores), config.n_group, -1)
        of_group = grouped.topk(2, -1).values.sum(-1) if noaux else grouped.amax(-1)
        top = of_group.topk(config.topk_group + 1, -1)
        margin = float((top.values[:, -2] - top.values[:, -1]).min())
        kept = torch.zeros_like(of_group).scatter_(1, top.indices[:, :-1], 1).bool()
        scores = grouped.masked_fill(~kept[..., None], -math.inf).flatten(1)
    top = scores.topk(config.num_experts_per_tok + 1, -1).values
    return min(margin, float((top[:, -2] - top[:, -1]).min()))


def run(module, tokens, rows=slice(None)):
    """Residual stream after each layer, logits, and the smallest router margin, all at the rows."""
    config, hidden, margins, hooks = module.config, [], [], []
    for layer in module.model.layers:
        hooks.append(layer.register_forward_hook(lambda m, a, out: hidden.append((out[0] if isinstance(out, tuple) else out)[0, rows])))

        def margin(m, a, out):
            if hasattr(config, "kv_lora_rank"):
                margins.append(deepseek_margin(config, m, out, rows))
                return
            top = out[0].topk(config.num_experts_per_tok + 1, dim=-1).values if config.num_experts_per_tok < config.num_experts else None
            margins.append(float((top[..., -2] - top[..., -1]).min()) if top is not None else math.inf)

        if hasattr(layer.mlp, "gate"):
            hooks.append(layer.mlp.gate.register_forward_hook(margin))
    with torch.no_grad():
        logits = module(torch.tensor([tokens]), use_cache=False).logits[0, rows]
    for hook in hooks:
        hook.remove()
    assert len(hidden) == config.num_hidden_layers and margins
    hidden = torch.stack([h.reshape(len(logits), -1) for h in hidden])
    return hidden, logits, min(margins)


class Float64Torch:
    """torch for the modelling code, with float64 wherever it names float32."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float32", "float") else getattr(torch, name)


def rounding(module, tokens, hidden, logits, rows):
    """The largest relative difference of the golden values from the same model in float64. The module is spent afterwards."""
    code, to_float = importlib.import_module(type(module).__module__), torch.Tensor.float
    try:
        torch.set_default_dtype(torch.float64)
        torch.Tensor.float, code.torch = torch.Tensor.double, Float64Torch()
        module.double()
        for part in module.modules():
            if hasattr(part, "inv_freq"):
                part.inv_freq = part.inv_freq.double()
        exact_hidden, exact_logits, _ = run(module, tokens, rows)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.Tensor.float, code.torch = to_float, torch
    assert exact_logits.dtype == torch.float64
    by_layer = (exact_hidden - hidden).abs().amax((1, 2)) / hidden.abs().amax((1, 2))
    by_position = (exact_logits - logits).abs().amax(-1) / logits.abs().amax(-1)
    return max(float(by_layer.max()), float(by_position.max()))


def evaluate(module, tokens, rows=slice(None)):
    """hidden, logits and what is noted of them, at the rows."""
    hidden, logits, margin = run(module, tokens, rows)
    top = logits.topk(2, dim=-1).values
    gap = float(((top[:, 0] - top[:, 1]) / logits.abs().max()).min())
    return hidden, logits, {"router_margin": margin, "argmax_margin": gap, "rounding": rounding(module, tokens, hidden, logits, rows)}


def usable(note):
    margins = note["router_margin"] > MIN_ROUTER_MARGIN and note["argmax_margin"] > MIN_ARGMAX_MARGIN
    return margins and max(note["rounding"], note.get("mlx_lm_difference", 0.0)) < MAX_ROUNDING
