/* SPDX-License-Identifier: MIT */
/*
 * The pre-tokenizer as a list of steps; each step hands its pieces to the next. A cut by a regex
 * gives matches and the gaps between them in order; a behaviour says which are dropped or joined.
 */
#include "text/pretokenizer.h"

#include "text/bpe_chars.h"

#include <stdio.h>
#include <string.h>

/* What a ByteLevel pre-tokenizer with use_regex cuts by. */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
                                   "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static mf_status run_step(mf_pretoken_run *run, size_t step, const unsigned char *text,
                          size_t n_bytes, bool at_start);

/* Pieces of one cut on their way to the next step; the last one is held while it may still grow. */
typedef struct mf_cut {
    mf_pretoken_run *run;
    size_t step;
    const unsigned char *text;
    mf_split_behavior behavior;
    bool inverts;
    bool at_start; /* of the text that is encoded */
    bool holds, held_is_match;
    size_t held_start, held_end;
} mf_cut;

static mf_status give(mf_cut *cut, size_t start, size_t end)
{
    return run_step(cut->run, cut->step + 1, cut->text + start, end - start,
                    cut->at_start && start == 0);
}

static bool joins_held(const mf_cut *cut, bool is_match)
{
    switch (cut->behavior) {
    case MF_SPLIT_MERGED_WITH_PREVIOUS:
        return is_match && !cut->held_is_match;
    case MF_SPLIT_MERGED_WITH_NEXT:
        return !is_match && cut->held_is_match;
    case MF_SPLIT_CONTIGUOUS:
        return is_match == cut->held_is_match;
    default:
        return false;
    }
}

static mf_status take_piece(mf_cut *cut, size_t start, size_t end, bool is_match)
{
    is_match = is_match != cut->inverts;
    if (cut->behavior == MF_SPLIT_REMOVED && is_match)
        return MF_OK;
    if (cut->holds && joins_held(cut, is_match)) {
        cut->held_end = end;
        cut->held_is_match = is_match;
        return MF_OK;
    }
    if (cut->holds)
        MF_TRY(give(cut, cut->held_start, cut->held_end));
    cut->holds = true;
    cut->held_start = start;
    cut->held_end = end;
    cut->held_is_match = is_match;
    return MF_OK;
}

static mf_status cut_by_regex(mf_cut *cut, size_t n_bytes)
{
    mf_matcher *matcher = cut->run->matchers[cut->step];
    size_t done = 0, from = 0, last_match_end = SIZE_MAX;
    while (from <= n_bytes) {
        mf_match m;
        MF_TRY(mf_matcher_find(matcher, cut->text, n_bytes, from, &m, cut->run->error));
        if (!m.found)
            break;
        if (m.start == m.end && m.end == last_match_end) { /* an empty match right after a match */
            from += mf_char_bytes(cut->text + from, n_bytes - from);
            continue;
        }
        from = last_match_end = m.end;
        if (done != m.start)
            MF_TRY(take_piece(cut, done, m.start, false));
        MF_TRY(take_piece(cut, m.start, m.end, true));
        done = m.end;
    }
    if (done != n_bytes)
        MF_TRY(take_piece(cut, done, n_bytes, false));
    return cut->holds ? give(cut, cut->held_start, cut->held_end) : MF_OK;
}

/* Marks for blanks in the step's buffer, with one in front where it is due. */
static mf_status mark_blanks(mf_pretoken_run *run, size_t step, const unsigned char *text,
                             size_t n_bytes, bool at_start)
{
    const mf_prepend_scheme prepend = run->pretokenizer->steps[step].prepend;
    mf_buffer *out = &run->prefixed[step];
    out->n_bytes = 0;
    if ((prepend == MF_PREPEND_ALWAYS || (prepend == MF_PREPEND_FIRST && at_start)) &&
        text[0] != ' ' && !mf_begins_with_mark(text, n_bytes))
        MF_TRY(mf_buffer_append(out, MF_BLANK_MARK, MF_BLANK_MARK_BYTES, "a word", run->error));
    return mf_blanks_mark(text, n_bytes, out, "a word", run->error);
}

static mf_status run_metaspace(mf_pretoken_run *run, size_t step, const unsigned char *text,
                               size_t n_bytes, bool at_start)
{
    MF_TRY(mark_blanks(run, step, text, n_bytes, at_start));
    text = run->prefixed[step].data;
    n_bytes = run->prefixed[step].n_bytes;
    if (!run->pretokenizer->steps[step].cuts_at_marks)
        return run_step(run, step + 1, text, n_bytes, at_start);
    size_t start = 0;
    for (size_t at = 1; at < n_bytes; at++) {
        if (!mf_begins_with_mark(text + at, n_bytes - at))
            continue;
        MF_TRY(run_step(run, step + 1, text + start, at - start, at_start && start == 0));
        start = at;
    }
    return run_step(run, step + 1, text + start, n_bytes - start, at_start && start == 0);
}

static mf_status run_step(mf_pretoken_run *run, size_t step, const unsigned char *text,
                          size_t n_bytes, bool at_start)
{
    if (n_bytes == 0)
        return MF_OK;
    if (step == run->pretokenizer->n_steps)
        return run->fn(run->ctx, text, n_bytes, run->error);
    const mf_pretoken_step *s = &run->pretokenizer->steps[step];
    if (s->is_metaspace)
        return run_metaspace(run, step, text, n_bytes, at_start);
    if (s->adds_prefix_space && text[0] != ' ') {
        mf_buffer *buffer = &run->prefixed[step];
        buffer->n_bytes = 0;
        MF_TRY(mf_buffer_append(buffer, " ", 1, "a word", run->error));
        MF_TRY(mf_buffer_append(buffer, text, n_bytes, "a word", run->error));
        text = buffer->data;
        n_bytes = buffer->n_bytes;
    }
    if (s->regex == NULL)
        return run_step(run, step + 1, text, n_bytes, at_start);
    mf_cut cut = {.run = run,
                  .step = step,
                  .text = text,
                  .behavior = s->behavior,
                  .inverts = s->inverts,
                  .at_start = at_start};
    return cut_by_regex(&cut, n_bytes);
}

mf_status mf_pretoken_run_text(mf_pretoken_run *run, const unsigned char *text, size_t n_bytes,
                               bool at_start)
{
    return run_step(run, 0, text, n_bytes, at_start);
}

mf_status mf_pretoken_run_init(mf_pretoken_run *run, const mf_pretokenizer *p,
                               const mf_allocator *a, mf_word_fn fn, void *ctx, mf_error *error)
{
    run->pretokenizer = p;
    run->fn = fn;
    run->ctx = ctx;
    run->error = error;
    for (size_t i = 0; i < p->n_steps; i++)
        mf_buffer_init(&run->prefixed[i], a);
    for (size_t i = 0; i < p->n_steps; i++)
        if (p->steps[i].regex != NULL)
            MF_TRY(mf_matcher_create(p->steps[i].regex, a, &run->matchers[i], error));
    return MF_OK;
}

void mf_pretoken_run_free(mf_pretoken_run *run)
{
    for (size_t i = 0; run->pretokenizer != NULL && i < run->pretokenizer->n_steps; i++) {
        mf_matcher_free(&run->matchers[i]);
        mf_buffer_free(&run->prefixed[i]);
    }
}

/* ----------------------------------------------------------------------------------- loading -- */

static mf_status read_behavior(const mf_json *json, yyjson_val *step, mf_split_behavior *out,
                               mf_error *error)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    yyjson_val *behavior = yyjson_obj_get(step, "behavior");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (yyjson_equals_str(behavior, names[i])) {
            *out = (mf_split_behavior)i;
            return MF_OK;
        }
    }
    return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: pre_tokenizer.behavior: unknown \"%.64s\"",
                   json->path, yyjson_is_str(behavior) ? yyjson_get_str(behavior) : "?");
}

static mf_status load_split(const mf_allocator *a, const mf_json *json, yyjson_val *step,
                            const char *field, mf_pretoken_step *out, mf_error *error)
{
    MF_TRY(read_behavior(json, step, &out->behavior, error));
    out->inverts = yyjson_get_bool(yyjson_obj_get(step, "invert"));
    yyjson_val *pattern = yyjson_obj_get(step, "pattern");
    yyjson_val *regex = yyjson_obj_get(pattern, "Regex");
    yyjson_val *literal = yyjson_obj_get(pattern, "String");
    yyjson_val *text = regex != NULL ? regex : literal;
    if (!yyjson_is_str(text))
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s: pre_tokenizer.pattern: expected {\"Regex\": ...} or {\"String\": ...}",
                       json->path);
    const mf_pattern p = {yyjson_get_str(text), yyjson_get_len(text), .is_literal = regex == NULL};
    return mf_regex_compile(a, field, p, &out->regex, error);
}

static mf_status load_byte_level(const mf_allocator *a, yyjson_val *step, const char *field,
                                 mf_pretoken_step *out, mf_error *error)
{
    yyjson_val *use_regex = yyjson_obj_get(step, "use_regex"); /* absent in old files: true */
    out->adds_prefix_space = yyjson_get_bool(yyjson_obj_get(step, "add_prefix_space"));
    out->behavior = MF_SPLIT_ISOLATED;
    if (use_regex != NULL && !yyjson_get_bool(use_regex))
        return MF_OK;
    return mf_regex_compile(a, field, (mf_pattern){gpt2_pattern, sizeof gpt2_pattern - 1, false},
                            &out->regex, error);
}

/* Digits: every numeric character, or every run of them, by itself. */
static mf_status load_digits(const mf_allocator *a, yyjson_val *step, const char *field,
                             mf_pretoken_step *out, mf_error *error)
{
    static const char numeric[] = "\\p{N}";
    bool each = yyjson_get_bool(yyjson_obj_get(step, "individual_digits"));
    out->behavior = each ? MF_SPLIT_ISOLATED : MF_SPLIT_CONTIGUOUS;
    return mf_regex_compile(a, field, (mf_pattern){numeric, sizeof numeric - 1, false}, &out->regex,
                            error);
}

/* Cut at white space, which goes. */
static mf_status load_white_space(const mf_allocator *a, const char *field, mf_pretoken_step *out,
                                  mf_error *error)
{
    static const char blanks[] = "\\s+";
    out->behavior = MF_SPLIT_REMOVED;
    return mf_regex_compile(a, field, (mf_pattern){blanks, sizeof blanks - 1, false}, &out->regex,
                            error);
}

/* add_prefix_space is how older files say always (true) and never (false). */
static mf_status load_metaspace(yyjson_val *step, const char *field, mf_pretoken_step *out,
                                mf_error *error)
{
    static const char *const names[] = {"always", "first", "never"};
    yyjson_val *scheme = yyjson_obj_get(step, "prepend_scheme");
    yyjson_val *split = yyjson_obj_get(step, "split");
    const bool adds_none = yyjson_is_false(yyjson_obj_get(step, "add_prefix_space"));
    size_t i = adds_none ? MF_PREPEND_NEVER : MF_PREPEND_ALWAYS;
    if (!yyjson_equals_str(yyjson_obj_get(step, "replacement"), MF_BLANK_MARK))
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s.replacement: expected \"" MF_BLANK_MARK "\"",
                       field);
    if (scheme != NULL && !yyjson_is_null(scheme))
        for (i = 0; i < 3 && !yyjson_equals_str(scheme, names[i]);)
            i++;
    if (i == 3 || (adds_none && i != MF_PREPEND_NEVER))
        return mf_fail(error, MF_ERR_FORMAT,
                       "%s.prepend_scheme: expected always, first or never, and never where "
                       "add_prefix_space is false",
                       field);
    out->is_metaspace = true;
    out->prepend = (mf_prepend_scheme)i;
    out->cuts_at_marks = split == NULL || !yyjson_is_false(split);
    return MF_OK;
}

static mf_status load_step(mf_pretokenizer *p, const mf_allocator *a, const mf_json *json,
                           yyjson_val *step, mf_error *error)
{
    yyjson_val *type = yyjson_obj_get(step, "type");
    char field[512];
    size_t n_path = strlen(json->path);
    const char *path = n_path > 400 ? json->path + (n_path - 400) : json->path;
    (void)snprintf(field, sizeof field, "%s: pre_tokenizer", path);
    if (p->n_steps == MF_MAX_PRETOKEN_STEPS)
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: more than %d steps", field,
                       MF_MAX_PRETOKEN_STEPS);
    if (p->is_byte_level) /* what follows would see the byte alphabet, not the text */
        return mf_fail(error, MF_ERR_UNSUPPORTED, "%s: a step after ByteLevel", field);
    mf_pretoken_step *out = &p->steps[p->n_steps++];
    if (yyjson_equals_str(type, "Split"))
        return load_split(a, json, step, field, out, error);
    if (yyjson_equals_str(type, "Digits"))
        return load_digits(a, step, field, out, error);
    if (yyjson_equals_str(type, "ByteLevel")) {
        p->is_byte_level = true;
        return load_byte_level(a, step, field, out, error);
    }
    if (yyjson_equals_str(type, "WhitespaceSplit"))
        return load_white_space(a, field, out, error);
    if (yyjson_equals_str(type, "Metaspace")) {
        p->marks_blanks = true;
        return load_metaspace(step, field, out, error);
    }
    return mf_fail(error, MF_ERR_UNSUPPORTED,
                   "%s.type: \"%.64s\", expected Split, Digits, WhitespaceSplit, Metaspace, "
                   "ByteLevel or a Sequence of them",
                   field, yyjson_is_str(type) ? yyjson_get_str(type) : "?");
}

mf_status mf_pretokenizer_load(mf_pretokenizer *p, const mf_allocator *a, const mf_json *json,
                               mf_error *error)
{
    yyjson_val *root = yyjson_obj_get(json->root, "pre_tokenizer");
    if (root == NULL || yyjson_is_null(root))
        return MF_OK;
    if (yyjson_equals_str(yyjson_obj_get(root, "type"), "Sequence")) {
        size_t i, n;
        yyjson_val *step;
        yyjson_arr_foreach(yyjson_obj_get(root, "pretokenizers"), i, n, step)
        {
            MF_TRY(load_step(p, a, json, step, error));
        }
    } else {
        MF_TRY(load_step(p, a, json, root, error));
    }
    return p->is_byte_level && p->marks_blanks
               ? mf_fail(error, MF_ERR_UNSUPPORTED,
                         "%s: pre_tokenizer: Metaspace and ByteLevel, expected one of them",
                         json->path)
               : MF_OK;
}

mf_status mf_pretokenizer_make(mf_pretokenizer *p, const mf_allocator *a, const char *pattern,
                               mf_error *error)
{
    mf_pretoken_step *step = &p->steps[p->n_steps++];
    step->behavior = MF_SPLIT_ISOLATED;
    return mf_regex_compile(a, "the built-in pre-tokenizer",
                            (mf_pattern){pattern, strlen(pattern), false}, &step->regex, error);
}

void mf_pretokenizer_free(mf_pretokenizer *p)
{
    for (size_t i = 0; i < p->n_steps; i++)
        mf_regex_free(&p->steps[i].regex);
    *p = (mf_pretokenizer){0};
}
