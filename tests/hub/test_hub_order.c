/* SPDX-License-Identifier: MIT */
/*
 * What is waited for comes first: test_hub_order ORG/NAME FILE LOG N OTHER, by
 * hub_order.sh, with N connections; OTHER is another run's ORG/NAME. The hub holds
 * all answers about FILE back and lets single ones go, so that it is known what was waited for when
 * the next range was asked for. LOG is the hub's, FILE the published one.
 */
#include "hub_ahead.h"
#include "test.h"

#include <fcntl.h>
#include <unistd.h>

#define UNIT MF_HUB_UNIT_BYTES
#define MAX_RANGES 256

typedef struct range {
    uint64_t begin, end;
} range;

/* What the hub holds back, and the log is read for: /store/ORG/NAME/. No other run has it, for a
 * request that an earlier run gave up may reach the hub after this one has begun. */
static char gate[256];

/* ---- the hub ---- */

static size_t drop_body(char *data, size_t size, size_t n, void *user)
{
    (void)data;
    (void)user;
    return size * n;
}

static void tell_hub(const char *what)
{
    char url[512];
    CURL *easy = curl_easy_init();
    REQUIRE(easy != NULL);
    snprintf(url, sizeof url, "%s/control?%s", getenv("HF_ENDPOINT"), what);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, drop_body);
    REQUIRE(curl_easy_perform(easy) == CURLE_OK);
    curl_easy_cleanup(easy);
}

/* A request that another run has left behind, and which reaches the hub now. */
static void come_late(const char *other)
{
    char url[512];
    CURL *easy = curl_easy_init();
    REQUIRE(easy != NULL);
    snprintf(url, sizeof url, "%s/%s/resolve/main/model.safetensors", getenv("HF_ENDPOINT"), other);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(easy, CURLOPT_RANGE, "16777216-20971519");
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, drop_body);
    REQUIRE(curl_easy_perform(easy) == CURLE_OK);
    curl_easy_cleanup(easy);
}

/* The ranges that the store was asked for, in that order, each once: what is asked for again failed
 * before. */
static size_t read_ranges(const char *log, range ranges[MAX_RANGES])
{
    char line[1024];
    size_t n = 0;
    FILE *in = fopen(log, "re");
    REQUIRE(in != NULL);
    while (fgets(line, sizeof line, in) && n < MAX_RANGES) {
        const char *text = strstr(line, " bytes=");
        range r;
        if (strncmp(line, "store ", 6) != 0 || !strstr(line, gate) || !text ||
            !strchr(line, '\n') ||
            sscanf(text, " bytes=%" SCNu64 "-%" SCNu64, &r.begin, &r.end) != 2)
            continue;
        r.end++;
        size_t same = 0;
        while (same < n && (ranges[same].begin != r.begin || ranges[same].end != r.end))
            same++;
        if (same == n)
            ranges[n++] = r;
    }
    fclose(in);
    return n;
}

/* Until the store has been asked for n of them. */
static void wait_for_ranges(const char *log, size_t n, range ranges[MAX_RANGES])
{
    while (read_ranges(log, ranges) < n)
        usleep(5000);
}

/* ---- who reads ---- */

typedef struct reader {
    mf_hub_ahead *ahead;
    int fd;
    range wanted;
    int result;
    pthread_t thread;
} reader;

static void *read_there(void *user)
{
    reader *r = user;
    r->result =
        mf_hub_ahead_await(r->ahead, r->fd, r->wanted.begin, r->wanted.end - r->wanted.begin);
    return NULL;
}

static uint64_t first_sought;

static bool is_sought(const mf_hub_item *item, uint64_t unit)
{
    (void)item;
    return unit == first_sought;
}

/* Until it is known that somebody waits for this unit. */
static void wait_for_need(mf_hub_ahead *ahead, uint64_t unit)
{
    bool is_known = false;
    while (!is_known) {
        mf_hub_item *item;
        uint64_t first, end;
        usleep(1000);
        mf_hub_ahead_lock(ahead);
        first_sought = unit;
        is_known = mf_hub_ahead_wanted(ahead, is_sought, &item, &first, &end);
        mf_hub_ahead_unlock(ahead);
    }
}

static void begin_reading(reader *r)
{
    REQUIRE(pthread_create(&r->thread, NULL, read_there, r) == 0);
    wait_for_need(r->ahead, r->wanted.begin / UNIT);
}

/* It has come, and is what was published. */
static void end_reading(reader *r, const char *published)
{
    unsigned char got[4096], expected[4096];
    const size_t n = (size_t)(r->wanted.end - r->wanted.begin);
    const int fd = open(published, O_RDONLY | O_CLOEXEC);
    pthread_join(r->thread, NULL);
    CHECK(r->result == 0);
    REQUIRE(n <= sizeof got && fd >= 0);
    CHECK(pread(r->fd, got, n, (off_t)r->wanted.begin) == (ssize_t)n);
    CHECK(pread(fd, expected, n, (off_t)r->wanted.begin) == (ssize_t)n);
    CHECK(memcmp(got, expected, n) == 0);
    close(fd);
}

static bool never(void)
{
    return false;
}

/* Ends the program where it is another: who waits would wait for ever. */
static void check_range(const range *r, uint64_t first_unit, uint64_t n_units)
{
    if (!CHECK_MSG(r->begin == first_unit * UNIT && r->end == (first_unit + n_units) * UNIT,
                   "asked for bytes %" PRIu64 " to %" PRIu64 ", not for %" PRIu64
                   " units from %" PRIu64,
                   r->begin, r->end, n_units, first_unit))
        exit(test_result());
}

/* n_open ranges are on their way when two readers begin to wait, the one for the later bytes first.
 */
static void check_order(mf_hub_ahead *ahead, int fd, const char *log, const char *published,
                        size_t n_open)
{
    range ranges[MAX_RANGES];
    reader late = {.ahead = ahead, .fd = fd, .wanted = {40 * UNIT + 5, 40 * UNIT + 1005}};
    reader early = {.ahead = ahead, .fd = fd, .wanted = {30 * UNIT - 8, 30 * UNIT + 8}};
    size_t n = 2 * n_open;
    wait_for_ranges(log, n, ranges);
    uint64_t end = 0; /* nobody waited: in the order of the file */
    for (size_t i = 0; i < n; i++)
        end = ranges[i].end > end ? ranges[i].end : end;
    CHECK(end <= 4 * n * UNIT && end <= 29 * UNIT);

    begin_reading(&late);
    begin_reading(&early);
    tell_hub("open=1");
    wait_for_ranges(log, n + 1, ranges);
    check_range(&ranges[n], 40, 1);
    tell_hub("open=1");
    wait_for_ranges(log, n + 2, ranges);
    check_range(&ranges[n + 1], 29, 2);
    tell_hub("open=1"); /* nobody waits for anything that is not on its way */
    wait_for_ranges(log, n + 3, ranges);
    CHECK(ranges[n + 2].begin == end);

    while (n_open-- > 1) /* those before that of the late one */
        tell_hub("open=1");
    end_reading(&early, published);
    end_reading(&late, published);
    n = read_ranges(log, ranges); /* long before all of it was there */
    for (size_t i = 0; i < n; i++)
        CHECK(ranges[i].end <= 41 * UNIT);
}

static void check_model(const mf_hub_places *places, const mf_hub_name *name, char **argv,
                        uint32_t n_connections)
{
    const mf_hub_options options = {.n_connections = n_connections, .n_retries = 100};
    mf_hub_model *model = NULL;
    mf_hub_ahead *ahead = NULL;
    mf_error error = {0};
    char folder[MF_HUB_PATH_CHARS], path[2 * MF_HUB_PATH_CHARS], what[sizeof gate + 8];
    REQUIRE(truncate(argv[3], 0) == 0);
    snprintf(what, sizeof what, "gate=%s", gate);
    tell_hub(what);
    come_late(argv[5]);
    snprintf(what, sizeof what, "open=%" PRIu32, n_connections - 1); /* and the descriptors */
    tell_hub(what);
    if (!mf_hub_open(places, name, &options, &model, &error) ||
        !mf_hub_ahead_begin(model, never, &ahead, folder, &error)) {
        fprintf(stderr, "%s\n", error.message);
        REQUIRE(false);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    check_order(ahead, fd, argv[3], argv[2], n_connections);
    close(fd);
    tell_hub("open=all");
    mf_hub_ahead_end(&ahead);
    mf_hub_close(&model);
}

int main(int argc, char **argv)
{
    mf_hub_name name;
    mf_hub_places places;
    REQUIRE(argc == 6 && mf_hub_name_parse(argv[1], &name));
    mf_hub_places_read(&places);
    snprintf(gate, sizeof gate, "/store/%s/", name.repo);
    check_model(&places, &name, argv, (uint32_t)strtoul(argv[4], NULL, 10));
    return test_result();
}
