# SPDX-License-Identifier: BSD-3-Clause
"""What test_torchrun_113.py and test_torchrun_26.py tell of stock torchrun with --rdzv-backend rdzv: gloo jobs whose agents
are stopped, killed, replaced and mixed with others."""
import json
import os
import signal
import subprocess

import etcd
import rdzvtest
import servers
from plugin_jobs import PluginJob
from torchrun_jobs import BEGAN, FIRST, SECOND, THIRD

STEPS = ["--steps", "1000000", "--pause", "0.02"]


class Stories:
    """The stories of one version run at the same time: they mostly wait."""

    def setUp(self):
        super().setUp()
        etcd.shared()  # not by the thread of a story: it ends with the thread that starts it

    def check_agents_come_and_go(self):
        """3 agents with 2 workers each: one is stopped, another comes, one is killed, then that of rank 0 is."""
        job = PluginJob(self, self.version, "1:3", self.endpoint())
        job.program += STEPS
        agents = [job.plugin(addr) for addr in (FIRST, SECOND, THIRD)]
        for agent in agents:
            agent.await_world(6)
        begun = self.begun(agents)
        agents[2].tell(signal.SIGTERM)
        self.assertEqual(agents[2].exit_code(), 1, agents[2].said())
        self.assertIn("SignalException", agents[2].said())
        self.assert_worlds(agents[:2], 4, begun)
        begun = self.begun(agents)
        agents[2] = job.plugin(THIRD)
        self.assert_worlds(agents, 6, [*begun[:2], 0])
        begun = self.begun(agents)
        agents[1].kill()
        self.assert_worlds([agents[0], agents[2]], 4, [begun[0], begun[2]])
        begun = self.begun(agents)
        self.assertTrue(agents[0].is_rank_0(), agents[0].said())
        agents[0].kill()
        self.assert_worlds([agents[2]], 2, [begun[2]])
        self.assertTrue(agents[2].is_rank_0(), agents[2].said())
        job.stop()
        self.assertLessEqual(job.assert_done([agents[2]])[0], 3)

    @staticmethod
    def begun(agents):
        return [len(agent.workers(BEGAN)) for agent in agents]

    def assert_worlds(self, agents, size, begun):
        for agent, before in zip(agents, begun):
            agent.await_world(size, before)

    def check_a_worker_fails(self):
        """A restart is used up, and the job goes on where it was, with a workers' store of its own."""
        job = PluginJob(self, self.version, 2, self.endpoint())
        job.program += ["--steps", "6", "--fail-rank", "2", "--fail-step", "2"]
        agents = [job.plugin(FIRST), job.plugin(SECOND)]
        self.assertEqual(job.assert_done(agents)[1], 1)  # the other may hear of the next round before its workers fail
        self.assertIn("as it was told to", agents[1].said())

    def check_restarts_are_used_up(self):
        """The job fails on all agents."""
        job = PluginJob(self, self.version, 2, self.endpoint(), restarts=1)
        job.program = self.shell("echo attempt-$TORCHELASTIC_RESTART_COUNT; exit 9")
        agents = [job.plugin(FIRST), job.plugin(SECOND)]
        self.assertEqual([agent.exit_code() for agent in agents], [1, 1], job.everything_said())
        said = job.everything_said()  # a worker may be stopped before it says so, and an agent hear that all is over
        self.assertEqual([f"attempt-{attempt}\n" in said for attempt in range(3)], [True, True, False], said)

    def check_the_others_are_mixed(self):
        """The plug-in, torchrun's own c10d, and `rdzv run`, at one server."""
        job = PluginJob(self, self.version, 3, self.endpoint())
        job.program += ["--steps", "5"]
        agents = [job.agent(kind, addr) for kind, addr in (("plugin", FIRST), ("theirs", SECOND), ("ours", THIRD))]
        job.assert_done(agents)

    def check_a_spare_is_not_needed(self):
        """It ends well when the job has."""
        endpoint = self.endpoint()
        job = PluginJob(self, self.version, 1, endpoint)
        job.program += STEPS
        first = job.plugin(FIRST)
        first.await_world(2)
        spare = job.plugin(SECOND)
        self.await_status(endpoint, job.run_id, "spares", 1)
        job.stop()
        self.assertEqual((first.exit_code(), spare.exit_code()), (0, 0), job.everything_said())
        self.assertEqual(spare.workers(BEGAN), [])

    def check_a_spare_takes_over(self):
        endpoint = self.endpoint()
        job = PluginJob(self, self.version, 1, endpoint)
        job.program += STEPS
        first = job.plugin(FIRST)
        first.await_world(2)
        spare = job.plugin(SECOND)
        if self.version == "1.13":  # its state has no place for it
            rdzvtest.wait_until(lambda: "waiting to join" in spare.said(), "the spare waits")
        else:
            self.await_status(endpoint, job.run_id, "spares", 1)
        first.kill()
        spare.await_world(2)
        job.stop()
        job.assert_done([spare])

    def await_status(self, endpoint, run_id, name, number):
        def there():
            look = self.rdzv("status", "--rdzv-endpoint", endpoint, "--rdzv-id", run_id, "--rdzv-conf", "is_host=false",
                             "--json")
            return look.returncode == 0 and json.loads(look.stdout)[name] == number  # a server may still take over

        rdzvtest.wait_until(there, f"{number} {name}")

    def check_closed_with_a_reason(self):
        """The workers go on, but there is no further round, and torchrun says why."""
        endpoint = self.endpoint()
        job = PluginJob(self, self.version, "1:2", endpoint)
        job.program += STEPS
        agents = [job.plugin(FIRST), job.plugin(SECOND)]
        for agent in agents:
            agent.await_world(4)
        closed = self.rdzv("close", "--rdzv-endpoint", endpoint, "--rdzv-id", job.run_id, "--rdzv-conf",
                           "is_host=false", "--reason", "the disk is full")
        self.assertEqual(closed.returncode, 0, closed.stderr)
        agents[1].kill()
        self.assertEqual(agents[0].exit_code(), 1, agents[0].said())
        self.assertIn("RendezvousClosedError", agents[0].said())
        self.assertIn("the disk is full", agents[0].said())

    def check_one_fails_for_good(self):
        """The workers of the other are well. They are stopped, and its agent knows which worker failed."""
        job = PluginJob(self, self.version, 2, self.endpoint(), restarts=0)
        started = self.path("started")
        job.program = self.shell(f"if [ $GROUP_RANK = 1 ]; then touch {started}; exec sleep 1000; fi; "
                                 f"while [ ! -e {started} ]; do sleep 0.05; done; exit 9")
        agents = [job.plugin(FIRST), job.plugin(SECOND)]
        self.assertEqual([agent.exit_code() for agent in agents], [1, 1], job.everything_said())
        self.assertIn("RendezvousClosedError", agents[1].said())
        self.assertRegex(agents[1].said(), r"rank [01] \(pid \d+\) failed: exit code 9")

    def check_a_wrong_option(self):
        job = PluginJob(self, self.version, 1, self.endpoint(), conf={"join_timout": 3})
        agent = job.plugin(FIRST)
        self.assertEqual(agent.exit_code(), 1, agent.said())
        self.assertIn("join_timeout", agent.said())

    def check_nobody_comes(self):
        """The error says how many were there."""
        job = PluginJob(self, self.version, 2, self.endpoint(), conf={"join_timeout": 1})
        agent = job.plugin(FIRST)
        self.assertEqual(agent.exit_code(), 1, agent.said())
        self.assertIn("RendezvousTimeoutError", agent.said())
        self.assertIn("2", agent.said().split("RendezvousTimeoutError", 1)[1])

    def check_etcd_v3(self):
        """A Store of ours, since PyTorch's client does not speak to etcd. An agent is killed."""
        job = PluginJob(self, self.version, "1:2", etcd.shared().endpoint, backend="etcd-v3", conf={"lease_time": 2})
        job.program += STEPS
        agents = [job.plugin(FIRST), job.plugin(SECOND)]
        for agent in agents:
            agent.await_world(4)
        begun = self.begun(agents)
        agents[0].kill()
        self.assert_worlds([agents[1]], 2, [begun[1]])
        job.stop()
        job.assert_done([agents[1]])

    def server_has(self, flag):
        return flag in self.rdzv("serve", "--help").stdout

    def check_the_server_is_restarted(self):
        """It keeps its state in a folder. The workers go on, and a death after it makes a round as before."""
        folder = self.path("state")
        server = self.serve("--state-dir", folder)
        job = PluginJob(self, self.version, "1:2", server.endpoint)
        job.program += STEPS
        agents = [job.plugin(FIRST), job.plugin(SECOND)]
        for agent in agents:
            agent.await_world(4)
        rdzvtest.wait_until(lambda: self.begun(agents) == [2, 2], "all workers run")
        begun = self.begun(agents)
        server.kill()
        server.wait()
        self.servers.remove(server)
        self.start([rdzvtest.RDZV, "serve", "--port", str(server.port), "--state-dir", folder], stdout=subprocess.DEVNULL)
        self.await_status(server.endpoint, job.run_id, "participants", 2)
        self.assertEqual(self.begun(agents), begun)
        agents[1].kill()
        self.assert_worlds(agents[:1], 2, begun[:1])
        job.stop()
        job.assert_done(agents[:1])

    def check_a_list_of_servers(self):
        """The first one is gone: nothing listens at its address."""
        gone = f"127.0.0.1:{rdzvtest.free_port()}"
        job = PluginJob(self, self.version, 2, f"{gone},{self.serve().endpoint}")
        job.program += ["--steps", "5"]
        job.assert_done([job.plugin(FIRST), job.plugin(SECOND)])

    def check_another_server_takes_over(self):
        """Two servers have one state in etcd, and the active one is killed. The workers go on, and a death after it makes
        a round as before."""
        group = servers.Group(self, etcd.shared(), prefix=f"/{self.id()}")
        active, standby = group.start(2)
        job = PluginJob(self, self.version, "1:2", group.endpoints)
        job.program += STEPS
        agents = [job.plugin(FIRST), job.plugin(SECOND)]
        for agent in agents:
            agent.await_world(4)
        rdzvtest.wait_until(lambda: self.begun(agents) == [2, 2], "all workers run")
        self.servers.remove(active)  # it is not to end in order
        active.kill()
        group.await_active(standby)
        self.await_status(group.endpoints, job.run_id, "participants", 2)
        self.assertEqual(self.begun(agents), [2, 2])
        agents[1].kill()
        self.assert_worlds(agents[:1], 2, [2])
        job.stop()
        job.assert_done(agents[:1])

    def check_a_secret(self):
        """A Store of ours, since PyTorch's client has none. An agent without it is refused."""
        path = self.path("secret")
        with open(path, "w", encoding="ascii") as file:
            file.write("0123456789abcdef0123456789abcdef\n")
        os.chmod(path, 0o600)
        endpoint = self.serve("--secret-file", path).endpoint
        job = PluginJob(self, self.version, 2, endpoint, conf={"secret_file": path})
        job.program += ["--steps", "5"]
        agents = [job.plugin(FIRST), job.plugin(SECOND)]
        job.assert_done(agents)
        without = PluginJob(self, self.version, 1, endpoint, conf={"read_timeout": 2, "join_timeout": 5}).plugin(FIRST)
        self.assertEqual(without.exit_code(), 1, without.said())

    def guarded_stories(self):
        """Those of servers that can do what they are about."""
        stories = {"--state-dir": ("the server is restarted", self.check_the_server_is_restarted),
                   "--secret-file": ("a secret", self.check_a_secret),
                   "--state-etcd": ("another server takes over", self.check_another_server_takes_over)}
        return dict(story for flag, story in stories.items() if self.server_has(flag))

    def shell(self, text):
        path = self.path(f"worker-{len(os.listdir(self.folder))}.sh")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(path, 0o755)
        return ["--no_python", path]

    def test_agents_that_go_and_fail(self):
        self.tell({"come and go": self.check_agents_come_and_go, "a worker fails": self.check_a_worker_fails,
                   "no restarts left": self.check_restarts_are_used_up, "mixed": self.check_the_others_are_mixed,
                   "etcd-v3": self.check_etcd_v3, "spare takes over": self.check_a_spare_takes_over,
                   "closed": self.check_closed_with_a_reason, "a wrong option": self.check_a_wrong_option,
                   "nobody comes": self.check_nobody_comes, "a list of servers": self.check_a_list_of_servers,
                   **self.more_stories(), **self.guarded_stories()}, 6)

    def more_stories(self):
        return {}
