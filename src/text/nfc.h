/* SPDX-License-Identifier: MIT */
/* Unicode normalization form C. */
#ifndef MF_TEXT_NFC_H
#define MF_TEXT_NFC_H

#include "text/buffer.h"

/* Of which Unicode. */
typedef enum mf_nfc_age {
    MF_NFC_OLD, /* 10: what is newer is left alone, as the tokenizers package does */
    MF_NFC_NEW  /* utf8proc's */
} mf_nfc_age;

typedef struct mf_nfc_scratch {
    mf_buffer code_points; /* int32_t each */
    mf_buffer sorted;
    mf_nfc_age age; /* of this call */
} mf_nfc_scratch;

void mf_nfc_scratch_init(mf_nfc_scratch *scratch, const mf_allocator *a);
void mf_nfc_scratch_free(mf_nfc_scratch *scratch);

/* True if a look at the text alone shows that NFC leaves it as it is; false says nothing. */
bool mf_nfc_is_trivial(const unsigned char *text, size_t n_bytes);

/* Appends the NFC of text[n_bytes], which is valid UTF-8, to out. Errors: MF_ERR_NO_MEMORY. */
mf_status mf_nfc(mf_nfc_scratch *scratch, mf_nfc_age age, const unsigned char *text, size_t n_bytes,
                 mf_buffer *out, mf_error *error);

#endif
