# SPDX-License-Identifier: BSD-3-Clause
"""A node of ours in the tests of rendezvous."""
import json
import os
import queue
import signal
import subprocess
import threading

import rdzvtest

CLOSED = 8  # what it exits with


class Ours:
    """A node of ours: `rdzv join`."""

    def __init__(self, case, name, arguments):
        self.log, self.complaints = case.path(f"events-{name}"), case.path(f"stderr-{name}")
        with open(self.complaints, "w", encoding="utf-8") as stderr:
            self.process = case.start([rdzvtest.RDZV, "join", "--event-log", self.log, "--log-level", "info",
                                       *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True)
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        case.addCleanup(self.kill)

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def line(self):
        try:
            line = self.lines.get(timeout=rdzvtest.DEADLINE)
        except queue.Empty:
            raise TimeoutError(f"rdzv join says nothing; so far: {self.said()}") from None
        if line is None:
            raise AssertionError(f"rdzv join ended with {self.process.wait()}: {self.said()}")
        return line

    def joined(self):
        """The next round that it prints."""
        result = json.loads(self.line())
        result["members"] = [(member["rank"], member["node"]) for member in result["members"]]
        result["master"] = (result["master_addr"], result["master_port"])
        return result

    def said(self):
        with open(self.complaints, encoding="utf-8") as file:
            return file.read()

    def events(self):
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8") as file:
            return [json.loads(line)["message"] for line in file if line.endswith("\n")]

    def await_event(self, text):
        rdzvtest.wait_until(lambda: any(text in event for event in self.events()), f"'{text}' in {self.log}")

    def await_said(self, text):
        rdzvtest.wait_until(lambda: text in self.said(), f"rdzv join says '{text}'")

    def await_exit(self):
        return self.process.wait(rdzvtest.DEADLINE)

    def stop(self):
        """So that it stays where it is, and keeps nothing alive."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def leave(self):
        self.process.send_signal(signal.SIGTERM)
        return self.await_exit()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
