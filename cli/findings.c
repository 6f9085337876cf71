/* SPDX-License-Identifier: MIT */
#include "findings.h"

#include "output.h"

#include <stdarg.h>
#include <string.h>

enum { NAME_CHARS = 13, LINE_CHARS = 96, MARGIN = 5 + 1 + NAME_CHARS + 1 };

static const char *const grades[] = {"ok", "note", "bad"};

mf_cli_finding *mf_cli_find(mf_cli_findings *all, const char *name, const char *format, ...)
{
    all->n += all->n < MF_CLI_MAX_FINDINGS;
    mf_cli_finding *f = &all->list[all->n - 1];
    *f = (mf_cli_finding){.name = name};
    va_list args;
    va_start(args, format);
    vsnprintf(f->value, sizeof f->value, format, args);
    va_end(args);
    return f;
}

void mf_cli_advise(mf_cli_finding *f, mf_cli_grade grade, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->advice, sizeof f->advice, format, args);
    va_end(args);
    f->grade = grade;
}

void mf_cli_effect(mf_cli_finding *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->effect, sizeof f->effect, format, args);
    va_end(args);
}

/* Broken between words, each line behind a margin. */
static void print_wrapped(const char *text, FILE *out)
{
    const size_t room = (size_t)(LINE_CHARS - MARGIN);
    while (*text != '\0') {
        size_t n = strlen(text);
        if (n > room) {
            for (n = room; n > 0 && text[n] != ' ';)
                n--;
            n = n > 0 ? n : room;
        }
        char line[LINE_CHARS + 1];
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        fprintf(out, "%*s", MARGIN, "");
        mf_cli_put_plain(out, line);
        fputc('\n', out);
        text += n;
        text += strspn(text, " ");
    }
}

void mf_cli_findings_print(const mf_cli_findings *all, FILE *out)
{
    for (size_t i = 0; i < all->n; i++) {
        const mf_cli_finding *f = &all->list[i];
        fprintf(out, "%-5s %-*s ", grades[f->grade], NAME_CHARS, f->name);
        mf_cli_put_plain(out, f->value);
        fputc('\n', out);
        print_wrapped(f->advice, out);
        if (f->effect[0] == '\0')
            continue;
        char line[sizeof f->effect + 16];
        snprintf(line, sizeof line, "Effect: %s", f->effect);
        print_wrapped(line, out);
    }
}

void mf_cli_findings_json(const mf_cli_findings *all, mf_cli_json *json)
{
    mf_cli_json_key(json, "findings");
    for (size_t i = 0; i < all->n; i++) {
        const mf_cli_finding *f = &all->list[i];
        fputs(i == 0 ? "[" : ", ", json->out);
        mf_cli_json one = mf_cli_json_begin(json->out);
        mf_cli_json_string(&one, "grade", grades[f->grade]);
        mf_cli_json_string(&one, "name", f->name);
        mf_cli_json_string(&one, "value", f->value);
        mf_cli_json_string(&one, "advice", f->advice);
        mf_cli_json_string(&one, "effect", f->effect);
        mf_cli_json_end_value(&one);
    }
    fputs(all->n == 0 ? "[]" : "]", json->out);
}
