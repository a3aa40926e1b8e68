# SPDX-License-Identifier: BSD-3-Clause
"""Jobs with torchrun on one node and `rdzv run` on another: gloo's workers find each other, fail and are restarted,
whoever has the store and whoever has rank 0; nodes come and go.

Agents of 2.6 have the workers' store in their own process unless they are told not to ("shared"). They keep the store,
and the keys of workers that are gone: a gloo job of torchrun alone does not survive a restart then. With an agent of
ours in the job it does, because that one deletes the keys.
"""
import itertools
import re
import signal

import peers
import rdzvtest
import torchrun_jobs
from torchrun_jobs import BEGAN, DONE, FIRST, SECOND, THIRD, Case, Job, ranks_of

KINDS = ("ours", "theirs")
FAST = (1, rdzvtest.slow_int(6))  # seconds between heartbeats, and how many may be missing: for nodes that die


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

    def check_keep_alive(self, host):
        """torchrun has no keep-alive options and beats every 5 s. Ours has a dead time of 2 s for its own kind, and the
        job takes three beats of torchrun: nobody is evicted, and no worker is started again."""
        job = Job(self, self.version, "2:2", host, False)
        job.ours_keep_alive = (1, 2)
        job.program += ["--steps", "700", "--pause", "0.02"]
        agents = {kind: job.make(kind, FIRST if kind == host else SECOND, 1) for kind in (host, other(host))}
        self.assertEqual(job.assert_done(list(agents.values()), 1), [0, 0])
        for agent in agents.values():
            self.assertEqual([each[1:] for each in agent.workers(BEGAN)], [(2, 0, 0)], agent.said())
        self.assertIn("PyTorch nodes ignore keep_alive_interval=1 and keep_alive_max_attempt=2", agents["ours"].said())

    def test_a_dead_time_that_torchrun_does_not_know(self):
        self.tell({f"the store is {kind}": lambda kind=kind: self.check_keep_alive(kind) for kind in KINDS})

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
        self.tell(self.recovery_stories(True))

    def check_ours_dies(self, kinds):
        """Theirs is rank 0, and serves the store of the workers before and after. All are in the first round: a torchrun
        that comes later does not find the store (docs/compatibility.md)."""
        job = Job(self, self.version, f"{len(kinds) - 1}:{len(kinds)}", "theirs", True, FAST)
        job.last_call = rdzvtest.slow_int(5)
        job.program += ["--steps", "1000000", "--pause", "0.02"]
        agents = [job.make(kind, f"127.0.0.{number}", 1) for number, kind in enumerate(kinds, 1)]
        begun = [agent.await_world(len(kinds)) for agent in agents]
        agents.pop().tell(signal.SIGKILL)
        for agent, before in zip(agents, begun):
            agent.await_world(len(agents), before)
        job.stop()
        job.assert_done(agents, 1)
        self.assertEqual(ranks_of(agents[0], 1), [0])
        self.assertRegex(job.everything_said(), r"deleted \d+ keys? that workers left in the store of the PyTorch agent")

    def test_ours_dies_where_theirs_serves_the_workers(self):
        self.tell({"one of theirs": lambda: self.check_ours_dies(["theirs", "ours", "ours", "ours"]),
                   "two of theirs": lambda: self.check_ours_dies(["theirs", "theirs", "ours", "ours"])})


if __name__ == "__main__":
    peers.main()
