# SPDX-License-Identifier: MIT
"""Text to token ids and back, and conversations by the checkpoint's own template."""
from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from ._native import (
    Handle,
    PathLike,
    Uncopied,
    c_text,
    call,
    check,
    default,
    encode_path,
    encode_text,
    ffi,
    lib,
    text_of,
)
from .errors import ArgumentError
from .hub import model_path
from .options import assign

#: A message as clients of chat servers write it: role, content, tool_calls, reasoning_content, ...
Message = Mapping[str, Any]
Messages = Sequence[Message]


def token_array(tokens: Iterable[int]) -> Any:
    """int32_t[]: of a NumPy array of int32 the array itself."""
    if getattr(getattr(tokens, "dtype", None), "str", "") == "<i4":
        if tokens.flags.c_contiguous and tokens.ndim == 1:  # type: ignore[attr-defined]
            return ffi.from_buffer("int32_t[]", tokens)
    try:
        return ffi.new("int32_t[]", token_list(tokens))
    except OverflowError as problem:
        raise ArgumentError(f"tokens: {problem}") from None


def token_list(tokens: Iterable[int]) -> list[int]:
    """Integers of any kind; no text, whose characters may be digits, and no bytes, which are
    integers."""
    try:
        if isinstance(tokens, (bytes, bytearray)):
            raise TypeError("expected ids, found bytes")
        return [operator.index(token) for token in tokens]
    except TypeError as problem:
        raise ArgumentError(f"tokens: {problem}") from None


def _twice(function: Any, element: str, *arguments: Any) -> tuple[Any, int]:
    """A function that says how much it would write, and writes what there is room for."""
    n = ffi.new("size_t *")
    check(function, *arguments, ffi.NULL, 0, n)
    out = ffi.new(f"{element}[]", max(int(n[0]), 1))
    check(function, *arguments, out, n[0], n)
    return out, int(n[0])


def _text(value: Optional[str]) -> Any:
    return ffi.NULL if value is None else c_text("a text", value)


def as_json(value: Any) -> Optional[str]:
    """JSON of what is not text already."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class ChatTemplate:
    """What a conversation is written with, beside its messages."""

    tools: Optional[Sequence[Mapping[str, Any]]] = None
    documents: Optional[Sequence[Mapping[str, Any]]] = None
    variables: Optional[Mapping[str, Any]] = None
    template_name: Optional[str] = None
    #: None: as the template has it
    thinking: Optional[bool] = None
    add_generation_prompt: bool = True
    #: what the template takes for the time, in seconds since 1970; 0: the clock's
    now: int = 0

    def params(self, messages: Union[Messages, str]) -> tuple[Any, list[Any]]:
        """mf_chat_json_params, and what must be kept as long as it is used."""
        params = default("mf_chat_json_params", lib.mf_chat_json_params_init)
        values = {
            "messages": as_json(messages),
            "tools": as_json(self.tools),
            "documents": as_json(self.documents),
            "variables": as_json(self.variables),
            "template_name": self.template_name,
        }
        if self.thinking not in (None, True, False):  # "off" would turn them on
            raise ArgumentError(f"thinking is {self.thinking!r}; expected True, False or None")
        keeps: list[Any] = []
        for name, value in values.items():
            keeps.append(_text(value))
            setattr(params, name, keeps[-1])
        params.thinking = 0 if self.thinking is None else 1 if self.thinking else 2
        params.add_generation_prompt = self.add_generation_prompt
        assign(params, "now_seconds", self.now)
        return params, keeps


class Decoder(Uncopied):
    """Tokens to text as they come: an unfinished character is held back."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._state = ffi.new("mf_decoder *")

    def push(self, token: int) -> str:
        """The text that a token completes; special tokens have none."""
        if token >= 0 and self._tokenizer.is_special(token):
            return ""
        pointer, n = self._tokenizer.pointer, ffi.new("size_t *")
        room = 3 * len(self._tokenizer.piece(token) or b"") + 12 if token >= 0 else 64
        out = ffi.new("char[]", room)
        status = call(lib.mf_tokenizer_decode, pointer, self._state, token, out, room, n)
        if status != 0:
            raise ArgumentError(f"token {token}: {text_of(lib.mf_status_name(status))}", code=status)
        return str(ffi.buffer(out, n[0])[:].decode())

    def finish(self) -> str:
        """What is held back."""
        return self.push(-1)


class Tokenizer(Uncopied):
    """Opened from a checkpoint's directory or a GGUF file; any thread may use it.

    It has no close: it goes when nobody refers to it any more.
    """

    def __init__(self, path: PathLike) -> None:
        self._handle = Handle("mf_tokenizer", lib.mf_tokenizer_free)
        self._handle.make(lib.mf_tokenizer_open, encode_path(model_path(path)), ffi.NULL)

    @property
    def pointer(self) -> Any:
        return self._handle.pointer

    def __len__(self) -> int:
        return int(lib.mf_tokenizer_n_vocab(self.pointer))

    @property
    def has_chat(self) -> bool:
        """Whether the checkpoint has a chat template."""
        return bool(lib.mf_tokenizer_has_chat(self.pointer))

    @property
    def start(self) -> Optional[int]:
        """The token that plain text is to be preceded by; encode never adds it."""
        token = int(lib.mf_tokenizer_start(self.pointer))
        return token if token >= 0 else None

    def is_end(self, token: int) -> bool:
        return bool(call(lib.mf_tokenizer_is_end, self.pointer, token))

    def is_special(self, token: int) -> bool:
        return bool(call(lib.mf_tokenizer_is_special, self.pointer, token))

    def piece(self, token: int) -> Optional[bytes]:
        """The bytes that a token stands for, or None."""
        n = ffi.new("size_t *")
        piece = call(lib.mf_tokenizer_piece, self.pointer, token, n)
        return bytes(ffi.buffer(piece, n[0])) if piece else None

    def encode(self, text: str, *, parse_special: bool = True) -> list[int]:
        """Token ids, those of Hugging Face tokenizers with add_special_tokens=False."""
        data = encode_text("the text", text)
        encode, special = lib.mf_tokenizer_encode, int(parse_special)
        tokens, n = _twice(encode, "int32_t", self.pointer, data, len(data), special)
        return list(tokens[0:n])

    def decode(self, tokens: Iterable[int]) -> str:
        """Text of tokens, without special ones."""
        decoder = Decoder(self)
        return "".join([decoder.push(token) for token in token_list(tokens)]) + decoder.finish()

    def decoder(self) -> Decoder:
        return Decoder(self)

    def prompt(self, text: str) -> list[int]:
        """Tokens of a plain text to be continued, behind the start token where there is one."""
        return ([] if self.start is None else [self.start]) + self.encode(text)

    def chat_text(self, messages: Messages, template: ChatTemplate = ChatTemplate()) -> str:
        """A conversation as the checkpoint's template writes it."""
        params, keeps = template.params(messages)
        text, n = _twice(lib.mf_chat_json_text, "char", self.pointer, params)
        del keeps
        return str(ffi.buffer(text, n)[:].decode())

    def chat_encode(self, messages: Messages, template: ChatTemplate = ChatTemplate()) -> list[int]:
        """Its tokens; special tokens in what users and tools wrote stay text."""
        params, keeps = template.params(messages)
        tokens, n = _twice(lib.mf_chat_json_encode, "int32_t", self.pointer, params)
        del keeps
        return list(tokens[0:n])
