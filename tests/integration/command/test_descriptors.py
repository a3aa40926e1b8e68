# SPDX-License-Identifier: BSD-3-Clause
"""Every command with every limit on descriptors (`ulimit -n`) from 3 to 40: no command is killed by a signal, and one
that fails says why, with the limit. Libraries below rdzv abort, or hide the cause, where they find no descriptor."""
import contextlib
import os
import resource
import signal
import subprocess
import time

import etcd
import rdzvtest

LIMITS = [*range(3, 41), 256]  # the last is enough for all
LOADER = 127  # the dynamic loader has found no descriptor for a library; rdzv has not begun
SOON = "last_call_timeout=0.1"


class Descriptors(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        if rdzvtest.SANITIZED:
            self.skipTest("a sanitizer takes descriptors of its own")

    def begin(self, limit, words):
        """Starts the command with that limit. In a word {n} is a path for that limit alone, {id} a text."""
        def limited():
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

        path = self.path(str(limit))
        with open(f"{path}.err", "wb") as err:
            return self.start([rdzvtest.RDZV, *[word.replace("{n}", path).replace("{id}", f"job-{limit}") for word in words]], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=err, preexec_fn=limited,
                              env={**os.environ, "TMPDIR": self.folder})

    def said(self, limit):
        with open(self.path(f"{limit}.err"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def check(self, limit, code, what):
        """What must be of a command that has ended."""
        said = self.said(limit)
        where = f"{what} with {limit} descriptors ended with {code}: {said[-600:]}"
        if code == LOADER and "error while loading shared libraries" in said:
            return
        self.assertGreaterEqual(code, 0, where)
        if code == 0:
            return
        own = [line for line in said.split("\n") if line.startswith("rdzv")]  # the rest is the log
        self.assertTrue(own, where)
        for hidden in "Bad file descriptor", "closes every connection":
            self.assertNotIn(hidden, own[-1], where)
        for line in said.split("\n"):
            if "Too many open files" in line or "ulimit" in line:
                self.assertIn(f"(the limit is {limit}, see ulimit -n)", line, where)

    def each(self, *words):
        """Ends by itself. Gives the smallest limit that is enough."""
        processes = {limit: self.begin(limit, words) for limit in LIMITS}
        for limit, process in processes.items():
            self.check(limit, process.wait(rdzvtest.DEADLINE), words[0])
        enough = [limit for limit, process in processes.items() if process.returncode == 0]
        self.assertIn(LIMITS[-1], enough, f"{words[0]}: {self.said(LIMITS[-1])}")
        print(f"{enough[0]} are enough ...", end=" ", flush=True)

    def each_that_serves(self, *words):
        """Is ended when it has written its port file."""
        processes = {limit: self.begin(limit, [*words, "--port-file", "{n}.port"]) for limit in LIMITS}
        end = time.monotonic() + rdzvtest.DEADLINE
        for limit, process in processes.items():
            while process.poll() is None and not os.path.exists(self.path(f"{limit}.port")):
                self.assertLess(time.monotonic(), end, f"with {limit} descriptors: {self.said(limit)}")
                time.sleep(0.01)
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            self.check(limit, process.wait(rdzvtest.DEADLINE), words[0])
        self.assertEqual(processes[LIMITS[-1]].returncode, 0, self.said(LIMITS[-1]))

    # ---- a server, a job ----

    def test_serve(self):
        self.each_that_serves("serve", "--bind", "127.0.0.1", "--port", "0")

    def test_serve_with_a_state_folder(self):
        self.each_that_serves("serve", "--bind", "127.0.0.1", "--port", "0", "--state-dir", "{n}.state")

    def test_run(self):
        self.each("run", "--standalone", "--rdzv-conf", "join_timeout=5", "--no-python", "/bin/true")

    def test_run_at_a_server(self):
        self.each("run", "--nnodes", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", self.serve().endpoint, "--rdzv-id",
                  "{id}", "--rdzv-conf", f"{SOON},is_host=false", "--no-python", "/bin/true")

    # ---- nodes, and commands that look ----

    def test_join_that_serves(self):
        self.each("join", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", "{id}", "--once", "--rdzv-conf",
                  f"{SOON},join_timeout=5")

    def test_join(self):
        for mode in "native", "swap":
            self.each("join", "--rdzv-endpoint", self.serve().endpoint, "--rdzv-id", "{id}", "--once", "--rdzv-conf",
                      f"{SOON},is_host=false,mode={mode},join_timeout=5")

    def test_commands_that_look(self):
        place = "--rdzv-endpoint", self.serve().endpoint
        node = self.rdzv("join", *place, "--rdzv-id", "job", "--once", "--rdzv-conf", f"{SOON},is_host=false")
        self.assertEqual(node.returncode, 0, node.stderr)
        self.each("status", *place, "--rdzv-id", "job")
        self.each("list", *place)
        self.each("close", *place, "--rdzv-id", "job")
        self.each("store", "--endpoint", place[1], "--timeout", "5", "set", "k", "v")

    # ---- etcd ----

    def test_etcd(self):
        etcd.need()
        endpoint = etcd.shared().endpoint
        for kind in "etcd-v2", "etcd", "etcd-v3":
            name = "timeout" if kind == "etcd" else "join_timeout"
            self.each("join", "--rdzv-backend", kind, "--rdzv-endpoint", endpoint, "--rdzv-id", "{id}", "--once",
                      "--rdzv-conf", f"{SOON},{name}=5")
        for kind in "--etcd", "--etcd3":
            self.each("store", kind, endpoint, "--prefix", self.id(), "--timeout", "5", "set", "k", "v")


if __name__ == "__main__":
    rdzvtest.main()
