#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/text/data/gguf_words.json: how the pre-tokenizers that GGUF names cut texts into words, by PyPI's tokenizers.

Needs tokenizers. Usage: tools/make_pre_goldens.py [OUT]
The patterns are the published ones, in their own words; what is the same for several names is there once.
"""
import json
import sys
from pathlib import Path

from tokenizers import Regex, pre_tokenizers

SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA = SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + END
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(after):
    start = r"[^\r\n\p{L}\p{N}]?"
    return f"{start}{UPPER}*{LOWER}+{after}|{start}{UPPER}+{LOWER}*{after}"


SLASH = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PRE = {
    "qwen2": [SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + END],
    "llama-bpe pixtral falcon3 falcon-h1 midm-2.0 lfm2 glm4 chatglm-bpe": [LLAMA],
    "gpt-4o minimax-m2": [cased(SHORT + "?") + r"|\p{N}{1,3}" + SLASH],
    "tekken": [cased("") + r"|\p{N}" + SLASH],
    "gpt-2 trillion granite-docling": [GPT2],
    "starcoder mellum2": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "seed-coder": [SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "bailingmoe bailingmoe2 llada-moe": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "minicpm5": [r"\p{N}{1,3}", SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+" + END],
    "youtu": ["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+", cased(SHORT + "?") + r"|\p{N}" + SLASH],
    "ufakzeka": [r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + END],
    "viking": [r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"],
    "deepseek-v3 hunyuan-dense": [
        r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
}
TEXTS = [
    "Hello, world! It's 12345 o'clock; they'LL say: I'VE $1,234.56 + 7 <= 8^2 ~ `x|y`.",
    "  two  spaces\n\n\n and\ttabs \t\r\n\r\nlines \n", "if (a[i] != 0x1F) { return b->c; } // done\n\n#end",
    "camelCaseWord HTTPServer IDs İstanbul'dan Ankara'nın straße ǅ ʰa", "中文、日本語のテキスト！한국어 텍스트ㄱㄴ “引用”…—；ㄅㄆ 〜",
    "é à́b̈c हिन्दी में। اردو، متن۔ ประเทศไทย", "1 22 333 4444 55555 ½ ٣٤٥ Ⅷ 一二三123", "a/b/c http://x.y/z?q=1&r=2 e-mail@host.com #tag",
    "x}\n  12   345\n};\r\n(a)\n\n]", "😀👩‍👩‍👧 ok 🇩🇪!!! ...", " ", "\n", "x", "'s 'T don't DON'T 're'Ve", "(well) [yes] {no} \"quoted\" «fr» -- —",
]


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "tests/text/data/gguf_words.json"
    rows = []
    for names, patterns in PRE.items():
        cut = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns])
        rows.append({"names": names.split(), "words": [[word for word, _ in cut.pre_tokenize_str(t)] for t in TEXTS]})
    lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows)
    out.write_text('{"texts": ' + json.dumps(TEXTS, ensure_ascii=False) + ',\n "rows": [\n' + lines + "\n]}\n")
    print(f"{out}: {len(rows)} pre-tokenizers, {len(TEXTS)} texts")


if __name__ == "__main__":
    main()
