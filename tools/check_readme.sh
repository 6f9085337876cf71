#!/bin/sh
# SPDX-License-Identifier: MIT
# check_readme.sh [FOLDER]: the documents as pages, made by Debian's cmark-gfm and looked at in its Chromium, in a light and a
# dark scheme: all images are there, tables are tables, nothing is wider than the window, and what the README
# begins with is one screen. Pictures of the README are left in FOLDER. tools/setup.sh --dev installs both programs.
set -eu
[ $# -lt 1 ] || { mkdir -p "$1" && pictures=$(cd "$1" && pwd); }
cd "$(dirname "$0")/.."
python3 tools/check_readme.py ${pictures:+"$pictures"}
