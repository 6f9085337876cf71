/* SPDX-License-Identifier: MIT */
/* Units between the network, the drive and the hash: what is written, kept, given up and forgotten.
 */
#include "hub_rooms.h"
#include "test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define UNIT MF_HUB_UNIT_BYTES

enum { N_ROOMS = 4, N_FILLERS = 3, N_UNITS = 11, LAST_BYTES = 12345 };

typedef struct fixture {
    char dir[MF_HUB_PATH_CHARS];
    mf_hub_client *client;
    mf_hub_rooms *rooms;
    mf_hub_file file;
    mf_hub_item item;
} fixture;

static size_t bytes_of(uint64_t unit)
{
    return unit + 1 < N_UNITS ? (size_t)UNIT : LAST_BYTES;
}

/* Bytes that tell units and places apart. */
static unsigned char byte_at(uint64_t unit, size_t i)
{
    return (unsigned char)(unit * 37 + i * 11 + (i >> 12));
}

static bool is_unit(const unsigned char *data, uint64_t unit)
{
    size_t i = 0;
    while (i < bytes_of(unit) && data[i] == byte_at(unit, i))
        i++;
    return i == bytes_of(unit);
}

static fixture *open_fixture(bool is_direct)
{
    static const mf_hub_places places;
    static const mf_hub_options options = {.n_connections = 1};
    const char *root = getenv("TMPDIR");
    mf_error error = {0};
    fixture *f = calloc(1, sizeof *f);
    REQUIRE(f != NULL);
    snprintf(f->dir, sizeof f->dir, "%s/moeflux-rooms.XXXXXX", root ? root : "/tmp");
    REQUIRE(mkdtemp(f->dir) != NULL);
    f->file = (mf_hub_file){.path = "m.gguf", .n_bytes = (N_UNITS - 1) * UNIT + LAST_BYTES};
    snprintf(f->file.blob, sizeof f->file.blob, "blob");
    f->item.file = &f->file;
    f->item.epoch = 3;
    REQUIRE(mf_hub_client_open(&places, &options, &f->client, &error));
    REQUIRE(mf_hub_partial_open(f->dir, &f->file, &f->item.part, &error));
    if (is_direct)
        mf_hub_partial_go_direct(&f->item.part);
    REQUIRE(mf_hub_rooms_start(f->client, N_FILLERS, N_ROOMS - N_FILLERS, &f->rooms, &error));
    return f;
}

static void close_fixture(fixture *f)
{
    mf_hub_rooms_free(&f->rooms);
    (void)unlink(f->item.part.path);
    (void)unlink(f->item.part.state_path);
    mf_hub_partial_close(&f->item.part);
    mf_hub_client_close(&f->client);
    CHECK(rmdir(f->dir) == 0);
    free(f);
}

/* A room of the unit, handed over. */
static void hand_over(fixture *f, mf_hub_room *room, uint64_t unit)
{
    REQUIRE(room != NULL);
    for (size_t i = 0; i < bytes_of(unit); i++)
        room->data[i] = byte_at(unit, i);
    room->item = &f->item;
    room->epoch = f->item.epoch;
    room->unit = unit;
    room->n_bytes = bytes_of(unit);
    mf_hub_rooms_write(f->rooms, room);
}

/* The next that is written, waited for. */
static mf_hub_room wait_written(fixture *f)
{
    mf_hub_room room;
    while (!mf_hub_rooms_written(f->rooms, &room))
        usleep(100);
    return room;
}

static void check_file(const fixture *f)
{
    unsigned char *data = malloc(UNIT);
    REQUIRE(data != NULL);
    for (uint64_t unit = 0; unit < N_UNITS; unit++) {
        const ssize_t n = pread(f->item.part.fd, data, bytes_of(unit), (off_t)(unit * UNIT));
        CHECK(n == (ssize_t)bytes_of(unit));
        CHECK_MSG(is_unit(data, unit), "unit %" PRIu64 " is another", unit);
    }
    free(data);
}

/* What is kept of a unit, looked at and given back. */
static bool is_kept(fixture *f, uint32_t epoch, uint64_t unit)
{
    mf_hub_room *room = mf_hub_rooms_lend(f->rooms, &f->item, epoch, unit);
    if (room == NULL)
        return false;
    CHECK(room->unit == unit && room->n_bytes == bytes_of(unit) && is_unit(room->data, unit));
    mf_hub_rooms_return(f->rooms, room);
    return true;
}

/* More units than rooms, the last first, each known to be written before the next: those that are
 * hashed first stay. */
static void test_keeps(bool is_direct)
{
    fixture *f = open_fixture(is_direct);
    for (uint64_t unit = N_UNITS; unit-- > 0;) {
        hand_over(f, mf_hub_rooms_take(f->rooms), unit);
        const mf_hub_room room = wait_written(f);
        CHECK(room.unit == unit && room.failure == 0 && room.item == &f->item);
    }
    check_file(f);
    CHECK(!is_kept(f, f->item.epoch + 1, 0)); /* begun anew since */
    for (uint64_t unit = 0; unit < N_UNITS; unit++)
        CHECK(is_kept(f, f->item.epoch, unit) == (unit < N_ROOMS));
    CHECK(!is_kept(f, f->item.epoch, 0)); /* it was hashed */
    close_fixture(f);
}

/* What was passed goes before what is still to come. */
static void test_gives_up(void)
{
    fixture *f = open_fixture(true);
    for (uint64_t unit = 0; unit < N_ROOMS; unit++) {
        hand_over(f, mf_hub_rooms_take(f->rooms), unit);
        (void)wait_written(f);
    }
    CHECK(mf_hub_rooms_lend(f->rooms, &f->item, f->item.epoch + 1, 1) == NULL);
    hand_over(f, mf_hub_rooms_take(f->rooms), 9);
    hand_over(f, mf_hub_rooms_take(f->rooms), 10);
    (void)wait_written(f);
    (void)wait_written(f);
    for (uint64_t unit = 0; unit < N_UNITS; unit++) /* 0 and 1 had been passed */
        CHECK(is_kept(f, f->item.epoch, unit) ==
              (unit == 2 || unit == 3 || unit == 9 || unit == 10));
    close_fixture(f);
}

/* All at once: rooms are had again when the drive has them, and the caller has been told. */
static void test_waits(void)
{
    fixture *f = open_fixture(true);
    uint32_t n_written = 0;
    mf_hub_room room;
    for (uint64_t unit = 0; unit < N_UNITS;) {
        mf_hub_room *next = mf_hub_rooms_take(f->rooms);
        if (next)
            hand_over(f, next, unit++);
        while (!next && mf_hub_rooms_written(f->rooms, &room))
            n_written++;
    }
    mf_hub_rooms_finish(f->rooms);
    while (mf_hub_rooms_written(f->rooms, &room))
        n_written++;
    CHECK(n_written == N_UNITS);
    check_file(f);
    close_fixture(f);
}

typedef struct hasher {
    fixture *f;
    atomic_bool is_over;
    uint64_t n_bad; /* what it got was another unit */
    pthread_t thread;
} hasher;

/* Asks for all units again and again, which takes rooms away and gives them back. */
static void *hash_all(void *user)
{
    hasher *h = user;
    while (!atomic_load(&h->is_over))
        for (uint64_t unit = 0; unit < N_UNITS; unit++) {
            mf_hub_room *room = mf_hub_rooms_lend(h->f->rooms, &h->f->item, h->f->item.epoch, unit);
            h->n_bad += room && !is_unit(room->data, unit);
            if (room)
                mf_hub_rooms_return(h->f->rooms, room);
        }
    return NULL;
}

/* The room that a request goes on with, as the fetching thread does it. */
static mf_hub_room *take_room(fixture *f, uint32_t *n_written)
{
    mf_hub_room room;
    for (;;) {
        mf_hub_room *next = mf_hub_rooms_take(f->rooms);
        if (next)
            return next;
        while (mf_hub_rooms_written(f->rooms, &room))
            ++*n_written;
    }
}

/* All requests but the one that goes on hold a room that is half full, and nothing comes for them:
 * one room beside theirs is enough for it, however often it needs the next, while who hashes takes
 * what there is. */
static void test_one_goes_on(void)
{
    enum { N_TIMES = 100 };
    fixture *f = open_fixture(true);
    hasher h = {.f = f};
    mf_hub_room *held[N_FILLERS - 1], room;
    uint32_t n_written = 0;
    REQUIRE(pthread_create(&h.thread, NULL, hash_all, &h) == 0);
    for (size_t i = 0; i < N_FILLERS - 1; i++)
        held[i] = take_room(f, &n_written);
    for (uint32_t i = 0; i < N_TIMES; i++)
        hand_over(f, take_room(f, &n_written), i % N_UNITS);
    mf_hub_rooms_drop(f->rooms, held[0]); /* given up */
    for (size_t i = 1; i < N_FILLERS - 1; i++)
        hand_over(f, held[i], i);
    mf_hub_rooms_finish(f->rooms);
    while (mf_hub_rooms_written(f->rooms, &room))
        n_written++;
    atomic_store(&h.is_over, true);
    pthread_join(h.thread, NULL);
    CHECK(h.n_bad == 0);
    CHECK(n_written == N_TIMES + N_FILLERS - 2);
    check_file(f);
    close_fixture(f);
}

static void test_forgets(void)
{
    fixture *f = open_fixture(true);
    mf_hub_room room;
    hand_over(f, mf_hub_rooms_take(f->rooms), 4);
    (void)wait_written(f);
    hand_over(f, mf_hub_rooms_take(f->rooms), 5);
    mf_hub_rooms_forget(f->rooms, &f->item);
    CHECK(mf_hub_rooms_written(f->rooms, &room) && room.unit == 5);
    CHECK(!is_kept(f, f->item.epoch, 4));
    mf_hub_rooms_forget(NULL, &f->item);
    close_fixture(f);
}

/* Where it cannot be written: said, and the room is free for another. */
static void test_fails(void)
{
    fixture *f = open_fixture(false);
    const int right = f->item.part.fd;
    f->item.part.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    REQUIRE(f->item.part.fd >= 0);
    for (uint64_t unit = 0; unit < N_UNITS; unit++) {
        hand_over(f, mf_hub_rooms_take(f->rooms), unit);
        CHECK(wait_written(f).failure != 0);
        CHECK(!is_kept(f, f->item.epoch, unit));
    }
    mf_hub_room *room = mf_hub_rooms_take(f->rooms);
    REQUIRE(room != NULL);
    mf_hub_rooms_drop(f->rooms, room);
    close(f->item.part.fd);
    f->item.part.fd = right;
    close_fixture(f);
}

int main(void)
{
    test_keeps(true);
    test_keeps(false);
    test_gives_up();
    test_waits();
    test_one_goes_on();
    test_forgets();
    test_fails();
    return test_result();
}
