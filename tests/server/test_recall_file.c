/* SPDX-License-Identifier: MIT */
/* Kept answers in their file: what was put there comes back, and what is damaged does not. */
#include "recall_file.h"
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_VOCAB 500u
#define MANY ((size_t)1 << 26)

static char directory[64];
static unsigned n_warnings;

static void count(void *user, mf_log_level level, const char *line)
{
    (void)user;
    n_warnings += level == MF_LOG_WARNING && line[0] != '\0';
}

static mf_srv_recall_file_options options_of(uint64_t max_bytes)
{
    return (mf_srv_recall_file_options){.directory = directory,
                                        .model = {1, 2, 3},
                                        .n_vocab = N_VOCAB,
                                        .max_bytes = max_bytes,
                                        .log = count};
}

/* A server's recall, with its file. */
typedef struct server {
    mf_srv_recall *recall;
    mf_srv_recall_file *file;
} server;

static server start(uint64_t max_bytes)
{
    const mf_srv_recall_file_options options = options_of(max_bytes);
    server s = {mf_srv_recall_new(MANY), NULL};
    mf_error error;
    REQUIRE(s.recall != NULL);
    REQUIRE_OK(mf_srv_recall_file_open(&options, s.recall, &s.file, &error), &error);
    return s;
}

static void stop(server *s)
{
    mf_srv_recall_file_close(&s->file);
    mf_srv_recall_free(&s->recall);
}

static void path_of(char *out, size_t capacity)
{
    snprintf(out, capacity, "%s/answers-01020300000000000000000000000000.mfanswers", directory);
}

static size_t n_file_bytes(void)
{
    char path[160];
    struct stat st;
    path_of(path, sizeof path);
    REQUIRE(stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 077) == 0);
    return (size_t)st.st_size;
}

static mf_srv_kept *make(uint64_t key, size_t n_tokens)
{
    mf_srv_kept *kept = mf_srv_kept_new();
    mf_srv_refusal refusal;
    REQUIRE(kept != NULL);
    kept->key = (mf_srv_digest){{key, ~key}};
    kept->origin = (mf_srv_origin){.is_known = true,
                                   .chain = {{key + 1, 2}},
                                   .head = {{key + 3, UINT64_MAX}},
                                   .n_head_bytes = 1000 + key,
                                   .n_head_tokens = n_tokens / 2,
                                   .system_mark = n_tokens / 3,
                                   .now = 1767225600};
    kept->message.role = MF_SRV_ASSISTANT;
    mf_srv_puts(&kept->message.content, "Caf\xC3\xA9 \xF0\x9F\x98\x80\n");
    mf_srv_put(&kept->message.content, "\0x", 2);
    if (key % 2 == 0)
        mf_srv_puts(&kept->message.thoughts, "Hm.");
    REQUIRE(mf_srv_message_call(&kept->message, key % 2 ? NULL : "call_1", "noon", "{\"a\":1}", 7,
                                &refusal));
    REQUIRE(mf_srv_message_call(&kept->message, "call_2", "dusk", "{}", 2, &refusal));
    kept->has_answer = key % 3 != 0;
    kept->n_rest_bytes = key % 3 == 2 ? 1 : 0;
    kept->n_tokens = n_tokens;
    kept->tokens = malloc((n_tokens + 1) * sizeof *kept->tokens);
    REQUIRE(kept->tokens != NULL);
    for (size_t i = 0; i < n_tokens; i++)
        kept->tokens[i] = (int32_t)((i * 7 + key) % N_VOCAB);
    return kept;
}

static bool same_text(const char *a, const char *b)
{
    return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

static bool same_bytes(const mf_srv_bytes *a, const mf_srv_bytes *b)
{
    if (!a->data || !b->data)
        return a->data == b->data;
    return a->n_bytes == b->n_bytes && memcmp(a->data, b->data, a->n_bytes) == 0;
}

static bool same(const mf_srv_kept *a, const mf_srv_kept *b)
{
    const mf_srv_origin *o = &a->origin, *p = &b->origin;
    bool is = mf_srv_digest_is(&a->key, &b->key) && mf_srv_digest_is(&o->chain, &p->chain) &&
              mf_srv_digest_is(&o->head, &p->head) && o->is_known && p->is_known &&
              o->n_head_bytes == p->n_head_bytes && o->n_head_tokens == p->n_head_tokens &&
              o->system_mark == p->system_mark && o->now == p->now &&
              a->has_answer == b->has_answer && a->n_rest_bytes == b->n_rest_bytes &&
              a->n_tokens == b->n_tokens &&
              memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens) == 0 &&
              same_bytes(&a->message.content, &b->message.content) &&
              same_bytes(&a->message.thoughts, &b->message.thoughts) &&
              a->message.role == b->message.role && a->message.n_calls == b->message.n_calls;
    for (size_t i = 0; is && i < a->message.n_calls; i++)
        is = same_text(a->message.calls[i].id, b->message.calls[i].id) &&
             same_text(a->message.calls[i].name, b->message.calls[i].name) &&
             same_text(a->message.calls[i].arguments, b->message.calls[i].arguments);
    return is;
}

/* Whether the answer of that key is there as it was made. */
static bool has(const server *s, uint64_t key, size_t n_tokens)
{
    const mf_srv_digest digest = {{key, ~key}};
    mf_srv_kept *found = mf_srv_recall_find(s->recall, &digest), *made = make(key, n_tokens);
    const bool is = found && same(found, made);
    mf_srv_kept_drop(found);
    mf_srv_kept_drop(made);
    return is;
}

static void test_comes_back(void)
{
    server s = start(MANY);
    const mf_srv_digest_key key = *mf_srv_recall_key(s.recall);
    mf_srv_bytes tools = {0};
    for (uint64_t i = 1; i <= 20; i++)
        mf_srv_recall_put(s.recall, make(i, 10 * i));
    mf_srv_puts(&tools, "[{\"n\":\"b\"},{\"n\":\"a\"}]");
    CHECK(mf_srv_recall_order(s.recall, &tools));
    stop(&s);
    s = start(MANY);
    CHECK(memcmp(&key, mf_srv_recall_key(s.recall), sizeof key) == 0);
    for (uint64_t i = 1; i <= 20; i++)
        CHECK(has(&s, i, 10 * i));
    mf_srv_bytes_free(&tools);
    mf_srv_puts(&tools, "[{\"n\":\"a\"},{\"n\":\"b\"}]");
    CHECK(mf_srv_recall_order(s.recall, &tools));
    CHECK_STR(tools.data, "[{\"n\":\"b\"},{\"n\":\"a\"}]");
    mf_srv_bytes_free(&tools);
    /* what is read is not written again; one of the same key takes the other's place */
    const size_t n = n_file_bytes();
    mf_srv_recall_put(s.recall, make(5, 100));
    stop(&s);
    CHECK(n_file_bytes() > n);
    s = start(MANY);
    CHECK(has(&s, 5, 100) && has(&s, 20, 200) && n_warnings == 0);
    /* the file is this server's */
    const mf_srv_recall_file_options options = options_of(MANY);
    mf_srv_recall_file *second = NULL;
    mf_srv_recall *other = mf_srv_recall_new(MANY);
    mf_error error;
    CHECK_STATUS(mf_srv_recall_file_open(&options, other, &second, &error), MF_ERR_STATE);
    CHECK(second == NULL && strstr(error.message, "another server") != NULL);
    mf_srv_recall_free(&other);
    stop(&s);
}

/* A file that is full is written anew with what is kept, the newest of it; what a server that was
 * killed at that has left goes. */
static void test_limit(void)
{
    const uint64_t max_bytes = 40000;
    char left[160];
    server s = start(max_bytes);
    snprintf(left, sizeof left, "%s/tmp-answers-01020300000000000000000000000000.mfanswers",
             directory);
    REQUIRE(close(open(left, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) == 0);
    for (uint64_t i = 100; i < 200; i++) {
        mf_srv_recall_put(s.recall, make(i, 300));
        usleep(300); /* the queue is short */
    }
    mf_srv_recall_put(s.recall, make(200, 20000)); /* more than it may take of the file */
    stop(&s);
    CHECK(n_file_bytes() <= max_bytes);
    s = start(max_bytes);
    CHECK(has(&s, 199, 300) && has(&s, 198, 300) && !has(&s, 100, 300) && !has(&s, 200, 20000));
    stop(&s);
    DIR *dir = opendir(directory);
    REQUIRE(dir != NULL);
    size_t n = 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        n += e->d_name[0] != '.';
    closedir(dir);
    CHECK(n == 1);
}

/* A file is written anew while the newest but few is larger than any file may have: the older ones
 * are in it all the same. */
static void test_large_among_others(void)
{
    const uint64_t max_bytes = 40000;
    server s = start(MANY);
    const size_t n_before = n_file_bytes();
    mf_srv_recall_put(s.recall, make(298, 300));
    stop(&s);
    const uint64_t n_most = (max_bytes - MF_SRV_ANSWERS_HEAD_BYTES) / (n_file_bytes() - n_before);
    char path[160];
    path_of(path, sizeof path);
    REQUIRE(unlink(path) == 0 && n_most > 20 && n_most < 60);
    s = start(max_bytes);
    for (uint64_t i = 0; i <= n_most; i++) { /* the last one is too many */
        if (i + 5 == n_most)
            mf_srv_recall_put(s.recall, make(200, 20000));
        mf_srv_recall_put(s.recall, make(300 + 2 * i, 300));
    }
    stop(&s);
    CHECK(n_file_bytes() <= max_bytes);
    s = start(max_bytes);
    for (uint64_t i = n_most - 8; i <= n_most; i++)
        CHECK_MSG(has(&s, 300 + 2 * i, 300), "answer %llu of %llu", (unsigned long long)i,
                  (unsigned long long)n_most);
    CHECK(!has(&s, 300, 300) && !has(&s, 200, 20000));
    stop(&s);
}

/* Each byte of a file changed, and each length of it: only whole answers come back, in order, and
 * the file goes on from there. */
static void check_damaged(const unsigned char *bytes, size_t n_bytes, size_t n_good)
{
    char path[160];
    path_of(path, sizeof path);
    FILE *file = fopen(path, "wb");
    REQUIRE(file != NULL && fwrite(bytes, 1, n_bytes, file) == n_bytes && fclose(file) == 0);
    server s = start(MANY);
    size_t n = 0;
    while (n < 3 && has(&s, 1 + n, 5))
        n++;
    CHECK_MSG(n >= n_good, "%zu answers of %zu bytes, expected %zu", n, n_bytes, n_good);
    for (uint64_t i = n; i < 3; i++)
        CHECK(!has(&s, 1 + i, 5));
    mf_srv_recall_put(s.recall, make(9, 5));
    stop(&s);
    s = start(MANY);
    CHECK(has(&s, 9, 5) && (n == 0 || has(&s, n, 5)));
    stop(&s);
}

static void test_damage(void)
{
    static unsigned char bytes[4096], changed[4096];
    char path[160];
    size_t ends[4] = {0};
    path_of(path, sizeof path);
    REQUIRE(unlink(path) == 0);
    server s = start(MANY);
    stop(&s);
    ends[0] = n_file_bytes();
    for (uint64_t i = 1; i <= 3; i++) {
        s = start(MANY);
        mf_srv_recall_put(s.recall, make(i, 5));
        stop(&s);
        ends[i] = n_file_bytes();
    }
    FILE *file = fopen(path, "rb");
    REQUIRE(file != NULL && fread(bytes, 1, sizeof bytes, file) == ends[3] && fclose(file) == 0);
    n_warnings = 0;
    for (size_t n = 0; n < ends[3]; n += 7)
        check_damaged(bytes, n, (n >= ends[1]) + (n >= ends[2]));
    for (size_t at = 0; at < ends[3]; at += 5) {
        memcpy(changed, bytes, ends[3]);
        changed[at] ^= (unsigned char)(1u << at % 8);
        check_damaged(changed, ends[3], at < ends[0] ? 0 : (at >= ends[1]) + (at >= ends[2]));
    }
    CHECK(n_warnings > 50);
}

/* Answers whose digest is right and whose content is not. */
static void test_content(void)
{
    const mf_srv_digest_key key = {{1, 2}};
    mf_srv_kept *kept = make(4, 5);
    mf_srv_bytes record = {0};
    mf_srv_record_put_answer(&key, kept, &record);
    const unsigned char *bytes = (const unsigned char *)record.data + MF_SRV_RECORD_HEAD_BYTES;
    const size_t n = record.n_bytes - MF_SRV_RECORD_HEAD_BYTES;
    mf_srv_kept *back = mf_srv_record_answer(bytes, n, N_VOCAB);
    CHECK(back != NULL && same(back, kept));
    mf_srv_kept_drop(back);
    CHECK(mf_srv_record_answer(bytes, n, 4) == NULL); /* tokens of another vocabulary */
    CHECK(mf_srv_record_answer(bytes, n - 1, N_VOCAB) == NULL);
    for (size_t at = 0; at < n; at++) { /* no crash, and nothing that is no text */
        record.data[MF_SRV_RECORD_HEAD_BYTES + at] ^= (char)0xFF;
        back = mf_srv_record_answer(bytes, n, N_VOCAB);
        for (size_t i = 0; back && i < back->message.n_calls; i++)
            CHECK(back->message.calls[i].name && back->message.calls[i].arguments);
        mf_srv_kept_drop(back);
        record.data[MF_SRV_RECORD_HEAD_BYTES + at] ^= (char)0xFF;
    }
    mf_srv_bytes_free(&record);
    mf_srv_kept_drop(kept);
}

int main(void)
{
    snprintf(directory, sizeof directory, "/tmp/moeflux-answers-XXXXXX");
    REQUIRE(mkdtemp(directory) != NULL);
    test_comes_back();
    test_limit();
    test_large_among_others();
    test_damage();
    test_content();
    char path[160];
    path_of(path, sizeof path);
    CHECK(unlink(path) == 0 && rmdir(directory) == 0);
    return test_result();
}
