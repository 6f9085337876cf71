# SPDX-License-Identifier: MIT
# moeflux plan: of a hub's model from its headers alone, the same as of the model itself; its figures
# against those of info and plain arithmetic; forms compared.
. ./lib_hub.sh
random_model
export TMPDIR="$scratch/tmp"
mkdir "$TMPDIR"
start_hub
publish org/tiny "$model"

rates="--drive 1G --memory 8G --ram 1G"
# without the name
plan_of() {
    # shellcheck disable=SC2086 # options
    run plan "$1" $rates --json
    expect_code 0
    expect_empty "$err"
    expect_lines "$out" 1
    sed 's/^{"model": "[^"]*", //' "$out" >"$2"
}
# $1 is planned as the model of $scratch/local, with ranges and without; but for what budgets hold of
# it, which is less what reading the header has taken
expect_planned() {
    sed 's/"here".*//' "$scratch/local" >"$scratch/expected"
    for kind in '' norange; do
        [ -z "$kind" ] || fault $kind 1000 /store/
        plan_of "$1" "$scratch/remote"
        fault
        sed 's/"here".*//' "$scratch/remote" >"$scratch/got"
        expect_same "$scratch/got" "$scratch/expected"
    done
}

# the same but for the budgets, in which what this process holds already counts in steps of megabytes
expect_same_plan() {
    for file in local remote; do
        sed 's/"ram_bytes": [0-9]*, //g' "$scratch/$file" >"$scratch/$file.same"
    done
    expect_same "$scratch/local.same" "$scratch/remote.same"
}
plan_of "$model" "$scratch/local"
: >"$log"
plan_of org/tiny "$scratch/remote"
expect_same_plan
expect_true [ ! -e "$cache" ]
# headers: of each shard the beginning alone
expect_true [ "$(n_requests 'safetensors .*all')" -eq 0 ]
expect_true [ "$(n_requests '^store .*safetensors bytes=0-262143')" -eq "$(ls "$model"/*.safetensors | wc -l)" ]

# a header that is longer than what is asked for at first, blanks at its end; with ranges and without
mkdir "$scratch/long"
cp -r "$model/." "$scratch/long/"
for shard in "$scratch"/long/*.safetensors; do
    n=$(od -An -t u4 -N 4 "$shard" | tr -d ' ') more=300000
    # shellcheck disable=SC2059 # the length's bytes
    printf "$(printf '\\%03o\\%03o\\%03o\\0\\0\\0\\0\\0' $(((n + more) % 256)) $(((n + more) / 256 % 256)) $(((n + more) / 65536)))" \
        >"$scratch/shard"
    head -c $((n + 8)) "$shard" | tail -c "$n" >>"$scratch/shard"
    printf "%${more}s" '' >>"$scratch/shard"
    tail -c +$((n + 9)) "$shard" >>"$scratch/shard"
    mv "$scratch/shard" "$shard"
done
publish org/long "$scratch/long"
expect_planned org/long

# Ctrl-C ends it, whatever models are still to come, and leaves nothing behind
fault 503 1000 /store/
for words in "plan org/tiny org/tiny" "pull org/tiny" "pull org/tiny --dry-run"; do
    : >"$err" # what the one before said
    # shellcheck disable=SC2086
    "$MOEFLUX" $words >"$out" 2>"$err" </dev/null &
    pid=$!
    wait_for grep -q "tried again" "$err"
    kill -INT $pid
    wait $pid
    code=$? last="$words, interrupted"
    expect_code 130
    expect_empty "$out"
    expect_glob "$err" "*moeflux: org/tiny: interrupted*"
    expect_true [ "$(grep -c "org/tiny: " "$err")" -eq 1 ]
    expect_true [ -z "$(ls "$TMPDIR")" ]
done
fault

# what is there and not run is named, in all commands alike
sees=$SOURCE/tests/model/data/glm4v_moe_bf16
publish org/sees "$sees"
left='left out               vision tower (model.visual.*: 20 tensors, 58.81 KiB)'
for command in "info $sees" "plan org/sees $rates" "plan $sees org/sees $rates" "pull org/sees --dry-run"; do
    # shellcheck disable=SC2086
    run $command
    expect_code 0
    expect_true grep -qF "$left" "$out"
    case $command in
    pull*) run pull org/sees --dry-run --json ;;
    *) run ${command%% *} org/sees --json --ram 1G ;;
    esac
    case $command in info*) run info "$sees" --json ;; esac
    expect_true grep -qF '"left_out": [{"what": "vision tower", "names": "model.visual.", "n_tensors": 20, "bytes": 60224}]' "$out"
done

run info "$model" --json --ram 1G
for key in resident_bytes expert_bytes working_set_bytes n_parameters; do
    expect_true [ "$(json "$out" $key)" = "$(json "$scratch/local" $key)" ]
done
# "budgets": [{...}, ...]: held rises from the least to all, what is read is what is not held
budgets=$(sed 's/.*"budgets": \[//' "$scratch/local" | tr '}' '\n' | grep ram_bytes)
expect_true [ "$(echo "$budgets" | wc -l)" -eq 5 ]
echo "$budgets" >"$scratch/budgets"
set=$(json "$scratch/local" working_set_bytes) token=$(json "$scratch/local" token_bytes)
sed 's/[^0-9.e+-]*"[a-z_]*": \([^,]*\)/\1 /g' "$scratch/budgets" | tr -d ',{' >"$scratch/numbers"
expect_true awk -v set="$set" -v token="$token" '
    function near(a, b) { return a - b <= 1e-6 * b && b - a <= 1e-6 * b }
    $2 <= held || $1 <= ram { bad = 1 }
    !near($3 + 0, (1 - $2) * set) && $2 != 1 { bad = 1 }
    !near($4 + 0, 1 / (token / 8589934592 + $3 / 1073741824)) { bad = 1 }
    { held = $2; ram = $1 }
    END { exit bad || held != 1 || NR != 5 }' "$scratch/numbers"

# GGUF, by its header; and forms compared
if "$MAKE_CHECKPOINT" --help 2>&1 | grep -q gguf; then
    mkdir "$scratch/gguf"
    "$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b --layers 4 --experts 16 --experts-per-token 4 \
        --hidden 256 --expert-hidden 256 --shared-hidden 256 --vocab 16384 --heads 4 --kv-heads 2 \
        --head-dim 64 --linear-v-heads 4 --linear-k-heads 2 --linear-k-dim 64 --linear-v-dim 64 \
        --quiet --form gguf --type Q4_K "$scratch/made" >/dev/null 2>"$err" || cat "$err"
    made=$(find "$scratch/made" -name '*.gguf' | head -1)
    [ -n "$made" ] || made=$scratch/made
    cp "$made" "$scratch/gguf/tiny-Q4_K_M.gguf"
    publish org/gguf "$scratch/gguf"
    plan_of "$scratch/gguf/tiny-Q4_K_M.gguf" "$scratch/local"
    plan_of org/gguf:Q4_K_M "$scratch/remote"
    expect_same_plan
    # shellcheck disable=SC2086
    run plan org/tiny org/gguf $rates
    expect_code 0
    expect_lines "$out" 3
    expect_glob "$out" "*dense*tokens/s
*org/tiny (mlx-affine)
*org/gguf (gguf*)"
    run pull org/gguf -q
    expect_code 0
    run info org/gguf
    expect_code 0

    # a header that is longer than what is asked for at first: 17 MiB of a value that nobody wants
    mkdir "$scratch/padded"
    padded=$scratch/padded/tiny-Q4_K_M.gguf
    pad_gguf "$made" "$padded"
    publish org/padded "$scratch/padded"
    expect_planned org/padded
    # and one that is longer than any
    truncate -s 200M "$scratch/padded/tiny-Q4_K_M.gguf"
    printf '\377\377\377\177' | dd of="$padded" bs=1 seek=49 conv=notrunc 2>/dev/null
    publish org/endless "$scratch/padded"
    run plan org/endless
    expect_error "org/endless: tiny-Q4_K_M.gguf: its header is longer than 128 MiB"
fi

# a vocabulary that cannot be read: its text's file comes with the headers, and nothing else does
mkdir "$scratch/unread"
cp "$model"/*.safetensors "$model"/*.json "$scratch/unread/"
echo '{"model": {"type": "WordPiece", "vocab": []}, "decoder": {"type": "ByteLevel"}, "pre_tokenizer": {"type": "ByteLevel"}}' \
    >"$scratch/unread/tokenizer.json"
publish org/unread "$scratch/unread"
why='tokenizer.json: model.type: "WordPiece", expected BPE or Unigram'
# shellcheck disable=SC2086
run plan org/unread $rates
expect_code 0
expect_glob "$out" "*
verdict                does not run but for bench: its vocabulary cannot be read
text                   $why"
# shellcheck disable=SC2086
run plan org/unread $rates --json
expect_true [ "$(json "$out" runs)" = false ]
run pull org/unread --dry-run
expect_code 0
expect_glob "$out" "*
verdict                does not run but for bench: its vocabulary cannot be read
text                   $why"
run pull org/unread --dry-run --json
expect_true [ "$(json "$out" runs)" = false ]
run pull org/unread
expect_error "org/unread: does not run, so it is not fetched (--force): its vocabulary cannot be read: $why"
expect_true [ ! -e "$cache/models--org--unread" ]
run pull org/unread --force -q
expect_code 0

# of a vocabulary in several forms the one that is opened
texts=$SOURCE/tests/text/data
cp "$texts/spm_small/json/tokenizer.json" "$texts/spm_small/model/tokenizer.model" "$texts/hunyuan/hy.tiktoken" \
    "$scratch/unread/"
echo '{}' >"$scratch/unread/added_tokens.json"
publish org/vocabularies "$scratch/unread"
run pull org/vocabularies -q
expect_code 0
got=$(snapshot org/vocabularies)
expect_same "$got/tokenizer.json" "$texts/spm_small/json/tokenizer.json"
expect_true [ -f "$got/added_tokens.json" ]
expect_true [ ! -e "$got/hy.tiktoken" ]
expect_true [ ! -e "$got/tokenizer.model" ]
for from in "$texts/hunyuan" "$texts/spm_small/model"; do
    (cd "$scratch/unread" && rm -f tokenizer.json hy.tiktoken tokenizer.model tokenizer_config.json)
    cp "$from"/*token* "$scratch/unread/"
    rm -rf "$cache"
    publish org/vocabularies "$scratch/unread"
    run pull org/vocabularies -q
    expect_code 0
    for file in "$from"/*token*; do
        expect_same "$got/$(basename "$file")" "$file"
    done
    run tokenize org/vocabularies -p x
    expect_code 0
done

# measured; one of several is not there: the others are told
run plan "$model"
expect_code 0
expect_glob "$out" "model *bytes a token *memory * (measured)*--ram *experts held*the least*this machine's*verdict *"
# shellcheck disable=SC2086
run plan org/none "$model" $rates
expect_code 1
expect_lines "$out" 2
expect_glob "$err" "moeflux: org/none: *404*"
# no speed of a budget that it does not run with
run plan "$model" --drive 1G --memory 8G --ram 1M
expect_code 0
expect_glob "$out" "* 1.00 MiB *% * -  this machine's*does not run: *"
run plan "$model" --drive 1G --memory 8G --ram 1M --json
expect_glob "$out" '*"runs": false, *"here": {"ram_bytes": 1048576, *"tokens_per_second": 0}*"tokens_per_second": [1-9]*'
run plan
expect_usage_error "plan: MODEL is missing"
run plan "$model" --drive fast
expect_usage_error "--drive: 'fast' is not bytes a second, like 3.5G"
# nothing is left behind
expect_true [ -z "$(ls -A "$TMPDIR")" ]
finish
