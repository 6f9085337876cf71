# SPDX-License-Identifier: MIT
# --ram is a promise: the kernel's own count of the peak stays below it, down to the floor; one byte
# below the floor is refused.
. ./lib.sh
[ -z "${SANITIZE:-}" ] || skip "a sanitizer's own memory is not what --ram promises"
has_model "$demo" && model=$demo || random_model

# stays_below OPTION...: with $model
stays_below() {
    run info "$model" --json "$@"
    floor=$(json "$out" floor_bytes)
    expect_true [ "$floor" -gt 0 ]
    for more in 4000000 12000000 40000000; do
        budget=$((floor + more))
        run run "$model" --raw -p "Once upon a time" -n 32 --temp 0 --ignore-eos --quiet --stats=json --ram $budget "$@"
        expect_code 0
        expect_true at_most "$(json "$err" peak_rss_bytes)" $budget
        run bench "$model" --ram $budget --prompt-tokens 64 --gen-tokens 8 --repeat 1 --measure-ms 20 --json --quiet "$@"
        expect_code 0
        expect_true at_most "$(json "$out" peak_rss_bytes)" $budget
    done
}
stays_below
run run "$model" --raw -p "Once upon a time" -n 32 --ram $((floor / 2))
expect_error "*"

# experts of several MiB beside a latent cache, in both its types
if [ -x "$MAKE_CHECKPOINT" ] && [ -f "$demo/tokenizer.json" ]; then
    model=$scratch/latent
    "$MAKE_CHECKPOINT" --preset cogito-v2-671b --layers 4 --dense-layers 1 --experts 16 \
        --experts-per-token 4 --hidden 1024 --expert-hidden 2048 --dense-hidden 4096 \
        --shared-hidden 2048 --vocab 16384 --heads 16 --q-rank 256 --groups 4 --kept-groups 2 \
        --tokenizer "$demo" --quiet "$model" >/dev/null
    stays_below
    stays_below --kv-type bf16
fi
finish
