/* SPDX-License-Identifier: MIT */
/*
 * Which bytes an operation touches, from its parameters alone: what a backend that lets operations
 * overlap, or runs them in another order, finds their hazards by.
 */
#ifndef MF_BACKEND_OP_SPANS_H
#define MF_BACKEND_OP_SPANS_H

#include "backend/op.h"

typedef enum mf_access {
    MF_READS = 1,
    MF_WRITES = 2,
    MF_LOSES = 4 /* whatever the bytes were, they are anything afterwards */
} mf_access;

/* n_bytes > 0; access: mf_access, or'ed. */
typedef void (*mf_op_span_fn)(void *ctx, mf_span span, uint64_t n_bytes, uint32_t access);

/* Calls visit for every run of bytes that the operation reads, writes or loses, of the batch with
 * these sequences. Runs of reads and writes may cover bytes between rows that are not touched, and
 * rows that are not chosen; those that are lost, or written whole pages of, are exact. Two
 * operations of which neither writes or loses what the other touches may be run in either order. */
void mf_op_spans(const mf_op *op, const mf_sequence *sequences, uint32_t n_sequences,
                 mf_op_span_fn visit, void *ctx);

#endif
