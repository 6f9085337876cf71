#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the golden files of tests/text from Hugging Face tokenizers, jinja2 and transformers.

  make_text_goldens.py OUT --corpus DIR          the committed files (OUT is tests/text/data)
  make_text_goldens.py OUT --corpus DIR --big    the same with many more texts, for a long comparison
  make_text_goldens.py FILE --vocabulary N       a tokenizer.json of N tokens in the shape of a real one
  make_text_goldens.py FILE --unicode-additions  src/text/unicode_additions.c (needs Python 3.11: Unicode 14)

Files: texts.bin holds the texts (u32 count, then u32 length and bytes each); NAME/tokenizer.json a tokenizer;
NAME/ids.bin its ids for every text (count, ids), then the ids without special tokens (count + 1, ids; 0: the same); NAME/decode.bin token sequences and their text;
chat.json and sampler.json. Integers in .bin files are little-endian u32 lengths and LEB128 ids.
"""
import argparse
import json
import pathlib
import random
import struct
import unicodedata

QWEN3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SEVERAL = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
           r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
           r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]

SPACES = "\t\n\v\f\r \x85\xa0\u1680\u180e\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u200b" \
         "\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
ALPHABETS = [
    "abcdefghij klmnop qrstuvwxyz",
    "ABCXYZ abcxyz 0123456789",
    "'sS't'T're'RE've'm'M'll'LL'd'D \u017f\u212a'ſ",
    SPACES + "ab1.",
    "\r\n\r\n \t a.",
    "".join(map(chr, range(0x20))) + "a \x7f\x80\x9f",
    "áéíóúàèìòùäëïöüßñçåøæœ ŠšŽžĐđŁł",
    "aeiou\u0300\u0301\u0302\u0303\u0308\u030a\u0327\u0323\u0345\u0338ſẛ",
    "абвгдеёжзийклмн ОПРСТУ\u0306\u0308",
    "αβγδεζηθ ΆΈΉ\u0301\u0313\u0345ᾳᾴ",
    "אבגדה\u05b0\u05b1\u05bc\u05c1 שלום",
    "ابتثجح \u064b\u064c\u0651\u0653\u0654آأؤ 0٠١٢٣٤٥",
    "कखगघङ \u093c\u093e\u093f\u0940\u094d क़ख़ १२३४",
    "กขฃคฅ \u0e31\u0e34\u0e35\u0e48 ไทย ๑๒๓",
    "你好世界中文字符，。！？「」 　",
    "ひらがなカタカナ\u3099\u309a がぱ ｶﾞ",
    "한국어\u1112\u1161\u11ab\u1100\u1161 각",
    "😀😁👍🏽👩\u200d👩\u200d👧\u200d👦🇩🇪🇫🇷❤\ufe0f☺1\ufe0f\u20e3🏴\U000e0067\U000e007f ",
    "½⅓²³¹①②Ⅳⅷ൦௧〇〡🄀",
    "{}[]()<>/*-+=!&|^%$#@~`\\\"':;,.? _",
    "if (x == 1) { return y->z; }\n\t// комментарий",
    "𝐀𝒜𝔸𐐷𐒰𞤀𐌰 \U00010d40\U00010d50\u1c89\u1c8a\U00011380\U00011383\U00031350\U000323af\U0001ccf0",
    "\ufffd\ufffe\uffff\ue000\U0010ffff\U000f0000\ufdd0 ",
    "\u0340\u0341\u0343\u0344\u0374\u037e\u0387\u1fef\u2126\u212a\u212b\u2329\ufb1d\uf900\U0002f800",
    "\u0f71\u0f72\u0f74\u0f73\u0f75 \u1b05\u1b35 \U0001d15e\U0001d165 \U00011099\U000110ba",
]
ADDED = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool>", "<|im_", "  strip  ",
         "wórd", "wo\u0301rd", "solo", "<|a|>", "<|a|>b", "\u212b!"]

SAMPLES = """The quick brown fox jumps over the lazy dog. It's John's, they're here, WE'LL GO, I'd've DON'T!
El veloz murciélago hindú comía feliz cardillo y kiwi. Voix ambiguë d'un cœur qui préfère les jattes.
Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Съешь же ещё этих мягких французских булок.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. דג סקרן שט בים מאוכזב ולפתע מצא חברה. نص حكيم له سر قاطع وذو شأن عظيم
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश। เป็นมนุษย์สุดประเสริฐเลิศคุณค่า
我能吞下玻璃而不伤身体。私はガラスを食べられます。それは私を傷つけません。나는 유리를 먹을 수 있어요. 그래도 아프지 않아요
Tiếng Việt: Tôi có thể ăn thủy tinh mà không hại gì. Türkçe: İstanbul'da IĞDIR. ქართული ენა. Հայերեն. አማርኛ.
Numbers: 3.14159 1,000,000 0xDEADBEEF 1e-9 2026-11-21T03:40:00Z ١٢٣ १२३ ４２ ½ Ⅷ ² 12345678901234567890
"""
CODE = '''#include <stdio.h>

int main(int argc, char **argv)
{
\tfor (size_t i = 0; i < 10; ++i)\r
\t\tprintf("%d\\n", (int)i);   /* trailing */   \r\n
    return argc > 1 ? 0x7f : ~0;
}
def f(x: int) -> str:\n    """doc"""\n\n\n    return f"{x!r:>10}"  # café\n\n\n\n
<html><body class="a-b_c">&nbsp;&lt;tag/&gt;</body></html> SELECT * FROM t WHERE a<>'b';
'''


def random_text(rng, longest):
    parts = []
    for _ in range(rng.randint(1, 4)):
        alphabet = rng.choice(ALPHABETS)
        if rng.random() < 0.1:
            parts.append(rng.choice(alphabet) * rng.randint(2, 12))
        elif rng.random() < 0.12:
            parts.append(rng.choice(["", " ", "  ", "x", "\n"]) + rng.choice(ADDED) + rng.choice(["", " ", "  ", "x"]))
        elif rng.random() < 0.1:
            parts.append("".join(chr(rng.choice([rng.randrange(0x20, 0xd800), rng.randrange(0xe000, 0x110000)]))
                                 for _ in range(rng.randint(1, 4))))
        else:
            parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, longest))))
    return "".join(parts)


def random_bytes(rng):
    """Broken UTF-8: cut and flipped text, and byte soup."""
    if rng.random() < 0.5:
        raw = bytearray(random_text(rng, 6).encode())
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(raw))
            raw[at] = rng.randrange(256)
        return bytes(raw[:rng.randint(1, len(raw))])
    lead = [0xc0, 0xc2, 0xe0, 0xe1, 0xed, 0xf0, 0xf1, 0xf4, 0xf5, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xff, 0x41]
    return bytes(rng.choice(lead) for _ in range(rng.randint(1, 8)))


def make_texts(corpus, big):
    rng = random.Random(20261121)
    texts = [b"", b" ", b"a", b"\n", "é".encode(), "e\u0301".encode(), b"\0", b"\0a\0"]
    texts += [line.encode() for line in SAMPLES.splitlines()] + [SAMPLES.encode(), CODE.encode()]
    for book in sorted(corpus.glob("*.txt")):
        raw = book.read_bytes()
        for _ in range(20 if big else 1):
            at = rng.randrange(len(raw) - 2000)
            texts.append(raw[at:at + (2000 if big else 700)])
    for unit, n in [("a", 3000), ("ab", 700), (" ", 300), ("\n", 200), ("\r\n", 100), ("e\u0301", 200), ("1", 120),
                    ("!", 150), ("中", 100), ("th", 400), ("\u0301\u0323", 60), ("'s", 40), ("\t ", 60)]:
        texts.append((unit * n).encode())
        texts.append(("x" + unit * n + "y").encode())
    for name in ADDED:
        for other in ["", " ", "x", name, "\u00a0", "é"]:
            texts.append((other + name + other + name).encode())
    for _ in range(60000 if big else 2200):
        texts.append(random_text(rng, 12 if big else 7).encode())
    for _ in range(5000 if big else 300):
        texts.append(random_bytes(rng))
    return texts


def leb128(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def write_texts(path, texts):
    path.write_bytes(struct.pack("<I", len(texts)) + b"".join(struct.pack("<I", len(t)) + t for t in texts))


def train(corpus, vocab_size, splits, normalizer, merges_as_strings, added, ignore_merges=False):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    if splits is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    else:
        steps = [pre_tokenizers.Split(Regex(s) if isinstance(s, str) else s[0], "isolated" if isinstance(s, str) else s[1],
                                      invert=False if isinstance(s, str) else s[2]) for s in splits]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if normalizer:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    lines = SAMPLES.splitlines() * 40 + CODE.splitlines() * 20 + ["a" * 64, "ab" * 32, "=" * 40, " " * 40, "\n" * 20] * 20
    for book in sorted(corpus.glob("*.txt"))[:4]:
        lines += book.read_text(encoding="utf-8", errors="replace")[:100000].splitlines()
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_tokens(added)
    data = json.loads(tokenizer.to_str())
    if merges_as_strings:
        data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
    if ignore_merges:
        data["model"]["ignore_merges"] = True
        kept = data["model"]["merges"]
        data["model"]["merges"] = [m for i, m in enumerate(kept) if i % 7 != 3 or len("".join(m)) < 4]
    return data


def added_tokens():
    from tokenizers import AddedToken
    plain = dict(normalized=False)
    return [AddedToken("<|im_start|>", special=True, **plain), AddedToken("<|im_end|>", special=True, **plain),
            AddedToken("<|endoftext|>", special=True, **plain), AddedToken("<think>", **plain),
            AddedToken("</think>", **plain), AddedToken("<tool>", lstrip=True, rstrip=True, **plain),
            AddedToken("<|im_", **plain), AddedToken("  strip  ", rstrip=True, **plain),
            AddedToken("wórd", normalized=True), AddedToken("solo", single_word=True, **plain),
            AddedToken("<|a|>", special=True, lstrip=True, **plain), AddedToken("<|a|>b", **plain),
            AddedToken("\u212b!", normalized=True, lstrip=True), AddedToken("the", **plain)]


def make_tokenizers(out, corpus, texts, big):
    from tokenizers import AddedToken, Tokenizer
    few = [AddedToken("<|endoftext|>", special=True, normalized=False)]
    kinds = {
        "qwen3": train(corpus, 1500, [QWEN3], True, False, added_tokens()),
        "qwen35": train(corpus, 1500, [QWEN35], True, True, added_tokens()),
        "gpt2": train(corpus, 900, None, False, False, few),
        "several": train(corpus, 900, SEVERAL, False, True, few, ignore_merges=True),
        "merged": train(corpus, 600, [(".", "merged_with_previous", False), (" ", "merged_with_next", False),
                                      ("e", "contiguous", True), ("q", "removed", False)], True, False, few),
    }
    for name, data in kinds.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")
        tokenizer = Tokenizer.from_str(text)
        strings = [t.decode("utf-8", "replace") for t in texts]
        encoded = []
        for special in (True, False):
            tokenizer.encode_special_tokens = not special
            encoded.append([e.ids for e in tokenizer.encode_batch(strings, add_special_tokens=False)])
        ids = bytearray()
        for with_special, without in zip(*encoded):
            ids += leb128(len(with_special)) + b"".join(map(leb128, with_special))
            ids += leb128(0) if without == with_special else leb128(len(without) + 1) + b"".join(map(leb128, without))
        (folder / "ids.bin").write_bytes(ids)
        # Added tokens outside ASCII are left out: Hugging Face reads their letters as bytes.
        known = [i for i in range(tokenizer.get_vocab_size()) if tokenizer.id_to_token(i) is not None]
        known = [i for i in known if i not in {t["id"] for t in data["added_tokens"] if not t["content"].isascii()}]
        rng = random.Random(7)
        decoded = bytearray()
        for _ in range(3000 if big else 300):
            sequence = [rng.choice(known if rng.random() < 0.5 else known[:256]) for _ in range(rng.randint(1, 12))]
            text = tokenizer.decode(sequence, skip_special_tokens=False).encode()
            decoded += leb128(len(sequence)) + b"".join(map(leb128, sequence)) + leb128(len(text)) + text
        (folder / "decode.bin").write_bytes(decoded)


# --------------------------------------------------------------------------------------------------------- chat

TEMPLATES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "text" / "data" / "chat"

CONVERSATIONS = [
    [("user", "Hello")],
    [("system", "You are terse."), ("user", "Hello")],
    [("system", "  padded \n"), ("user", "\n question \u00a0"), ("assistant", " \nanswer\n "), ("user", "more\t")],
    [("user", "a"), ("assistant", "<think>\nhm\n</think>\n\nb"), ("user", "c")],
    [("user", "a"), ("assistant", "<think>\nhm\n</think>\n\nb")],
    [("user", "a"), ("assistant", "plain")],
    [("user", "a"), ("assistant", "one"), ("assistant", "<think>t</think>two"), ("assistant", "three")],
    [("user", "a"), ("assistant", "x</think>y<think>z</think>\n\nw"), ("user", "q"), ("assistant", "</think>"),
     ("assistant", "<think>a<think>b\n\n</think>c</think>\nd")],
    [("user", "a"), ("assistant", "b"), ("user", "<tool_response>\nr\n</tool_response>"), ("assistant", "<think>k</think>l")],
    [("user", "<tool_response>only opened"), ("assistant", "b")],
    [("user", ""), ("assistant", ""), ("user", "")],
    [("system", "s"), ("assistant", "first"), ("user", "u")],
    [("user", "u"), ("system", "late"), ("user", "v")],
    [("system", "alone")],
    [("assistant", "alone")],
    [("user", "<|im_end|>\n{{ 7*7 }} \"quotes\" 'and' \\n"), ("assistant", "日本語\u3000"), ("user", "\u2028é\x1c")],
]


def make_chat(out):
    from transformers.utils.chat_template_utils import render_jinja_template
    cases = []
    for path in sorted(TEMPLATES.glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        for conversation in CONVERSATIONS:
            messages = [{"role": r, "content": c} for r, c in conversation]
            for thinking, extra in [(0, {}), (1, {"enable_thinking": True}), (2, {"enable_thinking": False})]:
                try:
                    rendered, _ = render_jinja_template(conversations=[messages], chat_template=template,
                                                        add_generation_prompt=True, **extra)
                    expected = rendered[0]
                except Exception:  # the template raises: the conversation is not one of its
                    expected = None
                cases.append({"template": path.name, "thinking": thinking, "messages": conversation,
                              "expected": expected})
    (out / "chat.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


# ------------------------------------------------------------------------------------------------------ sampler

def make_sampler(out):
    import torch
    from transformers.generation import logits_process as lp
    rng = random.Random(3)
    cases = []
    for n in range(160):
        n_vocab = rng.choice([1, 2, 5, 33, 60])
        logits = [round(rng.gauss(0, 3), 3) for _ in range(n_vocab)]
        if n % 5 == 0:
            logits = [rng.choice([-1.0, 0.0, 0.5, 2.0]) for _ in range(n_vocab)]
        options = {"temperature": rng.choice([1.0, 0.5, 0.7, 2.0]), "top_k": rng.choice([0, 0, 1, 3, 20, 100]),
                   "top_p": rng.choice([1.0, 1.0, 0.95, 0.8, 0.3]), "min_p": rng.choice([0.0, 0.0, 0.05, 0.3]),
                   "repetition_penalty": rng.choice([1.0, 1.3, 0.8])}
        if n % 5 == 0:
            options["top_p"] = 1.0  # which of equal tokens stay is not defined
        accepted = [rng.randrange(n_vocab) for _ in range(rng.choice([1, 4, 9]))]
        scores = torch.tensor([logits], dtype=torch.float32)
        ids = torch.tensor([accepted])
        if options["repetition_penalty"] != 1.0:
            scores = lp.RepetitionPenaltyLogitsProcessor(options["repetition_penalty"])(ids, scores)
        if options["temperature"] != 1.0:
            scores = lp.TemperatureLogitsWarper(options["temperature"])(ids, scores)
        if options["top_k"]:
            scores = lp.TopKLogitsWarper(options["top_k"])(ids, scores)
        if options["top_p"] < 1.0:
            scores = lp.TopPLogitsWarper(options["top_p"])(ids, scores)
        if options["min_p"] > 0.0:
            scores = lp.MinPLogitsWarper(options["min_p"])(ids, scores)
        probabilities = torch.softmax(scores.double(), dim=-1)[0].tolist()
        cases.append({"logits": logits, "accepted": accepted, **options, "probabilities": [float(f"{p:.6g}") for p in probabilities]})
    (out / "sampler.json").write_text(json.dumps(cases, separators=(",", ":")), encoding="utf-8")


# ------------------------------------------------------------------------------------------- large vocabulary

def make_vocabulary(path, n_tokens):
    """A vocabulary of the size and token lengths of the published ones; its merges are random but consistent."""
    rng = random.Random(1)
    alphabet = [chr(b) for b in range(0x21, 0x7f)] + [chr(b) for b in range(0xa1, 0xad)] + \
        [chr(b) for b in range(0xae, 0x100)] + [chr(0x100 + i) for i in range(68)]
    vocab = {c: i for i, c in enumerate(alphabet)}
    names, merges = list(alphabet), []
    while len(names) < n_tokens:
        left = names[int(len(names) * rng.random() ** 2)]
        right = names[int(len(names) * rng.random() ** 4)]
        if left + right in vocab or len(left + right) > 16:
            continue
        vocab[left + right] = len(names)
        names.append(left + right)
        merges.append([left, right])
    added = [{"id": n_tokens + i, "content": f"<|extra_{i}|>", "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i in range(30)]
    data = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": QWEN35}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                      "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": merges}}
    path.write_text(json.dumps(data, ensure_ascii=False, indent=2), encoding="utf-8")


# ------------------------------------------------------------------------------------------ unicode additions

def class_members(pattern):
    from tokenizers import Regex, pre_tokenizers
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    members = set()
    characters = [c for c in range(0x110000) if not 0xd800 <= c < 0xe000]
    for at in range(0, len(characters), 4096):
        for piece, _ in split.pre_tokenize_str("".join(map(chr, characters[at:at + 4096]))):
            members.update(map(ord, piece))
    return members


def make_unicode_additions(path):
    assert unicodedata.unidata_version == "14.0.0", "needs a Python with Unicode 14"
    rows = []
    for category in "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp".split():
        known = {c for c in range(0x110000) if unicodedata.category(chr(c)) == category}
        for c in sorted(class_members(r"\p{%s}" % category) - known):
            if rows and rows[-1][0] == category and rows[-1][2] == c - 1:
                rows[-1][2] = c
            else:
                rows.append([category, c, c])
    lines = ["/* SPDX-License-Identifier: MIT */", "/*",
             " * Generated by tools/make_text_goldens.py --unicode-additions: characters that have a general",
             " * category in Unicode 16, which Hugging Face tokenizers matches by, and none or another in Unicode",
             " * 14, which the oldest supported PCRE2 has.", " */", '#include "text/unicode_additions.h"', "",
             "const mf_unicode_addition mf_unicode_additions[] = {"]
    lines += ['    {"%s", 0x%X, 0x%X},' % tuple(row) for row in sorted(rows)]
    lines += ["};", "const size_t mf_n_unicode_additions =",
              "    sizeof mf_unicode_additions / sizeof *mf_unicode_additions;", ""]
    path.write_text("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("--big", action="store_true")
    parser.add_argument("--vocabulary", type=int)
    parser.add_argument("--unicode-additions", action="store_true")
    options = parser.parse_args()
    if options.vocabulary:
        return make_vocabulary(options.out, options.vocabulary)
    if options.unicode_additions:
        return make_unicode_additions(options.out)
    if options.corpus is None:
        parser.error("--corpus is needed")
    options.out.mkdir(parents=True, exist_ok=True)
    texts = make_texts(options.corpus, options.big)
    write_texts(options.out / "texts.bin", texts)
    make_tokenizers(options.out, options.corpus, texts, options.big)
    make_chat(options.out)
    make_sampler(options.out)


if __name__ == "__main__":
    main()
