# SPDX-License-Identifier: BSD-3-Clause
"""A command ends within 5 s of its first signal, and at once with a second one, also where its store is gone or silent.
The limits here leave time for a busy machine; the waits that are cut short would last for 600 s.
"""
import os
import signal
import subprocess
import time

import etcd
import rdzvtest
from rdzvtest import wait_until
from run_nodes import Run, children_of

FIRST_S, SECOND_S = 20, 20
CONF = "last_call_timeout=0.1,close_timeout=600,read_timeout=600"
KINDS = "c10d", "etcd-v2", "etcd", "etcd-v3"


class Ends(Run):
    def setUp(self):
        super().setUp()
        etcd.need()
        self.store, self.member = self.serve(), etcd.start(self.addCleanup)

    def place(self, kind):
        """The flags that say where the rendezvous is."""
        port, more = (self.store.port, ",is_host=false") if kind == "c10d" else (self.member.port, "")
        return ["--rdzv-backend", kind, "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job", "--rdzv-conf",
                f"{CONF}{more}", "--local-addr", "127.0.0.1"]

    def join(self, kind, nnodes="1:2", *words):
        with open(self.path(f"{kind}.out"), "wb") as out, open(self.path(f"{kind}.err"), "wb") as err:
            return self.start([rdzvtest.RDZV, "join", "--log-level", "info", "--nnodes", nnodes, *self.place(kind), *words],
                              stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def has(self, name, text):
        with open(self.path(name), encoding="utf-8") as file:
            return text in file.read()

    def harm(self, number):
        """The stores are gone, or silent."""
        self.store.send_signal(number)
        self.member.process.send_signal(number)

    def end_all(self, processes, codes, limit):
        """Sends SIGTERM to all, and waits until they have ended."""
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        for kind, process in processes.items():
            try:
                ended = process.wait(max(began + limit - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                ended = "still running"
            self.assertIn(ended, codes, f"{kind} after {time.monotonic() - began:.1f} s")
        print(f"{time.monotonic() - began:.1f} s ...", end=" ", flush=True)

    # ---- rdzv join ----

    def in_a_round(self, harm):
        joined = {kind: self.join(kind) for kind in KINDS}
        for kind in KINDS:
            wait_until(lambda name=f"{kind}.out": self.has(name, "\n"), f"{kind}: in a round")
        self.harm(harm)
        return joined

    def test_join_whose_store_is_gone(self):
        self.end_all(self.in_a_round(signal.SIGKILL), [0], FIRST_S)

    def test_join_whose_store_is_silent(self):
        self.end_all(self.in_a_round(signal.SIGSTOP), [0], FIRST_S)

    def test_join_that_waits_for_nodes_while_its_store_is_silent(self):
        joined = {kind: self.join(kind, "2:2") for kind in KINDS}
        for kind in KINDS:
            wait_until(lambda name=f"{kind}.err": self.has(name, "to join the next round"), f"{kind}: joins")
        self.harm(signal.SIGSTOP)
        self.end_all(joined, [0], FIRST_S)

    def test_join_that_leaves_already(self):
        """The command has ended, and the node leaves: the signal makes that short."""
        joined = {kind: self.join(kind, "1:2", "--", "sh", "-c", f"echo on; while [ ! -e {self.path('end')} ]; do "
                                                                 "sleep 0.02; done") for kind in KINDS}
        for kind in KINDS:
            wait_until(lambda name=f"{kind}.out": self.has(name, "on\n"), f"{kind}: its command runs")
        self.harm(signal.SIGSTOP)
        self.touch("end")
        for kind, process in joined.items():
            wait_until(lambda pid=process.pid: not children_of(pid), f"{kind}: its command has ended")
        self.end_all(joined, [0], FIRST_S)

    def test_a_second_signal(self):
        for kind, process in self.in_a_round(signal.SIGSTOP).items():  # one by one: the first ends it in 5 s
            process.send_signal(signal.SIGTERM)
            wait_until(lambda pid=process.pid: not self.is_pending(pid), f"{kind} has taken the signal")
            self.end_all({kind: process}, [-signal.SIGTERM], SECOND_S)

    @staticmethod
    def is_pending(pid):
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            pending = next(int(line.split()[1], 16) for line in file if line.startswith("ShdPnd:"))
        return bool(pending & 1 << signal.SIGTERM - 1)

    # ---- rdzv run ----

    def test_run_that_closes_already(self):
        """The workers are done, and the rendezvous is closed: two signals cut that short, which else takes 6 s."""
        worker = self.script("echo on; await end")
        agents = {kind: self.launch(kind, ["--nnodes", "1", *self.place(kind), "--no-python"], [worker]).process
                  for kind in KINDS}
        for kind in KINDS:
            wait_until(lambda name=f"{kind}.out": self.has(name, "on\n"), f"{kind}: its worker runs")
        self.harm(signal.SIGSTOP)
        self.touch("end")
        for kind in KINDS:
            wait_until(lambda name=f"{kind}.err": self.has(name, "workers of this node are done"), f"{kind}: is done")
        for process in agents.values():
            process.send_signal(signal.SIGTERM)
        for kind, process in agents.items():
            wait_until(lambda pid=process.pid: not self.is_pending(pid), f"{kind} has taken the signal")
        self.end_all(agents, [0, -signal.SIGTERM], rdzvtest.slow(4))  # the signal kills what is over already

    # ---- those that have nothing to leave ----

    def test_commands_that_look(self):
        self.harm(signal.SIGSTOP)
        for kind in KINDS:
            for words in (["status"], ["status", "--watch"], ["close"], ["reset"]):
                flags = [flag for flag in self.place(kind) if flag not in ("--local-addr", "127.0.0.1")]
                process = self.start([rdzvtest.RDZV, *words, *flags], stdin=subprocess.DEVNULL)
                wait_until(lambda pid=process.pid: os.readlink(f"/proc/{pid}/exe") == os.path.realpath(rdzvtest.RDZV),
                           "it runs")
                process.send_signal(signal.SIGTERM)
                self.assertIn(process.wait(FIRST_S), (0, -signal.SIGTERM), f"{words} at {kind}")


if __name__ == "__main__":
    rdzvtest.main()
