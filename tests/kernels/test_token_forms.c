/* SPDX-License-Identifier: MIT */
/*
 * What kernels.h says of prepared tokens: of matrices of as many columns those with as many bytes a
 * token have the same form. Products of several matrices and experts' share tokens by that alone.
 * Tiers of processors that this one is not are asked too: to prepare takes no instruction of
 * theirs.
 */
#include "evex_vnni.h"
#include "matrix_case.h"

#if defined(MF_HAS_AVX512)
#include "kernels/x86/avx512.h"
#endif

#include <stdio.h>
#include <stdlib.h>

enum { MOST_FORMS = 128 };

typedef struct prepared_form {
    mf_weight_shape shape;
    size_t n_bytes;
    unsigned char *token;
} prepared_form;

typedef struct forms {
    const mf_kernels *k;
    const char *tier;
    uint64_t state;
    const float *x;
    uint32_t n_cols, n;
    prepared_form list[MOST_FORMS];
} forms;

static void add(forms *f, mf_weight_shape shape)
{
    const uint32_t each = mf_weight_format_of(&shape)->arrays[0].cols;
    if (f->n_cols % (each > shape.group ? each : shape.group) != 0)
        return;
    matrix_case c = make_case(&f->state, shape, 1, f->n_cols);
    const size_t n_bytes = f->k->token_bytes(&c.w);
    if (n_bytes != 0) {
        prepared_form *out = &f->list[f->n++];
        REQUIRE(f->n <= MOST_FORMS);
        guarded token = guarded_alloc(n_bytes);
        *out = (prepared_form){shape, n_bytes, malloc(n_bytes)};
        REQUIRE(out->token != NULL);
        memset(token.p, 0xa5, n_bytes); /* what nobody writes is alike */
        f->k->prepare_token(&c.w, f->x, token.p);
        memcpy(out->token, token.p, n_bytes);
        guarded_free(&token);
    }
    free_case(&c);
}

static void add_all(forms *f)
{
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t b = 0; b < 6; b++)
            add(f, affine_shape(bits[b], groups[i], MF_BF16));
        for (uint32_t kind = MF_WEIGHT_INT4; kind <= MF_WEIGHT_INT8;
             kind += MF_WEIGHT_INT8 - MF_WEIGHT_INT4)
            add(f, (mf_weight_shape){
                       .kind = (mf_weight_kind)kind, .float_type = MF_BF16, .group = groups[i]});
    }
    for (uint32_t kind = MF_WEIGHT_MXFP4; kind < MF_WEIGHT_INT4; kind++)
        add(f, (mf_weight_shape){.kind = (mf_weight_kind)kind});
}

static void check_pairs(const forms *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        for (uint32_t j = 0; j < i; j++) {
            const prepared_form *a = &f->list[i], *b = &f->list[j];
            if (a->n_bytes != b->n_bytes)
                continue;
            CHECK_MSG(memcmp(a->token, b->token, a->n_bytes) == 0,
                      "%s, %u columns: kind %d, %u bits, group %u takes %zu bytes as kind %d, %u "
                      "bits, group %u does, and another form",
                      f->tier, f->n_cols, a->shape.kind, a->shape.bits, a->shape.group, a->n_bytes,
                      b->shape.kind, b->shape.bits, b->shape.group);
        }
    }
}

static void check_forms(const mf_kernels *k, const char *tier)
{
    static const uint32_t cols[] = {32,  64,  96,  128, 160, 192,  256,  320, 384,
                                    448, 512, 640, 768, 896, 1024, 1088, 2048};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++) {
        forms f = {.k = k, .tier = tier, .state = 44, .n_cols = cols[i]};
        guarded xs;
        f.x = random_floats(&f.state, &xs, cols[i]);
        add_all(&f);
        check_pairs(&f);
        while (f.n > 0)
            free(f.list[--f.n].token);
        guarded_free(&xs);
    }
}

static void check_tier(const mf_kernels *k)
{
    check_forms(k, mf_cpu_tier_name(k->tier));
}

int main(void)
{
    for_tiers(check_tier);
#if defined(MF_HAS_EVEX_VNNI)
    mf_kernels evex;
    if (evex_vnni_kernels(&evex))
        check_forms(&evex, "AVX-VNNI");
#endif
#if defined(MF_HAS_AVX512)
    if (mf_kernels_get(MF_CPU_AVX512) != NULL && mf_kernels_get(MF_CPU_AVX512_AMX) == NULL) {
        const mf_kernels amx = {.token_bytes = mf_token_bytes_avx512_amx,
                                .prepare_token = mf_prepare_token_avx512_amx};
        check_forms(&amx, "AMX");
    }
#endif
    return test_result();
}
