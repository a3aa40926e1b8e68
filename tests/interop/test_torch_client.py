# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own TCPStore clients, in several processes at once, against `rdzv serve`."""
import socket
import struct
import threading
import time

import peers
from peers import TorchError, put

CLIENTS = 4


def raw_get(port, key):
    """What a key holds that clients cannot name: v1's GET, without the slash before the key."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answers:
        connection.sendall(b"\2" + struct.pack("<Q", len(key)) + key)
        return answers.read(struct.unpack("<Q", answers.read(8))[0])


class EveryClient:
    """What holds for both versions."""

    version = None

    def setUp(self):
        super().setUp()
        peers.need(self.version)
        self.server = self.serve()

    def client(self, **keywords):
        return self.torch_client(self.version, self.server, **keywords)

    def clients(self, count=CLIENTS):
        return [self.client() for _ in range(count)]

    def test_each_process_reads_what_the_others_set(self):
        clients = self.clients()
        for i, client in enumerate(clients):
            client.set(f"key{i}", f"value{i}")
        for client in clients:
            self.assertEqual([client.get(f"key{i}") for i in range(CLIENTS)],
                             [f"value{i}".encode() for i in range(CLIENTS)])

    def test_values_are_any_bytes_of_any_length(self):
        one, other = self.clients(2)
        for value in (b"", b"\0", bytes(range(256)), b"x" * (8 << 20)):
            put(one, "value", value)
            self.assertEqual(other.get("value"), value)
        put(one, "", "of the empty key")
        self.assertEqual(other.get(""), b"of the empty key")

    def test_no_add_is_lost(self):
        clients = self.clients()
        for client in clients:
            client.begin("add_many", "sum", 250)
        sums = [number for client in clients for number in client.finish()]
        self.assertEqual(sorted(sums), list(range(1, CLIENTS * 250 + 1)))
        self.assertEqual(clients[0].get("sum"), str(CLIENTS * 250).encode())
        self.assertEqual(clients[0].add("sum", -CLIENTS * 250 - 1), -1)

    def test_a_blocked_get_is_woken_by_another_process(self):
        one, other = self.clients(2)
        one.begin_blocked("get", "late")
        other.set("late", "now")
        self.assertEqual(one.finish(), b"now")

    def test_a_blocked_get_is_woken_by_compare_set(self):
        one, other = self.clients(2)
        one.begin_blocked("get", "late")
        self.assertEqual(other.compare_set("late", "", "now"), b"now")
        self.assertEqual(one.finish(), b"now")

    def test_a_wait_ends_with_the_last_of_its_keys(self):
        waiter, *others = self.clients()
        waiter.begin_blocked("wait", [f"part{i}" for i in range(len(others))])
        for i, other in enumerate(others):
            self.assertFalse(waiter.connection.poll(), "the wait ended early")
            put(other, f"part{i}", "there")
        self.assertIsNone(waiter.finish())

    def test_compare_set_elects_one(self):
        clients = self.clients()
        for i, client in enumerate(clients):
            client.begin("compare_set", "leader", "", f"process{i}")
        answers = {client.finish() for client in clients}
        self.assertEqual(len(answers), 1)
        self.assertEqual(clients[0].get("leader"), answers.pop())

    def test_compare_set_answers_as_pytorch_does(self):
        client = self.client()
        self.assertEqual(client.compare_set("k", "other", "new"), b"other")  # absent: nothing is set
        self.assertEqual(client.compare_set("k", "", "one"), b"one")
        self.assertEqual(client.compare_set("k", "one", "two"), b"two")
        self.assertEqual(client.compare_set("k", "one", "three"), b"two")
        self.assertEqual(client.get("k"), b"two")

    def test_delete_and_num_keys_are_seen_by_all(self):
        one, other = self.clients(2)
        put(one, "a", "1")
        put(one, "b", "2")
        self.assertEqual(other.num_keys(), 2)
        self.assertIs(other.delete_key("a"), True)
        self.assertIs(one.delete_key("a"), False)
        self.assertEqual(one.num_keys(), 1)

    def test_a_prefix_store_shares_with_the_bare_one(self):
        bare, first, second = self.clients(3)
        first.prefix("job")
        second.prefix("job")
        first.set("k", "v")
        self.assertEqual(second.get("k"), b"v")
        self.assertEqual(bare.get("job/k"), b"v")
        second.prefix("deeper")  # the views nest: the key is "job/deeper/k"
        put(second, "k", "w")
        self.assertEqual((first.get("k"), bare.get("job/deeper/k")), (b"v", b"w"))

    def test_workers_are_counted_under_init(self):
        """With a world size each client adds 1 to `init/`; none is the server, so none waits for the others."""
        clients = [self.client(world_size=CLIENTS, wait_for_workers=True) for _ in range(CLIENTS)]
        self.assertEqual(clients[0].num_keys(), 1)
        self.assertEqual(raw_get(self.server.port, b"init/"), str(CLIENTS).encode())
        self.assert_done(self.store(self.server, "keys"), "")  # users' keys begin with a slash, so it is none of them

    def test_a_client_that_dies_harms_nobody(self):
        blocked, live = self.clients(2)
        blocked.begin_blocked("get", "never")
        blocked.kill()
        put(live, "never", "late")
        self.assertEqual(self.client().get("never"), b"late")

    def check_timeout(self, call, kind, text):
        began = time.monotonic()
        with self.assertRaises(TorchError) as caught:
            call()
        self.assertGreaterEqual(time.monotonic() - began, 0.3)
        self.assertEqual((caught.exception.kind, caught.exception.text), (kind, text))


class Torch113(EveryClient, peers.Case):
    version = "1.13"

    def test_a_wait_times_out_with_pytorchs_own_error(self):
        one, other = self.clients(2)
        self.check_timeout(lambda: one.wait(["x"], 0.3), "RuntimeError", "Socket Timeout")
        put(other, "x", "1")  # 1.13 cannot take its wait back; nobody else is harmed by it
        self.assertEqual(self.client().get("x"), b"1")


class Torch26(EveryClient, peers.Case):
    version = "2.6"

    def test_a_wait_times_out_with_pytorchs_own_error_and_the_client_goes_on(self):
        one, other = self.clients(2)
        self.check_timeout(lambda: one.wait(["x"], 0.3), "DistStoreError", "wait timeout after 300ms, keys: /x")
        put(other, "x", "1")  # the wait was canceled, so this sends the first client nothing
        self.assertEqual(one.add("n", 7), 7)
        self.assertEqual(one.get("x"), b"1")

    def test_a_get_times_out_after_the_stores_own_timeout(self):
        one = self.client()
        one.set_timeout(0.3)
        self.check_timeout(lambda: one.get("x"), "DistStoreError", "wait timeout after 300ms, keys: /x")
        self.assertEqual(one.num_keys(), 0)

    def test_timeouts_that_cross_with_the_key_keep_the_answers_in_order(self):
        """The key comes at about the moment the wait is canceled; a stray byte would spoil the sums."""
        one, other = self.clients(2)
        for i in range(1, 30):
            one.begin("wait", [f"k{i}"], 0.02)
            timer = threading.Timer(0.015 + i * 0.0004, other.set, (f"k{i}", "v"))
            timer.start()
            try:
                one.finish()
            except TorchError as error:
                self.assertIn("wait timeout after 20ms", error.text)
            timer.join()
            self.assertEqual(one.add("n", 1), i)

    def test_appends_of_all_processes_are_kept(self):
        clients = self.clients()
        for i, client in enumerate(clients):
            client.begin("append_many", "log", str(i), 100)
        for client in clients:
            client.finish()
        log = clients[0].get("log")
        self.assertEqual(sorted(log), sorted(b"0123" * 100))

    def test_multi_set_and_multi_get(self):
        one, other = self.clients(2)
        keys = [f"k{i}" for i in range(500)]  # longer than a segment of the client
        other.begin_blocked("multi_get", keys)
        one.multi_set(keys, [f"v{i}" for i in range(500)])
        self.assertEqual(other.finish(), [f"v{i}".encode() for i in range(500)])

    def test_check_tells_whether_all_are_there(self):
        one, other = self.clients(2)
        put(one, "a", "1")
        self.assertIs(other.check(["a"]), True)
        self.assertIs(other.check(["a", "b"]), False)
        self.assertIs(other.check([]), True)


class Together(peers.Case):
    """A 1.13 process, a 2.6 process and our own command on one server at the same time."""

    def setUp(self):
        super().setUp()
        for version in peers.VERSIONS:
            peers.need(version)
        self.server = self.serve()
        self.old, self.new = (self.torch_client(version, self.server) for version in peers.VERSIONS)

    def ours(self, *arguments):
        finished = self.store(self.server, *arguments)
        self.assert_done(finished)
        return finished.stdout.rstrip("\n")

    def test_each_reads_what_the_others_set(self):
        self.old.set("old", "1.13")
        self.new.set("new", "2.6")
        self.ours("set", "ours", "rdzv")
        for get in (self.old.get, self.new.get, lambda key: self.ours("get", key).encode()):
            self.assertEqual([get("old"), get("new"), get("ours")], [b"1.13", b"2.6", b"rdzv"])
        self.assertEqual({self.old.num_keys(), self.new.num_keys(), int(self.ours("num-keys"))}, {3})

    def test_no_add_is_lost(self):
        for client in (self.old, self.new):
            client.begin("add_many", "sum", 300)
        sums = [int(self.ours("add", "sum", "1")) for _ in range(50)]
        sums += self.old.finish() + self.new.finish()
        self.assertEqual(sorted(sums), list(range(1, 651)))

    def test_each_wakes_the_others(self):
        self.old.begin_blocked("get", "a")
        self.new.set("a", "from 2.6")
        self.assertEqual(self.old.finish(), b"from 2.6")
        self.new.begin_blocked("get", "b")
        self.ours("set", "b", "from rdzv")
        self.assertEqual(self.new.finish(), b"from rdzv")
        self.new.begin_blocked("get", "c")
        self.old.set("c", "from 1.13")
        self.assertEqual(self.new.finish(), b"from 1.13")
        ours = self.begin_store(self.server, "get", "d")
        self.old.set("d", "from 1.13")
        self.assert_done(self.finish_store(ours), "from 1.13\n")

    def test_one_of_three_wins(self):
        self.old.begin("compare_set", "leader", "", "old")
        self.new.begin("compare_set", "leader", "", "new")
        answer = self.store(self.server, "--raw", "cas", "leader", "", "ours")
        self.assertEqual({self.old.finish(), self.new.finish(), answer.stdout.encode()}, {self.old.get("leader")})
        self.assertEqual(answer.returncode, 0 if answer.stdout == "ours" else 1)

    def test_one_deletes_what_another_set(self):
        put(self.old, "k", "v")
        self.assert_exit(self.store(self.server, "delete", "k"), 0)
        self.assertIs(self.new.check(["k"]), False)


if __name__ == "__main__":
    peers.main()
