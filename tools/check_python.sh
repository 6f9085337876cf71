#!/bin/sh
# SPDX-License-Identifier: MIT
# check_python.sh BUILD_DIR: the Python package as a user has it. Builds the wheel, installs it into a
# fresh virtual environment, holds cffi's layout of every struct against the C compiler's, types with
# mypy --strict and with pyright (basedpyright, which brings its own Node), and runs tests/python and
# python/examples there.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:?usage: check_python.sh BUILD_DIR}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sh "$root/tools/build_wheel.sh" "$build" "$build/wheel"
tools=$build/python-tools/bin
# Each library in it with its license, of which it is made to keep the text.
"$tools/python" - "$build"/wheel/moeflux-*.whl <<'END'
import re, sys, zipfile
names = zipfile.ZipFile(sys.argv[1]).namelist()
libraries = {re.match(r"[a-z]+[0-9]*[a-z]*", n.split("/")[1]).group() for n in names if n.startswith("moeflux.libs/lib")}
licenses = {n.split("LICENSE.")[1] for n in names if "/LICENSE." in n}
missing = [l for l in libraries | {"yyjson", "libxxhash"} if not any(k.startswith(l) for k in licenses)]
sys.exit(f"python: the wheel has no license of {', '.join(missing)}" if missing or not libraries else 0)
END
"$tools/pip" install -q --disable-pip-version-check mypy==2.4.1 basedpyright==1.40.2

"$tools/python" "$root/python/cdef.py" --layout "$root/include" >"$work/layout.c"
cc -I"$root/include" "$work/layout.c" -o "$work/layout"
"$work/layout" >&2 || {
    echo "python: cffi lays out structs in another way than the compiler" >&2
    exit 1
}

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check "$build"/wheel/moeflux-*.whl
python=$work/venv/bin/python

# Typed as it is installed, and so are its tests and examples.
(cd "$root/tests/python" && for what in "-p moeflux" "$(ls ./*.py)" \
    "$root/python/examples/generate.py" "$root/python/examples/agent.py"; do
    # shellcheck disable=SC2086 # a list of words
    "$tools/mypy" --strict --no-error-summary --cache-dir "$build/python-tools/mypy" \
        --python-executable "$python" --config-file "$root/python/mypy.ini" $what
done)

# By the checker that editors have: strictly, and of each public name the type is known.
pyright() {
    (cd "$work" && PATH="$work/venv/bin:$PATH" "$tools/basedpyright" "$@") >"$work/pyright" 2>&1 || {
        cat "$work/pyright" >&2
        echo "python: pyright finds errors" >&2
        exit 1
    }
}
pyright --pythonpath "$python" --project "$root/python/pyrightconfig.json" --level error
pyright --verifytypes moeflux --ignoreexternal
grep -q '^Type completeness score: 100%' "$work/pyright"

# The models of the tests: the demo, and with it one that thinks and one that calls a tool.
make_model() {
    SOURCE=$root demo=$root/models/demo sh -c \
        '. "$SOURCE/tests/cli/thinking_model.sh"; thinking_model "$@"' sh "$@"
}
make_model "$work/thinks" qwen36.jinja
make_model "$work/calls" qwen36.jinja \
    '<think>\nHm.\n</think>\n\n<tool_call>\n{\"name\":\"noon\",  \"arguments\":{\"b\":2,\"a\":1.0}}\n</tool_call>'
cp "$root/tests/text/data/jinja/hermes.jinja" "$work/calls/chat_template.jinja"

export MOEFLUX_DEMO="$root/models/demo" MOEFLUX_THINKS="$work/thinks" MOEFLUX_CALLS="$work/calls"
export MOEFLUX_PROGRAM="$build/moeflux" MOEFLUX_DEVICE=cpu PYTHONDONTWRITEBYTECODE=1
cd "$root/tests/python"
"$python" -X dev -m unittest -q
sh "$root/tests/python/examples.sh" "$python" "$root/python/examples"
