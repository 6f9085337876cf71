/* SPDX-License-Identifier: MIT */
/* Part of <moeflux/moeflux.h>, which programs include and which states the conventions: from logits
 * to a token. */
#ifndef MOEFLUX_SAMPLING_H
#define MOEFLUX_SAMPLING_H

#include <moeflux/text.h>
#include <moeflux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mf_sampler mf_sampler;

/* Added to a token's logit before anything else. */
typedef struct mf_logit_bias {
    int32_t token;
    float bias; /* finite, or -INFINITY: never drawn while there is another */
} mf_logit_bias;

/* Fill with mf_sampler_options_default, then change what is needed. */
typedef struct mf_sampler_options {
    size_t struct_bytes;
    /* 0: greedy (the first of equal maxima). */
    float temperature;
    /* 0: off. */
    uint32_t top_k;
    /* 1: off. */
    float top_p;
    /* 0: off. */
    float min_p;
    /* 1: off; over all tokens accepted. */
    float repetition_penalty;
    uint64_t seed;
    /* Subtracted from the logit of every token of the answer so far: once, and for each time that
     * it is there. 0: off. */
    float presence_penalty;
    float frequency_penalty;
    /* [n_biases]; of several of a token the last counts. Copied by mf_sampler_create. */
    const mf_logit_bias *biases;
    size_t n_biases;

    /* DRY (Weidmann 2024, text-generation-webui #5677; as llama.cpp #9702): where the sequence ends
     * in n tokens that stand in it before, and n >= dry_allowed_length, the token that followed
     * them there loses dry_multiplier * dry_base^(n - dry_allowed_length). 0: off. */
    float dry_multiplier;
    float dry_base;              /* 1 or more */
    uint32_t dry_allowed_length; /* 1 or more */
    /* How much of the sequence is looked at, prompt included; 16 bytes are held for each. */
    uint32_t dry_n_tokens;
    /* [n_dry_breakers], none empty; copied. No repetition goes over one, and a token that one
     * stands in loses nothing. What tokens stand for is asked of tokenizer, which has to outlive
     * the sampler; NULL where there are no breakers. */
    const char *const *dry_breakers;
    size_t n_dry_breakers;
    const mf_tokenizer *tokenizer;

    /* XTC (Weidmann 2024, text-generation-webui #6335): with this probability, of the tokens that
     * have at least xtc_threshold of what the steps before left, all but the least likely one go.
     * 0: off. A threshold above 0.5 does nothing. */
    float xtc_probability;
    float xtc_threshold;
} mf_sampler_options;

MF_API void mf_sampler_options_init(mf_sampler_options *options, size_t struct_bytes);
/* temperature 1, everything else off, seed 0; for those who turn them on: dry_base 1.75,
 * dry_allowed_length 2, dry_n_tokens 4096, xtc_threshold 0.1. */
static inline void mf_sampler_options_default(mf_sampler_options *options)
{
    mf_sampler_options_init(options, sizeof *options);
}

/* Overwrites the fields that PATH/generation_config.json names (do_sample false: temperature 0), or
 * that a GGUF file's metadata has. Where there is neither all are as they were. Errors:
 * MF_ERR_ARGUMENT, _NO_MEMORY, _IO, _FORMAT. */
MF_API MF_MUST_CHECK mf_status mf_sampler_options_load(const char *path,
                                                       mf_sampler_options *options,
                                                       mf_error *error);

/*
 * The steps, in this order: logit bias, repetition penalty, presence and frequency penalties, DRY,
 * temperature, top-k, top-p, min-p, XTC, the draw. Those up to min-p are in the order of
 * transformers, penalties as vLLM has them; XTC comes last, as its author asks. At temperature 0
 * the highest score after DRY is taken.
 *
 * The same seed, options and logits give the same tokens. allocator may be NULL. Errors:
 * MF_ERR_ARGUMENT (an option out of range), _NO_MEMORY.
 */
MF_API MF_MUST_CHECK mf_status mf_sampler_create(const mf_sampler_options *options, size_t n_vocab,
                                                 const mf_allocator *allocator, mf_sampler **out,
                                                 mf_error *error);
MF_API void mf_sampler_free(mf_sampler **sampler);

/* Tells the sampler of a token that is now in the sequence (for the penalties). Out-of-range ids
 * are ignored. */
MF_API void mf_sampler_accept(mf_sampler *sampler, int32_t token);

/* The same for tokens that stand before the answer: only the repetition penalty and DRY count
 * them. */
MF_API void mf_sampler_accept_prompt(mf_sampler *sampler, const int32_t *tokens, size_t n_tokens);

/* Chooses a token from logits[n_vocab]; does not accept it. Allocates nothing. */
MF_API int32_t mf_sampler_sample(mf_sampler *sampler, const float *logits);

/* The same among the tokens whose bit is set, i % 32 of allowed[i / 32], as mf_guide_mask gives
 * them; all other steps see those alone. NULL: all. At least one must be. */
MF_API int32_t mf_sampler_sample_masked(mf_sampler *sampler, const float *logits,
                                        const uint32_t *allowed);

/*
 * The same token as mf_sampler_sample_masked, and the same random numbers drawn; sooner where what
 * is looked for is in few blocks of MF_LOGITS_BLOCK logits. bounds[i]: the highest of the i-th
 * block, of which the last may have fewer, as mf_session_bounds has them; none of the logits is NaN
 * or infinite. NULL: they are not known.
 */
#define MF_LOGITS_BLOCK 1024
MF_API int32_t mf_sampler_sample_bounded(mf_sampler *sampler, const float *logits,
                                         const float *bounds, const uint32_t *allowed);

/* Instead of a choice where there is only one token to choose (mf_guide_forced), so that no logits
 * are needed: draws the random numbers that the choice would have drawn. What follows is chosen as
 * it would be otherwise. */
MF_API void mf_sampler_skip(mf_sampler *sampler);

/* Forgets accepted tokens, and goes on with the random numbers: for the next answer of a chat. */
MF_API void mf_sampler_forget(mf_sampler *sampler);

/* Forgets accepted tokens and starts the seed again. */
MF_API void mf_sampler_reset(mf_sampler *sampler);

typedef struct mf_logprob {
    int32_t token;
    float logprob; /* natural logarithm */
} mf_logprob;

/*
 * What the model itself thinks of a token, before any sampling: the logarithm of its share of
 * softmax(logits[n_vocab]). Writes the n_top likeliest tokens (of equal ones the lower id first) to
 * top, as far as there are so many; the others become {-1, -INFINITY}. NAN for a token out of
 * range, and for all, none of them likeliest, where a logit is NAN or INFINITY, as none of an
 * engine's is.
 */
MF_API float mf_logprob_of(const float *logits, size_t n_vocab, int32_t token, mf_logprob *top,
                           size_t n_top);

#ifdef __cplusplus
}
#endif
#endif
