# SPDX-License-Identifier: MIT
# --while-pulling: the same text as of a model that is there, though it is still coming; what a token needs
# comes first; faults, content that is wrong, an end before all is there, and serving.
. ./lib_hub.sh
start_hub
[ -x "$MAKE_CHECKPOINT" ] || skip "make_random_checkpoint is not built"
[ -f "$demo/tokenizer.json" ] || skip "models/demo is not there"
model=$scratch/model
# 55 MB of experts, of which a few tokens need a part
"$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b --layers 2 --experts 64 --experts-per-token 1 --hidden 256 \
    --expert-hidden 1024 --shared-hidden 64 --vocab 16384 --heads 4 --kv-heads 2 --head-dim 64 \
    --linear-v-heads 4 --linear-k-heads 2 --linear-k-dim 32 --linear-v-dim 32 --tokenizer "$demo" --quiet \
    "$model" >/dev/null 2>"$err" || exit 1
publish org/m "$model"
say="-p Once --raw -n 3 --temp 0 --ram 400M --threads 2"
# shellcheck disable=SC2086
run run "$model" $say -q
expect_code 0
cp "$out" "$scratch/text"
# shellcheck disable=SC2086
while_pulling() { run run org/m $say --while-pulling "$@"; }
no_rest() { ! find "$cache" -name '*.moeflux-while*' | grep -q .; }

# answered before all of it was there, and what came is kept
fault drip 8 /store/
while_pulling
expect_code 0
expect_exact "$out" "$(cat "$scratch/text")"
# as a rule; a slow machine may have had the time to fetch all, or to end what was under way when the text was done
has_weights() { find "$cache" -path '*/blobs/*' -size +1000k | grep -q .; }
if [ -s "$err" ]; then
    expect_glob "$err" "*org/m: *% of it is there; the same command, or 'moeflux pull org/m', goes on from here*"
    expect_true has_weights
fi
expect_true no_rest

# a hub that does not answer is said to be asked again, and Ctrl-C ends that and leaves nothing
forget_cache
mkdir "$scratch/tmp"
for match in /api/ /store/; do
    fault 503 1000 $match
    : >"$err"
    # shellcheck disable=SC2086
    TMPDIR=$scratch/tmp "$MOEFLUX" run org/m -p Once --while-pulling >"$out" 2>"$err" </dev/null &
    pid=$!
    wait_for grep -q "tried again" "$err"
    kill -INT $pid
    wait $pid
    code=$? last="run --while-pulling, interrupted while $match fails"
    expect_code 130
    expect_glob "$err" "*moeflux: org/m: interrupted*"
    expect_true [ -z "$(ls "$scratch/tmp")" ]
done
fault

# a GGUF file whose header is longer than what is waited for at first
mkdir "$scratch/padded"
pad_gguf "$SOURCE/tests/model/data/gguf_with_text/model.gguf" "$scratch/padded/m-Q4_0.gguf"
publish org/padded "$scratch/padded"
run run "$scratch/padded/m-Q4_0.gguf" -p x -n 4 --temp 0 --raw -q
expect_code 0
cp "$out" "$scratch/padded.text"
fault drip 8 /store/
run run org/padded -p x -n 4 --temp 0 --raw -q --while-pulling
fault
expect_code 0
expect_same "$out" "$scratch/padded.text"
fault drip 8 /store/

# another beside it is refused, and takes nothing from it
forget_cache
# shellcheck disable=SC2086
"$MOEFLUX" run org/m $say --while-pulling -q >"$scratch/first" 2>"$scratch/first.err" </dev/null &
pid=$!
has_links() { find "$cache" -path '*.moeflux-while/*.safetensors' 2>/dev/null | grep -q .; }
wait_for has_links
while_pulling
expect_error "org/m: *: another moeflux is fetching this model"
wait $pid
code=$? last="the first of two with --while-pulling"
expect_code 0
expect_same "$scratch/first" "$scratch/text"
expect_true no_rest

# killed: its folder of links is gone with the next one
# shellcheck disable=SC2086
"$MOEFLUX" run org/m $say --while-pulling -n 1000 >/dev/null 2>&1 </dev/null &
pid=$!
wait_for has_links
kill -9 $pid 2>/dev/null # unless it is done
wait $pid 2>/dev/null
fault

# the same again, from what came; then the rest by pull, and it is found as any other
while_pulling -q
expect_code 0
expect_exact "$out" "$(cat "$scratch/text")"
expect_true no_rest
run pull org/m
expect_code 0
expect_true is_pulled org/m "$model"
# what a program left that was killed when all was there is gone too, with the next or a pull
expect_true mkdir "$(find "$cache" -type d -path '*/hub/models--org--m')/.moeflux-while"
run pull org/m
expect_true no_rest
while_pulling -q
expect_code 0
expect_exact "$out" "$(cat "$scratch/text")"

# faults are tried again; none shows in the text
for kind in drop 503 norange etag; do
    forget_cache
    fault $kind 2 /store/
    while_pulling -q
    [ $kind = etag ] && [ "$code" -ne 0 ] && continue # used, and then another: refused
    expect_code 0
    expect_exact "$out" "$(cat "$scratch/text")"
    expect_true no_rest
done
fault

# a server answers while its model comes
forget_cache
fault drip 8 /store/
"$MOEFLUX" serve org/m --while-pulling --port 0 --ram 500M --threads 2 >"$scratch/serve" 2>&1 </dev/null &
pid=$!
is_ready() { grep -q 'http://' "$scratch/serve"; }
wait_for is_ready
url=$(sed -n 's|.*\(http://[0-9.:]*[0-9]\).*|\1|p' "$scratch/serve" | head -1)
run_curl() {
    last="a completion while pulling"
    curl -s -m 900 "$url/v1/completions" -H 'Content-Type: application/json' \
        -d '{"model": "org/m", "prompt": "Once", "max_tokens": 3, "temperature": 0}' >"$out" 2>"$err"
    code=$?
}
run_curl
expect_code 0
expect_glob "$out" '*"text":*'
# all of it has come, and its names are still the server's: another finds the model and leaves them
fault
is_named() { [ -d "$(snapshot org/m)" ]; }
wait_for is_named
while_pulling -q
expect_code 0
expect_exact "$out" "$(cat "$scratch/text")"
expect_true has_links
run pull org/m
expect_code 0
expect_true has_links
kill -TERM $pid
wait $pid
code=$?
expect_code 0
expect_true no_rest
fault

# exclusions, and what cannot be fetched
run run org/m -p x --while-pulling --state-dir "$scratch/states"
expect_usage_error "run: --while-pulling and --state-dir exclude each other"
run run org/m -p x --while-pulling --mirror "$scratch"
expect_usage_error "run: --while-pulling and --mirror exclude each other"
for command in 'run -p x' 'serve --port 0'; do
    # shellcheck disable=SC2086 # a command and its options
    run $command "$scratch" --while-pulling
    expect_usage_error "${command%% *}: --while-pulling wants ORG/NAME, '$scratch' is a path"
done
forget_cache
run run org/nothing -p x --while-pulling
expect_error "org/nothing: *HTTP status 404*"
finish
