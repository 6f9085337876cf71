/* SPDX-License-Identifier: MIT */
/* The table of kinds. */
#include "grammar/kinds.h"

const unsigned char mf_kind_first[MF_N_ASCII_KINDS + 1] = {
    0,   ' ', '!', '"', '#',  '\'', '(', '*', ',', '-', '.', '/', '0', ':',
    ';', '@', 'A', '[', '\\', ']',  '^', '_', '`', 'a', '{', '~', 0x80};

uint32_t mf_kinds_of_byte(unsigned char byte)
{
    uint32_t low = 0, high = MF_N_ASCII_KINDS;
    if (byte >= 0x80)
        return byte >= 0xC0 ? 1u << MF_KIND_WIDE : MF_KINDS_INSIDE;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (mf_kind_first[middle] <= byte)
            low = middle;
        else
            high = middle;
    }
    return 1u << low;
}

uint32_t mf_kinds_of(const unsigned char *bytes, size_t n_bytes)
{
    uint32_t kinds = 0;
    for (size_t i = 0; i < n_bytes; i++)
        kinds |= mf_kinds_of_byte(bytes[i]);
    return kinds & ~MF_KINDS_INSIDE;
}
