/* SPDX-License-Identifier: MIT */
/* Replies taken apart: each text as a whole, byte by byte and cut at random gives the same events;
 * expected ones are written down here, by hand. */
#include "test.h"
#include "text_data.h"

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": "
    "{\"type\": "
    "\"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": "
    "\"integer\"}}}}}, {\"name\": \"ping\", \"input_schema\": {\"type\": \"object\"}}]";

typedef struct transcript {
    char text[16384];
    size_t n;
    mf_reply_kind last;
} transcript;

static void write_text(transcript *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->text + t->n, sizeof t->text - t->n, format, args);
    va_end(args);
    REQUIRE(n >= 0 && t->n + (size_t)n < sizeof t->text);
    t->n += (size_t)n;
}

/* All events so far: T thought, C content, [name arguments] a call, ! a broken one. */
static void take_events(mf_reply *reply, transcript *t)
{
    mf_reply_event event;
    while (mf_reply_next(reply, &event)) {
        CHECK(strlen(event.text) == event.n_bytes);
        const bool goes_on = event.kind == t->last && event.kind <= MF_REPLY_CONTENT;
        switch (event.kind) {
        case MF_REPLY_THOUGHT:
        case MF_REPLY_CONTENT:
            write_text(t, "%s%s",
                       goes_on                          ? ""
                       : event.kind == MF_REPLY_THOUGHT ? "|T:"
                                                        : "|C:",
                       event.text);
            break;
        case MF_REPLY_CALL:
            write_text(t, "|[%u %s ", event.call, event.name);
            CHECK(strlen(event.id) > 0);
            break;
        case MF_REPLY_CALL_ARGUMENTS:
            write_text(t, "%s", event.text);
            break;
        case MF_REPLY_CALL_END:
            write_text(t, "]");
            break;
        default:
            write_text(t, "!%s", event.text);
        }
        t->last = event.kind;
    }
}

typedef struct reply_case {
    const char *syntax, *prompt, *text, *expected;
    int was_cut, whole_calls, no_tools;
} reply_case;

/* The events of a text in pieces: piece 0: as a whole, else up to that many bytes. */
static void run(const reply_case *c, size_t piece, uint64_t *state, transcript *t)
{
    mf_reply_syntax *syntax = NULL;
    mf_reply *reply = NULL;
    mf_reply_options options;
    mf_error error;
    const size_t n = strlen(c->text);
    *t = (transcript){.n = 0};
    REQUIRE_OK(mf_reply_syntax_named(c->syntax, NULL, &syntax, &error), &error);
    mf_reply_options_default(&options);
    options.tools = c->no_tools ? NULL : tools;
    options.prompt = c->prompt;
    options.n_prompt_bytes = c->prompt == NULL ? 0 : strlen(c->prompt);
    options.whole_calls = c->whole_calls;
    REQUIRE_OK(mf_reply_create(syntax, &options, &reply, &error), &error);
    for (size_t at = 0, n_now; at < n; at += n_now) {
        n_now = piece == 0 ? n : piece == 1 ? 1 : 1 + test_random(state) % piece;
        n_now = n_now < n - at ? n_now : n - at;
        REQUIRE_OK(mf_reply_push(reply, c->text + at, n_now, 0, &error), &error);
        take_events(reply, t);
    }
    REQUIRE_OK(mf_reply_finish(reply, c->was_cut, &error), &error);
    take_events(reply, t);
    mf_reply_free(&reply);
    mf_reply_syntax_free(&syntax);
}

static void check_cases(const reply_case *cases, size_t n)
{
    transcript t;
    uint64_t state = 7;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < 12; k++) {
            run(&cases[i], k < 2 ? k : k + 1, &state, &t);
            CHECK_MSG(strcmp(t.text, cases[i].expected) == 0,
                      "%s, pieces of %zu: %s\n  %s\nnot\n  %s", cases[i].syntax, k, cases[i].text,
                      t.text, cases[i].expected);
        }
    }
}

#define CALL(args) "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": " args "}\n</tool_call>"

static const reply_case hermes[] = {
    {"hermes", NULL, "", "", 0, 0, 0},
    {"hermes", NULL, "  Hello,\n world <b>! ", "|C:  Hello,\n world <b>! ", 0, 0, 0},
    {"hermes", NULL, "<think>\nHm\n\nso\n</think>\n\nGood", "|T:Hm\n\nso|C:Good", 0, 0, 0},
    {"hermes", NULL, "<think>\n\n</think>\n\nGood", "|C:Good", 0, 0, 0},
    {"hermes", NULL, "<think>\nHm\n", "|T:Hm\n", 0, 0, 0},
    {"hermes", NULL, "a <think> b</think>", "|C:a <think> b</think>", 0, 0, 0},
    {"hermes", "<|im_start|>assistant\n<think>\n", "Hm\n</think>\n\nGood", "|T:Hm|C:Good", 0, 0, 0},
    {"hermes", "<think>\n\n</think>\n\n", "Good", "|C:Good", 0, 0, 0},
    {"hermes", NULL, CALL("{\"city\": \"P\"}"), "|[0 get_weather {\"city\": \"P\"}]", 0, 0, 0},
    {"hermes", NULL, "See:\n" CALL("{}") "\n" CALL("{\"days\": [1, 2]}") "\n",
     "|C:See:|[0 get_weather {}]|[1 get_weather {\"days\": [1, 2]}]", 0, 0, 0},
    {"hermes", NULL, CALL("{}") "\n\nDone", "|[0 get_weather {}]|C:Done", 0, 0, 0},
    {"hermes", NULL, "<tool_call>{\"arguments\":{\"a\":\"x\"},\"name\":\"ping\"}</tool_call>",
     "|[0 ping {\"a\":\"x\"}]", 0, 0, 0},
    {"hermes", NULL,
     "<tool_call>{\"name\":\"ping\",\"arguments\":\"{\\\"a\\\": \\\"\\\\u00e9\\\"}\"}",
     "|[0 ping {\"a\": \"\\u00e9\"}]", 0, 0, 0},
    {"hermes", NULL,
     "<tool_call>{\"type\":\"function\",\"function\":{\"name\":\"ping\",\"parameters\":{}}}"
     "</tool_call>",
     "|[0 ping {}]", 0, 0, 0},
    {"hermes", NULL,
     "<tool_call>[{\"name\":\"ping\"}, {\"name\":\"f\",\"arguments\":null}]</tool_call>x",
     "|[0 ping {}]|[1 f {}]|C:x", 0, 0, 0},
    {"hermes", NULL, "Write `<tool_call>` so.", "|C:Write `<tool_call>` so.", 0, 0, 0},
    {"hermes", NULL, "<tool_call>\n{\"nome\": 1}\n</tool_call>",
     "|C:<tool_call>\n{\"nome\": 1}\n</tool_call>", 0, 0, 0},
    {"hermes", NULL, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": tru, \"b\"}",
     "|[0 f {\"a\": tru!<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": tru|C:, \"b\"}", 0, 0,
     0},
    {"hermes", NULL, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": tru, \"b\"}",
     "|C:<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": tru, \"b\"}", 0, 1, 0},
    {"hermes", NULL, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1",
     "|[0 f {\"a\": 1!<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1", 1, 0, 0},
    {"hermes", NULL, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}",
     "|[0 f {\"a\": 1}]", 1, 0, 0},
    {"hermes", NULL,
     "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"x\ny\\q\"}}}\n</tool_call>ok",
     "|[0 f {\"a\":\"x\\ny\\\\q\"}]|C:ok", 0, 0, 0},
    {"hermes", NULL, "<think>a <tool_call>{\"name\":\"f\"}</tool_call></think>b",
     "|T:a <tool_call>{\"name\":\"f\"}</tool_call>|C:b", 0, 0, 0},
    {"hermes", NULL, "gr\xc3\xbc\xc3\x9f \xff\xe6\x97", "|C:grüß \xef\xbf\xbd\xef\xbf\xbd", 0, 0,
     0},
};

/* Found by the fuzzer: arguments as a string that holds no object, marks behind a call that are
 * none. */
static const reply_case found[] = {
    {"hermes", NULL, "<tool_call>{\"name\": \"f\", \"arguments\" :\"{a\": 1}}</tool_call>",
     "|C:<tool_call>{\"name\": \"f\", \"arguments\" :\"{a\": 1}}</tool_call>", 1, 1, 0},
    {"hermes", NULL, "<tool_call>{\"name\": \"f\"}</tool_call>x </tool_call>",
     "|[0 f {}]|C:x </tool_call>", 0, 0, 0},
};

static const reply_case coder[] = {
    {"coder", NULL,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\none\n<parameter=days>\n2\n</"
     "function>\n"
     "</tool_call>",
     "|[0 get_weather {\"city\": \"one\", \"days\": 2}]", 0, 0, 0},
};

int main(void)
{
    check_cases(hermes, sizeof hermes / sizeof *hermes);
    check_cases(found, sizeof found / sizeof *found);
    check_cases(coder, sizeof coder / sizeof *coder);
    return test_result();
}
