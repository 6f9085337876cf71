# SPDX-License-Identifier: MIT
# Help, version, and every kind of mistake on a command line: exit codes 0 and 2.
. ./lib.sh

for command in "" run info tokenize template perplexity bench; do
    # shellcheck disable=SC2086 # the empty one is no argument
    run $command --help
    expect_code 0
    expect_empty "$err"
    expect_glob "$out" "Usage: moeflux ${command:-COMMAND} MODEL*--help*"
done
run devices --help
expect_code 0
expect_glob "$out" "Usage: moeflux devices*--help*"
run devices surplus
expect_usage_error "devices: unexpected argument 'surplus'"
run devices --sing
expect_usage_error "devices: '--sing' is not an option"
run -h
expect_code 0
run run -h
expect_code 0
for version in --version -V version; do
    run "$version"
    expect_code 0
    expect_true [ "$(head -1 "$out")" = "moeflux $(sed -n 's/.*MF_VERSION_STRING "\(.*\)"/\1/p' "$SOURCE/include/moeflux/moeflux.h")" ]
    expect_glob "$out" "moeflux *commit *compiler *commands *tiers *scalar*cpu *threads*"
done
run --help
cp "$out" "$scratch/help"
run help
expect_code 0
expect_same "$out" "$scratch/help"
run bench --help
cp "$out" "$scratch/help"
run help bench
expect_code 0
expect_same "$out" "$scratch/help"
run help sing
expect_usage_error "'sing' is not a command"

run help bench perplexity
expect_usage_error "help: unexpected argument 'perplexity'"
run version 2
expect_usage_error "version: unexpected argument '2'"

run
expect_usage_error "a command is missing"
run sing
expect_usage_error "'sing' is not a command"
run --sing
expect_usage_error "'--sing' is not an option"
# what was meant, where that is likely
run chat "$demo"
expect_usage_error "'chat' is not a command; did you mean 'run'?"
run help perplexty
expect_usage_error "'perplexty' is not a command; did you mean 'perplexity'?"
run "$SOURCE/models"
expect_usage_error "'$SOURCE/models' is not a command; 'moeflux run $SOURCE/models' chats with a model"
run run "$demo" --temperature 1
expect_usage_error "run: '--temperature' is not an option; did you mean --temp?"
run bench "$demo" --trheads=2
expect_usage_error "bench: '--trheads=2' is not an option; did you mean --threads?"
# as other programs call it, where the command has such a thing
run run "$demo" --n-predict 5
expect_usage_error "run: '--n-predict' is not an option; did you mean --max-tokens?"
run bench "$demo" --n-gpu-layers=99
expect_usage_error "bench: '--n-gpu-layers=99' is not an option; did you mean --device?"
run tokenize "$demo" --ctx-size 5
expect_usage_error "tokenize: '--ctx-size' is not an option"
for word in -m --model; do
    run run $word "$demo"
    expect_usage_error "run: '$word' is not an option; the model stands by itself: moeflux run MODEL"
done
# in a word of several letters, behind any other word
for before in --raw --ram=1G "$demo" ''; do
    # shellcheck disable=SC2086 # a word or none
    run run $before -qzv
    expect_usage_error "run: '-z' is not an option"
    # shellcheck disable=SC2086
    run run $before -é
    expect_usage_error "run: '-é' is not an option"
done
run run "$demo" -qn
expect_usage_error "run: '-n' needs a value"
run run "$demo" --raw --quiet=yes
expect_usage_error "run: '--quiet=yes' takes no value"
run -v
expect_usage_error "'-v' is not an option; did you mean --version?"

for command in run info tokenize perplexity bench; do
    run $command
    expect_usage_error "$command: MODEL is missing"
    run $command --sing model
    expect_usage_error "$command: '--sing' is not an option"
    run $command model -Z
    expect_usage_error "$command: '-Z' is not an option"
    run $command --help=me
    expect_usage_error "$command: '--help=me' takes no value"
done
# where no engine is opened, nothing is written of what it does
for command in info plan pull; do
    run $command "$demo" --timeline "$scratch/timeline"
    [ $command$code = pull1 ] || expect_usage_error "$command: '--timeline' is not an option"
    expect_true [ ! -e "$scratch/timeline" ]
    run $command --help
    ! grep -q timeline "$out" || fail "$command --help names --timeline"
done
run perplexity model
expect_usage_error "perplexity: FILE is missing"
for command in "run model" "info model" "bench model" "tokenize model" "perplexity model file"; do
    # shellcheck disable=SC2086 # two or three words
    run $command surplus
    expect_usage_error "${command%% *}: unexpected argument 'surplus'"
done

for option in -p -f -n -s -c -t --prompt --file --max-tokens --temp --top-k --top-p --min-p --seed --ram \
    --presence-penalty --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length --dry-last-n --dry-breaker \
    --messages --tools --set --resume --xtc-probability --xtc-threshold --logit-bias --stop --logprobs --thoughts --think-budget \
    --repeat-penalty --expert-cache --system --think --ctx --io --threads --prefill-chunk \
    --experts-per-token --packed-bits --cpu-tier --kv-type --numa; do
    run run model "$option"
    expect_usage_error "run: '$option' needs a value"
done

# a shell's variable that is not set, where a path is wanted
run run '' -p x
expect_usage_error "run: MODEL is empty"
run perplexity "$demo" ''
expect_usage_error "perplexity: FILE is empty"
for option in --file --messages --tools --grammar --json-schema --state-dir --trace --mirror --timeline; do
    run run "$demo" "$option" ''
    expect_usage_error "$option: '' is not a path"
done
run run "$demo" -f ''
expect_usage_error "--file: '' is not a path"
for words in 'convert --calibrate' 'convert --check' 'convert --split' 'bench --routing' 'replay --svg' 'doctor --report'; do
    run "${words% *}" "$demo" "${words#* }" ''
    expect_usage_error "${words#* }: '' is not a path"
done

# bad OPTION VALUE...
bad() {
    option=$1
    shift
    for value in "$@"; do
        run "$command" model $file "$option" "$value"
        expect_usage_error "$option: '$value' is not *"
    done
}
run run model --temp 9e9
expect_usage_error "--temp: '9e9' is not a number from 0 to 1000"
run run model --presence-penalty 101
expect_usage_error "--presence-penalty: '101' is not a number from -100 to 100"
run run model --dry-last-n 0
expect_usage_error "--dry-last-n: '0' is not a whole number from 1 to 4294967295"
run run model -n -1
expect_usage_error "--max-tokens: '-1' is not a whole number from 0 to 4294967295"
run run model --seed -5
expect_usage_error "--seed: '-5' is not a whole number from 0 to 2^64 - 1"
file=
for command in run info bench perplexity; do
    [ $command != perplexity ] || file=file
    bad --ram 0 -1 3X 3GG G 1.5 .5G 1.G 1e9 " 1" "" 18446744073709551616 18446744073709551615 \
        99999999999T
    bad --expert-cache -1 lots 0x10 1..5G
    bad --ctx 0 -5 12a 99999999999 1.5
    run $command model $file -c 0
    expect_usage_error "--ctx: '0' is not a number from 1 to *"
    run $command model $file -t 1025
    expect_usage_error "--threads: '1025' is not a number from 1 to 1024"
    run $command model $file --prefill-chunk 1048577
    expect_usage_error "--prefill-chunk: '1048577' is not a number from 1 to 1048576"
    bad --threads 0 -1 two 4294967297
    bad --prefill-chunk 0 1K
    bad --experts-per-token 0 x
    bad --io aio URING ""
    bad --packed-bits 3 1 8
    bad --cpu-tier sse 2
    bad --kv-type f16 32
    bad --numa on interleave
done
file=
command=run
bad --temp -1 hot nan inf 0x1 1e99 "1 "
bad --top-k -1 1.5 4294967296
bad --top-p 0 1.1 -0.5
bad --min-p 1.5 -0.1
bad --repeat-penalty 0 -1
bad --presence-penalty -101 101 --1 - x
bad --frequency-penalty -100.5 nan
bad --dry-multiplier -1 x
bad --dry-base 0.5 0
bad --dry-allowed-length 0 1.5
bad --dry-last-n 0 -1
bad --xtc-probability -0.1 1.1
bad --xtc-threshold 2
bad --logit-bias 5 5= =5 x=1 -1=1 5=101 5=-101 5=inf 2147483648=1 5=1=2
bad --logprobs 21 -1 x
bad --thoughts off ""
bad --think-budget -1 x 4294967296
bad --stop ""
set --
i=0
while [ $i -lt 17 ]; do
    set -- "$@" --stop "$i"
    i=$((i + 1))
done
run run model "$@"
expect_usage_error "--stop: more than 16 of them"
bad --seed -1 18446744073709551616 0x1
bad --think maybe ""
run run model -n -1
expect_usage_error "--max-tokens: '-1' is not *"
run run model -n 5x
expect_usage_error "--max-tokens: '5x' is not *"
run run model --stats=xml
expect_usage_error "--stats: 'xml' is not layers, json or json:FILE"
run run model --messages one -p two
expect_usage_error "run: --messages excludes -p, -f and --system"
run run model --messages one --raw
expect_usage_error "run: --raw and --messages exclude each other"
run run model --set x
expect_usage_error "--set: 'x' is not NAME=JSON"
run run model --set x=abc
expect_usage_error "--set: 'x=abc' is not NAME=JSON"
run run model -p one -f two
expect_usage_error "run: -p and -f exclude each other"
run run model --raw --system be
expect_usage_error "run: --raw and --system exclude each other"
run run model -p x --raw --set a=1
expect_usage_error "run: --raw and --set exclude each other"
for words in '--think on' --no-think; do
    # shellcheck disable=SC2086 # an option and its value
    run run model -p x --raw $words
    expect_usage_error "run: --raw and --think exclude each other"
done
command=bench
bad --prompt-tokens -1 many
bad --gen-tokens -1 1.5
bad --repeat 0 -2
bad --warmup -1
bad --measure-ms -1
run bench model --ctx 10 --prompt-tokens 8 --gen-tokens 8
expect_usage_error "bench: --ctx is below the 16 tokens to evaluate"
command=perplexity file=file
bad --tokens 0 1 -3
bad --ctx 1
run tokenize model -p one -f two
expect_usage_error "tokenize: more than one text is given"
run tokenize model --ids --json
expect_usage_error "tokenize: --ids and --json exclude each other"
for option in --ids --parse-special; do
    run tokenize model --decode 1 2 $option
    expect_usage_error "tokenize: --decode excludes --ids and --parse-special"
done

# good values get as far as the model, which is not there
for value in 1 1K 1.5G 3g 512M 1T; do
    run info "$scratch/none" --ram "$value"
    expect_error "$scratch/none*"
done
run info "$scratch/none" --expert-cache 0
expect_error "$scratch/none*"
finish
