/* SPDX-License-Identifier: MIT */
/* The batch's sequences: once for spans, and once as shaders read them, in memory that the host
 * writes. Batches take turns in it, since recorded work reads a batch after the next has begun. */
#include "backend/vulkan/vk_internal.h"

#include "base/checked.h"

#include <assert.h>
#include <string.h>

#define ALIGN ((uint64_t)256)

static void free_lists(mf_vk_backend *be)
{
    mf_vk_batches *b = &be->batches;
    mf_free(&be->allocator, b->sequences, b->most_sequences * sizeof *b->sequences);
    mf_free(&be->allocator, b->pages, b->most_pages * sizeof *b->pages);
    b->sequences = NULL;
    b->pages = NULL;
    b->most_sequences = b->n_sequences = 0;
    b->most_pages = 0;
}

void mf_vk_batch_close(mf_vk_backend *be)
{
    free_lists(be);
    be->batches.buffer = (mf_buffer){0}; /* goes with all buffers */
}

static mf_status batch_memory(mf_vk_backend *be, uint64_t n_bytes, mf_error *error)
{
    mf_vk_batches *b = &be->batches;
    const mf_vk_request request = {.n_bytes = MF_VK_BATCHES * n_bytes,
                                   .place = MF_VK_SHARED,
                                   .use = MF_USE_DEVICE,
                                   .is_internal = true,
                                   .what = "lists of pages"};
    mf_buffer buffer = {0};
    mf_vk_submit(be);
    mf_vk_wait_in_lock(be, be->stream.submitted);
    MF_TRY(mf_vk_buffer_create(be, &request, &buffer, error));
    mf_vk_buffer_drop(be, b->buffer);
    b->buffer = buffer;
    b->n_bytes = n_bytes;
    for (uint32_t i = 0; i < MF_VK_BATCHES; i++)
        b->batches[i] = (mf_vk_batch){{buffer, i * n_bytes}, 0};
    return MF_OK;
}

mf_status mf_vk_batch_reserve(mf_vk_backend *be, uint32_t n_sequences, size_t n_pages,
                              mf_error *error)
{
    mf_vk_batches *b = &be->batches;
    if (n_sequences <= b->most_sequences && n_pages <= b->most_pages)
        return MF_OK;
    n_sequences = n_sequences > b->most_sequences ? n_sequences : b->most_sequences;
    n_pages = n_pages > b->most_pages ? n_pages : b->most_pages;
    const uint64_t n_bytes = mf_round_up(
        2 * n_sequences * sizeof(mf_vk_sequence) + n_pages * sizeof(uint64_t) + 8, ALIGN);
    MF_TRY(batch_memory(be, n_bytes, error));
    free_lists(be);
    mf_sequence *sequences = mf_alloc_array(&be->allocator, n_sequences, sizeof *sequences);
    mf_span *pages = mf_alloc_array(&be->allocator, n_pages, sizeof *pages);
    if ((sequences == NULL && n_sequences != 0) || (pages == NULL && n_pages != 0)) {
        mf_free(&be->allocator, sequences, n_sequences * sizeof *sequences);
        mf_free(&be->allocator, pages, n_pages * sizeof *pages);
        return mf_fail_memory(error, n_pages * sizeof *pages, "lists of pages");
    }
    b->sequences = sequences;
    b->pages = pages;
    b->most_sequences = n_sequences;
    b->most_pages = n_pages;
    return MF_OK;
}

/* The next batch's memory, once nothing reads it any more. */
static mf_span take_turn(mf_vk_backend *be)
{
    mf_vk_batches *b = &be->batches;
    b->current = (b->current + 1) % MF_VK_BATCHES;
    mf_vk_batch *batch = &b->batches[b->current];
    if (batch->last_use > be->stream.submitted)
        mf_vk_submit(be);
    if (batch->last_use > be->stream.retired)
        mf_vk_wait_in_lock(be, batch->last_use);
    return batch->memory;
}

static mf_vk_sequence as_shaders_read(const mf_vk_backend *be, const mf_sequence *seq,
                                      uint32_t n_pages, uint64_t pages)
{
    return (mf_vk_sequence){.first_row = seq->first_row,
                            .n_rows = seq->n_rows,
                            .position = (uint32_t)seq->position,
                            .n_pages = n_pages,
                            .pages = pages,
                            .before = mf_vk_address(be, seq->state[0]),
                            .after = mf_vk_address(be, seq->state[1])};
}

/* A sequence's list of pages, in turn behind the others': for spans, and for shaders. */
static void list_pages(mf_vk_backend *be, const mf_span *pages, uint32_t n_pages, size_t at,
                       unsigned char *list)
{
    for (uint32_t p = 0; p < n_pages; p++, at++) {
        const uint64_t address = mf_vk_address(be, pages[p]);
        memcpy(list + at * sizeof address, &address, sizeof address);
        be->batches.pages[at] = pages[p];
    }
}

void mf_vk_batch_begin(mf_vk_backend *be, const mf_sequence *sequences, uint32_t n)
{
    mf_vk_batches *b = &be->batches;
    assert(n <= b->most_sequences);
    if (be->early.state == MF_VK_EARLY_KEPT)
        mf_vk_early_drop(be);
    if (be->stream.lost != MF_OK || n > b->most_sequences)
        return;
    const mf_span memory = take_turn(be);
    unsigned char *host = be->buffers[memory.buffer.id - 1].host + memory.offset;
    const uint64_t list = 2 * n * sizeof(mf_vk_sequence);
    size_t at = 0;
    for (uint32_t i = 0; i < 2 * n; i++) { /* all with their pages, then with their windows' */
        const mf_sequence *seq = &sequences[i < n ? i : i - n];
        const mf_span *pages = i < n ? seq->pages : seq->window_pages;
        const uint32_t n_pages = pages == NULL ? 0 : mf_pages_of(seq->position + seq->n_rows);
        assert(at + n_pages <= b->most_pages);
        const mf_vk_sequence s = as_shaders_read(
            be, seq, n_pages, mf_vk_address(be, memory) + list + at * sizeof(uint64_t));
        memcpy(host + i * sizeof s, &s, sizeof s);
        list_pages(be, pages, n_pages, at, host + list);
        const mf_span *kept = n_pages == 0 ? NULL : b->pages + at;
        if (i < n) {
            b->sequences[i] = *seq;
            b->sequences[i].pages = kept;
        } else {
            b->sequences[i - n].window_pages = kept;
        }
        at += n_pages;
    }
    b->n_sequences = n;
}

uint64_t mf_vk_batch_address(const mf_vk_backend *be)
{
    return mf_vk_address(be, be->batches.batches[be->batches.current].memory);
}

uint64_t mf_vk_batch_window_address(const mf_vk_backend *be)
{
    return mf_vk_batch_address(be) + be->batches.n_sequences * sizeof(mf_vk_sequence);
}

mf_vk_single mf_vk_batch_single(const mf_vk_backend *be)
{
    const mf_vk_batches *b = &be->batches;
    if (b->n_sequences != 1)
        return (mf_vk_single){0};
    const mf_sequence *seq = &b->sequences[0];
    return (mf_vk_single){mf_vk_address(be, seq->state[0]), mf_vk_address(be, seq->state[1]),
                          seq->first_row, seq->n_rows};
}
