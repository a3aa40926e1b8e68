# SPDX-License-Identifier: BSD-3-Clause
"""A node of a rendezvous: rounds, changes, leaving, closing. See rdzv/handler.h.

    with rdzv.Handler(endpoint="host:29400", run_id="job", nnodes="2:4") as handler:
        while True:
            result = handler.next()
            ...
            for change in handler.changes():
                break  # a node came, left or died: join the next round

Leaving the `with` block leaves the rendezvous; the other nodes go on.
"""
from __future__ import annotations

import time
from ctypes import POINTER, byref, c_bool, c_int64, c_size_t, c_void_p, cast, pointer, sizeof

from rdzv._call import (Object, end_callback, integer, left_of, make_log, milliseconds, needed_text, open_object, optional_text, take,
                        take_all, text_of)
from rdzv._library import EventStruct, OnEvent, Params, ResultStruct, StatusStruct, Value, library
from rdzv.errors import Error, Invalid, Timeout
from rdzv.store import adopt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, Union

    from rdzv._call import LogFunction, Seconds, Text
    from rdzv.store import Store

    Conf = Union[str, Mapping[str, object], None]

CHANGES = ("waiting", "left", "died", "closed", "evicted")
KINDS = ("participant", "waiting", "spare")
WAYS = ("unknown", "torch", "swap", "native")
A_LOOK = 1.0  # seconds: the silence of a store is reported only to a caller that looks


class Values:
    """A value with named fields."""

    __slots__: tuple[str, ...] = ()

    def __init__(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set")

    @classmethod
    def _names(cls) -> list[str]:
        return [name for kind in reversed(cls.__mro__) for name in getattr(kind, "__slots__", ())]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._names())
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in self._names())

    def __reduce__(self) -> Any:
        """A value can be copied, and sent to another process."""
        return made_value, (type(self), {name: getattr(self, name) for name in self._names()})

    __hash__ = None  # type: ignore[assignment]


def made_value(kind: type[Values], fields: dict[str, object]) -> Values:
    return kind(**fields)


class Participant(Values):
    """A participant of a round."""

    __slots__ = ("node", "addr", "pid", "local_id", "rank")
    node: str
    addr: str
    pid: int
    local_id: int
    rank: int


class WorkerRanks(Values):
    """The ranks of one node's workers."""

    __slots__ = ("base", "world_size", "role_base", "role_world_size", "restarts")
    base: int
    world_size: int
    role_base: int
    role_world_size: int
    restarts: int


class Change(Values):
    """What has happened to a round: `what` has some of "waiting", "left", "died", "closed", "evicted"."""

    __slots__ = ("what", "nodes")
    what: frozenset[str]
    nodes: tuple[str, ...]  # those that are known to have left or died

    @property
    def is_over(self) -> bool:
        """Does the round no longer stand as it was? False: a node waits for the next one."""
        return self.what != {"waiting"}


class NodeStatus(Values):
    """A node of a status."""

    __slots__ = ("node", "kind", "rank", "heartbeat_age", "way", "trip")
    node: str
    kind: str  # "participant", "waiting", "spare"
    rank: int | None
    heartbeat_age: float | None  # seconds
    way: str  # "torch", "swap", "native", "unknown"
    trip: float | None  # seconds


class Status(Values):
    """A rendezvous at one moment."""

    __slots__ = ("exists", "round", "phase", "complete", "closed", "deadline_left", "min_nodes", "max_nodes",
                 "participants", "waiting", "spares", "layout", "reason", "ended", "ended_by", "died", "nodes")
    exists: bool
    round: int
    phase: str
    complete: bool
    closed: bool
    deadline_left: float | None  # seconds
    min_nodes: int | None  # as the first node of the run has it
    max_nodes: int | None
    participants: int
    waiting: int
    spares: int
    layout: str
    reason: str
    ended: float | None  # seconds since 1970
    ended_by: str
    died: bool  # the last node, instead of leaving
    nodes: tuple[NodeStatus, ...]


class Event(Values):
    """One step of a node, for a record."""

    __slots__ = ("time", "run_id", "node", "host", "pid", "local_id", "round", "rank", "state", "message")
    time: float
    run_id: str
    node: str
    host: str
    pid: int
    local_id: int
    round: int | None
    rank: int | None
    state: str  # "INIT", "RUNNING", "SUCCEEDED", "FAILED"
    message: str


class Result(Object):
    """A completed round with this node in it. It may outlive its handler."""

    _kind = "result"
    _instead = "pass its rank, world_size, master_addr and master_port"

    def __init__(self) -> None:
        super().__init__()
        self._store: Store | None = None

    def _opened(self, pointer: c_void_p) -> None:
        self._pointer = pointer.value
        made = cast(pointer, POINTER(ResultStruct)).contents
        self.round: int = made.round
        self.rank: int = made.rank
        self.world_size: int = made.world_size
        self.run_id = text_of(made.run_id)
        self.backend = text_of(made.backend)
        self.node = text_of(made.node)
        self._read_master()

    def _read_master(self) -> None:
        made = cast(c_void_p(self._pointer), POINTER(ResultStruct)).contents
        self.master_addr = text_of(made.master_addr)
        self.master_port: int = made.master_port

    def _free(self, pointer: int) -> None:
        library.rdzv_result_free(pointer)

    def _close(self, patience: float | None) -> bool:
        if self._store is not None:
            self._store._close(patience)
        return super()._close(patience)

    @property
    def store(self) -> Store:
        """A store for this round. It connects when it is used first."""
        if self._store is None or self._store.closed:
            self._store = self.open_store()
        return self._store

    def open_store(self) -> Store:
        """Opens a handle of its own on the store for this round."""
        def clone(result: int) -> Store:
            base = cast(c_void_p(result), POINTER(ResultStruct)).contents.store
            if not base:
                raise Invalid(f"the rendezvous '{self.backend}' has no store")
            return adopt(base)

        store: Store = self._ask(clone)
        return store

    @property
    def participants(self) -> list[Participant]:
        """By rank. They are asked for when they are read first, where the server has formed the round."""
        self._call(library.rdzv_result_load_participants)
        found = []
        for rank in range(self.world_size):
            made = self._ask(lambda result, rank=rank: library.rdzv_result_participant(result, rank))  # type: ignore[misc]
            if made:
                one = made.contents
                found.append(Participant(node=text_of(one.node), addr=text_of(one.addr), pid=one.pid,
                                         local_id=one.local_id, rank=one.rank))
        return found

    @property
    def worker_ranks(self) -> WorkerRanks | None:
        """Those that the server has given the workers of this node; None if it has not."""
        made = self._ask(library.rdzv_result_worker_ranks)
        if not made:
            return None
        ranks = made.contents
        return WorkerRanks(**{name: getattr(ranks, name) for name in WorkerRanks.__slots__})

    def __repr__(self) -> str:
        return f"<rdzv.Result round {self.round}, rank {self.rank} of {self.world_size}>"


def conf_text(conf: Conf) -> bytes | None:
    """ "name=value,name=value" """
    if conf is None or isinstance(conf, str):
        return optional_text(conf, "conf")
    parts = []
    for name, value in conf.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if "," in text or "," in name or "=" in name:
            raise Invalid(f"option '{name}': a comma cannot be part of it")
        parts.append(f"{name}={text}")
    return optional_text(",".join(parts), "conf")


def node_range(nnodes: str | int | tuple[int, int]) -> tuple[int, int]:
    """ "2", "2:4", 2, (2, 4) """
    if isinstance(nnodes, tuple):
        least, most = nnodes
        return least, most
    first, colon, last = str(nnodes).partition(":")
    try:
        return int(first), int(last if colon else first)
    except ValueError:
        raise Invalid(f"nnodes '{nnodes}': use MIN or MIN:MAX") from None


def pass_events(on_event: Callable[[Event], object]) -> Any:
    def pass_on(_user: object, made: Any) -> None:
        event: EventStruct = made.contents
        try:
            on_event(Event(time=event.time_us / 1e6, run_id=text_of(event.run_id), node=text_of(event.node),
                           host=text_of(event.host), pid=event.pid, local_id=event.local_id,
                           round=event.round if event.round >= 0 else None, rank=event.rank if event.rank >= 0 else None,
                           state=text_of(library.rdzv_node_state_name(event.state)), message=text_of(event.message)))
        except BaseException as error:
            end_callback(error)

    return OnEvent(pass_on)


class MadeParams:
    """rdzv_params, and what it refers to."""

    def __init__(self, backend: Text | None, endpoint: Text | None, run_id: Text | None,
                 nnodes: str | int | tuple[int, int], conf: Conf, local_addr: Text | None, program: Text | None,
                 ignore_unknown: bool, find_master_later: bool, on_event: Callable[[Event], object] | None,
                 log: LogFunction | None, level: str) -> None:
        least, most = node_range(nnodes)
        made, self.log = make_log(log, level)
        self.event = pass_events(on_event) if on_event else OnEvent(0)
        self.params = Params(
            backend=optional_text(backend, "backend"), endpoint=optional_text(endpoint, "endpoint"),
            run_id=optional_text(run_id, "run_id"), min_nodes=integer(least, c_int64, "nnodes"),
            max_nodes=integer(most, c_int64, "nnodes"), conf=conf_text(conf),
            local_addr=optional_text(local_addr, "local_addr"), on_event=self.event,
            program=optional_text(program, "program"), ignore_unknown=ignore_unknown,
            find_master_later=find_master_later)
        self.params.size = sizeof(self.params)
        if made is not None:
            self.params.log = pointer(made)


class Handler(Object):
    """A node of a rendezvous. All calls from any thread."""

    _kind = "handler"
    _instead = "open a handler in the other process: each one is a node"

    def __init__(self, backend: Text | None = None, endpoint: Text | None = None, run_id: Text | None = None,
                 nnodes: str | int | tuple[int, int] = 1, *, conf: Conf = None, local_addr: Text | None = None,
                 url: Text | None = None, program: Text | None = None, ignore_unknown: bool = False,
                 find_master_later: bool = False, on_event: Callable[[Event], object] | None = None,
                 log: LogFunction | None = None, level: str = "warning") -> None:
        """Opens a rendezvous by its parameters, which are those of rdzv/params.h, or by a `url`, which then has
        backend, endpoint and run id. `conf` is a dict, or text as --rdzv-conf takes it."""
        super().__init__()
        self._made = MadeParams(backend, endpoint, run_id, nnodes, conf, local_addr, program, ignore_unknown,
                                find_master_later, on_event, log, level)
        if url is None:
            open_object(self, library.rdzv_handler_open, byref(self._made.params))
        else:
            open_object(self, library.rdzv_handler_open_url, optional_text(url, "url"), byref(self._made.params))

    def _stop(self, pointer: int) -> None:
        library.rdzv_handler_cancel(pointer)

    def _free(self, pointer: int) -> None:
        library.rdzv_handler_free(pointer)

    def __exit__(self, *exception: object) -> None:
        """Leaves the rendezvous, if that can be done, and closes."""
        if not self.closed:
            try:
                self.leave()
            except Error:
                pass
        self.close()

    def cancel(self) -> None:
        """Makes next, wait_change and status raise Canceled, now and later."""
        self._ask(library.rdzv_handler_cancel)

    # ---- about the node

    @property
    def node(self) -> str:
        """Its name as other nodes see it."""
        return text_of(self._ask(library.rdzv_handler_node))

    def describe(self) -> str:
        return text_of(self._ask(library.rdzv_handler_describe))

    def __repr__(self) -> str:
        return "<rdzv.Handler closed>" if self.closed else f"<rdzv.Handler {self.node}: {self.describe()}>"

    # ---- rounds

    def next(self, *, timeout: Seconds | None = None) -> Result:
        """Leaves the current round, joins the next one, and waits until it is complete: for `timeout`, and for the
        join_timeout of the rendezvous, at most."""
        result, out = Result(), c_void_p()
        try:
            seconds = -1 if timeout is None else milliseconds(timeout) / 1000
            self._once(library.rdzv_handler_next, byref(out), seconds=seconds)
        finally:
            if out:  # also where a signal handler has raised since
                result._opened(out)
        return result

    def find_master(self, result: Result) -> None:
        """Waits until rank 0 has published its address, for a handler with find_master_later."""
        result._ask(lambda made: self._once(library.rdzv_handler_find_master, made))
        result._read_master()

    def set_workers(self, role: Text | None, local_world_size: int, restarts: int = 0) -> None:
        """Tells role and number of this node's workers with each later join."""
        self._call(library.rdzv_handler_set_workers, optional_text(role, "role"),
                   integer(local_world_size, c_int64, "local_world_size"), integer(restarts, c_int64, "restarts"))

    # ---- changes

    def wait_change(self, timeout: Seconds) -> Change:
        """Waits for a change of the round since next, or since the last change. Raises Timeout."""
        out = c_void_p()
        total = left = milliseconds(timeout)
        began, again = time.monotonic(), False
        while not self._try(library.rdzv_handler_wait_change, left, byref(out), again=again):
            left, again = left_of(began, total), True
        bits = library.rdzv_change_what(out)
        names = [library.rdzv_change_node(out, i) for i in range(library.rdzv_change_node_count(out))]
        library.rdzv_change_free(out)
        return Change(what=frozenset(name for i, name in enumerate(CHANGES) if bits & 1 << i),
                      nodes=tuple(map(text_of, names)))

    def poll_change(self) -> Change | None:
        """A change that has happened already, without waiting and without any request."""
        try:
            return self.wait_change(0)
        except Timeout:
            return None

    def changes(self) -> Iterator[Change]:
        """Waits for changes, one after the other. A store that is silent for too long ends it with an error."""
        while True:
            try:
                yield self.wait_change(A_LOOK)
            except Timeout:
                pass

    def change_fd(self) -> int:
        """A descriptor that is readable while there is a change, for a program with an event loop; -1: none."""
        number: int = self._ask(library.rdzv_handler_change_fd)
        return number

    def ended_fd(self) -> int:
        """A descriptor that is readable while there is a change that ends the round; -1: none."""
        number: int = self._ask(library.rdzv_handler_ended_fd)
        return number

    def is_closed(self) -> bool:
        """Asks the store whether the rendezvous is closed."""
        answer = c_bool()
        self._call(library.rdzv_handler_is_closed, byref(answer))
        return answer.value

    def num_nodes_waiting(self) -> int:
        """Asks the store how many nodes wait for the next round."""
        number = c_int64()
        self._call(library.rdzv_handler_num_nodes_waiting, byref(number))
        return number.value

    # ---- ending

    def set_closed(self, reason: Text | None = None) -> None:
        """Closes the rendezvous for all nodes, for good."""
        self._once(library.rdzv_handler_set_closed, optional_text(reason, "reason"))

    def leave(self) -> None:
        """Takes this node out of the rendezvous; the other nodes go on."""
        self._once(library.rdzv_handler_leave)

    def shutdown(self) -> None:
        """Closes the rendezvous for all nodes, and stops the heartbeat of this one."""
        self._once(library.rdzv_handler_shutdown)

    def set_close_timeout(self, timeout: Seconds) -> None:
        """Limits the time of leave, set_closed and shutdown."""
        self._call(library.rdzv_handler_set_close_timeout, milliseconds(timeout))

    def set_linger(self, timeout: Seconds) -> None:
        """Makes close() of the node that serves the store wait for the other nodes to disconnect."""
        self._call(library.rdzv_handler_set_linger, milliseconds(timeout))

    # ---- looking

    def status(self, wait: Seconds = 0) -> Status:
        """Reads the state of the rendezvous; with `wait`, when it differs from the last one, or after so long."""
        out = c_void_p()
        total = left = milliseconds(wait)
        began, again = time.monotonic(), False
        while not self._try(library.rdzv_handler_status, left, byref(out), again=again):
            left, again = left_of(began, total), True
        try:
            return read_status(out)
        finally:
            library.rdzv_status_free(out)

    # ---- extra data: backend etcd only

    def set_extra(self, key: Text, value: Text) -> None:
        self._once(library.rdzv_handler_set_extra, needed_text(key, "key"), needed_text(value, "value"))

    def get_extra(self, key: Text, timeout: Seconds) -> bytes:
        value, name = Value(), needed_text(key, "key")
        total = left = milliseconds(timeout)
        began, again = time.monotonic(), False
        while not self._try(library.rdzv_handler_get_extra, name, left, value, again=again):
            left, again = left_of(began, total), True
        return take(value)


def positive(number: int, unit: float) -> float | None:
    return number / unit if number >= 0 else None


def read_status(out: c_void_p) -> Status:
    made = cast(out, POINTER(StatusStruct)).contents
    nodes = []
    for i in range(library.rdzv_status_node_count(out)):
        one = library.rdzv_status_node(out, i).contents
        nodes.append(NodeStatus(node=text_of(one.node), kind=KINDS[one.kind], rank=one.rank if one.rank >= 0 else None,
                                heartbeat_age=positive(one.heartbeat_age_ms, 1e3), way=WAYS[one.way],
                                trip=positive(one.trip_us, 1e6)))
    return Status(exists=made.exists, round=made.round, phase=text_of(made.phase), complete=made.complete,
                  closed=made.closed, deadline_left=positive(made.deadline_left_ms, 1e3), min_nodes=made.min_nodes or None,
                  max_nodes=made.max_nodes or None, participants=made.participants, waiting=made.waiting, spares=made.spares,
                  layout=text_of(made.layout), reason=text_of(made.reason),
                  ended=made.ended_us / 1e6 if made.ended_us > 0 else None, ended_by=text_of(made.ended_by),
                  died=made.died, nodes=tuple(nodes))


# ---- runs ---------------------------------------------------------------------------------------------------------


class _Runs(Object):
    """Only for its call, which a signal can end."""

    _kind = "call"

    def _ask_runs(self, make: Any, function: Any, made: MadeParams, *out: object) -> None:
        self._pointer = 1
        try:
            make(lambda _, *rest: function(byref(made.params), *rest), *out)
        finally:
            self._pointer = None

    def _free(self, pointer: int) -> None:
        pass


def _params(backend: Text | None, endpoint: Text | None, run_id: Text | None, conf: Conf) -> MadeParams:
    return MadeParams(backend, endpoint, run_id, 1, conf, None, None, False, False, None, None, "off")


def list_runs(backend: Text | None = None, endpoint: Text | None = None, *, conf: Conf = None) -> list[str]:
    """The run ids that a store or an etcd cluster holds."""
    runs, values, count = _Runs(), POINTER(Value)(), c_size_t()
    runs._ask_runs(runs._call, library.rdzv_runs_list, _params(backend, endpoint, None, conf), byref(values),
                   byref(count))
    return [text_of(each) for each in take_all(values, count.value)]


def remove_run(backend: Text | None = None, endpoint: Text | None = None, *, run_id: Text, conf: Conf = None) -> int:
    """Removes a run and all its keys; returns how many there were."""
    runs, count = _Runs(), c_size_t()
    runs._ask_runs(runs._once, library.rdzv_runs_remove,
                   _params(backend, endpoint, needed_text(run_id, "run_id"), conf), byref(count))
    return count.value
