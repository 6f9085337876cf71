#!/bin/sh
# SPDX-License-Identifier: MIT
# From what the program says of itself: a manual page for each command, and completions for bash, zsh
# and fish. Usage: make_pages.sh PROGRAM OUT
set -eu
program=$1
out=$2
script=$(dirname "$0")/make_pages.awk
mkdir -p "$out"
version=$("$program" version | sed -n '1s/^moeflux //p')
names=$("$program" help | awk '/^Commands:/ { on = 1; next } on && !/^  [a-z]/ { exit } on { print $1 }')
[ -n "$version" ] && [ -n "$names" ]
for name in $names; do
    "$program" help | awk -v name="$name" '$1 == name && /^  [a-z]/ { sub(/^ *[a-z]+ +/, ""); print "@command " name " " $0; exit }'
    "$program" help "$name"
done >"$out/help.txt"
for form in man bash zsh fish; do
    awk -v form=$form -v version="$version" -v out="$out" -f "$script" "$out/help.txt"
done
rm "$out/help.txt"
