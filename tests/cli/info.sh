# SPDX-License-Identifier: MIT
# moeflux info, against what config.json says.
. ./lib.sh

# config_number MODEL FIELD...: of the first that is there; 0: none is
config_number() {
    config=$1/config.json
    shift
    for field in "$@"; do
        found=$(sed -n "/.*\"$field\": *\([0-9][0-9]*\).*/{s//\1/p;q}" "$config")
        [ -z "$found" ] || break
    done
    echo "${found:-0}"
}

n_models=0
for model in "$SOURCE"/tests/model/data/*/ "$demo"/; do
    model=${model%/}
    [ -f "$model/config.json" ] || continue
    n_models=$((n_models + 1))
    run info "$model" --json
    expect_code 0
    expect_empty "$err"
    expect_lines "$out" 1
    for names in "n_layers num_hidden_layers" "hidden_size hidden_size" "n_heads num_attention_heads" \
        "n_kv_heads num_key_value_heads" \
        "n_experts num_experts n_routed_experts num_local_experts moe_num_experts" \
        "n_experts_per_token_model num_experts_per_tok num_experts_per_token moe_topk moe_k" "n_vocab vocab_size"; do
        # shellcheck disable=SC2086 # ours, and one or more of the file's
        set -- $names
        ours=$1
        shift
        expect_true [ "$(json "$out" "$ours")" = "$(config_number "$model" "$@")" ]
    done
    hidden=$(config_number "$model" moe_intermediate_size intermediate_size)
    [ "$(json "$out" n_experts)" != 0 ] || hidden=0
    expect_true [ "$(json "$out" expert_hidden_size)" = "$hidden" ]
    floor=$(json "$out" floor_bytes)
    layers=$(json "$out" n_layers)
    n_kinds=0
    for kind in full linear latent; do
        n_kinds=$((n_kinds + $(json "$out" n_${kind}_attention_layers)))
    done
    expect_true [ "$n_kinds" = "$layers" ]
    layers=$(json "$out" n_moe_layers)
    one=$(json "$out" one_expert_bytes)
    # one_expert_bytes is the largest: with mixed bits a layer's experts may be smaller
    all=$((layers * $(json "$out" n_experts) * one))
    set=$((layers * $(json "$out" n_experts_per_token) * one))
    case $model in
    *mixed*)
        expect_true [ "$(json "$out" expert_bytes)" -lt "$all" ]
        expect_true [ "$(json "$out" working_set_bytes)" -lt "$set" ]
        ;;
    *)
        expect_true [ "$(json "$out" expert_bytes)" = "$all" ]
        expect_true [ "$(json "$out" working_set_bytes)" = "$set" ]
        ;;
    esac

    # of every fourth the text, too
    [ $((n_models % 4)) -eq 1 ] || continue
    run info "$model"
    expect_code 0
    expect_glob "$out" "family*form*parameters*least --ram*verdict*runs*"
    # This process may hold some megabytes more or less than the one before, which count in its floor
    # if the allowance is used up, as a sanitizer does. How it is rounded: test_sizes.c.
    expect_true awk -v n="$floor" -v printed="$(sed -n 's/^least --ram *//p' "$out")" 'BEGIN {
        split(printed, part, " ")
        off = part[1] * 1024 ^ index("KMGT", substr(part[2], 1, 1)) - n
        exit !(printed ~ /^[0-9.]+ [KMGT]?i?B$/ && off > -2 ^ 25 && off < 2 ^ 25)
    }'
done
expect_true [ "$n_models" -gt 0 ]

model=$SOURCE/tests/model/data/mlx_4bit
# fewer experts; budgets above and below the floor
run info "$model" --json --experts-per-token 1
expect_code 0
expect_true [ "$(json "$out" n_experts_per_token)" = 1 ]
floor=$(json "$out" floor_bytes)
run info "$model" --ram 1K
expect_code 0
expect_glob "$out" "*verdict*does not run*"
run info "$model" --json --ram "$((floor + 100000000))"
expect_code 0
expect_true [ "$(json "$out" n_slots)" -gt 0 ]

# the DeepSeek families: dense layers, groups, ranks, the layer that is left out
run info "$SOURCE/tests/model/data/v3_mtp_half_split_rope"
expect_code 0
expect_glob "$out" "*deepseek_v3*latent attention, 2 without experts, 1 for multi-token prediction*"
expect_glob "$out" "*latent rank* for keys and values, * for queries*experts* from * of * groups*"
run info "$SOURCE/tests/model/data/v3_fp8"
expect_glob "$out" "*form*fp8, experts of 8 bits*"
# what is there and not run is named; what is run, is not
run info "$SOURCE/tests/model/data/kimi_k25_bf16"
expect_code 0
expect_glob "$out" "*left out  *vision projector (model.mm_projector.\*: 6 tensors, 19.73 KiB)
left out  *vision tower (model.vision_tower.\*: 21 tensors, 149.78 KiB)
*"
run info "$SOURCE/tests/model/data/hf_bf16" --json
expect_glob "$out" '*"left_out": \[{"what": "vision tower", "names": "model.visual.", "n_tensors": 5, "bytes": 9280}, {"what": "multi-token prediction", "names": "mtp.", "n_tensors": 8, "bytes": 27648}\], *'
run info "$SOURCE/tests/model/data/draft_v32_bf16"
expect_glob "$out" "*left out  *multi-token prediction (model.layers.2.\*: 37 tensors, *)
dense weights*"
run info "$SOURCE/tests/model/data/draft_glm4_gguf" --json
expect_glob "$out" '*"left_out": \[{"what": "multi-token prediction", "names": "blk.2.", "n_tensors": 25, *'
run info "$SOURCE/tests/model/data/v3_bf16" --json
expect_glob "$out" '*"left_out": \[\], *'
# half the session's state
run info "$SOURCE/tests/model/data/v3_bf16" --json
f32=$(json "$out" session_bytes)
run info "$SOURCE/tests/model/data/v3_bf16" --json --kv-type bf16
expect_true [ "$(json "$out" session_bytes)" = "$((f32 / 2))" ]
run info "$model" --json
f32=$(json "$out" session_bytes)
run info "$model" --json --kv-type bf16
expect_true [ "$(json "$out" session_bytes)" -lt "$f32" ]

# devices, by the names that there are
run info "$model" --json --device cpu --expert-device auto
expect_code 0
expect_true [ "$(sed -n 's/.*"device": *"\([a-z]*\)".*"expert_device": *"\([a-z]*\)".*/\1 \2/p' "$out")" = "cpu cpu" ]
run info "$model" --expert-device cpu
expect_glob "$out" "*device*cpu*"
run info "$model" --device abacus
expect_error "*device 'abacus' is not known; there are: auto, cpu*"
run info "$model" --expert-device abacus
expect_error "*expert_device 'abacus' is not known; there are: auto, cpu, hybrid, *"
run info "$model" --precision f16
expect_usage_error "*--precision: 'f16' is not auto, f32 or mixed"
run info "$model" --precision mixed --no-shader-cache
expect_code 0
run info "$model" --vram 1G
expect_error "*device_bytes is 1073741824, but device cpu has no memory of its own*"
run info "$model" --vram 0
expect_usage_error "*vram*"

# a cache of exactly a token's experts holds them; one of an expert less is too small
run info "$model" --json
experts=$(($(json "$out" n_moe_layers) * $(json "$out" n_experts_per_token)))
slot=$(json "$out" slot_bytes)
for n in "$experts" $((experts - 1)); do
    run info "$model" --json --expert-cache $((n * slot))
    expect_code 0
    expect_true [ "$(json "$out" n_slots)" -eq "$n" ]
    if [ "$n" -eq "$experts" ]; then
        expect_glob "$out" "*the cache holds a token's working set*"
    else
        expect_glob "$out" "*the cache is smaller than a token's working set*"
    fi
done

run info "$scratch"
expect_error "$scratch*"
# a fraction counts to its sixth digit: 2^30 * 1.123456
run info "$model" --json --ram 1.123456G
expect_true [ "$(json "$out" ram_bytes)" = 1206301694 ]
run info "$model" --json --ram 1.0000019G
expect_true [ "$(json "$out" ram_bytes)" = 1073742897 ]
finish
