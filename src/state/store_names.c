/* SPDX-License-Identifier: MIT */
/*
 * Which files of the directory are the store's: those with exactly the names that it gives, and the
 * content that it writes. Everything else in there is somebody's, and not touched.
 */
#include "state/state_store_impl.h"

#include "base/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASH_DIGITS (2 * MF_FINGERPRINT_BYTES)
#define NUMBER_DIGITS 16 /* at most, of a process or a counter */

static const char hex_digits[] = "0123456789abcdef";

/* Names follow from content: two processes that write the same state write one file. */
void mf_store_entry_name(const int32_t *sequence, size_t n_words, char name[MF_STORE_NAME_CHARS])
{
    uint8_t hash[MF_FINGERPRINT_BYTES];
    mf_checksum c;
    mf_fingerprint_begin(&c);
    mf_fingerprint_add(&c, sequence, n_words * 4);
    mf_fingerprint_end(&c, hash);
    for (size_t i = 0; i < sizeof hash; i++) {
        name[2 * i] = hex_digits[hash[i] >> 4];
        name[2 * i + 1] = hex_digits[hash[i] & 15];
    }
    memcpy(name + HASH_DIGITS, MF_STORE_SUFFIX, sizeof MF_STORE_SUFFIX);
}

int mf_store_tmp_make(const mf_store *s, const char *entry, char tmp[MF_STORE_TMP_CHARS])
{
    char front[MF_STORE_TMP_CHARS];
    snprintf(front, sizeof front, MF_STORE_TMP "%.*s-0-", HASH_DIGITS, entry);
    return mf_make_aside(s->dir_fd, front, MF_STORE_SUFFIX, 0600, tmp, MF_STORE_TMP_CHARS);
}

static bool is_entry(const char *name)
{
    return strspn(name, hex_digits) == HASH_DIGITS &&
           strcmp(name + HASH_DIGITS, MF_STORE_SUFFIX) == 0;
}

/* What follows "-" and a number; NULL where they are not there. */
static const char *behind_number(const char *at)
{
    size_t n = at != NULL && *at == '-' ? strspn(at + 1, hex_digits) : 0;
    return n >= 1 && n <= NUMBER_DIGITS ? at + 1 + n : NULL;
}

static bool is_tmp(const char *name)
{
    if (strspn(name, hex_digits) != HASH_DIGITS)
        return false;
    const char *end = behind_number(behind_number(name + HASH_DIGITS));
    return end != NULL && strcmp(end, MF_STORE_SUFFIX) == 0;
}

mf_store_name_kind mf_store_kind_of(const char *name)
{
    if (is_entry(name))
        return MF_STORE_IS_ENTRY;
    if (strncmp(name, MF_STORE_TMP, strlen(MF_STORE_TMP)) == 0)
        return is_tmp(name + strlen(MF_STORE_TMP)) ? MF_STORE_IS_TMP : MF_STORE_IS_FOREIGN;
    if (strncmp(name, MF_STORE_BAD, strlen(MF_STORE_BAD)) == 0)
        return is_entry(name + strlen(MF_STORE_BAD)) ? MF_STORE_IS_BAD : MF_STORE_IS_FOREIGN;
    return MF_STORE_IS_FOREIGN;
}

/* Begins as a snapshot does; one being written may have nothing there yet. */
static bool has_our_content(int fd, bool is_tmp_file)
{
    static const unsigned char nothing[MF_SNAPSHOT_MAGIC_BYTES];
    unsigned char begin[MF_SNAPSHOT_MAGIC_BYTES];
    ssize_t n = pread(fd, begin, sizeof begin, 0);
    if (n == (ssize_t)sizeof begin && mf_snapshot_has_magic(begin))
        return true;
    return is_tmp_file && n >= 0 && memcmp(begin, nothing, (size_t)n) == 0;
}

int mf_store_open_own(const mf_store *s, const char *name, int flags)
{
    struct stat st;
    mf_store_name_kind kind = mf_store_kind_of(name);
    if (kind == MF_STORE_IS_FOREIGN)
        return -1;
    int fd = mf_open_apart(s->dir_fd, name, flags | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && has_our_content(fd, kind == MF_STORE_IS_TMP))
        return fd;
    close(fd);
    return -1;
}
