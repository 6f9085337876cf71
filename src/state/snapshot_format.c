/* SPDX-License-Identifier: MIT */
/*
 * Layout, little-endian (docs/FORMATS.md has the table):
 *
 *   |<--------------- head: a multiple of 4096 --------------->|
 *   | header 128 | tokens 4 n | positions 4 m | zeros | sum 8 | part 0 | sum 8 | part 1 | sum 8 ...
 *
 * The header ends with a checksum of its own, so that a damaged one is told from another model's. A
 * part's checksum is seeded with the head's and its number: parts cannot change places.
 */
#include "state/snapshot_format.h"

#include "base/checked.h"

#include <endian.h>
#include <string.h>

#if __BYTE_ORDER != __LITTLE_ENDIAN
#error "snapshots are written as they lie in memory: little-endian"
#endif

static const unsigned char magic[MF_SNAPSHOT_MAGIC_BYTES] = {'M', 'F', 'S', 'T',
                                                             'A', 'T', 'E', '\n'};

enum {
    AT_VERSION = 8,
    AT_HEADER_BYTES = 12,
    AT_TOTAL_BYTES = 16,
    AT_FINGERPRINT = 24,
    AT_KV_TYPE = 40,
    AT_CPU_TIER = 44,
    AT_N_TOKENS = 48,
    AT_N_LAYERS = 56,
    AT_N_VOCAB = 60,
    AT_PAGE_TOKENS = 64,
    AT_HAS_LOGITS = 68,
    AT_PAGE_BYTES = 72,
    AT_RECURRENT_BYTES = 80,
    AT_N_PARTS = 88,
    AT_PARTS_BYTES = 96,
    AT_N_MARKS = 104,
    AT_MARK_PARTS = 108,
    AT_MARK_BYTES = 112,
    AT_CHECKSUM = 120
};

uint64_t mf_snapshot_head_bytes(uint64_t n_tokens, uint32_t n_marks)
{
    return mf_round_up(MF_SNAPSHOT_HEADER_BYTES + 4 * (n_tokens + n_marks) + 8,
                       MF_SNAPSHOT_HEAD_ALIGN);
}

uint64_t mf_snapshot_part_offset(const mf_snapshot_head *head, uint64_t i, uint64_t bytes_before)
{
    return mf_snapshot_head_bytes(head->n_tokens, head->n_marks) + 8 * i + bytes_before;
}

uint64_t mf_snapshot_total_bytes(const mf_snapshot_head *head)
{
    return mf_snapshot_part_offset(head, head->n_parts, head->parts_bytes);
}

uint64_t mf_snapshot_mark_offset(const mf_snapshot_head *head, uint32_t k)
{
    uint64_t n_after = head->n_marks - k;
    return mf_snapshot_total_bytes(head) -
           n_after * (head->mark_bytes + 8 * (uint64_t)head->mark_parts);
}

bool mf_snapshot_has_magic(const unsigned char begin[MF_SNAPSHOT_MAGIC_BYTES])
{
    return memcmp(begin, magic, sizeof magic) == 0;
}

static void put(unsigned char *header, size_t at, uint64_t value, size_t n_bytes)
{
    memcpy(header + at, &value, n_bytes);
}

static uint64_t get(const unsigned char *header, size_t at, size_t n_bytes)
{
    uint64_t value = 0;
    memcpy(&value, header + at, n_bytes);
    return value;
}

static void encode_header(const mf_snapshot_head *h, unsigned char *out)
{
    memset(out, 0, MF_SNAPSHOT_HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    put(out, AT_VERSION, MF_SNAPSHOT_VERSION, 4);
    put(out, AT_HEADER_BYTES, MF_SNAPSHOT_HEADER_BYTES, 4);
    put(out, AT_TOTAL_BYTES, mf_snapshot_total_bytes(h), 8);
    memcpy(out + AT_FINGERPRINT, h->key.fingerprint, MF_FINGERPRINT_BYTES);
    put(out, AT_KV_TYPE, h->key.kv_type, 4);
    put(out, AT_CPU_TIER, h->key.cpu_tier, 4);
    put(out, AT_N_TOKENS, h->n_tokens, 8);
    put(out, AT_N_LAYERS, h->n_layers, 4);
    put(out, AT_N_VOCAB, h->n_vocab, 4);
    put(out, AT_PAGE_TOKENS, h->page_tokens, 4);
    put(out, AT_HAS_LOGITS, h->has_logits, 4);
    put(out, AT_PAGE_BYTES, h->page_bytes, 8);
    put(out, AT_RECURRENT_BYTES, h->recurrent_bytes, 8);
    put(out, AT_N_PARTS, h->n_parts, 8);
    put(out, AT_PARTS_BYTES, h->parts_bytes, 8);
    put(out, AT_N_MARKS, h->n_marks, 4);
    put(out, AT_MARK_PARTS, h->mark_parts, 4);
    put(out, AT_MARK_BYTES, h->mark_bytes, 8);
    put(out, AT_CHECKSUM, mf_checksum_of(out, AT_CHECKSUM, 0), 8);
}

static const unsigned char zeros[MF_SNAPSHOT_HEAD_ALIGN];

static size_t padding_bytes(const mf_snapshot_head *h)
{
    return (size_t)(mf_snapshot_head_bytes(h->n_tokens, h->n_marks) - MF_SNAPSHOT_HEADER_BYTES -
                    4 * (h->n_tokens + h->n_marks) - 8);
}

/* Of the head up to the checksum itself. */
static uint64_t checksum_of_head(const mf_snapshot_head *head, const unsigned char *header,
                                 const int32_t *tokens, const unsigned char *padding)
{
    mf_checksum c;
    mf_checksum_begin(&c, 0);
    mf_checksum_add(&c, header, MF_SNAPSHOT_HEADER_BYTES);
    mf_checksum_add(&c, tokens, (size_t)head->n_tokens * 4);
    mf_checksum_add(&c, head->marks, (size_t)head->n_marks * 4);
    mf_checksum_add(&c, padding, padding_bytes(head));
    return mf_checksum_end(&c);
}

mf_status mf_snapshot_write_head(mf_byte_sink *sink, mf_snapshot_head *head, const int32_t *tokens,
                                 mf_error *error)
{
    unsigned char header[MF_SNAPSHOT_HEADER_BYTES];
    encode_header(head, header);
    head->checksum = checksum_of_head(head, header, tokens, zeros);
    MF_TRY(sink->write(sink, header, sizeof header, error));
    MF_TRY(sink->write(sink, tokens, (size_t)head->n_tokens * 4, error));
    MF_TRY(sink->write(sink, head->marks, (size_t)head->n_marks * 4, error));
    MF_TRY(sink->write(sink, zeros, padding_bytes(head), error));
    return sink->write(sink, &head->checksum, 8, error);
}

static size_t piece_of(size_t n_left)
{
    return n_left < MF_SNAPSHOT_PIECE_BYTES ? n_left : MF_SNAPSHOT_PIECE_BYTES;
}

typedef struct part_writer {
    mf_byte_sink *sink;
    mf_checksum checksum;
} part_writer;

static mf_status write_piece(void *ctx, const unsigned char *bytes, size_t n_bytes, mf_error *error)
{
    part_writer *w = ctx;
    mf_checksum_add(&w->checksum, bytes, n_bytes);
    return w->sink->write(w->sink, bytes, n_bytes, error);
}

static mf_status end_part(const part_writer *w, mf_error *error)
{
    const uint64_t checksum = mf_checksum_end(&w->checksum);
    return w->sink->write(w->sink, &checksum, 8, error);
}

mf_status mf_snapshot_write_part(mf_byte_sink *sink, const mf_snapshot_head *head, uint64_t i,
                                 const void *data, size_t n_bytes, mf_error *error)
{
    part_writer w = {.sink = sink};
    mf_checksum_begin(&w.checksum, head->checksum + i);
    for (size_t done = 0, n; done < n_bytes; done += n) {
        n = piece_of(n_bytes - done);
        MF_TRY(write_piece(&w, (const unsigned char *)data + done, n, error));
    }
    return end_part(&w, error);
}

static void decode_header(const unsigned char *header, mf_snapshot_head *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->key.fingerprint, header + AT_FINGERPRINT, MF_FINGERPRINT_BYTES);
    out->key.kv_type = (uint32_t)get(header, AT_KV_TYPE, 4);
    out->key.cpu_tier = (uint32_t)get(header, AT_CPU_TIER, 4);
    out->n_tokens = get(header, AT_N_TOKENS, 8);
    out->n_layers = (uint32_t)get(header, AT_N_LAYERS, 4);
    out->n_vocab = (uint32_t)get(header, AT_N_VOCAB, 4);
    out->page_tokens = (uint32_t)get(header, AT_PAGE_TOKENS, 4);
    out->has_logits = get(header, AT_HAS_LOGITS, 4) != 0;
    out->page_bytes = get(header, AT_PAGE_BYTES, 8);
    out->recurrent_bytes = get(header, AT_RECURRENT_BYTES, 8);
    out->n_parts = get(header, AT_N_PARTS, 8);
    out->parts_bytes = get(header, AT_PARTS_BYTES, 8);
    out->n_marks = (uint32_t)get(header, AT_N_MARKS, 4);
    out->mark_parts = (uint32_t)get(header, AT_MARK_PARTS, 4);
    out->mark_bytes = get(header, AT_MARK_BYTES, 8);
}

/* Within the parts that there are, and said of none where there are none. */
static bool are_marks_sound(const mf_snapshot_head *h)
{
    uint64_t n = h->n_marks;
    if (n == 0)
        return h->mark_parts == 0 && h->mark_bytes == 0;
    return n <= MF_SNAPSHOT_MAX_MARKS && n * h->mark_parts <= h->n_parts &&
           h->mark_bytes <= h->parts_bytes && n * h->mark_bytes <= h->parts_bytes;
}

static mf_status check_sizes(const unsigned char *header, const mf_snapshot_head *h,
                             mf_error *error)
{
    if (h->n_tokens > MF_SNAPSHOT_MAX_TOKENS || h->n_parts > MF_SNAPSHOT_MAX_PARTS ||
        h->parts_bytes > (uint64_t)1 << 48 || !are_marks_sound(h) ||
        mf_snapshot_total_bytes(h) != get(header, AT_TOTAL_BYTES, 8))
        return mf_fail(error, MF_ERR_FORMAT,
                       "snapshot: %llu tokens, %llu parts of %llu bytes and %llu bytes in all "
                       "contradict each other",
                       (unsigned long long)h->n_tokens, (unsigned long long)h->n_parts,
                       (unsigned long long)h->parts_bytes,
                       (unsigned long long)get(header, AT_TOTAL_BYTES, 8));
    if (get(header, AT_HAS_LOGITS, 4) > 1)
        return mf_fail(error, MF_ERR_FORMAT, "snapshot: the header's logits are neither 0 nor 1");
    return MF_OK;
}

mf_status mf_snapshot_read_header(mf_byte_source *source, mf_snapshot_head *out, mf_error *error)
{
    unsigned char header[MF_SNAPSHOT_HEADER_BYTES];
    mf_snapshot_head h;
    MF_TRY(source->read(source, header, sizeof header, error));
    if (!mf_snapshot_has_magic(header))
        return mf_fail(error, MF_ERR_FORMAT, "not a snapshot: it does not begin with MFSTATE");
    if (get(header, AT_VERSION, 4) != MF_SNAPSHOT_VERSION)
        return mf_fail(error, MF_ERR_FORMAT, "snapshot of version %llu, this is version %u",
                       (unsigned long long)get(header, AT_VERSION, 4), MF_SNAPSHOT_VERSION);
    if (get(header, AT_CHECKSUM, 8) != mf_checksum_of(header, AT_CHECKSUM, 0) ||
        get(header, AT_HEADER_BYTES, 4) != MF_SNAPSHOT_HEADER_BYTES)
        return mf_fail(error, MF_ERR_FORMAT,
                       "snapshot: the header is damaged (its checksum differs)");
    decode_header(header, &h);
    MF_TRY(check_sizes(header, &h, error));
    *out = h;
    return MF_OK;
}

/* What the head's checksum cannot say: ids of the vocabulary, positions that rise and lie within.
 */
static mf_status check_values(const mf_snapshot_head *head, const int32_t *tokens, mf_error *error)
{
    for (uint64_t i = 0; i < head->n_tokens; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= head->n_vocab)
            return mf_fail(error, MF_ERR_FORMAT,
                           "snapshot: token %llu is %d, outside the vocabulary of %u",
                           (unsigned long long)i, tokens[i], head->n_vocab);
    }
    for (uint32_t i = 0; i < head->n_marks; i++) {
        if (head->marks[i] <= (i == 0 ? 0 : head->marks[i - 1]) || head->marks[i] >= head->n_tokens)
            return mf_fail(error, MF_ERR_FORMAT,
                           "snapshot: mark %u at token %u, which is not within the %llu "
                           "tokens and behind the one before",
                           i, head->marks[i], (unsigned long long)head->n_tokens);
    }
    return MF_OK;
}

mf_status mf_snapshot_read_tokens(mf_byte_source *source, mf_snapshot_head *head, int32_t *tokens,
                                  mf_error *error)
{
    unsigned char header[MF_SNAPSHOT_HEADER_BYTES], rest[MF_SNAPSHOT_HEAD_ALIGN + 8];
    size_t n_padding = padding_bytes(head);
    MF_TRY(source->read(source, tokens, (size_t)head->n_tokens * 4, error));
    MF_TRY(source->read(source, head->marks, (size_t)head->n_marks * 4, error));
    MF_TRY(source->read(source, rest, n_padding + 8, error));
    encode_header(head, header);
    head->checksum = checksum_of_head(head, header, tokens, rest);
    if (memcmp(rest + n_padding, &head->checksum, 8) != 0)
        return mf_fail(error, MF_ERR_FORMAT,
                       "snapshot: the tokens are damaged (their checksum differs)");
    if (memcmp(rest, zeros, n_padding) != 0)
        return mf_fail(error, MF_ERR_FORMAT,
                       "snapshot: not zeros between the tokens and the end "
                       "of the head");
    return check_values(head, tokens, error);
}

mf_status mf_snapshot_write_part_from(mf_byte_sink *sink, const mf_snapshot_head *head, uint64_t i,
                                      const mf_part_place *from, size_t n_bytes, mf_error *error)
{
    const mf_part_memory *m = from->memory;
    part_writer w = {.sink = sink};
    mf_checksum_begin(&w.checksum, head->checksum + i);
    MF_TRY(m->visit(m->ctx, from, n_bytes, write_piece, &w, error));
    return end_part(&w, error);
}

static mf_status check_part(mf_byte_source *source, const mf_snapshot_head *head, uint64_t i,
                            const mf_checksum *c, mf_error *error)
{
    uint64_t stored;
    MF_TRY(source->read(source, &stored, sizeof stored, error));
    if (stored != mf_checksum_end(c))
        return mf_fail(error, MF_ERR_FORMAT,
                       "snapshot: part %llu of %llu is damaged (its checksum differs)",
                       (unsigned long long)i, (unsigned long long)head->n_parts);
    return MF_OK;
}

typedef struct part_reader {
    mf_byte_source *source;
    mf_checksum checksum;
} part_reader;

static mf_status read_piece(void *ctx, unsigned char *bytes, size_t n_bytes, mf_error *error)
{
    part_reader *r = ctx;
    MF_TRY(r->source->read(r->source, bytes, n_bytes, error));
    mf_checksum_add(&r->checksum, bytes, n_bytes);
    return MF_OK;
}

mf_status mf_snapshot_read_part(mf_byte_source *source, const mf_snapshot_head *head, uint64_t i,
                                void *dest, size_t n_bytes, mf_error *error)
{
    part_reader r = {.source = source};
    mf_checksum_begin(&r.checksum, head->checksum + i);
    for (size_t done = 0, n; done < n_bytes; done += n) {
        n = piece_of(n_bytes - done);
        MF_TRY(read_piece(&r, (unsigned char *)dest + done, n, error));
    }
    return check_part(source, head, i, &r.checksum, error);
}

mf_status mf_snapshot_read_part_to(mf_byte_source *source, const mf_snapshot_head *head, uint64_t i,
                                   const mf_part_place *to, size_t n_bytes, mf_error *error)
{
    const mf_part_memory *m = to->memory;
    part_reader r = {.source = source};
    mf_checksum_begin(&r.checksum, head->checksum + i);
    MF_TRY(m->produce(m->ctx, to, n_bytes, read_piece, &r, error));
    return check_part(source, head, i, &r.checksum, error);
}

mf_status mf_snapshot_pass_part(mf_byte_source *source, const mf_snapshot_head *head, uint64_t i,
                                size_t n_bytes, mf_error *error)
{
    unsigned char piece[16 << 10];
    mf_checksum c;
    mf_checksum_begin(&c, head->checksum + i);
    for (size_t done = 0; done < n_bytes;) {
        size_t n = n_bytes - done < sizeof piece ? n_bytes - done : sizeof piece;
        MF_TRY(source->read(source, piece, n, error));
        mf_checksum_add(&c, piece, n);
        done += n;
    }
    return check_part(source, head, i, &c, error);
}
