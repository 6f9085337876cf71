/* SPDX-License-Identifier: MIT */
/* The strict backend's interface and memory. */
#include "base/mutex.h"
#include "strict_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE ((uint64_t)4096)
/* More of a new buffer is not made NaN: large ones are touched as they are used. */
#define MOST_POISONED ((uint64_t)1 << 20)

void strict_complain(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("strict backend: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static strict_backend *enter(mf_backend *base)
{
    strict_backend *be = (strict_backend *)base;
    (void)pthread_mutex_lock(&be->lock);
    return be;
}

static void leave(strict_backend *be)
{
    (void)pthread_mutex_unlock(&be->lock);
}

/* ------------------------------------------------------------------------------------ memory -- */

static void protect(const strict_memory *m, int protection)
{
    if (mprotect(m->base, (m->n_bytes + PAGE - 1) / PAGE * PAGE, protection) != 0)
        strict_complain("mprotect of %llu bytes failed", (unsigned long long)m->n_bytes);
}

void strict_open_door(strict_backend *be, mf_buffer buffer)
{
    strict_memory *m = &be->buffers[buffer.id - 1];
    if (m->use != MF_USE_DEVICE || m->is_open)
        return;
    protect(m, PROT_READ | PROT_WRITE);
    m->is_open = true;
    m->next_open = be->first_open;
    be->first_open = buffer.id;
}

void strict_close_doors(strict_backend *be)
{
    while (be->first_open != 0) {
        strict_memory *m = &be->buffers[be->first_open - 1];
        be->first_open = m->next_open;
        if (m->base != NULL)
            protect(m, PROT_NONE);
        m->is_open = false;
    }
}

void strict_drop_buffer(strict_backend *be, mf_buffer buffer)
{
    strict_memory *m = &be->buffers[buffer.id - 1];
    be->device_bytes -= m->use == MF_USE_DEVICE ? m->n_bytes : 0;
    *m = (strict_memory){.is_open = m->is_open, .next_open = m->next_open};
    be->inner->ops->buffer_free(be->inner, buffer);
}

strict_memory *strict_memory_of(strict_backend *be, mf_span span, uint64_t n_bytes,
                                const char *what)
{
    if (span.buffer.id == 0 || span.buffer.id > STRICT_MAX_BUFFERS ||
        be->buffers[span.buffer.id - 1].base == NULL || be->buffers[span.buffer.id - 1].is_freed)
        strict_complain("%s: there is no buffer %u", what, span.buffer.id);
    strict_memory *m = &be->buffers[span.buffer.id - 1];
    if (span.offset > m->n_bytes || n_bytes > m->n_bytes - span.offset)
        strict_complain("%s: %llu bytes at %llu of a buffer of %llu", what,
                        (unsigned long long)n_bytes, (unsigned long long)span.offset,
                        (unsigned long long)m->n_bytes);
    return m;
}

static mf_status create(strict_backend *be, uint64_t n_bytes, mf_buffer_use use, const char *what,
                        mf_buffer *out, mf_error *error)
{
    mf_buffer buffer = {0};
    uint64_t most = be->options.memory_bytes;
    if (use == MF_USE_DEVICE && most != 0 && be->device_bytes + n_bytes > most)
        strict_run_to(be, be->last); /* what was freed may be room */
    if (use == MF_USE_DEVICE && most != 0 && be->device_bytes + n_bytes > most)
        return mf_fail(error, MF_ERR_NO_MEMORY, "%llu bytes for %s do not fit the device's memory",
                       (unsigned long long)n_bytes, what);
    mf_status status =
        be->inner->ops->buffer_create(be->inner, n_bytes, MF_USE_HOST, what, &buffer, error);
    if (status != MF_OK && be->first != NULL) {
        strict_run_to(be, be->last);
        status =
            be->inner->ops->buffer_create(be->inner, n_bytes, MF_USE_HOST, what, &buffer, error);
    }
    if (status != MF_OK)
        return status;
    unsigned char *base = be->inner->ops->buffer_host(be->inner, buffer);
    be->buffers[buffer.id - 1] = (strict_memory){.base = base, .n_bytes = n_bytes, .use = use};
    *out = buffer;
    if (use != MF_USE_DEVICE)
        return MF_OK;
    be->device_bytes += n_bytes;
    /* huge pages would be split by their protection */
    (void)madvise(base, (n_bytes + PAGE - 1) / PAGE * PAGE, MADV_NOHUGEPAGE);
    memset(base, STRICT_POISON, n_bytes < MOST_POISONED ? n_bytes : MOST_POISONED);
    protect(&be->buffers[buffer.id - 1], PROT_NONE);
    return MF_OK;
}

static mf_status buffer_create(mf_backend *base, uint64_t n_bytes, mf_buffer_use use,
                               const char *what, mf_buffer *out, mf_error *error)
{
    strict_backend *be = enter(base);
    mf_status status = create(be, n_bytes, use, what, out, error);
    leave(be);
    return status;
}

static void buffer_free(mf_backend *base, mf_buffer buffer)
{
    if (buffer.id == 0)
        return;
    strict_backend *be = enter(base);
    strict_memory *m = strict_memory_of(be, (mf_span){buffer, 0}, 0, "free");
    strict_entry *e = strict_entry_new(STRICT_FREE);
    e->to.buffer = buffer;
    strict_entry_use(e, e->to, m->n_bytes, MF_LOSES);
    m->is_freed = true;
    strict_record(be, e);
    leave(be);
}

static bool buffer_discard(mf_backend *base, mf_span span, uint64_t n_bytes)
{
    strict_backend *be = enter(base);
    (void)strict_memory_of(be, span, n_bytes, "discard");
    strict_entry *e = strict_entry_new(STRICT_DISCARD);
    e->to = span;
    e->n_bytes = n_bytes;
    strict_entry_use(e, span, n_bytes, MF_LOSES);
    strict_record(be, e);
    leave(be);
    return true;
}

static unsigned char *buffer_host(mf_backend *base, mf_buffer buffer)
{
    strict_backend *be = enter(base);
    const strict_memory *m = strict_memory_of(be, (mf_span){buffer, 0}, 0, "host");
    unsigned char *host = m->use == MF_USE_DEVICE ? NULL : m->base;
    leave(be);
    return host;
}

unsigned char *strict_backend_peek(mf_backend *base, mf_buffer buffer)
{
    strict_backend *be = enter(base);
    unsigned char *bytes = strict_memory_of(be, (mf_span){buffer, 0}, 0, "peek")->base;
    leave(be);
    return bytes;
}

static uint32_t memories(const mf_backend *base, mf_backend_memory *out)
{
    strict_backend *be = enter((mf_backend *)base); /* to be locked */
    uint64_t most = be->options.memory_bytes;
    (void)be->inner->ops->memories(be->inner, &out[1]);
    out[1].uses = 1u << MF_USE_HOST | 1u << MF_USE_STAGING | 1u << MF_USE_SHARED;
    out[1].uses |= be->options.shares_memory ? 1u << MF_USE_DEVICE : 0;
    out[0] = (mf_backend_memory){.name = "strict device",
                                 .n_bytes = most > be->device_bytes ? most - be->device_bytes : 0,
                                 .uses = 1u << MF_USE_DEVICE};
    leave(be);
    return 2;
}

/* ----------------------------------------------------------------------------- the stream -- */

static void write_span(mf_backend *base, mf_span dest, const void *src, uint64_t n_bytes)
{
    strict_backend *be = enter(base);
    (void)strict_memory_of(be, dest, n_bytes, "write");
    strict_entry *e = strict_entry_new(STRICT_WRITE);
    e->to = dest;
    e->n_bytes = n_bytes;
    e->src = strict_entry_keep(e, src, n_bytes);
    strict_entry_use(e, dest, n_bytes, MF_WRITES);
    strict_record(be, e);
    leave(be);
}

static mf_ticket upload(mf_backend *base, mf_span dest, const void *src, uint64_t n_bytes)
{
    strict_backend *be = enter(base);
    (void)strict_memory_of(be, dest, n_bytes, "upload");
    strict_entry *e = strict_entry_new(STRICT_UPLOAD);
    e->to = dest;
    e->n_bytes = n_bytes;
    e->src = src;
    strict_entry_use(e, dest, n_bytes, MF_WRITES);
    mf_ticket ticket = strict_record(be, e);
    leave(be);
    return ticket;
}

static bool overlaps(const strict_use *use, const mf_upload *u)
{
    return use->span.buffer.id == u->dest.buffer.id &&
           use->span.offset < u->dest.offset + u->n_bytes &&
           u->dest.offset < use->span.offset + use->n_bytes;
}

/* Routed experts: slots of no expert that is named are not touched, and who uploads knows which. */
static bool is_slots(const strict_entry *e, const strict_use *use)
{
    return e->kind == STRICT_OP && e->op.kind == MF_OP_ROUTED_EXPERTS &&
           use->span.buffer.id == e->op.u.routed.slots.buffer.id;
}

/* Nothing that is recorded and has not run uses the bytes, but for uploads ahead. The upload may
 * come before all of it: who finds the old bytes nevertheless is to be seen. */
static void check_unused(strict_backend *be, const mf_upload *u)
{
    bool is_slot = false;
    for (const strict_entry *e = be->first; e != NULL; e = e->next)
        for (uint32_t i = 0; i < e->n_uses && !e->is_ahead; i++) {
            if (!overlaps(&e->uses[i], u))
                continue;
            if (!is_slots(e, &e->uses[i]))
                strict_complain("an upload ahead to bytes that are still used");
            is_slot = true;
        }
    if (!is_slot)
        return;
    strict_open_door(be, u->dest.buffer);
    memset(be->buffers[u->dest.buffer.id - 1].base + u->dest.offset, STRICT_POISON, u->n_bytes);
    strict_close_doors(be);
}

static mf_ticket upload_ahead(mf_backend *base, const mf_upload *uploads, uint32_t n)
{
    strict_backend *be = enter(base);
    mf_ticket ticket = 0;
    for (uint32_t i = 0; i < n; i++) {
        const mf_upload *u = &uploads[i];
        (void)strict_memory_of(be, u->dest, u->n_bytes, "upload ahead");
        check_unused(be, u);
        strict_entry *e = strict_entry_new(STRICT_UPLOAD);
        e->to = u->dest;
        e->n_bytes = u->n_bytes;
        e->src = u->src;
        e->is_ahead = true;
        strict_entry_use(e, u->dest, u->n_bytes, MF_WRITES);
        ticket = strict_record(be, e);
    }
    leave(be);
    return ticket;
}

static void read_span(mf_backend *base, mf_span src, void *dest, uint64_t n_bytes)
{
    strict_backend *be = enter(base);
    (void)strict_memory_of(be, src, n_bytes, "read");
    strict_entry *e = strict_entry_new(STRICT_READ);
    e->from = src;
    e->n_bytes = n_bytes;
    e->dest = dest;
    strict_entry_use(e, src, n_bytes, MF_READS);
    strict_record(be, e);
    leave(be);
}

static mf_status wait_for(mf_backend *base, mf_ticket ticket, mf_error *error);

static mf_status visit(mf_backend *base, mf_span src, uint64_t n_bytes, mf_visit_fn fn, void *ctx,
                       mf_error *error)
{
    unsigned char *piece = malloc(MF_VISIT_BYTES);
    mf_status status = MF_OK;
    if (piece == NULL)
        strict_complain("no memory for the test's backend");
    for (uint64_t done = 0, n; done < n_bytes && status == MF_OK; done += n) {
        n = n_bytes - done < MF_VISIT_BYTES ? n_bytes - done : MF_VISIT_BYTES;
        read_span(base, mf_span_at(src, done), piece, n);
        status = wait_for(base, base->ops->mark(base), error);
        if (status == MF_OK)
            status = fn(ctx, piece, (size_t)n, error);
    }
    free(piece);
    return status;
}

static mf_status produce(mf_backend *base, mf_span dest, uint64_t n_bytes, mf_produce_fn fn,
                         void *ctx, mf_error *error)
{
    unsigned char *piece = malloc(MF_VISIT_BYTES);
    mf_status status = MF_OK;
    if (piece == NULL)
        strict_complain("no memory for the test's backend");
    for (uint64_t done = 0, n; done < n_bytes && status == MF_OK; done += n) {
        n = n_bytes - done < MF_VISIT_BYTES ? n_bytes - done : MF_VISIT_BYTES;
        memset(piece, STRICT_POISON, n);
        status = fn(ctx, piece, (size_t)n, error);
        if (status == MF_OK)
            write_span(base, mf_span_at(dest, done), piece, n);
    }
    free(piece);
    return status;
}

static void copy_span(mf_backend *base, mf_span dest, mf_span src, uint64_t n_bytes)
{
    strict_backend *be = enter(base);
    (void)strict_memory_of(be, dest, n_bytes, "copy");
    (void)strict_memory_of(be, src, n_bytes, "copy");
    strict_entry *e = strict_entry_new(STRICT_COPY);
    e->to = dest;
    e->from = src;
    e->n_bytes = n_bytes;
    strict_entry_use(e, dest, n_bytes, MF_WRITES);
    strict_entry_use(e, src, n_bytes, MF_READS);
    strict_record(be, e);
    leave(be);
}

static void record(mf_backend *base, const mf_op *op)
{
    strict_backend *be = enter(base);
    strict_record_op(be, op);
    leave(be);
}

static bool begin_early(mf_backend *base)
{
    strict_backend *be = enter(base);
    const bool has_begun = strict_begin_early(be);
    if (!has_begun)
        leave(be);
    return has_begun; /* with the lock */
}

static bool end_early(mf_backend *base)
{
    strict_backend *be = (strict_backend *)base;
    const bool is_kept = strict_end_early(be);
    leave(be);
    return is_kept;
}

static bool take_early(mf_backend *base, const int32_t *tokens, uint32_t n)
{
    strict_backend *be = enter(base);
    const bool is_taken = strict_take_early(be, tokens, n);
    leave(be);
    return is_taken;
}

static void begin_batch(mf_backend *base, const mf_sequence *sequences, uint32_t n)
{
    strict_backend *be = enter(base);
    strict_begin_batch(be, sequences, n);
    leave(be);
}

static mf_ticket mark(mf_backend *base)
{
    strict_backend *be = enter(base);
    mf_ticket ticket = be->last;
    leave(be);
    return ticket;
}

static bool is_done(strict_backend *be, mf_ticket ticket)
{
    if (be->is_lost || ticket <= be->reported)
        return true;
    if (ticket > be->executed)
        return false;
    if (be->n_asks_left > 0) {
        be->n_asks_left--;
        be->stats.n_late++;
        return false;
    }
    be->reported = be->executed;
    return true;
}

static bool done(mf_backend *base, mf_ticket ticket)
{
    strict_backend *be = enter(base);
    bool result = is_done(be, ticket);
    leave(be);
    return result;
}

static mf_status wait_for(mf_backend *base, mf_ticket ticket, mf_error *error)
{
    strict_backend *be = enter(base);
    if (ticket > be->last)
        strict_complain("a ticket that nobody was given");
    strict_run_to(be, ticket);
    be->reported = ticket > be->reported ? ticket : be->reported;
    bool is_lost = be->is_lost;
    leave(be);
    return is_lost ? mf_fail(error, MF_ERR_IO, "the device was lost") : MF_OK;
}

/* ------------------------------------------------------------------------------ the rest -- */

static const char *device_name(const mf_backend *base)
{
    const strict_backend *be = (const strict_backend *)base;
    return be->inner->ops->device_name(be->inner);
}

static uint32_t rounding(const mf_backend *base)
{
    const strict_backend *be = (const strict_backend *)base;
    return be->inner->ops->rounding(be->inner);
}

static bool supports_op(const mf_backend *base, const mf_op *op)
{
    const strict_backend *be = (const strict_backend *)base;
    return be->inner->ops->supports_op(be->inner, op);
}

static mf_status reserve(mf_backend *base, const mf_op *op, mf_error *error)
{
    strict_backend *be = enter(base);
    if (!be->inner->ops->supports_op(be->inner, op))
        strict_complain("%s: reserved, but not supported", mf_op_name(op->kind));
    mf_status status = be->inner->ops->reserve(be->inner, op, error);
    if (status == MF_OK)
        be->is_reserved[op->kind] = true;
    leave(be);
    return status;
}

static mf_status reserve_batch(mf_backend *base, uint32_t n_sequences, size_t n_pages,
                               mf_error *error)
{
    strict_backend *be = enter(base);
    strict_run_to(be, be->last); /* the inner backend forgets its batch */
    be->inner_batch = 0;
    mf_status status = be->inner->ops->reserve_batch(be->inner, n_sequences, n_pages, error);
    leave(be);
    return status;
}

static uint64_t weight_bytes(const mf_backend *base)
{
    strict_backend *be = enter((mf_backend *)base); /* to be locked */
    uint64_t n_bytes = be->inner->ops->weight_bytes(be->inner);
    leave(be);
    return n_bytes;
}

static mf_status measure(mf_backend *base, const mf_span *spans, const uint64_t *span_bytes,
                         uint32_t n_spans, uint32_t n_milliseconds, double *bytes_per_second,
                         double *fma_per_second, mf_error *error)
{
    strict_backend *be = enter(base);
    for (uint32_t i = 0; i < n_spans; i++)
        strict_open_door(be, spans[i].buffer);
    mf_status status =
        be->inner->ops->measure(be->inner, spans, span_bytes, n_spans, n_milliseconds,
                                bytes_per_second, fma_per_second, error);
    strict_close_doors(be);
    leave(be);
    return status;
}

static void destroy(mf_backend *base)
{
    strict_backend *be = (strict_backend *)base;
    strict_drop_all(be);
    be->inner->ops->destroy(be->inner);
    (void)pthread_mutex_destroy(&be->lock);
    free(be);
}

void strict_backend_stats(mf_backend *base, strict_stats *out)
{
    strict_backend *be = enter(base);
    *out = be->stats;
    leave(be);
}

static const mf_backend_ops strict_ops = {
    .name = "strict",
    .runs_later = true,
    .device_name = device_name,
    .rounding = rounding,
    .memories = memories,
    .buffer_create = buffer_create,
    .buffer_free = buffer_free,
    .buffer_discard = buffer_discard,
    .buffer_host = buffer_host,
    .write = write_span,
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
    .record = record,
    .begin_early = begin_early,
    .end_early = end_early,
    .take_early = take_early,
    .mark = mark,
    .done = done,
    .wait_for = wait_for,
    .weight_bytes = weight_bytes,
    .measure = measure,
    .destroy = destroy,
};

mf_status strict_backend_open(void *ctx, const mf_backend_options *options, mf_backend **out,
                              mf_error *error)
{
    strict_backend *be = calloc(1, sizeof *be);
    if (be == NULL || mf_mutex_init_recursive(&be->lock) != 0)
        strict_complain("no memory for the test's backend");
    /* Memory of the system's own, whole pages of it: the caller's allocator has nothing to fail
     * here. */
    const mf_backend_options inner = {.n_threads = options->n_threads,
                                      .cpu_tier = options->cpu_tier};
    mf_status status = mf_backend_open(&inner, &be->inner, error);
    if (status != MF_OK) {
        (void)pthread_mutex_destroy(&be->lock);
        free(be);
        return status;
    }
    be->base.ops = &strict_ops;
    be->options = ctx != NULL ? *(const strict_options *)ctx : (strict_options){0};
    if (options->device_bytes != 0 &&
        (be->options.memory_bytes == 0 || options->device_bytes < be->options.memory_bytes))
        be->options.memory_bytes = options->device_bytes;
    be->random = be->options.seed != 0 ? be->options.seed : 1;
    be->end = &be->first;
    be->early_end = &be->early_first;
    *out = &be->base;
    return MF_OK;
}
