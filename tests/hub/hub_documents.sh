# SPDX-License-Identifier: MIT
# The commands of the documents that fetch from a hub ("```sh hub"), line by line, from one that has
# small models by the names that stand there.
. ./lib_hub.sh
[ -z "${SANITIZE:-}" ] || skip "the same code as in the other tests, and long there"
has_model "$demo" || skip "models/demo is not there"
start_hub
publish Qwen/Qwen3-30B-A3B "$demo"
mkdir "$scratch/gguf"
for type in Q4_K Q8_0; do
    "$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b --layers 4 --experts 16 --experts-per-token 4 --hidden 256 \
        --expert-hidden 256 --shared-hidden 256 --vocab 16384 --heads 4 --kv-heads 2 --head-dim 64 --linear-v-heads 4 \
        --linear-k-heads 2 --linear-k-dim 64 --linear-v-dim 64 --quiet --form gguf --type $type "$scratch/made.$type" \
        >"$out" 2>"$err"
    code=$?
    last="make_random_checkpoint --type $type"
    expect_code 0
done
cp "$(find "$scratch/made.Q4_K" -name '*.gguf')" "$scratch/gguf/Qwen3-30B-A3B-Q4_K_M.gguf"
cp "$(find "$scratch/made.Q8_0" -name '*.gguf')" "$scratch/gguf/Qwen3-30B-A3B-Q8_0.gguf"
publish unsloth/Qwen3-30B-A3B-GGUF "$scratch/gguf"

mkdir "$scratch/bin"
ln -s "$MOEFLUX" "$scratch/bin/moeflux"
n_lines=0
for document in "$SOURCE"/README.md "$SOURCE"/docs/*.md; do
    awk '/^```sh hub$/ { on = 1; next } /^```/ { on = 0 } on' "$document" >"$scratch/lines"
    while IFS= read -r line; do
        n_lines=$((n_lines + 1))
        last="$(basename "$document"): $line"
        PATH=$scratch/bin:$PATH sh -c "$line" </dev/null >"$out" 2>"$err"
        code=$?
        expect_code 0
        expect_true [ -s "$out" ]
    done <"$scratch/lines"
done
expect_true [ "$n_lines" -ge 5 ]
finish
