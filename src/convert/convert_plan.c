/* SPDX-License-Identifier: MIT */
/* What is written where, before anything is: shapes of experts, drives, sizes, and the id that a
 * conversion of the same to the same has at every start. */
#include "base/checked.h"
#include "base/checksum.h"
#include "convert/convert.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void mf_target_file_name(const mf_target_layer *layer, char *name, size_t capacity)
{
    snprintf(name, capacity, "layer_%02u.bin", layer->layer);
}

/* ----------------------------------------------------------------------------- the trace -- */

mf_status mf_convert_uses(const mf_conversion *c, uint64_t **out, mf_error *error)
{
    const mf_routing *t = c->options.routing;
    const mf_hparams *h = &c->source.h;
    *out = NULL;
    if (t == NULL)
        return MF_OK;
    const uint32_t n_layers = mf_main_moe_layers(h); /* one that proposes tokens is in no trace */
    if (t->head.n_layers != n_layers || t->head.n_experts != h->n_experts)
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "the trace is of %u layers of %u experts, the model has %u of %u",
                       t->head.n_layers, t->head.n_experts, n_layers, h->n_experts);
    const size_t n = (size_t)h->n_moe_layers * h->n_experts;
    uint64_t *uses = mf_alloc_array(&c->allocator, n, sizeof *uses);
    if (uses == NULL)
        return mf_fail_memory(error, n * sizeof *uses, "how often experts are used");
    for (size_t p = 0; p < t->n_passes; p++) {
        const mf_routing_pass *pass = &t->passes[p];
        const size_t of_layer = (size_t)pass->n_rows * t->head.k;
        for (size_t i = 0; i < of_layer * n_layers; i++)
            uses[i / of_layer * h->n_experts + t->ids[pass->first_choice + i]]++;
    }
    *out = uses;
    return MF_OK;
}

/* ---------------------------------------------------------------------------- the drives -- */

typedef struct ranked {
    uint64_t n_uses;
    uint32_t expert;
} ranked;

static int by_uses(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->n_uses != y->n_uses)
        return x->n_uses > y->n_uses ? -1 : 1;
    return x->expert < y->expert ? -1 : x->expert > y->expert;
}

static double share_of(const mf_conversion *c, uint32_t drive)
{
    return c->options.drive_shares != NULL ? c->options.drive_shares[drive] : 1.0;
}

/* The expert goes where least is asked for, in proportion. */
static void choose_drive(const mf_conversion *c, const ranked *r, double *load, uint8_t *drive_of)
{
    uint32_t best = 0;
    double least = 0;
    for (uint32_t d = 0; d < c->n_dirs; d++) {
        const double full = share_of(c, d) > 0 ? (load[d] + (double)r->n_uses) / share_of(c, d) : 0;
        if (share_of(c, d) > 0 && (least == 0 || full < least)) {
            best = d;
            least = full;
        }
    }
    load[best] += (double)r->n_uses;
    drive_of[r->expert] = (uint8_t)best;
}

/* The most used are placed first. */
static void choose_drives(const mf_conversion *c, const ranked *order, uint8_t *drive_of)
{
    double load[MF_CONVERT_MAX_DRIVES] = {0};
    for (uint32_t i = 0; i < c->source.h.n_experts; i++)
        choose_drive(c, &order[i], load, drive_of);
}

/* ---------------------------------------------------------------------------- the layers -- */

static mf_status lay_run(const mf_conversion *c, uint32_t layer, mf_run *r, mf_error *error)
{
    mf_expert_part parts[MF_MAX_EXPERT_PARTS] = {{0}};
    for (uint32_t p = 0; p < MF_MAX_EXPERT_PARTS; p++) {
        const mf_weight_shape *s = &r->shapes[p / MF_MAX_WEIGHT_ARRAYS];
        r->part_bytes[p] = mf_weight_array_bytes(s, p % MF_MAX_WEIGHT_ARRAYS);
        parts[p].n_bytes = r->part_bytes[p];
        const bool is_there = s->kind != 0; /* up is not where gate has both by turns */
        if (is_there && !mf_weight_shape_is_sound(s))
            return mf_fail(error, MF_ERR_UNSUPPORTED,
                           "%s: experts of layer %u: their format (%s) cannot be written",
                           c->source.source->path, layer, mf_weight_format_of(s)->form);
    }
    const mf_expert_map map = {
        .n_layers = 1, .n_experts = 1, .n_parts = MF_MAX_EXPERT_PARTS, .parts = parts};
    r->n_bytes = mf_expert_lay_parts(&map, 0, 0, r->part_at);
    if (r->n_bytes > MF_EXPERT_SLOT_BYTES_MAX)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: experts of layer %u are too large",
                       c->source.source->path, layer);
    r->padded_bytes = mf_round_up(r->n_bytes, MF_ALIGNED_BYTES);
    return MF_OK;
}

static void count_files(mf_conversion *c, mf_target_layer *t)
{
    for (uint32_t e = 0; e < c->source.h.n_experts; e++) {
        const mf_run *r = &t->forms[t->form_of[e]];
        t->file_bytes[t->drive_of[e]] += r->padded_bytes;
        t->file_experts[t->drive_of[e]]++;
        c->result.expert_bytes += r->n_bytes;
        c->result.source_expert_bytes += mf_target_source(t, e)->n_bytes;
        c->result.padding_bytes += r->padded_bytes - r->n_bytes;
        c->result.expert_read_bytes += r->padded_bytes;
    }
    for (uint32_t d = 0; d < c->n_dirs; d++) {
        if (t->file_experts[d] == 0)
            continue;
        const uint64_t head = mf_aligned_head_bytes(t->file_experts[d]);
        t->file_bytes[d] += head;
        c->result.padding_bytes += head;
        c->result.n_bytes += t->file_bytes[d];
    }
}

static uint32_t bits_of_layer(const mf_conversion *c, uint32_t layer)
{
    uint32_t bits = c->options.bits;
    for (uint32_t i = 0; i < c->options.n_rules; i++) {
        const mf_convert_rule *r = &c->options.rules[i];
        if (layer >= r->first_layer && layer <= r->last_layer)
            bits = r->bits;
    }
    return bits;
}

/* What an expert of one of the layer's forms becomes with so many bits. What is so already stays as
 * it is. */
static mf_status quantised_run(const mf_conversion *c, const mf_target_layer *t,
                               const mf_run *source, uint32_t bits, mf_run *out, mf_error *error)
{
    const uint32_t group = c->options.group != 0 ? c->options.group : 64;
    *out = *source;
    for (uint32_t j = 0; j < MF_EXPERT_MATRICES && bits != 0; j++) {
        mf_weight_shape *s = &out->shapes[j];
        if (s->kind == 0)
            continue;
        if (s->kind == MF_WEIGHT_AFFINE && s->bits == bits && s->group == group)
            continue;
        if (s->n_cols % group != 0)
            return mf_fail(error, MF_ERR_UNSUPPORTED,
                           "%s: experts of layer %u have rows of %u, which groups of %u do not "
                           "divide",
                           c->source.source->path, t->layer, s->n_cols, group);
        *s = (mf_weight_shape){.kind = MF_WEIGHT_AFFINE,
                               .float_type = MF_F16,
                               .bits = bits,
                               .group = group,
                               .n_rows = s->n_rows,
                               .n_cols = s->n_cols};
    }
    return lay_run(c, t->layer, out, error);
}

/* The experts in the order of their use, the most used first. */
static void rank(const uint64_t *uses, uint32_t n, ranked *out)
{
    for (uint32_t e = 0; e < n; e++)
        out[e] = (ranked){1 + (uses != NULL ? uses[e] : 0), e};
    qsort(out, n, sizeof *out, by_uses);
}

/* The form that experts of a source's form get with so many bits, among those of the layer. */
static mf_status find_form(const mf_conversion *c, mf_target_layer *t, uint32_t source,
                           uint32_t bits, uint8_t *form, mf_error *error)
{
    mf_run run;
    MF_TRY(quantised_run(c, t, &t->sources[source], bits, &run, error));
    for (uint32_t f = 0; f < t->n_forms; f++)
        if (memcmp(run.shapes, t->forms[f].shapes, sizeof run.shapes) == 0) {
            *form = (uint8_t)f;
            return MF_OK;
        }
    if (t->n_forms == MF_EXPERT_FORMS)
        return mf_fail(error, MF_ERR_UNSUPPORTED,
                       "%s: experts of layer %u would have more than %d forms",
                       c->source.source->path, t->layer, MF_EXPERT_FORMS);
    *form = (uint8_t)t->n_forms;
    t->forms[t->n_forms++] = run;
    return MF_OK;
}

/* Whole experts of the share. 0.29 of 100 is 28.999999999999996 as doubles: what misses a whole
 * number by no more than the roundings of a share and of this product is that number. */
static uint32_t count_hot(const mf_conversion *c)
{
    const uint32_t n = c->source.h.n_experts;
    const double share = c->options.hot_share * (double)n * (1 + 4 * DBL_EPSILON);
    return share < (double)n ? (uint32_t)share : n;
}

/* Those that are used most have forms of their own. */
static mf_status plan_forms(const mf_conversion *c, mf_target_layer *t, const ranked *order,
                            uint8_t *form_of, mf_error *error)
{
    const bool may_have = c->options.hot_bits != 0 && t->layer < c->source.h.n_layers;
    const uint32_t n_hot = may_have ? count_hot(c) : 0;
    const bool has_hot = n_hot > 0;
    uint8_t cold[MF_EXPERT_FORMS], hot[MF_EXPERT_FORMS] = {0};
    t->n_forms = 0;
    for (uint32_t s = 0; s < t->n_sources; s++)
        MF_TRY(find_form(c, t, s, bits_of_layer(c, t->layer), &cold[s], error));
    for (uint32_t s = 0; s < t->n_sources && has_hot; s++)
        MF_TRY(find_form(c, t, s, c->options.hot_bits, &hot[s], error));
    for (uint32_t i = 0; i < c->source.h.n_experts; i++) {
        const uint32_t e = order[i].expert, s = t->source_of != NULL ? t->source_of[e] : 0;
        form_of[e] = i < n_hot ? hot[s] : cold[s];
    }
    return MF_OK;
}

/* What the layer's experts are. */
static mf_status lay_sources(const mf_conversion *c, const mf_expert_shape *from,
                             mf_target_layer *t, mf_error *error)
{
    t->n_sources = from->n_forms != 0 ? from->n_forms : 1;
    t->source_of = from->n_forms != 0 ? from->form_of : NULL;
    for (uint32_t s = 0; s < t->n_sources; s++) {
        const mf_expert_shape of_form = mf_expert_shape_of(from, s);
        t->sources[s].shapes[0] = of_form.gate.shape;
        t->sources[s].shapes[1] = of_form.up.shape;
        t->sources[s].shapes[2] = of_form.down.shape;
        MF_TRY(lay_run(c, t->layer, &t->sources[s], error));
    }
    return MF_OK;
}

static mf_status plan_layer(mf_conversion *c, uint32_t layer, const ranked *order, mf_error *error)
{
    const uint32_t moe = c->source.h.moe_index[layer], n = c->source.h.n_experts;
    const mf_expert_shape *from = &c->source.weights.layers[layer].experts;
    mf_target_layer *t = &c->layers[moe];
    uint8_t *form_of = c->of_experts + 2 * (size_t)moe * n, *drive_of = form_of + n;
    t->layer = layer;
    t->is_paired = from->steps.is_paired;
    MF_TRY(lay_sources(c, from, t, error));
    MF_TRY(plan_forms(c, t, order, form_of, error));
    t->form_of = form_of;
    t->drive_of = drive_of;
    choose_drives(c, order, drive_of);
    count_files(c, t);
    return MF_OK;
}

static mf_status plan_layers_in(mf_conversion *c, const uint64_t *uses, ranked *order,
                                mf_error *error)
{
    const mf_hparams *h = &c->source.h;
    for (uint32_t i = 0; i < mf_all_layers(h); i++) {
        if (h->is_dense[i])
            continue;
        rank(uses != NULL ? uses + (size_t)h->moe_index[i] * h->n_experts : NULL, h->n_experts,
             order);
        MF_TRY(plan_layer(c, i, order, error));
    }
    return MF_OK;
}

static mf_status plan_layers(mf_conversion *c, const uint64_t *uses, mf_error *error)
{
    const mf_hparams *h = &c->source.h;
    const size_t n_experts = 2 * (size_t)h->n_moe_layers * h->n_experts;
    if (h->n_moe_layers == 0)
        return MF_OK;
    c->layers = mf_alloc_array(&c->allocator, h->n_moe_layers, sizeof *c->layers);
    c->of_experts = mf_alloc_array(&c->allocator, n_experts, sizeof *c->of_experts);
    ranked *order = mf_alloc_array(&c->allocator, h->n_experts, sizeof *order);
    mf_status status = c->layers == NULL || c->of_experts == NULL || order == NULL
                           ? mf_fail_memory(error, h->n_moe_layers * sizeof *c->layers + n_experts,
                                            "the plan of a conversion")
                           : plan_layers_in(c, uses, order, error);
    mf_free(&c->allocator, order, h->n_experts * sizeof *order);
    return status;
}

/* ------------------------------------------------------------------------- dense tensors -- */

static int by_source(const void *a, const void *b)
{
    const mf_tensor *x = &((const mf_watched_tensor *)a)->tensor;
    const mf_tensor *y = &((const mf_watched_tensor *)b)->tensor;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* In the order in which they are read. */
static mf_status plan_dense(mf_conversion *c, mf_error *error)
{
    mf_watch *w = &c->watch;
    c->dense_at = mf_alloc_array(&c->allocator, w->n_tensors, sizeof *c->dense_at);
    c->dense_sums = mf_alloc_array(&c->allocator, w->n_tensors, sizeof *c->dense_sums);
    if (c->dense_at == NULL || c->dense_sums == NULL)
        return mf_fail_memory(error, 2 * w->n_tensors * sizeof *c->dense_at, "dense tensors");
    qsort(w->tensors, w->n_tensors, sizeof *w->tensors, by_source);
    uint64_t at = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const mf_tensor *t = &w->tensors[i].tensor;
        if (t->n_dims > MF_MAX_DIMS || mf_aligned_role_name(w->tensors[i].id.role) == NULL)
            return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: tensor %s cannot be converted",
                           c->source.source->path, t->name);
        at = mf_round_up(at, MF_ALIGNED_BYTES);
        c->dense_at[i] = at;
        if (at + t->n_bytes < at || at + t->n_bytes > UINT64_MAX / 2)
            return mf_fail(error, MF_ERR_FORMAT, "%s: sizes overflow", c->source.source->path);
        at += t->n_bytes;
        c->result.dense_bytes += t->n_bytes;
    }
    at = mf_round_up(at, MF_ALIGNED_BYTES);
    c->dense_bytes = at;
    c->result.n_bytes += at;
    c->result.padding_bytes += at - c->result.dense_bytes;
    return MF_OK;
}

/* ---------------------------------------------------------------------------------- id -- */

static void add_number(mf_checksum *sum, uint64_t n)
{
    mf_fingerprint_add(sum, &n, sizeof n);
}

static void add_tensors(const mf_conversion *c, mf_checksum *sum)
{
    for (size_t i = 0; i < c->watch.n_tensors; i++) {
        const mf_watched_tensor *w = &c->watch.tensors[i];
        const uint64_t numbers[] = {w->id.role,       w->id.layer,      w->array,
                                    w->tensor.file,   w->tensor.offset, w->tensor.n_bytes,
                                    w->tensor.n_dims, w->tensor.bits,   c->dense_at[i]};
        mf_fingerprint_add(sum, numbers, sizeof numbers);
        mf_fingerprint_add(sum, w->tensor.shape, w->tensor.n_dims * sizeof *w->tensor.shape);
        mf_fingerprint_add(sum, w->tensor.type_name, strlen(w->tensor.type_name));
    }
}

static void add_layers(const mf_conversion *c, mf_checksum *sum)
{
    const mf_hparams *h = &c->source.h;
    for (uint32_t i = 0; i < h->n_moe_layers; i++) {
        const mf_target_layer *t = &c->layers[i];
        add_number(sum, t->n_forms);
        for (uint32_t f = 0; f < t->n_forms; f++)
            mf_fingerprint_add(sum, t->forms[f].shapes, sizeof t->forms[f].shapes);
        mf_fingerprint_add(sum, t->form_of, h->n_experts);
        mf_fingerprint_add(sum, t->drive_of, h->n_experts);
        for (uint32_t p = 0; p < MF_MAX_EXPERT_PARTS; p++) {
            const mf_expert_part *part =
                &c->source.binder.experts.parts[(size_t)i * MF_MAX_EXPERT_PARTS + p];
            const uint64_t numbers[] = {part->file, part->offset, part->stride, part->n_bytes};
            mf_fingerprint_add(sum, numbers, sizeof numbers);
        }
    }
}

/* Of the files as they are now: one that changes is another source. */
static mf_status add_files(const mf_conversion *c, mf_checksum *sum, mf_error *error)
{
    const mf_tensor_table *table = &c->source.source->table;
    for (size_t i = 0; i < table->n_files; i++) {
        struct stat st;
        if (stat(table->files[i].path, &st) != 0)
            return mf_fail(error, MF_ERR_IO, "%s: cannot be looked at", table->files[i].path);
        add_number(sum, table->files[i].n_bytes);
        add_number(sum, (uint64_t)st.st_mtim.tv_sec);
        add_number(sum, (uint64_t)st.st_mtim.tv_nsec);
    }
    return MF_OK;
}

static mf_status make_id(mf_conversion *c, mf_error *error)
{
    mf_checksum sum;
    size_t n_bytes = 0;
    mf_fingerprint_begin(&sum);
    char *text = yyjson_mut_val_write_opts(c->watch.hparams, YYJSON_WRITE_NOFLAG,
                                           &c->watch.json_allocator, &n_bytes, NULL);
    if (text == NULL)
        return mf_fail_memory(error, 4096, "the manifest");
    mf_fingerprint_add(&sum, text, n_bytes);
    mf_block_free(&c->watch.allocator, text);
    add_number(&sum, MF_ALIGNED_VERSION);
    add_number(&sum, c->n_dirs);
    add_number(&sum, c->source.source->norms_as_published);
    add_tensors(c, &sum);
    add_layers(c, &sum);
    if (c->options.input_squares != NULL)
        mf_fingerprint_add(&sum, c->options.input_squares,
                           (size_t)c->options.n_input_squares * sizeof(double));
    MF_TRY(add_files(c, &sum, error));
    mf_fingerprint_end(&sum, c->id);
    return MF_OK;
}

static void describe(mf_conversion *c)
{
    const mf_hparams *h = &c->source.h;
    mf_convert_result *r = &c->result;
    const mf_expert_map map = mf_expert_tables_map(&c->source.binder.experts, h);
    const uint64_t n = (uint64_t)h->n_moe_layers * h->n_experts;
    mf_expert_map_cost(&map, &r->source_reads_per_expert, &r->source_expert_read_bytes);
    r->n_layers = h->n_moe_layers;
    r->n_experts = h->n_experts;
    r->reads_per_expert = n != 0;
    r->expert_read_bytes = n != 0 ? r->expert_read_bytes / n : 0;
}

/* What is asked for is of layers and experts that are there. */
static mf_status check_reach(const mf_conversion *c, mf_error *error)
{
    const mf_convert_options *o = &c->options;
    const uint32_t n_layers = mf_all_layers(&c->source.h);
    for (uint32_t i = 0; i < o->n_rules; i++)
        if (o->rules[i].last_layer >= n_layers)
            return mf_fail(error, MF_ERR_ARGUMENT,
                           "bits are given for layers %u to %u, the model has 0 to %u",
                           o->rules[i].first_layer, o->rules[i].last_layer, n_layers - 1);
    if (o->hot_bits != 0 && count_hot(c) == 0)
        return mf_fail(error, MF_ERR_ARGUMENT, "hot_share: %g of %u experts is none of them",
                       o->hot_share, c->source.h.n_experts);
    return MF_OK;
}

mf_status mf_convert_plan(mf_conversion *c, mf_error *error)
{
    const size_t n = (size_t)c->source.h.n_moe_layers * c->source.h.n_experts;
    uint64_t *uses = NULL;
    const uint64_t n_squares = (uint64_t)mf_main_moe_layers(&c->source.h) * c->source.h.hidden_size;
    if (c->options.input_squares != NULL && c->options.n_input_squares != n_squares)
        return mf_fail(error, MF_ERR_ARGUMENT, "n_input_squares is %llu, the model has %llu",
                       (unsigned long long)c->options.n_input_squares,
                       (unsigned long long)n_squares);
    MF_TRY(check_reach(c, error));
    MF_TRY(mf_convert_uses(c, &uses, error));
    mf_status status = plan_layers(c, uses, error);
    mf_free(&c->allocator, uses, n * sizeof *uses);
    MF_TRY(status);
    MF_TRY(plan_dense(c, error));
    describe(c);
    return make_id(c, error);
}
