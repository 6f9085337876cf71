#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The perplexity of a text by llama.cpp, as its own program llama-perplexity finds it, for tools/check_gguf.sh where only
PyPI's llama-cpp-python is at hand: whole windows of -c tokens, of each of which the second half is scored.

Needs llama-cpp-python and numpy. Usage: tools/llama_perplexity.py -m MODEL.gguf -f TEXT [-c 512]
"""
import argparse
import math
from pathlib import Path

import llama_cpp
import numpy as np


def nll_of(logits, token):
    """-log of the token's probability, in double precision."""
    logits = logits.astype(np.float64)
    top = logits.max()
    return math.log(np.exp(logits - top).sum()) + top - logits[token]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", required=True, metavar="MODEL")
    parser.add_argument("-f", required=True, metavar="TEXT")
    parser.add_argument("-c", type=int, default=512, metavar="TOKENS")
    args = parser.parse_args()
    model = llama_cpp.Llama(args.m, n_ctx=args.c, n_batch=args.c, n_ubatch=args.c, n_gpu_layers=0, logits_all=True, verbose=False)
    tokens = model.tokenize(Path(args.f).read_bytes(), add_bos=True, special=False)
    begin = model.tokenize(b"", add_bos=True)  # empty where the vocabulary asks for none
    total, n_scored, first = 0.0, 0, args.c // 2
    for at in range(0, len(tokens) - args.c + 1, args.c):
        window = begin + tokens[at + len(begin) : at + args.c]
        model.reset()
        model.eval(window)
        for i in range(first, args.c - 1):
            total += nll_of(model.scores[i], window[i + 1])
            n_scored += 1
    print(f"Final estimate: PPL = {math.exp(total / n_scored):.4f} over {n_scored} tokens")


if __name__ == "__main__":
    main()
