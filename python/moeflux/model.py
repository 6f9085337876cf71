# SPDX-License-Identifier: MIT
"""One opened checkpoint: an engine and its tokenizer."""
from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Optional

from ._native import (
    Handle,
    PathLike,
    Uncopied,
    check,
    default,
    encode_path,
    exception_of,
    ffi,
    filled,
    lib,
    text_of,
)
from .answer import (
    Answer,
    GenerateOptions,
    Stream,
    events_of,
    failing_alone,
    step_answers,
    texts_of,
)
from .errors import MoefluxError, StateError
from .grammar import Grammar, GrammarCache, Schema, Vocabulary
from .hub import model_path
from .info import ModelInfo, Stats, model_info, stats_of
from .options import EngineOptions, ModelOptions, Size, assign, parse_size, several
from .reply import Event, Reply, Syntax
from .session import Cancel, Gate, Prompt, Session
from .tokenizer import Messages, Tokenizer, token_array, token_list

if TYPE_CHECKING:
    from contextlib import ExitStack

    from typing_extensions import Unpack


@dataclass
class StepItem:
    """One session's part of a step; `error` and `n_done` say what became of it."""

    session: Session
    tokens: Sequence[int]
    cancel: Optional[Cancel] = None
    wants_logits: bool = True
    error: Optional[MoefluxError] = field(default=None, init=False)
    n_done: int = field(default=0, init=False)


class Store(Uncopied):
    """Snapshots of prefixes in a directory, which any number of processes may share."""

    def __init__(self, directory: PathLike, *, max_bytes: Size = 0, min_tokens: int = 0) -> None:
        options = default("mf_store_options", lib.mf_store_options_init)
        options.max_bytes = parse_size("max_bytes", max_bytes)
        assign(options, "min_tokens", min_tokens)
        self._handle = Handle("mf_store", lib.mf_store_close)
        self._handle.make(lib.mf_store_open, encode_path(directory), options)

    def put(self, session: Session) -> None:
        """Writes the session's state as an entry."""
        with session._using() as pointer:
            check(lib.mf_store_put, self._handle.pointer, pointer)


class Model(Uncopied):
    """An open checkpoint: its path, or ORG/NAME of one that the hub's cache holds. Options are those
    of mf_engine_options, by their names.

    Any thread may use it; its sessions are one thread's at a time each. close() ends its sessions
    too, and raises StateError while a call is running.
    """

    def __init__(self, path: PathLike, **options: Unpack[ModelOptions]) -> None:
        path = model_path(path)
        self.path = path
        #: where that is, wherever the process goes: answers read the publishers' options there
        self.absolute_path: str = os.path.abspath(os.fsdecode(path))
        self.tokenizer: Tokenizer = Tokenizer(path)
        values = EngineOptions(options)
        self._handle: Optional[Handle] = Handle("mf_engine", lib.mf_engine_close, values.keeps)
        self._handle.make(lib.mf_engine_open, encode_path(path), values.struct)
        self._gate = Gate()
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._store: Optional[Store] = None
        self._grammars = GrammarCache(self.tokenizer)
        engine = self._handle.pointer
        info = filled("mf_model_info", lambda p, n: lib.mf_engine_info_sized(engine, p, n))
        self.info: ModelInfo = model_info(info)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Ends its sessions and gives its memory back, that of logits somebody still looks at when
        nobody does any more."""
        if not self._gate.close():
            return
        for session in list(self._sessions):
            session._handle = None
        self._handle = None

    def _opened(self) -> Handle:
        if self._handle is None:
            raise StateError("this model is closed")
        return self._handle

    def _add(self, session: Session) -> None:
        self._sessions.add(session)

    # ---- what it is and does ----

    @property
    def stats(self) -> Stats:
        with self._gate.entered():
            return stats_of(self._opened().pointer)

    def reset_stats(self) -> None:
        with self._gate.entered():
            lib.mf_engine_stats_reset(self._opened().pointer)

    @property
    def io_name(self) -> str:
        with self._gate.entered():
            return text_of(lib.mf_engine_io_name(self._opened().pointer))

    @property
    def cpu_name(self) -> str:
        with self._gate.entered():
            return text_of(lib.mf_engine_cpu_name(self._opened().pointer))

    @property
    def vocabulary(self) -> Vocabulary:
        """For grammars; made when it is first asked for."""
        return self._grammars.vocabulary()

    @cached_property
    def syntax(self) -> Syntax:
        """How the model writes thoughts and calls."""
        return Syntax(self.tokenizer)

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """Tokens at which a chat's reply is over, beside those of tokenizer.is_end."""
        encoded = [self.tokenizer.encode(text) for text in self.syntax.stops]
        return frozenset(tokens[0] for tokens in encoded if len(tokens) == 1)

    def grammar(
        self,
        *,
        json_schema: Optional[Schema] = None,
        gbnf: Optional[str] = None,
        json_object: bool = False,
    ) -> Grammar:
        """To be compiled once and given to many answers."""
        return Grammar(
            self.vocabulary, json_schema=json_schema, gbnf=gbnf, json_object=json_object
        )

    def set_store(self, store: Optional[Store]) -> None:
        """Prefixes are looked for in this store from now on."""
        with self._gate.entered():
            handle = self._opened()
            lib.mf_engine_set_store(handle.pointer, store._handle.pointer if store else ffi.NULL)
            handle.keep(store)  # sessions may be reading from an older one
        self._store = store

    # ---- sessions ----

    def session(self) -> Session:
        """A new, empty sequence; at most n_sessions are open at once."""
        with self._gate.entered():
            return Session(self, lib.mf_session_create, self._opened().pointer)

    def step(self, items: Sequence[StepItem]) -> None:
        """mf_engine_step: at most one chunk of all items together. Items stand for themselves:
        each has its own error. What is wrong with the call itself is raised."""
        from contextlib import ExitStack

        arrays = [token_array(item.tokens) for item in items]
        structs = ffi.new("mf_step_item[]", len(items))
        with ExitStack() as stack:
            stack.enter_context(self._gate.entered())
            self._fill(stack, items, arrays, structs)
            error = ffi.new("mf_error *")
            status = lib.mf_engine_step(self._opened().pointer, structs, len(items), error)
        if status != 0 and all(s.status == 0 for s in structs):
            raise exception_of(status, error)
        is_told = False
        for item, struct in zip(items, structs):
            item.n_done, item.error = int(struct.n_done), None
            if struct.status != 0:
                told = error if not is_told else ffi.new("mf_error *")
                item.error, is_told = exception_of(struct.status, told), True

    def _fill(
        self, stack: ExitStack, items: Sequence[StepItem], arrays: list[Any], structs: Any
    ) -> None:
        for item, array, struct in zip(items, arrays, structs):
            pointer = stack.enter_context(item.session._using())
            watch = item.session._watch.during(pointer, len(array), None)
            stack.enter_context(watch)
            struct.struct_bytes = ffi.sizeof("mf_step_item")
            struct.session, struct.tokens, struct.n_tokens = pointer, array, len(array)
            struct.cancel = item.cancel.pointer if item.cancel else ffi.NULL
            struct.flags = 0 if item.wants_logits else lib.MF_STEP_NO_LOGITS

    def eval(self, items: Iterable[tuple[Session, Iterable[int]]]) -> None:
        """Evaluates the tokens of several sessions together: an expert is read once for all."""
        from contextlib import ExitStack

        pairs = [(session, token_array(tokens)) for session, tokens in items]
        structs = ffi.new("mf_batch_item[]", len(pairs))
        with ExitStack() as stack:
            stack.enter_context(self._gate.entered())
            for (session, array), struct in zip(pairs, structs):
                pointer = stack.enter_context(session._using())
                stack.enter_context(session._watch.during(pointer, len(array), None))
                struct.session, struct.tokens, struct.n_tokens = pointer, array, len(array)
            check(lib.mf_engine_eval, self._opened().pointer, structs, len(pairs))

    # ---- answers, each in a session of its own ----

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Reply:
        """Writes on from a text or tokens."""
        return self.stream(prompt, **options).finish()

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Stream[str]:
        """The same, as an iterator of texts."""
        answer = self.answer_text(prompt, options)
        return Stream(answer, self._begun(answer), texts_of, owned=True)

    def chat(
        self,
        messages: Messages,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        **options: Unpack[GenerateOptions],
    ) -> Reply:
        """Answers a conversation. For several turns Session.chat takes over what it holds."""
        return self.stream_chat(messages, tools, **options).finish()

    def stream_chat(
        self,
        messages: Messages,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        **options: Unpack[GenerateOptions],
    ) -> Stream[Event]:
        """The same, as an iterator of events."""
        answer = Answer.of_chat(self, messages, tools, options)
        return Stream(answer, self._begun(answer), events_of, owned=True)

    def generate_batch(
        self, prompts: Sequence[Prompt], **options: Unpack[GenerateOptions]
    ) -> list[Reply]:
        """Answers to all, as many at a time as the model has sessions, evaluated together."""
        answers = [self.answer_text(each, options) for each in several("prompts", prompts)]
        return self._run_together(answers)

    def chat_batch(
        self,
        conversations: Sequence[Messages],
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        **options: Unpack[GenerateOptions],
    ) -> list[Reply]:
        each_of = several("conversations", conversations)
        answers = [Answer.of_chat(self, each, tools, options) for each in each_of]
        return self._run_together(answers)

    def answer_text(self, prompt: Prompt, options: GenerateOptions) -> Answer:
        """An answer to be made, of nobody's session yet."""
        if isinstance(prompt, str):
            return Answer.of_text(self, self.tokenizer.prompt(prompt), options)
        return Answer.of_text(self, token_list(prompt), options)

    def _begun(self, answer: Answer) -> Session:
        session = self.session()
        try:
            session.begin(answer)
        except BaseException:  # whose traceback would keep it open
            session.close()
            raise
        return session

    def _run_together(self, answers: Sequence[Answer]) -> list[Reply]:
        """An answer that fails has its error in its reply; one by itself raises it."""
        waiting = list(reversed(answers))
        running: list[tuple[Answer, Session]] = []
        raises = len(answers) == 1
        n_most = self.info.n_sessions - len([s for s in self._sessions if not s.is_closed])
        try:
            while waiting or running:
                while waiting and len(running) < max(1, n_most):
                    self._start(waiting.pop(), running, raises)
                running = self._step_together(running, raises)
        finally:
            for _, session in running:
                session.close()
        return [answer.reply for answer in answers]

    def _start(
        self, answer: Answer, running: list[tuple[Answer, Session]], raises: bool
    ) -> None:
        session = self.session()
        running.append((answer, session))
        with failing_alone(answer, raises):
            session.begin(answer)

    def _step_together(
        self, running: list[tuple[Answer, Session]], raises: bool
    ) -> list[tuple[Answer, Session]]:
        evaluating = [pair for pair in running if pair[0].left and not pair[0].is_done]
        if evaluating:
            step_answers(evaluating, raises=raises)
        for answer, session in running:
            if not answer.left and not answer.is_done:
                with failing_alone(answer, raises):
                    answer.advance(session)
            if answer.is_done:
                session.close()
        return [pair for pair in running if not pair[0].is_done]


def inspect(path: PathLike, **options: Unpack[ModelOptions]) -> ModelInfo:
    """What a checkpoint is and needs under these options; loads no weights."""
    values = EngineOptions(options)
    out = ffi.new("mf_model_info *")
    size = ffi.sizeof("mf_model_info")
    check(lib.mf_model_inspect_sized, encode_path(model_path(path)), values.struct, out, size)
    return model_info(out)


def version() -> str:
    """Of the library."""
    return text_of(lib.mf_version())


__all__ = ["Model", "StepItem", "Store", "inspect", "version"]
