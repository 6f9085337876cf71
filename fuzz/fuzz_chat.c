/* SPDX-License-Identifier: MIT */
/* A chat template from anywhere: matched against the known ones, and rendered if it is one. */
#include "text/chat.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* The same length whatever fits, and no byte past the end. */
static void render(const mf_chat_style *style, const mf_chat_params *chat)
{
    size_t n = 0, n_again = 0;
    if (mf_chat_render(style, chat, NULL, 0, &n, NULL) != MF_OK)
        return;
    char *text = malloc(n + 1);
    if (text == NULL)
        return;
    if (mf_chat_render(style, chat, text, n / 2, &n_again, NULL) != MF_OK || n_again != n ||
        mf_chat_render(style, chat, text, n, &n_again, NULL) != MF_OK || n_again != n)
        abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const mf_chat_message messages[] = {
        {MF_ROLE_SYSTEM, "s"},
        {MF_ROLE_USER, "u"},
        {MF_ROLE_ASSISTANT, "<think>\nt\n</think>\n\na</think>b"},
        {MF_ROLE_USER, ""},
        {MF_ROLE_ASSISTANT, "c"},
    };
    const size_t n_messages = sizeof messages / sizeof *messages;
    const mf_allocator a = mf_allocator_default();
    mf_chat_style style;
    /* an exact copy, so that a look past the end is seen */
    char *text = malloc(n_bytes == 0 ? 1 : n_bytes);
    if (text == NULL)
        return 0;
    if (n_bytes != 0)
        memcpy(text, data, n_bytes);
    if (mf_chat_recognise(&style, &a, text, n_bytes, NULL) == MF_OK && style.is_known) {
        for (size_t first = 0; first < 3; first++)
            for (int way = 0; way < 6; way++) {
                const mf_chat_params chat = {.messages = messages + first,
                                             .n_messages = n_messages - 2 * (first == 1) - first,
                                             .thinking = (mf_thinking)(way % 3),
                                             .add_generation_prompt = way >= 3};
                render(&style, &chat);
            }
    }
    free(text);
    return 0;
}
