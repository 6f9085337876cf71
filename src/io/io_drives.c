/* SPDX-License-Identifier: MIT */
#include "io/io_drives.h"

/* How much a drive has to have done to be judged anew. */
#define WINDOW_BYTES ((uint64_t)4 << 20)
/* And for how long: some give what they have in bursts. */
#define WINDOW_US 50000u
#define FORGOTTEN_US 2000000u

void mf_io_drive_give(mf_io_drive *d, uint64_t now_us, uint32_t n_bytes)
{
    if (d->in_flight_bytes == 0)
        d->window_us = now_us - d->busy_us;
    d->sent_us = now_us;
    d->in_flight_bytes += n_bytes;
}

void mf_io_drive_take(mf_io_drive *d, uint64_t now_us, uint32_t n_bytes, bool is_good)
{
    d->in_flight_bytes -= n_bytes;
    d->busy_us = now_us - d->window_us;
    if (!is_good)
        return;
    d->n_bytes += n_bytes;
    d->window_bytes += n_bytes;
    if (d->window_bytes < WINDOW_BYTES || d->busy_us < WINDOW_US)
        return;
    const double rate = (double)d->window_bytes / (double)d->busy_us;
    d->bytes_per_us += (d->bytes_per_us > 0 ? 0.25 : 1.0) * (rate - d->bytes_per_us);
    d->window_bytes = d->busy_us = 0;
    d->window_us = now_us;
}

bool mf_io_drive_is_forgotten(const mf_io_drive *d, uint64_t now_us)
{
    return d->bytes_per_us > 0 && d->in_flight_bytes == 0 && now_us - d->sent_us > FORGOTTEN_US;
}

void mf_io_drive_forget(mf_io_drive *d)
{
    d->window_bytes = d->busy_us = 0;
    d->bytes_per_us = 0;
}
