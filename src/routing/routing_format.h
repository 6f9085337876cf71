/* SPDX-License-Identifier: MIT */
/*
 * Traces of routing (docs/FORMATS.md): which experts each layer's router chose, token by token, as
 * bits. The writer is given passes and puts whole ones into the file; the reader checks every byte
 * before anything is made of it. Neither knows engines.
 */
#ifndef MF_ROUTING_ROUTING_FORMAT_H
#define MF_ROUTING_ROUTING_FORMAT_H

#include "base/alloc.h"

#include <moeflux/routing.h>

#define MF_ROUTING_VERSION 1u
/* With a table of sizes behind the header; written where there are several. */
#define MF_ROUTING_VERSION_SIZES 2u
#define MF_ROUTING_HEADER_BYTES 128u
#define MF_ROUTING_BLOCK_HEAD_BYTES 8u
/* A block is written when it has so much; a pass is never cut. */
#define MF_ROUTING_BLOCK_BYTES (32u << 10)
#define MF_ROUTING_MAX_BLOCK_BYTES (1u << 28)
#define MF_ROUTING_MAX_FILE_BYTES ((uint64_t)1 << 30)
#define MF_ROUTING_MAX_LAYERS 512u
#define MF_ROUTING_MAX_EXPERTS 65536u
#define MF_ROUTING_MAX_K 256u
#define MF_ROUTING_MAX_ROWS (1u << 20)
#define MF_ROUTING_FAMILY_BYTES 32u
/* Of a weight, as a share of the row's largest. */
#define MF_ROUTING_WEIGHT_BITS 4u
#define MF_ROUTING_WEIGHT_MAX 15u

/* As many as the engine has (experts/slot_sizes.h). */
#define MF_ROUTING_MAX_SIZES 8u

/* Where experts have slots of several sizes: what these are, and which one each expert has. */
typedef struct mf_routing_sizes {
    uint32_t n;                                  /* 0: one size for all; else 2 or more */
    uint64_t slot_bytes[MF_ROUTING_MAX_SIZES];   /* falling */
    uint64_t expert_bytes[MF_ROUTING_MAX_SIZES]; /* read for one expert of it, the mean; falling,
                                                    or the same as before */
    const uint8_t *of;                           /* [n_layers * n_experts], borrowed */
} mf_routing_sizes;

/* What the trace was taken of. */
typedef struct mf_routing_head {
    uint32_t n_layers; /* with experts */
    uint32_t n_experts, k;
    uint32_t reads_per_expert;
    uint64_t expert_bytes; /* that reading one takes, alignment included, the mean */
    uint64_t slot_bytes;   /* the mean */
    uint64_t fixed_bytes;  /* of the memory budget, beside slots */
    char family[MF_ROUTING_FAMILY_BYTES];
    mf_routing_sizes sizes;
} mf_routing_head;

/* Rows of a pass that belong to one sequence. */
typedef struct mf_routing_part {
    uint64_t sequence, position;
    uint32_t n_rows;
} mf_routing_part;

/* Bits of an expert's number. */
static inline uint32_t mf_routing_id_bits(uint32_t n_experts)
{
    uint32_t bits = 1;
    while ((uint64_t)1 << bits < n_experts)
        bits++;
    return bits;
}

/* ---- writing ---- */

typedef struct mf_routing_writer mf_routing_writer;

/* Makes the file, or empties it, for passes of at most so many rows and parts. Memory is taken now
 * and never later; head->sizes.of is not looked at again. */
mf_status mf_routing_writer_open(const mf_allocator *allocator, const char *path,
                                 const mf_routing_head *head, uint32_t max_rows, uint32_t max_parts,
                                 mf_routing_writer **out, mf_error *error);
/* A pass begins; what was begun and not committed is forgotten. */
void mf_routing_writer_begin(mf_routing_writer *w, const mf_routing_part *parts, uint32_t n_parts,
                             uint32_t n_rows);
/* A layer's choice: [n_rows, k], weights falling or not. */
void mf_routing_writer_layer(mf_routing_writer *w, uint32_t layer, const int32_t *ids,
                             const float *weights);
/* What was foretold of it before: the first k of each row's n, the likeliest first. */
void mf_routing_writer_foretold(mf_routing_writer *w, uint32_t layer, const int32_t *ids,
                                uint32_t n);
/* The pass is whole. It took so long, of which nothing could be computed so long. One that would
 * make the file larger than readers take is left out, and so are all after it: the trace is full.
 */
mf_status mf_routing_writer_commit(mf_routing_writer *w, uint64_t elapsed_us, uint64_t waited_us,
                                   mf_error *error);
bool mf_routing_writer_is_full(const mf_routing_writer *w);
/* Full earlier than by MF_ROUTING_MAX_FILE_BYTES; for tests. */
void mf_routing_writer_limit(mf_routing_writer *w, uint64_t max_file_bytes);
/* Writes what is left; sets *w to NULL, also on failure. Takes NULL. */
mf_status mf_routing_writer_close(mf_routing_writer **w, mf_error *error);

/* ---- reading ---- */

typedef struct mf_routing_pass {
    uint32_t n_rows, n_parts;
    size_t first_part;
    size_t first_choice; /* [n_layers][n_rows][k] of ids, weights, foretold */
    uint64_t first_row;  /* rows of all passes before */
    uint64_t elapsed_us, waited_us;
} mf_routing_pass;

/* A trace in memory. */
struct mf_routing {
    mf_allocator allocator;
    mf_routing_head head;
    mf_routing_pass *passes;
    mf_routing_part *parts;
    uint16_t *ids;
    uint16_t *foretold;    /* as ids, where has_foretold says so */
    uint8_t *weights;      /* as ids; shares of MF_ROUTING_WEIGHT_MAX */
    uint8_t *has_foretold; /* [n_passes][n_layers] */
    uint8_t *size_of;      /* head.sizes.of, or NULL */
    size_t n_passes, n_parts, n_choices;
    uint64_t n_rows;
    uint64_t n_foretold; /* layers of passes */
};

/* Errors: MF_ERR_FORMAT naming the byte, MF_ERR_UNSUPPORTED (another version), MF_ERR_NO_MEMORY. */
mf_status mf_routing_read(const mf_allocator *allocator, const unsigned char *bytes, size_t n_bytes,
                          const char *name, mf_routing **out, mf_error *error);
void mf_routing_release(mf_routing **routing);

#endif
