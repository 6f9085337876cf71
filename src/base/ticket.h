/* SPDX-License-Identifier: MIT */
/*
 * Tickets: a device's work has a point in its stream, and who must not touch what that work uses
 * asks whether the point is reached. Tickets of one stream rise and are done in that order. 0 is
 * done already.
 */
#ifndef MF_BASE_TICKET_H
#define MF_BASE_TICKET_H

#include <stdint.h>

typedef uint64_t mf_ticket;

#endif
