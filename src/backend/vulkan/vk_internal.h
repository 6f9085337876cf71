/* SPDX-License-Identifier: MIT */
/*
 * What the Vulkan backend's files share.
 *
 *   vk_api, vk_device, vk_features   the driver's functions; finding and opening a device
 *   vk_memory, vk_sparse             large allocations, and buffers cut from them or made of them
 *   vk_stream, vk_hazards            command buffers, submissions, tickets; barriers
 *   vk_early                         commands recorded before it is known whether they come next
 *   vk_conditions                    operations that a word leaves undone
 *   vk_rings, vk_transfer            bytes in flight; writes, uploads, copies, reads
 *   vk_ahead                         uploads on a queue of their own, beside the stream
 *   vk_pipelines, vk_cache           compute pipelines by shader and constants; their file
 *   vk_batch                         the batch's sequences, as shaders read them
 *   vk_measure, vk_timing            what the device can do, and what it did when
 *   vk_ops and vk_op_*.c             the table of operations, and what each dispatches
 *   vk_seen                          attention to what is gathered for a row, or chosen for it
 *   vk_grid                          dispatches whose workgroups wait for each other
 *   vk_op_mixture, vk_op_linear_row, vk_op_attend_row, vk_op_latent_row
 *                                    a row's mixture of experts, its attention in one of them
 *   vk_product, vk_product_kernels, vk_grouped, vk_experts_out
 *                                    products; those of experts by the rows that chose them
 *   vk_backend                       the interface of backend.h
 *
 * Everything here is called with the backend's lock held, but where it says otherwise.
 *
 * Shaders reach memory by 64-bit addresses that come as push constants. There are no descriptors:
 * any byte of any buffer is an operand without a binding's limits (4 GiB - 1, or 128 MiB on
 * lavapipe), without sets to allocate, update and keep alive, and an expert is found by a number in
 * a table. Vulkan 1.3 has it everywhere (MoltenVK from macOS 13).
 */
#ifndef MF_BACKEND_VULKAN_VK_INTERNAL_H
#define MF_BACKEND_VULKAN_VK_INTERNAL_H

#include "backend/op_spans.h"
#include "backend/vulkan/vk_device.h"
#include "backend/vulkan/vk_shaders.h"

#include <pthread.h>

#define MF_VK_MAX_BUFFERS 1024 /* ids 1 .. n; the backend's own have those after */
#define MF_VK_MAX_IDS (MF_VK_MAX_BUFFERS + 16)
#define MF_VK_MAX_BLOCKS 1024
#define MF_VK_SUBMISSIONS 16
#define MF_VK_MAX_READS 256
#define MF_VK_MAX_ACCESSES 256
#define MF_VK_MAX_TOUCHES 128
#define MF_VK_MAX_CONSTANTS 19
#define MF_VK_MOST_PIPELINES 2048
#define MF_VK_MAX_PIPELINES (2 * MF_VK_MOST_PIPELINES) /* their places: half of them stay free */
/* Threads that make pipelines, at most: each takes memory of the driver's. */
#define MF_VK_MAKERS 16u
#define MF_VK_BATCHES 8
#define MF_VK_CONV_WIDTH 16u /* of a convolution, at most */

typedef struct mf_vk_backend mf_vk_backend;

/* ---------------------------------------------------------------------------------- memory -- */

/* Where memory lies. */
typedef enum mf_vk_place {
    MF_VK_ON_DEVICE = 0, /* best for the device */
    MF_VK_ON_HOST,       /* the host's, cached: operands, staging */
    MF_VK_SHARED,        /* on the device where the host can write there too: parameters */
    MF_VK_PLACES
} mf_vk_place;

/* One allocation. */
typedef struct mf_vk_block {
    VkDeviceMemory memory; /* none: the block is free */
    mf_vk_place place;
    bool has_operands;   /* on the host: it is not for bytes on their way */
    bool is_counted;     /* among device_bytes */
    bool is_instead;     /* of MF_VK_SHARED, but the host's: the device had none left */
    mf_region region;    /* of the process, imported; empty: the driver's own memory */
    unsigned char *host; /* where the host sees it; NULL: nowhere */
    uint64_t n_bytes;
    uint32_t heap;
    uint32_t first; /* id of the first buffer in it, by offset; 0: none */
    uint32_t more;  /* the next block + 1 of a buffer that has several; 0: none */
} mf_vk_block;

typedef struct mf_vk_memory {
    VkBuffer buffer; /* none: the id is free */
    uint32_t block;
    uint32_t next;        /* id of the next in the block */
    uint64_t begin, size; /* within the block */
    uint64_t n_bytes;     /* asked for */
    uint64_t address;     /* the device's */
    unsigned char *host;
    mf_buffer_use use;
    bool is_freed;      /* goes once last_use is done */
    mf_ticket last_use; /* of one that is freed */
} mf_vk_memory;

typedef struct mf_vk_request {
    uint64_t n_bytes;
    mf_vk_place place;
    mf_buffer_use use;
    bool is_internal; /* the backend's own */
    const char *what;
    unsigned char *given; /* of MF_VK_ON_HOST, aligned to 4096: memory that there is; or NULL */
} mf_vk_request;

/* Memory of the process's that is uploaded from, in buffers of each_bytes. */
#define MF_VK_MAX_REACHED 256
typedef struct mf_vk_reached {
    unsigned char *base;
    uint64_t n_bytes, each_bytes; /* 0: there is none */
    mf_buffer buffers[MF_VK_MAX_REACHED];
    bool is_tried[MF_VK_MAX_REACHED];
} mf_vk_reached;

/* Whether MF_VK_SHARED is memory of the device's own. */
bool mf_vk_shares_memory(const mf_vk_device *d);
/* A device's buffer that is larger than an allocation may be. */
bool mf_vk_is_sparse(const mf_vk_backend *be, const mf_vk_request *r);
mf_status mf_vk_sparse_bind(mf_vk_backend *be, uint32_t id, const VkMemoryRequirements *needs,
                            const char *what, mf_error *error);
/* One allocation; a block of it. */
mf_status mf_vk_block_create(mf_vk_backend *be, const mf_vk_request *r, uint32_t type_bits,
                             uint32_t *out, mf_error *error);
/* With those that follow it. */
void mf_vk_block_free(mf_vk_backend *be, mf_vk_block *b);

mf_status mf_vk_buffer_create(mf_vk_backend *be, const mf_vk_request *r, mf_buffer *out,
                              mf_error *error);
/* At once: nothing uses it any more. */
void mf_vk_buffer_drop(mf_vk_backend *be, mf_buffer buffer);
/* See mf_backend_ops.reach. */
void mf_vk_reach(mf_vk_backend *be, unsigned char *memory, uint64_t n_bytes, uint64_t unit_bytes);
/* The buffer of MF_USE_HOST or MF_USE_STAGING, or of reached memory, that the host's bytes lie in,
 * and where; id 0: none.
 */
mf_span mf_vk_span_of_host(mf_vk_backend *be, const void *bytes, uint64_t n_bytes);
uint32_t mf_vk_memories(mf_vk_backend *be, mf_backend_memory *out);
/* Frees everything. */
void mf_vk_memory_close(mf_vk_backend *be);

/* --------------------------------------------------------------------------------- rings -- */

/* Bytes that are handed out round and round; what a submission took comes back when it is done. */
typedef struct mf_vk_ring {
    mf_buffer buffer;
    uint64_t n_bytes;
    uint64_t head, tail;  /* ever rising; at % n_bytes */
    uint64_t most_needed; /* by one operation */
} mf_vk_ring;

typedef enum mf_vk_ring_use {
    MF_VK_RING_UP = 0, /* the host's bytes on their way to the device */
    MF_VK_RING_DOWN,
    MF_VK_RING_PARAMETERS, /* arrays that shaders read, as mf_vk_parameters gives */
    MF_VK_RING_SCRATCH,    /* on the device, between the dispatches of an operation */
    MF_VK_RINGS
} mf_vk_ring_use;

/* ------------------------------------------------------------------------------ the stream -- */

typedef struct mf_vk_submission {
    VkCommandPool pool;
    VkCommandBuffer commands;
    mf_ticket ticket;
    uint64_t ring_heads[MF_VK_RINGS]; /* when it was submitted */
    uint64_t awaits;                  /* the upload ahead that it begins after; 0: none */
    bool is_ready;                    /* its commands have begun */
} mf_vk_submission;

/* A read whose bytes go from the ring to their destination when it is done. */
typedef struct mf_vk_read {
    mf_ticket ticket;
    uint64_t at; /* in the ring's buffer */
    void *dest;
    uint64_t n_bytes;
} mf_vk_read;

/* Device addresses that work touches. */
typedef struct mf_vk_access {
    uint64_t begin, end;
    uint32_t buffer; /* id */
    bool is_write;
} mf_vk_access;

typedef struct mf_vk_stream {
    VkSemaphore timeline;
    mf_vk_submission submissions[MF_VK_SUBMISSIONS]; /* ticket % n */
    mf_vk_submission *open;                          /* NULL: none */
    VkCommandBuffer commands;                        /* of the open one */
    mf_ticket submitted, retired;
    uint32_t n_commands, most_commands; /* in the open one; when it is submitted */
    uint32_t step;                      /* of submissions since the device was idle */
    uint64_t n_upload_bytes;            /* in the open one */
    VkPipeline bound;
    mf_vk_access accesses[MF_VK_MAX_ACCESSES]; /* since the last barrier */
    uint32_t n_accesses;
    bool accesses_all;                       /* more than could be kept */
    mf_vk_access touches[MF_VK_MAX_TOUCHES]; /* of the operation or copy at hand */
    uint32_t n_touches, n_settled;           /* of them, among the accesses */
    bool touches_all;
    mf_span when;               /* of the operation at hand: mf_op.when */
    uint64_t condition;         /* address of the word that commands are under; 0: none */
    bool is_condition_stale;    /* it has been written since */
    bool has_unseen_conditions; /* words were written since a barrier for them */
    mf_vk_read reads[MF_VK_MAX_READS];
    uint32_t first_read, n_reads;
    _Atomic(mf_status) lost; /* MF_OK: it is not */
    char why[128];
    uint64_t n_barriers, n_dispatches; /* ever, for tests and statistics */
    VkMemoryBarrier2 barrier;          /* what mf_vk_barrier puts into the stream */
} mf_vk_stream;

typedef enum mf_vk_early_state {
    MF_VK_NOT_EARLY = 0,
    MF_VK_EARLY,         /* what is called is recorded early */
    MF_VK_EARLY_IN_VAIN, /* the same, but it had to be dropped already: nothing is recorded */
    MF_VK_EARLY_KEPT     /* it is complete, and not of the stream yet */
} mf_vk_early_state;

/* The submission that is early, and what was before it. */
typedef struct mf_vk_early {
    mf_vk_early_state state;
    mf_vk_submission *kept; /* while it is recorded it is the open one */
    uint64_t ring_heads[MF_VK_RINGS];
    uint32_t n_reads;      /* its own */
    uint64_t weight_bytes; /* before; of one that is kept: what it will add */
    void *tokens;          /* of its MF_OP_EMBED, where the host writes; NULL: it has none */
    uint32_t n_tokens;
} mf_vk_early;

/* A pool and its command buffer, for a queue of the family. */
VkResult mf_vk_submission_create(const mf_vk_device *d, uint32_t family, mf_vk_submission *s);
VkResult mf_vk_timeline_create(const mf_vk_device *d, VkSemaphore *out);
/* What a queue has of these, all or a part. */
void mf_vk_submissions_free(const mf_vk_device *d,
                            const mf_vk_submission submissions[MF_VK_SUBMISSIONS],
                            VkSemaphore timeline);
mf_status mf_vk_stream_open(mf_vk_backend *be, mf_error *error);
void mf_vk_stream_close(mf_vk_backend *be);
/* Sees to it that there is an open submission; false: the device is lost. */
bool mf_vk_begin(mf_vk_backend *be);
/* Hands the open submission to the device, if there is one. */
void mf_vk_submit(mf_vk_backend *be);
/* Makes the next submissions' commands ready while the caller has nothing to do but wait. */
void mf_vk_make_ready(mf_vk_backend *be);
/* After a command: submits what has become long. */
void mf_vk_command_done(mf_vk_backend *be);
mf_ticket mf_vk_present(const mf_vk_backend *be);
/* The two halves of mf_vk_submit: the open one's commands are complete, and none is open; one is
 * the stream's. */
mf_vk_submission *mf_vk_submission_close(mf_vk_backend *be);
void mf_vk_submission_hand_over(mf_vk_backend *be, mf_vk_submission *s);

/* vk_early.c, as backend.h's begin_early, end_early, take_early. */
bool mf_vk_early_begin(mf_vk_backend *be);
bool mf_vk_early_end(mf_vk_backend *be);
bool mf_vk_early_take(mf_vk_backend *be, const int32_t *tokens, uint32_t n);
/* Something else comes next, or what was recorded early cannot be kept: there is none any more. */
void mf_vk_early_drop(mf_vk_backend *be);
/* Its MF_OP_EMBED, if something is recorded early, has its tokens there. */
void mf_vk_early_tokens(mf_vk_backend *be, void *tokens, uint32_t n);

/* Takes in what is done: reads, frees, rings. */
void mf_vk_retire(mf_vk_backend *be);
/* Waits with the lock held: for room, which is rare. */
void mf_vk_wait_in_lock(mf_vk_backend *be, mf_ticket ticket);
/* The same without it; a ticket of an upload ahead too. */
VkResult mf_vk_wait(mf_vk_backend *be, mf_ticket ticket);
/* From here on nothing is recorded, and who waits is told why. */
void mf_vk_lost(mf_vk_backend *be, VkResult result, const char *what);
void mf_vk_give_up(mf_vk_backend *be, const mf_error *error);

/* vk_hazards.c. What the operation or copy at hand touches (mf_access) is said first; settle then
 * puts a barrier before its first command where that must not overlap with what is recorded since
 * the last one. */
void mf_vk_touch(mf_vk_backend *be, mf_span span, uint64_t n_bytes, uint32_t access);
void mf_vk_settle(mf_vk_backend *be);
/* The next operation or copy begins. */
void mf_vk_next(mf_vk_backend *be);
/* Everything before it is done and seen by everything after it. */
void mf_vk_barrier(mf_vk_backend *be);

/* vk_conditions.c. Whether the next dispatch is to be under another word than the last one was, and
 * whether that has to wait for a barrier first. */
bool mf_vk_condition_changes(const mf_vk_backend *be);
bool mf_vk_condition_waits(const mf_vk_backend *be);
/* After settling: the next dispatch is done if the operation's word says so. */
void mf_vk_condition_set(mf_vk_backend *be);
/* No command is under a word any more. */
void mf_vk_condition_end(mf_vk_backend *be);

/* vk_rings.c */
mf_status mf_vk_rings_open(mf_vk_backend *be, mf_error *error);
/* Waits until so many bytes can be taken one after the other; false: lost. */
bool mf_vk_ring_room(mf_vk_backend *be, mf_vk_ring_use use, uint64_t n_bytes);
/* n bytes of a ring, aligned to 256; waits for room. False: lost. */
bool mf_vk_ring_take(mf_vk_backend *be, mf_vk_ring_use use, uint64_t n_bytes, mf_span *out);
/* What an operation takes at most, all together: the ring is made to hold it. */
mf_status mf_vk_ring_need(mf_vk_backend *be, mf_vk_ring_use use, uint64_t n_bytes, mf_error *error);

/* --------------------------------------------------------------------------- uploads ahead -- */

#define MF_VK_AHEAD_PENDING 256
/* Tickets of uploads ahead: the value of their semaphore with this bit. */
#define MF_VK_AHEAD_BIT ((mf_ticket)1 << 63)

/* Bytes that an upload ahead writes, and that no submission of the stream begins after yet. */
typedef struct mf_vk_arrival {
    uint64_t begin, end; /* device addresses */
    uint64_t value;      /* of the semaphore, once they are there */
} mf_vk_arrival;

/* The submissions of a queue that copies beside the stream's; all zero: the device has none. Values
 * of its semaphore count them. */
typedef struct mf_vk_ahead {
    VkQueue queue;
    VkSemaphore timeline;
    mf_vk_submission submissions[MF_VK_SUBMISSIONS]; /* value % n; ticket: the value */
    mf_vk_submission *open;                          /* NULL: none */
    uint64_t submitted, retired, awaited;            /* awaited: by the stream */
    uint64_t n_bytes;                                /* in the open one */
    mf_vk_arrival pending[MF_VK_AHEAD_PENDING];
    uint32_t n_pending;
    uint64_t forgotten; /* the last of those that found no room among them */
} mf_vk_ahead;

mf_status mf_vk_ahead_open(mf_vk_backend *be, mf_error *error);
void mf_vk_ahead_close(mf_vk_backend *be);
mf_ticket mf_vk_upload_ahead(mf_vk_backend *be, const mf_upload *uploads, uint32_t n);
/* Hands what is open to the device. */
void mf_vk_ahead_submit(mf_vk_backend *be);
/* What is called next in the stream uses these bytes: its submission begins after what arrives
 * there. May end the open one, so before anything of an operation is taken or recorded. */
void mf_vk_ahead_await(mf_vk_backend *be, mf_span span, uint64_t n_bytes);
/* The same for all that the operation at hand touches. */
void mf_vk_ahead_await_touched(mf_vk_backend *be);
/* Of a ticket with the bit. */
bool mf_vk_ahead_done(mf_vk_backend *be, mf_ticket ticket);

/* ------------------------------------------------------------------------------- transfers -- */

void mf_vk_write(mf_vk_backend *be, mf_span dest, const void *src, uint64_t n_bytes);
void mf_vk_upload(mf_vk_backend *be, mf_span dest, const void *src, uint64_t n_bytes);
void mf_vk_copy(mf_vk_backend *be, mf_span dest, mf_span src, uint64_t n_bytes);
void mf_vk_read_back(mf_vk_backend *be, mf_span src, void *dest, uint64_t n_bytes);

/* ------------------------------------------------------------------------------- pipelines -- */

/* A shader with its specialisation constants 0 .. n_constants - 1; constant 0 is the number of
 * invocations of a workgroup. */
typedef struct mf_vk_kernel {
    mf_vk_shader shader;
    uint32_t n_constants;
    uint32_t constants[MF_VK_MAX_CONSTANTS];
} mf_vk_kernel;

typedef struct mf_vk_pipeline {
    mf_vk_kernel kernel; /* n_constants 0: the place is free */
    VkPipeline handle;   /* none: it waits, or could not be made, for this reason: */
    VkResult result;
} mf_vk_pipeline;

typedef struct mf_vk_pipelines {
    VkPipelineLayout layout;
    VkPipelineCache cache;
    mf_vk_pipeline places[MF_VK_MAX_PIPELINES]; /* by hash */
    uint32_t n;
    uint32_t waiting[MF_VK_MOST_PIPELINES], n_waiting; /* places: they are to be made */
    bool gathers;                                      /* as gathered will */
    uint64_t file_bytes;                               /* that the cache was opened with */
} mf_vk_pipelines;

mf_status mf_vk_pipelines_open(mf_vk_backend *be, mf_error *error);
void mf_vk_pipelines_close(mf_vk_backend *be);
/* vk_cache.c: the file is named, read when pipelines open, written when they close. */
void mf_vk_cache_name(mf_vk_backend *be, const char *folder);
mf_status mf_vk_cache_open(mf_vk_backend *be, mf_error *error);
void mf_vk_cache_close(mf_vk_backend *be);

/* Makes the kernel's pipeline, if it is not there yet: from reserve. */
mf_status mf_vk_prepare(mf_vk_backend *be, const mf_vk_kernel *kernel, mf_error *error);
/* As that, of a shader whose workgroup's size is all that it is made with. */
mf_status mf_vk_prepare_shader(mf_vk_backend *be, mf_vk_shader shader, uint32_t n_threads,
                               mf_error *error);
/* From gather to gathered pipelines are only noted, and then made side by side. */
void mf_vk_gather(mf_vk_backend *be);
mf_status mf_vk_gathered(mf_vk_backend *be, mf_error *error);
/* Runs it: groups in x, y, z; nothing if one is 0. Its pipeline has been prepared, its bytes have
 * been touched. */
void mf_vk_dispatch(mf_vk_backend *be, const mf_vk_kernel *kernel, const void *push,
                    uint32_t push_bytes, const uint32_t groups[3]);

/* ----------------------------------------------------------------------------------- batch -- */

/* As common.glsl's Sequence. */
typedef struct mf_vk_sequence {
    uint32_t first_row, n_rows, position, n_pages;
    uint64_t pages, before, after;
} mf_vk_sequence;

typedef struct mf_vk_batch {
    mf_span memory; /* of the n-th batch: its sequences, these with their windows' pages, the
                       lists of pages */
    mf_ticket last_use;
} mf_vk_batch;

typedef struct mf_vk_batches {
    mf_buffer buffer;
    uint64_t n_bytes; /* of each */
    uint32_t most_sequences;
    mf_vk_batch batches[MF_VK_BATCHES];
    uint32_t current;
    mf_sequence *sequences; /* of the current one, for spans; pages in `pages` */
    mf_span *pages;
    uint32_t n_sequences;
    size_t most_pages;
} mf_vk_batches;

/* As common.glsl's Single: the batch's only sequence; n_rows 0: there are several. */
typedef struct mf_vk_single {
    uint64_t before, after;
    uint32_t first_row, n_rows;
} mf_vk_single;
mf_vk_single mf_vk_batch_single(const mf_vk_backend *be);

mf_status mf_vk_batch_reserve(mf_vk_backend *be, uint32_t n_sequences, size_t n_pages,
                              mf_error *error);
void mf_vk_batch_begin(mf_vk_backend *be, const mf_sequence *sequences, uint32_t n);
void mf_vk_batch_close(mf_vk_backend *be);
/* Where shaders find the batch's sequences (common.glsl's Sequences). */
uint64_t mf_vk_batch_address(const mf_vk_backend *be);
/* The same with the pages of their windows in place of all. */
uint64_t mf_vk_batch_window_address(const mf_vk_backend *be);

/* -------------------------------------------------------------------------------- operations -- */

/* What an operation's file gives to the table of vk_ops.c. */
typedef struct mf_vk_op {
    /* Whether shaders for these forms and sizes exist. */
    bool (*supports)(const mf_vk_backend *be, const mf_op *op);
    /* Prepares every pipeline, and sees to the room, that recording at most these sizes needs. */
    mf_status (*reserve)(mf_vk_backend *be, const mf_op *op, mf_error *error);
    /* Dispatches. The operation's spans (op_spans.h) have been touched already. */
    void (*record)(mf_vk_backend *be, const mf_op *op);
} mf_vk_op;

bool mf_vk_op_supports(const mf_vk_backend *be, const mf_op *op);
mf_status mf_vk_op_reserve(mf_vk_backend *be, const mf_op *op, mf_error *error);
void mf_vk_op_record(mf_vk_backend *be, const mf_op *op);

/* The constants 1 .. MF_VK_WEIGHT_CONSTANTS of shaders that include weights.glsl. */
#define MF_VK_WEIGHT_CONSTANTS 5
void mf_vk_weight_constants(const mf_weight_shape *shape, mf_vk_kernel *kernel);
/* Whether it is blocks of which a lane has 32 columns that lie together (blocks.glsl). */
bool mf_vk_is_blocks(const mf_weight_shape *shape);
/* As weights.glsl's Weight: where the arrays are. */
typedef struct mf_vk_weight {
    uint64_t values, scales, biases;
} mf_vk_weight;
mf_vk_weight mf_vk_weight_at(const mf_vk_backend *be, const mf_weight *w);

/* Within an operation: what it dispatched before is done and seen by what follows. */
void mf_vk_step(mf_vk_backend *be);
/* Room for an array that shaders read, to be written at once by the host: sequentially, it may be
 * slow to read. Its address goes into *address. All of an operation's together are at most what it
 * asked for by mf_vk_ring_need(MF_VK_RING_PARAMETERS) in its reserve. */
void *mf_vk_parameters(mf_vk_backend *be, uint64_t n_bytes, uint64_t *address);
/* The same, filled; its address. */
uint64_t mf_vk_array(mf_vk_backend *be, const void *values, uint64_t n_bytes);
/* Room on the device for what goes from one dispatch of the operation to the next; at most what
 * it asked for by mf_vk_ring_need(MF_VK_RING_SCRATCH). */
uint64_t mf_vk_scratch(mf_vk_backend *be, uint64_t n_bytes);

extern const mf_vk_op mf_vk_op_embed, mf_vk_op_copy_rows, mf_vk_op_rmsnorm, mf_vk_op_rmsnorm_gated,
    mf_vk_op_add, mf_vk_op_swiglu, mf_vk_op_sigmoid_mul, mf_vk_op_rope, mf_vk_op_finite;
extern const mf_vk_op mf_vk_op_head_norm_rope, mf_vk_op_attention, mf_vk_op_latent_attention,
    mf_vk_op_conv1d_silu, mf_vk_op_gated_delta;
extern const mf_vk_op mf_vk_op_matmul, mf_vk_op_head_matmul, mf_vk_op_route, mf_vk_op_experts,
    mf_vk_op_routed_experts, mf_vk_op_combine, mf_vk_op_mixture, mf_vk_op_linear_row,
    mf_vk_op_attend_row, mf_vk_op_latent_row, mf_vk_op_to_host, mf_vk_op_from_host;
extern const mf_vk_op mf_vk_op_streams_in, mf_vk_op_streams_out, mf_vk_op_compress,
    mf_vk_op_entry_attention;

/* vk_op_linear.c: what the delta rule multiplies queries with. */
float mf_vk_query_scale(const mf_gated_delta_params *p);

/* How many chunks of a row a lane of matvec_one.comp goes through with its x, and how many of them
 * are on their way at once, where there are so many chunks. */
typedef struct mf_vk_way {
    uint32_t n_chunks, n_ahead;
    uint64_t n_needed;
} mf_vk_way;

/* What was found on an H200 and changes no bit: a bench may try something else before anything is
 * reserved. */
#define MF_VK_N_WAYS 5u
typedef struct mf_vk_tuning {
    mf_vk_way ways[MF_VK_N_WAYS];        /* the first has n_needed 0, the others rise */
    mf_vk_way affine_ways[MF_VK_N_WAYS]; /* of affine weights, read widely; needed by as many */
    mf_vk_way block_ways[MF_VK_N_WAYS];  /* of blocks, likewise */
    mf_vk_way long_ways[MF_VK_N_WAYS];   /* of affine weights whose rows have many tiles */
    mf_vk_way narrow_way;                /* one tile of a row at a time, where that saves some */
    uint32_t attention_ahead; /* slices of keys on their way in attention of few queries */
    uint32_t team_rows;       /* of a team of experts_out.comp */
    uint32_t unit_groups;     /* workgroups that large tiles of matmul_units.comp leave at least */
} mf_vk_tuning;
extern const mf_vk_tuning mf_vk_tuning_default; /* vk_product_kernels.c */

/* ------------------------------------------------------- workgroups that wait for each other -- */

/* vk_grid.c: what workgroups of one dispatch hand each other. */
typedef struct mf_vk_grid {
    mf_buffer values; /* a value and the number of its dispatch in 8 bytes each */
    uint64_t n_bytes;
    uint32_t epoch;  /* of the last dispatch */
    mf_buffer fault; /* a word of the host's, not 0 once one of them waited in vain */
} mf_vk_grid;

/* Of work that is done: whether one of them did. Then the device is given up. */
bool mf_vk_grid_failed(mf_vk_backend *be);

/* -------------------------------------------------------------------------------- timing -- */

#define MF_VK_MAX_TIMES 192u /* of a submission */

/* vk_timing.c */
typedef struct mf_vk_timing {
    VkQueryPool pool; /* none: no time is taken */
    double ns_per_tick;
    uint64_t mask;
    uint32_t n[MF_VK_SUBMISSIONS]; /* timestamps of each, the one at its begin included */
    uint8_t kinds[MF_VK_SUBMISSIONS][MF_VK_MAX_TIMES];
    mf_op_time times[MF_N_OP_KINDS];
} mf_vk_timing;

mf_status mf_vk_timing_set(mf_vk_backend *be, bool is_on, mf_error *error);
void mf_vk_timing_read(mf_vk_backend *be, mf_op_time *out);
void mf_vk_timing_close(mf_vk_backend *be);
/* A submission begins; an operation has been recorded. */
void mf_vk_timing_begin(mf_vk_backend *be, uint32_t submission);
void mf_vk_timing_op(mf_vk_backend *be, mf_op_kind kind);

/* ------------------------------------------------------------------------------- the backend -- */

struct mf_vk_backend {
    mf_backend base;
    mf_allocator allocator;
    mf_vk_device device;
    pthread_mutex_t lock; /* of all that follows; of one thread several times */
    bool is_held;         /* by whoever called hold */
    mf_vk_block blocks[MF_VK_MAX_BLOCKS];
    mf_vk_reached reached;
    mf_vk_memory buffers[MF_VK_MAX_IDS]; /* id - 1 */
    uint32_t n_buffers;                  /* ids that were ever used, without the backend's own */
    uint32_t n_freed;                    /* buffers that go once work is done */
    uint64_t heap_taken[VK_MAX_MEMORY_HEAPS];
    uint64_t promised_bytes; /* of the device's memory, at most; 0: any */
    uint64_t device_bytes;   /* taken of it; of memory that is the host's, by operands */
    mf_vk_ring rings[MF_VK_RINGS];
    mf_vk_stream stream;
    mf_vk_early early;
    mf_vk_ahead ahead;
    mf_vk_pipelines pipelines;
    mf_vk_batches batches;
    mf_vk_timing timing;
    mf_vk_tuning tuning;
    mf_vk_grid grid;
    uint64_t weight_bytes;
    uint32_t n_threads;    /* that make pipelines */
    bool is_mixed;         /* matrix units multiply the rows of operations that are long */
    char cache_path[1024]; /* of the pipelines' file; empty: none */
};

static inline uint64_t mf_vk_address(const mf_vk_backend *be, mf_span span)
{
    return span.buffer.id == 0 ? 0 : be->buffers[span.buffer.id - 1].address + span.offset;
}

/* n / per, rounded up. */
static inline uint32_t mf_vk_groups(uint64_t n, uint32_t per)
{
    return (uint32_t)((n + per - 1) / per);
}

/* vk_measure.c: see backend.h. */
typedef struct mf_vk_measurement {
    const mf_span *spans;
    const uint64_t *span_bytes;
    uint32_t n_spans, n_milliseconds;
} mf_vk_measurement;
mf_status mf_vk_measure(mf_vk_backend *be, const mf_vk_measurement *m, double *bytes_per_second,
                        double *fma_per_second, mf_error *error);

/* vk_backend.c; hooks for tests, or NULL. */
mf_status mf_vk_backend_create(const mf_backend_options *options, const mf_vk_hooks *hooks,
                               mf_backend **out, mf_error *error);

#endif
