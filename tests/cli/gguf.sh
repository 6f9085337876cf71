# SPDX-License-Identifier: MIT
# GGUF files: as a path, as a directory, split, and what is wrong with them.
. ./lib.sh
data=$SOURCE/tests/model/data

for path in gguf_35_q4_k gguf_35_q4_k/model.gguf; do
    run info "$data/$path"
    expect_code 0
    expect_glob "$out" "family                 qwen3_5_moe
form                   gguf q4_k, experts of 4 bits
*"
done
run info "$data/gguf_v3_old_bf16" --json
expect_code 0
expect_true [ "$(json "$out" form)" = '"gguf bf16"' ]
run bench "$data/gguf_v2_lite_q8_0" --prompt-tokens 8 --gen-tokens 4 --repeat 1 --warmup 0 --measure-ms 0
expect_code 0

# without a vocabulary
run tokenize "$data/gguf_35_q4_k" -p x
expect_error "$data/gguf_35_q4_k/model.gguf: key tokenizer.ggml.model is none; supported are gpt2, llama, t5"

# with one: text in, text out
model=$data/gguf_with_text/model.gguf
run tokenize "$model" -p "hello <|im_end|>" --parse-special --ids
expect_code 0
expect_exact "$out" "258 111 32 261"
run run "$model" -p "hello" -n 5 --temp 0
expect_code 0
echo '[{"role": "user", "content": "hi"}]' >"$scratch/messages"
run template "$model" --messages "$scratch/messages"
expect_code 0
expect_exact "$out" "<|im_start|>user
hi<|im_end|>
<|im_start|>assistant"
run perplexity "$model" "$SOURCE/README.md" --tokens 40 --ctx 20 --skip 10
expect_code 0
cp -r "$data/gguf_with_text" "$scratch/dir"
run convert "$scratch/dir" "$scratch/aligned" --verify
expect_code 0
run tokenize "$scratch/aligned" -p "hello <|im_end|>" --parse-special --ids
expect_exact "$out" "258 111 32 261"

mkdir "$scratch/two"
cp "$data/gguf_v3_q8_0/model.gguf" "$scratch/two/a.gguf"
run info "$scratch/two"
expect_code 0
cp "$data/gguf_v3_q8_0/model.gguf" "$scratch/two/b.gguf"
run info "$scratch/two"
expect_error "$scratch/two: holds several GGUF models; give the path of one: *"

# cut short: found when it is opened
head -c 100000 "$data/gguf_v3_q8_0/model.gguf" >"$scratch/cut.gguf"
run info "$scratch/cut.gguf"
expect_error "$scratch/cut.gguf: tensor * lies outside the file, which has 100000 bytes (is the download complete?)"
mv "$scratch/two/a.gguf" "$scratch/m-00001-of-00002.gguf"
run info "$scratch/m-00001-of-00002.gguf"
expect_error "$scratch/m-00002-of-00002.gguf: cannot open: *"
cp "$data/gguf_v3_q8_0/model.gguf" "$scratch/m-00002-of-00002.gguf"
run info "$scratch/m-00001-of-00002.gguf"
expect_error "*: tensor * is also in *"
finish
