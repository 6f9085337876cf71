/* SPDX-License-Identifier: MIT */
/* UTF-8 decoding, encoding and repair. */
#include "text/utf8.h"

#include <string.h>

/* Length of the sequence that a lead byte opens and the range of its second byte (Unicode standard,
 * table 3-7); 0 for a byte that opens none. */
static size_t lead_length(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF)
        return 2;
    if (lead >= 0xE0 && lead <= 0xEF) {
        if (lead == 0xE0)
            *low = 0xA0;
        if (lead == 0xED)
            *high = 0x9F;
        return 3;
    }
    if (lead >= 0xF0 && lead <= 0xF4) {
        if (lead == 0xF0)
            *low = 0x90;
        if (lead == 0xF4)
            *high = 0x8F;
        return 4;
    }
    return 0;
}

mf_utf8_kind mf_utf8_next(const unsigned char *text, size_t n_bytes, uint32_t *code_point,
                          size_t *n_char_bytes)
{
    unsigned char lead = text[0];
    *n_char_bytes = 1;
    if (lead < 0x80) {
        *code_point = lead;
        return MF_UTF8_CHAR;
    }
    unsigned char low, high;
    size_t length = lead_length(lead, &low, &high);
    if (length == 0)
        return MF_UTF8_BAD;
    uint32_t value = lead & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (i == n_bytes) {
            *n_char_bytes = i;
            return MF_UTF8_PARTIAL;
        }
        if (text[i] < low || text[i] > high) {
            *n_char_bytes = i;
            return MF_UTF8_BAD;
        }
        value = value << 6 | (text[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    *code_point = value;
    *n_char_bytes = length;
    return MF_UTF8_CHAR;
}

size_t mf_utf8_put(uint32_t c, unsigned char *out)
{
    if (c < 0x80) {
        out[0] = (unsigned char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (unsigned char)(0xC0 | c >> 6);
        out[1] = (unsigned char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (unsigned char)(0xE0 | c >> 12);
        out[1] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (unsigned char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (unsigned char)(0xF0 | c >> 18);
    out[1] = (unsigned char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (unsigned char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (unsigned char)(0x80 | (c & 0x3F));
    return 4;
}

bool mf_utf8_is_blank(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

bool mf_utf8_is_valid(const unsigned char *text, size_t n_bytes)
{
    size_t i = 0;
    while (i < n_bytes) {
        uint64_t eight;
        if (n_bytes - i >= sizeof eight) {
            memcpy(&eight, text + i, sizeof eight);
            if ((eight & 0x8080808080808080u) == 0) {
                i += sizeof eight;
                continue;
            }
        }
        uint32_t c;
        size_t n;
        if (mf_utf8_next(text + i, n_bytes - i, &c, &n) != MF_UTF8_CHAR)
            return false;
        i += n;
    }
    return true;
}

size_t mf_utf8_repair(const unsigned char *text, size_t n_bytes, unsigned char *out)
{
    size_t n_out = 0;
    for (size_t i = 0; i < n_bytes;) {
        uint32_t c;
        size_t n;
        if (mf_utf8_next(text + i, n_bytes - i, &c, &n) != MF_UTF8_CHAR)
            c = MF_UTF8_REPLACEMENT;
        unsigned char encoded[4];
        size_t n_encoded = mf_utf8_put(c, encoded);
        if (out != NULL)
            memcpy(out + n_out, encoded, n_encoded);
        n_out += n_encoded;
        i += n;
    }
    return n_out;
}
