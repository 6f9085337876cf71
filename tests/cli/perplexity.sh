# SPDX-License-Identifier: MIT
# moeflux perplexity: counts, windows, and independence of the chunk size.
. ./lib.sh
random_model

for i in 1 2 3 4 5 6 7 8 9; do
    echo "line $i of a text that is long enough to be cut into windows"
done >"$scratch/text"
run tokenize "$model" -f "$scratch/text" --ids
n=$(wc -w <"$out")

run perplexity "$model" "$scratch/text" --json
expect_code 0
expect_lines "$out" 1
expect_true [ "$(json "$out" n_tokens)" = "$n" ]
expect_true [ "$(json "$out" n_scored)" = $((n - 1)) ]
expect_true [ "$(json "$out" n_windows)" = 1 ]
nll=$(json "$out" mean_nll)
perplexity=$(json "$out" perplexity)
# exp(mean), as awk computes it; and random weights cannot predict: near a uniform guess of 16384
expect_true awk -v a="$nll" -v b="$perplexity" 'BEGIN { d = exp(a) / b - 1; exit !(d < 1e-6 && d > -1e-6) }'
expect_true at_most 6 "$nll"

for chunk in 1 7 64; do
    run perplexity "$model" "$scratch/text" --json --prefill-chunk $chunk --expert-cache 0 --quiet
    expect_code 0
    expect_true [ "$(json "$out" mean_nll)" = "$nll" ]
done

run perplexity "$model" "$scratch/text" --json --ctx 16
expect_true [ "$(json "$out" n_windows)" = $(((n + 15 - (n % 16 == 1)) / 16)) ]
run perplexity "$model" "$scratch/text" --tokens 10
expect_code 0
expect_glob "$out" "tokens      10 (9 predicted, 1 window)
mean NLL    *
perplexity  *"
# the second halves of two windows
run perplexity "$model" "$scratch/text" --json --ctx 16 --tokens 32 --skip 9
expect_true [ "$(json "$out" n_scored)" = 14 ]
run perplexity "$model" "$scratch/text" --ctx 16 --skip 15 --tokens 32 --json
expect_true [ "$(json "$out" n_scored)" -eq 2 ]
# which is known before anything is evaluated
for options in "--ctx 16 --skip 16" "--tokens 20 --skip 20"; do
    # shellcheck disable=SC2086 # several words
    run perplexity "$model" "$scratch/text" $options --trace "$scratch/skipped"
    expect_error "$scratch/text: --skip leaves no token to score"
    expect_true [ ! -e "$scratch/skipped" ]
done
run perplexity "$model" "$scratch/text" --skip x
expect_code 2
: >"$scratch/empty"
run perplexity "$model" "$scratch/empty"
expect_error "$scratch/empty: has 0 tokens*"
finish
