/* SPDX-License-Identifier: MIT */
/*
 * The expert store against the drive: bytes per second of fetches whose every expert is a miss,
 * beside the raw reader with the same requests on the same files, alternating; and a sweep of
 * request sizes and depths; and with --overlap what is gained by taking completions in while
 * computing. Makes its files in DIR and removes them. One line a measurement.
 *
 *     bench_io DIR [--layers N] [--experts N] [--rounds N] [--sweep] [--overlap]
 */
#include "bench_median.h"

#include "base/clock.h"
#include "experts/store.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define N_PARTS 9u
#define N_AT_ONCE 8u
#define MS_PER_RUN 1000u
#define MAX_LAYERS 64u
#define MAX_ROUNDS 99

/* One expert of the 35B-A3B shape in 4 bits: weights, scales and biases of three matrices. */
static const uint64_t part_bytes[N_PARTS] = {524288, 32768,  32768, 524288, 32768,
                                             32768,  524288, 32768, 32768};

typedef struct bench {
    const char *dir;
    uint32_t n_layers, n_experts, n_rounds;
    bool is_sweep, is_overlap;
    char paths[MAX_LAYERS][512];
    mf_expert_part parts[MAX_LAYERS * N_PARTS];
    uint64_t random;
} bench;

static _Noreturn void die(const mf_error *error)
{
    fprintf(stderr, "bench_io: %s\n", error->message);
    exit(1);
}

static uint64_t next_random(bench *b)
{
    b->random ^= b->random << 13;
    b->random ^= b->random >> 7;
    b->random ^= b->random << 17;
    return b->random >> 11;
}

static void write_file(bench *b, const char *path, uint64_t n_bytes)
{
    static uint64_t block[1 << 17];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (uint64_t done = 0; fd >= 0 && done < n_bytes;) {
        for (size_t i = 0; i < sizeof block / sizeof *block; i++)
            block[i] = next_random(b);
        uint64_t n = n_bytes - done < sizeof block ? n_bytes - done : sizeof block;
        ssize_t n_written = write(fd, block, n);
        if (n_written <= 0)
            break;
        done += (uint64_t)n_written;
    }
    if (fd < 0 || fsync(fd) != 0) {
        perror(path);
        exit(1);
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

/* A file a layer: as in a safetensors shard, nine stacked tensors behind a header of odd size. */
static void make_files(bench *b)
{
    for (uint32_t layer = 0; layer < b->n_layers; layer++) {
        uint64_t at = 123456;
        for (uint32_t p = 0; p < N_PARTS; p++) {
            b->parts[layer * N_PARTS + p] = (mf_expert_part){
                .file = layer, .offset = at, .stride = part_bytes[p], .n_bytes = part_bytes[p]};
            at += part_bytes[p] * b->n_experts;
        }
        snprintf(b->paths[layer], sizeof b->paths[layer], "%s/bench-io-%u.bin", b->dir, layer);
        write_file(b, b->paths[layer], at);
    }
}

static mf_io *open_io(bench *b, mf_io_kind kind, uint32_t depth)
{
    mf_error error;
    mf_io *io = NULL;
    uint32_t number;
    if (mf_io_open(&(mf_io_options){.kind = kind, .depth = depth}, &io, &error) != MF_OK)
        die(&error);
    for (uint32_t layer = 0; layer < b->n_layers; layer++) {
        if (mf_io_add_file(io, b->paths[layer], &number, &error) != MF_OK)
            die(&error);
    }
    return io;
}

static unsigned char *region(uint64_t n_bytes, mf_region *out)
{
    mf_error error;
    mf_allocator allocator = mf_allocator_default();
    if (mf_region_create(&allocator, n_bytes, "the bench", out, &error) != MF_OK)
        die(&error);
    memset(out->base, 1, n_bytes); /* so that no page is faulted in while reading */
    return out->base;
}

static void fetch_layer(bench *b, mf_expert_store *store, uint32_t layer)
{
    mf_error error;
    uint32_t experts[N_AT_ONCE], n;
    uint32_t first = (uint32_t)(next_random(b) % b->n_experts);
    for (uint32_t i = 0; i < N_AT_ONCE; i++) /* far apart and distinct */
        experts[i] = (first + i * (b->n_experts / N_AT_ONCE)) % b->n_experts;
    mf_expert_fetch *fetch = NULL;
    if (mf_expert_fetch_begin(store, layer, experts, N_AT_ONCE, &fetch, &error) != MF_OK)
        die(&error);
    do {
        mf_expert_ready ready[N_AT_ONCE];
        if (mf_expert_fetch_next(fetch, ready, N_AT_ONCE, &n, &error) != MF_OK)
            die(&error);
        for (uint32_t i = 0; i < n; i++)
            mf_expert_fetch_release(fetch, ready[i].index, 0);
    } while (n > 0);
    mf_expert_fetch_end(fetch, 0);
}

/* Bytes per second by the wall clock: nothing is computed in between. */
static double fetch_rate(bench *b, mf_expert_store *store, mf_expert_stats *stats)
{
    mf_expert_store_stats_reset(store);
    uint64_t start_us = mf_now_us();
    for (uint32_t layer = 0; mf_now_us() - start_us < MS_PER_RUN * 1000; layer++)
        fetch_layer(b, store, layer % b->n_layers);
    uint64_t n_us = mf_now_us() - start_us;
    mf_expert_store_stats(store, stats);
    return (double)stats->read_bytes * 1e6 / (double)n_us;
}

static void compare(bench *b, mf_io_kind kind)
{
    mf_error error;
    mf_io *io = open_io(b, kind, 0);
    mf_expert_map map = {
        .n_layers = b->n_layers, .n_experts = b->n_experts, .n_parts = N_PARTS, .parts = b->parts};
    uint64_t slot_bytes = mf_expert_slot_bytes(&map);
    mf_region memory;
    mf_expert_store_options options = {
        .io = io, .map = map, .memory = {.n_bytes = slot_bytes * N_AT_ONCE}};
    options.memory.host = region(options.memory.n_bytes, &memory);
    mf_expert_store *store = NULL;
    if (mf_expert_store_open(&options, &store, &error) != MF_OK)
        die(&error);
    double raw[MAX_ROUNDS], fetched[MAX_ROUNDS], ratio[MAX_ROUNDS];
    mf_expert_stats stats = {0};
    for (uint32_t i = 0; i < b->n_rounds; i++) {
        if (mf_expert_store_measure(store, N_AT_ONCE, MS_PER_RUN, &raw[i], &error) != MF_OK)
            die(&error);
        fetched[i] = fetch_rate(b, store, &stats);
        ratio[i] = fetched[i] / raw[i];
    }
    double fetched_rate = bench_median(fetched, b->n_rounds),
           raw_middle = bench_median(raw, b->n_rounds);
    double middle = bench_median(ratio, b->n_rounds); /* sorted now */
    printf("%-8s %6.0f MB/s fetched  %6.0f MB/s raw  ratio %.3f (%.3f to %.3f)  %.1f KiB a read\n",
           mf_io_name(io), fetched_rate / 1e6, raw_middle / 1e6, middle, ratio[0],
           ratio[b->n_rounds - 1], (double)stats.read_bytes / 1024 / (double)stats.n_reads);
    if (stats.n_hits > 0)
        printf("         %llu hits: more layers are needed\n", (unsigned long long)stats.n_hits);
    mf_expert_store_close(&store);
    mf_io_close(&io);
    mf_allocator allocator = mf_allocator_default();
    mf_region_free(&allocator, &memory);
}

/* Reads of one size at random places, `depth` at once. */
static double raw_rate(bench *b, mf_io *io, unsigned char *buffer, uint32_t n_bytes, uint32_t depth)
{
    mf_error error;
    mf_io_done done[64];
    uint32_t n, n_free = depth;
    uint64_t bytes = 0, start_us = mf_now_us();
    for (uint32_t i = 0; i < n_free; i++)
        done[i].tag = i;
    do {
        for (uint32_t i = 0; i < n_free; i++) {
            uint32_t file = (uint32_t)(next_random(b) % b->n_layers);
            uint64_t n_places = mf_io_file_bytes(io, file) / n_bytes;
            mf_io_read read = {file,    next_random(b) % n_places * n_bytes, n_bytes,
                               n_bytes, buffer + done[i].tag * n_bytes,      done[i].tag};
            if (mf_io_submit(io, &read, 1, &n, &error) != MF_OK)
                die(&error);
        }
        if (mf_io_collect(io, true, done, 64, &n_free, &error) != MF_OK)
            die(&error);
        bytes += (uint64_t)n_free * n_bytes;
    } while (mf_now_us() - start_us < MS_PER_RUN * 1000 / 2);
    while (mf_io_in_flight(io) > 0) {
        if (mf_io_collect(io, true, done, 64, &n, &error) != MF_OK)
            die(&error);
    }
    return (double)bytes * 1e6 / (double)(mf_now_us() - start_us);
}

static void sweep(bench *b, mf_io_kind kind)
{
    static const uint32_t depths[] = {1, 2, 4, 8, 16, 32, 64};
    mf_region memory;
    unsigned char *buffer = region((uint64_t)64 << 21, &memory);
    mf_io *io = open_io(b, kind, 64);
    printf("%s, MB/s\n%8s", mf_io_name(io), "KiB");
    for (int d = 0; d < 7; d++)
        printf(" depth %-3u", depths[d]);
    for (uint32_t n_bytes = 32768; n_bytes <= 2 << 20; n_bytes *= 2) {
        printf("\n%8u", n_bytes / 1024);
        for (int d = 0; d < 7; d++)
            printf(" %9.0f", raw_rate(b, io, buffer, n_bytes, depths[d]) / 1e6);
        fflush(stdout);
    }
    printf("\n");
    mf_io_close(&io);
    mf_allocator allocator = mf_allocator_default();
    mf_region_free(&allocator, &memory);
}

/* ---- reading while computing ---- */

#define COMPUTE_US 4000u /* a layer's, about as long as its reads take */
#define HAND_OVER_US 400u

typedef enum intake { INTAKE_NONE, INTAKE_POLLED, INTAKE_THREAD, N_INTAKES } intake;

typedef struct poller {
    mf_expert_store *store;
    pthread_mutex_t turn;
    atomic_bool is_over;
} poller;

/* Stands for an I/O thread: takes completions in all the time that the store is free. */
static void *poll_always(void *arg)
{
    poller *p = arg;
    while (!atomic_load(&p->is_over)) {
        pthread_mutex_lock(&p->turn);
        mf_expert_store_poll(p->store);
        pthread_mutex_unlock(&p->turn);
        (void)nanosleep(&(struct timespec){0, 50000}, NULL);
    }
    return NULL;
}

static void compute(poller *p, intake how)
{
    uint64_t start_us = mf_now_us(), next_us = start_us + HAND_OVER_US;
    while (mf_now_us() - start_us < COMPUTE_US) {
        if (how == INTAKE_POLLED && mf_now_us() >= next_us) {
            mf_expert_store_poll(p->store);
            next_us += HAND_OVER_US;
        }
    }
}

/* Microseconds a layer: its experts were foreseen while the layer before it was computed. */
static double overlapped_layer_us(bench *b, poller *p, intake how)
{
    uint32_t experts[N_AT_ONCE], n_layers = 0;
    uint64_t start_us = mf_now_us();
    for (; mf_now_us() - start_us < MS_PER_RUN * 1000; n_layers++) {
        uint32_t layer = n_layers % b->n_layers;
        uint64_t random = b->random; /* fetch_layer will choose the same */
        uint32_t first = (uint32_t)(next_random(b) % b->n_experts);
        b->random = random;
        for (uint32_t i = 0; i < N_AT_ONCE; i++)
            experts[i] = (first + i * (b->n_experts / N_AT_ONCE)) % b->n_experts;
        pthread_mutex_lock(&p->turn);
        mf_expert_store_hint(p->store, layer, experts, N_AT_ONCE);
        pthread_mutex_unlock(&p->turn);
        compute(p, how);
        pthread_mutex_lock(&p->turn);
        fetch_layer(b, p->store, layer);
        pthread_mutex_unlock(&p->turn);
    }
    return (double)(mf_now_us() - start_us) / n_layers;
}

static double overlap_run(bench *b, mf_expert_store *store, intake how)
{
    poller p = {.store = store};
    pthread_t thread;
    pthread_mutex_init(&p.turn, NULL);
    if (how == INTAKE_THREAD && pthread_create(&thread, NULL, poll_always, &p) != 0)
        exit(1);
    double layer_us = overlapped_layer_us(b, &p, how);
    atomic_store(&p.is_over, true);
    if (how == INTAKE_THREAD)
        pthread_join(thread, NULL);
    pthread_mutex_destroy(&p.turn);
    return layer_us;
}

static void overlap(bench *b, mf_io_kind kind)
{
    static const char *const names[] = {"at the next fetch", "where computing hands over",
                                        "by a thread"};
    mf_error error;
    mf_io *io = open_io(b, kind, 0);
    mf_expert_map map = {
        .n_layers = b->n_layers, .n_experts = b->n_experts, .n_parts = N_PARTS, .parts = b->parts};
    mf_region memory;
    mf_expert_store_options options = {
        .io = io, .map = map, .memory = {.n_bytes = mf_expert_slot_bytes(&map) * 2 * N_AT_ONCE}};
    options.memory.host = region(options.memory.n_bytes, &memory);
    mf_expert_store *store = NULL;
    if (mf_expert_store_open(&options, &store, &error) != MF_OK)
        die(&error);
    double us[N_INTAKES][MAX_ROUNDS];
    for (uint32_t i = 0; i < b->n_rounds; i++) {
        for (int how = 0; how < N_INTAKES; how++)
            us[how][i] = overlap_run(b, store, (intake)how);
    }
    for (int how = 0; how < N_INTAKES; how++)
        printf("%-8s completions taken in %-27s %5.0f us a layer, %u us of them computing\n",
               mf_io_name(io), names[how], bench_median(us[how], b->n_rounds), COMPUTE_US);
    mf_expert_store_close(&store);
    mf_io_close(&io);
    mf_allocator allocator = mf_allocator_default();
    mf_region_free(&allocator, &memory);
}

static void parse(bench *b, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--sweep") == 0)
            b->is_sweep = true;
        else if (strcmp(argv[i], "--overlap") == 0)
            b->is_overlap = true;
        else if (strcmp(argv[i], "--layers") == 0 && has_value)
            b->n_layers = (uint32_t)atoi(argv[++i]);
        else if (strcmp(argv[i], "--experts") == 0 && has_value)
            b->n_experts = (uint32_t)atoi(argv[++i]);
        else if (strcmp(argv[i], "--rounds") == 0 && has_value)
            b->n_rounds = (uint32_t)atoi(argv[++i]);
        else if (b->dir == NULL && argv[i][0] != '-')
            b->dir = argv[i];
        else
            b->n_rounds = 0;
    }
    if (b->dir == NULL || b->n_rounds == 0 || b->n_rounds > MAX_ROUNDS || b->n_layers == 0 ||
        b->n_layers > MAX_LAYERS || b->n_experts < N_AT_ONCE) {
        fprintf(
            stderr,
            "usage: bench_io DIR [--layers N] [--experts N] [--rounds N] [--sweep] [--overlap]\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static bench b = {.n_layers = 8, .n_experts = 256, .n_rounds = 5, .random = 88172645463325252u};
    parse(&b, argc, argv);
    make_files(&b);
    static const mf_io_kind kinds[] = {MF_IO_AUTO, MF_IO_POOL};
    for (int k = 0; k < 2; k++) {
        compare(&b, kinds[k]);
        if (b.is_sweep)
            sweep(&b, kinds[k]);
        if (b.is_overlap)
            overlap(&b, kinds[k]);
    }
    for (uint32_t layer = 0; layer < b.n_layers; layer++)
        unlink(b.paths[layer]);
    return 0;
}
