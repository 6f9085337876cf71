/* SPDX-License-Identifier: MIT */
/* The families: one row each. What a row does not set is "" or nothing. */
#include "text/reply/reply_syntax.h"

#include <string.h>

#define THINK .thought_open = "<think>\n", .thought_close = "\n</think>\n\n"

static const mf_reply_row rows[] = {
    {.name = "hermes",
     .reader = MF_READ_OBJECT,
     .is_per_call = true,
     .section_open = "<tool_call>\n",
     .call_open = "{\"name\": \"",
     .name_close = "\", \"arguments\": ",
     .call_close = "}\n",
     .section_close = "</tool_call>",
     .between = "\n",
     THINK},
    {.name = "plain", .reader = MF_READ_NONE, THINK},
};

static const char *const names[] = {"hermes", "plain", NULL};

const mf_reply_row *mf_reply_rows(size_t *n)
{
    *n = sizeof rows / sizeof *rows;
    return rows;
}

const mf_reply_row *mf_reply_row_find(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

const char *const *mf_reply_syntax_names(void)
{
    return names;
}
