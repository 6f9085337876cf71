/* SPDX-License-Identifier: MIT */
/* The strict backend's stream: copies of all that is recorded, and what may run before what. */
#include "strict_impl.h"

#include <stdlib.h>
#include <string.h>

/* Entries that are chosen among. */
#define WINDOW 8u
/* Copies that are held before work runs without being waited for: queues are bounded. */
#define MOST_COPIED ((uint64_t)256 << 20)

static uint32_t random_below(strict_backend *be, uint32_t n);

static void *must(void *memory)
{
    if (memory == NULL)
        strict_complain("no memory for the test's backend");
    return memory;
}

/* ----------------------------------------------------------------------------------- entries -- */

strict_entry *strict_entry_new(strict_kind kind)
{
    strict_entry *e = must(calloc(1, sizeof *e));
    e->kind = kind;
    return e;
}

void strict_entry_use(strict_entry *e, mf_span span, uint64_t n_bytes, uint32_t access)
{
    if (e->n_uses % 16 == 0)
        e->uses = must(realloc(e->uses, (e->n_uses + 16) * sizeof *e->uses));
    e->uses[e->n_uses++] = (strict_use){span, n_bytes, access};
}

void *strict_entry_keep(strict_entry *e, const void *bytes, size_t n_bytes)
{
    void *copy = must(malloc(n_bytes + 1));
    if (n_bytes != 0)
        memcpy(copy, bytes, n_bytes);
    if (e->n_blocks % 16 == 0)
        e->blocks = must(realloc((void *)e->blocks, (e->n_blocks + 16) * sizeof *e->blocks));
    e->blocks[e->n_blocks++] = copy;
    return copy;
}

static void drop_batch(strict_batch *batch)
{
    if (batch == NULL || --batch->n_refs > 0)
        return;
    for (uint32_t i = 0; i < batch->n; i++) {
        free((void *)batch->sequences[i].pages);
        free((void *)batch->sequences[i].window_pages);
    }
    free(batch->sequences);
    free(batch);
}

static void entry_free(strict_entry *e)
{
    for (uint32_t i = 0; i < e->n_blocks; i++)
        free(e->blocks[i]);
    free((void *)e->blocks);
    free(e->uses);
    drop_batch(e->batch);
    free(e);
}

static void drop_early(strict_backend *be)
{
    if (be->early == STRICT_NOT_EARLY)
        return;
    while (be->early_first != NULL) {
        strict_entry *e = be->early_first;
        be->early_first = e->next;
        entry_free(e);
    }
    be->early_end = &be->early_first;
    be->early = STRICT_NOT_EARLY;
    drop_batch(be->batch);
    be->batch = NULL;
}

static mf_ticket record_early(strict_backend *be, strict_entry *e)
{
    if (e->kind == STRICT_UPLOAD || e->kind == STRICT_DISCARD || e->kind == STRICT_FREE)
        strict_complain("an upload, or memory given back, among what is recorded early");
    *be->early_end = e;
    be->early_end = &e->next;
    return be->last;
}

mf_ticket strict_record(strict_backend *be, strict_entry *e)
{
    if (be->early == STRICT_EARLY && !be->is_lost)
        return record_early(be, e);
    if (be->early == STRICT_EARLY_KEPT)
        drop_early(be);
    if (be->is_lost) {
        if (e->kind == STRICT_FREE)
            strict_drop_buffer(be, e->to.buffer);
        entry_free(e);
        return be->last;
    }
    if (e->kind == STRICT_READ)
        memset(e->dest, STRICT_POISON, e->n_bytes);
    e->place = ++be->last;
    *be->end = e;
    be->end = &e->next;
    be->stats.n_pending++;
    be->copied_bytes += e->kind == STRICT_WRITE ? e->n_bytes : 0;
    const mf_ticket place = e->place;
    if (be->copied_bytes > MOST_COPIED)
        strict_run_to(be, place);
    return place;
}

/* -------------------------------------------------------------------------------- operations -- */

static mf_span *copy_pages(const mf_sequence *seq, const mf_span *pages)
{
    const size_t n_bytes = mf_pages_of(seq->position + seq->n_rows) * sizeof(mf_span);
    if (pages == NULL)
        return NULL;
    mf_span *copy = must(malloc(n_bytes + 1));
    memcpy(copy, pages, n_bytes);
    return copy;
}

void strict_begin_batch(strict_backend *be, const mf_sequence *sequences, uint32_t n)
{
    if (be->early == STRICT_EARLY_KEPT)
        drop_early(be);
    strict_batch *batch = must(calloc(1, sizeof *batch));
    batch->sequences = must(calloc(n + 1, sizeof *batch->sequences));
    batch->n = n;
    batch->n_refs = 1;
    batch->number = ++be->n_batches;
    for (uint32_t i = 0; i < n; i++) {
        mf_sequence *seq = &batch->sequences[i];
        *seq = sequences[i];
        seq->pages = copy_pages(seq, seq->pages);
        seq->window_pages = copy_pages(seq, seq->window_pages);
    }
    drop_batch(be->batch);
    be->batch = batch;
}

/* The arrays that the operation's parameters point to. */
static void keep_arrays(strict_entry *e)
{
    mf_op *op = &e->op;
    if (op->kind == MF_OP_EMBED) {
        op->u.embed.tokens = strict_entry_keep(e, op->u.embed.tokens, op->n_rows * sizeof(int32_t));
    } else if (op->kind == MF_OP_ROUTE && op->u.route.table.buffer.id != 0) {
        op->u.route.tokens = strict_entry_keep(e, op->u.route.tokens, op->n_rows * sizeof(int32_t));
    } else if (op->kind == MF_OP_COPY_ROWS) {
        op->u.copy_rows.rows =
            strict_entry_keep(e, op->u.copy_rows.rows, op->n_rows * sizeof(uint32_t));
    } else if (op->kind == MF_OP_COMBINE && op->u.combine.place != NULL) {
        op->u.combine.place = strict_entry_keep(
            e, op->u.combine.place, (size_t)op->n_rows * op->u.combine.k * sizeof(uint32_t));
    } else if (op->kind == MF_OP_EXPERTS) {
        mf_experts_params *p = &op->u.experts;
        mf_expert_item *items = strict_entry_keep(e, p->items, p->n_items * sizeof *items);
        for (uint32_t i = 0; i < p->n_items; i++)
            items[i].x_rows =
                strict_entry_keep(e, items[i].x_rows, items[i].n_rows * sizeof(uint32_t));
        p->items = items;
    }
}

typedef struct checker {
    strict_backend *be;
    strict_entry *entry;
} checker;

static void check_use(void *ctx, mf_span span, uint64_t n_bytes, uint32_t access)
{
    const checker *c = ctx;
    const char *name = mf_op_name(c->entry->op.kind);
    const strict_memory *m = strict_memory_of(c->be, span, n_bytes, name);
    if (m->use == MF_USE_STAGING && (c->entry->op.kind != MF_OP_FINITE || access != MF_WRITES))
        strict_complain("%s: an operand in a staging buffer", name);
    strict_entry_use(c->entry, span, n_bytes, access);
}

bool strict_begin_early(strict_backend *be)
{
    if (be->early == STRICT_EARLY)
        strict_complain("begin_early twice");
    drop_early(be);
    if (be->is_lost || random_below(be, 8) == 0)
        return false;
    be->early = STRICT_EARLY;
    return true;
}

bool strict_end_early(strict_backend *be)
{
    if (be->early != STRICT_EARLY)
        strict_complain("end_early without its beginning");
    be->early = STRICT_EARLY_KEPT;
    if (be->is_lost || random_below(be, 8) == 0)
        drop_early(be);
    return be->early == STRICT_EARLY_KEPT;
}

/* false: it has other ones. */
static bool put_tokens(strict_backend *be, const int32_t *tokens, uint32_t n)
{
    bool is_put = n == 0;
    for (strict_entry *e = be->early_first; e != NULL; e = e->next) {
        if (e->kind != STRICT_OP || e->op.kind != MF_OP_EMBED)
            continue;
        if (e->op.n_rows != n || is_put)
            return false;
        e->op.u.embed.tokens = strict_entry_keep(e, tokens, n * sizeof *tokens);
        is_put = true;
    }
    return is_put;
}

bool strict_take_early(strict_backend *be, const int32_t *tokens, uint32_t n)
{
    if (be->early != STRICT_EARLY_KEPT || be->is_lost || !put_tokens(be, tokens, n)) {
        drop_early(be);
        return false;
    }
    strict_entry *e = be->early_first;
    be->early_first = NULL;
    be->early_end = &be->early_first;
    be->early = STRICT_NOT_EARLY;
    while (e != NULL) {
        strict_entry *next = e->next;
        e->next = NULL;
        strict_record(be, e);
        e = next;
    }
    return true;
}

void strict_record_op(strict_backend *be, const mf_op *op)
{
    if (be->is_lost)
        return;
    if (!be->inner->ops->supports_op(be->inner, op) || !be->is_reserved[op->kind])
        strict_complain("%s: recorded, but never reserved", mf_op_name(op->kind));
    strict_entry *e = strict_entry_new(STRICT_OP);
    e->op = *op;
    keep_arrays(e);
    e->batch = be->batch;
    if (e->batch != NULL)
        e->batch->n_refs++;
    checker c = {be, e};
    mf_op_spans(&e->op, e->batch != NULL ? e->batch->sequences : NULL,
                e->batch != NULL ? e->batch->n : 0, check_use, &c);
    strict_record(be, e);
}

/* ----------------------------------------------------------------------------------- running -- */

static uint32_t random_below(strict_backend *be, uint32_t n)
{
    uint64_t x = be->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    be->random = x;
    return (uint32_t)((x * UINT64_C(2685821657736338717)) >> 33) % n;
}

static bool overlap(const strict_use *a, const strict_use *b)
{
    return a->span.buffer.id == b->span.buffer.id && ((a->access | b->access) & ~MF_READS) != 0 &&
           a->span.offset < b->span.offset + b->n_bytes &&
           b->span.offset < a->span.offset + a->n_bytes;
}

static bool same_dest(const strict_entry *a, const strict_entry *b)
{
    uintptr_t x = (uintptr_t)a->dest, y = (uintptr_t)b->dest;
    return a->kind == STRICT_READ && b->kind == STRICT_READ && x < y + b->n_bytes &&
           y < x + a->n_bytes;
}

static bool conflict(const strict_entry *a, const strict_entry *b)
{
    for (uint32_t i = 0; i < a->n_uses; i++)
        for (uint32_t j = 0; j < b->n_uses; j++)
            if (overlap(&a->uses[i], &b->uses[j]))
                return true;
    return same_dest(a, b);
}

/* Unlinks one of the first entries up to `place` that no earlier one stands in the way of; NULL if
 * there are none left. */
static strict_entry *choose(strict_backend *be, mf_ticket place)
{
    strict_entry **free_ones[WINDOW], *seen[WINDOW];
    uint32_t n = 0, n_free = 0;
    for (strict_entry **at = &be->first; *at != NULL && (*at)->place <= place && n < WINDOW;
         at = &(*at)->next) {
        bool is_free = true;
        for (uint32_t i = 0; i < n && is_free; i++)
            is_free = !conflict(seen[i], *at);
        if (is_free)
            free_ones[n_free++] = at;
        seen[n++] = *at;
    }
    if (n == 0)
        return NULL;
    strict_entry **chosen = free_ones[random_below(be, n_free)], *e = *chosen;
    be->stats.n_overtakes += e != be->first;
    *chosen = e->next;
    if (e->next == NULL)
        be->end = chosen;
    return e;
}

static unsigned char *bytes_at(const strict_backend *be, mf_span span)
{
    return be->buffers[span.buffer.id - 1].base + span.offset;
}

static void run_op(strict_backend *be, const strict_entry *e)
{
    if (e->batch != NULL && e->batch->number != be->inner_batch) {
        be->inner->ops->begin_batch(be->inner, e->batch->sequences, e->batch->n);
        be->inner_batch = e->batch->number;
    }
    uint32_t when = 1;
    if (e->op.when.buffer.id != 0)
        memcpy(&when, bytes_at(be, e->op.when), sizeof when);
    if (when == 0) /* it is left undone */
        return;
    be->inner->ops->record(be->inner, &e->op);
    for (uint32_t i = 0; i < e->n_uses; i++)
        if ((e->uses[i].access & MF_LOSES) != 0)
            memset(bytes_at(be, e->uses[i].span), STRICT_POISON, e->uses[i].n_bytes);
}

static void execute(strict_backend *be, const strict_entry *e)
{
    for (uint32_t i = 0; i < e->n_uses; i++)
        strict_open_door(be, e->uses[i].span.buffer);
    switch (e->kind) {
    case STRICT_OP:
        run_op(be, e);
        break;
    case STRICT_WRITE:
    case STRICT_UPLOAD:
        if (e->n_bytes != 0) /* of nothing there may be no source */
            memcpy(bytes_at(be, e->to), e->src, e->n_bytes);
        break;
    case STRICT_COPY:
        memcpy(bytes_at(be, e->to), bytes_at(be, e->from), e->n_bytes);
        break;
    case STRICT_READ:
        memcpy(e->dest, bytes_at(be, e->from), e->n_bytes);
        break;
    case STRICT_DISCARD:
        (void)be->inner->ops->buffer_discard(be->inner, e->to, e->n_bytes);
        memset(bytes_at(be, e->to), STRICT_POISON, e->n_bytes);
        break;
    case STRICT_FREE:
        strict_drop_buffer(be, e->to.buffer);
        break;
    }
}

/* Perhaps some places further on. */
static mf_ticket further(strict_backend *be, mf_ticket place)
{
    uint64_t n_left = be->last - place;
    if (!be->options.runs_ahead || n_left == 0 || random_below(be, 2) == 0)
        return place;
    return place + 1 + random_below(be, n_left < 32 ? (uint32_t)n_left : 32);
}

void strict_run_to(strict_backend *be, mf_ticket place)
{
    strict_entry *e;
    if (be->is_lost || be->first == NULL || be->first->place > place)
        return;
    if (++be->stats.n_runs == be->options.lost_at_run) {
        be->is_lost = true;
        strict_drop_all(be);
        return;
    }
    place = further(be, place);
    while ((e = choose(be, place)) != NULL) {
        execute(be, e);
        be->stats.n_executed++;
        be->stats.n_pending--;
        be->copied_bytes -= e->kind == STRICT_WRITE ? e->n_bytes : 0;
        entry_free(e);
    }
    strict_close_doors(be);
    be->executed = place;
    be->n_asks_left = random_below(be, 4);
}

void strict_drop_all(strict_backend *be)
{
    while (be->first != NULL) {
        strict_entry *e = be->first;
        be->first = e->next;
        if (e->kind == STRICT_FREE)
            strict_drop_buffer(be, e->to.buffer);
        entry_free(e);
    }
    be->end = &be->first;
    be->stats.n_pending = 0;
    drop_early(be);
    drop_batch(be->batch);
    be->batch = NULL;
}
