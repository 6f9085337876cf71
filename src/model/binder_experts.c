/* SPDX-License-Identifier: MIT */
/* Binding of experts: where each one's gate, up and down matrices lie, in the ways that
 * checkpoints store them. */
#include "model/binder.h"

#include "base/checked.h"

/* Order of the matrices of an expert; their arrays are its parts (store.h). */
enum { GATE, UP, DOWN, N_MATRICES };
_Static_assert(N_MATRICES == MF_EXPERT_MATRICES, "an expert's matrices are those of the store");

typedef struct expert_binding {
    mf_binder *binder;
    const mf_hparams *h;
    uint32_t layer;
    mf_expert_part *parts; /* of this layer */
    bool has_scales;       /* of stacked experts: some that kernels read as float32 were bound */
    mf_repack blocks[N_MATRICES]; /* of those that have to be taken apart when they are read */
} expert_binding;

static const mf_role roles[N_MATRICES] = {MF_ROLE_EXPERT_GATE, MF_ROLE_EXPERT_UP,
                                          MF_ROLE_EXPERT_DOWN};

static mf_weight *shape_of(mf_expert_shape *shape, uint32_t j)
{
    return j == GATE ? &shape->gate : j == UP ? &shape->up : &shape->down;
}

static uint32_t rows_of(const mf_hparams *h, uint32_t j)
{
    return j == DOWN ? h->hidden_size : h->expert_hidden;
}

static uint32_t cols_of(const mf_hparams *h, uint32_t j)
{
    return j == DOWN ? h->expert_hidden : h->hidden_size;
}

/* Part of array i of matrix j. */
static uint32_t part_index(uint32_t j, uint32_t i)
{
    return MF_MAX_WEIGHT_ARRAYS * j + i;
}

static mf_expert_part part_of(const mf_tensor *t, uint64_t n_experts)
{
    uint64_t stride = t->n_bytes / n_experts;
    return (mf_expert_part){
        .file = t->file, .offset = t->offset, .stride = stride, .n_bytes = stride};
}

/* Matrix j is run k of the n that the rows of each expert's stored matrix are cut into. */
typedef struct run_of {
    uint32_t k, n;
} run_of;

/* Scales that kernels read as float32 only, stored in another type: they are small. They are
 * converted once and stay resident, those of one expert behind the other. */
static mf_status keep_scales(const expert_binding *b, mf_weight *w, uint32_t array,
                             const mf_tensor *t, run_of run, mf_error *error)
{
    const uint64_t n_bytes = mf_weight_array_bytes(&w->shape, array), n = n_bytes / sizeof(float);
    mf_span *place = &w->arrays[array];
    MF_TRY(mf_bind_place(b->binder, n_bytes * b->h->n_experts, place, error));
    for (uint64_t e = 0; e < b->h->n_experts; e++)
        MF_TRY(mf_bind_floats(b->binder, t, (e * run.n + run.k) * n, n, place->offset + e * n_bytes,
                              error));
    return MF_OK;
}

/* Blocks with a factor beside them. The factors are resident; see bind_read_blocks. */
static mf_status keep_blocks(expert_binding *b, uint32_t j, const mf_stored_matrix *m,
                             mf_expert_shape *shape, mf_error *error)
{
    mf_weight *w = shape_of(shape, j);
    w->shape = m->shape;
    b->blocks[j] = m->repack;
    b->parts[part_index(j, MF_WEIGHT_VALUES)] =
        part_of(m->packed[MF_PACKED_VALUES], b->h->n_experts);
    shape->has_resident_scales = true;
    return keep_scales(b, w, MF_WEIGHT_BIASES, m->packed[MF_PACKED_SCALES], (run_of){0, 1}, error);
}

/* Where some of a layer's matrices have to be taken apart, the others are read with them. */
static mf_status bind_read_blocks(const expert_binding *b, const mf_expert_shape *shape,
                                  mf_error *error)
{
    bool is_any = false;
    for (uint32_t j = 0; j < N_MATRICES; j++)
        is_any = is_any || b->blocks[j].packing != MF_PACKING_NONE;
    if (!is_any)
        return MF_OK;
    MF_TRY(mf_bind_stored_tables(b->binder, b->h, error));
    const mf_weight *const matrices[N_MATRICES] = {&shape->gate, &shape->up, &shape->down};
    for (uint32_t j = 0; j < N_MATRICES; j++) {
        const mf_repack as_is = {.packing = MF_PACKING_BLOCKS, .shape = matrices[j]->shape};
        const bool is_apart = b->blocks[j].packing != MF_PACKING_NONE;
        mf_bind_packed_blocks(b->binder, b->h, b->layer, j, is_apart ? &b->blocks[j] : &as_is);
    }
    return MF_OK;
}

/* The parts of matrix j, of tensors that have all experts. */
static mf_status keep_stacked(expert_binding *b, uint32_t j, const mf_stored_matrix *m, run_of run,
                              mf_expert_shape *shape, mf_error *error)
{
    const mf_weight_format *format = mf_weight_format_of(&m->shape);
    mf_weight *w = shape_of(shape, j);
    if (m->repack.packing == MF_PACKING_BLOCKS)
        return keep_blocks(b, j, m, shape, error);
    w->shape = m->shape;
    w->shape.n_rows /= run.n;
    for (uint32_t i = 0; i < format->n_arrays; i++) {
        const mf_tensor *t = m->arrays[i];
        const bool is_copied = format->arrays[i].is_float32 && t->type != MF_TENSOR_F32;
        if (format->arrays[i].is_float32 && b->has_scales &&
            is_copied != shape->has_resident_scales)
            return mf_fail(error, MF_ERR_UNSUPPORTED,
                           "%s: tensor %s: scales of stacked FP8 experts must be all F32, or none",
                           b->binder->source->path, t->name);
        if (is_copied) {
            MF_TRY(keep_scales(b, w, i, t, run, error));
        } else {
            mf_expert_part *part = &b->parts[part_index(j, i)];
            *part = part_of(t, b->h->n_experts);
            part->n_bytes /= run.n;
            part->offset += run.k * part->n_bytes;
        }
        b->has_scales = b->has_scales || format->arrays[i].is_float32;
        shape->has_resident_scales = shape->has_resident_scales || is_copied;
    }
    return MF_OK;
}

/* MLX: one tensor [experts, rows, cols] per matrix, quantised or not. */
static mf_status bind_stacked(expert_binding *b, mf_expert_shape *shape, mf_error *error)
{
    for (uint32_t j = 0; j < N_MATRICES; j++) {
        const mf_matrix_shape s = {b->h->n_experts, rows_of(b->h, j), cols_of(b->h, j)};
        mf_stored_matrix m;
        MF_TRY(mf_bind_stored(b->binder, mf_tensor_of(roles[j], b->layer), s, &m, error));
        MF_TRY(keep_stacked(b, j, &m, (run_of){0, 1}, shape, error));
    }
    return bind_read_blocks(b, shape, error);
}

/* What can be cut in halves: floats and blocks with their scales inside anywhere, FP8 between two
 * of its blocks. */
static mf_status require_halves(const expert_binding *b, const mf_stored_matrix *m, mf_error *error)
{
    const uint32_t n = b->h->expert_hidden;
    const bool is_fp8 = m->shape.kind == MF_WEIGHT_FP8_BLOCK;
    if (mf_weight_format_of(&m->shape)->n_arrays == 1 || (is_fp8 && n % MF_FP8_BLOCK == 0))
        return MF_OK;
    if (is_fp8)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: tensor %s: fused FP8 experts of %u rows each for gate and up: "
                       "supported are multiples of %u",
                       b->binder->source->path, m->data->name, n, MF_FP8_BLOCK);
    return mf_fail(error, MF_ERR_UNSUPPORTED,
                   "%s: tensor %s: quantised fused experts are supported as FP8 in blocks alone",
                   b->binder->source->path, m->data->name);
}

/* Raw Hugging Face, fused: gate_up_proj [experts, 2 * hidden, cols], the first half of the rows
 * (and of rows of blocks) gate; down_proj [experts, ...]. */
static mf_status bind_fused(expert_binding *b, mf_expert_shape *shape, mf_error *error)
{
    const mf_hparams *h = b->h;
    const mf_matrix_shape both = {h->n_experts, 2 * h->expert_hidden, h->hidden_size};
    const mf_matrix_shape down = {h->n_experts, h->hidden_size, h->expert_hidden};
    mf_stored_matrix m;
    MF_TRY(
        mf_bind_stored(b->binder, mf_tensor_of(MF_ROLE_EXPERT_GATE_UP, b->layer), both, &m, error));
    MF_TRY(require_halves(b, &m, error));
    MF_TRY(keep_stacked(b, GATE, &m, (run_of){0, 2}, shape, error));
    MF_TRY(keep_stacked(b, UP, &m, (run_of){1, 2}, shape, error));
    MF_TRY(mf_bind_stored(b->binder, mf_tensor_of(MF_ROLE_EXPERT_DOWN, b->layer), down, &m, error));
    MF_TRY(keep_stacked(b, DOWN, &m, (run_of){0, 1}, shape, error));
    return bind_read_blocks(b, shape, error);
}

/* gpt-oss: as fused, but row 2i is row i of gate and row 2i + 1 row i of up. They stay so. */
static mf_status bind_pairs(expert_binding *b, mf_expert_shape *shape, mf_error *error)
{
    const mf_hparams *h = b->h;
    const mf_role of[] = {MF_ROLE_EXPERT_PAIRS, MF_ROLE_EXPERT_DOWN};
    const mf_matrix_shape shapes[] = {{h->n_experts, 2 * h->expert_hidden, h->hidden_size},
                                      {h->n_experts, h->hidden_size, h->expert_hidden}};
    mf_weight *const out[] = {&shape->gate, &shape->down};
    const uint32_t matrices[] = {GATE, DOWN};
    shape->steps.is_paired = true;
    for (uint32_t j = 0; j < 2; j++) {
        mf_stored_matrix m;
        MF_TRY(mf_bind_stored(b->binder, mf_tensor_of(of[j], b->layer), shapes[j], &m, error));
        out[j]->shape = m.shape;
        for (uint32_t i = 0; i < mf_weight_format_of(&m.shape)->n_arrays; i++)
            b->parts[part_index(matrices[j], i)] = part_of(m.arrays[i], h->n_experts);
    }
    return MF_OK;
}

mf_status mf_bind_each_table(mf_binder *binder, const mf_hparams *h, mf_error *error)
{
    if (binder->experts.each_file != NULL)
        return MF_OK;
    size_t n = (size_t)h->n_moe_layers * MF_MAX_EXPERT_PARTS * h->n_experts;
    binder->experts.each_file =
        mf_alloc_array(&binder->allocator, n, sizeof *binder->experts.each_file);
    if (binder->experts.each_file == NULL)
        return mf_fail_memory(error, n * sizeof *binder->experts.each_file, "the table of experts");
    binder->experts.each_count = n;
    binder->experts.each_offset =
        mf_alloc_array(&binder->allocator, n, sizeof *binder->experts.each_offset);
    if (binder->experts.each_offset == NULL)
        return mf_fail_memory(error, n * sizeof *binder->experts.each_offset,
                              "the table of experts");
    return MF_OK;
}

static void keep_each(expert_binding *b, uint32_t part, uint32_t expert, const mf_tensor *t)
{
    size_t first =
        ((size_t)b->h->moe_index[b->layer] * MF_MAX_EXPERT_PARTS + part) * b->h->n_experts;
    b->binder->experts.each_file[first + expert] = t->file;
    b->binder->experts.each_offset[first + expert] = t->offset;
    b->parts[part].n_bytes = t->n_bytes;
    b->parts[part].each_file = &b->binder->experts.each_file[first];
    b->parts[part].each_offset = &b->binder->experts.each_offset[first];
}

/* Where the arrays of one expert's matrix j are. Kernels read some as float32 only: those, stored
 * in another type, are small. They are converted once and stay resident. */
static mf_status keep_arrays(expert_binding *b, uint32_t j, uint32_t expert,
                             const mf_stored_matrix *m, mf_expert_shape *shape, mf_error *error)
{
    mf_weight *w = shape_of(shape, j);
    const mf_weight_format *format = mf_weight_format_of(&m->shape);
    for (uint32_t i = 0; i < format->n_arrays; i++) {
        const bool is_one = format->arrays[i].rows == MF_OF_ALL; /* too small to be read alone */
        if (!format->arrays[i].is_float32 || (m->arrays[i]->type == MF_TENSOR_F32 && !is_one)) {
            keep_each(b, part_index(j, i), expert, m->arrays[i]);
            continue;
        }
        uint64_t n_bytes = mf_weight_array_bytes(&m->shape, i);
        shape->has_resident_scales = true;
        if (expert == 0)
            MF_TRY(mf_bind_place(b->binder, n_bytes * b->h->n_experts, &w->arrays[i], error));
        MF_TRY(mf_bind_floats(b->binder, m->arrays[i], 0, n_bytes / sizeof(float),
                              w->arrays[i].offset + expert * n_bytes, error));
    }
    return MF_OK;
}

static bool same_form(const mf_stored_matrix *a, const mf_stored_matrix *b)
{
    return a->shape.kind == b->shape.kind && a->shape.float_type == b->shape.float_type &&
           a->shape.group == b->shape.group &&
           (a->scales == NULL || a->scales->type == b->scales->type);
}

/* One expert's matrix, of which all that went before were like the first. */
static mf_status keep_matrix(expert_binding *b, mf_expert_id id, const mf_stored_matrix *first,
                             const mf_stored_matrix *m, mf_expert_shape *shape, mf_error *error)
{
    const bool is_packed = m->repack.packing != MF_PACKING_NONE;
    const bool is_alike = is_packed ? first->repack.packing == m->repack.packing
                                    : m->shape.kind != MF_WEIGHT_AFFINE && same_form(first, m);
    if (!is_alike)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: tensor %s: experts stored one by one must be all of one "
                       "floating-point dtype, or all quantised alike",
                       b->binder->source->path, m->data->name);
    if (id.expert == 0)
        shape_of(shape, id.matrix)->shape = m->shape;
    if (is_packed)
        return mf_bind_packed_expert(b->binder, b->h, id, m, error);
    MF_TRY(mf_bind_each_table(b->binder, b->h, error));
    return keep_arrays(b, id.matrix, id.expert, m, shape, error);
}

/* Raw Hugging Face, a tensor per expert and matrix, with its scales beside it. */
static mf_status bind_each(expert_binding *b, mf_expert_shape *shape, mf_error *error)
{
    const mf_hparams *h = b->h;
    mf_stored_matrix first = {0};
    for (uint32_t j = 0; j < N_MATRICES; j++) {
        for (uint32_t e = 0; e < h->n_experts; e++) {
            const mf_tensor_id id = {roles[j], b->layer, e};
            const mf_matrix_shape s = {0, rows_of(h, j), cols_of(h, j)};
            mf_stored_matrix m;
            MF_TRY(mf_bind_stored(b->binder, id, s, &m, error));
            if (e == 0 && j == 0)
                first = m;
            MF_TRY(keep_matrix(b, (mf_expert_id){b->layer, j, e}, &first, &m, shape, error));
        }
    }
    return MF_OK;
}

/* The packed form: a file per layer, an expert after the other, nine parts each. */
static mf_status bind_packed(expert_binding *b, mf_expert_shape *shape, mf_error *error)
{
    const mf_hparams *h = b->h;
    mf_source *source = b->binder->source;
    mf_packed_experts p;
    MF_TRY(source->ops->packed_experts(source, b->layer, &p, error));
    if (h->hidden_size % p.group != 0 || h->expert_hidden % p.group != 0)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: packed experts have groups of %u, which does not divide %u or %u",
                       source->path, p.group, h->hidden_size, h->expert_hidden);
    uint64_t at = 0;
    for (uint32_t j = 0; j < N_MATRICES; j++) {
        mf_weight_shape *w = &shape_of(shape, j)->shape;
        *w = (mf_weight_shape){.kind = MF_WEIGHT_AFFINE,
                               .float_type = MF_BF16,
                               .bits = p.bits,
                               .group = p.group,
                               .n_rows = rows_of(h, j),
                               .n_cols = cols_of(h, j)};
        for (uint32_t i = 0; i < MF_MAX_WEIGHT_ARRAYS; i++) {
            uint64_t n_bytes = mf_weight_array_bytes(w, i);
            b->parts[part_index(j, i)] =
                (mf_expert_part){.file = p.file, .offset = at, .n_bytes = n_bytes};
            at += n_bytes;
        }
        b->binder->n_parameters += (uint64_t)h->n_experts * w->n_rows * w->n_cols;
    }
    for (uint32_t i = 0; i < MF_MAX_EXPERT_PARTS; i++)
        b->parts[i].stride = at;
    uint64_t expected = at * h->n_experts, actual = source->table.files[p.file].n_bytes;
    if (actual != expected)
        return mf_fail(error, MF_ERR_FORMAT, "%s: %llu bytes, expected %llu (%u experts of %llu)",
                       source->table.files[p.file].path, (unsigned long long)actual,
                       (unsigned long long)expected, h->n_experts, (unsigned long long)at);
    return MF_OK;
}

/* What stands beside the experts' matrices, once these are bound. */
static mf_status bind_steps(const expert_binding *b, mf_expert_shape *shape, mf_error *error)
{
    const mf_hparams *h = b->h;
    mf_expert_steps *s = &shape->steps;
    s->is_clamped = h->experts_are_clamped;
    s->limit = h->expert_limit;
    s->alpha = h->expert_alpha;
    s->silu_limit = h->silu_limit;
    if (!h->experts_have_biases)
        return MF_OK;
    const mf_role first = s->is_paired ? MF_ROLE_EXPERT_PAIRS_BIAS : MF_ROLE_EXPERT_GATE_BIAS;
    const uint64_t n = h->n_experts, n_first = shape->gate.shape.n_rows;
    MF_TRY(mf_bind_vector(b->binder, mf_tensor_of(first, b->layer), n * n_first, &s->gate_bias,
                          error));
    if (!s->is_paired)
        MF_TRY(mf_bind_vector(b->binder, mf_tensor_of(MF_ROLE_EXPERT_UP_BIAS, b->layer),
                              n * h->expert_hidden, &s->up_bias, error));
    return mf_bind_vector(b->binder, mf_tensor_of(MF_ROLE_EXPERT_DOWN_BIAS, b->layer),
                          n * h->hidden_size, &s->down_bias, error);
}

/* The tensor of gate and up, if there is one, is [experts, hidden, 2 * intermediate]. Some files of
 * the same family are not transposed; where it is square, that of down tells. */
static bool is_turned(const expert_binding *b)
{
    const mf_hparams *h = b->h;
    const mf_source *source = b->binder->source;
    const mf_tensor_id both = mf_tensor_of(MF_ROLE_EXPERT_GATE_UP, b->layer);
    const mf_tensor_id down = mf_tensor_of(MF_ROLE_EXPERT_DOWN, b->layer);
    mf_stored s;
    if (!h->experts_are_turned || source->ops->find(b->binder->source, both, &s, NULL))
        return false;
    if (h->experts_are_paired || s.data->n_dims != 3 || s.data->shape[1] != h->hidden_size)
        return h->experts_are_paired || s.data->n_dims != 3;
    if (2 * (uint64_t)h->expert_hidden != h->hidden_size ||
        source->ops->find(b->binder->source, down, &s, NULL))
        return true;
    return s.data->n_dims != 3 || s.data->shape[1] == h->expert_hidden;
}

static mf_status bind_matrices(expert_binding *b, mf_expert_shape *out, mf_error *error)
{
    switch (b->binder->source->ops->expert_layout(b->binder->source, b->layer)) {
    case MF_EXPERTS_PACKED:
        return bind_packed(b, out, error);
    case MF_EXPERTS_FUSED:
        return is_turned(b) ? mf_bind_turned(b->binder, b->h, b->layer, out, error)
                            : bind_fused(b, out, error);
    case MF_EXPERTS_EACH:
        return bind_each(b, out, error);
    case MF_EXPERTS_PAIRS:
        return bind_pairs(b, out, error);
    case MF_EXPERTS_ALIGNED:
        return mf_bind_aligned(b->binder, b->h, b->layer, out, error);
    case MF_EXPERTS_STACKED:
        break;
    }
    return bind_stacked(b, out, error);
}

mf_status mf_bind_experts(mf_binder *binder, const mf_hparams *h, uint32_t layer,
                          mf_expert_shape *out, mf_error *error)
{
    if (binder->experts.parts == NULL) {
        size_t n_bytes =
            (size_t)h->n_moe_layers * MF_MAX_EXPERT_PARTS * sizeof *binder->experts.parts;
        binder->experts.parts = mf_alloc_zeroed(&binder->allocator, n_bytes);
        if (binder->experts.parts == NULL)
            return mf_fail_memory(error, n_bytes, "the expert map");
        binder->experts.parts_bytes = n_bytes;
    }
    expert_binding b = {binder, h, layer,
                        binder->experts.parts + (size_t)h->moe_index[layer] * MF_MAX_EXPERT_PARTS,
                        .has_scales = false};
    MF_TRY(bind_matrices(&b, out, error));
    return bind_steps(&b, out, error);
}
