#!/bin/sh
# SPDX-License-Identifier: MIT
# examples.sh PYTHON DIR: the examples do what they say, on the models of check_python.sh.
set -eu
python=$1 dir=$2
fail() {
    echo "python examples: $1" >&2
    exit 1
}

out=$("$python" "$dir/generate.py" "$MOEFLUX_DEMO" "Once upon a time" "The king" --max-new-tokens 12 --ram 400M)
echo "$out" | grep -q '^likely next: ' || fail "generate.py does not say what is likely"
should=$("$MOEFLUX_PROGRAM" run "$MOEFLUX_DEMO" -p "The king" -n 12 --temp 0 --repeat-penalty 1 --ram 400M)
echo "$out" | grep -qF "The king|$should" ||
    fail "generate.py writes another text than the program, which writes \"$should\": $out"

out=$("$python" "$dir/agent.py" "$MOEFLUX_CALLS" "When is noon?" --ram 400M --turns 2)
echo "$out" | grep -qF '[noon({"b":2,"a":1.0}) -> 10:58]' || fail "agent.py does not call its tool: $out"
echo "$out" | grep -q '^\[[0-9]* tokens, [1-9][0-9]* of them held already\]' ||
    fail "agent.py evaluates again what its session holds: $out"
# The documents' programs, as they stand there. Those that do not open a model have one that calls a tool.
root=$(cd "$dir/../.." && pwd)
n_programs=0
for document in "$root/README.md" "$root/docs/PYTHON.md" "$root/python/README.md"; do
    rm -f "$MOEFLUX_CALLS"/document.*
    awk -v out="$MOEFLUX_CALLS/document" '/^```python$/ { file = sprintf("%s.%d", out, ++n); next }
        /^```/ { file = "" } file != "" { print >file }' "$document"
    for program in "$MOEFLUX_CALLS"/document.*; do
        n_programs=$((n_programs + 1))
        cat >"$MOEFLUX_CALLS/program.py" <<'END'
import os
import moeflux
tools = [{"type": "function", "function": {"name": "noon", "parameters": {"type": "object"}}}]
END
        grep -q 'moeflux.Model(' "$program" ||
            echo 'model = moeflux.Model(os.environ["MOEFLUX_CALLS"], ram_bytes="400M")' >>"$MOEFLUX_CALLS/program.py"
        { cat "$program" && echo 'print("done")'; } >>"$MOEFLUX_CALLS/program.py"
        out=$(cd "$root" && "$python" "$MOEFLUX_CALLS/program.py") || fail "$document: its program $n_programs fails"
        case $out in *done) ;; *) fail "$document: its program $n_programs does not come to its end" ;; esac
    done
done
[ "$n_programs" -ge 4 ] || fail "the documents have fewer programs than they had"
echo "python examples: all work"
