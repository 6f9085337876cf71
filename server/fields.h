/* SPDX-License-Identifier: MIT */
/*
 * Fields of requests. Each API has a table of those that it knows: what is not in it is refused by
 * name, for it may change the answer. null is as good as absent.
 */
#ifndef MF_SERVER_FIELDS_H
#define MF_SERVER_FIELDS_H

#include "job.h"

#include "yyjson_prefix.h"

#include "yyjson.h"

typedef enum mf_srv_field_kind {
    MF_SRV_FIELD_USED,
    MF_SRV_FIELD_HARMLESS, /* taken and ignored: the answer is the same */
    MF_SRV_FIELD_REFUSED,  /* unless it says nothing: false, 0, "", [], {} */
    MF_SRV_FIELD_UNHEARD,  /* likewise, but {} asks for something, as it is by default */
} mf_srv_field_kind;

typedef struct mf_srv_field {
    const char *name; /* NULL: the end */
    mf_srv_field_kind kind;
} mf_srv_field;

/* Every name in the tables, and none twice. what: of the object, "" for the body itself. */
bool mf_srv_check_fields(yyjson_val *object, const char *what, const mf_srv_field *const *tables,
                         mf_srv_refusal *r);

/* The same of one table, for what has to be an object. */
bool mf_srv_check_object(yyjson_val *object, const char *what, const mf_srv_field *table,
                         mf_srv_refusal *r);
/* NULL where it is absent or null. Of names with points, here and below, the last part is the
 * field's of this object, and all of it is said in messages: thinking.budget_tokens. */
yyjson_val *mf_srv_field_of(yyjson_val *object, const char *name);

/* Each leaves *out alone where the field is absent, and refuses one that is something else. */
bool mf_srv_get_bool(yyjson_val *object, const char *name, bool *out, mf_srv_refusal *r);
bool mf_srv_get_float(yyjson_val *object, const char *name, double min, double max, float *out,
                      mf_srv_refusal *r);
bool mf_srv_get_count(yyjson_val *object, const char *name, uint64_t min, uint64_t max, size_t *out,
                      mf_srv_refusal *r);
/* Likewise, or -1, as clients of other servers say that there is no limit: SIZE_MAX. */
bool mf_srv_get_limit(yyjson_val *object, const char *name, uint64_t min, uint64_t max, size_t *out,
                      mf_srv_refusal *r);
/* An object of fields in the table alone; *out is NULL where it is absent, and as an object all of
 * whose fields are. */
bool mf_srv_get_object(yyjson_val *object, const char *name, const mf_srv_field *table,
                       yyjson_val **out, mf_srv_refusal *r);
/* Of the answer's tokens; without a limit as many as the context holds. */
bool mf_srv_get_token_limit(yyjson_val *object, const char *name, uint64_t min, size_t *out,
                            mf_srv_refusal *r);
/* Valid as long as the document; without NUL within. */
bool mf_srv_get_string(yyjson_val *object, const char *name, const char **out, mf_srv_refusal *r);
/* One of the words (NULL-terminated): its index. */
bool mf_srv_get_word(yyjson_val *object, const char *name, const char *const *words, int *out,
                     mf_srv_refusal *r);
/* The value is a string without NUL within. field: for the message. */
bool mf_srv_is_text(yyjson_val *value, const char *field, mf_srv_refusal *r);

/* What all APIs that answer share: sampling, seed, penalties, bias, ignore_eos. */
extern const mf_srv_field mf_srv_sampling_fields[];
/* What clients send and no answer depends on. */
extern const mf_srv_field mf_srv_harmless_fields[];
bool mf_srv_get_sampling(yyjson_val *object, size_t n_vocab, mf_srv_params *params,
                         mf_srv_refusal *r);
/* DRY and XTC, which are part of it. */
bool mf_srv_get_dry(yyjson_val *object, const struct mf_srv_model *model, mf_srv_params *params,
                    mf_srv_refusal *r);
/* A string or several. */
bool mf_srv_get_stops(yyjson_val *object, const char *name, mf_srv_params *params,
                      mf_srv_refusal *r);
bool mf_srv_get_stream_options(yyjson_val *object, mf_srv_params *params, mf_srv_refusal *r);
/* Sets job->model. */
bool mf_srv_get_model(yyjson_val *object, mf_srv_job *job, mf_srv_refusal *r);

#endif
