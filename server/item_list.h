/* SPDX-License-Identifier: MIT */
/* Lists of items as OpenAI's API tells them: in pages, which a query asks for. */
#ifndef MF_SERVER_ITEM_LIST_H
#define MF_SERVER_ITEM_LIST_H

#include "http.h"

bool mf_srv_is_item(yyjson_val *item, const char *id);
/* Items [n], in this order, as a list. False: no memory. */
bool mf_srv_put_page(yyjson_val *const *items, size_t n, bool has_more, mf_srv_bytes *out);
/* The page of the array's first n items that the query asks for (limit, order, after), as the
 * request's answer. */
bool mf_srv_list_items(mf_srv_request *request, yyjson_val *array, size_t n, mf_srv_refusal *r);

#endif
