/* SPDX-License-Identifier: MIT */
/* Keys are compared in a time that does not tell how much of them is right. */
#include "guard.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define MAX_KEY_BYTES 512

static bool add_key(mf_srv_guard *g, char *line, mf_error *error)
{
    size_t n = strlen(line);
    while (n > 0 && isspace((unsigned char)line[n - 1]))
        line[--n] = '\0';
    while (isspace((unsigned char)*line))
        line++;
    if (!*line || *line == '#')
        return true;
    if (g->n_keys == MF_SRV_MAX_KEYS) {
        snprintf(error->message, sizeof error->message, "%s: more than %d keys",
                 g->config->api_key_file, MF_SRV_MAX_KEYS);
        return false;
    }
    g->keys[g->n_keys] = strdup(line);
    return g->keys[g->n_keys++] != NULL;
}

static bool read_keys(mf_srv_guard *g, mf_error *error)
{
    char line[MAX_KEY_BYTES];
    const char *path = g->config->api_key_file;
    FILE *f = fopen(path, "re");
    bool is_good = f != NULL;
    if (!f)
        snprintf(error->message, sizeof error->message, "%s: cannot open: %s", path,
                 strerror(errno));
    while (is_good && fgets(line, sizeof line, f)) {
        if (!strchr(line, '\n') && !feof(f)) {
            snprintf(error->message, sizeof error->message,
                     "%s: a line is longer than %d bytes, which is no key", path,
                     MAX_KEY_BYTES - 2);
            is_good = false;
        } else {
            is_good = add_key(g, line, error);
        }
    }
    if (is_good && ferror(f)) {
        snprintf(error->message, sizeof error->message, "%s: cannot read: %s", path,
                 strerror(errno));
        is_good = false;
    }
    if (f)
        fclose(f);
    explicit_bzero(line, sizeof line);
    if (is_good && g->n_keys == 0) {
        snprintf(error->message, sizeof error->message, "%s: no key in it: expected one a line",
                 path);
        is_good = false;
    }
    return is_good;
}

static bool is_address(const char *name)
{
    unsigned char any[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, name, any) == 1 || inet_pton(AF_INET6, name, any) == 1;
}

bool mf_srv_guard_open(mf_srv_guard *g, const mf_srv_config *config, mf_error *error)
{
    *g = (mf_srv_guard){.config = config};
    if (config->host && !is_address(config->host) && !mf_srv_is_loopback(config->host)) {
        snprintf(error->message, sizeof error->message, "--host %s: expected an address",
                 config->host);
        return false;
    }
    g->is_loopback = !config->host || mf_srv_is_loopback(config->host);
    if (gethostname(g->host_name, sizeof g->host_name - 1) != 0)
        *g->host_name = '\0';
    if (config->api_key_file && !read_keys(g, error))
        return false;
    return g->is_loopback || mf_srv_guard_opens_to_others(g, config->host, error);
}

bool mf_srv_guard_opens_to_others(mf_srv_guard *g, const char *where, mf_error *error)
{
    g->is_loopback = false;
    if (g->n_keys > 0)
        return true;
    snprintf(error->message, sizeof error->message,
             "%s can be reached by others: --api-key-file is needed", where);
    return false;
}

void mf_srv_guard_close(mf_srv_guard *g)
{
    for (size_t i = 0; i < g->n_keys; i++) {
        explicit_bzero(g->keys[i], strlen(g->keys[i]));
        free(g->keys[i]);
    }
    g->n_keys = 0;
}

bool mf_srv_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return strcasecmp(host, "localhost") == 0;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcasecmp(text + n - n_end, end) == 0;
}

/* The name in "name:port" or "[address]:port". */
static bool host_of(const char *text, char *name, size_t capacity)
{
    const char *end = *text == '[' ? strchr(text, ']') : strchrnul(text, ':');
    text += *text == '[';
    if (!end || (size_t)(end - text) >= capacity || end == text)
        return false;
    memcpy(name, text, (size_t)(end - text));
    name[end - text] = '\0';
    return true;
}

static bool allows_name(const mf_srv_guard *g, const char *name)
{
    if (mf_srv_is_loopback(name) || ends_with(name, ".localhost"))
        return true;
    if (*g->host_name && strcasecmp(name, g->host_name) == 0)
        return true;
    for (uint32_t i = 0; i < g->config->n_hosts; i++)
        if (strcasecmp(name, g->config->hosts[i]) == 0)
            return true;
    /* names can be made to point here by others, addresses cannot */
    return !g->is_loopback && is_address(name);
}

static bool allows_origin(const mf_srv_guard *g, const mf_srv_claims *claims)
{
    const char *place = strstr(claims->origin, "://");
    for (uint32_t i = 0; i < g->config->n_origins; i++)
        if (strcasecmp(claims->origin, g->config->origins[i]) == 0)
            return true;
    return place && claims->host && strcasecmp(place + 3, claims->host) == 0; /* our own page */
}

bool mf_srv_guard_place(const mf_srv_guard *g, const mf_srv_claims *claims, mf_srv_refusal *r)
{
    char name[256];
    if (!claims->host || !host_of(claims->host, name, sizeof name) || !allows_name(g, name))
        return mf_srv_refuse(r, 403,
                             "this server is not known by the name in Host; --allow-host "
                             "adds one");
    if (claims->origin && !allows_origin(g, claims))
        return mf_srv_refuse(r, 403, "pages of this Origin may not ask; --cors-origin allows one");
    return true;
}

/* In a time that depends on what was given alone. */
static bool is_equal(const char *given, size_t n_given, const char *key)
{
    const size_t n_key = strlen(key);
    unsigned char difference = n_given != n_key;
    for (size_t i = 0; i < n_given; i++)
        difference |= (unsigned char)(given[i] ^ key[n_key > 0 ? i % n_key : 0]);
    return difference == 0;
}

bool mf_srv_guard_key(const mf_srv_guard *g, const mf_srv_claims *claims, size_t *who,
                      mf_srv_refusal *r)
{
    const char *given = claims->api_key;
    bool is_known = false;
    *who = 0;
    if (g->n_keys == 0)
        return true;
    if (claims->authorization && strncasecmp(claims->authorization, "Bearer ", 7) == 0)
        given = claims->authorization + 7;
    for (size_t i = 0; given && i < g->n_keys; i++)
        if (is_equal(given, strlen(given), g->keys[i])) {
            is_known = true;
            *who = i + 1;
        }
    if (is_known)
        return true;
    mf_srv_refuse(r, 401, "%s", given ? "this API key is not known" : "an API key is missing");
    r->code = "invalid_api_key";
    return false;
}
