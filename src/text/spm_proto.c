/* SPDX-License-Identifier: MIT */
/* The fields of sentencepiece_model.proto that matter here, by their numbers; all others are
 * passed over. */
#include "text/spm_proto.h"

#include "base/little_endian.h"
#include "text/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_PIECE_BYTES ((size_t)1 << 16)
#define MAX_PIECES ((size_t)1 << 24)

typedef enum wire_type { WIRE_VARINT, WIRE_FIXED64, WIRE_BYTES, WIRE_FIXED32 = 5 } wire_type;

/* A message, or the rest of one. */
typedef struct proto_reader {
    const unsigned char *data;
    size_t at, end;
} proto_reader;

typedef struct proto_field {
    uint32_t number;
    wire_type type;
    uint64_t value; /* of a varint or a fixed one */
    proto_reader bytes;
} proto_field;

static bool read_varint(proto_reader *r, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        const unsigned char byte = r->data[r->at++];
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool read_fixed(proto_reader *r, uint32_t n, uint64_t *out)
{
    if (r->end - r->at < n)
        return false;
    *out = mf_get_le(r->data + r->at, n);
    r->at += n;
    return true;
}

static bool read_bytes(proto_reader *r, proto_reader *out)
{
    uint64_t n;
    if (!read_varint(r, &n) || n > r->end - r->at)
        return false;
    *out = (proto_reader){r->data, r->at, r->at + (size_t)n};
    r->at += (size_t)n;
    return true;
}

/* The next field; false where what follows is none. Groups are none. */
static bool read_field(proto_reader *r, proto_field *f)
{
    uint64_t tag;
    if (!read_varint(r, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF)
        return false;
    f->number = (uint32_t)(tag >> 3);
    f->type = (wire_type)(tag & 7);
    switch (tag & 7) {
    case WIRE_VARINT:
        return read_varint(r, &f->value);
    case WIRE_FIXED64:
        return read_fixed(r, 8, &f->value);
    case WIRE_BYTES:
        return read_bytes(r, &f->bytes);
    case WIRE_FIXED32:
        return read_fixed(r, 4, &f->value);
    default:
        return false;
    }
}

static mf_spm_text text_of(const proto_reader *bytes)
{
    return (mf_spm_text){(const char *)bytes->data + bytes->at, bytes->end - bytes->at};
}

/* ------------------------------------------------------------------------------------- pieces --
 */

enum { PIECE_TEXT = 1, PIECE_SCORE, PIECE_TYPE };

static bool read_piece(proto_reader r, mf_spm_piece *out)
{
    proto_field f = {0};
    *out = (mf_spm_piece){.text = {"", 0}, .type = MF_SPM_NORMAL};
    while (r.at < r.end) {
        if (!read_field(&r, &f))
            return false;
        if (f.number == PIECE_TEXT && f.type == WIRE_BYTES) {
            out->text = text_of(&f.bytes);
        } else if (f.number == PIECE_SCORE && f.type == WIRE_FIXED32) {
            const uint32_t bits = (uint32_t)f.value;
            memcpy(&out->score, &bits, sizeof bits);
        } else if (f.number == PIECE_TYPE && f.type == WIRE_VARINT) {
            out->type = f.value <= MF_SPM_BYTE ? (int)f.value : 0;
        } else if (f.number <= PIECE_TYPE) {
            return false;
        }
    }
    return true;
}

static mf_status check_piece(const mf_spm_model *m, const proto_reader *bytes, mf_error *error)
{
    mf_spm_piece piece;
    const size_t at = bytes->at, i = m->n_pieces - 1;
    if (!read_piece(*bytes, &piece))
        return mf_fail(error, MF_ERR_FORMAT, "%s: byte %zu: pieces[%zu]: not a SentencePiece",
                       m->path, at, i);
    if (piece.text.n_bytes == 0 || piece.text.n_bytes > MAX_PIECE_BYTES ||
        !mf_utf8_is_valid((const unsigned char *)piece.text.text, piece.text.n_bytes))
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: byte %zu: pieces[%zu].piece: expected UTF-8 of 1 to %zu bytes", m->path,
                       at, i, MAX_PIECE_BYTES);
    if (piece.type < MF_SPM_NORMAL)
        return mf_fail(error, MF_ERR_FORMAT, "%s: byte %zu: pieces[%zu].type: expected 1 to %d",
                       m->path, at, i, MF_SPM_BYTE);
    if (isnan(piece.score))
        return mf_fail(error, MF_ERR_FORMAT, "%s: byte %zu: pieces[%zu].score: expected a number",
                       m->path, at, i);
    return MF_OK;
}

/* ---------------------------------------------------------------------------------- the model --
 */

enum { MODEL_PIECES = 1, MODEL_TRAINER, MODEL_NORMALIZER, MODEL_SELF_TEST, MODEL_DENORMALIZER };
enum {
    TRAINER_MODEL_TYPE = 3,
    TRAINER_SUFFIX_BLANKS = 24,
    TRAINER_BYTE_FALLBACK = 35,
    TRAINER_START_ID = 41,
    TRAINER_END_ID
};
enum { NORMALIZER_MAP = 2, NORMALIZER_PREFIX, NORMALIZER_EXTRA_BLANKS, NORMALIZER_ESCAPE };

static void take_trainer_field(mf_spm_model *m, const proto_field *f)
{
    /* An id is an int32: a negative one is a varint of 64 bits. */
    const int32_t id = f->value < (uint64_t)INT32_MAX ? (int32_t)f->value : -1;
    switch (f->number) {
    case TRAINER_MODEL_TYPE:
        m->kind = (mf_spm_kind)(f->value <= MF_SPM_CHARS ? f->value : 0);
        break;
    case TRAINER_SUFFIX_BLANKS:
        m->blanks_are_suffixes = f->value != 0;
        break;
    case TRAINER_BYTE_FALLBACK:
        m->falls_to_bytes = f->value != 0;
        break;
    case TRAINER_START_ID:
        m->start_id = id;
        break;
    case TRAINER_END_ID:
        m->end_id = id;
        break;
    default:
        break;
    }
}

static void take_normalizer_field(mf_spm_model *m, const proto_field *f)
{
    if (f->type == WIRE_BYTES && f->number == NORMALIZER_MAP)
        m->charsmap = text_of(&f->bytes);
    if (f->type != WIRE_VARINT)
        return;
    if (f->number == NORMALIZER_PREFIX)
        m->adds_blank = f->value != 0;
    else if (f->number == NORMALIZER_EXTRA_BLANKS)
        m->removes_extra_blanks = f->value != 0;
    else if (f->number == NORMALIZER_ESCAPE)
        m->marks_blanks = f->value != 0;
}

/* A message within the model, field by field. */
static mf_status read_message(mf_spm_model *m, uint32_t number, proto_reader r, const char *name,
                              mf_error *error)
{
    proto_field f = {0};
    while (r.at < r.end) {
        const size_t at = r.at;
        if (!read_field(&r, &f))
            return mf_fail(error, MF_ERR_FORMAT, "%s: byte %zu: %s: expected a field of protobuf",
                           m->path, at, name);
        if (number == MODEL_TRAINER && f.type == WIRE_VARINT)
            take_trainer_field(m, &f);
        else if (number == MODEL_NORMALIZER)
            take_normalizer_field(m, &f);
        else if (number == MODEL_DENORMALIZER && f.type == WIRE_BYTES &&
                 f.number == NORMALIZER_MAP && f.bytes.end > f.bytes.at)
            m->has_denormalizer = true;
    }
    return MF_OK;
}

static mf_status take_field(mf_spm_model *m, const proto_field *f, mf_error *error)
{
    if (f->type != WIRE_BYTES)
        return MF_OK;
    switch (f->number) {
    case MODEL_PIECES:
        m->n_pieces++;
        m->n_piece_bytes += f->bytes.end - f->bytes.at;
        return check_piece(m, &f->bytes, error);
    case MODEL_TRAINER:
        return read_message(m, f->number, f->bytes, "trainer_spec", error);
    case MODEL_NORMALIZER:
        return read_message(m, f->number, f->bytes, "normalizer_spec", error);
    case MODEL_DENORMALIZER:
        return read_message(m, f->number, f->bytes, "denormalizer_spec", error);
    default:
        return MF_OK;
    }
}

mf_status mf_spm_model_read(mf_spm_model *model, const char *path, const void *data, size_t n_bytes,
                            mf_error *error)
{
    proto_reader r = {data, 0, n_bytes};
    proto_field f = {0};
    mf_spm_model m = {.path = path,
                      .data = data,
                      .n_bytes = n_bytes,
                      .kind = MF_SPM_UNIGRAM,
                      .start_id = 1,
                      .end_id = 2,
                      .adds_blank = true,
                      .removes_extra_blanks = true,
                      .marks_blanks = true};
    while (r.at < r.end) {
        const size_t at = r.at;
        if (!read_field(&r, &f))
            return mf_fail(error, MF_ERR_FORMAT,
                           "%s: byte %zu: expected a field of a SentencePiece model", path, at);
        MF_TRY(take_field(&m, &f, error));
    }
    if (m.n_pieces == 0 || m.n_pieces > MAX_PIECES)
        return mf_fail(error, MF_ERR_FORMAT, "%s: %zu pieces, expected 1 to %zu", path, m.n_pieces,
                       MAX_PIECES);
    *model = m;
    return MF_OK;
}

bool mf_spm_model_next(const mf_spm_model *model, size_t *at, mf_spm_piece *out)
{
    proto_reader r = {model->data, *at, model->n_bytes};
    proto_field f = {0};
    while (r.at < r.end && read_field(&r, &f)) {
        *at = r.at;
        if (f.type == WIRE_BYTES && f.number == MODEL_PIECES)
            return read_piece(f.bytes, out);
    }
    return false;
}
