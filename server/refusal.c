/* SPDX-License-Identifier: MIT */
/* Errors in OpenAI's and Anthropic's shapes. */
#include "refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool mf_srv_refuse(mf_srv_refusal *r, int status, const char *format, ...)
{
    va_list args;
    *r = (mf_srv_refusal){.status = status};
    va_start(args, format);
    vsnprintf(r->message, sizeof r->message, format, args);
    va_end(args);
    return false;
}

bool mf_srv_refuse_field(mf_srv_refusal *r, const char *field, const char *format, ...)
{
    char text[sizeof r->message - MF_SRV_PARAM_BYTES - 4];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    *r = (mf_srv_refusal){.status = 400};
    snprintf(r->param, sizeof r->param, "%s", field);
    snprintf(r->message, sizeof r->message, "%s: %s", r->param, text);
    return false;
}

bool mf_srv_refuse_status(mf_srv_refusal *r, mf_status status, const mf_error *error)
{
    int http = 500;
    switch (status) {
    case MF_ERR_ARGUMENT:
    case MF_ERR_UNSUPPORTED:
    case MF_ERR_NOT_FOUND:
    case MF_ERR_CONTEXT:
        http = 400; /* of the client's making, and so not to be tried again */
        break;
    case MF_ERR_BUDGET:
    case MF_ERR_NO_MEMORY:
        http = 503;
        break;
    case MF_ERR_CANCELLED:
        http = 504;
        break;
    default:
        break;
    }
    mf_srv_refuse(r, http, "%s", *error->message ? error->message : mf_status_name(status));
    if (status == MF_ERR_CONTEXT)
        r->code = "context_length_exceeded";
    return false;
}

bool mf_srv_refuse_context(mf_srv_refusal *r, mf_srv_shape shape, size_t n_tokens, size_t n_max)
{
    if (shape == MF_SRV_ANTHROPIC)
        mf_srv_refuse(r, 400, "prompt is too long: %zu tokens > %zu maximum", n_tokens, n_max);
    else
        mf_srv_refuse(r, 400,
                      "This model's maximum context length is %zu tokens. However, your request "
                      "(%zu tokens) exceeds the available context size (%zu tokens).",
                      n_max, n_tokens, n_max);
    r->code = "context_length_exceeded";
    return false;
}

static const struct {
    int status;
    const char *openai, *anthropic;
} types[] = {
    {400, "invalid_request_error", "invalid_request_error"},
    {401, "authentication_error", "authentication_error"},
    {403, "permission_error", "permission_error"},
    {404, "not_found_error", "not_found_error"},
    {405, "invalid_request_error", "invalid_request_error"},
    {408, "timeout_error", "timeout_error"},
    {413, "invalid_request_error", "request_too_large"},
    {415, "invalid_request_error", "invalid_request_error"},
    {429, "rate_limit_error", "rate_limit_error"},
    {503, "overloaded_error", "overloaded_error"},
    {504, "timeout_error", "timeout_error"},
    {500, "server_error", "api_error"}, /* and all others */
};

void mf_srv_put_refusal(mf_srv_bytes *out, mf_srv_shape shape, const mf_srv_refusal *r,
                        const char *request_id)
{
    size_t i = 0;
    while (i + 1 < sizeof types / sizeof *types && types[i].status != r->status)
        i++;
    if (shape == MF_SRV_ANTHROPIC) {
        mf_srv_printf(
            out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", types[i].anthropic);
        mf_srv_puts_json(out, r->message);
        mf_srv_printf(out, "},\"request_id\":\"%s\"}", request_id);
        return;
    }
    mf_srv_puts(out, "{\"error\":{\"message\":");
    mf_srv_puts_json(out, r->message);
    mf_srv_printf(out, ",\"type\":\"%s\",\"param\":", types[i].openai);
    if (*r->param)
        mf_srv_puts_json(out, r->param);
    else
        mf_srv_puts(out, "null");
    mf_srv_puts(out, ",\"code\":");
    if (r->code)
        mf_srv_puts_json(out, r->code);
    else
        mf_srv_puts(out, "null");
    mf_srv_puts(out, "}}");
}
