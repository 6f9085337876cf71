/* SPDX-License-Identifier: MIT */
/*
 * Thoughts as the text that OpenAI's clients carry for the server and do not look into
 * (encrypted_content): a word that says whose it is, and their text as base64. Nothing of it is
 * secret to who got it; it needs no memory here, and another server of the same kind reads it.
 */
#ifndef MF_SERVER_SEAL_H
#define MF_SERVER_SEAL_H

#include "bytes.h"

/* A JSON string. */
void mf_srv_put_sealed(mf_srv_bytes *out, const char *text, size_t n_bytes);
/* The text of a sealed one. False: it is another's, or no text; nothing was put. */
bool mf_srv_put_unsealed(mf_srv_bytes *out, const char *sealed, size_t n_bytes);

#endif
