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
    mf_free(a, binder->places, binder->places_capacity * sizeof *binder->places);
    mf_expert_tables_free(&binder->experts, a);
    mf_binder_free_packed(binder);
    *binder = (mf_binder){0};
}

static const char *path_of(const mf_binder *binder, const mf_tensor *tensor)
{
    return mf_source_path_of(binder->source, tensor);
}

mf_status mf_bind_wrong_shape(const mf_binder *binder, const mf_tensor *t, const char *expected,
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

bool mf_float_type_of(mf_tensor_type type, mf_dtype *out)
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
        return mf_bind_wrong_shape(binder, data, expected, error);
    }
    if (!mf_float_type_of(scales->type, &m->shape.float_type) ||
        !has_shape(scales, s, s.n_rows, n_groups) || n_groups == 0 || s.n_cols % n_groups != 0)
        return mf_bind_wrong_shape(binder, scales, "one floating-point scale per group of each row",
                                   error);
    if (m->biases->type != scales->type || !has_shape(m->biases, s, s.n_rows, n_groups))
        return mf_bind_wrong_shape(binder, m->biases, "the shape and dtype of the scales", error);
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
    const mf_stored stored = {.data = m->data, .scales = m->scales, .biases = m->biases};
    return binder->source->ops->check_affine(binder->source, &stored, m->shape.bits, m->shape.group,
                                             error);
}

static mf_status describe_float(mf_binder *binder, mf_matrix_shape s, mf_stored_matrix *m,
                                mf_error *error)
{
    m->shape.kind = MF_WEIGHT_FLOAT;
    if (mf_float_type_of(m->data->type, &m->shape.float_type) &&
        has_shape(m->data, s, s.n_rows, s.n_cols))
        return MF_OK;
    char expected[160];
    expect(s, s.n_rows, s.n_cols, " of F32, F16 or BF16 (it has no scales)", expected);
    return mf_bind_wrong_shape(binder, m->data, expected, error);
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
        return mf_bind_wrong_shape(binder, m->data, expected, error);
    }
    if ((m->scales->type != MF_TENSOR_F32 && m->scales->type != MF_TENSOR_BF16 &&
         m->scales->type != MF_TENSOR_U8) ||
        !has_shape(m->scales, s, block_rows, block_cols)) {
        expect(s, block_rows, block_cols, " of F32, BF16 or F8_E8M0, one per 128 x 128", expected);
        return mf_bind_wrong_shape(binder, m->scales, expected, error);
    }
    m->shape.kind = MF_WEIGHT_FP8_BLOCK;
    m->shape.float_type = MF_F32;
    m->shape.bits = 8;
    m->shape.group = m->shape.scale_rows = MF_FP8_BLOCK;
    return MF_OK;
}

/* Blocks that have their scales inside. */
static mf_status describe_blocks(mf_binder *binder, mf_matrix_shape s, mf_stored_matrix *m,
                                 mf_error *error)
{
    m->shape.float_type = MF_F32;
    if (has_shape(m->data, s, s.n_rows, s.n_cols))
        return MF_OK;
    char expected[160];
    expect(s, s.n_rows, s.n_cols, "", expected);
    return mf_bind_wrong_shape(binder, m->data, expected, error);
}

static bool is_one_value(const mf_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->n_dims && i < MF_MAX_DIMS; i++)
        n *= t->shape[i];
    return n == 1 && t->n_dims <= MF_MAX_DIMS;
}

/* Integers of 4 or 8 bits in 32-bit words, and a scale for each group. */
static mf_status describe_integers(mf_binder *binder, mf_matrix_shape s, mf_stored_matrix *m,
                                   mf_error *error)
{
    char expected[160];
    const mf_tensor *data = m->data, *scales = m->scales;
    const uint32_t last = s.n_stacked == 0 ? 1 : 2;
    const uint64_t words = data->n_dims == last + 1 ? data->shape[last] : 0;
    const uint64_t n_groups = scales->n_dims == last + 1 ? scales->shape[last] : 0;
    const uint64_t group = n_groups == 0 ? 0 : s.n_cols / n_groups;
    const bool is_8 = words * 4 == s.n_cols;
    if (data->type != MF_TENSOR_I32 || !has_shape(data, s, s.n_rows, words) ||
        (!is_8 && words * 8 != s.n_cols)) {
        expect(s, s.n_rows, s.n_cols, " of 4 or 8 bits in 32-bit words, dtype I32", expected);
        return mf_bind_wrong_shape(binder, data, expected, error);
    }
    if (!mf_float_type_of(scales->type, &m->shape.float_type) ||
        !has_shape(scales, s, s.n_rows, n_groups) || group * n_groups != s.n_cols ||
        (group != 32 && group != 64 && group != 128))
        return mf_bind_wrong_shape(
            binder, scales, "one floating-point scale for each 32, 64 or 128 columns", error);
    m->shape.kind = is_8 ? MF_WEIGHT_INT8 : MF_WEIGHT_INT4;
    m->shape.bits = is_8 ? 8 : 4;
    m->shape.group = (uint32_t)group;
    return MF_OK;
}

/* FP8 with a scale for each row, or one for all. */
static mf_status describe_fp8_rows(mf_binder *binder, mf_matrix_shape s, mf_stored_matrix *m,
                                   mf_error *error)
{
    char expected[160];
    mf_dtype type;
    const bool is_one = m->shape.kind == MF_WEIGHT_FP8_TENSOR;
    if (m->data->type != MF_TENSOR_F8_E4M3 || !has_shape(m->data, s, s.n_rows, s.n_cols)) {
        expect(s, s.n_rows, s.n_cols, " of F8_E4M3", expected);
        return mf_bind_wrong_shape(binder, m->data, expected, error);
    }
    if (!mf_float_type_of(m->scales->type, &type) || s.n_stacked != 0 ||
        (is_one ? !is_one_value(m->scales) : !has_shape(m->scales, s, s.n_rows, 1))) {
        expect(s, s.n_rows, 1, " of F32, F16 or BF16, or one value for all rows", expected);
        return mf_bind_wrong_shape(binder, m->scales, expected, error);
    }
    m->shape.float_type = MF_F32;
    m->shape.bits = 8;
    return MF_OK;
}

/* [rows, columns in bytes or words], or, as gpt-oss has them, each block of 32 columns a dimension
 * of its own: the same bytes. */
static bool has_fp4_shape(const mf_tensor *t, mf_matrix_shape s, uint64_t n_words)
{
    const uint32_t first = s.n_stacked != 0;
    if (has_shape(t, s, s.n_rows, n_words))
        return true;
    return t->type == MF_TENSOR_U8 && t->n_dims == first + 3 &&
           (first == 0 || t->shape[0] == s.n_stacked) && t->shape[first] == s.n_rows &&
           t->shape[first + 1] == n_words / 16 && t->shape[first + 2] == 16;
}

/* Values of 4 bits, in bytes or in MLX's 32-bit words; scales of a byte; NVFP4's factor. */
static mf_status describe_fp4(mf_binder *binder, mf_matrix_shape s, mf_stored_matrix *m,
                              mf_error *error)
{
    char expected[160];
    const mf_weight_format *format = mf_weight_format_of(&m->shape);
    const uint32_t group = format->arrays[MF_WEIGHT_SCALES].cols;
    const bool is_words = m->data->type == MF_TENSOR_U32;
    m->shape.float_type = MF_F32;
    const bool is_bytes = m->data->type == MF_TENSOR_U8 || m->data->type == MF_TENSOR_I8;
    if (s.n_cols % group != 0 || (!is_words && !is_bytes) ||
        !has_fp4_shape(m->data, s, s.n_cols / (is_words ? 8 : 2))) {
        expect(s, s.n_rows, s.n_cols, " of 4 bits in bytes or 32-bit words, dtype U8 or U32",
               expected);
        return mf_bind_wrong_shape(binder, m->data, expected, error);
    }
    /* U8 is E8M0, too, and what MLX calls the E4M3 of NVFP4; MXFP4 has no E4M3. */
    const bool may_be_e4m3 = m->shape.kind != MF_WEIGHT_MXFP4;
    if ((m->scales->type != MF_TENSOR_U8 &&
         !(may_be_e4m3 && m->scales->type == MF_TENSOR_F8_E4M3)) ||
        !has_shape(m->scales, s, s.n_rows, s.n_cols / group)) {
        expect(s, s.n_rows, s.n_cols / group, may_be_e4m3 ? " of U8 or F8_E4M3" : " of U8",
               expected);
        return mf_bind_wrong_shape(binder, m->scales, expected, error);
    }
    if (format->n_arrays == 3 &&
        (m->biases->type != MF_TENSOR_F32 || !is_one_value(m->biases) || s.n_stacked != 0))
        return mf_bind_wrong_shape(binder, m->biases, "one value of F32", error);
    return MF_OK;
}

/* Values of e4m3, four to a word in MLX; a scale of a byte for 32. */
static mf_status describe_mxfp8(mf_binder *binder, mf_matrix_shape s, mf_stored_matrix *m,
                                mf_error *error)
{
    char expected[160];
    const bool is_words = m->data->type == MF_TENSOR_U32;
    m->shape.float_type = MF_F32;
    m->shape.bits = 8;
    if (s.n_cols % 32 != 0 || (!is_words && m->data->type != MF_TENSOR_F8_E4M3) ||
        !has_shape(m->data, s, s.n_rows, is_words ? s.n_cols / 4 : s.n_cols)) {
        expect(s, s.n_rows, s.n_cols, " of F8_E4M3, or four to a word of U32", expected);
        return mf_bind_wrong_shape(binder, m->data, expected, error);
    }
    if (m->scales->type != MF_TENSOR_U8 || !has_shape(m->scales, s, s.n_rows, s.n_cols / 32)) {
        expect(s, s.n_rows, s.n_cols / 32, " of U8", expected);
        return mf_bind_wrong_shape(binder, m->scales, expected, error);
    }
    return MF_OK;
}

/* A matrix whose form its source knows. */
static mf_status describe_kind(mf_binder *binder, mf_matrix_shape s, mf_stored_matrix *m,
                               mf_error *error)
{
    const mf_weight_format *format = mf_weight_format_of(&m->shape);
    if (m->data->type == MF_TENSOR_BLOCKS)
        return describe_blocks(binder, s, m, error);
    for (uint32_t i = 0; i < format->n_arrays; i++)
        if (m->arrays[i] == NULL)
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: tensor %s: stored as %s, but its %s is missing",
                           path_of(binder, m->data), m->data->name, format->form,
                           i == MF_WEIGHT_SCALES ? "scales" : "factor");
    switch (m->shape.kind) {
    case MF_WEIGHT_INT4:
        return describe_integers(binder, s, m, error);
    case MF_WEIGHT_FP8_CHANNEL:
    case MF_WEIGHT_FP8_TENSOR:
        return describe_fp8_rows(binder, s, m, error);
    case MF_WEIGHT_MXFP8:
        return describe_mxfp8(binder, s, m, error);
    case MF_WEIGHT_MXFP4:
    case MF_WEIGHT_NVFP4:
    case MF_WEIGHT_NVFP4_DIVIDED:
    case MF_WEIGHT_NVFP4_PLAIN:
        return describe_fp4(binder, s, m, error);
    default:
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s: is no tensor of the form %s",
                       path_of(binder, m->data), m->data->name, format->form);
    }
}

/* Packed integers that no format has as they are: with zeros, with columns in another order, of
 * other bits than 4 and 8, of other groups. */
static bool is_packed_integer(const mf_stored *s, uint32_t n_cols)
{
    const mf_tensor *data = s->data, *scales = s->scales;
    if (data->kind != MF_WEIGHT_INT4 || data->n_dims != 2 || scales == NULL || scales->n_dims != 2)
        return false;
    const uint64_t words = data->shape[1], n_groups = scales->shape[1];
    const uint64_t group = n_groups != 0 && n_cols % n_groups == 0 ? n_cols / n_groups : 0;
    if (s->zeros != NULL || s->index != NULL)
        return true;
    /* what is of no known size stays with those that are refused */
    const bool has_other_group =
        group % 32 == 0 && group != 0 && group != 32 && group != 64 && group != 128;
    return has_other_group || (n_cols % 32 == 0 && words % (n_cols / 32) == 0 &&
                               words * 4 != n_cols && words * 8 != n_cols && words * 4 < n_cols);
}

mf_status mf_bind_stored(mf_binder *binder, mf_tensor_id id, mf_matrix_shape s,
                         mf_stored_matrix *out, mf_error *error)
{
    mf_stored stored = {0};
    MF_TRY(binder->source->ops->find(binder->source, id, &stored, error));
    mf_stored_matrix m = {
        .shape = {.kind = stored.data->kind, .n_rows = s.n_rows, .n_cols = s.n_cols},
        .data = stored.data,
        .scales = stored.scales,
        .biases = stored.biases};
    if (is_packed_integer(&stored, s.n_cols))
        stored.data->packing = MF_PACKING_ROWS;
    if (stored.data->packing == MF_PACKING_BLOCKS)
        MF_TRY(describe_blocks(binder, s, &m, error));
    if (stored.data->packing != MF_PACKING_NONE)
        MF_TRY(mf_bind_packed(binder, s, &stored, &m, error));
    else if (m.shape.kind != 0 || m.data->type == MF_TENSOR_BLOCKS)
        MF_TRY(describe_kind(binder, s, &m, error));
    else if (m.biases != NULL)
        MF_TRY(describe_affine(binder, s, &m, error));
    else if (m.scales != NULL)
        MF_TRY(describe_fp8(binder, s, &m, error));
    else
        MF_TRY(describe_float(binder, s, &m, error));
    binder->n_parameters += (s.n_stacked == 0 ? 1 : s.n_stacked) * s.n_rows * (uint64_t)s.n_cols;
    *out = m;
    return MF_OK;
}

mf_status mf_bind_grow(mf_binder *binder, void **list, size_t n, size_t *capacity, size_t size,
                       mf_error *error)
{
    if (n < *capacity)
        return MF_OK;
    const size_t wanted = *capacity == 0 ? 64 : 2 * *capacity;
    void *grown = mf_realloc(&binder->allocator, *list, *capacity * size, wanted * size);
    if (grown == NULL)
        return mf_fail_memory(error, wanted * size, "the load plan");
    *list = grown;
    *capacity = wanted;
    return MF_OK;
}

static mf_status add_copy(mf_binder *binder, const mf_copy *copy, mf_error *error)
{
    void *list = binder->copies;
    MF_TRY(mf_bind_grow(binder, &list, binder->n_copies, &binder->copies_capacity, sizeof *copy,
                        error));
    binder->copies = list;
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
    void *list = binder->places;
    MF_TRY(
        mf_bind_grow(binder, &list, binder->n_places, &binder->places_capacity, sizeof at, error));
    binder->places = list;
    binder->places[binder->n_places++] = at;
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

uint64_t mf_copy_width(mf_tensor_type type)
{
    return type == MF_TENSOR_I64                            ? 8
           : type == MF_TENSOR_F32 || type == MF_TENSOR_I32 ? 4
           : type == MF_TENSOR_U8                           ? 1
                                                            : 2;
}

mf_status mf_bind_floats(mf_binder *binder, const mf_tensor *t, uint64_t offset, uint64_t n,
                         uint64_t dest, mf_error *error)
{
    const uint64_t width = mf_copy_width(t->type);
    const mf_copy copy = {.file = t->file,
                          .convert = t->type,
                          .source = t->offset + offset * width,
                          .dest = dest,
                          .n_bytes = n * width};
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
    if (m->repack.packing != MF_PACKING_NONE) {
        MF_TRY(mf_bind_place_packed(binder, m, rows, &w, error));
        *out = w;
        return MF_OK;
    }
    for (uint32_t i = 0; i < mf_weight_format_of(&w.shape)->n_arrays; i++) {
        const mf_weight_array *array = &mf_weight_format_of(&w.shape)->arrays[i];
        const uint32_t step = mf_weight_array_step(&m->shape, i);
        if (array->rows == MF_OF_ALL) { /* one value, whichever rows are taken */
            MF_TRY(mf_bind_place(binder, mf_weight_array_bytes(&w.shape, i), &w.arrays[i], error));
            MF_TRY(mf_bind_floats(binder, m->arrays[i], 0, 1, w.arrays[i].offset, error));
        } else if (step > 1 || array->is_float32) {
            if (step > 1)
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
    if (!mf_float_type_of(t->type, &type) || n_elements != n || t->n_dims > MF_MAX_DIMS) {
        char expected[96];
        snprintf(expected, sizeof expected, "%llu values of F32, F16 or BF16",
                 (unsigned long long)n);
        return mf_bind_wrong_shape(binder, t, expected, error);
    }
    MF_TRY(mf_bind_place(binder, n * sizeof(float), out, error));
    binder->n_parameters += n;
    float add = binder->source->norms_as_published ? centre : 0.0f;
    const mf_copy copy = {.file = t->file,
                          .convert = t->type,
                          .add = add,
                          .is_negated_exp = t->is_negated_exp,
                          .source = t->offset,
                          .dest = out->offset,
                          .n_bytes = t->n_bytes};
    return add_copy(binder, &copy, error);
}

mf_status mf_bind_vector(mf_binder *binder, mf_tensor_id id, uint64_t n, mf_span *out,
                         mf_error *error)
{
    return mf_bind_norm(binder, id, n, 0.0f, out, error);
}

mf_status mf_bind_table(mf_binder *binder, mf_tensor_id id, mf_matrix_shape shape, uint32_t limit,
                        mf_span *out, mf_error *error)
{
    char expected[160];
    mf_stored stored = {0};
    const uint64_t n = (uint64_t)shape.n_rows * shape.n_cols;
    MF_TRY(binder->source->ops->find(binder->source, id, &stored, error));
    const mf_tensor *t = stored.data;
    const bool is_table = t->type == MF_TENSOR_I64 || t->type == MF_TENSOR_I32;
    if (!is_table || !has_shape(t, shape, shape.n_rows, shape.n_cols)) {
        expect(shape, shape.n_rows, shape.n_cols, " of I64 or I32", expected);
        return mf_bind_wrong_shape(binder, t, expected, error);
    }
    MF_TRY(mf_bind_place(binder, n * sizeof(int32_t), out, error));
    binder->n_parameters += n;
    const mf_copy copy = {.file = t->file,
                          .convert = t->type,
                          .limit = limit,
                          .row_values = shape.n_cols,
                          .source = t->offset,
                          .dest = out->offset,
                          .n_bytes = t->n_bytes};
    return add_copy(binder, &copy, error);
}

mf_status mf_bind_finish(mf_binder *binder, const mf_hparams *h, mf_error *error)
{
    uint32_t n_more; /* layers of which something is unused: a draft's head is the model's */
    MF_TRY(binder->source->ops->check_unused(binder->source, h->n_layers, h->n_mtp_layers, &n_more,
                                             error));
    binder->n_skipped_layers = n_more > h->n_draft_layers ? n_more - h->n_draft_layers : 0;
    return MF_OK;
}
