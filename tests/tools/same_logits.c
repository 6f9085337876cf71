/* SPDX-License-Identifier: MIT */
/*
 * same_logits DIR...: evaluates the same tokens with each checkpoint. Every logit must be finite
 * and of order one, tokens must differ in theirs, and all checkpoints must give the same bits.
 */
#include "moeflux/moeflux.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS = 12 };

typedef struct logits {
    size_t n_vocab;
    float *values; /* [N_TOKENS, n_vocab] */
} logits;

static int keep(void *user, size_t index, const float *row)
{
    logits *l = user;
    memcpy(l->values + index * l->n_vocab, row, l->n_vocab * sizeof *row);
    return 0;
}

static int evaluate(const char *path, logits *out)
{
    mf_engine_options options;
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    mf_model_info info;
    mf_error error = {0};
    int32_t tokens[N_TOKENS];
    mf_engine_options_default(&options);
    options.n_threads = 1;
    options.n_context_tokens = 64;
    options.cpu_tier =
        "scalar"; /* floats of all widths alike: a router is F32 in one form, BF16 in another */
    if (mf_engine_open(path, &options, &engine, &error) != MF_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    mf_engine_info(engine, &info);
    out->n_vocab = info.n_vocab;
    out->values = calloc(N_TOKENS * out->n_vocab, sizeof *out->values);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (int32_t)(i * 7919 % info.n_vocab);
    int failed = out->values == NULL || mf_session_create(engine, &session, &error) != MF_OK ||
                 mf_session_eval_each(session, tokens, N_TOKENS, keep, out, &error) != MF_OK;
    if (failed)
        fprintf(stderr, "%s\n", error.message);
    mf_session_free(&session);
    mf_engine_close(&engine);
    return failed;
}

static int check_values(const char *path, const logits *l)
{
    for (size_t t = 0; t < N_TOKENS; t++) {
        const float *row = l->values + t * l->n_vocab;
        double sum = 0;
        for (size_t i = 0; i < l->n_vocab; i++)
            sum += (double)row[i] * row[i];
        double rms = sqrt(sum / (double)l->n_vocab);
        if (!(rms > 0.2 && rms < 5)) {
            fprintf(stderr, "%s: token %zu: root mean square of the logits is %g\n", path, t, rms);
            return 1;
        }
        if (t > 0 && memcmp(row, row - l->n_vocab, l->n_vocab * sizeof *row) == 0) {
            fprintf(stderr, "%s: tokens %zu and %zu have the same logits\n", path, t - 1, t);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    logits first = {0};
    int failed = argc < 2;
    for (int i = 1; i < argc && !failed; i++) {
        logits l = {0};
        failed = evaluate(argv[i], &l) || check_values(argv[i], &l);
        if (i == 1) {
            first = l;
            continue;
        }
        if (!failed &&
            (l.n_vocab != first.n_vocab ||
             memcmp(l.values, first.values, N_TOKENS * l.n_vocab * sizeof(float)) != 0)) {
            fprintf(stderr, "%s and %s differ\n", argv[1], argv[i]);
            failed = 1;
        }
        free(l.values);
    }
    free(first.values);
    return failed;
}
