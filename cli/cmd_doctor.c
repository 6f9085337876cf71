/* SPDX-License-Identifier: MIT */
/* moeflux doctor: what this machine has, what stands in the way, and what to change. */
#include "build_facts.h"
#include "commands.h"
#include "doctor.h"
#include "model_json.h"
#include "model_path.h"
#include "verdict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: moeflux doctor [MODEL] [OPTION]...\n"
    "Looks at this machine as the engine will use it: processor, memory and its limits, io_uring,\n"
    "huge pages, GPUs, the drive that models are on; with MODEL also whether it runs. What could\n"
    "be better is said with the change and what it gives. Ends with 1 where something stands in\n"
    "the way.\n"
    "\n"
    "  --no-measure           do not time the drive and memory (a second)\n"
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
    const char *model; /* NULL: none */
    mf_model_info info;
    mf_status status; /* of the model */
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
    }
    if (no_gpu.code != MF_OK)
        mf_cli_advise(mf_cli_find(all, "gpu", "none: %s", no_gpu.message), MF_CLI_NOTE,
                      "Where there is one: its driver with Vulkan 1.3, and the loader "
                      "(Debian: libvulkan1).");
}

static void look_at_model(doctor *d)
{
    mf_engine_options options;
    mf_error error = {0};
    mf_engine_options_default(&options);
    d->status = mf_model_inspect(d->model, &options, &d->info, &error);
    if (d->status != MF_OK) {
        mf_cli_advise(mf_cli_find(&d->findings, "model", "cannot be opened"), MF_CLI_BAD, "%s",
                      error.message);
        return;
    }
    mf_cli_finding *f = mf_cli_find(&d->findings, "model", "%s, %s: %s", d->info.family,
                                    d->info.form, mf_cli_verdict(&d->info));
    if (!mf_cli_runs(&d->info))
        mf_cli_advise(f, MF_CLI_BAD,
                      "moeflux info says what it needs; a smaller --ctx needs less.");
    else if (mf_cli_cacheable_fraction(&d->info) < 1 && d->info.n_moe_layers != 0)
        mf_cli_advise(f, MF_CLI_GOOD, "moeflux plan says what other budgets would give.");
}

static void write_json(const doctor *d, FILE *out)
{
    mf_cli_json json = mf_cli_json_begin(out);
    mf_cli_json_build(&json);
    mf_cli_findings_json(&d->findings, &json);
    if (d->model && d->status == MF_OK) {
        mf_cli_json_key(&json, "model");
        mf_cli_json model = mf_cli_json_begin(out);
        mf_cli_json_model(&model, &d->info);
        mf_cli_json_end_value(&model);
    }
    mf_cli_json_end(&json);
}

/* What names this user's files is left out. */
static int write_report(const doctor *d)
{
    doctor clean = *d;
    for (size_t i = 0; i < clean.findings.n; i++) {
        mf_cli_finding *f = &clean.findings.list[i];
        const char *place_end = strcmp(f->name, "models") == 0 ? strrchr(f->value, ':') : NULL;
        if (place_end)
            memmove(f->value, place_end + 2, strlen(place_end + 2) + 1);
        if (strcmp(f->name, "model") == 0 && d->status != MF_OK)
            snprintf(f->advice, sizeof f->advice, "%s", mf_status_name(d->status));
    }
    FILE *file = fopen(d->report, "wxe");
    if (!file)
        return mf_cli_error("%s: %s", d->report, strerror(errno));
    write_json(&clean, file);
    const bool is_bad = ferror(file) != 0;
    if (fclose(file) != 0 || is_bad)
        return mf_cli_error("%s: %s", d->report, strerror(errno));
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
            d->model = mf_cli_positional_model(&parser, false, &path, &exit_code);
        if (exit_code == MF_EXIT_OK) {
            mf_cli_doctor_system(&d->findings);
            mf_cli_doctor_devices(&d->findings);
            if (d->model)
                look_at_model(d);
            mf_cli_doctor_drive(&d->findings, d->model, d->info.one_expert_bytes,
                                !d->is_unmeasured);
            exit_code = say(d);
        }
    }
    free(d);
    return exit_code;
}
