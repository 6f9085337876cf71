/* SPDX-License-Identifier: MIT */
/*
 * Replaying a trace: the engine's own expert store, with its policies and its foresight, on a drive
 * and a clock that are numbers. Each layer of a pass computes a share of the pass's time: first
 * what comes before its router, then the experts, each as soon as it is there.
 */
#include "routing/drive_sim.h"
#include "routing/visits.h"

#include "base/checked.h"
#include "base/sized.h"
#include "experts/foresight.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

/* Of a layer's time, what its attention, norms and router take. */
#define SHARE_BEFORE 0.5
#define READY_AT_ONCE 64u

_Static_assert(MF_ROUTING_MAX_SIZES <= MF_MAP_FORMS, "each size of a trace is a form of its own");

typedef struct replay {
    const mf_routing *t;
    mf_replay_options options;
    uint64_t n_slots;
    mf_drive_sim drive;
    mf_io *io;
    mf_expert_store *store;
    mf_foresight *foresight; /* NULL: nothing is foreseen */
    int32_t *ids;            /* [rows of a pass * k] */
    size_t n_ids;
    mf_expert_part *parts; /* [n_layers][n_reads()] */
    /* of a part, by size */
    uint64_t form_bytes[MF_MAX_EXPERT_PARTS][MF_ROUTING_MAX_SIZES];
    void *slots; /* addresses, no memory */
    size_t slots_bytes;
    uint32_t *wanted;   /* [n_experts] */
    uint8_t *is_wanted; /* [n_experts] */
    double started_us;
    uint64_t n_tokens;
} replay;

/* ------------------------------------------------------------------------------------ setup -- */

static mf_status take_options(const mf_replay_options *given, mf_replay_options *out,
                              mf_error *error)
{
    mf_replay_options_default(out);
    MF_TRY(mf_sized_get(out, sizeof *out, given, "mf_replay_options", error));
    if (!(out->drive_bytes_per_second >= 1.0) || !isfinite(out->drive_bytes_per_second) ||
        !(out->latency_us >= 0.0) || !isfinite(out->latency_us) || !(out->compute_us >= 0.0) ||
        !isfinite(out->compute_us))
        return mf_fail(error, MF_ERR_ARGUMENT,
                       "mf_replay_options: a drive or computing of no possible speed");
    return MF_OK;
}

/* The sizes of the slots as the recording engine has counted them. */
static mf_slot_sizes counted_sizes(const mf_routing_head *h)
{
    mf_slot_sizes s = {.n = h->sizes.n, .n_first = h->k};
    if (h->sizes.n == 0)
        return mf_slot_sizes_even(h->slot_bytes);
    memcpy(s.bytes, h->sizes.slot_bytes, sizeof s.bytes);
    for (uint32_t layer = 0; layer < h->n_layers; layer++) {
        const uint8_t *of = h->sizes.of + (size_t)layer * h->n_experts;
        uint8_t least = 0;
        for (uint32_t e = 0; e < h->n_experts; e++)
            least = of[e] > least ? of[e] : least;
        for (uint32_t e = 0; e < h->n_experts; e++) {
            s.n_experts[of[e]]++;
            s.n_hot[of[e]] += of[e] < least;
        }
    }
    return s;
}

static mf_status find_slots(replay *r, mf_error *error)
{
    const mf_routing_head *h = &r->t->head;
    const uint64_t all = (uint64_t)h->n_layers * h->n_experts;
    const uint64_t ram = r->options.ram_bytes;
    const mf_slot_sizes sizes = counted_sizes(h);
    r->n_slots = r->options.n_slots;
    if (r->n_slots == 0 && ram > h->fixed_bytes)
        r->n_slots = mf_slot_sizes_fit(&sizes, ram - h->fixed_bytes, 0, all);
    if (r->n_slots < h->k)
        return mf_fail(error, MF_ERR_BUDGET,
                       "%llu expert slots, expected at least the %u of one token and layer: %llu "
                       "bytes of memory in all",
                       (unsigned long long)r->n_slots, h->k,
                       (unsigned long long)(h->fixed_bytes + h->k * sizes.bytes[0]));
    r->n_slots = r->n_slots < all ? r->n_slots : all;
    return MF_OK;
}

/* How an expert is read here: a slot has no more parts, so that of more reads some go together. */
static uint32_t n_reads(const mf_routing_head *h)
{
    return h->reads_per_expert < MF_MAX_EXPERT_PARTS ? h->reads_per_expert : MF_MAX_EXPERT_PARTS;
}

/* Of part j of n: whole pages of the drive, as evenly as these go. */
static uint64_t part_bytes(uint64_t expert_bytes, uint64_t j, uint64_t n)
{
    const uint64_t n_pages = (expert_bytes + MF_IO_ALIGN / 2) / MF_IO_ALIGN;
    const uint64_t pages = n_pages * (j + 1) / n - n_pages * j / n;
    return (pages == 0 ? 1 : pages) * MF_IO_ALIGN;
}

/* A layer's experts of several sizes. */
static void part_by_size(replay *r, uint32_t layer, uint32_t j, mf_expert_part *part)
{
    const mf_routing_head *h = &r->t->head;
    part->form_of = h->sizes.of + (size_t)layer * h->n_experts;
    part->form_bytes = r->form_bytes[j];
    part->n_bytes = 0;
    for (uint32_t e = 0; e < h->n_experts; e++) {
        const uint64_t bytes = mf_expert_part_bytes(part, e);
        part->n_bytes = bytes > part->n_bytes ? bytes : part->n_bytes;
    }
}

/* Parts that are read one by one. */
static void lay_out(replay *r, uint64_t *file_bytes)
{
    const mf_routing_head *h = &r->t->head;
    const uint32_t n = n_reads(h);
    uint64_t at = 0;
    for (uint32_t j = 0; j < n; j++)
        for (uint32_t size = 0; size < h->sizes.n; size++)
            r->form_bytes[j][size] = part_bytes(h->sizes.expert_bytes[size], j, n);
    for (uint32_t i = 0; i < h->n_layers * n; i++) {
        mf_expert_part *part = &r->parts[i];
        *part = (mf_expert_part){.offset = at, .n_bytes = part_bytes(h->expert_bytes, i % n, n)};
        if (h->sizes.n != 0)
            part_by_size(r, i / n, i % n, part);
        part->stride = part->n_bytes + MF_IO_ALIGN; /* the next expert is another read */
        at += (h->n_experts + 1) * (part->stride + MF_IO_ALIGN);
    }
    *file_bytes = at;
}

static mf_status open_store(replay *r, const mf_cache_policy *policy, mf_error *error)
{
    const mf_routing_head *h = &r->t->head;
    const mf_io_options io = {
        .allocator = r->t->allocator, .engine = &mf_io_engine_sim, .engine_arg = &r->drive};
    uint64_t file_bytes;
    uint32_t file;
    mf_slot_sizes sizes;
    lay_out(r, &file_bytes);
    MF_TRY(mf_io_open(&io, &r->io, error));
    MF_TRY(mf_io_add_made_up(r->io, file_bytes, &file, error));
    mf_expert_store_options options = {.allocator = r->t->allocator,
                                       .io = r->io,
                                       .map = {.n_layers = h->n_layers,
                                               .n_experts = h->n_experts,
                                               .n_parts = n_reads(h),
                                               .parts = r->parts},
                                       .policy = policy};
    mf_slot_sizes_of(&options.map, false, h->k, &sizes);
    const uint64_t slots_bytes = sizes.n == 0 ? 0 : mf_slot_sizes_bytes(&sizes, r->n_slots);
    if (slots_bytes == 0 || slots_bytes > SIZE_MAX / 2)
        return mf_fail(error, MF_ERR_ARGUMENT, "experts of no possible size");
    options.sizes = &sizes;
    r->slots_bytes = (size_t)slots_bytes;
    r->slots =
        mmap(NULL, r->slots_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r->slots == MAP_FAILED)
        return mf_fail_memory(error, r->slots_bytes, "addresses of expert slots");
    options.memory = (mf_slot_memory){.n_bytes = r->slots_bytes, .host = r->slots};
    return mf_expert_store_open(&options, &r->store, error);
}

static uint64_t drive_us(void *clock)
{
    return mf_drive_sim_now_us(clock);
}

static mf_status open_foresight(replay *r, mf_error *error)
{
    const mf_routing_head *h = &r->t->head;
    const mf_foresight_options options = {.allocator = r->t->allocator,
                                          .store = r->store,
                                          .n_layers = h->n_layers,
                                          .n_experts = h->n_experts,
                                          .k = h->k,
                                          .predict = r->options.predict,
                                          .now_us = drive_us,
                                          .clock = &r->drive};
    if (r->options.predict == MF_PREDICT_OFF)
        return MF_OK;
    for (size_t i = 0; i < r->t->n_passes; i++)
        if ((size_t)r->t->passes[i].n_rows * h->k > r->n_ids)
            r->n_ids = (size_t)r->t->passes[i].n_rows * h->k;
    r->ids = mf_alloc_array(&r->t->allocator, r->n_ids, sizeof *r->ids);
    if (r->ids == NULL)
        return mf_fail_memory(error, r->n_ids * sizeof *r->ids, "replaying a trace");
    return mf_foresight_open(&options, &r->foresight, error);
}

static mf_status open_all(replay *r, mf_error *error)
{
    const mf_routing_head *h = &r->t->head;
    const mf_allocator *a = &r->t->allocator;
    const mf_cache_policy *policy;
    if (mf_predict_name(r->options.predict) == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_replay_options.predict: %d is not known",
                       (int)r->options.predict);
    MF_TRY(mf_cache_policy_find(r->options.cache_policy, &policy, error));
    MF_TRY(find_slots(r, error));
    r->drive.bytes_per_us = r->options.drive_bytes_per_second * 1e-6;
    r->drive.latency_us = r->options.latency_us;
    r->wanted = mf_alloc_array(a, h->n_experts, sizeof *r->wanted);
    r->is_wanted = mf_alloc_array(a, h->n_experts, 1);
    r->parts = mf_alloc_array(a, (size_t)h->n_layers * n_reads(h), sizeof *r->parts);
    if (r->wanted == NULL || r->is_wanted == NULL || r->parts == NULL)
        return mf_fail_memory(error, h->n_experts * sizeof *r->wanted, "replaying a trace");
    MF_TRY(open_store(r, policy, error));
    return open_foresight(r, error);
}

static void close_all(replay *r)
{
    const mf_routing_head *h = &r->t->head;
    const mf_allocator *a = &r->t->allocator;
    mf_foresight_close(&r->foresight);
    mf_expert_store_close(&r->store);
    mf_io_close(&r->io);
    if (r->slots != NULL && r->slots != MAP_FAILED)
        (void)munmap(r->slots, r->slots_bytes);
    mf_free(a, r->wanted, h->n_experts * sizeof *r->wanted);
    mf_free(a, r->is_wanted, h->n_experts);
    mf_free(a, r->ids, r->n_ids * sizeof *r->ids);
    mf_free(a, r->parts, (size_t)h->n_layers * n_reads(h) * sizeof *r->parts);
}

/* ----------------------------------------------------------------------------------- running -- */

static void compute(replay *r, double us)
{
    r->drive.now_us += us;
    mf_expert_store_poll(r->store);
}

/* The experts of a layer, each computed as it comes. */
static mf_status run_experts(replay *r, mf_expert_fetch *fetch, uint32_t n, double us,
                             mf_error *error)
{
    mf_expert_ready ready[READY_AT_ONCE];
    for (uint32_t done = 0, n_ready; done < n; done += n_ready) {
        MF_TRY(mf_expert_fetch_next(fetch, ready, READY_AT_ONCE, &n_ready, error));
        r->drive.now_us += us * n_ready / n;
        for (uint32_t i = 0; i < n_ready; i++)
            mf_expert_fetch_release(fetch, ready[i].index, 0);
    }
    return MF_OK;
}

/* Of a pass and layer, as numbers of the router. */
static const int32_t *take_ids(replay *r, const uint16_t *from, size_t pass, uint32_t layer)
{
    const mf_routing_pass *p = &r->t->passes[pass];
    const size_t n = (size_t)p->n_rows * r->t->head.k, first = p->first_choice + layer * n;
    for (size_t i = 0; i < n; i++)
        r->ids[i] = from[first + i];
    return r->ids;
}

static void hint(replay *r, size_t pass, uint32_t next)
{
    const uint32_t n_layers = r->t->head.n_layers;
    if (r->foresight == NULL || next >= n_layers)
        return;
    const bool is_foretold = r->t->has_foretold[pass * n_layers + next] != 0 &&
                             mf_foresight_wants_router(r->foresight, next);
    mf_foresight_hint(r->foresight, next,
                      is_foretold ? take_ids(r, r->t->foretold, pass, next) : NULL, r->t->head.k);
}

static mf_status run_layer(replay *r, size_t pass, uint32_t layer, double us, mf_error *error)
{
    mf_expert_fetch *fetch = NULL;
    compute(r, us * SHARE_BEFORE);
    const uint32_t n = mf_routing_visit(r->t, pass, layer, r->is_wanted, r->wanted);
    if (r->foresight != NULL)
        mf_foresight_chosen(r->foresight, layer, take_ids(r, r->t->ids, pass, layer));
    MF_TRY(mf_expert_fetch_begin(r->store, layer, r->wanted, n, &fetch, error));
    hint(r, pass, layer + 1);
    mf_status status = run_experts(r, fetch, n, us * (1 - SHARE_BEFORE), error);
    mf_expert_fetch_end(fetch, 0);
    return status;
}

static mf_status run_pass(replay *r, size_t pass, mf_error *error)
{
    const mf_routing_pass *p = &r->t->passes[pass];
    const double recorded = (double)(p->elapsed_us - p->waited_us);
    const double us = r->options.compute_us > 0 ? r->options.compute_us * p->n_rows : recorded;
    if (r->foresight != NULL)
        mf_foresight_begin(r->foresight, p->n_rows);
    for (uint32_t layer = 0; layer < r->t->head.n_layers; layer++)
        MF_TRY(run_layer(r, pass, layer, us / r->t->head.n_layers, error));
    if (r->foresight != NULL)
        mf_foresight_end(r->foresight, true);
    r->n_tokens += p->n_rows;
    return MF_OK;
}

static void begin_counting(replay *r)
{
    mf_expert_store_stats_reset(r->store);
    r->drive.waited_us = r->drive.reading_us = 0;
    r->started_us = r->drive.now_us;
    r->n_tokens = 0;
}

static mf_status run_all(replay *r, mf_error *error)
{
    for (size_t pass = 0; pass < r->t->n_passes; pass++) {
        if (pass == r->options.n_passes_before)
            begin_counting(r);
        MF_TRY(run_pass(r, pass, error));
    }
    if (r->options.n_passes_before >= r->t->n_passes)
        begin_counting(r);
    return MF_OK;
}

static mf_status fill_result(const replay *r, mf_replay_result *out, mf_error *error)
{
    mf_expert_stats s;
    mf_expert_store_stats(r->store, &s);
    *out = (mf_replay_result){.n_slots = r->n_slots,
                              .n_tokens = r->n_tokens,
                              .n_expert_hits = s.n_hits,
                              .n_expert_misses = s.n_misses,
                              .n_reads = s.n_reads,
                              .read_bytes = s.read_bytes,
                              .n_hints = s.n_hints,
                              .n_hints_useful = s.n_hints_useful,
                              .n_hints_late = s.n_hints_late,
                              .n_hints_cancelled = s.n_hints_cancelled,
                              .n_hints_wasted = s.n_hints_wasted,
                              .seconds = 1e-6 * (r->drive.now_us - r->started_us),
                              .wait_seconds = 1e-6 * r->drive.waited_us,
                              .reading_seconds = 1e-6 * r->drive.reading_us};
    return mf_routing_best_hits(r->t, r->n_slots, r->options.n_passes_before, &out->n_best_hits,
                                error);
}

void mf_replay_options_init(mf_replay_options *options, size_t struct_bytes)
{
    const mf_replay_options defaults = {
        .drive_bytes_per_second = 3.5e9, .latency_us = 80, .predict = MF_PREDICT_OFF};
    mf_sized_init(options, struct_bytes, &defaults, sizeof defaults);
}

mf_status mf_routing_replay_sized(const mf_routing *routing, const mf_replay_options *options,
                                  mf_replay_result *out, size_t struct_bytes, mf_error *error)
{
    if (routing == NULL || options == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_routing_replay: an argument is NULL");
    replay r = {.t = routing};
    mf_replay_result result;
    MF_TRY(take_options(options, &r.options, error));
    mf_status status = open_all(&r, error);
    if (status == MF_OK)
        status = run_all(&r, error);
    if (status == MF_OK)
        status = fill_result(&r, &result, error);
    close_all(&r);
    if (status == MF_OK)
        mf_sized_put(out, struct_bytes, &result, sizeof result);
    return status;
}
