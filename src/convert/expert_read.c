/* SPDX-License-Identifier: MIT */
/* Reading one expert of the source. */
#include "base/checked.h"
#include "base/files.h"
#include "base/half.h"
#include "convert/experts.h"
#include "experts/expert_plan.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* The system takes one hint for no more than it reads ahead. */
#define HINT_BYTES ((uint64_t)128 << 10)

static int by_dest(const void *a, const void *b)
{
    const mf_copy *x = a, *y = b;
    return x->dest < y->dest ? -1 : x->dest > y->dest;
}

void mf_convert_sort_copies(mf_conversion *c)
{
    mf_binder *b = &c->source.binder;
    if (b->n_copies != 0)
        qsort(b->copies, b->n_copies, sizeof *b->copies, by_dest);
}

static float float_of(mf_tensor_type type, const unsigned char *from, size_t i)
{
    uint32_t word = 0;
    const size_t width = type == MF_TENSOR_F32 ? 4 : 2;
    memcpy(&word, from + i * width, width); /* little-endian, like the files */
    return type == MF_TENSOR_F32    ? mf_f32_from_bits(word)
           : type == MF_TENSOR_BF16 ? mf_f32_from_bf16((uint16_t)word)
                                    : mf_f32_from_f16((uint16_t)word);
}

static mf_status read_file(const mf_conversion *c, uint32_t file, uint64_t at, void *to,
                           uint64_t n_bytes, mf_error *error)
{
    return mf_read_at(c->source_fds[file], c->source.source->table.files[file].path, to,
                      (size_t)n_bytes, at, "", error);
}

/* An array that the engine would convert and keep: the copy that it planned for this expert. The
 * values as stored are put behind those that they become, which take as many bytes at least. */
static mf_status read_resident(const mf_conversion *c, const mf_weight *w, uint32_t array,
                               uint32_t expert, unsigned char *out, mf_error *error)
{
    const mf_binder *b = &c->source.binder;
    const uint64_t n_bytes = mf_weight_array_bytes(&w->shape, array);
    const mf_copy key = {.dest = w->arrays[array].offset + expert * n_bytes};
    const mf_copy *copy =
        b->n_copies == 0 ? NULL : bsearch(&key, b->copies, b->n_copies, sizeof key, by_dest);
    if (copy == NULL || copy->convert == MF_TENSOR_OTHER || copy->n_bytes > n_bytes)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: scales of expert %u cannot be found",
                       c->source.source->path, expert);
    unsigned char *stored = out + n_bytes - copy->n_bytes;
    MF_TRY(read_file(c, copy->file, copy->source, stored, copy->n_bytes, error));
    for (size_t i = 0; i < n_bytes / sizeof(float); i++) { /* never reads what it has written */
        const float value = float_of(copy->convert, stored, i) + copy->add;
        memcpy(out + i * sizeof value, &value, sizeof value);
    }
    return MF_OK;
}

static uint32_t file_of(const mf_expert_part *part, uint32_t expert)
{
    return part->each_file != NULL ? part->each_file[expert] : part->file;
}

static uint64_t place_of(const mf_expert_part *part, uint32_t expert)
{
    return part->each_offset != NULL ? part->each_offset[expert]
                                     : part->offset + expert * part->stride;
}

static mf_status read_part(const mf_conversion *c, const mf_expert_part *part, uint32_t expert,
                           unsigned char *out, mf_error *error)
{
    return read_file(c, file_of(part, expert), place_of(part, expert), out,
                     mf_expert_part_bytes(part, expert), error);
}

void mf_convert_foresee(int fd, uint64_t at, uint64_t n_bytes)
{
    for (uint64_t done = 0; done < n_bytes; done += HINT_BYTES) {
        const uint64_t left = n_bytes - done;
        (void)posix_fadvise(fd, (off_t)(at + done), (off_t)(left < HINT_BYTES ? left : HINT_BYTES),
                            POSIX_FADV_WILLNEED);
    }
}

void mf_convert_foresee_expert(const mf_conversion *c, uint32_t moe_layer, uint32_t expert)
{
    const mf_expert_map map = mf_expert_tables_map(&c->source.binder.experts, &c->source.h);
    const mf_expert_part *parts =
        c->source.binder.experts.parts + (size_t)moe_layer * MF_MAX_EXPERT_PARTS;
    uint32_t n_parts = MF_MAX_EXPERT_PARTS;
    const bool is_made = mf_expert_is_made(&map, moe_layer);
    if (is_made)
        parts = mf_expert_stored_parts(&map, moe_layer, &n_parts);
    const mf_run *run = mf_target_source(&c->layers[moe_layer], expert);
    for (uint32_t p = 0; p < n_parts; p++) {
        const uint64_t n_bytes = mf_expert_part_bytes(&parts[p], expert);
        /* those that stay in memory have no place of their own */
        if (n_bytes != 0 && (is_made || n_bytes == run->part_bytes[p]))
            mf_convert_foresee(c->source_fds[file_of(&parts[p], expert)],
                               place_of(&parts[p], expert), n_bytes);
    }
}

/* Of experts that are made of what is stored: each part to where the run has it. */
static mf_status make_expert(const mf_conversion *c, const mf_expert_map *map, uint32_t moe_layer,
                             uint32_t expert, unsigned char *out, mf_error *error)
{
    const mf_run *run = mf_target_source(&c->layers[moe_layer], expert);
    const unsigned char *stored[MF_MAX_STORED_PARTS];
    unsigned char *parts[MF_MAX_EXPERT_PARTS];
    uint32_t n_parts;
    uint64_t n_bytes = 0;
    const mf_expert_part *read = mf_expert_stored_parts(map, moe_layer, &n_parts);
    for (uint32_t p = 0; p < n_parts; p++)
        n_bytes += mf_round_up(read[p].n_bytes, MF_EXPERT_PART_ALIGN);
    unsigned char *room = mf_alloc(&c->allocator, n_bytes);
    if (room == NULL)
        return mf_fail_memory(error, n_bytes, "an expert on its way");
    mf_status status = MF_OK;
    uint64_t at = 0;
    for (uint32_t p = 0; p < n_parts && status == MF_OK; p++) {
        stored[p] = room + at;
        if (read[p].n_bytes != 0)
            status = read_part(c, &read[p], expert, room + at, error);
        at += mf_round_up(read[p].n_bytes, MF_EXPERT_PART_ALIGN);
    }
    for (uint32_t p = 0; p < MF_MAX_EXPERT_PARTS; p++)
        parts[p] = out + run->part_at[p];
    memset(out, 0, run->padded_bytes);
    if (status == MF_OK)
        status = map->make(map->make_ctx, moe_layer, stored, parts, error);
    mf_free(&c->allocator, room, n_bytes);
    return status;
}

mf_status mf_convert_read_expert(const mf_conversion *c, uint32_t moe_layer, uint32_t expert,
                                 unsigned char *out, mf_error *error)
{
    const mf_run *run = mf_target_source(&c->layers[moe_layer], expert);
    const mf_expert_shape *shape = &c->source.weights.layers[c->layers[moe_layer].layer].experts;
    const mf_weight *matrices[] = {&shape->gate, &shape->up, &shape->down};
    const mf_expert_part *parts =
        c->source.binder.experts.parts + (size_t)moe_layer * MF_MAX_EXPERT_PARTS;
    const mf_expert_map map = mf_expert_tables_map(&c->source.binder.experts, &c->source.h);
    uint64_t end = 0;
    const bool is_made = mf_expert_is_made(&map, moe_layer);
    if (is_made)
        MF_TRY(make_expert(c, &map, moe_layer, expert, out, error));
    for (uint32_t p = 0; p < MF_MAX_EXPERT_PARTS; p++) {
        const bool is_resident = mf_expert_part_bytes(&parts[p], expert) != run->part_bytes[p];
        if (run->part_bytes[p] == 0 || (is_made && !is_resident))
            continue;
        if (!is_made)
            memset(out + end, 0, run->part_at[p] - end);
        end = run->part_at[p] + run->part_bytes[p];
        if (is_resident)
            MF_TRY(read_resident(c, matrices[p / MF_MAX_WEIGHT_ARRAYS], p % MF_MAX_WEIGHT_ARRAYS,
                                 expert, out + run->part_at[p], error));
        else
            MF_TRY(read_part(c, &parts[p], expert, out + run->part_at[p], error));
    }
    if (!is_made)
        memset(out + end, 0, run->padded_bytes - end);
    return MF_OK;
}
