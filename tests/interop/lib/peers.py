# SPDX-License-Identifier: BSD-3-Clause
"""What the interop tests share: PyTorch processes that obey, and a relay that shows what goes over the wire."""
import functools
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from multiprocessing.connection import Client

import rdzvtest

VERSIONS = ("1.13", "2.6")
HERE = os.path.dirname(os.path.abspath(__file__))
# A folder that is at the same path inside 2.6's own system; see scripts/torch26.
if not tempfile.gettempdir().startswith("/tmp/"):
    tempfile.tempdir = "/tmp"


def is_left_out(version):
    return version == "2.6" and os.environ.get("RDZV_TORCH26", "on") == "off"


@functools.lru_cache(maxsize=None)
def why_missing(version):
    """The reason why that PyTorch is not here, or None."""
    if is_left_out(version):
        return "RDZV_TORCH26=off leaves PyTorch 2.6 out"
    if version == "1.13":
        return None if rdzvtest.has_torch113() else f"{rdzvtest.PYTHON} has no PyTorch 1.13 (python3-torch)"
    return None if rdzvtest.has_torch26() else "no PyTorch 2.6 (scripts/torch26 setup makes it)"


def need(version):
    """Skips the test without that PyTorch; in CI it fails, unless that version was left out on purpose."""
    reason = why_missing(version)
    if reason and os.environ.get("CI") and not is_left_out(version):
        raise AssertionError(f"{reason}: in CI that is a failure")
    if reason:
        raise unittest.SkipTest(reason)


class TorchError(Exception):
    """What PyTorch raised in the other process."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


class TorchProcess:
    """A process with PyTorch and one store; its methods are torch_peer.py's Peer's and the store's."""

    def __init__(self, path):
        self.connection = Client(path)
        self.process_id = None
        self.process_id = self.pid()

    def begin(self, name, *arguments, **keywords):
        """Has it start a call; finish() gives what comes of it."""
        self.connection.send((name, arguments, keywords))
        self.receive()
        return self

    def receive(self):
        if not self.connection.poll(rdzvtest.DEADLINE):
            raise TimeoutError(f"the PyTorch process {self.process_id} does not answer")
        return self.connection.recv()

    def finish(self):
        kind, *rest = self.receive()
        if kind == "error":
            raise TorchError(*rest)
        return rest[0]

    def begin_blocked(self, name, *arguments, **keywords):
        """Has it start a call that must block, and waits until it sleeps in it."""
        self.begin(name, *arguments, **keywords)
        rdzvtest.wait_until(lambda: is_asleep(self.process_id), f"{name} blocks")
        if self.connection.poll():
            raise AssertionError(f"{name}{arguments} did not block: {self.finish()!r}")
        return self

    def __getattr__(self, name):
        return lambda *arguments, **keywords: self.begin(name, *arguments, **keywords).finish()

    def close(self):
        self.connection.close()

    def kill(self):
        """Ends it as a crash does, and waits for that."""
        os.kill(self.process_id, signal.SIGKILL)
        try:
            while True:
                self.receive()
        except (EOFError, ConnectionError):
            self.close()


def is_asleep(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"


@functools.lru_cache(maxsize=None)
def torch_socket(version):
    """Starts torch_peer.py of that version, for all tests of this file; gives its socket's path."""
    folder = tempfile.mkdtemp(prefix="rdzv-torch-")
    unittest.addModuleCleanup(shutil.rmtree, folder)
    path = os.path.join(folder, "socket")
    environment = dict(os.environ, GLOO_SOCKET_IFNAME="lo", USE_LIBUV="0", OMP_NUM_THREADS="1",
                       TORCH_CPP_LOG_LEVEL="ERROR", PYTHONDONTWRITEBYTECODE="1")
    process = subprocess.Popen(rdzvtest.torch_python(version) + [os.path.join(HERE, "torch_peer.py"), path],
                               cwd=rdzvtest.SOURCE, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    unittest.addModuleCleanup(end_torch, process)
    if process.stdout.readline() != b"ready\n":
        raise RuntimeError(f"PyTorch {version} does not start")
    return path


def end_torch(process):
    process.stdin.close()
    process.stdout.close()
    process.wait(rdzvtest.DEADLINE)


class Relay:
    """Passes connections on to a port and keeps what clients sent and what they were answered."""

    def __init__(self, port):
        self.target = ("127.0.0.1", port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.sent, self.answered = bytearray(), bytearray()
        self.selector = selectors.DefaultSelector()
        self.stopped, self.stopping = socket.socketpair()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.stopped, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.stopped:
                    return
                if key.fileobj is self.listener:
                    self.accept()
                elif key.fileobj.fileno() >= 0:
                    self.move(key.fileobj, *key.data)

    def accept(self):
        client, server = self.listener.accept()[0], socket.create_connection(self.target)
        self.selector.register(client, selectors.EVENT_READ, (server, self.sent))
        self.selector.register(server, selectors.EVENT_READ, (client, self.answered))

    def move(self, source, to, record):
        try:
            data = source.recv(65536)
            record += data
            to.sendall(data)
        except ConnectionError:
            data = b""
        if not data:
            for end in (source, to):
                self.selector.unregister(end)
                end.close()

    def close(self):
        self.stopping.close()
        self.thread.join()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()


class Case(rdzvtest.Case):
    """A test with PyTorch processes. Our servers must end in order."""

    def setUp(self):
        super().setUp()
        self.servers = []

    def tearDown(self):
        for server in self.servers:
            self.stop(server)

    def serve(self, *options, **popen_options):
        server = super().serve(*options, **popen_options)
        self.servers.append(server)
        return server

    def torch(self, version):
        """A new process with that PyTorch."""
        need(version)
        process = TorchProcess(torch_socket(version))
        self.addCleanup(process.close)
        return process

    def torch_client(self, version, server, **keywords):
        process = self.torch(version)
        process.tcp(server.port, **keywords)
        return process

    def torch_server(self, version, **keywords):
        process = self.torch(version)
        process.port = process.tcp(0, master=True, **keywords)
        process.endpoint = f"127.0.0.1:{process.port}"
        return process

    def relay(self, port):
        relay = Relay(port)
        self.addCleanup(relay.close)
        return relay

    def begin_store(self, server, *arguments):
        """Starts `rdzv store` with something that takes long, and waits until its request is on the way; finish_store
        gives what came of it."""
        relay = self.relay(server.port)
        command = self.start([rdzvtest.RDZV, "store", "--endpoint", relay.endpoint, *arguments],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        key = b"/" + arguments[-1].encode()
        rdzvtest.wait_until(lambda: key in relay.sent, "the request is sent")
        self.assertIsNone(command.poll(), "it did not wait")
        return command

    def finish_store(self, command):
        stdout, stderr = command.communicate(timeout=rdzvtest.DEADLINE)
        return subprocess.CompletedProcess(command.args, command.returncode, stdout, stderr)

    def assert_done(self, finished, output=None):
        """The command said yes, and that."""
        self.assertEqual((finished.returncode, finished.stderr), (0, ""))
        if output is not None:
            self.assertEqual(finished.stdout, output)

    def assert_exit(self, finished, code, sentence=""):
        self.assertEqual(finished.returncode, code, finished.stderr)
        if sentence:
            self.assertRegex(finished.stderr, sentence)


def put(client, key, value):
    """Sets a value at a PyTorch client so that everybody sees it: an answered request behind it settles it."""
    client.set(key, value)
    client.num_keys()


def main():
    """Runs the file's tests; where all were skipped, so is the file (77)."""
    result = unittest.main(verbosity=2, exit=False).result
    ran = result.testsRun - len(result.skipped)
    sys.exit(1 if not result.wasSuccessful() else 77 if ran <= 0 else 0)
