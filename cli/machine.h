/* SPDX-License-Identifier: MIT */
/* What this machine can do, measured without a model: a drive's reads, memory's. */
#ifndef MF_CLI_MACHINE_H
#define MF_CLI_MACHINE_H

#include "output.h"

/* Bytes a second of random reads of n_bytes each, past the page cache, eight at once: of the
 * model's largest file where there is a model (a folder, or a file; else NULL) that is not small,
 * or else of a file that is written to the folder dir (or the nearest above it that exists) and
 * removed again. 0: they cannot be measured there. */
double mf_cli_measure_drive(const char *model, const char *dir, uint64_t n_bytes);
/* How many bytes such a read has: n_bytes to the next unit, within bounds. */
uint64_t mf_cli_read_size(uint64_t n_bytes);
/* Bytes a second that n_threads (0: one a core) read of memory. 0: no memory for it. */
double mf_cli_measure_memory(uint32_t n_threads);
/* The same by one thread a CPU in a quarter of the time, of memory in huge pages if the system
 * gives them, or in small ones. */
double mf_cli_measure_pages(bool is_huge);

#endif
