#!/bin/sh
# SPDX-License-Identifier: MIT
# Makes docs/images/compare.svg, and the table between <!-- compare --> and <!-- /compare --> in the
# README, of bench/compare/results.tsv, which compare.sh measured. With --check: ends with 1 where they are
# not what it would make.
set -eu
cd "$(dirname "$0")/../.."
results=bench/compare/results.tsv
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk -f bench/compare/plot.awk "$results" >"$work/compare.svg"
awk -f bench/compare/table.awk "$results" >"$work/table"
awk -v table="$work/table" '
    $0 == "<!-- /compare -->" { inside = 0 }
    !inside
    $0 == "<!-- compare -->" {
        inside = n = 1
        print ""
        print "![tokens/s over memory](docs/images/compare.svg)\n"
        while ((getline line < table) > 0)
            print line
        print ""
    }
    END { exit !n }' README.md >"$work/README.md"
if [ "${1:-}" = --check ]; then
    cmp "$work/compare.svg" docs/images/compare.svg && cmp "$work/README.md" README.md
else
    cp "$work/compare.svg" docs/images/compare.svg
    cp "$work/README.md" README.md
fi
