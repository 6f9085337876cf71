/* SPDX-License-Identifier: MIT */
/*
 * The devices that there are, before one is opened: found by name, or chosen by what a model needs.
 * Drivers of GPUs are loaded, and let go again, where a GPU is named, listed, or may be chosen.
 */
#ifndef MF_BACKEND_DEVICES_H
#define MF_BACKEND_DEVICES_H

#include "backend/backend.h"

#define MF_DEVICE_NAME_BYTES 32
#define MF_DEVICE_WHY_BYTES 160

typedef struct mf_device_place {
    char name[MF_DEVICE_NAME_BYTES]; /* "cpu", "vulkan:0" */
    bool takes_promise;              /* device_bytes bounds what is taken of its memory */
    bool has_memory;                 /* of its own, not the process's */
    bool has_units;                  /* matrix units that the engine uses */
    uint64_t n_bytes;                /* that may be taken of it; 0: not known, or not bounded */
} mf_device_place;

/* The device of that name, which is none of NULL and "auto". device_bytes: the promise, or 0.
 * Errors: MF_ERR_ARGUMENT (no such device; those that there are are named), MF_ERR_UNSUPPORTED (no
 * Vulkan; the device lacks something). */
mf_status mf_device_find(const char *option, const char *name, uint64_t device_bytes,
                         mf_device_place *out, mf_error *error);

/* What a model asks of a device that is chosen for it. */
typedef struct mf_device_needs {
    uint64_t least_bytes;   /* of the device's memory */
    uint64_t device_bytes;  /* the promise, or 0 */
    bool has_room_for_host; /* the process may hold a GPU's driver too */
} mf_device_needs;

/* The best device for it, and why in a few words: a discrete GPU with everything and enough memory,
 * else the CPU. */
typedef void (*mf_device_choose_fn)(const mf_device_needs *needs, mf_device_place *out,
                                    char why[MF_DEVICE_WHY_BYTES]);
void mf_device_choose(const mf_device_needs *needs, mf_device_place *out,
                      char why[MF_DEVICE_WHY_BYTES]);
/* The same among devices that are known: the index of one, or -1. */
struct mf_vulkan_device;
int mf_device_choose_of(const struct mf_vulkan_device *list, uint32_t n,
                        const mf_device_needs *needs, char why[MF_DEVICE_WHY_BYTES]);

#endif
