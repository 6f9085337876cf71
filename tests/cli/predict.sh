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
    for predict in auto next-layer last-token frequency wrong; do
        run run "$demo" -p "Once upon a time" -n 48 --temp 0 --expert-cache $cache --quiet \
            --predict $predict --stats=json:"$scratch/$predict"
        expect_code 0
        expect_same "$out" "$scratch/text"
    done
    for key in hints_useful hints_late hints_wasted; do
        expect_true at_most "$(json "$scratch/auto" $key)" "$(json "$scratch/auto" hints)"
    done
    expect_true at_most "$(json "$scratch/wrong" hints)" 64
done
expect_true at_most 100 "$(json "$scratch/auto" hints)"
expect_true at_most "$(json "$scratch/auto" hint_wasted_bytes)" "$(json "$scratch/auto" hint_bytes)"
run run "$demo" -p "Once upon a time" -n 24 --temp 0 --expert-cache 2M --quiet --stats
expect_code 0
expect_glob "$err" "*foreseen * in time * late * for nothing *read ahead *of use, took *"
run run "$demo" -p "Once" --predict maybe
expect_usage_error "--predict: 'maybe' is not auto, off, next-layer, last-token, frequency or wrong"
finish
