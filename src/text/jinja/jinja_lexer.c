/* SPDX-License-Identifier: MIT */
/* Jinja's lexer. Where tags take white space away is decided here, so that parsers see final text.
 */
#include "text/jinja/jinja_lexer.h"

#include "base/digits.h"
#include "format/json.h"
#include "text/jinja/jinja_text.h"
#include "text/utf8.h"

#include <utf8proc.h>

#define MAX_BRACKETS 200

typedef struct mf_jlexer {
    mf_jrun *j;
    const char *start, *at, *end;
    mf_jtokens *out;
    bool starts_line; /* what was read last ended a line */
    char brackets[MAX_BRACKETS];
    size_t n_brackets;
} mf_jlexer;

static bool has(const mf_jlexer *l, size_t offset, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(l->end - l->at) >= offset + n && memcmp(l->at + offset, word, n) == 0;
}

static uint32_t char_at(const char *at, const char *end, size_t *n)
{
    uint32_t c = MF_UTF8_REPLACEMENT;
    if (at < end)
        mf_utf8_next((const unsigned char *)at, (size_t)(end - at), &c, n);
    return c;
}

/* The number of bytes of white space from `at` on. */
static size_t n_blanks(const char *at, const char *end)
{
    const char *p = at;
    size_t n;
    while (p < end && mf_utf8_is_blank(char_at(p, end, &n)))
        p += n;
    return (size_t)(p - at);
}

/* Where the white space at the end of [start, end) begins. */
static const char *strip_end(const char *start, const char *end)
{
    while (end > start) {
        const char *last = end - 1;
        size_t n;
        while (last > start && ((unsigned char)*last & 0xC0) == 0x80)
            last--;
        if (!mf_utf8_is_blank(char_at(last, end, &n)))
            break;
        end = last;
    }
    return end;
}

static void advance(mf_jlexer *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        l->j->line += l->at[i] == '\n';
    if (n > 0)
        l->starts_line = l->at[n - 1] == '\n';
    l->at += n;
}

static void put(mf_jlexer *l, mf_jtoken token)
{
    mf_jtokens *out = l->out;
    if (!mf_j_spend(l->j, 1))
        return;
    if (out->n_tokens == out->capacity) {
        size_t capacity = out->capacity == 0 ? 256 : 2 * out->capacity;
        mf_jtoken *tokens = mf_j_take(l->j, capacity * sizeof *tokens);
        if (tokens == NULL)
            return;
        if (out->n_tokens != 0)
            memcpy(tokens, out->tokens, out->n_tokens * sizeof *tokens);
        out->tokens = tokens;
        out->capacity = capacity;
    }
    out->tokens[out->n_tokens++] = token;
}

static void put_text(mf_jlexer *l, mf_jtoken_kind kind, const char *text, size_t n_bytes)
{
    put(l, (mf_jtoken){.kind = kind, .line = l->j->line, .text = text, .n_bytes = n_bytes});
}

static void put_operator(mf_jlexer *l, mf_jtoken_kind kind, int op)
{
    put(l, (mf_jtoken){.kind = kind, .line = l->j->line, .op = op});
}

/* ------------------------------------------------------------------------------- inside tags -- */

/* The end of a tag that is closed by `close`: as many bytes as it takes with the white space that
 * goes with it; 0: it is none. */
static size_t end_of_tag(const mf_jlexer *l, char close)
{
    const char word[3] = {close, '}', '\0'};
    if (has(l, 0, "-") && has(l, 1, word))
        return 3 + n_blanks(l->at + 3, l->end);
    if (close != '}' && has(l, 0, "+") && has(l, 1, word))
        return 3;
    if (!has(l, 0, word))
        return 0;
    return 2 + (close != '}' && has(l, 2, "\n"));
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* (\d+_)*\d+ from p on. */
static const char *skip_digits(const mf_jlexer *l, const char *p)
{
    while (p < l->end && (is_digit(*p) || (*p == '_' && p + 1 < l->end && is_digit(p[1]))))
        p++;
    return p;
}

/* The end of a floating point number at l->at; NULL: it is none. */
static const char *end_of_float(const mf_jlexer *l)
{
    const char *p = skip_digits(l, l->at);
    if (l->at > l->start && l->at[-1] == '.')
        return NULL;
    bool is_float = false;
    if (p + 1 < l->end && *p == '.' && is_digit(p[1])) {
        p = skip_digits(l, p + 1);
        is_float = true;
    }
    if (p < l->end && (*p == 'e' || *p == 'E')) {
        const char *e = p + 1;
        e += e < l->end && (*e == '+' || *e == '-');
        if (e < l->end && is_digit(*e))
            return skip_digits(l, e);
    }
    return is_float ? p : NULL;
}

static mf_jval float_of(mf_jrun *j, const char *at, const char *end)
{
    char text[400];
    size_t n = 0;
    while (at + 1 < end && *at == '0' && (is_digit(at[1]) || at[1] == '_'))
        at++; /* JSON has no leading zeros */
    at += *at == '_';
    for (; at < end && n < sizeof text - 1; at++)
        if (*at != '_')
            text[n++] = *at;
    text[n] = '\0';
    yyjson_val value = {0};
    if (at < end ||
        yyjson_read_number(text, &value, YYJSON_READ_ALLOW_INF_AND_NAN, NULL, NULL) == NULL)
        return mf_j_fail(j, MF_ERR_FORMAT, "not a number: %.40s", text);
    return mf_j_float(yyjson_get_num(&value));
}

/* An integer: 12, 1_000, 0x1f, 0o17, 0b1. */
static void read_integer(mf_jlexer *l)
{
    const char *p = l->at;
    int base = 10;
    int64_t value = 0;
    if (*p == '0' && p + 2 <= l->end - 1) {
        char kind = (char)(p[1] | 0x20);
        int other = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
        if (other != 10 && mf_digit_of(p[2]) < other) {
            base = other;
            p += 2;
        }
    }
    bool is_zero = base == 10 && *p == '0'; /* 0(_?0)* */
    for (; p < l->end; p++) {
        bool is_gap = *p == '_' && p + 1 < l->end && mf_digit_of(p[1]) < base;
        int digit = is_gap ? 0 : mf_digit_of(*p);
        if (digit >= base || (is_zero && !is_gap && digit != 0))
            break;
        if (!is_gap && (__builtin_mul_overflow(value, base, &value) ||
                        __builtin_add_overflow(value, digit, &value))) {
            mf_j_fail(l->j, MF_ERR_UNSUPPORTED, "an integer of more than 64 bits");
            return;
        }
    }
    put(l, (mf_jtoken){.kind = MF_JT_NUMBER, .line = l->j->line, .value = mf_j_int(value)});
    advance(l, (size_t)(p - l->at));
}

static void read_number(mf_jlexer *l)
{
    const char *end = end_of_float(l);
    if (end == NULL) {
        read_integer(l);
        return;
    }
    put(l,
        (mf_jtoken){.kind = MF_JT_NUMBER, .line = l->j->line, .value = float_of(l->j, l->at, end)});
    advance(l, (size_t)(end - l->at));
}

/* Up to n_most digits of a base; the number of them. */
static size_t read_digits(const char *at, const char *end, int base, size_t n_most, uint32_t *value)
{
    size_t n = 0;
    *value = 0;
    while (n < n_most && at + n < end && mf_digit_of(at[n]) < base)
        *value = *value * (uint32_t)base + (uint32_t)mf_digit_of(at[n++]);
    return n;
}

/* A numeric escape; the number of bytes behind the backslash, 0: malformed. */
static size_t numeric_escape(const char *at, const char *end, uint32_t *c)
{
    if (*at >= '0' && *at <= '7')
        return read_digits(at, end, 8, 3, c);
    size_t n = *at == 'x' ? 2 : *at == 'u' ? 4 : 8;
    bool is_whole = read_digits(at + 1, end, 16, n, c) == n;
    return is_whole && *c < 0x110000 && (*c < 0xD800 || *c > 0xDFFF) ? n + 1 : 0;
}

/* What follows a backslash; returns its length, 0 after a failure. */
static size_t put_escape(mf_jlexer *l, mf_jtext *text, const char *at, const char *end)
{
    static const char letters[] = "abfnrtv\\'\"", meant[] = "\a\b\f\n\r\t\v\\'\"";
    const char *known = *at != '\0' ? strchr(letters, *at) : NULL;
    uint32_t c;
    size_t n = 1;
    if (known != NULL) {
        mf_j_put_bytes(text, &meant[known - letters], 1);
    } else if (strchr("xuU01234567", *at) != NULL && *at != '\0') {
        n = numeric_escape(at, end, &c);
        if (n != 0)
            mf_j_put_char(text, c);
    } else if (*at == 'N') {
        n = 0;
    } else if ((unsigned char)*at >= 0x80) { /* Python sees the escape of that character there */
        char escaped[16];
        c = char_at(at, end, &n);
        snprintf(escaped, sizeof escaped,
                 c < 0x100     ? "\\x%02x"
                 : c < 0x10000 ? "\\u%04x"
                               : "\\U%08x",
                 (unsigned)c);
        mf_j_put_c(text, escaped);
    } else if (*at != '\n') { /* a line's end vanishes, all else stays as it is */
        mf_j_put_c(text, "\\");
        mf_j_put_bytes(text, at, 1);
    }
    if (n == 0)
        mf_j_fail(l->j, MF_ERR_FORMAT, "a string with an escape that means no character");
    return n;
}

static void read_string(mf_jlexer *l)
{
    char quote = *l->at;
    const char *p = l->at + 1, *end = p;
    while (end < l->end && *end != quote)
        end += *end == '\\' && end + 1 < l->end ? 2 : 1;
    if (end >= l->end) {
        mf_j_fail(l->j, MF_ERR_FORMAT, "a string without end");
        return;
    }
    mf_jval value;
    if (memchr(p, '\\', (size_t)(end - p)) == NULL) {
        value = mf_j_string(l->j, p, (size_t)(end - p));
    } else {
        mf_jtext text = {.run = l->j};
        while (p < end && mf_j_ok(l->j)) {
            size_t n = 1;
            if (*p == '\\')
                n = 1 + put_escape(l, &text, p + 1, end);
            else
                mf_j_put_bytes(&text, p, 1);
            p += n;
        }
        value = mf_j_take_text(&text);
    }
    put(l, (mf_jtoken){.kind = MF_JT_STRING, .line = l->j->line, .value = value});
    advance(l, (size_t)(end + 1 - l->at));
}

static bool is_word_char(const char *at, const char *end, size_t *n)
{
    uint32_t c = char_at(at, end, n);
    if (c < 0x80)
        return c == '_' || is_digit((char)c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
           category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL;
}

static bool balance(mf_jlexer *l, char c)
{
    const char *open = "([{", *close = ")]}";
    const char *opened = strchr(open, c), *closed = strchr(close, c);
    if (opened != NULL) {
        if (l->n_brackets == MAX_BRACKETS) {
            mf_j_fail(l->j, MF_ERR_UNSUPPORTED, "nested too deeply");
            return false;
        }
        l->brackets[l->n_brackets++] = close[opened - open];
    } else if (closed != NULL && (l->n_brackets == 0 || l->brackets[--l->n_brackets] != *closed)) {
        mf_j_fail(l->j, MF_ERR_FORMAT, "unexpected '%c'", c);
        return false;
    }
    return true;
}

static void read_operator(mf_jlexer *l)
{
    static const char *const doubled[] = {"//", "**", "==", "!=", ">=", "<="};
    for (size_t i = 0; i < sizeof doubled / sizeof *doubled; i++) {
        if (has(l, 0, doubled[i])) {
            put_operator(l, MF_JT_OPERATOR, MF_JOP(doubled[i][0], doubled[i][1]));
            advance(l, 2);
            return;
        }
    }
    char c = *l->at;
    if (c == '\0' || strchr("+-/*%~[](){}><=.:|,;", c) == NULL)
        mf_j_fail(l->j, MF_ERR_FORMAT, "unexpected character '%c' in a tag",
                  c < ' ' || c > '~' ? '?' : c);
    else if (balance(l, c)) {
        put_operator(l, MF_JT_OPERATOR, c);
        advance(l, 1);
    }
}

/* The rest of a tag, up to its end. */
static void read_tag(mf_jlexer *l, char close, mf_jtoken_kind end_kind)
{
    l->n_brackets = 0;
    while (mf_j_ok(l->j)) {
        size_t n = l->n_brackets == 0 ? end_of_tag(l, close) : 0;
        if (n != 0) {
            put_operator(l, end_kind, 0);
            advance(l, n);
            return;
        }
        if (l->at == l->end) { /* the parser says what is missing */
            if (l->n_brackets != 0)
                mf_j_fail(l->j, MF_ERR_FORMAT, "a tag without end");
            return;
        }
        n = n_blanks(l->at, l->end);
        if (n != 0) {
            advance(l, n);
        } else if (is_digit(*l->at)) {
            read_number(l);
        } else if (is_word_char(l->at, l->end, &n)) {
            const char *p = l->at;
            while (p < l->end && is_word_char(p, l->end, &n))
                p += n;
            put_text(l, MF_JT_NAME, l->at, (size_t)(p - l->at));
            advance(l, (size_t)(p - l->at));
        } else if (*l->at == '\'' || *l->at == '"') {
            read_string(l);
        } else {
            read_operator(l);
        }
    }
}

/* ------------------------------------------------------------------------------ between tags -- */

/* Puts [start, stop), less what the tag behind it takes away: its sign says. */
static void put_data(mf_jlexer *l, const char *start, const char *stop, char sign, bool is_variable)
{
    const char *end = stop;
    if (sign == '-') {
        end = strip_end(start, stop);
    } else if (sign != '+' && !is_variable) {
        const char *line = stop;
        while (line > start && line[-1] != '\n')
            line--;
        if ((line > start || l->starts_line) && n_blanks(line, stop) == (size_t)(stop - line))
            end = line;
    }
    if (end > start)
        put_text(l, MF_JT_DATA, start, (size_t)(end - start));
    advance(l, (size_t)(stop - start));
}

static char sign_at(const mf_jlexer *l, const char *at)
{
    return at < l->end && (*at == '-' || *at == '+') ? *at : '\0';
}

/* The length of "{%- raw -%}" at `at` with what follows it, 0: it is something else. */
static size_t n_raw_begin(const mf_jlexer *l, const char *at)
{
    const char *p = at + 2;
    p += sign_at(l, p) != '\0';
    p += n_blanks(p, l->end);
    if (l->end - p < 3 || memcmp(p, "raw", 3) != 0)
        return 0;
    p += 3;
    p += n_blanks(p, l->end);
    if (l->end - p >= 3 && memcmp(p, "-%}", 3) == 0)
        return (size_t)(p + 3 + n_blanks(p + 3, l->end) - at);
    return l->end - p >= 2 && memcmp(p, "%}", 2) == 0 ? (size_t)(p + 2 - at) : 0;
}

/* The length of "{%- endraw -%}" at `at` with what it takes, 0: something else. */
static size_t n_raw_end(const mf_jlexer *l, const char *at)
{
    const char *p = at + 2;
    p += sign_at(l, p) != '\0';
    p += n_blanks(p, l->end);
    if (l->end - p < 6 || memcmp(p, "endraw", 6) != 0)
        return 0;
    p += 6;
    p += n_blanks(p, l->end);
    const mf_jlexer tail = {.start = p, .at = p, .end = l->end};
    size_t n = end_of_tag(&tail, '%');
    return n == 0 ? 0 : (size_t)(p + n - at);
}

static void read_raw(mf_jlexer *l)
{
    for (const char *p = l->at; p + 1 < l->end; p++) {
        size_t n = p[0] == '{' && p[1] == '%' ? n_raw_end(l, p) : 0;
        if (n != 0) {
            put_data(l, l->at, p, sign_at(l, p + 2), false);
            advance(l, n);
            return;
        }
    }
    if (l->at < l->end) /* Jinja does not miss the end where there is nothing to end */
        mf_j_fail(l->j, MF_ERR_FORMAT, "a raw block without end");
}

static void read_comment(mf_jlexer *l)
{
    bool is_empty = l->at == l->end;
    while (l->at < l->end) {
        bool has_sign = *l->at == '-' || *l->at == '+';
        if (has(l, has_sign, "#}")) {
            size_t n = end_of_tag(l, '#');
            advance(l, n);
            return;
        }
        advance(l, 1);
    }
    if (!is_empty)
        mf_j_fail(l->j, MF_ERR_FORMAT, "a comment without end");
}

static const char *find_tag(const mf_jlexer *l)
{
    const char *p = l->at;
    while (p + 1 < l->end && !(p[0] == '{' && (p[1] == '%' || p[1] == '{' || p[1] == '#')))
        p++;
    return p + 1 < l->end ? p : NULL;
}

static void read_piece(mf_jlexer *l)
{
    const char *tag = find_tag(l);
    if (tag == NULL) {
        put_text(l, MF_JT_DATA, l->at, (size_t)(l->end - l->at));
        l->at = l->end;
        return;
    }
    char kind = tag[1], sign = sign_at(l, tag + 2);
    size_t n_raw = kind == '%' ? n_raw_begin(l, tag) : 0;
    put_data(l, l->at, tag, sign, kind == '{');
    if (n_raw != 0) {
        advance(l, n_raw);
        read_raw(l);
        return;
    }
    advance(l, 2 + (sign != '\0'));
    if (kind == '#') {
        read_comment(l);
    } else {
        put_operator(l, kind == '%' ? MF_JT_BLOCK_BEGIN : MF_JT_VARIABLE_BEGIN, 0);
        read_tag(l, kind == '%' ? '%' : '}', kind == '%' ? MF_JT_BLOCK_END : MF_JT_VARIABLE_END);
    }
}

void mf_j_tokenize(mf_jrun *j, const char *text, size_t n_bytes, mf_jtokens *out)
{
    mf_jlexer l = {
        .j = j, .start = text, .at = text, .end = text + n_bytes, .out = out, .starts_line = true};
    j->line = 1;
    *out = (mf_jtokens){0};
    while (l.at < l.end && mf_j_ok(j))
        read_piece(&l);
    put(&l, (mf_jtoken){.kind = MF_JT_END, .line = j->line});
}
