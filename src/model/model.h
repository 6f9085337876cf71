/* SPDX-License-Identifier: MIT */
/* A model's descriptors: what its checkpoint says, bound and planned, before any weight is loaded.
 */
#ifndef MF_MODEL_MODEL_H
#define MF_MODEL_MODEL_H

#include "model/budget.h"
#include "model/family.h"
#include "model/plan.h"

/* Descriptors only: what inspect and open share. Owned by the caller, see mf_model_release. */
typedef struct mf_model {
    mf_allocator allocator;
    mf_source *source;
    mf_binder binder;
    const mf_family *family;
    mf_hparams h;
    mf_model_weights weights;
    mf_plan_options plan_options;
    mf_plan plan;
    uint32_t k;
    uint32_t n_threads;
} mf_model;

/* The library's own options: the caller's, as far as both know them. given may be NULL. Errors:
 * MF_ERR_ARGUMENT, as mf_sized_get. */
mf_status mf_engine_options_take(const mf_engine_options *given, mf_engine_options *out,
                                 mf_error *error);

mf_status mf_model_read(const mf_allocator *a, const char *path, const mf_engine_options *options,
                        mf_layer_kinds kinds, mf_model *out, mf_error *error);
/* The same without a plan of memory, of a source that is open: taken over, also on failure. A layer
 * that proposes tokens is bound where it is there whole. */
mf_status mf_model_bind(const mf_allocator *a, mf_source *source, mf_model *out, mf_error *error);
/* Part of mf_model_read; once more where other than the options' names say whether experts have a
 * device of their own. */
mf_status mf_model_plan(mf_model *model, const mf_engine_options *options, mf_layer_kinds kinds,
                        bool experts_apart, mf_error *error);
void mf_model_release(mf_model *model);
/* Fills *out and *budget: that of an engine at this place. */
void mf_model_describe(const mf_model *model, const mf_engine_options *options,
                       const mf_budget_place *place, mf_budget *budget, mf_model_info *out);
/* The same once the plan has what there is room for of what the options leave open. Where experts
 * are read for each chunk, or sent to a device, these are as large as an eighth of the slots'
 * memory pays for, and a quarter of what the device has left, up to 4,096 tokens: a long prompt
 * takes as many sweeps fewer. Of "hybrid:auto", the dense layers' device is given as many layers'
 * experts as it then has room for. The floors stay those of the plan as it was. */
void mf_model_fit(mf_model *model, const mf_engine_options *options, const mf_budget_place *place,
                  mf_budget *budget, mf_model_info *out);

/* Places for experts on their way to slots that the host cannot reach, at least. */
#define MF_STAGED_EXPERTS 16u
/* Most bytes of the process that the loading of dense weights takes for the same reason. */
uint64_t mf_load_staging_bytes(void);

/* Copies every planned run of bytes into the resident block. */
mf_status mf_load_resident(mf_backend *backend, mf_buffer resident, const mf_binder *binder,
                           uint32_t n_threads, mf_error *error);

#endif
