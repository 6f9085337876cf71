/* SPDX-License-Identifier: MIT */
/* Why a request is not answered, and how each API says so. */
#ifndef MF_SERVER_REFUSAL_H
#define MF_SERVER_REFUSAL_H

#include "bytes.h"

#include <moeflux/moeflux.h>

typedef enum mf_srv_shape { MF_SRV_OPENAI, MF_SRV_ANTHROPIC } mf_srv_shape;

#define MF_SRV_PARAM_BYTES 96

typedef struct mf_srv_refusal {
    int status; /* of HTTP */
    /* OpenAI's code; NULL: none. Static storage. */
    const char *code;
    /* The field that is at fault; "": none. */
    char param[MF_SRV_PARAM_BYTES];
    char message[1024];
    unsigned retry_after_s; /* 0: none */
} mf_srv_refusal;

/* Each returns false, for `return mf_srv_refuse...`. */
__attribute__((format(printf, 3, 4))) bool mf_srv_refuse(mf_srv_refusal *r, int status,
                                                         const char *format, ...);
/* 400, about a field. */
__attribute__((format(printf, 3, 4))) bool mf_srv_refuse_field(mf_srv_refusal *r, const char *field,
                                                               const char *format, ...);
/* What a failed call of the library comes to. */
bool mf_srv_refuse_status(mf_srv_refusal *r, mf_status status, const mf_error *error);
/* The prompt does not fit the context, in the words that agents look for. */
bool mf_srv_refuse_context(mf_srv_refusal *r, mf_srv_shape shape, size_t n_tokens, size_t n_max);

/* The body of the answer. */
void mf_srv_put_refusal(mf_srv_bytes *out, mf_srv_shape shape, const mf_srv_refusal *r,
                        const char *request_id);

#endif
