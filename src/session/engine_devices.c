/* SPDX-License-Identifier: MIT */
/* Names of devices become devices; "auto" becomes the one that the model is best run on. */
#include "session/engine_devices.h"

#include "base/memory_limits.h"
#include "forward/runner.h"

#include <string.h>

static bool is_auto(const char *device)
{
    return device != NULL && strcmp(device, "auto") == 0;
}

/* Experts on the device that the rest has are not apart; precision is what there are units for. */
static void join(mf_engine_devices *d, mf_engine_options *o)
{
    d->are_apart = d->experts.name[0] != '\0' && strcmp(d->experts.name, d->dense.name) != 0;
    o->device = d->dense.name;
    o->expert_device = !d->are_apart ? NULL : d->hybrid != NULL ? d->hybrid : d->experts.name;
    o->precision = d->precision;
    if ((d->dense.takes_promise || d->experts.takes_promise) && !d->dense.has_units &&
        !(d->are_apart && d->experts.has_units) && d->precision == MF_PRECISION_AUTO)
        o->precision = MF_PRECISION_F32;
}

mf_status mf_engine_devices_find(mf_engine_devices *d, mf_engine_options *o, mf_error *error)
{
    const bool is_hybrid = mf_backend_is_hybrid(o->expert_device);
    *d = (mf_engine_devices){.is_auto = is_auto(o->device),
                             .hybrid = is_hybrid ? o->expert_device : NULL,
                             .precision = o->precision,
                             .choose = mf_device_choose};
    const char *dense = o->device == NULL || d->is_auto ? "cpu" : o->device;
    MF_TRY(mf_device_find("device", dense, o->device_bytes, &d->dense, error));
    MF_TRY(mf_backend_check_expert_device(o->expert_device, error));
    const char *experts = is_hybrid ? mf_backend_device(o->expert_device) : o->expert_device;
    if (experts != NULL && !is_auto(experts))
        MF_TRY(mf_device_find("expert_device", experts, o->device_bytes, &d->experts, error));
    join(d, o);
    return MF_OK;
}

static mf_budget_device budget_of(const mf_device_place *p)
{
    return (mf_budget_device){.has_memory = p->has_memory,
                              .runs_later = p->takes_promise, /* as every GPU */
                              .takes_promise = p->takes_promise,
                              .n_bytes = p->n_bytes};
}

mf_budget_place mf_engine_devices_place(const mf_engine_devices *d)
{
    return (mf_budget_place){.held_bytes = mf_memory_resident_bytes(),
                             .dense = budget_of(&d->dense),
                             .experts = budget_of(d->are_apart ? &d->experts : &d->dense)};
}

static mf_status plan(mf_engine_devices *d, mf_model *m, mf_engine_options *o, mf_error *error)
{
    join(d, o);
    return mf_model_plan(m, o, mf_layer_kind_table, d->are_apart, error);
}

mf_status mf_engine_devices_choose(mf_engine_devices *d, mf_model *m, mf_engine_options *o,
                                   mf_error *error)
{
    mf_budget budget;
    mf_model_info info;
    if (!d->is_auto)
        return MF_OK;
    /* what the model would take of a GPU that has memory enough */
    d->dense = (mf_device_place){
        .name = "vulkan", .takes_promise = true, .has_memory = true, .has_units = true};
    MF_TRY(plan(d, m, o, error));
    const mf_budget_place place = mf_engine_devices_place(d);
    mf_model_describe(m, o, &place, &budget, &info);
    const mf_device_needs needs = {.least_bytes = budget.device_floor_bytes,
                                   .device_bytes = o->device_bytes,
                                   .has_room_for_host = budget.n_slots != 0};
    d->choose(&needs, &d->dense, d->why);
    return plan(d, m, o, error);
}

mf_status mf_engine_check_promise(const mf_engine_options *o, const mf_budget_place *place,
                                  const char *device, mf_error *error)
{
    const mf_budget_device *dense = &place->dense, *experts = &place->experts;
    if (o->device_bytes == 0 || dense->has_memory || experts->has_memory || dense->takes_promise ||
        experts->takes_promise)
        return MF_OK;
    return mf_fail(error, MF_ERR_ARGUMENT,
                   "device_bytes is %llu, but device %s has no memory of its own",
                   (unsigned long long)o->device_bytes, device);
}
