# SPDX-License-Identifier: MIT
# model_mixture.sh affine|blocks: test_model_mixture with a model of two kinds of attention whose mixtures a
# device can join: experts of 512 columns, affine ones or GGUF's.
set -u
scratch=$(mktemp -d "${TMPDIR:-/tmp}/moeflux-mixture.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
form=
model=$scratch/model
if [ "$1" = blocks ]; then
    form='--form gguf --type Q4_0'
    model=$scratch/model/model.gguf
fi
# shellcheck disable=SC2086 # a list of words
"$MAKE_CHECKPOINT" --quiet --preset qwen3.6-35b-a3b --layers 4 --hidden 512 --heads 4 --linear-k-heads 2 \
    --linear-v-heads 4 --experts 32 --experts-per-token 4 --expert-hidden 512 --shared-hidden 512 --vocab 320 \
    $form "$scratch/model" >"$scratch/out" 2>&1 || {
    cat "$scratch/out"
    exit 1
}
"$TEST" "$model"
