/* SPDX-License-Identifier: MIT */
/*
 * Snapshots from anywhere. The input is read as it is; then once more with its checksums put right,
 * as far as its own sizes reach, so that what lies behind them is reached too.
 */
#include "put_right.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define MAX_PARTS 64u

/* Reads all that the snapshot says it has; parts of equal size, the last one with the rest. */
static void read_all(const uint8_t *data, size_t n_bytes)
{
    mf_buffer_source source;
    mf_snapshot_head head;
    mf_error error = {0};
    mf_buffer_source_init(&source, data, n_bytes);
    if (mf_snapshot_read_header(&source.source, &head, &error) != MF_OK) {
        if (error.message[0] == '\0')
            abort();
        return;
    }
    if (mf_snapshot_mark_offset(&head, 0) < mf_snapshot_head_bytes(head.n_tokens, head.n_marks))
        abort();
    if (mf_snapshot_total_bytes(&head) > n_bytes || head.n_parts > MAX_PARTS)
        return; /* whoever allocates by a head compares it with what there is first */
    int32_t *tokens = malloc((size_t)head.n_tokens * 4 + 1);
    unsigned char *part = malloc((size_t)head.parts_bytes + 1);
    if (tokens == NULL || part == NULL)
        abort();
    mf_status status = mf_snapshot_read_tokens(&source.source, &head, tokens, &error);
    for (uint64_t i = 0, left = head.parts_bytes; i < head.n_parts && status == MF_OK; i++) {
        uint64_t n = i + 1 == head.n_parts ? left : head.parts_bytes / head.n_parts;
        left -= n;
        status = mf_snapshot_read_part(&source.source, &head, i, part, (size_t)n, &error);
    }
    if (status == MF_OK)
        for (uint64_t i = 0; i < head.n_tokens; i++)
            if (tokens[i] < 0 || (uint32_t)tokens[i] >= head.n_vocab)
                abort();
    for (uint32_t i = 0; status == MF_OK && i < head.n_marks; i++)
        if (head.marks[i] == 0 || head.marks[i] >= head.n_tokens)
            abort();
    free(tokens);
    free(part);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes > 1 << 16)
        return 0;
    read_all(data, n_bytes);
    uint8_t *copy = copy_of(data, n_bytes);
    put_head_right(copy, n_bytes);
    read_all(copy, n_bytes);
    free(copy);
    return 0;
}
