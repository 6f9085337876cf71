#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An agent: the model calls tools, and is told what they said, until it answers.

    python3 agent.py MODEL "What time is it at noon?"

Python functions are the tools; their signatures say what their arguments are. Arguments are held to
their schemas while they are written. Each turn evaluates what is new: the session holds the rest.
"""
from __future__ import annotations

import argparse
import inspect
import json
import math
from collections.abc import Callable
from typing import Any

import moeflux

TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}


def noon(a: float, b: int = 0) -> str:
    """When noon is, a hours and b minutes east."""
    minutes = round(12 * 60 - a * 60 - b)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def square_root(x: float) -> float:
    """The square root of x."""
    return math.sqrt(x)


def describe(function: Callable[..., Any]) -> dict[str, Any]:
    """A function as a tool: name, description, a schema of its arguments."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    return {
        "type": "function",
        "function": {
            "name": function.__name__,
            "description": inspect.getdoc(function),
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {p.name: {"type": TYPES[p.annotation]} for p in parameters},
                "required": [p.name for p in parameters if p.default is p.empty],
                "additionalProperties": False,
            },
        },
    }


class Agent:
    def __init__(self, model: moeflux.Model, tools: list[Callable[..., Any]]) -> None:
        self.tools = {tool.__name__: tool for tool in tools}
        self.described = [describe(tool) for tool in tools]
        self.session = model.session()
        self.messages: list[dict[str, Any]] = []

    def ask(self, question: str, *, n_turns: int = 4, **options: Any) -> str:
        self.messages.append({"role": "user", "content": question})
        for _ in range(n_turns):
            reply = self._turn(options)
            self.messages.append(reply.message())
            if not reply.tool_calls:
                return reply.content
            for call in reply.tool_calls:
                self.messages.append(self._answer(call))
        return "(no answer within so many turns)"

    def _turn(self, options: dict[str, Any]) -> moeflux.Reply:
        stream = self.session.stream_chat(self.messages, self.described, **options)
        for event in stream:
            if event.kind in (moeflux.EventKind.THOUGHT, moeflux.EventKind.CONTENT):
                print(event.text, end="", flush=True)
        reply = stream.reply
        print(f"\n[{reply.n_prompt_tokens} tokens, {reply.n_reused_tokens} of them held already]")
        return reply

    def _answer(self, call: moeflux.ToolCall) -> dict[str, Any]:
        """What a tool said. What goes wrong is told to the model, which may try again."""
        try:
            result = self.tools[call.name](**call.parsed())
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        print(f"[{call.name}({call.arguments}) -> {result}]")
        return {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)}


def main() -> None:
    parser = argparse.ArgumentParser(description="a model that calls functions")
    parser.add_argument("model")
    parser.add_argument("question")
    parser.add_argument("--ram", default="1G")
    parser.add_argument("--turns", type=int, default=4)
    args = parser.parse_args()
    with moeflux.Model(args.model, ram_bytes=args.ram) as model:
        agent = Agent(model, [noon, square_root])
        answer = agent.ask(args.question, n_turns=args.turns, max_tokens=200, temperature=0.0)
        print(answer)


if __name__ == "__main__":
    main()
