# SPDX-License-Identifier: MIT
# moeflux tokenize: the ways in and out agree, and decoding gives the text back. That the ids are
# those of Hugging Face tokenizers is for the tokenizer's own tests.
. ./lib.sh

printf 'Once upon a time, "d\303\251j\303\240 vu" \360\237\230\200 \\ \t x\nend' >"$scratch/text"

# DeepSeek's tokenizer.json and Kimi's tiktoken.model
for tokenizer in deepseek deepseek_v2 kimi; do
    model=$SOURCE/tests/text/data/$tokenizer
    run tokenize "$model" -f "$scratch/text" --ids
    expect_code 0
    expect_empty "$err"
    cp "$out" "$scratch/ids"
    run_with "$scratch/ids" tokenize "$model" --decode
    expect_same "$out" "$scratch/text"
done
run tokenize "$model" -p "a[EOS]" --parse-special
expect_code 0
expect_lines "$out" 2
expect_glob "$out" '*"a"*	"[[]EOS]"'
run tokenize "$model" -p "a[EOS]"
expect_code 0
expect_true test "$(wc -l <"$out")" -gt 2

[ -f "$demo/tokenizer.json" ] || skip "models/demo is not there"
run tokenize "$demo" -f "$scratch/text" --ids
expect_code 0
expect_empty "$err"
expect_lines "$out" 1
cp "$out" "$scratch/ids"

run_with "$scratch/text" tokenize "$demo" --ids
expect_same "$out" "$scratch/ids"
run_with "$scratch/text" tokenize "$demo" -f - --ids
expect_same "$out" "$scratch/ids"
run tokenize "$demo" -p "$(cat "$scratch/text")" --ids
expect_same "$out" "$scratch/ids"

run tokenize "$demo" -f "$scratch/text"
expect_code 0
cut -f 1 "$out" | tr '\n' ' ' | sed 's/ $/\n/' >"$scratch/column"
expect_same "$scratch/column" "$scratch/ids"

run tokenize "$demo" -f "$scratch/text" --json
expect_exact "$out" "{\"n_tokens\": $(wc -w <"$scratch/ids"), \"ids\": [$(sed 's/ /, /g' "$scratch/ids")]}"

# shellcheck disable=SC2046 # each id is an argument
run tokenize "$demo" --decode $(cat "$scratch/ids")
expect_code 0
expect_same "$out" "$scratch/text"
run_with "$scratch/ids" tokenize "$demo" --decode
expect_same "$out" "$scratch/text"
run tokenize "$demo" --decode -f "$scratch/ids" --json
expect_exact "$out" '{"text": "Once upon a time, \"déjà vu\" 😀 \\ \u0009 x\u000aend"}'

if [ -f "$demo/heldout.txt" ]; then
    run tokenize "$demo" -f "$demo/heldout.txt" --ids
    cp "$out" "$scratch/ids"
    run_with "$scratch/ids" tokenize "$demo" --decode
    expect_same "$out" "$demo/heldout.txt"
fi

run tokenize "$demo" -p "" --ids
expect_code 0
expect_exact "$out" ""
run tokenize "$demo" --decode 99999999
expect_error "token id 99999999 is not in the vocabulary*"
run tokenize "$demo" --decode 1 two
expect_usage_error "tokenize: 'two' is not a token id"
run tokenize "$demo" -f "$scratch/none"
expect_error "$scratch/none: *"
run tokenize "$scratch" -p x
expect_error "$scratch*"
finish
