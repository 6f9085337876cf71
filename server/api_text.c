/* SPDX-License-Identifier: MIT */
/* Text to tokens, tokens to text, messages to text: asked of the tokenizer, and not queued. */
#include "api.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const mf_srv_field tokenize_fields[] = {
    {"content", MF_SRV_FIELD_USED},     {"prompt", MF_SRV_FIELD_USED},
    {"add_special", MF_SRV_FIELD_USED}, {"parse_special", MF_SRV_FIELD_USED},
    {"with_pieces", MF_SRV_FIELD_USED}, {"model", MF_SRV_FIELD_HARMLESS},
    {NULL, MF_SRV_FIELD_USED}};
static const mf_srv_field detokenize_fields[] = {
    {"tokens", MF_SRV_FIELD_USED}, {"model", MF_SRV_FIELD_HARMLESS}, {NULL, MF_SRV_FIELD_USED}};
static const mf_srv_field template_fields[] = {{"messages", MF_SRV_FIELD_USED},
                                               {"chat_template_kwargs", MF_SRV_FIELD_USED},
                                               {"reasoning_effort", MF_SRV_FIELD_USED},
                                               {"tools", MF_SRV_FIELD_USED},
                                               {"tool_choice", MF_SRV_FIELD_USED},
                                               {"parallel_tool_calls", MF_SRV_FIELD_HARMLESS},
                                               {"documents", MF_SRV_FIELD_USED},
                                               {"model", MF_SRV_FIELD_HARMLESS},
                                               {NULL, MF_SRV_FIELD_USED}};

static bool find_text(yyjson_val *object, yyjson_val **text, mf_srv_refusal *r)
{
    yyjson_val *prompt = mf_srv_field_of(object, "prompt");
    *text = mf_srv_field_of(object, "content");
    if (*text && prompt)
        return mf_srv_refuse_field(r, "prompt", "content is given, too");
    if (!*text)
        *text = prompt;
    return yyjson_is_str(*text) || mf_srv_refuse_field(r, "content", "expected a string");
}

static void put_tokens(const mf_srv_model *model, const mf_srv_prompt *prompt, bool has_pieces,
                       mf_srv_bytes *out)
{
    mf_srv_puts(out, "{\"tokens\":[");
    for (size_t i = 0; i < prompt->n_tokens; i++) {
        mf_srv_puts(out, i > 0 ? "," : "");
        mf_srv_printf(out, has_pieces ? "{\"id\":%" PRId32 ",\"piece\":" : "%" PRId32,
                      prompt->tokens[i]);
        if (has_pieces) {
            size_t n = 0;
            const char *piece = mf_tokenizer_piece(model->tokenizer, prompt->tokens[i], &n);
            mf_srv_put_json(out, piece ? piece : "", n);
            mf_srv_puts(out, "}");
        }
    }
    mf_srv_printf(out, "],\"count\":%zu,\"max_model_len\":%lu}", prompt->n_tokens,
                  (unsigned long)model->info.n_context_tokens);
}

bool mf_srv_api_tokenize(mf_srv_request *request, mf_srv_refusal *r)
{
    static const mf_srv_field *const tables[] = {tokenize_fields, NULL};
    const mf_srv_model *model = &request->server->model;
    bool adds_special = false, parses_special = true, has_pieces = false;
    mf_srv_prompt prompt = {0};
    yyjson_val *text;
    if (!mf_srv_check_fields(request->json, "", tables, r) || !find_text(request->json, &text, r) ||
        !mf_srv_get_bool(request->json, "add_special", &adds_special, r) ||
        !mf_srv_get_bool(request->json, "parse_special", &parses_special, r) ||
        !mf_srv_get_bool(request->json, "with_pieces", &has_pieces, r))
        return false;
    const char *s = yyjson_get_str(text);
    const size_t n = yyjson_get_len(text);
    bool is_good = adds_special ? mf_srv_prompt_text(model, s, n, parses_special, &prompt, r)
                                : mf_srv_encode(model, s, n, parses_special, &prompt, r);
    if (is_good)
        put_tokens(model, &prompt, has_pieces, &request->answer);
    mf_srv_prompt_free(&prompt);
    return is_good;
}

/* The text of a token, or what was held back if token < 0. */
static bool decode(const mf_srv_model *model, mf_decoder *decoder, int32_t token, mf_srv_bytes *out)
{
    size_t n_piece = 0, n = 0;
    if (token >= 0 && !mf_tokenizer_piece(model->tokenizer, token, &n_piece))
        return true;
    char *text = malloc(3 * n_piece + 12);
    if (!text)
        return false;
    if (mf_tokenizer_decode(model->tokenizer, decoder, token, text, 3 * n_piece + 12, &n) == MF_OK)
        mf_srv_put(out, text, n);
    free(text);
    return !out->has_failed;
}

bool mf_srv_api_detokenize(mf_srv_request *request, mf_srv_refusal *r)
{
    static const mf_srv_field *const tables[] = {detokenize_fields, NULL};
    const mf_srv_model *model = &request->server->model;
    yyjson_val *tokens = mf_srv_field_of(request->json, "tokens"), *v;
    mf_decoder decoder = {{0}, 0};
    mf_srv_bytes text = {0};
    size_t i, n;
    bool is_good = mf_srv_check_fields(request->json, "", tables, r) &&
                   (yyjson_is_arr(tokens) ||
                    mf_srv_refuse_field(r, "tokens", "expected an array of token ids"));
    if (!is_good)
        return false;
    yyjson_arr_foreach(tokens, i, n, v)
    {
        if (is_good &&
            (!yyjson_is_uint(v) || yyjson_get_uint(v) >= mf_tokenizer_n_vocab(model->tokenizer)))
            is_good = mf_srv_refuse_field(r, "tokens", "expected token ids below %zu",
                                          mf_tokenizer_n_vocab(model->tokenizer));
        is_good = is_good && (decode(model, &decoder, (int32_t)yyjson_get_uint(v), &text) ||
                              mf_srv_refuse(r, 503, "out of memory"));
    }
    if (is_good && decode(model, &decoder, -1, &text)) {
        mf_srv_puts(&request->answer, "{\"content\":");
        mf_srv_put_json(&request->answer, text.data ? text.data : "", text.n_bytes);
        mf_srv_puts(&request->answer, "}");
    }
    mf_srv_bytes_free(&text);
    return is_good;
}

bool mf_srv_api_template(mf_srv_request *request, mf_srv_refusal *r)
{
    static const mf_srv_field *const tables[] = {template_fields, NULL};
    mf_srv_conversation c = {0};
    mf_srv_bytes text = {0};
    size_t n_thought_max;
    bool is_good =
        mf_srv_check_fields(request->json, "", tables, r) &&
        mf_srv_read_thinking(request->json, &request->server->model, &c, &n_thought_max, r) &&
        mf_srv_read_documents(request->json, &c, r) &&
        mf_srv_read_chat_tools(request->json, &c, r) && mf_srv_read_chat(request->json, &c, r) &&
        mf_srv_prompt_chat_text(&request->server->model, &c, &text, r);
    if (is_good) {
        mf_srv_puts(&request->answer, "{\"prompt\":");
        mf_srv_put_json(&request->answer, text.data ? text.data : "", text.n_bytes);
        mf_srv_puts(&request->answer, "}");
    }
    mf_srv_bytes_free(&text);
    mf_srv_conversation_free(&c);
    return is_good;
}
