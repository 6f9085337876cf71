# SPDX-License-Identifier: MIT
"""What make_goldens.py measures of a transformers module: the residual stream after every layer, the logits, how decisive the
routers and the logits are, and how far float32 is from float64."""
import importlib
import math

import torch

MIN_ROUTER_MARGIN = 1e-3  # between the k-th and the next router logit (DeepSeek: score), every layer and position
MIN_ARGMAX_MARGIN = 2e-3  # between the two largest logits, relative to the largest magnitude
MAX_ROUNDING = 3e-5  # of the float32 golden against the same model in float64, by the tests' own measure


def margin_of(config, gate, out, rows, mlp=None):
    """How far the router is from another choice: the least distance between the last taken and the first left, of groups and of
    experts, in the scores that choose (of a softmax: in its logits, which choose the same)."""
    if type(gate).__name__ == "DeepseekV4HashRouter":  # tokens choose
        return math.inf
    logits = out[0].detach()[rows]
    correction = getattr(gate, "e_score_correction_bias", getattr(mlp, "e_score_correction_bias", None))
    noaux = correction is not None
    score = getattr(gate, "score_fn", torch.sigmoid)
    scores = score(logits) + correction if noaux else logits
    if hasattr(gate, "moe_statics"):
        scores = gate.moe_statics(logits.softmax(-1))
    margin = math.inf
    if getattr(config, "topk_group", None) and config.topk_group < config.n_group and (noaux or config.topk_method == "group_limited_greedy"):
        grouped = scores.view(len(scores), config.n_group, -1)
        of_group = grouped.topk(2, -1).values.sum(-1) if noaux else grouped.amax(-1)
        top = of_group.topk(config.topk_group + 1, -1)
        margin = float((top.values[:, -2] - top.values[:, -1]).min())
        kept = torch.zeros_like(of_group).scatter_(1, top.indices[:, :-1], 1).bool()
        scores = grouped.masked_fill(~kept[..., None], -math.inf).flatten(1)
    if config.num_experts_per_tok == scores.shape[-1]:
        return margin
    top = scores.topk(config.num_experts_per_tok + 1, -1).values
    return min(margin, float((top[:, -2] - top[:, -1]).min()))


def run(module, tokens, rows=slice(None)):
    """Residual stream after each layer, logits, and the smallest router margin, all at the rows."""
    config, hidden, margins, hooks = module.config.get_text_config(), [], [], []
    for layer in getattr(module.model, "language_model", module.model).layers:
        def residual(m, a, out):
            out = (out[0] if isinstance(out, tuple) else out)[0, rows]
            hidden.append(out.mean(1) if out.dim() == 3 else out)  # of several streams: their mean

        hooks.append(layer.register_forward_hook(residual))

        mlp = getattr(layer, "mlp", getattr(layer, "feed_forward", None))

        def margin(m, a, out, mlp=mlp):
            out = out[1:] if type(m).__name__ == "Llama4Router" else out  # its scores come first
            margins.append(margin_of(config, m, out, rows, mlp))

        gate = getattr(mlp, "gate", getattr(mlp, "router", None))
        if gate is not None:
            hooks.append(gate.register_forward_hook(margin))
    with torch.no_grad():
        logits = module(torch.tensor([tokens]), use_cache=False).logits[0, rows]
    for hook in hooks:
        hook.remove()
    assert len(hidden) == config.num_hidden_layers
    hidden = torch.stack([h.reshape(len(logits), -1) for h in hidden])
    return hidden, logits, min(margins, default=math.inf)


class Float64Torch:
    """torch for the modelling code, with float64 wherever it names float32."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float32", "float") else getattr(torch, name)


def rounding(module, tokens, hidden, logits, rows):
    """The largest relative difference of the golden values from the same model in float64. The module is spent afterwards."""
    text = getattr(module.model, "language_model", module.model)
    code, to_float = importlib.import_module(type(text).__module__), torch.Tensor.float
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
    note = {"router_margin": margin} if margin < math.inf else {}  # of models without experts
    return hidden, logits, {**note, "argmax_margin": gap, "rounding": rounding(module, tokens, hidden, logits, rows)}


def usable(note):
    margins = note.get("router_margin", math.inf) > MIN_ROUTER_MARGIN and note["argmax_margin"] > MIN_ARGMAX_MARGIN
    return margins and max(note["rounding"], note.get("mlx_lm_difference", 0.0)) < MAX_ROUNDING
