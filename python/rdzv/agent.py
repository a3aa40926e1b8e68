# SPDX-License-Identifier: BSD-3-Clause
"""The launcher of one node, behind `rdzv run`. See rdzv/agent.h.

    agent = rdzv.Agent(["python3", "train.py"], nproc_per_node=4, endpoint="host:29400", run_id="job", nnodes="2:4")
    outcome = agent.run()

A signal that Python handles, SIGINT or SIGTERM, goes to the workers, and the node leaves.
"""
from __future__ import annotations

from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_uint64, c_void_p, cast, pointer, sizeof

from rdzv._call import (Object, end_callback, integer, make_log, milliseconds, milliseconds_or, needed_text, open_object,
                        optional_text, text_of)
from rdzv._library import (AgentOptions, AgentResultStruct, EtcdProcessOptions, OnAgentEvent, OnWorkerEvent, library)
from rdzv.handler import MadeParams, Values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from rdzv._call import LogFunction, Seconds, Text
    from rdzv.handler import Conf

ENDING = frozenset((1, 2, 3, 15))  # SIGHUP, SIGINT, SIGQUIT, SIGTERM


class AgentEvent(Values):
    """A new state of the agent."""

    __slots__ = ("time", "state", "run_id", "role", "round", "group_rank", "group_world_size", "restart_count", "pid",
                 "message")
    time: float
    state: str
    run_id: str
    role: str
    round: int
    group_rank: int
    group_world_size: int
    restart_count: int
    pid: int
    message: str


class WorkerEvent(AgentEvent):
    """A new state of a worker; `pid` is that of the worker."""

    __slots__ = ("local_rank", "rank", "exit_code")
    local_rank: int
    rank: int
    exit_code: int


class Failure(Values):
    """A failed worker."""

    __slots__ = ("rank", "local_rank", "host", "pid", "exit_code", "signal", "time", "message", "log", "error_file",
                 "attempt")
    rank: int
    local_rank: int
    host: str
    pid: int
    exit_code: int
    signal: int
    time: float
    message: str
    log: str
    error_file: str
    attempt: int


class Outcome(Values):
    """How a job ended on this node: `state` is "SUCCEEDED", "FAILED" or "LEFT". `attempts` has the first failure of each
    failed attempt, of many the first 8 and the last 24."""

    __slots__ = ("state", "exit_code", "restarts", "reason", "log_dir", "lost_bytes", "lost_to", "failures", "attempts")
    state: str
    exit_code: int
    restarts: int
    reason: str
    log_dir: str
    lost_bytes: int
    lost_to: str
    failures: tuple[Failure, ...]
    attempts: tuple[Failure, ...]


def plain(kind: type[Values], made: Any, name_of: Any) -> Any:
    fields: dict[str, object] = {}
    for name in kind._names():
        if name == "time":
            fields[name] = made.time_us / 1e6
        elif name == "state":
            fields[name] = text_of(name_of(made.state))
        else:
            value = getattr(made, name)
            fields[name] = text_of(value) if isinstance(value, bytes) else value
    return kind(**fields)


def pass_events(kind: type[Values], function: Any, name_of: Any, receive: Callable[[Any], object] | None) -> Any:
    if receive is None:
        return function(0)
    receiver: Callable[[Any], object] = receive

    def pass_on(_user: object, made: Any) -> None:
        try:
            receiver(plain(kind, made.contents, name_of))
        except BaseException as error:
            end_callback(error)

    return function(pass_on)


class Agent(Object):
    """The agent of one node. run() in the thread that made it."""

    _kind = "agent"
    _instead = "make an agent in the other process"

    def __init__(self, argv: Sequence[Text], *, nproc_per_node: int | str = 1, role: Text | None = None,
                 max_restarts: int = 0, standalone: bool = False, backend: Text | None = None,
                 endpoint: Text | None = None, run_id: Text | None = None, nnodes: str | int | tuple[int, int] = 1,
                 conf: Conf = None, local_addr: Text | None = None, log_dir: Text | None = None,
                 redirects: Text | None = None, tee: Text | None = None, local_ranks_filter: Text | None = None,
                 line_prefix: Text | None = None, duplicate_stdout_filters: Text | None = None,
                 duplicate_stderr_filters: Text | None = None, shutdown_timeout: Seconds | None = None,
                 exit_barrier_timeout: Seconds | None = None, virtual_local_rank: bool = False,
                 numa_binding: Text | None = None, adopt_orphans: bool = False, worker_descriptors: int = 0,
                 direct_master: bool = False,
                 on_agent: Callable[[AgentEvent], object] | None = None,
                 on_worker: Callable[[WorkerEvent], object] | None = None, log: LogFunction | None = None,
                 level: str = "warning") -> None:
        """The parameters of the rendezvous are those of Handler; the others have the names of torchrun's flags."""
        super().__init__()
        if isinstance(argv, (str, bytes)):
            raise TypeError("argv: a list of words is expected, not one text")
        words = [needed_text(word, "argv") for word in argv]
        made = MadeParams(backend, endpoint, run_id, nnodes, conf, local_addr, None, False, False, None, log, level)
        log_made, log_kept = make_log(log, level)
        events = (pass_events(AgentEvent, OnAgentEvent, library.rdzv_agent_state_name, on_agent),
                  pass_events(WorkerEvent, OnWorkerEvent, library.rdzv_worker_state_name, on_worker))
        options = AgentOptions(
            rendezvous=pointer(made.params), standalone=standalone, argv=(c_char_p * (len(words) + 1))(*words, None),
            nproc_per_node=optional_text(str(nproc_per_node), "nproc_per_node"), role=optional_text(role, "role"),
            max_restarts=integer(max_restarts, c_int64, "max_restarts"),
            log_dir=optional_text(log_dir, "log_dir"), redirects=optional_text(redirects, "redirects"),
            tee=optional_text(tee, "tee"), local_ranks_filter=optional_text(local_ranks_filter, "local_ranks_filter"),
            line_prefix=optional_text(line_prefix, "line_prefix"),
            duplicate_stdout_filters=optional_text(duplicate_stdout_filters, "duplicate_stdout_filters"),
            duplicate_stderr_filters=optional_text(duplicate_stderr_filters, "duplicate_stderr_filters"),
            shutdown_timeout_ms=milliseconds_or(shutdown_timeout, 0),
            exit_barrier_timeout_ms=milliseconds_or(exit_barrier_timeout, 0), on_agent=events[0], on_worker=events[1],
            virtual_local_rank=virtual_local_rank, numa_binding=optional_text(numa_binding, "numa_binding"),
            adopt_orphans=adopt_orphans, worker_descriptors=integer(worker_descriptors, c_uint64, "worker_descriptors"),
            direct_master=direct_master)
        options.size = sizeof(options)
        if log_made is not None:
            options.log = pointer(log_made)
        self._kept = (made, log_kept, events)
        open_object(self, library.rdzv_agent_open, byref(options), here=True)  # the workers die with this thread

    def _free(self, pointer: int) -> None:
        library.rdzv_agent_free(pointer)

    def _stop(self, pointer: int) -> None:
        library.rdzv_agent_stop(pointer, 15)

    def _interrupt(self, number: int) -> None:
        if number in ENDING:
            self._ask(lambda agent: library.rdzv_agent_stop(agent, number))

    def stop(self, signal: int = 15) -> None:
        """Sends the signal to the workers and ends the run: this node leaves. The second call kills the workers."""
        number = integer(signal, c_int, "signal")
        self._ask(lambda agent: library.rdzv_agent_stop(agent, number))

    def run(self) -> Outcome:
        """Runs the job until it is over for this node, once."""
        out = c_void_p()
        self._told(library.rdzv_agent_run, byref(out))
        try:
            made = cast(out, POINTER(AgentResultStruct)).contents
            failures = tuple(plain(Failure, library.rdzv_agent_result_failure(out, i).contents, None)
                             for i in range(library.rdzv_agent_result_failure_count(out)))
            attempts = self._ask(lambda agent: tuple(
                plain(Failure, library.rdzv_agent_failed_attempt(agent, i).contents, None)
                for i in range(library.rdzv_agent_failed_attempt_count(agent))))
            return Outcome(state=text_of(library.rdzv_agent_state_name(made.state)), exit_code=made.exit_code,
                           restarts=made.restarts, reason=text_of(made.reason), log_dir=text_of(made.log_dir),
                           lost_bytes=made.lost_bytes, lost_to=text_of(made.lost_to), failures=failures,
                           attempts=attempts)
        finally:
            library.rdzv_agent_result_free(out)


class EtcdProcess(Object):
    """An etcd of one member on this machine, which ends with this process. See rdzv/etcd.h."""

    _kind = "etcd process"
    _instead = "pass its endpoint"

    def __init__(self, *, binary: Text | None = None, data_dir: Text | None = None, log_path: Text | None = None,
                 port: int = 0, timeout: Seconds | None = None) -> None:
        super().__init__()
        options = EtcdProcessOptions(binary=optional_text(binary, "binary"), log_path=optional_text(log_path, "log_path"),
                                     data_dir=optional_text(data_dir, "data_dir"), port=integer(port, c_int, "port"),
                                     timeout_ms=milliseconds(timeout) if timeout is not None else 0)
        options.size = sizeof(options)
        open_object(self, library.rdzv_etcd_process_start, byref(options), here=True)

    def _free(self, pointer: int) -> None:
        library.rdzv_etcd_process_free(pointer)

    @property
    def endpoint(self) -> str:
        """ "127.0.0.1:39001" """
        return text_of(self._ask(library.rdzv_etcd_process_endpoint))

    @property
    def port(self) -> int:
        number: int = self._ask(library.rdzv_etcd_process_port)
        return number

    @property
    def pid(self) -> int:
        """Of the guard, the child that runs etcd and ends it."""
        number: int = self._ask(library.rdzv_etcd_process_pid)
        return number
