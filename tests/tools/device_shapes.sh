# SPDX-License-Identifier: MIT
# Published widths on a GPU, here one in software: each attention's own kinds of products, with so
# many columns that their loads are wide, and no width twice, so that no other product's kernels
# stand in for one that was not reserved. Tests with values have narrow models. With `few` of each way
# that products are reserved in one: latent, linear, softmax attention; affine, floats, blocks.
set -u
: "${MOEFLUX:=../../build/moeflux}"
: "${MAKE_CHECKPOINT:=../../build/make_random_checkpoint}"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/moeflux-shapes.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
# The driver's cache is that of the other tests.
export MESA_SHADER_CACHE_DIR="${MESA_SHADER_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-$scratch}/.cache}}"
export XDG_CACHE_HOME="$scratch/cache"
n_failed=0
n=0

"$MOEFLUX" devices | grep -q '^vulkan:' || {
    echo "skipped: no Vulkan device"
    exit 77
}

# evaluate PRESET FORM OPTIONS...
evaluate() {
    n=$((n + 1))
    rm -rf "$scratch/model"
    "$MAKE_CHECKPOINT" --quiet --preset "$@" "$scratch/model" >"$scratch/out" 2>"$scratch/err" &&
        "$MOEFLUX" bench "$scratch/model" --device vulkan --prompt-tokens 9 --gen-tokens 2 \
            --repeat 1 --measure-ms 0 --quiet --json >"$scratch/out" 2>"$scratch/err" && return
    n_failed=$((n_failed + 1))
    echo "FAILED: $*"
    sed 's/^/  /' "$scratch/err" | head -4
}

experts="--experts 6 --experts-per-token 2 --expert-hidden 192 --hidden 640 --vocab 320"
latent="--layers 2 --dense-layers 1 --heads 8 --q-rank 384 --dense-hidden 768"
linear="--layers 4 --heads 4 --linear-v-heads 4"
# shellcheck disable=SC2086
{
    evaluate cogito-v2-671b --form bf16 $latent $experts
    evaluate qwen3.6-35b-a3b --form mlx $linear --linear-k-heads 2 --shared-hidden 256 $experts
    evaluate gpt-oss-20b --form hf --layers 2 --heads 8 --kv-heads 2 $experts
    if [ "${1:-}" != few ]; then
        evaluate cogito-v2-671b --form mlx $latent $experts
        evaluate glm-5 --form mlx $latent $experts
        evaluate deepseek-v4-flash --form fp8 --layers 3 --heads 8 --q-rank 384 --o-groups 2 $experts
        evaluate kimi-linear-48b-a3b --form mlx $linear $experts
    fi
}
echo "$n checks, $n_failed failed"
[ $n_failed -eq 0 ]
