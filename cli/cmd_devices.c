/* SPDX-License-Identifier: MIT */
/* moeflux devices: what can compute here, by the names that --device takes. */
#include "commands.h"
#include "json.h"

#include <stdio.h>
#include <stdlib.h>

static const char help[] =
    "Usage: moeflux devices [OPTION]...\n"
    "Lists what can compute here, a line each: the name that --device takes, what it is, its\n"
    "memory and how much of it is free, its driver, and what it lacks if it cannot be used.\n"
    "\n"
    "  --json                 one JSON object\n"
    "  -h, --help             this text\n";

enum { OPT_JSON = MF_OPT_OWN };

static const struct option long_options[] = {
    {"json", no_argument, NULL, OPT_JSON}, {"help", no_argument, NULL, 'h'}, {0}};

static void print_line(const mf_device_info *d)
{
    char all[MF_CLI_SIZE_CHARS], free_now[MF_CLI_SIZE_CHARS];
    printf("%-10s %-10s  %s; %s", d->id, d->kind, d->name,
           mf_cli_size(all, (double)d->memory_bytes));
    if (d->free_bytes != 0)
        printf(", %s free", mf_cli_size(free_now, (double)d->free_bytes));
    if (d->shares_memory && d->api[0] != '\0')
        printf(", the host's");
    if (d->driver[0] != '\0')
        printf("; %s", d->driver);
    if (d->api[0] != '\0')
        printf("; %s", d->api);
    if (d->has_matrix_units)
        printf("; matrix units");
    if (d->lacks[0] != '\0')
        printf("; cannot be used: it lacks %s", d->lacks);
    printf("\n");
}

static void print_object(const mf_device_info *d)
{
    mf_cli_json json = mf_cli_json_begin(stdout);
    mf_cli_json_string(&json, "id", d->id);
    mf_cli_json_string(&json, "kind", d->kind);
    mf_cli_json_string(&json, "name", d->name);
    mf_cli_json_string(&json, "driver", d->driver);
    mf_cli_json_string(&json, "api", d->api);
    mf_cli_json_string(&json, "lacks", d->lacks);
    if (d->tiers[0] != '\0')
        mf_cli_json_string(&json, "tiers", d->tiers);
    mf_cli_json_integer(&json, "memory_bytes", d->memory_bytes);
    mf_cli_json_integer(&json, "free_bytes", d->free_bytes);
    mf_cli_json_bool(&json, "shares_memory", d->shares_memory != 0);
    mf_cli_json_bool(&json, "matrix_units", d->has_matrix_units != 0);
    mf_cli_json_end_value(&json);
}

static void print_json(const mf_device_info *list, size_t n, const mf_error *no_gpu)
{
    mf_cli_json json = mf_cli_json_begin(stdout);
    mf_cli_json_key(&json, "devices");
    for (size_t i = 0; i < n; i++) {
        fputs(i == 0 ? "[" : ", ", stdout);
        print_object(&list[i]);
    }
    fputs("]", stdout);
    mf_cli_json_string(&json, "no_gpu", no_gpu->message);
    mf_cli_json_end(&json);
}

#define MOST 32

int mf_cmd_devices(int argc, char **argv)
{
    const mf_cli_parser parser = {"devices", help, argc, argv, ":h", long_options, NULL};
    bool has_json = false;
    int exit_code = MF_EXIT_OK;
    mf_error no_gpu = {0};
    if (!mf_cli_parse(&parser, mf_cli_json_option, &has_json, &exit_code))
        return exit_code;
    if (optind < argc)
        return mf_cli_usage_error("devices", "devices: unexpected argument '%s'", argv[optind]);
    mf_device_info *list = calloc(MOST, sizeof *list);
    if (!list)
        return mf_cli_error("no memory for the list of devices");
    size_t n = mf_device_list(list, MOST, &no_gpu);
    n = n < MOST ? n : MOST;
    for (size_t i = 0; i < n && !has_json; i++)
        print_line(&list[i]);
    if (has_json)
        print_json(list, n, &no_gpu);
    else if (no_gpu.code != MF_OK)
        printf("no GPU: %s\n", no_gpu.message);
    free(list);
    return mf_cli_finish(MF_EXIT_OK);
}
