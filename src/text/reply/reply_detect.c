/* SPDX-License-Identifier: MIT */
/* Which syntax a template writes: known calls are rendered by it, and the row whose reader gives
 * them back is the one; where thoughts and turns begin is seen by what stands before known words.
 */
#include "text/reply/reply_derive.h"
#include "text/reply/reply_json.h"
#include "text/reply/reply_probe.h"
#include "text/tokenizer.h"

#include <string.h>

#define MARK_BYTES 64

typedef struct detection {
    mf_probe_target target;
    char opening[256];         /* of a turn; "": unknown */
    char prompted[MARK_BYTES]; /* what the prompt has behind it; "": nothing */
    char thought_open[MARK_BYTES], thought_close[MARK_BYTES]; /* "": unknown */
    char content_open[MARK_BYTES], content_close[MARK_BYTES]; /* "": none */
    char turn_end[256];                                       /* behind content */
    char between[512];                                        /* an end, and an opening */
    mf_reply_row row;                                         /* the syntax that was found */
    const mf_reply_row *rest;                                 /* one that reads calls, and more */
    mf_reply_derived derived; /* texts of a row that is none of the known ones */
} detection;

static void copy(char *out, size_t capacity, const char *text, size_t n)
{
    out[0] = '\0';
    if (n >= capacity)
        return;
    memcpy(out, text, n);
    out[n] = '\0';
}

/* Where the last mark before `end` begins that is still open there: "<thi" of "<think>". */
static size_t before_open_mark(const char *text, size_t end)
{
    for (size_t i = end; i > 0; i--) {
        if (text[i - 1] == '>' || text[i - 1] == ']')
            return end;
        if (text[i - 1] == '<' || text[i - 1] == '[')
            return i - 1;
    }
    return end;
}

/* The last mark in text[n], with blanks behind it: "<think>\n"; n: none. */
static size_t last_mark(const char *text, size_t n)
{
    size_t end = n;
    while (end > 0 && mf_reply_is_blank(text[end - 1]))
        end--;
    if (end == 0 || (text[end - 1] != '>' && text[end - 1] != ']'))
        return n;
    const char open = text[end - 1] == '>' ? '<' : '[';
    while (end > 0 && text[end - 1] != open)
        end--;
    return end == 0 ? n : end - 1;
}

/* How much of text[n] is its first mark, with the blanks around it: what follows begins something
 * else. */
static size_t first_mark(const char *text, size_t n)
{
    size_t end = 0;
    while (end < n && text[end] != '>' && text[end] != ']')
        end++;
    for (end += end < n; end < n && mf_reply_is_blank(text[end]); end++)
        ;
    return end;
}

/* Whether what stands before the thought in one text stands before the content in the other: then
 * it is what begins a turn. */
static bool ends_alike(const char *with_thought, size_t n, const char *without)
{
    const char *content = strstr(without, MF_PROBE_CONTENT);
    size_t start = last_mark(with_thought, n), n_mark = n - start;
    return content != NULL && n_mark != 0 && (size_t)(content - without) >= n_mark &&
           memcmp(content - n_mark, with_thought + start, n_mark) == 0;
}

/* ---------------------------------------------------------------------------------- thoughts -- */

/* What stands around the thought: with_thought has one, without has none. `what` is said behind it.
 */
static void take_thought(detection *d, const char *with_thought, const char *without,
                         const char *what)
{
    const char *thought = strstr(with_thought, MF_PROBE_THOUGHT);
    const char *content = thought == NULL ? NULL : strstr(thought, what);
    if (content == NULL)
        return;
    const char *close = thought + strlen(MF_PROBE_THOUGHT);
    size_t start = 0, n = (size_t)(thought - with_thought);
    while (start < n && with_thought[start] == without[start])
        start++;
    start = before_open_mark(with_thought, start);
    while (start < n && mf_reply_is_blank(with_thought[start]))
        start++;
    size_t n_close = first_mark(close, (size_t)(content - close)), n_seen = n_close;
    while (n_seen > 0 && mf_reply_is_blank(close[n_seen - 1]))
        n_seen--;
    const bool is_empty = strncmp(without + start, close, n_seen) == 0; /* a thought is written */
    if (start == n && (is_empty || (strcmp(what, MF_PROBE_CONTENT) == 0 &&
                                    !ends_alike(with_thought, n, without))))
        start = last_mark(with_thought, n);
    if (n - start >= MARK_BYTES || n_seen == 0 || n_close >= MARK_BYTES)
        return;
    copy(d->thought_open, MARK_BYTES, with_thought + start, n - start);
    copy(d->thought_close, MARK_BYTES, close, n_close);
}

/* With content, or with a call. */
static mf_status find_thoughts(detection *d, bool has_call)
{
    mf_probe with_thought = {.content = has_call ? NULL : MF_PROBE_CONTENT,
                             .thought = MF_PROBE_THOUGHT,
                             .n_calls = has_call,
                             .thinking = MF_THINKING_ON};
    mf_probe without = with_thought;
    mf_probe_text text, plain = {0};
    without.thought = NULL;
    MF_TRY(mf_probe_render(&d->target, &with_thought, &text));
    mf_status status = mf_probe_render(&d->target, &without, &plain);
    if (status == MF_OK && text.text != NULL && plain.text != NULL)
        take_thought(d, text.text, plain.text, has_call ? MF_PROBE_NAME : MF_PROBE_CONTENT);
    mf_probe_free(&d->target, &text);
    mf_probe_free(&d->target, &plain);
    return status;
}

/* ------------------------------------------------------------------------------- the opening -- */

/* Where a thought's mark begins in text[n], or n. */
static size_t before_thought(const detection *d, const char *text, size_t n)
{
    const char *const marks[] = {"<think>", "</think>", "[THINK]", d->thought_open,
                                 d->thought_close};
    size_t first = n;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const char *mark = marks[i];
        size_t n_mark = strlen(mark);
        while (n_mark > 0 && mf_reply_is_blank(mark[n_mark - 1]))
            n_mark--;
        for (; n_mark > 0 && mf_reply_is_blank(*mark); mark++)
            n_mark--;
        const char *found = n_mark == 0 ? NULL : memmem(text, n, mark, n_mark);
        if (found != NULL && (size_t)(found - text) < first)
            first = (size_t)(found - text);
    }
    return first;
}

/* As much of text[n] as stands in both others. */
static size_t common(const char *text, size_t n, const char *other, const char *third)
{
    while (n > 0 && mf_reply_is_blank(text[n - 1]))
        n--;
    while (n > 0 && ((other != NULL && memmem(other, strlen(other), text, n) == NULL) ||
                     (third != NULL && memmem(third, strlen(third), text, n) == NULL)))
        n--;
    return before_open_mark(text, n);
}

/* What the generation prompt adds, as far as it is the same with thoughts, without, and in a
 * conversation that goes on. */
static void take_opening(detection *d, const mf_probe_text texts[4])
{
    const char *question = texts[0].text, *on = texts[1].text, *off = texts[2].text;
    const char *said = texts[3].text;
    if (question == NULL || (on == NULL && said == NULL))
        return;
    const char *from = on == NULL ? said : on;
    size_t start = 0, n;
    while (question[start] != '\0' && question[start] == from[start])
        start++;
    if (from[start] == '\0' && said != NULL) {
        from = said; /* the prompt adds nothing: the turn's beginning ends the user's turn */
        start = 0;
    }
    from += start;
    n = before_thought(d, from, strlen(from));
    const char *content = strstr(from, MF_PROBE_CONTENT);
    if (content != NULL && (size_t)(content - from) < n)
        n = (size_t)(content - from);
    n = common(from, n, off, said);
    while (n > 0 && mf_reply_is_blank(from[n - 1]))
        n--;
    copy(d->opening, sizeof d->opening, from, n);
    if (from != on || n == 0)
        return;
    while (mf_reply_is_blank(from[n]))
        n++;
    copy(d->prompted, MARK_BYTES, from + n, strlen(from + n));
}

static mf_status find_opening(detection *d)
{
    static const mf_probe probes[4] = {
        {.is_question = true, .thinking = MF_THINKING_ON},
        {.is_question = true, .has_prompt = true, .thinking = MF_THINKING_ON},
        {.is_question = true, .has_prompt = true, .thinking = MF_THINKING_OFF},
        {.content = MF_PROBE_CONTENT}};
    mf_probe_text texts[4] = {{0}};
    mf_status status = MF_OK;
    for (size_t i = 0; i < 4 && status == MF_OK; i++)
        status = mf_probe_render(&d->target, &probes[i], &texts[i]);
    if (status == MF_OK)
        take_opening(d, texts);
    for (size_t i = 0; i < 4; i++)
        mf_probe_free(&d->target, &texts[i]);
    return status;
}

/* ------------------------------------------------------------------------------------- calls -- */

/* The text behind what begins a turn, and behind a thought of nothing. */
static const char *answer_of(const detection *d, const char *text)
{
    const char *found = d->opening[0] == '\0' ? NULL : strstr(text, d->opening);
    const char *close = d->thought_close;
    size_t n = strlen(close);
    text = found == NULL ? text : found + strlen(d->opening);
    for (; n > 0 && mf_reply_is_blank(*close); n--)
        close++;
    while (n > 0 && mf_reply_is_blank(close[n - 1]))
        n--;
    found = n == 0 ? NULL : memmem(text, strlen(text), close, n);
    return found == NULL ? text : found + n;
}

/* The first row that reads the answer, or rather one that also writes it so. A row that leaves some
 * of it as content is the last resort, unless it knows the marks of thoughts and content itself: it
 * is sure then. */
static mf_status choose_row(detection *d, const mf_reply_sample *sample)
{
    size_t n_rows;
    bool is_exact = false;
    mf_probe_result result;
    const mf_reply_row *rows = mf_reply_rows(&n_rows);
    for (size_t i = 0; i < n_rows && !is_exact; i++) {
        if (strcmp(rows[i].name, "plain") == 0)
            continue;
        MF_TRY(mf_probe_read(d->target.a, &rows[i], sample->answer, sample->n_calls, &result));
        if (result == MF_PROBE_WITH_REST && d->rest == NULL)
            d->rest = &rows[i];
        if (result != MF_PROBE_UNREAD && rows[i].keeps_thoughts) {
            d->row = rows[i];
            break;
        }
        if (result != MF_PROBE_READ)
            continue;
        MF_TRY(mf_reply_writes(d->target.a, &rows[i], sample->answer, sample->n_calls, &is_exact));
        if (d->row.name == NULL || is_exact)
            d->row = rows[i];
    }
    return MF_OK;
}

/* A row of the answer's own texts, if its reader then reads the answer. */
static mf_status derive_row(detection *d, const mf_reply_sample *sample)
{
    mf_reply_row row;
    mf_probe_result result;
    if (!mf_reply_derive(sample, &d->derived, &row))
        return MF_OK;
    MF_TRY(mf_probe_read(d->target.a, &row, sample->answer, sample->n_calls, &result));
    if (result != MF_PROBE_UNREAD)
        d->row = row;
    return MF_OK;
}

static mf_status try_probe(detection *d, const mf_probe *p)
{
    mf_probe_text text;
    MF_TRY(mf_probe_render(&d->target, p, &text));
    if (text.text == NULL)
        return MF_OK;
    const mf_reply_sample sample = {answer_of(d, text.text), d->turn_end, p->n_calls};
    mf_status status = choose_row(d, &sample);
    if (status == MF_OK && d->row.name == NULL)
        status = derive_row(d, &sample);
    mf_probe_free(&d->target, &text);
    return status;
}

/* What stands behind content. */
static mf_status find_turn_end(detection *d)
{
    const mf_probe probe = {.content = MF_PROBE_CONTENT};
    mf_probe_text text;
    MF_TRY(mf_probe_render(&d->target, &probe, &text));
    const char *content = text.text == NULL ? NULL : strstr(text.text, MF_PROBE_CONTENT);
    if (content != NULL) {
        content += strlen(MF_PROBE_CONTENT);
        copy(d->turn_end, sizeof d->turn_end, content, strlen(content));
    }
    mf_probe_free(&d->target, &text);
    return MF_OK;
}

static mf_status find_calls(detection *d)
{
    static const mf_probe probes[] = {
        {.n_calls = 2},
        {.n_calls = 2, .is_text = true},
        {.n_calls = 2, .has_names_in_ids = true},
        {.n_calls = 2, .has_names_in_ids = true, .is_text = true},
        {.n_calls = 1},
        {.n_calls = 1, .is_text = true},
    };
    for (size_t i = 0; i < sizeof probes / sizeof *probes && d->row.name == NULL; i++)
        MF_TRY(try_probe(d, &probes[i]));
    if (d->row.name == NULL && d->rest != NULL)
        d->row = *d->rest;
    return MF_OK;
}

/* ----------------------------------------------------------------------------------- content -- */

/* A mark before the content, and if something else ends the turn a mark behind it. */
static void take_content(detection *d, const char *text)
{
    const char *open = answer_of(d, text), *content = strstr(open, MF_PROBE_CONTENT);
    if (content == NULL && strstr(text, d->opening) != NULL) { /* a thought that stands behind it */
        open = strstr(text, d->opening) + strlen(d->opening);
        content = strstr(open, MF_PROBE_CONTENT);
    }
    while (mf_reply_is_blank(*open))
        open++;
    if (content == NULL || content <= open)
        return;
    size_t n = (size_t)(content - open), n_close = first_mark(d->turn_end, strlen(d->turn_end));
    while (mf_reply_is_blank(open[n - 1]))
        n--;
    if (first_mark(open, n) != n || (open[0] != '<' && open[0] != '[') || n >= MARK_BYTES)
        return;
    copy(d->content_open, MARK_BYTES, open, n);
    if (d->turn_end[n_close] != '\0')
        copy(d->content_close, MARK_BYTES, d->turn_end, n_close);
}

static mf_status find_content(detection *d)
{
    const mf_probe probe = {.content = MF_PROBE_CONTENT};
    mf_probe_text text;
    MF_TRY(mf_probe_render(&d->target, &probe, &text));
    if (text.text != NULL && d->opening[0] != '\0')
        take_content(d, text.text);
    mf_probe_free(&d->target, &text);
    return MF_OK;
}

/* --------------------------------------------------------------------------------------- all -- */

/* A family that is known by its marks brings those of its thoughts: what begins a turn is looked
 * for again with them. */
static mf_status keep_thoughts(detection *d)
{
    if (!d->row.keeps_thoughts)
        return MF_OK;
    copy(d->thought_open, MARK_BYTES, d->row.thought_open, strlen(d->row.thought_open));
    copy(d->thought_close, MARK_BYTES, d->row.thought_close, strlen(d->row.thought_close));
    return find_opening(d);
}

/* A template may write content and calls as two turns: what stands between them is no content. */
static const char *between_turns(detection *d)
{
    const char *end = d->turn_end;
    while (mf_reply_is_blank(*end))
        end++;
    size_t n = strlen(end);
    while (n > 0 && mf_reply_is_blank(end[n - 1]))
        n--;
    if (n == 0 || d->opening[0] == '\0' || n + strlen(d->opening) >= sizeof d->between)
        return NULL;
    memcpy(d->between, end, n);
    copy(d->between + n, sizeof d->between - n, d->opening, strlen(d->opening));
    return d->between;
}

static mf_status make(detection *d, mf_reply_syntax **out)
{
    const bool is_known = d->row.name != NULL;
    mf_reply_row row = is_known ? d->row : *mf_reply_row_find("plain");
    if (d->thought_open[0] == '\0' && d->thought_close[0] != '\0')
        copy(d->thought_open, MARK_BYTES, d->prompted, strlen(d->prompted)); /* the prompt has it */
    if (row.reader != MF_READ_HARMONY && !row.keeps_thoughts && d->thought_open[0] != '\0') {
        row.thought_open = d->thought_open;
        row.thought_close = d->thought_close;
    }
    if (row.content_open == NULL && d->content_open[0] != '\0') {
        row.content_open = d->content_open;
        row.content_close = d->content_close[0] == '\0' ? NULL : d->content_close;
    }
    if (row.dropped[MF_REPLY_N_DROPPED - 1] == NULL && row.reader != MF_READ_HARMONY && is_known) {
        row.dropped[MF_REPLY_N_DROPPED - 1] = between_turns(d);
        row.drops_turns = true;
    }
    MF_TRY(mf_reply_syntax_make(d->target.a, &row, out, NULL));
    const size_t n = strlen(d->opening);
    if (n == 0)
        return MF_OK;
    (*out)->opening = mf_alloc_zeroed(d->target.a, n + 1);
    if ((*out)->opening == NULL)
        return MF_ERR_NO_MEMORY;
    memcpy((*out)->opening, d->opening, n);
    (*out)->n_opening = n + 1;
    return MF_OK;
}

mf_status mf_reply_detect(const mf_chat_set *chat, const mf_allocator *a, const char *template_name,
                          mf_reply_syntax **out)
{
    detection *d = mf_alloc_zeroed(a, sizeof *d);
    mf_reply_syntax *syntax = NULL;
    if (d == NULL)
        return MF_ERR_NO_MEMORY;
    d->target = (mf_probe_target){chat, a, template_name};
    mf_status status = MF_OK;
    if (chat->n_templates != 0) {
        MF_TRY_GOTO(find_thoughts(d, false));
        if (d->thought_open[0] == '\0')
            MF_TRY_GOTO(find_thoughts(d, true));
        MF_TRY_GOTO(find_opening(d));
        MF_TRY_GOTO(find_turn_end(d));
        MF_TRY_GOTO(find_calls(d));
        MF_TRY_GOTO(keep_thoughts(d));
        MF_TRY_GOTO(find_content(d));
    }
    status = make(d, &syntax);
fail:
    mf_free(a, d, sizeof *d);
    if (status != MF_OK)
        mf_reply_syntax_free(&syntax);
    else
        *out = syntax;
    return status;
}

mf_status mf_reply_syntax_detect(const mf_tokenizer *tokenizer, const char *template_name,
                                 mf_reply_syntax **out, mf_error *error)
{
    if (tokenizer == NULL || out == NULL)
        return mf_fail(error, MF_ERR_ARGUMENT, "mf_reply_syntax_detect: a NULL argument");
    mf_status status = mf_reply_detect(&tokenizer->chat, &tokenizer->allocator, template_name, out);
    return status == MF_OK ? status : mf_fail_memory(error, 0, "the syntax of replies");
}
