# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv store --etcd` on a real etcd: every operation, what others write, what gets lost on the way."""
import base64
import json
import subprocess
import threading
import time

import etcd
import etcd_wire
import rdzvtest
from etcd_v1_nodes import tell


def name(key):
    return base64.b64encode(key.encode() if isinstance(key, str) else key).decode()


class Case(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        self.etcd = etcd.shared()
        self.prefix = f"/tests/{self.id()}"

    def proxy(self, rule):
        proxy = etcd_wire.Proxy(self.etcd.port, rule)
        self.addCleanup(proxy.close)
        return proxy

    def ours(self, *arguments, server=None, **options):
        return self.rdzv("store", "--etcd", (server or self.etcd).url, "--prefix", self.prefix, *arguments, **options)

    def assert_done(self, finished, output=None):
        """It succeeded. Where etcd took its time, it may have said what it waited for."""
        self.assertEqual(finished.returncode, 0, finished.stderr)
        if output is not None:
            self.assertEqual(finished.stdout, output)
        for line in finished.stderr.splitlines():
            self.assertRegex(line, "no answer from etcd yet: .*; trying for|answers again|waiting for the key")

    def assert_exit(self, finished, code, sentence):
        self.assertEqual(finished.returncode, code, finished.stderr)
        self.assertRegex(finished.stderr, sentence)

    def begin(self, *arguments, server=None):
        return self.start([rdzvtest.RDZV, "store", "--etcd", (server or self.etcd).url, "--prefix", self.prefix,
                           *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process, seconds=rdzvtest.DEADLINE):
        stdout, stderr = process.communicate(timeout=seconds)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


class Operations(Case):
    def test_every_operation(self):
        self.assert_done(self.ours("set", "k", "v"), "")
        self.assert_done(self.ours("get", "k"), "v\n")
        self.assert_done(self.ours("add", "n", "5"), "5\n")
        self.assert_done(self.ours("add", "n", "-7"), "-2\n")
        self.assert_done(self.ours("cas", "k", "v", "w"), "w\n")
        self.assertEqual(self.ours("cas", "k", "v", "x").returncode, 1)
        self.assert_done(self.ours("append", "k", "!"), "")
        self.assert_done(self.ours("mset", "a", "1", "b", ""), "")
        self.assert_done(self.ours("mget", "b", "k", "a"), "\nw!\n1\n")
        self.assert_done(self.ours("check", "a", "b"), "")
        self.assertEqual(self.ours("check", "a", "z").returncode, 1)
        self.assertEqual(self.ours("check", "z").returncode, 1)
        self.assert_done(self.ours("wait", "a", "k"), "")
        self.assert_done(self.ours("num-keys"), "4\n")
        self.assertEqual(sorted(self.ours("keys").stdout.split()), ["a", "b", "k", "n"])
        self.assert_done(self.ours("delete", "a"), "")
        self.assertEqual(self.ours("delete", "a").returncode, 1)
        self.assert_done(self.ours("num-keys"), "3\n")

    def test_as_pytorch_lays_it_out(self):
        self.assert_done(self.ours("set", "key", "value"))
        self.assertEqual(self.etcd.node(f"{self.prefix}/{name('key')}")["value"], name("value"))
        self.assert_done(self.ours("set", "empty", ""))
        self.assertEqual(self.etcd.node(f"{self.prefix}/{name('empty')}")["value"], "")
        self.assert_done(self.ours("get", "empty"), "\n")

    def test_a_key_with_a_slash_in_its_name(self):
        key = "\u00ff?\u00ff?x"
        self.assertIn("/", name(key))
        self.assert_done(self.ours("set", key, "v"))
        self.assertEqual(self.etcd.node(f"{self.prefix}/{name(key)}")["value"], name("v"))
        self.assert_done(self.ours("get", key), "v\n")
        self.assert_done(self.ours("keys"), f"{key}\n")
        self.assert_done(self.ours("delete", key))
        self.assert_done(self.ours("num-keys"), "0\n")

    def test_one_key_in_the_way_of_another(self):
        """The base64 of abc is YWJj, and that of the other goes on behind it with a slash."""
        other = "abc".encode() + b"\xfc\x10A"
        self.assertTrue(name(other).startswith(name("abc") + "/"))
        self.assert_done(self.ours("set", "abc", "v"))
        blocked = self.rdzv("store", "--etcd", self.etcd.url, "--prefix", self.prefix, "set", other, "v", text=False)
        self.assertEqual(blocked.returncode, 6)
        self.assertIn(b"Not a directory", blocked.stderr)
        absent = self.rdzv("store", "--etcd", self.etcd.url, "--prefix", self.prefix, "--timeout", "0", "get", other,
                           text=False)
        self.assertEqual(absent.returncode, 1, absent.stderr)

    def test_values_that_are_none_of_ours(self):
        self.etcd.put(f"{self.prefix}/{name('k')}", "not base64!")
        self.etcd.put(f"{self.prefix}/not base64", "x")
        self.assert_exit(self.ours("get", "k"), 6, "not base64")
        self.assert_exit(self.ours("add", "k", "1"), 6, "not base64")
        self.assert_done(self.ours("num-keys"), "1\n")
        self.assert_done(self.ours("set", "k", "word"))
        self.assert_exit(self.ours("add", "k", "1"), 6, "not a number")

    def test_large_values(self):
        large = "0123456789abcdef" * (1 << 15)
        self.assert_done(self.ours("set", "large", "-", input=large))
        self.assert_done(self.ours("--raw", "get", "large"), large)
        self.assert_done(self.ours("delete", "large"))

    def test_a_prefix_is_needed(self):
        self.assert_exit(self.rdzv("store", "--etcd", self.etcd.url, "get", "k"), 2, "needs a prefix")
        self.assert_exit(self.rdzv("store", "--etcd", self.etcd.url, "--prefix", "//", "get", "k"), 2, "needs a prefix")


class Waiting(Case):
    def test_a_get_is_woken_at_once(self):
        for operation in ("get", "wait"):
            ours = self.begin("--timeout", str(rdzvtest.DEADLINE), operation, operation)
            rdzvtest.wait_until(self.is_watching, "it watches")
            began = time.monotonic()
            self.etcd.put(f"{self.prefix}/{name(operation)}", name("v"))
            self.assert_done(self.finish(ours), "v\n" if operation == "get" else "")
            self.assert_within(began, 2)

    def is_watching(self):
        return self.etcd.get("/v2/stats/store")["watchers"] > 0

    def test_it_times_out(self):
        began = time.monotonic()
        seconds = rdzvtest.slow(1)
        self.assert_exit(self.ours("--timeout", str(seconds), "wait", "x", "y"), 4, f"'x'.*timed out after {seconds * 1000:.0f} ms")
        self.assert_within(began, seconds + 3)
        self.assert_exit(self.ours("--timeout", "0", "get", "x"), 1, "the key is absent")

    def test_many_gets_do_not_read_the_directory(self):
        proxy = self.proxy(lambda *_: None)
        self.assert_done(self.ours("set", "k", "v"))
        self.assert_done(self.ours("get", "k", server=proxy), "v\n")
        paths = [request[1] for request in proxy.requests if request[1] != "/v2/machines"]
        self.assertEqual(paths, [f"/v2/keys{self.prefix}/{name('k').replace('=', '%3D')}?quorum=true"])

    def test_a_cleared_index(self):
        """The watch comes to etcd when more than it remembers has happened since the key was looked for."""
        gate = threading.Event()
        proxy = self.proxy(lambda method, path, body: gate if "wait=true" in path else None)
        ours = self.begin("--timeout", "30", "get", "k", server=proxy)
        rdzvtest.wait_until(lambda: any("wait=true" in request[1] for request in proxy.requests), "it watches")
        self.etcd.put(f"{self.prefix}/{name('k')}", name("v"))
        self.etcd.fill_history()
        gate.set()
        self.assert_done(self.finish(ours, rdzvtest.DEADLINE), "v\n")


class Adding(Case):
    def test_no_count_is_lost(self):
        """Many processes at once, each as often as it can."""
        command = (f"for i in $(seq 8); do {rdzvtest.RDZV} store --etcd {self.etcd.url} --prefix {self.prefix} "
                   "add sum 1 || exit 1; done")
        processes = [self.start(["sh", "-c", command], stdout=subprocess.PIPE, text=True) for _ in range(6)]
        sums = []
        for process in processes:
            output = process.communicate(timeout=rdzvtest.DEADLINE)[0]
            self.assertEqual(process.returncode, 0)
            sums += map(int, output.split())
        self.assertEqual(sorted(sums), list(range(1, 49)))


class Lost(Case):
    """Requests that etcd did, and whose answers never came."""

    def lose(self, *matches):
        """A proxy that loses the answer to the first request of each kind."""
        left = list(matches)

        def rule(method, path, body):
            for match in left:
                if match(method, path, body):
                    left.remove(match)
                    return etcd_wire.CLOSE_AFTER
            return None

        return self.proxy(rule)

    def test_an_add_is_not_done_twice(self):
        """On a connection that had been used, so that curl would try again by itself."""
        self.assert_done(self.ours("set", "n", "10"))
        proxy = self.lose(lambda method, path, body: method == "PUT")
        self.assert_exit(self.ours("add", "n", "1", server=proxy), 5, "may or may not have taken effect")
        self.assert_done(self.ours("get", "n"), "11\n")

    def test_a_delete_is_not_done_twice(self):
        self.assert_done(self.ours("set", "k", "v"))
        proxy = self.lose(lambda method, path, body: method == "DELETE")
        self.assert_exit(self.ours("delete", "k", server=proxy), 5, "may or may not")

    def test_a_set_is_looked_for(self):
        proxy = self.lose(lambda method, path, body: method == "PUT")
        self.assert_done(self.ours("set", "k", "v", server=proxy))
        self.assert_done(self.ours("get", "k"), "v\n")
        self.assertEqual(sum(request[0] == "PUT" for request in proxy.requests), 1)

    def test_a_get_is_repeated(self):
        self.assert_done(self.ours("set", "k", "v"))
        proxy = self.lose(lambda method, path, body: method == "GET")
        self.assert_done(self.ours("get", "k", server=proxy), "v\n")

    def test_a_watch_is_repeated(self):
        proxy = self.proxy(lambda method, path, body: etcd_wire.CLOSE_BEFORE
                           if "wait=true" in path and len(proxy.requests) < 4 else None)
        ours = self.begin("--timeout", "20", "get", "k", server=proxy)
        rdzvtest.wait_until(lambda: len(proxy.requests) >= 4, "it watches again")
        self.etcd.put(f"{self.prefix}/{name('k')}", name("v"))
        self.assert_done(self.finish(ours), "v\n")


class Interrupted(etcd_wire.Proxy):
    """A way to etcd that loses the answer to the first write of that kind, and has something else done right after."""

    def __init__(self, port, condition, then):
        self.condition, self.then, self.lost = condition, then, False
        super().__init__(port, self.lose)

    def lose(self, method, path, body):
        loses = method == "PUT" and self.condition in body and not self.lost
        return etcd_wire.CLOSE_AFTER if loses else None

    def answer(self, connection, method, path, headers, body):
        loses = self.lose(method, path, body)
        stays = super().answer(connection, method, path, headers, body)
        if loses:
            self.lost = True
            self.then()
        return stays


class Once(Case):
    """A set whose answer is lost is not done again over what others have done since."""

    NEW, OLD = b"prevExist=false", b"prevIndex="

    def setUp(self):
        super().setUp()
        self.key = f"{self.prefix}/{name('k')}"

    def set_by(self, condition, then=lambda: None):
        way = Interrupted(self.etcd.port, condition, then)
        self.addCleanup(way.close)
        finished = self.ours("--timeout", str(rdzvtest.slow(5)), "set", "k", "v", server=way)
        self.assertTrue(way.lost)
        return finished

    def test_a_new_key_that_is_deleted_again(self):
        finished = self.set_by(self.NEW, lambda: self.etcd.open("DELETE", f"/v2/keys{self.key}"))
        self.assert_exit(finished, 5, "may or may not have taken effect")
        self.assertIsNone(self.etcd.node(self.key))

    def test_a_new_key_that_is_overwritten(self):
        finished = self.set_by(self.NEW, lambda: self.etcd.put(self.key, name("another")))
        self.assert_exit(finished, 5, "may or may not have taken effect")
        self.assertEqual(self.etcd.node(self.key)["value"], name("another"))

    def test_an_old_key_that_is_overwritten(self):
        """That it was done is known from etcd's history."""
        self.assert_done(self.ours("set", "k", "old"))
        self.assert_done(self.set_by(self.OLD, lambda: self.etcd.put(self.key, name("another"))), "")
        self.assertEqual(self.etcd.node(self.key)["value"], name("another"))

    def test_nobody_comes_between(self):
        for condition in self.NEW, self.OLD:
            self.assert_done(self.set_by(condition), "")
            self.assertEqual(self.etcd.node(self.key)["value"], name("v"))


class Restarted(Case):
    """An etcd of one member that goes away and comes back, with what it knew or without."""

    def test_restarted(self):
        tell(self, self.a_get_outlives_a_restart,
             self.a_get_outlives_the_loss_of_all_data,
             self.a_write_waits_for_it_to_come_back,
             self.nobody_there,
             self.somebody_there_who_says_nothing)

    def a_get_outlives_a_restart(self):
        member = etcd.start(self.addCleanup)
        ours = self.begin("--timeout", str(rdzvtest.DEADLINE), "get", "k", server=member)
        rdzvtest.wait_until(lambda: member.get("/v2/stats/store")["watchers"] > 0, "it watches")
        member.kill()
        member.start().await_ready()
        self.assert_done(self.ours("set", "k", "v", server=member))
        self.assert_done(self.finish(ours), "v\n")

    def a_get_outlives_the_loss_of_all_data(self):
        """The indexes begin anew: a watch from an old one would hear of nothing."""
        member = etcd.start(self.addCleanup)
        for i in range(50):
            member.put("/noise", str(i))
        ours = self.begin("--timeout", str(rdzvtest.DEADLINE), "get", "k", server=member)
        rdzvtest.wait_until(lambda: member.get("/v2/stats/store")["watchers"] > 0, "it watches")
        member.kill()
        member.wipe()
        member.start().await_ready()
        self.assert_done(self.ours("set", "k", "v", server=member))
        self.assert_done(self.finish(ours), "v\n")

    def a_write_waits_for_it_to_come_back(self):
        member = etcd.start(self.addCleanup)
        member.kill()
        ours = self.begin("--timeout", str(rdzvtest.DEADLINE), "set", "k", "v", server=member)
        member.start().await_ready()
        self.assert_done(self.finish(ours), "")
        self.assert_done(self.ours("get", "k", server=member), "v\n")

    def nobody_there(self):
        member = etcd.start(self.addCleanup)
        member.kill()
        began = time.monotonic()
        self.assert_exit(self.ours("--timeout", "1", "set", "k", "v", server=member), 3,
                         f"{member.endpoint}.*(refused|connect)")
        self.assert_exit(self.ours("--timeout", "1", "get", "k", server=member), 3, member.endpoint)
        self.assert_within(began, 8)

    def somebody_there_who_says_nothing(self):
        """Nothing is written before it has said anything, so it is known that nothing was."""
        member = etcd.start(self.addCleanup)
        member.pause()
        began = time.monotonic()
        self.assert_exit(self.ours("--timeout", "1", "set", "k", "v", server=member), 3, "no answer")
        self.assert_exit(self.ours("--timeout", "1", "add", "k", "1", server=member), 3, "no answer")
        self.assert_within(began, 8)
        member.resume()


class Output(Case):
    def test_json(self):
        self.assert_done(self.ours("set", "k", "v"))
        self.assertEqual(json.loads(self.ours("--json", "get", "k").stdout), {"key": "k", "value": "v"})


if __name__ == "__main__":
    etcd.need()
    rdzvtest.main()
