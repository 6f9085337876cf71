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
    hit_rate read_bytes_per_s raw_read_bytes_per_s raw_read_latency_us dram_bytes_per_s peak_rss_bytes; do
    expect_true at_most 0 "$(json "$out" $key)"
done
expect_true at_most "$(json "$out" prefill_reads_per_expert_and_chunk)" 1
expect_true at_most "$(json "$out" hit_rate)" 1
for key in decode prefill; do
    expect_true at_most 0 "$(json "$out" ${key}_limit_tokens_per_s)"
    expect_true at_most 0 "$(json "$out" ${key}_over_limit)"
done
expect_true grep -Eq '"prefill_bound": ?"(memory|cores or device|drive)"' "$out"
expect_true grep -Eq '"decode_bound": ?"(memory|cores or device|drive)"' "$out"
for key in state_bytes_per_token fma_per_token prefill_bytes prefill_fma; do
    expect_true [ "$(json "$out" $key)" -gt 0 ]
done
cp "$out" "$scratch/streamed"
for key in prefill_tokens_per_s decode_tokens_per_s read_bytes_per_token; do
    expect_true at_most "$(json "$out" ${key}_min)" "$(json "$out" $key)"
    expect_true at_most "$(json "$out" $key)" "$(json "$out" ${key}_max)"
done
expect_true [ "$(json "$out" experts_per_token)/$(json "$out" experts_per_token_model)" = 4/4 ]

# multiply-adds a token: all parameters but idle experts and the two tables of the vocabulary
of() {
    json "$scratch/info" "$1"
}
run info "$model" --json
cp "$out" "$scratch/info"
expert=$((3 * $(of hidden_size) * $(of expert_hidden_size)))
idle=$(($(of n_moe_layers) * ($(of n_experts) - $(of n_experts_per_token)) * expert))
expect_true [ "$(json "$scratch/streamed" prefill_fma_per_token)" -eq \
    $(($(of n_parameters) - idle - 2 * $(of n_vocab) * $(of hidden_size))) ]

# with all in memory, after the warm-up, nothing is read; a token touches the same weights
run bench "$model" --prompt-tokens 40 --gen-tokens 8 --warmup 4 --repeat 1 --measure-ms 0 --json
expect_code 0
expect_true [ "$(json "$out" raw_read_bytes_per_s)" = null ]
expect_true [ "$(json "$out" decode_over_limit)" = null ]
expect_true [ "$(json "$out" fma_per_token)" = "$(json "$scratch/streamed" fma_per_token)" ]
expect_true [ "$(json "$out" state_bytes_per_token)" = "$(json "$scratch/streamed" state_bytes_per_token)" ]
expect_true [ "$(json "$out" weight_bytes_per_token)" = "$(json "$scratch/streamed" weight_bytes_per_token)" ]
expect_true at_most "$(json "$out" read_bytes_per_token)" "$(json "$scratch/streamed" read_bytes_per_token)"

run bench "$model" --prompt-tokens 4 --gen-tokens 2 --repeat 1 --measure-ms 10 --experts-per-token 2
expect_code 0
expect_glob "$out" "*2 experts a token (the model's own: 4) in 4 of 4 layers*median *least *most*prefill, tokens/s*decode, tokens/s*drive: raw direct reads*memory: sequential reads*peak memory*"
run bench "$model" --prompt-tokens 4 --gen-tokens 2 --repeat 1 --measure-ms 0 --layers --expert-cache 0
expect_code 0
expect_glob "$out" "*peak memory*time, a token *attention *waiting *layer *requests*
    3 *"
run bench "$model" --prompt-tokens 0 --gen-tokens 2 --repeat 1 --measure-ms 0 --json
expect_code 0
expect_true [ "$(json "$out" prefill_tokens_per_s)" = null ]
run bench "$model" --prompt-tokens 4 --gen-tokens 0 --repeat 1 --measure-ms 0 --json
expect_code 0
expect_true [ "$(json "$out" decode_tokens_per_s)" = null ]

# of no tokens nothing is told, and the machine is measured; where that is not wanted either, nothing is
run bench "$model" --prompt-tokens 0 --gen-tokens 0 --repeat 1 --measure-ms 10 --json
expect_code 0
for key in prefill_tokens_per_s decode_tokens_per_s wait_fraction prefill_wait_fraction; do
    expect_true [ "$(json "$out" $key)" = null ]
done
expect_true at_most 1 "$(json "$out" raw_read_bytes_per_s)"
run bench "$model" --prompt-tokens 0 --gen-tokens 0 --measure-ms 0
expect_usage_error "bench: --prompt-tokens, --gen-tokens and --measure-ms are 0: nothing is measured"

# a layer without experts has none to read: each of the others is read once, no more and no less
rm -r "$model"
"$MAKE_CHECKPOINT" --preset cogito-v2-671b --layers 3 --dense-layers 1 --experts 4 \
    --experts-per-token 2 --hidden 128 --expert-hidden 128 --dense-hidden 128 --shared-hidden 128 \
    --vocab 1024 --heads 4 --q-rank 64 --groups 2 --kept-groups 1 --quiet "$model" >/dev/null
run bench "$model" --prompt-tokens 256 --gen-tokens 0 --repeat 1 --warmup 0 --measure-ms 0 --quiet --json
expect_code 0
expect_true [ "$(json "$out" prefill_reads_per_expert_and_chunk)" = 1 ]
expect_true [ "$(json "$out" prefill_expert_misses)" = 8 ]
expect_true [ "$(json "$out" n_moe_layers)" -eq 2 ]

# layers that are all recurrent cache no positions: there are no pages, however many tokens
rm -r "$model"
"$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b --layers 2 --experts 8 --experts-per-token 2 --hidden 128 \
    --expert-hidden 64 --shared-hidden 64 --vocab 1024 --quiet "$model" >/dev/null
run bench "$model" --prompt-tokens 100 --prefill-chunk 40 --gen-tokens 4 --repeat 1 --measure-ms 0 --json
expect_code 0
expect_true at_most 0 "$(json "$out" decode_tokens_per_s)"

# what the CPU has not is said before the rounds, not in place of their figures
run bench "$model" --device cpu --operations --verbose --prompt-tokens 4 --gen-tokens 1 --repeat 1 --measure-ms 0
expect_code 1
expect_empty "$out"
expect_glob "$err" "*moeflux: no device in use takes its time (cpu)"
expect_true sh -c '! grep -q "bench: " "$0"' "$err"
finish
