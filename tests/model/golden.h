/* SPDX-License-Identifier: MIT */
/*
 * The golden cases of tests/model/data and what every test of whole models does with them: read
 * golden.bin, open an engine, collect the logits of every position.
 */
#ifndef MF_TESTS_GOLDEN_H
#define MF_TESTS_GOLDEN_H

#include "test.h"

#define GOLDEN_ROOT "tests/model/data"

/* Whether the engines of this program run on a device: no instruction set of the CPU matters. */
#ifdef MF_TEST_ON_DEVICE
#define GOLDEN_ON_DEVICE true
#else
#define GOLDEN_ON_DEVICE false
#endif

/* Whether a loop over many alike is to be short: on a device, which may be one in software, unless
 * MF_TEST_LONG is set (make test-gpu). */
bool golden_is_short(void);

typedef struct golden_case {
    const char *name;             /* a directory of tests/model/data */
    const char *golden;           /* its golden file */
    uint32_t packed_bits;         /* mf_engine_options.packed_expert_bits */
    uint32_t n_experts_per_token; /* mf_engine_options.n_experts_per_token */
    uint32_t n_context;           /* mf_engine_options.n_context_tokens; 0: 160 */
} golden_case;

extern const golden_case golden_cases[];
extern const size_t n_golden_cases;

const golden_case *golden_case_find(const char *name);

/* Whether a program's arguments name the case, or all of them are as -NAME and none is its. */
bool golden_is_asked_for(const golden_case *c, int argc, char **argv);

typedef struct golden {
    uint32_t n_tokens, n_vocab, n_layers, hidden_size, n_positions, n_logits;
    int32_t *tokens;     /* [n_tokens] */
    uint32_t *positions; /* [n_positions], those that hidden is stored of */
    float *hidden;       /* [n_layers, n_positions, hidden_size], residual stream after the layer */
    float *logits;       /* [n_logits, n_vocab] */
    bool has_few;        /* logits are of `positions`; otherwise of every token */
    unsigned char *file;
} golden;

/* Ends the program if the file is not as expected. */
void golden_read(const golden_case *c, golden *out);
void golden_free(golden *g);

/* The position that row i of the logits is of. */
uint32_t golden_position(const golden *g, uint32_t i);

/* True if this build and this machine have kernels of exactly this tier; of those that a device
 * has no use for, one. */
bool golden_has_tier(uint32_t tier);

/* A progress callback that ends the evaluation when it is asked for the at-th time. */
typedef struct golden_stopper {
    uint64_t at, n_asked;
} golden_stopper;
int golden_stop(void *stopper, uint64_t n_done, uint64_t n_total);

/* "tests/model/data/NAME"; static storage, valid until the next call but three. */
const char *golden_path(const char *name);

/* Options of the case, with room for its tokens; the rest is the library's defaults. */
mf_engine_options golden_options(const golden_case *c);

/* Opens an engine or ends the program. */
mf_engine *golden_open(const golden_case *c, const mf_engine_options *options);

/* Creates a session or ends the program. */
mf_session *golden_session(mf_engine *engine);

/* Evaluates the tokens in one call, copying each one's logits to out [n_tokens, n_vocab]. */
mf_status golden_eval(mf_session *session, const int32_t *tokens, size_t n_tokens, size_t n_vocab,
                      float *out, mf_error *error);

/* A whole run: engine, session, evaluation, close. Returns logits [n_tokens, n_vocab] to be freed,
 * or NULL with `error` filled. */
float *golden_run(const golden_case *c, const golden *g, const mf_engine_options *options,
                  mf_error *error);

/* A whole file; ends the program if it cannot be read. Freed by the caller. */
unsigned char *read_file(const char *path, size_t *n_bytes);

#endif
