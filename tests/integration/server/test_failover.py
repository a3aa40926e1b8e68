# SPDX-License-Identifier: BSD-3-Clause
"""Several servers with one state in etcd: one is active, the others refuse clients and take over when it goes."""
import base64
import json
import os
import signal
import socket
import struct
import unittest
from unittest import mock

import etcd
import etcd_wire
import rdzvtest
import servers
from rdzvtest import DEADLINE, wait_until

HELLO = b"\0" + struct.pack("<I", 0x3C85F7CE) + b"\x0d" + struct.pack("<I", 0xFFFFFFFF)
GET_V1 = b"\2" + struct.pack("<Q", 2) + b"/k"


def setUpModule():
    etcd.need()


class Case(rdzvtest.Case):
    def group(self, lease=servers.PATIENT):
        return servers.Group(self, etcd.shared(), prefix=f"/{self.id()}", lease=lease)

    def ok(self, finished, output=""):
        self.assertEqual((finished.returncode, finished.stdout.strip()), (0, output), finished.stderr)


class Standby(Case):
    def test_it_names_the_active_server_to_our_clients(self):
        group = self.group()
        active, standby = group.start(2)
        group.await_standby(standby)
        with socket.create_connection(("127.0.0.1", standby.port)) as wire:
            wire.sendall(HELLO)
            with wire.makefile("rb") as answers:
                expected = active.endpoint.encode()
                self.assertEqual(answers.read(), b"stb\1" + struct.pack("<Q", len(expected)) + expected)
        self.ok(self.store(standby, "set", "k", "v"))  # they follow
        self.ok(self.store(active, "get", "k"), "v")

    def test_it_closes_the_connections_of_others(self):
        group = self.group()
        _, standby = group.start(2)
        group.await_standby(standby)
        for request in (GET_V1, HELLO[:5] + b"\x0d" + struct.pack("<I", 77)):
            with socket.create_connection(("127.0.0.1", standby.port)) as wire:
                wire.sendall(request)
                self.assertEqual(wire.recv(100), b"")
        wait_until(lambda: "this server is a standby, and the active one is at 127.0.0.1:" in group.text(standby),
                   "the log has the reason")

    def test_it_ends_when_it_is_told_to(self):
        group = self.group()
        active, standby = group.start(2)
        group.await_standby(standby)
        self.stop(standby)
        self.ok(self.store(active, "set", "k", "v"))

    def test_it_outlives_a_proxy_that_refuses_its_watches(self):
        """It looks again after pauses, which the log says once, and takes over."""
        group = self.group(servers.LEASE)
        refusal = etcd_wire.message("500 Internal Server Error", b'{"error":"broken","message":"broken"}')
        proxy = etcd_wire.Proxy(group.member.port, lambda method, path, body: refusal if path == "/v3/watch" else None)
        self.addCleanup(proxy.close)
        active, = group.start(1)
        others = servers.Group(self, group.member, proxy.endpoint, group.prefix)
        standby = others.add()
        wait_until(lambda: sum(request[1] == "/v3/watch" for request in proxy.requests) >= 7, "watches are refused")
        self.assertIsNone(standby.poll(), others.text(standby))
        self.assertEqual(others.text(standby).count("cannot become the active server"), 1, others.text(standby))
        active.kill()
        others.await_active(standby)
        wait_until(lambda: "this server became the active one" in others.text(standby), "the log says that it is over")

    def test_etcd_shows_who_is_active(self):
        group = self.group()
        group.start(1)
        found = servers.read(group.member, f"{group.prefix}/active")
        self.assertRegex(found.decode(), r'^{"address":"127.0.0.1:\d+","host":".*","pid":\d+,"since":"20.*Z","lease":')


class Turns(Case):
    def begin_waiter(self, group, active):
        """A client that waits for a key, connected to the active server."""
        waiter = group.begin("store", "--endpoint", group.endpoints, "--timeout", str(DEADLINE), "get", "late")
        wait_until(lambda: rdzvtest.is_connected(waiter, active.port), "the client has connected")
        return waiter

    def test_an_orderly_stop_hands_over(self):
        group = self.group()
        active, standby = group.start(2)
        group.await_standby(standby)
        self.ok(group.store("set", "k", "v"))
        self.stop(active)
        group.await_active(standby)
        self.ok(group.store("get", "k"), "v")
        self.assertNotIn("data", group.text(standby).lower())

    def test_a_client_that_waits_goes_on_at_the_next_server(self):
        """It is not told that its server stops: it connects again, and waits on."""
        group = self.group()
        active, standby = group.start(2)
        self.ok(group.store("set", "k", "v"))
        waiter = self.begin_waiter(group, active)
        self.stop(active)
        group.await_active(standby)
        self.ok(group.store("set", "late", "now"))
        self.assertEqual(waiter.communicate(timeout=DEADLINE)[0].strip(), "now")

    def test_a_killed_server_is_replaced(self):
        group = self.group(servers.LEASE)
        active, standby = group.start(2)
        self.ok(group.store("mset", "k", "v", "long", "x" * 100000))
        active.kill()
        self.ok(group.store("get", "k"), "v")  # waits until the standby is active
        self.assertEqual(group.await_active(), standby)
        self.ok(group.store("get", "long"), "x" * 100000)

    def test_a_paused_server_answers_nothing_when_it_wakes(self):
        """Not even a read: its lease may be over. It stands by then."""
        group = self.group(servers.LEASE)
        active, standby = group.start(2)
        self.ok(group.store("set", "k", "old"))
        with socket.create_connection(("127.0.0.1", active.port)) as wire:
            wire.sendall(GET_V1)
            self.assertEqual(wire.recv(100), struct.pack("<Q", 3) + b"old")
            active.send_signal(signal.SIGSTOP)
            group.await_active(standby)
            self.ok(self.store(standby, "set", "k", "new"))
            wire.sendall(GET_V1)
            active.send_signal(signal.SIGCONT)
            self.assertIn(self.receive(wire), (b"", None))
        wait_until(lambda: "standby; active server" in group.text(active), "the server that was active stands by")
        self.ok(self.store(active, "get", "k"), "new")
        self.stop(standby)
        self.assertEqual(group.await_active(active), active)
        self.ok(self.store(active, "get", "k"), "new")

    @staticmethod
    def receive(wire):
        try:
            return wire.recv(100)
        except ConnectionResetError:
            return None

    def test_a_client_leaves_a_server_that_stays_paused(self):
        group = self.group(servers.LEASE)
        active, standby = group.start(2)
        self.ok(group.store("set", "k", "v"))
        waiter = self.begin_waiter(group, active)
        active.send_signal(signal.SIGSTOP)
        self.addCleanup(active.send_signal, signal.SIGCONT)
        group.await_active(standby)
        self.ok(self.store(standby, "set", "late", "now"))
        self.assertEqual(waiter.communicate(timeout=DEADLINE)[0].strip(), "now")

    def with_a_secret(self):
        secret = self.path("secret")
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write("0123456789abcdef\n")
        return mock.patch.dict(os.environ, RDZV_SECRET_FILE=secret)

    def test_a_client_with_a_secret_leaves_it_too(self):
        with self.with_a_secret():
            self.test_a_client_leaves_a_server_that_stays_paused()

    def test_a_standby_with_a_secret_names_the_active_server_to_those_who_have_it(self):
        group = self.group()
        with self.with_a_secret():
            active, standby = group.start(2)
            self.ok(self.store(standby, "set", "k", "v"))
        finished = self.store(standby, "--timeout", "3", "get", "k")
        self.assertNotEqual(finished.returncode, 0)
        self.assertIn("requires TLS", finished.stderr)
        self.assertNotIn(active.endpoint, finished.stderr)

    def test_many_turns_lose_nothing(self):
        """Each is killed in turn, and started again; the counter counts on."""
        group = self.group(servers.LEASE)
        group.start(2)
        for turn in range(1, 4):
            self.ok(group.store("add", "turns", "1"), str(turn))
            active = group.await_active()
            if turn == 2:
                active.kill()
            else:
                active.send_signal(signal.SIGTERM)
            active.wait()
            group.servers.remove(active)
            group.add()
        self.ok(group.store("add", "turns", "1"), "4")


class Rounds(Case):
    def test_a_job_does_not_notice(self):
        """Native nodes resume their sessions at the next server: no worker is started again."""
        group = self.group(servers.LEASE)
        active, standby = group.start(2)
        started, go = self.path("started"), self.path("go")
        worker = f'echo "$RANK" >> {started}; while [ ! -e {go} ]; do sleep 0.05; done'
        agents = [group.begin("run", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", "job", "--rdzv-endpoint",
                              group.endpoints, "--rdzv-conf", "keep_alive_interval=60", "--no-python", "sh", "-c", worker) for _ in range(2)]
        wait_until(lambda: os.path.exists(started) and len(self.lines(started)) == 2, "both workers run")
        active.kill()
        group.await_active(standby)
        status = self.rdzv("status", "--rdzv-id", "job", "--rdzv-endpoint", group.endpoints)
        self.assertEqual(status.returncode, 0, status.stderr)
        open(go, "w", encoding="ascii").close()
        for agent in agents:
            _, errors = agent.communicate(timeout=DEADLINE)
            self.assertEqual(agent.returncode, 0, errors)
        self.assertEqual(sorted(self.lines(started)), ["0", "1"])

    @staticmethod
    def lines(path):
        with open(path, encoding="ascii") as file:
            return file.read().split()

    def test_nodes_that_wait_join_at_the_next_server(self):
        group = self.group(servers.LEASE)
        active, standby = group.start(2)
        words = ["join", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", "r", "--rdzv-endpoint", group.endpoints,
                 "--rdzv-conf", "keep_alive_interval=60"]
        first = group.begin(*words)
        look = ["status", "--rdzv-id", "r", "--rdzv-endpoint", group.endpoints, "--json"]
        wait_until(lambda: "participants" in self.rdzv(*look).stdout, "the first node has come")
        active.kill()
        group.await_active(standby)
        second = group.begin(*words)
        self.assertEqual(sorted(json.loads(node.stdout.readline())["rank"] for node in (first, second)), [0, 1])


class Full(Case):
    """etcd has a quota. The server refuses writes before it is reached, since a write that etcd refuses holds up
    what is read after it."""

    def test_reads_go_on_and_writes_when_there_is_room(self):
        member = etcd.start(self.addCleanup, ["--quota-backend-bytes", str(12 << 20)])
        group = servers.Group(self, member, lease=servers.PATIENT)
        group.start(1)
        self.ok(group.store("set", "k", "v"))
        self.fill_up(group)
        self.ok(group.store("get", "k"), "v")
        self.raise_alarm(member)
        wait_until(lambda: "is full (compact and defragment it, then etcdctl alarm disarm)" in self.refused(group),
                   "the alarm is told")
        self.ok(group.store("get", "k"), "v")
        self.make_room(member)
        wait_until(lambda: group.store("set", "k", "w").returncode == 0, "writes go on")
        self.ok(group.store("get", "k"), "w")

    @staticmethod
    def refused(group):
        return group.store("set", "other", "v").stderr

    def fill_up(self, group):
        for _ in range(200):
            finished = group.store("set", "big", "-", input="x" * 100000)
            if finished.returncode:
                self.assertIn("is nearly full: ", finished.stderr)
                return
        self.fail("etcd is not full")

    @staticmethod
    def raise_alarm(member):
        value = base64.b64encode(b"x" * (1 << 20)).decode()
        try:
            for _ in range(20):
                servers.ask(member, "/v3/kv/put", key=base64.b64encode(b"/filler").decode(), value=value)
        except OSError:
            return
        raise RuntimeError("etcd raises no alarm")

    @staticmethod
    def make_room(member):
        key = base64.b64encode(b"/filler").decode()
        servers.ask(member, "/v3/kv/deleterange", key=key)
        revision = servers.ask(member, "/v3/kv/range", key=key)["header"]["revision"]
        servers.ask(member, "/v3/kv/compaction", revision=revision, physical=True)
        servers.ask(member, "/v3/maintenance/defragment")
        for alarm in servers.ask(member, "/v3/maintenance/alarm", action="GET").get("alarms", []):
            servers.ask(member, "/v3/maintenance/alarm", action="DEACTIVATE", **alarm)


class Keys(Case):
    """What an operator deletes or changes below the prefix of an active server."""

    def test_the_marker_is_written_again_and_no_write_hangs(self):
        group = self.group()
        server, = group.start(1)
        self.ok(self.store(server, "set", "first", "1"))
        name = base64.b64encode(f"{group.prefix}/batch".encode()).decode()
        servers.ask(group.member, "/v3/kv/deleterange", key=name)
        self.ok(self.store(server, "set", "second", "2"))
        self.assertIn("another program has deleted", group.text(server))
        servers.ask(group.member, "/v3/kv/put", key=name, value=base64.b64encode(b"nonsense").decode())
        self.ok(self.store(server, "set", "third", "3"))
        self.assertIn("another program has changed", group.text(server))
        self.stop(server)
        server = group.add()
        group.await_active(server)
        self.ok(self.store(server, "num-keys"), "3")

    def test_a_deleted_active_key_makes_a_server_that_only_reads_a_standby(self):
        group = self.group(servers.LEASE)
        active, standby = group.start(2)
        self.ok(self.store(active, "set", "k", "old"))
        servers.ask(group.member, "/v3/kv/deleterange", key=base64.b64encode(f"{group.prefix}/active".encode()).decode())
        group.await_active(standby)
        self.ok(self.store(standby, "set", "k", "new"))
        wait_until(lambda: "another program deleted or changed its key in etcd" in group.text(active), "it notices")
        wait_until(lambda: "standby; active server" in group.text(active), "it stands by")
        self.ok(self.store(active, "get", "k"), "new")

    def test_an_active_key_that_was_overwritten_costs_a_turn(self):
        group = self.group()
        server, = group.start(1)
        self.ok(self.store(server, "set", "first", "1"))
        name = base64.b64encode(f"{group.prefix}/active".encode()).decode()
        servers.ask(group.member, "/v3/kv/put", key=name, value=base64.b64encode(b"nonsense").decode())
        self.ok(self.store(server, "set", "second", "2"))  # it stands by, and is the active one again
        self.assertIn("has no lease, so no server holds it", group.text(server))
        self.ok(self.store(server, "get", "first"), "1")


class Refused(Case):
    def fails(self, text, *options):
        finished = self.rdzv("serve", "--port", "0", *options)
        self.assertNotEqual(finished.returncode, 0)
        self.assertIn(text, finished.stderr)

    def test_what_cannot_work(self):
        here = etcd.shared().endpoint
        self.fails("which listens on every address: [::]:", "--bind", "*", "--state-etcd", here)
        self.fails("name its own address with --bind or --advertise", "--bind", "0.0.0.0", "--state-etcd", here)
        self.fails("--state-dir and --state-etcd cannot be used together", "--state-etcd", here, "--state-dir", self.folder)
        self.fails("--state-prefix needs --state-etcd", "--state-prefix", "/p")
        self.fails("expected at least 2 s", "--state-etcd", here, "--state-lease", "1")
        self.fails("cannot advertise 'a b'", "--state-etcd", here, "--advertise", "a b")
        self.fails("the prefix in etcd has 1 to 199 characters", "--state-etcd", here, "--state-prefix", "/")

    def test_what_is_not_etcd(self):
        server = self.serve()
        self.fails("cannot become the active server of /rdzv-server in etcd at", "--state-etcd", server.endpoint)

    def test_the_prefix_of_another_program(self):
        servers.ask(etcd.shared(), "/v3/kv/put", key=base64.b64encode(b"/other/a").decode(), value="")
        self.fails("keys below '/other/' in etcd that rdzv did not write", "--state-etcd",
                   etcd.shared().endpoint, "--state-prefix", "/other")

    def test_several_endpoints(self):
        self.assertIn("invalid endpoint", self.rdzv("store", "--endpoint", "a:1,,b:2", "get", "k").stderr)
        self.assertIn("dialects v1 and v2 take one endpoint",
                      self.rdzv("store", "--endpoint", "127.0.0.1:1,127.0.0.1:2", "--dialect", "v2", "get", "k").stderr)
        self.assertIn("a node cannot serve several endpoints",
                      self.rdzv("join", "--nnodes", "1", "--rdzv-backend", "c10d", "--rdzv-id", "r", "--rdzv-endpoint",
                                "127.0.0.1:1,127.0.0.1:2", "--rdzv-conf", "is_host=1").stderr)


class Advertised(Case):
    def test_a_server_on_every_address_is_found_by_the_one_it_names(self):
        group = self.group()
        first = group.add("--bind", "0.0.0.0", "--advertise", "localhost")
        wait_until(lambda: servers.active_address(group.member, group.prefix) == f"localhost:{first.port}", "it is active")
        standby = group.add()
        group.await_standby(standby)
        self.ok(self.store(standby, "set", "k", "v"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
