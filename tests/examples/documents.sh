# SPDX-License-Identifier: MIT
# The C and C++ in docs/ is quoted from the examples, which are built and run: line by line, but for how
# far it is indented.
. ../cli/lib.sh
: >"$out"
: >"$err"

bare() {
    sed 's/^[[:space:]]*//; s/[[:space:]]*$//' "$1"
}

# quoted FILE: the lines of FILE stand one after the other in an example
quoted() {
    for example in "$SOURCE"/examples/*.c "$SOURCE"/examples/*.cpp; do
        bare "$example" | awk -v file="$1" '
            BEGIN { while ((getline line < file) > 0) want[++n] = line }
            { have[NR] = $0 }
            END {
                for (i = 1; i + n - 1 <= NR; i++) {
                    for (k = 1; k <= n && have[i + k - 1] == want[k]; k++)
                        ;
                    if (k > n)
                        exit 0
                }
                exit 1
            }' && return 0
    done
    return 1
}

n_blocks=0
for document in "$SOURCE"/README.md "$SOURCE"/docs/*.md; do
    last=$document
    n=$(grep -cE '^```c(pp)?$' "$document")
    i=0
    while [ "$i" -lt "$n" ]; do
        i=$((i + 1))
        awk -v i="$i" '/^```/ { if (is_in) exit; if ($0 ~ /^```c(pp)?$/ && ++seen == i) { is_in = 1; next } } is_in' \
            "$document" >"$scratch/block"
        bare "$scratch/block" >"$scratch/lines"
        expect_true [ -s "$scratch/lines" ]
        expect_true quoted "$scratch/lines"
        n_blocks=$((n_blocks + 1))
    done
done
expect_true [ "$n_blocks" -ge 4 ]
finish
