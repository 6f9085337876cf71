/* SPDX-License-Identifier: MIT */
/* Names of models, and what may become a path. */
#include "hub.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

/* One half of ORG/NAME. */
static bool is_part(const char *text, size_t n)
{
    if (n == 0 || strchr("-.", text[0]) || strchr("-.", text[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_word(text[i]) ||
            (i > 0 && text[i] == text[i - 1] && (text[i] == '.' || text[i] == '-')))
            return false;
    return true;
}

static bool is_repo(const char *text, size_t n)
{
    const char *slash = memchr(text, '/', n);
    if (!slash || n >= MF_HUB_REPO_CHARS)
        return false;
    const size_t n_org = (size_t)(slash - text);
    return is_part(text, n_org) && is_part(slash + 1, n - n_org - 1);
}

bool mf_hub_is_revision(const char *text)
{
    const size_t n = strlen(text);
    if (n == 0 || n >= MF_HUB_REVISION_CHARS || !mf_hub_is_safe_path(text))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_word(text[i]) && text[i] != '/')
            return false;
    return true;
}

bool mf_hub_is_commit(const char *text)
{
    return strlen(text) == 40 && strspn(text, "0123456789abcdef") == 40;
}

/* Bytes of the UTF-8 character at p, 0 if it is none, or a control character. */
static size_t printable_character(const unsigned char *p)
{
    if (p[0] < 0x80)
        return p[0] >= 0x20 && p[0] != 0x7f;
    const size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    /* U+0080 to U+009F begin escape sequences on some terminals */
    const bool is_control = p[0] == 0xc2 && p[1] < 0xa0;
    const bool is_overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    const bool is_none = (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf4 && p[1] > 0x8f);
    return is_control || is_overlong || is_none ? 0 : n;
}

bool mf_hub_is_safe_path(const char *path)
{
    if (strlen(path) > 512)
        return false;
    const char *part = path;
    for (;;) {
        const size_t n = strcspn(part, "/");
        const bool is_dots = (n == 1 || n == 2) && strncmp(part, "..", n) == 0;
        if (n == 0 || n > 255 || is_dots)
            return false;
        if (part[n] == '\0')
            break;
        part += n + 1;
    }
    for (size_t n; *path; path += n) {
        n = printable_character((const unsigned char *)path);
        if (n == 0 || *path == '\\')
            return false;
    }
    return true;
}

bool mf_hub_name_parse(const char *text, mf_hub_name *out)
{
    mf_hub_name name = {.revision = "main"};
    const size_t n_repo = strcspn(text, "@:");
    if (!is_repo(text, n_repo))
        return false;
    memcpy(name.repo, text, n_repo);
    text += n_repo;
    if (*text == '@') {
        const size_t n = strcspn(++text, ":");
        if (n >= sizeof name.revision)
            return false;
        memcpy(name.revision, text, n);
        name.revision[n] = '\0';
        text += n;
        if (!mf_hub_is_revision(name.revision))
            return false;
    }
    if (*text == ':') {
        if (!mf_hub_is_safe_path(++text) || strlen(text) >= sizeof name.choice)
            return false;
        snprintf(name.choice, sizeof name.choice, "%s", text);
    }
    *out = name;
    return true;
}

bool mf_hub_ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* Case aside: people name these files. */
static bool is_named_gguf(const char *file)
{
    const size_t n = strlen(file), n_end = strlen(".gguf");
    return n >= n_end && strcasecmp(file + n - n_end, ".gguf") == 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool mf_hub_is_gguf(const char *file)
{
    return is_named_gguf(file) && strncasecmp(base_name(file), "mmproj", 6) != 0 &&
           strncasecmp(base_name(file), "imatrix", 7) != 0 &&
           strcmp(base_name(file), MF_HUB_TEXT_GGUF) != 0;
}

uint32_t mf_hub_parts_of(const char *file, uint32_t *part)
{
    /* -00002-of-00003.gguf */
    enum { N = 20, DIGITS = 5 };
    const size_t n = strlen(file);
    *part = 1;
    if (n < N || !is_named_gguf(file))
        return 1;
    const char *end = file + n - N;
    if (end[0] != '-' || strncmp(end + 1 + DIGITS, "-of-", 4) != 0 ||
        strspn(end + 1, "0123456789") != DIGITS || strspn(end + 10, "0123456789") != DIGITS)
        return 1;
    const unsigned long i = strtoul(end + 1, NULL, 10), n_parts = strtoul(end + 10, NULL, 10);
    if (i == 0 || i > n_parts)
        return 1;
    *part = (uint32_t)i;
    return (uint32_t)n_parts;
}

/* The word, case aside, between separators: Q4_K is none in Q4_K_M. */
static bool has_word(const char *text, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = text; *p; p++) {
        const bool begins = p == text || strchr("-._/", p[-1]);
        if (begins && strncasecmp(p, word, n) == 0 && (p[n] == '\0' || strchr("-./", p[n])))
            return true;
    }
    return false;
}

bool mf_hub_is_chosen(const char *file, const char *choice)
{
    uint32_t part, of_choice;
    if (!mf_hub_is_gguf(file))
        return false;
    if (!is_named_gguf(choice))
        return has_word(file, choice);
    /* any part names all of them */
    const uint32_t n = mf_hub_parts_of(file, &part);
    if (n != mf_hub_parts_of(choice, &of_choice) || strlen(file) != strlen(choice))
        return false;
    const size_t n_same = n > 1 ? strlen(file) - 20 : strlen(file);
    return strncmp(file, choice, n_same) == 0;
}
