#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/text/data/spm: a small SentencePiece model as the head of a GGUF file, and the ids that the sentencepiece
package gives the texts of texts.bin.

Needs sentencepiece, gguf and numpy. Usage: tools/make_spm_goldens.py tests/text/data --corpus DIR
"""
import argparse
import io
import struct
from pathlib import Path

import gguf
import sentencepiece as sp


def leb128(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out + bytes([n]))


def read_texts(path):
    blob = path.read_bytes()
    (n,), at = struct.unpack_from("<I", blob), 4
    for _ in range(n):
        (size,) = struct.unpack_from("<I", blob, at)
        yield blob[at + 4 : at + 4 + size]
        at += 4 + size


def train(corpus, texts):
    """As Llama's: byte pairs, bytes for what is unknown, text as it is."""
    lines = [line for path in sorted(corpus.glob("*.txt"))[:3] for line in path.read_text().splitlines()[:400] if line.strip()]
    model = io.BytesIO()
    sp.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=900, byte_fallback=True,
        normalization_rule_name="identity", add_dummy_prefix=True, remove_extra_whitespaces=False, num_threads=1,
        character_coverage=0.999, split_digits=True, allow_whitespace_only_pieces=True, minloglevel=2)
    return sp.SentencePieceProcessor(model_proto=model.getvalue())


def write_gguf(path, m):
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    ids = range(m.get_piece_size())
    w.add_token_list([m.id_to_piece(i) for i in ids])
    w.add_token_scores([m.get_score(i) for i in ids])
    kinds = gguf.TokenType
    w.add_token_types([
        kinds.UNKNOWN if m.is_unknown(i) else kinds.CONTROL if m.is_control(i) else kinds.BYTE if m.is_byte(i) else kinds.NORMAL
        for i in ids
    ])
    w.add_bos_token_id(m.bos_id())
    w.add_eos_token_id(m.eos_id())
    w.add_unk_token_id(m.unk_id())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--corpus", type=Path, required=True)
    args = parser.parse_args()
    texts = list(read_texts(args.out / "texts.bin"))
    m = train(args.corpus, texts)
    (args.out / "spm").mkdir(exist_ok=True)
    write_gguf(args.out / "spm" / "model.gguf", m)
    with open(args.out / "spm" / "ids.bin", "wb") as f:
        for text in texts:
            # SentencePiece reads blanks and U+2581 alike; bytes that are no UTF-8 as the tests' readers do
            ids = m.encode(text.decode("utf-8", errors="replace"))
            f.write(leb128(len(ids)) + b"".join(map(leb128, ids)) + leb128(0))


if __name__ == "__main__":
    main()
