/* SPDX-License-Identifier: MIT */
/* How fast a drive of copies is, by what it was given and when it had that. */
#ifndef MF_IO_IO_DRIVES_H
#define MF_IO_IO_DRIVES_H

#include <stdbool.h>
#include <stdint.h>

/* Files of one drive, as far as there are copies: what it has to do, and how fast it was. */
typedef struct mf_io_drive {
    uint32_t lane;    /* of the engine */
    uint64_t n_bytes; /* read, ever */
    uint64_t in_flight_bytes;
    /* Done since the window began, and when it would have begun if there had been something in
     * flight all the time; as it is, or as it was when nothing was: so long ago. */
    uint64_t window_bytes, window_us, busy_us;
    uint64_t sent_us;    /* when it was given something last */
    double bytes_per_us; /* 0: not known yet */
    bool is_lost;
} mf_io_drive;

/* It is given so much. */
void mf_io_drive_give(mf_io_drive *d, uint64_t now_us, uint32_t n_bytes);
/* It is done with that, well or not. */
void mf_io_drive_take(mf_io_drive *d, uint64_t now_us, uint32_t n_bytes, bool is_good);
/* It was taken for so slow that it got nothing for long: it may have been busy with something else.
 */
bool mf_io_drive_is_forgotten(const mf_io_drive *d, uint64_t now_us);
/* Nothing is known of it any more. */
void mf_io_drive_forget(mf_io_drive *d);

#endif
