# SPDX-License-Identifier: BSD-3-Clause
"""A program that has done its slow imports once, and forks a process for each connection to its Unix socket.

The process obeys the test: it makes one object, and answers each request with what `answer(object, *request)` gives.
"""
import ctypes
import os
import select
import signal
import socket
import sys
from multiprocessing.connection import Connection

PR_SET_PDEATHSIG = 1


def obey(connection, make, answer):
    subject = make()
    try:
        while True:
            request = connection.recv()
            connection.send("began")
            connection.send(answer(subject, *request))
    except (EOFError, ConnectionError):
        os._exit(0)  # the test is over: stores are not to be closed, a FileStore would write once more


def fork(accepted, make, answer):
    """The process ends with its connection, and in any case with its parent."""
    parent = os.getpid()
    pid = os.fork()
    if pid != 0:
        return pid
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    return obey(Connection(accepted.detach()), make, answer)


def reap(pids):
    return {pid for pid in pids if os.waitpid(pid, os.WNOHANG)[0] == 0}


def serve(make, answer):
    """Listens on the socket that the command line names, says "ready", and ends when stdin closes."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen()
    print("ready", flush=True)
    pids = set()
    while 0 not in (ready := select.select([0, listener], [], [])[0]):
        pids = reap(pids)
        if listener in ready:
            accepted, _ = listener.accept()
            pids.add(fork(accepted, make, answer))
            accepted.close()
    for pid in reap(pids):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
