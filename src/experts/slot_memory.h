/* SPDX-License-Identifier: MIT */
/*
 * The memory that holds the slots, as the expert store sees it: bytes that the host can reach, or a
 * device's, which are reached by uploads. The store knows no backend; who opens it fills this in.
 */
#ifndef MF_EXPERTS_SLOT_MEMORY_H
#define MF_EXPERTS_SLOT_MEMORY_H

#include "base/status.h"
#include "base/ticket.h"

#include <stdbool.h>

/* Bytes on their way to slot memory. */
typedef struct mf_slot_piece {
    uint64_t slot_at;
    const unsigned char *from;
    uint64_t n_bytes;
} mf_slot_piece;

typedef struct mf_slot_memory {
    uint64_t n_bytes;
    /* Aligned to MF_IO_ALIGN, and reads land in it; or NULL: the host cannot reach the slots. */
    unsigned char *host;
    void *ctx;
    /* Whether a ticket is done, and waiting for it. NULL where no ticket but 0 is ever given. A
     * failure of wait_for (a device that is lost) fails the fetch that waited. */
    bool (*is_done)(void *ctx, mf_ticket ticket);
    mf_status (*wait_for)(void *ctx, mf_ticket ticket, mf_error *error);
    /* Where host is NULL: copies n pieces, all or none, in the order of the stream: operations
     * recorded before read the old bytes, those recorded after the new ones. What they come from is
     * left alone until the ticket is done. */
    mf_status (*upload)(void *ctx, const mf_slot_piece *pieces, uint32_t n, mf_ticket *ticket,
                        mf_error *error);
    /* These bytes are not needed any more; true if their memory is given back. NULL: it cannot be.
     */
    bool (*discard)(void *ctx, uint64_t at, uint64_t n_bytes);
} mf_slot_memory;

#endif
