# SPDX-License-Identifier: BSD-3-Clause
"""A PyTorch job under `rdzv run` alone: the example, with each PyTorch, as a user starts it."""
import os
import signal

import peers
import rdzvtest
import torchrun_jobs
from torchrun_jobs import BEGAN, DONE, EXAMPLE, FIRST, SECOND, THIRD, Case, Job, ranks_of

FAST = (1, rdzvtest.slow_int(6))  # seconds between heartbeats, and how many may be missing: for a node that dies


class Real(Case):
    """Every worker is a Python that imports PyTorch itself."""

    def check_recovery(self, version):
        """2 nodes with 2 workers each, one of which fails once. The job then goes on where it was."""
        job = Job(self, version, 2, "ours", shares=False)
        python = [EXAMPLE] if version == "1.13" else ["--no-python", *rdzvtest.torch_python(version), "-u", EXAMPLE]
        job.program = [*python, *job.program_arguments, "--steps", "6", "--fail-rank", "2", "--fail-step", "2"]
        agents = [job.ours(FIRST), job.ours(SECOND)]
        self.assertEqual(job.assert_done(agents), [1, 1])
        self.assertEqual([ranks_of(agent) for agent in agents], [[0, 1], [2, 3]])
        for agent in agents:
            self.assertEqual([each[1:] for each in agent.workers(BEGAN)], [(4, 0, 0)] * 2 + [(4, 1, 2)] * 2)
            self.assertEqual([each[3] for each in agent.workers(DONE)], [6] * 2)

    def test_a_worker_fails_and_the_job_recovers(self):
        self.tell({version: lambda version=version: self.check_recovery(version)
                   for version in torchrun_jobs.those_here()})


class EveryVersion:
    version = None

    def setUp(self):
        super().setUp()
        peers.need(self.version)
        torchrun_jobs.run_peer(self.version)

    def check_standalone(self):
        job = Job(self, self.version, 1, "ours")
        output = self.path("standalone")
        agent = torchrun_jobs.Ours(self, output, ["--standalone", "--nproc-per-node=3", *job.program, "--steps=4"],
                                   env=job.environment, cwd=rdzvtest.SOURCE)
        self.assertEqual(agent.exit_code(), 0, agent.said())
        self.assertEqual(sorted(agent.workers(DONE)), [(rank, 3, 0, 4) for rank in range(3)])

    def check_nodes_come_and_go(self):
        """The first node, which has the store, stays. When one leaves, nothing fails, and no restart is used up; the
        workers of one that dies fail the others."""
        job = Job(self, self.version, "1:3", "ours", keep_alive=FAST)
        job.program += ["--steps", "1000000", "--pause", "0.02"]
        first = job.ours(FIRST)
        first.await_world(2)
        second = job.ours(SECOND)
        for agent in first, second:
            agent.await_world(4)
        third = job.ours(THIRD)
        before = [agent.await_world(6) for agent in (first, second, third)]
        second.tell(signal.SIGTERM)
        self.assertEqual(second.exit_code(), 128 + signal.SIGTERM, second.said())
        for agent, begun in ((first, before[0]), (third, before[2])):
            agent.await_world(4, begun)
            self.assertEqual({each[2] for each in agent.workers(BEGAN)}, {0}, agent.said())
        third.tell(signal.SIGKILL)
        first.await_world(2, before[0])
        job.stop()
        self.assertLessEqual(job.assert_done([first])[0], 1)
        self.assert_steps_go_on(first)

    def assert_steps_go_on(self, agent):
        """Every time the workers begin where they were, or later."""
        steps = [each[3] for each in agent.workers(BEGAN)]
        self.assertEqual(steps, sorted(steps))
        self.assertGreater(steps[-1], 0)

    def check_two_jobs_at_one_port(self):
        """The workers of one sum their own numbers; the other job fails at once, and has no workers."""
        script, port = os.path.join(peers.HERE, "sum_worker.py"), torchrun_jobs.free_port()
        agents = [torchrun_jobs.Ours(self, self.path(f"sum-{number}"),
                                     ["--nproc-per-node=2", "--master-port", str(port), torchrun_jobs.WORKER,
                                      torchrun_jobs.run_peer(self.version), script, str(number), self.path("stop")],
                                     env=torchrun_jobs.environment(), cwd=rdzvtest.SOURCE) for number in (1, 100)]
        rdzvtest.wait_until(lambda: any(agent.ended() for agent in agents), "one of the jobs fails")
        failed = next(agent for agent in agents if agent.ended())
        works = next(agent for agent in agents if agent is not failed)
        self.assertEqual(failed.exit_code(), 3, failed.said())
        self.assertIn("Address already in use", failed.said())
        self.assertIn("choose --standalone or another --master-port", failed.said())
        self.assertNotIn("the sum is", failed.said())
        expected = f"the sum is {2 if works is agents[0] else 200}."
        rdzvtest.wait_until(lambda: works.ended() or works.said().count("the sum is") == 2, "the other job's workers sum")
        self.assertEqual(works.said().count(expected), 2, works.said())
        with open(self.path("stop"), "w", encoding="ascii"):
            pass
        self.assertEqual(works.exit_code(), 0, works.said())

    def run_alone(self, name, *command):
        return torchrun_jobs.Ours(self, self.path(name), [*command], env=torchrun_jobs.environment(),
                                  cwd=rdzvtest.SOURCE)

    def check_groups_formed_again(self, name, *flags):
        """The store outlives the groups, and their keys have the same names each time."""
        agent = self.run_alone(name, *flags, "--nproc-per-node=3", torchrun_jobs.WORKER,
                               torchrun_jobs.run_peer(self.version), os.path.join(peers.HERE, "regroup_worker.py"), "5")
        self.assertEqual(agent.exit_code(), 0, agent.said())
        for group in range(5):
            self.assertEqual(agent.said().count(f"group {group}: the sum is 6."), 3, agent.said())

    def check_static_restart(self):
        """All attempts have one store."""
        port = torchrun_jobs.free_port()
        agent = self.run_alone("static-restart", "--nproc-per-node=2", "--max-restarts=3", f"--master-port={port}",
                               torchrun_jobs.WORKER, torchrun_jobs.run_peer(self.version), EXAMPLE, "--steps=4",
                               "--fail-rank=1", "--checkpoint", self.path("static-checkpoint"))
        self.assertEqual(agent.exit_code(), 0, agent.said())
        self.assertEqual(sorted(agent.workers(DONE)), [(rank, 2, 1, 4) for rank in range(2)], agent.said())

    def test_groups_that_are_formed_again(self):
        static = ["--master-port", str(torchrun_jobs.free_port())]
        self.tell({"dynamic": lambda: self.check_groups_formed_again("dynamic", "--standalone"),
                   "static": lambda: self.check_groups_formed_again("static", *static),
                   "static, and a worker fails": self.check_static_restart})

    def test_standalone_and_nodes_that_come_and_go(self):
        self.tell({"standalone": self.check_standalone, "nodes": self.check_nodes_come_and_go,
                   "two jobs at one port": self.check_two_jobs_at_one_port})


class Torch113(EveryVersion, Case):
    version = "1.13"


class Torch26(EveryVersion, Case):
    version = "2.6"


if __name__ == "__main__":
    peers.main()
