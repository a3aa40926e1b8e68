# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv run` on several nodes, all on loopback: they come, go, die and fail, and the others go on or end with them."""
import json
import os
import re
import signal
import socket
import time

import etcd
import rdzvtest
import run_nodes
from nativeclient import NativeNode
from rdzvtest import slow
from run_nodes import CLOSED, CONNECT, NEVER, QUICK, STEADY, TIMEOUT, USAGE, is_alive

# Says where it is, and runs until it is told to end.
SITTER = """
note $ROLE_NAME $RANK/$WORLD_SIZE attempt $TORCHELASTIC_RESTART_COUNT of $MASTER_ADDR
await end; exit 0
"""


class Case(run_nodes.Run):
    def setUp(self):
        super().setUp()
        self.serve_store()

    def status(self, conf):
        return json.loads(self.rdzv("status", "--rdzv-endpoint", self.server.endpoint, "--rdzv-id", self.RUN_ID,
                                    "--rdzv-conf", conf, "--json").stdout)


class Together(Case):
    def test_ranks_go_through_all_nodes_and_roles(self):
        worker = self.script("note $ROLE_NAME $GROUP_RANK/$GROUP_WORLD_SIZE $RANK/$WORLD_SIZE "
                             "$ROLE_RANK/$ROLE_WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE")
        nodes = [self.launch(f"n{i}", [*self.join_flags(role, "3"), "--nproc-per-node", str(count)], [worker])
                 for i, (role, count) in enumerate((("x", 1), ("y", 2), ("x", 3)))]
        for node in nodes:
            self.gone(node)
        found = [note.split() for note in self.notes()]
        self.assertEqual(sorted(int(note[2].split("/")[0]) for note in found), list(range(6)))
        self.assertEqual({note[2].split("/")[1] for note in found}, {"6"})
        self.assertEqual(sorted(note[3] for note in found if note[0] == "x"), [f"{i}/4" for i in range(4)])
        self.assertEqual(sorted(note[3] for note in found if note[0] == "y"), ["0/2", "1/2"])
        by_group = sorted((int(note[1].split("/")[0]), int(note[4].split("/")[0]), int(note[2].split("/")[0]))
                          for note in found)
        self.assertEqual([rank for _, _, rank in by_group], list(range(6)))  # group after group

    def test_all_nodes_see_one_store(self):
        worker = self.script(f"""
        store() {{ {rdzvtest.RDZV} store --endpoint $MASTER_ADDR:$MASTER_PORT "$@"; }}
        store set rank$RANK x && store wait rank0 rank1 && note $MASTER_ADDR""")
        for node in [self.node(name, "2", worker) for name in "ab"]:
            self.gone(node)
        self.wait_notes("127.0.0.1", "127.0.0.1")

    def test_a_failure_restarts_all_and_uses_up_one_restart(self):
        worker = self.script("""
        note $ROLE_NAME $TORCHELASTIC_RESTART_COUNT
        [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0
        if [ $ROLE_NAME = b ]; then await b_fails; exit 1; fi
        await end""")
        nodes = [self.node(name, "2", worker, "--max-restarts", "1") for name in "ab"]
        self.wait_notes("a 0", "b 0")
        self.touch("b_fails")
        for node in nodes:
            self.gone(node)
        self.wait_notes("a 0", "b 0", "a 1", "b 1")
        self.assertRegex(nodes[0].err(), rf"warning: rank \d on 127\.0\.0\.1_{nodes[1].pid}_0 failed \(exit code 1\): stopping 1 worker\n")
        self.assertNotIn(" left", nodes[0].err())

    def test_every_node_tells_of_every_attempt(self):
        worker = self.script("""
        case $ROLE_NAME$TORCHELASTIC_RESTART_COUNT in a0) exit 10;; b1) echo why >&2; exit 11;; esac
        forever""")
        nodes = [self.node(name, "2", worker, "--max-restarts", "1") for name in "ab"]
        for node in nodes:
            self.gone(node, 11)
            self.assertRegex(node.err(), r"failed attempts:\n    0 at \S+: rank \d on \S+: exit code 10\n"
                                         r"    1 at \S+: rank \d on \S+: exit code 11: why\n")
            self.assertRegex(node.err(), r"\n  last attempt \(1\): first failure: rank \d .*: exit code 11, at ")

    def test_a_failure_beyond_the_budget_ends_all_and_all_name_it(self):
        worker = self.script("""
        note $ROLE_NAME
        if [ $ROLE_NAME = b ]; then await b_fails; echo no more >&2; exit 33; fi
        await end""")
        nodes = [self.node(name, "3", worker) for name in "abc"]
        self.wait_notes("a", "b", "c")
        self.touch("b_fails")
        rank = None
        for node in (nodes[1], nodes[0], nodes[2]):
            self.gone(node, 33)
            found = re.search(rf"first failure: rank (\d) \(local rank 0\) on {re.escape(socket.gethostname())}, "
                              r"pid \d+: exit code 33", node.err())
            self.assertTrue(found, node.err())
            rank = rank or found.group(1)
            self.assertEqual(found.group(1), rank)
            self.assertIn("    | no more\n", node.err())
        self.assertIn(f"FAILED: rank {rank} on 127.0.0.1_{nodes[1].pid}_0 failed (exit code 33); restarts used: 0\n", nodes[0].err())

    def test_a_program_that_is_gone_at_the_last_restart_ends_all_and_all_name_it(self):
        nodes = [self.node("a", "2", self.script("note a; forever"), "--max-restarts", "1"),
                 self.node("b", "2", self.script("note b; await b_fails; rm \"$0\"; exit 3", "b"), "--max-restarts", "1")]
        self.wait_notes("a", "b")
        self.touch("b_fails")
        for node in nodes:
            self.gone(node, 127)
            self.assertRegex(node.err(), r"first failure: rank \d .*: exit code 127, .*\n  message:\n    cannot start '.*b\.sh'")

    def test_a_long_message_of_another_nodes_worker_is_told_too(self):
        worker = self.script("""
        note $ROLE_NAME
        [ $ROLE_NAME = b ] || await end
        await b_fails
        python3 - <<'END'
import json, os
message = "a" + 5000 * "\\u00e9"
json.dump({"message": {"message": message, "extraInfo": {}}}, open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
END
        exit 4""")
        nodes = [self.node(name, "2", worker) for name in "ab"]
        self.wait_notes("a", "b")
        self.touch("b_fails")
        for node in nodes:
            self.gone(node, 4)
            self.assertIn("a\u00e9\u00e9\u00e9", node.err())

    def test_an_exec_error_on_one_node_does_not_leave_the_others_waiting_for_its_heartbeat(self):
        one = self.node("a", "1:2", self.script(SITTER), conf=NEVER)
        before = self.wait_world(one)
        self.gone(self.node("b", "1:2", "./not-there-${local_rank}", "--no-python", conf=NEVER), run_nodes.IO)
        self.wait_world(one, after=before)
        self.touch("end")
        self.gone(one)

    def test_a_node_too_many_is_a_spare_and_steps_in(self):
        worker = self.script(SITTER)
        nodes = [self.node(name, "2:2", worker, conf=NEVER) for name in "ab"]
        before = self.wait_world(*nodes)
        spare = self.node("c", "2:2", worker, conf=NEVER)
        self.wait_for(self.has_spare, "c is a spare")
        nodes[1].signal(signal.SIGTERM)
        self.gone(nodes[1], 128 + signal.SIGTERM)
        self.wait_world(nodes[0], spare, after=before)
        self.touch("end")
        self.gone(nodes[0])
        self.gone(spare)

    def has_spare(self):
        return self.status(NEVER)["spares"] == 1

    def test_a_spare_that_is_not_needed_ends_well_when_the_job_is_done(self):
        worker = self.script(SITTER)
        one = self.node("a", "1:1", worker, conf=NEVER)
        self.wait_world(one)
        spare = self.node("c", "1:1", worker, conf=NEVER)
        self.wait_for(self.has_spare, "c is a spare")
        self.touch("end")
        self.gone(one)
        self.gone(spare)


class ComeAndGo(Case):
    def test_one_more_makes_all_restart_without_using_a_restart(self):
        worker = self.script(SITTER)
        nodes = [self.node(name, "1:3", worker, conf=NEVER) for name in "a"]
        before = self.wait_world(*nodes)
        for name in "bc":
            nodes.append(self.node(name, "1:3", worker, conf=NEVER))
            before = self.wait_world(*nodes, after=before)
        found = self.wait_for(lambda: len([note for note in self.notes() if "/3 " in note]) == 3 and self.notes(),
                              "three workers of three")
        self.assertEqual({note.split("attempt ")[1][0] for note in found}, {"0"})
        self.touch("end")
        for node in nodes:
            self.gone(node)

    def test_sigterm_on_one_leaves_and_the_others_go_on_at_once(self):
        worker = self.script(SITTER)
        nodes = [self.node(name, "1:3", worker, conf=NEVER) for name in "abc"]
        before = self.wait_world(*nodes)
        leaver = next(node for node in nodes if node.events("AGENT", "RUNNING")[-1]["group_rank"] == 0)
        others = [node for node in nodes if node is not leaver]
        leaver.signal(signal.SIGTERM)
        self.gone(leaver, 128 + signal.SIGTERM)
        before = self.wait_world(*others, after=before)
        self.assertFalse(self.status(NEVER)["closed"])
        others.append(self.node("d", "1:3", worker, conf=NEVER))
        self.wait_world(*others, after=before)
        self.assertIn("attempt 0", self.notes()[-1])
        self.touch("end")
        for node in others:
            self.gone(node)

    def test_the_workers_of_who_leaves_are_not_taken_for_failed_by_the_others(self):
        worker = self.script("trap 'exit 9' INT TERM\n" + SITTER)
        nodes = [self.node(name, "1:2", worker, "--max-restarts", "0", conf=NEVER) for name in "ab"]
        before = self.wait_world(*nodes)
        nodes[0].signal(signal.SIGINT)
        self.gone(nodes[0], 128 + signal.SIGINT)
        self.wait_world(nodes[1], after=before)
        self.touch("end")
        self.gone(nodes[1])

    def test_when_too_few_are_left_they_wait_for_others(self):
        worker = self.script(SITTER)
        nodes = [self.node(name, "2:3", worker, conf=NEVER) for name in "ab"]
        before = self.wait_world(*nodes)
        nodes[0].signal(signal.SIGTERM)
        self.gone(nodes[0], 128 + signal.SIGTERM)
        self.wait_for(lambda: nodes[1].events("AGENT")[-1]["state"] == "RENDEZVOUS", "b waits")
        late = self.node("c", "2:3", worker, conf=NEVER)
        self.wait_world(nodes[1], late, after=before)
        self.touch("end")
        self.gone(nodes[1])
        self.gone(late)

    def test_who_is_killed_is_missed_and_the_others_go_on(self):
        worker = self.script(SITTER)
        nodes = [self.node(name, "1:3", worker, conf=QUICK) for name in "abc"]
        before = self.wait_world(*nodes)
        workers = [event["pid"] for event in nodes[1].events("WORKER", "STARTED")]
        nodes[1].process.kill()
        self.wait_world(nodes[0], nodes[2], after=before)
        self.assertEqual([pid for pid in workers if is_alive(pid)], [])
        self.touch("end")
        self.gone(nodes[0])
        self.gone(nodes[2])

    def test_who_is_frozen_longer_than_that_comes_in_again(self):
        worker = self.script(SITTER)
        nodes = [self.node(name, "1:2", worker, conf=QUICK) for name in "ab"]
        before = self.wait_world(*nodes)
        nodes[0].signal(signal.SIGSTOP)
        before = self.wait_world(nodes[1], after=before)
        nodes[0].signal(signal.SIGCONT)
        self.wait_world(*nodes, after=before)
        self.touch("end")
        for node in nodes:
            self.gone(node)


class CutOff(Case):
    """An agent is stopped for so long that the others go on without it, but its workers are not."""
    WORKER = f"""
    store() {{ {rdzvtest.RDZV} store --endpoint $MASTER_ADDR:$MASTER_PORT --timeout 2 "$@"; }}
    note $ROLE_NAME in world of $WORLD_SIZE attempt $TORCHELASTIC_RESTART_COUNT port $MASTER_PORT
    if [ $WORLD_SIZE = 2 ]; then
      await meddle_$ROLE_NAME
      store set word intruder && note has written
      store get other && note has read
      note has tried
      await end; exit 0
    fi
    store set other secret; : >"$T/ready"
    await tried
    store check word && note was written to
    note looked; await end"""

    def check(self, conf=QUICK, **where):
        worker = self.script(self.WORKER)
        nodes = [self.node(name, "1:2", worker, conf=conf, **where) for name in "ab"]
        before = self.wait_world(*nodes)
        nodes.sort(key=lambda node: node.events("AGENT", "RUNNING")[-1]["group_rank"])
        first, stopped = nodes
        stopped.signal(signal.SIGSTOP)
        self.wait_world(first, after=before)
        self.wait_for(lambda: os.path.exists(self.path("ready")), "the new world has a store")
        self.touch(f"meddle_{stopped.name}")
        self.wait_notes("has tried", more=True)
        self.touch("tried")
        notes = self.wait_notes("looked", more=True)
        self.touch("end")
        stopped.process.kill()
        self.gone(first)
        for note in ("has written", "has read", "was written to"):
            self.assertNotIn(note, notes)
        ports = [note.split()[-1] for note in notes if f"{first.name} in world" in note]
        self.assertGreaterEqual(len(ports), 2, notes)  # the first may have begun alone
        self.assertEqual(len(set(ports)), len(ports), notes)

    def test_its_workers_cannot_reach_the_store_of_the_next_world(self):
        self.check()

    def test_nor_with_etcd(self):
        self.RUN_ID = f"job-{os.getpid()}-cut"
        conf = STEADY + f",keep_alive_interval={slow(0.5)},keep_alive_max_attempt=6"
        self.check(endpoint=etcd.shared().endpoint, backend="etcd-v2", conf=conf)

    def test_the_port_is_another_too_where_the_worker_of_rank_0_serves(self):
        worker = self.script("note $WORLD_SIZE $TORCHELASTIC_USE_AGENT_STORE $MASTER_PORT; await end")
        env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        nodes = [self.node(name, "1:2", worker, conf=NEVER, env=env) for name in "ab"]
        before = self.wait_world(*nodes)
        self.wait_for(lambda: len([note for note in self.notes() if note.startswith("2 ")]) == 2, "both workers run")
        nodes.sort(key=lambda node: node.events("AGENT", "RUNNING")[-1]["group_rank"])
        nodes[1].signal(signal.SIGTERM)
        self.gone(nodes[1], 128 + signal.SIGTERM)
        self.wait_world(nodes[0], after=before)
        self.wait_for(lambda: self.notes()[-1].startswith("1 "), "one is left")
        notes = [note.split() for note in self.notes()][-3:]  # the first may have begun alone
        self.touch("end")
        self.gone(nodes[0])
        self.assertEqual({note[1] for note in notes}, {"False"})
        self.assertEqual(len({note[2] for note in notes[:2]}), 1)
        self.assertNotEqual(notes[2][2], notes[0][2])


class Endings(Case):
    def test_the_exit_barrier_waits_for_the_slowest(self):
        worker = self.script("note $ROLE_NAME; [ $ROLE_NAME = a ] || await end; exit 0")
        nodes = [self.node(name, "2", worker, conf=NEVER) for name in "ab"]
        self.wait_for(lambda: nodes[0].events("AGENT", "BARRIER"), "a is done")
        self.assertIsNone(nodes[0].process.poll())
        self.touch("end")
        for node in nodes:
            self.gone(node)
            self.assertEqual(node.events("AGENT")[-1]["state"], "SUCCEEDED")

    def test_the_exit_barrier_has_an_end(self):
        worker = self.script("note $ROLE_NAME; [ $ROLE_NAME = a ] || await end; exit 0")
        fast = self.node("a", "2", worker, "--exit-barrier-timeout", "0.5", conf=NEVER)
        slow = self.node("b", "2", worker, conf=NEVER)
        self.gone(fast)
        self.assertIn("workers of other agents are not done after 500 ms", fast.err())
        self.assertIsNone(slow.process.poll())
        self.touch("end")
        self.gone(slow)

    def test_sigterm_in_the_exit_barrier_leaves(self):
        worker = self.script("note $ROLE_NAME; [ $ROLE_NAME = a ] || await end; exit 0")
        nodes = [self.node(name, "2", worker, conf=NEVER) for name in "ab"]
        self.wait_for(lambda: nodes[0].events("AGENT", "BARRIER"), "a is done")
        nodes[0].signal(signal.SIGTERM)
        self.gone(nodes[0], 128 + signal.SIGTERM)
        self.assertFalse(self.status(NEVER)["closed"])
        self.touch("end")
        self.gone(nodes[1])

    def test_a_failure_while_others_are_done_ends_with_its_code(self):
        worker = self.script("note $ROLE_NAME; [ $ROLE_NAME = a ] && exit 0; await b_fails; exit 21")
        nodes = [self.node(name, "2", worker, conf=NEVER) for name in "ab"]
        self.wait_for(lambda: nodes[0].events("AGENT", "BARRIER"), "a is done")
        self.touch("b_fails")
        self.gone(nodes[1], 21)
        self.assertIn("exit code 21", nodes[1].err())
        self.assertIn(self.nodes[0].process.wait(rdzvtest.DEADLINE), (0, 21))

    def test_closed_before(self):
        flags = ["--rdzv-backend", "c10d", "--rdzv-endpoint", self.server.endpoint, "--rdzv-id", self.RUN_ID, "--rdzv-conf", self.CONF]
        self.assertEqual(self.rdzv("close", *flags, "--reason", "no more").returncode, 0)
        node = self.gone(self.node("a", "1", self.script("note ran")), CLOSED)
        self.assertIn("the rendezvous is closed: no more (choose another --rdzv-id, or free this one with "
                      "'rdzv reset')", node.err())
        self.assertEqual(self.notes(), [])

    def test_closed_while_running_lets_the_workers_finish(self):
        flags = ["--rdzv-backend", "c10d", "--rdzv-endpoint", self.server.endpoint, "--rdzv-id", self.RUN_ID, "--rdzv-conf", self.CONF]
        nodes = [self.node(name, "2", self.script(SITTER)) for name in "ab"]
        self.wait_world(*nodes)
        self.assertEqual(self.rdzv("close", *flags, "--reason", "the disk\tis full").returncode, 0)
        said = r"the rendezvous was closed: the disk\x09is full: the workers go on, but cannot be restarted"
        self.wait_for(lambda: all(said in node.err() for node in nodes), "they hear of it, and why")
        self.touch("end")
        for node in nodes:
            self.gone(node)
        self.assertEqual(self.status(self.CONF)["reason"], "the disk\tis full")

    def test_a_store_that_is_gone_does_not_hold_up_a_job_that_is_done(self):
        """Nothing is asked of it but what has the farewell's time, 6 s."""
        node = self.node("a", "1", self.script(SITTER), conf=NEVER)
        self.wait_world(node)
        self.server.terminate()
        self.wait_for(lambda: "lost the store of the rendezvous" in node.err(), "it misses the store")
        self.touch("end")
        self.gone(node, seconds=slow(25))

    def test_closed_while_running_without_a_reason(self):
        flags = ["--rdzv-backend", "c10d", "--rdzv-endpoint", self.server.endpoint, "--rdzv-id", self.RUN_ID, "--rdzv-conf", self.CONF]
        node = self.node("a", "1", self.script(SITTER))
        self.wait_world(node)
        self.assertEqual(self.rdzv("close", *flags).returncode, 0)
        self.wait_for(lambda: "the rendezvous was closed, without a reason: " in node.err(), "it hears of it")
        self.touch("end")
        self.gone(node)

    def test_a_join_that_takes_too_long_names_who_was_there(self):
        conf = self.CONF + f",join_timeout={slow(1)}"
        nodes = [self.node(name, "3", self.script("note ran"), conf=conf) for name in "ab"]
        for node in nodes:
            self.gone(node, TIMEOUT)
        self.assertRegex(nodes[0].err() + nodes[1].err(), r"2 of at least 3|[12] .* joined|127\.0\.0\.1_\d+_0")
        self.assertEqual(self.notes(), [])

    def test_the_store_is_killed(self):
        nodes = [self.node(name, "2", self.script(SITTER), conf=QUICK) for name in "ab"]
        self.wait_world(*nodes)
        self.server.kill()
        self.server.wait()
        for node in nodes:
            self.gone(node, CONNECT)
            self.assertIn(self.server.endpoint, node.err().splitlines()[-1])

    def test_the_store_loses_its_data_while_agents_agree_on_ranks(self):
        """The other node says nothing there, so the agent waits for it: what the agent told is gone, and so is the round."""
        a = self.node("a", "2", self.script(SITTER))
        with NativeNode(self.server.port, self.RUN_ID, "silent", min_nodes=2, max_nodes=2) as silent:
            self.assertEqual(silent.begin().joined().world_size, 2)
        self.end(self.server)
        self.serve("--port", str(self.server.port))
        b = self.node("b", "2", self.path("worker.sh"))
        self.assertGreater(self.wait_world(a, b), 0)
        self.touch("end")
        for node in (a, b):
            self.gone(node)

    def test_the_store_falls_silent_and_then_a_worker_fails(self):
        worker = self.script("note ran; [ $ROLE_NAME = a ] || await end; await a_fails; exit 3")
        nodes = [self.node(name, "2", worker, "--max-restarts", "3", conf=QUICK) for name in "ab"]
        self.wait_world(*nodes)
        self.server.send_signal(signal.SIGSTOP)
        self.addCleanup(self.server.send_signal, signal.SIGCONT)
        self.touch("a_fails")
        for node in nodes:  # one that joins the next round knows as well as a member that the store is gone
            self.gone(node, CONNECT)
            self.assertIn(self.server.endpoint, node.err().splitlines()[-1])


class Unnamed(Case):
    """The default id, none, at an endpoint that others use, too."""
    CONF = run_nodes.STEADY

    def plain(self, name, program, *flags, **options):
        words = ["--rdzv-backend", "c10d", "--rdzv-endpoint", self.server.endpoint, "--rdzv-conf", self.CONF, *flags]
        return self.launch(name, words, [program], **options)

    def check_other(self, *flags):
        first = self.plain("first", self.script("note first; await end", "first"), *flags)
        self.wait_notes("first")
        other = self.plain("other", self.script("note other", "other"), *flags)
        self.gone(other, USAGE)
        self.assertIn("program 'first.sh' uses this rendezvous, but this node runs 'other.sh' (give each job at a shared "
                      "endpoint its own --rdzv-id)", other.err())
        named = self.plain("named", self.path("other.sh"), *flags, "--rdzv-id", "other")
        self.gone(named)
        self.touch("end")
        self.gone(first)
        self.assertEqual(self.notes(), ["first", "other"])

    def test_another_program_is_refused(self):
        self.check_other()

    def test_another_program_is_refused_with_etcd(self):
        self.check_other("--rdzv-backend", "etcd-v2", "--rdzv-endpoint", etcd.shared().endpoint)

    def test_a_spare_that_never_ran_says_so(self):
        worker = self.script("note $TORCHELASTIC_RUN_ID; await end")
        first = self.plain("first", worker)
        self.wait_notes("none")
        spare = self.plain("spare", worker)
        self.wait_for(lambda: self.rdzv("status", "--rdzv-endpoint", self.server.endpoint, "--rdzv-id", "none")
                      .stdout.count(" spare  "), "the spare is there")
        self.touch("end")
        self.gone(first)
        self.gone(spare)
        self.assertIn("rdzv run: this node was a spare and ran no workers: ", spare.err())
        self.assertEqual(self.notes(), ["none"])


class Hosts(run_nodes.Run):
    """One of the nodes serves the store."""

    def test_the_host_of_the_store_leaves_last(self):
        endpoint = f"127.0.0.1:{run_nodes.free_port()}"
        for slow in "ab":
            with self.subTest(slow):
                worker = self.script(f"[ $ROLE_NAME = {slow} ] && sleep 0.5; exit 0")
                host = self.node("a", "2", worker, endpoint=endpoint, conf=NEVER + ",is_host=true")
                other = self.node("b", "2", worker, endpoint=endpoint, conf=NEVER + ",is_host=false")
                self.gone(host)
                self.gone(other)
                for node in (host, other):
                    self.assertNotRegex(node.err(), "warning|error")

    def test_the_host_is_killed_and_the_others_name_the_store(self):
        endpoint = f"127.0.0.1:{run_nodes.free_port()}"
        worker = self.script(SITTER)
        host = self.node("a", "3", worker, endpoint=endpoint, conf=QUICK + ",is_host=true")
        others = [self.node(name, "3", worker, endpoint=endpoint, conf=QUICK + ",is_host=false") for name in "bc"]
        self.wait_world(host, *others)
        host.process.kill()
        for node in others:
            self.gone(node, CONNECT)
            self.assertIn(endpoint, node.err().splitlines()[-1])

    def test_the_host_is_killed_while_a_worker_fails(self):
        """The worker's failure is noticed before the store's silence is; the rejoin hears of that as well."""
        endpoint = f"127.0.0.1:{run_nodes.free_port()}"
        worker = self.script("note $ROLE_NAME; [ $ROLE_NAME = b ] || await end; await b_fails; exit 1")
        conf = STEADY + f",keep_alive_interval={slow(1)},keep_alive_max_attempt=3"
        host = self.node("a", "2", worker, endpoint=endpoint, conf=conf + ",is_host=true")
        other = self.node("b", "2", worker, "--max-restarts", "3", endpoint=endpoint, conf=conf + ",is_host=false")
        self.wait_world(host, other)
        self.wait_notes("a", "b")
        host.process.kill()
        self.touch("b_fails")
        self.wait_for(lambda: len(other.events("AGENT", "RENDEZVOUS")) == 2 or other.process.poll() is not None,
                      "b joins the next round")
        before = time.monotonic()
        self.gone(other, CONNECT)
        self.assert_within(before, 15)
        self.assertIn(endpoint, other.err().splitlines()[-1])

    def test_the_first_node_serves_the_store_by_itself(self):
        endpoint = f"127.0.0.1:{run_nodes.free_port()}"
        for node in [self.node(name, "3", self.script("note $WORLD_SIZE"), endpoint=endpoint) for name in "abc"]:
            self.gone(node)
        self.wait_notes("3", "3", "3")

    def test_with_etcd_nobody_hosts_and_the_others_go_on(self):
        member = etcd.shared()
        worker = self.script(SITTER)
        self.RUN_ID = f"job-{os.getpid()}"
        conf = STEADY + f",keep_alive_interval={slow(0.5)},keep_alive_max_attempt=6"
        nodes = [self.node(name, "1:3", worker, endpoint=member.endpoint, conf=conf, backend="etcd-v2")
                 for name in "abc"]
        before = self.wait_world(*nodes)
        first = next(node for node in nodes if node.events("AGENT", "RUNNING")[-1]["group_rank"] == 0)
        others = [node for node in nodes if node is not first]
        first.process.kill()
        self.wait_world(*others, after=before)
        self.touch("end")
        for node in others:
            self.gone(node)

    def test_the_static_rendezvous(self):
        port = run_nodes.free_port()
        worker = self.script("note $GROUP_RANK $RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT")
        nodes = [self.launch(f"n{rank}", ["--nnodes", "2", "--node-rank", str(rank), "--master-addr", "127.0.0.1",
                                          "--master-port", str(port)], [worker]) for rank in (1, 0)]
        for node in nodes:
            self.gone(node)
        self.wait_notes(f"0 0/2 127.0.0.1:{port}", f"1 1/2 127.0.0.1:{port}")

    def test_a_failed_node_of_a_static_rendezvous_is_not_waited_for(self):
        """As with torchrun, a node whose workers are done ends well: there is no shared state that says otherwise."""
        for failing in (0, 1):
            for last in (0, 1):  # whose worker ends last
                with self.subTest(f"rank {failing} fails, rank {last} is last"):
                    port, name = run_nodes.free_port(), f"{failing}-{last}"
                    worker = self.script(f"""
                    note {name} $RANK
                    [ $RANK = {last} ] && await go-{name}
                    [ $RANK = {failing} ] && exit 3
                    exit 0""", name=f"worker-{name}")
                    nodes = [self.launch(f"n{name}-{rank}", ["--nnodes", "2", "--node-rank", str(rank), "--master-addr", "127.0.0.1",
                                                             "--master-port", str(port), "--exit-barrier-timeout", "100"], [worker])
                             for rank in (0, 1)]
                    rdzvtest.wait_until(lambda: {f"{name} 0", f"{name} 1"} <= set(self.notes()), "both workers run")
                    if last != failing:
                        self.gone(nodes[failing], 3)
                    self.touch(f"go-{name}")
                    if last == failing:
                        self.gone(nodes[failing], 3)
                    self.gone(nodes[1 - failing], 0)
                    self.assertNotIn("are not done", nodes[1 - failing].err())


if __name__ == "__main__":
    etcd.need()
    rdzvtest.main()
