# SPDX-License-Identifier: MIT
# A model's multi-token-prediction layer proposes tokens: the same text as without, whatever the
# sampling; loaded only when asked for; refused where there is none.
. ./lib.sh
draft_model() {
    "$MAKE_CHECKPOINT" --preset "$2" --form "$3" --mtp --layers 3 --hidden 64 --heads 4 --experts 8 \
        --experts-per-token 2 --expert-hidden 64 --vocab 4096 --tokenizer "$demo" --quiet $4 "$scratch/$1" ||
        skip "no checkpoint was made"
}
has_model "$demo" || skip "models/demo is not there"
draft_model qwen qwen3.6-35b-a3b hf "--shared-hidden 64 --kv-heads 2 --head-dim 32 --linear-v-heads 4 --linear-k-heads 2 --linear-k-dim 16 --linear-v-dim 16"
draft_model next qwen3-next-80b-a3b mlx "--shared-hidden 64 --kv-heads 2 --head-dim 32 --linear-v-heads 4 --linear-k-heads 2 --linear-k-dim 64 --linear-v-dim 16"
draft_model deepseek deepseek-v3 hf "--dense-layers 1 --dense-hidden 64 --q-rank 32 --kv-rank 32 --nope-dim 16 --rope-dim 8 --v-dim 16 --groups 2 --kept-groups 1"

for model in qwen next deepseek; do
    run info "$scratch/$model"
    expect_code 0
    for sampling in "--temp 0" "--temp 1 --seed 7 --repeat-penalty 1.1" "--temp 0.7 --top-p 0.9 --seed 3"; do
        run run "$scratch/$model" --raw -p "Once upon a time" -n 40 $sampling --quiet --ignore-eos \
            --ctx 512 --expert-cache 0
        expect_code 0
        cp "$out" "$scratch/text"
        for draft in 1 3,always 8; do
            run run "$scratch/$model" --raw -p "Once upon a time" -n 40 $sampling --quiet --ignore-eos \
                --ctx 512 --expert-cache 0 --draft $draft --stats=json:"$scratch/stats"
            expect_code 0
            expect_same "$out" "$scratch/text"
            expect_true [ "$(json "$scratch/stats" proposed)" -gt 0 ]
        done
    done
done
# What the layer does after a prompt is of the prompt's time, not of the first answered token's.
run run "$scratch/next" --raw -p "Once upon a time" -n 3 --temp 0 --ignore-eos --quiet --ctx 512 \
    --draft 1,always --stats=json:"$scratch/stats"
expect_code 0
stages=$(sed -n 's/.*"decode_stage_us": {\([^}]*\)}.*/\1/p' "$scratch/stats" | tr ',' '\n' |
    awk -F: '{ n += $2 } END { print n * 1e-6 }')
expect_true at_most "$stages" "$(json "$scratch/stats" decode_seconds)"
run run "$scratch/qwen" --raw -p "Once" -n 12 --temp 0 --ignore-eos --quiet --ctx 512 --draft 2,always --stats
expect_glob "$err" "*tokens proposed * kept *"
run bench "$scratch/qwen" --prompt-tokens 8 --gen-tokens 8 --repeat 1 --measure-ms 10 --ctx 512 --draft 2
expect_code 0
run run "$demo" -p "Once" -n 4 --draft 1
expect_error "$demo: no multi-token-prediction layer is here that could propose tokens (n_draft_tokens)"
run run "$demo" -p "Once" --draft 9
expect_usage_error "--draft: '9' is not a number from 0 to 8, with or without ',always'"
run run "$demo" -p "Once" --draft 1,sometimes
expect_usage_error "--draft: '1,sometimes' is not a number from 0 to 8, with or without ',always'"
finish
