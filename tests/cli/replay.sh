# SPDX-License-Identifier: MIT
# Traces of routing, and moeflux replay: what run, perplexity and bench record is read again, a grid
# has a row for each of its points, a plot is XML, and what is no trace is refused.
. ./lib.sh
has_model "$demo" || skip "models/demo is not there"

run perplexity "$demo" "$demo/heldout.txt" --tokens 40 --prefill-chunk 1 --expert-cache 0 --quiet \
    --trace "$scratch/text"
expect_code 0
run replay "$scratch/text" --slots 4,25%,100% --policy next-use,lru --svg "$scratch/plot.svg"
expect_code 0
expect_empty "$err"
expect_lines "$out" 8
expect_glob "$out" "*8 layers of 32 experts, 4 a token; 40 tokens in 40 evaluations
*slots policy*Belady*tokens/s*
*4 next-use*64 next-use*256 next-use*4 lru*64 lru*256 lru*"
expect_glob "$scratch/plot.svg" "<svg *<polyline *Belady*</svg>"
# of many lines each is drawn in a way of its own, by which its name in the legend goes; names lie within
run replay "$scratch/text" --policy next-use,lru,lfu,s3-fifo,lru --predict off,auto,last-token,off --svg "$scratch/plot.svg"
expect_code 0
# styles TAG: how those elements are drawn
styles() {
    sed -n "s/^<$1 fill=\"none\" stroke-width=\"2\" \(stroke=\"[^\"]*\"\( stroke-dasharray=\"[^\"]*\"\)*\) .*/\1/p" "$scratch/plot.svg"
}
styles polyline | uniq >"$scratch/lines"
styles line >"$scratch/names"
expect_lines "$scratch/lines" 21
expect_true [ "$(sort -u "$scratch/lines" | wc -l)" -eq 21 ]
expect_true [ "$(head -1 "$scratch/lines")" = "$(tail -1 "$scratch/names")" ]
expect_true [ "$(sed 1d "$scratch/lines")" = "$(sed \$d "$scratch/names")" ]
sed -n '1s/.* width="\([0-9]*\)" height="\([0-9]*\)".*/\1 \2/p
s/.*<text x="\([0-9.]*\)" y="\([0-9.]*\)">[a-z0-9-]*, .*/\1 \2/p' "$scratch/plot.svg" >"$scratch/places"
expect_lines "$scratch/places" 21
expect_true awk 'NR == 1 { w = $1; h = $2; next } $1 > w - 110 || $2 > h - 10 { exit 1 }' "$scratch/places"

# as many hits as the engine counted
run run "$demo" -p "Once upon a time" -n 12 --temp 0 --expert-cache 2M --prefill-chunk 1 --quiet \
    --predict off --trace "$scratch/answer" --stats=json:"$scratch/stats"
expect_code 0
run replay "$scratch/answer" --slots "$(json "$scratch/stats" n_slots)" --json
expect_code 0
expect_lines "$out" 1
expect_true [ "$(json "$out" expert_hits)" = "$(json "$scratch/stats" expert_hits)" ]
expect_true [ "$(json "$out" expert_misses)" = "$(json "$scratch/stats" expert_misses)" ]
expect_true at_most "$(json "$out" expert_hits)" "$(json "$out" best_hits)"

# a checkpoint of random weights follows it, and asks for the same
random_model
rm -r "$model"
"$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b --layers 8 --experts 32 --experts-per-token 4 \
    --hidden 128 --expert-hidden 64 --shared-hidden 64 --vocab 1024 --heads 4 --kv-heads 2 \
    --head-dim 64 --linear-v-heads 4 --linear-k-heads 2 --linear-k-dim 32 --linear-v-dim 32 \
    --quiet "$model" >/dev/null
run bench "$model" --routing "$scratch/text" --trace "$scratch/followed" --prompt-tokens 40 \
    --prefill-chunk 1 --gen-tokens 0 --repeat 1 --warmup 0 --measure-ms 0 --json
expect_code 0
run replay "$scratch/followed" --slots 64 --json
expect_code 0
followed=$(json "$out" expert_hits)
run replay "$scratch/text" --slots 64 --json
expect_true [ "$(json "$out" expert_hits)" = "$followed" ]
rm -r "$model"
random_model
run bench "$model" --routing "$scratch/text" --measure-ms 0
expect_error "a trace of 4 of 32 experts a token, expected 4 of 16"

# of a text that no test made, the engine's own policy finds more than frequency with ageing
if [ -z "${SANITIZE:-}" ]; then
    for policy in lfu next-use; do
        run replay "$SOURCE/bench/routing/books-256x8.trace" --slots 25% --policy $policy --json
        expect_code 0
        cp "$out" "$scratch/$policy"
    done
    expect_true [ "$(json "$scratch/next-use" expert_hits)" -gt "$(json "$scratch/lfu" expert_hits)" ]
fi

# what cannot be is known before the trace is looked at
run replay "$scratch/none" --slots 4 --ram 1G
expect_usage_error "replay: --slots and --ram exclude each other"
run replay "$scratch/none" --predict off,never
expect_usage_error "--predict: 'never' is not auto, off, next-layer, last-token, frequency or wrong"
run replay "$scratch/none" --policy next-use,lru,best
expect_usage_error "--policy: 'best' is not next-use, lru, lfu or s3-fifo"
run replay "$scratch/none" --svg "$scratch"
expect_error "$scratch: cannot open: Is a directory"
run replay "$scratch/none" --svg "$scratch/no/plot.svg"
expect_error "$scratch/no/plot.svg: cannot open: No such file or directory"
run replay "$scratch/text" --ram 1M
expect_error "* expert slots, expected at least the 4 of one token and layer: *"
run replay "$demo/config.json"
expect_error "$demo/config.json: byte 0: no trace of routing"
run replay "$scratch/none"
expect_error "$scratch/none: No such file or directory"
mkfifo "$scratch/fifo" # that nobody writes to
run replay "$scratch/fifo"
expect_error "$scratch/fifo: not a regular file"
head -c 1000 "$scratch/text" >"$scratch/short"
run replay "$scratch/short"
expect_error "$scratch/short: byte *: the trace ends within a block"
run replay "$scratch/text" --warmup 39 --json --slots 50%
expect_true [ "$(json "$out" tokens)" = 1 ]
run replay "$scratch/text" --warmup 40
expect_error "$scratch/text: --warmup leaves none of 40 evaluations"
# a share is read as precisely as it is given
run replay "$scratch/text" --slots 25% --json
whole=$(json "$out" n_slots)
run replay "$scratch/text" --slots 24.9999999% --json
expect_true [ "$(json "$out" n_slots)" -eq $((whole - 1)) ]
run replay "$scratch/text" --slots 0
expect_usage_error "--slots: '0' is not a number of slots or a share"
run replay "$scratch/text" --drive fast
expect_usage_error "--drive: 'fast' is not bytes a second, like 3.5G"
run replay "$scratch/text" --latency 80
expect_usage_error "--latency: '80' is not a time, like 80us or 1ms"
run replay
expect_usage_error "replay: TRACE is missing"
run perplexity "$demo" "$demo/heldout.txt" --tokens 4 --trace "$scratch/no/such" --quiet
expect_error "$scratch/no/such: No such file or directory"
finish
