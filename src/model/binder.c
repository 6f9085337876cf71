/* SPDX-License-Identifier: MIT */
/* Binding of resident tensors. */
#include "model/binder.h"

#include "base/checked.h"

#include <stdio.h>
#include <string.h>

/* Large copies are cut so that several threads share them. */
#define COPY_BYTES ((uint64_t)8 << 20)
#define RESIDENT_ALIGN 64u

void mf_binder_init(mf_binder *binder, const mf_allocator *a, mf_source *source)
{
    *binder = (mf_binder){.allocator = *a, .source = source};
}

void mf_binder_free(mf_binder *binder)
{
    const mf_allocator *a = &binder->allocator;
    if (a->free == NULL)
        return;
    mf_free(a, binder->copies, binder->copies_capacity * sizeof *binder->copies);
    mf_expert_tables_free(&binder->experts, a);
    *binder = (mf_binder){0};
}

static const char *path_of(const mf_binder *binder, const mf_tensor *tensor)
{
    return binder->source->table.files[tensor->file].path;
}

static mf_status wrong_shape(const mf_binder *binder, const mf_tensor *t, const char *expected,
                             mf_error *error)
{
    char shape[128];
    if (t->n_dims > MF_MAX_DIMS)
        snprintf(shape, sizeof shape, "more than %d dimensions", MF_MAX_DIMS);
    else
        mf_shape_text(t->shape, t->n_dims, shape, sizeof shape);
    return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s: shape %s, dtype %s; expected %s",
                   path_of(binder, t), t->name, shape, t->type_name, expected);
}

/* [stacked, rows, cols], or without the first? */
static bool has_shape(const mf_tensor *t, mf_matrix_shape s, uint64_t n_rows, uint64_t n_cols)
{
    uint32_t first = s.n_stacked != 0;
    return t->n_dims == first + 2 && (first == 0 || t->shape[0] == s.n_stacked) &&
           t->shape[first] == n_rows && t->shape[first + 1] == n_cols;
}

/* The shape that is expected, and what more there is to say of it. */
static void expect(mf_matrix_shape s, uint64_t n_rows, uint64_t n_cols, const char *rest,
                   char text[160])
{
    uint64_t shape[3] = {s.n_stacked, n_rows, n_cols};
    uint32_t skip = s.n_stacked == 0;
    mf_shape_text(shape + skip, 3 - skip, text, 160);
    size_t used = strlen(text);
    snprintf(text + used, 160 - used, "%s", rest);
}

static bool float_type(mf_tensor_type type, mf_dtype *out)
{
    if (type != MF_TENSOR_F32 && type != MF_TENSOR_F16 && type != MF_TENSOR_BF16)
        return false;
    *out = type == MF_TENSOR_F32 ? MF_F32 : type == MF_TENSOR_F16 ? MF_F16 : MF_BF16;
    return true;
}

static bool known_quantization(uint64_t bits, uint64_t group)
{
    bool bits_ok = bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
    return bits_ok && (group == 32 || group == 64 || group == 128);
}

/* Bits and group follow from the shapes. */
static mf_status describe_affine(mf_binder *binder, mf_matrix_shape s, mf_stored_matrix *m,
                                 mf_error *error)
{
    char expected[160];
    const mf_tensor *data = m->data, *scales = m->scales;
    uint32_t last = s.n_stacked == 0 ? 1 : 2;
    uint64_t packed = data->n_dims == last + 1 ? data->shape[last] : 0;
    uint64_t n_groups = scales->n_dims == last + 1 ? scales->shape[last] : 0;
    uint64_t bits = packed * 32 / s.n_cols, group = n_groups == 0 ? 0 : s.n_cols / n_groups;
    if (data->type != MF_TENSOR_U32 || !has_shape(data, s, s.n_rows, packed) || packed == 0 ||
        packed * 32 % s.n_cols != 0) {
        expect(s, s.n_rows, s.n_cols, " packed into 32-bit words, dtype U32", expected);
        return wrong_shape(binder, data, expected, error);
    }
    if (!float_type(scales->type, &m->shape.float_type) ||
        !has_shape(scales, s, s.n_rows, n_groups) || n_groups == 0 || s.n_cols % n_groups != 0)
        return wrong_shape(binder, scales, "one floating-point scale per group of each row", error);
    if (m->biases->type != scales->type || !has_shape(m->biases, s, s.n_rows, n_groups))
        return wrong_shape(binder, m->biases, "the shape and dtype of the scales", error);
    if (!known_quantization(bits, group))
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: tensor %s: %llu bits in groups of %llu; supported are 2, 3, 4, 5, 6, 8 "
                       "bits in groups of "
                       "32, 64, 128",
                       path_of(binder, data), data->name, (unsigned long long)bits,
                       (unsigned long long)group);
    m->shape.kind = MF_WEIGHT_AFFINE;
    m->shape.bits = (uint32_t)bits;
    m->shape.group = (uint32_t)group;
    const mf_stored stored = {m->data, m->scales, m->biases};
    return binder->source->ops->check_affine(binder->source, &stored, m->shape.bits, m->shape.group,
                                             error);
}

static mf_status describe_float(mf_binder *binder, mf_matrix_shape s, mf_stored_matrix *m,
                                mf_error *error)
{
    m->shape.kind = MF_WEIGHT_FLOAT;
    if (float_type(m->data->type, &m->shape.float_type) &&
        has_shape(m->data, s, s.n_rows, s.n_cols))
        return MF_OK;
    char expected[160];
    expect(s, s.n_rows, s.n_cols, " of F32, F16 or BF16 (it has no scales)", expected);
    return wrong_shape(binder, m->data, expected, error);
}

/* Scales of 128 x 128 blocks; as float32 once they are bound. */
static mf_status describe_fp8(mf_binder *binder, mf_matrix_shape s, mf_stored_matrix *m,
                              mf_error *error)
{
    char expected[160];
    uint64_t block_rows = ((uint64_t)s.n_rows + MF_FP8_BLOCK - 1) / MF_FP8_BLOCK;
    uint64_t block_cols = ((uint64_t)s.n_cols + MF_FP8_BLOCK - 1) / MF_FP8_BLOCK;
    if (!has_shape(m->data, s, s.n_rows, s.n_cols)) {
        expect(s, s.n_rows, s.n_cols, "", expected);
        return wrong_shape(binder, m->data, expected, error);
    }
    if ((m->scales->type != MF_TENSOR_F32 && m->scales->type != MF_TENSOR_BF16) ||
        !has_shape(m->scales, s, block_rows, block_cols)) {
        expect(s, block_rows, block_cols, " of F32 or BF16, one per 128 x 128", expected);
        return wrong_shape(binder, m->scales, expected, error);
    }
    m->shape.kind = MF_WEIGHT_FP8_BLOCK;
    m->shape.float_type = MF_F32;
    m->shape.bits = 8;
    m->shape.group = m->shape.scale_rows = MF_FP8_BLOCK;
    return MF_OK;
}

mf_status mf_bind_stored(mf_binder *binder, mf_tensor_id id, mf_matrix_shape s,
                         mf_stored_matrix *out, mf_error *error)
{
    mf_stored stored = {0};
    MF_TRY(binder->source->ops->find(binder->source, id, &stored, error));
    mf_stored_matrix m = {.shape = {.n_rows = s.n_rows, .n_cols = s.n_cols},
                          .data = stored.data,
                          .scales = stored.scales,
                          .biases = stored.biases};
    if (m.biases != NULL)
        MF_TRY(describe_affine(binder, s, &m, error));
    else if (m.scales != NULL)
        MF_TRY(describe_fp8(binder, s, &m, error));
    else
        MF_TRY(describe_float(binder, s, &m, error));
    binder->n_parameters += (s.n_stacked == 0 ? 1 : s.n_stacked) * s.n_rows * (uint64_t)s.n_cols;
    *out = m;
    return MF_OK;
}

static mf_status add_copy(mf_binder *binder, const mf_copy *copy, mf_error *error)
{
    if (binder->n_copies == binder->copies_capacity) {
        size_t wanted = binder->copies_capacity == 0 ? 1024 : binder->copies_capacity * 2;
        mf_copy *grown =
            mf_realloc(&binder->allocator, binder->copies, binder->copies_capacity * sizeof *grown,
                       wanted * sizeof *grown);
        if (grown == NULL)
            return mf_fail_memory(error, wanted * sizeof *grown, "the load plan");
        binder->copies = grown;
        binder->copies_capacity = wanted;
    }
    binder->copies[binder->n_copies++] = *copy;
    return MF_OK;
}

static mf_status add_bytes(mf_binder *binder, uint32_t file, uint64_t source, uint64_t dest,
                           uint64_t n_bytes, mf_error *error)
{
    for (uint64_t done = 0; done < n_bytes; done += COPY_BYTES) {
        mf_copy copy = {.file = file,
                        .source = source + done,
                        .dest = dest + done,
                        .n_bytes = n_bytes - done < COPY_BYTES ? n_bytes - done : COPY_BYTES};
        MF_TRY(add_copy(binder, &copy, error));
    }
    return MF_OK;
}

mf_status mf_bind_place(mf_binder *binder, uint64_t n_bytes, mf_span *out, mf_error *error)
{
    uint64_t at = mf_round_up(binder->resident_bytes, RESIDENT_ALIGN), end;
    if (!mf_add_u64(at, n_bytes, &end))
        return mf_fail(error, MF_ERR_FORMAT, "%s: weights overflow", binder->source->path);
    binder->resident_bytes = end;
    *out = (mf_span){{MF_BUFFER_RESIDENT}, at};
    return MF_OK;
}

static uint32_t rows_taken(const mf_row_list *rows)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < rows->n_runs; i++)
        total += rows->runs[i].n_blocks * rows->runs[i].block_rows;
    return total;
}

/* Places one tensor whose rows have row_bytes, taking the given runs of rows. */
static mf_status place_rows(mf_binder *binder, const mf_tensor *t, uint64_t row_bytes,
                            const mf_row_list *rows, mf_span *out, mf_error *error)
{
    MF_TRY(mf_bind_place(binder, rows_taken(rows) * row_bytes, out, error));
    uint64_t dest = out->offset;
    for (uint32_t i = 0; i < rows->n_runs; i++) {
        const mf_rows *r = &rows->runs[i];
        uint64_t n_bytes = r->block_rows * row_bytes;
        for (uint32_t block = 0; block < r->n_blocks; block++) {
            uint64_t row = (uint64_t)r->offset + (uint64_t)block * r->stride;
            MF_TRY(add_bytes(binder, t->file, t->offset + row * row_bytes, dest, n_bytes, error));
            dest += n_bytes;
        }
    }
    return MF_OK;
}

mf_status mf_bind_floats(mf_binder *binder, const mf_tensor *t, uint64_t offset, uint64_t n,
                         uint64_t dest, mf_error *error)
{
    uint64_t width = t->type == MF_TENSOR_F32 ? 4 : 2;
    mf_copy copy = {t->file, t->type, 0.0f, t->offset + offset * width, dest, n * width};
    return add_copy(binder, &copy, error);
}

/* How many rows, in their new order, share one row of an array of which a stored row stands for
 * `step` rows (a power of two): as many as lie together both there and here. */
static uint32_t shared_rows(uint32_t step, const mf_row_list *rows)
{
    uint32_t bits = step;
    for (uint32_t i = 0; i < rows->n_runs; i++) {
        const mf_rows *r = &rows->runs[i];
        const bool is_one = r->n_blocks == 1;
        bits |= r->offset | (is_one ? 0 : r->stride);
        bits |= is_one && i + 1 == rows->n_runs ? 0 : r->block_rows; /* something follows */
    }
    return bits & -bits;
}

/* Places an array of float32 of which a row stands for several rows of values: for each
 * w->shape.scale_rows rows, the row that they have in the stored array. */
static mf_status place_shared(mf_binder *binder, const mf_stored_matrix *m, uint32_t array,
                              const mf_row_list *rows, mf_weight *w, mf_error *error)
{
    const uint64_t n_cols = mf_weight_array_cols(&m->shape, array);
    const uint32_t step = mf_weight_array_step(&m->shape, array);
    const uint32_t together = mf_weight_array_step(&w->shape, array);
    const uint64_t n_stored =
        ((uint64_t)m->shape.n_rows + step - 1) / step; /* of each leading one */
    MF_TRY(
        mf_bind_place(binder, mf_weight_array_bytes(&w->shape, array), &w->arrays[array], error));
    uint64_t dest = w->arrays[array].offset;
    for (uint32_t i = 0; i < rows->n_runs; i++) {
        const mf_rows *r = &rows->runs[i];
        /* Whole blocks are neighbours there as they are here. */
        const uint32_t n = together == step ? r->block_rows : together;
        const uint64_t n_values = n_cols * (((uint64_t)n + together - 1) / together);
        for (uint32_t block = 0; block < r->n_blocks; block++) {
            const uint64_t first = (uint64_t)r->offset + (uint64_t)block * r->stride;
            for (uint32_t done = 0; done < r->block_rows; done += n) {
                const uint64_t row = first + done;
                uint64_t from = row / m->shape.n_rows * n_stored + row % m->shape.n_rows / step;
                MF_TRY(
                    mf_bind_floats(binder, m->arrays[array], from * n_cols, n_values, dest, error));
                dest += n_values * sizeof(float);
            }
        }
    }
    return MF_OK;
}

/* Places a matrix whose rows, those of all leading dimensions together, are taken in `rows`. */
static mf_status place_matrix(mf_binder *binder, const mf_stored_matrix *m, const mf_row_list *rows,
                              mf_weight *out, mf_error *error)
{
    mf_weight w = {.shape = m->shape};
    w.shape.n_rows = rows_taken(rows);
    for (uint32_t i = 0; i < mf_weight_format_of(&w.shape)->n_arrays; i++) {
        const uint32_t step = mf_weight_array_step(&m->shape, i);
        if (step > 1) {
            w.shape.scale_rows = shared_rows(step, rows);
            MF_TRY(place_shared(binder, m, i, rows, &w, error));
        } else {
            MF_TRY(place_rows(binder, m->arrays[i], mf_weight_array_row_bytes(&w.shape, i), rows,
                              &w.arrays[i], error));
        }
    }
    *out = w;
    return MF_OK;
}

mf_status mf_bind_matrix_rows(mf_binder *binder, mf_tensor_id id, mf_matrix_shape shape,
                              const mf_row_list *rows, mf_weight *out, mf_error *error)
{
    mf_stored_matrix m;
    uint64_t counted = binder->n_parameters;
    MF_TRY(mf_bind_stored(binder, id, shape, &m, error));
    MF_TRY(place_matrix(binder, &m, rows, out, error));
    /* A matrix may be bound in several parts. */
    binder->n_parameters = counted + (uint64_t)out->shape.n_rows * shape.n_cols;
    return MF_OK;
}

mf_status mf_bind_matrix(mf_binder *binder, mf_tensor_id id, mf_matrix_shape shape, mf_weight *out,
                         mf_error *error)
{
    /* a block of scales is of one of them */
    const mf_rows all = {shape.n_stacked == 0 ? 1 : shape.n_stacked, shape.n_rows, shape.n_rows, 0};
    return mf_bind_matrix_rows(binder, id, shape, &(mf_row_list){&all, 1}, out, error);
}

mf_status mf_bind_norm(mf_binder *binder, mf_tensor_id id, uint64_t n, float centre, mf_span *out,
                       mf_error *error)
{
    mf_stored stored = {0};
    MF_TRY(binder->source->ops->find(binder->source, id, &stored, error));
    const mf_tensor *t = stored.data;
    uint64_t n_elements = 1;
    for (uint32_t i = 0; i < t->n_dims && i < MF_MAX_DIMS; i++)
        n_elements *= t->shape[i];
    mf_dtype type;
    if (!float_type(t->type, &type) || n_elements != n || t->n_dims > MF_MAX_DIMS) {
        char expected[96];
        snprintf(expected, sizeof expected, "%llu values of F32, F16 or BF16",
                 (unsigned long long)n);
        return wrong_shape(binder, t, expected, error);
    }
    MF_TRY(mf_bind_place(binder, n * sizeof(float), out, error));
    binder->n_parameters += n;
    float add = binder->source->norms_as_published ? centre : 0.0f;
    mf_copy copy = {t->file, t->type, add, t->offset, out->offset, t->n_bytes};
    return add_copy(binder, &copy, error);
}

mf_status mf_bind_vector(mf_binder *binder, mf_tensor_id id, uint64_t n, mf_span *out,
                         mf_error *error)
{
    return mf_bind_norm(binder, id, n, 0.0f, out, error);
}

mf_status mf_bind_finish(mf_binder *binder, const mf_hparams *h, mf_error *error)
{
    return binder->source->ops->check_unused(binder->source, h->n_layers, h->n_mtp_layers,
                                             &binder->n_skipped_layers, error);
}
