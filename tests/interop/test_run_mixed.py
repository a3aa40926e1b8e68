# SPDX-License-Identifier: BSD-3-Clause
"""Jobs with torchrun on one node and `rdzv run` on another: gloo's workers find each other, fail and are restarted,
whoever has the store and whoever has rank 0; nodes come and go.

Agents of 2.6 have the workers' store in their own process unless they are told not to ("shared"). With one of them as
rank 0 no gloo job survives a restart then, not even of torchrun's alone: they keep the store, and what is in it.
"""
import itertools
import re
import signal

import peers
import torchrun_jobs
from torchrun_jobs import BEGAN, DONE, FIRST, SECOND, THIRD, Case, Job, ranks_of

KINDS = ("ours", "theirs")
FAST = (1, 5)  # seconds between heartbeats, and how many may be missing: for nodes that die


def other(kind):
    return KINDS[1 - KINDS.index(kind)]


class EveryVersion:
    version = None

    def setUp(self):
        super().setUp()
        peers.need(self.version)
        torchrun_jobs.run_peer(self.version)

    def check_recovery(self, host, leader, fails, shares):
        """2 nodes with 2 workers each, one of which fails once. The job then goes on where it was."""
        job = Job(self, self.version, 2, host, shares)
        job.program += ["--steps", "6", "--fail-rank", "1" if fails == leader else "2", "--fail-step", "2"]
        agents = {kind: job.make(kind, FIRST if kind == leader else SECOND) for kind in (host, other(host))}
        attempts = dict(zip(agents, job.assert_done(list(agents.values()))))
        self.assertEqual(attempts[fails], 1)
        self.assertEqual([ranks_of(agents[leader]), ranks_of(agents[other(leader)])], [[0, 1], [2, 3]])
        for agent in agents.values():
            self.assertEqual([each[1:] for each in agent.workers(BEGAN)[:2]], [(4, 0, 0)] * 2, agent.said())
            self.assert_went_on([each[3] for each in agent.workers(BEGAN)[2:]], agent)
            self.assertEqual([each[3] for each in agent.workers(DONE)], [6] * 2)
        self.assertIn("as it was told to", agents[fails].said())

    def assert_went_on(self, steps, agent):
        """Where workers were started again. Rank 0 may be stopped before it has saved step 2; and the other node's agent may
        join the next round before the failure is known: that round uses up no restart, and its worker fails, too."""
        self.assertIn(len(steps), (2, 4), agent.said())
        self.assertIn(steps, ([1] * len(steps), [2] * len(steps), [1, 1, 2, 2]), agent.said())

    def recovery_stories(self, shares, leaders=KINDS):
        stories = {}
        for host, leader, fails in itertools.product(KINDS, leaders, KINDS):
            name = f"the store is {host}, rank 0 is {leader}, {fails} fails" + (", shared" if shares else "")
            stories[name] = lambda cell=(host, leader, fails, shares): self.check_recovery(*cell)
        return stories

    def test_a_worker_fails_and_the_job_recovers(self):
        self.tell(self.recovery_stories(False))

    def check_nodes_come_and_go(self, host, leader, shares):
        """Two nodes come, one after the other, and one goes."""
        job = Job(self, self.version, "1:3", host, shares)
        job.program += ["--steps", "1000000", "--pause", "0.02"]
        first = job.make(leader, FIRST, 1)
        first.await_world(1)
        second = job.make(other(leader), SECOND, 1)
        for agent in first, second:
            agent.await_world(2)
        third = job.ours(THIRD, 1)
        before = [agent.await_world(3) for agent in (first, second, third)]
        third.tell(signal.SIGTERM)
        self.assertEqual(third.exit_code(), 128 + signal.SIGTERM, third.said())
        for agent, begun in zip((first, second), before):
            agent.await_world(2, begun)
        job.stop()
        attempts = job.assert_done([first, second], 1)
        if leader == "ours":  # where the store is theirs, torchrun may be the first to notice, and fails our workers
            self.assertEqual(attempts[0], 0, first.said())

    def check_static(self, leader):
        """Ranks are given, and the agents' own store is the workers' as well."""
        job = Job(self, self.version, 2, leader)
        job.program += ["--steps", "4"]
        job.static = True
        agents = [job.make(leader, FIRST), job.make(other(leader), FIRST)]
        self.assertEqual(job.assert_done(agents), [0, 0])
        self.assertEqual([ranks_of(agent) for agent in agents], [[0, 1], [2, 3]])

    def test_static(self):
        self.tell({f"rank 0 is {leader}": lambda leader=leader: self.check_static(leader) for leader in KINDS})

    def check_theirs_dies(self):
        """Its workers stay, and must not find the store of the next world."""
        job = Job(self, self.version, "1:2", "ours", False, FAST)
        job.program += ["--steps", "1000000", "--pause", "0.02"]
        ours, theirs = job.ours(FIRST), job.theirs(SECOND)
        begun = ours.await_world(4)
        theirs.kill()
        ours.await_world(2, begun)
        job.stop()
        self.assertEqual(job.assert_done([ours]), [0])
        masters = re.findall(r"round \d+: .* master (\S+)", ours.said())
        self.assertEqual(len(set(masters)), len(masters), masters)

    def test_nodes_come_and_go(self):
        stories = {f"the store is {kind}": lambda kind=kind: self.check_nodes_come_and_go(kind, kind, False)
                   for kind in KINDS}
        stories["theirs is killed"] = self.check_theirs_dies
        self.tell(stories)


class Torch113(EveryVersion, Case):
    version = "1.13"


class Torch26(EveryVersion, Case):
    version = "2.6"

    def test_a_worker_fails_where_agents_share_their_store(self):
        self.tell(self.recovery_stories(True, ["ours"]))


if __name__ == "__main__":
    peers.main()
