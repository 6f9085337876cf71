# SPDX-License-Identifier: MIT
# What is read ahead changes no letter; the figures say what came of it; what is wrong is given up.
. ./lib.sh
has_model "$demo" || skip "models/demo is not there"

for cache in 0 2M; do
    run run "$demo" -p "Once upon a time" -n 48 --temp 0 --expert-cache $cache --quiet --predict off \
        --stats=json:"$scratch/off"
    expect_code 0
    expect_true [ "$(json "$scratch/off" hints)" = 0 ]
    cp "$out" "$scratch/text"
    for predict in auto wrong $([ $cache = 0 ] || echo next-layer last-token frequency); do
        run run "$demo" -p "Once upon a time" -n 48 --temp 0 --expert-cache $cache --quiet \
            --predict $predict --stats=json:"$scratch/$predict"
        expect_code 0
        expect_same "$out" "$scratch/text"
    done
    for depth in $([ $cache = 0 ] || echo 1 2 3 auto); do
        run run "$demo" -p "Once upon a time" -n 48 --temp 0 --expert-cache $cache --quiet --predict-depth $depth
        expect_code 0
        expect_same "$out" "$scratch/text"
    done
    for key in hints_useful hints_late hints_wasted; do
        expect_true at_most "$(json "$scratch/auto" $key)" "$(json "$scratch/auto" hints)"
    done
    expect_true at_most "$(json "$scratch/wrong" hints)" 64
done
run run "$demo" -p "Once" --predict-depth 4
expect_usage_error "--predict-depth: '4' is not 1, 2, 3 or auto"
# how often anything is foretold is the clock's matter, but for the trial that says whether it pays
expect_true at_most 1 "$(json "$scratch/next-layer" hints)"
expect_true at_most "$(json "$scratch/next-layer" hint_wasted_bytes)" "$(json "$scratch/next-layer" hint_bytes)"
run run "$demo" -p "Once upon a time" -n 24 --temp 0 --expert-cache 2M --quiet --stats --predict next-layer
expect_code 0
expect_glob "$err" "*foreseen * in time * late * for nothing *read ahead *of use, took *"

# where the time went, and when: the same text
run run "$demo" -p "Once upon a time" -n 48 --temp 0 --expert-cache 2M --quiet \
    --stats=layers --timeline "$scratch/timeline"
expect_code 0
expect_same "$out" "$scratch/text"
expect_glob "$err" "*time, a token * prompt * answer*attention * waiting *between evaluations *
layer *computing *right*
    7 *"
expect_glob "$scratch/timeline" '[[]
*"name":"pass"*"name":"end"*"left out":0}}
]'
expect_true grep -q '"decode_stage_us": {"other": [0-9]*, "attention"' "$scratch/auto"
expect_true grep -q '"layers": \[{"us": {"other"' "$scratch/auto"
run perplexity "$demo" "$demo/heldout.txt" --tokens 20 --quiet --timeline "$scratch/no/such"
expect_error "$scratch/no/such: cannot be made: No such file or directory"

# a mirror: the same text, from both; a part of one, one that is none, one with other bytes
mkdir "$scratch/mirror"
cp "$demo/model.safetensors" "$scratch/mirror"
run run "$demo" -p "Once upon a time" -n 48 --temp 0 --expert-cache 0 --quiet --mirror "$scratch/mirror" \
    --timeline "$scratch/timeline"
expect_code 0
expect_same "$out" "$scratch/text"
expect_true [ "$(grep -c '"reads of drive [01]"' "$scratch/timeline")" -ge 1 ]
run run "$demo" -p "Once" -n 4 --mirror "$scratch/mirror" --mirror "$scratch"
expect_error "$scratch: has no copy of a file of $demo"
printf x >>"$scratch/mirror/model.safetensors"
run run "$demo" -p "Once" -n 4 --mirror "$scratch/mirror"
expect_error "$scratch/mirror/model.safetensors: * bytes, expected * as $demo/model.safetensors has"
run run "$demo" -p "Once" -n 4 --mirror a --mirror b --mirror c --mirror d --mirror e
expect_usage_error "--mirror: 'e' is not one of 4 at most"
run run "$demo" -p "Once" --stats=all
expect_usage_error "--stats: 'all' is not layers, json or json:FILE"
run info "$demo" --cache-policy LRU
expect_usage_error "--cache-policy: 'LRU' is not next-use, lru, lfu or s3-fifo"
run run "$demo" -p "Once" --predict maybe
expect_usage_error "--predict: 'maybe' is not auto, off, next-layer, last-token, frequency or wrong"
finish
