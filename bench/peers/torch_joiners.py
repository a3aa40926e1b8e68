#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Stock PyTorch nodes that join one rendezvous at once, for measurements beside ours: each node is a process.

torch_joiners.py    prints "ready <version>", obeys lines of JSON, runs until stdin closes

A line is an object with `endpoint`, `nodes`, `run_id`, `limit` (seconds) and, where they are others than c10d, `nodes`
and none, `backend`, `max_nodes` and `conf`. The answer is another: the seconds from the common start until the last
next_rendezvous has returned (opening included), or how many had joined when the limit had passed. PyTorch is imported
once and the nodes are forked from that, so that no import is measured. It is a figure only if all is right: every rank
once, one round, a world of N.
"""
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from datetime import timedelta

# 2.4 and later let rank 0 serve one more store, by libuv, which Debian's build does not have; without it rank 0
# publishes its address in the store of the round, as ours does.
os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"

import torch  # noqa: E402
from torch.distributed import TCPStore  # noqa: E402
from torch.distributed.elastic.rendezvous import RendezvousParameters  # noqa: E402
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend  # noqa: E402
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler  # noqa: E402

IS_2 = not torch.__version__.startswith("1.")
PR_SET_PDEATHSIG = 1
START_S = 120  # for all processes to be forked
libc = ctypes.CDLL(None, use_errno=True)


def open_c10d(params):
    """As PyTorch's create_backend does, but for libuv, which 2.6 asks for on the client's side, too."""
    host, port = params.endpoint.split(":")
    own = {"use_libuv": False} if IS_2 else {}
    store = TCPStore(host, int(port), is_master=False, multi_tenant=True, timeout=timedelta(seconds=60), **own)
    return create_handler(store, C10dRendezvousBackend(store, params.run_id), params)


def opener(backend):
    """What makes a handler of parameters; etcd's need python-etcd."""
    if backend == "etcd":
        from torch.distributed.elastic.rendezvous.etcd_rendezvous import create_rdzv_handler
        return create_rdzv_handler
    if backend == "etcd-v2":
        from torch.distributed.elastic.rendezvous.etcd_rendezvous_backend import create_backend

        def open_etcd_v2(params):
            cell, store = create_backend(params)
            return create_handler(store, cell, params)
        return open_etcd_v2
    return open_c10d


def next_rendezvous(handler, backend):
    """Rank, world size, and what only the nodes of one round have in common."""
    info = handler.next_rendezvous()
    store, rank, world_size = (info.store, info.rank, info.world_size) if IS_2 else info
    return rank, world_size, store.prefix if backend == "etcd" else handler._state_holder.state.round


def node(open_handler, params, ready, go, results):
    """A process: ready, go, and what came of it; then it stays, with its heartbeats, until it is killed."""
    os.write(ready, b".")
    os.read(go, 1)  # ends when the other end is closed
    try:
        handler = open_handler(params)
        opened = time.monotonic()
        rank, world_size, number = next_rendezvous(handler, params.backend)
        answer = {"opened": opened, "joined": time.monotonic(), "rank": rank, "world": world_size, "round": number}
    except Exception as error:  # whatever it is, it is the result
        answer = {"error": f"{type(error).__name__}: {error} ({error.__cause__})"[:1000]}
    os.write(results, json.dumps(answer).encode() + b"\n")  # shorter than PIPE_BUF: in one piece
    signal.pause()


def fork_node(go, arguments):
    parent, pid = os.getpid(), os.fork()
    if pid:
        return pid
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(go)  # the parent's end, which must be the only one
        if os.getppid() == parent:
            node(*arguments)
    finally:
        os._exit(1)


def read_some(fd, until):
    """What has come, or nothing at the end of time."""
    left = max(0, until - time.monotonic())
    return os.read(fd, 1 << 16) if select.select([fd], [], [], left)[0] else b""


def read_count(fd, mark, count, until):
    text = b""
    while text.count(mark) < count and b'"error"' not in text:
        more = read_some(fd, until)
        if not more:
            break
        text += more
    return text


def outcome(nodes, start, text):
    answers = [json.loads(line) for line in text.splitlines()]
    errors = [answer["error"] for answer in answers if "error" in answer]
    if errors:
        return {"nodes": nodes, "error": errors[0]}
    if len(answers) < nodes:
        return {"nodes": nodes, "joined": len(answers)}
    if sorted(a["rank"] for a in answers) != list(range(nodes)) or {a["world"] for a in answers} != {nodes} or len(
            {a["round"] for a in answers}) != 1:
        return {"nodes": nodes, "error": f"wrong ranks, worlds or rounds: {text[:500].decode()}"}
    return {"nodes": nodes, "joined": nodes, "seconds": max(a["joined"] for a in answers) - start,
            "opened": max(a["opened"] for a in answers) - start}


def end_all(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


def parameters(endpoint, nodes, run_id, backend="c10d", max_nodes=None, conf=None):
    own = {"local_addr": "127.0.0.1"} if IS_2 else {}
    return RendezvousParameters(backend, endpoint, run_id, nodes, max_nodes or nodes, **own, **(conf or {}))


def measure(limit, **what):
    params, nodes = parameters(**what), what["nodes"]
    open_handler = opener(params.backend)  # before the start: imports are not measured
    (ready, ready_in), (go_out, go), (results, results_in) = [os.pipe() for _ in range(3)]
    to_close, pids = [ready, ready_in, go_out, go, results, results_in], []
    try:
        for _ in range(nodes):
            pids.append(fork_node(go, (open_handler, params, ready_in, go_out, results_in)))
        if len(read_count(ready, b".", nodes, time.monotonic() + START_S)) < nodes:
            return {"nodes": nodes, "error": f"the processes did not start within {START_S} s"}
        start = time.monotonic()
        to_close.remove(go)
        os.close(go)
        return outcome(nodes, start, read_count(results, b"\n", nodes, start + limit))
    finally:
        end_all(pids)
        for fd in to_close:
            os.close(fd)


def main():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    print("ready", torch.__version__, flush=True)
    for line in iter(sys.stdin.readline, ""):
        print(json.dumps(measure(**json.loads(line))), flush=True)
    os._exit(0)


main()
