# SPDX-License-Identifier: MIT
# test_model_latent_row with a model of latent attention whose widths the device's shader takes: 64 columns and 64.
set -u
scratch=$(mktemp -d "${TMPDIR:-/tmp}/moeflux-latent-row.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
"$MAKE_CHECKPOINT" --quiet --preset deepseek-v3 --layers 3 --dense-layers 1 --hidden 256 --dense-hidden 512 --heads 8 \
    --q-rank 64 --kv-rank 64 --rope-dim 64 --nope-dim 64 --v-dim 64 --experts 16 --experts-per-token 4 \
    --groups 4 --kept-groups 2 --expert-hidden 128 --vocab 320 "$scratch/model" >"$scratch/out" 2>&1 || {
    cat "$scratch/out"
    exit 1
}
"$TEST" "$scratch/model"
