#!/bin/sh
# SPDX-License-Identifier: MIT
# check_grammar.sh BUILD_DIR [N_SCHEMAS]: what grammars let through against PyPI's jsonschema, which
# is installed into BUILD_DIR/grammar-check.
set -eu
cd "$(dirname "$0")/.."

build=$1
python=$build/grammar-check/bin/python
[ -x "$python" ] || python3 -m venv "$build/grammar-check"
pins=$(sed -n 's/^PINNED = {\(.*\)}$/\1/p' tools/check_grammar.py | tr -d '" ' | sed 's/:/==/g; s/,/ /g')
# shellcheck disable=SC2086 # a list of words
"$python" -m pip install -q --disable-pip-version-check $pins
"$python" tools/check_grammar.py "$build/tools/grammar_probe" models/demo "${2:-400}"
