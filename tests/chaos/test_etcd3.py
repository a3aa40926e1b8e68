# SPDX-License-Identifier: BSD-3-Clause
"""Many nodes of the backend etcd-v3 over a cluster of three, whose leader and followers are killed, stopped and started
again, while nodes are killed, stopped and leave; and members that are cut off from the others, on machines of their own.

What must be is what test_rendezvous has: one list of members for each round, ranks 0 … n-1, rounds that go up, and one
world of all soon after the faults. All the while sixteen clients use the store in the same cluster: the history of each
of its keys, which ends with reads after the faults, must be one that a single store could have given. So no write that
was acknowledged is lost.
"""
import json
import os
import signal
import subprocess

import chaos
import etcd
import machines
import rdzvtest
from test_rendezvous import RUN, Node, Rounds

LEASE = 4 if rdzvtest.SANITIZED else 2
CONF = f"last_call_timeout=0.5,lease_time={LEASE},close_timeout=5,read_timeout=10,join_timeout=120"


class Members:
    """A cluster to harm: the leader, or a follower."""

    def __init__(self, case):
        self.case = case
        self.cluster = etcd.start_cluster(case.addCleanup)
        self.endpoints = self.cluster.endpoints

    def choose(self, which):
        """The leader if there is one to be found at once; else any, of that draw."""
        alive = self.cluster.alive()
        for member in alive:
            try:
                state = json.loads(member.open("GET", "/v2/stats/self", timeout=1))["state"]
                if (state == "StateLeader") == (which == "leader"):
                    return member
            except (OSError, ValueError):  # it is stopped, or in an election
                pass
        return alive[0] if alive else self.cluster.members[0]

    def kill(self, member):
        member.kill()

    def restart(self, member):
        member.kill()
        member.start()

    def signal(self, number):
        for member in self.cluster.members:
            if member.process.poll() is None:
                member.process.send_signal(number)
            elif number == signal.SIGCONT:
                member.start()

    def check(self):
        """It is not ours."""


class Traffic(Rounds):
    """Rounds while the store of the cluster is used."""

    def use_the_store(self, endpoints, *before):
        """Begins; the keys are read and judged when stdin is closed."""
        command = [*before, rdzvtest.built("tests/chaos_store"), "--seed", str(chaos.SEED * 1000),
                   "--until-closed", "--workers", "16", "--rest", "60", "--kinds", "register,number,versions,queue",
                   f"etcd3:{endpoints}"]
        with open(self.path("store.out"), "wb") as out:
            self.store = self.start(command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT)

    def calm_store(self):
        """It changes nothing from now on."""
        self.store.stdin.write(b"\n")
        self.store.stdin.flush()

    def check_store(self):
        """After the story: the nodes have agreed, so etcd answers, and the keys can be read."""
        self.store.stdin.close()
        # Under a sanitizer, a history of many unknown outcomes takes the checker minutes.
        try:
            code = self.store.wait(rdzvtest.DEADLINE * (4 if rdzvtest.SANITIZED else 1))
        except subprocess.TimeoutExpired:
            self.fail(f"the store's load does not end: {rdzvtest.thread_states(self.store.pid)}, it said "
                      f"{chaos.lines_of(self.path('store.out'))}")
        said = chaos.lines_of(self.path("store.out"))
        self.assertEqual(code, 0, "\n".join(said))
        self.assertRegex(said[-1], r"seeds from .* [1-9]\d* histories: 0 not linearizable")
        print(said[-1], end=" ... ", flush=True)


class Cluster(Traffic):
    least, most, within = 4, 16 if chaos.LONG else 8, 60

    def harm_the_server(self, schedule, moment):
        which, what = self.random.choice(["leader", "follower"]), self.random.choice(["kill", "stop", "restart"])
        chosen = []

        def begin():
            chosen.append(self.server.choose(which))
            if what == "stop":
                chosen[0].process.send_signal(signal.SIGSTOP)
            elif what == "kill":
                self.server.kill(chosen[0])
            else:
                self.server.restart(chosen[0])

        def end():
            if what == "stop" and chosen[0].process.poll() is None:
                chosen[0].process.send_signal(signal.SIGCONT)
            elif chosen[0].process.poll() is not None:
                chosen[0].start()

        schedule.pair(moment, 1.5, f"{what} the {which}", begin, end)

    def harm_a_line(self, schedule, moment):
        self.harm_the_server(schedule, moment)

    def calm(self):
        self.server.signal(signal.SIGCONT)
        for node in self.nodes:
            node.signal(signal.SIGCONT)
        self.calm_store()

    def test_rounds(self):
        etcd.need()
        self.server = Members(self)
        self.make_nodes("etcd-v3", [self.server.endpoints], CONF)
        self.use_the_store(self.server.endpoints)
        self.story()
        self.check_store()


class Machine:
    """A member of etcd on a machine of its own."""

    def __init__(self, network, number, folder):
        self.network, self.number = network, number
        self.name, self.folder, self.process = f"m{number}", folder, None

    def start(self, case):
        host = machines.address(self.number)
        cluster = ",".join(f"m{number}=http://{machines.address(number)}:2380" for number in (1, 2, 3))
        with open(os.path.join(self.folder, f"{self.name}.log"), "ab") as log:
            self.process = case.start(
                [*self.network.on(self.number), "etcd", "--name", self.name, "--data-dir",
                 os.path.join(self.folder, self.name), "--listen-client-urls", f"http://{host}:2379",
                 "--advertise-client-urls", f"http://{host}:2379", "--listen-peer-urls", f"http://{host}:2380",
                 "--initial-advertise-peer-urls", f"http://{host}:2380", "--initial-cluster", cluster],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)


class Partitions(Traffic):
    """The nodes are at the hub, and reach whoever is not cut off."""

    least, most, within = 2, 4, 60

    def harm_a_line(self, schedule, moment):
        number = self.random.choice([1, 2, 3])
        schedule.pair(moment, 1.5, f"cut member {number} off", lambda: self.network.cut(number),
                      lambda: self.network.mend(number))

    harm_the_server = harm_a_line

    def calm(self):
        for number in (1, 2, 3):
            self.network.mend(number)
        for node in self.nodes:
            node.signal(signal.SIGCONT)
        self.calm_store()

    def check(self):
        """There is no server of ours."""

    def test_rounds(self):
        etcd.need()
        machines.need()
        self.network = machines.Network(3)
        self.addCleanup(self.network.remove)
        self.server = self
        for member in [Machine(self.network, number, self.folder) for number in (1, 2, 3)]:
            member.start(self)
        endpoints = ",".join(f"{machines.address(number)}:2379" for number in (1, 2, 3))
        self.nodes = [Hub(self, i, ["--rdzv-backend", "etcd-v3", "--rdzv-endpoint", endpoints, "--rdzv-id", RUN,
                                    "--nnodes", f"{self.least}:{self.most}", "--rdzv-conf", CONF, "--local-addr",
                                    machines.HUB]) for i in range(self.most)]
        self.use_the_store(endpoints, *self.network.on(0))
        self.story()
        self.check_store()


class Hub(Node):
    """A node on the machine in the middle."""

    def start(self):
        if self.process and self.process.poll() is None:
            return
        self.leaving = False
        path = self.case.path(f"node-{self.number}-{len(self.runs)}")
        with open(f"{path}.out", "wb") as out, open(f"{path}.err", "wb") as err:
            self.process = self.case.start([*self.case.network.on(0), rdzvtest.RDZV, "join", "--log-level", "info",
                                            *self.arguments], stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        self.runs.append((self.process, path))


if __name__ == "__main__":
    rdzvtest.main()
