/* SPDX-License-Identifier: MIT */
/*
 * A drive and a clock that are numbers, as an I/O engine: a read begins after its latency, which
 * those of others overlap, and then has the drive for itself, in the order of submission. Nothing
 * is read. Whoever computes moves the clock; waiting for a read moves it to the read's end.
 */
#ifndef MF_ROUTING_DRIVE_SIM_H
#define MF_ROUTING_DRIVE_SIM_H

#include "io/io_engine.h"

typedef struct mf_drive_sim {
    double bytes_per_us, latency_us;
    double now_us;
    double waited_us;  /* in collections that waited */
    double reading_us; /* with a read in flight */
    /* Its own: */
    double free_us; /* when the drive has done all that was submitted */
} mf_drive_sim;

/* The clock in whole microseconds; what is beyond them (a drive of a byte a second) is the last. */
#define MF_DRIVE_SIM_LAST_US (UINT64_MAX / 2)
uint64_t mf_drive_sim_now_us(const mf_drive_sim *d);

/* mf_io_options.engine, with an mf_drive_sim as engine_arg. */
extern const mf_io_engine mf_io_engine_sim;

#endif
