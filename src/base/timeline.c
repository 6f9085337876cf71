/* SPDX-License-Identifier: MIT */
/* Events are written as text into a buffer, which goes to the file when it is full. The list is
 * closed only at the end: readers of this format do without. */
#include "base/timeline.h"

#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)64 << 10)
#define EVENT_BYTES_MOST ((size_t)768)
#define EVENTS_MOST 4000000u
#define THREADS_NAMED 64u
#define DRIVES_NAMED 16u

struct mf_timeline {
    mf_allocator allocator;
    char *path;
    size_t path_bytes;
    pthread_mutex_t lock; /* of what follows but `work` */
    int fd;
    int failure; /* errno of the first write that failed; 0: none */
    uint64_t n_events, n_left_out, n_flights;
    uint64_t threads_named, drives_named; /* by bit */
    size_t n;
    _Atomic(const char *) work;
    char buffer[BUFFER_BYTES];
};

static void flush(mf_timeline *t)
{
    if (t->failure == 0 && mf_write_whole(t->fd, t->buffer, t->n) < t->n)
        t->failure = errno;
    t->n = 0;
}

/* Room for one more event's text. */
static char *room(mf_timeline *t)
{
    if (t->n + EVENT_BYTES_MOST > BUFFER_BYTES)
        flush(t);
    return t->buffer + t->n;
}

static void put(mf_timeline *t, int n)
{
    if (n > 0 && (size_t)n < EVENT_BYTES_MOST)
        t->n += (size_t)n;
}

/* Viewers show a name instead of a number. */
static void name_track(mf_timeline *t, mf_timeline_track track)
{
    const bool is_thread = track.group == MF_TIMELINE_THREADS;
    uint64_t *named = is_thread ? &t->threads_named : &t->drives_named;
    if (track.number >= (is_thread ? THREADS_NAMED : DRIVES_NAMED) ||
        (*named >> track.number & 1) != 0)
        return;
    *named |= 1ull << track.number;
    char name[32];
    if (track.number == 0)
        snprintf(name, sizeof name, "%s", is_thread ? "evaluating" : "experts on their way");
    else if (is_thread)
        snprintf(name, sizeof name, "thread %u", track.number);
    else
        snprintf(name, sizeof name, "reads of drive %u", track.number - MF_TIMELINE_FIRST_DRIVE);
    put(t, snprintf(room(t), EVENT_BYTES_MOST,
                    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%u,"
                    "\"args\":{\"name\":\"%s\"}},\n",
                    (int)track.group, track.number, name));
}

/* {"layer":3,"bytes":4096} */
static void write_notes(char *out, size_t size, const mf_timeline_note *notes)
{
    size_t n = (size_t)snprintf(out, size, "{");
    for (int i = 0; i < MF_TIMELINE_NOTES && notes[i].name != NULL && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s\"%s\":%" PRIu64, i > 0 ? "," : "",
                              notes[i].name, notes[i].value);
    if (n < size)
        snprintf(out + n, size - n, "}");
}

/* Whether it is told; the lock is held then. */
static bool begin_event(mf_timeline *t, mf_timeline_track track)
{
    pthread_mutex_lock(&t->lock);
    if (t->n_events < EVENTS_MOST && t->failure == 0) {
        t->n_events++;
        name_track(t, track);
        return true;
    }
    t->n_left_out++;
    pthread_mutex_unlock(&t->lock);
    return false;
}

/* Microseconds with their thousandths, as the format has them. */
#define US "%" PRIu64 ".%03u"
#define US_OF(ns) (ns) / 1000, (unsigned)((ns) % 1000)

void mf_timeline_span(mf_timeline *t, mf_timeline_track track, const char *name, uint64_t from_ns,
                      uint64_t to_ns, const mf_timeline_note notes[MF_TIMELINE_NOTES])
{
    char args[256];
    const uint64_t took = to_ns > from_ns ? to_ns - from_ns : 0;
    write_notes(args, sizeof args, notes);
    if (!begin_event(t, track))
        return;
    put(t, snprintf(room(t), EVENT_BYTES_MOST,
                    "{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%u,\"ts\":" US ",\"dur\":" US
                    ",\"args\":%s},\n",
                    name, (int)track.group, track.number, US_OF(from_ns), US_OF(took), args));
    pthread_mutex_unlock(&t->lock);
}

void mf_timeline_flight(mf_timeline *t, mf_timeline_track track, const char *name, uint64_t from_ns,
                        uint64_t to_ns, const mf_timeline_note notes[MF_TIMELINE_NOTES])
{
    char args[256];
    write_notes(args, sizeof args, notes);
    if (!begin_event(t, track))
        return;
    const uint64_t id = ++t->n_flights;
    put(t, snprintf(room(t), EVENT_BYTES_MOST,
                    "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"b\",\"id\":%" PRIu64
                    ",\"pid\":%d,\"tid\":%u,\"ts\":" US ",\"args\":%s},\n"
                    "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"e\",\"id\":%" PRIu64
                    ",\"pid\":%d,\"tid\":%u,\"ts\":" US "},\n",
                    name, name, id, (int)track.group, track.number, US_OF(from_ns), args, name,
                    name, id, (int)track.group, track.number, US_OF(to_ns)));
    pthread_mutex_unlock(&t->lock);
}

void mf_timeline_set_work(mf_timeline *t, const char *name)
{
    atomic_store_explicit(&t->work, name, memory_order_relaxed);
}

const char *mf_timeline_work(mf_timeline *t)
{
    const char *name = atomic_load_explicit(&t->work, memory_order_relaxed);
    return name != NULL ? name : "tasks";
}

static void release(mf_timeline *t)
{
    const mf_allocator a = t->allocator;
    mf_free(&a, t->path, t->path_bytes);
    mf_free(&a, t, sizeof *t);
}

static mf_timeline *make(const mf_allocator *a, const char *path)
{
    mf_timeline *t = mf_alloc_zeroed(a, sizeof *t);
    if (t == NULL)
        return NULL;
    t->allocator = *a;
    t->path_bytes = strlen(path) + 1;
    t->path = mf_alloc(a, t->path_bytes);
    if (t->path != NULL) {
        memcpy(t->path, path, t->path_bytes);
        return t;
    }
    release(t);
    return NULL;
}

mf_status mf_timeline_open(const mf_allocator *allocator, const char *path, mf_timeline **out,
                           mf_error *error)
{
    const mf_allocator a = mf_allocator_or_default(allocator);
    mf_timeline *t = make(&a, path);
    if (t == NULL)
        return mf_fail_memory(error, sizeof *t, "a timeline");
    t->fd = mf_open_apart(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (t->fd < 0) {
        const int why = errno;
        release(t);
        return mf_fail_os(error, MF_ERR_IO, why, "%s: cannot be made", path);
    }
    pthread_mutex_init(&t->lock, NULL); /* cannot fail on Linux */
    put(t, snprintf(room(t), EVENT_BYTES_MOST,
                    "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":"
                    "\"moeflux: threads\"}},\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,"
                    "\"args\":{\"name\":\"moeflux: drives\"}},\n",
                    MF_TIMELINE_THREADS, MF_TIMELINE_DRIVES));
    *out = t;
    return MF_OK;
}

mf_status mf_timeline_close(mf_timeline **timeline, mf_error *error)
{
    mf_timeline *t = *timeline;
    if (t == NULL)
        return MF_OK;
    *timeline = NULL;
    put(t, snprintf(room(t), EVENT_BYTES_MOST,
                    "{\"name\":\"end\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"events\":%" PRIu64
                    ",\"left out\":%" PRIu64 "}}\n]\n",
                    MF_TIMELINE_THREADS, t->n_events, t->n_left_out));
    flush(t);
    if (close(t->fd) != 0 && t->failure == 0)
        t->failure = errno;
    mf_status status = MF_OK;
    if (t->failure != 0)
        status = mf_fail_os(error, MF_ERR_IO, t->failure, "%s: writing a timeline", t->path);
    (void)pthread_mutex_destroy(&t->lock);
    release(t);
    return status;
}
