/* SPDX-License-Identifier: MIT */
/* Binding of resident tensors. */
#include "model/binder.h"

#include "base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 512
/* Large copies are cut so that several threads share them. */
#define COPY_BYTES ((uint64_t)8 << 20)
#define RESIDENT_ALIGN 64u

/* The names under which text models are stored: MLX, raw Hugging Face with a vision tower, plain.
 */
static const char *const prefixes[] = {"language_model.model.", "model.language_model.", "model."};

static bool is_raw_hugging_face(const mf_tensor_table *table)
{
    /* The published checkpoints keep conv1d.weight as [channels, 1, width]; every conversion makes
     * it [channels, width, 1] and adds one to the norms at the same time. */
    for (size_t i = 0; i < table->n_tensors; i++) {
        const mf_tensor *t = &table->tensors[i];
        if (strstr(t->name, "mtp.") == NULL &&
            strstr(t->name, ".linear_attn.conv1d.weight") != NULL && t->n_dims == 3)
            return t->shape[2] != 1;
    }
    for (size_t i = 0; i < table->n_tensors; i++) {
        if (strstr(table->tensors[i].name, ".mlp.experts.") != NULL)
            return true;
    }
    return false;
}

mf_status mf_binder_init(mf_binder *binder, const mf_allocator *a, mf_checkpoint *checkpoint,
                         mf_error *error)
{
    *binder = (mf_binder){.allocator = *a, .checkpoint = checkpoint};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i]);
        if (mf_tensor_find(&checkpoint->table, name) != NULL) {
            binder->prefix = prefixes[i];
            binder->norm_add = is_raw_hugging_face(&checkpoint->table) ? 1.0f : 0.0f;
            return MF_OK;
        }
    }
    return mf_fail(error, MF_ERR_FORMAT, "%s: tensor model.embed_tokens.weight is missing",
                   checkpoint->dir);
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

void mf_layer_name(const mf_binder *binder, uint32_t layer, const char *suffix, char *name,
                   size_t capacity)
{
    snprintf(name, capacity, "%slayers.%u.%s", binder->prefix, layer, suffix);
}

static mf_status find_named(mf_binder *binder, const char *name, mf_tensor **out, mf_error *error)
{
    mf_tensor *tensor = mf_tensor_find(&binder->checkpoint->table, name);
    if (tensor == NULL)
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s is missing", binder->checkpoint->dir,
                       name);
    tensor->used = true;
    *out = tensor;
    return MF_OK;
}

mf_status mf_bind_find(mf_binder *binder, mf_tensor **out, mf_error *error, const char *name, ...)
{
    char full[NAME_BYTES];
    size_t n = (size_t)snprintf(full, sizeof full, "%s", binder->prefix);
    va_list args;
    va_start(args, name);
    vsnprintf(full + n, sizeof full - n, name, args);
    va_end(args);
    return find_named(binder, full, out, error);
}

static const char *path_of(const mf_binder *binder, const mf_tensor *tensor)
{
    return binder->checkpoint->table.files[tensor->file].path;
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

/* [leading..., rows, cols]? */
static bool has_shape(const mf_tensor *t, uint32_t n_leading, uint64_t leading, uint64_t n_rows,
                      uint64_t n_cols)
{
    return t->n_dims == n_leading + 2 && (n_leading == 0 || t->shape[0] == leading) &&
           t->shape[n_leading] == n_rows && t->shape[n_leading + 1] == n_cols;
}

static void expected_text(uint32_t n_leading, uint64_t leading, uint64_t n_rows, uint64_t n_cols,
                          char *text, size_t capacity)
{
    uint64_t shape[3] = {leading, n_rows, n_cols};
    mf_shape_text(shape + (n_leading == 0 ? 1 : 0), n_leading + 2, text, capacity);
}

static bool float_type(mf_tensor_type type, mf_dtype *out)
{
    if (type != MF_TENSOR_F32 && type != MF_TENSOR_F16 && type != MF_TENSOR_BF16)
        return false;
    *out = type == MF_TENSOR_F32 ? MF_F32 : type == MF_TENSOR_F16 ? MF_F16 : MF_BF16;
    return true;
}

/* Bits and group follow from the shapes; what config and manifest say must agree. */
static mf_status check_declared(mf_binder *binder, const char *module, const mf_stored_matrix *m,
                                mf_error *error)
{
    if (m->data->bits != 0 && m->data->bits != m->shape.bits)
        return mf_fail(error, MF_ERR_FORMAT, "%s: tensor %s: bits %u, but its shape means %u",
                       binder->checkpoint->dir, m->data->name, m->data->bits, m->shape.bits);
    /* The prepared form dropped a prefix from its tensors' names, so that the overrides of a
     * config.json beside it would be missed; its manifest states the bits instead. */
    if (binder->checkpoint->is_packed)
        return MF_OK;
    mf_quantization q;
    MF_TRY(mf_config_quantization(&binder->checkpoint->config, module, &q, error));
    const char *path = binder->checkpoint->config.json.path;
    if (q.disabled)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: quantization.%s is false, but %s.scales exists in %s", path, module,
                       module, path_of(binder, m->scales));
    if (q.bits != 0 && q.bits != m->shape.bits)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: quantization of %s: bits %u, but the tensor in %s has %u bits", path,
                       module, q.bits, path_of(binder, m->data), m->shape.bits);
    if (q.group != 0 && q.group != m->shape.group)
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: quantization of %s: group_size %u, but the scales in %s have %u", path,
                       module, q.group, path_of(binder, m->scales), m->shape.group);
    return MF_OK;
}

static bool known_quantization(uint64_t bits, uint64_t group)
{
    bool bits_ok = bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
    return bits_ok && (group == 32 || group == 64 || group == 128);
}

static mf_status describe_affine(mf_binder *binder, const char *module, uint32_t n_leading,
                                 uint64_t leading, uint32_t n_rows, uint32_t n_cols,
                                 mf_stored_matrix *m, mf_error *error)
{
    char expected[128];
    const mf_tensor *data = m->data, *scales = m->scales;
    uint64_t packed = data->n_dims == n_leading + 2 ? data->shape[n_leading + 1] : 0;
    uint64_t n_groups = scales->n_dims == n_leading + 2 ? scales->shape[n_leading + 1] : 0;
    uint64_t bits = packed * 32 / n_cols, group = n_groups == 0 ? 0 : n_cols / n_groups;
    if (data->type != MF_TENSOR_U32 || !has_shape(data, n_leading, leading, n_rows, packed) ||
        packed == 0 || packed * 32 % n_cols != 0) {
        expected_text(n_leading, leading, n_rows, n_cols, expected, sizeof expected);
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, " packed into 32-bit words, dtype U32");
        return wrong_shape(binder, data, expected, error);
    }
    if (!float_type(scales->type, &m->shape.float_type) ||
        !has_shape(scales, n_leading, leading, n_rows, n_groups) || n_groups == 0 ||
        n_cols % n_groups != 0)
        return wrong_shape(binder, scales, "one floating-point scale per group of each row", error);
    if (m->biases->type != scales->type ||
        !has_shape(m->biases, n_leading, leading, n_rows, n_groups))
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
    return check_declared(binder, module, m, error);
}

static mf_status describe_float(mf_binder *binder, uint32_t n_leading, uint64_t leading,
                                uint32_t n_rows, uint32_t n_cols, mf_stored_matrix *m,
                                mf_error *error)
{
    m->shape.kind = MF_WEIGHT_FLOAT;
    if (float_type(m->data->type, &m->shape.float_type) &&
        has_shape(m->data, n_leading, leading, n_rows, n_cols))
        return MF_OK;
    char expected[160];
    expected_text(n_leading, leading, n_rows, n_cols, expected, sizeof expected);
    size_t used = strlen(expected);
    snprintf(expected + used, sizeof expected - used, " of F32, F16 or BF16 (it has no scales)");
    return wrong_shape(binder, m->data, expected, error);
}

/* Scales of 128 x 128 blocks; as float32 once they are bound. */
static mf_status describe_fp8(mf_binder *binder, uint32_t n_leading, uint64_t leading,
                              uint32_t n_rows, uint32_t n_cols, mf_stored_matrix *m,
                              mf_error *error)
{
    char expected[160];
    uint64_t block_rows = ((uint64_t)n_rows + MF_FP8_BLOCK - 1) / MF_FP8_BLOCK;
    uint64_t block_cols = ((uint64_t)n_cols + MF_FP8_BLOCK - 1) / MF_FP8_BLOCK;
    if (!has_shape(m->data, n_leading, leading, n_rows, n_cols)) {
        expected_text(n_leading, leading, n_rows, n_cols, expected, sizeof expected);
        return wrong_shape(binder, m->data, expected, error);
    }
    if ((m->scales->type != MF_TENSOR_F32 && m->scales->type != MF_TENSOR_BF16) ||
        !has_shape(m->scales, n_leading, leading, block_rows, block_cols)) {
        expected_text(n_leading, leading, block_rows, block_cols, expected, sizeof expected);
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, " of F32 or BF16, one per 128 x 128");
        return wrong_shape(binder, m->scales, expected, error);
    }
    m->shape.kind = MF_WEIGHT_FP8_BLOCK;
    m->shape.float_type = MF_F32;
    m->shape.bits = 8;
    m->shape.group = m->shape.scale_rows = MF_FP8_BLOCK;
    return MF_OK;
}

mf_status mf_bind_stored(mf_binder *binder, const char *module, const char *suffix,
                         uint32_t n_leading, uint64_t leading, uint32_t n_rows, uint32_t n_cols,
                         mf_stored_matrix *out, mf_error *error)
{
    char name[NAME_BYTES];
    mf_stored_matrix m = {.shape = {.n_rows = n_rows, .n_cols = n_cols}};
    snprintf(name, sizeof name, "%s%s", module, suffix);
    MF_TRY(find_named(binder, name, &m.data, error));
    snprintf(name, sizeof name, "%s.scales", module);
    m.scales = mf_tensor_find(&binder->checkpoint->table, name);
    if (m.scales != NULL) {
        m.scales->used = true;
        snprintf(name, sizeof name, "%s.biases", module);
        MF_TRY(find_named(binder, name, &m.biases, error));
        MF_TRY(describe_affine(binder, module, n_leading, leading, n_rows, n_cols, &m, error));
    } else if (m.data->type == MF_TENSOR_F8_E4M3) {
        snprintf(name, sizeof name, "%s%s_scale_inv", module, suffix);
        MF_TRY(find_named(binder, name, &m.scales, error));
        MF_TRY(describe_fp8(binder, n_leading, leading, n_rows, n_cols, &m, error));
    } else {
        MF_TRY(describe_float(binder, n_leading, leading, n_rows, n_cols, &m, error));
    }
    binder->n_parameters += (n_leading == 0 ? 1 : leading) * n_rows * (uint64_t)n_cols;
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
        return mf_fail(error, MF_ERR_FORMAT, "%s: weights overflow", binder->checkpoint->dir);
    binder->resident_bytes = end;
    *out = (mf_span){{MF_BUFFER_RESIDENT}, at};
    return MF_OK;
}

/* Places one tensor whose rows have row_bytes, taking the given runs of rows. */
static mf_status place_rows(mf_binder *binder, const mf_tensor *t, uint64_t row_bytes,
                            const mf_rows *rows, uint32_t n_runs, mf_span *out, mf_error *error)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < n_runs; i++)
        total += rows[i].n_rows;
    MF_TRY(mf_bind_place(binder, total * row_bytes, out, error));
    uint64_t dest = out->offset;
    for (uint32_t i = 0; i < n_runs; i++) {
        for (uint32_t done = 0, block = 0; done < rows[i].n_rows;
             done += rows[i].block_rows, block++) {
            uint64_t source =
                t->offset +
                ((uint64_t)rows[i].offset + (uint64_t)block * rows[i].stride) * row_bytes;
            uint64_t n_bytes = rows[i].block_rows * row_bytes;
            MF_TRY(add_bytes(binder, t->file, source, dest, n_bytes, error));
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
static uint32_t shared_rows(uint32_t step, const mf_rows *rows, uint32_t n_runs)
{
    uint32_t bits = step;
    for (uint32_t i = 0; i < n_runs; i++) {
        const bool is_one = rows[i].n_rows == rows[i].block_rows;
        bits |= rows[i].offset | (is_one ? 0 : rows[i].stride);
        bits |= is_one && i + 1 == n_runs ? 0 : rows[i].block_rows; /* something follows */
    }
    return bits & -bits;
}

/* Places an array of float32 of which a row stands for several rows of values: for each
 * w->shape.scale_rows rows, the row that they have in the stored array. */
static mf_status place_shared(mf_binder *binder, const mf_stored_matrix *m, uint32_t array,
                              const mf_rows *rows, uint32_t n_runs, mf_weight *w, mf_error *error)
{
    const uint64_t n_cols = mf_weight_array_cols(&m->shape, array);
    const uint32_t step = mf_weight_array_step(&m->shape, array);
    const uint32_t together = mf_weight_array_step(&w->shape, array);
    const uint64_t n_stored =
        ((uint64_t)m->shape.n_rows + step - 1) / step; /* of each leading one */
    MF_TRY(
        mf_bind_place(binder, mf_weight_array_bytes(&w->shape, array), &w->arrays[array], error));
    uint64_t dest = w->arrays[array].offset;
    for (uint32_t i = 0; i < n_runs; i++) {
        const mf_rows *r = &rows[i];
        /* Whole blocks are neighbours there as they are here. */
        const uint32_t n = together == step ? r->block_rows : together;
        for (uint32_t done = 0; done < r->n_rows; done += n) {
            uint64_t row = (uint64_t)r->offset + (uint64_t)(done / r->block_rows) * r->stride +
                           done % r->block_rows;
            uint64_t n_values = n_cols * (((uint64_t)n + together - 1) / together);
            uint64_t from = row / m->shape.n_rows * n_stored + row % m->shape.n_rows / step;
            MF_TRY(mf_bind_floats(binder, m->arrays[array], from * n_cols, n_values, dest, error));
            dest += n_values * sizeof(float);
        }
    }
    return MF_OK;
}

/* Places a matrix whose rows, those of all leading dimensions together, are taken in `rows`. */
static mf_status place_matrix(mf_binder *binder, const mf_stored_matrix *m, const mf_rows *rows,
                              uint32_t n_runs, mf_weight *out, mf_error *error)
{
    mf_weight w = {.shape = m->shape};
    w.shape.n_rows = 0;
    for (uint32_t i = 0; i < n_runs; i++)
        w.shape.n_rows += rows[i].n_rows;
    for (uint32_t i = 0; i < mf_weight_format_of(&w.shape)->n_arrays; i++) {
        const uint32_t step = mf_weight_array_step(&m->shape, i);
        if (step == 1) {
            MF_TRY(place_rows(binder, m->arrays[i], mf_weight_array_row_bytes(&w.shape, i), rows,
                              n_runs, &w.arrays[i], error));
        } else {
            w.shape.scale_rows = shared_rows(step, rows, n_runs);
            MF_TRY(place_shared(binder, m, i, rows, n_runs, &w, error));
        }
    }
    *out = w;
    return MF_OK;
}

mf_status mf_bind_matrix_rows(mf_binder *binder, const char *module, uint32_t n_rows,
                              uint32_t n_cols, const mf_rows *rows, uint32_t n_runs, mf_weight *out,
                              mf_error *error)
{
    mf_stored_matrix m;
    uint64_t counted = binder->n_parameters;
    MF_TRY(mf_bind_stored(binder, module, ".weight", 0, 0, n_rows, n_cols, &m, error));
    MF_TRY(place_matrix(binder, &m, rows, n_runs, out, error));
    binder->n_parameters =
        counted + (uint64_t)out->shape.n_rows * n_cols; /* a matrix may be bound in several parts */
    return MF_OK;
}

mf_status mf_bind_heads(mf_binder *binder, const char *module, uint32_t n_heads, uint32_t n_rows,
                        uint32_t n_cols, mf_weight *out, mf_error *error)
{
    mf_stored_matrix m;
    const mf_rows all = {n_heads * n_rows, n_rows, n_rows, 0}; /* a block of scales is one head's */
    MF_TRY(mf_bind_stored(binder, module, ".weight", 1, n_heads, n_rows, n_cols, &m, error));
    return place_matrix(binder, &m, &all, 1, out, error);
}

mf_status mf_bind_matrix(mf_binder *binder, const char *module, uint32_t n_rows, uint32_t n_cols,
                         mf_weight *out, mf_error *error)
{
    const mf_rows all = {n_rows, n_rows, 0, 0};
    return mf_bind_matrix_rows(binder, module, n_rows, n_cols, &all, 1, out, error);
}

mf_status mf_bind_vector(mf_binder *binder, const char *name, uint64_t n, float add, mf_span *out,
                         mf_error *error)
{
    mf_tensor *t = NULL;
    MF_TRY(find_named(binder, name, &t, error));
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
    mf_copy copy = {t->file, t->type, add, t->offset, out->offset, t->n_bytes};
    return add_copy(binder, &copy, error);
}

/* Tensors that a text model does not need: the vision tower and the multi-token-prediction head. */
static bool is_skipped(const char *name)
{
    static const char *const parts[] = {"mtp.", "visual.", "vision_tower.", "rotary_emb.inv_freq"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *at = strstr(name, parts[i]);
        if (at != NULL && (at == name || at[-1] == '.'))
            return true;
    }
    return false;
}

/* The layer that a tensor belongs to; UINT32_MAX if to none. */
static uint32_t layer_of(const mf_binder *binder, const char *name)
{
    size_t n_prefix = strlen(binder->prefix);
    if (strncmp(name, binder->prefix, n_prefix) != 0 || strncmp(name + n_prefix, "layers.", 7) != 0)
        return UINT32_MAX;
    char *end;
    unsigned long layer = strtoul(name + n_prefix + 7, &end, 10);
    return *end == '.' && layer < MF_MAX_LAYERS * 2 ? (uint32_t)layer : UINT32_MAX;
}

mf_status mf_bind_finish(mf_binder *binder, const mf_hparams *h, mf_error *error)
{
    const mf_tensor_table *table = &binder->checkpoint->table;
    uint32_t end = h->n_layers;
    for (size_t i = 0; i < table->n_tensors; i++) {
        const mf_tensor *t = &table->tensors[i];
        if (t->used || is_skipped(t->name))
            continue;
        uint32_t layer = layer_of(binder, t->name);
        if (layer < h->n_layers || layer >= h->n_layers + h->n_mtp_layers)
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: tensor %s belongs to nothing in this model (surplus)",
                           path_of(binder, t), t->name);
        end = layer + 1 > end ? layer + 1 : end;
    }
    binder->n_skipped_layers = end - h->n_layers;
    return MF_OK;
}
