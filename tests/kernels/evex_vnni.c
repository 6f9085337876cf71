/* SPDX-License-Identifier: MIT */
#include "evex_vnni.h"

#include "kernels/tier.h"
#include "kernels/x86/fixed_token.h"

/* kernels/x86/matmul_avx2.c's of AVX-VNNI, over the same kernels in the other encoding. */
MF_DECLARE_PRODUCTS(evex_vnni);
MF_DECLARE_PREPARED_PRODUCTS(evex_vnni);
void mf_prepare_token_evex_vnni(const mf_matrix *w, const float *x, void *out);

bool evex_vnni_kernels(mf_kernels *out)
{
    if (mf_kernels_get(MF_CPU_AVX512_VNNI) == NULL || mf_kernels_get(MF_CPU_AVX_VNNI) != NULL)
        return false;
    *out = *mf_kernels_get(MF_CPU_AVX2);
    out->tier = MF_CPU_AVX_VNNI;
    out->matmul_scratch_bytes = mf_matmul_scratch_bytes_evex_vnni;
    out->matmul = mf_matmul_evex_vnni;
    out->token_bytes = mf_token_bytes_x86;
    out->prepare_token = mf_prepare_token_evex_vnni;
    out->matmul_prepared = mf_matmul_prepared_evex_vnni;
    return true;
}
