# SPDX-License-Identifier: BSD-3-Clause
"""One FileStore file used at the same time by PyTorch 1.13, by PyTorch 2.6 and by `rdzv store --file`."""
import concurrent.futures
import os
import struct
import subprocess

import peers
import rdzvtest


def records(path):
    """What the file holds, read by the facts about it: u32 length and key, u32 length and value, again and again."""
    with open(path, "rb") as file:
        data = file.read()
    found = []
    while data:
        fields = []
        for _ in "key", "value":
            (length,) = struct.unpack_from("<I", data)
            fields.append(data[4:4 + length])
            data = data[4 + length:]
        found.append(tuple(fields))
    return found


def is_watching(pid):
    """Has the process got as far as waiting for a change of its file?"""
    names = rdzvtest.descriptors(pid).values()
    return any("inotify" in name for name in names) and peers.is_asleep(pid)


class FileCase(peers.Case):
    def setUp(self):
        super().setUp()
        self.file = self.path("store")

    def ours(self, *arguments, **options):
        return self.rdzv("store", "--file", self.file, *arguments, **options)

    def torch_file(self, version, workers=-1, path=None):
        process = self.torch(version)
        process.file(path or self.file, workers)
        return process


class EveryPeer:
    """What holds for ours and one PyTorch."""

    version = None

    def setUp(self):
        super().setUp()
        self.theirs = self.torch_file(self.version)

    def test_values_go_both_ways(self):
        every = bytes(range(256))
        for i, value in enumerate((b"", b"text", every, b"x" * (1 << 20))):
            self.assertEqual(self.ours("set", f"ours{i}", "-", input=value, text=False).returncode, 0)
            self.assertEqual(self.theirs.get(f"ours{i}"), value)
            self.theirs.set(f"theirs{i}", value)
            self.assertEqual(self.ours("--raw", "get", f"theirs{i}", text=False).stdout, value)

    def test_a_blocked_get_of_pytorch_is_woken_by_ours(self):
        self.theirs.begin_blocked("get", "late")
        self.assert_done(self.ours("set", "late", "now"))
        self.assertEqual(self.theirs.finish(), b"now")

    def test_our_blocked_get_is_woken_by_pytorch(self):
        self.theirs.set("other", "makes the file")
        command = self.start([rdzvtest.RDZV, "store", "--file", self.file, "get", "late"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        rdzvtest.wait_until(lambda: is_watching(command.pid), "our get waits")
        self.theirs.set("late", "now")
        self.assert_done(self.finish_store(command), "now\n")

    def test_compare_set_answers_as_pytorch_does(self):
        for key, set_by in (("a", lambda *a: self.ours("--raw", "cas", *a).stdout.encode()),
                            ("b", self.theirs.compare_set)):
            self.assertEqual(set_by(key, "other", "new"), b"other")  # absent: nothing is set
            self.assertEqual(set_by(key, "", "one"), b"one")
            self.assertEqual(set_by(key, "one", "two"), b"two")
            self.assertEqual(set_by(key, "one", "three"), b"two")
        self.assertEqual(self.theirs.get("a"), b"two")
        self.assert_done(self.ours("get", "b"), "two\n")
        self.assertEqual(self.theirs.compare_set("a", "two", "theirs"), b"theirs")
        self.assert_done(self.ours("cas", "a", "theirs", "ours"), "ours\n")

    def test_each_deletes_what_the_other_set(self):
        self.theirs.set("k", "1")
        self.assert_done(self.ours("delete", "k"))
        self.assert_exit(self.ours("check", "k"), 1)
        self.theirs.begin_blocked("get", "k")  # it has seen that the key is gone
        self.assert_done(self.ours("set", "k", "2"))
        self.assertEqual(self.theirs.finish(), b"2")
        self.assertIs(self.theirs.delete_key("k"), True)
        self.assert_exit(self.ours("check", "k"), 1)
        self.assertIs(self.theirs.delete_key("k"), True)  # also of an absent key
        self.assert_done(self.ours("delete", "k"))

    def test_add_reads_what_the_other_wrote(self):
        self.assertEqual(self.theirs.add("n", 5), 5)
        self.assert_done(self.ours("add", "n", "-7"), "-2\n")
        self.assertEqual(self.theirs.add("n", 1), -1)
        self.theirs.set("empty", "")
        self.assert_done(self.ours("add", "empty", "3"), "3\n")

    def test_our_records_are_pytorchs_byte_for_byte(self):
        other = self.path("other")
        twin = self.torch_file(self.version, path=other)
        begun = len(records(self.file)) if os.path.exists(self.file) else 0  # 2.6 begins with its count
        for key, value in (("k", "v"), ("k", ""), ("", "of the empty key")):
            self.assert_done(self.ours("set", key, value))
            twin.set(key, value)
        self.assert_done(self.ours("add", "n", "-3"))
        twin.add("n", -3)
        self.assert_done(self.ours("cas", "k", "", "w"))
        twin.compare_set("k", "", "w")
        self.assert_done(self.ours("delete", "k"))
        twin.delete_key("k")
        self.assertEqual(records(self.file), records(other))
        self.assertEqual(records(self.file)[begun:],
                         [(b"/k", b"v"), (b"/k", b""), (b"/", b"of the empty key"), (b"/n", b"-3"), (b"/k", b"w"),
                          (b"-/k", b"")])

    def test_prefixes_are_those_of_pytorch(self):
        self.assert_done(self.ours("--prefix", "job", "set", "k", "v"))
        self.theirs.prefix("job")
        self.assertEqual(self.theirs.get("k"), b"v")

    def test_a_file_that_pytorch_removes_is_made_anew(self):
        counted = self.torch_file(self.version, workers=1, path=self.path("counted"))
        self.file = self.path("counted")
        counted.set("k", "old")
        self.assert_done(self.ours("get", "k"), "old\n")
        counted.close_store()  # the last of one worker removes it
        self.assertFalse(os.path.exists(self.file))
        self.assert_exit(self.ours("--timeout", "0", "get", "k"), 1)
        self.assert_done(self.ours("set", "k", "new"))
        self.assertEqual(self.torch_file(self.version).get("k"), b"new")


class Torch113(EveryPeer, FileCase):
    version = "1.13"

    def test_num_keys_is_what_pytorch_says(self):
        self.theirs.set("a", "1")
        self.assert_done(self.ours("set", "b", "2"))
        self.assertEqual(self.theirs.num_keys(), 2)
        self.assert_done(self.ours("num-keys"), "2\n")


class Torch26(EveryPeer, FileCase):
    version = "2.6"

    def test_num_keys_is_what_pytorch_says_which_counts_its_own_record(self):
        self.theirs.set("a", "1")
        self.assert_done(self.ours("set", "b", "2"))
        self.assertEqual(self.theirs.num_keys(), 3)
        self.assert_done(self.ours("num-keys"), "3\n")
        self.assertEqual(sorted(self.ours("keys").stdout.split()), ["a", "b"])

    def test_our_users_leave_its_count_of_stores_alone(self):
        self.assert_done(self.ours("set", "k", "v"))
        self.assertEqual([value for key, value in records(self.file) if key == b"refcount/"], [b"1"])

    def test_append_and_several_at_once(self):
        """PyTorch's FileStore has none of these; ours are made of its records."""
        self.theirs.set("k", "a")
        self.assert_done(self.ours("append", "k", "b"))
        self.assertEqual(self.theirs.get("k"), b"ab")
        self.assert_done(self.ours("mset", "x", "1", "y", "2"))
        self.assertEqual((self.theirs.get("x"), self.theirs.get("y")), (b"1", b"2"))


class Together(FileCase):
    """All three at once."""

    def setUp(self):
        super().setUp()
        self.old, self.new = (self.torch_file(version) for version in peers.VERSIONS)

    def test_each_reads_what_the_others_wrote(self):
        self.old.set("old", "1.13")
        self.new.set("new", "2.6")
        self.assert_done(self.ours("set", "ours", "rdzv"))
        for store in (self.old, self.new):
            self.assertEqual([store.get("old"), store.get("new"), store.get("ours")], [b"1.13", b"2.6", b"rdzv"])
        self.assert_done(self.ours("mget", "old", "new", "ours"), "1.13\n2.6\nrdzv\n")

    def test_all_give_the_same_number_of_keys(self):
        """Also once others have closed the file, which leaves further records of its own."""
        def assert_count(count):
            self.assertEqual((self.old.num_keys(), self.new.num_keys()), (count, count))
            self.assert_done(self.ours("num-keys"), f"{count}\n")

        self.old.set("old", "1")
        self.new.set("new", "2")
        assert_count(3)
        for version in peers.VERSIONS:
            self.torch_file(version, workers=5).close_store()
        self.assertIn(b"cleanup/", [key for key, value in records(self.file)])
        assert_count(4)

    def test_no_add_is_lost(self):
        torch = [self.old, self.new] + [self.torch_file(version) for version in peers.VERSIONS]
        for process in torch:
            process.begin("add_many", "sum", 150)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            ours = pool.map(lambda _: int(self.ours("add", "sum", "1").stdout), range(100))
            sums = list(ours) + [number for process in torch for number in process.finish()]
        self.assertEqual(sorted(sums), list(range(1, 701)))
        self.assert_done(self.ours("get", "sum"), "700\n")

    def test_one_of_three_wins(self):
        for i in range(10):
            self.old.begin("compare_set", f"leader{i}", "", "old")
            self.new.begin("compare_set", f"leader{i}", "", "new")
            ours = self.ours("--raw", "cas", f"leader{i}", "", "ours").stdout.encode()
            self.assertEqual({self.old.finish(), self.new.finish(), ours}, {self.old.get(f"leader{i}")})

    def test_a_delete_is_seen_by_all(self):
        self.old.set("k", "v")
        self.assertEqual(self.new.get("k"), b"v")
        self.assert_done(self.ours("delete", "k"))
        self.old.begin_blocked("get", "k")
        self.new.begin_blocked("get", "k")
        self.assert_done(self.ours("set", "k", "again"))
        self.assertEqual((self.old.finish(), self.new.finish()), (b"again", b"again"))


if __name__ == "__main__":
    peers.main()
