/* SPDX-License-Identifier: MIT */
/* Units between the network, the drive and the hash; the threads that write. */
#include "hub_rooms.h"
#include "hub_fail.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Enough for a drive that takes one write at a time slowly; they wait most of the time. */
enum { N_WRITERS = 3 };

struct mf_hub_rooms {
    mf_hub_client *client;
    unsigned char *memory;
    uint32_t n_rooms, n_fillers, n_threads;
    pthread_t threads[N_WRITERS];
    pthread_mutex_t lock;
    pthread_cond_t handed_over, written;
    /* Under the lock. */
    mf_hub_room *free; /* the one used last first: it is in the caches */
    mf_hub_room *first_waiting, *last_waiting;
    mf_hub_room *first_written, *last_written;
    uint32_t n_filling;             /* never more than n_fillers */
    const mf_hub_item *hashed_item; /* what was asked for last by who hashes */
    uint64_t hashed_unit;
    bool is_over;
    mf_hub_room rooms[];
};

static void append(mf_hub_room **first, mf_hub_room **last, mf_hub_room *room)
{
    room->next = NULL;
    if (*first)
        (*last)->next = room;
    else
        *first = room;
    *last = room;
}

static mf_hub_room *remove_first(mf_hub_room **first)
{
    mf_hub_room *room = *first;
    if (room)
        *first = room->next;
    return room;
}

static void make_free(mf_hub_rooms *r, mf_hub_room *room)
{
    room->state = MF_HUB_ROOM_FREE;
    room->next = r->free;
    r->free = room;
}

/* ---- writing ---- */

static int write_all(int fd, const unsigned char *data, size_t n_bytes, uint64_t position)
{
    while (n_bytes > 0) {
        const ssize_t n = pwrite(fd, data, n_bytes, (off_t)position);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        data += n;
        n_bytes -= (size_t)n;
        position += (uint64_t)n;
    }
    return 0;
}

/* Whole units go past the page cache; where the drive will not have it so, and what is shorter,
 * through it. */
static int write_room(const mf_hub_room *room)
{
    const mf_hub_partial *p = &room->item->part;
    const uint64_t position = room->unit * MF_HUB_UNIT_BYTES;
    if (p->direct_fd >= 0 && room->n_bytes == MF_HUB_UNIT_BYTES &&
        write_all(p->direct_fd, room->data, room->n_bytes, position) == 0)
        return 0;
    return write_all(p->fd, room->data, room->n_bytes, position);
}

static void *run(void *user)
{
    mf_hub_rooms *r = user;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (!r->first_waiting && !r->is_over)
            pthread_cond_wait(&r->handed_over, &r->lock);
        mf_hub_room *room = remove_first(&r->first_waiting);
        if (!room)
            break;
        pthread_mutex_unlock(&r->lock);
        const int failure = write_room(room);
        pthread_mutex_lock(&r->lock);
        room->failure = failure;
        room->state = MF_HUB_ROOM_WRITTEN;
        append(&r->first_written, &r->last_written, room);
        pthread_cond_signal(&r->written);
        mf_hub_client_wake(r->client);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* ---- beginning and end ---- */

bool mf_hub_rooms_start(mf_hub_client *client, uint32_t n_fillers, uint32_t n_more,
                        mf_hub_rooms **out, mf_error *error)
{
    assert(n_fillers > 0 && n_more > 0);
    const uint32_t n_rooms = n_fillers + n_more;
    const size_t n_bytes = n_rooms * (size_t)MF_HUB_UNIT_BYTES;
    mf_hub_rooms *r = calloc(1, sizeof *r + n_rooms * sizeof *r->rooms);
    void *memory =
        r ? mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
          : MAP_FAILED;
    if (memory == MAP_FAILED) {
        free(r);
        return mf_hub_fail(error, MF_ERR_NO_MEMORY, "no memory for what comes");
    }
    r->client = client;
    r->memory = memory;
    r->n_rooms = n_rooms;
    r->n_fillers = n_fillers;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->handed_over, NULL);
    pthread_cond_init(&r->written, NULL);
    for (uint32_t i = n_rooms; i-- > 0;) {
        r->rooms[i].data = r->memory + i * (size_t)MF_HUB_UNIT_BYTES;
        make_free(r, &r->rooms[i]);
    }
    int failed = 0;
    while (r->n_threads < N_WRITERS && failed == 0) {
        failed = pthread_create(&r->threads[r->n_threads], NULL, run, r);
        r->n_threads += failed == 0;
    }
    if (failed != 0) {
        mf_hub_rooms_free(&r);
        return mf_hub_fail_os(error, failed, "cannot start a thread");
    }
    *out = r;
    return true;
}

void mf_hub_rooms_finish(mf_hub_rooms *r)
{
    pthread_mutex_lock(&r->lock);
    r->is_over = true;
    pthread_cond_broadcast(&r->handed_over);
    pthread_mutex_unlock(&r->lock);
    while (r->n_threads > 0)
        pthread_join(r->threads[--r->n_threads], NULL);
}

void mf_hub_rooms_free(mf_hub_rooms **rooms)
{
    mf_hub_rooms *r = *rooms;
    *rooms = NULL;
    if (!r)
        return;
    mf_hub_rooms_finish(r);
    pthread_cond_destroy(&r->written);
    pthread_cond_destroy(&r->handed_over);
    pthread_mutex_destroy(&r->lock);
    munmap(r->memory, r->n_rooms * (size_t)MF_HUB_UNIT_BYTES);
    free(r);
}

/* ---- for the fetching thread ---- */

/* Is a wanted less soon by who hashes than b? What it has passed is not wanted at all. */
static bool is_later(const mf_hub_rooms *r, const mf_hub_room *a, const mf_hub_room *b)
{
    const bool a_same = a->item == r->hashed_item, b_same = b->item == r->hashed_item;
    const bool a_passed = a_same && a->unit <= r->hashed_unit;
    const bool b_passed = b_same && b->unit <= r->hashed_unit;
    if (a_passed != b_passed)
        return a_passed;
    if (a->item != b->item)
        return a_same || b_same ? b_same : a->item > b->item;
    return a->unit > b->unit;
}

static mf_hub_room *least_wanted(mf_hub_rooms *r)
{
    mf_hub_room *best = NULL;
    for (uint32_t i = 0; i < r->n_rooms; i++)
        if (r->rooms[i].state == MF_HUB_ROOM_KEPT && (!best || is_later(r, &r->rooms[i], best)))
            best = &r->rooms[i];
    return best;
}

mf_hub_room *mf_hub_rooms_take(mf_hub_rooms *r)
{
    mf_hub_room *room;
    pthread_mutex_lock(&r->lock);
    assert(r->n_filling < r->n_fillers); /* else all might be filling, and none would come */
    for (;;) {
        room = remove_first(&r->free);
        if (!room)
            room = least_wanted(r);
        if (room || r->first_written)
            break;
        pthread_cond_wait(&r->written, &r->lock);
    }
    if (room) {
        room->state = MF_HUB_ROOM_FILLING;
        r->n_filling++;
    }
    pthread_mutex_unlock(&r->lock);
    return room;
}

void mf_hub_rooms_drop(mf_hub_rooms *r, mf_hub_room *room)
{
    pthread_mutex_lock(&r->lock);
    r->n_filling--;
    make_free(r, room);
    pthread_mutex_unlock(&r->lock);
}

void mf_hub_rooms_write(mf_hub_rooms *r, mf_hub_room *room)
{
    pthread_mutex_lock(&r->lock);
    r->n_filling--;
    room->state = MF_HUB_ROOM_WAITING;
    append(&r->first_waiting, &r->last_waiting, room);
    pthread_cond_signal(&r->handed_over);
    pthread_mutex_unlock(&r->lock);
}

bool mf_hub_rooms_written(mf_hub_rooms *r, mf_hub_room *out)
{
    pthread_mutex_lock(&r->lock);
    mf_hub_room *room = remove_first(&r->first_written);
    if (room) {
        *out = *room;
        room->state = MF_HUB_ROOM_KEPT;
        if (room->failure != 0)
            make_free(r, room);
    }
    pthread_mutex_unlock(&r->lock);
    return room != NULL;
}

static bool is_on_its_way(const mf_hub_rooms *r, const mf_hub_item *item)
{
    for (uint32_t i = 0; i < r->n_rooms; i++)
        if (r->rooms[i].state == MF_HUB_ROOM_WAITING && r->rooms[i].item == item)
            return true;
    return false;
}

void mf_hub_rooms_forget(mf_hub_rooms *r, const mf_hub_item *item)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    while (is_on_its_way(r, item))
        pthread_cond_wait(&r->written, &r->lock);
    for (uint32_t i = 0; i < r->n_rooms; i++)
        if (r->rooms[i].state == MF_HUB_ROOM_KEPT && r->rooms[i].item == item)
            make_free(r, &r->rooms[i]);
    pthread_mutex_unlock(&r->lock);
}

/* ---- for the hashing thread ---- */

mf_hub_room *mf_hub_rooms_lend(mf_hub_rooms *r, const mf_hub_item *item, uint32_t epoch,
                               uint64_t unit)
{
    mf_hub_room *found = NULL;
    pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < r->n_rooms && !found; i++) {
        mf_hub_room *room = &r->rooms[i];
        if (room->state == MF_HUB_ROOM_KEPT && room->item == item && room->epoch == epoch &&
            room->unit == unit)
            found = room;
    }
    if (found)
        found->state = MF_HUB_ROOM_LENT;
    r->hashed_item = item;
    r->hashed_unit = unit;
    pthread_mutex_unlock(&r->lock);
    return found;
}

void mf_hub_rooms_return(mf_hub_rooms *r, mf_hub_room *room)
{
    pthread_mutex_lock(&r->lock);
    make_free(r, room);
    pthread_cond_signal(&r->written);
    pthread_mutex_unlock(&r->lock);
}
