# SPDX-License-Identifier: MIT
# make_random_checkpoint: every preset and form, scaled down, is read and run by the program; the
# same seed gives the same model in every form; contents do not depend on threads; wrong options
# and full or used directories are refused.
set -u
: "${MOEFLUX:=../../build/moeflux}"
: "${MAKE_CHECKPOINT:=../../build/make_random_checkpoint}"
: "${SAME_LOGITS:=../../build/tests/tools/same_logits}"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/moeflux-tools.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
n_checks=0
n_failed=0

# check WHAT COMMAND...
check() {
    what=$1
    shift
    n_checks=$((n_checks + 1))
    "$@" >"$scratch/out" 2>"$scratch/err" && return
    n_failed=$((n_failed + 1))
    echo "FAILED: $what: $*"
    sed 's/^/  /' "$scratch/out" "$scratch/err" | head -8
}

# check_code CODE WORDS COMMAND...: the exit code, one line that holds WORDS first
check_code() {
    wanted=$1
    words=$2
    shift 2
    n_checks=$((n_checks + 1))
    "$@" >"$scratch/out" 2>"$scratch/err"
    got=$?
    [ "$got" -eq "$wanted" ] && head -1 "$scratch/err" | grep -qF -- "$words" && return
    n_failed=$((n_failed + 1))
    echo "FAILED: exit $wanted and \"$words\" expected, exit $got: $*"
    sed 's/^/  /' "$scratch/err" | head -4
}

small="--quiet --layers 4 --hidden 128 --heads 4 --kv-heads 2 --head-dim 32 --vocab 320 --experts 12
    --experts-per-token 3 --expert-hidden 64 --shared-hidden 64 --linear-v-heads 4
    --linear-k-heads 2 --linear-k-dim 32 --linear-v-dim 32"
small_dense="--quiet --layers 4 --hidden 128 --heads 4 --kv-heads 2 --head-dim 32 --vocab 320 --dense-hidden 192
    --linear-v-heads 4 --linear-k-heads 2 --linear-k-dim 32 --linear-v-dim 32"
small_deepseek="--quiet --layers 4 --hidden 128 --heads 4 --vocab 320 --experts 12
    --experts-per-token 3 --expert-hidden 64 --dense-hidden 192 --kv-rank 64 --nope-dim 32
    --rope-dim 16 --v-dim 48"

small_v4="--quiet --layers 5 --hidden 128 --heads 4 --head-dim 64 --rope-dim 16 --vocab 320 --experts 12
    --experts-per-token 3 --expert-hidden 64 --q-rank 64 --o-groups 2 --o-rank 32"

# make NAME OPTIONS...: a small checkpoint, which the program then describes
make() {
    name=$1
    shift
    case "$*" in
    *deepseek-v4*) sizes=$small_v4 ;;
    *kimi-linear*) sizes="$small_deepseek --linear-v-heads 4 --linear-k-dim 64 --linear-v-dim 64" ;;
    *cogito* | *deepseek* | *kimi* | *glm-5* | *glm-4.7-flash*) sizes=$small_deepseek ;;
    *qwen3.6-27b*) sizes=$small_dense ;;
    *qwen3.* | *qwen3-next* | *coder-next*) sizes=$small ;;
    esac
    # shellcheck disable=SC2086
    check "make" "$MAKE_CHECKPOINT" $sizes "$@" "$scratch/$name"
    check "info" "$MOEFLUX" info "$scratch/$name"
}

for preset in qwen3.6-35b-a3b qwen3.5-35b-a3b qwen3.5-122b-a10b qwen3.5-397b-a17b \
    qwen3-next-80b-a3b qwen3-coder-next-80b-a3b qwen3.6-27b; do
    make "$preset" --preset $preset
    check "bench" "$MOEFLUX" bench "$scratch/$preset" --prompt-tokens 9 --gen-tokens 3 --repeat 1 \
        --measure-ms 0 --expert-cache 0 --quiet --json
    check "values" "$SAME_LOGITS" "$scratch/$preset"
done

for preset in qwen3.6-35b-a3b qwen3-next-80b-a3b; do
    make "$preset.hf" --preset $preset --form hf
    make "$preset.plain" --preset $preset --bits 16
    check "raw and plain form" "$SAME_LOGITS" "$scratch/$preset.hf" "$scratch/$preset.plain"
    make "$preset.shards" --preset $preset --shard-bytes 60000
    make "$preset.one" --preset $preset --threads 1
    check "threads" cmp "$scratch/$preset/model.safetensors" "$scratch/$preset.one/model.safetensors"
    check "shards" "$SAME_LOGITS" "$scratch/$preset" "$scratch/$preset.shards"
    make "$preset.packed" --preset $preset --form packed
    check "packed form" "$SAME_LOGITS" "$scratch/$preset" "$scratch/$preset.packed"
    make "$preset.packed2" --preset $preset --form packed --bits 2
    check "2-bit packed form" "$SAME_LOGITS" "$scratch/$preset.packed2"
done

for preset in cogito-v2-671b deepseek-v3 kimi-k2 deepseek-v2 deepseek-v2-lite deepseek-v3.2 glm-5 \
    glm-4.7-flash; do
    ranks="--q-rank 64"
    [ $preset = deepseek-v2-lite ] && ranks=""
    # shellcheck disable=SC2086
    {
        make "$preset" --preset $preset $ranks
        make "$preset.hf" --preset $preset $ranks --form bf16
        make "$preset.plain" --preset $preset $ranks --bits 16
        make "$preset.fp8" --preset $preset $ranks --form fp8
        make "$preset.shards" --preset $preset $ranks --form fp8 --shard-bytes 60000
    }
    check "bench" "$MOEFLUX" bench "$scratch/$preset" --prompt-tokens 9 --gen-tokens 3 --repeat 1 \
        --measure-ms 0 --expert-cache 0 --quiet --json
    case $preset in
    deepseek-v3.2 | glm-5 | glm-4.7-flash) ;; # published without
    *)
        # shellcheck disable=SC2086
        make "$preset.packed" --preset $preset $ranks --form packed
        check "packed form" "$SAME_LOGITS" "$scratch/$preset" "$scratch/$preset.packed"
        ;;
    esac
    check "raw and plain form" "$SAME_LOGITS" "$scratch/$preset.hf" "$scratch/$preset.plain"
    check "FP8 form" "$SAME_LOGITS" "$scratch/$preset.fp8" "$scratch/$preset.shards"
done
# of no other kind: linear attention of its own; attention to entries, experts in FP4
make kimi-linear --preset kimi-linear-48b-a3b
make kimi-linear.hf --preset kimi-linear-48b-a3b --form hf
make kimi-linear.plain --preset kimi-linear-48b-a3b --bits 16
check "raw and plain form" "$SAME_LOGITS" "$scratch/kimi-linear.hf" "$scratch/kimi-linear.plain"
check "values" "$SAME_LOGITS" "$scratch/kimi-linear"
for preset in deepseek-v4-flash deepseek-v4-pro; do
    make $preset --preset $preset --form hf
    make $preset.fp8 --preset $preset --form fp8
    check "values" "$SAME_LOGITS" "$scratch/$preset"
    check "FP8 and FP4" "$SAME_LOGITS" "$scratch/$preset.fp8"
    check "bench" "$MOEFLUX" bench "$scratch/$preset.fp8" --prompt-tokens 9 --gen-tokens 3 --repeat 1 \
        --measure-ms 0 --expert-cache 0 --quiet --json
done
small_grouped="--quiet --layers 3 --hidden 128 --heads 4 --kv-heads 2 --head-dim 32 --vocab 320
    --dense-hidden 192"
for preset in qwen3-30b-a3b qwen3-coder-30b-a3b qwen3-235b-a22b qwen3-coder-480b-a35b glm-4.5 \
    glm-4.6 glm-4.5-air minimax-m2 ernie-4.5-21b-a3b ernie-4.5-300b-a47b hunyuan-a13b mixtral-8x7b qwen2-57b-a14b qwen3-8b llama-3.1-8b mistral-7b; do
    sizes="$small_grouped --experts 12 --experts-per-token 3 --expert-hidden 64 --shared-hidden 64"
    case $preset in
    qwen3-8b | llama-3.1-8b | mistral-7b) sizes=$small_grouped ;;
    esac
    make "$preset" --preset $preset
    make "$preset.hf" --preset $preset --form hf
    make "$preset.plain" --preset $preset --bits 16
    make "$preset.fp8" --preset $preset --form fp8
    check "bench" "$MOEFLUX" bench "$scratch/$preset" --prompt-tokens 9 --gen-tokens 3 --repeat 1 \
        --measure-ms 0 --expert-cache 0 --quiet --json
    check "raw and plain form" "$SAME_LOGITS" "$scratch/$preset.hf" "$scratch/$preset.plain"
    check "FP8 form" "$SAME_LOGITS" "$scratch/$preset.fp8"
done
for preset in gpt-oss-20b gpt-oss-120b; do
    sizes="$small_grouped --experts 12 --experts-per-token 3 --expert-hidden 64"
    make "$preset" --preset $preset
    make "$preset.plain" --preset $preset --bits 16
    make "$preset.hf" --preset $preset --form hf
    check "bench" "$MOEFLUX" bench "$scratch/$preset.hf" --prompt-tokens 9 --gen-tokens 3 --repeat 1 \
        --measure-ms 0 --expert-cache 0 --quiet --json
    check "values" "$SAME_LOGITS" "$scratch/$preset.plain"
    check "MXFP4" "$SAME_LOGITS" "$scratch/$preset.hf"
done
make split --preset deepseek-v3 --q-rank 64 --split-kv-b --group 32
make split_plain --preset deepseek-v3 --q-rank 64 --split-kv-b --nope-dim 24
make dense_but_one --preset cogito-v2-671b --layers 2 --q-rank 64 --form packed --bits 2
check "split kv_b_proj" "$SAME_LOGITS" "$scratch/split"
check "split kv_b_proj, one half plain" "$SAME_LOGITS" "$scratch/split_plain"
check "first layer of experts" test -f "$scratch/dense_but_one/packed_experts_2bit/layer_01.bin"
check "2-bit packed form" "$SAME_LOGITS" "$scratch/dense_but_one"

for bits in 2 3 5 6 8; do
    make "bits$bits" --preset qwen3.6-35b-a3b --bits $bits --group 32
    check "$bits bits" "$SAME_LOGITS" "$scratch/bits$bits"
done

make seed1 --preset qwen3.6-35b-a3b --seed 1
check_code 1 "differ" "$SAME_LOGITS" "$scratch/qwen3.6-35b-a3b" "$scratch/seed1"

# the published shape of the model: tensors, bytes of an expert, working set
check "true shape" "$MAKE_CHECKPOINT" --quiet --preset qwen3.6-35b-a3b --layers 1 --experts 8 \
    --vocab 256 "$scratch/true"
check "true shape" "$MOEFLUX" info "$scratch/true" --json
cp "$scratch/out" "$scratch/info"
check "expert bytes" grep -q '"one_expert_bytes": *1769472' "$scratch/info"

check "true shape" "$MAKE_CHECKPOINT" --quiet --preset cogito-v2-671b --layers 1 --experts 2 \
    --heads 2 --vocab 256 "$scratch/true671"
check "true shape" "$MOEFLUX" info "$scratch/true671" --json
cp "$scratch/out" "$scratch/info"
check "expert bytes" grep -q '"one_expert_bytes": *24772608' "$scratch/info"
rm -rf "$scratch/true671"

# GGUF: every type, of a family of each kind; unquantised the same weights as in MLX's form
for type in F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS \
    IQ3_S IQ4_NL IQ4_XS TQ1_0 TQ2_0 MXFP4 NVFP4; do
    # shellcheck disable=SC2086
    check "make" "$MAKE_CHECKPOINT" $small --hidden 256 --expert-hidden 256 --shared-hidden 256 \
        --preset qwen3.6-35b-a3b --form gguf --type $type "$scratch/gguf_$type"
    check "info" "$MOEFLUX" info "$scratch/gguf_$type"
    cp "$scratch/out" "$scratch/info"
    form=$(echo "gguf $type" | tr '[:upper:]' '[:lower:]')
    check "form" grep -q "^form  *$form," "$scratch/info"
    check "values" "$SAME_LOGITS" "$scratch/gguf_$type"
    rm -rf "$scratch/gguf_$type"
done
grouped="--quiet --layers 3 --hidden 128 --heads 4 --kv-heads 2 --head-dim 32 --vocab 320 --experts 12
    --experts-per-token 3 --expert-hidden 64"
for preset in qwen3-30b-a3b mixtral-8x7b glm-4.5-air minimax-m2 llama-4-scout deepseek-v2-lite kimi-k2 \
    glm-4.7-flash kimi-linear-48b-a3b qwen3.6-27b gpt-oss-20b deepseek-v3.2 glm-5 ernie-4.5-21b-a3b \
    ernie-4.5-300b-a47b hunyuan-a13b; do
    sizes=$grouped
    halves=
    case $preset in
    qwen3.6-27b) sizes=$small_dense ;;
    kimi-linear*) sizes="$small_deepseek --linear-v-heads 4 --linear-k-dim 64 --linear-v-dim 64" halves=--split-kv-b ;;
    deepseek* | kimi* | glm-4.7* | glm-5) sizes=$small_deepseek halves=--split-kv-b ;;
    llama-4*) sizes="$grouped --experts-per-token 1" ;;
    esac
    # shellcheck disable=SC2086
    check "make" "$MAKE_CHECKPOINT" $sizes --preset $preset --form gguf "$scratch/of_gguf"
    # shellcheck disable=SC2086
    check "make" "$MAKE_CHECKPOINT" $sizes --preset $preset --bits 16 $halves "$scratch/of_mlx"
    case $preset in mixtral* | qwen3.6-27b) ;; # queries and keys, or value heads, have another order there
    *) check "the same weights" "$SAME_LOGITS" "$scratch/of_gguf" "$scratch/of_mlx" ;;
    esac
    check "info" "$MOEFLUX" info "$scratch/of_gguf"
    rm -rf "$scratch/of_gguf" "$scratch/of_mlx"
done

# experts, which have other contents where they are stacked, and a table of integers
for preset in deepseek-v4-flash deepseek-v4-pro; do
    for type in BF16 MXFP4 NVFP4; do
        # shellcheck disable=SC2086
        check "make" "$MAKE_CHECKPOINT" $small_v4 --preset $preset --form gguf --type $type "$scratch/of_gguf"
        check "info" "$MOEFLUX" info "$scratch/of_gguf"
        check "values" "$SAME_LOGITS" "$scratch/of_gguf"
        rm -rf "$scratch/of_gguf"
    done
done

check_code 2 "gguf form" "$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b --type Q4_K "$scratch/x"
check_code 2 "hf, fp8 and gguf" "$MAKE_CHECKPOINT" --preset deepseek-v4-flash "$scratch/x"
check_code 2 "packed form" "$MAKE_CHECKPOINT" --preset kimi-linear-48b-a3b --form packed "$scratch/x"
check_code 2 "no type" "$MAKE_CHECKPOINT" --preset kimi-k2 --form gguf --type Q9 "$scratch/x"
check_code 2 "no preset" "$MAKE_CHECKPOINT" --preset gpt-2 "$scratch/x"
check_code 2 "--preset NAME" "$MAKE_CHECKPOINT" "$scratch/x"
check_code 2 "--bits" "$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b --bits 7 "$scratch/x"
check_code 2 "packed" "$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b --form packed --bits 3 "$scratch/x"
check_code 2 "multiple" "$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b --hidden 100 "$scratch/x"
check_code 2 "fp8 form" "$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b --form fp8 "$scratch/x"
check_code 2 "packed form" "$MAKE_CHECKPOINT" --preset qwen3-30b-a3b --form packed "$scratch/x"
check_code 2 "mlx, hf and gguf" "$MAKE_CHECKPOINT" --preset gpt-oss-20b --form fp8 "$scratch/x"
check_code 2 "without experts" "$MAKE_CHECKPOINT" --preset qwen3-8b --experts 4 "$scratch/x"
check_code 2 "split-kv-b" "$MAKE_CHECKPOINT" --preset kimi-k2 --form fp8 --split-kv-b "$scratch/x"
check_code 2 "q-rank" "$MAKE_CHECKPOINT" --preset kimi-k2 --q-rank 100 "$scratch/x"
check_code 1 "is not empty" "$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b "$scratch/true"
check_code 1 "are free" "$MAKE_CHECKPOINT" --preset qwen3.5-397b-a17b --layers 1024 --experts 65536 \
    "$scratch/huge"
check_code 1 "cannot create" "$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b "$scratch/no/such"
check_code 1 "tokenizer.json" "$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b --layers 1 --experts 1 \
    --tokenizer "$scratch/none" "$scratch/y"
echo "$n_checks checks, $n_failed failed"
[ "$n_failed" -eq 0 ]
