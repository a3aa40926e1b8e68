# SPDX-License-Identifier: BSD-3-Clause
"""A worker that need not import PyTorch: run_peer.py at SOCKET has, and runs the script in its place.

gloo_worker.py SOCKET SCRIPT [ARG...]
"""
import os
import signal
import sys
from multiprocessing.connection import Client


def main():
    connection = Client(sys.argv[1])
    connection.send(("work", (os.getpid(), sys.argv[2:], dict(os.environ), os.getcwd()), {}))
    connection.recv()  # it has begun
    try:
        kind, result, *_ = connection.recv()
    except EOFError:
        sys.exit("the process that worked in my place is gone")
    if kind == "error":
        sys.exit(f"{result}: {_}")
    if result < 0:
        signal.signal(-result, signal.SIG_DFL)
        os.kill(os.getpid(), -result)
    sys.exit(result)


main()
