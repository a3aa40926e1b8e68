# SPDX-License-Identifier: BSD-3-Clause
"""Agents of torchrun for bench/torchrun, without the time that Python and PyTorch take to start: imports once, forks.

torch_agents.py    reads commands from stdin, one of JSON a line, and answers each with a line of JSON:
  {"join": N, "backend": "c10d"|"rdzv", "endpoint": "H:P", "run_id": "..."}    -> seconds, or null: not all in time
  {"launch": N, "backend": ..., "endpoint": ..., "run_id": ..., "notes": "FILE"}  -> the agents' process ids
  {"get": "H:P", "times": N}    -> seconds for a get of torch's TCPStore and of rdzv.Store
  {"serve": true}               -> the port of a TCPStore of PyTorch's
"""
import ctypes
import functools
import json
import os
import select
import signal
import sys
import time

import rdzv_torch_hook  # noqa: F401, what rdzv-torch.pth does
import torch
import torch.distributed as dist
import torch.distributed.run as torchrun
from torch.distributed.elastic.rendezvous import RendezvousParameters, c10d_rendezvous_backend
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

IS_2 = not torch.__version__.startswith("1.")
LIMIT = 60  # seconds for a round
PR_SET_PDEATHSIG = 1
WITHOUT_LIBUV = {"use_libuv": False} if IS_2 else {}  # Debian's 2.6 is built without it
if IS_2:
    c10d_rendezvous_backend.TCPStore = functools.partial(dist.TCPStore, use_libuv=False)
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous
    dynamic_rendezvous.DynamicRendezvousHandler._create_tcp_store_server = \
        lambda _, addr, port: dist.TCPStore(addr, port, is_master=True, multi_tenant=True, use_libuv=False)
servers = []


def fork(work):
    parent, pid = os.getpid(), os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    try:
        work()
    finally:
        os._exit(0)


def parameters(command, nodes):
    local = {"local_addr": "127.0.0.1"} if IS_2 else {}
    return RendezvousParameters(command["backend"], command["endpoint"], command["run_id"], nodes, nodes,
                                is_host="false", timeout=900, **local)


def join(command):
    """All handlers are there before the first joins."""
    count = command["join"]
    go, ready, done = os.pipe(), os.pipe(), os.pipe()

    def work():
        os.close(go[1])
        handler = get_rendezvous_handler(parameters(command, count))
        os.write(ready[1], b"r")
        os.read(go[0], 1)  # until the other end is closed
        handler.next_rendezvous()
        os.write(done[1], b"d")
        select.select([], [], [], LIMIT)

    pids = [fork(work) for _ in range(count)]
    seconds = None
    if await_bytes(ready[0], count):
        began = time.monotonic()
        os.close(go[1])
        if await_bytes(done[0], count):
            seconds = time.monotonic() - began
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    for fd in (go[0], *ready, *done):
        os.close(fd)
    return seconds


def await_bytes(fd, count):
    until = time.monotonic() + LIMIT
    while count > 0:
        if not select.select([fd], [], [], max(0, until - time.monotonic()))[0]:
            return False
        count -= len(os.read(fd, count))
    return True


def launch(command):
    """torchrun itself. Each worker notes when it was started."""
    count = command["launch"]
    own = ["--local-addr=127.0.0.1"] if IS_2 else ["-r", "9:1", "-t", "9:1"]
    worker = f'echo "$TORCHELASTIC_RUN_ID $GROUP_WORLD_SIZE $(date +%s.%N)" >>{command["notes"]}; exec sleep 1000'
    words = [f"--nnodes=1:{count}", "--nproc_per_node=1", "--max_restarts=3", f"--rdzv_backend={command['backend']}",
             f"--rdzv_endpoint={command['endpoint']}", f"--rdzv_id={command['run_id']}", "--rdzv_conf=is_host=false",
             *own, "--no_python", "/bin/sh", "-c", worker]

    def work():
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        torchrun.main(words)

    return [fork(work) for _ in range(count)]


def time_gets(command):
    import rdzv
    host, port = command["get"].split(":")
    theirs = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, **WITHOUT_LIBUV)
    ours = rdzv.Store.tcp(command["get"])
    ours.set("key", "value")
    best = []
    for get in (theirs.get, ours.get):
        seconds = []
        for _ in range(7):
            began = time.perf_counter()
            for _ in range(command["times"]):
                get("key")
            seconds.append((time.perf_counter() - began) / command["times"])
        best.append(min(seconds))
    return best


def serve(_):
    servers.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, **WITHOUT_LIBUV))
    return servers[-1].port


def main():
    print("ready", flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        answer = next(do for name, do in (("join", join), ("launch", launch), ("get", time_gets), ("serve", serve))
                      if name in command)(command)
        print(json.dumps(answer), flush=True)


main()
