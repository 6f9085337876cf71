/* SPDX-License-Identifier: MIT */
/* Stop strings in a text that grows. */
#include "base/status.h"

#include <moeflux/text.h>

#include <string.h>

/* How many of the text's last bytes the stop begins with, but not all of the stop. */
static size_t n_begun(const char *text, size_t n_bytes, const char *stop, size_t n_stop)
{
    size_t n = n_stop - 1 < n_bytes ? n_stop - 1 : n_bytes;
    while (n > 0 && memcmp(text + n_bytes - n, stop, n) != 0)
        n--;
    return n;
}

size_t mf_stop_find(const char *text, size_t n_bytes, const char *const *stops, size_t n_stops,
                    size_t *found)
{
    size_t end = SIZE_MAX, begin = 0, n_held = 0;
    *found = n_stops;
    for (size_t i = 0; i < n_stops; i++) {
        const size_t n = strlen(stops[i]);
        if (n == 0)
            continue;
        const char *hit = n_bytes > 0 ? memmem(text, n_bytes, stops[i], n) : NULL;
        size_t at = hit != NULL ? (size_t)(hit - text) : SIZE_MAX;
        if (hit != NULL && (at + n < end || (at + n == end && at < begin))) {
            begin = at;
            end = at + n;
            *found = i;
        }
        size_t held = n_begun(text, n_bytes, stops[i], n);
        n_held = held > n_held ? held : n_held;
    }
    return *found < n_stops ? begin : n_bytes - n_held;
}
