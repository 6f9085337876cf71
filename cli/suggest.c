/* SPDX-License-Identifier: MIT */
#include "suggest.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_CHARS = 32, MIN_SAME = 3 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many letters have to be put in, left out or exchanged; both have MAX_CHARS at most. */
static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t row[MAX_CHARS + 1];
    for (size_t k = 0; k <= n_b; k++)
        row[k] = k;
    for (size_t i = 1; i <= n_a; i++) {
        size_t before = row[0]; /* of the row above, one to the left */
        row[0] = i;
        for (size_t k = 1; k <= n_b; k++) {
            const size_t above = row[k];
            row[k] = least(least(above, row[k - 1]) + 1, before + (a[i - 1] != b[k - 1]));
            before = above;
        }
    }
    return row[n_b];
}

const char *mf_cli_nearest(const char *word, const char *const *names, size_t n)
{
    const size_t n_word = strlen(word);
    const char *nearest = NULL;
    size_t best = n_word / 3 + 1;
    if (n_word > MAX_CHARS)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        const size_t n_name = strlen(names[i]), n_same = least(n_word, n_name);
        if (n_name > MAX_CHARS)
            continue;
        const bool begins = n_same >= MIN_SAME && strncmp(word, names[i], n_same) == 0;
        const size_t d = begins ? 1 : distance(word, n_word, names[i], n_name);
        if (d >= best)
            continue;
        best = d;
        nearest = names[i];
    }
    return nearest;
}
