#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tools and thoughts with the published clients, in loops as agents run them; and every event of
every stream against the clients' own schemas.

    check_clients_tools.py PROGRAM MODEL_THAT_CALLS

One word of the model is a thought and a call as a text: a bias makes it say that.
"""
import asyncio
import json
import sys
import urllib.request

import anthropic
import openai
from anthropic.types import Message, RawMessageStreamEvent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from check_clients import ASKED, Server, check, fails

PARAMETERS = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "integer"}},
              "required": ["b"]}
TOOLS = [{"type": "function", "function": {"name": "noon", "description": "Tells noon.",
                                           "parameters": PARAMETERS}}]
FLAT = [{"type": "function", "name": "noon", "description": "Tells noon.",
         "parameters": PARAMETERS, "strict": False}]
CLAUDE = [{"name": "noon", "description": "Tells noon.", "input_schema": PARAMETERS}]
CALLS = {"logit_bias": {"316": 100}, "temperature": 0}
ONE = {"type": "auto", "disable_parallel_tool_use": True}
ARGUMENTS = {"b": 2, "a": 1.0}
N_TURNS = 30

# --------------------------------------------------------------------------------------- schemas

# What an answer may have beyond the types of the pinned clients.
BEYOND = {"reasoning_content", "store"}


def check_extra(value, where):
    """No field that the schema does not have, at any depth."""
    if isinstance(value, BaseModel):
        extra = set(value.model_extra or {}) - BEYOND
        check(not extra, f"{where}: {type(value).__name__} has no {extra}")
        for name in type(value).model_fields:
            check_extra(getattr(value, name), where)
    elif isinstance(value, list):
        for item in value:
            check_extra(item, where)


def post(s, path, body):
    request = urllib.request.Request(s.url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()


def events(s, path, body):
    """(name, data) of a stream; a comment or an empty line between them is nothing."""
    name = None
    for line in post(s, path, {**body, "stream": True}).splitlines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: ") and line != "data: [DONE]":
            yield name, line[6:]
            name = None
        else:
            check(not line or line[0] == ":" or line == "data: [DONE]", f"a line: {line}")


def strict(schema, text):
    value = TypeAdapter(schema).validate_json(text, strict=True)
    check_extra(value, text)
    return value


def schemas(s):
    asked = {"messages": ASKED, "max_tokens": 40}
    call = {**CALLS, "tools": TOOLS}
    for extra in ({}, call, {**call, "parallel_tool_calls": False, "n": 2},
                  {"logprobs": True, "top_logprobs": 2, "stop": ["e"]},
                  {**call, "max_tokens": 1}):
        body = {**asked, **extra}
        strict(ChatCompletion, post(s, "/v1/chat/completions", body))
        for _, data in events(s, "/v1/chat/completions",
                              {**body, "stream_options": {"include_usage": True}}):
            strict(ChatCompletionChunk, data)
    odd = [{"type": "custom", "name": "noon"}]
    group = [{"type": "namespace", "name": "g", "description": "d", "tools": FLAT}]
    for extra in ({}, {**CALLS, "tools": FLAT},
                  {**CALLS, "tools": FLAT, "parallel_tool_calls": False},
                  {**CALLS, "tools": odd, "parallel_tool_calls": False},
                  {**CALLS, "tools": group, "parallel_tool_calls": False}, {"background": True},
                  {**CALLS, "tools": FLAT, "max_tool_calls": 1}):
        body = {"input": "Once upon a time", "max_output_tokens": 40, **extra}
        strict(Response, post(s, "/v1/responses", body))
        numbers = []
        for name, data in events(s, "/v1/responses", body):
            event = strict(ResponseStreamEvent, data)
            check(event.type == name, f"{name} is {event.type}")
            numbers.append(event.sequence_number)
        check(numbers == list(range(len(numbers))), "events are counted")
    for extra in ({}, {**CALLS, "tools": CLAUDE}, {**CALLS, "tools": CLAUDE, "tool_choice": ONE}):
        body = {**asked, "model": "x", **extra}
        strict(Message, post(s, "/v1/messages", body))
        for name, data in events(s, "/v1/messages", body):
            check(strict(RawMessageStreamEvent, data).type == name, f"{name} in {data}")


# ------------------------------------------------------------------------------------------ loops


def said(message):
    check(message.content is None and message.reasoning_content == "Hm.", "a thought and a call")
    check(json.loads(message.tool_calls[0].function.arguments) == ARGUMENTS, "its arguments")
    return message


def result(call, turn):
    return {"role": "tool", "tool_call_id": call.id, "content": f"It is {turn} past noon."}


def chat_loop(s):
    """An agent: whatever the client keeps of an answer comes back, without the thoughts."""
    messages = [{"role": "user", "content": "Thirty turns upon a time"}]
    n_new, n_evaluated, held = 0, 0, 0
    for turn in range(N_TURNS):
        answer = s.openai.chat.completions.create(
            model="x", messages=messages, tools=TOOLS, parallel_tool_calls=False, max_tokens=20,
            extra_body=CALLS)
        usage = answer.usage
        n_evaluated += usage.prompt_tokens - usage.prompt_tokens_details.cached_tokens
        n_new += usage.prompt_tokens - held
        held = usage.prompt_tokens + usage.completion_tokens
        check(answer.choices[0].finish_reason == "tool_calls", "a finish reason")
        message = said(answer.choices[0].message)
        kept = message.model_dump(exclude_none=True, exclude={"reasoning_content"})
        call = kept["tool_calls"][0]["function"]
        call["arguments"] = json.dumps(json.loads(call["arguments"]), sort_keys=True, indent=1)
        messages += [kept, result(message.tool_calls[0], turn)]
    print(f"clients: {N_TURNS} turns: {n_new} tokens new, {n_evaluated} evaluated")
    check(n_evaluated <= 1.1 * n_new, f"{n_evaluated} evaluated, {n_new} new")
    check(held < 2000, "an answer is as long as it was when it comes back")


def chat_stream(s):
    with s.openai.chat.completions.stream(model="x", messages=ASKED, tools=TOOLS, max_tokens=3,
                                          extra_body=CALLS) as h:
        kinds = {e.type for e in h}
        snapshot = h.current_completion_snapshot
    check("tool_calls.function.arguments.done" in kinds, "its events")
    calls = snapshot.choices[0].message.tool_calls
    check(len(calls) == 3 and len({c.id for c in calls}) == 3, "three calls at once")
    check(all(json.loads(c.function.arguments) == ARGUMENTS for c in calls), "their arguments")
    check(all(c.function.name == "noon" for c in calls), "a name comes once")


def responses_loop(s):
    items, cached = [{"role": "user", "content": "Once upon a time"}], 0
    for turn in range(4):
        body = dict(model="x", input=items, tools=FLAT, parallel_tool_calls=False,
                    extra_body=CALLS)
        if turn % 2:
            with s.openai.responses.stream(**body) as h:
                done = [e.type for e in h]
                answer = h.get_final_response()
            check(done[0] == "response.created" and done[-1] == "response.completed", "a stream")
            check("response.function_call_arguments.done" in done, "its events")
        else:
            answer = s.openai.responses.create(**body)
        check([o.type for o in answer.output] == ["reasoning", "function_call"], "the items")
        call = answer.output[1]
        check(json.loads(call.arguments) == ARGUMENTS and call.name == "noon", "a call")
        check(answer.usage.input_tokens_details.cached_tokens >= cached, "the prefix is found")
        cached = answer.usage.total_tokens - 1
        # thoughts come back in every other turn
        items += [o.model_dump(exclude_none=True) for o in answer.output[turn % 2:]]
        items.append({"type": "function_call_output", "call_id": call.call_id,
                      "output": f"{turn}"})


def messages_loop(s):
    messages, cached = list(ASKED), 0
    for turn in range(4):
        body = dict(model="x", messages=messages, tools=CLAUDE, tool_choice=ONE, max_tokens=20,
                    extra_body=CALLS)
        if turn % 2:
            with s.anthropic.messages.stream(**body) as h:
                pieces = [e.partial_json for e in h if e.type == "input_json"]
                answer = h.get_final_message()
            check(json.loads("".join(pieces)) == ARGUMENTS, "pieces of the input")
        else:
            answer = s.anthropic.messages.create(**body)
        check(answer.stop_reason == "tool_use", "a stop reason")
        check([b.type for b in answer.content] == ["thinking", "tool_use"], "the blocks")
        use, u = answer.content[1], answer.usage
        check(use.input == ARGUMENTS and use.id.startswith("toolu_"), "a use")
        check(u.cache_read_input_tokens >= cached, "the prefix is found")
        cached = u.input_tokens + u.cache_read_input_tokens + u.output_tokens - 1
        messages += [{"role": "assistant", "content": [b.model_dump() for b in
                                                       answer.content[turn % 2:]]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id,
                                                   "content": f"{turn}", "is_error": turn == 2}]}]


async def loops_async(s):
    """Many at once: each one's call is its own."""
    one = openai.AsyncOpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0)
    other = anthropic.AsyncAnthropic(base_url=s.url, api_key="none", max_retries=0)

    async def chat_one(i):
        asked = [{"role": "user", "content": f"Once upon {i}"}]
        stream = await one.chat.completions.create(
            model="x", messages=asked, tools=TOOLS, parallel_tool_calls=False, max_tokens=9,
            stream=True, extra_body=CALLS)
        deltas = [c.choices[0].delta async for c in stream]
        calls = [d.tool_calls[0] for d in deltas if d.tool_calls]
        check(calls[0].id and calls[0].index == 0, "the first delta of a call")
        check(not any(c.id or c.function.name for c in calls[1:]), "the others")
        check(json.loads("".join(c.function.arguments for c in calls)) == ARGUMENTS, "arguments")
        return calls[0].id

    async def messages_one(i):
        async with other.messages.stream(model="x", tools=CLAUDE, tool_choice=ONE, max_tokens=9,
                                         messages=[{"role": "user", "content": f"Thrice {i}"}],
                                         extra_body=CALLS) as h:
            return (await h.get_final_message()).content[-1].id

    ids = await asyncio.gather(*[f(i) for i in range(6) for f in (chat_one, messages_one)])
    check(len(set(ids)) == 12, "ids are different")


def langchain(s):
    model = ChatOpenAI(model="x", base_url=s.url + "/v1", api_key="none", max_retries=0,
                       max_tokens=20, temperature=0, extra_body={"logit_bias": {"316": 100}})
    bound = model.bind_tools(TOOLS, parallel_tool_calls=False)
    messages = [HumanMessage("Once upon a time")]
    for turn in range(3):
        if turn == 1:
            whole = None
            for chunk in bound.stream(messages):
                whole = chunk if whole is None else whole + chunk
        else:
            whole = bound.invoke(messages)
        check([(c["name"], c["args"]) for c in whole.tool_calls] == [("noon", ARGUMENTS)], "a call")
        messages += [whole, ToolMessage("past", tool_call_id=whole.tool_calls[0]["id"])]
    check(whole.response_metadata["finish_reason"] == "tool_calls", "a finish reason")


def errors(s):
    create = s.openai.chat.completions.create
    e = fails(openai.BadRequestError, lambda: create(model="x", messages=ASKED, tools=[
        {"type": "function", "function": {"name": ""}}]), "tools[0].function.name")
    check(e.param == "tools[0].function.name", "the field")
    fails(openai.BadRequestError, lambda: create(model="x", messages=[
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]),
        "image_url")
    fails(anthropic.BadRequestError, lambda: s.anthropic.messages.create(
        model="x", max_tokens=3, messages=ASKED, tools=[{"name": "f", "input_schema": 7}]),
        "tools[0].input_schema")


def main():
    s = Server(*sys.argv[1:])
    for part in (schemas, chat_loop, chat_stream, responses_loop, messages_loop, langchain, errors):
        part(s)
    asyncio.run(loops_async(s))
    s.stop()
    print("clients: tools are well")


if __name__ == "__main__":
    main()
