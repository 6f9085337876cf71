/* SPDX-License-Identifier: MIT */
/* What the engine asks a source for while it binds a model, and what it is told: all that another
 * form must answer to be the same model. */
#ifndef MF_CONVERT_WATCH_H
#define MF_CONVERT_WATCH_H

#include "format/json.h"
#include "format/source.h"

/* One array of a tensor that was found. */
typedef struct mf_watched_tensor {
    mf_tensor_id id;
    uint32_t array;
    mf_tensor tensor; /* its name is the source's */
} mf_watched_tensor;

typedef struct mf_watch {
    const mf_source_ops *inner; /* the source's own */
    mf_source_ops ops;
    mf_allocator allocator;
    yyjson_alc json_allocator;
    yyjson_mut_doc *doc;
    yyjson_mut_val *hparams; /* name to value, as they were asked for */
    mf_watched_tensor *tensors;
    size_t n_tensors, capacity;
    bool is_out_of_memory;
} mf_watch;

/* From now on the source's answers are noted. The watch stays where it is. */
mf_status mf_watch_begin(mf_watch *watch, const mf_allocator *a, mf_source *source,
                         mf_error *error);
/* No longer. MF_ERR_NO_MEMORY: not all could be noted. */
mf_status mf_watch_end(mf_watch *watch, mf_source *source, mf_error *error);
/* Takes a zeroed one. */
void mf_watch_free(mf_watch *watch);

#endif
