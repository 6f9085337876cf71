# SPDX-License-Identifier: MIT
"""One answer in the making: which tokens are to be evaluated next, and what came of them.

It evaluates nothing itself: Stream does for one session, step_answers for several together.
"""
from __future__ import annotations

import operator
import secrets
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar, Union, cast

from ._native import c_text, ffi, lib
from .errors import ArgumentError, CancelledError, MoefluxError, StateError
from .grammar import Grammar, Guide, Schema, calls_or_none
from .options import SamplingOptions, several, unexpected
from .reply import Event, EventKind, Parser, Reply
from .sampler import Sampler
from .tokenizer import ChatTemplate, Messages

if TYPE_CHECKING:
    from .model import Model
    from .session import Cancel, Session

T = TypeVar("T")


class GenerateOptions(SamplingOptions, total=False):
    """Of generate, chat and their kin: how tokens are chosen, and these."""

    max_tokens: Optional[int]  # None: until the model or the context ends it
    stop: Union[str, Sequence[str]]  # the answer ends before any of these texts
    grammar: Grammar
    json_schema: Schema
    gbnf: str
    json_object: bool
    # of conversations
    thinking: Optional[bool]
    documents: Sequence[Mapping[str, Any]]
    variables: Mapping[str, Any]
    template_name: str
    tool_choice: str  # "auto", "required", "none", or a tool's name


_SAMPLING = frozenset(SamplingOptions.__annotations__)
#: of which a text to be continued has nothing
_OF_CHATS = ("thinking", "documents", "variables", "template_name", "tool_choice")
_FORMATS = ("json_schema", "gbnf", "json_object")
_OWN = frozenset(GenerateOptions.__annotations__) - _SAMPLING


def _sampler(model: Model, options: Mapping[str, Any]) -> Sampler:
    chosen = {name: value for name, value in options.items() if name in _SAMPLING}
    unknown = [name for name in options if name not in _SAMPLING and name not in _OWN]
    if unknown:
        raise unexpected(unknown[0], _SAMPLING | _OWN)
    if chosen.get("seed") is None:
        chosen["seed"] = secrets.randbits(63)
    sampling: Any = chosen
    return Sampler(model.info.n_vocab, model.absolute_path, model.tokenizer, **sampling)


def _grammar(model: Model, options: Mapping[str, Any]) -> Optional[Grammar]:
    asked = [name for name in ("grammar", *_FORMATS) if options.get(name) is not None]
    if options.get("json_object") is False:
        asked.remove("json_object")
    if not asked:
        return None
    if len(asked) > 1:
        raise ArgumentError(f"{asked[0]} and {asked[1]} exclude each other")
    if asked[0] == "grammar":
        grammar = options["grammar"]
        if not isinstance(grammar, Grammar):
            raise ArgumentError(
                f"grammar is of type {type(grammar).__name__}; expected what Model.grammar makes "
                "(gbnf= and json_schema= take texts)"
            )
        n_tokens, n_of_model = len(grammar.vocabulary.tokenizer), len(model.tokenizer)
        if n_tokens != n_of_model:
            raise ArgumentError(
                f"grammar was compiled for another vocabulary, of {n_tokens} tokens; expected {n_of_model}"
            )
        return grammar
    format_of: dict[str, Any] = {asked[0]: options[asked[0]]}
    return Grammar(model.vocabulary, **format_of)


def _max_tokens(value: Optional[int]) -> Optional[int]:
    try:
        n = None if value is None else operator.index(value)
    except TypeError:
        n = 0
    if n is not None and n < 1:
        raise ArgumentError(f"max_tokens is {value!r}; expected 1 or more, or None")
    return n


class _Stops:
    """Texts that end the answer: what may be the beginning of one is held back."""

    def __init__(self, stop: Union[str, Sequence[str]]) -> None:
        texts = [stop] if isinstance(stop, str) else several("stop", stop)
        self._texts = [c_text("stop", text) for text in texts if text != ""]
        self._array = ffi.new("char *[]", self._texts)
        self._held = b""
        self.is_found = False

    def pass_on(self, text: str) -> str:
        if not self._texts or self.is_found:
            return "" if self.is_found else text
        self._held += text.encode()
        found = ffi.new("size_t *")
        n = lib.mf_stop_find(self._held, len(self._held), self._array, len(self._texts), found)
        free, self._held = self._held[:n], self._held[n:]
        self.is_found = found[0] < len(self._texts)
        return free.decode()

    def rest(self) -> str:
        held, self._held = self._held, b""
        return "" if self.is_found else held.decode()


class Answer:
    """Made by of_text or of_chat. `left` is what has to be evaluated before `advance`."""

    def __init__(self, model: Model, prompt: Sequence[int], options: GenerateOptions) -> None:
        self._model = model
        self._sampler = _sampler(model, options)
        self._stops = _Stops(options.get("stop") or ())
        self._decoder = model.tokenizer.decoder()
        self._parser: Optional[Parser] = None
        self._guide: Optional[Guide] = None
        self._ends: frozenset[int] = frozenset()
        self._max_tokens = _max_tokens(options.get("max_tokens"))
        if not prompt:
            raise ArgumentError("the prompt is empty; expected at least one token")
        self.prompt: list[int] = list(prompt)
        self.left: list[int] = self.prompt
        #: of `left`, so many are evaluated before a mark is made; 0: none is
        self.n_before_mark: int = 0
        self.reply: Reply = Reply(n_prompt_tokens=len(self.prompt))
        self.is_done: bool = False
        self._sampler.accept_prompt(self.prompt)

    @classmethod
    def of_text(cls, model: Model, prompt: Sequence[int], options: GenerateOptions) -> Answer:
        for name in _OF_CHATS:
            if options.get(name) is not None:
                raise ArgumentError(f"{name} is of conversations; chat and its kin take it")
        answer = cls(model, prompt, options)
        grammar = _grammar(model, options)
        answer._guide = grammar.guide() if grammar else None
        return answer

    @classmethod
    def of_chat(
        cls,
        model: Model,
        messages: Messages,
        tools: Optional[Sequence[Mapping[str, Any]]],
        options: GenerateOptions,
    ) -> Answer:
        template = _template(tools, options, True)
        prompt = model.tokenizer.chat_encode(messages, template)
        answer = cls(model, prompt, options)
        answer._find_mark(messages, _template(tools, options, False))
        text = model.tokenizer.chat_text(messages, template)
        called = None if options.get("tool_choice") == "none" else tools
        id_seed = options.get("seed") or secrets.randbits(63)
        answer._parser = Parser(model.syntax, called, text, id_seed)
        answer._ends = model.end_tokens
        answer._guide = answer._chat_guide(called, options)
        return answer

    def _find_mark(self, messages: Messages, template: ChatTemplate) -> None:
        """Later turns begin with the prompt up to where the answer opens."""
        stable = self._model.tokenizer.chat_encode(messages, template)
        n = 0
        while n < len(stable) and n < len(self.prompt) and stable[n] == self.prompt[n]:
            n += 1
        self.n_before_mark = n if n < len(self.prompt) else 0

    def _chat_guide(
        self, tools: Optional[Sequence[Mapping[str, Any]]], options: GenerateOptions
    ) -> Optional[Guide]:
        choice = options.get("tool_choice") or "auto"
        grammar = _grammar(self._model, options)
        if choice not in ("auto", "none"):
            if not tools:
                raise ArgumentError(f"tool_choice is {choice!r}, but there are no tools")
            if grammar is not None:
                raise ArgumentError("a call that must come excludes a format of the answer")
            grammar = self._forced_calls(tools, choice)
        elif tools and grammar is None and any(_is_strict(tool) for tool in tools):
            grammar = calls_or_none(self._model.vocabulary, self._model.syntax, tools)
        if grammar is None:
            return None
        guide = grammar.guide()
        marks = self._model.syntax.thought_marks
        if grammar.opening is None and self._parser is not None and self._parser.is_thinking:
            guide.begin_after((marks[1] if marks else "</think>").strip(" \n"), blanks=2)
        return guide

    def _forced_calls(self, tools: Sequence[Mapping[str, Any]], choice: str) -> Grammar:
        if choice != "required":
            tools = [t for t in tools if t.get("function", t).get("name") == choice]
            if not tools:
                raise ArgumentError(f"tool_choice is {choice!r}; expected a tool's name")
        return Grammar.of_calls(self._model.vocabulary, self._model.syntax, tools)

    # ---- evaluating ----

    def stands_behind(self, tokens: Sequence[int]) -> None:
        """The session holds these before the prompt: penalties count them."""
        self._sampler.reset()
        self._sampler.accept_prompt([*tokens, *self.prompt])

    def begin_at(self, n_held: int) -> None:
        """The session holds the prompt's first n_held tokens."""
        self.left = self.prompt[n_held:]
        self.n_before_mark = max(0, self.n_before_mark - n_held)
        self.reply.n_reused_tokens = n_held

    def piece(self) -> list[int]:
        """What to evaluate next: all that is left, or what is before the mark."""
        return self.left[: self.n_before_mark] if self.n_before_mark else self.left

    def took(self, n_done: int, session: Session) -> None:
        """So many tokens of the piece were evaluated."""
        self.left = self.left[n_done:]
        if self.n_before_mark > 0:
            self.n_before_mark -= n_done
            if self.n_before_mark == 0:
                session.mark_if_it_fits()

    def advance(self, session: Session) -> list[Event]:
        """The next token, by the session's logits, and what it says; then there is a token left
        to be evaluated, or the answer is done."""
        token = self._choose(session)
        if self._model.tokenizer.is_end(token) or token in self._ends:
            return self.end("stop")
        self._sampler.accept(token)
        if self._guide is not None:
            self._guide.accept(token)
        self.reply.tokens.append(token)
        self.left = [token]
        events = self._say(token)
        n_most = self._max_tokens
        if self._stops.is_found or (self._guide is not None and self._guide.is_done):
            return events + self.end("stop")
        is_full = session.position >= self._model.info.n_context_tokens
        if is_full or (n_most is not None and len(self.reply.tokens) >= n_most):
            return events + self.end("length")
        return events

    def _choose(self, session: Session) -> int:
        mask = self._guide.mask(self._model.info.n_vocab) if self._guide is not None else None
        with session._using() as pointer:
            logits, bounds = lib.mf_session_logits(pointer), lib.mf_session_bounds(pointer)
            if not logits:
                raise StateError("the session has no logits: it was changed under its answer")
            return self._sampler.sample_from(logits, mask, bounds)

    def _say(self, token: int) -> list[Event]:
        tokenizer = self._model.tokenizer
        if self._parser is None:
            return self._release([Event(EventKind.CONTENT, self._decoder.push(token))])
        piece = tokenizer.piece(token) or b""
        return self._release(self._parser.push(piece, tokenizer.is_special(token)))

    def _release(self, events: list[Event]) -> list[Event]:
        """Content goes through the stop texts; what is given out is in the reply."""
        out: list[Event] = []
        for event in events:
            if event.kind == EventKind.CONTENT:
                event = Event(EventKind.CONTENT, self._stops.pass_on(event.text))
            elif event.kind == EventKind.CALL:
                out += self._content(self._stops.rest())
            if event.text or event.kind not in (EventKind.CONTENT, EventKind.THOUGHT):
                out.append(event)
                self.reply.add(event)
        return out

    def _content(self, text: str) -> list[Event]:
        if not text:
            return []
        event = Event(EventKind.CONTENT, text)
        self.reply.add(event)
        return [event]

    def end(self, reason: str) -> list[Event]:
        """The answer is done: what was held back comes out."""
        self.is_done = True
        was_cut = reason != "stop" or self._stops.is_found
        if self._parser is not None:
            events = self._release(self._parser.finish(was_cut))
        else:
            events = self._release([Event(EventKind.CONTENT, self._decoder.finish())])
        events += self._content(self._stops.rest())
        is_call = reason == "stop" and any(call.is_whole for call in self.reply.tool_calls)
        self.reply.finish_reason = "tool_calls" if is_call else reason
        return events


    def fail(self, error: Exception) -> None:
        """The answer is done as far as it came."""
        self.is_done = True
        self.reply.finish_reason = "cancelled" if isinstance(error, CancelledError) else "error"
        self.reply.error = error


def _is_strict(tool: Mapping[str, Any]) -> bool:
    function: object = tool.get("function", tool)
    if not isinstance(function, Mapping):
        return False
    return bool(cast("Mapping[str, Any]", function).get("strict"))


def _template(
    tools: Optional[Sequence[Mapping[str, Any]]], options: GenerateOptions, opens: bool
) -> ChatTemplate:
    return ChatTemplate(
        tools=tools or None,
        documents=options.get("documents"),
        variables=options.get("variables"),
        template_name=options.get("template_name"),
        thinking=options.get("thinking"),
        add_generation_prompt=opens,
    )


def step_answers(
    pairs: Sequence[tuple[Answer, Session]],
    cancels: Sequence[Cancel] = (),
    raises: bool = True,
) -> None:
    """One chunk of all answers together. Without `raises` an answer that fails is done, and has
    its error in its reply; the others go on."""
    from .model import StepItem

    items: list[StepItem] = []
    for i, (answer, session) in enumerate(pairs):
        piece = answer.piece()
        cancel = cancels[i] if cancels else None
        items.append(StepItem(session, piece, cancel, len(piece) == len(answer.left)))
    pairs[0][1].model.step(items)
    for (answer, session), item in zip(pairs, items):
        with failing_alone(answer, raises):
            if item.error is not None:
                raise item.error
            answer.took(item.n_done, session)


@contextmanager
def failing_alone(answer: Answer, raises: bool) -> Iterator[None]:
    """Without `raises` what fails here is this answer's, among others that go on."""
    try:
        yield
    except MoefluxError as error:
        if raises:
            raise
        answer.fail(error)


def texts_of(events: Sequence[Event]) -> list[str]:
    return [event.text for event in events if event.kind == EventKind.CONTENT and event.text]


def events_of(events: Sequence[Event]) -> list[Event]:
    return list(events)


class Stream(Generic[T]):
    """An answer as an iterator; `reply` is what has come so far.

    Each step evaluates in the calling thread. Leaving it (or close) leaves the session where it is.
    """

    def __init__(
        self,
        answer: Answer,
        session: Session,
        view: Callable[[Sequence[Event]], list[T]],
        owned: bool = False,
    ) -> None:
        self._answer, self._session = answer, session
        self._is_owned = owned
        self._lock = threading.Lock()
        # nothing in it leads back here: who lets the stream go ends it at once
        self._parts = _run(answer, session, view, owned)

    @property
    def reply(self) -> Reply:
        return self._answer.reply

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._using():
            return next(self._parts)

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """No more of it; a session that was made for it is closed."""
        with self._using():
            self._parts.close()
            if self._is_owned:
                self._session.close()

    def finish(self) -> Reply:
        """All the rest, and the whole answer."""
        for _ in self:
            pass
        return self._answer.reply

    @contextmanager
    def _using(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise StateError("this stream is being used by another call")
        try:
            yield
        finally:
            self._lock.release()


def _run(
    answer: Answer, session: Session, view: Callable[[Sequence[Event]], list[T]], owned: bool
) -> Generator[T, None, None]:
    try:
        while not answer.is_done:
            while answer.left:
                step_answers([(answer, session)])
            events = answer.advance(session)
            session.left_over = (session.position, answer.left)
            yield from view(events)
    finally:
        if owned:
            session.close()
