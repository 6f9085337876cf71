#!/bin/sh
# SPDX-License-Identifier: MIT
# Formats all C sources in place; `--check` only reports, and fails if something would change.
# Version 14 decides, since later ones format some code otherwise.
set -eu
cd "$(dirname "$0")/.."

tool=clang-format-14
command -v "$tool" >/dev/null 2>&1 || tool=clang-format
case "$("$tool" --version)" in
*" 14."*) ;;
*)
    echo "format: clang-format 14 is needed, found: $("$tool" --version)" >&2
    exit 1
    ;;
esac

mode="-i"
[ "${1:-}" = "--check" ] && mode="--dry-run -Werror"
# shellcheck disable=SC2086 # two words on purpose
find include src cli server hub tests fuzz bench tools examples \( -name '*.[ch]' -o -name '*.[ch]pp' \) -type f 2>/dev/null |
    sort | xargs "$tool" $mode
