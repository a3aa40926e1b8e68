# SPDX-License-Identifier: BSD-3-Clause
"""The state of a run with native nodes, as those see it that share it by its key: PyTorch nodes of every layout, swap
nodes, `rdzv list` and `rdzv reset`. What each operation on the key does, and that nothing gets in that is no state."""
import base64
import json
import struct

import rdzvtest
from nativeclient import EVICTED, NATIVE, NEWS, SOMEONE_LEFT, STATUS, TORCH, NativeNode, NodeConn
from rawclient import HELLO, Client, Raw, keys, sized, u64
from torchstate import LAYOUTS, SENTINEL, TorchNode, dump, fixture, load

PATIENT = {"keep_alive": 600000, "grace": 60000, "keep_alive_interval": 600000}
KEY = b"/torch.rendezvous.run"
DONE, REFUSED_UNSUPPORTED, REFUSED_NOT_A_NUMBER, REFUSED_LIMIT, REFUSED_CORRUPT = 0, -9, -10, -11, -15


class BlobCase(rdzvtest.Case):
    options = ()

    def setUp(self):
        super().setUp()
        with open(self.path("log"), "w", encoding="utf8") as log:
            self.server = self.serve(*self.options, stderr=log)
        self.port = self.server.port
        self.ours = self.keep(Client(self.port, "rdzv"))

    def tearDown(self):
        self.stop(self.server)

    def keep(self, closable):
        self.addCleanup(closable.close)
        return closable

    def node(self, name, **options):
        node = NativeNode(self.port, "run", name, **{**PATIENT, **options})
        self.addCleanup(node.__exit__)
        return node

    def torch(self, version, name):
        node = TorchNode(self.port, "run", version, name)
        self.addCleanup(node.__exit__)
        return node

    def status(self):
        with NodeConn(self.port) as conn:
            conn.query("run")
            return conn.expect(STATUS)

    def await_nodes(self, count):
        rdzvtest.wait_until(lambda: len(self.status().nodes) == count, f"{count} nodes are in")

    def version(self):
        self.ours.ask("get_version", sized(KEY))
        self.ours.done()
        return struct.unpack("<Q", self.ours.receive(8))[0], self.ours.receive_value()

    def swap_version(self, version, value):
        """Did it swap? Or the code of its refusal."""
        self.ours.ask("compare_set_version", sized(KEY) + u64(version) + sized(value))
        status = self.ours.receive_status()
        if status != DONE:
            return status[0]
        swapped = self.ours.receive(1) == b"\1"
        self.ours.receive(8)
        self.ours.receive_value()
        return swapped


class Torch(BlobCase):
    def test_a_torch_node_of_each_layout_completes_the_round_with_a_native_one(self):
        for number, version in enumerate(LAYOUTS):
            with self.subTest(version):
                native = self.node("native", min_nodes=2, max_nodes=2, layout=number).begin()
                self.await_nodes(1)
                torch = self.torch(version, "torch")
                self.assertEqual(torch.join(complete=True), 1)  # the first swap wins
                joined = native.joined()
                self.assertEqual((joined.rank, joined.world_size, joined.master_node), (0, 2, "native_1_0"))
                status = self.status()
                self.assertEqual([(node.addr, node.way) for node in status.nodes],
                                 [("native", NATIVE), ("torch", TORCH)])
                self.assertEqual(status.layout, number)
                native.conn.leave()
                self.assertTrue(self.ours.delete(KEY))

    def test_a_native_node_completes_the_round_for_a_torch_one(self):
        for number, version in enumerate(LAYOUTS):
            with self.subTest(version):
                torch = self.torch(version, "a-torch")
                state = load(base64.b64encode(fixture(version, "empty")))
                state.participants[torch.node] = 0
                torch.beat(state)
                self.assertEqual(torch.read(), SENTINEL)
                text = dump(state)
                self.assertEqual(torch.compare_set(SENTINEL, text), text)
                native = self.node("b-native", min_nodes=2, max_nodes=2, layout=3).begin()
                joined = native.joined()
                self.assertEqual((joined.rank, joined.world_size, joined.master_node), (1, 2, "a-torch_1_0"))
                state = load(torch.read())
                self.assertTrue(state.complete)
                self.assertEqual({node.name()[0]: rank for node, rank in state.participants.items()},
                                 {"a-torch": 0, "b-native": 1})
                self.assertEqual(self.status().layout, number)
                native.conn.leave()
                self.assertTrue(self.ours.delete(KEY))

    def test_states_that_pytorch_wrote_are_adopted(self):
        for version in LAYOUTS:
            for name, protocol in (("one", 2), ("one", 5), ("unicode", 4), ("lastcall", 4)):
                if (version, name, protocol) == ("2.6", "one", 2):
                    continue
                try:
                    text = base64.b64encode(fixture(version, name, protocol))
                except FileNotFoundError:
                    continue
                with self.subTest(version=version, name=name, protocol=protocol):
                    self.ours.set(KEY, text)
                    before = self.status()
                    native = self.node("native", min_nodes=60, max_nodes=60).begin()
                    self.await_nodes(len(before.nodes) + 1)
                    native.conn.leave()
                    self.assertEqual([node.addr for node in self.status().nodes], [node.addr for node in before.nodes])
                    self.assertTrue(self.ours.delete(KEY))

    def test_a_torch_node_that_leaves_or_closes_is_told_of(self):
        native = self.node("native", min_nodes=2, max_nodes=2).begin()
        self.await_nodes(1)
        torch = self.torch("2.6", "torch")
        torch.join(complete=True)
        native.joined()

        def leave(state):
            del state.participants[torch.node], state.last_heartbeats[torch.node]
        torch.swap(leave)
        news = native.conn.expect(NEWS)
        self.assertEqual((news.what, news.nodes), (SOMEONE_LEFT, [("torch", 1, 0)]))
        torch.swap(lambda state: setattr(state, "closed", True))
        native.conn.expect(NEWS)
        self.assertTrue(self.status().closed)

    def test_a_torch_node_that_removes_a_native_one_evicts_it(self):
        native = self.node("native", min_nodes=2, max_nodes=2).begin()
        self.await_nodes(1)
        torch = self.torch("2.6", "torch")
        torch.join(complete=True)
        native.joined()

        def evict(state):
            for node in [node for node in state.participants if node != torch.node]:
                del state.participants[node], state.last_heartbeats[node]
        torch.swap(evict)
        self.assertEqual(native.conn.expect(NEWS).what & EVICTED, EVICTED)

    def test_a_key_that_nothing_changes_stays_the_same_for_a_swap(self):
        self.node("native", min_nodes=2, max_nodes=2).begin()
        self.await_nodes(1)
        torch = self.torch("2.6", "torch")
        self.assertEqual(torch.read(), torch.read())
        for _ in range(20):
            self.assertEqual(torch.swap(torch.beat), 1)


class Operations(BlobCase):
    def setUp(self):
        super().setUp()
        self.native = self.node("native", min_nodes=2, max_nodes=2).begin()
        self.await_nodes(1)

    def participants(self):
        return sorted(node.addr for node in self.status().nodes)

    def two(self):
        """The state with another node."""
        state = load(self.ours.get(KEY))
        torch = self.torch("2.6", "torch")
        state.participants[torch.node] = 0
        torch.beat(state)
        return dump(state)

    def test_the_key_is_there_from_the_first_join_on(self):
        self.assertEqual(self.ours.num_keys(), 1)
        self.ours.begin_wait(KEY)
        self.ours.end_wait()
        self.ours.ask("check", keys(KEY))
        self.ours.done()
        self.assertEqual(self.ours.receive(1), b"\0")
        self.assertEqual([node.name() for node in load(self.ours.get(KEY)).participants], [("native", 1, 0)])

    def test_reads_over_several_keys_see_the_state_of_now(self):
        self.ours.set(b"/other", b"x")
        second = self.node("second", min_nodes=2, max_nodes=3).begin()
        self.await_nodes(2)
        for op in ("multi_get", "get_wait"):
            self.ours.ask(op, keys(b"/other", KEY))
            self.ours.done()
            self.assertEqual(self.ours.receive_value(), b"x")
            self.assertEqual(len(load(self.ours.receive_value()).participants), 2)
            second.conn.leave()
            second = self.node("third", min_nodes=2, max_nodes=3).begin()
            self.await_nodes(2)

    def test_set_and_swaps_are_adopted(self):
        self.ours.set(KEY, self.two())
        self.assertEqual(self.participants(), ["native", "torch"])

    def test_a_swap_by_version_is_adopted_and_a_stale_one_is_not(self):
        version, _ = self.version()
        text = self.two()
        self.assertIs(self.swap_version(version, text), True)
        self.assertEqual(self.participants(), ["native", "torch"])
        self.assertIs(self.swap_version(version, text), False)

    def test_a_swap_by_text_that_is_stale_changes_nothing(self):
        text = self.two()
        before = self.ours.get(KEY)
        self.ours.set(KEY, text)
        torch = self.torch("2.6", "other")
        self.assertNotEqual(torch.compare_set(before, before), before)
        self.assertEqual(self.participants(), ["native", "torch"])

    def test_what_is_no_state_is_refused_and_changes_nothing(self):
        version, before = self.version()
        pickled = base64.b64decode(before)
        garbage = [b"no base64!", base64.b64encode(b"no pickle"), before[:len(before) // 2], before + b"====",
                   base64.b64encode(pickled[:-1]), base64.b64encode(b"cos\nsystem\n(S'true'\ntR."),
                   base64.b64encode(b"\x80\x04]\x94."), b"\0" * 1000]
        for value in garbage:
            with self.subTest(value=value[:20]):
                self.ours.ask("set", sized(KEY) + sized(value))
                self.assertEqual(self.ours.receive_status()[0], REFUSED_CORRUPT)
                self.assertEqual(self.swap_version(version, value), REFUSED_CORRUPT)
                with Raw(self.port, "v2") as raw:  # who has no error answer is closed
                    raw.ask("compare_set", sized(KEY) + sized(before) + sized(value))
                    raw.wait_closed()
        self.assertEqual(self.version(), (version, before))

    def test_a_round_that_cannot_be_is_a_lost_swap(self):
        before = self.version()
        torch = self.torch("2.6", "torch")
        for number in (2**63 - 1, 2**62, -1, -2**63, 2**40):
            with self.subTest(round=number):
                state = load(before[1])
                state.round = number
                self.assertEqual(torch.compare_set(before[1], dump(state)), before[1])
                self.assertIs(self.swap_version(before[0], dump(state)), False)
                self.ours.ask("set", sized(KEY) + sized(dump(state)))
                self.assertEqual(self.ours.receive_status()[0], REFUSED_CORRUPT)
        self.assertEqual(self.version(), before)
        with open(self.path("log"), encoding="utf8") as log:
            self.assertIn("a state that was written for run 'run' is refused: round 9223372036854775807 cannot follow "
                          "round 0", log.read())
        self.assertEqual(torch.join(), 1)  # the node goes on

    def test_the_round_of_a_node_that_knows_more_is_adopted(self):
        version, before = self.version()
        state = load(before)
        state.round = 4711
        self.assertIs(self.swap_version(version, dump(state)), True)
        self.assertEqual(self.status().round, 4711)

    def test_numbers_appends_barriers_and_sets_of_many_are_refused(self):
        before = self.version()
        self.ours.ask("add", sized(KEY) + u64(1))
        self.assertEqual(self.ours.receive_status()[0], REFUSED_NOT_A_NUMBER)
        self.ours.ask("barrier", sized(KEY) + u64(1))
        self.assertEqual(self.ours.receive_status()[0], REFUSED_NOT_A_NUMBER)
        self.ours.ask("append", sized(KEY) + sized(b"x"))
        self.assertEqual(self.ours.receive_status()[0], REFUSED_UNSUPPORTED)
        self.ours.ask("multi_set", u64(2) + sized(b"/other") + sized(b"x") + sized(KEY) + sized(self.two()))
        self.assertEqual(self.ours.receive_status()[0], REFUSED_UNSUPPORTED)
        self.assertEqual(self.version(), before)
        self.assertEqual(self.ours.num_keys(), 1)

    def test_a_queue_of_that_name_is_another_thing(self):
        self.ours.ask("queue_push", sized(KEY) + sized(b"item"))
        self.ours.done()
        self.ours.ask("queue_pop", sized(KEY))
        self.ours.done()
        self.assertEqual((self.ours.receive(8), self.ours.receive_value()), (u64(1), b"item"))
        self.assertEqual(self.participants(), ["native"])

    def test_a_deleted_key_is_there_again_and_the_node_goes_on(self):
        self.assertTrue(self.ours.delete(KEY))
        rdzvtest.wait_until(lambda: self.ours.num_keys() == 1, "the key is there again")
        other = self.node("other", min_nodes=2, max_nodes=2).begin()
        self.assertEqual({self.native.joined().world_size, other.joined().world_size}, {2})

    def test_a_session_of_the_store_swaps_once(self):
        with Raw(self.port, None) as raw:
            raw.send(HELLO + bytes.fromhex("0dfeffffff"))
            token = raw.receive(12 + 5 + 16)[-16:]
        version, _ = self.version()
        text = self.two()
        swap = bytes([131]) + sized(KEY) + u64(version) + sized(text)
        for epoch in (1, 2):
            with Raw(self.port, None) as raw:
                raw.send(HELLO + bytes([133]) + sized(token) + u64(1) + u64(epoch) + swap)
                self.assertEqual(raw.receive(12)[:4], b"rdz\1")
                self.assertEqual(raw.receive(1), b"\0")
                raw.receive(8)
                self.assertEqual(raw.receive(2), b"\0\1")  # swapped; the second time from memory
        self.assertEqual(self.participants(), ["native", "torch"])


class Memory(BlobCase):
    options = ("--max-memory", "1M")

    def fill(self):
        """Takes all memory that is left; gives the number of keys that took it."""
        count, size = 0, 65536
        while size > 0:
            self.ours.ask("set", sized(b"/fill/%d" % count) + sized(b"x" * size))
            if self.ours.receive_status() == DONE:
                count += 1
            else:
                size //= 2
        return count

    def test_a_state_that_there_is_no_memory_to_write_cannot_be_swapped(self):
        for name in "abcd":  # the key still has the state with the first only
            self.node(name + "x" * 1000, min_nodes=9, max_nodes=9).begin()
            self.await_nodes("abcd".index(name) + 1)
            if name == "a":
                old = self.ours.get(KEY)
        count = self.fill()
        for op, fields in (("get", b""), ("compare_set", sized(old) + sized(old))):
            self.ours.ask(op, sized(KEY) + fields)
            self.assertEqual(self.ours.receive_status()[0], REFUSED_LIMIT)
        for index in range(count):
            self.assertTrue(self.ours.delete(b"/fill/%d" % index))
        self.assertEqual(len(load(self.ours.get(KEY)).participants), 4)
        self.assertEqual(len(self.status().nodes), 4)


class Waiting(BlobCase):
    def test_who_waits_for_a_change_hears_of_native_ones(self):
        self.node("a", min_nodes=3, max_nodes=3).begin()
        self.await_nodes(1)
        version, text = self.version()
        self.ours.ask("wait_changed", sized(KEY) + u64(version))
        self.node("b", min_nodes=3, max_nodes=3).begin()
        self.ours.done()
        self.assertGreater(struct.unpack("<Q", self.ours.receive(8))[0], version)
        now = self.ours.receive_value()
        self.assertNotEqual(now, text)
        self.assertEqual(len(load(now).participants), 2)

    def test_a_watch_of_v1_is_told(self):
        self.node("a", min_nodes=3, max_nodes=3).begin()
        self.await_nodes(1)
        watcher = self.keep(Raw(self.port, None))
        watcher.dialect = "v1"
        watcher.ask("watch_key", sized(KEY))
        self.assertEqual(watcher.receive(1), b"\3")
        self.node("b", min_nodes=3, max_nodes=3).begin()
        self.assertEqual(watcher.receive(1), b"\0")
        self.assertEqual(watcher.receive_value(), KEY)
        self.assertNotEqual(watcher.receive_value(), watcher.receive_value())

    def test_the_bell_rings_for_who_listens(self):
        bell = b"/rdzv.bell.run"
        self.node("a", min_nodes=3, max_nodes=3).begin()
        self.await_nodes(1)
        self.assertEqual(self.ours.num_keys(), 1)  # nobody listens: there is none
        self.ours.ask("wait_changed", sized(bell) + u64(0))
        self.node("b", min_nodes=3, max_nodes=3).begin()
        self.ours.done()
        self.ours.receive(8)
        self.assertEqual(self.ours.receive_value(), b"1")

    def test_many_changes_are_told_as_few(self):
        watcher = self.keep(Raw(self.port, None))
        watcher.dialect = "v1"
        self.node("first", min_nodes=200, max_nodes=200).begin()
        self.await_nodes(1)
        watcher.ask("watch_key", sized(KEY))
        self.assertEqual(watcher.receive(1), b"\3")
        nodes = [self.node(f"n{i}", min_nodes=200, max_nodes=200) for i in range(198)]
        for node in nodes:
            node.connect()
        for node in nodes:
            node.begin()
        seen, told = 0, 0
        while seen < 199:  # the last change is never lost
            self.assertEqual(watcher.receive(1), b"\0")
            watcher.receive_value()
            watcher.receive_value()
            seen = len(load(watcher.receive_value()).participants)
            told += 1
        self.assertLessEqual(told, 198)


class Commands(BlobCase):
    def list_runs(self):
        return [json.loads(line) for line in
                self.rdzv("list", "--rdzv-endpoint", self.server.endpoint, "--json").stdout.splitlines()]

    def reset(self, *flags):
        return self.rdzv("reset", "--rdzv-endpoint", self.server.endpoint, "--rdzv-id", "run", *flags)

    def test_list_and_reset_work_for_a_native_run(self):
        nodes = [self.node(name, min_nodes=2, max_nodes=2).begin() for name in ("a", "b")]
        for node in nodes:
            node.joined()
        run, = self.list_runs()
        self.assertEqual((run["run_id"], run["phase"]), ("run", "complete"))
        self.assertEqual(self.reset().returncode, 6)  # it is not closed
        reset = self.reset("--force")
        self.assertEqual(reset.returncode, 0, reset.stderr)
        for node in nodes:
            self.assertEqual(node.conn.expect(NEWS).what & EVICTED, EVICTED)
            node.conn.leave()

    def test_a_closed_run_is_reset_and_begins_again(self):
        node = self.node("a").begin()
        node.joined()
        node.conn.close_run("run", "done")
        rdzvtest.wait_until(lambda: self.status().closed, "the run is closed")
        reset = self.reset()
        self.assertEqual(reset.returncode, 0, reset.stderr)
        self.assertFalse(self.status().closed)
        self.assertEqual(self.node("b").begin().joined().world_size, 1)


if __name__ == "__main__":
    rdzvtest.main()
