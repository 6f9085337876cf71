#!/bin/sh
# SPDX-License-Identifier: MIT
# check_symbols.sh BUILD_DIR: libmoeflux.so exports exactly what the public header marks MF_API, each under
# the version that moeflux.map gives it, and every global symbol of libmoeflux.a begins with mf_.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:?usage: check_symbols.sh BUILD_DIR}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The name before the first parenthesis of each declaration that begins with MF_API.
cat "$root"/include/moeflux/*.h | tr '\n' ' ' |
    grep -oE 'MF_API +[A-Za-z_][^;({]*\(' | sed -E 's/ *\($//; s/.*[ *]//' | grep -v '^__attribute__$' |
    sort -u >"$work/declared"
[ -s "$work/declared" ] || {
    echo "symbols: no MF_API declarations found" >&2
    exit 1
}

status=0
nm -D --defined-only "$build/libmoeflux.so" | awk '$2 != "A" { print $NF }' >"$work/raw"
sed 's/@.*//' "$work/raw" | sort -u >"$work/exported"
if ! diff -u "$work/declared" "$work/exported" >"$work/diff"; then
    echo "symbols: include/moeflux (-) and libmoeflux.so (+) differ:" >&2
    grep '^[-+][^-+]' "$work/diff" >&2
    status=1
fi
# name@@version of each line of the map that names a symbol
awk '/^MOEFLUX_[0-9.]+ *\{/ { node = $1 } /^ +mf_[a-z0-9_]+;$/ { sub(/;/, "", $1); print $1 "@@" node }' \
    "$root/cmake/moeflux.map" | sort >"$work/mapped"
if ! sort "$work/raw" | diff -u "$work/mapped" - >"$work/diff"; then
    echo "symbols: cmake/moeflux.map (-) and the versions in libmoeflux.so (+) differ:" >&2
    grep '^[-+][^-+]' "$work/diff" >&2
    status=1
fi
if ! readelf -d "$build/libmoeflux.so" | grep -q 'SONAME.*\[libmoeflux\.so\.0\]'; then
    echo "symbols: the soname is not libmoeflux.so.0" >&2
    status=1
fi

nm -g --defined-only "$build/libmoeflux.a" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u >"$work/global"
[ -s "$work/global" ] || {
    echo "symbols: libmoeflux.a has no global symbols" >&2
    exit 1
}
if grep -v '^mf_' "$work/global" >"$work/stray"; then
    echo "symbols: global in libmoeflux.a without the prefix mf_:" >&2
    cat "$work/stray" >&2
    status=1
fi
[ "$status" -eq 0 ] &&
    echo "symbols: $(wc -l <"$work/exported") exported, $(wc -l <"$work/global") global, all named as they should be"
exit "$status"
