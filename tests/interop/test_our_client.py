# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv store` against PyTorch's own TCPStore servers: every operation, its exit code, and what it says."""
import json

import peers
from peers import put
from rdzvtest import slow

# VALIDATE, and two PINGs that no PyTorch sends
HELLO = bytes.fromhex("00 ce f7 85 3c 0d ff ff ff ff 0d fe ff ff ff")
ECHOES = bytes.fromhex("ff ff ff ff fe ff ff ff")
WAIT, CANCEL_WAIT = b"\x06", b"\x0c"  # of v2
K_V = bytes.fromhex("02 00 00 00 00 00 00 00 2f 6b 01 00 00 00 00 00 00 00 76")  # the key /k, the value v


class EveryServer:
    """What holds for both versions. The server's own process is a client of it too: the PyTorch side of these tests."""

    version = None
    dialect = None
    settled_set = None

    def setUp(self):
        super().setUp()
        self.server = self.torch_server(self.version)

    def ours(self, *arguments, **options):
        return self.store(self.server, *arguments, **options)

    def test_values_go_both_ways(self):
        self.assert_done(self.ours("set", "ours", "from rdzv"), "")
        self.assertEqual(self.server.get("ours"), b"from rdzv")
        put(self.server, "theirs", "from PyTorch")
        self.assert_done(self.ours("get", "theirs"), "from PyTorch\n")
        self.assert_done(self.ours("--json", "get", "theirs"), '{"key":"theirs","value":"from PyTorch"}\n')

    def test_bytes_go_both_ways(self):
        every = bytes(range(256))
        self.assertEqual(self.ours("set", "b", "-", input=every, text=False).returncode, 0)
        self.assertEqual(self.server.get("b"), every)
        put(self.server, "c", every[::-1])
        self.assertEqual(self.ours("--raw", "get", "c", text=False).stdout, every[::-1])
        self.assertEqual(json.loads(self.ours("--json", "get", "c").stdout)["value_hex"], every[::-1].hex())
        self.assert_done(self.ours("set", "empty", ""))
        self.assertEqual(self.server.get("empty"), b"")
        self.assert_done(self.ours("get", "empty"), "\n")

    def test_large_values_go_both_ways(self):
        large = "0123456789abcdef" * (1 << 16)
        self.assert_done(self.ours("set", "large", "-", input=large))
        self.assertEqual(self.server.get("large"), large.encode())
        self.assert_done(self.ours("--raw", "get", "large"), large)

    def test_add(self):
        self.assert_done(self.ours("add", "n", "5"), "5\n")
        self.assertEqual(self.server.add("n", 2), 7)
        self.assert_done(self.ours("add", "n", "-10"), "-3\n")
        self.assertEqual(self.server.get("n"), b"-3")

    def test_no_add_is_lost(self):
        self.server.begin("add_many", "sum", 300)
        sums = [int(self.ours("add", "sum", "1").stdout) for _ in range(30)]
        self.assertEqual(sorted(sums + self.server.finish()), list(range(1, 331)))

    def test_add_to_what_is_no_number_names_the_likely_reason(self):
        put(self.server, "word", "abc")
        self.assert_exit(self.ours("add", "word", "1"), 5, "'word'.*may or may not.*if the value is not a number")
        self.assertEqual(self.server.get("word"), b"abc")

    def test_compare_and_set(self):
        for expected, desired, then, code in (("x", "1", "x", 1), ("", "1", "1", 0), ("1", "2", "2", 0),
                                              ("1", "3", "2", 1)):
            finished = self.ours("cas", "k", expected, desired)
            self.assertEqual((finished.returncode, finished.stdout), (code, then + "\n"), (expected, desired))
        self.assertEqual(self.server.get("k"), b"2")

    def test_check_and_delete_and_count(self):
        put(self.server, "a", "1")
        put(self.server, "b", "2")
        self.assert_done(self.ours("num-keys"), "2\n")
        self.assert_done(self.ours("check", "a", "b"), "")
        self.assert_done(self.ours("delete", "a"), "")
        self.assert_exit(self.ours("check", "a", "b"), 1)
        self.assert_exit(self.ours("delete", "a"), 1)
        self.assertEqual(self.server.num_keys(), 1)

    def test_several_at_once(self):
        self.assert_done(self.ours("mset", "a", "1", "b", "2", "c", ""), "")
        self.assertEqual([self.server.get(key) for key in "abc"], [b"1", b"2", b""])
        self.assert_done(self.ours("mget", "b", "a", "c", "b"), "2\n1\n\n2\n")
        self.assert_done(self.ours("wait", "a", "b", "c"), "")

    def test_a_key_that_is_set_and_deleted_all_the_time_is_read_as_it_was_set(self):
        self.server.begin("flicker", "k", "v", 3000)
        for _ in range(15):
            for arguments, output in ((("get", "k"), "v\n"), (("mget", "k", "k"), "v\nv\n")):
                done = self.ours(*arguments)  # which may say that it connected again: 2.6 closes on an absent key
                self.assertEqual((done.returncode, done.stdout), (0, output), done.stderr)
        self.server.finish()

    def test_prefixes_are_those_of_pytorch(self):
        self.assert_done(self.ours("--prefix", "job", "set", "k", "v"))
        self.assertEqual(self.server.get("job/k"), b"v")
        self.server.prefix("job")
        self.assertEqual(self.server.get("k"), b"v")

    def test_a_wait_is_woken_by_a_pytorch_process(self):
        client = self.torch_client(self.version, self.server)
        for operation, output in (("wait", ""), ("get", "v\n")):
            ours = self.begin_store(self.server, operation, operation)
            client.set(operation, "v")
            self.assert_done(self.finish_store(ours), output)

    def test_a_wait_is_woken_by_compare_set_though_the_server_tells_nobody(self):
        ours = self.begin_store(self.server, "get", "k")
        self.server.compare_set("k", "", "v")
        self.assert_done(self.finish_store(ours), "v\n")

    def test_our_set_wakes_a_pytorch_process(self):
        self.server.begin_blocked("get", "k")
        self.assert_done(self.ours("set", "k", "v"))
        self.assertEqual(self.server.finish(), b"v")

    def test_a_wait_times_out(self):
        seconds = slow(1)
        self.assert_exit(self.ours("--timeout", str(seconds), "wait", "x", "y"), 4, f"'x'.*timed out after {seconds * 1000:.0f} ms")
        self.assert_exit(self.ours("--timeout", "0", "get", "x"), 1, "the key is absent")  # is it there? no
        self.assertEqual(self.server.num_keys(), 0)

    def test_what_only_newer_servers_have_is_refused_with_a_sentence(self):
        self.assert_exit(self.ours("keys"), 6, "list the keys at .*PyTorch has this operation since the end of 2025")

    def test_the_dialect_can_be_named(self):
        self.assert_done(self.ours("--dialect", self.dialect, "add", "n", "1"), "1\n")
        self.assert_done(self.ours("--dialect", "auto", "add", "n", "1"), "2\n")

    def test_a_set_is_settled_by_an_answered_request_behind_it(self):
        """PyTorch answers no SET; without more, another client could still read the older value."""
        relay = self.relay(self.server.port)
        self.assert_done(self.rdzv("store", "--endpoint", relay.endpoint, "--dialect", self.dialect, "set", "k", "v"))
        self.assertTrue(relay.sent.endswith(self.settled_set), relay.sent)
        self.assertEqual(relay.answered, (1).to_bytes(8, "little"))

    def test_the_server_is_well_after_our_greeting(self):
        relay = self.relay(self.server.port)
        client = self.torch_client(self.version, self.server)
        for i in range(1, 6):
            self.assert_done(self.rdzv("store", "--endpoint", relay.endpoint, "add", "n", "1"), f"{2 * i - 1}\n")
            self.assertEqual(client.add("n", 1), 2 * i)
        self.assertTrue(relay.sent.startswith(HELLO))


class Torch113(EveryServer, peers.Case):
    version = "1.13"
    dialect = "v1"
    settled_set = b"\0" + K_V + b"\6"  # SET, GETNUMKEYS

    def test_append_is_refused_with_a_sentence(self):
        put(self.server, "k", "v")
        self.assert_exit(self.ours("append", "k", "w"), 6, "append to 'k' .*PyTorch has this operation from 2.1 on")
        self.assertEqual(self.server.get("k"), b"v")

    def test_it_is_not_an_rdzv_server(self):
        self.assert_exit(self.ours("--timeout", "0.3", "--dialect", "rdzv", "num-keys"), 3, "cannot connect to")


class Torch26(EveryServer, peers.Case):
    version = "2.6"
    dialect = "v2"
    settled_set = b"\1" + K_V + b"\7"

    def test_append(self):
        put(self.server, "k", "v")
        self.assert_done(self.ours("append", "k", "w"), "")
        self.assertEqual(self.server.get("k"), b"vw")

    def test_a_wait_that_times_out_is_taken_back(self):
        relay = self.relay(self.server.port)
        finished = self.rdzv("store", "--endpoint", relay.endpoint, "--timeout", "0.5", "wait", "x")
        self.assert_exit(finished, 4)
        request = WAIT + bytes.fromhex("0100000000000000 0200000000000000") + b"/x"
        self.assertEqual(bytes(relay.sent), HELLO + request + CANCEL_WAIT)
        self.assertEqual(bytes(relay.answered), ECHOES + b"\1")

    def test_it_is_not_an_rdzv_server(self):
        self.assert_exit(self.ours("--dialect", "rdzv", "num-keys"), 6, "is not an rdzv server")

    def test_it_does_not_speak_v1(self):
        self.assert_exit(self.ours("--timeout", "0.3", "--dialect", "v1", "num-keys"), 3)


if __name__ == "__main__":
    peers.main()
