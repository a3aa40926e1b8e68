# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv list` and `rdzv reset`: the runs of a store, for each backend."""
import json
import subprocess

import etcd
import rdzvtest
from run_nodes import CONNECT, NO, REFUSED, USAGE, YES

HEADING = ["ID", "PHASE", "ROUND", "NODES", "WAITING", "END"]


class Runs:
    """What holds for every backend; where() are the flags that name the store."""

    def where(self):
        raise NotImplementedError

    def run_id(self, name):
        return name

    def joined(self, name):
        """Somebody was in it, and left it open."""
        done = self.rdzv("join", *self.where(), "--rdzv-id", self.run_id(name), "--once")
        self.assertEqual(done.returncode, YES, done.stderr)

    def close(self, name, reason):
        done = self.rdzv("close", *self.where(), "--rdzv-id", self.run_id(name), "--reason", reason)
        self.assertEqual(done.returncode, YES, done.stderr)

    def ids(self):
        done = self.rdzv("list", *self.where(), "--json")
        self.assertIn(done.returncode, (YES, NO), done.stderr)
        return {line["run_id"]: (line["phase"], line.get("reason"))
                for line in map(json.loads, done.stdout.splitlines())}

    def reset(self, name, *flags, code=YES):
        done = self.rdzv("reset", *self.where(), "--rdzv-id", self.run_id(name), *flags)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def test_runs_are_listed_and_removed(self):
        done = self.rdzv("list", *self.where())
        self.assertEqual((done.returncode, done.stdout), (NO, ""))
        self.assertEqual(done.stderr, "rdzv list: no runs in this store\n")
        names = ["a", "b", "c.reason", "c.0/x"] if self.DOTS else ["a", "b", "c.reason"]
        for name in names:
            self.joined(name)
        self.close("b", "the disk is full")
        found = self.ids()
        self.assertEqual(set(found), {self.run_id(name) for name in names})
        self.assertEqual(found[self.run_id("a")][1], None)
        self.assertEqual(found[self.run_id("b")], ("closed", "the disk is full"))
        rows = [line.split(maxsplit=5) for line in self.rdzv("list", *self.where()).stdout.splitlines()]
        self.assertEqual(rows[0], HEADING)
        self.assertEqual([row[0] for row in rows[1:]], sorted(found))
        self.assertTrue(any(row[-1].endswith("the disk is full") for row in rows), rows)
        said = self.reset("a", code=REFUSED)
        self.assertIn("cannot remove rendezvous 'a': it is not closed", said)
        self.assertIn("or remove it with --force", said)
        self.reset("b")
        self.assertEqual(self.reset("b", code=NO), "rdzv reset: nothing to remove: no node ever joined rendezvous 'b'\n")
        self.reset("a", "--force")
        self.assertEqual(set(self.ids()), {self.run_id(name) for name in names[2:]})
        self.joined("b")  # from the beginning
        self.assertEqual(self.ids()[self.run_id("b")][1], None)
        for name in names[1:]:
            self.reset(name, "--force")
        self.assertEqual(self.ids(), {})
        self.assertEqual(self.left(), [])

    def test_a_run_has_no_key_of_another(self):
        self.close("y.reason", "foo")
        self.close("y", "bar")
        found = self.ids()
        self.assertEqual(found, {self.run_id("y"): ("closed", "bar"), self.run_id("y.reason"): ("closed", "foo")})
        self.reset("y.reason", "--force")
        self.assertEqual(self.ids(), {self.run_id("y"): ("closed", "bar")})
        for part in "reason", "bell", "permit", "move", "program":
            self.joined(f"y.{part}")
            self.reset(f"y.{part}", "--force")
        self.assertEqual(self.ids(), {self.run_id("y"): ("closed", "bar")})
        self.reset("y")
        self.assertEqual(self.left(), [])

    def left(self):
        return []


class C10d(Runs, rdzvtest.Case):
    DOTS = True

    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def where(self):
        return ["--rdzv-endpoint", self.server.endpoint]

    def left(self):
        """Not even a queue is left, nor what was asked for and never joined."""
        keys = self.store(self.server, "keys").stdout.splitlines()
        return [key for key in keys if not key.endswith("x")]

    def test_a_run_that_was_only_asked_for_is_not_listed(self):
        self.rdzv("status", *self.where(), "--rdzv-id", "x")
        self.assertEqual(self.ids(), {})

    def test_what_is_no_state_does_not_hide_the_others(self):
        self.joined("a")
        self.store(self.server, "set", "torch.rendezvous.broken", "nonsense!")
        done = self.rdzv("list", *self.where(), "--json")
        self.assertEqual(done.returncode, REFUSED)
        self.assertIn("run 'broken': ", done.stderr)
        self.assertEqual(json.loads(done.stdout)["run_id"], "a")
        self.reset("broken", code=REFUSED)
        self.reset("broken", "--force")
        self.assertEqual(set(self.ids()), {"a"})

    def test_the_program_of_an_unnamed_run_is_forgotten(self):
        run = ["run", "--rdzv-backend", "c10d", *self.where(), "--log-level", "off"]
        self.assertEqual(self.rdzv(*run, "true").returncode, YES)
        self.assertEqual(self.rdzv(*run, "echo").returncode, USAGE)
        self.reset("none")
        self.assertEqual(self.rdzv(*run, "echo").returncode, YES)

    def test_command_lines(self):
        for words, code, says in ((["reset"], USAGE, "flag '--rdzv-id' is missing"), (["list", "x"], USAGE, "unexpected argument 'x'"),
                                  (["reset", "x"], USAGE, "unexpected argument 'x'"),
                                  (["list", "--rdzv-backend", "static"], REFUSED, "backend 'static' has no runs"),
                                  (["list", "--rdzv-endpoint", "127.0.0.1:1", "--rdzv-conf", f"read_timeout={rdzvtest.slow(0.5)}"],
                                   CONNECT, "127.0.0.1:1")):
            with self.subTest(words):
                done = self.rdzv(*words)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertIn(says, done.stderr)


class File(Runs, rdzvtest.Case):
    DOTS = True

    def where(self):
        return ["--rdzv-endpoint", self.path("store"), "--rdzv-conf", "store_type=file"]

    def left(self):
        return self.rdzv("store", "--file", self.path("store"), "keys").stdout.splitlines()


class Etcd(Runs, rdzvtest.Case):
    BACKEND, DOTS, ROUNDS = "etcd-v2", True, "/torch/elastic/store"

    def where(self):
        return ["--rdzv-backend", self.BACKEND, "--rdzv-endpoint", etcd.shared().endpoint]

    def left(self):
        """Of the rounds: a later run of that id would find the keys of this one's."""
        folder = etcd.shared().get(f"/v2/keys{self.ROUNDS}")["node"]
        return [node["key"] for node in folder.get("nodes", [])]


class EtcdV1(Etcd):
    BACKEND, DOTS, ROUNDS = "etcd", False, "/torchelastic/p2p"

    def joined(self, name):
        """A member that leaves would close it."""
        node = self.start([rdzvtest.RDZV, "join", *self.where(), "--rdzv-id", name], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)
        node.stdout.readline()
        node.kill()
        node.wait()


class EtcdV1OddPrefix(EtcdV1):
    """etcd lists keys by the path as it reads it, which is shorter than the given one."""
    PREFIX, ROUNDS = "/./././././././././odd//../odd//p/", "/odd/p"

    def where(self):
        return [*super().where(), "--rdzv-conf", f"etcd_prefix={self.PREFIX}"]


class EtcdV3OddPrefix(Runs, rdzvtest.Case):
    DOTS = True

    def where(self):
        return ["--rdzv-backend", "etcd-v3", "--rdzv-endpoint", etcd.shared().endpoint, "--rdzv-conf",
                f"etcd_prefix=/././././././/{self.id()}//"]

    def left(self):
        done = self.rdzv("store", "--etcd3", etcd.shared().endpoint, "--prefix", f"/{self.id()}-store", "keys")
        return done.stdout.splitlines()


class OddStores(rdzvtest.Case):
    """A store in etcd, whatever slashes its path is given with."""

    def test_one_store_by_two_paths(self):
        for kind in "--etcd", "--etcd3":
            def store(prefix, *words, kind=kind):
                done = self.rdzv("store", kind, etcd.shared().endpoint, "--prefix", prefix, *words)
                self.assertEqual(done.returncode, YES, f"{kind} {prefix}: {done.stderr}")
                return done.stdout
            store("//odd/./store//x/", "set", "k", "v")
            self.assertEqual(store("odd/store/x", "get", "k").strip(), "v")
            self.assertEqual(store("/odd/y/../store/x", "keys").strip(), "k")

    def test_a_run_id_with_two_slashes(self):
        for kind in "etcd-v2", "etcd":
            done = self.rdzv("join", "--rdzv-backend", kind, "--rdzv-endpoint", etcd.shared().endpoint, "--rdzv-id",
                             f"{self.id()}//run", "--once", "--rdzv-conf", "last_call_timeout=0.1")
            self.assertEqual(done.returncode, YES, f"{kind}: {done.stderr}")


if __name__ == "__main__":
    etcd.need()
    rdzvtest.main()
