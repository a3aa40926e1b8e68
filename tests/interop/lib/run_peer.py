# SPDX-License-Identifier: BSD-3-Clause
"""torchrun, and workers with PyTorch, without their start-up time: imports PyTorch once, then forks itself for each
connection to a Unix socket, and obeys as torch_peer.py does.

run_peer.py SOCKET    prints "ready", runs until stdin closes

The names that it obeys are the methods of Peer. This file runs under 1.13's Python and under 2.6's; nothing of the
tests is imported here.
"""
import atexit
import ctypes
import dataclasses
import functools
import os
import random
import runpy
import select
import signal
import socket
import sys
import tempfile
import traceback
from datetime import timedelta

if os.environ.get("RDZV_TEST_PLUGIN"):  # what rdzv-torch.pth does where the package is installed
    import rdzv_torch_hook  # noqa: F401
import fork_server
import torch
import torch.distributed as dist
import torch.distributed.run as torchrun
from torch.distributed.elastic.agent.server import api as agent_api
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend, dynamic_rendezvous, static_tcp_rendezvous
from torch.distributed.elastic.utils import distributed as elastic_utils

IS_2 = not torch.__version__.startswith("1.")


def serve_workers(_, addr, port):
    return dist.TCPStore(addr, port, is_master=True, multi_tenant=True, use_libuv=False)


def do_without_libuv():
    """Debian's 2.6 is built without it; not all of it heeds USE_LIBUV=0."""
    store = functools.partial(dist.TCPStore, use_libuv=False)
    c10d_rendezvous_backend.TCPStore = static_tcp_rendezvous.TCPStore = store
    sys.modules["torch.distributed.rendezvous"].TCPStore = store
    dynamic_rendezvous.DynamicRendezvousHandler._create_tcp_store_server = serve_workers


def choose_ports():
    """PyTorch lets go of the port for its workers before they take it. In this range nobody is given one by chance."""
    def reserve():
        while True:
            taken = socket.socket()
            try:
                taken.bind(("localhost", random.SystemRandom().randrange(10000, 32000)))
                taken.listen(0)
                return taken
            except OSError:
                taken.close()

    agent_api._get_socket_with_port = reserve  # 1.13's
    elastic_utils.get_socket_with_port = reserve  # 2.6's


def set_keep_alive(interval, attempts):
    """What PyTorch has no option for."""
    make = dynamic_rendezvous.RendezvousSettings

    def settings(*arguments, **keywords):
        return dataclasses.replace(make(*arguments, **keywords), keep_alive_interval=timedelta(seconds=interval),
                                   keep_alive_max_attempt=attempts)

    dynamic_rendezvous.RendezvousSettings = settings


def enter(environment, folder):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None  # that of this environment


def take_streams(paths):
    sys.stdout.flush()
    sys.stderr.flush()
    for number, path in zip((1, 2), paths):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(fd, number)
        os.close(fd)


def exit_code_of(run):
    """What a process whose main module is run() exits with."""
    try:
        run()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except (ChildFailedError, SignalException) as error:
        print(type(error).__name__, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def run_script(words):
    sys.argv = words
    sys.path.insert(0, os.path.dirname(words[0]))
    code = exit_code_of(lambda: runpy.run_path(words[0], run_name="__main__"))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Peer:
    def __init__(self):
        choose_ports()
        if IS_2:
            do_without_libuv()

    def pid(self):
        return os.getpid()

    def flags(self):
        """All flags of torchrun: the spellings, whether each has a value, and what each is called."""
        return [(action.option_strings, action.nargs != 0, action.dest)
                for action in torchrun.get_args_parser()._actions if action.option_strings and action.dest != "help"]

    def torchrun(self, arguments, environment, folder, streams, addr, keep_alive):
        """Gives its exit code. addr is what PyTorch finds for the machine's own name."""
        enter(environment, folder)
        take_streams(streams)
        socket.getfqdn = lambda *_: addr
        if keep_alive:
            set_keep_alive(*keep_alive)
        code = exit_code_of(lambda: torchrun.main(arguments))
        if "rdzv" in sys.modules:  # what happens at the end of torchrun's own process
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        return code

    def work(self, launched, words, environment, folder):
        """Runs a script in the place of the process `launched`, gloo_worker.py, which has been started by a launcher:
        with its output, and not longer than it lives. Gives the exit code, or the signal's number below 0."""
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(fork_server.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            enter(environment, folder)
            take_streams([f"/proc/{launched}/fd/{number}" for number in (1, 2)])
            run_script(words)
        ends = select.poll()
        fds = [os.pidfd_open(each) for each in (launched, pid)]
        for fd in fds:
            ends.register(fd, select.POLLIN)
        if fds[0] in dict(ends.poll()):
            os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def answer(peer, name, arguments, keywords):
    try:
        return ("result", getattr(peer, name)(*arguments, **keywords))
    except Exception as error:  # whatever it is, the test wants to see it
        return ("error", type(error).__name__, str(error))


if __name__ == "__main__":
    fork_server.serve(Peer, answer)
