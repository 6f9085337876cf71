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

#define X16 "xxxxxxxxxxxxxxxx"
#define X256 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16 X16
#define X1024 X256 X256 X256 X256 /* MF_REPLY_KEY_BYTES */
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

#define M3 "]<]minimax[>["
#define K3_CALL "<|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|>"
#define K3_KEY(name, type) "<|open|>argument key=\"" name "\" type=\"" type "\"<|sep|>"
#define K3_END "<|close|>argument<|sep|>"

/* Families that are none of JSON, tags or Python alone. */
static const reply_case others[] = {
    {"lfm", NULL,
     "<|tool_call_start|>[ping(a='it's \"so\"', b=['x', 'y z'], c={'d': 'e'})]<|tool_call_end|>",
     "|[0 ping {\"a\": \"it's \\\"so\\\"\", \"b\": [\"x\", \"y z\"], \"c\": {\"d\": \"e\"}}]", 0, 0,
     0},
    {"gemma4", NULL, "<|channel>thought\nHm\n<channel|>Good", "|T:Hm|C:Good", 0, 0, 0},
    {"gemma4", NULL,
     "<|tool_call>call:get_weather{city:<|\"|>a \"b\" {c}<|\"|>,days:[1,{x:true}]}<tool_call|>",
     "|[0 get_weather {\"city\":\"a \\\"b\\\" {c}\",\"days\":[1,{\"x\":true}]}]", 0, 0, 0},
    {"gemma4", NULL,
     "<|tool_call>call:ping{}<tool_call|><|tool_call>call:ping{ a : None }<tool_call|>x",
     "|[0 ping {}]|[1 ping {\"a\":null}]|C:x", 0, 0, 0},
    {"gemma4", NULL,
     "<|tool_call>call:ping{\"a\": \"b\\n\", <|\"|>c<|\"|>:<|\"|>d<|\"|>}<tool_call|>",
     "|[0 ping {\"a\":\"b\\n\",\"c\":\"d\"}]", 0, 0, 0},
    {"gemma4", NULL, "<|tool_call>call:get_weather{city:5,days:x}<tool_call|>",
     "|[0 get_weather {\"city\":\"5\",\"days\":\"x\"}]", 0, 0, 0},
    {"gemma4", NULL, "<|tool_call>call:ping{a:1}", "|[0 ping {\"a\":1}]", 0, 0, 0},
    {"gemma4", NULL, "<|tool_call>call:ping{a:<|\"|>b",
     "|[0 ping {\"a\":\"b!<|tool_call>call:ping{a:<|\"|>b", 0, 0, 0},
    {"gemma4", NULL, "<|tool_call>call:ping{a 1}", "|[0 ping {\"a 1\"!<|tool_call>call:ping{a 1}",
     0, 0, 0},
    {"gemma4", NULL, "<|tool_call>call:ping{a:1,,b:2}",
     "|[0 ping {\"a\":1,!<|tool_call>call:ping{a:1,,|C:b:2}", 0, 0, 0},
    {"gemma4", NULL, "<|tool_call>call:ping{<|\"|>" X1024 "<|\"|>:1}<tool_call|>",
     "|[0 ping {\"" X1024 "\":1}]", 0, 0, 0},
    {"gemma4", NULL, "<|tool_call>call:ping{<|\"|>" X1024 "y<|\"|>:1}",
     "|[0 ping {\"!<|tool_call>call:ping{<|\"|>" X1024 "|C:y<|\"|>:1}", 0, 0, 0},
    {"gemma4", NULL, "<|tool_call>call:ping{" X1024 "\xC3\xA9:1}",
     "|[0 ping {!<|tool_call>call:ping{" X1024 "|C:\xC3\xA9:1}", 0, 0, 0},
    {"gemma4", NULL, "Say <|tool_call>call: so", "|C:Say <|tool_call>call: so", 0, 0, 0},
    {"kimi_k3", NULL,
     "<|open|>think<|sep|>Hm<|close|>think<|sep|><|open|>response<|sep|>Good<|close|>response<|sep|"
     ">"
     "<|close|>message<|sep|>",
     "|T:Hm|C:Good", 0, 0, 0},
    {"kimi_k3", NULL,
     K3_CALL K3_KEY("city", "string") "5" K3_END K3_KEY(
         "days", "number") "3" K3_END
                           "<|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>",
     "|[0 get_weather {\"city\": \"5\", \"days\": 3}]", 0, 0, 0},
    {"kimi_k3", NULL,
     K3_CALL K3_KEY("n", "null") "null" K3_END K3_KEY("o", "object") "{\"a\":[]}" K3_END,
     "|[0 get_weather {\"n\": null, \"o\": {\"a\":[]}}]", 0, 0, 0},
    {"kimi_k3", NULL,
     K3_CALL
     "<|open|>json type=\"object\"<|sep|>{\"city\": \"x\"}<|close|>json<|sep|><|close|>call<|sep|>"
     "<|open|>call tool=\"ping\" index=\"2\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
     "|[0 get_weather {\"city\": \"x\"}]|[1 ping {}]", 0, 0, 0},
    {"kimi_k3", NULL, "<|open|>tools<|sep|>Words", "|C:<|open|>tools<|sep|>Words", 0, 0, 0},
    {"minimax_m3", NULL,
     M3 "<tool_call>\n" M3 "<invoke name=\"get_weather\">" M3 "<city>a<b>" M3 "</city>" M3
        "<days>3" M3 "</days>" M3 "</invoke>\n" M3 "</tool_call>",
     "|[0 get_weather {\"city\": \"a<b>\", \"days\": 3}]", 0, 0, 0},
    {"minimax_m3", NULL,
     M3 "<tool_call>" M3 "<invoke name=\"ping\">" M3 "<l>" M3 "<item>1" M3 "</item>" M3 "<item>" M3
        "<k>x" M3 "</k>" M3 "</item>" M3 "</l>" M3 "</invoke>" M3 "</tool_call>Done",
     "|[0 ping {\"l\": [1, {\"k\": \"x\"}]}]|C:Done", 0, 0, 0},
    {"minimax_m3", NULL, M3 "<tool_call>" M3 "<invoke name=\"ping\">" M3 "<a>1" M3 "</invoke>",
     "|[0 ping {\"a\": 1}]", 0, 0, 0},
    {"minimax_m3", NULL, M3 "<tool_call>" M3 "<invoke name=\"ping\">" M3 "<a>1",
     "|[0 ping {\"a\": !" M3 "<tool_call>" M3 "<invoke name=\"ping\">" M3 "<a>1", 0, 0, 0},
    {"minicpm", NULL,
     "<function name=\"get_weather\"><param name=\"city\"><![CDATA[a </param> "
     "<b>\n]]></param><param "
     "name=\"days\">3</param></function>",
     "|[0 get_weather {\"city\": \"a </param> <b>\\n\", \"days\": 3}]", 0, 0, 0},
    {"minicpm", NULL, "<function name=\"ping\"><param name=\"a\"><![CD</param></function>",
     "|[0 ping {\"a\": \"<![CD\"}]", 0, 0, 0},
    {"minicpm", NULL, "A <function name=\"ping\"></function> b", "|C:A|[0 ping {}]|C:b", 0, 0, 0},
    {"atem", NULL,
     " to=self<|message|>Hm<|eom|><|start|>assistant "
     "to=user<|message|>Well<|eom|><|start|>assistant "
     "to=ping<|message|><atem:function_calls>\n<atem:invoke name=\"ping\">\n</atem:invoke>\n"
     "</atem:function_calls>",
     "|T:Hm|C:Well|[0 ping {}]", 0, 0, 0},
    {"atem", NULL, " to=user<|message|>Go to=him <b>", "|C:Go to=him <b>", 0, 0, 0},
    {"functionary", NULL, "all\nGood", "|C:Good", 0, 0, 0},
    {"functionary", NULL, ">>>all\nGood>>>ping\n{\"a\": 1}>>>get_weather\n{}",
     "|C:Good|[0 ping {\"a\": 1}]|[1 get_weather {}]", 0, 0, 0},
    {"functionary", NULL, "ping\n{\"a\": 1}", "|[0 ping {\"a\": 1}]", 0, 0, 0},
    {"functionary", NULL, "all\n>>> print(1)\n>>>pong\n{}", "|C:>>> print(1)\n>>>pong\n{}", 0, 0,
     0},
    {"functionary", NULL, "Hello", "|C:Hello", 0, 0, 0},
    {"functionary", NULL, "ping", "|C:ping", 0, 0, 0},
    {"functionary", NULL, "ping\n{\"a\": 1}", "|C:ping\n{\"a\": 1}", 0, 0, 1},
};

static const reply_case harmony[] = {
    {"harmony", NULL,
     "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant"
     "<|channel|>final<|message|>Yes<|return|>",
     "|T:Hm|C:Yes", 0, 0, 0},
    /* marks of ends that end nothing, behind blanks */
    {"harmony", NULL, "\n<|call|>Yes", "|C:Yes", 0, 0, 0},
    {"harmony", NULL, "<|channel|>final<|message|>a<|end|> \n<|return|>b", "|C:ab", 0, 0, 0},
    {"harmony", NULL, "\n<|call of it", "|C:\n<|call of it", 0, 0, 0},
    {"harmony", NULL, "\n<|call", "|C:\n<|call", 0, 0, 0},
};

int main(void)
{
    check_cases(harmony, sizeof harmony / sizeof *harmony);
    check_cases(hermes, sizeof hermes / sizeof *hermes);
    check_cases(found, sizeof found / sizeof *found);
    check_cases(coder, sizeof coder / sizeof *coder);
    check_cases(others, sizeof others / sizeof *others);
    return test_result();
}
