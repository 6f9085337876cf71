/* SPDX-License-Identifier: MIT */
/*
 * Which range of which file is asked for next, and where its bytes go. Files come in order, each in
 * runs of units that are missing: short ones, as far as that costs no time, so that the hashing
 * thread follows close behind, finds what came in memory, and has little left to do at the end.
 */
#include "hub_download.h"
#include "hub_ahead.h"
#include "hub_fail.h"
#include "hub_rooms.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAST_UNITS = 4, MOST_UNITS = 64, MAX_CHANGES = 2, MAX_WRONG = 2 };

/* A request lasts so many times as long as its answer is waited for: what it costs to begin
 * another. */
#define TIMES_THE_WAIT 20.0
/* Units in memory, beside one for each request: where somebody reads meanwhile, who needs the
 * memory, and where not. */
enum { FEW_ROOMS = 4, MANY_ROOMS = 56 };

/* Of a unit on its way. */
enum { CLAIMED_BY_NOBODY, CLAIMED_BY_REQUEST, CLAIMED_BY_DRIVE };

typedef struct download {
    mf_hub_client *client;
    const mf_hub_options *options;
    const char *prefix, *blobs_dir;
    mf_hub_item *items;
    size_t n_items, n_first; /* all before the first are checked */
    size_t n_checked;
    uint64_t n_bytes_came;
    mf_hub_verifier verifier;
    mf_hub_rooms *rooms;
    double wait_seconds, bytes_per_second; /* the shortest for an answer; of a connection */
    bool is_failed;
    mf_error error;
} download;

/* ---- one file ---- */

static bool open_item(download *d, mf_hub_item *item)
{
    if (item->is_open)
        return true;
    if (!mf_hub_partial_open(d->blobs_dir, item->file, &item->part, &d->error)) {
        d->is_failed = true;
        return false;
    }
    item->claimed = calloc(1, (size_t)item->part.n_units + 1);
    if (!item->claimed) {
        mf_hub_partial_close(&item->part);
        d->is_failed = true;
        return mf_hub_fail(&d->error, MF_ERR_NO_MEMORY, "%s: no memory", item->file->path);
    }
    if (!d->options->ahead) /* who reads meanwhile finds it in the page cache */
        mf_hub_partial_go_direct(&item->part);
    item->is_open = true;
    return true;
}

static void close_item(download *d, mf_hub_item *item)
{
    if (item->is_open) {
        mf_hub_rooms_forget(d->rooms, item);
        mf_hub_partial_close(&item->part);
    }
    free(item->claimed);
    free(item->location);
    item->claimed = NULL;
    item->location = NULL;
    item->is_open = false;
}

static void tell_front(download *d, mf_hub_item *item)
{
    uint64_t front = item->front_units;
    while (front < item->part.n_units && mf_hub_partial_has(&item->part, front))
        front++;
    if (front != item->front_units || !item->is_begun)
        mf_hub_verifier_advance(&d->verifier, item, front);
}

/* All of it comes again; requests under way notice by the epoch. */
static void restart_item(download *d, mf_hub_item *item)
{
    if (!mf_hub_ahead_may_restart(d->options->ahead, item) && !d->is_failed) {
        d->is_failed = true;
        mf_hub_fail(&d->error, MF_ERR_FORMAT,
                    "%s: its content was used while it came, and is not what the hub listed",
                    item->file->path);
    }
    mf_hub_rooms_forget(d->rooms, item);
    mf_hub_ahead_lock(d->options->ahead);
    mf_hub_partial_reset(&item->part);
    mf_hub_ahead_unlock(d->options->ahead);
    memset(item->claimed, 0, (size_t)item->part.n_units);
    item->first_free = 0;
    item->etag[0] = '\0';
    free(item->location);
    item->location = NULL;
    mf_hub_verifier_restart(&d->verifier, item);
}

/* ---- requests ---- */

static bool is_free(const mf_hub_item *item, uint64_t unit)
{
    return !item->claimed[unit] && !mf_hub_partial_has(&item->part, unit);
}

/* Short ones where somebody waits, so that a connection is soon free for what is waited for. */
static uint64_t most_units(const download *d, const mf_hub_item *item)
{
    const double n =
        TIMES_THE_WAIT * d->wait_seconds * d->bytes_per_second / (double)MF_HUB_UNIT_BYTES;
    const uint64_t n_share = item->part.n_units / (2 * d->options->n_connections) + 1;
    const uint64_t n_most = n_share < MOST_UNITS ? n_share : MOST_UNITS;
    if (item->has_no_ranges)
        return item->part.n_units;
    if (d->options->ahead || n < LEAST_UNITS || n_most < LEAST_UNITS)
        return LEAST_UNITS;
    return n < (double)n_most ? (uint64_t)n : n_most;
}

/* Claims the run of free units from `unit` on, which is free. */
static void claim_run(const download *d, mf_hub_item *item, uint64_t unit, uint64_t end,
                      mf_hub_request *r)
{
    const uint64_t n_bytes = item->part.n_bytes, n_most = most_units(d, item), first = unit;
    r->begin = item->has_no_ranges ? 0 : unit * MF_HUB_UNIT_BYTES;
    while (unit < end && unit - first < n_most && is_free(item, unit))
        item->claimed[unit++] = CLAIMED_BY_REQUEST;
    r->end = unit * MF_HUB_UNIT_BYTES < n_bytes ? unit * MF_HUB_UNIT_BYTES : n_bytes;
    if (item->has_no_ranges)
        r->end = MF_HUB_ALL;
}

/* Claims the next run of missing units; false: there is none. */
static bool claim(const download *d, mf_hub_item *item, mf_hub_request *r)
{
    const uint64_t n_units = item->part.n_units;
    while (item->first_free < n_units && !is_free(item, item->first_free))
        item->first_free++;
    if (item->first_free == n_units || (item->has_no_ranges && item->n_active > 0))
        return false;
    claim_run(d, item, item->first_free, n_units, r);
    return true;
}

/* What is waited for; false: nothing that is not on its way. */
static bool claim_wanted(const download *d, mf_hub_item **item, mf_hub_request *r)
{
    uint64_t first = 0, end = 0;
    mf_hub_ahead_lock(d->options->ahead);
    const bool is_any = mf_hub_ahead_wanted(d->options->ahead, is_free, item, &first, &end);
    mf_hub_ahead_unlock(d->options->ahead);
    if (!is_any)
        return false;
    if ((*item)->has_no_ranges)
        return claim(d, *item, r);
    claim_run(d, *item, first, end, r);
    return true;
}

static void release(mf_hub_item *item, const mf_hub_request *r)
{
    const uint64_t end = r->end < item->part.n_bytes ? r->end : item->part.n_bytes;
    for (uint64_t unit = r->begin / MF_HUB_UNIT_BYTES; unit < mf_hub_units(end); unit++)
        if (item->claimed[unit] == CLAIMED_BY_REQUEST)
            item->claimed[unit] = CLAIMED_BY_NOBODY;
    if (r->begin / MF_HUB_UNIT_BYTES < item->first_free)
        item->first_free = r->begin / MF_HUB_UNIT_BYTES;
}

static bool refuse(mf_hub_request *r, mf_hub_outcome outcome)
{
    r->outcome = outcome;
    return false;
}

/* Is the answer still of the file that the first one was of? */
static bool is_same_file(download *d, mf_hub_item *item, mf_hub_request *r)
{
    if (strlen(r->linked_etag) == 64 && strlen(item->file->blob) == 64 &&
        strcmp(r->linked_etag, item->file->blob) != 0) {
        mf_hub_fail(&r->error, MF_ERR_FORMAT,
                    "%s: the hub listed it with another content than it sends", item->file->path);
        return refuse(r, MF_HUB_REFUSED);
    }
    if (item->etag[0] == '\0')
        memcpy(item->etag, r->etag, sizeof item->etag);
    if (r->etag[0] == '\0' || strcmp(r->etag, item->etag) == 0 || item->n_changes == MAX_CHANGES)
        return true;
    if (item->part.n_units_done == item->part.n_units)
        return refuse(r, MF_HUB_STALE);
    item->n_changes++;
    restart_item(d, item);
    mf_hub_fail(&r->error, MF_ERR_IO, "%s: it changed while it was fetched", item->file->path);
    return refuse(r, MF_HUB_AGAIN);
}

/* The first bytes of an answer. */
static bool accept_answer(download *d, mf_hub_item *item, mf_hub_request *r)
{
    if (!is_same_file(d, item, r))
        return false;
    if (!r->is_whole)
        return true;
    /* a server without ranges: one request for all, and no other beside it */
    item->has_no_ranges = true;
    return item->n_active == 1 || refuse(r, MF_HUB_STALE);
}

/* Takes note of what is on the drive since. */
static void take_written(download *d)
{
    mf_hub_room room;
    while (mf_hub_rooms_written(d->rooms, &room)) {
        mf_hub_item *item = room.item;
        if (room.failure != 0 && !d->is_failed) {
            d->is_failed = true;
            mf_hub_fail_os(&d->error, room.failure, "%s: cannot write", item->part.path);
        }
        if (room.failure != 0 || room.epoch != item->epoch)
            continue;
        mf_hub_ahead_lock(d->options->ahead);
        mf_hub_partial_mark(&item->part, room.unit);
        mf_hub_ahead_unlock(d->options->ahead);
        tell_front(d, item);
    }
}

static mf_hub_room *take_room(download *d)
{
    for (;;) {
        mf_hub_room *room = mf_hub_rooms_take(d->rooms);
        if (room)
            return room;
        take_written(d);
    }
}

static void drop_room(download *d, mf_hub_request *r)
{
    if (r->room)
        mf_hub_rooms_drop(d->rooms, r->room);
    r->room = NULL;
}

/* A unit is there. One that the drive has already, of a server that sends all of the file, stays as
 * it is. */
static void hand_over(download *d, mf_hub_item *item, mf_hub_request *r, uint64_t unit,
                      size_t n_bytes)
{
    mf_hub_room *room = r->room;
    if (item->claimed[unit] == CLAIMED_BY_DRIVE || mf_hub_partial_has(&item->part, unit)) {
        drop_room(d, r);
        return;
    }
    r->room = NULL;
    room->item = item;
    room->epoch = item->epoch;
    room->unit = unit;
    room->n_bytes = n_bytes;
    item->claimed[unit] = CLAIMED_BY_DRIVE;
    mf_hub_rooms_write(d->rooms, room);
    mf_hub_client_gained(d->client);
}

/* Bytes of a file from a place on that is where a unit begins, or where the last ones ended. */
static void fill_units(download *d, mf_hub_item *item, mf_hub_request *r, const char *data,
                       size_t n_bytes)
{
    for (uint64_t at = r->position; n_bytes > 0;) {
        const uint64_t unit = at / MF_HUB_UNIT_BYTES, in_unit = at % MF_HUB_UNIT_BYTES;
        const uint64_t n_left = item->part.n_bytes - unit * MF_HUB_UNIT_BYTES;
        const uint64_t n_unit = n_left < MF_HUB_UNIT_BYTES ? n_left : MF_HUB_UNIT_BYTES;
        const size_t n = n_unit - in_unit < n_bytes ? (size_t)(n_unit - in_unit) : n_bytes;
        if (!r->room)
            r->room = take_room(d);
        memcpy(r->room->data + in_unit, data, n);
        if (in_unit + n == n_unit)
            hand_over(d, item, r, unit, (size_t)n_unit);
        data += n;
        at += n;
        n_bytes -= n;
    }
}

static bool take(mf_hub_request *r, const char *data, size_t n_bytes)
{
    mf_hub_item *item = r->owner;
    download *d = r->context;
    if (item->epoch != r->tag)
        return refuse(r, MF_HUB_STALE);
    const bool is_first = r->position == (r->is_whole ? 0 : r->begin);
    if (is_first && !accept_answer(d, item, r))
        return false;
    d->n_bytes_came += n_bytes;
    fill_units(d, item, r, data, n_bytes);
    return true;
}

/* The rest of a request for what of the item was claimed. */
static bool fill_request(download *d, mf_hub_item *item, mf_hub_request *r)
{
    item->n_active++;
    r->n_file_bytes = item->file->n_bytes;
    r->take = take;
    r->owner = item;
    r->context = d;
    r->tag = item->epoch;
    if (item->location) {
        snprintf(r->url, sizeof r->url, "%s", item->location);
        r->was_elsewhere = true;
        return true;
    }
    if (mf_hub_url(d->client, d->prefix, item->file->path, r->url))
        return true;
    d->is_failed = true;
    return mf_hub_fail(&d->error, MF_ERR_ARGUMENT, "%s: its URL is too long", item->file->path);
}

static bool next(void *user, mf_hub_request *r)
{
    download *d = user;
    mf_hub_item *wanted = NULL;
    if (!d->is_failed && claim_wanted(d, &wanted, r))
        return fill_request(d, wanted, r);
    for (size_t i = d->n_first; i < d->n_items && !d->is_failed; i++) {
        mf_hub_item *item = &d->items[i];
        if (item->file->is_held)
            continue;
        if (!open_item(d, item))
            return false;
        if (!item->is_begun)
            tell_front(d, item);
        if (claim(d, item, r))
            return fill_request(d, item, r);
    }
    return false;
}

/* Redirections are asked for once, and again after a failure: they run out. */
static void keep_location(mf_hub_item *item, const mf_hub_request *r)
{
    if (r->outcome == MF_HUB_AGAIN) {
        free(item->location);
        item->location = NULL;
    } else if (r->outcome == MF_HUB_DONE && r->was_elsewhere && !item->location) {
        item->location = strdup(r->url);
    }
}

/* How long the answer was waited for, and how fast it came then. */
static void keep_times(download *d, const mf_hub_request *r)
{
    curl_off_t asked_us = 0, began_us = 0, ended_us = 0;
    curl_easy_getinfo(r->easy, CURLINFO_PRETRANSFER_TIME_T, &asked_us);
    curl_easy_getinfo(r->easy, CURLINFO_STARTTRANSFER_TIME_T, &began_us);
    curl_easy_getinfo(r->easy, CURLINFO_TOTAL_TIME_T, &ended_us);
    if (r->outcome != MF_HUB_DONE || r->is_whole || began_us <= asked_us || ended_us <= began_us)
        return;
    const double wait = 1e-6 * (double)(began_us - asked_us);
    const double rate = 1e6 * (double)(r->end - r->begin) / (double)(ended_us - began_us);
    const bool is_first = d->bytes_per_second <= 0;
    if (is_first || wait < d->wait_seconds)
        d->wait_seconds = wait;
    d->bytes_per_second +=
        is_first ? rate : (rate - d->bytes_per_second) / (2 * d->options->n_connections);
}

static void done(void *user, mf_hub_request *r)
{
    mf_hub_item *item = r->owner;
    download *d = user;
    item->n_active--;
    drop_room(d, r);
    if (item->epoch == r->tag)
        release(item, r);
    keep_location(item, r);
    keep_times(d, r);
}

/* ---- all of them ---- */

static void fail_item(download *d, const mf_hub_item *item)
{
    d->is_failed = true;
    mf_hub_fail(&d->error, MF_ERR_FORMAT,
                "%s: wrong content, twice: its hash is %s, the hub listed %s", item->file->path,
                item->digits, item->file->blob);
}

static void take_verdict(download *d, mf_hub_item *item)
{
    switch (mf_hub_verifier_verdict(&d->verifier, item)) {
    case MF_HUB_CHECKED:
        mf_hub_ahead_whole(d->options->ahead, item);
        item->file->is_held = true;
        d->n_checked++;
        break;
    case MF_HUB_WRONG:
        if (++item->n_wrong == MAX_WRONG)
            fail_item(d, item);
        restart_item(d, item);
        break;
    case MF_HUB_FAILED:
        d->is_failed = true;
        d->error = item->error;
        break;
    default:
        break;
    }
}

static bool is_over(void *user)
{
    download *d = user;
    take_written(d);
    /* they are checked in order */
    while (d->n_first < d->n_items && !d->is_failed) {
        mf_hub_item *item = &d->items[d->n_first];
        if (!item->file->is_held)
            take_verdict(d, item);
        if (!item->file->is_held || item->n_active > 0)
            break;
        close_item(d, item);
        d->n_first++;
    }
    return d->is_failed || d->n_first == d->n_items;
}

static uint64_t bytes_there(const mf_hub_item *item)
{
    uint64_t n = item->n_known_bytes;
    if (item->file->is_held)
        n = item->file->n_bytes;
    else if (item->is_open)
        n = item->part.n_units_done * MF_HUB_UNIT_BYTES;
    return n < item->file->n_bytes ? n : item->file->n_bytes;
}

static bool tick(void *user, mf_error *error)
{
    download *d = user;
    mf_hub_progress progress = {.n_files = d->n_items, .n_files_done = d->n_checked};
    progress.n_bytes_came = d->n_bytes_came;
    for (size_t i = 0; i < d->n_items; i++) {
        progress.n_bytes += d->items[i].file->n_bytes;
        progress.n_bytes_done += bytes_there(&d->items[i]);
    }
    progress.waits_seconds = mf_hub_client_waits(d->client, &progress.why);
    if (!d->options->tick || d->options->tick(d->options->user, &progress))
        return true;
    return mf_hub_fail(error, MF_ERR_CANCELLED, "interrupted; the same command goes on from here");
}

/* Where somebody reads meanwhile all files are there from the beginning, as long as they will be.
 */
static bool open_ahead(download *d, mf_error *error)
{
    if (!d->options->ahead)
        return true;
    for (size_t i = 0; i < d->n_items; i++) {
        if (open_item(d, &d->items[i]))
            continue;
        *error = d->error;
        return false;
    }
    return mf_hub_ahead_open(d->options->ahead, d->blobs_dir, d->items, d->n_items, error);
}

bool mf_hub_download(mf_hub_client *client, const mf_hub_options *options, const char *prefix,
                     const char *blobs_dir, mf_hub_file *const *files, size_t n_files,
                     mf_error *error)
{
    download d = {.client = client, .options = options, .prefix = prefix, .blobs_dir = blobs_dir};
    const mf_hub_work work = {next, done, is_over, tick, &d};
    if (n_files == 0)
        return open_ahead(&d, error);
    d.n_items = n_files;
    d.items = calloc(n_files, sizeof *d.items);
    if (!d.items)
        return mf_hub_fail(error, MF_ERR_NO_MEMORY, "no memory for %zu files", n_files);
    for (size_t i = 0; i < n_files; i++) {
        d.items[i].file = files[i];
        d.items[i].part.fd = d.items[i].part.direct_fd = -1;
        d.items[i].n_known_bytes = mf_hub_partial_bytes(blobs_dir, files[i]);
    }
    const uint32_t n_more = options->ahead ? FEW_ROOMS : MANY_ROOMS; /* a request fills one */
    bool good =
        open_ahead(&d, error) &&
        mf_hub_rooms_start(client, options->n_connections, n_more, &d.rooms, error) &&
        mf_hub_verifier_start(&d.verifier, d.items, n_files, blobs_dir, client, d.rooms, error);
    if (good) {
        good = mf_hub_client_run(client, &work, error);
        mf_hub_rooms_finish(d.rooms);
        take_written(&d); /* what came is not fetched again */
        mf_hub_verifier_stop(&d.verifier);
        if (good && d.is_failed) {
            good = false;
            if (error)
                *error = d.error;
        }
        mf_error too_late = {0}; /* all is there: nothing can be interrupted any more */
        if (good)
            (void)tick(&d, &too_late);
    }
    mf_hub_ahead_close(options->ahead);
    for (size_t i = 0; i < n_files; i++)
        close_item(&d, &d.items[i]);
    mf_hub_rooms_free(&d.rooms);
    free(d.items);
    return good;
}
