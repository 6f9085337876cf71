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
# The document's first program, as it stands there.
root=$(cd "$dir/../.." && pwd)
awk '/^```/ { if (is_in) exit; if ($0 == "```python") { is_in = 1; next } } is_in' "$root/docs/PYTHON.md" >"$MOEFLUX_CALLS/first.py"
[ "$(cd "$root" && "$python" "$MOEFLUX_CALLS/first.py" | wc -c)" -gt 100 ] || fail "docs/PYTHON.md's first program writes little"
echo "python examples: all work"
