/* SPDX-License-Identifier: MIT */
/* The drive under a model: what kind it is, and what it reads. */
#include "doctor.h"
#include "output.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define ROTATING_RATE 3e8 /* bytes a second: above it, no hard disk reads here and there */
#define SLOW_RATE 1e9     /* bytes a second: what a SATA drive does not reach */
/* Of smaller reads a rate says how many there are, and nothing of the drive's kind: those of a hard
 * disk take this long each, in seconds. */
#define SMALL_READ ((uint64_t)256 << 10)
#define ROTATING_WAIT 2e-3

/* docs/PERFORMANCE.md, "What the system's settings are worth" */
#define CPU_OF_DIRECT "a fifth"

typedef struct file_system {
    long magic;
    const char *name;
    const char *why; /* it is slow; NULL: it is not */
} file_system;

#define OVER_NETWORK \
    "each expert comes over the network: copy the model to a drive of this machine."
#define IN_PROGRAM "each read goes through another program: copy the model to a plain file system."

static const file_system file_systems[] = {
    {0xef53, "ext4", NULL},
    {0x58465342, "xfs", NULL},
    {0x9123683e, "btrfs",
     "compressed or checksummed files cannot be read directly: chattr +Cm "
     "on the folder before the model is copied there."},
    {0xf2f52010, "f2fs", NULL},
    {0x2fc12fc1, "zfs",
     "direct reads pass its own cache of files, which takes memory beside ours."},
    {0x794c7630, "overlay", "a container's layer: mount the folder of models into it instead."},
    {0x01021994, "tmpfs", "this is memory: the model takes it twice."},
    {0x6969, "nfs", OVER_NETWORK},
    {0xff534d42, "cifs", OVER_NETWORK},
    {0xfe534d42, "smb2", OVER_NETWORK},
    {0x01021997, "9p", IN_PROGRAM},
    {0x65735546, "fuse", IN_PROGRAM},
    {0x5346544e, "ntfs", IN_PROGRAM},
};

static const file_system *file_system_of(const char *path)
{
    struct statfs s;
    if (statfs(path, &s) == 0)
        for (size_t i = 0; i < sizeof file_systems / sizeof *file_systems; i++)
            if (file_systems[i].magic == (long)s.f_type)
                return &file_systems[i];
    return NULL;
}

/* Of the drive, or of the drive that a partition is of. */
static bool is_rotating(dev_t device)
{
    static const char *const forms[] = {"/sys/dev/block/%u:%u/queue/rotational",
                                        "/sys/dev/block/%u:%u/../queue/rotational"};
    for (int i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof path, forms[i], major(device), minor(device));
        FILE *file = fopen(path, "re");
        const int digit = file ? fgetc(file) : EOF;
        if (file)
            fclose(file);
        if (digit != EOF)
            return digit == '1';
    }
    return false;
}

static void look_at_direct(mf_cli_findings *all, const mf_cli_trials *t)
{
    char a[MF_CLI_SIZE_CHARS], b[MF_CLI_SIZE_CHARS];
    if (t->cached.bytes_per_second <= 0)
        return; /* not measured */
    if (t->threads.bytes_per_second > 0) {
        mf_cli_effect(mf_cli_find(all, "direct I/O", "allowed"),
                      "%s/s for %.0f ms of CPU a GiB; through the page cache %s/s for %.0f ms.",
                      mf_cli_size(a, t->threads.bytes_per_second), 1e3 * t->threads.cpu_seconds,
                      mf_cli_size(b, t->cached.bytes_per_second), 1e3 * t->cached.cpu_seconds);
        return;
    }
    mf_cli_finding *f = mf_cli_find(all, "direct I/O", "refused");
    mf_cli_advise(f, MF_CLI_NOTE,
                  "Reads go through the kernel's page cache: more work for the CPU, and memory "
                  "that the engine could hold experts in. Put models on ext4 or XFS.");
    mf_cli_effect(f, "on the machine of docs/PERFORMANCE.md direct reads take " CPU_OF_DIRECT
                     " of the CPU's time that reads through the page cache take.");
}

/* Of a longer path the end is shown: what follows has to find room, and a report tells the path by
 * it. */
#define SHOWN_PATH 200

static void look_at_place(mf_cli_findings *all, const char *path)
{
    const size_t n = strlen(path), n_hidden = n > SHOWN_PATH ? n - SHOWN_PATH : 0;
    char room[MF_CLI_SIZE_CHARS];
    struct statvfs v;
    const file_system *fs = file_system_of(path);
    const bool has_room = statvfs(path, &v) == 0;
    mf_cli_finding *f =
        mf_cli_find(all, "models", "%s%s: %s, %s free", n_hidden > 0 ? "..." : "", path + n_hidden,
                    fs ? fs->name : "a file system not known here",
                    has_room ? mf_cli_size(room, (double)v.f_bavail * (double)v.f_frsize) : "?");
    if (fs && fs->why)
        mf_cli_advise(f, MF_CLI_NOTE, "%s", fs->why);
}

/* rate: 0: not measured. Virtual drives say that they rotate, too: the rate knows better. */
static void grade_drive(mf_cli_finding *f, bool rotates, double rate, uint64_t read_bytes)
{
    const bool is_quick = rate > 0 && (double)read_bytes / rate < ROTATING_WAIT;
    if (rotates && rate < ROTATING_RATE && !is_quick)
        mf_cli_advise(
            f, rate > 0 ? MF_CLI_BAD : MF_CLI_NOTE,
            "The kernel takes it for a hard disk: some hundred experts a second at best, "
            "and a token needs hundreds. A solid-state drive, best by NVMe, is what makes "
            "streaming useful.");
    else if (rate > 0 && rate < SLOW_RATE && read_bytes >= SMALL_READ)
        mf_cli_advise(f, MF_CLI_NOTE,
                      "An NVMe drive reads three to seven times as much: decode with experts "
                      "streamed gains nearly as much.");
}

static void look_at_rates(mf_cli_findings *all, const mf_cli_patient *patient, const char *folder)
{
    const mf_cli_trials *t = &patient->trials;
    char text[MF_CLI_SIZE_CHARS], each[MF_CLI_SIZE_CHARS];
    struct stat st;
    const bool rotates = stat(folder, &st) == 0 && is_rotating(st.st_dev);
    mf_cli_finding *f =
        t->drive > 0
            ? mf_cli_find(all, "drive", "%s/s in reads of %s%s", mf_cli_size(text, t->drive),
                          mf_cli_size(each, (double)t->read_bytes),
                          t->is_drive_cached ? ", through the page cache" : "")
            : mf_cli_find(all, "drive", "not measured: nothing can be written there");
    grade_drive(f, rotates, t->drive, t->read_bytes);
    if (t->drive > 0)
        mf_cli_effect(f, "a token that misses n experts waits n x %.3g ms for them.",
                      1e3 * (double)t->read_bytes / t->drive);
    if (t->memory > 0)
        (void)mf_cli_find(all, "bandwidth", "%s/s of memory by all threads",
                          mf_cli_size(text, t->memory));
}

void mf_cli_doctor_drive(mf_cli_findings *all, const mf_cli_patient *patient, const char *folder)
{
    look_at_place(all, folder);
    look_at_direct(all, &patient->trials);
    if (patient->trials.read_bytes != 0)
        look_at_rates(all, patient, folder);
}
