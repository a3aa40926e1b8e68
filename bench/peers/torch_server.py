#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A PyTorch TCPStore server on 127.0.0.1 for measurements beside ours: prints its port, runs until stdin closes.

torch_server.py [--libuv]    PyTorch 2's libuv backend in place of the poll backend; needs a build that has it
"""
import os
import resource
import sys
from datetime import timedelta

# Thousands of connections: every file this process may have.
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

from torch.distributed import TCPStore  # noqa: E402


def main():
    if sys.argv[1:] not in ([], ["--libuv"]):
        sys.exit("usage: torch_server.py [--libuv]")
    libuv = bool(sys.argv[1:])
    arguments = dict(is_master=True, wait_for_workers=False, timeout=timedelta(seconds=30))
    try:
        store = TCPStore("127.0.0.1", 0, use_libuv=libuv, **arguments)
    except TypeError:  # before 2.3 there is no such argument, and only one backend
        if libuv:
            raise
        store = TCPStore("127.0.0.1", 0, **arguments)
    print(store.port, flush=True)
    while os.read(0, 4096):
        pass
    # At once: the server's thread ends with the process, and shutting the interpreter down does nothing more.
    os._exit(0)


main()
