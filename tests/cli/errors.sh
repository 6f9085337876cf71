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
    from=$(printf '%s' "$1" | sed 's/[][\\.*/]/\\&/g')
    LC_ALL=C sed -i "1s/$from/$2/" "$shard"
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

damaged # past the file's end
in_header '[1114112,1179648]' '[9114112,9179648]'
ask
expect_error "$shard: *embed_tokens.biases*"
damaged # over the tensor before it
in_header '[1114112,1179648]' '[1048576,1114112]'
ask
expect_error "$shard: *embed_tokens*"
damaged # no integer holds it
in_header '"dtype":"U32","shape":[16384,16]' '"dtype":"U32","shape":[9e307,16]'
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

damaged # wrong shapes: one that its bytes contradict, one that only the model contradicts
in_header 'input_layernorm.weight":{"data_offsets":[1179648,1179904],"dtype":"BF16","shape":[128]' \
    'input_layernorm.weight":{"data_offsets":[1179648,1179904],"dtype":"BF16","shape":[127]'
ask
expect_error "$shard: *input_layernorm.weight*"
damaged
in_header '"shape":[256,16]' '"shape":[16,256]'
ask
expect_error "$model*in_proj_qkv.weight*16*256*"

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
ln -s nowhere "$shard" # as in a hub's cache whose blobs were removed
rm "$model/model.safetensors.index.json"
ask
expect_error "$shard: cannot open: no such file (a link to a file that is not there)"
rm "$model/config.json"
ln -s nowhere "$model/config.json"
ask
expect_error "$model/config.json: cannot open: no such file (a link to a file that is not there)"
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
exec 3<>"$scratch/lines" # read too: a program that has ended must not end this shell by SIGPIPE
last="moeflux run, its experts cut short"
"$MOEFLUX" run "$model" --raw -n 4 --expert-cache 0 --quiet --stats <"$scratch/lines" >"$out" 2>"$err" 3>&- &
pid=$!
echo hello >&3
wait_for test -s "$out"
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
expect_error "$model: *below the floor of*"
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
# names of models elsewhere: where to get a directory from
# ask_here ARGUMENTS...: in $scratch, where these names are no paths
ask_here() {
    last="moeflux $*"
    (cd "$scratch" && exec "$MOEFLUX" "$@" </dev/null >"$out" 2>"$err")
    code=$?
}
for name in qwen3:30b Qwen3-30B-A3B Qwen/Qwen3-30B-A3B; do
    for command in 'run -p x' 'run' 'info' 'tokenize -p x' 'tokenize' 'perplexity' 'bench'; do
        case $command in perplexity) file=$SOURCE/README.md ;; *) file= ;; esac
        # shellcheck disable=SC2086 # the command's words, and a file or none
        ask_here $command "$name" $file
        case $name in
        */*) expect_error "$name: neither a path nor a model in the hub's cache (*); 'moeflux pull $name' fetches it" ;;
        *) expect_error "$name: cannot open directory (a model of a hub is called ORG/NAME: 'moeflux pull ORG/NAME' fetches it and says where it lies): No such file or directory" ;;
        esac
    done
done
# the folder above: the first of those in it
mkdir "$scratch/above" "$scratch/above/a" "$scratch/above/.hidden"
cp -r "$good" "$scratch/above/c"
cp -r "$good" "$scratch/above/b"
cp -r "$good" "$scratch/above/.hidden/model"
run info "$scratch/above"
expect_error "$scratch/above/config.json: cannot open: no such file (a checkpoint lies in $scratch/above/b)"
run info "$scratch/above/a"
expect_error "$scratch/above/a/config.json: cannot open: no such file"
: >"$scratch/model.gguf"
for command in 'run -p x' 'tokenize -p x' 'info'; do
    # shellcheck disable=SC2086
    ask_here $command model.gguf
    expect_error "model.gguf: at byte 0: the file ends within its first four bytes"
done
mkdir "$scratch/fifos" # it is not waited for who writes to it
mkfifo "$scratch/fifos/model.gguf"
run info "$scratch/fifos"
expect_error "$scratch/fifos/model.gguf: not a regular file"
# said in words, not only by the field's name
run info "$good" --ctx 99999999
expect_error "a context of 99999999 tokens (n_context_tokens) is more than the model's *"
run info "$good" --experts-per-token 99
expect_error "99 experts a token (n_experts_per_token) are more than the model's *"

# a prompt from a FIFO: read to its end
mkfifo "$scratch/fifo"
printf 'Hello there' >"$scratch/fifo" &
run run "$good" --raw -f "$scratch/fifo" -n 4 --temp 0 --quiet
expect_code 0
wait
cp "$out" "$scratch/by_fifo"
run run "$good" --raw -p 'Hello there' -n 4 --temp 0 --quiet
expect_same "$out" "$scratch/by_fifo"
# ... that nobody writes to: waits as any program does, and a signal ends it
last="moeflux run, nobody writes to the FIFO"
"$MOEFLUX" run "$good" --raw -f "$scratch/fifo" </dev/null >"$out" 2>"$err" &
pid=$!
waits() {
    grep -q '^State:[[:space:]]*S' "/proc/$pid/status"
}
expect_true wait_for waits
kill -TERM "$pid"
wait "$pid"
code=$?
expect_code 143
expect_empty "$out"
finish
