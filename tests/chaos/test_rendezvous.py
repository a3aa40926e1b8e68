# SPDX-License-Identifier: BSD-3-Clause
"""Nodes of a rendezvous that are killed, stopped and cut off, over a store that is restarted and loses its state.

Whatever happens: a round has one list of members, who all know it and its master; ranks are 0 … n-1; a node's rounds
only go up. And when the faults end, all nodes are in one world within seconds.
"""
import json
import os
import signal
import subprocess
import time

import chaos
import etcd
import rdzvtest

NODES, LEAST = 4, 2
SECONDS = float(os.environ.get("CHAOS_LENGTH", 20 if chaos.LONG else 3))  # of faults
DEAD, LAST_CALL = 1.0, 0.3
ONE_WORLD = 60  # seconds after the faults, on a busy machine; DEAD + LAST_CALL and some tries to connect on a quiet one
CONF = (f"last_call_timeout={LAST_CALL},keep_alive_interval={DEAD / 10},keep_alive_max_attempt=10,close_timeout=2,"
        "read_timeout=2")
LOST = (3, 4)  # exit codes of a node that had no store for too long; whoever started it starts it again
RUN = "chaos"
LOSSES = ["stop", "restart", "delete"]


class Node:
    """A place for one `rdzv join` after the other, each with a file of the rounds that it has printed."""

    def __init__(self, case, number, arguments):
        self.case, self.number, self.arguments = case, number, arguments
        self.process, self.leaving, self.runs = None, False, []

    def start(self):
        """Unless there is one, also if it is about to leave."""
        if self.process and self.process.poll() is None:
            return
        self.leaving = False
        path = self.case.path(f"node-{self.number}-{len(self.runs)}")
        with open(f"{path}.out", "wb") as out, open(f"{path}.err", "wb") as err:
            self.process = self.case.start([rdzvtest.RDZV, "join", "--log-level", "info", *self.arguments], stdout=out,
                                           stderr=err, stdin=subprocess.DEVNULL)
        self.runs.append((self.process, path))

    def signal(self, number):
        if self.process.poll() is not None or (self.leaving and number == signal.SIGSTOP):
            return
        if number == signal.SIGCONT:
            chaos.resume(self.process)
        else:
            self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def leave(self):
        """Asks once: a node that is leaving already goes on with that."""
        if not self.leaving:
            chaos.ask_to_leave(self.process)
        self.leaving = True

    def rounds(self, path=None):
        return [json.loads(line) for line in chaos.lines_of(f"{path or self.runs[-1][1]}.out")]

    def last(self):
        rounds = self.rounds()
        return rounds[-1] if rounds and not self.leaving and self.process.poll() is None else None


class Rounds(chaos.Case):
    """Without tests of its own."""

    least, most, within = LEAST, NODES, ONE_WORLD

    def tearDown(self):
        for node in getattr(self, "nodes", []):
            node.signal(signal.SIGCONT)
        super().tearDown()

    # ---- what is done ----

    def harm_a_node(self, schedule, moment):
        node = self.random.choice(self.nodes)
        what = self.random.choice(["kill", "kill", "stop", "stop", "leave"])
        if what == "stop":
            schedule.pair(moment, 2.5, f"stop node {node.number}", lambda: node.signal(signal.SIGSTOP),
                           lambda: node.signal(signal.SIGCONT))
        else:
            schedule.pair(moment, 1.0, f"{what} node {node.number}", getattr(node, what), node.start)

    def harm_the_server(self, schedule, moment):
        what = self.random.choice(LOSSES)
        if what == "stop":
            schedule.pair(moment, 1.5, "stop the server", lambda: self.server.signal(signal.SIGSTOP),
                           lambda: self.server.signal(signal.SIGCONT))
        elif what == "restart":
            schedule.at(moment, "restart the server", self.server.restart)
        else:
            schedule.at(moment, "delete the state", lambda: self.server.delete(self.state_key))

    def plan(self):
        schedule, moment = chaos.Schedule(self, SECONDS), 0.6
        while (moment := moment + self.random.uniform(0.05, 0.5)) < SECONDS:
            harm = self.random.choice([self.harm_a_node] * 4 + [self.harm_a_line] * 3 + [self.harm_the_server])
            harm(schedule, moment)
        return schedule

    def calm(self):
        self.end_harm(self.server, *self.nodes)

    # ---- what must be ----

    def one_world(self):
        """All nodes are in the same round, and it has all of them. A node that had given up is started again."""
        for node in self.nodes:
            node.start()
        last = [node.last() for node in self.nodes]
        return all(last) and len({one["round"] for one in last}) == 1 and last[0]["world_size"] == self.most

    def check_round(self, one, node):
        where = f"node {node.number}: {one}"
        self.assertTrue(self.least <= one["world_size"] <= self.most, where)
        self.assertTrue(one["master_addr"] and one["master_port"], f"no master: {where}")
        if one["members"] is None:  # the round was over, or the store lost, before the node had the list
            return None
        names = [member["node"] for member in one["members"]]
        self.assertEqual([member["rank"] for member in one["members"]], list(range(len(names))), where)
        self.assertEqual(len(set(names)), len(names), where)
        self.assertEqual(one["world_size"], len(names), where)
        self.assertEqual(names[one["rank"]], one["node"], where)
        return names

    def check_node(self, node, process, path):
        before = -1
        for one in node.rounds(path):
            self.assertGreater(one["round"], before, f"node {node.number} goes back: {path}")
            before = one["round"]
        if process.poll() is not None and process.returncode not in (0, -signal.SIGKILL, *LOST):
            with open(f"{path}.err", encoding="utf-8", errors="replace") as file:
                self.fail(f"node {node.number} ended with {process.returncode}: {file.read()[-1500:]}")

    def check_all(self):
        """Each round has one list of members. A store that lost its state may give a number again, to nodes that do not
        know it."""
        lists = {}
        for node in self.nodes:
            for process, path in node.runs:
                self.check_node(node, process, path)
                for one in node.rounds(path):
                    names = self.check_round(one, node)
                    master = one["master_addr"], one["master_port"]
                    if names is not None:
                        lists.setdefault(one["round"], set()).add((tuple(names), master))
        for number, found in lists.items():
            members = [name for names, _ in found for name in names]
            self.assertEqual(len(members), len(set(members)), f"round {number} was given out as {found}")
        return lists

    def story(self):
        for node in self.nodes:
            node.start()
        self.plan().run()
        self.calm()
        ended = time.monotonic()
        try:
            rdzvtest.wait_until(self.one_world, "one world of all nodes", self.within)
        except TimeoutError as error:
            self.check_all()
            self.fail(f"{error}; last rounds {[node.last() for node in self.nodes]}\n{self.logs()}")
        lists = self.check_all()
        print(f"{len(lists)} rounds; one world {time.monotonic() - ended:.1f} s after the faults ...", end=" ",
              flush=True)
        for node in self.nodes:
            node.leave()
        for node in self.nodes:
            self.assertEqual(node.process.wait(rdzvtest.DEADLINE), 0, self.logs())
        self.check_all()
        self.server.check()

    def logs(self):
        texts = []
        for node in self.nodes:
            for _, path in node.runs[-1:]:
                with open(f"{path}.err", encoding="utf-8", errors="replace") as file:
                    texts.append(f"--- {os.path.basename(path)}\n{file.read()[-3000:]}")
        return "\n".join(texts)

    def make_nodes(self, backend, endpoints, conf=CONF):
        self.nodes = [Node(self, i, ["--rdzv-backend", backend, "--rdzv-endpoint", endpoints[i % len(endpoints)],
                                     "--rdzv-id", RUN, "--nnodes", f"{self.least}:{self.most}", "--rdzv-conf", conf,
                                     "--local-addr", "127.0.0.1"]) for i in range(self.most)]


class OurServer(Rounds):
    def test_rounds(self):
        self.server, self.state_key = chaos.Server(self), f"torch.rendezvous.{RUN}"
        self.proxies = [self.proxy(self.server.port, i) for i in range(NODES)]
        self.make_nodes("c10d", [proxy.endpoint for proxy in self.proxies], f"{CONF},is_host=false")
        self.story()


class Leaving(Rounds):
    """What the schedules rely on: a node that is asked to leave does not die of SIGTERM."""

    def setUp(self):
        super().setUp()
        self.server = chaos.Server(self)
        self.make_nodes("c10d", [f"127.0.0.1:{self.server.port}"], f"{CONF},is_host=false")
        for node in self.nodes:
            node.start()

    def test_asked_again_while_the_server_is_silent(self):
        node = self.nodes[0]
        rdzvtest.wait_until(node.last, "the node is in a round")
        self.server.signal(signal.SIGSTOP)
        node.leave()
        node.leave()
        self.assertEqual(node.process.wait(rdzvtest.DEADLINE), 0, self.logs())

    def test_asked_at_its_start(self):
        for node in self.nodes:
            node.leave()
        for node in self.nodes:
            self.assertEqual(node.process.wait(rdzvtest.DEADLINE), 0, self.logs())


class EtcdServer:
    """One etcd that can lose all it has."""

    def __init__(self, case, advertised):
        self.member = etcd.start(case.addCleanup, ["--advertise-client-urls", f"http://127.0.0.1:{advertised}"])
        self.port = self.member.port

    def restart(self):
        self.member.kill()
        self.member.wipe()
        self.member.start().await_ready()

    def check(self):
        """It is not ours."""

    def delete(self, key):
        try:
            self.member.open("DELETE", f"/v2/keys{key}", timeout=1)
        except OSError:  # it is not there, or etcd is stopped
            pass

    def signal(self, number):
        self.member.process.send_signal(number)


class Etcd(Rounds):
    def test_rounds(self):
        if not etcd.shutil.which("etcd"):
            rdzvtest.skip("there is no etcd")
        port = etcd.free_port()  # of the proxy: etcd sends nodes there, too
        self.server = EtcdServer(self, port)
        self.proxies = [self.proxy(self.server.port, port=port, resets=True)]
        self.state_key = f"/torch/elastic/rendezvous/{RUN}"
        self.make_nodes("etcd-v2", [self.proxies[0].endpoint])
        self.story()


if __name__ == "__main__":
    rdzvtest.main()
