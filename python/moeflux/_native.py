# SPDX-License-Identifier: MIT
"""The shared library: found, loaded, called. cffi lets the GIL go in every call.

What the library owns is held by a Handle, which frees it when nobody refers to it any more, and not
before those that use it: no order of closing can be wrong.
"""
from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Optional, Union

from . import _cdef
from .errors import ArgumentError, MoefluxError, StateError, error_class

ffi: Any = _cdef.ffi

SONAME = "libmoeflux.so.0"


def _load() -> Any:
    """MOEFLUX_LIBRARY names one; else the wheel's own; else the system's."""
    named = os.environ.get("MOEFLUX_LIBRARY")
    own = Path(__file__).parent / "lib" / SONAME
    return ffi.dlopen(named or (str(own) if own.exists() else SONAME))


lib: Any = _load()

PathLike = Union[str, "os.PathLike[str]"]


def _encoded(what: str, value: object, encode: Callable[[], bytes]) -> bytes:
    try:
        return encode()
    except UnicodeEncodeError as problem:
        raise ArgumentError(f"{what} is {value!r}: {problem.reason}") from None
    except TypeError as problem:
        raise ArgumentError(f"{what} is {value!r}: {problem}") from None


def _without_nul(what: str, value: object, data: bytes) -> bytes:
    if b"\0" in data:  # it would end there
        raise ArgumentError(f"{what} is {value!r}: a NUL character")
    return data


def encode_path(path: PathLike, what: str = "the path") -> bytes:
    return _without_nul(what, path, _encoded(what, path, lambda: os.fsencode(path)))


def encode_text(what: str, text: object) -> bytes:
    """UTF-8, with whatever characters; `what` is what it is called where it cannot be that."""
    if not isinstance(text, str):
        raise ArgumentError(f"{what} is {text!r}; expected text")
    return _encoded(what, text, text.encode)


def c_text(what: str, text: object) -> Any:
    """char[]; as encode_text, and no NUL character."""
    return ffi.new("char[]", _without_nul(what, text, encode_text(what, text)))


def text_of(pointer: Any) -> str:
    """A C string, or a char array."""
    return str(ffi.string(pointer).decode("utf-8", "replace")) if pointer else ""


def new_error() -> Any:
    return ffi.new("mf_error *")


def exception_of(status: int, error: Any) -> MoefluxError:
    name = text_of(lib.mf_status_name(status))
    message = text_of(error.message)
    where = int(error.byte_position)
    return error_class(status)(
        f"{message} ({name})" if message else name,
        code=status,
        os_errno=int(error.os_errno),
        byte_position=None if where == 2**64 - 1 else where,
    )


def call(function: Any, *arguments: Any) -> Any:
    """Calls a function with numbers of whose size nothing is known yet."""
    try:
        return function(*arguments)
    except OverflowError as problem:  # before it was called
        raise ArgumentError(str(problem)) from None


def check(function: Any, *arguments: Any) -> None:
    """Calls a function whose last argument is an mf_error *, and raises what it fails with."""
    error = new_error()
    status = call(function, *arguments, error)
    if status != 0:
        raise exception_of(status, error)


def default(kind: str, init: Any) -> Any:
    """A struct of options with its defaults."""
    options = ffi.new(f"{kind} *")
    init(options, ffi.sizeof(kind))
    return options


def filled(kind: str, fill: Callable[[Any, int], None]) -> Any:
    """A struct that a *_sized function fills."""
    result = ffi.new(f"{kind} *")
    fill(result, ffi.sizeof(kind))
    return result


def fields(struct: Any) -> dict[str, Any]:
    """A struct's fields as numbers and strings, but for its size."""
    values: dict[str, Any] = {}
    for name, field in ffi.typeof(struct[0]).fields:
        if name == "struct_bytes":
            continue
        value = getattr(struct, name)
        is_text = field.type.kind == "array" and field.type.item.cname == "char"
        is_list = field.type.kind == "array" and not is_text
        values[name] = text_of(value) if is_text else list(value) if is_list else value
    return values


class Uncopied:
    """What stands for something of the library: a copy would be the same thing twice, and of what
    ends the one the other would not know."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        name = type(self).__name__
        raise TypeError(f"{name} cannot be copied or pickled: the library owns what it has")


class Handle(Uncopied):
    """Owns what `free` frees, and keeps what must outlive it.

    To refer to what must outlive it is not enough: the collector finalizes cycles in any order. So
    each counts its users, of which its own object is one, and the last that goes frees it. A process
    that was forked does not: the library's threads, for which that waits, are not in it.
    """

    __slots__ = ("pointer", "_out", "_free", "_library", "_keeps", "_others", "_pid", "__weakref__")

    def __init__(self, kind: str, free: Any, *keeps: object) -> None:
        self._out = ffi.new(f"{kind} **")
        self._pid = os.getpid()
        self._free, self._library = free, lib  # which is unloaded with its last reference
        self._keeps: tuple[object, ...] = ()
        #: as many as have it for what they keep; taken from by whole operations, with no lock, as
        #: the collector may come in between
        self._others: list[None] = []
        #: NULL until made
        self.pointer: Any = ffi.NULL
        for what in keeps:
            self.keep(what)

    def keep(self, what: object) -> None:
        """This outlives it: another handle, what has one, or anything else."""
        what = getattr(what, "_handle", what)
        if isinstance(what, Handle):
            what._others.append(None)
        self._keeps = (*self._keeps, what)

    def make(self, function: Any, *arguments: Any) -> None:
        """Calls function(*arguments, out, error)."""
        check(function, *arguments, self._out)
        self.pointer = self._out[0]

    def _let_go(self) -> None:
        try:
            self._others.pop()
        except IndexError:  # there was no other
            if self._out[0] and self._pid == os.getpid():
                self._free(self._out)
            for what in self._keeps:
                if isinstance(what, Handle):
                    what._let_go()

    def __del__(self) -> None:
        self._let_go()


class Owner(Uncopied):
    """An object of the library that one thread uses at a time, and that may be closed.

    A second thread's call is refused instead of waited with, as is closing while a call is running.
    """

    _kind = "object"

    def __init__(self, handle: Handle) -> None:
        self._handle: Optional[Handle] = handle
        self._lock = threading.Lock()

    @property
    def is_closed(self) -> bool:
        return self._handle is None

    def _opened(self) -> Handle:
        handle = self._handle
        if handle is None:
            raise StateError(f"this {self._kind} is closed")
        return handle

    @contextmanager
    def _using(self) -> Iterator[Any]:
        """The pointer, which nobody else uses or frees meanwhile."""
        if not self._lock.acquire(blocking=False):
            raise StateError(f"this {self._kind} is being used by another call")
        try:
            yield self._opened().pointer
        finally:
            self._lock.release()

    def close(self) -> None:
        """Gives back what it holds. Closing twice is no error; closing during a call raises."""
        if self._handle is None:
            return
        if not self._lock.acquire(blocking=False):
            raise StateError(f"this {self._kind} is being used by another call")
        try:
            self._handle = None
        finally:
            self._lock.release()
