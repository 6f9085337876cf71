#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the golden files of tests/text from Hugging Face tokenizers, tiktoken, jinja2 and transformers.

  make_text_goldens.py OUT --corpus DIR          the committed files (OUT is tests/text/data)
  make_text_goldens.py OUT --corpus DIR --big    the same with many more texts, for a long comparison
  make_text_goldens.py FILE --vocabulary N       a tokenizer.json of N tokens in the shape of a real one
  make_text_goldens.py FILE --ranks N            a tiktoken.model of N tokens in the shape of a real one
  make_text_goldens.py FILE --unicode-additions  src/text/unicode_additions.c (needs Python 3.11: Unicode 14)
  make_text_goldens.py FILE --nfc-newer          src/text/nfc_newer.c (needs unicodedata2)
  make_text_goldens.py FILE --nfc-goldens        tests/text/data/nfc.json (the same)

Files: texts.bin holds the texts (u32 count, then u32 length and bytes each); NAME/tokenizer.json a tokenizer;
NAME/ids.bin its ids for every text (count, ids), then the ids without special tokens (count + 1, ids; 0: the same); NAME/decode.bin token sequences and their text;
kimi/tiktoken.model ranks, their goldens from tiktoken; kimi/long.json texts that are cut, with counts and FNV-1a
hashes of their ids; chat.json and sampler.json. Integers in .bin files are little-endian u32 lengths and LEB128 ids.
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

DEEPSEEK_V2 = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+"]
HAN_LESS = r"&&[^\p{Han}]]"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}" + HAN_LESS, r"[\p{Ll}\p{Lm}\p{Lo}\p{M}" + HAN_LESS
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = "|".join([r"[\p{Han}]+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}",
                 rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}", r"\p{N}{1,3}",
                 r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

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

TEMPLATES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "text" / "data" / "chat"
BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"  # DeepSeek's; only its family's templates use them
DEEPSEEK_ADDED = [BOS, EOS, "<｜▁pad▁｜>", "<｜User｜>", "<｜Assistant｜>",
                  "<think>", "</think>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜fim▁hole｜>"]
# By their place after the ranked tokens; the places between are <|reserved_token_ID|>.
KIMI_ADDED = {0: "[BOS]", 1: "[EOS]", 2: "<|im_end|>", 3: "<|im_user|>", 4: "<|im_assistant|>", 6: "<|start_header_id|>",
              7: "<|end_header_id|>", 9: "[EOT]", 10: "<|im_system|>", 11: "<|tool_calls_section_begin|>",
              12: "<|tool_calls_section_end|>", 13: "<|tool_call_begin|>", 14: "<|tool_call_argument_begin|>",
              15: "<|tool_call_end|>", 17: "<|im_middle|>", 254: "[UNK]", 255: "[PAD]"}

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
    return texts + family_texts(big)


def family_texts(big):
    """Texts for the DeepSeek and Kimi tokenizers: their added tokens and what is near the edges of their patterns."""
    rng = random.Random(3)
    names = DEEPSEEK_ADDED + list(KIMI_ADDED.values()) + ["<|reserved_token_1305|>", "<|reserved_token_9|>"]
    texts = []
    for name in names:
        for other in ["", " ", "x", "中", "\n"]:
            texts.append((other + name + other + name).encode())
        texts += [name[:-1].encode(), name[1:].encode(), (name[:3] + name).encode()]
    texts += [t.encode() for t in [
        " 中文", "\u3000中", " ⺀x", "中⺀", "!⺀", "1〇〇〇", "x々y", "々x", "A中B", "中A's", "한국ABC", "ABC한국DEF", "あい中う", "カタカナー中",
        "中文字。日本語です", "０１２３", "!\n/x", "\x1c\x1c a", "\u0301A!", "!\u0301", "!!\u0301", "'llama", "1's", "don't", "it'ſ",
        "camelCase", "HTMLParser", "ǅungla ǅ", "ÀÉÎ'RE", "x\U00016fe2\U00016fe3\U00016ff0y", "\U00031350a\U000323b0b", "𠀀a𪛟b\U0002ee5d\U0002ee5e",
        "12345", "1 234 5678", "a1b22c333d4444", "«a» “b” ‘c’ —d… 'e 'F", "~a ^b _c $d\r\n", "$€£ +−×÷", "x\r\n\r\n  y\n\n \t z  ",
        "ࠀऀ一가힣퟿", "一龥龦", "ぁゟ゠ヿ㄀", "tail  ", "  \n ", "\n\n\n", "。。\n!?\n\n", "a" * 81, "a" * 145, "a" * 300, "I've we're",
        "x;\r\ny!\n"]]
    pool = ["中文", "字", "々", "〇", "ABC", "Abc", "abc", "'s", "'LL", " ", "  ", "\n", "1", "99", "12345", "é", "e\u0301", "ſ", "한글", "かな", "カナ",
            "。", "!", "「", "<think>", "<｜User｜>", "<|im_end|>", "[EOS]", "𠀀", "\u3000", "\x1c", "/", "\r\n", "$", "．", "ʰ", "ǅ", "ªº"]
    for _ in range(20000 if big else 500):
        texts.append("".join(rng.choice(pool) for _ in range(rng.randint(1, 7))).encode())
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


def train_across(corpus, vocab_size, splits, added):
    """A tokenizer whose merges were learnt without its pre-tokenizer, and so cross the edges of its words: where a
    word ends is then seen in the ids."""
    data = train(corpus, vocab_size, [], False, True, added, more_lines=[t.decode() for t in family_texts(False)] * 3)
    data["pre_tokenizer"]["pretokenizers"] = [
        {"type": "Split", "pattern": {"Regex": s}, "behavior": "Isolated", "invert": False} for s in splits
    ] + data["pre_tokenizer"]["pretokenizers"]
    return data


def train(corpus, vocab_size, splits, normalizer, merges_as_strings, added, ignore_merges=False, more_lines=None):
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
    lines += more_lines or []
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


def deepseek_tokens(extra):
    """DeepSeek's kinds: normalised special ones, special ones that are not, and plain added ones."""
    from tokenizers import AddedToken
    return [AddedToken(name, special=i < 3, normalized=i < 3 or name in extra) for i, name in enumerate(DEEPSEEK_ADDED)]


def make_deepseek(data):
    """What the published files have around the model."""
    data["normalizer"] = {"type": "Sequence", "normalizers": []}
    data["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    data["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return data


def make_deepseek_v2(data):
    steps = data["pre_tokenizer"]["pretokenizers"]
    steps.insert(len(steps) - 1, {"type": "Digits", "individual_digits": True})
    return make_deepseek(data)


def write_deepseek_config(folder, data):
    """The first form names its tokens by objects and has its template in the config, the second by strings and a file
    of its own."""
    is_v2 = folder.name == "deepseek_v2"
    names = [{"__type": "AddedToken", "content": name, "lstrip": False, "normalized": True, "rstrip": False,
              "single_word": False} for name in (BOS, EOS)]
    config = {"add_bos_token": True, "add_eos_token": False, "bos_token": BOS if is_v2 else names[0],
              "eos_token": EOS if is_v2 else names[1], "model_max_length": 16384, "unk_token": None,
              "tokenizer_class": "LlamaTokenizerFast"}
    template = (TEMPLATES / ("deepseek_v2.jinja" if is_v2 else "deepseek_r1.jinja")).read_text(encoding="utf-8")
    if is_v2:
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    else:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    ids = {t["content"]: t["id"] for t in data["added_tokens"]}
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": ids[BOS], "eos_token_id": ids[EOS]}) + "\n")


def write_golden_ids(folder, with_special, without_special):
    ids = bytearray()
    for special, plain in zip(with_special, without_special):
        ids += leb128(len(special)) + b"".join(map(leb128, special))
        ids += leb128(0) if plain == special else leb128(len(plain) + 1) + b"".join(map(leb128, plain))
    (folder / "ids.bin").write_bytes(ids)


def write_golden_text(folder, known, decode, big):
    rng = random.Random(7)
    decoded = bytearray()
    for _ in range(3000 if big else 300):
        sequence = [rng.choice(known if rng.random() < 0.5 else known[:256]) for _ in range(rng.randint(1, 12))]
        text = decode(sequence).encode()
        decoded += leb128(len(sequence)) + b"".join(map(leb128, sequence)) + leb128(len(text)) + text
    (folder / "decode.bin").write_bytes(decoded)


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
        "deepseek": make_deepseek(train_across(corpus, 1500, SEVERAL, deepseek_tokens(["<｜fim▁hole｜>"]))),
        "deepseek_v2": make_deepseek_v2(train_across(corpus, 1500, DEEPSEEK_V2, deepseek_tokens([]))),
    }
    for name, data in kinds.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")
        if name.startswith("deepseek"):
            write_deepseek_config(folder, data)
        tokenizer = Tokenizer.from_str(text)
        strings = [t.decode("utf-8", "replace") for t in texts]
        encoded = []
        for special in (True, False):
            tokenizer.encode_special_tokens = not special
            encoded.append([e.ids for e in tokenizer.encode_batch(strings, add_special_tokens=False)])
        write_golden_ids(folder, *encoded)
        # Added tokens outside ASCII are left out: Hugging Face reads their letters as bytes.
        known = [i for i in range(tokenizer.get_vocab_size()) if tokenizer.id_to_token(i) is not None]
        known = [i for i in known if i not in {t["id"] for t in data["added_tokens"] if not t["content"].isascii()}]
        write_golden_text(folder, known, lambda ids: tokenizer.decode(ids, skip_special_tokens=False), big)


# ----------------------------------------------------------------------------------------------------- tiktoken

def kimi_ranks(corpus):
    """Ranks as training gives them, then shuffled in part and mixed with tokens that no merge of two ranked before
    leads to, so that only the rule itself (lowest rank first) gives the right ids."""
    from tokenizers import pre_tokenizers
    data = train_across(corpus, 2000, [KIMI], [])
    tokens = [""] * len(data["model"]["vocab"])
    for key, i in data["model"]["vocab"].items():
        tokens[i] = key
    alphabet = {c: b for b, c in bytes_to_unicode().items()}
    assert set(alphabet) == set(pre_tokenizers.ByteLevel.alphabet())
    ranked = [bytes(alphabet[c] for c in token) for token in tokens]
    rng = random.Random(5)
    odd = [b"qzq", b"\xe4\xb8\xad\xe6\x96", b"xx\xff", b"   \n  ", b"!?!?!?!", "中文字".encode(), b"aaaa" * 20, b"zebra crossing",
           b"\x1c\x1c", b"\x1c\x1c\x1c", b"a" * 128, b"a" * 256, b"I've", b"we're", "\U00031350a".encode(), b"!\n", b";\r\n"]
    tail = ranked[256:] + [t for t in odd if t not in ranked]
    for _ in range(200):
        i, j = rng.randrange(len(tail)), rng.randrange(len(tail))
        tail[i], tail[j] = tail[j], tail[i]
    return ranked[:256] + tail


def bytes_to_unicode():
    printable = list(range(0x21, 0x7f)) + list(range(0xa1, 0xad)) + list(range(0xae, 0x100))
    rest = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(0x100 + i) for i, b in enumerate(rest)}}


def kimi_split(text):
    """The pieces that tokenization_kimi.py hands to tiktoken: 400,000 characters, and at most 25,000 in a row of
    white space or of anything else."""
    for at in range(0, len(text), 400_000):
        piece, run, start = text[at:at + 400_000], 0, 0
        for i, c in enumerate(piece):
            run = run + 1 if i > 0 and c.isspace() == piece[i - 1].isspace() else 1
            if run > 25_000:
                yield piece[start:i]
                start, run = i, 1
        yield piece[start:]


# Parts (text, times) of the texts whose cuts matter.
KIMI_LONG = [
    [("a", 24998), ("[BOS]", 1), ("b", 10)], [("a", 24990), ("[BOS]", 1), ("b", 10)], [("a", 25000), ("[BOS]", 1)],
    [("a", 20000), ("[BOS]", 1), ("b", 10000)], [(" ", 25001), ("x", 3)], [(" ", 24999), ("\x1c", 3), ("x", 3)],
    [("ab ", 9000), ("x" * 7, 4000)], [("中", 25003)], [("\n", 60001)], [("the cat ", 49999), ("<|im_end|>", 2), ("zebra ", 90)],
    [("é", 25000), ("e\u0301", 1), ("é", 12600)], [("!", 50000), (" ", 25000), ("1", 25001)], [("word ", 80000), ("\u3000", 5), ("y", 9)],
    [("ab cd ", 66666), ("wonderful things of the best", 1)],
]


def fnv(ids):
    value = 0xcbf29ce484222325
    for byte in b"".join(struct.pack("<I", i) for i in ids):
        value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return value


def make_kimi(out, corpus, texts, big):
    import base64
    import tiktoken
    ranks = kimi_ranks(corpus)
    names = {len(ranks) + i: KIMI_ADDED.get(i, f"<|reserved_token_{len(ranks) + i}|>") for i in range(256)}
    encoding = tiktoken.Encoding(name="kimi", pat_str=KIMI, mergeable_ranks={t: i for i, t in enumerate(ranks)},
                                 special_tokens={name: i for i, name in names.items()})
    folder = out / "kimi"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [base64.b64encode(t) + b" %d\n" % i for i, t in enumerate(ranks)]
    (folder / "tiktoken.model").write_bytes(b"".join(lines))
    shown = {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
             "<|tool_call_argument_begin|>", "<|tool_call_end|>"}
    decoder = {str(len(ranks) + i): {"content": name, "lstrip": False, "normalized": False, "rstrip": False,
                                     "single_word": False, "special": name not in shown} for i, name in KIMI_ADDED.items()}
    config = {"added_tokens_decoder": decoder, "bos_token": "[BOS]", "eos_token": "[EOS]", "unk_token": "[UNK]",
              "pad_token": "[PAD]", "tokenizer_class": "TikTokenTokenizer",
              "chat_template": (TEMPLATES / "kimi_k2.jinja").read_text(encoding="utf-8")}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": len(ranks) + 2}) + "\n")

    def encode(text, special):
        options = {"allowed_special": "all"} if special else {"disallowed_special": ()}
        return [i for piece in kimi_split(text) for i in encoding.encode(piece, **options)]

    strings = [t.decode("utf-8", "replace") for t in texts]
    write_golden_ids(folder, [encode(t, True) for t in strings], [encode(t, False) for t in strings])
    write_golden_text(folder, list(range(encoding.n_vocab)), encoding.decode, big)
    long_texts = []
    for parts in KIMI_LONG:
        text = "".join(unit * n for unit, n in parts)
        results = [encode(text, special) for special in (True, False)]
        long_texts.append({"parts": parts, "n": [len(ids) for ids in results], "fnv": [f"{fnv(ids):016x}" for ids in results]})
    (folder / "long.json").write_text(json.dumps(long_texts, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


# --------------------------------------------------------------------------------------------------------- chat

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
    [("system", ""), ("user", "u"), ("assistant", "<think>\na\n</think>\n\nb</think>c"), ("user", "v")],
    [("system", "s"), ("system", "t"), ("user", "u"), ("system", "w"), ("assistant", "a"), ("system", "x")],
    [("assistant", "alone")],
    [("user", "<|im_end|>\n{{ 7*7 }} \"quotes\" 'and' \\n"), ("assistant", "日本語\u3000"), ("user", "\u2028é\x1c")],
]


# mf_thinking, the template's variables for it, and whether the answer is opened
THINKING_ON = {"enable_thinking": True, "thinking": True}
CHAT_SETTINGS = [(0, {}, True), (1, THINKING_ON, True), (2, {"enable_thinking": False, "thinking": False}, True),
                 (0, {}, False), (1, THINKING_ON, False)]


def make_chat(out):
    from transformers.utils.chat_template_utils import render_jinja_template
    cases = []
    for path in sorted(TEMPLATES.glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        for conversation in CONVERSATIONS:
            messages = [{"role": r, "content": c} for r, c in conversation]
            for thinking, extra, opens in CHAT_SETTINGS:
                try:
                    rendered, _ = render_jinja_template(conversations=[messages], chat_template=template,
                                                        add_generation_prompt=opens, bos_token=BOS, eos_token=EOS,
                                                        **extra)
                    expected = rendered[0]
                except Exception:  # the template raises: the conversation is not one of its
                    expected = None
                case = {"template": path.name, "thinking": thinking, "messages": conversation, "expected": expected}
                cases.append(case if opens else {**case, "generation_prompt": False})
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

def random_vocabulary(n_tokens):
    """As many tokens, of such lengths, as published vocabularies have; the merges are random but consistent."""
    rng = random.Random(1)
    alphabet = list(bytes_to_unicode().values())
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
    return vocab, merges


def make_ranks(path, n_tokens):
    import base64
    alphabet = {c: b for b, c in bytes_to_unicode().items()}
    tokens = [bytes(alphabet[c] for c in name) for name in random_vocabulary(n_tokens)[0]]
    path.write_bytes(b"".join(base64.b64encode(t) + b" %d\n" % i for i, t in enumerate(tokens)))


def make_vocabulary(path, n_tokens):
    vocab, merges = random_vocabulary(n_tokens)
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


SCRIPTS = "Arabic Cyrillic Devanagari Greek Han Hangul Hebrew Hiragana Katakana Latin Thai".split()


def old_script_members(script):
    """The characters that PCRE2 10.40 to 10.42 (Unicode 14) has in a script."""
    import ctypes
    pcre = ctypes.CDLL("libpcre2-8.so.0")
    pcre.pcre2_compile_8.restype = pcre.pcre2_match_data_create_8.restype = ctypes.c_void_p
    version = ctypes.create_string_buffer(64)
    pcre.pcre2_config_8(10, version)
    assert version.value.startswith(b"14."), "needs a PCRE2 with Unicode 14"
    pattern = rb"\p{sc:%s}" % script.encode()
    code = ctypes.c_void_p(pcre.pcre2_compile_8(pattern, ctypes.c_size_t(len(pattern)), 0x80000,
                                                ctypes.byref(ctypes.c_int()), ctypes.byref(ctypes.c_size_t()), None))
    assert code.value
    match = ctypes.c_void_p(pcre.pcre2_match_data_create_8(1, None))
    members = set()
    for c in range(0x110000):
        if not 0xd800 <= c < 0xe000:
            text = chr(c).encode()
            if pcre.pcre2_match_8(code, text, ctypes.c_size_t(len(text)), ctypes.c_size_t(0), 0, match, None) > 0:
                members.add(c)
    return members


def ranges(name, characters):
    rows = []
    for c in sorted(characters):
        if rows and rows[-1][2] == c - 1:
            rows[-1][2] = c
        else:
            rows.append([name, c, c])
    return rows


def addition_table(name, rows):
    return [f"const mf_unicode_addition mf_{name}_additions[] = {{"] + \
        ['    {"%s", 0x%X, 0x%X},' % tuple(row) for row in rows] + \
        ["};", f"const size_t mf_n_{name}_additions = sizeof mf_{name}_additions / sizeof *mf_{name}_additions;"]


def make_unicode_additions(path):
    assert unicodedata.unidata_version == "14.0.0", "needs a Python with Unicode 14"
    rows, script_rows = [], []
    for category in "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp".split():
        known = {c for c in range(0x110000) if unicodedata.category(chr(c)) == category}
        rows += ranges(category, class_members(r"\p{%s}" % category) - known)
    for script in SCRIPTS:
        script_rows += ranges(script, class_members(r"\p{%s}" % script) - old_script_members(script))
    lines = ["/* SPDX-License-Identifier: MIT */", "/*",
             " * Generated by tools/make_text_goldens.py --unicode-additions: characters that have a general",
             " * category in Unicode 16, which Hugging Face tokenizers matches by, and none or another in Unicode",
             " * 14, which the oldest supported PCRE2 has; and the same for the scripts that patterns may name.", " */",
             '#include "text/unicode_additions.h"', ""]
    lines += addition_table("unicode", sorted(rows, key=lambda row: row[1])) + [""] + addition_table("script", script_rows) + [""]
    path.write_text("\n".join(lines))


def joins(data, c):
    """What normalization form C may do something about: marks that sort, and what decomposes or composes."""
    parts = data.normalize("NFD", chr(c))
    return [c] * (data.combining(chr(c)) != 0) + ([c] + [ord(p) for p in parts] if parts != chr(c) else [])


def newer_characters():
    """Those that the tokenizers package, whose NFC is of Unicode 10, leaves alone, though that of today does not."""
    import unicodedata2 as data  # Unicode 18; not every Python is so new
    from tokenizers import normalizers
    nfc = normalizers.NFC().normalize_str
    all_of_them = {j for c in range(0x110000) if not 0xd800 <= c < 0xe000 for j in joins(data, c)}
    newer = set()
    for c in all_of_them:
        around = ["中\u0345" + chr(c), "中" + chr(c) + "\u0334", data.normalize("NFD", chr(c))]
        if any(nfc(text) != data.normalize("NFC", text) for text in around):
            newer |= set(joins(data, c))
    return {c for c in newer if unicodedata.ucd_3_2_0.category(chr(c)) == "Cn"}  # not what they join to


def make_nfc_newer(path):
    lines = ["/* SPDX-License-Identifier: MIT */", "/*",
             " * Generated by tools/make_text_goldens.py --nfc-newer: characters that normalization form C sorts,",
             " * composes or decomposes, but not that of the tokenizers package, which knows Unicode 10's.", " */",
             '#include "text/nfc_newer.h"', "", "const mf_char_range mf_nfc_newer[] = {"]
    lines += ["    {0x%X, 0x%X}," % (first, last) for _, first, last in ranges("", newer_characters())]
    path.write_text("\n".join(lines + ["};", "const size_t mf_n_nfc_newer = sizeof mf_nfc_newer / sizeof *mf_nfc_newer;", ""]))


def make_nfc_goldens(path):
    """Texts and what the tokenizers package makes of them, in turn."""
    import unicodedata2 as data
    from tokenizers import normalizers
    rng, nfc = random.Random(5), normalizers.NFC().normalize_str
    newer = sorted(newer_characters())
    marks = [c for c in range(0x110000) if data.combining(chr(c)) and c not in newer]
    rows = []
    for c in newer:
        text = "".join(chr(x) for x in [rng.choice([0x61, 0x4e2d]), rng.choice(marks), c, rng.choice([0x301, 0x334, 0x323]), rng.choice(newer)])
        rows += [text, nfc(text)]
    for c in rng.sample([c for c in range(0x110000) if not 0xd800 <= c < 0xe000 and data.normalize("NFD", chr(c)) != chr(c)], 100):
        text = chr(c) + data.normalize("NFD", chr(c)) + chr(rng.choice(marks))
        rows += [text, nfc(text)]
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("--big", action="store_true")
    parser.add_argument("--vocabulary", type=int)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--unicode-additions", action="store_true")
    parser.add_argument("--nfc-newer", action="store_true")
    parser.add_argument("--nfc-goldens", action="store_true")
    options = parser.parse_args()
    if options.vocabulary:
        return make_vocabulary(options.out, options.vocabulary)
    if options.ranks:
        return make_ranks(options.out, options.ranks)
    if options.unicode_additions:
        return make_unicode_additions(options.out)
    if options.nfc_newer:
        return make_nfc_newer(options.out)
    if options.nfc_goldens:
        return make_nfc_goldens(options.out)
    if options.corpus is None:
        parser.error("--corpus is needed")
    options.out.mkdir(parents=True, exist_ok=True)
    texts = make_texts(options.corpus, options.big)
    write_texts(options.out / "texts.bin", texts)
    make_tokenizers(options.out, options.corpus, texts, options.big)
    make_kimi(options.out, options.corpus, texts, options.big)
    make_chat(options.out)
    make_sampler(options.out)


if __name__ == "__main__":
    main()
