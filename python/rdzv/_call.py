# SPDX-License-Identifier: BSD-3-Clause
"""How a call goes to the library: its errors, its end by a signal, objects that are closed while calls run on them.

ctypes lets other threads run during a call. But Python runs signal handlers in the main thread only, between two of its
own instructions, and a call that waits for another process may not return for minutes.

A call that can be made again is made directly. Python's own signal handler ends it: it writes to the descriptor that
cancels the calls of this thread (signal.set_wakeup_fd). Then Python runs the handlers of the program. If one raises,
that is the end. If all return, the call is made again as follows, so that frequent signals end it once only.

A call that must not be made twice is made directly only if the program has no signal handlers: Ctrl-C always raises. If
it has some, the call is made in a thread of its own. The main thread waits for it in Python, and runs the handlers
there. A handler that returns changes nothing. A handler that raises ends the call.

A call is canceled by the descriptor of its thread (rdzv_thread_cancel_fd). Calls of other threads on the same object go
on.
"""
from __future__ import annotations

import _signal  # type: ignore[import]
import _thread
import _weakref
import atexit
import itertools
import operator
import os
import select
import time
from ctypes import byref, c_void_p, sizeof, string_at

from rdzv._library import Bytes, ErrorStruct, Log, LogWrite, Value, library
from rdzv.errors import Invalid, Timeout, error_of

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
    # The keys of a Mapping are invariant: a dict[str, bytes] is no Mapping[Data, Data].
    Items = Union[Mapping[str, Data], Mapping[bytes, Data], Mapping[Data, Data]]
    LogFunction = Callable[[str, str], object]

CANCELED = -4
A_LOOK = 0.1  # seconds: a signal that another thread has caught is handled so much later at most
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


def needed_text(text: Text, what: str) -> bytes:
    """For C, which does not expect NULL there."""
    data = optional_text(text, what)
    if data is None:
        raise TypeError(f"{what}: bytes or str is expected, not None")
    return data


def integer(number: int, kind: Any, what: str) -> int:
    """A number that fits into the type of C: ctypes would cut it off."""
    value = operator.index(number)
    if kind(value).value != value:
        raise OverflowError(f"{what} {value}: it does not fit into {8 * sizeof(kind)} bits" +
                            (", or is negative" if value < 0 else ""))
    return value


def as_array(texts: Iterable[Data]) -> tuple[Array[Bytes], int]:
    kept = [as_bytes(text) for text in texts]
    return (Bytes * len(kept))(*kept), len(kept)


def as_arrays(items: Items) -> tuple[Array[Bytes], Array[Bytes], int]:
    """Keys and values of one copy: another thread may change the original meanwhile."""
    copy: dict[Any, Data] = dict(items)
    keys, count = as_array(copy.keys())
    values, _ = as_array(copy.values())
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
        before = getattr(own, "limit", -1)  # of the call that this one is nested in
        try:
            own.limit = number
            library.rdzv_store_limit_calls(number)
            return function(*arguments)
        finally:
            own.limit = before
            library.rdzv_store_limit_calls(before)

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


# ---- what ends a call -------------------------------------------------------------------------------------------


class Handle:
    """What belongs to this process and to one Python object: a pointer of the library, a descriptor. A copy would free
    it a second time, and in another process it means nothing."""

    __slots__ = ()
    _kind = "handle"
    _instead = "make another one"

    def __reduce__(self) -> Any:
        """What pickle, copy and multiprocessing call. A subclass may say how it is opened again."""
        article = "an" if self._kind[0] in "aeiouE" else "a"
        raise TypeError(f"{article} {self._kind} of rdzv cannot be copied or pickled: it is a handle of this process "
                        f"({self._instead})")


class Cancel(Handle):
    """A pipe that cancels the calls of one thread while it can be read."""

    __slots__ = ("fds", "fd", "end", "lock", "look", "call", "stopped", "signaled")

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()
        self.call: Call | None = None  # the innermost call of the thread
        self.stopped = False  # another thread may have written
        self.signaled = False  # a signal may have
        self.fds: list[int] = []
        # In one call of C: Python does not raise between making the descriptors and storing them.
        self.fds.extend(itertools.chain.from_iterable(map(os.pipe2, (os.O_CLOEXEC | os.O_NONBLOCK,))))
        self.fd, self.end = self.fds
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        self.look = poll.poll

    def up(self) -> None:
        try:
            os.write(self.end, b"\1")
        except OSError:  # it is full: it is up
            pass

    def stop(self, call: Call) -> None:
        with self.lock:
            self.stopped = True  # before the look: the thread looks in the other order
            if call.running:
                self.up()

    def down(self) -> None:
        with self.lock:
            self.stopped = self.signaled = False
            try:
                while len(os.read(self.fd, 4096)) == 4096:
                    pass
            except OSError:  # it is empty
                pass
            if self.call is not None and self.call.running and self.call.stopped:
                self.stopped = True
                self.up()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        """May be called when the modules of an ending interpreter are empty already."""
        for fd in getattr(self, "fds", ()):
            try:
                close(fd)
            except OSError:
                pass


class Call:
    """One call on an object. Another thread, or a signal handler, can stop it."""

    __slots__ = ("thread", "cancel", "running", "stopped", "signaled")

    def __init__(self) -> None:
        self.thread = _thread.get_ident()
        self.cancel: Cancel | None = None
        self.running = True
        self.stopped = False
        self.signaled = False  # a signal came during it

    def stop(self) -> None:
        self.stopped = True
        if self.cancel is not None:
            self.cancel.stop(self)


class Threads:
    """The main thread, and descriptors that no thread uses."""

    def __init__(self) -> None:
        self.main = 0
        self.spare: list[Cancel] = []
        self.wakes = -1  # the wake-up descriptor of Python while the main thread is in a call
        self.raised: BaseException | None = None  # by a signal, in a callback

    def find_main(self) -> None:
        import threading
        self.main = threading.main_thread().ident or 0

    def reset(self) -> None:
        """In a child of fork: descriptors are those of the parent."""
        if self.wakes >= 0:
            _signal.set_wakeup_fd(-1)
        library.rdzv_thread_cancel_fd(0)
        own.__dict__.clear()
        self.__init__()  # type: ignore[misc]
        self.find_main()


own: Any = _thread._local()  # type: ignore[attr-defined]  # cancel: the Cancel of this thread; limit: the timeout of its call in milliseconds
raised_by_signals: tuple[type[Exception], ...] = ()  # by handlers that a program has set
threads = Threads()
threads.find_main()
os.register_at_fork(after_in_child=threads.reset)


def own_cancel() -> Cancel:
    cancel: Cancel | None = getattr(own, "cancel", None)
    if cancel is None:
        cancel = own.cancel = Cancel()
        library.rdzv_thread_cancel_fd(cancel.fd)
    return cancel


def in_main() -> bool:
    return _thread.get_ident() == threads.main


NONE = frozenset((None, 0, 1, _signal.default_int_handler))  # SIG_DFL, SIG_IGN; Ctrl-C always raises


def has_handlers() -> bool:
    """Has the program a signal handler of its own?"""
    try:
        return not NONE.issuperset(map(_signal.getsignal, NUMBERS))
    except TypeError:  # it cannot be hashed
        return True


def take_raised() -> None:
    """Raises what a signal has raised in a callback."""
    if threads.raised is not None:
        raised, threads.raised = threads.raised, None
        raise raised


def call_in_main(cancel: Cancel, function: Callable[..., int], arguments: Sequence[object]) -> int | None:
    """A signal ends the call. None: the program has a wake-up descriptor of its own, and the call was not made."""
    before = -1
    cancel.signaled = True  # until it is certain that no signal has come
    try:
        threads.wakes = cancel.end
        before = _signal.set_wakeup_fd(cancel.end, warn_on_full_buffer=False)
        code = function(*arguments) if before in (-1, cancel.end) else None
    finally:
        if before != cancel.end:  # a call in a callback of another one leaves it
            _signal.set_wakeup_fd(before)
            threads.wakes = -1
    if before != cancel.end:
        cancel.signaled = bool(cancel.look(0))
    take_raised()
    return code


class Told:
    """Tells each signal that Python catches to a function, while the main thread is in a long call."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self.tell = tell
        self.ended = _thread.allocate_lock()
        self.ended.acquire()
        self.read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.write_fd, False)

    def __enter__(self) -> Told:
        self.before = _signal.set_wakeup_fd(self.write_fd, warn_on_full_buffer=False)
        threads.wakes = self.write_fd
        _thread.start_new_thread(self.run, ())
        return self

    def run(self) -> None:
        try:
            while caught := os.read(self.read_fd, 64):
                if self.before >= 0:
                    try:
                        os.write(self.before, caught)
                    except OSError:
                        pass
                for number in caught:
                    try:
                        self.tell(number)
                    except Invalid:  # it is closed
                        pass
        finally:
            self.ended.release()

    def __exit__(self, *_exception: object) -> None:
        _signal.set_wakeup_fd(self.before)
        threads.wakes = -1
        os.close(self.write_fd)
        self.ended.acquire()
        os.close(self.read_fd)


# ---- objects of the library ---------------------------------------------------------------------------------------

live: dict[int, Any] = {}  # weak references to what is to be closed before the interpreter ends


class Object(Handle):
    """One object of the library. It is freed when it is closed, or when the last reference to it goes."""

    _waits = True  # may a call that changes something wait for another process?

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._pointer: int | None = None
        self._late: list[int] = []  # the pointer of a closed object on which calls run
        self._calls: set[Call] = set()
        self._paused: set[Call] = set()  # calls of the main thread that a signal handler can pause; of all views, too
        self._done: Any = None  # set when a call ends while another thread closes

    def _free(self, pointer: int) -> None:
        raise NotImplementedError

    def _stop(self, pointer: int) -> None:
        """Makes calls that run return soon, but for those of threads of Python's."""

    # ---- one call

    def _here(self, call: Call, function: Callable[..., int], arguments: Sequence[object],
              error: ErrorStruct) -> int | None:
        """Calls function(pointer, *arguments, error) in this thread."""
        cancel, calls = own_cancel(), self._calls
        outer = cancel.call
        try:
            calls.add(call)  # a signal may raise right after it
            call.thread, call.cancel = _thread.get_ident(), cancel
            if cancel.signaled or cancel.stopped:
                cancel.down()
            cancel.call = call
            pointer = self._pointer
            if not pointer:
                raise closed_error(self)
            if call.stopped:
                return CANCELED
            if call.thread == threads.main:
                code = call_in_main(cancel, function, (pointer, *arguments, error))
                call.signaled = cancel.signaled
                return code
            return function(pointer, *arguments, error)
        finally:
            call.running = False
            cancel.call = outer
            calls.discard(call)
            if self._late:
                self._over()
            if cancel.stopped:
                cancel.down()

    def _over(self) -> None:
        """A call has ended on an object that is closed."""
        if self._done:
            self._done.set()
        self._free_late()

    def _free_late(self) -> None:
        if not self._calls:
            try:
                pointer = self._late.pop()
            except IndexError:
                return
            self._free(pointer)

    def _run(self, call: Call, seconds: float, function: Callable[..., int], arguments: Sequence[object],
             error: ErrorStruct, *, repeats: bool = False) -> int:
        """`repeats`: the caller makes the call again if a signal ends it."""
        code = None
        if seconds < 0 and (not in_main() or (repeats and own_cancel().call is None) or not has_handlers()):
            code = self._here(call, function, arguments, error)
        if code is None:
            code = self._apart(call, seconds, function, arguments, error)
        return code

    def _apart(self, call: Call, seconds: float, function: Callable[..., int], arguments: Sequence[object],
               error: ErrorStruct) -> int:
        """The same in a thread of its own, which is ended when the time is over; -1: never."""
        call.cancel, call.running = None, True
        apart = Apart(self, call, function, arguments, error)
        try:
            _thread.start_new_thread(apart.run, ())
            in_time = apart.wait(seconds)
            if not in_time:
                call.stop()
                apart.wait(-1)
        except BaseException:
            call.stop()
            if not apart.claim.acquire(False):  # else it does not begin
                apart.wait(-1)
            raise
        code = apart.result()
        if code == CANCELED and not in_time:
            raise Timeout(f"the call on the {self._kind} did not end within {seconds:g} s")
        return code

    # ---- kinds of calls

    def _try(self, function: Callable[..., int], *arguments: object, again: bool = False) -> bool:
        """Calls function(pointer, *arguments, error), which returns 0 or a code. False: a signal came, or its handler has
        used the object, and the call is to be made again, with `again`."""
        call, error = Call(), ErrorStruct()
        is_main = in_main()
        try:
            if is_main:
                self._pause()
                self._paused.add(call)
            code = self._run(call, -1, function, arguments, error, repeats=not again)
        finally:
            if is_main:
                self._paused.discard(call)
        if code >= 0:
            return True
        if code != CANCELED or not self._pointer or not (call.stopped or call.signaled):
            raise failure(code, error)
        return False

    def _pause(self) -> None:
        """In a signal handler: the call that it interrupts lets this one go first."""
        for call in list(self._paused):
            call.stop()

    def _call(self, function: Callable[..., int], *arguments: object) -> None:
        """A call that can be made again."""
        again = False
        while not self._try(function, *arguments, again=again):
            again = True

    def _once(self, function: Callable[..., int], *arguments: object, seconds: float = -1) -> None:
        """A call that must not be made twice."""
        error = ErrorStruct()
        if self._paused and in_main():
            self._pause()
        code = self._run(Call(), seconds, function, arguments, error)
        if code < 0:
            raise failure(code, error)

    def _write(self, function: Callable[..., int], *arguments: object) -> None:
        """A call that must not be made twice. If it does not wait, nothing needs to end it."""
        if self._waits:
            self._once(function, *arguments)
            return
        error = ErrorStruct()
        code = self._ask(lambda pointer: function(pointer, *arguments, error))
        if code < 0:
            raise failure(code, error)

    def _told(self, function: Callable[..., int], *arguments: object) -> None:
        """A call in this thread that ends as _interrupt makes it end when a signal comes."""
        error = ErrorStruct()

        def call(pointer: int) -> int:
            code: int = function(pointer, *arguments, error)
            return code

        if in_main():
            with Told(self._interrupt):
                code = self._ask(call)
            take_raised()
        else:
            code = self._ask(call)
        if code < 0:
            raise failure(code, error)

    def _interrupt(self, number: int) -> None:
        """A signal has come while _told runs."""

    def _ask(self, function: Callable[[int], Any]) -> Any:
        """Calls a function that no signal ends."""
        call, calls = Call(), self._calls
        try:
            calls.add(call)
            pointer = self._pointer
            if not pointer:
                raise closed_error(self)
            return function(pointer)
        finally:
            call.running = False
            calls.discard(call)
            if self._late:
                self._over()

    # ---- closing

    @property
    def closed(self) -> bool:
        """Was close() called?"""
        return self._pointer is None

    def close(self) -> None:
        """Frees the object. Calls that run on it return with Canceled first. In a callback or a signal handler of a call
        on it, the object is freed when that call returns."""
        self._close(None)

    def _close(self, patience: float | None) -> bool:
        """False: the time was over, and the object is left as it is."""
        pointer, self._pointer = self._pointer, None
        if not pointer:
            return not self._late
        busy, closing = bool(self._calls), Call()
        try:
            self._calls.add(closing)  # a call that ends meanwhile must not free what _stop uses
            self._late.append(pointer)
            if self._pid != os.getpid():
                self._calls.clear()  # of the parent
            elif busy and not self._end_calls(pointer, patience):
                self._late.clear()
                return False
        finally:
            self._calls.discard(closing)
            self._free_late()
        return True

    def _end_calls(self, pointer: int, patience: float | None) -> bool:
        """Waits for the calls of other threads."""
        import threading
        self._done = threading.Event()
        self._stop(pointer)
        until = None if patience is None else time.monotonic() + patience
        this = _thread.get_ident()
        while True:
            running = [call for call in list(self._calls) if call.thread != this]
            for call in running:
                call.stop()
            if not running:
                return True
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._done.wait(left)
            self._done.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        pointer, self._pointer = getattr(self, "_pointer", None), None
        if pointer:
            self._free(pointer)


class Apart:
    """A call in a thread of its own."""

    def __init__(self, opened: Object, call: Call, function: Callable[..., int], arguments: Sequence[object],
                 error: ErrorStruct) -> None:
        self.opened, self.call = opened, call
        self.function, self.arguments, self.error = function, arguments, error
        self.claim = _thread.allocate_lock()  # whoever takes it decides whether the call is made
        self.done = _thread.allocate_lock()
        self.done.acquire()
        self.outcome: list[int | BaseException] = []

    def run(self) -> None:
        if not self.claim.acquire(False):
            return
        outcome: int | BaseException = CANCELED
        try:
            own.cancel = threads.spare.pop() if threads.spare else Cancel()
            library.rdzv_thread_cancel_fd(own.cancel.fd)
            outcome = self.opened._here(self.call, self.function, self.arguments, self.error) or 0
            own.cancel.down()
            threads.spare.append(own.cancel)
        except BaseException as error:
            outcome = error
        finally:
            self.outcome.append(outcome)
            self.done.release()

    def wait(self, seconds: float) -> bool:
        """Python runs signal handlers here. They may raise at any moment, so the outcome tells whether it is done."""
        until = time.monotonic() + seconds
        while not self.outcome:
            left = min(A_LOOK, until - time.monotonic()) if seconds >= 0 else A_LOOK
            if left <= 0:
                return False
            self.done.acquire(True, left)
        return True

    def result(self) -> int:
        outcome = self.outcome[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def closed_error(opened: Object) -> Invalid:
    return Invalid(f"the {opened._kind} is closed")


class Opening(Object):
    """An object that is being opened: its calls can be ended as those of others."""

    def __init__(self, opened: Object) -> None:
        super().__init__()
        self._kind, self._pointer = opened._kind, 1

    def _free(self, pointer: int) -> None:
        pass


def open_object(opened: Object, function: Callable[..., int], *arguments: object, here: bool = False) -> None:
    """Calls function(*arguments, out, error), and gives the object what it opened. `here`: in this thread in any case."""
    out, error, opening = c_void_p(), ErrorStruct(), Opening(opened)

    def call(_pointer: int, *full: object) -> int:
        return function(*full)

    full = (*arguments, byref(out))
    try:
        if here:
            code = opening._ask(lambda pointer: call(pointer, *full, error))
        else:
            code = opening._run(Call(), -1, call, full, error)
    finally:
        if out:  # also where a signal handler has raised since: it is freed with the object
            opened._pointer = out.value  # without a call, in which another one could raise
    if code < 0:
        raise failure(code, error)
    keep(opened)


# ---- the end of the interpreter -----------------------------------------------------------------------------------


def keep(opened: Object) -> None:
    number = id(opened)
    live[number] = _weakref.ref(opened, lambda _: live.pop(number, None))


def close_all() -> None:
    """Threads of the library must not call into an interpreter that ends. A thread of Python's that is in a call when
    this is called gets a moment to come out of it."""
    for reference in list(live.values()):
        opened = reference()
        if opened is not None and opened._pointer and opened._pid == os.getpid():
            opened._close(1.0)


atexit.register(close_all)


# ---- callbacks and logs ---------------------------------------------------------------------------------------------------------


def end_callback(error: BaseException) -> None:
    """What a callback raises must not end what it tells. A signal's exception is raised when the call returns, which
    the signal ends."""
    is_signal = not isinstance(error, Exception) or isinstance(error, raised_by_signals)
    if is_signal and in_main():
        threads.raised = error


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
