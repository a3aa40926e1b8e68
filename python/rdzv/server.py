# SPDX-License-Identifier: BSD-3-Clause
"""The store server, to be run inside a program. See rdzv/server.h.

    with rdzv.Server(port=0) as server:
        print(server.address)
"""
from __future__ import annotations

import time
from ctypes import byref, c_int, c_size_t, pointer, sizeof

from rdzv._call import (Object, integer, left_of, make_log, milliseconds, milliseconds_or, open_object, optional_text,
                        text_of)
from rdzv._library import ServerOptions, library
from rdzv.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rdzv._call import LogFunction, Seconds, Text
    from rdzv.store import Etcd

ANY_PORT = -1
LOOK_MS = 100
LIMITS = ("max_connections", "max_key_bytes", "max_value_bytes", "max_keys", "max_memory", "max_waits", "max_runs",
          "max_run_memory")


class Server(Object):
    """A server that listens and serves, in a thread of the library, until it is closed. With start=False it only
    listens, and run() serves."""

    _kind = "server"
    _instead = "pass its address"

    def __init__(self, bind: Text | None = None, port: int | None = None, *, run_id: Text | None = None,
                 listen_fd: int = 0, request_timeout: Seconds | None = None, idle_timeout: Seconds | None = None,
                 session_timeout: Seconds | None = None, run_ttl: Seconds | None = None, state_dir: Text | None = None,
                 secret_file: Text | None = None, tls_cert: Text | None = None, tls_key: Text | None = None,
                 tls_client_ca: Text | None = None, allow_plain: Text | None = None, state_etcd: Etcd | None = None,
                 state_prefix: Text | None = None, state_lease: Seconds | None = None, advertise: Text | None = None,
                 renew_groups: bool = False, start: bool = True, log: LogFunction | None = None, level: str = "warning",
                 **limits: int) -> None:
        """`port` 0 is any free one; default 29400. `limits` are those of rdzv_server_options: max_connections,
        max_key_bytes, max_value_bytes, max_keys, max_memory, max_waits, max_runs, max_run_memory. `secret_file` "" is
        none, whatever RDZV_SECRET_FILE says. `renew_groups` is for a store of PyTorch workers: a process group that is
        formed again finds no keys of the one before. With `state_etcd` use start=False and run(), which tells when another server
        has become the active one."""
        super().__init__()
        unknown = set(limits) - set(LIMITS)
        if unknown:
            raise Invalid(f"limit '{unknown.pop()}': choose one of {', '.join(LIMITS)}")
        made, self._log = make_log(log, level)
        options: Any = ServerOptions(
            bind=optional_text(bind, "bind"), port=ANY_PORT if port == 0 else integer(port or 0, c_int, "port"),
            listen_fd=integer(listen_fd, c_int, "listen_fd"),
            run_id=optional_text(run_id, "run_id"), request_timeout_ms=milliseconds_or(request_timeout, 0),
            idle_timeout_ms=milliseconds_or(idle_timeout, 0), session_timeout_ms=milliseconds_or(session_timeout, 0),
            run_ttl_ms=milliseconds_or(run_ttl, 0), state_dir=optional_text(state_dir, "state_dir"),
            secret_file=optional_text(secret_file, "secret_file"), tls_cert=optional_text(tls_cert, "tls_cert"),
            tls_key=optional_text(tls_key, "tls_key"), tls_client_ca=optional_text(tls_client_ca, "tls_client_ca"),
            allow_plain=optional_text(allow_plain, "allow_plain"),
            state_prefix=optional_text(state_prefix, "state_prefix"), state_lease_ms=milliseconds_or(state_lease, 0),
            advertise=optional_text(advertise, "advertise"), renew_groups=renew_groups,
            **{name: integer(limit, c_size_t, name) for name, limit in limits.items()})
        options.size = sizeof(options)
        if made is not None:
            options.log = pointer(made)
        if state_etcd is not None:
            from rdzv.store import etcd_options

            options.state_etcd = etcd_options(state_etcd)
        open_object(self, library.rdzv_server_open, byref(options))
        if start:
            self._call(library.rdzv_server_start)

    def run(self) -> None:
        """Serves in the calling thread until the server is stopped, or a signal is caught. With state_etcd, it first
        waits until no other server is active; a server that loses its lease stands by again. Stale: the state in
        state_dir was replaced by another one."""
        self._told(library.rdzv_server_run)

    def _interrupt(self, number: int) -> None:
        self._ask(library.rdzv_server_stop)

    def _stop(self, pointer: int) -> None:
        library.rdzv_server_stop(pointer)

    def _free(self, pointer: int) -> None:
        library.rdzv_server_free(pointer)

    @property
    def address(self) -> str:
        """ "127.0.0.1:29400" """
        return text_of(self._ask(library.rdzv_server_address))

    @property
    def port(self) -> int:
        number: int = self._ask(library.rdzv_server_port)
        return number

    def stop(self) -> None:
        """Tells the server to stop; close() also waits for that."""
        self._ask(library.rdzv_server_stop)

    def reload(self) -> None:
        """Makes the server read the files of its secret and certificates again."""
        self._ask(library.rdzv_server_reload)

    def drain(self, timeout: Seconds) -> None:
        """Waits until no client is connected, for so long at most. In short waits: signal handlers run between them, and
        close() in another thread ends it."""
        began, total = time.monotonic(), milliseconds(timeout)
        left, gone = total, False
        while not gone:
            each, since = min(left, LOOK_MS), time.monotonic()
            self._ask(lambda server: library.rdzv_server_drain(server, each))
            left = left_of(began, total)
            gone = left == 0 or left_of(since, each) > each // 2

    def __repr__(self) -> str:
        return "<rdzv.Server closed>" if self.closed else f"<rdzv.Server {self.address}>"
