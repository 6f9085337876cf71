/* SPDX-License-Identifier: MIT */
#include "evex_vnni.h"

#include "kernels/x86/blocks_avx2.h"
#include "kernels/x86/fixed_avx2.h"
#include "kernels/x86/fixed_token.h"

void mf_blocks_prepare_evex_vnni(const mf_matrix *w, const float *x, void *out);
size_t mf_blocks_scratch_bytes_evex_vnni(const mf_matrix *w, uint32_t n_tokens);
void mf_blocks_matmul_evex_vnni(const mf_matrix *w, uint32_t row0, uint32_t row1,
                                const void *tokens, uint32_t n_tokens, float *y, size_t y_stride,
                                void *scratch);
size_t mf_fixed_scratch_bytes_evex_vnni(const mf_matrix *w, uint32_t n_tokens);
void mf_fixed_matmul_evex_vnni(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                               uint32_t n_tokens, float *y, size_t y_stride, void *scratch);

/* NULL: AVX2's own. */
static const mf_fixed_kernels *evex_of(const mf_matrix *w)
{
    static const mf_fixed_kernels fixed = {mf_fixed_prepare_avx2, mf_fixed_matmul_evex_vnni,
                                           mf_fixed_scratch_bytes_evex_vnni, mf_token_bytes_x86};
    static const mf_fixed_kernels blocks = {mf_blocks_prepare_evex_vnni, mf_blocks_matmul_evex_vnni,
                                            mf_blocks_scratch_bytes_evex_vnni, mf_token_bytes_x86};
    if (mf_is_blocks(w))
        return &blocks;
    return mf_is_fixed(w) ? &fixed : NULL;
}

static size_t scratch_bytes(const mf_matrix *w, uint32_t n_tokens)
{
    const mf_fixed_kernels *k = evex_of(w);
    return k != NULL ? mf_fixed_plain_scratch_bytes(k, w, n_tokens)
                     : mf_kernels_get(MF_CPU_AVX2)->matmul_scratch_bytes(w, n_tokens);
}

static void matmul(const mf_matrix *w, uint32_t row0, uint32_t row1, const float *x,
                   size_t x_stride, uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    const mf_fixed_kernels *k = evex_of(w);
    if (k == NULL)
        mf_kernels_get(MF_CPU_AVX2)
            ->matmul(w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
    else if (row0 < row1 && n_tokens > 0)
        mf_fixed_plain_matmul(k, w, row0, row1, x, x_stride, n_tokens, y, y_stride, scratch);
}

static void prepare_token(const mf_matrix *w, const float *x, void *out)
{
    evex_of(w)->prepare(w, x, out);
}

static void matmul_prepared(const mf_matrix *w, uint32_t row0, uint32_t row1, const void *tokens,
                            uint32_t n_tokens, float *y, size_t y_stride, void *scratch)
{
    if (row0 < row1 && n_tokens > 0)
        evex_of(w)->matmul(w, row0, row1, tokens, n_tokens, y, y_stride, scratch);
}

bool evex_vnni_kernels(mf_kernels *out)
{
    if (mf_kernels_get(MF_CPU_AVX512_VNNI) == NULL || mf_kernels_get(MF_CPU_AVX_VNNI) != NULL)
        return false;
    *out = *mf_kernels_get(MF_CPU_AVX2);
    out->tier = MF_CPU_AVX_VNNI;
    out->matmul_scratch_bytes = scratch_bytes;
    out->matmul = matmul;
    out->token_bytes = mf_token_bytes_x86;
    out->prepare_token = prepare_token;
    out->matmul_prepared = matmul_prepared;
    return true;
}
