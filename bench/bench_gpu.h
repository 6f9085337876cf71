/* SPDX-License-Identifier: MIT */
/* What the benches of the Vulkan backend share: a device, buffers of ordinary numbers, and the
 * device's own time. What fails ends the program, with its name and the reason. */
#ifndef MF_BENCH_GPU_H
#define MF_BENCH_GPU_H

#include "backend/vulkan/vk_internal.h"

typedef struct bench_gpu {
    mf_vk_backend *be;
    VkQueryPool queries;
} bench_gpu;

/* An option that takes a number or a text; a list ends with one without a name. */
typedef struct bench_gpu_option {
    const char *name;
    uint32_t *number;
    const char **text;
} bench_gpu_option;

/* False: an argument is no option, or has no value. */
bool bench_gpu_parse(const bench_gpu_option *options, int argc, char **argv);

/* Whether a subject is wanted: `only`, texts with '|' between them, is NULL, or one of them is in
 * its name. */
bool bench_gpu_wants(const char *only, const char *name);

void bench_gpu_check(mf_status status, const mf_error *error);
void bench_gpu_open(bench_gpu *g, const mf_backend_options *options);
void bench_gpu_close(bench_gpu *g);
mf_span bench_gpu_create(bench_gpu *g, uint64_t n_bytes, const char *what);
/* Bytes that are numbers of ordinary size in every form. */
void bench_gpu_fill(bench_gpu *g, mf_span span, uint64_t n_bytes);
/* One dispatch of arithmetic, of no steps too; the next need not wait for it. result: 1 KiB for
 * each workgroup. */
void bench_gpu_busy(bench_gpu *g, mf_span result, uint32_t n_steps, uint32_t n_groups);
/* So many milliseconds of arithmetic, about: an idle device slows down, and takes long to come
 * back. result: of 4 MiB. Nothing on a processor. */
void bench_gpu_warm(bench_gpu *g, mf_span result, uint32_t n_ms);
/* What is recorded between the two of them is timed: alone, after all before it and before all
 * after it. stop waits, and returns nanoseconds. */
void bench_gpu_start(bench_gpu *g);
double bench_gpu_stop(bench_gpu *g);

#endif
