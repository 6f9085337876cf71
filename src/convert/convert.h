/* SPDX-License-Identifier: MIT */
/*
 * Writing a checkpoint anew in the aligned form: watch.c notes what the engine asks a source for,
 * convert_plan.c says what is written where, output.c owns directories and files, dense.c and
 * experts.c fill them, convert_manifest.c says what is there. All in one call; one batch of experts
 * is in memory at a time.
 */
#ifndef MF_CONVERT_CONVERT_H
#define MF_CONVERT_CONVERT_H

#include "base/threads.h"
#include "convert/watch.h"
#include "experts/expert_plan.h"
#include "format/aligned.h"
#include "model/model.h"
#include "quantise/quantise.h"
#include "routing/routing_format.h"

#include <moeflux/convert.h>

#define MF_CONVERT_MAX_DRIVES 16u /* the output directory included */

/* An expert as one run of bytes. */
typedef struct mf_run {
    mf_weight_shape shapes[MF_EXPERT_MATRICES];
    uint32_t part_at[MF_MAX_EXPERT_PARTS];
    uint64_t part_bytes[MF_MAX_EXPERT_PARTS];
    uint64_t n_bytes, padded_bytes; /* the second: as it lies in a file */
} mf_run;

/* A layer's experts as they are and as they will be. */
typedef struct mf_target_layer {
    uint32_t layer;     /* of the model */
    bool is_paired;     /* rows of gate and up take turns in gate */
    uint32_t n_sources; /* forms that its experts have */
    mf_run sources[MF_EXPERT_FORMS];
    const uint8_t *source_of; /* [n_experts]; NULL: all have the first */
    uint32_t n_forms;
    mf_run forms[MF_EXPERT_FORMS];
    const uint8_t *form_of;                     /* [n_experts] */
    const uint8_t *drive_of;                    /* [n_experts] */
    uint64_t file_bytes[MF_CONVERT_MAX_DRIVES]; /* 0: it has none of the layer */
    uint32_t file_experts[MF_CONVERT_MAX_DRIVES];
} mf_target_layer;

static inline const mf_run *mf_target_source(const mf_target_layer *layer, uint32_t expert)
{
    return &layer->sources[layer->source_of != NULL ? layer->source_of[expert] : 0];
}

/* One directory that is written to. */
typedef struct mf_output_dir {
    char path[MF_MAX_PATH];
    int fd;         /* -1: not open */
    int mark_fd;    /* of its mark, locked; -1: none */
    bool is_new;    /* made by this call */
    bool is_marked; /* its mark was made by this call */
} mf_output_dir;

typedef struct mf_conversion {
    mf_allocator allocator;
    mf_convert_options options;
    mf_model source;
    mf_watch watch;
    uint8_t id[MF_ALIGNED_ID_BYTES];
    mf_target_layer *layers; /* [n_moe_layers] */
    uint8_t *of_experts;     /* what form_of and drive_of point into */
    uint64_t *dense_at;      /* [watch.n_tensors]: in the dense file */
    uint64_t *dense_sums;    /* their checksums */
    uint64_t dense_bytes;
    mf_output_dir dirs[MF_CONVERT_MAX_DRIVES]; /* the first is the model's */
    uint32_t n_dirs;
    mf_thread_pool *pool;
    int *source_fds; /* [source.table.n_files] */
    size_t n_source_fds;
    mf_quantise_loss loss;
    mf_convert_result result;
    uint64_t n_bytes_done, reported_us;
} mf_conversion;

/* How often each expert of each layer is asked for, [n_moe_layers][n_experts], to be freed; NULL
 * where there is no trace. MF_ERR_ARGUMENT: it is of another model. */
mf_status mf_convert_uses(const mf_conversion *c, uint64_t **out, mf_error *error);

/* Sizes, places and the id. */
mf_status mf_convert_plan(mf_conversion *c, mf_error *error);
/* A layer's file in a directory, by its name there, and by that from the model's directory. */
void mf_target_file_name(const mf_target_layer *layer, char *name, size_t capacity);

/* Reports what was done; MF_ERR_CANCELLED where that is wished. */
mf_status mf_convert_report(mf_conversion *c, uint32_t layer, uint64_t n_bytes, mf_error *error);

mf_status mf_convert_dense(mf_conversion *c, mf_error *error);
mf_status mf_convert_experts(mf_conversion *c, mf_error *error);
/* What goes with a model: tokenizer, templates, config. */
mf_status mf_convert_texts(mf_conversion *c, mf_error *error);
mf_status mf_convert_manifest(mf_conversion *c, mf_error *error);

/* ---- output.c ---- */

/* Makes or takes up the directories, locked against other processes. MF_ERR_ARGUMENT: something
 * else is there. */
mf_status mf_output_open(mf_conversion *c, mf_error *error);
/* What mf_output_open would refuse of what is there, or is not there, but for marks: nothing is
 * made and nothing stays open. */
mf_status mf_output_check_free(mf_conversion *c, mf_error *error);
/* Room on each drive for what is not there yet. */
mf_status mf_output_check_space(mf_conversion *c, mf_error *error);
/* The same before directories are made or opened; nothing stays open. */
mf_status mf_output_foresee_space(mf_conversion *c, mf_error *error);
/* The marks go, once all is there. */
mf_status mf_output_finish(mf_conversion *c, mf_error *error);
void mf_output_close(mf_conversion *c);
/* Takes away what mf_output_open made, where nothing was written yet. */
void mf_output_retract(mf_conversion *c);
/* Bytes of a file that is there and whole; UINT64_MAX: there is none. */
uint64_t mf_output_size(const mf_output_dir *dir, const char *name);

/* The longest are those of templates, in their folder. */
#define MF_OUTPUT_NAME_CHARS 320u

/* A file under a temporary name, which gets its own when all of it is on the drive. */
typedef struct mf_output_file {
    const mf_output_dir *dir;
    char name[MF_OUTPUT_NAME_CHARS];
    int fd;
    int direct_fd; /* the same file past the page cache; -1: not to be had there */
} mf_output_file;

mf_status mf_output_begin(const mf_output_dir *dir, const char *name, uint64_t n_bytes,
                          mf_output_file *out, mf_error *error);
/* By any thread. Past the page cache where place, length and memory are multiples of
 * MF_ALIGNED_BYTES and the drive can. */
mf_status mf_output_write(const mf_output_file *file, uint64_t at, const void *bytes,
                          size_t n_bytes, mf_error *error);
/* Of what went through the page cache: starts bringing these bytes to the drive; waits for those
 * before them, so that memory is not filled with what waits. */
void mf_output_flush(const mf_output_file *file, uint64_t at, uint64_t n_bytes);
mf_status mf_output_commit(mf_output_file *file, mf_error *error);
/* Closes what was begun and not committed; it stays, to be written over. */
void mf_output_abandon(mf_output_file *file);

/* These bytes of a file will be read: the drive may begin. */
void mf_convert_foresee(int fd, uint64_t at, uint64_t n_bytes);

#endif
