# SPDX-License-Identifier: BSD-3-Clause
"""rdzv: elastic rendezvous and a key-value store for the processes of a distributed job, over librdzv.

Store, Server, Handler, Agent and EtcdProcess are the objects of the C library (include/rdzv), and rdzv.errors has its
errors. PyTorch is not needed. rdzv.torch is the plug-in for torchrun; nothing of it is imported here.

RDZV_LOG=info (error, warning, debug) in the environment makes objects without a log= write to stderr.

A name is imported when it is used first: torchrun and the hook of rdzv.torch import this package where they need
nothing of it.
"""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rdzv.agent import Agent as Agent, AgentEvent as AgentEvent, EtcdProcess as EtcdProcess
    from rdzv.agent import Failure as Failure, Outcome as Outcome, WorkerEvent as WorkerEvent
    from rdzv.errors import Error as Error
    from rdzv.handler import Change as Change, Event as Event, Handler as Handler, NodeStatus as NodeStatus
    from rdzv.handler import Participant as Participant, Result as Result, Status as Status
    from rdzv.handler import WorkerRanks as WorkerRanks, list_runs as list_runs, remove_run as remove_run
    from rdzv.server import Server as Server
    from rdzv.store import Etcd as Etcd, Store as Store

    __version__: str

_WHERE = {
    "rdzv.agent": ("Agent", "AgentEvent", "EtcdProcess", "Failure", "Outcome", "WorkerEvent"),
    "rdzv.errors": ("Error",),
    "rdzv.handler": ("Change", "Event", "Handler", "NodeStatus", "Participant", "Result", "Status", "WorkerRanks",
                     "list_runs", "remove_run"),
    "rdzv.server": ("Server",),
    "rdzv.store": ("Etcd", "Store"),
}
_HOME = {name: module for module, names in _WHERE.items() for name in names}
__all__ = [*_HOME, "errors"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from rdzv._library import library
        return library.rdzv_version().decode()
    if name == "errors":
        return _import("rdzv.errors")
    if name not in _HOME:
        raise AttributeError(f"module 'rdzv' has no attribute '{name}'")
    found: object = getattr(_import(_HOME[name]), name)
    globals()[name] = found
    return found


def _import(module: str) -> object:
    import importlib
    return importlib.import_module(module)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
