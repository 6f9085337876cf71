/* SPDX-License-Identifier: MIT */
/* Base64, four characters at a time. */
#include "text/base64.h"

#include <stdint.h>

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool mf_base64_decode(const char *text, size_t n, unsigned char *out, size_t *n_out)
{
    size_t n_padding = 0, n_bytes = 0;
    if (n == 0 || n % 4 != 0)
        return false;
    while (n_padding < 2 && text[n - 1 - n_padding] == '=')
        n_padding++;
    uint32_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        int value = i < n - n_padding ? base64_value(text[i]) : 0;
        if (value < 0)
            return false;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 == 3) {
            out[n_bytes++] = (unsigned char)(bits >> 16 & 0xFF);
            out[n_bytes++] = (unsigned char)(bits >> 8 & 0xFF);
            out[n_bytes++] = (unsigned char)(bits & 0xFF);
        }
    }
    for (size_t i = 1; i <= n_padding; i++)
        if (out[n_bytes - i] != 0) /* bits that no byte has room for */
            return false;
    *n_out = n_bytes - n_padding;
    return true;
}
