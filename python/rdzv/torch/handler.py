# SPDX-License-Identifier: BSD-3-Clause
"""A RendezvousHandler of PyTorch's on a node of librdzv, for stock torchrun.

What torchrun calls, and when: next_rendezvous at the start and at each restart; num_nodes_waiting all the time while the
workers are well, where a number above 0 makes it join the next round without using up a restart; shutdown at the end,
in the handling of a signal, and after a failure, up to three times.
"""
from __future__ import annotations

import atexit
import logging
import os
import select
import sys
import time
from datetime import timedelta

import torch
from torch.distributed.elastic import events, metrics
from torch.distributed.elastic.events import NodeState
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous import api

from rdzv import _call, errors
from rdzv.handler import Handler
from rdzv.server import Server
from rdzv.torch.store import OwnStore, PlainStore, torch_client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from rdzv.handler import Change, Result

log = logging.getLogger("rdzv")

DEFAULT_PORT = 29400
LAST_CALL = "1"  # seconds; PyTorch's 30 would be the time without workers after each death
STORE_TIMEOUT = timedelta(seconds=300)  # PyTorch's
LEAVE_TIME = 5.0  # seconds to leave, for an agent that has to stop
LINGER_TIME = 10.0  # seconds for the others to be done with a store that this node serves
SOON = 0.1  # seconds between two looks of torchrun at num_nodes_waiting, as since 2.x
DONE = "its agent is done"  # the reason of a rendezvous that was closed because the job is over
SIGNALS = (SignalException, KeyboardInterrupt)
_call.raised_by_signals = (SignalException,)
TORCH = ".".join(torch.__version__.split(".")[:2])
HAS_INFO = hasattr(api, "RendezvousInfo")  # 2.4 and later
MASTER_KEYS = ("MASTER_ADDR", "MASTER_PORT")
GracefulExitError = getattr(api, "RendezvousGracefulExitError", api.RendezvousClosedError)  # 2.3 and later

# Python's and PyTorch's levels, by those of librdzv.
LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}


def write_log(level: str, line: str) -> None:
    log.log(LEVELS[level], "%s", line)


def log_level() -> str:
    for name in ("debug", "info", "warning"):
        if log.isEnabledFor(LEVELS[name]):
            return name
    return "error"


# ---- errors -------------------------------------------------------------------------------------------------------


def torch_error(error: errors.Error) -> Exception:
    """What torchrun expects, with our sentence."""
    text = str(error)
    if isinstance(error, errors.GracefulExit):
        return GracefulExitError(text)  # type: ignore[no-any-return]
    if isinstance(error, errors.Closed):
        return api.RendezvousClosedError(text)  # type: ignore[no-any-return]
    if isinstance(error, errors.Timeout):
        return api.RendezvousTimeoutError(text)  # type: ignore[no-any-return]
    if isinstance(error, errors.Corrupt):
        return api.RendezvousStateError(text)  # type: ignore[no-any-return]
    if isinstance(error, (ConnectionError, errors.DataLost, errors.ProtocolError, errors.Stale)):
        return api.RendezvousConnectionError(text)  # type: ignore[no-any-return]
    if isinstance(error, errors.Invalid):
        return ValueError(text)
    return api.RendezvousError(text)  # type: ignore[no-any-return]


# ---- parameters ---------------------------------------------------------------------------------------------------


def split_endpoint(endpoint: str) -> tuple[str, int]:
    """ "host", "host:port", "[v6]:port" """
    host, colon, port = endpoint.strip().rpartition(":")
    if not colon or endpoint.endswith("]"):
        host, port = endpoint.strip(), ""
    try:
        return host.strip("[]") or "localhost", int(port) if port else DEFAULT_PORT
    except ValueError:
        raise ValueError(f"the rendezvous endpoint '{endpoint}': the port '{port}' is not a number") from None


class Settings:
    """What the user has said, in the words of librdzv."""

    def __init__(self, params: Any, backend: str) -> None:
        conf: dict[str, str] = {name: str(value) for name, value in params.config.items()}
        timeout = params.config.get("timeout")
        if not isinstance(timeout, str):
            conf.pop("timeout", None)  # torchrun's own default, for other backends
        self.name: str = params.backend
        self.backend = conf.pop("backend", backend)
        self.endpoint = params.endpoint or ""
        self.run_id: str = params.run_id
        self.nodes = (params.min_nodes, params.max_nodes)
        self.local_addr: str | None = conf.pop("local_addr", None) or getattr(params, "local_addr", None)
        if self.backend != "static":
            conf.setdefault("last_call_timeout", LAST_CALL)
        if self.backend in ("c10d", "etcd-v2"):
            conf.setdefault("torch_version", TORCH)  # for agents with c10d in the same job
        self.conf = conf

    def is_plain(self) -> bool:
        """Can PyTorch's own client talk to the store? It has no secret, and knows one server."""
        hidden = os.environ.get("RDZV_SECRET_FILE") or any(name.startswith(("secret", "tls")) for name in self.conf)
        is_one = "," not in self.endpoint
        return self.backend == "c10d" and self.conf.get("store_type", "tcp") == "tcp" and is_one and not hidden


# ---- what torchrun does -------------------------------------------------------------------------------------------


def find_local(name: str, fits: Callable[[Any], bool]) -> Any:
    """What a function that called us has under that name: torchrun hands its handlers nothing of it."""
    frame = sys._getframe(1)
    for _ in range(16):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        value = frame.f_locals.get(name)
        try:
            if value is not None and fits(value):
                return value
        except SIGNALS:
            raise
        except Exception:  # something else of that name
            pass
    return None


def first_failure() -> str:
    """Which worker failed, where torchrun ends because of it; else ""."""
    error = sys.exc_info()[1]
    found: Any = getattr(error, "failures", None)
    if not found:
        result = find_local("run_result", lambda result: bool(result.failures))
        found = result.failures if result is not None else None
    try:
        rank, failure = sorted(found.items(), key=lambda item: float(item[1].timestamp))[0]
        name = failure.signal_name() if failure.exitcode < 0 else f"exit code {failure.exitcode}"
        return f"rank {rank} (pid {failure.pid}) failed: {name}"
    except (AttributeError, IndexError, ValueError, TypeError):
        return ""


class TorchHandler(api.RendezvousHandler):  # type: ignore[misc]
    """What torchrun calls. One thread, torchrun's main thread, calls it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._own_server = self._serve_standalone()
        self._handler = Handler(
            settings.backend, settings.endpoint or None, settings.run_id, settings.nodes, conf=settings.conf,
            local_addr=settings.local_addr, ignore_unknown=True, find_master_later=not HAS_INFO,
            log=write_log, level=log_level())
        self._result: Result | None = None
        self._store: Any = None
        self._workers_server: Server | None = None
        self._pending = 0  # what num_nodes_waiting tells until the next round
        self._closed = self._ended = self._spared = False
        self._has_given_master = False  # was the agent given the address or the port of the workers' store?
        self._outer = sys.exc_info()[1]  # of a program that launches a job while it handles an error
        atexit.register(self._leave_at_exit)

    # ---- about it

    def get_backend(self) -> str:
        return self._settings.name

    def get_run_id(self) -> str:
        return self._settings.run_id

    @property
    def use_agent_store(self) -> bool:
        """Does the agent of rank 0 serve the workers' store? It does unless torchrun's own handler would be told not
        to: in a job with both they have to agree."""
        return HAS_INFO and os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0") != "1"

    def _serve_standalone(self) -> Server | None:
        """--standalone gives port 0: the store is for this node alone."""
        if self._settings.backend != "c10d" or not self._settings.is_plain():
            return None
        host, port = split_endpoint(self._settings.endpoint)
        if port != 0:
            return None
        server = Server(port=0)
        self._settings.endpoint = server.address
        self._settings.conf["is_host"] = "false"
        return server

    # ---- rounds

    def next_rendezvous(self) -> Any:
        began = time.monotonic()
        self._record("attempts to join the next round", NodeState.INIT)
        spec = find_local("spec", lambda spec: spec.rdzv_handler is self)
        if spec is not None and spec.monitor_interval > SOON:
            spec.monitor_interval = SOON  # 1.13 looks every 5 s, for the sake of handlers that ask a server each time
        self._has_given_master = any(getattr(spec, name.lower(), None) is not None for name in MASTER_KEYS)
        try:
            result = self._join()
        except errors.Error as error:
            raised = torch_error(error)
            self._spared = isinstance(error, errors.GracefulExit)
            self._record(str(error), NodeState.SUCCEEDED if self._spared else NodeState.FAILED)
            raise raised from error
        took = time.monotonic() - began
        self._record(f"joined round {result.round} as rank {result.rank} of {result.world_size}", NodeState.RUNNING)
        metrics.put_metric("rendezvous.duration.ms", int(took * 1000))
        metrics.put_metric("rendezvous.round", result.round)
        metrics.put_metric("rendezvous.world_size", result.world_size)
        log.info("round %d: rank %d of %d, after %.3f s", result.round, result.rank, result.world_size, took)
        if not HAS_INFO:
            return self._store, result.rank, result.world_size
        where = api.RendezvousStoreInfo(result.master_addr, result.master_port)
        return api.RendezvousInfo(self._store, result.rank, result.world_size, where)

    def _join(self) -> Result:
        """The workers' store of the round before goes when there is another round: the other agents hear of us before
        their workers lose it."""
        result = self._handler.next()
        self._pending = 0
        self._drop_round()
        self._result = result
        if self.use_agent_store and result.rank == 0:
            self._workers_server = self._serve_workers(result)
        self._store = self._make_store(result)
        return result

    def _serve_workers(self, result: Result) -> Server:
        """On all addresses, since the address that others reach this node by need not be an address of this machine. Without a secret, which
        PyTorch's workers could not prove."""
        loopback = result.master_addr.startswith("127.") or result.master_addr in ("localhost", "::1")
        local = "127.0.0.1" if result.master_addr == "localhost" else result.master_addr
        return Server(local if loopback else "*", result.master_port, secret_file="", renew_groups=True, log=write_log,
                      level=log_level())

    def _make_store(self, result: Result) -> Any:
        known = self._known_keys(result)
        if not self._settings.is_plain():
            return OwnStore(result.open_store, self._why_over, known)
        host, port = split_endpoint(self._settings.endpoint)
        prefix = f"torch.rendezvous.{self._settings.run_id}.{result.round}"
        return PlainStore(prefix, torch_client(host, port, STORE_TIMEOUT), result.open_store, self._why_over, known)

    def _known_keys(self, result: Result) -> dict[str, bytes]:
        """Before 2.4, agents exchange the address of the workers' store themselves, above the handler. The round has
        it already, with a port that it keeps: what their rank 0 would publish is not published. But what a
        program has given its agents in their WorkerSpec (master_addr, master_port) is exchanged as PyTorch does."""
        if HAS_INFO or self._has_given_master:
            return {}
        if result.master_port:
            return dict(zip(MASTER_KEYS, (result.master_addr.encode(), str(result.master_port).encode())))
        return LateMaster(self._handler, result)

    def _drop_round(self) -> None:
        if self._workers_server is not None:
            self._workers_server.close()
            self._workers_server = None
        if self._store is not None:
            self._store._pool.close()
            self._store = None
        if self._result is not None:
            self._result.close()
            self._result = None

    def _why_over(self) -> str | None:
        """Without any request."""
        fd = self._handler.ended_fd()
        if fd < 0:
            return None
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return "a participant is gone, or the rendezvous is closed" if poll.poll(0) else None

    # ---- changes

    def num_nodes_waiting(self) -> int:
        """Above 0 when a node waits for the next round, and when a participant died, left or was evicted: torchrun then
        stops its workers and joins the next round, or hears that there is none. No request is made while the rendezvous
        is open."""
        if self._pending or self._ended:
            return self._pending
        try:
            change = self._handler.poll_change()
        except errors.Error as error:
            log.warning("%s: joining the next round", error)
            self._pending = 1
            return 1
        if change is not None:
            self._consider(change)
        return self._pending

    def _consider(self, change: Change) -> None:
        """Workers go on while a rendezvous is closed, and participants that go after the end of a job are not missed."""
        self._closed = self._closed or "closed" in change.what
        if change.what == {"closed"} or (self._closed and self._is_done()):
            log.info("the rendezvous is closed: there is no further round")
            return
        self._tell(change)
        self._pending = max(1, len(change.nodes))

    def _is_done(self) -> bool:
        try:
            return self._handler.status().reason.endswith(DONE)
        except errors.Error:
            return False

    def _tell(self, change: Change) -> None:
        what = " and ".join(sorted(change.what))
        names = ", ".join(change.nodes)
        log.warning("the round is over (%s%s): joining the next one", what, f": {names}" if names else "")
        self._record(f"the round is over: {what} {names}".rstrip(), NodeState.RUNNING)
        for name in change.what:
            metrics.put_metric(f"rendezvous.change.{name}", 1)

    def is_closed(self) -> bool:
        if self._ended:
            return True
        try:
            return self._handler.is_closed()
        except errors.Error as error:
            raise torch_error(error) from error

    def set_closed(self) -> None:
        if self._ended:
            return
        try:
            self._handler.set_closed("set_closed was called")
        except errors.Error as error:
            raise torch_error(error) from error

    # ---- the end

    def shutdown(self) -> bool:
        """Closes the rendezvous for all nodes when the job is over: its workers are done, or failed for good. Whatever
        else ends an agent (a signal, a failed join, an error on the way of one of them) is its own matter: it leaves."""
        error = sys.exc_info()[1]
        if self._spared:
            return self._end_spare(error)
        if self._ended:
            return True
        if error is not None and error is not self._outer and not getattr(error, "failures", None):
            return self._end(self._handler.leave, "left", 0)
        why = first_failure()
        reason = f"{self._handler.node}: {why or DONE}"
        return self._end(lambda: self._handler.set_closed(reason), f"closed the rendezvous: {why or 'done'}", LINGER_TIME)

    def _end(self, how: Callable[[], None], told: str, linger: float) -> bool:
        self._ended = True
        try:
            self._handler.set_close_timeout(LEAVE_TIME)
            self._handler.set_linger(linger)
            how()
            self._record(told, NodeState.SUCCEEDED)
        except errors.Error as error:
            log.warning("%s", error)
            return False
        finally:
            self._free()
        return True

    def _free(self) -> None:
        self._drop_round()
        self._handler.close()
        if self._own_server is not None:
            self._own_server.close()

    def _end_spare(self, error: BaseException | None) -> bool:
        """A spare that is not needed has not failed. But torchrun takes it for a failure: before 2.3 any error is one,
        and later versions then look at a result that is None (pytorch#194710). That is where this is called."""
        self._ended = True
        self._free()
        if isinstance(error, (AttributeError, api.RendezvousClosedError)):
            log.info("this node was a spare, and was not needed")
            raise SystemExit(0)
        return True

    def _leave_at_exit(self) -> None:
        """torchrun 1.13 ends by a signal without a word to its handler."""
        if not self._ended and self._handler._pid == os.getpid():
            self._end(self._handler.leave, "left", 0)

    # ---- records

    def _record(self, message: str, state: Any) -> None:
        try:
            result = self._result
            events.construct_and_record_rdzv_event(
                run_id=self._settings.run_id, message=f"The node '{self._handler.node}' {message}", node_state=state,
                name="rdzv", rank=result.rank if result else None,
                master_endpoint=f"{result.master_addr}:{result.master_port}" if result else "")
        except SIGNALS:
            raise
        except Exception as error:  # a record must not end what it tells
            log.debug("cannot record an event: %s", error)


class LateMaster(dict):  # type: ignore[type-arg]
    """Where rank 0 is a PyTorch agent before 2.4, it publishes its address when all agents have told their ranks."""

    def __init__(self, handler: Handler, result: Result) -> None:
        super().__init__()
        self._handler, self._result = handler, result

    def get(self, key: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        if key not in MASTER_KEYS:
            return default
        if not self._result.master_port:
            self._handler.find_master(self._result)
        if not self._result.master_port:
            return default
        return (self._result.master_addr if key == MASTER_KEYS[0] else str(self._result.master_port)).encode()


def create(params: Any, backend: str = "c10d") -> TorchHandler:
    """The creator of the backends."""
    try:
        return TorchHandler(Settings(params, backend))
    except errors.Error as error:
        raise torch_error(error) from error
