# SPDX-License-Identifier: MIT
# Vocabularies of SentencePiece's kind in a checkpoint's directory: the same answer by tokenizer.json and by
# tokenizer.model; texts come back as they were; of those that cannot be read info and plan say so, and run does not.
. ./lib.sh

checkpoint=$SOURCE/tests/model/data/mixtral_bf16
small=$SOURCE/tests/text/data/spm_small
for form in json model; do
    mkdir "$scratch/$form"
    cp "$checkpoint"/config.json "$checkpoint"/*.safetensors* "$small/$form"/tokenizer.* "$scratch/$form/"
    run tokenize "$scratch/$form" -p " the whale  and the sea" --ids
    expect_code 0
    expect_empty "$err"
    cp "$out" "$scratch/$form.ids"
    run_with "$scratch/$form.ids" tokenize "$scratch/$form" --decode
    expect_exact "$out" " the whale  and the sea"
    run run "$scratch/$form" -p "the whale and the sea" -n 16 --temp 0 --quiet
    expect_code 0
    expect_empty "$err"
    cp "$out" "$scratch/$form.text"
    run info "$scratch/$form" --json
    expect_code 0
    expect_true [ "$(json "$out" has_text)" = true ]
done
expect_same "$scratch/json.ids" "$scratch/model.ids"
expect_same "$scratch/json.text" "$scratch/model.text"
expect_true [ -s "$scratch/json.text" ]

# converted: what the text is made of goes along
run convert "$scratch/model" "$scratch/converted" --quiet
expect_code 0
run run "$scratch/converted" -p "the whale and the sea" -n 16 --temp 0 --quiet
expect_code 0
expect_same "$out" "$scratch/model.text"

# the packages' other files, and bytes for what is no token: the text comes back
printf 'Once upon a time, "d\303\251j\303\240 vu" \360\237\230\200 \\ \t x\nend' >"$scratch/text"
for folder in spm_model/llama spm_model/defined hunyuan; do
    run tokenize "$SOURCE/tests/text/data/$folder" -f "$scratch/text" --ids
    expect_code 0
    cp "$out" "$scratch/ids"
    run_with "$scratch/ids" tokenize "$SOURCE/tests/text/data/$folder" --decode
    expect_same "$out" "$scratch/text"
done

# what cannot be read
sed 's/"type": "BPE"/"type": "WordPiece"/' "$small/json/tokenizer.json" >"$scratch/json/tokenizer.json"
run info "$scratch/json"
expect_code 0
expect_glob "$out" "*
verdict                does not run but for bench: its vocabulary cannot be read
text                   tokenizer.json: model.type: \"WordPiece\", expected BPE or Unigram"
run plan "$scratch/json" --drive 1G --memory 8G
expect_code 0
expect_glob "$out" "*
verdict                does not run but for bench: its vocabulary cannot be read
text                   tokenizer.json: model.type: \"WordPiece\", expected BPE or Unigram"
run plan "$scratch/json" --drive 1G --memory 8G --json
expect_true [ "$(json "$out" runs)" = false ]
run run "$scratch/json" -p x
expect_error "$scratch/json/tokenizer.json: model.type: \"WordPiece\", expected BPE or Unigram"
rm "$scratch/json/tokenizer.json"
run info "$scratch/json"
expect_glob "$out" "*
verdict                runs with every expert in memory; without text alone (bench), since it has no vocabulary
text                   tokenizer.json: *"
run plan "$scratch/json" "$scratch/model" --drive 1G --memory 8G
expect_code 0
expect_lines "$out" 3
expect_glob "$out" "*$scratch/json (*; no text)
*$scratch/model (*)"
finish
