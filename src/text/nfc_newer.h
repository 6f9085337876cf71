/* SPDX-License-Identifier: MIT */
/* Characters that are too new for the normalization form C of the tokenizers package. */
#ifndef MF_TEXT_NFC_NEWER_H
#define MF_TEXT_NFC_NEWER_H

#include <stddef.h>
#include <stdint.h>

typedef struct mf_char_range {
    int32_t first, last;
} mf_char_range;

extern const mf_char_range mf_nfc_newer[]; /* rising */
extern const size_t mf_n_nfc_newer;

#endif
