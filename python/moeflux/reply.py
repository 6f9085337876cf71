# SPDX-License-Identifier: MIT
"""What a model said, taken apart into thoughts, content and calls of tools while it is said."""
from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ._native import Handle, Uncopied, check, default, ffi, filled, lib, text_of
from .tokenizer import Tokenizer, as_json


class EventKind(enum.IntEnum):
    """mf_reply_kind."""

    THOUGHT = 1
    CONTENT = 2
    CALL = 3
    CALL_ARGUMENTS = 4
    CALL_END = 5
    CALL_BROKEN = 6


@dataclass(frozen=True)
class Event:
    """A piece of a reply: some text of its kind; of a call its number, id and name."""

    kind: EventKind
    text: str = ""
    call: int = 0
    id: str = ""
    name: str = ""


@dataclass
class ToolCall:
    id: str
    name: str
    #: as the model wrote them: one JSON object
    arguments: str = ""
    #: False: the answer ended within it
    is_whole: bool = False

    def parsed(self) -> Any:
        """The arguments; ValueError if they are not whole."""
        return json.loads(self.arguments)


@dataclass
class Reply:
    """A whole answer."""

    content: str = ""
    thought: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    #: "stop" (the model ended it, a stop text, the grammar), "length", "tool_calls"; of several
    #: answers together also "cancelled" and "error"
    finish_reason: str = ""
    error: Optional[Exception] = None
    n_prompt_tokens: int = 0
    #: of the prompt's tokens, those that a session or the store held already
    n_reused_tokens: int = 0

    def __str__(self) -> str:
        return self.content

    def add(self, event: Event) -> None:
        if event.kind == EventKind.THOUGHT:
            self.thought += event.text
        elif event.kind == EventKind.CONTENT:
            self.content += event.text
        elif event.kind == EventKind.CALL:
            self.tool_calls.append(ToolCall(event.id, event.name))
        elif event.kind == EventKind.CALL_ARGUMENTS:
            self.tool_calls[-1].arguments += event.text
        elif event.kind == EventKind.CALL_END:
            self.tool_calls[-1].is_whole = True

    def message(self) -> dict[str, Any]:
        """The assistant's message, as the next turn's messages take it."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.thought:
            message["reasoning_content"] = self.thought
        calls = [call for call in self.tool_calls if call.is_whole]
        if calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in calls
            ]
        return message


class Syntax(Uncopied):
    """How a checkpoint's model writes thoughts and calls. Threads may share it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._handle = Handle("mf_reply_syntax", lib.mf_reply_syntax_free)
        self._handle.make(lib.mf_reply_syntax_detect, tokenizer.pointer, ffi.NULL)

    @property
    def pointer(self) -> Any:
        return self._handle.pointer

    @property
    def _form(self) -> Any:
        return filled("mf_reply_form", lambda p, n: lib.mf_reply_form_sized(self.pointer, p, n))

    @property
    def name(self) -> str:
        return text_of(self._form.name)

    @property
    def thought_marks(self) -> Optional[tuple[str, str]]:
        """What opens and closes a thought, or None."""
        form = self._form
        return (text_of(form.thought_open), text_of(form.thought_close)) if form.thought_open else None

    @property
    def stops(self) -> list[str]:
        """Texts of tokens at which a reply is over, beside the end tokens."""
        form = self._form
        return [text_of(form.stops[i]) for i in range(form.n_stops)]


class Parser(Uncopied):
    """Takes one reply apart. Give it every token but the one that ended it."""

    def __init__(
        self,
        syntax: Syntax,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        prompt: str = "",
        id_seed: int = 0,
    ) -> None:
        options = default("mf_reply_options", lib.mf_reply_options_init)
        keeps = [prompt.encode(), as_json(tools) if tools else None]
        text = ffi.new("char[]", keeps[0])
        options.prompt, options.n_prompt_bytes = text, len(text) - 1
        listed = ffi.NULL if keeps[1] is None else ffi.new("char[]", str(keeps[1]).encode())
        options.tools, options.has_calls, options.id_seed = listed, bool(tools), id_seed
        self._handle = Handle("mf_reply", lib.mf_reply_free, syntax)
        self._handle.make(lib.mf_reply_create, syntax.pointer, options)

    @property
    def is_thinking(self) -> bool:
        return bool(lib.mf_reply_place(self._handle.pointer) == EventKind.THOUGHT)

    def push(self, piece: bytes, is_special: bool) -> list[Event]:
        check(lib.mf_reply_push, self._handle.pointer, piece, len(piece), int(is_special))
        return list(self._events())

    def finish(self, was_cut: bool) -> list[Event]:
        check(lib.mf_reply_finish, self._handle.pointer, int(was_cut))
        return list(self._events())

    def _events(self) -> Iterator[Event]:
        event = ffi.new("mf_reply_event *")
        while lib.mf_reply_next_sized(self._handle.pointer, event, ffi.sizeof(event[0])):
            text = ffi.buffer(event.text, event.n_bytes)[:].decode() if event.text else ""
            kind = EventKind(event.kind)
            yield Event(kind, text, event.call, text_of(event.id), text_of(event.name))
