# SPDX-License-Identifier: MIT
# --ram is a promise: the kernel's own count of the peak stays below it, down to the floor. The floor
# that info names is accepted at every start, and one byte below it refused; the terms that the
# message names add up to it.
. ./lib.sh
[ -z "${SANITIZE:-}" ] || skip "a sanitizer's own memory is not what --ram promises"
has_model "$demo" && model=$demo || random_model

# stays_below OPTION...: with $model
stays_below() {
    run info "$model" --json "$@"
    floor=$(json "$out" floor_bytes)
    expect_true [ "$floor" -gt 0 ]
    for more in 0 4000000 40000000; do
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

# Each start finds another process: other addresses, other pages of the libraries in memory.
i=0
echo "Once upon a time" >"$scratch/prompt"
while [ "$i" -lt 20 ]; do
    run info "$model" --json --ctx 512
    expect_true [ "$(json "$out" floor_bytes)" -eq "${last_floor:-$(json "$out" floor_bytes)}" ]
    last_floor=$(json "$out" floor_bytes)
    case $((i % 4)) in
    0) run run "$model" --ctx 512 -p hi -n 4 --ram "$last_floor" ;;
    1) run run "$model" --ctx 512 -f "$scratch/prompt" -n 4 --ram "$last_floor" --state-dir "$scratch/store" ;;
    2) run_with "$scratch/prompt" run "$model" --ctx 512 -f - -n 4 --ram "$last_floor" ;;
    3) run_with "$scratch/prompt" run "$model" --ctx 512 -n 4 --ram "$last_floor" ;;
    esac
    expect_code 0
    i=$((i + 1))
done
run run "$model" --ctx 512 -p hi -n 4 --ram $((last_floor - 1))
expect_error "$model: memory budget of * below the floor of * MiB ($last_floor bytes): *"
# what is printed is accepted too, and is the sum of what is printed
printed=$(sed 's/.*the floor of \([0-9.]*\) MiB.*/\1/' "$err")
sed 's/.* bytes): //; s/, /\n/g' "$err" >"$scratch/terms"
expect_true [ "$(wc -l <"$scratch/terms")" -ge 6 ]
expect_true awk -v sum="$printed" '{ s += $1 } END { exit !(s - sum < 0.01 && sum - s < 0.01) }' "$scratch/terms"
run run "$model" --ctx 512 -p hi -n 4 --ram "${printed}M"
expect_code 0
run info "$model" --ctx 512
run run "$model" --ctx 512 -p hi -n 4 --ram "$(sed -n 's/^least --ram *\([0-9.]*\) MiB/\1M/p' "$out")"
expect_code 0

# A text that is one word of a MiB, normalised; one that never ends; and the same where there is no
# context that ends it.
awk 'BEGIN { for (i = 0; i < 260000; i++) printf "\xcc\x81\xcc\xa3" }' >"$scratch/marks"
run run "$model" --ctx 512 --raw -f "$scratch/marks" -n 4 --ram "$last_floor" --quiet --stats=json
expect_code 1
expect_glob "$err" "moeflux: $scratch/marks: the prompt is * tokens long, *"
expect_true at_most "$(json "$err" peak_rss_bytes)" "$last_floor"
run run "$model" --raw -f /dev/zero -n 4 --quiet --ram "$last_floor"
expect_error "/dev/zero: a text of more than 1179648 bytes*"
run perplexity "$model" /dev/zero --ctx 512 --ram "$last_floor"
expect_error "/dev/zero: a text of more than $((last_floor / 16)) bytes*"
i=0
while [ "$i" -lt 4000 ]; do
    echo "Once upon a time there was a small dog who lived in a red house near the forest."
    i=$((i + 1))
done >"$scratch/long"
run perplexity "$model" "$scratch/long" --tokens 64 --ctx 512 --ram $((last_floor + 4000000)) --json --quiet
expect_code 0
expect_true at_most "$(json "$out" peak_rss_bytes)" $((last_floor + 4000000))

# experts of several MiB beside a latent cache, in both its types: cli_ram_long
if [ -n "${MF_TEST_LONG:-}" ] && [ -x "$MAKE_CHECKPOINT" ] && [ -f "$demo/tokenizer.json" ]; then
    model=$scratch/latent
    "$MAKE_CHECKPOINT" --preset cogito-v2-671b --layers 4 --dense-layers 1 --experts 16 \
        --experts-per-token 4 --hidden 1024 --expert-hidden 2048 --dense-hidden 4096 \
        --shared-hidden 2048 --vocab 16384 --heads 16 --q-rank 256 --groups 4 --kept-groups 2 \
        --tokenizer "$demo" --quiet "$model" >/dev/null
    stays_below
    stays_below --kv-type bf16
fi
finish
