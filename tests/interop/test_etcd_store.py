# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's EtcdStore and ours in the same etcd."""
import concurrent.futures
import subprocess

import etcd
import peers
import rdzvtest
from etcd_nodes import Theirs, torch_socket


class Store(peers.Case):
    def setUp(self):
        super().setUp()
        peers.need("1.13")
        self.etcd = etcd.shared()
        self.prefix = f"/store/{self.id()}"
        self.theirs = Theirs(torch_socket())
        self.addCleanup(self.theirs.end)
        self.theirs.etcd_store(self.etcd.port, self.prefix)

    def ours(self, *arguments, **options):
        return self.rdzv("store", "--etcd", self.etcd.url, "--prefix", self.prefix, *arguments, **options)

    def test_ours_reads_what_theirs_wrote(self):
        every = bytes(range(256))
        self.theirs.set("k", "from PyTorch")
        self.theirs.set("bytes", every)
        self.theirs.set("empty", b"")
        self.assert_done(self.ours("get", "k"), "from PyTorch\n")
        self.assertEqual(self.ours("--raw", "get", "bytes", text=False).stdout, every)
        self.assert_done(self.ours("get", "empty"), "\n")
        self.assert_done(self.ours("check", "k", "bytes", "empty"))
        self.assert_done(self.ours("num-keys"), "3\n")
        self.assertEqual(sorted(self.ours("keys").stdout.split()), ["bytes", "empty", "k"])

    def test_theirs_reads_what_ours_wrote(self):
        every = bytes(range(256))
        self.assert_done(self.ours("set", "k", "from rdzv"))
        self.assert_done(self.ours("set", "b", "-", input="x" * 100000))
        self.assertEqual(self.ours("set", "c", "-", input=every, text=False).returncode, 0)
        self.assertEqual(self.theirs.get("k"), b"from rdzv")
        self.assertEqual(self.theirs.get("b"), b"x" * 100000)
        self.assertEqual(self.theirs.get("c"), every)
        self.assertTrue(self.theirs.check(["k", "b"]))
        self.assertFalse(self.theirs.check(["k", "z"]))

    def test_names_with_slashes(self):
        """PyTorch cannot get these itself, but set them and add to them."""
        for key, number in (("\u00ff?\u00ff?x", "\u00ff?n"), ("ab?", "cd?")):
            self.theirs.set(key, "v")
            self.assert_done(self.ours("get", key), "v\n")
            self.assertEqual(self.theirs.add(number, 2), 2)
            self.assert_done(self.ours("add", number, "3"), "5\n")
        self.assert_done(self.ours("num-keys"), "4\n")

    def test_adding_in_turns(self):
        self.assert_done(self.ours("add", "n", "5"), "5\n")
        self.assertEqual(self.theirs.add("n", 2), 7)
        self.assert_done(self.ours("add", "n", "-10"), "-3\n")
        self.assertEqual(self.theirs.get("n"), b"-3")

    def test_no_add_is_lost(self):
        others = [Theirs(torch_socket()) for _ in range(2)]
        for other in others:
            self.addCleanup(other.end)
            other.etcd_store(self.etcd.port, self.prefix)
            other.begin("add_many", "sum", 40)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            sums = [int(text) for text in pool.map(lambda _: self.ours("add", "sum", "1").stdout, range(30))]
        for other in others:
            sums += other.finish()
        self.assertEqual(sorted(sums), list(range(1, 111)))

    def test_theirs_wakes_ours(self):
        ours = self.start([rdzvtest.RDZV, "store", "--etcd", self.etcd.url, "--prefix", self.prefix, "get", "k"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        rdzvtest.wait_until(lambda: self.etcd.get("/v2/stats/store")["watchers"] > 0, "it watches")
        self.theirs.set("k", "v")
        self.assert_done(self.finish_store(ours), "v\n")

    def test_ours_wakes_theirs(self):
        self.theirs.set("first", "")  # they need the directory
        self.theirs.begin_blocked("get", "k")
        self.assert_done(self.ours("set", "k", "v"))
        self.assertEqual(self.theirs.finish(), b"v")


class NotEtcd(peers.Case):
    """A TCPStore of PyTorch at the endpoint is recognized, and not waited for."""

    def check(self, version):
        server = self.torch_server(version)
        for operation in ("get", "k"), ("set", "k", "v"):
            finished = self.rdzv("store", "--etcd", f"http://{server.endpoint}", "--prefix", "/p", *operation)
            self.assert_exit(finished, 3, f"a TCPStore answers at {server.endpoint}, not etcd .*--rdzv-backend c10d")
            self.assertEqual(len(finished.stderr.splitlines()), 1, finished.stderr)
        self.assertEqual(server.num_keys(), 0)  # and is in order

    def test_1_13(self):
        self.check("1.13")

    def test_2_6(self):
        self.check("2.6")


if __name__ == "__main__":
    etcd.need()
    peers.main()
