# SPDX-License-Identifier: MIT
"""What the library refuses, as exceptions: one class for each mf_status, all MoefluxError."""
from __future__ import annotations

import enum
from typing import Optional


class Status(enum.IntEnum):
    """mf_status."""

    OK = 0
    ARGUMENT = -1
    NO_MEMORY = -2
    IO = -3
    FORMAT = -4
    UNSUPPORTED = -5
    BUDGET = -6
    CONTEXT = -7
    CANCELLED = -8
    STATE = -9
    NOT_FOUND = -10


_STATUSES: dict[int, Status] = {int(status): status for status in Status}


class MoefluxError(Exception):
    """A call that failed. `code` says why, str() names the file, the field and what was expected.

    `code` is a Status; a bare number is one of a later library.
    """

    code: int = Status.OK

    def __init__(
        self,
        message: str,
        *,
        code: Optional[int] = None,
        os_errno: int = 0,
        byte_position: Optional[int] = None,
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = _STATUSES.get(code, code)
        #: of the operating system; 0 where it was not involved
        self.os_errno = os_errno
        #: in the file that the message names, or None
        self.byte_position = byte_position


class ArgumentError(MoefluxError, ValueError):
    code: int = Status.ARGUMENT


class NoMemoryError(MoefluxError, MemoryError):
    code: int = Status.NO_MEMORY


class ReadError(MoefluxError):
    """The operating system refused or failed: `os_errno` says how."""

    code: int = Status.IO


class FormatError(MoefluxError):
    code: int = Status.FORMAT


class UnsupportedError(MoefluxError):
    code: int = Status.UNSUPPORTED


class BudgetError(MoefluxError):
    """It does not fit the memory that was allowed; the message says what would."""

    code: int = Status.BUDGET


class ContextError(MoefluxError):
    """More tokens than the session's context holds."""

    code: int = Status.CONTEXT


class CancelledError(MoefluxError):
    """A cancel or the deadline asked to stop."""

    code: int = Status.CANCELLED


class StateError(MoefluxError):
    """Not while it is being evaluated, or not any more: it was closed."""

    code: int = Status.STATE


class NotFoundError(MoefluxError, LookupError):
    code: int = Status.NOT_FOUND


_CLASSES: dict[int, type[MoefluxError]] = {
    int(cls.code): cls
    for cls in (
        ArgumentError,
        NoMemoryError,
        ReadError,
        FormatError,
        UnsupportedError,
        BudgetError,
        ContextError,
        CancelledError,
        StateError,
        NotFoundError,
    )
}


def error_class(code: int) -> type[MoefluxError]:
    """The class for a status; MoefluxError itself for one of a later library."""
    return _CLASSES.get(code, MoefluxError)
