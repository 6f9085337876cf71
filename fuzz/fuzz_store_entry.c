/* SPDX-License-Identifier: MIT */
/*
 * Entries of the store from anywhere: the input is the file, as it is and with its head's checksums
 * put right. What the store says of it is held against the readers of the format, and what its
 * reader gives against the file's bytes.
 */
#include "put_right.h"

#include "io/io_engine.h"
#include "state/state_store.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define ENTRY "0123456789abcdef0123456789abcdef.mfstate"
#define TAIL_BYTES 8u

#define BAD_ENTRY ("bad-" ENTRY)

static char dir[200];

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void path_of(char path[300], const char *name)
{
    snprintf(path, 300, "%s/%s", dir, name);
}

static void remove_all(void)
{
    static const char *const names[] = {ENTRY, BAD_ENTRY, "lock"};
    char path[300];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path_of(path, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

static void make_directory(void)
{
    const char *tmp = getenv("TMPDIR");
    if (dir[0] != '\0')
        return;
    snprintf(dir, sizeof dir, "%s/moeflux-fuzz-XXXXXX", tmp != NULL ? tmp : "/tmp");
    must(mkdtemp(dir) != NULL);
    atexit(remove_all);
}

static void write_entry(const uint8_t *data, size_t n_bytes)
{
    char path[300];
    path_of(path, BAD_ENTRY);
    unlink(path);
    path_of(path, ENTRY);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    must(fd >= 0 && write(fd, data, n_bytes) == (ssize_t)n_bytes);
    close(fd);
}

/* What the format's readers say of the whole file. The tokens are the caller's to free. */
static bool is_entry(const uint8_t *data, size_t n_bytes, mf_snapshot_head *head, int32_t **tokens)
{
    mf_buffer_source source;
    mf_buffer_source_init(&source, data, n_bytes);
    if (mf_snapshot_read_header(&source.source, head, NULL) != MF_OK ||
        mf_snapshot_total_bytes(head) + TAIL_BYTES != n_bytes)
        return false;
    *tokens = malloc((size_t)head->n_tokens * 4 + 1);
    must(*tokens != NULL);
    return mf_snapshot_read_tokens(&source.source, head, *tokens, NULL) == MF_OK;
}

/* All bytes but from..to, in pieces of odd sizes. */
static void check_bytes(mf_store *store, const mf_store_match *m, const uint8_t *data,
                        uint64_t from, uint64_t to)
{
    enum { PIECE = 1021 };
    uint8_t piece[PIECE];
    mf_state_reader *reader;
    mf_snapshot_head head;
    must(mf_store_read_begin(store, m, &reader, NULL) == MF_OK);
    must(mf_snapshot_read_header(&reader->source, &head, NULL) == MF_OK);
    mf_state_reader_skip(reader, from, to);
    mf_state_reader_extend(reader, mf_snapshot_total_bytes(&head));
    for (uint64_t at = MF_SNAPSHOT_HEADER_BYTES, end = mf_snapshot_total_bytes(&head); at < end;) {
        uint64_t stop = at < from && from < to ? from : end;
        size_t n = stop - at < PIECE ? (size_t)(stop - at) : PIECE;
        must(reader->source.read(&reader->source, piece, n, NULL) == MF_OK);
        must(memcmp(piece, data + at, n) == 0);
        at += n;
        at = at == from && from < to ? to : at;
    }
    mf_store_read_end(store, m, MF_OK);
}

/* It is found by all of its tokens and at every mark, and read as it was written. */
static void check_entry(mf_store *store, const uint8_t *data, const mf_snapshot_head *head,
                        const int32_t *tokens)
{
    mf_store_match m;
    mf_store_query query = {.key = &head->key, .tokens = tokens, .whole = true};
    for (uint32_t i = 0; i < head->n_marks; i++) {
        query.n_tokens = head->marks[i];
        must(mf_store_find(store, &query, &m));
        must(m.n_common == head->marks[i] && m.n_tokens == head->n_tokens);
    }
    if (head->n_tokens == 0)
        return;
    query.n_tokens = (size_t)head->n_tokens;
    must(mf_store_find(store, &query, &m));
    must(m.n_common == head->n_tokens && m.has_logits == head->has_logits);
    uint64_t n_head = mf_snapshot_head_bytes(head->n_tokens, head->n_marks);
    must(m.state_end == mf_snapshot_mark_offset(head, 0) && m.state_end >= n_head);
    check_bytes(store, &m, data, 0, 0);
    check_bytes(store, &m, data, n_head, m.state_end);
    check_bytes(store, &m, data, n_head + (m.state_end - n_head) / 3, m.state_end);
}

static void try_entry(const uint8_t *data, size_t n_bytes)
{
    char path[300];
    struct stat st;
    mf_store *store = NULL;
    mf_store_stats stats;
    mf_snapshot_head head;
    int32_t *tokens = NULL;
    write_entry(data, n_bytes);
    /* threads that read: rings take the kernel milliseconds to take down */
    must(mf_store_open_with_io(dir, NULL, &mf_io_engine_pool, NULL, &store, NULL) == MF_OK);
    bool is_sound = is_entry(data, n_bytes, &head, &tokens);
    bool is_ours = n_bytes >= 8 && memcmp(data, "MFSTATE\n", 8) == 0;
    mf_store_get_stats(store, &stats);
    must(stats.n_entries == is_sound && stats.n_set_aside == (is_ours && !is_sound));
    if (is_sound)
        check_entry(store, data, &head, tokens);
    mf_store_close(&store);
    path_of(path, ENTRY);
    must((stat(path, &st) == 0) == (is_sound || !is_ours));
    free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes > 1 << 16)
        return 0;
    make_directory();
    try_entry(data, n_bytes);
    uint8_t *copy = copy_of(data, n_bytes);
    put_head_right(copy, n_bytes);
    try_entry(copy, n_bytes);
    free(copy);
    return 0;
}
