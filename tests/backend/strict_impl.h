/* SPDX-License-Identifier: MIT */
/* What the strict backend's two files share: strict_backend.c has the interface and the memory,
 * strict_stream.c what is recorded, and the order in which it runs. */
#ifndef MF_TESTS_STRICT_IMPL_H
#define MF_TESTS_STRICT_IMPL_H

#include "strict_backend.h"

#include "backend/op_spans.h"

#include <pthread.h>

#define STRICT_MAX_BUFFERS 1024
#define STRICT_KINDS 64
/* No byte of the device is a number until it has been written. */
#define STRICT_POISON 0xff

typedef struct strict_use {
    mf_span span;
    uint64_t n_bytes;
    uint32_t access;
} strict_use;

typedef enum strict_kind {
    STRICT_OP,
    STRICT_WRITE,
    STRICT_UPLOAD,
    STRICT_COPY,
    STRICT_READ,
    STRICT_DISCARD,
    STRICT_FREE
} strict_kind;

/* A batch's sequences, kept as long as an operation or the recorder refers to them. */
typedef struct strict_batch {
    uint32_t n_refs, n;
    uint64_t number;
    mf_sequence *sequences;
} strict_batch;

/* Something recorded. */
typedef struct strict_entry {
    struct strict_entry *next;
    strict_kind kind;
    mf_ticket place; /* in the stream */
    mf_op op;
    strict_batch *batch;
    mf_span to, from;
    uint64_t n_bytes;
    const void *src;
    void *dest;
    bool is_ahead; /* an upload ahead of the stream */
    strict_use *uses;
    uint32_t n_uses;
    void **blocks; /* copies that it owns */
    uint32_t n_blocks;
} strict_entry;

typedef enum strict_early {
    STRICT_NOT_EARLY,
    STRICT_EARLY,     /* what is recorded is early */
    STRICT_EARLY_KEPT /* until something else is */
} strict_early;

typedef struct strict_memory {
    unsigned char *base; /* NULL: there is no such buffer */
    uint64_t n_bytes;
    mf_buffer_use use;
    bool is_freed; /* by the host; what is recorded may still use it */
    bool is_open;  /* its pages can be touched */
    uint32_t next_open;
} strict_memory;

typedef struct strict_backend {
    mf_backend base;
    mf_backend *inner; /* the CPU's; buffer ids are its own */
    strict_options options;
    /* Of all that follows and of the inner backend; of one thread several times: from begin_early
     * to end_early it is held. */
    pthread_mutex_t lock;
    strict_memory buffers[STRICT_MAX_BUFFERS];
    uint64_t device_bytes;
    bool is_reserved[STRICT_KINDS];
    uint32_t first_open; /* id of the first buffer that is open */
    bool is_lost;
    uint64_t random;
    strict_entry *first, **end;
    strict_early early;
    strict_entry *early_first, **early_end;
    mf_ticket last, executed, reported;
    uint32_t n_asks_left; /* until what has run counts as done */
    uint64_t copied_bytes;
    strict_batch *batch; /* of what is recorded next */
    uint64_t n_batches, inner_batch;
    strict_stats stats;
} strict_backend;

/* Prints what broke the contract and ends the program. */
_Noreturn void strict_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The memory of a span's buffer, which must exist and hold the bytes. */
strict_memory *strict_memory_of(strict_backend *be, mf_span span, uint64_t n_bytes,
                                const char *what);
/* The host can touch the buffer's bytes until doors are closed. */
void strict_open_door(strict_backend *be, mf_buffer buffer);
void strict_close_doors(strict_backend *be);
/* The buffer is gone. */
void strict_drop_buffer(strict_backend *be, mf_buffer buffer);

/* A new last entry, which strict_record then gives its place. */
strict_entry *strict_entry_new(strict_kind kind);
void strict_entry_use(strict_entry *e, mf_span span, uint64_t n_bytes, uint32_t access);
/* A copy that lives as long as the entry. */
void *strict_entry_keep(strict_entry *e, const void *bytes, size_t n_bytes);
mf_ticket strict_record(strict_backend *be, strict_entry *e);
void strict_record_op(strict_backend *be, const mf_op *op);
void strict_begin_batch(strict_backend *be, const mf_sequence *sequences, uint32_t n);
/* backend.h's begin_early, end_early, take_early; sometimes nothing is kept. */
bool strict_begin_early(strict_backend *be);
bool strict_end_early(strict_backend *be);
bool strict_take_early(strict_backend *be, const int32_t *tokens, uint32_t n);
/* Runs everything up to this place. */
void strict_run_to(strict_backend *be, mf_ticket place);
/* Nothing more of what is recorded runs; buffers that were freed go. */
void strict_drop_all(strict_backend *be);

#endif
