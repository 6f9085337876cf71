# SPDX-License-Identifier: MIT
# moeflux convert: the same text from the converted model; nothing is written over; what kill -9
# leaves is taken up, and is then what it would have been; a limit on files is an error and no
# signal; what is damaged is found.
. ./lib.sh
has_model "$demo" || skip "models/demo is not there"

run convert "$demo" "$scratch/dry" --dry-run
expect_code 0
expect_empty "$err"
expect_glob "$out" "*8, 32 experts each*9 reads*1 read,*verdict *faster where*"
expect_true [ ! -e "$scratch/dry" ]
run convert "$demo" "$scratch/m" --verify --json
expect_code 0
expect_empty "$err"
expect_lines "$out" 1
expect_true [ "$(json "$out" source_reads_per_expert)" -eq 9 ]
expect_true [ "$(json "$out" reads_per_expert)" -eq 1 ]
run info "$scratch/m"
expect_glob "$out" "*form *moeflux, experts of 4 bits*"

run run "$demo" -p "Once upon a time" -n 48 --temp 0 --quiet
cp "$out" "$scratch/text"
run run "$scratch/m" -p "Once upon a time" -n 48 --temp 0 --quiet --expert-cache 0
expect_code 0
expect_same "$out" "$scratch/text"
run perplexity "$demo" "$demo/heldout.txt" --tokens 200 --quiet
cp "$out" "$scratch/text"
run perplexity "$scratch/m" "$demo/heldout.txt" --tokens 200 --quiet
expect_same "$out" "$scratch/text"

# nothing is written over
run convert "$demo" "$scratch/m"
expect_error "$scratch/m: holds a converted model already*"
mkdir "$scratch/mine"
echo mine >"$scratch/mine/notes"
run convert "$demo" "$scratch/mine"
expect_error "$scratch/mine: is not empty (notes is there)*"
run convert "$demo" "$scratch/other" --split "$scratch/mine"
expect_error "$scratch/mine: is not empty*"
expect_true [ ! -e "$scratch/other" ]
expect_true [ "$(ls "$scratch/mine")" = notes ]

# over two directories, by a trace; the same text
run run "$demo" -p "Once upon a time" -n 8 --temp 0 --quiet --trace "$scratch/trace"
run convert "$demo" "$scratch/two" --split "$scratch/second:3" --trace "$scratch/trace" --verify
expect_code 0
expect_true [ -f "$scratch/two/drive_1/layer_00.bin" ]
expect_true [ "$(wc -c <"$scratch/second/layer_00.bin")" -gt "$(wc -c <"$scratch/two/experts/layer_00.bin")" ]
run run "$scratch/two" -p "Once upon a time" -n 48 --temp 0 --quiet
run_with /dev/null run "$demo" -p "Once upon a time" -n 48 --temp 0 --quiet
cp "$out" "$scratch/text"
run run "$scratch/two" -p "Once upon a time" -n 48 --temp 0 --quiet
expect_same "$out" "$scratch/text"

# one that ended between the marks, the first's the last: the same command ends it; with another
# directory than its own it is none of that
json "$scratch/two/moeflux.json" id | tr -d '"' >"$scratch/two/moeflux.partial"
mkdir "$scratch/third"
cp "$scratch/second/layer_00.bin" "$scratch/third"
run convert "$demo" "$scratch/two" --split "$scratch/third:3" --trace "$scratch/trace"
expect_error "$scratch/third: is not empty*"
run convert "$demo" "$scratch/two" --split "$scratch/second:3" --trace "$scratch/trace" --verify --json
expect_code 0
expect_true [ "$(json "$out" n_layers_kept)" -eq 8 ]
expect_true [ ! -e "$scratch/two/moeflux.partial" ]
expect_true [ ! -e "$scratch/second/moeflux.partial" ]
run convert "$demo" "$scratch/two" --split "$scratch/second:3" --trace "$scratch/trace"
expect_error "$scratch/two: holds a converted model already*"

# read back by itself
run convert --verify "$scratch/m"
expect_code 0
expect_exact "$out" "read back              every checksum is right"
run convert --verify "$scratch/m" --json
expect_code 0
expect_exact "$out" '{"verified": true}'

# what would do nothing then, as where OUT was forgotten, is refused
for words in "--bits 4" "--layer-bits 0:4" "--check $demo/heldout.txt" "--split $scratch/x" "--trace $scratch/trace" \
    "--packed-bits 4" --dry-run; do
    # shellcheck disable=SC2086 # an option and its value
    run convert --verify "$scratch/m" $words
    expect_usage_error "convert: ${words%% *} needs OUT"
done

# damage is found
printf x | dd of="$scratch/m/experts/layer_03.bin" bs=1 seek=500000 conv=notrunc 2>/dev/null
run convert --verify "$scratch/m"
expect_error "*layer_03.bin: expert * is damaged (checksum)"

# a limit on the size of files
(
    ulimit -f 200
    "$MOEFLUX" convert "$demo" "$scratch/limited" >"$out" 2>"$err"
)
code=$?
expect_error "$scratch/limited/dense.bin: no room for it*"
run convert "$demo" "$scratch/limited" --quiet --verify
expect_code 0

# fewer bits: smaller, and what it costs is said; as many bits as there were: nothing is lost
run convert "$demo" "$scratch/three" --bits 3 --check "$demo/heldout.txt" --check-tokens 300 --json
expect_code 0
expect_true at_most "$(json "$out" expert_bytes)" "$(($(json "$out" source_expert_bytes) * 4 / 5))"
expect_true at_most 0.05 "$(json "$out" relative_error)"
expect_true at_most "$(json "$out" relative_error)" 0.25
expect_true at_most "$(json "$out" perplexity)" 1000
run info "$scratch/three"
expect_glob "$out" "*form *moeflux, experts of 3 bits*"
run convert "$demo" "$scratch/mixed" --bits 2 --layer-bits 0-1:4,7:6 --check "$demo/heldout.txt" --check-tokens 64
expect_code 0
expect_glob "$out" "*quantisation's error *%*perplexity *, before *63 tokens of*"
run convert "$demo" "$scratch/four" --bits 4 --check "$demo/heldout.txt" --check-tokens 100 --json
expect_true [ "$(json "$out" perplexity)" = "$(json "$out" source_perplexity)" ]
expect_true [ "$(json "$out" relative_error)" = 0 ]
run convert "$demo" "$scratch/hot" --bits 2 --hot-bits 4 --hot-share 25% --trace "$scratch/trace" --verify --json
expect_code 0
expect_true at_most "$(json "$out" expert_bytes)" "$(($(json "$out" source_expert_bytes) * 7 / 10))"
run run "$scratch/hot" -p "Once upon a time" -n 24 --temp 0 --quiet --expert-cache 0
expect_code 0
cp "$out" "$scratch/text"
run run "$scratch/hot" -p "Once upon a time" -n 24 --temp 0 --quiet --prefill-chunk 1 --io pool
expect_same "$out" "$scratch/text"
# slots of two sizes: as many bytes as the experts take hold them all
run run "$scratch/hot" -p "Once upon a time" -n 24 --temp 0 --quiet --expert-cache 1M
expect_same "$out" "$scratch/text"
# which a trace tells, so that replay has as many hits as the engine counted
run run "$scratch/hot" -p "Once upon a time" -n 24 --temp 0 --quiet --expert-cache 300K --prefill-chunk 1 \
    --predict off --trace "$scratch/hot.trace" --stats=json:"$scratch/stats"
expect_same "$out" "$scratch/text"
run replay "$scratch/hot.trace" --slots "$(json "$scratch/stats" n_slots)" --json
expect_code 0
expect_true [ "$(json "$out" expert_hits)" = "$(json "$scratch/stats" expert_hits)" ]
expect_true [ "$(json "$out" expert_misses)" = "$(json "$scratch/stats" expert_misses)" ]
expect_true [ "$(json "$out" read_bytes)" = "$(json "$scratch/stats" read_bytes)" ]
# and of a budget as many slots as the engine has, but for the lists that come with each; a sanitizer's
# own memory counts in the engine's budget and not in the trace's
if [ -z "${SANITIZE:-}" ]; then
    run info "$scratch/hot" --json
    ram=$(($(json "$out" floor_bytes) + 2097152))
    run run "$scratch/hot" -p "Once" -n 2 --temp 0 --quiet --ram "$ram" --trace "$scratch/hot.trace" \
        --stats=json:"$scratch/stats"
    expect_code 0
    run replay "$scratch/hot.trace" --ram "$ram" --json
    expect_true at_most "$(json "$scratch/stats" n_slots)" "$(json "$out" n_slots)"
    expect_true at_most "$(json "$out" n_slots)" "$(($(json "$scratch/stats" n_slots) + 3))"
fi
# and on a device that is given them, whose slots have each form's parts in places of their own: cli_convert_long
if [ -n "${MF_TEST_LONG:-}" ] && "$MOEFLUX" devices | grep -q '^vulkan:'; then
    set -- run "$scratch/hot" -p "Once upon a time" -n 6 --temp 0 --quiet --device vulkan
    run "$@"
    expect_code 0
    cp "$out" "$scratch/there"
    run "$@" --expert-device hybrid:8
    expect_same "$out" "$scratch/there"
fi
run info "$scratch/hot" --json
expect_true [ "$(($(json "$out" slot_bytes) * $(json "$out" n_slots)))" -lt "$(($(wc -c <"$scratch/hot/experts/layer_00.bin") * 9))" ]
run convert "$demo" "$scratch/none" --bits 2 --hot-bits 4 --hot-share 0% --trace "$scratch/trace"
expect_error "hot_bits needs a trace*"
# a share of the experts is as many as it says, though 0.29 of 100 is a little less than 29 as a fraction
random_model
rm -r "$model"
"$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b --layers 1 --experts 100 --experts-per-token 4 --hidden 128 \
    --expert-hidden 64 --shared-hidden 64 --vocab 256 --heads 4 --kv-heads 2 --head-dim 64 --linear-v-heads 4 \
    --linear-k-heads 2 --linear-k-dim 32 --linear-v-dim 32 --quiet "$model" >/dev/null
run bench "$model" --prompt-tokens 20 --gen-tokens 0 --repeat 1 --warmup 0 --measure-ms 0 --trace "$scratch/hundred" --quiet
expect_code 0
# experts_of SHARE: bytes of the experts
experts_of() {
    run convert "$model" "$scratch/none" --bits 2 --hot-bits 4 --hot-share "$1" --trace "$scratch/hundred" --dry-run --json
    json "$out" expert_bytes
}
expect_true [ "$(($(experts_of 29%) - $(experts_of 28%)))" -eq "$(($(experts_of 28%) - $(experts_of 27%)))" ]
expect_true [ "$(experts_of 29.9%)" = "$(experts_of 29%)" ]
expect_true [ "$(experts_of 29.9999999%)" = "$(experts_of 29%)" ]
expect_true [ "$(experts_of 100%)" -gt "$(experts_of 99%)" ]
rm -r "$model"
run convert "$demo" "$scratch/calibrated" --bits 2 --calibrate "$demo/heldout.txt" --calibrate-tokens 200 --json
expect_code 0
expect_true at_most 0.1 "$(json "$out" relative_error)"
run convert "$demo" "$scratch/none" --bits 2 --calibrate "$scratch/nothing"
expect_error "*nothing*"
# options that would do nothing without another
for words in '--group 32' "--calibrate $demo/heldout.txt" '--calibrate-tokens 9 --bits 4' '--check-tokens 9' '--hot-share 5%' '--hot-bits 8'; do
    # shellcheck disable=SC2086 # an option and its value
    run convert "$demo" "$scratch/none" $words
    expect_usage_error "convert: ${words%% *} needs --*"
done
# directories that are taken, or named twice: known to --dry-run, and before a text is evaluated
mkdir "$scratch/taken"
: >"$scratch/taken/x"
run convert "$demo" "$scratch/taken" --dry-run
expect_error "$scratch/taken: is not empty (x is there)*"
run convert "$demo" "$scratch/none" --split "$scratch/taken" --dry-run
expect_error "$scratch/taken: is not empty (x is there)*"
run convert "$demo" "$scratch/taken" --bits 2 --calibrate "$scratch/nothing"
expect_error "$scratch/taken: is not empty (x is there)*"
for words in "$scratch/none" "$scratch/./none"; do
    run convert "$demo" "$scratch/none" --split "$words"
    expect_error "$words: is named twice; each drive has a directory of its own"
    expect_true [ ! -e "$scratch/none" ]
done
# the folder that the first has for its own
run convert "$demo" "$scratch/none" --split "$scratch/none/experts"
expect_error "$scratch/none/experts: is named twice; the first directory's experts go there"
expect_true [ ! -e "$scratch/none" ]
# a share that is none, which would be a part of the directory's name
for share in -1 50% 1,5 1e9; do
    run convert "$demo" "$scratch/none" --split "$scratch/second_one:$share" --dry-run
    expect_usage_error "--split: '$scratch/second_one:$share' is not DIR or DIR:SHARE, *"
done
for name in 1:x 1:50%/; do
    run convert "$demo" "$scratch/none" --split "$scratch/$name" --dry-run
    expect_code 0
done
# so is a folder that is not there to make one in, or not to be written in
for option in --dry-run "--check $scratch/nothing" "--bits 2 --calibrate $scratch/nothing"; do
    # shellcheck disable=SC2086 # an option and its value
    run convert "$demo" "$scratch/no/out/" $option
    expect_error "$scratch/no/out/: cannot make the directory: No such file or directory"
    # shellcheck disable=SC2086
    run convert "$demo" "$scratch/none" --split "$scratch/no/out" $option
    expect_error "$scratch/no/out: cannot make the directory: No such file or directory"
done
# before the model is looked at
run convert "$scratch" "$scratch/no/out"
expect_error "$scratch/no/out: cannot make the directory: No such file or directory"
run convert "$demo" "$demo/config.json/out" --dry-run
expect_error "$demo/config.json/out: cannot open the directory: Not a directory"
if [ "$(id -u)" -ne 0 ]; then
    mkdir "$scratch/locked"
    chmod a-w "$scratch/locked"
    run convert "$demo" "$scratch/locked" --dry-run
    expect_error "$scratch/locked: cannot be written: Permission denied"
    run convert "$demo" "$scratch/locked/out" --dry-run
    expect_error "$scratch/locked/out: cannot make the directory: Permission denied"
fi
# but a drive's folder may be in the first
run convert "$demo" "$scratch/outer" --split "$scratch/outer/inner" --verify
expect_code 0
run convert "$demo" "$scratch/above/" --split "$scratch/above/in" --split "$scratch/above/in/it" --dry-run
expect_code 0
# not below it where nothing is, nor in another whose name begins alike
for words in "$scratch/above/a/b" "$scratch/above_it/in"; do
    run convert "$demo" "$scratch/above" --split "$words" --dry-run
    expect_error "$words: cannot make the directory: No such file or directory"
done
(
    cd "$scratch" || exit 1
    "$MOEFLUX" convert "$demo" here --dry-run >"$out" 2>"$err"
)
code=$?
expect_code 0
# a text that cannot be read is known before anything is written
run convert "$demo" "$scratch/none" --check "$scratch/nothing"
expect_error "$scratch/nothing: cannot open: *"
expect_true [ ! -e "$scratch/none" ]
run convert "$demo" "$scratch/none" --packed-bits 4
expect_error "$demo: packed_expert_bits is 4, but the model is not in the packed form"
for words in '--bits 1' '--bits 7' '--bits 9' '--bits x' '--hot-bits 7' '--group 48' '--group 256' '--packed-bits 3'; do
    # shellcheck disable=SC2086 # an option and its value
    run convert "$demo" "$scratch/none" --bits 4 $words
    expect_usage_error "${words%% *}: '${words#* }' is not *[0-9] or [0-9]*"
done
run convert "$demo" "$scratch/none" --layer-bits 3-1:4
expect_usage_error "--layer-bits: '3-1:4' is not a list like*"
# layers and experts that are not there
for list in 8:4 0-8:4 0:4,99:4; do
    run convert "$demo" "$scratch/none" --layer-bits $list --dry-run
    expect_error "bits are given for layers * to *, the model has 0 to 7"
done
run convert "$demo" "$scratch/none" --bits 2 --hot-bits 4 --hot-share 3% --trace "$scratch/trace" --dry-run
expect_error "hot_share: 0.03 of 32 experts is none of them"
expect_true [ ! -e "$scratch/none" ]

# templates go with it, whatever their names
mkdir "$scratch/named"
cp -r "$demo/." "$scratch/named"
mkdir -p "$scratch/named/additional_chat_templates"
long=of_tools_that_are_called_by_a_name_that_is_long.jinja
echo '{{ messages[0].content }}' >"$scratch/named/additional_chat_templates/$long"
run convert "$scratch/named" "$scratch/with_named" --quiet
expect_code 0
expect_true diff -r "$scratch/named/additional_chat_templates" "$scratch/with_named/additional_chat_templates"

# killed in the middle, and taken up: the same files as without
random_model
rm -r "$model"
"$MAKE_CHECKPOINT" --preset qwen3.6-35b-a3b --layers 16 --experts 64 --experts-per-token 4 \
    --hidden 512 --expert-hidden 256 --shared-hidden 64 --vocab 1024 --heads 4 --kv-heads 2 \
    --head-dim 64 --linear-v-heads 4 --linear-k-heads 2 --linear-k-dim 32 --linear-v-dim 32 \
    --quiet "$model" >/dev/null
run convert "$model" "$scratch/whole" --quiet
expect_code 0
for file in layer_00 layer_03 layer_09; do
    "$MOEFLUX" convert "$model" "$scratch/killed" --quiet >"$out" 2>"$err" &
    pid=$!
    # shellcheck disable=SC2034 # wait_for's
    while kill -0 "$pid" 2>/dev/null && [ ! -e "$scratch/killed/experts/$file.bin" ]; do :; done
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
done
if [ -e "$scratch/killed/moeflux.partial" ]; then
    run convert "$demo" "$scratch/killed"
    expect_error "$scratch/killed: holds what is left of another conversion*"
    run info "$scratch/killed"
    expect_code 1
    run convert "$model" "$scratch/killed" --json
    expect_code 0
    expect_true [ "$(json "$out" n_layers_kept)" -ge 1 ]
fi
expect_true diff -r "$scratch/whole" "$scratch/killed"

# what was not begun leaves a folder that was there as empty as it was, for other options
mkdir "$scratch/empty" "$scratch/begun"
echo 0123456789abcdef0123456789abcdef >"$scratch/begun/moeflux.partial"
run convert "$demo" "$scratch/empty" --split "$scratch/begun"
expect_error "$scratch/begun: holds what is left of another conversion*"
expect_true [ -z "$(ls -A "$scratch/empty")" ]
expect_true [ "$(ls -A "$scratch/begun")" = moeflux.partial ]

# on a drive that has just room enough: what a killed one was at counts as there, room and all
if [ "$(id -u)" = 0 ] && mkdir "$scratch/drive" && mount -t tmpfs -o size=400m none "$scratch/drive" 2>/dev/null; then
    run convert "$model" "$scratch/drive/out" --quiet
    expect_code 0
    used=$(du -sm "$scratch/drive" | cut -f1)
    mv "$scratch/drive/out/experts/layer_15.bin" "$scratch/drive/out/experts/layer_15.bin.tmp"
    json "$scratch/drive/out/moeflux.json" id | tr -d '"' >"$scratch/drive/out/moeflux.partial"
    rm "$scratch/drive/out/moeflux.json"
    mount -o remount,size=$((used + 68))m "$scratch/drive"
    run convert "$model" "$scratch/drive/out" --json
    expect_code 0
    expect_true [ "$(json "$out" n_layers_kept)" -eq 15 ]
    expect_true diff -r "$scratch/whole" "$scratch/drive/out"
    # too little is known before a text is read; --dry-run alone says what it comes to
    run convert "$model" "$scratch/drive/new" --bits 8 --calibrate "$scratch/nothing"
    expect_error "$scratch/drive/new: * MiB are needed there and * MiB are free: No space left on device"
    run convert "$model" "$scratch/drive/out2/" --split "$scratch/drive/out2/in" --check "$scratch/nothing"
    expect_error "$scratch/drive/out2/: * MiB are needed there and * MiB are free: No space left on device"
    run convert "$model" "$scratch/drive/new" --bits 8 --dry-run
    expect_code 0
    expect_true [ "$(ls "$scratch/drive")" = out ]
    umount "$scratch/drive" || umount -l "$scratch/drive"
fi
finish
