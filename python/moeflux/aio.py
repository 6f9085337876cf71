# SPDX-License-Identifier: MIT
"""Answers for asyncio: one thread owns the engine and steps all requests together."""
from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Optional, TypeVar

from ._native import Uncopied
from .answer import Answer, GenerateOptions, events_of, failing_alone, step_answers, texts_of
from .errors import BudgetError, StateError
from .reply import Event, Reply
from .session import Cancel, Prompt, Session
from .tokenizer import Messages

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .model import Model

T = TypeVar("T")

#: Steps whose events a reader has not taken yet: beyond, its answer waits for it.
_MOST_UNREAD = 64


class _Request:
    """An answer, and the coroutine that reads it."""

    def __init__(self, answer: Answer, loop: asyncio.AbstractEventLoop) -> None:
        self.answer: Answer = answer
        self.loop: asyncio.AbstractEventLoop = loop
        self.session: Optional[Session] = None
        self.cancel: Cancel = Cancel()
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        # each is one thread's: a count of both would lose some
        self.n_told: int = 0
        self.n_read: int = 0

    def tell(self, what: Any) -> None:
        """From the worker: events, an error, or None at the end."""
        self.n_told += 1
        try:
            self.loop.call_soon_threadsafe(self.queue.put_nowait, what)
        except RuntimeError:  # the loop is closed: nobody reads it
            self.cancel.request()

    @property
    def is_ready(self) -> bool:
        return self.n_told - self.n_read < _MOST_UNREAD or self.cancel.is_requested


class _Worker:
    """The thread: takes requests in as sessions come free, and steps those that are running."""

    def __init__(self, model: Model, n_most: int, n_waiting: int) -> None:
        self._model, self._n_most, self._n_waiting = model, n_most, n_waiting
        self._wake = threading.Condition()
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._is_stopping = self._is_left = False
        self._thread = threading.Thread(target=self._run, name="moeflux", daemon=True)
        self._thread.start()

    def submit(self, request: _Request) -> None:
        with self._wake:
            if self._is_stopping:
                raise StateError("this AsyncModel is closed")
            if len(self._waiting) >= self._n_waiting:
                raise BudgetError(f"{len(self._waiting)} requests are waiting already")
            self._waiting.append(request)
            self._wake.notify()

    def wake(self) -> None:
        with self._wake:
            self._wake.notify()

    def leave(self, request: _Request) -> None:
        """Nobody reads it any more."""
        request.cancel.request()
        self.wake()

    def stop(self) -> None:
        with self._wake:
            self._is_stopping = True
            self._cancel_all()  # at once, also what is in the middle of a step
            self._wake.notify()
        self._thread.join()

    def retire(self) -> None:
        """No more requests will come: the thread ends with those that it has."""
        with self._wake:
            self._is_left = True
            self._wake.notify()

    def _cancel_all(self) -> None:
        for request in [*self._waiting, *self._running]:
            request.cancel.request()

    def _run(self) -> None:
        while self._take_in():
            ready = [request for request in self._running if request.is_ready]
            try:
                self._step([r for r in ready if not r.cancel.is_requested])
            except Exception as error:
                for request in ready:
                    self._end(request, error)
            for request in [r for r in self._running if r.cancel.is_requested]:
                self._end(request, None)

    def _take_in(self) -> bool:
        """Waits until there is something to do; false: it is over."""
        with self._wake:
            while True:
                if self._is_stopping:  # again, as now no request is on its way from list to list
                    self._cancel_all()
                if self._waiting or any(r.is_ready for r in self._running):
                    break
                if (self._is_stopping or self._is_left) and not self._running:
                    return False
                self._wake.wait()
            new: list[_Request] = []
            while self._waiting and len(self._running) + len(new) < self._n_most:
                new.append(self._waiting.popleft())
        for request in new:
            self._begin(request)
        return True

    def _begin(self, request: _Request) -> None:
        if request.cancel.is_requested:
            self._end(request, None)
            return
        try:
            request.session = self._model.session()
            request.session.begin(request.answer)
        except Exception as error:
            self._end(request, error)
        else:
            self._running.append(request)

    def _step(self, requests: list[_Request]) -> None:
        pairs = [(r.answer, r.session) for r in requests if r.session is not None]
        if not pairs:
            return
        evaluating = [i for i, (answer, _) in enumerate(pairs) if answer.left]
        if evaluating:
            step_answers(
                [pairs[i] for i in evaluating], [requests[i].cancel for i in evaluating], False
            )
        for request, (answer, session) in zip(requests, pairs):
            if not answer.left and not answer.is_done:
                with failing_alone(answer, False):
                    events = answer.advance(session)
                    if events:
                        request.tell(events)
            if answer.is_done:  # who asked for the end, within a step or between two, gets what came
                asked = request.cancel.is_requested
                self._end(request, None if asked else answer.reply.error)

    def _end(self, request: _Request, error: Optional[Exception]) -> None:
        if request in self._running:
            self._running.remove(request)
        if request.session is not None and not request.session.is_closed:
            request.session.close()
        if not request.answer.is_done:
            if error is not None:
                request.answer.fail(error)
            else:
                request.answer.reply.finish_reason = "cancelled"
        request.tell(error)


class AsyncStream(Generic[T]):
    """An answer as an asynchronous iterator; `reply` is what has come so far. Leaving it, or
    cancelling the task that reads it, ends the request."""

    def __init__(
        self, worker: _Worker, request: _Request, view: Callable[[Sequence[Event]], list[T]]
    ) -> None:
        self._worker, self._request = worker, request
        # nothing in it leads back here: who lets the stream go ends the request at once
        self._parts = _read(worker, request, view)
        weakref.finalize(self, worker.leave, request).atexit = False

    @property
    def reply(self) -> Reply:
        return self._request.answer.reply

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        return await self._parts.__anext__()

    async def __aenter__(self) -> AsyncStream[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._worker.leave(self._request)
        await self._parts.aclose()

    async def finish(self) -> Reply:
        """All the rest, and the whole answer."""
        async for _ in self._parts:
            pass
        return self.reply


async def _read(
    worker: _Worker, request: _Request, view: Callable[[Sequence[Event]], list[T]]
) -> AsyncGenerator[T, None]:
    try:
        while True:
            what = await request.queue.get()
            request.n_read += 1
            if what is None:
                return
            if isinstance(what, Exception):
                raise what
            worker.wake()
            for part in view(what):
                yield part
    finally:
        worker.leave(request)


class AsyncModel(Uncopied):
    """A model for asyncio. Requests of all coroutines are evaluated together, as many at a time
    as the model has sessions; the others wait.

    While it is open its thread owns the model's sessions. The model itself stays its caller's.
    One that is dropped without `aclose` answers what was asked, and is closed then.
    """

    def __init__(self, model: Model, *, n_waiting: int = 1000) -> None:
        self.model = model
        self._worker = _Worker(model, model.info.n_sessions, n_waiting)
        weakref.finalize(self, self._worker.retire).atexit = False

    async def __aenter__(self) -> AsyncModel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancels what is running or waiting, whose replies have "cancelled" for finish_reason, and
        waits until it is over."""
        await asyncio.get_running_loop().run_in_executor(None, self._worker.stop)

    async def _submit(
        self, make: Callable[[], Answer], view: Callable[[Sequence[Event]], list[T]]
    ) -> AsyncStream[T]:
        self.model._gate.check_process()
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(None, make)  # tokens and grammars take their time
        request = _Request(answer, loop)
        self._worker.submit(request)
        return AsyncStream(self._worker, request, view)

    async def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> AsyncStream[str]:
        """Writes on from a text or tokens: `async for text in await model.stream(prompt)`."""
        return await self._submit(lambda: self.model.answer_text(prompt, options), texts_of)

    async def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Reply:
        return await (await self.stream(prompt, **options)).finish()

    async def stream_chat(
        self,
        messages: Messages,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        **options: Unpack[GenerateOptions],
    ) -> AsyncStream[Event]:
        """Answers a conversation."""
        return await self._submit(
            lambda: Answer.of_chat(self.model, messages, tools, options), events_of
        )

    async def chat(
        self,
        messages: Messages,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        **options: Unpack[GenerateOptions],
    ) -> Reply:
        return await (await self.stream_chat(messages, tools, **options)).finish()
