#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a small model with the true router of Qwen3.5's family (256 experts, 8 a token, 20 layers),
for the sake of its routing of real text: what it chose is recorded by the engine and kept as a trace.

The model itself is nothing to talk to. The forward pass and the optimiser are train_demo.py's; here are
its shape, training by the clock, and the checkpoint in Hugging Face's form (BF16):

    train_routing.py --corpus BOOKS --out MODEL --seconds 400       (on a GPU)
    moeflux perplexity MODEL MODEL/text.txt --prefill-chunk 1 --predict next-layer --trace FILE
"""

import argparse
import math
import os
import shutil
import time

import torch
from safetensors.torch import save_file

import train_demo as demo

SHAPE = {
    "num_hidden_layers": 20,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 128,
}
TEXT_CHARS = 40000  # of what was not trained on, for the trace


def parse():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--corpus", required=True, help="folder of plain-text books")
    p.add_argument("--tokenizer", default="models/demo", help="folder of tokenizer.json")
    p.add_argument("--out", required=True, help="the checkpoint's directory")
    p.add_argument("--seconds", type=float, default=400)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--length", type=int, default=1024)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--warmup", type=int, default=100)
    p.add_argument("--weight-decay", type=float, default=1.0)
    p.add_argument("--dropout", type=float, default=0.2)
    p.add_argument("--balance", type=float, default=0.03)
    p.add_argument("--floor", type=float, default=0.4, help="share below which balancing acts")
    p.add_argument("--every", type=int, default=100)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--hidden", type=int, default=demo.CONFIG["hidden_size"])
    return p.parse_args()


def passes(data, args, generator):
    """Batches without end: one pass over the books after another, each cut elsewhere."""
    while True:
        yield from demo.batches(data, args.length, args.batch, generator)


def train(cfg, args, data, valid, device):
    """The weights after args.seconds, the learning rate falling with the clock."""
    generator = torch.Generator().manual_seed(args.seed)
    w = {n: t.to(device).requires_grad_() for n, t in demo.initial_weights(cfg, generator).items()}
    print(f"{sum(t.numel() for t in w.values())} weights, {len(data)} tokens", flush=True)
    stepper = demo.Stepper(cfg, w, args, None, device)
    began, loads = time.time(), None
    for step, at in enumerate(passes(data, args, generator), 1):
        progress = (time.time() - began) / args.seconds
        if progress >= 1:
            break
        lr = args.lr * min(1.0, step / args.warmup)
        lr *= 0.01 + 0.99 * (0.5 + 0.5 * math.cos(math.pi * progress))
        plain, load = stepper(data[at], None, lr, False)
        loads = load if loads is None else 0.98 * loads + 0.02 * load
        if step % args.every == 0:
            low, high = (loads * cfg["num_experts"]).aminmax()
            seen = step * args.length * args.batch
            print(f"{step} {time.time() - began:.0f}s {seen / 1e6:.1f}M tokens {plain.item():.4f}"
                  f" load {low:.2f}..{high:.2f}", flush=True)
    w = {n: t.detach() for n, t in w.items()}
    print(f"valid {demo.mean_loss(cfg, w, valid, args.length, device):.4f}", flush=True)
    return w


def stored(weights):
    """(name, tensor) as Hugging Face stores them."""
    for name, t in weights.items():
        name = name.replace("model.", "model.language_model.", 1)
        in_float = name.endswith(("A_log", "linear_attn.norm.weight"))
        yield name, t.float() if in_float else t.bfloat16()


def save(cfg, w, args, text):
    os.makedirs(args.out, exist_ok=True)
    tensors = {n: t.contiguous().cpu() for n, t in stored(w)}
    save_file(tensors, os.path.join(args.out, "model.safetensors"), metadata={"format": "pt"})
    kinds = ["linear_attention" if demo.is_linear_layer(cfg, i) else "full_attention"
             for i in range(cfg["num_hidden_layers"])]
    end = cfg["vocab_size"] - 1
    demo.write_json(os.path.join(args.out, "config.json"), {
        "architectures": ["Qwen3_5MoeForConditionalGeneration"],
        "eos_token_id": end,
        "model_type": "qwen3_5_moe",
        "text_config": {**cfg, "layer_types": kinds, "eos_token_id": end, "dtype": "bfloat16"},
        "tie_word_embeddings": cfg["tie_word_embeddings"],
    })
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(args.tokenizer, name), args.out)
    with open(os.path.join(args.out, "text.txt"), "w", encoding="utf-8") as f:
        f.write(text)


def main():
    from tokenizers import Tokenizer

    args = parse()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cfg = {**demo.CONFIG, **SHAPE, "hidden_size": args.hidden}
    tok = Tokenizer.from_file(os.path.join(args.tokenizer, "tokenizer.json"))
    texts, validation, held_out = demo.split_corpus(args.corpus)
    data, valid = demo.encode_all(tok, texts), demo.encode_all(tok, validation)
    w = train(cfg, args, data, valid, device)
    save(cfg, w, args, (held_out + "\n".join(validation))[:TEXT_CHARS])


if __name__ == "__main__":
    main()
