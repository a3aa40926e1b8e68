# SPDX-License-Identifier: BSD-3-Clause
"""Real etcd for the tests: one member, or a cluster of three, on free loopback ports, with data folders of their own.

They end with the test, and in any case with the process that started them.
"""
import ctypes
import functools
import json
import os
import platform
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request

import rdzvtest
from rdzvtest import free_port

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 1, 38, 22, 2
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO_0 = 0x7FFF0000, 0x00050000
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # of BPF
# The kernel's name of the machine; its numbers of fsync and fdatasync.
SYNCS = {"x86_64": (0xC000003E, 74, 75), "aarch64": (0xC00000B7, 82, 83)}
PRCTL = ctypes.CDLL(None).prctl
NO_PROXY = urllib.request.ProxyHandler({})


def need():
    """Ends the test file as skipped, which in CI is a failure, where there is no etcd."""
    if not shutil.which("etcd"):
        rdzvtest.skip("there is no etcd (Debian's etcd-server)")


def hold_port():
    """A socket that keeps others from the port for as long as it is there, but not etcd, which binds as servers do."""
    while True:
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", random.randrange(10000, 32000)))
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return held
        except OSError:
            held.close()


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def instruction(code, value, if_true=0, if_false=0):
    return struct.pack("<HBBI", code, if_true, if_false, value)


def filter_of(machine):
    arch, fsync, fdatasync = SYNCS[machine]
    return (instruction(LOAD_WORD, 4) + instruction(JUMP_IF_EQUAL, arch, 0, 4) +
            instruction(LOAD_WORD, 0) + instruction(JUMP_IF_EQUAL, fsync, 1) + instruction(JUMP_IF_EQUAL, fdatasync, 0, 1) +
            instruction(RETURN, SECCOMP_RET_ERRNO_0) + instruction(RETURN, SECCOMP_RET_ALLOW))


# Made once: between fork and exec as little as possible is done.
FILTER = filter_of(platform.machine()) if platform.machine() in SYNCS else b""
PROGRAM = Program(len(FILTER) // 8, FILTER)


def skip_syncs():
    """Syncs of this process do nothing and succeed. What it writes is safe from its own death, not from a power loss. Where the
    kernel refuses, syncs are what they always are."""
    if FILTER and PRCTL(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        PRCTL(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(PROGRAM))


def before_exec():
    """It dies with its parent. Its syncs do nothing: leases do not run out because others load the disk."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)
    skip_syncs()


class Member:
    """One etcd. Its ports stay the same when it is started again, and so does its data, unless it is wiped."""

    def __init__(self, folder, name="one", options=(), scheme="http", context=None, binary="etcd"):
        self.name, self.options, self.scheme, self.context = name, list(options), scheme, context
        self.binary = binary
        self.data, self.log = os.path.join(folder, name), os.path.join(folder, f"{name}.log")
        self.held = hold_port(), hold_port()
        self.port, self.peer_port = (held.getsockname()[1] for held in self.held)
        self.endpoint = f"127.0.0.1:{self.port}"
        self.url, self.peer_url = f"{scheme}://{self.endpoint}", f"http://127.0.0.1:{self.peer_port}"
        self.cluster = f"{name}={self.peer_url}"
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.binary, "--enable-v2", "--name", self.name, "--data-dir", self.data,
                 "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
                 "--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url,
                 "--initial-cluster", self.cluster, *self.options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=before_exec)
        return self

    def await_ready(self):
        def ready():
            if self.process.poll() is not None:
                with open(self.log, encoding="utf-8", errors="replace") as log:
                    raise RuntimeError(f"etcd ended with {self.process.returncode}: {log.read()[-2000:]}")
            try:
                return self.get("/health")["health"] == "true"
            except (OSError, ValueError):
                return False

        rdzvtest.wait_until(ready, f"etcd {self.name} answers")
        return self

    def open(self, method, path, form=None, timeout=10):
        return self.open_body(method, path, None if form is None else urllib.parse.urlencode(form).encode(), timeout)

    def open_body(self, method, path, data, timeout=10):
        handlers = [NO_PROXY] + ([urllib.request.HTTPSHandler(context=self.context)] if self.context else [])
        request = urllib.request.Request(self.url + path, data, method=method)
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
            return answer.read()

    def get(self, path):
        return json.loads(self.open("GET", path))

    def node(self, key):
        """The node at that key, or None."""
        try:
            return self.get(f"/v2/keys{urllib.parse.quote(key)}?quorum=true&recursive=true")["node"]
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def put(self, key, value, **form):
        return json.loads(self.open("PUT", f"/v2/keys{urllib.parse.quote(key)}", dict(form, value=value)))

    def fill_history(self, count=1100):
        """More events than etcd remembers (1000), on one connection."""
        with socket.create_connection(("127.0.0.1", self.port)) as wire:
            for i in range(count):
                body = f"value={i}"
                wire.sendall(f"PUT /v2/keys/noise HTTP/1.1\r\nHost: e\r\nContent-Length: {len(body)}\r\n"
                             f"Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}".encode())
                if i % 100 == 99:  # what is answered is thrown away; it must not fill the pipe
                    wire.recv(1 << 20)
            wire.shutdown(socket.SHUT_WR)
            while wire.recv(1 << 20):
                pass

    def counts(self):
        """What it has done: gets that failed, watches that are open, and more."""
        return self.get("/v2/stats/store")

    def is_leader(self):
        return self.get("/v2/stats/self")["state"] == "StateLeader"

    def kill(self):
        """As a crash does."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        if self.process:
            self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def wipe(self):
        shutil.rmtree(self.data, True)


class Cluster:
    """Three members."""

    def __init__(self, folder):
        self.members = [Member(folder, name) for name in ("a", "b", "c")]
        everybody = ",".join(member.cluster for member in self.members)
        for member in self.members:
            member.cluster = everybody
        self.endpoints = ",".join(member.endpoint for member in self.members)
        self.url = f"http://{self.endpoints}"

    def start(self):
        for member in self.members:
            member.start()
        for member in self.members:
            member.await_ready()
        return self

    def alive(self):
        return [member for member in self.members if member.process.poll() is None]

    def leader(self):
        def find():
            for member in self.alive():
                try:
                    if member.is_leader():
                        return member
                except (OSError, ValueError):  # it is in an election, and may answer with nothing
                    pass
            return None

        return rdzvtest.wait_until(find, "the cluster has a leader")

    def follower(self):
        leader = self.leader()
        return next(member for member in self.alive() if member is not leader)

    def kill_leader(self):
        leader = self.leader()
        leader.kill()
        return leader

    def heal(self):
        """Starts again who was killed."""
        for member in self.members:
            if member.process.poll() is not None:
                member.start()
        for member in self.members:
            member.await_ready()

    def kill(self):
        for member in self.members:
            member.kill()


def folder_for(add_cleanup):
    folder = tempfile.mkdtemp(prefix="rdzv-etcd-")
    add_cleanup(shutil.rmtree, folder, True)
    return folder


def start(add_cleanup, options=(), **keywords):
    """A member that ends with the test or module whose cleanups these are."""
    member = Member(folder_for(add_cleanup), options=options, **keywords).start()
    add_cleanup(member.kill)
    return member.await_ready()


def start_cluster(add_cleanup):
    cluster = Cluster(folder_for(add_cleanup))
    add_cleanup(cluster.kill)
    return cluster.start()


@functools.lru_cache(maxsize=None)
def shared():
    """One member for all tests of a file; they take prefixes of their own."""
    return start(unittest.addModuleCleanup)


@functools.lru_cache(maxsize=None)
def shared_cluster():
    return start_cluster(unittest.addModuleCleanup)
