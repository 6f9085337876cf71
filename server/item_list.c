/* SPDX-License-Identifier: MIT */
/* Pages of lists of items. */
#include "item_list.h"

#include <stdlib.h>
#include <string.h>

/* As published: of a list that does not say how long it may be, and at most. */
#define N_LISTED 20
#define MAX_LISTED 100

static bool no_memory(mf_srv_refusal *r)
{
    return mf_srv_refuse(r, 503, "out of memory for the items");
}

bool mf_srv_is_item(yyjson_val *item, const char *id)
{
    return yyjson_equals_str(yyjson_obj_get(item, "id"), id);
}

/* Of n items from i on, up to limit of them, forwards or backwards. */
typedef struct page {
    bool is_rising;
    size_t limit;
    const char *after; /* the item behind which it begins; NULL: at the beginning */
} page;

static bool get_page(const mf_srv_request *request, page *out, mf_srv_refusal *r)
{
    const char *limit = mf_srv_argument(request, "limit");
    const char *order = mf_srv_argument(request, "order");
    *out = (page){.limit = N_LISTED, .after = mf_srv_argument(request, "after")};
    out->is_rising = order && strcmp(order, "asc") == 0;
    if (order && !out->is_rising && strcmp(order, "desc") != 0)
        return mf_srv_refuse_field(r, "order", "expected asc or desc");
    if (!limit)
        return true;
    const size_t n = strlen(limit);
    out->limit = n > 0 && n < 4 && strspn(limit, "0123456789") == n ? strtoul(limit, NULL, 10) : 0;
    return (out->limit > 0 && out->limit <= MAX_LISTED) ||
           mf_srv_refuse_field(r, "limit", "expected a whole number from 1 to %d", MAX_LISTED);
}

bool mf_srv_put_page(yyjson_val *const *items, size_t n, bool has_more, mf_srv_bytes *out)
{
    mf_srv_puts(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < n; i++) {
        mf_srv_puts(out, i > 0 ? "," : "");
        if (!mf_srv_put_value(out, items[i]))
            return false;
    }
    mf_srv_puts(out, "],\"first_id\":");
    if (n == 0 || !mf_srv_put_value(out, yyjson_obj_get(items[0], "id")))
        mf_srv_puts(out, "null");
    mf_srv_puts(out, ",\"last_id\":");
    if (n == 0 || !mf_srv_put_value(out, yyjson_obj_get(items[n - 1], "id")))
        mf_srv_puts(out, "null");
    mf_srv_printf(out, ",\"has_more\":%s}", has_more ? "true" : "false");
    return !out->has_failed;
}

/* The first n items of the array in the page's order, from malloc; NULL: no memory. */
static yyjson_val **in_order(yyjson_val *array, size_t n, bool is_rising)
{
    yyjson_val *item, **all = malloc((n + 1) * sizeof(yyjson_val *));
    size_t i, n_all;
    if (!all)
        return NULL;
    yyjson_arr_foreach(array, i, n_all, item)
    {
        if (i < n)
            all[is_rising ? i : n - 1 - i] = item;
    }
    return all;
}

bool mf_srv_list_items(mf_srv_request *request, yyjson_val *array, size_t n, mf_srv_refusal *r)
{
    size_t begin = 0;
    page p;
    if (!get_page(request, &p, r))
        return false;
    yyjson_val **all = in_order(array, n, p.is_rising);
    if (!all)
        return no_memory(r);
    /* behind the last that has the id, which clients may give to several: pages then still end */
    for (size_t i = 0; p.after && i < n; i++)
        if (mf_srv_is_item(all[i], p.after))
            begin = i + 1;
    bool is_good = !p.after || begin > 0;
    if (!is_good) {
        mf_srv_refuse_field(r, "after", "Item with id '%.60s' not found.", p.after);
    } else {
        const size_t n_left = n - begin, n_listed = n_left < p.limit ? n_left : p.limit;
        is_good = mf_srv_put_page(all + begin, n_listed, n_listed < n_left, &request->answer) ||
                  no_memory(r);
    }
    free(all);
    return is_good;
}
