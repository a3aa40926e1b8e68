# SPDX-License-Identifier: BSD-3-Clause
"""What a call of rdzv raises: one exception for each code of rdzv/error.h, below one for each class of codes.

    Error
      RetryableError   nothing was changed, or a repetition does no harm: the same call may succeed later
      DefiniteError    the same call fails again until something else changes
      UncertainError   the call may have taken effect, or data that was written before is lost

Each exception has `code`, the negative number, and `name`, such as "TIMEOUT". An exception that means the same as one
of Python's is that one, too: a Timeout is a TimeoutError, a ConnectionLost a ConnectionError.
"""
from __future__ import annotations


class Error(Exception):
    """Any failure of a call."""

    code: int = 0
    name: str = "UNKNOWN"


class RetryableError(Error):
    """The same call may succeed later."""


class DefiniteError(Error):
    """The same call fails again until something else changes."""


class UncertainError(Error):
    """The call may have taken effect, or data is lost. Read before you continue."""


class Invalid(DefiniteError, ValueError):
    """An argument is not valid, or the object belongs to another process."""

    code, name = -1, "INVALID"


class NoMemory(RetryableError, MemoryError):
    """Out of memory."""

    code, name = -2, "NO_MEMORY"


class Timeout(RetryableError, TimeoutError):
    """Timed out."""

    code, name = -3, "TIMEOUT"


class Canceled(DefiniteError):
    """The call was canceled, by cancel(), close() or a signal."""

    code, name = -4, "CANCELED"


class ConnectionFailed(RetryableError, ConnectionError):
    """The server cannot be reached."""

    code, name = -5, "CONNECTION"


class AddressError(RetryableError, ConnectionError):
    """A name cannot be resolved."""

    code, name = -6, "ADDRESS"


class OutcomeUnknown(UncertainError, ConnectionError):
    """The connection was lost before the answer: the call may or may not have taken effect."""

    code, name = -7, "OUTCOME_UNKNOWN"


class ProtocolError(DefiniteError):
    """The peer broke the protocol."""

    code, name = -8, "PROTOCOL"


class Unsupported(DefiniteError):
    """This store or backend cannot do that."""

    code, name = -9, "UNSUPPORTED"


class NotANumber(DefiniteError, ValueError):
    """The value is not a number."""

    code, name = -10, "NOT_A_NUMBER"


class LimitExceeded(DefiniteError):
    """Over a limit."""

    code, name = -11, "LIMIT"


class Empty(RetryableError):
    """The queue is empty."""

    code, name = -12, "EMPTY"


class InputOutputError(DefiniteError, OSError):
    """Input or output failed."""

    code, name = -13, "IO"


class NoSpace(RetryableError, OSError):
    """No space left."""

    code, name = -14, "NO_SPACE"


class Corrupt(DefiniteError):
    """The data is corrupt."""

    code, name = -15, "CORRUPT"


class Stale(DefiniteError):
    """Left over from another run."""

    code, name = -16, "STALE"


class AddressInUse(RetryableError, OSError):
    """The address is in use."""

    code, name = -17, "IN_USE"


class Stopped(RetryableError, ConnectionError):
    """The server is stopping."""

    code, name = -18, "STOPPED"


class DataLost(UncertainError):
    """The server was restarted and has forgotten its keys."""

    code, name = -19, "DATA_LOST"


class Closed(DefiniteError):
    """The rendezvous is closed."""

    code, name = -20, "CLOSED"


class GracefulExit(DefiniteError):
    """The rendezvous was closed while this node was a spare. Not a failure."""

    code, name = -21, "GRACEFUL_EXIT"


BY_CODE: dict[int, type[Error]] = {
    kind.code: kind
    for kind in (Invalid, NoMemory, Timeout, Canceled, ConnectionFailed, AddressError, OutcomeUnknown, ProtocolError,
                 Unsupported, NotANumber, LimitExceeded, Empty, InputOutputError, NoSpace, Corrupt, Stale,
                 AddressInUse, Stopped, DataLost, Closed, GracefulExit)}


def error_of(code: int, message: str) -> Error:
    """The exception for a code; an UncertainError with the number for a code that this package does not know."""
    kind = BY_CODE.get(code)
    if kind is not None:
        return kind(message)
    unknown = UncertainError(message)
    unknown.code = code
    return unknown
