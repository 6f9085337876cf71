/* SPDX-License-Identifier: MIT */
/*
 * Grammars that requests asked for, as guides at their beginning: agents send the same tools with
 * every request, and masks that were found once are found again. Any thread may ask.
 */
#ifndef MF_SERVER_GUIDES_H
#define MF_SERVER_GUIDES_H

#include "bytes.h"

#include <moeflux/moeflux.h>

/* Those used last; and what the masks of one take at most. */
#define MF_SRV_GUIDES 8
#define MF_SRV_GUIDE_MASK_BYTES ((size_t)16 << 20)

typedef struct mf_srv_guides mf_srv_guides;

/* NULL: no memory. */
mf_srv_guides *mf_srv_guides_new(void);
void mf_srv_guides_free(mf_srv_guides **guides);

/* The guide that was kept under this text, for the caller, and its opening [256]; NULL: there is
 * none. Takes NULL. */
mf_guide *mf_srv_guides_find(mf_srv_guides *guides, const mf_srv_bytes *text, char *opening);
/* Keeps a copy. Without memory nothing is kept, which is no error. Takes NULL. */
void mf_srv_guides_put(mf_srv_guides *guides, const mf_srv_bytes *text, const mf_guide *guide,
                       const char *opening);

#endif
