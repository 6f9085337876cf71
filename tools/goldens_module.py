# SPDX-License-Identifier: MIT
"""What the modules with cases for make_goldens.py share: random weights by name, weights put into a module, and wrong models
that are evaluated beside the right one, each of which must differ by far more than the tests allow."""
import math
import zlib

import numpy as np
import torch

from goldens_run import evaluate, run

MIN_DIFFERENCE = 5e-3  # of a mutant's logits; the tests allow 1e-4
DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def rng_of(seed, name):
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def normal_of(seed, name, size):
    return rng_of(seed, name).standard_normal(size, dtype=np.float32)


def gain_of(name, gains, otherwise=None):
    """Of the first end that fits; else more for what experts and MLPs give, unless `otherwise` says what."""
    fallback = otherwise if otherwise is not None else 2.5 if "down_proj" in name else 1.0
    return next((g for end, g in gains.items() if name.endswith(end)), fallback)


def matrix_of(normal, gain, n_inputs=None):
    """Scaled so that the gain is that of a product with it."""
    return normal * (gain / math.sqrt(n_inputs or normal.shape[-1]))


def tensor_of(value):
    return torch.from_numpy(np.asarray(value, np.float32))


def random_state(module, draw, leave_out=()):
    return {n: draw(n, tuple(t.shape)) for n, t in module.state_dict().items() if n not in leave_out}


def unstored(case):
    """What a checkpoint with tied embeddings does not have."""
    return {"lm_head.weight"} if case["config"].get("tie_word_embeddings") else set()


def eager(config):
    config._attn_implementation = config._experts_implementation = "eager"
    return config


def make(kind, config):
    torch.manual_seed(0)
    return kind(config).eval().float()


def loaded(case, module, state):
    """The module with these weights, all of them and no others."""
    missing, surplus = module.load_state_dict(state, strict=False)
    assert set(missing) <= unstored(case) and not surplus, (missing, surplus)
    module.tie_weights()
    return module


def with_weights(state, suffixes, change):
    return {n: change(t) if n.endswith(suffixes) else t for n, t in state.items()}


def add_differences(note, logits, module_of, mutants, case, state, tokens):
    """Notes of every mutant (name, changes of the config, weights) the largest relative difference of a row's logits."""
    note["differences"] = {}
    for name, changes, weights in mutants(case, state):
        _, wrong, _ = run(module_of(case, weights, **changes), tokens)
        difference = float(((wrong - logits).abs().amax(-1) / logits.abs().amax(-1)).max())
        note["differences"][name] = float(f"{difference:.2g}")
        assert difference > MIN_DIFFERENCE, (name, difference)


def evaluate_with_mutants(module_of, mutants, case, state, tokens):
    """The golden values, and what is noted of them."""
    hidden, logits, note = evaluate(module_of(case, state), tokens)
    add_differences(note, logits, module_of, mutants, case, state, tokens)
    return hidden, logits, note
