#!/bin/sh
# SPDX-License-Identifier: MIT
# Fails on a source file of more than 1500 lines, names those above 800, and fails on two files of
# the library or the program with the same name. Vendored code is exempt.
set -eu
cd "${1:-$(dirname "$0")/..}"

files=$(find include src cli server hub tests fuzz bench tools examples python -type f \
    \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.sh' -o -name '*.py' -o -name '*.comp' \) 2>/dev/null | sort)
[ -n "$files" ] || {
    echo "sizes: no sources found" >&2
    exit 1
}
status=0
for file in $files; do
    n=$(wc -l <"$file")
    if [ "$n" -gt 1500 ]; then
        echo "sizes: $file has $n lines, more than 1500" >&2
        status=1
    elif [ "$n" -gt 800 ]; then
        echo "sizes: note: $file has $n lines, more than 800"
    fi
    if ! head -3 "$file" | grep -q 'SPDX-License-Identifier: MIT'; then
        echo "sizes: $file lacks its SPDX line" >&2
        status=1
    fi
done
same=$(find src -name '*.[ch]' -type f | sed 's|.*/||' | sort | uniq -d)
if [ -n "$same" ]; then
    echo "sizes: file names used twice in src:" "$same" >&2
    status=1
fi
[ "$status" -eq 0 ] && echo "sizes: $(echo "$files" | wc -l) files"
exit "$status"
