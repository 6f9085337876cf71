/* SPDX-License-Identifier: MIT */
/* How fast the CPUs run. */
#ifndef MF_CLI_CLOCKS_H
#define MF_CLI_CLOCKS_H

#include <stdint.h>

/* The frequency of the fastest of CPUs 0 to n - 1 and the most that one could have, by folder (the
 * system's is /sys/devices/system/cpu). 0, 0: it does not say. */
void mf_cli_read_clocks(const char *folder, unsigned n_cpus, uint64_t *hz, uint64_t *most_hz);

#endif
