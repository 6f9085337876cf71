#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Published frameworks for agents against `moeflux serve`: their own loops call tools, several at once too, get
results, and ask again in the same conversation, by both of OpenAI's APIs. What the model says is put in
its mouth (record_agent.py); what they make of it, and how much of their prompts is evaluated, is looked at. Wants the
packages in PINNED; tools/check_clients.sh makes a place for them.

    check_agents.py PROGRAM MODEL_THAT_THINKS
"""
import asyncio
import http.server
import json
import sys
import threading

import agents
import openai
import pydantic
import pydantic_ai
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.models.openai_responses import OpenAIResponsesModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel as PydanticResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

import record_agent  # (beside this file)
from check_clients import Server, check

PINNED = {"openai-agents": "0.20.0", "pydantic-ai-slim": "2.31.1"}
RULES = "You tell the weather. Ask for it, never guess."
ASKED = ["What is it like in Paris, and in Rome?", "And tomorrow?"]
LINES = [
    {"thought": "Paris first.", "text": "I ask.", "calls": [["weather", {"days": 0, "city": "Paris"}]]},
    {"thought": "Both of them.", "calls": [["weather", {"city": "Rome", "days": 0.0}],
                                           ["weather", {"city": "»Zürich« \"\\", "days": 1}]]},
    {"thought": "Now I know.", "text": "It is mild,\n„everywhere“.", "any": True},
    {"calls": [["weather", {"city": "Paris", "days": 1}]]},
    {"thought": "The same.", "text": "The same.", "any": True}]
CALLED = [("Paris", 0), ("Rome", 0), ("»Zürich« \"\\", 1), ("Paris", 1)]  # the second and the third together


class Stage:
    """Between a server and an agent: whispers the lines, and keeps what was said."""

    def __init__(self, server, lines):
        self.records, self.called = [], []
        handler = record_agent.handler(server.url, record_agent.Lines(lines), self, is_quiet=True)
        self.proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.proxy.daemon_threads = True
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{self.proxy.server_port}"
        self.openai = openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0)

    def write(self, record):
        self.records.append(record)

    def weather(self, city: str, days: int) -> str:
        """Tells the weather.

        Args:
            city: Where.
            days: How many days from today.
        """
        self.called.append((city, days))
        return json.dumps({"city": city, "degrees": 18 + days, "sky": "clear, a few clouds in the evening"})

    def usages(self):
        """Of each answer: tokens of its prompt, those of them found, those answered."""
        for record in self.records:
            check(record["status"] == 200, record["answer"][:400])
            answer = record["answer"]
            events = [json.loads(answer)] if answer.startswith("{") else [
                json.loads(line[6:]) for line in answer.split("\n") if line.startswith("data: {")]
            said = {}
            for event in events:
                inner = event.get("response") or event
                said.update({k: v for k, v in (inner.get("usage") or {}).items() if v is not None})
            if "prompt_tokens" in said:
                yield (said["prompt_tokens"], said["prompt_tokens_details"]["cached_tokens"],
                       said["completion_tokens"])
            else:
                yield (said["input_tokens"], said["input_tokens_details"]["cached_tokens"],
                       said["output_tokens"])

    def finish(self, name, answers):
        """Everything was called and said, and nothing of the run was evaluated twice."""
        together = sorted(self.called[1:3])  # some agents call by threads
        check(self.called[:1] + together + self.called[3:] == CALLED, f"{name} called {self.called}")
        check(answers == ["It is mild,\n„everywhere“.", "The same."], f"{name} heard {answers}")
        check(len(self.records) == len(LINES), f"{name} asked {len(self.records)} times")
        n_new = n_evaluated = n_held = 0
        for i, (n_prompt, n_cached, n_answered) in enumerate(self.usages()):
            if i not in (0, 3):  # a new question: the template drops the thoughts before it
                n_new += n_prompt - n_held
                n_evaluated += n_prompt - n_cached
            n_held = n_prompt + n_answered
        check(n_evaluated <= 1.1 * n_new, f"{name}: {n_evaluated} tokens evaluated, {n_new} new")
        self.proxy.shutdown()
        self.proxy.server_close()
        print(f"{name}: {n_new} tokens new, {n_evaluated} evaluated")


# ----------------------------------------------------------------------------------- openai-agents


async def openai_agents(stage, model, rules, is_streamed):
    agents.set_tracing_disabled(True)
    agent = agents.Agent(name="Weather", instructions=rules, model=model,
                         tools=[agents.function_tool(stage.weather)],
                         model_settings=agents.ModelSettings(parallel_tool_calls=True, store=False,
                                                             include_usage=True, max_tokens=3000))
    answers, items = [], []
    for asked in ASKED:
        items = items + [{"role": "user", "content": asked}]
        if is_streamed:
            result = agents.Runner.run_streamed(agent, items)
            async for _ in result.stream_events():
                pass
        else:
            result = await agents.Runner.run(agent, items)
        answers.append(result.final_output)
        items = result.to_input_list()
    return answers


# ------------------------------------------------------------------------------------- pydantic-ai


async def take_events(_, events):
    async for _ in events:
        pass


async def pydantic_agent(stage, model, rules, is_streamed):
    agent = pydantic_ai.Agent(model, instructions=rules, tools=[stage.weather])
    answers, history = [], None
    for asked in ASKED:
        result = await agent.run(asked, message_history=history,
                                 event_stream_handler=take_events if is_streamed else None)
        answers.append(result.output)
        history = result.all_messages()
    return answers


async def pydantic_object(server):
    """An answer of a type: by a tool that has to be called, with nothing whispered."""
    class City(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)
        people: int = pydantic.Field(ge=0, le=999)
        is_old: bool

    client = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    agent = pydantic_ai.Agent(OpenAIChatModel("x", provider=OpenAIProvider(openai_client=client)),
                              output_type=City, retries=0)
    city = (await agent.run("Paris?", model_settings={"seed": 3, "max_tokens": 400})).output
    check(isinstance(city, City) and 0 <= city.people <= 999, "an object")


PLAYS = {
    "openai-agents, responses": (openai_agents, lambda s: OpenAIResponsesModel("x", s.openai)),
    "openai-agents, chat": (openai_agents, lambda s: OpenAIChatCompletionsModel("x", s.openai)),
    "pydantic-ai, chat": (pydantic_agent, lambda s: OpenAIChatModel(
        "x", provider=OpenAIProvider(openai_client=s.openai))),
    "pydantic-ai, responses": (pydantic_agent, lambda s: PydanticResponsesModel(
        "x", provider=OpenAIProvider(openai_client=s.openai)))}
WHOLE = ("openai-agents, chat", "pydantic-ai, responses")


def main():
    program, model = sys.argv[1:]
    server = Server(program, model)
    for name, (agent, make_model) in PLAYS.items():
        for is_streamed in (True, False) if name in WHOLE else (True,):
            stage = Stage(server, LINES)
            # no prompt begins as another does
            rules = f"{'A stream' if is_streamed else 'No stream'} of {name}. {RULES}"
            answers = asyncio.run(agent(stage, make_model(stage), rules, is_streamed))
            stage.finish(name, answers)
    asyncio.run(pydantic_object(server))
    server.stop()


if __name__ == "__main__":
    main()
