#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/text/data/spm_json, spm_model, spm_small and hunyuan: SentencePiece's vocabularies as directories of Hugging Face have them,
and what the tokenizers and the sentencepiece package make of texts with them.

  make_spm_json_goldens.py tests/text/data --corpus DIR          the committed files (DIR: text files for training)
  make_spm_json_goldens.py OUT --corpus DIR --big                the same with many more texts

spm_json/NAME.json is a tokenizer.json in which @VOCABULARY@ stands for the contents of VOCABULARY.txt, its "vocab" and
"merges". texts.bin as make_text_goldens.py writes it; NAME.ids the ids for every text with special tokens (count, ids),
then without (count + 1, ids; 0: the same; 1 of a text that is not empty: not to be compared); NAME.decode sequences (count, ids) and their text (length, bytes); NAME.stream
sequences that are decoded token by token (count, then an id and the length of what it adds, and the whole text).
long.json: texts of one word, made of units repeated, with counts and hashes of their ids. spm_model/NAME is a directory
with tokenizer.model; ids.bin and decode.bin beside it. spm_small has one vocabulary in both forms. hunyuan: the ranks of kimi/tiktoken.model as hy.tiktoken, with what
tiktoken makes of them by the pattern and the special tokens of tokenization_hy.py.
"""
import argparse
import base64
import copy
import io
import json
import pathlib
import random
import struct
import unicodedata
from collections import Counter

from make_text_goldens import CODE, QWEN3, SAMPLES, leb128, random_bytes, random_text, write_texts

MARK = "▁"
HUNYUAN = ["<|eos|>", "<|startoftext|>", "<|extra_204|>", "<|extra_205|>", "<|eos|\u226f"]
ADDED = ["<s>", "</s>", "<unk>", "[INST]", "[/INST]", "<mask>", "two words", "solo", "na▁me", "the"]
TREE = {"String": MARK}


def fnv(ids):
    value = 0xCBF29CE484222325
    for byte in b"".join(struct.pack("<I", i) for i in ids):
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def make_texts(corpus, big):
    rng = random.Random(20261127)
    texts = [b"", b" ", b"  ", b" " * 37, b"a", b" a", b"a ", b"  a  b   c  ", b"\n", b"\n\n a", b"\0", b"a\0b", b"\t x", b"\r\n",
             "▁".encode(), "▁▁".encode(), "▁a".encode(), " ▁ a▁b ▁".encode(), b"<0x41>", b"<0x0A> <0xE4>", "中".encode(),
             "ab中文 cd 😀👍🏽 e\u0301 \u0301\u0323".encode(), "x\u3000y\u00a0z\u2003w".encode(), "ﬁ ① Ａ ㌔ ½".encode()]
    texts += [line.encode() for line in SAMPLES.splitlines()] + [CODE.encode()]
    for book in sorted(corpus.glob("*.txt"))[:6]:
        raw = book.read_bytes()
        at = rng.randrange(len(raw) - 2000)
        texts.append(raw[at:at + 500])
    for unit, n in [("a", 400), ("the ", 90), (" ", 120), ("é", 70), ("ab", 200), ("中", 60), ("▁", 40), ("th▁", 50), ("1", 60),
                    ("😀", 20), ("\u0301", 40), ("\n ", 30), ("zq", 150)]:
        texts.append((unit * n).encode())
        texts.append(("x " + unit * n + " y").encode())
    for name in ADDED:
        for other in ["", " ", "x", "▁", "  ", name, "é", "\n", "."]:
            texts.append((other + name + other + name).encode())
        texts += [name[:-1].encode(), (name + " a b" + name + "c").encode()]
    for name in HUNYUAN:
        texts += [name.encode(), ("e\u0301" + name + " a" + name + name).encode(), (name + "\u0338").encode()]
    pool = ADDED + HUNYUAN + [" ", "  ", "▁", "the", "The", " and", "of the", "é", "中", "😀", "\n", "12", "3 4", "x", "zzz", "\u0301", "ing", ".", "'s", "\0"]
    for _ in range(6000 if big else 160):
        texts.append("".join(rng.choice(pool) for _ in range(rng.randint(1, 8))).encode())
    for _ in range(20000 if big else 200):
        texts.append(random_text(rng, 9).encode())
    for _ in range(3000 if big else 60):
        texts.append(random_bytes(rng))
    return texts


# ------------------------------------------------------------------------------------------ vocabularies

def lines_of(corpus):
    lines = []
    for book in sorted(corpus.glob("*.txt"))[:3]:
        lines += book.read_text(encoding="utf-8", errors="replace")[:60000].splitlines()
    return [line for line in lines if line.strip()] + SAMPLES.splitlines() * 3


def train_vocabulary(lines, n_tokens, split):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    counts = Counter("".join(lines))
    kept = set(sorted(counts, key=lambda c: (-counts[c], c))[:90])  # the trainer's own limit is not the same twice
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=split)
    trainer = trainers.BpeTrainer(vocab_size=n_tokens, show_progress=False, max_token_length=16)
    tokenizer.train_from_iterator(["".join(c for c in line if c in kept) for line in lines], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    return [p for p in pieces], model["merges"]


def vocabulary(pieces, merges, byte_values, as_strings, names):
    """Ids as Llama's: special ones, bytes, then pieces."""
    names = names + [f"<0x{b:02X}>" for b in byte_values] + [p for p in pieces if p not in names]
    vocab = {name: i for i, name in enumerate(names)}
    merges = [" ".join(m) for m in merges] if as_strings else merges
    return {"vocab": vocab, "merges": merges}


def vocabularies(corpus):
    lines = lines_of(corpus)
    words, word_merges = train_vocabulary(lines, 700, True)
    phrases, phrase_merges = train_vocabulary(lines, 500, False)
    specials = ["<unk>", "<s>", "</s>"]
    runs = [MARK * n for n in (2, 4, 8)]  # as Mistral's and Gemma's have them
    run_merges = [[MARK * n, MARK * n] for n in (1, 2, 4)]
    return {"words": vocabulary(words + runs, word_merges + run_merges, range(256), True, specials),
            "phrases": vocabulary(phrases, phrase_merges, range(256), False, specials + ["[INST]", "[/INST]"]),
            # without bytes; and with those of few characters, without the mark and the digits
            "bare": vocabulary(words, word_merges, [], False, specials),
            "holes": vocabulary([p for p in phrases if MARK not in p and not any(c.isdigit() for c in p)],
                                [m for m in phrase_merges if MARK not in "".join(m) and not any(c.isdigit() for c in "".join(m))],
                                [*range(0x80, 0xD0), *range(0x30, 0x35), 0x20], False, specials)}


# ----------------------------------------------------------------------------------------------- forms

PREPEND = {"type": "Prepend", "prepend": MARK}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
UNREPLACE = {"type": "Replace", "pattern": TREE, "content": " "}
BYTES, FUSE = {"type": "ByteFallback"}, {"type": "Fuse"}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def sequence(kind, *steps):
    return {"type": "Sequence", kind: list(steps)}


def metaspace(**more):
    return {"type": "Metaspace", "replacement": MARK, **more}


def added(content, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False, **flags}


PLAIN = [added("<unk>", special=True), added("<s>", special=True), added("</s>", special=True)]
MANY = PLAIN + [added("[INST]"), added("[/INST]", special=True), added("<mask>", lstrip=True, special=True),
                added("two words", rstrip=True), added("solo", single_word=True), added("na▁me"), added("the", single_word=True)]
NORMALIZED = [added("<unk>", special=True, normalized=True), added("<s>", special=True, normalized=True), added("</s>", special=True),
              added("[INST]", normalized=True), added("two words", normalized=True, lstrip=True), added("solo", normalized=True),
              added("na▁me", normalized=True), added("<mask>", rstrip=True, special=True)]


def form(vocabulary_name, tokens, normalizer, pre_tokenizer, decoder, **model):
    options = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
               "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, **model}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": decoder, "model": {**options, "@": vocabulary_name}}


def forms():
    llama = sequence("decoders", UNREPLACE, BYTES, FUSE, STRIP)
    gemma = sequence("decoders", UNREPLACE, BYTES, FUSE)
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    digits = {"type": "Digits", "individual_digits": True}
    words = {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}|[^\s▁]+"}, "behavior": "Isolated", "invert": False}
    return {
        # Mixtral, Mistral and Llama 2 as first published
        "llama": form("words", PLAIN, sequence("normalizers", PREPEND, REPLACE), None, llama),
        "llama_added": form("phrases", NORMALIZED, sequence("normalizers", PREPEND, REPLACE), None, llama, fuse_unk=False),
        # the same as published later
        "mistral": form("words", MANY, None, metaspace(prepend_scheme="first", split=False), llama),
        "gemma": form("words", MANY, REPLACE, split, gemma),
        "ernie": form("phrases", MANY, sequence("normalizers", REPLACE), None, gemma),
        "always": form("bare", MANY, None, metaspace(prepend_scheme="always", split=True),
                       metaspace(prepend_scheme="always", split=True), fuse_unk=False, byte_fallback=False),
        "never": form("bare", NORMALIZED, {"type": "NFC"}, metaspace(prepend_scheme="never", split=True),
                      metaspace(prepend_scheme="never", split=True), byte_fallback=False),
        "old": form("phrases", MANY, None, metaspace(add_prefix_space=True), sequence("decoders", BYTES, metaspace(add_prefix_space=True)),
                    unk_token=None),
        "digits": form("words", PLAIN, None, sequence("pretokenizers", digits, metaspace(prepend_scheme="first", split=True)), llama,
                       ignore_merges=True),
        "regex": form("phrases", NORMALIZED, sequence("normalizers", {"type": "NFC"}, REPLACE), sequence("pretokenizers", words), gemma,
                      ignore_merges=True),
        "holes": form("holes", PLAIN, None, None, sequence("decoders", BYTES, FUSE)),
        "holes_apart": form("holes", PLAIN, sequence("normalizers", PREPEND, REPLACE), None, llama, fuse_unk=False),
    }


def write_form(path, data):
    text = json.dumps({**data, "model": {**data["model"], "@": 0}}, ensure_ascii=False, indent=1)
    path.write_text(text.replace('"@": 0', "@" + data["model"]["@"] + "@") + "\n", encoding="utf-8")


def open_form(data, parts):
    from tokenizers import Tokenizer
    data = copy.deepcopy(data)
    data["model"].update(parts[data["model"].pop("@")])
    vocab = data["model"]["vocab"]
    next_id = len(vocab)
    for token in data["added_tokens"]:  # the package wants ids; it chooses these itself
        if token["content"] not in vocab:
            token["id"], next_id = next_id, next_id + 1
        else:
            token["id"] = vocab[token["content"]]
    return Tokenizer.from_str(json.dumps(data)), data


def without_special(data):
    """The tokenizer that finds no special tokens in text."""
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.encode_special_tokens = True
    return tokenizer


def write_ids(path, tokenizer, plain, texts):
    with open(path, "wb") as f:
        for text in texts:
            text = text.decode("utf-8", errors="replace")
            ids, other = tokenizer.encode(text, add_special_tokens=False).ids, plain.encode(text, add_special_tokens=False).ids
            if any(i < 3 for i in other) and tokenizer.model.ignore_merges:
                other = []  # whole words that are special tokens: moeflux has them as text
            f.write(leb128(len(ids)) + b"".join(map(leb128, ids)))
            f.write(leb128(0) if other == ids else leb128(len(other) + 1) + b"".join(map(leb128, other)))


def is_clear(names):
    """Runs of bytes are characters altogether or not at all: of a mixture the package shows none, a token at a time or
    not, and moeflux, like the sentencepiece package, those that are whole."""
    run = b""
    for name in names + [""]:
        if len(name) == 6 and name.startswith("<0x"):
            run += bytes([int(name[3:5], 16)])
            continue
        if run:
            try:
                run.decode()
            except UnicodeDecodeError:
                if run.decode(errors="ignore") != "":
                    return False
        run = b""
    return True


def sequences(rng, tokenizer, texts, n):
    size = tokenizer.get_vocab_size()
    found = [tokenizer.encode(t.decode("utf-8", errors="replace"), add_special_tokens=False).ids for t in rng.sample(texts, n)]
    while len(found) < 2 * n:
        first = rng.choice([0, 0, 3, 3, 259 % size])
        found.append([rng.randrange(first, min(size, first + rng.choice([8, 260, size]))) for _ in range(rng.randint(1, 9))])
    return [ids for ids in found if ids and is_clear([tokenizer.id_to_token(i) or "" for i in ids])]


def write_decoding(folder, name, tokenizer, texts, n):
    from tokenizers.decoders import DecodeStream
    rng = random.Random(name)
    with open(folder / f"{name}.decode", "wb") as f:
        for ids in sequences(rng, tokenizer, texts, n):
            text = tokenizer.decode(ids, skip_special_tokens=False).encode()
            if len(text) < 4000:
                f.write(leb128(len(ids)) + b"".join(map(leb128, ids)) + leb128(len(text)) + text)
    with open(folder / f"{name}.stream", "wb") as f:
        for text in rng.sample(texts, n):
            ids = tokenizer.encode(text.decode("utf-8", errors="replace"), add_special_tokens=False).ids
            whole = tokenizer.decode(ids, skip_special_tokens=False)
            if not ids or "\ufffd" in whole or len(whole) > 1000:
                continue
            stream, out, pieces = DecodeStream(skip_special_tokens=False), [], []
            for i in ids:
                out.append(stream.step(tokenizer, i) or "")
                pieces.append(leb128(i) + leb128(len(out[-1].encode())))
            if "".join(out) == whole:
                f.write(leb128(len(ids)) + b"".join(pieces) + leb128(len(whole.encode())) + whole.encode())


LONG = [[["the house of ", 20000]], [["a", 100000]], [["ab中", 40000], [" x", 3]], [["é", 60000]], [["1\n", 50000]],
        [["It was the best of times, 中文字。 ", 7000], ["😀", 3000]], [["▁", 90000]], [["\x00", 70000], ["end", 1]]]


def make_long(tokenizers):
    rows = []
    for name in ("llama", "mistral", "ernie", "holes", "holes_apart"):
        for parts in LONG:
            ids = tokenizers[name].encode("".join(unit * n for unit, n in parts), add_special_tokens=False).ids
            rows.append({"form": name, "parts": parts, "n": len(ids), "fnv": fnv(ids)})
    return rows


def make_forms(out, corpus, texts, n):
    parts = vocabularies(corpus)
    out.mkdir(parents=True, exist_ok=True)
    write_texts(out / "texts.bin", texts)
    for name, part in parts.items():
        (out / f"{name}.txt").write_text(json.dumps(part, ensure_ascii=False, separators=(",", ":"))[1:-1], encoding="utf-8")
    tokenizers = {}
    for name, data in forms().items():
        write_form(out / f"{name}.json", data)
        tokenizers[name], filled = open_form(data, parts)
        write_ids(out / f"{name}.ids", tokenizers[name], without_special(filled), texts)
        write_decoding(out, name, tokenizers[name], texts, n)
    (out / "long.json").write_text(json.dumps(make_long(tokenizers), ensure_ascii=False, indent=0) + "\n")


# ---------------------------------------------------------------------------------------- tokenizer.model

# What becomes of characters: the beginning of NFKC, with a blank for others and one that goes away.
RULES = "FB01\t66 69\nFF21\t41\n2460\t31\n3000\t20\nA0\t20\n65 301\tE9\nAD\t\n314B\t6B 20 6B\n"
MODELS = {
    "llama": dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False),
    "defined": dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False,
                    user_defined_symbols=["▁▁▁▁", "\n", "<b>", "the▁end"], control_symbols=["<ctl>"]),
    "mapped": dict(byte_fallback=False, remove_extra_whitespaces=True),
    "extra": dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=True, split_by_whitespace=False),
}
CONFIGS = {
    "llama": {"tokenizer_config.json": {
        "add_bos_token": True, "legacy": True, "tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>",
        "added_tokens_decoder": {"0": added("<unk>", special=True), "1": added("<s>", special=True), "2": added("</s>", special=True),
                                 "600": added("[INST]"), "601": added("[/INST]", special=True), "605": added("<mask>", lstrip=True, special=True)}}},
    "defined": {"added_tokens.json": {"<|im_end|>": 600, "<|im_start|>": 601},
                "special_tokens_map.json": {"eos_token": {"content": "<|im_end|>"}, "additional_special_tokens": ["<|im_start|>", "<ctl>"]}},
    "mapped": {}, "extra": {},
}
TOKENS = {"llama": ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<mask>"], "defined": ["<unk>", "<s>", "</s>", "<|im_end|>", "<|im_start|>", "<ctl>"],
          "mapped": ["<unk>", "<s>", "</s>"], "extra": ["<unk>", "<s>", "</s>"]}


def train_model(name, lines, folder):
    import sentencepiece as sp
    options = dict(MODELS[name])
    if name == "mapped":
        (folder / "rules.tsv").write_text(RULES)
        options["normalization_rule_tsv"] = str(folder / "rules.tsv")
    model = io.BytesIO()
    sp.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=600, num_threads=1,
                                  character_coverage=0.998, minloglevel=2, **options)
    if name == "mapped":
        (folder / "rules.tsv").unlink()
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    return sp.SentencePieceProcessor(model_proto=model.getvalue())


def id_of(name, config, m, token):
    """The id of an added token by the files."""
    for key, value in config.get("tokenizer_config.json", {}).get("added_tokens_decoder", {}).items():
        if value["content"] == token:
            return int(key), value
    other = config.get("added_tokens.json", {})
    return (other[token], added(token)) if token in other else (m.piece_to_id(token), added(token))


def encode_parts(name, config, m, text, tokens):
    """Added tokens first, the longest at each place; the package has what is between them."""
    ids, start, at = [], 0, 0
    while at < len(text):
        found = max((t for t in tokens if text.startswith(t, at)), key=len, default=None)
        if found is None:
            at += 1
            continue
        identity, flags = id_of(name, config, m, found)
        between = text[start:at].rstrip() if flags["lstrip"] else text[start:at]
        ids += (m.encode(between) if between else []) + [identity]
        at = start = at + len(found)
    return ids + (m.encode(text[start:]) if text[start:] else [])


def write_package_decoding(path, m, rng, texts, n):
    """Ids of n of the texts, or others, and what the package decodes of them."""
    with open(path, "wb") as f:
        for text in rng.sample(texts, n):
            ids = m.encode(text.decode("utf-8", errors="replace"))
            if rng.random() < 0.5:
                ids = [rng.randrange(3, m.get_piece_size()) for _ in range(rng.randint(1, 9))]
            ids = [i for i in ids if not m.is_unknown(i) and not m.is_control(i)]
            text = m.decode(ids).encode()
            if ids and len(text) < 4000:
                f.write(leb128(len(ids)) + b"".join(map(leb128, ids)) + leb128(len(text)) + text)


def make_models(out, corpus, texts, n):
    lines = lines_of(corpus)
    for name in MODELS:
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        m = train_model(name, lines, folder)
        config = CONFIGS[name]
        for file, content in config.items():
            (folder / file).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        plain = [t for t in TOKENS[name] if t == "[INST]"]
        with open(folder / "ids.bin", "wb") as f:
            for text in texts:
                text = text.decode("utf-8", errors="replace")
                ids, other = (encode_parts(name, config, m, text, t) for t in (TOKENS[name], plain))
                f.write(leb128(len(ids)) + b"".join(map(leb128, ids)))
                f.write(leb128(0) if other == ids else leb128(len(other) + 1) + b"".join(map(leb128, other)))
        write_package_decoding(folder / "decode.bin", m, random.Random(name), texts, n)


# ------------------------------------------------------------------------------------------ for small models

def make_small(out, corpus):
    """The same vocabulary of 124 tokens as tokenizer.model and as what transformers' converter makes of it."""
    import sentencepiece as sp
    for name in ("model", "json"):
        (out / name).mkdir(parents=True, exist_ok=True)
    model = io.BytesIO()
    sp.SentencePieceTrainer.train(sentence_iterator=iter(lines_of(corpus)), model_writer=model, model_type="bpe", vocab_size=124,
                                  num_threads=1, character_coverage=0.98, normalization_rule_name="identity",
                                  remove_extra_whitespaces=False, minloglevel=2)
    (out / "model" / "tokenizer.model").write_bytes(model.getvalue())
    m = sp.SentencePieceProcessor(model_proto=model.getvalue())
    vocab = {m.id_to_piece(i): i for i in range(m.get_piece_size())}
    merges = [[piece[:k], piece[k:]] for piece in sorted(vocab, key=lambda p: -m.get_score(vocab[p])) if vocab[piece] >= 3
              for k in range(1, len(piece)) if piece[:k] in vocab and piece[k:] in vocab]
    data = form("", PLAIN, sequence("normalizers", PREPEND, REPLACE), None, sequence("decoders", UNREPLACE, BYTES, FUSE, STRIP))
    data["post_processor"] = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                              "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    data["model"] = {**data["model"], "vocab": vocab, "merges": merges}
    del data["model"]["@"]
    (out / "json" / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


# --------------------------------------------------------------------------------------------- hy.tiktoken

def make_hunyuan(out, texts, n):
    import tiktoken
    lines = (out / "kimi" / "tiktoken.model").read_bytes()
    ranks = {base64.b64decode(line.split()[0]): int(line.split()[1]) for line in lines.splitlines()}
    names = ["<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>"] + [f"<|extra_{i}|>" for i in range(205)]
    m = tiktoken.Encoding(name="hunyuan", pat_str=QWEN3, mergeable_ranks=ranks,
                          special_tokens={name: len(ranks) + i for i, name in enumerate(names)})
    folder = out / "hunyuan"
    folder.mkdir(exist_ok=True)
    (folder / "hy.tiktoken").write_bytes(lines)
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<|startoftext|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>", "tokenizer_class": "HYTokenizer"}, indent=1) + "\n")
    rng = random.Random(4)
    with open(folder / "ids.bin", "wb") as f:
        for text in texts:
            text = unicodedata.normalize("NFC", text.decode("utf-8", errors="replace"))
            ids, other = m.encode(text, allowed_special="all"), m.encode(text, disallowed_special=())
            f.write(leb128(len(ids)) + b"".join(map(leb128, ids)))
            f.write(leb128(0) if other == ids else leb128(len(other) + 1) + b"".join(map(leb128, other)))
    with open(folder / "decode.bin", "wb") as f:
        for text in rng.sample(texts, n):
            ids = m.encode(text.decode("utf-8", errors="replace")[:200], disallowed_special=()) + [len(ranks) + rng.randrange(210)]
            text = m.decode(ids).encode()
            f.write(leb128(len(ids)) + b"".join(map(leb128, ids)) + leb128(len(text)) + text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--big", action="store_true")
    options = parser.parse_args()
    texts = make_texts(options.corpus, options.big)
    n = 3000 if options.big else 90
    make_forms(options.out / "spm_json", options.corpus, texts, n)
    make_models(options.out / "spm_model", options.corpus, texts, n)
    make_small(options.out / "spm_small", options.corpus)
    make_hunyuan(options.out, texts, n)


if __name__ == "__main__":
    main()
