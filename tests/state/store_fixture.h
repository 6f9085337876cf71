/* SPDX-License-Identifier: MIT */
/* Entries of a store whose content follows from a number, and a scratch directory. */
#ifndef MF_TESTS_STORE_FIXTURE_H
#define MF_TESTS_STORE_FIXTURE_H

#include "state/state_store.h"
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRY_VOCAB 1000u

typedef struct entry_kind {
    uint32_t number;
    size_t n_tokens;
    uint32_t n_parts;
    size_t part_bytes;
    uint32_t n_marks; /* at equal distances; the last parts are theirs, one each */
} entry_kind;

static const mf_snapshot_key fixture_key = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, 0, 2};

/* Free the result. All entries begin with the same n_tokens / 2 tokens. */
__attribute__((unused)) static int32_t *entry_tokens(const entry_kind *k)
{
    int32_t *tokens = malloc((k->n_tokens + 1) * sizeof *tokens);
    if (tokens == NULL)
        abort();
    for (size_t i = 0; i < k->n_tokens; i++)
        tokens[i] = (int32_t)((i < k->n_tokens / 2 ? i : i * 7 + k->number) % ENTRY_VOCAB);
    return tokens;
}

__attribute__((unused)) static void entry_part(const entry_kind *k, uint32_t part,
                                               unsigned char *out)
{
    uint64_t seed = UINT64_C(1000003) * (k->number + 1) + part;
    for (size_t i = 0; i < k->part_bytes; i += 8) {
        uint64_t x = test_random(&seed);
        memcpy(out + i, &x, k->part_bytes - i < 8 ? k->part_bytes - i : 8);
    }
}

__attribute__((unused)) static mf_snapshot_head entry_head(const entry_kind *k)
{
    mf_snapshot_head head = {.key = fixture_key,
                             .n_tokens = k->n_tokens,
                             .n_layers = 1,
                             .n_vocab = ENTRY_VOCAB,
                             .page_tokens = 1,
                             .page_bytes = k->part_bytes,
                             .n_parts = k->n_parts,
                             .parts_bytes = k->n_parts * k->part_bytes,
                             .n_marks = k->n_marks,
                             .mark_parts = k->n_marks != 0,
                             .mark_bytes = k->n_marks != 0 ? k->part_bytes : 0};
    for (uint32_t i = 0; i < k->n_marks; i++)
        head.marks[i] = (uint32_t)(k->n_tokens * (i + 1) / (k->n_marks + 1));
    return head;
}

__attribute__((unused)) static mf_status entry_write(void *ctx, mf_byte_sink *sink, mf_error *error)
{
    const entry_kind *k = ctx;
    mf_snapshot_head head = entry_head(k);
    int32_t *tokens = entry_tokens(k);
    unsigned char *part = malloc(k->part_bytes);
    mf_status status = mf_snapshot_write_head(sink, &head, tokens, error);
    for (uint32_t i = 0; i < k->n_parts && status == MF_OK; i++) {
        entry_part(k, i, part);
        status = mf_snapshot_write_part(sink, &head, i, part, k->part_bytes, error);
    }
    free(part);
    free(tokens);
    return status;
}

/* Adds what `write` gives to the sink for `ctx`, under the tokens of k and with room for it. */
__attribute__((unused)) static mf_status entry_add_by(mf_store *store, const entry_kind *k,
                                                      mf_store_write_fn write, void *ctx,
                                                      mf_error *error)
{
    mf_snapshot_head head = entry_head(k);
    int32_t *tokens = entry_tokens(k);
    const mf_store_addition addition = {
        &fixture_key, tokens, k->n_tokens, mf_snapshot_total_bytes(&head), write, ctx};
    mf_status status = mf_store_add(store, &addition, error);
    free(tokens);
    return status;
}

__attribute__((unused)) static mf_status entry_add(mf_store *store, const entry_kind *k,
                                                   mf_error *error)
{
    return entry_add_by(store, k, entry_write, (void *)k, error);
}

/* Reads a found entry and holds every byte against what was written: MF_ERR_STATE if one differs.
 * Counts no checks, so that threads may call it. */
__attribute__((unused)) static mf_status
entry_read_match(mf_store *store, const entry_kind *k, const mf_store_match *match, mf_error *error)
{
    mf_state_reader *reader;
    mf_snapshot_head head;
    mf_status status = mf_store_read_begin(store, match, &reader, error);
    if (status != MF_OK)
        return status;
    int32_t *want = entry_tokens(k), *got = malloc((k->n_tokens + 1) * sizeof *got);
    unsigned char *want_part = malloc(k->part_bytes), *part = malloc(k->part_bytes);
    status = mf_snapshot_read_header(&reader->source, &head, error);
    if (status == MF_OK && (head.n_tokens != k->n_tokens || head.n_parts != k->n_parts))
        status = mf_fail(error, MF_ERR_STATE, "another entry");
    if (status == MF_OK) {
        mf_state_reader_extend(reader, mf_snapshot_total_bytes(&head));
        status = mf_snapshot_read_tokens(&reader->source, &head, got, error);
    }
    if (status == MF_OK && memcmp(got, want, k->n_tokens * sizeof *got) != 0)
        status = mf_fail(error, MF_ERR_STATE, "other tokens than were written");
    for (uint32_t i = 0; i < k->n_parts && status == MF_OK; i++) {
        status = mf_snapshot_read_part(&reader->source, &head, i, part, k->part_bytes, error);
        entry_part(k, i, want_part);
        if (status == MF_OK && memcmp(part, want_part, k->part_bytes) != 0)
            status = mf_fail(error, MF_ERR_STATE, "another part than was written");
    }
    mf_store_read_end(store, match, status);
    free(want_part);
    free(part);
    free(want);
    free(got);
    return status;
}

__attribute__((unused)) static bool find_tokens(mf_store *store, const int32_t *tokens, size_t n,
                                                bool whole, size_t n_least, mf_store_match *out)
{
    const mf_store_query query = {&fixture_key, tokens, n, .n_least = n_least, .whole = whole};
    return mf_store_find(store, &query, out);
}

/* MF_ERR_NOT_FOUND: the store does not have it. */
__attribute__((unused)) static mf_status entry_read(mf_store *store, const entry_kind *k,
                                                    mf_error *error)
{
    mf_store_match match;
    int32_t *tokens = entry_tokens(k);
    bool found = find_tokens(store, tokens, k->n_tokens, true, 0, &match);
    free(tokens);
    if (!found || match.n_common != k->n_tokens || match.n_tokens != k->n_tokens)
        return MF_ERR_NOT_FOUND;
    return entry_read_match(store, k, &match, error);
}

__attribute__((unused)) static void remove_dir(const char *dir)
{
    DIR *d = opendir(dir);
    if (d == NULL)
        return;
    char path[600];
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlink(path);
    }
    closedir(d);
    rmdir(dir);
}

/* A directory that does not exist yet. */
__attribute__((unused)) static const char *fresh_dir(void)
{
    static char dir[256];
    const char *tmp = getenv("TMPDIR");
    if (dir[0] != '\0')
        remove_dir(dir);
    snprintf(dir, sizeof dir, "%s/moeflux-store-XXXXXX", tmp != NULL ? tmp : "/tmp");
    REQUIRE(mkdtemp(dir) != NULL);
    rmdir(dir);
    return dir;
}

/* Files whose name begins with prefix and ends with suffix; the last one's name to `name`. */
__attribute__((unused)) static unsigned count_files(const char *dir, const char *prefix,
                                                    const char *suffix, char name[300])
{
    unsigned n = 0;
    DIR *d = opendir(dir);
    REQUIRE(d != NULL);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        size_t n_name = strlen(e->d_name), n_suffix = strlen(suffix);
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 || n_name < n_suffix ||
            strcmp(e->d_name + n_name - n_suffix, suffix) != 0)
            continue;
        n++;
        if (name != NULL)
            snprintf(name, 300, "%s", e->d_name);
    }
    closedir(d);
    return n;
}

__attribute__((unused)) static mf_store *store_open(const char *dir, uint64_t max_bytes)
{
    mf_store_options options;
    mf_store *store = NULL;
    mf_error error = {0};
    mf_store_options_default(&options);
    options.max_bytes = max_bytes;
    REQUIRE_OK(mf_store_open(dir, &options, &store, &error), &error);
    return store;
}

#endif
