/* SPDX-License-Identifier: MIT */
/* A trace's bytes become passes: gone through once to check and count, then once more to fill what
 * was counted. */
#include "routing/routing_format.h"

#include "base/checked.h"
#include "base/checksum.h"
#include "base/little_endian.h"

#include <string.h>

typedef struct reader {
    const unsigned char *bytes;
    size_t at, end;  /* of the block's passes */
    size_t begin;    /* of the first block */
    uint32_t n_bits; /* of the byte before `at`, taken */
    uint32_t id_bits;
    const char *name;
    uint64_t *seen;  /* [n_experts]: the last row that had the expert */
    uint64_t n_seen; /* rows */
    bool fills;
} reader;

static mf_status fail(const reader *r, const char *what, mf_error *error)
{
    return mf_fail_at(error, MF_ERR_FORMAT, r->at, "%s: byte %zu: %s", r->name, r->at, what);
}

/* ---------------------------------------------------------------------------------- header -- */

static mf_status check_head(const reader *r, const mf_routing_head *h, mf_error *error)
{
    if (h->n_layers == 0 || h->n_layers > MF_ROUTING_MAX_LAYERS || h->n_experts == 0 ||
        h->n_experts > MF_ROUTING_MAX_EXPERTS || h->k == 0 || h->k > MF_ROUTING_MAX_K ||
        h->k > h->n_experts)
        return fail(r, "a trace of no possible number of layers or experts", error);
    if (h->slot_bytes == 0 || h->slot_bytes > UINT32_MAX || h->expert_bytes == 0 ||
        h->expert_bytes > h->slot_bytes || h->reads_per_expert == 0 || h->reads_per_expert > 64 ||
        h->fixed_bytes > UINT64_MAX / 4)
        return fail(r, "a trace of no possible size of experts", error);
    if (memchr(h->family, '\0', sizeof h->family) == NULL)
        return fail(r, "the family's name has no end", error);
    return MF_OK;
}

static mf_status read_header(reader *r, size_t n_bytes, mf_routing_head *h, mf_error *error)
{
    const unsigned char *b = r->bytes;
    uint64_t version;
    if (n_bytes < MF_ROUTING_HEADER_BYTES || memcmp(b, "MFROUTE\n", 8) != 0)
        return fail(r, "no trace of routing", error);
    version = mf_get_le(b + 8, 4);
    if (version != MF_ROUTING_VERSION && version != MF_ROUTING_VERSION_SIZES)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: a trace of version %u, expected %u or %u",
                       r->name, (unsigned)version, MF_ROUTING_VERSION, MF_ROUTING_VERSION_SIZES);
    if (mf_get_le(b + 12, 4) != MF_ROUTING_HEADER_BYTES ||
        mf_get_le(b + 120, 8) != mf_checksum_of(b, 120, 0))
        return fail(r, "the header's checksum is wrong", error);
    *h = (mf_routing_head){.n_layers = (uint32_t)mf_get_le(b + 16, 4),
                           .n_experts = (uint32_t)mf_get_le(b + 20, 4),
                           .k = (uint32_t)mf_get_le(b + 24, 4),
                           .reads_per_expert = (uint32_t)mf_get_le(b + 28, 4),
                           .expert_bytes = mf_get_le(b + 32, 8),
                           .slot_bytes = mf_get_le(b + 40, 8),
                           .fixed_bytes = mf_get_le(b + 48, 8)};
    memcpy(h->family, b + 56, sizeof h->family);
    if (version == MF_ROUTING_VERSION_SIZES)
        h->sizes.n = (uint32_t)mf_get_le(b + 88, 4);
    if (version == MF_ROUTING_VERSION_SIZES &&
        (h->sizes.n < 2 || h->sizes.n > MF_ROUTING_MAX_SIZES))
        return fail(r, "a trace of no possible number of sizes", error);
    MF_TRY(check_head(r, h, error));
    r->id_bits = mf_routing_id_bits(h->n_experts);
    r->at = r->begin = MF_ROUTING_HEADER_BYTES;
    return MF_OK;
}

static bool are_possible(const mf_routing_sizes *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->slot_bytes[i] > UINT32_MAX || s->expert_bytes[i] == 0 ||
            s->expert_bytes[i] > s->slot_bytes[i])
            return false;
        if (i > 0 && (s->slot_bytes[i] >= s->slot_bytes[i - 1] ||
                      s->expert_bytes[i] > s->expert_bytes[i - 1]))
            return false;
    }
    return true;
}

/* The table behind the header. */
static mf_status read_sizes(reader *r, size_t n_bytes, mf_routing *t, mf_error *error)
{
    mf_routing_sizes *s = &t->head.sizes;
    const unsigned char *b = r->bytes + r->at;
    const size_t n_keys = (size_t)t->head.n_layers * t->head.n_experts;
    const size_t n_summed = 16 * (size_t)s->n + n_keys;
    if (n_bytes - r->at < n_summed + 8)
        return fail(r, "the trace ends within its table of sizes", error);
    if (mf_get_le(b + n_summed, 8) != mf_checksum_of(b, n_summed, 0))
        return fail(r, "the checksum of the table of sizes is wrong", error);
    for (uint32_t i = 0; i < s->n; i++) {
        s->slot_bytes[i] = mf_get_le(b + 16 * (size_t)i, 8);
        s->expert_bytes[i] = mf_get_le(b + 16 * (size_t)i + 8, 8);
    }
    if (!are_possible(s))
        return fail(r, "a table of no possible sizes", error);
    t->size_of = mf_alloc(&t->allocator, n_keys);
    if (t->size_of == NULL)
        return mf_fail_memory(error, n_keys, "a trace of routing");
    memcpy(t->size_of, b + 16 * (size_t)s->n, n_keys);
    s->of = t->size_of;
    for (size_t i = 0; i < n_keys; i++)
        if (t->size_of[i] >= s->n)
            return fail(r, "an expert of a size that is not in the table", error);
    r->at = r->begin = r->at + n_summed + 8;
    return MF_OK;
}

/* ---------------------------------------------------------------------------------- passes -- */

static bool get_number(reader *r, uint64_t *out)
{
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 63 && r->at < r->end; shift += 7) {
        const unsigned char byte = r->bytes[r->at++];
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool get_bits(reader *r, uint32_t n, uint32_t *out)
{
    *out = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (r->n_bits == 8) {
            if (r->at == r->end)
                return false;
            r->at++;
            r->n_bits = 0;
        }
        *out |= (uint32_t)(r->bytes[r->at - 1] >> r->n_bits++ & 1) << i;
    }
    return true;
}

/* An expert that the row did not name yet. */
static bool get_expert(reader *r, const mf_routing *t, uint32_t *out)
{
    if (!get_bits(r, r->id_bits, out) || *out >= t->head.n_experts || r->seen[*out] == r->n_seen)
        return false;
    r->seen[*out] = r->n_seen;
    return true;
}

/* n_rows of k experts from choice `at` on; with their weights or without. */
static bool get_rows(reader *r, mf_routing *t, uint32_t n_rows, size_t at, bool is_choice)
{
    for (uint32_t row = 0; row < n_rows; row++) {
        r->n_seen++;
        for (uint32_t i = 0; i < t->head.k; i++, at++) {
            uint32_t expert, weight = 0;
            if (!get_expert(r, t, &expert) ||
                (is_choice && !get_bits(r, MF_ROUTING_WEIGHT_BITS, &weight)))
                return false;
            if (!r->fills)
                continue;
            (is_choice ? t->ids : t->foretold)[at] = (uint16_t)expert;
            if (is_choice)
                t->weights[at] = (uint8_t)weight;
        }
    }
    return true;
}

static bool get_layers(reader *r, mf_routing *t, uint32_t n_rows)
{
    r->n_bits = 8;
    for (uint32_t layer = 0; layer < t->head.n_layers; layer++) {
        const size_t at = t->n_choices + (size_t)layer * n_rows * t->head.k;
        uint32_t has_foretold;
        if (!get_bits(r, 1, &has_foretold) || !get_rows(r, t, n_rows, at, true) ||
            (has_foretold && !get_rows(r, t, n_rows, at, false)))
            return false;
        t->n_foretold += has_foretold;
        if (r->fills)
            t->has_foretold[t->n_passes * t->head.n_layers + layer] = (uint8_t)has_foretold;
    }
    return true;
}

/* Whose rows they are. */
static bool get_parts(reader *r, mf_routing *t, mf_routing_pass *pass)
{
    uint64_t n_parts, n_rows;
    if (!get_number(r, &n_parts) || n_parts == 0 || n_parts > MF_ROUTING_MAX_ROWS)
        return false;
    pass->n_parts = (uint32_t)n_parts;
    for (uint32_t i = 0; i < n_parts; i++) {
        mf_routing_part part;
        if (!get_number(r, &part.sequence) || !get_number(r, &part.position) ||
            !get_number(r, &n_rows) || n_rows == 0 || n_rows > MF_ROUTING_MAX_ROWS ||
            pass->n_rows + n_rows > MF_ROUTING_MAX_ROWS)
            return false;
        part.n_rows = (uint32_t)n_rows;
        pass->n_rows += part.n_rows;
        if (r->fills)
            t->parts[t->n_parts + i] = part;
    }
    return true;
}

static bool get_pass(reader *r, mf_routing *t)
{
    mf_routing_pass pass = {
        .first_part = t->n_parts, .first_choice = t->n_choices, .first_row = t->n_rows};
    if (!get_parts(r, t, &pass) || !get_number(r, &pass.elapsed_us) ||
        !get_number(r, &pass.waited_us) || pass.waited_us > pass.elapsed_us ||
        !get_layers(r, t, pass.n_rows))
        return false;
    if (r->fills)
        t->passes[t->n_passes] = pass;
    t->n_passes++;
    t->n_parts += pass.n_parts;
    t->n_rows += pass.n_rows;
    t->n_choices += (size_t)t->head.n_layers * pass.n_rows * t->head.k;
    return true;
}

static mf_status read_block(reader *r, size_t n_bytes, uint64_t number, mf_routing *t,
                            mf_error *error)
{
    const unsigned char *b = r->bytes + r->at;
    const size_t left = n_bytes - r->at, begin = r->at;
    if (left < MF_ROUTING_BLOCK_HEAD_BYTES + 8)
        return fail(r, "the trace ends within a block", error);
    const size_t n_payload = (size_t)mf_get_le(b, 4);
    const uint64_t n_passes = mf_get_le(b + 4, 4);
    if (n_payload > MF_ROUTING_MAX_BLOCK_BYTES ||
        n_payload > left - MF_ROUTING_BLOCK_HEAD_BYTES - 8)
        return fail(r, "the trace ends within a block", error);
    const size_t n_summed = MF_ROUTING_BLOCK_HEAD_BYTES + n_payload;
    if (!r->fills && mf_get_le(b + n_summed, 8) != mf_checksum_of(b, n_summed, number))
        return fail(r, "the block's checksum is wrong", error);
    r->at += MF_ROUTING_BLOCK_HEAD_BYTES;
    r->end = begin + n_summed;
    for (uint64_t i = 0; i < n_passes; i++)
        if (!get_pass(r, t))
            return fail(r, "a pass that cannot be", error);
    if (r->at != r->end)
        return fail(r, "bytes behind the block's passes", error);
    r->at += 8;
    return MF_OK;
}

static mf_status read_blocks(reader *r, size_t n_bytes, mf_routing *t, mf_error *error)
{
    r->at = r->begin;
    for (uint64_t number = 1; r->at < n_bytes; number++)
        MF_TRY(read_block(r, n_bytes, number, t, error));
    return MF_OK;
}

/* ----------------------------------------------------------------------------------- whole -- */

/* What was counted gets its memory, and the counters begin again. */
static mf_status make_arrays(mf_routing *t, mf_error *error)
{
    const mf_allocator *a = &t->allocator;
    t->passes = mf_alloc_array(a, t->n_passes + 1, sizeof *t->passes);
    t->parts = mf_alloc_array(a, t->n_parts + 1, sizeof *t->parts);
    t->ids = mf_alloc_array(a, t->n_choices + 1, sizeof *t->ids);
    t->foretold = mf_alloc_array(a, t->n_foretold == 0 ? 1 : t->n_choices, sizeof *t->foretold);
    t->weights = mf_alloc_array(a, t->n_choices + 1, 1);
    t->has_foretold = mf_alloc_array(a, t->n_passes + 1, t->head.n_layers);
    if (t->passes == NULL || t->parts == NULL || t->ids == NULL || t->foretold == NULL ||
        t->weights == NULL || t->has_foretold == NULL)
        return mf_fail_memory(error, t->n_choices * 5, "a trace of routing");
    return MF_OK;
}

static mf_status read_all(reader *r, size_t n_bytes, mf_routing *t, mf_error *error)
{
    const mf_allocator a = t->allocator;
    MF_TRY(read_header(r, n_bytes, &t->head, error));
    if (t->head.sizes.n != 0)
        MF_TRY(read_sizes(r, n_bytes, t, error));
    r->seen = mf_alloc_array(&a, t->head.n_experts, sizeof *r->seen);
    if (r->seen == NULL)
        return mf_fail_memory(error, t->head.n_experts * sizeof *r->seen, "a trace of routing");
    mf_status status = read_blocks(r, n_bytes, t, error);
    if (status == MF_OK && t->n_passes == 0)
        status = fail(r, "a trace of nothing", error);
    if (status == MF_OK)
        status = make_arrays(t, error);
    if (status == MF_OK) {
        struct mf_routing counted = *t;
        t->n_passes = t->n_parts = t->n_choices = 0;
        t->n_rows = t->n_foretold = 0;
        r->fills = true;
        status = read_blocks(r, n_bytes, t, error);
        t->n_passes = counted.n_passes; /* as they were allocated */
        t->n_parts = counted.n_parts;
        t->n_choices = counted.n_choices;
        t->n_foretold = counted.n_foretold;
    }
    mf_free(&a, r->seen, t->head.n_experts * sizeof *r->seen);
    return status;
}

mf_status mf_routing_read(const mf_allocator *allocator, const unsigned char *bytes, size_t n_bytes,
                          const char *name, mf_routing **out, mf_error *error)
{
    const mf_allocator a = mf_allocator_or_default(allocator);
    reader r = {.bytes = bytes, .name = name};
    mf_routing *t = mf_alloc_zeroed(&a, sizeof *t);
    if (t == NULL)
        return mf_fail_memory(error, sizeof *t, "a trace of routing");
    t->allocator = a;
    mf_status status = read_all(&r, n_bytes, t, error);
    if (status != MF_OK)
        mf_routing_release(&t);
    else
        *out = t;
    return status;
}

void mf_routing_release(mf_routing **routing)
{
    mf_routing *t = *routing;
    if (t == NULL)
        return;
    *routing = NULL;
    const mf_allocator a = t->allocator;
    mf_free(&a, t->passes, (t->n_passes + 1) * sizeof *t->passes);
    mf_free(&a, t->parts, (t->n_parts + 1) * sizeof *t->parts);
    mf_free(&a, t->ids, (t->n_choices + 1) * sizeof *t->ids);
    mf_free(&a, t->foretold, (t->n_foretold == 0 ? 1 : t->n_choices) * sizeof *t->foretold);
    mf_free(&a, t->weights, t->n_choices + 1);
    mf_free(&a, t->has_foretold, (t->n_passes + 1) * t->head.n_layers);
    mf_free(&a, t->size_of, t->size_of == NULL ? 0 : (size_t)t->head.n_layers * t->head.n_experts);
    mf_free(&a, t, sizeof *t);
}
