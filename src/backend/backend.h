/* SPDX-License-Identifier: MIT */
/*
 * What a compute backend offers to models: memory by handle, and operations recorded into one
 * in-order stream. Nothing above this header knows which backend it talks to.
 *
 * The stream. record, write, upload, copy, read, buffer_free and buffer_discard take their place in
 * one order: that of the calls, whichever threads make them. When each is done is the backend's
 * business (the CPU does it at once, a device may begin when somebody waits), and what cannot be
 * told from outside it may do in another order; but every one finds the bytes that those before it
 * leave, and those after it find what it leaves. So memory that recorded work still reads may be
 * given to somebody else who reaches it through the stream.
 *
 * Tickets. mark names the stream's present end, upload also the place that it takes. Tickets rise;
 * one is done when everything up to it is. done only asks: nothing says that it ever becomes true
 * by itself. wait_for sees to it. Ticket 0 is always done.
 *
 * The host's side. Parameters of an operation, the arrays they point to and the source of write are
 * copied by the call. The source of upload must stay as it is until its ticket is done; the
 * destination of read is the backend's from the call on, and holds the bytes once a ticket marked
 * after the call has been waited for or was found done. What the host writes through buffer_host is
 * found by everything called afterwards; bytes that work not yet done reads or writes must be left
 * alone, and what that work wrote is seen once a ticket after it is done.
 *
 * Ahead. upload_ahead has no place in the stream: it may be done at any time, beside what was
 * called before it, which therefore must not use the bytes that it writes unless that is done;
 * everything called afterwards finds them. Its ticket says that it and those before it are done, no
 * more; and no ticket but that says so: it is waited for before either buffer is freed.
 *
 * Failure. Recording cannot fail. A device that fails is lost: from then on every ticket counts as
 * done, each wait_for returns the device's error, destinations of reads hold anything, and buffers
 * and the backend can still be freed.
 *
 * Threads. One thread at a time begins batches, reserves, records and measures. All others but
 * destroy may be called by any thread at any time, also while another records: a backend that needs
 * one has a lock of its own. The work of several threads gets into the stream call by call.
 *
 * Operations and their operands: op.h.
 *
 * The same bits: on one backend a row's result does not depend on the other rows of the batch, nor
 * on how rows are batched; on one that is mixed it depends on whether its operation is_long, which
 * is to be a property of the row's own run. Of numbers, that is: values of a row that are not
 * finite may show, on a device, in earlier rows of its sequence that are attended with it.
 */
#ifndef MF_BACKEND_BACKEND_H
#define MF_BACKEND_BACKEND_H

#include "backend/op.h"
#include "base/alloc.h"
#include "base/cpu.h"
#include "base/numa.h"
#include "base/ticket.h"
#include "base/timeline.h"
#include "base/visit.h"

#include <moeflux/devices.h>

typedef struct mf_backend mf_backend;

/* What a device did for operations of one kind. */
typedef struct mf_op_time {
    uint64_t n, ns;
} mf_op_time;

/* Bytes on their way ahead of the stream. */
typedef struct mf_upload {
    mf_span dest;    /* of MF_USE_DEVICE */
    const void *src; /* as upload's */
    uint64_t n_bytes;
} mf_upload;

/* One of the memories that a backend's buffers lie in. */
typedef struct mf_backend_memory {
    char name[64];
    uint64_t n_bytes;     /* that buffers can still take; 0: not known */
    uint32_t uses;        /* 1 << mf_buffer_use, of those that lie in it */
    bool is_host;         /* the process's own memory, which ram_bytes bounds */
    bool takes_promise;   /* device_bytes bounds what is taken of it: */
    uint64_t taken_bytes; /* that the backend has of it */
} mf_backend_memory;

/* As many as a backend may have. */
#define MF_MAX_MEMORIES 4

typedef struct mf_backend_ops {
    const char *name;
    /* What is recorded runs while the host goes on: it is better not waited for. */
    bool runs_later;
    /* What it runs on: a CPU's kernel tier, a GPU's name. */
    const char *(*device_name)(const mf_backend *be);
    /* Whose roundings its results have: those of the CPU's tiers are theirs, 2^31 and more GPUs',
     * and every other backend whose results have other bits takes other numbers, which stay
     * (docs/FORMATS.md). 0: none, so that no state of its is stored. */
    uint32_t (*rounding)(const mf_backend *be);
    /* Whether it has other kernels for operations that are long. NULL: it has none. */
    bool (*is_mixed)(const mf_backend *be);
    /* The memories, at most MF_MAX_MEMORIES, as they are now; returns how many. Each use lies in
     * one of them. */
    uint32_t (*memories)(const mf_backend *be, mf_backend_memory *out);
    /* A buffer's bytes are anything at first. The first buffers of a backend have the ids 1, 2, ...
     * in the order of creation. Errors: MF_ERR_NO_MEMORY. */
    mf_status (*buffer_create)(mf_backend *be, uint64_t n_bytes, mf_buffer_use use,
                               const char *what, mf_buffer *out, mf_error *error);
    /* Takes the buffer of id 0: none. */
    void (*buffer_free)(mf_backend *be, mf_buffer buffer);
    /* These bytes are not needed any more, whatever they hold when next touched: true if their
     * memory is given back (but for parts of pages at either end). */
    bool (*buffer_discard)(mf_backend *be, mf_span span, uint64_t n_bytes);
    /* The bytes of a buffer of any other use than MF_USE_DEVICE, aligned to 4096; NULL for that.
     * Those of MF_USE_SHARED are slow to read. */
    unsigned char *(*buffer_host)(mf_backend *be, mf_buffer buffer);
    /* Or NULL. Before they are written: these bytes are an array of a matrix, row by row. Rows may
     * then lie near to those who multiply them. */
    void (*share_rows)(mf_backend *be, mf_span array, uint64_t n_bytes);
    void (*write)(mf_backend *be, mf_span dest, const void *src, uint64_t n_bytes);
    /* As write, without the copy: src is host memory, best within a buffer that buffer_host gives
     * (from elsewhere the bytes may be copied on their way). */
    mf_ticket (*upload)(mf_backend *be, mf_span dest, const void *src, uint64_t n_bytes);
    /* Or NULL. From now on bytes are uploaded from this memory of the process's as from a buffer's,
     * as far as the device can: n_bytes at an address aligned to 4096, in whole units of
     * unit_bytes, which lie together. It stays until the backend is destroyed, and is not given
     * back to the system. */
    void (*reach)(mf_backend *be, void *memory, uint64_t n_bytes, uint64_t unit_bytes);
    /* See above; NULL: there is nothing to gain (mf_backend_upload_ahead). n is not 0. */
    mf_ticket (*upload_ahead)(mf_backend *be, const mf_upload *uploads, uint32_t n);
    void (*read)(mf_backend *be, mf_span src, void *dest, uint64_t n_bytes);
    /* read, waited for, the bytes handed to fn: without a copy where they lie in the process's
     * memory. Errors: the device's, and fn's. */
    mf_status (*visit)(mf_backend *be, mf_span src, uint64_t n_bytes, mf_visit_fn fn, void *ctx,
                       mf_error *error);
    /* write of what fn makes, runs of MF_VISIT_BYTES at most: without a copy where the bytes lie in
     * the process's memory, and nothing that is recorded uses them. Errors: fn's, and
     * MF_ERR_NO_MEMORY; then they are anything. */
    mf_status (*produce)(mf_backend *be, mf_span dest, uint64_t n_bytes, mf_produce_fn fn,
                         void *ctx, mf_error *error);
    /* The spans do not overlap. */
    void (*copy)(mf_backend *be, mf_span dest, mf_span src, uint64_t n_bytes);
    /* The sequences that the rows of the operations recorded from now on belong to, all of their
     * pages included; copied. Reserved before. */
    void (*begin_batch)(mf_backend *be, const mf_sequence *sequences, uint32_t n);
    /* Room for batches of so many sequences with so many pages in all. */
    mf_status (*reserve_batch)(mf_backend *be, uint32_t n_sequences, size_t n_pages,
                               mf_error *error);
    /* Whether an operation of this kind, with weights of these forms, can be recorded. */
    bool (*supports_op)(const mf_backend *be, const mf_op *op);
    /* Makes room for an operation of these sizes, so that record need not allocate. Called before
     * the first record of its kind; see mf_backend_reserve. */
    mf_status (*reserve)(mf_backend *be, const mf_op *op, mf_error *error);
    /* Or NULL: from gather to gathered, reserve may leave what takes long to gathered, which does
     * it all at once. Nothing is recorded in between. */
    void (*gather)(mf_backend *be);
    mf_status (*gathered)(mf_backend *be, mf_error *error);
    void (*record)(mf_backend *be, const mf_op *op);
    /* Or all three NULL. Work that may come next, recorded early: begin_batch, record, write, copy
     * and read from begin_early to end_early are kept apart from the stream, and no other thread's
     * call comes in between. take_early calls them all, with these n tokens for its MF_OP_EMBED, as
     * many as that has; only then are destinations of reads the backend's. Where anything else was
     * put into the stream, or freed, before it, they were dropped, as if they had never been, but
     * that a batch has to begin anew. false: nothing is kept, and what follows begin_early is not
     * to be called at all. */
    bool (*begin_early)(mf_backend *be);
    bool (*end_early)(mf_backend *be);
    bool (*take_early)(mf_backend *be, const int32_t *tokens, uint32_t n);
    /* What is recorded from hold on begins with go, and no other thread's call comes in between:
     * MF_OP_FROM_HOST is recorded so, and what it waits for is put without a call of the backend,
     * since one that waits for room would wait for this, too. hold may be called again before go,
     * for nothing. NULL where there are no such operations. */
    void (*hold)(mf_backend *be);
    /* All that is recorded begins by itself. Also without hold. */
    void (*go)(mf_backend *be);
    /* Whether the device is known to be lost; asked for by whoever waits for words. Waits for
     * nobody. NULL where hold is. */
    bool (*is_lost)(const mf_backend *be);
    /* Work will come every few microseconds from now on, or not any more: threads that compute stay
     * awake for it. NULL: there are none. */
    void (*expect)(mf_backend *be, bool is_expected);
    mf_ticket (*mark)(mf_backend *be);
    bool (*done)(mf_backend *be, mf_ticket ticket);
    /* Errors: the device's. */
    mf_status (*wait_for)(mf_backend *be, mf_ticket ticket, mf_error *error);
    /* Weight bytes multiplied with since creation. */
    uint64_t (*weight_bytes)(const mf_backend *be);
    mf_status (*measure)(mf_backend *be, const mf_span *spans, const uint64_t *span_bytes,
                         uint32_t n_spans, uint32_t n_milliseconds, double *bytes_per_second,
                         double *fma_per_second, mf_error *error);
    /* The device's time by kinds of operations is taken from now on, or not any more; NULL: it
     * cannot be. What was taken is forgotten. Errors: MF_ERR_UNSUPPORTED, MF_ERR_NO_MEMORY. */
    mf_status (*time_ops)(mf_backend *be, bool is_on, mf_error *error);
    /* Adds what was taken of work that is done to out[MF_N_OP_KINDS]. NULL where time_ops is. */
    void (*op_times)(mf_backend *be, mf_op_time *out);
    /* Writes operations that are computed at once, and the threads that compute them, to a timeline
     * from now on; NULL: no longer. NULL where nothing is. */
    void (*watch)(mf_backend *be, mf_timeline *timeline);
    /* Nobody is within another call. What is recorded need not run any more. */
    void (*destroy)(mf_backend *be);
} mf_backend_ops;

/* Every backend struct begins with this. */
struct mf_backend {
    const mf_backend_ops *ops;
};

typedef struct mf_backend_options {
    mf_allocator allocator;
    uint32_t n_threads;         /* of the CPU; 0: one per available core */
    mf_cpu_tier cpu_tier;       /* one that the CPU has, or MF_CPU_BEST */
    const mf_numa_nodes *nodes; /* of the CPU's memory; NULL: those of this machine */
    /* "cpu" (also NULL and "auto", which devices.h knows), "vulkan" (the best GPU), "vulkan:N" */
    const char *device;
    uint64_t device_bytes;  /* of the device's memory, at most; 0: most of what is free */
    const char *cache_dir;  /* where a device's compiled shaders are kept; NULL: nowhere */
    mf_precision precision; /* of devices, for operations that are long */
} mf_backend_options;

/* Opens the backend that the options ask for. ops->destroy ends it. Errors: MF_ERR_ARGUMENT (the
 * device is not known; the message lists those that are), MF_ERR_NO_MEMORY. */
mf_status mf_backend_open(const mf_backend_options *options, mf_backend **out, mf_error *error);
/* The same, for whoever brings a backend of their own. */
typedef mf_status (*mf_backend_open_fn)(void *ctx, const mf_backend_options *options,
                                        mf_backend **out, mf_error *error);

/* MF_ERR_ARGUMENT, with those that there are, for a name that mf_backend_open does not know. */
mf_status mf_backend_check_device(const char *option, const char *device, mf_error *error);
/* The same of the option expert_device, where there is one more. */
mf_status mf_backend_check_expert_device(const char *device, mf_error *error);
/* The device that a known name stands for: the CPU for "auto" and NULL. */
const char *mf_backend_device(const char *device);
/* Whether experts have another device than the rest; "auto" and NULL: the same. */
bool mf_backend_are_apart(const char *device, const char *expert_device);
/* The name of an expert device: the CPU, but that those of long runs are multiplied by the device
 * that the rest has. "hybrid:N": that device has those of the first N layers of experts for good,
 * "hybrid:auto": of as many as it has room for. */
#define MF_DEVICE_HYBRID "hybrid"
bool mf_backend_is_hybrid(const char *expert_device);
/* N, of any other name 0. */
#define MF_GIVEN_AUTO UINT32_MAX
uint32_t mf_backend_given_layers(const char *expert_device);

/* Bytes of the process's memory, at most, that the device takes beside buffers and scratch for n
 * rows of at most n_cols floats in a form of its own. Can be asked before it is opened. */
uint64_t mf_backend_host_bytes(const char *device, uint64_t n_rows, uint64_t n_cols);

/* The same of what its driver takes, of an engine with n_threads. */
uint64_t mf_backend_driver_bytes(const char *device, uint32_t n_threads);
/* What the model's operations may be as large as. */
typedef struct mf_backend_sizes {
    uint64_t n_rows, n_cols; /* rows of at most so many floats, at once */
    uint64_t n_sequences, n_pages;
    bool may_be_mixed; /* of rows in float16 too */
} mf_backend_sizes;
/* Bytes of the device's memory, at most, that it takes beside buffers, where device_bytes bounds
 * them; 0: it takes no promise. */
uint64_t mf_backend_device_bytes(const char *device, const mf_backend_sizes *sizes);

/* The use for operands that are read from disk: MF_USE_HOST where the device's memory is the
 * process's own anyway, so that they can be read to where they stay, else MF_USE_DEVICE. */
mf_buffer_use mf_backend_operand_use(const mf_backend *be);
/* ops->gather and ops->gathered, where there are. */
void mf_backend_gather(mf_backend *be);
mf_status mf_backend_gathered(mf_backend *be, mf_error *error);
bool mf_backend_is_mixed(const mf_backend *be);
/* ops->reserve, or MF_ERR_UNSUPPORTED for an operation that the device lacks. */
mf_status mf_backend_reserve(mf_backend *be, const mf_op *op, mf_error *error);
/* ops->upload_ahead, or uploads in the stream. */
mf_ticket mf_backend_upload_ahead(mf_backend *be, const mf_upload *uploads, uint32_t n);
/* Waits for everything up to now. */
mf_status mf_backend_finish(mf_backend *be, mf_error *error);
/* ops->read, and waits for it. */
mf_status mf_backend_read(mf_backend *be, mf_span src, void *dest, uint64_t n_bytes,
                          mf_error *error);

#endif
