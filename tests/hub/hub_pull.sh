# SPDX-License-Identifier: MIT
# moeflux pull from a hub that works: what is fetched, what is not, where it lies, what takes it then;
# cut by kill -9 and resumed.
. ./lib_hub.sh
random_model
start_hub

# beside the model: copies in other forms, and what nothing needs
full=$scratch/full
cp -r "$model" "$full"
head -c 50000 /dev/urandom >"$full/pytorch_model.bin"
head -c 50000 /dev/urandom >"$full/consolidated.safetensors"
head -c 50000 /dev/urandom >"$full/model-q8_0.gguf"
mkdir "$full/onnx" "$full/additional_chat_templates"
head -c 50000 /dev/urandom >"$full/onnx/model.onnx"
echo '{{ messages }}' >"$full/additional_chat_templates/tool_use.jinja"
echo 'Read me' >"$full/README.md"
# the same content twice
cp "$full/config.json" "$full/config_copy.json"
publish org/tiny "$full"
unwanted='pytorch_model.bin consolidated.safetensors model-q8_0.gguf onnx/model.onnx README.md'
wanted="additional_chat_templates/tool_use.jinja config_copy.json $(cd "$model" && ls)"

# not there yet: every command says how to get it
for command in 'run -p x' info 'tokenize -p x' bench 'perplexity' 'serve --port 0'; do
    case $command in perplexity) file=$SOURCE/README.md ;; *) file= ;; esac
    # shellcheck disable=SC2086
    run $command org/tiny $file
    expect_error "org/tiny: neither a path nor a model in the hub's cache ($cache); 'moeflux pull org/tiny' fetches it"
done

# nor is it asked for where nothing may be
export HF_HUB_OFFLINE=1
: >"$log"
for command in pull 'pull --dry-run' plan 'run --while-pulling -p x'; do
    # shellcheck disable=SC2086
    run $command org/tiny
    expect_error "org/tiny: HF_HUB_OFFLINE is set: nothing is fetched"
done
run run org/tiny -p x
expect_error "org/tiny: neither a path *; 'moeflux pull org/tiny' fetches it, where HF_HUB_OFFLINE is not set"
expect_empty "$log"
unset HF_HUB_OFFLINE

# what would be hashed and fetched anew, and a dry run does neither
run pull org/tiny --dry-run --check
expect_usage_error "pull: --check and --dry-run exclude each other"

# what it would cost; nothing is kept
run pull org/tiny --dry-run
expect_code 0
expect_glob "$out" "*model.safetensors*
model                  org/tiny at $commit
files                  *
to be fetched *
least --ram *
verdict                runs with every expert in memory"
expect_true [ ! -e "$cache" ]
run pull org/tiny --dry-run --json
expect_code 0
expect_true [ "$(json "$out" runs)" = true ]
expect_true [ "$(json "$out" bytes)" = "$(json "$out" missing_bytes)" ]
# headers and small files only: a fraction of the shard was asked for
expect_true [ "$(n_requests "store GET.*model.*safetensors bytes=0-262143")" -eq 2 ]

: >"$log"
run pull org/tiny
expect_code 0
expect_exact "$out" "$(snapshot org/tiny)"
expect_true is_pulled org/tiny "$full"
# the last line is of what is there at the end
n_wanted=$(($(echo "$wanted" | wc -w) - 1)) # of two the content is the same
expect_glob "$err" "*(100 %), *, $n_wanted of $n_wanted files checked"
# what is there is found without the hub
cp "$log" "$scratch/log_before"
export HF_HUB_OFFLINE=true
for command in 'run -p Once -n 1' plan info; do
    # shellcheck disable=SC2086
    run $command org/tiny
    expect_code 0
done
run pull org/tiny
expect_code 0
expect_exact "$out" "$(snapshot org/tiny)"
run pull org/tiny --check
expect_error "org/tiny: HF_HUB_OFFLINE is set: nothing is fetched"
expect_same "$log" "$scratch/log_before"
unset HF_HUB_OFFLINE
for name in $unwanted; do
    expect_true [ ! -e "$(snapshot org/tiny)/$name" ]
done
expect_true [ "$(cat "$cache/models--org--tiny/refs/main")" = $commit ]
expect_true [ -L "$(snapshot org/tiny)/config.json" ]
# the token goes to the hub, and never to where it redirects
expect_true [ "$(n_requests '^hub .*Bearer hf_secret')" -gt 3 ]
expect_true [ "$(n_requests '^store ')" -gt 0 ]
expect_true [ "$(n_requests '^store .*Bearer')" -eq 0 ]

# all commands take the name
for command in 'run -p x -n 4 --temp 0 --raw' info 'tokenize -p x' 'perplexity --tokens 4'; do
    case $command in perplexity*) file=$SOURCE/README.md ;; *) file= ;; esac
    # shellcheck disable=SC2086
    run $command "$model" $file
    cp "$out" "$scratch/expected"
    # shellcheck disable=SC2086
    run $command org/tiny $file
    expect_code 0
    expect_true [ "$(sed 's/[0-9.]* .iB$//' "$out")" = "$(sed 's/[0-9.]* .iB$//' "$scratch/expected")" ]
done
run info "org/tiny@$commit"
expect_code 0
run info org/tiny@v2
expect_error "org/tiny@v2: the hub's cache ($cache) has not all of it: its revision 'v2' is not there whole; 'moeflux pull org/tiny@v2' fetches what is missing"
# a path is a path
mkdir -p "$scratch/here/org"
ln -s "$model" "$scratch/here/org/tiny"
(cd "$scratch/here" && HF_HOME=/nonexistent "$MOEFLUX" info org/tiny >"$out" 2>"$err" </dev/null)
code=$? last="info of a path"
expect_code 0

# again: nothing is fetched but the listing, and what was damaged
: >"$log"
run pull org/tiny -q
expect_code 0
expect_empty "$err"
expect_true [ "$(wc -l <"$log")" -eq 1 ]
blob=$(readlink -f "$(snapshot org/tiny)/config.json")
chmod u+w "$blob"
tr 1 2 <"$blob" >"$scratch/damaged" && cat "$scratch/damaged" >"$blob"
run pull org/tiny --check
expect_code 0
expect_glob "$err" "*another content*"
expect_true is_pulled org/tiny "$full"

run pull org/tiny@main --revision refs/pr/1
expect_usage_error "pull: --revision and @REVISION exclude each other"

# other places of the cache, another revision's name, the token from its file
publish org/tiny "$full"
mkdir -p "$root/api/org/tiny/revision/refs/pr"
cp "$root/api/org/tiny/revision/main" "$root/api/org/tiny/revision/refs/pr/1"
: >"$log"
last="pull to HF_HUB_CACHE"
echo from_file >"$HF_HOME/token"
HF_TOKEN='' HF_HUB_CACHE="$scratch/elsewhere" "$MOEFLUX" pull org/tiny@refs/pr/1 >"$out" 2>"$err"
code=$?
expect_code 0
expect_exact "$out" "$scratch/elsewhere/models--org--tiny/snapshots/$commit"
expect_true [ "$(cat "$scratch/elsewhere/models--org--tiny/refs/refs/pr/1")" = $commit ]
expect_true [ "$(n_requests 'Bearer from_file')" -gt 0 ]
: >"$log"
HF_TOKEN='' HF_HUB_DISABLE_IMPLICIT_TOKEN=1 HF_HUB_CACHE="$scratch/elsewhere" "$MOEFLUX" pull org/tiny >"$out" 2>"$err"
expect_true [ "$(n_requests 'Bearer')" -eq 0 ]

# in moeflux's own form: of its files of experts the beginning says where they lie
run run "$model" -p x -n 4 --temp 0 --raw -q
cp "$out" "$scratch/expected"
run convert "$model" "$scratch/own" --quiet
publish org/own "$scratch/own"
run plan org/own --drive 1G --memory 1G
expect_code 0
: >"$log"
run pull org/own --dry-run --json
expect_true [ "$(json "$out" runs)" = true ]
expect_true [ "$(n_requests 'dense.bin')" -eq 0 ]
for option in --while-pulling -q; do
    run run org/own -p x -n 4 --temp 0 --raw -q $option
    expect_code 0
    expect_same "$out" "$scratch/expected"
    run pull org/own -q
    expect_code 0
    expect_true diff -r "$(snapshot org/own)" "$scratch/own"
done

# made of a GGUF model: its vocabulary is no model, and comes with it
run convert "$SOURCE/tests/model/data/gguf_with_text/model.gguf" "$scratch/own_gguf" --quiet
publish org/own_gguf "$scratch/own_gguf"
for option in --while-pulling -q; do
    run run org/own_gguf -p x -n 4 --temp 0 --raw -q $option
    expect_code 0
    run pull org/own_gguf -q
    expect_code 0
    expect_exact "$out" "$(snapshot org/own_gguf)"
    expect_true diff -r "$(snapshot org/own_gguf)" "$scratch/own_gguf"
done

# a cache that is named by a path from here: looked at before it is there, filled, and taken from
(
    cd "$scratch" || exit 1
    export HF_HUB_CACHE=from/here
    "$MOEFLUX" pull org/tiny --dry-run --json >"$scratch/free" && "$MOEFLUX" pull org/tiny -q &&
        "$MOEFLUX" pull org/tiny --dry-run --json
) >"$out" 2>"$err" </dev/null
code=$? last="pull to a cache named from here"
expect_code 0
expect_true at_most 1 "$(json "$scratch/free" free_bytes)"
expect_true [ "$(tail -1 "$out" | sed 's/.*"runs": \([a-z]*\).*/\1/')" = true ]

# GGUF: one model of several, all its parts
gguf=$scratch/gguf
mkdir -p "$gguf/Q8_0"
for name in m-Q4_K_M.gguf m-Q4_K_S.gguf mmproj-m.gguf Q8_0/m-Q8_0-00001-of-00002.gguf Q8_0/m-Q8_0-00002-of-00002.gguf; do
    head -c 9000 /dev/urandom >"$gguf/$name"
done
publish org/gguf "$gguf"
run pull org/gguf:Q4_K_M --dry-run
expect_glob "$out" "*left out               vision projector (mmproj-m.gguf, 8.79 KiB: not fetched)
*"
check_gguf() { # CHOICE FIRST FILES...
    forget_cache
    run pull "org/gguf$1" --force
    expect_code 0
    expect_exact "$out" "$(snapshot org/gguf)/$2"
    shift
    expect_true [ "$(find "$(snapshot org/gguf)" -type l | wc -l)" -eq $# ]
    for name; do
        expect_same "$(snapshot org/gguf)/$name" "$gguf/$name"
    done
}
check_gguf :Q4_K_S m-Q4_K_S.gguf
check_gguf :q4_k_m m-Q4_K_M.gguf
check_gguf "" m-Q4_K_M.gguf
check_gguf :m-Q4_K_S.gguf m-Q4_K_S.gguf
check_gguf :Q8_0 Q8_0/m-Q8_0-00001-of-00002.gguf Q8_0/m-Q8_0-00002-of-00002.gguf
# beside another that was fetched by its name, it is still the one without a name
run pull org/gguf --force
expect_code 0
expect_exact "$out" "$(snapshot org/gguf)/m-Q4_K_M.gguf"
run info org/gguf
expect_error "*m-Q4_K_M.gguf: *"
run pull org/gguf:Q6_K --force
expect_error "org/gguf:Q6_K: there is no GGUF model 'Q6_K'; there are: *m-Q4_K_M.gguf*"
run pull org/gguf:Q4_K_M
expect_error "org/gguf:Q4_K_M: does not run, so it is not fetched (--force): *"

# nothing that runs
mkdir "$scratch/pickles"
head -c 9000 /dev/urandom >"$scratch/pickles/pytorch_model.bin"
publish org/pickles "$scratch/pickles"
run pull org/pickles
expect_error "org/pickles: org/pickles has no weights that are read: expected safetensors, GGUF or the packed form; there is pytorch_model.bin"
sed 's/qwen3_5_moe/llama9_moe/' "$model/config.json" >"$full/config.json"
publish org/other "$full"
run pull org/other
expect_error "org/other: does not run, so it is not fetched (--force): *llama9_moe*"
run pull org/other --dry-run --json
expect_code 0
expect_true [ "$(json "$out" runs)" = false ]

# kill -9 in the middle, several times; what has come is not fetched again
forget_cache
head -c 60000000 /dev/urandom >"$gguf/big-Q2_K.gguf"
publish org/gguf "$gguf"
for i in 1 2 3; do
    fault slow 1000 big-Q2_K
    "$MOEFLUX" pull org/gguf:Q2_K --force >"$out" 2>"$err" </dev/null &
    pid=$!
    part_grows() {
        state=$(ls "$cache"/models--org--gguf/blobs/*.moeflux-state 2>/dev/null) || return 1
        [ "$(tail -c +33 "$state" | tr -d '\0' | wc -c)" -ge "$i" ]
    }
    wait_for part_grows
    kill -9 $pid
    wait $pid 2>/dev/null
    fault
done
last="pull, killed and resumed"
run info org/gguf:Q2_K
expect_error "org/gguf:Q2_K: the hub's cache *; 'moeflux pull org/gguf:Q2_K' fetches what is missing"
: >"$log"
run pull org/gguf:Q2_K --force
expect_code 0
expect_same "$out" "$out"
expect_same "$(snapshot org/gguf)/big-Q2_K.gguf" "$gguf/big-Q2_K.gguf"
# the bytes of the ranges asked for
n_bytes=$(sed -n 's/^store GET .*big-Q2_K.gguf bytes=\([0-9]*\)-\([0-9]*\) .*/\1 \2/p' "$log" |
    awk '{ n += $2 - $1 + 1 } END { print n + 0 }')
expect_true [ "$n_bytes" -gt 0 ]
expect_true [ "$n_bytes" -le 57000000 ]

# Ctrl-C: what there is stays
forget_cache
fault slow 1000 big-Q2_K
"$MOEFLUX" pull org/gguf:Q2_K --force >"$out" 2>"$err" </dev/null &
pid=$!
i=1
wait_for part_grows
kill -INT $pid
wait $pid
code=$? last="pull, interrupted"
expect_code 130
expect_glob "$err" "*interrupted; the same command goes on from here"
fault

# one at a time
forget_cache
fault slow 1000 big-Q2_K
"$MOEFLUX" pull org/gguf:Q2_K --force >"$scratch/first" 2>&1 </dev/null &
pid=$!
wait_for part_grows
run pull org/gguf:Q2_K --force
expect_code 1
expect_glob "$err" "*another moeflux is fetching this model"
kill -9 $pid
wait $pid 2>/dev/null
finish
