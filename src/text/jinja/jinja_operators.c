/* SPDX-License-Identifier: MIT */
/* Arithmetic, and joining of strings and lists. */
#include "text/jinja/jinja_eval.h"

#include <math.h>

#define LEAST_TAIL_BYTES 512

static mf_jval fail_types(mf_jrun *j, int op, mf_jval a, mf_jval b)
{
    if (a.kind == MF_J_UNDEFINED || b.kind == MF_J_UNDEFINED)
        return mf_j_fail_type(j, "an operator", a.kind == MF_J_UNDEFINED ? a : b);
    const char name[3] = {(char)(op & 0xFF), (char)(op >> 8), '\0'};
    return mf_j_fail(j, MF_ERR_ARGUMENT, "unsupported operand types for %s: '%s' and '%s'", name,
                     mf_j_type_name(a), mf_j_type_name(b));
}

mf_jval mf_j_concat(mf_jrun *j, const mf_jstr *a, const mf_jstr *b)
{
    if (j->tail_string != a || j->tail->n_bytes != a->n_bytes || a->is_markup) {
        mf_jtext *tail = mf_j_take(j, sizeof *tail);
        if (tail == NULL)
            return mf_j_undefined(NULL);
        *tail = (mf_jtext){.run = j};
        mf_j_put_string(tail, a);
        mf_j_put_string(tail, b);
        mf_jval result = mf_j_take_text(tail);
        if (mf_j_ok(j) && tail->n_bytes >= LEAST_TAIL_BYTES) {
            j->tail = tail;
            j->tail_string = result.as.string;
        }
        return result;
    }
    mf_j_put_string(j->tail, b); /* the longer string shares the bytes of the shorter one */
    mf_jval result = mf_j_take_text(j->tail);
    j->tail_string = mf_j_ok(j) ? result.as.string : NULL;
    return result;
}

static mf_jval escaped(mf_jrun *j, const mf_jstr *s)
{
    static const mf_jstr name = {.text = "escape", .n_bytes = 6};
    const mf_jarguments none = {.plain = mf_j_list(j, MF_J_PLAIN)};
    return mf_j_apply_filter(j, &name, (mf_jval){.kind = MF_J_STRING, .as.string = s}, &none);
}

static mf_jval add_strings(mf_jrun *j, const mf_jstr *a, const mf_jstr *b)
{
    if (!a->is_markup && !b->is_markup)
        return mf_j_concat(j, a, b);
    mf_jval left = escaped(j, a), right = escaped(j, b);
    mf_jtext text = {.run = j};
    if (!mf_j_ok(j))
        return mf_j_undefined(NULL);
    mf_j_put_str(&text, left);
    mf_j_put_str(&text, right);
    mf_jval result = mf_j_take_text(&text);
    if (mf_j_ok(j))
        ((mf_jstr *)(uintptr_t)result.as.string)->is_markup = true; /* made here just now */
    return result;
}

static mf_jval add_lists(mf_jrun *j, mf_jval a, mf_jval b)
{
    bool is_tuple = mf_j_is_tuple(a);
    if (is_tuple != mf_j_is_tuple(b) ||
        (!is_tuple && (a.as.list->flavour != MF_J_PLAIN || b.as.list->flavour != MF_J_PLAIN)))
        return fail_types(j, '+', a, b);
    mf_jval list = mf_j_list(j, is_tuple ? MF_J_TUPLE : MF_J_PLAIN);
    for (size_t i = 0; i < a.as.list->n_items && mf_j_ok(j); i++)
        mf_j_push(j, list, a.as.list->items[i]);
    for (size_t i = 0; i < b.as.list->n_items && mf_j_ok(j); i++)
        mf_j_push(j, list, b.as.list->items[i]);
    return list;
}

static mf_jval repeat(mf_jrun *j, mf_jval what, int64_t n)
{
    if (what.kind == MF_J_STRING) {
        mf_jtext text = {.run = j};
        for (int64_t i = 0; i < n && mf_j_ok(j) && what.as.string->n_bytes != 0; i++)
            mf_j_put_string(&text, what.as.string);
        return mf_j_take_text(&text);
    }
    mf_jval list = mf_j_list(j, mf_j_is_tuple(what) ? MF_J_TUPLE : MF_J_PLAIN);
    const mf_jlist *from = what.as.list;
    for (int64_t i = 0; i < n && mf_j_ok(j) && from->n_items != 0; i++)
        for (size_t k = 0; k < from->n_items && mf_j_ok(j); k++)
            mf_j_push(j, list, from->items[k]);
    return list;
}

static bool is_sequence(mf_jval value)
{
    return value.kind == MF_J_STRING ||
           (value.kind == MF_J_LIST &&
            (value.as.list->flavour == MF_J_PLAIN || mf_j_is_tuple(value)));
}

/* ----------------------------------------------------------------------------------- numbers -- */

static mf_jval too_large(mf_jrun *j)
{
    return mf_j_fail(j, MF_ERR_UNSUPPORTED, "an integer of more than 64 bits");
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static mf_jval int_power(mf_jrun *j, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    if (exponent < 0)
        return base == 0 ? mf_j_fail(j, MF_ERR_ARGUMENT, "0 to a negative power")
                         : mf_j_float(pow((double)base, (double)exponent));
    while (exponent > 0) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result))
            return too_large(j);
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base))
            return too_large(j);
    }
    return mf_j_int(result);
}

static mf_jval int_operator(mf_jrun *j, int op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool is_over = false, divides = op == '/' || op == '%' || op == MF_JOP('/', '/');
    if (divides && b == 0)
        return mf_j_fail(j, MF_ERR_ARGUMENT, "division by zero");
    if (op == '/')
        return mf_j_float((double)a / (double)b);
    if (op == MF_JOP('*', '*'))
        return int_power(j, a, b);
    if (divides && b == -1) { /* the least integer has no opposite */
        is_over = op != '%' && __builtin_sub_overflow((int64_t)0, a, &result);
        return is_over ? too_large(j) : mf_j_int(result);
    }
    switch (op) {
    case '+':
        is_over = __builtin_add_overflow(a, b, &result);
        break;
    case '-':
        is_over = __builtin_sub_overflow(a, b, &result);
        break;
    case '*':
        is_over = __builtin_mul_overflow(a, b, &result);
        break;
    case '%':
        result = a - floor_div(a, b) * b;
        break;
    default:
        result = floor_div(a, b);
    }
    return is_over ? too_large(j) : mf_j_int(result);
}

/* Python's: the sign is the divisor's. */
static double float_modulo(double a, double b)
{
    double rest = fmod(a, b);
    if (rest != 0)
        return (rest < 0) != (b < 0) ? rest + b : rest;
    return copysign(0.0, b);
}

/* As CPython's: what the remainder leaves is rounded to a whole number, and 0 has a sign. */
static double float_floor_div(double a, double b)
{
    const double rest = fmod(a, b);
    const double div = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0) ? 1.0 : 0.0);
    if (div == 0)
        return copysign(0.0, a / b);
    return div - floor(div) > 0.5 ? floor(div) + 1 : floor(div);
}

static mf_jval float_operator(mf_jrun *j, int op, double a, double b)
{
    if (b == 0 && (op == '/' || op == '%' || op == MF_JOP('/', '/')))
        return mf_j_fail(j, MF_ERR_ARGUMENT, "division by zero");
    switch (op) {
    case '+':
        return mf_j_float(a + b);
    case '-':
        return mf_j_float(a - b);
    case '*':
        return mf_j_float(a * b);
    case '/':
        return mf_j_float(a / b);
    case '%':
        return mf_j_float(float_modulo(a, b));
    case MF_JOP('/', '/'):
        return mf_j_float(float_floor_div(a, b));
    default:
        break;
    }
    if ((a < 0 && floor(b) != b) || (a == 0 && b < 0))
        return mf_j_fail(j, MF_ERR_ARGUMENT, "a power that is no real number");
    const double power = pow(a, b);
    if (isinf(power) && isfinite(a) && isfinite(b))
        return mf_j_fail(j, MF_ERR_ARGUMENT, "a power that is too large");
    return mf_j_float(power);
}

mf_jval mf_j_binary(mf_jrun *j, int op, mf_jval a, mf_jval b)
{
    int64_t m, n;
    double x, y;
    if (a.kind == MF_J_UNDEFINED || b.kind == MF_J_UNDEFINED)
        return fail_types(j, op, a, b);
    if (mf_j_as_int(a, &m) && mf_j_as_int(b, &n))
        return int_operator(j, op, m, n);
    if (mf_j_as_float(a, &x) && mf_j_as_float(b, &y))
        return float_operator(j, op, x, y);
    if (op == '+' && a.kind == MF_J_STRING && b.kind == MF_J_STRING)
        return add_strings(j, a.as.string, b.as.string);
    if (op == '+' && a.kind == MF_J_LIST && b.kind == MF_J_LIST)
        return add_lists(j, a, b);
    if (op == '*' && is_sequence(a) && mf_j_as_int(b, &n))
        return repeat(j, a, n);
    if (op == '*' && is_sequence(b) && mf_j_as_int(a, &n))
        return repeat(j, b, n);
    if (op == '%' && a.kind == MF_J_STRING)
        return mf_j_percent(j, a.as.string, b);
    return fail_types(j, op, a, b);
}

mf_jval mf_j_unary(mf_jrun *j, int op, mf_jval a)
{
    int64_t n;
    if (mf_j_as_int(a, &n))
        return int_operator(j, op, 0, n);
    if (a.kind == MF_J_FLOAT)
        return mf_j_float(op == '-' ? -a.as.real : a.as.real);
    return mf_j_fail_type(j, "a sign", a);
}
