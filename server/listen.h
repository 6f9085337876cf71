/* SPDX-License-Identifier: MIT */
/* What libmicrohttpd calls; its own header is for those two files that know it. */
#ifndef MF_SERVER_LISTEN_H
#define MF_SERVER_LISTEN_H

#include "http.h"

#include <microhttpd.h>

enum MHD_Result mf_srv_on_request(void *server, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *n_bytes, void **context);
void mf_srv_on_completed(void *server, struct MHD_Connection *connection, void **exchange,
                         enum MHD_RequestTerminationCode why);
void mf_srv_on_connection(void *server, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode what);

#endif
