# SPDX-License-Identifier: BSD-3-Clause
"""Nodes of a rendezvous whose servers take over from each other: what must be is what test_rendezvous has."""
import signal

import etcd
import rdzvtest
from test_failover import SECONDS, Group, Harm
from test_rendezvous import CONF, Rounds


class Worlds(Harm, Rounds):
    """Nodes whose servers take over from each other: no round breaks because of it."""

    within = 60

    def harm_the_server(self, schedule, moment):
        """Planned by itself, one after the other."""

    harm_a_line = harm_the_server

    def plan(self):
        schedule = Harm.plan(self)
        moment = 0.6
        while (moment := moment + self.random.uniform(0.3, 1.5)) < SECONDS:
            self.harm_a_node(schedule, moment)
        return schedule

    def calm(self):
        self.group.calm()
        for node in self.nodes:
            node.signal(signal.SIGCONT)

    def test_rounds(self):
        etcd.need()
        self.group = self.server = Group(self)
        conf = CONF.replace("read_timeout=2", "read_timeout=20").replace("keep_alive_max_attempt=10",
                                                                         "keep_alive_max_attempt=60")
        self.make_nodes("c10d", [self.group.endpoints], conf)
        self.story()


if __name__ == "__main__":
    rdzvtest.main()
