# SPDX-License-Identifier: BSD-3-Clause
"""The rendezvous as a user runs it: `rdzv join`, `rdzv status`, `rdzv close`; what they print, exit with and do on
signals. A member is taken for dead after 15 s unless a case says otherwise, so that only those that mean to see
somebody die can."""
import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
import unittest

import rdzvtest
from rdzvtest import free_port, slow, wait_until

YES, NO, USAGE, CONNECT, TIMEOUT, UNKNOWN, REFUSED, IO, CLOSED = range(9)
FIELDS = {"round", "rank", "world_size", "run_id", "backend", "node", "master_addr", "master_port", "members"}
MEMBER_FIELDS = {"node", "addr", "pid", "local_id", "rank"}
EVENT_FIELDS = {"time", "run_id", "node", "host", "pid", "local_id", "round", "rank", "state", "message"}
STATUS_FIELDS = {"run_id", "exists", "round", "phase", "complete", "closed", "participants", "waiting", "spares",
                 "torch_layout", "nodes", "deadline_left_ms", "min_nodes", "max_nodes", "ended_at", "ended_by",
                 "died"}
NEVER = "keep_alive_interval=60"  # nobody dies within a test: who is missed has said so


def dead_endpoint(case):
    """An address that refuses, and that nobody else can take meanwhile."""
    holder = socket.socket()
    case.addCleanup(holder.close)
    holder.bind(("127.0.0.1", 0))
    return f"127.0.0.1:{holder.getsockname()[1]}"


class Rendezvous(rdzvtest.Case):
    """Nodes write to files of their own, which are looked at until they say what they must."""
    RUN_ID = "job"
    CONF = "last_call_timeout=0.1"

    def setUp(self):
        super().setUp()
        self.server = None
        self.endpoint = ""

    def serve_store(self):
        self.server = self.serve()
        self.endpoint = self.server.endpoint

    def flags(self, *conf):
        return ["--rdzv-endpoint", self.endpoint, "--rdzv-id", self.RUN_ID, "--rdzv-conf", ",".join([self.CONF, *conf])]

    def node(self, name, nnodes, *conf, options=(), command=(), **popen_options):
        arguments = [*self.flags(*conf), "--nnodes", nnodes, "--local-addr", name, *options]
        return self.run_node(name, arguments, command, **popen_options)

    def run_node(self, name, arguments, command=(), **popen_options):
        out, err = self.path(f"{name}.out"), self.path(f"{name}.err")
        with open(out, "w", encoding="utf-8") as stdout, open(err, "w", encoding="utf-8") as stderr:
            process = self.start([rdzvtest.RDZV, "join", *arguments, *(["--", *command] if command else [])],
                                 stdout=stdout, stderr=stderr, **popen_options)
        process.name, process.out, process.err = name, out, err
        return process

    @staticmethod
    def text(path):
        with open(path, encoding="utf-8") as file:
            return file.read()

    def lines(self, node):
        """The lines that are there whole."""
        return self.text(node.out).split("\n")[:-1]

    def rounds(self, node):
        return [json.loads(line) for line in self.lines(node) if line.startswith("{")]

    def gone(self, node, code):
        """Waits for its end, which must be that."""
        try:
            ended = node.wait(rdzvtest.DEADLINE)
        except subprocess.TimeoutExpired:
            ended = "still running"
        self.assertEqual(ended, code, self.text(node.err))
        return self.text(node.err)

    def together(self, nodes, after=-1):
        """Waits until the last round of all the nodes is the same one, with them and nobody else, and gives it."""
        def there():
            for node in nodes:
                if node.poll() is not None:
                    raise AssertionError(f"{node.name} ended with {node.returncode}: {self.text(node.err)}")
            last = [(self.rounds(node) or [None])[-1] for node in nodes]
            if None in last or len({found["round"] for found in last}) > 1 or last[0]["round"] <= after:
                return None
            names = sorted(member["addr"] for member in last[0]["members"])
            return last if names == sorted(node.name for node in nodes) else None

        names = ", ".join(node.name for node in nodes)
        return wait_until(there, f"a round of {names} after round {after}")

    def status(self, *conf):
        done = self.rdzv("status", *self.flags(*conf), "--json")
        self.assertIn(done.returncode, (YES, NO), done.stderr)
        return json.loads(done.stdout)

    def wait_status(self, condition, what):
        return wait_until(lambda: (found := self.status()) and condition(found) and found, what)

    def wait_participants(self, count):
        return self.wait_status(lambda found: found["participants"] == count, f"{count} participants")


class Rounds(Rendezvous):
    def setUp(self):
        super().setUp()
        self.serve_store()

    def test_three_nodes_agree_on_all_but_their_own_rank(self):
        nodes = [self.node(name, "3") for name in "abc"]
        rounds = self.together(nodes)
        for found, node in zip(rounds, nodes):
            self.assertEqual(set(found), FIELDS)
            self.assertEqual(found["node"], f"{node.name}_{node.pid}_0")
            self.assertEqual(found["members"][found["rank"]]["node"], found["node"])
        self.assertEqual([found["rank"] for found in rounds], [0, 1, 2])  # torch's order is by name
        common = [{name: found[name] for name in FIELDS - {"rank", "node"}} for found in rounds]
        self.assertEqual(common, [common[0]] * 3)
        self.assertEqual((common[0]["round"], common[0]["world_size"]), (0, 3))
        self.assertEqual((common[0]["run_id"], common[0]["backend"]), ("job", "c10d"))
        self.assertEqual(common[0]["master_addr"], "a")
        self.assertIn(common[0]["master_port"], range(1, 65536))
        for member, node, rank in zip(common[0]["members"], nodes, range(3)):
            self.assertEqual(set(member), MEMBER_FIELDS)
            self.assertEqual((member["addr"], member["pid"], member["local_id"], member["rank"]),
                             (node.name, node.pid, 0, rank))

    def test_options_may_have_underscores_and_an_equals_sign(self):
        one = self.run_node("a", [f"--rdzv_endpoint={self.endpoint}", f"--rdzv_id={self.RUN_ID}",
                                  f"--rdzv_conf={self.CONF}", "--nnodes=2:2", "--local_addr=a", "--rdzv_backend=c10d",
                                  "--log_level=warning"])
        other = self.node("b", "2")
        self.together([one, other])

    def test_one_more_is_admitted_in_the_next_round_and_one_too_many_is_a_spare_until_there_is_room(self):
        nodes = [self.node(name, "2:3") for name in "ab"]
        self.assertEqual(self.together(nodes)[0]["round"], 0)
        nodes.append(self.node("c", "2:3"))
        rounds = self.together(nodes)
        self.assertEqual([(found["round"], found["rank"], found["world_size"]) for found in rounds],
                         [(1, 0, 3), (1, 1, 3), (1, 2, 3)])
        spare = self.node("d", "2:3")
        found = self.wait_status(lambda found: found["spares"] == 1, "d is a spare")
        self.assertEqual((found["round"], found["participants"]), (1, 3))
        self.assertEqual([node["rank"] for node in found["nodes"] if node["kind"] == "spare"], [None])
        nodes[0].send_signal(signal.SIGTERM)
        self.gone(nodes[0], YES)
        self.together([*nodes[1:], spare], after=1)

    def test_who_is_killed_is_missed_after_the_keep_alive(self):
        quick = f"keep_alive_interval={slow(0.5)}"
        nodes = [self.node(name, "2:3", quick) for name in "abc"]
        before = self.together(nodes)[0]["round"]
        nodes[0].kill()
        rounds = self.together(nodes[1:], after=before)
        self.assertEqual([found["rank"] for found in rounds], [0, 1])
        self.assertEqual(rounds[0]["master_addr"], "b")

    def test_who_was_stopped_finds_the_store_as_it_was(self):
        node = self.node("a", "1", "keep_alive_interval=0.3", "session_keep_alive=60")  # it would give up after 0.9 s
        self.together([node])
        for _ in range(3):
            node.send_signal(signal.SIGSTOP)
            wait_until(lambda: self.status()["nodes"][0]["heartbeat_age_ms"] > 1500, "it has been silent for long")
            node.send_signal(signal.SIGCONT)
            wait_until(lambda: node.poll() is not None or self.status()["nodes"][0]["heartbeat_age_ms"] < 900,
                       "it is heard again")
            self.assertIsNone(node.poll(), self.text(node.err))
        node.send_signal(signal.SIGTERM)
        self.assertEqual(self.gone(node, YES), "")
        self.assertEqual([found["round"] for found in self.rounds(node)], [0])

    def check_leaving(self, number):
        nodes = [self.node(name, "2:3", NEVER) for name in "abc"]
        before = self.together(nodes)[0]["round"]
        nodes[1].send_signal(number)
        self.assertEqual(self.gone(nodes[1], YES), "")
        rounds = self.together([nodes[0], nodes[2]], after=before)
        self.assertEqual([found["rank"] for found in rounds], [0, 1])

    def test_sigterm_leaves_and_the_others_hear_of_it_long_before_it_would_be_dead(self):
        self.check_leaving(signal.SIGTERM)

    def test_sigint_leaves_as_sigterm_does(self):
        self.check_leaving(signal.SIGINT)

    def test_sighup_leaves_as_sigterm_does(self):
        self.check_leaving(signal.SIGHUP)

    def test_a_signal_before_the_round_takes_the_node_out_again(self):
        node = self.node("a", "2", NEVER)
        self.wait_participants(1)
        node.send_signal(signal.SIGTERM)
        self.gone(node, YES)
        self.assertEqual(self.lines(node), [])
        self.assertEqual(self.status()["participants"], 0)

    def test_once_prints_one_round_and_counts_until_its_session_ends(self):
        conf = "session_grace=8"
        stays = self.node("a", "2", conf)
        once = self.node("b", "2", conf, options=["--once"])
        self.gone(once, YES)
        self.assertEqual(len(self.lines(once)), 1)
        found = self.status()
        self.assertEqual((found["phase"], found["participants"]), ("complete", 2))
        self.wait_status(lambda found: found["phase"] == "gathering", "a misses b and wants another round")
        self.assertIsNone(stays.poll())

    def test_the_layout_of_an_older_pytorch_can_be_asked_for(self):
        node = self.node("a", "1", "torch_version=1.13,session_grace=60", options=["--once"])
        self.gone(node, YES)
        self.assertEqual(self.status()["torch_layout"], "1.13")

    def test_a_full_stdout_is_no_success_and_the_node_leaves(self):
        for command in ("join", "status"):
            with open("/dev/full", "w", encoding="ascii") as full:
                done = subprocess.run([rdzvtest.RDZV, command, *self.flags()], stdout=full, stderr=subprocess.PIPE,
                                      text=True, timeout=rdzvtest.DEADLINE, check=False)
            self.assertEqual(done.returncode, IO)
            self.assertIn("cannot write to stdout: No space left on device", done.stderr)
        self.assertEqual(self.status()["participants"], 0)


class Command(Rendezvous):
    def setUp(self):
        super().setUp()
        self.serve_store()

    def code_of(self, *command):
        node = self.node("a", "1", command=command)
        return node.wait(rdzvtest.DEADLINE), self.text(node.err)

    def test_it_gets_its_place_in_the_round(self):
        script = "echo $RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $RDZV_ROUND $RDZV_RUN_ID; read the_end"
        nodes = [self.node(name, "2", command=["sh", "-c", script], env={**os.environ, "RANK": "77"},
                           stdin=subprocess.PIPE) for name in "ab"]
        for node in nodes:
            line, said = wait_until(lambda node=node: len(self.lines(node)) == 2 and self.lines(node), "it has said it")
            found = json.loads(line)
            self.assertEqual(said, f"{found['rank']} 2 a {found['master_port']} 0 job")
            self.assertNotEqual(found["master_port"], 0)
        for node in nodes:
            node.stdin.write(b"\n")
            node.stdin.flush()
            self.gone(node, YES)
        self.assertEqual(self.status()["participants"], 0)  # they have left

    def test_its_exit_code_is_passed_on(self):
        self.assertEqual(self.code_of("sh", "-c", "exit 5"), (5, ""))
        self.assertEqual(self.code_of("sh", "-c", "kill -KILL $$"), (128 + signal.SIGKILL, ""))

    def test_what_cannot_be_run_is_named(self):
        code, text = self.code_of("/no/such/command")
        self.assertEqual(code, 127)
        self.assertIn("cannot start '/no/such/command': No such file or directory", text)
        code, text = self.code_of("/etc/passwd")
        self.assertEqual(code, 126)
        self.assertIn("cannot start '/etc/passwd': not executable (chmod +x '/etc/passwd'?)", text)

    def test_what_cannot_be_run_never_joins(self):
        """One of two nodes; the other must not be left alone in a complete round."""
        other = self.node("b", "2")
        self.wait_participants(1)
        self.gone(self.node("a", "2", command=["/no/such/command"]), 127)
        self.assertEqual((self.status()["participants"], self.lines(other)), (1, []))

    def run_until_signal(self, program, number):
        """Runs a Python program in the round, and sends the signal to `rdzv join` when it has said that it is ready."""
        node = self.node("a", "1", command=[sys.executable, "-c", "import signal, sys\n" + program])
        wait_until(lambda: "ready" in self.lines(node), "the command is ready")
        node.send_signal(number)
        return node

    def test_signals_are_forwarded(self):
        waits = ("all = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}\nsignal.pthread_sigmask(signal.SIG_BLOCK, all)\n"
                 "print('ready', flush=True)\nsys.exit(100 + signal.sigtimedwait(all, 60).si_signo)\n")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self.gone(self.run_until_signal(waits, number), 100 + number)
        dies = "print('ready', flush=True)\nsignal.sigtimedwait({signal.SIGUSR1}, 60)\n"
        self.gone(self.run_until_signal(dies, signal.SIGTERM), 128 + signal.SIGTERM)


    @unittest.skipIf(rdzvtest.SANITIZED, "the sanitizer wants to be loaded first")
    def test_a_signal_never_goes_to_another_process_that_got_the_id(self):
        """The command ends in the moment in which a signal is passed on to it."""
        found = self.path("found")
        shim = rdzvtest.built("tests/slow_kill.so")
        ready = self.path("ready")
        node = self.node("a", "1", command=["sh", "-c", f": >{ready}; unset LD_PRELOAD; exec sleep 1000"],
                         env=dict(os.environ, LD_PRELOAD=shim, SLOW_KILL=found))
        wait_until(lambda: os.path.exists(ready), "the command runs")
        node.send_signal(signal.SIGTERM)
        self.gone(node, 128 + signal.SIGKILL)
        self.assertEqual(self.text(found), "kept\n")


class Failures(Rendezvous):
    def check(self, arguments, code, *texts, command="join", most=rdzvtest.DEADLINE):
        began = time.monotonic()
        done = self.rdzv(command, *arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        for text in texts:
            self.assertIn(text, done.stderr)
        self.assert_within(began, most)

    def test_wrong_command_lines_are_named(self):
        job = ["--rdzv-id", "job"]
        for arguments, text in (
            ([], "flag '--rdzv-id' is missing"),
            (["--rdzv-id", ""], "flag '--rdzv-id' is missing"),
            ([*job, "--nope"], "unknown flag '--nope'"),
            ([*job, "--nnodes", "0"], "invalid value '0' for --nnodes: expected MIN or MIN:MAX"),
            ([*job, "--nnodes", "3:2"], "invalid value '3:2' for --nnodes"),
            ([*job, "--nnodes", "1:2:3"], "invalid value '1:2:3' for --nnodes"),
            ([*job, "--nnodes", "two"], "invalid value 'two' for --nnodes"),
            ([*job, "--nnodes"], "needs a value"),
            ([*job, "--log-level", "loud"], "invalid value 'loud' for --log-level"),
            ([*job, "--rdzv-backend", "zk"], "unknown backend 'zk' (known: c10d, "),
            ([*job, "--rdzv-conf", "join_timout=3"], "unknown option 'join_timout' (did you mean 'join_timeout'?)"),
            ([*job, "--rdzv-conf", "frobnicate=3"], "unknown option 'frobnicate'"),
            ([*job, "--rdzv-conf", "join_timeout"], "option 'join_timeout' has no value"),
            ([*job, "--rdzv-conf", "=3"], "a name is missing"),
            ([*job, "--rdzv-conf", "join_timeout=soon"],
             "invalid value 'soon' for option 'join_timeout': expected a positive number of seconds"),
            ([*job, "--rdzv-conf", "keep_alive_max_attempt=0"],
             "invalid value '0' for option 'keep_alive_max_attempt': expected a positive whole number"),
            ([*job, "--rdzv-conf", "rank_order=random"],
             "invalid value 'random' for option 'rank_order': expected torch|stable|natural"),
            ([*job, "--rdzv-conf", "is_host=maybe"], "invalid value 'maybe' for option 'is_host': expected true or false"),
            ([*job, "--rdzv-conf", "torch_version=new"], "expected a version of PyTorch, such as 1.13 or 2.6"),
            ([*job, "--rdzv-conf", "store_type=file"], "needs the path of a file as endpoint"),
            ([*job, "--rdzv-conf", "rank=1"], "option 'rank' does not apply to this backend"),
            ([*job, "--rdzv-endpoint", "http://host:1"], "'http://host:1': it is a URL, where HOST:PORT is wanted"),
            ([*job, "--rdzv-endpoint", "host:99999"], "'job': invalid endpoint 'host:99999': the port is above 65535"),
            ([*job, "--rdzv-backend", "static"], "option 'rank' is missing (the rank of this node)"),
            ([*job, "--rdzv-backend", "static", "--rdzv-endpoint", "localhost:1", "--nnodes", "2", "--rdzv-conf",
              "rank=2"], "option 'rank' is '2': there are 2 nodes, and ranks begin with 0"),
        ):
            with self.subTest(arguments=arguments):
                self.check(arguments, USAGE, text)
        for command in ("status", "close"):
            self.check([], USAGE, f"rdzv {command}: flag '--rdzv-id' is missing", command=command)
            self.check([*job, "extra"], USAGE, "unexpected argument 'extra'", command=command)

    def test_the_time_to_join_is_over_and_the_error_tells_who_was_there(self):
        self.serve_store()
        stays = self.node("stays", "3")
        self.wait_participants(1)
        node = self.node("late", "3", f"join_timeout={slow(1)}")
        text = self.gone(node, TIMEOUT)
        self.assertRegex(text, r"rdzv join: join timed out: \d of at least 3 nodes joined: .*"
                               rf"'stays_{stays.pid}_0' \(heard \d+ s ago\).*; at c10d tcp {self.endpoint}.*"
                               r" \(are all nodes started, with the same --rdzv-endpoint and --rdzv-id\?\)")
        self.assertEqual([found["node"] for found in self.status()["nodes"]], [f"stays_{stays.pid}_0"])

    def test_a_store_that_cannot_be_reached(self):
        self.endpoint = dead_endpoint(self)
        text = f"cannot connect to '{self.endpoint}'"
        for command in ("join", "status", "close"):
            self.check(self.flags("is_host=false", f"read_timeout={slow(0.5)}"), CONNECT, text, "Connection refused",
                       command=command)

    @staticmethod
    def has_socket(pid):
        return any("socket:" in name for name in rdzvtest.descriptors(pid).values())

    def test_a_server_that_accepts_and_never_answers(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        self.endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
        self.check(self.flags("read_timeout=1"), CONNECT, f"{self.endpoint} accepts connections, but does not answer", most=20)
        node = self.node("a", "1")  # with a minute to go; who ends it need not wait for that
        wait_until(lambda: self.has_socket(node.pid), "the node has a connection")
        began = time.monotonic()
        node.send_signal(signal.SIGTERM)
        self.gone(node, YES)
        self.assert_within(began, 20)

    def test_an_event_log_that_cannot_be_opened(self):
        self.check(["--rdzv-id", "job", "--event-log", self.path("no/such/folder")], IO, "cannot open the event log")

    def test_what_is_in_the_store_is_no_state(self):
        self.serve_store()
        self.store(self.server, "set", "torch.rendezvous.job", "nonsense!")
        self.check(self.flags(), REFUSED, "is corrupt")
        self.check(self.flags(), REFUSED, "is corrupt", command="status")


class Close(Rendezvous):
    def setUp(self):
        super().setUp()
        self.serve_store()

    def test_members_and_those_who_come_later_are_told_why(self):
        nodes = [self.node(name, "2") for name in "ab"]
        self.together(nodes)
        done = self.rdzv("close", *self.flags(), "--reason", "the budget is spent")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (YES, "", ""))
        nodes.append(self.node("c", "2"))
        for node in nodes:
            self.assertIn("rdzv join: the rendezvous is closed: the budget is spent", self.gone(node, CLOSED))
        self.assertTrue(self.status()["closed"])

    def test_those_who_wait_are_told(self):
        node = self.node("a", "2")
        self.wait_participants(1)
        self.assertEqual(self.rdzv("close", *self.flags()).returncode, YES)
        self.assertIn("the rendezvous is closed", self.gone(node, CLOSED))

    def test_it_can_be_closed_before_anybody_came_and_twice(self):
        """The reason that was said first stays."""
        for reason in ("", "the first", "the second"):
            self.assertEqual(self.rdzv("close", *self.flags(), "--reason", reason).returncode, YES)
        self.assertEqual(self.status()["reason"], "the first")
        found = self.status()
        self.assertEqual((found["exists"], found["phase"], found["closed"]), (True, "closed", True))


class Status(Rendezvous):
    def setUp(self):
        super().setUp()
        self.serve_store()

    def test_nobody_has_joined(self):
        done = self.rdzv("status", *self.flags())
        self.assertEqual((done.returncode, done.stdout), (NO, "rendezvous 'job': no node has joined yet\n"))
        done = self.rdzv("status", *self.flags(), "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)["exists"]), (NO, False))

    def test_the_table_tells_ranks_roles_and_heartbeats(self):
        nodes = [self.node(name, "2:3") for name in "ab"]
        self.together(nodes)
        done = self.rdzv("status", *self.flags())
        self.assertEqual(done.returncode, YES, done.stderr)
        head, counts, titles, *rows = done.stdout.splitlines()
        self.assertEqual(head, "rendezvous 'job': round 0, complete")
        self.assertEqual(counts, "2 participants (min 2, max 3), 0 waiting, 0 spares")
        self.assertEqual(titles.split(), ["RANK", "KIND", "HEARTBEAT", "WAY", "TRIP", "NODE"])
        for rank, (row, node) in enumerate(zip(rows, nodes)):
            self.assertRegex(row, rf"^  {rank} +participant +\d+\.\d s ago +native +(-|\d+\.\d\d ms) +{node.name}_{node.pid}_0$")

    def test_the_round_trip_time_of_a_keep_alive(self):
        self.node("a", "2", "session_keep_alive=0.1")
        found = self.wait_status(lambda found: found["nodes"] and found["nodes"][0]["trip_us"] is not None, "a round trip")
        self.assertGreater(found["nodes"][0]["trip_us"], 0)

    def test_json_has_all_fields(self):
        node = self.node("a", "2")
        found = self.wait_participants(1)
        self.assertEqual(set(found), STATUS_FIELDS)
        self.assertEqual((found["run_id"], found["round"], found["phase"]), ("job", 0, "gathering"))
        self.assertEqual((found["complete"], found["closed"], found["deadline_left_ms"]), (False, False, None))
        self.assertEqual(found["torch_layout"], "2.6")
        [seen] = found["nodes"]
        self.assertEqual(seen.pop("heartbeat_age_ms") >= 0, True)
        self.assertIn("trip_us", seen)
        del seen["trip_us"]  # known from the second keep-alive on
        self.assertEqual(seen, {"node": f"a_{node.pid}_0", "kind": "participant", "rank": None, "way": "native"})

    def test_the_last_call_has_its_time(self):
        self.node("a", "1:2", "last_call_timeout=60")
        found = self.wait_status(lambda found: found["phase"] == "last call", "the last call")
        self.assertIn(found["deadline_left_ms"], range(1, 60001))
        self.assertIn("; the last call ends in ", self.rdzv("status", *self.flags()).stdout)

    def test_watch_prints_again_when_something_changes(self):
        with open(self.path("watch"), "w", encoding="utf-8") as out:
            watch = self.start([rdzvtest.RDZV, "status", *self.flags(), "--json", "--watch"], stdout=out)
        seen = lambda: [json.loads(line) for line in self.text(self.path("watch")).split("\n")[:-1]]
        wait_until(seen, "the first look")
        self.assertEqual([found["exists"] for found in seen()], [False])
        self.together([self.node("a", "1")])
        began = time.monotonic()
        wait_until(lambda: seen()[-1]["complete"], "it sees the round")
        self.assertLess(time.monotonic() - began, 4.5)  # it looks every 5 s anyway
        self.assertEqual(self.rdzv("close", *self.flags()).returncode, YES)
        wait_until(lambda: seen()[-1]["closed"], "it sees that it is closed")
        watch.send_signal(signal.SIGTERM)
        self.assertEqual(watch.wait(rdzvtest.DEADLINE), YES)


class Telling(Rendezvous):
    """What is told beside the rounds: events, the line on the terminal, the log."""

    def setUp(self):
        super().setUp()
        self.serve_store()

    def events(self):
        return [json.loads(line) for line in self.text(self.path("events")).splitlines()]

    def test_the_event_log_has_a_line_for_each_step_of_all_nodes(self):
        options = ["--once", "--event-log", self.path("events")]
        nodes = [self.node(name, "2", options=options) for name in "ab"]
        for node in nodes:
            self.gone(node, YES)
        alone = self.node("c", "9", f"join_timeout={slow(0.5)}", options=options)
        self.gone(alone, TIMEOUT)
        events = self.events()
        for event in events:
            self.assertEqual(set(event), EVENT_FIELDS)
            self.assertRegex(event["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
            self.assertEqual((event["run_id"], event["host"]), ("job", socket.gethostname()))
            self.assertTrue(event["message"])
        for node in nodes:
            own = [event for event in events if event["pid"] == node.pid]
            self.assertEqual({event["node"] for event in own}, {f"{node.name}_{node.pid}_0"})
            self.assertLessEqual({"INIT", "RUNNING", "SUCCEEDED"}, {event["state"] for event in own})
            [joined] = [event for event in own if event["state"] == "SUCCEEDED"]
            found = self.rounds(node)[0]
            self.assertEqual((joined["round"], joined["rank"]), (found["round"], found["rank"]))
        [failed] = [event for event in events if event["state"] == "FAILED"]
        self.assertEqual(failed["pid"], alone.pid)
        self.assertIn("join timed out", failed["message"])

    def join_on_a_terminal(self, *conf):
        """Node a, and the function that looks whether its terminal has shown a text; `.shown` is all of it."""
        terminal, other_end = pty.openpty()
        self.addCleanup(os.close, terminal)
        fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 300, 0, 0))  # the line is long
        node = self.start([rdzvtest.RDZV, "join", *self.flags(*conf), "--nnodes", "2:3", "--local-addr", "a"],
                          stdout=subprocess.PIPE, stderr=other_end, env={**os.environ, "TERM": "xterm"})
        os.close(other_end)
        os.set_blocking(terminal, False)

        def has(text):
            try:
                has.shown += os.read(terminal, 65536).decode()
            except (BlockingIOError, OSError):  # nothing yet, or the end
                pass
            return text in has.shown

        has.shown = ""
        return node, has

    def test_a_terminal_shows_who_is_there(self):
        node, has = self.join_on_a_terminal()
        wait_until(lambda: has(f"s: 1 joined, min 2, max 3, 1 more needed: a_{node.pid}_0"), "the line")
        self.node("b", "2:3")
        self.assertEqual(json.loads(node.stdout.readline())["world_size"], 2)
        wait_until(lambda: has("") and has.shown.endswith("\r\033[K"), "the line is gone")

    def test_who_died_two_rounds_ago_is_not_missing(self):
        quick = f"keep_alive_interval={slow(0.5)}"
        node, has = self.join_on_a_terminal(quick)
        wait_until(lambda: has("1 joined, min 2"), "a gathers")
        others = [self.node(name, "2:3", quick) for name in "bc"]
        world = 0
        while world < 3:  # b and c may come one by one
            world = json.loads(node.stdout.readline())["world_size"]
        others[1].kill()
        self.assertEqual(json.loads(node.stdout.readline())["world_size"], 2)
        has("")
        has.shown = ""
        others[0].kill()
        wait_until(lambda: has(f"missing: b_{others[0].pid}_0"), "b is missing")
        self.assertNotIn(f"c_{others[1].pid}_0", has.shown)

    def test_without_a_terminal_nothing_is_shown(self):
        node = self.node("a", "2")
        self.wait_participants(1)
        other = self.node("b", "2")
        self.together([node, other])
        self.assertEqual(self.text(node.err), "")


class Stores(Rendezvous):
    """Where the store is, and who serves it."""

    def test_the_first_of_a_machine_is_the_host_and_says_why(self):
        self.endpoint = f"localhost:{free_port()}"
        host = self.node("a", "2", options=["--log-level", "info"])
        wait_until(lambda: "this process serves the store of the rendezvous on 127.0.0.1:" in self.text(host.err),
                   "the first is the host")
        self.assertIn("'localhost' is a loopback address", self.text(host.err))
        self.wait_participants(1)
        guest = self.node("b", "2", options=["--log-level", "info"])
        self.together([host, guest])
        self.assertRegex(self.text(guest.err), r"this process is a client of the store at .*, although 'localhost' is")
        self.end(guest)
        host.send_signal(signal.SIGTERM)
        self.gone(host, YES)
        done = self.rdzv("status", *self.flags(f"read_timeout={slow(0.5)}"))  # the store has gone with its host
        self.assertEqual(done.returncode, CONNECT, done.stderr)

    def test_a_host_by_option_that_finds_the_port_taken_does_not_go_on(self):
        self.serve_store()
        done = self.rdzv("join", *self.flags("is_host=true"))
        self.assertEqual(done.returncode, CONNECT)
        self.assertIn("cannot serve the store of the rendezvous", done.stderr)
        self.assertIn("Address already in use", done.stderr)

    def test_a_file_can_be_the_store(self):
        self.endpoint = self.path("store")
        conf = "store_type=file"
        nodes = [self.node(name, "2", conf) for name in "ab"]
        self.together(nodes)
        self.assertEqual(self.status(conf)["participants"], 2)
        self.assertEqual(self.rdzv("close", *self.flags(conf), "--reason", "done").returncode, YES)
        for node in nodes:
            self.assertIn("the rendezvous is closed: done", self.gone(node, CLOSED))

    def test_static_ranks_are_those_that_were_given(self):
        port = free_port()
        flags = ["--rdzv-backend", "static", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job"]
        nodes = [self.run_node(f"rank{rank}", [*flags, "--nnodes", "2", "--rdzv-conf", f"rank={rank}"]) for rank in (1, 0)]
        for node, rank in zip(nodes, (1, 0)):
            [found] = wait_until(lambda node=node: self.rounds(node), f"{node.name} joins")
            self.assertEqual(set(found), FIELDS)
            self.assertEqual((found["rank"], found["world_size"], found["round"]), (rank, 2, 0))
            self.assertEqual((found["backend"], found["master_addr"], found["master_port"]),
                             ("static", "127.0.0.1", port))
        done = self.rdzv("status", *flags, "--rdzv-conf", "rank=0")
        self.assertEqual(done.returncode, REFUSED)
        self.assertIn("a static rendezvous has no shared state", done.stderr)
        for node in nodes:
            node.send_signal(signal.SIGTERM)
            self.gone(node, YES)


class Help(rdzvtest.Case):
    def test_every_command_tells_what_it_takes(self):
        for command, text in (("join", "--nnodes MIN[:MAX]"), ("status", "--watch"), ("close", "--reason TEXT")):
            done = self.rdzv(command, "--help")
            self.assertEqual(done.returncode, YES)
            self.assertIn(text, done.stdout)
            self.assertTrue(re.search(rf"^  {command} ", self.rdzv("--help").stdout, re.M))


if __name__ == "__main__":
    rdzvtest.main()
