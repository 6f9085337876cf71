/* SPDX-License-Identifier: MIT */
/* A schema or a grammar from anywhere, compiled in little time; what it then allows, byte by byte,
 * is valid UTF-8, and can be gone on with until it ends. The first byte says which it is. */
#include "grammar/grammar.h"
#include "grammar/stacks.h"
#include "text/utf8.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define MAX_TEXT 200

/* Writes a text by the bytes that are allowed, chosen by the input's own. */
static void write_text(const mf_program *program, const uint8_t *data, size_t n_bytes)
{
    const mf_allocator a = mf_allocator_default();
    unsigned char text[MAX_TEXT];
    mf_pool pool;
    mf_tops tops = {0}, next = {0};
    size_t n = 0;
    mf_pool_init(&pool, &a, program);
    mf_pool_start(&pool, &tops);
    while (n < MAX_TEXT && pool.status == MF_OK) {
        const unsigned first = n_bytes > 0 ? data[n * 7 % n_bytes] : 0;
        bool goes_on = false;
        for (unsigned i = 0; i < 256 && !goes_on && pool.status == MF_OK; i++) {
            text[n] = (unsigned char)(first + i * 37);
            mf_pool_byte(&pool, &tops, text[n], &next);
            goes_on = next.n > 0;
        }
        if (!goes_on)
            break;
        n++;
        const mf_tops swap = tops;
        tops = next;
        next = swap;
    }
    bool is_token = false; /* a state that only a token leaves */
    for (size_t i = 0; i < tops.n && pool.status == MF_OK; i++) {
        const uint32_t state = pool.stacks[tops.items[i]].state;
        is_token =
            is_token || (state != MF_NO_STATE && program->states[state].kind == MF_STATE_TOKEN);
    }
    if (pool.status == MF_OK && n < MAX_TEXT && !is_token &&
        (!mf_tops_may_end(&pool, &tops) || !mf_utf8_is_valid(text, n)))
        abort();
    mf_tops_free(&a, &tops);
    mf_tops_free(&a, &next);
    mf_pool_free(&pool);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const mf_allocator a = mf_allocator_default();
    mf_rules rules;
    mf_program program = {0};
    mf_error error = {0};
    if (n_bytes == 0 || n_bytes > 4096)
        return 0;
    char *text = malloc(n_bytes); /* an exact copy, so that a look past the end is seen */
    if (text == NULL)
        return 0;
    memcpy(text, data + 1, n_bytes - 1);
    if (mf_rules_init(&rules, &a, &error) != MF_OK)
        abort();
    if (data[0] % 2 == 0) {
        rules.root = mf_rules_add(&rules, "root", 4);
        mf_rules_define(&rules, rules.root,
                        mf_schema_read(&rules, text, n_bytes - 1, "input", data[0] % 4 == 2));
    } else {
        mf_gbnf_read(&rules, text, n_bytes - 1, NULL, false);
        rules.root = mf_rules_find(&rules, "root", 4);
    }
    mf_status status = mf_program_make(&rules, &program, &error);
    mf_rules_free(&rules);
    free(text);
    if (status == MF_OK)
        write_text(&program, data, n_bytes);
    else if (error.message[0] == '\0')
        abort();
    if (status == MF_OK)
        mf_program_free(&program);
    return 0;
}
