/* SPDX-License-Identifier: MIT */
/* The kernel tables, one per tier, and the choice among them. */
#include "kernels/scalar/scalar.h"
#if defined(__x86_64__)
#include "kernels/x86/avx2.h"
#include "kernels/x86/avx512.h"
#include "kernels/x86/fixed_token.h"
#elif defined(__aarch64__)
#include "kernels/arm/neon.h"
#endif

static size_t token_bytes_none(const mf_matrix *w)
{
    (void)w;
    return 0;
}

static const mf_kernels mf_kernels_scalar = {
    .tier = MF_CPU_SCALAR,
    MF_PRODUCTS_OF(scalar),
    .token_bytes = token_bytes_none,
    .dequant_row = mf_dequant_row_scalar,
    MF_OPS_OF(scalar),
};

#if defined(__x86_64__)
static const mf_kernels mf_kernels_avx2 = {
    .tier = MF_CPU_AVX2,
    MF_PRODUCTS_OF(avx2),
    .token_bytes = mf_token_bytes_narrow,
    .prepare_token = mf_prepare_token_avx2,
    .matmul_prepared = mf_matmul_prepared_avx2,
    .dequant_row = mf_dequant_row_avx2,
    MF_OPS_OF(avx2),
};

static const mf_kernels mf_kernels_avx_vnni = {
    .tier = MF_CPU_AVX_VNNI,
    MF_PRODUCTS_OF(avx_vnni),
    .token_bytes = mf_token_bytes_x86,
    .prepare_token = mf_prepare_token_avx_vnni,
    .matmul_prepared = mf_matmul_prepared_avx_vnni,
    .dequant_row = mf_dequant_row_avx2,
    MF_OPS_OF(avx2),
};

#if !defined(MF_NO_AVX512)
static const mf_kernels mf_kernels_avx512_bw = {
    .tier = MF_CPU_AVX512_BW,
    MF_PRODUCTS_OF(avx512_bw),
    .token_bytes = mf_token_bytes_narrow,
    .prepare_token = mf_prepare_token_avx512_bw,
    .matmul_prepared = mf_matmul_prepared_avx512_bw,
    .dequant_row = mf_dequant_row_avx2, /* stores as fast as wider lanes would */
    MF_OPS_OF(avx512),
};

static const mf_kernels mf_kernels_avx512_vnni = {
    .tier = MF_CPU_AVX512_VNNI,
    MF_PRODUCTS_OF(avx512_vnni),
    .token_bytes = mf_token_bytes_x86,
    .prepare_token = mf_prepare_token_avx512_vnni,
    .matmul_prepared = mf_matmul_prepared_avx512_vnni,
    .dequant_row = mf_dequant_row_avx2,
    MF_OPS_OF(avx512),
};

static const mf_kernels mf_kernels_avx512 = {
    .tier = MF_CPU_AVX512,
    MF_PRODUCTS_OF(avx512),
    .token_bytes = mf_token_bytes_x86,
    .prepare_token = mf_prepare_token_avx512,
    .matmul_prepared = mf_matmul_prepared_avx512,
    .dequant_row = mf_dequant_row_avx2,
    MF_OPS_OF(avx512),
};

static const mf_kernels mf_kernels_avx512_amx = {
    .tier = MF_CPU_AVX512_AMX,
    MF_PRODUCTS_OF(avx512_amx),
    .token_bytes = mf_token_bytes_avx512_amx,
    .prepare_token = mf_prepare_token_avx512_amx,
    .matmul_prepared = mf_matmul_prepared_avx512_amx,
    .dequant_row = mf_dequant_row_avx2,
    MF_OPS_OF(avx512),
};

static const mf_kernels mf_kernels_avx512_amx_bf16 = {
    .tier = MF_CPU_AVX512_AMX_BF16,
    MF_PRODUCTS_OF(avx512_amx_bf16),
    .token_bytes = mf_token_bytes_avx512_amx,
    .prepare_token = mf_prepare_token_avx512_amx,
    .matmul_prepared = mf_matmul_prepared_avx512_amx,
    .dequant_row = mf_dequant_row_avx2,
    MF_OPS_OF(avx512),
};
#endif
#endif

#if defined(__aarch64__)
static const mf_kernels mf_kernels_neon = {
    .tier = MF_CPU_NEON,
    MF_PRODUCTS_OF(neon),
    .token_bytes = mf_token_bytes_neon,
    .prepare_token = mf_prepare_token_neon,
    .matmul_prepared = mf_matmul_prepared_neon,
    .dequant_row = mf_dequant_row_neon,
    MF_OPS_OF(neon),
};

static const mf_kernels mf_kernels_neon_dotprod = {
    .tier = MF_CPU_NEON_DOTPROD,
    MF_PRODUCTS_OF(neon_dotprod),
    .token_bytes = mf_token_bytes_neon,
    .prepare_token = mf_prepare_token_neon,
    .matmul_prepared = mf_matmul_prepared_neon_dotprod,
    .dequant_row = mf_dequant_row_neon,
    MF_OPS_OF(neon),
};

static const mf_kernels mf_kernels_neon_i8mm = {
    .tier = MF_CPU_NEON_I8MM,
    MF_PRODUCTS_OF(neon_i8mm),
    .token_bytes = mf_token_bytes_neon,
    .prepare_token = mf_prepare_token_neon,
    .matmul_prepared = mf_matmul_prepared_neon_i8mm,
    .dequant_row = mf_dequant_row_neon,
    MF_OPS_OF(neon),
};
#endif

/* The best last. */
static const mf_kernels *const tables[] = {
    &mf_kernels_scalar,
#if defined(__x86_64__)
    &mf_kernels_avx2,
#if defined(MF_NO_AVX512)
    &mf_kernels_avx_vnni,
#else
    &mf_kernels_avx512_bw, &mf_kernels_avx_vnni,   &mf_kernels_avx512_vnni,
    &mf_kernels_avx512,    &mf_kernels_avx512_amx, &mf_kernels_avx512_amx_bf16,
#endif
#elif defined(__aarch64__)
    &mf_kernels_neon,
    &mf_kernels_neon_dotprod,
    &mf_kernels_neon_i8mm,
#endif
};

const mf_kernels *mf_kernels_get(mf_cpu_tier tier)
{
    for (size_t i = sizeof tables / sizeof *tables; i-- > 0;)
        if ((tier == MF_CPU_BEST || tables[i]->tier == tier) && mf_cpu_has(tables[i]->tier))
            return tables[i];
    return NULL;
}
