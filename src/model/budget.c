/* SPDX-License-Identifier: MIT */
/* The division of a budget and the words for it. */
#include "model/budget.h"

#include "base/checked.h"

#include <moeflux/moeflux.h>

#include <stdio.h>
#include <sys/stat.h>

#define MIB ((uint64_t)1 << 20)
/* Five regions (weights, activations, slots, pages, recurrent states) are rounded to huge pages. */
#define ROUNDING (5 * 4 * MIB)
#define A_THREAD (1 * MIB)
/* Code, libraries and the allocator: a process that has opened nothing holds about half of the
 * first; the second is for what is not touched until tokens are evaluated. */
#define PROCESS_HELD (12 * MIB)
#define PROCESS_LATER (12 * MIB)
/* A vocabulary takes about its file; and the compiled expressions. */
#define TOKENIZER (1 * MIB)
/* The text of a prompt, its ids and what encoding it takes: see MF_TEXT_BYTES in the program. */
#define TEXTS (8 * MIB)
#define TEXT_A_TOKEN ((uint64_t)256)
/* Places are made by so many bytes, or more where that would be too many times; and what a
 * room may take beyond its places: a huge page on either side. */
#define ROOM_BYTES (256 * MIB)
#define ROOMS_MAX 512
#define ROOM_ROUNDING (4 * MIB)
#define PLACES_ON_WAY 64
/* More than a process drifts by between two looks at it. */
#define HELD_STEP (8 * MIB)
/* What is left to the rest of the machine where the user gives no budget. */
#define ROOM_MIN (512 * MIB)
#define TENTH(n_bytes) ((n_bytes) / MIB * 10 + ((n_bytes) % MIB * 10 + MIB - 1) / MIB)

static uint64_t file_bytes(const char *dir, const char *name)
{
    char path[4096];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof path || stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    return (uint64_t)st.st_size;
}

uint64_t mf_tokenizer_file_bytes(const char *dir)
{
    static const char *const names[] = {
        "tokenizer.json",     "tiktoken.model",     "hy.tiktoken", "tokenizer.model",
        "mlx/tokenizer.json", "mlx/tiktoken.model", "text.gguf"};
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint64_t n = file_bytes(dir, names[i]);
        most = n > most ? n : most;
    }
    return most;
}

uint64_t mf_mark_logits_bytes(uint64_t limit_bytes, uint64_t cost_bytes, uint32_t n_vocab)
{
    uint64_t logits = (uint64_t)n_vocab * sizeof(float), each;
    if (logits == 0 || !mf_add_u64(cost_bytes, logits, &each))
        return 0;
    return limit_bytes / each * logits; /* at most limit_bytes */
}

static uint64_t auto_ram(uint64_t held, uint64_t available)
{
    uint64_t room = available / 10 > ROOM_MIN ? available / 10 : ROOM_MIN;
    return held + (available > room ? available - room : 0);
}

/* False where a size overflows. */
static bool make_terms(const mf_budget_request *r, uint64_t *terms)
{
    uint64_t tokenizer, texts, threads = r->n_threads * A_THREAD, allowance;
    const bool is_dense_here = !r->place.dense.has_memory;
    const bool are_experts_here = !r->place.experts.has_memory;
    terms[MF_TERM_DENSE] =
        (is_dense_here ? r->resident_bytes : 0) + (are_experts_here ? r->expert_resident_bytes : 0);
    terms[MF_TERM_ACTIVATIONS] =
        (is_dense_here ? r->act_bytes : 0) + (are_experts_here ? r->expert_act_bytes : 0);
    terms[MF_TERM_LISTS] = r->host_bytes;
    terms[MF_TERM_DRIVERS] = r->driver_bytes + (is_dense_here ? r->overhead_bytes : 0) +
                             (are_experts_here ? r->expert_overhead_bytes : 0);
    terms[MF_TERM_ROUNDING] = ROUNDING;
    if (!mf_mul_u64(r->tokenizer_file_bytes, 2, &tokenizer) ||
        !mf_add_u64(tokenizer, TOKENIZER, &tokenizer))
        return false;
    texts = TEXTS + TEXT_A_TOKEN * r->n_context_tokens;
    if (!mf_add_u64(PROCESS_HELD + texts, tokenizer, &allowance) ||
        !mf_add_u64(allowance, PROCESS_LATER + threads, &terms[MF_TERM_PROCESS]))
        return false;
    allowance += r->driver_bytes;
    uint64_t beyond = r->place.held_bytes > allowance ? r->place.held_bytes - allowance : 0;
    terms[MF_TERM_HELD] = beyond / HELD_STEP * HELD_STEP;
    if (!r->place.opens && beyond % HELD_STEP != 0)
        terms[MF_TERM_HELD] += HELD_STEP;
    /* State is taken by the slab (state_pool.h), each rounded up to huge pages. */
    const uint64_t state_bytes = is_dense_here ? r->state_bytes : 0;
    uint64_t per_slot, places = 0;
    if (!mf_mul_u64(r->n_places_min, r->place_bytes + r->place_host_bytes, &places))
        return false;
    return mf_add_u64(r->staging_bytes, places, &terms[MF_TERM_STAGING]) &&
           mf_add_u64(state_bytes, state_bytes / 16, &terms[MF_TERM_STATE]) &&
           mf_add_u64(are_experts_here ? r->slot_bytes : 0, r->slot_host_bytes, &per_slot) &&
           mf_mul_u64(r->n_slots_min, per_slot, &terms[MF_TERM_SLOTS]);
}

static mf_slot_sizes sizes_of(const mf_budget_request *r)
{
    return r->slot_sizes.n > 1 ? r->slot_sizes : mf_slot_sizes_even(r->slot_bytes);
}

/* Slots that n_bytes hold where each takes more beside its own bytes. */
static uint64_t slots_in(const mf_budget_request *r, uint64_t n_bytes, uint64_t more_each)
{
    const mf_slot_sizes sizes = sizes_of(r);
    return mf_slot_sizes_fit(&sizes, n_bytes, more_each, r->n_experts_total);
}

/* Slots that are asked for, whatever fits. */
static uint64_t wanted_slots(const mf_budget_request *r)
{
    if (r->expert_cache_bytes == MF_EXPERT_CACHE_AUTO || r->slot_bytes == 0)
        return r->n_experts_total;
    uint64_t n = slots_in(r, r->expert_cache_bytes, 0);
    n = n < r->n_slots_min ? r->n_slots_min : n;
    return n > r->n_experts_total ? r->n_experts_total : n;
}

/* What the dense layers' device holds beside slots, and the experts' if it is another. */
static uint64_t used_dense(const mf_budget_request *r)
{
    return r->resident_bytes + r->act_bytes + r->slabs_bytes + r->overhead_bytes;
}

static uint64_t used_experts(const mf_budget_request *r)
{
    return r->expert_resident_bytes + r->expert_act_bytes + r->expert_overhead_bytes;
}

static void make_device_floors(const mf_budget_request *r, mf_budget *b)
{
    const uint64_t slots = r->n_slots_min * r->slot_bytes;
    const bool are_apart = r->expert_act_bytes != 0;
    if (r->place.dense.has_memory || r->place.dense.takes_promise)
        b->device_floor_bytes = used_dense(r) + (are_apart ? 0 : slots);
    if (are_apart && (r->place.experts.has_memory || r->place.experts.takes_promise))
        b->expert_device_floor_bytes = used_experts(r) + slots;
}

/* Slots that the memory of the experts' device holds beside what else is there. */
static uint64_t slots_there(const mf_budget_request *r, uint64_t ram_bytes)
{
    const uint64_t known = r->place.experts.n_bytes;
    const uint64_t used = r->expert_act_bytes != 0 ? used_experts(r) : used_dense(r);
    if (r->slot_bytes == 0 || (known == 0 && !r->place.experts.has_memory))
        return UINT64_MAX;
    if (known == 0)
        return slots_in(r, ram_bytes, 0);
    return known > used ? slots_in(r, known - used, 0) : 0;
}

/* Of a budget that is not below the floor. */
static uint64_t fitting_slots(const mf_budget_request *r, const mf_budget *b)
{
    const bool are_here = !r->place.experts.has_memory;
    const uint64_t left = b->ram_bytes - b->fixed_bytes;
    uint64_t fit = UINT64_MAX;
    if (are_here)
        fit = slots_in(r, left, r->slot_host_bytes);
    else if (r->slot_host_bytes != 0)
        fit = left / r->slot_host_bytes;
    const uint64_t there = slots_there(r, b->ram_bytes);
    fit = there < fit ? there : fit;
    return fit > r->n_slots_min ? fit : r->n_slots_min;
}

/* What the slots leave of the budget becomes places; where all experts have slots, those that keep
 * a drive and a link busy until all are there. */
static void divide_rest(const mf_budget_request *r, mf_budget *b)
{
    const uint64_t each = r->place_bytes + r->place_host_bytes;
    uint64_t wanted = wanted_slots(r);
    if (b->n_slots >= r->n_experts_total && wanted > PLACES_ON_WAY)
        wanted = PLACES_ON_WAY;
    b->n_places = wanted < r->n_places_min ? wanted : r->n_places_min;
    b->n_first_places = b->n_places;
    if (!r->place.experts.has_memory || each == 0 || wanted <= r->n_places_min)
        return;
    const uint64_t left = b->ram_bytes - b->fixed_bytes - b->n_slots * r->slot_host_bytes;
    uint64_t n = left / each, most = wanted - r->n_places_min;
    n = n < most ? n : most;
    uint64_t per_room = ROOM_BYTES / r->place_bytes + 1;
    per_room = per_room < n / ROOMS_MAX + 1 ? n / ROOMS_MAX + 1 : per_room;
    const uint64_t room = per_room * each + ROOM_ROUNDING, rest = left % room;
    n = left / room * per_room + (rest > ROOM_ROUNDING ? (rest - ROOM_ROUNDING) / each : 0);
    b->n_room_places = per_room;
    b->n_places += n < most ? n : most;
}

void mf_budget_make(const mf_budget_request *r, mf_budget *out)
{
    mf_budget b = {.available_bytes = r->available_bytes,
                   .n_slots_min = r->n_slots_min,
                   .slot_sizes = sizes_of(r)};
    b.ram_bytes =
        r->ram_bytes != 0 ? r->ram_bytes : auto_ram(r->place.held_bytes, r->available_bytes);
    bool fits = make_terms(r, b.terms);
    for (int i = 0; i < MF_N_BUDGET_TERMS; i++) {
        fits = fits && mf_add_u64(b.floor_bytes, b.terms[i], &b.floor_bytes);
        b.fixed_bytes = i + 1 == MF_TERM_SLOTS ? b.floor_bytes : b.fixed_bytes;
    }
    if (!fits)
        b.floor_bytes = b.fixed_bytes = UINT64_MAX;
    b.is_enough = fits && b.ram_bytes >= b.floor_bytes;
    if (b.is_enough) {
        uint64_t fit = fitting_slots(r, &b);
        uint64_t wanted = wanted_slots(r);
        b.n_slots = fit < wanted ? fit : wanted;
        if (r->n_places_min != 0)
            divide_rest(r, &b);
    }
    make_device_floors(r, &b);
    *out = b;
}

uint64_t mf_budget_floor_tenths(const mf_budget *b)
{
    return TENTH(b->floor_bytes);
}

void mf_budget_describe(const mf_budget *b, char *line, size_t capacity)
{
    static const char *const names[MF_N_BUDGET_TERMS] = {
        [MF_TERM_DENSE] = "dense weights",
        [MF_TERM_ACTIVATIONS] = "activations",
        [MF_TERM_STATE] = "session state",
        [MF_TERM_LISTS] = "lists and logits",
        [MF_TERM_STAGING] = "on the way to devices",
        [MF_TERM_DRIVERS] = "devices' drivers and scratch",
        [MF_TERM_PROCESS] = "the process, its tokenizer and texts",
        [MF_TERM_ROUNDING] = "rounding to huge pages",
        [MF_TERM_HELD] = "held by the process beyond that",
        [MF_TERM_SLOTS] = "expert slots",
    };
    uint64_t sum = 0, shown = 0;
    size_t at = 0;
    *line = '\0';
    for (int i = 0; i < MF_N_BUDGET_TERMS; i++) {
        sum += b->terms[i];
        uint64_t tenths = TENTH(sum) - shown;
        shown += tenths;
        if (b->terms[i] == 0)
            continue;
        int n =
            snprintf(line + at, capacity - at, "%s%llu.%llu MiB %s", at == 0 ? "" : ", ",
                     (unsigned long long)tenths / 10, (unsigned long long)tenths % 10, names[i]);
        if (n < 0 || (size_t)n >= capacity - at)
            return;
        at += (size_t)n;
    }
}
