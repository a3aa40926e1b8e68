# SPDX-License-Identifier: BSD-3-Clause
"""The key-value store of a job: the contract of PyTorch's c10d Store, on several implementations. See rdzv/store.h.

Keys and values are bytes or str; str is UTF-8. Values come back as bytes. Timeouts are seconds or timedelta.

    with rdzv.Store.tcp("localhost:29400") as store:
        store.set("key", "value")
        store.get("key")
"""
from __future__ import annotations

import time
from ctypes import POINTER, byref, c_bool, c_int64, c_size_t, c_uint64, c_void_p, pointer, sizeof

from rdzv._call import (Handle, Object, as_array, as_arrays, as_bytes, integer, left_of, limited, make_log,
                        milliseconds, milliseconds_or, needed_text, open_object, optional_text, take, take_all, text_of)
from rdzv._library import (Etcd3StoreOptions, EtcdOptions, EtcdStoreOptions, FileOptions, HashOptions, TcpOptions,
                           Value, library)
from rdzv.errors import Empty, Invalid, Timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TypeVar, overload

    from typing_extensions import Self

    from rdzv._call import Data, Items, LogFunction, Seconds, Text

    Options = TypeVar("Options", bound=Any)
    Default = TypeVar("Default")
else:
    def overload(function: object) -> object:
        """typing is not imported."""
        return function

DEFAULT_PORT = 29400
DIALECTS = {"auto": 0, "v1": 1, "v2": 2, "rdzv": 3}
FEATURES = {"append": 1, "queues": 2, "list_keys": 4, "versions": 8}
TIMEOUT_OF_STORE = -1


RAISE: Any = object()  # there is no default


class or_default:
    """What a call returns: its value, or the default where it would raise Timeout or Empty."""

    def __init__(self, default: object) -> None:
        self.value = default

    def __enter__(self) -> or_default:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> bool:
        return self.value is not RAISE and kind is not None and issubclass(kind, (Timeout, Empty))


class Store(Object):
    """A handle on a store. Several threads may use it. A call on a tcp handle delays the others: give each thread that
    waits a handle of its own (clone)."""

    _kind = "store"
    _instead = "use clone() in this process, and open the store in the other one"

    def __init__(self) -> None:
        """Not for programs: use hash, file, tcp, etcd, etcd3."""
        super().__init__()
        self._is_view = False
        self._kept: list[object] = []
        self._views: list[Any] = []
        self._patience: float | None = None  # of close, for the views

    # ---- opening

    def _common(self, options: Options, timeout: Seconds | None, log: LogFunction | None, level: str) -> Options:
        made, kept = make_log(log, level)
        self._kept.append(kept)
        options.size = sizeof(options)
        options.timeout_ms = milliseconds_or(timeout, 0)
        if made is not None:
            options.log = pointer(made)
        return options

    def _open(self, timeout: Seconds | None, function: Any, *arguments: object) -> Self:
        open_object(self, function, *arguments)
        if timeout is not None and milliseconds(timeout) == 0:
            self.set_timeout(0)  # in the options that is the default
        return self

    @classmethod
    def hash(cls, *, timeout: Seconds | None = None, log: LogFunction | None = None, level: str = "warning") -> Self:
        """Opens an empty store in this process, which the handle and its clones share."""
        store = cls()
        store._waits = False
        options = store._common(HashOptions(), timeout, log, level)
        return store._open(timeout, library.rdzv_store_open_hash, byref(options))

    @classmethod
    def file(cls, path: Text, *, num_workers: int = 0, run_id: Text | None = None, timeout: Seconds | None = None,
             log: LogFunction | None = None, level: str = "warning") -> Self:
        """Opens a store in a file that several processes share: PyTorch's FileStore."""
        store = cls()
        options = FileOptions(num_workers=integer(num_workers, c_int64, "num_workers"), run_id=optional_text(run_id, "run_id"))
        return store._open(timeout, library.rdzv_store_open_file, needed_text(path, "path"),
                           byref(store._common(options, timeout, log, level)))

    @classmethod
    def tcp(cls, endpoint: Text, *, dialect: str = "auto", announce_worker: bool = False, run_id: Text | None = None,
            secret_file: Text | None = None, tls_ca: Text | None = None, tls_cert: Text | None = None,
            tls_key: Text | None = None, tls_host: Text | None = None, timeout: Seconds | None = None,
            log: LogFunction | None = None, level: str = "warning") -> Self:
        """Opens a client of `rdzv serve` or of a PyTorch TCPStore at "host:port", or of several servers of one state at
        "host:port,host:port"."""
        if dialect not in DIALECTS:
            raise Invalid(f"dialect '{dialect}': choose one of {', '.join(DIALECTS)}")
        store = cls()
        options = TcpOptions(dialect=DIALECTS[dialect], announce_worker=announce_worker,
                             run_id=optional_text(run_id, "run_id"),
                             secret_file=optional_text(secret_file, "secret_file"),
                             tls_ca=optional_text(tls_ca, "tls_ca"), tls_cert=optional_text(tls_cert, "tls_cert"),
                             tls_key=optional_text(tls_key, "tls_key"), tls_host=optional_text(tls_host, "tls_host"))
        return store._open(timeout, library.rdzv_store_open_tcp, needed_text(endpoint, "endpoint"),
                           byref(store._common(options, timeout, log, level)))

    @classmethod
    def etcd(cls, prefix: Text, etcd: Etcd | None = None, *, timeout: Seconds | None = None,
             log: LogFunction | None = None, level: str = "warning") -> Self:
        """Opens PyTorch's EtcdStore, by the v2 API of etcd."""
        store = cls()
        options = store._common(EtcdStoreOptions(), timeout, log, level)
        options.etcd = etcd_options(Etcd() if etcd is None else etcd)
        return store._open(timeout, library.rdzv_store_open_etcd, needed_text(prefix, "prefix"), byref(options))

    @classmethod
    def etcd3(cls, prefix: Text, etcd: Etcd | None = None, *, lease: Seconds | None = None,
              timeout: Seconds | None = None, log: LogFunction | None = None, level: str = "warning") -> Self:
        """Opens a store by the v3 API of etcd. `lease`: how long keys stay after the last handle is freed."""
        store = cls()
        options = store._common(Etcd3StoreOptions(lease_ms=milliseconds_or(lease, 0)), timeout, log, level)
        options.etcd = etcd_options(Etcd() if etcd is None else etcd)
        return store._open(timeout, library.rdzv_store_open_etcd3, needed_text(prefix, "prefix"), byref(options))

    def prefix(self, prefix: Data) -> Self:
        """Opens a view in which the key k is the key "prefix/k" of this store. It is closed with this store."""
        import weakref
        view = type(self)()
        view._waits, view._is_view, view._paused = self._waits, True, self._paused
        view._kept.append(self)  # it must outlive the view

        def open_view(base: int) -> None:
            open_object(view, library.rdzv_store_open_prefix, base, as_bytes(prefix))
            self._views = [each for each in self._views if each() is not None] + [weakref.ref(view)]

        self._ask(open_view)  # close() waits for it, and then closes the views
        return view

    def clone(self) -> Self:
        """Opens a second handle on the same store, with its own connection."""
        store = type(self)()
        store._waits = self._waits
        store._kept.append(self._kept[0] if self._kept else None)
        self._ask(lambda base: open_object(store, library.rdzv_store_clone_with, base, 0))
        return store

    def _stop(self, pointer: int) -> None:
        if not self._is_view:  # a view and its base are canceled together
            library.rdzv_store_cancel(pointer)

    def _free(self, pointer: int) -> None:
        views = [view() for view in self._views]
        if all([view is None or view._close(self._patience) for view in views]):
            library.rdzv_store_free(pointer)

    def _close(self, patience: float | None) -> bool:
        self._patience = patience
        return super()._close(patience)

    def cancel(self) -> None:
        """Makes the running call and all later ones raise Canceled."""
        self._ask(library.rdzv_store_cancel)

    # ---- about the store

    @property
    def timeout(self) -> float:
        """How long get, multi_get, wait and queue_pop wait, in seconds."""
        number: int = self._ask(library.rdzv_store_get_timeout)
        return number / 1000

    @timeout.setter
    def timeout(self, seconds: Seconds) -> None:
        self.set_timeout(seconds)

    def set_timeout(self, seconds: Seconds) -> None:
        self._call(library.rdzv_store_set_timeout, milliseconds(seconds))

    def set_request_timeout(self, seconds: Seconds) -> None:
        """Limits the time of requests that wait for no other process; 0 removes the limit."""
        self._call(library.rdzv_store_set_request_timeout, milliseconds(seconds))

    @property
    def features(self) -> frozenset[str]:
        """What this store has of "append", "queues", "list_keys", "versions"."""
        bits = self._ask(library.rdzv_store_features)
        return frozenset(name for name, bit in FEATURES.items() if bits & bit)

    def describe(self) -> str:
        return text_of(self._ask(library.rdzv_store_describe))

    def __repr__(self) -> str:
        return "<rdzv.Store closed>" if self.closed else f"<rdzv.Store {self.describe()}>"

    # ---- keys and values
    #
    # Each call takes a timeout in place of that of the handle. A call that waits for other processes and has a `default`
    # returns it where it would raise Timeout.

    def set(self, key: Data, value: Data, *, timeout: Seconds | None = None) -> None:
        """Sets the value of a key."""
        self._write(limited(library.rdzv_store_set, timeout), as_bytes(key), as_bytes(value))

    @overload
    def get(self, key: Data, *, timeout: Seconds | None = None) -> bytes: ...
    @overload
    def get(self, key: Data, *, timeout: Seconds | None = None, default: Default) -> bytes | Default: ...

    def get(self, key: Data, *, timeout: Seconds | None = None, default: object = RAISE) -> object:
        """Waits until the key exists, and reads its value."""
        value, name = Value(), as_bytes(key)
        began, total, again = time.monotonic(), milliseconds_or(timeout, TIMEOUT_OF_STORE), False
        with or_default(default) as found:
            while not self._try(limited(library.rdzv_store_get, timeout), name, value, again=again):
                again = True
                self._wait([key], self._left(began, total), again)
            found.value = take(value)
        return found.value

    def add(self, key: Data, delta: int = 1, *, timeout: Seconds | None = None) -> int:
        """Adds to the number in a value, and returns the sum."""
        total = c_int64()
        self._write(limited(library.rdzv_store_add, timeout), as_bytes(key), integer(delta, c_int64, "delta"),
                    byref(total))
        return total.value

    def compare_set(self, key: Data, expected: Data, desired: Data, *, timeout: Seconds | None = None) -> bytes:
        """Sets `desired` if the value is `expected`, and returns the value that holds then."""
        value = Value()
        self._write(limited(library.rdzv_store_compare_set, timeout), as_bytes(key), as_bytes(expected),
                    as_bytes(desired), value)
        return take(value)

    def check(self, keys: Iterable[Data], *, timeout: Seconds | None = None) -> bool:
        """Do all keys exist?"""
        array, count = as_array(keys)
        answer = c_bool()
        self._call(limited(library.rdzv_store_check, timeout), array, count, byref(answer))
        return answer.value

    def wait(self, keys: Iterable[Data], timeout: Seconds | None = None) -> None:
        """Waits until each key existed."""
        self._wait(keys, milliseconds_or(timeout, TIMEOUT_OF_STORE))

    def _wait(self, keys: Iterable[Data], timeout_ms: int, again: bool = False) -> None:
        array, count = as_array(keys)
        began, left = time.monotonic(), timeout_ms
        while not self._try(library.rdzv_store_wait, array, count, left, again=again):
            left, again = self._left(began, timeout_ms), True

    def _left(self, began: float, timeout_ms: int = TIMEOUT_OF_STORE) -> int:
        total = self._ask(library.rdzv_store_get_timeout) if timeout_ms == TIMEOUT_OF_STORE else timeout_ms
        return left_of(began, total)

    def delete_key(self, key: Data, *, timeout: Seconds | None = None) -> bool:
        """Deletes a key, and returns whether it existed."""
        answer = c_bool()
        self._write(limited(library.rdzv_store_delete_key, timeout), as_bytes(key), byref(answer))
        return answer.value

    def num_keys(self, *, timeout: Seconds | None = None) -> int:
        number = c_int64()
        self._call(limited(library.rdzv_store_num_keys, timeout), byref(number))
        return number.value

    def append(self, key: Data, value: Data, *, timeout: Seconds | None = None) -> None:
        """Appends bytes to a value."""
        self._write(limited(library.rdzv_store_append, timeout), as_bytes(key), as_bytes(value))

    @overload
    def multi_get(self, keys: Iterable[Data], *, timeout: Seconds | None = None) -> list[bytes]: ...
    @overload
    def multi_get(self, keys: Iterable[Data], *, timeout: Seconds | None = None,
                  default: Default) -> list[bytes] | Default: ...

    def multi_get(self, keys: Iterable[Data], *, timeout: Seconds | None = None, default: object = RAISE) -> object:
        """Waits until all keys exist, and reads their values."""
        keys = list(keys)
        array, count = as_array(keys)
        values = POINTER(Value)()
        began, total, again = time.monotonic(), milliseconds_or(timeout, TIMEOUT_OF_STORE), False
        with or_default(default) as found:
            while not self._try(limited(library.rdzv_store_multi_get, timeout), array, count, byref(values),
                                again=again):
                again = True
                self._wait(keys, self._left(began, total), again)
            found.value = take_all(values, count)
        return found.value

    def multi_set(self, items: Items, *, timeout: Seconds | None = None) -> None:
        """Sets several keys, in one step where the store can."""
        self._write(limited(library.rdzv_store_multi_set, timeout), *as_arrays(items))

    def publish(self, items: Items, *, timeout: Seconds | None = None) -> None:
        """Sets several keys that no other process writes: a write whose outcome is unknown is repeated."""
        self._write(limited(library.rdzv_store_publish, timeout), *as_arrays(items))

    def list_keys(self, *, timeout: Seconds | None = None) -> list[bytes]:
        values, count = POINTER(Value)(), c_size_t()
        self._call(limited(library.rdzv_store_list_keys, timeout), byref(values), byref(count))
        return take_all(values, count.value)

    # ---- queues

    def queue_push(self, key: Data, value: Data, *, timeout: Seconds | None = None) -> None:
        """Adds a value to the end of a queue."""
        self._write(limited(library.rdzv_store_queue_push, timeout), as_bytes(key), as_bytes(value))

    @overload
    def queue_pop(self, key: Data, block: bool = True, *, timeout: Seconds | None = None) -> bytes: ...
    @overload
    def queue_pop(self, key: Data, block: bool = True, *, timeout: Seconds | None = None,
                  default: Default) -> bytes | Default: ...

    def queue_pop(self, key: Data, block: bool = True, *, timeout: Seconds | None = None,
                  default: object = RAISE) -> object:
        """Takes the oldest value of a queue. Without `block`, an empty queue raises Empty, or gives the default."""
        value = Value()
        with or_default(default) as found:
            self._once(limited(library.rdzv_store_queue_pop, timeout), as_bytes(key), block, value)
            found.value = take(value)
        return found.value

    def queue_len(self, key: Data, *, timeout: Seconds | None = None) -> int:
        number = c_int64()
        self._call(limited(library.rdzv_store_queue_len, timeout), as_bytes(key), byref(number))
        return number.value

    # ---- versions

    def get_version(self, key: Data, *, timeout: Seconds | None = None) -> tuple[bytes, int]:
        """Reads value and version of a key without waiting; a missing key has version 0."""
        value, version = Value(), c_uint64()
        self._call(limited(library.rdzv_store_get_version, timeout), as_bytes(key), value, byref(version))
        return take(value), version.value

    def compare_set_version(self, key: Data, expected: int, value: Data, *,
                            timeout: Seconds | None = None) -> tuple[bool, bytes, int]:
        """Sets the value if the key has that version. Returns whether it did, the current value if it did not, and the
        version that holds then."""
        swapped, current, version = c_bool(), Value(), c_uint64()
        self._write(limited(library.rdzv_store_compare_set_version, timeout), as_bytes(key),
                    integer(expected, c_uint64, "version"), as_bytes(value), byref(swapped), current, byref(version))
        return swapped.value, take(current), version.value

    @overload
    def wait_changed(self, key: Data, known: int, timeout: Seconds | None = None) -> tuple[bytes, int]: ...
    @overload
    def wait_changed(self, key: Data, known: int, timeout: Seconds | None = None, *,
                     default: Default) -> tuple[bytes, int] | Default: ...

    def wait_changed(self, key: Data, known: int, timeout: Seconds | None = None, *, default: object = RAISE) -> object:
        """Waits until the key has another version than `known`."""
        value, version, name = Value(), c_uint64(), as_bytes(key)
        known = integer(known, c_uint64, "version")
        total = left = milliseconds_or(timeout, TIMEOUT_OF_STORE)
        began, again = time.monotonic(), False
        with or_default(default) as found:
            while not self._try(library.rdzv_store_wait_changed, name, known, left, value, byref(version), again=again):
                left, again = self._left(began, total), True
            found.value = take(value), version.value
        return found.value


def adopt(base: int) -> Store:
    """A clone of a store that a result owns."""
    store = Store()
    open_object(store, library.rdzv_store_clone_with, c_void_p(base), 0)
    return store


class Etcd(Handle):
    """How to reach an etcd cluster: rdzv_etcd_options."""

    _kind = "Etcd"
    _instead = "make another one of the same arguments"

    def __init__(self, endpoints: Text | None = None, *, https: bool = False, ca_cert: Text | None = None,
                 cert: Text | None = None, key: Text | None = None, user: Text | None = None,
                 password: Text | None = None, read_timeout: Seconds | None = None) -> None:
        self._made = EtcdOptions(
            endpoints=optional_text(endpoints, "endpoints"), https=https, ca_cert=optional_text(ca_cert, "ca_cert"),
            cert=optional_text(cert, "cert"), key=optional_text(key, "key"), user=optional_text(user, "user"),
            password=optional_text(password, "password"), read_timeout_ms=milliseconds_or(read_timeout, 0))
        self._made.size = sizeof(self._made)

    def _options(self) -> EtcdOptions:
        return self._made


def etcd_options(etcd: Etcd) -> Any:
    """A pointer to the options of an `Etcd`; a text in its place is a likely mistake."""
    if not isinstance(etcd, Etcd):
        raise TypeError(f"etcd must be an rdzv.Etcd, for example rdzv.Etcd('127.0.0.1:2379'), not {type(etcd).__name__}")
    return pointer(etcd._options())
