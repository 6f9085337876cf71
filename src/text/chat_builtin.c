/* SPDX-License-Identifier: MIT */
/*
 * Templates of families whose publishers have none in their checkpoints, but a program that writes
 * conversations: DeepSeek-V4 (its package deepseek-recipe). Where tools are listed the words are
 * ours; all else is what that program writes.
 */
#include "text/chat.h"

#include <string.h>

/* System texts come first, then turns; what tools gave is a user's, in the order of the calls.
 * Thoughts of the past stay where there are tools. */
static const char deepseek_v4[] =
    /* clang-format off */
    "{%- set on = thinking if thinking is defined else (enable_thinking if enable_thinking is defined else true) -%}\n"
    "{%- set tag = '｜DSML｜' -%}\n"
    "{%- macro text(content) -%}\n"
    "{{ '' if content is none else content if content is string else content | map(attribute='text') | join('\\n\\n') }}\n"
    "{%- endmacro -%}\n"
    "{%- macro call(f) -%}\n"
    "{{ '<' ~ tag ~ 'invoke name=\"' ~ f.name ~ '\">\\n' }}\n"
    "{%- if f.arguments is mapping -%}\n"
    "{%- for name, value in f.arguments.items() -%}\n"
    "{{ '<' ~ tag ~ 'parameter name=\"' ~ name ~ '\" string=\"' ~ ('true' if value is string else 'false') ~ '\">' ~ (value if value is string else value | tojson) ~ '</' ~ tag ~ 'parameter>\\n' }}\n"
    "{%- endfor -%}\n"
    "{%- endif -%}\n"
    "{{ '</' ~ tag ~ 'invoke>' }}\n"
    "{%- endmacro -%}\n"
    "{%- set turns = messages | rejectattr('role', 'in', ['system', 'developer']) | list -%}\n"
    "{%- set ns = namespace(system='', is_open=false, calls=[], run=[], results=[], at=0) -%}\n"
    "{%- for m in messages if m.role in ['system', 'developer'] -%}\n"
    "{%- set ns.system = ns.system ~ ('\\n\\n' if ns.system else '') ~ text(m.content) -%}\n"
    "{%- endfor -%}\n"
    "{{ bos_token ~ ns.system }}\n"
    "{%- if tools -%}\n"
    "{{ '\\n\\n## Tools\\n\\nThese functions can be called. Calls stand at the end of an answer, so:\\n\\n<' ~ tag ~ 'tool_calls>\\n<' ~ tag ~ 'invoke name=\"FUNCTION\">\\n<' ~ tag ~ 'parameter name=\"PARAMETER\" string=\"true|false\">VALUE</' ~ tag ~ 'parameter>\\n...\\n</' ~ tag ~ 'invoke>\\n...\\n</' ~ tag ~ 'tool_calls>\\n\\nA text is written as it is, with string=\"true\"; a value of any other type as JSON, with string=\"false\".\\n' }}\n"
    "{%- for tool in tools -%}\n"
    "{{ '\\n' ~ (tool.function if tool.function is defined else tool) | tojson }}\n"
    "{%- endfor -%}\n"
    "{{ '\\n' }}\n"
    "{%- endif -%}\n"
    "{%- for m in turns -%}\n"
    "{%- set here = loop.index0 -%}\n"
    "{%- if m.role == 'assistant' -%}\n"
    "{%- set ns.is_open = false -%}\n"
    "{%- set ns.calls = (m.tool_calls or []) | map(attribute='id') | list -%}\n"
    "{{ '<｜Assistant｜>' ~ (('<think>' ~ (m.reasoning_content or '')) if on and tools else '') ~ '</think>' ~ text(m.content) }}\n"
    "{%- if m.tool_calls -%}\n"
    "{{ '\\n\\n<' ~ tag ~ 'tool_calls>\\n' }}\n"
    "{%- for c in m.tool_calls -%}\n"
    "{{ call(c.function) ~ '\\n' }}\n"
    "{%- endfor -%}\n"
    "{{ '</' ~ tag ~ 'tool_calls>' }}\n"
    "{%- endif -%}\n"
    "{{ '<｜end▁of▁sentence｜>' }}\n"
    "{%- else -%}\n"
    "{{ '\\n\\n' if ns.is_open else '<｜User｜>' }}\n"
    "{%- set ns.is_open = true -%}\n"
    "{%- if m.role == 'tool' -%}\n"
    "{%- if here == 0 or turns[here - 1].role != 'tool' -%}\n"
    "{%- set ns.run = [] -%}\n"
    "{%- set ns.results = [] -%}\n"
    "{%- set ns.at = 0 -%}\n"
    "{%- for r in turns[here:] -%}\n"
    "{%- if r.role != 'tool' -%}{%- break -%}{%- endif -%}\n"
    "{%- set ns.run = ns.run + [r] -%}\n"
    "{%- endfor -%}\n"
    "{%- for id in ns.calls -%}\n"
    "{%- for r in ns.run if r.tool_call_id == id -%}\n"
    "{%- set ns.results = ns.results + [r] -%}\n"
    "{%- endfor -%}\n"
    "{%- endfor -%}\n"
    "{%- if ns.results | length != ns.run | length -%}{%- set ns.results = ns.run -%}{%- endif -%}\n"
    "{%- endif -%}\n"
    "{{ '<tool_result>' ~ text(ns.results[ns.at].content) ~ '</tool_result>' }}\n"
    "{%- set ns.at = ns.at + 1 -%}\n"
    "{%- else -%}\n"
    "{{ text(m.content) }}\n"
    "{%- endif -%}\n"
    "{%- endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "{{ '<｜Assistant｜>' ~ ('<think>' if on else '</think>') }}\n"
    "{%- endif -%}\n";
/* clang-format on */

static const struct {
    const char *model_type, *arch, *text;
} builtins[] = {{"deepseek_v4", "deepseek4", deepseek_v4}};

const char *mf_chat_builtin(const char *family)
{
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
        if (strcmp(builtins[i].model_type, family) == 0 || strcmp(builtins[i].arch, family) == 0)
            return builtins[i].text;
    return NULL;
}
