#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""For code that is written against transformers: tokens in, tokens out, in NumPy arrays.

    python3 generate.py models/demo "Once upon a time" "The king" --max-new-tokens 32

`CausalLM.generate` takes what `AutoModelForCausalLM.generate` is most often given, and returns one row
for each prompt: the prompt, its answer, and padding. All rows are evaluated together.
"""
from __future__ import annotations

import argparse
from collections.abc import Sequence

import moeflux
import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]


class CausalLM:
    def __init__(self, path: str, n_rows: int, ram_bytes: str) -> None:
        self.model = moeflux.Model(path, n_sessions=n_rows, ram_bytes=ram_bytes)

    def generate(
        self,
        input_ids: Sequence[Sequence[int]],
        *,
        max_new_tokens: int = 20,
        do_sample: bool = False,
        pad_token_id: int = 0,
        **sampling: float,
    ) -> Tokens:
        """temperature, top_k, top_p, repetition_penalty, ... are options as they are."""
        options = moeflux.GenerateOptions(max_tokens=max_new_tokens)
        if not do_sample:
            sampling = {"temperature": 0.0, "repetition_penalty": 1.0}
        options.update(sampling)  # type: ignore[typeddict-item]
        replies = self.model.generate_batch(input_ids, **options)
        rows = [[*prompt, *reply.tokens] for prompt, reply in zip(input_ids, replies)]
        out = np.full((len(rows), max(map(len, rows))), pad_token_id, dtype=np.int32)
        for line, row in zip(out, rows):
            line[: len(row)] = row
        return out

    def logits(self, input_ids: Sequence[int]) -> NDArray[np.float32]:
        """Of the token behind these: a copy, since the session that has them is closed here."""
        with self.model.session() as session:
            session.eval(input_ids)
            logits = session.logits
            assert logits is not None
            copy: NDArray[np.float32] = logits.copy()
            return copy


def main() -> None:
    parser = argparse.ArgumentParser(description="tokens in, tokens out")
    parser.add_argument("model")
    parser.add_argument("prompt", nargs="+")
    parser.add_argument("--max-new-tokens", type=int, default=32)
    parser.add_argument("--ram", default="1G")
    args = parser.parse_args()

    lm = CausalLM(args.model, len(args.prompt), args.ram)
    tokenizer = lm.model.tokenizer
    input_ids = [tokenizer.prompt(text) for text in args.prompt]
    likely = lm.logits(input_ids[0]).argsort()[-3:][::-1]
    print("likely next:", [tokenizer.decode([token]) for token in likely])
    output = lm.generate(input_ids, max_new_tokens=args.max_new_tokens)
    for prompt, row in zip(input_ids, output):
        print(tokenizer.decode(prompt) + "|" + tokenizer.decode(row[len(prompt) :]))
    lm.model.close()


if __name__ == "__main__":
    main()
