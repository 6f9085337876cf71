/* SPDX-License-Identifier: MIT */
/* Stop strings: cut before the first that is whole, nothing of it given out before, however the
 * text is cut into pieces. */
#include "test.h"

#include <string.h>

typedef struct outcome {
    char text[64];
    size_t n_bytes, found;
} outcome;

/* The definition, byte by byte: the shortest beginning of the text that ends in a stop. */
static outcome expected(const char *text, const char *const *stops, size_t n_stops)
{
    outcome o = {.found = n_stops};
    for (size_t end = 1; end <= strlen(text) && o.found == n_stops; end++) {
        size_t longest = 0;
        for (size_t i = 0; i < n_stops; i++) {
            size_t n = strlen(stops[i]);
            if (n > longest && n <= end && memcmp(text + end - n, stops[i], n) == 0) {
                longest = n;
                o.found = i;
                o.n_bytes = end - n;
            }
        }
    }
    if (o.found == n_stops)
        o.n_bytes = strlen(text);
    memcpy(o.text, text, o.n_bytes);
    return o;
}

/* Pieces of these lengths in turn. */
static outcome in_pieces(const char *text, const char *const *stops, size_t n_stops,
                         unsigned lengths)
{
    outcome o = {.found = n_stops};
    char held[64];
    size_t n_held = 0, n_text = strlen(text);
    for (size_t at = 0, n; at < n_text && o.found == n_stops; at += n, lengths = lengths / 3) {
        n = 1 + lengths % 3;
        n = n < n_text - at ? n : n_text - at;
        memcpy(held + n_held, text + at, n);
        n_held += n;
        size_t n_free = mf_stop_find(held, n_held, stops, n_stops, &o.found);
        REQUIRE(n_free <= n_held);
        memcpy(o.text + o.n_bytes, held, n_free);
        o.n_bytes += n_free;
        memmove(held, held + n_free, n_held - n_free);
        n_held -= n_free;
    }
    if (o.found == n_stops) { /* nothing follows */
        memcpy(o.text + o.n_bytes, held, n_held);
        o.n_bytes += n_held;
    }
    return o;
}

int main(void)
{
    static const char *const sets[][4] = {{"abc", "b"},       {"aab", "ab", "c"},   {"aa"},
                                          {"ba", "abab", ""}, {"cc", "bcc", "acc"}, {"abcabc"}};
    uint32_t random = 7;
    size_t n_found = 0;
    for (size_t round = 0; round < 30000; round++) {
        char text[16] = "";
        const char *const *stops = sets[round % 6];
        size_t n_stops = 0;
        while (n_stops < 4 && stops[n_stops])
            n_stops++;
        for (size_t i = 0; i < 11; i++) {
            random = random * 1664525u + 1013904223u;
            text[i] = (char)('a' + (random >> 24) % 3);
        }
        const outcome want = expected(text, stops, n_stops);
        const outcome got = in_pieces(text, stops, n_stops, random >> 8);
        CHECK_MSG(got.found == want.found && got.n_bytes == want.n_bytes &&
                      memcmp(got.text, want.text, want.n_bytes) == 0,
                  "%s: %.*s (%zu), want %.*s (%zu)", text, (int)got.n_bytes, got.text, got.found,
                  (int)want.n_bytes, want.text, want.found);
        n_found += want.found < n_stops;
    }
    CHECK(n_found > 1000 && n_found < 29900);
    size_t found = 9;
    CHECK(mf_stop_find(NULL, 0, NULL, 0, &found) == 0 && found == 0);
    return test_result();
}
