#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The published clients against `moeflux serve`: what they send is taken, and what is sent to them
they understand. Wants the packages in PINNED; tools/check_clients.sh makes a place for them.

    check_clients.py PROGRAM MODEL_WITHOUT_TEMPLATE MODEL_THAT_THINKS
"""
import asyncio
import atexit
import json
import re
import signal
import subprocess
import sys
import time
import urllib.request

import anthropic
import openai

PINNED = {"openai": "2.54.0", "anthropic": "2.12.0", "langchain-openai": "1.7.3"}
SEEDED = {"seed": 7}
ASKED = [{"role": "user", "content": "Once upon a time"}]
n_checks = 0


def check(holds, what):
    global n_checks
    n_checks += 1
    if not holds:
        raise AssertionError(what)


class Server:
    def __init__(self, program, model, *options):
        self.process = subprocess.Popen([program, "serve", model, "--port", "0", *options],
                                        stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        line = self.process.stdout.readline()
        self.url = re.search(r"http://[0-9.:]+", line).group(0)
        self.openai = openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0)
        self.anthropic = anthropic.Anthropic(base_url=self.url, api_key="none", max_retries=0)

    def stats(self):
        with urllib.request.urlopen(self.url + "/v1/moeflux/stats") as answer:
            return json.load(answer)["server"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(30) == 0, "the server ends well")


def fails(error, call, *words):
    try:
        call()
    except error as e:
        for word in words:
            check(word in str(e), f"{word} in {e}")
        return e
    raise AssertionError(f"{error.__name__} was expected")


# ------------------------------------------------------------------------------------------ openai


def chat(s):
    create = s.openai.chat.completions.create
    whole = create(model="x", messages=ASKED, max_tokens=24, **SEEDED)
    text = whole.choices[0].message.content
    check(whole.model == "x" and whole.choices[0].finish_reason == "length", "model, finish reason")
    check(whole.usage.completion_tokens == 24 and text, "an answer of 24 tokens")
    stream = create(model="x", messages=ASKED, max_tokens=24, stream=True,
                    stream_options={"include_usage": True}, **SEEDED)
    chunks = list(stream)
    joined = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    check(joined == text, "fragments make the unstreamed answer")
    check(chunks[-1].usage.completion_tokens == 24 and not chunks[-1].choices, "usage comes last")
    stop = text[6:9]
    with s.openai.chat.completions.stream(model="x", messages=ASKED, max_tokens=24, stop=[stop],
                                          **SEEDED) as h:
        kinds = [e.type for e in h]
        final = h.get_final_completion()
    check(final.choices[0].message.content == text[:text.index(stop)], ".stream()")
    check("content.done" in kinds, "its last event")
    check(final.choices[0].message.role == "assistant", "the role comes once")
    short = create(model="x", messages=ASKED, max_tokens=24, stop=[stop], **SEEDED)
    check(short.choices[0].message.content == text[:text.index(stop)], "a stop string")
    check(short.choices[0].finish_reason == "stop", "its finish reason")
    two = create(model="x", messages=ASKED, max_tokens=8, n=2, logprobs=True, top_logprobs=3,
                 **SEEDED)
    check([c.index for c in two.choices] == [0, 1], "two choices")
    content = two.choices[0].logprobs.content
    check(len(content) == 8 and all(len(t.top_logprobs) == 3 for t in content), "logprobs")
    check("".join(t.token for t in content) == two.choices[0].message.content, "of all tokens")
    parts = [{"role": "user", "content": [{"type": "text", "text": "Once upon a time"}]}]
    check(create(model="x", messages=parts, max_tokens=24, **SEEDED).choices[0].message.content ==
          text, "content in parts")


def completions(s):
    create = s.openai.completions.create
    prompt = "Once upon a time"
    whole = create(model="x", prompt=prompt, max_tokens=12, echo=True, logprobs=2, **SEEDED)
    choice = whole.choices[0]
    check(choice.text.startswith(prompt), "echo")
    check(choice.logprobs.token_logprobs[0] is None, "nothing stands before the first token")
    check(all(p < 0 for p in choice.logprobs.token_logprobs[1:]), "logprobs of the prompt")
    check(len(choice.logprobs.tokens) == whole.usage.total_tokens, "of all tokens")
    joined = "".join(c.choices[0].text for c in
                     create(model="x", prompt=prompt, max_tokens=12, stream=True, **SEEDED))
    check(prompt + joined == choice.text, "fragments make the unstreamed answer")
    both = create(model="x", prompt=[prompt, "The sea"], max_tokens=3, **SEEDED)
    check(len(both.choices) == 2 and choice.text[len(prompt):].startswith(both.choices[0].text),
          "several prompts")


def responses(s):
    whole = s.openai.responses.create(model="x", input="Once upon a time", instructions="Be brief.",
                                      max_output_tokens=4000, extra_body={**SEEDED, "stop": ["."]})
    check(whole.status == "completed" and whole.output_text, "an answer")
    with s.openai.responses.stream(model="x", input="Once upon a time", instructions="Be brief.",
                                   extra_body={**SEEDED, "stop": ["."]}) as h:
        events = list(h)
        final = h.get_final_response()
    check(final.output_text == whole.output_text, ".stream()")
    check([e.sequence_number for e in events] == list(range(len(events))), "sequence numbers")
    check(final.usage.output_tokens > 0 and final.usage.input_tokens_details.cached_tokens > 0,
          "usage, and what was cached")
    cut = s.openai.responses.create(model="x", input="Once", max_output_tokens=2)
    check(cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens",
          "cut short")
    kept_responses(s, cut)


def background(s):
    """Responses that are asked for later, read again, cancelled."""
    api = s.openai.responses
    asked = dict(model="x", input="Once upon a time", max_output_tokens=30, extra_body=SEEDED)
    whole = api.create(**asked)
    later = api.create(**asked, background=True)
    check(later.status == "queued" and later.background and not later.output, "queued")
    while later.status in ("queued", "in_progress"):
        later = api.retrieve(later.id)
    check(later.status == "incomplete" and later.output_text == whole.output_text, "made by itself")
    events = list(api.create(**asked, background=True, stream=True))
    check([e.type for e in events[:3]] == ["response.created", "response.queued", "response.in_progress"],
          "a stream in the background")
    made = events[-1].response
    check(made.output_text == whole.output_text, "the same answer")
    again = list(api.retrieve(made.id, stream=True, starting_after=4))
    check(again == events[5:], "its events once more")
    long = api.create(model="x", input="Once", background=True, extra_body={"ignore_eos": True})
    ended = api.cancel(long.id)
    check(ended.status in ("cancelled", "incomplete"), "cancelled")
    check(api.cancel(long.id).status == ended.status, "and once more")
    fails(openai.BadRequestError, lambda: api.cancel(whole.id), "synchronous")
    fails(openai.NotFoundError, lambda: api.cancel("resp_none"))


def conversations(s):
    api = s.openai.conversations
    made = api.create(metadata={"a": "b"}, items=[
        {"type": "message", "role": "user", "content": "Once upon a time"}])
    check(api.retrieve(made.id) == made and made.metadata == {"a": "b"}, "a conversation")
    answer = s.openai.responses.create(model="x", conversation=made.id, input="And?", max_output_tokens=4)
    check(answer.conversation.id == made.id, "a response of it")
    items = list(api.items.list(made.id, order="asc", limit=2))  # page by page
    check([i.role for i in items] == ["user", "user", "assistant"], "its items")
    check(items[2].content[0].text == answer.output_text, "the answer is one")
    check(api.items.retrieve(items[0].id, conversation_id=made.id) == items[0], "an item")
    added = api.items.create(made.id, items=[{"type": "message", "role": "user", "content": "More."}])
    check(len(added.data) == 1 and added.data[0].content[0].text == "More.", "one more")
    api.items.delete(added.data[0].id, conversation_id=made.id)
    check(len(list(api.items.list(made.id))) == 3, "one less")
    check(api.update(made.id, metadata={"c": "d"}).metadata == {"c": "d"}, "other metadata")
    check(api.delete(made.id).deleted, "gone")
    fails(openai.NotFoundError, lambda: api.retrieve(made.id))
    fails(openai.NotFoundError, lambda: s.openai.responses.create(model="x", conversation=made.id, input="x"))


def kept_responses(s, first):
    """Responses that are gone on with by their ids; what is repeated of a request; logprobs."""
    create = s.openai.responses.create
    second = create(model="x", previous_response_id=first.id, input="And?", max_output_tokens=2,
                    metadata={"a": "b"}, include=["message.output_text.logprobs"], top_logprobs=2,
                    extra_body=SEEDED)
    whole = create(model="x", max_output_tokens=2, store=False, extra_body=SEEDED, input=[
        {"role": "user", "content": "Once"}, {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "And?"}])
    check(second.output_text == whole.output_text, "the earlier turn")
    check(second.usage.input_tokens == whole.usage.input_tokens, "its tokens")
    check(second.previous_response_id == first.id and second.metadata == {"a": "b"}, "repeated")
    scores = second.output[0].content[0].logprobs
    check(len(scores) == 2 and all(len(t.top_logprobs) == 2 and t.logprob <= 0 for t in scores),
          "logprobs")
    check(s.openai.responses.retrieve(second.id).output_text == second.output_text, "retrieve")
    s.openai.responses.delete(second.id)
    fails(openai.NotFoundError, lambda: s.openai.responses.retrieve(second.id))
    e = fails(openai.BadRequestError,
              lambda: create(model="x", previous_response_id=whole.id, input="And?"), "not found")
    check(e.code == "previous_response_not_found", "one that was not kept")
    events = list(create(model="x", input="a b c " * 5000, stream=True))
    check(events[-1].type == "response.failed" and
          events[-1].response.error.code == "context_length_exceeded", "too long, in a stream")


def openai_errors(s):
    create = s.openai.chat.completions.create
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    e = fails(openai.BadRequestError, lambda: create(model="x", messages=ASKED, tools=[tool]),
              "tools")
    check(e.param == "tools" and e.type == "invalid_request_error", "the error's fields")
    fails(openai.BadRequestError, lambda: create(model="x", messages=ASKED, temperature=-1),
          "temperature")
    e = fails(openai.BadRequestError, lambda: create(
        model="x", messages=[{"role": "user", "content": "a b c " * 5000}]), "maximum context length")
    check(e.code == "context_length_exceeded", "the code that agents look for")
    fails(openai.NotFoundError, lambda: s.openai.models.retrieve("none"))
    check([m.id for m in s.openai.models.list()] != [], "models")
    check(s.openai.models.retrieve(s.openai.models.list().data[0].id).object == "model", "a model")


async def openai_async(s):
    client = openai.AsyncOpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0)

    async def one(seed):
        stream = await client.chat.completions.create(model="x", messages=ASKED, max_tokens=20,
                                                      seed=seed, stream=True)
        return "".join([c.choices[0].delta.content or "" async for c in stream])

    together = await asyncio.gather(*[one(i) for i in range(12)])
    alone = [await one(i) for i in range(12)]
    check(together == alone, "answers together are those alone")


# --------------------------------------------------------------------------------------- anthropic


def messages(s):
    create = s.anthropic.messages.create
    body = {"extra_body": SEEDED}
    whole = create(model="x", messages=ASKED, max_tokens=24, system="A tale.", **body)
    text = whole.content[0].text
    check(whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 24, "an answer")
    with s.anthropic.messages.stream(model="x", messages=ASKED, max_tokens=24, system="A tale.",
                                     **body) as h:
        joined = "".join(h.text_stream)
        final = h.get_final_message()
    check(joined == text and final.content[0].text == text, "fragments make the unstreamed answer")
    check(final.usage.output_tokens == 24, "usage of a stream")
    stopped = create(model="x", messages=ASKED, max_tokens=24, stop_sequences=[text[6:9]],
                     system=[{"type": "text", "text": "A tale.",
                              "cache_control": {"type": "ephemeral"}}], **body)
    check(stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == text[6:9],
          "a stop sequence")
    check(stopped.content[0].text == text[:text.index(text[6:9])], "the text before it")
    u = stopped.usage
    check(u.cache_read_input_tokens > 0, "what was cached is said")
    n = s.anthropic.messages.count_tokens(model="x", messages=ASKED, system="A tale.").input_tokens
    check(n == u.input_tokens + u.cache_read_input_tokens, "tokens counted beforehand")


def anthropic_errors(s):
    create = s.anthropic.messages.create
    fails(anthropic.BadRequestError, lambda: create(model="x", messages=[], max_tokens=3),
          "messages")
    e = fails(anthropic.BadRequestError, lambda: create(
        model="x", max_tokens=3, messages=ASKED, tools=[{"name": "f", "input_schema": {}}]), "tools")
    check(e.body["error"]["type"] == "invalid_request_error", "the error's type")
    fails(anthropic.BadRequestError, lambda: create(
        model="x", max_tokens=3, messages=[{"role": "user", "content": "a b c " * 5000}]),
        "prompt is too long")


async def anthropic_async(s):
    client = anthropic.AsyncAnthropic(base_url=s.url, api_key="none", max_retries=0)
    async with client.messages.stream(model="x", messages=ASKED, max_tokens=8,
                                      extra_body=SEEDED) as h:
        text = "".join([t async for t in h.text_stream])
    check(text == (await client.messages.create(model="x", messages=ASKED, max_tokens=8,
                                                extra_body=SEEDED)).content[0].text, "async")


def cancelled(s):
    before = s.stats()["jobs_cancelled_total"]
    stream = s.openai.chat.completions.create(model="x", messages=ASKED, max_tokens=4000,
                                              stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    until = time.monotonic() + 30
    while s.stats()["answers_running"] > 0 and time.monotonic() < until:
        time.sleep(0.05)
    check(s.stats()["answers_running"] == 0, "who hangs up is not answered")
    check(s.stats()["jobs_cancelled_total"] == before + 1, "and counted")


# ---------------------------------------------------------------------------------------- thoughts


def thoughts(s):
    body = {"extra_body": {**SEEDED, "thinking": {"type": "enabled", "budget_tokens": 6}}}
    whole = s.openai.chat.completions.create(model="x", messages=ASKED, max_tokens=40, **body)
    message = whole.choices[0].message
    check(message.reasoning_content and message.content, "thoughts and content")
    check(whole.usage.completion_tokens_details.reasoning_tokens > 0, "thoughts are counted")
    chunks = list(s.openai.chat.completions.create(model="x", messages=ASKED, max_tokens=40,
                                                   stream=True, **body))
    thought = "".join(getattr(c.choices[0].delta, "reasoning_content", None) or "" for c in chunks)
    check(thought == message.reasoning_content, "fragments of thoughts")
    off = s.openai.chat.completions.create(model="x", messages=ASKED, max_tokens=40,
                                           reasoning_effort="none", **SEEDED)
    check(not hasattr(off.choices[0].message, "reasoning_content"), "no thoughts")
    with s.anthropic.messages.stream(model="x", messages=ASKED, max_tokens=1040,
                                     thinking={"type": "enabled", "budget_tokens": 1024},
                                     extra_body={**SEEDED, "thinking": {
                                         "type": "enabled", "budget_tokens": 6}}) as h:
        final = h.get_final_message()
    check([b.type for b in final.content] == ["thinking", "text"], "blocks")
    check(final.content[0].thinking == thought and final.content[0].signature, "a signed thought")
    back = ASKED + [{"role": "assistant", "content": [b.model_dump() for b in final.content]},
                    {"role": "user", "content": "And then?"}]
    second = s.anthropic.messages.create(model="x", messages=back, max_tokens=3)
    check(second.usage.cache_read_input_tokens > 0, "the next turn finds the first")
    with s.openai.responses.stream(model="x", input="Once upon a time", extra_body={
            **SEEDED, "stop": ["."], "chat_template_kwargs": {"enable_thinking": False}}) as h:
        plain = h.get_final_response()
    check([o.type for o in plain.output] == ["message"], "a message alone")


def main():
    program, plain, thinking = sys.argv[1:]
    for name, module in (("openai", openai), ("anthropic", anthropic)):
        check(module.__version__ == PINNED[name], f"{name} {PINNED[name]} is expected")
    s = Server(program, plain)
    for part in (chat, completions, responses, background, conversations, openai_errors, messages, anthropic_errors, cancelled):
        part(s)
    asyncio.run(openai_async(s))
    asyncio.run(anthropic_async(s))
    s.stop()
    s = Server(program, thinking)
    thoughts(s)
    s.stop()
    print(f"clients: {n_checks} checks")


if __name__ == "__main__":
    main()
