/* SPDX-License-Identifier: MIT */
#include "clocks.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t read_khz(const char *folder, unsigned cpu, const char *name)
{
    char path[4200], text[32] = "";
    snprintf(path, sizeof path, "%s/cpu%u/cpufreq/%s", folder, cpu, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    const size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    fclose(file);
    return strtoull(text, NULL, 10);
}

void mf_cli_read_clocks(const char *folder, unsigned n_cpus, uint64_t *hz, uint64_t *most_hz)
{
    *hz = *most_hz = 0;
    for (unsigned i = 0; i < n_cpus; i++) {
        const uint64_t khz = read_khz(folder, i, "scaling_cur_freq");
        const uint64_t most = read_khz(folder, i, "cpuinfo_max_freq");
        if (khz * 1000 <= *hz || most == 0)
            continue;
        *hz = khz * 1000;
        *most_hz = most * 1000;
    }
}
