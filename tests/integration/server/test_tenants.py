# SPDX-License-Identifier: BSD-3-Clause
"""Limits for many runs: how many, how much memory for one, and the end of those that nobody uses."""
import re
import signal
import subprocess

import rdzvtest


class Tenants(rdzvtest.Case):
    def key(self, run, part=""):
        return f"torch.rendezvous.{run}{part}"

    def set(self, server, key, value="v", dialect="rdzv"):
        return self.store(server, "--dialect", dialect, "set", key, value)

    def join(self, server, run, **options):
        return self.start([rdzvtest.RDZV, "join", "--rdzv-endpoint", server.endpoint, "--rdzv-id", run, "--nnodes", "1",
                           "--rdzv-conf", "is_host=false,last_call_timeout=0.1", "--local-addr", "127.0.0.1"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)

    def test_one_run_more_is_refused(self):
        server = self.serve("--max-runs", "2", "--log-level", "off")
        for key in (self.key("a"), self.key("b", ".0/MASTER_ADDR"), "rdzv.reason.a", "other", "torch.rendezvous"):
            self.assertEqual(self.set(server, key).returncode, 0, key)
        done = self.set(server, self.key("c"))
        self.assertIn("the limit of 2 runs is reached", done.stderr)
        self.assertNotEqual(self.set(server, self.key("c"), dialect="v2").returncode, 0)
        node = self.join(server, "c")
        self.assertNotEqual(node.wait(rdzvtest.DEADLINE), 0)
        self.assertIn("the limit of 2 runs is reached", node.stderr.read())
        self.store(server, "delete", self.key("a"))
        self.store(server, "delete", "rdzv.reason.a")
        self.assertEqual(self.set(server, self.key("c")).returncode, 0)  # the place of a run that is gone

    def test_a_run_has_its_own_memory(self):
        server = self.serve("--max-run-memory", "100K", "--log-level", "off")
        for number in range(2):
            self.assertEqual(self.set(server, self.key("a", f".{number}/k"), "x" * 40000).returncode, 0)
        done = self.set(server, self.key("a", ".2/k"), "x" * 40000)
        self.assertIn("a memory limit", done.stderr)
        self.assertEqual(self.set(server, self.key("b"), "x" * 40000).returncode, 0)
        self.assertEqual(self.set(server, "other", "x" * 100000).returncode, 0)
        self.store(server, "delete", self.key("a", ".0/k"))
        self.assertEqual(self.set(server, self.key("a", ".2/k"), "x" * 40000).returncode, 0)

    def test_a_run_that_nobody_uses_goes(self):
        with open(self.path("log"), "wb") as log:
            server = self.serve("--run-ttl", "1", stderr=log)
        for key in (self.key("old"), self.key("old", ".0/a"), "rdzv.bell.old", self.key("read"), "other"):
            self.assertEqual(self.set(server, key).returncode, 0)
        node = self.join(server, "live")
        self.assertTrue(node.stdout.readline())

        def only_the_used_are_left():
            self.store(server, "get", self.key("read"))
            return self.key("old") not in self.store(server, "keys").stdout

        rdzvtest.wait_until(only_the_used_are_left, "the run goes")
        keys = set(self.store(server, "keys").stdout.split("\n"))
        self.assertIn("other", keys)
        self.assertIn(self.key("read"), keys)
        self.assertIn(self.key("live"), keys)
        self.assertFalse([key for key in keys if key.startswith(self.key("old"))])
        with open(self.path("log"), encoding="utf-8") as file:
            self.assertEqual(len(re.findall("run 'old' was not used for 1 s: 3 keys are removed", file.read())), 1)
        node.send_signal(signal.SIGTERM)
        self.assertEqual(node.wait(rdzvtest.DEADLINE), 0)

    def test_what_was_kept_is_loaded_whatever_the_limits(self):
        state = self.path("state")
        server = self.serve("--state-dir", state)
        for run in "abc":
            self.assertEqual(self.set(server, self.key(run), "x" * 50000).returncode, 0)
        self.stop(server)
        server = self.serve("--state-dir", state, "--max-runs", "2", "--max-run-memory", "10K", "--log-level", "off")
        self.assertEqual(self.store(server, "num-keys").stdout, "3\n")
        self.assertNotEqual(self.set(server, self.key("d")).returncode, 0)
        self.assertNotEqual(self.set(server, self.key("a", ".0/x"), "x" * 10000).returncode, 0)
        self.stop(server)


if __name__ == "__main__":
    rdzvtest.main()
