# SPDX-License-Identifier: BSD-3-Clause
"""What the Python tests share: where things are, servers that end with the test, and waiting for events.

Nothing here sleeps to be safe: readiness is a port file, an end is a waited-for process.
"""
import contextlib
import errno
import functools
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
BUILD = os.environ.get("RDZV_BUILD", os.path.join(SOURCE, "build"))
RDZV = os.path.join(BUILD, "rdzv")  # it and librdzv.so are built for every Python test
PYTHON = "/usr/bin/python3"
SANITIZED = os.environ.get("RDZV_SANITIZE", "")
DEADLINE = 120.0  # for anything that should happen soon

# Children inherit ignored signals: `nohup make test`, or a shell that starts the tests in the background, must not change a result.
for number in signal.SIGHUP, signal.SIGINT, signal.SIGQUIT:
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def built(path):
    """A file or folder that the build makes. scripts/test-targets finds these calls, with the text as it stands here, and so
    builds what a test needs."""
    return os.path.join(BUILD, path)


def torch26_folder():
    return os.path.join(os.environ.get("RDZV_CACHE", "/var/cache/rdzv"), "debian13")


def has_torch26():
    return os.environ.get("RDZV_TORCH26", "on") != "off" and os.path.exists(os.path.join(torch26_folder(), ".ready"))


def has_torch113():
    return subprocess.run([PYTHON, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"],
                          check=False).returncode == 0


def torch_python(version):
    """The command line that runs a Python with that PyTorch ("1.13" or "2.6"), from the source folder."""
    if version == "1.13":
        return [PYTHON]
    return [os.path.join(SOURCE, "scripts", "torch26"), "run", "python3"]


def free_port():
    """One that nobody is given by chance: it is outside the range for outgoing connections."""
    while True:
        port = random.randrange(10000, 32000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return port
        except OSError:
            pass


def slow_computing():
    """How many times longer a moment of computing takes now than on a quiet machine: 1 or more."""
    began, computed = time.monotonic(), time.process_time()
    while time.process_time() - computed < 0.03:
        pass
    return max(1.0, (time.monotonic() - began) / 0.03)


def slowness():
    """The same, of computing and of syncs to the disk."""
    with tempfile.TemporaryFile(buffering=0) as file:
        began = time.monotonic()
        for _ in range(3):
            file.write(b"x")
            os.fsync(file.fileno())
        synced = (time.monotonic() - began) / 3
    return max(slow_computing(), synced / 0.02)


@functools.lru_cache(maxsize=None)
def slow_at_start():
    return min(slow_computing(), 6)


def slow(seconds):
    """A time that has to be short, because a test waits for its end, and has to be long enough for what must happen before:
    so long on a quiet machine, and longer the busier this one is."""
    return round(seconds * slow_at_start(), 2)


def slow_int(seconds):
    """The same in whole seconds."""
    return math.ceil(slow(seconds))


def wait_until(condition, what, seconds=DEADLINE):
    """Looks until condition() is true; the error says what did not happen."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.005)
    return result


def descriptors(pid):
    """What a process has open, by number."""
    found = {}
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            found[int(number)] = os.readlink(f"/proc/{pid}/fd/{number}")
    return found


def thread_states(pid):
    """What each thread of a process does, for the message of a test: R computes, S waits, D is at the disk, T is stopped."""
    states = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii") as file:
            states.append(file.read().rpartition(")")[2].split()[0])
    return f"{len(states)} threads {''.join(sorted(states))}"


def is_connected(process, port):
    """Whether that process has a connection to that port, of IPv4."""
    own = set(descriptors(process.pid).values())
    with open("/proc/net/tcp", encoding="ascii") as table:
        sockets = [line.split() for line in list(table)[1:]]
    return any(remote.endswith(f":{port:04X}") and state == "01" and f"socket:[{inode}]" in own
               for _, _, remote, state, _, _, _, _, _, inode, *_ in sockets)


class Case(unittest.TestCase):
    """A test with a folder of its own; whatever it starts is ended and waited for, and its folder removed."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="rdzv-test-")
        self.addCleanup(self.remove_folder)

    def remove_folder(self):
        """Workers of an agent that was killed end a moment after it; until then they may write files."""
        def removed():
            with contextlib.suppress(FileNotFoundError):
                try:
                    shutil.rmtree(self.folder)
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY:
                        raise
            return not os.path.exists(self.folder)

        wait_until(removed, f"no process writes to {self.folder}")

    def path(self, name):
        return os.path.join(self.folder, name)

    def assert_brief(self, took, seconds, message=None):
        """So much time is enough on a quiet machine; more, the busier this one is."""
        if took >= seconds:
            self.assertLess(took, seconds * max(slowness(), slow_at_start()), message)

    def assert_within(self, began, seconds, message=None):
        """What began then has not taken longer than that, in the same sense."""
        self.assert_brief(time.monotonic() - began, seconds, message)

    def start(self, command, **options):
        """Starts a process that must not outlive the test."""
        process = subprocess.Popen(command, **options)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()

    def serve(self, *options, **popen_options):
        """Starts `rdzv serve` on a free port; the process has its port and endpoint as attributes."""
        port_file = self.path(f"port-{time.monotonic_ns()}")
        server = self.start([RDZV, "serve", "--port", "0", "--port-file", port_file, *options],
                            stdout=subprocess.DEVNULL, **popen_options)
        server.port_file = port_file

        def ready():
            if server.poll() is not None:
                raise RuntimeError(f"rdzv serve ended with {server.returncode}")
            return os.path.exists(port_file)

        wait_until(ready, "rdzv serve writes its port file")
        with open(port_file, encoding="ascii") as file:
            server.port = int(file.read())
        server.endpoint = f"127.0.0.1:{server.port}"
        return server

    def stop(self, server):
        """Ends a server in order and checks that it says all is well (a sanitizer report would not be)."""
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(DEADLINE), 0)

    def rdzv(self, *arguments, **options):
        """Runs the command and gives the finished process, its output as text."""
        options.setdefault("timeout", DEADLINE)
        return subprocess.run([RDZV, *arguments], capture_output=True, text=options.pop("text", True), check=False,
                              **options)

    def rdzv_for_all(self):
        """A copy of the command that every user can run: the checkout may be in a folder of root's alone."""
        os.chmod(self.folder, 0o755)
        return shutil.copy(RDZV, self.path("rdzv"))

    def store(self, server, *arguments, **options):
        return self.rdzv("store", "--endpoint", server.endpoint, *arguments, **options)


def main():
    unittest.main(verbosity=2)


def skip(why):
    """Ends the whole test as skipped."""
    print(f"SKIP: {why}", file=sys.stderr)
    sys.exit(77)
