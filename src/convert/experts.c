/* SPDX-License-Identifier: MIT */
/*
 * The experts: a file for each layer and drive, filled batch by batch. While one batch is read, the
 * one before it is quantised, if that is wanted, and the one before that written, so that neither
 * drive waits for the other, nor for the processor. Whole experts are written past the page cache.
 */
#include "convert/experts.h"

#include "base/checked.h"
#include "base/checksum.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Experts on their way at once, in bytes, unless one has more. */
#define BATCH_BYTES ((uint64_t)32 << 20)
#define N_BATCHES 2u

typedef struct batch {
    uint32_t first, n;       /* of the file's experts */
    unsigned char *in, *out; /* as the source has them; as they are written: the same, or others */
} batch;

/* What a thread has for itself. */
typedef struct thread_room {
    float *row;
    mf_quantise_loss loss;
} thread_room;

/* A file under way. */
typedef struct file_copy {
    mf_conversion *c;
    const mf_target_layer *layer;
    uint32_t moe_layer, drive;
    mf_output_file file;
    mf_aligned_entry *entries; /* in the file's order */
    uint32_t n_entries, per_batch;
    uint64_t in_room, out_room; /* of one expert in a batch; out_room 0: none is made */
    uint32_t max_cols;
    float *importance; /* [hidden], of gate's and up's columns; NULL: all alike */
    thread_room *threads;
    mf_region memory;
    batch ahead, reads, makes, writes; /* of the step; n 0: nothing */
    atomic_int failed;                 /* the first failure wins */
    mf_error error;
} file_copy;

static void keep_failure(file_copy *f, mf_status status, const mf_error *error)
{
    int expected = MF_OK;
    if (status != MF_OK && atomic_compare_exchange_strong(&f->failed, &expected, status))
        f->error = *error;
}

static uint64_t written_room(const file_copy *f)
{
    return f->out_room != 0 ? f->out_room : f->in_room;
}

static mf_status write_one(file_copy *f, uint32_t i, mf_error *error)
{
    mf_aligned_entry *e = &f->entries[f->writes.first + i];
    const unsigned char *run = f->writes.out + i * written_room(f);
    e->checksum = mf_checksum_of(run, (size_t)e->n_bytes, 0);
    return mf_output_write(&f->file, e->offset, run,
                           (size_t)mf_round_up(e->n_bytes, MF_ALIGNED_BYTES), error);
}

static mf_status make_one(file_copy *f, uint32_t i, uint32_t matrix, thread_room *room,
                          mf_error *error)
{
    const mf_aligned_entry *e = &f->entries[f->makes.first + i];
    const mf_convert_make make = {.c = f->c,
                                  .layer = f->layer,
                                  .expert = e->expert,
                                  .form = e->form,
                                  .matrix = matrix,
                                  .importance =
                                      matrix + 1 < MF_EXPERT_MATRICES ? f->importance : NULL,
                                  .loss = &room->loss};
    return mf_convert_make_matrix(&make, f->makes.in + i * f->in_room,
                                  f->makes.out + i * f->out_room, room->row, error);
}

/* A task of writing or reading, which take turns while there are both, so that some threads write
 * while others read; true: of writing. */
static bool take_turns(uint32_t n_writes, uint32_t n_reads, uint32_t *task)
{
    const uint32_t n_both = n_writes < n_reads ? n_writes : n_reads;
    const bool is_write = *task < 2 * n_both ? *task % 2 == 0 : n_writes > n_reads;
    *task = *task < 2 * n_both ? *task / 2 : *task - n_both;
    return is_write;
}

/* What the next step reads is asked for first, so that the drive always has work; then come reading
 * and writing, then what computes. */
static void run_task(void *ctx, uint32_t task, uint32_t thread)
{
    file_copy *f = ctx;
    mf_error error = {0};
    mf_status status = MF_OK;
    if (atomic_load(&f->failed) != MF_OK)
        return;
    const uint32_t first_moved = f->ahead.n;
    const uint32_t first_made = first_moved + f->writes.n + f->reads.n;
    if (task < first_moved) {
        mf_convert_foresee_expert(f->c, f->moe_layer, f->entries[f->ahead.first + task].expert);
    } else if (task < first_made) {
        uint32_t i = task - first_moved;
        if (take_turns(f->writes.n, f->reads.n, &i))
            status = write_one(f, i, &error);
        else
            status =
                mf_convert_read_expert(f->c, f->moe_layer, f->entries[f->reads.first + i].expert,
                                       f->reads.in + i * f->in_room, &error);
    } else {
        const uint32_t i = task - first_made;
        status = make_one(f, i / MF_EXPERT_MATRICES, i % MF_EXPERT_MATRICES, &f->threads[thread],
                          &error);
    }
    keep_failure(f, status, &error);
}

/* The batch that is read in a step, from this expert on. */
static batch take_batch(const file_copy *f, uint32_t first, uint32_t step)
{
    const uint32_t left = f->n_entries - first;
    const uint64_t at = step % N_BATCHES * f->per_batch;
    batch b = {.first = first, .n = left < f->per_batch ? left : f->per_batch};
    b.in = f->memory.base + at * f->in_room;
    b.out = f->out_room == 0
                ? b.in
                : f->memory.base + N_BATCHES * f->per_batch * f->in_room + at * f->out_room;
    return b;
}

static uint64_t written_bytes(const file_copy *f, const batch *b)
{
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < b->n; i++)
        n_bytes += mf_round_up(f->entries[b->first + i].n_bytes, MF_ALIGNED_BYTES);
    return n_bytes;
}

static mf_status finish_step(file_copy *f, mf_error *error)
{
    if (atomic_load(&f->failed) != MF_OK) {
        if (error != NULL)
            *error = f->error;
        return (mf_status)atomic_load(&f->failed);
    }
    const uint64_t n = written_bytes(f, &f->writes);
    if (n != 0)
        mf_output_flush(&f->file, f->entries[f->writes.first].offset, n);
    return mf_convert_report(f->c, f->moe_layer, n, error);
}

static mf_status copy_batches(file_copy *f, mf_error *error)
{
    uint32_t next = 0;
    f->writes = f->makes = (batch){0};
    for (uint32_t step = 0;; step++) {
        f->reads = take_batch(f, next, step);
        next += f->reads.n;
        f->ahead = take_batch(f, next, step + 1);
        const uint32_t n_made = f->out_room != 0 ? MF_EXPERT_MATRICES * f->makes.n : 0;
        mf_thread_pool_run(f->c->pool, f->writes.n + f->ahead.n + f->reads.n + n_made, run_task, f);
        MF_TRY(finish_step(f, error));
        f->writes = f->out_room != 0 ? f->makes : f->reads;
        f->makes = f->reads;
        if (f->writes.n == 0 && (f->out_room == 0 || f->makes.n == 0) && next == f->n_entries)
            return MF_OK;
    }
}

static void list_entries(file_copy *f)
{
    uint64_t at = mf_aligned_head_bytes(f->n_entries);
    uint32_t n = 0;
    for (uint32_t e = 0; e < f->c->source.h.n_experts; e++) {
        if (f->layer->drive_of[e] != f->drive)
            continue;
        const uint32_t form = f->layer->form_of[e];
        f->entries[n++] = (mf_aligned_entry){
            .expert = e, .form = form, .offset = at, .n_bytes = f->layer->forms[form].n_bytes};
        at += f->layer->forms[form].padded_bytes;
    }
}

static mf_status write_head(file_copy *f, mf_error *error)
{
    mf_aligned_head head = {.layer = f->layer->layer,
                            .n_experts = f->n_entries,
                            .file_bytes = f->layer->file_bytes[f->drive]};
    const uint64_t n_bytes = mf_aligned_head_bytes(f->n_entries);
    unsigned char *bytes = mf_alloc(&f->c->allocator, (size_t)n_bytes);
    if (bytes == NULL)
        return mf_fail_memory(error, (size_t)n_bytes, "the head of a file");
    memcpy(head.id, f->c->id, sizeof head.id);
    mf_aligned_head_write(&head, f->entries, bytes);
    mf_status status = mf_output_write(&f->file, 0, bytes, (size_t)n_bytes, error);
    mf_free(&f->c->allocator, bytes, (size_t)n_bytes);
    return status;
}

/* Whether an earlier call has written all of it: what has its name is whole. */
static bool is_there(const file_copy *f, const char *name)
{
    char path[2 * MF_MAX_PATH];
    const mf_output_dir *dir = &f->c->dirs[f->drive];
    mf_aligned_head head;
    mf_aligned_entry *entries = NULL;
    mf_error error;
    if (mf_output_size(dir, name) != f->layer->file_bytes[f->drive] ||
        mf_path_join(path, sizeof path, dir->path, name, &error) != MF_OK ||
        mf_aligned_file_read(&f->c->allocator, path, &head, &entries, &error) != MF_OK)
        return false;
    mf_free(&f->c->allocator, entries, head.n_experts * sizeof *entries);
    return memcmp(head.id, f->c->id, sizeof head.id) == 0 && head.layer == f->layer->layer &&
           head.n_experts == f->n_entries;
}

static mf_status write_file(file_copy *f, bool *was_there, mf_error *error)
{
    char name[64];
    mf_aligned_expert_file(f->layer->layer, 0, name, sizeof name);
    if (f->drive != 0)
        mf_target_file_name(f->layer, name, sizeof name);
    if (is_there(f, name))
        return mf_convert_report(f->c, f->moe_layer, f->layer->file_bytes[f->drive], error);
    *was_there = false;
    list_entries(f);
    MF_TRY(mf_output_begin(&f->c->dirs[f->drive], name, f->layer->file_bytes[f->drive], &f->file,
                           error));
    mf_status status = copy_batches(f, error);
    if (status == MF_OK)
        status = write_head(f, error);
    if (status == MF_OK)
        status = mf_convert_report(f->c, f->moe_layer, mf_aligned_head_bytes(f->n_entries), error);
    if (status == MF_OK)
        return mf_output_commit(&f->file, error);
    mf_output_abandon(&f->file);
    return status;
}

/* Sums become weights around 1; of a layer that proposes tokens there are none. */
static void weigh_columns(const mf_conversion *c, uint32_t moe, float *importance)
{
    const uint32_t n = c->source.h.hidden_size;
    const double *sums = c->options.input_squares + (size_t)moe * n;
    double all = 0;
    for (uint32_t i = 0; i < n && moe < mf_main_moe_layers(&c->source.h); i++)
        all += sums[i];
    for (uint32_t i = 0; i < n; i++)
        importance[i] = all > 0 && all < 1e300 ? (float)(sums[i] / all * n) : 1.0f;
}

static mf_status write_layer(mf_conversion *c, uint32_t moe, file_copy *room, mf_error *error)
{
    bool was_there = true;
    if (room->importance != NULL)
        weigh_columns(c, moe, room->importance);
    for (uint32_t d = 0; d < c->n_dirs; d++) {
        file_copy *f = room;
        f->layer = &c->layers[moe];
        f->moe_layer = moe;
        f->drive = d;
        f->n_entries = f->layer->file_experts[d];
        if (f->n_entries != 0)
            MF_TRY(write_file(f, &was_there, error));
    }
    c->result.n_layers_kept += was_there;
    return MF_OK;
}

/* The most that any layer needs. */
static void measure(const mf_conversion *c, file_copy *f)
{
    for (uint32_t i = 0; i < c->source.h.n_moe_layers; i++) {
        const mf_target_layer *t = &c->layers[i];
        for (uint32_t e = 0; e < c->source.h.n_experts; e++) {
            const mf_run *from = mf_target_source(t, e), *to = &t->forms[t->form_of[e]];
            f->in_room = from->padded_bytes > f->in_room ? from->padded_bytes : f->in_room;
            for (uint32_t j = 0; j < MF_EXPERT_MATRICES; j++)
                if (from->shapes[j].n_cols > f->max_cols)
                    f->max_cols = from->shapes[j].n_cols;
            const bool is_same = memcmp(to->shapes, from->shapes, sizeof to->shapes) == 0;
            if (!is_same || f->out_room != 0)
                f->out_room = to->padded_bytes > f->out_room ? to->padded_bytes : f->out_room;
        }
    }
    /* where some are made and some are copied, all go through both */
    for (uint32_t i = 0; i < c->source.h.n_moe_layers && f->out_room != 0; i++)
        for (uint32_t form = 0; form < c->layers[i].n_forms; form++)
            if (c->layers[i].forms[form].padded_bytes > f->out_room)
                f->out_room = c->layers[i].forms[form].padded_bytes;
}

static mf_status make_room(mf_conversion *c, file_copy *f, mf_error *error)
{
    const mf_allocator *a = &c->allocator;
    const uint32_t n_threads = mf_thread_pool_size(c->pool);
    measure(c, f);
    const uint64_t each = f->in_room + f->out_room;
    f->per_batch = each < BATCH_BYTES ? (uint32_t)(BATCH_BYTES / each) : 1;
    f->per_batch = f->per_batch < c->source.h.n_experts ? f->per_batch : c->source.h.n_experts;
    const size_t n_bytes = (size_t)(N_BATCHES * f->per_batch * each);
    c->result.working_bytes = n_bytes;
    MF_TRY(mf_region_create(a, n_bytes, "experts on their way", &f->memory, error));
    f->entries = mf_alloc_array(a, c->source.h.n_experts, sizeof *f->entries);
    f->threads = mf_alloc_array(a, n_threads, sizeof *f->threads);
    if (c->options.input_squares != NULL)
        f->importance = mf_alloc_array(a, c->source.h.hidden_size, sizeof *f->importance);
    if (f->entries == NULL || f->threads == NULL ||
        (c->options.input_squares != NULL && f->importance == NULL))
        return mf_fail_memory(error, c->source.h.n_experts * sizeof *f->entries,
                              "a list of experts");
    for (uint32_t i = 0; i < n_threads; i++) {
        f->threads[i].row = mf_alloc_array(a, f->max_cols, sizeof(float));
        if (f->threads[i].row == NULL)
            return mf_fail_memory(error, f->max_cols * sizeof(float), "a row of weights");
    }
    return MF_OK;
}

static void free_room(mf_conversion *c, file_copy *f)
{
    const mf_allocator *a = &c->allocator;
    const uint32_t n_threads = mf_thread_pool_size(c->pool);
    for (uint32_t i = 0; f->threads != NULL && i < n_threads; i++) {
        c->loss.error += f->threads[i].loss.error;
        c->loss.signal += f->threads[i].loss.signal;
        mf_free(a, f->threads[i].row, f->max_cols * sizeof(float));
    }
    mf_free(a, f->threads, n_threads * sizeof *f->threads);
    mf_free(a, f->entries, c->source.h.n_experts * sizeof *f->entries);
    mf_free(a, f->importance, c->source.h.hidden_size * sizeof *f->importance);
    mf_region_free(a, &f->memory);
}

mf_status mf_convert_experts(mf_conversion *c, mf_error *error)
{
    file_copy f = {.c = c, .in_room = MF_ALIGNED_BYTES};
    if (c->source.h.n_moe_layers == 0)
        return MF_OK;
    mf_convert_sort_copies(c);
    mf_status status = make_room(c, &f, error);
    for (uint32_t i = 0; i < c->source.h.n_moe_layers && status == MF_OK; i++)
        status = write_layer(c, i, &f, error);
    free_room(c, &f);
    if (c->loss.signal > 0)
        c->result.relative_error = sqrt(c->loss.error / c->loss.signal);
    return status;
}
