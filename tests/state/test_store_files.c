/* SPDX-License-Identifier: MIT */
/*
 * The store's files among others: whose they are, what is counted, in which order they reach the
 * disk, what goes from a full one, and what happens while another process keeps the lock.
 */
#include "failing_alloc.h"
#include "state/state_store_impl.h"
#include "store_fixture.h"

#include <errno.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <time.h>

static entry_kind kind_of(uint32_t number)
{
    return (entry_kind){number, 100, 3, 5000, 0};
}

#define HASH_A "0123456789abcdef0123456789abcdef"
#define HASH_B "edcba9876543210fedcba9876543210" /* behind a digit */

typedef struct stranger {
    const char *name, *content;
} stranger;

/* Almost the store's names with any content, and its names with content that it did not write. */
static const stranger strangers[] = {
    {"README", "hello"},
    {".hidden.mfstate", "MFSTATE\n"},
    {"x.mfstate.part", "hello"},
    {"notes.mfstate", "my own, not a snapshot"},
    {"snapshot.mfstate", "MFSTATE\nsaved by hand"},
    {"0123456789abcdef0123456789abcde.mfstate", "MFSTATE\n one digit too few"},
    {HASH_A "0.mfstate", "MFSTATE\n one too many"},
    {"0123456789ABCDEF0123456789ABCDEF.mfstate", "MFSTATE\n capitals"},
    {HASH_A ".mfstate", "a name of the store's, and other content"},
    {"f" HASH_A, "MFSTATE\n"},
    {"tmp-", ""},
    {"tmp-notes.txt", "hello"},
    {"tmp-1-1", ""},
    {"tmp-" HASH_A ".mfstate", ""},
    {"tmp-" HASH_A "-1.mfstate", ""},
    {"tmp-" HASH_A "-1-g.mfstate", ""},
    {"tmp-" HASH_A "-1-2.txt", ""},
    {"tmp-" HASH_A "-1-12345678901234567.mfstate", ""},
    {"tmp-" HASH_A "-1-2.mfstate", "somebody's"},
    {"bad-photo.jpg", "hello"},
    {"bad-" HASH_A, "MFSTATE\n"},
    {"bad-" HASH_A ".mfstate", "somebody's"},
    {"bad-notes.mfstate", "MFSTATE\n"},
    {"1" HASH_B ".mfstate", ""},
    {"bad-2" HASH_B ".mfstate", ""},
};
#define N_STRANGERS (sizeof strangers / sizeof *strangers)

static void put_file(const char *dir, const char *name, const void *content, size_t n_bytes)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    REQUIRE(fd >= 0 && write(fd, content, n_bytes) == (ssize_t)n_bytes);
    close(fd);
}

static bool is_as_it_was(const char *dir, const stranger *s)
{
    char path[600], content[100] = "";
    snprintf(path, sizeof path, "%s/%s", dir, s->name);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, content, sizeof content - 1) : -1;
    if (fd >= 0)
        close(fd);
    return n == (ssize_t)strlen(s->content) && memcmp(content, s->content, (size_t)n) == 0;
}

static void check_strangers(const char *dir, const char *when)
{
    char path[600];
    struct stat st;
    for (size_t i = 0; i < N_STRANGERS; i++)
        CHECK_MSG(is_as_it_was(dir, &strangers[i]), "%s: %s is gone or changed", when,
                  strangers[i].name);
    snprintf(path, sizeof path, "%s/tmp-" HASH_A "-3-4.mfstate", dir);
    CHECK_MSG(lstat(path, &st) == 0 && S_ISDIR(st.st_mode), "%s: the directory", when);
    snprintf(path, sizeof path, "%s/bad-f%s.mfstate", dir, &HASH_A[1]);
    CHECK_MSG(lstat(path, &st) == 0 && S_ISFIFO(st.st_mode), "%s: the FIFO", when);
    snprintf(path, sizeof path, "%s/f%s.mfstate", dir, &HASH_A[1]);
    CHECK_MSG(lstat(path, &st) == 0 && S_ISLNK(st.st_mode), "%s: the link", when);
}

/* Files that are none of the store's are left alone: by opening, adding, making room, reading. */
static void test_strangers(void)
{
    const char *dir = fresh_dir();
    char path[600];
    mf_error error = {0};
    mf_store_stats stats;
    entry_kind k = kind_of(1), l = kind_of(2);
    mf_snapshot_head head = entry_head(&k);
    REQUIRE(mkdir(dir, 0700) == 0);
    for (size_t i = 0; i < N_STRANGERS; i++)
        put_file(dir, strangers[i].name, strangers[i].content, strlen(strangers[i].content));
    snprintf(path, sizeof path, "%s/tmp-" HASH_A "-3-4.mfstate", dir);
    REQUIRE(mkdir(path, 0700) == 0);
    snprintf(path, sizeof path, "%s/bad-f%s.mfstate", dir, &HASH_A[1]);
    REQUIRE(mkfifo(path, 0600) == 0);
    snprintf(path, sizeof path, "%s/f%s.mfstate", dir, &HASH_A[1]);
    REQUIRE(symlink("snapshot.mfstate", path) == 0);
    put_file(dir, "tmp-" HASH_A "-5-6.mfstate", "", 0); /* left by processes that are gone */
    put_file(dir, "tmp-" HASH_A "-7-8.mfstate", "\0\0\0\0\0\0\0\0\0", 9);
    put_file(dir, "tmp-" HASH_A "-9-a.mfstate", "MFSTATE\nand more", 16);
    put_file(dir, "bad-f" HASH_B ".mfstate", "MFSTATE\nand more", 16);
    mf_store *store = store_open(dir, mf_snapshot_total_bytes(&head) + 8); /* room for one */
    check_strangers(dir, "opening");
    CHECK_U64(count_files(dir, "bad-f" HASH_B, "", NULL), 1);
    CHECK_U64(count_files(dir, "tmp-" HASH_A "-5", "", NULL), 0);
    CHECK_U64(count_files(dir, "tmp-" HASH_A "-7", "", NULL), 0);
    CHECK_U64(count_files(dir, "tmp-" HASH_A "-9", "", NULL), 0);
    REQUIRE_OK(entry_add(store, &k, &error), &error);
    REQUIRE_OK(entry_add(store, &l, &error), &error);
    REQUIRE_OK(entry_read(store, &l, &error), &error);
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_entries == 1 && stats.n_evicted == 1 && stats.n_set_aside == 0);
    CHECK_U64(count_files(dir, "bad-f" HASH_B, "", NULL), 0); /* damaged ones go first */
    check_strangers(dir, "adding");
    mf_store_close(&store);
    rmdir(path);
    snprintf(path, sizeof path, "%s/tmp-" HASH_A "-3-4.mfstate", dir);
    rmdir(path);
}

/* An entry that somebody replaced by a file of his own is no longer served, and stays. */
static void test_replaced(void)
{
    const char *dir = fresh_dir();
    char name[300], path[600];
    mf_error error = {0};
    mf_store_stats stats;
    entry_kind k = kind_of(1), l = kind_of(2);
    mf_store *store = store_open(dir, 0);
    REQUIRE_OK(entry_add(store, &k, &error), &error);
    REQUIRE(count_files(dir, "", ".mfstate", name) == 1);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    REQUIRE(unlink(path) == 0);
    put_file(dir, name, "my own", 6);
    CHECK_STATUS(entry_read(store, &k, &error), MF_ERR_FORMAT);
    CHECK_STATUS(entry_read(store, &k, &error), MF_ERR_NOT_FOUND);
    REQUIRE_OK(entry_add(store, &l, &error), &error);
    const stranger own = {name, "my own"};
    CHECK(is_as_it_was(dir, &own));
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_entries == 1 && stats.n_set_aside == 1);
    mf_store_close(&store);
}

static void append_byte(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND);
    REQUIRE(fd >= 0 && write(fd, "", 1) == 1);
    close(fd);
}

/* A file that goes on behind what its header says is no entry; one that was longer when it was read
 * is not written to. */
static void test_longer_entry(void)
{
    uint64_t n_hits = 1;
    const char *dir = fresh_dir();
    char name[300], path[600];
    mf_error error = {0};
    mf_store_stats stats;
    entry_kind k = kind_of(1);
    mf_store *store = store_open(dir, 0);
    REQUIRE_OK(entry_add(store, &k, &error), &error);
    REQUIRE(count_files(dir, "", ".mfstate", name) == 1);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    append_byte(path);
    REQUIRE_OK(entry_read(store, &k, &error), &error);
    int fd = open(path, O_RDONLY);
    REQUIRE(fd >= 0 && pread(fd, &n_hits, 8, lseek(fd, 0, SEEK_END) - 9) == 8);
    CHECK_U64(n_hits, 0);
    close(fd);
    mf_store_close(&store);
    store = store_open(dir, 0);
    CHECK_STATUS(entry_read(store, &k, &error), MF_ERR_NOT_FOUND);
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_entries == 0 && stats.n_set_aside == 1);
    CHECK_U64(count_files(dir, "bad-", ".mfstate", NULL), 1);
    mf_store_close(&store);
}

/* What other processes are writing counts: entries make room for it, and where there is none left
 * nothing is written. */
static void test_others_are_counted(void)
{
    const char *dir = fresh_dir();
    char path[600];
    mf_error error = {0};
    mf_store_stats stats;
    entry_kind k = kind_of(0), l = kind_of(1), m = kind_of(2);
    mf_snapshot_head head = entry_head(&k);
    uint64_t one = mf_snapshot_total_bytes(&head) + 8;
    mf_store *store = store_open(dir, 3 * one);
    REQUIRE_OK(entry_add(store, &k, &error), &error);
    snprintf(path, sizeof path, "%s/tmp-" HASH_A "-1-2.mfstate", dir);
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
    REQUIRE(fd >= 0 && flock(fd, LOCK_EX) == 0 && ftruncate(fd, (off_t)one + 1) == 0);
    REQUIRE_OK(entry_add(store, &l, &error), &error);
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_entries == 1 && stats.n_evicted == 1);
    REQUIRE(ftruncate(fd, (off_t)(2 * one) + 1) == 0);
    CHECK_STATUS(entry_add(store, &m, &error), MF_ERR_BUDGET);
    CHECK_CONTAINS(error.message, "others are writing");
    close(fd);
    REQUIRE_OK(entry_add(store, &m, &error), &error); /* its writer is gone */
    CHECK_U64(count_files(dir, "tmp-", "", NULL), 0);
    mf_store_close(&store);
}

/* Two changes within one tick of the clock leave the directory with one time: what was looked
 * through so early is looked through again. */
static void test_same_tick(void)
{
    const char *dir = fresh_dir();
    mf_error error = {0};
    mf_store_stats stats;
    failing f = {0};
    mf_store_options options;
    mf_store_options_default(&options);
    options.allocator = failing_allocator(&f);
    entry_kind k = kind_of(0), l = kind_of(1);
    mf_store *one = NULL, *two = store_open(dir, 0);
    REQUIRE_OK(mf_store_open(dir, &options, &one, &error), &error);
    /* a time still to come is as fresh as can be, however slow this machine is */
    const struct timespec times[2] = {{time(NULL) + 100, 0}, {time(NULL) + 100, 0}};
    REQUIRE_OK(entry_add(two, &k, &error), &error);
    REQUIRE(utimensat(AT_FDCWD, dir, times, 0) == 0);
    mf_store_get_stats(one, &stats);
    CHECK_U64(stats.n_entries, 1);
    REQUIRE_OK(entry_add(two, &l, &error), &error);
    REQUIRE(utimensat(AT_FDCWD, dir, times, 0) == 0);
    failing_arm(&f, 1, true); /* a look that found no memory is taken again */
    mf_store_get_stats(one, &stats);
    CHECK(failing_disarm(&f));
    CHECK_U64(stats.n_entries, 1);
    mf_store_get_stats(one, &stats);
    CHECK_U64(stats.n_entries, 2);
    mf_store_close(&one);
    mf_store_close(&two);
}

/* ------------------------------------------------------------------------ syncing and renaming */

static struct {
    bool is_recording;
    ino_t synced[4], renamed;
    unsigned n_synced, n_before_rename, n_renamed;
    uint64_t content; /* checksum of the file when it was synced first */
} calls;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_renameat(int from_dir, const char *from, int to_dir, const char *to);
int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to);

static uint64_t checksum_of_file(int fd)
{
    unsigned char bytes[4096];
    mf_checksum c;
    off_t at = 0;
    mf_checksum_begin(&c, 0);
    for (ssize_t n; (n = pread(fd, bytes, sizeof bytes, at)) > 0; at += n)
        mf_checksum_add(&c, bytes, (size_t)n);
    return mf_checksum_end(&c);
}

int __wrap_fsync(int fd)
{
    struct stat st;
    if (calls.is_recording && calls.n_synced < 4 && fstat(fd, &st) == 0) {
        if (calls.n_synced == 0)
            calls.content = checksum_of_file(fd);
        calls.synced[calls.n_synced++] = st.st_ino;
    }
    return __real_fsync(fd);
}

int __wrap_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    struct stat st;
    if (calls.is_recording && fstatat(from_dir, from, &st, 0) == 0) {
        calls.renamed = st.st_ino;
        calls.n_before_rename = calls.n_synced;
        calls.n_renamed++;
    }
    return __real_renameat(from_dir, from, to_dir, to);
}

/* An entry has its name only when all of it is on the disk, and is told as written only when the
 * name is too: a kill cannot show it, but the power can fail. */
static void test_synced_before_named(void)
{
    const char *dir = fresh_dir();
    char name[300], path[600];
    mf_error error = {0};
    entry_kind k = {3, 700, 5, 300001, 2};
    struct stat st;
    mf_store *store = store_open(dir, 0);
    memset(&calls, 0, sizeof calls);
    calls.is_recording = true;
    REQUIRE_OK(entry_add(store, &k, &error), &error);
    calls.is_recording = false;
    REQUIRE(count_files(dir, "", ".mfstate", name) == 1);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDONLY);
    REQUIRE(fd >= 0 && fstat(fd, &st) == 0);
    CHECK(calls.n_renamed == 1 && calls.renamed == st.st_ino);
    CHECK(calls.n_before_rename == 1 && calls.synced[0] == st.st_ino);
    CHECK(calls.content == checksum_of_file(fd)); /* nothing was written after it */
    close(fd);
    REQUIRE(stat(dir, &st) == 0);
    CHECK(calls.n_synced == 2 && calls.synced[1] == st.st_ino);
    mf_store_close(&store);
}

/* ----------------------------------------------------------------------------------- a full disk
 */

/* One of so many bytes that holds the store alone. */
static struct {
    const char *dir; /* NULL: the disk that there is */
    uint64_t n_bytes;
} disk;

int __real_fallocate(int fd, int mode, off_t offset, off_t n_bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t n_bytes);
int __real_fstatvfs(int fd, struct statvfs *out);
int __wrap_fstatvfs(int fd, struct statvfs *out);

static uint64_t free_bytes(void)
{
    uint64_t n = disk.n_bytes;
    char path[600];
    struct stat st;
    DIR *d = opendir(disk.dir);
    REQUIRE(d != NULL);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        snprintf(path, sizeof path, "%s/%s", disk.dir, e->d_name);
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
            n -= (uint64_t)st.st_size;
    }
    closedir(d);
    return n;
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t n_bytes)
{
    if (disk.dir != NULL && (uint64_t)n_bytes > free_bytes()) {
        errno = ENOSPC;
        return -1;
    }
    return __real_fallocate(fd, mode, offset, n_bytes);
}

int __wrap_fstatvfs(int fd, struct statvfs *out)
{
    const int code = __real_fstatvfs(fd, out);
    if (code == 0 && disk.dir != NULL) {
        out->f_frsize = 1;
        out->f_bavail = (fsblkcnt_t)free_bytes();
    }
    return code;
}

/* A disk that is full before the limit is reached is a smaller limit: damaged files and the least
 * useful entries go, as many as must; and none for an entry that had no room without them either.
 */
static void test_full_disk(void)
{
    const char *dir = fresh_dir();
    mf_error error = {0};
    mf_store_stats stats;
    entry_kind kinds[] = {kind_of(1), kind_of(2), kind_of(3)}, huge = {4, 100, 9, 5000, 0};
    mf_snapshot_head head = entry_head(&kinds[0]);
    mf_store *store = store_open(dir, 0);
    disk.dir = dir;
    disk.n_bytes = 2 * mf_snapshot_total_bytes(&head) + 1000;
    put_file(dir, "bad-f" HASH_B ".mfstate", "MFSTATE\nand more", 16);
    REQUIRE_OK(entry_add(store, &kinds[0], &error), &error);
    REQUIRE_OK(entry_add(store, &kinds[1], &error), &error);
    REQUIRE_OK(entry_read(store, &kinds[0], &error), &error); /* of use, unlike the second */
    CHECK_U64(count_files(dir, "bad-", "", NULL), 1);
    CHECK_STATUS(entry_add(store, &huge, &error), MF_ERR_IO);
    CHECK(error.os_errno == ENOSPC);
    CHECK_CONTAINS(error.message, "no room for");
    CHECK_U64(count_files(dir, "tmp-", "", NULL), 0);
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_entries == 2 && stats.n_evicted == 0);
    REQUIRE_OK(entry_add(store, &kinds[2], &error), &error);
    mf_store_get_stats(store, &stats);
    CHECK(stats.n_entries == 2 && stats.n_evicted == 1);
    CHECK_U64(count_files(dir, "bad-", "", NULL), 0);
    REQUIRE_OK(entry_read(store, &kinds[0], &error), &error);
    REQUIRE_OK(entry_read(store, &kinds[2], &error), &error);
    disk.dir = NULL;
    mf_store_close(&store);
}

/* ---------------------------------------------------------------- a lock that is not given back */

static int stop_at_third(void *user)
{
    return ++*(unsigned *)user == 3;
}

/* As a stopped process would hold it: another opening of the file. */
static int hold_lock(const char *dir)
{
    char path[600];
    snprintf(path, sizeof path, "%s/lock", dir);
    int fd = open(path, O_RDWR);
    REQUIRE(fd >= 0 && flock(fd, LOCK_EX) == 0);
    return fd;
}

/* Storing gives up after a while, waits no longer the next time, and goes on as soon as it can;
 * lookups do not notice. */
static void test_held_lock(void)
{
    const char *dir = fresh_dir();
    mf_error error = {0};
    mf_store *store = NULL;
    mf_store_options options;
    mf_store_options_default(&options);
    CHECK_U64(options.lock_wait_ms, 3000);
    options.lock_wait_ms = 50;
    unsigned n_asked = 0;
    options.stop = stop_at_third;
    options.stop_user = &n_asked;
    entry_kind k = kind_of(0), l = kind_of(1);
    REQUIRE_OK(mf_store_open(dir, &options, &store, &error), &error);
    REQUIRE_OK(entry_add(store, &k, &error), &error);
    CHECK_U64(n_asked, 0);
    int fd = hold_lock(dir);
    n_asked = 100; /* never */
    CHECK_STATUS(entry_add(store, &l, &error), MF_ERR_IO);
    CHECK_CONTAINS(error.message, "lock: held by another process");
    CHECK_CONTAINS(error.message, dir);
    CHECK(n_asked > 100);
    unsigned n_before = n_asked;
    CHECK_STATUS(entry_add(store, &l, &error), MF_ERR_IO);
    CHECK_U64(n_asked, n_before);
    REQUIRE_OK(entry_read(store, &k, &error), &error);
    CHECK_U64(count_files(dir, "tmp-", "", NULL), 0);
    close(fd);
    REQUIRE_OK(entry_add(store, &l, &error), &error);
    REQUIRE_OK(entry_read(store, &l, &error), &error);
    entry_kind m = kind_of(2); /* who got it once waits again */
    fd = hold_lock(dir);
    n_before = n_asked;
    CHECK_STATUS(entry_add(store, &m, &error), MF_ERR_IO);
    CHECK(n_asked > n_before);
    close(fd);
    mf_store_close(&store);
}

/* Whoever waits can be told to stop. */
static void test_stopped_waiting(void)
{
    const char *dir = fresh_dir();
    mf_error error = {0};
    mf_store *store = NULL;
    mf_store_options options;
    unsigned n_asked = 0;
    mf_store_options_default(&options);
    options.lock_wait_ms = UINT32_MAX; /* the test hangs if it is not asked */
    options.stop = stop_at_third;
    options.stop_user = &n_asked;
    entry_kind k = kind_of(0);
    REQUIRE_OK(mf_store_open(dir, &options, &store, &error), &error);
    int fd = hold_lock(dir);
    CHECK_STATUS(entry_add(store, &k, &error), MF_ERR_CANCELLED);
    CHECK_U64(n_asked, 3);
    close(fd);
    REQUIRE_OK(entry_add(store, &k, &error), &error);
    mf_store_close(&store);
}

/* The program's standard streams may be closed: what it prints then is in no file of the store. */
static void test_closed_streams(void)
{
    const char *dir = fresh_dir();
    int kept[3];
    fflush(NULL);
    for (int i = 0; i < 3; i++) {
        REQUIRE((kept[i] = fcntl(i, F_DUPFD_CLOEXEC, 100)) >= 100);
        close(i);
    }
    mf_error error = {0};
    mf_store *store = NULL;
    mf_store_options options;
    mf_store_options_default(&options);
    mf_status status = mf_store_open(dir, &options, &store, &error);
    bool is_open = false;
    for (int i = 0; i < 3; i++)
        is_open = is_open || fcntl(i, F_GETFD) >= 0 || write(i, "the answer", 10) >= 0;
    for (int i = 0; i < 3; i++)
        REQUIRE(dup2(kept[i], i) == i && close(kept[i]) == 0);
    REQUIRE_OK(status, &error);
    CHECK(!is_open);
    mf_store_close(&store);
}

/* Numbers of a temporary name have one digit to sixteen. */
static void test_names(void)
{
    const char *dir = fresh_dir();
    REQUIRE(mkdir(dir, 0700) == 0);
    mf_store s = {.dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    char hash[MF_STORE_NAME_CHARS], name[2 * MF_STORE_TMP_CHARS], tmp[MF_STORE_TMP_CHARS];
    const int32_t word = 1;
    mf_store_entry_name(&word, 1, hash);
    CHECK(mf_store_kind_of(hash) == MF_STORE_IS_ENTRY);
    const int fd = mf_store_tmp_make(&s, hash, tmp);
    CHECK(fd >= 0 && close(fd) == 0 && mf_store_kind_of(tmp) == MF_STORE_IS_TMP);
    CHECK(unlinkat(s.dir_fd, tmp, 0) == 0 && close(s.dir_fd) == 0);
    const int n_hash = (int)strcspn(hash, ".");
    for (int n = 0; n < 19; n++) {
        snprintf(name, sizeof name, MF_STORE_TMP "%.*s-1-%.*s" MF_STORE_SUFFIX, n_hash, hash, n,
                 "0123456789abcdef012");
        CHECK_MSG((mf_store_kind_of(name) == MF_STORE_IS_TMP) == (n >= 1 && n <= 16), "%s: kind %d",
                  name, mf_store_kind_of(name));
    }
}

int main(void)
{
    test_names();
    test_strangers();
    test_replaced();
    test_longer_entry();
    test_others_are_counted();
    test_same_tick();
    test_synced_before_named();
    test_full_disk();
    test_held_lock();
    test_stopped_waiting();
    test_closed_streams();
    remove_dir(fresh_dir());
    return test_result();
}
