#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/text/data/sampler_dry_xtc.json: probabilities after penalties, DRY, truncation and XTC, in float64.

  make_sampler_goldens.py tests/text/data/gpt2/tokenizer.json tests/text/data/sampler_dry_xtc.json

Each step is written from its definition, without regard to speed. DRY: text-generation-webui #5677 (the penalty), and
llama.cpp #9702 (breakers are strings, found in the text whatever its tokens; a token with one in its text is never
penalised). XTC: text-generation-webui #6335. Needs numpy.
"""
import json
import random
import sys

import numpy as np

N_VOCAB = 900
BREAKERS = [["\n", ":", "\"", "*"], ["he"], ["e\n", "\n\n"], ["the he", " h"], [], ["\n"], ["abc", "ca"]]


def byte_of():
    """The bytes that the characters of a byte-level vocabulary stand for."""
    kept = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [b for b in range(256) if b not in kept]
    return {chr(b): b for b in kept} | {chr(256 + i): b for i, b in enumerate(others)}


def base_logits(case):
    """As the test computes them: distinct, and higher for the tokens that the sequence is made of."""
    ids = np.arange(N_VOCAB)
    logits = ((ids * 7919 + case["salt"] * 104729) % 1009) / 404.0 - 1.25
    logits[case["alphabet"]] += 1.5
    return logits.astype(np.float32).astype(np.float64)


def dry_penalties(case, pieces):
    """token -> penalty, by comparing every earlier place with the end, token by token."""
    o, sequence = case["options"], case["prompt"] + case["answer"]
    text, owner = b"", []
    for at, token in enumerate(sequence):
        text += pieces[token]
        owner += [at] * len(pieces[token])
    breakers = [b.encode() for b in o["dry_breakers"]]
    last_break = -1  # the token in which the last breaker ends
    for breaker in breakers:
        at = text.rfind(breaker)
        if at >= 0:
            last_break = max(last_break, owner[at + len(breaker) - 1])
    first = max(0, len(sequence) - o["dry_n_tokens"])
    penalties = {}
    for place in range(first + 1, len(sequence)):
        n = 0
        while place - 1 - n >= first and len(sequence) - 1 - n > last_break \
                and sequence[place - 1 - n] == sequence[len(sequence) - 1 - n]:
            n += 1
        token = sequence[place]
        if n >= o["dry_allowed_length"] and not any(b in pieces[token] for b in breakers):
            exponent = n - o["dry_allowed_length"]
            size = np.exp(min(np.log(o["dry_multiplier"]) + exponent * np.log(o["dry_base"]), np.log(1e30)))
            penalties[token] = max(penalties.get(token, 0.0), float(size))
    return penalties


def softmax(scores):
    e = np.exp(scores - scores.max())
    return e / e.sum()


def penalise(case, logits, pieces):
    o, seen = case["options"], sorted(set(case["prompt"] + case["answer"]))
    for token in seen:
        logits[token] *= o["repetition_penalty"] if logits[token] < 0 else 1.0 / o["repetition_penalty"]
    for token in set(case["answer"]):
        logits[token] -= o["presence_penalty"] + o["frequency_penalty"] * case["answer"].count(token)
    if o["dry_multiplier"] > 0:
        for token, size in dry_penalties(case, pieces).items():
            logits[token] -= size


def truncate(o, scores):
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] >= scores[order[o["top_k"] - 1]]]  # transformers: of equal ones all stay
    p = softmax(scores[order])
    order = order[np.cumsum(p) - p < o["top_p"]]
    p = softmax(scores[order])
    order = order[p >= o["min_p"] * p[0]]
    if o["xtc_probability"] == 1.0:
        p = softmax(scores[order])
        n_viable = int((p >= o["xtc_threshold"]).sum())
        order = order[max(0, n_viable - 1):]
    return order, softmax(scores[order])


def make_case(n, rng, ids, pieces):
    alphabet = rng.sample(ids, rng.choice([3, 5, 8]))
    unit = [rng.choice(alphabet) for _ in range(rng.choice([2, 4, 9]))]
    sequence = []
    while len(sequence) < rng.choice([6, 30, 80]):
        sequence += unit if rng.random() < 0.7 else [rng.choice(alphabet)]
    sequence += unit[:rng.randrange(1, len(unit))]
    split = rng.randrange(len(sequence))
    breakers = BREAKERS[n % len(BREAKERS)] if n % 3 else []
    case = {"salt": n, "alphabet": alphabet, "prompt": sequence[:split], "answer": sequence[split:], "options": {
        "temperature": rng.choice([1.0, 0.5, 2.0]), "top_k": rng.choice([8, 12, 20]),
        "top_p": rng.choice([1.0, 0.9375, 0.75]), "min_p": rng.choice([0.0, 0.0625]),
        "repetition_penalty": rng.choice([1.0, 1.25]), "presence_penalty": rng.choice([0.0, 0.5]),
        "frequency_penalty": rng.choice([0.0, 0.25]), "dry_multiplier": rng.choice([0.5, 1.0, 0.125]) if n % 5 else 0.0,
        "dry_base": rng.choice([1.75, 1.0, 1.125]), "dry_allowed_length": rng.choice([1, 2, 3]),
        "dry_n_tokens": rng.choice([4096, 16, 5]), "dry_breakers": breakers,
        "xtc_probability": rng.choice([0.0, 1.0]), "xtc_threshold": rng.choice([0.125, 0.0625, 0.25])}}
    logits = base_logits(case)
    model = np.log(softmax(logits))
    top = np.argsort(-logits, kind="stable")[:3]
    case["logprobs"] = [[int(i), float(f"{model[i]:.7g}")] for i in top]
    penalise(case, logits, pieces)
    order, p = truncate(case["options"], logits / case["options"]["temperature"])
    case["probabilities"] = [[int(i), float(f"{q:.7g}")] for i, q in zip(order, p)]
    return case


def main():
    vocab = json.load(open(sys.argv[1], encoding="utf-8"))["model"]["vocab"]
    to_byte, by_text = byte_of(), {}
    pieces = [b""] * N_VOCAB
    for token, i in vocab.items():
        pieces[i] = bytes(to_byte[c] for c in token)
        by_text[pieces[i]] = i
    words = [b"a", b"b", b"c", b"h", b"e", b" ", b"\n", b":", b"t", b" the", b"he", b" h", b"."]
    ids = [by_text[w] for w in words if w in by_text]
    rng = random.Random(12)
    cases = [make_case(n, rng, ids, pieces) for n in range(140)]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    open(sys.argv[2], "w", encoding="utf-8").write(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
