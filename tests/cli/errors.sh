# SPDX-License-Identifier: MIT
# Damaged checkpoints and impossible requests: exit code 1 and one line that names the file and the
# reason.
. ./lib.sh
random_model
good=$model
run run "$good" --raw -p hello -n 2 --quiet
expect_code 0

# damaged: a fresh copy of the good checkpoint, as $model with $shard
damaged() {
    rm -rf "$scratch/bad"
    cp -r "$good" "$scratch/bad"
    model=$scratch/bad
    shard=$model/$(basename "$(ls "$good"/*.safetensors | head -1)")
}
# in_header FROM TO: the first occurrence in the shard's header; both of the same length
in_header() {
    [ ${#1} -eq ${#2} ] || fail "in_header: lengths differ"
    LC_ALL=C sed -i "1s/$1/$2/" "$shard"
    n_checks=$((n_checks + 1))
    ! cmp -s "$shard" "$good/$(basename "$shard")" || fail "in_header: '$1' is not there"
}
ask() {
    run run "$model" --raw -p hello -n 2 "$@"
}

damaged
truncate -s -4096 "$shard"
ask
expect_error "$shard: *"
truncate -s 100 "$shard"
ask
expect_error "$shard: *"
truncate -s 0 "$shard"
ask
expect_error "$shard: *"

damaged # an offset far past the end, then one that no integer holds
offsets=$(LC_ALL=C grep -a -o '"data_offsets": *\[[0-9]*, *[0-9]*\]' "$shard" | sed -n 3p)
first=$(echo "$offsets" | sed 's/.*\[\([0-9]*\),.*/\1/')
in_header "\[$first," "[$(echo "$first" | tr '0-9' '9')," 2>/dev/null
ask
expect_error "$shard: *"

damaged # overlapping: the third tensor begins where the first does
in_header "\[$first," "[$(printf "%0${#first}d" 0 | sed 's/^0*\(.\)/\1/' | awk -v n=${#first} '{ printf "%*s", n, $0 }'),"
ask
expect_error "$shard: *"

damaged # a header length that overflows
printf '\377\377\377\377\377\377\377\177' | dd of="$shard" conv=notrunc bs=8 count=1 2>/dev/null
ask
expect_error "$shard: *"

damaged # a missing tensor (and with it one that nobody knows)
in_header 'layers.0.mlp.gate.weight' 'layers.0.mlp.gatf.weight'
ask
expect_error "$model*layers.0.mlp.gat*"

damaged # a wrong shape
shape=$(LC_ALL=C head -c 200000 "$shard" | LC_ALL=C grep -a -o 'norm.weight[^]]*"shape": *\[128\]' | head -1)
expect_true [ -n "$shape" ]
LC_ALL=C sed -i '1s/\(norm.weight[^]]*"shape": *\[\)128\]/\1127]/' "$shard"
ask
expect_error "$model*norm.weight*"

damaged
sed -i 's/"model_type": "[a-z0-9_]*"/"model_type": "mystery"/' "$model/config.json"
ask
expect_error "$model*mystery*qwen3_5_moe*qwen3_next*"

damaged
echo '{"model_type": ' >"$model/config.json"
ask
expect_error "$model/config.json: *"
rm "$model/config.json"
ask
expect_error "$model*"

damaged
rm "$shard"
ask
expect_error "$model*"
damaged
echo '[]' >"$model/tokenizer.json"
ask
expect_error "$model/tokenizer.json: *"
rm "$model/tokenizer.json"
ask
expect_error "$model/tokenizer.json: *"

# an expert file cut short while running: after the model is open, before the first token
damaged
mkfifo "$scratch/lines"
last="moeflux run, its experts cut short"
"$MOEFLUX" run "$model" --raw -n 4 --expert-cache 0 --quiet --stats <"$scratch/lines" >"$out" 2>"$err" &
pid=$!
exec 3>"$scratch/lines"
echo hello >&3
wait_for 60 test -s "$out"
truncate -s 65536 "$shard"
echo again >&3
exec 3>&-
wait $pid
code=$?
sed -i '/^moeflux: /!d' "$err"
expect_code 1
expect_lines "$err" 1
expect_glob "$err" "moeflux: $shard: *"

# an unreadable directory, a missing one, a file in its place
model=$scratch/none
ask
expect_error "$model*"
model=$scratch/file
: >"$model"
ask
expect_error "$model*"
damaged
chmod 000 "$model"
if [ "$(id -u)" -ne 0 ]; then
    ask
    expect_error "$model*"
elif command -v setpriv >/dev/null; then
    chmod 755 "$scratch"
    last="moeflux run as nobody, the directory unreadable"
    setpriv --reuid 65534 --regid 65534 --clear-groups \
        "$MOEFLUX" run "$model" --raw -p hello -n 2 </dev/null >"$out" 2>"$err"
    code=$?
    # 126, 127: nobody may not even run the program where it lies
    [ $code -gt 125 ] || expect_error "$model*"
fi
chmod 755 "$model"

model=$good
ask --ram 1M
expect_error "$model*--ram*" || true
ask --ctx 2 -p "a prompt that is longer than two tokens"
expect_error "$model: the prompt is * tokens long, but the context holds 2*"
echo "a prompt that is longer than two tokens" >"$scratch/prompt"
run run "$model" --raw -f "$scratch/prompt" --ctx 2
expect_error "$scratch/prompt: the prompt is * tokens long, but the context holds 2*"
run run "$model" -f "$scratch/nothing"
expect_error "$scratch/nothing: *"
run run "$model" -f "$scratch"
expect_error "$scratch: *"
run perplexity "$model" "$scratch/nothing"
expect_error "$scratch/nothing: *"
finish
