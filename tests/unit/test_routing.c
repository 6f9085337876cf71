/* SPDX-License-Identifier: MIT */
/* Traces of routing: what is written is read again, and no damaged byte is taken for another. */
#include "base/checksum.h"
#include "routing/drive_sim.h"
#include "routing/routing_format.h"

#include "test.h"

#include <math.h>
#include <sys/resource.h>
#include <unistd.h>

static unsigned char *read_whole(const char *path, size_t *n_bytes)
{
    FILE *file = fopen(path, "rb");
    REQUIRE(file != NULL && fseek(file, 0, SEEK_END) == 0);
    *n_bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*n_bytes + 1);
    REQUIRE(bytes != NULL && fread(bytes, 1, *n_bytes, file) == *n_bytes);
    (void)fclose(file);
    return bytes;
}

#define N_LAYERS 3u
#define N_EXPERTS 20u
#define K 4u
#define MAX_ROWS 5u

static const mf_routing_head head = {.n_layers = N_LAYERS,
                                     .n_experts = N_EXPERTS,
                                     .k = K,
                                     .reads_per_expert = 2,
                                     .expert_bytes = 9000,
                                     .slot_bytes = 12288,
                                     .fixed_bytes = 1u << 20,
                                     .family = "any"};

static uint64_t random_state = 88172645463325252u;

static uint32_t random_below(uint32_t n)
{
    return (uint32_t)(test_random(&random_state) % n);
}

typedef struct pass {
    uint32_t n_rows, n_parts;
    mf_routing_part parts[2];
    int32_t ids[N_LAYERS][MAX_ROWS * K], foretold[N_LAYERS][MAX_ROWS * K];
    float weights[N_LAYERS][MAX_ROWS * K];
    bool has_foretold[N_LAYERS];
} pass;

static void pick(int32_t *ids, uint32_t n_rows)
{
    for (uint32_t row = 0; row < n_rows; row++)
        for (uint32_t i = 0, first = random_below(N_EXPERTS); i < K; i++)
            ids[row * K + i] = (int32_t)((first + 3 * i) % N_EXPERTS);
}

static pass make_pass(uint32_t i)
{
    pass p = {.n_rows = 1 + i % MAX_ROWS, .n_parts = 1 + (i % MAX_ROWS > 1)};
    p.parts[0] = (mf_routing_part){i, 1000 * (uint64_t)i, p.n_rows - (p.n_parts - 1)};
    p.parts[1] = (mf_routing_part){(uint64_t)1 << 40, 7, 1};
    for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
        pick(p.ids[layer], p.n_rows);
        pick(p.foretold[layer], p.n_rows);
        p.has_foretold[layer] = (i + layer) % 3 == 0;
        for (uint32_t j = 0; j < p.n_rows * K; j++)
            p.weights[layer][j] = j % K == 0 ? 2.0f : 0.25f * (float)(j % K);
    }
    return p;
}

static void write_pass(mf_routing_writer *w, const pass *p)
{
    mf_error error = {0};
    mf_routing_writer_begin(w, p->parts, p->n_parts, p->n_rows);
    for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
        mf_routing_writer_layer(w, layer, p->ids[layer], p->weights[layer]);
        if (p->has_foretold[layer])
            mf_routing_writer_foretold(w, layer, p->foretold[layer], K);
    }
    REQUIRE_OK(mf_routing_writer_commit(w, 500, 200, &error), &error);
}

static void check_pass(const mf_routing *t, size_t i, const pass *p)
{
    const mf_routing_pass *got = &t->passes[i];
    CHECK_U64(got->n_rows, p->n_rows);
    CHECK_U64(got->n_parts, p->n_parts);
    CHECK_U64(got->elapsed_us, 500);
    CHECK_U64(got->waited_us, 200);
    for (uint32_t j = 0; j < p->n_parts; j++) {
        const mf_routing_part *part = &t->parts[got->first_part + j];
        CHECK_U64(part->sequence, p->parts[j].sequence);
        CHECK_U64(part->position, p->parts[j].position);
        CHECK_U64(part->n_rows, p->parts[j].n_rows);
    }
    for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
        const size_t at = got->first_choice + (size_t)layer * p->n_rows * K;
        CHECK_U64(t->has_foretold[i * N_LAYERS + layer], p->has_foretold[layer]);
        for (uint32_t j = 0; j < p->n_rows * K; j++) {
            CHECK_U64(t->ids[at + j], (uint32_t)p->ids[layer][j]);
            /* 15 * 0.125 * (j % K), rounded */
            const uint32_t shares[K] = {15, 2, 4, 6};
            CHECK_U64(t->weights[at + j], shares[j % K]);
            if (p->has_foretold[layer])
                CHECK_U64(t->foretold[at + j], (uint32_t)p->foretold[layer][j]);
        }
    }
}

static unsigned char *write_trace_of(const mf_routing_head *of, uint32_t n_passes, pass *passes,
                                     size_t *n_bytes)
{
    char path[] = "/tmp/moeflux-routing.XXXXXX";
    mf_error error = {0};
    mf_routing_writer *w = NULL;
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    REQUIRE_OK(mf_routing_writer_open(NULL, path, of, MAX_ROWS, 2, &w, &error), &error);
    for (uint32_t i = 0; i < n_passes; i++) {
        passes[i] = make_pass(i);
        const pass dropped = make_pass(i + 1);
        if (i % 7 == 0) /* begun and not committed */
            mf_routing_writer_begin(w, dropped.parts, dropped.n_parts, dropped.n_rows);
        write_pass(w, &passes[i]);
    }
    REQUIRE_OK(mf_routing_writer_close(&w, &error), &error);
    CHECK(w == NULL);
    unsigned char *bytes = read_whole(path, n_bytes);
    (void)unlink(path);
    return bytes;
}

static unsigned char *write_trace(uint32_t n_passes, pass *passes, size_t *n_bytes)
{
    return write_trace_of(&head, n_passes, passes, n_bytes);
}

/* Enough passes for several blocks. */
static void test_round_trip(void)
{
    enum { N = 4000 };
    pass *passes = malloc(N * sizeof *passes);
    mf_error error = {0};
    mf_routing *t = NULL;
    size_t n_bytes;
    REQUIRE(passes != NULL);
    unsigned char *bytes = write_trace(N, passes, &n_bytes);
    REQUIRE_OK(mf_routing_read(NULL, bytes, n_bytes, "it", &t, &error), &error);
    CHECK_U64(t->n_passes, N);
    CHECK(t->head.n_layers == N_LAYERS && t->head.n_experts == N_EXPERTS && t->head.k == K);
    CHECK_U64(t->head.reads_per_expert, head.reads_per_expert);
    CHECK_U64(t->head.expert_bytes, head.expert_bytes);
    CHECK_U64(t->head.slot_bytes, head.slot_bytes);
    CHECK_U64(t->head.fixed_bytes, head.fixed_bytes);
    CHECK(strcmp(t->head.family, head.family) == 0 && t->head.sizes.n == 0);
    uint64_t n_rows = 0;
    for (uint32_t i = 0; i < N; i++) {
        CHECK_U64(t->passes[i].first_row, n_rows);
        n_rows += passes[i].n_rows;
        check_pass(t, i, &passes[i]);
    }
    CHECK_U64(t->n_rows, n_rows);
    CHECK(n_bytes > 4 * MF_ROUTING_BLOCK_BYTES);
    mf_routing_release(&t);
    free(bytes);
    free(passes);
}

/* What readers would not take is not written: the passes before it are a trace, to the last byte
 * that may be. */
static void test_full(void)
{
    enum { N = 40 };
    char path[] = "/tmp/moeflux-routing.XXXXXX";
    static pass passes[N];
    mf_error error = {0};
    size_t n_most, n_bytes;
    free(write_trace(N / 2, passes, &n_most));
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    for (uint32_t less = 0; less < 2; less++) {
        mf_routing_writer *w = NULL;
        mf_routing *t = NULL;
        REQUIRE_OK(mf_routing_writer_open(NULL, path, &head, MAX_ROWS, 2, &w, &error), &error);
        mf_routing_writer_limit(w, n_most - less);
        for (uint32_t i = 0; i < N; i++) {
            passes[i] = i < N / 2 ? passes[i] : make_pass(i);
            write_pass(w, &passes[i]);
            CHECK(mf_routing_writer_is_full(w) == (i >= N / 2 - less));
        }
        REQUIRE_OK(mf_routing_writer_close(&w, &error), &error);
        unsigned char *bytes = read_whole(path, &n_bytes);
        CHECK(n_bytes <= n_most - less);
        REQUIRE_OK(mf_routing_read(NULL, bytes, n_bytes, "it", &t, &error), &error);
        CHECK_U64(t->n_passes, N / 2 - less);
        for (uint32_t i = 0; i < t->n_passes; i++)
            check_pass(t, i, &passes[i]);
        mf_routing_release(&t);
        free(bytes);
    }
    (void)unlink(path);
}

/* Every bit flipped, every length: an error that says where, never a trace. */
static void test_damage(void)
{
    enum { N = 6 };
    pass passes[N];
    mf_routing *t = NULL;
    size_t n_bytes;
    unsigned char *bytes = write_trace(N, passes, &n_bytes);
    for (size_t i = 0; i < n_bytes * 8; i++) {
        mf_error error = {0};
        bytes[i / 8] ^= (unsigned char)(1u << i % 8);
        mf_status status = mf_routing_read(NULL, bytes, n_bytes, "it", &t, &error);
        CHECK_MSG(status == MF_ERR_FORMAT || status == MF_ERR_UNSUPPORTED, "bit %zu: %d", i,
                  (int)status);
        CHECK(error.message[0] != '\0' && t == NULL);
        bytes[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    for (size_t n = 0; n < n_bytes; n++) {
        unsigned char *copy = malloc(n + 1); /* of just this size, for whoever watches */
        mf_error error = {0};
        REQUIRE(copy != NULL);
        memcpy(copy, bytes, n);
        CHECK(mf_routing_read(NULL, copy, n, "it", &t, &error) == MF_ERR_FORMAT);
        free(copy);
    }
    free(bytes);
}

/* What a right checksum covers is looked at all the same. */
static void test_hostile(void)
{
    enum { N = 1 };
    pass passes[N];
    mf_routing *t = NULL;
    size_t n_bytes;
    unsigned char *bytes = write_trace(N, passes, &n_bytes);
    const size_t n_summed = n_bytes - MF_ROUTING_HEADER_BYTES - 8;
    unsigned char *block = bytes + MF_ROUTING_HEADER_BYTES;
    uint32_t n_taken = 0;
    for (size_t i = 0; i < n_summed * 8; i++) {
        mf_error error = {0};
        block[i / 8] ^= (unsigned char)(1u << i % 8);
        const uint64_t sum = mf_checksum_of(block, n_summed, 1);
        memcpy(block + n_summed, &sum, 8);
        mf_status status = mf_routing_read(NULL, bytes, n_bytes, "it", &t, &error);
        CHECK(status == MF_OK || status == MF_ERR_FORMAT);
        n_taken += status == MF_OK;
        for (size_t j = 0; status == MF_OK && j < t->n_choices; j++)
            CHECK(t->ids[j] < N_EXPERTS);
        mf_routing_release(&t);
        block[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    CHECK(n_taken > 0); /* weights may be anything */
    free(bytes);
}

#define N_SIZES 3u
#define TABLE_BYTES (16 * N_SIZES + N_LAYERS * N_EXPERTS)

/* A trace with a table of sizes and a few passes. */
static unsigned char *write_sized(uint8_t *of, pass *passes, uint32_t n_passes, size_t *n_bytes)
{
    mf_routing_head sized = head;
    for (uint32_t i = 0; i < N_LAYERS * N_EXPERTS; i++)
        of[i] = (uint8_t)(i % N_SIZES);
    sized.sizes = (mf_routing_sizes){N_SIZES, {16384, 12288, 8192}, {12000, 9000, 7000}, of};
    return write_trace_of(&sized, n_passes, passes, n_bytes);
}

static void test_sizes(void)
{
    enum { N = 4 };
    pass passes[N];
    uint8_t of[N_LAYERS * N_EXPERTS];
    mf_error error = {0};
    mf_routing *t = NULL;
    size_t n_bytes;
    unsigned char *bytes = write_sized(of, passes, N, &n_bytes);
    REQUIRE_OK(mf_routing_read(NULL, bytes, n_bytes, "it", &t, &error), &error);
    CHECK_U64(t->head.sizes.n, N_SIZES);
    CHECK_U64(t->head.sizes.slot_bytes[1], 12288);
    CHECK_U64(t->head.sizes.expert_bytes[2], 7000);
    CHECK_BYTES(t->head.sizes.of, of, sizeof of);
    for (uint32_t i = 0; i < N; i++)
        check_pass(t, i, &passes[i]);
    mf_routing_release(&t);
    const size_t end = MF_ROUTING_HEADER_BYTES + TABLE_BYTES + 8;
    for (size_t i = 0; i < end * 8; i++) { /* every bit of header and table */
        bytes[i / 8] ^= (unsigned char)(1u << i % 8);
        CHECK(mf_routing_read(NULL, bytes, n_bytes, "it", &t, &error) != MF_OK && t == NULL);
        bytes[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    for (size_t n = 0; n < end; n++) { /* every length, without what is behind it */
        unsigned char *copy = malloc(n + 1);
        REQUIRE(copy != NULL);
        memcpy(copy, bytes, n);
        CHECK(mf_routing_read(NULL, copy, n, "it", &t, &error) == MF_ERR_FORMAT && t == NULL);
        free(copy);
    }
    free(bytes);
}

/* The number is put at `at`, in four bytes, and the checksum behind it made right again. */
static void check_hostile_size(unsigned char *bytes, size_t n_bytes, size_t at, uint32_t value,
                               const char *expected)
{
    const size_t begin = at < MF_ROUTING_HEADER_BYTES ? 0 : MF_ROUTING_HEADER_BYTES;
    const size_t n_summed = begin == 0 ? 120 : TABLE_BYTES;
    unsigned char *copy = malloc(n_bytes);
    mf_error error = {0};
    mf_routing *t = NULL;
    REQUIRE(copy != NULL);
    memcpy(copy, bytes, n_bytes);
    memcpy(copy + at, &value, sizeof value);
    const uint64_t sum = mf_checksum_of(copy + begin, n_summed, 0);
    memcpy(copy + begin + n_summed, &sum, sizeof sum);
    CHECK(mf_routing_read(NULL, copy, n_bytes, "it", &t, &error) == MF_ERR_FORMAT && t == NULL);
    CHECK_MSG(strstr(error.message, expected) != NULL, "%s, expected %s", error.message, expected);
    free(copy);
}

static void test_hostile_sizes(void)
{
    const size_t table = MF_ROUTING_HEADER_BYTES, slot = table + 16, read = table + 24;
    pass passes[1];
    uint8_t of[N_LAYERS * N_EXPERTS];
    size_t n_bytes;
    unsigned char *bytes = write_sized(of, passes, 1, &n_bytes);
    check_hostile_size(bytes, n_bytes, 88, 1, "number of sizes");
    check_hostile_size(bytes, n_bytes, 88, 9, "number of sizes");
    check_hostile_size(bytes, n_bytes, slot, 16384, "no possible sizes");
    check_hostile_size(bytes, n_bytes, slot, 8000, "no possible sizes");
    check_hostile_size(bytes, n_bytes, slot + 4, 1, "no possible sizes"); /* 4 GiB more */
    check_hostile_size(bytes, n_bytes, read, 0, "no possible sizes");
    check_hostile_size(bytes, n_bytes, read, 12288 + 1, "no possible sizes");
    check_hostile_size(bytes, n_bytes, read, 6999, "no possible sizes");
    check_hostile_size(bytes, n_bytes, table + TABLE_BYTES - 4, 0x03000000, "not in the table");
    free(bytes);
}

static void test_failures(void)
{
    mf_error error = {0};
    mf_routing_writer *w = NULL;
    CHECK(mf_routing_writer_open(NULL, "/tmp/no/such/place", &head, 1, 1, &w, &error) == MF_ERR_IO);
    CHECK(w == NULL);
    if (access("/dev/full", W_OK) != 0)
        return;
    REQUIRE_OK(mf_routing_writer_open(NULL, "/tmp/moeflux-none", &head, MAX_ROWS, 2, &w, &error),
               &error);
    REQUIRE_OK(mf_routing_writer_close(&w, &error), &error);
    (void)unlink("/tmp/moeflux-none");
    CHECK(mf_routing_writer_open(NULL, "/dev/full", &head, 1, 1, &w, &error) == MF_ERR_IO);
    CHECK_MSG(strncmp(error.message, "/dev/full: ", 11) == 0, "'%s'", error.message);
}

/* On a drive that is full in the middle of a block: what was written before is a trace. */
static void test_cut_off(void)
{
    char path[] = "/tmp/moeflux-routing.XXXXXX";
    struct rlimit before;
    mf_routing_writer *w = NULL;
    mf_routing *t = NULL;
    mf_error error = {0};
    mf_status status = MF_OK;
    size_t n_bytes;
    uint32_t n_passes = 0;
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0 && getrlimit(RLIMIT_FSIZE, &before) == 0);
    close(fd);
    const struct rlimit small = {MF_ROUTING_BLOCK_BYTES * 5 / 2, before.rlim_max};
    REQUIRE_OK(mf_routing_writer_open(NULL, path, &head, MAX_ROWS, 2, &w, &error), &error);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const pass p = make_pass(4);
    for (; status == MF_OK && n_passes < 100000; n_passes++) {
        mf_routing_writer_begin(w, p.parts, p.n_parts, p.n_rows);
        for (uint32_t layer = 0; layer < N_LAYERS; layer++)
            mf_routing_writer_layer(w, layer, p.ids[layer], p.weights[layer]);
        status = mf_routing_writer_commit(w, 500, 200, &error);
    }
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK_STATUS(status, MF_ERR_IO);
    REQUIRE_OK(mf_routing_writer_close(&w, &error), &error);
    unsigned char *bytes = read_whole(path, &n_bytes);
    CHECK(n_bytes > MF_ROUTING_BLOCK_BYTES);
    REQUIRE_OK(mf_routing_read(NULL, bytes, n_bytes, "it", &t, &error), &error);
    CHECK(t->n_passes > n_passes / 2 && t->n_passes < n_passes);
    mf_routing_release(&t);
    free(bytes);
    (void)unlink(path);
}

/* A clock that no whole number has room for, as a drive of a byte a second makes it: no conversion
 * of it is undefined, and time does not go back. */
static void test_clock(void)
{
    const double times[] = {0, 0.9, 1.5, 9e15, 9.2e18, 9.3e18, 1.8e19, 1.9e19, 1e30, INFINITY};
    uint64_t before = 0;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        const mf_drive_sim drive = {.now_us = times[i]};
        const uint64_t now = mf_drive_sim_now_us(&drive);
        CHECK(now >= before);
        before = now;
    }
    CHECK_U64(before, MF_DRIVE_SIM_LAST_US);
}

int main(void)
{
    test_round_trip();
    test_full();
    test_damage();
    test_hostile();
    test_sizes();
    test_hostile_sizes();
    test_failures();
    test_cut_off();
    test_clock();
    return test_result();
}
