/* SPDX-License-Identifier: MIT */
/* The kernel tables, one per tier, and the choice among them. */
#include "kernels/kernels.h"

#include "kernels/scalar/scalar.h"
#if defined(__x86_64__)
#include "kernels/x86/avx2.h"
#include "kernels/x86/avx512.h"
#include "kernels/x86/fixed_avx2.h"
#include "kernels/x86/fixed_avx512.h"
#endif

static size_t token_bytes_none(const mf_matrix *w)
{
    (void)w;
    return 0;
}

static const mf_kernels mf_kernels_scalar = {
    .tier = MF_CPU_SCALAR,
    .matmul_scratch_bytes = mf_matmul_scratch_bytes_scalar,
    .matmul = mf_matmul_scalar,
    .token_bytes = token_bytes_none,
    .dequant_row = mf_dequant_row_scalar,
    .rmsnorm = mf_rmsnorm_scalar,
    .rmsnorm_gated = mf_rmsnorm_gated_scalar,
    .l2norm = mf_l2norm_scalar,
    .swiglu = mf_swiglu_scalar,
    .sigmoid_mul = mf_sigmoid_mul_scalar,
    .axpy = mf_axpy_scalar,
    .add = mf_add_scalar,
    .rope = mf_rope_scalar,
    .attention = mf_attention_scalar,
    .latent_attention = mf_latent_attention_scalar,
    .conv1d_silu = mf_conv1d_silu_scalar,
    .delta_rule = mf_delta_rule_scalar,
    .softmax = mf_softmax_scalar,
    .read_bytes = mf_read_bytes_scalar,
    .fma_peak = mf_fma_peak_scalar,
};

#if defined(__x86_64__)
static const mf_kernels mf_kernels_avx2 = {
    .tier = MF_CPU_AVX2,
    .matmul_scratch_bytes = mf_matmul_scratch_bytes_avx2,
    .matmul = mf_matmul_avx2,
    .token_bytes = mf_fixed_token_bytes,
    .prepare_token = mf_fixed_prepare_avx2,
    .matmul_prepared = mf_fixed_matmul_avx2,
    .dequant_row = mf_dequant_row_avx2,
    .rmsnorm = mf_rmsnorm_avx2,
    .rmsnorm_gated = mf_rmsnorm_gated_avx2,
    .l2norm = mf_l2norm_avx2,
    .swiglu = mf_swiglu_avx2,
    .sigmoid_mul = mf_sigmoid_mul_avx2,
    .axpy = mf_axpy_avx2,
    .add = mf_add_avx2,
    .rope = mf_rope_avx2,
    .attention = mf_attention_avx2,
    .latent_attention = mf_latent_attention_avx2,
    .conv1d_silu = mf_conv1d_silu_avx2,
    .delta_rule = mf_delta_rule_avx2,
    .softmax = mf_softmax_avx2,
    .read_bytes = mf_read_bytes_avx2,
    .fma_peak = mf_fma_peak_avx2,
};

static const mf_kernels mf_kernels_avx512 = {
    .tier = MF_CPU_AVX512,
    .matmul_scratch_bytes = mf_matmul_scratch_bytes_avx512,
    .matmul = mf_matmul_avx512,
    .token_bytes = mf_fixed_token_bytes,
    .prepare_token = mf_fixed_prepare_avx512,
    .matmul_prepared = mf_fixed_matmul_avx512,
    .dequant_row = mf_dequant_row_avx2, /* stores as fast as wider lanes would */
    .rmsnorm = mf_rmsnorm_avx512,
    .rmsnorm_gated = mf_rmsnorm_gated_avx512,
    .l2norm = mf_l2norm_avx512,
    .swiglu = mf_swiglu_avx512,
    .sigmoid_mul = mf_sigmoid_mul_avx512,
    .axpy = mf_axpy_avx512,
    .add = mf_add_avx512,
    .rope = mf_rope_avx512,
    .attention = mf_attention_avx512,
    .latent_attention = mf_latent_attention_avx512,
    .conv1d_silu = mf_conv1d_silu_avx512,
    .delta_rule = mf_delta_rule_avx512,
    .softmax = mf_softmax_avx512,
    .read_bytes = mf_read_bytes_avx512,
    .fma_peak = mf_fma_peak_avx512,
};
#endif

const mf_kernels *mf_kernels_get(uint32_t limit)
{
    mf_cpu_tier tier = mf_cpu_detect(limit);
#if defined(__x86_64__)
    if (tier >= MF_CPU_AVX512)
        return &mf_kernels_avx512;
    if (tier >= MF_CPU_AVX2)
        return &mf_kernels_avx2;
#endif
    (void)tier;
    return &mf_kernels_scalar;
}
