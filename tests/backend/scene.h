/* SPDX-License-Identifier: MIT */
/*
 * A scene: one operation with everything it reads and writes laid out in one buffer, and what its
 * contract says must come out. Operands lie between guard bytes; outputs begin poisoned. Works
 * through the mf_backend interface alone, so any backend can play it.
 */
#ifndef MF_TESTS_SCENE_H
#define MF_TESTS_SCENE_H

#include "backend/backend.h"

#define SCENE_BYTES ((size_t)2 << 20)
#define SCENE_WORDS (SCENE_BYTES / 4)
#define SCENE_ITEMS 80
#define SCENE_LIST 640
#define SCENE_SEQUENCES 8
#define SCENE_PAGES 8 /* of a sequence */

/* What a 4-byte word of the buffer is. */
typedef enum scene_role {
    SCENE_FIXED,  /* an input or a guard: must be as it was */
    SCENE_RESULT, /* a float that must be within slack of want */
    SCENE_ID,     /* an int32 that must be want */
    SCENE_SCRATCH /* anything */
} scene_role;

typedef struct scene {
    mf_op op;
    uint32_t reserve_rows; /* rows that reserve is asked for; 0: the operation's */
    mf_buffer buffer;
    uint32_t skew; /* bytes past alignment that weights are put at */
    uint64_t random;
    size_t n_bytes;
    unsigned char *image; /* the buffer before the operation */
    unsigned char *roles; /* [SCENE_WORDS] */
    double *want, *slack; /* [SCENE_WORDS] */
    mf_sequence sequences[SCENE_SEQUENCES];
    uint32_t n_sequences;
    uint32_t page_rows; /* of a cache, from one page to the next: those of its own and of others */
    mf_span pages[SCENE_SEQUENCES][SCENE_PAGES];
    mf_expert_item items[SCENE_ITEMS];
    int32_t tokens[SCENE_LIST];
    uint32_t list[SCENE_LIST];
} scene;

scene *scene_new(void); /* NULL without memory */
void scene_free(scene *s);
/* Empties the scene; what is built next depends on the seed alone. */
void scene_reset(scene *s, mf_buffer buffer, uint32_t skew, uint64_t seed);

/* A number in 0 .. n - 1. */
uint32_t scene_random(scene *s, uint32_t n);
/* n floats in -scale .. scale, some of them tiny or zero. */
mf_span scene_input(scene *s, size_t n, float scale);
/* n words of poison. */
mf_span scene_output(scene *s, size_t n);
/* Marks n words as free to change. */
void scene_scratch(scene *s, mf_span span, size_t n);

/* How a weight is stored: a dtype for floats, one of these, or SCENE_AFFINE. The last two
 * are formats of blocks: scales inside of them, and an array that all rows share. */
#define SCENE_FP8 15u
#define SCENE_Q8_0 14u
#define SCENE_NVFP4 13u
#define SCENE_AFFINE(bits, group, dtype) ((bits) << 16 | (group) << 4 | (uint32_t)(dtype))
mf_weight scene_weight(scene *s, uint32_t kind, uint32_t n_rows, uint32_t n_cols);

/* Shares the rows among n sequences at different positions, not listed in the order of their rows.
 */
void scene_sequences(scene *s, uint32_t n_rows, uint32_t n);

/* A sequence's caches: whole pages in reverse order, with room for one position more at least. In
 * an attention scene state[0] and state[1] are where its keys and values begin. */
static inline size_t scene_cache_pages(const mf_sequence *seq)
{
    return (size_t)((seq->position + seq->n_rows) / MF_PAGE_TOKENS + 1);
}

static inline size_t scene_cache_row(const scene *s, const mf_sequence *seq, uint64_t position)
{
    size_t page = scene_cache_pages(seq) - 1 - (size_t)(position / MF_PAGE_TOKENS);
    return page * s->page_rows + (size_t)(position % MF_PAGE_TOKENS);
}

/* Where a sequence's pages have the row of a position of a cache at `offset` in each, and entry i,
 * which stands for `rate` positions, at the page of the last of them. */
static inline mf_span scene_page_row(const mf_sequence *seq, uint64_t position, uint64_t offset,
                                     size_t row_bytes)
{
    return mf_span_at(seq->pages[position / MF_PAGE_TOKENS],
                      offset + position % MF_PAGE_TOKENS * row_bytes);
}

static inline mf_span scene_entry(const mf_sequence *seq, uint64_t i, uint32_t rate,
                                  uint64_t offset, size_t row_bytes)
{
    const uint64_t last = (i + 1) * rate - 1;
    const uint64_t row = rate < MF_PAGE_TOKENS ? last % MF_PAGE_TOKENS / rate : 0;
    return mf_span_at(seq->pages[last / MF_PAGE_TOKENS], offset + row * row_bytes);
}

static inline void *scene_at(const scene *s, mf_span span)
{
    return s->image + span.offset;
}

/* Says what word i of the span must become. */
void scene_expect(scene *s, mf_span span, size_t i, double want, double slack);
void scene_expect_id(scene *s, mf_span span, size_t i, int32_t want);

/* How the rows are handed over. */
#define SCENE_WHOLE 0u                  /* one record */
#define SCENE_ALONE UINT32_MAX          /* each sequence alone */
#define SCENE_REVERSED (UINT32_MAX - 1) /* items of experts in reverse */
/* Any other number: that many rows (or items) a record. */

/* Plays the scene; `result` [n_bytes] is the buffer afterwards. The buffer must exist. */
mf_status scene_play(const scene *s, mf_backend *be, uint32_t step, unsigned char *result,
                     mf_error *error);

/* The first word that is not as expected, or SIZE_MAX. */
size_t scene_check(const scene *s, const unsigned char *result, double slack_factor);
/* The first result word that differs between two plays, or SIZE_MAX. */
size_t scene_differs(const scene *s, const unsigned char *a, const unsigned char *b);

/* What a scene expects, kept so that the same scene need not be worked out again. Zeroed: none. */
typedef struct scene_wants {
    unsigned char *roles; /* [n_bytes / 4] of the scene */
    double *values;       /* of each word that is a result: want, slack */
} scene_wants;

void scene_keep_wants(const scene *s, scene_wants *wants); /* values NULL without memory */
/* For a scene that was built as the one whose expectations were kept. */
void scene_take_wants(scene *s, const scene_wants *wants);
void scene_free_wants(scene_wants *wants);

/* reference.c: what the operation must give, in float64, from its contract in backend.h. */
void scene_reference(scene *s);

#endif
