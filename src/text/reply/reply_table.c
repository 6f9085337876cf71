/* SPDX-License-Identifier: MIT */
/* The families: one row each, in the order in which a template is held against them. What a row
 * does not set is not there. */
#include "text/reply/reply_syntax.h"

#include <string.h>

#define THINK .thought_open = "<think>\n", .thought_close = "\n</think>\n\n"
#define DS(word) "<\xef\xbd\x9c" word "\xef\xbd\x9c>" /* DeepSeek's fullwidth bars */
#define DS_TOOL(word) DS("tool\xe2\x96\x81" word)     /* and the lower block between words */
#define DSML(text)  \
    "<\xef\xbd\x9c" \
    "DSML\xef\xbd\x9c" text
#define DSML_END(text) \
    "</\xef\xbd\x9c"   \
    "DSML\xef\xbd\x9c" text

#define DSML_TAGS                                                                         \
    .reader = MF_READ_TAGGED, .call_open = DSML("invoke name=\""), .name_close = "\">\n", \
    .key_open = DSML("parameter name=\""), .key_close = "\" string=\"false\">",           \
    .key_close_string = "\" string=\"true\">", .value_close = DSML_END("parameter>\n"),   \
    .call_close = DSML_END("invoke>\n"), .thought_open = "<think>", .thought_close = "</think>"

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
    {.name = "coder",
     .reader = MF_READ_TAGGED,
     .is_per_call = true,
     .section_open = "<tool_call>\n",
     .call_open = "<function=",
     .name_close = ">\n",
     .key_open = "<parameter=",
     .key_close = ">\n",
     .value_close = "\n</parameter>\n",
     .call_close = "</function>\n",
     .section_close = "</tool_call>",
     .between = "\n",
     THINK},
    {.name = "glm",
     .reader = MF_READ_TAGGED,
     .is_per_call = true,
     .section_open = "<tool_call>",
     .name_close = "\n",
     .key_open = "<arg_key>",
     .key_close = "</arg_key>\n<arg_value>",
     .value_close = "</arg_value>\n",
     .section_close = "</tool_call>",
     .between = "\n",
     .thought_open = "<think>",
     .thought_close = "</think>\n",
     .stops = {"<|observation|>", "<|user|>"}},
    {.name = "glm_tight", /* GLM-4.7 and later */
     .reader = MF_READ_TAGGED,
     .is_per_call = true,
     .section_open = "<tool_call>",
     .key_open = "<arg_key>",
     .key_close = "</arg_key><arg_value>",
     .value_close = "</arg_value>",
     .section_close = "</tool_call>",
     .thought_open = "<think>",
     .thought_close = "</think>",
     .stops = {"<|observation|>", "<|user|>"}},
    {.name = "minimax",
     .reader = MF_READ_TAGGED,
     .ends_thought = true,
     .section_open = "<minimax:tool_call>\n",
     .call_open = "<invoke name=\"",
     .name_close = "\">\n",
     .key_open = "<parameter name=\"",
     .key_close = "\">",
     .value_close = "</parameter>\n",
     .call_close = "</invoke>\n",
     .section_close = "</minimax:tool_call>",
     THINK},
    {.name = "deepseek", /* V3, R1 */
     .reader = MF_READ_NAMED,
     .section_open = DS_TOOL("calls\xe2\x96\x81"
                             "begin"),
     .call_open = DS_TOOL("call\xe2\x96\x81"
                          "begin") "function" DS_TOOL("sep"),
     .name_close = "\n```json\n",
     .call_close = "\n```" DS_TOOL("call\xe2\x96\x81"
                                   "end"),
     .section_close = DS_TOOL("calls\xe2\x96\x81"
                              "end"),
     .between = "\n",
     THINK},
    {.name = "deepseek_v31",
     .reader = MF_READ_NAMED,
     .section_open = DS_TOOL("calls\xe2\x96\x81"
                             "begin"),
     .call_open = DS_TOOL("call\xe2\x96\x81"
                          "begin"),
     .name_close = DS_TOOL("sep"),
     .call_close = DS_TOOL("call\xe2\x96\x81"
                           "end"),
     .section_close = DS_TOOL("calls\xe2\x96\x81"
                              "end"),
     .thought_open = "<think>",
     .thought_close = "</think>"},
    {.name = "dsml", /* DeepSeek-V3.2 */
     DSML_TAGS,
     .section_open = DSML("function_calls>\n"),
     .section_also = DSML("tool_calls>"),
     .section_close = DSML_END("function_calls>"),
     .section_close_also = DSML_END("tool_calls>")},
    {.name = "dsml_v4",
     DSML_TAGS,
     .section_open = DSML("tool_calls>\n"),
     .section_also = DSML("function_calls>"),
     .section_close = DSML_END("tool_calls>"),
     .section_close_also = DSML_END("function_calls>")},
    {.name = "kimi",
     .reader = MF_READ_NAMED,
     .ends_thought = true,
     .section_open = "<|tool_calls_section_begin|>",
     .call_open = "<|tool_call_begin|>",
     .name_prefix = "functions.",
     .number_open = ":",
     .name_close = "<|tool_call_argument_begin|>",
     .call_close = "<|tool_call_end|>",
     .section_close = "<|tool_calls_section_end|>",
     .thought_open = "<think>",
     .thought_close = "</think>"},
    {.name = "harmony",
     .reader = MF_READ_HARMONY,
     .is_per_call = true,
     .section_open = "<|channel|>commentary to=",
     .call_open = "functions.",
     .name_prefix = "functions.",
     .name_close = " <|constrain|>json<|message|>",
     .between = "<|call|><|start|>assistant",
     .thought_open = "<|channel|>analysis<|message|>",
     .thought_close = "<|end|><|start|>assistant",
     .content_open = "<|channel|>final<|message|>",
     .stops = {"<|return|>", "<|call|>"}},
    {.name = "nemotron",
     .reader = MF_READ_OBJECT,
     .section_open = "<TOOLCALL>[",
     .call_open = "{\"name\": \"",
     .name_close = "\", \"arguments\": ",
     .call_close = "}",
     .section_close = "]</TOOLCALL>",
     .between = ", ",
     THINK},
    {.name = "granite",
     .reader = MF_READ_OBJECT,
     .is_per_call = true,
     .section_open = "<|tool_call|>",
     .call_open = "{\"name\": \"",
     .name_close = "\", \"arguments\": ",
     .call_close = "}",
     .between = "\n",
     THINK},
    {.name = "phi",
     .reader = MF_READ_OBJECT,
     .section_open = "<|tool_call|>[",
     .call_open = "{\"name\": \"",
     .name_close = "\", \"arguments\": ",
     .call_close = "}",
     .section_close = "]<|/tool_call|>",
     .between = ", ",
     THINK},
    {.name = "mistral", /* up to the seventh form of its tokenizer */
     .reader = MF_READ_OBJECT,
     .has_short_ids = true,
     .section_open = "[TOOL_CALLS] [",
     .call_open = "{\"name\": \"",
     .name_close = "\", \"arguments\": ",
     .call_close = "}",
     .section_close = "]",
     .between = ", ",
     .thought_open = "[THINK]",
     .thought_close = "[/THINK]"},
    {.name = "mistral_args",
     .reader = MF_READ_NAMED,
     .is_per_call = true,
     .has_short_ids = true,
     .section_open = "[TOOL_CALLS]",
     .id_open = "[CALL_ID]",
     .name_close = "[ARGS]",
     .thought_open = "[THINK]",
     .thought_close = "[/THINK]"},
    {.name = "lfm",
     .reader = MF_READ_PYTHON,
     .section_open = "<|tool_call_start|>[",
     .name_close = "(",
     .value_close = ", ",
     .call_close = ")",
     .section_close = "]<|tool_call_end|>",
     .between = ", ",
     THINK},
    {.name = "llama4",
     .reader = MF_READ_PYTHON,
     .may_be_bare = true,
     .section_open = "<|python_start|>[",
     .name_close = "(",
     .value_close = ", ",
     .call_close = ")",
     .section_close = "]<|python_end|>",
     .between = ", ",
     .stops = {"<|eom|>"},
     THINK},
    {.name = "pythonic", /* the same without marks */
     .reader = MF_READ_PYTHON,
     .section_open = "[",
     .section_also = "<|python_start|>",
     .name_close = "(",
     .value_close = ", ",
     .call_close = ")",
     .section_close = "]",
     .section_close_also = "]<|python_end|>",
     .between = ", ",
     .stops = {"<|eom|>"},
     THINK},
    {.name = "llama3",
     .reader = MF_READ_OBJECT,
     .has_one_call = true,
     .section_also = "<|python_tag|>",
     .call_open = "{\"name\": \"",
     .name_close = "\", \"parameters\": ",
     .call_close = "}",
     .stops = {"<|eom_id|>"},
     THINK},
    {.name = "plain", .reader = MF_READ_NONE, THINK},
};

#define N_ROWS (sizeof rows / sizeof *rows)

/* As the rows; a test holds them together. */
static const char *const names[] = {
    "hermes",  "coder",        "glm",  "glm_tight", "minimax",  "deepseek", "deepseek_v31",
    "dsml",    "dsml_v4",      "kimi", "harmony",   "nemotron", "phi",      "granite",
    "mistral", "mistral_args", "lfm",  "llama4",    "pythonic", "llama3",   "plain",
    NULL};
_Static_assert(sizeof names / sizeof *names == N_ROWS + 1, "a name for each row");

const mf_reply_row *mf_reply_rows(size_t *n)
{
    *n = N_ROWS;
    return rows;
}

const mf_reply_row *mf_reply_row_find(const char *name)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

const char *const *mf_reply_syntax_names(void)
{
    return names;
}
