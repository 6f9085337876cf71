/* SPDX-License-Identifier: MIT */
/* One GET: what is asked, what of the answer is believed, where a redirection may lead. */
#include "hub_client.h"
#include "hub_fail.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum { MAX_REDIRECTS = 5, MAX_WAIT_SECONDS = 600 };
/* What is read of a connection at once: with those of the others it stays in the caches. */
#define BUFFER_BYTES (128L << 10)

/* The value of a header line of this name; NULL: another. */
static const char *header_value(const char *line, const char *name)
{
    const size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':')
        return NULL;
    line += n + 1;
    return line + strspn(line, " \t");
}

static void keep_header(char *out, size_t capacity, const char *value)
{
    const size_t n = strcspn(value, "\r\n");
    snprintf(out, capacity, "%.*s", (int)(n < capacity ? n : capacity - 1), value);
}

/* W/"value" and "value" are value. */
static void keep_etag(char out[MF_HUB_ETAG_CHARS], const char *value)
{
    keep_header(out, MF_HUB_ETAG_CHARS, value);
    char *begin = strncmp(out, "W/", 2) == 0 ? out + 2 : out;
    begin += *begin == '"';
    memmove(out, begin, strlen(begin) + 1);
    const size_t n = strlen(out);
    if (n > 0 && out[n - 1] == '"')
        out[n - 1] = '\0';
}

/* Digits, and what comes behind them; false: no number of 64 bits stands there. */
static bool take_number(const char **text, uint64_t *out)
{
    char *end;
    errno = 0;
    if (!isdigit((unsigned char)**text))
        return false;
    *out = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0;
}

/* bytes 0-99/1000, or another total: *. Anything else is no range. */
static void keep_range(mf_hub_request *r, const char *value)
{
    uint64_t begin, end, total = MF_HUB_ALL;
    if (strncmp(value, "bytes ", 6) != 0)
        return;
    value += 6;
    if (!take_number(&value, &begin) || *value++ != '-' || !take_number(&value, &end) ||
        *value++ != '/' || (*value != '*' && !take_number(&value, &total)) || end < begin ||
        end == UINT64_MAX)
        return;
    r->range_begin = begin;
    r->range_end = end + 1;
    r->range_total = total;
}

static void forget_answer(mf_hub_request *r)
{
    r->range_begin = r->range_end = r->range_total = MF_HUB_ALL;
    r->etag[0] = r->said[0] = '\0';
    r->retry_after_seconds = 0;
    r->is_checked = r->is_whole = r->has_enough = false;
}

/* RFC 9110: seconds, or the date to wait for. */
static uint64_t seconds_until(const char *value)
{
    uint64_t seconds = 0;
    if (isdigit((unsigned char)*value)) {
        seconds = strtoull(value, NULL, 10);
    } else {
        const time_t then = curl_getdate(value, NULL), now = time(NULL);
        seconds = then > now ? (uint64_t)(then - now) : 0; /* -1: no date */
    }
    return seconds < MAX_WAIT_SECONDS ? seconds : MAX_WAIT_SECONDS;
}

static size_t on_header(char *data, size_t size, size_t n, void *user)
{
    mf_hub_request *r = user;
    char line[1024];
    const char *value;
    const size_t n_bytes = size * n;
    snprintf(line, sizeof line, "%.*s", (int)(n_bytes < sizeof line ? n_bytes : sizeof line - 1),
             data);
    if (strncmp(line, "HTTP/", 5) == 0)
        forget_answer(r);
    else if ((value = header_value(line, "Content-Range")))
        keep_range(r, value);
    else if ((value = header_value(line, "ETag")))
        keep_etag(r->etag, value);
    else if ((value = header_value(line, "X-Linked-Etag")))
        keep_etag(r->linked_etag, value);
    else if ((value = header_value(line, "X-Error-Message")))
        keep_header(r->said, sizeof r->said, value);
    else if ((value = header_value(line, "Retry-After")))
        r->retry_after_seconds = seconds_until(value);
    return n_bytes;
}

/* Ends the transfer: it may work later. */
static bool again(mf_hub_request *r, const char *why)
{
    r->outcome = MF_HUB_AGAIN;
    return mf_hub_fail(&r->error, MF_ERR_IO, "%.600s: %s", r->url, why);
}

/* Is this the part that was asked for? */
static bool check_answer(mf_hub_request *r)
{
    const bool wants_all = r->begin == 0 && r->end == MF_HUB_ALL;
    if (r->status == 206 && !wants_all) {
        const uint64_t end = r->end < r->n_file_bytes ? r->end : r->n_file_bytes;
        if (r->range_begin != r->begin || r->range_end > r->end ||
            (r->n_file_bytes != MF_HUB_ALL && r->range_end != end))
            return again(r, "the answer is of another range than was asked for");
        if (r->range_total != MF_HUB_ALL && r->n_file_bytes != MF_HUB_ALL &&
            r->range_total != r->n_file_bytes)
            return again(r, "the file has another size than the hub listed");
        r->position = r->begin;
        return true;
    }
    r->position = 0;
    r->is_whole = true;
    return true;
}

static size_t on_body(char *data, size_t size, size_t n, void *user)
{
    mf_hub_request *r = user;
    const size_t n_bytes = size * n;
    if (!r->is_checked) {
        curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &r->status);
        if (r->status != 200 && r->status != 206)
            return n_bytes; /* what an error page says is not looked at */
        if (!check_answer(r))
            return 0;
        r->is_checked = true;
    }
    const uint64_t end = r->is_whole ? r->n_file_bytes : r->end;
    if (end != MF_HUB_ALL && n_bytes > end - r->position) {
        again(r, "the answer is longer than what was asked for");
        return 0;
    }
    if (!r->take(r, data, n_bytes))
        return 0;
    r->position += n_bytes;
    return n_bytes;
}

/* Scheme, host and port of a URL; false: it is none that may be asked. */
static bool origin_of(const char *url, char out[512])
{
    CURLU *parts = curl_url();
    char *scheme = NULL, *host = NULL, *port = NULL;
    bool good = parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
                curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                curl_url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK;
    if (good) {
        const int n = snprintf(out, 512, "%s://%s:%s", scheme, host, port);
        good = n > 0 && n < 512 && (strcmp(scheme, "https") == 0 || strcmp(scheme, "http") == 0);
    }
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(parts);
    return good;
}

/* To the hub itself with the token, to others without. */
static bool set_headers(mf_hub_client *client, mf_hub_request *r)
{
    const mf_hub_places *places = mf_hub_client_places(client);
    char line[MF_HUB_TOKEN_CHARS + 32], own[512], target[512];
    struct curl_slist *list = curl_slist_append(NULL, "Accept-Encoding: identity");
    if (places->token[0] != '\0' && origin_of(places->endpoint, own) && origin_of(r->url, target) &&
        strcasecmp(own, target) == 0) {
        snprintf(line, sizeof line, "Authorization: Bearer %s", places->token);
        struct curl_slist *longer = curl_slist_append(list, line);
        if (!longer) {
            curl_slist_free_all(list);
            return false;
        }
        list = longer;
    }
    curl_slist_free_all(r->headers);
    r->headers = list;
    curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, list);
    return list != NULL;
}

static void set_options(mf_hub_request *r)
{
    CURL *easy = r->easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, r);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, 20L);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, 30L);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, r->curl_error);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, r);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, r);
}

/* Sends it to r->url. */
static bool send_request(mf_hub_client *client, mf_hub_request *r, CURLM *multi)
{
    char range[64];
    forget_answer(r);
    r->curl_error[0] = '\0';
    r->status = 0;
    set_options(r);
    snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, r->begin, r->end - 1);
    const bool wants_all = r->begin == 0 && r->end == MF_HUB_ALL;
    curl_easy_setopt(r->easy, CURLOPT_RANGE, wants_all ? NULL : range);
    curl_easy_setopt(r->easy, CURLOPT_USERAGENT, "moeflux/" MF_VERSION_STRING);
    return set_headers(client, r) && curl_easy_setopt(r->easy, CURLOPT_URL, r->url) == CURLE_OK &&
           curl_multi_add_handle(multi, r->easy) == CURLM_OK;
}

bool mf_hub_request_start(mf_hub_client *client, mf_hub_request *r, CURLM *multi)
{
    r->client = client;
    r->n_redirects = 0;
    r->linked_etag[0] = '\0';
    r->error.message[0] = '\0';
    r->outcome = MF_HUB_DONE;
    r->is_active = send_request(client, r, multi);
    return r->is_active;
}

/* The URL that is asked next. */
static bool follow(mf_hub_request *r)
{
    char from[512], to[512];
    char *url = NULL;
    curl_easy_getinfo(r->easy, CURLINFO_REDIRECT_URL, &url);
    r->outcome = MF_HUB_REFUSED;
    if (!url || strlen(url) >= sizeof r->url || !origin_of(url, to) || !origin_of(r->url, from))
        return mf_hub_fail(&r->error, MF_ERR_FORMAT,
                           "%.600s: redirected to no URL that is followed", r->url);
    if (strncmp(from, "https:", 6) == 0 && strncmp(to, "https:", 6) != 0)
        return mf_hub_fail(&r->error, MF_ERR_FORMAT, "%.600s: redirected from https to http",
                           r->url);
    if (++r->n_redirects > MAX_REDIRECTS)
        return mf_hub_fail(&r->error, MF_ERR_FORMAT, "%.600s: redirected more than %d times",
                           r->url, MAX_REDIRECTS);
    snprintf(r->url, sizeof r->url, "%s", url);
    r->was_elsewhere = true;
    r->outcome = MF_HUB_DONE;
    return true;
}

/* A status that is no success. */
static void refuse(mf_hub_request *r)
{
    const char *hint = "";
    const bool passes = r->status == 408 || r->status == 429 || r->status >= 500;
    /* what was redirected to may have run out */
    const bool ran_out =
        r->was_elsewhere && (r->status == 401 || r->status == 403 || r->status == 404);
    if (r->status == 401 || r->status == 403)
        hint = " (a gated or private model wants a token that may read it, in HF_TOKEN, and its "
               "conditions accepted)";
    else if (r->status == 404)
        hint = " (no such model, revision or file)";
    r->outcome = passes || ran_out || r->status == 416 ? MF_HUB_AGAIN : MF_HUB_REFUSED;
    mf_hub_fail(&r->error, r->status == 404 ? MF_ERR_NOT_FOUND : MF_ERR_IO,
                "%.500s: HTTP status %ld%s%s%s", r->url, r->status, *r->said ? ": " : "", r->said,
                hint);
}

/* libcurl's failure, unless who takes the bytes has already said what it is. */
static void fail_transfer(mf_hub_request *r, CURLcode code)
{
    if (r->outcome != MF_HUB_DONE)
        return;
    static const CURLcode final[] = {CURLE_URL_MALFORMAT, CURLE_UNSUPPORTED_PROTOCOL,
                                     CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE,
                                     CURLE_OUT_OF_MEMORY};
    r->outcome = MF_HUB_AGAIN;
    for (size_t i = 0; i < sizeof final / sizeof *final; i++)
        if (code == final[i])
            r->outcome = MF_HUB_REFUSED;
    mf_hub_fail(&r->error, MF_ERR_IO, "%.600s: %s", r->url,
                r->curl_error[0] ? r->curl_error : curl_easy_strerror(code));
}

bool mf_hub_request_end(mf_hub_client *client, mf_hub_request *r, CURLcode code)
{
    (void)client;
    r->is_active = false;
    curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &r->status);
    if (r->has_enough)
        return false;
    if (code != CURLE_OK)
        fail_transfer(r, code);
    else if (r->status >= 300 && r->status < 400)
        return follow(r);
    else if (r->status != 200 && r->status != 206)
        refuse(r);
    else if (!r->is_checked && !check_answer(r)) /* an empty body */
        return false;
    else if (!r->is_whole && r->position != r->range_end)
        again(r, "the answer ended too early");
    else if (r->is_whole && r->n_file_bytes != MF_HUB_ALL && r->position != r->n_file_bytes)
        again(r, "the file has another size than the hub listed");
    return false;
}
