/* SPDX-License-Identifier: MIT */
/*
 * Byte-level byte-pair encoding: the vocabulary (bytes <-> id), the merges, and the merging of one
 * word. A vocabulary key is written in GPT-2's byte alphabet, 256 printable characters that stand
 * for the byte values; it is kept as the bytes themselves. A key with any other character can never
 * come out of a merge; it is kept as it is written ("raw"), for lookups by name and for decoding.
 * A vocabulary of characters (of_characters, SentencePiece's kind) has its keys as text: words are
 * cut into characters first, and U+2581 is kept as the blank that it stands for.
 * Read-only after mf_bpe_load.
 */
#ifndef MF_TEXT_BPE_H
#define MF_TEXT_BPE_H

#include "format/json.h"
#include "text/buffer.h"

#define MF_BPE_NONE UINT32_MAX
/* The longest word that is merged: it takes up to 28 bytes a byte meanwhile, by the scores of a
 * SentencePiece model 40. */
#define MF_MAX_WORD_BYTES ((size_t)16 << 20)
/* The longest token that a vocabulary of ranks may have. */
#define MF_MAX_RANKED_BYTES 1024

typedef struct mf_piece {
    uint32_t offset;       /* in bytes[] */
    uint32_t n_bytes : 30; /* 0: no such id */
    uint32_t is_raw : 1;   /* not in the byte alphabet */
    uint32_t is_special : 1;
} mf_piece;

typedef struct mf_merge {
    uint32_t left, right; /* the pair of ids; left is MF_BPE_NONE in an empty slot */
    uint32_t rank;        /* position in the file: the lowest goes first */
    uint32_t merged;      /* the id of the two joined */
} mf_merge;

typedef struct mf_bpe {
    mf_allocator allocator;
    unsigned char *bytes; /* all pieces, end to end */
    size_t n_bytes, bytes_capacity;
    mf_piece *pieces; /* [n_ids] by id */
    mf_piece *keys;   /* the same by what they are found by, where some are shown as something else;
                         or NULL */
    size_t n_ids, pieces_capacity;
    size_t n_entries;     /* of the model's vocabulary: what added tokens are numbered from */
    uint32_t *slots;      /* hash table: bytes -> id; MF_BPE_NONE where empty */
    size_t n_slots;       /* power of two */
    mf_merge *merges;     /* hash table: pair -> rank and id */
    size_t n_merge_slots; /* power of two */
    uint32_t byte_ids[256];
    bool ignores_merges;  /* a word that is in the vocabulary is taken whole */
    bool merges_by_rank;  /* no merges[]: see above */
    size_t longest_bytes; /* of a token, where merges_by_rank */
    bool of_characters;
    /* Of a vocabulary of characters: */
    bool marks_blanks;      /* U+2581 in its keys is a blank; a key with a blank is raw */
    bool has_byte_keys;     /* a key "<0x0A>" is that byte */
    bool falls_to_bytes;    /* a character that is no token goes as bytes if all of its bytes are */
    bool marks_go_as_bytes; /* a blank is no token, and goes as the mark's three bytes */
    bool fuses_unknown;     /* a run of unknown characters is one token */
    uint32_t unknown;       /* MF_BPE_NONE: an unknown character is left out */
    bool cuts_before_unknown;  /* nothing unknown waits for what follows */
    unsigned char *own_blanks; /* bit set over bytes[]: blanks that no mark stands for; or NULL */
    unsigned char *joints;     /* bit set of the hashes of two characters that a token holds */
    size_t n_joint_bits;       /* power of two */
} mf_bpe;

/* Scratch of one encoding call; zero-initialise with mf_bpe_scratch_init. */
typedef struct mf_bpe_scratch {
    mf_buffer symbols;
    mf_buffer heap;
} mf_bpe_scratch;

void mf_bpe_scratch_init(mf_bpe_scratch *scratch, const mf_allocator *a);
void mf_bpe_scratch_free(mf_bpe_scratch *scratch);

/* Loads the "model" object of tokenizer.json. *bpe is zeroed by the caller, but for of_characters,
 * marks_blanks and has_byte_keys, and freed by mf_bpe_free, after a failure too. */
mf_status mf_bpe_load(mf_bpe *bpe, const mf_allocator *a, const mf_json *json, mf_error *error);
void mf_bpe_free(mf_bpe *bpe);

/* For loaders: room for n_entries tokens of the model among n_ids ids, n_bytes in all. */
mf_status mf_bpe_reserve(mf_bpe *bpe, size_t n_entries, size_t n_ids, size_t n_bytes,
                         mf_error *error);
/* Takes the n_bytes that were written at bytes[bpe->n_bytes] as token `id`, which is free. */
void mf_bpe_take_token(mf_bpe *bpe, uint32_t id, size_t n_bytes, bool is_raw);
/* Whether a token of these bytes has been taken. */
bool mf_bpe_has(const mf_bpe *bpe, const unsigned char *bytes, size_t n_bytes);
/* Sets byte_ids; true if every byte has a token. */
bool mf_bpe_index_bytes(mf_bpe *bpe);

/* The id of a token by its name as the file writes it (byte alphabet), or MF_BPE_NONE. */
uint32_t mf_bpe_find_key(const mf_bpe *bpe, const char *key, size_t n_bytes, mf_buffer *scratch,
                         mf_error *error, mf_status *status);
/* Gives an id the literal bytes of an added token. */
mf_status mf_bpe_add_literal(mf_bpe *bpe, uint32_t id, const char *text, size_t n_bytes,
                             mf_error *error);
/* From now on literals change what ids of the vocabulary are shown as, but not what finds them. */
mf_status mf_bpe_keep_keys(mf_bpe *bpe, mf_error *error);

/* MF_ERR_UNSUPPORTED where a word is longer than MF_MAX_WORD_BYTES. */
mf_status mf_bpe_check_word(size_t n_bytes, mf_error *error);

typedef struct mf_bpe_ids {
    const uint32_t *ids; /* in the scratch: valid until it is used again */
    size_t n_ids;
} mf_bpe_ids;

/* The ids of one word. Errors: MF_ERR_UNSUPPORTED (too long), MF_ERR_NO_MEMORY. */
mf_status mf_bpe_encode(const mf_bpe *bpe, mf_bpe_scratch *scratch, const unsigned char *word,
                        size_t n_bytes, mf_bpe_ids *out, mf_error *error);

#endif
