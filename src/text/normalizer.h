/* SPDX-License-Identifier: MIT */
/*
 * The normalizer: what is done to a text before it is cut into words. Normalization form C, and the
 * steps of SentencePiece's vocabularies: U+2581 for a blank, and one in front; a map of characters,
 * no white space at the ends, one blank for several. Read-only after loading.
 */
#ifndef MF_TEXT_NORMALIZER_H
#define MF_TEXT_NORMALIZER_H

#include "format/json.h"
#include "text/charsmap.h"
#include "text/nfc.h"

#define MF_MAX_NORMAL_STEPS 8

typedef enum mf_normal_step {
    MF_NORMAL_NFC, /* as the tokenizers package has it */
    MF_NORMAL_NFC_NEW,
    MF_NORMAL_MARK_BLANKS,  /* U+2581 for each blank */
    MF_NORMAL_PREPEND_MARK, /* U+2581 before a text that is not empty */
    MF_NORMAL_MAP,          /* each grapheme, or each of its characters, by the map */
    MF_NORMAL_STRIP_LEFT,   /* without white space at the beginning */
    MF_NORMAL_STRIP_RIGHT,  /* at the end */
    MF_NORMAL_JOIN_BLANKS,  /* a blank for several */
    MF_NORMAL_JOIN_TO_MARK  /* U+2581 for several blanks, not for one */
} mf_normal_step;

typedef struct mf_normalizer {
    mf_normal_step steps[MF_MAX_NORMAL_STEPS];
    size_t n_steps;
    mf_charsmap map;
} mf_normalizer;

/* Of one call. */
typedef struct mf_normal_scratch {
    mf_nfc_scratch nfc;
    mf_buffer buffers[2];
    bool drops_start; /* the text's first character became nothing */
} mf_normal_scratch;

/* Loads "normalizer". *n is zeroed by the caller and freed after a failure too. */
mf_status mf_normalizer_load(mf_normalizer *n, const mf_allocator *a, const mf_json *json,
                             mf_error *error);
void mf_normalizer_free(mf_normalizer *n);
bool mf_normalizer_has(const mf_normalizer *n, mf_normal_step step);

void mf_normal_scratch_init(mf_normal_scratch *scratch, const mf_allocator *a);
void mf_normal_scratch_free(mf_normal_scratch *scratch);
/* Sets *text and *n_bytes, of valid UTF-8, to the normalised text: in the scratch, until it is used
 * again, or where it was if nothing changed. */
mf_status mf_normalise(const mf_normalizer *n, mf_normal_scratch *scratch,
                       const unsigned char **text, size_t *n_bytes, mf_error *error);

#endif
