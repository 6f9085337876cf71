/* SPDX-License-Identifier: MIT */
/* What moeflux replay found, as a picture. */
#ifndef MF_CLI_REPLAY_PLOT_H
#define MF_CLI_REPLAY_PLOT_H

#include <moeflux/moeflux.h>

#include <stdbool.h>
#include <stdio.h>

/* Results over sizes of the cache, of one policy and one way to foresee. */
typedef struct mf_replay_line {
    const char *policy;
    mf_predict predict;
    const mf_replay_result *results; /* [n], sizes rising */
} mf_replay_line;

/* SVG: shares of hits, Belady's beside them, and tokens a second, over slots. */
void mf_replay_plot(FILE *out, const char *title, const mf_replay_line *lines, size_t n_lines,
                    size_t n);

#endif
