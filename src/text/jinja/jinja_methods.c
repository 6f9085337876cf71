/* SPDX-License-Identifier: MIT */
/* Methods of strings, dictionaries and lists. Those that would change a value are refused, as in
 * the sandbox of transformers. */
#include "text/jinja/jinja_strings.h"
#include "text/jinja/jinja_unicode.h"
#include "text/utf8.h"

static const mf_jstr *self_string(const mf_jcall *call)
{
    return call->self.as.string;
}

static const mf_jstr *chars_of(mf_jrun *j, mf_jval value)
{
    return mf_j_given(value) ? mf_j_want_string(j, value, "a string's method") : NULL;
}

static mf_jval method_strip(mf_jrun *j, const mf_jcall *call)
{
    return mf_j_strip(j, self_string(call), chars_of(j, call->arg[0]), call->variant);
}

static mf_jval method_cased(mf_jrun *j, const mf_jcall *call)
{
    return mf_j_cased(j, self_string(call), call->variant);
}

static mf_jval method_casefold(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *s = self_string(call);
    mf_jtext text = {.run = j};
    for (size_t at = 0; at < s->n_bytes && mf_j_ok(j);)
        mf_j_put_folded(&text, mf_j_next_char(s, &at));
    return mf_j_derived(&text, s);
}

static mf_jval method_capitalize(mf_jrun *j, const mf_jcall *call)
{
    return mf_j_capitalized(j, self_string(call));
}

/* str.title and (variant 1) str.swapcase */
static mf_jval method_title(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *s = self_string(call);
    mf_jtext text = {.run = j};
    bool is_inside = false, follows_cased = false;
    for (size_t at = 0; at < s->n_bytes && mf_j_ok(j);) {
        size_t next = at;
        uint32_t c = mf_j_next_char(s, &next);
        mf_jcase to = is_inside ? MF_J_LOWER : MF_J_TITLE;
        if (call->variant == 1)
            to = mf_j_is_upper(c) ? MF_J_LOWER : mf_j_is_lower(c) ? MF_J_UPPER : MF_J_TITLE;
        mf_j_put_next_cased(&text, s, &at, to, &follows_cased);
        is_inside = mf_j_is_cased(c);
    }
    return mf_j_derived(&text, s);
}

static mf_jval method_replace(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *old = mf_j_want_string(j, call->arg[0], "replace");
    const mf_jstr *with = mf_j_want_string(j, call->arg[1], "replace");
    int64_t n_most = -1;
    if (call->arg[2].kind != MF_J_MISSING && !mf_j_want_int(j, call->arg[2], "replace", &n_most))
        return mf_j_undefined(NULL);
    return mf_j_replace(j, self_string(call), old, with, n_most);
}

/* The part of a string that start and end leave, as methods have them; *offset in characters,
 * beyond the string where the end is before the start: not even nothing is there. */
static mf_jval window(mf_jrun *j, const mf_jcall *call, int64_t *offset)
{
    mf_jval start = call->arg[1], end = call->arg[2];
    int64_t n = mf_j_length(j, call->self), from = 0, to = n;
    const mf_jval bounds[3] = {mf_j_given(start) ? start : mf_j_none(),
                               mf_j_given(end) ? end : mf_j_none(), mf_j_none()};
    if ((mf_j_given(start) && !mf_j_want_int(j, start, "a position", &from)) ||
        (mf_j_given(end) && !mf_j_want_int(j, end, "a position", &to)))
        return mf_j_undefined(NULL);
    from += from < 0 ? n : 0;
    to += to < 0 ? n : 0;
    *offset = from < 0 ? 0 : from;
    if (*offset > (to < 0 ? 0 : to))
        *offset = n + 1;
    return mf_j_get_slice(j, call->self, bounds);
}

static bool has_affix(const mf_jstr *s, const mf_jstr *affix, bool is_end)
{
    return affix->n_bytes <= s->n_bytes &&
           memcmp(s->text + (is_end ? s->n_bytes - affix->n_bytes : 0), affix->text,
                  affix->n_bytes) == 0;
}

/* startswith, and (variant 1) endswith: a string or a tuple of them */
static mf_jval method_affix(mf_jrun *j, const mf_jcall *call)
{
    int64_t offset = 0;
    mf_jval part = window(j, call, &offset), given = call->arg[0];
    if (given.kind != MF_J_STRING && !mf_j_is_tuple(given))
        return mf_j_fail_type(j, "startswith or endswith", given);
    if (!mf_j_ok(j) || offset > mf_j_length(j, call->self))
        return mf_j_bool(false);
    mf_j_spend(j, MF_J_COMPARED(part.as.string->n_bytes));
    if (given.kind == MF_J_STRING)
        return mf_j_bool(has_affix(part.as.string, given.as.string, call->variant != 0));
    for (size_t i = 0; i < given.as.list->n_items && mf_j_ok(j); i++) {
        const mf_jstr *one = mf_j_want_string(j, given.as.list->items[i], "startswith");
        mf_j_spend(j, 1 + MF_J_COMPARED(one->n_bytes));
        if (mf_j_ok(j) && has_affix(part.as.string, one, call->variant != 0))
            return mf_j_bool(true);
    }
    return mf_j_bool(false);
}

/* removeprefix, and (variant 1) removesuffix */
static mf_jval method_remove(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *s = self_string(call);
    const mf_jstr *affix = mf_j_want_string(j, call->arg[0], "removeprefix or removesuffix");
    mf_j_spend(j, MF_J_COMPARED(affix->n_bytes));
    if (!has_affix(s, affix, call->variant != 0))
        return call->self;
    return call->variant != 0 ? mf_j_part(j, s, 0, s->n_bytes - affix->n_bytes)
                              : mf_j_part(j, s, affix->n_bytes, s->n_bytes);
}

static int64_t n_chars(mf_jrun *j, const mf_jstr *s, size_t n_bytes)
{
    const mf_jstr part = {.text = s->text, .n_bytes = n_bytes};
    return mf_j_length(j, (mf_jval){.kind = MF_J_STRING, .as.string = &part});
}

/* Where a string is in another one, in bytes; SIZE_MAX: nowhere. */
static size_t find_in(mf_jrun *j, const mf_jstr *s, const mf_jstr *word, bool is_last)
{
    if (word->n_bytes == 0)
        return is_last ? s->n_bytes : 0;
    if (is_last)
        return mf_j_find_last(j, s, s->n_bytes, word);
    const char *p = memmem(s->text, s->n_bytes, word->text, word->n_bytes);
    return p == NULL ? SIZE_MAX : (size_t)(p - s->text);
}

enum { FIND_LAST = 1, FIND_MUST = 2 };

static mf_jval method_find(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *word = mf_j_want_string(j, call->arg[0], "find");
    int64_t offset = 0;
    mf_jval part = window(j, call, &offset);
    mf_j_spend(j, MF_J_WALKED(self_string(call)->n_bytes));
    size_t found = SIZE_MAX;
    if (mf_j_ok(j) && offset <= mf_j_length(j, call->self))
        found = find_in(j, part.as.string, word, (call->variant & FIND_LAST) != 0);
    if (found != SIZE_MAX && mf_j_ok(j))
        return mf_j_int(offset + n_chars(j, part.as.string, found));
    if ((call->variant & FIND_MUST) != 0)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "substring not found");
    return mf_j_int(-1);
}

static mf_jval method_count(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *word = mf_j_want_string(j, call->arg[0], "count");
    int64_t n = 0, offset = 0;
    mf_jval part = window(j, call, &offset);
    if (!mf_j_ok(j) || offset > mf_j_length(j, call->self))
        return mf_j_int(0);
    const mf_jstr *s = part.as.string;
    if (word->n_bytes == 0)
        return mf_j_int(mf_j_length(j, part) + 1);
    mf_j_spend(j, MF_J_WALKED(s->n_bytes));
    for (size_t at = 0; at + word->n_bytes <= s->n_bytes; n++) {
        const char *p = memmem(s->text + at, s->n_bytes - at, word->text, word->n_bytes);
        if (p == NULL)
            break;
        at = (size_t)(p - s->text) + word->n_bytes;
    }
    return mf_j_int(n);
}

static mf_jval method_join(mf_jrun *j, const mf_jcall *call)
{
    const mf_jlist *items = mf_j_items(j, call->arg[0]);
    mf_jtext text = {.run = j};
    for (size_t i = 0; i < items->n_items && mf_j_ok(j); i++) {
        if (i > 0)
            mf_j_put_string(&text, self_string(call));
        mf_j_put_string(&text, mf_j_want_string(j, items->items[i], "join"));
    }
    return mf_j_take_text(&text);
}

static bool is_title(const mf_jstr *s)
{
    bool follows_cased = false, is_cased = false;
    for (size_t at = 0; at < s->n_bytes;) {
        uint32_t c = mf_j_next_char(s, &at);
        bool is_lower = mf_j_is_lower(c), is_upper = !is_lower && mf_j_is_cased(c);
        if ((is_upper && follows_cased) || (is_lower && !follows_cased))
            return false;
        follows_cased = is_lower || is_upper;
        is_cased = is_cased || follows_cased;
    }
    return is_cased;
}

static bool is_of(uint32_t c, int kind)
{
    switch (kind) {
    case 'd':
        return mf_j_is_digit(c);
    case 'D':
        return mf_j_is_decimal(c);
    case 'n':
        return mf_j_is_numeric(c);
    case 'a':
        return mf_j_is_alpha(c);
    case 's':
        return mf_utf8_is_blank(c);
    case 'A':
        return c < 0x80;
    default:
        return mf_j_is_alpha(c) || mf_j_is_numeric(c);
    }
}

static mf_jval method_is(mf_jrun *j, const mf_jcall *call)
{
    static const mf_jstr upper = {.text = "upper", .n_bytes = 5};
    static const mf_jstr lower = {.text = "lower", .n_bytes = 5};
    const mf_jarguments none = {.plain = mf_j_list(j, MF_J_PLAIN)};
    const mf_jstr *s = self_string(call);
    if (!mf_j_spend(j, MF_J_LOOKED_UP(s->n_bytes) * (call->variant == 'T' ? 3 : 1)))
        return mf_j_bool(false);
    if (call->variant == 'U' || call->variant == 'L')
        return mf_j_bool(
            mf_j_apply_test(j, call->variant == 'U' ? &upper : &lower, call->self, &none));
    if (call->variant == 'T')
        return mf_j_bool(is_title(s));
    for (size_t at = 0; at < s->n_bytes;)
        if (!is_of(mf_j_next_char(s, &at), call->variant))
            return mf_j_bool(false);
    return mf_j_bool(s->n_bytes != 0 || call->variant == 'A');
}

static mf_jval method_pad(mf_jrun *j, const mf_jcall *call)
{
    const mf_jstr *s = self_string(call), *fill = chars_of(j, call->arg[1]);
    int64_t width, n = mf_j_length(j, call->self);
    if (!mf_j_want_int(j, call->arg[0], "a width", &width))
        return mf_j_undefined(NULL);
    if (fill != NULL && n_chars(j, fill, fill->n_bytes) != 1)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "the fill character must be one character");
    int64_t n_more = width > n ? width - n : 0;
    if (call->variant == 'c')
        return mf_j_centered(j, s, width, fill);
    return mf_j_padded(j, s, call->variant == 'r' ? n_more : 0, call->variant == 'l' ? n_more : 0,
                       fill);
}

static mf_jval method_zfill(mf_jrun *j, const mf_jcall *call)
{
    static const mf_jstr zero = {.text = "0", .n_bytes = 1};
    const mf_jstr *s = self_string(call);
    int64_t width, n = mf_j_length(j, call->self);
    if (!mf_j_want_int(j, call->arg[0], "a width", &width))
        return mf_j_undefined(NULL);
    size_t n_sign = s->n_bytes > 0 && (*s->text == '-' || *s->text == '+');
    mf_jtext text = {.run = j};
    mf_j_put_bytes(&text, s->text, n_sign);
    for (int64_t i = n; i < width && mf_j_ok(j); i++)
        mf_j_put_string(&text, &zero);
    mf_j_put_str(&text, mf_j_part(j, s, n_sign, s->n_bytes));
    return mf_j_derived(&text, s);
}

static mf_jval method_format(mf_jrun *j, const mf_jcall *call)
{
    return mf_j_braces(j, self_string(call), call->all);
}

const mf_jbuiltin mf_j_string_methods[] = {
    {"strip", "chars", method_strip, MF_J_STRIP_LEFT | MF_J_STRIP_RIGHT},
    {"lstrip", "chars", method_strip, MF_J_STRIP_LEFT},
    {"rstrip", "chars", method_strip, MF_J_STRIP_RIGHT},
    {"upper", "", method_cased, MF_J_UPPER},
    {"lower", "", method_cased, MF_J_LOWER},
    {"casefold", "", method_casefold, 0},
    {"capitalize", "", method_capitalize, 0},
    {"title", "", method_title, 0},
    {"swapcase", "", method_title, 1},
    {"replace", "old! new! count", method_replace, 0},
    {"startswith", "prefix! start end", method_affix, 0},
    {"endswith", "suffix! start end", method_affix, 1},
    {"removeprefix", "prefix!", method_remove, 0},
    {"removesuffix", "suffix!", method_remove, 1},
    {"find", "sub! start end", method_find, 0},
    {"rfind", "sub! start end", method_find, FIND_LAST},
    {"index", "sub! start end", method_find, FIND_MUST},
    {"rindex", "sub! start end", method_find, FIND_MUST | FIND_LAST},
    {"count", "sub! start end", method_count, 0},
    {"join", "iterable!", method_join, 0},
    {"isdigit", "", method_is, 'd'},
    {"isdecimal", "", method_is, 'D'},
    {"isnumeric", "", method_is, 'n'},
    {"isalpha", "", method_is, 'a'},
    {"isalnum", "", method_is, 'x'},
    {"isspace", "", method_is, 's'},
    {"isascii", "", method_is, 'A'},
    {"isupper", "", method_is, 'U'},
    {"islower", "", method_is, 'L'},
    {"istitle", "", method_is, 'T'},
    {"ljust", "width! fillchar", method_pad, 'l'},
    {"rjust", "width! fillchar", method_pad, 'r'},
    {"center", "width! fillchar", method_pad, 'c'},
    {"zfill", "width!", method_zfill, 0},
    {"format", "*", method_format, 0},
    {NULL, NULL, NULL, 0},
};
