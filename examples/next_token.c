/* SPDX-License-Identifier: MIT */
/*
 * The shortest program: the token that a model finds most likely after some others, by their ids.
 *
 *     cc next_token.c $(pkg-config --cflags --libs moeflux) -o next_token
 *     ./next_token models/demo $(moeflux tokenize models/demo --ids -p "Once upon a time")
 */
#include <moeflux/moeflux.h>

#include <stdio.h>
#include <stdlib.h>

static int most_likely(const mf_engine *engine, const float *logits)
{
    mf_model_info info;
    uint32_t best = 0;
    mf_engine_info(engine, &info);
    for (uint32_t i = 1; i < info.n_vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int)best;
}

int main(int argc, char **argv)
{
    int32_t tokens[256];
    size_t n_tokens = 0;
    if (argc < 3 || argc - 2 > 256) {
        fprintf(stderr, "usage: next_token MODEL ID...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++)
        tokens[n_tokens++] = (int32_t)atol(argv[i]);

    mf_engine_options options;
    mf_engine_options_default(&options);
    options.ram_bytes = 3ull << 30; /* of the whole process */
    mf_error error = {0};
    mf_engine *engine = NULL;
    mf_session *session = NULL;
    if (mf_engine_open(argv[1], &options, &engine, &error) != MF_OK ||
        mf_session_create(engine, &session, &error) != MF_OK ||
        mf_session_eval(session, tokens, n_tokens, &error) != MF_OK)
        fprintf(stderr, "next_token: %s\n", error.message);
    else
        printf("%d\n", most_likely(engine, mf_session_logits(session)));
    mf_session_free(&session);
    mf_engine_close(&engine);
    return error.code == MF_OK ? 0 : 1;
}
