# SPDX-License-Identifier: MIT
# moeflux bench: runs without a tokenizer, gives every key, and the counts are consistent. No figure
# of time decides anything here.
. ./lib.sh
random_model
rm "$model/tokenizer.json"

run bench "$model" --prompt-tokens 40 --prefill-chunk 16 --gen-tokens 8 --repeat 2 --measure-ms 20 \
    --expert-cache 0 --quiet --json
expect_code 0
expect_empty "$err"
expect_lines "$out" 1
for key in prefill_tokens_per_s decode_tokens_per_s weight_bytes_per_token read_bytes_per_token \
    hit_rate read_bytes_per_s raw_read_bytes_per_s dram_bytes_per_s peak_rss_bytes; do
    expect_true at_most 0 "$(json "$out" $key)"
done
expect_true at_most "$(json "$out" prefill_reads_per_expert_and_chunk)" 1
expect_true at_most "$(json "$out" hit_rate)" 1
cp "$out" "$scratch/streamed"

# with all in memory, after the warm-up, nothing is read; a token touches the same weights
run bench "$model" --prompt-tokens 40 --gen-tokens 8 --warmup 4 --repeat 1 --measure-ms 0 --json
expect_code 0
expect_true [ "$(json "$out" raw_read_bytes_per_s)" = null ]
expect_true [ "$(json "$out" weight_bytes_per_token)" = "$(json "$scratch/streamed" weight_bytes_per_token)" ]
expect_true at_most "$(json "$out" read_bytes_per_token)" "$(json "$scratch/streamed" read_bytes_per_token)"

run bench "$model" --prompt-tokens 4 --gen-tokens 2 --repeat 1 --measure-ms 10
expect_code 0
expect_glob "$out" "*prefill, tokens/s*decode, tokens/s*drive: raw direct reads*memory: sequential reads*peak memory*"
run bench "$model" --prompt-tokens 0 --gen-tokens 2 --repeat 1 --measure-ms 0 --json
expect_code 0
expect_true [ "$(json "$out" prefill_tokens_per_s)" = null ]
run bench "$model" --prompt-tokens 4 --gen-tokens 0 --repeat 1 --measure-ms 0 --json
expect_code 0
expect_true [ "$(json "$out" decode_tokens_per_s)" = null ]
finish
