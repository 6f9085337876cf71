/* SPDX-License-Identifier: MIT */
/* Answers that are sent compressed. */
#ifndef MF_SERVER_ENCODE_H
#define MF_SERVER_ENCODE_H

#include "bytes.h"

/* What Accept-Encoding says of gzip; NULL: nothing. */
bool mf_srv_takes_gzip(const char *accepted);

/* Puts the compressed bytes in their place. False: they are as they were. */
bool mf_srv_gzip(mf_srv_bytes *bytes);

#endif
