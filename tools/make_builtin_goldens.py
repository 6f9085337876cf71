#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tests/text/data/chat_builtin.json: conversations as the publisher's own program writes them, for families whose
checkpoints have no template. With tools, "before" and "after" are what stands around their list.

Needs deepseek-recipe. Usage: tools/make_builtin_goldens.py OUT.json
"""
import json
import sys

from deepseek_recipe import ChatCompletionRequest, ConversionOptions, DeepseekV4Encoding


def user(content):
    return {"role": "user", "content": content}


def answer(content, thoughts=None, **more):
    return {"role": "assistant", "content": content, **({} if thoughts is None else {"reasoning_content": thoughts}), **more}


def system(content):
    return {"role": "system", "content": content}


def call(number, arguments, name="get_weather"):
    return {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def result(number, content):
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": content}


TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather of a town", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}},
]
MANY = {"city": 'x"y <&> é', "days": 2, "flag": True, "digits": "5", "half": 1.5, "list": [1, {"k": None}]}
CASES = [
    ([user("Hi")], None),
    ([system("S1"), system("S2"), user("a"), answer("b", "r"), user("c")], None),
    ([user("a"), answer("b", "r"), system("later"), user("c"), user("d")], None),
    ([user([{"type": "text", "text": "x"}, {"type": "text", "text": "y"}])], None),
    ([user("a"), answer("t", "r"), answer("u", "s"), user("x")], None),
    ([system("only")], None),
    ([user("a"), answer("t", "r", tool_calls=[call(1, {})]), result(1, "z"), user("c"), answer("x", "rr"), user("d")], None),
    ([user("Hi")], TOOLS),
    ([system("Sy"), user("a"), answer("t", "r", tool_calls=[call(1, {}, "ping")]), result(1, "pong"),
      answer("u", "q", tool_calls=[call(2, MANY)]), result(2, "wet"), answer("so", "s"), user("again")], TOOLS),
    ([user("a"), answer("t", "r", tool_calls=[call(1, {}), call(2, {"city": "b"})]), result(2, "two"), result(1, "one"), user("c")], TOOLS),
    ([user("a"), answer(None, tool_calls=[call(1, {})]), result(1, "z")], TOOLS),
]


def written(messages, tools, thinks):
    body = {"model": "DeepSeek-V4-Pro", "messages": messages, **({"tools": tools} if tools else {})}
    body |= {"reasoning_effort": "low"} if thinks else {"thinking": {"type": "disabled"}}  # the others add sentences
    conversation = ChatCompletionRequest(body).convert(ConversionOptions()).conversation
    return DeepseekV4Encoding().render_conversation(conversation).prompt


def main():
    out = []
    for messages, tools in CASES:
        for thinks in (True, False):
            text = written(messages, tools, thinks)
            case = {"model_type": "deepseek_v4", "thinks": thinks, "tools": tools, "messages": json.loads(json.dumps(messages))}
            for message in case["messages"]:  # as templates see them
                for c in message.get("tool_calls") or []:
                    c["function"]["arguments"] = json.loads(c["function"]["arguments"])
            before, _, rest = text.partition("\n\n## Tools")
            out.append({**case, "before": before, "after": rest[rest.index("<｜User｜>") :] if tools else ""})
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        json.dump(out, f, ensure_ascii=False, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
