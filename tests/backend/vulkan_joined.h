/* SPDX-License-Identifier: MIT */
/* What tests of operations that are several in one dispatch share: operands in one buffer, of which
 * there is an image, and a device that runs so many workgroups side by side. */
#ifndef MF_TESTS_VULKAN_JOINED_H
#define MF_TESTS_VULKAN_JOINED_H

#include "backend/vulkan/vk_internal.h"
#include "test.h"
#include "vulkan_open.h"

#define JOINED_BYTES ((uint64_t)80 << 20)
#define JOINED_SLOT ((uint64_t)1 << 16) /* of activations */

typedef struct joined_play {
    mf_backend *be;
    mf_buffer buffer;
    unsigned char *image;
    uint64_t at, random; /* at: where the next weight goes */
} joined_play;

/* n_resident: 0: as the device is. */
static inline joined_play joined_open(uint32_t n_resident)
{
    const mf_vk_hooks hooks = {.n_resident = n_resident};
    const mf_backend_options options = {.device = vulkan_test_device(),
                                        .precision = MF_PRECISION_F32};
    mf_error error = {0};
    joined_play p = {.random = 7, .image = malloc(JOINED_BYTES + (1 << 20))};
    REQUIRE(p.image != NULL);
    REQUIRE_OK(mf_vk_backend_create(&options, &hooks, &p.be, &error), &error);
    REQUIRE_OK(p.be->ops->buffer_create(p.be, JOINED_BYTES + (1 << 20), MF_USE_DEVICE, "operands",
                                        &p.buffer, &error),
               &error);
    return p;
}

static inline void joined_close(joined_play *p)
{
    p->be->ops->destroy(p->be);
    free(p->image);
}

/* Whether the device runs workgroups side by side, as it was asked to where it can. */
static inline bool joined_has(const joined_play *p, uint32_t n_resident)
{
    const mf_vk_device *d = &((const mf_vk_backend *)p->be)->device;
    if (d->n_resident == 0) {
        CHECK(n_resident == 0 || !d->has_int64_atomics);
        return false;
    }
    CHECK(n_resident == 0 || d->n_resident == n_resident);
    return true;
}

static inline mf_span joined_slot(const joined_play *p, uint32_t i)
{
    return (mf_span){p->buffer, i * JOINED_SLOT};
}

static inline mf_weight_shape joined_affine(uint32_t bits)
{
    return (mf_weight_shape){
        .kind = MF_WEIGHT_AFFINE, .float_type = MF_BF16, .bits = bits, .group = 64};
}

static inline mf_weight joined_place(joined_play *p, mf_weight_shape form, uint32_t n_rows,
                                     uint32_t n_cols)
{
    mf_weight w = {.shape = form};
    w.shape.n_rows = n_rows;
    w.shape.n_cols = n_cols;
    for (uint32_t i = 0; i < mf_weight_format_of(&form)->n_arrays; i++) {
        w.arrays[i] = (mf_span){p->buffer, p->at};
        p->at += (mf_weight_array_bytes(&w.shape, i) + 63) / 64 * 64;
    }
    REQUIRE(p->at <= JOINED_BYTES);
    return w;
}

static inline mf_weight joined_weight(joined_play *p, uint32_t bits, uint32_t n_rows,
                                      uint32_t n_cols)
{
    return joined_place(p, joined_affine(bits), n_rows, n_cols);
}

/* Numbers of ordinary size in every form; the first slot's floats are up to 2, the second's, a
 * norm's, small. */
static inline void joined_fill(joined_play *p)
{
    for (uint64_t i = 0; i < JOINED_BYTES; i++) {
        const unsigned char r = (unsigned char)(test_random(&p->random) >> 40);
        p->image[i] = i % 2 == 0 ? r & 0xfe : (r & 0x83) | 0x3c;
    }
    for (uint64_t i = 0; i < 2 * JOINED_SLOT / sizeof(float); i++)
        ((float *)(void *)p->image)[i] =
            (float)(test_random(&p->random) % 2001) / (i < JOINED_SLOT / 4 ? 1e3f : 1e5f) - 1e-2f;
}

/* Up to p->at. */
static inline void joined_send(joined_play *p)
{
    for (uint64_t i = 0; i < p->at; i += 1 << 20)
        p->be->ops->write(p->be, (mf_span){p->buffer, i}, p->image + i, 1 << 20);
}

static inline void joined_reserve(joined_play *p, mf_op *const *ops, uint32_t n)
{
    mf_error error = {0};
    for (uint32_t i = 0; i < n; i++)
        REQUIRE_OK(mf_backend_reserve(p->be, ops[i], &error), &error);
}

static inline uint64_t joined_dispatches(const joined_play *p)
{
    return ((const mf_vk_backend *)p->be)->stream.n_dispatches;
}

/* Dispatches of all of them. */
static inline uint64_t joined_record(const joined_play *p, mf_op *const *ops, uint32_t n)
{
    const uint64_t before = joined_dispatches(p);
    for (uint32_t i = 0; i < n; i++)
        p->be->ops->record(p->be, ops[i]);
    return joined_dispatches(p) - before;
}

/* As if a workgroup had waited in vain. Nothing runs after it. */
static inline void joined_check_fault(joined_play *p, const mf_op *op)
{
    mf_vk_backend *be = (mf_vk_backend *)p->be;
    mf_error error = {0};
    REQUIRE_OK(mf_backend_reserve(p->be, op, &error), &error);
    *(uint32_t *)(void *)be->buffers[be->grid.fault.id - 1].host = 1;
    p->be->ops->record(p->be, op);
    CHECK(mf_backend_finish(p->be, &error) == MF_ERR_IO);
    CHECK_MSG(strstr(error.message, "side by side") != NULL, "%s", error.message);
}

#endif
