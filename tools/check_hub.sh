#!/bin/sh
# SPDX-License-Identifier: MIT
# check_hub.sh BUILD_DIR: huggingface_hub, as published, and `moeflux pull` with one cache and one hub
# (that of the tests): each finds what the other fetched. It is installed into BUILD_DIR/hub, from PyPI.
set -eu
cd "$(dirname "$0")/.."

build=$(cd "$1" && pwd)
python=$build/hub/python/bin/python
[ -x "$python" ] || python3 -m venv "$build/hub/python"
"$python" -m pip install -q --disable-pip-version-check huggingface_hub==2.4.0

export SOURCE="$PWD" MOEFLUX="$build/moeflux" MAKE_CHECKPOINT="$build/make_random_checkpoint"
export HUB_SERVER="$build/tests/hub/hub_server" PYTHON="$python"
cd tests/hub
exec sh ./interop.sh
