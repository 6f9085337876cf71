/* SPDX-License-Identifier: MIT */
/* The chat templates of DeepSeek, Cogito and Kimi, by the statements that matter in them. */
#include "text/chat_template.h"

#include <string.h>

#define USER "<｜User｜>"
#define ASSISTANT "<｜Assistant｜>"
#define END_OF_TURN "<｜end▁of▁sentence｜>"

static bool has(const char *canonical, const char *statement)
{
    return strstr(canonical, statement) != NULL;
}

/* Whether nothing but tags gives text. */
static bool is_only_tags(const char *canonical)
{
    char close = '\0';
    bool in_string = false;
    for (const char *p = canonical; *p != '\0'; p++) {
        if (close == '\0') {
            if (p[0] != '{' || (p[1] != '%' && p[1] != '{'))
                return false;
            close = *++p == '%' ? '%' : '}';
        } else if (in_string) {
            if (*p == '\\' && p[1] != '\0')
                p++;
            else
                in_string = *p != '\'';
        } else if (*p == '\'') {
            in_string = true;
        } else if (p[0] == close && p[1] == '}') {
            close = '\0';
            p++;
        }
    }
    return close == '\0';
}

/* What follows the last "if add_generation_prompt"; NULL if there is none. */
static const char *generation_tail(const char *canonical)
{
    static const char start[] = "{%ifadd_generation_prompt";
    const char *tail = NULL;
    for (const char *p = canonical; (p = strstr(p, start)) != NULL; p++)
        tail = p + sizeof start - 1;
    return tail;
}

/* Copies what stands between two texts, the first of them found from `canonical` on; false if there
 * is no such, or it does not fit or has an escape or a quote. */
static bool copy_between(const char *canonical, const char *before, const char *after,
                         char out[MF_MAX_CHAT_PROMPT])
{
    const char *start = strstr(canonical, before);
    const char *end = start != NULL ? strstr(start + strlen(before), after) : NULL;
    if (end == NULL)
        return false;
    start += strlen(before);
    size_t n = (size_t)(end - start);
    if (n >= MF_MAX_CHAT_PROMPT || memchr(start, '\\', n) != NULL || memchr(start, '\'', n) != NULL)
        return false;
    memcpy(out, start, n);
    out[n] = '\0';
    return true;
}

/* ----------------------------------------------------------------------------------- DeepSeek --
 */

static bool recognise_deepseek_opening(const char *canonical, mf_chat_opening *out)
{
#define OPEN "{{'" ASSISTANT "'}}"
    static const struct {
        const char *statements;
        mf_chat_opening opening;
    } known[] = {
        {"andnotns.is_tool%}" OPEN "{%endif%}", MF_OPENING_PLAIN},
        {"andnotns.is_tool%}{{'" ASSISTANT "<think>\\n'}}{%endif%}", MF_OPENING_ALWAYS},
        {"andns.is_last_userandnotns.is_tool%}" OPEN
         "{%ifnotthinking%}{{'</think>'}}{%else%}{{'<think>'}}{%endif%}{%endif%}",
         MF_OPENING_HALF},
    };
    const char *tail = generation_tail(canonical);
    for (size_t i = 0; tail != NULL && i < sizeof known / sizeof *known; i++) {
        if (strcmp(tail, known[i].statements) == 0) {
            *out = known[i].opening;
            return true;
        }
    }
    return false;
}

static bool recognise_deepseek_history(const char *canonical, mf_chat_style *style)
{
    static const char plain[] = "{{'" ASSISTANT "'+message['content']+'" END_OF_TURN "'}}";
    static const char stripped[] = "{%setcontent=message['content']%}{%if'</think>'incontent%}"
                                   "{%setcontent=content.split('</think>')[-1]%}{%endif%}"
                                   "{{'" ASSISTANT "'+content+'" END_OF_TURN "'}}";
    static const char half_open[] = "{%ifns.is_last_user%}" OPEN;
    static const char half_stripped[] = "{%setcontent=message['content']%}{%if'</think>'incontent%}"
                                        "{%setcontent=content.split('</think>',1)[1]%}{%endif%}"
                                        "{{content+'" END_OF_TURN "'}}";
    if (style->opening == MF_OPENING_HALF) {
        style->history = MF_HISTORY_AFTER_FIRST;
        return has(canonical, half_open) && has(canonical, "{%else%}{{'</think>'}}{%endif%}") &&
               has(canonical, half_stripped);
    }
    style->history = has(canonical, stripped) ? MF_HISTORY_AFTER_LAST : MF_HISTORY_PLAIN;
    return has(canonical, stripped) || (has(canonical, plain) && !has(canonical, "</think>'in"));
}

static bool recognise_v2(const char *canonical, mf_chat_style *style)
{
    const char *tail = generation_tail(canonical);
    style->family = MF_CHAT_DEEPSEEK_V2;
    return has(canonical, "{{bos_token}}{%formessageinmessages%}") &&
           has(canonical, "{{'User: '+message['content']+'\\n\\n'}}") &&
           has(canonical, "{{'Assistant: '+message['content']+eos_token}}") &&
           has(canonical, "{{message['content']+'\\n\\n'}}") && tail != NULL &&
           strcmp(tail, "%}{{'Assistant:'}}{%endif%}") == 0;
}

bool mf_chat_recognise_deepseek(const char *canonical, mf_chat_style *style)
{
    static const char joined[] =
        "{%setns.system_prompt=ns.system_prompt+'\\n\\n'+message['content']%}";
    static const char last[] = "{%setns.system_prompt=message['content']%}";
    if (!is_only_tags(canonical))
        return false;
    if (recognise_v2(canonical, style))
        return true;
    style->family = MF_CHAT_DEEPSEEK;
    style->keeps_last_system = !has(canonical, joined);
    return (has(canonical, joined) || has(canonical, last)) &&
           has(canonical, "{{bos_token}}{{ns.system_prompt}}{%formessageinmessages%}") &&
           has(canonical, "{{'" USER "'+message['content']}}") &&
           recognise_deepseek_opening(canonical, &style->opening) &&
           recognise_deepseek_history(canonical, style);
}

/* ------------------------------------------------------------------------------------- Cogito --
 */

bool mf_chat_recognise_cogito(const char *canonical, mf_chat_style *style)
{
    static const char name[] = "You are Cogito,";
    if (!has(canonical, "Enable deep thinking subroutine.") || !has(canonical, "enable_thinking") ||
        !has(canonical, USER) || !has(canonical, ASSISTANT) || !has(canonical, "<think>\\n") ||
        !is_only_tags(canonical))
        return false;
    style->family = MF_CHAT_COGITO;
    style->opening = MF_OPENING_THINK_ASKED;
    style->history =
        has(canonical, ".split('</think>')[-1]") ? MF_HISTORY_AFTER_LAST : MF_HISTORY_PLAIN;
    if (!has(canonical, name))
        return true;
    char rest[MF_MAX_CHAT_PROMPT];
    if (!copy_between(canonical, name, "'", rest) ||
        strlen(rest) >= MF_MAX_CHAT_PROMPT - sizeof name)
        return false;
    memcpy(style->prompt, name, sizeof name - 1);
    memcpy(style->prompt + sizeof name - 1, rest, strlen(rest) + 1);
    return true;
}

/* --------------------------------------------------------------------------------------- Kimi --
 */

#define MIDDLE "<|im_middle|>"
#define NOT_SYSTEM "messages[0]['role']!='system'%}"

/* The first form: all text is in strings. */
static bool recognise_kimi_strings(const char *canonical, mf_chat_style *style)
{
    const char *tail = generation_tail(canonical);
    return copy_between(canonical, NOT_SYSTEM "{{'<|im_system|>system" MIDDLE, "<|im_end|>'}}",
                        style->prompt) &&
           has(canonical, "{{'<|im_system|>system" MIDDLE "'}}") &&
           has(canonical, "{{'<|im_user|>user" MIDDLE "'}}") &&
           has(canonical, "{{'<|im_assistant|>assistant" MIDDLE "'}}") &&
           has(canonical, "{{message['content']+'<|im_end|>'}}") && tail != NULL &&
           strcmp(tail, "%}{{'<|im_assistant|>assistant" MIDDLE "'}}{%endif%}") == 0 &&
           is_only_tags(canonical);
}

/* The later ones: it stands between the tags. */
static bool recognise_kimi_text(const char *canonical, mf_chat_style *style)
{
    static const char thought[] = "{%ifmessage['role']=='assistant'%}<think></think>"
                                  "{{render_content(message)}}";
    const char *tail = generation_tail(canonical);
    if (has(canonical, thought))
        style->history = MF_HISTORY_EMPTY;
    else if (has(canonical, "<think>"))
        return false;
    return copy_between(canonical, NOT_SYSTEM "<|im_system|>system" MIDDLE, "<|im_end|>{%endif%}",
                        style->prompt) &&
           has(canonical, "<|im_user|>{{role_name}}" MIDDLE) &&
           has(canonical, "<|im_assistant|>{{role_name}}" MIDDLE) &&
           has(canonical, "{%else%}<|im_system|>{{role_name}}" MIDDLE) &&
           (has(canonical, "string%}{{message['content']}}") ||
            has(canonical, "none%}{{render_content(message)}}{%endif%}<|im_end|>{%endfor%}")) &&
           has(canonical, "{%endif%}<|im_end|>{%endfor%}") && tail != NULL &&
           strcmp(tail, "%}<|im_assistant|>assistant" MIDDLE "{%endif%}") == 0;
}

bool mf_chat_recognise_kimi(const char *canonical, mf_chat_style *style)
{
    style->family = MF_CHAT_KIMI;
    return recognise_kimi_strings(canonical, style) || recognise_kimi_text(canonical, style);
}
