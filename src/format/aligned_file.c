/* SPDX-License-Identifier: MIT */
/* Heads of files of experts, as bytes. */
#include "format/aligned_file.h"

#include "base/checked.h"
#include "base/checksum.h"
#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = {'M', 'F', 'E', 'X', 'P', 'E', 'R', 'T'};

static void put(unsigned char *to, uint64_t value, uint32_t n_bytes)
{
    for (uint32_t i = 0; i < n_bytes; i++)
        to[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get(const unsigned char *from, uint32_t n_bytes)
{
    uint64_t value = 0;
    for (uint32_t i = n_bytes; i-- > 0;)
        value = value << 8 | from[i];
    return value;
}

static size_t table_end(uint32_t n_experts)
{
    return MF_ALIGNED_HEAD_BYTES + (size_t)n_experts * MF_ALIGNED_ENTRY_BYTES;
}

uint64_t mf_aligned_head_bytes(uint32_t n_experts)
{
    return mf_round_up(table_end(n_experts) + 8, MF_ALIGNED_BYTES);
}

void mf_aligned_head_write(const mf_aligned_head *head, const mf_aligned_entry *entries,
                           unsigned char *out)
{
    const uint64_t n_bytes = mf_aligned_head_bytes(head->n_experts);
    memset(out, 0, (size_t)n_bytes);
    memcpy(out, magic, sizeof magic);
    put(out + 8, MF_ALIGNED_VERSION, 4);
    put(out + 12, head->layer, 4);
    memcpy(out + 16, head->id, sizeof head->id);
    put(out + 32, head->n_experts, 4);
    put(out + 40, n_bytes, 8);
    put(out + 48, head->file_bytes, 8);
    for (uint32_t i = 0; i < head->n_experts; i++) {
        unsigned char *entry = out + table_end(i);
        put(entry, entries[i].expert, 4);
        put(entry + 4, entries[i].form, 4);
        put(entry + 8, entries[i].offset, 8);
        put(entry + 16, entries[i].n_bytes, 8);
        put(entry + 24, entries[i].checksum, 8);
    }
    const size_t end = table_end(head->n_experts);
    put(out + end, mf_checksum_of(out, end, 0), 8);
}

mf_status mf_aligned_head_read(const unsigned char *bytes, uint64_t file_bytes, const char *path,
                               mf_aligned_head *out, mf_error *error)
{
    mf_aligned_head head = {.layer = (uint32_t)get(bytes + 12, 4),
                            .n_experts = (uint32_t)get(bytes + 32, 4),
                            .first = get(bytes + 40, 8),
                            .file_bytes = get(bytes + 48, 8)};
    memcpy(head.id, bytes + 16, sizeof head.id);
    if (memcmp(bytes, magic, sizeof magic) != 0)
        return mf_fail_at(error, MF_ERR_FORMAT, 0, "%s: not a file of experts (MFEXPERT expected)",
                          path);
    if (get(bytes + 8, 4) != MF_ALIGNED_VERSION)
        return mf_fail_at(error, MF_ERR_UNSUPPORTED, 8, "%s: version %llu, expected %u", path,
                          (unsigned long long)get(bytes + 8, 4), MF_ALIGNED_VERSION);
    if (head.n_experts == 0 || head.n_experts > MF_ALIGNED_MAX_EXPERTS)
        return mf_fail_at(error, MF_ERR_FORMAT, 32, "%s: %u experts, expected 1 to %u", path,
                          head.n_experts, MF_ALIGNED_MAX_EXPERTS);
    if (head.first != mf_aligned_head_bytes(head.n_experts))
        return mf_fail_at(error, MF_ERR_FORMAT, 40, "%s: a head of %llu bytes, expected %llu", path,
                          (unsigned long long)head.first,
                          (unsigned long long)mf_aligned_head_bytes(head.n_experts));
    if (head.file_bytes != file_bytes || file_bytes < head.first)
        return mf_fail_at(error, MF_ERR_FORMAT, 48, "%s: %llu bytes, its head says %llu", path,
                          (unsigned long long)file_bytes, (unsigned long long)head.file_bytes);
    *out = head;
    return MF_OK;
}

static mf_aligned_entry entry_at(const unsigned char *bytes, uint32_t i)
{
    const unsigned char *from = bytes + table_end(i);
    return (mf_aligned_entry){.expert = (uint32_t)get(from, 4),
                              .form = (uint32_t)get(from + 4, 4),
                              .offset = get(from + 8, 8),
                              .n_bytes = get(from + 16, 8),
                              .checksum = get(from + 24, 8)};
}

mf_status mf_aligned_entries_read(const unsigned char *bytes, const mf_aligned_head *head,
                                  const char *path, mf_aligned_entry *entries, mf_error *error)
{
    const size_t end = table_end(head->n_experts);
    uint64_t least = head->first;
    if (get(bytes + end, 8) != mf_checksum_of(bytes, end, 0))
        return mf_fail_at(error, MF_ERR_FORMAT, end, "%s: the head is damaged (checksum)", path);
    for (uint32_t i = 0; i < head->n_experts; i++) {
        const mf_aligned_entry e = entry_at(bytes, i);
        const bool is_within = e.offset <= head->file_bytes &&
                               e.n_bytes <= head->file_bytes - e.offset && e.n_bytes != 0;
        if (!is_within || e.offset % MF_ALIGNED_BYTES != 0 || e.offset < least)
            return mf_fail_at(error, MF_ERR_FORMAT, table_end(i),
                              "%s: expert %u: bytes %llu + %llu; expected a multiple of %u from "
                              "%llu on, within the file's %llu",
                              path, e.expert, (unsigned long long)e.offset,
                              (unsigned long long)e.n_bytes, MF_ALIGNED_BYTES,
                              (unsigned long long)least, (unsigned long long)head->file_bytes);
        least = e.offset + e.n_bytes;
        entries[i] = e;
    }
    return MF_OK;
}

#define IN_HEAD " inside its head"

static mf_status read_entries(const mf_allocator *a, int fd, const char *path,
                              const mf_aligned_head *head, mf_aligned_entry **out, mf_error *error)
{
    const size_t n_bytes = (size_t)head->first;
    const size_t n_entries = head->n_experts * sizeof(mf_aligned_entry);
    unsigned char *bytes = mf_alloc(a, n_bytes);
    mf_aligned_entry *entries = bytes != NULL ? mf_alloc(a, n_entries) : NULL;
    mf_status status = entries == NULL ? mf_fail_memory(error, n_bytes + n_entries, path) : MF_OK;
    if (status == MF_OK)
        status = mf_read_at(fd, path, bytes, n_bytes, 0, IN_HEAD, error);
    if (status == MF_OK)
        status = mf_aligned_entries_read(bytes, head, path, entries, error);
    if (status == MF_OK)
        *out = entries;
    else
        mf_free(a, entries, n_entries);
    mf_free(a, bytes, n_bytes);
    return status;
}

mf_status mf_aligned_file_read(const mf_allocator *a, const char *path, mf_aligned_head *head,
                               mf_aligned_entry **entries, mf_error *error)
{
    unsigned char bytes[MF_ALIGNED_HEAD_BYTES];
    struct stat st;
    /* what is no regular file must not keep the program waiting */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return mf_fail_os(error, errno == ENOENT ? MF_ERR_NOT_FOUND : MF_ERR_IO, errno,
                          "%s: cannot open", path);
    mf_status status = MF_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        status = mf_fail(error, MF_ERR_FORMAT, "%s: not a regular file", path);
    if (status == MF_OK)
        status = mf_read_at(fd, path, bytes, sizeof bytes, 0, IN_HEAD, error);
    if (status == MF_OK)
        status = mf_aligned_head_read(bytes, (uint64_t)st.st_size, path, head, error);
    if (status == MF_OK)
        status = read_entries(a, fd, path, head, entries, error);
    close(fd);
    return status;
}

void mf_aligned_id_text(const uint8_t id[MF_ALIGNED_ID_BYTES], char text[33])
{
    for (size_t i = 0; i < MF_ALIGNED_ID_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", id[i]);
}

static int digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

bool mf_aligned_id_parse(const char *text, uint8_t id[MF_ALIGNED_ID_BYTES])
{
    if (strlen(text) != 2 * (size_t)MF_ALIGNED_ID_BYTES)
        return false;
    for (size_t i = 0; i < MF_ALIGNED_ID_BYTES; i++) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        id[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
