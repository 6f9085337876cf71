#!/bin/sh
# SPDX-License-Identifier: MIT
# check_abi.sh BUILD_DIR [--update]: holds the ABI of BUILD_DIR's libmoeflux.so, built with debugging
# information, against that of the last release (cmake/abi/libmoeflux.so.0.abi). Functions and fields at
# the end of structs may come; what is there neither goes nor changes. --update: it is the release.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
library=${1:?usage: check_abi.sh BUILD_DIR [--update]}/libmoeflux.so
released=$root/cmake/abi/libmoeflux.so.0.abi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

readelf -S "$library" | grep -q '\.debug_info' || {
    echo "abi: $library has no debugging information" >&2
    exit 1
}
# What it is linked with is no part of it, and sanitizers would be.
abidw --headers-dir "$root/include" --drop-private-types --no-show-locs --no-corpus-path \
    --no-comp-dir-path --drop-undefined-syms "$library" |
    sed '/<elf-needed>/,/<\/elf-needed>/d' >"$work/abi"
if [ "${2:-}" = --update ]; then
    cp "$work/abi" "$released"
    echo "abi: $(grep -c '<elf-symbol ' "$released") symbols described"
    exit 0
fi
result=0
abidiff --no-added-syms --suppr "$root/cmake/abi/suppress.ini" "$released" "$work/abi" >"$work/report" 2>&1 || result=$?
if [ "$result" -ne 0 ]; then
    head -80 "$work/report" >&2
    echo "abi: libmoeflux.so.0 has changed for programs that were built with the last release:" >&2
    echo "abi: take it back, or rename the versions of all functions in cmake/moeflux.map and run $0 BUILD_DIR --update" >&2
    exit 1
fi
echo "abi: $(grep -c '<elf-symbol ' "$work/abi") symbols, those of the last release as they were"
