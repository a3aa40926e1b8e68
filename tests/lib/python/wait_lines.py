# SPDX-License-Identifier: BSD-3-Clause
"""What a command that waits says, and when."""
import signal
import socket
import subprocess
import threading
import time

import rdzvtest
from rdzvtest import RDZV, slow

YES, NO, USAGE, CONNECT, TIMEOUT, UNKNOWN, REFUSED, IO, CLOSED = range(9)
FIRST_S, QUIET_S, END_S = slow(4), slow(8), slow(15)  # promised: 1, 3, 5
CLIENT = "is_host=false"


class Heard:
    """A command, and what it has said on stderr when."""

    def __init__(self, case, *arguments, before=()):
        self.case, self.lines = case, []
        self.process = case.start([*before, RDZV, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)
        self.began = time.monotonic()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        case.addCleanup(self.end)

    def read(self):
        for line in self.process.stderr:
            self.lines.append((time.monotonic() - self.began, line.rstrip("\n")))

    def text(self):
        return "\n".join(f"{at:.1f} {line}" for at, line in self.lines)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()

    def line(self, *parts):
        """The first line that has all of these in it: when, and the line."""
        return next(((at, line) for at, line in list(self.lines) if all(part in line for part in parts)), None)

    def expect(self, within, *parts):
        """A line with all of these comes in time."""
        end = self.began + within
        while not self.line(*parts) and time.monotonic() < end and self.reader.is_alive():
            time.sleep(0.01)
        found = self.line(*parts)
        self.case.assertIsNotNone(found, f"{parts} not within {within} s in:\n{self.text()}")
        return found[1]

    def exits(self, code, within=END_S):
        self.case.assertEqual(self.process.wait(rdzvtest.DEADLINE), code, self.text())
        took = time.monotonic() - self.began
        self.reader.join()
        self.case.assertLess(took, within, self.text())

    def goes_on(self):
        self.case.assertIsNone(self.process.poll(), self.text())

    def stop(self):
        """Ends it in order; what is waited for can be canceled."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(rdzvtest.DEADLINE)
        self.reader.join()


class Waits(rdzvtest.Case):
    def listener(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        return listener

    def held_port(self):
        """Bound, so that nobody else gets it, and nobody listens."""
        holder = socket.socket()
        self.addCleanup(holder.close)
        holder.bind(("127.0.0.1", 0))
        return holder.getsockname()[1]

    def answering(self, answer):
        """A server whose connections are handed over to `answer`, one after the other."""
        listener = self.listener()

        def run():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(rdzvtest.DEADLINE)
                    try:
                        answer(connection)
                    except OSError:
                        pass

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(listener.shutdown, socket.SHUT_RDWR)
        return listener.getsockname()[1]

    def join(self, endpoint, *options, conf=CLIENT):
        return Heard(self, "join", "--rdzv-endpoint", endpoint, "--rdzv-id", "job", "--rdzv-conf", conf, *options)

    def run_job(self, endpoint, *options, conf=CLIENT):
        return Heard(self, "run", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id",
                     "job", "--rdzv-conf", conf, *options, "--no-python", "/bin/true")
