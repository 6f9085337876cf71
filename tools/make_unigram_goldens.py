#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/text/data/unigram: SentencePiece's Unigram models as tokenizer.model, tokenizer.json and GGUF, and a model of
byte pairs with user-defined symbols of all kinds; with what the sentencepiece and the tokenizers package make of texts.

  make_unigram_goldens.py tests/text/data --corpus DIR          the committed files (DIR: text files for training)
  make_unigram_goldens.py tests/text/data --corpus DIR --all OUT   the same in OUT with all texts of spm_json

texts.bin: every third text of spm_json, and some for user-defined symbols. MODEL/tokenizer.model with ids.bin and
decode.bin; FORM.json, in which @MODEL@ stands for the "vocab" of MODEL.txt, with FORM.ids, FORM.decode and FORM.stream, all
as make_spm_json_goldens.py has them. gguf/model.gguf is the model `plain` as the head of a GGUF file, whose ids are the
same. Needs sentencepiece, tokenizers, gguf and numpy.
"""
import argparse
import base64
import copy
import io
import json
import pathlib
import random

from make_spm_json_goldens import (BYTES, FUSE, MARK, PREPEND, PLAIN, REPLACE, RULES, STRIP, UNREPLACE, added, lines_of, metaspace, sequence,
                                   without_special, write_decoding, write_package_decoding)
from make_text_goldens import leb128, write_texts

SYMBOLS = ["  ", "▁▁▁▁", "\t\t", "ab c", "ﬁ", "x  y", " " * 8, "e▁", "the▁end", "<x>", "th", "he"]
# which model has what: the first three are Unigram models
MODELS = {
    "plain": dict(model_type="unigram", vocab_size=420, remove_extra_whitespaces=True),
    "bytes": dict(model_type="unigram", vocab_size=620, byte_fallback=True, split_by_whitespace=False, remove_extra_whitespaces=False,
                  allow_whitespace_only_pieces=True, normalization_rule_name="identity"),
    "symbols": dict(model_type="unigram", vocab_size=640, byte_fallback=True, remove_extra_whitespaces=True, user_defined_symbols=SYMBOLS),
    "pairs": dict(model_type="bpe", vocab_size=600, byte_fallback=True, remove_extra_whitespaces=True, user_defined_symbols=SYMBOLS),
}
MAPPED = ("plain", "symbols", "pairs")
UNIGRAM = ("plain", "bytes", "symbols")


def read_texts(path):
    blob = path.read_bytes()
    at, texts = 4, []
    for _ in range(int.from_bytes(blob[:4], "little")):
        size = int.from_bytes(blob[at:at + 4], "little")
        texts.append(blob[at + 4:at + 4 + size])
        at += 4 + size
    return texts


def make_texts(texts, takes_all):
    rng = random.Random(8)
    own = ["\r\n\r\n", "e\u0301 E\u0301x", "Ａ\u0301 ①\u0323", "\u00ad", "a\u00adb", "\u3000a\u3000", "<unk>", "<unk>é<unk>", "é<unk> <s>", "<0x41><0xE4>", "ab c" * 3,
           " \t ", "\u00a0 \u00a0x\u00a0", "a  ", "  a", "the end", "the  end", "theend of the ending", "𐍈𐍈 𐍈", "㎾ ㅋ ㅋㅋ", "ﬁﬁ"]
    pool = SYMBOLS + ["a", " ", "▁", "b", "the", "end", "x", "y", "\t", "é", "ﬂ", "①", "\u3000", "<s>", "."]
    own += ["".join(rng.choice(pool) for _ in range(rng.randint(1, 7))) for _ in range(3000 if takes_all else 90)]
    return (texts if takes_all else texts[::3]) + [text.encode() for text in own]


def train(name, lines, folder):
    import sentencepiece as sp
    options = dict(MODELS[name])
    rules = folder / "rules.tsv"
    if name in MAPPED:
        rules.write_text(RULES)
        options["normalization_rule_tsv"] = str(rules)
    model = io.BytesIO()
    sp.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, num_threads=1, character_coverage=0.998, minloglevel=2,
                                  **options)
    rules.unlink(missing_ok=True)
    return model.getvalue()


def write_ids(path, encode, texts):
    """As make_spm_json_goldens.py: encode(text, whether special tokens are found)."""
    with open(path, "wb") as f:
        for text in texts:
            text = text.decode("utf-8", errors="replace")
            ids, other = encode(text, True), encode(text, False)
            f.write(leb128(len(ids)) + b"".join(map(leb128, ids)))
            f.write(leb128(0) if other == ids else leb128(len(other) + 1) + b"".join(map(leb128, other)))


def encode_parts(m, text, finds_special):
    """Control and unknown pieces are found first; the package has what is between them."""
    ids, start, at = [], 0, 0
    names = ["<unk>", "<s>", "</s>"] if finds_special else []
    while at < len(text):
        found = next((name for name in names if text.startswith(name, at)), None)
        if found is None:
            at += 1
            continue
        ids += m.encode(text[start:at]) + [m.piece_to_id(found)]
        at = start = at + len(found)
    return ids + m.encode(text[start:])


def make_model(folder, name, proto, texts, n):
    import sentencepiece as sp
    m = sp.SentencePieceProcessor(model_proto=proto)
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.model").write_bytes(proto)
    write_ids(folder / "ids.bin", lambda text, special: encode_parts(m, text, special), texts)
    write_package_decoding(folder / "decode.bin", m, random.Random(name), texts, n)
    return m


# ----------------------------------------------------------------------------------------------- tokenizer.json

def charsmap(proto):
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto.FromString(proto)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()}


def form(model, tokens, normalizer, pre_tokenizer, decoder, **more):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": decoder,
            "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False, **more, "@": model}}


def forms(mapped):
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    join = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": MARK}
    some = PLAIN + [added("the end", normalized=True), added("①x", normalized=True), added("<x>", lstrip=True)]
    llama = sequence("decoders", UNREPLACE, BYTES, FUSE, STRIP)
    return {
        # as transformers converts T5's and XLM-R's models, and as it did
        "t5": form("plain", PLAIN, sequence("normalizers", mapped, strip, join), metaspace(prepend_scheme="always", split=True),
                   metaspace(prepend_scheme="always", split=True)),
        "old": form("plain", some, mapped, sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace(add_prefix_space=True)),
                    metaspace(add_prefix_space=True)),
        "fallback": form("bytes", some, sequence("normalizers", PREPEND, REPLACE), None, llama, byte_fallback=True),
        "stripped": form("bytes", PLAIN, sequence("normalizers", {"type": "Strip", "strip_left": True, "strip_right": True},
                                                  {**join, "content": " "}, {"type": "NFC"}), metaspace(prepend_scheme="first", split=False),
                         sequence("decoders", BYTES, metaspace(prepend_scheme="first", split=False)), unk_id=3),
    }


def open_form(data, vocabs):
    from tokenizers import Tokenizer
    data = copy.deepcopy(data)
    data["model"]["vocab"] = vocabs[data["model"].pop("@")]
    names = [name for name, _ in data["model"]["vocab"]]
    next_id = len(names)
    for token in data["added_tokens"]:
        if token["content"] in names:
            token["id"] = names.index(token["content"])
        else:
            token["id"], next_id = next_id, next_id + 1
    return Tokenizer.from_str(json.dumps(data)), data


def make_forms(out, vocabs, mapped, texts, n):
    for name, data in forms(mapped).items():
        text = json.dumps({**data, "model": {**data["model"], "@": 0}}, ensure_ascii=False, indent=1)
        (out / f"{name}.json").write_text(text.replace('"@": 0', "@" + data["model"]["@"] + "@") + "\n", encoding="utf-8")
        tokenizer, filled = open_form(data, vocabs)
        both = (without_special(filled), tokenizer)
        write_ids(out / f"{name}.ids", lambda text, special: both[special].encode(text, add_special_tokens=False).ids, texts)
        write_decoding(out, name, tokenizer, texts, n)


# --------------------------------------------------------------------------------------------------------- GGUF

def write_gguf(path, m, proto):
    import gguf
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto.FromString(proto)
    kinds = gguf.TokenType
    w = gguf.GGUFWriter(path, "t5")
    ids = range(m.get_piece_size())
    w.add_tokenizer_model("t5")
    w.add_tokenizer_pre("default")
    w.add_token_list([m.id_to_piece(i) for i in ids])
    w.add_token_scores([m.get_score(i) for i in ids])
    w.add_token_types([kinds.UNKNOWN if m.is_unknown(i) else kinds.CONTROL if m.is_control(i) else kinds.BYTE if m.is_byte(i) else kinds.NORMAL
                       for i in ids])
    w.add_add_space_prefix(True)
    w.add_remove_extra_whitespaces(True)
    w.add_precompiled_charsmap(model.normalizer_spec.precompiled_charsmap)
    w.add_bos_token_id(m.bos_id())
    w.add_eos_token_id(m.eos_id())
    w.add_unk_token_id(m.unk_id())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--all", type=pathlib.Path)
    options = parser.parse_args()
    out = options.all or options.data / "unigram"
    out.mkdir(parents=True, exist_ok=True)
    texts = make_texts(read_texts(options.data / "spm_json" / "texts.bin"), options.all is not None)
    write_texts(out / "texts.bin", texts)
    lines = lines_of(options.corpus)
    protos = {name: train(name, lines, out) for name in MODELS}
    models = {name: make_model(out / name, name, proto, texts, 60) for name, proto in protos.items()}
    vocabs = {}
    for name in UNIGRAM[:2]:
        m = models[name]
        vocabs[name] = [[m.id_to_piece(i), m.get_score(i)] for i in range(m.get_piece_size())]
        (out / f"{name}.txt").write_text('"vocab":' + json.dumps(vocabs[name], ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    make_forms(out, vocabs, charsmap(protos["plain"]), texts, 60)
    (out / "gguf").mkdir(exist_ok=True)
    write_gguf(out / "gguf" / "model.gguf", models["plain"], protos["plain"])


if __name__ == "__main__":
    main()
