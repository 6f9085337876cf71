# SPDX-License-Identifier: MIT
"""What an answer may look like: JSON schemas, GBNF, calls of tools (docs/GRAMMAR.md)."""
from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union, cast

from ._native import Handle, Owner, Uncopied, c_text, check, default, encode_text, ffi, lib, text_of
from .errors import ArgumentError, UnsupportedError
from .tokenizer import Tokenizer, as_json

Schema = Union[str, Mapping[str, Any], bool]


class Vocabulary(Uncopied):
    """The tokens of a tokenizer by their bytes: made once, for all grammars."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._handle = Handle("mf_vocabulary", lib.mf_vocabulary_free, tokenizer)
        self._handle.make(lib.mf_vocabulary_create, tokenizer.pointer, ffi.NULL)
        self.tokenizer = tokenizer

    @property
    def pointer(self) -> Any:
        return self._handle.pointer


class Grammar(Uncopied):
    """Compiled from a JSON schema, from rules in GBNF, or any JSON object. Threads may share it."""

    def __init__(
        self,
        vocabulary: Union[Vocabulary, Tokenizer],
        *,
        json_schema: Optional[Schema] = None,
        gbnf: Optional[str] = None,
        json_object: bool = False,
    ) -> None:
        vocabulary = Vocabulary(vocabulary) if isinstance(vocabulary, Tokenizer) else vocabulary
        params = default("mf_grammar_params", lib.mf_grammar_params_init)
        keeps: list[Any] = []
        schema = "true" if json_schema is True else as_json(json_schema)
        if schema is not None:
            keeps.append(ffi.new("char[]", encode_text("json_schema", schema)))
            params.json_schema, params.n_schema_bytes = keeps[-1], len(keeps[-1]) - 1
        if gbnf is not None:
            keeps.append(ffi.new("char[]", encode_text("gbnf", gbnf)))
            params.gbnf, params.n_gbnf_bytes = keeps[-1], len(keeps[-1]) - 1
        params.json_object = json_object
        self._take(vocabulary, lib.mf_grammar_compile, params)
        self.opening: Optional[str] = None

    def _take(self, vocabulary: Vocabulary, function: Any, params: Any) -> None:
        self.vocabulary = vocabulary
        self._handle = Handle("mf_grammar", lib.mf_grammar_free, vocabulary)
        self._handle.make(function, vocabulary.pointer, params)

    @classmethod
    def of_calls(
        cls,
        vocabulary: Vocabulary,
        syntax: Any,
        tools: Sequence[Mapping[str, Any]],
        *,
        several: bool = True,
        required: bool = True,
    ) -> Grammar:
        """Calls of these tools as the model writes them; not required: once a call begins."""
        calls = default("mf_grammar_calls", lib.mf_grammar_calls_init)
        array, keeps = _tool_array(tools)
        calls.syntax, calls.tools, calls.n_tools = syntax.pointer, array, len(tools)
        calls.has_several, calls.is_opened = several, not required
        grammar = cls.__new__(cls)
        grammar._take(vocabulary, lib.mf_grammar_compile_calls, calls)
        grammar.opening = None if required else text_of(calls.opening)
        del keeps
        return grammar

    @property
    def pointer(self) -> Any:
        return self._handle.pointer

    def guide(self) -> Guide:
        """Follows one text from its beginning."""
        guide = Guide(self)
        if self.opening is not None:
            guide.begin_after(self.opening, repeats=True)
        return guide


def _tool_array(tools: Sequence[Mapping[str, Any]]) -> tuple[Any, list[Any]]:
    array = ffi.new("mf_grammar_tool[]", len(tools))
    keeps: list[Any] = []
    for tool, out in zip(tools, array):
        given: object = tool.get("function", tool)
        function: Mapping[str, Any] = (
            cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}
        )
        name = function.get("name")
        if not isinstance(name, str):
            raise ArgumentError("tools: each is expected to have a name")
        keeps.append(c_text("tools: a name", name))
        out.name = keeps[-1]
        parameters = as_json(function.get("parameters"))
        if parameters is not None:
            keeps.append(ffi.new("char[]", encode_text("tools: parameters", parameters)))
            out.parameters, out.n_bytes = keeps[-1], len(keeps[-1]) - 1
        out.is_strict = bool(function.get("strict", False))
    return array, keeps


class Guide(Owner):
    """Says which tokens may come next. One thread's at a time."""

    _kind = "guide"

    def __init__(self, grammar: Grammar, handle: Optional[Handle] = None) -> None:
        if handle is None:
            handle = Handle("mf_guide", lib.mf_guide_free, grammar)
            handle.make(lib.mf_guide_create, grammar.pointer)
        super().__init__(handle)
        self.grammar = grammar

    def clone(self) -> Guide:
        """Another one that stands where this one stands."""
        with self._using() as pointer:
            handle = Handle("mf_guide", lib.mf_guide_free, self.grammar)
            handle.make(lib.mf_guide_clone, pointer)
        return Guide(self.grammar, handle)

    def begin_after(self, text: str, *, repeats: bool = False, blanks: int = 0) -> None:
        """Text is free until `text` has come: the end of a thought, the beginning of a call."""
        with self._using() as pointer:
            check(lib.mf_guide_begin_after, pointer, c_text("the text", text), int(repeats), blanks)

    def mask(self, n_tokens: int) -> Optional[bytearray]:
        """Bits of the tokens that may come next; None: all may."""
        mask = bytearray((n_tokens + 31) // 32 * 4)
        is_limited = ffi.new("int *")
        with self._using() as pointer:
            words = ffi.from_buffer("uint32_t[]", mask)
            check(lib.mf_guide_mask, pointer, words, n_tokens, is_limited)
        return mask if is_limited[0] else None

    def accept(self, token: int) -> None:
        """Takes a token; ArgumentError: it is not allowed, and was not taken."""
        with self._using() as pointer:
            check(lib.mf_guide_accept, pointer, token)

    @property
    def may_end(self) -> bool:
        with self._using() as pointer:
            return bool(lib.mf_guide_may_end(pointer))

    @property
    def is_done(self) -> bool:
        with self._using() as pointer:
            return bool(lib.mf_guide_is_done(pointer))


class GrammarCache:
    """A model's vocabulary, made when it is first asked for; any thread may ask."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._lock = tokenizer, threading.Lock()
        self._vocabulary: Optional[Vocabulary] = None

    def vocabulary(self) -> Vocabulary:
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(self._tokenizer)
            return self._vocabulary


def calls_or_none(vocabulary: Vocabulary, syntax: Any, tools: Any) -> Optional[Grammar]:
    """Holds calls to their schemas where the syntax can be held; else they are as they come."""
    try:
        return Grammar.of_calls(vocabulary, syntax, tools, required=False)
    except UnsupportedError:
        return None
