# SPDX-License-Identifier: BSD-3-Clause
"""A cluster of three whose leader is killed: while nodes join, in the last call, while nodes wait, under the traffic of
a store, for both rendezvous in etcd. Members that say nothing. And an etcd that forgets everything under a rendezvous.
"""
import json
import subprocess
import threading
import time

import etcd
import etcd_wire
import rdzvtest
from etcd_v1_nodes import LEASE, Place, agree, tell
from rdzvtest import wait_until

UNKNOWN = 5  # the exit code of an unknown outcome
SOON = 15  # seconds: an election takes one or two
LAST_CALL = 15 if rdzvtest.SANITIZED else 5  # all others begin in that time


class CellPlace(Place):
    """A rendezvous of the backend etcd-v2."""

    def __init__(self, case, member, nodes, **keywords):
        super().__init__(case, member, nodes, backend="etcd-v2", **keywords)

    def arguments(self, **more):
        conf = {"last_call_timeout": self.last_call, "keep_alive_interval": 1, "keep_alive_max_attempt": rdzvtest.slow_int(5),
                **self.conf, **more}
        return ["--rdzv-backend", self.backend, "--rdzv-endpoint", self.endpoints, "--rdzv-id", self.run_id,
                "--rdzv-conf", ",".join(f"{name}={value}" for name, value in conf.items())]

    def key(self, path):
        return f"/torch/elastic/rendezvous/{self.run_id}"


PLACES = {"etcd": Place, "etcd-v2": CellPlace}


class Case(rdzvtest.Case):
    def agree(self, nodes):
        """They have one round with all of them, and each a rank of its own; the members are those same nodes, of which
        one knows all in the backend etcd-v2, in the first generation itself only."""
        results = agree(self, nodes)
        for result in results:
            self.assertEqual(result["members"][result["rank"]], (result["rank"], result["node"]))
            if result["backend"] == "etcd-v2":
                self.assertEqual(result["members"], results[0]["members"])
        return results[0]

    def await_status(self, place, count, *kinds):
        """Looks until there are so many nodes of these kinds."""
        def look():
            finished = place.rdzv("status", "--json")
            status = json.loads(finished.stdout or "{}")
            return sum(status.get(kind, 0) for kind in kinds) >= count

        wait_until(look, f"{count} {kinds}")

    def await_watch(self, member, count=1):
        wait_until(lambda: member.get("/v2/stats/store")["watchers"] >= count, "it watches")

    def assert_got(self, process, seconds):
        """A `rdzv store get` ends with the value; it may have said what it waited for."""
        stdout, stderr = process.communicate(timeout=seconds)
        self.assertEqual((process.returncode, stdout), (0, "v\n"), stderr)
        for line in stderr.splitlines():
            self.assertRegex(line, "waiting for the key 'k'|answers again")

    def await_exit(self, node, code=0):
        self.assertEqual(node.leave(), code, node.said())


# What goes on while the leader dies. Each begins, and says afterwards whether all is well.


class Joining:
    """Most are on their way when it happens."""

    def __init__(self, case, cluster, place_of):
        self.case, self.place = case, place_of(case, cluster.follower(), (6, 6), endpoints=cluster.endpoints)

    def begin(self):
        self.nodes = [self.place.ours() for _ in range(3)]
        wait_until(lambda: self.place.member.node(self.place.key("active_version")), "one has joined")
        self.nodes += [self.place.ours() for _ in range(3)]

    def check(self):
        self.case.agree(self.nodes)
        for node in self.nodes:
            self.case.await_exit(node)


class LastCall:
    """There are enough, and more may come."""

    def __init__(self, case, cluster, place_of):
        self.case = case
        self.place = place_of(case, cluster.follower(), (2, 8), endpoints=cluster.endpoints, last_call=LAST_CALL)

    def begin(self):
        self.nodes = [self.place.ours() for _ in range(3)]
        self.case.await_status(self.place, 3, "participants")

    def is_over(self):
        return not all(node.lines.empty() for node in self.nodes)

    def check(self):
        self.case.agree(self.nodes)


class Waiting:
    """The members of a complete round know one endpoint only, and it is the leader's; one more waits for a place."""

    def __init__(self, case, cluster, place_of):
        self.case, self.endpoints = case, cluster.endpoints
        self.place = place_of(case, cluster.follower(), (2, 2), endpoints=cluster.leader().endpoint)

    def begin(self):
        self.nodes = [self.place.ours(), self.place.ours()]
        self.round = self.case.agree(self.nodes)["round"]
        self.place.endpoints = self.endpoints
        self.waits = self.place.ours()
        self.case.await_status(self.place, 1, "waiting", "spares")

    def check(self):
        self.case.await_status(self.place, 1, "waiting", "spares")  # by a member that has a leader
        self.case.assertTrue(all(node.lines.empty() for node in (*self.nodes, self.waits)), "a round too many")
        self.case.await_exit(self.nodes.pop())
        self.case.assertEqual(self.case.agree([*self.nodes, self.waits])["round"], self.round + 1)


class Traffic:
    """What was acknowledged is there; what may or may not have been done counts once or not at all."""

    def __init__(self, case, cluster):
        self.case, self.url = case, cluster.url
        self.done, self.unsure, self.written = 0, 0, 0
        self.lock, self.ended = threading.Lock(), threading.Event()
        self.complaints = []
        self.threads = [threading.Thread(target=target) for target in (self.add, self.add, self.write)]

    def store(self, *arguments):
        return self.case.rdzv("store", "--etcd", self.url, "--prefix", f"/{self.case.id()}", *arguments)

    def add(self):
        while not self.ended.is_set():
            finished = self.store("add", "sum", "1")
            with self.lock:
                self.done += finished.returncode == 0
                self.unsure += finished.returncode == 5
            if finished.returncode not in (0, 5):
                self.complaints.append(finished.stderr)
                return

    def write(self):
        while not self.ended.is_set():
            finished = self.store("set", f"k{self.written}", str(self.written))
            if finished.returncode not in (0, UNKNOWN):
                self.complaints.append(finished.stderr)
                return
            self.written += finished.returncode == 0

    def begin(self):
        for thread in self.threads:
            thread.start()
        self.case.addCleanup(self.end)
        wait_until(lambda: self.complaints or self.written > 5 and self.done > 5, "there is traffic")

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def check(self):
        before = self.done
        wait_until(lambda: self.complaints or self.done > before + 3, "it goes on", SOON)
        self.end()
        self.case.assertEqual(self.complaints, [])
        total = int(self.store("add", "sum", "0").stdout)
        self.case.assertGreaterEqual(total, self.done)
        self.case.assertLessEqual(total, self.done + self.unsure)
        expected = [str(i) for i in range(self.written)]
        self.case.assertEqual(self.store("mget", *(f"k{text}" for text in expected)).stdout.split(), expected)


class BlockedGet:
    """It was told of the leader only, and watches there."""

    def __init__(self, case, cluster):
        self.case, self.url, self.leader = case, cluster.url, cluster.leader()
        self.prefix = f"/{case.id()}-get"

    def begin(self):
        before = self.leader.get("/v2/stats/store")["watchers"]
        self.process = self.case.start(
            [rdzvtest.RDZV, "store", "--etcd", self.leader.url, "--prefix", self.prefix, "get", "k"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.case.await_watch(self.leader, before + 1)

    def check(self):
        outcome = UNKNOWN
        while outcome == UNKNOWN:  # it was asked of a member that had just lost its leader; once more will do no harm
            finished = self.case.rdzv("store", "--etcd", self.url, "--prefix", self.prefix, "set", "k", "v")
            outcome = finished.returncode
        self.case.assertEqual(outcome, 0, finished.stderr)
        self.case.assert_got(self.process, rdzvtest.DEADLINE)


class Leader(Case):
    def test_killed(self):
        """Once, under all that can go on. A swap of the first generation without an answer may have been done: the
        place that it took lapses with its round, which takes a lease's time."""
        cluster = etcd.start_cluster(self.addCleanup)
        stories = {f"{kind.__name__} {name}": kind(self, cluster, place_of)
                   for kind in (Waiting, LastCall, Joining) for name, place_of in PLACES.items()}
        stories = {"Blocked get": BlockedGet(self, cluster), "Traffic": Traffic(self, cluster), **stories}
        for story in stories.values():
            story.begin()
        cluster.kill_leader()
        began = time.monotonic()
        calls = [story for story in stories.values() if isinstance(story, LastCall)]
        self.assertEqual([story.is_over() for story in calls], [False, False], "the last call, when the leader died")
        for name, story in stories.items():
            with self.subTest(name):
                story.check()
                self.assert_within(began, LEASE + SOON)


class Forgets(etcd_wire.Proxy):
    """A member that does not pass one request on, and does not say so, as a follower whose leader has just died. It
    knows of no other members. The first request that is lost at any of them is a heartbeat: a lost watch alone would not
    make the node ask another member."""

    begun = threading.Event()

    def __init__(self, port):
        self.forgets, self.forgotten = threading.Event(), threading.Event()
        super().__init__(port)

    def answer(self, connection, method, path, headers, body):
        if path == "/v2/machines":
            connection.sendall(etcd_wire.message("200 OK"))
            return True
        if self.forgets.is_set() and not self.forgotten.is_set() and (method == "PUT" or self.begun.is_set()):
            self.begun.set()
            self.forgotten.set()
            self.ended.wait()
            return False
        return super().answer(connection, method, path, headers, body)


class Lost(Case):
    def test_a_request_is_lost_at_each_member(self):
        """The node asks the next one soon enough to be heard of before the others take it for dead, after 5 s on a quiet machine."""
        member = etcd.start(self.addCleanup)
        ways = [Forgets(member.port) for _ in range(3)]
        for way in ways:
            self.addCleanup(way.close)
        place = CellPlace(self, member, (2, 2))
        other = place.ours()
        place.endpoints = ",".join(way.endpoint for way in ways)
        node = place.ours()
        self.agree([other, node])
        for way in ways:
            way.forgets.set()
        for way in ways:
            wait_until(way.forgotten.is_set, "it has lost a request")

        def heartbeat():
            return member.node(place.key("active_version"))["modifiedIndex"]

        state = heartbeat()
        wait_until(lambda: heartbeat() > state + 20, "ten seconds of heartbeats of two nodes")
        self.assertFalse([event for event in other.events() if "died" in event])
        self.assertTrue(other.lines.empty() and node.lines.empty(), "a round too many")


class Silent(Case):
    """A member that is stopped, so that its connections stay."""

    def test_silent(self):
        tell(self, self.a_get_looks_elsewhere,
             self.what_it_was_asked_for_long_ago_is_not_done,
             self.nodes_look_elsewhere,
             self.an_etcd_that_stays_away)

    def a_get_looks_elsewhere(self):
        """By itself, after about 8 s."""
        cluster = etcd.start_cluster(self.addCleanup)
        follower, prefix = cluster.follower(), f"/{self.id()}"
        ours = self.start([rdzvtest.RDZV, "store", "--etcd", follower.url, "--prefix", prefix, "--timeout", "60", "get",
                           "k"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.await_watch(follower)
        follower.pause()
        finished = self.rdzv("store", "--etcd", cluster.leader().url, "--prefix", prefix, "set", "k", "v")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assert_got(ours, rdzvtest.DEADLINE)

    def what_it_was_asked_for_long_ago_is_not_done(self):
        """It gets a write, which is done by another way then, and overwritten. When it comes to itself, and to what it
        was asked for, nothing changes any more."""
        member, awake = etcd.start(self.addCleanup), threading.Event()
        way = etcd_wire.Proxy(member.port, lambda method, path, body: awake if method == "PUT" else None)
        self.addCleanup(way.close)

        def store(*arguments, url=member.url, code=0):
            finished = self.rdzv("store", "--etcd", url, "--prefix", f"/{self.id()}-late", *arguments)
            self.assertEqual(finished.returncode, code, finished.stderr)
            return finished.stdout

        def attempts():
            kinds = "setsSuccess", "createSuccess", "createFail", "compareAndSwapSuccess", "compareAndSwapFail"
            return sum(member.get("/v2/stats/store")[kind] for kind in kinds)

        store("set", "old", "0")
        for key, code in (("old", 0), ("new", UNKNOWN)):  # of a new key nobody can tell whether it will be done
            store("set", key, "1", url=f"http://{way.endpoint},{member.endpoint}", code=code)
            store("set", key, "2")
        asked = sum(request[0] == "PUT" for request in way.requests)
        self.assertGreaterEqual(asked, 2)
        before = attempts()
        awake.set()
        wait_until(lambda: attempts() >= before + asked, "it has tried to write all of it")
        self.assertEqual((store("get", "old"), store("get", "new")), ("2\n", "2\n"))

    def nodes_look_elsewhere(self):
        """One that joins, of each kind; the option is the most that they are silent themselves."""
        cluster = etcd.start_cluster(self.addCleanup)
        follower, leader = cluster.follower(), cluster.leader()
        for place_of in PLACES.values():
            place = place_of(self, leader, (2, 2), endpoints=follower.endpoint, read_timeout=2)
            first = place.ours()
            self.await_status(place, 1, "participants")
            follower.pause()
            place.endpoints = leader.endpoint
            self.agree([first, place.ours()])
            follower.resume()

    def an_etcd_that_stays_away(self):
        """A node that cannot be heard by the others says so, and ends."""
        member = etcd.start(self.addCleanup)
        place = CellPlace(self, member, (1, 1), read_timeout=1, close_timeout=1)
        node = place.ours()
        self.agree([node])
        member.kill()
        self.assertNotEqual(node.await_exit(), 0)
        self.assertIn(member.endpoint, node.said())


class Forgetful(Case):
    def test_an_etcd_that_comes_back_empty(self):
        """Members, and one that had been waiting for another to join, find each other anew, in a fresh round, which
        comes after the last that they know. (Those of the first generation: test_etcd_v1.py.)"""
        member = etcd.start(self.addCleanup)
        for i in range(50):  # so that the indexes that the nodes know are far beyond those to come
            member.put("/noise", str(i))
        place, half = CellPlace(self, member, (2, 2)), CellPlace(self, member, (2, 2))
        nodes, early = [place.ours(), place.ours()], half.ours()
        last = self.agree(nodes)["round"]
        self.await_status(half, 1, "participants")
        member.kill()
        member.wipe()
        member.start().await_ready()
        began = time.monotonic()
        self.assertGreater(self.agree(nodes)["round"], last)
        self.agree([early, half.ours()])
        self.assert_within(began, SOON)


if __name__ == "__main__":
    etcd.need()
    rdzvtest.main()
