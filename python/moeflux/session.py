# SPDX-License-Identifier: MIT
"""One sequence of tokens, and what they left behind."""
from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from ._native import Handle, Owner, Uncopied, call, check, ffi, lib
from .answer import Answer, GenerateOptions, Stream, events_of, texts_of
from .errors import BudgetError, StateError
from .reply import Event, Reply
from .tokenizer import Messages, token_array, token_list

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from .model import Model

Prompt = Union[str, Sequence[int]]
#: called with the work done and all there is; true: stop
ProgressFunction = Callable[[int, int], Optional[bool]]

#: Session.left_over of a session whose tokens are others than those of an answer.
_NOTHING: tuple[int, list[int]] = (0, [])
#: Calls of fewer tokens are over before anybody would interrupt them.
_FEW_TOKENS = 8


class Cancel(Uncopied):
    """A wish to stop, of whoever has it; any thread may request it."""

    def __init__(self) -> None:
        self.pointer: Any = ffi.new("mf_cancel *")

    def request(self) -> None:
        lib.mf_cancel_request(self.pointer)

    def reset(self) -> None:
        lib.mf_cancel_reset(self.pointer)

    @property
    def is_requested(self) -> bool:
        return bool(lib.mf_cancel_is_requested(self.pointer))


@dataclass(frozen=True)
class Sync:
    """What Session.sync and reuse did: where the prefix was, and how many tokens it had."""

    source: str  # "none", "self", "session", "store"
    n_reused: int
    n_evaluated: int


class _Watch:
    """The progress callback: calls the user's, and lets Ctrl-C through to the main thread."""

    def __init__(self) -> None:
        self.function: Optional[ProgressFunction] = None
        self.raised: Optional[BaseException] = None
        self.callback = ffi.callback("mf_progress_fn", self._call, error=1, onerror=self._failed)

    def _call(self, _user: Any, n_done: int, n_total: int) -> int:
        return int(bool(self.function(n_done, n_total))) if self.function else 0

    def _failed(self, _kind: Any, value: BaseException, _trace: Any) -> None:
        self.raised = value

    @contextmanager
    def during(
        self, pointer: Any, n_tokens: int, function: Optional[ProgressFunction]
    ) -> Iterator[None]:
        is_main = threading.current_thread() is threading.main_thread()
        if function is None and not (is_main and n_tokens > _FEW_TOKENS):
            yield
            return
        self.function, self.raised = function, None
        lib.mf_session_set_progress(pointer, self.callback, ffi.NULL)
        try:
            yield
        except Exception:
            if self.raised is None:
                raise
        finally:
            lib.mf_session_set_progress(pointer, ffi.NULL, ffi.NULL)
            self.function, raised = None, self.raised
            self.raised = None
        if raised is not None:
            raise raised


class _Floats:
    """Memory of a session, as NumPy takes it; keeps the session's handle."""

    def __init__(self, pointer: Any, n: int, handle: Handle) -> None:
        self._handle = handle
        address = int(ffi.cast("uintptr_t", pointer))
        self.__array_interface__ = {
            "data": (address, True),
            "shape": (n,),
            "typestr": "<f4",
            "version": 3,
        }


class Session(Owner):
    """Made by Model.session(). One thread's at a time: a second one's call raises StateError."""

    _kind = "session"

    def __init__(self, model: Model, function: Any, source: Any) -> None:
        handle = Handle("mf_session", lib.mf_session_free, model._opened())
        handle.make(function, source)
        super().__init__(handle)
        self.model = model
        self._watch = _Watch()
        #: where the last answer ended, and its last token, which nobody has evaluated yet
        self.left_over: tuple[int, list[int]] = _NOTHING
        model._add(self)

    @contextmanager
    def _using(self) -> Iterator[Any]:
        with self.model._gate.entered(), super()._using() as pointer:
            yield pointer

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- evaluating ----

    def eval(self, tokens: Iterable[int], *, progress: Optional[ProgressFunction] = None) -> None:
        """Appends tokens and evaluates them; `logits` are then those of the last one."""
        array = token_array(tokens)
        with self._using() as pointer, self._watch.during(pointer, len(array), progress):
            check(lib.mf_session_eval, pointer, array, len(array))

    def sync(self, tokens: Iterable[int], *, progress: Optional[ProgressFunction] = None) -> Sync:
        """Makes the session hold exactly these tokens: what is held anywhere is taken over."""
        array, out = token_array(tokens), ffi.new("mf_sync_result *")
        with self._using() as pointer, self._watch.during(pointer, len(array), progress):
            self.left_over = _NOTHING
            check(lib.mf_session_sync, pointer, array, len(array), out)
        return _sync(out)

    def reuse(self, tokens: Iterable[int]) -> Sync:
        """Takes over the longest prefix that is held anywhere, and evaluates nothing."""
        array, out = token_array(tokens), ffi.new("mf_sync_result *")
        with self._using() as pointer:
            self.left_over = _NOTHING
            check(lib.mf_session_reuse, pointer, array, len(array), out)
        return _sync(out)

    def cancel(self) -> None:
        """Ends the call that is running, from any thread; nothing if none is."""
        handle = self._handle
        if handle is not None:
            lib.mf_session_cancel(handle.pointer)

    # ---- what it holds ----

    @property
    def logits(self) -> Optional[NDArray[np.float32]]:
        """float32 [n_vocab] of the last token evaluated, or None: the library's own memory, not a
        copy. It stays readable, and changes with the next call on the session: copy what is kept."""
        import numpy

        with self._using() as pointer:
            logits = lib.mf_session_logits(pointer)
            if not logits:
                return None
            floats = _Floats(logits, self.model.info.n_vocab, self._opened())
        view: NDArray[np.float32] = numpy.asarray(floats)
        return view

    @property
    def position(self) -> int:
        """Number of tokens held."""
        with self._using() as pointer:
            return int(lib.mf_session_position(pointer))

    def __len__(self) -> int:
        return self.position

    @property
    def tokens(self) -> list[int]:
        with self._using() as pointer:
            n = lib.mf_session_position(pointer)
            return list(lib.mf_session_tokens(pointer)[0:n]) if n else []

    @property
    def state_bytes(self) -> int:
        with self._using() as pointer:
            return int(lib.mf_session_state_bytes(pointer))

    def clear(self) -> None:
        """Back to the empty sequence."""
        with self._using() as pointer:
            self.left_over = _NOTHING
            lib.mf_session_clear(pointer)

    def fork(self) -> Session:
        """A new session that holds what this one does, sharing all memory."""
        with self._using() as pointer:
            session = Session(self.model, lib.mf_session_fork, pointer)
            session.left_over = self.left_over
            return session

    def truncate(self, n_tokens: int) -> int:
        """Keeps the first n_tokens; in families with recurrent layers as far as the newest mark
        before. Returns how many are kept."""
        kept = ffi.new("size_t *")
        with self._using() as pointer:
            check(lib.mf_session_truncate, pointer, n_tokens, kept)
            self._went_back(int(kept[0]))
        return int(kept[0])

    def _went_back(self, position: int) -> None:
        if position < self.left_over[0]:
            self.left_over = _NOTHING

    # ---- marks ----

    def mark(self) -> int:
        """Marks the present position, which the session can go back to."""
        with self._using() as pointer:
            check(lib.mf_mark_save, pointer)
            return int(lib.mf_session_position(pointer))

    @property
    def marks(self) -> list[int]:
        with self._using() as pointer:
            n = lib.mf_mark_list(pointer, ffi.NULL, 0)
            out = ffi.new("size_t[]", max(n, 1))
            return list(out[0 : min(n, lib.mf_mark_list(pointer, out, n))])

    def mark_every(self, n_tokens: int, *, at_end: bool = False) -> None:
        """Later evaluations make marks by themselves."""
        with self._using() as pointer:
            call(lib.mf_mark_auto, pointer, n_tokens, int(at_end))

    def restore(self, position: int) -> None:
        """Goes back to the mark at this position, with its logits."""
        with self._using() as pointer:
            check(lib.mf_mark_restore, pointer, position)
            self._went_back(position)

    def drop_mark(self, position: int) -> None:
        with self._using() as pointer:
            check(lib.mf_mark_drop, pointer, position)

    # ---- snapshots ----

    def save(self) -> bytearray:
        """Tokens, state and logits as bytes."""
        with self._using() as pointer:
            snapshot = bytearray(lib.mf_snapshot_bytes(pointer))
            check(lib.mf_snapshot_save, pointer, ffi.from_buffer(snapshot), len(snapshot))
        return snapshot

    def load(self, snapshot: Union[bytes, bytearray, memoryview]) -> None:
        """Holds what a snapshot of the same model holds; all of it is checked first."""
        with self._using() as pointer:
            data = ffi.from_buffer(snapshot)
            check(lib.mf_snapshot_load, pointer, data, len(data))
            self.left_over = _NOTHING

    def save_to(self, fd: int) -> None:
        """The same to a file descriptor's present offset."""
        with self._using() as pointer:
            check(lib.mf_snapshot_save_fd, pointer, fd)

    def load_from(self, fd: int) -> None:
        with self._using() as pointer:
            check(lib.mf_snapshot_load_fd, pointer, fd)
            self.left_over = _NOTHING

    # ---- answers ----

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Reply:
        """Appends a text or tokens, and writes on."""
        return self.stream(prompt, **options).finish()

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Stream[str]:
        """The same, as an iterator of texts; its `reply` is the answer so far."""
        tokens = self._prompt_tokens(prompt)
        answer = Answer.of_text(self.model, tokens, options)
        answer.stands_behind(self.tokens)
        return Stream(answer, self, texts_of)

    def _prompt_tokens(self, prompt: Prompt) -> list[int]:
        position = self.position
        rest = self.left_over[1] if position and position == self.left_over[0] else []
        if not isinstance(prompt, str):
            return rest + token_list(prompt)
        tokenizer = self.model.tokenizer
        return rest + tokenizer.encode(prompt) if position else tokenizer.prompt(prompt)

    def chat(
        self,
        messages: Messages,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        **options: Unpack[GenerateOptions],
    ) -> Reply:
        """Answers a conversation, which is given whole each turn: what the session, others or the
        store hold of it is taken over."""
        return self.stream_chat(messages, tools, **options).finish()

    def stream_chat(
        self,
        messages: Messages,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        **options: Unpack[GenerateOptions],
    ) -> Stream[Event]:
        """The same, as an iterator of events: thoughts, content, calls of tools."""
        answer = Answer.of_chat(self.model, messages, tools, options)
        self.begin(answer)
        return Stream(answer, self, events_of)

    def begin(self, answer: Answer) -> None:
        """Takes over what is held of an answer's prompt."""
        found = self.reuse(answer.prompt)
        answer.begin_at(found.n_reused)

    def mark_if_it_fits(self) -> None:
        """A mark that later turns may begin at; without one they evaluate more."""
        try:
            self.mark()
        except BudgetError:
            pass


_SOURCES = ("none", "self", "session", "store")


def _sync(out: Any) -> Sync:
    return Sync(_SOURCES[int(out.source)], int(out.n_reused), int(out.n_evaluated))


class Gate:
    """Counts the calls that an engine serves: it closes when there are none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_calls = 0
        self._is_closed = False
        self._pid = os.getpid()

    def check_process(self) -> None:
        """What was opened before a fork is the parent's: reads of both would mix."""
        if self._pid != os.getpid():
            raise StateError("this model was opened before a fork, by another process")

    @contextmanager
    def entered(self) -> Iterator[None]:
        self.check_process()  # first: the lock may be held by a thread that is not here
        with self._lock:
            if self._is_closed:
                raise StateError("this model is closed")
            self._n_calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_calls -= 1

    def close(self) -> bool:
        """False: it is closed already."""
        if self._pid != os.getpid():
            was_open, self._is_closed = not self._is_closed, True
            return was_open
        with self._lock:
            if self._n_calls > 0:
                raise StateError("this model is being used by another call")
            was_open, self._is_closed = not self._is_closed, True
            return was_open
