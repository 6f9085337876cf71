/* SPDX-License-Identifier: MIT */
#include "seal.h"

#include <string.h>

#define MARK "moeflux1."

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void mf_srv_put_sealed(mf_srv_bytes *out, const char *text, size_t n_bytes)
{
    const unsigned char *s = (const unsigned char *)text;
    mf_srv_puts(out, "\"" MARK);
    for (size_t i = 0; i < n_bytes; i += 3) {
        const size_t n = n_bytes - i < 3 ? n_bytes - i : 3;
        uint32_t bits = (uint32_t)s[i] << 16;
        bits |= n > 1 ? (uint32_t)s[i + 1] << 8 : 0;
        bits |= n > 2 ? (uint32_t)s[i + 2] : 0;
        char four[4];
        for (size_t k = 0; k < 4; k++)
            four[k] = k <= n ? letters[bits >> (18 - 6 * k) & 63] : '=';
        mf_srv_put(out, four, sizeof four);
    }
    mf_srv_puts(out, "\"");
}

/* The value of a letter; 64: it is none. */
static uint32_t value_of(char c)
{
    const char *at = c != '\0' ? strchr(letters, c) : NULL;
    return at ? (uint32_t)(at - letters) : 64;
}

/* Characters. */
static bool is_text(const mf_srv_bytes *b)
{
    for (size_t i = 0, n; i < b->n_bytes; i += n) {
        n = mf_srv_utf8_length(b->data + i, b->n_bytes - i);
        if (n == 0)
            return false;
    }
    return true;
}

/* Four letters to one to three bytes. */
static bool take_four(const char *s, mf_srv_bytes *to)
{
    uint32_t bits = 0;
    size_t n = 0;
    while (n < 4 && s[n] != '=') {
        const uint32_t v = value_of(s[n]);
        if (v == 64)
            return false;
        bits |= v << (18 - 6 * n++);
    }
    const char bytes[] = {(char)(bits >> 16), (char)(bits >> 8 & 255), (char)(bits & 255)};
    if (n < 2 || (n == 2 && s[3] != '='))
        return false;
    mf_srv_put(to, bytes, n - 1);
    return true;
}

bool mf_srv_put_unsealed(mf_srv_bytes *out, const char *sealed, size_t n_bytes)
{
    const size_t n_mark = sizeof MARK - 1;
    mf_srv_bytes text = {0};
    bool is_good =
        n_bytes > n_mark && memcmp(sealed, MARK, n_mark) == 0 && (n_bytes - n_mark) % 4 == 0;
    for (size_t i = n_mark; is_good && i < n_bytes; i += 4)
        is_good = take_four(sealed + i, &text) && (i + 4 == n_bytes || sealed[i + 3] != '=');
    is_good = is_good && !text.has_failed && is_text(&text);
    if (is_good)
        mf_srv_put(out, text.data, text.n_bytes);
    mf_srv_bytes_free(&text);
    return is_good;
}
