# SPDX-License-Identifier: BSD-3-Clause
"""What `rdzv status` and `rdzv list` say of a run while it gathers, when it has ended, and as a view that stands still."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import rdzvtest
from join_node import Ours
from rdzvtest import wait_until

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


class Places(rdzvtest.Case):
    def places(self):
        server = self.serve()
        return {"native": (["--rdzv-endpoint", server.endpoint], []),
                "swap": (["--rdzv-endpoint", server.endpoint], ["mode=swap"]),
                "file": (["--rdzv-endpoint", self.path("store")], ["store_type=file"])}

    @staticmethod
    def flags(place, run_id, *conf):
        where, own = place
        return [*where, "--rdzv-id", run_id, "--rdzv-conf", ",".join([*own, *conf])]

    def node(self, place, run_id, addr, nnodes, *conf):
        return Ours(self, f"{run_id}-{addr}", [*self.flags(place, run_id, *conf), "--local-addr", addr, "--nnodes", nnodes])

    def status(self, place, run_id):
        done = self.rdzv("status", *self.flags(place, run_id), "--json")
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def table(self, place, run_id):
        return self.rdzv("status", *self.flags(place, run_id)).stdout

    def await_phase(self, place, run_id, phase):
        def look():
            status = self.status(place, run_id)
            return status if status["phase"] == phase else None
        return wait_until(look, f"the run is in phase '{phase}'")


class Status(Places):
    def test_min_and_max_are_those_of_the_nodes(self):
        for name, place in self.places().items():
            with self.subTest(name):
                self.node(place, name, "a", "3:5").await_said("waiting for nodes")
                status = self.status(place, name)
                self.assertEqual((status["min_nodes"], status["max_nodes"], status["ended_at"]), (3, 5, None))
                self.assertIn("1 participant (min 3, max 5), 0 waiting, 0 spares", self.table(place, name))

    def test_the_time_of_the_last_call_is_told(self):
        for name, place in self.places().items():
            with self.subTest(name):
                node = self.node(place, name, "a", "1:2", "last_call_timeout=60")
                node.await_said("waiting for the end of the last call")
                left = re.search(r"waiting for the end of the last call.*; (\d+) s left", node.said())
                self.assertLessEqual(int(left.group(1)), 60, node.said())

    def test_a_run_that_all_nodes_left_has_ended(self):
        places = self.places()
        for name, place in places.items():
            with self.subTest(name):
                node = self.node(place, name, "a", "1")
                self.assertEqual(node.joined()["world_size"], 1)
                self.assertEqual(self.status(place, name)["ended_by"], None)
                self.assertEqual(node.leave(), 0)
                by = f"a_{node.process.pid}_0"
                status = self.await_phase(place, name, "ended")
                self.assertRegex(status["ended_at"], f"^{TIME}$")
                self.assertEqual((status["ended_by"], status["participants"], status["closed"]), (by, 0, False))
                self.assertEqual((status["min_nodes"], status["max_nodes"]), (None, None))
                self.assertRegex(self.table(place, name), f"round 1, ended at {TIME}: the last node, '{by}', left\n")
                again = self.node(place, name, "b", "1")
                again.joined()
                status = self.status(place, name)
                self.assertEqual((status["phase"], status["ended_by"], status["ended_at"]), ("complete", None, None))
                self.assertEqual(again.leave(), 0)
        listed = self.rdzv("list", *places["native"][0]).stdout
        self.assertRegex(listed, rf"(?m)^native +ended +2 +0 +0  {TIME} by b_\d+_0$")

    def test_a_run_whose_last_node_died_has_ended(self):
        places = self.places()
        died = {}
        for name, place in places.items():
            died[name] = self.node(place, name, "a", "1", "keep_alive_interval=0.2")
            self.assertEqual(died[name].joined()["world_size"], 1)
            self.assertEqual(self.status(place, name)["phase"], "complete")
        for node in died.values():
            node.kill()
        for name, place in places.items():
            with self.subTest(name):
                by = f"a_{died[name].process.pid}_0"
                status = self.await_phase(place, name, "ended")
                self.assertRegex(status["ended_at"], f"^{TIME}$")
                self.assertEqual((status["ended_by"], status["died"], status["closed"]), (by, True, False))
        self.assertRegex(self.table(places["native"], "native"), rf"round 1, ended at {TIME}: the last node, 'a_\d+_0', died\n")
        listed = self.rdzv("list", *places["swap"][0]).stdout
        for name in ("native", "swap"):
            self.assertRegex(listed, rf"(?m)^{name} +ended +\d +\d +0  {TIME}: a_{died[name].process.pid}_0 died$")
        for name, place in places.items():
            with self.subTest(name):
                again = self.node(place, name, "b", "1", "keep_alive_interval=0.2")
                again.joined()
                status = self.status(place, name)
                self.assertEqual((status["phase"], status["died"], status["ended_at"]), ("complete", False, None))
                self.assertEqual(again.leave(), 0)
                self.assertFalse(self.await_phase(place, name, "ended")["died"])

    def test_a_closed_run_says_when_and_by_whom(self):
        for name, place in self.places().items():
            with self.subTest(name):
                node = self.node(place, name, "a", "1")
                node.joined()
                self.assertEqual(self.rdzv("close", *self.flags(place, name), "--reason", "enough").returncode, 0)
                status = self.await_phase(place, name, "closed")
                self.assertRegex(status["ended_at"], f"^{TIME}$")
                known = "" if name == "native" else r" by '\S+_\d+_0'"
                self.assertRegex(self.table(place, name), rf"round \d, closed at {TIME}{known}.*: enough\n")


class Watch(Places):
    def start_watch(self, place, run_id, **options):
        return self.start([rdzvtest.RDZV, "status", *self.flags(place, run_id), "--watch"], **options)

    def test_without_a_terminal_there_is_a_line_for_each_change(self):
        for name, place in self.places().items():
            with self.subTest(name):
                path = self.path(f"watch-{name}")
                with open(path, "w", encoding="utf-8") as out:
                    watch = self.start_watch(place, name, stdout=out)

                def lines():
                    with open(path, encoding="utf-8") as file:
                        return file.read().splitlines()
                wait_until(lambda: lines() and "no node has joined yet" in lines()[0], "it begins")
                node = self.node(place, name, "a", "1")
                node.joined()
                self.await_phase(place, name, "complete")
                wait_until(lambda: "+ a_" in "\n".join(lines()), f"the node is in a line: {lines()}")
                self.assertEqual(node.leave(), 0)
                wait_until(lambda: "ended" in lines()[-1], "so is its end")
                watch.send_signal(signal.SIGTERM)
                self.assertEqual(watch.wait(rdzvtest.DEADLINE), 0)
                for line in lines():
                    self.assertRegex(line, f"^{TIME} ")
                self.assertRegex(lines()[-1], rf"round 1, ended at .*; 0 participants.*; - a_\d+_0$")

    def restarted(self, look, *flags):
        """A server that is killed and started again on its port; look("lost") and look("back") wait for what is said."""
        server = self.serve("--state-dir", self.path("state"))
        place = (["--rdzv-endpoint", server.endpoint], [])
        self.node(place, "job", "a", "1").joined()
        watch, look = look(place, *flags)
        look("start")
        server.kill()
        server.wait()
        look("lost")
        self.serve("--state-dir", self.path("state"), "--port", str(server.port))
        look("back")
        watch.send_signal(signal.SIGINT)
        began = time.monotonic()
        self.assertEqual(watch.wait(rdzvtest.DEADLINE), 0)
        self.assert_within(began, 2)

    def to_file(self, place, *flags):
        path = self.path("watch")
        with open(path, "w", encoding="utf-8") as out:
            watch = self.start([rdzvtest.RDZV, "status", *self.flags(place, "job"), "--watch", *flags], stdout=out, stderr=out)

        def look(what):
            def lines():
                with open(path, encoding="utf-8") as file:
                    return file.read().splitlines()
            number = {"start": 1, "lost": 2, "back": 4 if flags else 3}[what]
            wait_until(lambda: len(lines()) >= number, f"line {number}: {lines()}")
            if what == "back" and not flags:
                self.assertRegex(lines()[1], rf"^{TIME} no answer: cannot connect to '\S+' .*Connection refused")
                self.assertRegex(lines()[2], rf"^{TIME} an answer after \d+ s$")
                self.assertEqual(len(lines()), 3, lines())
            elif what == "back":
                self.assertRegex(lines()[1], "^rdzv status: no answer: cannot connect to ")
                self.assertEqual(lines()[2], "rdzv status: the store answers again")
                self.assertEqual(json.loads(lines()[3])["participants"], 1)
        return watch, look

    def test_a_server_that_is_restarted_costs_a_line_for_the_loss_and_one_for_the_return(self):
        self.restarted(self.to_file)

    def test_a_server_that_is_restarted_is_asked_again_for_json(self):
        self.restarted(self.to_file, "--json")

    def test_a_view_says_for_how_long_there_is_no_answer(self):
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        said = ""

        def to_terminal(place):
            watch = self.start_watch(place, "job", stdout=slave, stderr=slave)
            os.close(slave)

            def look(what):
                nonlocal said
                said, end = "", time.monotonic() + rdzvtest.DEADLINE
                pattern = {"start": "0     participant", "back": "changed \\d+ s ago[^\n]*\n[^\n]*round 0, complete",
                           "lost": "no answer for [1-9]\\d* s: cannot connect[^\n]*\n(    [^\n]*\n)*[^\n]*round 0, complete"}[what]
                while not re.search(pattern, said):
                    self.assertLess(time.monotonic(), end, said)
                    if select.select([master], [], [], 1)[0]:
                        said += os.read(master, 65536).decode()
                self.assertNotIn("warning", said)
            return watch, look
        self.restarted(to_terminal)

    def test_on_a_terminal_it_stands_still(self):
        place = self.places()["native"]
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        watch = self.start_watch(place, "job", stdout=slave)
        os.close(slave)
        said = ""

        def read_until(text):
            nonlocal said
            end = time.monotonic() + rdzvtest.DEADLINE
            while text not in said:
                self.assertLess(time.monotonic(), end, said)
                if select.select([master], [], [], 1)[0]:
                    said += os.read(master, 65536).decode()
        read_until("no node has joined yet")
        first = self.node(place, "job", "a", "1:2", "last_call_timeout=1")
        first.joined()
        read_until("* 0     participant")
        second = self.node(place, "job", "b" * 120, "1:2", "last_call_timeout=1")
        second.joined()
        read_until("* 1     participant")
        second.leave()
        read_until("- bbbb")
        watch.send_signal(signal.SIGINT)
        try:
            read_until(SHOW)
        except OSError:  # the other end is closed
            pass
        self.assertIn(watch.wait(rdzvtest.DEADLINE), (0, 128 + signal.SIGINT))
        self.assertTrue(said.startswith(HIDE), said[:80])
        self.assertEqual((said.count(HIDE), said.count(SHOW)), (1, 1))
        self.assertNotIn("\x1b[2J", said)
        for line in re.sub(r"\x1b\[[0-9?]*[A-Za-z]", "", said).replace("\r", "").split("\n"):
            self.assertLess(len(line), 80, line)
        self.assertRegex(said, f"{TIME}, changed \\d+ s ago")

    def test_a_reason_wider_than_the_terminal_goes_on_in_the_next_rows(self):
        place, reason = self.places()["native"], " ".join(f"word{i:02}" for i in range(30))
        self.node(place, "job", "a", "1").joined()
        self.assertEqual(self.rdzv("close", *self.flags(place, "job"), "--reason", reason).returncode, 0)
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.start_watch(place, "job", stdout=slave)
        os.close(slave)
        said, end = "", time.monotonic() + rdzvtest.DEADLINE
        while not re.search(r"changed [\s\S]*\x1b\[J[\s\S]*changed [\s\S]*\x1b\[J", said):
            self.assertLess(time.monotonic(), end, said)
            if select.select([master], [], [], 1)[0]:
                said += os.read(master, 65536).decode()
        first, second = said.split("\x1b[J")[:2]
        rows = re.sub(r"\x1b\[[0-9?]*[A-Za-z]", "", first).replace("\r", "").split("\n")
        self.assertLess(max(map(len, rows)), 80, rows)
        self.assertIn(f": {reason}", re.sub(r"\s+", " ", " ".join(rows)))
        self.assertTrue(second.startswith(f"\x1b[{len(rows) - 1}A\r"), second)


if __name__ == "__main__":
    rdzvtest.main()
