/* SPDX-License-Identifier: MIT */
/* The CPU backend's lifetime, buffers and dispatch of operations. */
#include "backend/cpu/cpu_internal.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory_limits.h"

#include <assert.h>
#include <string.h>

#define SCRATCH_ALIGN ((size_t)64)

mf_matrix mf_cpu_matrix(const mf_cpu_backend *be, const mf_weight *w)
{
    mf_matrix m = {.shape = w->shape};
    for (uint32_t i = 0; i < mf_weight_format_of(&w->shape)->n_arrays; i++)
        m.arrays[i] = mf_cpu_bytes(be, w->arrays[i]);
    return m;
}

static mf_status create_in_lock(mf_cpu_backend *be, uint64_t n_bytes, mf_buffer_use use,
                                const char *what, mf_buffer *out, mf_error *error)
{
    for (uint32_t i = 0; i < MF_CPU_MAX_BUFFERS; i++) {
        if (be->buffers[i].mapping != NULL)
            continue;
        MF_TRY(mf_region_create(&be->allocator, n_bytes, what, &be->buffers[i], error));
        be->is_device[i] = use == MF_USE_DEVICE;
        be->has_homes[i] = false;
        if (be->nodes.n > 1)
            (void)mf_numa_interleave(&be->nodes, be->buffers[i].base, be->buffers[i].n_bytes);
        *out = (mf_buffer){i + 1};
        return MF_OK;
    }
    return mf_fail(error, MF_ERR_NO_MEMORY, "more than %d buffers on one backend (%s)",
                   MF_CPU_MAX_BUFFERS, what);
}

static mf_status buffer_create(mf_backend *base, uint64_t n_bytes, mf_buffer_use use,
                               const char *what, mf_buffer *out, mf_error *error)
{
    mf_cpu_backend *be = (mf_cpu_backend *)base;
    (void)pthread_mutex_lock(&be->lock);
    mf_status status = create_in_lock(be, n_bytes, use, what, out, error);
    (void)pthread_mutex_unlock(&be->lock);
    return status;
}

static void buffer_free(mf_backend *base, mf_buffer buffer)
{
    mf_cpu_backend *be = (mf_cpu_backend *)base;
    if (buffer.id == 0)
        return;
    (void)pthread_mutex_lock(&be->lock);
    mf_region_free(&be->allocator, &be->buffers[buffer.id - 1]);
    (void)pthread_mutex_unlock(&be->lock);
}

static bool buffer_discard(mf_backend *base, mf_span span, uint64_t n_bytes)
{
    const mf_cpu_backend *be = (mf_cpu_backend *)base;
    return mf_region_discard(&be->allocator, &be->buffers[span.buffer.id - 1], span.offset,
                             n_bytes);
}

static void share_rows(mf_backend *base, mf_span array, uint64_t n_bytes)
{
    mf_cpu_backend *be = (mf_cpu_backend *)base;
    const uint32_t i = array.buffer.id - 1;
    if (be->nodes.n > 1)
        be->has_homes[i] = mf_numa_share(&be->nodes, be->buffers[i].base, array.offset, n_bytes) ||
                           be->has_homes[i];
}

static unsigned char *buffer_host(mf_backend *base, mf_buffer buffer)
{
    const mf_cpu_backend *be = (mf_cpu_backend *)base;
    return be->is_device[buffer.id - 1] ? NULL : be->buffers[buffer.id - 1].base;
}

static uint32_t memories(const mf_backend *base, mf_backend_memory *out)
{
    (void)base;
    out[0] = (mf_backend_memory){
        .name = "memory",
        .n_bytes = mf_memory_available_bytes(),
        .uses =
            1u << MF_USE_DEVICE | 1u << MF_USE_HOST | 1u << MF_USE_STAGING | 1u << MF_USE_SHARED,
        .is_host = true,
    };
    return 1;
}

static void write_span(mf_backend *base, mf_span dest, const void *src, uint64_t n_bytes)
{
    memcpy(mf_cpu_bytes((mf_cpu_backend *)base, dest), src, n_bytes);
}

static mf_ticket upload(mf_backend *base, mf_span dest, const void *src, uint64_t n_bytes)
{
    write_span(base, dest, src, n_bytes);
    return 0;
}

static void read_span(mf_backend *base, mf_span src, void *dest, uint64_t n_bytes)
{
    memcpy(dest, mf_cpu_bytes((mf_cpu_backend *)base, src), n_bytes);
}

static mf_status visit(mf_backend *base, mf_span src, uint64_t n_bytes, mf_visit_fn fn, void *ctx,
                       mf_error *error)
{
    const unsigned char *bytes = mf_cpu_bytes((mf_cpu_backend *)base, src);
    for (uint64_t done = 0, n; done < n_bytes; done += n) {
        n = n_bytes - done < MF_VISIT_BYTES ? n_bytes - done : MF_VISIT_BYTES;
        MF_TRY(fn(ctx, bytes + done, (size_t)n, error));
    }
    return MF_OK;
}

static mf_status produce(mf_backend *base, mf_span dest, uint64_t n_bytes, mf_produce_fn fn,
                         void *ctx, mf_error *error)
{
    unsigned char *bytes = mf_cpu_bytes((mf_cpu_backend *)base, dest);
    for (uint64_t done = 0, n; done < n_bytes; done += n) {
        n = n_bytes - done < MF_VISIT_BYTES ? n_bytes - done : MF_VISIT_BYTES;
        MF_TRY(fn(ctx, bytes + done, (size_t)n, error));
    }
    return MF_OK;
}

static void copy_span(mf_backend *base, mf_span dest, mf_span src, uint64_t n_bytes)
{
    const mf_cpu_backend *be = (mf_cpu_backend *)base;
    memcpy(mf_cpu_bytes(be, dest), mf_cpu_bytes(be, src), n_bytes);
}

static bool supports_op(const mf_backend *base, const mf_op *op)
{
    (void)base;
    if (op->kind == MF_OP_GATED_DELTA && op->u.gated_delta.has_key_decays)
        return op->u.gated_delta.value_dim <= MF_CPU_KEYED_VALUES;
    if ((op->kind == MF_OP_MATMUL && mf_has_steps(&op->u.matmul)) ||
        (op->kind == MF_OP_ROUTED_EXPERTS && mf_routed_has_steps(&op->u.routed)))
        return false; /* there is nothing to gain */
    return op->kind >= MF_OP_EMBED && op->kind <= MF_OP_FINITE;
}

static size_t matmul_scratch(const mf_cpu_backend *be, const mf_weight *w, uint32_t n_rows)
{
    /* Only the shape matters here; the bytes need not exist yet. */
    const mf_matrix m = {.shape = w->shape};
    return be->kernels->matmul_scratch_bytes(&m, n_rows);
}

/* Bytes of n_rows tokens, or of as many as are prepared together, in the form that this matrix is
 * multiplied by. */
static size_t prepared_bytes(const mf_cpu_backend *be, const mf_weight *w, uint32_t n_rows)
{
    const mf_matrix m = {.shape = w->shape};
    size_t n_bytes = n_rows * be->kernels->token_bytes(&m);
    return MF_CPU_PARTS_BYTES +
           (n_bytes < MF_CPU_PREPARED_BYTES_MAX ? n_bytes : MF_CPU_PREPARED_BYTES_MAX);
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* What an operation needs: scratch a thread, gathered rows and prepared tokens for all. */
typedef struct op_sizes {
    size_t scratch, gather, prepared, parts;
} op_sizes;

static op_sizes matrix_sizes(const mf_cpu_backend *be, const mf_weight *w, uint32_t n_rows)
{
    return (op_sizes){.scratch = matmul_scratch(be, w, n_rows),
                      .prepared = prepared_bytes(be, w, n_rows)};
}

static op_sizes larger(op_sizes a, op_sizes b)
{
    return (op_sizes){max_size(a.scratch, b.scratch), max_size(a.gather, b.gather),
                      max_size(a.prepared, b.prepared), max_size(a.parts, b.parts)};
}

static op_sizes expert_sizes(const mf_cpu_backend *be, const mf_expert_item *item, uint32_t n_rows)
{
    const op_sizes rows = {.gather = (size_t)n_rows * item->gate.shape.n_cols * sizeof(float)};
    op_sizes in = matrix_sizes(be, &item->gate, n_rows);
    if (item->up.shape.n_rows != 0)
        in = larger(in, matrix_sizes(be, &item->up, n_rows));
    return larger(larger(in, rows), matrix_sizes(be, &item->down, n_rows));
}

static op_sizes sizes_of(const mf_cpu_backend *be, const mf_op *op)
{
    op_sizes s = {0};
    if (op->kind == MF_OP_MATMUL) {
        for (uint32_t j = 0; j < op->u.matmul.n; j++)
            s = larger(s, matrix_sizes(be, &op->u.matmul.weight[j], op->n_rows));
    } else if (op->kind == MF_OP_EXPERTS) {
        s = expert_sizes(be, &op->u.experts.items[0], op->n_rows);
    } else if (op->kind == MF_OP_ROUTED_EXPERTS) {
        const mf_routed_experts_params *p = &op->u.routed;
        const mf_expert_item item = {.gate = p->gate, .up = p->up, .down = p->down};
        s = expert_sizes(be, &item, MF_CPU_ROUTED_ITEMS);
    } else if (op->kind == MF_OP_ROUTE) {
        s.scratch = op->u.route.n_experts * sizeof(float);
    } else if (op->kind == MF_OP_HEAD_MATMUL) {
        const mf_head_weight *w = &op->u.head_matmul.w;
        s.scratch = w->transposed
                        ? (size_t)MF_CPU_TRANSPOSED_ROWS * w->weight.shape.n_cols * sizeof(float)
                        : matmul_scratch(be, &w->weight, op->n_rows);
    } else if (op->kind == MF_OP_ATTENTION) {
        s.scratch = mf_cpu_attend_scratch(op);
        s.parts = MF_CPU_PARTS_BYTES;
    } else if (op->kind == MF_OP_LATENT_ATTENTION) {
        s.scratch = (size_t)MF_LATENT_TILE * sizeof(float) *
                    (op->u.latent_attention.n_latent + op->u.latent_attention.n_rot);
    } else if (op->kind == MF_OP_COMPRESS) {
        s.scratch = MF_CPU_COMPRESS_ROWS * sizeof(float) * op->u.compress.dim;
    } else if (op->kind == MF_OP_ENTRY_ATTENTION) {
        s.scratch = mf_cpu_entry_scratch(&op->u.entry_attention);
    } else if (op->kind == MF_OP_GATED_DELTA) {
        s.gather = (size_t)op->n_rows * op->u.gated_delta.n_v_heads * 2 * sizeof(float);
    }
    return s;
}

/* *ptr gets at least n_bytes; what it held is lost. */
static mf_status grow(const mf_cpu_backend *be, void **ptr, size_t *held, size_t n_bytes,
                      const char *what, mf_error *error)
{
    if (n_bytes <= *held)
        return MF_OK;
    mf_free(&be->allocator, *ptr, *held);
    *held = 0;
    *ptr = mf_alloc(&be->allocator, n_bytes);
    if (*ptr == NULL)
        return mf_fail_memory(error, n_bytes, what);
    *held = n_bytes;
    return MF_OK;
}

static mf_status reserve(mf_backend *base, const mf_op *op, mf_error *error)
{
    mf_cpu_backend *be = (mf_cpu_backend *)base;
    const op_sizes sizes = sizes_of(be, op);
    const size_t scratch = (size_t)mf_round_up(sizes.scratch, SCRATCH_ALIGN);
    if (scratch > be->scratch_bytes) {
        mf_free(&be->allocator, be->scratch_memory, be->scratch_memory_bytes);
        be->scratch_memory_bytes = be->scratch_bytes = 0;
        be->scratch = NULL;
        size_t n_bytes = scratch * be->n_threads + SCRATCH_ALIGN;
        be->scratch_memory = mf_alloc(&be->allocator, n_bytes);
        if (be->scratch_memory == NULL)
            return mf_fail_memory(error, n_bytes, "kernel scratch");
        be->scratch_memory_bytes = n_bytes;
        be->scratch_bytes = scratch;
        be->scratch = be->scratch_memory + (-(uintptr_t)be->scratch_memory & (SCRATCH_ALIGN - 1));
    }
    void *rows = be->gather, *tokens = be->prepared, *parts = be->parts;
    mf_status status = grow(be, &rows, &be->gather_bytes, sizes.gather, "gathered rows", error);
    be->gather = rows;
    if (status == MF_OK)
        status = grow(be, &tokens, &be->prepared_bytes, sizes.prepared, "prepared tokens", error);
    be->prepared = tokens;
    if (status == MF_OK)
        status = grow(be, &parts, &be->parts_bytes, sizes.parts, "parts of an attention", error);
    be->parts = parts;
    return status;
}

static mf_status reserve_batch(mf_backend *base, uint32_t n_sequences, size_t n_pages,
                               mf_error *error)
{
    mf_cpu_backend *be = (mf_cpu_backend *)base;
    void *sequences = be->sequences, *first = be->first_page, *pages = be->pages;
    mf_status status = grow(be, &sequences, &be->sequences_bytes,
                            n_sequences * sizeof *be->sequences, "a batch's sequences", error);
    be->sequences = sequences;
    if (status == MF_OK)
        status = grow(be, &first, &be->first_page_bytes, 2 * n_sequences * sizeof *be->first_page,
                      "a batch's sequences", error);
    be->first_page = first;
    if (status == MF_OK)
        status = grow(be, &pages, &be->pages_bytes, n_pages * sizeof *be->pages, "lists of pages",
                      error);
    be->pages = pages;
    be->n_sequences = 0;
    return status;
}

/* Where the sequence's pages are, behind the first `at`; how many there are then. */
static size_t list_pages(mf_cpu_backend *be, const mf_sequence *seq, const mf_span *pages,
                         size_t at)
{
    const size_t n_pages = pages == NULL ? 0 : mf_pages_of(seq->position + seq->n_rows);
    assert((at + n_pages) * sizeof *be->pages <= be->pages_bytes);
    for (size_t p = 0; p < n_pages; p++)
        be->pages[at++] = pages[p].buffer.id != 0 ? mf_cpu_bytes(be, pages[p]) : NULL;
    return at;
}

static void begin_batch(mf_backend *base, const mf_sequence *sequences, uint32_t n)
{
    mf_cpu_backend *be = (mf_cpu_backend *)base;
    size_t at = 0;
    assert(n * sizeof *sequences <= be->sequences_bytes);
    for (uint32_t s = 0; s < n; s++) {
        const mf_sequence *seq = &sequences[s];
        be->sequences[s] = *seq;
        /* the caller's; what they name is kept below */
        be->sequences[s].pages = be->sequences[s].window_pages = NULL;
        be->first_page[2 * s] = at;
        at = list_pages(be, seq, seq->pages, at);
        be->first_page[2 * s + 1] = at;
        at = list_pages(be, seq, seq->window_pages, at);
    }
    be->n_sequences = n;
}

typedef void (*op_fn)(mf_cpu_backend *be, const mf_op *op);

/* The operation, and when. */
static void run_watched(mf_cpu_backend *be, op_fn run, const mf_op *op)
{
    static const mf_timeline_track track = {MF_TIMELINE_THREADS, 0};
    const mf_timeline_note notes[MF_TIMELINE_NOTES] = {{"rows", op->n_rows}};
    const uint64_t began_ns = mf_now_ns();
    mf_timeline_set_work(be->timeline, mf_op_name(op->kind));
    run(be, op);
    mf_timeline_set_work(be->timeline, NULL);
    mf_timeline_span(be->timeline, track, mf_op_name(op->kind), began_ns, mf_now_ns(), notes);
}

static void watch(mf_backend *base, mf_timeline *timeline)
{
    mf_cpu_backend *be = (mf_cpu_backend *)base;
    be->timeline = timeline;
    mf_thread_pool_watch(be->pool, timeline);
}

static void record(mf_backend *base, const mf_op *op)
{
    static const op_fn run[] = {
        [MF_OP_EMBED] = mf_cpu_embed,
        [MF_OP_COPY_ROWS] = mf_cpu_copy_rows,
        [MF_OP_RMSNORM] = mf_cpu_rmsnorm,
        [MF_OP_RMSNORM_GATED] = mf_cpu_rmsnorm_gated,
        [MF_OP_MATMUL] = mf_cpu_matmul,
        [MF_OP_HEAD_NORM_ROPE] = mf_cpu_head_norm_rope,
        [MF_OP_ATTENTION] = mf_cpu_attention,
        [MF_OP_SIGMOID_MUL] = mf_cpu_sigmoid_mul,
        [MF_OP_CONV1D_SILU] = mf_cpu_conv1d_silu,
        [MF_OP_GATED_DELTA] = mf_cpu_gated_delta,
        [MF_OP_ADD] = mf_cpu_add,
        [MF_OP_SWIGLU] = mf_cpu_swiglu,
        [MF_OP_ROUTE] = mf_cpu_route,
        [MF_OP_EXPERTS] = mf_cpu_experts,
        [MF_OP_ROUTED_EXPERTS] = mf_cpu_routed_experts,
        [MF_OP_COMBINE] = mf_cpu_combine,
        [MF_OP_ROPE] = mf_cpu_rope,
        [MF_OP_HEAD_MATMUL] = mf_cpu_head_matmul,
        [MF_OP_LATENT_ATTENTION] = mf_cpu_latent_attention,
        [MF_OP_COMPRESS] = mf_cpu_compress,
        [MF_OP_ENTRY_ATTENTION] = mf_cpu_entry_attention,
        [MF_OP_STREAMS_IN] = mf_cpu_streams_in,
        [MF_OP_STREAMS_OUT] = mf_cpu_streams_out,
        [MF_OP_FINITE] = mf_cpu_finite,
    };
    mf_cpu_backend *be = (mf_cpu_backend *)base;
    assert(supports_op(base, op));
    if (op->when.buffer.id != 0 && *(const uint32_t *)(void *)mf_cpu_bytes(be, op->when) == 0)
        return;
    if (be->timeline != NULL)
        run_watched(be, run[op->kind], op);
    else
        run[op->kind](be, op);
}

static void expect(mf_backend *base, bool is_expected)
{
    mf_thread_pool_expect(((mf_cpu_backend *)base)->pool, is_expected);
}

/* Everything has run when it was recorded. */
static mf_ticket mark(mf_backend *base)
{
    (void)base;
    return 0;
}

static bool done(mf_backend *base, mf_ticket ticket)
{
    (void)base;
    (void)ticket;
    return true;
}

static mf_status wait_for(mf_backend *base, mf_ticket ticket, mf_error *error)
{
    (void)base;
    (void)ticket;
    (void)error;
    return MF_OK;
}

static uint64_t weight_bytes(const mf_backend *base)
{
    return ((const mf_cpu_backend *)base)->weight_bytes;
}

static void destroy(mf_backend *base)
{
    mf_cpu_backend *be = (mf_cpu_backend *)base;
    const mf_allocator a = be->allocator;
    mf_thread_pool_free(&be->pool);
    for (uint32_t i = 0; i < MF_CPU_MAX_BUFFERS; i++)
        mf_region_free(&a, &be->buffers[i]);
    mf_free(&a, be->scratch_memory, be->scratch_memory_bytes);
    mf_free(&a, be->gather, be->gather_bytes);
    mf_free(&a, be->prepared, be->prepared_bytes);
    mf_free(&a, be->parts, be->parts_bytes);
    mf_free(&a, be->sequences, be->sequences_bytes);
    mf_free(&a, be->first_page, be->first_page_bytes);
    mf_free(&a, be->pages, be->pages_bytes);
    (void)pthread_mutex_destroy(&be->lock);
    mf_free(&a, be, sizeof *be);
}

static const char *device_name(const mf_backend *base)
{
    return mf_cpu_tier_name(((const mf_cpu_backend *)base)->kernels->tier);
}

static uint32_t rounding(const mf_backend *base)
{
    return (uint32_t)((const mf_cpu_backend *)base)->kernels->tier;
}

static const mf_backend_ops cpu_ops = {
    .name = "cpu",
    .device_name = device_name,
    .rounding = rounding,
    .memories = memories,
    .buffer_create = buffer_create,
    .buffer_free = buffer_free,
    .buffer_discard = buffer_discard,
    .buffer_host = buffer_host,
    .share_rows = share_rows,
    .write = write_span,
    .upload = upload,
    .read = read_span,
    .visit = visit,
    .produce = produce,
    .copy = copy_span,
    .begin_batch = begin_batch,
    .reserve_batch = reserve_batch,
    .supports_op = supports_op,
    .reserve = reserve,
    .record = record,
    .expect = expect,
    .mark = mark,
    .done = done,
    .wait_for = wait_for,
    .weight_bytes = weight_bytes,
    .measure = mf_cpu_measure,
    .watch = watch,
    .destroy = destroy,
};

uint64_t mf_cpu_host_bytes(uint64_t n_rows, uint64_t n_cols)
{
    uint64_t n_bytes = n_rows * n_cols * sizeof(float); /* the form is hardly smaller */
    return MF_CPU_PARTS_BYTES +
           (n_bytes < MF_CPU_PREPARED_BYTES_MAX ? n_bytes : MF_CPU_PREPARED_BYTES_MAX);
}

/* Fewer threads than nodes would leave some out; where the caller's memory lies is the caller's
 * business. */
static void find_nodes(mf_cpu_backend *be, const mf_backend_options *options)
{
    mf_numa_use use;
    if (options->nodes != NULL)
        be->nodes = *options->nodes;
    else
        (void)mf_numa_find(&be->nodes, &use);
    if (be->nodes.n > be->n_threads || !mf_region_is_mapped(&be->allocator))
        be->nodes.n = 0;
}

mf_status mf_cpu_backend_create(const mf_backend_options *options, mf_backend **out,
                                mf_error *error)
{
    const mf_allocator a = mf_allocator_or_default(&options->allocator);
    const mf_kernels *kernels = mf_kernels_get(options->cpu_tier);
    if (kernels == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "cpu_tier '%s': this build has no such kernels",
                       mf_cpu_tier_name(options->cpu_tier));
    mf_cpu_backend *be = mf_alloc_zeroed(&a, sizeof *be);
    if (be == NULL)
        return mf_fail_memory(error, sizeof *be, "the CPU backend");
    be->base.ops = &cpu_ops;
    be->allocator = a;
    be->kernels = kernels;
    be->n_threads = options->n_threads != 0 ? options->n_threads : mf_cpu_count();
    if (pthread_mutex_init(&be->lock, NULL) != 0) {
        mf_free(&a, be, sizeof *be);
        return mf_fail(error, MF_ERR_NO_MEMORY, "no memory for a lock");
    }
    find_nodes(be, options);
    mf_status status =
        mf_thread_pool_create_at_home(&a, be->n_threads, &be->nodes, &be->pool, error);
    if (status != MF_OK) {
        (void)pthread_mutex_destroy(&be->lock);
        mf_free(&a, be, sizeof *be);
        return status;
    }
    be->n_homes = mf_thread_pool_homes(be->pool);
    *out = &be->base;
    return MF_OK;
}
