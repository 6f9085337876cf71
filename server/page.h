/* SPDX-License-Identifier: MIT */
/* The page at /: one document, joined of server/page when the server is built. */
#ifndef MF_SERVER_PAGE_H
#define MF_SERVER_PAGE_H

#include <stddef.h>

extern const unsigned char mf_srv_page[];
extern const size_t mf_srv_page_bytes;
extern const char mf_srv_page_policy[]; /* its Content-Security-Policy */
extern const char mf_srv_page_tag[];    /* its ETag */

#endif
