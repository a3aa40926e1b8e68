# SPDX-License-Identifier: BSD-3-Clause
"""Servers with one state in an etcd of three members, while the active one is killed, stopped in order, or paused beyond
its lease and woken, and while etcd's leader is killed or paused. test_partitions has machines that are cut off.

store.c has the clients, which know all servers, and check.c judges: a server that takes over is no event in a history, so
it must be that of one store. A server without its fence (unfenced.c) must be found out. test_failover_rounds has nodes of
a rendezvous.
"""
import os
import signal
import subprocess
import sys

import chaos
import etcd
import rdzvtest
import servers

SECONDS = float(os.environ.get("CHAOS_LENGTH", 60 if chaos.LONG else 8))
SERVERS = 3
LATER = 1.5  # beyond the lease


class Etcd:
    """Three members; any of them tells who is active."""

    def __init__(self, case):
        self.cluster = etcd.start_cluster(case.addCleanup)
        self.endpoint = self.cluster.endpoints

    def open_body(self, *arguments, **options):
        for member in self.cluster.alive():
            try:
                return member.open_body(*arguments, timeout=2, **options)
            except OSError as error:
                last = error
        raise last


class Group(servers.Group):
    """Servers that can be harmed; each keeps its port."""

    def __init__(self, case, command=rdzvtest.RDZV, **options):
        self.etcd = Etcd(case)
        self.command = command
        super().__init__(case, self.etcd, options=["--log-level", "warning"], **options)
        self.start(SERVERS)

    def active(self):
        """The one that etcd names at this moment; else any."""
        try:
            found = servers.active_address(self.member, self.prefix)
        except (OSError, ValueError):
            found = None
        return next((one for one in self.servers if one.endpoint == found), self.servers[0])

    def again(self, server):
        """Starts one again that has ended, at its port."""
        if server.poll() is None:
            return
        with open(server.log, "ab") as file:
            fresh = self.case.serve(*self.options, "--port", str(server.port), stderr=file)
        fresh.log = server.log
        self.servers[self.servers.index(server)] = fresh

    def calm(self):
        for member in self.etcd.cluster.members:
            if member.process.poll() is None:
                member.process.send_signal(signal.SIGCONT)
            else:
                member.start()
        for server in list(self.servers):
            if server.poll() is None:
                server.send_signal(signal.SIGCONT)
            else:
                self.again(server)

    def check(self):
        for server in self.servers:
            self.case.assertIsNone(server.poll(), f"a server ended by itself: {self.text(server)[-2000:]}")


class Harm:
    """What is done to servers and etcd; for a chaos.Case with a group."""

    KINDS = ["pause", "stop", "kill", "leader", "pause leader"]

    def one(self, schedule, moment, what):
        """Plans it; gives when it is over."""
        chosen = []

        def begin():
            chosen.append(self.group.active() if what in ("pause", "kill", "stop") else self.group.etcd.cluster.leader())
            if what == "pause":
                chosen[0].send_signal(signal.SIGSTOP)
            elif what == "pause leader":
                chosen[0].pause()
            elif what == "stop":
                chosen[0].send_signal(signal.SIGTERM)
            else:
                chosen[0].kill()

        def end():
            if what == "pause":
                chosen[0].send_signal(signal.SIGCONT)
            elif what == "pause leader":
                chosen[0].resume()
            elif what == "leader":
                chosen[0].start()
            else:
                chosen[0].wait()
                self.group.again(chosen[0])

        lasts = servers.LEASE + LATER if what == "pause" else self.random.uniform(0.3, 2.0 if chaos.LONG else 1.0)
        schedule.at(moment, what, begin)
        schedule.at(moment + lasts, f"{what}: over", end)
        return moment + lasts

    def plan(self):
        """One after the other: a server that is paused must not be killed meanwhile. The first ones are always there."""
        schedule, moment, kinds = chaos.Schedule(self, 1e9), 0.5, list(self.KINDS[:4])
        while moment < SECONDS:
            moment = self.one(schedule, moment, kinds.pop(0) if kinds else self.random.choice(self.KINDS))
            moment += self.random.uniform(0.2, 1.5 if chaos.LONG else 0.6)
        return schedule


class Clients(chaos.Case):
    """Without tests of its own."""

    def clients(self, endpoints, seconds, before=()):
        """chaos_store, which begins no further seed after so many seconds."""
        first = chaos.SEED * 1000
        return self.start([*before, rdzvtest.built("tests/chaos_store"), "--seeds", f"{first}:{first + 1000}",
                           "--seconds", str(int(seconds)), f"servers:{endpoints}"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace")

    def judged(self, clients):
        said, _ = clients.communicate(timeout=200)
        return clients.returncode, said


class Histories(Harm, Clients):
    def test_all_histories_are_those_of_one_store(self):
        etcd.need()
        self.group = Group(self)
        clients = self.clients(self.group.endpoints, SECONDS)
        self.plan().run()
        self.group.calm()
        code, said = self.judged(clients)
        self.assertEqual(code, 0, said)
        self.group.check()
        print(said.splitlines()[-1], file=sys.stderr)

    def test_a_server_without_its_fence_is_caught(self):
        if rdzvtest.SANITIZED:
            return
        etcd.need()
        command, rdzvtest.RDZV = rdzvtest.RDZV, rdzvtest.built("tests/chaos_unfenced")
        try:
            self.group = Group(self)
        finally:
            rdzvtest.RDZV = command
        active = self.group.active()
        active.send_signal(signal.SIGSTOP)
        rdzvtest.wait_until(lambda: self.group.active() is not active, "another server is active")
        active.send_signal(signal.SIGCONT)
        code, said = self.judged(self.clients(self.group.endpoints, 3))
        self.assertEqual(code, 1, said)
        self.assertIn("is not linearizable", said)


if __name__ == "__main__":
    rdzvtest.main()
