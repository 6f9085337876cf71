/* SPDX-License-Identifier: MIT */
/* Passes become bits, bits become blocks of a file. */
#include "routing/routing_format.h"

#include "base/checked.h"
#include "base/checksum.h"
#include "base/files.h"
#include "base/little_endian.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

struct mf_routing_writer {
    mf_arena arena;
    mf_routing_head head;
    uint32_t id_bits, max_rows, max_parts;
    char *path; /* in the arena */
    int fd;
    uint64_t n_blocks;
    uint64_t n_file_bytes, max_file_bytes;
    bool is_full;
    /* The pass at hand: */
    uint32_t n_rows, n_parts;
    mf_routing_part *parts; /* [max_parts] */
    uint16_t *ids;          /* [n_layers][n_rows][k], as the others */
    uint16_t *foretold;
    uint8_t *weights;
    uint8_t *has_foretold; /* [n_layers] */
    /* The block at hand: */
    unsigned char *block; /* head, passes */
    size_t n_bytes, capacity;
    uint32_t n_passes;
    uint32_t n_bits; /* of the last byte, in use */
};

/* ------------------------------------------------------------------------------------ bits -- */

static void put_byte(mf_routing_writer *w, uint8_t byte)
{
    w->block[w->n_bytes++] = byte;
}

/* Seven bits a byte, the lowest first. */
static void put_number(mf_routing_writer *w, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        put_byte(w, (uint8_t)(value | 128));
    put_byte(w, (uint8_t)value);
}

static void put_bits(mf_routing_writer *w, uint32_t value, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (w->n_bits == 8 || w->n_bits == 0) {
            put_byte(w, 0);
            w->n_bits = 0;
        }
        w->block[w->n_bytes - 1] |= (uint8_t)((value >> i & 1) << w->n_bits++);
    }
}

static void put_layer(mf_routing_writer *w, uint32_t layer)
{
    const size_t n = (size_t)w->n_rows * w->head.k, first = layer * n;
    put_bits(w, w->has_foretold[layer], 1);
    for (size_t i = first; i < first + n; i++) {
        put_bits(w, w->ids[i], w->id_bits);
        put_bits(w, w->weights[i], MF_ROUTING_WEIGHT_BITS);
    }
    for (size_t i = first; i < first + n && w->has_foretold[layer]; i++)
        put_bits(w, w->foretold[i], w->id_bits);
}

/* ------------------------------------------------------------------------------------ file -- */

/* For the reason that errno has. */
static mf_status fail_write(const mf_routing_writer *w, mf_error *error)
{
    return mf_fail_os(error, MF_ERR_IO, errno, "%s: writing a trace of routing", w->path);
}

/* Whole, or the file is as long as before: what a drive that is full has taken of a block would
 * keep readers from those before it. */
static mf_status write_all(mf_routing_writer *w, const void *bytes, size_t n, mf_error *error)
{
    if (mf_write_whole(w->fd, bytes, n) < n) {
        const mf_status status = fail_write(w, error);
        (void)!ftruncate(w->fd, (off_t)w->n_file_bytes); /* a pipe cannot be */
        return status;
    }
    w->n_file_bytes += n;
    return MF_OK;
}

static mf_status write_header(mf_routing_writer *w, mf_error *error)
{
    unsigned char bytes[MF_ROUTING_HEADER_BYTES] = "MFROUTE\n";
    const mf_routing_head *h = &w->head;
    mf_put_le(bytes + 8, h->sizes.n != 0 ? MF_ROUTING_VERSION_SIZES : MF_ROUTING_VERSION, 4);
    mf_put_le(bytes + 12, MF_ROUTING_HEADER_BYTES, 4);
    mf_put_le(bytes + 16, h->n_layers, 4);
    mf_put_le(bytes + 20, h->n_experts, 4);
    mf_put_le(bytes + 24, h->k, 4);
    mf_put_le(bytes + 28, h->reads_per_expert, 4);
    mf_put_le(bytes + 32, h->expert_bytes, 8);
    mf_put_le(bytes + 40, h->slot_bytes, 8);
    mf_put_le(bytes + 48, h->fixed_bytes, 8);
    memcpy(bytes + 56, h->family, MF_ROUTING_FAMILY_BYTES);
    mf_put_le(bytes + 88, h->sizes.n, 4);
    mf_put_le(bytes + 120, mf_checksum_of(bytes, 120, 0), 8);
    return write_all(w, bytes, sizeof bytes, error);
}

/* Behind the header: each size, which one each expert has, a checksum. */
static mf_status write_sizes(mf_routing_writer *w, const mf_allocator *a, mf_error *error)
{
    const mf_routing_head *h = &w->head;
    const size_t n_keys = (size_t)h->n_layers * h->n_experts, n_sizes = h->sizes.n;
    const size_t n_summed = 16 * n_sizes + n_keys;
    unsigned char *bytes = mf_alloc(a, n_summed + 8);
    if (bytes == NULL)
        return mf_fail_memory(error, n_summed + 8, "a trace of routing");
    for (size_t i = 0; i < n_sizes; i++) {
        mf_put_le(bytes + 16 * i, h->sizes.slot_bytes[i], 8);
        mf_put_le(bytes + 16 * i + 8, h->sizes.expert_bytes[i], 8);
    }
    memcpy(bytes + 16 * n_sizes, h->sizes.of, n_keys);
    mf_put_le(bytes + n_summed, mf_checksum_of(bytes, n_summed, 0), 8);
    mf_status status = write_all(w, bytes, n_summed + 8, error);
    mf_free(a, bytes, n_summed + 8);
    return status;
}

static void begin_block(mf_routing_writer *w)
{
    w->n_bytes = MF_ROUTING_BLOCK_HEAD_BYTES;
    w->n_passes = 0;
}

static mf_status write_block(mf_routing_writer *w, mf_error *error)
{
    if (w->n_passes == 0)
        return MF_OK;
    mf_put_le(w->block, w->n_bytes - MF_ROUTING_BLOCK_HEAD_BYTES, 4);
    mf_put_le(w->block + 4, w->n_passes, 4);
    mf_put_le(w->block + w->n_bytes, mf_checksum_of(w->block, w->n_bytes, ++w->n_blocks), 8);
    const size_t n = w->n_bytes + 8;
    begin_block(w);
    return write_all(w, w->block, n, error);
}

/* ------------------------------------------------------------------------- opening, closing -- */

/* Of a pass at most, as bytes of the block. */
static bool pass_bytes(const mf_routing_writer *w, size_t n_choices, size_t *out)
{
    size_t bits, parts;
    return mf_mul_size(n_choices, 2 * (size_t)w->id_bits + MF_ROUTING_WEIGHT_BITS, &bits) &&
           mf_mul_size(w->max_parts, 25, &parts) &&
           mf_add_size(bits / 8 + w->head.n_layers + 64, parts, out);
}

static mf_status make_room(mf_routing_writer *w, const mf_allocator *a, const char *path,
                           mf_error *error)
{
    const size_t path_bytes = strlen(path) + 1;
    size_t n, n_pass, n_parts = w->max_parts * sizeof(mf_routing_part), total;
    if (!mf_mul_size((size_t)w->head.n_layers * w->head.k, w->max_rows, &n) ||
        !pass_bytes(w, n, &n_pass) || n_pass > MF_ROUTING_MAX_BLOCK_BYTES / 2 ||
        !mf_mul_size(n, 5, &total))
        return mf_fail(error, MF_ERR_ARGUMENT, "a trace of passes of %u rows is too large",
                       w->max_rows);
    w->capacity = MF_ROUTING_BLOCK_BYTES + n_pass + MF_ROUTING_BLOCK_HEAD_BYTES + 8;
    total += n_parts + w->head.n_layers + w->capacity + path_bytes + 8 * 64;
    MF_TRY(mf_arena_create(a, total, "a trace of routing", &w->arena, error));
    w->parts = mf_arena_take(&w->arena, n_parts);
    w->ids = mf_arena_take(&w->arena, n * 2);
    w->foretold = mf_arena_take(&w->arena, n * 2);
    w->weights = mf_arena_take(&w->arena, n);
    w->has_foretold = mf_arena_take(&w->arena, w->head.n_layers);
    w->block = mf_arena_take(&w->arena, w->capacity);
    w->path = mf_arena_take(&w->arena, path_bytes);
    if (w->block == NULL || w->path == NULL)
        return mf_fail_memory(error, total, "a trace of routing");
    memcpy(w->path, path, path_bytes);
    return MF_OK;
}

static mf_status open_file(mf_routing_writer *w, const mf_allocator *a, const char *path,
                           mf_error *error)
{
    w->fd = mf_open_apart(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (w->fd < 0)
        return mf_fail_os(error, MF_ERR_IO, errno, "%s", path);
    MF_TRY(write_header(w, error));
    if (w->head.sizes.n != 0)
        MF_TRY(write_sizes(w, a, error));
    w->head.sizes.of = NULL;
    return MF_OK;
}

static void release(const mf_allocator *a, mf_routing_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    mf_arena_free(&w->arena);
    mf_free(a, w, sizeof *w);
}

mf_status mf_routing_writer_open(const mf_allocator *allocator, const char *path,
                                 const mf_routing_head *head, uint32_t max_rows, uint32_t max_parts,
                                 mf_routing_writer **out, mf_error *error)
{
    const mf_allocator a = mf_allocator_or_default(allocator);
    mf_routing_writer *w = mf_alloc_zeroed(&a, sizeof *w);
    if (w == NULL)
        return mf_fail_memory(error, sizeof *w, "a trace of routing");
    w->fd = -1;
    w->head = *head;
    w->id_bits = mf_routing_id_bits(head->n_experts);
    w->max_rows = max_rows;
    w->max_parts = max_parts;
    w->max_file_bytes = MF_ROUTING_MAX_FILE_BYTES;
    mf_status status = make_room(w, &a, path, error);
    if (status == MF_OK)
        status = open_file(w, &a, path, error);
    if (status != MF_OK) {
        release(&a, w);
        return status;
    }
    begin_block(w);
    *out = w;
    return MF_OK;
}

void mf_routing_writer_limit(mf_routing_writer *w, uint64_t max_file_bytes)
{
    w->max_file_bytes = max_file_bytes;
}

bool mf_routing_writer_is_full(const mf_routing_writer *w)
{
    return w->is_full;
}

mf_status mf_routing_writer_close(mf_routing_writer **writer, mf_error *error)
{
    mf_routing_writer *w = *writer;
    if (w == NULL)
        return MF_OK;
    *writer = NULL;
    mf_status status = write_block(w, error);
    if (close(w->fd) != 0 && status == MF_OK)
        status = fail_write(w, error);
    w->fd = -1;
    const mf_allocator a = w->arena.allocator;
    release(&a, w);
    return status;
}

/* ---------------------------------------------------------------------------------- passes -- */

void mf_routing_writer_begin(mf_routing_writer *w, const mf_routing_part *parts, uint32_t n_parts,
                             uint32_t n_rows)
{
    const size_t n = (size_t)w->head.n_layers * n_rows * w->head.k;
    w->n_rows = n_rows;
    w->n_parts = n_parts;
    memcpy(w->parts, parts, n_parts * sizeof *parts);
    memset(w->ids, 0, n * sizeof *w->ids);
    memset(w->weights, 0, n);
    memset(w->has_foretold, 0, w->head.n_layers);
}

/* Shares of the largest; what is no number counts as none. */
static void take_weights(uint8_t *out, const float *weights, uint32_t k)
{
    float most = 0;
    for (uint32_t i = 0; i < k; i++)
        most = weights[i] > most ? weights[i] : most;
    for (uint32_t i = 0; i < k; i++) {
        const float share = most > 0 && weights[i] > 0 ? weights[i] / most : 0;
        out[i] = share >= 1 ? MF_ROUTING_WEIGHT_MAX
                            : (uint8_t)lroundf(share * (float)MF_ROUTING_WEIGHT_MAX);
    }
}

void mf_routing_writer_layer(mf_routing_writer *w, uint32_t layer, const int32_t *ids,
                             const float *weights)
{
    const uint32_t k = w->head.k;
    const size_t first = (size_t)layer * w->n_rows * k;
    for (uint32_t row = 0; row < w->n_rows; row++) {
        for (uint32_t i = 0; i < k; i++)
            w->ids[first + row * k + i] = (uint16_t)ids[row * k + i];
        take_weights(w->weights + first + row * k, weights + (size_t)row * k, k);
    }
}

void mf_routing_writer_foretold(mf_routing_writer *w, uint32_t layer, const int32_t *ids,
                                uint32_t n)
{
    const uint32_t k = w->head.k;
    uint16_t *out = w->foretold + (size_t)layer * w->n_rows * k;
    if (n < k)
        return;
    for (uint32_t row = 0; row < w->n_rows; row++)
        for (uint32_t i = 0; i < k; i++)
            out[row * k + i] = (uint16_t)ids[(size_t)row * n + i];
    w->has_foretold[layer] = 1;
}

static void put_pass(mf_routing_writer *w, uint64_t elapsed_us, uint64_t waited_us)
{
    put_number(w, w->n_parts);
    for (uint32_t i = 0; i < w->n_parts; i++) {
        put_number(w, w->parts[i].sequence);
        put_number(w, w->parts[i].position);
        put_number(w, w->parts[i].n_rows);
    }
    put_number(w, elapsed_us);
    put_number(w, waited_us < elapsed_us ? waited_us : elapsed_us);
    w->n_bits = 0;
    for (uint32_t layer = 0; layer < w->head.n_layers; layer++)
        put_layer(w, layer);
}

mf_status mf_routing_writer_commit(mf_routing_writer *w, uint64_t elapsed_us, uint64_t waited_us,
                                   mf_error *error)
{
    const size_t n_before = w->n_bytes;
    if (w->is_full)
        return MF_OK;
    put_pass(w, elapsed_us, waited_us);
    if (w->n_file_bytes + w->n_bytes + 8 > w->max_file_bytes) { /* none would read it again */
        w->is_full = true;
        w->n_bytes = n_before;
        return MF_OK;
    }
    w->n_passes++;
    return w->n_bytes >= MF_ROUTING_BLOCK_BYTES ? write_block(w, error) : MF_OK;
}
