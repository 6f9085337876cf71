/* SPDX-License-Identifier: MIT */
/*
 * Multiples, digit by digit: what was written so far matters by its remainder alone. multipleOf is
 * taken as divisor / 10^n_places, both whole, so that decimals are told exactly. Remainders that no
 * digits tell apart are one (of 1,000 there are four). Each rule goes on with the rule of the next
 * remainder as its last step, which takes no stack.
 */
#include "grammar/schema_number.h"

#include <stdlib.h>

#define MAX_PLACES 9
#define MAX_DIVISOR 100000u  /* of whole numbers */
#define MAX_REMAINDERS 2000u /* that are kept apart */
#define MAX_WHOLE (MF_MAX_DIGITS * 2)
#define MAX_TOLD 6 /* digits behind a remainder of MAX_DIVISOR that tell it from all others */

/* What is still to be written before a number may end, with the remainder so far. */
typedef enum reach {
    TO_ANY,   /* some digits, then any number of them */
    TO_EXACT, /* so many digits */
    TO_PLACE, /* digits behind the point, of which there were some */
    N_KINDS
} reach;

struct mf_multiples {
    mf_rules *rules;
    mf_allocator allocator;
    bool is_integer;
    uint32_t divisor;
    unsigned n_places;
    uint32_t *same;                     /* [divisor]: the least remainder that is as good */
    uint32_t *made[N_KINDS][MAX_WHOLE]; /* rules by remainder, or MF_NO_RULE; NULL: none yet */
};

/* -------------------------------------------------------------------------------- remainders -- */

/* Which digits behind a remainder make it a multiple: of each number of digits at most one value
 * below the divisor does. */
typedef struct told {
    uint32_t by[MAX_TOLD];
    uint32_t remainder;
} told;

static int compare_told(const void *a, const void *b)
{
    const told *x = a, *y = b;
    const int order = memcmp(x->by, y->by, sizeof x->by);
    return order != 0 ? order : x->remainder < y->remainder ? -1 : 1;
}

static told tell(uint32_t divisor, uint32_t remainder)
{
    told t = {.remainder = remainder};
    uint64_t power = 1;
    for (size_t i = 0; i < MAX_TOLD; i++, power *= 10) {
        const uint64_t left = (divisor - remainder * (power % divisor) % divisor) % divisor;
        t.by[i] = left < power ? (uint32_t)left : UINT32_MAX;
    }
    return t;
}

/* Behind a point fewer digits may follow, which is not looked into: all are kept apart. */
static bool join_remainders(mf_multiples *m, size_t *n_left)
{
    const uint32_t n = m->divisor;
    *n_left = n;
    for (uint32_t i = 0; i < n; i++)
        m->same[i] = i;
    if (!m->is_integer)
        return true;
    told *all = mf_alloc_array(&m->allocator, n, sizeof *all);
    if (all == NULL)
        return false;
    for (uint32_t i = 0; i < n; i++)
        all[i] = tell(n, i);
    qsort(all, n, sizeof *all, compare_told);
    for (uint32_t i = 1; i < n; i++)
        if (memcmp(all[i].by, all[i - 1].by, sizeof all->by) == 0) {
            m->same[all[i].remainder] = m->same[all[i - 1].remainder];
            --*n_left;
        }
    mf_free(&m->allocator, all, n * sizeof *all);
    return true;
}

static uint32_t behind(const mf_multiples *m, uint32_t remainder, int digit)
{
    return m->same[(remainder * UINT64_C(10) + (uint32_t)digit) % m->divisor];
}

static uint32_t remainder_of(const mf_multiples *m, const char *digits, int n)
{
    uint32_t remainder = m->same[0];
    for (int i = 0; i < n; i++)
        remainder = behind(m, remainder, digits[i] - '0');
    return remainder;
}

/* Is it a multiple, so many digits behind the point? */
static bool may_end(const mf_multiples *m, uint32_t remainder, unsigned place)
{
    uint64_t left = remainder;
    for (unsigned i = place; i < m->n_places; i++)
        left = left * 10 % m->divisor;
    return left % m->divisor == 0;
}

/* ------------------------------------------------------------------------------------ digits -- */

static mf_expr to(mf_multiples *m, reach kind, unsigned n, uint32_t remainder);

static mf_expr digit(mf_rules *r, int d)
{
    mf_char_range one = {(uint32_t)('0' + d), (uint32_t)('0' + d)};
    return mf_expr_chars(r, &one, 1);
}

/* Behind i digits after the point. low, high: they are the bound's so far; NULL: they are not. */
static mf_expr fraction(mf_multiples *m, uint32_t remainder, unsigned i, const mf_bound *low,
                        const mf_bound *high)
{
    mf_rules *r = m->rules;
    const int at = (int)i;
    const bool holds = (low == NULL || (at >= low->n_rest && !low->is_exclusive)) &&
                       (high == NULL || at < high->n_rest || !high->is_exclusive);
    const bool ends = holds && may_end(m, remainder, i);
    if (i == m->n_places)
        return !ends ? MF_EXPR_NOTHING : i == 0 ? digit(r, 0) : MF_EXPR_EMPTY;
    if (low == NULL && high == NULL && i > 0)
        return to(m, TO_PLACE, i, remainder);
    const int l = low == NULL || at >= low->n_rest ? 0 : low->rest[at] - '0';
    const int h = high == NULL ? 9 : at >= high->n_rest ? 0 : high->rest[at] - '0';
    mf_expr all = ends && i > 0 ? MF_EXPR_EMPTY : MF_EXPR_NOTHING;
    for (int d = l; d <= h; d++) {
        mf_expr rest =
            fraction(m, behind(m, remainder, d), i + 1, d == l ? low : NULL, d == h ? high : NULL);
        all = mf_expr_alt(r, all, mf_expr_seq(r, digit(r, d), rest));
    }
    return all;
}

/* Behind the last whole digit. */
static mf_expr tail(mf_multiples *m, uint32_t remainder, const mf_bound *low, const mf_bound *high)
{
    mf_rules *r = m->rules;
    const bool holds = (low == NULL || (low->n_rest == 0 && !low->is_exclusive)) &&
                       (high == NULL || high->n_rest > 0 || !high->is_exclusive);
    const mf_expr end = holds && may_end(m, remainder, 0) ? MF_EXPR_EMPTY : MF_EXPR_NOTHING;
    if (m->is_integer)
        return end;
    mf_expr point = mf_expr_seq(r, mf_expr_text(r, "."), fraction(m, remainder, 0, low, high));
    return mf_expr_alt(r, end, point);
}

static mf_expr write_rule(mf_multiples *m, reach kind, unsigned n, uint32_t remainder)
{
    mf_rules *r = m->rules;
    mf_expr all = MF_EXPR_NOTHING;
    unsigned next = n > 0 ? n - 1 : 0;
    if (kind == TO_PLACE) {
        all = may_end(m, remainder, n) ? MF_EXPR_EMPTY : MF_EXPR_NOTHING;
        next = n + 1;
    } else if (n == 0) {
        all = tail(m, remainder, NULL, NULL);
    }
    if (kind == TO_EXACT && n == 0)
        return all;
    for (int d = 0; d <= 9; d++) {
        const uint32_t left = behind(m, remainder, d);
        const mf_expr rest = kind == TO_PLACE && next == m->n_places
                                 ? fraction(m, left, next, NULL, NULL)
                                 : to(m, kind, next, left);
        all = mf_expr_alt(r, all, mf_expr_seq(r, digit(r, d), rest));
    }
    return all;
}

static mf_expr to(mf_multiples *m, reach kind, unsigned n, uint32_t remainder)
{
    mf_rules *r = m->rules;
    if (r->status != MF_OK || n >= MAX_WHOLE)
        return MF_EXPR_NOTHING;
    uint32_t **made = &m->made[kind][n];
    if (*made == NULL) {
        *made = mf_alloc_array(&m->allocator, m->divisor, sizeof **made);
        if (*made == NULL) {
            mf_rules_fail(r, MF_ERR_NO_MEMORY, "out of memory for a grammar");
            return MF_EXPR_NOTHING;
        }
        memset(*made, 0xFF, m->divisor * sizeof **made);
    }
    uint32_t rule = (*made)[remainder];
    if (rule == MF_NO_RULE) {
        rule = mf_rules_add(r, NULL, 0);
        (*made)[remainder] = rule; /* it may lead back to itself */
        if (r->status == MF_OK)
            mf_rules_define(r, rule, write_rule(m, kind, n, remainder));
    }
    return r->status == MF_OK ? mf_expr_rule(r, rule) : MF_EXPR_NOTHING;
}

/* ------------------------------------------------------------------------------------ ranges -- */

/* n digits more, from low to high; NULL: from the lowest, to the highest. */
static mf_expr same_length(mf_multiples *m, uint32_t remainder, const char *low, const char *high,
                           int n)
{
    mf_rules *r = m->rules;
    if (low == NULL && high == NULL)
        return to(m, TO_EXACT, (unsigned)n, remainder);
    if (n == 0)
        return tail(m, remainder, NULL, NULL);
    const int l = low != NULL ? *low - '0' : 0, h = high != NULL ? *high - '0' : 9;
    mf_expr all = MF_EXPR_NOTHING;
    for (int d = l; d <= h; d++) {
        mf_expr rest =
            same_length(m, behind(m, remainder, d), low != NULL && d == l ? low + 1 : NULL,
                        high != NULL && d == h ? high + 1 : NULL, n - 1);
        all = mf_expr_alt(r, all, mf_expr_seq(r, digit(r, d), rest));
    }
    return all;
}

/* One digit that is no zero, then n of them, or more. */
static mf_expr longer(mf_multiples *m, reach kind, int n)
{
    mf_rules *r = m->rules;
    mf_expr all = MF_EXPR_NOTHING;
    for (int d = 1; d <= 9; d++) {
        const mf_expr rest = to(m, kind, (unsigned)n, behind(m, m->same[0], d));
        all = mf_expr_alt(r, all, mf_expr_seq(r, digit(r, d), rest));
    }
    return all;
}

/* Whole parts from low to high, which count; n_whole 0 of high: without end. */
static mf_expr whole_range(mf_multiples *m, const mf_bound *low, const mf_bound *high)
{
    char first[MAX_WHOLE];
    const int n_low = low->n_whole, n_high = high->n_whole;
    mf_rules *r = m->rules;
    if (n_high > 0 &&
        (n_low > n_high || (n_low == n_high && memcmp(low->whole, high->whole, (size_t)n_low) > 0)))
        return MF_EXPR_NOTHING;
    if (n_low == n_high)
        return same_length(m, m->same[0], low->whole, high->whole, n_low);
    mf_expr all = same_length(m, m->same[0], low->whole, NULL, n_low);
    if (n_high == 0)
        return mf_expr_alt(r, all, longer(m, TO_ANY, n_low));
    for (int n = n_low + 1; n < n_high; n++)
        all = mf_expr_alt(r, all, longer(m, TO_EXACT, n - 1));
    memset(first, '0', sizeof first);
    first[0] = '1';
    return mf_expr_alt(r, all, same_length(m, m->same[0], first, high->whole, n_high));
}

/* The bound's own whole part. */
static mf_expr at_bound(mf_multiples *m, const mf_bound *at, const mf_bound *low,
                        const mf_bound *high)
{
    const uint32_t remainder = remainder_of(m, at->whole, at->n_whole);
    mf_expr whole = mf_expr_bytes(m->rules, at->whole, (size_t)at->n_whole);
    return mf_expr_seq(m->rules, whole, tail(m, remainder, low, high));
}

mf_expr mf_multiples_between(mf_multiples *m, mf_bound low, mf_bound high)
{
    mf_rules *r = m->rules;
    if (!low.is_there)
        low = (mf_bound){.is_there = true, .whole = "0", .n_whole = 1};
    if (high.is_there && high.n_whole == low.n_whole &&
        memcmp(high.whole, low.whole, (size_t)low.n_whole) == 0)
        return at_bound(m, &low, &low, &high);
    mf_bound above = low, below = high;
    mf_expr all = at_bound(m, &low, &low, NULL);
    mf_digits_up(above.whole, &above.n_whole);
    if (!high.is_there)
        return mf_expr_alt(r, all, whole_range(m, &above, &(mf_bound){0}));
    if (mf_digits_down(below.whole, &below.n_whole))
        all = mf_expr_alt(r, all, whole_range(m, &above, &below));
    return mf_expr_alt(r, all, at_bound(m, &high, NULL, &high));
}

/* ----------------------------------------------------------------------------------- reading -- */

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a == 0 ? 1 : a;
}

/* A divisor and its places, if both are small enough. */
static bool read_divisor(const mf_decimal *d, uint64_t *divisor, unsigned *n_places)
{
    const int n_behind = d->n - d->point; /* digits behind the point */
    if (n_behind > MAX_PLACES || d->point > MAX_PLACES)
        return false;
    *divisor = 0;
    for (int i = 0; i < d->n || i < d->point; i++) {
        *divisor = *divisor * 10 + (uint64_t)(i < d->n ? d->digits[i] - '0' : 0);
        if (*divisor > UINT32_MAX)
            return false;
    }
    *n_places = n_behind > 0 ? (unsigned)n_behind : 0;
    return true;
}

/* The least common multiple, of both with the same places. */
static bool join(uint64_t *divisor, unsigned *n_places, uint64_t other, unsigned n_other)
{
    for (; *n_places < n_other; ++*n_places)
        *divisor *= 10;
    for (; n_other < *n_places; n_other++)
        other *= 10;
    const uint64_t common = common_divisor(*divisor, other);
    return !__builtin_mul_overflow(*divisor / common, other, divisor) && *divisor <= UINT32_MAX;
}

/* Of all parts. False: it failed. */
static bool read_parts(mf_schema_reader *s, const mf_conjunction *c, uint64_t *divisor,
                       unsigned *n_places, bool *is_there)
{
    *divisor = 1;
    *n_places = MAX_PLACES;
    *is_there = false;
    for (size_t i = 0; i < c->n; i++) {
        yyjson_val *v = yyjson_obj_get(c->parts[i].schema, "multipleOf");
        uint64_t one = 1;
        unsigned n_one = 0;
        mf_decimal d = {0};
        if (v == NULL)
            continue;
        const bool is_read = yyjson_is_raw(v) && mf_decimal_parse(yyjson_get_raw(v), &d);
        if (!yyjson_is_raw(v) || (is_read && (d.is_negative || d.n == 0))) {
            (void)mf_schema_fail(s, MF_ERR_FORMAT, "multipleOf: expected a number above 0");
            return false;
        }
        if (!is_read || !read_divisor(&d, &one, &n_one) ||
            (*is_there && !join(divisor, n_places, one, n_one))) {
            (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED,
                                 "multipleOf: %.40s is not supported: at most %d digits before "
                                 "the point and behind it",
                                 yyjson_get_raw(v), MAX_PLACES);
            return false;
        }
        if (!*is_there) {
            *divisor = one;
            *n_places = n_one;
        }
        *is_there = true;
    }
    return true;
}

static bool fill(mf_schema_reader *s, mf_multiples *m)
{
    size_t n_left = 0;
    m->same = mf_alloc_array(&m->allocator, m->divisor, sizeof *m->same);
    if (m->same == NULL || !join_remainders(m, &n_left)) {
        mf_rules_fail(m->rules, MF_ERR_NO_MEMORY, "out of memory for a grammar");
        return false;
    }
    if (n_left <= MAX_REMAINDERS)
        return true;
    (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED,
                         "multipleOf: more than %u remainders to be told apart are not supported",
                         MAX_REMAINDERS);
    return false;
}

mf_multiples *mf_multiples_of(mf_schema_reader *s, const mf_conjunction *c, bool is_integer)
{
    uint64_t divisor;
    unsigned n_places;
    bool is_there;
    if (!read_parts(s, c, &divisor, &n_places, &is_there) || !is_there)
        return NULL;
    for (; is_integer && n_places > 0; n_places--) /* of whole numbers those alone */
        divisor /= common_divisor(divisor, 10);
    if (is_integer && divisor == 1)
        return NULL;
    if (divisor > (is_integer ? MAX_DIVISOR : MAX_REMAINDERS)) {
        (void)mf_schema_fail(s, MF_ERR_UNSUPPORTED,
                             "multipleOf: more than %u remainders are not supported",
                             is_integer ? MAX_DIVISOR : MAX_REMAINDERS);
        return NULL;
    }
    mf_multiples *m = mf_alloc_zeroed(&s->rules->allocator, sizeof *m);
    if (m == NULL) {
        mf_rules_fail(s->rules, MF_ERR_NO_MEMORY, "out of memory for a grammar");
        return NULL;
    }
    m->rules = s->rules;
    m->allocator = s->rules->allocator;
    m->is_integer = is_integer;
    m->divisor = (uint32_t)divisor;
    m->n_places = n_places;
    if (fill(s, m))
        return m;
    mf_multiples_free(m);
    return NULL;
}

void mf_multiples_free(mf_multiples *m)
{
    if (m == NULL)
        return;
    const mf_allocator a = m->allocator;
    for (size_t i = 0; i < N_KINDS; i++)
        for (size_t n = 0; n < MAX_WHOLE; n++)
            mf_free(&a, m->made[i][n], m->divisor * sizeof(uint32_t));
    mf_free(&a, m->same, m->divisor * sizeof *m->same);
    mf_free(&a, m, sizeof *m);
}
