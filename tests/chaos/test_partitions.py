# SPDX-License-Identifier: BSD-3-Clause
"""Servers with one state in etcd, each on a machine with a member of etcd: the active one is cut off. test_failover has
what must be."""
import subprocess
import sys
import time

import chaos
import etcd
import machines
import rdzvtest
import servers
from test_failover import SECONDS, SERVERS, Clients


class Machine:
    """A machine with a member of etcd and a server."""

    def __init__(self, case, network, number):
        self.case, self.network, self.number = case, network, number
        self.address = machines.address(number)
        self.endpoint = f"{self.address}:29400"

    def log(self, name):
        return open(self.case.path(f"{name}{self.number}.log"), "ab")

    def start_etcd(self, count):
        everybody = ",".join(f"m{i}=http://{machines.address(i)}:2380" for i in range(1, count + 1))
        clients, peers = f"http://{self.address}:2379", f"http://{self.address}:2380"
        with self.log("etcd") as log:
            self.case.start([*self.network.on(self.number), "etcd", "--name", f"m{self.number}", "--data-dir",
                             self.case.path(f"data{self.number}"), "--listen-client-urls", clients,
                             "--advertise-client-urls", clients, "--listen-peer-urls", peers,
                             "--initial-advertise-peer-urls", peers, "--initial-cluster", everybody],
                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start_server(self, url):
        with self.log("server") as log:
            self.server = self.case.start([*self.network.on(self.number), rdzvtest.RDZV, "serve", "--bind", self.address,
                                           "--state-etcd", url, "--state-lease", str(servers.LEASE)],
                                          stdout=subprocess.DEVNULL, stderr=log)

    def is_active(self):
        """By the last thing that its server said of it."""
        with open(self.case.path(f"server{self.number}.log"), encoding="utf-8") as file:
            said = file.read()
        return said.rfind("became the active server") > said.rfind("no longer the active server")

    def leave_others(self, count, verb):
        """The way to the other machines goes, or comes back. Clients, at the hub, reach it all the while."""
        for other in range(1, count + 1):
            if other != self.number:
                machines.run("ip", "-n", self.network.namespace(self.number), "route", verb, "blackhole",
                             f"{machines.address(other)}/32")


class Partitions(Clients):
    """The active server is cut off from the other machines and their etcd, and its clients still reach it; or the whole
    machine is cut off."""

    def test_all_histories_are_those_of_one_store(self):
        etcd.need()
        machines.need()
        network = machines.Network(SERVERS)
        self.addCleanup(network.remove)
        them = [Machine(self, network, number) for number in range(1, SERVERS + 1)]
        for one in them:
            one.start_etcd(SERVERS)
        for one in them:
            one.start_server(",".join(f"{other.address}:2379" for other in them))
        rdzvtest.wait_until(lambda: any(one.is_active() for one in them), "a server is active")
        clients = self.clients(",".join(one.endpoint for one in them), SECONDS + 2, network.on(0))
        ended = time.monotonic() + SECONDS
        turns = 0
        while time.monotonic() < ended:
            active = rdzvtest.wait_until(lambda: next((one for one in them if one.is_active()), None), "a server is active")
            self.cut_off(active, them, whole=turns % 2 == 1)
            turns += 1
            time.sleep(self.random.uniform(1.0, 3.0))  # in which the clients get on
        code, said = self.judged(clients)
        self.assertEqual(code, 0, said)
        print(f"{turns} turns: {said.splitlines()[-1]}", file=sys.stderr)

    def cut_off(self, active, them, whole):
        self.say(f"machine {active.number} is cut off{', from all' if whole else ''}")
        if whole:
            active.network.cut(active.number)
        else:
            active.leave_others(SERVERS, "add")
        others = [one for one in them if one is not active]
        rdzvtest.wait_until(lambda: any(one.is_active() for one in others), "another server is active")
        if whole:
            active.network.mend(active.number)
        else:
            active.leave_others(SERVERS, "del")


if __name__ == "__main__":
    rdzvtest.main()
