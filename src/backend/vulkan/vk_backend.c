/* SPDX-License-Identifier: MIT */
/* The interface of backend.h over the Vulkan backend's parts, each call under its lock. */
#include "backend/vulkan/vk_product.h"

#include "base/mutex.h"

#include <assert.h>
#include <string.h>

static mf_vk_backend *enter(const mf_backend *base)
{
    mf_vk_backend *be = (mf_vk_backend *)base; /* to be locked, also where nothing else changes */
    (void)pthread_mutex_lock(&be->lock);
    return be;
}

static void leave(mf_vk_backend *be)
{
    (void)pthread_mutex_unlock(&be->lock);
}

/* ---------------------------------------------------------------------------------- memory -- */

static mf_status buffer_create(mf_backend *base, uint64_t n_bytes, mf_buffer_use use,
                               const char *what, mf_buffer *out, mf_error *error)
{
    static const mf_vk_place places[] = {[MF_USE_DEVICE] = MF_VK_ON_DEVICE,
                                         [MF_USE_HOST] = MF_VK_ON_HOST,
                                         [MF_USE_STAGING] = MF_VK_ON_HOST,
                                         [MF_USE_SHARED] = MF_VK_SHARED};
    mf_vk_backend *be = enter(base);
    const mf_vk_request request = {
        .n_bytes = n_bytes, .place = places[use], .use = use, .what = what};
    mf_status status = mf_vk_buffer_create(be, &request, out, error);
    if (status == MF_ERR_NO_MEMORY && be->n_freed != 0) { /* what was freed may be room */
        mf_vk_submit(be);
        mf_vk_wait_in_lock(be, be->stream.submitted);
        status = mf_vk_buffer_create(be, &request, out, error);
    }
    leave(be);
    return status;
}

static void buffer_free(mf_backend *base, mf_buffer buffer)
{
    if (buffer.id == 0)
        return;
    mf_vk_backend *be = enter(base);
    mf_vk_memory *m = &be->buffers[buffer.id - 1];
    mf_vk_early_drop(be);
    m->is_freed = true;
    m->last_use = mf_vk_present(be);
    be->n_freed++;
    if (m->last_use <= be->stream.retired || be->stream.lost != MF_OK)
        mf_vk_buffer_drop(be, buffer);
    leave(be);
}

static bool buffer_discard(mf_backend *base, mf_span span, uint64_t n_bytes)
{
    (void)base;
    (void)span;
    (void)n_bytes;
    return false; /* the device's memory stays as it is */
}

static unsigned char *buffer_host(mf_backend *base, mf_buffer buffer)
{
    mf_vk_backend *be = enter(base);
    const mf_vk_memory *m = &be->buffers[buffer.id - 1];
    unsigned char *host = m->use == MF_USE_DEVICE ? NULL : m->host;
    leave(be);
    return host;
}

static void reach(mf_backend *base, void *memory, uint64_t n_bytes, uint64_t unit_bytes)
{
    mf_vk_backend *be = enter(base);
    mf_vk_reach(be, memory, n_bytes, unit_bytes);
    leave(be);
}

static uint32_t memories(const mf_backend *base, mf_backend_memory *out)
{
    mf_vk_backend *be = enter(base);
    uint32_t n = mf_vk_memories(be, out);
    leave(be);
    return n;
}

/* ------------------------------------------------------------------------------ the stream -- */

static void write_span(mf_backend *base, mf_span dest, const void *src, uint64_t n_bytes)
{
    mf_vk_backend *be = enter(base);
    mf_vk_write(be, dest, src, n_bytes);
    leave(be);
}

static mf_ticket upload(mf_backend *base, mf_span dest, const void *src, uint64_t n_bytes)
{
    mf_vk_backend *be = enter(base);
    mf_vk_upload(be, dest, src, n_bytes);
    mf_ticket ticket = mf_vk_present(be);
    leave(be);
    return ticket;
}

static mf_ticket upload_ahead(mf_backend *base, const mf_upload *uploads, uint32_t n)
{
    mf_vk_backend *be = enter(base);
    mf_vk_early_drop(be);
    mf_ticket ticket = mf_vk_upload_ahead(be, uploads, n);
    leave(be);
    return ticket;
}

static void read_span(mf_backend *base, mf_span src, void *dest, uint64_t n_bytes)
{
    mf_vk_backend *be = enter(base);
    mf_vk_read_back(be, src, dest, n_bytes);
    leave(be);
}

static void copy_span(mf_backend *base, mf_span dest, mf_span src, uint64_t n_bytes)
{
    mf_vk_backend *be = enter(base);
    mf_vk_copy(be, dest, src, n_bytes);
    leave(be);
}

static mf_ticket mark(mf_backend *base)
{
    mf_vk_backend *be = enter(base);
    mf_ticket ticket = mf_vk_present(be);
    leave(be);
    return ticket;
}

static bool done(mf_backend *base, mf_ticket ticket)
{
    mf_vk_backend *be = enter(base);
    bool result;
    if ((ticket & MF_VK_AHEAD_BIT) != 0) {
        result = mf_vk_ahead_done(be, ticket);
    } else {
        if (ticket > be->stream.retired && ticket <= be->stream.submitted)
            mf_vk_retire(be);
        result = ticket <= be->stream.retired || be->stream.lost != MF_OK;
    }
    leave(be);
    return result;
}

static mf_status wait_for(mf_backend *base, mf_ticket ticket, mf_error *error)
{
    mf_vk_backend *be = enter(base);
    mf_vk_stream *st = &be->stream;
    const bool is_ahead = (ticket & MF_VK_AHEAD_BIT) != 0;
    mf_status status;
    if (!is_ahead && ticket > st->submitted)
        mf_vk_submit(be);
    if (is_ahead ? !mf_vk_ahead_done(be, ticket) : ticket > st->retired && st->lost == MF_OK) {
        mf_vk_make_ready(be);
        leave(be); /* others go on recording */
        VkResult result = mf_vk_wait(be, ticket);
        be = enter(base);
        if (result != VK_SUCCESS)
            mf_vk_lost(be, result, "waiting for the device");
        else
            mf_vk_retire(be);
    }
    status = st->lost != MF_OK ? mf_fail(error, st->lost, "%s", st->why) : MF_OK;
    leave(be);
    return status;
}

static mf_status visit(mf_backend *base, mf_span src, uint64_t n_bytes, mf_visit_fn fn, void *ctx,
                       mf_error *error)
{
    mf_vk_backend *be = (mf_vk_backend *)base;
    const size_t most = n_bytes < MF_VISIT_BYTES ? (size_t)n_bytes : MF_VISIT_BYTES;
    unsigned char *piece = most != 0 ? mf_alloc(&be->allocator, most) : NULL;
    mf_status status = MF_OK;
    if (piece == NULL && most != 0)
        return mf_fail_memory(error, most, "bytes from the device");
    for (uint64_t at = 0, n; at < n_bytes && status == MF_OK; at += n) {
        n = n_bytes - at < most ? n_bytes - at : most;
        read_span(base, mf_span_at(src, at), piece, n);
        status = wait_for(base, mark(base), error);
        if (status == MF_OK)
            status = fn(ctx, piece, (size_t)n, error);
    }
    mf_free(&be->allocator, piece, most);
    return status;
}

static mf_status produce(mf_backend *base, mf_span dest, uint64_t n_bytes, mf_produce_fn fn,
                         void *ctx, mf_error *error)
{
    mf_vk_backend *be = (mf_vk_backend *)base;
    const size_t most = n_bytes < MF_VISIT_BYTES ? (size_t)n_bytes : MF_VISIT_BYTES;
    unsigned char *piece = most != 0 ? mf_alloc(&be->allocator, most) : NULL;
    mf_status status = MF_OK;
    if (piece == NULL && most != 0)
        return mf_fail_memory(error, most, "bytes for the device");
    for (uint64_t at = 0, n; at < n_bytes && status == MF_OK; at += n) {
        n = n_bytes - at < most ? n_bytes - at : most;
        status = fn(ctx, piece, (size_t)n, error);
        if (status == MF_OK)
            write_span(base, mf_span_at(dest, at), piece, n);
    }
    mf_free(&be->allocator, piece, most);
    return status;
}

/* ------------------------------------------------------------------------------- operations -- */

static void begin_batch(mf_backend *base, const mf_sequence *sequences, uint32_t n)
{
    mf_vk_backend *be = enter(base);
    mf_vk_batch_begin(be, sequences, n);
    leave(be);
}

static mf_status reserve_batch(mf_backend *base, uint32_t n_sequences, size_t n_pages,
                               mf_error *error)
{
    mf_vk_backend *be = enter(base);
    mf_status status = mf_vk_batch_reserve(be, n_sequences, n_pages, error);
    leave(be);
    return status;
}

static bool supports_op(const mf_backend *base, const mf_op *op)
{
    return mf_vk_op_supports((const mf_vk_backend *)base, op);
}

static mf_status reserve(mf_backend *base, const mf_op *op, mf_error *error)
{
    mf_vk_backend *be = enter(base);
    mf_status status = mf_vk_op_reserve(be, op, error);
    leave(be);
    return status;
}

static void gather(mf_backend *base)
{
    mf_vk_backend *be = enter(base);
    mf_vk_gather(be);
    leave(be);
}

static mf_status gathered(mf_backend *base, mf_error *error)
{
    mf_vk_backend *be = enter(base);
    mf_status status = mf_vk_gathered(be, error);
    leave(be);
    return status;
}

static void record(mf_backend *base, const mf_op *op)
{
    mf_vk_backend *be = enter(base);
    assert(mf_vk_op_supports(be, op));
    mf_vk_op_record(be, op);
    leave(be);
}

static bool begin_early(mf_backend *base)
{
    mf_vk_backend *be = enter(base);
    const bool has_begun = mf_vk_early_begin(be);
    if (!has_begun)
        leave(be);
    return has_begun; /* with the lock */
}

static bool end_early(mf_backend *base)
{
    mf_vk_backend *be = (mf_vk_backend *)base;
    const bool is_kept = mf_vk_early_end(be);
    leave(be);
    return is_kept;
}

static bool take_early(mf_backend *base, const int32_t *tokens, uint32_t n)
{
    mf_vk_backend *be = enter(base);
    const bool is_taken = mf_vk_early_take(be, tokens, n);
    leave(be);
    return is_taken;
}

static void hold(mf_backend *base)
{
    mf_vk_backend *be = enter(base);
    if (be->is_held)
        leave(be);
    else
        be->is_held = true;
}

static void go(mf_backend *base)
{
    mf_vk_backend *be = enter(base);
    mf_vk_submit(be);
    if (be->is_held) {
        be->is_held = false;
        leave(be);
    }
    leave(be);
}

/* Without the lock: whoever has it may wait for what the caller has to do. */
static bool is_lost(const mf_backend *base)
{
    const mf_vk_backend *be = (const mf_vk_backend *)base;
    uint64_t value;
    return be->stream.lost != MF_OK ||
           be->device.api.GetSemaphoreCounterValue(be->device.handle, be->stream.timeline,
                                                   &value) != VK_SUCCESS;
}

static uint64_t weight_bytes(const mf_backend *base)
{
    mf_vk_backend *be = enter(base);
    uint64_t n_bytes = be->weight_bytes;
    leave(be);
    return n_bytes;
}

static mf_status measure(mf_backend *base, const mf_span *spans, const uint64_t *span_bytes,
                         uint32_t n_spans, uint32_t n_milliseconds, double *bytes_per_second,
                         double *fma_per_second, mf_error *error)
{
    mf_vk_backend *be = enter(base);
    const mf_vk_measurement m = {spans, span_bytes, n_spans, n_milliseconds};
    mf_status status = mf_vk_measure(be, &m, bytes_per_second, fma_per_second, error);
    leave(be);
    return status;
}

static mf_status time_ops(mf_backend *base, bool is_on, mf_error *error)
{
    mf_vk_backend *be = enter(base);
    mf_status status = mf_vk_timing_set(be, is_on, error);
    leave(be);
    return status;
}

static void op_times(mf_backend *base, mf_op_time *out)
{
    mf_vk_backend *be = enter(base);
    mf_vk_timing_read(be, out);
    leave(be);
}

/* -------------------------------------------------------------------------- open and close -- */

static const char *device_name(const mf_backend *base)
{
    return ((const mf_vk_backend *)base)->device.info.name;
}

static uint64_t mix(uint64_t hash, uint32_t word)
{
    return (hash ^ word) * UINT64_C(1099511628211);
}

/* Whatever may change a bit is another number: the device, its driver, our shaders and which of
 * them are used. Beyond 2^31, so that no tier of the CPU has it. */
static uint32_t rounding(const mf_backend *base)
{
    const mf_vk_backend *be = (const mf_vk_backend *)base;
    const VkPhysicalDeviceProperties *p = &be->device.properties;
    uint64_t hash = UINT64_C(14695981039346656037);
    hash = mix(mix(mix(hash, p->vendorID), p->deviceID), p->driverVersion);
    for (size_t i = 0; i < VK_UUID_SIZE; i++)
        hash = mix(hash, p->pipelineCacheUUID[i]);
    hash = mix(mix(hash, be->is_mixed), be->device.info.subgroup_size);
    for (size_t i = 0; i < MF_VK_N_SHADERS; i++)
        for (size_t j = 0; j < mf_vk_codes[i].n_bytes / sizeof(uint32_t); j++)
            hash = mix(hash, mf_vk_codes[i].words[j]);
    return (uint32_t)(hash >> 32) | UINT32_C(1) << 31;
}

static void backend_free(mf_vk_backend *be)
{
    const mf_allocator a = be->allocator;
    if (be->device.handle != VK_NULL_HANDLE) {
        (void)be->device.api.QueueWaitIdle(be->device.queue);
        if (be->ahead.queue != VK_NULL_HANDLE)
            (void)be->device.api.QueueWaitIdle(be->ahead.queue);
        mf_vk_timing_close(be);
        mf_vk_pipelines_close(be);
        mf_vk_batch_close(be);
        mf_vk_memory_close(be);
        mf_vk_ahead_close(be);
        mf_vk_stream_close(be);
    }
    mf_vk_device_close(&be->device);
    (void)pthread_mutex_destroy(&be->lock);
    mf_free(&a, be, sizeof *be);
}

static bool is_mixed(const mf_backend *base)
{
    return ((const mf_vk_backend *)base)->is_mixed;
}

static void destroy(mf_backend *base)
{
    backend_free((mf_vk_backend *)base);
}

static const mf_backend_ops vulkan_ops = {
    .name = "vulkan",
    .runs_later = true,
    .device_name = device_name,
    .rounding = rounding,
    .is_mixed = is_mixed,
    .memories = memories,
    .buffer_create = buffer_create,
    .buffer_free = buffer_free,
    .buffer_discard = buffer_discard,
    .buffer_host = buffer_host,
    .write = write_span,
    .reach = reach,
    .upload = upload,
    .upload_ahead = upload_ahead,
    .read = read_span,
    .visit = visit,
    .produce = produce,
    .copy = copy_span,
    .begin_batch = begin_batch,
    .reserve_batch = reserve_batch,
    .supports_op = supports_op,
    .reserve = reserve,
    .gather = gather,
    .gathered = gathered,
    .record = record,
    .begin_early = begin_early,
    .end_early = end_early,
    .take_early = take_early,
    .hold = hold,
    .go = go,
    .is_lost = is_lost,
    .mark = mark,
    .done = done,
    .wait_for = wait_for,
    .weight_bytes = weight_bytes,
    .measure = measure,
    .time_ops = time_ops,
    .op_times = op_times,
    .destroy = destroy,
};

/* Without matrix units the same arithmetic is slower than float32: only for whoever asks for it. */
static bool wants_mixed(const mf_vulkan_device *d, mf_precision precision)
{
    return precision != MF_PRECISION_F32 &&
           (d->has_units || (precision == MF_PRECISION_MIXED && d->has_f16 &&
                             d->shared_bytes >= MF_VK_PLAIN_SHARED_BYTES));
}

static mf_status open_parts(mf_vk_backend *be, const mf_backend_options *options,
                            const mf_vk_hooks *hooks, mf_error *error)
{
    const char *name = options->device != NULL ? options->device : "vulkan";
    MF_TRY(mf_vk_device_open(&be->device, name, hooks, error));
    be->is_mixed = wants_mixed(&be->device.info, options->precision);
    mf_vk_cache_name(be, options->cache_dir);
    MF_TRY(mf_vk_stream_open(be, error));
    MF_TRY(mf_vk_ahead_open(be, error));
    MF_TRY(mf_vk_rings_open(be, error));
    MF_TRY(mf_vk_pipelines_open(be, error));
    /* From here on: who promises less than what has been taken asks what there is, and is told of
     * all that is needed. */
    be->promised_bytes = options->device_bytes;
    if (be->promised_bytes == 0 && !be->device.info.is_unified)
        be->promised_bytes = mf_vulkan_default_bytes(mf_vulkan_known_bytes(&be->device.info));
    return MF_OK;
}

mf_status mf_vk_backend_create(const mf_backend_options *options, const mf_vk_hooks *hooks,
                               mf_backend **out, mf_error *error)
{
    const mf_allocator a = mf_allocator_or_default(&options->allocator);
    mf_vk_backend *be = mf_alloc_zeroed(&a, sizeof *be);
    if (be == NULL)
        return mf_fail_memory(error, sizeof *be, "the Vulkan backend");
    be->base.ops = &vulkan_ops;
    be->allocator = a;
    be->tuning = mf_vk_tuning_default;
    be->n_threads = options->n_threads;
    if (mf_mutex_init_recursive(&be->lock) != 0) {
        mf_free(&a, be, sizeof *be);
        return mf_fail(error, MF_ERR_NO_MEMORY, "no memory for a lock");
    }
    mf_status status = open_parts(be, options, hooks, error);
    if (status != MF_OK) {
        backend_free(be);
        return status;
    }
    *out = &be->base;
    return MF_OK;
}

mf_status mf_vulkan_backend_create(const mf_backend_options *options, mf_backend **out,
                                   mf_error *error)
{
    return mf_vk_backend_create(options, NULL, out, error);
}

uint64_t mf_vulkan_driver_bytes(uint32_t n_threads)
{
    const uint64_t n_makers = n_threads < MF_VK_MAKERS ? n_threads : MF_VK_MAKERS;
    return ((uint64_t)256 << 20) +          /* its libraries, and what it compiled */
           n_makers * ((uint64_t)12 << 20); /* and compiles: 8 MB a thread on lavapipe */
}

uint64_t mf_vulkan_device_bytes(const mf_backend_sizes *s)
{
    const uint64_t mib = (uint64_t)1 << 20, rows = s->n_rows * s->n_cols;
    /* Four times what an operation needs at most (vk_rings.c): rows and blocks of attention; rows
     * in float16 (vk_halves.c), those of a piece and those of a chunk. */
    const uint64_t scratch =
        s->may_be_mixed ? 4 * (72 * mib + 5 * rows) : 4 * (12 * mib + 2 * rows);
    const uint64_t parameters = 4 * (mib + 256 * s->n_rows);
    const uint64_t lists = MF_VK_BATCHES * (s->n_pages * 8 + s->n_sequences * 64 + 4096);
    return scratch + parameters + lists + 40 * mib; /* blocks that are not full */
}

uint64_t mf_vulkan_host_bytes(uint64_t n_rows, uint64_t n_cols)
{
    (void)n_rows;
    (void)n_cols;
    return (uint64_t)20 << 20; /* the rings and the blocks that they lie in */
}
