/* SPDX-License-Identifier: MIT */
/* moeflux doctor: what this machine has, what stands in the way, and what to change. */
#include "build_facts.h"
#include "commands.h"
#include "doctor.h"
#include "hub.h"
#include "model_json.h"
#include "model_path.h"
#include "verdict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "Usage: moeflux doctor [MODEL] [OPTION]...\n"
    "Looks at this machine as the engine will use it: processor, memory and its limits, io_uring,\n"
    "huge pages, GPUs, the drive that models are on; with MODEL also whether it runs. What could\n"
    "be better is said with the change; what settings give is measured: the same reads with and\n"
    "without them (256 MiB are written to the drive for that, and removed). Ends with 1 where\n"
    "something stands in the way.\n"
    "\n"
    "  --no-measure           write and time nothing (otherwise some seconds)\n"
    "  --json                 one JSON object\n"
    "  --report FILE          write what a report of a fault should come with: the same object,\n"
    "                         with the program's version and the model's shape; no names of\n"
    "                         files, no texts\n"
    "  -h, --help             this text\n";

enum { OPT_JSON = MF_OPT_OWN, OPT_NO_MEASURE, OPT_REPORT };

static const struct option long_options[] = {{"json", no_argument, NULL, OPT_JSON},
                                             {"no-measure", no_argument, NULL, OPT_NO_MEASURE},
                                             {"report", required_argument, NULL, OPT_REPORT},
                                             {"help", no_argument, NULL, 'h'},
                                             {0}};

typedef struct doctor {
    bool has_json, is_unmeasured;
    const char *report;
    mf_cli_patient patient;
    mf_cli_findings findings;
} doctor;

static int own_option(void *ctx, const mf_cli_parser *parser, int option)
{
    doctor *d = ctx;
    (void)parser;
    if (option == OPT_JSON)
        d->has_json = true;
    else if (option == OPT_NO_MEASURE)
        d->is_unmeasured = true;
    else
        d->report = optarg;
    return MF_EXIT_OK;
}

/* docs/PERFORMANCE.md, "GPUs" */
#define EFFECT_OF_GPU                                                                            \
    "on the machine of docs/PERFORMANCE.md a model of 20 GB that fits an H200's memory decodes " \
    "581 tokens/s, 48.7 on that machine's 16 cores."

void mf_cli_doctor_devices(mf_cli_findings *all)
{
    mf_device_info list[16];
    mf_error no_gpu = {0};
    char size[MF_CLI_SIZE_CHARS];
    size_t n = mf_device_list(list, sizeof list / sizeof *list, &no_gpu);
    n = n < sizeof list / sizeof *list ? n : sizeof list / sizeof *list;
    for (size_t i = 1; i < n; i++) {
        mf_cli_finding *f =
            mf_cli_find(all, "gpu", "%s: %s, %s (%s)", list[i].id, list[i].name,
                        mf_cli_size(size, (double)list[i].memory_bytes), list[i].kind);
        if (list[i].lacks[0] != '\0')
            mf_cli_advise(f, MF_CLI_NOTE, "It lacks %s; a newer driver may have that.",
                          list[i].lacks);
        else if (strcmp(list[i].kind, "software") == 0)
            mf_cli_advise(f, MF_CLI_NOTE, "It computes on the CPU, and is only used by its name.");
        if (strcmp(list[i].kind, "software") != 0)
            mf_cli_effect(f, "%s", EFFECT_OF_GPU);
    }
    if (no_gpu.code == MF_OK)
        return;
    mf_cli_finding *f = mf_cli_find(all, "gpu", "none: %s", no_gpu.message);
    mf_cli_advise(f, MF_CLI_NOTE,
                  "Where there is one: its driver with Vulkan 1.3, and the loader "
                  "(Debian: libvulkan1).");
    mf_cli_effect(f, "%s", EFFECT_OF_GPU);
}

/* The path, or the nearest folder above it that is there. */
static void nearest(const char *path, char out[MF_HUB_PATH_CHARS])
{
    snprintf(out, MF_HUB_PATH_CHARS, "%s", path[0] != '\0' ? path : ".");
    while (access(out, F_OK) != 0) {
        char *slash = strrchr(out, '/');
        if (!slash || slash == out) {
            snprintf(out, MF_HUB_PATH_CHARS, "%s", slash ? "/" : ".");
            return;
        }
        *slash = '\0';
    }
}

/* The folder that the model is in; without one that which models are fetched to. */
static void find_folder(const char *model, char out[MF_HUB_PATH_CHARS])
{
    mf_hub_places places;
    struct stat st;
    mf_hub_places_read(&places);
    nearest(model ? model : places.cache, out);
    if (stat(out, &st) == 0 && !S_ISDIR(st.st_mode)) {
        char *slash = strrchr(out, '/');
        if (slash)
            slash[slash == out] = '\0';
        else
            snprintf(out, MF_HUB_PATH_CHARS, ".");
    }
}

static void examine(doctor *d)
{
    mf_cli_patient *p = &d->patient;
    char folder[MF_HUB_PATH_CHARS];
    mf_engine_options options;
    mf_engine_options_default(&options);
    if (p->model)
        p->status = mf_model_inspect(p->model, &options, &p->info, &p->error);
    if (p->model && p->status == MF_OK)
        p->text = mf_cli_look_at_text(p->model, &p->text_error);
    find_folder(p->model, folder);
    if (!d->is_unmeasured)
        mf_cli_try(p->model, folder, p->info.one_expert_bytes, &p->trials);
    mf_cli_doctor_system(&d->findings, p);
    mf_cli_doctor_devices(&d->findings);
    mf_cli_doctor_model(&d->findings, p);
    mf_cli_doctor_drive(&d->findings, p, folder);
}

static void json_reads(mf_cli_json *json, const char *name, const mf_cli_reads *reads)
{
    if (reads->bytes_per_second <= 0)
        return;
    mf_cli_json_key(json, name);
    mf_cli_json one = mf_cli_json_begin(json->out);
    mf_cli_json_number(&one, "bytes_per_second", reads->bytes_per_second);
    mf_cli_json_number(&one, "cpu_seconds_per_gib", reads->cpu_seconds);
    mf_cli_json_end_value(&one);
}

static void json_trials(mf_cli_json *json, const mf_cli_trials *t)
{
    mf_cli_json_key(json, "measured");
    mf_cli_json all = mf_cli_json_begin(json->out);
    mf_cli_json_integer(&all, "read_bytes", t->read_bytes);
    mf_cli_json_number(&all, "drive_bytes_per_second", t->drive);
    json_reads(&all, "threads", &t->threads);
    json_reads(&all, "io_uring", &t->ring);
    json_reads(&all, "io_uring_held", &t->held);
    json_reads(&all, "page_cache", &t->cached);
    mf_cli_json_number(&all, "memory_bytes_per_second", t->memory);
    mf_cli_json_number(&all, "small_pages_bytes_per_second", t->small_pages);
    mf_cli_json_number(&all, "huge_pages_bytes_per_second", t->huge_pages);
    mf_cli_json_end_value(&all);
}

static void write_json(const doctor *d, FILE *out)
{
    mf_cli_json json = mf_cli_json_begin(out);
    mf_cli_json_build(&json);
    mf_cli_findings_json(&d->findings, &json);
    if (!d->is_unmeasured)
        json_trials(&json, &d->patient.trials);
    if (d->patient.model && d->patient.status == MF_OK) {
        mf_cli_json_key(&json, "model");
        mf_cli_json model = mf_cli_json_begin(out);
        mf_cli_json_model(&model, &d->patient.info, d->patient.text);
        mf_cli_json_end_value(&model);
    }
    mf_cli_json_end(&json);
}

/* Of a vocabulary that cannot be read: the reason may name the model's file. */
static bool names_files(const char *reason, const char *model)
{
    const char *slash = strrchr(model, '/');
    return strchr(reason, '/') || strstr(reason, slash && slash[1] ? slash + 1 : model);
}

/* What names this user's files is left out. */
static int write_report(const doctor *d)
{
    const mf_cli_patient *p = &d->patient;
    doctor clean = *d;
    for (size_t i = 0; i < clean.findings.n; i++) {
        mf_cli_finding *f = &clean.findings.list[i];
        const char *place_end = strcmp(f->name, "models") == 0 ? strrchr(f->value, ':') : NULL;
        if (place_end)
            memmove(f->value, place_end + 2, strlen(place_end + 2) + 1);
        if (strcmp(f->name, "model") != 0)
            continue;
        if (p->status != MF_OK)
            snprintf(f->advice, sizeof f->advice, "%s", mf_status_name(p->status));
        else if (p->text != MF_OK && names_files(f->advice, p->model))
            snprintf(f->advice, sizeof f->advice, "%s", mf_status_name(p->text));
    }
    FILE *file = fopen(d->report, "wxe");
    if (!file)
        return mf_cli_error("%s: cannot be made: %s", d->report, strerror(errno));
    write_json(&clean, file);
    const bool is_bad = ferror(file) != 0;
    if (fclose(file) != 0 || is_bad)
        return mf_cli_error("%s: cannot be written: %s", d->report, strerror(errno));
    return MF_EXIT_OK;
}

static int say(const doctor *d)
{
    int exit_code = MF_EXIT_OK;
    for (size_t i = 0; i < d->findings.n; i++)
        exit_code = d->findings.list[i].grade == MF_CLI_BAD ? MF_EXIT_ERROR : exit_code;
    if (d->has_json) {
        write_json(d, stdout);
    } else {
        printf("moeflux %s\n", mf_version());
        mf_cli_findings_print(&d->findings, stdout);
    }
    if (d->report && write_report(d) != MF_EXIT_OK)
        exit_code = MF_EXIT_ERROR;
    return mf_cli_finish(exit_code);
}

/* Before some seconds of measuring. */
static int may_report(const char *path)
{
    if (access(path, F_OK) == 0)
        return mf_cli_error("%s: cannot be made: %s", path, strerror(EEXIST));
    return mf_cli_may_write(path);
}

int mf_cmd_doctor(int argc, char **argv)
{
    const mf_cli_parser parser = {"doctor", help, argc, argv, ":h", long_options, NULL};
    mf_cli_model_path path;
    int exit_code = MF_EXIT_OK;
    doctor *d = calloc(1, sizeof *d);
    if (!d)
        return mf_cli_error("no memory for what is found");
    if (mf_cli_parse(&parser, own_option, d, &exit_code)) {
        if (optind < argc)
            d->patient.model = mf_cli_positional_model(&parser, false, &path, &exit_code);
        if (exit_code == MF_EXIT_OK && d->report)
            exit_code = may_report(d->report);
        if (exit_code == MF_EXIT_OK) {
            examine(d);
            exit_code = say(d);
        }
    }
    free(d);
    return exit_code;
}
