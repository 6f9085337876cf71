# SPDX-License-Identifier: MIT
# Configs that name a router, rotation or quantisation that is not there: exit code 1 and one line
# that names the field and its value, whatever is asked of the checkpoint.
. ./lib.sh
data=$SOURCE/tests/model/data

# refuses CASE FROM TO WORDS: a copy of the case whose config.json has TO instead of FROM
refuses() {
    rm -rf "$scratch/model"
    cp -r "$data/$1" "$scratch/model"
    sed "s/$2/$3/" "$data/$1/config.json" >"$scratch/model/config.json"
    n_checks=$((n_checks + 1))
    ! cmp -s "$scratch/model/config.json" "$data/$1/config.json" || fail "'$2' is not in $1"
    run info "$scratch/model"
    expect_error "*/config.json: $4"
    run bench "$scratch/model" --prompt-tokens 2 --gen-tokens 1
    expect_error "*/config.json: $4"
    run run "$scratch/model" --raw -p hello
    expect_error "*/config.json: $4"
}

refuses v3_bf16 '"scoring_func": "sigmoid"' '"scoring_func": "softmax"' 'field scoring_func is softmax*'
refuses k2_bf16 '"noaux_tc"' '"aux_loss"' 'field topk_method is aux_loss*'
refuses v2_lite_bf16 '"greedy"' '"noaux_tc"' 'field topk_method is noaux_tc*'
refuses v3_yarn_f32 '"type": "yarn"' '"type": "dynamic"' 'field rope_scaling.type is dynamic*'
refuses v3_fp8 '"quant_method": "fp8"' '"quant_method": "exl3"' \
    'field quantization_config.quant_method is exl3*'
refuses v3_fp8 '"e4m3"' '"e5m2"' 'field quantization_config.fmt is e5m2*'
refuses v3_mlx_4bit_split '"affine"' '"mxfp4"' 'quantization of *: mode mxfp4 *'
finish
