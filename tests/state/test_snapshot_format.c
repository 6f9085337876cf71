/* SPDX-License-Identifier: MIT */
/*
 * The snapshot format over plain bytes: what was written is read; every flipped bit, every
 * truncation and every exchange of parts is found; headers that contradict themselves are refused.
 * One snapshot is spelled out byte by byte from docs/FORMATS.md.
 */
#include "state/snapshot_format.h"
#include "test.h"

#include <fcntl.h>
#include <unistd.h>

enum { N_TOKENS = 7, N_PARTS = 3, PART_BYTES = 40 };

static const int32_t tokens[N_TOKENS] = {3, 1, 4, 1, 5, 9, 2};
static unsigned char parts[N_PARTS][PART_BYTES];

static mf_snapshot_head make_head(void)
{
    mf_snapshot_head h = {.n_tokens = N_TOKENS,
                          .n_layers = 2,
                          .n_vocab = 10,
                          .page_tokens = 4,
                          .page_bytes = PART_BYTES,
                          .recurrent_bytes = PART_BYTES,
                          .n_parts = N_PARTS,
                          .parts_bytes = sizeof parts,
                          .n_marks = 1,
                          .mark_parts = 1,
                          .mark_bytes = PART_BYTES,
                          .marks = {4}};
    h.key.kv_type = 1;
    h.key.cpu_tier = 3;
    for (int i = 0; i < MF_FINGERPRINT_BYTES; i++)
        h.key.fingerprint[i] = (uint8_t)(i + 1);
    return h;
}

static mf_status write_all(mf_byte_sink *sink, mf_error *error)
{
    mf_snapshot_head h = make_head();
    mf_status status = mf_snapshot_write_head(sink, &h, tokens, error);
    for (uint64_t i = 0; i < N_PARTS && status == MF_OK; i++)
        status = mf_snapshot_write_part(sink, &h, i, parts[i], PART_BYTES, error);
    return status;
}

static mf_status read_all(mf_byte_source *source, mf_snapshot_head *h, int32_t *got,
                          unsigned char *got_parts, mf_error *error)
{
    mf_status status = mf_snapshot_read_header(source, h, error);
    if (status == MF_OK && (h->n_tokens != N_TOKENS || h->n_parts != N_PARTS))
        return MF_ERR_STATE; /* a damaged header went through */
    if (status == MF_OK)
        status = mf_snapshot_read_tokens(source, h, got, error);
    for (uint64_t i = 0; i < N_PARTS && status == MF_OK; i++)
        status = mf_snapshot_read_part(source, h, i, got_parts + i * PART_BYTES, PART_BYTES, error);
    return status;
}

static mf_status read_buffer(const unsigned char *bytes, size_t n_bytes, mf_error *error)
{
    mf_snapshot_head h;
    int32_t got[N_TOKENS];
    unsigned char got_parts[sizeof parts];
    mf_buffer_source source;
    mf_buffer_source_init(&source, bytes, n_bytes);
    return read_all(&source.source, &h, got, got_parts, error);
}

static size_t make(unsigned char *bytes, size_t capacity)
{
    mf_buffer_sink sink;
    mf_error error = {0};
    mf_snapshot_head h = make_head();
    mf_buffer_sink_init(&sink, bytes, capacity);
    REQUIRE_OK(write_all(&sink.sink, &error), &error);
    size_t n_bytes = capacity - sink.n_left;
    CHECK_U64(n_bytes, mf_snapshot_total_bytes(&h));
    return n_bytes;
}

static unsigned char whole[8192];

static void test_round_trip(void)
{
    mf_error error = {0};
    mf_snapshot_head h, want = make_head();
    int32_t got[N_TOKENS];
    unsigned char got_parts[sizeof parts];
    mf_buffer_source source;
    size_t n_bytes = make(whole, sizeof whole);
    mf_buffer_source_init(&source, whole, n_bytes);
    REQUIRE_OK(read_all(&source.source, &h, got, got_parts, &error), &error);
    CHECK_U64(source.n_left, 0);
    CHECK_BYTES(got, tokens, sizeof tokens);
    CHECK_BYTES(got_parts, parts, sizeof parts);
    want.checksum = h.checksum;
    CHECK(memcmp(&h.key, &want.key, sizeof h.key) == 0 && h.n_layers == 2 && h.n_vocab == 10);
    CHECK(h.page_tokens == 4 && h.page_bytes == PART_BYTES && h.recurrent_bytes == PART_BYTES);
    CHECK(h.parts_bytes == sizeof parts && h.n_marks == 1 && h.mark_parts == 1);
    CHECK(h.mark_bytes == PART_BYTES && h.marks[0] == 4);
    CHECK_U64(mf_snapshot_mark_offset(&h, 0), 4096 + 2 * (PART_BYTES + 8));
    CHECK_U64(mf_snapshot_mark_offset(&h, 1), n_bytes);
}

/* The table of docs/FORMATS.md, by hand. */
static void test_layout(void)
{
    static const unsigned char begin[] = {
        'M',  'F',  'S', 'T', 'A', 'T', 'E', '\n', 2,  0, 0, 0, 128, 0, 0, 0, /* 0 */
        0x90, 0x10, 0,   0,   0,   0,   0,   0,    1,  2, 3, 4, 5,   6, 7, 8, /* 16: 4096 + 144 */
        9,    10,   11,  12,  13,  14,  15,  16,   1,  0, 0, 0, 3,   0, 0, 0, /* 32 */
        7,    0,    0,   0,   0,   0,   0,   0,    2,  0, 0, 0, 10,  0, 0, 0, /* 48 */
        4,    0,    0,   0,   0,   0,   0,   0,    40, 0, 0, 0, 0,   0, 0, 0, /* 64 */
        40,   0,    0,   0,   0,   0,   0,   0,    3,  0, 0, 0, 0,   0, 0, 0, /* 80 */
        120,  0,    0,   0,   0,   0,   0,   0,    1,  0, 0, 0, 1,   0, 0, 0, /* 96 */
        40,   0,    0,   0,   0,   0,   0,   0                                /* 112 */
    };
    uint64_t stored;
    CHECK_U64(make(whole, sizeof whole), 4096 + 3 * 48);
    CHECK_BYTES(whole, begin, sizeof begin);
    memcpy(&stored, whole + 120, 8);
    CHECK_U64(stored, mf_checksum_of(whole, 120, 0));
    CHECK_BYTES(whole + 128, tokens, sizeof tokens);
    CHECK_BYTES(whole + 128 + sizeof tokens, "\4\0\0\0", 4);
    for (size_t i = 128 + sizeof tokens + 4; i < 4088; i++)
        CHECK(whole[i] == 0);
    memcpy(&stored, whole + 4088, 8);
    CHECK_U64(stored, mf_checksum_of(whole, 4088, 0));
    for (uint64_t i = 0; i < N_PARTS; i++) {
        uint64_t part_sum;
        CHECK_BYTES(whole + 4096 + i * 48, parts[i], PART_BYTES);
        memcpy(&part_sum, whole + 4096 + i * 48 + 40, 8);
        CHECK_U64(part_sum, mf_checksum_of(parts[i], PART_BYTES, stored + i));
    }
}

/* XXH3's published value of no bytes: the library is the algorithm that the document names. */
static void test_known_checksum(void)
{
    mf_checksum c;
    CHECK_U64(mf_checksum_of("", 0, 0), UINT64_C(0x2D06800538D394C2));
    mf_checksum_begin(&c, 7);
    mf_checksum_add(&c, parts, 50);
    mf_checksum_add(&c, (unsigned char *)parts + 50, sizeof parts - 50);
    CHECK_U64(mf_checksum_end(&c), mf_checksum_of(parts, sizeof parts, 7));
}

static void test_damage(void)
{
    size_t n_bytes = make(whole, sizeof whole);
    for (size_t bit = 0; bit < 8 * n_bytes; bit++) {
        mf_error error = {0};
        whole[bit / 8] ^= (unsigned char)(1u << bit % 8);
        CHECK_STATUS(read_buffer(whole, n_bytes, &error), MF_ERR_FORMAT);
        CHECK(error.message[0] != '\0');
        whole[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    for (size_t n = 0; n < n_bytes; n++)
        CHECK_STATUS(read_buffer(whole, n, NULL), MF_ERR_FORMAT);
    CHECK_STATUS(read_buffer(whole, n_bytes, NULL), MF_OK);
    unsigned char part[48]; /* two parts with their checksums, exchanged */
    memcpy(part, whole + 4096, 48);
    memcpy(whole + 4096, whole + 4096 + 48, 48);
    memcpy(whole + 4096 + 48, part, 48);
    CHECK_STATUS(read_buffer(whole, n_bytes, NULL), MF_ERR_FORMAT);
}

/* Sound checksums over a header that is not. */
static void check_refused(size_t at, uint64_t value, size_t n, const char *what)
{
    mf_error error = {0};
    mf_snapshot_head h;
    mf_buffer_source source;
    size_t n_bytes = make(whole, sizeof whole);
    memcpy(whole + at, &value, n);
    uint64_t checksum = mf_checksum_of(whole, 120, 0);
    memcpy(whole + 120, &checksum, 8);
    mf_buffer_source_init(&source, whole, n_bytes);
    CHECK_STATUS(mf_snapshot_read_header(&source.source, &h, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, what);
}

/* As many marks as a head has room for, and one more: a header that contradicts itself in nothing
 * else. */
static void test_most_marks(void)
{
    for (uint32_t n = MF_SNAPSHOT_MAX_MARKS; n <= MF_SNAPSHOT_MAX_MARKS + 1; n++) {
        mf_error error = {0};
        mf_buffer_source source;
        mf_snapshot_head h = make_head(), got;
        const size_t n_bytes = make(whole, sizeof whole);
        h.n_marks = n;
        h.n_parts = n + 2;
        h.parts_bytes = (n + 2) * PART_BYTES;
        const uint64_t total = mf_snapshot_total_bytes(&h);
        memcpy(whole + 16, &total, 8);
        memcpy(whole + 88, &h.n_parts, 8);
        memcpy(whole + 96, &h.parts_bytes, 8);
        memcpy(whole + 104, &n, 4);
        const uint64_t checksum = mf_checksum_of(whole, 120, 0);
        memcpy(whole + 120, &checksum, 8);
        mf_buffer_source_init(&source, whole, n_bytes);
        CHECK_STATUS(mf_snapshot_read_header(&source.source, &got, &error),
                     n <= MF_SNAPSHOT_MAX_MARKS ? MF_OK : MF_ERR_FORMAT);
    }
}

static void test_contradictions(void)
{
    check_refused(0, 0x41, 1, "MFSTATE");
    check_refused(8, 1, 4, "version 1");
    check_refused(12, 64, 4, "header");
    check_refused(16, 4096, 8, "contradict");
    check_refused(48, UINT64_C(1) << 62, 8, "contradict");
    check_refused(48, UINT64_MAX, 8, "contradict");
    check_refused(88, UINT64_MAX / 8, 8, "contradict");
    check_refused(96, UINT64_MAX, 8, "contradict");
    check_refused(68, 2, 4, "logits");
    check_refused(104, 17, 4, "contradict"); /* more marks than there may be */
    check_refused(104, 4, 4, "contradict");  /* than there are parts */
    check_refused(104, 0, 4, "contradict");  /* none, and yet parts of them */
    check_refused(108, UINT32_MAX, 4, "contradict");
    check_refused(112, 121, 8, "contradict");
    check_refused(112, UINT64_MAX, 8, "contradict");
}

/* Positions of marks that do not rise or lie outside, under sound checksums. */
static void test_mark_range(void)
{
    static const uint32_t bad[][2] = {{0, 3}, {3, 3}, {4, 3}, {3, 7}, {3, UINT32_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mf_error error = {0};
        mf_snapshot_head h = make_head();
        int32_t got[N_TOKENS];
        mf_buffer_sink sink;
        mf_buffer_source source;
        h.n_marks = 2;
        memcpy(h.marks, bad[i], sizeof bad[i]);
        mf_buffer_sink_init(&sink, whole, sizeof whole);
        REQUIRE_OK(mf_snapshot_write_head(&sink.sink, &h, tokens, &error), &error);
        mf_buffer_source_init(&source, whole, sizeof whole);
        REQUIRE_OK(mf_snapshot_read_header(&source.source, &h, &error), &error);
        CHECK_STATUS(mf_snapshot_read_tokens(&source.source, &h, got, &error), MF_ERR_FORMAT);
        CHECK_CONTAINS(error.message, "mark");
    }
}

/* A part that is passed over is checked all the same. */
static void test_passing(void)
{
    for (int damaged = 0; damaged < 2; damaged++) {
        mf_error error = {0};
        mf_snapshot_head h;
        int32_t got[N_TOKENS];
        mf_buffer_source source;
        size_t n_bytes = make(whole, sizeof whole);
        whole[4096 + 39] ^= (unsigned char)damaged;
        mf_buffer_source_init(&source, whole, n_bytes);
        REQUIRE_OK(mf_snapshot_read_header(&source.source, &h, &error), &error);
        REQUIRE_OK(mf_snapshot_read_tokens(&source.source, &h, got, &error), &error);
        CHECK_STATUS(mf_snapshot_pass_part(&source.source, &h, 0, PART_BYTES, &error),
                     damaged == 1 ? MF_ERR_FORMAT : MF_OK);
        CHECK_U64(source.n_left, 2 * (PART_BYTES + 8));
    }
}

/* A token outside the vocabulary under sound checksums. */
static void test_token_range(void)
{
    static const int32_t bad[] = {10, -1};
    for (int i = 0; i < 2; i++) {
        mf_error error = {0};
        mf_snapshot_head h = make_head();
        int32_t wrong[N_TOKENS], got[N_TOKENS];
        mf_buffer_sink sink;
        mf_buffer_source source;
        memcpy(wrong, tokens, sizeof wrong);
        wrong[6] = bad[i];
        mf_buffer_sink_init(&sink, whole, sizeof whole);
        REQUIRE_OK(mf_snapshot_write_head(&sink.sink, &h, wrong, &error), &error);
        mf_buffer_source_init(&source, whole, sizeof whole);
        REQUIRE_OK(mf_snapshot_read_header(&source.source, &h, &error), &error);
        CHECK_STATUS(mf_snapshot_read_tokens(&source.source, &h, got, &error), MF_ERR_FORMAT);
        CHECK_CONTAINS(error.message, "vocabulary");
    }
}

/* Anything but zeros before the head's checksum, which is sound. */
static void test_padding(void)
{
    static const size_t at[] = {128 + 4 * N_TOKENS + 4, 2000, 4087};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        mf_error error = {0};
        mf_snapshot_head h;
        int32_t got[N_TOKENS];
        mf_buffer_source source;
        size_t n_bytes = make(whole, sizeof whole);
        whole[at[i]] = 1;
        uint64_t checksum = mf_checksum_of(whole, 4088, 0);
        memcpy(whole + 4088, &checksum, 8);
        mf_buffer_source_init(&source, whole, n_bytes);
        REQUIRE_OK(mf_snapshot_read_header(&source.source, &h, &error), &error);
        CHECK_STATUS(mf_snapshot_read_tokens(&source.source, &h, got, &error), MF_ERR_FORMAT);
        CHECK_CONTAINS(error.message, "zeros");
    }
}

static void test_streams(void)
{
    mf_error error = {0};
    mf_buffer_sink small;
    mf_buffer_sink_init(&small, whole, 4000);
    CHECK_STATUS(write_all(&small.sink, &error), MF_ERR_ARGUMENT);

    int fds[2]; /* a pipe: no seeking, short reads */
    REQUIRE(pipe(fds) == 0);
    mf_fd_sink to;
    mf_fd_sink_init(&to, fds[1], "pipe");
    REQUIRE_OK(write_all(&to.sink, &error), &error);
    close(fds[1]);
    mf_snapshot_head h;
    int32_t got[N_TOKENS];
    unsigned char got_parts[sizeof parts], more;
    mf_fd_source from;
    mf_fd_source_init(&from, fds[0], "pipe");
    REQUIRE_OK(read_all(&from.source, &h, got, got_parts, &error), &error);
    CHECK_BYTES(got_parts, parts, sizeof parts);
    CHECK_STATUS(from.source.read(&from.source, &more, 1, &error), MF_ERR_FORMAT);
    CHECK_CONTAINS(error.message, "pipe");
    close(fds[0]);
    CHECK_STATUS(from.source.read(&from.source, &more, 1, &error), MF_ERR_IO);

    int full = open("/dev/full", O_WRONLY);
    if (full >= 0) {
        mf_fd_sink_init(&to, full, "the disk");
        CHECK_STATUS(write_all(&to.sink, &error), MF_ERR_IO);
        CHECK_CONTAINS(error.message, "the disk: cannot write");
        CHECK(error.os_errno != 0);
        close(full);
    }
}

/* ---------------------------------------- large parts ---------------------------------------- */

enum { N_LARGE = 3 * MF_SNAPSHOT_PIECE_BYTES + 5 };

/* Memory behind a door: bytes from offset 7 of buffer 3. */
static unsigned char *behind;

static mf_status visit_behind(void *ctx, const mf_part_place *from, size_t n_bytes, mf_visit_fn fn,
                              void *fn_ctx, mf_error *error)
{
    CHECK(ctx == behind && from->buffer == 3 && from->offset == 7);
    for (size_t at = 0; at < n_bytes; at += 100000)
        MF_TRY(fn(fn_ctx, behind + 7 + at, n_bytes - at < 100000 ? n_bytes - at : 100000, error));
    return MF_OK;
}

static mf_status produce_behind(void *ctx, const mf_part_place *to, size_t n_bytes,
                                mf_produce_fn fn, void *fn_ctx, mf_error *error)
{
    CHECK(ctx == behind && to->buffer == 3 && to->offset == 7 && n_bytes == N_LARGE);
    for (size_t at = 0; at < n_bytes; at += 90000)
        MF_TRY(fn(fn_ctx, behind + 7 + at, n_bytes - at < 90000 ? n_bytes - at : 90000, error));
    return MF_OK;
}

/* Reads the part twice written in the three ways that there are; damaged: in its last byte. */
static void read_large(mf_byte_source *source, const unsigned char *want, int way, bool damaged)
{
    static unsigned char got[N_LARGE];
    mf_snapshot_head h = make_head();
    mf_error error = {0};
    const mf_part_memory memory = {behind, visit_behind, produce_behind};
    const mf_part_place to = {&memory, 3, 7};
    h.checksum = 99;
    memset(got, 0, sizeof got);
    memset(behind, 0, N_LARGE + 20);
    mf_status status = way == 0   ? mf_snapshot_read_part(source, &h, 1, got, N_LARGE, &error)
                       : way == 1 ? mf_snapshot_read_part_to(source, &h, 1, &to, N_LARGE, &error)
                                  : mf_snapshot_pass_part(source, &h, 1, N_LARGE, &error);
    CHECK_STATUS(status, damaged ? MF_ERR_FORMAT : MF_OK);
    if (way != 2 && !damaged)
        CHECK_BYTES(way == 0 ? got : behind + 7, want, N_LARGE);
    for (int i = 0; i < 20; i++)
        CHECK(behind[i < 7 ? i : N_LARGE + i] == 0);
}

/* A part of several pieces is the same from memory and from behind a door, gathered or not, and is
 * read back in each way, from a file and from memory. */
static void test_large_parts(void)
{
    enum { N_WRITTEN = N_LARGE + 8 };
    static unsigned char data[N_LARGE], written[2][N_WRITTEN + 1];
    const mf_allocator a = mf_allocator_default();
    mf_snapshot_head h = make_head();
    mf_error error = {0};
    char path[] = "/tmp/mf_parts_XXXXXX";
    int fd = mkstemp(path);
    behind = malloc(N_LARGE + 20);
    REQUIRE(fd >= 0 && behind != NULL && unlink(path) == 0);
    h.checksum = 99;
    for (size_t i = 0; i < N_LARGE; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 13);
    for (int is_gathered = 0; is_gathered < 2; is_gathered++) {
        mf_fd_sink sink;
        const mf_part_memory memory = {behind, visit_behind, produce_behind};
        const mf_part_place from = {&memory, 3, 7};
        memcpy(behind + 7, data, N_LARGE);
        mf_fd_sink_init(&sink, fd, "file");
        if (is_gathered != 0)
            mf_fd_sink_gather(&sink, &a);
        REQUIRE_OK(mf_snapshot_write_part(&sink.sink, &h, 1, data, N_LARGE, &error), &error);
        REQUIRE_OK(mf_snapshot_write_part_from(&sink.sink, &h, 1, &from, N_LARGE, &error), &error);
        REQUIRE_OK(mf_fd_sink_end(&sink, MF_OK, &error), &error);
        CHECK_U64(lseek(fd, 0, SEEK_CUR), 2 * N_WRITTEN);
        for (int i = 0; i < 2; i++) {
            REQUIRE(pread(fd, written[i], N_WRITTEN + 1, (off_t)i * N_WRITTEN) >= N_WRITTEN);
            CHECK_BYTES(written[i], data, N_LARGE);
        }
        CHECK_BYTES(written[0], written[1], N_WRITTEN);
        REQUIRE(lseek(fd, 0, SEEK_SET) == 0);
    }
    for (int damaged = 0; damaged < 2; damaged++) {
        written[0][N_LARGE - 1] ^= (unsigned char)damaged;
        REQUIRE(pwrite(fd, written[0], N_WRITTEN, 0) == N_WRITTEN);
        for (int way = 0; way < 3; way++) {
            mf_fd_source file;
            mf_buffer_source buffer;
            REQUIRE(lseek(fd, 0, SEEK_SET) == 0);
            mf_fd_source_init(&file, fd, "file");
            mf_buffer_source_init(&buffer, written[0], N_WRITTEN);
            read_large(&file.source, data, way, damaged != 0);
            read_large(&buffer.source, data, way, damaged != 0);
        }
    }
    close(fd);
    free(behind);
}

int main(void)
{
    for (size_t i = 0; i < sizeof parts; i++)
        ((unsigned char *)parts)[i] = (unsigned char)(i * 37 + 11);
    test_known_checksum();
    test_round_trip();
    test_layout();
    test_damage();
    test_contradictions();
    test_most_marks();
    test_token_range();
    test_padding();
    test_mark_range();
    test_passing();
    test_streams();
    test_large_parts();
    return test_result();
}
