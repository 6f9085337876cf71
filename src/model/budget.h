/* SPDX-License-Identifier: MIT */
/*
 * How a budget of memory is divided: what must fit beside the expert slots, term by term, the least
 * budget, and the slots that the rest holds. Arithmetic only: what the machine and the process have
 * comes in with the request, so the same request gives the same answer.
 *
 * ram_bytes is of the process's memory. What lies on a device with memory of its own is bounded by
 * that, and only what is on its way there counts here; what is left then holds experts for such a
 * device, in places (experts/store.h).
 *
 * The least budget depends on the model and the options alone, so that what one process is told
 * holds in another: what the process holds besides the engine is an allowance, not a reading. Only
 * where it holds more than that (the library in a large program) does the excess count, in steps
 * that are larger than what a process drifts by.
 */
#ifndef MF_MODEL_BUDGET_H
#define MF_MODEL_BUDGET_H

#include "base/status.h"
#include "experts/slot_sizes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The larger of a checkpoint's files that a tokenizer is made of; 0 without one. */
uint64_t mf_tokenizer_file_bytes(const char *dir);

/* Logits that marks may hold within their limit, where each counts at least cost_bytes and
 * its own logits. */
uint64_t mf_mark_logits_bytes(uint64_t limit_bytes, uint64_t cost_bytes, uint32_t n_vocab);

/* Where a device's buffers lie: in the process's memory, or in one of its own. */
typedef struct mf_budget_device {
    bool has_memory;    /* of its own: nothing there is charged to ram_bytes */
    bool runs_later;    /* and wants experts' arrays in their places, wherever they were read to */
    bool takes_promise; /* n_bytes bounds it, also where its memory is the process's */
    uint64_t n_bytes; /* that may be taken; 0: not known, as much as ram_bytes is, or not bounded */
} mf_budget_device;

/* What an engine is opened on; all zero: the process's memory alone. */
typedef struct mf_budget_place {
    uint64_t held_bytes; /* what the process holds */
    bool opens;          /* the engine is opened there, else only asked about: see below */
    mf_budget_device dense, experts;
} mf_budget_place;

typedef struct mf_budget_request {
    uint64_t ram_bytes;          /* 0: from what is available */
    uint64_t expert_cache_bytes; /* or MF_EXPERT_CACHE_AUTO */
    uint64_t resident_bytes, act_bytes, state_bytes, host_bytes;
    uint64_t slabs_bytes;                 /* state_bytes where memory is taken slab by slab */
    uint64_t slot_bytes, slot_host_bytes; /* one slot, and the store's bookkeeping for it */
    mf_slot_sizes slot_sizes;             /* slot_bytes is the largest; n 0: all are like that */
    uint64_t tokenizer_file_bytes;
    mf_budget_place place;
    /* Where experts have a device apart from the rest: their scales and rows there. */
    uint64_t expert_resident_bytes, expert_act_bytes;
    /* What either device takes of its memory beside all that, and drivers of the process's. */
    uint64_t overhead_bytes, expert_overhead_bytes, driver_bytes;
    uint64_t staging_bytes; /* of the process, on the way to and from devices, without places */
    uint64_t place_bytes, place_host_bytes; /* as of a slot */
    uint64_t n_places_min;                  /* 0: experts are read where they stay */
    uint64_t available_bytes;               /* of the machine */
    uint64_t n_experts_total, n_slots_min;
    uint32_t n_threads, n_context_tokens;
} mf_budget_request;

/* What a budget is spent on. All terms but the slots are bytes whatever the budget is. */
typedef enum mf_budget_term {
    MF_TERM_DENSE,       /* weights */
    MF_TERM_ACTIVATIONS, /* of a chunk */
    MF_TERM_STATE,       /* of sessions and marks, and what their slabs round up */
    MF_TERM_LISTS,       /* of the host: tokens, logits, rows of experts, the store's tables */
    MF_TERM_STAGING,     /* what is on its way to devices with memory of their own */
    MF_TERM_DRIVERS,     /* of devices, and what these need of the process's memory */
    MF_TERM_PROCESS,     /* code, libraries, stacks, tokenizer, texts */
    MF_TERM_ROUNDING,    /* to huge pages */
    MF_TERM_HELD,        /* what the process holds beyond its allowance */
    MF_TERM_SLOTS,       /* the least number of expert slots */
    MF_N_BUDGET_TERMS
} mf_budget_term;

typedef struct mf_budget {
    uint64_t ram_bytes;       /* in force */
    uint64_t available_bytes; /* of the machine */
    uint64_t fixed_bytes;     /* all terms but the slots */
    uint64_t floor_bytes;     /* all terms; UINT64_MAX where the sum overflows */
    bool is_enough;           /* not below the floor */
    /* 0: below the floor, or there are no experts. At least n_slots_min otherwise, even if a
     * device's own memory has no room for them: whoever makes the buffers says so. */
    uint64_t n_slots;
    uint64_t n_slots_min;     /* all of the largest size */
    mf_slot_sizes slot_sizes; /* as in the request */
    /* Places, in rooms, of which the first has what the floor allows for. Where the experts' device
     * has memory of its own there may be others, of so many each; the last may have fewer. */
    uint64_t n_places, n_first_places, n_room_places;
    /* Of devices that take promises, at least; 0: of others. All in the first where both are one.
     */
    uint64_t device_floor_bytes, expert_device_floor_bytes;
    uint64_t terms[MF_N_BUDGET_TERMS]; /* their sum is floor_bytes, unless that overflows */
} mf_budget;

/*
 * What the process holds beyond its allowance is rounded up where it is asked about and down where
 * it is opened: whoever opens with the floor that he was told is not refused for having grown a
 * little since.
 */
void mf_budget_make(const mf_budget_request *request, mf_budget *out);

/* "2.3 MiB dense weights, 5.9 MiB activations, ... and 0.2 MiB for 4 expert slots": in tenths that
 * add up to mf_budget_floor_tenths. */
void mf_budget_describe(const mf_budget *budget, char *line, size_t capacity);
/* The floor in tenths of a MiB, rounded up. */
uint64_t mf_budget_floor_tenths(const mf_budget *budget);

#endif
