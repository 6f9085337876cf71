/* SPDX-License-Identifier: MIT */
/* The types of tensors in GGUF: numbers, names and block sizes as its specification lists them.
 * Which of them can be read follows from the table of weight formats. */
#include "format/gguf.h"

#include <stdio.h>
#include <string.h>

static const struct {
    uint32_t number;
    const char *name;
    uint32_t n_values, n_bytes;
} known[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},   {14, "Q6_K", 256, 210},
    {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},
    {25, "I16", 1, 2},        {26, "I32", 1, 4},        {27, "I64", 1, 8},
    {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},
    {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},
};

/* The row of the table of formats that is called "gguf q4_k", if its blocks are these. */
static mf_weight_kind kind_of(const mf_gguf_block *block)
{
    char form[32];
    int n = snprintf(form, sizeof form, "gguf %s", block->name);
    for (int i = 0; i < n; i++) /* not tolower, for which Turkish I is another letter */
        if (form[i] >= 'A' && form[i] <= 'Z')
            form[i] = (char)(form[i] - 'A' + 'a');
    for (int i = 1; i < MF_WEIGHT_KINDS; i++) {
        const mf_weight_format *f = &mf_weight_formats[i];
        if (f->form != NULL && strcmp(f->form, form) == 0 && f->n_arrays == 1 &&
            f->arrays[0].cols == block->n_values && f->arrays[0].n_bytes == block->n_bytes)
            return (mf_weight_kind)i;
    }
    return (mf_weight_kind)0;
}

bool mf_gguf_block_named(const char *name, mf_gguf_block *out)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return mf_gguf_block_of(known[i].number, out);
    return false;
}

bool mf_gguf_block_of(uint32_t type, mf_gguf_block *out)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].number != type)
            continue;
        *out = (mf_gguf_block){.name = known[i].name,
                               .n_values = known[i].n_values,
                               .n_bytes = known[i].n_bytes,
                               .type = MF_TENSOR_BLOCKS};
        uint32_t eighths;
        if (out->n_values == 1 && !mf_tensor_type_parse(out->name, &out->type, &eighths))
            return false;
        if (out->type == MF_TENSOR_BLOCKS)
            out->kind = kind_of(out);
        return true;
    }
    return false;
}
