/* SPDX-License-Identifier: MIT */
/* The demo model's perplexity on the held-out chapter, against transformers on the dequantised
 * weights. */
#include "golden.h"

#include "format/json.h"

#include <math.h>

#define MODEL "models/demo"
#define GOLDEN GOLDEN_ROOT "/demo_perplexity.json"
#define TOLERANCE 1e-3 /* relative */

typedef struct score {
    const int32_t *tokens;
    size_t n_tokens, n_vocab;
    double nll; /* sum over the tokens predicted so far */
} score;

/* -log softmax(logits)[next], in float64 */
static int add_token(void *user, size_t index, const float *logits)
{
    score *s = user;
    if (index + 1 >= s->n_tokens)
        return 0;
    double max = logits[0], sum = 0.0;
    for (size_t i = 1; i < s->n_vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    for (size_t i = 0; i < s->n_vocab; i++)
        sum += exp(logits[i] - max);
    s->nll += max + log(sum) - logits[s->tokens[index + 1]];
    return 0;
}

/* The first n tokens of the held-out chapter; freed by the caller. */
static int32_t *held_out_tokens(size_t n)
{
    mf_error error = {0};
    mf_tokenizer *tokenizer = NULL;
    size_t n_bytes, n_tokens;
    unsigned char *text = read_file(MODEL "/heldout.txt", &n_bytes);
    REQUIRE_OK(mf_tokenizer_open(MODEL, NULL, &tokenizer, &error), &error);
    int32_t *tokens = malloc(n_bytes * sizeof *tokens);
    REQUIRE(tokens != NULL);
    REQUIRE_OK(mf_tokenizer_encode(tokenizer, (const char *)text, n_bytes, 0, tokens, n_bytes,
                                   &n_tokens, &error),
               &error);
    REQUIRE(n_tokens >= n);
    mf_tokenizer_free(&tokenizer);
    free(text);
    return tokens;
}

static double perplexity(const int32_t *tokens, size_t n_tokens)
{
    mf_error error = {0};
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_model_info info;
    mf_engine_options options;
    mf_engine_options_default(&options);
    options.n_context_tokens = (uint32_t)n_tokens;
    REQUIRE_OK(mf_engine_open(MODEL, &options, &engine, &error), &error);
    mf_engine_info(engine, &info);
    REQUIRE_OK(mf_session_create(engine, &session, &error), &error);
    score s = {tokens, n_tokens, info.n_vocab, 0.0};
    REQUIRE_OK(mf_session_eval_each(session, tokens, n_tokens, add_token, &s, &error), &error);
    mf_session_free(&session);
    mf_engine_close(&engine);
    return exp(s.nll / (double)(n_tokens - 1));
}

int main(void)
{
    const mf_allocator a = mf_allocator_default();
    mf_error error = {0};
    mf_json json = {0};
    REQUIRE_OK(mf_json_read(&a, GOLDEN, 1 << 20, &json, &error), &error);
    size_t n_tokens = yyjson_get_uint(yyjson_obj_get(json.root, "tokens"));
    double expected = yyjson_get_real(yyjson_obj_get(json.root, "perplexity"));
    REQUIRE(n_tokens > 1000 && expected > 1.0);
    int32_t *tokens = held_out_tokens(n_tokens);
    double got = perplexity(tokens, n_tokens);
    CHECK_MSG(fabs(got / expected - 1.0) <= TOLERANCE, "perplexity %.6f, transformers has %.6f",
              got, expected);
    free(tokens);
    mf_json_free(&json);
    return test_result();
}
