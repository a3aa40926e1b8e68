# SPDX-License-Identifier: BSD-3-Clause
"""The store of a round as torchrun and process groups get it.

PlainStore is PyTorch's own client, a TCPStore inside a PrefixStore, where the server can be reached by it: what C++ calls
is C++. What Python calls on it, as torchrun's agent does, goes through librdzv: a signal ends such a call, so does the
end of the round, and a lost connection is made again. OwnStore is a torch.distributed.Store whose every call goes
through librdzv, for etcd and for servers that PyTorch's client cannot talk to.
"""
from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

from rdzv.errors import Timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Union

    from rdzv.store import Store

    Data = Union[str, bytes, Sequence[int]]

SLICE = 0.5  # seconds of a wait, after which it is looked whether the round is over
DistStoreError: type[Exception] = getattr(dist, "DistStoreError", RuntimeError)


class StoreTimeout(DistStoreError, TimeoutError):  # type: ignore[misc, valid-type]
    """A key was not there in time. PyTorch's own error where there is one: torchrun traces missing ranks by it."""


class RoundOver(DistStoreError):  # type: ignore[misc, valid-type]
    """A wait ended because the round did: a participant is gone, and the key may never come."""


def data_of(data: Data) -> bytes:
    """PyTorch 1.13 gives lists of numbers to compare_set."""
    if isinstance(data, str):
        return data.encode("utf-8", "surrogateescape")
    return data if isinstance(data, bytes) else bytes(data)


class Pool:
    """Handles on one store. A call that waits on a handle delays the others on it, so each call has one of its own."""

    def __init__(self, make: Callable[[], Store]) -> None:
        self.make = make
        self.idle: list[Store] = []
        self.closed = False

    @contextmanager
    def one(self) -> Iterator[Store]:
        try:
            handle = self.idle.pop()
        except IndexError:
            handle = self.make()
        try:
            yield handle
        finally:
            if self.closed:
                handle.close()
            else:
                self.idle.append(handle)

    def close(self) -> None:
        self.closed = True
        while self.idle:
            self.idle.pop().close()


class Calls:
    """The methods of a torch.distributed.Store, by librdzv. Names in camel case are those that C++ looks for."""

    _pool: Pool
    _over: Callable[[], str | None]
    _known: dict[str, bytes]
    timeout: Any

    def _patient(self, timeout: timedelta | None, keys: Sequence[str], call: Callable[[Store], Any]) -> Any:
        """Makes a call that waits for keys, again and again, until it succeeds, the time is over, or the round is."""
        seconds = (self.timeout if timeout is None else timeout).total_seconds()
        until = time.monotonic() + seconds
        over: str | None = None
        with self._pool.one() as handle:
            while True:
                left = until - time.monotonic()
                handle.set_timeout(0 if over else max(0.0, min(SLICE, left)))
                try:
                    return call(handle)
                except Timeout:
                    names = ", ".join(f"'{key}'" for key in keys[:3])
                    if over:
                        raise RoundOver(f"waiting for {names}: the round is over: {over}") from None
                    if left <= 0:
                        raise StoreTimeout(f"waiting for {names}: timed out after {seconds:g} s") from None
                    over = self._over()

    def set(self, key: str, value: Data) -> None:
        if key not in self._known:
            with self._pool.one() as handle:
                handle.set(key, data_of(value))

    def get(self, key: str) -> bytes:
        known = self._known.get(key)
        if known is not None:
            return known
        found: bytes = self._patient(None, [key], lambda handle: handle.get(key))
        return found

    def add(self, key: str, number: int) -> int:
        with self._pool.one() as handle:
            return handle.add(key, number)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        self._patient(timeout, keys, lambda handle: handle.wait(keys))

    def check(self, keys: Sequence[str]) -> bool:
        with self._pool.one() as handle:
            return handle.check(keys)

    def compare_set(self, key: str, expected: Data, desired: Data) -> bytes:
        with self._pool.one() as handle:
            return handle.compare_set(key, data_of(expected), data_of(desired))

    def delete_key(self, key: str) -> bool:
        with self._pool.one() as handle:
            return handle.delete_key(key)

    def num_keys(self) -> int:
        with self._pool.one() as handle:
            return handle.num_keys()

    def append(self, key: str, value: Data) -> None:
        with self._pool.one() as handle:
            handle.append(key, data_of(value))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        found: list[bytes] = self._patient(None, keys, lambda handle: handle.multi_get(keys))
        return found

    def multi_set(self, keys: Sequence[str], values: Sequence[Data]) -> None:
        if len(keys) != len(values):
            raise ValueError(f"multi_set: {len(keys)} keys and {len(values)} values")
        with self._pool.one() as handle:
            handle.multi_set({key: data_of(value) for key, value in zip(keys, values)})

    def has_extended_api(self) -> bool:
        return True

    def queue_push(self, key: str, value: Data) -> None:
        with self._pool.one() as handle:
            handle.queue_push(key, data_of(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        if block:
            found: bytes = self._patient(None, [key], lambda handle: handle.queue_pop(key))
            return found
        with self._pool.one() as handle:
            return handle.queue_pop(key, False)

    def queue_len(self, key: str) -> int:
        with self._pool.one() as handle:
            return handle.queue_len(key)

    def list_keys(self) -> list[str]:
        with self._pool.one() as handle:
            return [key.decode("utf-8", "surrogateescape") for key in handle.list_keys()]

    deleteKey = delete_key
    getNumKeys = num_keys
    compareSet = compare_set
    multiGet = multi_get
    multiSet = multi_set
    hasExtendedApi = has_extended_api


def never() -> str | None:
    return None


class OwnStore(Calls, dist.Store):  # type: ignore[misc]
    """An rdzv Store. `make` opens a handle; `over` says why the round is over; keys of `known` have these values. As
    for any Python subclass of Store, refer to it from Python as long as C++ uses it."""

    def __init__(self, make: Callable[[], Store], over: Callable[[], str | None] = never,
                 known: dict[str, bytes] | None = None) -> None:
        super().__init__()
        self._pool, self._over, self._known = Pool(make), over, known if known is not None else {}

    def clone(self) -> OwnStore:
        return OwnStore(self._pool.make, self._over, self._known)


class PlainStore(Calls, dist.PrefixStore):  # type: ignore[misc]
    """PyTorch's client, to C++; librdzv's, to Python."""

    def __init__(self, prefix: str, client: Any, make: Callable[[], Store], over: Callable[[], str | None] = never,
                 known: dict[str, bytes] | None = None) -> None:
        super().__init__(prefix, client)
        self._pool, self._over, self._known = Pool(make), over, known if known is not None else {}


def torch_client(host: str, port: int, timeout: timedelta) -> Any:
    """PyTorch's TCPStore as a client only. Whether it was built with libuv concerns servers, but it asks."""
    options: dict[str, Any] = {"is_master": False, "wait_for_workers": False, "timeout": timeout}
    try:
        return dist.TCPStore(host, port, use_libuv=False, **options)
    except TypeError:  # before 2.3
        return dist.TCPStore(host, port, **options)
