# SPDX-License-Identifier: BSD-3-Clause
"""rdzv:// as an init_method of PyTorch, for programs without a launcher:

    init_process_group("gloo", init_method="rdzv://host:29400/job?nnodes=2:4")

Each process is a node. The ranks are those of the round. BACKEND of "?backend=etcd-v3" is one of `rdzv join`, and every
other name after the question mark is an option of it, as in --rdzv-conf. After destroy_process_group, the same call joins
the next round. handler(url) is the node, to wait for changes and to leave.

`import rdzv.torch.init_method` registers it; with the package installed that is done by rdzv-torch.pth.
"""
from __future__ import annotations

import atexit
from datetime import timedelta
from urllib.parse import parse_qsl, unquote, urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from rdzv.handler import Handler

SCHEME = "rdzv"
IGNORED = ("rank", "world_size")  # PyTorch adds them where the program gives them
nodes: dict[str, Any] = {}  # by URL


class Params:
    """PyTorch's RendezvousParameters, as far as they are looked at."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
        for name in IGNORED:
            if int(options.pop(name, "-1")) >= 0:
                raise ValueError(f"{url}: {name} is given by the rendezvous (leave it out)")
        first, colon, last = options.pop("nnodes", "1").partition(":")
        self.backend, self.endpoint = SCHEME, parts.netloc
        self.run_id = unquote(parts.path.strip("/"))
        self.min_nodes, self.max_nodes = int(first), int(last if colon else first)
        self.local_addr = options.pop("local_addr", None)
        self.config = options
        if not self.run_id or not self.endpoint:
            raise ValueError(f"{url}: use rdzv://HOST:PORT/RUN_ID?nnodes=MIN:MAX")


def without_ignored(url: str) -> str:
    """The URL as the user gave it: PyTorch adds the rank that it does not know."""
    base, _, query = url.partition("?")
    kept = [part for part in query.split("&") if part and part.partition("=")[0] not in IGNORED]
    return f"{base}?{'&'.join(kept)}" if kept else base


class Node:
    """The node of one URL in this process."""

    def __init__(self, url: str) -> None:
        from rdzv.handler import Handler
        from rdzv.torch.handler import Settings, log_level, write_log
        self.settings = Settings(Params(url), "c10d")
        self.stores: list[Any] = []
        self.handler = Handler(self.settings.backend, self.settings.endpoint, self.settings.run_id,
                               self.settings.nodes, conf=self.settings.conf, local_addr=self.settings.local_addr,
                               log=write_log, level=log_level())

    def join(self, timeout: timedelta) -> tuple[Any, int, int]:
        from rdzv.torch.handler import split_endpoint
        from rdzv.torch.store import OwnStore, PlainStore, torch_client
        result = self.handler.next()
        if self.settings.is_plain():
            host, port = split_endpoint(self.settings.endpoint)
            prefix = f"torch.rendezvous.{self.settings.run_id}.{result.round}"
            store: Any = PlainStore(prefix, torch_client(host, port, timeout), result.open_store)
        else:
            store = OwnStore(result.open_store)
        store.set_timeout(timeout)
        self.stores.append(store)  # C++ keeps its part alone, and would call methods of nothing
        return store, result.rank, result.world_size

    def leave(self) -> None:
        from rdzv.errors import Error
        if not self.handler.closed:
            try:
                self.handler.set_close_timeout(5)
                self.handler.leave()
            except Error:
                pass
            self.handler.close()


def handler(url: str) -> Handler:
    """The node that init_process_group has made for this URL in this process."""
    found: Handler = nodes[without_ignored(url)].handler
    return found


def leave(url: str) -> None:
    """Leaves the rendezvous; the other nodes go on. Done at the end of the process, too."""
    nodes.pop(without_ignored(url)).leave()


def leave_all() -> None:
    while nodes:
        nodes.popitem()[1].leave()


def rendezvous(url: str, timeout: timedelta = timedelta(minutes=30), **_more: object) -> Iterator[tuple[Any, int, int]]:
    """What PyTorch calls: yields the store, the rank and the world size of one round after the other."""
    name = without_ignored(url)
    if name not in nodes:
        if not nodes:
            atexit.register(leave_all)
        nodes[name] = Node(name)
    while True:
        yield nodes[name].join(timeout)


def register(registry: Any = None) -> None:
    """Registers the scheme with torch.distributed.rendezvous, once."""
    if registry is None:
        import importlib
        registry = importlib.import_module("torch.distributed.rendezvous")
    if SCHEME not in registry._rendezvous_handlers:
        registry.register_rendezvous_handler(SCHEME, rendezvous)


register()
