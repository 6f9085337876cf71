/* SPDX-License-Identifier: MIT */
/*
 * Numbers within bounds, digit by digit: a text is compared with a bound as it is written, so that
 * every decimal is told exactly. Between bounds numbers are written without exponent.
 */
#include "grammar/schema_number.h"

bool mf_decimal_parse(const char *text, mf_decimal *out)
{
    mf_decimal d = {.is_negative = *text == '-'};
    int point = 0;
    bool is_behind = false;
    long power = 0;
    for (text += d.is_negative; *text != '\0' && *text != 'e' && *text != 'E'; text++) {
        if (*text == '.') {
            is_behind = true;
            continue;
        }
        if (d.n > 0 || *text != '0') {
            if (d.n == MF_MAX_DIGITS)
                return false;
            d.digits[d.n++] = *text;
            point += !is_behind;
        } else {
            point -= is_behind;
        }
    }
    if (*text != '\0') {
        const bool is_small = text[1] == '-';
        for (text += 1 + (text[1] == '-' || text[1] == '+'); *text != '\0' && power < 1000; text++)
            power = power * 10 + (*text - '0');
        power = is_small ? -power : power;
    }
    while (d.n > 0 && d.digits[d.n - 1] == '0')
        d.n--;
    d.point = point + (int)power;
    if (d.n > 0 && (d.point > MF_MAX_DIGITS - 8 || d.point < -(MF_MAX_DIGITS - 8)))
        return false;
    if (d.n == 0)
        d.point = d.is_negative = 0;
    *out = d;
    return true;
}

/* -1, 0 or 1. */
static int compare_sizes(const mf_decimal *a, const mf_decimal *b)
{
    if (a->n == 0 || b->n == 0)
        return (a->n > 0) - (b->n > 0);
    if (a->point != b->point)
        return a->point < b->point ? -1 : 1;
    for (int i = 0; i < a->n || i < b->n; i++) {
        const int x = i < a->n ? a->digits[i] : '0', y = i < b->n ? b->digits[i] : '0';
        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

static int compare(const mf_decimal *a, const mf_decimal *b)
{
    if (a->is_negative != b->is_negative)
        return a->is_negative ? -1 : 1;
    return a->is_negative ? compare_sizes(b, a) : compare_sizes(a, b);
}

static mf_bound bound_of(const mf_decimal *d, bool is_exclusive)
{
    mf_bound b = {.is_there = true, .is_exclusive = is_exclusive};
    for (int i = 0; i < d->point; i++)
        b.whole[b.n_whole++] = (char)(i < d->n ? d->digits[i] : '0');
    if (b.n_whole == 0)
        b.whole[b.n_whole++] = '0';
    for (int i = d->point; d->n > 0 && i < d->n; i++)
        b.rest[b.n_rest++] = (char)(i < 0 ? '0' : d->digits[i]);
    return b;
}

/* ------------------------------------------------------------------------------------ whole
 * numbers --
 */

static mf_expr digits(mf_rules *r, int first, int last)
{
    mf_char_range one = {(uint32_t)first, (uint32_t)last};
    return first <= last ? mf_expr_chars(r, &one, 1) : MF_EXPR_NOTHING;
}

static mf_expr any_digits(mf_rules *r, uint32_t min, uint32_t max)
{
    return mf_expr_repeat(r, digits(r, '0', '9'), min, max);
}

/* Numbers of n digits from low to high; NULL: from the lowest, to the highest. */
static mf_expr same_length(mf_rules *r, const char *low, const char *high, int n)
{
    if (n == 0)
        return MF_EXPR_EMPTY;
    if (low == NULL && high == NULL)
        return any_digits(r, (uint32_t)n, (uint32_t)n);
    const int l = low != NULL ? *low : '0', h = high != NULL ? *high : '9';
    const char *low_rest = low != NULL ? low + 1 : NULL;
    const char *high_rest = high != NULL ? high + 1 : NULL;
    if (l == h)
        return mf_expr_seq(r, digits(r, l, l), same_length(r, low_rest, high_rest, n - 1));
    mf_expr all = MF_EXPR_NOTHING;
    if (low != NULL)
        all = mf_expr_seq(r, digits(r, l, l), same_length(r, low_rest, NULL, n - 1));
    mf_expr middle = digits(r, l + (low != NULL), h - (high != NULL));
    all = mf_expr_alt(r, all,
                      mf_expr_seq(r, middle, any_digits(r, (uint32_t)n - 1, (uint32_t)n - 1)));
    if (high != NULL)
        all = mf_expr_alt(r, all,
                          mf_expr_seq(r, digits(r, h, h), same_length(r, NULL, high_rest, n - 1)));
    return all;
}

/* Whole numbers from low, of n_low digits, to high; n_high 0: without end. */
static mf_expr whole_range(mf_rules *r, const char *low, int n_low, const char *high, int n_high)
{
    static const char first[] = "1000000000000000000000000000000000000000000000000000000000000000"
                                "00000000000000000000000000000000000000000000000000000000";
    mf_expr all = MF_EXPR_NOTHING;
    if (n_high > 0 && (n_low > n_high || (n_low == n_high && memcmp(low, high, (size_t)n_low) > 0)))
        return MF_EXPR_NOTHING;
    if (n_low == n_high)
        return same_length(r, low, high, n_low);
    all = same_length(r, low, NULL, n_low); /* low begins with 0 only if it is 0 */
    const mf_expr lead = digits(r, '1', '9');
    if (n_high == 0)
        return mf_expr_alt(r, all,
                           mf_expr_seq(r, lead, any_digits(r, (uint32_t)n_low, MF_NO_LIMIT)));
    if (n_high - n_low > 1)
        all = mf_expr_alt(
            r, all, mf_expr_seq(r, lead, any_digits(r, (uint32_t)n_low, (uint32_t)n_high - 2)));
    return mf_expr_alt(r, all, same_length(r, first, high, n_high));
}

void mf_digits_up(char *number, int *n)
{
    int i = *n - 1;
    while (i >= 0 && number[i] == '9')
        number[i--] = '0';
    if (i >= 0) {
        number[i]++;
    } else {
        memmove(number + 1, number, (size_t)*n);
        number[0] = '1';
        ++*n;
    }
}

bool mf_digits_down(char *number, int *n)
{
    int i = *n - 1;
    while (i >= 0 && number[i] == '0')
        number[i--] = '9';
    if (i < 0) {
        number[0] = '0';
        *n = 1;
        return false;
    }
    number[i]--;
    if (number[0] == '0' && *n > 1)
        memmove(number, number + 1, (size_t)-- * n);
    return true;
}

/* Whole sizes that satisfy both bounds. */
static mf_expr whole_sizes(mf_rules *r, mf_bound low, mf_bound high)
{
    if (!low.is_there)
        low = (mf_bound){.is_there = true, .whole = "0", .n_whole = 1};
    if (low.n_rest > 0 || low.is_exclusive)
        mf_digits_up(low.whole, &low.n_whole);
    if (high.is_there && high.n_rest == 0 && high.is_exclusive &&
        !mf_digits_down(high.whole, &high.n_whole))
        return MF_EXPR_NOTHING;
    return whole_range(r, low.whole, low.n_whole, high.whole, high.is_there ? high.n_whole : 0);
}

/* ---------------------------------------------------------------------------------- decimals -- */

/* Digits behind the point after i of them, where those are the same as the bounds' (low, high not
 * NULL). must: one more has to come. */
static mf_expr fraction(mf_rules *r, const mf_bound *low, const mf_bound *high, int i, bool must)
{
    if (low == NULL && high == NULL)
        return any_digits(r, must ? 1 : 0, MF_NO_LIMIT);
    const bool low_holds = low == NULL || (i >= low->n_rest && !low->is_exclusive);
    const bool high_holds = high == NULL || i < high->n_rest || !high->is_exclusive;
    mf_expr all = low_holds && high_holds && !must ? MF_EXPR_EMPTY : MF_EXPR_NOTHING;
    const bool low_ends = low == NULL || i >= low->n_rest;
    const bool high_ends = high == NULL || i >= high->n_rest;
    const mf_expr zero = digits(r, '0', '0');
    if (low_ends && high_ends && (low == NULL || high == NULL)) {
        if (high == NULL && !low->is_exclusive) /* it is reached: anything */
            return any_digits(r, must ? 1 : 0, MF_NO_LIMIT);
        if (high == NULL) /* something must come */
            return mf_expr_seq(r, mf_expr_repeat(r, zero, 0, MF_NO_LIMIT),
                               mf_expr_seq(r, digits(r, '1', '9'), any_digits(r, 0, MF_NO_LIMIT)));
        return high->is_exclusive ? MF_EXPR_NOTHING
                                  : mf_expr_repeat(r, zero, must ? 1 : 0, MF_NO_LIMIT);
    }
    if (low_ends && high_ends)
        return low_holds && high_holds ? mf_expr_repeat(r, zero, must ? 1 : 0, MF_NO_LIMIT)
                                       : MF_EXPR_NOTHING;
    const int l = low != NULL && i < low->n_rest ? low->rest[i] : '0';
    const int h = high == NULL ? '9' : i < high->n_rest ? high->rest[i] : '0';
    if (l == h && low != NULL && high != NULL) {
        mf_expr same = mf_expr_seq(r, digits(r, l, l), fraction(r, low, high, i + 1, false));
        return mf_expr_alt(r, all, same);
    }
    if (l > h)
        return all;
    if (low != NULL)
        all = mf_expr_alt(r, all,
                          mf_expr_seq(r, digits(r, l, l), fraction(r, low, NULL, i + 1, false)));
    mf_expr middle = digits(r, l + (low != NULL), h - (high != NULL));
    all = mf_expr_alt(r, all, mf_expr_seq(r, middle, any_digits(r, 0, MF_NO_LIMIT)));
    if (high != NULL)
        all = mf_expr_alt(r, all,
                          mf_expr_seq(r, digits(r, h, h), fraction(r, NULL, high, i + 1, false)));
    return all;
}

/* A whole part, and behind it digits within the bounds, or none where that holds too. */
static mf_expr with_fraction(mf_rules *r, mf_expr whole, const mf_bound *low, const mf_bound *high)
{
    mf_expr point = mf_expr_seq(r, mf_expr_text(r, "."), fraction(r, low, high, 0, true));
    const bool low_holds = low == NULL || (low->n_rest == 0 && !low->is_exclusive);
    const bool high_holds = high == NULL || high->n_rest > 0 || !high->is_exclusive;
    if (low_holds && high_holds)
        point = mf_expr_optional(r, point);
    return mf_expr_seq(r, whole, point);
}

/* Sizes between bounds, digits behind the point included. */
static mf_expr decimal_sizes(mf_rules *r, mf_bound low, mf_bound high)
{
    if (!low.is_there)
        low = (mf_bound){.is_there = true, .whole = "0", .n_whole = 1};
    const mf_expr at_low = mf_expr_bytes(r, low.whole, (size_t)low.n_whole);
    mf_bound above = low, below = high;
    if (high.is_there && low.n_whole == high.n_whole &&
        memcmp(low.whole, high.whole, (size_t)low.n_whole) == 0)
        return with_fraction(r, at_low, &low, &high);
    mf_expr all = with_fraction(r, at_low, &low, NULL);
    mf_digits_up(above.whole, &above.n_whole);
    if (!high.is_there)
        return mf_expr_alt(
            r, all,
            with_fraction(r, whole_range(r, above.whole, above.n_whole, NULL, 0), NULL, NULL));
    if (mf_digits_down(below.whole, &below.n_whole))
        all = mf_expr_alt(
            r, all,
            with_fraction(r, whole_range(r, above.whole, above.n_whole, below.whole, below.n_whole),
                          NULL, NULL));
    const mf_expr at_high = mf_expr_bytes(r, high.whole, (size_t)high.n_whole);
    return mf_expr_alt(r, all, with_fraction(r, at_high, NULL, &high));
}

/* ------------------------------------------------------------------------------------ bounds -- */

typedef struct limit {
    bool is_there, is_exclusive;
    mf_decimal value;
} limit;

/* The narrowest of what the parts say. side: 1 of a maximum, -1 of a minimum. */
static limit find_limit(mf_schema_reader *s, const mf_conjunction *c, const char *const names[2],
                        int side)
{
    limit found = {0};
    for (size_t i = 0; i < 2 * c->n; i++) {
        yyjson_val *v = yyjson_obj_get(c->parts[i / 2].schema, names[i % 2]);
        mf_decimal d;
        if (v == NULL)
            continue;
        if (!yyjson_is_raw(v)) {
            (void)mf_schema_fail(s, MF_ERR_FORMAT, "%s: expected a number", names[i % 2]);
            return found;
        }
        if (!mf_decimal_parse(yyjson_get_raw(v), &d)) {
            (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED, "%s: %.40s has too many digits",
                                 names[i % 2], yyjson_get_raw(v));
            return found;
        }
        const int order = found.is_there ? compare(&d, &found.value) * side : -1;
        if (order < 0)
            found = (limit){true, i % 2 == 1, d};
        else if (order == 0)
            found.is_exclusive = found.is_exclusive || i % 2 == 1;
    }
    return found;
}

static mf_bound bound_if(const limit *l, bool is_negative)
{
    if (!l->is_there || (l->value.is_negative != is_negative && l->value.n > 0))
        return (mf_bound){0};
    return bound_of(&l->value, l->is_exclusive);
}

/* Sizes between bounds, of which all are multiples of what the schema says. */
typedef struct sizes {
    mf_rules *rules;
    mf_multiples *multiples; /* NULL: any will do */
    bool is_integer;
} sizes;

static mf_expr size_between(const sizes *z, mf_bound low, mf_bound high)
{
    if (z->multiples != NULL)
        return mf_multiples_between(z->multiples, low, high);
    return z->is_integer ? whole_sizes(z->rules, low, high) : decimal_sizes(z->rules, low, high);
}

static mf_expr between(const sizes *z, const limit *low, const limit *high)
{
    mf_rules *r = z->rules;
    mf_expr all = MF_EXPR_NOTHING;
    if (!high->is_there || !high->value.is_negative) /* from 0 up */
        all = size_between(z, low->value.is_negative ? (mf_bound){0} : bound_if(low, false),
                           bound_if(high, false));
    if (!low->is_there || low->value.is_negative) {
        const bool is_below = high->is_there && (high->value.is_negative || high->value.n == 0);
        mf_bound least = is_below ? bound_of(&high->value, high->is_exclusive) : (mf_bound){0};
        if (z->is_integer && !is_below) /* -0 is 0, which was there */
            least = (mf_bound){.is_there = true, .whole = "1", .n_whole = 1};
        mf_expr size = size_between(z, least, bound_if(low, true));
        all = mf_expr_alt(r, all, mf_expr_seq(r, mf_expr_text(r, "-"), size));
    }
    return all;
}

mf_expr mf_schema_number(mf_schema_reader *s, const mf_conjunction *c, bool is_integer)
{
    static const char *const low_names[] = {"minimum", "exclusiveMinimum"};
    static const char *const high_names[] = {"maximum", "exclusiveMaximum"};
    mf_rules *r = s->rules;
    const limit low = find_limit(s, c, low_names, -1), high = find_limit(s, c, high_names, 1);
    sizes z = {.rules = r, .is_integer = is_integer};
    if (r->status == MF_OK)
        z.multiples = mf_multiples_of(s, c, is_integer);
    if (r->status != MF_OK)
        return MF_EXPR_NOTHING;
    if (!low.is_there && !high.is_there && z.multiples == NULL)
        return is_integer ? mf_json_any_integer(r) : mf_json_any_number(r);
    const int order = low.is_there && high.is_there ? compare(&low.value, &high.value) : -1;
    const bool is_empty = order > 0 || (order == 0 && (low.is_exclusive || high.is_exclusive));
    const mf_expr all = is_empty ? MF_EXPR_NOTHING : between(&z, &low, &high);
    mf_multiples_free(z.multiples);
    return all;
}
