/* SPDX-License-Identifier: MIT */
#include "doctor_trials.h"
#include "clocks.h"
#include "machine.h"
#include "machine_file.h"

#include <unistd.h>

#define USUAL_EXPERT_BYTES ((uint64_t)2 << 20)
#define SECONDS 0.2 /* of each way to read, twice */

/* Of two rounds the better one: what else the machine does disturbs. */
static void keep_better(mf_cli_reads *best, mf_cli_reads reads)
{
    if (reads.bytes_per_second <= 0)
        return;
    if (best->bytes_per_second <= 0 || reads.cpu_seconds < best->cpu_seconds)
        best->cpu_seconds = reads.cpu_seconds;
    if (reads.bytes_per_second > best->bytes_per_second)
        best->bytes_per_second = reads.bytes_per_second;
}

static double greater(double a, double b)
{
    return a > b ? a : b;
}

static void try_reads(const char *folder, mf_cli_trials *t)
{
    int cached;
    const int direct = mf_cli_open_made(folder, &cached);
    mf_cli_read_job job = {direct, MF_CLI_FILE_BYTES, t->read_bytes, SECONDS, false};
    for (int round = 0; direct >= 0 && round < 2; round++) {
        keep_better(&t->threads, mf_cli_read_by_threads(&job));
        keep_better(&t->ring, mf_cli_read_by_ring(&job, false));
        keep_better(&t->held, mf_cli_read_by_ring(&job, true));
    }
    if (direct >= 0)
        close(direct);
    if (cached >= 0) {
        job.fd = cached;
        job.is_once = true; /* the second time it would come from memory */
        keep_better(&t->cached, mf_cli_read_by_threads(&job));
        close(cached);
    }
}

static double try_model(const char *model, const mf_cli_trials *t)
{
    mf_cli_read_job job = {.n_bytes = t->read_bytes, .seconds = SECONDS};
    job.fd = mf_cli_open_largest(model, &job.n_file_bytes);
    if (job.fd < 0)
        return 0;
    const mf_cli_reads reads = mf_cli_read_by_threads(&job);
    close(job.fd);
    return reads.bytes_per_second;
}

void mf_cli_try(const char *model, const char *folder, uint64_t expert_bytes, mf_cli_trials *out)
{
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *out = (mf_cli_trials){
        .read_bytes = mf_cli_read_size(expert_bytes != 0 ? expert_bytes : USUAL_EXPERT_BYTES)};
    try_reads(folder, out);
    out->drive = model ? try_model(model, out) : 0;
    if (out->drive <= 0)
        out->drive = out->threads.bytes_per_second;
    out->is_drive_cached = out->drive <= 0;
    if (out->is_drive_cached)
        out->drive = out->cached.bytes_per_second;
    out->memory = mf_cli_measure_memory(0);
    mf_cli_read_clocks("/sys/devices/system/cpu", n_cpus > 0 ? (unsigned)n_cpus : 1, &out->clock_hz,
                       &out->most_hz);
    for (int round = 0; round < 2; round++) {
        out->small_pages = greater(out->small_pages, mf_cli_measure_pages(false));
        out->huge_pages = greater(out->huge_pages, mf_cli_measure_pages(true));
    }
}
