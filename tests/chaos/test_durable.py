# SPDX-License-Identifier: BSD-3-Clause
"""A durable server that is killed over and over: no acknowledged write is lost, none is done twice, and no round breaks.

store.c has the clients and the kills, check.c judges the histories: a kill is no event in them, so they must be those of
one store that never ended. A command that answers before a commit is durable (broken.c) must be found out.
"""
import os
import re
import signal
import subprocess
import sys

import chaos
import rdzvtest
import test_rendezvous

SEEDS = 12 if chaos.LONG else 1 if rdzvtest.SANITIZED else 3  # the checker is slow under sanitizers


class Store(chaos.Case):
    def judge(self, *arguments, seeds=SEEDS, first=0, command=rdzvtest.RDZV):
        """Gives the finished process, and how often the server was killed."""
        first += chaos.SEED * 1000
        run = subprocess.run([rdzvtest.built("tests/chaos_store"), "--seeds", f"{first}:{first + seeds}", "--rdzv",
                              command, "--restarts", "--durable", *arguments, "serve"], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, errors="replace", timeout=900 if chaos.LONG else 280, check=False)
        return run, int(re.search(r"(\d+) kills", run.stdout)[1])

    def judge_well(self, *arguments):
        run, kills = self.judge(*arguments)
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertGreater(kills, SEEDS, run.stdout)
        print(run.stdout.splitlines()[-1], file=sys.stderr)

    def test_rdzv(self):
        self.judge_well("--dialect", "rdzv")

    def test_v1(self):
        self.judge_well("--dialect", "v1")

    def test_v2(self):
        queues = ["--can", "queues"] if chaos.LONG else []  # pushes of unknown outcome make the search for an order long
        self.judge_well("--dialect", "v2", *queues)

    def test_clients_that_are_killed_too(self):
        if rdzvtest.SANITIZED != "thread":  # which does not like to be forked
            self.judge_well("--processes", "--dialect", "rdzv")

    def test_an_answer_before_the_commit_is_caught(self):
        if rdzvtest.SANITIZED:  # too slow to be killed in the moment that counts
            return
        for first in range(0, 100, 5):
            run, kills = self.judge("--dialect", "v2", seeds=5, first=first,
                                    command=rdzvtest.built("tests/chaos_broken"))
            if run.returncode != 0:
                self.assertRegex(run.stdout, "is not linearizable")
                self.assertNotRegex(run.stdout, "; 0 unexpected codes, [1-9]|, [1-9][0-9]* unexpected")
                print(f"caught within {first + 5} seeds and {kills} kills", file=sys.stderr)
                return
        self.fail("a server that answers too early was not caught in 100 seeds")


class Rounds(test_rendezvous.Rounds):
    """Native nodes; only the server is killed, and lines are cut."""

    def harm_the_server(self, schedule, moment):
        if self.random.random() < 0.2:
            schedule.pair(moment, 1.0, "stop the server", lambda: self.server.signal(signal.SIGSTOP),
                          lambda: self.server.signal(signal.SIGCONT))
        else:
            schedule.at(moment, "restart the server", self.server.restart)

    def make(self, flags=(), conf=test_rendezvous.CONF):
        self.server = chaos.Server(self, "--state-dir", self.path("state"), *flags)
        self.proxies = [self.proxy(self.server.port, i) for i in range(test_rendezvous.NODES)]
        self.make_nodes("c10d", [proxy.endpoint for proxy in self.proxies], f"{conf},is_host=false")

    def check_all(self):
        """A number names one world for good: the state is never lost."""
        lists = super().check_all()
        for number, found in lists.items():
            self.assertEqual(len(found), 1, f"round {number} was given out as {found}")
        return lists

    def test_rounds_while_nodes_die_too(self):
        self.make()
        self.story()

    def test_no_round_breaks(self):
        """Where the server alone is killed, the first round is the last. A busy machine makes no node dead."""
        self.make(conf=test_rendezvous.CONF.replace("keep_alive_max_attempt=10", "keep_alive_max_attempt=300"))
        for node in self.nodes:
            node.start()
        rdzvtest.wait_until(self.one_world, "one world")
        before = [len(node.rounds()) for node in self.nodes]
        for restarts in range(1, 11 if chaos.LONG else 5):
            self.server.restart()
            try:
                rdzvtest.wait_until(lambda: all(self.resumed(node) >= restarts for node in self.nodes), "all resume")
            except TimeoutError as error:
                self.fail(f"{error}\n{self.logs()}")
        self.assertEqual([len(node.rounds()) for node in self.nodes], before, self.logs())
        for node in self.nodes:
            node.leave()
        for node in self.nodes:
            self.assertEqual(node.process.wait(rdzvtest.DEADLINE), 0, self.logs())
        self.check_all()

    @staticmethod
    def resumed(node):
        """How often the node has resumed its session."""
        return sum("resumes its session" in line for line in chaos.lines_of(f"{node.runs[-1][1]}.err"))


if __name__ == "__main__":
    rdzvtest.main()
