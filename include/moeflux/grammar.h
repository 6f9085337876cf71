/* SPDX-License-Identifier: MIT */
/* Part of <moeflux/moeflux.h>, which programs include and which states the conventions: what an
 * answer may look like. */
#ifndef MOEFLUX_GRAMMAR_H
#define MOEFLUX_GRAMMAR_H

#include <moeflux/reply.h>
#include <moeflux/text.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A grammar says which texts are allowed; a guide follows one text, token by token, and says which
 * tokens may come next. Text is bytes of valid UTF-8. Added tokens (special ones, and what else a
 * tokenizer cuts out of text) stand for no bytes: a grammar that wants one names it.
 */
typedef struct mf_vocabulary mf_vocabulary;
typedef struct mf_grammar mf_grammar;
typedef struct mf_guide mf_guide;

/* The tokens of a tokenizer by their bytes: made once, for all grammars (about 50 bytes for each
 * token). The tokenizer must outlive it. allocator may be NULL. Threads may share it. Errors:
 * MF_ERR_ARGUMENT, _NO_MEMORY. */
MF_API MF_MUST_CHECK mf_status mf_vocabulary_create(const mf_tokenizer *tokenizer,
                                                    const mf_allocator *allocator,
                                                    mf_vocabulary **out, mf_error *error);
/* Grammars that were made for it keep what they need. */
MF_API void mf_vocabulary_free(mf_vocabulary **vocabulary);

/* A value in a grammar's text that is given as a JSON schema. */
typedef struct mf_grammar_schema {
    const char *name; /* of the rule that stands for it */
    const char *schema;
    size_t n_bytes;
} mf_grammar_schema;

/* What to allow: exactly one of json_schema, json_object and gbnf. Fill with
 * mf_grammar_params_default. */
typedef struct mf_grammar_params {
    size_t struct_bytes;
    /* A JSON schema, as docs/GRAMMAR.md has it; n_bytes of it. */
    const char *json_schema;
    size_t n_schema_bytes;
    /* Non-zero: any JSON object. */
    int json_object;
    /* Rules in GBNF, of which "root" is the text; n_bytes of them. */
    const char *gbnf;
    size_t n_gbnf_bytes;
    /* With gbnf: further rules, each a JSON schema. */
    const mf_grammar_schema *schemas;
    size_t n_schemas;
    /* With gbnf, non-zero: added tokens whose text stands in a literal are those tokens. */
    int literal_tokens;
    /* The most memory for masks that are kept; 0: 64 MiB. */
    size_t max_mask_bytes;
    /* Of an answer in this syntax, where it has a mark before content (harmony's channels): that
     * mark may stand before the text, and a thought before that. NULL: nothing may. */
    const mf_reply_syntax *syntax;
} mf_grammar_params;

MF_API void mf_grammar_params_init(mf_grammar_params *params, size_t struct_bytes);
static inline void mf_grammar_params_default(mf_grammar_params *params)
{
    mf_grammar_params_init(params, sizeof *params);
}

/*
 * Compiles a grammar, in bounded time and memory: schemas and grammars may come from anyone. The
 * calling thread wants 1 MiB of stack (schemas may be nested 160 deep), as for
 * mf_grammar_compile_calls. A keyword that is not supported and would change what is valid is an
 * error that names it and its place. Errors: MF_ERR_ARGUMENT, MF_ERR_FORMAT (not JSON, not GBNF, or
 * no text satisfies it), MF_ERR_UNSUPPORTED (a keyword, or too large), MF_ERR_NO_MEMORY.
 */
MF_API MF_MUST_CHECK mf_status mf_grammar_compile(mf_vocabulary *vocabulary,
                                                  const mf_grammar_params *params, mf_grammar **out,
                                                  mf_error *error);
/* Guides of it keep what they need. */
MF_API void mf_grammar_free(mf_grammar **grammar);

/* A tool that may be called. */
typedef struct mf_grammar_tool {
    const char *name;
    const char *parameters; /* a JSON schema of an object, n_bytes of it; NULL: any object */
    size_t n_bytes;
    /* Non-zero: what of the schema cannot be held to is an error. Zero: arguments of a schema that
     * is not supported are any object. */
    int is_strict;
} mf_grammar_tool;

/* Fill with mf_grammar_calls_default, then set syntax and tools. */
typedef struct mf_grammar_calls {
    size_t struct_bytes;
    const mf_reply_syntax *syntax;
    const mf_grammar_tool *tools;
    size_t n_tools;
    int has_several; /* 1: several calls may come, where the syntax has that */
    /* 1: the grammar is what stands behind the text that opens calls, which is put into `opening`
     * for mf_guide_begin_after: text is free until a call begins. 0: a call comes at once. */
    int is_opened;
    /* The most memory for masks that are kept; 0: 64 MiB. */
    size_t max_mask_bytes;
    char opening[256];
} mf_grammar_calls;

MF_API void mf_grammar_calls_init(mf_grammar_calls *calls, size_t struct_bytes);
static inline void mf_grammar_calls_default(mf_grammar_calls *calls)
{
    mf_grammar_calls_init(calls, sizeof *calls);
}

/*
 * A grammar of calls, as the model's own syntax writes them: the name is a tool's, the arguments
 * satisfy its schema; objects that name properties and say nothing of others have no others. In
 * syntaxes that tag arguments, or write values in their own way, strings stand as they are: there
 * lengths, patterns and formats of strings, and strings among other types, are not held to. Errors:
 * as mf_grammar_compile; MF_ERR_UNSUPPORTED also if the syntax has no calls.
 */
MF_API MF_MUST_CHECK mf_status mf_grammar_compile_calls(mf_vocabulary *vocabulary,
                                                        mf_grammar_calls *calls, mf_grammar **out,
                                                        mf_error *error);

/* What a grammar's masks have cost so far. */
typedef struct mf_grammar_stats {
    size_t struct_bytes;
    uint64_t n_states;  /* of the automaton */
    uint64_t n_masks;   /* found by a walk over the vocabulary */
    uint64_t n_reused;  /* kept from before */
    uint64_t n_flushes; /* times that everything kept was forgotten for want of memory */
    uint64_t kept_bytes;
} mf_grammar_stats;
MF_API void mf_grammar_get_stats_sized(const mf_grammar *grammar, mf_grammar_stats *stats,
                                       size_t struct_bytes);
static inline void mf_grammar_get_stats(const mf_grammar *grammar, mf_grammar_stats *stats)
{
    mf_grammar_get_stats_sized(grammar, stats, sizeof *stats);
}

/*
 * A guide at the beginning of a text. Of one grammar there may be any number, in any threads; each
 * of them is one thread's at a time. Errors: MF_ERR_ARGUMENT, _NO_MEMORY.
 */
MF_API MF_MUST_CHECK mf_status mf_guide_create(mf_grammar *grammar, mf_guide **out,
                                               mf_error *error);
/* Another one that stands where this one stands. Errors: MF_ERR_NO_MEMORY. */
MF_API MF_MUST_CHECK mf_status mf_guide_clone(const mf_guide *guide, mf_guide **out,
                                              mf_error *error);
MF_API void mf_guide_free(mf_guide **guide);
/* Back to the beginning. */
MF_API MF_MUST_CHECK mf_status mf_guide_reset(mf_guide *guide, mf_error *error);

/*
 * Free text before the grammar begins: everything is allowed until `text` has come, within one
 * token or over several (the end of a thought, "</think>"; the beginning of a tool call). With
 * repeats non-zero the text is free again once the grammar is satisfied, until `text` comes again;
 * without, only an end may follow. blanks: so many line feeds are allowed between `text` and the
 * grammar. To be called at the beginning. Errors: MF_ERR_ARGUMENT, _STATE (not at the beginning),
 * _NO_MEMORY.
 */
MF_API MF_MUST_CHECK mf_status mf_guide_begin_after(mf_guide *guide, const char *text, int repeats,
                                                    unsigned blanks, mf_error *error);

/* Takes a token. Errors: MF_ERR_ARGUMENT (it is not allowed: nothing was taken), _NO_MEMORY,
 * _UNSUPPORTED (the grammar is too ambiguous). */
MF_API MF_MUST_CHECK mf_status mf_guide_accept(mf_guide *guide, int32_t token, mf_error *error);

/*
 * Which tokens may come next: bit i % 32 of mask[i / 32], of n_tokens, which may be more than the
 * tokenizer has. End tokens are allowed where the text may end. *is_limited, unless NULL: 0 if all
 * are allowed. Errors: MF_ERR_ARGUMENT (n_tokens is less than the tokenizer's), _NO_MEMORY,
 * _UNSUPPORTED (the grammar is too ambiguous), _NOT_FOUND (nothing is: the vocabulary has no token
 * to go on with).
 */
MF_API MF_MUST_CHECK mf_status mf_guide_mask(mf_guide *guide, uint32_t *mask, size_t n_tokens,
                                             int *is_limited, mf_error *error);

/*
 * The one token that may come next; -1 if there are several, or if only an end is left. Such a
 * token needs no logits: several in a row can be evaluated at once (mf_sampler_skip in place of
 * each choice), and the answer stays the same to the bit. Errors: MF_ERR_ARGUMENT, _NO_MEMORY,
 * _UNSUPPORTED (the grammar is too ambiguous).
 */
MF_API MF_MUST_CHECK mf_status mf_guide_forced(mf_guide *guide, int32_t *token, mf_error *error);

/* Non-zero if the text may end here; and if nothing else may follow. */
MF_API int mf_guide_may_end(const mf_guide *guide);
MF_API int mf_guide_is_done(const mf_guide *guide);

#ifdef __cplusplus
}
#endif
#endif
