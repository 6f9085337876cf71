/* SPDX-License-Identifier: MIT */
#include "build_facts.h"

#include <commit.h> /* generated */
#include <moeflux/moeflux.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

static const char parts[] = "all"
#ifndef MF_HAS_SERVER
                            " but serve"
#endif
#ifndef MF_HAS_PULL
                            " but pull"
#endif
    ;

static void print_devices(FILE *out)
{
    mf_device_info list[16];
    mf_error no_gpu = {0};
    size_t n = mf_device_list(list, sizeof list / sizeof *list, &no_gpu);
    n = n < sizeof list / sizeof *list ? n : sizeof list / sizeof *list;
    if (n > 0)
        fprintf(out, "tiers     %s\n", list[0].tiers);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%-10s%s\n", list[i].id, list[i].name);
}

void mf_cli_print_version(FILE *out)
{
    fprintf(out, "moeflux %s\n", mf_version());
    fprintf(out, "commit    %s\n", MF_COMMIT);
    fprintf(out, "compiler  %s\n", COMPILER);
    fprintf(out, "commands  %s\n", parts);
    print_devices(out);
}

void mf_cli_json_build(mf_cli_json *json)
{
    mf_cli_json_string(json, "version", mf_version());
    mf_cli_json_string(json, "commit", MF_COMMIT);
    mf_cli_json_string(json, "compiler", COMPILER);
    mf_cli_json_string(json, "commands", parts);
}
