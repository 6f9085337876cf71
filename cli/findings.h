/* SPDX-License-Identifier: MIT */
/* What was found about a machine: each a line with a grade, and what to change where that helps. */
#ifndef MF_CLI_FINDINGS_H
#define MF_CLI_FINDINGS_H

#include "json.h"

typedef enum mf_cli_grade {
    MF_CLI_GOOD,
    MF_CLI_NOTE, /* works, but not as well as it could */
    MF_CLI_BAD   /* stands in the way */
} mf_cli_grade;

typedef struct mf_cli_finding {
    mf_cli_grade grade;
    const char *name;
    char value[320];
    char advice[480]; /* what to change; "": nothing */
    char effect[320]; /* what it gives, or would; "": that is not known */
} mf_cli_finding;

enum { MF_CLI_MAX_FINDINGS = 40 };

typedef struct mf_cli_findings {
    mf_cli_finding list[MF_CLI_MAX_FINDINGS];
    size_t n;
} mf_cli_findings;

/* Adds one that is good so far; the name is not copied. Control characters are replaced. Beyond the
 * most there are, the last one is written anew. */
__attribute__((format(printf, 3, 4))) mf_cli_finding *
mf_cli_find(mf_cli_findings *all, const char *name, const char *format, ...);
/* Grades it, and says what to change. */
__attribute__((format(printf, 3, 4))) void
mf_cli_advise(mf_cli_finding *finding, mf_cli_grade grade, const char *format, ...);

/* What it gives: measured here, or known of elsewhere, which is then said. */
__attribute__((format(printf, 2, 3))) void mf_cli_effect(mf_cli_finding *finding,
                                                         const char *format, ...);

void mf_cli_findings_print(const mf_cli_findings *all, FILE *out);
/* Members of a JSON object: "findings", an array. */
void mf_cli_findings_json(const mf_cli_findings *all, mf_cli_json *json);

#endif
