#!/bin/sh
# SPDX-License-Identifier: MIT
# check_gguf.sh LLAMA_PERPLEXITY [TYPE...]: the demo model as GGUF of these types (default: F32 Q8_0
# Q4_K), and its perplexity on the held-out chapter by moeflux and by llama.cpp's program, which
# must be within 0.5 % of one another. LLAMA_PERPLEXITY is llama-perplexity, or, where python3 has
# llama-cpp-python, tools/llama_perplexity.py. PYTHON is one with numpy and gguf; MOEFLUX the
# program.
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || {
    echo "usage: tools/check_gguf.sh LLAMA_PERPLEXITY [TYPE...]" >&2
    exit 2
}
llama=$1
shift
[ $# -gt 0 ] || set -- F32 Q8_0 Q4_K
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
text=models/demo/heldout.txt
for type in "$@"; do
    "${PYTHON:-python3}" tools/make_gguf.py models/demo "$work/$type.gguf" --type "$type"
    # llama.cpp scores the second halves of whole windows: tokens 257 to 512 of each
    theirs=$("$llama" -m "$work/$type.gguf" -f "$text" -c 512 2>&1 |
        sed -n 's/.*Final estimate: PPL = \([0-9.]*\).*/\1/p')
    [ -n "$theirs" ] || {
        echo "check_gguf: $llama printed no perplexity of $type" >&2
        exit 1
    }
    ours=$("${MOEFLUX:-build/moeflux}" perplexity "$work/$type.gguf" "$text" --ctx 512 --tokens 4608 \
        --skip 257 | sed -n 's/^perplexity *//p')
    echo "$type: moeflux $ours, llama.cpp $theirs"
    awk -v a="$ours" -v b="$theirs" 'BEGIN { d = a / b - 1; exit !(d < 0.005 && d > -0.005) }' || {
        echo "check_gguf: they differ" >&2
        exit 1
    }
done
