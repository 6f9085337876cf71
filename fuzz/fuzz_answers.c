/* SPDX-License-Identifier: MIT */
/*
 * Records of kept answers from anywhere: an answer or tools that come back are within their bounds,
 * and written again are the same bytes. The first byte: what is behind it.
 */
#include "recall_record.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define N_VOCAB 1000u

static const mf_srv_digest_key key = {{3, 4}};

/* The record's bytes behind its head. */
static void check_again(const mf_srv_bytes *record, const uint8_t *data, size_t n_bytes)
{
    const unsigned char *bytes = (const unsigned char *)record->data;
    mf_srv_record_head head;
    if (record->has_failed || record->n_bytes != MF_SRV_RECORD_HEAD_BYTES + n_bytes ||
        memcmp(bytes + MF_SRV_RECORD_HEAD_BYTES, data, n_bytes) != 0 ||
        !mf_srv_record_head_read(bytes, &head) || head.n_bytes != n_bytes ||
        !mf_srv_record_is_whole(&key, &head, bytes + MF_SRV_RECORD_HEAD_BYTES))
        abort();
}

static void read_answer(const uint8_t *data, size_t n_bytes)
{
    mf_srv_kept *kept = mf_srv_record_answer(data, n_bytes, N_VOCAB);
    mf_srv_bytes record = {0};
    if (!kept)
        return;
    if (kept->origin.n_head_tokens > kept->n_tokens || kept->origin.system_mark > kept->n_tokens)
        abort();
    for (size_t i = 0; i < kept->n_tokens; i++)
        if (kept->tokens[i] < 0 || kept->tokens[i] >= (int32_t)N_VOCAB)
            abort();
    for (size_t i = 0; i < kept->message.n_calls; i++)
        if (!kept->message.calls[i].name || !kept->message.calls[i].arguments)
            abort();
    mf_srv_record_put_answer(&key, kept, &record);
    check_again(&record, data, n_bytes);
    mf_srv_bytes_free(&record);
    mf_srv_kept_drop(kept);
}

static void read_tools(const uint8_t *data, size_t n_bytes)
{
    char *tools = mf_srv_record_tools(data, n_bytes);
    mf_srv_bytes record = {0};
    if (!tools)
        return;
    mf_srv_record_put_tools(&key, tools, &record);
    check_again(&record, data, n_bytes);
    mf_srv_bytes_free(&record);
    free(tools);
}

static void read_head(const uint8_t *data)
{
    unsigned char again[MF_SRV_ANSWERS_HEAD_BYTES];
    mf_srv_answers_head head;
    if (!mf_srv_answers_head_read(data, &head))
        return;
    mf_srv_answers_head_write(&head, again);
    if (memcmp(again, data, 48) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes == 0 || n_bytes > 1 << 20)
        return 0;
    if (data[0] % 3 == 0)
        read_answer(data + 1, n_bytes - 1);
    else if (data[0] % 3 == 1)
        read_tools(data + 1, n_bytes - 1);
    else if (n_bytes > MF_SRV_ANSWERS_HEAD_BYTES)
        read_head(data + 1);
    return 0;
}
