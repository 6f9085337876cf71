#!/bin/sh
# SPDX-License-Identifier: MIT
# check_page.sh BUILD_DIR [FOLDER]: the page of `moeflux serve` in Debian's Chromium, without a window. Pictures of it are
# left in FOLDER. tools/setup.sh --dev installs the browser.
set -eu
[ $# -lt 2 ] || { mkdir -p "$2" && pictures=$(cd "$2" && pwd); }
cd "$(dirname "$0")/.."

build=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# The model of the tests that chats and thinks.
SOURCE=$PWD demo=$PWD/models/demo sh -c '. tests/cli/thinking_model.sh; thinking_model "$1" qwen36.jinja' \
    sh "$scratch/thinks"
python3 tools/check_page.py "$build/moeflux" models/demo "$scratch/thinks" ${pictures:+"$pictures"}
