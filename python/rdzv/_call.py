# SPDX-License-Identifier: BSD-3-Clause
"""How a call goes to the library: its errors, its end by a signal, objects that are closed while calls run on them.

ctypes lets other threads run during a call. But Python runs signal handlers between two of its own instructions only,
and a call that waits for another process may not return for minutes. So a call in the main thread has Python write
each signal to a pipe (signal.set_wakeup_fd). A thread of this module reads it, and cancels a call that has not returned a
moment later, through the descriptor that the object was opened with. Python then runs its handlers. If they raise
nothing, the call is made again, with the time that is left.

A write must not be made again: it may have taken effect, and another client may have written since. And joining a round
again would cost the node its place. Where a signal handler may return, these calls are made in a thread of their own:
the main thread waits for it in Python, and runs the handlers there.
"""
from __future__ import annotations

import _signal  # type: ignore[import]
import _thread
import _weakref
import atexit
import itertools
import os
import time
from ctypes import byref, c_void_p, sizeof, string_at

from rdzv._library import Bytes, ErrorStruct, Log, LogWrite, Value, library
from rdzv.errors import Canceled, Invalid, Timeout, error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from ctypes import Array
    from datetime import timedelta
    from typing import Any, Union

    from typing_extensions import Self

    Text = Union[str, bytes]
    Data = Union[str, bytes, bytearray, memoryview]
    Seconds = Union[float, timedelta]
    LogFunction = Callable[[str, str], object]

CANCELED = -4
MOMENT = 0.05  # seconds from a signal until the call is canceled: most calls return by themselves before
LONGEST = 2**53  # milliseconds; what a timeout may be at most
NUMBERS = tuple(map(int, _signal.valid_signals()))
LEVELS = ("off", "error", "warning", "info", "debug")


# ---- arguments ----------------------------------------------------------------------------------------------------


def text_bytes(text: Data) -> bytes:
    """A copy that C can read whatever other threads do to the original. Its type is bytes itself: a subclass of bytes or
    str may have methods that lie about its length."""
    if type(text) is bytes:
        return text
    if isinstance(text, str):
        return str.encode(text, "utf-8", "surrogateescape")
    if isinstance(text, (bytes, bytearray, memoryview)):
        return memoryview(text).tobytes()
    raise TypeError(f"bytes or str is expected, not {type(text).__name__}")


def as_bytes(text: Data) -> Bytes:
    data = text_bytes(text)
    return Bytes(data, len(data))


def optional_text(text: Text | None, what: str = "text") -> bytes | None:
    if text is None:
        return None
    data = text_bytes(text)
    if b"\0" in data:
        raise Invalid(f"{what}: a zero byte is not allowed")
    return data


def as_array(texts: Iterable[Data]) -> tuple[Array[Bytes], int]:
    kept = [as_bytes(text) for text in texts]
    return (Bytes * len(kept))(*kept), len(kept)


def as_arrays(items: Mapping[Data, Data]) -> tuple[Array[Bytes], Array[Bytes], int]:
    """Keys and values of one copy: another thread may change the original meanwhile."""
    own = dict(items)
    keys, count = as_array(own.keys())
    values, _ = as_array(own.values())
    return keys, values, count


def milliseconds(seconds: Seconds) -> int:
    """Of a timeout in seconds, or a timedelta. Rounded up, so that a short one is not none."""
    number = seconds.total_seconds() if hasattr(seconds, "total_seconds") else float(seconds)
    if not number >= 0:
        raise Invalid(f"timeout {seconds}: it must not be negative")
    return min(-int(-number * 1000 // 1), LONGEST) if number < LONGEST else LONGEST


def left_of(began: float, timeout_ms: int) -> int:
    """What is left of a timeout that began at that time of time.monotonic."""
    return max(0, timeout_ms - int((time.monotonic() - began) * 1000))


def milliseconds_or(seconds: Seconds | None, default: int) -> int:
    return default if seconds is None else milliseconds(seconds)


def limited(function: Callable[..., int], timeout: Seconds | None) -> Callable[..., int]:
    """The function of a store with a timeout of its own, in whichever thread it is called."""
    if timeout is None:
        return function
    number = milliseconds(timeout)

    def call(*arguments: object) -> int:
        try:
            library.rdzv_store_limit_calls(number)
            return function(*arguments)
        finally:
            library.rdzv_store_limit_calls(-1)

    return call


# ---- results ------------------------------------------------------------------------------------------------------


def take(value: Value) -> bytes:
    """What the library gave, which is freed."""
    data = string_at(value.data, value.len)
    library.rdzv_value_free(byref(value))
    return data


def take_all(values: Any, count: int) -> list[bytes]:
    data = [string_at(values[i].data, values[i].len) for i in range(count)]
    library.rdzv_values_free(values, count)
    return data


def text_of(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "surrogateescape")


def failure(code: int, error: ErrorStruct) -> Exception:
    message = error.message if error.code == code else library.rdzv_error_text(code)
    return error_of(code, message.decode("utf-8", "replace"))


# ---- a call in the main thread ------------------------------------------------------------------------------------


class Signals:
    """Where Python writes signals while the main thread is in a call, and the thread that reads them."""

    def __init__(self) -> None:
        self.main = 0
        self.read_fd = self.write_fd = -1
        self.interrupt: tuple[Callable[[int], None], int] | None = None  # what ends the call of the main thread
        self.fired = False  # was it called?
        self.cancel: Cancel | None = None  # what it raises
        self.raised: BaseException | None = None  # by a signal handler, in a callback
        self.forward_fd = -1
        self.number = 0
        self.lock = _thread.allocate_lock()

    def reset(self) -> None:
        """In a child of fork: the thread is not there. The main thread of the parent may be in a call."""
        before = _signal.set_wakeup_fd(-1)
        if before == self.write_fd:
            before = self.forward_fd
        if before >= 0:
            try:
                _signal.set_wakeup_fd(before)
            except (OSError, ValueError):  # it is closed since
                pass
        for fd in (self.read_fd, self.write_fd):
            if fd >= 0:
                os.close(fd)
        self.__init__()  # type: ignore[misc]
        self.find_main()

    def find_main(self) -> None:
        import threading
        self.main = threading.main_thread().ident or 0

    def start(self) -> None:
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.write_fd, False)
        _thread.start_new_thread(self.watch, (self.read_fd,))

    def watch(self, fd: int) -> None:
        while True:
            try:
                caught = os.read(fd, 64)
            except OSError:
                return
            if not caught:
                return
            current = self.interrupt
            if self.forward_fd >= 0:
                try:
                    os.write(self.forward_fd, caught)
                except OSError:
                    pass
            if current:
                time.sleep(MOMENT)
                self.fire(current, caught)

    def fire(self, current: tuple[Callable[[int], None], int], caught: bytes) -> None:
        with self.lock:
            if self.interrupt is current:
                self.fired = True
                for number in caught:
                    current[0](number)

    def over(self) -> None:
        """The call has returned; nothing ends it from here on. Also before a call: Python may have raised in the middle of
        this."""
        with self.lock:
            self.interrupt = None
        if self.fired and self.cancel:
            self.cancel.down()
        self.fired, self.cancel = False, None


raised_by_signals: tuple[type[Exception], ...] = ()  # by handlers that a program has set
signals = Signals()
signals.find_main()
os.register_at_fork(after_in_child=signals.reset)


def handlers_may_return() -> bool:
    """Has the program a signal handler that need not raise, so that the call that it interrupts has to go on? SIGINT's
    own handler always raises."""
    for number in NUMBERS:
        handler = _signal.getsignal(number)
        if callable(handler) and handler is not _signal.default_int_handler:
            return True
    return False


def call_in_main(interrupt: Callable[[int], None], cancel: Cancel, function: Callable[..., int],
                 arguments: Sequence[object]) -> int:
    if signals.write_fd < 0:
        signals.start()
    if signals.fired or signals.interrupt:  # Python may have raised before the end of the last call was noted
        signals.over()
    signals.number += 1
    signals.cancel = cancel
    before = _signal.set_wakeup_fd(signals.write_fd, warn_on_full_buffer=False)
    try:
        signals.forward_fd = before if before != signals.write_fd else -1
        signals.interrupt = (interrupt, signals.number)
        return function(*arguments)
    finally:
        signals.over()
        _signal.set_wakeup_fd(signals.forward_fd)
        if signals.raised:
            raised, signals.raised = signals.raised, None
            raise raised


class Handle:
    """What belongs to this process and to one Python object: a pointer of the library, a descriptor. A copy would free
    it a second time, and in another process it means nothing."""

    __slots__ = ()
    _kind = "handle"
    _instead = "make another one"

    def __reduce__(self) -> Any:
        """What pickle, copy and multiprocessing call. A subclass may say how it is opened again."""
        raise TypeError(f"a {self._kind} of rdzv cannot be copied or pickled: it is a handle of this process "
                        f"({self._instead})")


class Cancel(Handle):
    """A descriptor that cancels calls while it is readable. A view has that of its base."""

    __slots__ = ("fds", "fd", "end", "pid", "for_good")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.for_good = False  # by the user, not by a signal
        self.fds: list[int] = []
        # In one call of C each: Python does not raise between making a descriptor and storing it.
        if hasattr(os, "eventfd"):
            self.fds.extend(map(os.eventfd, (0,), (os.O_CLOEXEC | os.O_NONBLOCK,)))  # the values of EFD_…
        else:
            self.fds.extend(itertools.chain.from_iterable(map(os.pipe2, (os.O_CLOEXEC | os.O_NONBLOCK,))))
        self.fd, self.end = self.fds[0], self.fds[-1]

    def up(self, _number: int = 0) -> None:
        if self.pid != os.getpid():
            return  # a child of fork shares the descriptor, not the calls
        try:
            os.write(self.end, b"\1\0\0\0\0\0\0\0")
        except OSError:
            pass

    def down(self) -> None:
        try:
            os.read(self.fd, 8)
        except OSError:
            pass

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        """May be called when the modules of an ending interpreter are empty already."""
        for fd in getattr(self, "fds", ()):
            try:
                close(fd)
            except OSError:
                pass


# ---- objects of the library ---------------------------------------------------------------------------------------

live: dict[int, Any] = {}  # weak references to what is to be closed before the interpreter ends


class Object(Handle):
    """One object of the library. It is freed when it is closed, or when the last reference to it goes."""

    _waits = True  # may a call that changes something wait for another process?

    def __init__(self, cancel: Cancel | None = None) -> None:
        self._pointer: int | None = None
        self._cancel = cancel or Cancel()
        self._calls: set[object] = set()  # one for each call that runs
        self._abandoned: set[int] = set()  # threads whose call is not to go on
        self._done: Any = None  # set when a call ends while another thread closes

    def _free(self, pointer: int) -> None:
        raise NotImplementedError

    def _stop(self, pointer: int) -> None:
        """Makes calls that run return soon."""
        self._cancel.up()

    def _try(self, function: Callable[..., int], *arguments: object) -> bool:
        """Calls function(pointer, *arguments, error), which returns 0 or a code. False: a signal ended the call, and
        its handler did not raise."""
        error = ErrorStruct()
        calls, token = self._calls, object()
        try:
            calls.add(token)  # a signal handler may raise right after it
            pointer = self._pointer
            if not pointer:
                raise Invalid(f"the {self._kind} is closed")
            if _thread.get_ident() == signals.main:
                code = call_in_main(self._interrupt, self._cancel, function, (pointer, *arguments, error))
            else:
                code = function(pointer, *arguments, error)
        finally:
            calls.discard(token)
            if self._done:
                self._done.set()
        if code >= 0:
            return True
        if code != CANCELED or not self._pointer or self._cancel.for_good or _thread.get_ident() in self._abandoned:
            raise failure(code, error)
        return False

    def _call(self, function: Callable[..., int], *arguments: object) -> None:
        """A call that can be made again after a signal."""
        while not self._try(function, *arguments):
            pass

    def _once(self, function: Callable[..., int], *arguments: object) -> None:
        """A call that must not be made twice."""
        if not self._try(function, *arguments):
            raise Canceled(f"the call on the {self._kind} was interrupted by a signal (it may have taken effect)")

    def _write(self, function: Callable[..., int], *arguments: object) -> None:
        """A call that must not be made twice, nor be canceled by a signal whose handler raises nothing."""
        if self._waits:
            self._patiently(self._once, function, *arguments)
        else:
            self._once(function, *arguments)

    def _patiently(self, how: Callable[..., None], *arguments: object) -> None:
        """Calls how(*arguments), in a thread of its own where a signal in the main thread might cancel it for nothing."""
        if _thread.get_ident() != signals.main or not handlers_may_return():
            how(*arguments)
        else:
            self._apart(-1, how, *arguments)

    def _apart(self, seconds: float, how: Callable[..., None], *arguments: object) -> None:
        """Calls how(*arguments) in a thread of its own, and ends it when the time is over; -1: never. Timeout."""
        begun: list[int] = []
        given_up: list[None] = []
        raised: list[BaseException] = []
        done = _thread.allocate_lock()
        done.acquire()

        def run() -> None:
            begun.append(_thread.get_ident())
            try:
                if not given_up:
                    how(*arguments)
            except BaseException as error:
                raised.append(error)
            finally:
                done.release()

        in_time = False
        try:
            _thread.start_new_thread(run, ())
            in_time = done.acquire(True, min(seconds, _thread.TIMEOUT_MAX))  # Python runs signal handlers here
        finally:
            if not in_time:
                given_up.append(None)
                self._abandon(begun, done)
        if not in_time and (not begun or (raised and isinstance(raised[0], Canceled))):
            raise Timeout(f"the call on the {self._kind} did not end within {seconds:g} s")
        if raised:
            raise raised.pop()

    def _abandon(self, begun: list[int], done: Any) -> None:
        """Ends the call of the other thread, if it has begun."""
        if not begun:
            return
        self._abandoned.update(begun)
        self._cancel.up()
        try:
            done.acquire()
        finally:
            self._cancel.down()
            self._abandoned.difference_update(begun)

    def _interrupt(self, number: int) -> None:
        self._cancel.up()

    def _ask(self, function: Callable[[int], Any]) -> Any:
        """Calls a function that does not wait and cannot fail."""
        token = object()
        try:
            self._calls.add(token)
            if not self._pointer:
                raise Invalid(f"the {self._kind} is closed")
            return function(self._pointer)
        finally:
            self._calls.discard(token)
            if self._done:
                self._done.set()

    @property
    def closed(self) -> bool:
        """Was close() called?"""
        return self._pointer is None

    def close(self) -> None:
        """Frees the object. Calls of other threads that run on it return with Canceled first."""
        self._close(None)

    def _close(self, patience: float | None) -> None:
        pointer, self._pointer = self._pointer, None
        if not pointer:
            return
        if self._calls and self._cancel.pid == os.getpid():  # in a child of fork they are those of the parent
            import threading
            self._done = threading.Event()
            self._stop(pointer)
            until = None if patience is None else time.monotonic() + patience
            while self._calls:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return  # the interpreter ends: it is left as it is
                self._done.wait(left)
                self._done.clear()
        self._free(pointer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        pointer, self._pointer = getattr(self, "_pointer", None), None
        if pointer:
            self._free(pointer)


def open_object(opened: Object, function: Callable[..., int], *arguments: object) -> None:
    """Calls function(*arguments, out, error), and gives the object what it opened. The time to open restarts after a
    signal whose handler raises nothing."""
    while True:
        out, error = c_void_p(), ErrorStruct()
        full = (*arguments, byref(out), error)
        try:
            if _thread.get_ident() == signals.main:
                code = call_in_main(opened._cancel.up, opened._cancel, function, full)
            else:
                code = function(*full)
        finally:
            if out:  # also where a signal handler has raised since: it is freed with the object
                opened._pointer = out.value  # without a call, in which another one could raise
        if code >= 0:
            keep(opened)
            return
        if code != CANCELED or opened._cancel.for_good:
            raise failure(code, error)


# ---- the end of the interpreter -----------------------------------------------------------------------------------


def keep(opened: Object) -> None:
    number = id(opened)
    live[number] = _weakref.ref(opened, lambda _: live.pop(number, None))


def close_all() -> None:
    """Threads of the library must not call into an interpreter that ends. A thread of Python's that is in a call when
    this is called gets a moment to come out of it."""
    for reference in list(live.values()):
        opened = reference()
        if opened is not None and opened._pointer and opened._cancel.pid == os.getpid():
            opened._close(1.0)


atexit.register(close_all)


# ---- callbacks and logs ---------------------------------------------------------------------------------------------------------


def end_callback(error: BaseException) -> None:
    """What a callback raises must not end what it tells. A signal's exception is raised when the call returns, which
    the signal ends."""
    is_signal = not isinstance(error, Exception) or isinstance(error, raised_by_signals)
    if is_signal and _thread.get_ident() == signals.main:
        signals.raised = error


def make_log(log: LogFunction | None, level: str) -> tuple[Log | None, object]:
    """A log for options, and what must be kept as long as it is used. log(level, line)."""
    if log is None:
        return None, None
    if level not in LEVELS:
        raise Invalid(f"log level '{level}': choose one of {', '.join(LEVELS)}")
    write: LogFunction = log

    def pass_on(_user: object, number: int, line: bytes) -> None:
        try:
            write(LEVELS[number], line.decode("utf-8", "replace"))
        except BaseException as error:
            end_callback(error)

    function = LogWrite(pass_on)
    made = Log(write=function, level=LEVELS.index(level))
    made.size = sizeof(made)
    return made, (function, made)
