/* SPDX-License-Identifier: MIT */
/* A GGUF model, of one file or several, as a source. */
#include "format/gguf_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mf_gguf_source *gguf_of(const mf_source *source)
{
    return (mf_gguf_source *)(uintptr_t)source;
}

/* ----------------------------------------------------------------------------------- tensors -- */

static bool has(const mf_source *source, mf_tensor_id id)
{
    return mf_gguf_find_role(gguf_of(source), id) != NULL;
}

/* The gate of the shared expert is stored as a vector: a matrix of one row to us. */
static void make_matrix(mf_tensor *t)
{
    if (t->n_dims != 1)
        return;
    t->shape[1] = t->shape[0];
    t->shape[0] = 1;
    t->n_dims = 2;
}

/* What NVFP4 is multiplied by: NAME.scale, which converters leave out where it is 1. What is beside
 * it for activations, NAME.input_scale, is not needed: they are not quantised to 4 bits. */
static mf_tensor *factor_of(const mf_gguf_source *gguf, mf_tensor *t)
{
    if (t->type != MF_TENSOR_BLOCKS || t->kind != MF_WEIGHT_GGUF_NVFP4)
        return NULL;
    mf_tensor *factor = mf_gguf_find_beside(gguf, t, "scale");
    mf_tensor *of_input = mf_gguf_find_beside(gguf, t, "input_scale");
    if (of_input != NULL)
        of_input->used = true;
    if (factor == NULL)
        return NULL;
    factor->used = true;
    t->packing = MF_PACKING_BLOCKS;
    return factor;
}

static mf_status find(mf_source *source, mf_tensor_id id, mf_stored *out, mf_error *error)
{
    mf_tensor *t = mf_gguf_find_role(gguf_of(source), id);
    if (t == NULL) {
        char name[96];
        mf_gguf_role_name(id, name, sizeof name);
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s is missing", source->path, name);
    }
    if (t->type == MF_TENSOR_BLOCKS && t->kind == 0)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: tensor %s: values of type %s are not supported yet",
                       mf_source_path_of(source, t), t->name, t->type_name);
    t->used = true;
    t->is_negated_exp = id.role == MF_ROLE_LINEAR_A_LOG;
    if (id.role == MF_ROLE_SHARED_ROUTER)
        make_matrix(t);
    *out = (mf_stored){.data = t, .scales = factor_of(gguf_of(source), t)};
    return MF_OK;
}

/* There are no affine weights in this form. */
static mf_status check_affine(const mf_source *source, const mf_stored *stored, uint32_t bits,
                              uint32_t group, mf_error *error)
{
    (void)bits;
    (void)group;
    return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s: unexpected scales", source->path,
                   stored->data->name);
}

static mf_expert_layout expert_layout(const mf_source *source, uint32_t layer)
{
    return mf_source_has(source, MF_ROLE_EXPERT_GATE_UP, layer) ? MF_EXPERTS_FUSED
                                                                : MF_EXPERTS_STACKED;
}

static mf_status packed_experts(mf_source *source, uint32_t layer, mf_packed_experts *out,
                                mf_error *error)
{
    (void)layer;
    (void)out;
    return mf_fail(error, MF_ERR_FORMAT, "%s: no packed experts in this form", source->path);
}

/* The layer that a tensor is of; UINT32_MAX if of none. */
static uint32_t layer_of(const char *name)
{
    if (strncmp(name, "blk.", 4) != 0)
        return UINT32_MAX;
    char *end;
    unsigned long layer = strtoul(name + 4, &end, 10);
    return end != name + 4 && *end == '.' && layer < UINT16_MAX ? (uint32_t)layer : UINT32_MAX;
}

static mf_status check_unused(mf_source *source, uint32_t n_layers, uint32_t n_extra,
                              uint32_t *n_skipped, mf_error *error)
{
    uint32_t end = n_layers;
    (void)n_extra; /* how many there are, the metadata said */
    for (size_t i = 0; i < source->table.n_tensors; i++) {
        const mf_tensor *t = &source->table.tensors[i];
        const uint32_t layer = layer_of(t->name);
        if (t->used)
            continue;
        if (strstr(t->name, ".indexer.") != NULL) { /* it chooses all there is */
            mf_source_leave_out(source, t, "indexer", "indexer.", strlen("indexer."));
            continue;
        }
        if (layer < n_layers || layer >= gguf_of(source)->n_blocks)
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: tensor %s belongs to nothing in this model (surplus)",
                           mf_source_path_of(source, t), t->name);
        end = layer + 1 > end ? layer + 1 : end;
        mf_source_leave_out(source, t, MF_LEFT_DRAFT, t->name,
                            (size_t)(strchr(t->name + strlen("blk."), '.') + 1 - t->name));
    }
    *n_skipped = end - n_layers;
    return MF_OK;
}

/* ----------------------------------------------------------------------------------- opening -- */

static void close_source(mf_source *source)
{
    const mf_allocator a = source->allocator;
    mf_gguf_source_clear(gguf_of(source));
    mf_free(&a, source, sizeof(mf_gguf_source));
}

const mf_source_ops mf_gguf_source_ops = {
    .hparam = mf_gguf_hparam,
    .has = has,
    .find = find,
    .check_affine = check_affine,
    .expert_layout = expert_layout,
    .packed_experts = packed_experts,
    .check_unused = check_unused,
    .close = close_source,
};

void mf_gguf_source_clear(mf_gguf_source *g)
{
    mf_gguf_free(&g->head);
    mf_tensor_table_free(&g->source.table);
}

/* What `info` says of experts that are floating point; blocks say it themselves. */
static const char *float_form(const mf_gguf_source *g)
{
    for (uint32_t layer = 0; layer < g->n_layers; layer++) {
        const mf_tensor *t = mf_gguf_find_role(g, mf_tensor_of(MF_ROLE_EXPERT_DOWN, layer));
        if (t == NULL)
            continue;
        if (t->type == MF_TENSOR_BLOCKS && t->kind == MF_WEIGHT_GGUF_NVFP4)
            return mf_weight_formats[MF_WEIGHT_GGUF_NVFP4].form; /* however it is in memory */
        return t->type == MF_TENSOR_F32    ? "gguf f32"
               : t->type == MF_TENSOR_F16  ? "gguf f16"
               : t->type == MF_TENSOR_BF16 ? "gguf bf16"
                                           : NULL;
    }
    return "gguf";
}

static void init(mf_gguf_source *g, const mf_allocator *a, const char *path)
{
    *g = (mf_gguf_source){.source = {.ops = &mf_gguf_source_ops, .allocator = *a}};
    snprintf(g->path, sizeof g->path, "%s", path);
    g->source.path = g->source.hparam_path = g->path;
    mf_tensor_table_init(&g->source.table, a);
}

static mf_status finish(mf_gguf_source *g, mf_error *error)
{
    MF_TRY(mf_tensor_table_finish(&g->source.table, error));
    MF_TRY(mf_gguf_find_arch(g, error));
    g->source.tokenizer_bytes = g->head.data_offset;
    g->source.form = float_form(g);
    return mf_gguf_shrink(&g->head, error);
}

mf_status mf_gguf_source_take(mf_gguf_source *g, mf_gguf *head, mf_error *error)
{
    const mf_allocator a = head->allocator;
    init(g, &a, head->path);
    g->head = *head;
    *head = (mf_gguf){0};
    MF_TRY(mf_gguf_add_tensors(&g->head, &g->source.table, error));
    return finish(g, error);
}

/* Says of a part that it is one: so many there are, and this is number i. */
static mf_status check_part(const mf_gguf *part, uint32_t i, uint32_t n, mf_error *error)
{
    const mf_gguf_value *no = mf_gguf_find(part, "split.no");
    const mf_gguf_value *count = mf_gguf_find(part, "split.count");
    double stated_no = i, stated_count = n;
    (void)mf_gguf_number(part, no, 0, &stated_no);
    (void)mf_gguf_number(part, count, 0, &stated_count);
    if (n == 1 ? stated_count <= 1 : stated_no == i && stated_count == n)
        return MF_OK;
    return mf_fail(error, MF_ERR_FORMAT,
                   "%s: part %.0f of %.0f by its metadata (split.no, split.count), but %u of %u by "
                   "its name",
                   part->path, stated_no + 1, stated_count, i + 1, n);
}

static mf_status add_part(mf_gguf_source *g, uint32_t i, uint32_t n, mf_error *error)
{
    char path[MF_MAX_PATH];
    mf_gguf part = {0};
    MF_TRY(mf_gguf_part(g->path, i, path, sizeof path, error));
    MF_TRY(mf_gguf_open(&g->source.allocator, path, &part, error));
    mf_status status = check_part(&part, i, n, error);
    if (status == MF_OK)
        status = mf_gguf_add_tensors(&part, &g->source.table, error);
    if (i == 0)
        g->head = part;
    else
        mf_gguf_free(&part);
    return status;
}

static mf_status add_parts(mf_gguf_source *g, mf_error *error)
{
    const uint32_t n = mf_gguf_count_parts(g->path);
    if (n > MF_MAX_SHARDS)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: more than %d parts", g->path, MF_MAX_SHARDS);
    for (uint32_t i = 0; i < n; i++)
        MF_TRY(add_part(g, i, n, error));
    const mf_gguf_value *v = mf_gguf_find(&g->head, "split.tensors.count");
    double stated = (double)g->source.table.n_tensors;
    (void)mf_gguf_number(&g->head, v, 0, &stated);
    if (stated != (double)g->source.table.n_tensors)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: key split.tensors.count is %.0f, but the parts have %zu tensors",
                       g->path, stated, g->source.table.n_tensors);
    return finish(g, error);
}

/* They are read with the metadata: the rotation is planned by them. */
static mf_status read_rope_factors(mf_gguf_source *g, mf_error *error)
{
    mf_tensor *t = mf_tensor_find(&g->source.table, MF_GGUF_ROPE_FACTORS);
    if (t == NULL)
        return MF_OK;
    const char *path = mf_source_path_of(&g->source, t);
    if (t->type != MF_TENSOR_F32 || t->n_dims != 1 || t->shape[0] == 0 ||
        t->shape[0] > MF_GGUF_MAX_ROPE_FACTORS)
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s: expected a list of 1 to %d of F32",
                       path, t->name, MF_GGUF_MAX_ROPE_FACTORS);
    FILE *f = fopen(path, "rbe");
    const bool is_read = f != NULL && fseeko(f, (off_t)t->offset, SEEK_SET) == 0 &&
                         fread(g->rope_factors, sizeof(float), t->shape[0], f) == t->shape[0];
    if (f != NULL)
        (void)fclose(f);
    if (!is_read)
        return mf_fail_at(error, MF_ERR_IO, t->offset, "%s: tensor %s cannot be read", path,
                          t->name);
    g->n_rope_factors = (uint32_t)t->shape[0];
    t->used = true;
    return MF_OK;
}

mf_status mf_gguf_source_open(const mf_allocator *a, const char *path, mf_source **out,
                              mf_error *error)
{
    mf_gguf_source *g = mf_alloc(a, sizeof *g);
    if (g == NULL)
        return mf_fail_memory(error, sizeof *g, path);
    init(g, a, path);
    mf_status status = add_parts(g, error);
    if (status == MF_OK)
        status = read_rope_factors(g, error);
    if (status == MF_OK)
        *out = &g->source;
    else
        close_source(&g->source);
    return status;
}
