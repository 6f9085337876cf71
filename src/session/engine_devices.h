/* SPDX-License-Identifier: MIT */
/* The devices of an engine, found before it is opened: those that its options name, or the one that
 * "auto" is for its model. */
#ifndef MF_SESSION_ENGINE_DEVICES_H
#define MF_SESSION_ENGINE_DEVICES_H

#include "backend/devices.h"
#include "model/model.h"

typedef struct mf_engine_devices {
    mf_device_place dense, experts; /* experts: where they are apart */
    bool is_auto, are_apart;
    const char *hybrid;            /* the experts' name, if it is such a one; else NULL */
    mf_precision precision;        /* as it was given */
    mf_device_choose_fn choose;    /* what "auto" is; mf_device_choose but for tests */
    char why[MF_DEVICE_WHY_BYTES]; /* "auto" is what it is; empty: it was named */
} mf_engine_devices;

/* Finds what the options name, which from now on point to *devices ("auto": to the CPU's name for
 * now). Errors: as mf_device_find. */
mf_status mf_engine_devices_find(mf_engine_devices *devices, mf_engine_options *options,
                                 mf_error *error);
/* Where the device is "auto": chooses one for the model, which is planned anew. */
mf_status mf_engine_devices_choose(mf_engine_devices *devices, mf_model *model,
                                   mf_engine_options *options, mf_error *error);
/* Where the engine would be opened. */
mf_budget_place mf_engine_devices_place(const mf_engine_devices *devices);

/* MF_ERR_ARGUMENT: a promise about memory that no device there has. */
mf_status mf_engine_check_promise(const mf_engine_options *options, const mf_budget_place *place,
                                  const char *device, mf_error *error);

#endif
