#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/text/data/spm_blanks: vocabularies written by hand whose pieces have blanks of their own (U+0020) beside marks for blanks (U+2581),
at every place in them, and what the sentencepiece and the tokenizers package make of texts and of tokens with them.

  make_spm_blank_goldens.py tests/text/data              the committed files
  make_spm_blank_goldens.py tests/text/data --all OUT    the same in OUT with many more texts and sequences

MODEL/tokenizer.model with ids.bin and decode.bin; FORM.json, in which @VOCABULARY@ stands for VOCABULARY.txt, with FORM.ids, FORM.decode and
FORM.stream; texts.bin; all as make_spm_json_goldens.py has them. gguf/model.gguf is the model `bytes` as the head of a GGUF file, and
gguf/decode.bin what the decoder that transformers gives a LlamaTokenizer makes of its tokens. Needs sentencepiece, tokenizers, protobuf, gguf and
numpy.
"""
import argparse
import json
import pathlib
import random

from make_spm_json_goldens import (BYTES, FUSE, MARK, PREPEND, PLAIN, REPLACE, STRIP, UNREPLACE, added, form, metaspace, open_form, sequence,
                                   without_special)
from make_spm_json_goldens import is_clear
from make_text_goldens import leb128, write_texts
from make_unigram_goldens import encode_parts, form as unigram_form, open_form as open_unigram_form, write_ids

NORMAL, USER = 1, 4
# Alike but for which blanks are marks; some are found in no text.
WORDS = [MARK, "a", "b", "c", "e", "h", "t", "x", "y", "\t", MARK + "a", MARK + "t", "th", "he", "the", MARK + "the", MARK * 2, MARK * 4, "a" + MARK, "a" + MARK + "b",
         "a b", " a", " the", "b" + MARK + " c", "x y", " ", "   "]
SYMBOLS = ["  ", " x", MARK + " y", " " + MARK + "y", "x" + MARK + "y", "c  c", "e ", " " + MARK, "the  end", "\n "]
ADDED = [added(" lead"), added("  lead too", special=True), added(MARK + " mixed"), added(" down", normalized=True), added(MARK + "under y", normalized=True, lstrip=True)]
BYTE_NAMES = [f"<0x{b:02X}>" for b in range(256)]
# type, byte_fallback, add_dummy_prefix, remove_extra_whitespaces
MODELS = {"bytes": (2, True, True, False), "never": (2, True, False, False), "stripped": (2, False, True, True), "either": (2, True, False, True),
          "unigram": (1, True, True, True), "unigram_kept": (1, False, True, False)}
POOL = [" ", "  ", "   ", MARK, MARK * 2, "a", "b", "c", "e", "x", "y", "the", "end", "\t", "\n", "\n ", "é", "中", "<0x20>", "<s>", "."]


def make_texts(n):
    rng = random.Random(2026)
    pool = POOL + SYMBOLS + [token["content"] for token in ADDED]
    own = ["", " ", "  ", MARK, " " + MARK, MARK + " ", "a b", " a", "a" + MARK + "b", " the", "  the", "c  c", "x y", " x", "\n x", "e e "]
    own += [blank + token["content"] + blank for token in ADDED for blank in ("", " ", "  ", MARK)]
    return [text.encode() for text in own + ["".join(rng.choice(pool) for _ in range(rng.randint(1, 8))) for _ in range(n)]]


def make_proto(kind, falls_to_bytes, adds_blank, removes_extra):
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto()

    def add(piece, score, piece_type):
        model.pieces.add(piece=piece, score=score, type=piece_type)

    for name, piece_type in (("<unk>", 2), ("<s>", 3), ("</s>", 3)):
        add(name, 0, piece_type)
    for name in BYTE_NAMES if falls_to_bytes else []:
        add(name, 0, 6)
    for i, word in enumerate(WORDS):
        add(word, -1 - i % 7 - i / 100, NORMAL)
    for symbol in SYMBOLS:
        add(symbol, 0, USER)
    model.trainer_spec.model_type = kind
    model.trainer_spec.byte_fallback = falls_to_bytes
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = adds_blank
    model.normalizer_spec.remove_extra_whitespaces = removes_extra
    return model.SerializeToString()


def make_sequences(rng, names, encoded, n):
    """Ids of texts, and others: pieces with blanks of either kind, and bytes, of which three are a mark."""
    groups = [[i for i, name in enumerate(names) if " " in name], [i for i, name in enumerate(names) if " " in name or MARK in name],
              [i for i, name in enumerate(names) if name in ("<0x20>", "<0x41>", "<0xE2>")] or [3], range(3, len(names))]
    mark = [names.index(name) for name in ("<0xE2>", "<0x96>", "<0x81>") if name in names]
    found = rng.sample(encoded, min(n // 4, len(encoded))) + [[i] for i in groups[1]]
    while len(found) < n:
        parts = [rng.choice([[rng.choice(group)] for group in groups] + [mark]) for _ in range(rng.randint(1, 6))]
        found.append([i for part in parts for i in part])
    return [ids for ids in found if ids and is_clear([names[i] for i in ids])]


def write_sequences(path, sequences, decode):
    with open(path, "wb") as f:
        for ids in sequences:
            text = decode(ids).encode()
            f.write(leb128(len(ids)) + b"".join(map(leb128, ids)) + leb128(len(text)) + text)


def make_model(folder, proto, texts, n):
    import sentencepiece as sp
    m = sp.SentencePieceProcessor(model_proto=proto)
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.model").write_bytes(proto)
    write_ids(folder / "ids.bin", lambda text, special: encode_parts(m, text, special), texts)
    names = [m.id_to_piece(i) for i in range(m.get_piece_size())]
    encoded = [[i for i in m.encode(text.decode()) if i >= 3] for text in texts]  # what is unknown has a text of its own there
    write_sequences(folder / "decode.bin", make_sequences(random.Random(folder.name), names, encoded, n), m.decode)


# ----------------------------------------------------------------------------------------------- tokenizer.json

def vocabularies():
    names = ["<unk>", "<s>", "</s>"] + BYTE_NAMES + WORDS + SYMBOLS
    merges = [[piece[:k], piece[k:]] for piece in WORDS for k in range(1, len(piece)) if piece[:k] in WORDS and piece[k:] in WORDS]
    return {"pairs": {"vocab": {name: i for i, name in enumerate(names)}, "merges": merges},
            "scores": {"vocab": [[name, -1 - i % 7 - i / 100] for i, name in enumerate(names)]}}


def forms():
    llama, marked = sequence("normalizers", PREPEND, REPLACE), sequence("decoders", UNREPLACE, BYTES, FUSE, STRIP)
    always = metaspace(prepend_scheme="always", split=False)
    return {
        "llama": form("pairs", PLAIN + ADDED, llama, None, marked),
        "gemma": form("pairs", PLAIN + ADDED, REPLACE, None, sequence("decoders", UNREPLACE, BYTES, FUSE)),
        "joined": form("pairs", PLAIN + ADDED, llama, None, sequence("decoders", BYTES, FUSE, UNREPLACE, STRIP)),
        "metaspace": form("pairs", PLAIN + ADDED, None, always, sequence("decoders", BYTES, always)),
        "apart": form("pairs", PLAIN + ADDED, None, always, sequence("decoders", always, BYTES), ignore_merges=True),
        "none": form("pairs", PLAIN, None, None, sequence("decoders", BYTES, FUSE, STRIP)),
        "t5": unigram_form("scores", PLAIN + ADDED, None, always, always),
        "fallback": unigram_form("scores", PLAIN + ADDED, llama, None, marked, byte_fallback=True),
    }


def write_streams(path, tokenizer, sequences):
    from tokenizers.decoders import DecodeStream
    with open(path, "wb") as f:
        for ids in sequences:
            whole = tokenizer.decode(ids, skip_special_tokens=False)
            if "\ufffd" in whole:
                continue
            stream = DecodeStream(skip_special_tokens=False)
            out = [stream.step(tokenizer, i) or "" for i in ids]
            if "".join(out) != whole:  # the package's stream begins again with what it shows last
                continue
            f.write(leb128(len(ids)) + b"".join(leb128(i) + leb128(len(part.encode())) for i, part in zip(ids, out)))
            f.write(leb128(len(whole.encode())) + whole.encode())


def make_forms(out, texts, n):
    parts = vocabularies()
    for name, part in parts.items():
        (out / f"{name}.txt").write_text(json.dumps(part, ensure_ascii=False, separators=(",", ":"))[1:-1], encoding="utf-8")
    for name, data in forms().items():
        text = json.dumps({**data, "model": {**data["model"], "@": 0}}, ensure_ascii=False, indent=1)
        (out / f"{name}.json").write_text(text.replace('"@": 0', "@" + data["model"]["@"] + "@") + "\n", encoding="utf-8")
        is_unigram = data["model"]["type"] == "Unigram"
        tokenizer, filled = open_unigram_form(data, {"scores": parts["scores"]["vocab"]}) if is_unigram else open_form(data, parts)
        both = (without_special(filled), tokenizer)
        write_ids(out / f"{name}.ids", lambda text, special: both[special].encode(text, add_special_tokens=False).ids, texts)
        names = [tokenizer.id_to_token(i) or "" for i in range(tokenizer.get_vocab_size())]
        encoded = [tokenizer.encode(text.decode(), add_special_tokens=False).ids for text in texts]
        sequences = make_sequences(random.Random(name), names, encoded, n)
        write_sequences(out / f"{name}.decode", sequences, lambda ids: tokenizer.decode(ids, skip_special_tokens=False))
        write_streams(out / f"{name}.stream", tokenizer, sequences)


# --------------------------------------------------------------------------------------------------------- GGUF

def make_gguf(out, n):
    """Types as they are, with the decoder of transformers' LlamaTokenizer, which it gives such a file."""
    import gguf
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import Tokenizer
    out.mkdir(exist_ok=True)
    pieces = sentencepiece_model_pb2.ModelProto.FromString(make_proto(*MODELS["bytes"])).pieces
    w = gguf.GGUFWriter(out / "model.gguf", "llama")
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list([p.piece for p in pieces])
    w.add_token_scores([p.score for p in pieces])
    w.add_token_types([gguf.TokenType(p.type) for p in pieces])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    names = [p.piece for p in pieces]
    data = form("", PLAIN, None, None, sequence("decoders", UNREPLACE, BYTES, FUSE, STRIP))
    data["model"] = {**data["model"], "vocab": {name: i for i, name in enumerate(names)}, "merges": []}
    del data["model"]["@"]
    tokenizer = Tokenizer.from_str(json.dumps({**data, "added_tokens": [{**token, "id": i} for i, token in enumerate(PLAIN)]}))
    write_sequences(out / "decode.bin", make_sequences(random.Random("gguf"), names, [], n), lambda ids: tokenizer.decode(ids, skip_special_tokens=False))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--all", type=pathlib.Path)
    options = parser.parse_args()
    out = options.all or options.data / "spm_blanks"
    out.mkdir(parents=True, exist_ok=True)
    n = 4000 if options.all else 160
    texts = make_texts(n)
    write_texts(out / "texts.bin", texts)
    for name, model in MODELS.items():
        make_model(out / name, make_proto(*model), texts, n)
    make_forms(out, texts, n)
    make_gguf(out / "gguf", n)


if __name__ == "__main__":
    main()
